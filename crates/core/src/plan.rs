//! What both runtimes plan alike for a trial: its flows, what its links draw, its roles, and the ways of their probes.

use std::collections::BTreeMap;

use crate::capacity::Schedule;
use crate::id::{NodeId, PortId};
use crate::rng::Stream;
use crate::routing::Router;
use crate::runtime::inventory::Inventory;
use crate::scenario::{Scenario, Transport};
use crate::scheme::Role;
use crate::time::Span;
use crate::units::Rate;
use crate::workload::{self, FlowPlan};

/// Flow number of probes: the hash key of their routes.
pub const PROBE: u32 = u32::MAX;

/// The flows of a trial, TCP flows first, and how many of them are TCP.
pub fn flows(scenario: &Scenario, trial: u32) -> (Vec<FlowPlan>, usize) {
    let mut flows = workload::plan(&scenario.flows, &scenario.topology, &scenario.run, trial);
    let is_tcp = |plan: &FlowPlan| matches!(plan.group(&scenario.flows).transport, Transport::Tcp { .. });
    flows.sort_by_key(|plan| !is_tcp(plan));
    let tcp_flows = flows.partition_point(is_tcp);
    (flows, tcp_flows)
}

/// What the links of a trial draw.
#[derive(Default)]
pub struct Links {
    /// Delay per link.
    pub delays: Vec<Span>,
    /// Rate per port; where the capacity changes, the nominal rate.
    pub rates: Vec<Rate>,
    /// Capacities of the ports where they change.
    pub schedules: BTreeMap<usize, Schedule>,
}

impl Links {
    /// What all links draw.
    pub fn draw(scenario: &Scenario, trial: u32) -> Self {
        let mut all = Self::default();
        scenario.topology.links.iter().for_each(|_| all.draw_next(scenario, trial));
        all
    }

    /// What the next link draws. Each link and each port draws from a stream of its own.
    pub fn draw_next(&mut self, scenario: &Scenario, trial: u32) {
        let topology = &scenario.topology;
        let number = self.delays.len();
        let link = &topology.links[number];
        let stream = |name: String| Stream::new(scenario.run.seed, trial, &name);
        for (direction, capacity) in [&link.capacity, &link.capacity_back].into_iter().enumerate() {
            let port = 2 * number + direction;
            let name = topology.port_name(PortId(port as u32));
            if direction == 0 {
                self.delays.push(link.delay.draw(&mut stream(format!("link/{name}/delay"))));
            }
            let unit = stream(format!("port/{name}/rate")).unit();
            let off = topology.rate_tolerance * (2.0 * unit - 1.0);
            let rate = link.rate(direction == 0);
            self.rates.push(Rate::from_bits_per_sec_f64(rate.bits_per_sec() as f64 * (1.0 + off)));
            if let Some(capacity) = capacity {
                self.schedules.insert(port, Schedule::new(capacity, rate, off));
            }
        }
    }
}

/// New roles of every scheme; `routes` lists, per TCP flow, the ports that its data pass.
pub fn roles<'a>(
    scenario: &Scenario,
    inventory: &Inventory,
    routes: impl Iterator<Item = &'a [u32]>,
) -> Vec<Role> {
    if scenario.schemes.is_empty() {
        return Vec::new();
    }
    let of_flow = |ports: &[u32]| ports.iter().map(|port| PortId(*port)).collect();
    Role::all(&scenario.schemes, inventory, &routes.map(of_flow).collect::<Vec<_>>())
}

/// Two nodes, and the ports from the first to the second.
pub type ProbeRoute = (NodeId, NodeId, Vec<u32>);

/// The ways of probes between `roles`.
///
/// # Errors
/// Two nodes between which there is no way.
pub fn probe_routes(router: &mut Router<'_>, roles: &[Role]) -> Result<Vec<ProbeRoute>, (NodeId, NodeId)> {
    let pairs = roles.iter().flat_map(|role| role.probes().map(|to| (role.place.node, to)));
    let route = |(from, to)| match router.route(from, to, PROBE.into()) {
        Some(ports) if !ports.is_empty() => Ok((from, to, ports)),
        _ => Err((from, to)),
    };
    pairs.map(route).collect()
}

/// The port whose queue is reported: the one the scenario names, or the router port that most of `routes` cross; the
/// slowest, then the first, of equals. `routes` are those of every flow's data, those of the `tcp_flows` first: where
/// there are such, only theirs count.
pub fn measured_port<'a>(
    scenario: &Scenario,
    routes: impl Iterator<Item = &'a [u32]>,
    tcp_flows: usize,
) -> Option<PortId> {
    match &scenario.measure.queue {
        Some(name) => scenario.topology.port(name),
        None => scenario.topology.busiest_router_port(routes.take(if tcp_flows > 0 {
            tcp_flows
        } else {
            usize::MAX
        })),
    }
}
