//! BAS: a central allocator gives every flow a fair window (Ito, Koga, Iida 2018).

use super::SchemeDef;
use crate::params::{Key, Kind, Params, Value};
use crate::units::Dimension;

/// The registry entry.
pub static DEF: SchemeDef = SchemeDef {
    name: "bas",
    about: "Central allocator: a fair window for every flow from link capacity, flow counts and RTT",
    source: "Ito, Koga, Iida: A Bandwidth Allocation Scheme to Improve Fairness and Link Utilization in Data Center \
             Networks, IEICE Trans. Commun. E101-B(3), 2018",
    keys: KEYS,
    check,
    build: |_, _| Vec::new(),
};

const KEYS: &[Key] = &[
    Key::required("servers", Kind::TextList, "Hosts whose flows are controlled; the host role runs there"),
    Key::required("domain", Kind::TextList, "Nodes of the data centre; links between them are shared out"),
    Key::optional("allocator-node", Kind::Text, "Where the allocator role runs; absent: the first of `servers`"),
    Key::new(
        "allocator",
        Kind::Choice(&["bas", "max-min"]),
        "bas",
        "The paper's fair share and reallocation, or exact max-min with paced windows",
        "Sect. 3",
    ),
    Key::new(
        "reallocation",
        Kind::Bool,
        "true",
        "Give the unused share of flows limited elsewhere to the others",
        "Sect. 3",
    ),
    Key::new(
        "rounding",
        Kind::Choice(&["up", "nearest", "down"]),
        "up",
        "Window to whole segments, at least one",
        "Sect. 3, Round-up",
    ),
    Key::new(
        "scope",
        Kind::Choice(&["bottleneck-link", "edge-router"]),
        "bottleneck-link",
        "Among which flows spare bandwidth is shared",
        "Fig. 10",
    ),
    Key::new(
        "under-use",
        Kind::Choice(&["below-share", "as-printed"]),
        "below-share",
        "Test of a flow that does not use its share: E < beta A, or E beta < A as Sect. 3 prints",
        "Sect. 5.4",
    ),
    Key::new(
        "notification-interval",
        Kind::Quantity(Dimension::Span),
        "50ms",
        "Interval at which routers report their flow counts",
        "Sect. 5.1",
    ),
    Key::new(
        "measurement-interval",
        Kind::Quantity(Dimension::Span),
        "100ms",
        "Interval over which hosts measure throughput",
        "Table 1",
    ),
    Key::new(
        "alpha",
        Kind::Float { min: 0.01, max: 1.0 },
        "0.4",
        "Weight of a new throughput sample",
        "Sect. 5.1",
    ),
    Key::new(
        "beta",
        Kind::Float { min: 0.01, max: 1.0 },
        "0.8",
        "Share of its allocation below which a flow under-uses it",
        "Sect. 5.1",
    ),
    Key::new(
        "rtt",
        Kind::Choice(&["smoothed", "minimum"]),
        "smoothed",
        "Round-trip time that turns a rate into a window",
        "Sect. 3: measured, queueing included",
    ),
    Key::new(
        "counting",
        Kind::Choice(&["seen", "open"]),
        "seen",
        "Flows that a router counts: seen in the notification interval, or open (SYN without FIN)",
        "Sect. 3: IPFIX or OpenFlow statistics",
    ),
    Key::new(
        "headroom",
        Kind::Float { min: 1.0, max: 4.0 },
        "1.25",
        "max-min: demand of an under-user as a multiple of its measured throughput, so that it can grow",
        "bandmaster",
    ),
    Key::new(
        "utilization",
        Kind::Float { min: 0.5, max: 1.0 },
        "0.998",
        "max-min: share of each link that is given out",
        "bandmaster",
    ),
];

fn check(
    params: &Params,
    node: &dyn Fn(&str) -> Option<crate::id::NodeId>,
) -> Result<(), (&'static str, String)> {
    for key in ["servers", "domain"] {
        for name in params.list(key) {
            if node(&name).is_none() {
                return Err((key, format!("names `{name}`, which is not a node")));
            }
        }
    }
    if params.list("servers").is_empty() {
        return Err(("servers", "is empty".to_owned()));
    }
    if let Some(Value::Text(name)) = params.get("allocator-node")
        && node(name).is_none()
    {
        return Err(("allocator-node", format!("names `{name}`, which is not a node")));
    }
    for key in ["notification-interval", "measurement-interval"] {
        if params.span(key).is_zero() {
            return Err((key, "must be longer than 0s".to_owned()));
        }
    }
    Ok(())
}
