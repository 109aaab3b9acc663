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
        /// Sender: ask the peer, and shape; receiver: count, and answer; or both
        "role": Role::KIND, required;
        /// Network device towards the peer
        "interface": Kind::Text, required;
        /// Name of this gateway on the machine; absent: the file's name without `.toml`
        "name": Kind::Text, optional;
        /// Folder of journal and status; absent: `/var/lib/bandmaster/NAME`
        "state-directory": Kind::Text, optional;
        ..daemon::METRICS;
        /// When the gateway restores the machine's own settings
        "restore": Restore::KIND, default "on-exit";
        /// Replace a queue discipline that is not the gateway's
        "replace-qdisc": Kind::Bool, default "false";
        ..daemon::LOG;
        /// The other gateway
        "peer": Kind::Nested, required;
        /// How the bandwidth is estimated and divided (sender)
        "control": Kind::Nested, optional;
        /// Classes of traffic (sender)
        "classes": Kind::Nested, optional;
        /// Packets that count as data (receiver); absent: all packets from the peer's address
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
        /// Its IP address, its name, or `any`: where its valid messages come from
        "address": Kind::Text, required;
        /// Its UDP port
        "port": PORT, default DEFAULT_PORT;
        /// Own address of the socket; absent: any
        "listen-address": Kind::Text, optional;
        /// Own UDP port
        "listen-port": PORT, default DEFAULT_PORT;
        /// `hmac`: messages carry a tag; `none`: the paper's form, which anybody can forge
        "auth": AuthKind::KIND, default "hmac";
        /// Receiver: after this time without a question, send a message from which a peer that does not know its address learns it
        "keep-alive": SPAN, optional;
        /// File with the secret that both gateways know (auth = "hmac")
        "key-file": Kind::Text, optional;
        /// role = "both": secret of the incoming direction; the peer's key-file
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
            /// How long the peer may be silent before `safe-rate` applies
            "hold": SPAN, default "10s";
            /// The fault `unclassified` begins when more than this share of traffic matches no class: of the bytes of 10 s, or of what all classes need when that is more
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
        /// Priority: 1 before 2
        "priority": Kind::Integer { min: 1, max: 1000 }, required;
        /// Rate that each of its flows needs, in bytes of IP packets; other rates are in bytes on the link
        "need": RATE, required;
        /// Concurrent flows; with count-flows, the least number
        "flows": Kind::Integer { min: 1, max: 100_000 }, default "1";
        /// Count its flows (TCP and UDP, by addresses and ports, for 10 s after their last packet)
        "count-flows": Kind::Bool, default "false";
        /// Its senders retransmit lost packets (TCP); false: they send with redundancy (UDP)
        "retransmission": Kind::Bool, default "true", from "Sect. 3.1";
        /// Queue limit; absent: 100 ms of what all its flows need, at least 20 packets
        "queue": Kind::Quantity(Dimension::Packets), optional;
        /// Rules; a packet must match one. Absent, on the last class only: all remaining packets
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
