//! Figures of a metric over two keys.

use bandmaster_core::report::metric::label;
use bandmaster_core::scenario::{Axis as GridAxis, Figure};

use super::{DataTable, Drawing, Source, trials_note};
use crate::report::axis::Positions;
use crate::report::number;
use crate::report::plot::{Curve, HeatCell, Look, Panel, Plot, Shape};

impl Source<'_> {
    /// A metric over both keys of a grid, a panel for each variant.
    pub(super) fn heatmap(&self, figure: &Figure, sweep: &str, z: &str) -> Drawing {
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
        note = format!("{}: a stronger colour means a larger value. {note}", label.axis());
        note += &self.survivors(z, &drawn);
        Drawing { plot, note, data }
    }
}
