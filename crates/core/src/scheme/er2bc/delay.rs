//! The law `delay`: the available bandwidth from the trend of the one-way delay, at no extra byte.
//!
//! A question waits in the same queue as the data before it. With S and R the rates of the aggregate at the sender and
//! the receiver between two questions, X the cross traffic and C the capacity of a first-in first-out bottleneck that
//! stays busy, the aggregate gets R = C S / (S + X). So
//!
//! | | |
//! |---|---|
//! | D1 | rho(t) = S / R = (S + X) / C; without loss rho - 1 = dq / dT_s, the slope of the queueing delay q |
//! | D2 | A(t) = C - X = S - C (rho - 1): the bandwidth that is free for us; after losses, a third of the way to R, if R is above |
//! | D3 | 1/C = sum(dS d rho) / sum(dS^2) over pairs of successive busy rounds, forgotten at 3 % a pair, with a prior |
//! | D4 | q(t) = T_r - T_s - min(T_r - T_s over two windows): offset cancels, drift counts for two windows only |
//! | D5 | q^(t) = q + (rho - 1) (age of the question when its answer is here): the queue that the next rate meets |
//! | D6 | W(t) = A' + clamp(C (q* - q^) / T_c, -drain, +shoot): to the target queue q* in one round if it is near; q* at most half the queue at which packets were lost |
//! | D7 | A' = A when they differ by more than `jump`, else half way from A'(t-1) to A |
//! | D8 | the queue is empty: nothing but "at least S", or A if more, is known; W(t) = that + shoot if S used W, else W stays; W(t-1) times `start` until the first queue or loss is seen |
//! | D9 | with goals g_k: W(t) = max(W(t), min(g_k (1 + margin), A' + lift)) for the largest g_k <= A' / (1 - reach); once q^ is beyond the reserve, until it has drained to 1.25 q*, or A fell by a jump, max(D6, min(0.98 A', g_k (1 + margin))) for the largest g_k <= 0.98 A'; D6 alone when the queue is near one at which packets were lost |
//! | D10 | W(t) = 0.85 W(t-1) for each question beyond three that stay without answer |
//! | D11 | while a queue is emptied to renew min(T_r - T_s), a round that is not busy takes nothing from the last A that was measured; W goes back there when the queue is empty |
//!
//! D2 with a wrong guess C' of C converges still: the error shrinks by the factor |1 - C'/C| a round, for any C' < 2 C;
//! D3 begins at 1.5 R, so that it holds, and a bottleneck many times R is approached in smaller steps.
//! The queue q* is the sensor for bandwidth that comes free: a queue that drains within the round tells how much.
//! D9 spends a bounded queue, once, to serve a flow that A falls short of by a few percent: W rests where a flow is
//! served in full, above A at most until the queue reaches its reserve.
//!
//! Where it has limits: drift of the two clocks shifts q by drift times the window (50 ppm over 60 s: 3 ms). D9 is
//! made for a first-in first-out queue that we share; where a bottleneck gives us a queue of our own it only waits. A
//! path that polices without a queue shows no delay: there loss above `random_loss` gives W = R. Loss at most that with
//! an empty queue is taken for radio noise and ignored.

use crate::time::{Span, Time};
use crate::units::Rate;

/// Settings of the law `delay`.
#[derive(Clone, PartialEq, Debug)]
pub struct Settings {
    /// q*: queue to keep at the bottleneck. It senses bandwidth that comes free; zero keeps the queue empty.
    pub target: Span,
    /// Delay below this counts as an empty queue; it is ordinary interleaving of packets.
    pub empty: Span,
    /// Most that W goes above A to fill the queue, and most that it climbs in a round.
    pub shoot: Rate,
    /// Most that W goes below A to drain the queue.
    pub drain: Rate,
    /// A new A that differs by more than this is taken at once, else half.
    pub jump: Rate,
    /// Factor by which W climbs until the first queue or loss is seen.
    pub start: f64,
    /// Half the time over which the least one-way delay counts. An emptied queue is asked for when none was seen so
    /// long.
    pub window: Span,
    /// Share of lost packets that a path loses without being full.
    pub random_loss: f64,
    /// A goal is taken when A is at most this share below it...
    pub reach: f64,
    /// ... as long as the queue is below this, and below three fifths of the queue at which packets were lost.
    pub reserve: Span,
    /// Most that W rests above A for a goal.
    pub lift: Rate,
    /// Share that W rests above a goal, so that packets that come in lumps do not make a flow fall short.
    pub margin: f64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            target: Span::from_millis(30),
            empty: Span::from_millis(8),
            shoot: Rate::from_bits_per_sec(60_000),
            drain: Rate::from_bits_per_sec(45_000),
            jump: Rate::from_bits_per_sec(60_000),
            start: 1.5,
            window: Span::from_secs(60),
            random_loss: 0.02,
            reach: 0.03,
            reserve: Span::from_millis(90),
            lift: Rate::from_bits_per_sec(80_000),
            margin: 0.03,
        }
    }
}

/// One round as both ends saw it, for a law.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Round {
    /// S, bit/s.
    pub sent: f64,
    /// R(t-1), bit/s.
    pub received: f64,
    /// L(t).
    pub lost: i64,
    /// T_r / T_s: the length of the round at the receiver over that at the sender.
    pub stretch: f64,
    /// Packets sent.
    pub packets: u64,
    /// Seconds between the two questions.
    pub span: f64,
    /// T_r - T_s of the later probe in seconds: one-way delay plus an unknown constant.
    pub one_way: f64,
    /// T_s of the later question.
    pub asked: Time,
    /// Seconds between the later question and its answer.
    pub answered_after: f64,
}

/// State of the law.
#[derive(Clone, Debug)]
pub(super) struct Delay {
    settings: Settings,
    cycle: f64,
    needs: Vec<f64>,
    least: Least,
    last: Option<Last>,
    /// A'(t-1).
    free: Option<f64>,
    slope: Slope,
    /// No queue and no loss was seen yet.
    starting: bool,
    /// When the queue was last empty.
    emptied: Option<Time>,
    /// A of the last busy round, while an emptied queue is asked for.
    resume: Option<f64>,
    queueing: f64,
    proven: f64,
    /// Least queue at which packets were lost.
    full: f64,
    /// The reserve is used up, and the queue has not drained to its target since.
    spent: bool,
}

#[derive(Clone, Copy, Debug)]
struct Last {
    sent: f64,
    rho: f64,
    /// The queue stood at both ends of the round.
    busy: bool,
    standing: bool,
}

impl Delay {
    pub(super) fn new(settings: Settings, cycle: Span) -> Self {
        let least = Least::new(settings.window);
        Self {
            settings,
            cycle: cycle.as_secs_f64().max(1e-3),
            needs: Vec::new(),
            least,
            last: None,
            free: None,
            slope: Slope::default(),
            starting: true,
            emptied: None,
            resume: None,
            queueing: 0.0,
            proven: 0.0,
            full: f64::INFINITY,
            spent: false,
        }
    }

    /// The bandwidth that the last round has shown to be free.
    pub(super) const fn proven(&self) -> f64 {
        self.proven
    }

    pub(super) fn set_goals(&mut self, needs: &[Rate]) {
        self.needs = needs.iter().map(|need| need.bits_per_sec() as f64).collect();
        self.needs.sort_by(f64::total_cmp);
    }

    /// Questions stay without answers: the path is full or gone.
    pub(super) fn silence(&mut self, estimate: f64) -> f64 {
        self.free = None;
        self.proven = estimate * SILENCE;
        self.proven
    }

    /// Clocks or counters restarted: old values do not compare with new ones.
    pub(super) fn forget(&mut self) {
        self.least = Least::new(self.settings.window);
        (self.last, self.free, self.emptied, self.resume) = (None, None, None, None);
        self.queueing = 0.0;
    }

    /// Queueing at the last probe.
    pub(super) fn queueing(&self) -> Span {
        Span::from_secs_f64(self.queueing)
    }

    /// W(t) from W(t-1).
    pub(super) fn next(&mut self, estimate: f64, round: &Round) -> f64 {
        let least = self.least.with(round.one_way, round.asked);
        let queue = round.one_way - least;
        self.queueing = queue;
        let standing = queue > self.settings.empty.as_secs_f64();
        let last = self.last;
        let was_standing = last.is_some_and(|last| last.standing);
        // A queue that was merely short does not renew the least delay, or the error would add up window by window.
        let quarter = self.settings.empty.as_secs_f64() / 4.0;
        if queue <= quarter || !(standing || was_standing) || self.emptied.is_none() {
            self.emptied = Some(round.asked);
        }
        let stale = self.emptied.is_some_and(|at| round.asked.since(at) > self.settings.window);
        let resume = self.resume;
        if !stale {
            self.resume = None;
        }
        let lost = round.lost.max(0) as f64 / round.packets.max(1) as f64;
        let rho = if round.received > 0.0 { round.sent / round.received } else { f64::INFINITY };
        let now = Last { sent: round.sent, rho, busy: standing && was_standing, standing };
        self.last = Some(now);
        if round.packets == 0 {
            return estimate;
        }
        if !rho.is_finite() {
            self.free = None;
            return estimate / 2.0;
        }
        // Forgotten in half an hour: it may have been another's burst.
        self.full *= 1.0005;
        if lost > 0.0 && standing {
            self.full = self.full.min(queue);
        }
        if !standing && !was_standing {
            self.free = None;
            if lost > self.settings.random_loss {
                self.starting = false;
                self.proven = round.received;
                return round.received;
            }
            let from = round.sent.max(resume.unwrap_or(0.0));
            self.proven = from;
            return self.climb(estimate, round.sent, from);
        }
        self.starting = false;
        let capacity = self.slope.capacity(1.5 * round.received).max(round.received);
        if let Some(last) = last.filter(|last| last.busy && now.busy) {
            self.slope.learn(now.sent - last.sent, now.rho - last.rho, capacity);
        }
        let mut measured = (round.sent - capacity * (rho - 1.0)).max(0.0);
        if lost > 0.0 {
            // A packet more or less of ours among those lost counts C / S times in D2; what arrived bounds A from above.
            measured += (round.received - measured).max(0.0) * LOSSY;
        }
        if !standing {
            // The queue ran empty: more is free than was measured.
            self.free = None;
            self.proven = measured;
            if stale {
                let known = measured.max(round.sent).max(resume.unwrap_or(0.0));
                return known - self.settings.drain.bits_per_sec() as f64;
            }
            return self.climb(estimate, round.sent, measured.max(round.sent));
        }
        if stale && now.busy {
            self.resume = Some(measured);
        } else if stale {
            measured = measured.max(resume.unwrap_or(0.0));
        }
        let jump = self.settings.jump.bits_per_sec() as f64;
        let falling = self.free.is_some_and(|free| measured < free - jump);
        let free = match self.free {
            Some(free) if (free - measured).abs() <= jump => (free + measured) / 2.0,
            _ => measured,
        };
        self.free = Some(free);
        self.proven = free;
        let ahead = (queue + (rho - 1.0) * round.answered_after).max(0.0);
        self.aim(free, capacity, ahead, falling, stale)
    }

    /// D8.
    fn climb(&self, estimate: f64, sent: f64, from: f64) -> f64 {
        if sent < USED * estimate {
            return estimate;
        }
        if self.starting {
            return estimate * self.settings.start;
        }
        from + self.settings.shoot.bits_per_sec() as f64
    }

    /// D6, and the goals.
    fn aim(&mut self, free: f64, capacity: f64, ahead: f64, falling: bool, stale: bool) -> f64 {
        let shoot = self.settings.shoot.bits_per_sec() as f64;
        let target = if stale { 0.0 } else { self.settings.target.as_secs_f64().min(self.full / 2.0) };
        // An emptied queue is worth more than a steady W: without it nothing is known of the clocks.
        let hurry = stale && ahead > self.settings.target.as_secs_f64() / 2.0;
        let drain = if hurry { shoot } else { self.settings.drain.bits_per_sec() as f64 };
        let aimed = free + (capacity * (target - ahead) / self.cycle).clamp(-drain, shoot);
        if stale || ahead > 0.9 * self.full {
            return aimed;
        }
        let reserve = self.settings.reserve.as_secs_f64().min(0.6 * self.full);
        self.spent = ahead > reserve || self.spent && ahead > target * DRAINED;
        let lift = self.settings.lift.bits_per_sec() as f64;
        let most = if self.spent || falling { free * (1.0 - DRAIN) } else { f64::INFINITY };
        let least = free.min(most) / (1.0 - if most.is_finite() { 0.0 } else { self.settings.reach });
        let need = self.needs.iter().rev().find(|need| **need <= least);
        need.map_or(aimed, |need| aimed.max((need * (1.0 + self.settings.margin)).min(most).min(free + lift)))
    }
}

/// Share of the free bandwidth that is left to a queue beyond its reserve to drain.
const DRAIN: f64 = 0.02;
/// Weight of the arrival rate, averaged with D2, in a round with losses.
const LOSSY: f64 = 1.0 / 3.0;
/// A queue is drained when it is at most this many times its target.
const DRAINED: f64 = 1.25;
/// Share of W that must be sent for a round without a queue to say that there is room for more.
const USED: f64 = 0.85;
/// Factor of W for each question beyond [`PATIENCE`] without an answer.
const SILENCE: f64 = 0.85;
/// Questions that may wait before silence counts.
pub(super) const PATIENCE: usize = 3;

/// The least of the values of the last one to two windows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Least {
    window: Span,
    since: Option<Time>,
    before: f64,
    current: f64,
}

impl Least {
    pub(super) const fn new(window: Span) -> Self {
        Self { window, since: None, before: f64::INFINITY, current: f64::INFINITY }
    }

    pub(super) fn with(&mut self, value: f64, now: Time) -> f64 {
        let since = *self.since.get_or_insert(now);
        if now.since(since) >= self.window {
            (self.before, self.current, self.since) = (self.current, f64::INFINITY, Some(now));
        }
        self.current = self.current.min(value);
        self.current.min(self.before)
    }
}

/// D3: the slope 1/C of rho over S.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Slope {
    square: f64,
    product: f64,
}

impl Slope {
    /// What a pair weighs after another.
    const KEEP: f64 = 0.97;
    /// Weight of the prior: as much as one pair with a difference of 100 kb/s.
    const PRIOR: f64 = 1e10;

    /// Takes a pair, unless it shows more of the cross traffic's change than of our own.
    pub(super) fn learn(&mut self, sent: f64, rho: f64, capacity: f64) {
        if !(0.15..4.0).contains(&(rho * capacity / sent)) {
            return;
        }
        self.square = Self::KEEP * self.square + sent * sent;
        self.product = Self::KEEP * self.product + sent * rho;
    }

    /// Whether pairs weigh more than the prior.
    pub(super) fn is_learned(&self) -> bool {
        self.square > Self::PRIOR
    }

    /// C, between half and ten times the `prior`.
    pub(super) fn capacity(&self, prior: f64) -> f64 {
        let slope = (self.product + Self::PRIOR / prior) / (self.square + Self::PRIOR);
        if slope > 0.0 { (1.0 / slope).clamp(prior / 2.0, prior * 10.0) } else { prior }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A fluid queue: capacity C, cross traffic X, all in bit/s; rounds of 1 s with the whole of W sent.
    struct Fluid {
        delay: Delay,
        w: f64,
        capacity: f64,
        cross: f64,
        queue: f64,
        /// Share of packets lost on the way without a queue.
        noise: f64,
        /// Other clock over this one, less 1.
        drift: f64,
        second: u64,
    }

    impl Fluid {
        fn new(capacity: f64, cross: f64) -> Self {
            let delay = Delay::new(Settings::default(), Span::from_secs(1));
            Self { delay, w: 1e6, capacity, cross, queue: 0.0, noise: 0.0, drift: 0.0, second: 0 }
        }

        /// Free bandwidth.
        fn free(&self) -> f64 {
            self.capacity - self.cross
        }

        fn round(&mut self, sent: f64) {
            let before = self.queue;
            self.queue = (before + (sent + self.cross - self.capacity) / self.capacity).max(0.0);
            self.second += 1;
            let packets = (sent / 8_000.0) as u64;
            let round = Round {
                sent,
                received: sent * (1.0 - self.noise) / (1.0 + self.queue - before),
                lost: (packets as f64 * self.noise) as i64,
                stretch: 1.0 + self.queue - before,
                packets,
                span: 1.0,
                one_way: 12_345.0 + self.queue + self.drift * self.second as f64,
                asked: Time::ZERO + Span::from_secs(self.second),
                answered_after: 0.05 + self.queue,
            };
            self.w = self.delay.next(self.w, &round).clamp(0.1e6, 100e6);
        }

        fn rounds(&mut self, n: usize) {
            (0..n).for_each(|_| self.round(self.w));
        }
    }

    /// D1 and D2 by hand: C = 5 Mb/s, X = 3.31, S = 2: rho = 5.31 / 5 = 1.062 and A = 2 - 5 * 0.062 = 1.69 Mb/s. D6:
    /// q* = 30 ms, q^ = 130 + 0.062 * 200 = 142.4 ms, 5 Mb/s * -112.4 ms / 1 s is beyond -45 kb/s: W = 1.645 Mb/s.
    #[test]
    fn the_free_bandwidth_follows_from_the_slope() {
        let mut fluid = Fluid::new(5e6, 3.31e6);
        fluid.delay.slope = Slope { square: 1e18, product: 1e18 / 5e6 };
        fluid.delay.starting = false;
        fluid.delay.least.with(12_345.0, Time::ZERO);
        fluid.delay.last = Some(Last { sent: 2e6, rho: 1.0, busy: true, standing: true });
        let round = Round {
            sent: 2e6,
            received: 2e6 / 1.062,
            lost: 0,
            stretch: 1.062,
            packets: 250,
            span: 1.0,
            one_way: 12_345.13,
            asked: Time::ZERO + Span::from_secs(1),
            answered_after: 0.2,
        };
        let w = fluid.delay.next(2e6, &round);
        assert!((fluid.delay.proven() - 1.69e6).abs() < 100.0, "{}", fluid.delay.proven());
        assert!((w - 1.645e6).abs() < 100.0, "{w}");
    }

    /// A bottleneck of our own, and one of which we get a tenth.
    #[test]
    fn w_settles_at_the_free_bandwidth_with_the_target_queue() {
        for capacity in [2.0e6, 2.2e6, 5e6, 20e6] {
            let mut fluid = Fluid::new(capacity, capacity - 2e6);
            fluid.rounds(60);
            assert!((fluid.w - fluid.free()).abs() < 20e3, "C {capacity}: W {}", fluid.w);
            assert!((fluid.queue - 0.03).abs() < 0.01, "C {capacity}: queue {}", fluid.queue);
        }
    }

    #[test]
    fn radio_noise_is_no_congestion_and_a_policer_is() {
        let mut noisy = Fluid::new(5e6, 3e6);
        noisy.noise = 0.005;
        noisy.rounds(60);
        assert!((noisy.w - noisy.free()).abs() < 100e3, "{}", noisy.w);
        let mut policed = Fluid::new(50e6, 0.0);
        policed.rounds(2);
        for _ in 0..20 {
            policed.noise = (1.0 - 1.5e6 / policed.w).max(0.0);
            policed.rounds(1);
        }
        assert!((1.4e6..1.7e6).contains(&policed.w), "{}", policed.w);
    }

    #[test]
    fn drift_of_the_clocks_moves_the_queue_by_a_few_milliseconds() {
        for drift in [-50e-6, 50e-6] {
            let mut fluid = Fluid::new(5e6, 3e6);
            fluid.drift = drift;
            let mut worst = 0.0f64;
            for second in 0..900 {
                fluid.rounds(1);
                if second > 60 {
                    worst = worst.max((fluid.w - fluid.free()).abs());
                    assert!(fluid.queue < 0.06, "drift {drift}, second {second}: queue {}", fluid.queue);
                }
            }
            assert!(worst < 100e3, "drift {drift}: {worst}");
        }
    }

    #[test]
    fn w_waits_while_flows_send_less() {
        let mut fluid = Fluid::new(5e6, 1e6);
        (0..100).for_each(|_| fluid.round(500e3));
        assert_eq!(fluid.w, 1e6);
    }

    /// 1.98 Mb/s free and a goal of 2: W rests at 2.06, fills the queue to its reserve of 90 ms, 16 ms a second, and no
    /// further.
    #[test]
    fn a_goal_within_reach_is_taken_until_the_reserve_is_used() {
        let mut fluid = Fluid::new(5e6, 3.02e6);
        fluid.delay.set_goals(&[Rate::from_bits_per_sec(1_600_000), Rate::from_bits_per_sec(2_000_000)]);
        let mut taken = 0;
        let mut deepest = 0.0f64;
        for _ in 0..40 {
            fluid.rounds(1);
            taken += u32::from((fluid.w - 2.06e6).abs() < 1.0);
            deepest = deepest.max(fluid.queue);
        }
        assert!(taken >= 9, "{taken} rounds at the goal");
        assert!((0.08..0.12).contains(&deepest), "{deepest}");
        // 1.9 is too far below 2: the lower goal is exceeded anyhow, and the queue is the target's.
        fluid.cross = 3.1e6;
        fluid.rounds(20);
        assert!((fluid.w - 1.9e6).abs() < 70e3, "{}", fluid.w);
        assert!(fluid.queue < 0.05, "{}", fluid.queue);
    }

    #[test]
    fn an_empty_queue_is_asked_for_when_none_was_seen_for_a_window() {
        let mut fluid = Fluid::new(5e6, 3e6);
        fluid.rounds(30);
        let mut least = f64::INFINITY;
        for _ in 0..120 {
            fluid.rounds(1);
            least = least.min(fluid.queue);
        }
        assert!(least < 0.008, "{least}");
    }

    fn law(cycle: u64) -> Delay {
        Delay::new(Settings::default(), Span::from_secs(cycle))
    }

    fn near(seen: f64, expected: f64, what: &str) {
        assert!((seen - expected).abs() < 1.0, "{what}: {seen} instead of {expected}");
    }

    /// D6 by hand: free + C (q* - q^) / cycle, at most 60 kb/s up and 45 kb/s down.
    #[test]
    fn the_aim_is_the_target_queue_at_the_end_of_the_next_cycle() {
        let aim = |law: &mut Delay, capacity, ahead, stale| law.aim(2e6, capacity, ahead, false, stale);
        near(aim(&mut law(1), 5e6, 0.03, false), 2e6, "at the target");
        near(aim(&mut law(1), 5e6, 0.025, false), 2.025e6, "5 ms below");
        near(aim(&mut law(2), 5e6, 0.025, false), 2.0125e6, "5 ms below, in two seconds");
        near(aim(&mut law(1), 5e6, 0.0, false), 2.06e6, "no faster up");
        near(aim(&mut law(1), 5e6, 0.1, false), 1.955e6, "no faster down");
        near(aim(&mut law(1), 1e6, 0.01, true), 1.99e6, "to an empty queue");
        near(aim(&mut law(1), 5e6, 0.014, true), 1.955e6, "to an empty queue");
        near(aim(&mut law(1), 5e6, 0.016, true), 1.94e6, "and in a hurry when it is long");
        let mut shallow = law(1);
        shallow.full = 0.04;
        near(aim(&mut shallow, 5e6, 0.02, false), 2e6, "half of a queue that overflows is the target");
    }

    /// Goals by hand: margin 3 %, reach 3 %, 80 kb/s over what is free, and 2 % below it when the reserve is spent.
    #[test]
    fn a_goal_lifts_the_aim_as_far_as_it_may() {
        let with = |need: u64| {
            let mut law = law(1);
            law.set_goals(&[Rate::from_bits_per_sec(500_000), Rate::from_bits_per_sec(need)]);
            law
        };
        near(with(2_000_000).aim(1.98e6, 5e6, 0.03, false, false), 2.06e6, "the goal and its margin");
        near(with(2_000_000).aim(1.95e6, 5e6, 0.03, false, false), 2.03e6, "80 kb/s above what is free");
        near(with(2_000_000).aim(1.93e6, 5e6, 0.03, false, false), 1.93e6, "out of reach");
        near(with(1_960_000).aim(2e6, 5e6, 0.2, true, false), 1.96e6, "what is free falls: 2 % below it");
        near(with(1_960_001).aim(2e6, 5e6, 0.2, true, false), 1.955e6, "a goal above that is not taken");
        let mut spent = with(1_900_000);
        near(spent.aim(2e6, 5e6, 0.091, false, false), 1.957e6, "the reserve of 90 ms is used up");
        assert!(spent.spent);
        near(spent.aim(2e6, 5e6, 0.0376, false, false), 1.962e6, "until 37.5 ms");
        assert!(spent.spent);
        spent.aim(2e6, 5e6, 0.0374, false, false);
        assert!(!spent.spent);
        let mut shallow = with(1_900_000);
        shallow.full = 0.1;
        near(shallow.aim(2e6, 5e6, 0.095, false, false), 1.955e6, "near an overflow goals wait");
    }

    /// Rounds by hand: `sent` and `received` in bit/s, the queue in ms, lost of 100 packets.
    fn round(second: u64, sent: f64, received: f64, queue: f64, lost: i64) -> Round {
        Round {
            sent,
            received,
            lost,
            stretch: sent / received,
            packets: 100,
            span: 1.0,
            one_way: 7.0 + queue * 1e-3,
            asked: Time::ZERO + Span::from_secs(second),
            answered_after: 0.1,
        }
    }

    /// D8, and what a round without a queue proves.
    #[test]
    fn without_a_queue_what_was_sent_is_free_and_a_loss_says_what_is() {
        let mut law = law(1);
        near(law.next(1e6, &round(0, 1e6, 1e6, 0.0, 0)), 1.5e6, "half as much again at the start");
        near(law.proven(), 1e6, "what was sent");
        near(law.next(1.5e6, &round(1, 1.2e6, 1.2e6, 0.0, 0)), 1.5e6, "less than 85 % of W was sent");
        near(law.next(1.5e6, &round(2, 1.275e6, 1.275e6, 0.0, 0)), 2.25e6, "85 % was");
        near(law.next(2.25e6, &round(3, 2.25e6, 2.2e6, 0.0, 2)), 3.375e6, "2 % may be the radio's");
        near(law.next(3e6, &round(4, 3e6, 2e6, 0.0, 3)), 2e6, "3 % are not");
        near(law.proven(), 2e6, "what came");
        near(law.next(2e6, &round(5, 2e6, 2e6, 0.0, 0)), 2.06e6, "no longer the start");
        // Nothing came at all.
        near(law.next(2e6, &round(6, 2e6, 0.0, 0.0, 100)), 1e6, "half");
        let idle = Round { packets: 0, ..round(7, 0.0, 0.0, 0.0, 0) };
        near(law.next(1e6, &idle), 1e6, "nothing was asked");
    }

    /// The least queue at which packets were lost is forgotten by 0.05 % a round.
    #[test]
    fn a_queue_that_overflows_is_remembered() {
        let mut law = law(1);
        law.next(1e6, &round(0, 1e6, 1e6, 0.0, 0));
        law.next(1e6, &round(1, 1e6, 0.9e6, 100.0, 5));
        assert!((law.full - 0.1).abs() < 1e-9, "one way of 7.1 s, least 7: {}", law.full);
        law.next(1e6, &round(2, 1e6, 0.9e6, 120.0, 5));
        assert!((law.full - 0.1 * 1.0005).abs() < 1e-9, "{}", law.full);
        law.forget();
        assert!(law.last.is_none() && law.free.is_none() && law.emptied.is_none() && law.resume.is_none());
        assert_eq!(law.queueing(), Span::ZERO);
    }
}
