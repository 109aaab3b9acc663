//! Counts connections for the controller, and tells it once a minute.

use std::fs;

use bandmaster_core::agent::OWN;
use bandmaster_core::control::Message;
use bandmaster_core::sketch::collect::{Collector, Live};
use bandmaster_core::sketch::{self, About};
use bandmaster_core::time::Time;

use crate::kernel::NoProgram;
use crate::kernel::tcp::{Connection, HostTcp, tick};

/// What is recorded of this host.
pub(super) struct Recorder {
    collector: Collector,
    began: Time,
    number: u32,
}

impl Recorder {
    /// Begins at `now`.
    pub(super) fn new(now: Time) -> Self {
        Self { collector: Collector::default(), began: now, number: 0 }
    }

    /// Takes what the kernel tells. Once an interval has ended: what there is to send.
    pub(super) fn look(&mut self, now: Time, tcp: &mut HostTcp, connections: &[Connection]) -> Result<Vec<Message>, NoProgram> {
        let (ends, missed) = tcp.ends()?;
        for ended in ends.iter().filter(|ended| !ended.peer.is_loopback()) {
            self.collector.end(ended);
        }
        self.collector.miss(u32::try_from(missed).unwrap_or(u32::MAX));
        let length = now.since(self.began);
        if length < sketch::INTERVAL {
            return Ok(Vec::new());
        }
        let leaves = |connection: &&Connection| connection.carries && !connection.remote.0.is_loopback();
        let live = connections.iter().filter(leaves).map(|connection| Live {
            cookie: connection.cookie,
            peer: connection.remote.0,
            bytes: [connection.acknowledged, connection.received],
        });
        let (about, rows) = self.collector.finish(live);
        let bodies = sketch::parts(self.number, length, with_settings(about), rows);
        self.began = now;
        self.number = self.number.wrapping_add(1);
        let message = |body| Message { from: OWN, scheme: sketch::CODE, body };
        Ok(bodies.into_iter().map(message).collect())
    }
}

/// What connections have here that nobody sets.
fn with_settings(about: About) -> About {
    let read = |name: &str| fs::read_to_string(format!("/proc/sys/net/ipv4/{name}")).unwrap_or_default();
    let tick = u32::try_from(tick().as_nanos() / 1000).unwrap_or(0);
    let rack = read("tcp_recovery").trim().parse::<u32>().is_ok_and(|flags| flags & 1 == 1);
    About { control: read("tcp_congestion_control").trim().chars().take(15).collect(), tick, rack, ..about }
}
