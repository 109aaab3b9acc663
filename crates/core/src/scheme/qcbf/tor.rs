//! The program of a top-of-rack router at its port to a receiver.

use super::law::{Law, Terms};
use crate::id::FlowId;
use crate::port::window::{AckVerdict, Segment, WindowProgram};
use crate::time::{Span, Time};

pub(super) struct Tor {
    law: Law,
    /// The paper's form: the window travels in a field of the data's header.
    is_field: bool,
    /// Half of the ageing time.
    interval: Span,
    next: Option<Time>,
}

impl Tor {
    pub(super) fn new(terms: Terms, is_field: bool) -> Self {
        let interval = Span::from_nanos((terms.ageing.as_nanos() / 2).max(1));
        Self { law: Law::new(terms), is_field, interval, next: None }
    }
}

impl WindowProgram for Tor {
    fn on_data(&mut self, now: Time, segment: &Segment) -> Option<u64> {
        self.law.on_data(now, segment);
        if self.next.is_none() && self.law.flows() > 0 {
            self.next = Some(now + self.interval);
        }
        self.is_field.then(|| self.law.field(segment))
    }

    fn on_ack(&mut self, now: Time, segment: &Segment) -> AckVerdict {
        if self.is_field { AckVerdict::Pass } else { self.law.on_ack(now, segment) }
    }

    fn release(&mut self) -> Option<(FlowId, u64)> {
        self.law.release()
    }

    fn timer(&self) -> Option<Time> {
        self.next
    }

    fn on_timer(&mut self, now: Time) {
        self.law.age(now);
        self.next = (self.law.flows() > 0 || self.law.outstanding() > 0).then(|| now + self.interval);
    }

    fn is_echoed(&self) -> bool {
        self.is_field
    }
}
