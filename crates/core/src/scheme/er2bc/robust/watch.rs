//! R9: both gateways look at their own counters between questions.

use std::collections::VecDeque;

use super::pace::Budget;
use crate::control::Passed;
use crate::time::{Span, Time};

/// How often the sender looks.
pub(in super::super) const POLL: Span = Span::from_millis(50);
/// How often the receiver does: it is the one that sees a fall.
pub(in super::super) const LOOK: Span = Span::from_millis(25);

/// What has passed at the last looks, oldest first.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct Looks(VecDeque<(Time, u64)>);

impl Looks {
    const MOST: usize = 64;

    /// Adds a look. Counters that went back clear the earlier looks.
    pub(in super::super) fn add(&mut self, now: Time, passed: Passed) {
        if self.0.back().is_some_and(|&(at, bytes)| passed.bytes < bytes || now < at) {
            self.0.clear();
        }
        if self.0.len() == Self::MOST {
            self.0.pop_front();
        }
        self.0.push_back((now, passed.bytes));
    }

    /// Rate in bit/s and seconds between the looks `from` and `to` back from the last; none when there are too few.
    fn rate(&self, from: usize, to: usize) -> Option<(f64, f64)> {
        let at = |back: usize| self.0.len().checked_sub(back + 1).and_then(|i| self.0.get(i)).copied();
        let ((start, first), (end, last)) = (at(from)?, at(to)?);
        let seconds = end.since(start).as_secs_f64();
        (seconds > 0.0).then(|| ((last - first) as f64 * 8.0 / seconds, seconds))
    }

    /// The same since the look at `at`.
    fn since(&self, at: Time) -> Option<(f64, f64)> {
        let back = self.0.iter().rev().position(|(look, _)| *look <= at)?;
        self.rate(back, 0)
    }

    /// The least rate over tenths of the last `seconds`, or of what is remembered, bit/s; none when less than three are known.
    pub(in super::super) fn least(&self, seconds: f64) -> Option<f64> {
        let tenths = (3.0f64.max(seconds * 10.0)) as usize + 1;
        let rates = (0..tenths).map_while(|tenth| self.rate(2 * tenth + 2, 2 * tenth));
        let (known, least) = rates.fold((0, f64::INFINITY), |(n, least), (rate, _)| (n + 1, least.min(rate)));
        (known >= 3).then_some(least)
    }
}

/// What a watching gateway says: the rate, bit/s, and the seconds over which it was measured.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(in super::super) struct Fall {
    pub(in super::super) rate: f64,
    pub(in super::super) seconds: f64,
}

/// Sees the rate of arrivals fall.
#[derive(Clone, Debug)]
pub(in super::super) struct Watch {
    looks: Looks,
    budget: Budget,
    told: Option<(Time, f64)>,
    /// It was measured over few packets, or over less than a look of the time since the fall.
    is_rough: bool,
}

impl Watch {
    /// Looks that are compared with those before them, 0.05 to 0.8 s, and how many packets must have been due in them. The shortest
    /// takes many: what comes in bursts is not always there.
    const WINDOWS: [(usize, f64); 5] = [(2, 40.0), (4, 10.0), (8, 10.0), (16, 10.0), (32, 10.0)];
    /// Looks before a window that say what the rate was: half a second.
    const BEFORE: usize = 20;
    /// Bits of a packet.
    const PACKET: f64 = 12e3;
    /// The rate fell when it is below this share of what it was, and three standard deviations of a Poisson count below it.
    const FELL: f64 = 0.65;
    const SIGMAS: f64 = 3.0;
    /// A second report within this time needs half the rate again.
    const PAUSE: Span = Span::from_millis(700);

    /// A report is exact after 20 packets; after 0.3 s with 10; after 0.8 s with fewer.
    const ENOUGH: [(f64, f64); 3] = [(0.0, 20.0), (0.3, 10.0), (0.8, 0.0)];
    /// It needs so much of the budget: falls are worth more.
    const SPARE: f64 = 4.0;
    /// What is so far from the report before is news.
    const NEWS: f64 = 0.05;

    pub(in super::super) const fn new() -> Self {
        Self { looks: Looks(VecDeque::new()), budget: Budget::new(), told: None, is_rough: false }
    }

    /// Looks at `now`. What is to be reported, if anything, counts as such.
    pub(in super::super) fn look(&mut self, now: Time, passed: Passed) -> Option<Fall> {
        self.looks.add(now, passed);
        if let Some(exact) = self.exact(now) {
            return Some(exact);
        }
        for (window, enough) in Self::WINDOWS {
            let (before, _) = self.looks.rate(window + Self::BEFORE, window)?;
            let (lately, seconds) = self.looks.rate(window, 0)?;
            let due = before * seconds / Self::PACKET;
            let came = lately * seconds / Self::PACKET;
            if due >= enough && came >= Self::FELL * due {
                return None;
            }
            if due < enough || came >= due - Self::SIGMAS * libm::sqrt(due) {
                continue;
            }
            // The first half of the window may have been from before the fall.
            let (rate, seconds) = self.looks.rate(window / 2, 0)?;
            let is_news = self.told.is_none_or(|(at, told)| now.since(at) > Self::PAUSE || rate < 0.5 * told);
            if !is_news || !self.budget.take(now) {
                return None;
            }
            (self.told, self.is_rough) = (Some((now, rate)), true);
            return Some(Fall { rate, seconds });
        }
        None
    }

    /// What is to be reported once more, since more packets have come by now.
    fn exact(&mut self, now: Time) -> Option<Fall> {
        let (at, told) = self.told.filter(|_| self.is_rough)?;
        let (rate, seconds) = self.looks.since(at)?;
        let came = rate * seconds / Self::PACKET;
        if !Self::ENOUGH.iter().any(|&(least, packets)| seconds >= least && came >= packets) {
            return None;
        }
        self.is_rough = false;
        if (rate / told.max(1.0) - 1.0).abs() < Self::NEWS || !self.budget.take_of(now, Self::SPARE) {
            return None;
        }
        self.told = Some((at, rate));
        Some(Fall { rate, seconds })
    }
}
