//! Sends every role of every scheme anything that a host may report, in any order, and checks what every controller owes its host.
//!
//! `BANDMASTER_FUZZ=1000000 cargo test -p bandmaster-core --test controllers` makes so many observations per role.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};

use bandmaster_core::control::{
    FlowEnd, FlowKey, FlowStart, FlowStats, Gauges, Message, Observation, Passed, PortFlows, PortStats,
    SegmentCounts,
};
use bandmaster_core::id::{FlowId, NodeId, PortId};
use bandmaster_core::params::{Key, Kind, NamedText, Params, Value};
use bandmaster_core::port::Header;
use bandmaster_core::port::flow_counter::Reader;
use bandmaster_core::port::window::Segment;
use bandmaster_core::rng::Stream;
use bandmaster_core::runtime::inventory::{Change, Inventory, Port};
use bandmaster_core::runtime::{Host, Refusal, Runner};
use bandmaster_core::scheme::{Act, Place, Program, REGISTRY, Role, RoleDef, SchemeDef, opentcp};
use bandmaster_core::time::{Span, Time};
use bandmaster_core::tuning::Tuning;
use bandmaster_core::units::{Bytes, Dimension, Rate};

/// Observations per role, unless the environment says how many.
const OBSERVATIONS: u64 = 20_000;
/// Steps of one case.
const STEPS: u64 = 3_000;
/// Most bytes that one call may send: the flows of all hosts are far fewer than a thousand.
const MOST_BYTES: usize = 1 << 16;
/// Most bytes by which a process may grow while its roles hear of 20,000 flows and strangers, and forget them.
const MOST_GROWN: u64 = 2 << 20;
/// Clocks stay below: half of what they can tell, 292 years.
const LATEST: u64 = u64::MAX / 2;

/// The memory of the process is that of one test at a time.
static ALONE: Mutex<()> = Mutex::new(());

#[test]
fn every_role_keeps_to_what_it_declares_whatever_it_is_told() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let wanted = std::env::var("BANDMASTER_FUZZ").map_or(OBSERVATIONS, |n| n.parse().expect("a number"));
    let mut broken = BTreeSet::new();
    for scheme in REGISTRY {
        let mut told: BTreeMap<&str, u64> = scheme.roles.iter().map(|role| (role.name, 0)).collect();
        for seed in 0.. {
            if told.values().all(|n| *n >= wanted) || broken.len() > 200 {
                break;
            }
            assert!(seed < 50 + wanted / 10, "{}: roles hear nothing: {told:?}", scheme.name);
            let case = || Case::new(scheme, seed).run();
            match catch_unwind(AssertUnwindSafe(|| (case(), case()))) {
                Ok((first, second)) => {
                    assert!(
                        first.calls == second.calls,
                        "{} {seed}: the same observations, other acts",
                        scheme.name
                    );
                    first.told.iter().for_each(|(role, n)| *told.entry(role).or_default() += n);
                }
                Err(why) => {
                    let text = why.downcast_ref::<String>().cloned();
                    let text = text.or(why.downcast_ref::<&str>().map(|text| (*text).to_owned()));
                    broken.insert(format!("{} {seed}: {}", scheme.name, text.unwrap_or_default()));
                }
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.into_iter().collect::<Vec<_>>().join("\n"));
}

/// Flows that begin without end, at a host and at hosts that nobody knows; what a role keeps of them shows in what it says.
#[test]
fn what_roles_keep_of_flows_and_strangers_is_bounded() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for scheme in REGISTRY {
        for seed in 0..6 {
            let mut case = Case::new(scheme, seed);
            (0..case.actors.len()).for_each(|number| case.begin(number));
            // Real words of every role.
            (0..300).for_each(|at| case.step(at % case.actors.len()));
            let real: Vec<Message> = case.post.iter().map(|(_, message)| message.clone()).collect();
            let before = resident();
            for n in 0..20_000_u32 {
                let number = n as usize % case.actors.len();
                let from = NodeId(1_000 + n);
                if let Some(said) = real.get(n as usize % real.len().max(1)) {
                    case.tell(number, &Observation::Message(&Message { from, ..said.clone() }));
                }
                let payload =
                    pick(&mut case.stream, &[vec![0, 1, n as u8, 7], noise(&mut Stream::new(1, n, ""), 28)]);
                let passed = Passed { packets: n.into(), bytes: n.into() };
                case.tell(number, &Observation::ProbeCame { from, payload: &payload, passed });
                case.tell(number, &Observation::Joined(from));
                // What a host tells of at each tick is all that there is.
                case.start_flow(number);
                if n.is_multiple_of(64) {
                    (0..case.actors.len()).for_each(|number| case.wake(number));
                }
                case.post.clear();
                case.probes.clear();
                case.outcome.calls.clear();
            }
            let grown = resident().saturating_sub(before);
            assert!(grown < MOST_GROWN, "{} {seed}: grows by {grown} bytes", scheme.name);
        }
    }
}

/// Bytes of memory that the process holds; nothing where the system does not say.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|rest| rest.trim().strip_suffix(" kB")?.trim().parse().ok())
        .map_or(0, |kilo: u64| kilo << 10)
}

// ------------------------------------------------------------------------------------------------ the network

struct Network {
    inventory: Inventory,
    nodes: Vec<NodeId>,
    routes: Vec<Vec<PortId>>,
}

impl Network {
    /// Hosts at two routers that parallel links join.
    fn new(stream: &mut Stream) -> Self {
        let mut inventory = Inventory::default();
        let routers = ["r0", "r1"].map(|name| inventory.join(name));
        let mut join = |inventory: &mut Inventory, from: NodeId, to: NodeId| {
            let rate = Rate::from_bits_per_sec(extreme(stream, 10_000_000));
            let name = |from, to| format!("{}->{}", inventory.name(from), inventory.name(to));
            let names = (name(from, to), name(to, from));
            [inventory.add_port(&names.0, from, to, rate), inventory.add_port(&names.1, to, from, rate)]
        };
        let trunks = [(); 3].map(|()| join(&mut inventory, routers[0], routers[1]));
        let mut access = Vec::new();
        for number in 0..5 {
            let host = inventory.join(&format!("h{number}"));
            access.push((number % 2, join(&mut inventory, host, routers[number % 2])));
        }
        let mut routes = Vec::new();
        for _ in 0..1 + stream.below(8) {
            let mut end = || access[stream.below(5) as usize];
            let ((from, [up, _]), (to, [_, down])) = (end(), end());
            let trunk = trunks[stream.below(3) as usize][from];
            let middle = (from != to).then_some(trunk);
            routes.push([up].into_iter().chain(middle).chain([down]).collect());
        }
        let nodes = (0..inventory.nodes() as u32).map(NodeId).collect();
        Self { inventory, nodes, routes }
    }

    /// One of its nodes, or one that nobody knows.
    fn node(&self, stream: &mut Stream) -> NodeId {
        if stream.chance(0.1) { NodeId(900 + stream.below(99) as u32) } else { pick(stream, &self.nodes) }
    }
}

fn pick<T: Clone>(stream: &mut Stream, of: &[T]) -> T {
    of[stream.below(of.len() as u64) as usize].clone()
}

/// About `usual`, or something at the ends of the range of `u64`.
fn extreme(stream: &mut Stream, usual: u64) -> u64 {
    match stream.below(12) {
        0 => 0,
        1 => 1,
        2 => u64::MAX,
        3 => stream.next_u64(),
        4 => stream.next_u64() >> stream.below(64),
        _ => usual / 2 + stream.below(usual),
    }
}

// ------------------------------------------------------------------------------------------------ parameters

fn params(scheme: &SchemeDef, stream: &mut Stream) -> Params {
    let mut params = Params::defaults(scheme.keys);
    for key in scheme.keys {
        if (key.required || stream.chance(0.3))
            && let Some(value) = value(key, stream)
        {
            params.set(key.name, value);
        }
    }
    params
}

/// A value that a check accepts.
fn value(key: &Key, stream: &mut Stream) -> Option<Value> {
    let texts = |all: &[&str]| Value::List(all.iter().map(|text| (*text).to_owned()).collect());
    Some(match (key.name, key.kind) {
        ("servers" | "agents", _) => {
            texts(pick(stream, &[&["h0", "h2", "h4"][..], &["h1"], &["h4", "h3", "h2", "h1", "h0"]]))
        }
        ("domain", _) => texts(pick(stream, &[&["r0", "r1", "h0", "h1", "h2"][..], &["r0", "r1"], &[]])),
        ("allocator-node" | "oracle" | "receiver", _) => {
            Value::Text(pick(stream, &["r1", "h0", "h3"]).to_owned())
        }
        ("port", _) => Value::Text("r0->r1".to_owned()),
        ("ports", _) => texts(&["r0->r1", "r1->h1", "r0->h0"]),
        ("needs", _) => {
            texts(pick(stream, &[&["100kbit", "200kbit", "1mbit"][..], &["0bit"], &["18000000tbit", "1bit"]]))
        }
        ("redundant", _) => texts(&["1"]),
        ("collect", _) => texts(pick(
            stream,
            &[&["link.flows", "traffic.racks"][..], &["traffic.hosts", "topology.hops"], &["link.capacity"]],
        )),
        ("force", _) => texts(&["timescale"]),
        ("policies", _) => {
            let (name, _) = pick(stream, opentcp::SHIPPED);
            Value::Files(vec![NamedText { name: name.to_owned(), text: None }])
        }
        // Below two packets the check refuses a buffer.
        ("buffer", _) => Value::Bytes(Bytes::new(extreme(stream, 60_000).max(3_000))),
        (_, Kind::Quantity(Dimension::Rate)) => {
            Value::Rate(Rate::from_bits_per_sec(extreme(stream, 1_000_000)))
        }
        (_, Kind::Quantity(Dimension::Span)) => {
            let spans = [1_000, 100_000, 50_000_000, 1_000_000_000, 3_600_000_000_000, u64::MAX];
            Value::Span(Span::from_nanos(pick(stream, &spans)))
        }
        (_, Kind::Bool) => Value::Bool(stream.chance(0.5)),
        (_, Kind::Choice(words)) => Value::Text(pick(stream, words).to_owned()),
        (_, Kind::Integer { min, max }) => Value::Integer(pick(stream, &[min, max, min / 2 + max / 2])),
        (_, Kind::Float { min, max }) => Value::Float(min + (max - min) * stream.unit()),
        (_, kind) => {
            assert!(!key.required, "key {} of kind {kind:?} is required: say what fits", key.name);
            return None;
        }
    })
}

// ------------------------------------------------------------------------------------------------ the host

/// What a role has called its host for.
#[derive(Clone, PartialEq, Debug)]
enum Call {
    Wake(Time),
    Send(NodeId, Message),
    Probe(NodeId, NodeId, Vec<u8>),
    Window(FlowId, Bytes),
    Rate(FlowId, Rate, Bytes),
    Rtt(FlowId),
    Class(PortId, Option<usize>, Rate, Rate),
    Tune(Tuning),
}

impl Call {
    fn asked(&self) -> Option<FlowId> {
        if let Self::Rtt(flow) = self { Some(*flow) } else { None }
    }

    fn act(&self) -> Option<Act> {
        Some(match self {
            Self::Wake(_) => return None,
            Self::Send(..) => Act::Send,
            Self::Probe(..) => Act::Probe,
            Self::Window(..) => Act::SetWindow,
            Self::Rate(..) => Act::SetRate,
            Self::Rtt(_) => Act::MeasureRtt,
            Self::Class(..) => Act::SetClass,
            Self::Tune(_) => Act::Tune,
        })
    }
}

/// The machine of one role.
struct Machine {
    node: NodeId,
    stream: Stream,
    /// Ports of the node.
    ports: Vec<PortStats>,
    flows: BTreeMap<FlowId, FlowStats>,
    segments: SegmentCounts,
    passed: Passed,
    /// Flows that were reported to the role and that have not ended.
    known: BTreeSet<FlowId>,
    timer: Option<Time>,
    /// Of the last call; true: done.
    calls: Vec<(Call, bool)>,
}

impl Machine {
    fn new(place: &Place, network: &Network, seed: u64, number: u32) -> Self {
        let port = |(port, of): (PortId, &Port)| PortStats {
            port,
            capacity: of.capacity,
            flows: None,
            backlog: Some(Bytes::ZERO),
            sent: Bytes::ZERO,
            offered: 0,
            dropped: 0,
        };
        let here = network.inventory.ports().filter(|(_, port)| port.from == place.node);
        Self {
            node: place.node,
            stream: Stream::new(seed, number, "machine"),
            ports: here.map(port).collect(),
            flows: BTreeMap::new(),
            segments: SegmentCounts::default(),
            passed: Passed::default(),
            known: BTreeSet::new(),
            timer: None,
            calls: Vec::new(),
        }
    }

    /// A counter goes on, now and then to anywhere.
    fn count(&mut self, counter: u64, usual: u64) -> u64 {
        if self.stream.chance(0.03) {
            return extreme(&mut self.stream, usual);
        }
        counter.saturating_add(self.stream.below(usual))
    }

    fn span(&mut self) -> Option<Span> {
        self.stream.chance(0.7).then(|| Span::from_nanos(extreme(&mut self.stream, 40_000_000)))
    }

    /// News of a flow. A segment has data.
    fn measure(&mut self, flow: FlowId) -> FlowStats {
        let mss = [1, 536, 1448, 8948, 65_495][flow.index() % 5];
        let before = self.flows.get(&flow).map_or(0, |stats| stats.delivered.get());
        FlowStats {
            flow,
            end: if flow.0.is_multiple_of(2) { FlowEnd::Sender } else { FlowEnd::Receiver },
            delivered: Bytes::new(self.count(before, 1_000_000)),
            srtt: self.span(),
            min_rtt: self.span(),
            last_rtt: self.span(),
            mss: Bytes::new(mss),
            frame: Bytes::new(mss + 90),
        }
    }

    fn pass(&mut self) -> Passed {
        let Passed { packets, bytes } = self.passed;
        self.passed = Passed { packets: self.count(packets, 300), bytes: self.count(bytes, 400_000) };
        self.passed
    }

    fn call(&mut self, call: Call) -> Result<(), Refusal> {
        let refusals = [Refusal::Unable, Refusal::Unknown, Refusal::Busy, Refusal::Failed("on purpose")];
        let refused = self.stream.chance(0.1).then(|| pick(&mut self.stream, &refusals));
        self.calls.push((call, refused.is_none()));
        refused.map_or(Ok(()), Err)
    }
}

impl Host for Machine {
    const ACTS: &'static [Act] = &[
        Act::SetWindow,
        Act::SetRate,
        Act::MeasureRtt,
        Act::Probe,
        Act::SetClass,
        Act::Tune,
        Act::Send,
        Act::Watch,
        Act::Rewrite,
    ];

    fn wake(&mut self, _role: usize, at: Time) {
        self.timer = Some(at);
        self.calls.push((Call::Wake(at), true));
    }

    fn port_stats(&mut self, _now: Time, node: NodeId, _reader: &mut Reader) -> Vec<PortStats> {
        assert_eq!(node, self.node);
        for at in 0..self.ports.len() {
            let before = self.ports[at];
            self.ports[at] = PortStats {
                flows: Some(PortFlows {
                    seen: extreme(&mut self.stream, 20) as u32,
                    open: extreme(&mut self.stream, 20) as u32,
                }),
                backlog: Some(Bytes::new(extreme(&mut self.stream, 30_000))),
                sent: Bytes::new(self.count(before.sent.get(), 1_000_000)),
                offered: self.count(before.offered, 1_000),
                dropped: self.count(before.dropped, 10),
                ..before
            };
        }
        self.ports.clone()
    }

    fn flow_stats(&mut self, _now: Time, node: NodeId) -> Vec<FlowStats> {
        assert_eq!(node, self.node);
        let flows: Vec<FlowId> = self.flows.keys().copied().collect();
        self.known.extend(&flows);
        for flow in flows {
            let stats = self.measure(flow);
            self.flows.insert(flow, stats);
        }
        self.flows.values().copied().collect()
    }

    fn segments(&mut self, _node: NodeId) -> SegmentCounts {
        let SegmentCounts { sent, resent } = self.segments;
        self.segments = SegmentCounts { sent: self.count(sent, 1_000), resent: self.count(resent, 20) };
        self.segments
    }

    fn show(&mut self, role: usize, _now: Time, gauges: &Gauges) {
        for (name, value) in gauges.values() {
            let is_sound = !value.is_infinite() && (*name != "coverage" || (0.0..=1.0).contains(value));
            assert!(is_sound, "role {role} shows {name} {value}");
        }
    }

    fn send(&mut self, _now: Time, to: NodeId, message: Message) -> Result<(), Refusal> {
        self.call(Call::Send(to, message))
    }

    fn probe(&mut self, _now: Time, from: NodeId, to: NodeId, payload: Vec<u8>) -> Result<(), Refusal> {
        self.call(Call::Probe(from, to, payload))
    }

    fn set_window(&mut self, node: NodeId, flow: FlowId, window: Bytes) -> Result<(), Refusal> {
        assert_eq!(node, self.node);
        self.call(Call::Window(flow, window))
    }

    fn set_rate(&mut self, node: NodeId, flow: FlowId, rate: Rate, window: Bytes) -> Result<(), Refusal> {
        assert_eq!(node, self.node);
        self.call(Call::Rate(flow, rate, window))
    }

    fn measure_rtt(&mut self, node: NodeId, flow: FlowId) -> Result<(), Refusal> {
        assert_eq!(node, self.node);
        self.call(Call::Rtt(flow))
    }

    fn set_class(
        &mut self,
        port: PortId,
        class: Option<usize>,
        rate: Rate,
        ceil: Rate,
    ) -> Result<(), Refusal> {
        self.call(Call::Class(port, class, rate, ceil))
    }

    fn tune(&mut self, node: NodeId, tuning: Tuning) -> Result<(), Refusal> {
        assert_eq!(node, self.node);
        self.call(Call::Tune(tuning))
    }
}

// ------------------------------------------------------------------------------------------------ one case

/// One role on its machine.
struct Actor {
    scheme: &'static SchemeDef,
    place: Place,
    runner: Runner,
    machine: Machine,
    programs: Vec<(PortId, Program)>,
    /// Flows that have begun since the role last did more than its observations asked for.
    begun: usize,
}

impl Actor {
    fn new(mut role: Role, machine: Machine, inventory: &Inventory) -> Self {
        let (scheme, place) = (role.scheme, role.place.clone());
        let programs = std::mem::take(&mut role.built.programs);
        assert!(programs.iter().all(|(_, program)| place.role.acts.contains(&program.act())));
        let runner = Runner::new::<Machine>(vec![role], inventory.clone());
        let runner = runner.expect("the machine can do everything");
        Self { scheme, place, runner, machine, programs, begun: 0 }
    }
}

struct Case {
    network: Network,
    stream: Stream,
    now: Time,
    actors: Vec<Actor>,
    post: Vec<(NodeId, Message)>,
    probes: Vec<(NodeId, NodeId, Vec<u8>)>,
    outcome: Outcome,
}

#[derive(Default)]
struct Outcome {
    calls: Vec<(usize, Time, Call)>,
    told: BTreeMap<&'static str, u64>,
}

impl Case {
    fn new(scheme: &'static SchemeDef, seed: u64) -> Self {
        let mut stream = Stream::new(seed, 0, scheme.name);
        let network = Network::new(&mut stream);
        let params = params(scheme, &mut stream);
        let mut places = (scheme.place)(&params, &network.inventory, &network.routes);
        if places.is_empty() || stream.chance(0.3) {
            places = by_hand(scheme, &params, &network, &mut stream);
        }
        let mut actors = Vec::new();
        for (place, number) in places.into_iter().zip(0..) {
            let saved: Option<Vec<u8>> = stream.chance(0.3).then(|| noise(&mut stream, 12));
            let role = Role::new(scheme, place.clone(), &network.inventory, saved.as_deref());
            actors.push(Actor::new(role, Machine::new(&place, &network, seed, number), &network.inventory));
        }
        let now = Time::from_nanos(if stream.chance(0.5) { 0 } else { stream.next_u64() >> 10 });
        let (post, probes, outcome) = Default::default();
        Self { network, stream, now, actors, post, probes, outcome }
    }

    fn run(mut self) -> Outcome {
        (0..self.actors.len()).for_each(|number| self.begin(number));
        for _ in 0..STEPS {
            let number = self.stream.below(self.actors.len() as u64) as usize;
            self.step(number);
        }
        self.outcome
    }

    fn begin(&mut self, number: usize) {
        let Actor { runner, machine, .. } = &mut self.actors[number];
        runner.begin(machine, self.now);
        self.settle(number, 0);
    }

    fn step(&mut self, number: usize) {
        let (now, node) = (self.now, self.actors[number].place.node);
        match self.stream.below(20) {
            0..=5 => self.wake(number),
            6 => {
                let span = self.stream.next_u64() >> (8 + self.stream.below(50));
                self.now = Time::from_nanos(now.as_nanos().saturating_add(span).min(LATEST));
            }
            7 | 8 => self.start_flow(number),
            9 => {
                let machine = &mut self.actors[number].machine;
                let open: Vec<FlowId> = machine.flows.keys().copied().collect();
                let unknown = FlowId(self.stream.next_u64() as u32);
                let flow = if open.is_empty() { unknown } else { pick(&mut self.stream, &open) };
                machine.flows.remove(&flow);
                machine.known.remove(&flow);
                self.tell(number, &Observation::FlowEnded(flow));
            }
            10..=14 => self.deliver(),
            15 => {
                let from = self.network.node(&mut self.stream);
                let code = self.actors[number].scheme.code;
                let body = noise(&mut self.stream, 40);
                self.tell_all_at(node, &Observation::Message(&Message { from, scheme: code, body }));
            }
            16 | 17 => self.deliver_probe(node),
            18 => self.shake(number),
            _ => self.program(number),
        }
    }

    /// At the time asked for, or late.
    fn wake(&mut self, number: usize) {
        let Actor { place, runner, machine, .. } = &mut self.actors[number];
        let Some(due) = machine.timer.filter(|due| due.as_nanos() < LATEST) else { return };
        let late = Span::from_nanos(if self.stream.chance(0.8) { 0 } else { self.stream.next_u64() >> 20 });
        self.now = self.now.max(Time::from_nanos((due + late).as_nanos().min(LATEST)));
        machine.timer = None;
        *self.outcome.told.entry(place.role.name).or_default() += 1;
        runner.wake(machine, 0, due, self.now);
        let next = machine.timer;
        assert!(
            next.is_none_or(|at| at > self.now),
            "{}: woken at {}, asks for {next:?}",
            place.role.name,
            self.now
        );
        self.settle(number, 0);
    }

    /// A flow that is new, that nobody ended, or that has begun before.
    fn start_flow(&mut self, number: usize) {
        let machine = &mut self.actors[number].machine;
        let flow = FlowId(
            if self.stream.chance(0.9) { self.stream.below(30) } else { self.stream.next_u64() } as u32,
        );
        if self.stream.chance(0.5) {
            machine.flows.remove(&flow);
        }
        let stats = machine.measure(flow);
        if self.stream.chance(0.9) {
            machine.flows.insert(flow, stats);
        }
        machine.known.insert(flow);
        if machine.flows.len() > 40 {
            machine.flows.pop_first();
        }
        let address = |last| (IpAddr::from(Ipv4Addr::from_bits(last)), last as u16);
        let key = FlowKey { from: address(flow.0), to: address(1), protocol: 6 };
        let routes = [&[][..], &[PortId(7_000), PortId(0)]];
        let unusual = pick(&mut self.stream, &routes).to_vec();
        let usual = pick(&mut self.stream, &self.network.routes);
        let route = if self.stream.chance(0.8) { usual } else { unusual };
        self.tell(number, &Observation::FlowStarted(FlowStart { stats, key, route: &route }));
    }

    /// A message that a role has sent: as it was, changed, again, from or to somebody else.
    fn deliver(&mut self) {
        if self.post.is_empty() {
            return;
        }
        let stream = &mut self.stream;
        let at = stream.below(self.post.len() as u64) as usize;
        let (mut to, mut message) =
            if stream.chance(0.8) { self.post.swap_remove(at) } else { self.post[at].clone() };
        if stream.chance(0.2) {
            bend(stream, &mut message.body);
        }
        if stream.chance(0.1) {
            message.from = self.network.node(stream);
        }
        if stream.chance(0.1) {
            to = self.network.node(stream);
        }
        if stream.chance(0.02) {
            message.scheme = stream.next_u64() as u16;
        }
        self.tell_all_at(to, &Observation::Message(&message));
    }

    fn deliver_probe(&mut self, node: NodeId) {
        let stream = &mut self.stream;
        let (mut from, mut to, mut payload) = match self.probes.len() as u64 {
            0 => (self.network.node(stream), node, noise(stream, 30)),
            n if stream.chance(0.5) => self.probes.swap_remove(stream.below(n) as usize),
            n => self.probes[stream.below(n) as usize].clone(),
        };
        if stream.chance(0.2) {
            bend(stream, &mut payload);
        }
        if stream.chance(0.1) {
            (from, to) = (to, from);
        }
        let left = stream.chance(0.4);
        for number in 0..self.actors.len() {
            let Actor { place, machine, .. } = &mut self.actors[number];
            let passed = machine.pass();
            if left && place.node == from {
                self.tell(number, &Observation::ProbeLeft { payload: &payload, passed });
            } else if !left && place.node == to {
                self.tell(number, &Observation::ProbeCame { from, payload: &payload, passed });
            }
        }
    }

    /// Nodes leave, come back and restart; roles are built again from their saved state.
    fn shake(&mut self, number: usize) {
        let node = self.network.node(&mut self.stream);
        let change = [Change::Leave, Change::Join, Change::Join, Change::Restart];
        let (now, what) = (self.now, self.stream.below(5));
        let Some(&change) = change.get(what as usize) else {
            let saved = self.actors[number].runner.save().pop().flatten();
            let saved = saved.map(|mut bytes| {
                if self.stream.chance(0.5) {
                    bend(&mut self.stream, &mut bytes);
                }
                bytes
            });
            let Actor { scheme, place, runner, machine, .. } = &mut self.actors[number];
            let role = Role::new(scheme, place.clone(), &self.network.inventory, saved.as_deref());
            *runner = Runner::new::<Machine>(vec![role], self.network.inventory.clone())
                .expect("the machine can do everything");
            machine.timer = None;
            runner.begin(machine, now);
            return self.settle(number, 0);
        };
        for number in 0..self.actors.len() {
            let Actor { runner, machine, place, .. } = &mut self.actors[number];
            if place.node == node {
                machine.timer = None;
            }
            runner.change(machine, now, node, change);
            self.settle(number, 0);
        }
    }

    /// Packets pass the programs of a role.
    fn program(&mut self, number: usize) {
        let Actor { place, programs, .. } = &mut self.actors[number];
        let stream = &mut self.stream;
        for (_, program) in programs {
            for _ in 0..8 {
                *self.outcome.told.entry(place.role.name).or_default() += 1;
                let flow = FlowId(stream.below(40) as u32);
                let (syn, fin) = (stream.chance(0.1), stream.chance(0.1));
                let program = match program {
                    Program::Watch(program) => {
                        program.on_packet(self.now, &Header { flow, reverse: false, syn, fin });
                        continue;
                    }
                    Program::Rewrite(program) => program,
                };
                let mss = [1, 536, 1448, 8948, 65_495][flow.index() % 5];
                let segment = Segment {
                    flow,
                    syn,
                    fin,
                    rst: stream.chance(0.05),
                    offset: stream.next_u64() >> (16 + stream.below(48)),
                    window: stream.next_u64() >> (32 + stream.below(32)),
                    mss,
                    frame: mss + 90,
                    scale: 1 << stream.below(15),
                    paths: 1 + flow.index() as u64 % 3,
                };
                let held = stream.next_u64() >> (30 + stream.below(34));
                let what = stream.below(4);
                let answer = match what {
                    0 => program.on_data(self.now, &segment, held).map_or(0, |window| window.max(1)),
                    1 | 2 => format!("{:?}", program.on_ack(self.now, &segment, held)).len() as u64,
                    _ => {
                        let Some(at) = program.timer().filter(|at| at.as_nanos() < LATEST) else { continue };
                        self.now = self.now.max(at);
                        program.on_timer(self.now, held);
                        at.as_nanos()
                    }
                };
                let mut released = vec![Call::Window(flow, Bytes::new(answer))];
                while let Some((flow, window)) = program.release() {
                    released.push(Call::Window(flow, Bytes::new(window)));
                    assert!(released.len() <= 41, "{}: releases more flows than there are", place.role.name);
                }
                let next = program.timer();
                let is_later = what != 3 || next.is_none_or(|at| at > self.now);
                assert!(is_later, "{}: woken at {}, asks for {next:?}", place.role.name, self.now);
                self.outcome.calls.extend(released.into_iter().map(|call| (number, self.now, call)));
            }
        }
    }

    fn tell(&mut self, number: usize, observation: &Observation<'_>) {
        let Actor { place, runner, machine, begun, .. } = &mut self.actors[number];
        *self.outcome.told.entry(place.role.name).or_default() += 1;
        *begun += usize::from(matches!(observation, Observation::FlowStarted(_)));
        runner.observe(machine, self.now, place.node, observation);
        let said = if let Observation::Message(message) = observation { message.body.len() } else { 0 };
        self.settle(number, said);
    }

    fn tell_all_at(&mut self, node: NodeId, observation: &Observation<'_>) {
        for number in 0..self.actors.len() {
            if self.actors[number].place.node == node {
                self.tell(number, observation);
            }
        }
    }

    /// Checks that a role did only what it may, and not much for the `said` bytes that it received.
    fn settle(&mut self, number: usize, said: usize) {
        let Actor { place, machine, begun, .. } = &mut self.actors[number];
        let name = place.role.name;
        let classes =
            if place.role.acts.contains(&Act::SetClass) { place.params.list("needs").len() } else { 0 };
        // All peers and ports, all classes twice with the root, and three bytes say no more than one thing to do.
        let most = 4 + place.peers.len() + place.ports.len() + 2 * classes + said / 3;
        // A lease that ends is one of every flow.
        let leased = if place.params.get("lease").is_some() { machine.known.len() } else { 0 };
        let most = most + leased;
        let acts = machine.calls.iter().filter_map(|(call, _)| call.act());
        // A role asks for a flow's round-trip time once.
        let acts = acts.filter(|act| *act != Act::MeasureRtt).count();
        let asked: Vec<FlowId> = machine.calls.iter().filter_map(|(call, _)| call.asked()).collect();
        let distinct: BTreeSet<FlowId> = asked.iter().copied().collect();
        assert_eq!(asked.len(), distinct.len(), "{name} asks twice for one flow's round-trip time");
        // Once for each flow that has begun, a role may give up waiting for somebody's word.
        let begun = if acts > most { std::mem::take(begun) } else { 0 };
        assert!(
            acts <= most + begun,
            "{name}: {acts} acts at once, at most {most} and {begun} have a reason"
        );
        let mut bytes = 0;
        for (call, is_done) in machine.calls.drain(..) {
            if let Some(act) = call.act() {
                assert!(place.role.acts.contains(&act), "{name} does not declare {act:?}");
            }
            match &call {
                Call::Wake(at) => assert!(*at >= self.now, "{name} wants to be woken in the past"),
                Call::Send(to, message) => {
                    assert!(place.peers.iter().any(|(peer, _)| peer == to), "{name} sends to {to}, no peer");
                    bytes += message.body.len();
                    if is_done && self.post.len() < 60 {
                        self.post.push((*to, message.clone()));
                    }
                }
                Call::Probe(from, to, payload) => {
                    assert!(place.peers.iter().any(|(peer, _)| peer == to), "{name} probes {to}, no peer");
                    bytes += payload.len();
                    if is_done && self.probes.len() < 60 {
                        self.probes.push((*from, *to, payload.clone()));
                    }
                }
                Call::Window(flow, _) | Call::Rate(flow, ..) | Call::Rtt(flow) => {
                    assert!(machine.known.contains(flow), "{name}: acts on {flow}, which nobody reported");
                }
                Call::Class(port, class, rate, ceil) => {
                    assert!(place.ports.contains(port), "{name} sets a class of another's {port}");
                    assert!(class.is_none_or(|class| class < classes), "{name} sets class {class:?}");
                    assert!(Rate::ZERO < *rate && rate <= ceil, "{name}: class of {rate} up to {ceil}");
                }
                Call::Tune(_) => {}
            }
            self.outcome.calls.push((number, self.now, call));
        }
        assert!(bytes <= MOST_BYTES, "{name}: sends {bytes} bytes at once");
    }
}

/// Places that no scenario makes: peers and ports are missing, somebody's else or of nobody.
fn by_hand(
    scheme: &'static SchemeDef,
    params: &Params,
    network: &Network,
    stream: &mut Stream,
) -> Vec<Place> {
    let mut places = Vec::new();
    for role in scheme.roles.iter().chain(scheme.roles) {
        let peer = |stream: &mut Stream| -> (NodeId, &'static RoleDef) {
            (network.node(stream), &scheme.roles[stream.below(scheme.roles.len() as u64) as usize])
        };
        let peers = (0..stream.below(5)).map(|_| peer(stream)).collect();
        let ports = (0..stream.below(4)).map(|_| PortId(stream.below(20) as u32)).collect();
        let rank = (stream.below(3) as usize, stream.below(3) as usize);
        let node = pick(stream, &network.nodes);
        places.push(Place { peers, ports, rank, ..Place::new(role, node, params.clone()) });
    }
    places
}

fn noise(stream: &mut Stream, most: u64) -> Vec<u8> {
    (0..stream.below(most + 1)).map(|_| stream.next_u64() as u8).collect()
}

/// Changes some bytes, cuts or lengthens.
fn bend(stream: &mut Stream, bytes: &mut Vec<u8>) {
    for _ in 0..1 + stream.below(4) {
        let at = stream.below(bytes.len() as u64 + 1) as usize;
        match stream.below(5) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, stream.next_u64() as u8),
            2 => bytes.extend(noise(stream, 20)),
            3 => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte = 0xff),
            _ => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << stream.below(8)),
        }
    }
}
