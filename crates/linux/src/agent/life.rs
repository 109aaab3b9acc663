//! The running agent: one thread that waits for datagrams, signals and the next wake-up of its role.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixListener};
use std::path::Path;
use std::sync::Arc;

use bandmaster_core::agent::{OWN, Site};
use bandmaster_core::control::Observation;
use bandmaster_core::runtime::Runner;
use bandmaster_core::time::{Span, Time};
use sd_notify::NotifyState;
use tracing::{error, info};

use super::journal::Entry;
use super::machine::Machine;
use super::ports::Ports;
use super::renewal::Renewal;
use super::{load, metrics, status};
use crate::daemon::Error;
use crate::daemon::signals::{End, Signals, log_to_stderr};
use crate::daemon::state::State;

/// Connections are looked at when the role wants to know, and so often at least.
const BEAT: Span = Span::from_secs(1);
/// When the kernel did not show the connections, the role waits so long: old numbers are no measurement.
const AGAIN: Span = Span::from_millis(100);
/// Held by the agent of a network namespace, as long as its process lives.
const CLAIM: &str = "bandmaster-agent";

/// Runs the agent that `file` describes until a signal ends it. `dry_run` changes nothing: what would be set is logged.
///
/// # Errors
/// When the file is wrong, the machine is not fit, or it fails on the way.
pub fn run(file: &Path, dry_run: bool) -> Result<End, Error> {
    let loaded = load(file)?;
    log_to_stderr(loaded.deployment.log);
    let signals = Signals::new()?;
    let roles = loaded.deployment.roles();
    let mut ports = Ports::new(&loaded)?;
    let checked = if ports.are_here() { ports.check() } else { Ok(()) };
    checked.and_then(|()| ports.begin()).map_err(|why| Error::Missing(format!("error: {why}")))?;
    let folder = loaded.deployment.state_directory.clone();
    // Both until the end.
    let sets = !dry_run && loaded.deployment.site == Site::Host;
    let _claim = if sets { Some(claim()?) } else { None };
    let state = if dry_run {
        None
    } else {
        let state = State::<Entry>::hold(Path::new(&folder))?;
        state.hold_as(&format!("agent `{}`", loaded.deployment.name))?;
        Some(state)
    };
    let renewal = if dry_run { None } else { Renewal::new(&loaded)? };
    let address = loaded.deployment.metrics;
    let inventory = loaded.deployment.inventory();
    let machine = Machine::new(loaded, state, ports)?;
    let runner = Runner::new::<Machine>(roles, inventory)
        .map_err(|lacks| Error::Missing(format!("error: {lacks}")))?;
    if let Some(folder) = machine.folder() {
        status::serve(folder, Arc::clone(&machine.shared))?;
    }
    if let Some(address) = address {
        metrics::serve(address, Arc::clone(&machine.shared))?;
    }
    let mut agent = Agent { runner, machine, renewal, next_beat: Time::ZERO };
    let end = agent.until_signal(&signals);
    let _ = sd_notify::notify(false, &[NotifyState::Stopping]);
    match agent.machine.end() {
        Ok(()) => info!("everything is as it was"),
        Err(second) => {
            error!(error = %second, "cannot restore; the journal stays for `agent restore`");
            return Err(end.err().unwrap_or(second));
        }
    }
    end
}

/// One agent sets the connections of a network namespace.
fn claim() -> Result<UnixListener, Error> {
    let failed = |e: std::io::Error| match e.kind() {
        std::io::ErrorKind::AddrInUse => Error::Missing(format!(
            "error: another agent sets the connections of this network namespace (see `ss -xlp`, @{CLAIM}); stop it first"
        )),
        _ => Error::Failed(format!("error: socket @{CLAIM}: {e}")),
    };
    UnixAddress::from_abstract_name(CLAIM)
        .and_then(|address| UnixListener::bind_addr(&address))
        .map_err(failed)
}

struct Agent {
    runner: Runner,
    machine: Machine,
    renewal: Option<Renewal>,
    next_beat: Time,
}

impl Agent {
    fn until_signal(&mut self, signals: &Signals) -> Result<End, Error> {
        let now = self.machine.clock.now();
        self.runner.begin(&mut self.machine, now);
        // Without a service manager there is nobody to tell.
        let _ = sd_notify::notify(false, &[NotifyState::Ready]);
        let machine = &self.machine.loaded;
        info!(
            file = %machine.file.display(),
            controller = %machine.deployment.controller,
            dry_run = self.machine.folder().is_none(),
            "begins"
        );
        loop {
            if let Some(end) = signals.end() {
                return Ok(end);
            }
            if signals.reload() {
                info!("an agent does not read its file again: restart it");
            }
            let now = self.machine.clock.now();
            while let Some((role, due)) = self.machine.due(now) {
                // Only the first role needs a look: the kernel reports the flows that the second one counts.
                if role == 0 && !self.look(now)? {
                    self.machine.postpone(role, due, now + AGAIN);
                    continue;
                }
                // What was measured is of now: a look takes milliseconds.
                let now = self.machine.clock.now();
                self.runner.wake(&mut self.machine, role, due, now);
                self.machine.apply()?;
            }
            if self.next_beat <= now {
                self.look(now)?;
            }
            let next = self.machine.next_wake().map_or(self.next_beat, |at| at.min(self.next_beat));
            let bells: Vec<_> = self.machine.bells().collect();
            signals.wait(&bells, next.since(self.machine.clock.now()))?;
            drop(bells);
            let now = self.machine.clock.now();
            for event in self.machine.news() {
                self.runner.observe(&mut self.machine, now, OWN, &event.observation());
            }
            while let Some(message) = self.machine.receive(next) {
                let now = self.machine.clock.now();
                self.runner.observe(&mut self.machine, now, OWN, &Observation::Message(&message));
            }
            self.machine.apply()?;
        }
    }

    /// Whether the kernel has shown the connections.
    fn look(&mut self, now: Time) -> Result<bool, Error> {
        let shown = self.machine.look()?;
        let is_shown = shown.is_some();
        for event in shown.unwrap_or_default() {
            self.runner.observe(&mut self.machine, now, OWN, &event.observation());
        }
        if let Some(renewal) = &mut self.renewal {
            if let Some(key) = renewal.go_on() {
                self.machine.take_key(key);
            }
            let mut status = status::lock(&self.machine.shared);
            status.certificate_left = Some(renewal.left().into());
            status.renewal_error.clone_from(&renewal.error);
        }
        self.machine.tell(self.runner.refusals());
        self.next_beat = now + BEAT;
        let _ = sd_notify::notify(false, &[NotifyState::Watchdog]);
        Ok(is_shown)
    }
}
