//! Builds the world of a trial from a scenario.

use std::collections::BTreeMap;

use bandmaster_core::control::SegmentCounts;
use bandmaster_core::id::PortId;
use bandmaster_core::params::Value;
use bandmaster_core::port::flow_counter::FlowCounter;
use bandmaster_core::qdisc::{Pool, Site};
use bandmaster_core::rng::Stream;
use bandmaster_core::runtime::Runner;
use bandmaster_core::runtime::inventory::Inventory;
use bandmaster_core::scenario::{FlowGroup, Scenario, Transport};
use bandmaster_core::scheme::{Program, Role};
use bandmaster_core::time::Time;
use bandmaster_core::topology::{NodeKind, Topology};
use bandmaster_core::tuning::Tuning;
use bandmaster_core::units::{Bytes, Rate};

use crate::RunError;
use crate::distributions::Distributions;
use crate::events::EventQueue;
use crate::exchange::Exchanges;
use crate::gates::Gates;
use crate::link::{PathCounter, Port, QueueWatch};
use crate::measure::{GaugeMeter, Meter};
use crate::net::Net;
use crate::packet::Slab;
use crate::probes::Probes;
use crate::rounds::Rounds;
use crate::routes::{Routes, route_ports};
use crate::simulation::{Connections, Simulation};
use crate::tcp::Profile;
use crate::workload::{self, FlowPlan, Jitter, Toggles, UdpSource};

/// Builds trial `trial` of `scenario`; `capture` names a port to copy packets from.
pub(crate) fn build<'a>(
    scenario: &'a Scenario,
    trial: u32,
    capture: Option<&str>,
) -> Result<Simulation<'a>, RunError> {
    let topology = &scenario.topology;
    let seed = scenario.run.seed;
    let (mut ports, rates) = build_ports(topology, seed, trial);
    let port_owner = topology.links.iter().flat_map(|link| [link.a, link.b]).collect::<Vec<_>>();

    let mut plans = workload::plan(&scenario.flows, topology, &scenario.run, trial);
    let is_tcp = |plan: &FlowPlan| matches!(plan.group(&scenario.flows).transport, Transport::Tcp { .. });
    plans.sort_by_key(|plan| !is_tcp(plan));
    let tcp_flows = plans.iter().filter(|plan| is_tcp(plan)).count();

    let mut routes = Routes::new(scenario);
    let mut table = Vec::new();
    let mut data_routes = Vec::with_capacity(plans.len());
    let mut ack_routes = Vec::with_capacity(tcp_flows);
    for (i, plan) in plans.iter().enumerate() {
        // The sets of flows that an incast's rounds use in turn take the same ways.
        let i = first_of(&plans, i, &scenario.flows);
        if i < data_routes.len() {
            data_routes.push(data_routes[i]);
            ack_routes.push(ack_routes[i]);
            continue;
        }
        data_routes.push(routes.insert(plan, i, false, &mut table)?);
        if i < tcp_flows {
            ack_routes.push(routes.insert(plan, i, true, &mut table)?);
        }
    }

    let overhead = topology.frame_overhead.get() as u32;
    let has_schemes = !scenario.schemes.is_empty();
    let mut profiles = Vec::new();
    let profile_of_group: Vec<u32> = scenario
        .flows
        .iter()
        .map(|group| {
            if let Transport::Tcp { settings, .. } = &group.transport {
                let profile = Profile::new(settings.clone(), group.dscp, has_schemes, overhead);
                profiles.push(if group.multipath.is_some() { profile.with_multipath() } else { profile });
            }
            profiles.len().saturating_sub(1) as u32
        })
        .collect();
    let profile_of = plans[..tcp_flows].iter().map(|plan| profile_of_group[plan.group_index()]).collect();
    let udp = plans
        .iter()
        .enumerate()
        .filter_map(|(i, plan)| {
            let jitter = Jitter::new(plan, scenario, trial);
            UdpSource::new(i as u32, data_routes[i], plan.group(&scenario.flows), jitter)
        })
        .collect();
    let toggles = Toggles::new(&plans, scenario, trial);
    let has_multipath = scenario.flows.iter().any(|group| group.multipath.is_some());
    let shares = if has_multipath { vec![None; tcp_flows] } else { Vec::new() };
    let rounds = Rounds::new(&plans, scenario, topology, trial);

    let inventory = Inventory::of(topology, &rates);
    let mut roles = if has_schemes {
        let of_flow = |route: &u32| route_ports(&table, *route).iter().map(|port| PortId(*port)).collect();
        let routes: Vec<Vec<PortId>> = data_routes[..tcp_flows].iter().map(of_flow).collect();
        Role::all(&scenario.schemes, &inventory, &routes)
    } else {
        Vec::new()
    };
    let mut gates = Gates::default();
    for (port, program) in roles.iter_mut().flat_map(|role| role.built.programs.drain(..)) {
        match program {
            Program::Watch(program) => ports[port.index()].extras().programs.push(program),
            Program::Rewrite(program) => gates.add(port, program, ports.len()),
        }
    }
    for profile in &mut profiles {
        profile.echoes_window = gates.is_echoed();
    }
    for role in roles.iter().filter(|role| role.place.role.wants.ports) {
        for (port, _) in ports.iter_mut().zip(&port_owner).filter(|(_, owner)| **owner == role.place.node) {
            port.extras().flow_counter.get_or_insert_with(FlowCounter::new);
        }
    }
    let mut probe_routes = BTreeMap::new();
    for (from, to) in roles.iter().flat_map(|role| role.probes().map(|to| (role.place.node, to))) {
        let route = routes.insert_probe(from, to, &mut table)?;
        probe_routes.insert((from, to), route);
        let on_way = route_ports(&table, route);
        if let (Some(&first), Some(&last)) = (on_way.first(), on_way.last()) {
            for (port, tells) in [(last, false), (first, true)] {
                let path = &mut ports[port as usize].extras().path;
                path.get_or_insert_with(|| PathCounter::new(overhead)).tells |= tells;
            }
        }
    }
    let gauge_meter = GaugeMeter::new(scenario, roles.iter().map(|role| role.place.node));
    let runner = Runner::new::<Simulation<'_>>(roles, inventory)
        .map_err(|lacks| RunError::Unrunnable(lacks.to_string()))?;

    let measured_port = match &scenario.measure.queue {
        Some(name) => Some(find_port(topology, name)?),
        None => {
            let of_tcp = data_routes[..tcp_flows].iter().map(|&route| route_ports(&table, route));
            topology.busiest_router_port(of_tcp).map(|port| port.0)
        }
    };
    if let Some(port) = measured_port {
        ports[port as usize].extras().watch = Some(QueueWatch::default());
    }
    let captured_port = capture.map(|name| find_port(topology, name)).transpose()?;
    if let Some(port) = captured_port {
        ports[port as usize].extras().capture = Some(Vec::new());
    }
    let meter = Meter::new(scenario, &plans);
    let inelastic = vec![0.0; ports.len()];
    let datagrams_received = vec![0; plans.len() - tcp_flows];
    let exchanges = Exchanges::new(&plans, scenario, &profile_of_group, trial);
    let mut net = Net {
        now: Time::ZERO,
        events: EventQueue::new(),
        ports,
        slab: Slab::default(),
        routes: table,
        starts: if exchanges.is_empty() { Vec::new() } else { vec![[0; 2]; tcp_flows] },
        offered: 0,
        windows: Vec::new(),
        multipath: Vec::new(),
    };
    let distributions = Distributions::new(scenario, tcp_flows, &mut net);
    net.ports.iter_mut().for_each(Port::finish_setup);
    let came = vec![0; if scenario.flows.iter().any(|group| group.need.is_some()) { tcp_flows } else { 0 }];
    let sizes = if scenario.flows.iter().any(|group| group.size_cdf.is_some()) {
        let size = |plan: &FlowPlan| plan.size(scenario, trial).map_or(0, Bytes::get);
        plans[..tcp_flows].iter().map(size).collect()
    } else {
        Vec::new()
    };
    let mut flows_of = vec![Vec::new(); topology.nodes.len()];
    if !runner.is_empty() {
        for (flow, plan) in (0..).zip(&plans[..tcp_flows]) {
            flows_of[plan.src.index()].push(flow);
            if !exchanges.contains(flow) {
                flows_of[plan.dst.index()].push(flow);
            }
        }
    }
    Ok(Simulation {
        scenario,
        net,
        tunings: vec![Tuning::default(); topology.nodes.len()],
        tuned: Vec::new(),
        flows_of,
        segments_before: vec![SegmentCounts::default(); topology.nodes.len()],
        plans,
        routes,
        exchanges,
        connections: Connections::new(tcp_flows),
        data_routes,
        ack_routes,
        profile_of,
        profiles,
        datagrams_received,
        udp,
        toggles,
        gates,
        rounds,
        shares,
        runner,
        post: scenario.post(trial),
        probes: Probes::new(probe_routes, scenario.probe_faults(trial)),
        meter,
        gauge_meter,
        distributions,
        background: 0.0,
        beside: 0.0,
        came,
        sizes,
        measured_port,
        captured_port,
        rates,
        port_owner,
        inelastic,
    })
}

/// The flow of the first set that has the same place as `flow` in a later one.
fn first_of(plans: &[FlowPlan], flow: usize, groups: &[FlowGroup]) -> usize {
    let plan = &plans[flow];
    if plan.group(groups).rounds.is_none() || plan.set() == 0 {
        return flow;
    }
    // A sending group's sets stand one after the other.
    let size =
        plans[..flow].iter().rev().take_while(|p| p.source() == plan.source() && p.set() == plan.set());
    let before = size.count();
    let previous = plans[..flow - before].iter().rev().take_while(|p| p.source() == plan.source());
    flow - before - previous.count() + before
}

fn build_ports(topology: &Topology, seed: u64, trial: u32) -> (Vec<Port>, Vec<Rate>) {
    let mut ports = Vec::with_capacity(2 * topology.links.len());
    let mut rates = Vec::with_capacity(2 * topology.links.len());
    let pools: Vec<Pool> = topology.nodes.iter().map(|_| Pool::default()).collect();
    for (i, link) in topology.links.iter().enumerate() {
        let name = topology.port_name(PortId(2 * i as u32));
        let delay = link.delay.draw(&mut Stream::new(seed, trial, &format!("link/{name}/delay")));
        for direction in 0..2 {
            let name = topology.port_name(PortId(2 * i as u32 + direction));
            let stream = |what: &str| Stream::new(seed, trial, &format!("port/{name}/{what}"));
            let owner = if direction == 0 { link.a } else { link.b };
            let is_host = topology.nodes[owner.index()].kind == NodeKind::Host;
            let queue = if is_host { &link.host_queue } else { &link.queue };
            let limit = match queue.params.get("limit") {
                Some(Value::Limit(limit))
                    if queue.discipline.name == "fifo" && queue.params.get("ecn-threshold").is_none() =>
                {
                    Some(*limit)
                }
                _ => None,
            };
            let off = topology.rate_tolerance * (2.0 * stream("rate").unit() - 1.0);
            let rate = Rate::from_bits_per_sec_f64(link.rate.bits_per_sec() as f64 * (1.0 + off));
            let site = Site { rate, stream: stream("queue"), pool: pools[owner.index()].clone() };
            let mut port = Port::new(rate, delay, queue.build(site), limit);
            let capacity = if direction == 0 { &link.capacity } else { &link.capacity_back };
            if let Some(capacity) = capacity {
                port.set_capacity(capacity, link.rate, off);
            }
            if is_host {
                let host = &topology.nodes[owner.index()].name;
                let jitter = Stream::new(seed, trial, &format!("host/{host}/{name}/processing"));
                port.set_jitter(topology.host_delay, jitter);
            }
            let script = if direction == 0 { link.drop_packets.clone() } else { Vec::new() };
            if link.loss > 0.0 || !script.is_empty() {
                let loss = (link.loss > 0.0).then(|| (link.loss, stream("loss")));
                port.set_losses(loss, script);
            }
            ports.push(port);
            rates.push(rate);
        }
    }
    (ports, rates)
}

fn find_port(topology: &Topology, name: &str) -> Result<u32, RunError> {
    match topology.port(name) {
        Some(port) => Ok(port.0),
        None => Err(RunError::Unrunnable(format!("there is no port `{name}`; a port is written `from->to`"))),
    }
}
