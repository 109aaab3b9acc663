//! A plot before it is drawn: panels that share their axes, curves and a legend.

use super::axis::Axis;

/// Panels side by side under one legend.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Plot {
    /// What it shows, for people who cannot see it.
    pub(crate) description: String,
    /// Horizontal axis of every panel.
    pub(crate) x: Axis,
    /// Vertical axis of every panel.
    pub(crate) y: Axis,
    /// At least one.
    pub(crate) panels: Vec<Panel>,
    /// One entry for each look that occurs.
    pub(crate) legend: Vec<LegendEntry>,
    /// Curves leave the frame, and are cut at it.
    pub(crate) cut: bool,
}

/// One pair of axes.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Panel {
    /// Above the panel; empty for none.
    pub(crate) title: String,
    /// Drawn in this order.
    pub(crate) curves: Vec<Curve>,
}

/// What belongs together in a panel.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Curve {
    /// How it looks.
    pub(crate) look: Look,
    /// What is drawn.
    pub(crate) shape: Shape,
}

/// The form of a curve.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Shape {
    /// Marked points with interval bars, joined by lines.
    Points(Vec<Point>),
    /// A line through many values, broken where a value is not a number, with few marks.
    Line(Vec<(f64, f64)>),
    /// One value across the panel, with its interval as a band.
    Level(Point),
    /// Bars from zero at whole positions, which several curves share.
    Bars(Slot, Vec<Point>),
    /// Boxes at whole positions, which several curves share.
    Boxes(Slot, Vec<BoxPlot>),
    /// Coloured cells around whole positions.
    Cells(Vec<HeatCell>),
}

/// Which of the places at a position is a curve's.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Slot {
    /// From 0.
    pub(crate) number: usize,
    /// How many there are.
    pub(crate) of: usize,
}

/// Values of trials as a box.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct BoxPlot {
    /// Position.
    pub(crate) x: f64,
    /// Least value, first quartile, median, third quartile, largest value.
    pub(crate) marks: [f64; 5],
}

/// A cell of a heatmap.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct HeatCell {
    /// Position.
    pub(crate) at: (f64, f64),
    /// From the palest colour, 0, to the strongest, 1.
    pub(crate) strength: f64,
    /// The value.
    pub(crate) text: String,
}

/// A value with its interval.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Point {
    /// Position; ignored for a level.
    pub(crate) x: f64,
    /// Value.
    pub(crate) y: f64,
    /// Ends of the interval, when there is one.
    pub(crate) interval: Option<(f64, f64)>,
}

/// An entry of the legend.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct LegendEntry {
    /// Text.
    pub(crate) label: String,
    /// Sample.
    pub(crate) look: Look,
}

/// Colour, dashes and mark of a curve.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Look {
    /// A curve of ours, by number: colour, dashes and mark go together.
    Curve(usize),
    /// As a curve, but solid while colours last: dashes make noise hard to read.
    Trace(usize),
    /// As a curve, but without marks and always dashed: a level.
    Level(usize),
    /// What curves are measured against: a broad grey line without marks.
    Beside,
    /// A curve from elsewhere, by number: grey with open marks.
    Reference(usize),
    /// An area of a curve's colour.
    Area(usize),
}

impl Shape {
    /// Where its values stand on the horizontal axis.
    pub(crate) fn positions(&self) -> Vec<f64> {
        match self {
            Self::Line(values) => values.iter().map(|(x, _)| *x).collect(),
            Self::Points(points) | Self::Bars(_, points) => points.iter().map(|point| point.x).collect(),
            Self::Boxes(_, boxes) => boxes.iter().map(|of| of.x).collect(),
            Self::Level(_) | Self::Cells(_) => Vec::new(),
        }
    }
}

impl Plot {
    /// Every value that the vertical axis must hold.
    pub(crate) fn heights(panels: &[Panel]) -> Vec<f64> {
        let with_interval = |point: &Point| {
            let (low, high) = point.interval.unwrap_or((point.y, point.y));
            [point.y, low, high]
        };
        let of_curve = |curve: &Curve| -> Vec<f64> {
            match &curve.shape {
                Shape::Points(points) => points.iter().flat_map(with_interval).collect(),
                Shape::Line(values) => values.iter().map(|(_, y)| *y).collect(),
                Shape::Level(point) => with_interval(point).to_vec(),
                Shape::Bars(_, bars) => bars.iter().flat_map(with_interval).chain([0.0]).collect(),
                Shape::Boxes(_, boxes) => boxes.iter().flat_map(|of| of.marks).collect(),
                Shape::Cells(_) => Vec::new(),
            }
        };
        panels.iter().flat_map(|panel| &panel.curves).flat_map(of_curve).filter(|y| y.is_finite()).collect()
    }
}
