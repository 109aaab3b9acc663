//! BBR, version 1 (Cardwell et al. 2016; draft-cardwell-iccrg-bbr-congestion-control-00), with what Linux's has beyond the draft:
//! the allowance for aggregated acknowledgements, and the long-term rate behind a policer.
//!
//! The model of the path is the largest delivery rate of the last ten round trips, and the least round-trip time of the last
//! ten seconds. Pace and window are multiples of the rate and of their product. Counts are of segments.

use bandmaster_core::rng::Stream;
use bandmaster_core::scenario::TcpSettings;
use bandmaster_core::time::{Span, Time};
use bandmaster_core::units::Rate;

use super::super::rtt::OptionalSpan;
use super::{AckInfo, CongestionControl, CongestionControlDef, Delivery, Repair, Window};

pub(super) static DEF: CongestionControlDef = CongestionControlDef {
    name: "bbr",
    about: "Paces at the largest delivery rate measured, with a window of two bandwidth-delay products; version 1",
    source: "Cardwell et al. 2016; draft-cardwell-iccrg-bbr-congestion-control-00; Linux",
    build: |settings| Box::new(Bbr::new(settings)),
};

/// BBRHighGain: 2 / ln 2, by which the rate doubles in each round trip.
const HIGH_GAIN: f64 = 2.885;
/// Gains of the pace in ProbeBW, each for about a round trip (section 4.3.4).
const CYCLE: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
/// Gain of the window in ProbeBW.
const WINDOW_GAIN: f64 = 2.0;
/// BtlBwFilterLen: round trips for which a rate counts.
const RATE_ROUNDS: u64 = 10;
/// RTpropFilterLen: how long a round-trip time counts.
const RTT_WINDOW: Span = Span::from_secs(10);
/// ProbeRTTDuration.
const PROBE_RTT: Span = Span::from_millis(200);
/// BBRMinPipeCwnd.
const LEAST_WINDOW: u32 = 4;
/// The pipe is full when the rate has not grown by a quarter in three rounds (section 4.3.2).
const FULL_GROWTH: f64 = 1.25;
const FULL_ROUNDS: u32 = 3;
/// BBRPacingMargin: the pace stays a hundredth below the rate.
const MARGIN: f64 = 0.99;
/// Window before there is a model, and the least that must be delivered before the window stops growing.
const FIRST_WINDOW: u32 = 10;
/// Most bytes of a burst.
const LARGEST_BURST: f64 = 65_000.0;
/// Rounds for which the largest aggregate counts at least, and the longest time that it makes up for.
const AGGREGATE_ROUNDS: u32 = 5;
const LONGEST_AGGREGATE: Span = Span::from_millis(100);
/// An aggregate is counted from the start again after so many segments.
const AGGREGATE_RESET: u64 = 1 << 20;
/// Policers: an interval of so many rounds, at least and at most, between losses of at least this share.
const POLICED_ROUNDS: (u32, u32) = (4, 16);
const POLICED_LOSS: f64 = 50.0 / 256.0;
/// Two intervals whose rates differ by at most this share, or by 4 kbit/s, are a policer's. Their rate is kept so many rounds.
const POLICED_RATIO: f64 = 1.0 / 8.0;
const POLICED_DIFFERENCE: f64 = 4000.0;
const POLICED_FOR: u32 = 48;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mode {
    /// The rate doubles in each round trip, until the pipe is full.
    Startup,
    /// What Startup has queued drains.
    Drain,
    /// The pace goes through [`CYCLE`]; this is the place in it.
    ProbeBw(usize),
    /// Four segments in flight show the least round-trip time.
    ProbeRtt,
}

struct Bbr {
    stream: Stream,
    mode: Mode,
    max_rate: WindowedMax,
    /// BBR.round_count, and the count of segments whose delivery begins the next round.
    rounds: u64,
    round_end: u64,
    is_round_start: bool,
    /// RTprop, and when it was measured last.
    min_rtt: OptionalSpan,
    min_rtt_at: Time,
    /// When the phase of the cycle began.
    phase_at: Time,
    full: FullPipe,
    /// When ProbeRTT ends, once the window is down; and whether a round trip has passed since.
    probe_rtt_end: Option<Time>,
    probe_rtt_has_round: bool,
    /// Segments of the window before a recovery or ProbeRTT.
    prior_window: u32,
    /// What was being repaired at the last acknowledgement.
    repair: Repair,
    conserves_packets: bool,
    /// Sending goes on after a silence.
    is_restart: bool,
    /// Payload in bytes per second; none before the connection is open.
    pace: Option<f64>,
    has_rtt: bool,
    mss: u64,
    aggregates: Aggregates,
    policer: Policer,
    /// At the last acknowledgement: delivered, lost, and when.
    totals: (u64, u64, Time),
}

/// Has the pipe been filled (section 4.3.2)?
#[derive(Default)]
struct FullPipe {
    is_full: bool,
    rate: f64,
    rounds: u32,
}

/// How many segments more than the rate explains were acknowledged at once.
#[derive(Default)]
struct Aggregates {
    since: Time,
    acked: u64,
    /// The largest of these rounds, and of those before.
    largest: [u32; 2],
    rounds: u32,
}

/// A long-term rate, of intervals that begin and end with losses.
#[derive(Default)]
struct Policer {
    is_sampling: bool,
    /// The rate is in use.
    is_found: bool,
    rate: f64,
    rounds: u32,
    /// At the start of the interval: delivered, lost, and when.
    start: (u64, u64, Time),
}

/// The largest value of a window of rounds, by three candidates: the n-th is the largest since the one before it.
#[derive(Clone, Copy, Default)]
struct WindowedMax([(u64, f64); 3]);

impl WindowedMax {
    fn get(&self) -> f64 {
        self.0[0].1
    }

    fn add(&mut self, round: u64, value: f64) {
        let new = (round, value);
        let [first, second, third] = &mut self.0;
        if value >= first.1 || round - third.0 > RATE_ROUNDS {
            self.0 = [new; 3];
            return;
        }
        if value >= second.1 {
            (*second, *third) = (new, new);
        } else if value >= third.1 {
            *third = new;
        }
        if round - first.0 > RATE_ROUNDS {
            // The first has left the window; so may the second have.
            self.0 = [self.0[1], self.0[2], new];
            if round - self.0[0].0 > RATE_ROUNDS {
                self.0 = [self.0[1], self.0[2], new];
            }
        } else if second.0 == first.0 && round - first.0 > RATE_ROUNDS / 4 {
            (*second, *third) = (new, new);
        } else if third.0 == second.0 && round - first.0 > RATE_ROUNDS / 2 {
            *third = new;
        }
    }
}

impl Bbr {
    fn new(settings: &TcpSettings) -> Self {
        Self {
            stream: Stream::new(0, 0, "bbr"),
            mode: Mode::Startup,
            max_rate: WindowedMax::default(),
            rounds: 0,
            round_end: 0,
            is_round_start: false,
            min_rtt: OptionalSpan::default(),
            min_rtt_at: Time::ZERO,
            phase_at: Time::ZERO,
            full: FullPipe::default(),
            probe_rtt_end: None,
            probe_rtt_has_round: false,
            prior_window: 0,
            repair: Repair::None,
            conserves_packets: false,
            is_restart: false,
            pace: None,
            has_rtt: false,
            mss: settings.mss.get(),
            aggregates: Aggregates::default(),
            policer: Policer::default(),
            totals: (0, 0, Time::ZERO),
        }
    }

    // --------------------------------------------------------------------------------------------------- the model

    /// Segments per second that the path carries.
    fn rate(&self) -> f64 {
        if self.policer.is_found { self.policer.rate } else { self.max_rate.get() }
    }

    fn pacing_gain(&self) -> f64 {
        match self.mode {
            Mode::Startup => HIGH_GAIN,
            Mode::Drain => 1.0 / HIGH_GAIN,
            Mode::ProbeBw(_) if self.policer.is_found => 1.0,
            Mode::ProbeBw(phase) => CYCLE[phase],
            Mode::ProbeRtt => 1.0,
        }
    }

    fn window_gain(&self) -> f64 {
        match self.mode {
            Mode::Startup | Mode::Drain => HIGH_GAIN,
            Mode::ProbeBw(_) => WINDOW_GAIN,
            Mode::ProbeRtt => 1.0,
        }
    }

    /// BBRInflight() of section 4.2.3.2, without the allowance for bursts: whole segments in flight at a rate.
    fn product(&self, rate: f64, gain: f64) -> u32 {
        let Some(rtt) = self.min_rtt.get() else { return FIRST_WINDOW };
        (rate * rtt.as_secs_f64() * gain).ceil() as u32
    }

    /// What bursts, delayed acknowledgements and, while probing, small products need besides (section 4.2.3.2; Linux).
    fn with_bursts(&self, window: u32) -> u32 {
        let even = (window + 3 * self.burst_goal()).next_multiple_of(2);
        even + if self.mode == Mode::ProbeBw(0) { 2 } else { 0 }
    }

    fn target(&self, rate: f64, gain: f64) -> u32 {
        self.with_bursts(self.product(rate, gain))
    }

    /// Segments that leave together (section 4.2.2): those of a 1024th of a second, at least two from 1.2 Mbit/s on.
    fn burst_goal(&self) -> u32 {
        self.burst(0)
    }

    fn burst(&self, more: u64) -> u32 {
        let pace = self.pace.unwrap_or(0.0);
        let least = if pace < 1.2e6 / 8.0 { 1 } else { 2 };
        let bytes = (pace / 1024.0 + more as f64).min(LARGEST_BURST);
        ((bytes / self.mss as f64) as u32).clamp(least, 127)
    }

    /// Section 4.1.1: rounds, and the largest rate.
    fn update_rate(&mut self, delivery: &Delivery) {
        self.is_round_start = false;
        let Some(sample) = delivery.sample else { return };
        if sample.prior_delivered >= self.round_end {
            self.round_end = delivery.delivered;
            self.rounds += 1;
            self.is_round_start = true;
            self.conserves_packets = false;
        }
        self.sample_policer(delivery.newly_lost > 0, sample.is_app_limited);
        let rate = sample.delivered as f64 / sample.interval.as_secs_f64();
        if !sample.is_app_limited || rate >= self.max_rate.get() {
            self.max_rate.add(self.rounds, rate);
        }
    }

    /// Linux: what is acknowledged beyond the rate since the start of an epoch, in a window of five to ten rounds.
    fn update_aggregates(&mut self, window: u32, delivery: &Delivery) {
        if delivery.newly_delivered == 0 || delivery.sample.is_none() {
            return;
        }
        let rate = self.rate();
        let aggregates = &mut self.aggregates;
        if self.is_round_start {
            aggregates.rounds += 1;
            if aggregates.rounds >= AGGREGATE_ROUNDS {
                aggregates.rounds = 0;
                aggregates.largest = [0, aggregates.largest[0]];
            }
        }
        let mut expected = (rate * delivery.now.since(aggregates.since).as_secs_f64()) as u64;
        let acked = u64::from(delivery.newly_delivered);
        if aggregates.acked <= expected || aggregates.acked + acked >= AGGREGATE_RESET {
            (aggregates.since, aggregates.acked, expected) = (delivery.now, 0, 0);
        }
        aggregates.acked += acked;
        let extra = aggregates.acked.saturating_sub(expected).min(u64::from(window)) as u32;
        aggregates.largest[0] = aggregates.largest[0].max(extra);
    }

    fn aggregate_allowance(&self) -> u32 {
        if !self.full.is_full {
            return 0;
        }
        let most = (self.rate() * LONGEST_AGGREGATE.as_secs_f64()) as u32;
        self.aggregates.largest[0].max(self.aggregates.largest[1]).min(most)
    }

    /// Linux: two intervals with heavy losses and the same rate are a policer's; its rate replaces the largest one.
    fn sample_policer(&mut self, has_losses: bool, is_app_limited: bool) {
        let (delivered, lost, now) = self.totals;
        let starts_round = self.is_round_start;
        if self.policer.is_found {
            if matches!(self.mode, Mode::ProbeBw(_)) && starts_round {
                self.policer.rounds += 1;
                if self.policer.rounds >= POLICED_FOR {
                    self.forget_policer();
                    self.enter_probe_bw();
                }
            }
            return;
        }
        if !self.policer.is_sampling {
            if !has_losses {
                return;
            }
            self.policer.start = self.totals;
            self.policer.rounds = 0;
            self.policer.is_sampling = true;
        }
        if is_app_limited {
            self.forget_policer();
            return;
        }
        self.policer.rounds += u32::from(starts_round);
        if self.policer.rounds < POLICED_ROUNDS.0 {
            return;
        }
        if self.policer.rounds > POLICED_ROUNDS.1 {
            self.forget_policer();
            return;
        }
        let (first_delivered, first_lost, since) = self.policer.start;
        let (delivered, lost) = (delivered - first_delivered, lost - first_lost);
        let elapsed = now.since(since);
        let is_heavy = delivered > 0 && lost as f64 >= POLICED_LOSS * delivered as f64;
        if !has_losses || !is_heavy || elapsed < Span::from_millis(1) {
            return;
        }
        let rate = delivered as f64 / elapsed.as_secs_f64();
        let known = self.policer.rate;
        let difference = (rate - known).abs();
        let is_close =
            difference <= known * POLICED_RATIO || difference * self.mss as f64 * 8.0 <= POLICED_DIFFERENCE;
        self.policer.rounds = 0;
        if known > 0.0 && is_close {
            self.policer.rate = (rate + known) / 2.0;
            self.policer.is_found = true;
        } else {
            self.policer.rate = rate;
            self.policer.start = self.totals;
        }
    }

    fn forget_policer(&mut self) {
        self.policer = Policer { start: self.totals, ..Policer::default() };
    }

    // ---------------------------------------------------------------------------------------------------- the modes

    fn enter_probe_bw(&mut self) {
        // Any phase but that of 3/4 (section 4.3.4.2).
        let back = self.stream.below(7) as usize;
        self.enter_phase((CYCLE.len() - back) % CYCLE.len());
    }

    fn enter_phase(&mut self, phase: usize) {
        self.mode = Mode::ProbeBw(phase);
        self.phase_at = self.totals.2;
    }

    /// Section 4.3.4.3: the next phase after a round trip; after probing not before the flight has grown, or a loss shows the
    /// queue to be full; after draining as soon as it fits the pipe.
    fn update_cycle(&mut self, delivery: &Delivery) {
        let Mode::ProbeBw(phase) = self.mode else { return };
        let elapsed = delivery.now.since(self.phase_at);
        let is_full_length = self.min_rtt.get().is_some_and(|rtt| elapsed > rtt);
        let gain = self.pacing_gain();
        let rate = self.max_rate.get();
        let flight = self.flight_at_next_send(delivery.prior_in_flight, delivery);
        let is_over = if gain > 1.0 {
            is_full_length && (delivery.newly_lost > 0 || flight >= self.target(rate, gain))
        } else if gain < 1.0 {
            is_full_length || flight <= self.target(rate, 1.0)
        } else {
            is_full_length
        };
        if is_over {
            self.enter_phase((phase + 1) % CYCLE.len());
        }
    }

    /// Linux: what will be in flight when the pace lets the next burst go, which while probing counts too.
    fn flight_at_next_send(&self, in_flight: u32, delivery: &Delivery) -> u32 {
        let burst = if self.pacing_gain() > 1.0 { self.burst_goal() } else { 0 };
        let wait = delivery.next_send.since(delivery.now);
        let delivered = (self.rate() * wait.as_secs_f64()) as u32;
        (in_flight + burst).saturating_sub(delivered)
    }

    fn check_full_pipe(&mut self, delivery: &Delivery) {
        let is_app_limited = delivery.sample.is_some_and(|sample| sample.is_app_limited);
        if self.full.is_full || !self.is_round_start || is_app_limited {
            return;
        }
        let rate = self.max_rate.get();
        if rate >= self.full.rate * FULL_GROWTH {
            (self.full.rate, self.full.rounds) = (rate, 0);
            return;
        }
        self.full.rounds += 1;
        self.full.is_full = self.full.rounds >= FULL_ROUNDS;
    }

    fn check_drain(&mut self, window: &mut Window, delivery: &Delivery) {
        if self.mode == Mode::Startup && self.full.is_full {
            self.mode = Mode::Drain;
            window.ssthresh = u64::from(self.target(self.max_rate.get(), 1.0)) * delivery.mss;
        }
        let flight = self.flight_at_next_send(delivery.in_flight, delivery);
        if self.mode == Mode::Drain && flight <= self.target(self.max_rate.get(), 1.0) {
            self.enter_probe_bw();
        }
    }

    /// Sections 4.1.2 and 4.3.5.
    fn update_min_rtt(&mut self, window: &mut Window, delivery: &Delivery) {
        let now = delivery.now;
        let is_old = now > self.min_rtt_at + RTT_WINDOW;
        if let Some(rtt) = delivery.rtt
            && (is_old || self.min_rtt.get().is_none_or(|least| rtt < least))
        {
            self.min_rtt = rtt.into();
            self.min_rtt_at = now;
        }
        if is_old && !self.is_restart && self.mode != Mode::ProbeRtt {
            self.mode = Mode::ProbeRtt;
            self.save_window(window.cwnd);
            self.probe_rtt_end = None;
        }
        if self.mode == Mode::ProbeRtt {
            if self.probe_rtt_end.is_none() {
                if delivery.in_flight <= LEAST_WINDOW {
                    self.probe_rtt_end = Some(now + PROBE_RTT);
                    self.probe_rtt_has_round = false;
                    self.round_end = delivery.delivered;
                }
            } else {
                self.probe_rtt_has_round |= self.is_round_start;
                if self.probe_rtt_has_round {
                    self.end_probe_rtt(window, delivery.mss, now);
                }
            }
        }
        if delivery.sample.is_some_and(|sample| sample.delivered > 0) {
            self.is_restart = false;
        }
    }

    fn end_probe_rtt(&mut self, window: &mut Window, mss: u64, now: Time) {
        if self.probe_rtt_end.is_none_or(|end| now <= end) {
            return;
        }
        self.min_rtt_at = now;
        window.cwnd = window.cwnd.max(u64::from(self.prior_window) * mss);
        if self.full.is_full {
            self.enter_probe_bw();
        } else {
            self.mode = Mode::Startup;
        }
    }

    // --------------------------------------------------------------------------------------------- pace and window

    /// Section 4.2.1: until the pipe is full the pace only grows.
    fn set_pace(&mut self, rate: f64, gain: f64) {
        let pace = rate * self.mss as f64 * gain * MARGIN;
        if self.full.is_full || self.pace.is_none_or(|old| pace > old) {
            self.pace = Some(pace);
        }
    }

    /// BBRInitPacingRate(): the window over the round-trip time, or over a millisecond.
    fn set_first_pace(&mut self, window: u64, rtt: Option<Span>, mss: u64) {
        self.has_rtt = rtt.is_some();
        let rtt = rtt.unwrap_or(Span::from_millis(1)).as_secs_f64().max(1e-6);
        self.pace = Some((window / mss) as f64 / rtt * self.mss as f64 * HIGH_GAIN * MARGIN);
    }

    fn save_window(&mut self, cwnd: u64) {
        let segments = (cwnd / self.mss) as u32;
        let is_own = self.repair == Repair::None && self.mode != Mode::ProbeRtt;
        self.prior_window = if is_own { segments } else { self.prior_window.max(segments) };
    }

    /// Section 4.2.3.4: a segment for a segment in the first round of a recovery; at its end the window of before. The window, and
    /// whether it is final.
    fn window_of_recovery(&mut self, window: u32, delivery: &Delivery) -> (u32, bool) {
        let conserved = delivery.in_flight + delivery.newly_delivered;
        let mut window = window;
        if delivery.newly_lost > 0 {
            window = window.saturating_sub(delivery.newly_lost).max(1);
        }
        let before = std::mem::replace(&mut self.repair, delivery.repair);
        match (before, delivery.repair) {
            (Repair::None | Repair::Loss, Repair::Recovery) => {
                self.conserves_packets = true;
                self.round_end = delivery.delivered;
                window = conserved;
            }
            (Repair::Recovery | Repair::Loss, Repair::None) => {
                self.conserves_packets = false;
                window = window.max(self.prior_window);
            }
            _ => {}
        }
        if self.conserves_packets { (window.max(conserved), true) } else { (window, false) }
    }

    /// Section 4.2.3.
    fn set_window(&mut self, window: u32, delivery: &Delivery) -> u32 {
        let mut window = window;
        if delivery.newly_delivered > 0 {
            let (recovered, is_final) = self.window_of_recovery(window, delivery);
            window = recovered;
            if !is_final {
                let product = self.product(self.rate(), self.window_gain());
                let target = self.with_bursts(product + self.aggregate_allowance());
                let grown = window + delivery.newly_delivered;
                if self.full.is_full {
                    window = grown.min(target);
                } else if window < target || delivery.delivered < u64::from(FIRST_WINDOW) {
                    window = grown;
                }
                window = window.max(LEAST_WINDOW);
            }
        }
        if self.mode == Mode::ProbeRtt { window.min(LEAST_WINDOW) } else { window }
    }
}

impl CongestionControl for Bbr {
    fn on_ack(&mut self, _window: &mut Window, _ack: &AckInfo) {}

    /// A loss only saves the window.
    fn ssthresh_after_loss(&mut self, window: &Window, _in_flight: u64, _mss: u64) -> u64 {
        self.save_window(window.cwnd);
        window.ssthresh
    }

    /// The pipe may be another one.
    fn on_timeout(&mut self) {
        self.repair = Repair::Loss;
        self.full.rate = 0.0;
        self.is_round_start = true;
        self.sample_policer(true, false);
    }

    fn is_rate_based(&self) -> bool {
        true
    }

    fn set_stream(&mut self, stream: Stream) {
        self.stream = stream;
    }

    fn on_open(&mut self, window: &Window, rtt: Option<Span>, mss: u64, now: Time) {
        if let Some(rtt) = rtt {
            self.min_rtt = rtt.into();
        }
        self.min_rtt_at = now;
        self.aggregates.since = now;
        self.totals.2 = now;
        self.set_first_pace(window.cwnd, rtt, mss);
    }

    fn on_delivery(&mut self, window: &mut Window, delivery: &Delivery) {
        let mss = delivery.mss;
        let last = if delivery.newly_delivered > 0 { delivery.now } else { self.totals.2 };
        self.totals = (delivery.delivered, delivery.lost, last);
        self.update_rate(delivery);
        self.update_aggregates((window.cwnd / mss) as u32, delivery);
        self.update_cycle(delivery);
        self.check_full_pipe(delivery);
        self.check_drain(window, delivery);
        self.update_min_rtt(window, delivery);
        if !self.has_rtt && delivery.srtt.is_some() {
            self.set_first_pace(window.cwnd, delivery.srtt, mss);
        }
        self.set_pace(self.rate(), self.pacing_gain());
        window.cwnd = u64::from(self.set_window((window.cwnd / mss) as u32, delivery)) * mss;
    }

    /// Section 4.3.4.4: at the rate of the path, without probing.
    fn on_restart(&mut self, window: &mut Window, mss: u64, now: Time) {
        self.is_restart = true;
        (self.aggregates.since, self.aggregates.acked) = (now, 0);
        match self.mode {
            Mode::ProbeBw(_) => self.set_pace(self.rate(), 1.0),
            Mode::ProbeRtt => self.end_probe_rtt(window, mss, now),
            _ => {}
        }
    }

    fn is_app_limiting(&self) -> bool {
        self.mode == Mode::ProbeRtt
    }

    fn pacing_rate(&self) -> Option<Rate> {
        self.pace.map(|pace| Rate::from_bits_per_sec_f64(pace * 8.0))
    }

    /// Linux: a burst is larger where round trips are shorter than 8 ms, by 64 KiB halved for each 512 us of them.
    fn send_quantum(&self) -> u32 {
        let halvings = self.min_rtt.get().map_or(u64::MAX, |rtt| rtt.as_nanos() / 512_000);
        self.burst(if halvings < 16 { 65_536 >> halvings } else { 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::super::RateSample;
    use super::*;

    const MSS: u64 = 1000;
    const RTT: Span = Span::from_millis(40);

    /// A connection of which the tests make up the acknowledgements.
    struct Path {
        bbr: Bbr,
        window: Window,
        now: Time,
        delivered: u64,
        lost: u64,
        repair: Repair,
    }

    impl Path {
        fn new() -> Self {
            let mut bbr = Bbr::new(&TcpSettings {
                mss: bandmaster_core::units::Bytes::new(MSS),
                ..TcpSettings::default()
            });
            let window = Window { cwnd: 10 * MSS, ssthresh: u64::MAX };
            bbr.on_open(&window, Some(RTT), MSS, Time::ZERO);
            Self { bbr, window, now: Time::ZERO, delivered: 0, lost: 0, repair: Repair::None }
        }

        /// One in ProbeBW at 1000 segments a second, 40 of them a round-trip time.
        fn probing() -> Self {
            let mut path = Self::new();
            for _ in 0..4 {
                path.round(1000.0, 0);
            }
            assert!(matches!(path.bbr.mode, Mode::ProbeBw(_)), "{:?}", path.bbr.mode);
            path
        }

        /// After so many milliseconds `segments` are delivered, at a rate in segments per second.
        fn ack(&mut self, millis: u64, segments: u32, rate: f64, in_flight: u32, prior: u64, lost: u32) {
            self.now += Span::from_millis(millis);
            self.delivered += u64::from(segments);
            self.lost += u64::from(lost);
            let sample = RateSample {
                delivered: (rate * RTT.as_secs_f64()) as u64,
                interval: RTT,
                prior_delivered: prior,
                is_app_limited: false,
            };
            let delivery = Delivery {
                now: self.now,
                mss: MSS,
                newly_delivered: segments,
                newly_lost: lost,
                delivered: self.delivered,
                lost: self.lost,
                prior_in_flight: in_flight + segments,
                in_flight,
                repair: self.repair,
                rtt: Some(RTT),
                srtt: Some(RTT),
                sample: Some(sample),
                next_send: self.now,
            };
            self.bbr.on_delivery(&mut self.window, &delivery);
        }

        /// A round trip, told by one acknowledgement, after which so many are in flight.
        fn round(&mut self, rate: f64, in_flight: u32) {
            let prior = self.delivered;
            self.ack(41, (rate * RTT.as_secs_f64()) as u32, rate, in_flight, prior, 0);
        }

        fn segments(&self) -> u64 {
            self.window.cwnd / MSS
        }
    }

    /// Nichols' filter: a maximum counts for ten rounds, then one of the later ones does.
    #[test]
    fn a_rate_counts_for_ten_rounds() {
        let mut most = WindowedMax::default();
        most.add(1, 100.0);
        for round in 2..=11 {
            most.add(round, if round == 8 { 70.0 } else { 50.0 });
            assert_eq!(most.get(), 100.0, "round {round}");
        }
        most.add(12, 50.0);
        assert_eq!(most.get(), 70.0);
        most.add(13, 80.0);
        assert_eq!(most.get(), 80.0);
        most.add(30, 10.0);
        assert_eq!(most.get(), 10.0, "nothing for seventeen rounds");
    }

    /// Before a rate is known, the pace is that of the window, times the gain.
    #[test]
    fn the_first_pace_is_that_of_the_window() {
        let path = Path::new();
        let pace = 10.0 * MSS as f64 * 8.0 / 0.04 * 2.885 * 0.99;
        assert_eq!(path.bbr.pacing_rate(), Some(Rate::from_bits_per_sec_f64(pace)));
    }

    #[test]
    fn startup_ends_after_three_rounds_without_growth() {
        let mut path = Path::new();
        for rate in [250.0, 500.0, 1000.0, 1000.0, 1200.0] {
            path.round(rate, 100);
            assert_eq!(path.bbr.mode, Mode::Startup, "at {rate}");
        }
        path.round(1200.0, 100);
        assert_eq!(path.bbr.mode, Mode::Drain, "less than a quarter more than 1000 in three rounds");
        assert_eq!(path.bbr.pacing_gain(), 1.0 / 2.885);
    }

    /// 1000 segments a second and 40 ms are 40 segments, and three bursts of two more.
    #[test]
    fn drain_lasts_until_the_flight_fits_the_pipe() {
        let mut path = Path::new();
        for _ in 0..4 {
            path.round(1000.0, 100);
        }
        assert_eq!(path.bbr.mode, Mode::Drain);
        path.ack(1, 1, 1000.0, 47, 0, 0);
        assert_eq!(path.bbr.mode, Mode::Drain);
        path.ack(1, 1, 1000.0, 46, 0, 0);
        assert!(matches!(path.bbr.mode, Mode::ProbeBw(_)), "{:?}", path.bbr.mode);
        assert_eq!(path.window.ssthresh, 46 * MSS);
    }

    /// Each phase lasts a round-trip time. That of 5/4 waits for a flight of as much, or for a loss; that of 3/4 ends early once
    /// the queue is gone.
    #[test]
    fn probe_bw_goes_through_its_gains() {
        let mut path = Path::probing();
        while path.bbr.mode != Mode::ProbeBw(7) {
            path.round(1000.0, 60);
        }
        path.round(1000.0, 40);
        assert_eq!(path.bbr.pacing_gain(), 1.25);
        path.round(1000.0, 0);
        assert_eq!(path.bbr.pacing_gain(), 1.25, "50 segments and 8 more are not in flight");
        path.round(1000.0, 20);
        assert_eq!(path.bbr.pacing_gain(), 0.75);
        path.ack(20, 10, 1000.0, 50, 0, 0);
        assert_eq!(path.bbr.pacing_gain(), 0.75);
        path.ack(10, 1, 1000.0, 45, 0, 0);
        assert_eq!(path.bbr.pacing_gain(), 1.0, "drained before the round trip has passed");
        for _ in 0..5 {
            path.round(1000.0, 40);
            assert_eq!(path.bbr.pacing_gain(), 1.0);
        }
        path.round(1000.0, 40);
        assert_eq!(path.bbr.pacing_gain(), 1.25);
        let prior = path.delivered;
        path.ack(41, 10, 1000.0, 20, prior, 1);
        assert_eq!(path.bbr.pacing_gain(), 0.75, "a loss");
        assert_eq!(path.bbr.pacing_rate(), Some(Rate::from_bits_per_sec_f64(1000.0 * 8000.0 * 0.75 * 0.99)));
    }

    /// Two products of 40 and three bursts of two: 86.
    #[test]
    fn the_window_is_two_products() {
        let mut path = Path::probing();
        while path.bbr.mode != Mode::ProbeBw(5) {
            path.round(1000.0, 60);
        }
        assert_eq!(path.segments(), 126, "an acknowledgement of a whole round is an aggregate of 40");
        path.bbr.aggregates = Aggregates { since: path.now, ..Aggregates::default() };
        path.ack(1, 1, 1000.0, 40, 0, 0);
        assert_eq!(path.segments(), 88, "an aggregate of one, rounded up");
    }

    /// The phase of 3/4 is never the first, each other is.
    #[test]
    fn the_cycle_begins_at_random() {
        let mut begun = [0; 8];
        let mut bbr = Bbr::new(&TcpSettings::default());
        bbr.set_stream(Stream::new(1, 0, "test"));
        for _ in 0..700 {
            bbr.enter_probe_bw();
            let Mode::ProbeBw(phase) = bbr.mode else { panic!("{:?}", bbr.mode) };
            begun[phase] += 1;
        }
        assert_eq!(begun[1], 0);
        assert!(
            begun.iter().enumerate().all(|(phase, &times)| phase == 1 || (60..140).contains(&times)),
            "{begun:?}"
        );
    }

    /// After ten seconds without a smaller round-trip time: four segments for 200 ms and a round, then the window of before.
    #[test]
    fn probe_rtt_comes_every_ten_seconds() {
        let mut path = Path::probing();
        let mut begun = Vec::new();
        let mut lengths = Vec::new();
        while path.now < Time::ZERO + Span::from_secs(35) {
            let before = path.bbr.mode;
            let window = path.segments();
            path.round(1000.0, if before == Mode::ProbeRtt { 4 } else { 40 });
            match (before, path.bbr.mode) {
                (Mode::ProbeBw(_), Mode::ProbeRtt) => {
                    begun.push(path.now);
                    assert_eq!(path.segments(), 4);
                    assert!(path.bbr.is_app_limiting());
                }
                (Mode::ProbeRtt, Mode::ProbeBw(_)) => {
                    lengths.push(path.now.since(begun[begun.len() - 1]).as_secs_f64());
                    assert!(path.segments() > 80, "restored from {window} to {}", path.segments());
                }
                _ => {}
            }
        }
        assert_eq!((begun.len(), lengths.len()), (3, 3), "{begun:?}");
        assert!(lengths.iter().all(|length| (0.2..0.35).contains(length)), "{lengths:?}");
        let gaps: Vec<f64> = begun.windows(2).map(|pair| pair[1].since(pair[0]).as_secs_f64()).collect();
        assert!(gaps.iter().all(|gap| (10.2..10.5).contains(gap)), "{gaps:?}");
    }

    /// A recovery begins with a segment for a segment, grows in its second round, and ends with the window of before.
    #[test]
    fn recovery_conserves_packets_for_a_round() {
        let mut path = Path::probing();
        path.round(1000.0, 40);
        let before = path.segments();
        path.bbr.ssthresh_after_loss(&path.window, 0, MSS);
        path.repair = Repair::Recovery;
        path.ack(1, 1, 1000.0, 30, 0, 5);
        assert_eq!(path.segments(), 31);
        let middle = path.delivered;
        path.ack(1, 2, 1000.0, 28, 0, 0);
        assert_eq!(path.segments(), 31, "28 and 2 more, but no less than before");
        path.ack(41, 3, 1000.0, 28, middle, 0);
        assert_eq!(path.segments(), 34, "the second round");
        path.repair = Repair::None;
        path.ack(1, 1, 1000.0, 28, middle, 0);
        assert!(path.segments() >= before, "{} after {before}", path.segments());
    }

    /// A third is lost, in each round, whatever is sent: after two intervals of at least four rounds the rate is the policer's,
    /// and the pace no longer probes.
    #[test]
    fn heavy_losses_at_a_steady_rate_are_a_policers() {
        let mut path = Path::probing();
        let mut found = None;
        for round in 0..20 {
            let prior = path.delivered;
            path.ack(41, 20, 1000.0, 40, prior, 10);
            if path.bbr.policer.is_found && found.is_none() {
                found = Some(round);
            }
        }
        assert!(found.is_some_and(|round| (7..=10).contains(&round)), "{found:?}");
        assert_eq!(path.bbr.pacing_gain(), 1.0);
        let rate = path.bbr.rate();
        assert!((rate / (20.0 / 0.041) - 1.0).abs() < 0.1, "{rate} segments a second");
    }
}
