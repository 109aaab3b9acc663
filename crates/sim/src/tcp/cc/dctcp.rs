//! Data center TCP (RFC 8257): the window falls by half of the share of bytes that were marked.

use bandmaster_core::scenario::TcpSettings;

use super::{
    AckInfo, CongestionControl, CongestionControlDef, Echo, Window, additive_increase, half_of_flight,
};

pub(super) static DEF: CongestionControlDef = CongestionControlDef {
    name: "dctcp",
    about: "Reduces the window by the share of marked bytes; for short queues that mark above a threshold",
    source: "RFC 8257",
    build: |settings| Box::new(Dctcp::new(settings)),
};

/// Section 4.2: estimation gain.
const GAIN: f64 = 1.0 / 16.0;

struct Dctcp {
    byte_counting: bool,
    /// DCTCP.Alpha; section 4.3: starts at 1.
    alpha: f64,
    acked: u64,
    marked: u64,
    window_end: u64,
}

impl Dctcp {
    fn new(settings: &TcpSettings) -> Self {
        Self { byte_counting: settings.byte_counting, alpha: 1.0, acked: 0, marked: 0, window_end: 0 }
    }
}

impl CongestionControl for Dctcp {
    fn on_ack(&mut self, window: &mut Window, ack: &AckInfo) {
        additive_increase(window, ack, self.byte_counting);
    }

    /// Section 3.3: once per window of data.
    fn on_echo(&mut self, echo: &Echo) {
        self.acked += echo.acked;
        self.marked += if echo.marked { echo.acked } else { 0 };
        if echo.una > self.window_end {
            let share = self.marked as f64 / self.acked.max(1) as f64;
            self.alpha = self.alpha * (1.0 - GAIN) + GAIN * share;
            (self.acked, self.marked, self.window_end) = (0, 0, echo.next);
        }
    }

    /// Section 3.5: as RFC 5681.
    fn ssthresh_after_loss(&mut self, _window: &Window, in_flight: u64, mss: u64) -> u64 {
        half_of_flight(in_flight, mss)
    }

    fn ssthresh_after_mark(&mut self, window: &Window, _in_flight: u64, mss: u64) -> u64 {
        ((window.cwnd as f64 * (1.0 - self.alpha / 2.0)) as u64).max(2 * mss)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Alpha moves by a sixteenth of the way to the marked share, once per window, and the window falls by half of it.
    #[test]
    fn alpha_follows_the_share_of_marked_bytes() {
        let mut control = Dctcp { alpha: 0.0, ..Dctcp::new(&TcpSettings::default()) };
        let echo = |acked, marked, una| Echo { acked, marked, una, next: una + 10_000 };
        control.on_echo(&echo(1000, false, 1000));
        assert_eq!(control.alpha, 0.0);
        control.on_echo(&echo(5000, true, 6000));
        control.on_echo(&echo(5000, false, 11_000));
        assert_eq!(control.alpha, 0.0, "the window that began at 1000 ends beyond 11000");
        control.on_echo(&echo(10_000, true, 11_001));
        let expected = 15_000.0 / 20_000.0 / 16.0;
        assert!((control.alpha - expected).abs() < 1e-12, "{}", control.alpha);
        control.alpha = 0.5;
        let window = Window { cwnd: 40_000, ssthresh: 1 };
        assert_eq!(control.ssthresh_after_mark(&window, 0, 1000), 30_000);
    }
}
