//! The world of one trial and its event loop.

mod flow_log;
mod flows;
mod part;
mod rerouting;
mod results;
mod schemes;
mod settle;
mod traffic;

use std::collections::BTreeMap;

use bandmaster_core::control::FlowEnd;
use bandmaster_core::id::{FlowId, NodeId};
use bandmaster_core::measure::meters::Meters;
use bandmaster_core::measure::rtt::RttSketch;
use bandmaster_core::memory;
use bandmaster_core::qdisc::Hosts;
use bandmaster_core::report::RunRecord;
use bandmaster_core::scenario::{FlowGroup, Scenario, Transport};
use bandmaster_core::time::{Span, Time};
use bandmaster_core::units::Bytes;
use bandmaster_core::workload::rounds::Rounds;

use crate::distributions::Distributions;
use crate::events::Event;
use crate::exchange::{Exchanges, Message};
use crate::net::{Net, ROUTE_END, TAIL};
use crate::outages::Outages;
use crate::packet::{Label, PROBE, Packet, flag};
use crate::routes::{Routes, route_ports};
use crate::tcp::Profile;
use crate::tcp::multipath::Share;
use crate::tcp::receiver::Receiver;
use crate::tcp::sender::{Sender, SenderCounters};
use crate::workload::FlowPlan;
use crate::{RunError, RunOptions};
pub(crate) use flow_log::FlowLog;
pub(crate) use flows::{FlowTable, Udp, profiles};
pub(crate) use part::{Mail, Part};
pub(crate) use schemes::Control;

/// Events between two looks at the caller's stop flag.
const STOP_CHECK: u64 = 1 << 14;

/// With more ports than a core's nearest cache has room for, the next one is fetched early.
const FETCHED: usize = 256;

/// Everything that one trial needs.
pub(crate) struct Simulation<'a> {
    pub(crate) scenario: &'a Scenario,
    pub(crate) net: Net,
    pub(crate) flows: FlowTable,
    pub(crate) connections: Connections,
    pub(crate) udp: Udp,
    /// Ways of messages.
    pub(crate) routes: Routes<'a>,
    pub(crate) exchanges: Exchanges,
    pub(crate) rounds: Rounds,
    pub(crate) control: Control,
    pub(crate) meters: Meters,
    pub(crate) distributions: Distributions,
    pub(crate) flow_log: Option<Box<FlowLog>>,
    /// By flow group: round-trip times of the rows so far.
    pub(crate) rtts_told: Vec<RttSketch>,
    /// Port that is captured, and by flow number and generation the receivers of messages, which packets do not state.
    pub(crate) captured_port: Option<u32>,
    pub(crate) captured_messages: BTreeMap<(u32, u8), NodeId>,
    /// What ports know of the hosts of flows.
    pub(crate) hosts: Hosts,
    pub(crate) outages: Outages,
    /// None: this is the whole network.
    pub(crate) part: Option<Box<Part>>,
}

/// Both ends of a TCP flow.
pub(crate) struct Connection {
    sender: Sender,
    receiver: Receiver,
}

/// The connections of TCP flows: made when they start, one after the other in memory.
pub(crate) struct Connections {
    started: Vec<Connection>,
    /// By TCP flow: its place in `started`, or `NOT_STARTED`.
    place: Vec<u32>,
    /// Counts of connections that gave their flow number to another.
    replaced: SenderCounters,
}

impl Connections {
    const NOT_STARTED: u32 = u32::MAX;

    pub(crate) fn new(flows: usize) -> Self {
        // Room for all, so that growing never copies; memory is touched only as flows start.
        Self {
            started: Vec::with_capacity(flows),
            place: vec![Self::NOT_STARTED; flows],
            replaced: SenderCounters::default(),
        }
    }

    /// TCP flows, started or not.
    fn flows(&self) -> usize {
        self.place.len()
    }

    /// Ends the connection of a flow for good, to make room for another; returns what it has delivered. A flow that has
    /// had none stays without.
    fn replace(&mut self, flow: usize, new: impl FnOnce() -> Connection) -> u64 {
        let Some(old) = self.started.get_mut(self.place[flow] as usize) else { return 0 };
        self.replaced.add(old.sender.counters);
        let delivered = old.receiver.delivered();
        *old = new();
        delivered
    }

    fn get(&self, flow: usize) -> Option<&Connection> {
        self.started.get(self.place[flow] as usize)
    }

    fn get_mut(&mut self, flow: usize) -> Option<&mut Connection> {
        self.started.get_mut(self.place[flow] as usize)
    }

    /// The connection of a flow, made by `new` when it has not started.
    #[inline]
    fn get_or_insert_with(&mut self, flow: usize, new: impl FnOnce() -> Connection) -> &mut Connection {
        if self.place[flow] == Self::NOT_STARTED {
            self.place[flow] = self.started.len() as u32;
            self.started.push(new());
        }
        &mut self.started[self.place[flow] as usize]
    }
}

impl Simulation<'_> {
    /// Runs to the end of the scenario.
    pub(crate) fn run(
        mut self,
        case: usize,
        trial: u32,
        options: &mut RunOptions<'_>,
    ) -> Result<RunRecord, RunError> {
        let end = Time::ZERO + self.scenario.run.duration;
        self.begin_outages(options)?;
        self.schedule_start();
        self.drive(end, options)?;
        self.net.now = end;
        self.flush_capture(options);
        self.check_conservation();
        self.finish_flows(options);
        Ok(self.record(case, trial))
    }

    /// The loop; a function of its own, so that the compiler does not spill what it needs for what surrounds it.
    #[inline(never)]
    fn drive(&mut self, end: Time, options: &mut RunOptions<'_>) -> Result<(), RunError> {
        let fetches = self.fetches();
        while let Some((at, event)) = self.net.events.pop() {
            if at > end {
                break;
            }
            self.net.now = at;
            if self.net.events.taken().is_multiple_of(STOP_CHECK) {
                self.may_go_on(options)?;
            }
            if fetches {
                self.fetch_ahead();
            }
            match event {
                Event::Arrival(port) => self.arrive(port),
                Event::Sample | Event::Reroute => {
                    self.handle(event);
                    self.report_back(event, options)?;
                }
                _ => self.handle(event),
            }
        }
        Ok(())
    }

    /// What an event asks of the caller: to take rows and captured packets, or to be heard while routes are found again.
    #[cold]
    fn report_back(&mut self, event: Event, options: &mut RunOptions<'_>) -> Result<(), RunError> {
        if matches!(event, Event::Reroute) {
            return self.reroute(options);
        }
        self.flush_capture(options);
        self.flush_flows(options);
        Ok(())
    }

    /// Looks whether the caller wants no more, or packets pile up without end.
    #[cold]
    fn may_go_on(&self, options: &RunOptions<'_>) -> Result<(), RunError> {
        options.goes_on()?;
        if self.net.slab.live() as u64 > memory::MOST_PACKETS {
            return Err(RunError::Failed(format!(
                "more than {} packets wait at {}: an unlimited queue is sent more than it can carry",
                memory::MOST_PACKETS,
                self.net.now
            )));
        }
        Ok(())
    }

    /// Asks for the data that the next event will probably need, so that it comes while this one is handled: with
    /// thousands of flows a hop waits for memory.
    #[inline(always)]
    fn fetch_ahead(&self) {
        match self.net.events.likely_next() {
            Some(Event::Arrival(port)) => self.net.fetch_arrival(port),
            Some(Event::Datagram(source)) => {
                self.net.fetch_next_port(self.udp.sources[source as usize].route);
            }
            Some(Event::Crossed(key)) => {
                if let Some(hop) = self.part.as_ref().and_then(|part| part.next_hop(key)) {
                    self.net.fetch_next_port(hop);
                }
            }
            _ => {}
        }
    }

    pub(crate) fn schedule_start(&mut self) {
        if self.part.is_some() {
            return self.schedule_part();
        }
        let run = &self.scenario.run;
        self.net.schedule(Time::ZERO + run.sample, Event::Sample);
        // A flow whose stop comes before a drawn start never runs.
        let groups = &self.scenario.flows;
        let begins = |plan: &&FlowPlan| plan.start < plan.stop && plan.subflow(groups) == 0;
        for (i, plan) in self.flows.plans.iter().enumerate().filter(|(_, plan)| begins(plan)) {
            self.net.events.push(plan.start, Event::Start(i as u32));
            if plan.stop != Time::MAX {
                self.net.events.push(plan.stop, Event::Stop(i as u32));
            }
        }
        let events = &mut self.net.events;
        self.rounds.begin(|at, flow| events.push(at, Event::Start(flow)));
        let events = &mut self.net.events;
        self.exchanges.begin(|at, flow| events.push(at, Event::Start(flow)));
        for (i, fault) in self.scenario.faults.nodes.iter().enumerate() {
            self.net.events.push(fault.at, Event::NodeFault(i as u32));
        }
        self.begin_roles();
    }

    /// Whether data of events are fetched ahead.
    fn fetches(&self) -> bool {
        self.net.ports.len() > FETCHED
    }

    /// Handles an event.
    #[inline(always)]
    fn take(&mut self, event: Event) {
        match event {
            Event::Arrival(port) => self.arrive(port),
            Event::Crossed(key) => self.come_over(key),
            _ => self.handle(event),
        }
    }

    /// Handles what is no arrival.
    #[inline(never)]
    fn handle(&mut self, event: Event) {
        match event {
            // Most events are arrivals: the loops take them themselves.
            Event::Arrival(_) | Event::Crossed(_) => {}
            Event::Landing(port) => self.land(port),
            Event::PortFree(port) => {
                let net = &mut self.net;
                net.ports[port as usize].wake(port, net.now, &mut net.slab, &mut net.events);
            }
            Event::Processed(port) => {
                let net = &mut self.net;
                net.ports[port as usize].finish_processing(port, net.now, &mut net.slab, &mut net.events);
            }
            Event::Retransmit(flow) => {
                self.with_sender(flow, Sender::on_retransmit_timer);
                self.push_data(flow, false);
            }
            Event::Reordering(flow) => {
                self.with_sender(flow, Sender::on_reordering_timer);
                self.push_data(flow, false);
            }
            Event::Probe(flow) => {
                self.with_sender(flow, Sender::on_probe_timer);
                self.push_data(flow, false);
            }
            Event::DelayedAck(flow) => self.with_receiver(flow, Receiver::on_delayed_ack_timer),
            Event::Pace(flow) => {
                self.with_sender(flow, Sender::on_pace_timer);
                self.push_data(flow, false);
            }
            Event::Credit(flow) => self.with_receiver(flow, Receiver::on_credit_timer),
            Event::Read(flow) => self.with_receiver(flow, Receiver::on_read_timer),
            Event::Start(flow) => self.start(flow),
            Event::Stop(flow) => self.stop(flow),
            Event::Toggle(flow) => self.toggle(flow),
            Event::Datagram(source) => self.datagram(source),
            Event::Sample => self.sample(),
            Event::Wakeup(role) => self.wake(role as usize),
            Event::Deliver(number) => self.deliver_message(number),
            Event::ProbeLeft(key) => self.probe_left(key),
            Event::Gate(number) => {
                let profile_of = |flow: u32| self.flows.profile(flow as usize);
                self.control.gates.on_timer(number, profile_of, &mut self.net);
            }
            Event::NodeFault(number) => self.node_fault(number as usize),
            Event::Outage(number) => self.outage(number as usize),
            // It takes long in a large network: the loop does it, which knows the caller's stop flag.
            Event::Reroute => {}
        }
    }

    /// The packet at the head of a port's wire reaches the other end.
    #[inline(always)]
    fn arrive(&mut self, port: u32) {
        let net = &mut self.net;
        let arrived = net.ports[port as usize].arrive(port, net.now, &mut net.slab, &mut net.events);
        if let Some(label) = arrived {
            self.pass_on(port, label);
        }
    }

    /// A packet has come over a port whose wire gives each a delay of its own.
    #[cold]
    fn land(&mut self, port: u32) {
        if let Some(label) = self.net.ports[port as usize].land(self.net.now) {
            self.pass_on(port, label);
        }
    }

    /// A packet has come over a port: it goes on, unless a program holds it, or is delivered.
    #[inline(always)]
    fn pass_on(&mut self, port: u32, label: Label) {
        let next = self.net.next_port(label);
        if next == ROUTE_END {
            self.deliver(label);
        } else if !self.control.gates.concern(port, next) || self.pass_gates(port, label) {
            self.net.offer(next, Label { hop: label.hop + 1, ..label });
        }
    }

    /// Shows a packet to the programs of ports; false when one holds it.
    fn pass_gates(&mut self, port: u32, label: Label) -> bool {
        if self.flows.tcp_profile(label.flow as usize).is_none() {
            return true;
        }
        let profile_of = |flow: u32| self.flows.profile(flow as usize);
        self.control.gates.pass(port, label, profile_of, &mut self.net)
    }

    /// Lets a TCP flow's sender work.
    #[inline]
    fn with_sender<T>(&mut self, flow: u32, work: impl FnOnce(&mut Sender, &Profile, &mut Net) -> T) -> T {
        let (connection, (profile, net)) = self.connection(flow);
        work(&mut connection.sender, profile, net)
    }

    /// Lets a TCP flow's receiver work.
    #[inline]
    fn with_receiver(&mut self, flow: u32, work: impl FnOnce(&mut Receiver, &Profile, &mut Net)) {
        let (connection, (profile, net)) = self.connection(flow);
        work(&mut connection.receiver, profile, net);
    }

    /// A TCP flow's ends, made when first asked for.
    #[inline]
    fn connection(&mut self, flow: u32) -> (&mut Connection, (&Profile, &mut Net)) {
        let i = flow as usize;
        let new = || self.flows.connect(i, &self.scenario.flows);
        let connection = self.connections.get_or_insert_with(i, new);
        (connection, (self.flows.profile(i), &mut self.net))
    }

    fn is_receiver_open(&self, flow: u32) -> bool {
        self.connections.get(flow as usize).is_some_and(|c| c.receiver.is_open())
    }

    /// A packet is at the end of its route.
    #[inline(always)]
    fn deliver(&mut self, label: Label) {
        let Label { key, flow, .. } = label;
        self.net.slab.remove(key);
        if flow as usize >= self.connections.flows() {
            self.deliver_datagram(label);
        } else if self.exchanges.is_empty() && self.flows.shares.is_empty() && self.net.slab.at(key).reverse {
            let packet = *self.net.slab.at(key);
            self.with_sender(flow, |sender, profile, net| sender.on_ack(&packet, profile, net));
        } else {
            self.deliver_segment(label);
        }
    }

    /// A probe or a packet of UDP is at the end of its route.
    #[inline]
    fn deliver_datagram(&mut self, Label { key, flow, .. }: Label) {
        if flow == PROBE {
            self.deliver_probe(key);
            return;
        }
        let source = flow as usize - self.connections.flows();
        self.udp.received[source] += 1;
        if self.net.delays.is_some() {
            let len = self.net.slab.at(key).len;
            self.note_queueing(flow, key, self.udp.sources[source].route, len);
        }
    }

    /// A segment is at the end of its route.
    #[inline(never)]
    fn deliver_segment(&mut self, Label { key, flow, .. }: Label) {
        let packet = *self.net.slab.at(key);
        let is_message = !self.exchanges.is_empty() && self.exchanges.contains(flow);
        if is_message && self.is_stale(flow, packet.generation) {
            return;
        }
        if packet.reverse {
            let target = if is_message { self.exchanges.target(flow) } else { None };
            let is_done = self.with_sender(flow, |sender, profile, net| {
                sender.on_ack(&packet, profile, net);
                target.map_or_else(|| sender.is_done(), |(total, _)| sender.acknowledged() >= total)
            });
            if is_message && is_done {
                let events = &mut self.net.events;
                let start = |at, flow| events.push(at, Event::Start(flow));
                if let Some(next) = self.exchanges.acknowledge(flow, self.net.now, start) {
                    self.send_message(next);
                }
            }
            if !self.flows.shares.is_empty() {
                self.push_data(flow, packet.flags & flag::SYN != 0);
            }
            return;
        }
        if packet.flags & flag::SYN != 0 {
            self.announce(flow, self.flows.plans[flow as usize].dst, FlowEnd::Receiver);
        }
        if let Some(came) = self.flows.received_ip_bytes.get_mut(flow as usize) {
            *came += u64::from(packet.len) - self.scenario.topology.frame_overhead.get();
        }
        let is_watched = !self.control.runner.is_empty()
            || !self.rounds.is_empty()
            || is_message
            || !self.flows.shares.is_empty()
            || self.distributions.is_on()
            || self.net.delays.is_some();
        if is_watched {
            if self.net.delays.is_some()
                && packet.payload > 0
                && let Some(connection) = self.connections.get(flow as usize)
            {
                self.note_queueing(flow, key, connection.sender.route(), packet.len);
            }
            self.deliver_watched(flow, &packet, is_message, self.net.slab.sent(key));
        } else {
            self.with_receiver(flow, |receiver, profile, net| receiver.on_segment(&packet, profile, net));
        }
    }

    /// A data packet of `len` bytes is at the end of the way at `place` in the table of routes: notes how much longer it took than
    /// over empty links.
    #[cold]
    fn note_queueing(&mut self, flow: u32, key: u32, place: u32, len: u32) {
        let Some(sent) = self.net.slab.sent(key) else { return };
        let first = (place & TAIL != 0).then(|| self.net.starts[flow as usize][0]);
        let rest = route_ports(&self.net.routes, place & !TAIL).iter().copied();
        let ports = first.into_iter().chain(rest);
        let alone = ports
            .map(|port| self.net.ports[port as usize].ideal().alone(len.into()))
            .fold(Span::ZERO, |sum, own| sum + own);
        let waited = self.net.now.since(sent).saturating_sub(alone);
        if let Some(delays) = &mut self.net.delays {
            delays.note_queueing(flow, waited);
        }
    }

    /// A segment of a flow whose end or progress something waits for is at the end of its route.
    fn deliver_watched(&mut self, flow: u32, packet: &Packet, is_message: bool, sent: Option<Time>) {
        if packet.payload > 0 && self.distributions.is_on() {
            self.distributions.note_delay(flow, sent, self.net.now);
        }
        let was_open = self.is_receiver_open(flow);
        let share = if self.flows.shares.is_empty() { None } else { self.flows.share(flow as usize) };
        let multipath = share.map(|share| share.connection);
        let is_complete = |net: &Net| multipath.map(|at| net.multipath[at].finished_at().is_some());
        let was_complete = is_complete(&self.net);
        let target = match is_message {
            true => self.exchanges.target(flow),
            false if self.rounds.is_empty() => None,
            false => self.rounds.target(flow),
        };
        let delivered = |simulation: &Self| {
            simulation.connections.get(flow as usize).map_or(0, |c| c.receiver.delivered())
        };
        let delivered_before = target.map_or(0, |_| delivered(self));
        self.with_receiver(flow, |receiver, profile, net| receiver.on_segment(packet, profile, net));
        let has_ended = was_open && !self.is_receiver_open(flow);
        if has_ended && !self.control.runner.is_empty() {
            for end in [FlowEnd::Receiver, FlowEnd::Sender] {
                self.tell_of_flow_end(flow, end);
            }
        }
        let completes = match (was_complete, target) {
            (Some(was_complete), _) => !was_complete && is_complete(&self.net) == Some(true),
            (None, Some((target, _))) => (delivered_before + 1..=delivered(self)).contains(&target),
            (None, None) => has_ended,
        };
        if completes && self.distributions.is_on() {
            match &mut self.part {
                // Its sender is elsewhere.
                Some(part) if part.of(self.flows.plans[flow as usize].src) != part.number => {
                    part.completed.push((self.net.now, flow));
                }
                _ => self.note_completion(flow, self.net.now),
            }
        }
        if completes && self.flow_log.is_some() {
            let first = flow - self.flows.plans[flow as usize].subflow(&self.scenario.flows);
            if is_message || self.rounds.contains(first) {
                self.note_transfer(first);
            }
        }
        if completes && !self.rounds.is_empty() {
            let first = flow - self.flows.plans[flow as usize].subflow(&self.scenario.flows);
            let events = &mut self.net.events;
            self.rounds.complete(first, self.net.now, |at, flow| events.push(at, Event::Start(flow)));
        }
        if completes
            && is_message
            && let Some(next) = self.exchanges.come(flow, self.net.now)
        {
            self.send_message(next);
        }
    }

    /// A packet is of an earlier connection with the same flow number.
    fn is_stale(&self, flow: u32, generation: u8) -> bool {
        self.connections.get(flow as usize).is_none_or(|c| c.sender.generation() != generation)
    }

    /// Opens the connection of the message that an exchange has for `flow` now, if it has one.
    fn send_message(&mut self, flow: u32) {
        let Some(message) = self.exchanges.take(flow, self.net.now) else { return };
        self.tell_of_message(flow, message);
        if self.captured_port.is_some() {
            self.captured_messages.insert((flow, message.generation), message.to);
        }
        if let Some((total, is_last)) = message.total
            && self.connections.get(flow as usize).is_some()
        {
            self.give(flow, total, !is_last);
            return;
        }
        self.open_message(flow, &message);
        self.announce(flow, message.from, FlowEnd::Sender);
        if let Some((total, is_last)) = message.total {
            self.give(flow, total, !is_last);
        }
        self.with_sender(flow, Sender::open);
    }

    /// Makes the connection of a message, in place of the last one with its flow number.
    fn open_message(&mut self, flow: u32, message: &Message) {
        let Message { from, to, key, .. } = *message;
        let way =
            |from, to, routes: &mut Routes<'_>, net: &mut Net| routes.way(from, to, key, &mut net.routes);
        let there = way(from, to, &mut self.routes, &mut self.net);
        let back = way(to, from, &mut self.routes, &mut self.net);
        let (Some(there), Some(back)) = (there, back) else {
            panic!("no way between nodes {} and {} of an exchange", from.0, to.0)
        };
        let i = flow as usize;
        self.net.starts[i] = [there.first, back.first];
        if !self.control.runner.is_empty() {
            self.move_flow(flow, to);
        }
        self.flows.plans[i].dst = to;
        self.hosts.set(FlowId(flow), from, to);
        self.flows.profile_of[i] = message.profile;
        self.forget_late(flow);
        if !self.control.runner.is_empty() {
            self.note_replaced(flow);
            if self.has_node(from) {
                self.tune(flow);
            }
        }
        let profile = self.flows.profile(i);
        let new = || {
            let mut sender = Sender::new(flow, there.tail | TAIL, Some(message.bytes), &profile.settings);
            let mut receiver = Receiver::new(flow, back.tail | TAIL, profile);
            sender.set_generation(message.generation);
            sender.set_stream(|| self.flows.control_stream(i, &self.scenario.flows));
            receiver.set_generation(message.generation);
            Connection { sender, receiver }
        };
        if self.connections.get(i).is_some() {
            self.connections.replace(i, new);
        } else {
            self.connections.get_or_insert_with(i, new);
        }
    }

    /// A flow of an exchange ends at another host from now on.
    fn move_flow(&mut self, flow: u32, to: NodeId) {
        let before = &mut self.control.flows_of[self.flows.plans[flow as usize].dst.index()];
        if let Ok(at) = before.binary_search(&flow) {
            before.remove(at);
        }
        let now = &mut self.control.flows_of[to.index()];
        if let Err(at) = now.binary_search(&flow) {
            now.insert(at, flow);
        }
    }

    /// Keeps what the connection of a flow has sent, for its node's statistics, before another takes its place.
    fn note_replaced(&mut self, flow: u32) {
        if let Some(connection) = self.connections.get(flow as usize) {
            let before = &mut self.control.segments_before[self.flows.plans[flow as usize].src.index()];
            before.sent += u64::from(connection.sender.counters.segments);
            before.resent += u64::from(connection.sender.counters.retransmits);
        }
    }

    /// The last byte of a connection has arrived. What has no size, or was cut off before, is no transfer that completed.
    fn note_completion(&mut self, flow: u32, now: Time) {
        let plan = &self.flows.plans[flow as usize];
        let groups = &self.scenario.flows;
        let subflows = plan.group(groups).multipath.map_or(1, |multipath| multipath.subflows);
        let first = flow - plan.subflow(groups);
        let is_persistent = self.rounds.target(first).is_some() || self.exchanges.is_persistent(first);
        let i = first as usize;
        if !is_persistent && (self.size(i).is_none() || self.finished_at(i).is_none()) {
            return;
        }
        let (mut packets, mut dropped) = (0, 0);
        for flow in first..first + subflows {
            // Each subflow has also sent a SYN, which `segments` does not count.
            let handed = 1 + self.connections.get(flow as usize).map_or(0, |c| c.sender.counters.segments);
            packets += if is_persistent { self.distributions.take_handed(flow, handed) } else { handed };
            dropped += self.net.slab.take_drops(flow);
        }
        let begun =
            self.exchanges.begun(first).or(self.rounds.begun(first)).unwrap_or(self.flows.plans[i].start);
        let is_tuned = self.flows.tuned.iter().any(|(.., profile)| *profile == self.flows.profile_of[i]);
        self.distributions.note_completion(packets, dropped, now.since(begun), is_tuned);
    }

    /// Gives a multipath connection's subflows data as the scheduler says, after something has arrived at one of them.
    fn push_data(&mut self, flow: u32, is_syn: bool) {
        let Some(Share { connection, subflow: number }) = self.flows.share(flow as usize) else { return };
        let first = flow - number as u32;
        let count = self.net.multipath[connection].paths.len() as u32;
        // RFC 8684 section 3.2: subflows are added when the first is established.
        if is_syn && number == 0 {
            for flow in first + 1..first + count {
                self.with_sender(flow, Sender::open_once);
            }
        }
        if self.net.multipath[connection].take_close() {
            for flow in first..first + count {
                self.with_sender(flow, Sender::close);
            }
            return;
        }
        loop {
            let ranks = (0..count).filter_map(|number| {
                self.with_sender(first + number, |sender, profile, net| {
                    if !sender.has_room(profile, net) {
                        return None;
                    }
                    net.multipath[connection].rank(number as usize, sender.rtt.srtt())
                })
            });
            let Some((_, number)) = ranks.min() else { break };
            let Some(len) = self.net.multipath[connection].take_data(number) else { break };
            self.with_sender(first + number as u32, |sender, profile, net| {
                sender.push_data(len, profile, net);
            });
        }
    }
}

/// What a TCP flow of the group has to send.
fn transfer_size(group: &FlowGroup) -> Option<u64> {
    match group.transport {
        Transport::Tcp { size, .. } => size.map(Bytes::get),
        Transport::Udp { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::Port;

    /// A plain connection pays nothing for multipath TCP, incast or window programs, and a port and a packet stay in their
    /// cache lines.
    #[test]
    fn sizes_stay() {
        assert_eq!(size_of::<Connection>(), 264);
        assert_eq!((size_of::<Port>(), size_of::<Packet>(), size_of::<FlowPlan>()), (128, 80, 40));
    }
}
