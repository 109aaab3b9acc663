//! `report.html`: one file, no script, nothing loaded from elsewhere. First the verdict, then figures, claims, numbers.

mod claims;
mod grid;

use bandmaster_core::report::metric::label;
use bandmaster_core::report::summary::{Estimate, SummaryRow};
use bandmaster_core::scenario::Study;
use maud::{DOCTYPE, Markup, PreEscaped, html};

use self::claims::Group;
use self::grid::Grid;
use super::figure::{DataTable, DrawnFigure};
use super::manifest::Manifest;
use super::number::{self, grouped};
use super::{COMMIT, ReportClaim, ReportSummary, StudyOutline, StudyResults, VERSION, distinct, svg};

/// Data with more rows are plain text, which a browser copies better than a long table.
const TABLE_ROWS: usize = 60;

/// A study on the page.
struct Part<'a> {
    study: &'a Study,
    outline: &'a StudyOutline,
    /// With their numbers in the page.
    figures: Vec<(usize, &'a DrawnFigure<'a>)>,
}

/// The page.
pub(crate) fn page(
    summary: &ReportSummary,
    results: &[StudyResults<'_>],
    figures: &[DrawnFigure<'_>],
    manifest: &Manifest,
) -> String {
    let several = results.len() > 1;
    let studies = results.iter().zip(&summary.studies).enumerate();
    let parts: Vec<Part<'_>> = studies
        .map(|(index, (result, outline))| {
            let own = (1..).zip(figures).filter(|(_, figure)| figure.study == index);
            Part { study: result.study, outline, figures: own.collect() }
        })
        .collect();
    let groups = claim_groups(summary, &parts);
    let has_figures = parts.iter().any(|part| !part.figures.is_empty());
    let has_claims = !summary.claims.is_empty();
    let markup = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta name="generator" content={ "bandmaster " (VERSION) };
                title { (summary.title) }
                style { (PreEscaped(include_str!("page.css"))) }
            }
            body {
                header {
                    h1 { (summary.title) }
                    (claims::verdict(summary, &groups))
                    @if !several { @for part in &parts { (description(part.study)) } }
                    nav {
                        @if has_figures { a href="#section:figures" { "Figures" } }
                        @if has_claims { a href="#section:claims" { "Claims" } }
                        a href="#section:summary" { "Summary" }
                        a href="#section:how" { "How it was run" }
                    }
                }
                @if has_figures {
                    section id="section:figures" {
                        h2 { "Figures" }
                        @for (part, groups) in parts.iter().zip(&groups).filter(|(part, _)| !part.figures.is_empty()) {
                            @if several { h3 { (study_title(part.outline)) } (description(part.study)) }
                            @for (number, figure) in &part.figures {
                                (drawn(*number, figure, groups.iter().find(|group| group.figure == Some(*number))))
                            }
                        }
                    }
                }
                @if has_claims {
                    section id="section:claims" {
                        h2 { "Claims" }
                        (claims::legend())
                        @for (part, groups) in parts.iter().zip(&groups).filter(|(_, groups)| !groups.is_empty()) {
                            @if several { h3 { (study_title(part.outline)) } }
                            @for group in groups { (claims::folded(group)) }
                        }
                    }
                }
                section id="section:summary" {
                    h2 { "Summary" }
                    p.fine { "Mean over trials ± half-width of its 95 % confidence interval." }
                    @for part in &parts {
                        @if several {
                            h3 { (study_title(part.outline)) }
                            @if part.figures.is_empty() { (description(part.study)) }
                        }
                        (tables(summary, part.outline))
                    }
                }
                section id="section:how" { h2 { "How it was run" } (how(summary, results, manifest)) }
            }
        }
    };
    markup.into_string()
}

/// The folded claims of each part.
fn claim_groups<'a>(summary: &'a ReportSummary, parts: &[Part<'_>]) -> Vec<Vec<Group<'a>>> {
    let mut begun = 0;
    let of_part = |part: &Part<'_>| {
        let judged: Vec<&ReportClaim> =
            summary.claims.iter().filter(|claim| claim.study == part.outline.name).collect();
        let groups = claims::groups(part.study, &judged, &part.figures, begun);
        begun += groups.len();
        groups
    };
    parts.iter().map(of_part).collect()
}

fn study_title(outline: &StudyOutline) -> &str {
    if outline.title.is_empty() { &outline.name } else { &outline.title }
}

fn description(study: &Study) -> Markup {
    let paragraphs = study.description.split("\n\n").map(str::trim).filter(|text| !text.is_empty());
    html! { @for text in paragraphs { p.lead { (text) } } }
}

fn drawn(number: usize, figure: &DrawnFigure<'_>, claims: Option<&Group<'_>>) -> Markup {
    html! {
        figure id=(figure.id) {
            @match &figure.plot {
                Some(plot) => {
                    div.broad { (PreEscaped(svg::inline(plot, &figure.id))) }
                    div.narrow { (PreEscaped(svg::inline_column(plot, &format!("{}:narrow", figure.id)))) }
                }
                None => p.empty { "No data: no trial finished, or the scenario does not record what the figure draws." },
            }
            figcaption {
                b { "Figure " (number) ". " } (figure.figure.title) " "
                @if !figure.figure.source.is_empty() { "(" (figure.figure.source) ") " }
                span.fine { (figure.note) }
                @if let Some(group) = claims { (claims::of_figure(group)) }
            }
            @if figure.plot.is_some() {
                details.data {
                    summary { "Data" }
                    p.fine { "The figure as a file: " a href=(figure.file) { (figure.file) } }
                    (data_table(figure))
                }
            }
        }
    }
}

fn data_table(figure: &DrawnFigure<'_>) -> Markup {
    let DataTable { head, rows } = &figure.data;
    if rows.len() > TABLE_ROWS {
        let quoted = |cell: &String| {
            if cell.contains([',', '"']) {
                format!("\"{}\"", cell.replace('"', "\"\""))
            } else {
                cell.clone()
            }
        };
        let line = |cells: &Vec<String>| cells.iter().map(quoted).collect::<Vec<String>>().join(",");
        let lines: Vec<String> = std::iter::once(head).chain(rows).map(line).collect();
        return html! { pre tabindex="0" { (lines.join("\n")) } };
    }
    let Some((corner, head)) = head.split_first() else { return html! {} };
    let named = |row: &Vec<String>| {
        let mut cells = row.iter().cloned();
        let name = cells.next().unwrap_or_default();
        let mut cells: Vec<String> = cells.collect();
        cells.resize(head.len(), String::new());
        (name, cells)
    };
    let grid = Grid { corner: corner.clone(), head: head.to_vec(), rows: rows.iter().map(named).collect() };
    grid.markup(&figure.figure.title)
}

fn tables(summary: &ReportSummary, outline: &StudyOutline) -> Markup {
    let rows: Vec<&SummaryRow> =
        summary.rows.iter().filter(|row| row.study == outline.name).map(|row| &row.row).collect();
    let base: Vec<&SummaryRow> = rows.iter().copied().filter(|row| row.base).collect();
    let title = |row: &SummaryRow| {
        let variant = outline.variants.iter().find(|variant| variant.name == row.variant);
        match variant {
            Some(variant) if !variant.title.is_empty() => variant.title.clone(),
            _ => row.variant.clone(),
        }
    };
    html! {
        (comparison(&base, &title).markup(study_title(outline)))
        (left_out(&base))
        @for sweep in &outline.sweeps {
            @let of_sweep: Vec<&SummaryRow> =
                rows.iter().copied().filter(|row| row.points.iter().any(|(name, _)| *name == sweep.name)).collect();
            @if !of_sweep.is_empty() {
                details {
                    summary { (sweep.title) " (" code { (sweep.key) } ")" }
                    (points(&of_sweep, &sweep.title, &|row| {
                        let value = row.points.iter().find(|(name, _)| *name == sweep.name).map_or("", |(_, v)| v);
                        format!("{} · {value}", title(row))
                    }).markup(&sweep.title))
                    (left_out(&of_sweep))
                }
            }
        }
    }
}

/// A row for each metric and a column for each variant.
fn comparison(rows: &[&SummaryRow], name: &dyn Fn(&SummaryRow) -> String) -> Grid {
    let [shown, _] = metrics_of(rows);
    let of_metric =
        |metric: &&str| (label(metric).axis(), rows.iter().map(|row| cell(row, metric)).collect());
    let trials = ("Trials".to_owned(), rows.iter().map(|row| row.trials.to_string()).collect());
    Grid {
        corner: "Metric".to_owned(),
        head: rows.iter().map(|row| name(row)).collect(),
        rows: shown.iter().map(of_metric).chain([trials]).collect(),
    }
}

/// A row for each point and a column for each metric.
fn points(rows: &[&SummaryRow], corner: &str, name: &dyn Fn(&SummaryRow) -> String) -> Grid {
    let [shown, _] = metrics_of(rows);
    let of_point = |row: &&SummaryRow| {
        let cells = shown.iter().map(|metric| cell(row, metric)).chain([row.trials.to_string()]);
        (name(row), cells.collect())
    };
    Grid {
        corner: corner.to_owned(),
        head: shown.iter().map(|metric| label(metric).column()).chain(["trials".to_owned()]).collect(),
        rows: rows.iter().map(of_point).collect(),
    }
}

/// How many metrics a table leaves out, and which.
fn left_out(rows: &[&SummaryRow]) -> Markup {
    let [_, zero] = metrics_of(rows);
    let are = if zero.len() == 1 { "metric is" } else { "metrics are" };
    let names: Vec<String> = zero.iter().map(|metric| label(metric).long).collect();
    html! {
        @if !zero.is_empty() {
            details.zeros {
                summary { (zero.len()) " " (are) " zero in every trial and left out" }
                p.fine { (names.join("; ")) "." }
            }
        }
    }
}

/// The metrics that any row has: those with a value other than zero, and those without.
fn metrics_of<'a>(rows: &[&'a SummaryRow]) -> [Vec<&'a str>; 2] {
    let all = distinct(rows.iter().flat_map(|row| &row.metrics).map(|(metric, _)| metric.as_str()));
    let is_zero = |estimate: &Estimate| estimate.mean == 0.0 && estimate.sd.is_none_or(|sd| sd == 0.0);
    let (zero, shown) =
        all.into_iter().partition(|metric| rows.iter().filter_map(|row| row.metric(metric)).all(is_zero));
    [shown, zero]
}

fn cell(row: &SummaryRow, metric: &str) -> String {
    row.metric(metric).map_or_else(|| "–".to_owned(), |estimate| number::estimate(metric, estimate))
}

fn how(summary: &ReportSummary, results: &[StudyResults<'_>], manifest: &Manifest) -> Markup {
    let whole = |n: u64| grouped(&n.to_string());
    html! {
        dl {
            dt { "Command" } dd { code { "bandmaster " (manifest.command.join(" ")) } }
            dt { "Program" } dd {
                "bandmaster " (VERSION)
                @if let Some(commit) = COMMIT { ", commit " code { (commit) } }
            }
            dt { "Trials" } dd { (summary.trials.finished) " of " (summary.trials.planned) " finished" }
            dt { "Work" } dd {
                (whole(summary.work.packet_hops)) " packet hops, " (whole(summary.work.events)) " events"
            }
        }
        div.scroll { table.runs {
            thead { tr {
                th { "Study" } th { "World" } th.number { "Cases" } th.number { "Trials each" } th.number { "Time" }
                th.number { "Warm-up" } th.number { "Sample" } th.number { "Seed" } th { "Digest of the scenario" }
            } }
            tbody {
                @for (result, outline) in results.iter().zip(&summary.studies) {
                    tr {
                        td { (study_title(outline)) }
                        td { (result.provenance.world) }
                        td.number { (result.study.cases.len()) }
                        @match result.study.cases.first().map(|case| &case.scenario.run) {
                            Some(run) => {
                                td.number { (run.trials) } td.number { (run.duration) } td.number { (run.warm_up) }
                                td.number { (run.sample) }
                            }
                            None => { td colspan="4" {} }
                        }
                        td.number { (result.provenance.seed) }
                        td { code { (result.provenance.digest.chars().take(16).collect::<String>()) } }
                    }
                }
            }
        } }
        p.fine {
            code { "manifest.json" } " holds every scenario with all its defaults, " code { "summary.json" }
            " the statistics, " code { "trials.parquet" } " every trial, and " code { "series.parquet" }
            " the recorded series. The same command and version give the same bytes."
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bandmaster_core::scenario::{Case, Variant};

    use crate::report::figure::draw_all;
    use crate::report::tests::{results, study};

    fn page_of(results: &[StudyResults<'_>]) -> String {
        let summary = ReportSummary::new("Fair <shares>", results);
        let manifest = Manifest { command: vec!["run".to_owned(), "fair.toml".to_owned()] };
        page(&summary, results, &draw_all(results, None).unwrap(), &manifest)
    }

    #[test]
    fn nothing_is_loaded_from_elsewhere_and_nothing_runs() {
        let study = study();
        let page = page_of(&[results(&study)]);
        let namespace = "xmlns=\"http://www.w3.org/2000/svg\"";
        let rest = page.replace(namespace, "");
        for forbidden in ["http:", "https:", "src=", "<link", "<script", "@import", "url(", "javascript:"] {
            assert!(!rest.contains(forbidden), "{forbidden}");
        }
    }

    #[test]
    fn text_is_escaped() {
        let mut study = study();
        study.claims[0].text = "a < b & \"c\" <script>".to_owned();
        study.figures[0].title = "1 < 2".to_owned();
        let page = page_of(&[results(&study)]);
        assert!(page.contains("a &lt; b &amp; &quot;c&quot; &lt;script&gt;"));
        assert!(page.contains("<h1>Fair &lt;shares&gt;</h1>"));
        assert!(page.contains("1 &lt; 2: Normalised"));
        assert!(!page.contains("<script>"));
    }

    #[test]
    fn claims_have_the_published_numbers_in_their_rows() {
        let study = study();
        let page = page_of(&[results(&study)]);
        assert!(page.contains("<td class=\"good\">ok</td>"));
        assert!(page.contains("<td class=\"bad\">FAILS</td>"));
        assert!(page.contains("<td class=\"open\">not reproduced</td>"));
        assert!(page.contains("<td data-head=\"Published\">0.99<div class=\"fine\">Fig. 6</div></td>"));
        assert!(page.contains("the paper’s topology figure is lost"));
    }

    /// The positions of `parts` in the page, each of which must be there.
    fn places<const N: usize>(page: &str, parts: [&str; N]) -> [usize; N] {
        parts.map(|part| page.find(part).unwrap_or_else(|| panic!("no {part}")))
    }

    #[test]
    fn the_verdict_is_first_then_figures_then_folded_claims_then_numbers() {
        let mut with_claims_only = study();
        with_claims_only.name = "bare".to_owned();
        with_claims_only.figures.clear();
        let study = study();
        let page = page_of(&[results(&study), results(&with_claims_only)]);
        let order = places(
            &page,
            [
                "<p class=\"verdict\">",
                "2 of 12 claims hold</span>, <span class=\"bad\">2 fail</span>",
                "<ul class=\"failures\">",
                "<nav>",
                "<section id=\"section:figures\">",
                "<svg ",
                "<section id=\"section:claims\">",
                "<details class=\"claims\"",
                "<table class=\"claims\">",
                "<section id=\"section:summary\">",
                "<table class=\"grid\"><thead><tr><th scope=\"col\">Metric</th>",
                "<section id=\"section:how\">",
            ],
        );
        assert!(order.is_sorted(), "{order:?}");
        // Every claim is in a fold; each fold says how its claims came out, and is linked from its figure.
        let claims = &page[order[6]..order[9]];
        assert_eq!(claims.matches("<details class=\"claims\"").count(), claims.matches("<table").count());
        assert!(claims.contains("Figure 1. Fairness against the number of clients (Fig. 6): "));
        assert!(page[..order[6]].contains("<a href=\"#claims:1\">Claims</a>: "));
        assert_eq!(claims.matches("<div id=\"claims:").count(), 2);
        // Links lead somewhere.
        for link in page.split("href=\"#").skip(1).map(|rest| rest.split('"').next().unwrap()) {
            assert_eq!(page.matches(&format!("id=\"{link}\"")).count(), 1, "{link}");
        }
        let ids: Vec<&str> =
            page.split(" id=\"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
        assert_eq!(distinct(ids.iter().copied()).len(), ids.len(), "{ids:?}");
    }

    /// Only what fails is open.
    #[test]
    fn folds_are_closed_where_nothing_fails() {
        let mut study = study();
        assert!(page_of(&[results(&study)]).contains("<details class=\"claims\" open>"));
        study.claims.truncate(1);
        let page = page_of(&[results(&study)]);
        assert!(page.contains("<details class=\"claims\"><summary>") && !page.contains("class=\"failures\""));
        assert!(page.contains("<span class=\"good\">1 of 1 claim holds</span>."));
    }

    #[test]
    fn every_figure_is_there_with_its_data() {
        let study = study();
        let page = page_of(&[results(&study), results(&study)]);
        // For a broad and for a narrow screen.
        assert_eq!(
            (page.matches("<svg ").count(), page.matches("<div class=\"narrow\"><svg ").count()),
            (12, 6)
        );
        for id in ["fair.jain", "fair-2.jain", "fair.series", "fair-2.queue"] {
            assert_eq!(page.matches(&format!("<figure id=\"{id}\">")).count(), 1, "{id}");
        }
        assert!(page.contains("Figure 6. "));
        assert!(page.contains("<summary>Data</summary>"));
        assert!(page.contains("<code>bandmaster run fair.toml</code>"));
        let row = "<th scope=\"row\">Throughput, late (Mbit/s)</th><td class=\"number\">95.40 ±0.00</td>";
        assert!(page.contains(row));
    }

    /// The rows of a table of variants.
    fn names_of(page: &str) -> Vec<&str> {
        let summary = page.split("<section id=\"section:summary\">").nth(1).unwrap();
        let table = summary.split("</table>").next().unwrap();
        table.split("<th scope=\"row\">").skip(1).map(|rest| rest.split('<').next().unwrap()).collect()
    }

    #[test]
    fn metrics_that_are_always_zero_are_counted_and_named_below_the_table() {
        let study = study();
        let mut results = [results(&study)];
        let with = |results: &mut [StudyResults<'_>; 1], zero: &dyn Fn(u32) -> f64| {
            for record in &mut results[0].records {
                record.metrics.retain(|(name, _)| name != "retransmits" && name != "unfinished");
                record.metrics.push(("retransmits".to_owned(), 0.0));
                record.metrics.push(("unfinished".to_owned(), zero(record.trial)));
            }
            page_of(results)
        };
        let page = with(&mut results, &|_| 0.0);
        let (retransmits, unfinished) = (label("retransmits"), label("unfinished"));
        assert!(!names_of(&page).contains(&retransmits.axis().as_str()), "{:?}", names_of(&page));
        assert!(page.contains(">2 metrics are zero in every trial and left out</summary>"));
        let named = format!("<p class=\"fine\">{}; {}.</p>", retransmits.long, unfinished.long);
        // Below the variants and below the sweep.
        assert_eq!(page.matches(&named).count(), 2);
        // One trial's value keeps the row, also where the mean is zero.
        let page = with(&mut results, &|trial| if trial == 0 { 1.0 } else { -1.0 });
        assert!(names_of(&page).contains(&unfinished.axis().as_str()));
        assert!(page.contains(">1 metric is zero in every trial and left out</summary>"));
    }

    #[test]
    fn no_variant_is_lost_from_a_table_wider_than_a_page() {
        let mut study = study();
        let (variant, case) = (study.variants[2].clone(), study.cases[6].clone());
        for number in 0..30 {
            let name = format!("ideal{number}");
            study.variants.push(Variant {
                title: format!("Ideal {number}"),
                name: name.clone(),
                ..variant.clone()
            });
            study.cases.push(Case { variant: name, ..case.clone() });
        }
        let page = page_of(&[results(&study)]);
        let (_, summary) = page.split_once("<section id=\"section:summary\">").unwrap();
        let (screen, print) = summary.split_once("<div class=\"blocks\">").unwrap();
        for title in study
            .variants
            .iter()
            .map(|variant| format!("<th class=\"number\" scope=\"col\">{}</th>", variant.title))
        {
            assert_eq!((screen.matches(&title).count(), print.matches(&title).count()), (1, 1), "{title}");
        }
    }

    #[test]
    fn an_early_end_is_said_first() {
        let study = study();
        let mut results = [results(&study)];
        results[0].records.truncate(3);
        let page = page_of(&results);
        assert!(page.contains("Not complete: 3 of 14 trials finished."));
    }
}
