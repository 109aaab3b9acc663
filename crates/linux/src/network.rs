//! A scenario's network in namespaces: nodes, devices, addresses, routes and the kernel's shapers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use bandmaster_core::id::{NodeId, PortId};
use bandmaster_core::losses::Losses;
use bandmaster_core::measure::sojourn::Sojourns;
use bandmaster_core::params::Limit;
use bandmaster_core::port::PortProgram;
use bandmaster_core::port::flow_counter::FlowCounter;
use bandmaster_core::qdisc::{self, Discipline, Hosts, Site, fifo};
use bandmaster_core::rng::Stream;
use bandmaster_core::scenario::{Scenario, Transport};
use bandmaster_core::scheme::{Program, Role};
use bandmaster_core::topology::NodeKind;
use bandmaster_core::units::tcp_headers;

use crate::Error;
use crate::address;
use crate::cables::Far;
use crate::forwarder::PortPlan;
use crate::forwarder::gate::Gate;
use crate::htb::{Htb, Plan};
use crate::journal::Journal;
use crate::limits::parameters_of_nodes;
use crate::netns::{self, Netns};
use crate::packet_ring::{ETHERNET, PacketRing};
use crate::wiring::{RouteMetrics, Wiring};
use crate::workplan::Workplan;

/// Longest IP packet that every link carries, unless flows have longer ones.
const USUAL_MTU: u64 = 1500;

/// A network that exists. Dropping it takes all of it away.
pub(crate) struct Network {
    pub(crate) nodes: Vec<Netns>,
    /// The kernel's shapers, by port.
    pub(crate) shapers: BTreeMap<usize, Htb>,
    /// Flow counters of the ports whose node has a role that asks for them.
    pub(crate) flow_counters: BTreeMap<usize, Arc<Mutex<FlowCounter>>>,
    /// The other ends of the devices.
    far: Far,
    /// Takes the namespaces away when it is dropped.
    journal: Journal,
}

impl Network {
    /// Makes the network, and the ports of its links for the forwarder.
    pub(crate) fn build(
        scenario: &Scenario,
        trial: u32,
        plan: &Workplan,
        roles: &mut [Role],
    ) -> Result<(Self, PacketRing, Vec<PortPlan>), Error> {
        let topology = &scenario.topology;
        let (far, ring) = Far::new(longest_packet(scenario))?;
        let parameters = parameters_of_nodes(scenario, plan)?;
        let names: Vec<String> = topology.nodes.iter().map(|node| node.name.clone()).collect();
        let (journal, names) = Journal::begin(&names)?;
        let mut network = Self {
            nodes: Vec::new(),
            shapers: BTreeMap::new(),
            flow_counters: BTreeMap::new(),
            far,
            journal,
        };
        for (i, name) in names.iter().enumerate() {
            let node = NodeId(i as u32);
            let netns = network.journal.create(name)?;
            network.nodes.push(netns.clone());
            let own = parameters.get(&node);
            let far = &network.far;
            let shapers = netns.enter(|| {
                set_parameters(topology.nodes[i].kind, own.into_iter().flatten())?;
                equip(scenario, plan, node, far)
            })?;
            network.shapers.extend(shapers);
        }
        let mut ports = Vec::with_capacity(plan.links.rates.len());
        for port in 0..plan.links.rates.len() {
            ports.push(network.port(scenario, trial, plan, roles, port)?);
        }
        // What waits in the kernel's classes is not seen.
        if let Some(port) = plan.measured_port(scenario)
            && !network.shapers.contains_key(&port.index())
        {
            ports[port.index()].sojourns = Sojourns::of(scenario);
        }
        Ok((network, ring, ports))
    }

    fn port(
        &mut self,
        scenario: &Scenario,
        trial: u32,
        plan: &Workplan,
        roles: &mut [Role],
        port: usize,
    ) -> Result<PortPlan, Error> {
        let topology = &scenario.topology;
        let link = &topology.links[port / 2];
        let is_forth = port.is_multiple_of(2);
        let from = topology.transmitter(PortId(port as u32));
        let name = topology.port_name(PortId(port as u32));
        let stream = |what: &str| Stream::new(scenario.run.seed, trial, &format!("port/{name}/{what}"));
        let rate = plan.links.rates[port];
        let config = topology.queue(PortId(port as u32));
        let queue = if self.shapers.contains_key(&port) {
            // The kernel's classes are the queue; what has left them only waits for the transmitter.
            Discipline::Fifo(Box::new(fifo::DropTail { limit: Limit::Unlimited }))
        } else {
            let mut site = Site::new(rate, stream("queue"));
            if config.isolates_hosts() {
                site.hosts = Hosts::new(plan.flows.iter().map(|flow| (flow.src, flow.dst)));
            }
            config.build(site)
        };
        let queue = match queue {
            Discipline::Fifo(rule) => Box::new(fifo::Fifo::new(rule)),
            Discipline::Ordered(qdisc) => qdisc,
        };
        let overhead = topology.frame_overhead.get() as u32;
        let mut programs: Vec<Arc<Mutex<dyn PortProgram>>> = Vec::new();
        let mut gate = None;
        if roles.iter().any(|role| role.place.role.wants.ports && role.place.node == from) {
            let counter = Arc::new(Mutex::new(FlowCounter::new()));
            self.flow_counters.insert(port, counter.clone());
            programs.push(counter);
        }
        for role in roles {
            let own = |(at, _): &(PortId, Program)| at.index() == port;
            for (_, program) in role.built.programs.extract_if(.., |entry| own(entry)) {
                match program {
                    Program::Watch(program) => programs.push(Arc::new(Mutex::new(program))),
                    Program::Rewrite(program) => gate = Some(Gate::new(program, overhead)),
                }
            }
        }
        let tells_left = plan.probe_routes.iter().any(|(_, _, ports)| ports.first() == Some(&(port as u32)));
        let tells_came = plan.probe_routes.iter().any(|(_, _, ports)| ports.last() == Some(&(port as u32)));
        Ok(PortPlan {
            queue,
            rate,
            schedule: plan.links.schedules.get(&port).cloned(),
            delay: plan.links.delays[port / 2],
            losses: Losses::from_plan(link.losses(is_forth), stream),
            overhead,
            tells_left,
            tells_came,
            programs,
            gate,
            sojourns: None,
        })
    }

    /// Packets that devices dropped: those of nodes before the forwarder could read them, and the far ones of those that it handed over.
    pub(crate) fn dropped_by_devices(&self) -> (u64, u64) {
        let near = self.nodes.iter().filter_map(|netns| netns.enter(|| Ok(netns::unsent())).ok()).sum();
        (near, self.far.unsent())
    }
}

fn set_parameters<'a>(
    kind: NodeKind,
    own: impl Iterator<Item = (&'a &'static str, &'a String)>,
) -> Result<(), Error> {
    let forwards = if kind == NodeKind::Router { "1" } else { "0" };
    // Before any device is made: later ones take these over.
    netns::without_ipv6()?;
    for (name, value) in [
        // The way back may be another.
        ("net.ipv4.conf.all.rp_filter", "0"),
        ("net.ipv4.conf.default.rp_filter", "0"),
        ("net.ipv4.ip_forward", forwards),
        // A connection learns nothing from an earlier one.
        ("net.ipv4.tcp_no_metrics_save", "1"),
        ("net.ipv4.tcp_wmem", "4096 131072 33554432"),
    ] {
        netns::set_parameter(name, value)?;
    }
    for (name, value) in own {
        netns::set_parameter(name, value)?;
    }
    Ok(())
}

/// Makes devices, addresses, routes and shapers of a node, in its namespace; the shapers, by port.
fn equip(scenario: &Scenario, plan: &Workplan, node: NodeId, far: &Far) -> Result<Vec<(usize, Htb)>, Error> {
    let topology = &scenario.topology;
    let mut wiring = Wiring::new();
    let loopback = wiring.bring_up_loopback()?;
    wiring.add_address(loopback, address::node(node))?;
    for (i, flow) in plan.flows.iter().enumerate() {
        if flow.src == node {
            wiring.add_address(loopback, address::sender(i))?;
        }
        if flow.dst == node {
            wiring.add_address(loopback, address::receiver(i))?;
        }
    }
    let mtu = longest_packet(scenario);
    let mut shapers = Vec::new();
    let mut index_of = BTreeMap::new();
    for (i, link) in topology.links.iter().enumerate().filter(|(_, link)| link.a == node || link.b == node) {
        let device = format!("l{i}");
        let port = if link.a == node { 2 * i } else { 2 * i + 1 };
        index_of.insert(i, far.add(&mut wiring, &device, port, mtu)?);
        let queue = topology.queue(PortId(port as u32));
        if queue.discipline == &qdisc::htb::DEF {
            let overhead = topology.frame_overhead.get().min(255) as u8;
            let plan = Plan { overhead, uncounted: ETHERNET as u8, ..Plan::new(&queue.params) };
            shapers.push((port, Htb::create(&device, &plan)?));
        }
    }
    let mut add = |ports: &[u32], to, metrics: RouteMetrics| {
        for &port in ports.iter().filter(|port| scenario.topology.transmitter(PortId(**port)) == node) {
            wiring.add_route(index_of[&(port as usize / 2)], to, metrics)?;
        }
        Ok::<(), Error>(())
    };
    for (i, flow) in plan.flows.iter().enumerate() {
        let (mut forth, mut back) = (RouteMetrics::default(), RouteMetrics::default());
        if let Transport::Tcp { settings, .. } = &flow.group(&scenario.flows).transport {
            forth.initial_window = (flow.src == node).then_some(settings.initial_window);
            back.quick_acknowledgements = flow.dst == node && settings.delayed_ack == 1;
        }
        add(&plan.data_routes[i], address::receiver(i), forth)?;
        if let Some(ports) = plan.ack_routes.get(i) {
            add(ports, address::sender(i), back)?;
        }
    }
    for (_, to, ports) in &plan.probe_routes {
        add(ports, address::node(*to), RouteMetrics::default())?;
    }
    Ok(shapers)
}

fn longest_packet(scenario: &Scenario) -> u32 {
    let longest = scenario.flows.iter().map(|group| match &group.transport {
        Transport::Tcp { settings, .. } => settings.mss.get() + u64::from(tcp_headers(true)),
        Transport::Udp { packet, .. } => packet.get(),
    });
    longest.fold(USUAL_MTU, u64::max).min(65_535) as u32
}
