//! Reno (4.3BSD-Reno; RFC 2581): fast recovery that the first acknowledgement of new data ends.
//!
//! Without RFC 6582 nothing remembers which window a loss was in. New duplicates find further losses of the same window
//! and halve the window each time, or the timer finds them (Fall and Floyd 1996).

use super::{Additive, CongestionControlDef, FastRecovery};

pub(super) static DEF: CongestionControlDef = CongestionControlDef {
    name: "reno",
    about: "Additive increase by a segment per RTT, halving per loss, one loss per recovery",
    source: "RFC 2581; Fall and Floyd 1996",
    build: |settings| Box::new(Additive::new(settings, Some(FastRecovery::UntilProgress))),
};

#[cfg(test)]
mod tests {
    use bandmaster_core::scenario::TcpSettings;

    use super::super::{CongestionControl, Window};
    use super::*;

    const MSS: u64 = 1000;

    /// Fall and Floyd 1996, fig. 3: 15 becomes 7, and 3 with the second loss, however much is outstanding then.
    #[test]
    fn two_losses_of_a_window_halve_it_twice() {
        let mut reno = Additive::new(&TcpSettings::default(), Some(FastRecovery::UntilProgress));
        let mut window = Window { cwnd: 15 * MSS, ssthresh: u64::MAX };
        for (outstanding, left) in [(15, 7), (12, 3), (12, 2)] {
            window.ssthresh = reno.ssthresh_after_loss(&window, outstanding * MSS, MSS);
            window.cwnd = window.ssthresh;
            assert_eq!(window.cwnd, left * MSS);
        }
    }
}
