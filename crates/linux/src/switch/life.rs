//! The running switch: one thread that waits for events of the program in the kernel, and for signals.

use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixListener};
use std::path::Path;
use std::sync::Arc;

use bandmaster_core::switch::{Deployment, Scheme};
use bandmaster_core::time::{Span, Time};
use sd_notify::NotifyState;
use tracing::{error, info};

use super::journal::Entry;
use super::machine::{BEAT, Machine};
use super::status::Shared;
use super::{bas, fbqm, load, metrics, status};
use crate::daemon::Error;
use crate::daemon::signals::{End, Signals, log_to_stderr};
use crate::daemon::state::State;
use crate::kernel::windows::now;

/// Flows are looked at so often, or at once after an event, and for no more than a tenth of the time.
const LOOK: Span = Span::from_millis(10);
pub(super) const PART: u64 = 10;
/// Held for each port, as long as the process lives.
const CLAIM: &str = "bandmaster-switch-";

/// Runs the switch that `file` describes until a signal ends it. `dry_run` changes nothing: QCBF and BAS log what would be set, FBQM counts.
///
/// # Errors
/// When the file is wrong, the machine is not fit, or it fails on the way.
pub fn run(file: &Path, dry_run: bool) -> Result<End, Error> {
    let loaded = load(file)?;
    log_to_stderr(loaded.deployment.log);
    let signals = Signals::new()?;
    let deployment = loaded.deployment.clone();
    // Both until the end.
    let claims = deployment.ports.iter().filter(|_| !dry_run).map(|port| claim(&port.interface));
    let _claims = claims.collect::<Result<Vec<_>, _>>()?;
    let state = if dry_run {
        None
    } else {
        let state = State::<Entry>::hold(Path::new(&deployment.state_directory))?;
        state.hold_as(&format!("switch `{}`", deployment.name))?;
        Some(state)
    };
    match deployment.scheme {
        Scheme::Qcbf => attend(Machine::new(loaded, state)?, &deployment, &signals),
        Scheme::Bas => attend(bas::Machine::new(&loaded, state)?, &deployment, &signals),
        Scheme::Fbqm => attend(fbqm::Machine::new(loaded, state)?, &deployment, &signals),
    }
}

/// What runs at the ports.
pub(super) trait Work {
    /// Where status and journal are; none on a dry run.
    fn folder(&self) -> Option<&Path>;

    /// What others are told.
    fn shared(&self) -> &Shared;

    /// Goes on until a signal comes.
    fn until_signal(&mut self, signals: &Signals) -> Result<End, Error>;

    /// Puts everything back.
    fn end(self) -> Result<(), Error>;
}

impl Work for Machine {
    fn folder(&self) -> Option<&Path> {
        self.folder()
    }

    fn shared(&self) -> &Shared {
        &self.shared
    }

    fn until_signal(&mut self, signals: &Signals) -> Result<End, Error> {
        until_signal(self, signals)
    }

    fn end(self) -> Result<(), Error> {
        self.end()
    }
}

fn attend(mut machine: impl Work, deployment: &Deployment, signals: &Signals) -> Result<End, Error> {
    if let Some(folder) = machine.folder() {
        status::serve(folder, Arc::clone(machine.shared()))?;
    }
    if let Some(address) = deployment.metrics {
        metrics::serve(address, Arc::clone(machine.shared()))?;
    }
    let dry_run = machine.folder().is_none();
    info!(name = deployment.name, ports = deployment.ports.len(), dry_run, "begins");
    let end = machine.until_signal(signals);
    let _ = sd_notify::notify(false, &[NotifyState::Stopping]);
    match machine.end() {
        Ok(()) => info!("everything is as it was"),
        Err(second) => {
            error!(error = %second, "the journal stays for `switch restore`");
            return Err(end.err().unwrap_or(second));
        }
    }
    end
}

/// One switch runs at a port.
fn claim(interface: &str) -> Result<UnixListener, Error> {
    let name = format!("{CLAIM}{interface}");
    let failed = |e: std::io::Error| match e.kind() {
        std::io::ErrorKind::AddrInUse => Error::Missing(format!(
            "error: another switch runs at {interface} (see `ss -xlp`, @{name}); stop it first"
        )),
        _ => Error::Failed(format!("error: socket @{name}: {e}")),
    };
    UnixAddress::from_abstract_name(&name)
        .and_then(|address| UnixListener::bind_addr(&address))
        .map_err(failed)
}

fn until_signal(machine: &mut Machine, signals: &Signals) -> Result<End, Error> {
    let (mut next_beat, mut next_look, mut rested, mut is_due) = (Time::ZERO, Time::ZERO, Time::ZERO, false);
    machine.beat()?;
    // Without a service manager there is nobody to tell.
    let _ = sd_notify::notify(false, &[NotifyState::Ready]);
    loop {
        if let Some(end) = signals.end() {
            return Ok(end);
        }
        if signals.reload() {
            info!("a switch does not read its file again: restart it");
        }
        is_due |= machine.hear()?;
        let begin = now();
        if is_due && rested <= begin || machine.has_flows() && next_look <= begin {
            machine.look()?;
            rested = begin + now().since(begin) * PART;
            next_look = rested.max(begin + LOOK);
            is_due = false;
        }
        if next_beat <= begin {
            machine.beat()?;
            next_beat = begin + BEAT;
            let _ = sd_notify::notify(false, &[NotifyState::Watchdog]);
        }
        let mut next = if machine.has_flows() { next_look.min(next_beat) } else { next_beat };
        if is_due {
            next = next.min(rested);
        }
        signals.wait(&[machine.windows.as_fd()], next.since(now()))?;
    }
}
