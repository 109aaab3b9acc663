//! COBALT, the CoDel-BLUE alternate: CoDel for flows that heed its drops, BLUE for those that do not.
//!
//! CoDel (RFC 8289) as CAKE has it: it drops when a packet has waited longer than the target, and at least four times a
//! packet's time, for an interval. The next drop comes an interval over the root of the count after the last. Below the
//! target the count falls by the same clock as it rose, where CoDel would begin anew. BLUE (Feng, Kandlur, Saha, Shin,
//! 2002) drops at random, also packets that could be marked. Its probability rises when the queue loses a packet because the
//! memory is full, and falls when the queue is found empty; either no more often than once in a target.
//!
//! Palmei, Gupta, Imputato, Morton, Tahiliani, Avallone, Täht, "Design and Evaluation of COBALT Queue Discipline", LANMAN 2019.
//!
//! Ours: an empty queue forgets as time passes, a step of BLUE each target. Linux visits queues that still remember
//! whenever a packet leaves.

use crate::qdisc::Pkt;
use crate::qdisc::codel::gap;
use crate::rng::Stream;
use crate::time::{Span, Time};

/// Steps of BLUE's probability, in parts of 2^32: 1/256 up, 1/4096 down.
const UP: u32 = 1 << 24;
const DOWN: u32 = 1 << 20;

/// The constants of a tin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Settings {
    /// Waiting time that may persist; not zero.
    target: Span,
    /// How long it may persist.
    interval: Span,
    /// What a packet may wait in any case: the time of four longest packets.
    least: Span,
    /// Mark packets that may be marked in place of CoDel's drops.
    ecn: bool,
}

impl Settings {
    /// For connections with a usual round-trip time of `rtt`, where the longest packet takes `packet`. The target is a
    /// twentieth of the round trip; on a slow link it is the time of one and a half packets, and the interval grows with it.
    pub(super) fn new(rtt: Span, packet: Span, ecn: bool) -> Self {
        let usual = Span::from_nanos((rtt.as_nanos() / 20).max(1));
        let target = usual.max(packet + Span::from_nanos(packet.as_nanos() / 2));
        let interval = (rtt + target.saturating_sub(usual)).max(target * 2);
        Self { target, interval, least: packet * 4, ecn }
    }

    fn after(&self, time: Time, count: u32) -> Time {
        time + gap(self.interval, count)
    }
}

/// COBALT's memory of one queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct State {
    /// When the next drop is due, or while none is counted: until when the queue counts as in use.
    drop_next: Time,
    /// When the probability last changed.
    changed: Time,
    /// CoDel's count.
    count: u32,
    /// BLUE's drop probability in parts of 2^32.
    probability: u32,
    dropping: bool,
}

impl State {
    /// Judges `pkt`, which leaves the queue at `now` and was queued at `since`: true when it is to be dropped. It may be
    /// marked.
    pub(super) fn drops(
        &mut self,
        now: Time,
        since: Time,
        settings: &Settings,
        pkt: &mut Pkt,
        stream: &mut Stream,
    ) -> bool {
        let waited = now.since(since);
        let is_due = self.count > 0 && now >= self.drop_next;
        if waited > settings.target && waited > settings.least {
            if !self.dropping {
                self.dropping = true;
                self.drop_next = settings.after(now, self.count);
            }
            self.count = self.count.max(1);
        } else {
            self.dropping = false;
        }
        let mut drops = false;
        if is_due && self.dropping {
            let marks = settings.ecn && pkt.ect;
            pkt.ce |= marks;
            drops = !marks;
            self.count = self.count.saturating_add(1);
            self.drop_next = settings.after(self.drop_next, self.count);
        } else if is_due {
            self.relax(now, settings);
        }
        if self.probability > 0 {
            let draw = (stream.next_u64() >> 32) as u32;
            drops |= draw < self.probability;
        }
        if self.count == 0 {
            self.drop_next = now + settings.interval;
        } else if !drops {
            // Drops that were missed are not made up for.
            self.drop_next = self.drop_next.max(now);
        }
        drops
    }

    /// The queue has lost a packet because the memory is full.
    pub(super) fn on_full(&mut self, now: Time, settings: &Settings) {
        if now.since(self.changed) > settings.target {
            self.probability = self.probability.saturating_add(UP);
            self.changed = now;
        }
        self.dropping = true;
        self.drop_next = now;
        self.count = self.count.max(1);
    }

    /// The queue was found empty at its turn.
    pub(super) fn on_empty(&mut self, now: Time, settings: &Settings) {
        if self.probability > 0 && now.since(self.changed) > settings.target {
            self.probability = self.probability.saturating_sub(DOWN);
            self.changed = now;
        }
        self.dropping = false;
        if self.count > 0 && now >= self.drop_next {
            self.count -= 1;
            self.drop_next = settings.after(self.drop_next, self.count);
        }
    }

    /// What the empty queue has forgotten by `now`; true when that is everything.
    pub(super) fn rests(&mut self, now: Time, settings: &Settings) -> bool {
        self.relax(now, settings);
        let steps = now.since(self.changed).as_nanos() / settings.target.as_nanos();
        if self.probability > 0 && steps > 0 {
            let down = u32::try_from(steps.saturating_mul(u64::from(DOWN))).unwrap_or(u32::MAX);
            self.probability = self.probability.saturating_sub(down);
            self.changed += settings.target * steps;
        }
        self.probability == 0 && self.count == 0 && now >= self.drop_next
    }

    /// The count falls by the clock by which it rose.
    fn relax(&mut self, now: Time, settings: &Settings) {
        while self.count > 0 && now >= self.drop_next {
            self.count -= 1;
            self.drop_next = settings.after(self.drop_next, self.count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::FlowId;

    /// 5 ms and 100 ms; ECN.
    fn settings() -> Settings {
        Settings::new(Span::from_millis(100), Span::ZERO, true)
    }

    fn at(millis: u64) -> Time {
        Time::ZERO + Span::from_millis(millis)
    }

    fn stream() -> Stream {
        Stream::new(1, 0, "cobalt")
    }

    /// Whether a packet that leaves at `millis` after so many milliseconds of waiting is dropped, and whether it is marked.
    fn judge(state: &mut State, millis: u64, waited: u64, ect: bool, stream: &mut Stream) -> (bool, bool) {
        let (now, since) = (at(millis), at(millis) - Span::from_millis(waited));
        let mut pkt = Pkt { key: 0, len: 1000, flow: FlowId(0), dscp: 0, ect, ce: false, reverse: false };
        let drops = state.drops(now, since, &settings(), &mut pkt, stream);
        (drops, pkt.ce)
    }

    #[test]
    fn slow_links_have_longer_targets() {
        let millis = Span::from_millis;
        let new = |packet| Settings::new(millis(100), packet, true);
        let Settings { target, interval, least, .. } = new(millis(1));
        assert_eq!((target, interval, least), (millis(5), millis(100), millis(4)));
        // 1514 bytes at 1 Mbit/s.
        let Settings { target, interval, least, .. } = new(Span::from_micros(12_112));
        let micros = Span::from_micros;
        assert_eq!((target, interval, least), (micros(18_168), micros(113_168), micros(48_448)));
        let Settings { target, interval, .. } = new(millis(1000));
        assert_eq!((target, interval), (millis(1500), millis(3000)));
    }

    #[test]
    fn drops_come_after_an_interval_and_then_ever_closer() {
        let (mut state, mut stream) = (State::default(), stream());
        let mut drops = |millis, waited| judge(&mut state, millis, waited, false, &mut stream).0;
        // Above the target from 1000 ms on: the first drop is due at 1100.
        assert_eq!([drops(1000, 6), drops(1099, 6)], [false; 2]);
        assert!(drops(1100, 6));
        // Count 2: 1100 + 100 / sqrt(2) = 1170.71 ms; count 3: + 100 / sqrt(3) = 1228.45 ms.
        assert_eq!([drops(1170, 6), drops(1171, 6), drops(1228, 6)], [false, true, false]);
        assert_eq!(state.drop_next.as_nanos(), 1_228_445_704);
        assert_eq!(state.count, 3);
    }

    #[test]
    fn the_count_falls_as_it_rose_and_is_remembered_meanwhile() {
        let (mut state, mut stream) = (State::default(), stream());
        for (millis, dropped) in [(1000, false), (1100, true), (1171, true)] {
            assert_eq!(judge(&mut state, millis, 6, false, &mut stream).0, dropped);
        }
        // 1228.45 is past: 2, and + 100 / sqrt(2) = 1299.16.
        assert!(!judge(&mut state, 1229, 5, false, &mut stream).0);
        assert_eq!((state.count, state.drop_next.as_nanos()), (2, 1_299_156_382));
        // Above the target again before that: the next drop comes a gap of count 2 later, not an interval.
        assert!(!judge(&mut state, 1240, 6, false, &mut stream).0);
        assert_eq!(state.drop_next.as_nanos(), 1_310_710_678);
        assert!(judge(&mut state, 1311, 6, false, &mut stream).0);
        // Long below the target: nothing is left.
        assert!(!judge(&mut state, 2000, 5, false, &mut stream).0);
        assert_eq!((state.count, state.drop_next), (0, at(2100)));
    }

    #[test]
    fn codel_marks_and_blue_does_not() {
        let (mut state, mut stream) = (State::default(), stream());
        assert_eq!(judge(&mut state, 1000, 6, true, &mut stream), (false, false));
        assert_eq!(judge(&mut state, 1100, 6, true, &mut stream), (false, true));
        assert_eq!(judge(&mut state, 1101, 6, true, &mut stream), (false, false));
        let mut state = State { probability: u32::MAX, ..State::default() };
        assert_eq!(judge(&mut state, 1000, 0, true, &mut stream), (true, false));
    }

    #[test]
    fn blue_rises_with_overflows_and_falls_with_emptiness_once_in_a_target() {
        let (mut state, settings) = (State::default(), settings());
        for millis in [1000, 1001, 1005, 1006, 1012] {
            state.on_full(at(millis), &settings);
        }
        // At 1000, 1006 and 1012.
        assert_eq!(state.probability, 3 * UP);
        for millis in [1017, 1018, 1019, 1024] {
            state.on_empty(at(millis), &settings);
        }
        // At 1018 and 1024.
        assert_eq!(state.probability, 3 * UP - 2 * DOWN);
    }

    #[test]
    fn blue_drops_with_its_probability_whatever_packets_waited() {
        let (mut state, mut stream) = (State { probability: 64 * UP, ..State::default() }, stream());
        let drops = (0..40_000).filter(|_| judge(&mut state, 1000, 0, true, &mut stream).0).count();
        // A quarter; the standard deviation is 87.
        assert!((9_600..=10_400).contains(&drops), "{drops}");
    }

    #[test]
    fn an_empty_queue_forgets_in_time() {
        let settings = settings();
        let mut state =
            State { probability: UP, changed: at(1000), count: 1, drop_next: at(1000), dropping: false };
        // 16 steps of 5 ms are 1/256. The count is gone after 1000, its activity a gap later.
        assert!(!state.rests(at(1079), &settings));
        assert_eq!((state.probability, state.changed, state.count), (DOWN, at(1075), 0));
        assert!(!state.rests(at(1099), &settings));
        assert_eq!(state.probability, 0);
        assert!(state.rests(at(1100), &settings));
        // A queue that a packet has just left stays its flow's for an interval.
        let (mut state, mut stream) = (State::default(), stream());
        assert!(!judge(&mut state, 2000, 0, false, &mut stream).0);
        assert_eq!([2099, 2100].map(|millis| state.rests(at(millis), &settings)), [false, true]);
    }
}
