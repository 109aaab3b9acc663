//! The network as switches tell of it: who is at each of their ports, and what each port can send.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::statistic::TopologyState;
use super::wire::PortLink;
use crate::id::NodeId;

/// Of the ports that each switch tells of.
pub(super) fn of_switches(ports: &BTreeMap<NodeId, Vec<PortLink>>) -> Option<TopologyState> {
    if ports.is_empty() {
        return None;
    }
    let is_switch = |to: u32| ports.contains_key(&NodeId(to));
    let all = || ports.values().flatten();
    let between_switches = all().filter(|port| is_switch(port.to)).count();
    let to_hosts = all().count() - between_switches;
    let ratio = |own: &Vec<PortLink>| {
        let sum = |switches: bool| {
            own.iter().filter(|port| is_switch(port.to) == switches).map(PortLink::bits_per_sec).sum::<f64>()
        };
        (sum(false) > 0.0 && sum(true) > 0.0).then(|| sum(false) / sum(true))
    };
    Some(TopologyState {
        // Both ends tell of a link between switches.
        links: (to_hosts + between_switches.div_ceil(2)) as f64,
        hops: hops(ports),
        oversubscription: ports.values().filter_map(ratio).max_by(f64::total_cmp),
    })
}

/// Links between the hosts that are furthest apart; none when there are fewer than two, or no way.
fn hops(ports: &BTreeMap<NodeId, Vec<PortLink>>) -> Option<f64> {
    let hosts_at = |switch: &NodeId| {
        let ends = ports[switch].iter().map(|port| NodeId(port.to)).filter(|to| !ports.contains_key(to));
        ends.collect::<BTreeSet<NodeId>>().len()
    };
    let edges: BTreeMap<&NodeId, usize> =
        ports.keys().map(|switch| (switch, hosts_at(switch))).filter(|(_, hosts)| *hosts > 0).collect();
    if edges.values().sum::<usize>() < 2 {
        return None;
    }
    let mut most = 0;
    for (from, hosts) in &edges {
        let mut distance = BTreeMap::from([(**from, 0)]);
        let mut queue = VecDeque::from([**from]);
        while let Some(switch) = queue.pop_front() {
            let far = distance[&switch];
            for to in ports[&switch].iter().map(|port| NodeId(port.to)) {
                if ports.contains_key(&to) && !distance.contains_key(&to) {
                    distance.insert(to, far + 1);
                    queue.push_back(to);
                }
            }
        }
        for to in edges.keys() {
            if to != from || *hosts > 1 {
                most = most.max(distance.get(to)? + 2);
            }
        }
    }
    Some(f64::from(most))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(to: u32, capacity: u32) -> PortLink {
        PortLink { to, capacity }
    }

    /// Switches have numbers from 100 on. Two racks of three hosts at a core: 4 links between two hosts, 3 Gbit/s of
    /// hosts over 2 Gbit/s to the core.
    #[test]
    fn racks_at_a_core() {
        let rack = |first: u32| {
            vec![
                port(first, 1_000_000),
                port(first + 1, 1_000_000),
                port(first + 2, 1_000_000),
                port(102, 2_000_000),
            ]
        };
        let core = vec![port(100, 2_000_000), port(101, 2_000_000)];
        let mut all = BTreeMap::from([(NodeId(100), rack(0)), (NodeId(101), rack(3)), (NodeId(102), core)]);
        let expected = TopologyState { links: 8.0, hops: Some(4.0), oversubscription: Some(1.5) };
        assert_eq!(of_switches(&all), Some(expected));
        // A core that is not heard of is no switch; from one rack to the other there is no way.
        all.remove(&NodeId(102));
        let apart = of_switches(&all).expect("two switches tell");
        assert_eq!((apart.hops, apart.oversubscription), (None, None));
    }

    #[test]
    fn one_switch_and_none() {
        assert_eq!(of_switches(&BTreeMap::new()), None);
        let star = BTreeMap::from([(NodeId(100), vec![port(0, 1000), port(1, 1000)])]);
        let expected = TopologyState { links: 2.0, hops: Some(2.0), oversubscription: None };
        assert_eq!(of_switches(&star), Some(expected));
        let alone = BTreeMap::from([(NodeId(100), vec![port(0, 1000)])]);
        assert_eq!(of_switches(&alone).map(|t| t.hops), Some(None));
    }
}
