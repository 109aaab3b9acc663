//! Tahoe (Jacobson 1988; 4.3BSD-Tahoe): fast retransmit, then slow start.

use super::{Additive, CongestionControlDef, FastRecovery};

pub(super) static DEF: CongestionControlDef = CongestionControlDef {
    name: "tahoe",
    about: "Additive increase by a segment per RTT, slow start after every loss",
    source: "Jacobson 1988; ns-2, Agent/TCP",
    build: |settings| Box::new(Additive::new(settings, Some(FastRecovery::None))),
};

#[cfg(test)]
mod tests {
    use bandmaster_core::scenario::TcpSettings;

    use super::super::{CongestionControl, Window};
    use super::*;

    const MSS: u64 = 1000;

    /// 4.3BSD: `win = min(snd_wnd, snd_cwnd) / 2 / maxseg`, at least 2.
    #[test]
    fn ssthresh_is_half_the_window_in_whole_segments() {
        let mut tahoe = Additive::new(&TcpSettings::default(), Some(FastRecovery::None));
        let mut after = |cwnd: u64, outstanding: u64| {
            let window = Window { cwnd: cwnd * MSS, ssthresh: u64::MAX };
            tahoe.ssthresh_after_loss(&window, outstanding * MSS, MSS)
        };
        assert_eq!(after(15, 15), 7 * MSS, "Fall and Floyd 1996: 15 becomes 7");
        assert_eq!(after(15, 17), 7 * MSS, "limited transmit does not count");
        assert_eq!(after(30, 15), 7 * MSS, "the receiver's window was the limit");
        assert_eq!(after(3, 3), 2 * MSS);
        assert_eq!(after(1, 1), 2 * MSS);
    }
}
