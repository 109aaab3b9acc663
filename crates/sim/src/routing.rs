//! Static shortest-path routes by hop count, equal-cost paths chosen by a hash of the flow.

use std::collections::BTreeMap;

use bandmaster_core::id::NodeId;
use bandmaster_core::rng::Fnv;
use bandmaster_core::topology::{NodeKind, Topology};

/// Routes of a topology, with the distances computed so far.
pub(crate) struct Router<'a> {
    topology: &'a Topology,
    /// Per node: (neighbour, port), in link order.
    neighbours: Vec<Vec<(u32, u32)>>,
    distances: BTreeMap<u32, Vec<u32>>,
}

const UNREACHABLE: u32 = u32::MAX;

impl<'a> Router<'a> {
    pub(crate) fn new(topology: &'a Topology) -> Self {
        let mut neighbours = vec![Vec::new(); topology.nodes.len()];
        for (i, link) in topology.links.iter().enumerate() {
            neighbours[link.a.index()].push((link.b.0, 2 * i as u32));
            neighbours[link.b.index()].push((link.a.0, 2 * i as u32 + 1));
        }
        Self { topology, neighbours, distances: BTreeMap::new() }
    }

    /// Ports from `src` to `dst` for the flow with hash key `flow`; `None` when there is no way.
    pub(crate) fn route(&mut self, src: NodeId, dst: NodeId, flow: u64) -> Option<Vec<u32>> {
        if !self.distances.contains_key(&dst.0) {
            let distances = self.distances_to(dst);
            self.distances.insert(dst.0, distances);
        }
        let distances = &self.distances[&dst.0];
        let mut ports = Vec::new();
        let mut at = src.0;
        while at != dst.0 {
            let here = distances[at as usize];
            if here == UNREACHABLE {
                return None;
            }
            let closer = |&&(next, _): &&(u32, u32)| distances[next as usize] == here - 1;
            let choices = self.neighbours[at as usize].iter().filter(closer).count() as u64;
            let mut hash = Fnv::new();
            hash.write(&flow.to_le_bytes());
            hash.write(&at.to_le_bytes());
            let pick = (hash.finish() % choices.max(1)) as usize;
            let &(next, port) = self.neighbours[at as usize].iter().filter(closer).nth(pick)?;
            ports.push(port);
            at = next;
        }
        Some(ports)
    }

    /// Breadth first from `dst`; hosts end paths.
    fn distances_to(&self, dst: NodeId) -> Vec<u32> {
        let mut distances = vec![UNREACHABLE; self.topology.nodes.len()];
        distances[dst.index()] = 0;
        let mut frontier = vec![dst.0];
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
