//! Figures of slowdown by size.

use std::io;

use bandmaster_core::report::flow::FlowRecord;
use bandmaster_core::report::quantile::percentile;
use bandmaster_core::scenario::{Figure, FigureCases};

use super::{DataTable, Drawing, Source, flows_note, trials_note};
use crate::report::axis::Axis;
use crate::report::number;
use crate::report::plot::{Curve, LegendEntry, Look, Panel, Plot, Point, Shape};

impl Source<'_> {
    /// Median and 99th percentile of the slowdown by flow size.
    pub(super) fn slowdown(
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
        let mut note = "Completion time divided by that in an empty network. Every bin has the same number of flows, all curves together.".to_owned();
        if is_small {
            note.push_str(" With fewer than 100 flows in a bin, the 99th percentile is the largest value.");
        }
        note += &trials_note(trials, |most| format!(" Over {most} trials."));
        note += &flows_note(counts.into_iter());
        Ok(Drawing { plot, note, data })
    }
}
