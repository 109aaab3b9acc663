//! Bytes that come from a network.

use core::cell::Cell;

use bandmaster_core::control::Message;
use bandmaster_core::controller::{self, Host};
use bandmaster_core::id::NodeId;
use bandmaster_core::runtime::envelope::{Key, Line};
use bandmaster_core::scheme::er2bc::probe::{self, Auth, Body, Counters, Endpoint, Seq};
use bandmaster_core::scheme::opentcp::condition::{Condition, Scope};
use bandmaster_core::scheme::opentcp::wire;
use bandmaster_core::scheme::opentcp::{self, DEF as OPENTCP};
use bandmaster_core::sketch::{self, About, Histogram, Kept, Row, Way};
use bandmaster_core::time::{Span, Time};
use bandmaster_core::whatif::{Network, Plan, Policies, Recording};
use bandmaster_fuzz::{INPUTS, Source, Target, bend, turn};

use crate::parsers::NoFiles;

const SMALL: u64 = 32 << 20;

fn key() -> Key {
    Key::new(&[7; 32]).expect("long enough")
}

/// Raw bytes, or real ones with a few that are not.
fn bytes_or(source: &mut Source, real: impl FnOnce(&mut Source) -> Vec<u8>) -> Vec<u8> {
    let mut bytes = match source.below(3) {
        0 => {
            let n = source.below(120);
            source.bytes(n)
        }
        _ => real(source),
    };
    if source.once_in(2) {
        bend(source, &mut bytes);
    }
    bytes
}

fn probe_message(source: &mut Source) -> probe::Message {
    let counters = Counters {
        packets: source.extreme(),
        bytes: source.extreme(),
        time: Time::from_nanos(source.extreme()),
    };
    let body = if source.once_in(2) { Body::Question } else { Body::Answer(counters) };
    probe::Message { seq: Seq::new(source.bits() as u16), body }
}

#[test]
fn probes() {
    let turn = turn();
    let auth = |keyed: bool| if keyed { Auth::Key(key()) } else { Auth::None };
    let make = |source: &mut Source| {
        let keyed = source.once_in(2);
        let mut bytes = bytes_or(source, |source| {
            let epoch = source.extreme() as u32;
            let mut end = Endpoint::new(auth(keyed), epoch).speaking(if source.once_in(4) { 7 } else { 0 });
            let sealed = end.seal(probe_message(source).encode());
            let why = if source.once_in(2) { probe::ProbeError::Tag } else { probe::ProbeError::Version(1) };
            let refusal = end.refuse(&sealed, why).filter(|_| source.once_in(3));
            refusal.unwrap_or(sealed)
        });
        bytes.insert(0, u8::from(keyed));
        bytes
    };
    let read = |input: &[u8]| {
        let Some((&keyed, bytes)) = input.split_first() else { return };
        let end = Endpoint::new(auth(keyed == 1), 0);
        let _ = end.heed(bytes);
        for why in [probe::ProbeError::Tag, probe::ProbeError::Version(1)] {
            let refusal = end.refuse(bytes, why);
            assert!(refusal.is_none_or(|refusal| refusal.len() <= bytes.len()), "no amplification");
        }
        if let Ok(message) = probe::Message::decode(bytes) {
            assert_eq!(message.encode(), bytes, "decoded and encoded");
        }
        let mut end = Endpoint::new(auth(keyed > 0), 0);
        let first = end.open(bytes).map(|(message, ..)| message);
        if keyed > 0 && first.is_ok() {
            assert!(end.open(bytes).is_err(), "heard twice");
        }
        let other = Endpoint::new(Auth::Key(Key::new(&[8; 32]).expect("long enough")), 0).open(bytes).is_ok();
        assert!(!other, "opened with another key");
    };
    Target { name: "probe", inputs: (INPUTS, 20_000), memory: SMALL, make: &make, read: &read }.fuzz(&turn);
}

#[test]
fn envelopes() {
    let turn = turn();
    let (own, peer) = (NodeId(1), NodeId(2));
    let make = |source: &mut Source| {
        bytes_or(source, |source| {
            let mut line = Line::new(key(), peer, own, source.extreme() as u32);
            let n = source.below(60);
            line.seal(&Message { from: peer, scheme: source.bits() as u16, body: source.bytes(n) })
        })
    };
    let read = |input: &[u8]| {
        let mut line = Line::new(key(), own, peer, 0);
        if let Ok(message) = line.open(input) {
            assert_eq!(message.from, peer);
            assert!(line.open(input).is_err(), "heard twice");
            let third = Line::new(key(), NodeId(3), peer, 0).open(input);
            assert!(third.is_err(), "for another receiver");
        }
    };
    Target { name: "envelope", inputs: (INPUTS, 20_000), memory: SMALL, make: &make, read: &read }
        .fuzz(&turn);
}

/// What OpenTCP's roles say; whatever is read must be usable.
#[test]
fn bodies_of_opentcp() {
    let turn = turn();
    let real = |source: &mut Source| {
        let mut number = || source.extreme() as u32;
        let (sequence, a, b, c, d) = (number(), number(), number(), number(), number());
        let body = match source.below(4) {
            0 => wire::Body::Host(wire::HostReport { sequence, live: a, started: b, drop_rate: c, rtt: d }),
            1 => {
                let row = |source: &mut Source| wire::TrafficRow {
                    from: source.extreme() as u32,
                    rate: source.extreme() as u32,
                };
                let rows = (0..source.below(4)).map(|_| row(source)).collect();
                wire::Body::Traffic(wire::TrafficReport { sequence, rows })
            }
            kind => {
                let port = |source: &mut Source| wire::PortReport {
                    place: source.bits() as u32 % 128,
                    utilization: source.extreme() as u32,
                    drop_rate: source.extreme() as u32,
                    backlog: source.extreme() as u32,
                };
                let ports = (0..source.below(4)).map(|_| port(source)).collect();
                let covered = *source.pick(&[0, 1, 2, 3, 99, 100, 101, u32::MAX]);
                let report = wire::SwitchReport { sequence, first: a, covered, ports };
                if kind == 2 {
                    wire::Body::Switch(report)
                } else {
                    let link = |source: &mut Source| wire::PortLink {
                        to: source.extreme() as u32,
                        capacity: source.extreme() as u32,
                    };
                    let links = (0..source.below(5)).map(|_| link(source)).collect();
                    let flows = (0..source.below(5)).map(|_| source.extreme() as u32).collect();
                    wire::Body::SwitchAlso(report, wire::Columns { flows, links })
                }
            }
        };
        bandmaster_core::control::body(&body)
    };
    let make = |source: &mut Source| bytes_or(source, real);
    let read = |input: &[u8]| {
        let message = Message { from: NodeId(1), scheme: OPENTCP.code, body: input.to_vec() };
        match wire::read(&message) {
            Some(wire::Body::Host(report)) => drop(report.state("x".into())),
            Some(wire::Body::Switch(report)) => {
                drop(report.states(&wire::Columns::default(), |place| place.to_string()));
            }
            Some(wire::Body::SwitchAlso(report, also)) => {
                drop(report.states(&also, |place| place.to_string()));
            }
            Some(wire::Body::Traffic(report)) => drop(report.rows),
            Some(wire::Body::TrafficFrom(report)) => drop(report.rows),
            Some(wire::Body::Cue(cue)) => {
                let _ = (cue.lease(), cue.order());
                for text in &cue.preconditions {
                    let _ = Condition::compile(text, Scope::Host);
                }
            }
            None => {}
        }
    };
    Target { name: "opentcp", inputs: (INPUTS, 20_000), memory: SMALL, make: &make, read: &read }.fuzz(&turn);
}

/// What hosts tell of their connections, and the files that keep it: whatever is read must be usable.
#[test]
fn sketches() {
    let turn = turn();
    let make = |source: &mut Source| {
        bytes_or(source, |source| {
            // What a host may tell, and what none does.
            let value = |source: &mut Source| {
                if source.once_in(40) { source.extreme() } else { 1 + source.below(30_000) as u64 }
            };
            let histogram = |source: &mut Source| {
                let mut all = Histogram::default();
                (0..source.below(4)).for_each(|_| all.note(value(source)));
                all
            };
            let row = |source: &mut Source| Row {
                peer: [10, 0, 0, source.below(4) as u8].into(),
                way: if source.once_in(2) { Way::Sent } else { Way::Received },
                in_burst: source.once_in(2),
                bytes: value(source),
                sizes: histogram(source),
                times: histogram(source),
                held: value(source),
            };
            let rows = (0..source.below(4)).map(|_| row(source)).collect();
            let about = About {
                control: "cubic".to_owned(),
                tick: value(source) as u32,
                bursts: histogram(source),
                spread: value(source),
                ..About::default()
            };
            let length = Span::from_millis(value(source));
            let report = sketch::parts(0, length, about, rows).remove(0);
            if source.once_in(2) {
                return report;
            }
            Kept { host: value(source).min(2) as u32, from: [10, 0, 0, 1].into(), report }.line()
        })
    };
    let links = "version = 1\nscheme = \"opentcp\"\nhosts-file = \"hosts\"\n[role]\npolicies = [\"few-flows\"]\ncycle = \"10s\"\n\
                 [[links]]\nends = [\"a\", \"b\"]\nrate = \"1gbit\"\ndelay = \"10us\"\nqueue = \"100pkt\"\n\
                 [[networks]]\nat = \"b\"\nprefixes = [\"10.0.0.0/24\"]\n";
    let deployment = controller::parse("c.toml", links, &NoFiles).expect("a deployment");
    let hosts = [Host { number: 1, name: "a".to_owned(), secret: String::new() }];
    let network = Network::new(&deployment, &hosts).expect("a network");
    let files = deployment.params.files("policies");
    let policies = opentcp::policies(&files).expect("they ship");
    let side = Policies { files, policies, cycle: deployment.params.span("cycle") };
    let sides = [side.clone(), side];
    let drawn = Cell::new(0);
    let read = |input: &[u8]| {
        let report = sketch::read(input);
        let lines = Kept::lines(input);
        assert!(Kept::whole(input) <= input.len());
        let own = |report: &sketch::Report| {
            (Kept { host: 1, from: [10, 0, 0, 1].into(), report: Vec::new() }, report.clone())
        };
        let kept = [report.iter().map(own).collect(), lines.clone()];
        if let Ok(recording) = Recording::new(&deployment, &hosts, &network, &kept)
            && let Ok(plan) = Plan::new(&recording, &network, &sides, 1e4)
        {
            drawn.set(drawn.get() + 1);
            plan.scenario(&recording, &network, &deployment, &sides, 1);
        }
        for report in report.iter().chain(lines.iter().map(|(_, report)| report)) {
            for of in report.rows.iter().flat_map(|row| [&row.sizes, &row.times]) {
                let (least, most) = (of.at(0.0), of.at(1.0));
                assert!(least <= most && of.at(0.5) <= most, "{of:?}");
            }
        }
    };
    Target { name: "sketch", inputs: (INPUTS, 20_000), memory: SMALL, make: &make, read: &read }.fuzz(&turn);
    assert!(drawn.get() > 0, "no report was drawn from");
}
