//! The statistics that conditions are about, and the state of a network or host in their terms.

use serde::{Deserialize, Serialize};

/// A statistic that a condition can name. Over a network it is a set with a value for each link, host or pair, or one
/// value; in the scope of an agent the value of its own host.
#[derive(Debug)]
pub struct Statistic {
    /// Name in policies, `group.field`.
    pub name: &'static str,
    /// Who measures it.
    pub source: Source,
    /// Unit.
    pub unit: &'static str,
    /// What it is, in one line.
    pub doc: &'static str,
    of: Of,
}

/// Where its values are.
#[derive(Debug)]
enum Of {
    Link(fn(&LinkState) -> Option<f64>),
    Host(fn(&HostState) -> Option<f64>),
    Pairs(fn(&State) -> &[PairState]),
    Network(fn(&State) -> Option<f64>),
}

/// Who measures a statistic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// Switches, for each of their ports.
    Link,
    /// Agents, for their host.
    Host,
    /// Agents, for each host or rack that their host gets data from.
    Traffic,
    /// The Oracle, of what switches tell of their ports: one value, not a set.
    Topology,
    /// The Oracle: one value, not a set.
    Oracle,
}

impl Source {
    /// One value of the whole network, not a set.
    pub const fn is_single(self) -> bool {
        matches!(self, Self::Topology | Self::Oracle)
    }

    /// Who measures.
    pub const fn who(self) -> &'static str {
        match self {
            Self::Link => "switches",
            Self::Host | Self::Traffic => "agents",
            Self::Topology => "switches and Oracle",
            Self::Oracle => "Oracle",
        }
    }
}

macro_rules! statistic {
    ($source:ident, $of:expr, $name:expr, $unit:literal, $doc:literal) => {
        Statistic { name: $name, source: Source::$source, unit: $unit, doc: $doc, of: $of }
    };
}

/// Every statistic.
pub static STATISTICS: &[Statistic] = &[
    statistic!(
        Link,
        Of::Link(|link| Some(link.utilization)),
        "link.utilization",
        "share of 1",
        "Bytes sent by a port over what it can send, in the last cycle"
    ),
    statistic!(
        Link,
        Of::Link(|link| Some(link.drop_rate)),
        "link.drop_rate",
        "share of 1",
        "Packets that a port's queue dropped over those offered, in the last cycle"
    ),
    statistic!(
        Link,
        Of::Link(|link| link.backlog),
        "link.backlog",
        "bytes",
        "Bytes that wait at a port at the end of the cycle"
    ),
    statistic!(
        Link,
        Of::Link(|link| link.flows),
        LINK_FLOWS,
        "flows",
        "TCP flows whose data pass a port, between their SYN and their FIN, at the end of the cycle"
    ),
    statistic!(
        Link,
        Of::Link(|link| link.capacity),
        LINK_CAPACITY,
        "bit/s",
        "What a port can send in a second"
    ),
    statistic!(
        Host,
        Of::Host(|host| Some(host.live)),
        "flows.live",
        "flows",
        "TCP flows that a host sends at the end of the cycle"
    ),
    statistic!(
        Host,
        Of::Host(|host| Some(host.started)),
        "flows.started",
        "flows",
        "TCP flows that a host began to send in the last cycle"
    ),
    statistic!(
        Host,
        Of::Host(|host| Some(host.drop_rate)),
        "host.drop_rate",
        "share of 1",
        "Segments that a host sent again over those it sent, in the last cycle"
    ),
    statistic!(
        Host,
        Of::Host(|host| host.rtt),
        "host.rtt",
        "seconds",
        "Longest smoothed round-trip time of the flows that a host sends"
    ),
    statistic!(
        Traffic,
        Of::Pairs(|state| &state.traffic_hosts),
        TRAFFIC_HOSTS,
        "bit/s",
        "TCP payload from one host to another in the last cycle; pairs without any are not in the set"
    ),
    statistic!(
        Traffic,
        Of::Pairs(|state| &state.traffic_racks),
        TRAFFIC_RACKS,
        "bit/s",
        "The same from the hosts at one switch to those at another, or at the same; every pair is in the set"
    ),
    statistic!(
        Topology,
        Of::Network(|state| state.topology.map(|topology| topology.links)),
        "topology.links",
        "links",
        "Links of the switches"
    ),
    statistic!(
        Topology,
        Of::Network(|state| state.topology.and_then(|topology| topology.hops)),
        "topology.hops",
        "links",
        "Links between the two hosts that are furthest apart, by the shortest way"
    ),
    statistic!(
        Topology,
        Of::Network(|state| state.topology.and_then(|topology| topology.oversubscription)),
        "topology.oversubscription",
        "ratio",
        "What a switch can send to its hosts over what it can send to other switches, where that is most"
    ),
    statistic!(
        Oracle,
        Of::Network(|state| Some(state.coverage)),
        "oracle.coverage",
        "share of 1",
        "Nodes heard of in the last two cycles over those that ought to report"
    ),
];

/// Switches count flows for it.
pub(crate) const LINK_FLOWS: &str = "link.flows";
/// Switches tell what is at their ports for it, and for all that is of the topology.
pub(crate) const LINK_CAPACITY: &str = "link.capacity";
/// Agents tell hosts apart for it.
pub(crate) const TRAFFIC_HOSTS: &str = "traffic.hosts";
/// Agents tell racks apart for it.
pub(crate) const TRAFFIC_RACKS: &str = "traffic.racks";

impl PartialEq for Statistic {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Statistic {
    /// The statistic called `name`.
    pub fn named(name: &str) -> Option<&'static Self> {
        STATISTICS.iter().find(|statistic| statistic.name == name)
    }

    /// Its values in `state`.
    pub fn values(&self, state: &State) -> Vec<f64> {
        match self.of {
            Of::Link(of) => state.links.iter().filter_map(of).collect(),
            Of::Host(of) => state.hosts.iter().filter_map(of).collect(),
            Of::Pairs(of) => of(state).iter().map(|pair| pair.rate).collect(),
            Of::Network(of) => of(state).into_iter().collect(),
        }
    }

    /// Its value at one host.
    pub fn of_host(&self, host: &HostState) -> Option<f64> {
        if let Of::Host(of) = self.of { of(host) } else { None }
    }
}

/// What the Oracle knows of the network at one time.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// Nodes heard of over those that ought to report.
    pub coverage: f64,
    /// Ports of switches.
    pub links: Vec<LinkState>,
    /// Hosts.
    pub hosts: Vec<HostState>,
    /// `traffic.hosts`.
    #[serde(default)]
    pub traffic_hosts: Vec<PairState>,
    /// `traffic.racks`.
    #[serde(default)]
    pub traffic_racks: Vec<PairState>,
    /// `topology`; none: no switch has reported its ports.
    #[serde(default)]
    pub topology: Option<TopologyState>,
}

/// What goes from one host or rack to another.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PairState {
    /// Sender, or its switch.
    pub from: String,
    /// Receiver, or its switch.
    pub to: String,
    /// Payload in bit/s.
    pub rate: f64,
}

/// The network as its switches tell it.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TopologyState {
    /// `topology.links`.
    pub links: f64,
    /// `topology.hops`; none: fewer than two hosts, or no way between some.
    #[serde(default)]
    pub hops: Option<f64>,
    /// `topology.oversubscription`; none: no switch with hosts has another switch.
    #[serde(default)]
    pub oversubscription: Option<f64>,
}

/// A port in the last cycle.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkState {
    /// `from->to`.
    pub name: String,
    /// `link.utilization`.
    pub utilization: f64,
    /// `link.drop_rate`.
    #[serde(default)]
    pub drop_rate: f64,
    /// `link.backlog`.
    #[serde(default)]
    pub backlog: Option<f64>,
    /// `link.flows`; none: not collected.
    #[serde(default)]
    pub flows: Option<f64>,
    /// `link.capacity`; none: not collected.
    #[serde(default)]
    pub capacity: Option<f64>,
}

/// A host in the last cycle.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostState {
    /// Its name.
    pub name: String,
    /// `flows.live`.
    #[serde(default)]
    pub live: f64,
    /// `flows.started`.
    #[serde(default)]
    pub started: f64,
    /// `host.drop_rate`.
    #[serde(default)]
    pub drop_rate: f64,
    /// `host.rtt`; none: no flow has measured one.
    #[serde(default)]
    pub rtt: Option<f64>,
}
