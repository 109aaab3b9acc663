//! QCBF: top-of-rack routers hand out windows from their buffers, so that incast never overflows them (Pang et al. 2019).
//!
//! [`law`] holds the equations; `tor` runs it at a port, in the paper's form with a window field that hosts return, or in
//! the one for hosts as they are, which lowers the window of passing acknowledgements and holds those whose turn has not
//! come.

pub mod law;
mod tor;

use std::collections::BTreeSet;

use super::{Act, Role, SchemeDef, World};
use crate::control::{Controller, Observation, Outbox, Wakeup};
use crate::id::PortId;
use crate::params::{Choice, Key, Kind, Params, Value, choice};
use crate::port::window::WindowProgram;
use crate::time::{Span, Time};
use crate::topology::{NodeKind, Topology};
use crate::units::{Bytes, Dimension, Rate};
use law::Terms;

/// The registry entry.
pub static DEF: SchemeDef = SchemeDef {
    name: "qcbf",
    about: "Top-of-rack routers hand each flow a window from the buffer's share, so that incast never overflows",
    source: "Pang, Yao, Wang, Ding, Zhang: Transmission Control of MPTCP Incast Based on Buffer Balance Factor Allocation in \
             Data Center Networks, IEEE Access 7, 2019",
    keys: KEYS,
    acts: &[Act::Program],
    check,
    fits,
    build,
};

const KEYS: &[Key] = &[
    Key::optional(
        "ports",
        Kind::TextList,
        "Ports `from->to` with the program; absent: all from routers to hosts",
    ),
    Key::new(
        "form",
        Form::KIND,
        "ack",
        "Lower the window of acknowledgements in passing, for hosts as they are; or the paper's field, which hosts return",
        "bandmaster; Sect. III.C",
    ),
    Key::required("buffer", Kind::Quantity(Dimension::Bytes), "Q: what may wait at each of the ports"),
    Key::required(
        "rtt",
        Kind::Quantity(Dimension::Span),
        "Round-trip time without queues, which gives D_L = C x RTT",
    ),
    Key::new(
        "beta",
        Kind::Float { min: 0.01, max: 1.0 },
        "0.8",
        "Part of the buffer that windows fill; the rest is for packets without data",
        "Eq. 2: up to 1",
    ),
    Key::new(
        "turn",
        Kind::Integer { min: 1, max: 64 },
        "2",
        "Segments of a flow's turn; as many as receivers acknowledge at once",
        "RFC 1122: two",
    ),
    Key::new(
        "initial-window",
        Kind::Integer { min: 1, max: 1000 },
        "10",
        "Segments that senders send first; a flow is not given what slow start cannot use",
        "RFC 6928",
    ),
    Key::new(
        "ageing",
        Kind::Quantity(Dimension::Span),
        "2ms",
        "A flow that is silent for so long gives its share back, within half as much again; several RTTs with full queues",
        "bandmaster: the paper waits for a FIN",
    ),
];

choice! {
    enum Form { Ack = "ack", WindowField = "window-field" }
}

/// Keeps the programs until the runtime asks for them.
struct Tors {
    programs: Vec<(PortId, Box<dyn WindowProgram>)>,
}

impl Controller for Tors {
    fn on(&mut self, _now: Time, _observation: &Observation<'_>, _out: &mut Outbox) {}

    fn wakeup(&self) -> Option<Wakeup> {
        None
    }

    fn programs(&mut self) -> Vec<(PortId, Box<dyn WindowProgram>)> {
        std::mem::take(&mut self.programs)
    }
}

fn build(params: &Params, world: &World) -> Vec<Role> {
    let ports: Vec<PortId> = match params.get("ports") {
        Some(Value::List(names)) => names.iter().filter_map(|name| world.port(name)).collect(),
        _ => ports_to_receivers(world),
    };
    let Some(&first) = ports.first() else { return Vec::new() };
    let is_field = params.choice::<Form>("form") == Form::WindowField;
    let program = |port: PortId| -> (PortId, Box<dyn WindowProgram>) {
        let terms = terms(params, world.ports[port.index()].capacity);
        (port, Box::new(tor::Tor::new(terms, is_field)))
    };
    let programs = ports.iter().map(|port| program(*port)).collect();
    let node = world.ports[first.index()].from;
    let controller = Box::new(Tors { programs });
    vec![Role { node, name: "tor", wants_ports: false, probes: Vec::new(), controller }]
}

/// Ports by which data reaches its receivers, but for links between hosts.
fn ports_to_receivers(world: &World) -> Vec<PortId> {
    let first: BTreeSet<PortId> =
        world.routes.iter().filter_map(|route| route.ports.first().copied()).collect();
    let last: BTreeSet<PortId> =
        world.routes.iter().filter_map(|route| route.ports.last().copied()).collect();
    last.difference(&first).copied().collect()
}

fn terms(params: &Params, capacity: Rate) -> Terms {
    let buffer = params.bytes("buffer").get() as f64;
    Terms {
        pipe: capacity.bytes_in(params.span("rtt")).get(),
        rtt: params.span("rtt"),
        queue: (params.float("beta") * buffer) as u64,
        turn: params.integer("turn") as u64,
        initial_window: params.integer("initial-window") as u64,
        ageing: params.span("ageing"),
    }
}

fn check(params: &Params, _topology: &Topology) -> Result<(), (&'static str, String)> {
    for key in ["rtt", "ageing"] {
        if params.span(key) < Span::from_micros(1) {
            return Err((key, format!("\"{}\" is below 1us", params.span(key))));
        }
    }
    if params.bytes("buffer") < Bytes::new(2 * 1500) {
        return Err(("buffer", format!("\"{}\" is below 3000B, two packets", params.bytes("buffer"))));
    }
    Ok(())
}

fn fits(params: &Params, topology: &Topology) -> Result<(), (&'static str, String)> {
    let Some(Value::List(names)) = params.get("ports") else { return Ok(()) };
    for name in names {
        let Some(port) = topology.port(name) else {
            return Err(("ports", format!("no port is called \"{name}\"; a port is written \"from->to\"")));
        };
        let link = &topology.links[port.index() / 2];
        let from = if port.index().is_multiple_of(2) { link.a } else { link.b };
        if topology.nodes[from.index()].kind != NodeKind::Router {
            return Err(("ports", format!("\"{name}\" is a host's; the program runs in routers")));
        }
    }
    Ok(())
}
