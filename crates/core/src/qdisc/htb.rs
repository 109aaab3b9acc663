//! Hierarchical token bucket: every class has its rate in any case, and borrows what the others leave, up to its ceiling
//! (Devera, HTB; Linux htb).
//!
//! One root and the classes below it, each with a bucket for `rate` and one for `ceil`. A class is green while neither
//! bucket is below zero, red while that of `ceil` is, yellow in between. Green classes leave first; only then yellow ones,
//! while the root is green too. Both choose the least `prio`, and within it take turns of `quantum` bytes, with a deficit
//! for each of the two. A packet is charged to both buckets of the root and to its class's `ceil`, and to its class's `rate`
//! unless it was borrowed. All that is Linux's, also whose turn it is after a class has changed its colour.
//!
//! Ours: time is exact (Linux rounds a packet's time by a multiplier of 32 bits), no debt is forgiven (Linux forgets what
//! exceeds a minute), and classes are found by DSCP.

mod bucket;
mod plan;

use bucket::Bucket;
pub use plan::{CLASS_KEYS, Misfit, check};
use plan::{DIRECT, PRIORITIES, Plan, Shape};

use super::dscp::CODE_POINTS;
use super::fifo::DropTail;
use super::lists::{Chain, Pool};
use super::{Admission, Backlog, ClassChange, ClassName, Discipline, Pkt, Qdisc, QdiscDef, Verdict, ones};
use crate::params::{Limit, Params};
use crate::time::{Span, Time};
use crate::units::{Bytes, Rate};

/// The registry entry.
pub static DEF: QdiscDef = QdiscDef {
    name: "htb",
    about: "Hierarchical token bucket: classes by DSCP with rates of their own, which borrow up to a ceiling",
    source: "Devera: HTB Linux queuing discipline manual, 2002; Linux htb",
    keys: plan::KEYS,
    check: plan::check_queue,
    build: |params, _| Discipline::Ordered(Box::new(Htb::new(params))),
};

struct Htb {
    root: Buckets,
    root_shape: Shape,
    leaves: Vec<Leaf>,
    class_of: [u8; CODE_POINTS],
    /// Leaves unshaped, before all classes.
    direct: Queue,
    pool: Pool,
    backlog: Backlog,
    /// Green classes, and yellow ones.
    turns: [Turns; 2],
    /// Classes with packets that were not green when last looked at, a bit each.
    held: u64,
}

#[derive(Clone, Copy)]
struct Buckets {
    rate: Bucket,
    ceil: Bucket,
}

struct Queue {
    limit: DropTail,
    chain: Chain,
    backlog: Backlog,
}

struct Leaf {
    name: String,
    shape: Shape,
    buckets: Buckets,
    queue: Queue,
    prio: usize,
    /// As stated; none: follows the rate.
    stated_quantum: Option<Bytes>,
    quantum: i64,
    /// Bytes that remain of the turn among green classes, and among yellow ones.
    deficits: [i64; 2],
    /// When it was last looked at.
    colour: Colour,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Colour {
    Green,
    Yellow,
    Red,
}

const GREEN: usize = 0;
const YELLOW: usize = 1;

/// Whose turn it is among the classes of one colour, by priority.
#[derive(Clone, Copy)]
struct Turns {
    /// A bit per class with packets.
    waiting: [u64; PRIORITIES],
    /// The first class from here on.
    next: [u32; PRIORITIES],
}

impl Turns {
    const NONE: Self = Self { waiting: [0; PRIORITIES], next: [0; PRIORITIES] };

    /// The class whose turn it is, when one waits.
    #[inline]
    fn pick(&mut self) -> Option<usize> {
        let prio = self.waiting.iter().position(|waiting| *waiting != 0)?;
        let waiting = self.waiting[prio];
        let from_here = waiting & u64::MAX.checked_shl(self.next[prio]).unwrap_or(0);
        let at = if from_here == 0 { waiting } else { from_here }.trailing_zeros();
        self.next[prio] = at;
        Some(at as usize)
    }

    /// Class `at` has had its turn.
    #[inline]
    fn pass(&mut self, prio: usize, at: usize) {
        let after = self.waiting[prio] & u64::MAX.checked_shl(at as u32 + 1).unwrap_or(0);
        // Linux resolves this now: a class that joins in between waits for the next round.
        self.next[prio] = after.trailing_zeros();
    }
}

impl Buckets {
    fn full(shape: &Shape) -> Self {
        Self { rate: Bucket::full(shape.rate, shape.burst), ceil: Bucket::full(shape.ceil, shape.cburst) }
    }

    fn change(&mut self, shape: &Shape) {
        self.rate.change(shape.rate, shape.burst);
        self.ceil.change(shape.ceil, shape.cburst);
    }

    /// From when on it is green, unless it sends.
    #[inline]
    fn green_from(&self) -> Time {
        self.rate.ready().max(self.ceil.ready())
    }

    #[inline]
    fn colour(&self, now: Time) -> Colour {
        if self.ceil.ready() > now {
            Colour::Red
        } else if self.rate.ready() > now {
            Colour::Yellow
        } else {
            Colour::Green
        }
    }
}

impl Queue {
    fn new(limit: Limit) -> Self {
        Self { limit: DropTail { limit }, chain: Chain::EMPTY, backlog: Backlog::default() }
    }

    #[inline]
    fn push(&mut self, pool: &mut Pool, now: Time, pkt: Pkt) -> Verdict {
        let verdict = self.limit.admit(now, self.backlog, Span::ZERO, &pkt);
        if verdict != Verdict::Drop {
            pool.push(&mut self.chain, pkt, now);
            self.backlog.packets += 1;
            self.backlog.bytes += u64::from(pkt.len);
        }
        verdict
    }

    #[inline]
    fn pop(&mut self, pool: &mut Pool) -> Option<Pkt> {
        let (pkt, _) = pool.pop(&mut self.chain)?;
        self.backlog.packets -= 1;
        self.backlog.bytes -= u64::from(pkt.len);
        Some(pkt)
    }
}

impl Leaf {
    fn new(class: &plan::Class) -> Self {
        Self {
            name: class.name.clone(),
            shape: class.shape,
            buckets: Buckets::full(&class.shape),
            queue: Queue::new(class.limit),
            prio: usize::from(class.prio),
            stated_quantum: class.quantum,
            quantum: quantum(class.quantum, class.shape.rate),
            deficits: [0; 2],
            colour: Colour::Green,
        }
    }
}

/// tc's r2q of 10 with Linux's bounds, where none is stated.
fn quantum(stated: Option<Bytes>, rate: Rate) -> i64 {
    const R2Q: u64 = 10;
    let bytes = stated.map_or_else(|| (rate.bits_per_sec() / 8 / R2Q).clamp(1_000, 200_000), Bytes::get);
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

impl Htb {
    fn new(params: &Params) -> Self {
        // Parameters that do not pass `check` shape nothing.
        let plan = Plan::read(params).unwrap_or_else(|_| Plan {
            root: Shape {
                rate: params.rate("rate"),
                ceil: params.rate("rate"),
                burst: params.bytes("burst"),
                cburst: params.bytes("cburst"),
            },
            limit: params.limit("limit"),
            classes: Vec::new(),
            class_of: [DIRECT; CODE_POINTS],
        });
        Self {
            root: Buckets::full(&plan.root),
            root_shape: plan.root,
            leaves: plan.classes.iter().map(Leaf::new).collect(),
            class_of: plan.class_of,
            direct: Queue::new(plan.limit),
            pool: Pool::new(),
            backlog: Backlog::default(),
            turns: [Turns::NONE; 2],
            held: 0,
        }
    }

    /// Class `at` has packets, or has changed its colour.
    #[inline]
    fn join(&mut self, at: usize, now: Time) {
        let leaf = &mut self.leaves[at];
        leaf.colour = leaf.buckets.colour(now);
        let bit = 1 << at;
        match leaf.colour {
            Colour::Green => self.turns[GREEN].waiting[leaf.prio] |= bit,
            Colour::Yellow => self.turns[YELLOW].waiting[leaf.prio] |= bit,
            Colour::Red => {}
        }
        if leaf.colour == Colour::Green { self.held &= !bit } else { self.held |= bit }
    }

    /// Class `at` has no packets any more, or changes its colour.
    #[inline]
    fn part(&mut self, at: usize) {
        let leaf = &self.leaves[at];
        let bit = 1 << at;
        self.held &= !bit;
        match leaf.colour {
            Colour::Green => {
                // Linux hands the turn on here; among yellow classes it keeps it for a class that comes back.
                if self.turns[GREEN].next[leaf.prio] == at as u32 {
                    self.turns[GREEN].pass(leaf.prio, at);
                }
                self.turns[GREEN].waiting[leaf.prio] &= !bit;
            }
            Colour::Yellow => self.turns[YELLOW].waiting[leaf.prio] &= !bit,
            Colour::Red => {}
        }
    }

    #[inline]
    fn repaint(&mut self, at: usize, now: Time) {
        if self.leaves[at].colour != self.leaves[at].buckets.colour(now) {
            self.part(at);
            self.join(at, now);
        }
    }

    /// Sends from class `at`, on its own rate or a borrowed one.
    #[inline]
    fn send(&mut self, at: usize, level: usize, now: Time) -> Option<Pkt> {
        let leaf = &mut self.leaves[at];
        let pkt = leaf.queue.pop(&mut self.pool)?;
        let (prio, is_empty) = (leaf.prio, leaf.queue.chain.is_empty());
        leaf.deficits[level] = leaf.deficits[level].saturating_sub(i64::from(pkt.len));
        if leaf.deficits[level] < 0 {
            leaf.deficits[level] = leaf.deficits[level].saturating_add(leaf.quantum);
            self.turns[level].pass(prio, at);
        }
        if is_empty {
            self.part(at);
        }
        let leaf = &mut self.leaves[at];
        if level == GREEN {
            leaf.buckets.rate.charge(now, pkt.len);
        }
        leaf.buckets.ceil.charge(now, pkt.len);
        self.root.rate.charge(now, pkt.len);
        self.root.ceil.charge(now, pkt.len);
        if !is_empty {
            self.repaint(at, now);
        }
        Some(pkt)
    }

    fn find(&self, class: ClassName<'_>) -> Option<usize> {
        match class {
            ClassName::Root => None,
            ClassName::Number(at) => (at < self.leaves.len()).then_some(at),
            ClassName::Name(name) => self.leaves.iter().position(|leaf| leaf.name == name),
        }
    }
}

impl Qdisc for Htb {
    fn enqueue(&mut self, now: Time, pkt: Pkt, _dropped: &mut Vec<Pkt>) -> Verdict {
        let at = usize::from(self.class_of[usize::from(pkt.dscp) % CODE_POINTS]);
        let queue = self.leaves.get_mut(at).map_or(&mut self.direct, |leaf| &mut leaf.queue);
        let verdict = queue.push(&mut self.pool, now, pkt);
        let is_first = queue.backlog.packets == 1;
        if verdict != Verdict::Drop {
            self.backlog.packets += 1;
            self.backlog.bytes += u64::from(pkt.len);
            if is_first && at < self.leaves.len() {
                self.join(at, now);
            }
        }
        verdict
    }

    fn dequeue(&mut self, now: Time, _dropped: &mut Vec<Pkt>) -> Option<Pkt> {
        let pkt = match self.direct.pop(&mut self.pool) {
            Some(pkt) => pkt,
            None => {
                for at in ones(self.held) {
                    self.repaint(at, now);
                }
                if let Some(at) = self.turns[GREEN].pick() {
                    self.send(at, GREEN, now)?
                } else if self.root.colour(now) == Colour::Green
                    && let Some(at) = self.turns[YELLOW].pick()
                {
                    self.send(at, YELLOW, now)?
                } else {
                    return None;
                }
            }
        };
        self.backlog.packets -= 1;
        self.backlog.bytes -= u64::from(pkt.len);
        Some(pkt)
    }

    fn next_ready(&self, now: Time) -> Option<Time> {
        let is_green = self.turns[GREEN].waiting.iter().any(|waiting| *waiting != 0);
        if is_green || !self.direct.chain.is_empty() {
            return Some(now);
        }
        let root = self.root.green_from();
        let from = |at: usize| {
            let Buckets { rate, ceil } = &self.leaves[at].buckets;
            ceil.ready().max(rate.ready().min(root))
        };
        ones(self.held).map(from).min()
    }

    fn backlog(&self) -> Backlog {
        self.backlog
    }

    fn purge(&mut self, _now: Time, purged: &mut Vec<Pkt>) {
        while let Some(pkt) = self.direct.pop(&mut self.pool) {
            purged.push(pkt);
        }
        for at in 0..self.leaves.len() {
            if self.leaves[at].queue.chain.is_empty() {
                continue;
            }
            while let Some(pkt) = self.leaves[at].queue.pop(&mut self.pool) {
                purged.push(pkt);
            }
            self.part(at);
        }
        self.backlog = Backlog::default();
    }

    fn set_class(&mut self, _now: Time, change: &ClassChange<'_>) -> bool {
        let ClassChange { class, rate, ceil } = *change;
        if rate == Rate::ZERO || ceil < rate {
            return false;
        }
        if class == ClassName::Root {
            self.root_shape = Shape { rate, ceil, ..self.root_shape };
            self.root.change(&self.root_shape);
            return true;
        }
        let Some(at) = self.find(class) else { return false };
        let leaf = &mut self.leaves[at];
        leaf.shape = Shape { rate, ceil, ..leaf.shape };
        leaf.buckets.change(&leaf.shape);
        leaf.quantum = quantum(leaf.stated_quantum, rate);
        true
    }
}

#[cfg(test)]
mod tests;
