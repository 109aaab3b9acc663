//! A switch: tells the Oracle what its ports have carried and dropped.

use super::wire::{Body, Columns, PORTS_PER_REPORT, PortLink, PortReport, SwitchReport};
use crate::control::{Controller, Observation, Outbox, PortStats};
use crate::id::NodeId;
use crate::time::{Span, Time};

/// The role of a switch.
pub(super) struct Switch {
    oracle: NodeId,
    schedule: Schedule,
    sequence: u32,
    also: Also,
    /// Ports at the last report, and when that was.
    last: Option<(Time, Vec<PortStats>)>,
}

/// What it tells of every port besides.
#[derive(Clone, Debug, Default)]
pub(super) struct Also {
    /// Flows that are open.
    pub(super) flows: bool,
    /// Per port, in order: the node at the other end, reported with the port's capacity.
    pub(super) neighbours: Option<Vec<NodeId>>,
}

/// Regular times: `phase` after each cycle.
#[derive(Clone, Copy, Debug)]
pub(super) struct Schedule {
    cycle: Span,
    phase: Span,
    /// The next one.
    pub(super) next: Time,
}

impl Schedule {
    /// The first time is the start.
    pub(super) fn new(cycle: Span, phase: Span) -> Self {
        Self { cycle, phase, next: Time::ZERO }
    }

    /// Moves on to the first time after `now`.
    pub(super) fn advance(&mut self, now: Time) {
        let (now, cycle, phase) = (now.as_nanos(), self.cycle.as_nanos().max(1), self.phase.as_nanos());
        let passed = if now < phase { 0 } else { (now - phase) / cycle + 1 };
        self.next = Time::from_nanos(passed.saturating_mul(cycle).saturating_add(phase));
    }
}

impl Switch {
    pub(super) fn new(oracle: NodeId, cycle: Span, also: Also) -> Self {
        Self { oracle, schedule: Schedule::new(cycle, cycle.mul_f64(0.9)), sequence: 0, also, last: None }
    }

    fn report(&mut self, now: Time, ports: &[PortStats], out: &mut Outbox) {
        if let Some((since, last)) = &self.last
            && last.len() == ports.len()
        {
            let span = now.since(*since);
            for (number, chunk) in ports.chunks(PORTS_PER_REPORT).enumerate() {
                let first = number * PORTS_PER_REPORT;
                let busy =
                    chunk.iter().zip(&last[first..]).zip(0..).filter_map(|((after, before), place)| {
                        PortReport::between(before, after, span, place)
                    });
                let report = SwitchReport {
                    sequence: self.sequence,
                    first: first as u32,
                    covered: chunk.len() as u32,
                    ports: busy.collect(),
                };
                let also = self.also.of(chunk, first);
                let said = match also == Columns::default() {
                    true => Body::Switch(report),
                    false => Body::SwitchAlso(report, also),
                };
                out.send(self.oracle, &said);
            }
            self.sequence = self.sequence.wrapping_add(1);
        }
        self.last = Some((now, ports.to_vec()));
    }
}

impl Also {
    /// Of these ports, the first of which has place `first`.
    fn of(&self, ports: &[PortStats], first: usize) -> Columns {
        // For all ports, or for none.
        let count =
            || ports.iter().map(|port| port.flows.map(|flows| flows.open)).collect::<Option<Vec<u32>>>();
        let flows = if self.flows { count().unwrap_or_default() } else { Vec::new() };
        let links = self.neighbours.as_ref().map_or_else(Vec::new, |neighbours| {
            let link = |(port, to): (&PortStats, &NodeId)| PortLink {
                to: to.0,
                capacity: u32::try_from(port.capacity.bits_per_sec() / 1000).unwrap_or(u32::MAX),
            };
            ports.iter().zip(neighbours.iter().skip(first)).map(link).collect()
        });
        Columns { flows, links }
    }
}

impl Controller for Switch {
    fn on(&mut self, now: Time, observation: &Observation<'_>, out: &mut Outbox) {
        if let Observation::Tick { ports, .. } = observation {
            self.report(now, ports, out);
            self.schedule.advance(now);
        }
    }

    fn wakeup(&self) -> Option<Time> {
        Some(self.schedule.next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_regular_whenever_they_begin() {
        let mut schedule = Schedule::new(Span::from_secs(60), Span::from_secs(54));
        for (now, next) in [(0, 54), (53, 54), (54, 114), (60, 114), (200, 234)] {
            schedule.advance(Time::ZERO + Span::from_secs(now));
            assert_eq!(schedule.next, Time::ZERO + Span::from_secs(next), "after {now}");
        }
    }
}
