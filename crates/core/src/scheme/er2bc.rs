//! eR2BC: a gateway keeps the rates of important flows on a path whose bandwidth moves (Matsuda, Ishihara 2019).
//!
//! [`probe`] is the wire format of the question and the answer between two gateways, [`abw`] estimates the available
//! bandwidth W from them (Eqs. 8-11, or [`delay`]), and [`shares`] divides W over the flows in order of priority
//! (Eqs. 1-7, and the methods it is compared with). All of it is plain logic without a clock: the simulator and a
//! gateway run the same code.

pub mod abw;
pub mod delay;
pub mod deployment;
mod gateway;
pub mod mismatch;
pub mod probe;
pub mod robust;
pub mod shares;

#[cfg(test)]
mod faults;

use crate::id::PortId;
use crate::params::{Choice, Key, Kind, Params, Value, choice, keys};
use crate::qdisc;
use crate::runtime::inventory::Inventory;
use crate::scheme::{Act, Built, Place, RoleDef, SchemeDef, Wants};
use crate::time::{Span, Time};
use crate::topology::Topology;
use crate::units::{Dimension, Rate, parse_quantity};

const RATE: Kind = Kind::Quantity(Dimension::Rate);
const ROUNDS: Kind = Kind::Integer { min: 1, max: 1000 };
const LOSSES: Kind = Kind::Integer { min: 0, max: 1_000_000 };

/// The registry entry.
pub static DEF: SchemeDef = SchemeDef {
    name: "er2bc",
    about: "A gateway divides the bandwidth that it estimates, so that important flows receive what they need",
    source: "Matsuda, Ishihara 2019",
    code: 2,
    keys: KEYS,
    roles: &[SENDER, RECEIVER],
    check,
    fits,
    place,
    build,
};

/// The gateway before the path: asks each cycle, and sets the classes of the shaper at its port. Its peer is the other.
pub const SENDER: RoleDef =
    RoleDef { name: "gateway", wants: Wants::SENT, acts: &[Act::Probe, Act::SetClass] };
/// The gateway behind the path: answers the questions of its peer.
pub const RECEIVER: RoleDef = RoleDef { name: "answering gateway", wants: Wants::CAME, acts: &[Act::Probe] };

choice! {
    enum EstimatorKind { Loss = "loss", Delay = "delay", Robust = "robust" }
}

/// The keys of scenario and deployment files alike.
pub const CONTROL_KEYS: &[Key] = keys! {
    /// How the bandwidth is divided: Eqs. 1 to 7; ours; what each needs, in order; strict priority for each
    /// packet
    "control": shares::Law::KIND, default "paper", from "Sect. 3.1";
    /// How the bandwidth is estimated: by losses, Eqs. 8 to 11; by the trend of the one-way delay; by both, for real paths
    "estimator": EstimatorKind::KIND, default "robust", from "bandmaster; the paper's is loss, Sect. 3.2";
    /// T_c: interval between probes
    "cycle": Kind::Quantity(Dimension::Span), default "1s", from "Table 4";
    /// W_ini: first estimate
    "initial": RATE, default "1mbit", from "Table 4";
    /// Upper bound of the estimate
    "ceiling": RATE, default "1gbit", from "rate of the access line";
    /// Least rate of a class, if the estimate allows it
    "class-floor": RATE, default "80kbit", from "Sect. 4.1";
    /// Size of IP packet that converts needs to rates on the link, which include frame headers like all other
    /// rates
    "packet": Kind::Quantity(Dimension::Bytes), default "1500B", from "Ethernet";
    /// `scaled`: least rates of classes share the rest of the estimate; `literal`: each class keeps its own,
    /// even beyond the estimate (control "paper" and "basic")
    "class-floors": shares::Floors::KIND, default "scaled", from "bandmaster; the paper's is literal, Sect. 4.1";
    /// C: rounds over which deficits of flows with retransmission add up
    "deficit-rounds": ROUNDS, default "10", from "Table 4";
    /// M: rounds of which the least reception ratio counts, without retransmission
    "ratio-rounds": ROUNDS, default "10", from "Table 4";
    /// B_lim: most that a flow with retransmission gets above its need
    "bonus": RATE, default "50kbit", from "Table 4";
    /// theta_H: more packets lost in a round cut the estimate below the received rate
    "theta-high": LOSSES, default "1", from "Table 4";
    /// theta_L: more packets lost in a round, up to theta-high, take the estimate halfway to the received rate
    "theta-low": LOSSES, default "0", from "Table 4";
    /// D_ini: first step of the estimate upward
    "step-initial": RATE, default "50kbit", from "Table 4";
    /// D_max: largest step of the estimate upward
    "step-max": RATE, default "1mbit", from "Table 4";
    /// alpha: factor from one step upward to the next
    "alpha": Kind::Float { min: 1.0, max: 100.0 }, default "1.2", from "Table 4";
    /// beta: how far below the received rate a cut goes
    "beta": RATE, default "100kbit", from "Table 4";
};

/// What a file says that its keys do not exclude one by one: the key at fault, and why.
fn check_constants(params: &Params) -> Result<(), (&'static str, String)> {
    let (low, high) = (params.integer("theta-low"), params.integer("theta-high"));
    if low > high {
        return Err(("theta-low", format!("{low} is above theta-high, {high}")));
    }
    let (first, most) = (params.rate("step-initial"), params.rate("step-max"));
    if first > most {
        return Err(("step-initial", format!("{first} is above step-max, {most}")));
    }
    Ok(())
}

const KEYS: &[Key] = keys! {
    /// Port `from->to` of the sending gateway, whose queue is a shaper
    "port": Kind::Text, required;
    /// The gateway behind the path
    "receiver": Kind::Text, required;
    /// Rate of IP packets that each flow needs, the most important first: flow i is class i of the port's queue
    "needs": Kind::TextList, required;
    /// Flows send lost packets again (TCP); without, they are sent with redundancy (UDP)
    "retransmission": Kind::Bool, default "true", from "Sect. 3.1";
    /// Flows, by their place from 1, that are sent with redundancy although `retransmission` is true
    "redundant": Kind::IntegerList, optional;
    /// Bandwidth in force while the other gateway is silent; absent: the last estimate stays
    "safe-rate": RATE, optional;
    /// How long it may be silent before `safe-rate` applies
    "hold": Kind::Quantity(Dimension::Span), default "10s", from "bandmaster";
    ..CONTROL_KEYS[0];
    ..CONTROL_KEYS[1];
    ..CONTROL_KEYS[2];
    ..CONTROL_KEYS[3];
    ..CONTROL_KEYS[4];
    ..CONTROL_KEYS[5];
    ..CONTROL_KEYS[6];
    ..CONTROL_KEYS[7];
    ..CONTROL_KEYS[8];
    ..CONTROL_KEYS[9];
    ..CONTROL_KEYS[10];
    ..CONTROL_KEYS[11];
    ..CONTROL_KEYS[12];
    ..CONTROL_KEYS[13];
    ..CONTROL_KEYS[14];
    ..CONTROL_KEYS[15];
    ..CONTROL_KEYS[16];
};

fn check(params: &Params, topology: &Topology) -> Result<(), (&'static str, String)> {
    let node = |name: &str| topology.node(name);
    let port = params.text("port");
    let is_node = |name: &str| name.split('#').next().and_then(node).is_some();
    let is_port = port.split_once("->").is_some_and(|(from, to)| node(from).is_some() && is_node(to));
    if !is_port {
        return Err(("port", format!("`{port}` is not `from->to` with the names of two nodes")));
    }
    let receiver = params.text("receiver");
    if node(&receiver).is_none() {
        return Err(("receiver", format!("names `{receiver}`, which is not a node")));
    }
    if node(&receiver) == port.split_once("->").and_then(|(from, _)| node(from)) {
        return Err(("receiver", "is the sending gateway itself".to_owned()));
    }
    let needs = params.list("needs");
    if needs.is_empty() {
        return Err(("needs", "is empty".to_owned()));
    }
    for need in needs {
        if let Err(e) = parse_quantity(&need, Dimension::Rate) {
            return Err(("needs", format!("`{need}`: {e}")));
        }
    }
    let flows = params.list("needs").len();
    if let Some(place) = redundant(params).iter().find(|n| n.parse().is_ok_and(|n: usize| n > flows)) {
        return Err(("redundant", format!("names flow {place}; there are {flows}")));
    }
    if params.span("cycle").is_zero() {
        return Err(("cycle", "must be longer than 0s".to_owned()));
    }
    if params.bytes("packet").get() == 0 {
        return Err(("packet", "is zero; the rate of frames is undefined".to_owned()));
    }
    check_constants(params)
}

/// Places of the flows that are sent with redundancy.
fn redundant(params: &Params) -> &[String] {
    match params.get("redundant") {
        Some(Value::List(places)) => places,
        _ => &[],
    }
}

/// The port exists, and its queue has a class for each flow.
fn fits(params: &Params, topology: &Topology) -> Result<(), (&'static str, String)> {
    let name = params.text("port");
    let Some(port) = topology.port(&name) else {
        return Err(("port", format!("`{name}` is no port: no link joins the two nodes")));
    };
    let queue = topology.queue(port);
    if queue.discipline != &qdisc::htb::DEF {
        let has = queue.discipline.name;
        return Err((
            "port",
            format!("the queue at `{name}` is {has}; it must be htb, with a class for each flow"),
        ));
    }
    let classes = queue.params.optional("classes", |params, key| params.tables(key).len()).unwrap_or(1);
    let flows = params.list("needs").len();
    if flows > classes {
        return Err((
            "needs",
            format!("are those of {flows} flows; the queue at `{name}` has {classes} classes"),
        ));
    }
    Ok(())
}

fn place(params: &Params, inventory: &Inventory, _routes: &[Vec<PortId>]) -> Vec<Place> {
    let (port, receiver) = (params.text("port"), params.text("receiver"));
    let (Some(port), Some(receiver)) = (inventory.port_named(&port), inventory.node(&receiver)) else {
        return Vec::new();
    };
    let Some(sender) = inventory.port(port).map(|port| port.from) else { return Vec::new() };
    vec![
        Place {
            peers: vec![(receiver, &RECEIVER)],
            ports: vec![port],
            ..Place::new(&SENDER, sender, params.clone())
        },
        Place { peers: vec![(sender, &SENDER)], ..Place::new(&RECEIVER, receiver, params.clone()) },
    ]
}

/// What is saved is the estimate.
fn build(place: &Place, inventory: &Inventory, saved: Option<&[u8]>) -> Built {
    let Some(&(peer, _)) = place.peers.first() else { return Built::default() };
    if place.role.name == RECEIVER.name {
        return Built::brain(gateway::Receiver::new(peer));
    }
    let Some(&port) = place.ports.first() else { return Built::default() };
    let overhead = inventory.port(port).map_or(0, |port| port.overhead);
    let mut settings = Settings::new(&place.params, overhead);
    let before: Option<Rate> = saved.and_then(|bytes| postcard::from_bytes(bytes).ok());
    if let Some(before) = before {
        settings.estimator.initial = before.min(settings.estimator.ceiling);
    }
    let shares = shares::Shares::new(settings.shares, &settings.flows, settings.estimator.initial);
    // What each needs in order of priority, out of the safe rate.
    let basic = shares::Settings { law: shares::Law::Basic, ..settings.shares };
    let safe = |rate| shares::Shares::new(basic, &settings.flows, rate).plan().clone();
    let watchdog = settings.safe_rate.map(|rate| gateway::Watchdog {
        hold: settings.hold,
        safe: safe(rate),
        heard: Time::ZERO,
        is_silent: false,
        counts: mismatch::Mismatch::default(),
        trusted: settings.estimator.initial,
    });
    let cycle = settings.estimator.cycle;
    let mut estimator = abw::Estimator::new(settings.estimator);
    estimator.set_goals(&shares.goals());
    // Gateways of one network do not all ask at once.
    let lookout = estimator.watches().then(|| gateway::Lookout::new(cycle, u64::from(place.node.0)));
    Built::brain(gateway::Sender {
        port,
        receiver: peer,
        overhead,
        cycle,
        number: probe::Seq::new(0),
        estimator,
        shares,
        asked: None,
        next: Time::ZERO,
        watchdog,
        lookout,
    })
}

/// What a sending gateway decides by.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How W is estimated.
    pub estimator: abw::Settings,
    /// How W is divided.
    pub shares: shares::Settings,
    /// The flows, the most important first: flow i is class i of the shaper.
    pub flows: Vec<shares::Flow>,
    /// Bandwidth in force while the other gateway is silent; none: the estimate.
    pub safe_rate: Option<Rate>,
    /// How long it may be silent before `safe-rate` applies.
    pub hold: Span,
}

impl Settings {
    /// What parameters of the scheme say; the link at the port adds `overhead` bytes to an IP packet.
    pub fn new(params: &Params, overhead: u32) -> Self {
        let redundant = redundant(params);
        let packet = u128::from(params.bytes("packet").get().max(1));
        let framed = |rate: u64| u128::from(rate) * (packet + u128::from(overhead)) / packet;
        let flow = |(number, need): (u32, &String)| {
            let need = framed(parse_quantity(need, Dimension::Rate).unwrap_or_default());
            let need = Rate::from_bits_per_sec(u64::try_from(need).unwrap_or(u64::MAX));
            let is_redundant = redundant.contains(&number.to_string());
            shares::Flow { need, retransmits: params.bool("retransmission") && !is_redundant }
        };
        let flows: Vec<shares::Flow> = (1..).zip(&params.list("needs")).map(flow).collect();
        let class_floor = params.rate("class-floor");
        let shares = shares::Settings {
            law: params.choice("control"),
            deficit_rounds: usize::try_from(params.integer("deficit-rounds")).unwrap_or(1),
            ratio_rounds: usize::try_from(params.integer("ratio-rounds")).unwrap_or(1),
            bonus: params.rate("bonus"),
            class_floor,
            floors: params.choice("class-floors"),
            ..shares::Settings::default()
        };
        let loss = abw::Loss {
            theta_high: u64::try_from(params.integer("theta-high")).unwrap_or(0),
            theta_low: u64::try_from(params.integer("theta-low")).unwrap_or(0),
            step_initial: params.rate("step-initial"),
            step_max: params.rate("step-max"),
            alpha: params.float("alpha"),
            beta: params.rate("beta"),
        };
        // Redundancy makes up for a packet more or less in a round, so that W may rest close to what the flows need.
        let redundant = flows.iter().all(|flow| !flow.retransmits);
        let margin = if redundant { 0.004 } else { 0.02 };
        let estimator = abw::Settings {
            cycle: params.span("cycle"),
            initial: params.rate("initial"),
            floor: Rate::from_bits_per_sec(class_floor.bits_per_sec().saturating_mul(flows.len() as u64)),
            ceiling: params.rate("ceiling"),
            law: match params.choice("estimator") {
                EstimatorKind::Loss => abw::Law::Loss(loss),
                EstimatorKind::Delay => {
                    abw::Law::Delay(delay::Settings { margin, ..delay::Settings::default() })
                }
                EstimatorKind::Robust => abw::Law::Robust(robust::Settings { margin }),
            },
        };
        let safe_rate = params.optional("safe-rate", Params::rate);
        Self { estimator, shares, flows, safe_rate, hold: params.span("hold") }
    }
}
