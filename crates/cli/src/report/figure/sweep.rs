//! Figures of a metric over a sweep.

use bandmaster_core::report::metric::label;
use bandmaster_core::report::summary::Estimate;
use bandmaster_core::scenario::{Figure, Sweep};

use super::{
    DataTable, Drawing, Source, is_index, point, reference_points, references, trials_note, without_unit,
};
use crate::report::axis::{Axis, Positions};
use crate::report::number;
use crate::report::plot::{Curve, LegendEntry, Look, Panel, Plot, Point, Shape};

impl Source<'_> {
    /// A metric over a sweep; over one key of a grid, with a curve for each combination of the others' values.
    pub(super) fn sweep(
        &self,
        figure: &Figure,
        (sweep, x): (&str, Option<&str>),
        y: &str,
        log_x: bool,
    ) -> Drawing {
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
            note.push_str(" Grey: values from another source, with their intervals.");
        }
        note += &self.survivors(y, &drawn);
        Drawing { plot, note, data: sweep_table(title, values, y, &columns, figure) }
    }
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
