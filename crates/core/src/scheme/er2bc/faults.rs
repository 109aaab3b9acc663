//! Both gateways under lost, late, repeated, reordered and forged probes, restarts and counters that wrap.

use proptest::prelude::*;

use super::probe::{Body, Message};
use crate::control::{Gauges, Observation, Passed};
use crate::id::{NodeId, PortId};
use crate::runtime::faults::PathEnd;
use crate::runtime::inventory::{Change, Inventory};
use crate::runtime::{Host, Refusal, Runner};
use crate::scenario::{Options, parse};
use crate::scheme::{Act, Role};
use crate::time::{Span, Time};
use crate::units::Rate;

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

/// The path between the gateways, and the shaper before it.
struct Path {
    sender: NodeId,
    port: PortId,
    sent: Passed,
    received: Passed,
    /// With the counts of both ends when they passed them.
    questions: Vec<(Vec<u8>, Passed)>,
    leaving: Vec<(Vec<u8>, Passed)>,
    answers: Vec<Vec<u8>>,
    root: u64,
    classes: [u64; 2],
    ticks: [Option<Time>; 2],
    /// Of the sender.
    gauges: Gauges,
}

impl Host for Path {
    const ACTS: &'static [Act] = &[Act::Probe, Act::SetClass];

    fn wake(&mut self, role: usize, at: Time) {
        self.ticks[role] = Some(at);
    }

    fn passed(&mut self, _from: NodeId, _to: NodeId, end: PathEnd) -> Option<Passed> {
        Some(if end == PathEnd::First { self.sent } else { self.received })
    }

    fn show(&mut self, role: usize, _now: Time, gauges: &Gauges) {
        if role == 0 {
            self.gauges = gauges.clone();
        }
    }

    fn probe(&mut self, _now: Time, from: NodeId, to: NodeId, payload: Vec<u8>) -> Result<(), Refusal> {
        assert_ne!(from, to);
        if from == self.sender {
            self.questions.push((payload.clone(), self.received));
            self.leaving.push((payload, self.sent));
        } else {
            self.answers.push(payload);
        }
        Ok(())
    }

    fn set_class(
        &mut self,
        port: PortId,
        class: Option<usize>,
        rate: Rate,
        ceil: Rate,
    ) -> Result<(), Refusal> {
        assert!(port == self.port && rate <= ceil && rate.bits_per_sec() > 0);
        match class {
            None => self.root = rate.bits_per_sec(),
            Some(class) => self.classes[class] = rate.bits_per_sec(),
        }
        Ok(())
    }
}

struct Gateways {
    runner: Runner,
    path: Path,
    /// Of the sender and the receiver.
    nodes: [NodeId; 2],
    now: Time,
}

impl Gateways {
    fn new(control: &str, estimator: &str) -> Self {
        let text = format!("{FILE}control = \"{control}\"\nestimator = \"{estimator}\"\n");
        let study = parse("x.toml", &text, &Options::default()).unwrap();
        let scenario = &study.cases[0].scenario;
        let rates: Vec<Rate> = scenario.topology.links.iter().flat_map(|link| [link.rate; 2]).collect();
        let inventory = Inventory::of(&scenario.topology, &rates);
        let mut runner =
            Runner::new::<Path>(Role::all(&scenario.schemes, &inventory, &[]), inventory.clone()).unwrap();
        let nodes: Vec<NodeId> = runner.roles().map(|role| role.place.node).collect();
        let nodes = [nodes[0], nodes[1]];
        let mut path = Path {
            sender: nodes[0],
            port: inventory.port_named("gw1->gw2").unwrap(),
            sent: Passed::default(),
            received: Passed::default(),
            questions: Vec::new(),
            leaving: Vec::new(),
            answers: Vec::new(),
            root: 0,
            classes: [0; 2],
            ticks: [None; 2],
            gauges: Gauges::default(),
        };
        runner.begin(&mut path, Time::ZERO);
        Self { runner, path, nodes, now: Time::ZERO }
    }

    fn probe_came(&mut self, role: usize, payload: &[u8], passed: Passed) {
        let came = Observation::ProbeCame { from: self.nodes[1 - role], payload, passed };
        self.runner.observe(&mut self.path, self.now, self.nodes[role], &came);
    }

    fn gauge(&self, name: &str) -> f64 {
        let mut values = self.path.gauges.values().iter();
        values.find(|(gauge, _)| *gauge == name).map_or(f64::NAN, |(_, value)| *value)
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
                // The longest cycle that there is.
                self.now += Span::from_millis(1100);
                count(&mut self.path.sent, *packets);
                count(&mut self.path.received, packets.saturating_sub(*lost));
                // With the estimator `robust` both look more often, and ask when it is time.
                for role in [1, 0] {
                    let due = self.path.ticks[role].take_if(|at| *at <= self.now);
                    if let Some(due) = due {
                        self.runner.wake(&mut self.path, role, due, self.now);
                    }
                    assert!(role == 1 || due.is_some(), "the sender wakes each cycle");
                }
                for (payload, passed) in std::mem::take(&mut self.path.leaving) {
                    let left = Observation::ProbeLeft { payload: &payload, passed };
                    self.runner.observe(&mut self.path, self.now, self.nodes[0], &left);
                }
            }
            Step::Question(at, again) => {
                if let Some((payload, passed)) = Self::take(&mut self.path.questions, *at, *again) {
                    self.probe_came(1, &payload, passed);
                }
            }
            Step::Answer(at, again) => {
                if let Some(payload) = Self::take(&mut self.path.answers, *at, *again) {
                    self.probe_came(0, &payload, self.path.sent);
                }
            }
            Step::Lose => {
                self.path.questions.clear();
                self.path.answers.clear();
            }
            Step::Forge(bytes, to_sender) => {
                self.probe_came(usize::from(!to_sender), bytes, self.path.sent);
            }
            Step::Restart(sender) => {
                let role = usize::from(!sender);
                self.runner.change(&mut self.path, self.now, self.nodes[role], Change::Restart);
                let counted = if *sender { &mut self.path.sent } else { &mut self.path.received };
                *counted = Passed::default();
            }
            Step::Wrap => {
                let end = Passed { packets: u64::MAX - 500, bytes: u64::MAX - 50_000 };
                (self.path.sent, self.path.received) = (end, end);
            }
        }
    }

    fn check(&self) {
        let (estimate, spare) = (self.gauge("estimate"), self.gauge("spare"));
        assert!((FLOOR..=CEILING).contains(&estimate), "estimate {estimate}");
        assert!(spare >= 0.0, "the classes are promised {} more than W", -spare);
        // A class of nothing gets 1 bit/s, for the shaper.
        let Path { root, classes, .. } = &self.path;
        assert!(classes.iter().sum::<u64>() <= root + 2, "{classes:?} of {root}");
        assert_eq!(self.runner.refusals().total(), 0, "roles do only what they may");
    }
}

proptest! {
    #[test]
    fn no_fault_makes_a_rate_negative_or_run_away_or_the_gateways_stall(
        steps in proptest::collection::vec(any_step(), 0..120),
        control in prop_oneof![Just("paper"), Just("limit"), Just("basic")],
        estimator in prop_oneof![Just("loss"), Just("delay"), Just("robust")],
    ) {
        let mut gateways = Gateways::new(control, estimator);
        gateways.apply(&Step::Cycle(0, 0));
        for step in &steps {
            gateways.apply(step);
            gateways.check();
        }
        // Whatever has been: three good rounds bring an update, besides those in which a watch and a report come first.
        gateways.apply(&Step::Lose);
        let before = gateways.gauge("updates");
        for _ in 0..6 {
            for step in [Step::Cycle(500, 0), Step::Question(0, false), Step::Answer(0, false)] {
                gateways.apply(&step);
                gateways.check();
            }
        }
        prop_assert!(gateways.gauge("updates") > before, "no update after three good rounds");
    }
}

/// A watch lasts for minutes, but not beyond a restart of who watches: the sender says it again, twice.
#[test]
fn a_receiver_that_has_restarted_is_asked_to_watch_again() {
    let mut gateways = Gateways::new("limit", "robust");
    let watches = |gateways: &mut Gateways, rounds: usize| {
        let mut watches = 0;
        for _ in 0..rounds {
            gateways.apply(&Step::Cycle(500, 0));
            while let Some((payload, _)) = gateways.path.questions.first() {
                watches +=
                    usize::from(matches!(Message::decode(payload), Ok(Message { body: Body::Watch, .. })));
                gateways.apply(&Step::Question(0, false));
            }
            while !gateways.path.answers.is_empty() {
                gateways.apply(&Step::Answer(0, false));
            }
        }
        watches
    };
    assert_eq!(watches(&mut gateways, 12), 2, "at the start");
    assert_eq!(watches(&mut gateways, 12), 0, "once a minute later on");
    gateways.apply(&Step::Restart(false));
    assert_eq!(watches(&mut gateways, 8), 2, "after the restart");
}
