//! What OpenTCP's statistics and CUEs cost in the paper's network, counted in the bytes that its roles really send, beside
//! the paper's Table 1.
//!
//! `BANDMASTER_BLESS=1 cargo test -p bandmaster-core --test opentcp_overhead` writes the golden table anew.

use std::fmt::Write as _;
use std::path::Path;

use bandmaster_core::control::{
    Action, FlowEnd, FlowStats, Message, Observation, Outbox, PortStats, SegmentCounts,
};
use bandmaster_core::id::{FlowId, NodeId, PortId};
use bandmaster_core::params::NamedText;
use bandmaster_core::scheme::opentcp::wire::HEADERS;
use bandmaster_core::scheme::opentcp::{Places, policies, roles};
use bandmaster_core::scheme::{PortInfo, Role, World};
use bandmaster_core::time::{Span, Time};
use bandmaster_core::units::{Bytes, Rate};

const RACKS: u32 = 92;
const HOSTS_PER_RACK: u32 = 42;
const HOSTS: u32 = RACKS * HOSTS_PER_RACK;
const CORE: NodeId = NodeId(HOSTS + RACKS);
/// Table 1: cycle in seconds, collection and CUE traffic in kbit/s.
const PAPER: [(u64, Option<(f64, f64)>); 4] =
    [(1, None), (60, Some((453.0, 530.0))), (300, Some((189.0, 252.0))), (600, Some((95.0, 75.0)))];

fn scinet() -> (World, Places) {
    let (edge, core) = (Rate::from_bits_per_sec(1_000_000_000), Rate::from_bits_per_sec(10_000_000_000));
    let mut world = World::default();
    world.nodes.extend((0..HOSTS).map(|n| format!("host.{n}")));
    world.nodes.extend((0..RACKS).map(|n| format!("tor.{n}")));
    world.nodes.push("core".to_owned());
    for rack in 0..RACKS {
        let tor = NodeId(HOSTS + rack);
        world.ports.push(PortInfo { from: CORE, to: tor, capacity: core });
        world.ports.push(PortInfo { from: tor, to: CORE, capacity: core });
        for place in 0..HOSTS_PER_RACK {
            let host = NodeId(rack * HOSTS_PER_RACK + place);
            world.ports.push(PortInfo { from: tor, to: host, capacity: edge });
            world.ports.push(PortInfo { from: host, to: tor, capacity: edge });
        }
    }
    let places = Places {
        oracle: NodeId(0),
        agents: (0..HOSTS).map(NodeId).collect(),
        switches: (HOSTS..=CORE.0).map(NodeId).collect(),
    };
    (world, places)
}

/// Calls a role when it wants to be called, in a network in which every host and port is busy; what it sends.
fn tick(role: &mut Role, world: &World) -> (Time, Vec<(NodeId, Vec<u8>)>) {
    let now = role.controller.wakeup().expect("a time").at;
    let seconds = now.as_secs_f64();
    let mut out = Outbox::default();
    if role.wants.ports {
        let port = |(number, port): (usize, &PortInfo)| {
            let sent = port.capacity.bits_per_sec() as f64 / 8.0 * 0.43 * seconds;
            let offered = (sent / 1000.0) as u64;
            PortStats {
                port: PortId(number as u32),
                capacity: port.capacity,
                flows_seen: 0,
                flows_open: 0,
                backlog: Bytes::new(12_000),
                sent: Bytes::new(sent as u64),
                offered,
                dropped: offered / 3000,
            }
        };
        let own = world.ports.iter().enumerate().filter(|(_, port)| port.from == role.node);
        let ports: Vec<PortStats> = own.map(port).collect();
        role.controller.on(now, &Observation::Tick { ports: &ports, flows: &[] }, &mut out);
    } else {
        let flow = |n| FlowStats {
            flow: FlowId(n),
            end: FlowEnd::Sender,
            delivered: Bytes::ZERO,
            srtt: Some(Span::from_micros(900)),
            min_rtt: None,
            last_rtt: None,
            mss: Bytes::new(1448),
            frame: Bytes::new(1514),
        };
        let flows: Vec<FlowStats> = (0..41).map(flow).collect();
        let counts = SegmentCounts { sent: (20_000.0 * seconds) as u64, resent: (8.0 * seconds) as u64 };
        for flow in &flows {
            role.controller.on(now, &Observation::FlowStarted(*flow), &mut out);
        }
        role.controller.on(now, &Observation::Sent(counts), &mut out);
        role.controller.on(now, &Observation::Tick { ports: &[], flows: &flows }, &mut out);
    }
    (now, sent(&mut out))
}

fn sent(out: &mut Outbox) -> Vec<(NodeId, Vec<u8>)> {
    let message = |action| match action {
        Action::Send { to, message: Message::Encoded(bytes), .. } => Some((to, bytes)),
        _ => None,
    };
    out.drain().filter_map(message).collect()
}

/// Bytes of statistics and of CUEs in the third cycle, and the messages of each kind.
fn bytes(cycle: Span) -> [(u64, usize); 2] {
    let (world, places) = scinet();
    let named = NamedText { name: "opentcp2".to_owned(), text: None };
    let mut policies = policies(&[named]).expect("it ships");
    (policies[0].cycle, policies[0].lease) = (cycle, cycle * 3);
    // Preconditions are not looked at between reports here: they cost no message.
    let mut roles = roles(policies, &world, &places, cycle, cycle * 1000);
    let size = |messages: &[(NodeId, Vec<u8>)]| -> u64 {
        messages.iter().map(|(_, bytes)| HEADERS + bytes.len() as u64).sum()
    };
    for role in &mut roles {
        assert!(tick(role, &world).1.is_empty(), "nobody has anything to say at the start");
    }
    let mut spent = [(0, 0); 2];
    for _ in 0..3 {
        let (oracle, others) = roles.split_first_mut().expect("an Oracle");
        let mut reports = Vec::new();
        for role in others.iter_mut() {
            let (now, messages) = tick(role, &world);
            for (_, bytes) in &messages {
                let mut out = Outbox::default();
                let message = Message::Encoded(bytes.clone());
                oracle.controller.on(now, &Observation::Message(&message), &mut out);
            }
            reports.extend(messages);
        }
        let (now, cues) = tick(oracle, &world);
        assert_eq!(cues.len(), HOSTS as usize, "a CUE for every agent");
        for ((to, bytes), role) in cues.iter().zip(others.iter_mut().filter(|role| !role.wants.ports)) {
            assert_eq!(*to, role.node);
            let mut out = Outbox::default();
            let message = Message::Encoded(bytes.clone());
            role.controller.on(now + Span::from_micros(1), &Observation::Message(&message), &mut out);
        }
        assert!(reports.len() > (HOSTS + RACKS) as usize);
        spent = [(size(&reports), reports.len()), (size(&cues), cues.len())];
    }
    spent
}

#[test]
fn statistics_and_cues_cost_a_tenth_of_what_the_paper_spent() {
    let mut table = "3864 hosts, 93 switches; kbit/s of IP and UDP\n\
                     cycle_s  collection   paper    CUEs   paper  bytes_per_report  bytes_per_cue\n"
        .to_owned();
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
            assert!(collection * 10.0 <= paper.0, "collection: {collection} kbit/s");
            assert!(updates * 10.0 <= paper.1, "CUEs: {updates} kbit/s");
        }
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden/opentcp-overhead.txt");
    if std::env::var_os("BANDMASTER_BLESS").is_some_and(|value| value == "1") {
        std::fs::write(&path, &table).expect("the table is written");
    }
    let golden = std::fs::read_to_string(&path).expect("golden/opentcp-overhead.txt");
    assert_eq!(golden, table);
}
