//! CoDel, controlled delay (RFC 8289): packets are dropped as they leave, when even the least time that packets have
//! waited has stayed above `target` for an `interval`.
//!
//! [`State`] is the pseudo-code of section 5, over any queue that it can pop; FQ-CoDel has one for each of its queues.
//! Ours: marks. Section 5 only drops; a packet that may be marked is marked in place of a drop and leaves, as in Linux.
//! MAXPACKET is the key `mtu`, the interface's MTU as section 5.3 advises.

use std::collections::VecDeque;

use super::fifo::DropTail;
use super::{Admission, Backlog, Discipline, Pkt, Qdisc, QdiscDef, Verdict};
use crate::params::{Key, Kind, Params, key, keys};
use crate::time::{Span, Time};
use crate::units::Dimension;

/// The registry entry.
pub static DEF: QdiscDef = QdiscDef {
    name: "codel",
    about: "CoDel: drops at departure when packets have waited too long for an interval",
    source: "RFC 8289",
    keys: keys! {
        /// Most that may wait, not counting the packet in transmission
        "limit": Kind::Limit, default "1000pkt", from "Linux codel";
        ..TARGET;
        ..INTERVAL;
        ..MTU;
        /// Mark packets that may be marked in place of drops
        "ecn": Kind::Bool, default "false", from "Linux codel";
    },
    check,
    build: |params, _| {
        Discipline::Ordered(Box::new(CoDel {
            settings: Settings::new(params),
            limit: DropTail { limit: params.limit("limit") },
            state: State::default(),
            queue: Queue::default(),
        }))
    },
};

/// Key of [`Settings::target`].
pub(super) const TARGET: Key = key! {
    /// Waiting time that may persist
    "target": Kind::Quantity(Dimension::Span), default "5ms", from "RFC 8289, section 4.4"
};
/// Key of [`Settings::interval`].
pub(super) const INTERVAL: Key = key! {
    /// How long it may persist before drops begin: the longest usual round-trip time
    "interval": Kind::Quantity(Dimension::Span), default "100ms", from "RFC 8289, section 4.3"
};
/// Key of [`Settings::mtu`].
pub(super) const MTU: Key = key! {
    /// No drop while at most this much waits: the longest packet of the link, framing included
    "mtu": Kind::Quantity(Dimension::Bytes), default "1514B", from "Ethernet"
};

/// Checks what every discipline with CoDel inside needs.
pub(super) fn check(params: &Params) -> Result<(), (&'static str, String)> {
    let (target, interval) = (params.span("target"), params.span("interval"));
    if target >= interval {
        return Err(("target", format!("\"{target}\" is not shorter than `interval`, {interval}")));
    }
    Ok(())
}

/// CoDel's parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// TARGET: waiting time that may persist.
    pub target: Span,
    /// INTERVAL: how long it may persist.
    pub interval: Span,
    /// MAXPACKET in bytes: with no more than this waiting nothing is dropped.
    pub mtu: u64,
    /// Mark packets that may be marked in place of drops.
    pub ecn: bool,
}

impl Settings {
    /// The values of the keys `target`, `interval`, `mtu` and `ecn`.
    ///
    /// # Panics
    /// When `params` has no such keys: a bug of the registry entry.
    pub fn new(params: &Params) -> Self {
        Self {
            target: params.span("target"),
            interval: params.span("interval"),
            mtu: params.bytes("mtu").get(),
            ecn: params.bool("ecn"),
        }
    }

    /// Marks `pkt` when it may be marked.
    fn mark(&self, pkt: &mut Pkt) -> bool {
        let marks = self.ecn && pkt.ect;
        pkt.ce |= marks;
        marks
    }

    /// `control_law` of section 5.6: the next drop after one at `from`, the `count`th.
    fn next_drop(&self, from: Time, count: u32) -> Time {
        from + gap(self.interval, count)
    }
}

/// Time between the drops of number `count` and the next.
pub(super) fn gap(interval: Span, count: u32) -> Span {
    let nanos = interval.as_nanos() as f64 / libm::sqrt(f64::from(count.max(1)));
    Span::from_nanos(nanos as u64)
}

/// A queue as CoDel sees it.
pub trait Waiting {
    /// Takes the packet that has waited longest, and when it was queued.
    fn pop(&mut self) -> Option<(Pkt, Time)>;
    /// What `mtu` is compared with, in bytes.
    fn bytes(&self) -> u64;
}

/// CoDel's memory of one queue (section 5.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct State {
    /// When waiting times will have been above target for an interval; none while they are below.
    first_above: Option<Time>,
    drop_next: Time,
    count: u32,
    last_count: u32,
    dropping: bool,
}

impl State {
    /// The next packet to transmit (section 5.5); packets dropped on the way are added to `dropped`.
    #[inline]
    pub fn dequeue(
        &mut self,
        now: Time,
        settings: &Settings,
        queue: &mut impl Waiting,
        dropped: &mut Vec<Pkt>,
    ) -> Option<Pkt> {
        let (first, may_drop) = self.take(now, settings, queue);
        if !may_drop {
            self.dropping = false;
            return first;
        }
        first.and_then(|first| self.control(first, now, settings, queue, dropped))
    }

    /// Counts packets of this queue that a discipline dropped for another reason.
    pub fn count_drops(&mut self, packets: u32) {
        self.count = self.count.saturating_add(packets);
    }

    /// The part of section 5.5 that drops: `first` has been taken, and waiting times have been above target for an
    /// interval.
    #[cold]
    fn control(
        &mut self,
        mut first: Pkt,
        now: Time,
        settings: &Settings,
        queue: &mut impl Waiting,
        dropped: &mut Vec<Pkt>,
    ) -> Option<Pkt> {
        if self.dropping {
            while now >= self.drop_next {
                self.count = self.count.saturating_add(1);
                if settings.mark(&mut first) {
                    self.drop_next = settings.next_drop(self.drop_next, self.count);
                    return Some(first);
                }
                dropped.push(first);
                let (next, may_drop) = self.take(now, settings, queue);
                if !may_drop {
                    self.dropping = false;
                    return next;
                }
                self.drop_next = settings.next_drop(self.drop_next, self.count);
                first = next?;
            }
            return Some(first);
        }
        let next = if settings.mark(&mut first) {
            Some(first)
        } else {
            dropped.push(first);
            self.take(now, settings, queue).0
        };
        self.dropping = true;
        // Back soon after the last time: go on from the rate of drops that it took then.
        let delta = self.count.saturating_sub(self.last_count);
        let is_soon = now.since(self.drop_next) < settings.interval * 16;
        self.count = if delta > 1 && is_soon { delta } else { 1 };
        self.drop_next = settings.next_drop(now, self.count);
        self.last_count = self.count;
        next
    }

    /// `dodequeue` of section 5.6: the first packet, and whether it may be dropped.
    #[inline]
    fn take(&mut self, now: Time, settings: &Settings, queue: &mut impl Waiting) -> (Option<Pkt>, bool) {
        let Some((pkt, since)) = queue.pop() else {
            self.first_above = None;
            return (None, false);
        };
        if now.since(since) < settings.target || queue.bytes() <= settings.mtu {
            self.first_above = None;
            return (Some(pkt), false);
        }
        let may_drop = match self.first_above {
            Some(at) => now >= at,
            None => {
                self.first_above = Some(now + settings.interval);
                false
            }
        };
        (Some(pkt), may_drop)
    }
}

struct CoDel {
    settings: Settings,
    limit: DropTail,
    state: State,
    queue: Queue,
}

#[derive(Default)]
struct Queue {
    packets: VecDeque<(Pkt, Time)>,
    bytes: u64,
}

impl Waiting for Queue {
    fn pop(&mut self) -> Option<(Pkt, Time)> {
        let (pkt, since) = self.packets.pop_front()?;
        self.bytes -= u64::from(pkt.len);
        Some((pkt, since))
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Qdisc for CoDel {
    fn enqueue(&mut self, now: Time, pkt: Pkt, _dropped: &mut Vec<Pkt>) -> Verdict {
        let verdict = self.limit.admit(now, self.backlog(), Span::ZERO, &pkt);
        if verdict != Verdict::Drop {
            self.queue.bytes += u64::from(pkt.len);
            self.queue.packets.push_back((pkt, now));
        }
        verdict
    }

    fn dequeue(&mut self, now: Time, dropped: &mut Vec<Pkt>) -> Option<Pkt> {
        self.state.dequeue(now, &self.settings, &mut self.queue, dropped)
    }

    fn next_ready(&self, now: Time) -> Option<Time> {
        (!self.queue.packets.is_empty()).then_some(now)
    }

    fn backlog(&self) -> Backlog {
        Backlog { packets: self.queue.packets.len() as u32, bytes: self.queue.bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::FlowId;
    use crate::params::{Limit, Value};

    const SETTINGS: Settings =
        Settings { target: Span::from_millis(5), interval: Span::from_millis(100), mtu: 1514, ecn: false };

    fn at_millis(millis: u64) -> Time {
        Time::ZERO + Span::from_millis(millis)
    }

    fn codel(settings: Settings) -> CoDel {
        CoDel {
            settings,
            limit: DropTail { limit: Limit::Packets(1000) },
            state: State::default(),
            queue: Queue::default(),
        }
    }

    /// Queues packets with these keys, 1000 bytes each, at `now`.
    fn fill(codel: &mut CoDel, now: Time, keys: core::ops::Range<u32>, ect: bool) {
        for key in keys {
            let pkt = Pkt { key, len: 1000, flow: FlowId(0), dscp: 0, ect, ce: false, reverse: false };
            assert_eq!(codel.enqueue(now, pkt, &mut Vec::new()), Verdict::Accept);
        }
    }

    /// (the key that left and whether it is marked, keys dropped)
    fn dequeue(codel: &mut CoDel, now: Time) -> (Option<(u32, bool)>, Vec<u32>) {
        let mut dropped = Vec::new();
        let left = codel.dequeue(now, &mut dropped);
        (left.map(|p| (p.key, p.ce)), dropped.iter().map(|p| p.key).collect())
    }

    #[test]
    fn first_drop_comes_an_interval_after_waits_went_above_target_and_the_next_by_the_square_root() {
        let mut codel = codel(SETTINGS);
        fill(&mut codel, at_millis(0), 0..200, false);
        // 4 ms: below target.
        assert_eq!(dequeue(&mut codel, at_millis(4)), (Some((0, false)), vec![]));
        // 10 ms: above; first_above_time = 10 + 100.
        assert_eq!(dequeue(&mut codel, at_millis(10)), (Some((1, false)), vec![]));
        assert_eq!(dequeue(&mut codel, at_millis(109)), (Some((2, false)), vec![]));
        // 110: enters the drop state, count 1, drop_next = 110 + 100.
        assert_eq!(dequeue(&mut codel, at_millis(110)), (Some((4, false)), vec![3]));
        assert_eq!(dequeue(&mut codel, at_millis(209)), (Some((5, false)), vec![]));
        // 210: count 2, drop_next = 210 + 100 / sqrt(2) = 280.711 ms.
        assert_eq!(dequeue(&mut codel, at_millis(210)), (Some((7, false)), vec![6]));
        assert_eq!(codel.state.drop_next.as_nanos(), 280_710_678);
        assert_eq!(dequeue(&mut codel, at_millis(280)), (Some((8, false)), vec![]));
        // 281: count 3, drop_next = 280.711 + 100 / sqrt(3) = 338.446 ms.
        assert_eq!(dequeue(&mut codel, at_millis(281)), (Some((10, false)), vec![9]));
        assert_eq!(codel.state.drop_next.as_nanos(), 338_445_704);
        // 440: late for 338.446, 388.446 (count 4, + 50) and 433.168 (count 5, + 44.721): three drops at once.
        assert_eq!(dequeue(&mut codel, at_millis(440)), (Some((14, false)), vec![11, 12, 13]));
        assert_eq!(codel.state.count, 6);
    }

    #[test]
    fn leaves_the_drop_state_below_target_and_resumes_with_the_drops_since_it_began() {
        let mut codel = codel(SETTINGS);
        fill(&mut codel, at_millis(0), 0..9, false);
        let _ = dequeue(&mut codel, at_millis(10));
        for millis in [110, 210, 281] {
            assert_eq!(dequeue(&mut codel, at_millis(millis)).1.len(), 1);
        }
        // Two are left; count 3, lastcount 1, drop_next 338.4 ms. One behind the next: not above MAXPACKET.
        assert_eq!(dequeue(&mut codel, at_millis(300)), (Some((7, false)), vec![]));
        assert!(!codel.state.dropping);
        fill(&mut codel, at_millis(300), 10..50, false);
        assert_eq!(dequeue(&mut codel, at_millis(310)), (Some((8, false)), vec![]));
        // delta = 3 - 1 = 2, and 410 - 338.4 < 1600: count starts at 2, next drop after 100 / sqrt(2).
        assert_eq!(dequeue(&mut codel, at_millis(410)), (Some((11, false)), vec![10]));
        assert_eq!((codel.state.count, codel.state.last_count), (2, 2));
        assert_eq!(codel.state.drop_next.as_nanos(), 480_710_678);
    }

    #[test]
    fn count_starts_anew_after_sixteen_intervals() {
        let mut codel = codel(SETTINGS);
        codel.state = State { count: 9, last_count: 1, drop_next: at_millis(100), ..State::default() };
        fill(&mut codel, at_millis(1000), 0..50, false);
        let _ = dequeue(&mut codel, at_millis(1600));
        // 1700 - 100 = 1600 ms is no longer below 16 intervals.
        assert_eq!(dequeue(&mut codel, at_millis(1700)).1, [1]);
        assert_eq!(codel.state.count, 1);
    }

    #[test]
    fn a_backlog_of_one_packet_is_never_dropped_and_an_idle_queue_forgets() {
        let mut codel = codel(SETTINGS);
        fill(&mut codel, at_millis(0), 0..3, false);
        // 1000 bytes stay behind the second: not more than 1514.
        assert_eq!(dequeue(&mut codel, at_millis(50)), (Some((0, false)), vec![]));
        assert_eq!(codel.state.first_above, Some(at_millis(150)));
        assert_eq!(dequeue(&mut codel, at_millis(500)), (Some((1, false)), vec![]));
        assert_eq!(codel.state.first_above, None);
        assert_eq!(dequeue(&mut codel, at_millis(900)), (Some((2, false)), vec![]));
        assert_eq!(dequeue(&mut codel, at_millis(901)), (None, vec![]));
        assert_eq!(codel.next_ready(at_millis(901)), None);
    }

    #[test]
    fn packets_that_may_be_marked_are_marked_and_leave() {
        let mut codel = codel(Settings { ecn: true, ..SETTINGS });
        fill(&mut codel, at_millis(0), 0..10, true);
        assert_eq!(dequeue(&mut codel, at_millis(10)), (Some((0, false)), vec![]));
        assert_eq!(dequeue(&mut codel, at_millis(110)), (Some((1, true)), vec![]));
        assert_eq!(dequeue(&mut codel, at_millis(111)), (Some((2, false)), vec![]));
        // Late for 210 and 280.7: one mark per packet, the second mark on the next one.
        assert_eq!(dequeue(&mut codel, at_millis(300)), (Some((3, true)), vec![]));
        assert_eq!(dequeue(&mut codel, at_millis(300)), (Some((4, true)), vec![]));
        assert_eq!(dequeue(&mut codel, at_millis(300)), (Some((5, false)), vec![]));
    }

    #[test]
    fn a_target_that_is_not_below_the_interval_is_refused() {
        let mut params = Params::defaults(DEF.keys);
        assert_eq!((DEF.check)(&params), Ok(()));
        params.set("target", Value::Span(Span::from_millis(100)));
        let (key, why) = (DEF.check)(&params).unwrap_err();
        assert_eq!((key, why.as_str()), ("target", "\"100ms\" is not shorter than `interval`, 100ms"));
    }
}
