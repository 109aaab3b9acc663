//! The host that an agent's role acts on: its TCP, by programs in the kernel, and the way to the controller.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::Arc;

use bandmaster_core::agent::{CONTROLLER, OTHER, Scheme, Site};
use bandmaster_core::control::{
    FlowEnd, FlowKey, FlowStart, FlowStats, Message, Observation, PortFlows, PortStats, Refusal,
    SegmentCounts,
};
use bandmaster_core::id::{FlowId, NodeId, PortId};
use bandmaster_core::port::flow_counter::Reader;
use bandmaster_core::runtime::envelope::{Key, Line};
use bandmaster_core::runtime::{Host, Refusals};
use bandmaster_core::scheme::Act;
use bandmaster_core::time::Time;
use bandmaster_core::tuning::Tuning;
use bandmaster_core::units::{Bytes, Rate};
use tracing::{debug, info, warn};

use super::connections::{Blind, Connections, FIRST_SEGMENTS, has_carried};
use super::journal::{Entry, Restored, undo, undo_routes};
use super::neighbours::Surroundings;
use super::ports::Ports;
use super::routes::{self, LACKS, Routes};
use super::sketch::Recorder;
use super::status::{Done, Shared, Status, lock};
use super::{Loaded, Means, control_group, lacking, means, sockets};
use crate::daemon::Error;
use crate::daemon::clock::{Clock, seconds_of_day};
use crate::daemon::state::{Journal, Slot, State};
use crate::daemon::wakes::Wakes;
use crate::kernel::NoProgram;
use crate::kernel::tcp::{Connection, HostTcp, KINDS, Settings, Translation, namespace};

/// Bytes of a datagram that are taken.
const MOST_DATAGRAM: usize = 65_536;
/// Datagrams between two looks at the clock.
const BATCH: u32 = 64;
/// File of the highest message number heard from the controller.
const HEARD: &str = "heard";
/// File of the epoch of messages to the controller.
const EPOCH: &str = "epoch";
/// The journal is rewritten once it has this many lines more than twice the connections, so that it stays small on a small disk.
const SLACK: usize = 64;
/// Bytes of Ethernet and of IP around a segment.
const ETHERNET_HEADER: u64 = 14;
const IPV4_HEADER: u64 = 20;
const IPV6_HEADER: u64 = 40;
/// A connection's data go both ways.
const ENDS: [FlowEnd; 2] = [FlowEnd::Sender, FlowEnd::Receiver];

/// This host.
pub(super) struct Machine {
    pub(super) loaded: Loaded,
    pub(super) clock: Clock,
    pub(super) socket: UdpSocket,
    pub(super) shared: Shared,
    line: Line,
    wakes: Wakes,
    /// None at a router, which has none to set, and where the kernel takes no program.
    tcp: Option<HostTcp>,
    /// Where it takes none.
    routes: Option<Routes>,
    /// Of a router.
    ports: Ports,
    /// None on a dry run.
    written: Option<Written>,
    namespace: u64,
    connections: Connections,
    /// Directions of connections that are flows, as the role numbers them.
    flows: BTreeMap<(u64, FlowEnd), FlowId>,
    by_flow: BTreeMap<FlowId, (u64, FlowEnd)>,
    next_flow: u32,
    /// Why flows cannot be bounded that are not yet.
    unbounded: Option<String>,
    /// Why routes do not have what they should.
    unset: Option<String>,
    blind: Blind,
    /// None where connections are not recorded.
    recorder: Option<Recorder>,
    /// On a router with `neighbours`: reports what is around it to the controller.
    surroundings: Option<Surroundings>,
    buffer: Vec<u8>,
}

/// What is written down of connections that are set.
struct Written {
    state: State<Entry>,
    journal: Journal<Entry>,
    heard: Slot,
    in_force: Option<Entry>,
    cookies: BTreeSet<u64>,
    lines: usize,
}

impl Written {
    fn note(&mut self, new: &[Entry]) -> Result<(), Error> {
        self.journal.note(new)?;
        self.lines += new.len();
        Ok(())
    }

    /// Takes these entries alone, which have to be all that count.
    fn rewrite(&mut self, all: &[Entry]) -> Result<(), Error> {
        self.journal = self.state.rewrite(all)?;
        self.lines = all.len();
        Ok(())
    }

    /// Appends the `new` entries. When the journal `is_long` or the disk is full, rewrites it: entries of ended connections take
    /// space. `all` gives the entries that still count, the new ones included.
    fn add(&mut self, new: &[Entry], is_long: bool, all: impl Fn(&Self) -> Vec<Entry>) -> Result<(), Error> {
        if is_long && self.rewrite(&all(self)).is_ok() || new.is_empty() {
            return Ok(());
        }
        self.note(new).or_else(|error| self.rewrite(&all(self)).map_err(|_| error))
    }

    /// All that counts of what is written down.
    fn all(&self, connections: &Connections, routes: Option<&Routes>) -> Vec<Entry> {
        let all = [Entry::begin()].into_iter().chain(self.in_force.clone());
        let all = all.chain(connections.all().iter().filter_map(set)).chain(connections.bounds().all());
        all.chain(routes.into_iter().flat_map(Routes::all)).collect()
    }
}

fn set(connection: &Connection) -> Option<Entry> {
    let before = connection.before.clone()?;
    Some(Entry::Set { cookie: connection.cookie, before })
}

impl Machine {
    /// Undoes what an agent before has left, and makes ready; nothing is set yet.
    pub(super) fn new(loaded: Loaded, state: Option<State<Entry>>, ports: Ports) -> Result<Self, Error> {
        let deployment = &loaded.deployment;
        // Also where this agent cannot run.
        if let Some(state) = &state {
            let routes = undo_routes(state)?;
            if routes > 0 {
                warn!(routes, "an agent before this one left routes set, which are what they were");
            }
        }
        let (mut tcp, routes) = match deployment.site {
            Site::Router => (None, None),
            Site::Host => match means(deployment)? {
                Means::Programs(tcp) => (Some(*tcp), None),
                Means::Routes(why) => {
                    let lacks = LACKS.join("; ");
                    warn!(%why, lacks, "the kernel takes no program: settings are made by routes, which lack much");
                    (None, Some((Routes::default(), why)))
                }
            },
        };
        let (mut heard, mut epoch) = (0, seconds_of_day());
        if let Some(state) = &state {
            if let Restored::Done { connections, routes, left_alone } = undo(state, tcp.as_mut())?
                && (connections > 0 || routes > 0 || !left_alone.is_empty())
            {
                let left_alone = left_alone.join("; ");
                warn!(
                    connections,
                    routes, left_alone, "an agent before this one left settings, which were undone"
                );
            }
            if let Some(tcp) = tcp.as_mut().filter(|_| tunes(deployment.scheme)) {
                let group = control_group(deployment).map_err(|why| lacking(&why))?;
                tcp.attach(&group).map_err(|why| lacking(&why))?;
            }
        }
        let written = match state {
            None => None,
            Some(state) => {
                let journal = state.begin(&Entry::begin())?;
                let slot = state.slot(HEARD)?;
                heard = slot.number;
                epoch = state
                    .epochs(EPOCH)?
                    .next()
                    .map_err(|error| Error::Failed(format!("error: state directory: {EPOCH}: {error}")))?;
                Some(Written {
                    state,
                    journal,
                    heard: slot,
                    in_force: None,
                    cookies: BTreeSet::new(),
                    lines: 1,
                })
            }
        };
        let listen = deployment.listen;
        let bound = UdpSocket::bind(listen).and_then(|socket| {
            socket.set_nonblocking(true)?;
            Ok(socket)
        });
        let socket = bound.map_err(|error| Error::Failed(format!("error: udp {listen}: {error}")))?;
        let (own, peer) = (NodeId(deployment.number), NodeId(CONTROLLER));
        let clock = Clock::new();
        let status = Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            name: deployment.name.clone(),
            process: std::process::id(),
            file: loaded.file.display().to_string(),
            scheme: deployment.scheme.def().name.to_owned(),
            number: deployment.number,
            controller: deployment.controller.to_string(),
            dry_run: written.is_none(),
            by_routes: routes.as_ref().map(|(_, why)| why.clone()),
            lacks: routes.iter().flat_map(|_| LACKS.map(str::to_owned)).collect(),
            clock: Some(clock),
            ..Status::default()
        };
        let namespace =
            namespace().map_err(|error| Error::Failed(format!("error: number the namespace: {error}")))?;
        let mut remarks = Vec::new();
        if let Some(tcp) = tcp.as_mut().filter(|_| written.is_some() && !tunes(deployment.scheme))
            && let Err(why) = control_group(deployment).and_then(|group| {
                tcp.attach(&group)?;
                tcp.hear(&group)?;
                tcp.follow(namespace)
            })
        {
            warn!(%why, "flows are seen late");
            remarks.push(format!(
                "flows are seen up to a measurement interval late, and round-trip times of what comes are the kernel's: {why}"
            ));
        }
        let mut recorder = None;
        if let Some(tcp) =
            tcp.as_mut().filter(|_| written.is_some() && tunes(deployment.scheme) && deployment.record)
        {
            tcp.record(namespace).map_err(|why| lacking(&why))?;
            recorder = Some(Recorder::new(clock.now()));
        }
        if let Some(tcp) = tcp.as_mut().filter(|_| written.is_some() && deployment.control_group.is_none())
            && let Err(why) = tcp.watch(namespace)
        {
            info!(%why, "each look at the connections reads the kernel's whole table of them");
        }
        let is_asked = written.is_some() && deployment.neighbours;
        let surroundings = if is_asked { Some(Surroundings::new(deployment)?) } else { None };
        Ok(Self {
            line: Line::new(loaded.key.clone(), own, peer, epoch).after(heard),
            loaded,
            clock,
            socket,
            shared: Arc::new(Status { remarks, ..status }.into()),
            wakes: Wakes::default(),
            tcp,
            routes: routes.map(|(routes, _)| routes),
            ports,
            written,
            namespace,
            connections: Connections::default(),
            flows: BTreeMap::new(),
            by_flow: BTreeMap::new(),
            next_flow: 0,
            unbounded: None,
            unset: None,
            blind: Blind::default(),
            recorder,
            surroundings,
            buffer: vec![0; MOST_DATAGRAM],
        })
    }

    /// Goes on with another secret.
    pub(super) fn take_key(&mut self, key: Key) {
        self.line = self.line.clone().with_key(key);
    }

    /// Where status and journal are; none on a dry run.
    pub(super) fn folder(&self) -> Option<&Path> {
        self.written.as_ref().map(|written| written.state.folder())
    }

    /// The next valid message from the controller; none when no datagram waits. Invalid datagrams may arrive faster than they are
    /// read. After `until`, reading stops at the end of a batch, so that valid messages among them still get through.
    pub(super) fn receive(&mut self, until: Time) -> Option<Message> {
        for count in 1.. {
            if count % BATCH == 0 && self.clock.now() >= until {
                break;
            }
            let length = match self.socket.recv(&mut self.buffer) {
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                // Nothing is there, or a datagram of ours came back: the loop looks again.
                Err(_) => break,
            };
            let opened = self.line.open(&self.buffer[..length]);
            let mut status = lock(&self.shared);
            match opened {
                Ok(message) if message.scheme == self.loaded.deployment.scheme.def().code => {
                    status.messages += 1;
                    status.heard = Some(self.clock.now());
                    drop(status);
                    self.keep_heard();
                    return Some(Message { from: OTHER, ..message });
                }
                Ok(_) => status.refused.scheme += 1,
                Err(why) => status.refused.count(why),
            }
        }
        None
    }

    /// So that a message recorded now is refused in the next life too. A machine that loses power may forget the last ones.
    fn keep_heard(&self) {
        if let Some(written) = &self.written
            && let Err(error) = written.heard.write(self.line.heard())
        {
            debug!(%error, "cannot write down which messages were heard");
        }
    }

    /// What wakes the loop: datagrams, and news of flows.
    pub(super) fn bells(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        [self.socket.as_fd()].into_iter().chain(self.tcp.as_ref().map(HostTcp::bell))
    }

    /// Events for the role: flows that the kernel has reported since the last call.
    pub(super) fn news(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        let mut connections = std::mem::take(&mut self.connections);
        for connection in self.tcp.as_mut().map(HostTcp::news).unwrap_or_default() {
            connections.note(&connection);
            if connection.carries {
                events.extend(ENDS.iter().filter_map(|end| self.begin(&connections, &connection, *end)));
                continue;
            }
            for end in ENDS {
                if let Some(flow) = self.flows.remove(&(connection.cookie, end)) {
                    self.by_flow.remove(&flow);
                    events.push(Event::Ended(flow));
                }
            }
        }
        self.connections = connections;
        events
    }

    /// A connection's data are a flow that was none before.
    fn begin(&mut self, all: &Connections, connection: &Connection, end: FlowEnd) -> Option<Event> {
        let name = (connection.cookie, end);
        let bounds = !tunes(self.loaded.deployment.scheme);
        let comes = bounds || self.loaded.deployment.tells_traffic();
        if self.flows.contains_key(&name) || !is_flow(connection, end, bounds, comes) {
            return None;
        }
        let flow = FlowId(self.next_flow);
        self.next_flow = self.next_flow.wrapping_add(1);
        self.flows.insert(name, flow);
        self.by_flow.insert(flow, name);
        Some(Event::Started(Self::stats(all, connection, flow, end), key(connection, end)))
    }

    /// Looks at the connections: what the role hears of those that begin and end. `None`: the kernel did not show them this time, so
    /// that there is nothing new to measure.
    ///
    /// # Errors
    /// When the kernel has not shown them, or those that have ended, for [`Blind::LIMIT`].
    pub(super) fn look(&mut self) -> Result<Option<Vec<Event>>, Error> {
        let now = self.clock.now();
        let told = self.surroundings.as_mut().map(|around| around.told(now)).unwrap_or_default();
        self.send_all(told);
        let mut shown = match &mut self.tcp {
            Some(tcp) => self.connections.look(tcp).map_err(|why| why.to_string()),
            None if self.routes.is_some() => sockets::look()
                .map(|all| self.connections.take(all))
                .map_err(|error| format!("sockets: {error}")),
            None => return Ok(Some(Vec::new())),
        };
        if shown.is_ok() {
            shown = self.record(false).map_err(|error| error.to_string());
        }
        if !self.is_shown(shown, now)? {
            return Ok(None);
        }
        if self.tcp.is_none() {
            let unset = self.put_routes(None).err().map(|error| error.to_string());
            if self.unset != unset {
                match &unset {
                    Some(error) => {
                        warn!(%error, "cannot set routes, or give them back; it is tried again");
                    }
                    None => info!("routes have what they should"),
                }
                lock(&self.shared).routes_error.clone_from(&unset);
                self.unset = unset;
            }
        }
        let error = self.write_down().err().map(|error| error.to_string()).or(self.unbounded.clone());
        if lock(&self.shared).journal_error != error {
            match &error {
                Some(error) => warn!(
                    %error,
                    "cannot write down which connections are set; until it can, nothing more is put in force"
                ),
                None => info!("the journal is written again"),
            }
            lock(&self.shared).journal_error = error;
        }
        self.connections.time_windows(self.clock.now());
        let connections = std::mem::take(&mut self.connections);
        let mut events = Vec::new();
        let live: BTreeSet<u64> = connections
            .all()
            .iter()
            .filter(|connection| connection.carries)
            .map(|live| live.cookie)
            .collect();
        // Once a flow, it is one as long as it lives.
        self.flows.retain(|(cookie, _), flow| {
            let is_live = live.contains(cookie);
            if !is_live {
                self.by_flow.remove(flow);
                events.push(Event::Ended(*flow));
            }
            is_live
        });
        for connection in connections.all() {
            events.extend(ENDS.iter().filter_map(|end| self.begin(&connections, connection, *end)));
        }
        let mut status = lock(&self.shared);
        status.connections = connections.all().iter().filter(|connection| connection.carries).count() as u64;
        status.set = connections.all().iter().filter(|connection| connection.before.is_some()).count() as u64;
        status.bounded = connections.bounds().len() as u64;
        drop(status);
        self.connections = connections;
        Ok(Some(events))
    }

    /// Whether the kernel has shown the connections. An error once it has not for too long.
    fn is_shown(&mut self, shown: Result<(), String>, now: Time) -> Result<bool, Error> {
        let error = shown.err();
        if lock(&self.shared).look_error != error {
            match &error {
                Some(error) => warn!(%error, "cannot look at the connections; it is tried again"),
                None => info!("connections are looked at again"),
            }
            lock(&self.shared).look_error.clone_from(&error);
        }
        let is_too_long = self.blind.is_too_long(error.is_some(), now);
        match error {
            Some(error) if is_too_long => Err(Error::Failed(format!("error: {error}"))),
            error => Ok(error.is_none()),
        }
    }

    /// Routes have these settings; none: those that are in force, also where routes have come. Nothing is changed that is not written
    /// down.
    fn put_routes(&mut self, settings: Option<&Settings>) -> Result<(), Error> {
        let (Some(written), Some(routes)) = (&mut self.written, &mut self.routes) else { return Ok(()) };
        let before = routes.left_alone.clone();
        let put = routes.put(settings, |new| written.note(new));
        for route in routes.left_alone.iter().filter(|route| !before.contains(route)) {
            warn!(%route, "a route is left alone");
        }
        let mut status = lock(&self.shared);
        status.routes = routes.len() as u64;
        status.left_alone.clone_from(&routes.left_alone);
        put
    }

    /// Counts connections that have ended. Once a minute, and when the agent `ends`, tells the controller.
    fn record(&mut self, ends: bool) -> Result<(), Error> {
        let (Some(recorder), Some(tcp)) = (&mut self.recorder, &mut self.tcp) else { return Ok(()) };
        let told = recorder.look(self.clock.now(), tcp, self.connections.all(), ends);
        let told = told.map_err(|why| Error::Failed(format!("error: {why}")))?;
        self.send_all(told);
        Ok(())
    }

    fn send_all(&mut self, messages: Vec<Message>) {
        for message in messages {
            let bytes = self.line.seal(&message);
            let sent = self.socket.send_to(&bytes, self.loaded.deployment.controller);
            let mut status = lock(&self.shared);
            *if sent.is_ok() { &mut status.sent } else { &mut status.send_errors } += 1;
        }
    }

    /// Notes connections that were set since the last look, and forgets those that are gone.
    fn write_down(&mut self) -> Result<(), Error> {
        let Some(written) = &mut self.written else { return Ok(()) };
        let is_new = |connection: &&Connection| !written.cookies.contains(&connection.cookie);
        let (connections, routes) = (&self.connections, self.routes.as_ref());
        let new: Vec<Entry> = connections.all().iter().filter(is_new).filter_map(set).collect();
        let marked = connections.all().iter().filter(|connection| connection.before.is_some());
        let cookies: BTreeSet<u64> = marked.map(|connection| connection.cookie).collect();
        let kept = cookies.len() + connections.bounds().len() + routes.map_or(0, Routes::len);
        let is_long = written.lines + new.len() > SLACK + 2 * kept;
        written.add(&new, is_long, |written| written.all(connections, routes))?;
        written.cookies = cookies;
        Ok(())
    }

    /// Bounds the flows that the role has spoken of. What cannot be written down is not bounded.
    pub(super) fn apply(&mut self) -> Result<(), Error> {
        let Self { written, tcp, connections, .. } = self;
        let news = connections.news();
        let (Some(written), Some(tcp)) = (written, tcp) else {
            connections.drop_pending();
            return Ok(());
        };
        if !news.is_empty() {
            let all = |written: &Written| [written.all(connections, None), news.clone()].concat();
            if let Err(error) = written.add(&news, false, all) {
                connections.drop_pending();
                self.unbounded = Some(error.to_string());
                return Ok(());
            }
            self.unbounded = None;
        }
        connections.apply(tcp, &news).map_err(|why| Error::Failed(format!("error: {why}")))
    }

    /// Bounds `flow` at its next chance.
    fn bound(&mut self, flow: FlowId, window: Bytes, rate: Option<Rate>) -> Result<(), Refusal> {
        let &(cookie, end) = self.by_flow.get(&flow).ok_or(Refusal::Unknown)?;
        if rate.is_some() && end == FlowEnd::Receiver {
            // A receiver cannot pace: its window does not advance with time.
            return Err(Refusal::Unable);
        }
        let segment = segment(self.connections.get(cookie).ok_or(Refusal::Unknown)?, end);
        self.connections.bound(cookie, end, window, segment, rate);
        Ok(())
    }

    fn stats(connections: &Connections, connection: &Connection, flow: FlowId, end: FlowEnd) -> FlowStats {
        let mss = u64::from(segment(connection, end));
        let ip = if connection.local.0.is_ipv4() { IPV4_HEADER } else { IPV6_HEADER };
        let (delivered, rtt) = connections.measured(connection, end);
        FlowStats {
            flow,
            end,
            delivered: Bytes::new(delivered),
            srtt: rtt.smoothed,
            min_rtt: rtt.least,
            last_rtt: rtt.last,
            mss: Bytes::new(mss),
            frame: Bytes::new(mss + u64::from(connection.header) + ip + ETHERNET_HEADER),
        }
    }

    /// The port that this host's flows leave by. How many do is all that is known of it, and all that the paper's allocator asks.
    fn own_port(&self) -> PortStats {
        let sent = self.flows.keys().filter(|(_, end)| *end == FlowEnd::Sender).count() as u32;
        PortStats {
            port: PortId(0),
            capacity: Rate::ZERO,
            flows: Some(PortFlows { seen: sent, open: sent }),
            backlog: None,
            sent: Bytes::ZERO,
            offered: 0,
            dropped: 0,
        }
    }

    /// When a role is to be woken next.
    pub(super) fn next_wake(&self) -> Option<Time> {
        self.wakes.next()
    }

    /// A role that wanted to be woken by `now`, and when.
    pub(super) fn due(&mut self, now: Time) -> Option<(usize, Time)> {
        self.wakes.due(now)
    }

    /// A role that wanted to be woken at `due` is woken later, at `at`.
    pub(super) fn postpone(&mut self, role: usize, due: Time, at: Time) {
        self.wakes.plan(role, due, at);
    }

    /// Tells what the kernel has done, and what was refused.
    pub(super) fn tell(&self, refusals: &Refusals) {
        let outcomes = self.tcp.as_ref().and_then(|tcp| tcp.outcomes().ok()).unwrap_or_default();
        let settings = KINDS.iter().zip(outcomes).map(|(kind, outcome)| Done {
            kind: (*kind).to_owned(),
            done: outcome.done,
            refused: outcome.refused,
            error: (outcome.refused > 0).then(|| io::Error::from_raw_os_error(outcome.error).to_string()),
        });
        let mut status = lock(&self.shared);
        status.settings = settings.collect();
        status.refused_acts =
            Self::ACTS.iter().map(|act| (act.name().to_owned(), refusals.of(*act))).collect();
    }

    /// Everything is as it was before the agent.
    pub(super) fn end(mut self) -> Result<(), Error> {
        if self.written.is_none() {
            return Ok(());
        }
        if let Err(error) = self.record(true) {
            warn!(%error, "what was recorded since the last minute is lost");
        }
        let failed = |why: NoProgram| Error::Failed(format!("error: {why}"));
        if let Some(tcp) = &mut self.tcp {
            self.connections.give_back(tcp).map_err(failed)?;
        }
        self.put_in_force(&Tuning::default()).map_err(failed)?;
        match &self.written {
            Some(written) => written.state.forget(),
            None => Ok(()),
        }
    }

    fn put_in_force(&mut self, tuning: &Tuning) -> Result<(), NoProgram> {
        let Translation { mut settings, mut remarks } = Translation::new(tuning);
        let is_own = tuning.is_default();
        if self.routes.is_some() {
            remarks.extend(routes::leave_out(&mut settings));
            let put = self.put_routes(Some(&settings)).map_err(|error| NoProgram::new(error.to_string()));
            if put.is_err() && is_own {
                // No settings are in force any more; later looks retry the routes that could not be given back.
                let mut status = lock(&self.shared);
                status.changes += u64::from(status.in_force.take().is_some());
            }
            put?;
        } else if let (Some(written), Some(tcp)) = (&mut self.written, &mut self.tcp) {
            if is_own {
                tcp.tune(self.namespace, &settings)?;
                tcp.give_back()?;
                written.in_force = None;
            } else {
                // What cannot be written down is not done.
                let entry = Entry::Tune { settings: settings.clone() };
                written.journal.write(&entry).map_err(|error| NoProgram::new(error.to_string()))?;
                written.lines += 1;
                written.in_force = Some(entry);
                tcp.tune(self.namespace, &settings)?;
            }
        }
        let mut status = lock(&self.shared);
        let in_force = (!is_own).then(|| tuning.to_string());
        if status.in_force != in_force {
            status.changes += 1;
            let dry_run = self.written.is_none();
            info!(settings = %tuning, remarks = remarks.join("; "), dry_run, "for connections that begin");
        }
        status.in_force = in_force;
        status.remarks = remarks;
        Ok(())
    }
}

/// What happens to a flow.
pub(super) enum Event {
    /// It begins.
    Started(FlowStats, FlowKey),
    /// It has ended.
    Ended(FlowId),
}

impl Event {
    /// As a role hears it.
    pub(super) fn observation(&self) -> Observation<'_> {
        match self {
            Self::Started(stats, key) => {
                Observation::FlowStarted(FlowStart { stats: *stats, key: *key, route: &[] })
            }
            Self::Ended(flow) => Observation::FlowEnded(*flow),
        }
    }
}

/// The scheme sets connections that begin; others bound flows.
const fn tunes(scheme: Scheme) -> bool {
    matches!(scheme, Scheme::OpenTcp)
}

/// Whether a connection's data at this end of them are a flow. One that is `bounded` has carried more than a first window.
fn is_flow(connection: &Connection, end: FlowEnd, bounded: bool, comes: bool) -> bool {
    let fewest = if bounded { FIRST_SEGMENTS } else { 0 };
    let leaves = !bounded || !connection.remote.0.is_loopback() && connection.remote.0 != connection.local.0;
    connection.carries
        && leaves
        // What only sends needs to hear of no other end.
        && (comes || end == FlowEnd::Sender)
        && has_carried(connection, end, fewest)
}

/// Payload of a segment.
fn segment(connection: &Connection, end: FlowEnd) -> u32 {
    match end {
        FlowEnd::Sender => connection.mss,
        FlowEnd::Receiver => connection.came_mss,
    }
}

fn key(connection: &Connection, end: FlowEnd) -> FlowKey {
    let (own, other) = (connection.local, connection.remote);
    let (from, to) = if end == FlowEnd::Sender { (own, other) } else { (other, own) };
    FlowKey { from, to, protocol: libc::IPPROTO_TCP as u8 }
}

impl Host for Machine {
    const ACTS: &'static [Act] = &[Act::Tune, Act::SetWindow, Act::SetRate, Act::MeasureRtt, Act::Send];

    fn wake(&mut self, role: usize, at: Time) {
        self.wakes.plan(role, at, at);
    }

    fn port_stats(&mut self, _now: Time, _node: NodeId, _reader: &mut Reader) -> Vec<PortStats> {
        if self.loaded.deployment.site == Site::Host {
            return vec![self.own_port()];
        }
        let told = self.ports.read();
        let mut status = lock(&self.shared);
        status.ports_silent = self.ports.why_silent().map(str::to_owned);
        status.samples_overtaken = self.ports.overtaken();
        told
    }

    /// As of the last look; the loop has one before it wakes the role.
    fn flow_stats(&mut self, _now: Time, _node: NodeId) -> Vec<FlowStats> {
        let flow = |(flow, (cookie, end)): (&FlowId, &(u64, FlowEnd))| {
            Some(Self::stats(&self.connections, self.connections.get(*cookie)?, *flow, *end))
        };
        self.by_flow.iter().filter_map(flow).collect()
    }

    /// Of all connections of the network namespace, those that have ended included.
    fn segments(&mut self, _node: NodeId) -> SegmentCounts {
        let read =
            |name: &str| fs::read_to_string(format!("/proc/thread-self/net/{name}")).unwrap_or_default();
        let new = count(&read("netstat"), "TcpExt", "TCPOrigDataSent");
        let resent = count(&read("snmp"), "Tcp", "RetransSegs");
        SegmentCounts { sent: new + resent, resent }
    }

    fn send(&mut self, _now: Time, _to: NodeId, message: Message) -> Result<(), Refusal> {
        let bytes = self.line.seal(&message);
        let sent = self.socket.send_to(&bytes, self.loaded.deployment.controller);
        let mut status = lock(&self.shared);
        match sent {
            Ok(_) => {
                status.sent += 1;
                Ok(())
            }
            Err(_) => {
                status.send_errors += 1;
                Err(Refusal::Busy)
            }
        }
    }

    fn set_window(&mut self, _node: NodeId, flow: FlowId, window: Bytes) -> Result<(), Refusal> {
        self.bound(flow, window, None)
    }

    fn set_rate(&mut self, _node: NodeId, flow: FlowId, rate: Rate, window: Bytes) -> Result<(), Refusal> {
        self.bound(flow, window, Some(rate))
    }

    /// Linux measures it from the data, with timestamps or without.
    fn measure_rtt(&mut self, _node: NodeId, flow: FlowId) -> Result<(), Refusal> {
        self.by_flow.get(&flow).map(drop).ok_or(Refusal::Unknown)
    }

    fn tune(&mut self, _node: NodeId, tuning: Tuning) -> Result<(), Refusal> {
        self.put_in_force(&tuning).map_err(|why| {
            warn!(%why, settings = %tuning, "cannot change the settings");
            Refusal::Failed("the kernel refuses")
        })
    }
}

/// A number of `/proc/net/snmp` or `netstat`: a line of names, then one of values, each beginning with the group.
fn count(text: &str, group: &str, name: &str) -> u64 {
    let lines = text.lines().filter_map(|line| line.strip_prefix(group)?.strip_prefix(':'));
    let lines: Vec<&str> = lines.collect();
    let [names, values] = lines[..] else { return 0 };
    let mut both = names.split_whitespace().zip(values.split_whitespace());
    both.find(|(known, _)| *known == name).and_then(|(_, value)| value.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_found_by_group_and_name() {
        let text = "TcpExt: SyncookiesSent TCPOrigDataSent\nTcpExt: 3 712\nIpExt: InOctets\nIpExt: 9\n";
        assert_eq!(count(text, "TcpExt", "TCPOrigDataSent"), 712);
        assert_eq!(count(text, "TcpExt", "None"), 0);
        assert_eq!(count(text, "Tcp", "TCPOrigDataSent"), 0);
        let own = fs::read_to_string("/proc/thread-self/net/snmp").expect("read");
        assert!(own.contains(" RetransSegs "));
    }
}
