//! The network as a graph: nodes, links, groups of hosts, and what every trial draws.

pub mod builders;
pub mod graphml;

use crate::capacity::Capacity;
use crate::id::NodeId;
use crate::losses::{GilbertElliott, LossOf, LossPlan};
use crate::propagation::Variation;
use crate::qdisc::QueueConfig;
use crate::rng::SpanDraw;
use crate::units::{Bytes, Rate};

/// What a node does with packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeKind {
    /// Ends flows; never forwards.
    Host,
    /// Forwards by the routing table; its ports have limited queues.
    Router,
}

/// A host or router.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Node {
    /// Unique name; members of a group are `group.0`, `group.1`, ...
    pub name: String,
    /// Host or router.
    pub kind: NodeKind,
}

/// A duplex link. Direction `a` to `b` is port 2i of link i, `b` to `a` port 2i + 1.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct Link {
    /// Its place from 1 among the links between the same two nodes.
    #[serde(skip)]
    pub number: u32,
    /// One end.
    pub a: NodeId,
    /// The other end.
    pub b: NodeId,
    /// Transmission rate from `a` to `b`; where its capacity changes with time, the nominal one.
    pub rate: Rate,
    /// The same from `b` to `a`; none: it is `rate`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_back: Option<Rate>,
    /// How the capacity from `a` to `b` changes; none: it is `rate`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity: Option<Capacity>,
    /// How the capacity from `b` to `a` changes; none: it is the rate there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity_back: Option<Capacity>,
    /// One-way propagation delay.
    pub delay: SpanDraw,
    /// Queue at a router's end of the link.
    pub queue: QueueConfig,
    /// Queue at `b`, when that is a router; none: it is `queue`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_back: Option<QueueConfig>,
    /// Queue at a host's end; hosts normally hold back instead of dropping, so the default is unlimited.
    pub host_queue: QueueConfig,
    /// Probability that a packet is lost on the wire, each direction independently.
    pub loss: f64,
    /// The same from `b` to `a`; none: it is `loss`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss_back: Option<f64>,
    /// Losses in bursts, each direction independently; none: there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bursts: Option<GilbertElliott>,
    /// The same from `b` to `a`; none: it is `bursts`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bursts_back: Option<GilbertElliott>,
    /// Which packets `loss`, `bursts` and those of the other direction reach.
    pub loss_of: LossOf,
    /// Periodic loss: every N-th data packet from `a` to `b` vanishes, N at least 2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss_every: Option<u64>,
    /// Scripted losses: ordinal numbers (from 1) of the data packets, counted in direction `a` to `b`, that vanish.
    pub drop_packets: Vec<u64>,
    /// How the delays of packets differ, each direction independently.
    #[serde(skip_serializing_if = "Variation::is_none")]
    pub variation: Variation,
}

impl Link {
    /// The nominal rate from `a` to `b`, or else from `b` to `a`.
    pub fn rate(&self, is_forth: bool) -> Rate {
        if is_forth { self.rate } else { self.rate_back.unwrap_or(self.rate) }
    }

    /// What the wire loses from `a` to `b`, or else from `b` to `a`.
    pub fn losses(&self, is_forth: bool) -> LossPlan {
        let (of, bursts) = (self.loss_of, self.bursts);
        if is_forth {
            let (every, script) = (self.loss_every, self.drop_packets.clone());
            LossPlan { random: self.loss, bursts, of, every, script }
        } else {
            let random = self.loss_back.unwrap_or(self.loss);
            LossPlan { random, bursts: self.bursts_back.or(bursts), of, ..LossPlan::default() }
        }
    }
}

/// Hosts that are named together.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Group {
    /// Name in scenario files and reports.
    pub name: String,
    /// Members in order.
    pub members: Vec<NodeId>,
}

/// A complete network.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct Topology {
    /// Every node; `NodeId` is the position.
    pub nodes: Vec<Node>,
    /// Every duplex link.
    pub links: Vec<Link>,
    /// Groups of hosts, in file order.
    pub groups: Vec<Group>,
    /// Bytes that a link adds to each IP packet (2 for PPP, 14 as Linux counts Ethernet).
    pub frame_overhead: Bytes,
    /// Random processing delay of hosts, as a share of the time that the packet takes on the access link: uniform
    /// in [0, share]. Zero turns it off. Order within a host is kept.
    pub host_delay: f64,
    /// Each transmitter's rate is off by a uniform share in [-tolerance, tolerance], drawn per trial.
    pub rate_tolerance: f64,
}

impl Topology {
    /// The node called `name`.
    pub fn node(&self, name: &str) -> Option<NodeId> {
        self.nodes.iter().position(|n| n.name == name).map(|i| NodeId(i as u32))
    }

    /// The group called `name`, or the single host of that name as a group of one.
    pub fn members(&self, name: &str) -> Option<Vec<NodeId>> {
        match self.groups.iter().find(|g| g.name == name) {
            Some(group) => Some(group.members.clone()),
            None => self.node(name).filter(|n| self.nodes[n.index()].kind == NodeKind::Host).map(|n| vec![n]),
        }
    }

    /// The queue of a port: of a link's first end, which has an even number, or of its second.
    pub fn queue(&self, port: crate::id::PortId) -> &QueueConfig {
        let link = &self.links[port.index() / 2];
        let is_first = port.index().is_multiple_of(2);
        let owner = if is_first { link.a } else { link.b };
        match self.nodes[owner.index()].kind {
            NodeKind::Host => &link.host_queue,
            NodeKind::Router if is_first => &link.queue,
            NodeKind::Router => link.queue_back.as_ref().unwrap_or(&link.queue),
        }
    }

    /// Name of a port: `from->to`, and `from->to#2` of the second link between two nodes.
    pub fn port_name(&self, port: crate::id::PortId) -> String {
        let link = &self.links[port.index() / 2];
        let (from, to) = if port.index().is_multiple_of(2) { (link.a, link.b) } else { (link.b, link.a) };
        let name = format!("{}->{}", self.nodes[from.index()].name, self.nodes[to.index()].name);
        if link.number > 1 { format!("{name}#{}", link.number) } else { name }
    }

    /// The node that transmits at a port.
    pub fn transmitter(&self, port: crate::id::PortId) -> NodeId {
        let link = &self.links[port.index() / 2];
        if port.index().is_multiple_of(2) { link.a } else { link.b }
    }

    /// The router port that most of `routes` cross, each a list of ports; the slowest, then the first, of equals.
    pub fn busiest_router_port<'a>(
        &self,
        routes: impl IntoIterator<Item = &'a [u32]>,
    ) -> Option<crate::id::PortId> {
        let mut crossing = vec![0u64; 2 * self.links.len()];
        for &port in routes.into_iter().flatten() {
            crossing[port as usize] += 1;
        }
        let is_router = |port: &u32| {
            let owner = self.transmitter(crate::id::PortId(*port));
            self.nodes[owner.index()].kind == NodeKind::Router
        };
        let rank = |port: &u32| {
            let rate = self.links[*port as usize / 2].rate(port.is_multiple_of(2));
            (crossing[*port as usize], std::cmp::Reverse(rate), std::cmp::Reverse(*port))
        };
        let crossed = (0..crossing.len() as u32).filter(|port| crossing[*port as usize] > 0);
        crossed.filter(is_router).max_by_key(rank).map(crate::id::PortId)
    }

    /// The port called `from->to` or `from->to#2`.
    pub fn port(&self, name: &str) -> Option<crate::id::PortId> {
        (0..self.links.len() as u32 * 2).map(crate::id::PortId).find(|p| self.port_name(*p) == name)
    }
}
