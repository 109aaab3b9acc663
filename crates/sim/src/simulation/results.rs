//! Samples, captures and the record of the trial.

use bandmaster_core::capacity::bits_between;
use bandmaster_core::capture::CapturedPacket;
use bandmaster_core::id::PortId;
use bandmaster_core::measure::record::{self, Tallies};
use bandmaster_core::measure::rtt::RttSketch;
use bandmaster_core::measure::{FlowSample, Flows, PortSample};
use bandmaster_core::report::{RunRecord, Work};
use bandmaster_core::scenario::Transport;
use bandmaster_core::time::{Span, Time};
use bandmaster_core::units::UDP_HEADERS;
use bandmaster_core::workload::rounds::Rounds;

use super::{Connection, Connections, FlowTable, Simulation, Udp};
use crate::RunOptions;
use crate::events::Event;
use crate::exchange::Exchanges;
use crate::link::{Port, PortCounters};
use crate::net::Net;
use crate::packet::Packet;
use crate::routes::route_ports;
use crate::tcp::multipath::Shared;
use crate::tcp::sender::Sender;

/// What samples read of a part of the network.
struct View<'a> {
    connections: &'a Connections,
    udp: &'a Udp,
    rounds: &'a Rounds,
    exchanges: &'a Exchanges,
    multipath: &'a [Shared],
    flows: &'a FlowTable,
}

impl Simulation<'_> {
    pub(super) fn sample(&mut self) {
        let now = self.net.now;
        Self::sample_all(&mut [self], now);
        self.net.schedule(now + self.scenario.run.sample, Event::Sample);
    }

    /// Ends a sampling interval. `parts` are the whole network; the first has the meters.
    pub(crate) fn sample_all(parts: &mut [&mut Self], now: Time) {
        let from = now - parts[0].scenario.run.sample;
        let Some((first, others)) = parts.split_first_mut() else { return };
        let port_of = |port: PortId| first.part.as_ref().map_or(0, |part| part.all.of_port[port.index()]);
        let measured = first.meters.measured_port.map_or_else(PortSample::default, |port| {
            let (_, rate) = first.control.ports[port.index()];
            let port = match port_of(port) {
                0 => &mut first.net.ports[port.index()],
                part => &mut others[usize::from(part) - 1].net.ports[port.index()],
            };
            PortSample {
                waited: port.take_waited(now),
                begun: port.begun_bytes(now),
                capacity: bits_between(port.schedule(), rate, from, now),
                varies: port.schedule().is_some(),
            }
        });
        let number_of = |port: PortId| usize::from(port_of(port));
        let asked = first.meters.measured_port.iter().chain(&first.scenario.measure.ports);
        let asked: Vec<(PortId, usize)> = asked.map(|port| (*port, number_of(*port))).collect();
        first.take_flows(others, now, measured);
        let this = first;
        if let Some(delays) = &mut this.net.delays {
            others.iter_mut().filter_map(|part| part.net.delays.as_mut()).for_each(|own| delays.absorb(own));
            let mut taken: Vec<(String, Vec<RttSketch>)> = Vec::new();
            for (port, part) in asked {
                let name = this.scenario.topology.port_name(port);
                let ports = if part == 0 { &mut this.net.ports } else { &mut others[part - 1].net.ports };
                let extras = ports[port.index()].extras.as_mut();
                let intervals = extras.and_then(|e| e.sojourns.as_mut()).and_then(|s| s.intervals.as_mut());
                if let Some(intervals) = intervals.filter(|_| taken.iter().all(|(known, _)| *known != name)) {
                    taken.push((name, intervals.take()));
                }
            }
            delays.sample(taken);
        }
        let part = this.part.as_deref();
        let port = |number: u32| match part.map_or(0, |part| usize::from(part.all.of_port[number as usize])) {
            0 => &this.net.ports[number as usize],
            part => &others[part - 1].net.ports[number as usize],
        };
        this.distributions.sample((from, now), port, &this.control.ports);
    }

    /// Samples all flows; `others` are the other parts of the network.
    fn take_flows(&mut self, others: &[&mut Self], now: Time, measured: PortSample) {
        let Self { meters, connections, udp, rounds, exchanges, net, flows, part, scenario, .. } = self;
        let (flows, net): (&FlowTable, &Net) = (flows, net);
        let tcp_flows = connections.flows();
        let own = View { connections, udp, rounds, exchanges, multipath: &net.multipath, flows };
        let views: Vec<View<'_>> =
            std::iter::once(own).chain(others.iter().map(|part| part.view())).collect();
        let (part, of_flows) = (part.as_deref(), flows);
        // The parts that have the flow's sender, and its receiver.
        let ends = |i: usize| match part {
            None => (&views[0], &views[0]),
            Some(part) => {
                let sender = &views[part.of(of_flows.plans[i].src)];
                (sender, &views[part.of(sender.flows.plans[i].dst)])
            }
        };
        let efficiency = |i: usize| {
            let Some(profile) = of_flows.tcp_profile(i) else { return 1.0 };
            profile.mss as f64 / (profile.mss + u64::from(profile.overhead)) as f64
        };
        let routes = &net.routes;
        // The data of a multipath connection counts at its first subflow.
        let delivered = |i: usize, at: &View<'_>, c: &Connection| match at.flows.share(i) {
            Some(share) => at.multipath[share.connection].received(),
            _ => c.receiver.delivered(),
        };
        // Subflows of a connection come one after the other.
        let came = |i: usize, at: &View<'_>| -> u64 {
            let subflows = of_flows.plans[i].group(&scenario.flows).multipath.map_or(1, |m| m.subflows);
            at.flows.received_ip_bytes.iter().skip(i).take(subflows as usize).sum()
        };
        let state = |i: usize| {
            let (sender, receiver) = ends(i);
            if i >= tcp_flows {
                let i = i - tcp_flows;
                let (received, packet) = (receiver.udp.received[i], receiver.udp.sources[i].packet);
                let delivered = received * u64::from(packet - UDP_HEADERS);
                let ip_bytes = received as f64 * f64::from(packet);
                return FlowSample { delivered, ip_bytes, ..FlowSample::default() };
            }
            let first_window = || {
                let profile = of_flows.profile(i);
                Some(u64::from(profile.settings.first_window()) * profile.mss)
            };
            let (sends, gets) = (sender.connections.get(i), receiver.connections.get(i));
            // The receiver's part may not have heard yet that another connection has the number.
            let is_same =
                |c: &&Connection| sends.is_none_or(|s| s.sender.generation() == c.sender.generation());
            let gets = gets.filter(is_same);
            FlowSample {
                delivered: gets.map_or(0, |c| delivered(i, receiver, c) + receiver.rounds.carried(i as u32))
                    + sends.map_or(0, |_| sender.exchanges.carried(i as u32)),
                ip_bytes: gets.map_or(0.0, |_| came(i, receiver) as f64),
                cwnd: sends.map(|c| c.sender.cwnd()).or_else(first_window),
                srtt: sends.and_then(|c| c.sender.rtt.srtt()),
                is_over: gets
                    .is_some_and(|c| c.receiver.finished_at().is_some() && receiver.flows.share(i).is_none()),
            }
        };
        let flows = Flows {
            groups: &scenario.flows,
            plans: &of_flows.plans,
            route: &|i| route_ports(routes, of_flows.data_routes[i]),
            efficiency: &efficiency,
            state: &state,
        };
        meters.sample(scenario, now, measured, &flows);
    }

    fn view(&self) -> View<'_> {
        let Self { connections, udp, rounds, exchanges, net, flows, .. } = self;
        View { connections, udp, rounds, exchanges, multipath: &net.multipath, flows }
    }

    pub(super) fn flush_capture(&mut self, options: &mut RunOptions<'_>) {
        let Some(port) = self.captured_port else { return };
        let Some(capture) = self.net.ports[port as usize].extras.as_mut().and_then(|e| e.capture.as_mut())
        else {
            return;
        };
        // A packet's time is known when it is queued; until then a fault may take it, or the run may end.
        let now = self.net.now;
        let packets: Vec<(Time, Packet)> = capture.extract_if(.., |(at, _)| *at <= now).collect();
        let Some((_, on_packet)) = &mut options.capture else { return };
        for (at, packet) in packets {
            on_packet(&self.describe(port, at, &packet));
        }
    }

    fn describe(&self, port: u32, at: Time, packet: &Packet) -> CapturedPacket {
        let mut plan = self.flows.plans[packet.flow as usize];
        if let Some(to) = self.captured_messages.get(&(packet.flow, packet.generation)) {
            plan.dst = *to;
        }
        let profile = self.flows.tcp_profile(packet.flow as usize);
        crate::capture::describe(port, at, packet, &plan, profile)
    }

    /// Every packet has one fate.
    pub(super) fn check_conservation(&self) {
        let (mut alive, mut ended) = (0, 0);
        for port in &self.net.ports {
            let PortCounters { dropped, delivered, lost, faulted } = port.counters();
            alive += port.in_transit() + port.held();
            ended += dropped + delivered + lost + faulted;
        }
        assert_eq!(self.net.offered, ended + alive, "packets offered to ports, and their fates");
        alive += self.control.gates.held() + self.net.untold.len() as u64;
        alive += self.part.as_ref().map_or(0, |part| part.expected);
        alive -= self.net.ports.iter().map(Port::left_early).sum::<u64>();
        assert_eq!(alive, self.net.slab.live() as u64, "packets alive outside every port");
    }

    pub(crate) fn record(mut self, case: usize, trial: u32) -> RunRecord {
        let of_ports = self.scenario.measure.ports.iter().filter_map(|port| {
            let sojourns = self.net.ports[port.index()].extras.as_mut()?.sojourns.as_mut()?;
            Some(sojourns.of_port.take()?.metrics())
        });
        let of_ports = of_ports.flatten().collect();
        let measured_port = self.meters.measured_port.map(PortId::index);
        let extras = measured_port.and_then(|port| self.net.ports[port].extras.as_mut());
        let sojourns = extras.and_then(|extras| extras.sojourns.take()).map(|watch| watch.times);
        let max = self.meters.measured_port.and_then(|port| self.net.ports[port.index()].extras.as_ref());
        let connections = || self.connections.started.iter();
        let sum = |f: &dyn Fn(&Sender) -> u32| connections().map(|c| f64::from(f(&c.sender))).sum::<f64>();
        let has_rounds = !self.rounds.is_empty() || !self.exchanges.is_empty();
        let replaced = has_rounds.then_some(self.connections.replaced).into_iter();
        let timeouts = replaced.clone().map(|counters| f64::from(counters.timeouts));
        let retransmits = replaced.map(|counters| f64::from(counters.retransmits));
        let is_sized = |i: usize| {
            let group = self.flows.plans[i].group(&self.scenario.flows);
            matches!(group.transport, Transport::Tcp { size: Some(_), .. })
                && group.rounds.is_none()
                && group.exchange.is_none()
                && (group.measured || group.list.is_none())
        };
        let mut completions: Vec<Span> = (0..self.connections.flows())
            .filter(|&i| is_sized(i))
            .filter_map(|i| {
                let is_first = self.flows.share(i).is_none_or(|share| share.subflow == 0);
                let finished = self.finished_at(i).filter(|_| is_first)?;
                Some(finished.since(self.flows.plans[i].start))
            })
            .collect();
        let now = self.net.now;
        let has_started = |i: usize| {
            let plan = &self.flows.plans[i];
            plan.start < plan.stop && plan.start <= now && plan.subflow(&self.scenario.flows) == 0
        };
        let started = (0..self.connections.flows()).filter(|&i| is_sized(i) && has_started(i)).count();
        let unfinished = started.saturating_sub(completions.len()) as f64;
        completions.extend(self.rounds.completions.iter().chain(&self.exchanges.completions));
        // Rows have been made of some; the others follow.
        for (plan, own) in self.flows.plans.iter().zip(&self.net.rtts) {
            self.rtts_told[plan.group_index()].merge(own);
        }
        let has_faults = !self.scenario.faults.outages.is_empty();
        let faulted: u64 = self.net.ports.iter().map(|port| port.counters().faulted).sum();
        let outage = self.outages.downtime(now).as_secs_f64();
        let tallies = Tallies {
            faults: has_faults.then_some([faulted as f64, outage, self.outages.reroutes as f64]),
            delays: self.net.delays.take().map(|delays| delays.finish()).unwrap_or_default(),
            ports: of_ports,
            rtts: std::mem::take(&mut self.rtts_told),
            queue_max: max.and_then(|e| e.watch).map_or(f64::NAN, |w| f64::from(w.max)),
            drops: self.net.ports.iter().map(|p| p.counters().dropped).sum(),
            marks: self.net.ports.iter().map(Port::marked).sum(),
            timeouts: timeouts.fold(sum(&|s| s.counters.timeouts), |a, b| a + b),
            retransmits: retransmits.fold(sum(&|s| s.counters.retransmits), |a, b| a + b),
            completions,
            unfinished,
            rounds: self.rounds.metrics(self.exchanges.rounds()),
            control_bytes: self.control.post.bytes_sent() + self.control.probes.bytes,
            refusals: *self.control.runner.refusals(),
            work: Work {
                events: self.net.events.taken(),
                packet_hops: self.net.ports.iter().map(Port::accepted).sum(),
            },
        };
        let (distributions, windows) = (self.distributions, &self.net.windows);
        let spread = |completions: &[f64]| distributions.finish(completions, windows, sojourns.as_ref());
        let meters = (self.meters.flows, self.meters.gauges);
        record::record(self.scenario, (case, trial), self.net.now, meters, tallies, spread)
    }
}
