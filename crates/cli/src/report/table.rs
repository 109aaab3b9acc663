//! What a person reads on the terminal.

use bandmaster_core::report::claims::{ClaimResult, Status, band};
use bandmaster_core::report::metric::label;
use bandmaster_core::report::summary::SummaryRow;
use bandmaster_core::scenario::{ClaimAt, FigureContent, FlowGroup, Study, Sweep};
use comfy_table::{CellAlignment, ColumnConstraint, LineStyle, Table, TableStyle, Width, presets};

use super::number;
use super::{ReportSummary, StudyOutline, distinct};

/// Columns of the table of variants, where flows share a link.
const SHARES: [&str; 7] =
    ["jain", "jain_normalised", "throughput", "round_goodput", "queue", "drops", "rtos"];

/// The same where flows complete and no share is measured.
const COMPLETIONS: [&str; 5] = ["fct_p50", "fct_p99", "undropped", "drops", "rtos"];
/// The same of incast.
const ROUNDS: [&str; 5] = ["round_goodput", "round_time_max", "queue", "drops", "rtos"];

/// The first of these metrics that was measured tells the columns.
const COLUMNS: [(&str, &[&str]); 3] =
    [("jain", &SHARES), ("undropped", &COMPLETIONS), ("round_goodput", &ROUNDS)];

/// Length of the longest [`Status::word`].
const OUTCOME_WIDTH: usize = 14;

/// Spaces of a cell: left and right.
const PADDING: (u16, u16) = (1, 0);

/// Columns between the contents of two neighbours: a separator and the padding.
const GAP: usize = 2;

/// Width where there is no terminal.
const PAPER_WIDTH: u16 = 110;

const STYLE: TableStyle = TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));

/// The tables of a report for stdout. A report of one study shows its sweeps; one of several, such as a paper's
/// whole evaluation, would be too long to read with them.
pub(crate) fn render(summary: &ReportSummary, colour: bool) -> String {
    let width = terminal_size::terminal_size_of(std::io::stdout()).map_or(PAPER_WIDTH, |(width, _)| width.0);
    TablePrint { width: width.max(40), colour, sweeps: summary.studies.len() == 1 }.text(summary)
}

/// A table without lines.
pub(crate) fn plain(mut table: Table) -> String {
    table.load_style(presets::NOTHING);
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table.trim_fmt()
}

/// How to print.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TablePrint {
    /// Columns of the terminal.
    pub(crate) width: u16,
    /// Emphasis by escape sequences.
    pub(crate) colour: bool,
    /// The tables of sweeps too.
    pub(crate) sweeps: bool,
}

impl TablePrint {
    /// The tables of a report: variants and sweeps of each study, then all claims.
    pub(crate) fn text(self, summary: &ReportSummary) -> String {
        let mut text = String::new();
        for study in &summary.studies {
            let title = if study.title.is_empty() { &study.name } else { &study.title };
            self.heading(&mut text, title);
            let rows: Vec<&SummaryRow> =
                summary.rows.iter().filter(|row| row.study == study.name).map(|row| &row.row).collect();
            self.variants(&mut text, study, &rows);
            if self.sweeps {
                for (sweep, focus) in study.sweeps.iter().zip(&study.focus) {
                    for metric in focus {
                        self.sweep(&mut text, sweep, metric, &rows);
                    }
                }
            }
        }
        if !self.sweeps && summary.studies.iter().any(|study| !study.sweeps.is_empty()) {
            text.push_str("The sweeps are in the report.\n\n");
        }
        self.claims(&mut text, summary);
        if !summary.complete {
            let (finished, planned) = (summary.trials.finished, summary.trials.planned);
            let note = format!("Not complete: {finished} of {planned} trials finished.");
            text.push_str(&format!("{}\n", self.paint(&note, YELLOW)));
        }
        text
    }

    fn variants(self, text: &mut String, study: &StudyOutline, rows: &[&SummaryRow]) {
        let base: Vec<(&str, &SummaryRow)> = study
            .variants
            .iter()
            .filter_map(|variant| {
                let row =
                    rows.iter().find(|row| row.base && row.variant == variant.name && row.trials > 0)?;
                Some((variant.name.as_str(), *row))
            })
            .collect();
        let metrics = columns(|metric| base.iter().any(|(_, row)| row.metric(metric).is_some()));
        if metrics.is_empty() {
            text.push_str("No trial has finished.\n\n");
            return;
        }
        let head = metrics.iter().map(|metric| label(metric).column()).collect();
        let rows = base.iter().map(|(name, row)| {
            let cells = metrics.iter().map(|metric| cell(row, metric)).collect();
            ((*name).to_owned(), cells)
        });
        self.blocks(text, "variant", head, rows.collect());
    }

    /// A metric over a sweep: a row for each variant, a column for each value.
    fn sweep(self, text: &mut String, sweep: &Sweep, metric: &str, rows: &[&SummaryRow]) {
        let at = |variant: &str, value: &str| {
            let row = rows.iter().find(|row| row.variant == variant && row.is_at(&sweep.name, value));
            row.map_or_else(|| "–".to_owned(), |row| cell(row, metric))
        };
        // Of a grid, the last key has the columns; the others have rows.
        let axes = sweep.axes();
        let (corner, columns) = axes.last().copied().unwrap_or((&sweep.name, &sweep.values));
        let row = |variant: &String, points: &[String]| {
            let rest = &sweep.coordinates(&points[0])[..axes.len() - 1];
            let named = axes.iter().zip(rest).map(|((name, _), value)| format!(", {name}={value}"));
            let cells = points.iter().map(|value| at(variant, value)).collect();
            (variant.clone() + &named.collect::<String>(), cells)
        };
        let of_variant = |variant| sweep.values.chunks(columns.len().max(1)).map(move |p| row(variant, p));
        let cells: Vec<(String, Vec<String>)> = sweep.variants.iter().flat_map(of_variant).collect();
        if cells.iter().flat_map(|(_, cells)| cells).any(|cell| cell != "–") {
            self.heading(text, &format!("{} over {}", label(metric).axis(), sweep.title));
            self.blocks(text, corner, columns.to_vec(), cells);
        }
    }

    /// A table of named rows, in blocks of columns where the terminal is too narrow for all.
    fn blocks(self, text: &mut String, corner: &str, head: Vec<String>, rows: Vec<(String, Vec<String>)>) {
        let name_width = rows.iter().map(|(name, _)| length(name)).max().unwrap_or(0).max(length(corner));
        // Heads may wrap between words, cells never do.
        let widths: Vec<usize> = (0..head.len())
            .map(|column| {
                let words = head[column].split(' ').map(length);
                words.chain(rows.iter().map(|(_, cells)| length(&cells[column]))).max().unwrap_or(0)
            })
            .collect();
        let fits = |columns: usize| {
            let line =
                |block: &[usize]| block.iter().map(|width| width + GAP).sum::<usize>() + name_width + 1;
            widths.chunks(columns).all(|block| line(block) <= usize::from(self.width))
        };
        let most = (1..=head.len()).rev().find(|columns| fits(*columns)).unwrap_or(1);
        // Blocks of equal size look better than full ones and a rest.
        let columns = head.len().div_ceil(head.len().div_ceil(most).max(1)).max(1);
        for start in (0..head.len()).step_by(columns) {
            let block = start..(start + columns).min(head.len());
            let mut table = Table::new();
            table.load_style(STYLE);
            table.set_header(std::iter::once(corner).chain(head[block.clone()].iter().map(String::as_str)));
            for (name, cells) in &rows {
                table.add_row(std::iter::once(name).chain(&cells[block.clone()]));
            }
            let widths = std::iter::once(name_width).chain(widths[block].iter().copied());
            for (index, (column, width)) in table.column_iter_mut().zip(widths).enumerate() {
                column.set_padding(PADDING);
                column.set_constraint(ColumnConstraint::Absolute(Width::Fixed(width as u16 + PADDING.0)));
                if index > 0 {
                    column.set_cell_alignment(CellAlignment::Right);
                }
            }
            text.push_str(&format!("{}\n\n", table.trim_fmt()));
        }
    }

    fn claims(self, text: &mut String, summary: &ReportSummary) {
        if summary.claims.is_empty() {
            return;
        }
        self.heading(text, "Claims");
        let results: Vec<&ClaimResult> = summary.claims.iter().map(|claim| &claim.result).collect();
        for claim in &results {
            let word =
                self.paint(&format!("{:OUTCOME_WIDTH$}", claim.status.word()), colour_of(claim.status));
            let (value, band) = (value_of(claim), band(claim.low, claim.high));
            let unit = if claim.unit.is_empty() || claim.value.is_none() {
                String::new()
            } else {
                format!(" {}", claim.unit)
            };
            let interval = number::interval(claim).map(|of| format!(" ({of})")).unwrap_or_default();
            let paper = [&claim.paper, &claim.source].map(String::as_str);
            let paper = paper.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ");
            let paper = if paper.is_empty() { paper } else { format!("; paper: {paper}") };
            text.push_str(&format!(" {word}  {}: {}\n", claim.id, claim.text));
            let computed = format!("{}, at {}:", claim.computed, claim.at);
            let judged = format!("{value}{unit}{interval}, band {band}{paper}");
            let why = [number::more(claim)].into_iter().chain(claim.not_reproduced.clone());
            for line in [computed, judged].into_iter().chain(why).filter(|line| !line.is_empty()) {
                text.push_str(&format!(" {:OUTCOME_WIDTH$}  {line}\n", ""));
            }
        }
        text.push('\n');
        let count = |status: Status, what: &str| match summary.claims_that(status) {
            0 => None,
            n => Some(format!("{n} {what}")),
        };
        let counts = [
            count(Status::Holds, "ok"),
            count(Status::Fails, "failed"),
            count(Status::Undecided, "undecided"),
            count(Status::ReproducedAfterAll, "reproduced after all"),
            count(Status::NotReproduced, "not reproduced"),
            count(Status::Missing, "without data"),
        ];
        let counts: Vec<String> = counts.into_iter().flatten().collect();
        let claims = if summary.claims.len() == 1 { "claim" } else { "claims" };
        text.push_str(&format!("{} {claims}: {}.\n", summary.claims.len(), counts.join(", ")));
    }

    fn heading(self, text: &mut String, title: &str) {
        text.push_str(&format!("{}\n", self.paint(title, BOLD)));
    }

    fn paint(self, text: &str, code: &str) -> String {
        if self.colour { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }
}

/// The metrics in the columns of the table of variants, where those that were measured are `present`.
pub(crate) fn columns(present: impl Fn(&str) -> bool) -> Vec<&'static str> {
    let columns =
        COLUMNS.into_iter().find(|(metric, _)| present(metric)).map_or(&SHARES[..], |found| found.1);
    columns.iter().copied().filter(|metric| present(metric)).collect()
}

/// Every metric that the tables of a study may show.
pub(crate) fn candidates(study: &Study) -> Vec<String> {
    let columns = COLUMNS.into_iter().flat_map(|(_, columns)| columns).map(|metric| (*metric).to_owned());
    distinct(columns.chain(study.sweeps.iter().flat_map(|sweep| focus(study, sweep))))
}

/// Metrics that a study's figures and claims look at along a sweep.
pub(crate) fn focus(study: &Study, sweep: &Sweep) -> Vec<String> {
    let drawn = study.figures.iter().filter_map(|figure| match &figure.content {
        FigureContent::Sweep { y, .. }
        | FigureContent::Heatmap { z: y, .. }
        | FigureContent::Box { y, .. } => {
            figure.content.sweep().filter(|name| *name == sweep.name).map(|_| y.clone())
        }
        FigureContent::Series { .. }
        | FigureContent::Distribution { .. }
        | FigureContent::Cdf { .. }
        | FigureContent::Bars { .. }
        | FigureContent::Slowdown { .. } => None,
    });
    let claimed = study.claims.iter().filter_map(|claim| match &claim.at {
        ClaimAt::Every(name) | ClaimAt::Points(name, _) if *name == sweep.name => Some(claim.metric.clone()),
        ClaimAt::Every(_) | ClaimAt::Points(..) | ClaimAt::Base | ClaimAt::Point(..) => None,
    });
    let mut focus = distinct(drawn.chain(claimed));
    if focus.is_empty() {
        let any =
            |is: fn(&FlowGroup) -> bool| study.cases.iter().any(|case| case.scenario.flows.iter().any(is));
        let usual: &[&str] = if any(|flows| flows.measured) {
            &["jain_normalised", "throughput"]
        } else if any(|flows| flows.rounds.is_some()) {
            &["round_goodput"]
        } else {
            &["fct_p50", "fct_p99"]
        };
        focus.extend(usual.iter().map(|metric| (*metric).to_owned()));
    }
    focus
}

const BOLD: &str = "1";
const GREEN: &str = "32";
const YELLOW: &str = "33";
const RED: &str = "1;31";

const fn colour_of(status: Status) -> &'static str {
    match status {
        Status::Holds => GREEN,
        Status::Fails | Status::Missing | Status::ReproducedAfterAll => RED,
        Status::Undecided | Status::NotReproduced => YELLOW,
    }
}

fn cell(row: &SummaryRow, metric: &str) -> String {
    row.metric(metric).map_or_else(|| "–".to_owned(), |estimate| number::estimate(metric, estimate))
}

fn value_of(claim: &ClaimResult) -> String {
    claim.value.map_or_else(|| "–".to_owned(), |value| number::claim_value(value, claim.low, claim.high))
}

fn length(text: &str) -> usize {
    text.chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::{results, study};

    fn text(print: TablePrint) -> String {
        let study = study();
        print.text(&ReportSummary::new("Title", &[results(&study)]))
    }

    const PLAIN: TablePrint = TablePrint { width: 100, colour: false, sweeps: true };

    #[test]
    fn the_whole_text() {
        assert_eq!(text(PLAIN), include_str!("table_snapshot.txt"));
    }

    /// Without measured flows there are no shares, and the goodput of none says nothing.
    #[test]
    fn columns_are_of_what_the_study_measures() {
        let head = |metrics: &[&str]| {
            let study = study();
            let mut results = [results(&study)];
            for record in &mut results[0].records {
                record.metrics.retain(|(name, _)| !name.starts_with("jain"));
                record.metrics.extend(metrics.iter().map(|name| ((*name).to_owned(), 1.0)));
            }
            let text = PLAIN.text(&ReportSummary::new("Title", &results));
            text.lines().nth(1).expect("a head").split_whitespace().collect::<Vec<_>>().join(" ")
        };
        // Heads wrap; this is their first line.
        assert_eq!(
            head(&["fct_p50", "fct_p99", "undropped"]),
            "variant FCT median FCT p99 (s) without drops RTOs"
        );
        assert!(head(&["round_goodput", "round_time_max"]).starts_with("variant goodput round, "));
    }

    #[test]
    fn narrow_terminals_get_narrow_tables() {
        let narrow = text(TablePrint { width: 48, ..PLAIN });
        let tables = narrow.split("Claims").next().unwrap();
        for line in tables.lines() {
            assert!(line.chars().count() <= 48, "{line}");
        }
        // The figures do not fit beside each other any more.
        assert_eq!(
            (narrow.matches("\n variant ").count(), text(PLAIN).matches("\n variant ").count()),
            (3, 1)
        );
    }

    #[test]
    fn colours_only_add_escape_sequences() {
        let coloured = text(TablePrint { colour: true, ..PLAIN });
        assert!(coloured.contains("\u{1b}[1;31mFAILS "));
        let mut plain = coloured;
        for code in [BOLD, GREEN, YELLOW, RED, "0"] {
            plain = plain.replace(&format!("\u{1b}[{code}m"), "");
        }
        assert_eq!(plain, text(PLAIN));
    }

    #[test]
    fn a_variant_may_be_called_like_an_outcome() {
        let mut study = study();
        study.variants[0].name = "ok".to_owned();
        study.cases[0].variant = "ok".to_owned();
        let summary = ReportSummary::new("Title", &[results(&study)]);
        let text = TablePrint { colour: true, ..PLAIN }.text(&summary);
        assert!(text.contains("\n ok "), "{text}");
    }

    #[test]
    fn sweeps_can_be_left_out() {
        assert!(!text(TablePrint { sweeps: false, ..PLAIN }).contains(" over "));
    }

    #[test]
    fn a_run_that_was_stopped_at_once_says_so() {
        let study = study();
        let mut results = [results(&study)];
        results[0].records.clear();
        let text = PLAIN.text(&ReportSummary::new("Title", &results));
        assert!(text.contains("No trial has finished."), "{text}");
        assert!(text.contains("Not complete: 0 of 14 trials finished."), "{text}");
        assert!(text.contains("NO DATA"), "{text}");
    }
}
