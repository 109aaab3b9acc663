//! BAS: a central allocator gives every flow a fair window (Ito, Koga, Iida 2018).
//!
//! Three roles: `router::Router` counts flows and notifies, `host::Host` measures flows and enforces shares, and
//! `allocator::Allocator` decides with the equations of [`shares`].

mod allocator;
mod host;
mod router;
pub mod shares;

use super::{Act, Role, SchemeDef, World};
use crate::id::NodeId;
use crate::params::{Choice, Key, Kind, Params, Value, choice};
use crate::time::Span;
use crate::topology::Topology;
use crate::units::Dimension;
use shares::{Rounding, Scope, UnderUse};

/// The registry entry.
pub static DEF: SchemeDef = SchemeDef {
    name: "bas",
    about: "Central allocator: a fair window for every flow from link capacity, flow counts and RTT",
    source: "Ito, Koga, Iida: A Bandwidth Allocation Scheme to Improve Fairness and Link Utilization in Data Center \
             Networks, IEICE Trans. Commun. E101-B(3), 2018",
    keys: KEYS,
    acts: &[Act::SetWindow, Act::SetRate, Act::Send],
    check,
    fits: |_, _| Ok(()),
    build,
};

const KEYS: &[Key] = &[
    Key::required("servers", Kind::TextList, "Hosts whose flows are controlled; the host role runs there"),
    Key::required("domain", Kind::TextList, "Nodes of the data centre; links between them are shared out"),
    Key::optional(
        "allocator-node",
        Kind::Text,
        "Where the allocator role runs; absent: the first of `servers`",
    ),
    Key::new(
        "allocator",
        AllocatorKind::KIND,
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
    Key::new("rounding", Rounding::KIND, "up", "Window to whole segments, at least one", "Sect. 3, Round-up"),
    Key::new(
        "scope",
        Scope::KIND,
        "bottleneck-link",
        "Among which flows spare bandwidth is shared",
        "Fig. 10: A'' gives to all others",
    ),
    Key::new(
        "under-use",
        UnderUse::KIND,
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
        RoundTrip::KIND,
        "smoothed",
        "Round-trip time that turns a rate into a window",
        "Sect. 3: measured, queueing included",
    ),
    Key::new(
        "counting",
        Counting::KIND,
        "open",
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
        "1.0",
        "max-min: share of each link that is given out while it has no queue",
        "bandmaster",
    ),
];

/// Typed parameters.
#[derive(Clone, Debug, PartialEq)]
struct Settings {
    allocator: AllocatorKind,
    reallocation: bool,
    rounding: Rounding,
    scope: Scope,
    under_use: UnderUse,
    notification: Span,
    measurement: Span,
    alpha: f64,
    beta: f64,
    minimum_rtt: bool,
    counts_open: bool,
    headroom: f64,
    utilization: f64,
}

choice! {
    enum AllocatorKind { Paper = "bas", MaxMin = "max-min" }
    enum RoundTrip { Smoothed = "smoothed", Minimum = "minimum" }
    enum Counting { Seen = "seen", Open = "open" }
}

impl Settings {
    fn new(params: &Params) -> Self {
        Self {
            allocator: params.choice("allocator"),
            reallocation: params.bool("reallocation"),
            rounding: params.choice("rounding"),
            scope: params.choice("scope"),
            under_use: params.choice("under-use"),
            notification: params.span("notification-interval"),
            measurement: params.span("measurement-interval"),
            alpha: params.float("alpha"),
            beta: params.float("beta"),
            minimum_rtt: params.choice::<RoundTrip>("rtt") == RoundTrip::Minimum,
            counts_open: params.choice::<Counting>("counting") == Counting::Open,
            headroom: params.float("headroom"),
            utilization: params.float("utilization"),
        }
    }
}

fn build(params: &Params, world: &World) -> Vec<Role> {
    let settings = Settings::new(params);
    let nodes =
        |key: &str| params.list(key).iter().filter_map(|name| world.node(name)).collect::<Vec<NodeId>>();
    let (servers, domain) = (nodes("servers"), nodes("domain"));
    let allocator_node = match params.get("allocator-node") {
        Some(Value::Text(name)) => world.node(name),
        _ => servers.first().copied(),
    };
    let Some(allocator_node) = allocator_node else { return Vec::new() };
    let allocator = allocator::Allocator::new(settings.clone(), world, &domain);
    let mut roles = vec![Role {
        node: allocator_node,
        name: "allocator",
        wants_ports: false,
        probes: Vec::new(),
        controller: Box::new(allocator),
    }];
    for &node in &domain {
        let inside = |port: &super::PortInfo| port.from == node && domain.contains(&port.to);
        if !servers.contains(&node) && world.ports.iter().any(inside) {
            let controller = Box::new(router::Router::new(&settings, allocator_node));
            roles.push(Role { node, name: "router", wants_ports: true, probes: Vec::new(), controller });
        }
    }
    for &node in &servers {
        let controller = Box::new(host::Host::new(settings.clone(), node, allocator_node));
        roles.push(Role { node, name: "host", wants_ports: false, probes: Vec::new(), controller });
    }
    roles
}

fn check(params: &Params, topology: &Topology) -> Result<(), (&'static str, String)> {
    for key in ["servers", "domain"] {
        for name in params.list(key) {
            if topology.node(&name).is_none() {
                return Err((key, format!("names `{name}`, which is not a node")));
            }
        }
    }
    if params.list("servers").is_empty() {
        return Err(("servers", "is empty".to_owned()));
    }
    if let Some(Value::Text(name)) = params.get("allocator-node")
        && topology.node(name).is_none()
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
