//! Figures of how values are distributed.

use std::io;

use bandmaster_core::report::RunRecord;
use bandmaster_core::report::metric::label;
use bandmaster_core::scenario::{CdfOf, FLOW_VALUES, Figure, FigureCases};

use super::{
    DRAWN_VALUES, DataTable, Drawing, SeriesCase, Source, flow_value, flows_note, references, trials_note,
};
use crate::report::axis::Axis;
use crate::report::number;
use crate::report::plot::{Curve, LegendEntry, Look, Panel, Plot, Shape};

impl Source<'_> {
    /// The cumulative distribution of a metric, over all trials: each trial counts the same.
    pub(super) fn distribution(&self, figure: &Figure, x: &str, log_x: bool) -> Drawing {
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
        let mut note = trials_note(trials.into_iter(), |most| format!("All values of {most} trials."));
        let drawn = figure.variants.iter().filter_map(|name| Some((name.as_str(), self.summary.base(name)?)));
        note += &self.survivors(x, &drawn.collect::<Vec<_>>());
        Drawing { plot, note, data }
    }

    /// The cumulative distribution of a value of flows, or of a metric over trials.
    pub(super) fn cdf(
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
        let mut note = trials_note(trials, |most| format!("All values of {most} trials."));
        if end < top {
            note += &format!(" The axis ends before the largest value, {}.", number::significant(top, 3));
        }
        note += &flows_note(counts.into_iter());
        if of == CdfOf::Trials {
            let rows = chosen.iter().map(|case| &self.summary.rows[case.case]);
            note += &self.survivors(x, &rows.map(|row| (row.variant.as_str(), row)).collect::<Vec<_>>());
        }
        Ok(Drawing { plot, note, data })
    }
}
