//! Constant-rate sources, and the flows of every runtime.

use bandmaster_core::scenario::{FlowGroup, Transport};
use bandmaster_core::time::{Span, Time};
pub(crate) use bandmaster_core::workload::{FlowPlan, SETS, Toggles, plan};

/// A constant-rate UDP source; a cache line.
#[repr(align(64))]
pub(crate) struct UdpSource {
    pub(crate) flow: u32,
    pub(crate) route: u32,
    /// Bytes of an IP packet.
    pub(crate) packet: u32,
    /// DSCP, where the IPv4 header has it.
    pub(crate) tos: u8,
    pub(crate) rate: u64,
    /// When the next packet leaves, and what that rounds off in units of 1 ns / `rate`.
    pub(crate) next: Time,
    owed: u64,
    /// Time between packets, in the same two parts.
    gap: (Span, u64),
    pub(crate) on: bool,
}

impl UdpSource {
    pub(crate) fn new(flow: u32, route: u32, group: &FlowGroup) -> Option<Self> {
        let Transport::Udp { rate, packet } = &group.transport else { return None };
        let rate = rate.bits_per_sec().max(1);
        let bits = packet.get() * 8_000_000_000;
        Some(Self {
            flow,
            route,
            packet: packet.get() as u32,
            tos: group.dscp << 2,
            rate,
            next: Time::ZERO,
            owed: 0,
            gap: (Span::from_nanos(bits / rate), bits % rate),
            on: false,
        })
    }

    /// Begins an on time: packet n leaves when the source has made n packets' worth of bits since.
    pub(crate) fn restart(&mut self, now: Time) {
        self.next = now;
        self.owed = 0;
        self.advance();
    }

    /// Sets the time of the packet after the next.
    pub(crate) fn advance(&mut self) {
        let (gap, rest) = self.gap;
        self.next += gap;
        self.owed += rest;
        if self.owed >= self.rate {
            self.owed -= self.rate;
            self.next += Span::from_nanos(1);
        }
    }
}
