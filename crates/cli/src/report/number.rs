//! Numbers and quantities as people read them.

use bandmaster_core::report::summary::{Estimate, figure_quantity};
use bandmaster_core::report::{Quantity, gauge_figure, measure};

/// How a quantity is called.
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
    /// The label of a summary figure, also of one limited to a window.
    pub(crate) fn of_figure(name: &str) -> Self {
        if let Some((node, gauge, figure)) = gauge_figure(name) {
            let unit = if figure.unit.is_empty() { gauge.unit } else { figure.unit };
            let of_gauge = Self::new(Some(gauge), gauge.name, None);
            let (short, long) = match figure.name {
                "min" => ("least", "least"),
                "max" => ("most", "most"),
                "last" => ("at the end", "at the end"),
                _ => ("still", "longest time without change"),
            };
            return Self {
                short: format!("{node} {}, {short}", of_gauge.short),
                long: format!("{} at {node}, {long}", of_gauge.long),
                unit: unit_word(unit),
            };
        }
        let (window, quantity) = match figure_quantity(name) {
            Some((window, quantity)) => (window, Some(quantity)),
            None => (None, None),
        };
        Self::new(quantity, name, window)
    }

    /// The label of a measure of series.
    pub(crate) fn of_measure(name: &str) -> Self {
        Self::new(measure(name), name, None)
    }

    fn new(quantity: Option<&'static Quantity>, name: &str, window: Option<&str>) -> Self {
        let name = quantity.map_or(name, |quantity| quantity.name);
        let (short, long) = match name {
            "jain" => ("Jain", "Jain’s index"),
            "jain_normalised" => ("norm. Jain", "Normalised Jain’s index"),
            "jain_long" => ("Jain, long", "Jain’s index, long interval"),
            "jain_normalised_long" => ("norm. Jain, long", "Normalised Jain’s index, long interval"),
            "throughput" => ("throughput", "Throughput"),
            "queue" => ("queue", "Mean queue"),
            "queue_max" => ("queue max", "Largest queue"),
            "drops" => ("drops", "Dropped packets"),
            "rtos" => ("RTOs", "Retransmission timeouts"),
            "retransmits" => ("retransmits", "Retransmitted segments"),
            "completed" => ("completed", "Completed flows"),
            "fct_mean" => ("FCT mean", "Mean flow completion time"),
            "fct_p99" => ("FCT p99", "Flow completion time, 99th percentile"),
            "fct_p50" => ("FCT median", "Median flow completion time"),
            "fct_p80" => ("FCT p80", "Flow completion time, 80th percentile"),
            "fct_max" => ("FCT max", "Longest flow completion time"),
            "fct" => ("FCT", "Flow completion time"),
            "fct_own_p99" => ("FCT p99, own TCP", "Flow completion time with own settings, 99th percentile"),
            "fct_tuned_p99" => {
                ("FCT p99, tuned TCP", "Flow completion time with changed settings, 99th percentile")
            }
            "undropped" => ("without a drop", "Flows without a drop"),
            "flow_drops_p99" => ("flow drops p99", "Drop rate of flows, 99th percentile"),
            "flow_drops" => ("flow drops", "Drop rate of a flow"),
            "window_to_5" => ("windows up to 5", "Packets sent with a window up to five segments"),
            "window" => ("window", "Congestion window of a packet"),
            "utilization_p80" => ("utilization p80", "Use of links, 80th percentile"),
            "utilization" => ("utilization", "Use of a link in an interval"),
            "rounds" => ("rounds", "Complete incast rounds"),
            "round_time_mean" => ("round, mean", "Time of an incast round, mean"),
            "round_time_max" => ("round, longest", "Time of an incast round, longest"),
            "round_goodput" => ("goodput", "Goodput of incast rounds"),
            "control_rate" => ("control", "Rate of control messages"),
            "flows" => ("flows", "Flows"),
            "cwnd" => ("cwnd", "Congestion window"),
            "srtt" => ("SRTT", "Smoothed round-trip time"),
            "throughput_least" => ("least throughput", "Least throughput of a long interval"),
            "free" => ("free", "Free bandwidth"),
            "estimate" => ("estimate", "Estimated bandwidth"),
            "step" => ("step", "Next step of the estimate"),
            "received" => ("received", "Received rate"),
            "loss" => ("loss", "Packets lost in a round"),
            "lost" => ("lost", "Lost packets"),
            "updates" => ("updates", "Updates of the estimate"),
            "classes" => ("classes", "Rates of all classes"),
            "spare" => ("spare", "Estimate less the rates of all classes"),
            "steps" => ("steps", "Steps judged"),
            "follow" => ("follow", "Time to follow a step, mean"),
            "follow_max" => ("follow, longest", "Time to follow a step, longest"),
            "settle" => ("settle", "Time to settle after a step, mean"),
            "settle_max" => ("settle, longest", "Time to settle after a step, longest"),
            "overshoot" => ("overshoot", "Overshoot of the estimate"),
            "undershoot" => ("undershoot", "Undershoot of the estimate"),
            "error" => ("error", "Error of the estimate, mean"),
            other => (other, other),
        };
        let window = window.map(|window| format!(", {window}")).unwrap_or_default();
        // A count of packets says so in its name.
        let counts_itself = matches!(name, "drops" | "retransmits");
        let unit = quantity.map_or("", |quantity| if counts_itself { "" } else { unit_word(quantity.unit) });
        Self { short: format!("{short}{window}"), long: format!("{long}{window}"), unit }
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

fn unit_word(unit: &'static str) -> &'static str {
    if unit == "pkt" { "packets" } else { unit }
}

/// Mean and half-width of the 95 % confidence interval: `0.713 ±0.021`; the mean alone after a single trial.
pub(crate) fn estimate(figure: &str, estimate: &Estimate) -> String {
    let places = places(figure, estimate.mean);
    let value = without_negative_zero(estimate.mean);
    match estimate.ci95 {
        Some(half) => format!("{value:.places$} ±{half:.places$}"),
        None => format!("{value:.places$}"),
    }
}

/// Decimal places of a figure's values near `value`: fixed, so that columns line up, but two digits at least.
fn places(figure: &str, value: f64) -> usize {
    let name = figure.rsplit_once('.').map_or(figure, |(_, name)| name);
    let usual = match name {
        name if name.starts_with("jain") || name.starts_with("fct") => 3,
        "throughput" => 2,
        _ => 1,
    };
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
    fn estimates_have_the_places_of_their_figure() {
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
        assert_eq!(Label::of_figure("burst.throughput").axis(), "Throughput, burst (Mbit/s)");
        assert_eq!(Label::of_figure("queue").column(), "queue (packets)");
        assert_eq!(Label::of_figure("drops").column(), "drops");
        assert_eq!(Label::of_figure("elegance").axis(), "elegance");
        assert_eq!(Label::of_measure("srtt").axis(), "Smoothed round-trip time (ms)");
    }
}
