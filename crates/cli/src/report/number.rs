//! Numbers and metrics as people read them.

use bandmaster_core::report::claims::{ClaimResult, Status};
use bandmaster_core::report::metric;
use bandmaster_core::report::summary::Estimate;

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
pub(crate) fn claim_value(value: f64, low: Option<f64>, high: Option<f64>) -> String {
    let (low, high) = (low.unwrap_or(f64::NEG_INFINITY), high.unwrap_or(f64::INFINITY));
    let side = |x: f64| (x < low, x > high);
    (4..=15)
        .map(|digits| significant(value, digits))
        .find(|text| text.parse::<f64>().is_ok_and(|rounded| side(rounded) == side(value)))
        .unwrap_or_else(|| value.to_string())
}

/// The 95 % interval of a claim's value, `0.71 to 0.74, 10 trials`; none without a value.
pub(crate) fn interval(claim: &ClaimResult) -> Option<String> {
    claim.value?;
    let trials = format!("{} trial{}", claim.trials, if claim.trials == 1 { "" } else { "s" });
    Some(match claim.interval {
        Some([from, to]) => {
            let [from, to] = [from, to].map(|end| claim_value(end, claim.low, claim.high));
            format!("{from} to {to}, {trials}")
        }
        None => format!("no interval, {trials}"),
    })
}

/// What the outcome means, and how many trials would decide it.
pub(crate) fn more(claim: &ClaimResult) -> String {
    let meaning = match (claim.status, claim.trials) {
        (Status::Undecided, 1) => "one trial has no interval",
        (Status::Undecided, _) if claim.interval.is_none() => {
            "the 95 % interval is unbounded: the divisor may be zero"
        }
        (status, _) => status.explanation(),
    };
    match claim.trials_to_decide {
        Some(trials) => format!("{meaning}; about {trials} trials would decide"),
        None => meaning.to_owned(),
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
        let claim_value = |value, low, high| claim_value(value, Some(low), Some(high));
        assert_eq!(claim_value(0.97, 0.95, 1.0), "0.97");
        assert_eq!(claim_value(0.949_996, 0.95, 1.0), "0.949996");
        assert_eq!(claim_value(0.950_001, 0.95, 1.0), "0.95");
        assert_eq!(claim_value(1.000_01, 0.95, 1.0), "1.00001");
        assert_eq!(claim_value(0.0, 0.0, 0.0), "0");
        assert_eq!(claim_value(-1234.56, -2000.0, 0.0), "-1235");
    }

    #[test]
    fn groups_of_digits() {
        assert_eq!(grouped("1234"), "1234");
        assert_eq!(grouped("-1234567.5"), "−1\u{2009}234\u{2009}567.5");
    }
}
