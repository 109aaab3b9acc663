//! Simulated and monotonic time as integer nanoseconds.
//!
//! Nanoseconds in 64 bits order 64-byte frames at 100 Gbit/s (5 ns apart) and last 584 years.

use core::fmt;
use core::ops::{Add, AddAssign, Mul, Sub};

/// A point in time: nanoseconds since the start of the run (simulation) or of the daemon (deployment).
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, serde::Serialize, serde::Deserialize,
)]
#[serde(transparent)]
pub struct Time(u64);

/// A length of time in nanoseconds. Never negative.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, serde::Serialize, serde::Deserialize,
)]
#[serde(transparent)]
pub struct Span(u64);

impl Time {
    /// The start of the run.
    pub const ZERO: Self = Self(0);
    /// Later than every time that a run reaches.
    pub const MAX: Self = Self(u64::MAX);

    /// The time `nanos` nanoseconds after the start.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the start.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Seconds since the start, for reports.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// Time since `earlier`, or zero when `earlier` is later.
    pub const fn since(self, earlier: Self) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }

    /// The first multiple of `step`, from the start on, that is not earlier.
    #[must_use]
    pub const fn up_to(self, step: Span) -> Self {
        Self(Span(self.0).up_to(step).0)
    }

    /// The earlier of two times.
    #[must_use]
    pub fn min(self, other: Self) -> Self {
        Ord::min(self, other)
    }

    /// The later of two times.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Ord::max(self, other)
    }
}

impl Span {
    /// No time at all.
    pub const ZERO: Self = Self(0);
    /// The longest span.
    pub const MAX: Self = Self(u64::MAX);

    /// A span of nanoseconds.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// A span of microseconds.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros.saturating_mul(1_000))
    }

    /// A span of milliseconds.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// A span of seconds.
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1_000_000_000))
    }

    /// The nearest span to `secs` seconds; negative and not-a-number give zero.
    pub fn from_secs_f64(secs: f64) -> Self {
        Self(libm::round(secs.max(0.0) * 1e9) as u64)
    }

    /// The shortest whole number of steps of `step` that is not shorter.
    #[must_use]
    pub const fn up_to(self, step: Self) -> Self {
        match self.0.checked_next_multiple_of(step.0) {
            Some(nanos) => Self(nanos),
            None => self,
        }
    }

    /// Length in nanoseconds.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Length in seconds.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// True for the empty span.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// The difference, or zero.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// `self` scaled by a non-negative factor.
    #[must_use]
    pub fn mul_f64(self, factor: f64) -> Self {
        Self::from_secs_f64(self.as_secs_f64() * factor)
    }
}

impl Add<Span> for Time {
    type Output = Self;
    fn add(self, span: Span) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

impl AddAssign<Span> for Time {
    fn add_assign(&mut self, span: Span) {
        *self = *self + span;
    }
}

impl Sub<Span> for Time {
    type Output = Self;
    fn sub(self, span: Span) -> Self {
        Self(self.0.saturating_sub(span.0))
    }
}

impl Add for Span {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Span {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Mul<u64> for Span {
    type Output = Self;
    fn mul(self, factor: u64) -> Self {
        Self(self.0.saturating_mul(factor))
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Span(self.0))
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Span(self.0))
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// Prints in the largest unit that needs no rounding, in the form that scenario files accept.
impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(u64, &str); 4] = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us"), (1, "ns")];
        let (scale, unit) =
            UNITS.into_iter().find(|(scale, _)| self.0.is_multiple_of(*scale)).unwrap_or((1, "ns"));
        write!(f, "{}{unit}", self.0 / scale)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_print_in_the_largest_exact_unit() {
        assert_eq!(Span::from_secs(20).to_string(), "20s");
        assert_eq!(Span::from_millis(1500).to_string(), "1500ms");
        assert_eq!(Span::from_nanos(12_016).to_string(), "12016ns");
        assert_eq!(Span::ZERO.to_string(), "0s");
    }

    #[test]
    fn arithmetic_saturates_at_both_ends() {
        assert_eq!(Time::ZERO - Span::from_secs(1), Time::ZERO);
        assert_eq!(Time::MAX + Span::from_secs(1), Time::MAX);
        assert_eq!(Time::from_nanos(5).since(Time::from_nanos(9)), Span::ZERO);
    }
}
