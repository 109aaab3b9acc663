//! Ports of an Open vSwitch, through `ovs-ofctl`, which speaks OpenFlow to a local or a remote bridge.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

use bandmaster_core::agent::Port;
use bandmaster_core::control::PortFlows;

use super::{Counts, left};
use crate::daemon::Error;
use crate::syscall::give_no_capability;
#[cfg(test)]
use crate::syscall::raise_ambient;

const PROGRAM: &str = "ovs-ofctl";
/// Where it is looked for: a daemon's `PATH` may be anybody's.
const FOLDERS: [&str; 4] = ["/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin"];
const VERSION: &str = "OpenFlow13";

pub(super) struct OpenVswitch {
    program: PathBuf,
    bridge: String,
    /// Entries of one table, or of all, are flows.
    counted: Option<Option<u8>>,
    /// For the answers to all questions of a reading.
    patience: Duration,
}

impl OpenVswitch {
    pub(super) fn new(bridge: &str, counted: Option<Option<u8>>, patience: Duration) -> Result<Self, Error> {
        let found =
            FOLDERS.iter().map(|folder| PathBuf::from(folder).join(PROGRAM)).find(|path| path.is_file());
        let program = found.ok_or_else(|| {
            Error::Missing(format!(
                "error: {PROGRAM}: it is not in {}; it comes with the package openvswitch-switch, or openvswitch-common",
                FOLDERS.join(", ")
            ))
        })?;
        output(Command::new(&program).arg("--version"))
            .map_err(|error| Error::Missing(format!("error: {}: {error}", program.display())))?;
        Ok(Self { program, bridge: bridge.to_owned(), counted, patience })
    }

    pub(super) fn read(&mut self, ports: &[Port]) -> Result<Vec<Counts>, String> {
        let until = Instant::now() + self.patience;
        let mut told = port_counts(&self.ask(until, "dump-ports", &[])?);
        let mut all = Vec::with_capacity(ports.len());
        for Port { interface, .. } in ports {
            let mut counts = told
                .remove(interface)
                .ok_or_else(|| format!("interface {interface}: bridge {} has no such port", self.bridge))?;
            if let Some(table) = self.counted {
                let table = table.map_or(String::new(), |table| format!("table={table},"));
                let answer = self.ask(until, "dump-aggregate", &[&format!("{table}out_port={interface}")])?;
                let flows = number(&answer, "flow_count=").ok_or_else(|| {
                    format!("{PROGRAM} dump-aggregate: no flow_count: {}", first_line(&answer))
                })?;
                let flows = u32::try_from(flows).unwrap_or(u32::MAX - 1);
                counts.flows = Some(PortFlows { seen: flows, open: flows });
            }
            all.push(counts);
        }
        Ok(all)
    }

    fn ask(&self, until: Instant, what: &str, more: &[&str]) -> Result<String, String> {
        // The program takes whole seconds.
        let left = left(until, &format!("bridge {}", self.bridge))?.as_secs_f64().ceil();
        let mut command = Command::new(&self.program);
        command.args([&format!("--timeout={left}"), "-O", VERSION, "--names", what, &self.bridge]).args(more);
        let output = output(&mut command).map_err(|error| format!("{PROGRAM}: {error}"))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        Err(format!("bridge {}: {}", self.bridge, first_line(&said)))
    }
}

/// Runs it without this daemon's capabilities: a thread of its own gives them up.
fn output(command: &mut Command) -> io::Result<Output> {
    let run = || {
        give_no_capability()?;
        command.output()
    };
    thread::scope(|scope| scope.spawn(run).join())
        .unwrap_or_else(|_| Err(io::Error::other("the thread that runs it has failed")))
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or("no answer").trim()
}

/// What `dump-ports` tells, by name: two lines a port, what came and what went.
///
/// ```text
///   port  e1: rx pkts=9, bytes=806, drop=0, errs=0, frame=0, over=0, crc=0
///            tx pkts=10, bytes=876, drop=0, errs=0, coll=0
/// ```
fn port_counts(text: &str) -> BTreeMap<String, Counts> {
    let mut all = BTreeMap::new();
    let mut name = None;
    for line in text.lines().map(str::trim) {
        if let Some(rest) = line.strip_prefix("port ") {
            name = rest.split_once(": rx ").map(|(name, _)| name.trim().trim_matches('"').to_owned());
        } else if let Some(sent) = line.strip_prefix("tx ")
            && let (Some(name), Some(packets), Some(bytes)) =
                (name.take(), number(sent, "pkts="), number(sent, "bytes="))
        {
            // A datapath that does not count them says "?".
            let dropped = number(sent, "drop=").unwrap_or(0);
            all.insert(name, Counts { sent: bytes, packets, dropped, backlog: None, flows: None });
        }
    }
    all
}

/// The number behind `key`.
fn number(text: &str, key: &str) -> Option<u64> {
    let (_, rest) = text.split_once(key)?;
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    rest[..end].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With capabilities that programs inherit, as systemd's `AmbientCapabilities` gives, none is left; those of this thread stay.
    #[test]
    fn the_program_has_no_capability_of_the_daemon() {
        let ambient = |text: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix("CapAmb:"));
            u64::from_str_radix(line.unwrap_or_default().trim(), 16).unwrap_or(u64::MAX)
        };
        let own = || ambient(&std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default());
        if !raise_ambient() {
            return println!(
                "skipped: the_program_has_no_capability_of_the_daemon: needs a capability to give away"
            );
        }
        let before = own();
        assert_ne!(before, 0);
        let plain = Command::new("/bin/cat").arg("/proc/self/status").output().expect("run");
        assert_eq!(ambient(&String::from_utf8_lossy(&plain.stdout)), before);
        let said = output(Command::new("/bin/cat").arg("/proc/self/status")).expect("run");
        assert_eq!(ambient(&String::from_utf8_lossy(&said.stdout)), 0);
        assert_eq!(own(), before);
    }

    #[test]
    fn what_the_program_prints_is_read() {
        let text = "OFPST_PORT reply (OF1.3) (xid=0x2): 3 ports\n  port LOCAL: rx pkts=0, bytes=0, drop=14, errs=0, frame=0, over=0, crc=0\n           \
                    tx pkts=0, bytes=0, drop=0, errs=0, coll=0\n           duration=1.226s\n  port  \"e-1\": rx pkts=9, bytes=806, drop=0, errs=0, \
                    frame=0, over=0, crc=0\n           tx pkts=10, bytes=876, drop=?, errs=0, coll=0\n";
        let told = port_counts(text);
        assert_eq!(told.len(), 2);
        let counts = Counts { sent: 876, packets: 10, dropped: 0, backlog: None, flows: None };
        assert_eq!(told["e-1"], counts);
        assert_eq!(number("packet_count=0 byte_count=0 flow_count=1000", "flow_count="), Some(1000));
        assert!(port_counts("nonsense: rx\ntx pkts=1, bytes=2").is_empty());
    }
}
