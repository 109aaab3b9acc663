//! Schemes: the registry, and how a runtime asks for the roles of one.

pub mod bas;
pub mod er2bc;
pub mod opentcp;
pub mod qcbf;

use crate::control::Controller;
use crate::id::{FlowId, NodeId, PortId};
use crate::params::{Key, Params};
use crate::topology::Topology;
use crate::units::Rate;

/// An entry of the registry.
#[derive(Debug)]
pub struct SchemeDef {
    /// Name in scenario files: `[schemes.<name>]`.
    pub name: &'static str,
    /// One line about it.
    pub about: &'static str,
    /// Paper.
    pub source: &'static str,
    /// Parameters. `enabled` is common to all and not listed.
    pub keys: &'static [Key],
    /// What its roles do; a runtime that cannot do it refuses the scheme before anything runs.
    pub acts: &'static [Act],
    /// Checks parameters against each other and against the nodes of the network.
    pub check: CheckNetwork,
    /// Checks, when the scheme is switched on, that the network has what it works with.
    pub fits: CheckNetwork,
    /// Builds the roles.
    pub build: fn(&Params, &World) -> Vec<Role>,
}

/// A kind of [`Action`](crate::control::Action).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Act {
    /// Bounds the window of a flow.
    SetWindow,
    /// Paces a flow.
    SetRate,
    /// Sends probes over the data path.
    Probe,
    /// Changes classes of a shaper.
    SetClass,
    /// Changes the TCP of a node.
    Tune,
    /// Sends messages between nodes.
    Send,
    /// Programs at ports: [`WindowProgram`](crate::port::window::WindowProgram).
    Program,
}

impl Act {
    /// In words: "cannot ...".
    pub fn words(self) -> &'static str {
        match self {
            Self::SetWindow => "bound windows",
            Self::SetRate => "pace flows",
            Self::Probe => "send probes",
            Self::SetClass => "change classes of a shaper",
            Self::Tune => "change the TCP of a node",
            Self::Send => "send messages",
            Self::Program => "set windows in passing packets",
        }
    }
}

/// Checks parameters against the network; an error is (key, what is wrong with its value).
pub type CheckNetwork = fn(&Params, &Topology) -> Result<(), (&'static str, String)>;

impl PartialEq for SchemeDef {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

/// Every scheme.
pub static REGISTRY: &[&SchemeDef] = &[&bas::DEF, &er2bc::DEF, &opentcp::DEF, &qcbf::DEF];

/// A scheme with its parameters, as a scenario states it.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct SchemeConfig {
    /// The entry.
    #[serde(serialize_with = "name_of_def")]
    pub scheme: &'static SchemeDef,
    /// Its parameters.
    pub params: Params,
}

fn name_of_def<S: serde::Serializer>(def: &&'static SchemeDef, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(def.name)
}

/// One role of a scheme at one node.
pub struct Role {
    /// Where it runs: messages to this node reach it, and its observations are of this node.
    pub node: NodeId,
    /// Name of the role.
    pub name: &'static str,
    /// What its ticks bring.
    pub wants: Wants,
    /// What it does; a host that cannot do it refuses the role.
    pub acts: &'static [Act],
    /// Nodes that it sends probes to, over the data path.
    pub probes: Vec<NodeId>,
    /// The brain.
    pub controller: Box<dyn Controller>,
}

/// Statistics that come with ticks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Wants {
    /// Of the node's ports.
    pub ports: bool,
    /// Of the flows that end at the node, and of what its TCP has sent.
    pub flows: bool,
}

impl Wants {
    /// None.
    pub const NOTHING: Self = Self { ports: false, flows: false };
    /// Of ports.
    pub const PORTS: Self = Self { ports: true, flows: false };
    /// Of flows.
    pub const FLOWS: Self = Self { ports: false, flows: true };
}

/// What an operator knows of the network before it runs: names, links and routes.
#[derive(Clone, Debug, Default)]
pub struct World {
    /// Node names; `NodeId` is the position.
    pub nodes: Vec<String>,
    /// Ports; `PortId` is the position.
    pub ports: Vec<PortInfo>,
    /// Routes of the data of every TCP flow, by flow.
    pub routes: Vec<Route>,
}

/// A port as an operator knows it.
#[derive(Clone, Copy, Debug)]
pub struct PortInfo {
    /// Transmitting node.
    pub from: NodeId,
    /// Receiving node.
    pub to: NodeId,
    /// Rate.
    pub capacity: Rate,
}

/// The route of a flow's data.
#[derive(Clone, Debug)]
pub struct Route {
    /// The flow.
    pub flow: FlowId,
    /// Ports in order.
    pub ports: Vec<PortId>,
}

impl World {
    /// What is known of `topology`, whose ports have `rates` and whose TCP flows' data take `routes`, in order of flows.
    pub fn new<'a>(topology: &Topology, rates: &[Rate], routes: impl IntoIterator<Item = &'a [u32]>) -> Self {
        let ends = topology.links.iter().flat_map(|link| [(link.a, link.b), (link.b, link.a)]);
        let route = |(flow, ports): (u32, &[u32])| Route {
            flow: FlowId(flow),
            ports: ports.iter().map(|port| PortId(*port)).collect(),
        };
        Self {
            nodes: topology.nodes.iter().map(|node| node.name.clone()).collect(),
            ports: ends.zip(rates).map(|((from, to), rate)| PortInfo { from, to, capacity: *rate }).collect(),
            routes: (0..).zip(routes).map(route).collect(),
        }
    }

    /// The port called `from->to`.
    pub fn port(&self, name: &str) -> Option<PortId> {
        let (from, to) = name.split_once("->")?;
        let (from, to) = (self.node(from)?, self.node(to)?);
        let found = self.ports.iter().position(|port| (port.from, port.to) == (from, to))?;
        Some(PortId(found as u32))
    }

    /// The node called `name`.
    pub fn node(&self, name: &str) -> Option<NodeId> {
        self.nodes.iter().position(|n| n == name).map(|i| NodeId(i as u32))
    }
}
