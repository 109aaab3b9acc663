//! The paper's network, in which OpenTCP's roles run on statistics that are made up: every host and port is busy, and no
//! message is late. For the test of what they send and the bench of what they compute.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::{IpAddr, Ipv4Addr};

use bandmaster_core::control::{
    FlowEnd, FlowKey, FlowStart, FlowStats, Message, Observation, PortStats, SegmentCounts,
};
use bandmaster_core::id::{FlowId, NodeId, PortId};
use bandmaster_core::params::{NamedText, Params, Value};
use bandmaster_core::port::flow_counter::Reader;
use bandmaster_core::runtime::inventory::Inventory;
use bandmaster_core::runtime::{Host, Refusal, Runner, envelope};
use bandmaster_core::scheme::opentcp::{AGENT, DEF, ORACLE, Sites, places, policies};
use bandmaster_core::scheme::{Act, Role};
use bandmaster_core::time::{Span, Time};
use bandmaster_core::tuning::Tuning;
use bandmaster_core::units::{Bytes, Rate};

/// Racks of the paper's network.
pub(crate) const RACKS: u32 = 92;
pub(crate) const HOSTS_PER_RACK: u32 = 42;
/// Live on each host, and begun and ended in each cycle.
pub(crate) const FLOWS: u32 = 41;

/// Who works.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    Agents,
    Switches,
    Oracle,
}

/// What one part has done in a cycle.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Work {
    /// Times that its roles were called: by a time, a message or a flow.
    pub(crate) calls: u64,
    /// Statistics of ports and flows that it read.
    pub(crate) read: u64,
    /// Messages that it sent, and their bytes of IP.
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
}

/// Roles of one part, and what they see of the network.
struct Side {
    runner: Runner,
    view: View,
}

struct View {
    now: Time,
    ports: Vec<Vec<(PortId, Rate)>>,
    wakes: BinaryHeap<Reverse<(Time, usize)>>,
    sent: Vec<(Time, NodeId, Message)>,
    tuned: usize,
    work: Work,
}

/// What comes to a side from outside.
enum Input {
    Message(Message),
    /// [`FLOWS`] flows end and as many begin.
    Flows,
}

/// The network.
pub(crate) struct Scinet {
    cycle: Span,
    done: u64,
    hosts: u32,
    sides: [Side; 3],
    cues: Vec<(Time, NodeId, Message)>,
}

impl Scinet {
    /// `racks` of the paper's racks and a core, under a policy that ships.
    pub(crate) fn new(racks: u32, policy: &str, cycle: Span, look: Span) -> Self {
        let (inventory, sites) = network(racks);
        let files = vec![NamedText { name: policy.to_owned(), text: None }];
        let policies = policies(&files).expect("it ships");
        let mut params = Params::defaults(DEF.keys);
        params.set("policies", Value::Files(files));
        params.set("cycle", Value::Span(cycle));
        params.set("look", Value::Span(look));
        let mut roles = [Vec::new(), Vec::new(), Vec::new()];
        for place in places(&params, &policies, &sites) {
            let part = match place.role.name {
                name if name == ORACLE.name => Part::Oracle,
                name if name == AGENT.name => Part::Agents,
                _ => Part::Switches,
            };
            roles[part as usize].push(Role::new(&DEF, place, &inventory, None));
        }
        let sides = roles.map(|roles| {
            let mut view = View {
                now: Time::ZERO,
                ports: vec![Vec::new(); inventory.nodes()],
                wakes: BinaryHeap::new(),
                sent: Vec::new(),
                tuned: 0,
                work: Work::default(),
            };
            for (number, port) in inventory.ports() {
                view.ports[port.from.index()].push((number, port.capacity));
            }
            let mut runner = Runner::new::<View>(roles, inventory.clone()).expect("a network can do that");
            runner.begin(&mut view, Time::ZERO);
            Side { runner, view }
        });
        Self { cycle, done: 0, hosts: racks * HOSTS_PER_RACK, sides, cues: Vec::new() }
    }

    /// One cycle; `measured` is called for each stretch of work of one part, and has to do it. CUEs are applied in the
    /// cycle after.
    pub(crate) fn cycle(&mut self, mut measured: impl FnMut(Part, &mut dyn FnMut())) -> [Work; 3] {
        let at = |share: f64| Time::ZERO + self.cycle * self.done + self.cycle.mul_f64(share);
        let (begin, middle, end) = (at(0.0), at(0.5), at(1.0));
        self.sides.iter_mut().for_each(|side| side.view.work = Work::default());
        let mut to_agents: Vec<(Time, NodeId, Input)> = std::mem::take(&mut self.cues)
            .into_iter()
            .map(|(_, to, message)| (begin, to, Input::Message(message)))
            .collect();
        to_agents.extend((0..self.hosts).map(|host| (middle, NodeId(host), Input::Flows)));
        let before_the_end = Time::from_nanos(end.as_nanos() - 1);
        let [agents, switches, oracle] = &mut self.sides;
        measured(Part::Agents, &mut || agents.run(std::mem::take(&mut to_agents), before_the_end));
        measured(Part::Switches, &mut || switches.run(Vec::new(), before_the_end));
        let mut reports: Vec<_> = agents.view.sent.drain(..).chain(switches.view.sent.drain(..)).collect();
        reports.sort_by_key(|(at, ..)| *at);
        let mut reports = reports.into_iter().map(|(at, to, said)| (at, to, Input::Message(said))).collect();
        measured(Part::Oracle, &mut || oracle.run(std::mem::take(&mut reports), end));
        self.cues.append(&mut oracle.view.sent);
        self.done += 1;
        self.sides.each_ref().map(|side| side.view.work)
    }

    /// Times that a host's TCP was changed, and acts that were refused.
    pub(crate) fn tuned_and_refused(&self) -> (usize, u64) {
        let [agents, ..] = &self.sides;
        (agents.view.tuned, self.sides.iter().map(|side| side.runner.refusals().total()).sum())
    }
}

fn network(racks: u32) -> (Inventory, Sites) {
    let hosts = racks * HOSTS_PER_RACK;
    let (edge, core) = (Rate::from_bits_per_sec(1_000_000_000), Rate::from_bits_per_sec(10_000_000_000));
    let mut all = Inventory::default();
    let names = (0..hosts).map(|n| format!("host.{n}"));
    for name in names.chain((0..racks).map(|n| format!("tor.{n}"))).chain(["core".to_owned()]) {
        all.join(&name);
    }
    let middle = NodeId(hosts + racks);
    assert_eq!(all.node("core"), Some(middle));
    let mut add =
        |from: NodeId, to: NodeId, rate| all.add_port(&format!("{}->{}", from.0, to.0), from, to, rate);
    for rack in 0..racks {
        let tor = NodeId(hosts + rack);
        add(middle, tor, core);
        add(tor, middle, core);
        for place in 0..HOSTS_PER_RACK {
            let host = NodeId(rack * HOSTS_PER_RACK + place);
            add(tor, host, edge);
            add(host, tor, edge);
        }
    }
    let sites = Sites {
        oracle: NodeId(0),
        agents: (0..hosts).map(NodeId).collect(),
        switches: (hosts..=middle.0).map(NodeId).collect(),
    };
    (all, sites)
}

impl Side {
    /// What comes from outside, in order of time, and what the roles wanted to be woken for, up to `until`.
    fn run(&mut self, inputs: Vec<(Time, NodeId, Input)>, until: Time) {
        for (at, node, input) in inputs {
            self.wake_before(at);
            self.view.now = at;
            match input {
                Input::Message(message) => self.tell(at, node, &Observation::Message(&message)),
                Input::Flows => {
                    let any = (IpAddr::from(Ipv4Addr::UNSPECIFIED), 0);
                    let key = FlowKey { from: any, to: any, protocol: 6 };
                    for n in 0..FLOWS {
                        self.tell(at, node, &Observation::FlowEnded(FlowId(n)));
                        let start = FlowStart { stats: flow(n), key, route: &[] };
                        self.tell(at, node, &Observation::FlowStarted(start));
                    }
                }
            }
        }
        self.wake_before(Time::from_nanos(until.as_nanos() + 1));
        self.view.now = until;
    }

    fn tell(&mut self, at: Time, node: NodeId, observation: &Observation<'_>) {
        self.view.work.calls += 1;
        self.runner.observe(&mut self.view, at, node, observation);
    }

    fn wake_before(&mut self, time: Time) {
        while let Some(&Reverse((at, role))) = self.view.wakes.peek()
            && at < time
        {
            self.view.wakes.pop();
            self.view.now = at;
            self.view.work.calls += 1;
            self.runner.wake(&mut self.view, role, at, at);
        }
    }
}

impl Host for View {
    const ACTS: &'static [Act] = &[Act::Tune, Act::Send, Act::Watch];

    fn wake(&mut self, role: usize, at: Time) {
        self.wakes.push(Reverse((at, role)));
    }

    fn port_stats(&mut self, now: Time, node: NodeId, _reader: &mut Reader) -> Vec<PortStats> {
        let port = |&(port, capacity): &(PortId, Rate)| {
            let sent = capacity.bits_per_sec() as f64 / 8.0 * 0.43 * now.as_secs_f64();
            let offered = (sent / 1000.0) as u64;
            PortStats {
                port,
                capacity,
                flows: None,
                backlog: Some(Bytes::new(12_000)),
                sent: Bytes::new(sent as u64),
                offered,
                dropped: offered / 3000,
            }
        };
        let ports = &self.ports[node.index()];
        self.work.read += ports.len() as u64;
        ports.iter().map(port).collect()
    }

    fn flow_stats(&mut self, _now: Time, _node: NodeId) -> Vec<FlowStats> {
        self.work.read += u64::from(FLOWS);
        (0..FLOWS).map(flow).collect()
    }

    fn segments(&mut self, _node: NodeId) -> SegmentCounts {
        let seconds = self.now.as_secs_f64();
        SegmentCounts { sent: (20_000.0 * seconds) as u64, resent: (8.0 * seconds) as u64 }
    }

    fn send(&mut self, now: Time, to: NodeId, message: Message) -> Result<(), Refusal> {
        self.work.messages += 1;
        self.work.bytes += envelope::size(&message);
        self.sent.push((now, to, message));
        Ok(())
    }

    fn tune(&mut self, _node: NodeId, _tuning: Tuning) -> Result<(), Refusal> {
        self.tuned += 1;
        Ok(())
    }
}

fn flow(n: u32) -> FlowStats {
    FlowStats {
        flow: FlowId(n),
        end: FlowEnd::Sender,
        delivered: Bytes::ZERO,
        srtt: Some(Span::from_micros(900)),
        min_rtt: None,
        last_rtt: None,
        mss: Bytes::new(1448),
        frame: Bytes::new(1514),
    }
}
