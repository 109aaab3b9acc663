//! The available bandwidth W of a path, from what one gateway sent and the other received (Sect. 3.2).
//!
//! Rates are in bit/s. With P, B, T the packets, bytes and time of the sender (s) or receiver (r) at a probe:
//!
//! | Eq. | law `loss` |
//! |---|---|
//! | 8 | L(t) = (P_s(t) - P_s(t-1)) - (P_r(t) - P_r(t-1)) |
//! | 9 | R(t-1) = (B_r(t) - B_r(t-1)) / (T_r(t) - T_r(t-1)) |
//! | 10 | W(t) = R(t-1) - beta if L > theta_H; (W(t-1) + R(t-1)) / 2 if theta_L < L <= theta_H; else W(t-1) + D(t-1) |
//! | 11 | D(t) = D_ini if L > theta_L; else min(alpha D(t-1), D_max) |
//!
//! The laws `delay` and `robust` are ours: see [`super::delay`] and [`super::robust`].
//!
//! Deviations, where the paper is silent:
//! - floor <= W <= ceiling always. Eq. 10 has no bounds: R - beta goes below zero, and on a path without loss W grows
//!   by up to D_max each round for ever.
//! - A round in which nothing was sent changes neither W nor D. Read literally, L = 0 adds D: an idle night ends with
//!   W at its ceiling, though it tested nothing of the path.
//! - A lost question or answer: the next answer spans both rounds. Eqs. 8-11 then apply once.
//! - The law `delay` takes questions that stay without answers for a full path and cuts W; by the law `loss` W waits.
//! - Answers that come twice, late or out of order are ignored by their number.
//! - A counter or clock that goes back, or clocks that disagree by more than 5 s about the length of a round, mean a
//!   restart: the probe is a new starting point; W and D stay. A clock that stands forms no rate: the next answer spans
//!   both rounds.

use std::collections::VecDeque;

use super::delay::{self, Delay, Round};
use super::probe::{Counters, Seq};
use super::robust::watch::Looks;
use super::robust::{self, Robust};
use crate::time::{Span, Time};
use crate::units::Rate;

/// Settings of an [`Estimator`].
#[derive(Clone, PartialEq, Debug)]
pub struct Settings {
    /// T_c: a question is sent each cycle.
    pub cycle: Span,
    /// W_ini.
    pub initial: Rate,
    /// W is never below: the sum of what the classes must keep.
    pub floor: Rate,
    /// W is never above, say the rate of the own access line.
    pub ceiling: Rate,
    /// How W moves.
    pub law: Law,
}

/// How W moves.
#[derive(Clone, PartialEq, Debug)]
pub enum Law {
    /// The paper's: by lost packets, Eqs. 10 and 11.
    Loss(Loss),
    /// Ours: by the trend of the one-way delay.
    Delay(delay::Settings),
    /// Ours, for real paths: by the delay, and by loss that depends on what is sent.
    Robust(robust::Settings),
}

/// Settings of Eqs. 10 and 11, with the paper's values as defaults (Table 4).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Loss {
    /// theta_H: more lost packets cut W below R.
    pub theta_high: u64,
    /// theta_L: more lost packets, up to theta_H, take W halfway to R.
    pub theta_low: u64,
    /// D_ini: first step up.
    pub step_initial: Rate,
    /// D_max: largest step up.
    pub step_max: Rate,
    /// alpha_w: factor from step to step.
    pub alpha: f64,
    /// beta_w: how far below R a cut goes.
    pub beta: Rate,
}

impl Default for Loss {
    fn default() -> Self {
        Self {
            theta_high: 1,
            theta_low: 0,
            step_initial: Rate::from_bits_per_sec(50_000),
            step_max: Rate::from_bits_per_sec(1_000_000),
            alpha: 1.2,
            beta: Rate::from_bits_per_sec(100_000),
        }
    }
}

impl Default for Settings {
    /// The paper's values; the floor is five classes of 80 kb/s, the ceiling 1 Gb/s.
    fn default() -> Self {
        Self {
            cycle: Span::from_secs(1),
            initial: Rate::from_bits_per_sec(1_000_000),
            floor: Rate::from_bits_per_sec(400_000),
            ceiling: Rate::from_bits_per_sec(1_000_000_000),
            law: Law::Loss(Loss::default()),
        }
    }
}

/// What an answer changed.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Update {
    /// W(t): what may be sent from now on.
    pub estimate: Rate,
    /// W(t-1): what was in force in the round.
    pub previous: Rate,
    /// D(t), or the last change of W by the law `delay` when it was upward.
    pub step: Rate,
    /// R(t-1).
    pub received: Rate,
    /// The same of the sending side.
    pub sent: Rate,
    /// L(t): negative when more arrived than was sent, as when packets overtake a probe.
    pub lost: i64,
    /// L(t) <= 0.
    pub loss_free: bool,
    /// Nothing was sent in the round; W and D stay.
    pub idle: bool,
    /// What the path has been seen to carry for us: W(t) by the law `loss`.
    pub proven: Rate,
    /// Queueing on the way there; none by the law `loss`.
    pub queueing: Option<Span>,
}

/// Estimates W.
#[derive(Clone, Debug)]
pub struct Estimator {
    settings: Settings,
    /// Questions without an answer, oldest first.
    open: VecDeque<(Seq, Counters)>,
    /// The last probe that both ends have counted.
    base: Option<Probe>,
    beginnings: u32,
    estimate: f64,
    state: State,
    last: Option<Update>,
    tally: Tally,
    /// The last question that was found overdue (law `robust` only).
    judged: Option<Seq>,
}

/// What an estimator has seen since it began.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// Rounds that brought an answer.
    pub updates: u64,
    /// Sum of L.
    pub lost: i64,
}

#[derive(Clone, Debug)]
enum State {
    Loss { settings: Loss, step: f64 },
    Delay(Box<Delay>),
    Robust(Box<Robust>),
}

/// Both ends' counters at one point in the order of packets.
#[derive(Clone, Copy, Debug)]
struct Probe {
    sent: Counters,
    received: Counters,
}

/// Questions that may wait for an answer; older ones count as lost.
const MOST_OPEN: usize = 64;

/// When the clocks of both ends differ by more about the length of a round, one was set or its gateway has restarted:
/// longer than any queue. An answerer whose clock began with its counters is found out by this even when it has counted
/// as far as before.
const CLOCKS_APART: Span = Span::from_secs(5);

impl Estimator {
    /// An estimator at W(1) = W_ini, D(1) = D_ini.
    pub fn new(settings: Settings) -> Self {
        let state = match &settings.law {
            Law::Loss(loss) => State::Loss { settings: *loss, step: loss.step_initial.bits_per_sec() as f64 },
            Law::Delay(delay) => State::Delay(Box::new(Delay::new(delay.clone(), settings.cycle))),
            Law::Robust(robust) => State::Robust(Box::new(Robust::new(robust.clone(), settings.cycle))),
        };
        let mut new = Self {
            settings,
            open: VecDeque::new(),
            base: None,
            beginnings: 0,
            estimate: 0.0,
            state,
            last: None,
            tally: Tally::default(),
            judged: None,
        };
        new.estimate = new.bounded(new.settings.initial.bits_per_sec() as f64);
        new
    }

    /// W: what may be sent now.
    pub fn estimate(&self) -> Rate {
        Rate::from_bits_per_sec_f64(self.estimate)
    }

    /// What the last round brought, once there was one.
    pub const fn last(&self) -> Option<&Update> {
        self.last.as_ref()
    }

    /// What all rounds brought.
    pub const fn tally(&self) -> Tally {
        self.tally
    }

    /// The settings.
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// What the first one, two, ... flows need together ([`Shares::goals`](super::shares::Shares::goals)): W may rest
    /// there. The law `loss` does not use it.
    pub fn set_goals(&mut self, needs: &[Rate]) {
        match &mut self.state {
            State::Loss { .. } => {}
            State::Delay(delay) => delay.set_goals(needs),
            State::Robust(robust) => robust.set_goals(needs),
        }
    }

    /// Whether the law looks at both ends' counters between questions, and sets its own pace.
    pub const fn watches(&self) -> bool {
        matches!(self.state, State::Robust(_))
    }

    /// Whether the next question should leave sooner than after a cycle.
    pub(super) fn hurries(&self) -> Option<robust::Hurry> {
        if let State::Robust(robust) = &self.state { robust.hurries() } else { None }
    }

    /// The share of packets that the path loses without a queue, as far as the law tells.
    pub(super) fn noise(&self) -> f64 {
        if let State::Robust(robust) = &self.state { robust.noise() } else { f64::NAN }
    }

    /// Looks at `now` for a question whose answer is overdue, each once. True when there was one, and W was cut for it.
    pub(super) fn look_for_overdue(&mut self, now: Time) -> bool {
        let State::Robust(robust) = &mut self.state else { return false };
        let judged = self.judged;
        let is_new = |seq: &Seq| judged.is_none_or(|judged| judged.precedes(*seq));
        let waits = self.open.iter().find(|(seq, _)| is_new(seq));
        let Some((seq, sent)) = waits.filter(|_| self.base.is_some()) else { return false };
        if now.since(sent.time).as_secs_f64() < robust.patience() {
            return false;
        }
        self.judged = Some(*seq);
        let cut = robust.overdue(now, self.estimate);
        self.estimate = self.bounded(cut);
        true
    }

    /// The other gateway reports that data come at `received` bit/s, measured over `seconds`. `looks` are those at what was
    /// sent. True when W changed.
    pub(super) fn on_report(&mut self, now: Time, looks: &Looks, received: f64, seconds: f64) -> bool {
        let State::Robust(robust) = &mut self.state else { return false };
        // What came was sent a round-trip time ago.
        let Some(sent) = looks.least(robust.rtt() + 2.0 * seconds) else { return false };
        let cut = robust.report(now, self.estimate, sent, received, seconds);
        let before = self.estimate;
        self.estimate = self.bounded(cut);
        self.estimate != before
    }

    /// Question `seq` leaves after `sent.packets` packets, at `sent.time` of the own clock. True when W was cut because
    /// too many questions stay without an answer (law `delay` only).
    pub fn on_sent(&mut self, seq: Seq, sent: Counters) -> bool {
        let before = self.open.back().map(|(_, s)| s).or(self.base.as_ref().map(|b| &b.sent));
        if before.is_some_and(|before| advance(before, &sent).is_none()) {
            self.open.clear();
            self.base = None;
        }
        self.open.retain(|(open, _)| open.precedes(seq));
        if self.open.len() == MOST_OPEN {
            self.open.pop_front();
        }
        self.open.push_back((seq, sent));
        let State::Delay(delay) = &mut self.state else { return false };
        if self.open.len() <= delay::PATIENCE || self.base.is_none() {
            return false;
        }
        let cut = delay.silence(self.estimate);
        self.estimate = self.bounded(cut);
        true
    }

    /// The answer to question `seq` arrives at `now` of the own clock: the other gateway had received so much at
    /// `received.time` of its clock. None when the answer changes nothing: it is the first, unknown, late or a
    /// repetition, no time has passed, or somebody has restarted.
    pub fn on_answer(&mut self, seq: Seq, received: Counters, now: Time) -> Option<Update> {
        let at = self.open.iter().position(|(open, _)| *open == seq)?;
        let (_, sent) = self.open.drain(..=at).next_back()?;
        let probe = Probe { sent, received };
        let Some(base) = self.base else {
            self.restart(probe);
            return None;
        };
        let (Some(there), Some(back)) = (advance(&base.sent, &sent), advance(&base.received, &received))
        else {
            self.restart(probe);
            return None;
        };
        if there.time == 0 || back.time == 0 {
            return None;
        }
        if there.time.abs_diff(back.time) > CLOCKS_APART.as_nanos() {
            self.restart(probe);
            return None;
        }
        self.base = Some(probe);
        let rate = |bytes: u64, nanos: u64| bytes as f64 * 8e9 / nanos as f64;
        let one_way = i128::from(received.time.as_nanos()) - i128::from(sent.time.as_nanos());
        let round = Round {
            sent: rate(there.bytes, there.time),
            received: rate(back.bytes, back.time),
            lost: clamped(i128::from(there.packets) - i128::from(back.packets)),
            stretch: back.time as f64 / there.time as f64,
            packets: there.packets,
            span: there.time as f64 / 1e9,
            one_way: one_way as f64 / 1e9,
            asked: sent.time,
            answered_after: now.since(sent.time).as_secs_f64(),
        };
        let update = self.update(&round);
        self.last = Some(update);
        self.tally.updates += 1;
        self.tally.lost = self.tally.lost.saturating_add(update.lost);
        Some(update)
    }

    fn update(&mut self, round: &Round) -> Update {
        let previous = self.estimate;
        let idle = round.packets == 0;
        let (estimate, step, seen) = match &mut self.state {
            State::Loss { settings, step } => {
                let mut estimate = previous;
                if !idle {
                    (estimate, *step) = settings.next(previous, *step, round);
                }
                (estimate, *step, None)
            }
            State::Delay(delay) => {
                let estimate = delay.next(previous, round);
                (estimate, (estimate - previous).max(0.0), Some((delay.proven(), delay.queueing())))
            }
            State::Robust(robust) => {
                let estimate = robust.next(previous, round);
                (estimate, (estimate - previous).max(0.0), Some((robust.proven(), robust.queueing())))
            }
        };
        self.estimate = self.bounded(estimate);
        Update {
            estimate: self.estimate(),
            previous: Rate::from_bits_per_sec_f64(previous),
            step: Rate::from_bits_per_sec_f64(step),
            received: Rate::from_bits_per_sec_f64(round.received),
            sent: Rate::from_bits_per_sec_f64(round.sent),
            lost: round.lost,
            loss_free: round.lost <= 0,
            idle,
            proven: seen.map_or(self.estimate(), |(proven, _)| Rate::from_bits_per_sec_f64(proven)),
            queueing: seen.map(|(_, queueing)| queueing),
        }
    }

    /// How often a probe was a new starting point: the first one, and after each restart of somebody.
    pub(super) const fn beginnings(&self) -> u32 {
        self.beginnings
    }

    fn restart(&mut self, probe: Probe) {
        self.base = Some(probe);
        self.beginnings += 1;
        match &mut self.state {
            State::Loss { .. } => {}
            State::Delay(delay) => delay.forget(),
            State::Robust(robust) => robust.forget(),
        }
    }

    fn bounded(&self, estimate: f64) -> f64 {
        let floor = self.settings.floor.bits_per_sec() as f64;
        let ceiling = self.settings.ceiling.bits_per_sec() as f64;
        estimate.min(ceiling).max(floor)
    }
}

impl Loss {
    /// Eqs. 10 and 11: W(t) and D(t).
    fn next(&self, estimate: f64, step: f64, round: &Round) -> (f64, f64) {
        let step_initial = self.step_initial.bits_per_sec() as f64;
        let step_max = self.step_max.bits_per_sec() as f64;
        let beyond = |threshold: u64| i128::from(round.lost) > i128::from(threshold);
        if beyond(self.theta_high) {
            (round.received - self.beta.bits_per_sec() as f64, step_initial)
        } else if beyond(self.theta_low) {
            ((estimate + round.received) / 2.0, step_initial)
        } else {
            (estimate + step, (self.alpha * step).min(step_max))
        }
    }
}

struct Advance {
    packets: u64,
    bytes: u64,
    /// ns.
    time: u64,
}

/// How far counters have moved, with wraps; none when one went back.
fn advance(from: &Counters, to: &Counters) -> Option<Advance> {
    let forward = |from: u64, to: u64| Some(to.wrapping_sub(from)).filter(|moved| *moved < 1 << 63);
    Some(Advance {
        packets: forward(from.packets, to.packets)?,
        bytes: forward(from.bytes, to.bytes)?,
        time: forward(from.time.as_nanos(), to.time.as_nanos())?,
    })
}

fn clamped(n: i128) -> i64 {
    i64::try_from(n).unwrap_or(if n < 0 { i64::MIN } else { i64::MAX })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::rng::Stream;

    fn kbit(n: u64) -> Rate {
        Rate::from_bits_per_sec(n * 1000)
    }

    /// Both ends of a path in whole seconds: what each counted when a question passed it.
    struct Path {
        estimator: Estimator,
        seq: Seq,
        now: u64,
        sent: Counters,
        received: Counters,
        /// The other clock less this one, ns; wraps.
        answerer: u64,
    }

    const SECOND: u64 = 1_000_000_000;

    impl Path {
        fn new(settings: Settings) -> Self {
            let zero = Counters::default();
            let estimator = Estimator::new(settings);
            Self { estimator, seq: Seq::new(0), now: 0, sent: zero, received: zero, answerer: 10 * SECOND }
        }

        fn loss() -> Self {
            let mut path = Self::new(Settings::default());
            assert_eq!(path.exchange(0, 0, 0), None, "the first answer is the starting point");
            path
        }

        /// A second in which `packets` of 125 bytes (1 kbit) leave and `lost` of them are lost.
        fn count(&mut self, packets: u64, lost: u64) {
            self.now += SECOND;
            let arrived = packets.saturating_sub(lost);
            self.sent.packets = self.sent.packets.wrapping_add(packets);
            self.sent.bytes = self.sent.bytes.wrapping_add(125 * packets);
            self.received.packets = self.received.packets.wrapping_add(arrived);
            self.received.bytes = self.received.bytes.wrapping_add(125 * arrived);
            self.sent.time = Time::from_nanos(self.now);
        }

        fn ask(&mut self) {
            self.seq = self.seq.next();
            self.estimator.on_sent(self.seq, self.sent);
        }

        fn answer(&mut self, seq: Seq, queueing: u64) -> Option<Update> {
            self.received.time = Time::from_nanos(self.now.wrapping_add(self.answerer) + queueing);
            self.estimator.on_answer(seq, self.received, Time::from_nanos(self.now + 50_000_000))
        }

        fn exchange(&mut self, packets: u64, lost: u64, queueing: u64) -> Option<Update> {
            self.count(packets, lost);
            self.ask();
            self.answer(self.seq, queueing)
        }
    }

    /// Eq. 8: 900 sent, 897 received, L = 3. Eq. 9: 897 packets of 1 kbit in 1 s are 897 kb/s. Eq. 10: L > theta_H = 1,
    /// W = 897 - 100. Eq. 11: D back to 50.
    #[test]
    fn more_than_theta_high_cuts_below_what_arrived() {
        let mut path = Path::loss();
        path.exchange(900, 0, 0);
        let update = path.exchange(900, 3, 0).unwrap();
        assert_eq!((update.lost, update.received, update.sent), (3, kbit(897), kbit(900)));
        assert_eq!((update.previous, update.estimate, update.step), (kbit(1050), kbit(797), kbit(50)));
        assert!(!update.loss_free);
    }

    /// theta_L = 0 < L = 1 <= theta_H: W = (1,000 + 899) / 2 = 949.5.
    #[test]
    fn up_to_theta_high_goes_half_way() {
        let mut path = Path::loss();
        let update = path.exchange(900, 1, 0).unwrap();
        assert_eq!((update.estimate, update.step), (Rate::from_bits_per_sec(949_500), kbit(50)));
    }

    /// D: 50, 60, 72, 86.4, so W: 1,000, 1,050, 1,110, 1,182.
    #[test]
    fn without_loss_w_climbs_in_growing_steps() {
        let mut path = Path::loss();
        let climbed: Vec<(u64, u64)> = (0..3)
            .filter_map(|_| path.exchange(900, 0, 0))
            .map(|u| (u.estimate.bits_per_sec(), u.step.bits_per_sec()))
            .collect();
        assert_eq!(climbed, [(1_050_000, 60_000), (1_110_000, 72_000), (1_182_000, 86_400)]);
    }

    /// 50 * 1.2^17 = 1,109 kb/s is the first step above D_max = 1 Mb/s.
    #[test]
    fn steps_end_at_d_max() {
        let mut path = Path::loss();
        let steps: Vec<u64> =
            (0..20).filter_map(|_| path.exchange(900, 0, 0)).map(|u| u.step.bits_per_sec()).collect();
        assert!(steps[15] < 1_000_000 && steps[16..].iter().all(|s| *s == 1_000_000), "{steps:?}");
    }

    #[test]
    fn floor_and_ceiling_hold() {
        let mut path = Path::loss();
        assert_eq!(path.exchange(50, 20, 0).unwrap().estimate, kbit(400), "R - beta is below zero");
        path.estimator.settings.ceiling = kbit(420);
        assert_eq!(path.exchange(50, 0, 0).unwrap().estimate, kbit(420));
    }

    /// The second question is lost: the third answer spans 2 s, 1,800 packets and 6 lost, R = 1,794 / 2 = 897.
    #[test]
    fn a_lost_question_makes_the_next_answer_span_both_rounds() {
        let mut path = Path::loss();
        path.count(900, 4);
        path.ask();
        let update = path.exchange(900, 2, 0).unwrap();
        assert_eq!((update.lost, update.received, update.estimate), (6, kbit(897), kbit(797)));
    }

    #[test]
    fn late_repeated_and_unknown_answers_are_ignored() {
        let mut path = Path::loss();
        path.count(900, 0);
        path.ask();
        let late = path.seq;
        assert!(path.exchange(900, 0, 0).is_some());
        let before = path.estimator.estimate();
        assert_eq!(path.answer(late, 0), None, "overtaken");
        assert_eq!(path.answer(path.seq, 0), None, "twice");
        assert_eq!(path.answer(Seq::new(30_000), 0), None, "never asked");
        assert_eq!(path.estimator.estimate(), before);
    }

    #[test]
    fn a_restart_of_either_side_is_a_new_starting_point() {
        let mut path = Path::loss();
        (0..3).for_each(|_| assert!(path.exchange(900, 0, 0).is_some()));
        let before = path.estimator.estimate();
        let good = Some((0, kbit(900)));
        // The other gateway restarts its counts.
        path.received = Counters::default();
        assert_eq!(path.exchange(900, 0, 0), None);
        assert_eq!(path.estimator.estimate(), before);
        assert_eq!(path.exchange(900, 0, 0).map(|u| (u.lost, u.received)), good);
        // This one does, in the middle of a round.
        path.count(900, 0);
        path.ask();
        path.sent = Counters::default();
        assert_eq!(path.exchange(900, 0, 0), None);
        assert_eq!(path.exchange(900, 0, 0).map(|u| (u.lost, u.received)), good);
        // The other's clock is set back by 6 s, and forward.
        path.answerer -= 6 * SECOND;
        assert_eq!(path.exchange(900, 0, 0), None);
        assert_eq!(path.exchange(900, 0, 0).map(|u| (u.lost, u.received)), good);
        path.answerer += 3600 * SECOND;
        assert_eq!(path.exchange(900, 0, 0), None);
        assert_eq!(path.exchange(900, 0, 0).map(|u| (u.lost, u.received)), good);
    }

    /// It was away for 100 s and has counted further than before: only its clock tells.
    #[test]
    fn an_answerer_that_has_overtaken_itself_is_found_out_by_its_clock() {
        let mut path = Path::loss();
        (0..20).for_each(|_| assert!(path.exchange(9, 0, 0).is_some()));
        let before = path.estimator.estimate();
        (0..100).for_each(|_| path.count(900, 0));
        path.received = Counters { packets: 27_000, bytes: 27_000 * 125, time: Time::ZERO };
        path.answerer = (30 * SECOND).wrapping_sub(path.now);
        path.ask();
        assert_eq!(path.answer(path.seq, 0), None);
        assert_eq!(path.estimator.estimate(), before);
    }

    #[test]
    fn counters_and_sequence_numbers_wrap() {
        let mut path = Path::new(Settings::default());
        path.seq = Seq::new(65_530);
        path.sent = Counters { packets: u64::MAX - 1500, bytes: u64::MAX - 200_000, time: Time::ZERO };
        path.received = Counters { packets: u64::MAX - 700, bytes: u64::MAX - 3, time: Time::ZERO };
        path.exchange(0, 0, 0);
        for _ in 0..20 {
            assert_eq!(path.exchange(900, 2, 0).map(|u| (u.lost, u.received)), Some((2, kbit(898))));
        }
        assert_eq!(path.seq, Seq::new(15));
    }

    #[test]
    fn no_time_or_no_traffic_is_no_news() {
        let mut path = Path::loss();
        path.exchange(900, 0, 0);
        let (before, received) = (path.estimator.estimate(), path.received);
        path.count(900, 0);
        path.ask();
        // The other clock stands: dT_r = 0. The next answer spans both.
        assert_eq!(path.estimator.on_answer(path.seq, received, Time::from_nanos(path.now)), None);
        assert_eq!(path.exchange(900, 0, 0).map(|u| u.received), Some(kbit(900)));
        let step = path.exchange(0, 0, 0).map(|u| (u.idle, u.estimate, u.step));
        let held = path.exchange(0, 0, 0).map(|u| (u.idle, u.estimate, u.step));
        assert!(step.is_some_and(|(idle, w, _)| idle && w > before), "{step:?}");
        assert_eq!(step, held, "W and D stay for as long as nothing is sent");
    }

    #[test]
    fn at_most_64_questions_wait() {
        let mut path = Path::loss();
        for _ in 0..1000 {
            path.count(1, 0);
            path.ask();
        }
        assert_eq!(path.estimator.open.len(), MOST_OPEN);
        assert_eq!(path.exchange(1, 0, 0).map(|u| u.lost), Some(0));
    }

    #[test]
    fn silence_cuts_w_by_the_law_delay_only() {
        for (law, cut) in
            [(Law::Loss(Loss::default()), false), (Law::Delay(delay::Settings::default()), true)]
        {
            let mut path = Path::new(Settings { law, ..Settings::default() });
            path.exchange(0, 0, 0);
            for unanswered in 1..=20 {
                path.count(900, 900);
                path.seq = path.seq.next();
                let told = path.estimator.on_sent(path.seq, path.sent);
                assert_eq!(told, cut && unanswered > delay::PATIENCE);
            }
            assert_eq!(path.estimator.estimate(), if cut { kbit(400) } else { kbit(1000) });
        }
    }

    /// What the simulator has not: the other clock goes 40 ppm too fast, questions leave up to 10 ms late, counters and sequence
    /// numbers wrap. 5 Mb/s of which 2, 1.7 and 1.9 are free, 400 s each; W is within 100 kb/s after 5.
    #[test]
    fn the_law_delay_stands_clocks_that_drift_late_questions_and_wraps() {
        let law = Law::Delay(delay::Settings::default());
        let mut path = Path::new(Settings { law, ceiling: kbit(5000), ..Settings::default() });
        path.seq = Seq::new(65_500);
        path.sent = Counters { packets: u64::MAX - 50_000, bytes: u64::MAX - 2_000_000, time: Time::ZERO };
        path.received =
            Counters { packets: u64::MAX - 90_000, bytes: u64::MAX - 7_000_000, time: Time::ZERO };
        let mut rng = Stream::new(1, 0, "er2bc/late");
        let (mut late, mut queued) = (0, 0.0f64);
        for round in 0..1200 {
            let free = [2e6, 1.7e6, 1.9e6][round / 400];
            let w = path.estimator.estimate().bits_per_sec() as f64;
            let later = rng.below(10_000_000);
            let span = (SECOND + later - late) as f64 / 1e9;
            late = later;
            let packets = (w * span / 1e3) as u64;
            queued = (queued + packets as f64 * 1e3 - free * span).max(0.0);
            path.answerer += 40_000;
            path.count(packets, 0);
            path.sent.time = Time::from_nanos(path.now + late);
            path.ask();
            let update = path.answer(path.seq, late + (queued / 5e6 * 1e9) as u64);
            assert_eq!(update.map(|update| update.lost), (round > 0).then_some(0), "round {round}");
            let off = path.estimator.estimate().bits_per_sec() as f64 - free;
            assert!(round % 400 < 5 || off.abs() < 100e3, "round {round}: {off}");
        }
    }

    fn laws() -> [Law; 2] {
        [Law::Loss(Loss::default()), Law::Delay(delay::Settings::default())]
    }

    /// 24 hours: traffic between nothing and twice W on a path that frees 0.8 to 2 Mb/s, a question or its answer lost
    /// in 5 % of the rounds, and ten restarts of the other gateway.
    #[test]
    fn a_day_without_stall_or_runaway() {
        use super::super::shares::{Flow, Settings as SharesSettings, Shares};
        for law in laws() {
            let settings = Settings { law: law.clone(), ceiling: kbit(5000), ..Settings::default() };
            let mut path = Path::new(settings);
            let flow = Flow { need: kbit(400), retransmits: true };
            let mut shares = Shares::new(SharesSettings::default(), &[flow; 5], path.estimator.estimate());
            let mut rng = Stream::new(24, 0, "er2bc/day");
            let (mut free, mut queue, mut offered) = (1500u64, 0.0, 2000u64);
            let (mut updates, mut longest, mut quiet, mut up, mut down) = (0u64, 0u64, 0u64, 0u64, 0u64);
            for round in 0..86_400u64 {
                if rng.chance(0.05) {
                    free = 800 + rng.below(1200);
                }
                if rng.chance(0.02) {
                    offered = [0, 100, 1000, 4000][rng.below(4) as usize];
                }
                if round % 8_640 == 4_321 {
                    path.received = Counters::default();
                }
                // kbit in the round; the queue holds 400 kbit of a 5 Mb/s path.
                let sent = offered.min(path.estimator.estimate().bits_per_sec() / 1000);
                queue = f64::max(queue + sent as f64 - free as f64, 0.0);
                let lost = f64::max(queue - 400.0, 0.0) as u64;
                queue = queue.min(400.0);
                path.count(sent, lost.min(sent));
                path.ask();
                let answered = !rng.chance(0.05);
                let update = if answered { path.answer(path.seq, (queue * 200_000.0) as u64) } else { None };
                quiet = if update.is_some() { 0 } else { quiet + 1 };
                longest = longest.max(quiet);
                if let Some(update) = update {
                    updates += 1;
                    up += u64::from(update.estimate > update.previous);
                    down += u64::from(update.estimate < update.previous);
                    let plan = shares.on_update(&update);
                    let sum: u64 = plan.classes.iter().map(|c| c.rate.bits_per_sec()).sum();
                    assert!(sum <= update.estimate.bits_per_sec());
                    assert!(plan.classes.iter().all(|c| c.rate > Rate::ZERO));
                }
                let w = path.estimator.estimate();
                assert!(kbit(400) <= w && w <= kbit(5000), "{law:?} {w}");
            }
            assert!(updates > 80_000 && longest < 10, "{updates} updates, at most {longest} rounds without");
            assert!(up > 5_000 && down > 5_000, "{law:?} moved up {up} and down {down} times");
        }
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Sent(u16, u64, u64, u64),
        Answer(u16, u64, u64, u64, u64),
    }

    fn any_step() -> impl Strategy<Value = Step> {
        let number = || prop_oneof![0u64..5000, any::<u64>()];
        prop_oneof![
            (0u16..6, number(), number(), number()).prop_map(|(s, p, b, t)| Step::Sent(s, p, b, t)),
            (0u16..6, number(), number(), number(), number())
                .prop_map(|(s, p, b, t, n)| Step::Answer(s, p, b, t, n)),
        ]
    }

    proptest! {
        #[test]
        fn any_history_keeps_w_within_its_bounds(steps in proptest::collection::vec(any_step(), 0..200)) {
            for law in laws() {
                let settings = Settings { law, ceiling: kbit(5000), ..Settings::default() };
                let mut estimator = Estimator::new(settings);
                estimator.set_goals(&[kbit(400), kbit(800)]);
                let mut again = estimator.clone();
                for step in &steps {
                    let apply = |estimator: &mut Estimator| match *step {
                        Step::Sent(seq, packets, bytes, time) => {
                            let time = Time::from_nanos(time);
                            estimator.on_sent(Seq::new(seq), Counters { packets, bytes, time });
                            None
                        }
                        Step::Answer(seq, packets, bytes, time, now) => {
                            let time = Time::from_nanos(time);
                            let counters = Counters { packets, bytes, time };
                            estimator.on_answer(Seq::new(seq), counters, Time::from_nanos(now))
                        }
                    };
                    let update = apply(&mut estimator);
                    prop_assert_eq!(update, apply(&mut again));
                    let w = estimator.estimate();
                    prop_assert!(kbit(400) <= w && w <= kbit(5000));
                }
            }
        }
    }
}
