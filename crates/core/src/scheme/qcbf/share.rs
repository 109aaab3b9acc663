//! The law for programs that lower the window of passing acknowledgements and can neither hold nor send one: windows slide.
//!
//! A flow's window is its share of Eq. 2's budget (Eq. 4), in whole segments. It shrinks at once. It grows only as far as the
//! budget has room after all windows that other senders were granted and have not had acknowledged. So the data that awake
//! senders have in flight stays within the budget, except for flows that begin or wake: those have a segment, or the window
//! granted before they fell asleep, and no other flow grows until there is room again. Sleeping flows reserve at most a part
//! of the budget, so any number of idle connections and unanswered SYNs leaves the rest to those that send.

use std::collections::BTreeMap;

use super::law::Terms;
use crate::id::FlowId;
use crate::port::window::{AckVerdict, Segment, WindowProgram};
use crate::time::{Span, Time};

/// Ageing times after which a flow is forgotten that has neither sent nor closed.
pub const FORGET: u64 = 10_000;

/// Segments that a flow sends one at a time. Handshakes measure a round trip without a queue, and senders whose
/// acknowledgement takes twice their estimate send a segment again (RFC 8985, section 7). Eight samples weighted by 1/8 bring
/// the estimate to 0.66 of the round trip with the queue.
const MEASURED: u64 = 8;

/// Part of the budget that is kept for flows that sleep, at most.
const ASLEEP: u64 = 8;

pub(super) struct Share {
    terms: Terms,
    flows: BTreeMap<FlowId, Flow>,
    /// Flows between their SYN and their FIN (N_F), but for those that sleep.
    open: u64,
    /// Bytes on the link that flows may have under way that are awake, and with which those that sleep wake up.
    charged: u64,
    asleep: u64,
    interval: Span,
    next: Option<Time>,
}

#[derive(Clone, Copy, Debug)]
struct Flow {
    mss: u64,
    frame: u64,
    scale: u64,
    window: u64,
    /// The highest right edge granted to its sender, and what is acknowledged.
    edge: u64,
    acked: u64,
    /// Offset after the FIN.
    end: u64,
    is_open: bool,
    is_asleep: bool,
    seen: Time,
}

impl Flow {
    fn is_counted(&self) -> bool {
        self.is_open && !self.is_asleep
    }

    /// What a window takes on the link. Steps of up to a segment round a window up, by no segment more.
    fn frames(&self, window: u64) -> u64 {
        let segments = if self.scale <= self.mss { window / self.mss } else { window.div_ceil(self.mss) };
        segments * self.frame
    }

    /// Bytes on the link that it may have in flight. A sleeping flow counts with the window that it wakes up to.
    fn charge(&self) -> u64 {
        if self.is_asleep {
            return self.frames(self.window);
        }
        let told = self.edge.saturating_sub(self.acked);
        let window =
            if self.is_open { self.window } else { self.end.min(self.edge).saturating_sub(self.acked) };
        self.frames(window).max(self.frames(told.min(self.end.saturating_sub(self.acked))))
    }

    /// A window of so many segments as its field can state it: at least a segment.
    fn stated(&self, segments: u64) -> u64 {
        let window = Segment::stated(segments * self.mss, self.mss, self.scale);
        if window < self.mss { self.mss.next_multiple_of(self.scale) } else { window }
    }
}

/// Segments of a window: a share of `budget` for each of `open` flows and one that may come, or a turn as long as
/// the budget holds one for each, or a segment.
fn segments(budget: u64, open: u64, turn: u64, frame: u64) -> u64 {
    let share = budget / (open + 1) / frame.max(1);
    if share < turn && open * turn * frame <= budget { turn } else { share.max(1) }
}

impl Share {
    pub(super) fn new(terms: Terms) -> Self {
        let interval = Span::from_nanos((terms.ageing.as_nanos() / 2).max(1));
        Self { terms, flows: BTreeMap::new(), open: 0, charged: 0, asleep: 0, interval, next: None }
    }

    fn count(&mut self, entry: &Flow) {
        *if entry.is_asleep { &mut self.asleep } else { &mut self.charged } += entry.charge();
        self.open += u64::from(entry.is_counted());
    }

    fn uncount(&mut self, entry: &Flow) {
        *if entry.is_asleep { &mut self.asleep } else { &mut self.charged } -= entry.charge();
        self.open -= u64::from(entry.is_counted());
    }

    /// Bytes that no flow was granted.
    fn room(&self, held: u64) -> u64 {
        let budget = self.terms.whole();
        budget.saturating_sub((self.charged + self.asleep.min(budget / ASLEEP)).max(held))
    }

    fn change(&mut self, flow: FlowId, change: impl FnOnce(&mut Flow)) {
        if let Some(before) = self.flows.get(&flow).copied() {
            let mut entry = before;
            change(&mut entry);
            self.uncount(&before);
            self.count(&entry);
            self.flows.insert(flow, entry);
        }
    }

    fn remove(&mut self, flow: FlowId) {
        if let Some(entry) = self.flows.remove(&flow) {
            self.uncount(&entry);
        }
    }

    fn add(&mut self, now: Time, segment: &Segment) {
        let Segment { mss, frame, scale, offset, .. } = *segment;
        let acked = if segment.syn { 0 } else { offset };
        let mut entry = Flow {
            mss,
            frame,
            scale,
            window: 0,
            edge: acked,
            acked,
            end: u64::MAX,
            is_open: true,
            is_asleep: false,
            seen: now,
        };
        // Its SYN-ACK is on its way before anybody can ask.
        entry.window = entry.stated(1);
        entry.edge += entry.window;
        self.count(&entry);
        self.flows.insert(segment.flow, entry);
    }
}

impl WindowProgram for Share {
    fn on_data(&mut self, now: Time, segment: &Segment, _held: u64) -> Option<u64> {
        let flow = segment.flow;
        if segment.rst {
            self.remove(flow);
            return None;
        }
        if !self.flows.contains_key(&flow) && !segment.fin {
            self.add(now, segment);
        }
        self.change(flow, |entry| {
            entry.seen = now;
            entry.is_asleep = false;
            if segment.fin {
                entry.end = segment.offset;
                entry.is_open = false;
            }
        });
        if self.next.is_none() && !self.flows.is_empty() {
            self.next = Some(now + self.interval);
        }
        None
    }

    fn on_ack(&mut self, _now: Time, segment: &Segment, held: u64) -> AckVerdict {
        let Segment { flow, offset, scale, mss, frame, paths, .. } = *segment;
        // A connection with one window for all subflows needs a turn on each path: receivers acknowledge by subflow, and with
        // less a path has nothing to send at times. Its data in flight stay within the window, whichever path they take.
        let turn = self.terms.turn * paths.max(1);
        // Both ends have stated what they can.
        self.change(flow, |entry| {
            (entry.scale, entry.mss, entry.frame) = (scale, mss, frame);
            if segment.syn {
                entry.window = entry.stated(1);
            }
            entry.acked = entry.acked.max(offset);
        });
        let Some(entry) = self.flows.get(&flow).copied() else { return AckVerdict::Pass };
        if segment.rst || offset >= entry.end {
            self.remove(flow);
            return AckVerdict::Pass;
        }
        let budget = self.terms.whole();
        // In slow start a sender cannot use more.
        let usable = if offset < MEASURED * mss { 1 } else { self.terms.initial_window + offset / mss };
        let share = segments(budget, self.open, turn, frame).min(usable);
        let wanted = entry.stated(share);
        let window = if entry.is_asleep {
            // Nor more than it is kept with.
            wanted.min(entry.window.max(entry.stated(1)))
        } else if wanted <= entry.window {
            wanted
        } else {
            // Eqs. 1 and 5: what waits of others leaves no room either.
            let most = (entry.charge() + self.room(held)) / frame.max(1);
            wanted.min(entry.stated(most.max(1))).max(entry.window)
        };
        self.change(flow, |entry| {
            entry.window = window;
            entry.edge = entry.edge.max(entry.acked + window);
        });
        AckVerdict::Window(window)
    }

    fn release(&mut self) -> Option<(FlowId, u64)> {
        None
    }

    fn timer(&self) -> Option<Time> {
        self.next
    }

    fn on_timer(&mut self, now: Time, _held: u64) {
        let ageing = self.terms.ageing;
        let silent = self.flows.iter().filter(|(_, f)| !f.is_asleep && now.since(f.seen) >= ageing);
        let silent: Vec<(FlowId, bool)> = silent.map(|(flow, f)| (*flow, f.is_open)).collect();
        let turn = self.terms.turn;
        for (flow, is_open) in silent {
            if is_open {
                self.change(flow, |entry| {
                    entry.is_asleep = true;
                    entry.window = entry.window.min(entry.stated(turn));
                });
            } else {
                self.remove(flow);
            }
        }
        let gone = self.flows.iter().filter(|(_, f)| now.since(f.seen) >= ageing * FORGET);
        let gone: Vec<FlowId> = gone.map(|(flow, _)| *flow).collect();
        gone.into_iter().for_each(|flow| self.remove(flow));
        self.next = (!self.flows.is_empty()).then(|| now + self.interval);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MSS: u64 = 1448;
    const FRAME: u64 = 1514;

    /// 4 frames under way and 40 that wait.
    fn terms() -> Terms {
        Terms {
            pipe: 4 * FRAME,
            rtt: Span::from_micros(100),
            queue: 40 * FRAME,
            turn: 2,
            initial_window: 10,
            ageing: Span::from_millis(10),
        }
    }

    fn segment(flow: u32, offset: u64) -> Segment {
        let flow = FlowId(flow);
        let (syn, fin, rst, window) = (false, false, false, 1 << 20);
        Segment { flow, syn, fin, rst, offset, window, mss: MSS, frame: FRAME, scale: 128, paths: 1 }
    }

    fn syn(flow: u32) -> Segment {
        Segment { syn: true, ..segment(flow, 0) }
    }

    fn opened(flows: u32) -> Share {
        let mut share = Share::new(terms());
        for flow in 0..flows {
            share.on_data(Time::ZERO, &syn(flow), 0);
            assert_eq!(
                share.on_ack(Time::ZERO, &syn(flow), 0),
                AckVerdict::Window(1536),
                "a segment, rounded up"
            );
        }
        share
    }

    fn window(share: &mut Share, flow: u32, offset: u64) -> u64 {
        match share.on_ack(Time::ZERO, &segment(flow, offset), 0) {
            AckVerdict::Window(window) => window,
            other => panic!("{other:?}"),
        }
    }

    /// Eqs. 2 and 4: 44 frames for three flows and one that may come are 11 each, once the round trip is measured.
    #[test]
    fn a_flow_has_its_share_in_whole_segments() {
        let mut share = opened(3);
        assert_eq!(window(&mut share, 0, 7 * MSS), 1536);
        assert_eq!(window(&mut share, 0, 8 * MSS), Segment::stated(11 * MSS, MSS, 128));
        assert_eq!(window(&mut share, 1, 8 * MSS), Segment::stated(11 * MSS, MSS, 128));
        // A fourth leaves each 8 at once, and an earlier grant counts until it is acknowledged.
        share.on_data(Time::ZERO, &syn(3), 0);
        assert_eq!(window(&mut share, 0, 8 * MSS), Segment::stated(8 * MSS, MSS, 128));
        assert_eq!(share.charged, (11 + 11 + 1 + 1) * FRAME);
        window(&mut share, 0, 19 * MSS);
        assert_eq!(share.charged, (8 + 11 + 1 + 1) * FRAME);
        // 44 frames that wait, of whomever, leave room for nobody.
        assert_eq!(share.on_ack(Time::ZERO, &segment(2, 8 * MSS), 44 * FRAME), AckVerdict::Window(1536));
    }

    /// 22 turns fit into 44 frames; from 23 flows on each has a segment, whose field states at least that.
    #[test]
    fn windows_are_turns_as_long_as_they_fit_and_then_a_segment() {
        let mut share = opened(22);
        assert_eq!(window(&mut share, 0, 10 * MSS), 2944);
        let mut share = opened(23);
        assert_eq!(window(&mut share, 0, 10 * MSS), 1536);
        let wide = Segment { scale: 1 << 14, ..segment(0, 11 * MSS) };
        assert_eq!(
            share.on_ack(Time::ZERO, &wide, 0),
            AckVerdict::Window(1 << 14),
            "the least that can be stated"
        );
    }

    /// 44 frames for eleven and one that may come are 3 each; eleven connections of two paths have two turns, as long as they fit.
    #[test]
    fn a_connection_has_a_turn_for_each_path() {
        for (flows, paths, segments) in [(11, 1, 3), (11, 2, 4), (12, 2, 3), (22, 2, 1), (22, 1, 2)] {
            let mut share = opened(flows);
            let ack = Segment { paths, ..segment(0, 20 * MSS) };
            let window = share.on_ack(Time::ZERO, &ack, 0);
            let expected = AckVerdict::Window(Segment::stated(segments * MSS, MSS, 128));
            assert_eq!(window, expected, "{flows} flows, {paths} paths");
        }
    }

    #[test]
    fn a_fin_a_reset_and_silence_give_the_share_back() {
        let mut share = opened(3);
        share.on_data(Time::ZERO, &Segment { fin: true, ..segment(0, MSS + 1) }, 0);
        assert_eq!((share.open, share.charged), (2, 3 * FRAME), "what is under way counts");
        assert_eq!(share.on_ack(Time::ZERO, &segment(0, MSS + 1), 0), AckVerdict::Pass);
        share.on_data(Time::ZERO, &Segment { rst: true, ..segment(1, 0) }, 0);
        assert_eq!((share.open, share.charged), (1, FRAME));
        window(&mut share, 2, 8 * MSS);
        let later = Time::ZERO + terms().ageing;
        share.on_timer(later, 0);
        let counts = |share: &Share| (share.open, share.charged, share.asleep);
        assert_eq!(counts(&share), (0, 0, 2 * FRAME), "it sleeps, and wakes up to a turn");
        share.on_data(later, &segment(2, 9 * MSS), 0);
        assert_eq!(counts(&share), (1, 18 * FRAME, 0), "a flow that wakes may send what it was granted");
    }

    /// 44 frames, of which an eighth is kept for those that sleep: 38 are free, and a flow alone has half of all.
    #[test]
    fn who_sleeps_or_was_never_answered_leaves_the_budget_to_others() {
        for (idle, answered) in [(40, true), (40, false), (4000, true), (4000, false)] {
            let mut share = Share::new(terms());
            for flow in 0..idle {
                share.on_data(Time::ZERO, &syn(flow), 0);
                if answered {
                    share.on_ack(Time::ZERO, &syn(flow), 0);
                    share.on_ack(Time::ZERO, &segment(flow, 8 * MSS), 0);
                }
            }
            let later = Time::ZERO + terms().ageing;
            let awake = idle;
            share.on_data(later, &syn(awake), 0);
            share.on_ack(later, &syn(awake), 0);
            assert_eq!(window(&mut share, awake, 20 * MSS), 1536, "the others may send yet");
            share.on_timer(later, 0);
            assert_eq!(
                window(&mut share, awake, 20 * MSS),
                Segment::stated(22 * MSS, MSS, 128),
                "{idle} idle, answered: {answered}"
            );
            // An acknowledgement does not make a window of one that sleeps grow.
            let kept = share.asleep;
            window(&mut share, 0, 9 * MSS);
            assert_eq!(share.asleep, kept);
            // One wakes, and grows only into what room there is; the other shrinks.
            share.on_data(later, &segment(0, 9 * MSS), 0);
            let woken = share.charged;
            window(&mut share, 0, 9 * MSS);
            assert!(share.charged <= woken.max(44 * FRAME - 44 * FRAME / ASLEEP));
            assert_eq!(window(&mut share, awake, 21 * MSS), Segment::stated(14 * MSS, MSS, 128));
        }
    }

    proptest! {
        /// What senders may have under way grows beyond the budget only by flows that begin, whose first turn nobody can
        /// refuse, and by flows that wake.
        #[test]
        fn windows_stay_within_the_budget(
            steps in prop::collection::vec((0u32..30, 0u8..6, 0u64..8), 1..400),
            shift in 0u32..10,
        ) {
            let mut share = Share::new(terms());
            let mut now = Time::ZERO;
            for (flow, step, n) in steps {
                now += Span::from_micros(100 * n);
                let scale = 1 << shift;
                let acked = share.flows.get(&FlowId(flow)).map_or(0, |f| (f.acked + n * MSS).min(f.edge));
                let before = share.charged;
                let paths = 1 + u64::from(flow % 2);
                let ack = Segment { scale, paths, ..segment(flow, acked) };
                match step {
                    0 => drop(share.on_data(now, &Segment { scale, ..syn(flow) }, 0)),
                    1..=3 => {
                        share.on_ack(now, &ack, 0);
                        let most = terms().whole() - share.asleep.min(terms().whole() / ASLEEP);
                        prop_assert!(share.charged <= before.max(most));
                    }
                    4 => drop(share.on_data(now, &Segment { fin: true, ..ack }, 0)),
                    _ => share.on_timer(now, 0),
                }
                let sum = |asleep| {
                    share.flows.values().filter(|f| f.is_asleep == asleep).map(Flow::charge).sum::<u64>()
                };
                prop_assert_eq!((share.charged, share.asleep), (sum(false), sum(true)));
                prop_assert_eq!(share.open, share.flows.values().filter(|f| f.is_counted()).count() as u64);
            }
        }
    }
}
