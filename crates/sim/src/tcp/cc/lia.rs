//! Linked increases for multipath TCP (RFC 6356).

use super::{CongestionControlDef, Coupled};
use crate::tcp::multipath::PathState;

pub(super) static DEF: CongestionControlDef = CongestionControlDef {
    name: "lia",
    about: "Multipath: together as aggressive as one TCP on the best path, more on less congested paths",
    source: "RFC 6356",
    build: |settings| Coupled::boxed(settings, increase, |_, _| 0.5),
};

/// Growth of subflow `at` in bytes for `acked` bytes (section 3, and equation 1 for alpha).
fn increase(paths: &[PathState], at: usize, window: u64, acked: u64, mss: u64) -> f64 {
    let alone = acked as f64 * mss as f64 / window as f64;
    let total: f64 = paths.iter().map(|p| p.cwnd as f64).sum();
    let best = paths.iter().map(|p| p.rate() * p.rate() / (p.cwnd as f64).max(1.0)).fold(0.0, f64::max);
    let sum: f64 = paths.iter().map(PathState::rate).sum();
    if sum == 0.0 || paths[at].cwnd == 0 {
        return alone;
    }
    let alpha = total * best / (sum * sum);
    (alpha * acked as f64 * mss as f64 / total).min(alone)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bandmaster_core::time::Span;

    fn path(segments: u64, rtt_ms: u64) -> PathState {
        PathState { cwnd: segments * 1000, srtt: Some(Span::from_millis(rtt_ms)), ..PathState::default() }
    }

    /// Section 3: with equal windows and round-trip times alpha is 1/n, so a segment grows each of two windows by a quarter
    /// of what TCP would grow one.
    #[test]
    fn equal_paths_grow_by_a_quarter_each() {
        let paths = [path(10, 20), path(10, 20)];
        assert!((increase(&paths, 0, 10_000, 1000, 1000) - 25.0).abs() < 1e-9);
    }

    /// By hand: windows 10 and 40, round-trips 10 and 100 ms: rates 1000 and 400 per s; alpha = 50 x (10 / 0.01^2) / 1400^2
    /// = 2.551; alpha / 50 = 0.05102 and 1/10 = 0.1: the first path grows by 0.05102 segments, the second by min(.., 1/40).
    #[test]
    fn alpha_follows_equation_1_and_no_path_outgrows_tcp() {
        let paths = [path(10, 10), path(40, 100)];
        assert!((increase(&paths, 0, 10_000, 1000, 1000) - 51.02).abs() < 0.01);
        assert!((increase(&paths, 1, 40_000, 1000, 1000) - 25.0).abs() < 1e-9);
    }
}
