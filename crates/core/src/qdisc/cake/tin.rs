//! A tin of CAKE: 1024 queues that flows find by an eight-way set-associative hash, and take turns by bytes with regard to
//! their hosts.
//!
//! A flow's hash names a queue, and the eight queues around it are its set. The flow takes the queue that bears its tag, else
//! one of the set that nobody uses, and shares the named one only when all eight are in use. With eight ways, collisions
//! begin where a plain hash has many: at 100 flows hardly one shares a queue, where one in ten did.
//!
//! Turns are those of DRR++: a queue with its first packet comes before the others until it has sent its quantum. From
//! then on it is bulk. A turn of a bulk flow is the quantum over the number of bulk flows of its host, of the host that
//! has more of them where both count.

use super::cobalt::{self, Settings};
use super::shaper::{Clock, Framing};
use crate::id::NodeId;
use crate::qdisc::flow_queues::{Slot, Turns, mix};
use crate::qdisc::lists::{NONE, Pool};
use crate::qdisc::{Backlog, Pkt};
use crate::rng::Stream;
use crate::time::Time;

/// Queues of a tin, and of a set.
const QUEUES: usize = 1024;
const WAYS: usize = 8;

/// A host that the runtime does not know.
const UNKNOWN: u32 = u32::MAX;
/// The tag of a queue that no flow has had; flows have 33 bits.
const UNTAGGED: u64 = u64::MAX;

/// The packets of all tins.
pub(super) struct Store {
    pool: Pool,
    /// What waits in all tins.
    pub(super) backlog: Backlog,
}

impl Store {
    /// Without packets.
    pub(super) fn new() -> Self {
        Self { pool: Pool::new(), backlog: Backlog::default() }
    }
}

/// Traffic of one kind.
pub(super) struct Tin {
    settings: Settings,
    quantum: i64,
    /// None until the first packet.
    pub(super) slots: Vec<Slot<Flow>>,
    /// Bytes in each queue.
    bytes: Vec<u64>,
    /// Packets in all its queues.
    pub(super) packets: u32,
    new: Turns,
    old: Turns,
    loads: Loads,
    /// With a shaper: when the tin is within its rate.
    pub(super) clock: Option<Clock>,
    /// Without one: its part of the link, in bytes a turn, and what it may still send.
    pub(super) share: i64,
    pub(super) deficit: i64,
}

/// The flow that has a queue.
#[derive(Clone)]
pub(super) struct Flow {
    cobalt: cobalt::State,
    tag: u64,
    /// Its source and destination.
    hosts: [u32; 2],
    set: Set,
    /// Packets of other flows may wait in the queue too.
    is_shared: bool,
}

/// Where a queue has its turns.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Set {
    /// Nowhere: it is empty.
    Idle,
    /// Among the new queues: it has not sent its first quantum.
    Sparse,
    /// Among the old ones, because it has sent its quantum and run empty before its next turn. It does not count for its
    /// host yet.
    Waiting,
    /// Among the old ones.
    Bulk,
}

/// Bulk flows by host.
struct Loads {
    /// Whether flows of a source, and of a destination, share its part.
    isolates: [bool; 2],
    /// By host: flows of which it is the source, and the destination.
    bulk: Vec<[u32; 2]>,
}

impl Loads {
    fn join(&mut self, hosts: [u32; 2]) {
        for (side, host) in hosts.into_iter().enumerate().filter(|(_, host)| *host != UNKNOWN) {
            let host = host as usize;
            if self.bulk.len() <= host {
                self.bulk.resize(host + 1, [0; 2]);
            }
            self.bulk[host][side] += 1;
        }
    }

    fn leave(&mut self, hosts: [u32; 2]) {
        for (side, host) in hosts.into_iter().enumerate() {
            if let Some(load) = self.bulk.get_mut(host as usize) {
                load[side] -= 1;
            }
        }
    }

    /// Bytes of a turn of a flow between `hosts`.
    fn turn(&self, quantum: i64, hosts: [u32; 2]) -> i64 {
        let load = |side: usize| match self.bulk.get(hosts[side] as usize) {
            Some(load) if self.isolates[side] => load[side],
            _ => 0,
        };
        (quantum / i64::from(load(0).max(load(1)).max(1))).max(1)
    }
}

/// The tag of the flow of `pkt`: its two directions are two flows.
pub(super) fn tag(pkt: &Pkt) -> u64 {
    u64::from(pkt.flow.0) << 1 | u64::from(pkt.reverse)
}

/// The queue that a tag's hash names.
pub(super) fn named(tag: u64, perturbation: u64) -> usize {
    ((mix(tag, perturbation) * QUEUES as u64) >> 32) as usize
}

impl Tin {
    /// A tin whose flows share the part of a source, and of a destination, as `isolates` says.
    pub(super) fn new(
        settings: Settings,
        quantum: i64,
        isolates: [bool; 2],
        clock: Option<Clock>,
        share: i64,
    ) -> Self {
        Self {
            settings,
            quantum,
            slots: Vec::new(),
            bytes: Vec::new(),
            packets: 0,
            new: Turns::EMPTY,
            old: Turns::EMPTY,
            loads: Loads { isolates, bulk: Vec::new() },
            clock,
            share,
            deficit: 0,
        }
    }

    /// Adds `pkt`, which `hosts` exchange, to the queue of its flow; returns which that is.
    pub(super) fn push(
        &mut self,
        now: Time,
        pkt: Pkt,
        hosts: Option<(NodeId, NodeId)>,
        perturbation: u64,
        store: &mut Store,
    ) -> usize {
        if self.packets == 0
            && let Some(clock) = &mut self.clock
        {
            clock.catch_up(now);
        }
        let place = self.place(now, tag(&pkt), perturbation);
        let slot = &mut self.slots[place];
        let len = u64::from(pkt.len);
        store.pool.push(&mut slot.chain, pkt, now);
        store.backlog.packets += 1;
        store.backlog.bytes += len;
        self.bytes[place] += len;
        self.packets += 1;
        match slot.aqm.set {
            Set::Idle => {
                slot.aqm.hosts = hosts.map_or([UNKNOWN; 2], |(from, to)| [from.0, to.0]);
                slot.aqm.set = Set::Sparse;
                slot.deficit = self.loads.turn(self.quantum, slot.aqm.hosts);
                self.new.push(&mut self.slots, place as u32);
            }
            Set::Waiting => {
                slot.aqm.set = Set::Bulk;
                self.loads.join(slot.aqm.hosts);
            }
            Set::Sparse | Set::Bulk => {}
        }
        place
    }

    /// The queue of the flow with this tag.
    fn place(&mut self, now: Time, tag: u64, perturbation: u64) -> usize {
        if self.slots.is_empty() {
            self.make_queues();
        }
        let named = named(tag, perturbation);
        let ways = (0..WAYS).map(|way| named / WAYS * WAYS + (named + way) % WAYS);
        for place in ways.clone() {
            if self.slots[place].aqm.tag == tag {
                self.rests(now, place);
                let slot = &mut self.slots[place];
                slot.aqm.is_shared &= !slot.chain.is_empty();
                return place;
            }
        }
        // Ours: a flow that shares a queue stays there until the queue is empty, so that it keeps its order.
        let slot = &self.slots[named];
        if slot.aqm.is_shared && !slot.chain.is_empty() {
            return named;
        }
        for place in ways {
            if self.rests(now, place) {
                let flow = &mut self.slots[place].aqm;
                (flow.tag, flow.is_shared) = (tag, false);
                return place;
            }
        }
        self.slots[named].aqm.is_shared = true;
        named
    }

    #[cold]
    fn make_queues(&mut self) {
        let flow = Flow {
            cobalt: cobalt::State::default(),
            tag: UNTAGGED,
            hosts: [UNKNOWN; 2],
            set: Set::Idle,
            is_shared: false,
        };
        self.slots = vec![Slot::new(flow); QUEUES];
        self.bytes = vec![0; QUEUES];
    }

    /// True when nobody uses the queue: it is empty, and COBALT remembers nothing of its flow.
    fn rests(&mut self, now: Time, place: usize) -> bool {
        let flow = &mut self.slots[place].aqm;
        flow.set == Set::Idle && flow.cobalt.rests(now, &self.settings)
    }

    /// The next packet to transmit, of which some wait. Packets that COBALT drops are added to `dropped`.
    pub(super) fn dequeue(
        &mut self,
        now: Time,
        framing: Framing,
        store: &mut Store,
        stream: &mut Stream,
        dropped: &mut Vec<Pkt>,
    ) -> Option<Pkt> {
        loop {
            let is_new = self.new.first != NONE;
            let place = if is_new { self.new.first } else { self.old.first };
            let slot = self.slots.get_mut(place as usize)?;
            if slot.deficit <= 0 {
                let hosts = slot.aqm.hosts;
                if slot.aqm.set == Set::Sparse {
                    if slot.chain.is_empty() {
                        slot.aqm.set = Set::Waiting;
                    } else {
                        slot.aqm.set = Set::Bulk;
                        self.loads.join(hosts);
                    }
                }
                slot.deficit += self.loads.turn(self.quantum, hosts);
                self.end_turn(is_new);
                self.old.push(&mut self.slots, place);
                continue;
            }
            if let Some(pkt) = self.serve(now, place as usize, store, stream, dropped) {
                self.slots[place as usize].deficit -= framing.bytes(pkt.len) as i64;
                return Some(pkt);
            }
            let flow = &mut self.slots[place as usize].aqm;
            flow.cobalt.on_empty(now, &self.settings);
            if flow.set == Set::Bulk {
                self.loads.leave(flow.hosts);
            }
            flow.set = Set::Idle;
            self.end_turn(is_new);
        }
    }

    /// Takes the first queue off the new or the old ones.
    fn end_turn(&mut self, is_new: bool) {
        let turns = if is_new { &mut self.new } else { &mut self.old };
        turns.pop(&self.slots);
    }

    /// The first packet of a queue that COBALT lets pass. It always lets the last one pass.
    fn serve(
        &mut self,
        now: Time,
        place: usize,
        store: &mut Store,
        stream: &mut Stream,
        dropped: &mut Vec<Pkt>,
    ) -> Option<Pkt> {
        loop {
            let (mut pkt, since) = self.take(place, store)?;
            let slot = &mut self.slots[place];
            let drops = slot.aqm.cobalt.drops(now, since, &self.settings, &mut pkt, stream);
            if !drops || slot.chain.is_empty() {
                return Some(pkt);
            }
            dropped.push(pkt);
        }
    }

    fn take(&mut self, place: usize, store: &mut Store) -> Option<(Pkt, Time)> {
        let (pkt, since) = store.pool.pop(&mut self.slots[place].chain)?;
        let len = u64::from(pkt.len);
        store.backlog.packets -= 1;
        store.backlog.bytes -= len;
        self.bytes[place] -= len;
        self.packets -= 1;
        Some((pkt, since))
    }

    /// Takes out all packets, whatever the rate. Queues stay as they are, as when a host sends no more.
    pub(super) fn purge(&mut self, store: &mut Store, purged: &mut Vec<Pkt>) {
        for place in 0..self.slots.len() {
            while let Some((pkt, _)) = self.take(place, store) {
                purged.push(pkt);
            }
        }
    }

    /// The queue with most bytes, and how many; none when all are empty.
    pub(super) fn longest(&self) -> Option<(u64, usize)> {
        let most = self.bytes.iter().copied().max().filter(|most| *most > 0)?;
        self.bytes.iter().position(|bytes| *bytes == most).map(|place| (most, place))
    }

    /// Drops the first packet of a queue because the memory is full.
    pub(super) fn drop_first(&mut self, now: Time, place: usize, store: &mut Store, dropped: &mut Vec<Pkt>) {
        dropped.extend(self.take(place, store).map(|(pkt, _)| pkt));
        self.slots[place].aqm.cobalt.on_full(now, &self.settings);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_turns_of_a_host_add_up_to_a_quantum() {
        let turn =
            |isolates, hosts, bulk: &[[u32; 2]]| Loads { isolates, bulk: bulk.to_vec() }.turn(1514, hosts);
        // Host 0 sends eight flows, host 1 gets three and sends one.
        let bulk = [[8, 0], [1, 3]];
        assert_eq!(turn([true, true], [0, 1], &bulk), 189);
        assert_eq!(turn([false, true], [0, 1], &bulk), 504);
        assert_eq!(turn([true, false], [1, 0], &bulk), 1514);
        assert_eq!(turn([false, false], [0, 1], &bulk), 1514);
        // Hosts without bulk flows, and unknown ones.
        assert_eq!(turn([true, true], [2, 0], &bulk), 1514);
        assert_eq!(turn([true, true], [UNKNOWN; 2], &bulk), 1514);
        // However many: a turn moves something.
        assert_eq!(turn([true, true], [0, 1], &[[2000, 0], [0, 0]]), 1);
    }

    #[test]
    fn loads_count_each_side_of_known_hosts() {
        let mut loads = Loads { isolates: [true; 2], bulk: Vec::new() };
        loads.join([2, 0]);
        loads.join([2, UNKNOWN]);
        assert_eq!(loads.bulk, [[0, 1], [0, 0], [2, 0]]);
        loads.leave([2, UNKNOWN]);
        loads.leave([2, 0]);
        assert_eq!(loads.bulk, [[0; 2]; 3]);
    }

    #[test]
    fn a_queue_takes_80_bytes_and_its_byte_count() {
        assert_eq!(size_of::<Slot<Flow>>(), 80);
    }
}
