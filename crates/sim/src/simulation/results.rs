//! Samples, captures and the record of the trial.

use bandmaster_core::capture::CapturedPacket;
use bandmaster_core::id::PortId;
use bandmaster_core::measure::record::{self, Tallies};
use bandmaster_core::report::{RunRecord, Work};
use bandmaster_core::scenario::Transport;
use bandmaster_core::time::{Span, Time};
use bandmaster_core::units::UDP_HEADERS;

use super::{Connection, Simulation};
use crate::RunOptions;
use crate::events::Event;
use crate::link::{Port, PortCounters};
use crate::measure::{FlowSample, Flows};
use crate::packet::Packet;
use crate::routes::route_ports;
use crate::tcp::sender::Sender;

impl Simulation<'_> {
    pub(super) fn sample(&mut self) {
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
        let (rounds, exchanges) = (&self.rounds, &self.exchanges);
        let (shares, multipath) = (&self.shares, &self.net.multipath);
        // The data of a multipath connection counts at its first subflow.
        let delivered = |i: usize, c: &Connection| match shares.get(i) {
            Some(Some(share)) => multipath[share.connection].received(),
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

    pub(super) fn flush_capture(&mut self, options: &mut RunOptions<'_>) {
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
    pub(super) fn check_conservation(&self) {
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

    pub(super) fn record(self, case: usize, trial: u32) -> RunRecord {
        let max = self.measured_port.and_then(|port| self.net.ports[port as usize].extras.as_ref());
        let connections = || self.connections.started.iter();
        let sum = |f: &dyn Fn(&Sender) -> u32| connections().map(|c| f64::from(f(&c.sender))).sum::<f64>();
        let has_rounds = !self.rounds.is_empty() || !self.exchanges.is_empty();
        let replaced = has_rounds.then_some(self.connections.replaced).into_iter();
        let timeouts = replaced.clone().map(|counters| f64::from(counters.timeouts));
        let retransmits = replaced.map(|counters| f64::from(counters.retransmits));
        let is_sized = |i: usize| {
            let group = self.plans[i].group(&self.scenario.flows);
            matches!(group.transport, Transport::Tcp { size: Some(_), .. })
                && group.rounds.is_none()
                && group.exchange.is_none()
        };
        let mut completions: Vec<Span> = (0..self.connections.flows())
            .filter(|&i| is_sized(i))
            .filter_map(|i| {
                let finished = match self.shares.get(i) {
                    Some(Some(_)) if self.plans[i].subflow(&self.scenario.flows) > 0 => None,
                    Some(Some(share)) => self.net.multipath[share.connection].finished_at(),
                    _ => self.connections.get(i)?.receiver.finished_at(),
                }?;
                Some(finished.since(self.plans[i].start))
            })
            .collect();
        completions.extend(self.rounds.completions.iter().chain(&self.exchanges.completions));
        let tallies = Tallies {
            queue_max: max.and_then(|e| e.watch).map_or(f64::NAN, |w| f64::from(w.max)),
            drops: self.net.ports.iter().map(|p| p.counters().dropped).sum(),
            marks: self.net.ports.iter().map(Port::marked).sum(),
            timeouts: timeouts.fold(sum(&|s| s.counters.timeouts), |a, b| a + b),
            retransmits: retransmits.fold(sum(&|s| s.counters.retransmits), |a, b| a + b),
            completions,
            rounds: self.rounds.metrics(self.exchanges.rounds()),
            control_bytes: self.post.bytes_sent() + self.probes.bytes,
            refusals: *self.runner.refusals(),
            work: Work {
                events: self.net.events.taken(),
                packet_hops: self.net.ports.iter().map(Port::sent).sum(),
            },
        };
        let (distributions, windows) = (self.distributions, &self.net.windows);
        let spread = |completions: &[f64]| distributions.finish(completions, windows);
        let meters = (self.meter, self.gauge_meter);
        record::record(self.scenario, (case, trial), self.net.now, meters, tallies, spread)
    }
}
