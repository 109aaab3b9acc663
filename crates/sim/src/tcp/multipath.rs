//! Multipath TCP (RFC 8684): what the subflows of a connection share.
//!
//! Every subflow is a TCP connection with a sequence space of its own, in which each data segment takes a whole MSS. Chunks
//! of the data stream are mapped to its segments when they are first sent, and reassembled by the receiver in a buffer
//! that all subflows share. Acknowledgements carry the right edge of that buffer where other segments carry `seq`.

use std::collections::{BTreeMap, VecDeque};

use bandmaster_core::scenario::{Multipath, ReceiveWindow, Scheduler};
use bandmaster_core::time::{Span, Time};

/// Data sequence signal with 64-bit mapping (RFC 8684 section 3.3), in every segment with data.
pub(crate) const MAPPING_OPTION: u32 = 20;
/// The same with an acknowledgement only.
pub(crate) const DATA_ACK_OPTION: u32 = 12;

/// A subflow's part in its connection.
#[derive(Clone, Copy)]
pub(crate) struct Share {
    /// Place of the connection in [`Net::multipath`](crate::net::Net::multipath).
    pub(crate) connection: usize,
    /// Place of the subflow in the connection.
    pub(crate) subflow: usize,
}

/// What congestion controls see of a subflow.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PathState {
    /// Congestion window in bytes; 0 before the subflow is open.
    pub(crate) cwnd: u64,
    pub(crate) srtt: Option<Span>,
    /// Bytes acknowledged since the last loss, and between the last two.
    pub(crate) since_loss: u64,
    pub(crate) between_losses: u64,
}

impl PathState {
    /// Window in bytes over round-trip time in seconds; 0 while either is unknown.
    pub(crate) fn rate(&self) -> f64 {
        self.srtt.map_or(0.0, |srtt| self.cwnd as f64 / srtt.as_secs_f64().max(1e-9))
    }
}

/// Data of one segment.
#[derive(Clone, Copy, Debug)]
struct Chunk {
    offset: u64,
    len: u32,
}

impl Chunk {
    fn end(self) -> u64 {
        self.offset + u64::from(self.len)
    }
}

#[derive(Default)]
struct Subflow {
    /// Chunks of segments that the sender has not seen acknowledged; the first has the offset `base`.
    base: u64,
    chunks: VecDeque<Chunk>,
    /// Subflow offset up to which the receiver has handed data over.
    taken: u64,
}

/// State of a connection, which both of its ends keep in [`Net::multipath`](crate::net::Net::multipath).
pub(crate) struct Shared {
    mss: u64,
    buffer: u64,
    scheduler: Scheduler,
    /// The window in an acknowledgement bounds the connection.
    is_shared: bool,
    turn: usize,
    subflows: Vec<Subflow>,
    /// What congestion controls see of the same subflows.
    pub(crate) paths: Vec<PathState>,
    /// Bytes that the application gives.
    total: u64,
    /// Next data to be sent for the first time, what is acknowledged, and the right edge.
    next: u64,
    acked: u64,
    edge: u64,
    /// Data that another subflow than the one given is to send again.
    again: VecDeque<(Chunk, usize)>,
    closed: bool,
    /// The application will give more.
    keeps_open: bool,
    /// Sender and receiver are in different parts of the network, and each has a state of its own.
    is_apart: bool,
    /// The receiver's: data in order, data beyond, and when all had come.
    received: u64,
    islands: BTreeMap<u64, u64>,
    finished_at: Option<Time>,
}

impl Shared {
    /// A new connection. `total` without: no end.
    pub(crate) fn new(multipath: Multipath, total: Option<u64>, mss: u64, buffer: u64) -> Self {
        let is_shared = multipath.receive_window == ReceiveWindow::Shared;
        Self {
            mss,
            buffer,
            scheduler: multipath.scheduler,
            is_shared,
            turn: 0,
            subflows: (0..multipath.subflows).map(|_| Subflow::default()).collect(),
            paths: vec![PathState::default(); multipath.subflows as usize],
            total: total.unwrap_or(u64::MAX),
            next: 0,
            acked: 0,
            edge: if is_shared { 0 } else { buffer },
            again: VecDeque::new(),
            closed: false,
            keeps_open: false,
            is_apart: false,
            received: 0,
            islands: BTreeMap::new(),
            finished_at: None,
        }
    }

    // ---------------------------------------------------------------------------------------------------- sender

    /// The window in an acknowledgement bounds the connection, not its subflow (RFC 8684 section 3.3.1).
    pub(crate) fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// A subflow is open, with this window in its SYN-ACK.
    pub(crate) fn on_open(&mut self, window: u64) {
        if self.is_shared {
            self.edge = self.edge.max(window);
        }
    }

    /// An acknowledgement up to `una` of the subflow has arrived, with the right edge of the shared buffer and this window. A
    /// shared window moves the right edge to the data that this acknowledgement covers plus the window, and never back.
    pub(crate) fn on_ack(&mut self, subflow: usize, una: u64, edge: u64, window: u64) {
        let acked = edge.saturating_sub(self.buffer);
        self.edge = self.edge.max(if self.is_shared { acked + window } else { edge });
        self.acked = self.acked.max(acked);
        let subflow = &mut self.subflows[subflow];
        while subflow.base + self.mss <= una && subflow.chunks.pop_front().is_some() {
            subflow.base += self.mss;
        }
    }

    /// The shared window leaves nothing to send, all that was sent is acknowledged, and there is more: the persist timer of RFC 9293
    /// section 3.8.6.1 is to run.
    pub(crate) fn awaits_window(&self) -> bool {
        let is_idle = self.next < self.total && self.acked >= self.next && self.again.is_empty();
        self.is_shared && is_idle && self.next + self.mss.min(self.total - self.next) > self.edge
    }

    /// The subflow's window and round-trip time, and how much an acknowledgement was for.
    pub(crate) fn note(&mut self, subflow: usize, cwnd: u64, srtt: Option<Span>, acked: u64) {
        let path = &mut self.paths[subflow];
        path.cwnd = cwnd;
        path.srtt = srtt;
        path.since_loss += acked;
    }

    /// The subflow has met a loss.
    pub(crate) fn note_loss(&mut self, subflow: usize) {
        let path = &mut self.paths[subflow];
        path.between_losses = path.since_loss;
        path.since_loss = 0;
    }

    /// Payload bytes of the segment at `offset` of the subflow.
    pub(crate) fn len_at(&self, subflow: usize, offset: u64) -> u64 {
        let subflow = &self.subflows[subflow];
        let at = (offset - subflow.base) / self.mss;
        subflow.chunks.get(at as usize).map_or(0, |chunk| u64::from(chunk.len))
    }

    /// Where the data of the segment at `offset` of the subflow belong, if a segment has to state it.
    pub(crate) fn mapping(&self, subflow: usize, offset: u64) -> Option<(u32, u32)> {
        let subflow = self.is_apart.then(|| &self.subflows[subflow])?;
        let at = (offset - subflow.base) / self.mss;
        subflow.chunks.get(at as usize).map(|chunk| ((chunk.offset >> 32) as u32, chunk.offset as u32))
    }

    /// Data of the subflow that no acknowledgement covers is to be sent over another one too.
    pub(crate) fn send_again_elsewhere(&mut self, subflow: usize) {
        if self.subflows.len() < 2 {
            return;
        }
        let acked = self.acked;
        self.again.retain(|(chunk, from)| *from != subflow && chunk.end() > acked);
        let open = self.subflows[subflow].chunks.iter().filter(|chunk| chunk.end() > acked);
        self.again.extend(open.map(|&chunk| (chunk, subflow)));
    }

    /// Whether there is data for this subflow.
    pub(crate) fn has_data(&self, subflow: usize) -> bool {
        self.again.iter().any(|(_, from)| *from != subflow)
            || self.next < self.total && self.next + self.mss.min(self.total - self.next) <= self.edge
    }

    /// Place of a subflow with room in the order in which they take data, the least first; none without data for it.
    pub(crate) fn rank(&mut self, subflow: usize, srtt: Option<Span>) -> Option<(u64, usize)> {
        let acked = self.acked;
        self.again.retain(|(chunk, _)| chunk.end() > acked);
        let count = self.subflows.len();
        self.has_data(subflow).then(|| match self.scheduler {
            Scheduler::MinRtt => (srtt.unwrap_or(Span::MAX).as_nanos(), subflow),
            Scheduler::RoundRobin => (((subflow + count - self.turn % count) % count) as u64, subflow),
        })
    }

    /// The next data for the next segment of the subflow that ranks first: its length.
    pub(crate) fn take_data(&mut self, subflow: usize) -> Option<u64> {
        if !self.has_data(subflow) {
            return None;
        }
        let again = self.again.iter().position(|(_, from)| *from != subflow);
        let chunk = again.and_then(|at| self.again.remove(at)).map_or_else(
            || {
                let len = self.mss.min(self.total - self.next);
                self.next += len;
                Chunk { offset: self.next - len, len: len as u32 }
            },
            |(chunk, _)| chunk,
        );
        self.turn = subflow + 1;
        self.subflows[subflow].chunks.push_back(chunk);
        Some(u64::from(chunk.len))
    }

    /// The application has given `total` bytes in all up to now, and will give more when it `keeps_open`.
    pub(crate) fn give(&mut self, total: u64, keeps_open: bool) {
        self.total = total;
        self.keeps_open = keeps_open;
        if self.received < total {
            self.finished_at = None;
        }
    }

    /// The application gives no more. Returns how much it has given.
    pub(crate) fn end(&mut self) -> u64 {
        self.total = self.total.min(self.next);
        self.keeps_open = false;
        self.total
    }

    /// The sender is in another part of the network: its segments state where their data belong.
    pub(crate) fn set_apart(&mut self) {
        self.is_apart = true;
    }

    /// The sender, which is elsewhere, gives no more than so much.
    pub(crate) fn end_at(&mut self, total: u64) {
        self.total = total;
    }

    /// True once, when everything is acknowledged: the subflows may be closed.
    pub(crate) fn take_close(&mut self) -> bool {
        let close = self.acked >= self.total && !self.closed && !self.keeps_open;
        self.closed |= close;
        close
    }

    // -------------------------------------------------------------------------------------------------- receiver

    /// A segment of `len` bytes at `offset` of the subflow states where its data belong.
    pub(crate) fn map(&mut self, subflow: usize, offset: u64, len: u32, (high, low): (u32, u32)) {
        if !self.is_apart {
            return;
        }
        let subflow = &mut self.subflows[subflow];
        let Some(ahead) = offset.checked_sub(subflow.base) else { return };
        let at = (ahead / self.mss) as usize;
        if subflow.chunks.len() <= at {
            subflow.chunks.resize(at + 1, Chunk { offset: 0, len: 0 });
        }
        subflow.chunks[at] = Chunk { offset: u64::from(high) << 32 | u64::from(low), len };
    }

    /// The subflow's data has arrived in order up to its offset `next`. True when that completes the connection.
    pub(crate) fn take_in_order(&mut self, subflow: usize, next: u64, now: Time) -> bool {
        loop {
            let subflow = &mut self.subflows[subflow];
            if subflow.taken + self.mss > next {
                break;
            }
            let chunk = subflow.chunks.get(((subflow.taken - subflow.base) / self.mss) as usize).copied();
            subflow.taken += self.mss;
            if self.is_apart {
                subflow.chunks.pop_front();
                subflow.base = subflow.taken;
            }
            let Some(chunk) = chunk else { break };
            self.assemble(chunk.offset, chunk.end());
        }
        let complete = self.received >= self.total && self.finished_at.is_none();
        if complete {
            self.finished_at = Some(now);
        }
        complete
    }

    /// Right edge of the shared buffer.
    pub(crate) fn data_edge(&self) -> u64 {
        self.received + self.buffer
    }

    /// Data received in order.
    pub(crate) fn received(&self) -> u64 {
        self.received
    }

    /// When all data had come.
    pub(crate) fn finished_at(&self) -> Option<Time> {
        self.finished_at
    }

    fn assemble(&mut self, start: u64, end: u64) {
        if start > self.received {
            let known = self.islands.entry(start).or_insert(end);
            *known = end.max(*known);
            return;
        }
        self.received = self.received.max(end);
        while let Some(island) = self.islands.first_entry() {
            if *island.key() > self.received {
                break;
            }
            self.received = self.received.max(island.remove());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u64 = 1000;

    fn connection(scheduler: Scheduler, total: u64, buffer: u64) -> Shared {
        with_window(scheduler, ReceiveWindow::Each, total, buffer)
    }

    fn with_window(scheduler: Scheduler, receive_window: ReceiveWindow, total: u64, buffer: u64) -> Shared {
        let multipath = Multipath { subflows: 2, scheduler, receive_window, distinct_paths: false };
        Shared::new(multipath, Some(total), MSS, buffer)
    }

    #[test]
    fn data_is_mapped_reassembled_and_bounded_by_the_shared_buffer() {
        let mut shared = connection(Scheduler::MinRtt, 4500, 3000);
        assert_eq!([shared.take_data(0), shared.take_data(1), shared.take_data(0)], [Some(1000); 3]);
        assert_eq!(shared.take_data(1), None, "the buffer of three segments is full");
        // The second subflow's segment comes first and waits.
        assert!(!shared.take_in_order(1, MSS, Time::ZERO));
        assert_eq!((shared.received(), shared.data_edge()), (0, 3000));
        assert!(!shared.take_in_order(0, 2 * MSS, Time::ZERO));
        assert_eq!(shared.received(), 3000);
        shared.on_ack(1, MSS, 6000, 0);
        assert_eq!(
            [shared.take_data(1), shared.take_data(1), shared.take_data(1)],
            [Some(1000), Some(500), None]
        );
        assert_eq!(shared.len_at(1, 2 * MSS), 500);
        assert!(shared.take_in_order(1, 3 * MSS, Time::from_nanos(7)));
        assert_eq!(shared.finished_at(), Some(Time::from_nanos(7)));
        assert!(!shared.take_close());
        shared.on_ack(0, 2 * MSS, 4500 + 3000, 0);
        assert!(shared.take_close() && !shared.take_close());
    }

    /// RFC 8684 section 3.3.1: DATA_ACK plus window is the right edge of all subflows, and moves only on. Windows of four and two
    /// segments over two paths let four go in all, whichever takes them; a later window of two from the third on adds one.
    #[test]
    fn a_shared_window_bounds_all_subflows_together() {
        let buffer = 1 << 20;
        let mut shared = with_window(Scheduler::MinRtt, ReceiveWindow::Shared, 100_000, buffer);
        assert_eq!(shared.take_data(0), None, "no subflow is open");
        shared.on_open(4 * MSS);
        shared.on_open(2 * MSS);
        assert_eq!(
            [0, 0, 1, 1, 0, 1].map(|subflow| shared.take_data(subflow).is_some()),
            [true, true, true, true, false, false]
        );
        // Three have come in order. Acknowledgements over the two paths, with windows of one segment and of two.
        shared.on_ack(0, 2 * MSS, 3 * MSS + buffer, MSS);
        assert!(!shared.has_data(0), "the edge is where it was");
        shared.on_ack(1, MSS, 3 * MSS + buffer, 2 * MSS);
        assert_eq!([shared.take_data(1).is_some(), shared.take_data(0).is_some()], [true, false]);
        shared.on_ack(0, 2 * MSS, 3 * MSS + buffer, 0);
        assert_eq!(shared.edge, 5 * MSS, "a closed window takes nothing back");
        assert!(!shared.awaits_window(), "two segments are under way");
        shared.on_ack(1, 3 * MSS, 5 * MSS + buffer, 0);
        assert!(shared.awaits_window(), "nothing but a probe would tell of a window");
        shared.on_ack(1, 3 * MSS, 5 * MSS + buffer, MSS);
        assert!(!shared.awaits_window());
    }

    /// Only what is not acknowledged, only over the other subflow, once per timeout.
    #[test]
    fn a_timeout_sends_data_again_elsewhere() {
        let mut shared = connection(Scheduler::MinRtt, 10_000, 1 << 20);
        (0..3).for_each(|_| assert_eq!(shared.take_data(0), Some(1000)));
        shared.take_in_order(0, MSS, Time::ZERO);
        shared.on_ack(0, MSS, MSS + (1 << 20), 0);
        shared.send_again_elsewhere(0);
        shared.send_again_elsewhere(0);
        assert!(shared.take_data(1).is_some() && shared.take_data(1).is_some());
        shared.take_in_order(1, 2 * MSS, Time::ZERO);
        assert_eq!(shared.received(), 3000, "the second subflow has carried what the first had");
        assert_eq!(shared.take_data(0), Some(1000));
        shared.take_in_order(0, 4 * MSS, Time::ZERO);
        assert_eq!(shared.received(), 4000, "what comes twice counts once");
    }

    #[test]
    fn schedulers_order_by_round_trip_or_in_turn() {
        let order = |shared: &mut Shared| {
            let mut ranks =
                [(0, 20), (1, 10)].map(|(number, ms)| shared.rank(number, Some(Span::from_millis(ms))));
            ranks.sort();
            ranks.map(|rank| rank.map(|(_, number)| number))
        };
        assert_eq!(order(&mut connection(Scheduler::MinRtt, 1, 1)), [Some(1), Some(0)]);
        let mut shared = connection(Scheduler::RoundRobin, 10_000, 1 << 20);
        shared.take_data(1);
        assert_eq!(order(&mut shared), [Some(0), Some(1)]);
        shared.take_data(0);
        assert_eq!(order(&mut shared), [Some(1), Some(0)]);
    }
}
