//! What goes wrong with roles and their probes, as a scenario's `[faults]` say.

use std::collections::BTreeMap;

use crate::control::Passed;
use crate::rng::Stream;

/// Where data are counted for probes: at which end of which port's wire.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum PathPoint {
    /// Where they leave.
    Start(u32),
    /// Where they arrive.
    End(u32),
}

/// Losses of probes, and counters that began anew.
#[derive(Clone, Debug)]
pub struct ProbeFaults {
    share: f64,
    stream: Stream,
    /// What had passed a point of the path when its node last restarted.
    zero: BTreeMap<PathPoint, Passed>,
}

impl ProbeFaults {
    /// A `share` of the probes is lost, which `stream` chooses.
    pub const fn new(share: f64, stream: Stream) -> Self {
        Self { share, stream, zero: BTreeMap::new() }
    }

    /// Whether the next probe is lost on its way.
    pub fn lose(&mut self) -> bool {
        self.share > 0.0 && self.stream.chance(self.share)
    }

    /// Counts at `point` begin anew after `passed`.
    pub fn set_zero(&mut self, point: PathPoint, passed: Passed) {
        self.zero.insert(point, passed);
    }

    /// What has passed `point` since its node began, of `passed` in all. Probes that were on their way at a restart
    /// tell nothing.
    pub fn since_restart(&self, point: PathPoint, passed: Passed) -> Passed {
        let zero = self.zero.get(&point).copied().unwrap_or_default();
        Passed {
            packets: passed.packets.saturating_sub(zero.packets),
            bytes: passed.bytes.saturating_sub(zero.bytes),
        }
    }
}
