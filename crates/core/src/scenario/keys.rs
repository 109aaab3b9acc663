//! Every table of a scenario file, as data: parsing, defaults, errors, the JSON Schema and `explain` come from here.

mod network;
mod results;
mod traffic;

pub(super) use network::{
    ACCESS, BOTTLENECK, CAPACITY, CAPACITY_STEP, FABRIC, GEMODEL, GROUP, LINK, LINK_DEFAULTS, NETWORK,
    shape_in_queue,
};
pub(super) use results::{AXIS, CLAIM, FIGURE, MEASURE, PAPER, REFERENCE, SWEEP, TRACKING, VARIANT, WINDOW};
pub(super) use traffic::{FLOW, STEP, TCP};

use crate::file::{Shape, TableDef};
use crate::params::{Key, Kind, keys};
use crate::units::Dimension;

const RATE: Kind = Kind::Quantity(Dimension::Rate);

const SPAN: Kind = Kind::Quantity(Dimension::Span);

const BYTES: Kind = Kind::Quantity(Dimension::Bytes);

const PACKETS: Kind = Kind::Quantity(Dimension::Packets);

const SHARE: Kind = Kind::Float { min: 0.0, max: 1.0 };

const BAND: Kind = Kind::Float { min: -1e9, max: 1e9 };

const DSCP: Kind = Kind::Integer { min: 0, max: 63 };

const COUNT: Kind = Kind::Integer { min: 1, max: 1_000_000 };

/// Names of congestion controls.
const CONGESTION_CONTROLS: &[&str] =
    &["tahoe", "reno", "newreno", "bic", "cubic", "dctcp", "bbr", "lia", "olia", "balia"];

/// The whole file.
pub(super) static FILE: TableDef = TableDef {
    header: "the file",
    doc: "A bandmaster scenario: a network, its traffic, its schemes, and the results that must hold",
    keys: &[keys! {
        /// Version of the file format, always needed: 1
        "version": Kind::Integer { min: 0, max: i64::MAX }, optional;
        /// Short name, also of the output folder: a-z, 0-9 and -
        "name": Kind::Text, required;
        /// One line for people; absent: the name
        "title": Kind::Text, optional;
        /// A paragraph for people
        "description": Kind::Text, default "";
        /// Presets and `.toml` files, with paths relative to this one; keys of this file override theirs
        "include": Kind::TextList, optional;
        /// Total number of clients; each group's `share` is a fraction of it
        "clients": COUNT, optional;
        /// How long, how often, with which seed
        "run": Kind::Nested, required;
        /// Nodes and links
        "network": Kind::Nested, required;
        /// TCP settings of every flow; absent: CUBIC by the RFCs (`include` "linux-6": Linux's rules)
        "tcp": Kind::Nested, optional;
        /// Who sends what to whom
        "flows": Kind::Nested, required;
        /// Bandwidth-control schemes; absent: none
        "schemes": Kind::Nested, optional;
        /// How messages between the roles of a scheme travel
        "control": Kind::Nested, optional;
        /// Links, nodes and roles of schemes that fail; absent: none
        "faults": Kind::Nested, optional;
        /// What is recorded and summarised
        "measure": Kind::Nested, optional;
        /// Variants of the scenario; absent: one, called base
        "compare": Kind::Nested, optional;
        /// Keys that take several values
        "sweeps": Kind::Nested, optional;
        /// Results that must hold
        "claims": Kind::Nested, optional;
        /// Pictures of the report
        "figures": Kind::Nested, optional;
    }],
    selector: None,
    nested: &[
        ("run", Shape::Table(&RUN)),
        ("network", Shape::Table(&NETWORK)),
        ("tcp", Shape::Table(&TCP)),
        ("flows", Shape::Tables(&FLOW)),
        ("schemes", Shape::Value),
        ("control", Shape::Table(&CONTROL)),
        ("faults", Shape::Table(&FAULTS)),
        ("measure", Shape::Table(&MEASURE)),
        ("compare", Shape::Tables(&VARIANT)),
        ("sweeps", Shape::Tables(&SWEEP)),
        ("claims", Shape::Tables(&CLAIM)),
        ("figures", Shape::Tables(&FIGURE)),
    ],
};

/// `[run]`.
pub(super) static RUN: TableDef = TableDef {
    header: "[run]",
    doc: "How long, how often, with which seed",
    keys: &[keys! {
        /// Simulated time
        "duration": SPAN, required;
        /// Time at the start that metrics leave out, except those of the whole run
        "warm-up": SPAN, default "0s";
        /// Sampling interval of series and of the fairness index
        "sample": SPAN, default "100ms";
        /// Independent repetitions
        "trials": Kind::Integer { min: 1, max: 100_000 }, default "10";
        /// Repetitions of a quick run
        "quick-trials": Kind::Integer { min: 1, max: 100_000 }, default "2";
        /// Seed of every random stream
        "seed": Kind::Integer { min: 0, max: i64::MAX }, default "1";
        /// Parts of the network that `--threads` can simulate at the same time; a part of the input, as the seed
        "partitions": Kind::Integer { min: 1, max: 64 }, default "1";
    }],
    selector: None,
    nested: &[],
};

/// Common to every scheme.
pub(super) const SCHEME_ENABLED: &[Key] = keys! {
    /// Whether the scheme acts
    "enabled": Kind::Bool, default "true";
};

/// `[control]`.
pub(super) static CONTROL: TableDef = TableDef {
    header: "[control]",
    doc: "How messages between the roles of a scheme travel",
    keys: &[keys! {
        /// One-way delay of a message between two nodes
        "delay": SPAN, default "1ms";
        /// Probability that a message between two nodes is lost
        "loss": SHARE, default "0.0";
    }],
    selector: None,
    nested: &[],
};

/// `[faults]`.
pub(super) static FAULTS: TableDef = TableDef {
    header: "[faults]",
    doc: "What fails: links, nodes, and roles of schemes; messages are lost by `control.loss`, packets by the `loss` of \
          links",
    keys: &[keys! {
        /// Links that go down and up; absent: none
        "links": Kind::Nested, optional;
        /// Nodes that go down and up, with all their links; absent: none
        "nodes": Kind::Nested, optional;
        /// Time from a change of the network until routes follow it, drawn for each change
        "reroute": Kind::Draw, default "0s";
        /// Probability that a probe of a scheme is lost in transit, in addition to losses on links
        "probe-loss": SHARE, default "0.0";
        /// Restarts of nodes that run a scheme; absent: none
        "restarts": Kind::Nested, optional;
        /// Nodes whose roles leave and rejoin; absent: none
        "absences": Kind::Nested, optional;
    }],
    selector: None,
    nested: &[
        ("links", Shape::Tables(&LINK_OUTAGE)),
        ("nodes", Shape::Tables(&NODE_OUTAGE)),
        ("restarts", Shape::Tables(&RESTARTS)),
        ("absences", Shape::Tables(&ABSENCES)),
    ],
};

/// When a part of the network is down.
const OUTAGE_KEYS: &[Key] = keys! {
    /// Times such as "1s" at which it goes down; this or `time-to-failure`
    "down": Kind::TextList, optional;
    /// Times at which it comes up again, one after each of `down`; without the last of them it stays down
    "up": Kind::TextList, optional;
    /// Time until it goes down, drawn at the start of the run and after each repair
    "time-to-failure": Kind::Draw, optional;
    /// Time until it comes up again, drawn at each failure; with `time-to-failure`
    "time-to-repair": Kind::Draw, optional;
};

/// `[[faults.links]]`.
pub(super) static LINK_OUTAGE: TableDef = TableDef {
    header: "[[faults.links]]",
    doc: "A link that goes down and up: what waits for it or is on it is lost, in both directions",
    keys: &[
        keys! {
            /// The two nodes that it links
            "ends": Kind::TextList, required;
            /// Which of the links between them, from 1
            "number": COUNT, default "1";
        },
        OUTAGE_KEYS,
    ],
    selector: None,
    nested: &[],
};

/// `[[faults.nodes]]`.
pub(super) static NODE_OUTAGE: TableDef = TableDef {
    header: "[[faults.nodes]]",
    doc: "A node whose links all go down and up; roles of schemes at the node go on",
    keys: &[
        keys! {
            /// The node
            "node": Kind::Text, required;
        },
        OUTAGE_KEYS,
    ],
    selector: None,
    nested: &[],
};

/// `[[faults.absences]]`.
pub(super) static ABSENCES: TableDef = TableDef {
    header: "[[faults.absences]]",
    doc: "Roles of a node that end and start again, as when a host leaves the network's inventory; its flows \
     go on",
    keys: &[keys! {
        /// The node
        "node": Kind::Text, required;
        /// Times such as "90s" at which it leaves, at least one
        "leaves": Kind::TextList, required;
        /// Times at which it joins again; absent: never
        "joins": Kind::TextList, optional;
    }],
    selector: None,
    nested: &[],
};

/// `[[faults.restarts]]`.
pub(super) static RESTARTS: TableDef = TableDef {
    header: "[[faults.restarts]]",
    doc: "Roles of a node that restart with counters at zero, as after a reboot",
    keys: &[keys! {
        /// The node
        "node": Kind::Text, required;
        /// Times such as "90s", at least one
        "at": Kind::TextList, required;
    }],
    selector: None,
    nested: &[],
};

#[cfg(test)]
mod tests {
    use super::network::OF_QUEUES;
    use super::*;
    use crate::params::Written;

    fn check(def: &'static TableDef) {
        for key in def.keys_for(None) {
            assert!(!key.doc.is_empty() && !key.doc.ends_with('.'), "{}: {}", def.header, key.name);
            if key.kind == Kind::Nested {
                match def.shape(key.name) {
                    Some(Shape::Table(inner) | Shape::Tables(inner)) => check(inner),
                    Some(_) => {}
                    None => panic!("{} has no shape for {}", def.header, key.name),
                }
            } else if let Some(default) = key.default.filter(|_| key.kind != Kind::Text) {
                key.kind.parse(&Written::from_word(default)).unwrap_or_else(|e| panic!("{}: {e}", key.name));
            }
        }
        if let Some(selector) = def.selector {
            let key = def.keys_for(None).into_iter().find(|key| key.name == selector.key);
            let Some(Kind::Choice(words)) = key.map(|key| key.kind) else { panic!("{}", selector.key) };
            assert!(selector.choices.iter().map(|(word, _)| word).eq(words), "{words:?}");
        }
        for (name, _) in def.nested {
            assert!(def.keys_for(None).iter().any(|k| k.name == *name), "{} has no key {name}", def.header);
        }
    }

    #[test]
    fn defaults_are_values_of_their_keys_and_every_nested_key_has_a_shape() {
        check(&FILE);
        for (discipline, key, shape) in OF_QUEUES {
            let def = crate::qdisc::registry::REGISTRY.iter().find(|def| def.name == *discipline);
            let key = def.and_then(|def| def.keys.iter().find(|k| k.name == *key));
            assert_eq!(key.map(|key| key.kind), Some(Kind::Nested), "{discipline}");
            if let Shape::Table(inner) | Shape::Tables(inner) = shape {
                check(inner);
            }
        }
        for def in crate::qdisc::registry::REGISTRY {
            for key in def.keys.iter().filter(|key| key.kind == Kind::Nested) {
                assert!(shape_in_queue(def.name, key.name).is_some(), "{}: {}", def.name, key.name);
            }
        }
    }
}
