//! Draws plots as SVG.
//!
//! Colours stand in presentation attributes, which any style sheet overrules: a figure alone is for white paper, and
//! inside the report it follows the page's colours. The palette is that of Okabe and Ito without its yellow.

use maud::html;

use super::axis::{Axis, Tick};
use super::plot::{BoxPlot, Curve, HeatCell, LegendEntry, Look, Panel, Plot, Point, Shape, Slot};

const INK: &str = "#1a1a1a";
const FONT: &str = "Helvetica, Arial, 'Liberation Sans', sans-serif";
const PALETTE: [&str; 7] = [INK, "#0072B2", "#D55E00", "#009E73", "#E69F00", "#CC79A7", "#56B4E9"];
const DASHES: [&str; 7] = ["", "9 3", "3 3", "9 3 2 3", "15 4", "9 3 2 3 2 3", "5 2"];
const LEVEL_DASHES: &str = "7 5";
const REFERENCE_DASHES: &str = "1.5 3.5";
const REFERENCE_INK: &str = "#6b6b6b";

/// Sizes of a drawing, in its units.
#[derive(Clone, Copy)]
struct Style {
    width: f64,
    tick: f64,
    label: f64,
    legend: f64,
    legend_line: f64,
    legend_sample: f64,
    panels_in_row: usize,
    /// Height of one panel alone in its row, and of one among others.
    heights: [f64; 2],
}

/// For a page: 800 units wide.
const PAGE: Style = Style {
    width: 800.0,
    tick: 12.0,
    label: 13.0,
    legend: 12.5,
    legend_line: 20.0,
    legend_sample: 38.0,
    panels_in_row: 3,
    heights: [300.0, 210.0],
};

/// For a column of a paper: 8.5 cm wide, all text of 8 pt. A unit is a CSS pixel, 0.75 pt.
const COLUMN: Style = Style {
    width: 8.5 / 2.54 * 96.0,
    tick: 8.0 / 0.75,
    label: 8.0 / 0.75,
    legend: 8.0 / 0.75,
    legend_line: 15.0,
    legend_sample: 26.0,
    panels_in_row: 1,
    heights: [170.0, 170.0],
};

/// A complete file with white ground.
pub(crate) fn document(plot: &Plot, id: &str) -> String {
    format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{}", draw(plot, id, &PAGE, true))
}

/// The same for a column of a paper, 8.5 cm wide, with text of 8 pt.
pub(crate) fn column(plot: &Plot, id: &str) -> String {
    format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{}", draw(plot, id, &COLUMN, true))
}

/// An element for an HTML page. Classes: `figure` of the root, `k0` to `k6` and `reference` of curves, `ground` of
/// what has the colour of the paper.
pub(crate) fn inline(plot: &Plot, id: &str) -> String {
    draw(plot, id, &PAGE, false)
}

/// The same for a narrow screen, as wide as a column of a paper.
pub(crate) fn inline_column(plot: &Plot, id: &str) -> String {
    draw(plot, id, &COLUMN, false)
}

/// A rectangle of the drawing in which a panel's values stand.
#[derive(Clone, Copy)]
struct Frame {
    left: f64,
    top: f64,
    width: f64,
    height: f64,
}

fn draw(plot: &Plot, id: &str, style: &Style, alone: bool) -> String {
    let tick_width = plot.y.ticks.iter().map(|tick| text_width(&tick.label, style.tick)).fold(0.0, f64::max);
    let columns = match plot.panels.len() {
        // Two rows of two, not three and one.
        4 if style.panels_in_row > 1 => 2,
        panels => panels.clamp(1, style.panels_in_row),
    };
    let rows = plot.panels.len().div_ceil(columns).max(1);
    let height = style.heights[usize::from(columns > 1)];
    let gap = 26.0;
    let right = style.tick * 1.2;
    let title =
        if plot.panels.iter().any(|panel| !panel.title.is_empty()) { style.label * 1.85 } else { 0.0 };
    let air = style.tick * 0.8;
    // Words take as many lines as they need in about the width of a panel.
    let room = (style.width - right - tick_width - style.label * 3.0) / columns as f64 - gap;
    let more = if plot.x.has_words() {
        let lines = word_ticks(&plot.x, style, room).iter().map(Vec::len).max().unwrap_or(1);
        lines.saturating_sub(1) as f64 * style.tick * 1.15
    } else {
        0.0
    };
    let row_height = air + title + height + style.tick * 2.5 + more;
    let label_line = style.label * 1.2;
    let y_label = wrapped(&plot.y.label, style.label, rows as f64 * row_height - 8.0);
    let left = style.label * 0.6 + y_label.len() as f64 * label_line + 6.0 + tick_width + style.tick * 0.75;
    let width = (style.width - left - right - gap * (columns - 1) as f64) / columns as f64;
    let x_label = if plot.x.label.is_empty() {
        Vec::new()
    } else {
        wrapped(&plot.x.label, style.label, style.width - 8.0)
    };
    let axis_label = rows as f64 * row_height + style.label * 1.08;
    let below = axis_label + (x_label.len() as f64 - 1.0) * label_line;
    let legend_top = below + style.label * 0.7 + style.legend_line * 0.45;
    let legend = Legend::arrange(&plot.legend, style);
    let total = if plot.legend.is_empty() { below + 12.0 } else { legend_top + legend.height() + 8.0 };

    let mut out = String::new();
    let all = Px(style.width);
    let size = if alone { format!(" width=\"{all}\" height=\"{}\"", Px(total)) } else { String::new() };
    out += &format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\"{} viewBox=\"0 0 {all} {}\" class=\"figure\" role=\"img\" \
         aria-labelledby=\"{id}-title\" font-family=\"{FONT}\" font-size=\"{}\" color=\"{INK}\" \
         fill=\"currentColor\" stroke=\"none\">\n<title id=\"{id}-title\">{}</title>\n",
        size,
        Px(total),
        Px(style.tick),
        escaped(&plot.description)
    );
    if alone {
        out += &format!("<rect width=\"{all}\" height=\"{}\" fill=\"#fff\"/>\n", Px(total));
    }
    for (index, panel) in plot.panels.iter().enumerate() {
        let (row, column) = (index / columns, index % columns);
        let frame = Frame {
            left: left + column as f64 * (width + gap),
            top: row as f64 * row_height + air + title,
            width,
            height,
        };
        let clip = plot.cut.then(|| format!("{id}-frame-{index}"));
        draw_panel(&mut out, plot, panel, (frame, style), column == 0, clip.as_deref());
    }
    let middle = rows as f64 * row_height / 2.0 - style.tick * 0.8 + title / 2.0;
    for (line, label) in y_label.iter().enumerate() {
        out += &format!(
            "<text transform=\"translate({} {}) rotate(-90)\" text-anchor=\"middle\" font-size=\"{}\">{}</text>\n",
            Px(style.label * 1.4 + line as f64 * label_line),
            Px(middle),
            fitting(label, style.label, rows as f64 * row_height - 8.0),
            escaped(label)
        );
    }
    // A label that is wider than the panels is moved into the drawing.
    let center = left + (style.width - right - left) / 2.0;
    for (line, label) in x_label.iter().enumerate() {
        let half = text_width(label, style.label) / 2.0;
        let center = center.min(style.width - 4.0 - half).max(4.0 + half);
        text(&mut out, center, axis_label + line as f64 * label_line, "middle", style.label, label);
    }
    legend.draw(&mut out, legend_top, style);
    out.push_str("</svg>\n");
    out
}

fn draw_panel(
    out: &mut String,
    plot: &Plot,
    panel: &Panel,
    (frame, style): (Frame, &Style),
    labelled: bool,
    clip: Option<&str>,
) {
    let Frame { left, top, width, height } = frame;
    let (right, bottom) = (left + width, top + height);
    let x = |value: f64| left + plot.x.share(value) * width;
    let y = |value: f64| bottom - plot.y.share(value) * height;
    if !panel.title.is_empty() {
        *out += &format!(
            "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\" font-size=\"{}\" \
             font-weight=\"bold\">{}</text>\n",
            Px(left + width / 2.0),
            Px(top - style.label * 0.6),
            Px(style.label),
            escaped(&shortened(&panel.title, style.label * 1.08, width))
        );
    }
    out.push_str("<g stroke=\"currentColor\" stroke-opacity=\"0.14\">");
    // Cells need no lines.
    for tick in plot.y.ticks.iter().filter(|_| !plot.y.has_words()) {
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
            text(
                out,
                left - style.tick * 0.75,
                y(tick.at) + style.tick * 0.35,
                "end",
                style.tick,
                &tick.label,
            );
        }
    }
    // Powers of ten come first where not all labels have room.
    let mut taken: Vec<(f64, f64)> = Vec::new();
    let lines = if plot.x.has_words() { word_ticks(&plot.x, style, width) } else { Vec::new() };
    for (tick, lines) in plot.x.ticks.iter().zip(&lines) {
        for (number, line) in lines.iter().enumerate() {
            let below = bottom + style.tick * (1.67 + 1.15 * number as f64);
            text(out, x(tick.at), below, "middle", style.tick, line);
        }
    }
    let mut ticks: Vec<&Tick> = plot.x.ticks.iter().filter(|_| !plot.x.has_words()).collect();
    ticks.sort_by_key(|tick| !plot.x.is_major(tick.at));
    for tick in ticks {
        let half = text_width(&tick.label, style.tick) / 2.0;
        // A label at an edge stays within the drawing.
        let center = x(tick.at).min(style.width - 2.0 - half).max(2.0 + half);
        let (from, to) = (center - half, center + half);
        let air = style.tick * 0.5;
        if taken.iter().all(|(left, right)| to + air <= *left || from >= *right + air) {
            text(out, center, bottom + style.tick * 1.67, "middle", style.tick, &tick.label);
            taken.push((from, to));
        }
    }

    if let Some(id) = clip {
        *out += &format!(
            "<clipPath id=\"{id}\"><rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/></clipPath>\n\
             <g clip-path=\"url(#{id})\">\n",
            Px(left),
            Px(top),
            Px(width),
            Px(height)
        );
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
            Shape::Line(_) | Shape::Level(_) | Shape::Bars(..) | Shape::Boxes(..) | Shape::Cells(_) => 0.0,
        };
        draw_curve(out, curve, (frame, style), &|value| x(value) + shift, &y);
    }
    if clip.is_some() {
        out.push_str("</g>\n");
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

fn draw_curve(
    out: &mut String,
    curve: &Curve,
    (frame, style): (Frame, &Style),
    x: &dyn Fn(f64) -> f64,
    y: &dyn Fn(f64) -> f64,
) {
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
                let paint = "fill-opacity=\"0.12\" stroke=\"none\"";
                *out += &rectangle(frame.left, y(high), frame.width, y(low) - y(high), paint);
            }
            draw_line(out, &[(frame.left, y(point.y)), (right, y(point.y))], curve.look);
        }
        Shape::Bars(slot, bars) => {
            for bar in bars.iter().filter(|bar| bar.y.is_finite()) {
                let (left, width) = slot_at(*slot, bar.x, x);
                let (top, bottom) = (y(bar.y.max(0.0)), y(bar.y.min(0.0)));
                *out += &rectangle(left, top, width, bottom - top, GROUND);
                *out +=
                    &rectangle(left, top, width, bottom - top, "fill-opacity=\"0.55\" stroke-width=\"1\"");
                out.push_str("<g class=\"k0\" color=\"#1a1a1a\" stroke=\"currentColor\">");
                draw_interval(out, left + width / 2.0, bar, y);
                out.push_str("</g>");
            }
        }
        Shape::Boxes(slot, boxes) => {
            for BoxPlot { x: at, marks } in boxes {
                let (left, width) = slot_at(*slot, *at, x);
                let [least, q1, median, q3, most] = marks.map(y);
                let middle = Px(left + width / 2.0);
                *out += &rectangle(left, q3, width, q1 - q3, GROUND);
                *out += &rectangle(left, q3, width, q1 - q3, "fill-opacity=\"0.3\" stroke-width=\"1.1\"");
                let cap = Px(width * 0.5);
                let half = Px(width * 0.25);
                *out += &format!(
                    "<path d=\"M{middle} {}V{}m-{half} 0h{cap}M{middle} {}V{}m-{half} 0h{cap}\" fill=\"none\" \
                     stroke-width=\"1.1\"/><path d=\"M{} {}h{}\" fill=\"none\" stroke-width=\"2.2\"/>",
                    Px(q3),
                    Px(most),
                    Px(q1),
                    Px(least),
                    Px(left),
                    Px(median),
                    Px(width)
                );
            }
        }
        Shape::Cells(cells) => {
            let (width, height) = (x(1.0) - x(0.0), y(0.0) - y(1.0));
            for HeatCell { at, strength, text: value } in cells {
                let (middle, center) = (x(at.0), y(at.1));
                let paint = format!("fill-opacity=\"{}\" stroke=\"none\"", Px(0.06 + 0.7 * strength));
                *out += &rectangle(middle - width / 2.0, center - height / 2.0, width, height, &paint);
                out.push_str("<g class=\"k0\" color=\"#1a1a1a\" stroke=\"none\" fill=\"currentColor\">");
                let size = style.tick.min(fitting(value, style.tick, width - 2.0));
                text(out, middle, center + size * 0.35, "middle", size, value);
                out.push_str("</g>");
            }
        }
    }
    out.push_str("</g>\n");
}

/// Of an area under another one: hides the lines behind it.
const GROUND: &str = "class=\"ground\" fill=\"#fff\" stroke=\"none\"";

/// The words of an axis, each in lines that fit between its neighbours.
fn word_ticks(axis: &Axis, style: &Style, width: f64) -> Vec<Vec<String>> {
    let room = width / axis.ticks.len().max(1) as f64 - 4.0;
    let lines = |label: &String| wrapped(label, style.tick, room);
    let fit = |line: String| shortened(&line, style.tick, room);
    axis.ticks.iter().map(|tick| lines(&tick.label).into_iter().map(fit).collect()).collect()
}

/// Left end and width of a slot at the position `at`.
fn slot_at(slot: Slot, at: f64, x: &dyn Fn(f64) -> f64) -> (f64, f64) {
    // One curve does not fill its position.
    let room = (x(at + 1.0) - x(at)).min(160.0) * if slot.of == 1 { 0.5 } else { 0.76 };
    let width = room / slot.of as f64;
    (x(at) - room / 2.0 + slot.number as f64 * width + width * 0.06, width * 0.88)
}

/// A rectangle, or nothing when it has no area, as renderers draw none then.
fn rectangle(left: f64, top: f64, width: f64, height: f64, paint: &str) -> String {
    let (wide, high) = (Px(width.max(0.0)).to_string(), Px(height.max(0.0)).to_string());
    if wide == "0" || high == "0" {
        return String::new();
    }
    format!("<rect x=\"{}\" y=\"{}\" width=\"{wide}\" height=\"{high}\" {paint}/>", Px(left), Px(top))
}

/// The colour of a curve: after the palette's, those a golden angle apart, so that no two share one.
fn colour(number: usize) -> String {
    let Some(more) = number.checked_sub(PALETTE.len()) else { return PALETTE[number].to_owned() };
    let hue = (more as f64).mul_add(137.508, 330.0) % 360.0;
    let channel = |turn: f64| {
        // Saturation 0.6, lightness 0.45.
        let k = (turn + hue / 30.0) % 12.0;
        let value = 0.45 - 0.6 * 0.45 * (k - 3.0).min(9.0 - k).clamp(-1.0, 1.0);
        (value * 255.0).round() as u8
    };
    format!("#{:02X}{:02X}{:02X}", channel(0.0), channel(8.0), channel(4.0))
}

fn open_look(out: &mut String, look: Look) {
    match look {
        Look::Curve(number) | Look::Trace(number) | Look::Level(number) | Look::Area(number) => {
            let colour = colour(number);
            *out += &format!(
                "<g class=\"k{number}\" color=\"{colour}\" fill=\"currentColor\" stroke=\"currentColor\">"
            );
        }
        Look::Reference(_) | Look::Beside => {
            *out += &format!(
                "<g class=\"reference\" color=\"{REFERENCE_INK}\" fill=\"currentColor\" stroke=\"currentColor\">"
            );
        }
    }
}

fn draw_line(out: &mut String, line: &[(f64, f64)], look: Look) {
    let (dashes, width) = match look {
        Look::Curve(number) => (DASHES[(number + number / DASHES.len()) % DASHES.len()], 1.8),
        // Solid while colours last.
        Look::Trace(number) => (DASHES[number / PALETTE.len() % DASHES.len()], 1.4),
        Look::Level(_) => (LEVEL_DASHES, 1.8),
        Look::Reference(_) => (REFERENCE_DASHES, 1.6),
        Look::Beside => ("", 3.2),
        Look::Area(_) => return,
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
        Look::Level(_) | Look::Beside | Look::Area(_) => return,
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
    line: f64,
    /// Left end and width of each column.
    columns: Vec<(f64, f64)>,
}

impl<'a> Legend<'a> {
    fn arrange(entries: &'a [LegendEntry], style: &Style) -> Self {
        let gap = style.legend * 1.92;
        let room = style.width - gap;
        let beside = style.legend_sample + style.legend * 0.64;
        let width = |entry: &LegendEntry| beside + text_width(&entry.label, style.legend);
        let widths: Vec<f64> = entries.iter().map(|entry| width(entry).min(room)).collect();
        let total = |widths: &[f64]| widths.iter().sum::<f64>() + gap * widths.len().saturating_sub(1) as f64;
        let columns = |rows: usize| -> Vec<f64> {
            widths.chunks(rows).map(|column| column.iter().copied().fold(0.0, f64::max)).collect()
        };
        let rows = (1..=entries.len()).find(|rows| total(&columns(*rows)) <= room).unwrap_or(1);
        let widths = columns(rows);
        let mut left = (style.width - total(&widths)) / 2.0;
        let column = |width: &f64| {
            let column = (left, *width);
            left += width + gap;
            column
        };
        Self { entries, rows, line: style.legend_line, columns: widths.iter().map(column).collect() }
    }

    fn height(&self) -> f64 {
        if self.entries.is_empty() { 0.0 } else { self.rows as f64 * self.line }
    }

    fn draw(&self, out: &mut String, top: f64, style: &Style) {
        let (sample, beside) = (style.legend_sample, style.legend_sample + style.legend * 0.64);
        for (index, entry) in self.entries.iter().enumerate() {
            let (column, row) = (index / self.rows, index % self.rows);
            let (x, width) = self.columns[column];
            let y = top + (row as f64 + 0.5) * self.line;
            open_look(out, entry.look);
            if matches!(entry.look, Look::Area(_)) {
                let height = style.legend * 0.8;
                let paint = "fill-opacity=\"0.45\" stroke-width=\"1\"";
                *out += &rectangle(x + sample * 0.3, y - height / 2.0, sample * 0.7, height, paint);
            }
            draw_line(out, &[(x, y), (x + sample, y)], entry.look);
            draw_mark(out, entry.look, x + sample / 2.0, y);
            out.push_str("</g>\n");
            let label = shortened(&entry.label, style.legend, width - beside);
            text(out, x + beside, y + style.legend * 0.35, "start", style.legend, &label);
        }
    }
}

impl Look {
    const fn number(self) -> usize {
        match self {
            Self::Curve(number)
            | Self::Trace(number)
            | Self::Level(number)
            | Self::Reference(number)
            | Self::Area(number) => number,
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

/// `content` in as few lines of words as are no wider than `room`; a wider word has a line of its own.
fn wrapped(content: &str, size: f64, room: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in content.split(' ') {
        match lines.last_mut().filter(|line| text_width(&format!("{line} {word}"), size) <= room) {
            Some(line) => {
                line.push(' ');
                line.push_str(word);
            }
            None => lines.push(word.to_owned()),
        }
    }
    lines
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
pub(super) fn text_width(content: &str, size: f64) -> f64 {
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
            cut: false,
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
        for figure in draw_all(&results, None).unwrap() {
            let drawing = document(figure.plot.as_ref().unwrap(), &figure.id);
            assert!(!drawing.contains("NaN") && !drawing.contains("inf\""), "{}", figure.id);
            let ends = text_ends(&drawing);
            assert!(ends.len() > 10);
            assert!(
                ends.iter().all(|(left, right)| *left >= 0.0 && *right <= PAGE.width),
                "{}: {ends:?}",
                figure.id
            );
        }
    }

    /// A column of a paper is 8.5 cm wide, its text has 8 pt, and all of it is inside.
    #[test]
    fn columns_are_legible() {
        let study = study();
        let results = [results(&study)];
        for figure in draw_all(&results, None).unwrap() {
            let drawing = column(figure.plot.as_ref().unwrap(), &figure.id);
            let ends = text_ends(&drawing);
            assert!(ends.iter().all(|(left, right)| *left >= 0.0 && *right <= COLUMN.width), "{ends:?}");
            let sizes = drawing.split("font-size=\"").skip(1).map(|rest| rest.split('"').next().unwrap());
            assert!(
                sizes.clone().all(|size| size.parse::<f64>().unwrap() >= 10.66),
                "{:?}",
                sizes.collect::<Vec<_>>()
            );
        }
    }

    #[test]
    fn no_two_curves_share_a_colour() {
        let mut colours: Vec<String> = (0..30).map(colour).collect();
        assert!(colours.iter().all(|colour| colour.len() == 7), "{colours:?}");
        colours.sort();
        colours.dedup();
        assert_eq!(colours.len(), 30);
    }

    #[test]
    fn words_take_lines_instead_of_each_others_place() {
        let words =
            ["one two three four five six", "seven", "eight nine ten eleven twelve"].map(str::to_owned);
        let mut plot = plot(Vec::new(), &[]);
        plot.x = Axis::words(String::new(), &words);
        let drawing = column(&plot, "f");
        for word in words.iter().flat_map(|words| words.split(' ')) {
            assert!(drawing.contains(word), "{word}");
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
    fn what_has_no_height_is_no_rectangle() {
        let shapes = |y: f64| {
            let point = Point { x: 0.5, y, interval: Some((1.0, 1.0 + y)) };
            let slot = || Slot { number: 0, of: 1 };
            let marks = [1.0, 1.0, 1.0, 1.0 + y, 1.0 + y];
            [
                Shape::Level(point),
                Shape::Bars(slot(), vec![point]),
                Shape::Boxes(slot(), vec![BoxPlot { x: 0.0, marks }]),
            ]
            .map(|shape| Curve { look: Look::Curve(0), shape })
        };
        let rectangles = |curve: Curve| {
            let drawing = inline(&plot(vec![line(&[(0.0, 0.0), (1.0, 3.0)]), curve], &[]), "f");
            assert!(!drawing.contains("height=\"0\"") && !drawing.contains("width=\"0\""), "{drawing}");
            drawing.matches("<rect").count() - drawing.matches("<clipPath").count()
        };
        assert_eq!(shapes(0.0).map(rectangles), [0, 0, 0]);
        // Bars and boxes have a ground.
        assert_eq!(shapes(0.5).map(rectangles), [1, 2, 2]);
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
            let legend = Legend::arrange(&plot.legend, &PAGE);
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
        assert!(text_ends(&drawing).iter().all(|(_, right)| *right <= PAGE.width));
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
