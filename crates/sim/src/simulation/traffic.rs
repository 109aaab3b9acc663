//! Flows that start, send and stop.

use bandmaster_core::control::FlowEnd;
use bandmaster_core::scenario::Transport;
use bandmaster_core::time::Time;
use bandmaster_core::units::UDP_HEADERS;

use super::{Simulation, transfer_size};
use crate::events::Event;
use crate::packet::Packet;
use crate::routes::route_ports;
use crate::tcp::multipath::{Share, Shared};
use crate::tcp::sender::Sender;

impl Simulation<'_> {
    pub(super) fn start(&mut self, flow: u32) {
        if let Some((target, is_last)) = self.rounds.target(flow)
            && self.connections.get(flow as usize).is_some()
        {
            self.rounds.open(flow, 0, self.net.now);
            self.give(flow, target, !is_last);
            return;
        }
        let sends = self.has_node(self.flows.plans[flow as usize].src);
        if sends && let Some(length) = self.flows.toggles.start(flow as usize) {
            self.net.schedule(self.net.now + length, Event::Toggle(flow));
        }
        if flow as usize >= self.connections.flows() {
            self.set_udp(flow as usize - self.connections.flows(), true);
            return;
        }
        if self.exchanges.contains(flow) {
            for flow in self.exchanges.enter(flow) {
                self.send_message(flow);
            }
            return;
        }
        let groups = &self.scenario.flows;
        let first = flow as usize;
        let group = self.flows.plans[first].group(groups);
        if !self.control.runner.is_empty() {
            self.tune(flow);
        }
        let profile = self.flows.profile(first);
        let mut earlier = None;
        if let Some(multipath) = group.multipath {
            let Transport::Tcp { settings, .. } = &group.transport else { return };
            let mut new =
                Shared::new(multipath, self.size(first), profile.mss, settings.receive_buffer.get());
            if !(sends && self.has_node(self.flows.plans[first].dst)) {
                new.set_apart();
            }
            if let Some(share) = self.flows.shares[first] {
                let before = std::mem::replace(&mut self.net.multipath[share.connection], new);
                earlier = Some(before.received());
            } else {
                let connection = self.net.multipath.len();
                self.net.multipath.push(new);
                for subflow in 0..multipath.subflows as usize {
                    self.flows.shares[first + subflow] = Some(Share { connection, subflow });
                }
            }
        }
        if self.rounds.contains(flow) {
            let subflows = group.multipath.map_or(1, |multipath| multipath.subflows);
            for i in first..first + subflows as usize {
                if !self.control.runner.is_empty() {
                    self.note_replaced(i as u32);
                }
                self.forget_late(i as u32);
                let delivered = self.connections.replace(i, || self.flows.connect(i, groups));
                if i == first {
                    self.rounds.open(flow, earlier.unwrap_or(delivered), self.net.now);
                }
            }
        }
        if !sends {
            return;
        }
        self.announce(flow, self.flows.plans[flow as usize].src, FlowEnd::Sender);
        let keeps_open = matches!(self.rounds.target(flow), Some((_, false)));
        if keeps_open && let Some(size) = transfer_size(group) {
            self.give(flow, size, true);
        }
        self.with_sender(flow, Sender::open);
    }

    /// A persistent connection gets the data of the next round or message.
    pub(super) fn give(&mut self, flow: u32, total: u64, keeps_open: bool) {
        let sends = self.has_node(self.flows.plans[flow as usize].src);
        if let Some(share) = self.flows.share(flow as usize) {
            self.net.multipath[share.connection].give(total, keeps_open);
            if sends {
                self.push_data(flow, false);
            }
        } else if sends {
            self.with_sender(flow, |sender, profile, net| sender.give(total, keeps_open, profile, net));
        }
    }

    pub(super) fn stop(&mut self, flow: u32) {
        self.flows.toggles.stop(flow as usize);
        if flow as usize >= self.connections.flows() {
            self.set_udp(flow as usize - self.connections.flows(), false);
        } else if self.flows.plans[flow as usize].group(&self.scenario.flows).reset {
            let group = self.flows.plans[flow as usize].group(&self.scenario.flows);
            for flow in flow..flow + group.multipath.map_or(1, |multipath| multipath.subflows) {
                self.with_sender(flow, Sender::reset);
            }
        } else if let Some(share) = self.flows.share(flow as usize) {
            let total = self.net.multipath[share.connection].end();
            self.tell_of_end(flow, total);
            self.push_data(flow, false);
        } else {
            self.with_sender(flow, Sender::close);
        }
    }

    pub(super) fn toggle(&mut self, flow: u32) {
        let Some((on, length)) = self.flows.toggles.turn(flow as usize) else { return };
        self.net.schedule(self.net.now + length, Event::Toggle(flow));
        if flow as usize >= self.connections.flows() {
            self.set_udp(flow as usize - self.connections.flows(), on);
        } else {
            self.with_sender(flow, |sender, profile, net| sender.set_paused(!on, profile, net));
        }
    }

    fn set_udp(&mut self, index: usize, on: bool) {
        let source = &mut self.udp.sources[index];
        if source.on == on {
            return;
        }
        source.on = on;
        if on {
            source.restart(self.net.now);
            self.net.events.push(source.next, Event::Datagram(index as u32));
        }
        match &mut self.part {
            Some(part) => part.turns.push((self.net.now, index as u32, on, source.route)),
            None => {
                let route = source.route;
                self.meter_turn(self.net.now, index, on, route);
            }
        }
    }

    /// Tells the meters of a source that goes on or off, on the way at place `route`.
    pub(crate) fn meter_turn(&mut self, at: Time, index: usize, on: bool, route: u32) {
        let source = &self.udp.sources[index];
        let group = self.flows.plans[source.flow as usize].group(&self.scenario.flows);
        self.meters.turn(at, group, route_ports(&self.net.routes, route), on);
    }

    pub(super) fn datagram(&mut self, index: u32) {
        let source = &mut self.udp.sources[index as usize];
        // A stale event of an earlier on time comes at another time than the source expects.
        if !source.on || source.next != self.net.now {
            return;
        }
        source.advance();
        let overhead = self.scenario.topology.frame_overhead.get() as u32;
        let packet = Packet {
            hop: source.route,
            flow: source.flow,
            len: source.packet + overhead,
            payload: (source.packet - UDP_HEADERS) as u16,
            tos: source.tos,
            ..Packet::default()
        };
        self.net.events.push(source.next, Event::Datagram(index));
        self.net.send(packet);
    }
}
