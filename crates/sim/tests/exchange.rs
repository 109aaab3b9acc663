//! Exchanges: every host sends to every other, in rounds with a barrier.

use bandmaster_core::report::RunRecord;
use bandmaster_core::scenario::{Options, parse};
use bandmaster_sim::{RunOptions, run};

const STAR: &str = r#"version = 1
name = "exchange"

[run]
duration = "20s"
sample = "100ms"

[network]
builder = "leaf-spine"
leaves = 1
spines = 1
size = 8

[network.access]
rate = "100mbit"
delay = "10us"
queue = "64pkt"

[network.fabric]
rate = "1gbit"
delay = "10us"
queue = "64pkt"

[[flows]]
name = "messages"
from = "hosts"
to = "hosts"
pairing = "exchange"
sizes = ["14480B", "100kB"]
rounds = 3
compute = "10ms"
"#;

const CORE: [(&str, &str); 2] = [("leaves = 1", "leaves = 4"), ("size = 8", "size = 4")];

fn record(replacements: &[(&str, &str)]) -> RunRecord {
    let mut text = STAR.to_owned();
    for (from, to) in replacements {
        assert!(text.contains(from), "{from}");
        text = text.replace(from, to);
    }
    let study = parse("x.toml", &text, &Options::default()).unwrap_or_else(|e| panic!("{e}"));
    run(&study.cases[0].scenario, 0, 0, &mut RunOptions::default()).unwrap_or_else(|e| panic!("{e}"))
}

fn metric(record: &RunRecord, name: &str) -> f64 {
    record.metric(name).unwrap_or_else(|| panic!("no {name}"))
}

/// Six rounds of 8 x 7 messages; the mean goodput of the run is their payload over its 20 s.
fn assert_complete(record: &RunRecord, hosts: f64) {
    let pairs = hosts * (hosts - 1.0);
    assert_eq!(metric(record, "completed"), 6.0 * pairs);
    assert_eq!(metric(record, "rounds"), 6.0);
    let payload = 3.0 * pairs * (14_480.0 + 1e5) * 8e-6 / 20.0;
    assert!((metric(record, "throughput") - payload).abs() < 1e-6 * payload, "{record:?}");
}

/// Two hosts at one switch. A message of ten segments takes SYN and its answer over two links each, then the first window,
/// of ten segments, to its last byte.
#[test]
fn a_message_between_two_hosts_takes_what_a_connection_takes() {
    let record = record(&[
        ("size = 8", "size = 2\nhost-delay = 0.0"),
        ("sizes = [\"14480B\", \"100kB\"]", "size = \"14480B\""),
        ("rounds = 3", "rounds = 6"),
    ]);
    assert_eq!((metric(&record, "completed"), metric(&record, "rounds")), (12.0, 6.0));
    // IP, TCP and timestamps in 52 bytes, framing in 14.
    let frame = |payload: f64| (payload + 52.0 + 14.0) * 8.0 / 100e6;
    let handshake = 2.0 * 2.0 * (frame(0.0) + 10e-6);
    let expected = handshake + 11.0 * frame(1448.0) + 2.0 * 10e-6;
    for name in ["fct_mean", "fct_p99", "round_time_mean", "round_time_max"] {
        let measured = metric(&record, name);
        assert!((measured - expected).abs() < 0.01 * expected, "{name}: {measured}, {expected}");
    }
    assert_eq!(metric(&record, "drops"), 0.0);
}

/// The same over a connection that stays open: the first message takes a handshake, the five others do not, and the window
/// has grown.
#[test]
fn a_message_over_an_open_connection_takes_no_handshake() {
    let with = |more: &str| {
        record(&[
            ("size = 8", "size = 2\nhost-delay = 0.0"),
            ("sizes = [\"14480B\", \"100kB\"]", &format!("size = \"14480B\"\npersistent = true\n{more}")),
            ("rounds = 3", "rounds = 6"),
            ("[[flows]]", "[tcp]\nidle-restart = true\ninitial-window = \"10pkt\"\n[[flows]]"),
        ])
    };
    let open = with("");
    assert_eq!((metric(&open, "completed"), metric(&open, "rounds")), (12.0, 6.0));
    let frame = |payload: f64| (payload + 52.0 + 14.0) * 8.0 / 100e6;
    let (handshake, message) = (4.0 * (frame(0.0) + 10e-6), 11.0 * frame(1448.0) + 2.0 * 10e-6);
    let expected = message + handshake / 6.0;
    let measured = metric(&open, "fct_mean");
    assert!((measured - expected).abs() < 0.01 * expected, "{measured}, {expected}");
    let payload = 12.0 * 14_480.0 * 8e-6 / 20.0;
    assert!((metric(&open, "throughput") - payload).abs() < 1e-6 * payload, "{open:?}");
}

/// A window of two segments after idle time, longer than a timeout, takes round trips that a kept window does not.
#[test]
fn a_window_begins_again_after_idle_time_where_tcp_does_so() {
    let with = |idle: &str, compute: &str| {
        let record = record(&[
            ("size = 8", "size = 2\nhost-delay = 0.0"),
            ("sizes = [\"14480B\", \"100kB\"]", "size = \"14480B\"\npersistent = true"),
            ("rounds = 3", "rounds = 11"),
            ("compute = \"10ms\"", compute),
            ("delay = \"10us\"", "delay = \"1ms\""),
            (
                "[[flows]]",
                &format!("[tcp]\n{idle}\nmin-rto = \"200ms\"\ninitial-window = \"2pkt\"\n[[flows]]"),
            ),
        ]);
        assert_eq!(metric(&record, "completed"), 22.0);
        metric(&record, "fct_p50")
    };
    let (long, short) = ("compute = \"500ms\"", "compute = \"50ms\"");
    let again = with("idle-restart = true", long);
    let kept = [with("idle-restart = false", long), with("idle-restart = true", short)];
    // Two, four and four segments: two round trips of 4 ms more than ten at once.
    for kept in kept {
        assert!((again - kept - 8e-3).abs() < 1.5e-3, "{again} {kept}");
    }
}

#[test]
fn all_messages_arrive_over_persistent_connections() {
    for schedule in ["pairwise", "window\"\noutstanding = 3 #", "window\"\noutstanding = 1000 #"] {
        let exchange = format!("pairing = \"exchange\"\npersistent = true\nschedule = \"{schedule}\"");
        let own = [("pairing = \"exchange\"", exchange.as_str()), ("\"100kB\"", "\"101360B\"")];
        let record = record(&[&CORE[..], &own, &[("1gbit", "100mbit")]].concat());
        assert_eq!((metric(&record, "completed"), metric(&record, "rounds")), (6.0 * 240.0, 6.0));
        let payload = 3.0 * 240.0 * (14_480.0 + 101_360.0) * 8e-6 / 20.0;
        assert!((metric(&record, "throughput") - payload).abs() < 1e-6 * payload, "{schedule}");
        assert!(schedule == "pairwise" || metric(&record, "drops") > 0.0, "{schedule}");
    }
}

/// A least timeout acts on open connections; an initial window only as the window after idle time.
#[test]
fn opentcp_changes_what_an_open_connection_can_change() {
    let with = |policy: &str, idle: &str| {
        let head = format!(
            "[tcp]\ncongestion-control = \"bic\"\ninitial-window = \"3pkt\"\nmin-rto = \"200ms\"\n{idle}\n\
             [schemes.opentcp]\npolicies = [\"{policy}\"]\ncycle = \"1s\"\n[[flows]]"
        );
        record(&[
            (
                "sizes = [\"14480B\", \"100kB\"]",
                "size = \"15928B\"\npersistent = true\nschedule = \"window\"\noutstanding = 4",
            ),
            ("rounds = 3", "rounds = 30"),
            ("compute = \"10ms\"", "compute = \"300ms\""),
            ("queue = \"64pkt\"", "queue = \"80pkt\""),
            ("leaves = 1", "leaves = 2"),
            ("1gbit", "266mbit"),
            ("[[flows]]", &head),
        ])
    };
    let time = |record: &RunRecord| metric(record, "fct_mean");
    let [kept, again] = ["idle-restart = false", "idle-restart = true"];
    assert_eq!(time(&with("only-window", kept)), time(&with("never-true", kept)));
    assert!(time(&with("only-window", again)) != time(&with("never-true", again)));
    let [short, long] = ["only-rto", "never-true"].map(|policy| metric(&with(policy, kept), "rtos"));
    assert!(short > 10.0 * long.max(1.0), "{short} {long}");
}

#[test]
fn all_messages_arrive_in_either_schedule() {
    for schedule in ["pairwise", "window\"\noutstanding = 3 #", "window\"\noutstanding = 1000 #"] {
        let exchange = format!("pairing = \"exchange\"\nschedule = \"{schedule}\"");
        let on_a_star = record(&[("pairing = \"exchange\"", &exchange)]);
        assert_complete(&on_a_star, 8.0);
        let congested =
            record(&[&CORE[..], &[("pairing = \"exchange\"", &exchange), ("1gbit", "100mbit")]].concat());
        assert_complete(&congested, 16.0);
        assert!(schedule == "pairwise" || metric(&congested, "drops") > 0.0, "{schedule}");
    }
}

/// Several ways between two hosts; random losses make old packets meet new connections of the same number.
#[test]
fn losses_and_several_ways_change_nothing_in_what_arrives() {
    let record = record(
        &[
            &CORE[..],
            &[
                ("spines = 1", "spines = 3"),
                ("queue = \"64pkt\"", "queue = \"64pkt\"\nloss = 0.002"),
                ("duration = \"20s\"", "duration = \"200s\""),
                ("[[flows]]", "[tcp]\nmin-rto = \"5ms\"\n\n[[flows]]"),
            ],
        ]
        .concat(),
    );
    assert_eq!(metric(&record, "completed"), 6.0 * 16.0 * 15.0);
    assert!(metric(&record, "retransmits") > 50.0);
}

#[test]
fn the_record_is_the_same_every_time() {
    let window = [
        ("pairing = \"exchange\"", "pairing = \"exchange\"\nschedule = \"window\""),
        ("compute = \"10ms\"", "compute = \"uniform(1ms, 9ms)\""),
    ];
    let of = |_| record(&[&CORE[..], &window].concat());
    let records: Vec<RunRecord> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..2).map(|number| scope.spawn(move || of(number))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a record")).collect()
    });
    assert_eq!(records[0].metrics.len(), records[1].metrics.len());
    assert_eq!(format!("{:?}", records[0]), format!("{:?}", records[1]));
    assert_complete(&records[0], 16.0);
}

/// OpenTCP's Oracle tunes hosts whose flows are messages, and hears of all switches and agents.
#[test]
fn opentcp_tunes_messages() {
    let scheme = "[schemes.opentcp]\npolicies = [\"opentcp1\"]\ncycle = \"100ms\"\n[measure]\n\
                  gauges = [\"leaf1-hosts.0.tuned\", \"leaf1-hosts.0.coverage\"]\n[[flows]]";
    let tcp = "[tcp]\ncongestion-control = \"bic\"\ninitial-window = \"3pkt\"\nmin-rto = \"200ms\"\n";
    let short = [
        ("sizes = [\"14480B\", \"100kB\"]", "size = \"14480B\""),
        ("rounds = 3", "rounds = 60"),
        ("100mbit", "1gbit"),
    ];
    let with = |head: &str| record(&[&CORE[..], &short, &[("[[flows]]", head)]].concat());
    let plain = with(&format!("{tcp}\n[[flows]]"));
    let tuned = with(&format!("{tcp}\n{scheme}"));
    for record in [&plain, &tuned] {
        assert_eq!((metric(record, "completed"), metric(record, "rounds")), (60.0 * 240.0, 60.0));
    }
    assert_eq!(metric(&tuned, "leaf1-hosts.0.tuned.max"), 1.0);
    assert_eq!(metric(&tuned, "leaf1-hosts.0.coverage.last"), 1.0);
    // Ten segments in a first window of 20 instead of 3 save round trips.
    let [fast, slow] = [&tuned, &plain].map(|record| metric(record, "fct_mean"));
    assert!(fast < 0.9 * slow, "{fast} {slow}");
}
