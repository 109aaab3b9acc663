//! The running controller: one thread that waits for datagrams, signals and the next wake-up of its role.

use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use bandmaster_core::control::Observation;
use bandmaster_core::controller::OWN;
use bandmaster_core::runtime::Runner;
use bandmaster_core::runtime::inventory::Change;
use bandmaster_core::time::{Span, Time};
use sd_notify::NotifyState;
use tracing::{debug, error, info};

use super::machine::{CUED, Machine, WOULD_CUE};
use super::{Loaded, load, metrics, status};
use crate::daemon::Error;
use crate::daemon::signals::{End, Signals, log_to_stderr};

/// How often state is saved and events are reported.
const BEAT: Span = Span::from_secs(1);
/// What a decision costs, its account costs once more: with so many hosts, one that is like the last is accounted for so often only.
const COSTLY: usize = 10_000;
const ACCOUNT: Span = Span::from_secs(10);
/// Files that could not be read are read again so often, while a host has enrolled that only they name.
const RETRY: Span = Span::from_secs(10);
/// With so many messages in a beat, those that come within a pause are taken with one call of the kernel.
const MANY: u32 = 5_000;
const PAUSE: Span = Span::from_millis(1);

/// Runs the controller that `file` describes until a signal ends it. `observes`: it decides and logs, and tells hosts nothing.
///
/// # Errors
/// When a file is wrong, another controller runs with the state directory, or it fails on the way.
pub fn run(file: &Path, observes: bool) -> Result<End, Error> {
    let loaded = load(file)?;
    log_to_stderr(loaded.deployment.log);
    let signals = Signals::new()?;
    let address = loaded.deployment.metrics;
    let machine = Machine::new(&loaded, observes)?;
    status::serve(machine.folder(), Arc::clone(&machine.shared))?;
    if let Some(address) = address {
        metrics::serve(address, Arc::clone(&machine.shared))?;
    }
    let mut controller = Controller {
        runner: runner(loaded)?,
        machine,
        next_beat: Time::ZERO,
        decided: (None, Vec::new()),
        next_account: Time::ZERO,
        came: 0,
        is_busy: false,
        unread: None,
        next_try: Time::ZERO,
    };
    let end = controller.until_signal(&signals);
    let _ = sd_notify::notify(false, &[NotifyState::Stopping]);
    controller.machine.end();
    end
}

fn runner(loaded: Loaded) -> Result<Runner, Error> {
    Runner::new::<Machine>(vec![loaded.role], loaded.inventory)
        .map_err(|lacks| Error::Missing(format!("error: {lacks}")))
}

struct Controller {
    runner: Runner,
    machine: Machine,
    next_beat: Time,
    /// The last decision: how many hosts got settings, and each policy's outcome.
    decided: (Option<f64>, Vec<String>),
    next_account: Time,
    /// Messages since the last beat, and whether there were many before it.
    came: u32,
    is_busy: bool,
    /// Why the files could not be read again; when they are read once more for a host that has enrolled.
    unread: Option<String>,
    next_try: Time,
}

fn tell_unread(error: &str) {
    error!(error, "the files are wrong: the controller goes on as before");
}

impl Controller {
    fn until_signal(&mut self, signals: &Signals) -> Result<End, Error> {
        self.begin();
        // Without a service manager there is nobody to tell.
        let _ = sd_notify::notify(false, &[NotifyState::Ready]);
        let deployment = &self.machine.loaded.deployment;
        info!(file = %self.machine.loaded.file.display(), listen = %deployment.listen, "begins");
        loop {
            if let Some(end) = signals.end() {
                return Ok(end);
            }
            if signals.reload() {
                self.unread = self.reload().inspect_err(|why| tell_unread(why)).err();
            }
            if self.machine.wake_at.is_some_and(|at| !self.is_before(at)) {
                self.catch_up();
            }
            let now = self.machine.clock.now();
            if let Some(due) = self.machine.wake_at.take_if(|at| *at <= now) {
                self.runner.wake(&mut self.machine, 0, due, now);
                self.account(now);
            }
            if self.next_beat <= now {
                self.next_beat = now + BEAT;
                self.is_busy = std::mem::take(&mut self.came) >= MANY;
                let (revoked, is_news) = self.machine.look_into_ledger();
                for node in revoked.into_iter().chain(self.machine.beat(self.runner.refusals())) {
                    self.runner.change(&mut self.machine, now, node, Change::Leave);
                }
                if is_news && (self.unread.is_none() || self.next_try <= now) {
                    self.next_try = now + RETRY;
                    let unread = self.reload().err();
                    if let Some(why) = unread.as_ref().filter(|why| self.unread.as_ref() != Some(why)) {
                        tell_unread(why);
                    }
                    self.unread = unread;
                }
                let _ = sd_notify::notify(false, &[NotifyState::Watchdog]);
            }
            let next = self.machine.wake_at.map_or(self.next_beat, |at| at.min(self.next_beat));
            signals.wait(&[self.machine.socket.as_fd()], next.since(self.machine.clock.now()))?;
            if self.is_busy {
                let pause = PAUSE.min(next.since(self.machine.clock.now()));
                thread::sleep(Duration::from_nanos(pause.as_nanos()));
            }
            // Messages may come faster than they are read.
            while self.is_before(next) && self.receive() > 0 {}
        }
    }

    /// Takes a batch of datagrams; how many.
    fn receive(&mut self) -> usize {
        let count = self.machine.fetch();
        while let Some((message, change)) = self.machine.next() {
            self.came += 1;
            let now = self.machine.fetched();
            if let Some(change) = change {
                info!(host = %self.machine.name(message.from), "is heard again");
                self.runner.change(&mut self.machine, now, message.from, change);
            }
            self.runner.observe(&mut self.machine, now, OWN, &Observation::Message(&message));
        }
        count
    }

    /// Takes what has arrived before a decision: as many datagrams as there are hosts, so that this ends.
    fn catch_up(&mut self) {
        let mut left = self.machine.hosts();
        while left > 0 {
            match self.receive() {
                0 => return,
                count => left = left.saturating_sub(count),
            }
        }
    }

    fn is_before(&self, at: Time) -> bool {
        self.machine.clock.now() < at
    }

    /// Logs a decision that differs from the last, with the values that made it.
    fn account(&mut self, now: Time) {
        let mut shown = self.machine.shown().iter();
        let cued = shown.find(|(name, _)| [CUED, WOULD_CUE].contains(name)).map(|(_, value)| *value);
        let is_costly = self.machine.hosts() > COSTLY;
        if is_costly && self.decided.0 == cued && now < self.next_account {
            return;
        }
        self.next_account = now + ACCOUNT;
        let role = self.runner.roles().next();
        let Some(account) = role.and_then(|role| role.built.controller.as_ref()?.account(now)) else {
            return;
        };
        // The outcome comes before the `;`. The values behind it differ each time.
        let outcome = |line: &str| line.split_once(';').map_or(line, |(outcome, _)| outcome).to_owned();
        let decided = (cued, account.lines().map(outcome).collect::<Vec<_>>());
        let is_news = decided != std::mem::replace(&mut self.decided, decided.clone());
        for line in account.lines() {
            if is_news {
                info!(hosts = cued.map(|hosts| hosts as u64), why = line, "decides");
            } else {
                debug!(hosts = cued.map(|hosts| hosts as u64), why = line, "decides as before");
            }
        }
        self.machine.tell_account(&account);
    }

    /// Reads the files again. What is wrong changes nothing.
    fn reload(&mut self) -> Result<(), String> {
        let told = |error: Error| error.to_string();
        let loaded = load(&self.machine.loaded.file).map_err(told)?;
        let (old, new) = (&self.machine.loaded.deployment, &loaded.deployment);
        let same = old.scheme == new.scheme
            && old.name == new.name
            && old.log == new.log
            && old.listen == new.listen
            && old.state_directory == new.state_directory
            && old.metrics == new.metrics
            && old.enrolment == new.enrolment;
        if !same {
            let why = "name, scheme, sockets, state directory, metrics and log need a restart";
            return Err(why.to_owned());
        }
        self.machine.take(&loaded).map_err(told)?;
        let hosts = loaded.hosts.len();
        let refusals = *self.runner.refusals();
        // No file asks for more than this host does.
        self.runner = runner(loaded).map_err(told)?;
        self.runner.go_on_from(refusals);
        self.machine.wake_at = None;
        self.begin();
        info!(hosts, "has read its files again");
        Ok(())
    }

    fn begin(&mut self) {
        let now = self.machine.clock.now();
        self.runner.begin(&mut self.machine, now);
        for node in self.machine.revoked() {
            self.runner.change(&mut self.machine, now, node, Change::Leave);
        }
    }
}
