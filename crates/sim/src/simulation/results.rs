//! Samples, captures and the record of the trial.

use bandmaster_core::capture::CapturedPacket;
use bandmaster_core::id::PortId;
use bandmaster_core::report::{RunRecord, Work};
use bandmaster_core::scenario::Transport;
use bandmaster_core::time::{Span, Time};
use bandmaster_core::units::UDP_HEADERS;

use super::{Connection, ROUND_FIGURES, Simulation};
use crate::RunOptions;
use crate::distributions::percentile;
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
                    Some(Some(share)) => self.net.multipath[share.connection].finished_at(),
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
