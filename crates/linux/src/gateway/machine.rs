//! The machine of a gateway as the host of its roles: sockets, the kernel's shaper and its counters.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

use bandmaster_core::control::{Gauges, Passed};
use bandmaster_core::id::{NodeId, PortId};
use bandmaster_core::runtime::faults::PathEnd;
use bandmaster_core::runtime::{Host, Refusal, Refusals};
use bandmaster_core::scheme::Act;
use bandmaster_core::scheme::er2bc::deployment::{Class, Deployment, Role, Whereabouts};
use bandmaster_core::scheme::er2bc::mismatch::Cause;
use bandmaster_core::scheme::er2bc::probe::{Auth, Body, Endpoint, Message, Seq};
use bandmaster_core::time::{Span, Time};
use bandmaster_core::units::Rate;
use socket2::SockRef;
use tracing::{info, warn};

use super::counters::{self, Received, Sent};
use super::install;
use super::journal::State;
use super::order::{self, Order};
use super::peer::Peer;
use super::shaper::Rates;
use super::status::{self, ClassStatus, SenderStatus, Shared, State as PeerState, Status};
use super::{Error, Loaded, claims, device, metrics, rules};
use crate::daemon::clock::{Clock, seconds_of_day};
use crate::htb::Htb;
use crate::kernel::NoProgram;

mod counts;
mod shaping;
mod watch;

use watch::Watch;

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
/// Questions whose answers are still taken.
const MOST_ASKED: usize = 64;
/// How long after its timeout a counter may still run.
const MARGIN: Span = Span::from_millis(50);
/// A receiver that has not been asked for so long looks for its peer.
const QUIET: Span = Span::from_secs(10);
/// Between two counts of flows.
const COUNT: Span = Span::from_secs(5);
/// Small file with the epoch of the last question.
const EPOCH: &str = "epoch";

/// What has left or come, with the data that had passed before it.
type Probe = (Time, Vec<u8>, Passed);

pub(super) struct Machine {
    pub(super) loaded: Loaded,
    pub(super) state: Option<State>,
    pub(super) clock: Clock,
    pub(super) socket: UdpSocket,
    counting: Option<mpsc::Receiver<Result<Vec<u32>, Error>>>,
    next_count: Time,
    peer: Peer,
    /// Hellos sent, and when the last was.
    hellos: (Seq, Option<Time>),
    pub(super) shared: Shared,
    /// Questions that have left, which the roles have not heard of.
    pub(super) left: VecDeque<Probe>,
    /// By role: when it wants to be woken.
    timers: Vec<Option<Time>>,
    /// Of the direction in which this gateway asks, and of the one in which it answers.
    asks: Endpoint,
    answers: Endpoint,
    /// Numbers of questions without an answer, oldest first.
    asked: VecDeque<(u32, u16)>,
    /// None in a dry run, and while the interface is away.
    htb: Option<Htb>,
    /// What the roles want: put in force when it has changed, and again with a new shaper.
    wanted: Option<Rates>,
    /// When it is tried again to put the shaper back.
    next_return: Time,
    has_news: bool,
    sent: Sent,
    received: Received,
    /// Counts in the order of packets, where that can be had.
    order: Option<Order>,
    has_lost_order: bool,
    /// The last question, as sent and as the role wrote it, until the kernel's program has seen it leave.
    open: Option<(Vec<u8>, Vec<u8>)>,
    /// Answers in a row to questions that nobody saw go.
    unseen: u32,
    /// When the counter that the last question started stands again.
    counted_at: Option<Time>,
    /// Datagrams refused until then: a false question starts it too.
    refused: u64,
    epoch: u32,
    left_out: u32,
    /// Datagrams taken since the clock was looked at.
    taken: usize,
    watch: Watch,
    /// The last complaint; it is logged once, until it changes.
    complaint: Option<String>,
    /// Why the gateway cannot go on, from within a role's action.
    failed: Option<Error>,
}

impl Machine {
    pub(super) fn new(loaded: Loaded, state: Option<State>, dry_run: bool) -> Result<Self, Error> {
        let Deployment { listen, interface, .. } = &loaded.deployment;
        let peer = Peer::new(&loaded.deployment);
        device::index(interface)?;
        device::fit(interface)?;
        let socket = open(&loaded.deployment, None)?;
        let clock = Clock::new();
        let shared: Shared = Arc::new(Mutex::new(Status {
            clock: Some(clock),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            name: loaded.deployment.name.clone(),
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
            if let Err(why) = &order {
                info!(%why, "cannot count in the order of packets");
            }
            let counting = order::how(loaded.deployment.role, order.as_ref().map(|_| ()));
            (order.ok(), counting)
        };
        status::lock(&shared).counting.clone_from(&counting);
        let (role, auth) = (loaded.deployment.role, &loaded.deployment.auth);
        info!(?role, interface, %peer, %listen, ?auth, dry_run, counting, "begins");
        Ok(Self {
            sent: Sent::new(interface),
            socket,
            counting: None,
            next_count: Time::ZERO,
            peer,
            hellos: (Seq::default(), None),
            state,
            clock,
            left: VecDeque::new(),
            timers: Vec::new(),
            asks: Endpoint::new(Auth::None, 0),
            answers: Endpoint::new(Auth::None, 0),
            asked: VecDeque::new(),
            htb,
            wanted: None,
            next_return: Time::ZERO,
            has_news: false,
            received: Received::new(rules::table(&loaded.deployment.name)),
            order,
            has_lost_order: false,
            open: None,
            unseen: 0,
            counted_at: None,
            refused: 0,
            epoch,
            left_out: 0,
            taken: 0,
            watch: Watch::default(),
            shared,
            complaint: None,
            failed: None,
            loaded,
        })
    }

    /// Resets the state of probes: the roles start again.
    pub(super) fn begin(&mut self) {
        let deployment = &self.loaded.deployment;
        self.asks = Endpoint::new(self.loaded.auth.clone(), self.epoch);
        if !self.answers.proves_by(&self.loaded.answer_auth) {
            self.answers = Endpoint::new(self.loaded.answer_auth.clone(), 0);
        }
        self.asked.clear();
        self.left.clear();
        self.open = None;
        self.unseen = 0;
        self.has_lost_order = false;
        self.timers.clear();
        self.wanted = deployment
            .sender
            .as_ref()
            .map(|sender| Rates::initial(sender, counters::link_header(&deployment.interface)));
        let mut status = status::lock(&self.shared);
        let class = |class: &Class| ClassStatus {
            name: class.name.clone(),
            need: class.flow.need.bits_per_sec(),
            ..ClassStatus::default()
        };
        status.sender = deployment.sender.as_ref().map(|sender| SenderStatus {
            state: PeerState::Waiting,
            has_interface: self.htb.is_some() || self.state.is_none(),
            classes: sender.classes.iter().map(class).collect(),
            ..status.sender.take().unwrap_or_default()
        });
        let answers = deployment.role != Role::Sender;
        status.receiver = answers.then(|| status.receiver.take().unwrap_or_default());
    }

    /// After every call of a role: puts in force what it wants.
    pub(super) fn settle(&mut self, refusals: &Refusals) -> Result<(), Error> {
        if std::mem::take(&mut self.has_news) {
            self.apply();
        }
        status::lock(&self.shared).note(refusals);
        self.failed.take().map_or(Ok(()), Err)
    }

    // ------------------------------------------------------------------------------------------------ time

    /// A role whose timer has expired, and the time it was set for.
    pub(super) fn take_timer(&mut self, now: Time) -> Option<(usize, Time)> {
        let due = |(role, at): (usize, &mut Option<Time>)| at.take_if(|at| *at <= now).map(|at| (role, at));
        self.timers.iter_mut().enumerate().find_map(due)
    }

    /// When there is something to do next.
    pub(super) fn next_time(&self) -> Time {
        self.timers.iter().copied().chain([self.counted_at]).flatten().min().unwrap_or(Time::MAX)
    }

    /// The counter that the last question started stands again.
    pub(super) fn settle_counter(&mut self, now: Time) {
        self.taken = 0;
        if self.counted_at.take_if(|at| *at <= now).is_some() {
            self.refused = status::lock(&self.shared).refused.total();
            // If the nft rules were deleted, the next probe detects it.
            let _ = self.received.after_question();
        }
    }

    /// Looks for faults and updates the status.
    pub(super) fn beat(&mut self) {
        self.follow_peer();
        self.look_around();
        let mut status = status::lock(&self.shared);
        let Some(sender) = &mut status.sender else { return };
        sender.has_interface = self.htb.is_some() || self.state.is_none();
        for (class, stats) in sender.classes.iter_mut().zip(self.sent.classes()) {
            (class.packets, class.bytes) = (stats.packets, stats.bytes);
            (class.drops, class.waiting) = (stats.drops, stats.waiting_packets);
        }
    }

    // -------------------------------------------------------------------------------------------------- peer

    /// Counts flows where a class wants that, in another thread, since `nft` may be slow. True when a class's need changed,
    /// so that the roles must start again.
    pub(super) fn count_flows(&mut self) -> bool {
        let now = self.clock.now();
        let Some(sender) = self.loaded.deployment.sender.as_mut().filter(|_| self.state.is_some()) else {
            return false;
        };
        if let Some(counting) = &self.counting {
            match counting.try_recv() {
                Err(mpsc::TryRecvError::Empty) => return false,
                Err(mpsc::TryRecvError::Disconnected) => self.counting = None,
                Ok(Err(e)) => {
                    self.counting = None;
                    self.complain(&e.to_string());
                    return false;
                }
                Ok(Ok(counts)) => {
                    self.counting = None;
                    return sender.count(&counts);
                }
            }
        }
        if now >= self.next_count && sender.classes.iter().any(|class| class.counted.is_some()) {
            self.next_count = now + COUNT;
            let (told, counting) = mpsc::channel();
            let (table, sender) = (rules::table(&self.loaded.deployment.name), sender.clone());
            // Nobody may wait for it any more.
            let count = move || drop(told.send(rules::read_flows(&table, &sender)));
            if thread::Builder::new().name("flows".to_owned()).spawn(count).is_ok() {
                self.counting = Some(counting);
            }
        }
        false
    }

    fn transmit(&self, datagram: &[u8]) -> io::Result<()> {
        match self.peer.at() {
            _ if self.peer.is_fixed() => self.socket.send(datagram).map(drop),
            Some(at) => self.socket.send_to(datagram, at).map(drop),
            None => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// The peer is elsewhere than before.
    fn note_moved(&self, why: &str) {
        info!(peer = %self.peer, "the peer is elsewhere: {why}");
        status::lock(&self.shared).peer = self.peer.to_string();
    }

    /// Looks for a peer that is silent, and lets one know where this gateway is that cannot know.
    fn follow_peer(&mut self) {
        let now = self.clock.now();
        let keep_alive = self.loaded.deployment.keep_alive;
        let (is_silent, asked) = {
            let status = status::lock(&self.shared);
            let asked = status.receiver.as_ref().and_then(|receiver| receiver.heard);
            let patience = keep_alive.unwrap_or(QUIET);
            let quiet = asked.is_none_or(|at| now.since(at) >= patience);
            let sender = status.sender.as_ref();
            (sender.map_or(quiet, |sender| sender.state != PeerState::Answering), asked)
        };
        if is_silent {
            self.peer.look_up(now);
        }
        match self.peer.looked_up() {
            Ok(true) => self.note_moved("its name says so"),
            Ok(false) => {}
            Err(why) => self.complain(&why),
        }
        let Some(pause) = keep_alive else { return };
        let is_due = |at: Option<Time>| at.is_none_or(|at| now.since(at) >= pause);
        if is_due(asked) && is_due(self.hellos.1) && self.peer.at().is_some() {
            let seq = self.hellos.0;
            self.hellos = (seq.next(), Some(now));
            if seq.next() == Seq::default()
                && let Err(error) = self.next_epoch()
            {
                self.failed = Some(error);
            }
            if let Some(datagram) = self.answers.hello(self.epoch, seq)
                && let Err(error) = self.transmit(&datagram)
            {
                tracing::debug!(%error, "a hello could not be sent");
            }
        }
    }

    // ------------------------------------------------------------------------------------------------ probes

    /// Sends a question. Without the program in the kernel, it goes between two readings of the counters: when data passed
    /// between them, nobody knows whether before or behind it, and the round is left out.
    fn ask(&mut self, payload: Vec<u8>, datagram: Vec<u8>, seq: u16) -> io::Result<()> {
        if self.asks.epoch() > self.epoch {
            self.epoch = self.asks.epoch();
            if let Some(Err(error)) = self.keep_epoch() {
                self.failed = Some(error);
            }
        }
        if self.asked.len() == MOST_ASKED {
            self.asked.pop_front();
        }
        self.asked.push_back((self.asks.told_epoch(), seq));
        self.see_question_off();
        let before = self.count_sent();
        let left_at = self.clock.now();
        let sent = self.transmit(&datagram);
        let has_order = self.order.is_some();
        let after = if has_order { before } else { self.count_sent() };
        let left_out = sent.is_err()
            || if has_order {
                // An earlier question still waits in a queue; its departure will not be noted any more.
                self.open.is_some()
            } else {
                before != after && self.left_out < MOST_LEFT_OUT
            };
        if let Some(sender) = &mut status::lock(&self.shared).sender {
            sender.questions += 1;
            sender.send_errors += u64::from(sent.is_err());
            sender.rounds_left_out += u64::from(left_out);
        }
        sent?;
        if has_order {
            self.open = Some((datagram, payload));
            self.see_question_off();
            return Ok(());
        }
        self.left_out = if left_out { self.left_out + 1 } else { 0 };
        if let Some(before) = before.filter(|_| !left_out) {
            self.note_left(left_at, payload, before);
        }
        Ok(())
    }

    /// As if the question had been sent.
    #[cfg(test)]
    pub(super) fn expect_answer(&mut self, seq: Seq) {
        self.asked.push_back((self.asks.told_epoch(), seq.get()));
    }

    fn note_left(&mut self, at: Time, payload: Vec<u8>, passed: Passed) {
        if let Some(sender) = &mut status::lock(&self.shared).sender {
            (sender.packets, sender.bytes) = (passed.packets, passed.bytes);
        }
        self.left.push_back((at, payload, passed));
    }

    /// Notes what the last question has left behind, as soon as it has gone: it may wait for its turn.
    pub(super) fn see_question_off(&mut self) {
        let (Some(order), Some((datagram, _))) = (&mut self.order, &self.open) else { return };
        let Some(note) = order.take(order::Direction::Sent, datagram) else { return };
        self.unseen = 0;
        if let Some((_, payload)) = self.open.take() {
            self.note_left(self.clock.at(note.at), payload, note.passed);
        }
    }

    /// The next received probe for the roles.
    pub(super) fn receive(&mut self) -> Option<Probe> {
        let mut datagram = [0; MOST_PAYLOAD];
        while self.taken < BATCH {
            self.taken += 1;
            match self.socket.recv_from(&mut datagram) {
                Ok((length, from)) => {
                    if let Some(probe) = self.take(&datagram[..length], from) {
                        return Some(probe);
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return None,
                // What the network says of datagrams sent before (no such port, no route) is no news of this one.
                Err(_) => {}
            }
        }
        None
    }

    /// Lets a datagram in, or counts why not.
    fn take(&mut self, datagram: &[u8], from: SocketAddr) -> Option<Probe> {
        self.see_question_off();
        let shared = Arc::clone(&self.shared);
        let (answers, asks) = {
            let status = status::lock(&shared);
            (status.receiver.is_some(), status.sender.is_some())
        };
        if asks && Message::starts_refusal(datagram) {
            self.heed(datagram);
            return None;
        }
        let is_question = Message::starts_any_question(datagram);
        let is_asking = Message::starts_any_asking(datagram);
        if !(if is_asking { answers } else { asks }) {
            status::lock(&shared).refused.kind += 1;
            return None;
        }
        let note = self.order.as_mut().filter(|_| is_question);
        let note = note.and_then(|order| order.take(order::Direction::Received, datagram));
        let endpoint = if is_asking { &mut self.answers } else { &mut self.asks };
        let (Message { seq, body }, epoch, payload) = match endpoint.open(datagram) {
            Ok(opened) => opened,
            Err(error) => {
                status::lock(&shared).refused.count(error);
                self.note_bad(datagram, error, is_question);
                return None;
            }
        };
        let payload = payload.to_vec();
        if matches!(body, Body::Report(_)) && epoch != self.asks.told_epoch() {
            // Of an earlier life of this gateway: it proves itself, but somebody repeats it.
            status::lock(&shared).refused.replay += 1;
            return None;
        }
        self.note_good(is_question);
        let now = self.clock.now();
        let is_answer = matches!(body, Body::Answer(_));
        if !is_answer && self.peer.heard(&body, epoch, seq.get(), from) {
            self.note_moved("a newer message came from there");
        }
        if body == Body::Hello {
            return None;
        }
        if body == Body::Question {
            let (now, passed) = match note {
                Some(note) => (self.clock.at(note.at), note.passed),
                None => (now, self.count_received()?),
            };
            if let Some(receiver) = &mut status::lock(&shared).receiver {
                receiver.questions += 1;
                receiver.heard = Some(now);
                (receiver.packets, receiver.bytes) = (passed.packets, passed.bytes);
            }
            return Some((now, payload, passed));
        }
        if body == Body::Watch && self.order.is_none() {
            // It starts the second counter as a question does.
            self.received.disturb();
            self.counted_at = Some(now + rules::ANSWERING + MARGIN);
        }
        if matches!(body, Body::Watch | Body::Report(_)) {
            return Some((now, payload, Passed::default()));
        }
        let number = (epoch, seq.get());
        let Some(at) = self.asked.iter().position(|asked| *asked == number) else {
            status::lock(&shared).refused.unasked += 1;
            return None;
        };
        self.asked.remove(at);
        if self.peer.heard(&body, epoch, seq.get(), from) {
            self.note_moved("an answer came from there");
        }
        if let Some(sender) = &mut status::lock(&shared).sender {
            sender.answers += 1;
            sender.heard = Some(now);
            if sender.state == PeerState::Waiting {
                sender.state = PeerState::Answering;
            }
        }
        self.look_for_unseen(seq.get());
        Some((now, payload, Passed::default()))
    }

    /// An answer has come. When it is to a question that nobody saw go, again and again, questions take another way than
    /// data, and the classes are counted instead.
    fn look_for_unseen(&mut self, seq: u16) {
        let is_it = |(_, payload): &mut (Vec<u8>, Vec<u8>)| {
            Message::decode(payload).is_ok_and(|question| question.seq.get() == seq)
        };
        if self.open.take_if(is_it).is_none() {
            return;
        }
        self.unseen += 1;
        if let Some(sender) = &mut status::lock(&self.shared).sender {
            sender.rounds_left_out += 1;
        }
        if self.unseen >= MOST_UNSEEN {
            let interface = &self.loaded.deployment.interface;
            self.lose_order(&NoProgram::new(format!("questions do not leave by {interface}")));
        }
    }

    // ------------------------------------------------------------------------------------------------ words

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

impl Host for Machine {
    const ACTS: &'static [Act] = &[Act::Probe, Act::SetClass];

    fn wake(&mut self, role: usize, at: Time) {
        if role >= self.timers.len() {
            self.timers.resize(role + 1, None);
        }
        self.timers[role] = Some(at);
    }

    fn show(&mut self, _role: usize, _now: Time, gauges: &Gauges) {
        let value =
            |name: &str| gauges.values().iter().find(|(gauge, _)| *gauge == name).map(|(_, value)| *value);
        let mut status = status::lock(&self.shared);
        let Some(sender) = &mut status.sender else { return };
        if let Some(mbit) = value("estimate") {
            sender.estimate = (mbit * 1e6).round() as u64;
        }
        let mismatch = value("mismatch").and_then(Cause::from_code);
        let is_silent = value("silent") == Some(1.0);
        if is_silent != (sender.state == PeerState::Silent) {
            if is_silent {
                sender.silences += 1;
                warn!("the peer is silent; the safe rate is in force");
                sender.state = PeerState::Silent;
            } else {
                info!("the peer answers again; the estimate is in force");
                sender.state = PeerState::Answering;
            }
        }
        drop(status);
        self.note_mismatch(mismatch);
    }

    fn probe(&mut self, _now: Time, _from: NodeId, _to: NodeId, payload: Vec<u8>) -> Result<(), Refusal> {
        let Ok(Message { seq, body }) = Message::decode(&payload) else { return Err(Refusal::Unable) };
        let sent = if body == Body::Question {
            let datagram = self.asks.seal(payload.clone());
            self.ask(payload, datagram, seq.get())
        } else {
            let endpoint = if body.is_asking() { &mut self.asks } else { &mut self.answers };
            let datagram = endpoint.seal(payload);
            self.transmit(&datagram)
        };
        sent.map_err(|error| {
            tracing::debug!(%error, "a probe could not be sent");
            match error.kind() {
                io::ErrorKind::WouldBlock => Refusal::Busy,
                _ => Refusal::Failed("the kernel does not send the probe"),
            }
        })
    }

    fn passed(&mut self, _from: NodeId, _to: NodeId, end: PathEnd) -> Option<Passed> {
        match end {
            PathEnd::First => self.look_at_sent(),
            PathEnd::Last => self.look_at_received(),
        }
    }

    /// What is wanted is held, and put in force again with a shaper that comes back: only what never can be is refused.
    fn set_class(
        &mut self,
        _port: PortId,
        class: Option<usize>,
        rate: Rate,
        ceil: Rate,
    ) -> Result<(), Refusal> {
        let wanted = self.wanted.as_mut().ok_or(Refusal::Unable)?;
        wanted.set(class, rate, ceil).then_some(()).ok_or(Refusal::Unknown)?;
        self.has_news = true;
        Ok(())
    }
}

/// The socket of messages, bound to `own` where the file leaves the address open.
fn open(deployment: &Deployment, own: Option<IpAddr>) -> Result<UdpSocket, Error> {
    let Deployment { listen, peer, .. } = deployment;
    let own = own.filter(|_| listen.ip().is_unspecified());
    let listen = &SocketAddr::new(own.unwrap_or(listen.ip()), listen.port());
    let failed = |e: io::Error| Error::Failed(format!("error: udp {listen}: {e}"));
    let socket = UdpSocket::bind(listen).map_err(|e| claims::taken("udp", *listen, &e))?;
    if deployment.whereabouts == Whereabouts::Fixed {
        // The kernel then drops what comes from elsewhere.
        socket.connect(peer).map_err(|e| Error::Failed(format!("error: peer {peer}: {e}")))?;
    }
    socket.set_nonblocking(true).map_err(failed)?;
    let view = SockRef::from(&socket);
    let marked =
        if listen.is_ipv4() { view.set_tos_v4(TRAFFIC_CLASS) } else { view.set_tclass_v6(TRAFFIC_CLASS) };
    marked.map_err(failed)?;
    Ok(socket)
}

/// Counters of everything: a dry run changes nothing.
const COUNTING_DRY: &str = "counters of the whole interface, nearly in the order of packets";

/// A sender at `lo` that changes nothing, and in its place whatever a test wants to hear what it would.
#[cfg(test)]
pub(super) mod dry {
    use bandmaster_core::control::Controller;
    use bandmaster_core::runtime::Runner;
    use bandmaster_core::scheme::er2bc::deployment::{self, OTHER, OWN, inventory};
    use bandmaster_core::scheme::{Built, Place, Role, er2bc};

    use super::*;

    const SENDER: &str = r#"
        version = 1
        role = "sender"
        interface = "lo"
        [peer]
        address = "127.0.0.1"
        auth = "none"
        [control]
        safe-rate = "500kbit"
        hold = "3s"
        [[classes]]
        name = "all"
        priority = 1
        need = "400kbit"
    "#;

    pub(in super::super) fn loaded() -> Loaded {
        let mut deployment = deployment::parse("gw.toml", SENDER).unwrap_or_else(|e| panic!("{e}"));
        deployment.listen = ([127, 0, 0, 1], 0).into();
        Loaded { file: "gw.toml".into(), deployment, auth: Auth::None, answer_auth: Auth::None }
    }

    pub(in super::super) fn runner(role: impl Controller + 'static) -> Runner {
        let params = loaded().deployment.sender.expect("a sender").params;
        let place =
            Place { peers: vec![(OTHER, &er2bc::RECEIVER)], ..Place::new(&er2bc::SENDER, OWN, params) };
        let role = Role { scheme: &er2bc::DEF, place, built: Built::brain(role) };
        Runner::new::<Machine>(vec![role], inventory()).unwrap_or_else(|e| panic!("{e}"))
    }
}

#[cfg(test)]
mod tests {
    use bandmaster_core::control::{Action, Controller, Observation, Outbox, Subject};
    use bandmaster_core::runtime::envelope::Key;
    use bandmaster_core::scheme::er2bc::deployment::OTHER;
    use bandmaster_core::scheme::er2bc::probe::Report;

    use super::*;

    const PORT: PortId = PortId(0);

    type Told = Arc<Mutex<Vec<(Subject, Refusal)>>>;

    /// Asks, and changes classes that there are not.
    struct Stubborn {
        next: Time,
        question: Vec<u8>,
        told: Told,
    }

    impl Controller for Stubborn {
        fn on(&mut self, now: Time, observation: &Observation<'_>, out: &mut Outbox) {
            match observation {
                Observation::Tick { .. } => {
                    self.next = now + Span::from_millis(1);
                    let rate = Rate::from_bits_per_sec(1000);
                    for (class, ceil) in [(Some(7), rate), (Some(0), Rate::ZERO), (Some(0), rate)] {
                        out.push(Action::SetClass { port: PORT, class, rate, ceil });
                    }
                    for payload in [self.question.clone(), b"no probe".to_vec()] {
                        out.push(Action::Probe { to: OTHER, payload });
                    }
                }
                Observation::Refused { subject, why } => {
                    self.told.lock().expect("no other panicked").push((*subject, *why));
                }
                _ => {}
            }
        }

        fn wakeup(&self) -> Option<Time> {
            Some(self.next)
        }
    }

    /// A report is of a question of this life; one that was recorded in another is refused, although nothing was heard since.
    #[test]
    fn a_report_of_an_earlier_life_is_refused() {
        let auth = || Auth::Key(Key::new(&[7; 16]).expect("long enough"));
        let mut machine = Machine::new(dry::loaded(), None, true).unwrap_or_else(|e| panic!("{e}"));
        machine.begin();
        machine.asks = Endpoint::new(auth(), 900);
        let from = SocketAddr::from(([127, 0, 0, 1], 4741));
        let reported = |asks: &mut Endpoint| {
            let (mut peer, seq) = (Endpoint::new(auth(), 0), Seq::new(3));
            let question = asks.seal(Message { seq, body: Body::Question }.encode());
            peer.open(&question).expect("a question");
            peer.seal(Message { seq, body: Body::Report(Report::default()) }.encode())
        };
        let recorded = reported(&mut Endpoint::new(auth(), 100));
        assert!(machine.take(&recorded, from).is_none());
        assert_eq!(status::lock(&machine.shared).refused.replay, 1);
        let report = reported(&mut machine.asks);
        assert!(machine.take(&report, from).is_some());
    }

    #[test]
    fn what_the_machine_refuses_comes_back_and_is_counted() {
        let mut machine = Machine::new(dry::loaded(), None, true).unwrap_or_else(|e| panic!("{e}"));
        machine.begin();
        // A socket without a peer, by which nothing can be sent.
        machine.socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");

        let told = Told::default();
        let question = Message { seq: Seq::default(), body: Body::Question }.encode();
        let stubborn = Stubborn { next: Time::ZERO, question, told: Arc::clone(&told) };
        let mut runner = dry::runner(stubborn);
        runner.begin(&mut machine, Time::ZERO);
        for rounds in 1..=3 {
            let now = Time::ZERO + Span::from_millis(rounds);
            let (number, due) = machine.take_timer(now).expect("the role wants to be woken");
            runner.wake(&mut machine, number, due, now);
            machine.settle(runner.refusals()).unwrap_or_else(|e| panic!("{e}"));

            let refused = std::mem::take(&mut *told.lock().expect("no other panicked"));
            let failed = Refusal::Failed("the kernel does not send the probe");
            assert_eq!(
                refused,
                [
                    (Subject::Class(PORT, Some(7)), Refusal::Unknown),
                    (Subject::Class(PORT, Some(0)), Refusal::Unknown),
                    (Subject::Node(OTHER), failed),
                    (Subject::Node(OTHER), Refusal::Unable),
                ]
            );
            let status = status::lock(&machine.shared).clone();
            let count = |act: Act| (act.name().to_owned(), 2 * rounds);
            assert_eq!(status.refused_acts, [count(Act::Probe), count(Act::SetClass)]);
            let sender = status.sender.as_ref().expect("a sender");
            assert_eq!((sender.send_errors, sender.classes[0].rate), (rounds, 1000));
            assert!(machine.left.is_empty(), "what was not sent has not left");
            let text = metrics::text(&status);
            for act in ["probe", "set-class"] {
                let line = format!("bandmaster_gateway_refused_acts_total{{act=\"{act}\"}} {}", 2 * rounds);
                assert!(text.lines().any(|have| have == line), "{line} in\n{text}");
            }
        }
    }
}
