//! When questions leave: once a cycle, at varying times, and sooner while the path moves.

use crate::rng::Stream;
use crate::time::{Span, Time};

/// Questions a cycle that the budget is refilled with.
const REFILL: f64 = 1.08;
/// Most that it holds.
const DEPTH: f64 = 26.0;
/// Least that it keeps for the questions of every cycle.
const RESERVE: f64 = 2.0;
/// Most that a cycle is longer or shorter than T_c.
const JITTER: f64 = 0.1;

/// The times of questions.
#[derive(Clone, Debug)]
pub(in super::super) struct Pace {
    cycle: Span,
    stream: Stream,
    tokens: f64,
    refilled: Time,
    /// When the last question left.
    asked: Time,
    next: Time,
}

impl Pace {
    /// Of questions each `cycle`, at times that depend on `number`.
    pub(in super::super) fn new(cycle: Span, number: u64) -> Self {
        let stream = Stream::new(number, 0, "times of questions");
        Self { cycle, stream, tokens: DEPTH, refilled: Time::ZERO, asked: Time::ZERO, next: Time::ZERO }
    }

    pub(in super::super) const fn next(&self) -> Time {
        self.next
    }

    fn refill(&mut self, now: Time) {
        let cycles = now.since(self.refilled).as_secs_f64() / self.cycle.as_secs_f64();
        self.tokens = (self.tokens + REFILL * cycles).min(DEPTH);
        self.refilled = now;
    }

    /// True when a question may leave `now`; it is taken to do so.
    pub(in super::super) fn take(&mut self, now: Time) -> bool {
        if now < self.next {
            return false;
        }
        self.refill(now);
        if self.tokens < 1.0 {
            self.next = now + self.cycle.mul_f64((1.0 - self.tokens) / REFILL);
            return false;
        }
        self.tokens -= 1.0;
        self.asked = now;
        self.next = now + self.cycle.mul_f64(1.0 + JITTER * (2.0 * self.stream.unit() - 1.0));
        true
    }

    /// The next question leaves a quarter of a cycle after the last one while half the budget is left: it is to see whether the
    /// path moves, and when it does the other half is there.
    pub(in super::super) fn hasten_to_see(&mut self, now: Time) {
        self.refill(now);
        if self.tokens >= DEPTH / 2.0 {
            self.hasten(now, None);
        }
    }

    /// The next question leaves at `at`, or a quarter of a cycle after the last one and a fifth from now, so that it is behind
    /// what is sent from now on, if the budget allows.
    pub(in super::super) fn hasten(&mut self, now: Time, at: Option<Time>) {
        self.refill(now);
        let soon = (self.asked + self.cycle.mul_f64(0.25)).max(now + self.cycle.mul_f64(0.2));
        let at = at.unwrap_or(soon).max(now);
        if self.tokens >= RESERVE && at < self.next {
            self.next = at;
        }
    }
}

/// How often a gateway may send reports.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Budget {
    tokens: f64,
    refilled: Time,
}

impl Budget {
    const DEPTH: f64 = 6.0;
    /// A second.
    const REFILL: f64 = 0.05;

    pub(in super::super) const fn new() -> Self {
        Self { tokens: Self::DEPTH, refilled: Time::ZERO }
    }

    pub(in super::super) fn take(&mut self, now: Time) -> bool {
        self.take_of(now, 1.0)
    }

    /// The same when at least `least` are left.
    pub(in super::super) fn take_of(&mut self, now: Time, least: f64) -> bool {
        let seconds = now.since(self.refilled).as_secs_f64();
        self.tokens = (self.tokens + Self::REFILL * seconds).min(Self::DEPTH);
        self.refilled = now;
        let may = self.tokens >= least;
        if may {
            self.tokens -= 1.0;
        }
        may
    }
}
