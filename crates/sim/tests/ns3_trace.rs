//! One flow against ns-3.37, packet by packet: around its first recovery it sends the same segments within a microsecond.

use std::time::Duration;

use bandmaster_core::capture::{CapturedPacket, CapturedTransport};
use bandmaster_core::scenario::{Options, parse};
use bandmaster_sim::{RunOptions, run};

const NS3: &str = include_str!("ns3-one-flow.txt");
/// ns-3 rounds each transmission to a nanosecond, and captures count microseconds.
const NEAR: Duration = Duration::from_micros(1);

const HEAD: &str = r#"
version = 1
name = "one-flow"
[run]
duration = "5s"
warm-up = "0s"
[network]
builder = "dumbbell"
left = 1
right = 1
frame-overhead = "2B"
host-delay = 0.0
[[flows]]
name = "bulk"
from = "left"
to = "right"
start = "0s"
[tcp]
congestion-control = "newreno"
byte-counting = false
flight-size = "pipe"
quick-acks = "1pkt"
recovery = "prr-ns3"
aligned-options = false
partial-ack-sends = true
impatient-timer = true
rtt-samples = "each-ack"
cwnd-validation = false
rto-floor = "rto"
receive-buffer = "4MiB"
"#;

const RED: &str = r#"
mss = "1000B"
timestamps = false
delayed-ack-timeout = "200ms"
initial-rto = "3s"
min-rto = "1s"
[network.access]
rate = "100mbit"
delay = "1ms"
[network.bottleneck]
rate = "1mbit"
delay = "50ms"
queue = "100pkt"
"#;

const ACKS: &str = r#"
initial-rto = "1s"
min-rto = "200ms"
[network.access]
rate = "1gbit"
delay = "5ms"
queue = "100000pkt"
[network.bottleneck]
rate = "20mbit"
delay = "10ms"
queue = "100pkt"
capacity-back = { steps = [{ at = "0s", rate = "200kbit" }] }
"#;

/// When the flow sends which segment, counted from 0.
fn sent(rest: &str, mss: u32) -> Vec<(Duration, u32)> {
    let study = parse("one-flow.toml", &format!("{HEAD}{rest}"), &Options::default())
        .unwrap_or_else(|e| panic!("{e}"));
    let mut sent = Vec::new();
    let mut keep = |packet: &CapturedPacket| {
        let CapturedTransport::Tcp(tcp) = packet.transport else { panic!("a datagram") };
        if packet.payload > 0 {
            // The byte after the SYN has number 2.
            sent.push((Duration::from_nanos(packet.at.as_nanos()), tcp.seq.wrapping_sub(2) / mss));
        }
    };
    let mut options = RunOptions { capture: Some(("left.0->r1", &mut keep)), ..RunOptions::default() };
    run(&study.cases[0].scenario, 0, 0, &mut options).unwrap_or_else(|e| panic!("{e}"));
    sent
}

fn judge(case: &str, rest: &str, mss: u32) {
    let row = |line: &str| {
        let [name, at, segment] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let at = Duration::from_micros(at.parse().expect("microseconds"));
        (name == case).then(|| (at, segment.parse::<u32>().expect("a number")))
    };
    let theirs: Vec<_> = NS3.lines().filter(|line| !line.starts_with('#')).filter_map(row).collect();
    let (first, last) = (theirs[0].0, theirs[theirs.len() - 1].0);
    let ours = sent(rest, mss);
    let ours: Vec<_> = ours.into_iter().filter(|(at, _)| *at + NEAR >= first && *at <= last + NEAR).collect();
    let retransmitted = theirs.windows(2).any(|pair| pair[1].1 < pair[0].1);
    assert!(theirs.len() > 100 && retransmitted, "{case}: {} segments of ns-3", theirs.len());
    for (n, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
        assert!(
            ours.1 == theirs.1 && ours.0.abs_diff(theirs.0) <= NEAR,
            "{case} {n}: {ours:?}, ns-3 {theirs:?}"
        );
    }
    assert_eq!(ours.len(), theirs.len(), "{case}");
}

/// A slow start that loses 57 of a hundred packets, its recovery and the first round trips after.
#[test]
fn behind_a_short_queue() {
    judge("red", RED, 1000);
}

/// More than a third of a window is lost; until the timer runs out.
#[test]
fn with_a_slow_way_back() {
    judge("acks", ACKS, 1448);
}
