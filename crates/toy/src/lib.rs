//! A scheme outside `bandmaster-core`: once a port has sent its quota of packets, every flow at the keeper's node is paced.
//!
//! The meter's program counts the port's packets, its brain tells the keeper the count, and the keeper paces. A reader of
//! scenarios lists the scheme: `Options { schemes: &[&bandmaster_toy::DEF], ..Options::default() }`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bandmaster_core::control::{Action, Controller, Observation, Outbox};
use bandmaster_core::id::{FlowId, NodeId, PortId};
use bandmaster_core::params::{Key, Kind, Params};
use bandmaster_core::port::{Header, PortProgram};
use bandmaster_core::runtime::inventory::Inventory;
use bandmaster_core::scheme::{Act, Built, Place, Program, RoleDef, SchemeDef, Wants};
use bandmaster_core::time::{Span, Time};
use bandmaster_core::topology::Topology;
use bandmaster_core::units::Dimension;
use serde::{Deserialize, Serialize};

/// The registry entry.
pub static DEF: SchemeDef = SchemeDef {
    name: "quota",
    about: "Paces every flow to a node once a port has sent its quota of packets",
    source: "an example",
    code: 256,
    keys: KEYS,
    roles: &[METER, KEEPER],
    check,
    fits: |_, _| Ok(()),
    place,
    build,
};

/// Counts the packets of its port, and tells its peer, the keeper.
const METER: RoleDef = RoleDef { name: "meter", wants: Wants::NOTHING, acts: &[Act::Send, Act::Watch] };
/// Paces the flows that end at it.
const KEEPER: RoleDef = RoleDef { name: "keeper", wants: Wants::NOTHING, acts: &[Act::SetRate] };

const KEYS: &[Key] = &[
    Key::required("port", Kind::Text, "Port `from->to` whose packets count; the meter runs at `from`"),
    Key::required("keeper", Kind::Text, "Host whose flows are paced"),
    Key::required("packets", Kind::Quantity(Dimension::Packets), "The quota"),
    Key::required("rate", Kind::Quantity(Dimension::Rate), "Payload rate per flow when the quota is used up"),
    Key::new("window", Kind::Quantity(Dimension::Bytes), "64kB", "Most payload outstanding then", "example"),
    Key::new("interval", Kind::Quantity(Dimension::Span), "50ms", "Time between two counts", "example"),
];

/// Packets that the port has sent so far.
#[derive(Serialize, Deserialize)]
struct Counted(u64);

fn check(params: &Params, topology: &Topology) -> Result<(), (&'static str, String)> {
    let (port, keeper) = (params.text("port"), params.text("keeper"));
    if topology.port(&port).is_none() {
        return Err(("port", format!("no port is called \"{port}\"")));
    }
    if topology.node(&keeper).is_none() {
        return Err(("keeper", format!("no node is called \"{keeper}\"")));
    }
    if params.span("interval").is_zero() {
        return Err(("interval", "must be longer than 0s".to_owned()));
    }
    Ok(())
}

fn place(params: &Params, inventory: &Inventory, _routes: &[Vec<PortId>]) -> Vec<Place> {
    let places = || {
        let port = inventory.port_named(&params.text("port"))?;
        let keeper = inventory.node(&params.text("keeper"))?;
        let meter = Place::new(&METER, inventory.port(port)?.from, params.clone());
        let meter = Place { peers: vec![(keeper, &KEEPER)], ports: vec![port], ..meter };
        Some(vec![meter, Place::new(&KEEPER, keeper, params.clone())])
    };
    places().unwrap_or_default()
}

fn build(place: &Place, _inventory: &Inventory, _saved: Option<&[u8]>) -> Built {
    let (Some(&(keeper, _)), Some(&port)) = (place.peers.first(), place.ports.first()) else {
        let params = place.params.clone();
        return Built::brain(Keeper { params, unpaced: BTreeSet::new(), is_used_up: false });
    };
    let count = Arc::new(AtomicU64::new(0));
    let programs = vec![(port, Program::Watch(Box::new(Counter(Arc::clone(&count)))))];
    let meter = Meter { count, keeper, interval: place.params.span("interval"), next: Time::ZERO };
    Built { controller: Some(Box::new(meter)), programs }
}

struct Counter(Arc<AtomicU64>);

impl PortProgram for Counter {
    fn on_packet(&mut self, _now: Time, _header: &Header) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

struct Meter {
    count: Arc<AtomicU64>,
    keeper: NodeId,
    interval: Span,
    next: Time,
}

impl Controller for Meter {
    fn on(&mut self, now: Time, observation: &Observation<'_>, out: &mut Outbox) {
        if matches!(observation, Observation::Tick { .. }) {
            self.next = now + self.interval;
            out.send(self.keeper, &Counted(self.count.load(Ordering::Relaxed)));
        }
    }

    fn wakeup(&self) -> Option<Time> {
        Some(self.next)
    }
}

struct Keeper {
    params: Params,
    unpaced: BTreeSet<FlowId>,
    is_used_up: bool,
}

impl Controller for Keeper {
    fn on(&mut self, _now: Time, observation: &Observation<'_>, out: &mut Outbox) {
        match observation {
            Observation::FlowStarted(start) => {
                self.unpaced.insert(start.stats.flow);
            }
            Observation::FlowEnded(flow) => {
                self.unpaced.remove(flow);
            }
            Observation::Message(message) => {
                let quota = self.params.integer("packets") as u64;
                self.is_used_up |= message.read().is_some_and(|Counted(packets)| packets > quota);
            }
            _ => {}
        }
        if self.is_used_up {
            let (rate, window) = (self.params.rate("rate"), self.params.bytes("window"));
            let paced = std::mem::take(&mut self.unpaced).into_iter();
            paced.for_each(|flow| out.push(Action::SetRate { flow, rate, window }));
        }
    }

    fn wakeup(&self) -> Option<Time> {
        None
    }
}
