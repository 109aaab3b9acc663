//! Counts connections, and reports them to the controller once a minute.

use std::fs;

use bandmaster_core::agent::OWN;
use bandmaster_core::control::Message;
use bandmaster_core::sketch::collect::{Collector, Live};
use bandmaster_core::sketch::{self, About};
use bandmaster_core::time::{Span, Time};

use crate::kernel::NoProgram;
use crate::kernel::tcp::{Connection, HostTcp, tick};

/// What is recorded of this host.
pub(super) struct Recorder {
    collector: Collector,
    /// When this interval began, and when the next is due.
    began: Time,
    due: Time,
    number: u32,
    /// The last report, and when to send it again.
    last: Vec<Message>,
    again: Vec<Time>,
}

/// A network that drops data drops reports too, so each report is sent again after these times. Controllers keep one copy.
const AGAIN: [Span; 2] = [Span::from_secs(5), Span::from_secs(20)];

impl Recorder {
    /// Begins at `now`.
    pub(super) fn new(now: Time) -> Self {
        Self {
            collector: Collector::default(),
            began: now,
            due: now + sketch::INTERVAL,
            number: 0,
            last: Vec::new(),
            again: Vec::new(),
        }
    }

    /// Takes what the kernel tells. Once an interval has ended, or this agent `ends`: what there is to send.
    pub(super) fn look(
        &mut self,
        now: Time,
        tcp: &mut HostTcp,
        connections: &[Connection],
        ends: bool,
    ) -> Result<Vec<Message>, NoProgram> {
        let (ended, missed) = tcp.ends()?;
        for ended in ended.iter().filter(|ended| !ended.peer.is_loopback()) {
            self.collector.end(ended);
        }
        self.collector.miss(u32::try_from(missed).unwrap_or(u32::MAX));
        if now < self.due && !ends {
            let is_due = self.again.pop_if(|at| *at <= now).is_some();
            return Ok(if is_due { self.last.clone() } else { Vec::new() });
        }
        let length = now.since(self.began);
        let leaves = |connection: &&Connection| connection.carries && !connection.remote.0.is_loopback();
        let live = connections.iter().filter(leaves).map(|connection| Live {
            cookie: connection.cookie,
            peer: connection.remote.0,
            bytes: [connection.acknowledged, connection.received],
        });
        let (about, rows) = self.collector.finish(live);
        let bodies = sketch::parts(self.number, length, with_settings(about), rows);
        self.began = now;
        // Keep to the same second in every minute, as far as looks allow.
        self.due = (self.due + sketch::INTERVAL).max(now + sketch::INTERVAL.mul_f64(0.5));
        self.number = self.number.wrapping_add(1);
        let message = |body| Message { from: OWN, scheme: sketch::CODE, body };
        self.last = bodies.into_iter().map(message).collect();
        self.again = AGAIN.iter().rev().map(|after| now + *after).collect();
        Ok(if ends { [&self.last[..], &self.last].concat() } else { self.last.clone() })
    }
}

/// What connections have here that nobody sets.
fn with_settings(about: About) -> About {
    let read = |name: &str| fs::read_to_string(format!("/proc/sys/net/ipv4/{name}")).unwrap_or_default();
    let tick = u32::try_from(tick().as_nanos() / 1000).unwrap_or(0);
    let rack = read("tcp_recovery").trim().parse::<u32>().is_ok_and(|flags| flags & 1 == 1);
    About { control: read("tcp_congestion_control").trim().chars().take(15).collect(), tick, rack, ..about }
}
