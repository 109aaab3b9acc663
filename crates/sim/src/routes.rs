//! The ways of packets: runs of ports in one table, shared by equal ways.

use std::collections::BTreeMap;

use bandmaster_core::id::NodeId;
use bandmaster_core::plan::probe_routes;
use bandmaster_core::routing::Router;
use bandmaster_core::scenario::Scenario;
use bandmaster_core::scheme::Role;
use bandmaster_core::topology::NodeKind;

use crate::net::ROUTE_END;
use crate::packet::PROBE;
use crate::workload::{FlowPlan, ways};
use crate::{RunError, RunOptions};

/// Flows, or links, between two looks at the caller's stop flag.
pub(crate) const STOP_CHECK: usize = 1 << 10;

/// Ports of the route that starts at `route` in the table.
pub(crate) fn route_ports(table: &[u32], route: u32) -> &[u32] {
    let rest = &table[route as usize..];
    let end = rest.iter().position(|port| *port == ROUTE_END).unwrap_or(rest.len());
    &rest[..end]
}

/// Routes as runs in a table, each ended by [`ROUTE_END`]; equal routes share a run.
pub(crate) struct Routes<'a> {
    scenario: &'a Scenario,
    trial: u32,
    router: Router<'a>,
    /// Routes as if everything were up, for messages that have no way; none while that is so.
    whole: Option<Router<'a>>,
    known: BTreeMap<Vec<u32>, u32>,
    tails: Tails,
}

/// Places in the table of the routes of every flow's data, and of the acknowledgements of TCP flows.
pub(crate) type Places = (Vec<u32>, Vec<u32>);

/// A way that shares all but its first port with the ways of other hosts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Way {
    pub(crate) first: u32,
    /// Place of the rest in the table.
    pub(crate) tail: u32,
}

/// Where there is one way only between any two nodes: the runs from the router of a host with one link to every node.
#[derive(Default)]
struct Tails {
    /// By node: the router at the other end of its only link, its number among these routers, and the port to it.
    gateways: Vec<Option<(u32, u32)>>,
    /// By gateway and node.
    runs: Vec<u32>,
    nodes: usize,
}

impl Tails {
    const UNKNOWN: u32 = u32::MAX;

    fn new(scenario: &Scenario) -> Self {
        let topology = &scenario.topology;
        let nodes = topology.nodes.len();
        if topology.links.len() >= nodes {
            return Self::default();
        }
        let mut links = vec![0; nodes];
        for link in &topology.links {
            links[link.a.index()] += 1;
            links[link.b.index()] += 1;
        }
        let mut numbers = BTreeMap::new();
        let mut gateways = vec![None; nodes];
        for (i, link) in (0..).zip(&topology.links) {
            for (host, router, port) in [(link.a, link.b, 2 * i), (link.b, link.a, 2 * i + 1)] {
                let is_router = topology.nodes[router.index()].kind == NodeKind::Router;
                if links[host.index()] == 1 && is_router {
                    let next = numbers.len() as u32;
                    gateways[host.index()] = Some((*numbers.entry(router).or_insert(next), port));
                }
            }
        }
        Self { gateways, runs: vec![Self::UNKNOWN; numbers.len() * nodes], nodes }
    }

    /// The first port of a host, and where its way to a node is kept.
    fn place(&mut self, from: NodeId, to: NodeId) -> Option<(u32, &mut u32)> {
        let (gateway, port) = self.gateways.get(from.index()).copied().flatten()?;
        Some((port, &mut self.runs[gateway as usize * self.nodes + to.index()]))
    }
}

impl<'a> Routes<'a> {
    pub(crate) fn new(scenario: &'a Scenario, trial: u32) -> Self {
        let tails = if scenario.flows.iter().any(|group| group.exchange.is_some()) {
            Tails::new(scenario)
        } else {
            Tails::default()
        };
        let router = Router::new(scenario, trial);
        Self { scenario, trial, router, whole: None, known: BTreeMap::new(), tails }
    }

    /// Ways that are looked for from now on leave out the links that are `down`.
    pub(crate) fn avoid(&mut self, down: &[bool]) {
        let (scenario, trial) = (self.scenario, self.trial);
        self.whole.get_or_insert_with(|| Router::new(scenario, trial));
        self.router.avoid(down);
    }

    /// The place of the way of probes between two nodes that now has its way at `place`. It begins and ends at the same ports,
    /// where data are counted, or it stays.
    pub(crate) fn move_probes(&mut self, from: NodeId, to: NodeId, place: u32, table: &mut Vec<u32>) -> u32 {
        let ends = |ports: &[u32]| (ports.first().copied(), ports.last().copied());
        let before = ends(route_ports(table, place));
        match self.router.route(from, to, PROBE.into()).filter(|ports| ends(ports) == before) {
            Some(ports) => self.insert_ports(ports, table),
            None => place,
        }
    }

    /// Places in the table of the ways of probes between `roles`.
    pub(crate) fn insert_probes(
        &mut self,
        roles: &[Role],
        table: &mut Vec<u32>,
    ) -> Result<BTreeMap<(NodeId, NodeId), u32>, RunError> {
        let ways = probe_routes(&mut self.router, roles).map_err(|(from, to)| {
            let name = |node: NodeId| &self.scenario.topology.nodes[node.index()].name;
            RunError::Unrunnable(format!("probes: no route from {} to {}", name(from), name(to)))
        })?;
        Ok(ways.into_iter().map(|(from, to, ports)| ((from, to), self.insert_ports(ports, table))).collect())
    }

    /// Inserts the routes of every flow's data, and of the acknowledgements of the first `tcp_flows`; returns their places in the
    /// table. A flow without a way keeps that of `before`.
    pub(crate) fn insert_flows(
        &mut self,
        plans: &[FlowPlan],
        tcp_flows: usize,
        before: Option<(&[u32], &[u32])>,
        table: &mut Vec<u32>,
        options: &RunOptions<'_>,
    ) -> Result<Places, RunError> {
        let mut data_routes = Vec::with_capacity(plans.len());
        let mut ack_routes = Vec::with_capacity(tcp_flows);
        let ways = ways(plans, &self.scenario.flows);
        for (i, (plan, way)) in plans.iter().zip(ways).enumerate() {
            if i.is_multiple_of(STOP_CHECK) {
                options.goes_on()?;
            }
            if way < i {
                data_routes.push(data_routes[way]);
                ack_routes.push(ack_routes[way]);
                continue;
            }
            data_routes.push(self.insert(plan, i, false, before.map(|(data, _)| data[i]), table)?);
            if i < tcp_flows {
                ack_routes.push(self.insert(plan, i, true, before.map(|(_, acks)| acks[i]), table)?);
            }
        }
        Ok((data_routes, ack_routes))
    }

    fn insert(
        &mut self,
        plan: &FlowPlan,
        flow: usize,
        reverse: bool,
        before: Option<u32>,
        table: &mut Vec<u32>,
    ) -> Result<u32, RunError> {
        let groups = &self.scenario.flows;
        let Some(route) = self.router.of_flow(plan, groups, flow as u64, reverse) else {
            if let Some(place) = before {
                return Ok(place);
            }
            let (from, to) = if reverse { (plan.dst, plan.src) } else { (plan.src, plan.dst) };
            let name = |node: NodeId| &self.scenario.topology.nodes[node.index()].name;
            let flow = plan.name(&self.scenario.flows);
            let why = format!("flow {flow}: no route from {} to {}", name(from), name(to));
            return Err(RunError::Unrunnable(why));
        };
        Ok(self.insert_ports(route, table))
    }

    /// Takes over the ways of an exchange that the same network has found elsewhere; false where the table of routes does not tell
    /// them.
    pub(crate) fn adopt(&mut self, other: &Routes<'_>) -> bool {
        self.tails.runs.clone_from(&other.tails.runs);
        !self.tails.runs.is_empty()
    }

    /// The way between two hosts of an exchange; where there are several, `key` picks. None when there is none, which
    /// the scenario's reader has excluded.
    pub(crate) fn way(&mut self, from: NodeId, to: NodeId, key: u64, table: &mut Vec<u32>) -> Option<Way> {
        if let Some((first, run)) = self.tails.place(from, to)
            && *run != Tails::UNKNOWN
        {
            return Some(Way { first, tail: *run });
        }
        let around = self.router.route(from, to, key);
        let route = around.or_else(|| self.whole.as_mut()?.route(from, to, key))?;
        let (first, rest) = route.split_first()?;
        let tail = match self.tails.place(from, to) {
            Some((_, run)) => {
                // No other run leads from this router to this node.
                *run = append(rest, table);
                *run
            }
            None => self.insert_ports(rest.to_vec(), table),
        };
        Some(Way { first: *first, tail })
    }

    /// The number of the router whose hosts share all but the first port of their ways.
    pub(crate) fn gateway(&self, host: NodeId) -> Option<u32> {
        self.tails.gateways.get(host.index()).copied().flatten().map(|(gateway, _)| gateway)
    }

    fn insert_ports(&mut self, route: Vec<u32>, table: &mut Vec<u32>) -> u32 {
        if let Some(&at) = self.known.get(&route) {
            return at;
        }
        let at = append(&route, table);
        self.known.insert(route, at);
        at
    }
}

/// Adds a run to the table; returns its place.
fn append(run: &[u32], table: &mut Vec<u32>) -> u32 {
    let at = table.len() as u32;
    table.extend(run);
    table.push(ROUTE_END);
    at
}
