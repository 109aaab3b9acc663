//! An Oracle, a switch and agents under lost, late, repeated and forged messages, a dead Oracle, restarts of agents,
//! hosts that lose packets, and policies that contradict each other.

use proptest::prelude::*;

use super::policy::{Policy, Rule};
use super::statistic::{PairState, Statistic, TopologyState};
use super::wire::{
    Body, Columns, HostReport, PortLink, PortReport, SwitchReport, TrafficReport, TrafficRow, read,
};
use super::{DEF, NamedText, Sites, oracle, places, policies};
use crate::control::{
    Controller, FlowEnd, FlowStats, Gauges, Message, Observation, Outbox, PortFlows, PortStats,
    SegmentCounts, body,
};
use crate::id::{FlowId, NodeId, PortId};
use crate::params::{Params, Value};
use crate::port::flow_counter::Reader;
use crate::rng::Stream;
use crate::runtime::inventory::{Change, Inventory};
use crate::runtime::{Host, Refusal, Runner};
use crate::scheme::{Act, Role};
use crate::time::{Span, Time};
use crate::tuning::Tuning;
use crate::units::{Bytes, Rate};

const AGENTS: u32 = 6;
const SWITCH: NodeId = NodeId(AGENTS);
/// Where the Oracle runs when it is not at the first agent.
const CONTROLLER: NodeId = NodeId(AGENTS + 1);
const T: Span = Span::from_secs(60);
const LOOK: Span = Span::from_secs(5);
/// Longest lease, in cycles.
const LEASE_CYCLES: u64 = 3;

/// Receiver of a forged message: the Oracle, wherever it is.
const ORACLE_TOO: u8 = u8::MAX;

/// Contradicts `opentcp2` about the initial window, adds pacing, and is for half the hosts.
const OTHER: &str = r#"
version = 1
name = "other"
goal = "contradiction"
cycle = "60s"
lease = "120s"
statistics = ["flows.live", "oracle.coverage"]
half = "odd"
otherwise = "release"

[[rules]]
name = "few"
when = "mean(flows.live) < 3 && oracle.coverage > 0.5"
set = { initial-window = 10, pacing = true }

[[rules]]
name = "many"
when = "mean(flows.live) >= 3"
set = { initial-window = 4, window-cap = 64 }
"#;

#[derive(Clone, Debug)]
enum Step {
    /// So many seconds pass, with a utilization in per cent and so many flows on each host.
    Pass { seconds: u64, utilization: u64, live: u32 },
    /// A host sends segments, some of them again.
    Send { host: u8, sent: u16, again: u16 },
    /// The Oracle hears and says nothing for five cycles, nor does its node hear anything.
    DeadOracle,
    /// The Oracle's node restarts.
    RestartOracle,
    /// The switch restarts: its first report after that says nothing.
    RestartSwitch,
    /// An agent restarts; its settings stay in force on its host until it runs.
    RestartAgent(u8),
    /// A message that is on its way comes a second time.
    Repeat(u8),
    /// A node of the inventory, or none, sends bytes to an agent or the Oracle.
    Forge { from: u32, to: u8, body: Vec<u8> },
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (1u64..130, 0u64..100, 0u32..6)
            .prop_map(|(seconds, utilization, live)| Step::Pass { seconds, utilization, live }),
        3 => (any::<u8>(), 0u16..5000, 0u16..20).prop_map(|(host, sent, again)| Step::Send { host, sent, again }),
        1 => Just(Step::DeadOracle),
        1 => Just(Step::RestartOracle),
        1 => Just(Step::RestartSwitch),
        2 => any::<u8>().prop_map(Step::RestartAgent),
        1 => any::<u8>().prop_map(Step::Repeat),
        1 => (0..AGENTS + 3, any::<u8>(), proptest::collection::vec(any::<u8>(), 0..60))
            .prop_map(|(from, to, body)| Step::Forge { from, to, body }),
        1 => (0..AGENTS + 3, any_report())
            .prop_map(|(from, report)| Step::Forge { from, to: ORACLE_TOO, body: body(&report) }),
    ]
}

/// A well-formed report of any sender.
fn any_report() -> impl Strategy<Value = Body> {
    let port = (0u32..8, 0u32..20_000).prop_map(|(place, utilization)| PortReport {
        place,
        utilization,
        drop_rate: 0,
        backlog: 0,
    });
    let switch =
        (0u32..8, 0u32..8, proptest::collection::vec(port, 0..2)).prop_map(|(first, covered, ports)| {
            Body::Switch(SwitchReport { sequence: 0, first, covered, ports })
        });
    let host = (0u32..9, 0u32..20_000).prop_map(|(live, drop_rate)| {
        Body::Host(HostReport { sequence: 0, live, started: 0, drop_rate, rtt: 0 })
    });
    let also = (1u32..8, any::<bool>(), any::<u32>()).prop_map(|(covered, tells, to)| {
        let report = SwitchReport { sequence: 0, first: 0, covered, ports: Vec::new() };
        let links = if tells { vec![PortLink { to, capacity: to }; covered as usize] } else { Vec::new() };
        Body::SwitchAlso(report, Columns { flows: vec![7; covered as usize], links })
    });
    let traffic = (any::<u32>(), any::<u32>()).prop_map(|(from, rate)| {
        Body::Traffic(TrafficReport { sequence: 0, rows: vec![TrafficRow { from, rate }] })
    });
    prop_oneof![2 => switch, 1 => host, 1 => also, 1 => traffic]
}

/// The nodes, and the messages between them.
struct Fabric {
    now: Time,
    stream: Stream,
    /// Share of messages that are lost; when it is nothing, none is late either.
    loss: f64,
    /// Messages on their way: when they come, to whom, what.
    messages: Vec<(Time, NodeId, Message)>,
    /// When each role wants to be woken.
    wakes: Vec<Option<Time>>,
    utilization: u64,
    live: u32,
    sent: Bytes,
    counts: [SegmentCounts; AGENTS as usize],
    /// What is in force on each host; a process that ends leaves it.
    hosts: [Tuning; AGENTS as usize],
    /// Of the Oracle.
    gauges: Gauges,
}

impl Host for Fabric {
    const ACTS: &'static [Act] = &[Act::Tune, Act::Send];

    fn wake(&mut self, role: usize, at: Time) {
        self.wakes[role] = Some(at);
    }

    fn port_stats(&mut self, now: Time, node: NodeId, _reader: &mut Reader) -> Vec<PortStats> {
        assert_eq!(node, SWITCH);
        let port = |n| PortStats {
            port: PortId(n),
            capacity: Rate::from_bits_per_sec(1_000_000_000),
            flows: None,
            backlog: Some(Bytes::ZERO),
            sent: self.sent,
            offered: now.as_secs_f64() as u64,
            dropped: 0,
        };
        (0..AGENTS).map(port).collect()
    }

    fn flow_stats(&mut self, _now: Time, _node: NodeId) -> Vec<FlowStats> {
        let flow = |n| FlowStats {
            flow: FlowId(n),
            end: FlowEnd::Sender,
            delivered: Bytes::ZERO,
            srtt: Some(Span::from_millis(1)),
            min_rtt: None,
            last_rtt: None,
            mss: Bytes::new(1448),
            frame: Bytes::new(1514),
        };
        (0..self.live).map(flow).collect()
    }

    fn segments(&mut self, node: NodeId) -> SegmentCounts {
        self.counts[node.index()]
    }

    fn show(&mut self, role: usize, _now: Time, gauges: &Gauges) {
        if role == 0 {
            self.gauges = gauges.clone();
        }
    }

    fn send(&mut self, now: Time, to: NodeId, message: Message) -> Result<(), Refusal> {
        if !self.stream.chance(self.loss) {
            // Now and then a message takes longer than a cycle, and others overtake it.
            let late = if self.loss > 0.0 && self.stream.chance(0.05) { T * 2 } else { Span::from_millis(1) };
            let delay = self.stream.span_between(Span::ZERO, late);
            self.messages.push((now + delay, to, message));
        }
        Ok(())
    }

    fn tune(&mut self, node: NodeId, tuning: Tuning) -> Result<(), Refusal> {
        assert!(node.0 < AGENTS, "only an agent tunes");
        self.hosts[node.index()] = tuning;
        Ok(())
    }
}

struct Network {
    policies: Vec<Policy>,
    inventory: Inventory,
    oracle: NodeId,
    oracle_dead: bool,
    /// The Oracle, the switch, then the agents.
    runner: Runner,
    fabric: Fabric,
}

impl Network {
    fn new(names: &[&str], seed: u64, loss: f64) -> Self {
        Self::with_oracle_at(NodeId(0), names, seed, loss)
    }

    fn with_oracle_at(oracle: NodeId, names: &[&str], seed: u64, loss: f64) -> Self {
        let text = |name: &&str| match *name {
            "other" => NamedText { name: "other.toml".to_owned(), text: Some(OTHER.to_owned()) },
            shipped => NamedText { name: shipped.to_owned(), text: None },
        };
        let files: Vec<NamedText> = names.iter().map(text).collect();
        let policies = policies(&files).unwrap_or_else(|e| panic!("{e}"));
        let mut inventory = Inventory::default();
        (0..AGENTS).for_each(|n| assert_eq!(inventory.join(&format!("host.{n}")), NodeId(n)));
        assert_eq!([inventory.join("switch"), inventory.join("controller")], [SWITCH, CONTROLLER]);
        for n in 0..AGENTS {
            let capacity = Rate::from_bits_per_sec(1_000_000_000);
            inventory.add_port(&format!("switch->host.{n}"), SWITCH, NodeId(n), capacity);
        }
        let mut params = Params::defaults(DEF.keys);
        params.set("policies", Value::Files(files));
        params.set("cycle", Value::Span(T));
        params.set("look", Value::Span(LOOK));
        let sites = Sites { oracle, agents: (0..AGENTS).map(NodeId).collect(), switches: vec![SWITCH] };
        let places = places(&params, &policies, &sites).into_iter();
        let roles: Vec<Role> = places.map(|place| Role::new(&DEF, place, &inventory, None)).collect();
        let mut fabric = Fabric {
            now: Time::ZERO,
            stream: Stream::new(seed, 0, "messages"),
            loss,
            messages: Vec::new(),
            wakes: vec![None; roles.len()],
            utilization: 10,
            live: 1,
            sent: Bytes::ZERO,
            counts: Default::default(),
            hosts: Default::default(),
            gauges: Gauges::default(),
        };
        let mut runner = Runner::new::<Fabric>(roles, inventory.clone()).unwrap();
        runner.begin(&mut fabric, Time::ZERO);
        Self { policies, inventory, oracle, oracle_dead: false, runner, fabric }
    }

    fn restart(&mut self, node: NodeId) {
        let now = self.fabric.now;
        self.runner.change(&mut self.fabric, now, node, Change::Restart);
    }

    /// The time goes on to `end`, with all that happens until then.
    fn pass(&mut self, end: Time) {
        loop {
            let now = self.fabric.now;
            let alive = |(role, _): &(usize, &Option<Time>)| *role > 0 || !self.oracle_dead;
            let wake = |(role, at): (usize, &Option<Time>)| (at.unwrap_or(Time::MAX).max(now), role);
            let (wake_at, role) = self.fabric.wakes.iter().enumerate().filter(alive).map(wake).min().unwrap();
            let next = self.fabric.messages.iter().enumerate().min_by_key(|(_, (at, ..))| *at);
            let (message_at, message) = next.map_or((Time::MAX, 0), |(place, (at, ..))| (*at, place));
            let at = wake_at.min(message_at);
            if at > end {
                break;
            }
            self.advance(at);
            if message_at <= wake_at {
                let (_, to, message) = self.fabric.messages.remove(message);
                if to != self.oracle || !self.oracle_dead {
                    self.runner.observe(&mut self.fabric, at, to, &Observation::Message(&message));
                }
            } else if let Some(due) = self.fabric.wakes[role].take() {
                self.runner.wake(&mut self.fabric, role, due, at);
            }
            self.check();
        }
        self.advance(end);
    }

    fn advance(&mut self, to: Time) {
        let Fabric { now, utilization, sent, .. } = &mut self.fabric;
        let bits = to.since(*now).as_secs_f64() * 1e9 * *utilization as f64 / 100.0;
        *sent = Bytes::new(sent.get() + (bits / 8.0) as u64);
        *now = to;
    }

    fn apply(&mut self, step: &Step) {
        match step {
            Step::Pass { seconds, utilization, live } => {
                (self.fabric.utilization, self.fabric.live) = (*utilization, *live);
                self.pass(self.fabric.now + Span::from_secs(*seconds));
            }
            Step::Send { host, sent, again } => {
                let counts = &mut self.fabric.counts[usize::from(*host) % AGENTS as usize];
                counts.sent += u64::from(*sent);
                counts.resent += u64::from(*again.min(sent));
            }
            Step::DeadOracle => {
                self.oracle_dead = true;
                // What it sent before may still come.
                self.pass(self.fabric.now + T * 5 + LOOK);
                self.assert_all_own("the Oracle is dead for five cycles");
                self.oracle_dead = false;
            }
            Step::RestartOracle => self.restart(self.oracle),
            Step::RestartSwitch => self.restart(SWITCH),
            Step::RestartAgent(host) => self.restart(NodeId(u32::from(*host) % AGENTS)),
            Step::Repeat(at) => {
                let messages = &mut self.fabric.messages;
                if let Some(message) = messages.get(usize::from(*at) % messages.len().max(1)) {
                    messages.push(message.clone());
                }
            }
            Step::Forge { from, to, body } => {
                let to = if *to == ORACLE_TOO { self.oracle } else { NodeId(u32::from(*to) % AGENTS) };
                let forged = Message { from: NodeId(*from), scheme: DEF.code, body: body.clone() };
                self.fabric.messages.push((self.fabric.now, to, forged));
            }
        }
    }

    fn name(&self, host: usize) -> &str {
        self.inventory.name(NodeId(host as u32))
    }

    /// All that policies can say to the host at `place`.
    fn declared(&self, place: usize) -> Vec<Tuning> {
        let of: Vec<usize> = (0..self.policies.len())
            .filter(|at| self.policies[*at].is_for(self.name(place), place))
            .collect();
        let mut outcomes: Vec<Vec<Option<&Rule>>> = vec![Vec::new()];
        for policy in &self.policies {
            let rules = core::iter::once(None).chain(policy.rules.iter().map(Some));
            let with =
                |before: &Vec<Option<_>>, rule| before.iter().copied().chain([rule]).collect::<Vec<_>>();
            outcomes =
                rules.flat_map(|rule| outcomes.iter().map(|o| with(o, rule)).collect::<Vec<_>>()).collect();
        }
        outcomes.iter().map(|fired| oracle::combine(&self.policies, fired, &of).tuning).collect()
    }

    fn check(&self) {
        for (place, tuning) in self.fabric.hosts.iter().enumerate() {
            let declared = self.declared(place);
            assert!(declared.contains(tuning), "host {place} has {tuning}, which nobody declares");
        }
        assert_eq!(self.runner.refusals().total(), 0, "roles do only what they may");
    }

    fn assert_all_own(&self, why: &str) {
        for (place, tuning) in self.fabric.hosts.iter().enumerate() {
            assert!(tuning.is_default(), "{why}, and host {place} still has {tuning}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// A tenth of the messages is lost, some are late. Late CUEs of a dead Oracle come within two cycles, so that all
    /// leases have ended after five.
    #[test]
    fn agents_always_end_in_a_declared_state(
        steps in proptest::collection::vec(any_step(), 0..40),
        seed in any::<u64>(),
        contradictory in any::<bool>(),
        apart in any::<bool>(),
    ) {
        let names: &[&str] = if contradictory { &["opentcp2", "other"] } else { &["opentcp2"] };
        let oracle = if apart { CONTROLLER } else { NodeId(0) };
        let mut network = Network::with_oracle_at(oracle, names, seed, 0.1);
        for step in &steps {
            network.apply(step);
            network.check();
        }
        // Whatever has been: when nothing is lost any more, the policies are in force after some cycles.
        network.fabric.loss = 0.0;
        network.apply(&Step::Pass { seconds: 60 * (2 + 3 + LEASE_CYCLES), utilization: 10, live: 1 });
        let fired: Vec<Option<&Rule>> = network.policies.iter().map(|policy| policy.rules.first()).collect();
        for (place, tuning) in network.fabric.hosts.iter().enumerate() {
            let of: Vec<usize> = (0..network.policies.len())
                .filter(|at| network.policies[*at].is_for(network.name(place), place))
                .collect();
            let wanted = oracle::combine(&network.policies, &fired, &of).tuning;
            prop_assert_eq!(*tuning, wanted, "host {}", place);
        }
    }
}

#[test]
fn reports_of_what_is_no_switch_are_of_no_account() {
    let mut network = Network::new(&["opentcp1"], 1, 0.0);
    for (from, covered) in [(AGENTS + 1, 0), (AGENTS + 1, 1), (0, 0), (u32::MAX, 0), (SWITCH.0, 0)] {
        let report = Body::Switch(SwitchReport { sequence: 0, first: 0, covered, ports: Vec::new() });
        network.apply(&Step::Forge { from, to: ORACLE_TOO, body: body(&report) });
    }
    network.apply(&Step::Pass { seconds: 100, utilization: 90, live: 1 });
    network.assert_all_own("links are busy");
}

/// Each report arrives within a cycle; the older one was delayed, or arrives a second time.
#[test]
fn a_late_report_does_not_overwrite_a_newer_one() {
    let switch = |sequence, utilization| {
        let port = PortReport { place: 0, utilization, drop_rate: 0, backlog: 0 };
        Body::Switch(SwitchReport { sequence, first: 0, covered: AGENTS, ports: vec![port] })
    };
    let host = |sequence, live| Body::Host(HostReport { sequence, live, started: 0, drop_rate: 0, rtt: 0 });
    let any = u32::MAX;
    // The numbers of reports in the order of arrival, and the number of the one that counts.
    let orders: [(&[u32], u32); 6] = [
        (&[7, 8], 8),
        (&[8, 7], 8),
        (&[9, 7, 8], 9),
        (&[9, 8, 9, 8], 9),
        (&[any, 0], 0),
        (&[0, any, any - 1], 0),
    ];
    for (order, newest) in orders {
        let network = Network::new(&["opentcp1"], 1, 0.0);
        let (inventory, policies) = (network.inventory.clone(), network.policies.clone());
        let mut params = Params::defaults(DEF.keys);
        params.set("cycle", Value::Span(T));
        let sites =
            Sites { oracle: CONTROLLER, agents: (0..AGENTS).map(NodeId).collect(), switches: vec![SWITCH] };
        let place = places(&params, &policies, &sites).remove(0);
        let collected = policies[0].statistics.clone();
        let mut oracle = oracle::Oracle::new(policies, &collected, &inventory, &place, T);
        let mut hear = |at: u64, from, said: &Body| {
            let message = Message { from, scheme: DEF.code, body: body(said) };
            oracle.on(
                Time::ZERO + Span::from_secs(at),
                &Observation::Message(&message),
                &mut Outbox::default(),
            );
            oracle.state(Time::ZERO + Span::from_secs(at))
        };
        let mark = |number: u32| if number == newest { 9000 } else { 1000 };
        for (at, number) in (100..).zip(order) {
            hear(at, SWITCH, &switch(*number, mark(*number)));
            hear(at, NodeId(1), &host(*number, mark(*number)));
        }
        let state = hear(110, CONTROLLER, &host(0, 0));
        assert_eq!((state.links[0].utilization, state.hosts[0].live), (0.9, 9000.0), "{order:?}");
        // A sender that restarted is heard once its last report is stale, two cycles later.
        let numbers_again = [(120, 9000.0), (102 + 2 * 60 + 10, 5.0)];
        for (at, live) in numbers_again {
            let state = hear(at, NodeId(1), &host(newest, 5));
            assert_eq!(state.hosts[0].live, live, "{order:?} at {at} s");
        }
    }
}

/// Six hosts at one switch. What the roles say and the Oracle makes of it, for these statistics only.
fn state_of(statistics: &[&str], live: &[(u32, u64)]) -> (oracle::Oracle, Inventory, Vec<Body>) {
    let text = format!(
        "version = 1\nname = \"asks\"\ngoal = \"all\"\ncycle = \"60s\"\nstatistics = {statistics:?}\n\
         [[rules]]\nname = \"one\"\nset = {{ pacing = true }}\n"
    );
    let files = vec![NamedText { name: "asks.toml".to_owned(), text: Some(text) }];
    let own = policies(&files).unwrap_or_else(|e| panic!("{e}"));
    let mut inventory = Inventory::default();
    for n in 0..AGENTS {
        inventory.join(&format!("host.{n}"));
    }
    inventory.join("switch");
    let capacity = Rate::from_bits_per_sec(1_000_000_000);
    for n in 0..AGENTS {
        inventory.add_port(&format!("switch->host.{n}"), SWITCH, NodeId(n), capacity);
        inventory.add_port(&format!("host.{n}->switch"), NodeId(n), SWITCH, capacity);
    }
    let mut params = Params::defaults(DEF.keys);
    params.set("policies", Value::Files(files));
    params.set("cycle", Value::Span(T));
    let sites =
        Sites { oracle: NodeId(0), agents: (0..AGENTS).map(NodeId).collect(), switches: vec![SWITCH] };
    let places = places(&params, &own, &sites);
    let collected: Vec<&Statistic> = own.iter().flat_map(|policy| policy.statistics.clone()).collect();
    let mut oracle = oracle::Oracle::new(own, &collected, &inventory, &places[0], T);
    let mut said = Vec::new();
    let at = |share: f64| Time::ZERO + T.mul_f64(share);
    for place in &places[1..] {
        let mut role = Role::new(&DEF, place.clone(), &inventory, None);
        let role = role.built.controller.as_mut().expect("a role");
        let port = |(n, to): (u32, u32)| PortStats {
            port: PortId(2 * to),
            capacity,
            flows: Some(PortFlows { seen: 0, open: 10 * n }),
            backlog: Some(Bytes::ZERO),
            sent: Bytes::ZERO,
            offered: 0,
            dropped: 0,
        };
        let ports: Vec<PortStats> = (0..).zip(0..AGENTS).map(port).collect();
        let mut out = Outbox::default();
        role.on(Time::ZERO, &Observation::Tick { ports: &ports, flows: &[] }, &mut out);
        // What comes to the second host, from these hosts.
        let of = |delivered: u64, from: u32| FlowStats {
            flow: FlowId(from),
            end: FlowEnd::Receiver,
            delivered: Bytes::new(delivered),
            srtt: None,
            min_rtt: None,
            last_rtt: None,
            mss: Bytes::new(1448),
            frame: Bytes::new(1514),
        };
        if place.node == NodeId(1) {
            for (from, bytes) in live {
                let any = (std::net::IpAddr::from([0, 0, 0, 0]), 0);
                let key = crate::control::FlowKey { from: any, to: any, protocol: 6 };
                let route = [PortId(2 * from + 1), PortId(2)];
                let start = crate::control::FlowStart { stats: of(0, *from), key, route: &route };
                role.on(at(0.2), &Observation::FlowStarted(start), &mut out);
                role.on(at(0.5), &Observation::Carried(of(*bytes, *from)), &mut out);
                role.on(at(0.5), &Observation::FlowEnded(FlowId(*from)), &mut out);
            }
        }
        let now = role.wakeup().expect("a report");
        role.on(now, &Observation::Tick { ports: &ports, flows: &[] }, &mut out);
        for action in out.drain() {
            if let crate::control::Action::Send { body, .. } = action {
                let message = Message { from: place.node, scheme: DEF.code, body };
                said.push(read(&message).expect("a message"));
                oracle.on(at(0.99), &Observation::Message(&message), &mut Outbox::default());
            }
        }
    }
    (oracle, inventory, said)
}

#[test]
fn the_traffic_matrix_is_what_came_by_host_and_by_rack() {
    // 7.5 and 3.75 MB in 0.9 and some T.
    let live = [(3, 7_500_000), (0, 3_750_000)];
    let end = Time::ZERO + T;
    let (oracle, ..) = state_of(&["traffic.hosts", "traffic.racks"], &live);
    let state = oracle.state(end);
    let pairs: Vec<_> = state.traffic_hosts.iter().map(|p| (p.from.as_str(), p.to.as_str())).collect();
    assert_eq!(pairs, [("host.0", "host.1"), ("host.3", "host.1")]);
    let [less, more] = [state.traffic_hosts[0].rate, state.traffic_hosts[1].rate];
    // The second of six agents reports at 0.9133 T: 54.8 s.
    assert!(
        (more - 7_500_000.0 * 8.0 / 54.8).abs() < 1000.0 && (more / less - 2.0).abs() < 0.01,
        "{less}, {more}"
    );
    let rack = PairState { from: "switch".to_owned(), to: "switch".to_owned(), rate: less + more };
    assert_eq!((state.traffic_racks.as_slice(), state.coverage), (&[rack.clone()][..], 1.0));
    let (by_rack, _, said) = state_of(&["traffic.racks"], &live);
    let state = by_rack.state(end);
    assert!(state.traffic_hosts.is_empty() && (state.traffic_racks[0].rate - rack.rate).abs() <= 1000.0);
    let rows = |body: &Body| if let Body::Traffic(report) = body { Some(report.rows.len()) } else { None };
    let rows: Vec<usize> = said.iter().filter_map(rows).collect();
    assert_eq!(rows, [0, 1, 0, 0, 0, 0], "one row by rack");
    assert!(!said.iter().any(|body| matches!(body, Body::Host(_))), "nobody asked for more");
}

#[test]
fn what_nobody_collects_costs_nothing() {
    let (oracle, _, said) = state_of(&["link.utilization", "flows.live"], &[(3, 1000)]);
    assert!(said.iter().all(|body| matches!(body, Body::Switch(_) | Body::Host(_))), "{said:?}");
    let state = oracle.state(Time::ZERO + T);
    assert_eq!((state.topology, state.links[0].flows, state.links[0].capacity), (None, None, None));
    let (oracle, _, said) = state_of(&["link.flows"], &[]);
    let state = oracle.state(Time::ZERO + T);
    let flows: Vec<f64> = state.links.iter().filter_map(|link| link.flows).collect();
    assert_eq!((flows, said.len()), (vec![0.0, 10.0, 20.0, 30.0, 40.0, 50.0], 1));
    let (oracle, ..) = state_of(&["topology.links"], &[]);
    let state = oracle.state(Time::ZERO + T);
    let expected = TopologyState { links: 6.0, hops: Some(2.0), oversubscription: None };
    assert_eq!((state.topology, state.links[5].capacity), (Some(expected), Some(1e9)));
}

/// Of several reports with one number each adds its rows, in any order; an older number is of no account.
#[test]
fn parts_of_a_traffic_report_come_together() {
    let (mut oracle, ..) = state_of(&["traffic.hosts"], &[]);
    let mut hear = |sequence, from, rate| {
        let rows = vec![TrafficRow { from, rate }];
        let body = body(&Body::Traffic(TrafficReport { sequence, rows }));
        let message = Message { from: NodeId(1), scheme: DEF.code, body };
        let now = Time::ZERO + T;
        oracle.on(now, &Observation::Message(&message), &mut Outbox::default());
        oracle.state(now).traffic_hosts.iter().map(|p| p.from.clone()).collect::<Vec<_>>()
    };
    assert_eq!(hear(1, 2, 5), ["host.2"]);
    assert_eq!(hear(1, 0, 5), ["host.0", "host.2"]);
    assert_eq!(hear(0, 3, 5), ["host.0", "host.2"], "older");
    assert_eq!(hear(1, u32::MAX, 5), ["host.0", "host.2"], "no such node");
    assert_eq!(hear(2, 4, 5), ["host.4"]);
}

#[test]
fn the_gauge_shows_the_hosts_that_got_a_lease_in_the_last_cycle() {
    for name in ["opentcp1", "example2"] {
        let mut network = Network::new(&[name], 1, 0.0);
        let cued = |network: &Network| {
            network.fabric.gauges.values().iter().find(|(gauge, _)| *gauge == "cued").map(|(_, value)| *value)
        };
        network.apply(&Step::Pass { seconds: 200, utilization: 30, live: 5 });
        assert_eq!(cued(&network), Some(f64::from(AGENTS)), "{name}");
        network.apply(&Step::Pass { seconds: 120, utilization: 90, live: 500 });
        assert_eq!(cued(&network), Some(0.0), "{name}");
    }
}

#[test]
fn a_busy_link_ends_the_leases_by_silence() {
    let mut network = Network::new(&["opentcp1"], 1, 0.0);
    network.apply(&Step::Pass { seconds: 200, utilization: 30, live: 1 });
    assert_eq!(network.fabric.hosts[0].initial_window, Some(20));
    network.apply(&Step::Pass { seconds: 120, utilization: 90, live: 1 });
    assert_eq!(network.fabric.hosts[0].initial_window, Some(20), "the lease has not ended");
    network.apply(&Step::Pass { seconds: 240, utilization: 90, live: 1 });
    network.assert_all_own("links are busy");
}

#[test]
fn a_host_that_loses_packets_goes_back_at_once_and_alone() {
    let mut network = Network::new(&["opentcp2"], 1, 0.0);
    network.apply(&Step::Pass { seconds: 121, utilization: 30, live: 1 });
    network.apply(&Step::Send { host: 2, sent: 1000, again: 2 });
    network.apply(&Step::Send { host: 3, sent: 2000, again: 2 });
    network.apply(&Step::Pass { seconds: 6, utilization: 30, live: 1 });
    let tuned: Vec<bool> = network.fabric.hosts.iter().map(|tuning| !tuning.is_default()).collect();
    assert_eq!(tuned, [true, true, false, true, true, true]);
    network.apply(&Step::Pass { seconds: 60, utilization: 30, live: 1 });
    assert!(!network.fabric.hosts[2].is_default(), "the next CUE gives it another chance");
}

#[test]
fn the_first_policy_insists_and_release_is_at_once() {
    let mut network = Network::new(&["opentcp2", "other"], 1, 0.0);
    network.apply(&Step::Pass { seconds: 130, utilization: 30, live: 5 });
    assert_eq!(
        (network.fabric.hosts[0].initial_window, network.fabric.hosts[0].window_cap),
        (Some(20), Some(64))
    );
    assert_eq!(
        (network.fabric.hosts[1].initial_window, network.fabric.hosts[1].window_cap),
        (Some(20), None)
    );
    let mut alone = Network::new(&["example2"], 1, 0.0);
    alone.apply(&Step::Pass { seconds: 130, utilization: 30, live: 5 });
    assert_eq!(alone.fabric.hosts[0].pacing, Some(true));
    alone.apply(&Step::Pass { seconds: 111, utilization: 30, live: 500 });
    alone.assert_all_own("too many flows are live");
}
