//! Files and words that people write.

use std::collections::BTreeSet;

use bandmaster_core::agent;
use bandmaster_core::capacity::{Capacity, Schedule, Step, Steps, Trace};
use bandmaster_core::controller;
use bandmaster_core::file::Files;
use bandmaster_core::params::{Kind, Written};
use bandmaster_core::rng::Stream;
use bandmaster_core::scenario::{ExtraSweep, Options, Override, explain, parse, whole_schema};
use bandmaster_core::scheme::REGISTRY;
use bandmaster_core::scheme::er2bc::deployment;
use bandmaster_core::scheme::opentcp::condition::{Condition, Scope, Values};
use bandmaster_core::scheme::opentcp::file;
use bandmaster_core::scheme::opentcp::statistic::{HostState, LinkState, PairState, State, TopologyState};
use bandmaster_core::sizes::SizeDistribution;
use bandmaster_core::time::{Span, Time};
use bandmaster_core::topology::graphml::Map;
use bandmaster_core::units::{Dimension, Rate, parse_quantity};
use bandmaster_fuzz::{Corpus, INPUTS, MOST_TIME, Schema, Source, Target, Turn, processor_time, turn};

use super::tree::{SCENARIOS, Shelf, files, root};

/// What a reader of small files may take.
const SMALL: u64 = 64 << 20;

fn texts(folders: &[&str], end: &str) -> Vec<Vec<u8>> {
    files(folders, end).into_iter().map(|(_, bytes)| bytes).collect()
}

fn words(list: &[&str]) -> Vec<String> {
    list.iter().map(|word| (*word).to_owned()).collect()
}

/// Gives a reader texts that differ from good ones.
fn try_texts(turn: &Turn, name: &str, inputs: u64, memory: u64, corpus: &Corpus, read: &dyn Fn(&[u8])) {
    Target { name, inputs: (INPUTS, inputs), memory, make: &|source| corpus.mutate(source), read }.fuzz(turn);
}

fn as_text(input: &[u8]) -> String {
    String::from_utf8_lossy(input).into_owned()
}

/// Reading makes topologies too, of up to a million nodes.
#[test]
fn scenarios() {
    let turn = turn();
    let shelf = Shelf::new();
    let options = || Options { files: Some(&shelf), ..Options::default() };
    // Those that are read fast: there are many to read.
    let small = |text: &Vec<u8>| {
        let text = as_text(text);
        let study = parse("x.toml", &text, &options()).unwrap_or_else(|e| panic!("{e}"));
        study.cases.iter().map(|case| case.scenario.topology.nodes.len()).sum::<usize>() < 3000
    };
    let kept: Vec<Vec<u8>> = texts(&SCENARIOS, "toml").into_iter().filter(small).collect();
    assert!(kept.len() > 20, "{} scenarios", kept.len());
    let corpus = Corpus::new(kept, Schema(whole_schema(REGISTRY)).words());
    let read = |input: &[u8]| {
        let text = as_text(input);
        let began = processor_time();
        let study = parse("x.toml", &text, &options());
        // The time of an input is that of one reading.
        if processor_time() - began < MOST_TIME / 4 {
            assert_eq!(study.is_ok(), explain("x.toml", &text, &options()).is_ok(), "check and explain");
        }
        if let Err(errors) = study {
            assert!(
                errors.iter().next().is_some() && !errors.to_string().is_empty(),
                "no errors, and no study"
            );
        }
    };
    try_texts(&turn, "scenario", 3_000, 2 << 30, &corpus, &read);
}

fn state(source: &mut Source) -> State {
    let mut some = |most: usize| source.below(most);
    let (links, hosts) = (some(4), some(4));
    let link = |n| LinkState {
        name: format!("l{n}"),
        utilization: source.float(),
        drop_rate: source.float(),
        backlog: Some(source.float()),
        flows: (n % 2 == 0).then(|| source.float()),
        capacity: (n % 3 == 0).then(|| source.float()),
    };
    let links = (0..links).map(link).collect();
    let host = |n| HostState {
        name: format!("h{n}"),
        live: source.float(),
        started: source.float(),
        drop_rate: source.float(),
        rtt: (n % 2 == 0).then(|| source.float()),
    };
    let hosts = (0..hosts).map(host).collect();
    let pairs = |source: &mut Source| {
        let count = source.below(4);
        let pair = |n| PairState { from: format!("h{n}"), to: format!("h{}", n + 1), rate: source.float() };
        (0..count).map(pair).collect()
    };
    let (traffic_hosts, traffic_racks) = (pairs(source), pairs(source));
    let topology = (source.below(2) == 0).then(|| TopologyState {
        links: source.float(),
        hops: Some(source.float()),
        oversubscription: Some(source.float()),
    });
    State { coverage: source.float(), links, hosts, traffic_hosts, traffic_racks, topology }
}

#[test]
fn policies() {
    let turn = turn();
    let more = [
        "max",
        "mean",
        "percentile",
        "topology.hops",
        "traffic.racks",
        "link.flows",
        "all",
        "link.utilization",
        "host.rtt",
        "flows.live",
        "&&",
        "!",
        "/ 0",
    ];
    let corpus = Corpus::new(texts(&["policies", "policies/own"], "toml"), words(&more));
    let read = |input: &[u8]| {
        let Ok(policy) = file::parse("p.toml", &as_text(input)) else { return };
        for number in 0..3 {
            let state = state(&mut Source::seeded("state", input.len() as u64 + number));
            let fired = policy.decide(&Values::of_network(&state)).map(|rule| rule.name.clone());
            assert_eq!(policy.explain(&state).fired, fired, "decided and explained");
        }
    };
    try_texts(&turn, "policy", 10_000, SMALL, &corpus, &read);
}

#[test]
fn conditions() {
    let turn = turn();
    let mut known: Vec<Vec<u8>> = Vec::new();
    for text in texts(&["policies", "policies/own"], "toml") {
        let text = as_text(&text);
        let quoted = text.lines().flat_map(|line| line.split('"').skip(1).step_by(2));
        known.extend(quoted.filter(|q| q.contains(['<', '>', '='])).map(|q| q.as_bytes().to_vec()));
    }
    for text in [
        "link.utilization.all(x, x < 0.5)",
        "percentile(host.rtt, 0.9) < 0.1 && flows.live.exists(x, x > 1.0)",
        "max(link.drop_rate) == 0.0 ? true : false",
        "[1,2,3].size() > 2",
        "{'a': 1}.a == 1",
        "link.utilization.map(x, x * 2.0).filter(y, y > 1.0).size() > 0",
        "9223372036854775807 + 1 > 0",
        "-9223372036854775808 / -1 > 0",
        "7 % 0 == 1",
    ] {
        known.push(text.into());
    }
    let more = [
        "max",
        "min",
        "mean",
        "percentile",
        "count",
        "share",
        "all",
        "exists",
        "exists_one",
        "map",
        "filter",
        "has",
        "size",
        "int",
        "double",
        "uint",
        "string",
        "matches",
        "duration",
        "timestamp",
        "link.backlog",
        "oracle.coverage",
        "in",
        "&&",
        "||",
        "!",
        "?",
        ":",
        "(",
        ")",
        "[",
        "]",
        "+",
        "-",
        "*",
        "/",
        "%",
        "<",
        ">=",
        "==",
        "null",
        "0xffffffffffffffff",
    ];
    let corpus = Corpus::new(known, words(&more));
    let read = |input: &[u8]| {
        for scope in [Scope::Network, Scope::Host] {
            let Ok(condition) = Condition::compile(&as_text(input), scope) else { continue };
            let state = state(&mut Source::seeded("state", input.len() as u64));
            let values = match (scope, state.hosts.first()) {
                (Scope::Host, Some(host)) => Values::of_host(host),
                _ => Values::of_network(&state),
            };
            let _ = (condition.holds(&values), condition.terms(&values));
        }
    };
    try_texts(&turn, "condition", 10_000, SMALL, &corpus, &read);
}

#[derive(Debug)]
pub(crate) struct NoFiles;

impl Files for NoFiles {
    fn read(&self, _name: &str) -> Result<String, String> {
        Err("there are no files here".to_owned())
    }
}

#[test]
fn deployments() {
    let turn = turn();
    let page = |name| std::fs::read_to_string(root().join("docs").join(name)).expect("a page");
    let text = page("gateway.md") + &page("agent.md") + &page("controller.md");
    let files = text.split("```toml\n").skip(1).filter_map(|part| part.split("```").next());
    let known: Vec<Vec<u8>> = files.map(|file| file.as_bytes().to_vec()).collect();
    assert!(known.len() >= 3, "{} files", known.len());
    let quoted = text.split('`').skip(1).step_by(2).filter(|word| word.len() < 40 && !word.contains('\n'));
    let more = [
        "::1",
        "2001:db8::/129",
        "0.0.0.0/0",
        "10.1.0.0/33",
        "0-65535",
        "65535-0",
        "cs6",
        "af41",
        "\"sctp\"",
    ];
    let corpus = Corpus::new(known, quoted.map(str::to_owned).chain(words(&more)));
    let read = |input: &[u8]| {
        let text = as_text(input);
        if let Ok(deployment) = deployment::parse("g.toml", &text) {
            assert!(!deployment.roles(14, &[]).is_empty(), "a gateway without a role");
        }
        if let Ok(deployment) = agent::parse("a.toml", &text) {
            let decides = deployment.roles().iter().all(|role| role.built.controller.is_some());
            assert!(decides, "an agent without a role");
        }
        if let Ok(deployment) = controller::parse("c.toml", &text, &NoFiles) {
            let hosts = controller::hosts("h", "1 web-1 0123456789abcdef").expect("a host");
            // A host may have no link.
            let _ = deployment.role(&hosts, &deployment.inventory(&hosts));
        }
        for host in controller::hosts("h", &text).unwrap_or_default() {
            assert!(host.number > 0 && !host.name.is_empty(), "{host:?}");
        }
    };
    try_texts(&turn, "deployment", 10_000, SMALL, &corpus, &read);
}

#[test]
fn traces() {
    let turn = turn();
    let mut known = texts(&["scenarios/links"], "trace");
    known.iter_mut().for_each(|text| text.truncate(600));
    known.extend(["1\n", "0\n0\n5\n", "4294967295\n", "0\n4294967295\n", "1\n1\n1\n2\n3\n"].map(Vec::from));
    let corpus = Corpus::new(known, []);
    let read = |input: &[u8]| {
        let Ok(trace) = Trace::parse("t", &as_text(input)) else { return };
        let _ = (trace.length(), trace.mean_rate());
        let mut schedule = Schedule::new(&Capacity::Trace(trace), Rate::ZERO, 0.0);
        let mut now = Time::ZERO;
        for len in [1, 40, 1500, 1514, 65_535, 1] {
            let end = schedule.finish(now, len == 40, len);
            assert!(end >= now, "a packet ends before it starts");
            now = end + Span::from_secs(7);
        }
    };
    try_texts(&turn, "trace", 10_000, SMALL, &corpus, &read);
}

#[test]
fn maps() {
    let turn = turn();
    let known = texts(&["scenarios/examples"], "graphml");
    let more = words(&[
        "<node id=\"0\">",
        "</node>",
        "<edge source=\"0\" target=\"1\"/>",
        "<data key=\"latitude\">",
        "</data>",
        "<!--",
        "-->",
        "<![CDATA[",
        "]]>",
        "&amp;",
        "<!DOCTYPE a [<!ENTITY b \"c\">]>",
    ]);
    let corpus = Corpus::new(known, more);
    let read = |input: &[u8]| {
        let Ok(map) = Map::parse(&as_text(input)) else { return };
        let names: BTreeSet<&str> = map.sites.iter().map(|site| site.name.as_str()).collect();
        assert!(names.len() == map.sites.len() && !names.contains(""), "{names:?}");
        for line in &map.lines {
            assert_ne!(line.ends[0], line.ends[1]);
            assert!(line.ends.iter().all(|end| *end < names.len()), "{line:?}");
            // Half of the equator takes 0.1 s.
            assert!(map.delay(line).is_none_or(|delay| delay < Span::from_millis(101)), "{line:?}");
        }
    };
    try_texts(&turn, "map", 10_000, SMALL, &corpus, &read);
}

#[test]
fn size_distributions() {
    let turn = turn();
    let mut known = texts(&["sizes"], "cdf");
    known.extend(
        ["1 1\n", "0 0\n10 1\n", "0 0\n18446744073709551615 1\n", "5 0.5\n5 0.7 # x\n9 1\n"].map(Vec::from),
    );
    let corpus = Corpus::new(known, []);
    let read = |input: &[u8]| {
        let Ok(sizes) = SizeDistribution::parse("s", &as_text(input)) else { return };
        let mut stream = Stream::new(1, 0, "x");
        for _ in 0..8 {
            let size = sizes.draw(&mut stream).get();
            assert!(size >= 1 && size <= sizes.largest().max(1), "{size} of at most {}", sizes.largest());
        }
        assert!(sizes.mean() <= sizes.largest().max(1) as f64 * 1.001, "mean {}", sizes.mean());
        for share in [0.0, 1.0, -1.0, 2.0, 0.5, f64::NAN] {
            let _ = sizes.quantile(share);
        }
    };
    try_texts(&turn, "sizes", 10_000, SMALL, &corpus, &read);
}

#[test]
fn words_of_the_command_line() {
    let turn = turn();
    let known = [
        "schemes.bas.alpha=0.4",
        "clients=4,16,64",
        "flows.a.size=\"1,5\",[1,2]",
        "uniform(1ms, 2ms)",
        "200pkt",
    ];
    let corpus = Corpus::new(known.map(Vec::from).to_vec(), []);
    let read = |input: &[u8]| {
        let text = as_text(input);
        let _ = (text.parse::<Override>(), text.parse::<ExtraSweep>());
        for dimension in [Dimension::Rate, Dimension::Span, Dimension::Bytes, Dimension::Packets] {
            if let Ok(value) = parse_quantity(&text, dimension) {
                assert!(value <= dimension.most(), "{value} of at most {}", dimension.most());
            }
        }
        for kind in [Kind::Limit, Kind::Draw, Kind::Bool, Kind::Float { min: 0.0, max: 1.0 }] {
            let _ = kind.parse(&Written::Text(text.clone()));
        }
        if let Ok(change) = text.parse::<Override>() {
            let scenario = "version = 1\nname = \"x\"\n";
            let _ = parse("x.toml", scenario, &Options { overrides: vec![change], ..Options::default() });
        }
    };
    try_texts(&turn, "words", 10_000, SMALL, &corpus, &read);
}

/// Capacities as a scenario may describe them.
#[test]
fn steps() {
    let turn = turn();
    let make = |source: &mut Source| source.bytes(64);
    let read = |input: &[u8]| {
        let mut source =
            Source::seeded("steps", input.iter().fold(0, |sum, b| sum << 5 ^ sum >> 59 ^ u64::from(*b)));
        let span = |source: &mut Source| Span::from_nanos(source.extreme() % (Dimension::Span.most() + 1));
        let rate =
            |source: &mut Source| Rate::from_bits_per_sec(source.extreme() % (Dimension::Rate.most() + 1));
        let mut at = Span::ZERO;
        let mut list = Vec::new();
        for number in 0..source.below(5) {
            if number > 0 || source.once_in(2) {
                at = (at + span(&mut source)).min(Span::from_nanos(Dimension::Span.most()));
            }
            list.push(Step { at, rate: rate(&mut source) });
        }
        let period = source.once_in(2).then(|| span(&mut source));
        let Ok(steps) = Steps::new(list, period) else { return };
        let off = [0.0, 0.1, -0.1, 0.05][source.below(4)];
        // A link without a rate is refused.
        let nominal = rate(&mut source).max(Rate::from_bits_per_sec(1));
        let mut schedule = Schedule::new(&Capacity::Steps(steps), nominal, off);
        let mut now = Time::ZERO;
        for _ in 0..30 {
            let continues = source.once_in(2);
            if !continues {
                now += span(&mut source);
            }
            let end = schedule.finish(now, continues, source.extreme() as u32);
            assert!(end >= now, "a packet ends before it starts");
            now = end;
            if now > Time::ZERO + Span::from_nanos(Dimension::Span.most()) {
                break;
            }
        }
    };
    Target { name: "steps", inputs: (INPUTS, 20_000), memory: SMALL, make: &make, read: &read }.fuzz(&turn);
}
