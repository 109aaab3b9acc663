//! The event queue: a monotone radix heap ordered by time, then by order of insertion.
//!
//! A simulation never schedules into the past, so an entry can be filed by the highest bit in which its time differs
//! from the last time taken: filing is two instructions, and an entry moves to a lower bucket at most once per bit.
//! Entries with equal times always lie in the same bucket and keep their order, which makes runs reproducible.

use bandmaster_core::time::Time;

/// What happens. The number is an index whose meaning depends on the kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Event {
    /// The packet at the head of port `.0`'s wire reaches the other end.
    Arrival(u32),
    /// Port `.0` has transmitted a packet and may start the next (disciplines that order packets themselves).
    PortFree(u32),
    /// Retransmission or persist timer of TCP flow `.0`.
    Retransmit(u32),
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
}

/// Pending events.
pub(crate) struct EventQueue {
    last: u64,
    /// Entries of bucket 0 before this position have been taken.
    front: usize,
    /// Bit b: bucket b + 1 has entries.
    occupied: u64,
    buckets: Vec<Vec<(u64, Event)>>,
    taken: u64,
}

impl EventQueue {
    pub(crate) fn new() -> Self {
        Self { last: 0, front: 0, occupied: 0, buckets: vec![Vec::new(); 65], taken: 0 }
    }

    /// Schedules `event`; a time in the past counts as now.
    #[inline]
    pub(crate) fn push(&mut self, at: Time, event: Event) {
        let at = at.as_nanos().max(self.last);
        self.file(at, event);
    }

    #[inline]
    fn file(&mut self, at: u64, event: Event) {
        let bucket = (64 - (at ^ self.last).leading_zeros()) as usize;
        if bucket > 0 {
            self.occupied |= 1 << (bucket - 1);
        }
        self.buckets[bucket].push((at, event));
    }

    /// The next event.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<(Time, Event)> {
        if self.front == self.buckets[0].len() && !self.refill() {
            return None;
        }
        let (at, event) = self.buckets[0][self.front];
        self.front += 1;
        self.taken += 1;
        Some((Time::from_nanos(at), event))
    }

    /// Moves the lowest bucket down; false when nothing is pending.
    fn refill(&mut self) -> bool {
        self.buckets[0].clear();
        self.front = 0;
        if self.occupied == 0 {
            return false;
        }
        let lowest = self.occupied.trailing_zeros() as usize + 1;
        self.occupied &= self.occupied - 1;
        let mut entries = std::mem::take(&mut self.buckets[lowest]);
        self.last = entries.iter().map(|(at, _)| *at).min().unwrap_or(self.last);
        for (at, event) in entries.drain(..) {
            self.file(at, event);
        }
        self.buckets[lowest] = entries;
        true
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
