//! Reno (4.3BSD-Reno; RFC 2581): fast recovery that the first acknowledgement of new data ends.
//!
//! Without RFC 6582 nothing remembers which window a loss was in: further losses of the same window are found by
//! duplicates anew, halving each time, or by the timer (Fall and Floyd 1996).

use bandmaster_core::scenario::TcpSettings;

use super::{
    AckInfo, CongestionControl, CongestionControlDef, FastRecovery, Window, additive_increase,
    half_in_segments,
};

pub(super) static DEF: CongestionControlDef = CongestionControlDef {
    name: "reno",
    about: "Additive increase by a segment per RTT, halving per loss, one loss per recovery",
    source: "RFC 2581; Fall and Floyd 1996",
    build: |settings| Box::new(Reno::new(settings)),
};

struct Reno {
    byte_counting: bool,
}

impl Reno {
    fn new(settings: &TcpSettings) -> Self {
        Self { byte_counting: settings.byte_counting }
    }
}

impl CongestionControl for Reno {
    fn on_ack(&mut self, window: &mut Window, ack: &AckInfo) {
        additive_increase(window, ack, self.byte_counting);
    }

    fn ssthresh_after_loss(&mut self, window: &Window, in_flight: u64, mss: u64) -> u64 {
        half_in_segments(window, in_flight, mss)
    }

    fn halves_outstanding(&self) -> bool {
        true
    }

    fn fast_recovery(&self) -> FastRecovery {
        FastRecovery::UntilProgress
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u64 = 1000;

    /// Fall and Floyd 1996, fig. 3: 15 becomes 7, and 3 with the second loss, however much is outstanding then.
    #[test]
    fn two_losses_of_a_window_halve_it_twice() {
        let mut reno = Reno::new(&TcpSettings::default());
        let mut window = Window { cwnd: 15 * MSS, ssthresh: u64::MAX };
        for (outstanding, left) in [(15, 7), (12, 3), (12, 2)] {
            window.ssthresh = reno.ssthresh_after_loss(&window, outstanding * MSS, MSS);
            window.cwnd = window.ssthresh;
            assert_eq!(window.cwnd, left * MSS);
        }
    }
}
