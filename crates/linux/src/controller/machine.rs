//! The network as a controller sees it: hosts that send reports and receive settings, over one socket.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use bandmaster_core::agent::{CONTROLLER, Scheme};
use bandmaster_core::control::{Gauges, Message, Refusal};
use bandmaster_core::controller::{Deployment, ENROLLED, Host as Told};
use bandmaster_core::id::NodeId;
use bandmaster_core::neighbours;
use bandmaster_core::runtime::envelope::{Forged, Key, Line, sender};
use bandmaster_core::runtime::inventory::Change;
use bandmaster_core::runtime::{Host, Refusals};
use bandmaster_core::scheme::Act;
use bandmaster_core::sketch;
use bandmaster_core::time::{Span, Time};
use nix::sys::socket::{GetSockOpt, SetSockOpt, sockopt};
use tracing::{debug, error, info, warn};

use super::batch::{Batch, Sent};
use super::discover::Looks;
use super::inbox::Inbox;
use super::places::Places;
use super::records::{Records, Taken};
use super::status::{HostStatus, Shared, Status, lock};
use super::{HALTED, Loaded, Refused, agent_file, hosts_file, key_of};
use crate::daemon::Error;
use crate::daemon::clock::Clock;
use crate::daemon::state::{Epochs, Slab, State};
use crate::enrolment::ledger::Ledger;
use crate::enrolment::server::{self, Desk, Roster};
use crate::enrolment::tls::Authority;

/// Room for what comes while the role decides: reports of some 100,000 hosts.
const RECEIVE_BUFFER: usize = 64 << 20;
/// What a report takes of it, half of what the kernel counts.
const ROOM_OF_REPORT: usize = 384;
/// File of the highest message number heard from every host.
const HEARD: &str = "heard";
/// File of the epoch of messages to hosts.
const EPOCH: &str = "epoch";
/// Bytes of an entry of that file: the host's number, and the one heard.
const ENTRY: usize = 12;
/// A BAS host without a report for this many measurement or notification intervals counts as away, and its flows with it.
const SILENT_INTERVALS: u64 = 20;
/// A host without a report for this many cycles, or intervals of BAS, does not count as heard.
const HEARD_INTERVALS: u64 = 3;
/// The log mentions refused datagrams at most once per this time.
const COMPLAINT: Span = Span::from_secs(60);
/// Gauge: hosts that get settings. When the controller only observes, the second name is used.
pub(super) const CUED: &str = "cued";
pub(super) const WOULD_CUE: &str = "would_cue";
/// How many silent hosts a status names.
const NAMED: usize = 20;

/// Nothing is journaled: a controller changes nothing on its own machine.
type Nothing = ();

/// The hosts.
pub(super) struct Machine {
    pub(super) loaded: LoadedParts,
    pub(super) clock: Clock,
    pub(super) socket: UdpSocket,
    pub(super) shared: Shared,
    /// When the role wants to be woken.
    pub(super) wake_at: Option<Time>,
    state: State<Nothing>,
    heard: Slab,
    /// By a host's number: the highest heard, of hosts that were taken away, who may come back.
    heard_of: BTreeMap<u32, u64>,
    epochs: Epochs,
    peers: Vec<Peer>,
    /// By a host's number: its place in `peers`, and its node less one.
    by_number: Places,
    /// Decides, and sends no settings.
    observes: bool,
    halted: bool,
    /// When the log last mentioned refused datagrams.
    complained: Option<Time>,
    /// Messages that were not sent because of that.
    held: u64,
    /// Those of them that the runner counts as refused.
    refused_held: u64,
    shown: Vec<(&'static str, f64)>,
    counts: Counts,
    inbox: Inbox,
    /// When the inbox was filled.
    fetched: Time,
    batch: Batch,
    /// Nodes whose message of the last actions could not be sent.
    unsent: Vec<NodeId>,
    records: Records,
    /// Of its own, so that nobody who writes stops the controller.
    ledger: Ledger,
    /// What of the files the enrolment's thread reads.
    read: Arc<Mutex<Roster>>,
    desk: Option<Arc<Desk>>,
    /// Hosts that have enrolled and were not in their file when it was read last.
    absent: BTreeSet<u32>,
    /// The state of the ledger that was taken over.
    seen: (u64, u64),
    /// A host has enrolled that is not among those of the files, which have not been read again yet.
    is_news: bool,
    /// Why the ledger cannot be read; none: it can.
    unread: Option<String>,
    looks: Looks,
}

/// What of a [`Loaded`] stays when its role has gone to a runner.
pub(super) struct LoadedParts {
    pub(super) file: PathBuf,
    pub(super) deployment: Deployment,
    hosts: Vec<Told>,
}

/// A host.
struct Peer {
    line: Line,
    /// Where its last valid message came from.
    address: Option<SocketAddr>,
    heard: Option<Time>,
    away: bool,
    /// The controller refuses its messages and sends it none.
    revoked: bool,
    /// Of its secret as the ledger has it; none: it has not enrolled, or its secret is in the hosts-file.
    secret: Option<String>,
}

#[derive(Default)]
struct Counts {
    messages: u64,
    sent: u64,
    send_errors: u64,
    refused: Refused,
}

impl Machine {
    /// Prepares the machine without sending anything. The caller keeps the role of `loaded`.
    pub(super) fn new(loaded: &Loaded, observes: bool) -> Result<Self, Error> {
        let deployment = &loaded.deployment;
        let state = State::<Nothing>::hold(Path::new(&deployment.state_directory))?;
        state.hold_as(&format!("controller `{}`", deployment.name))?;
        let (heard, epochs) = (state.slab(HEARD)?, state.epochs(EPOCH)?);
        let listen = deployment.listen;
        let failed = |error: io::Error| Error::Failed(format!("error: udp {listen}: {error}"));
        let socket = UdpSocket::bind(listen).map_err(failed)?;
        socket.set_nonblocking(true).map_err(failed)?;
        // As much as this user may have: more than `net.core.rmem_max` needs CAP_NET_ADMIN.
        if sockopt::RcvBufForce.set(&socket, &RECEIVE_BUFFER).is_err() {
            let _ = sockopt::RcvBuf.set(&socket, &RECEIVE_BUFFER);
        }
        // The kernel tells twice as much, as it counts what it needs around a datagram.
        let room = sockopt::RcvBuf.get(&socket).unwrap_or(0) / 2 / ROOM_OF_REPORT;
        if room < loaded.hosts.len() {
            warn!(
                room,
                hosts = loaded.hosts.len(),
                "reports that come while the controller decides may be lost: raise net.core.rmem_max to {} bytes",
                loaded.hosts.len() * ROOM_OF_REPORT
            );
        }
        let mut ledger = Ledger::of(state.folder())?;
        if let Err(error) = ledger.shorten() {
            warn!(%error, "lines that have been overtaken stay");
        }
        let read = Arc::new(Mutex::new(read_of(loaded)));
        let desk = match deployment.enrolment {
            None => None,
            Some(at) => {
                let failed = |error: io::Error| Error::Failed(format!("error: enrolment {at}: {error}"));
                let listener = TcpListener::bind(at).map_err(failed)?;
                let authority = Authority::of(state.folder())?;
                let writes = Arc::new(Mutex::new(Ledger::of(state.folder())?));
                let desk = Desk::new(writes, authority, Arc::clone(&read), agent_file);
                let desk = Arc::new(desk);
                Arc::clone(&desk).serve(listener)?;
                Some(desk)
            }
        };
        let clock = Clock::of_day();
        let records = Records::new(state.folder());
        let status = Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            name: deployment.name.clone(),
            process: std::process::id(),
            file: loaded.file.display().to_string(),
            scheme: deployment.scheme.def().name.to_owned(),
            listen: listen.to_string(),
            enrolment: deployment.enrolment.map(|at| at.to_string()),
            observes,
            started: Some(clock.now()),
            clock: Some(clock),
            ..Status::default()
        };
        let mut machine = Self {
            loaded: LoadedParts {
                file: loaded.file.clone(),
                deployment: deployment.clone(),
                hosts: Vec::new(),
            },
            clock,
            socket,
            shared: Arc::new(status.into()),
            wake_at: None,
            state,
            heard_of: heard_before(&heard.content),
            heard,
            epochs,
            peers: Vec::new(),
            by_number: Places::default(),
            observes,
            halted: false,
            complained: None,
            held: 0,
            refused_held: 0,
            shown: Vec::new(),
            counts: Counts::default(),
            inbox: Inbox::default(),
            fetched: clock.now(),
            batch: Batch::default(),
            unsent: Vec::new(),
            records,
            ledger,
            read,
            desk,
            absent: BTreeSet::new(),
            seen: (0, 0),
            is_news: false,
            unread: None,
            looks: Looks::default(),
        };
        machine.take(loaded)?;
        machine.look_for_halt();
        Ok(machine)
    }

    pub(super) fn folder(&self) -> &Path {
        self.state.folder()
    }

    /// Takes over files that were read again. What is known of hosts that are still the same stays.
    ///
    /// # Errors
    /// When the state directory cannot be written; then nothing has changed.
    pub(super) fn take(&mut self, loaded: &Loaded) -> Result<(), Error> {
        let failed = |error: io::Error| Error::Failed(format!("error: state directory: {EPOCH}: {error}"));
        // A host that was taken away and comes back has heard the numbers of the last one.
        let epoch = self.epochs.next().map_err(failed)?;
        // Also of those that are there now; at the start there are none.
        let heard_now: Vec<(u32, u64)> = self.heard_now().collect();
        self.heard_of.extend(heard_now);
        let before = &self.heard_of;
        self.ledger.refresh()?;
        let ledger = &self.ledger;
        // As of now, not of when the file was read. An error is before anything changes.
        let keys = loaded.hosts.iter().zip(&loaded.keys).map(|(host, key)| match host.secret == ENROLLED {
            true => key_of(host, ledger),
            false => Ok(key.clone()),
        });
        let keys = keys.collect::<Result<Vec<Key>, Error>>()?;
        let mut known: BTreeMap<Told, Peer> =
            std::mem::take(&mut self.loaded.hosts).into_iter().zip(self.peers.drain(..)).collect();
        let peer = |(host, key): (&Told, Key)| {
            let secret = enrolled_secret(ledger, host).map(str::to_owned);
            let peer = known.remove(host).unwrap_or_else(|| {
                let line = Line::new(key.clone(), NodeId(CONTROLLER), NodeId(host.number), epoch);
                let line = line.after(before.get(&host.number).copied().unwrap_or(0));
                Peer { line, address: None, heard: None, away: false, revoked: false, secret: None }
            });
            let line = peer.line.with_key(key);
            let revoked = ledger.is_revoked(host);
            // A revoked host gets no messages.
            let address = peer.address.filter(|_| !revoked);
            Peer { line, address, away: revoked, revoked, secret, ..peer }
        };
        self.peers = loaded.hosts.iter().zip(keys).map(peer).collect();
        let numbers: BTreeSet<u32> = loaded.hosts.iter().map(|host| host.number).collect();
        self.absent = ledger.enrolled().filter(|number| !numbers.contains(number)).collect();
        self.seen = ledger.version();
        self.is_news = false;
        *server::lock(&self.read) = read_of(loaded);
        self.by_number = loaded.hosts.iter().map(|host| host.number).collect();
        self.heard_of.retain(|number, _| !numbers.contains(number));
        self.loaded = LoadedParts {
            file: loaded.file.clone(),
            deployment: loaded.deployment.clone(),
            hosts: loaded.hosts.clone(),
        };
        Ok(())
    }

    /// The numbers of the hosts that have been heard, and the highest heard from each.
    fn heard_now(&self) -> impl Iterator<Item = (u32, u64)> {
        let all =
            self.loaded.hosts.iter().zip(&self.peers).map(|(host, peer)| (host.number, peer.line.heard()));
        all.filter(|(_, heard)| *heard > 0)
    }

    /// Keeps what was heard. Of the last second before a `kill -9` it may not know.
    fn keep_heard(&mut self) {
        let mut bytes = Vec::with_capacity((self.heard_of.len() + self.peers.len()) * ENTRY);
        for (number, heard) in
            self.heard_of.iter().map(|(&number, &heard)| (number, heard)).chain(self.heard_now())
        {
            bytes.extend(number.to_be_bytes());
            bytes.extend(heard.to_be_bytes());
        }
        if let Err(error) = self.heard.write(bytes) {
            debug!(%error, "cannot write down which messages were heard");
        }
    }

    fn look_for_halt(&mut self) {
        // If the file system gives no answer, nothing has changed.
        let halted = self.state.folder().join(HALTED).try_exists().unwrap_or(self.halted);
        if halted != self.halted {
            if halted {
                warn!("halted: sends nothing, and leases end; `bandmaster controller resume` goes on");
            } else {
                info!("goes on");
            }
        }
        self.halted = halted;
    }

    /// Takes a batch of the datagrams received since the last call; how many.
    pub(super) fn fetch(&mut self) -> usize {
        self.fetched = self.clock.now();
        self.inbox.fetch(&self.socket)
    }

    /// When the last batch was taken.
    pub(super) fn fetched(&self) -> Time {
        self.fetched
    }

    /// A valid message among those [fetched](Self::fetch), and whether its host was away; none when nothing is left.
    pub(super) fn next(&mut self) -> Option<(Message, Option<Change>)> {
        while let Some((bytes, from)) = self.inbox.next() {
            let place = sender(bytes)
                .ok_or(Forged::Length)
                .and_then(|host| self.by_number.get(host.0).ok_or(Forged::Sender(host)));
            let opened = place.and_then(|place| Ok((place, self.peers[place].line.open(bytes)?)));
            match opened {
                Ok((place, _)) if self.peers[place].revoked => {
                    self.counts.refused.revoked += 1;
                    self.complain(from, Some(place), "it is revoked");
                }
                Ok((place, message)) if message.scheme == self.loaded.deployment.scheme.def().code => {
                    let peer = &mut self.peers[place];
                    self.counts.messages += 1;
                    peer.heard = Some(self.fetched);
                    peer.address = Some(from);
                    let back = std::mem::take(&mut peer.away).then_some(Change::Join);
                    return Some((Message { from: node(place), ..message }, back));
                }
                Ok((place, message)) if message.scheme == sketch::CODE => {
                    let host = self.loaded.hosts[place].number;
                    match self.records.take(self.fetched, host, from.ip(), message.body) {
                        Taken::Kept => {}
                        Taken::NoReport => self.counts.refused.report += 1,
                        Taken::TooMuch => self.counts.refused.excess += 1,
                    }
                }
                Ok((place, message)) if message.scheme == neighbours::CODE => {
                    let host = &self.loaded.hosts[place];
                    let is_router = self.loaded.deployment.routers.iter().any(|of| of.name == host.name);
                    if !is_router || !self.looks.take(self.fetched, host.number, &message.body) {
                        self.counts.refused.report += 1;
                    }
                }
                Ok(_) => self.counts.refused.scheme += 1,
                Err(why) => {
                    self.counts.refused.count(why);
                    let host = sender(bytes).and_then(|host| self.by_number.get(host.0));
                    self.complain(from, host, complaint(why));
                }
            }
        }
        None
    }

    /// Sends the messages that wait.
    fn send_batch(&mut self) {
        let Sent { sent, refused } = self.batch.send(&self.socket);
        self.counts.sent += sent;
        self.counts.send_errors += refused.len() as u64;
        self.unsent.extend(refused);
    }

    fn complain(&mut self, from: SocketAddr, host: Option<usize>, why: &str) {
        let now = self.clock.now();
        if self.complained.is_none_or(|last| now.since(last) > COMPLAINT) {
            self.complained = Some(now);
            let host = host.map_or("nobody who is known", |place| &self.loaded.hosts[place].name);
            warn!(%from, claims = host, why, "refuses a datagram; more are counted only, for a minute");
        }
    }

    /// Takes over what the ledger says of the hosts: new secrets, and who is revoked. Nodes of those; and whether a host has enrolled that is
    /// not among the hosts that were read.
    pub(super) fn look_into_ledger(&mut self) -> (Vec<NodeId>, bool) {
        let refreshed = self.ledger.refresh();
        let ledger = &self.ledger;
        let (lines, unread) = (ledger.version(), refreshed.err().map(|error| error.to_string()));
        if unread != self.unread {
            if let Some(error) = &unread {
                error!(%error, "cannot read who has enrolled and who is revoked");
            }
            self.unread = unread;
        }
        if self.seen == lines {
            return (Vec::new(), self.is_news);
        }
        self.seen = lines;
        let mut gone = Vec::new();
        for (place, (host, peer)) in self.loaded.hosts.iter().zip(&mut self.peers).enumerate() {
            let secret = enrolled_secret(ledger, host);
            if host.secret == ENROLLED
                && secret != peer.secret.as_deref()
                && let Ok(key) = key_of(host, ledger)
            {
                peer.line = peer.line.clone().with_key(key);
                peer.secret = secret.map(str::to_owned);
                info!(host = %host.name, "has another secret");
            }
            let revoked = ledger.is_revoked(host);
            if revoked && !peer.revoked {
                warn!(host = %host.name, number = host.number, "is revoked: its messages are refused, and it gets none");
                // Nothing is sent to it, and the role hears that it is away.
                (peer.away, peer.address) = (true, None);
                gone.push(node(place));
            } else if !revoked && peer.revoked {
                info!(host = %host.name, number = host.number, "is not revoked any more");
            }
            peer.revoked = revoked;
        }
        let is_known = |number: &u32| self.by_number.get(*number).is_some() || self.absent.contains(number);
        self.is_news = ledger.enrolled().any(|number| !is_known(&number));
        (gone, self.is_news)
    }

    /// Nodes of hosts that are revoked. A role that begins takes them for present.
    pub(super) fn revoked(&self) -> Vec<NodeId> {
        let revoked = self.peers.iter().enumerate().filter(|(_, peer)| peer.revoked);
        revoked.map(|(place, _)| node(place)).collect()
    }

    /// Once a second: saves state and updates the status. Returns the hosts that have fallen silent.
    pub(super) fn beat(&mut self, refusals: &Refusals) -> Vec<NodeId> {
        self.look_for_halt();
        self.keep_heard();
        let now = self.clock.now();
        if let Err(error) = self.records.keep(now) {
            debug!(%error, "cannot write down what hosts have recorded");
        }
        if let Err(error) = self.looks.keep(&self.state) {
            debug!(%error, "cannot write down what routers see");
        }
        let silence = silence(&self.loaded.deployment);
        let mut gone = Vec::new();
        for (place, peer) in self.peers.iter_mut().enumerate() {
            let is_silent = silence.zip(peer.heard).is_some_and(|(most, heard)| now.since(heard) > most);
            if is_silent && !peer.away {
                peer.away = true;
                gone.push(node(place));
            }
        }
        for node in &gone {
            info!(host = %self.name(*node), "is silent: it counts as away");
        }
        self.tell(refusals, now);
        gone
    }

    fn tell(&self, refusals: &Refusals, now: Time) {
        let most = self.loaded.deployment.interval() * HEARD_INTERVALS;
        let is_heard =
            |peer: &Peer| !peer.revoked && peer.heard.is_some_and(|heard| now.since(heard) <= most);
        let heard = self.peers.iter().filter(|peer| is_heard(peer)).count();
        let silent = |(host, peer): (&Told, &Peer)| match peer.heard {
            _ if is_heard(peer) => None,
            heard => Some(HostStatus {
                name: host.name.clone(),
                number: host.number,
                last_message: heard.map(|heard| now.since(heard).as_secs_f64()),
            }),
        };
        let mut status = lock(&self.shared);
        status.hosts = self.peers.len() as u64;
        status.hosts_heard = heard as u64;
        status.silent = self.loaded.hosts.iter().zip(&self.peers).filter_map(silent).take(NAMED).collect();
        status.halted = self.halted;
        status.messages = self.counts.messages;
        status.sent = self.counts.sent;
        status.held = self.held;
        status.send_errors = self.counts.send_errors;
        status.refused = self.counts.refused;
        let revoked = self.loaded.hosts.iter().zip(&self.peers).filter(|(_, peer)| peer.revoked);
        status.revoked = revoked.clone().count() as u64;
        status.revoked_hosts = revoked.map(|(host, _)| host.name.clone()).take(NAMED).collect();
        status.enrolled = self.peers.iter().filter(|peer| peer.secret.is_some()).count() as u64;
        status.ledger_error = self.unread.clone();
        status.questions = self.desk.as_ref().map(|desk| desk.questions()).unwrap_or_default();
        status.shown = self.shown.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
        // What is held back is counted there.
        let not_done = |act: Act| {
            let held = if act == Act::Send { self.refused_held } else { 0 };
            (act.name().to_owned(), refusals.of(act).saturating_sub(held))
        };
        status.refused_acts = Self::ACTS.iter().copied().map(not_done).collect();
    }

    /// What the role shows.
    pub(super) fn shown(&self) -> &[(&'static str, f64)] {
        &self.shown
    }

    /// What the role says of its last decision.
    pub(super) fn tell_account(&self, account: &str) {
        lock(&self.shared).account = account.lines().map(str::to_owned).collect();
    }

    pub(super) fn hosts(&self) -> usize {
        self.peers.len()
    }

    pub(super) fn name(&self, node: NodeId) -> &str {
        node.index().checked_sub(1).and_then(|at| self.loaded.hosts.get(at)).map_or("", |host| &host.name)
    }

    pub(super) fn end(&mut self) {
        self.keep_heard();
    }
}

/// What `host` has enrolled with; none: it has not, or its secret is in the hosts-file.
fn enrolled_secret<'a>(ledger: &'a Ledger, host: &'a Told) -> Option<&'a str> {
    ledger.secret(host).filter(|_| host.secret == ENROLLED)
}

fn read_of(loaded: &Loaded) -> Roster {
    let hosts_file = hosts_file(&loaded.file, &loaded.deployment);
    Roster::new(loaded.deployment.clone(), hosts_file, &loaded.hosts)
}

fn complaint(why: Forged) -> &'static str {
    match why {
        Forged::Length => "it is no message",
        Forged::Version(_) => "its version is another: upgrade the older of the two",
        Forged::Tag => "its tag is wrong: the secret of the host is another",
        Forged::Sender(_) => "no host has its number",
        Forged::Replay => {
            "it was heard before, or a newer one has overtaken it: it is recorded, or two agents have one number"
        }
    }
}

/// Numbers heard in a life before, so that a message recorded then is refused in this one.
fn heard_before(content: &[u8]) -> BTreeMap<u32, u64> {
    let (entries, _) = content.as_chunks::<ENTRY>();
    let parse = |entry: &[u8; ENTRY]| {
        let [a, b, c, d, number @ ..] = *entry;
        (u32::from_be_bytes([a, b, c, d]), u64::from_be_bytes(number))
    };
    entries.iter().map(parse).collect()
}

/// The node of the host at `place` in its file.
fn node(place: usize) -> NodeId {
    NodeId(place as u32 + 1)
}

/// A host that is silent for longer counts as away; none: the role itself checks the age of statistics.
fn silence(deployment: &Deployment) -> Option<Span> {
    match deployment.scheme {
        Scheme::OpenTcp => None,
        Scheme::Bas => Some(deployment.interval() * SILENT_INTERVALS),
    }
}

impl Host for Machine {
    const ACTS: &'static [Act] = &[Act::Send];

    fn wake(&mut self, _role: usize, at: Time) {
        self.wake_at = Some(at);
    }

    fn show(&mut self, _role: usize, _now: Time, gauges: &Gauges) {
        self.shown.clear();
        // A controller that observes has sent no settings.
        let name = |name| if self.observes && name == CUED { WOULD_CUE } else { name };
        self.shown.extend(gauges.values().iter().map(|&(metric, value)| (name(metric), value)));
    }

    fn send(&mut self, _now: Time, to: NodeId, message: Message) -> Result<(), Refusal> {
        let peer = to.index().checked_sub(1).and_then(|at| self.peers.get_mut(at)).ok_or(Refusal::Unknown)?;
        // It has not been heard since the start, so its address is unknown.
        let address = peer.address.ok_or(Refusal::Unknown)?;
        if self.observes || self.halted {
            self.held += 1;
            if !self.halted {
                return Ok(());
            }
            // After the halt the role must know that this message was not sent.
            self.refused_held += 1;
            return Err(Refusal::Busy);
        }
        let bytes = peer.line.seal(&message);
        if self.batch.add(to, address, bytes) {
            self.send_batch();
        }
        Ok(())
    }

    fn flush(&mut self) -> Vec<NodeId> {
        self.send_batch();
        std::mem::take(&mut self.unsent)
    }
}
