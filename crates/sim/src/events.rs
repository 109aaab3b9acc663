//! The event queue: a monotone radix heap ordered by time, then by order of insertion, with a short sorted list in front.
//!
//! A simulation never schedules into the past, so an entry can be filed by the highest digit in which its time differs
//! from a moment that the list covers: filing takes a few instructions. When the list is empty, the lowest bucket is sorted
//! into it. When it holds many, those of 64 ns are put in order by counting, and others are filed again by lower digits. An
//! entry moves at most once per digit, and in small networks hardly ever twice. Entries with equal times always lie in the
//! same bucket and keep their order, which makes runs reproducible.

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

/// A bucket of so many entries at most is sorted at once, and bits of a place in it.
const SORTED: usize = 1 << PLACE;
const PLACE: u32 = 4;

/// A longer list goes back into buckets.
const LISTED: usize = 64;

/// Pending events.
pub(crate) struct EventQueue {
    /// The last time taken; nothing pending is earlier.
    last: u64,
    /// The last moment that the list covers: entries up to it are in the list, later ones in buckets.
    until: u64,
    /// Entries up to `until` in order; those before `front` have been taken.
    due: Vec<(u64, Event)>,
    front: usize,
    /// Bit l: level l has entries.
    levels: u32,
    /// Bit d: bucket d of the level has entries.
    occupied: [u64; LEVELS],
    /// By level, the highest digit in which a time differs from `until`, and that digit of the time.
    buckets: Vec<Vec<(u64, Event)>>,
    taken: u64,
    /// Packets that go to another part of the network.
    left: Vec<Left>,
}

/// A bucket: its level, its digit, and its first moment.
#[derive(Clone, Copy)]
struct Lowest {
    level: usize,
    digit: usize,
    first: u64,
}

impl Lowest {
    fn number(self) -> usize {
        self.level * BASE + self.digit
    }

    /// How long it is, less 1.
    fn ahead(self) -> u64 {
        (1 << (self.level as u32 * DIGIT)) - 1
    }
}

impl EventQueue {
    pub(crate) fn new() -> Self {
        Self {
            last: 0,
            until: 0,
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
        if at > self.until {
            self.file(at, event);
        } else {
            self.list(at, event);
        }
    }

    /// Schedules an event that few others will come before: it is put into the list from the front.
    #[inline(always)]
    pub(crate) fn push_near(&mut self, at: Time, event: Event) {
        let at = at.as_nanos().max(self.last);
        if at > self.until {
            return self.file(at, event);
        }
        // The place of the event that was taken last is free.
        let Some(mut place) = self.front.checked_sub(1).filter(|_| self.due.len() - self.front <= LISTED)
        else {
            return self.list(at, event);
        };
        self.front = place;
        while let Some(next) = self.due.get(place + 1)
            && next.0 <= at
        {
            self.due[place] = *next;
            place += 1;
        }
        self.due[place] = (at, event);
    }

    /// Files an entry later than `until`.
    #[inline]
    fn file(&mut self, at: u64, event: Event) {
        let level = (at ^ self.until).ilog2() / DIGIT;
        let digit = (at >> (level * DIGIT)) as usize % BASE;
        self.levels |= 1 << level;
        self.occupied[level as usize] |= 1 << digit;
        self.buckets[level as usize * BASE + digit].push((at, event));
    }

    /// Puts an entry into the list, behind those of the same time.
    #[inline]
    fn list(&mut self, at: u64, event: Event) {
        let mut place = self.due.len();
        self.due.push((at, event));
        while place > self.front && self.due[place - 1].0 > at {
            self.due[place] = self.due[place - 1];
            place -= 1;
        }
        self.due[place] = (at, event);
        if self.due.len() - self.front > LISTED && self.until > self.last {
            self.shorten();
        }
    }

    /// Leaves in the list what is due now.
    #[cold]
    fn shorten(&mut self) {
        self.until = self.last;
        let now = self.due[self.front..].partition_point(|(at, _)| *at == self.last);
        for place in self.front + now..self.due.len() {
            let (at, event) = self.due[place];
            self.file(at, event);
        }
        self.due.truncate(self.front + now);
    }

    /// The next event.
    #[inline(always)]
    pub(crate) fn pop(&mut self) -> Option<(Time, Event)> {
        if self.front == self.due.len() && !self.advance() {
            return None;
        }
        let (at, event) = self.due[self.front];
        self.front += 1;
        self.last = at;
        self.taken += 1;
        Some((Time::from_nanos(at), event))
    }

    /// The next event before `limit`. Nothing is planned before `limit` once there is none.
    #[inline]
    pub(crate) fn pop_before(&mut self, limit: Time) -> Option<(Time, Event)> {
        let limit = limit.as_nanos();
        match self.due.get(self.front) {
            Some((at, _)) if *at >= limit => None,
            None if !self.has_before(limit) => None,
            _ => self.pop(),
        }
    }

    /// Whether a bucket has an entry before `limit`.
    #[inline]
    fn has_before(&self, limit: u64) -> bool {
        let Some(lowest) = self.lowest() else { return false };
        // The bounds of the bucket decide, but where the limit is between them.
        lowest.first < limit
            && (limit - lowest.first > lowest.ahead()
                || self.buckets[lowest.number()].iter().any(|(at, _)| *at < limit))
    }

    /// When the next event is.
    pub(crate) fn next_at(&self) -> Option<Time> {
        let due = self.due.get(self.front).map(|(at, _)| *at);
        let next = due.or_else(|| self.buckets[self.lowest()?.number()].iter().map(|(at, _)| *at).min());
        next.map(Time::from_nanos)
    }

    /// The lowest bucket with entries.
    #[inline]
    fn lowest(&self) -> Option<Lowest> {
        if self.levels == 0 {
            return None;
        }
        let level = self.levels.trailing_zeros();
        let digit = self.occupied[level as usize].trailing_zeros();
        let above = self.until.checked_shr((level + 1) * DIGIT).unwrap_or(0);
        let first = above.checked_shl((level + 1) * DIGIT).unwrap_or(0) | u64::from(digit) << (level * DIGIT);
        Some(Lowest { level: level as usize, digit: digit as usize, first })
    }

    /// Fills the list from the lowest bucket; false when nothing is pending.
    #[inline]
    fn advance(&mut self) -> bool {
        self.due.clear();
        self.front = 0;
        while self.due.is_empty() {
            let Some(lowest) = self.lowest() else { return false };
            let Lowest { level, digit, first } = lowest;
            self.occupied[level] &= !(1 << digit);
            if self.occupied[level] == 0 {
                self.levels &= !(1 << level);
            }
            let bucket = &mut self.buckets[lowest.number()];
            if level == 0 || bucket.len() <= SORTED {
                self.until = first + lowest.ahead();
                match level {
                    // All of one moment.
                    0 => self.due.extend_from_slice(bucket),
                    _ => sort_into(&mut self.due, bucket, first),
                }
                bucket.clear();
            } else if level == 1 {
                self.until = first + lowest.ahead();
                count_into(&mut self.due, bucket);
            } else {
                self.until = first;
                self.divide(lowest.number());
            }
        }
        true
    }

    /// Files the entries of a bucket by lower digits.
    #[inline(never)]
    fn divide(&mut self, number: usize) {
        let mut entries = std::mem::take(&mut self.buckets[number]);
        for (at, event) in entries.drain(..) {
            if at > self.until {
                self.file(at, event);
            } else {
                self.due.push((at, event));
            }
        }
        if entries.capacity() <= KEPT {
            self.buckets[number] = entries;
        }
    }

    /// What probably comes next: a hint to fetch its data early.
    #[inline(always)]
    pub(crate) fn likely_next(&self) -> Option<Event> {
        let entry = match self.due.get(self.front) {
            Some(entry) => entry,
            None => self.buckets[self.lowest()?.number()].first()?,
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

/// Moves a bucket of [`BASE`] moments into an empty list, in order; equal times keep theirs. Counts each moment's entries.
#[inline(never)]
fn count_into(due: &mut Vec<(u64, Event)>, bucket: &mut Vec<(u64, Event)>) {
    let mut places = [0; BASE];
    for (at, _) in bucket.iter() {
        places[*at as usize % BASE] += 1;
    }
    let mut before = 0;
    for place in &mut places {
        before += std::mem::replace(place, before);
    }
    due.extend_from_slice(bucket);
    for entry in bucket.drain(..) {
        let place: &mut usize = &mut places[entry.0 as usize % BASE];
        due[*place] = entry;
        *place += 1;
    }
    if bucket.capacity() > KEPT {
        *bucket = Vec::new();
    }
}

/// Adds a bucket of [`SORTED`] entries at most, whose first moment is `first`, in order; equal times keep theirs. No branch depends
/// on the order: a processor would guess wrong in half of the cases, which takes longer than the sorting.
#[inline]
fn sort_into(due: &mut Vec<(u64, Event)>, bucket: &[(u64, Event)], first: u64) {
    match bucket.len() {
        0..=4 => {
            due.extend_from_slice(bucket);
            for i in 1..due.len() {
                let entry = due[i];
                let mut place = i;
                while place > 0 && due[place - 1].0 > entry.0 {
                    due[place] = due[place - 1];
                    place -= 1;
                }
                due[place] = entry;
            }
        }
        5..=8 => sort_by(due, bucket, first, sorted_8),
        _ => sort_by(due, bucket, first, sorted_16),
    }
}

/// The same by a function that sorts `N` numbers.
#[inline]
fn sort_by<const N: usize>(
    due: &mut Vec<(u64, Event)>,
    bucket: &[(u64, Event)],
    first: u64,
    sorted: impl Fn([u64; N]) -> [u64; N],
) {
    // The time within the bucket, and the place in it.
    let mut keys = [u64::MAX; N];
    for (place, (key, (at, _))) in (0..).zip(keys.iter_mut().zip(bucket)) {
        *key = (at - first) << PLACE | place;
    }
    let keys = sorted(keys);
    due.extend(keys.iter().take(bucket.len()).map(|key| bucket[(key % SORTED as u64) as usize]));
}

/// Puts pairs of keys into order.
macro_rules! order {
    ($keys:ident: $($a:literal $b:literal,)+) => {
        $(($keys[$a], $keys[$b]) = ($keys[$a].min($keys[$b]), $keys[$a].max($keys[$b]));)+
    };
}

/// Batcher's odd-even merge sort.
#[inline]
fn sorted_8(mut keys: [u64; 8]) -> [u64; 8] {
    order! { keys:
        0 1, 2 3, 4 5, 6 7,
        0 2, 1 3, 4 6, 5 7,
        1 2, 5 6,
        0 4, 1 5, 2 6, 3 7,
        2 4, 3 5,
        1 2, 3 4, 5 6,
    }
    keys
}

/// The same for twice as many.
#[inline]
fn sorted_16(mut keys: [u64; 16]) -> [u64; 16] {
    order! { keys:
        0 1, 2 3, 4 5, 6 7, 8 9, 10 11, 12 13, 14 15,
        0 2, 1 3, 4 6, 5 7, 8 10, 9 11, 12 14, 13 15,
        1 2, 5 6, 9 10, 13 14,
        0 4, 1 5, 2 6, 3 7, 8 12, 9 13, 10 14, 11 15,
        2 4, 3 5, 10 12, 11 13,
        1 2, 3 4, 5 6, 9 10, 11 12, 13 14,
        0 8, 1 9, 2 10, 3 11, 4 12, 5 13, 6 14, 7 15,
        4 8, 5 9, 6 10, 7 11,
        2 4, 3 5, 6 8, 7 9, 10 12, 11 13,
        1 2, 3 4, 5 6, 7 8, 9 10, 11 12, 13 14,
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against a stable sort by (time, insertion): times near and far, many at once, limits as parts have them.
        #[test]
        fn pops_by_time_then_insertion(batches in prop::collection::vec(
            (
                prop_oneof![Just(2), Just(40)].prop_flat_map(|scales| {
                    prop::collection::vec((0u64..64, 0u32..scales, any::<bool>()), 0..100)
                }),
                0usize..100,
                prop::option::of(0u64..5000),
            ),
            1..30,
        ))
        {
            let mut queue = EventQueue::new();
            let mut model: Vec<(u64, u32)> = Vec::new();
            let (mut now, mut id) = (0, 0);
            for (batch, pops, limit) in batches {
                for (ahead, scale, is_near) in batch {
                    let at = now + (ahead << scale);
                    let push = if is_near { EventQueue::push_near } else { EventQueue::push };
                    push(&mut queue, Time::from_nanos(at), Event::Start(id));
                    model.push((at, id));
                    id += 1;
                }
                model.sort_by_key(|(at, _)| *at);
                prop_assert_eq!(queue.next_at(), model.first().map(|(at, _)| Time::from_nanos(*at)));
                let limit = limit.map_or(u64::MAX, |limit| now + limit);
                let before = model.iter().take_while(|(at, _)| *at < limit).count();
                let n = before.min(pops);
                for (at, id) in model.drain(..n) {
                    let next = Some((Time::from_nanos(at), Event::Start(id)));
                    prop_assert_eq!(queue.pop_before(Time::from_nanos(limit)), next);
                    now = at;
                }
                if n == before {
                    prop_assert_eq!(queue.pop_before(Time::from_nanos(limit)), None);
                }
            }
            for (at, id) in model {
                prop_assert_eq!(queue.pop(), Some((Time::from_nanos(at), Event::Start(id))));
            }
            prop_assert_eq!(queue.pop(), None);
        }
    }
}
