//! CUBIC (RFC 9438), with the delay-increase part of HyStart (Ha and Rhee 2011, as in Linux); or by Linux's rules, where they are
//! others ([`OfLinux`]).

use bandmaster_core::scenario::{CubicRules, HyStartRules, TcpSettings};
use bandmaster_core::time::{Span, Time};

use super::super::rtt::OptionalSpan;
use super::{AckInfo, CongestionControl, CongestionControlDef, Window, slow_start, with_hystart};

pub(super) static DEF: CongestionControlDef = CongestionControlDef {
    name: "cubic",
    about: "Window grows with the cube of the time since the last loss; Linux's default",
    source: "RFC 9438",
    build: |settings| with_hystart(settings, Cubic::new(settings)),
};

/// RFC 9438 section 5: C in segments per second cubed.
const C: f64 = 0.4;
/// RFC 9438 section 4.6: multiplicative decrease.
const BETA: f64 = 0.7;
/// HyStart's bounds of the delay that ends slow start (Linux: HYSTART_DELAY_MIN and _MAX).
const DELAY_MIN: Span = Span::from_millis(4);
const DELAY_MAX: Span = Span::from_millis(16);
/// Samples per round that HyStart takes (Linux: HYSTART_MIN_SAMPLES).
const SAMPLES: u32 = 8;
/// HyStart works above this window, in segments (Linux: hystart_low_window).
const LOW_WINDOW: u64 = 16;
/// Linux: before the first loss the window grows by one for so many segments acknowledged, at least.
const FIRST_GROWTH: f64 = 20.0;
/// Linux: round-trip times of the first second after a loss do not count, since recovery has disturbed them.
const DISTURBED: Span = Span::from_secs(1);
/// Linux (HyStart): acknowledgements closer than this are of one train; and its allowance for acknowledgements that are held up.
const TRAIN_GAP: Span = Span::from_millis(2);
const TRAIN_DELAY: Span = Span::from_millis(1);

struct Cubic {
    byte_counting: bool,
    has_hystart: bool,
    converges_fast: bool,
    hystart: HyStart,
    linux: Option<Box<OfLinux>>,
    /// A connection that has not left slow start needs no more than the above.
    avoidance: Option<Box<Avoidance>>,
}

#[derive(Default)]
struct Avoidance {
    /// W_max in segments.
    w_max: f64,
    /// cwnd at the last decrease, for fast convergence.
    cwnd_prior: f64,
    /// Start of the current congestion avoidance stage.
    epoch: Option<Time>,
    /// K in seconds (equation 2).
    k: f64,
    /// W_est in segments (equation 4).
    w_est: f64,
    /// Bytes of growth not yet in cwnd.
    owed: f64,
}

#[derive(Default)]
struct HyStart {
    round_end: u64,
    last_round: OptionalSpan,
    this_round: OptionalSpan,
    samples: u32,
}

/// What Linux's CUBIC has of its own: a least growth before the first loss, no faster Reno once the window of the last loss is reached, the
/// least round-trip time to look ahead with, and a HyStart that hears trains of acknowledgements too.
#[derive(Default)]
struct OfLinux {
    is_paced: bool,
    /// Since the connection began or its last timeout: whether there was a loss, and the least round-trip time.
    has_lost: bool,
    min_rtt: OptionalSpan,
    /// The round of slow start: its end, its start, the last acknowledgement of its train, the least round-trip time of the first samples.
    round_end: u64,
    round_start: Time,
    train_at: Time,
    this_round: OptionalSpan,
    samples: u32,
}

impl Cubic {
    fn new(settings: &TcpSettings) -> Self {
        let linux = OfLinux { is_paced: settings.pacing, ..OfLinux::default() };
        Self {
            linux: (settings.cubic_rules == CubicRules::Linux).then(|| Box::new(linux)),
            byte_counting: settings.byte_counting,
            has_hystart: settings.hystart && settings.hystart_rules == HyStartRules::Linux,
            converges_fast: settings.fast_convergence,
            hystart: HyStart::default(),
            avoidance: None,
        }
    }
}

impl Avoidance {
    /// Congestion avoidance (RFC 9438 sections 4.2 to 4.5).
    fn grow(&mut self, window: &mut Window, ack: &AckInfo, acked: u64, linux: Option<&OfLinux>) {
        let mss = ack.mss as f64;
        let cwnd = window.cwnd as f64 / mss;
        let segments = acked as f64 / mss;
        let epoch = *self.epoch.get_or_insert_with(|| {
            self.w_est = cwnd;
            if cwnd < self.w_max {
                self.k = libm_cbrt((self.w_max - cwnd) / C);
            } else {
                self.k = 0.0;
                self.w_max = cwnd;
            }
            ack.now
        });
        let rtt = linux.map_or(ack.srtt, |linux| linux.min_rtt.get()).unwrap_or_default().as_secs_f64();
        let elapsed = ack.now.since(epoch).as_secs_f64();
        // Equation (1) one round-trip ahead, clamped as section 4.2 says.
        let ahead = elapsed + rtt - self.k;
        let target = (C * ahead * ahead * ahead + self.w_max).clamp(cwnd, 1.5 * cwnd);
        // Equation (4): alpha makes the Reno-friendly region as aggressive as Reno until it is back at W_max.
        let is_back = linux.is_none() && self.w_est >= self.cwnd_prior;
        let alpha = if is_back { 1.0 } else { 3.0 * (1.0 - BETA) / (1.0 + BETA) };
        self.w_est += alpha * segments / cwnd;
        let mut growth = ((target - cwnd) / cwnd * segments).max((self.w_est - cwnd).max(0.0));
        if linux.is_some_and(|linux| !linux.has_lost) {
            growth = growth.max(segments / FIRST_GROWTH);
        }
        self.owed += growth * mss;
        let whole = self.owed as u64;
        self.owed -= whole as f64;
        window.cwnd += whole;
    }
}

impl CongestionControl for Cubic {
    fn on_ack(&mut self, window: &mut Window, ack: &AckInfo) {
        if let Some(linux) = &mut self.linux {
            let epoch = self.avoidance.as_ref().and_then(|avoidance| avoidance.epoch);
            if epoch.is_none_or(|epoch| ack.now.since(epoch) >= DISTURBED) {
                linux.min_rtt.lower(ack.sample);
            }
        }
        let mut acked = ack.acked;
        if window.cwnd < window.ssthresh {
            let is_large = window.cwnd >= LOW_WINDOW * ack.mss;
            let is_over = self.has_hystart
                && match &mut self.linux {
                    Some(linux) => is_large && linux.is_slow_start_over(ack),
                    None => self.hystart.delay_increased(ack) && is_large,
                };
            if is_over {
                window.ssthresh = window.cwnd;
            } else {
                acked = slow_start(window, acked, ack.mss, self.byte_counting);
            }
            if acked == 0 {
                return;
            }
        }
        self.avoidance.get_or_insert_default().grow(window, ack, acked, self.linux.as_deref());
    }

    fn ssthresh_after_loss(&mut self, window: &Window, _in_flight: u64, mss: u64) -> u64 {
        if let Some(linux) = &mut self.linux {
            linux.has_lost = true;
        }
        let cwnd = window.cwnd as f64 / mss as f64;
        let avoidance = self.avoidance.get_or_insert_default();
        // Section 4.7: fast convergence.
        avoidance.w_max =
            if self.converges_fast && cwnd < avoidance.w_max { cwnd * (1.0 + BETA) / 2.0 } else { cwnd };
        avoidance.cwnd_prior = cwnd;
        avoidance.epoch = None;
        avoidance.owed = 0.0;
        ((window.cwnd as f64 * BETA) as u64).max(2 * mss)
    }

    /// Section 4.8: K is 0 and W_max the window at which congestion avoidance starts.
    fn on_timeout(&mut self) {
        if let Some(avoidance) = &mut self.avoidance {
            avoidance.w_max = 0.0;
            avoidance.epoch = None;
            avoidance.owed = 0.0;
        }
        self.hystart = HyStart::default();
        if let Some(linux) = &mut self.linux {
            **linux = OfLinux { is_paced: linux.is_paced, ..OfLinux::default() };
        }
    }
}

impl HyStart {
    /// True when the least delay of this round is clearly above that of the last.
    fn delay_increased(&mut self, ack: &AckInfo) -> bool {
        if ack.una >= self.round_end {
            self.round_end = ack.next;
            if self.this_round.get().is_some() {
                self.last_round = std::mem::take(&mut self.this_round);
            }
            self.samples = 0;
        }
        let Some(sample) = ack.sample else { return false };
        if self.samples < SAMPLES {
            self.samples += 1;
            self.this_round = self.this_round.get().map_or(sample, |least| least.min(sample)).into();
        }
        match (self.last_round.get(), self.this_round.get()) {
            (Some(last), Some(this)) if self.samples == SAMPLES => {
                this >= last + last.mul_f64(0.125).clamp(DELAY_MIN, DELAY_MAX)
            }
            _ => false,
        }
    }
}

impl OfLinux {
    /// True when the acknowledgements of this round follow each other for half of the least round-trip time, or when the round's least
    /// delay is clearly above the least of all.
    fn is_slow_start_over(&mut self, ack: &AckInfo) -> bool {
        let (Some(sample), Some(least)) = (ack.sample, self.min_rtt.get()) else { return false };
        if ack.una > self.round_end {
            self.round_end = ack.next;
            (self.round_start, self.train_at) = (ack.now, ack.now);
            self.this_round = OptionalSpan::default();
            self.samples = 0;
        }
        if ack.now.since(self.train_at) <= TRAIN_GAP {
            self.train_at = ack.now;
            let whole = least + TRAIN_DELAY;
            // What is paced is spread over the round trip anyway.
            let longest = if self.is_paced { whole } else { Span::from_nanos(whole.as_nanos() / 2) };
            if ack.now.since(self.round_start) > longest {
                return true;
            }
        }
        self.this_round.lower(Some(sample));
        if self.samples < SAMPLES {
            self.samples += 1;
            return false;
        }
        let increase = least.mul_f64(0.125).clamp(DELAY_MIN, DELAY_MAX);
        self.this_round.get().is_some_and(|this| this > least + increase)
    }
}

/// Cube root by Newton's method from a power of two: the same bits on every platform.
fn libm_cbrt(x: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    let exponent = (x.to_bits() >> 52) as i64 - 1023;
    let mut root = f64::from_bits(((exponent.div_euclid(3) + 1023) as u64) << 52);
    for _ in 0..12 {
        root = (2.0 * root + x / (root * root)) / 3.0;
    }
    root
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u64 = 1000;

    fn ack(now_ms: u64, acked: u64) -> AckInfo {
        AckInfo {
            now: Time::from_nanos(now_ms * 1_000_000),
            acked,
            mss: MSS,
            srtt: Some(Span::from_millis(100)),
            sample: Some(Span::from_millis(100)),
            next: 0,
            una: 0,
        }
    }

    #[test]
    fn cube_root() {
        for x in [1e-6, 0.3, 1.0, 7.5, 27.0, 75.0, 1e9] {
            assert!((libm_cbrt(x).powi(3) / x - 1.0).abs() < 1e-12, "{x}");
        }
    }

    /// W_max 100, cwnd 70 after a loss: K = cbrt(30 / 0.4) = 4.217 s; W_cubic(K) = W_max.
    #[test]
    fn returns_to_w_max_after_k_seconds() {
        let mut cubic = Cubic::new(&TcpSettings::default());
        let mut window = Window { cwnd: 100 * MSS, ssthresh: 50 * MSS };
        window.ssthresh = cubic.ssthresh_after_loss(&window, 100 * MSS, MSS);
        assert_eq!(window.ssthresh, 70 * MSS);
        window.cwnd = window.ssthresh;
        let mut now = 0;
        while now < 4217 {
            let info = ack(now, window.cwnd);
            cubic.on_ack(&mut window, &info);
            now += 100;
        }
        let k = cubic.avoidance.map_or(0.0, |avoidance| avoidance.k);
        assert!((k - 4.217).abs() < 0.001, "{k}");
        assert!((97 * MSS..=103 * MSS).contains(&window.cwnd), "{}", window.cwnd);
    }

    #[test]
    fn fast_convergence_releases_bandwidth() {
        let mut cubic = Cubic::new(&TcpSettings::default());
        let mut window = Window { cwnd: 100 * MSS, ssthresh: 0 };
        cubic.ssthresh_after_loss(&window, 0, MSS);
        window.cwnd = 80 * MSS;
        cubic.ssthresh_after_loss(&window, 0, MSS);
        let w_max = cubic.avoidance.map_or(0.0, |avoidance| avoidance.w_max);
        assert!((w_max - 68.0).abs() < 1e-9, "80 * (1 + 0.7) / 2 = {w_max}");
        let mut slow = Cubic::new(&TcpSettings { fast_convergence: false, ..TcpSettings::default() });
        for cwnd in [100, 80] {
            slow.ssthresh_after_loss(&Window { cwnd: cwnd * MSS, ssthresh: 0 }, 0, MSS);
        }
        assert_eq!(slow.avoidance.map_or(0.0, |avoidance| avoidance.w_max), 80.0);
    }

    fn of_linux() -> Cubic {
        Cubic::new(&TcpSettings { cubic_rules: CubicRules::Linux, ..TcpSettings::default() })
    }

    /// From a window of 100 that no loss has set RFC 9438's line grows by 1 in a round trip, Linux's window by 5. After a loss at that
    /// window the line grows by 0.53, and after a timeout the window by 5 again.
    #[test]
    fn linux_grows_by_a_twentieth_before_the_first_loss() {
        let round = |cubic: &mut Cubic| {
            let mut window = Window { cwnd: 100 * MSS, ssthresh: 50 * MSS };
            cubic.on_ack(&mut window, &ack(0, 100 * MSS));
            window.cwnd / MSS
        };
        assert_eq!(round(&mut Cubic::new(&TcpSettings::default())), 101);
        let mut cubic = of_linux();
        assert_eq!(round(&mut cubic), 105);
        cubic.ssthresh_after_loss(&Window { cwnd: 100 * MSS, ssthresh: 50 * MSS }, 0, MSS);
        assert_eq!(round(&mut cubic), 100);
        cubic.on_timeout();
        assert_eq!(round(&mut cubic), 105);
    }

    /// Equation (4) with a window of 10 at the last loss: from there on a segment per round trip, in Linux 0.53 as before.
    #[test]
    fn linux_never_grows_as_fast_as_reno() {
        let after_rounds = |mut cubic: Cubic| {
            cubic.ssthresh_after_loss(&Window { cwnd: 10 * MSS, ssthresh: 0 }, 0, MSS);
            let mut window = Window { cwnd: 10 * MSS, ssthresh: 7 * MSS };
            for _ in 0..10 {
                let acked = window.cwnd;
                cubic.on_ack(&mut window, &ack(0, acked));
            }
            window.cwnd / MSS
        };
        assert_eq!([Cubic::new(&TcpSettings::default()), of_linux()].map(after_rounds), [20, 15]);
    }

    /// Of 40 ms and the allowance of 1 ms half is 20.5 ms: the first acknowledgement after that, in a train with one each 2 ms, ends slow
    /// start. Those 3 ms apart are no train. Paced, all of the 41 ms count.
    #[test]
    fn linux_ends_slow_start_after_a_long_train() {
        let ends_at = |gap: u64, pacing: bool| {
            let settings = TcpSettings { cubic_rules: CubicRules::Linux, pacing, ..TcpSettings::default() };
            let mut cubic = Cubic::new(&settings);
            let mut window = Window { cwnd: 20 * MSS, ssthresh: u64::MAX };
            (0..30).map(|n| n * gap).find(|&millis| {
                let sample = Some(Span::from_millis(40));
                let una = MSS + millis;
                cubic.on_ack(&mut window, &AckInfo { sample, una, next: 1000 * MSS, ..ack(millis, MSS) });
                window.ssthresh < u64::MAX
            })
        };
        assert_eq!(
            [(2, false), (3, false), (2, true)].map(|(gap, pacing)| ends_at(gap, pacing)),
            [Some(22), None, Some(42)]
        );
    }

    #[test]
    fn hystart_leaves_slow_start_when_delay_grows() {
        let mut cubic = Cubic::new(&TcpSettings::default());
        let mut window = Window { cwnd: 20 * MSS, ssthresh: u64::MAX };
        let mut una = 0;
        for rtt_ms in [40u64, 80] {
            for _ in 0..8 {
                let info = AckInfo {
                    sample: Some(Span::from_millis(rtt_ms)),
                    una,
                    next: una + 20 * MSS,
                    ..ack(0, MSS)
                };
                cubic.on_ack(&mut window, &info);
                una += MSS;
            }
            una += 100 * MSS;
        }
        assert!(window.ssthresh <= window.cwnd, "{window:?}");
    }
}
