//! Draws plots as SVG.
//!
//! Colours stand in presentation attributes, which any style sheet overrules: a figure alone is for white paper, and
//! inside the report it follows the page's colours. The palette is that of Okabe and Ito without its yellow.

use maud::html;

use super::plot::{Curve, LegendEntry, Look, Panel, Plot, Point, Shape};

const WIDTH: f64 = 800.0;
const INK: &str = "#1a1a1a";
const FONT: &str = "Helvetica, Arial, 'Liberation Sans', sans-serif";
const PALETTE: [&str; 7] = [INK, "#0072B2", "#D55E00", "#009E73", "#E69F00", "#CC79A7", "#56B4E9"];
const DASHES: [&str; 7] = ["", "9 3", "3 3", "9 3 2 3", "15 4", "9 3 2 3 2 3", "5 2"];
const LEVEL_DASHES: &str = "7 5";
const REFERENCE_DASHES: &str = "1.5 3.5";
const REFERENCE_INK: &str = "#6b6b6b";

const TICK_SIZE: f64 = 12.0;
const LABEL_SIZE: f64 = 13.0;
const LEGEND_SIZE: f64 = 12.5;
const LEGEND_LINE: f64 = 20.0;
const LEGEND_SAMPLE: f64 = 38.0;
const PANELS_IN_ROW: usize = 3;

/// A complete file with white ground.
pub(crate) fn document(plot: &Plot, id: &str) -> String {
    format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{}", draw(plot, id, true))
}

/// An element for an HTML page. Classes: `figure` of the root, `k0` to `k6` and `reference` of curves, `ground` of
/// what has the colour of the paper.
pub(crate) fn inline(plot: &Plot, id: &str) -> String {
    draw(plot, id, false)
}

/// A rectangle of the drawing in which a panel's values stand.
#[derive(Clone, Copy)]
struct Frame {
    left: f64,
    top: f64,
    width: f64,
    height: f64,
}

fn draw(plot: &Plot, id: &str, alone: bool) -> String {
    let tick_width = plot.y.ticks.iter().map(|tick| text_width(&tick.label, TICK_SIZE)).fold(0.0, f64::max);
    let left = 8.0 + LABEL_SIZE + 10.0 + tick_width + 9.0;
    let right = 14.0;
    let columns = match plot.panels.len() {
        // Two rows of two, not three and one.
        4 => 2,
        panels => panels.clamp(1, PANELS_IN_ROW),
    };
    let gap = 22.0;
    let width = (WIDTH - left - right - gap * (columns - 1) as f64) / columns as f64;
    let height = if columns == 1 { 300.0 } else { 210.0 };
    let title = if plot.panels.iter().any(|panel| !panel.title.is_empty()) { 24.0 } else { 0.0 };
    let row_height = 10.0 + title + height + 30.0;
    let rows = plot.panels.len().div_ceil(columns).max(1);
    let axis_label = rows as f64 * row_height + 14.0;
    let legend_top = axis_label + 18.0;
    let legend = Legend::arrange(&plot.legend);
    let total = if plot.legend.is_empty() { legend_top - 6.0 } else { legend_top + legend.height() + 8.0 };

    let mut out = String::new();
    let size = if alone { format!(" width=\"{WIDTH}\" height=\"{}\"", Px(total)) } else { String::new() };
    out += &format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\"{size} viewBox=\"0 0 {WIDTH} {}\" class=\"figure\" role=\"img\" \
         aria-labelledby=\"{id}-title\" font-family=\"{FONT}\" font-size=\"{TICK_SIZE}\" color=\"{INK}\" \
         fill=\"currentColor\" stroke=\"none\">\n<title id=\"{id}-title\">{}</title>\n",
        Px(total),
        escaped(&plot.description)
    );
    if alone {
        out += &format!("<rect width=\"{WIDTH}\" height=\"{}\" fill=\"#fff\"/>\n", Px(total));
    }
    for (index, panel) in plot.panels.iter().enumerate() {
        let (row, column) = (index / columns, index % columns);
        let frame = Frame {
            left: left + column as f64 * (width + gap),
            top: row as f64 * row_height + 10.0 + title,
            width,
            height,
        };
        draw_panel(&mut out, plot, panel, frame, column == 0);
    }
    let middle = rows as f64 * row_height / 2.0;
    out += &format!(
        "<text transform=\"translate({} {}) rotate(-90)\" text-anchor=\"middle\" font-size=\"{}\">{}</text>\n",
        Px(8.0 + LABEL_SIZE * 0.8),
        Px(middle - 10.0 + title / 2.0),
        fitting(&plot.y.label, LABEL_SIZE, rows as f64 * row_height - 8.0),
        escaped(&plot.y.label)
    );
    let center = left + (WIDTH - right - left) / 2.0;
    text(&mut out, center, axis_label, "middle", LABEL_SIZE, &plot.x.label);
    legend.draw(&mut out, legend_top);
    out.push_str("</svg>\n");
    out
}

fn draw_panel(out: &mut String, plot: &Plot, panel: &Panel, frame: Frame, labelled: bool) {
    let Frame { left, top, width, height } = frame;
    let (right, bottom) = (left + width, top + height);
    let x = |value: f64| left + plot.x.share(value) * width;
    let y = |value: f64| bottom - plot.y.share(value) * height;
    if !panel.title.is_empty() {
        *out += &format!(
            "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\" font-size=\"{LABEL_SIZE}\" \
             font-weight=\"bold\">{}</text>\n",
            Px(left + width / 2.0),
            Px(top - 8.0),
            escaped(&panel.title)
        );
    }
    out.push_str("<g stroke=\"currentColor\" stroke-opacity=\"0.14\">");
    for tick in &plot.y.ticks {
        *out += &format!("<path d=\"M{} {}H{}\"/>", Px(left), Px(y(tick.at)), Px(right));
    }
    out.push_str("</g>\n<g stroke=\"currentColor\" fill=\"none\">");
    *out += &format!("<path d=\"M{} {}V{}H{}\"/>", Px(left), Px(top), Px(bottom), Px(right));
    for tick in &plot.y.ticks {
        *out += &format!("<path d=\"M{} {}h-5\"/>", Px(left), Px(y(tick.at)));
    }
    for tick in &plot.x.ticks {
        *out += &format!("<path d=\"M{} {}v5\"/>", Px(x(tick.at)), Px(bottom));
    }
    out.push_str("</g>\n");
    if labelled {
        for tick in &plot.y.ticks {
            text(out, left - 9.0, y(tick.at) + TICK_SIZE * 0.35, "end", TICK_SIZE, &tick.label);
        }
    }
    let mut free = f64::NEG_INFINITY;
    for tick in &plot.x.ticks {
        let half = text_width(&tick.label, TICK_SIZE) / 2.0;
        let center = x(tick.at);
        if center - half >= free {
            text(out, center, bottom + 20.0, "middle", TICK_SIZE, &tick.label);
            free = center + half + 6.0;
        }
    }

    // Points at the same position would hide each other's interval bars: they stand a little apart.
    let side_by_side = panel.curves.iter().filter(|curve| matches!(curve.shape, Shape::Points(_))).count();
    let step = side_step(panel, side_by_side, &x);
    let mut position = 0_u32;
    for curve in &panel.curves {
        let shift = match curve.shape {
            Shape::Points(_) => {
                position += 1;
                (f64::from(position) - (side_by_side + 1) as f64 / 2.0) * step
            }
            Shape::Line(_) | Shape::Level(_) => 0.0,
        };
        draw_curve(out, curve, frame, &|value| x(value) + shift, &y);
    }
}

/// Distance between neighbours at the same position, so that all together stay well within their own position.
fn side_step(panel: &Panel, side_by_side: usize, x: &dyn Fn(f64) -> f64) -> f64 {
    let mut at: Vec<f64> = panel
        .curves
        .iter()
        .filter_map(|curve| if let Shape::Points(points) = &curve.shape { Some(points) } else { None })
        .flatten()
        .map(|point| x(point.x))
        .collect();
    at.sort_by(f64::total_cmp);
    let apart =
        at.windows(2).map(|pair| pair[1] - pair[0]).filter(|gap| *gap > 0.5).fold(f64::INFINITY, f64::min);
    (0.4 * apart / side_by_side.max(1) as f64).min(3.0)
}

fn draw_curve(out: &mut String, curve: &Curve, frame: Frame, x: &dyn Fn(f64) -> f64, y: &dyn Fn(f64) -> f64) {
    open_look(out, curve.look);
    match &curve.shape {
        Shape::Points(points) => {
            let line: Vec<(f64, f64)> = points.iter().map(|point| (x(point.x), y(point.y))).collect();
            draw_line(out, &line, curve.look);
            for point in points {
                draw_interval(out, x(point.x), point, y);
            }
            for &(x, y) in &line {
                draw_mark(out, curve.look, x, y);
            }
        }
        Shape::Line(values) => {
            let line: Vec<(f64, f64)> = values.iter().map(|&(at, value)| (x(at), y(value))).collect();
            draw_line(out, &line, curve.look);
            // Few marks on a curve; each curve starts at another place.
            let marks = if frame.width > 400.0 { 8 } else { 5 };
            let every = (line.len() / marks).max(1);
            let first = curve.look.number() * every * 3 / 8 % every;
            for &(x, y) in line.iter().skip(first).step_by(every).filter(|(_, y)| y.is_finite()) {
                draw_mark(out, curve.look, x, y);
            }
        }
        Shape::Level(point) => {
            let right = frame.left + frame.width;
            if let Some((low, high)) = point.interval {
                let (top, height) = (y(high), (y(low) - y(high)).max(0.0));
                *out += &format!(
                    "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill-opacity=\"0.12\" stroke=\"none\"/>",
                    Px(frame.left),
                    Px(top),
                    Px(frame.width),
                    Px(height)
                );
            }
            draw_line(out, &[(frame.left, y(point.y)), (right, y(point.y))], curve.look);
        }
    }
    out.push_str("</g>\n");
}

fn open_look(out: &mut String, look: Look) {
    match look {
        Look::Curve(number) | Look::Trace(number) | Look::Level(number) => {
            let colour = number % PALETTE.len();
            *out += &format!("<g class=\"k{colour}\" color=\"{}\" stroke=\"currentColor\">", PALETTE[colour]);
        }
        Look::Reference(_) | Look::Beside => {
            *out += &format!("<g class=\"reference\" color=\"{REFERENCE_INK}\" stroke=\"currentColor\">");
        }
    }
}

fn draw_line(out: &mut String, line: &[(f64, f64)], look: Look) {
    let (dashes, width) = match look {
        // Beyond the palette, colours come again with the next dashes.
        Look::Curve(number) => (DASHES[(number + number / DASHES.len()) % DASHES.len()], 1.8),
        // Solid while colours last.
        Look::Trace(number) => (DASHES[number / PALETTE.len() % DASHES.len()], 1.4),
        Look::Level(_) => (LEVEL_DASHES, 1.8),
        Look::Reference(_) => (REFERENCE_DASHES, 1.6),
        Look::Beside => ("", 3.2),
    };
    let mut path = String::new();
    let mut pen_down = false;
    for &(x, y) in line {
        if y.is_finite() {
            path += &format!("{}{} {}", if pen_down { 'L' } else { 'M' }, Px(x), Px(y));
        }
        pen_down = y.is_finite();
    }
    if path.is_empty() {
        return;
    }
    let dashes = if dashes.is_empty() { String::new() } else { format!(" stroke-dasharray=\"{dashes}\"") };
    *out += &format!(
        "<path d=\"{path}\" fill=\"none\" stroke-width=\"{width}\" stroke-linejoin=\"round\"{dashes}/>"
    );
}

fn draw_interval(out: &mut String, x: f64, point: &Point, y: &dyn Fn(f64) -> f64) {
    let Some((low, high)) = point.interval else { return };
    let (top, bottom) = (y(high), y(low));
    *out += &format!(
        "<path d=\"M{} {}h6m-3 0V{}m-3 0h6\" fill=\"none\" stroke-width=\"1.1\"/>",
        Px(x - 3.0),
        Px(top),
        Px(bottom)
    );
}

fn draw_mark(out: &mut String, look: Look, x: f64, y: f64) {
    let (number, open) = match look {
        Look::Curve(number) | Look::Trace(number) => (number + number / PALETTE.len(), false),
        Look::Reference(number) => (number + 3, true),
        Look::Level(_) | Look::Beside => return,
    };
    // Filled marks have a rim, and open ones a filling, in the colour of the paper.
    let paint = if open {
        "class=\"ground\" fill=\"#fff\" stroke-width=\"1.4\""
    } else {
        "class=\"rim\" stroke=\"#fff\" stroke-width=\"0.8\""
    };
    let outline: &[(f64, f64)] = match number % 7 {
        0 => {
            *out += &format!("<circle cx=\"{}\" cy=\"{}\" r=\"3.7\" {paint}/>", Px(x), Px(y));
            return;
        }
        1 => &[(-3.4, -3.4), (3.4, -3.4), (3.4, 3.4), (-3.4, 3.4)],
        2 => &[(0.0, -4.6), (4.4, 3.2), (-4.4, 3.2)],
        3 => &[(0.0, -5.0), (4.4, 0.0), (0.0, 5.0), (-4.4, 0.0)],
        4 => &[(0.0, 4.6), (4.4, -3.2), (-4.4, -3.2)],
        5 => &[
            (-1.5, -4.6),
            (1.5, -4.6),
            (1.5, -1.5),
            (4.6, -1.5),
            (4.6, 1.5),
            (1.5, 1.5),
            (1.5, 4.6),
            (-1.5, 4.6),
            (-1.5, 1.5),
            (-4.6, 1.5),
            (-4.6, -1.5),
            (-1.5, -1.5),
        ],
        _ => &[(0.0, -4.8), (4.6, -1.5), (2.8, 3.9), (-2.8, 3.9), (-4.6, -1.5)],
    };
    let mut path = String::new();
    for (index, (dx, dy)) in outline.iter().enumerate() {
        path += &format!("{}{} {}", if index == 0 { 'M' } else { 'L' }, Px(x + dx), Px(y + dy));
    }
    *out += &format!("<path d=\"{path}z\" {paint}/>");
}

/// Entries under the panels: in one centred row where they fit, otherwise in columns.
struct Legend<'a> {
    entries: &'a [LegendEntry],
    rows: usize,
    /// Left end and width of each column.
    columns: Vec<(f64, f64)>,
}

impl<'a> Legend<'a> {
    fn arrange(entries: &'a [LegendEntry]) -> Self {
        const GAP: f64 = 24.0;
        let room = WIDTH - 24.0;
        let width = |entry: &LegendEntry| LEGEND_SAMPLE + 8.0 + text_width(&entry.label, LEGEND_SIZE);
        let widths: Vec<f64> = entries.iter().map(|entry| width(entry).min(room)).collect();
        let total = |widths: &[f64]| widths.iter().sum::<f64>() + GAP * widths.len().saturating_sub(1) as f64;
        let columns = |rows: usize| -> Vec<f64> {
            widths.chunks(rows).map(|column| column.iter().copied().fold(0.0, f64::max)).collect()
        };
        let rows = (1..=entries.len()).find(|rows| total(&columns(*rows)) <= room).unwrap_or(1);
        let widths = columns(rows);
        let mut left = (WIDTH - total(&widths)) / 2.0;
        let column = |width: &f64| {
            let column = (left, *width);
            left += width + GAP;
            column
        };
        Self { entries, rows, columns: widths.iter().map(column).collect() }
    }

    fn height(&self) -> f64 {
        if self.entries.is_empty() { 0.0 } else { self.rows as f64 * LEGEND_LINE }
    }

    fn draw(&self, out: &mut String, top: f64) {
        for (index, entry) in self.entries.iter().enumerate() {
            let (column, row) = (index / self.rows, index % self.rows);
            let (x, width) = self.columns[column];
            let y = top + (row as f64 + 0.5) * LEGEND_LINE;
            open_look(out, entry.look);
            draw_line(out, &[(x, y), (x + LEGEND_SAMPLE, y)], entry.look);
            draw_mark(out, entry.look, x + LEGEND_SAMPLE / 2.0, y);
            out.push_str("</g>\n");
            let label = shortened(&entry.label, LEGEND_SIZE, width - LEGEND_SAMPLE - 8.0);
            text(out, x + LEGEND_SAMPLE + 8.0, y + LEGEND_SIZE * 0.35, "start", LEGEND_SIZE, &label);
        }
    }
}

impl Look {
    const fn number(self) -> usize {
        match self {
            Self::Curve(number) | Self::Trace(number) | Self::Level(number) | Self::Reference(number) => {
                number
            }
            Self::Beside => 0,
        }
    }
}

/// A coordinate with two decimals at most.
struct Px(f64);

impl core::fmt::Display for Px {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let rounded = (self.0 * 100.0).round() / 100.0;
        write!(f, "{}", if rounded == 0.0 { 0.0 } else { rounded })
    }
}

fn text(out: &mut String, x: f64, y: f64, anchor: &str, size: f64, content: &str) {
    *out += &format!(
        "<text x=\"{}\" y=\"{}\" text-anchor=\"{anchor}\" font-size=\"{}\">{}</text>\n",
        Px(x),
        Px(y),
        Px(size),
        escaped(content)
    );
}

/// A font size at which `content` is no wider than `room`.
fn fitting(content: &str, size: f64, room: f64) -> f64 {
    (size * (room / text_width(content, size)).min(1.0)).max(5.0)
}

/// `content`, or as much of its start as is no wider than `room`.
fn shortened(content: &str, size: f64, room: f64) -> String {
    // The tolerance is for a room that was measured by the same text.
    if text_width(content, size) <= room + 0.01 {
        return content.to_owned();
    }
    let mut start = content.to_owned();
    while start.pop().is_some() && text_width(&start, size) + size > room {}
    format!("{start}…")
}

/// Width of a text in a wide sans-serif face (the widths of DejaVu Sans; Helvetica is narrower).
fn text_width(content: &str, size: f64) -> f64 {
    let em = |c: char| match c {
        'i' | 'j' | 'l' | 'I' | '.' | ',' | ':' | ';' | '\'' | '’' | '|' | '!' => 0.32,
        'f' | 'r' | 't' | ' ' | '(' | ')' | '[' | ']' | '/' | '-' => 0.4,
        '\u{2009}' => 0.2,
        'm' | 'w' | 'M' | 'W' | '%' | '→' | '–' | '±' | '−' => 0.95,
        c if c.is_ascii_uppercase() => 0.72,
        c if c.is_ascii() => 0.63,
        c if (c as u32) < 0x0500 => 0.65,
        _ => 1.0,
    };
    content.chars().map(em).sum::<f64>() * size
}

fn escaped(content: &str) -> String {
    html! { (content) }.into_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::axis::Axis;
    use crate::report::figure::draw_all;
    use crate::report::tests::{results, study};

    fn plot(curves: Vec<Curve>, legend: &[&str]) -> Plot {
        let panels = vec![Panel { title: String::new(), curves }];
        let entry = |(number, label): (usize, &&str)| LegendEntry {
            label: (*label).to_owned(),
            look: Look::Curve(number),
        };
        Plot {
            description: "a < b".to_owned(),
            x: Axis::linear("x".to_owned(), 0.0, 1.0),
            y: Axis::vertical("y".to_owned(), Plot::heights(&panels), false),
            panels,
            legend: legend.iter().enumerate().map(entry).collect(),
        }
    }

    fn line(values: &[(f64, f64)]) -> Curve {
        Curve { look: Look::Trace(0), shape: Shape::Line(values.to_vec()) }
    }

    /// Left and right end of every text, by the estimate of its width.
    fn text_ends(drawing: &str) -> Vec<(f64, f64)> {
        let attribute = |element: &str, name: &str| {
            let rest = element.split_once(&format!("{name}=\""))?.1;
            Some(rest.split_once('"')?.0.to_owned())
        };
        let ends = |element: &str| {
            let (head, rest) = element.split_once('>')?;
            let width = text_width(rest.split_once('<')?.0, attribute(head, "font-size")?.parse().ok()?);
            let x: f64 = attribute(head, " x")?.parse().ok()?;
            match attribute(head, "text-anchor")?.as_str() {
                "start" => Some((x, x + width)),
                "middle" => Some((x - width / 2.0, x + width / 2.0)),
                _ => Some((x - width, x)),
            }
        };
        drawing.split("<text").skip(1).filter_map(ends).collect()
    }

    #[test]
    fn drawings_are_finite_and_no_text_is_clipped() {
        let study = study();
        let results = [results(&study)];
        for figure in draw_all(&results) {
            let drawing = document(figure.plot.as_ref().unwrap(), &figure.id);
            assert!(!drawing.contains("NaN") && !drawing.contains("inf\""), "{}", figure.id);
            let ends = text_ends(&drawing);
            assert!(ends.len() > 10);
            assert!(
                ends.iter().all(|(left, right)| *left >= 0.0 && *right <= WIDTH),
                "{}: {ends:?}",
                figure.id
            );
        }
    }

    #[test]
    fn what_is_undefined_breaks_the_line() {
        let drawing =
            inline(&plot(vec![line(&[(0.0, 1.0), (0.5, f64::NAN), (0.8, 2.0), (1.0, 3.0)])], &[]), "f");
        let path = drawing.split("<path d=\"M").find(|path| path.contains("stroke-linejoin")).unwrap();
        assert_eq!((path.matches('M').count(), path.matches('L').count()), (1, 1), "{path}");
        assert!(!inline(&plot(vec![line(&[(0.0, f64::NAN)])], &[]), "f").contains("stroke-linejoin"));
    }

    #[test]
    fn only_a_drawing_for_itself_has_a_ground_and_a_size() {
        let plot = plot(vec![line(&[(0.0, 1.0), (1.0, 2.0)])], &["one"]);
        let (alone, inside) = (document(&plot, "f"), inline(&plot, "f"));
        assert!(alone.contains("fill=\"#fff\"/>") && alone.contains("width=\"800\""));
        assert!(!inside.contains("<rect") && !inside.contains("<?xml") && inside.starts_with("<svg "));
        assert!(inside.contains("<title id=\"f-title\">a &lt; b</title>"));
    }

    #[test]
    fn legends_take_the_fewest_rows_that_fit() {
        let arranged = |labels: &[&str]| {
            let plot = plot(Vec::new(), labels);
            let legend = Legend::arrange(&plot.legend);
            (legend.rows, legend.columns.len())
        };
        let long = "x".repeat(60);
        assert_eq!(arranged(&["one", "two", "three"]), (1, 3));
        assert_eq!(arranged(&["a", "b", "c", "d", "e", "f", &long]), (2, 4));
        assert_eq!(arranged(&[&long, &long]), (2, 1));
        let huge = "x".repeat(500);
        assert_eq!(arranged(&[&huge]), (1, 1));
        let drawing = inline(&plot(Vec::new(), &[&huge]), "f");
        assert!(drawing.contains("xxx…</text>"));
        assert!(text_ends(&drawing).iter().all(|(_, right)| *right <= WIDTH));
    }

    #[test]
    fn neighbours_at_one_position_stand_apart() {
        let point = |y: f64| Point { x: 0.5, y, interval: Some((y - 1.0, y + 1.0)) };
        let curve =
            |number: usize| Curve { look: Look::Curve(number), shape: Shape::Points(vec![point(2.0)]) };
        let drawing = inline(&plot((0..3).map(|_| curve(0)).collect(), &[]), "f");
        let mut centers: Vec<&str> =
            drawing.split("<circle cx=\"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
        centers.dedup();
        assert_eq!(centers.len(), 3, "{centers:?}");
    }
}
