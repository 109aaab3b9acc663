//! Multipath TCP (RFC 8684): what the subflows of a connection share.
//!
//! Every subflow is a TCP connection with a sequence space of its own, in which each data segment takes a whole MSS. Chunks
//! of the data stream are mapped to its segments when they are first sent, and reassembled by the receiver in a buffer
//! that all subflows share. Acknowledgements carry the right edge of that buffer where other segments carry `seq`.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use bandmaster_core::scenario::{Multipath, Scheduler};
use bandmaster_core::time::{Span, Time};

/// Data sequence signal with 64-bit mapping (RFC 8684 section 3.3), in every segment with data.
pub(crate) const MAPPING_OPTION: u32 = 20;
/// The same with an acknowledgement only.
pub(crate) const DATA_ACK_OPTION: u32 = 12;

/// A subflow's part in its connection.
#[derive(Clone)]
pub(crate) struct Share {
    shared: Arc<Mutex<Shared>>,
    subflow: usize,
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

struct Subflow {
    path: PathState,
    /// Chunks of segments that the sender has not seen acknowledged; the first has the offset `base`.
    base: u64,
    chunks: VecDeque<Chunk>,
    /// Subflow offset up to which the receiver has handed data over.
    taken: u64,
}

/// State of a connection.
pub(crate) struct Shared {
    mss: u64,
    buffer: u64,
    scheduler: Scheduler,
    turn: usize,
    subflows: Vec<Subflow>,
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
    /// The receiver's: data in order, data beyond, and when all had come.
    received: u64,
    islands: BTreeMap<u64, u64>,
    finished_at: Option<Time>,
}

impl Share {
    /// The shares of a new connection's subflows. `total` without: no end.
    pub(crate) fn connection(multipath: Multipath, total: Option<u64>, mss: u64, buffer: u64) -> Vec<Self> {
        let subflow = || Subflow { path: PathState::default(), base: 0, chunks: VecDeque::new(), taken: 0 };
        let shared = Shared {
            mss,
            buffer,
            scheduler: multipath.scheduler,
            turn: 0,
            subflows: (0..multipath.subflows).map(|_| subflow()).collect(),
            total: total.unwrap_or(u64::MAX),
            next: 0,
            acked: 0,
            edge: buffer,
            again: VecDeque::new(),
            closed: false,
            keeps_open: false,
            received: 0,
            islands: BTreeMap::new(),
            finished_at: None,
        };
        let shared = Arc::new(Mutex::new(shared));
        (0..multipath.subflows as usize).map(|subflow| Self { shared: shared.clone(), subflow }).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// What congestion controls see of all subflows, and which this one is.
    pub(crate) fn paths(&self) -> (Vec<PathState>, usize) {
        (self.lock().subflows.iter().map(|s| s.path).collect(), self.subflow)
    }

    // ---------------------------------------------------------------------------------------------------- sender

    /// An acknowledgement up to `una` of the subflow has come, with the right edge of the shared buffer.
    pub(crate) fn on_ack(&self, una: u64, edge: u64) {
        let mut shared = self.lock();
        let buffer = shared.buffer;
        shared.edge = shared.edge.max(edge);
        shared.acked = shared.acked.max(edge.saturating_sub(buffer));
        let mss = shared.mss;
        let subflow = &mut shared.subflows[self.subflow];
        while subflow.base + mss <= una && subflow.chunks.pop_front().is_some() {
            subflow.base += mss;
        }
    }

    /// The subflow's window and round-trip time, and how much an acknowledgement was for.
    pub(crate) fn note(&self, cwnd: u64, srtt: Option<Span>, acked: u64) {
        let path = &mut self.lock().subflows[self.subflow].path;
        path.cwnd = cwnd;
        path.srtt = srtt;
        path.since_loss += acked;
    }

    /// The subflow has met a loss.
    pub(crate) fn note_loss(&self) {
        let path = &mut self.lock().subflows[self.subflow].path;
        path.between_losses = path.since_loss;
        path.since_loss = 0;
    }

    /// Payload bytes of the segment at `offset` of the subflow.
    pub(crate) fn len_at(&self, offset: u64) -> u64 {
        let shared = self.lock();
        let subflow = &shared.subflows[self.subflow];
        let at = (offset - subflow.base) / shared.mss;
        subflow.chunks.get(at as usize).map_or(0, |chunk| u64::from(chunk.len))
    }

    /// Data of the subflow that no acknowledgement covers is to be sent over another one too.
    pub(crate) fn send_again_elsewhere(&self) {
        let mut shared = self.lock();
        if shared.subflows.len() < 2 {
            return;
        }
        let (subflow, acked) = (self.subflow, shared.acked);
        shared.again.retain(|(chunk, from)| *from != subflow && chunk.offset + u64::from(chunk.len) > acked);
        let chunks: Vec<Chunk> = shared.subflows[subflow].chunks.iter().copied().collect();
        let open = chunks.into_iter().filter(|chunk| chunk.offset + u64::from(chunk.len) > acked);
        shared.again.extend(open.map(|chunk| (chunk, subflow)));
    }

    /// Whether there is data for this subflow.
    pub(crate) fn has_data(&self) -> bool {
        let shared = self.lock();
        let again = shared.again.iter().any(|(_, from)| *from != self.subflow);
        again
            || shared.next < shared.total
                && shared.next + shared.mss.min(shared.total - shared.next) <= shared.edge
    }

    /// The next data for this subflow's next segment: its length.
    pub(crate) fn take_data(&self) -> Option<u64> {
        let mut shared = self.lock();
        let acked = shared.acked;
        shared.again.retain(|(chunk, _)| chunk.offset + u64::from(chunk.len) > acked);
        let again = shared.again.iter().position(|(_, from)| *from != self.subflow);
        let chunk = match again.and_then(|at| shared.again.remove(at)) {
            Some((chunk, _)) => chunk,
            None => {
                let len = shared.mss.min(shared.total - shared.next);
                if len == 0 || shared.next + len > shared.edge {
                    return None;
                }
                let chunk = Chunk { offset: shared.next, len: len as u32 };
                shared.next += len;
                chunk
            }
        };
        shared.turn = self.subflow + 1;
        shared.subflows[self.subflow].chunks.push_back(chunk);
        Some(u64::from(chunk.len))
    }

    /// The order in which subflows are asked to take data: number and smoothed round-trip time of each with room.
    pub(crate) fn order(&self, open: &mut [(usize, Option<Span>)]) {
        let shared = self.lock();
        let count = shared.subflows.len();
        match shared.scheduler {
            Scheduler::MinRtt => open.sort_by_key(|(number, srtt)| (srtt.unwrap_or(Span::MAX), *number)),
            Scheduler::RoundRobin => {
                open.sort_by_key(|(number, _)| (number + count - shared.turn % count) % count);
            }
        }
    }

    /// The application has given `total` bytes in all up to now, and will give more when it `keeps_open`.
    pub(crate) fn give(&self, total: u64, keeps_open: bool) {
        let mut shared = self.lock();
        shared.total = total;
        shared.keeps_open = keeps_open;
        if shared.received < total {
            shared.finished_at = None;
        }
    }

    /// The application gives no more.
    pub(crate) fn end(&self) {
        let mut shared = self.lock();
        shared.total = shared.total.min(shared.next);
        shared.keeps_open = false;
    }

    /// True once, when everything is acknowledged: the subflows may be closed.
    pub(crate) fn take_close(&self) -> bool {
        let mut shared = self.lock();
        let close = shared.acked >= shared.total && !shared.closed && !shared.keeps_open;
        shared.closed |= close;
        close
    }

    // -------------------------------------------------------------------------------------------------- receiver

    /// The subflow's data has come in order up to its offset `next`. True when that completes the connection.
    pub(crate) fn take_in_order(&self, next: u64, now: Time) -> bool {
        let mut shared = self.lock();
        let mss = shared.mss;
        loop {
            let subflow = &mut shared.subflows[self.subflow];
            if subflow.taken + mss > next {
                break;
            }
            let chunk = subflow.chunks.get(((subflow.taken - subflow.base) / mss) as usize).copied();
            subflow.taken += mss;
            let Some(Chunk { offset, len }) = chunk else { break };
            shared.assemble(offset, offset + u64::from(len));
        }
        let complete = shared.received >= shared.total && shared.finished_at.is_none();
        if complete {
            shared.finished_at = Some(now);
        }
        complete
    }

    /// Right edge of the shared buffer.
    pub(crate) fn data_edge(&self) -> u64 {
        let shared = self.lock();
        shared.received + shared.buffer
    }

    /// Data received in order.
    pub(crate) fn received(&self) -> u64 {
        self.lock().received
    }

    /// When all data had come.
    pub(crate) fn finished_at(&self) -> Option<Time> {
        self.lock().finished_at
    }
}

impl Shared {
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

    fn connection(scheduler: Scheduler, total: u64, buffer: u64) -> Vec<Share> {
        Share::connection(Multipath { subflows: 2, scheduler }, Some(total), MSS, buffer)
    }

    #[test]
    fn data_is_mapped_reassembled_and_bounded_by_the_shared_buffer() {
        let shares = connection(Scheduler::MinRtt, 4500, 3000);
        assert_eq!([shares[0].take_data(), shares[1].take_data(), shares[0].take_data()], [Some(1000); 3]);
        assert_eq!(shares[1].take_data(), None, "the buffer of three segments is full");
        // The second subflow's segment comes first and waits.
        assert!(!shares[1].take_in_order(MSS, Time::ZERO));
        assert_eq!((shares[0].received(), shares[0].data_edge()), (0, 3000));
        assert!(!shares[0].take_in_order(2 * MSS, Time::ZERO));
        assert_eq!(shares[0].received(), 3000);
        shares[1].on_ack(MSS, 6000);
        assert_eq!(
            [shares[1].take_data(), shares[1].take_data(), shares[1].take_data()],
            [Some(1000), Some(500), None]
        );
        assert_eq!(shares[1].len_at(2 * MSS), 500);
        assert!(shares[1].take_in_order(3 * MSS, Time::from_nanos(7)));
        assert_eq!(shares[0].finished_at(), Some(Time::from_nanos(7)));
        assert!(!shares[0].take_close());
        shares[0].on_ack(2 * MSS, 4500 + 3000);
        assert!(shares[0].take_close() && !shares[0].take_close());
    }

    /// Only what is not acknowledged, only over the other subflow, once per timeout.
    #[test]
    fn a_timeout_sends_data_again_elsewhere() {
        let shares = connection(Scheduler::MinRtt, 10_000, 1 << 20);
        (0..3).for_each(|_| assert_eq!(shares[0].take_data(), Some(1000)));
        shares[0].take_in_order(MSS, Time::ZERO);
        shares[0].on_ack(MSS, MSS + (1 << 20));
        shares[0].send_again_elsewhere();
        shares[0].send_again_elsewhere();
        assert!(shares[1].take_data().is_some() && shares[1].take_data().is_some());
        shares[1].take_in_order(2 * MSS, Time::ZERO);
        assert_eq!(shares[0].received(), 3000, "the second subflow has carried what the first had");
        assert_eq!(shares[0].take_data(), Some(1000));
        shares[0].take_in_order(4 * MSS, Time::ZERO);
        assert_eq!(shares[0].received(), 4000, "what comes twice counts once");
    }

    #[test]
    fn schedulers_order_by_round_trip_or_in_turn() {
        let rtt = |ms| Some(Span::from_millis(ms));
        let mut open = [(0, rtt(20)), (1, rtt(10))];
        connection(Scheduler::MinRtt, 1, 1).remove(0).order(&mut open);
        assert_eq!(open.map(|(number, _)| number), [1, 0]);
        let shares = connection(Scheduler::RoundRobin, 10_000, 1 << 20);
        shares[1].take_data();
        shares[0].order(&mut open);
        assert_eq!(open.map(|(number, _)| number), [0, 1]);
        shares[0].take_data();
        shares[0].order(&mut open);
        assert_eq!(open.map(|(number, _)| number), [1, 0]);
    }
}
