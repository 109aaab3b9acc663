//! Axes: where values stand, which ticks are labelled, and how sweep values become numbers.

use bandmaster_core::units::{Dimension, parse_quantity};

use super::number::{grouped, significant};

/// One axis of a plot.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Axis {
    /// Name and unit.
    pub(crate) label: String,
    /// Labelled positions, ascending.
    pub(crate) ticks: Vec<Tick>,
    low: f64,
    high: f64,
    log: bool,
    words: bool,
}

/// A labelled position.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Tick {
    /// Where.
    pub(crate) at: f64,
    /// Text.
    pub(crate) label: String,
}

/// Values of a sweep as positions on an axis.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Positions {
    /// A position for each value.
    pub(crate) at: Vec<f64>,
    /// Axis label: the sweep's title, and the unit that positions have.
    pub(crate) label: String,
    /// Values that are no numbers stand side by side.
    words: Option<Vec<String>>,
}

impl Axis {
    /// A linear axis from `low` to `high` with round ticks.
    pub(crate) fn linear(label: String, low: f64, high: f64) -> Self {
        Self { label, ticks: round_ticks(low, high, 6), low, high, log: false, words: false }
    }

    /// A vertical axis that holds all of `values` with some air, from zero where zero is not far. Ticks of an index
    /// end at 1.
    pub(crate) fn vertical(label: String, values: impl IntoIterator<Item = f64>, index: bool) -> Self {
        let (low, high) = extent(values).unwrap_or((0.0, 1.0));
        let (low, high) =
            if low == high { (low - low.abs() * 0.1, high + high.abs() * 0.1) } else { (low, high) };
        let (low, high) = if low == high { (0.0, 1.0) } else { (low, high) };
        let from_zero = low >= 0.0 && low < 0.4 * high;
        let floor = if from_zero { 0.0 } else { low };
        let air = (high - floor) * 0.05;
        let bottom = if from_zero { 0.0 } else { floor - air };
        let mut axis = Self::linear(label, bottom, high + air);
        if index {
            axis.ticks.retain(|tick| tick.at <= 1.0 + 1e-9);
        }
        axis
    }

    /// A horizontal axis for the points of a sweep and `others` (positions of reference curves).
    pub(crate) fn across(positions: &Positions, others: impl IntoIterator<Item = f64>, log: bool) -> Self {
        let label = positions.label.clone();
        if let Some(words) = &positions.words {
            let ticks = words.iter().zip(&positions.at).map(|(word, &at)| Tick { at, label: word.clone() });
            let last = positions.at.len().saturating_sub(1) as f64;
            return Self {
                label,
                ticks: ticks.collect(),
                low: -0.5,
                high: last + 0.5,
                log: false,
                words: true,
            };
        }
        let all = positions.at.iter().copied().chain(others);
        let (low, high) = extent(all).unwrap_or((0.0, 1.0));
        let log = log && low > 0.0;
        if low == high {
            let (low, high) = if log { (low / 2.0, high * 2.0) } else { (low - 1.0, high + 1.0) };
            let ticks = vec![Tick { at: positions.at[0], label: plain(positions.at[0]) }];
            return Self { label, ticks, low, high, log, words: false };
        }
        if log {
            let air = (high / low).powf(0.04);
            let mut at = positions.at.clone();
            at.sort_by(f64::total_cmp);
            let ticks = at.into_iter().map(|at| Tick { at, label: plain(at) }).collect();
            Self { label, ticks, low: low / air, high: high * air, log, words: false }
        } else {
            let air = (high - low) * 0.04;
            Self { low: low - air, high: high + air, ..Self::linear(label, low, high) }
        }
    }

    /// A horizontal axis that holds `values`; on a logarithmic one, which has no place for zero, ticks are at powers of
    /// ten.
    pub(crate) fn over(label: String, values: impl IntoIterator<Item = f64>, log: bool) -> Self {
        let values: Vec<f64> = values.into_iter().filter(|value| !log || *value > 0.0).collect();
        let (low, high) = extent(values).unwrap_or((1.0, 10.0));
        if !log {
            let high = if high > low { high } else { low + 1.0 };
            return Self::linear(label, low.min(0.0), high + (high - low.min(0.0)) * 0.04);
        }
        let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
        let last = last.max(first + 1);
        // No further than the values, where that leaves two ticks.
        let air = (high / low).powf(0.04);
        let ticks = |low: f64, high: f64, factors: &[f64]| -> Vec<Tick> {
            let of_power = |power: i32| {
                factors.iter().map(move |factor| factor * 10_f64.powi(power)).collect::<Vec<_>>()
            };
            let at = (first..=last).flat_map(of_power).filter(|at| *at >= low && *at <= high);
            at.map(|at| Tick { at, label: plain(at) }).collect()
        };
        let (near, far) = (low / air, high * air);
        // Few powers of ten say little of what is between them.
        let mut within = ticks(near, far, &[1.0]);
        if within.len() < 4 {
            within = ticks(near, far, &[1.0, 2.0, 5.0]);
        }
        if within.len() >= 2 {
            return Self { label, ticks: within, low: near, high: far, log, words: false };
        }
        let (low, high) = (10_f64.powi(first), 10_f64.powi(last));
        Self { label, ticks: ticks(low, high * 1.001, &[1.0, 2.0, 5.0]), low, high, log, words: false }
    }

    /// Words at the positions 0, 1, 2 ...
    pub(crate) fn words(label: String, words: &[String]) -> Self {
        let ticks =
            words.iter().zip(0_u32..).map(|(word, at)| Tick { at: f64::from(at), label: word.clone() });
        let high = words.len() as f64 - 0.5;
        Self { label, ticks: ticks.collect(), low: -0.5, high, log: false, words: true }
    }

    /// True when its positions are words side by side.
    pub(crate) const fn has_words(&self) -> bool {
        self.words
    }

    /// True when the label at `value` goes before others: on a logarithmic axis, at powers of ten.
    pub(crate) fn is_major(&self, value: f64) -> bool {
        let power = value.log10();
        !self.log || (power - power.round()).abs() < 1e-9
    }

    /// Where `value` is, as a share of the axis from its start.
    pub(crate) fn share(&self, value: f64) -> f64 {
        if self.log {
            (value / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        }
    }
}

impl Positions {
    /// Positions of a sweep's values: numbers, quantities of one dimension, or else words. The unit of quantities is
    /// the one that the sweep's title ends with, as in `Interval (s)`, otherwise the first value's.
    pub(crate) fn new(title: &str, values: &[String]) -> Self {
        let numbers: Option<Vec<f64>> =
            values.iter().map(|v| v.parse().ok().filter(|x: &f64| x.is_finite())).collect();
        if let Some(at) = numbers {
            return Self { at, label: title.to_owned(), words: None };
        }
        let dimensions = [Dimension::Rate, Dimension::Span, Dimension::Bytes, Dimension::Packets];
        for dimension in dimensions {
            let amounts: Result<Vec<u64>, _> =
                values.iter().map(|value| parse_quantity(value, dimension)).collect();
            let (Ok(amounts), Some(first)) = (amounts, values.first()) else { continue };
            let titled = title.strip_suffix(')').and_then(|rest| rest.rsplit_once('(')).map(|(_, unit)| unit);
            let named =
                |text: &str| dimension.units().iter().find(|(name, _)| shown(name) == text || *name == text);
            let written = first.trim_start_matches(|c: char| c.is_ascii_digit() || "._+ ".contains(c)).trim();
            let (label, unit) = match titled.and_then(named) {
                Some(unit) => (title.to_owned(), Some(unit)),
                None => (format!("{title} ({})", shown(written)), named(written)),
            };
            let scale = unit.map_or(1.0, |(_, scale)| *scale as f64);
            return Self {
                at: amounts.iter().map(|amount| *amount as f64 / scale).collect(),
                label,
                words: None,
            };
        }
        let at = (0..values.len()).map(|index| index as f64).collect();
        Self { at, label: title.to_owned(), words: Some(values.to_vec()) }
    }
}

/// A unit of files as papers write it.
fn shown(unit: &str) -> &str {
    match unit {
        "bit" => "bit/s",
        "kbit" => "kbit/s",
        "mbit" => "Mbit/s",
        "gbit" => "Gbit/s",
        "tbit" => "Tbit/s",
        "pkt" => "packets",
        "us" => "µs",
        other => other,
    }
}

impl Positions {
    /// The values side by side, as numbers without their unit where the label has it.
    pub(crate) fn side_by_side(&self) -> Axis {
        let numbers = || self.at.iter().map(|at| plain(*at)).collect();
        Axis::words(self.label.clone(), &self.words.clone().unwrap_or_else(numbers))
    }
}

fn extent(values: impl IntoIterator<Item = f64>) -> Option<(f64, f64)> {
    let finite = values.into_iter().filter(|value| value.is_finite());
    finite.fold(None, |extent, value| match extent {
        None => Some((value, value)),
        Some((low, high)) => Some((value.min(low), value.max(high))),
    })
}

/// Some `target` ticks in [low, high] at multiples of 1, 2 or 5 times a power of ten.
fn round_ticks(low: f64, high: f64, target: u32) -> Vec<Tick> {
    let rough = (high - low) / f64::from(target);
    if !(rough > 0.0 && rough.is_finite()) {
        return Vec::new();
    }
    let exponent = rough.log10().floor();
    let power = 10_f64.powf(exponent);
    let (factor, extra) = match rough / power {
        share if share <= 1.0 => (1.0, 0.0),
        share if share <= 2.0 => (2.0, 0.0),
        share if share <= 5.0 => (5.0, 0.0),
        _ => (10.0, 1.0),
    };
    let step = factor * power;
    let places = (-(exponent + extra)).clamp(0.0, 12.0) as usize;
    let first = (low / step - 1e-9).ceil() as i64;
    let last = (high / step + 1e-9).floor() as i64;
    let tick = |index: i64| {
        let at = index as f64 * step;
        Tick { at, label: grouped(&format!("{:.places$}", if index == 0 { 0.0 } else { at })) }
    };
    (first..=last).map(tick).collect()
}

fn plain(value: f64) -> String {
    grouped(&significant(value, 6))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn positions(title: &str, values: &[&str]) -> Positions {
        Positions::new(title, &values.iter().map(|value| (*value).to_owned()).collect::<Vec<_>>())
    }

    fn labels(axis: &Axis) -> Vec<&str> {
        axis.ticks.iter().map(|tick| tick.label.as_str()).collect()
    }

    #[test]
    fn sweep_values_become_positions_with_a_unit() {
        let p = positions("Interval", &["5ms", "0.05s", "500ms"]);
        assert_eq!((p.at.as_slice(), p.label.as_str()), (&[5.0, 50.0, 500.0][..], "Interval (ms)"));
        let p = positions("Interval (s)", &["5ms", "500ms"]);
        assert_eq!((p.at.as_slice(), p.label.as_str()), (&[0.005, 0.5][..], "Interval (s)"));
        let p = positions("Capacity", &["1.5mbit"]);
        assert_eq!((p.at.as_slice(), p.label.as_str()), (&[1.5][..], "Capacity (Mbit/s)"));
        let p = positions("Clients", &["4", "8"]);
        assert_eq!((p.at.as_slice(), p.label.as_str()), (&[4.0, 8.0][..], "Clients"));
        let p = positions("RTT", &["smoothed", "minimum"]);
        assert_eq!(p.at, [0.0, 1.0]);
        assert_eq!(labels(&Axis::across(&p, [], false)), ["smoothed", "minimum"]);
    }

    #[test]
    fn logarithmic_axes_are_labelled_at_the_values() {
        let axis = Axis::across(&positions("N", &["4", "8", "16"]), [4.0, 16.0], true);
        assert_eq!(labels(&axis), ["4", "8", "16"]);
        assert!((axis.share(8.0) - 0.5).abs() < 1e-12);
        assert!(axis.share(4.0) > 0.0 && axis.share(16.0) < 1.0);
        // Zero has no place on a logarithmic axis: it is linear then.
        assert!((Axis::across(&positions("N", &["0", "8"]), [], true).share(4.0) - 0.5).abs() < 1e-12);
    }

    #[test]
    fn vertical_axes_hold_their_values_and_start_at_zero_when_it_is_near() {
        let axis = Axis::vertical(String::new(), [0.3, 0.98, f64::NAN], true);
        assert_eq!(labels(&axis), ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
        let axis = Axis::vertical(String::new(), [94.0, 96.4], false);
        assert_eq!(labels(&axis), ["94.0", "94.5", "95.0", "95.5", "96.0", "96.5"]);
        assert!(axis.share(94.0) > 0.0 && axis.share(96.4) < 1.0);
        let axis = Axis::vertical(String::new(), [0.93, 1.002], true);
        assert_eq!(labels(&axis).last(), Some(&"1.00"));
        for degenerate in [vec![], vec![0.0], vec![7.0], vec![-7.0]] {
            let axis = Axis::vertical(String::new(), degenerate.clone(), false);
            assert!(axis.ticks.len() > 2, "{degenerate:?}");
            assert!(degenerate.iter().all(|&v| (0.0..=1.0).contains(&axis.share(v))), "{degenerate:?}");
        }
    }

    #[test]
    fn large_and_negative_numbers_read_well() {
        assert_eq!(
            labels(&Axis::linear(String::new(), -20_000.0, 20_000.0))[..2],
            ["−20\u{2009}000", "−10\u{2009}000"]
        );
        assert!(labels(&Axis::linear(String::new(), -1.0, 1.0)).contains(&"0.0"));
    }

    #[test]
    fn a_single_value_stands_in_the_middle() {
        for log in [false, true] {
            let axis = Axis::across(&positions("N", &["4"]), [], log);
            assert!((axis.share(4.0) - 0.5).abs() < 1e-12);
            assert_eq!(labels(&axis), ["4"]);
        }
    }
}
