//! Flow queueing (RFC 8290, section 4): flows are hashed to queues, queues take turns by bytes, and new queues come first.
//!
//! The caller decides what rules each queue: FQ-CoDel has a CoDel for each, FQ-PIE a PIE. CAKE finds its queues and lets
//! them take turns by rules of its own, and shares [`Slot`], [`Turns`] and [`mix`].

use super::lists::{Chain, NONE, Pool};
use super::{Backlog, Pkt};
use crate::id::FlowId;
use crate::params::Params;
use crate::time::Time;
use crate::units::Bytes;

/// A smaller quantum takes many turns for a packet; Linux has the same bound.
const LEAST_QUANTUM: Bytes = Bytes::new(256);
const MOST_QUANTUM: Bytes = Bytes::new(1 << 30);

/// Checks the key `quantum`.
pub(super) fn check_quantum(params: &Params) -> Result<(), (&'static str, String)> {
    let quantum = params.bytes("quantum");
    if !(LEAST_QUANTUM..=MOST_QUANTUM).contains(&quantum) {
        return Err(("quantum", format!("\"{quantum}\" is not from {LEAST_QUANTUM} to {MOST_QUANTUM}")));
    }
    Ok(())
}

/// 32 bits from a number: two rounds of multiplication and folding spread consecutive numbers.
#[inline]
pub(super) fn mix(number: u64, perturbation: u64) -> u64 {
    let mixed = (number ^ perturbation).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    mixed >> 32
}

/// Queues that take turns, each with a rule `A`.
pub(super) struct FlowQueues<A> {
    quantum: i64,
    /// Makes the hash differ between ports (section 4.1.2).
    perturbation: u64,
    pub(super) slots: Vec<Slot<A>>,
    /// Bytes in each queue, apart from [`Slot`]: the search for the longest reads only these.
    pub(super) bytes: Vec<u64>,
    pool: Pool,
    backlog: Backlog,
    new: Turns,
    old: Turns,
}

/// One queue. Linked into the new or the old queues from its first packet until found empty at its turn.
#[derive(Clone)]
pub(super) struct Slot<A> {
    pub(super) chain: Chain,
    /// Bytes that it may still send; below zero when its last packet was longer.
    pub(super) deficit: i64,
    /// What rules it.
    pub(super) aqm: A,
    next: u32,
    has_turn: bool,
}

impl<A> Slot<A> {
    /// An empty queue without a turn.
    pub(super) const fn new(aqm: A) -> Self {
        Self { chain: Chain::EMPTY, deficit: 0, aqm, next: NONE, has_turn: false }
    }
}

/// Queues in the order of their turns.
pub(super) struct Turns {
    /// Whose turn it is; `NONE` without queues.
    pub(super) first: u32,
    last: u32,
}

impl Turns {
    pub(super) const EMPTY: Self = Self { first: NONE, last: NONE };

    /// Adds the queue at `place` to the end.
    pub(super) fn push<A>(&mut self, slots: &mut [Slot<A>], place: u32) {
        slots[place as usize].next = NONE;
        match slots.get_mut(self.last as usize) {
            Some(last) => last.next = place,
            None => self.first = place,
        }
        self.last = place;
    }

    /// Takes the first queue off; there is one.
    pub(super) fn pop<A>(&mut self, slots: &[Slot<A>]) {
        self.first = slots[self.first as usize].next;
        if self.first == NONE {
            self.last = NONE;
        }
    }
}

/// A queue as its rule sees it.
pub(super) struct Queue<'a> {
    chain: &'a mut Chain,
    /// Bytes in it.
    pub(super) bytes: &'a mut u64,
    pool: &'a mut Pool,
    /// What waits in all queues.
    pub(super) backlog: &'a mut Backlog,
}

impl Queue<'_> {
    /// Takes the packet that has waited longest, and when it was queued.
    #[inline]
    pub(super) fn take(&mut self) -> Option<(Pkt, Time)> {
        let (pkt, since) = self.pool.pop(self.chain)?;
        let len = u64::from(pkt.len);
        *self.bytes -= len;
        self.backlog.packets -= 1;
        self.backlog.bytes -= len;
        Some((pkt, since))
    }
}

impl<A: Clone> FlowQueues<A> {
    /// So many queues, each ruled by a copy of `aqm`.
    pub(super) fn new(queues: usize, quantum: Bytes, aqm: A, perturbation: u64) -> Self {
        Self {
            quantum: quantum.get().clamp(LEAST_QUANTUM.get(), MOST_QUANTUM.get()) as i64,
            perturbation,
            slots: vec![Slot::new(aqm); queues],
            bytes: vec![0; queues],
            pool: Pool::new(),
            backlog: Backlog::default(),
            new: Turns::EMPTY,
            old: Turns::EMPTY,
        }
    }
}

impl<A> FlowQueues<A> {
    /// The flow's queue.
    #[inline]
    pub(super) fn place(&self, flow: FlowId) -> u32 {
        ((mix(u64::from(flow.0), self.perturbation) * self.slots.len() as u64) >> 32) as u32
    }

    /// What waits.
    pub(super) const fn backlog(&self) -> Backlog {
        self.backlog
    }

    /// Adds `pkt` to the queue at `place`.
    #[inline]
    pub(super) fn push(&mut self, place: u32, pkt: Pkt, now: Time) {
        let slot = &mut self.slots[place as usize];
        let len = u64::from(pkt.len);
        self.pool.push(&mut slot.chain, pkt, now);
        self.bytes[place as usize] += len;
        self.backlog.packets += 1;
        self.backlog.bytes += len;
        if !slot.has_turn {
            slot.has_turn = true;
            slot.deficit = self.quantum;
            self.new.push(&mut self.slots, place);
        }
    }

    /// The queue with most bytes; none when all are empty.
    pub(super) fn longest(&self) -> Option<u32> {
        let most = self.bytes.iter().copied().max().unwrap_or(0);
        self.bytes.iter().position(|bytes| *bytes == most && most > 0).map(|place| place as u32)
    }

    /// The queue at `place`, and its rule.
    pub(super) fn at(&mut self, place: u32) -> (&mut A, Queue<'_>) {
        let slot = &mut self.slots[place as usize];
        let queue = Queue {
            chain: &mut slot.chain,
            bytes: &mut self.bytes[place as usize],
            pool: &mut self.pool,
            backlog: &mut self.backlog,
        };
        (&mut slot.aqm, queue)
    }

    /// The next packet to transmit. `take` takes it from the queue whose turn it is, and may take others to drop them;
    /// none when that has left the queue empty.
    #[inline]
    pub(super) fn dequeue(
        &mut self,
        mut take: impl FnMut(&mut A, &mut Queue<'_>) -> Option<Pkt>,
    ) -> Option<Pkt> {
        loop {
            let turns = if self.new.first != NONE { &mut self.new } else { &mut self.old };
            let place = turns.first;
            let slot = self.slots.get_mut(place as usize)?;
            if slot.deficit <= 0 {
                slot.deficit += self.quantum;
                turns.pop(&self.slots);
                self.old.push(&mut self.slots, place);
                continue;
            }
            let mut queue = Queue {
                chain: &mut slot.chain,
                bytes: &mut self.bytes[place as usize],
                pool: &mut self.pool,
                backlog: &mut self.backlog,
            };
            if let Some(pkt) = take(&mut slot.aqm, &mut queue) {
                slot.deficit -= i64::from(pkt.len);
                return Some(pkt);
            }
            // Section 4.2: an empty new queue waits for a turn among the old ones, so that it cannot come first again
            // by sending one packet at a time.
            let was_new = self.new.first != NONE;
            if was_new {
                self.new.pop(&self.slots);
                self.old.push(&mut self.slots, place);
            } else {
                slot.has_turn = false;
                self.old.pop(&self.slots);
            }
        }
    }
}
