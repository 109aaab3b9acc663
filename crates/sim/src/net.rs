//! The packet plane: clock, events, ports, packets, routes.

use bandmaster_core::measure::delays::Delays;
use bandmaster_core::measure::rtt::RttSketch;
use bandmaster_core::time::{Span, Time};

use crate::events::{Event, EventQueue};
use crate::link::Port;
use crate::packet::{Label, Packet, Slab};
use crate::tcp::multipath::Shared;

/// Ends a route in the table.
pub(crate) const ROUTE_END: u32 = u32::MAX;

/// On the place in the table of routes: it is that of the second port, and [`Net::starts`] has the first.
pub(crate) const TAIL: u32 = 1 << 31;

pub(crate) struct Net {
    pub(crate) now: Time,
    pub(crate) events: EventQueue,
    pub(crate) ports: Vec<Port>,
    pub(crate) slab: Slab,
    /// Routes as runs of port numbers, each closed by [`ROUTE_END`].
    pub(crate) routes: Vec<u32>,
    /// By flow, for those whose ways share all but the first port: that port of the data, and of what comes back.
    pub(crate) starts: Vec<[u32; 2]>,
    /// Packets offered to ports so far.
    pub(crate) offered: u64,
    /// How many data packets left with each congestion window in segments; empty when nobody asks.
    pub(crate) windows: Vec<u64>,
    /// Round-trip times that each TCP flow's sender has measured; empty when nobody asks.
    pub(crate) rtts: Vec<RttSketch>,
    /// Delays of the sampling interval under way, when percentiles are asked for. Then there are `rtts` too.
    pub(crate) delays: Option<Box<Delays>>,
    /// By multipath connection: the state that its subflows share, at both ends.
    pub(crate) multipath: Vec<Shared>,
    /// Keys of probes that a fault took before the event that tells of their departure.
    pub(crate) untold: Vec<u32>,
}

impl Net {
    /// A host hands a packet to the first port of its route.
    #[inline(never)]
    pub(crate) fn send(&mut self, packet: Packet) {
        if packet.hop & TAIL == 0 {
            let label = self.slab.insert(packet);
            self.slab.note_sent(label.key, self.now);
            self.forward(label);
            return;
        }
        let port = self.starts[packet.flow as usize][usize::from(packet.reverse)];
        let label = self.slab.insert(Packet { hop: packet.hop & !TAIL, ..packet });
        self.slab.note_sent(label.key, self.now);
        self.offer(port, label);
    }

    /// Hands a packet to a port of its route.
    #[inline(always)]
    pub(crate) fn offer(&mut self, port: u32, label: Label) {
        self.offered += 1;
        self.ports[port as usize].enqueue(port, self.now, label, &mut self.slab, &mut self.events);
    }

    /// A data packet leaves with a congestion window of so many segments.
    #[inline]
    pub(crate) fn note_window(&mut self, segments: u64) {
        if let Some(last) = self.windows.len().checked_sub(1) {
            self.windows[(segments as usize).min(last)] += 1;
        }
    }

    /// The sender of a flow has measured a round-trip time.
    #[inline]
    pub(crate) fn note_rtt(&mut self, flow: u32, time: Span) {
        if let Some(times) = self.rtts.get_mut(flow as usize) {
            times.note(time);
            if let Some(delays) = &mut self.delays {
                delays.note_rtt(flow, time);
            }
        }
    }

    /// The port that a packet goes to next, or the end of its route.
    #[inline]
    pub(crate) fn next_port(&self, label: Label) -> u32 {
        self.routes[label.hop as usize]
    }

    /// Hands a packet to the next port of its route; false when it is at the end.
    #[inline(always)]
    pub(crate) fn forward(&mut self, label: Label) -> bool {
        let port = self.next_port(label);
        if port == ROUTE_END {
            return false;
        }
        self.offer(port, Label { hop: label.hop + 1, ..label });
        true
    }

    /// Loads what the arrival at the far end of `port` will touch: the port, and the one that the packet goes to next.
    #[inline]
    pub(crate) fn fetch_arrival(&self, port: u32) {
        self.fetch_next_port(self.ports[port as usize].head_hop());
    }

    /// Loads the port at place `hop` of the table of routes.
    #[inline]
    pub(crate) fn fetch_next_port(&self, hop: u32) {
        if let Some(next) = self.routes.get(hop as usize).and_then(|&next| self.ports.get(next as usize)) {
            next.fetch();
        }
    }

    pub(crate) fn schedule(&mut self, at: Time, event: Event) {
        self.events.push(at, event);
    }

    /// A link goes down, in both directions, or comes up.
    pub(crate) fn turn_link(&mut self, link: u32, is_down: bool) {
        for port in [2 * link, 2 * link + 1] {
            let port = &mut self.ports[port as usize];
            if is_down {
                self.untold.extend(port.fail(self.now, &mut self.slab));
            } else {
                port.restore();
            }
        }
    }
}

/// A timer that costs one pending event: moving the deadline later is free, and a stale event re-arms itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timer {
    deadline: Time,
    pending: Time,
}

impl Default for Timer {
    fn default() -> Self {
        Self { deadline: Time::MAX, pending: Time::MAX }
    }
}

impl Timer {
    /// Sets the deadline.
    #[inline]
    pub(crate) fn set(&mut self, deadline: Time, event: Event, events: &mut EventQueue) {
        self.deadline = deadline;
        if self.pending > deadline {
            self.pending = deadline;
            events.push(deadline, event);
        }
    }

    #[inline]
    pub(crate) fn cancel(&mut self) {
        self.deadline = Time::MAX;
    }

    /// Time left at `now`, when set.
    pub(crate) fn left(&self, now: Time) -> Option<Span> {
        self.is_set().then(|| self.deadline.since(now))
    }

    pub(crate) fn is_set(&self) -> bool {
        self.deadline != Time::MAX
    }

    /// An event has come: true when the deadline is now.
    pub(crate) fn fires(&mut self, event: Event, net: &mut Net) -> bool {
        if self.pending != net.now {
            return false;
        }
        self.pending = Time::MAX;
        if self.deadline <= net.now {
            self.deadline = Time::MAX;
            return true;
        }
        if self.is_set() {
            self.pending = self.deadline;
            net.events.push(self.deadline, event);
        }
        false
    }
}
