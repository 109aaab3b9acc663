//! A router of the data centre: notifies the allocator of the flows on its links.

use super::{LinkCount, NOT_COUNTED, Settings, Word};
use crate::control::{Controller, Observation, Outbox, PortStats};
use crate::id::{NodeId, PortId};
use crate::time::{Span, Time};

pub(super) struct Router {
    allocator: NodeId,
    /// Those of the domain.
    ports: Vec<PortId>,
    interval: Span,
    counts_open: bool,
    next: Time,
}

impl Router {
    pub(super) fn new(settings: &Settings, allocator: NodeId, ports: Vec<PortId>) -> Self {
        let interval = settings.notification;
        Self { allocator, ports, interval, counts_open: settings.counts_open, next: Time::ZERO + interval }
    }
}

impl Controller for Router {
    fn on(&mut self, now: Time, observation: &Observation<'_>, out: &mut Outbox) {
        let Observation::Tick { ports, .. } = observation else { return };
        self.next = now + self.interval;
        let count = |port: &PortStats| LinkCount {
            port: port.port,
            flows: port
                .flows
                .map_or(NOT_COUNTED, |flows| if self.counts_open { flows.open } else { flows.seen }),
            backlog: port.backlog.unwrap_or_default(),
            sent: port.sent,
        };
        let own = ports.iter().filter(|port| self.ports.contains(&port.port));
        out.send(self.allocator, &Word::Links(own.map(count).collect()));
    }

    fn wakeup(&self) -> Option<Time> {
        Some(self.next)
    }
}
