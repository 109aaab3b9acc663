//! Static shortest-path routes by hop count, equal-cost paths chosen by a hash of seed, trial, flow and router.

use std::collections::BTreeMap;

use crate::id::NodeId;
use crate::rng::Fnv;
use crate::scenario::Scenario;
use crate::topology::{NodeKind, Topology};

/// Routes of a topology, with the ways computed so far.
pub struct Router<'a> {
    topology: &'a Topology,
    /// What every choice among equal ways is hashed with.
    salt: Fnv,
    /// Per node: (neighbour, port), in link order.
    neighbours: Vec<Vec<(u32, u32)>>,
    ways: BTreeMap<u32, Ways>,
}

/// All shortest paths to one node.
struct Ways {
    distances: Vec<u32>,
    /// Per router asked so far: its neighbours, with ports, that are one hop closer.
    closer: BTreeMap<u32, Vec<(u32, u32)>>,
}

const UNREACHABLE: u32 = u32::MAX;

impl<'a> Router<'a> {
    /// The routes of a trial: which of equal ways a flow takes is drawn anew for each.
    pub fn new(scenario: &'a Scenario, trial: u32) -> Self {
        let mut salt = Fnv::new();
        salt.write(&scenario.run.seed.to_le_bytes());
        salt.write(&trial.to_le_bytes());
        let topology = &scenario.topology;
        let mut neighbours = vec![Vec::new(); topology.nodes.len()];
        for (i, link) in topology.links.iter().enumerate() {
            neighbours[link.a.index()].push((link.b.0, 2 * i as u32));
            neighbours[link.b.index()].push((link.a.0, 2 * i as u32 + 1));
        }
        Self { topology, salt, neighbours, ways: BTreeMap::new() }
    }

    /// Ports from `src` to `dst` for the flow with hash key `flow`; `None` when there is no way.
    pub fn route(&mut self, src: NodeId, dst: NodeId, flow: u64) -> Option<Vec<u32>> {
        if src == dst {
            return Some(Vec::new());
        }
        // Hosts with one link share the ways to the router at its other end.
        if let [(router, port)] = self.neighbours[dst.index()][..]
            && self.topology.nodes[router as usize].kind == NodeKind::Router
        {
            let mut ports = self.ports(src.0, router, flow)?;
            // The two ports of a link differ in the last bit.
            ports.push(port ^ 1);
            return Some(ports);
        }
        self.ports(src.0, dst.0, flow)
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

    /// The router at the other end of link `number`, modulo their number, of a host.
    pub fn gateway(&self, host: NodeId, number: usize) -> Option<NodeId> {
        let neighbours = self.neighbours[host.index()].iter();
        let routers = neighbours.filter(|(n, _)| self.topology.nodes[*n as usize].kind == NodeKind::Router);
        let routers: Vec<u32> = routers.map(|(n, _)| *n).collect();
        routers.get(number % routers.len().max(1)).map(|n| NodeId(*n))
    }

    fn ports(&mut self, src: u32, dst: u32, flow: u64) -> Option<Vec<u32>> {
        if !self.ways.contains_key(&dst) {
            let ways = Ways { distances: self.distances_to(dst), closer: BTreeMap::new() };
            self.ways.insert(dst, ways);
        }
        let Ways { distances, closer } = self.ways.get_mut(&dst)?;
        let mut ports = Vec::new();
        let mut at = src;
        while at != dst {
            let here = distances[at as usize];
            if here == UNREACHABLE {
                return None;
            }
            let find = || {
                let neighbours = self.neighbours[at as usize].iter();
                neighbours
                    .filter(|(next, _)| distances[*next as usize] == here - 1)
                    .copied()
                    .collect::<Vec<_>>()
            };
            let is_host = self.topology.nodes[at as usize].kind == NodeKind::Host;
            let of_host = if is_host { find() } else { Vec::new() };
            let choices = if is_host { &of_host } else { closer.entry(at).or_insert_with(find) };
            let mut hash = self.salt;
            hash.write(&flow.to_le_bytes());
            hash.write(&at.to_le_bytes());
            let pick = (hash.finish() % (choices.len() as u64).max(1)) as usize;
            let &(next, port) = choices.get(pick)?;
            ports.push(port);
            at = next;
        }
        Some(ports)
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
                        if self.topology.nodes[next as usize].kind == NodeKind::Router {
                            next_frontier.push(next);
                        }
                    }
                }
            }
            frontier = next_frontier;
        }
        distances
    }
}
