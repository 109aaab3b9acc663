//! Figures of boxes and bars by case.

use bandmaster_core::report::metric::label;
use bandmaster_core::report::summary::{Estimate, SummaryRow};
use bandmaster_core::scenario::{Figure, FigureCases};

use super::{DataTable, Drawing, Source, is_index, point, trials_note};
use crate::report::axis::{Axis, Positions};
use crate::report::number;
use crate::report::plot::{BoxPlot, Curve, LegendEntry, Look, Panel, Plot, Point, Shape, Slot};

impl Source<'_> {
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
    pub(super) fn boxes(&self, figure: &Figure, y: &str, cases: &FigureCases) -> Drawing {
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
    pub(super) fn bars(&self, figure: &Figure, metrics: &[String], cases: &FigureCases) -> Drawing {
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
}

/// What has one look among boxes, and its cases by position.
type Placed = (LegendEntry, Vec<(f64, usize)>);
