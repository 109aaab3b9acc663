//! W as it was in force: an answer tells of the W of its round, not of the W of now.

use std::collections::VecDeque;

use crate::time::Time;

/// What W has been lately, oldest first: since when, and bit/s.
#[derive(Clone, Debug, Default)]
pub(super) struct Past(VecDeque<(Time, f64)>);

impl Past {
    /// Changes that are remembered: some 16 s of rounds of a quarter of a second.
    const MOST: usize = 64;

    /// What is in force: bounds are those of the caller.
    pub(super) fn amend(&mut self, estimate: f64) {
        match self.0.back_mut() {
            Some((_, last)) => *last = estimate,
            None => self.0.push_back((Time::ZERO, estimate)),
        }
    }

    /// W is `estimate` from `now` on.
    pub(super) fn set(&mut self, now: Time, estimate: f64) {
        while self.0.back().is_some_and(|(since, _)| *since >= now) {
            self.0.pop_back();
        }
        if self.0.len() == Self::MOST {
            self.0.pop_front();
        }
        self.0.push_back((now, estimate));
    }

    /// W at `at`; the oldest that is known before that. None when nothing was ever set.
    pub(super) fn at(&self, at: Time) -> Option<f64> {
        let then = self.0.iter().rev().find(|(since, _)| *since <= at);
        then.or(self.0.front()).map(|(_, estimate)| *estimate)
    }

    /// Each W in force between two times, with its seconds.
    pub(super) fn between(&self, from: Time, to: Time) -> impl Iterator<Item = (f64, f64)> + '_ {
        let ends = self.0.iter().skip(1).map(|(since, _)| *since).chain([Time::MAX]);
        let parts = self.0.iter().zip(ends).enumerate();
        parts.filter_map(move |(i, ((since, estimate), end))| {
            // Nothing is known from before the oldest.
            let begin = if i == 0 { from } else { (*since).max(from) };
            let end = end.min(to);
            (begin < end).then(|| (*estimate, end.since(begin).as_secs_f64()))
        })
    }

    /// The mean W between two times.
    pub(super) fn mean(&self, from: Time, to: Time) -> Option<f64> {
        let (sum, seconds) =
            self.between(from, to).fold((0.0, 0.0), |(sum, all), (w, part)| (sum + w * part, all + part));
        if seconds > 0.0 { Some(sum / seconds) } else { self.at(to) }
    }
}
