//! BIC, as Linux 2.6.18 had it: binary search for the window of the last loss.

use bandmaster_core::time::{Span, Time};

use super::{AckInfo, CongestionControl, CongestionControlDef, Window};

pub(super) static DEF: CongestionControlDef = CongestionControlDef {
    name: "bic",
    about: "Binary search for the window of the last loss; Linux's default from 2.6.8 to 2.6.18",
    source: "Xu, Harfoush, Rhee, INFOCOM 2004; parameters of Linux 2.6.18",
    build: |_| Box::new(Bic::fresh()),
};

/// Decrease, in 1024ths.
const BETA: u64 = 819;
/// The search goes on by a fourth of the distance.
const SEARCH: u64 = 4;
/// Largest increase per round-trip time in segments.
const MAX_INCREMENT: u64 = 16;
/// Up to this window, Reno.
const LOW_WINDOW: u64 = 14;
/// Near the last maximum a segment takes this over `SEARCH` round-trip times.
const SMOOTH: u64 = 20;
/// Where slow start ends before there has been a loss, in segments.
const INITIAL_SSTHRESH: u64 = 100;
/// Before the first loss, a segment takes at most so many acknowledgements: 5 % per round-trip time.
const FIRST_COUNT: u64 = 20;
/// Least time between two looks at an unchanged window.
const LOOK: Span = Span::from_nanos(31_250_000);
/// Binary places of the estimate of segments per acknowledgement.
const RATIO_SHIFT: u32 = 4;

/// All windows in segments.
struct Bic {
    /// Window at the last loss, or below it after two in short order.
    last_max: u64,
    /// There has been a loss.
    has_lost: bool,
    last_window: u64,
    last_look: Option<Time>,
    /// Acknowledgements that a segment of growth takes.
    count: u64,
    acks: u64,
    /// Segments per acknowledgement.
    ratio: u64,
}

impl Bic {
    fn fresh() -> Self {
        Self {
            last_max: 0,
            has_lost: false,
            last_window: 0,
            last_look: None,
            count: 0,
            acks: 0,
            ratio: 2 << RATIO_SHIFT,
        }
    }

    fn update(&mut self, now: Time, window: u64) {
        if self.last_window == window && self.last_look.is_some_and(|last| now.since(last) <= LOOK) {
            return;
        }
        self.last_window = window;
        self.last_look = Some(now);
        if window <= LOW_WINDOW {
            self.count = window;
            return;
        }
        let mut count = if window < self.last_max {
            let distance = (self.last_max - window) / SEARCH;
            if distance > MAX_INCREMENT {
                window / MAX_INCREMENT
            } else if distance <= 1 {
                window * SMOOTH / SEARCH
            } else {
                window / distance
            }
        } else if window < self.last_max + SEARCH {
            window * SMOOTH / SEARCH
        } else if window < self.last_max + MAX_INCREMENT * (SEARCH - 1) {
            window * (SEARCH - 1) / (window - self.last_max)
        } else {
            window / MAX_INCREMENT
        };
        if !self.has_lost {
            count = count.min(FIRST_COUNT);
        }
        self.count = ((count << RATIO_SHIFT) / self.ratio.max(1)).max(1);
    }
}

impl CongestionControl for Bic {
    fn on_ack(&mut self, window: &mut Window, ack: &AckInfo) {
        if window.ssthresh == u64::MAX {
            window.ssthresh = INITIAL_SSTHRESH * ack.mss;
        }
        let segments = ack.acked / ack.mss;
        if segments > 0 {
            self.ratio = (self.ratio + segments).saturating_sub(self.ratio >> RATIO_SHIFT);
        }
        if window.cwnd <= window.ssthresh {
            window.cwnd += ack.mss;
            return;
        }
        self.update(ack.now, window.cwnd / ack.mss);
        if self.acks >= self.count {
            window.cwnd += ack.mss;
            self.acks = 0;
        } else {
            self.acks += 1;
        }
    }

    fn ssthresh_after_loss(&mut self, window: &Window, _in_flight: u64, mss: u64) -> u64 {
        let cwnd = window.cwnd / mss;
        // Fast convergence.
        self.last_max =
            if self.has_lost && cwnd < self.last_max { cwnd * (1024 + BETA) / 2048 } else { cwnd };
        self.has_lost = true;
        let left = if cwnd <= LOW_WINDOW { cwnd / 2 } else { cwnd * BETA / 1024 };
        left.max(2) * mss
    }

    fn on_timeout(&mut self) {
        *self = Self { ratio: self.ratio, has_lost: self.has_lost, ..Self::fresh() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u64 = 1000;

    /// Acknowledges every segment separately, in round-trip times of 40 ms; returns the window after each.
    fn rounds(control: &mut Bic, window: &mut Window, from: u64, rounds: u64) -> Vec<u64> {
        let mut windows = Vec::new();
        for round in from..from + rounds {
            let now = Time::ZERO + Span::from_millis(40 * round);
            for _ in 0..window.cwnd / MSS {
                let ack = AckInfo { now, acked: MSS, mss: MSS, srtt: None, sample: None, next: 0, una: 0 };
                control.on_ack(window, &ack);
            }
            windows.push(window.cwnd / MSS);
        }
        windows
    }

    #[test]
    fn slow_start_ends_at_a_hundred_segments() {
        let mut window = Window { cwnd: 3 * MSS, ssthresh: u64::MAX };
        let windows = rounds(&mut Bic::fresh(), &mut window, 0, 6);
        assert_eq!(windows[..5], [6, 12, 24, 48, 96]);
        // The estimate of segments per acknowledgement falls from 2 to 31/16 and stays, as integers do: beyond 100 a
        // segment takes 6 x 16 / 31 = 3 acknowledgements and the one that grows.
        assert!((122..=124).contains(&windows[5]), "{windows:?}");
    }

    #[test]
    fn the_search_is_linear_far_from_the_last_maximum_and_slow_near_it() {
        let mut control = Bic::fresh();
        let mut window = Window { cwnd: 500 * MSS, ssthresh: u64::MAX };
        window.ssthresh = control.ssthresh_after_loss(&window, 0, MSS);
        assert_eq!(window.ssthresh / MSS, 500 * 819 / 1024);
        window.cwnd = window.ssthresh + MSS;
        control.ratio = 1 << RATIO_SHIFT;
        let windows = rounds(&mut control, &mut window, 0, 60);
        let steps: Vec<u64> = windows.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!((12..=16).contains(&steps[0]), "far from the maximum: {steps:?}");
        let near = windows.iter().position(|window| (497..500).contains(window)).expect("it comes near");
        assert!(steps[near] <= 1, "near the maximum: {steps:?}");
        assert!(*windows.last().expect("rounds") > 500, "it goes on beyond: {windows:?}");
    }

    #[test]
    fn a_second_loss_below_the_maximum_gives_room_to_others() {
        let mut control = Bic::fresh();
        let window = |segments: u64| Window { cwnd: segments * MSS, ssthresh: u64::MAX };
        control.ssthresh_after_loss(&window(100), 0, MSS);
        control.ssthresh_after_loss(&window(90), 0, MSS);
        assert_eq!(control.last_max, 90 * (1024 + 819) / 2048);
        assert_eq!(control.ssthresh_after_loss(&window(14), 0, MSS), 7 * MSS);
        assert_eq!(control.ssthresh_after_loss(&window(3), 0, MSS), 2 * MSS);
    }
}
