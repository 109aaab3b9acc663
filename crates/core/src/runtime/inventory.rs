//! What is known of a network that changes: nodes come and go, and their numbers are given once and never again.
//!
//! A simulated network joins whole, in the topology's order, before the run, so that numbers are those of the topology.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;

use crate::id::{NodeId, PortId};
use crate::prefix::Prefix;
use crate::topology::Topology;
use crate::units::Rate;

/// Nodes and ports.
#[derive(Clone, Debug, Default)]
pub struct Inventory {
    nodes: Vec<Node>,
    /// A node that comes back has its old number.
    numbers: BTreeMap<String, NodeId>,
    ports: Arc<Vec<Port>>,
    by_name: BTreeMap<String, PortId>,
    /// Where addresses are, where that is known.
    networks: Networks,
    /// Ports of nodes that number them by themselves, in their order.
    own_numbers: BTreeMap<NodeId, Vec<PortId>>,
}

/// By length, the longest first, and first address; IPv6 apart.
type Networks = [BTreeMap<Reverse<u8>, BTreeMap<IpAddr, NodeId>>; 2];

#[derive(Clone, Debug)]
struct Node {
    name: String,
    here: bool,
}

/// A port as an operator knows it.
#[derive(Clone, Copy, Debug)]
pub struct Port {
    /// Transmitting node.
    pub from: NodeId,
    /// Receiving node.
    pub to: NodeId,
    /// Rate.
    pub capacity: Rate,
    /// Bytes that its link adds to an IP packet, and its shaper counts.
    pub overhead: u32,
}

impl Inventory {
    /// All of `topology`, whose ports have `rates`.
    pub fn of(topology: &Topology, rates: &[Rate]) -> Self {
        let nodes = || topology.nodes.iter().map(|node| node.name.clone());
        let mut all = Self {
            nodes: nodes().map(|name| Node { name, here: true }).collect(),
            numbers: nodes().zip((0..).map(NodeId)).collect(),
            ports: Arc::default(),
            by_name: BTreeMap::new(),
            networks: Networks::default(),
            own_numbers: BTreeMap::new(),
        };
        let numbered = (0..).map(PortId).zip(rates);
        let overhead = topology.frame_overhead.get() as u32;
        Arc::make_mut(&mut all.ports).extend(numbered.clone().map(|(port, rate)| {
            let link = &topology.links[port.index() / 2];
            let (from, to) = if port.index().is_multiple_of(2) { (link.a, link.b) } else { (link.b, link.a) };
            Port { from, to, capacity: *rate, overhead }
        }));
        all.by_name = numbered.map(|(port, _)| (topology.port_name(port), port)).collect();
        all
    }

    /// A node comes, or comes back: its number.
    pub fn join(&mut self, name: &str) -> NodeId {
        let next = NodeId(self.nodes.len() as u32);
        let node = *self.numbers.entry(name.to_owned()).or_insert(next);
        if node == next {
            self.nodes.push(Node { name: name.to_owned(), here: true });
        }
        self.nodes[node.index()].here = true;
        node
    }

    /// A node that was known is there again.
    pub fn come_back(&mut self, node: NodeId) {
        if let Some(node) = self.nodes.get_mut(node.index()) {
            node.here = true;
        }
    }

    /// A node goes; nobody else gets its number.
    pub fn leave(&mut self, node: NodeId) {
        if let Some(node) = self.nodes.get_mut(node.index()) {
            node.here = false;
        }
    }

    /// The link of `port` adds so many bytes to an IP packet.
    pub fn set_overhead(&mut self, port: PortId, overhead: u32) {
        if let Some(port) = Arc::make_mut(&mut self.ports).get_mut(port.index()) {
            port.overhead = overhead;
        }
    }

    /// A port is made, whose link adds nothing to IP packets; two nodes may have several.
    pub fn add_port(&mut self, name: &str, from: NodeId, to: NodeId, capacity: Rate) -> PortId {
        let port = PortId(self.ports.len() as u32);
        Arc::make_mut(&mut self.ports).push(Port { from, to, capacity, overhead: 0 });
        self.by_name.entry(name.to_owned()).or_insert(port);
        port
    }

    /// Addresses of `prefix` are at `node`, or behind it.
    pub fn add_network(&mut self, prefix: Prefix, node: NodeId) {
        let lengths = &mut self.networks[usize::from(prefix.address.is_ipv6())];
        lengths.entry(Reverse(prefix.length)).or_default().insert(prefix.address, node);
    }

    /// The node at which an address is, by its longest prefix.
    pub fn node_at(&self, address: IpAddr) -> Option<NodeId> {
        let address = address.to_canonical();
        let mut lengths = self.networks[usize::from(address.is_ipv6())].iter();
        lengths.find_map(|(length, nodes)| nodes.get(&Prefix::of(address, length.0).address)).copied()
    }

    /// Ports of a way over the fewest links; of equal ways, the one whose ports were made first.
    pub fn way(&self, from: NodeId, to: NodeId) -> Option<Vec<PortId>> {
        let mut reached: BTreeMap<NodeId, Option<PortId>> = BTreeMap::from([(from, None)]);
        let mut next = VecDeque::from([from]);
        while let Some(at) = next.pop_front() {
            for (number, port) in self.ports().filter(|(_, port)| port.from == at) {
                reached.entry(port.to).or_insert_with(|| {
                    next.push_back(port.to);
                    Some(number)
                });
            }
        }
        let mut ports = Vec::new();
        let mut at = to;
        while let Some(last) = *reached.get(&at)? {
            ports.push(last);
            at = self.port(last)?.from;
        }
        ports.reverse();
        Some(ports)
    }

    /// Whether the node is there.
    pub fn has(&self, node: NodeId) -> bool {
        self.nodes.get(node.index()).is_some_and(|node| node.here)
    }

    /// The nodes that are away.
    pub fn away(&self) -> impl Iterator<Item = NodeId> {
        (0..).map(NodeId).zip(&self.nodes).filter(|(_, node)| !node.here).map(|(number, _)| number)
    }

    /// How many nodes there have been.
    pub fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// The node called `name`, also when it is away.
    pub fn node(&self, name: &str) -> Option<NodeId> {
        self.numbers.get(name).copied()
    }

    /// The name of a node.
    pub fn name(&self, node: NodeId) -> &str {
        self.nodes.get(node.index()).map_or("", |node| &node.name)
    }

    /// Ports in order of their numbers.
    pub fn ports(&self) -> impl Iterator<Item = (PortId, &Port)> {
        (0..).map(PortId).zip(self.ports.iter())
    }

    /// The ports as they are now, for roles that look them up later.
    pub fn shared_ports(&self) -> Arc<Vec<Port>> {
        self.ports.clone()
    }

    /// A port.
    pub fn port(&self, port: PortId) -> Option<&Port> {
        self.ports.get(port.index())
    }

    /// In its messages `node` calls these ports 0, 1, 2 and so on.
    pub fn number_by_itself(&mut self, node: NodeId, ports: Vec<PortId>) {
        self.own_numbers.insert(node, ports);
    }

    /// The port that `node` calls `port` in its messages.
    pub fn port_of(&self, node: NodeId, port: PortId) -> Option<PortId> {
        match self.own_numbers.get(&node) {
            Some(ports) => ports.get(port.index()).copied(),
            None => Some(port),
        }
    }

    /// The ports of a node with its own numbering, in its order.
    pub fn own_ports(&self, node: NodeId) -> Option<&[PortId]> {
        self.own_numbers.get(&node).map(Vec::as_slice)
    }

    /// The port called `from->to`; of parallel links, the first.
    pub fn port_named(&self, name: &str) -> Option<PortId> {
        self.by_name.get(name).copied()
    }
}

/// What happens to the roles at a node; its TCP and its links go on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    /// The roles restart, and so do the counters of the node's data path.
    Restart,
    /// The roles end, and the node leaves the inventory.
    Leave,
    /// The node is in the inventory again, and its roles restart.
    Join,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_given_once_and_a_node_that_comes_back_has_its_own() {
        let mut all = Inventory::default();
        assert_eq!((all.join("a"), all.join("b")), (NodeId(0), NodeId(1)));
        all.leave(NodeId(0));
        assert_eq!(all.join("c"), NodeId(2), "the number of one who left is not given away");
        assert!(!all.has(NodeId(0)) && all.has(NodeId(2)));
        assert_eq!(all.join("a"), NodeId(0));
        assert!(all.has(NodeId(0)) && !all.has(NodeId(9)));
    }

    /// a - b - c and a - d - c, and e that nobody reaches.
    #[test]
    fn ways_are_short_and_addresses_have_a_place() {
        let mut all = Inventory::default();
        let [a, b, c, d, e] = ["a", "b", "c", "d", "e"].map(|name| all.join(name));
        let rate = Rate::from_bits_per_sec(1);
        let port = |all: &mut Inventory, from, to| all.add_port("", from, to, rate);
        let (ab, ad) = (port(&mut all, a, b), port(&mut all, a, d));
        let (dc, bc, cb) = (port(&mut all, d, c), port(&mut all, b, c), port(&mut all, c, b));
        assert_eq!(all.way(a, c), Some(vec![ab, bc]), "the first of equals");
        assert_eq!(all.way(c, b), Some(vec![cb]));
        assert_eq!((all.way(a, a), all.way(c, a), all.way(a, e)), (Some(Vec::new()), None, None));
        assert_eq!((all.way(d, c), ad), (Some(vec![dc]), PortId(1)));
        for (prefix, node) in [("0.0.0.0/0", d), ("10.0.0.0/8", a), ("10.1.2.3", b)] {
            all.add_network(Prefix::parse(prefix).expect("a prefix"), node);
        }
        let at = |text: &str| all.node_at(text.parse().expect("an address"));
        assert_eq!(
            (at("10.1.2.3"), at("10.1.2.4"), at("192.0.2.1"), at("::1")),
            (Some(b), Some(a), Some(d), None)
        );
    }
}
