//! What switches, agents and the Oracle tell each other.
//!
//! Zeros are not sent: a port that a report covers and does not list was idle. Every report is complete, so a lost one
//! costs no more than its own numbers.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::statistic::{HostState, LinkState};
use crate::control::{Message, PortStats};
use crate::id::NodeId;
use crate::time::Span;
use crate::tuning::Tuning;
use crate::units::Bytes;

/// Ports of one report at most, so that it fits into a datagram of 1500 bytes.
pub const PORTS_PER_REPORT: usize = 100;
/// Rows of one report of traffic at most, for the same reason.
pub const ROWS_PER_REPORT: usize = 150;
/// Addresses of one report of traffic at most.
pub const ADDRESSES_PER_REPORT: usize = 60;
/// Longest lease of a CUE.
pub(crate) const LONGEST_LEASE: Span = Span::from_secs(7 * 24 * 3600);

/// A message.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Body {
    /// An agent's statistics.
    Host(HostReport),
    /// A switch's statistics.
    Switch(SwitchReport),
    /// The Oracle's instruction to an agent.
    Cue(Cue),
    /// A switch's statistics, and what policies ask for besides.
    SwitchAlso(SwitchReport, Columns),
    /// An agent's part of the traffic matrix.
    Traffic(TrafficReport),
    /// The same, by the addresses of senders.
    TrafficFrom(AddressReport),
}

/// What an agent has measured in a cycle.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HostReport {
    /// Number of the report, modulo 2^32.
    pub sequence: u32,
    /// Flows live.
    pub live: u32,
    /// Flows started.
    pub started: u32,
    /// Segments sent again, in millionths of those sent.
    pub drop_rate: u32,
    /// Longest smoothed round-trip time in microseconds; 0: none.
    pub rtt: u32,
}

/// What a switch has measured in a cycle.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SwitchReport {
    /// Number of the report, modulo 2^32.
    pub sequence: u32,
    /// Place of the first port covered, among those of the switch.
    pub first: u32,
    /// Ports covered.
    pub covered: u32,
    /// Those of them that were not idle.
    pub ports: Vec<PortReport>,
}

/// A port that was not idle.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PortReport {
    /// Its place from the first port covered.
    pub place: u32,
    /// Utilization in ten-thousandths.
    pub utilization: u32,
    /// Packets dropped, in millionths of those offered.
    pub drop_rate: u32,
    /// Bytes that wait; [`NOT_TOLD`]: nobody knows.
    pub backlog: u32,
}

/// A backlog that the switch does not tell.
pub const NOT_TOLD: u32 = u32::MAX;
/// The longest that is reported.
const MOST_BACKLOG: u32 = NOT_TOLD - 1;

/// Values for every port covered, idle or not, in order; a column that nobody asks for is empty.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Columns {
    /// Flows between their SYN and their FIN.
    pub flows: Vec<u32>,
    /// What is at the port.
    pub links: Vec<PortLink>,
}

/// What is at a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PortLink {
    /// Number of the node at the other end.
    pub to: u32,
    /// What it can send, in kbit/s.
    pub capacity: u32,
}

/// Data that arrived at an agent's host in a cycle; several reports with one number where rows are many.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TrafficReport {
    /// Number of the report, modulo 2^32.
    pub sequence: u32,
    /// Senders and their rates; the report says nothing of others.
    pub rows: Vec<TrafficRow>,
}

/// Data that arrived from one host or rack.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TrafficRow {
    /// Number of the host, or of its switch.
    pub from: u32,
    /// Payload in kbit/s, at least 1.
    pub rate: u32,
}

/// What has come to an agent's host in a cycle, by the addresses of senders.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AddressReport {
    /// Number of the report, modulo 2^32.
    pub sequence: u32,
    /// Reports with this number; nothing is known before all of them have arrived.
    pub parts: u32,
    /// Senders and their rates; the report says nothing of others.
    pub rows: Vec<AddressRow>,
}

/// Data that arrived from one address.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AddressRow {
    /// The sender's.
    pub from: IpAddr,
    /// Payload in kbit/s, at least 1.
    pub rate: u32,
}

/// Whose data have come.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Origin {
    /// A host's, or those of the hosts at a switch.
    Node(NodeId),
    /// Of the host that has the address, as the Oracle knows.
    Address(IpAddr),
}

/// A Congestion Update Epistle.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Cue {
    /// When the Oracle began, in its milliseconds: a later one follows no matter what its numbers are.
    pub epoch: u64,
    /// Number of the decision.
    pub sequence: u32,
    /// How long it is in force from its arrival, in milliseconds; 0: own settings at once.
    pub lease: u32,
    /// What to set.
    pub tuning: Tuning,
    /// What the agent checks all the time, as conditions of its host; any that fails ends the lease.
    pub preconditions: Vec<String>,
}

/// What a message says; none for what this version does not know, is cut short, has bytes left over or asks for what no
/// Oracle asks for.
pub fn read(message: &Message) -> Option<Body> {
    let body = message.read()?;
    let is_sound = match &body {
        Body::Cue(cue) => cue.is_sound(),
        Body::Switch(report) => report.is_sound(),
        Body::SwitchAlso(report, Columns { flows, links }) => {
            let fits = |told: usize| told == 0 || told == report.covered as usize;
            report.is_sound() && fits(flows.len()) && fits(links.len())
        }
        Body::Traffic(report) => report.rows.len() <= ROWS_PER_REPORT,
        Body::TrafficFrom(report) => report.rows.len() <= ADDRESSES_PER_REPORT && report.parts > 0,
        Body::Host(_) => true,
    };
    is_sound.then_some(body)
}

impl Cue {
    /// How long it is in force.
    pub fn lease(&self) -> Span {
        Span::from_millis(self.lease.into())
    }

    /// Its place among all CUEs.
    pub fn order(&self) -> (u64, u32) {
        (self.epoch, self.sequence)
    }

    fn is_sound(&self) -> bool {
        let Tuning { initial_window, min_rto, initial_rto, window_cap, .. } = self.tuning;
        let is_timeout = |span: Span| !span.is_zero() && span <= Span::from_secs(3600);
        self.lease() <= LONGEST_LEASE
            && initial_window.is_none_or(|n| (1..=1000).contains(&n))
            && min_rto.is_none_or(is_timeout)
            && initial_rto.is_none_or(is_timeout)
            && window_cap.is_none_or(|n| n > 0)
    }
}

impl HostReport {
    /// As conditions see it.
    pub fn state(&self, name: String) -> HostState {
        HostState {
            name,
            live: self.live.into(),
            started: self.started.into(),
            drop_rate: f64::from(self.drop_rate) / 1e6,
            rtt: (self.rtt > 0).then(|| f64::from(self.rtt) / 1e6),
        }
    }
}

impl SwitchReport {
    /// As conditions see it: every port covered, by its place among those of the switch.
    pub fn states(&self, also: &Columns, name: impl Fn(u32) -> String) -> Vec<LinkState> {
        let state = |place: u32| {
            let busy = self.ports.iter().find(|port| port.place == place).copied();
            LinkState {
                name: name(self.first + place),
                utilization: busy.map_or(0.0, |port| f64::from(port.utilization) / 1e4),
                drop_rate: busy.map_or(0.0, |port| f64::from(port.drop_rate) / 1e6),
                backlog: match busy {
                    Some(PortReport { backlog: NOT_TOLD, .. }) => None,
                    busy => Some(busy.map_or(0.0, |port| port.backlog.into())),
                },
                flows: also.flows.get(place as usize).map(|flows| f64::from(*flows)),
                capacity: also.links.get(place as usize).map(PortLink::bits_per_sec),
            }
        };
        (0..self.covered).map(state).collect()
    }
}

impl SwitchReport {
    fn is_sound(&self) -> bool {
        (1..=PORTS_PER_REPORT).contains(&(self.covered as usize))
            && self.first.checked_add(self.covered).is_some()
            && self.ports.iter().all(|port| port.place < self.covered)
    }
}

impl PortLink {
    /// What it can send in a second.
    pub fn bits_per_sec(&self) -> f64 {
        f64::from(self.capacity) * 1e3
    }
}

impl PortReport {
    /// What has happened at a port between two looks at it, `span` apart; none when it was idle.
    pub fn between(before: &PortStats, after: &PortStats, span: Span, place: u32) -> Option<Self> {
        let bits = 8.0 * after.sent.get().saturating_sub(before.sent.get()) as f64;
        let room = after.capacity.bits_per_sec() as f64 * span.as_secs_f64();
        let utilization = if room > 0.0 { (bits / room).min(1.0) } else { 0.0 };
        let drop_rate =
            share(after.dropped.saturating_sub(before.dropped), after.offered.saturating_sub(before.offered));
        let told =
            |backlog: Bytes| u32::try_from(backlog.get()).map_or(MOST_BACKLOG, |n| n.min(MOST_BACKLOG));
        let backlog = after.backlog.map_or(NOT_TOLD, told);
        let report = Self { place, utilization: (utilization * 1e4).round() as u32, drop_rate, backlog };
        (report.utilization > 0 || drop_rate > 0 || backlog > 0).then_some(report)
    }
}

/// `part` in millionths of `whole`, at most all of it.
pub fn share(part: u64, whole: u64) -> u32 {
    if whole == 0 { 0 } else { (part.min(whole) as f64 / whole as f64 * 1e6).round() as u32 }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::control::body;
    use crate::id::PortId;
    use crate::scheme::opentcp::DEF;
    use crate::tuning::Variant;
    use crate::units::{Bytes, Rate};

    fn cue() -> Cue {
        Cue {
            epoch: 86_400_000,
            sequence: 1440,
            lease: 180_000,
            tuning: Tuning {
                initial_window: Some(20),
                min_rto: Some(Span::from_millis(2)),
                variant: Some(Variant::Bic),
                ..Tuning::default()
            },
            preconditions: vec!["host.drop_rate <= 0.001".to_owned()],
        }
    }

    fn message(body: Vec<u8>) -> Message {
        Message { from: NodeId(1), scheme: DEF.code, body }
    }

    fn said(said: &Body) -> Option<Body> {
        read(&message(body(said)))
    }

    #[test]
    fn messages_come_back_as_they_were() {
        let ports = vec![PortReport { place: 3, utilization: 7000, drop_rate: 12, backlog: 3000 }];
        let report = SwitchReport { sequence: 7, first: 100, covered: 43, ports };
        let host = HostReport { sequence: 1440, live: 41, started: 900, drop_rate: 500, rtt: 900 };
        let links = vec![PortLink { to: 9, capacity: 1_000_000 }; 43];
        let also = Columns { flows: (0..43).collect(), links };
        let traffic = TrafficReport { sequence: 3, rows: vec![TrafficRow { from: 5, rate: 70_000 }] };
        let address = AddressRow { from: "2001:db8::1".parse().expect("an address"), rate: 70_000 };
        for body in [
            Body::Cue(cue()),
            Body::Switch(report.clone()),
            Body::Host(host),
            Body::SwitchAlso(report.clone(), also.clone()),
            Body::SwitchAlso(report.clone(), Columns { flows: Vec::new(), ..also.clone() }),
            Body::Traffic(traffic),
            Body::TrafficFrom(AddressReport {
                sequence: 3,
                parts: 1,
                rows: vec![address; ADDRESSES_PER_REPORT],
            }),
        ] {
            assert_eq!(said(&body), Some(body));
        }
        let states = report.states(&Columns::default(), |place| place.to_string());
        assert_eq!((states.len(), states[3].utilization, states[4].utilization), (43, 0.7, 0.0));
        assert_eq!((states[3].name.as_str(), states[3].flows, states[3].capacity), ("103", None, None));
        let states = report.states(&also, |place| place.to_string());
        assert_eq!((states[42].flows, states[42].capacity), (Some(42.0), Some(1e9)), "an idle port's too");
    }

    #[test]
    fn what_no_oracle_sends_is_refused() {
        let good = body(&Body::Cue(cue()));
        let unknown = [&[6], &good[1..]].concat();
        for wrong in [good[..good.len() - 1].to_vec(), [&good[..], &[0]].concat(), unknown] {
            assert_eq!(read(&message(wrong)), None);
        }
        for wrong in [
            Cue { lease: u32::MAX, ..cue() },
            Cue { tuning: Tuning { initial_window: Some(0), ..Tuning::default() }, ..cue() },
            Cue { tuning: Tuning { min_rto: Some(Span::ZERO), ..Tuning::default() }, ..cue() },
        ] {
            assert_eq!(said(&Body::Cue(wrong)), None);
        }
        for (first, covered) in [(0, 0), (0, PORTS_PER_REPORT as u32 + 1), (u32::MAX, 1)] {
            let wrong = SwitchReport { sequence: 0, first, covered, ports: Vec::new() };
            assert_eq!(said(&Body::Switch(wrong)), None, "{covered} from {first}");
        }
        let report = SwitchReport { sequence: 0, first: 0, covered: 2, ports: Vec::new() };
        for flows in [vec![1], vec![1; 3]] {
            let also = Columns { flows, ..Columns::default() };
            assert_eq!(said(&Body::SwitchAlso(report.clone(), also)), None, "for all ports, or for none");
        }
        let rows = vec![TrafficRow { from: 1, rate: 1 }; ROWS_PER_REPORT + 1];
        assert_eq!(said(&Body::Traffic(TrafficReport { sequence: 0, rows })), None);
        let row = AddressRow { from: [192, 0, 2, 1].into(), rate: 1 };
        let rows = vec![row; ADDRESSES_PER_REPORT + 1];
        assert_eq!(said(&Body::TrafficFrom(AddressReport { sequence: 0, parts: 1, rows })), None);
    }

    #[test]
    fn ports_are_measured_between_two_looks() {
        let before = PortStats {
            port: PortId(0),
            capacity: Rate::from_bits_per_sec(1_000_000),
            flows: None,
            backlog: Some(Bytes::ZERO),
            sent: Bytes::new(1000),
            offered: 10,
            dropped: 0,
        };
        let span = Span::from_secs(1);
        assert_eq!(PortReport::between(&before, &before, span, 0), None);
        let after = PortStats { sent: Bytes::new(63_500), offered: 110, dropped: 1, ..before };
        let report = PortReport::between(&before, &after, span, 5).unwrap();
        assert_eq!((report.place, report.utilization, report.drop_rate), (5, 5000, 10_000));
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_reader_fail(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = read(&message(bytes));
        }
    }
}
