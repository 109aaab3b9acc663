//! What became of single flows: the rows of `flows.parquet`.

use serde::{Deserialize, Serialize};

use crate::measure::rtt::RttSummary;
use crate::scenario::{FlowGroup, TcpSettings};
use crate::time::{Span, Time};
use crate::units::{Rate, tcp_headers};
use crate::workload::FlowPlan;

/// One flow that started, or one transfer of rounds and exchanges.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct FlowRecord {
    /// Its number in the run. Rounds and exchanges use a number again.
    pub number: u32,
    /// Who sends to whom. [`FlowPlan::start`] is when the transfer began.
    pub plan: FlowPlan,
    /// Payload bytes that it has to carry; none: without end, or UDP.
    pub size: Option<u64>,
    /// When its last byte had arrived.
    pub end: Option<Time>,
    /// Payload bytes that arrived, in order.
    pub bytes: u64,
    /// Its completion time in an empty network; none without a size, and for multipath TCP.
    pub ideal: Option<Span>,
    /// Segments that its sender handed to the network, without SYNs and bare acknowledgements; none for UDP.
    pub packets: Option<u64>,
    /// Packets of its sender that queues dropped; none in the lab behind a queue of the kernel.
    pub drops: Option<u64>,
    /// Segments sent again; none for UDP.
    pub retransmits: Option<u64>,
    /// Retransmission timeouts; none for UDP.
    pub timeouts: Option<u64>,
    /// Round-trip times that its sender measured, where the scenario asks for them and the runtime can tell.
    pub rtt: Option<RttSummary>,
    /// In the lab each flow has addresses of its own: the port of its receiver.
    pub lab_port: Option<u16>,
}

impl FlowRecord {
    /// Time from its start to its last byte; none when it is unfinished or has no size.
    pub fn fct(&self) -> Option<Span> {
        self.size.and(self.end).map(|end| end.since(self.plan.start))
    }

    /// The completion time over that in an empty network.
    pub fn slowdown(&self) -> Option<f64> {
        Some(self.fct()?.as_secs_f64() / self.ideal?.as_secs_f64())
    }

    /// Its flow group among `groups`, which are the scenario's.
    pub fn group<'a>(&self, groups: &'a [FlowGroup]) -> &'a FlowGroup {
        self.plan.group(groups)
    }
}

/// Ports of a flow's way and frames that cross it: what the completion time in an empty network follows from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IdealPort {
    /// Nanoseconds per byte, 32 binary places.
    pub nanos_per_byte: u64,
    /// Propagation delay.
    pub delay: Span,
}

/// How long a frame is in transmission.
fn time(nanos_per_byte: u64, bytes: u64) -> u128 {
    (u128::from(bytes) * u128::from(nanos_per_byte)) >> 32
}

impl IdealPort {
    /// Of a port with this rate and delay.
    pub fn new(rate: Rate, delay: Span) -> Self {
        let nanos_per_byte = ((8_000_000_000u128 << 32) / u128::from(rate.bits_per_sec().max(1))) as u64;
        Self { nanos_per_byte, delay }
    }

    /// How long a frame takes over the empty link.
    pub fn alone(&self, bytes: u64) -> Span {
        self.delay + Span::from_nanos(u64::try_from(time(self.nanos_per_byte, bytes)).unwrap_or(u64::MAX))
    }
}

/// The frames of a transfer: as many full ones as there are before the last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IdealFrames {
    /// Bytes of the frame of a SYN, when the transfer opens its connection.
    pub syn: Option<u64>,
    /// Data frames.
    pub count: u64,
    /// Bytes of a full one.
    pub full: u64,
    /// Bytes of the last one.
    pub last: u64,
}

impl IdealFrames {
    /// Of a transfer of `size` bytes, which opens its connection or not, on links that add so much to an IP packet.
    pub fn new(settings: &TcpSettings, frame_overhead: u64, size: u64, opens: bool) -> Self {
        let mss = settings.mss.get();
        let overhead = u64::from(tcp_headers(settings.timestamps)) + frame_overhead;
        let count = size.div_ceil(mss).max(1);
        Self {
            syn: opens.then(|| overhead + u64::from(settings.options_of_syn())),
            count,
            full: mss + overhead,
            last: size - (count - 1) * mss + overhead,
        }
    }
}

/// The completion time of a transfer in a network that is empty but for it: the handshake, then all data frames back to back
/// over the ports one after the other. Nothing is processed, lost or limited by a window, so that no transfer over links of
/// constant rate is faster.
pub fn ideal(there: &[IdealPort], back: &[IdealPort], frames: IdealFrames) -> Span {
    let alone = |port: &IdealPort, bytes| u128::from(port.alone(bytes).as_nanos());
    // When the first frame and the last one have arrived at the end of a port. Full frames follow each other as the slowest port
    // so far lets them.
    let (mut first, mut last, mut slowest) = (0, 0, 0);
    for port in there {
        slowest = slowest.max(port.nanos_per_byte);
        first += time(port.nanos_per_byte, frames.full);
        let between = frames.count.checked_sub(2).map(|full| full.saturating_mul(frames.full));
        let free = between.map_or(0, |bytes| first + time(slowest, bytes));
        first += u128::from(port.delay.as_nanos());
        last = free.max(last) + alone(port, frames.last);
    }
    let handshake = |syn| there.iter().chain(back).map(|port| alone(port, syn)).sum::<u128>();
    let nanos = last + frames.syn.map_or(0, handshake);
    Span::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(nanos_per_byte: u64, micros: u64) -> IdealPort {
        IdealPort { nanos_per_byte: nanos_per_byte << 32, delay: Span::from_micros(micros) }
    }

    /// 100 bytes of handshake each way over 8, 80 and 8 ns per byte and 1 + 10 + 1 us: 9.6 + 12 us each. Then frames of 1000,
    /// 1000 and 500 bytes: 12 us, 8 us for the first, 200 us for all, 4 us for the last. A last frame of 10 bytes waits for the one
    /// before it at the fast port: 12 + 8 + 160 + 8 + 0.08 us.
    #[test]
    fn ideal_by_hand() {
        let ports = [port(8, 1), port(80, 10), port(8, 1)];
        let frames = IdealFrames { syn: Some(100), count: 3, full: 1000, last: 500 };
        let handshake = 2 * (9_600 + 12_000);
        assert_eq!(ideal(&ports, &ports, frames), Span::from_nanos(handshake + 224_000));
        assert_eq!(ideal(&ports, &ports, IdealFrames { syn: None, ..frames }), Span::from_nanos(224_000));
        let short = IdealFrames { syn: None, last: 10, ..frames };
        assert_eq!(ideal(&ports, &ports, short), Span::from_nanos(188_080));
        let single = IdealFrames { count: 1, ..short };
        assert_eq!(ideal(&ports, &ports, single), Span::from_nanos(12_000 + 80 + 800 + 80));
    }
}
