//! R9: what a report of the other gateway says, and for how long.

use super::super::delay::Slope;
use super::view::View;
use super::{BELOW, DEEP, PACKET, RETURNS, Robust};
use crate::time::{Span, Time};

/// Part of what waits after a report that is to have gone before the next answer.
const YIELDS: f64 = 0.8;
/// Seconds in which a queue that a report left is to have gone, if it may.
const GONE_IN: f64 = 1.2;
/// A report so soon after another says the same more exactly.
const EXACT: Span = Span::from_millis(1_500);
/// More than W by this comes only while a queue drains.
const DRAINS_BY: f64 = 1.15;
/// For so long what came after a report says what is free, when rounds say nothing else by `ELSE`.
const TOLD_FOR: Span = Span::from_secs(5);
/// Seconds of queueing that answers may have after a report.
const REPORTED: f64 = 0.6;
/// So long after a report what was sent since, and still waits, says what the path carries.
const CARRIES_FROM: Span = Span::from_millis(500);
/// Least share of a report that this leaves.
const LEAST_CARRIED: f64 = 0.7;
/// Bits that must still wait for a queue to have stood all the time.
const STOOD: f64 = 2.0 * PACKET;

/// What was sent after a fall that was reported.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flood {
    /// When the report came.
    pub(super) told: Time,
    /// Bit/s until then.
    sent: f64,
    /// For how long, s.
    lasted: f64,
}

impl Robust {
    /// R9: W after a report at `now` of `received`, measured over `seconds`, when at least `sent` was sent all the time. Of a
    /// path that carries less than a packet in that time nothing is known.
    pub(in super::super) fn report(
        &mut self,
        now: Time,
        estimate: f64,
        sent: f64,
        received: f64,
        seconds: f64,
    ) -> f64 {
        let least = PACKET / seconds.max(1e-3);
        let through = received.max(least) / (1.0 - self.noise.share());
        self.past.amend(estimate);
        if let Some(next) = self.correct(now, estimate, sent, through, seconds) {
            return next;
        }
        let is_more = sent > 1.25 * through && (sent - through) * seconds > 2.0 * PACKET;
        if !is_more || estimate < 1.05 * through {
            return estimate;
        }
        self.before.get_or_insert(estimate);
        (self.free, self.slope, self.starting, self.streak) = (None, Slope::default(), false, 0);
        self.fall(now, estimate, through);
        self.anchor = None;
        self.told = true;
        self.cut = Some(now);
        self.hurry = 5;
        self.flood = Some(Flood { told: now, sent, lasted: 1.5 * seconds + self.rtt() });
        self.yielded(now, estimate, through)
    }

    /// R9c: W after a report of `through` that came soon after another, when it says the same more exactly: all that it counted was
    /// sent before W was cut, or more came than was sent then, or than the first said, or less, and a queue has stood since.
    fn correct(&mut self, now: Time, estimate: f64, sent: f64, through: f64, seconds: f64) -> Option<f64> {
        let flood = self.flood.filter(|flood| now.since(flood.told) < EXACT && through < flood.sent)?;
        // What it counted left a round-trip time ago, if there was no queue.
        let back = |seconds: f64| {
            let nanos = now.as_nanos().saturating_sub(Span::from_secs_f64(seconds).as_nanos());
            Time::from_nanos(nanos).max(flood.told)
        };
        let wanted = self.past.mean(back(seconds + self.rtt()), back(self.rtt())).unwrap_or(estimate);
        let since = now.since(flood.told).as_secs_f64() - self.rtt;
        let was_before = since < 0.0
            || through > DRAINS_BY * wanted.min(estimate)
            || through < self.peak && self.has_stood(flood, sent, through, since);
        if !(was_before || through > self.peak) {
            return None;
        }
        self.peak = through;
        self.dips.correct(through);
        let next = self.yielded(now, estimate, through);
        Some(if was_before { next } else { next.max(estimate) })
    }

    /// Bits that waited when the last report came, if `through` came.
    fn waited(&self, flood: Flood, through: f64) -> f64 {
        ((flood.sent - through).max(0.0) * flood.lasted).min(self.full)
    }

    /// Whether some of what waited still does after so many seconds in which `through` came, though no more than `sent`
    /// followed it. Of a path whose queue is not known nothing is known.
    fn has_stood(&self, flood: Flood, sent: f64, through: f64, seconds: f64) -> bool {
        let drained = (through - sent).max(0.0) * seconds;
        self.full.is_finite() && self.waited(flood, through) - drained > STOOD
    }

    /// Seconds of queue when the last report came, if `through` came, and by `now`.
    fn waiting(&self, now: Time, flood: Flood, through: f64) -> (f64, f64) {
        let waits = self.waited(flood, through) / through;
        let parts = self.past.between(flood.told, now);
        (waits, parts.fold(waits, |queue, (w, seconds)| queue + (w / through - 1.0) * seconds))
    }

    /// R9d: what is free, by a report that is not old, at `asked`.
    pub(super) fn known(&self, asked: Time) -> Option<f64> {
        let is_new = |flood: &Flood| asked.since(flood.told) < TOLD_FOR;
        self.flood.filter(|flood| is_new(flood) && !self.dips.were_short(asked)).map(|_| self.peak)
    }

    /// R9b: W after a report that `through` comes: what was sent above it since the fall waits by now, and most of it has gone when
    /// the next answer has come through it.
    fn yielded(&mut self, now: Time, estimate: f64, through: f64) -> f64 {
        let Some(flood) = self.flood else { return estimate };
        self.reported = Some(through);
        let (waits, rest) = self.waiting(now, flood, through);
        let until = (flood.told + Span::from_secs_f64(waits + self.rtt())).since(now).as_secs_f64();
        self.expected = self.expected.max(REPORTED).max(1.3 * waits);
        // Where falls are short, what waits may drain when this one is over.
        let deep = if self.dips.were_short(now) { 1.0 - BELOW } else { DEEP };
        let share = (YIELDS * rest / until.max(0.05)).min(waits / GONE_IN).clamp(1.0 - BELOW, deep);
        self.proven = through * (1.0 - share);
        self.past.set(now, self.proven);
        self.proven
    }

    /// R9a: the most that the path has carried since the last report, when a round ends with a queue that has stood since then: all
    /// that waited or was sent, but for what still waits.
    fn carried(&self, view: &View) -> f64 {
        let Some(flood) = self.flood.filter(|flood| view.asked > flood.told + CARRIES_FROM) else {
            return f64::INFINITY;
        };
        let waited = self.waited(flood, self.peak);
        let sent: f64 = self.past.between(flood.told, view.asked).map(|(w, seconds)| w * seconds).sum();
        (waited + sent) / (view.asked.since(flood.told).as_secs_f64() + view.queue)
    }

    /// R9a: W after a report, when a round that began before it says how long the queue is now.
    pub(super) fn reported(&mut self, estimate: f64, view: &View) -> f64 {
        if !view.standing {
            return estimate.max(RETURNS * self.peak);
        }
        self.peak = self.peak.min(self.carried(view).max(LEAST_CARRIED * self.peak));
        let through = self.peak;
        let capacity = self.others * through;
        let now = view.asked + Span::from_secs_f64(view.answered_after);
        let parts = self.past.between(view.asked, now);
        let ahead = parts
            .fold(view.queue, |queue, (w, seconds)| (queue + (w - through) / capacity * seconds).max(0.0));
        self.aim(through, capacity, ahead, true, &View { through, ..*view })
    }
}
