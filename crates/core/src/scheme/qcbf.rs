//! QCBF: top-of-rack routers hand out windows from their buffers, so that incast never overflows them (Pang et al. 2019).
//!
//! [`law`] holds the equations; `tor` runs it at a port, in the paper's form with a window field that hosts return, or in
//! the one for hosts as they are, which lowers the window of passing acknowledgements and holds those whose turn has not
//! come. [`share`] is the part of it for programs that can only lower windows, as those of a kernel.

pub mod law;
pub mod share;
mod tor;

use std::collections::BTreeSet;

use super::{Act, Built, Place, Program, RoleDef, SchemeDef, Wants};
use crate::id::PortId;
use crate::params::{Choice, Key, Kind, Params, Value, choice, keys};
use crate::runtime::inventory::Inventory;
use crate::time::Span;
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
    code: 4,
    roles: &[TOR],
    check,
    fits,
    place,
    build,
};

/// A top-of-rack router: programs at its ports, no brain.
pub const TOR: RoleDef = RoleDef { name: "tor", wants: Wants::NOTHING, acts: &[Act::Rewrite] };

const KEYS: &[Key] = keys! {
    /// Ports `from->to` with the program; absent: all from routers to hosts
    "ports": Kind::TextList, optional;
    /// Lower the window in passing acknowledgements, with unchanged hosts; or the paper's field, which hosts
    /// return; or sliding windows without turns, for a program in a kernel
    "form": Form::KIND, default "ack", from "bandmaster; Sect. III.C";
    /// With the window field, ssthresh at a sender's timeout: max(2, min(cwnd / 2, field)) segments over the number of
    /// subflows, as Algorithm 1 prints it; or that of its congestion control
    "timeout": Timeout::KIND, default "algorithm-1", from "Algorithm 1, line 21";
    /// Q: buffer per port
    "buffer": Kind::Quantity(Dimension::Bytes), required;
    /// Round-trip time without queues, which gives D_L = C x RTT
    "rtt": Kind::Quantity(Dimension::Span), required;
    /// Part of the buffer that windows fill; the rest is for packets without data
    "beta": Kind::Float { min: 0.01, max: 1.0 }, default "0.8", from "Eq. 2: up to 1";
    /// Segments per turn of a flow; as many as receivers acknowledge at once
    "turn": Kind::Integer { min: 1, max: 64 }, default "2", from "RFC 1122: two";
    /// Segments that senders send first; a flow is not given what slow start cannot use
    "initial-window": Kind::Integer { min: 1, max: 1000 }, default "10", from "RFC 6928";
    /// A flow that is silent for this time gives its share back, at most half as much later, until it wakes;
    /// several RTTs with full queues
    "ageing": Kind::Quantity(Dimension::Span), default "2ms", from "bandmaster: the paper waits for a FIN";
};

choice! {
    enum Form { Ack = "ack", WindowField = "window-field", Share = "share" }

    enum Timeout { Algorithm1 = "algorithm-1", Tcp = "tcp" }
}

fn place(params: &Params, inventory: &Inventory, routes: &[Vec<PortId>]) -> Vec<Place> {
    let ports: Vec<PortId> = match params.get("ports") {
        Some(Value::List(names)) => names.iter().filter_map(|name| inventory.port_named(name)).collect(),
        _ => ports_to_receivers(routes),
    };
    let mut places: Vec<Place> = Vec::new();
    for port in ports {
        let Some(node) = inventory.port(port).map(|port| port.from) else { continue };
        match places.iter_mut().find(|place| place.node == node) {
            Some(place) => place.ports.push(port),
            None => places.push(Place { ports: vec![port], ..Place::new(&TOR, node, params.clone()) }),
        }
    }
    places
}

fn build(place: &Place, inventory: &Inventory, _saved: Option<&[u8]>) -> Built {
    let form = place.params.choice::<Form>("form");
    let divides = place.params.choice::<Timeout>("timeout") == Timeout::Algorithm1;
    let program = |port: &PortId| {
        let terms = terms(&place.params, inventory.port(*port)?.capacity);
        Some((
            *port,
            Program::Rewrite(match form {
                Form::Share => Box::new(share::Share::new(terms)),
                _ => Box::new(tor::Tor::new(terms, form == Form::WindowField, divides)),
            }),
        ))
    };
    Built { controller: None, programs: place.ports.iter().filter_map(program).collect() }
}

/// Ports by which data reaches its receivers, but for links between hosts.
fn ports_to_receivers(routes: &[Vec<PortId>]) -> Vec<PortId> {
    let first: BTreeSet<PortId> = routes.iter().filter_map(|ports| ports.first().copied()).collect();
    let last: BTreeSet<PortId> = routes.iter().filter_map(|ports| ports.last().copied()).collect();
    last.difference(&first).copied().collect()
}

/// What the law is set to at a port of that rate.
pub fn terms(params: &Params, capacity: Rate) -> Terms {
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
    check_params(params)
}

/// What is wrong with parameters of the router's role, and the key of that.
///
/// # Errors
/// The first.
pub fn check_params(params: &Params) -> Result<(), (&'static str, String)> {
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
