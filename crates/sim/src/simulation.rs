//! The world of one trial and its event loop.

use bandmaster_core::capture::CapturedPacket;
use bandmaster_core::control::faults::PathPoint;
use bandmaster_core::control::{Action, FlowEnd, FlowStats, Observation, PortStats, SegmentCounts};
use bandmaster_core::id::{FlowId, NodeId, PortId};
use bandmaster_core::port::flow_counter::FlowCounter;
use bandmaster_core::qdisc::{ClassChange, ClassName};
use bandmaster_core::report::{RunRecord, Work};
use bandmaster_core::scenario::{FlowGroup, Scenario, Transport};
use bandmaster_core::time::{Span, Time};
use bandmaster_core::tuning::Tuning;
use bandmaster_core::units::{Bytes, Rate, UDP_HEADERS};

use crate::distributions::{Distributions, percentile};
use crate::events::Event;
use crate::exchange::{Exchanges, Message};
use crate::gates::Gates;
use crate::link::{PathCounter, Port, PortCounters};
use crate::measure::{FlowSample, Flows, GaugeMeter, Meter};
use crate::net::{Net, TAIL};
use crate::packet::{Label, PROBE, Packet, flag};
use crate::roles::{Probe, Roles};
use crate::rounds::Rounds;
use crate::routes::{Routes, route_ports};
use crate::tcp::Profile;
use crate::tcp::multipath::Share;
use crate::tcp::receiver::Receiver;
use crate::tcp::sender::{Sender, SenderCounters};
use crate::workload::{FlowPlan, Toggles, UdpSource};
use crate::{RunError, RunOptions};

/// Events between two looks at the caller's stop flag.
const STOP_CHECK: u64 = 1 << 14;

/// Figures of incast rounds, in the order of [`Rounds::figures`].
const ROUND_FIGURES: [&str; 4] = ["rounds", "round_time_mean", "round_time_max", "round_goodput"];

/// Everything that one trial needs.
pub(crate) struct Simulation<'a> {
    pub(crate) scenario: &'a Scenario,
    pub(crate) net: Net,
    /// TCP flows first, then UDP.
    pub(crate) plans: Vec<FlowPlan>,
    pub(crate) connections: Connections,
    /// First hop of each flow's data, and of each TCP flow's acknowledgements.
    pub(crate) data_routes: Vec<u32>,
    pub(crate) ack_routes: Vec<u32>,
    /// Profile of each TCP flow.
    pub(crate) profile_of: Vec<u32>,
    pub(crate) profiles: Vec<Profile>,
    /// What schemes have changed in the TCP of each node, for flows that begin.
    pub(crate) tunings: Vec<Tuning>,
    /// Profiles with changes: the profile they are of, the changes, their own number.
    pub(crate) tuned: Vec<(u32, Tuning, u32)>,
    /// TCP flows that begin or end at each node, in order; empty when there are no roles.
    pub(crate) flows_of: Vec<Vec<u32>>,
    /// By node: what connections have sent that gave their flow number to another, where roles ask.
    pub(crate) segments_before: Vec<SegmentCounts>,
    /// Ways of messages.
    pub(crate) routes: Routes<'a>,
    pub(crate) exchanges: Exchanges,
    pub(crate) udp: Vec<UdpSource>,
    pub(crate) datagrams_received: Vec<u64>,
    pub(crate) toggles: Toggles,
    pub(crate) gates: Gates,
    pub(crate) rounds: Rounds,
    /// By TCP flow: its part in a multipath connection. Empty when there is none.
    pub(crate) shares: Vec<Option<Share>>,
    pub(crate) roles: Roles,
    pub(crate) meter: Meter,
    pub(crate) gauge_meter: GaugeMeter,
    pub(crate) distributions: Distributions,
    /// Port whose queue is reported.
    pub(crate) measured_port: Option<u32>,
    /// Port that is captured.
    pub(crate) captured_port: Option<u32>,
    /// Rate of each port.
    pub(crate) rates: Vec<Rate>,
    /// Node of each port's transmitter.
    pub(crate) port_owner: Vec<NodeId>,
    /// Rate of inelastic traffic that is on, per port, in bit/s; changes with UDP sources.
    pub(crate) inelastic: Vec<f64>,
    /// The part of it that is background, at the port whose free bandwidth is tracked.
    pub(crate) background: f64,
    /// The same at the measured port.
    pub(crate) beside: f64,
    /// Bytes of the IP packets that have come to each TCP flow's receiver; empty when no group states a need.
    pub(crate) came: Vec<u64>,
    /// Bytes that each TCP flow sends; empty when no group draws them.
    pub(crate) sizes: Vec<u64>,
}

/// Both ends of a TCP flow.
pub(crate) struct Connection {
    sender: Sender,
    receiver: Receiver,
}

impl Connection {
    fn new(
        flow: u32,
        routes: (u32, u32),
        group: &FlowGroup,
        profile: &Profile,
        share: Option<&Share>,
        size: Option<u64>,
    ) -> Self {
        if let Some(share) = share {
            let mut receiver = Receiver::new(flow, routes.1, profile);
            receiver.set_share(share.clone());
            return Self {
                sender: Sender::subflow(flow, routes.0, share.clone(), &profile.settings),
                receiver,
            };
        }
        // Unless it is drawn for each flow.
        let size = size.or_else(|| transfer_size(group));
        Self {
            sender: Sender::new(flow, routes.0, size, &profile.settings),
            receiver: Receiver::new(flow, routes.1, profile),
        }
    }
}

/// The connections of TCP flows: made when they start, one after the other in memory.
pub(crate) struct Connections {
    started: Vec<Connection>,
    /// Place in `started` of each TCP flow, or `NOT_STARTED`.
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
        let counters = old.sender.counters;
        self.replaced.segments += counters.segments;
        self.replaced.retransmits += counters.retransmits;
        self.replaced.timeouts += counters.timeouts;
        let delivered = old.receiver.delivered();
        *old = new();
        delivered
    }

    fn get(&self, flow: usize) -> Option<&Connection> {
        self.started.get(self.place[flow] as usize)
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
        self.schedule_start();
        while let Some((at, event)) = self.net.events.pop() {
            if at > end {
                break;
            }
            self.net.now = at;
            if self.net.events.taken().is_multiple_of(STOP_CHECK)
                && options.stop.is_some_and(|stop| stop.load(std::sync::atomic::Ordering::Relaxed))
            {
                return Err(RunError::Stopped);
            }
            self.fetch_ahead();
            self.handle(event);
            if matches!(event, Event::Sample) {
                self.flush_capture(options);
            }
        }
        self.net.now = end;
        self.flush_capture(options);
        self.check_conservation();
        Ok(self.record(case, trial))
    }

    /// Asks for the data that the next event will probably need, so that it comes while this one is handled: with
    /// thousands of flows a hop waits for memory.
    #[inline]
    fn fetch_ahead(&self) {
        match self.net.events.likely_next() {
            Some(Event::Arrival(port)) => self.net.fetch_arrival(port),
            Some(Event::Datagram(source)) => {
                self.net.fetch_next_port(self.udp[source as usize].route);
            }
            _ => {}
        }
    }

    fn schedule_start(&mut self) {
        let run = &self.scenario.run;
        self.net.schedule(Time::ZERO + run.sample, Event::Sample);
        // A flow whose stop comes before a drawn start never runs.
        let groups = &self.scenario.flows;
        let begins = |plan: &&FlowPlan| plan.start < plan.stop && plan.subflow(groups) == 0;
        for (i, plan) in self.plans.iter().enumerate().filter(|(_, plan)| begins(plan)) {
            self.net.events.push(plan.start, Event::Start(i as u32));
            if plan.stop != Time::MAX {
                self.net.events.push(plan.stop, Event::Stop(i as u32));
            }
        }
        self.rounds.begin(&mut self.net.events);
        self.exchanges.begin(&mut self.net.events);
        for (i, restart) in self.scenario.faults.restarts.iter().enumerate() {
            self.net.events.push(restart.at, Event::Restart(i as u32));
        }
        self.note_free();
        self.note_room();
        for i in 0..self.roles.running.len() {
            self.note_gauges(i);
            self.roles.plan_wakeup(i, Time::ZERO, &mut self.net.events);
        }
    }

    #[inline]
    fn handle(&mut self, event: Event) {
        match event {
            Event::Arrival(port) => {
                let net = &mut self.net;
                let arrived = net.ports[port as usize].arrive(port, &mut net.slab, &mut net.events);
                let Some(label) = arrived else { return };
                if self.gates.concern(port, label, &self.net) && !self.pass_gates(port, label) {
                    return;
                }
                if !self.net.forward(label) {
                    self.deliver(label);
                }
            }
            Event::PortFree(port) => {
                let net = &mut self.net;
                net.ports[port as usize].wake(port, net.now, &mut net.slab, &mut net.events);
            }
            Event::Processed(port) => {
                let net = &mut self.net;
                net.ports[port as usize].finish_processing(port, net.now, &mut net.slab, &mut net.events);
            }
            Event::Retransmit(flow) => {
                let (sender, profile) = self.sender(flow);
                sender.on_retransmit_timer(profile.0, profile.1);
                if !self.shares.is_empty() {
                    self.push_data(flow, false);
                }
            }
            Event::DelayedAck(flow) => {
                let (receiver, profile) = self.receiver(flow);
                receiver.on_delayed_ack_timer(profile.0, profile.1);
            }
            Event::Pace(flow) => {
                let (sender, profile) = self.sender(flow);
                sender.on_pace_timer(profile.0, profile.1);
                if !self.shares.is_empty() {
                    self.push_data(flow, false);
                }
            }
            Event::Credit(flow) => {
                let (receiver, profile) = self.receiver(flow);
                receiver.on_credit_timer(profile.0, profile.1);
            }
            Event::Read(flow) => {
                let (receiver, profile) = self.receiver(flow);
                receiver.on_read_timer(profile.0, profile.1);
            }
            Event::Start(flow) => self.start(flow),
            Event::Stop(flow) => self.stop(flow),
            Event::Toggle(flow) => self.toggle(flow),
            Event::Datagram(source) => self.datagram(source),
            Event::Sample => self.sample(),
            Event::Wakeup(role) => self.wake(role as usize),
            Event::Deliver(number) => self.deliver_message(number),
            Event::ProbeLeft(key) => self.probe_left(key),
            Event::Gate(number) => {
                let (profiles, profile_of) = (&self.profiles, &self.profile_of);
                let profile_of = |flow: u32| &profiles[profile_of[flow as usize] as usize];
                self.gates.on_timer(number, profile_of, &mut self.net);
            }
            Event::Restart(number) => self.restart(number as usize),
        }
    }

    /// Shows a packet to the programs of ports; false when one holds it.
    fn pass_gates(&mut self, port: u32, label: Label) -> bool {
        match self.profile_of.get(label.flow as usize) {
            Some(&profile) => self.gates.pass(port, label, &self.profiles[profile as usize], &mut self.net),
            None => true,
        }
    }

    /// A TCP flow's sender with what its methods need.
    #[inline]
    fn sender(&mut self, flow: u32) -> (&mut Sender, (&Profile, &mut Net)) {
        let (connection, with) = self.connection(flow);
        (&mut connection.sender, with)
    }

    /// A TCP flow's receiver with what its methods need.
    #[inline]
    fn receiver(&mut self, flow: u32) -> (&mut Receiver, (&Profile, &mut Net)) {
        let (connection, with) = self.connection(flow);
        (&mut connection.receiver, with)
    }

    /// A TCP flow's ends, made when first asked for.
    #[inline]
    fn connection(&mut self, flow: u32) -> (&mut Connection, (&Profile, &mut Net)) {
        let i = flow as usize;
        let profile = &self.profiles[self.profile_of[i] as usize];
        let (plan, groups) = (&self.plans[i], &self.scenario.flows);
        let routes = (self.data_routes[i], self.ack_routes[i]);
        let share = self.shares.get(i).and_then(Option::as_ref);
        let size = self.sizes.get(i).copied().filter(|_| plan.group(groups).size_cdf.is_some());
        let new = || Connection::new(flow, routes, plan.group(groups), profile, share, size);
        let connection = self.connections.get_or_insert_with(i, new);
        (connection, (profile, &mut self.net))
    }

    fn is_receiver_open(&self, flow: u32) -> bool {
        self.connections.get(flow as usize).is_some_and(|c| c.receiver.is_open())
    }

    /// A packet is at the end of its route.
    #[inline]
    fn deliver(&mut self, Label { key, flow, .. }: Label) {
        self.net.slab.remove(key);
        if flow as usize >= self.connections.flows() {
            if flow == PROBE {
                self.deliver_probe(key);
                return;
            }
            self.datagrams_received[flow as usize - self.connections.flows()] += 1;
            return;
        }
        let packet = *self.net.slab.at(key);
        let is_message = !self.exchanges.is_empty() && self.exchanges.contains(flow);
        if is_message && self.is_stale(flow, packet.generation) {
            return;
        }
        if packet.reverse {
            let (sender, (profile, net)) = self.sender(flow);
            sender.on_ack(&packet, profile, net);
            if is_message && sender.is_done() {
                self.exchanges.acknowledge(flow, self.net.now, &mut self.net.events);
                self.send_message(flow);
            }
            if !self.shares.is_empty() {
                self.push_data(flow, packet.flags & flag::SYN != 0);
            }
            return;
        }
        if packet.flags & flag::SYN != 0 && !self.roles.is_empty() {
            let dst = self.plans[flow as usize].dst;
            let stats = self.flow_stats(flow, FlowEnd::Receiver);
            self.observe(dst, &Observation::FlowStarted(stats));
        }
        let is_watched =
            !self.roles.is_empty() || !self.rounds.is_empty() || is_message || self.distributions.is_on();
        if let Some(came) = self.came.get_mut(flow as usize) {
            *came += u64::from(packet.len) - self.scenario.topology.frame_overhead.get();
        }
        let was_open = is_watched && self.is_receiver_open(flow);
        let is_complete = |shares: &[Option<Share>]| {
            let share = shares.get(flow as usize).and_then(Option::as_ref);
            share.map(|share| share.finished_at().is_some())
        };
        let was_complete = is_complete(&self.shares);
        let target = if self.rounds.is_empty() { None } else { self.rounds.target(flow) };
        let delivered_before = self.connections.get(flow as usize).map_or(0, |c| c.receiver.delivered());
        let (receiver, (profile, net)) = self.receiver(flow);
        receiver.on_segment(&packet, profile, net);
        let has_ended = was_open && !self.is_receiver_open(flow);
        if has_ended {
            let FlowPlan { src, dst, .. } = self.plans[flow as usize];
            self.observe(dst, &Observation::FlowEnded(FlowId(flow)));
            self.observe(src, &Observation::FlowEnded(FlowId(flow)));
        }
        let completes = match (was_complete, target) {
            (Some(was_complete), _) => !was_complete && is_complete(&self.shares) == Some(true),
            (None, Some((target, _))) => {
                let delivered = self.connections.get(flow as usize).map_or(0, |c| c.receiver.delivered());
                (delivered_before + 1..=delivered).contains(&target)
            }
            (None, None) => has_ended,
        };
        if completes && self.distributions.is_on() {
            self.note_completion(flow);
        }
        if completes && !self.rounds.is_empty() {
            let first = flow - self.plans[flow as usize].subflow(&self.scenario.flows);
            self.rounds.complete(first, self.net.now, &mut self.net.events);
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
        let Message { from, to, key, .. } = message;
        let way =
            |from, to, routes: &mut Routes<'_>, net: &mut Net| routes.way(from, to, key, &mut net.routes);
        let there = way(from, to, &mut self.routes, &mut self.net);
        let back = way(to, from, &mut self.routes, &mut self.net);
        let (Some(there), Some(back)) = (there, back) else {
            panic!("no way between nodes {} and {} of an exchange", from.0, to.0)
        };
        let i = flow as usize;
        self.net.starts[i] = [there.first, back.first];
        if !self.roles.is_empty() {
            self.move_flow(flow, to);
        }
        self.plans[i].dst = to;
        self.profile_of[i] = message.profile;
        // What came too late for the message before.
        self.net.slab.take_drops(flow);
        if !self.roles.is_empty() {
            self.note_replaced(flow);
            self.tune(flow);
        }
        let profile = &self.profiles[self.profile_of[i] as usize];
        let new = || {
            let mut sender = Sender::new(flow, there.tail | TAIL, Some(message.bytes), &profile.settings);
            let mut receiver = Receiver::new(flow, back.tail | TAIL, profile);
            sender.set_generation(message.generation);
            receiver.set_generation(message.generation);
            Connection { sender, receiver }
        };
        if self.connections.get(i).is_some() {
            self.connections.replace(i, new);
        } else {
            self.connections.get_or_insert_with(i, new);
        }
        if !self.roles.is_empty() {
            let stats = self.flow_stats(flow, FlowEnd::Sender);
            self.observe(from, &Observation::FlowStarted(stats));
        }
        let (sender, (profile, net)) = self.sender(flow);
        sender.open(profile, net);
    }

    /// A flow of an exchange ends at another host from now on.
    fn move_flow(&mut self, flow: u32, to: NodeId) {
        let before = &mut self.flows_of[self.plans[flow as usize].dst.index()];
        if let Ok(at) = before.binary_search(&flow) {
            before.remove(at);
        }
        let now = &mut self.flows_of[to.index()];
        if let Err(at) = now.binary_search(&flow) {
            now.insert(at, flow);
        }
    }

    /// Keeps what the connection of a flow has sent, for its node's statistics, before another takes its place.
    fn note_replaced(&mut self, flow: u32) {
        if let Some(connection) = self.connections.get(flow as usize) {
            let before = &mut self.segments_before[self.plans[flow as usize].src.index()];
            before.sent += u64::from(connection.sender.counters.segments);
            before.resent += u64::from(connection.sender.counters.retransmits);
        }
    }

    /// The last byte of a connection has come.
    fn note_completion(&mut self, flow: u32) {
        let plan = &self.plans[flow as usize];
        let groups = &self.scenario.flows;
        let subflows = plan.group(groups).multipath.map_or(1, |multipath| multipath.subflows);
        let first = flow - plan.subflow(groups);
        let (mut packets, mut dropped) = (0, 0);
        for flow in first..first + subflows {
            // Beside its segments each has sent a SYN.
            packets += 1 + self.connections.get(flow as usize).map_or(0, |c| c.sender.counters.segments);
            dropped += self.net.slab.take_drops(flow);
        }
        let i = first as usize;
        let begun = self.exchanges.begun(first).or(self.rounds.begun(first)).unwrap_or(self.plans[i].start);
        let is_tuned = self.tuned.iter().any(|(.., profile)| *profile == self.profile_of[i]);
        self.distributions.note_completion(packets, dropped, self.net.now.since(begun), is_tuned);
    }

    /// Gives a multipath connection's subflows data as the scheduler says, after something has come to one of them.
    fn push_data(&mut self, flow: u32, is_syn: bool) {
        let Some(share) = self.shares[flow as usize].clone() else { return };
        let plan = &self.plans[flow as usize];
        let number = plan.subflow(&self.scenario.flows);
        let count = plan.group(&self.scenario.flows).multipath.map_or(1, |multipath| multipath.subflows);
        let first = flow - number;
        // RFC 8684 section 3.2: subflows are added when the first is established.
        if is_syn && number == 0 {
            for flow in first + 1..first + count {
                let (sender, (profile, net)) = self.sender(flow);
                sender.open_once(profile, net);
            }
        }
        if share.take_close() {
            for flow in first..first + count {
                let (sender, (profile, net)) = self.sender(flow);
                sender.close(profile, net);
            }
            return;
        }
        let mut open = Vec::new();
        loop {
            open.clear();
            for number in 0..count {
                let (sender, (profile, net)) = self.sender(first + number);
                if sender.has_room(profile, net) {
                    open.push((number as usize, sender.rtt.srtt()));
                }
            }
            share.order(&mut open);
            let shares = &self.shares;
            let taken = open.iter().find_map(|&(number, _)| {
                let share = shares[first as usize + number].as_ref()?;
                Some((number, share.take_data()?))
            });
            let Some((number, len)) = taken else { break };
            let (sender, (profile, net)) = self.sender(first + number as u32);
            sender.push_data(len, profile, net);
        }
    }

    // ------------------------------------------------------------------------------------------------ traffic

    fn start(&mut self, flow: u32) {
        if let Some((target, is_last)) = self.rounds.target(flow)
            && self.connections.get(flow as usize).is_some()
        {
            self.rounds.open(flow, 0, self.net.now);
            self.give(flow, target, !is_last);
            return;
        }
        if let Some(times) = &self.plans[flow as usize].group(&self.scenario.flows).on_off {
            self.toggles.start(flow as usize);
            let (_, length) = self.toggles.draw(flow as usize, times);
            self.net.schedule(self.net.now + length, Event::Toggle(flow));
        }
        if flow as usize >= self.connections.flows() {
            self.set_udp(flow as usize - self.connections.flows(), true);
            return;
        }
        if self.exchanges.contains(flow) {
            for flow in self.exchanges.enter(flow) {
                self.send_message(flow);
            }
            return;
        }
        let groups = &self.scenario.flows;
        let first = flow as usize;
        let (group, profile) =
            (self.plans[first].group(groups), &self.profiles[self.profile_of[first] as usize]);
        let mut earlier = None;
        if let Some(multipath) = group.multipath {
            let Transport::Tcp { size, settings } = &group.transport else { return };
            let size = size.map(Bytes::get);
            let shares = Share::connection(multipath, size, profile.mss, settings.receive_buffer.get());
            for (number, share) in shares.into_iter().enumerate() {
                let before = self.shares[first + number].replace(share);
                earlier = earlier.or(before.map(|share| share.received()));
            }
        }
        if self.rounds.contains(flow) {
            let subflows = group.multipath.map_or(1, |multipath| multipath.subflows);
            for i in first..first + subflows as usize {
                let routes = (self.data_routes[i], self.ack_routes[i]);
                let share = self.shares.get(i).and_then(Option::as_ref);
                let new = || Connection::new(i as u32, routes, group, profile, share, None);
                let delivered = self.connections.replace(i, new);
                if i == first {
                    self.rounds.open(flow, earlier.unwrap_or(delivered), self.net.now);
                }
            }
        }
        if !self.roles.is_empty() {
            self.tune(flow);
            let src = self.plans[flow as usize].src;
            let stats = self.flow_stats(flow, FlowEnd::Sender);
            self.observe(src, &Observation::FlowStarted(stats));
        }
        let keeps_open = matches!(self.rounds.target(flow), Some((_, false)));
        if keeps_open && let Some(size) = transfer_size(group) {
            self.give(flow, size, true);
        }
        let (sender, (profile, net)) = self.sender(flow);
        sender.open(profile, net);
    }

    /// A persistent connection gets the data of the next round.
    fn give(&mut self, flow: u32, total: u64, keeps_open: bool) {
        if let Some(share) = self.shares.get(flow as usize).and_then(Option::as_ref) {
            share.give(total, keeps_open);
            self.push_data(flow, false);
        } else {
            let (sender, (profile, net)) = self.sender(flow);
            sender.give(total, keeps_open, profile, net);
        }
    }

    fn stop(&mut self, flow: u32) {
        self.toggles.stop(flow as usize);
        if flow as usize >= self.connections.flows() {
            self.set_udp(flow as usize - self.connections.flows(), false);
        } else if self.plans[flow as usize].group(&self.scenario.flows).reset {
            let group = self.plans[flow as usize].group(&self.scenario.flows);
            for flow in flow..flow + group.multipath.map_or(1, |multipath| multipath.subflows) {
                let (sender, (profile, net)) = self.sender(flow);
                sender.reset(profile, net);
            }
        } else if let Some(share) = self.shares.get(flow as usize).and_then(Option::as_ref) {
            share.end();
            self.push_data(flow, false);
        } else {
            let (sender, (profile, net)) = self.sender(flow);
            sender.close(profile, net);
        }
    }

    fn toggle(&mut self, flow: u32) {
        let Some(times) = &self.plans[flow as usize].group(&self.scenario.flows).on_off else { return };
        if !self.toggles.turn(flow as usize) {
            return;
        }
        let (on, length) = self.toggles.draw(flow as usize, times);
        self.net.schedule(self.net.now + length, Event::Toggle(flow));
        if flow as usize >= self.connections.flows() {
            self.set_udp(flow as usize - self.connections.flows(), on);
        } else {
            let (sender, (profile, net)) = self.sender(flow);
            sender.set_paused(!on, profile, net);
        }
    }

    fn set_udp(&mut self, index: usize, on: bool) {
        let source = &mut self.udp[index];
        if source.on == on {
            return;
        }
        let overhead = self.scenario.topology.frame_overhead.get() as f64;
        let wire = source.rate as f64 * (1.0 + overhead / f64::from(source.packet));
        let mut hop = source.route as usize;
        while self.net.routes[hop] != crate::net::ROUTE_END {
            self.inelastic[self.net.routes[hop] as usize] += if on { wire } else { -wire };
            hop += 1;
        }
        source.on = on;
        let (flow, route) = (source.flow as usize, source.route);
        if on {
            source.restart(self.net.now);
            self.net.events.push(source.next, Event::Datagram(index as u32));
        }
        if let Some(port) = self.measured_port
            && !self.plans[flow].group(&self.scenario.flows).measured
            && route_ports(&self.net.routes, route).contains(&port)
        {
            self.beside += if on { wire } else { -wire };
            self.note_room();
        }
        if let Some(tracking) = self.gauge_meter.tracking()
            && !self.plans[flow].group(&self.scenario.flows).measured
            && route_ports(&self.net.routes, route).contains(&tracking.port.0)
        {
            self.background += if on { wire } else { -wire };
            self.note_free();
        }
    }

    /// Tells what background traffic leaves of the measured port.
    fn note_room(&mut self) {
        if let Some(port) = self.measured_port {
            let rate = self.rates[port as usize].bits_per_sec() as f64;
            self.meter.set_room(self.net.now, (rate - self.beside).max(0.0));
        }
    }

    /// Tells what background traffic leaves of the tracked port.
    fn note_free(&mut self) {
        if let Some(tracking) = self.gauge_meter.tracking() {
            let rate = self.rates[tracking.port.index()].bits_per_sec() as f64;
            self.gauge_meter.set_free(self.net.now, (rate - self.background).max(0.0));
        }
    }

    fn datagram(&mut self, index: u32) {
        let source = &mut self.udp[index as usize];
        // A stale event of an earlier on time comes at another time than the source expects.
        if !source.on || source.next != self.net.now {
            return;
        }
        source.advance();
        let overhead = self.scenario.topology.frame_overhead.get() as u32;
        let packet = Packet {
            hop: source.route,
            flow: source.flow,
            len: source.packet + overhead,
            payload: (source.packet - UDP_HEADERS) as u16,
            tos: source.tos,
            ..Packet::default()
        };
        self.net.events.push(source.next, Event::Datagram(index));
        self.net.send(packet);
    }

    // ------------------------------------------------------------------------------------------------ schemes

    fn flow_stats(&self, flow: u32, end: FlowEnd) -> FlowStats {
        let profile = &self.profiles[self.profile_of[flow as usize] as usize];
        let (delivered, (rtt, range)) = match (self.connections.get(flow as usize), end) {
            (None, _) => Default::default(),
            (Some(c), FlowEnd::Sender) => (c.sender.acknowledged(), (c.sender.rtt, c.sender.rtt_range())),
            (Some(c), FlowEnd::Receiver) => (c.receiver.delivered(), c.receiver.rtt()),
        };
        FlowStats {
            flow: FlowId(flow),
            end,
            delivered: Bytes::new(delivered),
            srtt: rtt.srtt(),
            min_rtt: range.min(),
            last_rtt: range.last(),
            mss: Bytes::new(profile.mss),
            frame: Bytes::new(profile.mss + u64::from(profile.overhead)),
        }
    }

    /// Flows that end at `node` and are open.
    fn flows_at(&self, node: NodeId) -> Vec<FlowStats> {
        let at = |i: usize| {
            let plan = &self.plans[i];
            let connection = self.connections.get(i)?;
            if plan.dst == node && connection.receiver.is_open() {
                Some(self.flow_stats(i as u32, FlowEnd::Receiver))
            } else if plan.src == node && connection.sender.is_open() {
                Some(self.flow_stats(i as u32, FlowEnd::Sender))
            } else {
                None
            }
        };
        self.flows_of[node.index()].iter().filter_map(|flow| at(*flow as usize)).collect()
    }

    /// What the TCP flows that `node` sends have sent so far.
    fn segments_of(&self, node: NodeId) -> SegmentCounts {
        let mut counts = self.segments_before[node.index()];
        for &flow in &self.flows_of[node.index()] {
            if let Some(connection) = self.connections.get(flow as usize)
                && self.plans[flow as usize].src == node
            {
                counts.sent += u64::from(connection.sender.counters.segments);
                counts.resent += u64::from(connection.sender.counters.retransmits);
            }
        }
        counts
    }

    /// A flow that begins takes the settings that its sender's node has now.
    fn tune(&mut self, flow: u32) {
        let i = flow as usize;
        let tuning = self.tunings[self.plans[i].src.index()];
        if tuning.is_default() || self.connections.get(i).is_some() && !self.exchanges.contains(flow) {
            return;
        }
        let base = self.profile_of[i];
        let known = self.tuned.iter().find(|(of, with, _)| *of == base && *with == tuning);
        self.profile_of[i] = match known {
            Some((_, _, profile)) => *profile,
            None => {
                let profile = self.profiles.len() as u32;
                self.profiles.push(self.profiles[base as usize].tuned(&tuning));
                self.tuned.push((base, tuning, profile));
                profile
            }
        };
    }

    fn ports_at(&mut self, node: NodeId) -> Vec<PortStats> {
        let mut stats = Vec::new();
        for (i, owner) in self.port_owner.iter().enumerate() {
            if *owner != node {
                continue;
            }
            let port = &mut self.net.ports[i];
            let counts = port.extras.as_mut().and_then(|e| e.flow_counter.as_mut()).map(FlowCounter::take);
            let (flows_seen, flows_open) = counts.unwrap_or_default();
            let backlog = Bytes::new(port.backlog(self.net.now).bytes);
            let (sent, offered) = (Bytes::new(port.carried()), port.offered());
            let dropped = port.counters().dropped;
            stats.push(PortStats {
                port: PortId(i as u32),
                capacity: self.rates[i],
                flows_seen,
                flows_open,
                backlog,
                sent,
                offered,
                dropped,
            });
        }
        stats
    }

    fn wake(&mut self, index: usize) {
        let entry = &mut self.roles.running[index];
        if entry.wake_at != Some(self.net.now) {
            return;
        }
        entry.wake_at = None;
        let node = entry.role.node;
        let wants_ports = entry.role.wants_ports;
        let ports = if wants_ports { self.ports_at(node) } else { Vec::new() };
        let flows = if wants_ports { Vec::new() } else { self.flows_at(node) };
        if !wants_ports {
            let counts = self.segments_of(node);
            let Roles { running, outbox, .. } = &mut self.roles;
            running[index].role.controller.on(self.net.now, &Observation::Sent(counts), outbox);
        }
        self.call(index, &Observation::Tick { ports: &ports, flows: &flows });
    }

    fn deliver_message(&mut self, number: u32) {
        if let Some((to, message)) = self.roles.post.receive(number) {
            self.observe(to, &Observation::Message(&message));
        }
    }

    fn probe_left(&mut self, key: u32) {
        let passed = self.net.slab.at(key).left_before();
        if let Some(probe) = self.roles.probe(key) {
            let (from, to, payload) = (probe.from, probe.to, probe.payload.clone());
            let first = self.probe_ports(from, to).first().map(|port| PathPoint::Start(*port));
            let passed = first.map_or(passed, |first| self.roles.faults.since_restart(first, passed));
            self.observe(from, &Observation::ProbeLeft { payload: &payload, passed });
        }
    }

    #[cold]
    fn deliver_probe(&mut self, key: u32) {
        let passed = self.net.slab.at(key).came_before();
        if let Some(Probe { from, to, payload, lost: false }) = self.roles.take_probe(key) {
            let last = self.probe_ports(from, to).last().map(|port| PathPoint::End(*port));
            let passed = last.map_or(passed, |last| self.roles.faults.since_restart(last, passed));
            self.observe(to, &Observation::ProbeCame { from, payload: &payload, passed });
        }
    }

    /// Ports on the way of probes between two nodes.
    fn probe_ports(&self, from: NodeId, to: NodeId) -> &[u32] {
        let route = self.roles.probe_route(from, to);
        route.map_or(&[], |route| route_ports(&self.net.routes, route))
    }

    /// The roles at a node begin anew, and so do the counters of its data path.
    fn restart(&mut self, number: usize) {
        let node = self.scenario.faults.restarts[number].node;
        let mut points = Vec::new();
        for ((from, to), route) in self.roles.probe_routes() {
            let ports = route_ports(&self.net.routes, route);
            points.extend(ports.first().filter(|_| from == node).map(|port| PathPoint::Start(*port)));
            points.extend(ports.last().filter(|_| to == node).map(|port| PathPoint::End(*port)));
        }
        for point in points {
            let (PathPoint::Start(port) | PathPoint::End(port)) = point;
            let counter = self.net.ports[port as usize].extras.as_ref().and_then(|e| e.path.as_ref());
            let (left, arriving) = counter.map_or_else(Default::default, PathCounter::counts);
            let passed = if matches!(point, PathPoint::Start(_)) { left } else { arriving };
            self.roles.faults.set_zero(point, passed);
        }
        let tcp = self.connections.flows();
        let topology = &self.scenario.topology;
        let fresh = crate::build::roles(
            self.scenario,
            topology,
            &self.rates,
            &self.net.routes,
            &self.data_routes[..tcp],
        );
        self.roles.restart(node, fresh);
        for index in 0..self.roles.running.len() {
            if self.roles.running[index].role.node == node {
                self.note_gauges(index);
                self.roles.plan_wakeup(index, self.net.now, &mut self.net.events);
            }
        }
    }

    fn note_gauges(&mut self, index: usize) {
        let gauges = &mut self.roles.gauges;
        gauges.clear();
        self.roles.running[index].role.controller.gauges(gauges);
        if !gauges.values().is_empty() {
            self.gauge_meter.note(self.scenario, index, self.net.now, gauges);
        }
    }

    /// Tells every role at `node`.
    fn observe(&mut self, node: NodeId, observation: &Observation<'_>) {
        let mut place = 0;
        while let Some(index) = self.roles.at(node, place) {
            self.call(index, observation);
            place += 1;
        }
    }

    fn call(&mut self, index: usize, observation: &Observation<'_>) {
        let now = self.net.now;
        let mut outbox = std::mem::take(&mut self.roles.outbox);
        let role = &mut self.roles.running[index].role;
        let node = role.node;
        role.controller.on(now, observation, &mut outbox);
        for action in outbox.drain() {
            self.apply(node, action);
        }
        self.roles.outbox = outbox;
        self.note_gauges(index);
        self.roles.plan_wakeup(index, now, &mut self.net.events);
    }

    fn apply(&mut self, node: NodeId, action: Action) {
        match action {
            Action::Send { to, message, .. } => {
                self.roles.send(node, to, message, self.net.now, &mut self.net.events);
            }
            Action::Probe { to, payload, .. } => {
                let overhead = self.scenario.topology.frame_overhead.get() as u32;
                let probe = Probe { from: node, to, payload, lost: false };
                self.roles.send_probe(probe, overhead, &mut self.net);
            }
            Action::SetClass { port, class, rate, ceil, .. } => {
                let class = class.map_or(ClassName::Root, ClassName::Number);
                let change = ClassChange { class, rate, ceil };
                let net = &mut self.net;
                let known = net.ports[port.index()].set_class(port.0, net.now, &change, &mut net.events);
                assert!(known, "port {} refuses {change:?}", port.0);
            }
            Action::Tune { tuning, .. } => self.tunings[node.index()] = tuning,
            Action::SetWindow { flow, window, .. } => {
                if self.plans[flow.index()].dst == node {
                    self.receiver(flow.0).0.set_cap(window);
                } else {
                    let (sender, (profile, net)) = self.sender(flow.0);
                    sender.set_cap(window, profile, net);
                }
            }
            Action::SetRate { flow, rate, window, .. } => {
                if self.plans[flow.index()].dst == node {
                    let (receiver, (profile, net)) = self.receiver(flow.0);
                    receiver.set_credit(rate, window, profile, net);
                } else {
                    let (sender, (profile, net)) = self.sender(flow.0);
                    sender.set_rate(rate, window, profile, net);
                }
            }
        }
    }

    // ------------------------------------------------------------------------------------------------ results

    fn sample(&mut self) {
        let now = self.net.now;
        let waited = self.measured_port.map_or(0, |port| self.net.ports[port as usize].take_waited(now));
        let queue_name = self.measured_port.map(|port| self.scenario.topology.port_name(PortId(port)));
        let capacities: Vec<f64> = self
            .rates
            .iter()
            .zip(&self.inelastic)
            .map(|(rate, load)| (rate.bits_per_sec() as f64 - load).max(0.0))
            .collect();
        let (profiles, profile_of) = (&self.profiles, &self.profile_of);
        let efficiency = |i: usize| {
            let Some(&profile) = profile_of.get(i) else { return 1.0 };
            let profile = &profiles[profile as usize];
            profile.mss as f64 / (profile.mss + u64::from(profile.overhead)) as f64
        };
        let (connections, udp, received) = (&self.connections, &self.udp, &self.datagrams_received);
        let (routes, data_routes, came) = (&self.net.routes, &self.data_routes, &self.came);
        let (rounds, exchanges, shares) = (&self.rounds, &self.exchanges, &self.shares);
        // The data of a multipath connection counts at its first subflow.
        let delivered = |i: usize, c: &Connection| match shares.get(i) {
            Some(Some(share)) => share.received(),
            _ => c.receiver.delivered(),
        };
        let state = |i: usize| {
            if i >= connections.flows() {
                let i = i - connections.flows();
                let delivered = received[i] * u64::from(udp[i].packet - UDP_HEADERS);
                let ip_bytes = received[i] as f64 * f64::from(udp[i].packet);
                return FlowSample { delivered, ip_bytes, ..FlowSample::default() };
            }
            match connections.get(i) {
                Some(c) => FlowSample {
                    delivered: delivered(i, c) + rounds.carried(i as u32) + exchanges.carried(i as u32),
                    ip_bytes: came.get(i).copied().unwrap_or_default() as f64,
                    cwnd: Some(c.sender.cwnd()),
                    srtt: c.sender.rtt.srtt(),
                },
                None => {
                    let profile = &profiles[profile_of[i] as usize];
                    let cwnd = Some(u64::from(profile.settings.initial_window) * profile.mss);
                    FlowSample { cwnd, ..FlowSample::default() }
                }
            }
        };
        let flows = Flows {
            groups: &self.scenario.flows,
            plans: &self.plans,
            route: &|i| route_ports(routes, data_routes[i]),
            efficiency: &efficiency,
            state: &state,
        };
        self.meter.take(now, waited, queue_name.as_deref(), &capacities, &flows);
        self.gauge_meter.sample();
        self.distributions.sample(self.scenario.run.sample, &self.net.ports, &self.rates);
        self.net.schedule(now + self.scenario.run.sample, Event::Sample);
    }

    fn flush_capture(&mut self, options: &mut RunOptions<'_>) {
        let Some(port) = self.captured_port else { return };
        let Some(capture) = self.net.ports[port as usize].extras.as_mut().and_then(|e| e.capture.as_mut())
        else {
            return;
        };
        let packets = std::mem::take(capture);
        let Some((_, on_packet)) = &mut options.capture else { return };
        for (at, packet) in packets {
            on_packet(&self.describe(port, at, &packet));
        }
    }

    fn describe(&self, port: u32, at: Time, packet: &Packet) -> CapturedPacket {
        let plan = &self.plans[packet.flow as usize];
        let profile = self.profile_of.get(packet.flow as usize).map(|&p| &self.profiles[p as usize]);
        crate::capture::describe(port, at, packet, plan, profile)
    }

    /// Every packet has one fate.
    fn check_conservation(&self) {
        let (mut alive, mut ended) = (0, 0);
        for port in &self.net.ports {
            let PortCounters { dropped, delivered, lost } = port.counters();
            alive += port.in_transit() + port.held();
            ended += dropped + delivered + lost;
        }
        assert_eq!(self.net.offered, ended + alive, "packets offered to ports, and their fates");
        alive += self.gates.held();
        assert_eq!(alive, self.net.slab.live() as u64, "packets alive outside every port");
    }

    fn record(self, case: usize, trial: u32) -> RunRecord {
        let duration = self.scenario.run.duration.as_secs_f64();
        let (mut figures, mut series) = self.meter.finish();
        let (of_gauges, shown) = self.gauge_meter.finish(self.net.now);
        series.extend(shown);
        let max = self.measured_port.and_then(|port| self.net.ports[port as usize].extras.as_ref());
        let queue_max = max.and_then(|e| e.watch).map_or(f64::NAN, |w| f64::from(w.max));
        let connections = || self.connections.started.iter();
        let sum = |f: &dyn Fn(&Sender) -> u32| connections().map(|c| f64::from(f(&c.sender))).sum::<f64>();
        figures.push(("queue_max".to_owned(), queue_max));
        let drops: u64 = self.net.ports.iter().map(|p| p.counters().dropped).sum();
        let marks: u64 = self.net.ports.iter().map(Port::marked).sum();
        figures.push(("drops".to_owned(), drops as f64));
        figures.push(("marks".to_owned(), marks as f64));
        let has_rounds = !self.rounds.is_empty() || !self.exchanges.is_empty();
        let replaced = has_rounds.then_some(self.connections.replaced).into_iter();
        let timeouts = replaced.clone().map(|counters| f64::from(counters.timeouts));
        let retransmits = replaced.map(|counters| f64::from(counters.retransmits));
        figures.push(("rtos".to_owned(), timeouts.fold(sum(&|s| s.counters.timeouts), |a, b| a + b)));
        figures.push((
            "retransmits".to_owned(),
            retransmits.fold(sum(&|s| s.counters.retransmits), |a, b| a + b),
        ));
        let is_sized = |i: usize| {
            let group = self.plans[i].group(&self.scenario.flows);
            matches!(group.transport, Transport::Tcp { size: Some(_), .. })
                && group.rounds.is_none()
                && group.exchange.is_none()
        };
        let mut completion: Vec<Span> = (0..self.connections.flows())
            .filter(|&i| is_sized(i))
            .filter_map(|i| {
                let finished = match self.shares.get(i) {
                    Some(Some(_)) if self.plans[i].subflow(&self.scenario.flows) > 0 => None,
                    Some(Some(share)) => share.finished_at(),
                    _ => self.connections.get(i)?.receiver.finished_at(),
                }?;
                Some(finished.since(self.plans[i].start))
            })
            .collect();
        completion.extend(self.rounds.completions.iter().chain(&self.exchanges.completions));
        completion.sort_unstable();
        let n = completion.len();
        figures.push(("completed".to_owned(), n as f64));
        let completion: Vec<f64> = completion.iter().map(|span| span.as_secs_f64()).collect();
        figures.push(("fct_mean".to_owned(), completion.iter().sum::<f64>() / n as f64));
        for (name, percent) in [("fct_p99", 99), ("fct_p50", 50), ("fct_p80", 80), ("fct_max", 100)] {
            figures.push((name.to_owned(), percentile(&completion, percent)));
        }
        let (distributions, of_distributions) = self.distributions.finish(&completion, &self.net.windows);
        figures.extend(of_distributions.into_iter().map(|(name, value)| (name.to_owned(), value)));
        for (name, value) in ROUND_FIGURES.into_iter().zip(self.rounds.figures(self.exchanges.rounds())) {
            figures.push((name.to_owned(), value));
        }
        figures.push(("control_rate".to_owned(), self.roles.bytes_sent() as f64 * 8.0 / 1e3 / duration));
        figures.extend(of_gauges);
        let packet_hops = self.net.ports.iter().map(Port::sent).sum();
        RunRecord {
            case,
            trial,
            figures,
            series,
            distributions,
            sample: self.scenario.run.sample,
            work: Work { events: self.net.events.taken(), packet_hops },
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

    /// A plain connection pays nothing for multipath TCP, incast or window programs, and a port and a packet stay in their
    /// cache lines.
    #[test]
    fn sizes_stay() {
        assert_eq!(size_of::<Connection>(), 264);
        assert_eq!((size_of::<Port>(), size_of::<Packet>(), size_of::<FlowPlan>()), (128, 80, 40));
    }
}
