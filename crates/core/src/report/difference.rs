//! How much the means of two samples differ.

use serde::{Deserialize, Serialize};

use super::summary::student_t_975;

/// What a comparison needs of a sample.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Sample {
    /// Number of trials.
    pub n: u32,
    /// Mean.
    pub mean: f64,
    /// Sample standard deviation; none for a single trial.
    pub sd: Option<f64>,
}

/// The mean of one sample less that of another.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Difference {
    /// The difference of the means.
    pub mean: f64,
    /// Half-width of its 95 % confidence interval (Welch 1947: the samples' variances may differ); none when a sample
    /// has one trial only.
    pub ci95: Option<f64>,
    /// The difference as a share of the first mean's magnitude; none when the first mean is zero and the second is not.
    pub relative: Option<f64>,
}

impl Difference {
    /// `second` less `first`.
    pub fn new(first: Sample, second: Sample) -> Self {
        let mean = second.mean - first.mean;
        let relative = match (first.mean.abs(), mean) {
            (_, 0.0) => Some(0.0),
            (0.0, _) => None,
            (magnitude, mean) => Some(mean / magnitude),
        };
        Self { mean, ci95: half_width(first, second), relative }
    }

    /// True when zero is outside the confidence interval; none without an interval.
    pub fn is_significant(&self) -> Option<bool> {
        Some(self.mean.abs() > self.ci95?)
    }
}

/// Half-width of the 95 % interval of the difference of two means (Welch 1947); none when a sample has one trial only.
pub(super) fn half_width(first: Sample, second: Sample) -> Option<f64> {
    let of = |sample: Sample| {
        let n = f64::from(sample.n);
        let degrees = (n >= 2.0).then_some(n - 1.0)?;
        Some((sample.sd?.powi(2) / n, degrees))
    };
    let ((a, a_degrees), (b, b_degrees)) = (of(first)?, of(second)?);
    let variance = a + b;
    if variance == 0.0 {
        return Some(0.0);
    }
    // Welch and Satterthwaite.
    let degrees = variance.powi(2) / (a.powi(2) / a_degrees + b.powi(2) / b_degrees);
    Some(student_t_975(degrees)? * variance.sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(n: u32, mean: f64, sd: f64) -> Sample {
        Sample { n, mean, sd: (n > 1).then_some(sd) }
    }

    /// 15 trials of mean 20.82 and variance 7.9, 15 of 23.0 and 3.85: degrees of freedom 25.03, quantile 2.0594.
    #[test]
    fn an_interval_by_hand() {
        let (first, second) = (sample(15, 20.82, 7.9_f64.sqrt()), sample(15, 23.0, 3.85_f64.sqrt()));
        let difference = Difference::new(first, second);
        let error = (7.9_f64 / 15.0 + 3.85 / 15.0).sqrt();
        assert!((difference.mean - 2.18).abs() < 1e-12);
        assert!((difference.ci95.expect("two samples") / error - 2.0594).abs() < 2e-4, "{difference:?}");
        assert!((difference.relative.expect("not zero") - 2.18 / 20.82).abs() < 1e-12);
        assert_eq!(difference.is_significant(), Some(true));
    }

    /// Equal sizes and variances give Student's interval with 2 (n - 1) degrees: 2.3060 for 8.
    #[test]
    fn equal_samples_give_students_interval() {
        let difference = Difference::new(sample(5, 1.0, 2.0), sample(5, 2.0, 2.0));
        let error = (4.0_f64 / 5.0 * 2.0).sqrt();
        assert!((difference.ci95.expect("two samples") / error - 2.306_004).abs() < 1e-5, "{difference:?}");
        assert_eq!(difference.is_significant(), Some(false));
    }

    #[test]
    fn one_trial_has_no_interval_and_zero_has_no_share() {
        let difference = Difference::new(sample(1, 0.0, 0.0), sample(9, 2.0, 1.0));
        assert_eq!((difference.ci95, difference.relative), (None, None));
        assert_eq!(difference.is_significant(), None);
        let same = Difference::new(sample(3, 0.0, 0.0), sample(3, 0.0, 0.0));
        assert_eq!((same.mean, same.ci95, same.relative), (0.0, Some(0.0), Some(0.0)));
        let negative = Difference::new(sample(1, -4.0, 0.0), sample(1, -5.0, 0.0));
        assert_eq!(negative.relative, Some(-0.25));
    }
}
