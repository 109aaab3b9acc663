//! From the figures of a study to plots, and the numbers behind them.

use bandmaster_core::report::metric::{self, Unit, label};
use bandmaster_core::report::summary::{Estimate, Summary};
use bandmaster_core::report::{RunRecord, Series};
use bandmaster_core::scenario::{Figure, FigureContent, ReferenceCurve, Study, Sweep};
use bandmaster_core::time::Span;

use super::axis::{Axis, Positions};
use super::number;
use super::plot::{Curve, LegendEntry, Look, Panel, Plot, Point, Shape};
use super::{StudyResults, study_names, unique_ids};

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

/// Every figure of every study, in file order.
pub(crate) fn draw_all<'a>(results: &[StudyResults<'a>]) -> Vec<DrawnFigure<'a>> {
    let names = study_names(results);
    let of_study = |(index, results): (usize, &StudyResults<'a>)| {
        results.study.figures.iter().map(move |figure| (index, figure))
    };
    let listed: Vec<(usize, &'a Figure)> = results.iter().enumerate().flat_map(of_study).collect();
    let ids: Vec<(String, String)> =
        listed.iter().map(|(index, figure)| (names[*index].clone(), file_name(&figure.id))).collect();
    let sources: Vec<Source<'_>> = results.iter().map(Source::new).collect();
    let drawn = listed.into_iter().zip(unique_ids(&ids)).map(|((index, figure), id)| {
        let Drawing { plot, note, data } = match &figure.content {
            FigureContent::Sweep { sweep, y, log_x } => sources[index].sweep(figure, sweep, y, *log_x),
            FigureContent::Series { .. } => sources[index].series(figure),
            FigureContent::Distribution { x, log_x } => sources[index].distribution(figure, x, *log_x),
        };
        DrawnFigure { study: index, file: format!("figures/{id}.svg"), id, figure, plot, note, data }
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
    summary: Summary,
    /// Records of each case, by trial.
    trials: Vec<Vec<&'a RunRecord>>,
}

impl<'a> Source<'a> {
    fn new(results: &'a StudyResults<'_>) -> Self {
        let mut trials: Vec<Vec<&RunRecord>> = vec![Vec::new(); results.study.cases.len()];
        for record in &results.records {
            if let Some(of_case) = trials.get_mut(record.case) {
                of_case.push(record);
            }
        }
        for of_case in &mut trials {
            of_case.sort_by_key(|record| record.trial);
        }
        Self { study: results.study, summary: Summary::new(results.study, &results.records), trials }
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

    /// A metric over a sweep.
    fn sweep(&self, figure: &Figure, sweep: &str, y: &str, log_x: bool) -> Drawing {
        let Some(sweep) = self.sweep_named(sweep) else {
            return Drawing::default();
        };
        let positions = Positions::new(&sweep.title, &sweep.values);
        let mut curves = Vec::new();
        let mut legend = Vec::new();
        let mut columns: Vec<(String, Vec<Option<Estimate>>)> = Vec::new();
        for name in &figure.variants {
            let number = self.variant_number(name);
            let title = self.variant_title(name).to_owned();
            if sweep.variants.contains(name) {
                let estimate =
                    |value: &String| self.summary.point(name, &sweep.name, value)?.metric(y).copied();
                let estimates: Vec<Option<Estimate>> = sweep.values.iter().map(estimate).collect();
                let at = positions.at.iter().zip(&estimates);
                let mut points: Vec<Point> = at.filter_map(|(&x, e)| Some(point(x, e.as_ref()?))).collect();
                points.sort_by(|a, b| a.x.total_cmp(&b.x));
                if !points.is_empty() {
                    curves.push(Curve { look: Look::Curve(number), shape: Shape::Points(points) });
                    legend.push(LegendEntry { label: title.clone(), look: Look::Curve(number) });
                }
                columns.push((title, estimates));
            } else {
                let level = self.summary.base(name).and_then(|row| row.metric(y)).copied();
                if let Some(level) = level {
                    let look = Look::Level(number);
                    // Under the curves, so that they stay visible.
                    curves.insert(0, Curve { look, shape: Shape::Level(point(0.0, &level)) });
                    legend.push(LegendEntry { label: title.clone(), look });
                }
                columns.push((title, vec![level; sweep.values.len()]));
            }
        }
        let measured = !curves.is_empty();
        for (mut points, entry) in references(figure) {
            points.sort_by(|a, b| a.x.total_cmp(&b.x));
            curves.push(Curve { look: entry.look, shape: Shape::Points(points) });
            legend.push(entry);
        }

        let label = label(y);
        let panels = vec![Panel { title: String::new(), curves }];
        let plot = measured.then(|| Plot {
            description: format!("{}: {} over {}", figure.title, label.long, sweep.title),
            x: Axis::across(&positions, figure.references.iter().flat_map(|r| r.x.iter().copied()), log_x),
            y: Axis::vertical(label.axis(), Plot::heights(&panels), is_index(y)),
            panels,
            legend,
        });
        let trials = columns.iter().flat_map(|(_, column)| column).flatten().map(|e| e.n);
        let mut note = trials_note(trials.clone(), |most| {
            let least = trials.clone().min().filter(|least| *least < most);
            let least = least.map(|least| format!("{least} to ")).unwrap_or_default();
            format!("Mean of {least}{most} trials with its 95 % confidence interval.")
        });
        if !figure.references.is_empty() {
            note.push_str(" Grey: from elsewhere, with the interval given there.");
        }
        Drawing { plot, note, data: sweep_table(sweep, y, &columns, figure) }
    }

    /// A metric over time.
    fn series(&self, figure: &Figure) -> Drawing {
        let FigureContent::Series { y, entities, sweep, at, beside, trial, average } = &figure.content else {
            return Drawing::default();
        };
        let cases = self.series_cases(figure, sweep.as_deref(), at.as_ref());
        // The queue is one port's, whatever its name.
        let entities: Vec<Option<&str>> = match (y.as_str(), entities.as_slice()) {
            ("queue", _) => vec![None],
            (_, []) => vec![Some("all")],
            (_, names) => names.iter().map(|name| Some(name.as_str())).collect(),
        };
        let several = entities.len() > 1;
        let column = |entity: Option<&str>, label: &str| match entity {
            Some(name) if several => format!("{name}: {label}"),
            _ => label.to_owned(),
        };
        let mut panels = Vec::new();
        let mut data = DataTable { head: vec!["time_s".to_owned()], rows: Vec::new() };
        let mut drawn = vec![false; cases.len()];
        let mut end = 0.0_f64;
        let chosen = |case: usize| -> Vec<&RunRecord> {
            let is_chosen = |record: &&&RunRecord| trial.is_none_or(|trial| record.trial == trial);
            self.trials[case].iter().filter(is_chosen).copied().collect()
        };
        let mut is_beside = false;
        for entity in &entities {
            let mut curves = Vec::new();
            // What all curves are measured against lies under them.
            if let (Some(beside), Some(first)) = (beside, cases.first()) {
                let mean = averaged(mean_series(&chosen(first.case), *entity, beside), *average);
                if !mean.is_empty() {
                    is_beside = true;
                    let values = thinned(&mean);
                    data.add_series(column(*entity, &label(beside).long), &values);
                    curves.push(Curve { look: Look::Beside, shape: Shape::Line(values) });
                }
            }
            for (index, SeriesCase { case, label, number }) in cases.iter().enumerate() {
                let mean = mean_series(&chosen(*case), *entity, y);
                let (Some(first), Some(last)) = (mean.first(), mean.last()) else { continue };
                // Values stand in the middle of their intervals.
                end = end.max(last.0 + first.0);
                let mean = averaged(mean, *average);
                drawn[index] = true;
                let values = thinned(&mean);
                data.add_series(column(*entity, label), &values);
                curves.push(Curve { look: Look::Trace(*number), shape: Shape::Line(values) });
            }
            let title = match entity {
                Some(name) if several => entity_title(name),
                _ => String::new(),
            };
            panels.push(Panel { title, curves });
        }
        let mut legend: Vec<LegendEntry> = cases
            .iter()
            .zip(&drawn)
            .filter(|(_, drawn)| **drawn)
            .map(|(case, _)| LegendEntry { label: case.label.clone(), look: Look::Trace(case.number) })
            .collect();
        let measured = !legend.is_empty();
        if let Some(beside) = beside.as_ref().filter(|_| is_beside) {
            legend.push(LegendEntry { label: label(beside).long, look: Look::Beside });
        }
        for (points, entry) in references(figure) {
            end = points.iter().map(|point| point.x).fold(end, f64::max);
            for panel in &mut panels {
                panel.curves.push(Curve { look: entry.look, shape: Shape::Points(points.clone()) });
            }
            legend.push(entry);
        }
        let label = label(y);
        let plot = measured.then(|| Plot {
            description: format!("{}: {} over time", figure.title, label.long),
            x: Axis::linear("Time (s)".to_owned(), 0.0, end),
            y: Axis::vertical(label.axis(), Plot::heights(&panels), is_index(y)),
            panels,
            legend,
        });
        let note = match trial {
            Some(trial) if measured => format!("Trial {trial}, counted from 0."),
            _ => trials_note(cases.iter().map(|case| self.trials[case.case].len() as u32), |most| {
                format!("Mean of {most} trials in each sampling interval.")
            }),
        };
        Drawing { plot, note, data }
    }

    /// The cumulative distribution of a metric, over all trials: each trial counts the same.
    fn distribution(&self, figure: &Figure, x: &str, log_x: bool) -> Drawing {
        let label = label(x);
        let (mut curves, mut legend, mut trials) = (Vec::new(), Vec::new(), Vec::new());
        let shares = (0..=20).map(|step| f64::from(step) / 20.0);
        let head = vec!["share of values up to".to_owned()];
        let mut data = DataTable { head, rows: shares.map(|share| vec![format!("{share:.2}")]).collect() };
        for variant in &figure.variants {
            let base = self.summary.rows.iter().position(|row| row.variant == *variant && row.base);
            let records = base.map_or(&[][..], |base| &self.trials[base]);
            let of = |record: &&RunRecord| record.distributions.iter().find(|d| d.metric == x).cloned();
            let mut values: Vec<f64> = records.iter().filter_map(of).flat_map(|d| d.quantiles).collect();
            trials.push(records.len() as u32);
            if values.is_empty() {
                continue;
            }
            values.sort_by(f64::total_cmp);
            let last = values.len() - 1;
            let at = |share: f64| values[(share * last as f64).round() as usize];
            let title = self.variant_title(variant).to_owned();
            data.head.push(title.clone());
            for (row, step) in data.rows.iter_mut().zip(0..) {
                row.push(number::significant(at(f64::from(step) / 20.0), 4));
            }
            let steps = DRAWN_VALUES as f64;
            let points = (0..=DRAWN_VALUES).map(|step| step as f64 / steps).map(|share| (at(share), share));
            let look = Look::Trace(self.variant_number(variant));
            curves.push(Curve { look, shape: Shape::Line(points.collect()) });
            legend.push(LegendEntry { label: title, look });
        }
        for (points, entry) in references(figure) {
            curves.push(Curve { look: entry.look, shape: Shape::Points(points) });
            legend.push(entry);
        }
        let positions = curves.iter().flat_map(|curve| match &curve.shape {
            Shape::Line(values) => values.iter().map(|(x, _)| *x).collect::<Vec<_>>(),
            Shape::Points(points) => points.iter().map(|point| point.x).collect(),
            Shape::Level(_) => Vec::new(),
        });
        let horizontal = Axis::over(label.axis(), positions, log_x);
        let plot = (!data.head[1..].is_empty()).then(|| Plot {
            description: format!("{}: cumulative distribution of {}", figure.title, label.long),
            x: horizontal,
            y: Axis::linear("Cumulative share".to_owned(), 0.0, 1.0),
            panels: vec![Panel { title: String::new(), curves }],
            legend,
        });
        let note = trials_note(trials.into_iter(), |most| format!("Over {most} trials."));
        Drawing { plot, note, data }
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
                        let point = format!("{} = {value}", sweep.title);
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

impl DataTable {
    /// Adds a column; times that no earlier column has get rows of their own.
    fn add_series(&mut self, name: String, values: &[(f64, f64)]) {
        let columns = self.head.len();
        self.head.push(name);
        for &(time, value) in values {
            let key = number::significant(time, 9);
            let row = match self.rows.iter().position(|row| row[0] == key) {
                Some(row) => row,
                None => {
                    let mut row = vec![String::new(); columns];
                    row[0] = key;
                    self.rows.push(row);
                    self.rows.len() - 1
                }
            };
            let cell = if value.is_finite() { number::significant(value, 5) } else { String::new() };
            self.rows[row].resize(columns, String::new());
            self.rows[row].push(cell);
        }
        for row in &mut self.rows {
            row.resize(columns + 1, String::new());
        }
    }
}

/// A note about `trials`: of one, of none, and by `several` of at most so many.
fn trials_note(trials: impl Iterator<Item = u32>, several: impl Fn(u32) -> String) -> String {
    match trials.max() {
        None | Some(0) => String::new(),
        Some(1) => "One trial.".to_owned(),
        Some(most) => several(most),
    }
}

fn sweep_table(
    sweep: &Sweep,
    y: &str,
    columns: &[(String, Vec<Option<Estimate>>)],
    figure: &Figure,
) -> DataTable {
    let mut head = vec![sweep.title.clone()];
    head.extend(columns.iter().map(|(title, _)| title.clone()));
    let cell =
        |estimate: &Option<Estimate>| estimate.as_ref().map_or("–".to_owned(), |e| number::estimate(y, e));
    let row = |(index, value): (usize, &String)| {
        let cells = columns.iter().map(|(_, estimates)| cell(&estimates[index]));
        std::iter::once(value.clone()).chain(cells).collect()
    };
    let mut rows: Vec<Vec<String>> = sweep.values.iter().enumerate().map(row).collect();
    for reference in &figure.references {
        for point in reference_points(reference) {
            let interval = point.interval.map(|(low, high)| format!(" [{low}, {high}]")).unwrap_or_default();
            let mut row =
                vec![number::significant(point.x, 6), format!("{}: {}{interval}", reference.label, point.y)];
            row.resize(head.len().max(2), String::new());
            rows.push(row);
        }
    }
    DataTable { head, rows }
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

fn point(x: f64, estimate: &Estimate) -> Point {
    let interval = estimate.ci95.map(|half| (estimate.mean - half, estimate.mean + half));
    Point { x, y: estimate.mean, interval }
}

fn is_index(name: &str) -> bool {
    let found = metric::summarised(name).map(|(_, metric)| metric).or_else(|| metric::find(name));
    found.is_some_and(|metric| metric.unit == Unit::Index)
}

fn entity_title(name: &str) -> String {
    if name == "all" { "All flows".to_owned() } else { name.to_owned() }
}

/// Mean over trials of each interval, at the middle of the interval in seconds; without an entity, of the first
/// series of the metric.
fn mean_series(trials: &[&RunRecord], entity: Option<&str>, metric: &str) -> Vec<(f64, f64)> {
    let wanted = |s: &&Series| s.metric == metric && entity.is_none_or(|entity| s.entity == entity);
    let mut sums: Vec<(f64, u32)> = Vec::new();
    let mut sample = None;
    for record in trials {
        let Some(Series { values, .. }) = record.series.iter().find(wanted) else { continue };
        sample = sample.or(Some(record.sample));
        sums.resize(sums.len().max(values.len()), (0.0, 0));
        for (sum, value) in sums.iter_mut().zip(values).filter(|(_, value)| value.is_finite()) {
            sum.0 += f64::from(*value);
            sum.1 += 1;
        }
    }
    let sample = sample.map_or(0.0, Span::as_secs_f64);
    let mean = |(sum, n): (f64, u32)| if n == 0 { f64::NAN } else { sum / f64::from(n) };
    sums.into_iter().enumerate().map(|(index, sum)| ((index as f64 + 0.5) * sample, mean(sum))).collect()
}

/// Each value as the mean over `average` up to it, from the first that has as many before it.
fn averaged(values: Vec<(f64, f64)>, average: Option<Span>) -> Vec<(f64, f64)> {
    let (Some(average), [(first, _), (second, _), ..]) = (average, values.as_slice()) else { return values };
    let width = ((average.as_secs_f64() / (second - first)).round() as usize).max(1);
    let mean = |window: &[(f64, f64)]| {
        let sum: f64 = window.iter().map(|(_, value)| value).sum();
        (window[window.len() - 1].0, sum / window.len() as f64)
    };
    values.windows(width).map(mean).collect()
}

/// At most [`DRAWN_VALUES`] values, each the mean of as many neighbours as that takes.
fn thinned(values: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let width = values.len().div_ceil(DRAWN_VALUES).max(1);
    let mean = |bin: &[(f64, f64)]| {
        let finite: Vec<f64> = bin.iter().map(|(_, y)| *y).filter(|y| y.is_finite()).collect();
        let x = bin.iter().map(|(x, _)| x).sum::<f64>() / bin.len() as f64;
        (x, if finite.is_empty() { f64::NAN } else { finite.iter().sum::<f64>() / finite.len() as f64 })
    };
    values.chunks(width).map(mean).collect()
}

/// `id` as a file name and an XML id.
fn file_name(id: &str) -> String {
    let safe = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '-' };
    id.chars().map(safe).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::{results, study};

    #[test]
    fn sweeps_have_a_curve_for_each_swept_variant_and_a_level_for_the_others() {
        let study = study();
        let results = [results(&study)];
        let figures = draw_all(&results);
        let plot = figures[0].plot.as_ref().unwrap();
        let looks: Vec<Look> = plot.legend.iter().map(|entry| entry.look).collect();
        assert_eq!(looks, [Look::Curve(0), Look::Curve(1), Look::Level(2), Look::Reference(0)]);
        let curve = plot.panels[0].curves.iter().find(|curve| curve.look == Look::Curve(1)).unwrap();
        let Shape::Points(points) = &curve.shape else { panic!("{curve:?}") };
        assert_eq!(points.iter().map(|point| point.x).collect::<Vec<_>>(), [4.0, 8.0, 16.0]);
        assert!(points.iter().all(|point| point.interval.is_some()));
        assert_eq!(
            figures[0].note,
            "Mean of 2 trials with its 95 % confidence interval. Grey: from elsewhere, with \
                                     the interval given there."
        );
        assert_eq!(figures[0].data.rows.len(), 3 + 2);
        assert!(figures[0].data.rows.iter().all(|row| row.len() == figures[0].data.head.len()));
    }

    #[test]
    fn series_have_a_panel_for_each_entity() {
        let study = study();
        let results = [results(&study)];
        let figures = draw_all(&results);
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
        assert!(draw_all(&results).iter().all(|figure| figure.plot.is_none()));
    }

    #[test]
    fn ids_are_unique_over_studies_and_safe_as_file_names() {
        let mut study = study();
        study.figures[0].id = "fig 6/a".to_owned();
        let results = [results(&study), results(&study)];
        let files: Vec<String> = draw_all(&results).into_iter().map(|figure| figure.file).collect();
        assert_eq!(files[0], "figures/fair.fig-6-a.svg");
        assert_eq!(files[3], "figures/fair-2.fig-6-a.svg");
    }

    #[test]
    fn means_over_trials_skip_what_is_undefined() {
        let study = study();
        let results = results(&study);
        let mut one = results.records[0].clone();
        let mut two = results.records[1].clone();
        let series = |values: Vec<f32>| vec![Series { entity: "all".to_owned(), metric: "jain", values }];
        one.series = series(vec![f32::NAN, f32::NAN, 0.5]);
        two.series = series(vec![f32::NAN, 0.25, 1.0]);
        (one.sample, two.sample) = (Span::from_millis(200), Span::from_millis(200));
        let mean = mean_series(&[&one, &two], Some("all"), "jain");
        assert!(mean[0].1.is_nan());
        assert!((mean[1].0 - 0.3).abs() < 1e-12 && mean[1].1 == 0.25 && mean[2].1 == 0.75);
        assert!(mean_series(&[&one], Some("other"), "jain").is_empty());
    }

    #[test]
    fn an_average_is_of_the_time_before_each_value() {
        let values: Vec<(f64, f64)> = (0..5).map(|i| (f64::from(i) + 0.5, f64::from(i))).collect();
        assert_eq!(averaged(values.clone(), None), values);
        let of_two = [(1.5, 0.5), (2.5, 1.5), (3.5, 2.5), (4.5, 3.5)];
        assert_eq!(averaged(values.clone(), Some(Span::from_secs(2))), of_two);
        assert!(averaged(values, Some(Span::from_secs(9))).is_empty());
    }

    #[test]
    fn long_series_are_averaged_over_neighbours() {
        let long: Vec<(f64, f64)> = (0..1001).map(|i| (f64::from(i), f64::from(i % 3))).collect();
        let drawn = thinned(&long);
        assert_eq!((drawn.len(), drawn[0]), (334, (1.0, 1.0)));
        assert_eq!(thinned(&long[..500]), long[..500]);
    }
}
