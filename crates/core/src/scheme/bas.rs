//! BAS: a central allocator gives every flow a fair window (Ito, Koga, Iida 2018).
//!
//! Three roles: `router::Router` counts flows and notifies, `host::Host` measures flows and enforces shares, and
//! `allocator::Allocator` decides with the equations of [`shares`].

mod allocator;
mod host;
mod router;
pub mod shares;

use serde::{Deserialize, Serialize};

use super::{Act, Built, Place, RoleDef, SchemeDef, Wants};
use crate::control::{FlowKey, Message};
use crate::id::{FlowId, NodeId, PortId};
use crate::params::{Choice, Key, Kind, Params, choice, keys};
use crate::runtime::inventory::{Inventory, Port};
use crate::time::Span;
use crate::topology::Topology;
use crate::units::{Bytes, Dimension, Rate};
use shares::{Rounding, Scope, UnderUse};

/// The registry entry.
pub static DEF: SchemeDef = SchemeDef {
    name: "bas",
    about: "Central allocator: a fair window for every flow from link capacity, flow counts and RTT",
    source: "Ito, Koga, Iida: A Bandwidth Allocation Scheme to Improve Fairness and Link Utilization in Data Center \
             Networks, IEICE Trans. Commun. E101-B(3), 2018",
    code: 1,
    keys: KEYS,
    roles: &[ALLOCATOR, ROUTER, HOST],
    check,
    fits: |_, _| Ok(()),
    place,
    build,
};

/// Decides. Its peers are the routers and hosts, its ports the links of the domain.
pub const ALLOCATOR: RoleDef = RoleDef { name: "allocator", wants: Wants::NOTHING, acts: &[Act::Send] };
/// Notifies its peer, the allocator, of the flows on its ports.
pub const ROUTER: RoleDef = RoleDef { name: "router", wants: Wants::PORTS, acts: &[Act::Send] };
/// Measures the flows that end at it, and enforces the shares of its peer, the allocator.
pub const HOST: RoleDef = RoleDef {
    name: "host",
    wants: Wants::FLOWS,
    acts: &[Act::SetWindow, Act::SetRate, Act::MeasureRtt, Act::Send],
};

/// What the roles tell each other.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
enum Word {
    /// A router's count of the flows on its links: the notification.
    Links(Vec<LinkCount>),
    /// A host's measurements: every live flow's throughput and round-trip time.
    Flows(Vec<FlowMeasurement>),
    /// A flow begins at a host.
    Started(FlowId, Way),
    /// A flow at a host has ended.
    Ended(FlowId),
    /// The allocator's decision for flows of a host.
    Shares(Vec<Share>),
    /// A part of a host's measurements, which do not fit into one datagram: those of all live flows with these numbers.
    SomeFlows {
        /// The lowest number; 0 in the first part.
        first: FlowId,
        /// The highest number; that of all numbers in the last part.
        last: FlowId,
        /// Measurements.
        flows: Vec<FlowMeasurement>,
    },
}

/// Flows on a port where nobody counts them.
const NOT_COUNTED: u32 = u32::MAX;

/// Measurements in a datagram at most: each takes some 70 bytes in IPv6, until the allocator has answered.
const MOST_FLOWS: usize = 800;
/// Shares in a datagram at most, of up to 26 bytes.
const MOST_SHARES: usize = 2000;

/// Flows on a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct LinkCount {
    port: PortId,
    /// Flows, or [`NOT_COUNTED`].
    flows: u32,
    /// Bytes that wait.
    backlog: Bytes,
    /// Bytes that have left, since the port began.
    sent: Bytes,
}

/// One flow's measurement interval.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct FlowMeasurement {
    flow: FlowId,
    /// Throughput over the interval as the link sees it, headers included; none when the flow is younger.
    throughput: Option<Rate>,
    /// Latest less least round-trip time: what the flow waits in queues.
    queueing: Span,
    /// Bytes that a full segment takes on a link.
    frame: Bytes,
    /// Until the allocator has answered: it may not have heard of the flow.
    way: Option<Way>,
}

/// What a host knows of where a flow's data go.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct Way {
    key: FlowKey,
    ports: Vec<PortId>,
}

/// One flow's allocation.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
struct Share {
    flow: FlowId,
    /// On the link, headers included.
    rate: Rate,
    /// Enforce by pacing at this rate instead of a window of whole segments.
    paced: bool,
    /// Paced: time in queues that flows of others fill, which the window covers.
    queueing: Span,
}

const KEYS: &[Key] = keys! {
    /// Hosts whose flows are controlled; the host role runs there
    "servers": Kind::TextList, required;
    /// Nodes of the data centre; the scheme allocates the links between them
    "domain": Kind::TextList, required;
    /// Where the allocator role runs; absent: the first of `servers`
    "allocator-node": Kind::Text, optional;
    /// The paper's fair share and reallocation, or exact max-min with paced windows
    "allocator": AllocatorKind::KIND, default "bas", from "Sect. 3";
    /// Give the unused share of flows limited elsewhere to the others
    "reallocation": Kind::Bool, default "true", from "Sect. 3";
    /// Window to whole segments, at least one
    "rounding": Rounding::KIND, default "up", from "Sect. 3, Round-up";
    /// Bytes of a segment that divide rate times RTT: all that it takes on the link, or its payload
    "segment": Segment::KIND, default "frame", from "bandmaster; payload: Sect. 3, BDP in MSS";
    /// Flows among which spare bandwidth is shared
    "scope": Scope::KIND, default "bottleneck-link", from "Fig. 10: A'' gives to all others";
    /// Test of a flow that does not use its share: E < beta A, or E beta < A as Sect. 3 prints
    "under-use": UnderUse::KIND, default "below-share", from "Sect. 5.4";
    /// Interval at which routers report their flow counts
    "notification-interval": Kind::Quantity(Dimension::Span), default "50ms", from "Sect. 5.1";
    /// Interval over which hosts measure throughput
    "measurement-interval": Kind::Quantity(Dimension::Span), default "100ms", from "Table 1";
    /// When a flow's throughput is sampled, over the time since the last sample
    "sampling": Sampling::KIND, default "measurement", from "Table 1; Sect. 3: each time flow information is updated";
    /// Weight of a new throughput sample
    "alpha": Kind::Float { min: 0.01, max: 1.0 }, default "0.4", from "Sect. 5.1";
    /// Share of its allocation below which a flow under-uses it
    "beta": Kind::Float { min: 0.01, max: 1.0 }, default "0.8", from "Sect. 5.1";
    /// Round-trip time that turns a rate into a window
    "rtt": RoundTrip::KIND, default "smoothed", from "Sect. 3: measured, queueing included";
    /// Flows that a router counts: seen in the notification interval, or open (SYN without FIN)
    "counting": Counting::KIND, default "open", from "Sect. 3: IPFIX or OpenFlow statistics";
    /// max-min: demand of an under-user as a multiple of its measured throughput, so that it can grow
    "headroom": Kind::Float { min: 1.0, max: 4.0 }, default "1.25", from "bandmaster";
    /// max-min: how flows that a server receives keep to their shares
    "receivers": Receivers::KIND, default "paced", from "bandmaster; windows: what Linux can";
    /// max-min: share of a link that is allocated while it has no queue
    "utilization": Kind::Float { min: 0.5, max: 1.0 }, default "1.0", from "bandmaster";
    /// A host that hears nothing from the allocator for this time releases its flows; absent: it never does
    "lease": Kind::Quantity(Dimension::Span), optional;
};

/// Keys that say where roles are. A daemon's file implies it.
const PLACES: usize = 3;
/// The keys of the roles, wherever they are.
pub(crate) const ROLE_KEYS: &[Key] = KEYS.split_at(PLACES).1;
/// The key of the roles with this name.
pub(crate) const fn role_key(name: &str) -> Key {
    let mut at = 0;
    while at < ROLE_KEYS.len() {
        let (one, other) = (ROLE_KEYS[at].name.as_bytes(), name.as_bytes());
        let mut same = 0;
        while same < one.len() && same < other.len() && one[same] == other[same] {
            same += 1;
        }
        if same == one.len() && same == other.len() {
            return ROLE_KEYS[at];
        }
        at += 1;
    }
    panic!("no such key");
}
/// The shortest lease, in measurement intervals.
const LEAST_LEASE: u64 = 3;

/// Typed parameters.
#[derive(Clone, Debug, PartialEq)]
struct Settings {
    allocator: AllocatorKind,
    reallocation: bool,
    rounding: Rounding,
    by_payload: bool,
    scope: Scope,
    under_use: UnderUse,
    notification: Span,
    measurement: Span,
    alpha: f64,
    beta: f64,
    minimum_rtt: bool,
    counts_open: bool,
    paces_receivers: bool,
    headroom: f64,
    utilization: f64,
    lease: Option<Span>,
}

choice! {
    /// How flows that a server receives keep to their shares.
    enum Receivers {
        /// The window moves on at the share's rate.
        Paced = "paced",
        /// The window is what the share carries in a round trip: whole segments that are right on average.
        Windows = "windows",
    }
}

choice! {
    enum AllocatorKind { Paper = "bas", MaxMin = "max-min" }
    enum RoundTrip { Smoothed = "smoothed", Minimum = "minimum" }
    enum Sampling { Measurement = "measurement", Notification = "notification" }
    enum Segment { Frame = "frame", Payload = "payload" }
    enum Counting { Seen = "seen", Open = "open" }
}

impl Settings {
    fn new(params: &Params) -> Self {
        let measurement = match params.choice("sampling") {
            Sampling::Measurement => "measurement-interval",
            Sampling::Notification => "notification-interval",
        };
        Self {
            allocator: params.choice("allocator"),
            reallocation: params.bool("reallocation"),
            rounding: params.choice("rounding"),
            by_payload: params.choice::<Segment>("segment") == Segment::Payload,
            scope: params.choice("scope"),
            under_use: params.choice("under-use"),
            notification: params.span("notification-interval"),
            measurement: params.span(measurement),
            alpha: params.float("alpha"),
            beta: params.float("beta"),
            minimum_rtt: params.choice::<RoundTrip>("rtt") == RoundTrip::Minimum,
            counts_open: params.choice::<Counting>("counting") == Counting::Open,
            paces_receivers: params.choice::<Receivers>("receivers") == Receivers::Paced,
            headroom: params.float("headroom"),
            utilization: params.float("utilization"),
            lease: params.optional("lease", Params::span),
        }
    }
}

fn place(params: &Params, inventory: &Inventory, _routes: &[Vec<PortId>]) -> Vec<Place> {
    let nodes =
        |key: &str| params.list(key).iter().filter_map(|name| inventory.node(name)).collect::<Vec<NodeId>>();
    let (servers, domain) = (nodes("servers"), nodes("domain"));
    let named = params.optional("allocator-node", Params::text);
    let allocator = named.map_or(servers.first().copied(), |name| inventory.node(&name));
    let Some(allocator) = allocator else { return Vec::new() };
    let inside = |port: &Port| domain.contains(&port.from) && domain.contains(&port.to);
    let ports_from = |from: Option<NodeId>| {
        let here = |port: &Port| inside(port) && from.is_none_or(|from| port.from == from);
        let ports = inventory.ports().filter(|(_, port)| here(port));
        ports.map(|(number, _)| number).collect::<Vec<PortId>>()
    };
    let place = |role, node, ports| Place {
        peers: vec![(allocator, &ALLOCATOR)],
        ports,
        ..Place::new(role, node, params.clone())
    };
    let mut places = Vec::new();
    for &node in &domain {
        let ports = ports_from(Some(node));
        if !ports.is_empty() {
            places.push(place(&ROUTER, node, ports));
        }
    }
    places.extend(servers.iter().map(|&node| place(&HOST, node, Vec::new())));
    let peers = places.iter().map(|place| (place.node, place.role)).collect();
    places.insert(0, Place { peers, ..place(&ALLOCATOR, allocator, ports_from(None)) });
    places
}

fn build(place: &Place, inventory: &Inventory, _saved: Option<&[u8]>) -> Built {
    let settings = Settings::new(&place.params);
    if place.role.name == ALLOCATOR.name {
        return Built::brain(allocator::Allocator::new(settings, inventory, place));
    }
    let Some(&(allocator, _)) = place.peers.first() else { return Built::default() };
    if place.role.name == ROUTER.name {
        Built::brain(router::Router::new(&settings, allocator, place.ports.clone()))
    } else {
        Built::brain(host::Host::new(settings, allocator))
    }
}

/// What a message of the allocator gives to flows, for reports: on the link, headers included.
pub fn shares_in(message: &Message) -> Vec<(FlowId, Rate)> {
    match message.read() {
        Some(Word::Shares(shares)) => shares.iter().map(|share| (share.flow, share.rate)).collect(),
        _ => Vec::new(),
    }
}

/// The allocator is the paper's, which decides by the counts of flows on all links of its domain.
pub(crate) fn is_papers(params: &Params) -> bool {
    params.choice::<AllocatorKind>("allocator") == AllocatorKind::Paper
}

/// What is wrong with the parameters of roles: a key, and what.
pub(crate) fn check_roles(params: &Params) -> Result<(), (&'static str, String)> {
    let lease = params.optional("lease", Params::span);
    let measurement = params.span("measurement-interval");
    for key in ["notification-interval", "measurement-interval"] {
        if params.span(key).is_zero() {
            return Err((key, "must be longer than 0s".to_owned()));
        }
    }
    // An answer comes for each report; two may be lost.
    match lease {
        Some(lease) if lease < measurement * LEAST_LEASE => Err((
            "lease",
            format!("{lease} is shorter than {LEAST_LEASE} measurement intervals of {measurement}"),
        )),
        _ => Ok(()),
    }
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
    if let Some(name) = params.optional("allocator-node", Params::text)
        && topology.node(&name).is_none()
    {
        return Err(("allocator-node", format!("names `{name}`, which is not a node")));
    }
    check_roles(params)
}

#[cfg(test)]
mod tests {
    use core::net::IpAddr;

    use super::*;
    use crate::control::{Action, Controller, FlowEnd, FlowStart, FlowStats, Message, Observation, Outbox};
    use crate::params::Value;
    use crate::rng::Stream;
    use crate::time::Time;

    const SERVERS: u32 = 3;
    const ROUTER_AT: NodeId = NodeId(SERVERS);
    const OUTSIDE: NodeId = NodeId(SERVERS + 1);
    const LOSS: f64 = 0.05;

    /// Servers at a router with a link to the outside.
    struct Site {
        params: Params,
        chance: Stream,
        now: Time,
        allocator: allocator::Allocator,
        /// Per server: its role, what it measures, and the number of its next flow.
        hosts: Vec<(host::Host, Vec<FlowStats>, u32)>,
    }

    impl Site {
        fn new() -> Self {
            let mut inventory = Inventory::default();
            for name in ["a", "b", "c", "r", "out"] {
                inventory.join(name);
            }
            let rate = Rate::from_bits_per_sec(100_000_000);
            let mut ports = Vec::new();
            for (from, to) in
                (0..SERVERS).map(|server| (NodeId(server), ROUTER_AT)).chain([(ROUTER_AT, OUTSIDE)])
            {
                ports.push(inventory.add_port("there", from, to, rate));
                ports.push(inventory.add_port("back", to, from, rate));
            }
            for node in 0..=OUTSIDE.0 {
                let prefix = crate::prefix::Prefix::parse(&format!("10.0.0.{node}")).expect("an address");
                inventory.add_network(prefix, NodeId(node));
            }
            let mut params = Params::defaults(ROLE_KEYS);
            params.set("allocator", Value::Text("max-min".to_owned()));
            params.set("lease", Value::Span(Span::from_secs(2)));
            let peers = (0..SERVERS).map(|server| (NodeId(server), &HOST)).collect();
            // The last two lead outside.
            ports.truncate(2 * SERVERS as usize);
            let place = Place { peers, ports, ..Place::new(&ALLOCATOR, ROUTER_AT, params.clone()) };
            let allocator = allocator::Allocator::new(Settings::new(&params), &inventory, &place);
            let host = || (host::Host::new(Settings::new(&params), ROUTER_AT), Vec::new(), 0);
            let hosts = (0..SERVERS).map(|_| host()).collect();
            Self { params, chance: Stream::new(1, 0, "a day"), now: Time::ZERO, allocator, hosts }
        }

        fn tell(&mut self, server: usize, observation: &Observation<'_>) {
            let mut out = Outbox::default();
            self.hosts[server].0.on(self.now, observation, &mut out);
            let said: Vec<Action> = out.drain().collect();
            for action in said {
                let Action::Send { body, .. } = action else { continue };
                if self.chance.chance(LOSS) {
                    continue;
                }
                let message = Message { from: NodeId(server as u32), scheme: DEF.code, body };
                let mut answers = Outbox::default();
                self.allocator.on(self.now, &Observation::Message(&message), &mut answers);
                for answer in answers.drain() {
                    let Action::Send { to, body } = answer else { panic!("{answer:?}") };
                    if !self.chance.chance(LOSS) {
                        let message = Message { from: ROUTER_AT, scheme: DEF.code, body };
                        let (host, ..) = &mut self.hosts[to.index()];
                        host.on(self.now, &Observation::Message(&message), &mut Outbox::default());
                    }
                }
            }
        }

        /// A tenth of a second: a flow or two begin and end somewhere, and now and then a host.
        fn pass(&mut self) {
            self.now += Span::from_millis(100);
            for server in 0..self.hosts.len() {
                let (_, flows, next) = &mut self.hosts[server];
                for flow in flows.iter_mut() {
                    flow.delivered = Bytes::new(flow.delivered.get() + self.chance.below(1_000_000));
                }
                if flows.len() < 10 && self.chance.chance(0.2) {
                    let end = if self.chance.chance(0.5) { FlowEnd::Sender } else { FlowEnd::Receiver };
                    let stats = FlowStats {
                        flow: FlowId(*next),
                        end,
                        delivered: Bytes::ZERO,
                        srtt: Some(Span::from_millis(2)),
                        min_rtt: Some(Span::from_millis(1)),
                        last_rtt: None,
                        mss: Bytes::new(1448),
                        frame: Bytes::new(1514),
                    };
                    *next = next.wrapping_add(1);
                    let other = self.chance.below(u64::from(OUTSIDE.0 + 1)) as u8;
                    let port = 1024 + self.chance.below(60_000) as u16;
                    let (own, other) = (
                        (IpAddr::from([10, 0, 0, server as u8]), port),
                        (IpAddr::from([10, 0, 0, other]), 80),
                    );
                    let (from, to) = if end == FlowEnd::Sender { (own, other) } else { (other, own) };
                    let key = FlowKey { from, to, protocol: 6 };
                    flows.push(stats);
                    self.tell(server, &Observation::FlowStarted(FlowStart { stats, key, route: &[] }));
                }
                let (_, flows, _) = &mut self.hosts[server];
                if !flows.is_empty() && self.chance.chance(0.2) {
                    let ended = flows.swap_remove(self.chance.below(flows.len() as u64) as usize);
                    self.tell(server, &Observation::FlowEnded(ended.flow));
                }
                let mut flows = self.hosts[server].1.clone();
                flows.sort_unstable_by_key(|stats| stats.flow);
                self.tell(server, &Observation::Tick { ports: &[], flows: &flows });
                if self.chance.chance(0.0005) {
                    // Its process ends, and the allocator hears of it, or not.
                    self.hosts[server] =
                        (host::Host::new(Settings::new(&self.params), ROUTER_AT), Vec::new(), 0);
                    let node = NodeId(server as u32);
                    if self.chance.chance(0.5) {
                        self.allocator.on(self.now, &Observation::Left(node), &mut Outbox::default());
                        self.allocator.on(self.now, &Observation::Joined(node), &mut Outbox::default());
                    }
                }
            }
        }
    }

    /// Hours: `BANDMASTER_DAY` (`./ci.sh long`: 24). Nothing is kept of flows that have ended, whichever messages were lost.
    #[test]
    fn of_a_day_of_flows_nothing_is_left() {
        let hours = std::env::var("BANDMASTER_DAY").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
        let mut site = Site::new();
        let (mut begun, mut most) = (0, 0);
        for minute in 0..60 * hours {
            (0..600).for_each(|_| site.pass());
            // The allocator may not have heard yet of the last tenths of a second.
            let is_right = (0..20).any(|_| {
                site.pass();
                let live: usize = site.hosts.iter().map(|(_, flows, _)| flows.len()).sum();
                // A flow, its way, and what is there once: links, ways out and peers.
                site.allocator.kept() <= 2 * live + 14
            });
            let kept = site.allocator.kept();
            assert!(is_right, "{kept} entries in minute {minute}");
            for (host, flows, _) in &site.hosts {
                assert!(host.kept() <= 2 * flows.len(), "{} entries for {} flows", host.kept(), flows.len());
            }
            begun = begun.max(site.hosts.iter().map(|(_, _, next)| *next).max().unwrap_or(0));
            most = most.max(kept);
        }
        println!("{hours} h: up to {begun} flows in one life of a host, {most} entries at most");
        assert!(begun > 100 && most > 20);
        // All end.
        site.hosts.iter_mut().for_each(|(_, flows, _)| flows.clear());
        for server in 0..site.hosts.len() {
            for _ in 0..50 {
                site.now += Span::from_millis(100);
                site.tell(server, &Observation::Tick { ports: &[], flows: &[] });
            }
        }
        assert!(site.allocator.kept() <= 14 && site.hosts.iter().all(|(host, ..)| host.kept() == 0));
    }
}
