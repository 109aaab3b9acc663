//! What a running switch says of itself, over a Unix socket in its state directory.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bandmaster_core::switch::Scheme;
use serde::{Deserialize, Serialize};

use super::Loaded;
use super::journal::Entry;
use crate::daemon::clock::Clock;
use crate::daemon::{Error, answers, state};

/// Name of the socket in the state directory.
const SOCKET: &str = "switch.sock";

/// A running switch.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Status {
    /// Version of the program.
    pub version: String,
    /// Name of the switch.
    pub name: String,
    /// Its process.
    pub process: u32,
    /// Its file.
    pub file: String,
    /// What runs at its ports.
    pub scheme: String,
    /// Windows stay as they are.
    pub dry_run: bool,
    /// Seconds since the start.
    pub uptime: f64,
    /// From which times are told, when somebody asks.
    #[serde(skip)]
    pub(super) clock: Option<Clock>,
    /// Ports, in the order of the file.
    pub ports: Vec<PortStatus>,
    /// BAS: connections, the first 256 of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub connections: Vec<ConnectionStatus>,
    /// Windows written for the program in the kernel.
    pub written: u64,
    /// What packets did at the ports, by kind.
    pub packets: Vec<(String, u64)>,
    /// What is wrong.
    pub faults: Vec<String>,
}

impl Status {
    /// Of a switch that begins.
    pub(super) fn begin(loaded: &Loaded, dry_run: bool) -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            name: loaded.deployment.name.clone(),
            process: std::process::id(),
            file: loaded.file.display().to_string(),
            scheme: loaded.deployment.scheme.name().to_owned(),
            dry_run,
            clock: Some(Clock::new()),
            ..Self::default()
        }
    }
}

/// A port.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct PortStatus {
    /// Its device.
    pub interface: String,
    /// Flows that are known.
    pub flows: u64,
    /// Bytes on the link of all windows together.
    pub windows: u64,
    /// Bytes that they may come to.
    pub budget: u64,
    /// Bytes that wait.
    pub backlog: u64,
    /// BAS: its rate, bit/s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<u64>,
    /// BAS: all shares together, bit/s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shares: Option<u64>,
    /// FBQM: bytes that wait on average, as RED has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub average: Option<u64>,
    /// FBQM: classes of flows, the slowest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<ClassStatus>,
}

/// A connection whose data depart by a port with BAS.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct ConnectionStatus {
    /// The port's device.
    pub interface: String,
    /// Address and port of the sender.
    pub from: String,
    /// Address and port of the receiver.
    pub to: String,
    /// Its share, bit/s on the link; none yet.
    pub share: Option<u64>,
    /// Least round-trip time in ms; none: not measured yet.
    pub least_rtt: Option<f64>,
    /// Smoothed round-trip time in ms.
    pub rtt: Option<f64>,
    /// Its window in bytes of payload.
    pub window: Option<u64>,
}

/// A class of flows.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct ClassStatus {
    /// Its class of the HTB, as `tc` writes it.
    pub class: String,
    /// Flows that sent in the last interval.
    pub flows: u64,
    /// Packets sent.
    pub packets: u64,
    /// Bytes sent.
    pub bytes: u64,
    /// Packets dropped early.
    pub early: u64,
    /// Packets marked early.
    pub marked: u64,
    /// Packets for which there was no room.
    pub full: u64,
    /// Packets that wait.
    pub waiting: u64,
    /// Bytes that wait.
    pub backlog: u64,
}

/// What threads of a switch share.
pub(super) type Shared = Arc<Mutex<Status>>;

pub(super) fn lock(shared: &Shared) -> MutexGuard<'_, Status> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The status as of now.
pub(super) fn current(shared: &Shared) -> Status {
    let mut status = lock(shared).clone();
    status.uptime = status.clock.map_or(0.0, |clock| clock.now().as_secs_f64());
    status
}

/// Answers everybody who connects to the socket in `folder`, which this process holds.
pub(super) fn serve(folder: &Path, shared: Shared) -> Result<(), Error> {
    answers::serve(&folder.join(SOCKET), move || current(&shared))
}

/// Asks the switch whose state is in `folder`.
///
/// # Errors
/// When none runs there, or it does not answer.
pub fn status(folder: &Path) -> Result<Status, Error> {
    let has_left = || matches!(state::read::<Entry>(folder), Ok(Some(_)));
    answers::ask(&folder.join(SOCKET), "switch", has_left)
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}, process {}, up {:.0} s", self.name, self.scheme, self.process, self.uptime)?;
        writeln!(f, "file         {}{}", self.file, if self.dry_run { " (dry run)" } else { "" })?;
        for PortStatus { interface, flows, windows, budget, backlog, rate, shares, average, classes } in
            &self.ports
        {
            if let (Some(rate), Some(shares)) = (rate, shares) {
                writeln!(
                    f,
                    "port         {interface}: {flows} flows, shares of {:.3} of {:.3} Mbit/s, windows of {windows} B, \
                     {backlog} B wait",
                    megabits(*shares),
                    megabits(*rate)
                )?;
                continue;
            }
            if let Some(average) = average {
                writeln!(
                    f,
                    "port         {interface}: {flows} flows, {backlog} B wait, {average} B on average"
                )?;
                for class in classes {
                    writeln!(f, "class        {interface} {class}")?;
                }
                continue;
            }
            writeln!(
                f,
                "port         {interface}: {flows} flows, windows of {windows} B of {budget} B, {backlog} B wait"
            )?;
        }
        for connection in &self.connections {
            writeln!(f, "connection   {connection}")?;
        }
        for fault in &self.faults {
            writeln!(f, "fault        {fault}")?;
        }
        let packets: Vec<String> =
            self.packets.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        write!(f, "packets      {}", packets.join(", "))?;
        if self.scheme != Scheme::Fbqm.name() {
            write!(f, "; {} windows written", self.written)?;
        }
        Ok(())
    }
}

fn megabits(bits: u64) -> f64 {
    bits as f64 / 1e6
}

impl fmt::Display for ConnectionStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { interface, from, to, share, least_rtt, rtt, window } = self;
        write!(f, "{interface} {from} > {to}: ")?;
        match share {
            Some(share) => write!(f, "share {:.3} Mbit/s", megabits(*share))?,
            None => write!(f, "no share yet")?,
        }
        match (rtt, least_rtt) {
            (Some(rtt), Some(least)) => write!(f, ", round trip {rtt:.3} ms (least {least:.3} ms)")?,
            _ => write!(f, ", round trip not measured")?,
        }
        match window {
            Some(window) => write!(f, ", window {window} B"),
            None => write!(f, ", window as it is"),
        }
    }
}

impl fmt::Display for ClassStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { class, flows, packets, bytes, early, marked, full, waiting, backlog } = self;
        write!(
            f,
            "{class}: {flows} flows, sent {bytes} B {packets} pkt (dropped {}, early {early}, full {full}, marked {marked}), \
             backlog {backlog} B {waiting} pkt",
            early + full
        )
    }
}
