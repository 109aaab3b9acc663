//! Roles of schemes: what they see and what they do.

use bandmaster_core::control::faults::PathPoint;
use bandmaster_core::control::{Action, FlowEnd, FlowStats, Observation, PortStats, SegmentCounts};
use bandmaster_core::id::{FlowId, NodeId, PortId};
use bandmaster_core::port::flow_counter::FlowCounter;
use bandmaster_core::qdisc::{ClassChange, ClassName};
use bandmaster_core::units::Bytes;

use super::Simulation;
use crate::link::PathCounter;
use crate::roles::{Probe, Roles};
use crate::routes::route_ports;

impl Simulation<'_> {
    pub(super) fn flow_stats(&self, flow: u32, end: FlowEnd) -> FlowStats {
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
    pub(super) fn tune(&mut self, flow: u32) {
        let i = flow as usize;
        let begins_anew = self.exchanges.contains(flow) || self.rounds.contains(flow);
        if self.connections.get(i).is_some() && !begins_anew {
            return;
        }
        let tuning = self.tunings[self.plans[i].src.index()];
        // A connection before it may have had others.
        let last = self.profile_of[i];
        let base = self.tuned.iter().find(|(.., profile)| *profile == last).map_or(last, |(base, ..)| *base);
        if tuning.is_default() {
            self.profile_of[i] = base;
            return;
        }
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

    pub(super) fn wake(&mut self, index: usize) {
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

    pub(super) fn deliver_message(&mut self, number: u32) {
        if let Some((to, message)) = self.roles.post.receive(number) {
            self.observe(to, &Observation::Message(&message));
        }
    }

    pub(super) fn probe_left(&mut self, key: u32) {
        let passed = self.net.slab.at(key).left_before();
        if let Some(probe) = self.roles.probe(key) {
            let (from, to, payload) = (probe.from, probe.to, probe.payload.clone());
            let first = self.probe_ports(from, to).first().map(|port| PathPoint::Start(*port));
            let passed = first.map_or(passed, |first| self.roles.faults.since_restart(first, passed));
            self.observe(from, &Observation::ProbeLeft { payload: &payload, passed });
        }
    }

    #[cold]
    pub(super) fn deliver_probe(&mut self, key: u32) {
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
    pub(super) fn restart(&mut self, number: usize) {
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

    pub(super) fn note_gauges(&mut self, index: usize) {
        let gauges = &mut self.roles.gauges;
        gauges.clear();
        self.roles.running[index].role.controller.gauges(gauges);
        if !gauges.values().is_empty() {
            self.gauge_meter.note(self.scenario, index, self.net.now, gauges);
        }
    }

    /// Tells every role at `node`.
    pub(super) fn observe(&mut self, node: NodeId, observation: &Observation<'_>) {
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
}

#[cfg(test)]
mod tests {
    use bandmaster_core::scenario::{Options, parse};
    use bandmaster_core::time::Time;

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
        let mut simulation = crate::build::build(scenario, 0, None).unwrap_or_else(|e| panic!("{e}"));
        let host = scenario.topology.node("left.0").expect("a host");
        let (mut before, end) = (simulation.segments_of(host), Time::ZERO + scenario.run.duration);
        simulation.schedule_start();
        while let Some((at, event)) = simulation.net.events.pop().filter(|(at, _)| *at <= end) {
            simulation.net.now = at;
            simulation.handle(event);
            let now = simulation.segments_of(host);
            assert!(now.sent >= before.sent && now.resent >= before.resent, "{before:?}, then {now:?}");
            before = now;
        }
        // 69.06 segments of 1448 bytes in each of nine rounds.
        assert_eq!((before.sent - before.resent, before.resent > 0), (9 * 70, true), "{before:?}");
    }
}
