//! Both gateways under lost, late, repeated, reordered and forged probes, restarts and counters that wrap.

use proptest::prelude::*;

use crate::control::{Action, Gauges, Observation, Outbox, Passed};
use crate::id::NodeId;
use crate::scenario::{Options, parse};
use crate::scheme::{Role, SchemeConfig, World};
use crate::time::{Span, Time};

const FILE: &str = r#"version = 1
name = "two-gateways"

[run]
duration = "1s"

[network]
hosts = ["a", "b"]
routers = ["gw1", "gw2"]

[network.link]
rate = "100mbit"

[[network.links]]
ends = ["gw1", "gw2"]

[network.links.queue]
discipline = "htb"
rate = "1mbit"

[[network.links.queue.classes]]
name = "first"
dscp = [1]
rate = "80kbit"
ceil = "1mbit"

[[network.links.queue.classes]]
name = "second"
dscp = [2]
rate = "80kbit"
ceil = "1mbit"

[[network.links]]
ends = ["a", "gw1"]

[[network.links]]
ends = ["gw2", "b"]

[[flows]]
name = "f"
from = "a"
to = "b"

[schemes.er2bc]
port = "gw1->gw2"
receiver = "gw2"
needs = ["400kbit", "400kbit"]
ceiling = "5mbit"
"#;

const FLOOR: f64 = 0.16;
const CEILING: f64 = 5.0;

#[derive(Clone, Debug)]
enum Step {
    /// A cycle in which so many packets pass and so many of them are lost.
    Cycle(u32, u32),
    /// The question, or answer, at this place of those on their way arrives; it stays there when it is repeated.
    Question(u8, bool),
    Answer(u8, bool),
    Lose,
    Forge(Vec<u8>, bool),
    Restart(bool),
    /// Counters stand just before their end.
    Wrap,
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0u32..2000, 0u32..200).prop_map(|(packets, lost)| Step::Cycle(packets, lost)),
        4 => (any::<u8>(), any::<bool>()).prop_map(|(at, again)| Step::Question(at, again)),
        4 => (any::<u8>(), any::<bool>()).prop_map(|(at, again)| Step::Answer(at, again)),
        1 => Just(Step::Lose),
        1 => (proptest::collection::vec(any::<u8>(), 0..48), any::<bool>())
            .prop_map(|(bytes, to_sender)| Step::Forge(bytes, to_sender)),
        1 => any::<bool>().prop_map(Step::Restart),
        1 => Just(Step::Wrap),
    ]
}

/// A question with the counts of both ends when it passed them, and an answer.
struct Gateways {
    config: SchemeConfig,
    world: World,
    roles: Vec<Role>,
    now: Time,
    sent: Passed,
    received: Passed,
    questions: Vec<(Vec<u8>, Passed)>,
    answers: Vec<Vec<u8>>,
    root: u64,
    classes: [u64; 2],
}

impl Gateways {
    fn new(control: &str, estimator: &str) -> Self {
        let text = format!("{FILE}control = \"{control}\"\nestimator = \"{estimator}\"\n");
        let study = parse("x.toml", &text, &Options::default()).unwrap();
        let scenario = &study.cases[0].scenario;
        let ends = scenario.topology.links.iter().flat_map(|l| [(l.a, l.b, l.rate), (l.b, l.a, l.rate)]);
        let world = World {
            nodes: scenario.topology.nodes.iter().map(|node| node.name.clone()).collect(),
            ports: ends.map(|(from, to, capacity)| crate::scheme::PortInfo { from, to, capacity }).collect(),
            ..World::default()
        };
        let config = scenario.schemes[0].clone();
        let roles = (config.scheme.build)(&config.params, &world);
        Self {
            config,
            world,
            roles,
            now: Time::ZERO,
            sent: Passed::default(),
            received: Passed::default(),
            questions: Vec::new(),
            answers: Vec::new(),
            root: 0,
            classes: [0; 2],
        }
    }

    fn node(&self, role: usize) -> NodeId {
        self.roles[role].node
    }

    fn call(&mut self, role: usize, observation: &Observation<'_>) {
        let mut out = Outbox::default();
        self.roles[role].controller.on(self.now, observation, &mut out);
        for action in out.drain().collect::<Vec<_>>() {
            match action {
                Action::Probe { payload, .. } if role == 0 => {
                    let passed = self.sent;
                    self.questions.push((payload.clone(), self.received));
                    self.call(0, &Observation::ProbeLeft { payload: &payload, passed });
                }
                Action::Probe { payload, .. } => self.answers.push(payload),
                Action::SetClass { class, rate, ceil, .. } => {
                    assert!(rate <= ceil && rate.bits_per_sec() > 0);
                    match class {
                        None => self.root = rate.bits_per_sec(),
                        Some(class) => self.classes[class] = rate.bits_per_sec(),
                    }
                }
                other => panic!("{other:?}"),
            }
        }
    }

    fn gauge(&self, name: &str) -> f64 {
        let mut gauges = Gauges::default();
        self.roles[0].controller.gauges(&mut gauges);
        gauges.values().iter().find(|(gauge, _)| *gauge == name).map_or(f64::NAN, |(_, value)| *value)
    }

    fn take<T: Clone>(list: &mut Vec<T>, at: u8, again: bool) -> Option<T> {
        let at = usize::from(at) % list.len().max(1);
        if again { list.get(at).cloned() } else { (at < list.len()).then(|| list.remove(at)) }
    }

    fn apply(&mut self, step: &Step) {
        let count = |passed: &mut Passed, packets: u32| {
            passed.packets = passed.packets.wrapping_add(u64::from(packets));
            passed.bytes = passed.bytes.wrapping_add(125 * u64::from(packets));
        };
        match step {
            Step::Cycle(packets, lost) => {
                self.now += Span::from_secs(1);
                count(&mut self.sent, *packets);
                count(&mut self.received, packets.saturating_sub(*lost));
                self.call(0, &Observation::Tick { ports: &[], flows: &[] });
            }
            Step::Question(at, again) => {
                if let Some((payload, passed)) = Self::take(&mut self.questions, *at, *again) {
                    let from = self.node(0);
                    self.call(1, &Observation::ProbeCame { from, payload: &payload, passed });
                }
            }
            Step::Answer(at, again) => {
                if let Some(payload) = Self::take(&mut self.answers, *at, *again) {
                    let (from, passed) = (self.node(1), self.sent);
                    self.call(0, &Observation::ProbeCame { from, payload: &payload, passed });
                }
            }
            Step::Lose => {
                self.questions.clear();
                self.answers.clear();
            }
            Step::Forge(bytes, to_sender) => {
                let role = usize::from(!to_sender);
                let (from, passed) = (self.node(1 - role), self.sent);
                self.call(role, &Observation::ProbeCame { from, payload: bytes, passed });
            }
            Step::Restart(sender) => {
                let role = usize::from(!sender);
                self.roles[role] = (self.config.scheme.build)(&self.config.params, &self.world).remove(role);
                if *sender {
                    self.sent = Passed::default();
                } else {
                    self.received = Passed::default();
                }
            }
            Step::Wrap => {
                let end = Passed { packets: u64::MAX - 500, bytes: u64::MAX - 50_000 };
                (self.sent, self.received) = (end, end);
            }
        }
    }

    fn check(&self) {
        let (estimate, spare) = (self.gauge("estimate"), self.gauge("spare"));
        assert!((FLOOR..=CEILING).contains(&estimate), "estimate {estimate}");
        assert!(spare >= 0.0, "the classes are promised {} more than W", -spare);
        // A class of nothing gets 1 bit/s, for the shaper.
        let promised = self.classes.iter().sum::<u64>();
        assert!(promised <= self.root + 2, "{:?} of {}", self.classes, self.root);
    }
}

proptest! {
    #[test]
    fn no_fault_makes_a_rate_negative_or_run_away_or_the_gateways_stall(
        steps in proptest::collection::vec(any_step(), 0..120),
        control in prop_oneof![Just("paper"), Just("limit"), Just("basic")],
        estimator in prop_oneof![Just("loss"), Just("delay")],
    ) {
        let mut gateways = Gateways::new(control, estimator);
        gateways.apply(&Step::Cycle(0, 0));
        for step in &steps {
            gateways.apply(step);
            gateways.check();
        }
        // Whatever has been: three good rounds bring an update.
        gateways.apply(&Step::Lose);
        let before = gateways.gauge("updates");
        for _ in 0..3 {
            for step in [Step::Cycle(500, 0), Step::Question(0, false), Step::Answer(0, false)] {
                gateways.apply(&step);
                gateways.check();
            }
        }
        prop_assert!(gateways.gauge("updates") > before, "no update after three good rounds");
    }
}
