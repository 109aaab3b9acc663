//! PIE: keeps the queueing delay at a reference by a drop probability that a proportional-integral controller moves.
//!
//! RFC 8033: the pseudo-code of its appendix A, with the options of appendix B that need no measurement of the rate:
//! ECN, the cap of the adjustment, derandomisation. The delay is that of the last packet that left, from its time of
//! arrival.
//!
//! Where the RFC leaves room: the delay is zero once the queue has run empty, as in Linux, because no packet would say
//! so; PIE is always active (section 5.3 makes switching it off optional); the probability does not depend on a
//! packet's size. Section 4.2 decays the probability while the delay is zero, as do Linux and ns-3, the appendix while it is below
//! half of the reference: `decay-when-low` says which.

use std::collections::VecDeque;

use super::fifo::DropTail;
use super::red::ECN;
use super::{Admission, Backlog, Discipline, Pkt, Qdisc, QdiscDef, Site, Verdict};
use crate::params::{Key, Kind, Params, keys};
use crate::rng::Stream;
use crate::time::{Span, Time};
use crate::units::{Bytes, Dimension};

/// The registry entry.
pub static DEF: QdiscDef = QdiscDef {
    name: "pie",
    about: "PIE: a controller moves the drop probability so that packets wait for a reference delay",
    source: "RFC 8033",
    keys: KEYS,
    check,
    build: |params, site| Discipline::Ordered(Box::new(Pie::new(params, site))),
};

/// Below it a long silence would take too many updates to catch up with.
const LEAST_UPDATE: Span = Span::from_micros(100);

/// Checks what every discipline with PIE inside needs.
pub(super) fn check(params: &Params) -> Result<(), (&'static str, String)> {
    let (target, update) = (params.span("target"), params.span("update"));
    if target.is_zero() {
        return Err(("target", "must be longer than 0s".to_owned()));
    }
    if update < LEAST_UPDATE {
        return Err(("update", format!("\"{update}\" is shorter than {LEAST_UPDATE}")));
    }
    Ok(())
}

/// `limit` first, then those of [`Settings`].
pub(super) const KEYS: &[Key] = keys! {
    /// Most that may wait, not counting the packet in transmission
    "limit": Kind::Limit, default "1000pkt", from "Linux tc-pie(8)";
    /// Reference delay, QDELAY_REF
    "target": Kind::Quantity(Dimension::Span), default "15ms", from "RFC 8033 section 4.2";
    /// Time between two changes of the drop probability, T_UPDATE
    "update": Kind::Quantity(Dimension::Span), default "15ms", from "RFC 8033 section 4.2";
    /// Time for which a burst after quiet is let through, MAX_BURST
    "burst": Kind::Quantity(Dimension::Span), default "150ms", from "RFC 8033 section 4.4";
    /// Change of the probability for a second of delay above the reference
    "alpha": Kind::Float { min: 0.0, max: 32.0 }, default "0.125", from "RFC 8033 section 4.2";
    /// Change of the probability for a second by which the delay has grown
    "beta": Kind::Float { min: 0.0, max: 32.0 }, default "1.25", from "RFC 8033 section 4.2";
    /// Scale the change down while the probability is small; off: the same change at every probability
    "auto-tune": Kind::Bool, default "true", from "RFC 8033 section 4.2";
    /// Let the probability decay while the delay is below half of the reference (RFC 8033 appendix A); off: while it is
    /// zero
    "decay-when-low": Kind::Bool, default "false", from "RFC 8033 section 4.2, Linux";
    ..ECN;
    /// Drop probability from which packets of ECN-capable flows are dropped too, mark_ecnth
    "mark-limit": Kind::Float { min: 0.0, max: 1.0 }, default "0.1", from "RFC 8033 section 5.1";
    /// Space the drops: none too close, none too far from the last
    "derandomize": Kind::Bool, default "false", from "RFC 8033 section 5.4, optional";
    /// Typical packet: up to two of them may always wait, MEAN_PKTSIZE
    "mean-packet": Kind::Quantity(Dimension::Bytes), default "1500B", from "Linux: the MTU";
};

/// Adjustments are divided by the first number where the probability is below the second. Section 4.2.
const STEPS: [(f64, f64); 6] =
    [(2048.0, 1e-6), (512.0, 1e-5), (128.0, 1e-4), (32.0, 1e-3), (8.0, 1e-2), (2.0, 1e-1)];
/// While the probability is this or more, it grows by at most `GREATEST_STEP` at a time. Section 5.5.
const CAPPED_FROM: f64 = 0.1;
const GREATEST_STEP: f64 = 0.02;
/// Factor of the probability at each update while there is no congestion. Section 4.2.
const DECAY: f64 = 0.98;
/// While the delay was low, smaller probabilities than this drop nothing. Section 4.1.
const LEAST_CERTAIN: f64 = 0.2;
/// Derandomisation: bounds of the summed probability below which nothing, and from which the packet is dropped.
/// Section 5.4.
const ACCUMULATED: (f64, f64) = (0.85, 8.5);

/// What changes at each update; delays in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
struct State {
    /// Drop probability, in [0, 1].
    probability: f64,
    /// Delay of the last packet that left; zero when the queue is empty.
    delay: f64,
    /// The same at the last update.
    old_delay: f64,
    /// How long nothing is dropped yet.
    burst: Span,
}

/// The constants of one instance.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    /// In seconds.
    target: f64,
    update: Span,
    burst: Span,
    alpha: f64,
    beta: f64,
    auto_tune: bool,
    decay_when_low: bool,
    ecn: bool,
    mark_limit: f64,
    derandomize: bool,
    mean_packet: Bytes,
}

impl State {
    /// `calculate_drop_prob`.
    fn updated(self, settings: &Settings) -> Self {
        let mut step =
            settings.alpha * (self.delay - settings.target) + settings.beta * (self.delay - self.old_delay);
        if settings.auto_tune
            && let Some((divisor, _)) = STEPS.iter().find(|(_, below)| self.probability < *below)
        {
            step /= divisor;
        }
        if self.probability >= CAPPED_FROM {
            step = step.min(GREATEST_STEP);
        }
        let mut probability = self.probability + step;
        let decays = match settings.decay_when_low {
            true => self.is_low(settings),
            false => self.delay == 0.0 && self.old_delay == 0.0,
        };
        if decays {
            probability *= DECAY;
        }
        Self {
            probability: probability.clamp(0.0, 1.0),
            old_delay: self.delay,
            burst: self.burst.saturating_sub(settings.update),
            ..self
        }
    }

    /// The delay is, and was at the last update, below half of the reference.
    fn is_low(&self, settings: &Settings) -> bool {
        self.delay < settings.target / 2.0 && self.old_delay < settings.target / 2.0
    }
}

impl Settings {
    /// The values of [`KEYS`].
    pub(super) fn new(params: &Params) -> Self {
        Self {
            target: params.span("target").as_secs_f64(),
            update: params.span("update"),
            burst: params.span("burst"),
            alpha: params.float("alpha"),
            beta: params.float("beta"),
            auto_tune: params.bool("auto-tune"),
            decay_when_low: params.bool("decay-when-low"),
            ecn: params.bool("ecn"),
            mark_limit: params.float("mark-limit"),
            derandomize: params.bool("derandomize"),
            mean_packet: params.bytes("mean-packet"),
        }
    }
}

/// PIE's memory of one queue; FQ-PIE has one for each of its queues.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Control {
    state: State,
    next_update: Time,
    /// Probabilities summed since the last drop.
    accumulated: f64,
}

impl Control {
    /// That of a queue which has been empty since the start.
    pub(super) fn new(settings: &Settings) -> Self {
        Self {
            state: State { probability: 0.0, delay: 0.0, old_delay: 0.0, burst: Span::ZERO },
            next_update: Time::ZERO + settings.update,
            accumulated: 0.0,
        }
    }

    /// Does what a timer would have done by `now`. Without packets the state soon stands still, and the rest of a long
    /// silence needs no steps.
    pub(super) fn catch_up(&mut self, now: Time, settings: &Settings) {
        while self.next_update <= now {
            let before = self.state;
            self.state = before.updated(settings);
            self.next_update += settings.update;
            if (State { burst: before.burst, ..self.state }) == before && self.next_update <= now {
                let behind = now.since(self.next_update).as_nanos() / settings.update.as_nanos();
                let silence = settings.update * (behind + 1);
                self.state.burst = self.state.burst.saturating_sub(silence);
                self.next_update += silence;
            }
        }
    }

    /// Judges `pkt`, for which there is room behind the `bytes` that wait.
    pub(super) fn judge(
        &mut self,
        pkt: &Pkt,
        bytes: u64,
        settings: &Settings,
        stream: &mut Stream,
    ) -> Verdict {
        if self.state.probability == 0.0 && self.state.is_low(settings) {
            self.state.burst = settings.burst;
        }
        if self.state.burst.is_zero() && self.drops_early(bytes, settings, stream) {
            self.accumulated = 0.0;
            let markable = settings.ecn && pkt.ect && self.state.probability < settings.mark_limit;
            return if markable { Verdict::Mark } else { Verdict::Drop };
        }
        Verdict::Accept
    }

    /// There was no room for a packet.
    pub(super) const fn on_overflow(&mut self) {
        self.accumulated = 0.0;
    }

    /// A packet leaves that has waited for `wait`, the last one of the queue or not.
    pub(super) fn on_departure(&mut self, wait: Span, is_last: bool) {
        self.state.delay = if is_last { 0.0 } else { wait.as_secs_f64() };
    }

    /// `drop_early`.
    fn drops_early(&mut self, bytes: u64, settings: &Settings, stream: &mut Stream) -> bool {
        let State { probability, old_delay, .. } = self.state;
        if (old_delay < settings.target / 2.0 && probability < LEAST_CERTAIN)
            || bytes <= settings.mean_packet.get().saturating_mul(2)
        {
            return false;
        }
        if settings.derandomize {
            if probability == 0.0 {
                self.accumulated = 0.0;
            }
            self.accumulated += probability;
            if self.accumulated < ACCUMULATED.0 {
                return false;
            }
            if self.accumulated >= ACCUMULATED.1 {
                return true;
            }
        }
        stream.chance(probability)
    }
}

/// A first-in-first-out queue ruled by PIE.
#[derive(Clone, Debug)]
pub struct Pie {
    settings: Settings,
    tail: DropTail,
    control: Control,
    queue: VecDeque<(Pkt, Time)>,
    bytes: u64,
    stream: Stream,
}

impl Pie {
    /// PIE for one port; `params` are those of [`DEF`].
    pub fn new(params: &Params, site: Site) -> Self {
        let settings = Settings::new(params);
        Self {
            tail: DropTail { limit: params.limit("limit") },
            control: Control::new(&settings),
            settings,
            queue: VecDeque::new(),
            bytes: 0,
            stream: site.stream,
        }
    }

    /// The drop probability.
    pub const fn probability(&self) -> f64 {
        self.control.state.probability
    }

    fn judge(&mut self, now: Time, pkt: &Pkt) -> Verdict {
        if self.tail.admit(now, self.backlog(), Span::ZERO, pkt) == Verdict::Drop {
            self.control.on_overflow();
            return Verdict::Drop;
        }
        self.control.judge(pkt, self.bytes, &self.settings, &mut self.stream)
    }
}

impl Qdisc for Pie {
    fn enqueue(&mut self, now: Time, pkt: Pkt, _dropped: &mut Vec<Pkt>) -> Verdict {
        self.control.catch_up(now, &self.settings);
        let verdict = self.judge(now, &pkt);
        if verdict != Verdict::Drop {
            self.bytes += u64::from(pkt.len);
            self.queue.push_back((pkt, now));
        }
        verdict
    }

    fn dequeue(&mut self, now: Time, _dropped: &mut Vec<Pkt>) -> Option<Pkt> {
        self.control.catch_up(now, &self.settings);
        let (pkt, arrived) = self.queue.pop_front()?;
        self.bytes -= u64::from(pkt.len);
        self.control.on_departure(now.since(arrived), self.queue.is_empty());
        Some(pkt)
    }

    fn next_ready(&self, now: Time) -> Option<Time> {
        (!self.queue.is_empty()).then_some(now)
    }

    fn backlog(&self) -> Backlog {
        Backlog { packets: self.queue.len() as u32, bytes: self.bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::FlowId;
    use crate::params::{Limit, Value};
    use crate::units::Rate;

    fn pie(set: &[(&'static str, Value)]) -> Pie {
        let mut params = Params::defaults(KEYS);
        for (key, value) in set {
            params.set(key, value.clone());
        }
        let site = Site::new(Rate::from_bits_per_sec(12_000_000), Stream::new(1, 0, "pie"));
        Pie::new(&params, site)
    }

    fn pkt(ect: bool) -> Pkt {
        Pkt { key: 0, len: 1_500, flow: FlowId(0), dscp: 0, ect, ce: false, reverse: false }
    }

    fn at(ms: u64) -> Time {
        Time::ZERO + Span::from_millis(ms)
    }

    fn close(a: f64, b: f64) {
        assert!((a - b).abs() <= 1e-12 * b.abs().max(1e-9), "{a} is not {b}");
    }

    /// The probability after an update of `probability` with these delays in ms.
    fn update(probability: f64, delay: f64, old_delay: f64) -> f64 {
        update_with(&[], probability, delay, old_delay)
    }

    /// The same with these keys set.
    fn update_with(set: &[(&'static str, Value)], probability: f64, delay: f64, old_delay: f64) -> f64 {
        let settings = pie(set).settings;
        let state = State { probability, delay: delay / 1e3, old_delay: old_delay / 1e3, burst: Span::ZERO };
        state.updated(&settings).probability
    }

    #[test]
    fn updates_follow_the_control_law() {
        // 0.125 (0.035 - 0.015) + 1.25 (0.035 - 0.025) = 0.0025 + 0.0125 = 0.015, whole from 0.1 on.
        close(update(0.1, 35.0, 25.0), 0.115);
        // The same, divided by the table of section 4.2.
        for (probability, divisor) in [
            (0.0, 2048.0),
            (5e-6, 512.0),
            (5e-5, 128.0),
            (5e-4, 32.0),
            (5e-3, 8.0),
            (0.05, 2.0),
            (0.099, 2.0),
        ] {
            close(update(probability, 35.0, 25.0), probability + 0.015 / divisor);
        }
        // The bounds belong to the upper range: at exactly 0.01 the divisor is 2.
        close(update(0.01, 35.0, 25.0), 0.01 + 0.0075);
        // Falling delay above the reference: 0.125 x 0.01 - 1.25 x 0.01 = -0.01125.
        close(update(0.3, 25.0, 35.0), 0.3 - 0.01125);
    }

    /// The law of the test above, without the table of section 4.2.
    #[test]
    fn without_auto_tune_small_probabilities_move_as_fast() {
        let whole = |probability, delay, old_delay| {
            update_with(&[("auto-tune", Value::Bool(false))], probability, delay, old_delay)
        };
        for probability in [0.0, 5e-6, 5e-4, 0.01, 0.05, 0.099, 0.1] {
            close(whole(probability, 35.0, 25.0), probability + 0.015);
        }
        // 0.125 x 0.01 - 1.25 x 0.01 = -0.01125, for small ones too.
        close(whole(0.05, 25.0, 35.0), 0.05 - 0.01125);
        // The cap still begins at 0.1: 0.135625 below it, 0.02 from it on.
        close(whole(0.09, 100.0, 0.0), 0.09 + 0.135_625);
        close(whole(0.1, 100.0, 0.0), 0.12);
    }

    #[test]
    fn growth_is_capped_and_the_probability_bounded() {
        // 0.125 x 0.085 + 1.25 x 0.1 = 0.135625.
        close(update(0.1, 100.0, 0.0), 0.12);
        close(update(0.99, 100.0, 0.0), 1.0);
        // Below 0.1 there is no cap: half of it.
        close(update(0.09, 100.0, 0.0), 0.09 + 0.067_812_5);
        // A fall is not capped: 0.125 x (-0.015) - 1.25 x 0.1 = -0.126875.
        close(update(0.5, 0.0, 100.0), 0.5 - 0.126_875);
        close(update(0.1, 0.0, 100.0), 0.0);
    }

    #[test]
    fn without_congestion_the_probability_decays() {
        // 0.125 x (-0.015) = -0.001875, then 0.98.
        close(update(0.5, 0.0, 0.0), 0.498_125 * 0.98);
        close(update(0.5, 7.0, 7.0), 0.5 - 0.001);
        // Appendix A: 7 ms is below half of 15 ms, 8 ms is not.
        let low =
            |delay, old_delay| update_with(&[("decay-when-low", Value::Bool(true))], 0.5, delay, old_delay);
        close(low(0.0, 0.0), 0.498_125 * 0.98);
        close(low(7.0, 7.0), (0.5 - 0.001) * 0.98);
        close(low(7.0, 8.0), 0.5 - 0.001 - 0.001_25);
    }

    #[test]
    fn delays_are_those_of_packets_that_leave() {
        let mut queue = pie(&[]);
        for ms in [1, 2, 5] {
            queue.enqueue(at(ms), pkt(false), &mut Vec::new());
        }
        queue.dequeue(at(4), &mut Vec::new());
        close(queue.control.state.delay, 0.003);
        queue.dequeue(at(9), &mut Vec::new());
        close(queue.control.state.delay, 0.007);
        // The last one leaves an empty queue.
        assert!(queue.dequeue(at(30), &mut Vec::new()).is_some());
        assert_eq!(queue.control.state.delay, 0.0);
        assert_eq!(queue.dequeue(at(31), &mut Vec::new()), None);
        assert_eq!(queue.backlog(), Backlog::default());
    }

    /// In steps of the shortest interval this would take ten thousand million of them.
    #[test]
    fn a_silence_of_days_takes_no_steps_and_its_time_off_a_burst() {
        let mut queue =
            pie(&[("update", Value::Span(LEAST_UPDATE)), ("burst", Value::Span(Span::from_secs(1 << 24)))]);
        queue.enqueue(at(0), pkt(false), &mut Vec::new());
        let days = Span::from_secs(1_000_000);
        queue.enqueue(Time::ZERO + days, pkt(false), &mut Vec::new());
        assert_eq!(queue.control.state.burst, Span::from_secs(1 << 24));
        // A packet that waited prevents a new burst allowance.
        queue.control.state.delay = 1.0;
        queue.control.catch_up(Time::ZERO + days * 2, &queue.settings);
        assert_eq!(queue.control.state.burst, Span::from_secs(1 << 24).saturating_sub(days));
    }

    #[test]
    fn a_burst_after_quiet_passes() {
        let mut queue = pie(&[]);
        queue.enqueue(at(0), pkt(false), &mut Vec::new());
        assert_eq!(queue.control.state.burst, Span::from_millis(150));
        for _ in 0..20 {
            queue.enqueue(at(1), pkt(false), &mut Vec::new());
        }
        // A packet that waited 10 ms is above half of the reference: the allowance runs out in ten updates.
        queue.dequeue(at(10), &mut Vec::new());
        queue.control.state.probability = 1.0;
        assert_eq!(queue.enqueue(at(149), pkt(false), &mut Vec::new()), Verdict::Accept);
        assert_eq!(queue.control.state.burst, Span::from_millis(15));
        queue.control.state.probability = 1.0;
        assert_eq!(queue.enqueue(at(150), pkt(false), &mut Vec::new()), Verdict::Drop);
        assert!(queue.control.state.burst.is_zero());
    }

    /// A queue of `packets` whose state wants drops.
    fn congested(packets: u32, set: &[(&'static str, Value)], probability: f64) -> Pie {
        let mut queue = pie(set);
        for _ in 0..packets {
            queue.enqueue(Time::ZERO, pkt(false), &mut Vec::new());
        }
        queue.control.state = State { probability, delay: 0.02, old_delay: 0.02, burst: Span::ZERO };
        queue
    }

    fn drops_early(queue: &mut Pie) -> bool {
        queue.control.drops_early(queue.bytes, &queue.settings, &mut queue.stream)
    }

    #[test]
    fn safeguards_keep_the_link_busy() {
        // Two packets wait: nothing is dropped, whatever the probability.
        assert_eq!(congested(2, &[], 1.0).enqueue(at(1), pkt(false), &mut Vec::new()), Verdict::Accept);
        assert_eq!(congested(3, &[], 1.0).enqueue(at(1), pkt(false), &mut Vec::new()), Verdict::Drop);
        // The delay was low and the probability is below 0.2.
        let mut queue = congested(10, &[], 0.199);
        queue.control.state.old_delay = 0.007;
        assert!((0..1_000).all(|_| !drops_early(&mut queue)));
        queue.control.state.probability = 0.2;
        assert!((0..1_000).any(|_| drops_early(&mut queue)));
    }

    #[test]
    fn drops_have_the_probability() {
        let mut queue = congested(10, &[], 0.05);
        let drops = (0..100_000).filter(|_| drops_early(&mut queue)).count();
        // Standard deviation 69.
        assert!((4_700..=5_300).contains(&drops), "{drops}");
    }

    #[test]
    fn derandomized_drops_keep_their_distance() {
        let mut queue =
            congested(10, &[("derandomize", Value::Bool(true)), ("ecn", Value::Bool(true))], 0.05);
        let (mut gaps, mut since) = (Vec::new(), 0);
        for _ in 0..100_000 {
            since += 1;
            // A mark counts as a drop and leaves the queue as it is but for one packet.
            if queue.enqueue(at(1), pkt(true), &mut Vec::new()) == Verdict::Mark {
                gaps.push(since);
                since = 0;
            }
            queue.queue.pop_back();
            queue.bytes -= 1_500;
        }
        // The sum of 0.05 reaches 0.85 with the 17th packet and 8.5 with the 170th; 20 of them to wait in between.
        let (least, most) = (gaps.iter().min().expect("gaps"), gaps.iter().max().expect("gaps"));
        assert!((17..=18).contains(least) && *most <= 171, "{least} to {most}");
        let mean = f64::from(gaps.iter().sum::<i32>()) / gaps.len() as f64;
        assert!((mean - 36.0).abs() < 2.0, "{mean}");
    }

    #[test]
    fn marks_stand_for_drops_below_the_limit() {
        let ecn = [("ecn", Value::Bool(true))];
        let verdicts = |probability: f64, ect: bool| {
            let mut seen = Vec::new();
            for _ in 0..1_000 {
                let mut queue = congested(3, &ecn, probability);
                queue.stream = Stream::new(seen.len() as u64, 0, "pie");
                seen.push(queue.enqueue(at(1), pkt(ect), &mut Vec::new()));
            }
            [Verdict::Mark, Verdict::Drop].map(|kind| seen.contains(&kind))
        };
        assert_eq!(verdicts(0.099, true), [true, false]);
        assert_eq!(verdicts(0.1, true), [false, true]);
        assert_eq!(verdicts(0.099, false), [false, true]);
    }

    #[test]
    fn the_limit_comes_first() {
        let mut queue = congested(3, &[("limit", Value::Limit(Limit::Packets(3)))], 0.0);
        queue.control.accumulated = 0.5;
        assert_eq!(queue.enqueue(at(1), pkt(true), &mut Vec::new()), Verdict::Drop);
        assert_eq!(queue.control.accumulated, 0.0);
        let mut none = pie(&[("limit", Value::Limit(Limit::Packets(0)))]);
        assert_eq!(none.enqueue(Time::ZERO, pkt(false), &mut Vec::new()), Verdict::Drop);
    }

    #[test]
    fn late_updates_are_those_of_a_timer() {
        let mut timed = congested(5, &[], 0.3);
        let mut lazy = timed.clone();
        for ms in (15..=3_600_000).step_by(15) {
            timed.control.catch_up(at(ms), &timed.settings);
        }
        // A packet that never leaves keeps its delay; the probability rises to 1 and stands.
        lazy.control.catch_up(at(3_600_000), &lazy.settings);
        assert_eq!(lazy.control, timed.control);
        assert_eq!(lazy.control.state.probability, 1.0);
        // And down again once the queue is empty.
        for queue in [&mut timed, &mut lazy] {
            while queue.dequeue(at(3_600_001), &mut Vec::new()).is_some() {}
        }
        for ms in (3_600_001..=7_200_001).step_by(5) {
            timed.control.catch_up(at(ms), &timed.settings);
        }
        lazy.control.catch_up(at(7_200_001), &lazy.settings);
        assert_eq!(lazy.control, timed.control);
        assert_eq!(lazy.control.state.probability, 0.0);
    }
}
