//! How values are spread over flows, packets and links, where a scenario asks for it.

use bandmaster_core::capacity::bits_between;
use bandmaster_core::id::NodeId;
use bandmaster_core::measure::record::Spread;
use bandmaster_core::measure::sojourn::Sojourns;
use bandmaster_core::report::Distribution;
use bandmaster_core::report::quantile::percentile;
use bandmaster_core::scenario::Scenario;
use bandmaster_core::time::{Span, Time};
use bandmaster_core::topology::NodeKind;
use bandmaster_core::units::Rate;

use crate::link::Port;
use crate::net::Net;

/// Number of distinct windows, in segments; larger ones count with the last.
const WINDOWS: usize = 4096;
/// Windows up to this are small.
const SMALL_WINDOW: usize = 5;

/// Collects what distributions are made of.
#[derive(Default)]
pub(crate) struct Distributions {
    is_on: bool,
    /// By TCP flow: packets that its sender had handed to the network at its last completion, where a connection has
    /// several.
    handed: Vec<u32>,
    /// Per cent of its packets that each completed flow lost.
    flow_drops: Vec<f32>,
    /// Packets that completed flows lost in all.
    dropped: u64,
    /// Delays of data packets, and by flow their sum and number.
    delays: Option<Sojourns>,
    flow_delays: Vec<(Span, u64)>,
    /// Completion times in seconds of flows that began with their host's own settings, and with a scheme's.
    own: Vec<f64>,
    tuned: Vec<f64>,
    /// Per cent of its capacity that each router port used in each sampling interval.
    utilization: Vec<f32>,
    /// Router ports, and the bytes whose transmission had begun at each by the last sample.
    router_ports: Vec<(u32, u64)>,
}

impl Distributions {
    /// Prepares the ports and the counters of `net` for `flows` TCP flows.
    pub(crate) fn new(scenario: &Scenario, flows: usize, net: &mut Net) -> Self {
        if !scenario.measure.distributions {
            return Self::default();
        }
        net.slab.count_drops(flows);
        net.windows = vec![0; WINDOWS];
        let topology = &scenario.topology;
        let owners = topology.links.iter().flat_map(|link| [link.a, link.b]);
        let is_router = owners.map(|node| topology.nodes[node.index()].kind == NodeKind::Router);
        let router_ports: Vec<_> =
            (0..).zip(is_router).filter(|(_, is_router)| *is_router).map(|(port, _)| (port, 0)).collect();
        for (port, _) in &router_ports {
            net.ports[*port as usize].extras();
        }
        let delays = Sojourns::new([(String::new(), Time::ZERO, Time::MAX)]);
        let (handed, flow_delays) = (vec![0; flows], vec![(Span::ZERO, 0); flows]);
        Self { is_on: true, handed, delays, flow_delays, router_ports, ..Self::default() }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.is_on
    }

    /// Of the packets that the connection of `flow` has handed to the network, those since it was asked last.
    pub(crate) fn take_handed(&mut self, flow: u32, packets: u32) -> u32 {
        packets - std::mem::replace(&mut self.handed[flow as usize], packets)
    }

    /// A flow is complete for which its sender handed `packets` to the network, of which queues dropped `dropped`.
    pub(crate) fn note_completion(&mut self, packets: u32, dropped: u32, time: Span, is_tuned: bool) {
        let times = if is_tuned { &mut self.tuned } else { &mut self.own };
        times.push(time.as_secs_f64());
        self.dropped += u64::from(dropped);
        self.flow_drops.push((100.0 * f64::from(dropped) / f64::from(packets.max(1))).min(100.0) as f32);
    }

    /// A data packet of `flow` that its sender's TCP handed over at `sent` has arrived.
    pub(crate) fn note_delay(&mut self, flow: u32, sent: Option<Time>, now: Time) {
        let (Some(sent), Some(delays)) = (sent, &mut self.delays) else { return };
        delays.note(sent, now);
        if let Some((sum, number)) = self.flow_delays.get_mut(flow as usize) {
            *sum += now.since(sent);
            *number += 1;
        }
    }

    /// The sampling interval from `from` to `now` has ended.
    pub(crate) fn sample<'p>(
        &mut self,
        (from, now): (Time, Time),
        port: impl Fn(u32) -> &'p Port,
        rates: &[(NodeId, Rate)],
    ) {
        for (number, before) in &mut self.router_ports {
            let (port, rate) = (port(*number), rates[*number as usize].1);
            let begun = port.begun_bytes(now);
            let most = bits_between(port.schedule(), rate, from, now);
            // In a pause there is nothing to use.
            if most > 0.0 {
                self.utilization.push((800.0 * (begun - *before) as f64 / most) as f32);
            }
            *before = begun;
        }
    }

    /// Takes over what another part of the network has collected.
    pub(crate) fn absorb(&mut self, other: &mut Self) {
        self.flow_drops.append(&mut other.flow_drops);
        self.own.append(&mut other.own);
        self.tuned.append(&mut other.tuned);
        self.dropped += other.dropped;
        if let (Some(own), Some(other)) = (&mut self.delays, &other.delays) {
            own.absorb(other);
        }
        for ((sum, number), (other, others)) in self.flow_delays.iter_mut().zip(&other.flow_delays) {
            *sum += *other;
            *number += others;
        }
    }

    /// What has been collected, with the completion times in seconds, ascending, and the times in the measured queue; and
    /// the summary metrics of all that.
    pub(crate) fn finish(
        mut self,
        completion: &[f64],
        windows: &[u64],
        sojourns: Option<&Sojourns>,
    ) -> Spread {
        if !self.is_on {
            return Default::default();
        }
        let ascending = |values: &mut Vec<f32>| -> Vec<f64> {
            values.sort_by(f32::total_cmp);
            values.iter().copied().map(f64::from).collect()
        };
        let (drops, utilization) = (ascending(&mut self.flow_drops), ascending(&mut self.utilization));
        let of_times = |times: &mut Vec<f64>| {
            times.sort_by(f64::total_cmp);
            percentile(times, 99)
        };
        let share = |part: u64, whole: u64| 100.0 * part as f64 / whole as f64;
        let undropped = drops.iter().filter(|share| **share == 0.0).count() as u64;
        let means = self
            .flow_delays
            .iter()
            .filter(|(_, n)| *n > 0)
            .map(|(sum, n)| 1e3 * sum.as_secs_f64() / *n as f64);
        let worst = means.fold(f64::NAN, f64::max);
        let small = windows.iter().take(SMALL_WINDOW + 1).sum();
        let metrics = [
            ("fct_own_p99", of_times(&mut self.own)),
            ("fct_tuned_p99", of_times(&mut self.tuned)),
            ("undropped", share(undropped, drops.len() as u64)),
            ("flow_drops_p99", percentile(&drops, 99)),
            ("drops_per_flow", self.dropped as f64 / drops.len() as f64),
            ("delay_mean", self.delays.as_ref().map_or(f64::NAN, Sojourns::mean_millis)),
            ("delay_p99", self.delays.as_ref().map_or(f64::NAN, |delays| delays.quantile_millis(0.99))),
            ("delay_flow_max", worst),
            ("window_to_5", share(small, windows.iter().sum())),
            ("utilization_p80", percentile(&utilization, 80)),
        ];
        let distributions = [
            Distribution::new("fct", completion),
            Distribution::new("flow_drops", &drops),
            Distribution::of_counts("window", windows),
            Distribution::new("utilization", &utilization),
            sojourns.and_then(Sojourns::distribution),
        ];
        let metrics = metrics.map(|(name, value)| (name.to_owned(), value));
        let of_queue = sojourns.map(Sojourns::metrics).unwrap_or_default();
        (distributions.into_iter().flatten().collect(), metrics.into_iter().chain(of_queue).collect())
    }
}
