//! A scheme that does everything in vain.

use std::cell::RefCell;
use std::mem::take;

use bandmaster_core::control::{Action, Controller, Observation, Outbox, Subject};
use bandmaster_core::id::{FlowId, NodeId, PortId};
use bandmaster_core::params::Params;
use bandmaster_core::report::RunRecord;
use bandmaster_core::runtime::Refusal;
use bandmaster_core::runtime::inventory::Inventory;
use bandmaster_core::scenario::Scenario;
use bandmaster_core::scheme::{Act, Built, Place, RoleDef, SchemeDef, Wants};
use bandmaster_core::time::Time;
use bandmaster_core::units::{Bytes, Rate};

use super::{figure, scenario, simulate};

static STUBBORN: SchemeDef = SchemeDef {
    name: "stubborn",
    about: "Does everything in vain",
    source: "a test",
    code: 257,
    keys: &[],
    roles: &[ROLE],
    check: |_, _| Ok(()),
    fits: |_, _| Ok(()),
    place: |params, inventory, _| at_router(&ROLE, params, inventory),
    build: |_, _, _| Built::brain(Stubborn { next: Some(WHEN) }),
};

const ROLE: RoleDef = RoleDef {
    name: "stubborn",
    wants: Wants::NOTHING,
    acts: &[Act::SetWindow, Act::SetRate, Act::MeasureRtt, Act::Probe, Act::SetClass, Act::Send],
};

static TUNER: SchemeDef = SchemeDef {
    name: "tuner",
    about: "Changes the TCP of a router",
    source: "a test",
    code: 258,
    keys: &[],
    roles: &[TUNING],
    check: |_, _| Ok(()),
    fits: |_, _| Ok(()),
    place: |params, inventory, _| at_router(&TUNING, params, inventory),
    build: |_, _, _| Built::brain(Tuner { next: Some(WHEN) }),
};

const TUNING: RoleDef = RoleDef { name: "tuner", wants: Wants::NOTHING, acts: &[Act::Tune] };

/// After s has left.
const WHEN: Time = Time::from_nanos(100_000_000);
/// What is not there.
const NOBODY: NodeId = NodeId(99);
const NOTHING: FlowId = FlowId(99);
const NOWHERE: PortId = PortId(99);
/// Nodes and ports as the scenario numbers them.
const B: NodeId = NodeId(3);
const S: NodeId = NodeId(1);
const PLAIN: PortId = PortId(0);
const SHAPED: PortId = PortId(2);

thread_local! {
    /// What roles of this thread's run have been refused.
    static REFUSED: RefCell<Vec<(Subject, Refusal)>> = const { RefCell::new(Vec::new()) };
}

/// At r, with a way to s.
fn at_router(role: &'static RoleDef, params: &Params, inventory: &Inventory) -> Vec<Place> {
    let node = |name| inventory.node(name).expect("a node of the scenario");
    let named = [("b", B), ("s", S)].map(|(name, number)| (node(name), number));
    assert!(named.iter().all(|(found, number)| found == number), "{named:?}");
    let ports =
        [("r->a", PLAIN), ("r->s", SHAPED)].map(|(name, number)| (inventory.port_named(name), number));
    assert!(ports.iter().all(|(found, number)| *found == Some(*number)), "{ports:?}");
    let peers = if role.acts.contains(&Act::Probe) { vec![(S, &ROLE)] } else { Vec::new() };
    vec![Place { peers, ..Place::new(role, node("r"), params.clone()) }]
}

/// What it does once, and what each is about.
fn in_vain() -> Vec<(Action, Subject)> {
    let mbit = Rate::from_bits_per_sec(1_000_000);
    let window = Bytes::new(3000);
    let set_window = |flow| (Action::SetWindow { flow, window }, Subject::Flow(flow));
    let set_rate = |flow| (Action::SetRate { flow, rate: mbit, window }, Subject::Flow(flow));
    let measure_rtt = |flow| (Action::MeasureRtt { flow }, Subject::Flow(flow));
    let probe = |to| (Action::Probe { to, payload: vec![1, 2, 3] }, Subject::Node(to));
    let send = |to| (Action::Send { to, body: vec![1] }, Subject::Node(to));
    let set_class =
        |port, class, rate, ceil| (Action::SetClass { port, class, rate, ceil }, Subject::Class(port, class));
    vec![
        set_window(NOTHING),
        set_rate(NOTHING),
        measure_rtt(NOTHING),
        // Passes by, and does not end here.
        set_window(FlowId(0)),
        set_rate(FlowId(0)),
        measure_rtt(FlowId(0)),
        // Not a peer, gone, never there.
        probe(B),
        probe(S),
        probe(NOBODY),
        send(S),
        send(NOBODY),
        set_class(PLAIN, None, mbit, mbit),
        set_class(PLAIN, Some(0), mbit, mbit),
        set_class(NOWHERE, None, mbit, mbit),
        set_class(SHAPED, Some(7), mbit, mbit),
        // No class can have these.
        set_class(SHAPED, Some(0), mbit, Rate::from_bits_per_sec(1)),
        set_class(SHAPED, None, Rate::ZERO, mbit),
    ]
}

struct Stubborn {
    next: Option<Time>,
}

impl Controller for Stubborn {
    fn on(&mut self, _now: Time, observation: &Observation<'_>, out: &mut Outbox) {
        match observation {
            Observation::Tick { .. } => {
                self.next = None;
                in_vain().into_iter().for_each(|(action, _)| out.push(action));
            }
            Observation::Refused { subject, why } => {
                REFUSED.with_borrow_mut(|refused| refused.push((*subject, *why)));
                // Its refusal is counted but not reported: otherwise this would not end.
                if *subject == Subject::Node(B) {
                    out.push(Action::Send { to: NOBODY, body: Vec::new() });
                }
            }
            // Not refused.
            Observation::Joined(node) => out.push(Action::Send { to: *node, body: Vec::new() }),
            _ => {}
        }
    }

    fn wakeup(&self) -> Option<Time> {
        self.next
    }
}

struct Tuner {
    next: Option<Time>,
}

impl Controller for Tuner {
    fn on(&mut self, _now: Time, observation: &Observation<'_>, out: &mut Outbox) {
        match observation {
            Observation::Tick { .. } => {
                self.next = None;
                out.push(Action::Tune { tuning: Default::default() });
            }
            Observation::Refused { subject, why } => {
                REFUSED.with_borrow_mut(|refused| refused.push((*subject, *why)));
            }
            _ => {}
        }
    }

    fn wakeup(&self) -> Option<Time> {
        self.next
    }
}

fn with(scheme: &'static SchemeDef) -> Scenario {
    let text = format!(
        r#"
        version = 1
        name = "in-vain"
        [run]
        duration = "500ms"
        [network]
        hosts = ["a", "b"]
        routers = ["r", "s"]
        host-delay = 0.0
        [network.link]
        rate = "10mbit"
        delay = "1ms"
        [[network.links]]
        ends = ["r", "a"]
        [[network.links]]
        ends = ["r", "s"]
        [network.links.queue]
        discipline = "htb"
        rate = "5mbit"
        limit = "50pkt"
        direct = [48]
        [[network.links.queue.classes]]
        name = "all"
        dscp = [0]
        rate = "1mbit"
        [[network.links]]
        ends = ["s", "b"]
        [[flows]]
        name = "bulk"
        from = "a"
        to = "b"
        [[faults.absences]]
        node = "s"
        leaves = ["50ms"]
        joins = ["300ms"]
        [schemes.{}]
        "#,
        scheme.name
    );
    scenario(&text, &[scheme])
}

fn check(record: &RunRecord) {
    let refused = REFUSED.with_borrow_mut(take);
    let expected: Vec<_> = in_vain().into_iter().map(|(_, subject)| (subject, Refusal::Unknown)).collect();
    assert_eq!(refused, expected);
    assert_eq!(
        figure(record, "refusals"),
        expected.len() as f64 + 1.0,
        "the reported ones, and an answer to one"
    );
    // The one message that goes: 28 + 27 bytes in 0.5 s. What is refused costs nothing.
    assert_eq!(figure(record, "control_rate"), 55.0 * 8.0 / 1e3 / 0.5);
}

#[test]
fn what_the_simulator_refuses_comes_back() {
    check(&simulate(&with(&STUBBORN)));
}

#[test]
#[cfg(target_os = "linux")]
fn what_the_lab_refuses_comes_back() {
    let Some(_alone) = super::lab::alone("what_the_lab_refuses_comes_back") else { return };
    check(&super::lab::emulate(&with(&STUBBORN)));
}

#[test]
fn a_router_has_no_tcp_to_tune() {
    let record = simulate(&with(&TUNER));
    assert_eq!(REFUSED.with_borrow_mut(take), [(Subject::Tcp, Refusal::Unknown)]);
    assert_eq!(figure(&record, "refusals"), 1.0);
}

#[test]
#[cfg(target_os = "linux")]
fn a_router_of_the_lab_has_none_either() {
    let Some(_alone) = super::lab::alone("a_router_of_the_lab_has_none_either") else { return };
    let record = super::lab::emulate(&with(&TUNER));
    assert_eq!(REFUSED.with_borrow_mut(take), [(Subject::Tcp, Refusal::Unknown)]);
    assert_eq!(figure(&record, "refusals"), 1.0);
}
