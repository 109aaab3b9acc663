//! The window of RFC 5681.

use super::{Additive, CongestionControlDef, with_hystart};

pub(super) static DEF: CongestionControlDef = CongestionControlDef {
    name: "newreno",
    about: "Additive increase by a segment per RTT, halving on loss",
    source: "RFC 5681, RFC 6582",
    build: |settings| with_hystart(settings, Additive::new(settings, None)),
};

#[cfg(test)]
mod tests {
    use super::super::{AckInfo, CongestionControl, Window};
    use super::*;
    use bandmaster_core::time::Time;

    const MSS: u64 = 1000;

    fn ack(acked: u64) -> AckInfo {
        AckInfo { now: Time::ZERO, acked, mss: MSS, srtt: None, sample: None, next: 0, una: 0 }
    }

    fn control(byte_counting: bool) -> Additive {
        Additive { byte_counting, bsd: None }
    }

    #[test]
    fn slow_start_counts_acks_or_bytes() {
        let mut window = Window { cwnd: 10 * MSS, ssthresh: u64::MAX };
        control(false).on_ack(&mut window, &ack(2 * MSS));
        assert_eq!(window.cwnd, 11 * MSS);
        control(true).on_ack(&mut window, &ack(2 * MSS));
        assert_eq!(window.cwnd, 13 * MSS);
    }

    #[test]
    fn avoidance_adds_a_segment_per_window() {
        let mut window = Window { cwnd: 10 * MSS, ssthresh: 5 * MSS };
        for _ in 0..10 {
            control(true).on_ack(&mut window, &ack(MSS));
        }
        // 10 increments of MSS^2 / cwnd with cwnd growing from 10 to 11 segments.
        assert!((10_950..=11_000).contains(&window.cwnd), "{}", window.cwnd);
    }

    #[test]
    fn loss_halves_the_flight_but_not_below_two_segments() {
        let window = Window { cwnd: 20 * MSS, ssthresh: u64::MAX };
        assert_eq!(control(true).ssthresh_after_loss(&window, 16 * MSS, MSS), 8 * MSS);
        assert_eq!(control(true).ssthresh_after_loss(&window, 3 * MSS, MSS), 2 * MSS);
    }
}
