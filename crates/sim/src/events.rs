//! The event queue: a monotone radix heap ordered by time, then by order of insertion.
//!
//! A simulation never schedules into the past, so an entry can be filed by the highest digit in which its time differs
//! from the last time taken: filing takes a few instructions, and an entry moves to a lower bucket at most once per
//! digit. Entries with equal times always lie in the same bucket and keep their order, which makes runs reproducible.

use bandmaster_core::time::Time;

use crate::link::Left;

/// What happens. The number is an index whose meaning depends on the kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Event {
    /// The packet at the head of port `.0`'s wire reaches the other end.
    Arrival(u32),
    /// Port `.0` has transmitted a packet and may start the next (disciplines that order packets themselves).
    PortFree(u32),
    /// The host at port `.0` has processed a packet (disciplines that order packets themselves).
    Processed(u32),
    /// Retransmission or persist timer of TCP flow `.0`.
    Retransmit(u32),
    /// Reordering timer of TCP flow `.0` (RFC 8985).
    Reordering(u32),
    /// Tail-loss probe of TCP flow `.0` (RFC 8985).
    Probe(u32),
    /// Delayed acknowledgement of TCP flow `.0`.
    DelayedAck(u32),
    /// Pacing of TCP flow `.0` lets a segment go.
    Pace(u32),
    /// Credit of TCP flow `.0` grows by a segment.
    Credit(u32),
    /// The application of TCP flow `.0` reads.
    Read(u32),
    /// Flow `.0` starts.
    Start(u32),
    /// Flow `.0` stops.
    Stop(u32),
    /// Flow `.0` goes from on to off or back.
    Toggle(u32),
    /// UDP flow `.0` sends a packet.
    Datagram(u32),
    /// End of a sampling interval.
    Sample,
    /// Controller `.0` asked to be woken.
    Wakeup(u32),
    /// Message `.0` reaches its role.
    Deliver(u32),
    /// The probe with key `.0` begins its first transmission.
    ProbeLeft(u32),
    /// Timer of the window program of gate `.0`.
    Gate(u32),
    /// Fault `.0` of the scenario's list of nodes happens.
    NodeFault(u32),
    /// A packet that had a delay of its own arrives over port `.0`.
    Landing(u32),
    /// The packet with key `.0`, which comes from another part of the network, arrives.
    Crossed(u32),
    /// Turn `.0` of the trial's outages happens.
    Outage(u32),
    /// Routes learn of links that went down or came up.
    Reroute,
}

/// Bits of a digit.
const DIGIT: u32 = 6;
const BASE: usize = 1 << DIGIT;
const LEVELS: usize = u64::BITS.div_ceil(DIGIT) as usize;

/// A larger bucket gives its memory back when it is emptied: so many events at once are rare.
const KEPT: usize = 1 << 10;

/// Pending events.
pub(crate) struct EventQueue {
    /// The last time taken; nothing pending is earlier.
    last: u64,
    /// Entries at `last`; those before `front` have been taken.
    due: Vec<(u64, Event)>,
    front: usize,
    /// Bit l: level l has entries.
    levels: u32,
    /// Bit d: bucket d of the level has entries.
    occupied: [u64; LEVELS],
    /// By level, the highest digit in which a time differs from `last`, and that digit of the time.
    buckets: Vec<Vec<(u64, Event)>>,
    taken: u64,
    /// Packets that go to another part of the network.
    left: Vec<Left>,
}

/// A bucket, its first moment, and how long it is.
struct Lowest<'a> {
    bucket: &'a [(u64, Event)],
    first: u64,
    length: u64,
}

impl EventQueue {
    pub(crate) fn new() -> Self {
        Self {
            last: 0,
            due: Vec::new(),
            front: 0,
            levels: 0,
            occupied: [0; LEVELS],
            buckets: vec![Vec::new(); LEVELS * BASE],
            taken: 0,
            left: Vec::new(),
        }
    }

    /// A packet goes to another part of the network: no event here.
    pub(crate) fn leave(&mut self, packet: Left) {
        self.left.push(packet);
    }

    /// The packets that have gone to other parts of the network, for [`Self::give_back`].
    #[inline]
    pub(crate) fn take_left(&mut self) -> Option<Vec<Left>> {
        if self.left.is_empty() { None } else { Some(std::mem::take(&mut self.left)) }
    }

    /// Takes the memory of a list back.
    pub(crate) fn give_back(&mut self, mut left: Vec<Left>) {
        left.clear();
        self.left = left;
    }

    /// Schedules `event`; a time in the past counts as now.
    #[inline]
    pub(crate) fn push(&mut self, at: Time, event: Event) {
        let at = at.as_nanos().max(self.last);
        self.file(at, event);
    }

    #[inline]
    fn file(&mut self, at: u64, event: Event) {
        let differing = at ^ self.last;
        if differing == 0 {
            self.due.push((at, event));
            return;
        }
        let level = differing.ilog2() / DIGIT;
        let digit = (at >> (level * DIGIT)) as usize % BASE;
        self.levels |= 1 << level;
        self.occupied[level as usize] |= 1 << digit;
        self.buckets[level as usize * BASE + digit].push((at, event));
    }

    /// The next event.
    #[inline(always)]
    pub(crate) fn pop(&mut self) -> Option<(Time, Event)> {
        let (at, event) = match self.due.get(self.front) {
            Some(&entry) => {
                self.front += 1;
                entry
            }
            None => self.advance()?,
        };
        self.taken += 1;
        Some((Time::from_nanos(at), event))
    }

    /// The next event before `limit`. Nothing is planned before `limit` once there is none.
    #[inline]
    pub(crate) fn pop_before(&mut self, limit: Time) -> Option<(Time, Event)> {
        if self.due.get(self.front).is_none() && !self.has_before(limit.as_nanos()) {
            return None;
        }
        self.pop()
    }

    /// Whether an entry that is not due yet comes before `limit`.
    #[inline]
    fn has_before(&self, limit: u64) -> bool {
        let Some(Lowest { bucket, first, length }) = self.lowest() else { return false };
        // The bounds of the bucket decide, but where the limit is between them.
        first < limit && (limit - first >= length || bucket.iter().any(|(at, _)| *at < limit))
    }

    /// When the next event is.
    pub(crate) fn next_at(&self) -> Option<Time> {
        let due = self.due.get(self.front).map(|(at, _)| *at);
        let next = due.or_else(|| self.lowest()?.bucket.iter().map(|(at, _)| *at).min());
        next.map(Time::from_nanos)
    }

    /// The lowest bucket with entries.
    #[inline]
    fn lowest(&self) -> Option<Lowest<'_>> {
        if self.levels == 0 {
            return None;
        }
        let level = self.levels.trailing_zeros();
        let digit = self.occupied[level as usize].trailing_zeros();
        let length = 1 << (level * DIGIT);
        let above = self.last.checked_shr((level + 1) * DIGIT).unwrap_or(0);
        let first = above.checked_shl((level + 1) * DIGIT).unwrap_or(0) | u64::from(digit) << (level * DIGIT);
        Some(Lowest { bucket: &self.buckets[level as usize * BASE + digit as usize], first, length })
    }

    /// Takes the first entry of the lowest bucket and files the rest again; `None` when nothing is pending.
    #[inline(always)]
    fn advance(&mut self) -> Option<(u64, Event)> {
        self.due.clear();
        self.front = 0;
        if self.levels == 0 {
            return None;
        }
        let level = self.levels.trailing_zeros() as usize;
        let digit = self.occupied[level].trailing_zeros() as usize;
        self.occupied[level] &= self.occupied[level] - 1;
        if self.occupied[level] == 0 {
            self.levels &= self.levels - 1;
        }
        let bucket = &mut self.buckets[level * BASE + digit];
        if let [entry] = bucket[..] {
            bucket.clear();
            self.last = entry.0;
            return Some(entry);
        }
        if level == 0 {
            std::mem::swap(bucket, &mut self.due);
            self.last = self.due[0].0;
            self.front = 1;
            return Some(self.due[0]);
        }
        let mut entries = std::mem::take(bucket);
        self.last = entries.iter().map(|(at, _)| *at).min()?;
        for (at, event) in entries.drain(..) {
            self.file(at, event);
        }
        if entries.capacity() <= KEPT {
            self.buckets[level * BASE + digit] = entries;
        }
        self.front = 1;
        self.due.first().copied()
    }

    /// What probably comes next: a hint to fetch its data early.
    #[inline(always)]
    pub(crate) fn likely_next(&self) -> Option<Event> {
        let entry = match self.due.get(self.front) {
            Some(entry) => entry,
            None if self.levels == 0 => return None,
            None => {
                let level = self.levels.trailing_zeros() as usize;
                let digit = self.occupied[level].trailing_zeros() as usize;
                self.buckets[level * BASE + digit].first()?
            }
        };
        Some(entry.1)
    }

    /// Counts events that were taken elsewhere.
    pub(crate) fn count(&mut self, taken: u64) {
        self.taken += taken;
    }

    /// Events taken so far.
    pub(crate) fn taken(&self) -> u64 {
        self.taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against a stable sort by (time, insertion).
        #[test]
        fn pops_by_time_then_insertion(batches in prop::collection::vec(prop::collection::vec(0u64..5000, 0..20), 1..20)) {
            let mut queue = EventQueue::new();
            let mut model: Vec<(u64, u32)> = Vec::new();
            let (mut now, mut id) = (0, 0);
            for batch in batches {
                for ahead in batch {
                    queue.push(Time::from_nanos(now + ahead), Event::Start(id));
                    model.push((now + ahead, id));
                    id += 1;
                }
                model.sort_by_key(|(at, _)| *at);
                let n = model.len().min(3);
                for (at, id) in model.drain(..n) {
                    prop_assert_eq!(queue.pop(), Some((Time::from_nanos(at), Event::Start(id))));
                    now = at;
                }
            }
            for (at, id) in model {
                prop_assert_eq!(queue.pop(), Some((Time::from_nanos(at), Event::Start(id))));
            }
            prop_assert_eq!(queue.pop(), None);
        }
    }
}
