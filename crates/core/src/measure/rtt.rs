//! Round-trip times of a flow: a sketch of bounded size that adds up with others.
//!
//! A bucket is 1/64 of a power of two wide, so that its middle is within 1/128 of what it counts. A sketch that would have more
//! than [`MOST_BUCKETS`] joins pairs of neighbours, which doubles that, as UDDSketch does (Epicoco et al. 2020).

use serde::{Deserialize, Serialize};

use crate::report::{Distribution, quantile};
use crate::time::Span;

/// Binary places that tell buckets of one power of two apart.
const FINE: u32 = 6;
/// Buckets of a sketch at most.
pub const MOST_BUCKETS: usize = 256;

/// How often times have come, by buckets that widen with them.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct RttSketch {
    /// Times that buckets were joined.
    joined: u32,
    /// Number and count of every bucket that is not empty, in ascending order.
    buckets: Vec<(u16, u32)>,
    /// Place of the last value's bucket: the next one is mostly near.
    last: usize,
    count: u64,
    sum: u64,
    min: u64,
    max: u64,
}

/// What rows and metrics say of round-trip times.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct RttSummary {
    /// Samples.
    pub count: u64,
    /// Least.
    pub min: Span,
    /// Mean.
    pub mean: Span,
    /// Median, by nearest rank.
    pub p50: Span,
    /// 95th percentile.
    pub p95: Span,
    /// 99th percentile.
    pub p99: Span,
    /// Percentiles are off by this share at most.
    pub error: f64,
}

/// The bucket of a value before any were joined: its power of two and the places after the first.
fn bucket(nanos: u64) -> u16 {
    let nanos = nanos.max(1);
    let power = nanos.ilog2();
    let places = (nanos << (63 - power) << 1) >> (64 - FINE);
    (power << FINE) as u16 | places as u16
}

/// The middle of a bucket of buckets joined so often.
fn middle(number: u16, joined: u32) -> u64 {
    let least = |number: u32| {
        let (power, places) = (number >> FINE, u128::from(number & ((1 << FINE) - 1)));
        (((1 << FINE) + places) << power) as f64 / f64::from(1u32 << FINE)
    };
    let first = u32::from(number) << joined;
    ((least(first) + least(first + (1 << joined))) / 2.0) as u64
}

impl RttSketch {
    /// Counts a time.
    #[inline]
    pub fn note(&mut self, time: Span) {
        let nanos = time.as_nanos();
        self.min = if self.count == 0 { nanos } else { self.min.min(nanos) };
        self.max = self.max.max(nanos);
        self.count += 1;
        self.sum = self.sum.saturating_add(nanos);
        let number = bucket(nanos) >> self.joined;
        match self.buckets.get_mut(self.last) {
            Some((same, count)) if *same == number => *count = count.saturating_add(1),
            _ => self.add(number, 1),
        }
    }

    fn add(&mut self, number: u16, more: u32) {
        match self.buckets.binary_search_by_key(&number, |(number, _)| *number) {
            Ok(at) => {
                self.buckets[at].1 = self.buckets[at].1.saturating_add(more);
                self.last = at;
            }
            Err(at) if self.buckets.len() < MOST_BUCKETS => {
                self.buckets.insert(at, (number, more));
                self.last = at;
            }
            Err(_) => {
                self.join();
                self.add(number >> 1, more);
            }
        }
    }

    /// Joins each bucket with its neighbour.
    fn join(&mut self) {
        self.joined += 1;
        self.last = 0;
        let mut joined: Vec<(u16, u32)> = Vec::with_capacity(MOST_BUCKETS);
        for (number, count) in self.buckets.drain(..) {
            match joined.last_mut() {
                Some((last, sum)) if *last == number >> 1 => *sum = sum.saturating_add(count),
                _ => joined.push((number >> 1, count)),
            }
        }
        self.buckets = joined;
    }

    /// Counts what another has counted.
    pub fn merge(&mut self, other: &Self) {
        if other.count == 0 {
            return;
        }
        self.min = if self.count == 0 { other.min } else { self.min.min(other.min) };
        self.max = self.max.max(other.max);
        self.count += other.count;
        self.sum = self.sum.saturating_add(other.sum);
        while self.joined < other.joined {
            self.join();
        }
        for &(number, count) in &other.buckets {
            // Adding may join buckets.
            self.add(number >> (self.joined - other.joined), count);
        }
    }

    /// Percentiles are off by this share at most.
    pub fn error(&self) -> f64 {
        f64::from(1u32 << self.joined) / f64::from(2u32 << FINE)
    }

    /// The percentile by nearest rank, within [`error`](Self::error); zero without values.
    pub fn percentile(&self, percent: u64) -> Span {
        self.quantile(percent, 100)
    }

    /// The same at the share `part / whole`.
    pub fn quantile(&self, part: u64, whole: u64) -> Span {
        let rank = quantile::rank(self.count, part, whole);
        let mut below = 0;
        let found = self.buckets.iter().find(|(_, count)| {
            below += u64::from(*count);
            below >= rank
        });
        let nanos = found.map_or(0, |(number, _)| middle(*number, self.joined));
        Span::from_nanos(nanos.clamp(self.min, self.max))
    }

    /// How the times are spread, in milliseconds; none without values.
    pub fn distribution(&self) -> Option<Distribution> {
        let steps = (Distribution::POINTS - 1) as f64;
        let at = |share: f64| self.quantile((share * steps).round() as u64, steps as u64).as_secs_f64() * 1e3;
        (self.count > 0).then(|| Distribution::of_quantiles("rtt", at))
    }

    /// What rows and metrics say; none without values.
    pub fn summary(&self) -> Option<RttSummary> {
        let mean = self.sum.checked_div(self.count)?;
        Some(RttSummary {
            count: self.count,
            min: Span::from_nanos(self.min),
            mean: Span::from_nanos(mean),
            p50: self.percentile(50),
            p95: self.percentile(95),
            p99: self.percentile(99),
            error: self.error(),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn buckets_by_hand() {
        // 1.0 and 1.5 times 2^10; a value below 64 has a bucket of its own.
        assert_eq!((bucket(1024), bucket(1536), bucket(1039), bucket(1040)), (640, 672, 640, 641));
        assert_eq!((bucket(0), bucket(1), bucket(63), bucket(u64::MAX)), (0, 0, 5 << 6 | 62, 4095));
        assert_eq!((middle(640, 0), middle(320, 1), middle(4095, 0)), (1032, 1040, u64::MAX - (1 << 56) + 1));
    }

    fn sketch(values: &[u64]) -> RttSketch {
        let mut sketch = RttSketch::default();
        values.iter().for_each(|nanos| sketch.note(Span::from_nanos(*nanos)));
        sketch
    }

    #[test]
    fn times_of_a_network_are_told_within_one_per_cent() {
        // Each of the buckets from 10 to 100 ms.
        let near = sketch(&(0..10_000u64).map(|n| 10_000_000 + n * 9_000).collect::<Vec<_>>());
        assert_eq!(near.error(), 1.0 / 128.0);
        let wide =
            sketch(&(0..40).flat_map(|power| (64..128).map(move |n| (n << power) >> 3)).collect::<Vec<_>>());
        assert_eq!(
            (wide.error(), wide.buckets.len() <= MOST_BUCKETS),
            (1.0 / 8.0, true),
            "{}",
            wide.buckets.len()
        );
    }

    /// Times of many sizes: so many that buckets are joined, too.
    fn times() -> impl Strategy<Value = Vec<u64>> {
        let near = prop::collection::vec(1_000_000u64..40_000_000, 1..400);
        let wide = prop::collection::vec(
            (0u32..45, 1u64..1024).prop_map(|(power, value)| value << power >> 3),
            1..3000,
        );
        prop_oneof![near, wide]
    }

    proptest! {
        #[test]
        fn percentiles_are_within_their_stated_error(mut first in times(), second in times(), percent in 1u64..=100) {
            let mut merged = sketch(&first);
            merged.merge(&sketch(&second));
            first.extend(second);
            let whole = sketch(&first);
            first.sort_unstable();
            let exact = first[(first.len() as u64 * percent).div_ceil(100) as usize - 1];
            for sketch in [&whole, &merged] {
                let found = sketch.percentile(percent).as_nanos();
                // A nanosecond is rounded off.
                prop_assert!(found.abs_diff(exact) as f64 <= sketch.error() * exact as f64 + 1.0, "{} of {}", found, exact);
                prop_assert!(sketch.buckets.len() <= MOST_BUCKETS);
                let summary = sketch.summary().expect("values");
                prop_assert_eq!((summary.count, summary.min.as_nanos()), (first.len() as u64, first[0]));
                prop_assert_eq!(summary.mean.as_nanos(), first.iter().sum::<u64>() / first.len() as u64);
            }
        }
    }
}
