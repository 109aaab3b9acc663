//! The host that an agent's role acts on: its TCP, by programs in the kernel, and the way to the controller.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::net::UdpSocket;
use std::path::Path;
use std::sync::Arc;

use bandmaster_core::agent::{CONTROLLER, OTHER};
use bandmaster_core::control::{
    FlowEnd, FlowKey, FlowStart, FlowStats, Message, Observation, Refusal, SegmentCounts,
};
use bandmaster_core::id::{FlowId, NodeId};
use bandmaster_core::runtime::envelope::Line;
use bandmaster_core::runtime::{Host, Refusals};
use bandmaster_core::scheme::Act;
use bandmaster_core::time::Time;
use bandmaster_core::tuning::Tuning;
use bandmaster_core::units::Bytes;
use tracing::{debug, info, warn};

use super::journal::{Entry, Restored, undo};
use super::status::{Done, Shared, Status, lock};
use super::{Loaded, control_group, lacking, programs};
use crate::daemon::Error;
use crate::daemon::clock::{Clock, seconds_of_day};
use crate::daemon::state::{Journal, Slot, State};
use crate::kernel::NoProgram;
use crate::kernel::tcp::{Connection, HostTcp, KINDS, Translation, namespace};

/// Bytes of a datagram that are taken.
const MOST_DATAGRAM: usize = 65_536;
/// File of the highest number heard of the controller.
const HEARD: &str = "heard";
/// A journal with so many more lines than there are connections is written anew.
const SLACK: usize = 4096;
/// Bytes of Ethernet, IP and TCP (with timestamps) around a segment's payload.
const HEADERS: u64 = 14 + 20 + 32;

/// This host.
pub(super) struct Machine {
    pub(super) loaded: Loaded,
    pub(super) clock: Clock,
    pub(super) socket: UdpSocket,
    pub(super) shared: Shared,
    line: Line,
    /// When the role wants to be woken.
    pub(super) wake_at: Option<Time>,
    tcp: HostTcp,
    /// None on a dry run.
    written: Option<Written>,
    namespace: u64,
    /// As of the last look.
    connections: Vec<Connection>,
    /// By cookie: connections that send, as the role numbers them.
    senders: BTreeMap<u64, FlowId>,
    next_flow: u32,
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

impl Machine {
    /// Undoes what an agent before has left, and makes ready; nothing is set yet.
    pub(super) fn new(loaded: Loaded, state: Option<State<Entry>>) -> Result<Self, Error> {
        let deployment = &loaded.deployment;
        let mut tcp = programs()?;
        let mut heard = 0;
        if let Some(state) = &state {
            if let Restored::Done(connections @ 1..) = undo(state, Some(&mut tcp))? {
                warn!(connections, "an agent before this one left settings, which were undone");
            }
            let group = control_group(deployment).map_err(|why| lacking(&why))?;
            tcp.attach(&group).map_err(|why| lacking(&why))?;
        }
        let written = match state {
            None => None,
            Some(state) => {
                let journal = state.begin(&Entry::begin())?;
                let slot = state.slot(HEARD)?;
                heard = slot.number;
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
            clock: Some(clock),
            ..Status::default()
        };
        let namespace =
            namespace().map_err(|error| Error::Failed(format!("error: number the namespace: {error}")))?;
        Ok(Self {
            line: Line::new(loaded.key.clone(), own, peer, seconds_of_day()).after(heard),
            loaded,
            clock,
            socket,
            shared: Arc::new(status.into()),
            wake_at: None,
            tcp,
            written,
            namespace,
            connections: Vec::new(),
            senders: BTreeMap::new(),
            next_flow: 0,
            buffer: vec![0; MOST_DATAGRAM],
        })
    }

    /// Where status and journal are; none on a dry run.
    pub(super) fn folder(&self) -> Option<&Path> {
        self.written.as_ref().map(|written| written.state.folder())
    }

    /// A message of the controller that has come; none when nothing is left.
    pub(super) fn receive(&mut self) -> Option<Message> {
        loop {
            let length = match self.socket.recv(&mut self.buffer) {
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                // Nothing is there, or a datagram of ours came back: the loop looks again.
                Err(_) => return None,
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
    }

    /// So that a message recorded now is refused in the next life too. A machine that loses power may forget the last ones.
    fn keep_heard(&self) {
        if let Some(written) = &self.written
            && let Err(error) = written.heard.write(self.line.heard())
        {
            debug!(%error, "cannot write down which messages were heard");
        }
    }

    /// Looks at the connections: what the role hears of those that begin and end.
    pub(super) fn look(&mut self) -> Result<Vec<Event>, Error> {
        self.connections = self.tcp.look().map_err(|why| Error::Failed(format!("error: {why}")))?;
        let error = self.write_down().err().map(|error| error.to_string());
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
        let mut events = Vec::new();
        let mut senders = BTreeMap::new();
        for connection in self.connections.iter().filter(|connection| sends(connection)) {
            let flow = match self.senders.remove(&connection.cookie) {
                Some(flow) => flow,
                None => {
                    let flow = FlowId(self.next_flow);
                    self.next_flow = self.next_flow.wrapping_add(1);
                    let key = FlowKey {
                        from: connection.local,
                        to: connection.remote,
                        protocol: libc::IPPROTO_TCP as u8,
                    };
                    events.push(Event::Started(stats(connection, flow), key));
                    flow
                }
            };
            senders.insert(connection.cookie, flow);
        }
        events.extend(self.senders.values().map(|flow| Event::Ended(*flow)));
        self.senders = senders;
        let mut status = lock(&self.shared);
        status.connections = self.connections.iter().filter(|connection| connection.carries).count() as u64;
        status.set = self.connections.iter().filter(|connection| connection.before.is_some()).count() as u64;
        Ok(events)
    }

    /// Notes connections that were set since the last look, and forgets those that are gone.
    fn write_down(&mut self) -> Result<(), Error> {
        let Some(written) = &mut self.written else { return Ok(()) };
        let set = |connection: &Connection| {
            let Connection { cookie, before, .. } = connection;
            before.clone().map(|before| Entry::Set { cookie: *cookie, before })
        };
        let is_new = |connection: &&Connection| !written.cookies.contains(&connection.cookie);
        let new: Vec<Entry> = self.connections.iter().filter(is_new).filter_map(set).collect();
        let marked = self.connections.iter().filter(|connection| connection.before.is_some());
        let cookies: BTreeSet<u64> = marked.map(|connection| connection.cookie).collect();
        if written.lines + new.len() > SLACK + 2 * cookies.len() {
            let all = [Entry::begin()].into_iter().chain(written.in_force.clone());
            let all: Vec<Entry> = all.chain(self.connections.iter().filter_map(set)).collect();
            written.lines = all.len();
            written.journal = written.state.rewrite(&all)?;
        } else if !new.is_empty() {
            written.journal.note(&new)?;
            written.lines += new.len();
        }
        written.cookies = cookies;
        Ok(())
    }

    /// Tells what the kernel has done, and what was refused.
    pub(super) fn tell(&self, refusals: &Refusals) {
        let outcomes = self.tcp.outcomes().unwrap_or_default();
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
        self.put_in_force(&Tuning::default()).map_err(|why| Error::Failed(format!("error: {why}")))?;
        match &self.written {
            Some(written) => written.state.forget(),
            None => Ok(()),
        }
    }

    fn put_in_force(&mut self, tuning: &Tuning) -> Result<(), NoProgram> {
        let Translation { settings, remarks } = Translation::new(tuning);
        let is_own = tuning.is_default();
        if let Some(written) = &mut self.written {
            if is_own {
                self.tcp.tune(self.namespace, &settings)?;
                self.tcp.give_back()?;
                written.in_force = None;
            } else {
                // What cannot be written down is not done.
                let entry = Entry::Tune { settings: settings.clone() };
                written.journal.write(&entry).map_err(|error| NoProgram(error.to_string()))?;
                written.lines += 1;
                written.in_force = Some(entry);
                self.tcp.tune(self.namespace, &settings)?;
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

fn sends(connection: &Connection) -> bool {
    connection.carries && connection.data_segments > 0
}

fn stats(connection: &Connection, flow: FlowId) -> FlowStats {
    let mss = u64::from(connection.mss);
    FlowStats {
        flow,
        end: FlowEnd::Sender,
        delivered: Bytes::new(connection.acknowledged),
        srtt: connection.srtt,
        min_rtt: connection.min_rtt,
        last_rtt: None,
        mss: Bytes::new(mss),
        frame: Bytes::new(mss + HEADERS),
    }
}

impl Host for Machine {
    const ACTS: &'static [Act] = &[Act::Tune, Act::Send];

    fn wake(&mut self, _role: usize, at: Time) {
        self.wake_at = Some(at);
    }

    /// As of the last look; the loop has one before it wakes the role.
    fn flow_stats(&mut self, _now: Time, _node: NodeId) -> Vec<FlowStats> {
        let flow = |connection: &Connection| Some(stats(connection, *self.senders.get(&connection.cookie)?));
        self.connections.iter().filter_map(flow).collect()
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
