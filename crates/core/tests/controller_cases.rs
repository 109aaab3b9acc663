//! What random sequences of observations (`controllers.rs`) have found, one case each.

use std::net::IpAddr;

use bandmaster_core::control::{FlowEnd, FlowKey, FlowStart, FlowStats, Gauges, Message, Observation};
use bandmaster_core::id::{FlowId, NodeId, PortId};
use bandmaster_core::params::{NamedText, Params, Value};
use bandmaster_core::port::window::Segment;
use bandmaster_core::runtime::inventory::{Change, Inventory};
use bandmaster_core::runtime::{Host, Refusal, Runner};
use bandmaster_core::scheme::bas::shares::{Rounding, window};
use bandmaster_core::scheme::qcbf::law::{Law, Terms};
use bandmaster_core::scheme::{Act, Role, SchemeDef, bas, er2bc, opentcp};
use bandmaster_core::time::{Span, Time};
use bandmaster_core::tuning::Tuning;
use bandmaster_core::units::{Bytes, Rate};

/// Keeps what it is given, and tells of one flow.
#[derive(Default)]
struct Machine {
    delivered: u64,
    timers: Vec<(usize, Time)>,
    messages: Vec<(NodeId, Message)>,
    coverage: f64,
}

impl Host for Machine {
    const ACTS: &'static [Act] = &Act::ACTIONS;

    fn wake(&mut self, role: usize, at: Time) {
        self.timers.push((role, at));
    }

    fn flow_stats(&mut self, _now: Time, _node: NodeId) -> Vec<FlowStats> {
        vec![FlowStats {
            flow: FlowId(0),
            end: FlowEnd::Receiver,
            delivered: Bytes::new(self.delivered),
            srtt: None,
            min_rtt: None,
            last_rtt: None,
            mss: Bytes::new(1448),
            frame: Bytes::new(1538),
        }]
    }

    fn show(&mut self, _role: usize, _now: Time, gauges: &Gauges) {
        if let Some((_, coverage)) = gauges.values().iter().find(|(name, _)| *name == "coverage") {
            self.coverage = *coverage;
        }
    }

    fn send(&mut self, _now: Time, to: NodeId, message: Message) -> Result<(), Refusal> {
        self.messages.push((to, message));
        Ok(())
    }

    fn tune(&mut self, _node: NodeId, _tuning: Tuning) -> Result<(), Refusal> {
        Ok(())
    }
}

const SERVER: NodeId = NodeId(0);
const ROUTER: NodeId = NodeId(1);

/// A server and its router, with two parallel links, and somebody else.
fn inventory() -> Inventory {
    let mut inventory = Inventory::default();
    let [server, router, _] = ["server", "router", "other"].map(|name| inventory.join(name));
    for _ in 0..2 {
        inventory.add_port("server->router", server, router, Rate::from_bits_per_sec(1_000_000));
        inventory.add_port("router->server", router, server, Rate::from_bits_per_sec(1_000_000));
    }
    inventory
}

fn text(text: &str) -> Value {
    Value::Text(text.to_owned())
}

fn list(all: &[&str]) -> Value {
    Value::List(all.iter().map(|text| (*text).to_owned()).collect())
}

/// The roles of a scheme in that network.
fn runner(scheme: &'static SchemeDef, values: &[(&'static str, Value)]) -> Runner {
    let mut params = Params::defaults(scheme.keys);
    values.iter().for_each(|(key, value)| params.set(key, value.clone()));
    let inventory = inventory();
    let places = (scheme.place)(&params, &inventory, &[]);
    let roles = places.into_iter().map(|place| Role::new(scheme, place, &inventory, None)).collect();
    Runner::new::<Machine>(roles, inventory).expect("the machine can do that")
}

fn bas(allocator: &str) -> Runner {
    let domain = list(&["server", "router"]);
    runner(&bas::DEF, &[("servers", list(&["server"])), ("domain", domain), ("allocator", text(allocator))])
}

/// Wakes every role that wants to be woken next.
fn wake(runner: &mut Runner, machine: &mut Machine) -> Time {
    let due = machine.timers.iter().map(|(_, at)| *at).min().expect("a timer");
    let (now, later) = std::mem::take(&mut machine.timers).into_iter().partition(|(_, at)| *at == due);
    machine.timers = later;
    let now: Vec<(usize, Time)> = now;
    now.into_iter().for_each(|(role, at)| runner.wake(machine, role, at, at));
    due
}

/// Another flow may have the number of one that has ended.
#[test]
fn bas_takes_a_counter_that_goes_back_for_nothing_delivered() {
    let (mut runner, mut machine) = (bas("bas"), Machine { delivered: 5_000, ..Machine::default() });
    runner.begin(&mut machine, Time::ZERO);
    let mut reports = Vec::new();
    for delivered in [5_000, 5_000, 7, 7] {
        machine.delivered = delivered;
        for _ in 0..2 {
            wake(&mut runner, &mut machine);
        }
        // The server counts flows on its ports too, as routers do: the first byte tells the word.
        let from_host = |(to, message): &(NodeId, Message)| {
            *to == SERVER && message.from == SERVER && message.body.first() == Some(&1)
        };
        reports.extend(machine.messages.drain(..).filter(from_host).map(|(_, message)| message.body));
    }
    assert_eq!((reports.len(), &reports[1]), (4, &reports[2]), "nothing was delivered in either interval");
}

/// Or the flows of a host that is gone, whose last words come late, would take their share for ever.
#[test]
fn bas_hears_hosts_and_routers_that_are_there() {
    let (mut runner, mut machine) = (bas("max-min"), Machine::default());
    let observe = |runner: &mut Runner, machine: &mut Machine, observation: &Observation<'_>| {
        runner.observe(machine, Time::ZERO, SERVER, observation);
        std::mem::take(&mut machine.messages)
    };
    runner.begin(&mut machine, Time::ZERO);
    let address = (IpAddr::from([10, 0, 0, 1]), 80);
    let key = FlowKey { from: address, to: address, protocol: 6 };
    let stats = machine.flow_stats(Time::ZERO, SERVER)[0];
    let route = [PortId(1)];
    let start = FlowStart { stats, key, route: &route };
    let said = observe(&mut runner, &mut machine, &Observation::FlowStarted(start));
    let started = said.into_iter().map(|(_, message)| message).next().expect("tells of the flow");
    let stranger = Message { from: NodeId(2), ..started.clone() };
    assert_eq!(observe(&mut runner, &mut machine, &Observation::Message(&stranger)), []);
    let answer = |said: Vec<(NodeId, Message)>| said.into_iter().map(|(to, _)| to).collect::<Vec<_>>();
    assert_eq!(answer(observe(&mut runner, &mut machine, &Observation::Message(&started))), [SERVER]);
    observe(&mut runner, &mut machine, &Observation::Left(SERVER));
    assert_eq!(observe(&mut runner, &mut machine, &Observation::Message(&started)), []);
    observe(&mut runner, &mut machine, &Observation::Joined(SERVER));
    assert_eq!(answer(observe(&mut runner, &mut machine, &Observation::Message(&started))), [SERVER]);
}

/// A rate that no link has, for a round trip of an hour.
#[test]
fn sums_of_extreme_values_stop_at_the_largest() {
    let hour = Span::from_secs(3_600);
    let most = window(1.8e19, hour, Bytes::new(65_495), Bytes::new(90), Rounding::Up);
    assert_eq!(most, Bytes::new(u64::MAX));
    let terms = Terms { pipe: 9, rtt: hour, queue: u64::MAX, turn: 2, initial_window: 10, ageing: hour };
    let law = Law::new(terms);
    let (flow, mss, frame) = (FlowId(0), 1448, 1538);
    let (syn, fin, rst) = (true, false, false);
    let segment = Segment { flow, syn, fin, rst, offset: 0, window: 0, mss, frame, scale: 128, paths: 1 };
    assert_eq!((law.budget(), law.field(&segment)), (u64::MAX, law.window(mss, frame)));
    let largest = Value::Rate(Rate::from_bits_per_sec(u64::MAX));
    let needs = list(&["18000000tbit", "18000000tbit"]);
    let mut values = vec![("port", text("router->server")), ("receiver", text("server")), ("needs", needs)];
    values.extend(["class-floor", "initial", "ceiling"].map(|key| (key, largest.clone())));
    runner(&er2bc::DEF, &values).begin(&mut Machine::default(), Time::ZERO);
}

/// The checks of a scenario look at the queue of that one.
#[test]
fn a_name_is_that_of_the_first_parallel_link() {
    let (inventory, name) = (inventory(), "router->server");
    assert_eq!(inventory.port_named(name).map(|port| port.0), Some(1));
    assert_eq!(inventory.ports().filter(|(_, port)| port.from == ROUTER).count(), 2);
}

/// The last report of a host that leaves comes after it has gone.
#[test]
fn the_oracle_counts_nobody_who_is_away() {
    let policy = NamedText { name: "example2".to_owned(), text: None };
    let agents = ("agents", list(&["server", "other"]));
    let cycle = ("cycle", Value::Span(Span::from_secs(1)));
    let mut runner = runner(&opentcp::DEF, &[("policies", Value::Files(vec![policy])), agents, cycle]);
    let mut machine = Machine::default();
    runner.begin(&mut machine, Time::ZERO);
    let is_report = |(_, message): &&(NodeId, Message)| message.from == NodeId(2);
    while machine.messages.iter().find(is_report).is_none() {
        wake(&mut runner, &mut machine);
    }
    let now = Time::ZERO + Span::from_millis(990);
    runner.change(&mut machine, now, NodeId(2), Change::Leave);
    for (_, message) in std::mem::take(&mut machine.messages) {
        runner.observe(&mut machine, now, SERVER, &Observation::Message(&message));
    }
    while wake(&mut runner, &mut machine) < Time::ZERO + Span::from_secs(1) {}
    assert_eq!(machine.coverage, 1.0, "the one that is there was heard");
}
