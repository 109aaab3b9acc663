//! The allocator: turns notifications and measurements into shares.

use std::collections::BTreeMap;

use super::shares::{Claimant, Scope, fair_share, reallocate};
use super::{AllocatorKind, Settings};
use crate::control::{Action, Controller, FlowMeasurement, LinkCount, Message, Observation, Outbox, Share, Wakeup};
use crate::fairness::{Demand, max_min};
use crate::id::{FlowId, NodeId, PortId};
use crate::scheme::World;
use crate::time::Time;
use crate::units::Rate;

/// max-min: a flow that uses less than this part of what it was given is limited elsewhere.
const LIMITED: f64 = 0.9;
/// max-min: segments that a throughput average spans at least, so that a slow flow is not judged by single packets.
const AVERAGED_SEGMENTS: f64 = 10.0;

pub(super) struct Allocator {
    settings: Settings,
    /// Links inside the domain, by port, with the last count of flows.
    links: BTreeMap<PortId, Link>,
    /// Ways of all flows through the domain.
    routes: BTreeMap<FlowId, Way>,
    flows: BTreeMap<FlowId, Flow>,
    /// Every router has reported once.
    counted: bool,
}

struct Link {
    capacity: Rate,
    flows: Option<u32>,
}

/// Links of a flow inside the domain, and the router by which it enters.
struct Way {
    links: Vec<PortId>,
    edge: NodeId,
}

struct Flow {
    host: NodeId,
    /// E_f, once measured.
    used: Option<f64>,
    /// Rate given last.
    given: f64,
}

impl Allocator {
    pub(super) fn new(settings: Settings, world: &World, domain: &[NodeId]) -> Self {
        let inside = |port: PortId| {
            let info = &world.ports[port.index()];
            domain.contains(&info.from) && domain.contains(&info.to)
        };
        let mut links = BTreeMap::new();
        let mut routes = BTreeMap::new();
        for route in &world.routes {
            let way: Vec<PortId> = route.ports.iter().copied().filter(|port| inside(*port)).collect();
            let Some(&first) = way.first() else { continue };
            for &port in &way {
                links.entry(port).or_insert(Link { capacity: world.ports[port.index()].capacity, flows: None });
            }
            // The end of the way inside the domain that is not the controlled host is the edge router.
            let edge = world.ports[first.index()].from;
            routes.insert(route.flow, Way { links: way, edge });
        }
        Self { settings, links, routes, flows: BTreeMap::new(), counted: false }
    }

    fn count(&mut self, links: &[LinkCount]) {
        for count in links {
            if let Some(link) = self.links.get_mut(&count.port) {
                link.flows = Some(count.flows);
            }
        }
        self.counted = self.links.values().all(|link| link.flows.is_some());
    }

    fn measure(&mut self, host: NodeId, measurements: &[FlowMeasurement]) {
        self.flows.retain(|id, flow| flow.host != host || measurements.iter().any(|m| m.flow == *id));
        for m in measurements {
            let flow = self.flows.entry(m.flow).or_insert(Flow { host, used: None, given: 0.0 });
            let Some(throughput) = m.throughput else { continue };
            let sample = throughput.bits_per_sec() as f64;
            let mut weight = self.settings.alpha;
            if self.settings.allocator == AllocatorKind::MaxMin {
                let per_interval = flow.given * self.settings.measurement.as_secs_f64() / (8.0 * m.frame.get() as f64);
                weight = weight.min((per_interval / AVERAGED_SEGMENTS).max(0.02));
            }
            // E_f <- alpha R_th + (1 - alpha) E_f.
            flow.used = Some(flow.used.map_or(sample, |used| weight * sample + (1.0 - weight) * used));
        }
    }

    fn allocate(&mut self, out: &mut Outbox) {
        let rates = match self.settings.allocator {
            AllocatorKind::Paper if self.counted => self.paper_rates(),
            AllocatorKind::Paper => return,
            AllocatorKind::MaxMin => self.max_min_rates(),
        };
        let paced = self.settings.allocator == AllocatorKind::MaxMin;
        let mut by_host: BTreeMap<NodeId, Vec<Share>> = BTreeMap::new();
        for (flow, rate) in rates {
            if let Some(state) = self.flows.get_mut(&flow) {
                state.given = rate;
                let share = Share { flow, rate: Rate::from_bits_per_sec_f64(rate), paced };
                by_host.entry(state.host).or_default().push(share);
            }
        }
        for (to, shares) in by_host {
            out.push(Action::Send { to, message: Message::Allocation { shares }, reason: "flow information updated" });
        }
    }

    /// Sect. 3: fair share, then reallocation.
    fn paper_rates(&self) -> Vec<(FlowId, f64)> {
        let settings = &self.settings;
        let mut ids = Vec::with_capacity(self.flows.len());
        let mut claimants = Vec::with_capacity(self.flows.len());
        for (&id, flow) in &self.flows {
            let Some(way) = self.routes.get(&id) else { continue };
            let counts = way.links.iter().map(|port| {
                let link = &self.links[port];
                (link.capacity, link.flows.unwrap_or(1))
            });
            let Some((share, bottleneck)) = fair_share(counts) else { continue };
            let scope = match settings.scope {
                Scope::BottleneckLink => way.links[bottleneck].0,
                Scope::EdgeRouter => way.edge.0,
            };
            let under = |used: &f64| settings.reallocation && settings.under_use.test(*used, share, settings.beta);
            ids.push(id);
            claimants.push(Claimant { scope, share, unused_at: flow.used.filter(under) });
        }
        ids.into_iter().zip(reallocate(&claimants)).collect()
    }

    /// Water-filling with the measured use of limited flows as their demand. A limited flow may grow by the head-room,
    /// but the head-room is not kept free for it: the others get all that is not used.
    fn max_min_rates(&self) -> Vec<(FlowId, f64)> {
        let ports: Vec<PortId> = self.links.keys().copied().collect();
        let capacities: Vec<f64> = self
            .links
            .values()
            .map(|link| link.capacity.bits_per_sec() as f64 * self.settings.utilization)
            .collect();
        let flows: Vec<(FlowId, &Flow, Vec<u32>)> = self
            .flows
            .iter()
            .filter_map(|(&id, flow)| {
                let way = self.routes.get(&id)?;
                let at = |port| ports.binary_search(port).ok().map(|i| i as u32);
                Some((id, flow, way.links.iter().filter_map(at).collect()))
            })
            .collect();
        let limited = |flow: &Flow| flow.used.filter(|used| *used < LIMITED * flow.given);
        let demands: Vec<Demand<'_>> = flows
            .iter()
            .map(|(_, flow, links)| Demand { links, most: limited(flow).unwrap_or(f64::INFINITY) })
            .collect();
        let rates = max_min(&capacities, &demands);
        // What a flow would get if it alone were not limited bounds its growth.
        let level = rates.iter().copied().fold(0.0, f64::max);
        let grown = |((id, flow, _), rate): (&(FlowId, &Flow, Vec<u32>), f64)| match limited(flow) {
            Some(used) => (*id, (used * self.settings.headroom).clamp(rate, level.max(rate))),
            None => (*id, rate),
        };
        flows.iter().zip(rates).map(grown).collect()
    }
}

impl Controller for Allocator {
    fn on(&mut self, _now: Time, observation: &Observation<'_>, out: &mut Outbox) {
        let Observation::Message(message) = observation else { return };
        match message {
            // max-min counts the flows that hosts report.
            Message::LinkReport { .. } if self.settings.allocator == AllocatorKind::MaxMin => return,
            Message::LinkReport { links } => self.count(links),
            Message::FlowReport { host, flows } => self.measure(*host, flows),
            // The paper's allocator learns of flows from the next report.
            Message::FlowStarted { .. } | Message::FlowEnded { .. }
                if self.settings.allocator == AllocatorKind::Paper =>
            {
                return;
            }
            Message::FlowStarted { host, flow } => {
                self.flows.insert(*flow, Flow { host: *host, used: None, given: 0.0 });
            }
            Message::FlowEnded { flow } => {
                self.flows.remove(flow);
            }
            Message::Allocation { .. } => return,
        }
        self.allocate(out);
    }

    fn wakeup(&self) -> Option<Wakeup> {
        None
    }
}
