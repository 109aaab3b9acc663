//! Schemes: the registry, and how a runtime asks for the roles of one.

pub mod bas;
pub mod er2bc;
pub mod opentcp;
pub mod qcbf;

use crate::control::Controller;
use crate::id::{NodeId, PortId};
use crate::params::{Key, Params};
use crate::port::PortProgram;
use crate::port::window::WindowProgram;
use crate::runtime::faults::PathEnd;
use crate::runtime::inventory::Inventory;
use crate::topology::Topology;

/// An entry of the registry.
#[derive(Debug)]
pub struct SchemeDef {
    /// Name in scenario files: `[schemes.<name>]`.
    pub name: &'static str,
    /// One line about it.
    pub about: &'static str,
    /// Paper.
    pub source: &'static str,
    /// Its number in messages, which no other scheme of a registry has; below 256: this crate's.
    pub code: u16,
    /// Parameters. `enabled` is common to all and not listed.
    pub keys: &'static [Key],
    /// Its roles.
    pub roles: &'static [RoleDef],
    /// Checks parameters against each other and against the nodes of the network.
    pub check: CheckNetwork,
    /// Checks, when the scheme is switched on, that the network has what it works with.
    pub fits: CheckNetwork,
    /// Where its roles run in a network whose flows' data take these routes. A daemon's place is in its file.
    pub place: fn(&Params, &Inventory, &[Vec<PortId>]) -> Vec<Place>,
    /// Builds the role at a place, which goes on from what an earlier one [saved](Controller::save).
    pub build: fn(&Place, &Inventory, Option<&[u8]>) -> Built,
}

impl SchemeDef {
    /// What its roles do.
    pub fn acts(&self) -> impl Iterator<Item = Act> {
        self.roles.iter().flat_map(|role| role.acts).copied()
    }
}

/// A kind of role.
#[derive(Debug)]
pub struct RoleDef {
    /// Its name.
    pub name: &'static str,
    /// What its ticks bring.
    pub wants: Wants,
    /// What it does; a host that cannot do it refuses the role before anything runs.
    pub acts: &'static [Act],
}

/// A kind of [`Action`](crate::control::Action), or of program.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Act {
    /// Bounds the window of a flow.
    SetWindow,
    /// Paces a flow.
    SetRate,
    /// Measures the round-trip time of a flow.
    MeasureRtt,
    /// Sends probes over the data path.
    Probe,
    /// Changes classes of a shaper.
    SetClass,
    /// Changes the TCP of a node.
    Tune,
    /// Sends messages between nodes.
    Send,
    /// Sees the packets that ports send: [`PortProgram`].
    Watch,
    /// Sets windows in passing packets: [`WindowProgram`].
    Rewrite,
}

impl Act {
    /// The acts that are actions, which a host may refuse.
    pub const ACTIONS: [Self; 7] = [
        Self::SetWindow,
        Self::SetRate,
        Self::MeasureRtt,
        Self::Probe,
        Self::SetClass,
        Self::Tune,
        Self::Send,
    ];

    /// Its name in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SetWindow => "set-window",
            Self::SetRate => "set-rate",
            Self::MeasureRtt => "measure-rtt",
            Self::Probe => "probe",
            Self::SetClass => "set-class",
            Self::Tune => "tune",
            Self::Send => "send",
            Self::Watch => "watch",
            Self::Rewrite => "rewrite",
        }
    }

    /// What it does, as the rest of "the lab cannot ...".
    pub const fn words(self) -> &'static str {
        match self {
            Self::SetWindow => "bound the window of a flow",
            Self::SetRate => "pace a flow",
            Self::MeasureRtt => "measure the round-trip time of a flow",
            Self::Probe => "send probes over the data path",
            Self::SetClass => "change classes of a shaper",
            Self::Tune => "change the TCP of a node",
            Self::Send => "send messages between nodes",
            Self::Watch => "see the packets that ports send",
            Self::Rewrite => "set windows in passing packets",
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

/// Every scheme of this crate. Who reads scenarios passes a registry in: other crates may add to it.
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

/// All that a role is built from: a daemon's file says no more.
#[derive(Clone, Debug)]
pub struct Place {
    /// What runs here.
    pub role: &'static RoleDef,
    /// Where: messages to this node reach it, and its observations are of this node.
    pub node: NodeId,
    /// Roles that it talks to, each at its node.
    pub peers: Vec<(NodeId, &'static RoleDef)>,
    /// Ports that it is responsible for.
    pub ports: Vec<PortId>,
    /// Its number among how many of its kind, so that not all speak at once.
    pub rank: (usize, usize),
    /// Parameters of the role.
    pub params: Params,
}

impl Place {
    /// A role at `node`, alone, without ports.
    pub const fn new(role: &'static RoleDef, node: NodeId, params: Params) -> Self {
        Self { role, node, peers: Vec::new(), ports: Vec::new(), rank: (0, 1), params }
    }

    /// Nodes of the peers in `role`.
    pub fn peers_in<'a>(&'a self, role: &'a RoleDef) -> impl Iterator<Item = NodeId> + 'a {
        self.peers.iter().filter(move |(_, of)| of.name == role.name).map(|(node, _)| *node)
    }
}

/// What a scheme puts at a place.
#[derive(Default)]
pub struct Built {
    /// The brain; none: the programs are all.
    pub controller: Option<Box<dyn Controller>>,
    /// Per-packet programs at ports.
    pub programs: Vec<(PortId, Program)>,
}

impl Built {
    /// A brain without programs.
    pub fn brain(controller: impl Controller + 'static) -> Self {
        Self { controller: Some(Box::new(controller)), programs: Vec::new() }
    }
}

/// A per-packet program.
pub enum Program {
    /// Sees what is sent.
    Watch(Box<dyn PortProgram>),
    /// Sets windows in passing packets.
    Rewrite(Box<dyn WindowProgram>),
}

impl Program {
    /// What a host has to be able to do.
    pub const fn act(&self) -> Act {
        match self {
            Self::Watch(_) => Act::Watch,
            Self::Rewrite(_) => Act::Rewrite,
        }
    }
}

/// One role of a scheme at one node.
pub struct Role {
    /// Its scheme.
    pub scheme: &'static SchemeDef,
    /// What it was built from.
    pub place: Place,
    /// What it consists of.
    pub built: Built,
}

impl Role {
    /// The role of `scheme` at `place`.
    pub fn new(
        scheme: &'static SchemeDef,
        place: Place,
        inventory: &Inventory,
        saved: Option<&[u8]>,
    ) -> Self {
        let built = (scheme.build)(&place, inventory, saved);
        Self { scheme, place, built }
    }

    /// Every role of these schemes in a network whose flows' data take `routes`.
    pub fn all(schemes: &[SchemeConfig], inventory: &Inventory, routes: &[Vec<PortId>]) -> Vec<Self> {
        let of = |config: &SchemeConfig| {
            let places = (config.scheme.place)(&config.params, inventory, routes).into_iter();
            let role = |place| Self::new(config.scheme, place, inventory, None);
            places.map(role).collect::<Vec<_>>()
        };
        schemes.iter().flat_map(of).collect()
    }

    /// Nodes that it exchanges probes with, over the data path.
    pub fn probes(&self) -> impl Iterator<Item = NodeId> {
        let sends = self.place.role.acts.contains(&Act::Probe);
        self.place.peers.iter().filter(move |_| sends).map(|(node, _)| *node)
    }
}

/// Statistics that come with ticks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Wants {
    /// Of the node's ports.
    pub ports: bool,
    /// Of the flows that end at the node, and of what its TCP has sent.
    pub flows: bool,
    /// Of the data that its first peer's and its own probes count at this end of their way.
    pub passed: Option<PathEnd>,
}

impl Wants {
    /// None.
    pub const NOTHING: Self = Self { ports: false, flows: false, passed: None };
    /// Of ports.
    pub const PORTS: Self = Self { ports: true, ..Self::NOTHING };
    /// Of flows.
    pub const FLOWS: Self = Self { flows: true, ..Self::NOTHING };
    /// Of data sent towards the peer.
    pub const SENT: Self = Self { passed: Some(PathEnd::First), ..Self::NOTHING };
    /// Of data that arrived from the peer.
    pub const CAME: Self = Self { passed: Some(PathEnd::Last), ..Self::NOTHING };
}
