//! Packets in a slab: no allocation per packet.

use bandmaster_core::control::Passed;
pub(crate) use bandmaster_core::plan::PROBE;
use bandmaster_core::time::Time;

/// Flags of a segment, with the values of the TCP header.
pub(crate) mod flag {
    pub(crate) const FIN: u8 = 1;
    pub(crate) const SYN: u8 = 2;
    pub(crate) const RST: u8 = 4;
    pub(crate) const ACK: u8 = 16;
    pub(crate) const ECE: u8 = 64;
    pub(crate) const CWR: u8 = 128;
}

/// ECN field of the IP header (RFC 3168).
pub(crate) mod ecn {
    pub(crate) const ECT0: u8 = 2;
    pub(crate) const CE: u8 = 3;
    pub(super) const MASK: u8 = 3;
}

/// A packet on its way. Sequence numbers are offsets into the stream; the SYN has none.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Packet {
    /// Position of the next port in the table of routes, where no [`Label`] states it.
    pub(crate) hop: u32,
    pub(crate) flow: u32,
    /// Bytes on a link.
    pub(crate) len: u32,
    /// Payload bytes.
    pub(crate) payload: u16,
    /// Which of the connections that have used the flow number one after the other.
    pub(crate) generation: u8,
    /// Offset of the first payload byte.
    pub(crate) seq: u64,
    /// Next offset expected (with `flag::ACK`).
    pub(crate) ack: u64,
    /// Window in bytes, as the other end will read it after scaling.
    pub(crate) window: u32,
    /// Timestamps option in microseconds; `ts_echo` 0: none.
    pub(crate) ts_value: u32,
    pub(crate) ts_echo: u32,
    pub(crate) flags: u8,
    /// Second byte of the IPv4 header: DSCP (RFC 2474) and ECN.
    pub(crate) tos: u8,
    /// A keep-alive (RFC 9293 section 3.8.4): its sequence number is one too low, so the other end answers at once.
    pub(crate) is_keep_alive: bool,
    /// From receiver to sender of the flow.
    pub(crate) reverse: bool,
    pub(crate) sack_count: u8,
    /// SACK blocks: left edge relative to `ack`, length.
    pub(crate) sack: [(u32, u32); 4],
}

impl Packet {
    /// The sender reacts to marks (RFC 3168).
    pub(crate) fn is_ect(&self) -> bool {
        self.tos & ecn::MASK != 0
    }

    /// Congestion was experienced.
    pub(crate) fn is_ce(&self) -> bool {
        self.tos & ecn::MASK == ecn::CE
    }

    pub(crate) fn mark(&mut self) {
        self.tos |= ecn::CE;
    }

    /// On a probe: what had left the port before it, and what of that arrives at the other end.
    /// True when nothing has stamped it before.
    pub(crate) fn stamp(&mut self, left: Passed, arriving: Passed) -> bool {
        (self.seq, self.ack) = (left.packets, left.bytes);
        let halves = |x: u64| ((x >> 32) as u32, x as u32);
        (self.sack[0], self.sack[1]) = (halves(arriving.packets), halves(arriving.bytes));
        std::mem::replace(&mut self.window, 1) == 0
    }

    /// What had left the last stamping port before this probe.
    pub(crate) fn left_before(&self) -> Passed {
        Passed { packets: self.seq, bytes: self.ack }
    }

    /// What has arrived over the last stamping port's wire before this probe.
    pub(crate) fn came_before(&self) -> Passed {
        let whole = |(high, low): (u32, u32)| u64::from(high) << 32 | u64::from(low);
        Passed { packets: whole(self.sack[0]), bytes: whole(self.sack[1]) }
    }

    pub(crate) fn dscp(&self) -> u8 {
        self.tos >> 2
    }
}

/// What forwarding needs of a packet. It travels from ring to ring, so that a hop leaves the packet alone.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Label {
    /// Key in the slab.
    pub(crate) key: u32,
    /// Position of the next port in the table of routes.
    pub(crate) hop: u32,
    /// Bytes on a link.
    pub(crate) len: u32,
    pub(crate) flow: u32,
}

/// Packets by key, with reuse of freed places.
#[derive(Default)]
pub(crate) struct Slab {
    packets: Vec<Packet>,
    free: Vec<u32>,
    /// By flow: packets of its sender that queues dropped; empty when nobody asks.
    drops: Vec<u32>,
    /// The same where rows of flows are logged.
    logged_drops: Vec<u32>,
    /// By key: when a data packet left its sender's TCP. Only where somebody asks.
    sent: Vec<Time>,
    notes_departures: bool,
}

impl Slab {
    #[inline]
    pub(crate) fn insert(&mut self, packet: Packet) -> Label {
        let Packet { hop, len, flow, .. } = packet;
        let key = match self.free.pop() {
            Some(key) => {
                self.packets[key as usize] = packet;
                key
            }
            None => {
                self.packets.push(packet);
                (self.packets.len() - 1) as u32
            }
        };
        Label { key, hop, len, flow }
    }

    /// Starts counting the packets that queues drop, by flow, for `flows` flows.
    pub(crate) fn count_drops(&mut self, flows: usize) {
        self.drops = vec![0; flows];
        self.note_departures();
    }

    /// Remembers from now on when packets left their senders.
    pub(crate) fn note_departures(&mut self) {
        self.notes_departures = true;
    }

    /// Starts counting the packets that queues drop, by flow, for rows of flows.
    pub(crate) fn log_drops(&mut self, flows: usize) {
        self.logged_drops = vec![0; flows];
    }

    /// Packets of a flow's sender that queues dropped since a row of it was made.
    pub(crate) fn take_logged_drops(&mut self, flow: u32) -> u64 {
        self.logged_drops.get_mut(flow as usize).map_or(0, std::mem::take).into()
    }

    /// Adds packets of a flow's sender that were dropped elsewhere.
    pub(crate) fn add_drops(&mut self, flow: u32, dropped: u32) {
        if let Some(drops) = self.drops.get_mut(flow as usize) {
            *drops += dropped;
        }
    }

    /// The same where rows of flows are logged.
    pub(crate) fn add_logged_drops(&mut self, flow: u32, dropped: u64) {
        if let Some(drops) = self.logged_drops.get_mut(flow as usize) {
            *drops += dropped as u32;
        }
    }

    /// Another connection takes the number of a flow: what was dropped of the last one is of no interest any more.
    pub(crate) fn forget_drops(&mut self, flow: u32) {
        self.take_drops(flow);
        self.take_logged_drops(flow);
    }

    /// A sender's TCP hands a packet over; remembered where somebody asks.
    #[inline]
    pub(crate) fn note_sent(&mut self, key: u32, now: Time) {
        if self.notes_departures {
            self.sent.resize(self.packets.len(), Time::ZERO);
            self.sent[key as usize] = now;
        }
    }

    /// When its sender's TCP handed over a packet, where somebody asks.
    pub(crate) fn sent(&self, key: u32) -> Option<Time> {
        self.sent.get(key as usize).copied()
    }

    /// Packets of a flow's sender that queues dropped since it was asked last.
    pub(crate) fn take_drops(&mut self, flow: u32) -> u32 {
        self.drops.get_mut(flow as usize).map_or(0, std::mem::take)
    }

    /// A queue drops a packet.
    pub(crate) fn drop(&mut self, key: u32) {
        let Packet { flow, reverse, .. } = self.packets[key as usize];
        if !reverse {
            let counts = [&mut self.drops, &mut self.logged_drops];
            counts.into_iter().filter_map(|drops| drops.get_mut(flow as usize)).for_each(|drops| *drops += 1);
        }
        self.remove(key);
    }

    #[inline]
    pub(crate) fn remove(&mut self, key: u32) {
        self.free.push(key);
    }

    #[inline]
    pub(crate) fn at(&mut self, key: u32) -> &mut Packet {
        &mut self.packets[key as usize]
    }

    /// Packets alive.
    pub(crate) fn live(&self) -> usize {
        self.packets.len() - self.free.len()
    }
}
