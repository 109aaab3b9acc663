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
