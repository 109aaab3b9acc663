//! Numbers and metrics as people read them.

use bandmaster_core::report::metric::{self, Unit};
use bandmaster_core::report::summary::Estimate;

/// How a metric is called.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Label {
    /// For the head of a column.
    pub(crate) short: String,
    /// For an axis.
    pub(crate) long: String,
    /// Unit; empty for indices and counts.
    pub(crate) unit: &'static str,
}

impl Label {
    /// The label of a metric, also of one limited to a window or summed up of a gauge.
    pub(crate) fn of(name: &str) -> Self {
        if let Some((node, gauge, sum)) = metric::of_gauge(name) {
            let unit = if sum.unit == Unit::OfGauge { gauge.unit } else { sum.unit };
            return Self {
                short: format!("{node} {}, {}", gauge.short, sum.short),
                long: format!("{} at {node}, {}", gauge.long, sum.long),
                unit: unit.beside_label(),
            };
        }
        let found = metric::summarised(name).or_else(|| Some((None, metric::find(name)?)));
        let Some((window, metric)) = found else {
            return Self { short: name.to_owned(), long: name.to_owned(), unit: "" };
        };
        let window = window.map(|window| format!(", {window}")).unwrap_or_default();
        Self {
            short: format!("{}{window}", metric.short),
            long: format!("{}{window}", metric.long),
            unit: metric.unit.beside_label(),
        }
    }

    /// Text of an axis: name and unit.
    pub(crate) fn axis(&self) -> String {
        if self.unit.is_empty() { self.long.clone() } else { format!("{} ({})", self.long, self.unit) }
    }

    /// Text of a column's head: short name and unit.
    pub(crate) fn column(&self) -> String {
        if self.unit.is_empty() { self.short.clone() } else { format!("{} ({})", self.short, self.unit) }
    }
}

/// Mean and half-width of the 95 % confidence interval: `0.713 ±0.021`; the mean alone after a single trial.
pub(crate) fn estimate(metric: &str, estimate: &Estimate) -> String {
    let places = places(metric, estimate.mean);
    let value = without_negative_zero(estimate.mean);
    match estimate.ci95 {
        Some(half) => format!("{value:.places$} ±{half:.places$}"),
        None => format!("{value:.places$}"),
    }
}

/// Decimal places of a metric's values near `value`: fixed, so that columns line up, but two digits at least.
fn places(name: &str, value: f64) -> usize {
    let usual = metric::summarised(name).map_or(1, |(_, metric)| i32::from(metric.decimals));
    let magnitude = value.abs();
    if magnitude >= 10_000.0 {
        0
    } else if magnitude > 0.0 && magnitude < 0.1_f64.powi(usual) * 5.0 {
        // The first two digits of what would otherwise round to almost nothing.
        ((1.0 - magnitude.log10().floor()).clamp(0.0, 9.0) as usize).max(usual as usize)
    } else {
        usual as usize
    }
}

fn without_negative_zero(value: f64) -> f64 {
    if value == 0.0 { 0.0 } else { value }
}

/// A claim's value with four significant digits, or as many more as show on which side of the band it is.
pub(crate) fn claim_value(value: f64, low: f64, high: f64) -> String {
    let side = |x: f64| (x < low, x > high);
    (4..=15)
        .map(|digits| significant(value, digits))
        .find(|text| text.parse::<f64>().is_ok_and(|rounded| side(rounded) == side(value)))
        .unwrap_or_else(|| value.to_string())
}

/// A claim's band: `0.95 to 1`, with infinite ends as `at least 0.95`.
pub(crate) fn band(low: f64, high: f64) -> String {
    match (low.is_finite(), high.is_finite()) {
        (true, true) if low == high => format!("exactly {low}"),
        (true, true) => format!("{low} to {high}"),
        (true, false) => format!("at least {low}"),
        (false, true) => format!("at most {high}"),
        (false, false) => "any".to_owned(),
    }
}

/// `value` rounded to significant digits, without trailing zeros.
pub(crate) fn significant(value: f64, digits: usize) -> String {
    if value == 0.0 || !value.is_finite() {
        return without_negative_zero(value).to_string();
    }
    let exponent = value.abs().log10().floor() as i64;
    let places = (digits as i64 - 1 - exponent).clamp(0, 17) as usize;
    let text = format!("{value:.places$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// A whole number with thin spaces between groups of three digits, from five digits on.
pub(crate) fn grouped(text: &str) -> String {
    let (sign, rest) = text.strip_prefix('-').map_or(("", text), |rest| ("−", rest));
    let (whole, fraction) =
        rest.split_once('.').map_or((rest, None), |(whole, fraction)| (whole, Some(fraction)));
    let mut out = sign.to_owned();
    for (index, digit) in whole.chars().enumerate() {
        if whole.len() > 4 && index > 0 && (whole.len() - index).is_multiple_of(3) {
            out.push('\u{2009}');
        }
        out.push(digit);
    }
    if let Some(fraction) = fraction {
        out.push('.');
        out.push_str(fraction);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(mean: f64, ci95: Option<f64>) -> Estimate {
        Estimate { n: 2, mean, sd: None, ci95, median: mean, q1: mean, q3: mean }
    }

    #[test]
    fn estimates_have_the_places_of_their_metric() {
        assert_eq!(estimate("jain", &of(0.71349, Some(0.0214))), "0.713 ±0.021");
        assert_eq!(estimate("burst.throughput", &of(96.4, Some(0.004))), "96.40 ±0.00");
        assert_eq!(estimate("queue", &of(187.26, None)), "187.3");
        assert_eq!(estimate("drops", &of(12_345.6, Some(77.8))), "12346 ±78");
        assert_eq!(estimate("throughput", &of(0.00123, None)), "0.0012");
        assert_eq!(estimate("rtos", &of(-0.0, None)), "0.0");
    }

    #[test]
    fn a_claim_that_fails_never_reads_as_if_it_held() {
        assert_eq!(claim_value(0.97, 0.95, 1.0), "0.97");
        assert_eq!(claim_value(0.949_996, 0.95, 1.0), "0.949996");
        assert_eq!(claim_value(0.950_001, 0.95, 1.0), "0.95");
        assert_eq!(claim_value(1.000_01, 0.95, 1.0), "1.00001");
        assert_eq!(claim_value(0.0, 0.0, 0.0), "0");
        assert_eq!(claim_value(-1234.56, -2000.0, 0.0), "-1235");
    }

    #[test]
    fn bands_and_groups() {
        assert_eq!(band(0.95, 1.0), "0.95 to 1");
        assert_eq!(band(0.95, f64::INFINITY), "at least 0.95");
        assert_eq!(band(f64::NEG_INFINITY, 3.0), "at most 3");
        assert_eq!(grouped("1234"), "1234");
        assert_eq!(grouped("-1234567.5"), "−1\u{2009}234\u{2009}567.5");
    }

    #[test]
    fn labels_name_unit_and_window() {
        assert_eq!(Label::of("burst.throughput").axis(), "Throughput, burst (Mbit/s)");
        assert_eq!(Label::of("queue").column(), "queue (packets)");
        assert_eq!(Label::of("drops").column(), "drops");
        assert_eq!(Label::of("marks").axis(), "Marked packets");
        assert_eq!(Label::of("p1.shortage").column(), "shortage, p1 (%)");
        assert_eq!(Label::of("gw1.lost.max").axis(), "Lost packets at gw1, most (packets)");
        assert_eq!(Label::of("gw1.lost.still").column(), "gw1 lost, still (s)");
        assert_eq!(Label::of("elegance").axis(), "elegance");
        assert_eq!(Label::of("srtt").axis(), "Smoothed round-trip time (ms)");
    }
}
