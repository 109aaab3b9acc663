//! The simulated network as the host of every role.

use bandmaster_core::control::{
    FlowEnd, FlowStart, FlowStats, Gauges, Message, Observation, Passed, PortStats, SegmentCounts,
};
use bandmaster_core::id::{FlowId, NodeId, PortId};
use bandmaster_core::port::flow_counter::Reader;
use bandmaster_core::qdisc::{ClassChange, ClassName};
use bandmaster_core::runtime::faults::PathEnd;
use bandmaster_core::runtime::inventory::Change;
use bandmaster_core::runtime::post::Post;
use bandmaster_core::runtime::{Host, Refusal, Runner};
use bandmaster_core::scenario::NodeFault;
use bandmaster_core::scheme::Act;
use bandmaster_core::time::Time;
use bandmaster_core::topology::NodeKind;
use bandmaster_core::tuning::Tuning;
use bandmaster_core::units::{Bytes, Rate};

use super::Simulation;
use super::part::Notice;
use crate::events::Event;
use crate::gates::Gates;
use crate::probes::{Probe, Probes};
use crate::routes::route_ports;
use crate::tcp::receiver::Receiver;
use crate::workload::flow_key;

/// The roles of schemes, what they say to each other, and what they have changed.
pub(crate) struct Control {
    pub(crate) runner: Runner,
    /// Messages between roles on their way.
    pub(crate) post: Post,
    pub(crate) probes: Probes,
    pub(crate) gates: Gates,
    /// By node: what schemes have changed in its TCP, for flows that begin.
    pub(crate) tunings: Vec<Tuning>,
    /// TCP flows that begin or end at each node, in order; empty when there are no roles.
    pub(crate) flows_of: Vec<Vec<u32>>,
    /// By node: what connections have sent that gave their flow number to another, where roles ask.
    pub(crate) segments_before: Vec<SegmentCounts>,
    /// By port: its transmitter's node, and its rate.
    pub(crate) ports: Vec<(NodeId, Rate)>,
}

impl Simulation<'_> {
    pub(super) fn stats_of(&self, flow: u32, end: FlowEnd) -> FlowStats {
        let profile = self.flows.profile(flow as usize);
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

    /// The part of `node` in a TCP flow that exists.
    fn end_of(&self, flow: FlowId, node: NodeId) -> Result<FlowEnd, Refusal> {
        match self.flows.plans.get(flow.index()).filter(|_| flow.index() < self.connections.flows()) {
            Some(plan) if plan.dst == node => Ok(FlowEnd::Receiver),
            Some(plan) if plan.src == node => Ok(FlowEnd::Sender),
            _ => Err(Refusal::Unknown),
        }
    }

    /// Tells the roles at `node`, its `end`, of a flow that begins.
    pub(super) fn announce(&mut self, flow: u32, node: NodeId, end: FlowEnd) {
        if self.control.runner.is_empty() {
            return;
        }
        let ports = route_ports(&self.net.routes, self.flows.data_routes[flow as usize]);
        let route: Vec<PortId> = ports.iter().map(|port| PortId(*port)).collect();
        let start = FlowStart { stats: self.stats_of(flow, end), key: flow_key(flow), route: &route };
        self.observe(node, &Observation::FlowStarted(start));
    }

    /// A flow that begins takes the settings that its sender's node has now.
    pub(super) fn tune(&mut self, flow: u32) {
        let i = flow as usize;
        let is_kept = self.exchanges.is_persistent(flow);
        let begins_anew = self.exchanges.contains(flow) && !is_kept || self.rounds.contains(flow);
        if self.connections.get(i).is_some() && !begins_anew {
            return;
        }
        let tuning = self.control.tunings[self.flows.plans[i].src.index()];
        self.set_tuning(i, tuning);
    }

    /// Changes the settings that open connections of an exchange at `node` adopt. Linux rereads a route's least timeout and
    /// initial window, which is also the window after idle time. A variant is not replaced: it has a state of its own.
    fn tune_open(&mut self, node: NodeId) {
        let Tuning { initial_window, min_rto, idle_restart, window_cap, .. } =
            self.control.tunings[node.index()];
        for at in 0..self.control.flows_of[node.index()].len() {
            let flow = self.control.flows_of[node.index()][at];
            let i = flow as usize;
            if self.flows.plans[i].src == node
                && self.exchanges.is_persistent(flow)
                && self.connections.get(i).is_some()
            {
                let has = self.flows.tuned.iter().find(|(.., profile)| *profile == self.flows.profile_of[i]);
                let began_with = has.map_or_else(Tuning::default, |(_, tuning, _)| *tuning);
                let open = Tuning { initial_window, min_rto, idle_restart, window_cap, ..began_with };
                self.set_tuning(i, open);
            }
        }
    }

    /// Lets a flow have other settings than its group. Of a flow between two parts of a network the receiver's hears of it.
    fn set_tuning(&mut self, i: usize, tuning: Tuning) {
        self.tell_of_tuning(i as u32, tuning);
        self.adopt_tuning(i, tuning);
    }

    pub(super) fn adopt_tuning(&mut self, i: usize, tuning: Tuning) {
        // A connection before it may have had others.
        let last = self.flows.profile_of[i];
        let base =
            self.flows.tuned.iter().find(|(.., profile)| *profile == last).map_or(last, |(base, ..)| *base);
        if tuning.is_default() {
            self.flows.profile_of[i] = base;
            return;
        }
        let known = self.flows.tuned.iter().find(|(of, with, _)| *of == base && *with == tuning);
        self.flows.profile_of[i] = match known {
            Some((_, _, profile)) => *profile,
            None => {
                let profile = self.flows.profiles.len() as u32;
                self.flows.profiles.push(self.flows.profiles[base as usize].tuned(&tuning));
                self.flows.tuned.push((base, tuning, profile));
                profile
            }
        };
    }

    /// Lets the runner work on the network that it is part of.
    fn run_roles(&mut self, work: impl FnOnce(&mut Runner, &mut Self)) {
        let mut runner = std::mem::take(&mut self.control.runner);
        work(&mut runner, self);
        self.control.runner = runner;
    }

    pub(super) fn begin_roles(&mut self) {
        self.run_roles(|runner, host| runner.begin(host, Time::ZERO));
    }

    pub(super) fn wake(&mut self, role: usize) {
        let now = self.net.now;
        self.run_roles(|runner, host| runner.wake(host, role, now, now));
    }

    /// Tells every role at `node`.
    pub(super) fn observe(&mut self, node: NodeId, observation: &Observation<'_>) {
        if !self.has_node(node) {
            return;
        }
        let now = self.net.now;
        self.run_roles(|runner, host| runner.observe(host, now, node, observation));
    }

    pub(super) fn deliver_message(&mut self, number: u32) {
        if let Some((to, message)) = self.control.post.receive(number) {
            self.observe(to, &Observation::Message(&message));
        }
    }

    pub(super) fn probe_left(&mut self, key: u32) {
        if let Some(at) = self.net.untold.iter().position(|untold| *untold == key) {
            self.net.untold.swap_remove(at);
            self.net.slab.remove(key);
            return;
        }
        let passed = self.net.slab.at(key).left_before();
        if let Some(Probe { from, to, payload, .. }) = self.control.probes.get(key) {
            let (from, to, payload) = (*from, *to, payload.clone());
            let passed = self.since_restart(from, to, PathEnd::First, passed);
            self.observe(from, &Observation::ProbeLeft { payload: &payload, passed });
        }
    }

    #[cold]
    pub(super) fn deliver_probe(&mut self, key: u32) {
        let passed = self.net.slab.at(key).came_before();
        if let Some(Probe { from, to, payload, lost: false }) = self.control.probes.take(key) {
            let passed = self.since_restart(from, to, PathEnd::Last, passed);
            self.observe(to, &Observation::ProbeCame { from, payload: &payload, passed });
        }
    }

    fn since_restart(&self, from: NodeId, to: NodeId, end: PathEnd, passed: Passed) -> Passed {
        let probes = &self.control.probes;
        probes.faults.since_restart(probes.way(from, to, &self.net.routes), end, passed)
    }

    /// Something happens to the roles at a node.
    pub(super) fn node_fault(&mut self, number: usize) {
        let NodeFault { node, change, .. } = self.scenario.faults.nodes[number];
        let now = self.net.now;
        if change == Change::Restart {
            let ports = &self.net.ports;
            self.control.probes.restart(node, &self.net.routes, |port, end| ports[port].passed(end));
        }
        self.run_roles(|runner, host| runner.change(host, now, node, change));
        if change != Change::Leave && self.has_node(node) {
            for FlowStats { flow, end, .. } in self.flow_stats(now, node) {
                self.announce(flow.0, node, end);
            }
        }
    }
}

impl Host for Simulation<'_> {
    /// Everything.
    const ACTS: &'static [Act] = &[
        Act::SetWindow,
        Act::SetRate,
        Act::MeasureRtt,
        Act::Probe,
        Act::SetClass,
        Act::Tune,
        Act::Send,
        Act::Watch,
        Act::Rewrite,
    ];

    fn has(&self, node: NodeId) -> bool {
        self.has_node(node)
    }

    fn wake(&mut self, role: usize, at: Time) {
        self.net.events.push(at, Event::Wakeup(role as u32));
    }

    fn port_stats(&mut self, now: Time, node: NodeId, reader: &mut Reader) -> Vec<PortStats> {
        let all = (0..).zip(&self.control.ports);
        let ports = &mut self.net.ports;
        let mut stats = |(i, &(_, capacity)): (usize, &(NodeId, Rate))| {
            let id = PortId(i as u32);
            let counter = ports[i].extras.as_mut().and_then(|e| e.flow_counter.as_mut());
            let flows = counter.map(|c| c.read(id, reader));
            PortStats {
                port: id,
                capacity,
                flows,
                backlog: Some(Bytes::new(ports[i].backlog(now).bytes)),
                sent: Bytes::new(ports[i].begun_bytes(now)),
                offered: ports[i].offered(),
                dropped: ports[i].counters().dropped + ports[i].counters().faulted,
            }
        };
        all.filter(|(_, (owner, _))| *owner == node).map(&mut stats).collect()
    }

    fn flow_stats(&mut self, _now: Time, node: NodeId) -> Vec<FlowStats> {
        let at = |i: usize| {
            let plan = &self.flows.plans[i];
            let connection = self.connections.get(i)?;
            if plan.dst == node && connection.receiver.is_open() {
                Some(self.stats_of(i as u32, FlowEnd::Receiver))
            } else if plan.src == node && connection.sender.is_open() {
                Some(self.stats_of(i as u32, FlowEnd::Sender))
            } else {
                None
            }
        };
        self.control.flows_of[node.index()].iter().filter_map(|flow| at(*flow as usize)).collect()
    }

    fn passed(&mut self, from: NodeId, to: NodeId, end: PathEnd) -> Option<Passed> {
        let port = end.port(self.control.probes.way(from, to, &self.net.routes))?;
        Some(self.since_restart(from, to, end, self.net.ports[port as usize].passed(end)))
    }

    fn segments(&mut self, node: NodeId) -> SegmentCounts {
        let mut counts = self.control.segments_before[node.index()];
        for &flow in &self.control.flows_of[node.index()] {
            if let Some(connection) = self.connections.get(flow as usize)
                && self.flows.plans[flow as usize].src == node
            {
                counts.sent += u64::from(connection.sender.counters.segments);
                counts.resent += u64::from(connection.sender.counters.retransmits);
            }
        }
        counts
    }

    fn show(&mut self, role: usize, now: Time, gauges: &Gauges) {
        match &mut self.part {
            // The first part has the meters.
            Some(part) => part.shown.push((now, role, gauges.clone())),
            None => self.meters.gauges.note(self.scenario, role, now, gauges),
        }
    }

    fn send(&mut self, now: Time, to: NodeId, message: Message) -> Result<(), Refusal> {
        if let Some((delay, number)) = self.control.post.send(to, message) {
            if self.has_node(to) {
                self.net.events.push(now + delay, Event::Deliver(number));
            } else if let (Some((to, message)), Some(part)) =
                (self.control.post.receive(number), &mut self.part)
            {
                part.tell(to, Notice::Message { at: now + delay, to, message });
            }
        }
        Ok(())
    }

    fn probe(&mut self, _now: Time, from: NodeId, to: NodeId, payload: Vec<u8>) -> Result<(), Refusal> {
        let overhead = self.scenario.topology.frame_overhead.get() as u32;
        let has_way = self.control.probes.send(from, to, payload, overhead, &mut self.net);
        if has_way { Ok(()) } else { Err(Refusal::Unknown) }
    }

    fn set_window(&mut self, node: NodeId, flow: FlowId, window: Bytes) -> Result<(), Refusal> {
        if self.end_of(flow, node)? == FlowEnd::Receiver {
            self.with_receiver(flow.0, |receiver, _, _| receiver.set_cap(window));
        } else {
            self.with_sender(flow.0, |sender, profile, net| sender.set_cap(window, profile, net));
        }
        Ok(())
    }

    fn set_rate(&mut self, node: NodeId, flow: FlowId, rate: Rate, window: Bytes) -> Result<(), Refusal> {
        if self.end_of(flow, node)? == FlowEnd::Receiver {
            self.with_receiver(flow.0, |receiver, profile, net| {
                receiver.set_credit(rate, window, profile, net);
            });
        } else {
            self.with_sender(flow.0, |sender, profile, net| sender.set_rate(rate, window, profile, net));
        }
        Ok(())
    }

    fn measure_rtt(&mut self, node: NodeId, flow: FlowId) -> Result<(), Refusal> {
        if self.end_of(flow, node)? == FlowEnd::Receiver {
            self.with_receiver(flow.0, Receiver::measure_rtt);
        }
        Ok(())
    }

    fn set_class(
        &mut self,
        port: PortId,
        class: Option<usize>,
        rate: Rate,
        ceil: Rate,
    ) -> Result<(), Refusal> {
        let change = ClassChange { class: class.map_or(ClassName::Root, ClassName::Number), rate, ceil };
        let net = &mut self.net;
        let known = net
            .ports
            .get_mut(port.index())
            .is_some_and(|at| at.set_class(port.0, net.now, &change, &mut net.events));
        if known { Ok(()) } else { Err(Refusal::Unknown) }
    }

    fn tune(&mut self, node: NodeId, tuning: Tuning) -> Result<(), Refusal> {
        // A router has no TCP.
        if self.scenario.topology.nodes[node.index()].kind != NodeKind::Host {
            return Err(Refusal::Unknown);
        }
        self.control.tunings[node.index()] = tuning;
        self.tune_open(node);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use bandmaster_core::control::FlowEnd;
    use bandmaster_core::runtime::Host;
    use bandmaster_core::scenario::{Options, parse};
    use bandmaster_core::time::{Span, Time};

    use crate::RunOptions;
    use crate::build::{Wanted, build};

    /// BAS over a path of 20 ms that loses 5 % of the packets: the server only receives, and no segment carries a time.
    #[test]
    fn a_receiver_without_timestamps_measures_by_probes() {
        let text = r#"
            version = 1
            name = "probes"
            run.duration = "20s"
            tcp.timestamps = false
            [network]
            builder = "dumbbell"
            left = 2
            right = 1
            host-delay = 0.0
            access = { rate = "1gbit", delay = "1ms" }
            bottleneck = { rate = "10mbit", delay = "8ms", queue = "100pkt", loss = 0.05 }
            [[flows]]
            name = "uploads"
            from = "left"
            to = "right"
            pairing = "all-to-all"
            [schemes.bas]
            servers = "right.0"
            domain = ["r1", "r2", "right.0"]
        "#;
        let study = parse("x.toml", text, &Options::default()).unwrap_or_else(|e| panic!("{e}"));
        let scenario = &study.cases[0].scenario;
        let mut simulation =
            build(scenario, 0, &Wanted::Whole, &RunOptions::default()).unwrap_or_else(|e| panic!("{e}"));
        let end = Time::ZERO + scenario.run.duration;
        simulation.schedule_start();
        let mut samples = 0;
        let mut last = None;
        while let Some((at, event)) = simulation.net.events.pop().filter(|(at, _)| *at <= end) {
            simulation.net.now = at;
            simulation.take(event);
            let stats = simulation.stats_of(0, FlowEnd::Receiver);
            samples += u32::from(stats.last_rtt != last);
            last = stats.last_rtt;
        }
        let stats = simulation.stats_of(0, FlowEnd::Receiver);
        // Two headers of 54 bytes over 10 Mbit/s besides the way; what was asked twice gives no sample.
        let least = stats.min_rtt.map_or(0, Span::as_nanos);
        assert!((20_000_000..21_000_000).contains(&least), "{stats:?}");
        // Ten are asked for in a second; some are lost, and the answer to the next one after a loss says nothing.
        assert!((60..=200).contains(&samples), "{samples} samples");
    }

    /// Agents take the difference of two looks.
    #[test]
    fn what_a_host_has_sent_never_falls_when_rounds_use_flow_numbers_again() {
        let text = r#"
            version = 1
            name = "rounds"
            run.duration = "4s"
            [network]
            builder = "dumbbell"
            left = 2
            right = 1
            access = { rate = "1gbit", delay = "10us" }
            bottleneck = { rate = "10mbit", delay = "1ms", queue = "20pkt" }
            [[flows]]
            name = "answers"
            from = "left"
            to = "right"
            pairing = "all-to-all"
            size = "100kB"
            rounds = 9
            [schemes.opentcp]
            policies = ["example2"]
            cycle = "1s"
        "#;
        let study = parse("x.toml", text, &Options::default()).unwrap_or_else(|e| panic!("{e}"));
        let scenario = &study.cases[0].scenario;
        let mut simulation =
            build(scenario, 0, &Wanted::Whole, &RunOptions::default()).unwrap_or_else(|e| panic!("{e}"));
        let host = scenario.topology.node("left.0").expect("a host");
        let (mut before, end) = (simulation.segments(host), Time::ZERO + scenario.run.duration);
        simulation.schedule_start();
        while let Some((at, event)) = simulation.net.events.pop().filter(|(at, _)| *at <= end) {
            simulation.net.now = at;
            simulation.take(event);
            let now = simulation.segments(host);
            assert!(now.sent >= before.sent && now.resent >= before.resent, "{before:?}, then {now:?}");
            before = now;
        }
        // 69.06 segments of 1448 bytes in each of nine rounds.
        assert_eq!((before.sent - before.resent, before.resent > 0), (9 * 70, true), "{before:?}");
    }
}
