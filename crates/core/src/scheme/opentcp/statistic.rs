//! The statistics that conditions are about, and the state of a network or host in their terms.

use serde::{Deserialize, Serialize};

/// A statistic that a condition can name. Over a network it is a set with a value for each link or host, in the scope
/// of an agent the value of its own host.
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
    of_link: fn(&LinkState) -> Option<f64>,
    of_host: fn(&HostState) -> Option<f64>,
}

/// Who measures a statistic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// Switches, for each of their ports.
    Link,
    /// Agents, for their host.
    Host,
    /// The Oracle: one value, not a set.
    Oracle,
}

macro_rules! link {
    ($name:literal, $unit:literal, $doc:literal, $of:expr) => {
        Statistic {
            name: $name,
            source: Source::Link,
            unit: $unit,
            doc: $doc,
            of_link: $of,
            of_host: |_| None,
        }
    };
}

macro_rules! host {
    ($name:literal, $unit:literal, $doc:literal, $of:expr) => {
        Statistic {
            name: $name,
            source: Source::Host,
            unit: $unit,
            doc: $doc,
            of_link: |_| None,
            of_host: $of,
        }
    };
}

/// Every statistic.
pub static STATISTICS: &[Statistic] = &[
    link!(
        "link.utilization",
        "share of 1",
        "Bytes sent by a port over what it can send, in the last cycle",
        |link| { Some(link.utilization) }
    ),
    link!(
        "link.drop_rate",
        "share of 1",
        "Packets that a port's queue dropped over those offered, in the last cycle",
        |link| { Some(link.drop_rate) }
    ),
    link!("link.backlog", "bytes", "Bytes that wait at a port at the end of the cycle", |link| Some(
        link.backlog
    )),
    host!("flows.live", "flows", "TCP flows that a host sends at the end of the cycle", |host| Some(
        host.live
    )),
    host!("flows.started", "flows", "TCP flows that a host began to send in the last cycle", |host| Some(
        host.started
    )),
    host!(
        "host.drop_rate",
        "share of 1",
        "Segments that a host sent again over those it sent, in the last cycle",
        |host| { Some(host.drop_rate) }
    ),
    host!("host.rtt", "seconds", "Longest smoothed round-trip time of the flows that a host sends", |host| {
        host.rtt
    }),
    Statistic {
        name: "oracle.coverage",
        source: Source::Oracle,
        unit: "share of 1",
        doc: "Nodes heard of in the last two cycles over those that ought to report",
        of_link: |_| None,
        of_host: |_| None,
    },
];

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
        match self.source {
            Source::Link => state.links.iter().filter_map(self.of_link).collect(),
            Source::Host => state.hosts.iter().filter_map(self.of_host).collect(),
            Source::Oracle => vec![state.coverage],
        }
    }

    /// Its value at one host.
    pub fn of_host(&self, host: &HostState) -> Option<f64> {
        (self.of_host)(host)
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
    pub backlog: f64,
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
