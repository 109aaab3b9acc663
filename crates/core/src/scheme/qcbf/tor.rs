//! The program of a top-of-rack router at its port to a receiver.

use super::law::{Law, Terms};
use crate::id::FlowId;
use crate::port::window::{AckVerdict, Segment, WindowProgram};
use crate::time::{Span, Time};

pub(super) struct Tor {
    law: Law,
    /// The paper's form: the window travels in a field of the data's header.
    is_field: bool,
    /// Algorithm 1's slow-start threshold at a timeout.
    divides: bool,
    /// Half of the ageing time.
    interval: Span,
    next: Option<Time>,
    /// When those that wait for a turn may go although no packet comes.
    retry: Option<Time>,
    /// Flows whose windows are to be closed.
    closed: Vec<FlowId>,
}

impl Tor {
    pub(super) fn new(terms: Terms, is_field: bool, divides: bool) -> Self {
        let interval = Span::from_nanos((terms.ageing.as_nanos() / 2).max(1));
        Self {
            law: Law::new(terms),
            is_field,
            divides,
            interval,
            next: None,
            retry: None,
            closed: Vec::new(),
        }
    }
}

impl WindowProgram for Tor {
    fn on_data(&mut self, now: Time, segment: &Segment, held: u64) -> Option<u64> {
        self.law.see(now, held);
        self.law.on_data(now, segment);
        if self.is_field && !segment.syn {
            self.law.own(segment.frame);
        }
        if self.next.is_none() && !self.law.is_empty() {
            self.next = Some(now + self.interval);
        }
        self.is_field.then(|| self.law.field(segment))
    }

    fn on_ack(&mut self, now: Time, segment: &Segment, held: u64) -> AckVerdict {
        if self.is_field {
            return AckVerdict::Pass;
        }
        self.law.see(now, held);
        self.law.on_ack(now, segment)
    }

    fn release(&mut self) -> Option<(FlowId, u64)> {
        if let Some(flow) = self.closed.pop() {
            return Some((flow, 0));
        }
        let released = self.law.release();
        if released.is_none() {
            self.retry = self.law.retry();
        }
        released
    }

    fn timer(&self) -> Option<Time> {
        self.next.into_iter().chain(self.retry).min()
    }

    fn on_timer(&mut self, now: Time, held: u64) {
        self.law.see(now, held);
        if self.next.is_some_and(|next| next <= now) {
            match self.is_field {
                true => self.law.forget(now),
                false => self.closed.extend(self.law.age(now)),
            }
            self.next = (!self.law.is_empty()).then(|| now + self.interval);
        }
        if self.retry.is_some_and(|retry| retry <= now) {
            self.retry = None;
        }
    }

    fn is_echoed(&self) -> bool {
        self.is_field
    }

    fn divides_at_timeout(&self) -> bool {
        self.is_field && self.divides
    }
}
