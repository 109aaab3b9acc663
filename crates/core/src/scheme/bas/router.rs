//! A router of the data centre: notifies the allocator of the flows on its links.

use super::Settings;
use crate::control::{Action, Controller, LinkCount, Message, Observation, Outbox, Wakeup};
use crate::id::NodeId;
use crate::time::{Span, Time};

pub(super) struct Router {
    allocator: NodeId,
    interval: Span,
    counts_open: bool,
    next: Time,
}

impl Router {
    pub(super) fn new(settings: &Settings, allocator: NodeId) -> Self {
        let interval = settings.notification;
        Self { allocator, interval, counts_open: settings.counts_open, next: Time::ZERO + interval }
    }
}

impl Controller for Router {
    fn on(&mut self, now: Time, observation: &Observation<'_>, out: &mut Outbox) {
        let Observation::Tick { ports, .. } = observation else { return };
        self.next = now + self.interval;
        let count = |port: &crate::control::PortStats| LinkCount {
            port: port.port,
            capacity: port.capacity,
            flows: if self.counts_open { port.flows_open } else { port.flows_seen },
            backlog: port.backlog,
        };
        let message = Message::LinkReport { links: ports.iter().map(count).collect() };
        out.push(Action::Send { to: self.allocator, message, reason: "notification interval" });
    }

    fn wakeup(&self) -> Option<Wakeup> {
        Some(Wakeup { at: self.next, why: "notification interval" })
    }
}
