//! What OpenTCP's statistics and CUEs cost in the paper's network, counted in the bytes that its roles really send, beside
//! the paper's Table 1.
//!
//! `BANDMASTER_BLESS=1 cargo test -p bandmaster-core --test opentcp_overhead` writes the golden table anew.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use bandmaster_core::control::{
    FlowEnd, FlowKey, FlowStart, FlowStats, Message, Observation, PortStats, SegmentCounts,
};
use bandmaster_core::id::{FlowId, NodeId, PortId};
use bandmaster_core::params::{NamedText, Params, Value};
use bandmaster_core::port::flow_counter::Reader;
use bandmaster_core::runtime::inventory::Inventory;
use bandmaster_core::runtime::{Host, Refusal, Runner, envelope};
use bandmaster_core::scheme::opentcp::{AGENT, DEF, Sites, places, policies};
use bandmaster_core::scheme::{Act, Role};
use bandmaster_core::time::{Span, Time};
use bandmaster_core::tuning::Tuning;
use bandmaster_core::units::{Bytes, Rate};

const RACKS: u32 = 92;
const HOSTS_PER_RACK: u32 = 42;
const HOSTS: u32 = RACKS * HOSTS_PER_RACK;
/// Live on each host, and begun in each cycle.
const FLOWS: u32 = 41;
const CORE: NodeId = NodeId(HOSTS + RACKS);
/// Table 1: cycle in seconds, collection and CUE traffic in kbit/s.
const PAPER: [(u64, Option<(f64, f64)>); 4] =
    [(1, None), (60, Some((453.0, 530.0))), (300, Some((189.0, 252.0))), (600, Some((95.0, 75.0)))];

fn scinet() -> (Inventory, Sites) {
    let (edge, core) = (Rate::from_bits_per_sec(1_000_000_000), Rate::from_bits_per_sec(10_000_000_000));
    let mut all = Inventory::default();
    let hosts = (0..HOSTS).map(|n| format!("host.{n}"));
    for name in hosts.chain((0..RACKS).map(|n| format!("tor.{n}"))).chain(["core".to_owned()]) {
        all.join(&name);
    }
    assert_eq!(all.node("core"), Some(CORE));
    let mut add =
        |from: NodeId, to: NodeId, rate| all.add_port(&format!("{}->{}", from.0, to.0), from, to, rate);
    for rack in 0..RACKS {
        let tor = NodeId(HOSTS + rack);
        add(CORE, tor, core);
        add(tor, CORE, core);
        for place in 0..HOSTS_PER_RACK {
            let host = NodeId(rack * HOSTS_PER_RACK + place);
            add(tor, host, edge);
            add(host, tor, edge);
        }
    }
    let sites = Sites {
        oracle: NodeId(0),
        agents: (0..HOSTS).map(NodeId).collect(),
        switches: (HOSTS..=CORE.0).map(NodeId).collect(),
    };
    (all, sites)
}

/// A network in which every host and port is busy, and no message is late.
struct Network {
    now: Time,
    ports: Vec<Vec<(PortId, Rate)>>,
    wakes: BinaryHeap<Reverse<(Time, usize)>>,
    messages: VecDeque<(NodeId, Message)>,
    tuned: usize,
}

impl Host for Network {
    const ACTS: &'static [Act] = &[Act::Tune, Act::Send];

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
                flows_seen: 0,
                flows_open: 0,
                backlog: Bytes::new(12_000),
                sent: Bytes::new(sent as u64),
                offered,
                dropped: offered / 3000,
            }
        };
        self.ports[node.index()].iter().map(port).collect()
    }

    fn flow_stats(&mut self, _now: Time, _node: NodeId) -> Vec<FlowStats> {
        (0..FLOWS).map(flow).collect()
    }

    fn segments(&mut self, _node: NodeId) -> SegmentCounts {
        let seconds = self.now.as_secs_f64();
        SegmentCounts { sent: (20_000.0 * seconds) as u64, resent: (8.0 * seconds) as u64 }
    }

    fn send(&mut self, _now: Time, to: NodeId, message: Message) -> Result<(), Refusal> {
        self.messages.push_back((to, message));
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

/// Bytes of statistics and of CUEs in the third cycle, and the messages of each kind.
fn bytes(cycle: Span) -> [(u64, usize); 2] {
    let (inventory, sites) = scinet();
    let files = vec![NamedText { name: "opentcp2".to_owned(), text: None }];
    let policies = policies(&files).expect("it ships");
    let mut params = Params::defaults(DEF.keys);
    params.set("policies", Value::Files(files));
    params.set("cycle", Value::Span(cycle));
    // Preconditions are not looked at between reports here: they cost no message.
    params.set("look", Value::Span(cycle * 1000));
    let role = |place| Role::new(&DEF, place, &inventory, None);
    let roles: Vec<Role> = places(&params, &policies, &sites).into_iter().map(role).collect();
    let agents: Vec<Option<NodeId>> =
        roles.iter().map(|role| (role.place.role.name == AGENT.name).then_some(role.place.node)).collect();
    let mut network = Network {
        now: Time::ZERO,
        ports: vec![Vec::new(); inventory.nodes()],
        wakes: BinaryHeap::new(),
        messages: VecDeque::new(),
        tuned: 0,
    };
    for (number, port) in inventory.ports() {
        network.ports[port.from.index()].push((number, port.capacity));
    }
    let mut runner = Runner::new::<Network>(roles, inventory.clone()).expect("a network can do that");
    runner.begin(&mut network, Time::ZERO);
    let any = (IpAddr::from(Ipv4Addr::UNSPECIFIED), 0);
    let key = FlowKey { from: any, to: any, protocol: 6 };
    let mut spent = [[(0, 0); 2]; 4];
    while let Some(Reverse((at, role))) = network.wakes.pop()
        && at <= Time::ZERO + cycle * 3
    {
        network.now = at;
        for (node, n) in agents[role].iter().flat_map(|node| (0..FLOWS).map(move |n| (*node, n))) {
            let start = FlowStart { stats: flow(n), key, route: &[] };
            runner.observe(&mut network, at, node, &Observation::FlowStarted(start));
        }
        runner.wake(&mut network, role, at, at);
        while let Some((to, message)) = network.messages.pop_front() {
            // The Oracle has the number 0, and speaks at the end of the cycle.
            let kind = usize::from(role == 0);
            let begun = at.as_nanos().div_ceil(cycle.as_nanos()) as usize;
            let (bytes, messages) = &mut spent[begun][kind];
            (*bytes, *messages) = (*bytes + envelope::size(&message), *messages + 1);
            runner.observe(&mut network, at, to, &Observation::Message(&message));
        }
    }
    assert_eq!(spent[0], [(0, 0); 2], "nobody has anything to say at the start");
    for [reports, cues] in &spent[1..] {
        assert_eq!(cues.1, HOSTS as usize, "a CUE for every agent");
        assert!(reports.1 > (HOSTS + RACKS) as usize);
    }
    // Each agent clears its host's settings at the start, and changes them with its first CUE.
    assert_eq!((network.tuned, runner.refusals().total()), (2 * HOSTS as usize, 0));
    spent[3]
}

#[test]
fn statistics_and_cues_cost_a_tenth_of_what_the_paper_spent() {
    let mut table = "3864 hosts, 93 switches; kbit/s of IP and UDP\n\
                     cycle_s  collection   paper    CUEs   paper  bytes_per_report  bytes_per_cue\n"
        .to_owned();
    let mut bounds = [("", f64::NAN, 0.0); 2];
    for (seconds, paper) in PAPER {
        let [reports, cues] = bytes(Span::from_secs(seconds));
        let rate = |bytes: u64| bytes as f64 * 8.0 / 1000.0 / seconds as f64;
        let (collection, updates) = (rate(reports.0), rate(cues.0));
        let shown = |rate: Option<f64>| rate.map_or_else(|| "-".to_owned(), |x| format!("{x:.0}"));
        let _ = writeln!(
            table,
            "{seconds:>7} {collection:>11.1} {:>7} {updates:>7.1} {:>7} {:>17.1} {:>14.1}",
            shown(paper.map(|p| p.0)),
            shown(paper.map(|p| p.1)),
            reports.0 as f64 / reports.1 as f64,
            cues.0 as f64 / cues.1 as f64,
        );
        if let (60, Some(paper)) = (seconds, paper) {
            bounds = [("collection", collection, paper.0), ("CUEs", updates, paper.1)];
        }
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden/opentcp-overhead.txt");
    if std::env::var_os("BANDMASTER_BLESS").is_some_and(|value| value == "1") {
        std::fs::write(&path, &table).expect("the table is written");
    }
    let golden = std::fs::read_to_string(&path).expect("golden/opentcp-overhead.txt");
    assert_eq!(golden, table);
    for (what, spent, paper) in bounds {
        assert!(spent * 10.0 <= paper, "{what}: {spent} kbit/s");
    }
}
