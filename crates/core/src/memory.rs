//! What a trial needs of memory: an upper bound that is known before it runs.

use crate::outages::most_turns;
use crate::scenario::{FlowGroup, FlowRows, Pairing, Scenario, Transport};
use crate::topology::{Node, NodeKind};
use crate::workload::SETS;

/// The most that the trials of a scenario may need each, in bytes.
pub const MOST_BYTES: u64 = 8 << 30;

/// The most packets that may be on their way at one time. A simulation with more of them ends with an error: they wait in
/// an unlimited queue that is sent more than it can carry.
pub const MOST_PACKETS: u64 = 4 << 20;

/// The most ports of routes, in all that flows take one after the other as links and nodes fail. A simulation with more of them
/// ends with an error.
pub const MOST_ROUTE_PORTS: u64 = 16 << 20;

/// Of a node, with what roles learn about it.
const NODE: u64 = 1 << 10;
/// Of a link: two ports with their queues and what is measured at them.
const LINK: u64 = 5 << 10;
/// Of a flow: its two ends, its way, its meters.
const FLOW: u64 = 3 << 10;
/// Of the round-trip times of a flow.
const RTT: u64 = 5 << 9;
/// Of a packet on its way: itself, its place in a ring or queue that doubles, what its sender keeps of it.
const PACKET: u64 = 400;
/// Of a sample of a series, which doubles.
const SAMPLE: u64 = 8;
/// Of a node in the table of ways to another: its distance, and where paths are numbered how many there are.
const DISTANCE: u64 = 4;
const PATHS: u64 = 8;
/// Of a port of a route that a flow takes after a failure, with what finds equal routes again.
const ROUTE_PORT: u64 = 48;
/// Metrics that are sampled of an entity; and those of no entity.
const SERIES: u64 = 12;
/// What there is of one trial in any case.
const BASE: u64 = 8 << 20;

/// At most so many bytes are needed for a trial of `scenario`, in a simulation.
pub fn most(scenario: &Scenario) -> u64 {
    let topology = &scenario.topology;
    let (nodes, links) = (topology.nodes.len() as u64, topology.links.len() as u64);
    let (mut flows, mut packets, mut entities) = (0u64, 0u64, 2 + scenario.measure.gauges.len() as u64);
    let duration = scenario.run.duration.as_secs_f64();
    for group in &scenario.flows {
        let count = flows_of(group, scenario);
        flows = flows.saturating_add(count);
        entities += group.from.len() as u64;
        let each = match &group.transport {
            Transport::Tcp { settings, .. } => {
                let scaled = if settings.window_scaling { u64::MAX } else { u64::from(u16::MAX) };
                settings.receive_buffer.get().min(scaled) / settings.mss.get().max(1) + 2
            }
            Transport::Udp { rate, packet, .. } => {
                (rate.bits_per_sec() as f64 * duration / (8 * packet.get().max(1)) as f64) as u64 + 1
            }
        };
        packets = packets.saturating_add(count.saturating_mul(each).saturating_mul(2));
    }
    let samples = scenario.run.duration.as_nanos() / scenario.run.sample.as_nanos().max(1) + 1;
    // Each part of a divided network knows all of it.
    let parts = u64::from(scenario.run.partitions);
    [
        (parts.saturating_mul(nodes), NODE),
        (parts.saturating_mul(links), LINK),
        (parts.saturating_mul(flows), FLOW),
        (if scenario.measure.flow_table == FlowRows::Rtt { parts.saturating_mul(flows) } else { 0 }, RTT),
        (packets.min(MOST_PACKETS), PACKET),
        (samples.saturating_mul(entities), SERIES * SAMPLE),
        (
            parts.saturating_mul(ways(scenario, nodes)),
            if counts_paths(scenario) { DISTANCE + PATHS } else { DISTANCE },
        ),
        (parts.saturating_mul(route_ports(scenario, flows, nodes)), ROUTE_PORT),
        // Messages without a way take one as if nothing had failed.
        (if scenario.faults.outages.is_empty() { 0 } else { ways(scenario, nodes) }, DISTANCE),
    ]
    .into_iter()
    .fold(BASE, |sum, (count, bytes)| sum.saturating_add(count.saturating_mul(bytes)))
}

/// Ports of routes that `flows` take after the first, there and back.
fn route_ports(scenario: &Scenario, flows: u64, nodes: u64) -> u64 {
    if scenario.faults.outages.is_empty() {
        return 0;
    }
    // Every message of an exchange may find its own.
    if scenario.flows.iter().any(|group| group.exchange.is_some()) {
        return MOST_ROUTE_PORTS;
    }
    most_turns(scenario).saturating_mul(flows).saturating_mul(2 * nodes).min(MOST_ROUTE_PORTS)
}

/// The most flows, with their restarts, that a group makes.
fn flows_of(group: &FlowGroup, scenario: &Scenario) -> u64 {
    if let Some(list) = &group.list {
        return list.len() as u64;
    }
    let hosts = |names: &[String]| -> u64 {
        let members = names.iter().filter_map(|name| scenario.topology.members(name));
        members.map(|members| members.len() as u64).sum()
    };
    let (senders, receivers) = (hosts(&group.from), hosts(&group.to));
    if let Some(arrivals) = group.arrivals {
        let expected =
            senders as f64 * scenario.run.duration.as_secs_f64() / arrivals.interval.mean().max(1e-9);
        // Six standard deviations of a Poisson process.
        return (expected + 6.0 * expected.sqrt() + 100.0) as u64;
    }
    let pairs = match group.pairing {
        Pairing::OneToOne | Pairing::Permutation => senders,
        Pairing::AllToAll => senders.saturating_mul(receivers),
        Pairing::Exchange if group.persistent => senders.saturating_mul(senders.saturating_sub(1)),
        // One after the other.
        Pairing::Exchange => senders,
    };
    let each = group.each();
    let subflows = group.multipath.map_or(1, |multipath| u64::from(multipath.subflows));
    let sets = group.rounds.map_or(1, |rounds| u64::from(rounds.min(SETS)));
    let restarts: f64 = group.timeline.iter().map(|step| step.start).sum();
    let flows = pairs.saturating_mul(u64::from(each) * subflows * sets);
    flows.saturating_add((flows as f64 * restarts) as u64)
}

/// Whether subflows take paths by number.
fn counts_paths(scenario: &Scenario) -> bool {
    let mut multipath = scenario.flows.iter().filter_map(|group| group.multipath);
    multipath.any(|multipath| multipath.distinct_paths)
}

/// Numbers in the tables of shortest ways: one for each node, for every router and every host with several links.
fn ways(scenario: &Scenario, nodes: u64) -> u64 {
    let topology = &scenario.topology;
    let mut links = vec![0u32; topology.nodes.len()];
    topology.links.iter().for_each(|link| {
        links[link.a.index()] += 1;
        links[link.b.index()] += 1;
    });
    let is_end = |(node, links): &(&Node, u32)| node.kind == NodeKind::Router || *links > 1;
    let ends = topology.nodes.iter().zip(links).filter(is_end).count() as u64;
    ends.saturating_mul(nodes)
}
