//! OpenTCP: an operator's policies retune the TCP of all hosts from the state of the whole network (Ghobadi, Hassas
//! Yeganeh, Ganjali 2012).
//!
//! Switches and agents measure, the [`oracle`] evaluates [`policy`] files whose [`condition`]s are about [`statistic`]s,
//! and agents apply its CUEs for as long as a lease lasts. [`wire`] is the format of the messages. All of it is plain
//! logic without a clock, for the simulator and for hosts alike.

mod agent;
pub mod condition;
pub mod file;
pub mod oracle;
pub mod policy;
pub mod statistic;
mod switch;
mod topology;
mod traffic;
pub mod wire;

#[cfg(test)]
mod faults;

use std::collections::BTreeSet;

use crate::file::suggestion;
use crate::id::{NodeId, PortId};
use crate::params::{Choice, Key, Kind, NamedText, Params, Value, keys};
use crate::runtime::inventory::Inventory;
use crate::scheme::{Act, Built, Place, RoleDef, SchemeDef, Wants};
use crate::time::Span;
use crate::topology::{NodeKind, Topology};
use crate::units::Dimension;
use file::parse;
use policy::{Check, Policy};
use statistic::{LINK_CAPACITY, LINK_FLOWS, STATISTICS, Source, Statistic, TRAFFIC_HOSTS};
use wire::LONGEST_LEASE;

/// The registry entry.
pub static DEF: SchemeDef = SchemeDef {
    name: "opentcp",
    about: "An Oracle retunes the TCP of all hosts by the operator's policies",
    source: "Ghobadi, Hassas Yeganeh, Ganjali: Rethinking End-to-End Congestion Control in Software-Defined Networks, \
             HotNets 2012",
    code: 3,
    keys: KEYS,
    roles: &[ORACLE, SWITCH, AGENT],
    check,
    fits,
    place,
    build,
};

/// Decides. Its peers are the agents, in the order of the network, and the switches that report; its ports are theirs.
pub const ORACLE: RoleDef = RoleDef { name: "oracle", wants: Wants::NOTHING, acts: &[Act::Send] };
/// Tells its peer, the Oracle, what its ports carry.
pub const SWITCH: RoleDef = RoleDef { name: "switch", wants: Wants::PORTS, acts: &[Act::Send] };
/// Applies CUEs of its peer, the Oracle, and reports to it.
pub const AGENT: RoleDef = RoleDef { name: "agent", wants: Wants::FLOWS, acts: &[Act::Tune, Act::Send] };

const SPAN: Kind = Kind::Quantity(Dimension::Span);

const KEYS: &[Key] = keys! {
    /// Policies, the first takes precedence: files (`mine.toml`), or what ships: opentcp1, opentcp2, example1,
    /// example2, variant, half-a, half-b, only-window, only-rto, no-condition, never-true, starts, few-flows,
    /// matrix, crowded-links
    "policies": Kind::Files, required;
    /// Hosts with an agent; absent: all that send or receive TCP flows
    "agents": Kind::TextList, optional;
    /// Where the Oracle runs; absent: at the first agent
    "oracle": Kind::Text, optional;
    /// T instead of the cycle of the policies; leases change in proportion
    "cycle": SPAN, optional;
    /// Interval at which agents check preconditions
    "look": SPAN, default "100ms", from "Sect. 3: fast reaction";
    /// Agents tell the Oracle what their hosts do, when a policy asks for it
    "reports": Kind::Bool, default "true";
    /// More statistics to collect than those that policies name
    "collect": Kind::TextList, optional;
    /// Checks that are overruled: timescale
    "force": Kind::TextList, optional;
    /// Most agents whose settings change in one cycle; absent: all
    "rollout": Kind::Integer { min: 1, max: 1_000_000 }, optional;
};

/// Policies that ship with the program: name and text.
pub static SHIPPED: &[(&str, &str)] = &[
    ("opentcp1", include_str!("../../policies/opentcp1.toml")),
    ("opentcp2", include_str!("../../policies/opentcp2.toml")),
    ("example1", include_str!("../../policies/example1.toml")),
    ("example2", include_str!("../../policies/example2.toml")),
    ("variant", include_str!("../../policies/variant.toml")),
    ("half-a", include_str!("../../policies/half-a.toml")),
    ("half-b", include_str!("../../policies/half-b.toml")),
    ("only-window", include_str!("../../policies/only-window.toml")),
    ("only-rto", include_str!("../../policies/only-rto.toml")),
    ("no-condition", include_str!("../../policies/no-condition.toml")),
    ("never-true", include_str!("../../policies/never-true.toml")),
    ("starts", include_str!("../../policies/starts.toml")),
    ("few-flows", include_str!("../../policies/few-flows.toml")),
    ("matrix", include_str!("../../policies/matrix.toml")),
    ("crowded-links", include_str!("../../policies/crowded-links.toml")),
];

/// The policies that are named.
///
/// # Errors
/// A name that does not ship, everything that is wrong with a file, or what does not go together.
pub fn policies(files: &[NamedText]) -> Result<Vec<Policy>, String> {
    let read = |file: &NamedText| {
        let (name, text) = match &file.text {
            Some(text) => (file.name.clone(), text.as_str()),
            None => match SHIPPED.iter().find(|(name, _)| *name == file.name) {
                Some((name, text)) => (format!("{name}.toml"), *text),
                None => {
                    let names: Vec<&str> = SHIPPED.iter().map(|(name, _)| *name).collect();
                    let hint = suggestion(&file.name, &names);
                    return Err(format!("no policy `{}` ships; {hint}; files end in .toml", file.name));
                }
            },
        };
        parse(&name, text).map_err(|errors| errors.to_string())
    };
    let policies = files.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    policy::check_together(&policies)?;
    Ok(policies)
}

fn check(params: &Params, topology: &Topology) -> Result<(), (&'static str, String)> {
    let policies = policies(&params.files("policies")).map_err(|why| ("policies", why))?;
    if let Some(Value::List(agents)) = params.get("agents") {
        if agents.is_empty() {
            return Err(("agents", "is empty".to_owned()));
        }
        let mut named = BTreeSet::new();
        for name in agents {
            match topology.node(name).map(|node| topology.nodes[node.index()].kind) {
                Some(NodeKind::Host) => {}
                Some(NodeKind::Router) => {
                    return Err((
                        "agents",
                        format!("names `{name}`, which is a router; agents are at hosts"),
                    ));
                }
                None => return Err(("agents", no_node(name, topology, &[NodeKind::Host]))),
            }
            if !named.insert(name) {
                return Err(("agents", format!("names `{name}` twice; a host has one agent")));
            }
        }
    }
    if let Some(Value::Text(name)) = params.get("oracle")
        && topology.node(name).is_none()
    {
        return Err(("oracle", no_node(name, topology, &[NodeKind::Host, NodeKind::Router])));
    }
    check_force(params)?;
    if let Some(Value::List(names)) = params.get("collect")
        && let Some(name) = names.iter().find(|name| Statistic::named(name).is_none())
    {
        let known: Vec<&str> = STATISTICS.iter().map(|statistic| statistic.name).collect();
        return Err(("collect", format!("\"{name}\" is no statistic; {}", suggestion(name, &known))));
    }
    if params.optional("cycle", Params::span).is_some_and(Span::is_zero) {
        return Err(("cycle", "must be longer than 0s".to_owned()));
    }
    check_leases(params, &policies)?;
    if params.span("look").is_zero() {
        return Err(("look", "must be longer than 0s".to_owned()));
    }
    Ok(())
}

/// No agent takes a lease that the key `cycle` makes longer than the longest.
pub(crate) fn check_leases(params: &Params, policies: &[Policy]) -> Result<(), (&'static str, String)> {
    let cycle = cycle(params, policies);
    let mut leases = policies.iter().map(|policy| (&policy.name, scaled(policy, cycle)));
    match leases.find(|(_, lease)| *lease > LONGEST_LEASE) {
        Some((name, lease)) => {
            let why = format!(
                "a cycle of {cycle} makes the lease of `{name}` {lease}; the longest is {LONGEST_LEASE}"
            );
            Err(("cycle", why))
        }
        None => Ok(()),
    }
}

/// The lease of a policy with another cycle.
fn scaled(policy: &Policy, cycle: Span) -> Span {
    policy.lease.mul_f64(cycle.as_secs_f64() / policy.cycle.as_secs_f64())
}

/// What of the key `force` is wrong.
pub(crate) fn check_force(params: &Params) -> Result<(), (&'static str, String)> {
    if let Some(Value::List(words)) = params.get("force")
        && let Some(word) = words.iter().find(|word| *word != Check::Timescale.word())
    {
        let hint = suggestion(word, &[Check::Timescale.word()]);
        return Err(("force", format!("\"{word}\" is no check of a scenario; {hint}")));
    }
    Ok(())
}

fn no_node(name: &str, topology: &Topology, kinds: &[NodeKind]) -> String {
    let nodes = topology.nodes.iter().filter(|node| kinds.contains(&node.kind));
    let names: Vec<&str> = nodes.map(|node| node.name.as_str()).collect();
    format!("names `{name}`, which is not a node; {}", suggestion(name, &names))
}

/// The cycle is long enough for the network.
fn fits(params: &Params, topology: &Topology) -> Result<(), (&'static str, String)> {
    let policies = policies(&params.files("policies")).map_err(|why| ("policies", why))?;
    let forced = matches!(params.get("force"), Some(Value::List(words)) if !words.is_empty())
        || policies.iter().all(|policy| policy.forced.contains(&Check::Timescale));
    let Some(rtt) = longest_rtt(topology) else { return Ok(()) };
    match policy::too_fast(cycle(params, &policies), rtt) {
        Some(why) if !forced => {
            let key = if params.get("cycle").is_some() { "cycle" } else { "policies" };
            Err((key, format!("a cycle of {why}")))
        }
        _ => Ok(()),
    }
}

fn cycle(params: &Params, policies: &[Policy]) -> Span {
    let of_policies = policies.first().map_or(Span::from_secs(60), |policy| policy.cycle);
    params.optional("cycle", Params::span).unwrap_or(of_policies)
}

/// Round-trip time between the two nodes that are furthest apart (exactly so in a tree), by propagation alone; none
/// when a delay has no bound.
fn longest_rtt(topology: &Topology) -> Option<Span> {
    let mut links = vec![Vec::new(); topology.nodes.len()];
    for link in &topology.links {
        let delay = link.delay.upper_bound()?.as_nanos();
        links[link.a.index()].push((link.b.index(), delay));
        links[link.b.index()].push((link.a.index(), delay));
    }
    let furthest = |from: usize| {
        let mut distance = vec![u64::MAX; links.len()];
        let mut queue = std::collections::BinaryHeap::from([(std::cmp::Reverse(0), from)]);
        let mut last = (0, from);
        while let Some((std::cmp::Reverse(far), node)) = queue.pop() {
            if far >= distance[node] {
                continue;
            }
            distance[node] = far;
            last = (far, node);
            queue.extend(links[node].iter().map(|(next, delay)| (std::cmp::Reverse(far + delay), *next)));
        }
        last
    };
    let (_, end) = furthest(0);
    Some(Span::from_nanos(2 * furthest(end).0))
}

fn place(params: &Params, inventory: &Inventory, routes: &[Vec<PortId>]) -> Vec<Place> {
    // `check` has read them.
    let Ok(policies) = policies(&params.files("policies")) else { return Vec::new() };
    let (mut ends, mut inner) = (BTreeSet::new(), BTreeSet::new());
    for ports in routes {
        for (at, port) in ports.iter().enumerate() {
            let Some(port) = inventory.port(*port) else { continue };
            if at == 0 {
                ends.insert(port.from);
            }
            let side = if at + 1 == ports.len() { &mut ends } else { &mut inner };
            side.insert(port.to);
        }
    }
    let agents: Vec<NodeId> = match params.get("agents") {
        Some(Value::List(names)) => names.iter().filter_map(|name| inventory.node(name)).collect(),
        _ => ends.into_iter().collect(),
    };
    let named = params.optional("oracle", Params::text);
    let oracle = named.map_or(agents.first().copied(), |name| inventory.node(&name));
    let Some(oracle) = oracle else { return Vec::new() };
    let has_ports = collected(params, &policies).any(|s| matches!(s.source, Source::Link | Source::Topology));
    let switches = if has_ports { inner.into_iter().collect() } else { Vec::new() };
    places(params, &policies, &Sites { oracle, agents, switches })
}

/// What is collected: for policies, or because it is asked for.
fn collected<'a>(params: &Params, policies: &'a [Policy]) -> impl Iterator<Item = &'static Statistic> + 'a {
    let asked = match params.get("collect") {
        Some(Value::List(names)) => names.iter().filter_map(|name| Statistic::named(name)).collect(),
        _ => Vec::new(),
    };
    policies.iter().flat_map(|policy| policy.statistics.iter().copied()).chain(asked)
}

/// Nodes of the roles.
#[derive(Clone, Debug)]
pub struct Sites {
    /// The Oracle's.
    pub oracle: NodeId,
    /// Those of agents, in the order of the network.
    pub agents: Vec<NodeId>,
    /// Those of switches that report.
    pub switches: Vec<NodeId>,
}

/// The places of `policies`, which `params` names, at these nodes.
pub fn places(params: &Params, policies: &[Policy], sites: &Sites) -> Vec<Place> {
    let Sites { oracle, agents, switches } = sites;
    let of = |nodes: &[NodeId], role| nodes.iter().map(|node| (*node, role)).collect::<Vec<_>>();
    let peers = [of(agents, &AGENT), of(switches, &SWITCH)].concat();
    let mut places = vec![Place { peers, ..Place::new(&ORACLE, *oracle, params.clone()) }];
    // What the others have to know of the policies.
    let mut own = params.clone();
    own.set("cycle", Value::Span(cycle(params, policies)));
    own.set("policies", Value::Files(Vec::new()));
    let names = collected(params, policies).map(|statistic| statistic.name.to_owned());
    own.set("collect", Value::List(names.collect()));
    let reporting =
        |role, node| Place { peers: vec![(*oracle, &ORACLE)], ..Place::new(role, node, own.clone()) };
    places.extend(switches.iter().map(|&node| reporting(&SWITCH, node)));
    for (at, &node) in agents.iter().enumerate() {
        let rank = (at, agents.len());
        places.push(Place { rank, ..reporting(&AGENT, node) });
    }
    places
}

fn build(place: &Place, inventory: &Inventory, _saved: Option<&[u8]>) -> Built {
    let params = &place.params;
    if place.role.name == ORACLE.name {
        let Ok(mut policies) = policies(&params.files("policies")) else { return Built::default() };
        let cycle = cycle(params, &policies);
        for policy in &mut policies {
            policy.lease = scaled(policy, cycle);
            policy.cycle = cycle;
        }
        let collected: Vec<_> = collected(params, &policies).collect();
        let oracle = oracle::Oracle::new(policies, &collected, inventory, place, cycle);
        let rollout = params.optional("rollout", Params::integer).map_or(usize::MAX, |most| most as usize);
        return Built::brain(oracle.rolling_out(rollout));
    }
    let Some(&(oracle, _)) = place.peers.first() else { return Built::default() };
    let cycle = cycle(params, &[]);
    let collects = |wanted: &dyn Fn(&Statistic) -> bool| collected(params, &[]).any(wanted);
    if place.role.name == SWITCH.name {
        let of_topology = |s: &Statistic| s.name == LINK_CAPACITY || s.source == Source::Topology;
        let own = inventory.ports().filter(|(_, port)| port.from == place.node);
        let also = switch::Also {
            flows: collects(&|s| s.name == LINK_FLOWS),
            neighbours: collects(&of_topology).then(|| own.map(|(_, port)| port.to).collect()),
        };
        Built::brain(switch::Switch::new(oracle, cycle, also))
    } else {
        let reports = params.bool("reports") && collects(&|s| s.source == Source::Host);
        let tells_traffic = params.bool("reports") && collects(&|s| s.source == Source::Traffic);
        let by_rack = !collects(&|s| s.name == TRAFFIC_HOSTS);
        let traffic = tells_traffic.then(|| traffic::Traffic::new(inventory.shared_ports(), by_rack));
        Built::brain(agent::Agent::new(oracle, cycle, params.span("look"), reports, traffic, place.rank))
    }
}
