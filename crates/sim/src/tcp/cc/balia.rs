//! Balanced linked adaptation for multipath TCP (Peng, Walid, Hwang, Low 2016).

use super::{CongestionControlDef, Coupled};
use crate::tcp::multipath::PathState;

pub(super) static DEF: CongestionControlDef = CongestionControlDef {
    name: "balia",
    about: "Multipath: balances friendliness to TCP against responsiveness",
    source: "Peng, Walid, Hwang, Low: Multipath TCP: Analysis, Design, and Implementation, IEEE/ACM ToN 24(1), 2016",
    build: |settings| Coupled::boxed(settings, increase, left),
};

/// Rate of the fastest path over that of path `at`.
fn alpha(paths: &[PathState], at: usize) -> f64 {
    let fastest = paths.iter().map(PathState::rate).fold(0.0, f64::max);
    paths.get(at).map(PathState::rate).filter(|&rate| rate > 0.0).map_or(1.0, |rate| fastest / rate)
}

/// Growth of subflow `at` in bytes for `acked` bytes.
fn increase(paths: &[PathState], at: usize, window: u64, acked: u64, mss: u64) -> f64 {
    let scale = acked as f64 * mss as f64;
    let sum: f64 = paths.iter().map(PathState::rate).sum();
    if sum == 0.0 || paths[at].cwnd == 0 {
        return scale / window as f64;
    }
    let own = &paths[at];
    let alpha = alpha(paths, at);
    let coupled = own.rate() * own.rate() / (own.cwnd as f64 * sum * sum);
    scale * coupled * ((1.0 + alpha) / 2.0) * ((4.0 + alpha) / 5.0)
}

/// A loss takes half of the flight times min(alpha, 1.5).
fn left(paths: &[PathState], at: usize) -> f64 {
    1.0 - alpha(paths, at).min(1.5) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use bandmaster_core::time::Span;

    fn path(segments: u64, rtt_ms: u64) -> PathState {
        PathState { cwnd: segments * 1000, srtt: Some(Span::from_millis(rtt_ms)), ..PathState::default() }
    }

    #[test]
    fn equal_paths_grow_by_a_quarter_each() {
        let paths = [path(10, 20), path(10, 20)];
        assert!((increase(&paths, 0, 10_000, 1000, 1000) - 25.0).abs() < 1e-9);
    }

    /// By hand: windows 10 and 5 at 10 ms: alpha of the second is 2; x / (rtt (sum x)^2) = 5 / 15^2; times 3/2 times 6/5.
    #[test]
    fn the_slower_path_grows_by_the_papers_rule() {
        let paths = [path(10, 10), path(5, 10)];
        assert_eq!(alpha(&paths, 1), 2.0);
        let expected = 1000.0 * 5.0 / 225.0 * 1.5 * 1.2;
        assert!((increase(&paths, 1, 5_000, 1000, 1000) - expected).abs() < 1e-6);
    }
}
