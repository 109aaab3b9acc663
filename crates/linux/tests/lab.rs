//! The lab against closed forms, and what it leaves behind. Needs root; without, each test says that it was skipped.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bandmaster_core::scenario::{Options, Scenario, parse};
use bandmaster_linux::Error;
use bandmaster_linux::lab::{self, Counters, RunOptions, Trial};
use nix::unistd::geteuid;

/// True when the tests can run here; says why not otherwise.
fn has_root(test: &str) -> bool {
    let root = geteuid().is_root();
    if !root {
        eprintln!("skipped: {test}: needs root: network namespaces");
    }
    root
}

/// One lab at a time: they share two cores, and one test looks at all that is there.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Namespaces, devices, shapers, rules of routing and processes of this machine that are ours or could be.
fn inventory() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut add = |what: &str, lines: String| {
        found.extend(lines.lines().map(|line| format!("{what}: {}", line.trim())));
    };
    let names = |folder: &str| {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|entry| format!("{}\n", entry.file_name().to_string_lossy())).collect::<String>()
    };
    // Other runs of bandmaster on this machine are not this test's.
    let own = format!("bm-{:x}", std::process::id());
    let ours: String = names("/run/netns").lines().filter(|name| name.starts_with(&own)).collect();
    add("namespace", ours);
    add("device", names("/sys/class/net"));
    for (what, words) in [("qdisc", ["qdisc", "show"]), ("filter", ["filter", "show"])] {
        let output = Command::new("tc").args(words).output();
        add(what, output.map(|o| String::from_utf8_lossy(&o.stdout).into_owned()).unwrap_or_default());
    }
    for words in [["rule", "show"], ["route", "show"]] {
        let output = Command::new("ip").args(words).output();
        add(words[0], output.map(|o| String::from_utf8_lossy(&o.stdout).into_owned()).unwrap_or_default());
    }
    let threads = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let forwarders = threads.filter(|task| {
        fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name.trim() == "forwarder")
    });
    add("forwarders", forwarders.count().to_string());
    let rules = Command::new("nft").args(["list", "ruleset"]).output();
    add("nft", rules.map(|o| String::from_utf8_lossy(&o.stdout).into_owned()).unwrap_or_default());
    // Devices, sockets, namespaces and BPF objects are held by open files.
    let kinds = names("/proc/self/fd").lines().fold(BTreeMap::<String, u32>::new(), |mut kinds, file| {
        if let Ok(target) = fs::read_link(format!("/proc/self/fd/{file}")) {
            let target = target.to_string_lossy().into_owned();
            let kind = target.split(":[").next().unwrap_or_default().to_owned();
            // The folder that is being read.
            *kinds.entry(kind).or_default() += u32::from(!target.ends_with("/fd"));
        }
        kinds
    });
    for (kind, files) in kinds {
        add("open", format!("{files} {kind}"));
    }
    for name in names("/proc/sys/net/ipv4").lines().chain(["../core/wmem_max", "../core/rmem_max"]) {
        let value = fs::read_to_string(format!("/proc/sys/net/ipv4/{name}")).unwrap_or_default();
        add("parameter", format!("{name} = {}", value.trim()));
    }
    found
}

fn scenario(text: &str) -> Scenario {
    let mut study = parse("test.toml", text, &Options::default()).unwrap_or_else(|e| panic!("{e}"));
    study.cases.remove(0).scenario
}

fn run(text: &str) -> Trial {
    lab::run(&scenario(text), 0, 0, &RunOptions::default()).unwrap_or_else(|e| panic!("{e}"))
}

fn figure(trial: &Trial, name: &str) -> f64 {
    trial.record.figure(name).unwrap_or(f64::NAN)
}

/// One connection over one bottleneck.
const ONE: &str = r#"
    version = 1
    name = "one"
    [run]
    duration = "4s"
    warm-up = "2s"
    trials = 1
    [network]
    hosts = ["a", "b"]
    routers = ["r"]
    frame-overhead = "14B"
    host-delay = 0.0
    [[network.links]]
    ends = ["a", "r"]
    rate = "100mbit"
    delay = "1ms"
    [[network.links]]
    ends = ["r", "b"]
    rate = "10mbit"
    delay = "10ms"
    queue = "50pkt"
    [[flows]]
    name = "bulk"
    from = "a"
    to = "b"
"#;

/// Two UDP flows over a shaper of the kernel that gives them 1 and 3 Mbit/s, and one that is not shaped.
const SHAPED: &str = r#"
    version = 1
    name = "shaped"
    [run]
    duration = "3s"
    warm-up = "1s"
    sample = "500ms"
    trials = 1
    [network]
    hosts = ["a", "b"]
    routers = ["r", "s"]
    frame-overhead = "14B"
    host-delay = 0.0
    [network.link]
    rate = "100mbit"
    delay = "1ms"
    queue = "1000pkt"
    [[network.links]]
    ends = ["a", "r"]
    [[network.links]]
    ends = ["r", "s"]
    [network.links.queue]
    discipline = "htb"
    rate = "4mbit"
    limit = "20pkt"
    direct = [48]
    [[network.links.queue.classes]]
    name = "one"
    dscp = [1]
    rate = "1mbit"
    [[network.links.queue.classes]]
    name = "three"
    dscp = [3]
    rate = "3mbit"
    [[network.links]]
    ends = ["s", "b"]
    [measure]
    queue = "r->s"
    record = "flows"
    [[flows]]
    name = "one"
    from = "a"
    to = "b"
    transport = "udp"
    rate = "5mbit"
    packet = "1000B"
    measured = true
    dscp = 1
    [[flows]]
    name = "three"
    from = "a"
    to = "b"
    transport = "udp"
    rate = "5mbit"
    packet = "1000B"
    measured = true
    dscp = 3
    [[flows]]
    name = "direct"
    from = "a"
    to = "b"
    transport = "udp"
    rate = "2mbit"
    packet = "1000B"
    measured = true
    dscp = 48
"#;

/// 6 Mbit/s of UDP into a link whose capacity changes.
const STEPS: &str = r#"
    version = 1
    name = "steps"
    [run]
    duration = "4s"
    sample = "250ms"
    trials = 1
    [network]
    hosts = ["a", "b"]
    routers = ["r"]
    frame-overhead = "14B"
    host-delay = 0.0
    [[network.links]]
    ends = ["a", "r"]
    rate = "100mbit"
    delay = "1ms"
    [[network.links]]
    ends = ["r", "b"]
    rate = "4mbit"
    capacity.steps = [
        { at = "1s", rate = "1mbit" },
        { at = "2s", rate = "0bit" },
        { at = "2500ms", rate = "2mbit" },
    ]
    delay = "1ms"
    queue = "5pkt"
    [measure]
    queue = "r->b"
    windows = [
        { name = "wide", from = "250ms", to = "1s" },
        { name = "narrow", from = "1250ms", to = "2s" },
        { name = "pause", from = "2250ms", to = "2500ms" },
        { name = "again", from = "2750ms", to = "4s" },
    ]
    [[flows]]
    name = "bulk"
    from = "a"
    to = "b"
    transport = "udp"
    rate = "6mbit"
    packet = "1000B"
    measured = true
"#;

/// A connection over a long queue, some of whose packets are lost on the way to it, and which needs nine tenths of the link.
const NEEDY: &str = r#"
    version = 1
    name = "needy"
    [run]
    duration = "9s"
    warm-up = "3s"
    sample = "500ms"
    trials = 1
    [network]
    hosts = ["a", "b"]
    routers = ["r"]
    frame-overhead = "14B"
    host-delay = 0.0
    [[network.links]]
    ends = ["a", "r"]
    rate = "100mbit"
    delay = "1ms"
    drop-packets = [400, 550]
    [[network.links]]
    ends = ["r", "b"]
    rate = "1mbit"
    delay = "10ms"
    queue = "60pkt"
    [[flows]]
    name = "bulk"
    from = "a"
    to = "b"
    needs = "900kbit"
    needs-over = "1s"
"#;

#[test]
fn one_connection_fills_one_bottleneck_and_nothing_is_left() {
    if !has_root("one_connection_fills_one_bottleneck_and_nothing_is_left") {
        return;
    }
    let _alone = alone();
    let before = inventory();
    let trial = run(ONE);
    assert_eq!(inventory(), before, "after the run and before");
    let throughput = figure(&trial, "throughput");
    // 1448 bytes of payload in a frame of 1514.
    let most = 10.0 * 1448.0 / 1514.0;
    println!("{:?}\n{:?}\n{:?}", trial.record.figures, trial.health, trial.remarks);
    assert!((throughput - most).abs() < 0.02 * most, "{throughput} Mbit/s, not {most}");
    assert!(figure(&trial, "drops") > 0.0, "CUBIC overflows the queue");
    assert!(figure(&trial, "queue_max") >= 50.0);
    assert!(trial.ports.iter().all(Counters::add_up), "{:?}", trial.ports);
}

#[test]
fn the_kernel_shapes_by_code_point() {
    if !has_root("the_kernel_shapes_by_code_point") {
        return;
    }
    let _alone = alone();
    let trial = run(SHAPED);
    let throughput = figure(&trial, "throughput");
    // Payload of 972 bytes in a frame of 1014: 4 Mbit/s shaped, and 2 Mbit/s of IP that is not.
    let expected = 4.0 * 972.0 / 1014.0 + 2.0 * 0.972;
    assert!((throughput - expected).abs() < 0.02 * expected, "{throughput} Mbit/s, not {expected}");
    // Both classes are full.
    let queue = figure(&trial, "queue");
    assert!((39.0..=41.0).contains(&queue), "{queue} packets wait");
    assert!(figure(&trial, "drops") > 500.0);
}

#[test]
fn a_stopped_run_leaves_nothing() {
    if !has_root("a_stopped_run_leaves_nothing") {
        return;
    }
    let _alone = alone();
    let before = inventory();
    let scenario = scenario(ONE);
    let stop = AtomicBool::new(false);
    let result = std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(800));
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        lab::run(&scenario, 0, 0, &RunOptions { stop: Some(&stop) })
    });
    assert!(matches!(result, Err(Error::Stopped)), "{result:?}");
    assert_eq!(inventory(), before, "after the run and before");
}

#[test]
fn a_link_changes_its_capacity() {
    if !has_root("a_link_changes_its_capacity") {
        return;
    }
    let _alone = alone();
    let trial = run(STEPS);
    println!("{:?}\n{:?}\n{:?}", trial.record.figures, trial.health, trial.remarks);
    // Payload of 972 bytes in a frame of 1014.
    for (window, mbit) in [("wide", 4.0), ("narrow", 1.0), ("pause", 0.0), ("again", 2.0)] {
        let (throughput, expected) = (figure(&trial, &format!("{window}.throughput")), mbit * 972.0 / 1014.0);
        // Less than three packets in each window.
        assert!((throughput - expected).abs() < 0.03 * expected + 0.03, "{window}: {throughput}");
    }
    assert!(figure(&trial, "drops") > 500.0);
}

/// The link is never idle: packets come at its rate also while one that was lost is missing, so that the receiver's
/// program waits for a round trip of 0.7 s and more.
#[test]
fn what_arrives_out_of_order_has_arrived() {
    if !has_root("what_arrives_out_of_order_has_arrived") {
        return;
    }
    let _alone = alone();
    let trial = run(NEEDY);
    println!("{:?}\n{:?}\n{:?}", trial.record.figures, trial.health, trial.remarks);
    assert!(figure(&trial, "retransmits") > 0.0, "losses without end");
    assert_eq!(figure(&trial, "bulk.shortage"), 0.0, "{:?}", trial.record.figures);
}

#[test]
fn what_linux_cannot_do_is_refused_before_anything_is_built() {
    let _alone = alone();
    for (changed, to, says) in [
        ("\"100mbit\"", "\"10gbit\"", "more than a user-space forwarder carries"),
        (
            "[[flows]]",
            "[tcp]\ncongestion-control = \"tahoe\"\nsack = false\n[[flows]]",
            "no congestion control `tahoe`",
        ),
        ("[[flows]]", "[tcp]\nread-rate = \"1mbit\"\n[[flows]]", "read at once"),
    ] {
        let scenario = scenario(&ONE.replace(changed, to));
        match lab::run(&scenario, 0, 0, &RunOptions::default()) {
            Err(Error::Missing(why)) => assert!(why.contains(says), "{why}"),
            other => panic!("{to}: {other:?}"),
        }
    }
}
