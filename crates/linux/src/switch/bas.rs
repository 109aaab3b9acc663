//! BAS at a router's ports: its three roles in one process, of which the host's sees and bounds the flows that pass by what the
//! programs in the kernel tell and lower.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

use bandmaster_core::control::{
    FlowEnd, FlowKey, FlowStart, FlowStats, Message, Observation, PortFlows, PortStats, Refusal,
};
use bandmaster_core::id::{FlowId, NodeId, PortId};
use bandmaster_core::port::flow_counter::Reader;
use bandmaster_core::port::window::{Offset, Segment};
use bandmaster_core::runtime::{Host, Runner};
use bandmaster_core::scheme::Act;
use bandmaster_core::scheme::bas::shares_in;
use bandmaster_core::switch::OWN;
use bandmaster_core::time::{Span, Time};
use bandmaster_core::units::{Bytes, Rate};
use sd_notify::NotifyState;
use tracing::{debug, info};

use super::journal::{Entry, Written};
use super::life::{PART, Work};
use super::machine::{BEAT, EVENTS, HANDSHAKE, change_faults, failed, stay_at};
use super::plan::devices;
use super::queue::{Queue, queues};
use super::status::{ConnectionStatus, PortStatus, Shared, Status, lock};
use super::{Loaded, lacking};
use crate::daemon::Error;
use crate::daemon::signals::{End, Signals};
use crate::daemon::state::State;
use crate::daemon::wakes::Wakes;
use crate::kernel::windows::{Flow, Kind, RoundTrip, Windows, now};

/// Segments of the window of a flow that has none of the scheme yet: the initial window of RFC 6928, as BAS's host has it.
const FIRST: u32 = 10;
/// After its FIN a flow keeps its window for so long: what was lost is sent again.
const ENDED: Span = Span::from_secs(1);
/// Connections that are silent for longer are forgotten (RFC 5382, REQ-5).
const FORGOTTEN: Span = Span::from_secs(2 * 3600 + 240);
/// Connections of which a status tells each.
const MOST_CONNECTIONS: usize = 256;

/// A router with BAS at its ports.
pub(super) struct Machine {
    runner: Runner,
    router: Router,
    /// Roles are woken from here on: looks at their flows take a tenth of the time at most.
    rested: Time,
}

struct Port {
    interface: String,
    rate: Rate,
    device: u32,
    queue: Queue,
}

/// A flow of which the roles know.
struct Known {
    flow: Flow,
    port: usize,
    acked: Offset,
    delivered: u64,
    times: Option<RoundTrip>,
    /// As given last, in bytes; none: its windows stay as they are.
    window: Option<u64>,
    share: Option<Rate>,
}

impl Known {
    fn stats(&self) -> FlowStats {
        let Segment { flow, mss, frame, .. } = self.flow.segment(0);
        FlowStats {
            flow,
            end: FlowEnd::Receiver,
            delivered: Bytes::new(self.delivered),
            srtt: self.times.map(|times| times.smoothed),
            min_rtt: self.times.map(|times| times.least),
            last_rtt: self.times.map(|times| times.last),
            mss: Bytes::new(mss),
            frame: Bytes::new(frame),
        }
    }

    fn key(&self) -> FlowKey {
        let [from, to] = self.flow.ends();
        FlowKey { from, to, protocol: 6 }
    }
}

/// What the roles see and change.
struct Router {
    windows: Windows,
    shared: Shared,
    /// None on a dry run.
    written: Option<Written>,
    ports: Vec<Port>,
    flows: BTreeMap<FlowId, Known>,
    wakes: Wakes,
    /// What a role has told another: all are here.
    told: VecDeque<Message>,
    last_beat: Time,
    sets: u64,
    /// What failed since the last beat.
    troubles: BTreeSet<String>,
}

impl Host for Router {
    const ACTS: &'static [Act] = &[Act::SetWindow, Act::SetRate, Act::MeasureRtt, Act::Send];

    fn wake(&mut self, role: usize, at: Time) {
        self.wakes.plan(role, at, at);
    }

    /// As of the last look.
    fn port_stats(&mut self, _now: Time, _node: NodeId, _reader: &mut Reader) -> Vec<PortStats> {
        let stats = |(at, Port { rate, queue, .. }): (usize, &Port)| {
            let open = self.flows.values().filter(|known| known.port == at).count() as u32;
            PortStats {
                port: PortId(at as u32),
                capacity: *rate,
                flows: Some(PortFlows { seen: open, open }),
                backlog: Some(Bytes::new(queue.backlog)),
                sent: Bytes::new(queue.sent),
                offered: 0,
                dropped: 0,
            }
        };
        self.ports.iter().enumerate().map(stats).collect()
    }

    /// As of the last look.
    fn flow_stats(&mut self, _now: Time, _node: NodeId) -> Vec<FlowStats> {
        self.flows.values().map(Known::stats).collect()
    }

    fn send(&mut self, _now: Time, _to: NodeId, message: Message) -> Result<(), Refusal> {
        for (flow, share) in shares_in(&message) {
            self.flows.entry(flow).and_modify(|known| known.share = Some(share));
        }
        self.told.push_back(message);
        Ok(())
    }

    fn set_window(&mut self, _node: NodeId, flow: FlowId, window: Bytes) -> Result<(), Refusal> {
        let known = self.flows.get_mut(&flow).ok_or(Refusal::Unknown)?;
        // No window stops a flow: nobody would tell its sender that it is open again.
        let window = window.get().max(known.flow.segment(0).mss);
        if known.window.replace(window) == Some(window) {
            return Ok(());
        }
        if self.written.is_some()
            && let Err(why) = self.windows.set(&known.flow, window)
        {
            known.window = None;
            let Port { interface, .. } = &self.ports[known.port];
            self.troubles.insert(format!("interface {interface}: a window: {why}"));
            return Err(Refusal::Busy);
        }
        self.sets += 1;
        debug!(%flow, port = self.ports[known.port].interface, window, "window");
        Ok(())
    }

    /// The programs measure it from what passes.
    fn measure_rtt(&mut self, _node: NodeId, _flow: FlowId) -> Result<(), Refusal> {
        Ok(())
    }
}

impl Router {
    fn port_of(&self, flow: &Flow) -> Option<usize> {
        self.ports.iter().position(|port| port.device == flow.device())
    }

    /// What is known of a flow now; whether it is new.
    fn see(&mut self, flow: &Flow, port: usize) -> bool {
        let times = self.windows.round_trip(flow);
        let mut is_new = false;
        let known = self.flows.entry(flow.id()).or_insert_with(|| {
            is_new = true;
            let acked = Offset::new(flow.acked());
            Known { flow: *flow, port, acked, delivered: 0, times, window: None, share: None }
        });
        known.flow = *flow;
        known.delivered = known.acked.follow(flow.acked());
        known.times = times.or(known.times);
        is_new
    }

    fn beat_in_time(&mut self) -> Result<(), Error> {
        if self.written.is_some() && now().since(self.last_beat) >= BEAT {
            self.windows.beat(FIRST).map_err(failed)?;
            self.last_beat = now();
        }
        Ok(())
    }

    fn faults(&mut self) -> Vec<String> {
        let mut faults: Vec<String> = std::mem::take(&mut self.troubles).into_iter().collect();
        for Port { interface, device, .. } in &mut self.ports {
            faults.extend(stay_at(&mut self.windows, interface, device));
        }
        faults
    }

    /// Tells the program in the kernel that somebody is here, and everybody how it goes.
    fn beat(&mut self) -> Result<(), Error> {
        if self.written.is_some() {
            self.windows.beat(FIRST).map_err(failed)?;
            self.last_beat = now();
        }
        let told = |Port { interface, rate, queue, .. }: &Port| PortStatus {
            interface: interface.clone(),
            backlog: queue.backlog,
            rate: Some(rate.bits_per_sec()),
            shares: Some(0),
            ..PortStatus::default()
        };
        let mut ports: Vec<PortStatus> = self.ports.iter().map(told).collect();
        let mut connections = Vec::new();
        for known in self.flows.values() {
            let Known { port, times, window, share, .. } = known;
            let Segment { mss, frame, .. } = known.flow.segment(0);
            let told = &mut ports[*port];
            told.flows += 1;
            told.windows += window.filter(|window| *window < u64::MAX / frame).unwrap_or(0) * frame / mss;
            *told.shares.get_or_insert_default() += share.map_or(0, Rate::bits_per_sec);
            if connections.len() < MOST_CONNECTIONS {
                let [from, to] = known.flow.ends().map(|end| std::net::SocketAddr::from(end).to_string());
                let milliseconds =
                    |of: fn(&RoundTrip) -> Span| times.as_ref().map(|t| of(t).as_secs_f64() * 1e3);
                connections.push(ConnectionStatus {
                    interface: self.ports[*port].interface.clone(),
                    from,
                    to,
                    share: share.map(Rate::bits_per_sec),
                    least_rtt: milliseconds(|times| times.least),
                    rtt: milliseconds(|times| times.smoothed),
                    window: *window,
                });
            }
        }
        let faults = self.faults();
        let packets = self.windows.counts().map_err(failed)?.by_kind();
        let mut status = lock(&self.shared);
        status.ports = ports;
        status.connections = connections;
        status.written = self.sets;
        status.packets = packets.map(|(kind, count)| (kind.to_owned(), count)).to_vec();
        change_faults(&mut status, faults);
        Ok(())
    }
}

impl Machine {
    /// Puts the programs at the ports; windows stay as they are until the first beat.
    pub(super) fn new(loaded: &Loaded, state: Option<State<Entry>>) -> Result<Self, Error> {
        let deployment = &loaded.deployment;
        let missing = |why: &dyn std::fmt::Display| Error::Missing(format!("error: {why}"));
        let runner = Runner::new::<Router>(deployment.bas_roles(), deployment.inventory())
            .map_err(|lacks| missing(&lacks))?;
        let devices = devices(loaded).map_err(|why| missing(&why))?;
        let port = |(port, device): (&bandmaster_core::switch::Port, u32)| Port {
            interface: port.interface.clone(),
            rate: port.rate,
            device,
            queue: Queue::default(),
        };
        let ports: Vec<Port> = deployment.ports.iter().zip(devices).map(port).collect();
        let mut windows = Windows::load_timed().map_err(|why| lacking(&why))?;
        let mut written = super::journal::begin(state)?;
        let status = Status::begin(loaded, written.is_none());
        for Port { interface, .. } in &ports {
            if let Some((_, journal)) = &mut written {
                journal.write(&Entry::Follow { interface: interface.clone() })?;
            }
            windows.follow(interface).map_err(|why| lacking(&why))?;
        }
        let router = Router {
            windows,
            shared: Arc::new(status.into()),
            written,
            ports,
            flows: BTreeMap::new(),
            wakes: Wakes::default(),
            told: VecDeque::new(),
            last_beat: Time::ZERO,
            sets: 0,
            troubles: BTreeSet::new(),
        };
        Ok(Self { runner, router, rested: Time::ZERO })
    }

    /// Roles hear what others have told them.
    fn deliver(&mut self) {
        while let Some(message) = self.router.told.pop_front() {
            self.runner.observe(&mut self.router, now(), OWN, &Observation::Message(&message));
        }
    }

    fn begins(&mut self, flow: &Flow, port: usize) {
        if self.router.see(flow, port)
            && let Some(known) = self.router.flows.get(&flow.id())
        {
            let route = [PortId(port as u32)];
            let start = FlowStart { stats: known.stats(), key: known.key(), route: &route };
            self.runner.observe(&mut self.router, now(), OWN, &Observation::FlowStarted(start));
            self.deliver();
        }
    }

    /// The roles forget it; its window stays until the kernel has no such flow any more.
    fn ends(&mut self, flow: FlowId) {
        if self.router.flows.remove(&flow).is_some() {
            self.runner.observe(&mut self.router, now(), OWN, &Observation::FlowEnded(flow));
            self.deliver();
        }
    }

    /// Hears what the programs reported.
    fn hear(&mut self) {
        for _ in 0..EVENTS {
            let Some((kind, flow)) = self.router.windows.event() else { break };
            let Some(port) = self.router.port_of(&flow) else { continue };
            debug!(flow = %flow.id(), ?kind, ends = ?flow.ends(), "flow");
            match kind {
                Kind::Begins => {}
                Kind::Established => self.begins(&flow, port),
                Kind::Finished => self.ends(flow.id()),
                Kind::Reset | Kind::Replaced => {
                    self.ends(flow.id());
                    self.router.windows.forget(&flow);
                }
            }
        }
    }

    /// Looks at all flows and queues, before roles are told of them.
    fn look(&mut self) -> Result<(), Error> {
        let devices: Vec<u32> = self.router.ports.iter().map(|port| port.device).collect();
        match queues(&devices) {
            Ok(queues) => {
                for (port, queue) in self.router.ports.iter_mut().zip(queues) {
                    port.queue = queue;
                }
            }
            // What waited at the last look counts on.
            Err(why) => drop(self.router.troubles.insert(why)),
        }
        let mut found = BTreeSet::new();
        for flow in self.router.windows.flows().map_err(failed)? {
            self.router.beat_in_time()?;
            let silent = now().since(flow.last());
            let is_over = flow.has_ended() && silent > ENDED
                || !flow.is_established() && silent > HANDSHAKE
                || silent > FORGOTTEN;
            let Some(port) = self.router.port_of(&flow).filter(|_| !is_over) else {
                // Or its device was made anew.
                self.router.windows.forget(&flow);
                continue;
            };
            if flow.is_established() && !flow.has_ended() {
                found.insert(flow.id());
                self.begins(&flow, port);
            }
        }
        let gone: Vec<FlowId> =
            self.router.flows.keys().filter(|flow| !found.contains(flow)).copied().collect();
        gone.into_iter().for_each(|flow| self.ends(flow));
        Ok(())
    }

    /// Wakes the roles whose time has come, after a look.
    fn wake(&mut self) -> Result<(), Error> {
        let begin = now();
        if begin < self.rested {
            return Ok(());
        }
        let mut has_looked = false;
        while let Some((role, due)) = self.router.wakes.due(begin) {
            if !std::mem::replace(&mut has_looked, true) {
                self.look()?;
                self.rested = now() + now().since(begin) * PART;
            }
            self.runner.wake(&mut self.router, role, due, now());
            self.deliver();
        }
        Ok(())
    }
}

impl Work for Machine {
    fn folder(&self) -> Option<&Path> {
        self.router.written.as_ref().map(|(state, _)| state.folder())
    }

    fn shared(&self) -> &Shared {
        &self.router.shared
    }

    fn until_signal(&mut self, signals: &Signals) -> Result<End, Error> {
        self.runner.begin(&mut self.router, now());
        let mut next_beat = Time::ZERO;
        let mut is_ready = false;
        loop {
            if let Some(end) = signals.end() {
                return Ok(end);
            }
            if signals.reload() {
                info!("a switch does not read its file again: restart it");
            }
            self.hear();
            self.wake()?;
            if next_beat <= now() {
                self.router.beat()?;
                next_beat = now() + BEAT;
                // Without a service manager there is nobody to tell.
                let word = if std::mem::replace(&mut is_ready, true) {
                    NotifyState::Watchdog
                } else {
                    NotifyState::Ready
                };
                let _ = sd_notify::notify(false, &[word]);
            }
            let next = self.router.wakes.next().map_or(next_beat, |at| at.max(self.rested).min(next_beat));
            signals.wait(&[self.router.windows.as_fd()], next.since(now()))?;
        }
    }

    /// The programs leave, and the journal is forgotten.
    fn end(self) -> Result<(), Error> {
        let Router { windows, written, .. } = self.router;
        drop(windows);
        written.map_or(Ok(()), |(state, _)| state.forget())
    }
}
