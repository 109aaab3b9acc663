//! A round as the rules see it.

use crate::time::Time;

/// Share of W that must be sent for a round to say something of W.
pub(super) const USED: f64 = 0.85;

/// A round as the rules see it.
#[derive(Clone, Copy, Debug)]
pub(super) struct View {
    pub(super) sent: f64,
    pub(super) received: f64,
    pub(super) packets: f64,
    pub(super) lost: f64,
    /// q, s.
    pub(super) queue: f64,
    /// q*, s.
    pub(super) target: f64,
    pub(super) excess: bool,
    pub(super) standing: bool,
    pub(super) was_standing: bool,
    pub(super) rho: f64,
    pub(super) through: f64,
    /// The queue grew within the round.
    pub(super) grows: bool,
    pub(super) asked: Time,
    /// When it began.
    pub(super) began: Time,
    pub(super) answered_after: f64,
    /// W of the round, and at its end.
    pub(super) wanted: f64,
    pub(super) held: f64,
    /// The queue was not seen empty for too long.
    pub(super) stale: bool,
    pub(super) resume: Option<f64>,
    /// The path was another when the round began.
    pub(super) spans_fall: bool,
}

impl View {
    /// T_s.
    pub(super) fn span(&self) -> f64 {
        self.asked.since(self.began).as_secs_f64().max(1e-3)
    }

    pub(super) const fn busy(&self) -> bool {
        self.standing && self.was_standing
    }

    /// So much of W was sent that the round says something of it.
    pub(super) const fn is_used(&self) -> bool {
        self.sent >= USED * self.wanted
    }
}
