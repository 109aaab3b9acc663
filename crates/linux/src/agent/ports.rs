//! Ports of a router: what they have sent and dropped, as the kernel or the switch counts it.

mod kernel;
mod open_vswitch;
mod sflow;
mod snmp;

use std::time::{Duration, Instant};

use bandmaster_core::agent::{Deployment, Port, PortSource};
use bandmaster_core::control::{PortFlows, PortStats};
use bandmaster_core::id::PortId;
use bandmaster_core::units::Bytes;
use tracing::{info, warn};

use super::Loaded;
use crate::daemon::Error;
use kernel::Kernel;
use open_vswitch::OpenVswitch;
use sflow::Sflow;
use snmp::Snmp;

/// The ports, in the order of the file.
#[derive(Default)]
pub(super) struct Ports {
    ports: Vec<Port>,
    source: Option<Source>,
    /// Each port's last reading. It stays while the device is away.
    last: Vec<Counts>,
    /// Each port's total from before its device was recreated.
    before: Vec<Counts>,
    /// When the source answered last.
    answered: Option<Instant>,
    /// Why the source did not answer the last time.
    why_silent: Option<String>,
}

/// Who counts.
enum Source {
    Kernel(Kernel),
    Snmp(Box<Snmp>),
    OpenVswitch(OpenVswitch),
    Sflow(Sflow),
}

/// What a port has done so far, as its source tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Counts {
    sent: u64,
    packets: u64,
    dropped: u64,
    /// None: the source does not tell.
    backlog: Option<u64>,
    /// None: nobody counts.
    flows: Option<PortFlows>,
}

/// The source has answered by then for all ports, or for none: a report that waits longer is of another cycle.
fn patience(deployment: &Deployment) -> Duration {
    Duration::from_nanos(deployment.interval().mul_f64(0.25).as_nanos()).min(Duration::from_secs(2))
}

/// Time left for a reading.
///
/// # Errors
/// When none is left.
fn left(until: Instant, asked: &str) -> Result<Duration, String> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(format!("{asked} did not answer for all ports in time")) } else { Ok(left) }
}

impl Ports {
    /// Makes ready to ask.
    ///
    /// # Errors
    /// When the source cannot be asked at all.
    pub(super) fn new(Loaded { deployment, switch_secret, .. }: &Loaded) -> Result<Self, Error> {
        let patience = patience(deployment);
        let source = match &deployment.source {
            _ if deployment.ports.is_empty() => None,
            PortSource::Kernel => Some(Source::Kernel(Kernel::new(deployment.counts_flows)?)),
            PortSource::Snmp { address, access } => {
                let right = snmp::Right::new(access, &switch_secret.0)?;
                Some(Source::Snmp(Box::new(Snmp::new(*address, right, patience))))
            }
            PortSource::Sflow { address, listen } => {
                let cycle = Duration::from_nanos(deployment.interval().as_nanos());
                Some(Source::Sflow(Sflow::new(*address, *listen, cycle)))
            }
            PortSource::OpenVswitch { bridge, flow_table } => {
                let counted = deployment.counts_flows.then_some(*flow_table);
                Some(Source::OpenVswitch(OpenVswitch::new(bridge, counted, patience)?))
            }
        };
        let none = vec![Counts::default(); deployment.ports.len()];
        let ports = deployment.ports.clone();
        Ok(Self { ports, source, last: none.clone(), before: none, answered: None, why_silent: None })
    }

    /// Whether there is an answer, and to all ports; nothing is begun.
    ///
    /// # Errors
    /// Why not.
    pub(super) fn check(&mut self) -> Result<(), String> {
        match &self.source {
            Some(Source::Kernel(_)) => kernel::counts(&self.ports).map(drop),
            // It speaks when it likes.
            Some(Source::Sflow(_)) => Ok(()),
            _ => self.ask().map(drop),
        }
    }

    /// Begins to count where counting has to be begun.
    ///
    /// # Errors
    /// Why that cannot be.
    pub(super) fn begin(&mut self) -> Result<(), String> {
        match &mut self.source {
            Some(Source::Kernel(kernel)) => kernel.begin(&self.ports),
            Some(Source::Sflow(sflow)) => sflow.begin(&self.ports),
            _ => Ok(()),
        }
    }

    /// Ports of this machine have to be there from the start; a switch may come later.
    pub(super) const fn are_here(&self) -> bool {
        matches!(self.source, Some(Source::Kernel(_)))
    }

    fn ask(&mut self) -> Result<Vec<Counts>, String> {
        match &mut self.source {
            None => Ok(Vec::new()),
            Some(Source::Kernel(kernel)) => kernel.read(&self.ports),
            Some(Source::Snmp(snmp)) => snmp.read(&self.ports),
            Some(Source::OpenVswitch(switch)) => switch.read(&self.ports),
            Some(Source::Sflow(sflow)) => sflow.read(&self.ports),
        }
    }

    /// Whether counters went back to more than a port can have sent since the last reading; a recreated port would show less.
    /// How much was sent in between is unknown.
    fn are_false(&self, now: &[Counts]) -> bool {
        let Some(since) = self.answered.map(|at| at.elapsed()) else { return false };
        // Some seconds late, as SNMP agents are.
        let time = (since + Duration::from_secs(5)).as_secs_f64();
        let most = |port: &Port| port.rate.bits_per_sec() as f64 / 8.0 * time;
        let of = |((port, last), now): ((&Port, &Counts), &Counts)| {
            now.sent < last.sent && now.sent as f64 > most(port)
        };
        self.ports.iter().zip(&self.last).zip(now).any(of)
    }

    /// None while one of them is away, or the source does not tell: nobody takes that for an idle port.
    pub(super) fn read(&mut self) -> Vec<PortStats> {
        let told = self.ask().and_then(|now| {
            let are_false = self.are_false(&now);
            self.answered = Some(Instant::now());
            if are_false {
                // All goes on from here.
                for ((before, last), now) in self.before.iter_mut().zip(&mut self.last).zip(now) {
                    before.sent = before.sent.saturating_add(last.sent).saturating_sub(now.sent);
                    before.packets = before.packets.saturating_add(last.packets).saturating_sub(now.packets);
                    before.dropped = before.dropped.saturating_add(last.dropped).saturating_sub(now.dropped);
                    *last = now;
                }
                return Err("counts have gone back by less than a restart would take them".to_owned());
            }
            Ok(now)
        });
        let now = match told {
            Ok(now) => {
                if self.why_silent.take().is_some() {
                    info!("ports are reported again");
                }
                now
            }
            Err(why) => {
                if self.why_silent.as_ref() != Some(&why) {
                    warn!(%why, "ports are not reported");
                }
                self.why_silent = Some(why);
                return Vec::new();
            }
        };
        let mut all = Vec::with_capacity(self.ports.len());
        for (at, (port, now)) in self.ports.iter().zip(now).enumerate() {
            let last = std::mem::replace(&mut self.last[at], now);
            let before = &mut self.before[at];
            // A recreated device or queue discipline counts from zero.
            for (before, last, now) in [
                (&mut before.sent, last.sent, now.sent),
                (&mut before.packets, last.packets, now.packets),
                (&mut before.dropped, last.dropped, now.dropped),
            ] {
                if now < last {
                    *before = before.saturating_add(last);
                }
            }
            let dropped = before.dropped.saturating_add(now.dropped);
            let packets = before.packets.saturating_add(now.packets);
            all.push(PortStats {
                port: PortId(at as u32),
                capacity: port.rate,
                flows: now.flows,
                backlog: now.backlog.map(Bytes::new),
                sent: Bytes::new(before.sent.saturating_add(now.sent)),
                offered: packets.saturating_add(dropped),
                dropped,
            });
        }
        all
    }

    /// Samples of a switch that came twice, or late.
    pub(super) fn overtaken(&self) -> u64 {
        match &self.source {
            Some(Source::Sflow(sflow)) => sflow.overtaken(),
            _ => 0,
        }
    }

    /// Why the ports are not reported.
    pub(super) fn why_silent(&self) -> Option<&str> {
        self.why_silent.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use bandmaster_core::runtime::envelope::Key;

    use super::*;

    fn ports(interfaces: &[&str]) -> Ports {
        let port = |interface: &&str| format!("[[ports]]\ninterface = \"{interface}\"\nrate = \"1mbit\"\n");
        let ports: String = interfaces.iter().map(port).collect();
        let text = format!(
            "version = 1\nscheme = \"opentcp\"\nsite = \"router\"\nnumber = 7\n[controller]\naddress = \"192.0.2.1\"\n\
             key-file = \"k\"\n{ports}"
        );
        let deployment = bandmaster_core::agent::parse("r.toml", &text).unwrap_or_else(|e| panic!("{e}"));
        let key = Key::new(&[7; 16]).expect("long enough");
        let loaded = Loaded {
            file: "r.toml".into(),
            deployment,
            key,
            switch_secret: crate::agent::SwitchSecret::default(),
        };
        Ports::new(&loaded).unwrap_or_else(|e| panic!("{e}"))
    }

    #[test]
    fn a_port_counts_and_one_that_is_away_is_not_taken_for_idle() {
        let mut away = ports(&["lo", "no-such-port"]);
        assert_eq!(away.check(), Err("interface no-such-port: no such device".to_owned()));
        assert!(away.read().is_empty() && away.why_silent().is_some());
        let mut ports = ports(&["lo"]);
        assert_eq!(ports.check(), Ok(()));
        let before = ports.read();
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port");
        socket.send_to(&[0; 1000], socket.local_addr().expect("bound")).expect("sent");
        let after = ports.read();
        assert!(after[0].sent.get() >= before[0].sent.get() + 1000 && after[0].offered > before[0].offered);
        // A recreated queue counts from zero: the total so far stays, and the other counters do not move.
        ports.last[0].dropped += 7;
        let anew = ports.read();
        assert_eq!(anew[0].dropped, after[0].dropped + 7);
        assert!(anew[0].sent.get() < after[0].sent.get() + 100_000_000);
    }

    /// Counts go back by less than a restart explains: one reading is skipped, and counting resumes from the new value.
    #[test]
    fn counts_that_go_back_are_no_traffic() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port");
        socket.send_to(&[0; 1000], socket.local_addr().expect("bound")).expect("sent");
        let mut ports = ports(&["lo"]);
        ports.read();
        // On a link of 8 bit/s nobody sends 1000 bytes in the time that has passed.
        ports.ports[0].rate = bandmaster_core::units::Rate::from_bits_per_sec(8);
        let before = u64::MAX / 2;
        ports.last[0].sent = before;
        assert!(!ports.are_false(&[Counts { sent: 0, ..ports.last[0] }]), "recreated");
        assert!(ports.read().is_empty() && ports.why_silent().is_some_and(|why| why.contains("gone back")));
        let total = ports.read()[0].sent.get();
        assert!((before..before + 1_000_000_000).contains(&total), "{total}");
    }
}
