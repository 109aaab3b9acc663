//! Quantiles of samples, by nearest rank: the least value up to which there is at least such a share of them.

/// Number, from 1, of the value at the share `part / whole` of `count` ascending values.
pub(crate) fn rank(count: u64, part: u64, whole: u64) -> u64 {
    (count * part).div_ceil(whole).max(1)
}

/// The value at the share `part / whole` of `ascending`; none when there are no values.
pub(super) fn quantile(ascending: &[f64], part: usize, whole: usize) -> Option<f64> {
    ascending.get(rank(ascending.len() as u64, part as u64, whole as u64) as usize - 1).copied()
}

/// Percentile of ascending values; not-a-number when there are none.
pub fn percentile(ascending: &[f64], percent: usize) -> f64 {
    quantile(ascending, percent, 100).unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_by_hand() {
        let values = [1.0, 2.0, 3.0, 4.0];
        assert_eq!(
            [0, 25, 26, 50, 99, 100].map(|percent| percentile(&values, percent)),
            [1.0, 1.0, 2.0, 2.0, 4.0, 4.0]
        );
        assert!(percentile(&[], 50).is_nan());
    }
}
