//! How much two results may differ.

use std::str::FromStr;

use bandmaster_core::report::difference::Difference;

/// What one metric may differ by.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Tolerance {
    /// Name of the metric, or what follows a dot in it.
    pub(super) metric: String,
    most: Most,
}

/// A share of the first result.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Percent(f64);

#[derive(Clone, Copy, PartialEq, Debug)]
enum Most {
    /// In the unit of the metric.
    Absolute(f64),
    Relative(Percent),
}

impl Tolerance {
    /// Whether the means differ by no more than that.
    pub(super) fn holds(&self, difference: &Difference) -> bool {
        match self.most {
            Most::Absolute(most) => difference.mean.abs() <= most,
            Most::Relative(percent) => percent.holds(difference),
        }
    }
}

impl Percent {
    /// Whether the means differ by no more than that share of the first.
    pub(super) fn holds(self, difference: &Difference) -> bool {
        difference.relative.is_some_and(|share| share.abs() * 100.0 <= self.0)
    }
}

impl FromStr for Tolerance {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "write METRIC=NUMBER in the unit of the metric, or METRIC=NUMBER%".to_owned();
        let (metric, most) = text.split_once('=').ok_or_else(wrong)?;
        if metric.is_empty() {
            return Err(wrong());
        }
        let most = match most.strip_suffix('%') {
            Some(_) => Most::Relative(most.parse()?),
            None => Most::Absolute(number(most).ok_or_else(wrong)?),
        };
        Ok(Self { metric: metric.to_owned(), most })
    }
}

impl FromStr for Percent {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let percent = text.strip_suffix('%').and_then(|text| number(text.trim_end()));
        percent.map(Self).ok_or_else(|| "write a percentage from 0 on, such as 5%".to_owned())
    }
}

fn number(text: &str) -> Option<f64> {
    text.parse().ok().filter(|number: &f64| number.is_finite() && *number >= 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn difference(mean: f64, relative: Option<f64>) -> Difference {
        Difference { mean, ci95: None, relative }
    }

    #[test]
    fn tolerances_are_in_the_unit_or_a_share() {
        let points: Tolerance = "shortage=10".parse().expect("valid");
        assert!(points.holds(&difference(-10.0, None)) && !points.holds(&difference(10.1, Some(0.0))));
        let share: Tolerance = "throughput=5%".parse().expect("valid");
        assert!(share.holds(&difference(100.0, Some(-0.05))) && !share.holds(&difference(0.1, Some(0.06))));
        assert!(!share.holds(&difference(1.0, None)), "no share of zero");
    }

    #[test]
    fn anything_else_is_refused() {
        for text in ["shortage", "=5", "shortage=", "shortage=x", "shortage=-1", "a=5%%", "a=inf", "a=nan%"] {
            assert!(text.parse::<Tolerance>().is_err(), "{text}");
        }
        for text in ["5", "%", "-1%", "five%", "inf%"] {
            assert!(text.parse::<Percent>().is_err(), "{text}");
        }
    }
}
