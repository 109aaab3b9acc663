//! FBQM at the ports of a router: its keys, and the discipline of the simulator that does the same.

use super::Port;
use crate::file::{Reader, Section, TableDef};
use crate::params::{Choice, Key, Kind, Limit, Params, Value, keys};
use crate::qdisc::fbqm;
use crate::time::Span;
use crate::units::{Bytes, Dimension};

/// Shorter intervals would have the daemon do nothing else.
const SHORTEST_INTERVAL: Span = Span::from_millis(10);
/// The program in the kernel counts queues in nanoseconds, up to nine minutes.
const LONGEST_QUEUE: Span = Span::from_secs(500);

const KEYS: &[Key] = keys! {
    /// Classes of flows by rate, served in turn
    "classes": Kind::Integer { min: 2, max: 64 }, default "2", from "Choi 2016: fast and slow";
    /// Queue limit of a port, all classes together
    "limit": Kind::Bounded, default "100pkt", from "Choi 2016, experiment";
    /// Average queue below which nothing is dropped early
    "min-th": Kind::Bounded, default "50pkt", from "Choi 2016, experiment";
    /// Average queue from which every packet is dropped; same unit as `min-th`
    "max-th": Kind::Bounded, default "80pkt", from "Choi 2016, experiment";
    /// Weight of the queue at an arrival in its average
    "weight": Kind::Float { min: 1e-6, max: 1.0 }, default "0.002", from "Floyd and Jacobson 1993, Sect. 9";
    /// Drop probability at `max-th`, before spacing
    "max-p": Kind::Float { min: 0.0, max: 1.0 }, default "0.1", from "Floyd 1997; NS's RED";
    /// Early drops: RED for all flows alike, or only for flows above a share that falls as the queue grows
    "drop": fbqm::EarlyDrop::KIND, default "red", from "Choi 2016: RED";
    /// Mark packets of ECN-capable flows instead of dropping them early
    "ecn": Kind::Bool, default "false", from "RFC 3168; Linux tc: off";
    /// Bytes that count as one packet where limits are in packets, with 14 B of Ethernet
    "mean-packet": Kind::Quantity(Dimension::Bytes), default "1000B", from "Linux tc-red(8)";
    /// Length of a rate sample; classes are re-evaluated after each
    "interval": Kind::Quantity(Dimension::Span), default "500ms", from "bandmaster";
    /// Cells in each of the four rows of the sketch, a power of two
    "cells": Kind::Integer { min: 64, max: 65_536 }, default "32768", from "0.5 % of 10,000 flows overestimated";
    /// Bytes that a class sends per turn
    "quantum": Kind::Quantity(Dimension::Bytes), default "1514B", from "a full Ethernet frame, as in RFC 8290";
};

pub(super) static TABLE: TableDef = TableDef {
    header: "[role] of fbqm",
    doc: "How FBQM works here",
    keys: &[KEYS],
    selector: None,
    nested: &[],
};

/// The keys, with what the form for the kernel is not asked: a complete discipline of the simulator.
pub(super) fn read(reader: &mut Reader, file: &Section<'_>, ports: &[Port]) -> Option<Params> {
    let layer = reader.table(file, "role");
    let section = reader.section(&TABLE, &layer);
    let own = section.params(KEYS)?;
    let mut params = Params::defaults(fbqm::DEF.keys);
    for key in KEYS {
        if let Some(value) = own.get(key.name) {
            params.set(key.name, value.clone());
        }
    }
    params.set("serve", Value::Text("always".to_owned()));
    if let Err((key, why)) = (fbqm::DEF.check)(&params) {
        reader.fail_key(&section, key, why);
    }
    let interval = params.span("interval");
    if interval < SHORTEST_INTERVAL {
        reader.fail_key(&section, "interval", format!("{interval} is shorter than {SHORTEST_INTERVAL}"));
    }
    if u32::try_from(params.bytes("quantum").get()).is_err() {
        reader.fail_key(&section, "quantum", "is more than 4 GiB");
    }
    let limit = params.limit("limit");
    let bytes = bytes(&params, limit)?;
    for Port { interface, rate } in ports {
        if rate.time_for(bytes) > LONGEST_QUEUE {
            reader.fail_key(
                &section,
                "limit",
                format!("\"{limit}\" takes {interface} more than {LONGEST_QUEUE} to send"),
            );
        }
    }
    Some(params)
}

/// Bytes of a limit or threshold, where a packet is `mean-packet`; none: it has no limit.
pub fn bytes(params: &Params, limit: Limit) -> Option<Bytes> {
    match limit {
        Limit::Bytes(bytes) => Some(bytes),
        Limit::Packets(packets) => Some(Bytes::new(u64::from(packets) * params.bytes("mean-packet").get())),
        Limit::Unlimited => None,
    }
}
