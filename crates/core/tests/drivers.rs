//! The simulator, the lab and daemons each drive the roles of a scheme in their own way. In the same network, the roles do
//! the same.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

use bandmaster_core::control::{
    FlowEnd, FlowKey, FlowStart, FlowStats, Message, Observation, Passed, PortFlows, PortStats, SegmentCounts,
};
use bandmaster_core::id::{FlowId, NodeId, PortId};
use bandmaster_core::params::{NamedText, Params, Value};
use bandmaster_core::port::flow_counter::Reader;
use bandmaster_core::port::window::{Segment, WindowProgram};
use bandmaster_core::rng::Stream;
use bandmaster_core::runtime::envelope::{Key, Line};
use bandmaster_core::runtime::inventory::{Inventory, Port};
use bandmaster_core::runtime::post::{ControlPlane, Post};
use bandmaster_core::runtime::{Host, Refusal, Runner};
use bandmaster_core::scheme::er2bc::probe::{self, Auth, Endpoint};
use bandmaster_core::scheme::{
    Act, Program, REGISTRY, Role, SchemeConfig, SchemeDef, bas, er2bc, opentcp, qcbf,
};
use bandmaster_core::time::{Span, Time};
use bandmaster_core::tuning::Tuning;
use bandmaster_core::units::{Bytes, Rate};

const END: Time = Time::from_nanos(12_000_000_000);
/// One-way delay of messages.
const DELAY: Span = Span::from_micros(1_300);
/// More of it, times the sender's number: messages of two senders never come at once.
const SKEW: Span = Span::from_micros(10);
/// How long a probe waits before it leaves, and how long it takes then.
const WAIT: Span = Span::from_micros(200);
const WAY: Span = Span::from_millis(7);

#[test]
fn every_driver_makes_the_roles_do_the_same() {
    let text = |text: &str| Value::Text(text.to_owned());
    let cases: [(&SchemeDef, Vec<(&'static str, Value)>); 5] = [
        (&bas::DEF, vec![]),
        (&bas::DEF, vec![("allocator", text("max-min"))]),
        (&er2bc::DEF, vec![]),
        (
            &er2bc::DEF,
            vec![
                ("estimator", text("delay")),
                ("safe-rate", Value::Rate(Rate::from_bits_per_sec(300_000))),
                ("hold", Value::Span(Span::from_secs(1))),
            ],
        ),
        (&opentcp::DEF, vec![]),
    ];
    let mut done: BTreeMap<&str, BTreeSet<Act>> = BTreeMap::new();
    for (scheme, own) in cases {
        let script = Script::new(scheme, &own);
        let simulated = simulator(&script);
        let places: BTreeSet<NodeId> = script.roles().iter().map(|role| role.place.node).collect();
        assert!(simulated.keys().eq(&places), "all roles of {} {own:?} act", scheme.name);
        assert_eq!(simulated, lab(&script), "the lab, {} {own:?}", scheme.name);
        assert_eq!(simulated, daemons(&script), "daemons, {} {own:?}", scheme.name);
        let acts = simulated.values().flatten().map(|(_, deed)| deed.act());
        done.entry(scheme.name).or_default().extend(acts);
    }
    for scheme in REGISTRY {
        let declared: BTreeSet<Act> = scheme.acts().filter(|act| Act::ACTIONS.contains(act)).collect();
        let done = done.remove(scheme.name).unwrap_or_default();
        assert_eq!(done, declared, "{}: the script makes the roles do all that they can", scheme.name);
    }
}

/// A simulator takes the programs of all roles, a daemon those of its own place.
#[test]
fn programs_are_those_of_their_places() {
    let (buffer, rtt) = (Value::Bytes(Bytes::new(16_000)), Value::Span(Span::from_millis(1)));
    let script = Script::new(&qcbf::DEF, &[("buffer", buffer), ("rtt", rtt)]);
    let rewrites = |roles: Vec<Role>| -> BTreeMap<PortId, Vec<String>> {
        let programs = roles.into_iter().flat_map(|role| role.built.programs);
        let answers = |(port, program)| match program {
            Program::Rewrite(mut program) => (port, answers(program.as_mut())),
            Program::Watch(_) => panic!("qcbf rewrites"),
        };
        programs.map(answers).collect()
    };
    let simulated = rewrites(script.roles());
    let places = (qcbf::DEF.place)(&script.config.params, &script.inventory, &script.routes);
    let alone = |place| Role::new(&qcbf::DEF, place, &script.inventory, None);
    assert_eq!(simulated, rewrites(places.into_iter().rev().map(alone).collect()));
    let names = ["r0->h0", "r0->h1", "r1->h2", "r1->h3"];
    let ports: BTreeSet<PortId> = names.iter().filter_map(|name| script.inventory.port_named(name)).collect();
    assert!(simulated.keys().all(|port| ports.contains(port)) && simulated.len() == 3, "{simulated:?}");
    let words =
        simulated.values().flatten().map(|answer| answer.split(['(', ' ']).next().unwrap_or_default());
    let words: BTreeSet<&str> = words.collect();
    assert!(words.is_superset(&BTreeSet::from(["Window", "Hold", "released"])), "{words:?}");
}

/// What a program answers to twelve flows at once, and to their acknowledgements.
fn answers(program: &mut dyn WindowProgram) -> Vec<String> {
    let mut said = Vec::new();
    let mut now = Time::ZERO;
    for round in 0..40 {
        for flow in 0..12 {
            now += Span::from_micros(9);
            let offset = 1448 * (round * 2);
            let (mss, frame, window) = (1448, 1538, 1 << 20);
            let syn = round == 0;
            let fin = round == 39;
            let segment = Segment {
                flow: FlowId(flow),
                syn,
                fin,
                rst: false,
                offset,
                window,
                mss,
                frame,
                scale: 128,
                paths: 1,
            };
            let held = u64::from(flow) * 1538;
            said.push(format!("data {:?}", program.on_data(now, &segment, held)));
            said.push(format!("{:?}", program.on_ack(now, &Segment { fin: false, ..segment }, held)));
            while let Some(released) = program.release() {
                said.push(format!("released {released:?}"));
            }
            if let Some(due) = program.timer().filter(|due| *due <= now) {
                program.on_timer(now, held);
                said.push(format!("timer {due} {:?}", program.timer()));
            }
        }
    }
    said
}

// ------------------------------------------------------------------------------------------------ the script

struct Flow {
    ends: [NodeId; 2],
    route: Vec<PortId>,
    begins: Time,
    ends_at: Time,
}

/// A small network, and everything that happens in it as a function of time.
struct Script {
    inventory: Inventory,
    routes: Vec<Vec<PortId>>,
    flows: Vec<Flow>,
    config: SchemeConfig,
}

impl Script {
    fn new(scheme: &'static SchemeDef, own: &[(&'static str, Value)]) -> Self {
        let mut inventory = Inventory::default();
        let nodes = ["h0", "h1", "h2", "h3", "r0", "r1"].map(|name| inventory.join(name));
        let rate = Rate::from_bits_per_sec(10_000_000);
        for (a, b) in [(0, 4), (1, 4), (2, 5), (3, 5), (4, 5), (4, 5)] {
            for (from, to) in [(a, b), (b, a)] {
                let name = format!("{}->{}", inventory.name(nodes[from]), inventory.name(nodes[to]));
                inventory.add_port(&name, nodes[from], nodes[to], rate);
            }
        }
        let millis = |n: u64| Time::ZERO + Span::from_micros(n * 1_000 + 437);
        // Ports of the two parallel links are 8 and 9, 10 and 11.
        let flow = |from: usize, to: usize, route: [u32; 3], begins, ends_at| Flow {
            ends: [nodes[from], nodes[to]],
            route: route.map(PortId).to_vec(),
            begins: millis(begins),
            ends_at: millis(ends_at),
        };
        let flows = vec![
            flow(0, 2, [0, 8, 5], 13, 20_000),
            flow(0, 3, [0, 10, 7], 260, 4_020),
            flow(1, 2, [2, 10, 5], 1_555, 9_999),
            flow(3, 1, [6, 9, 3], 2_222, 20_000),
            flow(2, 1, [4, 11, 3], 5_050, 7_100),
        ];
        let routes = flows.iter().map(|flow| flow.route.clone()).collect();
        let mut params = Params::defaults(scheme.keys);
        let list = |all: &[&str]| Value::List(all.iter().map(|text| (*text).to_owned()).collect());
        let policy = NamedText { name: "opentcp1".to_owned(), text: None };
        let needed = [
            ("servers", list(&["h0", "h2", "h3"])),
            ("domain", list(&["r0", "r1"])),
            ("allocator-node", Value::Text("h1".to_owned())),
            ("port", Value::Text("r0->r1".to_owned())),
            ("receiver", Value::Text("r1".to_owned())),
            ("needs", list(&["200kbit", "300kbit", "600kbit"])),
            ("policies", Value::Files(vec![policy])),
            ("cycle", Value::Span(Span::from_millis(if scheme.name == "opentcp" { 1_000 } else { 250 }))),
        ];
        for (key, value) in needed.iter().chain(own) {
            if scheme.keys.iter().any(|known| known.name == *key) {
                params.set(key, value.clone());
            }
        }
        Self { inventory, routes, flows, config: SchemeConfig { scheme, params } }
    }

    fn roles(&self) -> Vec<Role> {
        Role::all(std::slice::from_ref(&self.config), &self.inventory, &self.routes)
    }

    fn open(&self, now: Time) -> impl Iterator<Item = (FlowId, &Flow)> {
        let flows = (0..).map(FlowId).zip(&self.flows);
        flows.filter(move |(_, flow)| flow.begins <= now && now < flow.ends_at)
    }

    fn flow_stats(&self, now: Time, flow: FlowId, end: FlowEnd) -> FlowStats {
        let age = now.since(self.flows[flow.index()].begins);
        let rate = Rate::from_bits_per_sec(900_000 * u64::from(flow.0 + 1));
        let rtt = Span::from_micros(20_000 + age.as_nanos() / 1_000_000 % 9_000);
        let rtt = Some(rtt).filter(|_| !age.is_zero());
        FlowStats {
            flow,
            end,
            delivered: rate.bytes_in(age),
            srtt: rtt,
            min_rtt: rtt.map(|_| Span::from_millis(20)),
            last_rtt: rtt,
            mss: Bytes::new(1448),
            frame: Bytes::new(1538),
        }
    }

    /// Data that have passed one end of the path of probes: after five seconds some packets are lost.
    fn passed(&self, now: Time, behind: bool) -> Passed {
        let packets = now.as_nanos() / 9_000_000;
        let late = now.since(Time::ZERO + Span::from_secs(5)).as_nanos() / 250_000_000;
        let packets = packets.saturating_sub(if behind { late } else { 0 });
        Passed { packets, bytes: packets * 1_500 }
    }

    /// For a while no probe comes through.
    fn is_lost(&self, now: Time) -> bool {
        (7_000..9_500).contains(&(now.as_nanos() / 1_000_000))
    }
}

// ------------------------------------------------------------------------------------------------ the host

/// What a role did.
#[derive(Clone, PartialEq, Debug)]
enum Deed {
    Send(NodeId, Vec<u8>),
    Probe(NodeId, Vec<u8>),
    Window(FlowId, Bytes),
    Rate(FlowId, Rate, Bytes),
    Rtt(FlowId),
    Class(PortId, Option<usize>, Rate, Rate),
    Tune(Tuning),
}

impl Deed {
    fn act(&self) -> Act {
        match self {
            Self::Send(..) => Act::Send,
            Self::Probe(..) => Act::Probe,
            Self::Window(..) => Act::SetWindow,
            Self::Rate(..) => Act::SetRate,
            Self::Rtt(_) => Act::MeasureRtt,
            Self::Class(..) => Act::SetClass,
            Self::Tune(_) => Act::Tune,
        }
    }
}

/// By node, in order.
type Record = BTreeMap<NodeId, Vec<(Time, Deed)>>;

/// Records, and keeps what its driver has to see to.
struct Recorder<'a> {
    script: &'a Script,
    now: Time,
    record: Record,
    wakes: Vec<(usize, Time)>,
    messages: Vec<(NodeId, Message)>,
    probes: Vec<(NodeId, NodeId, Vec<u8>)>,
}

impl<'a> Recorder<'a> {
    fn new(script: &'a Script) -> Self {
        let (record, wakes, messages, probes) = Default::default();
        Self { script, now: Time::ZERO, record, wakes, messages, probes }
    }

    fn note(&mut self, node: NodeId, deed: Deed) -> Result<(), Refusal> {
        self.record.entry(node).or_default().push((self.now, deed));
        Ok(())
    }
}

impl Host for Recorder<'_> {
    const ACTS: &'static [Act] = &Act::ACTIONS;

    fn wake(&mut self, role: usize, at: Time) {
        self.wakes.push((role, at));
    }

    fn port_stats(&mut self, now: Time, node: NodeId, _reader: &mut Reader) -> Vec<PortStats> {
        let stats = |(port, of): (PortId, &Port)| {
            let flows = self.script.open(now).filter(|(_, flow)| flow.route.contains(&port)).count() as u32;
            // Busier and less busy every few seconds.
            let sent = of.capacity.bytes_in(now.since(Time::ZERO)).get() / 2;
            let burst = now.as_nanos() / 1_000_000 % 4_000 * 700;
            let offered = (sent + burst) / 1_000;
            PortStats {
                port,
                capacity: of.capacity,
                flows: Some(PortFlows { seen: flows, open: flows }),
                backlog: Some(Bytes::new(now.as_nanos() / 1_000 * u64::from(port.0 + 1) % 20_000)),
                sent: Bytes::new(sent + burst),
                offered,
                dropped: offered / 300,
            }
        };
        self.script.inventory.ports().filter(|(_, port)| port.from == node).map(stats).collect()
    }

    fn flow_stats(&mut self, now: Time, node: NodeId) -> Vec<FlowStats> {
        let ends = |(id, flow): (FlowId, &Flow)| {
            let end = if flow.ends[0] == node { FlowEnd::Sender } else { FlowEnd::Receiver };
            flow.ends.contains(&node).then(|| self.script.flow_stats(now, id, end))
        };
        self.script.open(now).filter_map(ends).collect()
    }

    fn segments(&mut self, node: NodeId) -> SegmentCounts {
        let sent = self.now.as_nanos() / 1_000_000 * u64::from(node.0 + 1);
        SegmentCounts { sent, resent: sent / 70 }
    }

    fn send(&mut self, now: Time, to: NodeId, message: Message) -> Result<(), Refusal> {
        assert_eq!((now, message.scheme), (self.now, self.script.config.scheme.code));
        self.messages.push((to, message.clone()));
        self.note(message.from, Deed::Send(to, message.body))
    }

    fn probe(&mut self, _now: Time, from: NodeId, to: NodeId, payload: Vec<u8>) -> Result<(), Refusal> {
        self.probes.push((from, to, payload.clone()));
        self.note(from, Deed::Probe(to, payload))
    }

    fn set_window(&mut self, node: NodeId, flow: FlowId, window: Bytes) -> Result<(), Refusal> {
        self.note(node, Deed::Window(flow, window))
    }

    fn set_rate(&mut self, node: NodeId, flow: FlowId, rate: Rate, window: Bytes) -> Result<(), Refusal> {
        self.note(node, Deed::Rate(flow, rate, window))
    }

    fn measure_rtt(&mut self, node: NodeId, flow: FlowId) -> Result<(), Refusal> {
        self.note(node, Deed::Rtt(flow))
    }

    fn set_class(
        &mut self,
        port: PortId,
        class: Option<usize>,
        rate: Rate,
        ceil: Rate,
    ) -> Result<(), Refusal> {
        let node = self.script.inventory.port(port).ok_or(Refusal::Unknown)?.from;
        self.note(node, Deed::Class(port, class, rate, ceil))
    }

    fn tune(&mut self, node: NodeId, tuning: Tuning) -> Result<(), Refusal> {
        self.note(node, Deed::Tune(tuning))
    }
}

// ------------------------------------------------------------------------------------------------ the drivers

enum Event {
    Wake(usize, Time),
    Message(NodeId, Message),
    /// A message that the post keeps.
    Deliver(u32),
    /// From one node to another, sealed.
    Datagram(NodeId, NodeId, Vec<u8>),
    ProbeLeft(NodeId, NodeId, Vec<u8>),
    ProbeCame(NodeId, NodeId, Vec<u8>),
    Begins(usize),
    Ends(usize),
}

/// Events by time, then by insertion.
#[derive(Default)]
struct Queue {
    events: BTreeMap<(Time, usize), Event>,
    inserted: usize,
}

impl Queue {
    fn new(script: &Script) -> Self {
        let mut queue = Self::default();
        for (number, flow) in script.flows.iter().enumerate() {
            queue.push(flow.begins, Event::Begins(number));
            queue.push(flow.ends_at, Event::Ends(number));
        }
        queue
    }

    fn push(&mut self, at: Time, event: Event) {
        self.inserted += 1;
        self.events.insert((at, self.inserted), event);
    }

    fn next(&self) -> Option<Time> {
        self.events.first_key_value().map(|((at, _), _)| *at)
    }

    fn pop(&mut self) -> Option<(Time, Event)> {
        self.events.pop_first().map(|((at, _), event)| (at, event)).filter(|(at, _)| *at <= END)
    }
}

fn arrives(now: Time, from: NodeId, to: NodeId) -> Time {
    if from == to { now } else { now + DELAY + SKEW * u64::from(from.0) }
}

/// Reports to the roles at the ends of a flow what happens to it, as hosts do that learn it from their TCP.
fn tell_of_flow(runner: &mut Runner, host: &mut Recorder<'_>, event: &Event, only: Option<NodeId>) {
    let script = host.script;
    let (Event::Begins(number) | Event::Ends(number)) = *event else { return };
    let (id, flow) = (FlowId(number as u32), &script.flows[number]);
    let [from, to] = flow.ends;
    for (node, end) in [(to, FlowEnd::Receiver), (from, FlowEnd::Sender)] {
        if only.is_some_and(|only| only != node) {
            continue;
        }
        if let Event::Ends(_) = event {
            runner.observe(host, host.now, node, &Observation::FlowEnded(id));
            continue;
        }
        let address = |node: NodeId| (IpAddr::from(Ipv4Addr::from_bits(node.0)), id.0 as u16);
        let key = FlowKey { from: address(from), to: address(to), protocol: 6 };
        let stats = script.flow_stats(host.now, id, end);
        let start = FlowStart { stats, key, route: &flow.route };
        runner.observe(host, host.now, node, &Observation::FlowStarted(start));
    }
}

fn tell_of_probe(runner: &mut Runner, host: &mut Recorder<'_>, queue: &mut Queue, event: Event) {
    let (now, script) = (host.now, host.script);
    match event {
        Event::ProbeLeft(from, to, payload) => {
            let passed = script.passed(now, false);
            runner.observe(host, now, from, &Observation::ProbeLeft { payload: &payload, passed });
            if !script.is_lost(now) {
                queue.push(now + WAY, Event::ProbeCame(from, to, payload));
            }
        }
        Event::ProbeCame(from, to, payload) => {
            let passed = script.passed(now, true);
            runner.observe(host, now, to, &Observation::ProbeCame { from, payload: &payload, passed });
        }
        _ => {}
    }
}

/// One runner for all; a wake-up is due at the time of its event.
fn simulator(script: &Script) -> Record {
    let mut host = Recorder::new(script);
    let mut runner = Runner::new::<Recorder<'_>>(script.roles(), script.inventory.clone()).expect("acts");
    let mut queue = Queue::new(script);
    runner.begin(&mut host, Time::ZERO);
    loop {
        let now = host.now;
        host.wakes.drain(..).for_each(|(role, at)| queue.push(at, Event::Wake(role, at)));
        for (to, message) in host.messages.drain(..) {
            queue.push(arrives(now, message.from, to), Event::Message(to, message));
        }
        for (from, to, payload) in host.probes.drain(..) {
            queue.push(now + WAIT, Event::ProbeLeft(from, to, payload));
        }
        let Some((now, event)) = queue.pop() else { return host.record };
        host.now = now;
        match event {
            Event::Wake(role, _) => runner.wake(&mut host, role, now, now),
            Event::Message(to, message) => {
                runner.observe(&mut host, now, to, &Observation::Message(&message));
            }
            Event::Begins(_) | Event::Ends(_) => tell_of_flow(&mut runner, &mut host, &event, None),
            other => tell_of_probe(&mut runner, &mut host, &mut queue, other),
        }
    }
}

/// One runner for all; what is due at the start is done before anything else, and messages go by post.
fn lab(script: &Script) -> Record {
    let mut host = Recorder::new(script);
    let mut runner = Runner::new::<Recorder<'_>>(script.roles(), script.inventory.clone()).expect("acts");
    let mut queue = Queue::new(script);
    let mut post = Post::new(ControlPlane { delay: DELAY, loss: 0.0 }, Stream::new(1, 0, "control-plane"));
    runner.begin(&mut host, Time::ZERO);
    let roles = runner.roles().len();
    for role in 0..roles {
        runner.wake(&mut host, role, Time::ZERO, Time::ZERO);
    }
    loop {
        let now = host.now;
        host.wakes.drain(..).for_each(|(role, at)| queue.push(at, Event::Wake(role, at)));
        for (to, message) in host.messages.drain(..) {
            let skew = if message.from == to { Span::ZERO } else { SKEW * u64::from(message.from.0) };
            let (delay, number) = post.send(to, message).expect("nothing is lost");
            queue.push(now + delay + skew, Event::Deliver(number));
        }
        for (from, to, payload) in host.probes.drain(..) {
            queue.push(now + WAIT, Event::ProbeLeft(from, to, payload));
        }
        let Some((now, event)) = queue.pop() else { return host.record };
        host.now = now;
        match event {
            Event::Wake(role, due) => runner.wake(&mut host, role, due, now),
            Event::Deliver(number) => {
                let (to, message) = post.receive(number).expect("once");
                runner.observe(&mut host, now, to, &Observation::Message(&message));
            }
            Event::Begins(_) | Event::Ends(_) => tell_of_flow(&mut runner, &mut host, &event, None),
            other => tell_of_probe(&mut runner, &mut host, &mut queue, other),
        }
    }
}

/// One role, as a process.
struct Daemon {
    node: NodeId,
    runner: Runner,
    timer: Option<Time>,
    /// To each peer.
    lines: BTreeMap<NodeId, Line>,
    /// Of the direction in which it asks, and of the one in which it answers.
    asks: Endpoint,
    answers: Endpoint,
}

impl Daemon {
    fn new(role: Role, inventory: &Inventory) -> Self {
        let (node, key) = (role.place.node, Key::new(&[7; 32]).expect("long enough"));
        let line = |peer| (peer, Line::new(key.clone(), node, peer, 1_000 + node.0));
        let lines = (0..inventory.nodes() as u32).map(NodeId).map(line).collect();
        let auth = Auth::Key(key.clone());
        let (asks, answers) = (Endpoint::new(auth.clone(), 77), Endpoint::new(auth, 0));
        let runner = Runner::new::<Recorder<'_>>(vec![role], inventory.clone()).expect("acts");
        Self { node, runner, timer: None, lines, asks, answers }
    }

    /// Sees to what its role has just done.
    fn settle(&mut self, host: &mut Recorder<'_>, queue: &mut Queue) {
        let now = host.now;
        for (_, at) in host.wakes.drain(..) {
            self.timer = Some(at);
        }
        for (to, message) in host.messages.drain(..) {
            if to == self.node {
                queue.push(now, Event::Message(to, message));
            } else {
                let datagram = self.lines.get_mut(&to).expect("a line").seal(&message);
                queue.push(arrives(now, self.node, to), Event::Datagram(self.node, to, datagram));
            }
        }
        for (from, to, payload) in host.probes.drain(..) {
            let is_question = probe::Message::starts_question(&payload);
            let end = if is_question { &mut self.asks } else { &mut self.answers };
            let datagram = end.seal(payload.clone());
            assert_eq!(datagram.len(), payload.len() + 16);
            if is_question {
                queue.push(now + WAIT, Event::ProbeLeft(from, to, payload));
            }
            if !host.script.is_lost(now + WAIT) {
                queue.push(now + WAIT + WAY, Event::ProbeCame(from, to, datagram));
            }
        }
    }

    fn take(&mut self, host: &mut Recorder<'_>, event: &Event) {
        let (now, node) = (host.now, self.node);
        match event {
            Event::Message(to, message) if *to == node => {
                self.runner.observe(host, now, node, &Observation::Message(message));
            }
            Event::Datagram(from, to, datagram) if *to == node => {
                let message = self.lines.get_mut(from).expect("a line").open(datagram).expect("the peer's");
                self.runner.observe(host, now, node, &Observation::Message(&message));
            }
            Event::ProbeLeft(from, _, payload) if *from == node => {
                let passed = host.script.passed(now, false);
                self.runner.observe(host, now, node, &Observation::ProbeLeft { payload, passed });
            }
            Event::ProbeCame(from, to, datagram) if *to == node => {
                let is_question = probe::Message::starts_question(datagram);
                let end = if is_question { &mut self.answers } else { &mut self.asks };
                let (_, _, payload) = end.open(datagram).expect("the peer's");
                let passed = host.script.passed(now, true);
                let came = Observation::ProbeCame { from: *from, payload, passed };
                self.runner.observe(host, now, node, &came);
            }
            _ => tell_of_flow(&mut self.runner, host, event, Some(node)),
        }
    }
}

/// A process for each role; between nodes all is sealed. At one instant the last begins.
fn daemons(script: &Script) -> Record {
    let mut host = Recorder::new(script);
    let mut queue = Queue::new(script);
    let places = (script.config.scheme.place)(&script.config.params, &script.inventory, &script.routes);
    let role = |place| Role::new(script.config.scheme, place, &script.inventory, None);
    let mut all: Vec<Daemon> =
        places.into_iter().map(|place| Daemon::new(role(place), &script.inventory)).collect();
    for daemon in &mut all {
        daemon.runner.begin(&mut host, Time::ZERO);
        daemon.settle(&mut host, &mut queue);
    }
    loop {
        let timer = all.iter().filter_map(|daemon| daemon.timer).min();
        if let Some(due) = timer.filter(|due| *due <= END && queue.next().is_none_or(|next| *due <= next)) {
            host.now = due;
            for daemon in all.iter_mut().rev() {
                if daemon.timer.take_if(|at| *at == due).is_some() {
                    daemon.runner.wake(&mut host, 0, due, due);
                    daemon.settle(&mut host, &mut queue);
                }
            }
            continue;
        }
        let Some((now, event)) = queue.pop() else { return host.record };
        host.now = now;
        for daemon in &mut all {
            daemon.take(&mut host, &event);
            daemon.settle(&mut host, &mut queue);
        }
    }
}
