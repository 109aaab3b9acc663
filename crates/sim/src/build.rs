//! Builds the world of a trial from a scenario.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bandmaster_core::control::SegmentCounts;
use bandmaster_core::id::{NodeId, PortId};
use bandmaster_core::losses::Losses;
use bandmaster_core::measure::delays::{Delays, SojournIntervals};
use bandmaster_core::measure::meters::Meters;
use bandmaster_core::measure::rtt::RttSketch;
use bandmaster_core::measure::sojourn::Sojourns;
use bandmaster_core::memory;
use bandmaster_core::params::Value;
use bandmaster_core::plan::{self, Links};
use bandmaster_core::port::flow_counter::FlowCounter;
use bandmaster_core::propagation::Propagation;
use bandmaster_core::qdisc::{Hosts, Pool, Site};
use bandmaster_core::rng::Stream;
use bandmaster_core::runtime::Runner;
use bandmaster_core::runtime::inventory::Inventory;
use bandmaster_core::scenario::{FlowRows, Scenario};
use bandmaster_core::scheme::{Program, Role};
use bandmaster_core::time::{Span, Time};
use bandmaster_core::topology::{NodeKind, Topology};
use bandmaster_core::tuning::Tuning;
use bandmaster_core::units::Rate;
use bandmaster_core::workload::rounds::Rounds;

use crate::distributions::Distributions;
use crate::events::EventQueue;
use crate::exchange::Exchanges;
use crate::gates::Gates;
use crate::link::{PathCounter, Port, QueueWatch, SojournWatch};
use crate::net::{Net, ROUTE_END};
use crate::outages::Outages;
use crate::packet::Slab;
use crate::partition::{Partitioning, Separable};
use crate::probes::Probes;
use crate::routes::{Routes, STOP_CHECK, route_ports};
use crate::simulation::{Connections, Control, FlowLog, FlowTable, Part, Simulation, Udp, profiles};
use crate::workload::FlowPlan;
use crate::{RunError, RunOptions};

/// What is built.
pub(crate) enum Wanted<'p, 's> {
    /// The whole network.
    Whole,
    /// The first part of it; that it is divided into parts is found out.
    First,
    /// A part of this number, beside the first.
    Another(&'p Simulation<'s>, usize),
}

/// Builds trial `trial` of `scenario`, to be run with `options`.
pub(crate) fn build<'a>(
    scenario: &'a Scenario,
    trial: u32,
    wanted: &Wanted<'_, '_>,
    options: &RunOptions<'_>,
) -> Result<Simulation<'a>, RunError> {
    let topology = &scenario.topology;
    let (plans, tcp_flows) = plan::flows(scenario, trial);
    let hosts = hosts_of(topology, &plans);
    let (mut ports, rates, link_delays) = build_ports(scenario, trial, &hosts, options)?;
    let (mut routes, mut table) = (Routes::new(scenario, trial), Vec::new());
    let ways = routes.insert_flows(&plans, tcp_flows, None, &mut table, options)?;
    for way in table.split(|port| *port == ROUTE_END).filter(|way| !way.is_empty()) {
        let slowest = way.iter().map(|&port| ports[port as usize].nanos_per_byte()).max();
        ports[way[0] as usize].leads_over(slowest.unwrap_or_default());
    }

    // It costs seconds with a million nodes, and roles alone ask it.
    let is_asked = !scenario.schemes.is_empty();
    let inventory = if is_asked { Inventory::of(topology, &rates) } else { Inventory::default() };
    options.goes_on()?;
    let tcp_ways = || ways.0[..tcp_flows].iter().map(|&route| route_ports(&table, route));
    let mut roles = plan::roles(scenario, &inventory, tcp_ways());
    let all_ways = ways.0.iter().map(|&route| route_ports(&table, route));
    let measured_port = plan::measured_port(scenario, all_ways, tcp_flows);
    let gates = place_programs(topology, &mut roles, &mut ports);
    let probe_routes = routes.insert_probes(&roles, &mut table)?;
    count_probes(topology, &probe_routes, &table, &mut ports);
    let part = match wanted {
        Wanted::Whole => None,
        Wanted::First => {
            let ends = probe_routes.values().map(|place| route_ports(&table, *place));
            Some(Part::new(0, Arc::new(partitioning(scenario, &link_delays, &roles, ends))))
        }
        Wanted::Another(first, number) => {
            first.part.as_ref().map(|part| Part::new(*number, Arc::clone(&part.all)))
        }
    };
    if let Some(part) = &part {
        ports
            .iter_mut()
            .zip(&part.all.crosses)
            .filter(|(_, c)| **c)
            .for_each(|(port, _)| port.set_crossing());
    }
    options.goes_on()?;
    let delays = Delays::of(scenario, &plans);
    let meters = Meters::new(scenario, &plans, &roles, &rates, measured_port);
    let runner = Runner::new::<Simulation<'_>>(roles, inventory)
        .map_err(|lacks| RunError::Unrunnable(lacks.to_string()))?;
    if let Some(port) = measured_port {
        let extras = ports[port.index()].extras();
        extras.watch = Some(QueueWatch::default());
        extras.sojourns = Sojourns::of(scenario).map(|times| Box::new(SojournWatch::new(times)));
    }
    if let Some(delays) = &delays {
        watch_sojourns(scenario, delays, measured_port, &mut ports);
    }
    let captured_port = options.capture.as_ref().map(|(name, _)| find_port(topology, name)).transpose()?;
    if let Some(port) = captured_port {
        ports[port as usize].extras().capture = Some(Vec::new());
    }

    let (mut profiles, profile_of) = profiles(scenario);
    for profile in &mut profiles {
        profile.echoes_window = gates.is_echoed();
        profile.divides_at_timeout = gates.divides_at_timeout();
    }
    let exchanges = Exchanges::new(&plans, scenario, &profile_of, trial);
    match wanted {
        Wanted::Another(first, _) if routes.adopt(&first.routes) => table.clone_from(&first.net.routes),
        Wanted::Whole => {}
        Wanted::First | Wanted::Another(..) => find_all_ways(&exchanges, &mut routes, &mut table, options)?,
    }
    let mut net = Net {
        now: Time::ZERO,
        events: EventQueue::new(),
        ports,
        slab: Slab::default(),
        routes: table,
        starts: if exchanges.is_empty() { Vec::new() } else { vec![[0; 2]; tcp_flows] },
        offered: 0,
        windows: Vec::new(),
        rtts: if delays.is_some() || scenario.measure.flow_table == FlowRows::Rtt {
            vec![RttSketch::default(); tcp_flows]
        } else {
            Vec::new()
        },
        delays,
        multipath: Vec::new(),
        untold: Vec::new(),
    };
    if net.delays.is_some() {
        net.slab.note_departures();
    }
    let distributions = Distributions::new(scenario, tcp_flows, &mut net);
    let flow_log = FlowLog::new(scenario, options, plans.len(), &mut net);
    net.ports.iter_mut().for_each(Port::finish_setup);
    let number = part.as_ref().map(|part| part.number);
    let probes = Probes::new(probe_routes, scenario.probe_faults(trial, number));
    let nodes = topology.nodes.len();
    let control = Control {
        flows_of: flows_of(nodes, if runner.is_empty() { &[] } else { &plans[..tcp_flows] }, &exchanges),
        runner,
        post: scenario.post(trial, number),
        probes,
        gates,
        tunings: vec![Tuning::default(); nodes],
        segments_before: vec![SegmentCounts::default(); nodes],
        ports: (0..).map(|port| topology.transmitter(PortId(port))).zip(rates).collect(),
    };
    Ok(Simulation {
        scenario,
        net,
        connections: Connections::new(tcp_flows),
        udp: Udp::new(scenario, trial, &plans, &ways.0),
        routes,
        rounds: Rounds::new(&plans, scenario, trial),
        control,
        exchanges,
        meters,
        distributions,
        flow_log,
        rtts_told: vec![RttSketch::default(); scenario.flows.len()],
        captured_port,
        captured_messages: BTreeMap::new(),
        hosts,
        outages: Outages::new(scenario, trial),
        part: part.map(Box::new),
        flows: FlowTable::new(scenario, trial, plans, ways, (profiles, &profile_of)),
    })
}

/// Has times in the queues of the measured port and of others that the scenario names counted by sampling interval, and those of the
/// others over the run.
fn watch_sojourns(scenario: &Scenario, delays: &Delays, measured: Option<PortId>, ports: &mut [Port]) {
    let run = &scenario.run;
    for port in measured.iter().chain(&scenario.measure.ports) {
        let prefix = format!("{}.", scenario.topology.port_name(*port));
        let whole = (prefix, Time::ZERO + run.warm_up, Time::ZERO + run.duration);
        let of_run = scenario.measure.ports.contains(port).then_some(whole);
        let sojourns = &mut ports[port.index()].extras().sojourns;
        let Some(empty) = Sojourns::new(None) else { continue };
        let watch = sojourns.get_or_insert_with(|| Box::new(SojournWatch::new(empty)));
        watch.intervals = Some(SojournIntervals::new(delays.groups.clone(), run.sample));
        watch.of_port = Sojourns::new(of_run);
    }
}

/// By node: the flows of `tcp` that begin or end there.
fn flows_of(nodes: usize, tcp: &[FlowPlan], exchanges: &Exchanges) -> Vec<Vec<u32>> {
    let mut flows_of = vec![Vec::new(); nodes];
    for (flow, plan) in (0..).zip(tcp) {
        flows_of[plan.src.index()].push(flow);
        if !exchanges.contains(flow) || exchanges.is_persistent(flow) {
            flows_of[plan.dst.index()].push(flow);
        }
    }
    flows_of
}

/// Puts the programs of roles at their ports, and flow counters where roles ask for them.
fn place_programs(topology: &Topology, roles: &mut [Role], ports: &mut [Port]) -> Gates {
    let mut gates = Gates::default();
    for (port, program) in roles.iter_mut().flat_map(|role| role.built.programs.drain(..)) {
        match program {
            Program::Watch(program) => ports[port.index()].extras().programs.push(program),
            Program::Rewrite(program) => gates.add(port, program, ports.len()),
        }
    }
    let wants = roles.iter().filter(|role| role.place.role.wants.ports);
    let wants: BTreeSet<NodeId> = wants.map(|role| role.place.node).collect();
    for (number, port) in (0..).zip(ports) {
        if wants.contains(&topology.transmitter(PortId(number))) {
            port.extras().flow_counter = Some(FlowCounter::new());
        }
    }
    gates
}

/// Installs counters at the first and the last port of every route of probes.
fn count_probes(
    topology: &Topology,
    ways: &BTreeMap<(NodeId, NodeId), u32>,
    table: &[u32],
    ports: &mut [Port],
) {
    let overhead = topology.frame_overhead.get() as u32;
    for way in ways.values() {
        let on_way = route_ports(table, *way);
        for (port, tells) in [(on_way.last(), false), (on_way.first(), true)] {
            let Some(&port) = port else { continue };
            let path = &mut ports[port as usize].extras().path;
            path.get_or_insert_with(|| PathCounter::new(overhead)).tells |= tells;
        }
    }
}

/// Hosts of the flows, where a port's discipline asks for them.
fn hosts_of(topology: &Topology, plans: &[FlowPlan]) -> Hosts {
    let mut ports = (0..2 * topology.links.len() as u32).map(PortId);
    if ports.any(|port| topology.queue(port).isolates_hosts()) {
        Hosts::new(plans.iter().map(|plan| (plan.src, plan.dst)))
    } else {
        Hosts::default()
    }
}

/// Every port, its rate, and by link its delay.
type BuiltPorts = (Vec<Port>, Vec<Rate>, Vec<Span>);

fn build_ports(
    scenario: &Scenario,
    trial: u32,
    hosts: &Hosts,
    options: &RunOptions<'_>,
) -> Result<BuiltPorts, RunError> {
    let topology = &scenario.topology;
    let (mut links, mut ports) = (Links::default(), Vec::with_capacity(2 * topology.links.len()));
    let pools: Vec<Pool> = topology.nodes.iter().map(|_| Pool::default()).collect();
    for (i, link) in topology.links.iter().enumerate() {
        if i.is_multiple_of(STOP_CHECK) {
            options.goes_on()?;
        }
        links.draw_next(scenario, trial);
        for direction in 0..2 {
            let number = 2 * i + direction;
            let name = topology.port_name(PortId(number as u32));
            let stream = |what: &str| Stream::new(scenario.run.seed, trial, &format!("port/{name}/{what}"));
            let owner = if direction == 0 { link.a } else { link.b };
            let is_host = topology.nodes[owner.index()].kind == NodeKind::Host;
            let queue = topology.queue(PortId(number as u32));
            let limit = match queue.params.get("limit") {
                Some(Value::Limit(limit))
                    if queue.discipline.name == "fifo"
                        && ["ecn-threshold", "push-out"]
                            .iter()
                            .all(|key| queue.params.get(key).is_none()) =>
                {
                    Some(*limit)
                }
                _ => None,
            };
            let rate = links.rates[number];
            let pool = pools[owner.index()].clone();
            let site = Site { rate, stream: stream("queue"), pool, hosts: hosts.clone() };
            let mut port = Port::new(rate, links.delays[i], queue.build(site), limit);
            if let Some(schedule) = links.schedules.remove(&number) {
                port.set_schedule(schedule);
            }
            if is_host {
                let host = &topology.nodes[owner.index()].name;
                let jitter = Stream::new(scenario.run.seed, trial, &format!("host/{host}/{name}/processing"));
                port.set_jitter(topology.host_delay, jitter);
            }
            if let Some(losses) = Losses::from_plan(link.losses(direction == 0), stream) {
                port.set_losses(losses);
            }
            if let Some(propagation) = Propagation::new(link.variation, links.delays[i], stream) {
                port.set_propagation(propagation);
            }
            ports.push(port);
        }
    }
    Ok((ports, links.rates, links.delays))
}

/// The parts that the scenario asks for. Ports that share memory, and those of a router with a role, stay together; so do both
/// ends of the first and the last link on the ways of `probes`, where data are counted.
fn partitioning<'t>(
    scenario: &Scenario,
    delays: &[Span],
    roles: &[Role],
    probes: impl Iterator<Item = &'t [u32]>,
) -> Partitioning {
    let topology = &scenario.topology;
    let mut delays: Vec<Option<Span>> = (topology.links.iter().zip(delays))
        .map(|(link, delay)| link.variation.is_none().then_some(*delay))
        .collect();
    for port in probes.flat_map(|way| [way.first(), way.last()]).flatten() {
        delays[*port as usize / 2] = None;
    }
    let mut bound = vec![false; topology.nodes.len()];
    roles.iter().for_each(|role| bound[role.place.node.index()] = true);
    for port in (0..2 * topology.links.len() as u32).map(PortId) {
        if topology.queue(port).shares_memory() {
            bound[topology.transmitter(port).index()] = true;
        }
    }
    Partitioning::new(
        topology,
        scenario.run.partitions as usize,
        &Separable { delays: &delays, bound: &bound },
    )
}

/// Finds the ways between all hosts that exchange messages, so that the table of routes of every part is the same.
fn find_all_ways(
    exchanges: &Exchanges,
    routes: &mut Routes<'_>,
    table: &mut Vec<u32>,
    options: &RunOptions<'_>,
) -> Result<(), RunError> {
    for number in 0..exchanges.len() {
        // Hosts met so far, by the router whose ways they share.
        let mut met: BTreeMap<u32, u32> = BTreeMap::new();
        for (position, from) in exchanges.hosts(number).enumerate() {
            options.goes_on()?;
            let is_known = routes.gateway(from).is_some_and(|gateway| {
                let met = met.entry(gateway).or_default();
                *met += 1;
                // The first has been led to all others, the second to the first.
                *met > 2
            });
            if is_known {
                continue;
            }
            for (to, key) in exchanges.pairs(number, position) {
                routes.way(from, to, key, table);
                routes.way(to, from, key, table);
                if table.len() as u64 > memory::MOST_ROUTE_PORTS {
                    return Err(RunError::Unrunnable(
                        "run.partitions: the ways of an exchange in this network take too much memory".into(),
                    ));
                }
            }
        }
    }
    Ok(())
}

fn find_port(topology: &Topology, name: &str) -> Result<u32, RunError> {
    match topology.port(name) {
        Some(port) => Ok(port.0),
        None => Err(RunError::Unrunnable(format!("there is no port `{name}`; a port is written `from->to`"))),
    }
}
