//! Deficit round robin (Shreedhar and Varghese 1996): flows take turns, and what a flow may not send of its quantum
//! is kept for its next turn.
//!
//! Every flow has a queue of its own; the paper hashes flows to queues and counts collisions as unfairness. A full
//! buffer is freed by buffer stealing, as the paper does after McKenney: the longest queue loses its first packet, by
//! packets or by bytes as `limit` counts, and of equally long queues the one that changed last. Ours: lengths from 32
//! on are compared to within a sixteenth, which makes the search O(1).

use super::lists::{Chain, NONE, Pool};
use super::{Backlog, Discipline, Pkt, Qdisc, QdiscDef, Verdict};
use crate::id::FlowId;
use crate::params::{Kind, Limit, Params, keys};
use crate::time::Time;
use crate::units::{Bytes, Dimension};

/// The registry entry.
pub static DEF: QdiscDef = QdiscDef {
    name: "drr",
    about: "Deficit round robin: a queue per flow, turns by bytes, a full buffer takes from the longest queue",
    source: "Shreedhar, Varghese: Efficient Fair Queuing Using Deficit Round-Robin, IEEE/ACM Trans. Netw. 4(3), 1996",
    keys: keys! {
        /// Most that may wait in all queues together, not counting the packet in transmission
        "limit": Kind::Limit, default "1000pkt", from "as fifo";
        /// Bytes that a flow may send per turn; at least the longest packet, for a bounded number of turns per
        /// packet
        "quantum": Kind::Quantity(Dimension::Bytes), default "1514B", from "Sect. III: Max, for O(1)";
    },
    check: |params| {
        let quantum = params.bytes("quantum");
        if quantum < LEAST_QUANTUM {
            return Err(("quantum", format!("\"{quantum}\" is below {LEAST_QUANTUM}")));
        }
        Ok(())
    },
    build: |params, _| Discipline::Ordered(Box::new(Drr::new(params))),
};

/// A smaller quantum takes many turns for a packet; as FQ-CoDel's.
const LEAST_QUANTUM: Bytes = Bytes::new(256);

struct Drr {
    limit: Limit,
    quantum: u64,
    pool: Pool,
    flows: Flows,
    /// The paper's ActiveList.
    active: Ring,
    by_length: ByLength,
    backlog: Backlog,
}

/// A flow with packets.
#[derive(Clone, Copy)]
struct Flow {
    id: FlowId,
    chain: Chain,
    packets: u32,
    bytes: u64,
    /// The paper's DC.
    deficit: u64,
    /// Its quantum has been added at this turn.
    in_turn: bool,
    /// Neighbours on the active list.
    turn: Link,
    /// Neighbours among flows of like length, and which length that is.
    like: Link,
    length: u16,
    /// Next flow with the same hash, or next free place.
    next: u32,
}

#[derive(Clone, Copy)]
struct Link {
    before: u32,
    after: u32,
}

const UNLINKED: Link = Link { before: NONE, after: NONE };

/// Flows with packets, found by number: hash chains through an array of places.
struct Flows {
    places: Vec<Flow>,
    heads: Vec<u32>,
    free: u32,
    len: usize,
}

/// Flows in the order of their turns.
struct Ring {
    first: u32,
    last: u32,
}

/// Flows by the lengths of their queues.
struct ByLength {
    /// First flow per class of length.
    heads: Vec<u32>,
    /// Bit per class that has flows.
    occupied: [u64; LENGTHS / 64],
}

/// Classes of length: 0 to 31 exactly, then 16 to each doubling, up to 2^64.
const LENGTHS: usize = 1024;

fn class(length: u64) -> u16 {
    let shift = 59u32.saturating_sub(length.leading_zeros());
    (u64::from(shift * 16) + (length >> shift)) as u16
}

impl Drr {
    fn new(params: &Params) -> Self {
        Self {
            limit: params.limit("limit"),
            quantum: params.bytes("quantum").max(LEAST_QUANTUM).get(),
            pool: Pool::new(),
            flows: Flows { places: Vec::new(), heads: vec![NONE; 16], free: NONE, len: 0 },
            active: Ring { first: NONE, last: NONE },
            by_length: ByLength { heads: vec![NONE; LENGTHS], occupied: [0; LENGTHS / 64] },
            backlog: Backlog::default(),
        }
    }

    /// Files the flow by its present length.
    #[inline]
    fn file(&mut self, place: u32) {
        let flow = &self.flows.places[place as usize];
        let length = match self.limit {
            Limit::Packets(_) => u64::from(flow.packets),
            Limit::Bytes(_) => flow.bytes,
            Limit::Unlimited => return,
        };
        let (old, new) = (flow.length, class(length));
        if old != new {
            self.by_length.remove(&mut self.flows.places, place);
            self.by_length.insert(&mut self.flows.places, place, new);
        }
    }

    /// Takes the first packet of a flow, and forgets a flow without packets.
    #[inline]
    fn pop(&mut self, place: u32) -> Option<Pkt> {
        let flow = &mut self.flows.places[place as usize];
        let (pkt, _) = self.pool.pop(&mut flow.chain)?;
        let len = u64::from(pkt.len);
        flow.packets -= 1;
        flow.bytes -= len;
        self.backlog.packets -= 1;
        self.backlog.bytes -= len;
        if flow.packets == 0 {
            self.active.remove(&mut self.flows.places, place);
            self.by_length.remove(&mut self.flows.places, place);
            self.flows.remove(place);
        } else {
            self.file(place);
        }
        Some(pkt)
    }
}

impl Qdisc for Drr {
    fn enqueue(&mut self, now: Time, pkt: Pkt, dropped: &mut Vec<Pkt>) -> Verdict {
        if matches!(self.limit, Limit::Bytes(bytes) if u64::from(pkt.len) > bytes.get()) {
            return Verdict::Drop;
        }
        let place = match self.flows.find(pkt.flow) {
            Some(place) => place,
            None => {
                let place = self.flows.insert(pkt.flow);
                self.active.push(&mut self.flows.places, place);
                place
            }
        };
        let flow = &mut self.flows.places[place as usize];
        self.pool.push(&mut flow.chain, pkt, now);
        flow.packets += 1;
        flow.bytes += u64::from(pkt.len);
        self.backlog.packets += 1;
        self.backlog.bytes += u64::from(pkt.len);
        self.file(place);
        while !self.backlog.within(self.limit) {
            let longest = self.by_length.longest().unwrap_or(place);
            let is_arrival = longest == place && self.flows.places[place as usize].packets == 1;
            let stolen = self.pop(longest);
            if is_arrival {
                return Verdict::Drop;
            }
            dropped.extend(stolen);
        }
        Verdict::Accept
    }

    fn dequeue(&mut self, _now: Time, _dropped: &mut Vec<Pkt>) -> Option<Pkt> {
        loop {
            let place = self.active.first;
            let flow = self.flows.places.get_mut(place as usize)?;
            if !flow.in_turn {
                flow.in_turn = true;
                flow.deficit = flow.deficit.saturating_add(self.quantum);
            }
            let len = u64::from(self.pool.first(&flow.chain)?.len);
            if len <= flow.deficit {
                flow.deficit -= len;
                return self.pop(place);
            }
            flow.in_turn = false;
            self.active.remove(&mut self.flows.places, place);
            self.active.push(&mut self.flows.places, place);
        }
    }

    fn next_ready(&self, now: Time) -> Option<Time> {
        (self.backlog.packets > 0).then_some(now)
    }

    fn backlog(&self) -> Backlog {
        self.backlog
    }
}

impl Flows {
    fn head(&self, id: FlowId) -> usize {
        let mixed = u64::from(id.0).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (((mixed >> 32) * self.heads.len() as u64) >> 32) as usize
    }

    #[inline]
    fn find(&self, id: FlowId) -> Option<u32> {
        let mut place = self.heads[self.head(id)];
        while let Some(flow) = self.places.get(place as usize) {
            if flow.id == id {
                return Some(place);
            }
            place = flow.next;
        }
        None
    }

    /// Adds a flow that is not there.
    fn insert(&mut self, id: FlowId) -> u32 {
        if self.len == self.heads.len() {
            self.grow();
        }
        self.len += 1;
        let head = self.head(id);
        let flow = Flow {
            id,
            chain: Chain::EMPTY,
            packets: 0,
            bytes: 0,
            deficit: 0,
            in_turn: false,
            turn: UNLINKED,
            like: UNLINKED,
            length: 0,
            next: self.heads[head],
        };
        let place = self.free;
        self.heads[head] = match self.places.get_mut(place as usize) {
            Some(free) => {
                self.free = free.next;
                *free = flow;
                place
            }
            None => {
                self.places.push(flow);
                (self.places.len() - 1) as u32
            }
        };
        self.heads[head]
    }

    fn remove(&mut self, place: u32) {
        let Flow { id, next, .. } = self.places[place as usize];
        let head = self.head(id);
        if self.heads[head] == place {
            self.heads[head] = next;
        } else {
            let mut before = self.heads[head] as usize;
            while self.places[before].next != place {
                before = self.places[before].next as usize;
            }
            self.places[before].next = next;
        }
        self.places[place as usize].next = self.free;
        self.free = place;
        self.len -= 1;
    }

    /// Doubles the heads.
    #[cold]
    fn grow(&mut self) {
        let old = core::mem::take(&mut self.heads);
        self.heads = vec![NONE; old.len() * 2];
        for mut place in old {
            while let Some(flow) = self.places.get(place as usize) {
                let (id, next) = (flow.id, flow.next);
                let head = self.head(id);
                self.places[place as usize].next = self.heads[head];
                self.heads[head] = place;
                place = next;
            }
        }
    }
}

impl Ring {
    fn push(&mut self, flows: &mut [Flow], place: u32) {
        flows[place as usize].turn = Link { before: self.last, after: NONE };
        match flows.get_mut(self.last as usize) {
            Some(last) => last.turn.after = place,
            None => self.first = place,
        }
        self.last = place;
    }

    fn remove(&mut self, flows: &mut [Flow], place: u32) {
        let Link { before, after } = flows[place as usize].turn;
        match flows.get_mut(before as usize) {
            Some(flow) => flow.turn.after = after,
            None => self.first = after,
        }
        match flows.get_mut(after as usize) {
            Some(flow) => flow.turn.before = before,
            None => self.last = before,
        }
    }
}

impl ByLength {
    /// Class 0 is that of flows that are not filed.
    fn insert(&mut self, flows: &mut [Flow], place: u32, length: u16) {
        if length == 0 {
            flows[place as usize].length = 0;
            return;
        }
        let head = core::mem::replace(&mut self.heads[usize::from(length)], place);
        if let Some(flow) = flows.get_mut(head as usize) {
            flow.like.before = place;
        }
        let flow = &mut flows[place as usize];
        flow.like = Link { before: NONE, after: head };
        flow.length = length;
        self.occupied[usize::from(length) / 64] |= 1 << (length % 64);
    }

    fn remove(&mut self, flows: &mut [Flow], place: u32) {
        let Flow { like: Link { before, after }, length, .. } = flows[place as usize];
        if length == 0 {
            return;
        }
        if let Some(flow) = flows.get_mut(after as usize) {
            flow.like.before = before;
        }
        match flows.get_mut(before as usize) {
            Some(flow) => flow.like.after = after,
            None => {
                self.heads[usize::from(length)] = after;
                if after == NONE {
                    self.occupied[usize::from(length) / 64] &= !(1 << (length % 64));
                }
            }
        }
    }

    /// The flow that came last among the longest.
    fn longest(&self) -> Option<u32> {
        let word = self.occupied.iter().rposition(|word| *word != 0)?;
        let bit = 63 - self.occupied[word].leading_zeros() as usize;
        Some(self.heads[word * 64 + bit])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params::Value;

    fn drr(limit: Limit, quantum: u64) -> Drr {
        let mut params = Params::defaults(DEF.keys);
        params.set("limit", Value::Limit(limit));
        params.set("quantum", Value::Bytes(Bytes::new(quantum)));
        Drr::new(&params)
    }

    fn put(drr: &mut Drr, key: u32, flow: u32, len: u32) -> (Verdict, Vec<u32>) {
        let mut dropped = Vec::new();
        let pkt = Pkt { key, len, flow: FlowId(flow), dscp: 0, ect: false, ce: false, reverse: false };
        let verdict = drr.enqueue(Time::ZERO, pkt, &mut dropped);
        (verdict, dropped.iter().map(|p| p.key).collect())
    }

    fn drain(drr: &mut Drr) -> Vec<u32> {
        core::iter::from_fn(|| drr.dequeue(Time::ZERO, &mut Vec::new())).map(|p| p.key).collect()
    }

    /// Two queues of the paper's Figs. 2 and 3: quantum 500; packets of 200, 750 and 20, and of 500 and 500.
    #[test]
    fn the_example_of_the_paper() {
        let mut drr = drr(Limit::Packets(100), 500);
        for (key, flow, len) in [(1, 1, 200), (2, 1, 750), (3, 1, 20), (11, 2, 500), (12, 2, 500)] {
            put(&mut drr, key, flow, len);
        }
        // Round 1: 200 of 500 leave 300 for flow 1; flow 2 sends its 500. Round 2: 300 + 500 = 800 carry 750 and
        // 20.
        assert_eq!(drain(&mut drr), [1, 11, 2, 3, 12]);
        assert_eq!(drr.backlog(), Backlog::default());
    }

    #[test]
    fn an_emptied_flow_keeps_no_deficit() {
        let mut drr = drr(Limit::Packets(100), 1000);
        put(&mut drr, 1, 1, 100);
        assert_eq!(drain(&mut drr), [1]);
        put(&mut drr, 2, 1, 1000);
        put(&mut drr, 3, 1, 900);
        put(&mut drr, 4, 2, 500);
        // With the 900 left over, 2 and 3 would go together.
        assert_eq!(drain(&mut drr), [2, 4, 3]);
    }

    #[test]
    fn a_packet_longer_than_the_quantum_waits_for_further_turns() {
        let mut drr = drr(Limit::Packets(100), 500);
        put(&mut drr, 1, 1, 1500);
        for key in 10..14 {
            put(&mut drr, key, 2, 500);
        }
        assert_eq!(drain(&mut drr), [10, 11, 1, 12, 13]);
    }

    #[test]
    fn a_full_buffer_takes_the_first_packet_of_the_longest_queue() {
        let mut drr = drr(Limit::Packets(4), 1500);
        for key in 0..3 {
            put(&mut drr, key, 1, 1500);
        }
        assert_eq!(put(&mut drr, 10, 2, 100), (Verdict::Accept, vec![]));
        assert_eq!(put(&mut drr, 11, 2, 100), (Verdict::Accept, vec![0]));
        // Two each, and flow 1 changed last.
        assert_eq!(put(&mut drr, 20, 3, 100), (Verdict::Accept, vec![1]));
        assert_eq!(drain(&mut drr), [2, 10, 11, 20]);
    }

    #[test]
    fn a_flow_with_no_more_than_others_does_not_push_them_out() {
        let mut drr = drr(Limit::Packets(2), 1500);
        put(&mut drr, 0, 1, 100);
        put(&mut drr, 1, 2, 100);
        assert_eq!(put(&mut drr, 2, 3, 100), (Verdict::Drop, vec![]));
        assert_eq!(drr.flows.len, 2);
        let mut nothing = self::drr(Limit::Packets(0), 1500);
        assert_eq!(put(&mut nothing, 0, 1, 100), (Verdict::Drop, vec![]));
        assert_eq!((nothing.flows.len, nothing.active.first), (0, NONE));
    }

    #[test]
    fn a_limit_in_bytes_compares_bytes() {
        let mut drr = drr(Limit::Bytes(Bytes::new(2000)), 1500);
        for key in 0..6 {
            put(&mut drr, key, 1, 100);
        }
        put(&mut drr, 10, 2, 1400);
        // 600 bytes in six packets are less than 1400 in one.
        assert_eq!(put(&mut drr, 20, 3, 200), (Verdict::Accept, vec![10]));
        assert_eq!(put(&mut drr, 21, 3, 2001), (Verdict::Drop, vec![]));
        assert_eq!(drr.backlog(), Backlog { packets: 7, bytes: 800 });
    }

    #[test]
    fn classes_of_length_are_exact_below_32_and_within_a_sixteenth_above() {
        for length in 0..32 {
            assert_eq!(u64::from(class(length)), length);
        }
        assert_eq!([class(32), class(33), class(34), class(63), class(64)], [32, 32, 33, 47, 48]);
        assert!(usize::from(class(u64::MAX)) < LENGTHS);
        for length in [100u64, 1_000, 64_000, 1 << 40] {
            assert!(class(length + length / 16 + 1) > class(length), "{length}");
        }
    }

    #[test]
    fn flows_come_and_go_in_bounded_memory() {
        let mut drr = drr(Limit::Packets(50), 1500);
        for key in 0..10_000u32 {
            put(&mut drr, key, key * 7919, 100 + key % 1000);
            if key % 3 == 0 {
                drr.dequeue(Time::ZERO, &mut Vec::new());
            }
        }
        assert!(drr.flows.places.len() <= 51, "{}", drr.flows.places.len());
        // Full, and one has left since the last arrival.
        assert_eq!(drr.backlog().packets, 49);
        assert_eq!(drain(&mut drr).len(), 49);
        assert_eq!((drr.flows.len, drr.active.first, drr.active.last), (0, NONE, NONE));
        assert!(drr.by_length.occupied.iter().all(|word| *word == 0));
    }

    #[test]
    fn a_quantum_that_moves_nothing_is_refused() {
        let mut params = Params::defaults(DEF.keys);
        assert_eq!((DEF.check)(&params), Ok(()));
        params.set("quantum", Value::Bytes(Bytes::new(255)));
        assert_eq!((DEF.check)(&params), Err(("quantum", "\"255B\" is below 256B".to_owned())));
    }
}
