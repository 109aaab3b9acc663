//! From the figures of a study to plots, and the numbers behind them.

mod boxes;
mod distribution;
mod heatmap;
mod series;
mod slowdown;
mod sweep;

use std::io;

use bandmaster_core::measure::rtt::RttSummary;
use bandmaster_core::report::flow::FlowRecord;
use bandmaster_core::report::metric::Unit;
use bandmaster_core::report::summary::{Estimate, Summary, SummaryRow};
use bandmaster_core::report::{RunRecord, metric};
use bandmaster_core::scenario::{Figure, FigureContent, ReferenceCurve, Study, Sweep};
use bandmaster_core::time::Span;

use super::flows::FlowBlocks;
use super::plot::{LegendEntry, Look, Plot, Point};
use super::{StudyResults, distinct, number, study_names, unique_ids};

/// Longest drawn series; longer ones are averaged over neighbours.
const DRAWN_VALUES: usize = 500;

/// A figure of the report.
#[derive(Clone, Debug)]
pub(crate) struct DrawnFigure<'a> {
    /// Position of the study.
    pub(crate) study: usize,
    /// Unique in the report; letters, digits, `.`, `_` and `-` only.
    pub(crate) id: String,
    /// Path in the output folder.
    pub(crate) file: String,
    /// What the study asks for.
    pub(crate) figure: &'a Figure,
    /// The plot; none when there are no data.
    pub(crate) plot: Option<Plot>,
    /// How to read it.
    pub(crate) note: String,
    /// The numbers behind it.
    pub(crate) data: DataTable,
}

/// Numbers as text.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct DataTable {
    /// Names of the columns.
    pub(crate) head: Vec<String>,
    /// Cells.
    pub(crate) rows: Vec<Vec<String>>,
}

/// Every figure of every study, in file order. Values of flows come from `flows`.
///
/// # Errors
/// When the rows of flows cannot be read again.
pub(crate) fn draw_all<'a>(
    results: &[StudyResults<'a>],
    flows: Option<&FlowBlocks>,
) -> io::Result<Vec<DrawnFigure<'a>>> {
    let names = study_names(results);
    let of_study = |(index, results): (usize, &StudyResults<'a>)| {
        results.study.figures.iter().map(move |figure| (index, figure))
    };
    let listed: Vec<(usize, &'a Figure)> = results.iter().enumerate().flat_map(of_study).collect();
    let ids: Vec<(String, String)> =
        listed.iter().map(|(index, figure)| (names[*index].clone(), file_name(&figure.id))).collect();
    let sources: Vec<Source<'_>> =
        results.iter().enumerate().map(|(index, results)| Source::new(results, index, flows)).collect();
    let drawn = listed.into_iter().zip(unique_ids(&ids)).map(|((index, figure), id)| {
        let source = &sources[index];
        let Drawing { plot, note, data } = match &figure.content {
            FigureContent::Sweep { sweep, y, x, log_x } => {
                source.sweep(figure, (sweep, x.as_deref()), y, *log_x)
            }
            FigureContent::Series { .. } => source.series(figure),
            FigureContent::Distribution { x, log_x } => source.distribution(figure, x, *log_x),
            FigureContent::Cdf { of, x, group, cases, log_x } => {
                source.cdf(figure, *of, x, group.as_deref(), cases, *log_x)?
            }
            FigureContent::Box { y, cases } => source.boxes(figure, y, cases),
            FigureContent::Bars { metrics, cases } => source.bars(figure, metrics, cases),
            FigureContent::Heatmap { sweep, z } => source.heatmap(figure, sweep, z),
            FigureContent::Slowdown { group, bins, cases } => {
                source.slowdown(figure, group.as_deref(), *bins, cases)?
            }
        };
        Ok(DrawnFigure { study: index, file: format!("figures/{id}.svg"), id, figure, plot, note, data })
    });
    drawn.collect()
}

#[derive(Default)]
struct Drawing {
    plot: Option<Plot>,
    note: String,
    data: DataTable,
}

/// A study's results, ready to be looked up.
struct Source<'a> {
    study: &'a Study,
    /// Position of the study.
    index: usize,
    flows: Option<&'a FlowBlocks>,
    summary: Summary,
    /// Records of each case, by trial.
    trials: Vec<Vec<&'a RunRecord>>,
}

impl<'a> Source<'a> {
    fn new(results: &'a StudyResults<'_>, index: usize, flows: Option<&'a FlowBlocks>) -> Self {
        let mut trials: Vec<Vec<&RunRecord>> = vec![Vec::new(); results.study.cases.len()];
        for record in &results.records {
            if let Some(of_case) = trials.get_mut(record.case) {
                of_case.push(record);
            }
        }
        for of_case in &mut trials {
            of_case.sort_by_key(|record| record.trial);
        }
        let summary = Summary::new(results.study, &results.records);
        Self { study: results.study, index, flows, summary, trials }
    }

    fn sweep_named(&self, name: &str) -> Option<&'a Sweep> {
        self.study.sweeps.iter().find(|sweep| sweep.name == name)
    }

    fn variant_title(&self, name: &str) -> &'a str {
        self.study
            .variants
            .iter()
            .find(|variant| variant.name == name)
            .map_or("", |variant| if variant.title.is_empty() { &variant.name } else { &variant.title })
    }

    /// The number of a variant's look, the same in every figure of the study.
    fn variant_number(&self, name: &str) -> usize {
        let variants = &self.study.variants;
        variants.iter().position(|variant| variant.name == name).unwrap_or(variants.len())
    }

    /// Beside a completion time: how many flows started, completed and did not, over the cases of each variant.
    fn survivors(&self, metric: &str, drawn: &[(&str, &SummaryRow)]) -> String {
        if !metric.rsplit('.').next().is_some_and(|name| name.starts_with("fct")) {
            return String::new();
        }
        let total = |name: &str, metric: &str| -> Option<f64> {
            let rows = drawn.iter().filter(|(variant, _)| *variant == name);
            rows.map(|(_, row)| row.metric(metric).map(|e| e.mean * f64::from(e.n))).sum()
        };
        let of = |name: &str| {
            let (completed, unfinished) = (total(name, "completed")?, total(name, "unfinished")?);
            let counts = [completed + unfinished, completed, unfinished];
            Some((self.variant_title(name).to_owned(), counts.map(|count| count.round() as u64)))
        };
        let names = distinct(drawn.iter().map(|(name, _)| *name));
        flows_note(names.into_iter().filter_map(of))
    }

    /// Sizes and values of the flows of a case that have both; and how many of limited size started and completed.
    fn flow_values(
        &self,
        case: usize,
        group: Option<&str>,
        value: impl Fn(&FlowRecord) -> Option<f64>,
    ) -> io::Result<CaseFlows> {
        let mut found = CaseFlows::default();
        let scenario = &self.study.cases[case].scenario;
        for record in &self.trials[case] {
            let Some(flows) = self.flows else { break };
            flows.rows(scenario, (self.index, case, record.trial), |row| {
                let of = row.group(&scenario.flows);
                if group.map_or(!of.measured, |group| of.name != group) {
                    return;
                }
                found.started += u64::from(row.size.is_some());
                found.completed += u64::from(row.fct().is_some());
                found.values.extend(value(row).map(|value| (row.size.unwrap_or(0), value)));
            })?;
        }
        Ok(found)
    }

    fn series_cases(
        &self,
        figure: &Figure,
        sweep: Option<&str>,
        at: Option<&(String, String)>,
    ) -> Vec<SeriesCase> {
        let position = |variant: &str, point: Option<(&str, &str)>| {
            let of_point = |(sweep, value): (&str, &str)| {
                self.summary.rows.iter().position(|row| row.variant == variant && row.is_at(sweep, value))
            };
            let base = || self.summary.rows.iter().position(|row| row.variant == variant && row.base);
            point.and_then(of_point).or_else(base)
        };
        let mut cases = Vec::new();
        let sweep = sweep.and_then(|name| self.sweep_named(name));
        for variant in &figure.variants {
            let title = self.variant_title(variant);
            match sweep.filter(|sweep| sweep.variants.contains(variant)) {
                Some(sweep) => {
                    for value in &sweep.values {
                        let is_grid = !sweep.grid.is_empty();
                        let point =
                            if is_grid { value.clone() } else { format!("{} = {value}", sweep.title) };
                        let label =
                            if figure.variants.len() > 1 { format!("{title}, {point}") } else { point };
                        let case = position(variant, Some((&sweep.name, value)));
                        cases.extend(case.map(|case| SeriesCase { case, label, number: cases.len() }));
                    }
                }
                None => {
                    let point = at.map(|(sweep, value)| (sweep.as_str(), value.as_str()));
                    let number = if sweep.is_some() { cases.len() } else { self.variant_number(variant) };
                    let case = position(variant, point);
                    cases.extend(case.map(|case| SeriesCase { case, label: title.to_owned(), number }));
                }
            }
        }
        cases
    }
}

/// A curve of a series figure before its data are looked up.
struct SeriesCase {
    case: usize,
    label: String,
    number: usize,
}

/// Flows of a case, and how many of limited size started and completed.
#[derive(Default)]
struct CaseFlows {
    /// Size and value.
    values: Vec<(u64, f64)>,
    started: u64,
    completed: u64,
}

/// One of [`bandmaster_core::scenario::FLOW_VALUES`] of a flow.
fn flow_value(row: &FlowRecord, name: &str) -> Option<f64> {
    let millis = |of: fn(&RttSummary) -> Span| row.rtt.as_ref().map(|rtt| of(rtt).as_secs_f64() * 1e3);
    match name {
        "fct" => row.fct().map(Span::as_secs_f64),
        "slowdown" => row.slowdown(),
        "rtt_min" => millis(|rtt| rtt.min),
        "rtt_mean" => millis(|rtt| rtt.mean),
        "rtt_p50" => millis(|rtt| rtt.p50),
        "rtt_p95" => millis(|rtt| rtt.p95),
        "rtt_p99" => millis(|rtt| rtt.p99),
        _ => None,
    }
}

/// How many flows started, completed and did not, by case; nothing when none has a limited size.
fn flows_note(counts: impl Iterator<Item = (String, [u64; 3])>) -> String {
    let counts: Vec<(String, [u64; 3])> = counts.filter(|(_, [started, ..])| *started > 0).collect();
    if counts.is_empty() {
        return String::new();
    }
    let of = counts.iter().map(|(label, counts)| {
        let [started, completed, unfinished] = counts.map(|count| number::grouped(&count.to_string()));
        format!("{label} {started} / {completed} / {unfinished}")
    });
    format!(" Flows started / completed / unfinished: {}.", of.collect::<Vec<_>>().join("; "))
}

/// A title without the unit in brackets at its end: values have their own.
fn without_unit(title: &str) -> &str {
    title.strip_suffix(')').and_then(|title| title.rsplit_once(" (")).map_or(title, |(title, _)| title)
}

/// A note about `trials`: of one, of none, and by `several` of at most so many.
fn trials_note(trials: impl Iterator<Item = u32>, several: impl Fn(u32) -> String) -> String {
    match trials.max() {
        None | Some(0) => String::new(),
        Some(1) => "One trial.".to_owned(),
        Some(most) => several(most),
    }
}

/// The points of each curve from elsewhere, and its entry in the legend.
fn references(figure: &Figure) -> impl Iterator<Item = (Vec<Point>, LegendEntry)> {
    figure.references.iter().enumerate().map(|(number, reference)| {
        let entry = LegendEntry { label: reference.label.clone(), look: Look::Reference(number) };
        (reference_points(reference).collect(), entry)
    })
}

fn reference_points(reference: &ReferenceCurve) -> impl Iterator<Item = Point> {
    let interval = |index: usize| Some((*reference.low.get(index)?, *reference.high.get(index)?));
    let points = reference.x.iter().zip(&reference.y).enumerate();
    points.map(move |(index, (&x, &y))| Point { x, y, interval: interval(index) })
}

/// The mean of a metric and its interval, as far as the metric can have such values.
fn point(x: f64, name: &str, estimate: &Estimate) -> Point {
    let [least, most] = metric::range(name);
    let interval =
        estimate.ci95.map(|half| ((estimate.mean - half).max(least), (estimate.mean + half).min(most)));
    Point { x, y: estimate.mean, interval }
}

fn is_index(name: &str) -> bool {
    let found = metric::summarised(name).map(|(_, metric)| metric).or_else(|| metric::find(name));
    found.is_some_and(|metric| metric.unit == Unit::Index)
}

fn entity_title(name: &str) -> String {
    if name == "all" { "All flows".to_owned() } else { name.to_owned() }
}

/// `id` as a file name and an XML id.
fn file_name(id: &str) -> String {
    let safe = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '-' };
    id.chars().map(safe).collect()
}

#[cfg(test)]
mod tests {
    use bandmaster_core::scenario::FigureCases;

    use super::*;
    use crate::report::plot::Shape;
    use crate::report::tests::{results, study};

    #[test]
    fn sweeps_have_a_curve_for_each_swept_variant_and_a_level_for_the_others() {
        let study = study();
        let results = [results(&study)];
        let figures = draw_all(&results, None).unwrap();
        let plot = figures[0].plot.as_ref().unwrap();
        let looks: Vec<Look> = plot.legend.iter().map(|entry| entry.look).collect();
        assert_eq!(looks, [Look::Curve(0), Look::Curve(1), Look::Level(2), Look::Reference(0)]);
        let curve = plot.panels[0].curves.iter().find(|curve| curve.look == Look::Curve(1)).unwrap();
        let Shape::Points(points) = &curve.shape else { panic!("{curve:?}") };
        assert_eq!(points.iter().map(|point| point.x).collect::<Vec<_>>(), [4.0, 8.0, 16.0]);
        assert!(points.iter().all(|point| point.interval.is_some()));
        assert_eq!(
            figures[0].note,
            "Mean of 2 trials with its 95 % confidence interval. Grey: values from another source, with their \
             intervals."
        );
        assert_eq!(figures[0].data.rows.len(), 3 + 2);
        assert!(figures[0].data.rows.iter().all(|row| row.len() == figures[0].data.head.len()));
    }

    #[test]
    fn series_have_a_panel_for_each_entity() {
        let study = study();
        let results = [results(&study)];
        let figures = draw_all(&results, None).unwrap();
        let plot = figures[1].plot.as_ref().unwrap();
        let titles: Vec<&str> = plot.panels.iter().map(|panel| panel.title.as_str()).collect();
        assert_eq!(titles, ["All flows", "near"]);
        assert_eq!(plot.legend.len(), 3);
        assert_eq!(figures[1].data.head.len(), 1 + 2 * 3);
        // The queue has one panel whatever the entities say, and here a curve for each point.
        let plot = figures[2].plot.as_ref().unwrap();
        assert_eq!(plot.panels.len(), 1);
        let labels: Vec<&str> = plot.legend.iter().map(|entry| entry.label.as_str()).collect();
        assert_eq!(labels, ["Clients N = 4", "Clients N = 8", "Clients N = 16"]);
    }

    #[test]
    fn figures_without_data_have_no_plot() {
        let study = study();
        let mut results = [results(&study)];
        results[0].records.clear();
        assert!(draw_all(&results, None).unwrap().iter().all(|figure| figure.plot.is_none()));
    }

    #[test]
    fn ids_are_unique_over_studies_and_safe_as_file_names() {
        let mut study = study();
        study.figures[0].id = "fig 6/a".to_owned();
        let results = [results(&study), results(&study)];
        let files: Vec<String> =
            draw_all(&results, None).unwrap().into_iter().map(|figure| figure.file).collect();
        assert_eq!(files[0], "figures/fair.fig-6-a.svg");
        assert_eq!(files[3], "figures/fair-2.fig-6-a.svg");
    }

    #[test]
    fn intervals_end_where_values_can_be() {
        let estimate = Estimate::new([0.9, 1.0]).unwrap();
        let (low, high) = point(0.0, "jain", &estimate).interval.unwrap();
        assert!(low >= 0.0 && high == 1.0, "{low} {high}");
    }

    #[test]
    fn boxes_and_bars_have_the_places_of_their_cases() {
        let mut study = study();
        let swept = FigureCases { sweep: Some("n".to_owned()), at: None };
        study.figures[0].content = FigureContent::Box { y: "jain_normalised".to_owned(), cases: swept };
        let metrics = ["throughput", "late.throughput"].map(str::to_owned).to_vec();
        study.figures[1].content = FigureContent::Bars { metrics, cases: FigureCases::default() };
        let results = [results(&study)];
        let figures = draw_all(&results, None).unwrap();
        let plot = figures[0].plot.as_ref().unwrap();
        let slots: Vec<(usize, usize, usize)> = plot.panels[0]
            .curves
            .iter()
            .map(|curve| match &curve.shape {
                Shape::Boxes(slot, boxes) => (slot.number, slot.of, boxes.len()),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(slots, [(0, 2, 3), (1, 2, 3)], "the third variant is not swept");
        assert_eq!(figures[0].data.rows.len(), 6);
        let plot = figures[1].plot.as_ref().unwrap();
        assert_eq!((plot.panels[0].curves.len(), plot.x.ticks.len()), (3, 2));
        assert!(plot.y.share(0.0) == 0.0, "bars begin at zero");
    }
}
