//! The tables and keys of deployment files.

use super::peer::AuthKind;
use super::peer::DEFAULT_PORT;
use super::{Protocol, Restore, Role};
use crate::daemon;
use crate::file::{Shape, TableDef};
use crate::params::{Choice, Key, Kind, keys};
use crate::scheme::er2bc;
use crate::units::Dimension;

const RATE: Kind = Kind::Quantity(Dimension::Rate);
const SPAN: Kind = Kind::Quantity(Dimension::Span);
const PORT: Kind = Kind::Integer { min: 1, max: 65_535 };

pub(super) static FILE: TableDef = TableDef {
    header: "the file",
    doc: "A bandmaster gateway",
    keys: &[keys! {
        ..daemon::VERSION;
        /// Ask and shape what is sent, count and answer, or both
        "role": Role::KIND, required;
        /// Network device towards the peer
        "interface": Kind::Text, required;
        /// Its name among the gateways of the machine; absent: that of the file, without `.toml`
        "name": Kind::Text, optional;
        /// Folder of journal and status; absent: `/var/lib/bandmaster/NAME`
        "state-directory": Kind::Text, optional;
        ..daemon::METRICS;
        /// When the machine gets back what it had
        "restore": Restore::KIND, default "on-exit";
        /// Replace a queue discipline of somebody else
        "replace-qdisc": Kind::Bool, default "false";
        ..daemon::LOG;
        /// The other gateway
        "peer": Kind::Nested, required;
        /// How the bandwidth is estimated and divided (sender)
        "control": Kind::Nested, optional;
        /// Classes of traffic (sender)
        "classes": Kind::Nested, optional;
        /// What is counted as data (receiver); absent: all that comes from the peer's address
        "data": Kind::Nested, optional;
    }],
    selector: None,
    nested: &[
        ("peer", Shape::Table(&PEER)),
        ("control", Shape::Table(&CONTROL)),
        ("classes", Shape::Tables(&CLASS)),
        ("data", Shape::Tables(&DATA)),
    ],
};

pub(super) static PEER: TableDef = TableDef {
    header: "[peer]",
    doc: "The other gateway",
    keys: &[keys! {
        /// Its IP address, its name, or `any`: it is where its valid messages come from
        "address": Kind::Text, required;
        /// Its UDP port
        "port": PORT, default DEFAULT_PORT;
        /// Own address of the socket; absent: any
        "listen-address": Kind::Text, optional;
        /// Own UDP port
        "listen-port": PORT, default DEFAULT_PORT;
        /// `hmac`: messages carry a tag; `none`: the paper's form, which anybody can forge
        "auth": AuthKind::KIND, default "hmac";
        /// Receiver: after so long without a question, say where it is, for a peer that does not know
        "keep-alive": SPAN, optional;
        /// File with the secret that both gateways know (auth = "hmac")
        "key-file": Kind::Text, optional;
        /// role = "both": the secret of the direction in which data comes; the peer's key-file
        "answer-key-file": Kind::Text, optional;
    }],
    selector: None,
    nested: &[],
};

pub(super) static CONTROL: TableDef = TableDef {
    header: "[control]",
    doc: "How the bandwidth is estimated and divided",
    keys: &[
        er2bc::CONTROL_KEYS,
        keys! {
            /// Bandwidth in force while the peer is silent
            "safe-rate": RATE, required;
            /// How long the peer may be silent before that
            "hold": SPAN, default "10s";
            /// Share of the bytes of 10 s, or of what all classes need when that is more, from which on it is said that they leave by no class
            "unclassified": Kind::Float { min: 0.0, max: 1.0 }, default "0.05";
        },
    ],
    selector: None,
    nested: &[],
};

pub(super) static CLASS: TableDef = TableDef {
    header: "[[classes]]",
    doc: "A class of traffic",
    keys: &[keys! {
        /// Name
        "name": Kind::Text, required;
        /// Its place: 1 before 2
        "priority": Kind::Integer { min: 1, max: 1000 }, required;
        /// Rate of IP packets that each of its flows needs; other rates are of bytes on the link
        "need": RATE, required;
        /// Flows in it at a time; with count-flows, at least
        "flows": Kind::Integer { min: 1, max: 100_000 }, default "1";
        /// Count the flows in it (TCP and UDP, by addresses and ports, for 10 s after their last packet)
        "count-flows": Kind::Bool, default "false";
        /// It sends lost packets again (TCP); without, it is sent with redundancy (UDP)
        "retransmission": Kind::Bool, default "true", from "Sect. 3.1";
        /// Packets that wait at most; without, 100 ms of what all its flows need, and 20 at least
        "queue": Kind::Quantity(Dimension::Packets), optional;
        /// Rules, one of which a packet must fit; absent, on the last class only: all that is left
        "match": Kind::Nested, optional;
    }],
    selector: None,
    nested: &[("match", Shape::Tables(&MATCH))],
};

const MATCH_KEYS: &[Key] = keys! {
    /// Code points
    "dscp": Kind::Nested, optional;
    /// Source addresses or prefixes
    "source": Kind::TextList, optional;
    /// Destination addresses or prefixes
    "destination": Kind::TextList, optional;
    /// Transport protocol
    "protocol": Protocol::KIND, optional;
    /// Destination ports, or ranges as "5000-5010"; needs protocol
    "ports": Kind::Nested, optional;
};

pub(super) static MATCH: TableDef = TableDef {
    header: "[[classes.match]]",
    doc: "A rule",
    keys: &[MATCH_KEYS],
    selector: None,
    nested: &[("dscp", Shape::CodePoints), ("ports", Shape::Values)],
};

pub(super) static DATA: TableDef = TableDef {
    header: "[[data]]",
    doc: "A rule for what is counted as data",
    keys: &[MATCH_KEYS],
    selector: None,
    nested: &[("dscp", Shape::CodePoints), ("ports", Shape::Values)],
};

/// The keys of deployment files, table by table, for their documentation: header, then key, what is allowed, default
/// and meaning.
pub fn reference() -> Vec<(&'static str, Vec<&'static Key>)> {
    [&FILE, &PEER, &CONTROL, &CLASS, &MATCH].into_iter().map(|def| (def.header, def.keys_for(None))).collect()
}
