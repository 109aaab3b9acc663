//! Every table of a scenario file, as data: parsing, defaults, errors, the JSON Schema and `explain` come from here.

mod network;
mod results;
mod traffic;

pub(super) use network::{
    ACCESS, BOTTLENECK, CAPACITY, CAPACITY_STEP, FABRIC, GROUP, LINK, LINK_DEFAULTS, NETWORK, shape_in_queue,
};
pub(super) use results::{CLAIM, FIGURE, MEASURE, PAPER, REFERENCE, SWEEP, TRACKING, VARIANT, WINDOW};
pub(super) use traffic::{FLOW, STEP, TCP};

use crate::file::{Shape, TableDef};
use crate::params::{Key, Kind};
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
    &["tahoe", "reno", "newreno", "bic", "cubic", "dctcp", "lia", "olia", "balia"];

/// Origin of defaults that no paper, RFC or system gives.
const HOUSE: &str = "";

/// The whole file.
pub(super) static FILE: TableDef = TableDef {
    header: "the file",
    doc: "A bandmaster scenario: a network, its traffic, the schemes in charge, and what must come out",
    keys: &[&[
        Key::optional(
            "version",
            Kind::Integer { min: 0, max: i64::MAX },
            "Version of the file format, always needed: 1",
        ),
        Key::required("name", Kind::Text, "Short name, also of the output folder: a-z, 0-9 and -"),
        Key::optional("title", Kind::Text, "One line for people; absent: the name"),
        Key::new("description", Kind::Text, "", "A paragraph for people", HOUSE),
        Key::optional("clients", COUNT, "Number of which each group's `share` is a part"),
        Key::required("run", Kind::Nested, "How long, how often, with which seed"),
        Key::required("network", Kind::Nested, "Nodes and links"),
        Key::optional("tcp", Kind::Nested, "TCP settings of every flow; absent: today's Linux"),
        Key::required("flows", Kind::Nested, "Who sends what to whom"),
        Key::optional("schemes", Kind::Nested, "Bandwidth-control schemes; absent: none"),
        Key::optional("control", Kind::Nested, "How messages between the roles of a scheme travel"),
        Key::optional("faults", Kind::Nested, "What goes wrong with schemes; absent: nothing"),
        Key::optional("measure", Kind::Nested, "What is recorded and summarised"),
        Key::optional("compare", Kind::Nested, "Variants of the scenario; absent: one, called base"),
        Key::optional("sweeps", Kind::Nested, "Keys that take several values"),
        Key::optional("claims", Kind::Nested, "What must come out"),
        Key::optional("figures", Kind::Nested, "Pictures of the report"),
    ]],
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
    keys: &[&[
        Key::required("duration", SPAN, "Simulated time"),
        Key::new("warm-up", SPAN, "0s", "Time at the start that no metric includes", HOUSE),
        Key::new("sample", SPAN, "100ms", "Sampling interval of series and of the fairness index", HOUSE),
        Key::new("trials", Kind::Integer { min: 1, max: 100_000 }, "10", "Independent repetitions", HOUSE),
        Key::new(
            "quick-trials",
            Kind::Integer { min: 1, max: 100_000 },
            "2",
            "Repetitions of a quick run",
            HOUSE,
        ),
        Key::new("seed", Kind::Integer { min: 0, max: i64::MAX }, "1", "Seed of every random stream", HOUSE),
    ]],
    selector: None,
    nested: &[],
};

const LINUX: &str = "Linux";

/// Common to every scheme.
pub(super) const SCHEME_ENABLED: &[Key] =
    &[Key::new("enabled", Kind::Bool, "true", "Whether the scheme acts", HOUSE)];

/// `[control]`.
pub(super) static CONTROL: TableDef = TableDef {
    header: "[control]",
    doc: "How messages between the roles of a scheme travel",
    keys: &[&[
        Key::new("delay", SPAN, "1ms", "One-way delay of a message between two nodes", HOUSE),
        Key::new("loss", SHARE, "0.0", "Probability that a message between two nodes is lost", HOUSE),
    ]],
    selector: None,
    nested: &[],
};

/// `[faults]`.
pub(super) static FAULTS: TableDef = TableDef {
    header: "[faults]",
    doc: "What goes wrong with schemes; messages are lost by `control.loss`, packets by the `loss` of links",
    keys: &[&[
        Key::new(
            "probe-loss",
            SHARE,
            "0.0",
            "Probability that a probe of a scheme is lost on its way, beside what links lose",
            HOUSE,
        ),
        Key::optional("restarts", Kind::Nested, "Restarts of nodes that run a scheme; absent: none"),
        Key::optional("absences", Kind::Nested, "Nodes whose roles go and come back; absent: none"),
    ]],
    selector: None,
    nested: &[("restarts", Shape::Tables(&RESTARTS)), ("absences", Shape::Tables(&ABSENCES))],
};

/// `[[faults.absences]]`.
pub(super) static ABSENCES: TableDef = TableDef {
    header: "[[faults.absences]]",
    doc: "Roles at a node that end and begin anew, as of a host that leaves the network's inventory; its flows go on",
    keys: &[&[
        Key::required("node", Kind::Text, "The node"),
        Key::required("leaves", Kind::TextList, "Times such as \"90s\" at which it leaves, at least one"),
        Key::optional("joins", Kind::TextList, "Times at which it joins again; absent: never"),
    ]],
    selector: None,
    nested: &[],
};

/// `[[faults.restarts]]`.
pub(super) static RESTARTS: TableDef = TableDef {
    header: "[[faults.restarts]]",
    doc: "Roles at a node that begin anew with counters at zero, as after a restart of the machine",
    keys: &[&[
        Key::required("node", Kind::Text, "The node"),
        Key::required("at", Kind::TextList, "Times such as \"90s\", at least one"),
    ]],
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
