//! Flows and their routes, as the simulator lays them out.

use std::collections::BTreeMap;

use bandmaster_core::capacity::Schedule;
use bandmaster_core::id::{NodeId, PortId};
use bandmaster_core::rng::Stream;
use bandmaster_core::routing::Router;
use bandmaster_core::runtime::inventory::Inventory;
use bandmaster_core::scenario::{Scenario, Transport};
use bandmaster_core::scheme::Role;
use bandmaster_core::time::Span;
use bandmaster_core::units::Rate;
use bandmaster_core::workload::{self, FlowPlan};

use crate::Error;
use crate::limits::check_flows;

/// Hash key of the routes of probes, as in the simulator.
const PROBE: u64 = u32::MAX as u64;

/// What happens in a trial.
pub(crate) struct Workplan {
    /// TCP flows first, then UDP.
    pub(crate) flows: Vec<FlowPlan>,
    pub(crate) tcp_flows: usize,
    /// Ports of each flow's data.
    pub(crate) data_routes: Vec<Vec<u32>>,
    /// Ports of each TCP flow's acknowledgements; of UDP flows see [`Workplan::add_ways_back`].
    pub(crate) ack_routes: Vec<Vec<u32>>,
    /// Rate of each port; where its capacity changes, the nominal one.
    pub(crate) rates: Vec<Rate>,
    /// Capacities of the ports where it changes.
    pub(crate) schedules: BTreeMap<usize, Schedule>,
    /// Delay of each link.
    pub(crate) delays: Vec<Span>,
    /// Nodes that exchange probes, with the ports between them.
    pub(crate) probe_routes: Vec<(NodeId, NodeId, Vec<u32>)>,
}

impl Workplan {
    pub(crate) fn new(scenario: &Scenario, trial: u32) -> Result<Self, Error> {
        let topology = &scenario.topology;
        let seed = scenario.run.seed;
        let mut flows = workload::plan(&scenario.flows, topology, &scenario.run, trial);
        check_flows(flows.len())?;
        let is_tcp = |plan: &FlowPlan| matches!(plan.group(&scenario.flows).transport, Transport::Tcp { .. });
        flows.sort_by_key(|plan| !is_tcp(plan));
        let tcp_flows = flows.iter().filter(|plan| is_tcp(plan)).count();
        let mut router = Router::new(topology);
        let name = |node: NodeId| &topology.nodes[node.index()].name;
        let mut route = |from: NodeId, to: NodeId, flow: u64| {
            router.route(from, to, flow).ok_or_else(|| {
                Error::Missing(format!("there is no route from {} to {}", name(from), name(to)))
            })
        };
        let (mut data_routes, mut ack_routes) = (Vec::new(), Vec::new());
        for (i, plan) in flows.iter().enumerate() {
            data_routes.push(route(plan.src, plan.dst, i as u64)?);
            if i < tcp_flows {
                ack_routes.push(route(plan.dst, plan.src, i as u64)?);
            }
        }
        let draw = |name: String| Stream::new(seed, trial, &name);
        let port_name = |port: usize| topology.port_name(PortId(port as u32));
        let delays = topology
            .links
            .iter()
            .enumerate()
            .map(|(i, link)| link.delay.draw(&mut draw(format!("link/{}/delay", port_name(2 * i)))));
        let (mut rates, mut schedules) = (Vec::new(), BTreeMap::new());
        for port in 0..2 * topology.links.len() {
            let link = &topology.links[port / 2];
            let mut stream = draw(format!("port/{}/rate", port_name(port)));
            let off = topology.rate_tolerance * (2.0 * stream.unit() - 1.0);
            rates.push(Rate::from_bits_per_sec_f64(link.rate.bits_per_sec() as f64 * (1.0 + off)));
            let capacity = if port.is_multiple_of(2) { &link.capacity } else { &link.capacity_back };
            if let Some(capacity) = capacity {
                schedules.insert(port, Schedule::new(capacity, link.rate, off));
            }
        }
        let delays = delays.collect();
        let mut plan = Self {
            flows,
            tcp_flows,
            data_routes,
            ack_routes,
            rates,
            schedules,
            delays,
            probe_routes: Vec::new(),
        };
        for role in plan.roles(scenario) {
            for to in role.probes() {
                let mut router = Router::new(topology);
                let ports = router.route(role.place.node, to, PROBE).unwrap_or_default();
                if ports.is_empty() {
                    let (from, to) = (name(role.place.node), name(to));
                    return Err(Error::Missing(format!("probes: there is no route from {from} to {to}")));
                }
                plan.probe_routes.push((role.place.node, to, ports));
            }
        }
        Ok(plan)
    }

    /// Gives UDP flows a way back too, for what the two ends say to each other.
    pub(crate) fn add_ways_back(&mut self, scenario: &Scenario) -> Result<(), Error> {
        let mut router = Router::new(&scenario.topology);
        for i in self.ack_routes.len()..self.flows.len() {
            let flow = &self.flows[i];
            let ports = router.route(flow.dst, flow.src, i as u64).ok_or_else(|| {
                let name = flow.name(&scenario.flows);
                Error::Missing(format!("flow {name}: there is no route back from its receiver"))
            })?;
            self.ack_routes.push(ports);
        }
        Ok(())
    }

    /// The roles of every scheme, new.
    pub(crate) fn roles(&self, scenario: &Scenario) -> Vec<Role> {
        let of_flow = |ports: &[u32]| ports.iter().map(|port| PortId(*port)).collect();
        let routes: Vec<Vec<PortId>> = self.tcp_routes().map(of_flow).collect();
        Role::all(&scenario.schemes, &self.inventory(scenario), &routes)
    }

    /// The network as the roles know it.
    pub(crate) fn inventory(&self, scenario: &Scenario) -> Inventory {
        Inventory::of(&scenario.topology, &self.rates)
    }

    /// The port whose queue is reported: the one the scenario names, or the router port that most TCP flows' data
    /// cross; the slowest, then the first, of equals.
    pub(crate) fn measured_port(&self, scenario: &Scenario) -> Option<usize> {
        let topology = &scenario.topology;
        if let Some(name) = &scenario.measure.queue {
            return topology.port(name).map(PortId::index);
        }
        topology.busiest_router_port(self.tcp_routes()).map(PortId::index)
    }

    fn tcp_routes(&self) -> impl Iterator<Item = &[u32]> {
        self.data_routes[..self.tcp_flows].iter().map(Vec::as_slice)
    }
}
