//! HyStart++ (RFC 9406): growing delay ends slow start by way of a conservative one, which ends again if the delay falls.

use bandmaster_core::time::Span;

use super::super::rtt::OptionalSpan;
use super::{AckInfo, CongestionControl, Echo, FastRecovery, Window};

/// Section 4.3: bounds of the delay increase that begins conservative slow start (MIN_RTT_THRESH, MAX_RTT_THRESH), and its share of
/// the round-trip time (MIN_RTT_DIVISOR).
const DELAY_MIN: Span = Span::from_millis(4);
const DELAY_MAX: Span = Span::from_millis(16);
const DELAY_SHARE: f64 = 1.0 / 8.0;
/// Samples per round (N_RTT_SAMPLE).
const SAMPLES: u32 = 8;
/// Conservative slow start grows by so small a part (CSS_GROWTH_DIVISOR), for so many rounds (CSS_ROUNDS).
const GROWTH_DIVISOR: u64 = 4;
const ROUNDS: u32 = 5;
/// The most segments of an acknowledgement that count, unless segments are paced (L).
const LIMIT: u64 = 8;

/// A congestion control whose first slow start is that of HyStart++. The RFC recommends it for the first one only.
pub(super) struct HyStartPlusPlus<C> {
    inner: C,
    byte_counting: bool,
    is_paced: bool,
    round_end: u64,
    last_round: OptionalSpan,
    this_round: OptionalSpan,
    samples: u32,
    conservative: Option<Conservative>,
}

/// Conservative slow start.
struct Conservative {
    /// The least round-trip time at its start (cssBaselineMinRtt).
    baseline: Span,
    /// Rounds that have begun, the one of its start included.
    rounds: u32,
}

impl<C> HyStartPlusPlus<C> {
    pub(super) fn new(inner: C, byte_counting: bool, is_paced: bool) -> Self {
        Self {
            inner,
            byte_counting,
            is_paced,
            round_end: 0,
            last_round: OptionalSpan::default(),
            this_round: OptionalSpan::default(),
            samples: 0,
            conservative: None,
        }
    }

    /// Section 4.2: an acknowledgement in slow start. True when congestion avoidance begins.
    fn take_sample(&mut self, ack: &AckInfo) -> bool {
        if ack.una >= self.round_end {
            self.round_end = ack.next;
            self.last_round = std::mem::take(&mut self.this_round);
            self.samples = 0;
            if let Some(conservative) = &mut self.conservative {
                conservative.rounds += 1;
                if conservative.rounds > ROUNDS {
                    return true;
                }
            }
        }
        let Some(sample) = ack.sample else { return false };
        self.samples += 1;
        let this = self.this_round.get().map_or(sample, |least| least.min(sample));
        self.this_round = this.into();
        if self.samples < SAMPLES {
            return false;
        }
        match (&self.conservative, self.last_round.get()) {
            (Some(Conservative { baseline, .. }), _) if this < *baseline => self.conservative = None,
            (None, Some(last)) if this >= last + last.mul_f64(DELAY_SHARE).clamp(DELAY_MIN, DELAY_MAX) => {
                self.conservative = Some(Conservative { baseline: this, rounds: 1 });
            }
            _ => {}
        }
        false
    }
}

impl<C: CongestionControl> CongestionControl for HyStartPlusPlus<C> {
    fn on_ack(&mut self, window: &mut Window, ack: &AckInfo) {
        if window.ssthresh != u64::MAX {
            self.inner.on_ack(window, ack);
            return;
        }
        if self.take_sample(ack) {
            window.ssthresh = window.cwnd;
            self.inner.on_ack(window, ack);
            return;
        }
        let counted = if self.byte_counting { ack.acked } else { ack.acked.min(ack.mss) };
        let counted = if self.is_paced { counted } else { counted.min(LIMIT * ack.mss) };
        let divisor = if self.conservative.is_some() { GROWTH_DIVISOR } else { 1 };
        window.cwnd += counted / divisor;
    }

    fn ssthresh_after_loss(&mut self, window: &Window, in_flight: u64, mss: u64) -> u64 {
        self.inner.ssthresh_after_loss(window, in_flight, mss)
    }

    fn ssthresh_after_mark(&mut self, window: &Window, in_flight: u64, mss: u64) -> u64 {
        self.inner.ssthresh_after_mark(window, in_flight, mss)
    }

    fn tells_marks_from_losses(&self) -> bool {
        self.inner.tells_marks_from_losses()
    }

    fn on_echo(&mut self, echo: &Echo) {
        self.inner.on_echo(echo);
    }

    fn halves_outstanding(&self) -> bool {
        self.inner.halves_outstanding()
    }

    fn fast_recovery(&self) -> FastRecovery {
        self.inner.fast_recovery()
    }

    fn on_timeout(&mut self) {
        self.inner.on_timeout();
    }
}

#[cfg(test)]
mod tests {
    use bandmaster_core::scenario::TcpSettings;
    use bandmaster_core::time::Time;

    use super::super::Additive;
    use super::*;

    const MSS: u64 = 1000;

    struct Flow {
        control: HyStartPlusPlus<Additive>,
        window: Window,
        una: u64,
    }

    impl Flow {
        fn new() -> Self {
            let inner = Additive::new(&TcpSettings::default(), None);
            let window = Window { cwnd: 10 * MSS, ssthresh: u64::MAX };
            Self { control: HyStartPlusPlus::new(inner, true, false), window, una: 0 }
        }

        /// A round of so many milliseconds: an acknowledgement for each segment of its window. The growth of the window.
        fn round(&mut self, millis: u64) -> f64 {
            let before = self.window.cwnd;
            let end = self.una + before;
            while self.una < end {
                let ack = AckInfo {
                    now: Time::ZERO,
                    acked: MSS,
                    mss: MSS,
                    srtt: None,
                    sample: Some(Span::from_millis(millis)),
                    next: end,
                    una: self.una,
                };
                self.control.on_ack(&mut self.window, &ack);
                self.una += MSS;
            }
            self.una = end;
            self.window.cwnd as f64 / before as f64
        }

        fn is_slow_start(&self) -> bool {
            self.window.ssthresh == u64::MAX
        }
    }

    /// Section 4.2: 40 ms and an eighth are 45 ms. Five rounds later, the round of the increase included, congestion avoidance begins.
    #[test]
    fn conservative_slow_start_lasts_five_rounds() {
        let mut flow = Flow::new();
        assert_eq!([flow.round(40), flow.round(44)], [2.0, 2.0], "44 ms are not enough");
        assert!(
            (1.3..1.6).contains(&flow.round(50)),
            "seven acknowledgements of forty come before the eighth sample"
        );
        for _ in 0..4 {
            let growth = flow.round(50);
            assert!(flow.is_slow_start() && (1.24..1.26).contains(&growth), "{growth}");
        }
        assert!(flow.round(50) < 1.02);
        assert!(!flow.is_slow_start());
    }

    /// Section 4.2: a delay that falls below that at the start of conservative slow start shows that it was jitter.
    #[test]
    fn slow_start_resumes_when_the_delay_falls() {
        let mut flow = Flow::new();
        let growths = [flow.round(40), flow.round(60), flow.round(60), flow.round(50), flow.round(50)];
        // Of twenty acknowledgements seven come before the eighth sample: 7 and 13 quarters.
        assert!((1.51..1.52).contains(&growths[1]) && (1.24..1.26).contains(&growths[2]), "{growths:?}");
        assert!(growths[3] > 1.7 && (1.99..2.01).contains(&growths[4]), "{growths:?}");
        assert!(flow.is_slow_start());
    }

    /// Section 4.3: without pacing an acknowledgement counts for eight segments at most.
    #[test]
    fn stretched_acknowledgements_count_for_eight_segments() {
        for (is_paced, growth) in [(false, 8), (true, 20)] {
            let mut flow = Flow::new();
            flow.control.is_paced = is_paced;
            let ack = AckInfo {
                now: Time::ZERO,
                acked: 20 * MSS,
                mss: MSS,
                srtt: None,
                sample: None,
                next: 0,
                una: 0,
            };
            flow.control.on_ack(&mut flow.window, &ack);
            assert_eq!(flow.window.cwnd, (10 + growth) * MSS);
        }
    }
}
