//! The equations of BAS as plain functions. Rates are in bit/s on the link, headers included.

use crate::params::choice;
use crate::time::Span;
use crate::units::{Bytes, Rate};

/// Fair share A_f: the least C_l / n_l over the links of the flow, and that link. `links` gives (capacity, flows).
pub fn fair_share(links: impl IntoIterator<Item = (Rate, u32)>) -> Option<(f64, usize)> {
    let share = |(at, (capacity, flows)): (usize, (Rate, u32))| {
        (capacity.bits_per_sec() as f64 / f64::from(flows.max(1)), at)
    };
    links.into_iter().enumerate().map(share).min_by(|a, b| a.0.total_cmp(&b.0))
}

choice! {
    /// The test for a flow that does not use its share.
    pub enum UnderUse {
        /// E < beta A: what the results of Sect. 5.4 need.
        BelowShare = "below-share",
        /// E beta < A, as Sect. 3 prints.
        AsPrinted = "as-printed",
    }
}

impl UnderUse {
    /// True when a flow of smoothed throughput `used` under-uses `share`.
    pub fn test(self, used: f64, share: f64, beta: f64) -> bool {
        match self {
            Self::BelowShare => used < beta * share,
            Self::AsPrinted => used * beta < share,
        }
    }
}

choice! {
    /// Flows among which spare bandwidth is shared.
    pub enum Scope {
        /// Flows with the same bottleneck.
        BottleneckLink = "bottleneck-link",
        /// Flows that enter the data centre by the same router.
        EdgeRouter = "edge-router",
    }
}

/// One flow for [`reallocate`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Claimant {
    /// Flows of one scope share their spare bandwidth.
    pub scope: u32,
    /// A_f.
    pub share: f64,
    /// E_f when the flow under-uses its share.
    pub unused_at: Option<f64>,
}

/// Rates after reallocation: under-users keep A_f; what they leave, sum of (A_f - E_f), is divided equally over the
/// other flows of the scope.
pub fn reallocate(flows: &[Claimant]) -> Vec<f64> {
    let spare_of = |scope: u32| -> f64 {
        flows
            .iter()
            .filter(|f| f.scope == scope)
            .filter_map(|f| Some((f.share - f.unused_at?).max(0.0)))
            .sum()
    };
    let mut scopes: Vec<u32> = flows.iter().map(|f| f.scope).collect();
    scopes.sort_unstable();
    scopes.dedup();
    let bonus: Vec<(u32, f64)> = scopes
        .into_iter()
        .map(|scope| {
            let users = flows.iter().filter(|f| f.scope == scope && f.unused_at.is_none()).count();
            (scope, if users == 0 { 0.0 } else { spare_of(scope) / users as f64 })
        })
        .collect();
    let rate = |flow: &Claimant| {
        let own = bonus.iter().find(|(scope, _)| *scope == flow.scope).map_or(0.0, |(_, bonus)| *bonus);
        flow.share + if flow.unused_at.is_none() { own } else { 0.0 }
    };
    flows.iter().map(rate).collect()
}

choice! {
    /// How a window becomes whole segments.
    pub enum Rounding {
        /// Up.
        Up = "up",
        /// To the nearest.
        Nearest = "nearest",
        /// Down.
        Down = "down",
    }
}

/// Window W_f = rate RTT in whole segments, at least one; `mss` bytes of payload take `frame` bytes on the link.
pub fn window(rate: f64, rtt: Span, mss: Bytes, frame: Bytes, rounding: Rounding) -> Bytes {
    let segments = rate * rtt.as_secs_f64() / (8.0 * frame.get() as f64);
    let whole = match rounding {
        // A product that is whole but for rounding error stays as it is.
        Rounding::Up => libm::ceil(segments - 1e-9),
        Rounding::Nearest => libm::round(segments),
        Rounding::Down => libm::floor(segments + 1e-9),
    };
    Bytes::new((whole.max(1.0) as u64).saturating_mul(mss.get()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mbit(n: u64) -> Rate {
        Rate::from_bits_per_sec(n * 1_000_000)
    }

    /// Sect. 3: 100 Mb/s over 32 flows is 3.125 Mb/s; a 100 Mb/s link with 8 flows would give 12.5.
    #[test]
    fn fair_share_is_the_least_over_the_path() {
        assert_eq!(fair_share([(mbit(100), 8), (mbit(100), 32)]), Some((3_125_000.0, 1)));
        assert_eq!(fair_share([(mbit(100), 0)]), Some((100e6, 0)));
        assert_eq!(fair_share([]), None);
    }

    /// With beta 0.8 and a share of 10: 7.9 is below 8, 8.1 is not; as printed, 12.4 * 0.8 = 9.92 < 10 still flags a
    /// flow that uses more than its share, and only 12.6 passes.
    #[test]
    fn both_readings_of_the_test() {
        assert!(UnderUse::BelowShare.test(7.9, 10.0, 0.8));
        assert!(!UnderUse::BelowShare.test(8.1, 10.0, 0.8));
        assert!(UnderUse::AsPrinted.test(12.4, 10.0, 0.8));
        assert!(!UnderUse::AsPrinted.test(12.6, 10.0, 0.8));
    }

    /// Four flows of share 25; one uses 10: its spare 15 is divided over three, 5 each.
    #[test]
    fn spare_is_divided_equally_over_users() {
        let user = Claimant { scope: 0, share: 25.0, unused_at: None };
        let flows = [Claimant { unused_at: Some(10.0), ..user }, user, user, user];
        assert_eq!(reallocate(&flows), [25.0, 30.0, 30.0, 30.0]);
    }

    #[test]
    fn spare_stays_in_its_scope_and_needs_a_user() {
        let flows = [
            Claimant { scope: 1, share: 10.0, unused_at: Some(2.0) },
            Claimant { scope: 1, share: 10.0, unused_at: Some(4.0) },
            Claimant { scope: 2, share: 10.0, unused_at: None },
        ];
        assert_eq!(reallocate(&flows), [10.0, 10.0, 10.0]);
    }

    /// 3.125 Mb/s times 30 ms is 11,718.75 bytes, 7.80 frames of 1502 bytes.
    #[test]
    fn windows_round_in_three_ways_and_never_to_nothing() {
        let segments = |rate, ms, rounding| {
            let window = window(rate, Span::from_millis(ms), Bytes::new(1448), Bytes::new(1502), rounding);
            window.get() / 1448
        };
        assert_eq!(segments(3_125_000.0, 30, Rounding::Up), 8);
        assert_eq!(segments(3_125_000.0, 30, Rounding::Nearest), 8);
        assert_eq!(segments(3_125_000.0, 30, Rounding::Down), 7);
        assert_eq!(segments(3_125_000.0, 1, Rounding::Down), 1);
        // 12.016 Mb/s for 1 ms is exactly one frame.
        assert_eq!(segments(12_016_000.0, 1, Rounding::Up), 1);
    }
}
