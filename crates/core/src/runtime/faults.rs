//! What goes wrong with roles and their probes, as a scenario's `[faults]` say.

use std::collections::BTreeMap;

use crate::control::Passed;
use crate::id::NodeId;
use crate::rng::Stream;

/// Where data are counted for probes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum PathEnd {
    /// Where they leave the first port of a way.
    First,
    /// Where they arrive behind its last port.
    Last,
}

impl PathEnd {
    /// The port at this end of the way over `ports`.
    pub fn port(self, ports: &[u32]) -> Option<u32> {
        match self {
            Self::First => ports.first().copied(),
            Self::Last => ports.last().copied(),
        }
    }
}

/// Losses of probes, and restarts of counters.
#[derive(Clone, Debug)]
pub struct ProbeFaults {
    share: f64,
    stream: Stream,
    /// What had passed an end of a way, by its port, when the node there last restarted.
    zero: BTreeMap<(u32, PathEnd), Passed>,
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

    /// Restarts the counts at `node`'s ends of `ways` of probes; `passed` returns what has passed an end of the path at a port.
    pub fn restart<'a>(
        &mut self,
        node: NodeId,
        ways: impl Iterator<Item = (NodeId, NodeId, &'a [u32])>,
        passed: impl Fn(usize, PathEnd) -> Passed,
    ) {
        for (from, to, ports) in ways {
            for (end, at) in [(PathEnd::First, from), (PathEnd::Last, to)] {
                if let Some(port) = end.port(ports).filter(|_| at == node) {
                    self.zero.insert((port, end), passed(port as usize, end));
                }
            }
        }
    }

    /// What has passed the `end` of the way over `ports` since the node there began, of `passed` in all. Probes that were
    /// on their way at a restart tell nothing.
    pub fn since_restart(&self, ports: &[u32], end: PathEnd, passed: Passed) -> Passed {
        let zero = end.port(ports).and_then(|port| self.zero.get(&(port, end)));
        let zero = zero.copied().unwrap_or_default();
        Passed {
            packets: passed.packets.saturating_sub(zero.packets),
            bytes: passed.bytes.saturating_sub(zero.bytes),
        }
    }
}
