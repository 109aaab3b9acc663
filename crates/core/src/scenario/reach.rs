//! Which hosts a flow may join.

use std::collections::BTreeSet;

use super::sources::Reader;
use crate::file::Section;
use crate::id::NodeId;
use crate::topology::{NodeKind, Topology};

/// Which hosts reach which, when only routers forward.
pub(super) struct Reach<'a> {
    pub(super) topology: &'a Topology,
    /// Per node: the connected sets of routers that it is in or linked to.
    areas: Vec<Vec<u32>>,
    /// Links between hosts, both ways.
    direct: BTreeSet<(NodeId, NodeId)>,
}

impl<'a> Reach<'a> {
    pub(super) fn new(topology: &'a Topology) -> Self {
        let is_router = |n: NodeId| topology.nodes[n.index()].kind == NodeKind::Router;
        let mut area: Vec<u32> = (0..topology.nodes.len() as u32).collect();
        for link in topology.links.iter().filter(|l| is_router(l.a) && is_router(l.b)) {
            let (a, b) = (root(&mut area, link.a.0), root(&mut area, link.b.0));
            area[a.max(b) as usize] = a.min(b);
        }
        let mut areas = vec![Vec::new(); topology.nodes.len()];
        let mut direct = BTreeSet::new();
        for link in &topology.links {
            for (host, other) in [(link.a, link.b), (link.b, link.a)] {
                match (is_router(host), is_router(other)) {
                    (false, true) => areas[host.index()].push(root(&mut area, other.0)),
                    (false, false) => {
                        direct.insert((host, other));
                    }
                    (true, _) => {}
                }
            }
        }
        for list in &mut areas {
            list.sort_unstable();
            list.dedup();
        }
        Self { topology, areas, direct }
    }

    /// Hosts of one class reach the same others. A host that is linked to a host is a class of its own.
    pub(super) fn class(&self, host: NodeId) -> (&[u32], Option<NodeId>) {
        let linked = self.direct.range((host, NodeId(0))..=(host, NodeId(u32::MAX))).next();
        (&self.areas[host.index()], linked.map(|_| host))
    }

    /// True when `a` reaches `b`; otherwise notes why not.
    pub(super) fn judge(&self, reader: &mut Reader, section: &Section<'_>, a: NodeId, b: NodeId) -> bool {
        let Some(why) = self.obstacle(a, b) else { return true };
        let name = |node: NodeId| self.topology.nodes[node.index()].name.as_str();
        let message = format!("no path from `{}` to `{}`: {why}", name(a), name(b));
        reader.fail_key_with(section, "from", message, "link the nodes through routers");
        false
    }

    /// Why `a` does not reach `b`.
    fn obstacle(&self, a: NodeId, b: NodeId) -> Option<String> {
        let (from, to) = (&self.areas[a.index()], &self.areas[b.index()]);
        if self.direct.contains(&(a, b)) || from.iter().any(|area| to.contains(area)) {
            return None;
        }
        for host in [a, b] {
            if self.areas[host.index()].is_empty() && self.class(host).1.is_none() {
                return Some(format!("`{}` has no link", self.topology.nodes[host.index()].name));
            }
        }
        let mut linked: Vec<u32> = (0..self.topology.nodes.len() as u32).collect();
        for link in &self.topology.links {
            let (x, y) = (root(&mut linked, link.a.0), root(&mut linked, link.b.0));
            linked[x.max(y) as usize] = x.min(y);
        }
        if root(&mut linked, a.0) == root(&mut linked, b.0) {
            Some("it leads through a host, and hosts do not forward".to_owned())
        } else {
            Some("they are in separate parts of the network".to_owned())
        }
    }
}

/// The representative of a node's set.
fn root(parent: &mut [u32], mut node: u32) -> u32 {
    while parent[node as usize] != node {
        parent[node as usize] = parent[parent[node as usize] as usize];
        node = parent[node as usize];
    }
    node
}
