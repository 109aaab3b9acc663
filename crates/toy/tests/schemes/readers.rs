//! Roles that read the counters of one port take nothing from each other.

use std::cell::RefCell;
use std::mem::take;

use bandmaster_core::control::{Controller, Observation, Outbox, PortStats};
use bandmaster_core::params::{Key, Kind, Value};
use bandmaster_core::report::RunRecord;
use bandmaster_core::scenario::{Files, Options, Scenario, parse};
use bandmaster_core::scheme::{Built, Place, RoleDef, SchemeDef, Wants, bas, opentcp};
use bandmaster_core::time::{Span, Time};
use bandmaster_core::units::Dimension;

use super::{figure, simulate};

/// One or two roles that look at the ports of a node.
static READERS: SchemeDef = SchemeDef {
    name: "readers",
    about: "Looks at ports",
    source: "a test",
    code: 259,
    keys: &[
        Key::required("node", Kind::Text, "Where"),
        Key::required("first", Kind::Quantity(Dimension::Span), "How often the first looks"),
        Key::optional(
            "second",
            Kind::Quantity(Dimension::Span),
            "How often the second looks; absent: there is none",
        ),
    ],
    roles: &[READER],
    check: |_, _| Ok(()),
    fits: |_, _| Ok(()),
    place: |params, inventory, _| {
        let node = inventory.node(&params.text("node")).expect("a node of the scenario");
        let count = if params.get("second").is_some() { 2 } else { 1 };
        let place = |number| Place { rank: (number, count), ..Place::new(&READER, node, params.clone()) };
        (0..count).map(place).collect()
    },
    build: |place, _, _| {
        let key = ["first", "second"][place.rank.0];
        let Some(Value::Span(every)) = place.params.get(key) else { return Built::default() };
        Built::brain(Reader { number: place.rank.0, every: *every, next: Time::ZERO + *every })
    },
};

const READER: RoleDef = RoleDef { name: "reader", wants: Wants::PORTS, acts: &[] };

thread_local! {
    /// What each reader of this thread's run has seen.
    static SEEN: RefCell<[Vec<Vec<PortStats>>; 2]> = const { RefCell::new([Vec::new(), Vec::new()]) };
}

struct Reader {
    number: usize,
    every: Span,
    next: Time,
}

impl Controller for Reader {
    fn on(&mut self, _now: Time, observation: &Observation<'_>, _out: &mut Outbox) {
        if let Observation::Tick { ports, .. } = observation {
            self.next += self.every;
            SEEN.with_borrow_mut(|seen| seen[self.number].push(ports.to_vec()));
        }
    }

    fn wakeup(&self) -> Option<Time> {
        Some(self.next)
    }
}

/// A policy that never sets anything.
#[derive(Debug)]
struct Policy;

impl Files for Policy {
    fn read(&self, _name: &str) -> Result<String, String> {
        Ok(r#"
            version = 1
            name = "never"
            goal = "nothing"
            cycle = "200ms"
            statistics = ["link.utilization"]
            otherwise = "release"
            force = ["timescale"]
            [[rules]]
            name = "never"
            when = "max(link.utilization) > 2.0"
            set = { pacing = true }
        "#
        .to_owned())
    }
}

fn scenario(flows: &str, schemes: &str) -> Scenario {
    let text = format!(
        r#"
        version = 1
        name = "readers"
        [run]
        duration = "3s"
        [network]
        hosts = ["server"]
        routers = ["r"]
        host-delay = 0.0
        [network.link]
        rate = "10mbit"
        delay = "2ms"
        queue = "60pkt"
        [[network.links]]
        ends = ["r", "server"]
        [[network.groups]]
        name = "clients"
        attach = "r"
        count = 3
        {flows}
        {schemes}
        "#
    );
    let schemes: &[&'static SchemeDef] = &[&bas::DEF, &opentcp::DEF, &READERS];
    let options = Options { schemes, files: Some(&Policy), ..Options::default() };
    let mut study = parse("test.toml", &text, &options).unwrap_or_else(|e| panic!("{e}"));
    study.cases.remove(0).scenario
}

/// BAS, whose routers count the flows seen, and who else reads their ports.
fn beside_bas(others: &str) -> (RunRecord, [Vec<Vec<PortStats>>; 2]) {
    let flows = "[[flows]]\nname = \"uploads\"\nfrom = \"clients\"\nto = \"server\"";
    let bas = "[schemes.bas]\nservers = \"server\"\ndomain = [\"server\", \"r\"]\ncounting = \"seen\"";
    let record = simulate(&scenario(flows, &format!("{bas}\n{others}")));
    (record, SEEN.with_borrow_mut(take))
}

fn seen_at(port: &PortStats) -> Option<u32> {
    port.flows.map(|flows| flows.seen)
}

#[test]
fn a_reader_in_the_simulator_sees_what_it_would_see_alone() {
    let readers = "[schemes.readers]\nnode = \"r\"\nfirst = \"70ms\"";
    let opentcp = "[schemes.opentcp]\npolicies = [\"never.toml\"]";
    let (alone, [seen, _]) = beside_bas(readers);
    assert!(seen.len() == 42 && seen.iter().any(|ports| ports.iter().any(|port| seen_at(port) == Some(3))));
    let (_, [second_seen, _]) = beside_bas(&readers.replace("70ms", "30ms"));
    let (both, seen_by_both) = beside_bas(&format!("{readers}\nsecond = \"30ms\"\n{opentcp}"));
    assert_eq!(seen_by_both, [seen, second_seen]);
    let (bas_only, _) = beside_bas("");
    for (name, value) in &bas_only.metrics {
        // OpenTCP's messages count too.
        if name != "control_rate" && !value.is_nan() {
            let others = (figure(&alone, name), figure(&both, name));
            assert_eq!(others, (*value, *value), "{name}");
        }
    }
    assert!(figure(&both, "control_rate") > figure(&bas_only, "control_rate"));
}

/// Each flow sends 5 packets between two looks, so that both see all three.
#[test]
#[cfg(target_os = "linux")]
fn two_readers_in_the_lab_see_the_same() {
    const TEST: &str = "two_readers_in_the_lab_see_the_same";
    let Some(_alone) = super::lab::alone(TEST) else { return };
    super::machine::in_time(TEST, || {
        let flows = "[[flows]]\nname = \"calls\"\nfrom = \"clients\"\nto = \"server\"\ntransport = \"udp\"\n\
                     rate = \"200kbit\"\npacket = \"500B\"\nmeasured = true";
        let readers = "[schemes.readers]\nnode = \"r\"\nfirst = \"100ms\"\nsecond = \"100ms\"";
        SEEN.with_borrow_mut(take);
        super::lab::emulate(&scenario(flows, readers));
        let [first, second] = SEEN.with_borrow_mut(take);
        super::machine::timely!(first.len() >= 29 && second.len() >= 29, "{} looks", first.len());
        for (first, second) in first.iter().zip(&second) {
            let flows = [first, second].map(|ports| ports.iter().filter_map(seen_at).max());
            super::machine::timely!(flows == [Some(3); 2], "{first:?}, {second:?}");
            let sent = [first, second].map(|ports| ports.iter().map(|port| port.sent.get()).sum::<u64>());
            super::machine::timely!(sent[0].abs_diff(sent[1]) <= 3 * 514, "{first:?}, {second:?}");
        }
        Ok(())
    });
}
