//! From the figures of a study to plots, and the numbers behind them.

use std::io;

use bandmaster_core::measure::rtt::RttSummary;
use bandmaster_core::report::flow::FlowRecord;
use bandmaster_core::report::metric::{self, Unit, label};
use bandmaster_core::report::quantile::percentile;
use bandmaster_core::report::summary::{Estimate, Summary, SummaryRow};
use bandmaster_core::report::{RunRecord, Series};
use bandmaster_core::scenario::{
    Axis as GridAxis, CdfOf, FLOW_VALUES, Figure, FigureCases, FigureContent, ReferenceCurve, Study, Sweep,
};
use bandmaster_core::time::Span;

use super::axis::{Axis, Positions};
use super::flows::FlowBlocks;
use super::number;
use super::plot::{BoxPlot, Curve, HeatCell, LegendEntry, Look, Panel, Plot, Point, Shape, Slot};
use super::{StudyResults, distinct, study_names, unique_ids};

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

    /// A metric over a sweep; over one key of a grid, with a curve for each combination of the others' values.
    fn sweep(&self, figure: &Figure, (sweep, x): (&str, Option<&str>), y: &str, log_x: bool) -> Drawing {
        let Some(sweep) = self.sweep_named(sweep) else {
            return Drawing::default();
        };
        let axes = sweep.axes();
        let across = axes.iter().position(|(name, _)| Some(*name) == x).unwrap_or(0);
        let title = sweep.grid.get(across).map_or(&sweep.title, |axis| &axis.title);
        let values = axes[across].1;
        let positions = Positions::new(title, values);
        let mut curves = Vec::new();
        let mut legend = Vec::new();
        let mut columns: Vec<(String, Vec<Option<Estimate>>)> = Vec::new();
        let mut drawn = Vec::new();
        for name in &figure.variants {
            let number = self.variant_number(name);
            let title = self.variant_title(name).to_owned();
            if sweep.variants.contains(name) {
                for (others, points) in along(sweep, across) {
                    let number = if sweep.grid.is_empty() { number } else { columns.len() };
                    let label = match (figure.variants.len(), others.as_str()) {
                        (_, "") => title.clone(),
                        (1, others) => others.to_owned(),
                        (_, others) => format!("{title}, {others}"),
                    };
                    let row = |point: &&str| self.summary.point(name, &sweep.name, point);
                    drawn.extend(points.iter().filter_map(row).map(|row| (name.as_str(), row)));
                    let estimates: Vec<Option<Estimate>> =
                        points.iter().map(|point| row(point)?.metric(y).copied()).collect();
                    let at = positions.at.iter().zip(&estimates);
                    let mut points: Vec<Point> =
                        at.filter_map(|(&x, e)| Some(point(x, y, e.as_ref()?))).collect();
                    points.sort_by(|a, b| a.x.total_cmp(&b.x));
                    if !points.is_empty() {
                        curves.push(Curve { look: Look::Curve(number), shape: Shape::Points(points) });
                        legend.push(LegendEntry { label: label.clone(), look: Look::Curve(number) });
                    }
                    columns.push((label, estimates));
                }
            } else {
                let number = if sweep.grid.is_empty() { number } else { columns.len() };
                let level = self.summary.base(name).and_then(|row| row.metric(y)).copied();
                drawn.extend(self.summary.base(name).map(|row| (name.as_str(), row)));
                if let Some(level) = level {
                    let look = Look::Level(number);
                    // Under the curves, so that they stay visible.
                    curves.insert(0, Curve { look, shape: Shape::Level(point(0.0, y, &level)) });
                    legend.push(LegendEntry { label: title.clone(), look });
                }
                columns.push((title, vec![level; values.len()]));
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
            description: format!("{}: {} over {title}", figure.title, label.long),
            x: Axis::across(&positions, figure.references.iter().flat_map(|r| r.x.iter().copied()), log_x),
            y: Axis::vertical(label.axis(), Plot::heights(&panels), is_index(y)),
            panels,
            legend,
            cut: false,
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
        note += &self.survivors(y, &drawn);
        Drawing { plot, note, data: sweep_table(title, values, y, &columns, figure) }
    }

    /// A metric over time.
    fn series(&self, figure: &Figure) -> Drawing {
        let FigureContent::Series { y, entities, sweep, at, beside, trial, average } = &figure.content else {
            return Drawing::default();
        };
        let cases = self.series_cases(figure, sweep.as_deref(), at.as_ref());
        let entities_of = |metric: &str| -> Vec<Option<&str>> {
            match (metric, entities.as_slice()) {
                // The queue is one port's, whatever its name.
                ("queue", _) => vec![None],
                (_, []) => vec![Some("all")],
                // Its times come before those of other ports.
                (metric, [all]) if all == "all" && metric.starts_with("sojourn") => vec![None],
                (_, names) => names.iter().map(|name| Some(name.as_str())).collect(),
            }
        };
        let shown: Vec<(&str, Option<&str>)> = y
            .iter()
            .flat_map(|metric| entities_of(metric).into_iter().map(move |of| (metric.as_str(), of)))
            .collect();
        let several = y.iter().any(|metric| entities_of(metric).len() > 1);
        let title_of = |(metric, entity): (&str, Option<&str>)| {
            let metric = (y.len() > 1).then(|| label(metric).short);
            let entity = entity.filter(|_| several).map(entity_title);
            metric.into_iter().chain(entity).collect::<Vec<_>>().join(", ")
        };
        let column = |(metric, entity): (&str, Option<&str>), of: &str| {
            let metric = (y.len() > 1).then(|| label(metric).short);
            let entity = entity.filter(|_| several).map(str::to_owned);
            entity.into_iter().chain(metric).chain([of.to_owned()]).collect::<Vec<_>>().join(": ")
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
        for &(metric, entity) in &shown {
            let mut curves = Vec::new();
            // What all curves are measured against lies under them.
            if let (Some(beside), Some(first)) = (beside, cases.first()) {
                let mean = averaged(mean_series(&chosen(first.case), entity, beside), *average);
                if !mean.is_empty() {
                    is_beside = true;
                    let values = thinned(&mean);
                    data.add_series(column((metric, entity), &label(beside).long), &values);
                    curves.push(Curve { look: Look::Beside, shape: Shape::Line(values) });
                }
            }
            for (index, SeriesCase { case, label, number }) in cases.iter().enumerate() {
                let mean = mean_series(&chosen(*case), entity, metric);
                let (Some(first), Some(last)) = (mean.first(), mean.last()) else { continue };
                // Values stand in the middle of their intervals.
                end = end.max(last.0 + first.0);
                let mean = averaged(mean, *average);
                drawn[index] = true;
                let values = thinned(&mean);
                data.add_series(column((metric, entity), label), &values);
                curves.push(Curve { look: Look::Trace(*number), shape: Shape::Line(values) });
            }
            panels.push(Panel { title: title_of((metric, entity)), curves });
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
        let first = label(&y[0]);
        let title = if y.len() > 1 { figure.title.clone() } else { first.long.clone() };
        let axis = if y.len() > 1 { first.unit.to_owned() } else { first.axis() };
        let heights = Plot::heights(&panels);
        let cut = spike(&heights);
        let plot = measured.then(|| Plot {
            description: format!("{}: {title} over time", figure.title),
            x: Axis::linear("Time (s)".to_owned(), 0.0, end),
            y: Axis::vertical(axis, cut.map_or(heights, |(top, _)| vec![0.0, top]), is_index(&y[0])),
            panels,
            legend,
            cut: cut.is_some(),
        });
        let mut note = match trial {
            Some(trial) if measured => format!("Trial {trial}, counted from 0."),
            _ => trials_note(cases.iter().map(|case| self.trials[case.case].len() as u32), |most| {
                format!("Mean of {most} trials in each sampling interval.")
            }),
        };
        if let Some((_, most)) = cut {
            note += &format!(" Peaks are cut; the highest reaches {}.", number::significant(most, 3));
        }
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
        let positions: Vec<f64> = curves.iter().flat_map(|curve| curve.shape.positions()).collect();
        let horizontal = Axis::over(label.axis(), positions, log_x);
        let plot = (!data.head[1..].is_empty()).then(|| Plot {
            description: format!("{}: cumulative distribution of {}", figure.title, label.long),
            x: horizontal,
            y: Axis::linear("Cumulative share".to_owned(), 0.0, 1.0),
            panels: vec![Panel { title: String::new(), curves }],
            legend,
            cut: false,
        });
        let mut note = trials_note(trials.into_iter(), |most| format!("Over {most} trials."));
        let drawn = figure.variants.iter().filter_map(|name| Some((name.as_str(), self.summary.base(name)?)));
        note += &self.survivors(x, &drawn.collect::<Vec<_>>());
        Drawing { plot, note, data }
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

    /// The cumulative distribution of a value of flows, or of a metric over trials.
    fn cdf(
        &self,
        figure: &Figure,
        of: CdfOf,
        x: &str,
        group: Option<&str>,
        cases: &FigureCases,
        log_x: bool,
    ) -> io::Result<Drawing> {
        let title = match of {
            CdfOf::Flows => {
                FLOW_VALUES.iter().find(|(name, ..)| *name == x).map_or(x, |(_, title, _)| title).to_owned()
            }
            CdfOf::Trials => label(x).axis(),
        };
        let (mut curves, mut legend, mut counts) = (Vec::new(), Vec::new(), Vec::new());
        let head = vec!["share of values up to".to_owned()];
        let shares = (0..=20).map(|step| f64::from(step) / 20.0);
        let mut data = DataTable { head, rows: shares.map(|share| vec![format!("{share:.2}")]).collect() };
        let (mut tails, mut tops) = (Vec::new(), Vec::new());
        let chosen = self.series_cases(figure, cases.sweep.as_deref(), cases.at.as_ref());
        for SeriesCase { case, label, number } in &chosen {
            let mut values: Vec<f64> = match of {
                CdfOf::Trials => self.summary.rows[*case].values(x).iter().map(|(_, value)| *value).collect(),
                CdfOf::Flows => {
                    let found = self.flow_values(*case, group, |row| flow_value(row, x))?;
                    counts.push((
                        label.clone(),
                        [found.started, found.completed, found.started - found.completed],
                    ));
                    found.values.into_iter().map(|(_, value)| value).collect()
                }
            };
            values.retain(|value| value.is_finite() && (!log_x || *value > 0.0));
            values.sort_by(f64::total_cmp);
            let Some(last) = values.len().checked_sub(1) else { continue };
            let at = |share: f64| {
                values[((share * values.len() as f64).ceil() as usize).saturating_sub(1).min(last)]
            };
            data.head.push(label.clone());
            for (row, step) in data.rows.iter_mut().zip(0..) {
                row.push(number::significant(at(f64::from(step) / 20.0), 4));
            }
            tails.push(at(0.995));
            tops.push(values[last]);
            let n = values.len() as f64;
            // Each value of few is a step.
            let points = if values.len() <= DRAWN_VALUES / 2 {
                let step = |(rank, value): (usize, &f64)| {
                    [(*value, rank as f64 / n), (*value, (rank + 1) as f64 / n)]
                };
                values.iter().enumerate().flat_map(step).collect()
            } else {
                let steps = DRAWN_VALUES as f64;
                let shares = (0..=DRAWN_VALUES).map(|step| step as f64 / steps);
                shares.map(|share| (at(share), share)).collect()
            };
            curves.push(Curve { look: Look::Trace(*number), shape: Shape::Line(points) });
            legend.push(LegendEntry { label: label.clone(), look: Look::Trace(*number) });
        }
        let is_measured = !curves.is_empty();
        let most = |values: &[f64]| values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        // A few values far out must not squash all others.
        let (tail, top) = (most(&tails), most(&tops));
        let end = if !log_x && tail > 0.0 && top > 2.0 * tail { tail * 1.1 } else { top };
        let mut extent: Vec<f64> =
            curves.iter().flat_map(|curve| curve.shape.positions()).filter(|x| *x <= end).collect();
        extent.push(end);
        for (points, entry) in references(figure) {
            extent.extend(points.iter().map(|point| point.x));
            curves.push(Curve { look: entry.look, shape: Shape::Points(points) });
            legend.push(entry);
        }
        let plot = is_measured.then(|| Plot {
            description: format!("{}: cumulative distribution of {title}", figure.title),
            x: Axis::over(title.clone(), extent, log_x),
            y: Axis::linear("Cumulative share".to_owned(), 0.0, 1.0),
            panels: vec![Panel { title: String::new(), curves }],
            legend,
            cut: end < top,
        });
        let trials = chosen.iter().map(|case| self.trials[case.case].len() as u32);
        let mut note = trials_note(trials, |most| format!("Over {most} trials."));
        if end < top {
            note += &format!(" The largest value, {}, is outside.", number::significant(top, 3));
        }
        note += &flows_note(counts.into_iter());
        if of == CdfOf::Trials {
            let rows = chosen.iter().map(|case| &self.summary.rows[case.case]);
            note += &self.survivors(x, &rows.map(|row| (row.variant.as_str(), row)).collect::<Vec<_>>());
        }
        Ok(Drawing { plot, note, data })
    }

    /// The positions of boxes or bars over the cases: those of the sweep when there is one, else one for each variant. Gives the axis,
    /// and for each look its label and cases by position.
    fn placed(&self, figure: &Figure, cases: &FigureCases) -> (Axis, Vec<Placed>) {
        let row = |variant: &str, point: Option<(&str, &str)>| {
            let is_it = |row: &SummaryRow| match point {
                Some((sweep, value)) => row.is_at(sweep, value),
                None => row.base,
            };
            self.summary.rows.iter().position(|row| row.variant == variant && is_it(row))
        };
        let entry = |name: &str| LegendEntry {
            label: self.variant_title(name).to_owned(),
            look: Look::Area(self.variant_number(name)),
        };
        if let Some(sweep) = cases.sweep.as_deref().and_then(|name| self.sweep_named(name)) {
            let positions = Positions::new(&sweep.title, &sweep.values);
            let of = |name: &String| {
                let case = |(at, value): (u32, &String)| {
                    Some((f64::from(at), row(name, Some((&sweep.name, value)))?))
                };
                (entry(name), (0..).zip(&sweep.values).filter_map(case).collect())
            };
            let swept = figure.variants.iter().filter(|name| sweep.variants.contains(name));
            return (positions.side_by_side(), swept.map(of).collect());
        }
        let titles: Vec<String> =
            figure.variants.iter().map(|name| self.variant_title(name).to_owned()).collect();
        let point = cases.at.as_ref().map(|(sweep, value)| (sweep.as_str(), value.as_str()));
        let of = |(at, name): (u32, &String)| {
            (entry(name), row(name, point).map(|row| (f64::from(at), row)).into_iter().collect())
        };
        (Axis::words(String::new(), &titles), (0..).zip(&figure.variants).map(of).collect())
    }

    /// A metric over trials as boxes.
    fn boxes(&self, figure: &Figure, y: &str, cases: &FigureCases) -> Drawing {
        let (x, placed) = self.placed(figure, cases);
        let is_swept = cases.sweep.is_some();
        let head = ["case", "trials", "least", "first quartile", "median", "third quartile", "largest"];
        let mut data = DataTable { head: head.map(str::to_owned).to_vec(), rows: Vec::new() };
        let (mut curves, mut legend, mut drawn) = (Vec::new(), Vec::new(), Vec::new());
        let of = if is_swept { placed.len() } else { 1 };
        for (number, (entry, cases)) in placed.into_iter().enumerate() {
            let mut boxes = Vec::new();
            for (x, case) in cases {
                let row = &self.summary.rows[case];
                let Some(estimate) = row.metric(y) else { continue };
                let values = || row.values(y).iter().map(|(_, value)| *value);
                let (least, most) =
                    (values().fold(f64::INFINITY, f64::min), values().fold(f64::NEG_INFINITY, f64::max));
                let marks = [least, estimate.q1, estimate.median, estimate.q3, most];
                let point = row.points.iter().map(|(name, value)| format!(", {name} = {value}"));
                let name = entry.label.clone() + &point.collect::<String>();
                let cells = marks.iter().map(|mark| number::significant(*mark, 5));
                data.rows.push([name, estimate.n.to_string()].into_iter().chain(cells).collect());
                boxes.push(BoxPlot { x, marks });
                drawn.push((row.variant.as_str(), row));
            }
            if !boxes.is_empty() {
                let slot = Slot { number: if is_swept { number } else { 0 }, of };
                curves.push(Curve { look: entry.look, shape: Shape::Boxes(slot, boxes) });
                legend.push(entry);
            }
        }
        let panels = vec![Panel { title: String::new(), curves }];
        let label = label(y);
        let plot = (!data.rows.is_empty()).then(|| Plot {
            description: format!("{}: {} over trials", figure.title, label.long),
            x,
            y: Axis::vertical(label.axis(), Plot::heights(&panels), is_index(y)),
            panels,
            // Positions name the variants.
            legend: if is_swept { legend } else { Vec::new() },
            cut: false,
        });
        let mut note = trials_note(drawn.iter().map(|(_, row)| row.trials), |most| {
            format!("Median, quartiles, least and largest value of {most} trials.")
        });
        note += &self.survivors(y, &drawn);
        Drawing { plot, note, data }
    }

    /// Metrics beside each other as bars, a colour for each case.
    fn bars(&self, figure: &Figure, metrics: &[String], cases: &FigureCases) -> Drawing {
        // Metrics of groups that differ by the group only are called by it.
        let parts: Vec<(&str, &str)> =
            metrics.iter().map(|name| name.rsplit_once('.').unwrap_or(("", name))).collect();
        let is_of_groups = parts.iter().all(|(group, own)| !group.is_empty() && *own == parts[0].1);
        let names: Vec<String> = metrics
            .iter()
            .zip(&parts)
            .map(|(metric, (group, _))| if is_of_groups { (*group).to_owned() } else { label(metric).short })
            .collect();
        let first = label(if is_of_groups { parts[0].1 } else { &metrics[0] });
        let axis = if is_of_groups || metrics.len() == 1 { first.axis() } else { first.unit.to_owned() };
        let mut data = DataTable { head: vec!["case".to_owned()], rows: Vec::new() };
        data.head.extend(names.iter().cloned());
        let (mut curves, mut legend, mut drawn) = (Vec::new(), Vec::new(), Vec::new());
        let chosen = self.series_cases(figure, cases.sweep.as_deref(), cases.at.as_ref());
        for (number, case) in chosen.iter().enumerate() {
            let row = &self.summary.rows[case.case];
            let estimates: Vec<Option<&Estimate>> = metrics.iter().map(|metric| row.metric(metric)).collect();
            let cells = estimates.iter().zip(metrics);
            let cells = cells.map(|(e, metric)| e.map_or("–".to_owned(), |e| number::estimate(metric, e)));
            data.rows.push(std::iter::once(case.label.clone()).chain(cells).collect());
            let bars = (0_u32..).zip(estimates.iter().zip(metrics));
            let bars: Vec<Point> =
                bars.filter_map(|(at, (e, metric))| Some(point(f64::from(at), metric, (*e)?))).collect();
            if bars.is_empty() {
                continue;
            }
            drawn.push((row.variant.as_str(), row));
            let slot = Slot { number, of: chosen.len() };
            curves.push(Curve { look: Look::Area(case.number), shape: Shape::Bars(slot, bars) });
            legend.push(LegendEntry { label: case.label.clone(), look: Look::Area(case.number) });
        }
        let panels = vec![Panel { title: String::new(), curves }];
        let plot = (!drawn.is_empty()).then(|| Plot {
            description: format!("{}: {} of {}", figure.title, first.long, names.join(", ")),
            x: Axis::words(String::new(), &names),
            y: Axis::vertical(axis, Plot::heights(&panels), metrics.iter().all(|name| is_index(name))),
            panels,
            legend,
            cut: false,
        });
        let mut note = trials_note(drawn.iter().map(|(_, row)| row.trials), |most| {
            format!("Mean of {most} trials with its 95 % confidence interval.")
        });
        note += &self.survivors(&metrics[0], &drawn);
        Drawing { plot, note, data }
    }

    /// A metric over both keys of a grid, a panel for each variant.
    fn heatmap(&self, figure: &Figure, sweep: &str, z: &str) -> Drawing {
        let Some((sweep, [across, up])) = self
            .sweep_named(sweep)
            .map(|sweep| (sweep, sweep.grid.as_slice()))
            .and_then(|(sweep, grid)| Some((sweep, <&[_; 2]>::try_from(grid).ok()?)))
        else {
            return Drawing::default();
        };
        let [x, y] = [across, up].map(|axis| Positions::new(&axis.title, &axis.values));
        let variants: Vec<&String> =
            figure.variants.iter().filter(|name| sweep.variants.contains(name)).collect();
        let mut drawn = Vec::new();
        let mut head = vec![across.title.clone(), up.title.clone()];
        head.extend(variants.iter().map(|name| self.variant_title(name).to_owned()));
        let mut data = DataTable { head, rows: Vec::new() };
        let mut means: Vec<Vec<((f64, f64), f64)>> = vec![Vec::new(); variants.len()];
        for point in &sweep.values {
            let coordinates = sweep.coordinates(point);
            let place = |axis: &GridAxis, value: &str| {
                axis.values.iter().position(|v| v == value).unwrap_or(0) as f64
            };
            let at = (place(across, coordinates[0]), place(up, coordinates[1]));
            let mut cells: Vec<String> = coordinates.iter().map(|value| (*value).to_owned()).collect();
            for (name, means) in variants.iter().zip(&mut means) {
                let row = self.summary.point(name, &sweep.name, point);
                let estimate = row.and_then(|row| row.metric(z));
                drawn.extend(row.filter(|_| estimate.is_some()).map(|row| (name.as_str(), row)));
                means.extend(estimate.map(|e| (at, e.mean)));
                cells.push(estimate.map_or("–".to_owned(), |e| number::estimate(z, e)));
            }
            data.rows.push(cells);
        }
        let all = || means.iter().flatten().map(|(_, mean)| *mean);
        let (least, most) = (all().fold(f64::INFINITY, f64::min), all().fold(f64::NEG_INFINITY, f64::max));
        // All values have as many places as the one that needs most for three digits.
        let digits =
            |mean: f64| number::significant(mean, 3).split_once('.').map_or(0, |(_, places)| places.len());
        let places = all().map(digits).max().unwrap_or(0);
        let panels = variants.iter().zip(&means).map(|(name, means)| {
            let cell = |(at, mean): &((f64, f64), f64)| HeatCell {
                at: *at,
                strength: if most > least { (mean - least) / (most - least) } else { 0.5 },
                text: format!("{mean:.places$}"),
            };
            let cells = Shape::Cells(means.iter().map(cell).collect());
            let title = if variants.len() > 1 { self.variant_title(name).to_owned() } else { String::new() };
            Panel { title, curves: vec![Curve { look: Look::Area(1), shape: cells }] }
        });
        let panels: Vec<Panel> = panels.collect();
        let label = label(z);
        let plot = (!drawn.is_empty()).then(|| Plot {
            description: format!("{}: {} over {} and {}", figure.title, label.long, across.title, up.title),
            x: x.side_by_side(),
            y: y.side_by_side(),
            panels,
            legend: Vec::new(),
            cut: false,
        });
        let mut note =
            trials_note(drawn.iter().map(|(_, row)| row.trials), |most| format!("Mean of {most} trials."));
        note = format!("{}; a stronger colour is a larger value. {note}", label.axis());
        note += &self.survivors(z, &drawn);
        Drawing { plot, note, data }
    }

    /// Median and 99th percentile of the slowdown by flow size.
    fn slowdown(
        &self,
        figure: &Figure,
        group: Option<&str>,
        bins: u32,
        cases: &FigureCases,
    ) -> io::Result<Drawing> {
        let chosen = self.series_cases(figure, cases.sweep.as_deref(), cases.at.as_ref());
        let mut found = Vec::new();
        for case in &chosen {
            found.push(self.flow_values(case.case, group, FlowRecord::slowdown)?);
        }
        let mut sizes: Vec<u64> = found.iter().flat_map(|of| &of.values).map(|(size, _)| *size).collect();
        sizes.sort_unstable();
        // Ends of bins: sizes that are equal share one.
        let rank = |bin: u32| (u64::from(bin) * sizes.len() as u64).div_ceil(u64::from(bins)) as usize;
        let mut ends: Vec<u64> =
            (1..=bins).filter_map(|bin| sizes.get(rank(bin).checked_sub(1)?).copied()).collect();
        ends.dedup();
        // A bin stands at its median size.
        let center = |(first, end): (u64, u64)| {
            let of: Vec<u64> = sizes.iter().copied().filter(|size| *size > first && *size <= end).collect();
            of.get(of.len().saturating_sub(1) / 2).map_or(0.0, |size| *size as f64 / 1e3)
        };
        let spans: Vec<(u64, u64)> =
            std::iter::once(0).chain(ends.iter().copied()).zip(ends.iter().copied()).collect();
        let centers: Vec<f64> = spans.iter().map(|span| center(*span)).collect();
        let head = ["sizes up to (B)", "case", "flows", "slowdown, median", "slowdown, p99"];
        let mut data = DataTable { head: head.map(str::to_owned).to_vec(), rows: Vec::new() };
        let mut curves = [Vec::new(), Vec::new()];
        let (mut legend, mut counts) = (Vec::new(), Vec::new());
        let mut is_small = false;
        for (case, found) in chosen.iter().zip(&found) {
            counts.push((
                case.label.clone(),
                [found.started, found.completed, found.started - found.completed],
            ));
            let mut points = [Vec::new(), Vec::new()];
            for (&(first, end), &x) in spans.iter().zip(&centers) {
                let of = found.values.iter().filter(|(size, _)| *size > first && *size <= end);
                let mut values: Vec<f64> = of.map(|(_, value)| *value).collect();
                if values.is_empty() {
                    continue;
                }
                values.sort_by(f64::total_cmp);
                is_small |= values.len() < 100;
                let of = [50, 99].map(|percent| percentile(&values, percent));
                for (points, y) in points.iter_mut().zip(of) {
                    points.push(Point { x, y, interval: None });
                }
                let cells = [end.to_string(), case.label.clone(), values.len().to_string()];
                data.rows.push(cells.into_iter().chain(of.map(|y| number::significant(y, 4))).collect());
            }
            for (curves, points) in curves.iter_mut().zip(points) {
                if !points.is_empty() {
                    curves.push(Curve { look: Look::Curve(case.number), shape: Shape::Points(points) });
                }
            }
            legend.push(LegendEntry { label: case.label.clone(), look: Look::Curve(case.number) });
        }
        let [median, p99] = curves;
        let panels = vec![
            Panel { title: "Median".to_owned(), curves: median },
            Panel { title: "99th percentile".to_owned(), curves: p99 },
        ];
        let plot = (!data.rows.is_empty()).then(|| Plot {
            description: format!("{}: slowdown by flow size", figure.title),
            x: Axis::over("Flow size (kB)".to_owned(), centers, true),
            y: Axis::over("Slowdown".to_owned(), Plot::heights(&panels), true),
            panels,
            legend,
            cut: false,
        });
        let trials = chosen.iter().map(|case| self.trials[case.case].len() as u32);
        let mut note = "Completion time over that in an empty network; each bin has as many flows of all curves together.".to_owned();
        if is_small {
            note.push_str(" Of fewer than 100 flows, the 99th percentile is the largest.");
        }
        note += &trials_note(trials, |most| format!(" Over {most} trials."));
        note += &flows_note(counts.into_iter());
        Ok(Drawing { plot, note, data })
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

/// What has one look among boxes, and its cases by position.
type Placed = (LegendEntry, Vec<(f64, usize)>);

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

/// One of [`FLOW_VALUES`] of a flow.
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

/// The points of a sweep along one of its keys, for each combination of the others' values, with its name.
fn along(sweep: &Sweep, across: usize) -> Vec<(String, Vec<&str>)> {
    let mut found: Vec<(String, Vec<&str>)> = Vec::new();
    for point in &sweep.values {
        let others =
            sweep.grid.iter().zip(sweep.coordinates(point)).enumerate().filter(|(at, _)| *at != across);
        let named: Vec<String> =
            others.map(|(_, (axis, value))| format!("{} = {value}", without_unit(&axis.title))).collect();
        let name = named.join(", ");
        match found.iter_mut().find(|(known, _)| *known == name) {
            Some((_, points)) => points.push(point),
            None => found.push((name, vec![point])),
        }
    }
    found
}

/// A title without the unit in brackets at its end: values have their own.
fn without_unit(title: &str) -> &str {
    title.strip_suffix(')').and_then(|title| title.rsplit_once(" (")).map_or(title, |(title, _)| title)
}

/// Where an axis ends that a few peaks would squash, and the highest of them: what exceeds the 98th percentile by far.
fn spike(heights: &[f64]) -> Option<(f64, f64)> {
    let mut sorted = heights.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (least, most) = (*sorted.first()?, *sorted.last()?);
    let usual = percentile(&sorted, 98);
    (least >= 0.0 && usual > 0.0 && most > 2.5 * usual).then_some((usual * 1.3, most))
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
    title: &str,
    values: &[String],
    y: &str,
    columns: &[(String, Vec<Option<Estimate>>)],
    figure: &Figure,
) -> DataTable {
    let mut head = vec![title.to_owned()];
    head.extend(columns.iter().map(|(title, _)| title.clone()));
    let cell =
        |estimate: &Option<Estimate>| estimate.as_ref().map_or("–".to_owned(), |e| number::estimate(y, e));
    let row = |(index, value): (usize, &String)| {
        let cells = columns.iter().map(|(_, estimates)| cell(&estimates[index]));
        std::iter::once(value.clone()).chain(cells).collect()
    };
    let mut rows: Vec<Vec<String>> = values.iter().enumerate().map(row).collect();
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

    /// 98 of 100 values up to 10 and a peak of 100: the axis ends at 13. A peak of 25 is no such.
    #[test]
    fn a_few_peaks_do_not_squash_the_others() {
        let with = |peak: f64| {
            (0..100).map(|i| if i < 99 { f64::from(i % 10 + 1) } else { peak }).collect::<Vec<_>>()
        };
        assert_eq!(spike(&with(100.0)), Some((13.0, 100.0)));
        assert_eq!((spike(&with(25.0)), spike(&[]), spike(&[0.0, 0.0])), (None, None, None));
        let mut below = with(100.0);
        below.push(-1.0);
        assert_eq!(spike(&below), None);
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

    #[test]
    fn long_series_are_averaged_over_neighbours() {
        let long: Vec<(f64, f64)> = (0..1001).map(|i| (f64::from(i), f64::from(i % 3))).collect();
        let drawn = thinned(&long);
        assert_eq!((drawn.len(), drawn[0]), (334, (1.0, 1.0)));
        assert_eq!(thinned(&long[..500]), long[..500]);
    }
}
