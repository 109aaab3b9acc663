//! Times as a cumulative distribution, linear between a few points.

use std::fmt;

use serde::ser::{Serialize, Serializer};

use crate::rng::Stream;
use crate::time::Span;

/// Points of a distribution at most.
pub const MOST_POINTS: usize = 8;
/// Shares are whole millionths.
const WHOLE: u32 = 1_000_000;

/// A distribution of times: the share of them up to each of its points, linear between the points. It has the bound that
/// delays need.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SpanCdf {
    times: [Span; MOST_POINTS],
    /// Shares up to them in millionths; both ascend up to the first that is the whole.
    shares: [u32; MOST_POINTS],
}

impl SpanCdf {
    /// The distribution with these times and the shares up to them, from 0 to 1. A share above 0 at the first is that of
    /// exactly this time.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn new(written: &[(Span, f64)]) -> Result<Self, &'static str> {
        if written.is_empty() || written.len() > MOST_POINTS {
            return Err(
                "needs 1 to 8 points, each a time and the share up to it, as in \"cdf(10us 0.5, 20us 0.9, 1ms 1)\"",
            );
        }
        let (mut times, mut shares) = ([Span::ZERO; MOST_POINTS], [0; MOST_POINTS]);
        for (i, (time, share)) in written.iter().enumerate() {
            if !(0.0..=1.0).contains(share) {
                return Err("has a share that is not between 0 and 1");
            }
            (times[i], shares[i]) = (*time, (share * f64::from(WHOLE)).round() as u32);
        }
        let used = written.len();
        if !times[..used].is_sorted() || !shares[..used].is_sorted() {
            return Err("has points that do not ascend, in time and in share");
        }
        if shares[used - 1] != WHOLE {
            return Err("does not end at the share 1");
        }
        Ok(Self { times, shares })
    }

    /// Those up to the first with all times.
    fn points(&self) -> impl Iterator<Item = (Span, u32)> {
        let used = self.last() + 1;
        self.times.into_iter().zip(self.shares).take(used)
    }

    const fn last(&self) -> usize {
        let mut i = 0;
        while self.shares[i] != WHOLE {
            i += 1;
        }
        i
    }

    /// Draws a time.
    pub(crate) fn draw(&self, stream: &mut Stream) -> Span {
        let share = stream.unit() * f64::from(WHOLE);
        let after = self.shares.iter().position(|up_to| f64::from(*up_to) > share).unwrap_or(self.last());
        let (time, up_to) = (self.times[after], self.shares[after]);
        match after.checked_sub(1).map(|before| (self.times[before], self.shares[before])) {
            Some((below, from)) => {
                below
                    + time.saturating_sub(below).mul_f64((share - f64::from(from)) / f64::from(up_to - from))
            }
            None => time,
        }
    }

    /// The mean in seconds.
    pub(crate) fn mean(&self) -> f64 {
        let (mut mean, mut before) = (0.0, (self.times[0], 0));
        for (time, up_to) in self.points() {
            let between = (before.0.as_secs_f64() + time.as_secs_f64()) / 2.0;
            mean += between * f64::from(up_to - before.1) / f64::from(WHOLE);
            before = (time, up_to);
        }
        mean
    }

    /// The largest time.
    pub(crate) const fn largest(&self) -> Span {
        self.times[self.last()]
    }
}

impl fmt::Display for SpanCdf {
    /// As a scenario writes it, in microseconds.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let point = |(time, up_to): (Span, u32)| {
            format!("{}us {}", time.as_nanos() as f64 / 1e3, f64::from(up_to) / f64::from(WHOLE))
        };
        write!(f, "cdf({})", self.points().map(point).collect::<Vec<_>>().join(", "))
    }
}

impl Serialize for SpanCdf {
    /// As text.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: fn(u64) -> Span = Span::from_micros;

    #[test]
    fn draws_have_the_shares_and_the_mean() {
        let cdf = SpanCdf::new(&[(US(10), 0.25), (US(20), 0.75), (US(20), 0.9), (US(100), 1.0)]).unwrap();
        let mut stream = Stream::new(3, 0, "cdf");
        let draws: Vec<Span> = (0..100_000).map(|_| cdf.draw(&mut stream)).collect();
        let share = |of: &dyn Fn(Span) -> bool| draws.iter().filter(|draw| of(**draw)).count() as f64 / 1e5;
        assert!((share(&|draw| draw == US(10)) - 0.25).abs() < 0.01);
        assert!((share(&|draw| draw < US(15)) - 0.5).abs() < 0.01);
        assert!((share(&|draw| draw == US(20)) - 0.15).abs() < 0.01);
        assert!((share(&|draw| draw > US(60)) - 0.05).abs() < 0.01);
        assert!(draws.iter().all(|draw| (US(10)..=US(100)).contains(draw)));
        let mean = draws.iter().map(|draw| draw.as_secs_f64()).sum::<f64>() / 1e5;
        // 10 x .25 + 15 x .5 + 20 x .15 + 60 x .1
        assert!((cdf.mean() - 19e-6).abs() < 1e-12 && (mean - 19e-6).abs() < 0.3e-6, "{} {mean}", cdf.mean());
        assert_eq!(cdf.largest(), US(100));
        assert_eq!(cdf.to_string(), "cdf(10us 0.25, 20us 0.75, 20us 0.9, 100us 1)");
    }

    #[test]
    fn one_point_is_a_fixed_time() {
        let cdf = SpanCdf::new(&[(US(7), 1.0)]).unwrap();
        assert_eq!((cdf.draw(&mut Stream::new(1, 0, "")), cdf.largest()), (US(7), US(7)));
        assert!((cdf.mean() - 7e-6).abs() < 1e-15);
    }

    #[test]
    fn what_is_no_distribution_is_refused() {
        let why = |points: &[(Span, f64)]| SpanCdf::new(points).unwrap_err();
        assert!(why(&[]).contains("1 to 8 points") && why(&[(US(1), 1.0); 9]).contains("1 to 8 points"));
        assert!(why(&[(US(1), 0.5), (US(2), 0.9)]).contains("end at the share 1"));
        assert!(why(&[(US(2), 0.5), (US(1), 1.0)]).contains("ascend"));
        assert!(why(&[(US(1), 0.5), (US(2), 0.4), (US(3), 1.0)]).contains("ascend"));
        assert!(why(&[(US(1), 1.5)]).contains("between") && why(&[(US(1), f64::NAN)]).contains("between"));
    }
}
