//! Opportunistic linked increases for multipath TCP (Khalili et al. 2013).

use super::{CongestionControlDef, Coupled};
use crate::tcp::multipath::PathState;

pub(super) static DEF: CongestionControlDef = CongestionControlDef {
    name: "olia",
    about: "Multipath: Pareto-optimal; uses the best paths only, and moves window to good paths that have little",
    source: "Khalili, Gast, Popovic, Le Boudec: MPTCP Is Not Pareto-Optimal, IEEE/ACM ToN 21(5), 2013",
    build: |settings| Coupled::boxed(settings, increase, |_, _| 0.5),
};

/// Growth of subflow `at` in bytes for `acked` bytes (equations 5 and 6).
fn increase(paths: &[PathState], at: usize, window: u64, acked: u64, mss: u64) -> f64 {
    let sum: f64 = paths.iter().map(PathState::rate).sum();
    let scale = acked as f64 * mss as f64;
    if sum == 0.0 || paths[at].cwnd == 0 {
        return scale / window as f64;
    }
    let own = &paths[at];
    let coupled = own.rate() * own.rate() / (own.cwnd as f64 * sum * sum);
    scale * (coupled + alpha(paths, at) / window as f64)
}

/// Equation 6: what moves from the paths with the largest windows to the best ones that are not among them.
fn alpha(paths: &[PathState], at: usize) -> f64 {
    let is_used = |p: &&PathState| p.cwnd > 0;
    let used = paths.iter().filter(is_used).count() as f64;
    // Square of the bytes between losses over the round-trip time: 1 / (p rtt)^2 up to the power of the paper's draft.
    let quality = |p: &PathState| {
        let bytes = p.since_loss.max(p.between_losses) as f64;
        p.srtt.map_or(0.0, |srtt| bytes * bytes / srtt.as_secs_f64().max(1e-9))
    };
    let best = paths.iter().map(quality).fold(0.0, f64::max);
    let largest = paths.iter().map(|p| p.cwnd).max().unwrap_or(0);
    let is_best = |p: &PathState| p.cwnd > 0 && quality(p) >= best;
    let is_largest = |p: &PathState| p.cwnd >= largest;
    let collected = paths.iter().filter(|p| is_best(p) && !is_largest(p)).count() as f64;
    let own = &paths[at];
    if collected == 0.0 {
        0.0
    } else if is_best(own) && !is_largest(own) {
        1.0 / (used * collected)
    } else if is_largest(own) {
        -1.0 / (used * paths.iter().filter(|p| is_largest(p)).count() as f64)
    } else {
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bandmaster_core::time::Span;

    fn path(segments: u64, since_loss: u64) -> PathState {
        let srtt = Some(Span::from_millis(10));
        PathState { cwnd: segments * 1000, srtt, since_loss, between_losses: 0 }
    }

    /// Equation 6 for a best path with the smaller window: it gets 1 / 2, the larger one pays as much.
    #[test]
    fn window_moves_to_the_best_path_that_has_little() {
        let paths = [path(2, 90_000), path(8, 10_000)];
        assert_eq!((alpha(&paths, 0), alpha(&paths, 1)), (0.5, -0.5));
        // The best path has the largest window: nothing moves.
        let paths = [path(8, 90_000), path(2, 10_000)];
        assert_eq!((alpha(&paths, 0), alpha(&paths, 1)), (0.0, 0.0));
    }

    /// Equation 5 with equal paths: w / rtt^2 over (2 w / rtt)^2 is 1 / 4w.
    #[test]
    fn equal_paths_grow_by_a_quarter_each() {
        let paths = [path(10, 5), path(10, 5)];
        assert!((increase(&paths, 0, 10_000, 1000, 1000) - 25.0).abs() < 1e-9);
    }
}
