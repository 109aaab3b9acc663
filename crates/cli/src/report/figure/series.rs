//! Figures of a metric over time.

use bandmaster_core::report::metric::label;
use bandmaster_core::report::quantile::percentile;
use bandmaster_core::report::{RunRecord, Series};
use bandmaster_core::scenario::{Figure, FigureContent};
use bandmaster_core::time::Span;

use super::{
    DRAWN_VALUES, DataTable, Drawing, SeriesCase, Source, entity_title, is_index, references, trials_note,
};
use crate::report::axis::Axis;
use crate::report::number;
use crate::report::plot::{Curve, LegendEntry, Look, Panel, Plot, Shape};

impl Source<'_> {
    /// A metric over time.
    pub(super) fn series(&self, figure: &Figure) -> Drawing {
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

/// Where an axis ends that a few peaks would squash, and the highest of them: what exceeds the 98th percentile by far.
fn spike(heights: &[f64]) -> Option<(f64, f64)> {
    let mut sorted = heights.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (least, most) = (*sorted.first()?, *sorted.last()?);
    let usual = percentile(&sorted, 98);
    (least >= 0.0 && usual > 0.0 && most > 2.5 * usual).then_some((usual * 1.3, most))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::{results, study};

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
    fn long_series_are_averaged_over_neighbours() {
        let long: Vec<(f64, f64)> = (0..1001).map(|i| (f64::from(i), f64::from(i % 3))).collect();
        let drawn = thinned(&long);
        assert_eq!((drawn.len(), drawn[0]), (334, (1.0, 1.0)));
        assert_eq!(thinned(&long[..500]), long[..500]);
    }
}
