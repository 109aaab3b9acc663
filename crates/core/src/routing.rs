//! Shortest-path routes by hop count. A hash of seed, trial, flow and router chooses among equal-cost paths, or they
//! are numbered. Links that are down are left out, by the same rule.

use std::collections::BTreeMap;

use crate::id::NodeId;
use crate::rng::Fnv;
use crate::scenario::{FlowGroup, Scenario};
use crate::topology::{NodeKind, Topology};
use crate::workload::FlowPlan;

/// Routes of a topology, with the ways computed so far.
pub struct Router<'a> {
    adjacency: Adjacency<'a>,
    /// What every choice among equal ways is hashed with.
    salt: Fnv,
    /// By destination.
    ways: BTreeMap<u32, Ways>,
    /// Shortest paths per node, by destination to which a path was asked for by number.
    counts: BTreeMap<u32, Vec<u64>>,
}

/// Who is linked to whom.
struct Adjacency<'a> {
    topology: &'a Topology,
    /// Per node: (neighbour, port), in link order.
    neighbours: Vec<Vec<(u32, u32)>>,
}

/// All shortest paths to one node.
struct Ways {
    dst: u32,
    distances: Vec<u32>,
    /// Per router asked so far: its next hops, with ports.
    next_hops: BTreeMap<u32, Vec<(u32, u32)>>,
}

const UNREACHABLE: u32 = u32::MAX;

/// Paths beyond this number are not counted. Sums of a count and a remainder below it fit 64 bits.
const MOST_PATHS: u64 = 1 << 62;

impl<'a> Router<'a> {
    /// The routes of a trial. Every trial draws which of several equal paths a flow takes.
    pub fn new(scenario: &'a Scenario, trial: u32) -> Self {
        let mut salt = Fnv::new();
        salt.write(&scenario.run.seed.to_le_bytes());
        salt.write(&trial.to_le_bytes());
        let adjacency = Adjacency::new(&scenario.topology, |_| false);
        Self { adjacency, salt, ways: BTreeMap::new(), counts: BTreeMap::new() }
    }

    /// From now on routes leave out the links that are `down`, by position in the topology.
    pub fn avoid(&mut self, down: &[bool]) {
        self.adjacency = Adjacency::new(self.adjacency.topology, |link| down[link]);
        self.ways.clear();
        self.counts.clear();
    }

    /// Ports from `src` to `dst` for the flow with hash key `flow`; `None` when there is no way.
    pub fn route(&mut self, src: NodeId, dst: NodeId, flow: u64) -> Option<Vec<u32>> {
        if src == dst {
            return Some(Vec::new());
        }
        // Hosts with one link share the ways to the router at its other end.
        if let [(router, port)] = self.adjacency.neighbours[dst.index()][..]
            && !self.adjacency.is_host(router)
        {
            let mut ports = self.hashed(src.0, router, flow)?;
            // The two ports of a link differ in the last bit.
            ports.push(port ^ 1);
            return Some(ports);
        }
        self.hashed(src.0, dst.0, flow)
    }

    /// Ports from `src` over the routers of `via` to `dst`, by shortest ways between them.
    pub fn route_over(&mut self, src: NodeId, via: &[NodeId], dst: NodeId, flow: u64) -> Option<Vec<u32>> {
        let mut ports = Vec::new();
        let mut at = src;
        for &next in via.iter().chain([&dst]) {
            ports.extend(self.route(at, next, flow)?);
            at = next;
        }
        Some(ports)
    }

    /// Ports from `src` to `dst` for subflow `number` of the connection with hash key `flow`; `None` when there is no way.
    /// It leaves by link `number` of `src` and arrives by link `number` of `dst`, modulo their numbers of links. Between
    /// the routers at their other ends it takes one of the shortest paths, and no two subflows with the same links take
    /// the same path until all are taken.
    pub fn distinct(&mut self, src: NodeId, dst: NodeId, flow: u64, number: u32) -> Option<Vec<u32>> {
        let (here, there) = (self.adjacency.uplinks(src), self.adjacency.uplinks(dst));
        if here.is_empty() || there.is_empty() {
            // A host of these is linked to hosts only.
            return self.route(src, dst, flow);
        }
        let pick = |links: &[(u32, u32)]| links[number as usize % links.len()];
        let ((first, leaves), (last, arrives)) = (pick(&here), pick(&there));
        let period = lcm(here.len() as u64, there.len() as u64);
        let mut ports = vec![leaves];
        ports.extend(self.numbered(first, last, flow, (u64::from(number), period))?);
        // The two ports of a link differ in the last bit.
        ports.push(arrives ^ 1);
        Some(ports)
    }

    /// The ports of a flow's data, or in `reverse` of its acknowledgements; `None` when there is no way. `flow` is its hash key: its
    /// number.
    pub fn of_flow(
        &mut self,
        plan: &FlowPlan,
        groups: &[FlowGroup],
        flow: u64,
        reverse: bool,
    ) -> Option<Vec<u32>> {
        let (multipath, number) = (plan.group(groups).multipath, plan.subflow(groups));
        if multipath.is_some_and(|multipath| multipath.distinct_paths) {
            // The flow number of a connection is that of its first subflow.
            let connection = flow - u64::from(number);
            let mut ports = self.distinct(plan.src, plan.dst, connection, number)?;
            if reverse {
                // The two ports of a link differ in the last bit.
                ports = ports.into_iter().rev().map(|port| port ^ 1).collect();
            }
            return Some(ports);
        }
        let mut via = plan.path(groups).to_vec();
        if via.is_empty() && multipath.is_some() {
            via = [plan.src, plan.dst]
                .map(|host| self.gateway(host, plan.lane(groups)))
                .into_iter()
                .flatten()
                .collect();
            via.dedup();
        }
        if reverse {
            via.reverse();
            return self.route_over(plan.dst, &via, plan.src, flow);
        }
        self.route_over(plan.src, &via, plan.dst, flow)
    }

    /// The router at the other end of link `number`, modulo their number, of a host.
    pub fn gateway(&self, host: NodeId, number: usize) -> Option<NodeId> {
        let links = self.adjacency.uplinks(host);
        links.get(number % links.len().max(1)).map(|(router, _)| NodeId(*router))
    }

    /// At each node with several next hops, a hash of the flow chooses.
    fn hashed(&mut self, src: u32, dst: u32, flow: u64) -> Option<Vec<u32>> {
        let (adjacency, salt) = (&self.adjacency, self.salt);
        let ways = self.ways.entry(dst).or_insert_with(|| Ways::new(dst, adjacency));
        ways.walk(src, adjacency, |at, next_hops| {
            let mut hash = salt;
            hash.write(&flow.to_le_bytes());
            hash.write(&at.to_le_bytes());
            (hash.finish() % (next_hops.len() as u64).max(1)) as usize
        })
    }

    /// A hash of the flow chooses the path of subflow 0; subflow `number` takes the `number`-th path after it. Only every
    /// `period`-th subflow comes this way: after a common multiple of `period` and the number of paths they would repeat
    /// their paths, and take the next ones.
    fn numbered(&mut self, src: u32, dst: u32, flow: u64, (number, period): (u64, u64)) -> Option<Vec<u32>> {
        let mut hash = self.salt;
        hash.write(&flow.to_le_bytes());
        hash.write(b"subflows");
        let adjacency = &self.adjacency;
        let ways = self.ways.entry(dst).or_insert_with(|| Ways::new(dst, adjacency));
        let counts = self.counts.entry(dst).or_insert_with(|| adjacency.count_paths(ways));
        let paths = counts[src as usize];
        let shift = number + number / lcm(period, paths.max(1));
        let mut left = (hash.finish().checked_rem(paths)? + shift) % paths;
        ways.walk(src, adjacency, |_, next_hops| {
            let room: Vec<u64> = next_hops.iter().map(|(next, _)| counts[*next as usize]).collect();
            let (choice, rest) = deal(&room, left).unwrap_or_default();
            left = rest;
            choice
        })
    }
}

impl<'a> Adjacency<'a> {
    /// The links of `topology` that are not down.
    fn new(topology: &'a Topology, is_down: impl Fn(usize) -> bool) -> Self {
        let mut neighbours = vec![Vec::new(); topology.nodes.len()];
        for (i, link) in topology.links.iter().enumerate().filter(|(i, _)| !is_down(*i)) {
            neighbours[link.a.index()].push((link.b.0, 2 * i as u32));
            neighbours[link.b.index()].push((link.a.0, 2 * i as u32 + 1));
        }
        Self { topology, neighbours }
    }

    fn is_host(&self, node: u32) -> bool {
        self.topology.nodes[node as usize].kind == NodeKind::Host
    }

    /// Links of a host to routers: the router and the port to it, in link order.
    fn uplinks(&self, host: NodeId) -> Vec<(u32, u32)> {
        let neighbours = self.neighbours[host.index()].iter();
        neighbours.filter(|(next, _)| !self.is_host(*next)).copied().collect()
    }

    /// Next hops from `at` to `dst`, with ports: neighbours that are one hop closer. Hosts do not forward.
    fn next_hops(&self, at: u32, dst: u32, distances: &[u32]) -> Vec<(u32, u32)> {
        let closer = distances[at as usize] - 1;
        let forwards = |node: u32| node == dst || !self.is_host(node);
        let neighbours = self.neighbours[at as usize].iter();
        neighbours
            .filter(|(next, _)| distances[*next as usize] == closer && forwards(*next))
            .copied()
            .collect()
    }

    /// Breadth first from `dst`; hosts end paths.
    fn distances_to(&self, dst: u32) -> Vec<u32> {
        let mut distances = vec![UNREACHABLE; self.topology.nodes.len()];
        distances[dst as usize] = 0;
        let mut frontier = vec![dst];
        while !frontier.is_empty() {
            let mut next_frontier = Vec::new();
            for at in frontier {
                for &(next, _) in &self.neighbours[at as usize] {
                    if distances[next as usize] == UNREACHABLE {
                        distances[next as usize] = distances[at as usize] + 1;
                        if !self.is_host(next) {
                            next_frontier.push(next);
                        }
                    }
                }
            }
            frontier = next_frontier;
        }
        distances
    }

    /// Per node: the number of its shortest paths, at most [`MOST_PATHS`].
    fn count_paths(&self, ways: &Ways) -> Vec<u64> {
        let distances = &ways.distances;
        let reached = |node: &u32| distances[*node as usize] != UNREACHABLE;
        let mut order: Vec<u32> = (0..distances.len() as u32).filter(reached).collect();
        order.sort_by_key(|node| distances[*node as usize]);
        let mut counts = vec![0_u64; distances.len()];
        counts[ways.dst as usize] = 1;
        // The first is the destination.
        for &at in order.iter().skip(1) {
            let next_hops = self.next_hops(at, ways.dst, distances);
            let add = |sum: u64, (next, _): &(u32, u32)| sum.saturating_add(counts[*next as usize]);
            let paths = next_hops.iter().fold(0, add);
            counts[at as usize] = paths.min(MOST_PATHS);
        }
        counts
    }
}

impl Ways {
    fn new(dst: u32, adjacency: &Adjacency<'_>) -> Self {
        Self { dst, distances: adjacency.distances_to(dst), next_hops: BTreeMap::new() }
    }

    /// Ports from `src`; `pick` gives the position of the next hop among those of a node. `None` when there is no way.
    fn walk(
        &mut self,
        src: u32,
        adjacency: &Adjacency<'_>,
        mut pick: impl FnMut(u32, &[(u32, u32)]) -> usize,
    ) -> Option<Vec<u32>> {
        let Self { dst, distances, next_hops } = self;
        let mut ports = Vec::new();
        let mut at = src;
        while at != *dst {
            if distances[at as usize] == UNREACHABLE {
                return None;
            }
            let find = || adjacency.next_hops(at, *dst, distances);
            let is_host = adjacency.is_host(at);
            let of_host = if is_host { find() } else { Vec::new() };
            let choices = if is_host { &of_host } else { next_hops.entry(at).or_insert_with(find) };
            let &(next, port) = choices.get(pick(at, choices))?;
            ports.push(port);
            at = next;
        }
        Some(ports)
    }
}

/// Numbers from 0 are dealt in turn to choices, to each no more than its `room`: who gets `number`, and how many it had
/// before. `None` beyond the last one. With equal rooms these are the remainder and the quotient of a division.
fn deal(room: &[u64], number: u64) -> Option<(usize, u64)> {
    let (mut left, mut rounds) = (number, 0);
    loop {
        let open: Vec<usize> = (0..room.len()).filter(|choice| room[*choice] > rounds).collect();
        let least = open.iter().map(|choice| room[*choice]).min()?;
        let takers = open.len() as u64;
        if left / takers < least - rounds {
            return Some((open[(left % takers) as usize], rounds + left / takers));
        }
        left -= takers * (least - rounds);
        rounds = least;
    }
}

/// The least common multiple of two numbers above 0, or the largest number.
fn lcm(a: u64, b: u64) -> u64 {
    let (mut divisor, mut rest) = (a, b);
    while rest > 0 {
        (divisor, rest) = (rest, divisor % rest);
    }
    (a / divisor).saturating_mul(b)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::id::PortId;

    /// A network as in `text`, with a flow between two hosts.
    fn scenario(text: &str, from: &str, to: &str) -> Scenario {
        let text = format!(
            "version = 1\nname = \"t\"\n[run]\nduration = \"2s\"\n[network]\n{text}\n\
             [network.link]\nrate = \"1gbit\"\n\
             [[flows]]\nname = \"f\"\nfrom = \"{from}\"\nto = \"{to}\"\n"
        );
        let study = crate::scenario::parse("t.toml", &text, &Default::default());
        study.unwrap_or_else(|e| panic!("{e}")).cases.remove(0).scenario
    }

    /// Hosts `a`, `b` and `m`, routers `r1`, `r2`, `x` and `y`, and these links; those that come again are parallel.
    fn custom(links: &[[&str; 2]]) -> Scenario {
        let link = |(at, ends): (usize, &[&str; 2])| {
            format!("{{ ends = {ends:?}, parallel = {} }}", links[..at].contains(ends))
        };
        let links: Vec<String> = links.iter().enumerate().map(link).collect();
        let network = format!(
            "hosts = [\"a\", \"b\", \"m\"]\nrouters = [\"r1\", \"r2\", \"x\", \"y\"]\nlinks = [{}]",
            links.join(", ")
        );
        scenario(&network, "a", "m")
    }

    fn node(scenario: &Scenario, name: &str) -> NodeId {
        scenario.topology.node(name).expect("a node")
    }

    /// The nodes that the ports from `src` lead to, in order; each port must begin where the one before ends.
    fn nodes(scenario: &Scenario, src: NodeId, ports: &[u32]) -> Vec<NodeId> {
        let mut at = src;
        let mut nodes = Vec::new();
        for &port in ports {
            assert_eq!(scenario.topology.transmitter(PortId(port)), at, "{ports:?}");
            at = scenario.topology.transmitter(PortId(port ^ 1));
            nodes.push(at);
        }
        nodes
    }

    fn hosts_between(scenario: &Scenario, src: NodeId, ports: &[u32]) -> usize {
        let nodes = nodes(scenario, src, ports);
        let between = &nodes[..nodes.len() - 1];
        between.iter().filter(|n| scenario.topology.nodes[n.index()].kind == NodeKind::Host).count()
    }

    fn different<T: Ord>(all: impl IntoIterator<Item = T>) -> usize {
        all.into_iter().collect::<BTreeSet<T>>().len()
    }

    /// Between pods (k/2)^2 paths, between the racks of a pod k/2, in a rack one.
    #[test]
    fn numbers_give_every_path_of_a_fat_tree_once() {
        for k in [4_usize, 8] {
            let scenario = scenario(&format!("builder = \"fat-tree\"\nk = {k}"), "pod1", "pod2");
            let (half, hosts) = (k / 2, ["pod1.0", "pod2.0"].map(|name| node(&scenario, name)));
            let neighbour = node(&scenario, &format!("pod1.{half}"));
            for trial in 0..4 {
                let mut router = Router::new(&scenario, trial);
                let mut ways = |dst: NodeId, count: usize| -> Vec<Vec<u32>> {
                    let way = |number| router.distinct(hosts[0], dst, 7, number).expect("a way");
                    (0..count as u32).map(way).collect()
                };
                let across = ways(hosts[1], half * half);
                assert_eq!(different(&across), half * half, "k = {k}, trial {trial}");
                // Consecutive numbers leave the first router by different ports.
                assert!(across.windows(half).all(|some| different(some.iter().map(|way| way[1])) == half));
                for way in &across {
                    assert_eq!((way.len(), nodes(&scenario, hosts[0], way)[5]), (6, hosts[1]));
                }
                assert_eq!(different(ways(neighbour, half)), half);
                assert_eq!(different(ways(neighbour, 2 * half)), half);
                assert_eq!(different(ways(node(&scenario, "pod1.1"), 3)), 1);
            }
        }
    }

    #[test]
    fn the_first_number_is_drawn_by_seed_trial_and_connection() {
        let scenario = scenario("builder = \"fat-tree\"\nk = 8", "pod1", "pod2");
        let [src, dst] = ["pod1.0", "pod2.0"].map(|name| node(&scenario, name));
        let first = |trial, flow| Router::new(&scenario, trial).distinct(src, dst, flow, 0).expect("a way");
        assert_eq!(first(3, 8), first(3, 8));
        // Of 16 draws among 16 paths, 10.3 are different in the mean.
        assert!(different((0..16).map(|trial| first(trial, 0))) > 4);
        assert!(different((0..16).map(|flow| first(0, flow))) > 4);
    }

    /// Subflow i uses link i of both hosts, and the paths of all subflows are different from core to core.
    #[test]
    fn subflows_of_dual_homed_hosts_use_both_links() {
        let scenario = scenario("builder = \"dual-fat-tree\"\nk = 4", "pod1", "pod2");
        let [src, dst] = ["rack1-1.0", "rack2-1.0"].map(|name| node(&scenario, name));
        for trial in 0..4 {
            let mut router = Router::new(&scenario, trial);
            let ways: Vec<Vec<u32>> =
                (0..8).map(|number| router.distinct(src, dst, 0, number).expect("a way")).collect();
            // Four paths from each link to the one with its number.
            assert_eq!(different(&ways), 8);
            for (number, way) in ways.iter().enumerate() {
                let nodes = nodes(&scenario, src, way);
                assert_eq!((nodes.len(), nodes[5]), (6, dst));
                assert_eq!(Some(nodes[0]), router.gateway(src, number));
                assert_eq!(Some(nodes[4]), router.gateway(dst, number));
            }
            for some in [&ways[..4], &ways[4..]] {
                assert_eq!(different(some.iter().map(|way| nodes(&scenario, src, way)[2])), 4, "cores");
            }
        }
    }

    /// Three paths over `x` and one over `y`: the remainders of a division would go over `y` twice.
    #[test]
    fn numbers_give_every_path_once_where_branches_differ() {
        let mut links = vec![["a", "r1"], ["b", "r2"], ["m", "r1"], ["r1", "x"], ["r1", "y"], ["y", "r2"]];
        links.extend([["x", "r2"]; 3]);
        let scenario = custom(&links);
        let [a, b] = ["a", "b"].map(|name| node(&scenario, name));
        for flow in 0..8 {
            let mut router = Router::new(&scenario, 0);
            assert_eq!(different((0..4).map(|number| router.distinct(a, b, flow, number))), 4);
        }
    }

    /// Parallel links of a host are its own paths.
    #[test]
    fn numbers_use_parallel_links_of_hosts() {
        let scenario = custom(&[["a", "r1"], ["a", "r1"], ["b", "r1"], ["m", "r1"]]);
        let [a, b] = ["a", "b"].map(|name| node(&scenario, name));
        let mut router = Router::new(&scenario, 0);
        assert_eq!(different((0..2).map(|number| router.distinct(a, b, 0, number))), 2);
        assert_eq!(different((0..2).map(|number| router.distinct(b, a, 0, number))), 2);
    }

    #[test]
    fn dealing_stops_at_the_room() {
        let dealt: Vec<_> = (0..7).map(|number| deal(&[1, 3, 2], number)).collect();
        let expected = [(0, 0), (1, 0), (2, 0), (1, 1), (2, 1), (1, 2)].map(Some);
        assert_eq!((&dealt[..6], dealt[6]), (&expected[..], None));
        assert_eq!([(4, 6), (6, 4), (3, 7), (5, 1)].map(|(a, b)| lcm(a, b)), [12, 12, 21, 5]);
    }

    /// `m` is a hop nearer than the routers `x` and `y` (first), or as near as `x` (second).
    #[test]
    fn hosts_with_two_links_do_not_forward() {
        let ends = [["a", "r1"], ["b", "r2"], ["m", "r1"], ["m", "r2"]];
        for (between, hops) in
            [(&[["r1", "x"], ["x", "y"], ["y", "r2"]][..], 5), (&[["r1", "x"], ["x", "r2"]][..], 4)]
        {
            let scenario = custom(&[&ends[..], between].concat());
            let [a, b] = ["a", "b"].map(|name| node(&scenario, name));
            let mut router = Router::new(&scenario, 0);
            for flow in 0..32 {
                for way in [router.route(a, b, flow), router.distinct(a, b, flow, flow as u32 % 4)] {
                    let way = way.expect("a way");
                    assert_eq!((way.len(), hosts_between(&scenario, a, &way)), (hops, 0));
                }
            }
        }
        // Where the way through the host is the only one there is none.
        let scenario = custom(&ends);
        let [a, b, m] = ["a", "b", "m"].map(|name| node(&scenario, name));
        let mut router = Router::new(&scenario, 0);
        assert_eq!((router.route(a, b, 0), router.distinct(a, b, 0, 1)), (None, None));
        assert_eq!(router.route(a, m, 0).map(|way| way.len()), Some(2));
    }

    /// Routes around links that are down are those of a network without them, and the first ones when they are up again.
    #[test]
    fn links_that_are_down_are_left_out_by_the_same_rule() {
        let kept =
            [["a", "r1"], ["b", "r2"], ["m", "r1"], ["r1", "x"], ["r1", "y"], ["x", "r2"], ["y", "r2"]];
        let whole = custom(&[&kept[..], &[["r1", "r2"]]].concat());
        let reduced = custom(&kept);
        let [a, b] = ["a", "b"].map(|name| node(&whole, name));
        let ways = |router: &mut Router<'_>| -> Vec<Option<Vec<u32>>> {
            (0..32).flat_map(|flow| [router.route(a, b, flow), router.distinct(a, b, flow, 1)]).collect()
        };
        let mut router = Router::new(&whole, 3);
        let first = ways(&mut router);
        assert!(first.iter().flatten().all(|way| way.len() == 3), "{first:?}");
        router.avoid(&[false, false, false, false, false, false, false, true]);
        let around = ways(&mut router);
        assert_eq!(around, ways(&mut Router::new(&reduced, 3)));
        assert_eq!(different(around.iter().flatten()), 2, "over x and over y");
        router.avoid(&[false, false, false, false, false, true, false, true]);
        assert_eq!(different(ways(&mut router).iter().flatten()), 1, "over y");
        router.avoid(&[false, true, false, false, false, false, false, false]);
        assert!(ways(&mut router).iter().all(Option::is_none), "b has no link");
        router.avoid(&[false; 8]);
        assert_eq!(ways(&mut router), first);
    }

    /// From one edge router of a rack to the other it is two hops over each host of the rack and each aggregation router.
    #[test]
    fn dual_homed_racks_do_not_forward() {
        let scenario = scenario("builder = \"dual-fat-tree\"\nk = 4", "pod1", "pod2");
        let [a, b] = ["edge1-1a", "edge1-1b"].map(|name| node(&scenario, name));
        let mut router = Router::new(&scenario, 0);
        let ways: Vec<Vec<u32>> = (0..32).map(|flow| router.route(a, b, flow).expect("a way")).collect();
        for way in &ways {
            assert_eq!((way.len(), hosts_between(&scenario, a, way)), (2, 0));
        }
        assert_eq!(different(&ways), 2, "over both aggregation routers");
    }
}
