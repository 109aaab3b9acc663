//! Networks of a known shape, as plain functions.

use std::collections::BTreeMap;

use super::graphml::Map;
use super::{Group, Link, Node, NodeKind, Topology};
use crate::capacity::Capacity;
use crate::id::NodeId;
use crate::losses::{GilbertElliott, LossOf};
use crate::propagation::Variation;
use crate::qdisc::QueueConfig;
use crate::rng::SpanDraw;
use crate::units::{Bytes, Rate};

/// A network as it is built up: nodes, links and groups.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Graph {
    /// Every node; `NodeId` is the position.
    pub nodes: Vec<Node>,
    /// Every duplex link.
    pub links: Vec<Link>,
    /// Groups of hosts.
    pub groups: Vec<Group>,
}

/// What links of one kind have in common.
#[derive(Clone, PartialEq, Debug)]
pub struct LinkSettings {
    /// Transmission rate from the first end to the second; where its capacity changes with time, the nominal one.
    pub rate: Rate,
    /// The same from the second end to the first; none: it is `rate`.
    pub rate_back: Option<Rate>,
    /// How the capacity from the first end to the second changes.
    pub capacity: Option<Capacity>,
    /// How the capacity from the second end to the first changes.
    pub capacity_back: Option<Capacity>,
    /// One-way propagation delay.
    pub delay: SpanDraw,
    /// Queue at a router's end.
    pub queue: QueueConfig,
    /// Queue at the second end, when that is a router; none: it is `queue`.
    pub queue_back: Option<QueueConfig>,
    /// Queue at a host's end.
    pub host_queue: QueueConfig,
    /// Probability that a packet is lost on the wire.
    pub loss: f64,
    /// The same from the second end to the first; none: it is `loss`.
    pub loss_back: Option<f64>,
    /// Losses in bursts.
    pub bursts: Option<GilbertElliott>,
    /// The same from the second end to the first; none: it is `bursts`.
    pub bursts_back: Option<GilbertElliott>,
    /// Which packets `loss`, `bursts` and those of the other direction reach.
    pub loss_of: LossOf,
    /// Periodic loss: every N-th data packet from the first end to the second, N at least 2.
    pub loss_every: Option<u64>,
    /// How the delays of packets differ.
    pub variation: Variation,
}

impl Graph {
    /// Adds a host.
    pub fn host(&mut self, name: impl Into<String>) -> NodeId {
        self.node(name.into(), NodeKind::Host)
    }

    /// Adds a router.
    pub fn router(&mut self, name: impl Into<String>) -> NodeId {
        self.node(name.into(), NodeKind::Router)
    }

    fn node(&mut self, name: String, kind: NodeKind) -> NodeId {
        self.nodes.push(Node { name, kind });
        NodeId(self.nodes.len() as u32 - 1)
    }

    /// Links two nodes.
    pub fn link(&mut self, a: NodeId, b: NodeId, settings: &LinkSettings) {
        let LinkSettings {
            rate,
            rate_back,
            capacity,
            capacity_back,
            delay,
            queue,
            queue_back,
            host_queue,
            loss,
            loss_back,
            bursts,
            bursts_back,
            loss_of,
            loss_every,
            variation,
        } = settings.clone();
        let drop_packets = Vec::new();
        self.links.push(Link {
            number: 1,
            a,
            b,
            rate,
            rate_back,
            capacity,
            capacity_back,
            delay,
            queue,
            queue_back,
            host_queue,
            loss,
            loss_back,
            bursts,
            bursts_back,
            loss_of,
            loss_every,
            drop_packets,
            variation,
        });
    }

    /// Adds `count` hosts called `name.0`, `name.1`, ..., each with a link of its own to `router` (the host is the
    /// link's first end), and the group of them.
    pub fn group(&mut self, name: &str, count: u32, router: NodeId, access: &LinkSettings) -> Vec<NodeId> {
        let members: Vec<NodeId> = (0..count)
            .map(|i| {
                let host = self.host(format!("{name}.{i}"));
                self.link(host, router, access);
                host
            })
            .collect();
        self.groups.push(Group { name: name.to_owned(), members: members.clone() });
        members
    }

    /// Adds `count` hosts called `name.0`, `name.1`, ..., each with a link to every one of `routers`, and the group of them.
    pub fn multihomed(
        &mut self,
        name: &str,
        count: u32,
        routers: &[NodeId],
        access: &LinkSettings,
    ) -> Vec<NodeId> {
        let member = |i| {
            let host = self.host(format!("{name}.{i}"));
            routers.iter().for_each(|&router| self.link(host, router, access));
            host
        };
        let members: Vec<NodeId> = (0..count).map(member).collect();
        self.groups.push(Group { name: name.to_owned(), members: members.clone() });
        members
    }

    /// The complete network.
    pub fn into_topology(self, frame_overhead: Bytes, host_delay: f64, rate_tolerance: f64) -> Topology {
        let Self { nodes, mut links, groups } = self;
        let mut between = BTreeMap::new();
        for link in &mut links {
            let known: &mut u32 = between.entry((link.a.min(link.b), link.a.max(link.b))).or_default();
            *known += 1;
            link.number = *known;
        }
        Topology { nodes, links, groups, frame_overhead, host_delay, rate_tolerance }
    }

    fn routers(&mut self, prefix: &str, count: u32) -> Vec<NodeId> {
        (1..=count).map(|i| self.router(format!("{prefix}{i}"))).collect()
    }
}

/// Two groups of hosts on either side of one link: group `left` at router `r1`, group `right` at router `r2`.
pub fn dumbbell(left: u32, right: u32, access: &LinkSettings, bottleneck: &LinkSettings) -> Graph {
    let mut graph = Graph::default();
    let (r1, r2) = (graph.router("r1"), graph.router("r2"));
    graph.link(r1, r2, bottleneck);
    graph.group("left", left, r1, access);
    graph.group("right", right, r2, access);
    graph
}

/// The group `hosts` around the router `hub`.
pub fn star(size: u32, access: &LinkSettings) -> Graph {
    let mut graph = Graph::default();
    let hub = graph.router("hub");
    graph.group("hosts", size, hub, access);
    graph
}

/// A row of routers `r1`, `r2`, ... with `hops` links between them; group `h1` of `size` hosts at `r1`, and so on.
pub fn parking_lot(hops: u32, size: u32, access: &LinkSettings, bottleneck: &LinkSettings) -> Graph {
    let mut graph = Graph::default();
    let routers = graph.routers("r", hops + 1);
    for pair in routers.windows(2) {
        graph.link(pair[0], pair[1], bottleneck);
    }
    for (i, router) in routers.into_iter().enumerate() {
        graph.group(&format!("h{}", i + 1), size, router, access);
    }
    graph
}

/// Every leaf router linked to every spine router; group `leaf1-hosts` of `size` hosts at `leaf1`, and so on, and the
/// group `hosts` of all.
pub fn leaf_spine(
    leaves: u32,
    spines: u32,
    size: u32,
    access: &LinkSettings,
    fabric: &LinkSettings,
) -> Graph {
    let mut graph = Graph::default();
    let leaf = graph.routers("leaf", leaves);
    let spine = graph.routers("spine", spines);
    for &l in &leaf {
        for &s in &spine {
            graph.link(l, s, fabric);
        }
    }
    let mut all = Vec::new();
    for (i, l) in leaf.into_iter().enumerate() {
        all.extend(graph.group(&format!("leaf{}-hosts", i + 1), size, l, access));
    }
    graph.groups.push(Group { name: "hosts".to_owned(), members: all });
    graph
}

/// The fat tree of Al-Fares, Loukissas and Vahdat (SIGCOMM 2008): `k` pods (`k` even) of k/2 edge and k/2 aggregation
/// routers, (k/2)^2 core routers, k/2 hosts at each edge router. Routers `edge1-1` (pod, number), `agg1-1`, `core1`;
/// groups `pod1` ... and the group `hosts` of all. An odd `k` is rounded down.
pub fn fat_tree(k: u32, access: &LinkSettings, fabric: &LinkSettings) -> Graph {
    let half = k / 2;
    let mut graph = Graph::default();
    let core = graph.routers("core", half * half);
    let mut all = Vec::new();
    for pod in 1..=2 * half {
        let aggregation = graph.routers(&format!("agg{pod}-"), half);
        let edge = graph.routers(&format!("edge{pod}-"), half);
        for (&a, uplinks) in aggregation.iter().zip(core.chunks(half as usize)) {
            for &c in uplinks {
                graph.link(a, c, fabric);
            }
            for &e in &edge {
                graph.link(e, a, fabric);
            }
        }
        let mut members = Vec::new();
        for (i, &e) in edge.iter().enumerate() {
            for j in 0..half as usize {
                let host = graph.host(format!("pod{pod}.{}", i * half as usize + j));
                graph.link(host, e, access);
                members.push(host);
            }
        }
        all.extend(members.clone());
        graph.groups.push(Group { name: format!("pod{pod}"), members });
    }
    graph.groups.push(Group { name: "hosts".to_owned(), members: all });
    graph
}

/// The routers and links of a map, and a group `ROUTER-hosts` of `size` hosts at each router; the group `hosts` of all. Rates of
/// the map are multiplied by `scale`. Links without a rate or delay in the map have that of `fabric`.
pub fn map(map: &Map, size: u32, scale: f64, access: &LinkSettings, fabric: &LinkSettings) -> Graph {
    let mut graph = Graph::default();
    let routers: Vec<NodeId> = map.sites.iter().map(|site| graph.router(site.name.as_str())).collect();
    for line in &map.lines {
        let mut settings = fabric.clone();
        if let Some(rate) = line.rate {
            settings.rate = Rate::from_bits_per_sec_f64(rate.bits_per_sec() as f64 * scale);
            settings.rate_back = None;
        }
        if let Some(delay) = map.delay(line) {
            settings.delay = SpanDraw::fixed(delay);
        }
        let [a, b] = line.ends.map(|site| routers[site]);
        graph.link(a, b, &settings);
    }
    let mut all = Vec::new();
    for (site, router) in map.sites.iter().zip(routers) {
        all.extend(graph.group(&format!("{}-hosts", site.name), size, router, access));
    }
    graph.groups.push(Group { name: "hosts".to_owned(), members: all });
    graph
}

/// A rack of `size` hosts with a link to each of `tors` top-of-rack routers, and the host `receiver` with one to each
/// too. Routers `tor1`, `tor2`, ...; group `senders`. Link i of a host leads to router i.
pub fn pod(size: u32, tors: u32, access: &LinkSettings, bottleneck: &LinkSettings) -> Graph {
    let mut graph = Graph::default();
    let tor = graph.routers("tor", tors);
    let receiver = graph.host("receiver");
    for &t in &tor {
        graph.link(t, receiver, bottleneck);
    }
    graph.multihomed("senders", size, &tor, access);
    graph
}

/// [`fat_tree`] with two top-of-rack routers for each rack, and a link from each host to both: `k` pods of k/2 pairs
/// `edge1-1a` and `edge1-1b` (pod, rack), with k/2 hosts in each rack, hence as many hosts as without. Each edge router has
/// links to the k/2 aggregation routers of its pod. An odd `k` is rounded down.
pub fn dual_fat_tree(k: u32, access: &LinkSettings, fabric: &LinkSettings) -> Graph {
    let half = k / 2;
    let mut graph = Graph::default();
    let core = graph.routers("core", half * half);
    let mut all = Vec::new();
    for pod in 1..=2 * half {
        let aggregation = graph.routers(&format!("agg{pod}-"), half);
        for (&a, uplinks) in aggregation.iter().zip(core.chunks(half as usize)) {
            for &c in uplinks {
                graph.link(a, c, fabric);
            }
        }
        let mut members = Vec::new();
        for rack in 1..=half {
            let edges = ["a", "b"].map(|side| graph.router(format!("edge{pod}-{rack}{side}")));
            for &e in &edges {
                for &a in &aggregation {
                    graph.link(e, a, fabric);
                }
            }
            members.extend(graph.multihomed(&format!("rack{pod}-{rack}"), half, &edges, access));
        }
        all.extend(members.clone());
        graph.groups.push(Group { name: format!("pod{pod}"), members });
    }
    graph.groups.push(Group { name: "hosts".to_owned(), members: all });
    graph
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::params::Limit;
    use crate::qdisc::fifo;
    use crate::time::Span;

    fn settings(mbit: u64) -> LinkSettings {
        LinkSettings {
            rate: Rate::from_bits_per_sec(mbit * 1_000_000),
            rate_back: None,
            capacity: None,
            capacity_back: None,
            delay: SpanDraw::fixed(Span::from_millis(1)),
            queue: fifo::config(Limit::Packets(10)),
            queue_back: None,
            host_queue: fifo::config(Limit::Unlimited),
            loss: 0.0,
            loss_back: None,
            bursts: None,
            bursts_back: None,
            loss_of: LossOf::All,
            loss_every: None,
            variation: Variation::default(),
        }
    }

    fn degree(graph: &Graph, node: NodeId) -> usize {
        graph.links.iter().filter(|l| l.a == node || l.b == node).count()
    }

    fn routers_like(graph: &Graph, prefix: &str) -> Vec<NodeId> {
        (0..graph.nodes.len() as u32)
            .map(NodeId)
            .filter(|n| graph.nodes[n.index()].name.starts_with(prefix))
            .filter(|n| graph.nodes[n.index()].kind == NodeKind::Router)
            .collect()
    }

    /// Every node is reached from the first through routers, each host has one link, names are unique, and the groups
    /// hold exactly the hosts.
    fn well_formed(graph: &Graph) {
        let mut reached = vec![false; graph.nodes.len()];
        let mut waiting = routers_like(graph, "")[..1].to_vec();
        while let Some(node) = waiting.pop() {
            if !core::mem::replace(&mut reached[node.index()], true) {
                let ends = graph.links.iter().map(|l| (l.a, l.b));
                let next = ends.filter_map(|(a, b)| (a == node).then_some(b).or((b == node).then_some(a)));
                waiting.extend(next.filter(|_| graph.nodes[node.index()].kind == NodeKind::Router));
            }
        }
        assert!(reached.iter().all(|r| *r), "not connected");
        let mut names: Vec<&str> = graph.nodes.iter().map(|n| n.name.as_str()).collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|w| w[0] != w[1]), "names repeat");
        for (i, node) in graph.nodes.iter().enumerate() {
            let id = NodeId(i as u32);
            let in_group = graph.groups.iter().any(|g| g.members.contains(&id));
            assert_eq!(in_group, node.kind == NodeKind::Host, "{}", node.name);
            if node.kind == NodeKind::Host {
                assert_eq!(degree(graph, id), 1, "{}", node.name);
            }
        }
    }

    /// Their random streams are named after them.
    #[test]
    fn ports_of_parallel_links_have_names_of_their_own() {
        let mut graph = Graph::default();
        let (a, b) = (graph.router("a"), graph.router("b"));
        for (from, to) in [(a, b), (b, a), (a, b)] {
            graph.link(from, to, &settings(1));
        }
        let topology = graph.into_topology(Bytes::ZERO, 0.0, 0.0);
        let ports: Vec<crate::id::PortId> = (0..6).map(crate::id::PortId).collect();
        let names: Vec<String> = ports.iter().map(|port| topology.port_name(*port)).collect();
        assert_eq!(names, ["a->b", "b->a", "b->a#2", "a->b#2", "a->b#3", "b->a#3"]);
        assert!(ports.iter().zip(&names).all(|(port, name)| topology.port(name) == Some(*port)));
    }

    fn group_size(graph: &Graph, name: &str) -> Option<usize> {
        graph.groups.iter().find(|g| g.name == name).map(|g| g.members.len())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn dumbbell_and_star(left in 1u32..20, right in 1u32..20) {
            let graph = dumbbell(left, right, &settings(100), &settings(10));
            well_formed(&graph);
            prop_assert_eq!(graph.links.len() as u32, left + right + 1);
            prop_assert_eq!(graph.links[0].rate, settings(10).rate);
            prop_assert_eq!(group_size(&graph, "left"), Some(left as usize));
            prop_assert_eq!(group_size(&graph, "right"), Some(right as usize));
            let graph = star(left, &settings(100));
            well_formed(&graph);
            prop_assert_eq!(degree(&graph, NodeId(0)) as u32, left);
        }

        #[test]
        fn parking_lot_is_a_row(hops in 1u32..12, size in 1u32..6) {
            let graph = parking_lot(hops, size, &settings(100), &settings(10));
            well_formed(&graph);
            prop_assert_eq!(graph.links.len() as u32, hops + (hops + 1) * size);
            let degrees: Vec<u32> = routers_like(&graph, "r").iter().map(|r| degree(&graph, *r) as u32).collect();
            let row = |i: u32| if i == 0 || i == hops { size + 1 } else { size + 2 };
            prop_assert_eq!(degrees, (0..=hops).map(row).collect::<Vec<_>>());
        }

        #[test]
        fn pod_and_dual_fat_tree_are_dual_homed(size in 1u32..20, tors in 1u32..5, half in 1u32..5) {
            let graph = pod(size, tors, &settings(10), &settings(40));
            prop_assert_eq!(graph.links.len() as u32, tors * (size + 1));
            for (router, link) in routers_like(&graph, "tor").into_iter().zip(&graph.links) {
                prop_assert_eq!((link.a, link.rate), (router, settings(40).rate));
                prop_assert_eq!(degree(&graph, router) as u32, size + 1);
            }
            let graph = dual_fat_tree(2 * half, &settings(10), &settings(40));
            prop_assert_eq!(group_size(&graph, "hosts"), Some(2 * half.pow(3) as usize));
            prop_assert_eq!(group_size(&graph, "rack1-1"), Some(half as usize));
            let hosts = (0..graph.nodes.len() as u32).map(NodeId);
            for host in hosts.filter(|n| graph.nodes[n.index()].kind == NodeKind::Host) {
                prop_assert_eq!(degree(&graph, host), 2);
            }
            for edge in routers_like(&graph, "edge") {
                prop_assert_eq!(degree(&graph, edge) as u32, 2 * half);
            }
            for core in routers_like(&graph, "core") {
                prop_assert_eq!(degree(&graph, core) as u32, 2 * half);
            }
        }

        #[test]
        fn leaf_spine_is_a_full_mesh(leaves in 1u32..8, spines in 1u32..6, size in 1u32..6) {
            let graph = leaf_spine(leaves, spines, size, &settings(10), &settings(40));
            well_formed(&graph);
            prop_assert_eq!(group_size(&graph, "hosts"), Some((leaves * size) as usize));
            prop_assert_eq!(group_size(&graph, "leaf1-hosts"), Some(size as usize));
            for leaf in routers_like(&graph, "leaf") {
                prop_assert_eq!(degree(&graph, leaf) as u32, spines + size);
            }
            for spine in routers_like(&graph, "spine") {
                prop_assert_eq!(degree(&graph, spine) as u32, leaves);
            }
        }

        #[test]
        fn fat_tree_has_k_ports_everywhere(half in 1u32..5) {
            let k = 2 * half;
            let graph = fat_tree(k, &settings(10), &settings(10));
            well_formed(&graph);
            prop_assert_eq!(group_size(&graph, "hosts"), Some((k * k * k / 4) as usize));
            prop_assert_eq!(routers_like(&graph, "").len() as u32, 5 * k * k / 4);
            for router in routers_like(&graph, "") {
                prop_assert_eq!(degree(&graph, router) as u32, k);
            }
        }
    }
}
