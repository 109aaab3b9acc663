//! `report.html`: one file, no script, nothing loaded from elsewhere.

use bandmaster_core::report::claims::{Status, band};
use bandmaster_core::report::metric::label;
use bandmaster_core::report::summary::SummaryRow;
use bandmaster_core::scenario::Study;
use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::figure::{DataTable, DrawnFigure};
use super::manifest::Manifest;
use super::number::{self, grouped, more};
use super::{COMMIT, ReportSummary, StudyOutline, StudyResults, VERSION, distinct, svg};

/// Data with more rows are plain text, which a browser copies better than a long table.
const TABLE_ROWS: usize = 60;

/// The page.
pub(crate) fn page(
    summary: &ReportSummary,
    results: &[StudyResults<'_>],
    figures: &[DrawnFigure<'_>],
    manifest: &Manifest,
) -> String {
    let several = results.len() > 1;
    let numbered: Vec<(usize, &DrawnFigure<'_>)> = (1..).zip(figures).collect();
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
                    @if !several {
                        @for result in results { (description(result.study)) }
                    }
                    (verdict(summary))
                }
                @if !summary.claims.is_empty() {
                    section { h2 { "Claims" } (claims(summary, several)) }
                }
                @for (index, (result, outline)) in results.iter().zip(&summary.studies).enumerate() {
                    section {
                        @if several {
                            h2 { (study_title(outline)) }
                            (description(result.study))
                        }
                        @let own: Vec<&(usize, &DrawnFigure<'_>)> =
                            numbered.iter().filter(|(_, figure)| figure.study == index).collect();
                        @if !own.is_empty() {
                            @if several { h3 { "Figures" } } @else { h2 { "Figures" } }
                            @for (number, figure) in own { (drawn(*number, figure)) }
                        }
                        @if several { h3 { "Summary" } } @else { h2 { "Summary" } }
                        (tables(summary, outline))
                    }
                }
                section { h2 { "How it was run" } (how(summary, results, manifest)) }
            }
        }
    };
    markup.into_string()
}

fn study_title(outline: &StudyOutline) -> &str {
    if outline.title.is_empty() { &outline.name } else { &outline.title }
}

fn description(study: &Study) -> Markup {
    let paragraphs = study.description.split("\n\n").map(str::trim).filter(|text| !text.is_empty());
    html! { @for text in paragraphs { p.lead { (text) } } }
}

fn verdict(summary: &ReportSummary) -> Markup {
    let count = |status: Status| summary.claims_that(status);
    let trials = summary.trials;
    html! {
        p.verdict {
            @if !summary.complete {
                span.bad { "Not complete: " (trials.finished) " of " (trials.planned) " trials finished." } " "
            }
            @if !summary.claims.is_empty() {
                @let holding = count(Status::Holds);
                span.good[holding == summary.claims.len()] { (holding) " of " (summary.claims.len()) " claims hold" }
                @if count(Status::Fails) > 0 { ", " span.bad { (count(Status::Fails)) " fail" } }
                @if count(Status::Undecided) > 0 { ", " span.open { (count(Status::Undecided)) " undecided" } }
                @if count(Status::ReproducedAfterAll) > 0 {
                    ", " span.bad { (count(Status::ReproducedAfterAll)) " reproduced after all" }
                }
                @if count(Status::Missing) > 0 { ", " span.bad { (count(Status::Missing)) " lack data" } }
                @if count(Status::NotReproduced) > 0 {
                    ", " span.open { (count(Status::NotReproduced)) " not reproduced" }
                }
                "."
            }
        }
    }
}

fn claims(summary: &ReportSummary, several: bool) -> Markup {
    let published = summary.claims.iter().any(|c| !c.result.paper.is_empty() || !c.result.source.is_empty());
    html! {
        div.scroll { table.claims {
            thead { tr {
                th { "Outcome" } th { "Claim" } th.number { "Here" } th.number { "Band" }
                @if published { th { "Published" } th { "Source" } }
            } }
            tbody {
                @for claim in &summary.claims {
                    @let result = &claim.result;
                    @let class = match result.status {
                        Status::Holds => "good",
                        Status::Fails | Status::Missing | Status::ReproducedAfterAll => "bad",
                        Status::Undecided | Status::NotReproduced => "open",
                    };
                    tr {
                        td class=(class) { (result.status.word()) }
                        td {
                            (result.text)
                            div.fine {
                                code { (result.id) } " · " (result.computed)
                                @if several { " · " (claim.study) }
                                @for why in [more(result)].into_iter().chain(result.not_reproduced.clone()) {
                                    @if !why.is_empty() { br; (why) }
                                }
                            }
                        }
                        td.number {
                            @match result.value {
                                Some(value) => { (number::claim_value(value, result.low, result.high)) " " (result.unit) }
                                None => "–",
                            }
                            @if let Some(interval) = number::interval(result) { div.fine { (interval) } }
                            div.fine { (result.at) }
                        }
                        td.number {
                            (band(result.low, result.high))
                            @if !result.because.is_empty() { div.fine { (result.because) } }
                        }
                        @if published { td { (result.paper) } td { (result.source) } }
                    }
                }
            }
        } }
        p.fine {
            "A value is of means over trials; below it, its 95 % confidence interval. A claim holds when the whole \
             interval lies in the band, and fails when none of it does. Where a claim speaks of several points, the one \
             that decides is shown."
        }
    }
}

fn drawn(number: usize, figure: &DrawnFigure<'_>) -> Markup {
    html! {
        figure id=(figure.id) {
            @match &figure.plot {
                Some(plot) => (PreEscaped(svg::inline(plot, &figure.id))),
                None => p.empty { "No data: no trial of this figure finished, or the scenario does not record it." },
            }
            figcaption {
                b { "Figure " (number) ". " } (figure.figure.title) " "
                @if !figure.figure.source.is_empty() { "(" (figure.figure.source) ") " }
                span.fine { (figure.note) }
            }
            @if figure.plot.is_some() {
                details {
                    summary { "Data" }
                    p.fine { "Drawing alone: " a href=(figure.file) { (figure.file) } }
                    (data_table(&figure.data))
                }
            }
        }
    }
}

fn data_table(data: &DataTable) -> Markup {
    if data.rows.len() > TABLE_ROWS {
        let quoted = |cell: &String| {
            if cell.contains([',', '"']) {
                format!("\"{}\"", cell.replace('"', "\"\""))
            } else {
                cell.clone()
            }
        };
        let line = |cells: &Vec<String>| cells.iter().map(quoted).collect::<Vec<String>>().join(",");
        let lines: Vec<String> = std::iter::once(&data.head).chain(&data.rows).map(line).collect();
        return html! { pre { (lines.join("\n")) } };
    }
    html! {
        div.scroll { table {
            thead { tr { @for (index, name) in data.head.iter().enumerate() { th.number[index > 0] { (name) } } } }
            tbody {
                @for row in &data.rows {
                    tr { @for (index, cell) in row.iter().enumerate() { td.number[index > 0] { (cell) } } }
                }
            }
        } }
    }
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
        p.fine { "Mean over trials ± half-width of its 95 % confidence interval." }
        (comparison(&base, &title))
        @for sweep in &outline.sweeps {
            @let of_sweep: Vec<&SummaryRow> =
                rows.iter().copied().filter(|row| row.points.iter().any(|(name, _)| *name == sweep.name)).collect();
            @if !of_sweep.is_empty() {
                details {
                    summary { (sweep.title) " (" code { (sweep.key) } ")" }
                    (metric_table(&of_sweep, &sweep.title, &|row| {
                        let value = row.points.iter().find(|(name, _)| *name == sweep.name).map_or("", |(_, v)| v);
                        format!("{} · {value}", title(row))
                    }))
                }
            }
        }
    }
}

/// A row for each metric and a column for each variant.
fn comparison(rows: &[&SummaryRow], name: &dyn Fn(&SummaryRow) -> String) -> Markup {
    html! {
        div.scroll { table {
            thead { tr {
                th { "Metric" }
                @for row in rows { th.number { (name(row)) } }
            } }
            tbody {
                @for metric in metrics_of(rows) {
                    tr {
                        td { (label(metric).axis()) }
                        @for row in rows { (metric_cell(row, metric)) }
                    }
                }
                tr {
                    td { "Trials" }
                    @for row in rows { td.number { (row.trials) } }
                }
            }
        } }
    }
}

fn metrics_of<'a>(rows: &[&'a SummaryRow]) -> Vec<&'a str> {
    distinct(rows.iter().flat_map(|row| &row.metrics).map(|(metric, _)| metric.as_str()))
}

fn metric_cell(row: &SummaryRow, metric: &str) -> Markup {
    html! {
        td.number {
            @match row.metric(metric) {
                Some(estimate) => (number::estimate(metric, estimate)),
                None => "–",
            }
        }
    }
}

/// A row for each point and a column for each metric.
fn metric_table(rows: &[&SummaryRow], corner: &str, name: &dyn Fn(&SummaryRow) -> String) -> Markup {
    let metrics = metrics_of(rows);
    html! {
        div.scroll { table {
            thead { tr {
                th { (corner) }
                @for metric in &metrics { th.number { (label(metric).column()) } }
                th.number { "trials" }
            } }
            tbody {
                @for row in rows {
                    tr {
                        td { (name(row)) }
                        @for metric in &metrics { (metric_cell(row, metric)) }
                        td.number { (row.trials) }
                    }
                }
            }
        } }
    }
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
        div.scroll { table {
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
            "Every scenario with all its defaults is in " code { "manifest.json" } ", the statistics are in "
            code { "summary.json" } ", every trial in " code { "trials.parquet" }
            " and the recorded series in " code { "series.parquet" } ". The same command and \
            version give the same bytes."
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
    fn claims_stand_beside_the_published_numbers() {
        let study = study();
        let page = page_of(&[results(&study)]);
        assert!(page.contains("<td class=\"good\">ok</td>"));
        assert!(page.contains("<td class=\"bad\">FAILS</td>"));
        assert!(page.contains("<td class=\"open\">not reproduced</td>"));
        assert!(page.contains("<td>0.99</td><td>Fig. 6</td>"));
        assert!(page.contains("the paper’s topology figure is lost"));
    }

    #[test]
    fn every_figure_is_there_with_its_data() {
        let study = study();
        let page = page_of(&[results(&study), results(&study)]);
        assert_eq!(page.matches("<svg ").count(), 6);
        for id in ["fair.jain", "fair-2.jain", "fair.series", "fair-2.queue"] {
            assert_eq!(page.matches(&format!("<figure id=\"{id}\">")).count(), 1, "{id}");
        }
        assert!(page.contains("Figure 6. "));
        assert!(page.contains("<summary>Data</summary>"));
        assert!(page.contains("<code>bandmaster run fair.toml</code>"));
        assert!(page.contains("<td>Throughput, late (Mbit/s)</td><td class=\"number\">95.40 ±0.00</td>"));
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
