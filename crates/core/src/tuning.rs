//! What a scheme may change in the TCP of a node, and which TCP variants can follow each other.

use crate::params::{Choice, choice};
use crate::time::Span;

/// What differs from a node's own TCP settings, for flows that begin from now on; none: the node's own setting.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Tuning {
    /// Initial congestion window in segments.
    pub initial_window: Option<u32>,
    /// Least retransmission timeout.
    pub min_rto: Option<Span>,
    /// Retransmission timeout before the first measurement, and of the SYN.
    pub initial_rto: Option<Span>,
    /// Congestion control.
    pub variant: Option<Variant>,
    /// Pace segments over the round-trip time.
    pub pacing: Option<bool>,
    /// Restart from the initial window after idle time (RFC 5681 section 4.1).
    pub idle_restart: Option<bool>,
    /// Most segments in the congestion window.
    pub window_cap: Option<u32>,
}

choice! {
    /// A TCP variant that a scheme can choose.
    #[derive(PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum Variant {
        /// Tahoe.
        Tahoe = "tahoe",
        /// Reno.
        Reno = "reno",
        /// NewReno.
        NewReno = "newreno",
        /// BIC.
        Bic = "bic",
        /// CUBIC.
        Cubic = "cubic",
        /// DCTCP.
        Dctcp = "dctcp",
    }
}

/// What a variant takes as the measure of congestion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CongestionMeasure {
    /// The probability of loss, or of a mark that counts as one.
    Loss,
    /// The share of marked bytes.
    MarkedShare,
}

impl Variant {
    /// Name in scenario and policy files.
    pub fn name(self) -> &'static str {
        self.word()
    }

    /// It reacts to marks alone, so that both ends must use ECN.
    pub fn needs_ecn(self) -> bool {
        self == Self::Dctcp
    }

    /// It makes use of selective acknowledgements.
    pub fn uses_sack(self) -> bool {
        !matches!(self, Self::Tahoe | Self::Reno)
    }

    /// Its measure of congestion: variants of one measure are compatible, as two-timescale switching needs.
    pub fn measure(self) -> CongestionMeasure {
        match self {
            Self::Tahoe | Self::Reno | Self::NewReno | Self::Bic | Self::Cubic => CongestionMeasure::Loss,
            Self::Dctcp => CongestionMeasure::MarkedShare,
        }
    }
}

impl Tuning {
    /// True when nothing differs.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Takes what `self` leaves open from `other`; returns the names of the settings on which both insist differently.
    pub fn or(&mut self, other: &Self) -> Vec<&'static str> {
        let mut conflicts = Vec::new();
        let mut note = |name, conflict: bool| {
            if conflict {
                conflicts.push(name);
            }
        };
        note("initial-window", merge(&mut self.initial_window, other.initial_window));
        note("min-rto", merge(&mut self.min_rto, other.min_rto));
        note("initial-rto", merge(&mut self.initial_rto, other.initial_rto));
        note("variant", merge(&mut self.variant, other.variant));
        note("pacing", merge(&mut self.pacing, other.pacing));
        note("idle-restart", merge(&mut self.idle_restart, other.idle_restart));
        note("window-cap", merge(&mut self.window_cap, other.window_cap));
        conflicts
    }
}

/// True when both have a value and the values differ.
fn merge<T: Copy + PartialEq>(own: &mut Option<T>, other: Option<T>) -> bool {
    let conflict = matches!((&own, &other), (Some(a), Some(b)) if a != b);
    *own = own.or(other);
    conflict
}

impl core::fmt::Display for Tuning {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let settings = [
            self.initial_window.map(|n| format!("initial-window {n}")),
            self.min_rto.map(|span| format!("min-rto {span}")),
            self.initial_rto.map(|span| format!("initial-rto {span}")),
            self.variant.map(|variant| format!("variant {}", variant.name())),
            self.pacing.map(|on| format!("pacing {}", if on { "on" } else { "off" })),
            self.idle_restart.map(|on| format!("idle-restart {}", if on { "on" } else { "off" })),
            self.window_cap.map(|n| format!("window-cap {n}")),
        ];
        let settings: Vec<String> = settings.into_iter().flatten().collect();
        f.write_str(&if settings.is_empty() { "own settings".to_owned() } else { settings.join(", ") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params::Written;

    #[test]
    fn the_first_insists_and_conflicts_are_named() {
        let mut first = Tuning { initial_window: Some(20), pacing: Some(true), ..Tuning::default() };
        let second = Tuning {
            initial_window: Some(10),
            window_cap: Some(64),
            pacing: Some(true),
            ..Tuning::default()
        };
        assert_eq!(first.or(&second), ["initial-window"]);
        assert_eq!((first.initial_window, first.window_cap), (Some(20), Some(64)));
        assert_eq!(first.to_string(), "initial-window 20, pacing on, window-cap 64");
    }

    #[test]
    fn every_variant_has_its_name() {
        for (name, variant) in Variant::WORDS {
            assert_eq!((variant.name(), Variant::of(name)), (*name, *variant));
        }
        assert!(Variant::KIND.parse(&Written::Text("vegas".to_owned())).is_err());
    }
}
