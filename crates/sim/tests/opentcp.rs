//! What an operator's policy sets reaches the TCP of hosts: each setting, end to end.

use bandmaster_core::capture::CapturedPacket;
use bandmaster_core::report::RunRecord;
use bandmaster_core::scenario::{Files, Options, Scenario, parse};
use bandmaster_core::time::Span;
use bandmaster_sim::{RunOptions, run};

/// A policy file in the scenario's folder.
#[derive(Debug)]
struct Beside(String);

impl Files for Beside {
    fn read(&self, _name: &str) -> Result<String, String> {
        Ok(self.0.clone())
    }
}

const POLICY: &str = r#"
version = 1
name = "mine"
goal = "one setting"
cycle = "1s"
statistics = ["flows.live"]
force = ["variants"]

[[rules]]
name = "always"
set = { SETTING }
"#;

/// The first CUE comes after a second, the flow begins later.
const SCENARIO: &str = r#"
version = 1
name = "settings"

[run]
duration = "5s"
sample = "10ms"

[network]
builder = "dumbbell"
host-delay = 0.0
left = 1
right = 1
access = { rate = "1gbit", delay = "10us" }
bottleneck = { rate = "100mbit", delay = "1ms", queue = { discipline = "fifo", limit = "40pkt", ecn-threshold = "10pkt" } }

[tcp]
congestion-control = "newreno"

[[flows]]
name = "data"
from = "left"
to = "right"
start = "1500ms"
FLOW

[schemes.opentcp]
policies = ["mine.toml"]

[measure]
record = "flows"
"#;

/// Runs with a policy that sets `setting`, and with more about the flow; what left the sender, and the record.
fn sent(setting: &str, flow: &str) -> (Vec<CapturedPacket>, RunRecord) {
    let files = Beside(POLICY.replace("SETTING", setting));
    let options = Options { files: Some(&files), ..Options::default() };
    let study = parse("s.toml", &SCENARIO.replace("FLOW", flow), &options).unwrap_or_else(|e| panic!("{e}"));
    let scenario: &Scenario = &study.cases[0].scenario;
    let mut packets = Vec::new();
    let mut keep = |packet: &CapturedPacket| packets.push(*packet);
    let mut options = RunOptions { capture: Some(("left.0->r1", &mut keep)), ..RunOptions::default() };
    let record = run(scenario, 0, 0, &mut options).unwrap_or_else(|e| panic!("{e}"));
    packets.retain(|packet| packet.payload > 0);
    (packets, record)
}

fn largest_window(record: &RunRecord) -> f32 {
    let of_flow = record.series.iter().filter(|series| series.metric == "cwnd");
    of_flow.flat_map(|series| &series.values).copied().filter(|window| window.is_finite()).fold(0.0, f32::max)
}

/// Packets that leave within half a round trip of the first.
fn burst(packets: &[CapturedPacket]) -> usize {
    let until = packets[0].at + Span::from_millis(1);
    packets.iter().take_while(|packet| packet.at < until).count()
}

#[test]
fn the_initial_window() {
    for (setting, packets) in [("initial-window = 20", 20), ("initial-window = 3", 3), ("pacing = false", 10)]
    {
        assert_eq!(burst(&sent(setting, "").0), packets, "{setting}");
    }
}

#[test]
fn a_window_cap() {
    let mss = 1448.0;
    assert!(largest_window(&sent("pacing = false", "").1) > 12.0 * mss);
    assert!(largest_window(&sent("window-cap = 12", "").1) <= 12.0 * mss);
}

#[test]
fn pacing() {
    let spread = |setting| {
        let (packets, _) = sent(setting, "");
        packets[9].at.since(packets[0].at)
    };
    // Ten segments at 1 Gbit/s take 0.11 ms; paced at twice the window in a round trip of 2 ms, 0.9 ms.
    assert!(spread("pacing = false") < Span::from_micros(200), "{}", spread("pacing = false"));
    assert!(spread("pacing = true") > Span::from_micros(600), "{}", spread("pacing = true"));
}

/// RFC 5681 section 4.1 (RFC 2861 would halve per timeout instead): the window after a pause longer than the timeout is
/// the initial one, and the grown one without.
#[test]
fn restart_after_idle_time() {
    let after_pause = |setting| {
        let (packets, _) = sent(setting, "on = \"300ms\"\noff = \"1s\"");
        let pause = |pair: &[CapturedPacket]| pair[1].at.since(pair[0].at) > Span::from_millis(900);
        let resumed = packets.windows(2).position(pause).expect("a pause") + 1;
        burst(&packets[resumed..])
    };
    assert_eq!(after_pause("idle-restart = true"), 10);
    assert!(after_pause("idle-restart = false") > 12, "{}", after_pause("idle-restart = false"));
}

#[test]
fn dctcp_comes_with_ecn_and_others_go_without() {
    let (packets, record) = sent("variant = \"dctcp\"", "");
    let metric = |name| record.metric(name).expect("a metric");
    assert!(packets.iter().all(|packet| packet.tos & 0b11 == 0b10), "ECT(0) on all data");
    assert!(metric("marks") > 100.0 && metric("drops") == 0.0, "{} {}", metric("marks"), metric("drops"));
    for variant in ["tahoe", "reno", "newreno", "bic", "cubic"] {
        let (packets, record) = sent(&format!("variant = \"{variant}\""), "");
        assert!(packets.iter().all(|packet| packet.tos & 0b11 == 0), "{variant}");
        assert_eq!(record.metric("marks"), Some(0.0), "{variant}");
        assert!(record.metric("throughput").expect("a metric") > 40.0, "{variant}");
    }
}

/// A tenth of all packets is lost on the way, so that short flows end by timeouts now and then.
#[test]
fn the_least_and_the_initial_timeout() {
    let longest = |setting| {
        let files = Beside(POLICY.replace("SETTING", setting));
        let options = Options { files: Some(&files), ..Options::default() };
        let many = "size = \"4kB\"\ncount = 200";
        let lossy = SCENARIO.replace("FLOW", many).replace("delay = \"1ms\"", "delay = \"1ms\", loss = 0.1");
        let study = parse("s.toml", &lossy, &options).unwrap_or_else(|e| panic!("{e}"));
        let record = run(&study.cases[0].scenario, 0, 0, &mut RunOptions::default());
        let record = record.unwrap_or_else(|e| panic!("{e}"));
        [record.metric("completed"), record.metric("fct_p99")].map(|value| value.expect("a metric"))
    };
    let [all, own] = longest("pacing = false");
    // A lost SYN is sent again after a second; with the other two settings, after 20 ms.
    assert!(all > 100.0 && own > 0.9, "{all} {own}");
    let [_, least] = longest("min-rto = \"2ms\"");
    let [done, both] = longest("min-rto = \"2ms\"\ninitial-rto = \"20ms\"".replace('\n', ", ").as_str());
    assert!(least > 0.9 && both < least / 3.0 && done == 200.0, "{least} {both} {done}");
}

/// No data arrive. The timeout is a round trip of 2 ms and the least of two ticks, 202 ms, then twice as long each time: 3, 5 and 9
/// ticks, from the tick that begins next. The data leave at 1502 ms.
#[test]
fn a_timer_of_ticks() {
    let lossy = "delay = \"1ms\", loss = 0.999999, loss-of = \"data\"";
    let resent = |tick: &str| {
        let files = Beside(POLICY.replace("SETTING", "min-rto = \"2ms\""));
        let options = Options { files: Some(&files), ..Options::default() };
        let text = SCENARIO.replace("FLOW", "size = \"1kB\"").replace("delay = \"1ms\"", lossy);
        let text = text.replace("\"newreno\"\n", &format!("\"newreno\"\n{tick}\n"));
        let study = parse("s.toml", &text, &options).unwrap_or_else(|e| panic!("{e}"));
        let mut left = Vec::new();
        let mut keep = |packet: &CapturedPacket| left.push((packet.payload, packet.at));
        let mut options = RunOptions { capture: Some(("left.0->r1", &mut keep)), ..RunOptions::default() };
        run(&study.cases[0].scenario, 0, 0, &mut options).unwrap_or_else(|e| panic!("{e}"));
        let data = left.into_iter().filter(|(payload, _)| *payload > 0);
        data.map(|(_, at)| at.as_nanos() / 1_000_000).collect::<Vec<_>>()
    };
    assert_eq!(resent("timer-tick = \"100ms\"")[..4], [1502, 1900, 2400, 3300]);
    let exact = resent("");
    // Without ticks three round trips of 2.045 ms: 1502.05 + 6.135, 18.4 and 42.9 ms.
    assert_eq!(exact[..4], [1502, 1508, 1520, 1545]);
}

/// Poisson arrivals offer the load that is asked for, with sizes from what ships and from a file; every flow of limited
/// size that completes is counted once.
#[test]
fn arrivals_offer_their_load() {
    let text = r#"
version = 1
name = "arrivals"

[run]
duration = "20s"

[network]
builder = "star"
size = 8
access = { rate = "100mbit", delay = "10us", queue = "500pkt" }

[[flows]]
name = "requests"
from = "hosts"
to = "hosts"
pairing = "all-to-all"
size-cdf = "mine.cdf"
load = 0.3
start = "1s"
stop = "19s"

[measure]
distributions = true
record = "none"
"#;
    let files = Beside("1kB 0.5\n100kB 1\n".to_owned());
    let options = Options { files: Some(&files), ..Options::default() };
    let study = parse("s.toml", text, &options).unwrap_or_else(|e| panic!("{e}"));
    let record = run(&study.cases[0].scenario, 0, 0, &mut RunOptions::default()).expect("runs");
    let metric = |name| record.metric(name).expect("a metric");
    // 8 senders, 18 s, 30 % of the payload of full segments at 100 Mbit/s, 25.75 kB on average.
    let expected = 8.0 * 18.0 * 0.3 * 100e6 * 1448.0 / 1514.0 / 8.0 / 25_750.0;
    assert!((metric("completed") / expected - 1.0).abs() < 0.05, "{} of {expected}", metric("completed"));
    assert!(metric("fct_p50") <= metric("fct_p80") && metric("fct_p99") <= metric("fct_max"));
    assert!((metric("undropped") - 100.0).abs() < 5.0, "{}", metric("undropped"));
    let use_of_links = record.distributions.iter().find(|d| d.metric == "utilization").expect("recorded");
    let mean = use_of_links.quantiles.iter().sum::<f64>() / use_of_links.quantiles.len() as f64;
    assert!((24.0..36.0).contains(&mean), "{mean} %");
}

/// Rounds over new connections use flow numbers in turn; each connection begins with what its host has then.
#[test]
fn every_round_begins_with_the_settings_of_its_time() {
    // A CUE each second while another host has a flow, for 1.5 s; a round each 1.6 s.
    let policy = POLICY
        .replace("cycle = \"1s\"", "cycle = \"1s\"\nlease = \"1500ms\"")
        .replace("set = {", "when = \"max(flows.live) > 0.5\"\nset = {")
        .replace("SETTING", "initial-window = 20");
    let other = |name: &str, start: &str, stop: &str| {
        let tcp = "tcp = { cwnd-clamp = \"2pkt\" }";
        let times = format!("start = \"{start}\"\nstop = \"{stop}\"");
        format!("[[flows]]\nname = \"{name}\"\nfrom = \"left.1\"\nto = \"right.1\"\n{times}\n{tcp}\n")
    };
    let rounds = [
        "size = \"144800B\"\nrounds = 5\n",
        &other("early", "200ms", "3200ms"),
        &other("late", "6500ms", "9s"),
    ];
    let text = SCENARIO
        .replace("left = 1\nright = 1", "left = 2\nright = 2")
        .replace("from = \"left\"\nto = \"right\"", "from = \"left.0\"\nto = \"right.0\"")
        .replace("duration = \"5s\"", "duration = \"10s\"")
        .replace("1500ms", "1600ms")
        .replace("FLOW", &rounds.join("\n"));
    let files = Beside(policy);
    let options = Options { files: Some(&files), ..Options::default() };
    let study = parse("s.toml", &text, &options).unwrap_or_else(|e| panic!("{e}"));
    let mut packets = Vec::new();
    let mut keep = |packet: &CapturedPacket| packets.push(*packet);
    let mut options = RunOptions { capture: Some(("left.0->r1", &mut keep)), ..RunOptions::default() };
    run(&study.cases[0].scenario, 0, 0, &mut options).unwrap_or_else(|e| panic!("{e}"));
    packets.retain(|packet| packet.payload > 0);
    let is_round = |a: &CapturedPacket, b: &CapturedPacket| b.at.since(a.at) < Span::from_secs(1);
    let bursts: Vec<usize> = packets.chunk_by(is_round).map(burst).collect();
    assert_eq!(bursts, [20, 20, 10, 10, 20]);
}

/// A round's loss is of the packets of that round, whatever its connection has carried before.
#[test]
fn losses_are_of_the_packets_of_their_round() {
    let text = r#"
version = 1
name = "persistent"

[run]
duration = "20s"

[network]
builder = "dumbbell"
host-delay = 0.0
left = 1
right = 1
access = { rate = "1gbit", delay = "10us" }
bottleneck = { rate = "10mbit", delay = "1ms", queue = "8pkt" }

[tcp]
congestion-control = "newreno"

[[flows]]
name = "answers"
from = "left"
to = "right"
size = "144800B"
rounds = 8
persistent = true

[measure]
distributions = true
record = "none"
"#;
    let study = parse("s.toml", text, &Options::default()).unwrap_or_else(|e| panic!("{e}"));
    let record = run(&study.cases[0].scenario, 0, 0, &mut RunOptions::default()).expect("runs");
    let metric = |name| record.metric(name).expect("a metric");
    assert_eq!(metric("completed"), 8.0);
    assert!(metric("drops") > 10.0 && metric("retransmits") - metric("drops") < 2.0);
    let of_drops = record.distributions.iter().find(|d| d.metric == "flow_drops").expect("recorded");
    // 400 steps over eight rounds: the 50th, 100th, ... is a round's.
    let shares = of_drops.quantiles.iter().skip(50).step_by(50).map(|share| share / 100.0);
    // Of a round's 100 segments and those sent again; the first's SYN and what is sent in vain are hardly anything.
    let dropped: f64 = shares.map(|share| 100.0 * share / (1.0 - share)).sum();
    assert!((dropped - metric("drops")).abs() < 1.0, "{dropped} of {}", metric("drops"));
}
