//! A trial on several threads: any number gives the same bytes, and a network that is divided behaves as the whole.

use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};

use bandmaster_core::id::{NodeId, PortId};
use bandmaster_core::report::flow::FlowRecord;
use bandmaster_core::report::{RunRecord, Work};
use bandmaster_core::scenario::{Files, Options, Override, parse};
use bandmaster_core::time::Span;
use bandmaster_core::topology::NodeKind;
use bandmaster_sim::{RunError, RunOptions, run, run as run_scenario};
use proptest::prelude::*;

/// The record, the rows of flows, and the packets that a port sent.
type Outcome = (RunRecord, Vec<FlowRecord>, Vec<String>);

fn outcome(text: &str, partitions: u32, threads: usize) -> Outcome {
    attempt(text, partitions, threads, None).unwrap_or_else(|e| panic!("{e}"))
}

fn attempt(text: &str, partitions: u32, threads: usize, port: Option<&str>) -> Result<Outcome, RunError> {
    let text = text.replacen("[run]", &format!("[run]\npartitions = {partitions}"), 1);
    let study = parse("x.toml", &text, &Options::default()).unwrap_or_else(|e| panic!("{e}"));
    let rows = RefCell::new(Vec::new());
    let take = |row| rows.borrow_mut().push(row);
    let mut packets = Vec::new();
    let mut keep = |packet: &_| packets.push(format!("{packet:?}"));
    let capture = port.map(|port| (port, &mut keep as &mut dyn FnMut(&_)));
    let mut options = RunOptions { flows: Some(&take), threads, capture, ..RunOptions::default() };
    let record = run(&study.cases[0].scenario, 0, 0, &mut options)?;
    Ok((record, rows.into_inner(), packets))
}

/// The same events are handled, but those of packets that go from part to part are more.
fn without_work(outcome: Outcome) -> String {
    let (record, rows, packets) = outcome;
    let work = Work { events: 0, ..record.work };
    format!("{:#?}\n{rows:#?}\n{packets:#?}", RunRecord { work, ..record })
}

/// Where no two packets reach a port in the same nanosecond, parts do exactly what the whole does. Thousands of packets of some
/// microseconds meet so now and then: one of several seeds is enough, and the others come to the same but for that.
fn assert_whole(text: &str, partitions: u32, port: &str) {
    let mut differing = String::new();
    let is_same = (1..=8).any(|seed| {
        let text = text.replacen("[run]", &format!("[run]\nseed = {seed}"), 1);
        let whole = attempt(&text, 1, 1, Some(port)).unwrap_or_else(|e| panic!("{e}"));
        assert!(whole.0.work.packet_hops > 1000, "{:?}", whole.0.work);
        let parts = attempt(&text, partitions, 2, Some(port)).unwrap_or_else(|e| panic!("{e}"));
        let counts = |outcome: &Outcome| (outcome.0.metric("completed"), outcome.1.len());
        assert_eq!(counts(&whole), counts(&parts), "{text}");
        let (whole, parts) = (without_work(whole), without_work(parts));
        let first = whole.lines().zip(parts.lines()).enumerate().find(|(_, (whole, part))| whole != part);
        differing = format!("{first:?}");
        whole == parts
    });
    assert!(is_same, "{partitions} partitions of {text}: line, whole, parts: {differing}");
}

fn assert_threads(text: &str, partitions: u32) {
    let one = outcome(text, partitions, 1);
    for threads in [2, 4, 8] {
        let several = outcome(text, partitions, threads);
        assert!(format!("{one:?}") == format!("{several:?}"), "{threads} threads differ from one");
    }
}

const LEAF_SPINE: &str = r#"
version = 1
name = "leaf-spine"
[run]
duration = "300ms"
sample = "20ms"
[network]
builder = "leaf-spine"
rate-tolerance = 0.01
leaves = 4
spines = 2
size = 4
access = { rate = "100mbit", delay = "20us", queue = "100pkt" }
fabric = { rate = "200mbit", delay = "20us", queue = { discipline = "fifo", limit = "50KiB" } }
[[flows]]
name = "transfers"
from = "leaf1-hosts"
to = "leaf2-hosts"
count = 2
start = "uniform(0ms, 20ms)"
[[flows]]
name = "requests"
from = "leaf3-hosts"
to = "leaf4-hosts"
size = "100kB"
start = "uniform(50ms, 100ms)"
[[flows]]
name = "telemetry"
transport = "udp"
from = "leaf1-hosts.0"
to = "leaf4-hosts.0"
rate = "3mbit"
start = "uniform(0ms, 20ms)"
stop = "200ms"
[[flows]]
name = "stopped"
from = "leaf3-hosts.0"
to = "leaf1-hosts.1"
start = "uniform(0ms, 20ms)"
stop = "150ms"
"#;

#[test]
fn parts_of_a_leaf_spine_network_do_what_the_whole_does() {
    for partitions in [2, 3, 4, 8] {
        assert_whole(LEAF_SPINE, partitions, "leaf1->spine1");
    }
    assert_threads(LEAF_SPINE, 4);
}

#[test]
fn parts_measure_the_delays_that_the_whole_does() {
    let text = format!(
        "{LEAF_SPINE}\n[measure]\npercentiles = true\nports = [\"spine1->leaf2\", \"leaf3->spine2\"]\n"
    );
    for partitions in [2, 4] {
        assert_whole(&text, partitions, "leaf1->spine1");
    }
}

#[test]
fn links_and_nodes_that_fail_do_the_same_to_parts() {
    let links = "[faults]\nreroute = \"300us\"\n[[faults.links]]\nends = [\"leaf1\", \"spine1\"]\ndown = [\"60ms\", \"150001us\"]\n\
                 up = [\"100ms\", \"170ms\"]\n[[faults.links]]\nends = [\"leaf4\", \"spine2\"]\ndown = \"80003us\"\nup = \"130ms\"\n";
    let nodes = "[[faults.nodes]]\nnode = \"spine2\"\ndown = \"70007us\"\nup = \"120ms\"\n";
    for faults in [links.to_owned(), format!("{links}{nodes}")] {
        let text = format!("{LEAF_SPINE}\n{faults}");
        for partitions in [2, 4] {
            assert_whole(&text, partitions, "leaf1->spine1");
            assert_threads(&text, partitions);
        }
    }
}

#[test]
fn parts_of_a_dumbbell_do_what_the_whole_does() {
    for discipline in ["fifo", "fq-codel", "red"] {
        let text = format!(
            r#"
version = 1
name = "dumbbell"
[run]
duration = "3s"
[network]
builder = "dumbbell"
left = 5
right = 5
access = {{ rate = "1gbit", delay = "1ms", queue = "1000pkt" }}
bottleneck = {{ rate = "20mbit", delay = "5ms", queue = {{ discipline = "{discipline}" }}, loss = 0.001 }}
[[flows]]
name = "bulk"
from = "left"
to = "right"
start = "uniform(0s, 100ms)"
[[flows]]
name = "back"
from = "right"
to = "left"
size = "200kB"
count = 3
start = "uniform(0s, 2s)"
"#
        );
        assert_whole(&text, 2, "r1->r2");
        assert_threads(&text, 2);
    }
}

/// Incast over a fat tree with connections of `keys`, and `tail`.
fn incast(keys: &str, tail: &str) -> String {
    format!(
        r#"
version = 1
name = "incast"
[run]
duration = "60ms"
sample = "5ms"
[network]
builder = "dual-fat-tree"
k = 4
rate-tolerance = 0.01
frame-overhead = "2B"
[network.link]
rate = "1gbit"
delay = "5us"
queue = "40KiB"
[tcp]
mss = "1428B"
min-rto = "5ms"
[[flows]]
name = "answers"
from = ["pod1", "pod2"]
to = ["rack3-1.0", "rack4-1.1"]
pairing = "all-to-all"
size = "28560B"
rounds = 5
start = "uniform(50us, 200us)"
{keys}
[[flows]]
name = "cross"
from = "rack3-2"
to = "rack1-2"
start = "uniform(0us, 200us)"
{tail}
"#
    )
}

#[test]
fn parts_of_an_incast_do_what_the_whole_does() {
    let qcbf = "[schemes.qcbf]\nbuffer = \"40KiB\"\nrtt = \"80us\"";
    for keys in ["", "persistent = true", "subflows = 2", "subflows = 2\npersistent = true"] {
        for tail in ["", qcbf, "[measure]\ndistributions = true"] {
            let text = incast(keys, tail);
            assert_whole(&text, 4, "edge3-1a->rack3-1.0");
            assert_threads(&text, 2);
        }
    }
}

/// An all-to-all of three rounds.
fn exchange(network: &str, keys: &str) -> String {
    format!(
        r#"
version = 1
name = "exchange"
[run]
duration = "200ms"
sample = "10ms"
[network]
{network}
rate-tolerance = 0.01
[[flows]]
name = "messages"
from = "hosts"
to = "hosts"
pairing = "exchange"
sizes = ["14480B", "43440B"]
start = "uniform(0us, 100us)"
compute = "uniform(100us, 200us)"
rounds = 3
{keys}
[measure]
distributions = true
"#
    )
}

#[test]
fn parts_of_an_exchange_do_what_the_whole_does() {
    let tree = "builder = \"leaf-spine\"\nleaves = 4\nspines = 1\nsize = 3\naccess = { rate = \"1gbit\", delay = \"5us\", \
                queue = \"256pkt\" }\nfabric = { rate = \"2gbit\", delay = \"5us\", queue = \"50pkt\" }";
    let fat =
        "builder = \"fat-tree\"\nk = 4\nlink = { rate = \"1gbit\", delay = \"5us\", queue = \"50pkt\" }";
    for network in [tree, fat] {
        for keys in [
            "",
            "schedule = \"window\"\noutstanding = 3",
            "persistent = true",
            "schedule = \"window\"\noutstanding = 3\npersistent = true",
        ] {
            let text = exchange(network, keys);
            assert_whole(&text, 4, if network == tree { "leaf1->spine1" } else { "edge1-1->agg1-1" });
            assert_threads(&text, 3);
        }
    }
}

/// The folder of a scenario file.
#[derive(Debug)]
struct Folder(PathBuf);

impl Files for Folder {
    fn read(&self, name: &str) -> Result<String, String> {
        fs::read_to_string(self.0.join(name)).map_err(|e| e.to_string())
    }
}

fn scenario_files() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("the scenarios folder") {
            let path = entry.expect("an entry").path();
            match path.extension() {
                _ if path.is_dir() => folders.push(path),
                Some(extension) if extension == "toml" => found.push(path),
                _ => {}
            }
        }
    }
    found.sort();
    found
}

/// The begin of a trial of every variant of every scenario of the repository, each divided into four parts where it can be.
#[test]
fn threads_change_nothing_in_any_scenario() {
    let (mut divided, mut refused) = (0, 0);
    for path in scenario_files() {
        let text = fs::read_to_string(&path).expect("a text");
        let folder = Folder(path.parent().expect("a folder").to_owned());
        let set = Override { key: "run.partitions".to_owned(), value: "4".to_owned() };
        let options =
            Options { files: Some(&folder), quick: true, overrides: vec![set], ..Options::default() };
        let study = match parse(&path.display().to_string(), &text, &options) {
            Ok(study) => study,
            Err(why) => {
                assert!(why.to_string().contains("cannot be divided"), "{why}");
                refused += 1;
                continue;
            }
        };
        divided += 1;
        let mut last = None;
        for case in study.cases {
            if last.replace(case.variant.clone()).is_some_and(|last| last == case.variant) {
                continue;
            }
            let mut scenario = case.scenario;
            let run = &mut scenario.run;
            let most = if scenario.topology.nodes.len() > 500 { 1 } else { 100 };
            run.duration = run.duration.min(Span::from_millis(most));
            run.warm_up = Span::ZERO;
            run.sample = run.sample.min(Span::from_nanos(run.duration.as_nanos() / 3));
            scenario.measure.windows.clear();
            let of = |threads| {
                let mut options = RunOptions { threads, ..RunOptions::default() };
                run_scenario(&scenario, 0, 0, &mut options)
                    .unwrap_or_else(|e| panic!("{}: {e}", path.display()))
            };
            let one = format!("{:?}", of(1));
            for threads in [2, 4] {
                assert!(one == format!("{:?}", of(threads)), "{}, {threads} threads", path.display());
            }
        }
    }
    assert!(divided > 30, "{divided} divided, {refused} refused");
}

/// A network, what it carries, and parts.
fn networks() -> impl Strategy<Value = (String, u32)> {
    let builder = prop_oneof![
        (2u32..6, 1u32..4, 1u32..4).prop_map(|(leaves, spines, size)| {
            format!("builder = \"leaf-spine\"\nleaves = {leaves}\nspines = {spines}\nsize = {size}\naccess = LINK\nfabric = LINK")
        }),
        Just("builder = \"fat-tree\"\nk = 4\nlink = LINK".to_owned()),
        Just("builder = \"dual-fat-tree\"\nk = 4\nlink = LINK".to_owned()),
        (2u32..6).prop_map(|size| format!("builder = \"dumbbell\"\nleft = {size}\nright = {size}\naccess = LINK\nbottleneck = LINK")),
        (3u32..7).prop_map(|size| {
            let names: Vec<String> = (0..size).map(|i| format!("\"n{i}\"")).collect();
            let links: Vec<String> = (0..size)
                .map(|i| format!("[[network.links]]\nends = [\"n{i}\", \"n{}\"]", (i + 1) % size))
                .collect();
            let hosts: Vec<String> = (0..size).map(|i| format!("[[network.links]]\nends = [\"h{i}\", \"n{i}\"]")).collect();
            let all: Vec<String> = (0..size).map(|i| format!("\"h{i}\"")).collect();
            format!("hosts = [{}]\nrouters = [{}]\nlink = LINK\n{}\n{}", all.join(", "), names.join(", "), links.join("\n"), hosts.join("\n"))
        }),
    ];
    let queue = prop_oneof![
        Just("\"20pkt\""),
        Just("{ discipline = \"fq-codel\" }"),
        Just("{ discipline = \"shared\" }"),
        Just("{ discipline = \"red\" }"),
        Just("{ discipline = \"fifo\", limit = \"30pkt\", ecn-threshold = \"10pkt\" }"),
    ];
    let pairing = prop_oneof![
        Just("pairing = \"permutation\""),
        Just("pairing = \"all-to-all\""),
        Just("pairing = \"all-to-all\"\nsize = \"20kB\"\nrounds = 3"),
        Just("pairing = \"exchange\"\nsize = \"10kB\"\nrounds = 2"),
        Just("pairing = \"permutation\"\nsize = \"30kB\"\nsubflows = 2\nstop = \"20ms\""),
    ];
    let loss = prop_oneof![Just("0.0"), Just("0.01")];
    (builder, queue, pairing, loss, 1u32..200, 2u32..9, 1u32..1000, any::<bool>()).prop_map(
        |(builder, queue, pairing, loss, delay, partitions, seed, is_udp)| {
            let link = format!("{{ rate = \"20mbit\", delay = \"{delay}us\", queue = {queue}, loss = {loss} }}");
            let hosts = |network: &str| -> Vec<String> {
                let group = |names: &[&str]| names.iter().map(|name| format!("\"{name}\"")).collect();
                if network.contains("dumbbell") {
                    group(&["left", "right"])
                } else if network.contains("dual-fat-tree") || network.contains("\"fat-tree") {
                    group(&["pod1", "pod2", "pod4"])
                } else if network.contains("leaf-spine") {
                    group(&["leaf1-hosts", "leaf2-hosts"])
                } else {
                    group(&["h0", "h1"])
                }
            };
            let all = hosts(&builder).join(", ");
            let exchange = pairing.contains("exchange");
            let udp = if is_udp && !exchange {
                format!("[[flows]]\nname = \"udp\"\ntransport = \"udp\"\nfrom = [{all}]\nto = [{all}]\npairing = \"all-to-all\"\nrate = \"1mbit\"\nstop = \"25ms\"\n")
            } else {
                String::new()
            };
            let network = builder.replace("LINK", &link);
            let text = format!(
                "version = 1\nname = \"random\"\n[run]\nduration = \"40ms\"\nsample = \"5ms\"\nseed = {seed}\n[network]\n{network}\n\
                 [[flows]]\nname = \"tcp\"\nfrom = [{all}]\nto = [{all}]\n{pairing}\ntcp = {{ min-rto = \"2ms\", ecn = true }}\n{udp}"
            );
            (text, partitions)
        },
    )
}

/// The text with what else it can have: a scheme, and a link that fails twice. `pick` chooses. And a port to capture.
fn with_more(text: &str, pick: usize) -> (String, String) {
    let read = |text: &str| parse("x.toml", text, &Options::default());
    let study = read(text).unwrap_or_else(|e| panic!("{e}"));
    let topology = &study.cases[0].scenario.topology;
    let name = |node: NodeId| topology.nodes[node.index()].name.clone();
    let link = &topology.links[pick % topology.links.len()];
    let port = topology.port_name(PortId((pick % (2 * topology.links.len())) as u32));
    let routers = topology.nodes.iter().filter(|node| node.kind == NodeKind::Router);
    let routers: Vec<String> = routers.map(|node| format!("{:?}", node.name)).collect();
    let hosts: Vec<&str> =
        topology.nodes.iter().filter(|n| n.kind == NodeKind::Host).map(|n| n.name.as_str()).collect();
    let server = hosts[pick % hosts.len()];
    let schemes = [
        String::new(),
        "[schemes.qcbf]\nbuffer = \"30KiB\"\nrtt = \"1ms\"\n".to_owned(),
        format!("[schemes.bas]\nservers = {server:?}\ndomain = [{server:?}, {}]\n", routers.join(", ")),
        "[schemes.opentcp]\ncycle = \"5ms\"\nforce = [\"timescale\"]\npolicies = [\"opentcp1\"]\n".to_owned(),
    ];
    let faults = format!(
        "[[faults.links]]\nends = [{:?}, {:?}]\ndown = [\"7ms\", \"22ms\"]\nup = [\"12ms\", \"30ms\"]\n",
        name(link.a),
        name(link.b)
    );
    // What does not go together is left out.
    let mut all = text.to_owned();
    for more in [&schemes[pick % schemes.len()], &faults] {
        let longer = format!("{all}\n{more}");
        if read(&longer.replacen("[run]", "[run]\npartitions = 2", 1)).is_ok() {
            all = longer;
        }
    }
    (all, port)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    /// Any number of threads gives the same bytes, in networks where much happens at the same moment: records, rows of flows, and the
    /// packets of a port, with schemes and with links that fail.
    #[test]
    fn threads_change_nothing((text, partitions) in networks(), pick in 0..10_000usize) {
        let (text, port) = with_more(&text, pick);
        let of = |threads| format!("{:?}", attempt(&text, partitions, threads, Some(&port)));
        let one = of(1);
        for threads in [2, 4, 8] {
            prop_assert!(one == of(threads), "{threads} threads differ from one");
        }
    }
}

#[test]
fn roles_in_parts_do_what_those_of_the_whole_do() {
    let text = r#"
version = 1
name = "bas"
[run]
duration = "4s"
warm-up = "1s"
[network]
builder = "dumbbell"
left = 6
right = 1
rate-tolerance = 0.001
access = { rate = "100mbit", delay = "uniform(1ms, 4ms)", queue = "100pkt" }
bottleneck = { rate = "10mbit", delay = "5ms", queue = "60pkt" }
[schemes.bas]
servers = "right.0"
domain = ["right.0", "r1", "r2"]
[[flows]]
name = "up"
from = "left"
to = "right"
pairing = "all-to-all"
start = "uniform(0s, 500ms)"
[[flows]]
name = "short"
from = "left"
to = "right"
pairing = "all-to-all"
size = "100kB"
start = "uniform(1s, 2s)"
[measure]
gauges = ["right.0.updates"]
"#;
    let faults = "[[faults.restarts]]\nnode = \"right.0\"\nat = \"1500ms\"\n[[faults.restarts]]\nnode = \"r1\"\nat = \"2500ms\"\n\
                  [[faults.absences]]\nnode = \"left.2\"\nleaves = \"1700ms\"\njoins = \"2200ms\"\n";
    for text in [text.to_owned(), format!("{text}{faults}")] {
        assert_whole(&text, 2, "r1->r2");
        assert_threads(&text, 2);
    }
}

/// The gateways' probes and messages go from part to part, and the counts that probes are stamped with stay with their ports.
#[test]
fn gateways_in_parts_do_what_those_of_the_whole_do() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/er2bc/steady.toml");
    let text = fs::read_to_string(path).expect("a text");
    let end = text.find("[[compare]]").expect("variants");
    let text = text[..end]
        .replace("duration = \"620s\"\nwarm-up = \"20s\"", "duration = \"8s\"\nwarm-up = \"1s\"")
        .replace("[network]\n", "[network]\nrate-tolerance = 0.001\n");
    assert_whole(&text, 2, "r1->r2");
    assert_threads(&text, 3);
}
