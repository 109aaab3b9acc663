//! What a role decides follows from what it hears, and from nothing else of its world: roles that are built again and hear what
//! roles heard in the simulator, or in the lab, do the same, byte by byte.

use std::sync::{Mutex, MutexGuard, PoisonError};

use bandmaster_core::control::{
    Action, Controller, FlowKey, FlowStart, FlowStats, Gauges, Message, Observation, Outbox, PortStats,
    SegmentCounts,
};
use bandmaster_core::id::{FlowId, PortId};
use bandmaster_core::runtime::inventory::Inventory;
use bandmaster_core::scenario::Scenario;
use bandmaster_core::scheme::opentcp::DEF;
use bandmaster_core::scheme::{Built, Place, SchemeDef};
use bandmaster_core::time::Time;

use super::{scenario, simulate};

/// What roles have heard and done since it was empty.
static RECORDS: Mutex<Vec<Record>> = Mutex::new(Vec::new());
/// The tests here take turns.
static ALONE: Mutex<()> = Mutex::new(());

struct Record {
    place: Place,
    inventory: Inventory,
    steps: Vec<(Time, Heard, Vec<Action>)>,
}

/// An observation that stays.
enum Heard {
    Tick(Vec<PortStats>, Vec<FlowStats>),
    Sent(SegmentCounts),
    Started(FlowStats, FlowKey, Vec<PortId>),
    Carried(FlowStats),
    Ended(FlowId),
    Message(Message),
}

impl Heard {
    fn new(observation: &Observation<'_>) -> Self {
        match observation {
            Observation::Tick { ports, flows } => Self::Tick(ports.to_vec(), flows.to_vec()),
            Observation::Sent(counts) => Self::Sent(*counts),
            Observation::FlowStarted(FlowStart { stats, key, route }) => {
                Self::Started(*stats, *key, route.to_vec())
            }
            Observation::Carried(stats) => Self::Carried(*stats),
            Observation::FlowEnded(flow) => Self::Ended(*flow),
            Observation::Message(message) => Self::Message((*message).clone()),
            other => panic!("a role of OpenTCP hears {other:?}"),
        }
    }

    fn observation(&self) -> Observation<'_> {
        match self {
            Self::Tick(ports, flows) => Observation::Tick { ports, flows },
            Self::Sent(counts) => Observation::Sent(*counts),
            Self::Started(stats, key, route) => {
                Observation::FlowStarted(FlowStart { stats: *stats, key: *key, route })
            }
            Self::Carried(stats) => Observation::Carried(*stats),
            Self::Ended(flow) => Observation::FlowEnded(*flow),
            Self::Message(message) => Observation::Message(message),
        }
    }
}

/// OpenTCP, which writes down what its roles hear and do.
fn recorded() -> &'static SchemeDef {
    let SchemeDef { about, source, keys, roles, check, fits, place, .. } = DEF;
    Box::leak(Box::new(SchemeDef {
        name: "recorded",
        code: 260,
        build,
        about,
        source,
        keys,
        roles,
        check,
        fits,
        place,
    }))
}

fn build(place: &Place, inventory: &Inventory, saved: Option<&[u8]>) -> Built {
    let mut records = records();
    let number = records.len();
    records.push(Record { place: place.clone(), inventory: inventory.clone(), steps: Vec::new() });
    let built = (DEF.build)(place, inventory, saved);
    Built::brain(Recorder { number, inner: built.controller.expect("each role of OpenTCP decides") })
}

fn records() -> MutexGuard<'static, Vec<Record>> {
    RECORDS.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Recorder {
    number: usize,
    inner: Box<dyn Controller>,
}

fn tell(controller: &mut dyn Controller, now: Time, observation: &Observation<'_>) -> Vec<Action> {
    let mut out = Outbox::default();
    controller.on(now, observation, &mut out);
    out.drain().collect()
}

impl Controller for Recorder {
    fn on(&mut self, now: Time, observation: &Observation<'_>, out: &mut Outbox) {
        let actions = tell(&mut *self.inner, now, observation);
        records()[self.number].steps.push((now, Heard::new(observation), actions.clone()));
        actions.into_iter().for_each(|action| out.push(action));
    }

    fn wakeup(&self) -> Option<Time> {
        self.inner.wakeup()
    }

    fn gauges(&self, gauges: &mut Gauges) {
        self.inner.gauges(gauges);
    }
}

/// Answers to a client, and a policy whose condition turns: sizes of flows and of the link are such that it does.
fn answers() -> Scenario {
    let text = r#"
        version = 1
        name = "answers"
        [run]
        duration = "6s"
        trials = 1
        [network]
        builder = "star"
        size = 4
        hosts = ["client"]
        host-delay = 0.0
        [network.link]
        rate = "10mbit"
        delay = "5ms"
        queue = "50pkt"
        [[network.links]]
        ends = ["client", "hub"]
        [[flows]]
        name = "answers"
        from = "hosts"
        to = "client"
        size = "30kB"
        count = 12
        start = "uniform(0s, 5s)"
        [schemes.recorded]
        policies = ["opentcp1"]
        cycle = "500ms"
        force = ["timescale"]
    "#;
    scenario(text, &[recorded()])
}

/// Replays to new roles what the roles of a run have heard.
fn replay() {
    let records = std::mem::take(&mut *records());
    // The Oracle, the switch, and an agent at each host.
    assert!(records.len() >= 6, "{} roles", records.len());
    let (mut messages, mut tunings) = (0, 0);
    for Record { place, inventory, steps } in records {
        let built = (DEF.build)(&place, &inventory, None);
        let mut controller = built.controller.expect("each role of OpenTCP decides");
        for (now, heard, done) in steps {
            let again = tell(&mut *controller, now, &heard.observation());
            assert_eq!(again, done, "{} at {now:?}", place.role.name);
            messages += done.iter().filter(|action| matches!(action, Action::Send { .. })).count();
            tunings += done.iter().filter(|action| matches!(action, Action::Tune { .. })).count();
        }
    }
    // Statistics and CUEs, and what agents make of these.
    assert!(messages > 40 && tunings > 5, "{messages} messages, {tunings} tunings");
}

#[test]
fn what_was_heard_in_the_simulator_makes_the_same_decisions() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    records().clear();
    simulate(&answers());
    replay();
}

#[cfg(target_os = "linux")]
#[test]
fn what_was_heard_in_the_lab_makes_the_same_decisions() {
    let test = "what_was_heard_in_the_lab_makes_the_same_decisions";
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(_lab) = super::lab::alone(test) else { return };
    if let Err(why) = bandmaster_linux::kernel::tcp::HostTcp::load() {
        super::machine::skip(test, why);
        return;
    }
    records().clear();
    super::lab::emulate(&answers());
    replay();
}
