//! FQ-CoDel (RFC 8290): flows are hashed to queues, queues take turns by bytes, new queues come first, and each queue
//! has CoDel.
//!
//! Section 4.1 leaves room; where it does this is what Linux does: on overflow the longest queue loses packets from
//! its front until half of its bytes or 64 packets are gone, and its CoDel counts them; CoDel's `mtu` is compared with
//! what waits in all queues. Ours: `limit` may be bytes, which stand in for Linux's `memory_limit`.

use super::codel::{self, Settings, State, Waiting};
use super::flow_queues::{FlowQueues, Queue, check_quantum};
use super::{Backlog, Discipline, Pkt, Qdisc, QdiscDef, Site, Verdict};
use crate::params::{Kind, Limit, Params, keys};
use crate::time::Time;
use crate::units::Dimension;

/// The registry entry.
pub static DEF: QdiscDef = QdiscDef {
    name: "fq-codel",
    about: "FQ-CoDel: flows hashed to queues that take turns, sparse flows first, CoDel in each",
    source: "RFC 8290",
    keys: keys! {
        /// Most that may wait in all queues together, not counting the packet in transmission
        "limit": Kind::Limit, default "10240pkt", from "RFC 8290, section 5.2.2";
        /// Number of queues; flows whose hashes collide share one
        "queues": Kind::Integer { min: 1, max: 65_536 }, default "1024", from "RFC 8290, section 5.2.4";
        /// Bytes that a queue may send per turn
        "quantum": Kind::Quantity(Dimension::Bytes), default "1514B", from "RFC 8290, section 5.2.3";
        ..codel::TARGET;
        ..codel::INTERVAL;
        ..codel::MTU;
        /// Mark packets that may be marked in place of CoDel's drops
        "ecn": Kind::Bool, default "true", from "RFC 8290, section 5.2.6";
    },
    check,
    build: |params, site| Discipline::Ordered(Box::new(FqCoDel::new(params, site))),
};

/// Section 4.1: packets that one overflow may drop.
const DROP_BATCH: u32 = 64;

fn check(params: &Params) -> Result<(), (&'static str, String)> {
    check_quantum(params)?;
    codel::check(params)
}

struct FqCoDel {
    settings: Settings,
    limit: Limit,
    queues: FlowQueues<State>,
}

impl Waiting for Queue<'_> {
    #[inline]
    fn pop(&mut self) -> Option<(Pkt, Time)> {
        self.take()
    }

    fn bytes(&self) -> u64 {
        self.backlog.bytes
    }
}

impl FqCoDel {
    fn new(params: &Params, mut site: Site) -> Self {
        let queues = params.integer("queues").max(1) as usize;
        let perturbation = site.stream.next_u64();
        Self {
            settings: Settings::new(params),
            limit: params.limit("limit"),
            queues: FlowQueues::new(queues, params.bytes("quantum"), State::default(), perturbation),
        }
    }

    /// Drops from the longest queue and returns which that is; from `arrival`'s when all have no length.
    #[cold]
    fn drop_batch(&mut self, arrival: u32, dropped: &mut Vec<Pkt>) -> u32 {
        let place = self.queues.longest().unwrap_or(arrival);
        let (state, mut queue) = self.queues.at(place);
        let most = *queue.bytes;
        let mut count = 0;
        while count < DROP_BATCH && (count == 0 || *queue.bytes > most - most / 2) {
            let Some((pkt, _)) = queue.take() else { break };
            dropped.push(pkt);
            count += 1;
        }
        state.count_drops(count);
        place
    }
}

impl Qdisc for FqCoDel {
    #[inline]
    fn enqueue(&mut self, now: Time, pkt: Pkt, dropped: &mut Vec<Pkt>) -> Verdict {
        if matches!(self.limit, Limit::Bytes(bytes) if u64::from(pkt.len) > bytes.get()) {
            return Verdict::Drop;
        }
        let place = self.queues.place(pkt.flow);
        self.queues.push(place, pkt, now);
        while !self.queues.backlog().within(self.limit) {
            let victim = self.drop_batch(place, dropped);
            if victim == place && self.queues.slots[place as usize].chain.is_empty() {
                // The arriving packet was the last of its queue.
                dropped.pop();
                return Verdict::Drop;
            }
        }
        Verdict::Accept
    }

    #[inline]
    fn dequeue(&mut self, now: Time, dropped: &mut Vec<Pkt>) -> Option<Pkt> {
        self.queues.dequeue(|state, queue| state.dequeue(now, &self.settings, queue, dropped))
    }

    fn next_ready(&self, now: Time) -> Option<Time> {
        (self.queues.backlog().packets > 0).then_some(now)
    }

    fn backlog(&self) -> Backlog {
        self.queues.backlog()
    }
}

#[cfg(test)]
mod tests {
    use super::super::flow_queues::Slot;
    use super::*;
    use crate::id::FlowId;
    use crate::params::Value;
    use crate::rng::Stream;
    use crate::time::Span;
    use crate::units::{Bytes, Rate};

    /// `limit`, and the default of every other key but `ecn`: off.
    fn fq_codel(limit: Limit) -> FqCoDel {
        let mut params = Params::defaults(DEF.keys);
        params.set("limit", Value::Limit(limit));
        params.set("ecn", Value::Bool(false));
        let rate = Rate::from_bits_per_sec(10_000_000);
        FqCoDel::new(&params, Site::new(rate, Stream::new(1, 0, "test")))
    }

    /// Flows with different queues.
    fn flows<const N: usize>(queue: &FqCoDel) -> [u32; N] {
        let mut found = Vec::new();
        for flow in 0.. {
            let place = |flow| queue.queues.place(FlowId(flow));
            if found.iter().all(|have| place(*have) != place(flow)) {
                found.push(flow);
            }
            if found.len() == N {
                break;
            }
        }
        found.try_into().unwrap()
    }

    fn pkt(key: u32, flow: u32, len: u32) -> Pkt {
        Pkt { key, len, flow: FlowId(flow), dscp: 0, ect: false, ce: false, reverse: false }
    }

    fn put(queue: &mut FqCoDel, key: u32, flow: u32, len: u32) -> (Verdict, Vec<u32>) {
        let mut dropped = Vec::new();
        let verdict = queue.enqueue(Time::ZERO, pkt(key, flow, len), &mut dropped);
        (verdict, dropped.iter().map(|p| p.key).collect())
    }

    fn take(queue: &mut FqCoDel) -> Option<u32> {
        queue.dequeue(Time::ZERO, &mut Vec::new()).map(|p| p.key)
    }

    #[test]
    fn queues_take_turns_by_bytes() {
        let mut queue = fq_codel(Limit::Packets(100));
        let [a, b] = flows(&queue);
        for key in 0..4 {
            put(&mut queue, key, a, 1514);
        }
        for key in 10..16 {
            put(&mut queue, key, b, 757);
        }
        // Each turn is 1514 bytes: one packet of a, two of b.
        let order: Vec<u32> = core::iter::from_fn(|| take(&mut queue)).collect();
        assert_eq!(order, [0, 10, 11, 1, 12, 13, 2, 14, 15, 3]);
        assert_eq!(queue.backlog(), Backlog::default());
    }

    #[test]
    fn what_a_turn_sends_too_much_is_paid_at_the_next() {
        let mut queue = fq_codel(Limit::Packets(100));
        let [a, b] = flows(&queue);
        for key in 0..6 {
            put(&mut queue, key, a, 1000);
            put(&mut queue, key + 10, b, 1514);
        }
        // a: 1514 -> 514 -> -486, then + 1514 = 1028 -> 28 -> -972, then 542 -> -458.
        let order: Vec<u32> = core::iter::from_fn(|| take(&mut queue)).collect();
        assert_eq!(order, [0, 1, 10, 2, 3, 11, 4, 12, 5, 13, 14, 15]);
    }

    #[test]
    fn a_sparse_flow_comes_first_but_not_twice_in_a_round() {
        let mut queue = fq_codel(Limit::Packets(100));
        let [bulk, sparse] = flows(&queue);
        for key in 0..6 {
            put(&mut queue, key, bulk, 700);
        }
        // bulk: 1514 -> 814 -> 114 -> -586.
        assert_eq!([take(&mut queue), take(&mut queue), take(&mut queue)], [Some(0), Some(1), Some(2)]);
        put(&mut queue, 10, sparse, 100);
        assert_eq!(take(&mut queue), Some(10));
        // Found empty, sparse goes behind bulk, which has 928 -> 228; its next packet waits there: bulk 228 -> -472.
        assert_eq!(take(&mut queue), Some(3));
        put(&mut queue, 11, sparse, 100);
        assert_eq!([take(&mut queue), take(&mut queue)], [Some(4), Some(11)]);
        assert_eq!([take(&mut queue), take(&mut queue)], [Some(5), None]);
    }

    #[test]
    fn overflow_takes_half_of_the_longest_queue_from_its_front() {
        let mut queue = fq_codel(Limit::Packets(10));
        let [a, b, c] = flows(&queue);
        for key in 0..6 {
            assert_eq!(put(&mut queue, key, a, 1000), (Verdict::Accept, vec![]));
        }
        for key in 10..14 {
            assert_eq!(put(&mut queue, key, b, 1400), (Verdict::Accept, vec![]));
        }
        // a has 6000 bytes, b 5600: three packets of a make half.
        assert_eq!(put(&mut queue, 20, c, 500), (Verdict::Accept, vec![0, 1, 2]));
        assert_eq!(queue.backlog(), Backlog { packets: 8, bytes: 3000 + 5600 + 500 });
        assert_eq!(queue.queues.slots[queue.queues.place(FlowId(a)) as usize].aqm, {
            let mut state = State::default();
            state.count_drops(3);
            state
        });
    }

    #[test]
    fn an_overflow_drops_at_most_64_packets() {
        let mut queue = fq_codel(Limit::Packets(200));
        let [a] = flows(&queue);
        for key in 0..200 {
            put(&mut queue, key, a, 1000);
        }
        let (verdict, dropped) = put(&mut queue, 200, a, 1000);
        assert_eq!((verdict, dropped), (Verdict::Accept, (0..64).collect()));
    }

    #[test]
    fn an_arrival_that_is_dropped_itself_was_never_queued() {
        let mut queue = fq_codel(Limit::Packets(0));
        assert_eq!(put(&mut queue, 0, 0, 1000), (Verdict::Drop, vec![]));
        let mut queue = fq_codel(Limit::Bytes(Bytes::new(1500)));
        let [a, b] = flows(&queue);
        assert_eq!(put(&mut queue, 1, a, 900), (Verdict::Accept, vec![]));
        assert_eq!(put(&mut queue, 2, b, 1000), (Verdict::Drop, vec![]));
        assert_eq!(put(&mut queue, 3, b, 700), (Verdict::Accept, vec![1]));
        assert_eq!(queue.backlog(), Backlog { packets: 1, bytes: 700 });
        assert_eq!([take(&mut queue), take(&mut queue)], [Some(3), None]);
    }

    #[test]
    fn each_queue_has_a_codel_of_its_own() {
        let mut queue = fq_codel(Limit::Packets(1000));
        let [bulk, late] = flows(&queue);
        let at = |millis| Time::ZERO + Span::from_millis(millis);
        for key in 0..400 {
            put(&mut queue, key, bulk, 1514);
        }
        let mut dropped = Vec::new();
        // Above target from 10 ms on: the first drop comes with the first departure from 110 ms on.
        for millis in (10..=110).step_by(10) {
            assert!(queue.dequeue(at(millis), &mut dropped).is_some());
        }
        assert_eq!(dropped.iter().map(|p| p.key).collect::<Vec<_>>(), [10]);
        let mut fresh = pkt(1000, late, 1514);
        fresh.ect = true;
        queue.enqueue(at(110), fresh, &mut dropped);
        assert_eq!(queue.dequeue(at(210), &mut dropped).map(|p| p.key), Some(1000));
        assert_eq!(dropped.len(), 1);
    }

    #[test]
    fn ports_hash_differently_and_no_queue_attracts_flows() {
        let site = |name| Site::new(Rate::ZERO, Stream::new(1, 0, name));
        let params = Params::defaults(DEF.keys);
        let (one, other) = (FqCoDel::new(&params, site("one")), FqCoDel::new(&params, site("other")));
        assert_ne!(
            (0..20).map(|f| one.queues.place(FlowId(f))).collect::<Vec<_>>(),
            (0..20).map(|f| other.queues.place(FlowId(f))).collect::<Vec<_>>()
        );
        let mut flows = vec![0u32; 1024];
        for flow in 0..102_400 {
            flows[one.queues.place(FlowId(flow)) as usize] += 1;
        }
        // 100 each; the standard deviation is 10.
        assert!(flows.iter().all(|n| (50..150).contains(n)), "{flows:?}");
    }

    #[test]
    fn a_queue_takes_one_cache_line_and_its_byte_count() {
        assert_eq!(size_of::<Slot<State>>(), 64);
    }

    #[test]
    fn a_quantum_that_moves_nothing_is_refused() {
        let mut params = Params::defaults(DEF.keys);
        assert_eq!((DEF.check)(&params), Ok(()));
        params.set("quantum", Value::Bytes(Bytes::ZERO));
        assert_eq!((DEF.check)(&params).unwrap_err().0, "quantum");
    }
}
