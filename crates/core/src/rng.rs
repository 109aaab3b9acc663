//! Seeded random streams, named by component.
//!
//! A stream is derived from (seed, trial, name), never from the order of creation: adding a host does not shift
//! what the others draw.

use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::span_cdf::SpanCdf;
use crate::time::Span;

/// A deterministic stream of random numbers.
#[derive(Clone, Debug)]
pub struct Stream(Pcg64Mcg);

impl Stream {
    /// The stream of the component called `name` in trial `trial` of a run with `seed`.
    pub fn new(seed: u64, trial: u32, name: &str) -> Self {
        let mut hash = Fnv::new();
        hash.write(&seed.to_le_bytes());
        hash.write(&trial.to_le_bytes());
        hash.write(name.as_bytes());
        let low = splitmix(hash.0);
        let high = splitmix(low ^ 0x9e37_79b9_7f4a_7c15);
        Self(Pcg64Mcg::from_seed((u128::from(high) << 64 | u128::from(low)).to_le_bytes()))
    }

    /// 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Uniform in [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// Uniform integer in [0, bound); 0 for a zero bound. The bias is below bound / 2^64.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// Uniform span in [low, high].
    pub fn span_between(&mut self, low: Span, high: Span) -> Span {
        let width = high.as_nanos().saturating_sub(low.as_nanos());
        Span::from_nanos(low.as_nanos() + self.below(width.saturating_add(1)))
    }

    /// Exponentially distributed with the given mean. The logarithm is libm's, the same on every platform.
    pub fn exponential(&mut self, mean: Span) -> Span {
        Span::from_secs_f64(-libm::log(1.0 - self.unit()) * mean.as_secs_f64())
    }

    /// Standard normal, by the polar method; logarithm and square root are libm's, the same on every platform.
    pub fn standard_normal(&mut self) -> f64 {
        loop {
            let (x, y) = (2.0 * self.unit() - 1.0, 2.0 * self.unit() - 1.0);
            let square = x * x + y * y;
            if square > 0.0 && square < 1.0 {
                return x * libm::sqrt(-2.0 * libm::log(square) / square);
            }
        }
    }

    /// True with probability `p`.
    pub fn chance(&mut self, p: f64) -> bool {
        self.unit() < p
    }
}

/// FNV-1a, 64 bits: a stable hash for names and for ECMP.
#[derive(Clone, Copy, Debug)]
pub struct Fnv(u64);

impl Fnv {
    /// The hash of nothing.
    pub const fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    /// Hashes more bytes.
    pub fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    /// The hash, with its bits mixed.
    pub fn finish(self) -> u64 {
        splitmix(self.0)
    }
}

impl Default for Fnv {
    fn default() -> Self {
        Self::new()
    }
}

/// Mixes the bits of `seed`: one step of splitmix64.
pub const fn splitmix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A span that is fixed or drawn once per trial (or once per use, for on and off times).
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
#[serde(rename_all = "lowercase", tag = "draw")]
pub enum SpanDraw {
    /// Always the same.
    Fixed {
        /// The value.
        value: Span,
    },
    /// Uniform in [low, high].
    Uniform {
        /// Smallest value.
        low: Span,
        /// Largest value.
        high: Span,
    },
    /// Exponential.
    Exponential {
        /// Mean value.
        mean: Span,
    },
    /// Normal; a value below zero, or more than [`NORMAL_REACH`] deviations from the mean, is drawn again.
    Normal {
        /// Mean value, before values are drawn again.
        mean: Span,
        /// Standard deviation, before values are drawn again; at most the mean.
        deviation: Span,
    },
    /// By a cumulative distribution.
    Cdf {
        /// Times and the shares up to them.
        points: SpanCdf,
    },
}

/// How many standard deviations from the mean a normal draw reaches: the bound that delays need.
pub const NORMAL_REACH: u32 = 4;

impl Default for SpanDraw {
    /// Always no time at all.
    fn default() -> Self {
        Self::fixed(Span::ZERO)
    }
}

impl SpanDraw {
    /// A fixed span.
    pub const fn fixed(value: Span) -> Self {
        Self::Fixed { value }
    }

    /// Draws a value.
    pub fn draw(self, stream: &mut Stream) -> Span {
        match self {
            Self::Fixed { value } => value,
            Self::Uniform { low, high } => stream.span_between(low, high),
            Self::Exponential { mean } => stream.exponential(mean),
            Self::Normal { mean, deviation } => loop {
                let off = stream.standard_normal();
                let secs = mean.as_secs_f64() + off * deviation.as_secs_f64();
                if secs >= 0.0 && off.abs() <= f64::from(NORMAL_REACH) {
                    return Span::from_secs_f64(secs);
                }
            },
            Self::Cdf { points } => points.draw(stream),
        }
    }

    /// The mean in seconds.
    pub fn mean(self) -> f64 {
        match self {
            Self::Fixed { value } => value.as_secs_f64(),
            Self::Uniform { low, high } => (low.as_secs_f64() + high.as_secs_f64()) / 2.0,
            Self::Exponential { mean } => mean.as_secs_f64(),
            Self::Normal { mean, deviation } if deviation == Span::ZERO => mean.as_secs_f64(),
            Self::Normal { mean, deviation } => {
                let (mean, deviation, top) =
                    (mean.as_secs_f64(), deviation.as_secs_f64(), f64::from(NORMAL_REACH));
                let bottom = (-mean / deviation).max(-top);
                let density = |z: f64| libm::exp(-z * z / 2.0) / libm::sqrt(core::f64::consts::TAU);
                let below = |z: f64| libm::erfc(-z / core::f64::consts::SQRT_2) / 2.0;
                mean + deviation * (density(bottom) - density(top)) / (below(top) - below(bottom))
            }
            Self::Cdf { points } => points.mean(),
        }
    }

    /// The largest value that can be drawn; `None` without bound.
    pub const fn upper_bound(self) -> Option<Span> {
        match self {
            Self::Fixed { value } => Some(value),
            Self::Uniform { high, .. } => Some(high),
            Self::Exponential { .. } => None,
            Self::Normal { mean, deviation } => {
                let reach = deviation.as_nanos().saturating_mul(NORMAL_REACH as u64);
                Some(Span::from_nanos(mean.as_nanos().saturating_add(reach)))
            }
            Self::Cdf { points } => Some(points.largest()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_depend_on_name_trial_and_seed_only() {
        let draw = |seed, trial, name| Stream::new(seed, trial, name).next_u64();
        assert_eq!(draw(1, 0, "host/a"), draw(1, 0, "host/a"));
        assert_ne!(draw(1, 0, "host/a"), draw(1, 0, "host/b"));
        assert_ne!(draw(1, 0, "host/a"), draw(1, 1, "host/a"));
        assert_ne!(draw(1, 0, "host/a"), draw(2, 0, "host/a"));
    }

    #[test]
    fn draws_have_the_stated_means() {
        let mut stream = Stream::new(7, 0, "test");
        let n = 100_000;
        let mean = (0..n).map(|_| stream.unit()).sum::<f64>() / f64::from(n);
        assert!((mean - 0.5).abs() < 0.005, "{mean}");
        let mean =
            (0..n).map(|_| stream.exponential(Span::from_secs(15)).as_secs_f64()).sum::<f64>() / f64::from(n);
        assert!((mean - 15.0).abs() < 0.2, "{mean}");
        let draws = (0..1000).map(|_| stream.span_between(Span::from_millis(2), Span::from_millis(6)));
        assert!(draws.into_iter().all(|s| s >= Span::from_millis(2) && s <= Span::from_millis(6)));
    }

    #[test]
    fn normal_draws_have_their_mean_and_deviation_and_bounds() {
        let moments = |mean, deviation| {
            let draw = SpanDraw::Normal { mean, deviation };
            let mut stream = Stream::new(7, 0, "test");
            let draws: Vec<f64> = (0..100_000).map(|_| draw.draw(&mut stream).as_secs_f64()).collect();
            let most = draw.upper_bound().expect("a bound").as_secs_f64();
            assert!(draws.iter().all(|x| (0.0..=most).contains(x)));
            let seen = draws.iter().sum::<f64>() / draws.len() as f64;
            let square = draws.iter().map(|x| (x - seen).powi(2)).sum::<f64>() / draws.len() as f64;
            (draw.mean(), seen, square.sqrt())
        };
        let (mean, seen, deviation) = moments(Span::from_millis(20), Span::from_millis(2));
        assert!((mean - 0.02).abs() < 1e-12, "{mean}");
        assert!((seen - 0.02).abs() < 4.0 * 0.002 / 100_000f64.sqrt(), "{seen}");
        assert!((deviation / 0.002 - 1.0).abs() < 0.01, "{deviation}");
        // As wide as allowed: of the normal above zero with mean and deviation 1, the mean is 1 + phi(1)/Phi(1) =
        // 1.2876 and the deviation sqrt(1 - 0.2876 - 0.2876^2) = 0.7935; the cut at 5 changes less than 0.001.
        let (mean, seen, deviation) = moments(Span::from_millis(10), Span::from_millis(10));
        assert!((mean / 0.012_876 - 1.0).abs() < 0.001, "{mean}");
        assert!((seen - mean).abs() < 4.0 * 0.0081 / 100_000f64.sqrt(), "{seen} {mean}");
        assert!((deviation / 0.007_935 - 1.0).abs() < 0.01, "{deviation}");
        let fixed = SpanDraw::Normal { mean: Span::from_millis(3), deviation: Span::ZERO };
        assert_eq!(fixed.draw(&mut Stream::new(7, 0, "test")), Span::from_millis(3));
        assert_eq!(fixed.mean(), 0.003);
    }
}
