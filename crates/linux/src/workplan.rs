//! Flows and their routes, as the simulator lays them out.

use std::collections::BTreeSet;

use bandmaster_core::id::{NodeId, PortId};
use bandmaster_core::plan::{self, Links, ProbeRoute};
use bandmaster_core::routing::Router;
use bandmaster_core::runtime::inventory::Inventory;
use bandmaster_core::scenario::Scenario;
use bandmaster_core::scheme::Role;
use bandmaster_core::units::Bytes;
use bandmaster_core::workload::{FlowPlan, ways};

use crate::Error;
use crate::address::MOST_FLOWS;

/// What happens in a trial.
pub(crate) struct Workplan {
    /// TCP flows first, then UDP.
    pub(crate) flows: Vec<FlowPlan>,
    pub(crate) tcp_flows: usize,
    /// Payload that each has to send; none: without end.
    pub(crate) sizes: Vec<Option<u64>>,
    /// Ports that carry a flow's data, per flow.
    pub(crate) data_routes: Vec<Vec<u32>>,
    /// Ports that carry a TCP flow's acknowledgements, per flow; for UDP flows see [`Workplan::add_ways_back`].
    pub(crate) ack_routes: Vec<Vec<u32>>,
    pub(crate) links: Links,
    pub(crate) probe_routes: Vec<ProbeRoute>,
}

impl Workplan {
    pub(crate) fn new(scenario: &Scenario, trial: u32) -> Result<Self, Error> {
        let topology = &scenario.topology;
        let (flows, tcp_flows) = plan::flows(scenario, trial);
        if flows.len() > MOST_FLOWS {
            let many = flows.len();
            return Err(Error::Missing(format!(
                "{many} flows; at most {MOST_FLOWS} have addresses of their own"
            )));
        }
        let mut router = Router::new(scenario, trial);
        let groups = &scenario.flows;
        let (mut data_routes, mut ack_routes): (Vec<Vec<u32>>, Vec<Vec<u32>>) = (Vec::new(), Vec::new());
        for (i, way) in ways(&flows, groups).enumerate() {
            if way < i {
                data_routes.push(data_routes[way].clone());
                ack_routes.push(ack_routes[way].clone());
                continue;
            }
            data_routes.push(route(&mut router, scenario, &flows[i], i, false)?);
            if i < tcp_flows {
                ack_routes.push(route(&mut router, scenario, &flows[i], i, true)?);
            }
        }
        let name = |node: NodeId| &topology.nodes[node.index()].name;
        let links = Links::draw(scenario, trial);
        let sizes = flows.iter().map(|flow| flow.size(scenario, trial).map(Bytes::get)).collect();
        let mut all =
            Self { flows, tcp_flows, sizes, data_routes, ack_routes, links, probe_routes: Vec::new() };
        all.probe_routes = plan::probe_routes(&mut router, &all.roles(scenario)).map_err(|(from, to)| {
            Error::Missing(format!("probes: there is no route from {} to {}", name(from), name(to)))
        })?;
        Ok(all)
    }

    /// Gives UDP flows a way back too, for what the two ends say to each other.
    pub(crate) fn add_ways_back(&mut self, scenario: &Scenario, trial: u32) -> Result<(), Error> {
        let mut router = Router::new(scenario, trial);
        for i in self.ack_routes.len()..self.flows.len() {
            self.ack_routes.push(route(&mut router, scenario, &self.flows[i], i, true)?);
        }
        Ok(())
    }

    /// The roles of every scheme, new.
    pub(crate) fn roles(&self, scenario: &Scenario) -> Vec<Role> {
        plan::roles(scenario, &self.inventory(scenario), self.tcp_routes())
    }

    /// The network as the roles know it.
    pub(crate) fn inventory(&self, scenario: &Scenario) -> Inventory {
        Inventory::of(&scenario.topology, &self.links.rates)
    }

    /// The port whose queue is reported.
    pub(crate) fn measured_port(&self, scenario: &Scenario) -> Option<PortId> {
        plan::measured_port(scenario, self.data_routes.iter().map(Vec::as_slice), self.tcp_flows)
    }

    fn tcp_routes(&self) -> impl Iterator<Item = &[u32]> {
        self.data_routes[..self.tcp_flows].iter().map(Vec::as_slice)
    }
}

/// The ports of flow `number`'s data, or in `reverse` of what comes back.
fn route(
    router: &mut Router<'_>,
    scenario: &Scenario,
    flow: &FlowPlan,
    number: usize,
    reverse: bool,
) -> Result<Vec<u32>, Error> {
    let topology = &scenario.topology;
    let (from, to) = if reverse { (flow.dst, flow.src) } else { (flow.src, flow.dst) };
    let name = |node: NodeId| &topology.nodes[node.index()].name;
    let refuse = |why: String| Error::Missing(format!("flow {}: {why}", flow.name(&scenario.flows)));
    let ports = router
        .of_flow(flow, &scenario.flows, number as u64, reverse)
        .ok_or_else(|| refuse(format!("there is no route from {} to {}", name(from), name(to))))?;
    let mut passed = BTreeSet::new();
    for port in &ports {
        let node = topology.transmitter(PortId(*port));
        if !passed.insert(node) {
            return Err(refuse(format!(
                "its way passes {} twice, and a Linux router has one route to an address; `run` simulates it",
                name(node)
            )));
        }
    }
    Ok(ports)
}
