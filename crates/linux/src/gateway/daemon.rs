//! The running gateway: one thread that waits for datagrams, signals and the next cycle. It forwards no packet itself.

use std::io;
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use bandmaster_core::control::Passed;
use bandmaster_core::scenario::deployment::{Class, Deployment, Log, Restore, Role};
use bandmaster_core::time::{Span, Time};
use bandmaster_core::units::Rate;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use sd_notify::NotifyState;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use socket2::SockRef;
use tracing::{error, info, warn};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use super::clock::{Clock, seconds_of_day};
use super::counters::{self, Received, Sent};
use super::direction::{self, Answering, Asking, Change, Kind, kind, number};
use super::install::{self, Restored};
use super::journal::State;
use super::order::{self, NoOrder, Order};
use super::shaper::Rates;
use super::status::{self, ClassStatus, SenderStatus, Shared, Status};
use super::{Error, Loaded, device, load, metrics, rules};
use crate::htb::Htb;

/// How a gateway ended that did not fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// By SIGTERM: an ordered stop.
    Stopped,
    /// By SIGINT: somebody at the keyboard.
    Interrupted,
}

/// Network control, as RFC 4594 has it: class selector 6.
const TRAFFIC_CLASS: u32 = 48 << 2;
/// Longer than every probe, so that too long ones show.
const MOST_PAYLOAD: usize = 256;
/// Datagrams in a row before the clock is looked at again.
const BATCH: usize = 256;
/// Rounds in a row that may be left out because data passed while the counters were read.
const MOST_LEFT_OUT: u32 = 2;
/// Answers in a row to questions that the program in the kernel has not seen go.
const MOST_UNSEEN: u32 = 3;
/// How often the peer's silence is looked at, and classes are told anew.
const BEAT: Span = Span::from_secs(1);
/// How much later than told a counter may stand.
const MARGIN: Span = Span::from_millis(50);
/// Small file with the epoch of the last question.
const EPOCH: &str = "epoch";

/// Runs the gateway that `file` describes until a signal ends it. `dry_run` changes nothing: the rates that would be set
/// are logged.
///
/// # Errors
/// When the file is wrong, the machine is not fit, or it fails on the way.
pub fn run(file: &Path, dry_run: bool) -> Result<End, Error> {
    let loaded = load(file)?;
    log_to_stderr(loaded.deployment.log);
    let signals = Signals::new().map_err(|e| Error::Failed(format!("error: signals: {e}")))?;
    let state = if dry_run {
        None
    } else {
        let state = State::hold(Path::new(&loaded.deployment.state_directory))?;
        if let Restored::Done(done) = install::undo(&state)? {
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
    if let Some(state) = gateway.state.as_ref().filter(|_| undo) {
        match install::undo(state) {
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

fn log_to_stderr(form: Log) {
    let level = || EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let registry = tracing_subscriber::registry().with(level());
    // A program that logs already goes on as it does.
    let _ = match form {
        Log::Logfmt => registry.with(tracing_logfmt::builder().layer().with_writer(io::stderr)).try_init(),
        Log::Json => {
            registry.with(tracing_subscriber::fmt::layer().json().with_writer(io::stderr)).try_init()
        }
    };
}

/// Signals as flags, and a stream that wakes who waits.
struct Signals {
    stop: Arc<AtomicBool>,
    interrupt: Arc<AtomicBool>,
    reload: Arc<AtomicBool>,
    wake: UnixStream,
}

impl Signals {
    fn new() -> io::Result<Self> {
        let (wake, sender) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        sender.set_nonblocking(true)?;
        let flag = |signal| -> io::Result<Arc<AtomicBool>> {
            let flag = Arc::new(AtomicBool::new(false));
            signal_hook::flag::register(signal, Arc::clone(&flag))?;
            signal_hook::low_level::pipe::register(signal, sender.try_clone()?)?;
            Ok(flag)
        };
        Ok(Self { stop: flag(SIGTERM)?, interrupt: flag(SIGINT)?, reload: flag(SIGHUP)?, wake })
    }

    fn drain(&self) {
        let mut bytes = [0; 64];
        while io::Read::read(&mut &self.wake, &mut bytes).is_ok_and(|read| read > 0) {}
    }
}

struct Gateway {
    loaded: Loaded,
    state: Option<State>,
    clock: Clock,
    socket: UdpSocket,
    asking: Option<Asking>,
    answering: Option<Answering>,
    /// None in a dry run, and while the interface is away.
    htb: Option<Htb>,
    /// What the scheme wants.
    wanted: Option<Rates>,
    silent: bool,
    sent: Sent,
    received: Received,
    /// Counts in the order of packets, where that can be had.
    order: Option<Order>,
    /// The last question, and whether the scheme still waits to hear what it has left behind.
    open: Option<Vec<u8>>,
    /// Answers in a row to questions that nobody saw go.
    unseen: u32,
    /// When the counter that the last question started stands again.
    counted_at: Option<Time>,
    /// Datagrams refused until then: a false question starts it too.
    refused: u64,
    epoch: u32,
    left_out: u32,
    shared: Shared,
    /// Said once, until it changes.
    complaint: Option<String>,
    next_beat: Time,
}

impl Gateway {
    fn new(loaded: Loaded, state: Option<State>, dry_run: bool) -> Result<Self, Error> {
        let Deployment { peer, listen, interface, .. } = &loaded.deployment;
        device::index(interface)?;
        let socket = open(&loaded.deployment)?;
        let clock = Clock::new();
        let shared: Shared = Arc::new(Mutex::new(Status {
            clock: Some(clock),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            process: std::process::id(),
            file: loaded.file.display().to_string(),
            interface: interface.clone(),
            peer: peer.to_string(),
            dry_run,
            ..Status::default()
        }));
        if let Some(address) = loaded.deployment.metrics {
            metrics::serve(address, Arc::clone(&shared))?;
        }
        let mut epoch = seconds_of_day();
        let mut htb = None;
        if let Some(state) = &state {
            // The day's clock may have been set back: numbers go on above those that were used.
            let used = state.kept(EPOCH).and_then(|text| text.trim().parse::<u32>().ok());
            epoch = used.map_or(epoch, |used| epoch.max(used.wrapping_add(1)));
            state.keep(EPOCH, &epoch.to_string())?;
            status::serve(state.folder(), Arc::clone(&shared))?;
            htb = install::install(state, &loaded)?;
        }
        let (order, counting) = if dry_run {
            (None, COUNTING_DRY.to_owned())
        } else {
            let order = Order::attach(&loaded.deployment);
            if let Err(NoOrder::Refused(why)) = &order {
                warn!(why, "cannot count in the order of packets");
            }
            let counting = order::how(loaded.deployment.role, order.as_ref().map(|_| ()));
            (order.ok(), counting)
        };
        status::lock(&shared).counting.clone_from(&counting);
        let (role, auth) = (loaded.deployment.role, &loaded.deployment.auth);
        info!(?role, interface, %peer, %listen, ?auth, dry_run, counting, "begins");
        let mut new = Self {
            sent: Sent::new(interface),
            socket,
            state,
            clock,
            asking: None,
            answering: None,
            htb,
            wanted: None,
            silent: false,
            received: Received::new(),
            order,
            open: None,
            unseen: 0,
            counted_at: None,
            refused: 0,
            epoch,
            left_out: 0,
            shared,
            complaint: None,
            next_beat: Time::ZERO,
            loaded,
        };
        new.begin(None);
        Ok(new)
    }

    /// New controllers for the deployment, which go on from the bandwidth `estimate`.
    fn begin(&mut self, estimate: Option<Rate>) {
        let now = self.clock.now();
        let deployment = &self.loaded.deployment;
        self.silent = false;
        self.open = None;
        self.unseen = 0;
        self.asking = deployment.sender.as_ref().map(|sender| {
            let settings = &sender.settings.estimator;
            let initial = estimate.unwrap_or(settings.initial).min(settings.ceiling);
            self.wanted = Some(Rates::new(sender, sender.settings.shares.law, initial));
            Asking::new(sender, self.loaded.auth.clone(), self.epoch, initial, now)
        });
        self.answering =
            (deployment.role != Role::Sender).then(|| Answering::new(self.loaded.answer_auth.clone()));
        let mut status = status::lock(&self.shared);
        let estimate = self.wanted.as_ref().map_or(0, |wanted| wanted.root.1.bits_per_sec());
        let class = |class: &Class| ClassStatus {
            name: class.name.clone(),
            need: class.flow.need.bits_per_sec(),
            ..ClassStatus::default()
        };
        status.sender = deployment.sender.as_ref().map(|sender| SenderStatus {
            state: "waiting".to_owned(),
            estimate,
            classes: sender.classes.iter().map(class).collect(),
            ..status.sender.take().unwrap_or_default()
        });
        status.receiver = self.answering.as_ref().map(|_| status.receiver.take().unwrap_or_default());
        drop(status);
        self.apply();
    }

    fn until_signal(&mut self, signals: &Signals) -> Result<End, Error> {
        // Without a service manager there is nobody to tell.
        let _ = sd_notify::notify(false, &[NotifyState::Ready]);
        loop {
            if signals.stop.load(Ordering::Relaxed) {
                info!("stops by signal");
                return Ok(End::Stopped);
            }
            if signals.interrupt.load(Ordering::Relaxed) {
                info!("interrupted");
                return Ok(End::Interrupted);
            }
            if signals.reload.swap(false, Ordering::Relaxed) {
                self.reload()?;
            }
            let now = self.clock.now();
            if self.asking.as_ref().is_some_and(|asking| asking.next() <= now) {
                self.ask(now)?;
            }
            if self.next_beat <= now {
                self.beat(now);
            }
            if self.counted_at.is_some_and(|at| at <= now) {
                self.counted_at = None;
                self.refused = status::lock(&self.shared).refused.total();
                // When the rules are gone, the next question tells.
                let _ = self.received.after_question();
            }
            self.wait(signals)?;
            self.listen();
        }
    }

    fn wait(&self, signals: &Signals) -> Result<(), Error> {
        let next = self.asking.as_ref().map_or(Time::MAX, Asking::next).min(self.next_beat);
        let next = self.counted_at.map_or(next, |at| at.min(next));
        let millis = next.since(self.clock.now()).as_nanos().div_ceil(1_000_000);
        let timeout =
            PollTimeout::try_from(i32::try_from(millis).unwrap_or(1000)).unwrap_or(PollTimeout::ZERO);
        let mut wanted = [
            PollFd::new(self.socket.as_fd(), PollFlags::POLLIN),
            PollFd::new(signals.wake.as_fd(), PollFlags::POLLIN),
        ];
        match poll(&mut wanted, timeout) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {
                signals.drain();
                Ok(())
            }
            Err(e) => Err(Error::Failed(format!("error: poll: {}", e.desc()))),
        }
    }

    /// Sends the question of a cycle. Without the program in the kernel, it goes between two readings of the counters:
    /// when data passed between them, nobody knows whether before or behind it, and the round is left out.
    fn ask(&mut self, now: Time) -> Result<(), Error> {
        self.return_interface();
        self.follow_interface();
        let Some(asking) = &mut self.asking else { return Ok(()) };
        let (question, changes) = asking.tick(now);
        self.want(changes);
        let Some(question) = question else { return Ok(()) };
        if let Some((epoch, _)) = number(&question).filter(|(epoch, _)| *epoch > self.epoch) {
            self.epoch = epoch;
            if let Some(state) = &self.state {
                state.keep(EPOCH, &epoch.to_string())?;
            }
        }
        self.see_question_off();
        let before = self.count_sent();
        let left_at = self.clock.now();
        let sent = self.socket.send(&question);
        if self.order.is_some() {
            // One that still waits for its turn is not told of any more.
            let left_out = self.open.is_some();
            if let Some(sender) = &mut status::lock(&self.shared).sender {
                sender.questions += 1;
                sender.send_errors += u64::from(sent.is_err());
                sender.rounds_left_out += u64::from(left_out);
            }
            self.open = Some(question);
            self.see_question_off();
            return Ok(());
        }
        let after = self.count_sent();
        let mut status = status::lock(&self.shared);
        if let Some(sender) = &mut status.sender {
            sender.questions += 1;
            sender.send_errors += u64::from(sent.is_err());
            let left_out = before != after && self.left_out < MOST_LEFT_OUT;
            self.left_out = if left_out { self.left_out + 1 } else { 0 };
            sender.rounds_left_out += u64::from(left_out);
            if left_out {
                return Ok(());
            }
            if let Some(before) = before {
                (sender.packets, sender.bytes) = (before.packets, before.bytes);
            }
        }
        drop(status);
        let (Some(asking), Some(before)) = (&mut self.asking, before) else { return Ok(()) };
        let changes = asking.left(left_at, &question, before);
        self.want(changes);
        Ok(())
    }

    /// Tells the scheme what the last question has left behind, as soon as it has gone: it may wait for its turn.
    fn see_question_off(&mut self) {
        let (Some(order), Some(question), Some(asking)) = (&mut self.order, &self.open, &mut self.asking)
        else {
            return;
        };
        let Some(note) = order.take(order::Direction::Sent, question) else { return };
        self.unseen = 0;
        if let Some(sender) = &mut status::lock(&self.shared).sender {
            (sender.packets, sender.bytes) = (note.passed.packets, note.passed.bytes);
        }
        let changes = asking.left(self.clock.at(note.at), question, note.passed);
        self.open = None;
        self.want(changes);
    }

    /// An answer has come. When it is to a question that nobody saw go, again and again, questions take another way than
    /// data, and the classes are counted instead.
    fn look_for_unseen(&mut self, answer: &[u8]) {
        if self
            .open
            .as_ref()
            .is_none_or(|question| question.get(direction::NUMBER_AT) != answer.get(direction::NUMBER_AT))
        {
            return;
        }
        self.open = None;
        self.unseen += 1;
        if let Some(sender) = &mut status::lock(&self.shared).sender {
            sender.rounds_left_out += 1;
        }
        if self.unseen >= MOST_UNSEEN {
            let interface = &self.loaded.deployment.interface;
            self.lose_order(&NoOrder::Refused(format!("questions do not leave by {interface}")));
        }
    }

    /// From now on without the program in the kernel.
    fn lose_order(&mut self, why: &NoOrder) {
        let counting = order::how(self.loaded.deployment.role, Err(why));
        warn!(counting, "no longer counts in the order of packets");
        status::lock(&self.shared).counting = counting;
        self.order = None;
        // Other counters, which began at another time: the scheme must not take the difference for data.
        let estimate = self.wanted.as_ref().map(|wanted| wanted.root.1);
        self.epoch = self.epoch.wrapping_add(1);
        if let Some(Err(e)) = self.state.as_ref().map(|state| state.keep(EPOCH, &self.epoch.to_string())) {
            self.complain(&e.to_string());
        }
        self.begin(estimate);
    }

    /// Goes on at an interface that came back.
    fn follow_interface(&mut self) {
        let Some(order) = &mut self.order else { return };
        match order.follow(&self.loaded.deployment) {
            Ok(false) => {}
            Ok(true) => info!("counts at the interface that came back"),
            // It may come back.
            Err(_) if device::index(&self.loaded.deployment.interface).is_err() => {}
            Err(why) => self.lose_order(&why),
        }
    }

    /// The shaper is new.
    fn begin_sums_anew(&mut self) {
        self.sent.begin_anew();
        if let Some(order) = &mut self.order {
            order.begin_anew();
        }
    }

    /// Data sent so far; none while that cannot be told.
    fn count_sent(&mut self) -> Option<Passed> {
        let Some(htb) = &mut self.htb else {
            let interface = &self.loaded.deployment.interface;
            return self.state.is_none().then(|| counters::interface(interface, "tx"));
        };
        match htb.stats() {
            Ok(stats) => Some(self.sent.read(stats)),
            Err(e) => {
                self.lose(&e.to_string());
                None
            }
        }
    }

    /// Takes what has come.
    fn listen(&mut self) {
        let mut payload = [0; MOST_PAYLOAD];
        for _ in 0..BATCH {
            match self.socket.recv(&mut payload) {
                Ok(length) => self.take(&payload[..length]),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                // What the network says of datagrams sent before (no such port, no route) is no news of this one.
                Err(_) => {}
            }
        }
    }

    fn take(&mut self, payload: &[u8]) {
        self.see_question_off();
        let now = self.clock.now();
        let shared = Arc::clone(&self.shared);
        let mut status = status::lock(&shared);
        match (kind(payload), &mut self.asking, &mut self.answering) {
            (Some(Kind::Answer), Some(asking), _) => {
                let Some(changes) = asking.came(now, payload, &mut status.refused) else { return };
                if let Some(sender) = &mut status.sender {
                    sender.answers += 1;
                    sender.heard = Some(now);
                }
                drop(status);
                if self.silent {
                    self.silent = false;
                    info!("the peer answers again; the estimate is in force");
                }
                self.want(changes);
                self.apply();
                self.look_for_unseen(payload);
            }
            (Some(Kind::Question), _, Some(answering)) => {
                let note =
                    self.order.as_mut().and_then(|order| order.take(order::Direction::Received, payload));
                if !answering.admits(payload, &mut status.refused) {
                    return;
                }
                drop(status);
                let (now, passed) = match note {
                    Some(note) => (self.clock.at(note.at), note.passed),
                    None => {
                        let Some(passed) = self.count_received() else { return };
                        (now, passed)
                    }
                };
                let Some(answering) = &mut self.answering else { return };
                let Some(answer) = answering.came(now, payload, passed) else { return };
                let sent = self.socket.send(&answer);
                if let Some(receiver) = &mut status::lock(&shared).receiver {
                    receiver.questions += 1;
                    receiver.heard = Some(now);
                    (receiver.packets, receiver.bytes) = (passed.packets, passed.bytes);
                }
                if let Err(e) = sent {
                    tracing::debug!(error = %e, "an answer could not be sent");
                }
            }
            _ => status.refused.kind += 1,
        }
    }

    fn count_received(&mut self) -> Option<Passed> {
        if self.state.is_none() {
            return Some(counters::interface(&self.loaded.deployment.interface, "rx"));
        }
        if let Some(order) = &self.order {
            // It came by another interface, or was thrown out before it was read.
            return order.received();
        }
        let alone = status::lock(&self.shared).refused.total() == self.refused;
        self.counted_at = Some(self.clock.now() + rules::ANSWERING + MARGIN);
        match self.received.before_question(alone) {
            Ok(passed) => {
                self.content();
                Some(passed)
            }
            Err(e) => {
                // Somebody has flushed the rules: they come back, and the counter begins at nothing.
                self.complain(&format!("{e}; the rules are loaded again"));
                match rules::load(&rules::ruleset(&self.loaded.deployment)) {
                    Ok(()) => self.received = Received::new(),
                    Err(e) => self.complain(&e.to_string()),
                }
                None
            }
        }
    }

    /// Notes what the scheme wants, and puts it in force unless the peer is silent.
    fn want(&mut self, changes: Vec<Change>) {
        let Some(wanted) = self.wanted.as_mut().filter(|_| !changes.is_empty()) else { return };
        for (class, rate, ceil) in changes {
            wanted.set(class, rate, ceil);
        }
        self.apply();
    }

    /// Puts the rates in force that apply now.
    fn apply(&mut self) {
        let Some(sender) = &self.loaded.deployment.sender else { return };
        let safe = self.silent.then(|| Rates::safe(sender));
        let Some(rates) = safe.as_ref().or(self.wanted.as_ref()) else { return };
        if let Some(status) = &mut status::lock(&self.shared).sender {
            status.in_force = rates.root.1.bits_per_sec();
            if let Some(wanted) = &self.wanted {
                status.estimate = wanted.root.1.bits_per_sec();
            }
            for (class, (rate, ceil)) in status.classes.iter_mut().zip(&rates.classes) {
                (class.rate, class.ceil) = (rate.bits_per_sec(), ceil.bits_per_sec());
            }
        }
        if self.state.is_none() {
            let classes: Vec<String> = rates.classes.iter().map(|(rate, _)| rate.to_string()).collect();
            info!(root = %rates.root.1, classes = classes.join(" "), "would set");
        }
        if let Some(Err(e)) = self.htb.as_mut().map(|htb| rates.apply(htb)) {
            self.lose(&e.to_string());
        }
    }

    /// The shaper is gone: somebody removed it, or the interface.
    fn lose(&mut self, why: &str) {
        self.complain(&format!("{why}; the shaper is put back when that is possible"));
        self.htb = None;
    }

    /// Puts the shaper back when the interface is there again.
    fn return_interface(&mut self) {
        let Some(state) = self.state.as_ref().filter(|_| self.htb.is_none()) else { return };
        let again = device::index(&self.loaded.deployment.interface)
            .and_then(|index| install::shaper(&mut state.resume()?, &self.loaded, index, true));
        match again {
            Ok(htb) => {
                self.htb = Some(htb);
                self.begin_sums_anew();
                self.content();
                info!("the shaper is back");
                self.apply();
            }
            Err(e) => self.complain(&e.to_string()),
        }
    }

    /// Looks at the peer's silence, and brings the status up to date.
    fn beat(&mut self, now: Time) {
        self.next_beat = now + BEAT;
        self.follow_interface();
        let fell_silent = !self.silent && self.asking.as_ref().is_some_and(|asking| asking.is_silent(now));
        if fell_silent {
            self.silent = true;
            if let Some(sender) = &self.loaded.deployment.sender {
                warn!(held = %sender.hold, safe = %sender.safe_rate, "the peer is silent; the safe rate is in force");
            }
            self.apply();
        }
        let shared = Arc::clone(&self.shared);
        let mut status = status::lock(&shared);
        if let (Some(sender), Some(asking)) = (&mut status.sender, &self.asking) {
            sender.silences += u64::from(fell_silent);
            sender.state = match (&self.htb, &self.state) {
                (None, Some(_)) => "no interface",
                _ if self.silent => "silent",
                _ if asking.answers == 0 => "waiting",
                _ => "answering",
            }
            .to_owned();
            for (class, stats) in sender.classes.iter_mut().zip(self.sent.classes()) {
                (class.packets, class.bytes) = (stats.packets, stats.bytes);
                (class.drops, class.waiting) = (stats.drops, stats.waiting_packets);
            }
        }
        drop(status);
        let _ = sd_notify::notify(false, &[NotifyState::Watchdog]);
    }

    /// Reads the file again. A wrong one changes nothing.
    fn reload(&mut self) -> Result<(), Error> {
        if let Ok(time) = NotifyState::monotonic_usec_now() {
            let _ = sd_notify::notify(false, &[NotifyState::Reloading, time]);
        }
        let taken = load(&self.loaded.file).and_then(|new| same_place(&self.loaded, &new).map(|()| new));
        let result = match taken {
            Ok(new) => self.change_to(new),
            Err(error) => {
                warn!(%error, "keeps the file before");
                status::lock(&self.shared).reload_error = Some(error.to_string());
                Ok(())
            }
        };
        let _ = sd_notify::notify(false, &[NotifyState::Ready]);
        result
    }

    fn change_to(&mut self, new: Loaded) -> Result<(), Error> {
        let estimate = self.wanted.as_ref().map(|wanted| wanted.root.1);
        let rebuild = shape(&self.loaded.deployment) != shape(&new.deployment);
        let before = std::mem::replace(&mut self.loaded, new);
        if let Some(state) = self.state.as_ref().filter(|_| rebuild) {
            self.htb = None;
            install::undo(state)?;
            match install::install(state, &self.loaded) {
                Ok(htb) => self.htb = htb,
                Err(error) => {
                    warn!(%error, "keeps the file before");
                    status::lock(&self.shared).reload_error = Some(error.to_string());
                    self.loaded = before;
                    self.htb = install::install(state, &self.loaded)?;
                    self.begin_sums_anew();
                    self.received = Received::new();
                    self.apply();
                    return Ok(());
                }
            }
            self.begin_sums_anew();
            self.received = Received::new();
            let told = self.order.as_mut().map(|order| order.set(&self.loaded.deployment));
            if let Some(Err(why)) = told {
                self.lose_order(&why);
            }
        }
        // Numbers go on above those that were used.
        self.epoch = self.epoch.wrapping_add(1);
        if let Some(state) = &self.state {
            state.keep(EPOCH, &self.epoch.to_string())?;
        }
        self.begin(estimate);
        let mut status = status::lock(&self.shared);
        status.reloads += 1;
        status.reload_error = None;
        info!(rebuilt = rebuild, "took the file");
        Ok(())
    }

    /// Says what is wrong, once.
    fn complain(&mut self, what: &str) {
        if self.complaint.as_deref() != Some(what) {
            warn!("{}", what.trim_start_matches("error: "));
            self.complaint = Some(what.to_owned());
        }
    }

    fn content(&mut self) {
        self.complaint = None;
    }
}

fn open(deployment: &Deployment) -> Result<UdpSocket, Error> {
    let Deployment { listen, peer, .. } = deployment;
    let failed = |e: io::Error| Error::Failed(format!("error: udp {listen}: {e}"));
    let socket = UdpSocket::bind(listen).map_err(failed)?;
    // The kernel then drops what comes from elsewhere.
    socket.connect(peer).map_err(|e| Error::Failed(format!("error: peer {peer}: {e}")))?;
    socket.set_nonblocking(true).map_err(failed)?;
    let view = SockRef::from(&socket);
    let marked =
        if peer.is_ipv4() { view.set_tos_v4(TRAFFIC_CLASS) } else { view.set_tclass_v6(TRAFFIC_CLASS) };
    marked.map_err(failed)?;
    Ok(socket)
}

/// Counters of everything: a dry run changes nothing.
const COUNTING_DRY: &str = "counters of the whole interface, nearly in the order of packets";

/// What the kernel was told: when it is the same, a reload leaves it alone.
fn shape(deployment: &Deployment) -> (String, Vec<u32>, bool) {
    let queues =
        deployment.sender.iter().flat_map(|sender| &sender.classes).map(|class| class.queue).collect();
    (rules::ruleset(deployment), queues, deployment.replace_qdisc)
}

/// What a reload cannot change.
fn same_place(old: &Loaded, new: &Loaded) -> Result<(), Error> {
    let (a, b) = (&old.deployment, &new.deployment);
    let changed = [
        ("role", a.role != b.role),
        ("interface", a.interface != b.interface),
        ("state-directory", a.state_directory != b.state_directory),
        ("metrics", a.metrics != b.metrics),
        ("peer", (a.peer, a.listen) != (b.peer, b.listen)),
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
