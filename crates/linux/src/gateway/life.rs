//! The running gateway: one thread that waits for datagrams, signals and the next wake-up of a role. It forwards no
//! packet itself.

use std::os::fd::AsFd;
use std::path::Path;

use bandmaster_core::control::Observation;
use bandmaster_core::runtime::Runner;
use bandmaster_core::scheme::er2bc::deployment::{Deployment, OTHER, OWN, Restore, inventory};
use bandmaster_core::time::{Span, Time};
use sd_notify::NotifyState;
use tracing::{error, info, warn};

use super::claims::Claim;
use super::counters;
use super::install::{self, Gone, Restored};
use super::journal::State;
use super::machine::Machine;
use super::{Loaded, load, rules, status};
use crate::daemon::Error;
use crate::daemon::signals::{End, Signals, log_to_stderr};

/// How often the gateway checks the interface and updates the status of classes.
const BEAT: Span = Span::from_secs(1);

/// Runs the gateway that `file` describes until a signal ends it. `dry_run` changes nothing: the rates that would be set
/// are logged.
///
/// # Errors
/// When the file is wrong, the machine is not fit, or it fails on the way.
pub fn run(file: &Path, dry_run: bool) -> Result<End, Error> {
    let loaded = load(file)?;
    log_to_stderr(loaded.deployment.log);
    let signals = Signals::new()?;
    let state = if dry_run {
        None
    } else {
        let claim = Claim::take(&loaded)?;
        let mut state = State::hold(Path::new(&loaded.deployment.state_directory))?;
        state.hold_as(&loaded.deployment.name, claim)?;
        if let Restored::Done(done) = install::undo(&state, Gone::Fine)? {
            warn!(done = done.join("; "), "a gateway before this one left changes, which were undone");
        }
        Some(state)
    };
    let restore = loaded.deployment.restore;
    let mut gateway = Gateway::new(loaded, state, dry_run)?;
    let end = gateway.until_signal(&signals);
    let _ = sd_notify::notify(false, &[NotifyState::Stopping]);
    let undo = match restore {
        Restore::OnExit => true,
        Restore::OnFailure => end.is_err(),
        Restore::Never => false,
    };
    if let Some(state) = gateway.machine.state.as_ref().filter(|_| undo) {
        match install::undo(state, Gone::Fine) {
            Ok(Restored::Done(done)) => info!(done = done.join("; "), "restored"),
            Ok(Restored::Nothing) => {}
            Err(second) => {
                error!(error = %second, "cannot restore; the journal stays for `gateway restore`");
                return Err(end.err().unwrap_or(second));
            }
        }
    }
    end
}

struct Gateway {
    runner: Runner,
    machine: Machine,
    next_beat: Time,
}

impl Gateway {
    fn new(loaded: Loaded, state: Option<State>, dry_run: bool) -> Result<Self, Error> {
        let machine = Machine::new(loaded, state, dry_run)?;
        let mut new = Self { runner: Runner::default(), machine, next_beat: Time::ZERO };
        new.begin()?;
        Ok(new)
    }

    /// Creates roles for the deployment; they continue from the state that the previous ones saved.
    fn begin(&mut self) -> Result<(), Error> {
        let saved = self.runner.save();
        let refusals = *self.runner.refusals();
        let deployment = &self.machine.loaded.deployment;
        let roles = deployment.roles(counters::link_header(&deployment.interface), &saved);
        self.runner = Runner::new::<Machine>(roles, inventory())
            .map_err(|lacks| Error::Missing(format!("error: {lacks}")))?;
        self.runner.go_on_from(refusals);
        self.machine.begin();
        let now = self.machine.clock.now();
        self.run_roles(|runner, machine| runner.begin(machine, now))
    }

    /// Lets the runner work, and tells it what questions have left behind them.
    fn run_roles(&mut self, work: impl FnOnce(&mut Runner, &mut Machine)) -> Result<(), Error> {
        let Self { runner, machine, .. } = self;
        work(runner, machine);
        while let Some((at, payload, passed)) = machine.left.pop_front() {
            runner.observe(machine, at, OWN, &Observation::ProbeLeft { payload: &payload, passed });
        }
        machine.settle(runner.refusals())
    }

    fn until_signal(&mut self, signals: &Signals) -> Result<End, Error> {
        // Without a service manager there is nobody to tell.
        let _ = sd_notify::notify(false, &[NotifyState::Ready]);
        loop {
            if let Some(end) = signals.end() {
                return Ok(end);
            }
            if signals.reload() {
                self.reload()?;
            }
            let now = self.machine.clock.now();
            while let Some((role, due)) = self.machine.take_timer(now) {
                self.machine.return_interface();
                self.follow_interface()?;
                self.run_roles(|runner, machine| runner.wake(machine, role, due, now))?;
            }
            if self.next_beat <= now {
                self.next_beat = now + BEAT;
                self.follow_interface()?;
                self.machine.beat();
                if self.machine.count_flows() {
                    self.machine.next_epoch()?;
                    self.begin()?;
                }
                let _ = sd_notify::notify(false, &[NotifyState::Watchdog]);
            }
            self.machine.settle_counter(now);
            let next = self.machine.next_time().min(self.next_beat);
            signals.wait(&[self.machine.socket.as_fd()], next.since(self.machine.clock.now()))?;
            self.listen()?;
        }
    }

    /// Takes the datagrams that have arrived.
    fn listen(&mut self) -> Result<(), Error> {
        while let Some((at, payload, passed)) = self.machine.receive() {
            // A question has left before its answer comes.
            self.run_roles(|_, machine| machine.see_question_off())?;
            self.run_roles(|runner, machine| {
                let came = Observation::ProbeCame { from: OTHER, payload: &payload, passed };
                runner.observe(machine, at, OWN, &came);
            })?;
            if self.machine.has_lost_order() {
                self.begin()?;
            }
        }
        Ok(())
    }

    /// Continues on an interface that came back; without the program in the kernel if that fails.
    fn follow_interface(&mut self) -> Result<(), Error> {
        if self.machine.follow_interface() { self.begin() } else { Ok(()) }
    }

    /// Reads the file again. A wrong one changes nothing.
    fn reload(&mut self) -> Result<(), Error> {
        if let Ok(time) = NotifyState::monotonic_usec_now() {
            let _ = sd_notify::notify(false, &[NotifyState::Reloading, time]);
        }
        let taken = load(&self.machine.loaded.file)
            .and_then(|new| same_place(&self.machine.loaded, &new).map(|()| new));
        let result = match taken {
            Ok(new) => self.change_to(new),
            Err(error) => {
                warn!(%error, "keeps the file before");
                status::lock(&self.machine.shared).reload_error = Some(error.to_string());
                Ok(())
            }
        };
        let _ = sd_notify::notify(false, &[NotifyState::Ready]);
        result
    }

    fn change_to(&mut self, new: Loaded) -> Result<(), Error> {
        let machine = &mut self.machine;
        let rebuild = shape(&machine.loaded.deployment) != shape(&new.deployment);
        let before = std::mem::replace(&mut machine.loaded, new);
        if rebuild && !machine.rebuild(before)? {
            return Ok(());
        }
        // Numbers go on above those that were used.
        machine.next_epoch()?;
        self.begin()?;
        let mut status = status::lock(&self.machine.shared);
        status.reloads += 1;
        status.reload_error = None;
        info!(rebuilt = rebuild, "took the file");
        Ok(())
    }
}

/// What the gateway sets in the kernel: a reload leaves it alone when it is the same.
fn shape(deployment: &Deployment) -> (String, Vec<u32>, bool) {
    let queues =
        deployment.sender.iter().flat_map(|sender| &sender.classes).map(|class| class.queue).collect();
    (rules::ruleset(deployment), queues, deployment.replace_qdisc)
}

/// What a reload cannot change.
fn same_place(old: &Loaded, new: &Loaded) -> Result<(), Error> {
    let (a, b) = (&old.deployment, &new.deployment);
    let changed = [
        ("name", a.name != b.name),
        ("role", a.role != b.role),
        ("interface", a.interface != b.interface),
        ("state-directory", a.state_directory != b.state_directory),
        ("metrics", a.metrics != b.metrics),
        ("peer", (a.peer, a.listen, &a.whereabouts) != (b.peer, b.listen, &b.whereabouts)),
        ("restore", a.restore != b.restore),
        ("log", a.log != b.log),
    ];
    match changed.iter().find(|(_, changed)| *changed) {
        None => Ok(()),
        Some((key, _)) => {
            let file = new.file.display();
            Err(Error::Usage(format!("error: {file}: {key} has changed: that takes a restart, not a reload")))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::sync::{Arc, Mutex};

    use bandmaster_core::control::{Controller, Outbox, Passed};
    use bandmaster_core::scheme::er2bc::probe::{Body, Counters, Message, Seq};

    use super::super::machine::dry;
    use super::*;

    struct Listener(Arc<Mutex<Vec<&'static str>>>);

    impl Controller for Listener {
        fn on(&mut self, _now: Time, observation: &Observation<'_>, _out: &mut Outbox) {
            self.0.lock().expect("no other panicked").push(match observation {
                Observation::ProbeLeft { .. } => "left",
                Observation::ProbeCame { .. } => "came",
                _ => "else",
            });
        }

        fn wakeup(&self) -> Option<Time> {
            None
        }
    }

    /// A program in the kernel tells of a question when somebody looks, which may be as late as with the answer.
    #[test]
    fn a_role_hears_that_a_question_left_before_its_answer_came() {
        let mut gateway = Gateway::new(dry::loaded(), None, true).unwrap_or_else(|e| panic!("{e}"));
        let [own, peer] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").expect("a socket"));
        own.connect(peer.local_addr().expect("bound")).expect("connected");
        peer.connect(own.local_addr().expect("bound")).expect("connected");
        own.set_nonblocking(true).expect("a socket");
        gateway.machine.socket = own;

        let heard = Arc::default();
        gateway.runner = dry::runner(Listener(Arc::clone(&heard)));
        for number in 0..3 {
            let seq = Seq::new(number);
            gateway.machine.expect_answer(seq);
            let question = Message { seq, body: Body::Question }.encode();
            gateway.machine.left.push_back((Time::ZERO, question, Passed::default()));
            let counters = Counters { packets: 1, bytes: 1, time: Time::ZERO };
            peer.send(&Message { seq, body: Body::Answer(counters) }.encode()).expect("sent");
            gateway.listen().unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(std::mem::take(&mut *heard.lock().expect("no other panicked")), ["left", "came"]);
        }
    }
}
