//! An Oracle, a switch and agents under lost, late, repeated and forged messages, a dead Oracle, restarts of agents,
//! hosts that lose packets, and policies that contradict each other.

use proptest::prelude::*;

use super::policy::{Policy, Rule};
use super::wire::{self, Body, PortReport, SwitchReport};
use super::{NamedText, Places, oracle, policies, roles};
use crate::control::{
    Action, FlowEnd, FlowStats, Gauges, Message, Observation, Outbox, PortStats, SegmentCounts,
};
use crate::id::{FlowId, NodeId, PortId};
use crate::rng::Stream;
use crate::scheme::{PortInfo, Role, World};
use crate::time::{Span, Time};
use crate::tuning::Tuning;
use crate::units::{Bytes, Rate};

const AGENTS: u32 = 6;
const SWITCH: NodeId = NodeId(AGENTS);
const T: Span = Span::from_secs(60);
const LOOK: Span = Span::from_secs(5);
/// Longest lease, in cycles.
const LEASE_CYCLES: u64 = 3;

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
    /// The Oracle hears and says nothing for five cycles.
    DeadOracle,
    /// It begins anew.
    RestartOracle,
    /// The switch begins anew: its first report after that says nothing.
    RestartSwitch,
    /// An agent begins anew; what it set stays in force on its host until it runs.
    RestartAgent(u8),
    /// A message that is on its way comes a second time.
    Repeat(u8),
    /// Somebody sends bytes.
    Forge(u8, Vec<u8>),
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
        1 => (any::<u8>(), proptest::collection::vec(any::<u8>(), 0..60))
            .prop_map(|(to, bytes)| Step::Forge(to, bytes)),
        1 => any_switch_report().prop_map(|bytes| Step::Forge(0, bytes)),
    ]
}

/// Well-formed, of nodes that are switches or not, or are not at all.
fn any_switch_report() -> impl Strategy<Value = Vec<u8>> {
    let port = (0u32..8, 0u32..20_000).prop_map(|(place, utilization)| PortReport {
        place,
        utilization,
        drop_rate: 0,
        backlog: 0,
    });
    (0..AGENTS + 3, 0u32..8, 0u32..8, proptest::collection::vec(port, 0..2)).prop_map(
        |(node, first, covered, ports)| {
            wire::encode(&Body::Switch(SwitchReport { node, sequence: 0, first, covered, ports }))
        },
    )
}

struct Network {
    policies: Vec<Policy>,
    world: World,
    places: Places,
    /// The Oracle, the switch, then the agents.
    roles: Vec<Role>,
    now: Time,
    stream: Stream,
    /// Share of messages that are lost; when it is nothing, none is late either.
    loss: f64,
    /// Messages on their way: when they come, to whom, what.
    messages: Vec<(Time, NodeId, Message)>,
    oracle_dead: bool,
    utilization: u64,
    live: u32,
    sent: Bytes,
    counts: [SegmentCounts; AGENTS as usize],
    /// What is in force on each host; a process that ends leaves it.
    hosts: [Tuning; AGENTS as usize],
}

impl Network {
    fn new(names: &[&str], seed: u64, loss: f64) -> Self {
        let text = |name: &&str| match *name {
            "other" => NamedText { name: "other.toml".to_owned(), text: Some(OTHER.to_owned()) },
            shipped => NamedText { name: shipped.to_owned(), text: None },
        };
        let policies =
            policies(&names.iter().map(text).collect::<Vec<_>>()).unwrap_or_else(|e| panic!("{e}"));
        let capacity = Rate::from_bits_per_sec(1_000_000_000);
        let world = World {
            nodes: (0..AGENTS).map(|n| format!("host.{n}")).chain(["switch".to_owned()]).collect(),
            ports: (0..AGENTS).map(|n| PortInfo { from: SWITCH, to: NodeId(n), capacity }).collect(),
            routes: Vec::new(),
        };
        let places =
            Places { oracle: NodeId(0), agents: (0..AGENTS).map(NodeId).collect(), switches: vec![SWITCH] };
        let roles = roles(policies.clone(), &world, &places, T, LOOK);
        Self {
            policies,
            world,
            places,
            roles,
            now: Time::ZERO,
            stream: Stream::new(seed, 0, "messages"),
            loss,
            messages: Vec::new(),
            oracle_dead: false,
            utilization: 10,
            live: 1,
            sent: Bytes::ZERO,
            counts: Default::default(),
            hosts: Default::default(),
        }
    }

    fn fresh(&self, index: usize) -> Role {
        roles(self.policies.clone(), &self.world, &self.places, T, LOOK).remove(index)
    }

    fn call(&mut self, index: usize, observation: &Observation<'_>) {
        let mut out = Outbox::default();
        let node = self.roles[index].node;
        self.roles[index].controller.on(self.now, observation, &mut out);
        for action in out.drain() {
            match action {
                Action::Tune { tuning, .. } => {
                    assert!(index >= 2, "only an agent tunes");
                    self.hosts[node.index()] = tuning;
                }
                Action::Send { to, message, .. } => {
                    if !self.stream.chance(self.loss) {
                        // Now and then a message takes longer than a cycle, and others overtake it.
                        let late = if self.loss > 0.0 && self.stream.chance(0.05) {
                            T * 2
                        } else {
                            Span::from_millis(1)
                        };
                        let delay = self.stream.span_between(Span::ZERO, late);
                        self.messages.push((self.now + delay, to, message));
                    }
                }
                other => panic!("{other:?}"),
            }
        }
    }

    fn tick(&mut self, index: usize) {
        let node = self.roles[index].node;
        if node == SWITCH {
            let elapsed = self.now.as_secs_f64();
            let port = |n| PortStats {
                port: PortId(n),
                capacity: Rate::from_bits_per_sec(1_000_000_000),
                flows_seen: 0,
                flows_open: 0,
                backlog: Bytes::ZERO,
                sent: self.sent,
                offered: elapsed as u64,
                dropped: 0,
            };
            let ports: Vec<PortStats> = (0..AGENTS).map(port).collect();
            self.call(index, &Observation::Tick { ports: &ports, flows: &[] });
            return;
        }
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
        let flows: Vec<FlowStats> = (0..self.live).map(flow).collect();
        self.call(index, &Observation::Sent(self.counts[node.index()]));
        self.call(index, &Observation::Tick { ports: &[], flows: &flows });
    }

    /// The time goes on to `end`, with all that happens until then.
    fn pass(&mut self, end: Time) {
        loop {
            let wake = |(index, role): (usize, &Role)| {
                let at = role.controller.wakeup().map_or(Time::MAX, |wakeup| wakeup.at).max(self.now);
                (at, index)
            };
            let alive = |(index, _): &(usize, &Role)| *index > 0 || !self.oracle_dead;
            let (wake_at, role) = self.roles.iter().enumerate().filter(alive).map(wake).min().unwrap();
            let next = self.messages.iter().enumerate().min_by_key(|(_, (at, ..))| *at);
            let (message_at, message) = next.map_or((Time::MAX, 0), |(place, (at, ..))| (*at, place));
            let at = wake_at.min(message_at);
            if at > end {
                break;
            }
            self.advance(at);
            if message_at <= wake_at {
                let (_, to, message) = self.messages.remove(message);
                for index in 0..self.roles.len() {
                    if self.roles[index].node == to && (index > 0 || !self.oracle_dead) {
                        self.call(index, &Observation::Message(&message));
                    }
                }
            } else {
                self.tick(role);
            }
            self.check();
        }
        self.advance(end);
    }

    fn advance(&mut self, to: Time) {
        let bits = to.since(self.now).as_secs_f64() * 1e9 * self.utilization as f64 / 100.0;
        self.sent = Bytes::new(self.sent.get() + (bits / 8.0) as u64);
        self.now = to;
    }

    fn apply(&mut self, step: &Step) {
        match step {
            Step::Pass { seconds, utilization, live } => {
                (self.utilization, self.live) = (*utilization, *live);
                self.pass(self.now + Span::from_secs(*seconds));
            }
            Step::Send { host, sent, again } => {
                let counts = &mut self.counts[usize::from(*host) % AGENTS as usize];
                counts.sent += u64::from(*sent);
                counts.resent += u64::from(*again.min(sent));
            }
            Step::DeadOracle => {
                self.oracle_dead = true;
                // What it sent before may still come.
                self.pass(self.now + T * 5 + LOOK);
                self.assert_all_own("the Oracle is dead for five cycles");
                self.oracle_dead = false;
            }
            Step::RestartOracle => self.roles[0] = self.fresh(0),
            Step::RestartSwitch => self.roles[1] = self.fresh(1),
            Step::RestartAgent(host) => {
                let index = 2 + usize::from(*host) % AGENTS as usize;
                self.roles[index] = self.fresh(index);
            }
            Step::Repeat(at) => {
                if let Some(message) = self.messages.get(usize::from(*at) % self.messages.len().max(1)) {
                    self.messages.push(message.clone());
                }
            }
            Step::Forge(to, bytes) => {
                let to = NodeId(u32::from(*to) % AGENTS);
                self.messages.push((self.now, to, Message::Encoded(bytes.clone())));
            }
        }
    }

    /// All that policies can say to the host at `place`.
    fn declared(&self, place: usize) -> Vec<Tuning> {
        let of: Vec<usize> = (0..self.policies.len())
            .filter(|at| self.policies[*at].is_for(&self.world.nodes[place], place))
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
        for (place, tuning) in self.hosts.iter().enumerate() {
            let declared = self.declared(place);
            assert!(declared.contains(tuning), "host {place} has {tuning}, which nobody declares");
        }
    }

    fn assert_all_own(&self, why: &str) {
        for (place, tuning) in self.hosts.iter().enumerate() {
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
    ) {
        let names: &[&str] = if contradictory { &["opentcp2", "other"] } else { &["opentcp2"] };
        let mut network = Network::new(names, seed, 0.1);
        for step in &steps {
            network.apply(step);
            network.check();
        }
        // Whatever has been: when nothing is lost any more, the policies are in force after some cycles.
        network.loss = 0.0;
        network.apply(&Step::Pass { seconds: 60 * (2 + 3 + LEASE_CYCLES), utilization: 10, live: 1 });
        let fired: Vec<Option<&Rule>> = network.policies.iter().map(|policy| policy.rules.first()).collect();
        for (place, tuning) in network.hosts.iter().enumerate() {
            let of: Vec<usize> = (0..network.policies.len())
                .filter(|at| network.policies[*at].is_for(&network.world.nodes[place], place))
                .collect();
            let wanted = oracle::combine(&network.policies, &fired, &of).tuning;
            prop_assert_eq!(*tuning, wanted, "host {}", place);
        }
    }
}

#[test]
fn reports_of_what_is_no_switch_are_of_no_account() {
    let mut network = Network::new(&["opentcp1"], 1, 0.0);
    for (node, covered) in [(AGENTS + 1, 0), (AGENTS + 1, 1), (0, 0), (u32::MAX, 0), (SWITCH.0, 0)] {
        let report = SwitchReport { node, sequence: 0, first: 0, covered, ports: Vec::new() };
        network.apply(&Step::Forge(0, wire::encode(&Body::Switch(report))));
    }
    network.apply(&Step::Pass { seconds: 100, utilization: 90, live: 1 });
    network.assert_all_own("links are busy");
}

#[test]
fn the_gauge_shows_the_hosts_that_got_a_lease_in_the_last_cycle() {
    for name in ["opentcp1", "example2"] {
        let mut network = Network::new(&[name], 1, 0.0);
        let cued = |network: &Network| {
            let mut gauges = Gauges::default();
            network.roles[0].controller.gauges(&mut gauges);
            gauges.values().iter().find(|(gauge, _)| *gauge == "cued").map(|(_, value)| *value)
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
    assert_eq!(network.hosts[0].initial_window, Some(20));
    network.apply(&Step::Pass { seconds: 120, utilization: 90, live: 1 });
    assert_eq!(network.hosts[0].initial_window, Some(20), "the lease has not ended");
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
    let tuned: Vec<bool> = network.hosts.iter().map(|tuning| !tuning.is_default()).collect();
    assert_eq!(tuned, [true, true, false, true, true, true]);
    network.apply(&Step::Pass { seconds: 60, utilization: 30, live: 1 });
    assert!(!network.hosts[2].is_default(), "the next CUE gives it another chance");
}

#[test]
fn the_first_policy_insists_and_release_is_at_once() {
    let mut network = Network::new(&["opentcp2", "other"], 1, 0.0);
    network.apply(&Step::Pass { seconds: 130, utilization: 30, live: 5 });
    assert_eq!((network.hosts[0].initial_window, network.hosts[0].window_cap), (Some(20), Some(64)));
    assert_eq!((network.hosts[1].initial_window, network.hosts[1].window_cap), (Some(20), None));
    let mut alone = Network::new(&["example2"], 1, 0.0);
    alone.apply(&Step::Pass { seconds: 130, utilization: 30, live: 5 });
    assert_eq!(alone.hosts[0].pacing, Some(true));
    alone.apply(&Step::Pass { seconds: 111, utilization: 30, live: 500 });
    alone.assert_all_own("too many flows are live");
}
