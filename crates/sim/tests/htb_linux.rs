//! HTB in the simulator against Linux 6.18 with `burst 1600 cburst 1600 quantum 1514` and a fifo of 50 packets per class.
//!
//! The same discipline is held against the same numbers, and against a change of rates while packets wait, in the unit tests
//! of `bandmaster_core::qdisc::htb`.

use bandmaster_core::capture::CapturedPacket;
use bandmaster_core::report::RunRecord;
use bandmaster_core::scenario::{Options, parse};
use bandmaster_sim::{RunOptions, run};

/// Payload of a frame of 1514 bytes.
const EFFICIENCY: f64 = 1448.0 / 1514.0;

/// Linux: p1/p50/p99 2330/2423/2512 us, 5.0001 Mbit/s.
#[test]
fn packets_leave_as_evenly_as_linux_s() {
    let text = scenario(
        "5mbit",
        "quantum = \"1514B\", name = \"bulk\", rate = \"5mbit\"",
        "[[flows]]\nname = \"bulk\"\nfrom = \"left.0\"\nto = \"right.0\"\ntransport = \"udp\"\nrate = \"6mbit\"\n",
        "20s",
    );
    let mut times = Vec::new();
    let mut keep = |packet: &CapturedPacket| times.push(packet.at);
    one_run(&text, RunOptions { capture: Some(("r1->r2", &mut keep)), ..RunOptions::default() });
    // 413 packets a second, but for the first, which the burst lets go at once.
    let times = &times[10..];
    assert!(times.len() > 8_000, "{} packets", times.len());
    let mut gaps: Vec<f64> =
        times.windows(2).map(|pair| pair[1].since(pair[0]).as_secs_f64() * 1e6).collect();
    gaps.sort_by(f64::total_cmp);
    let [p1, p50, p99] = [1, 50, 99].map(|part| gaps[gaps.len() * part / 100]);
    let rate = 1514.0 * 8.0 / (gaps.iter().sum::<f64>() / gaps.len() as f64);
    println!(
        "gaps {p1:.1} / {p50:.1} / {p99:.1} us (Linux 2330 / 2423 / 2512), {rate:.5} Mbit/s (Linux 5.0001)"
    );
    assert!(p1 >= 2_330.0 && p99 <= 2_512.0, "{p1} to {p99} us");
    assert!((p50 / 2_422.4 - 1.0).abs() < 1e-3 && (rate / 5.0 - 1.0).abs() < 1e-6, "{p50} us, {rate} Mbit/s");
}

/// Linux: 4.783 and 95.65 Mbit/s, cubic and reno.
#[test]
fn tcp_has_the_rate_less_headers() {
    for (rate, linux) in [("5mbit", 4.783), ("100mbit", 95.65)] {
        for congestion_control in ["cubic", "newreno"] {
            let flows = format!(
                "[tcp]\ncongestion-control = \"{congestion_control}\"\n\
                 [[flows]]\nname = \"bulk\"\nfrom = \"left.0\"\nto = \"right.0\"\n"
            );
            let class = format!("quantum = \"1514B\", name = \"bulk\", rate = \"{rate}\"");
            let record = one_run(&scenario(rate, &class, &flows, "65s"), RunOptions::default());
            let goodput = record.metric("throughput").expect("a metric");
            println!("{rate} {congestion_control}: {goodput:.3} Mbit/s (Linux {linux})");
            assert!((goodput / linux - 1.0).abs() < 0.005, "{goodput} Mbit/s, Linux {linux}");
        }
    }
}

/// Linux: 7.01 and 3.00 Mbit/s on the wire for classes of 6 and 2 below 10.
#[test]
fn classes_borrow_what_linux_lends_them() {
    let class = |name: &str, dscp: u8, rate: &str, quantum: &str| {
        format!("{quantum}name = \"{name}\", dscp = [{dscp}], rate = \"{rate}\", ceil = \"10mbit\"")
    };
    let flow = |name: &str, host: u8, dscp: u8| {
        format!(
            "[[flows]]\nname = \"{name}\"\nfrom = \"left.{host}\"\nto = \"right.{host}\"\ndscp = {dscp}\n"
        )
    };
    let flows = flow("six", 0, 10) + &flow("two", 1, 20);
    // Where no quantum is stated, that of tc: 75000 and 25000 bytes.
    for (quantum, six, two) in [("quantum = \"1514B\", ", 7.01, 3.00), ("", 7.5, 2.5)] {
        let classes = class("six", 10, "6mbit", quantum) + " }, { " + &class("two", 20, "2mbit", quantum);
        let record = one_run(&scenario("10mbit", &classes, &flows, "65s"), RunOptions::default());
        for (name, host, wanted) in [("six", "left.0", six), ("two", "left.1", two)] {
            let wire = after_warm_up(&record, host, 5.0) / EFFICIENCY;
            println!("{quantum}{name}: {wire:.3} Mbit/s, wanted {wanted}");
            assert!((wire / wanted - 1.0).abs() < 0.015, "{quantum}{name}: {wire} Mbit/s, wanted {wanted}");
        }
    }
}

// ----------------------------------------------------------------------------------------------------- harness

/// Two pairs of hosts, a router with HTB on a fast link, little delay.
fn scenario(rate: &str, classes: &str, flows: &str, duration: &str) -> String {
    let default = if classes.contains("dscp") { "" } else { "default = \"bulk\", " };
    format!(
        "version = 1\nname = \"htb\"\n[run]\nduration = \"{duration}\"\nwarm-up = \"5s\"\n\
         [network]\nbuilder = \"dumbbell\"\nleft = 2\nright = 2\n\
         link = {{ rate = \"1gbit\", delay = \"100us\" }}\n\
         [network.bottleneck]\n\
         queue = {{ discipline = \"htb\", rate = \"{rate}\", limit = \"50pkt\", {default}classes = [{{ {classes} }}] }}\n\
         {flows}[measure]\nqueue = \"r1->r2\"\n"
    )
}

fn one_run(text: &str, mut options: RunOptions<'_>) -> RunRecord {
    let study = parse("htb", text, &Options::default()).unwrap_or_else(|e| panic!("{e}\n{text}"));
    run(&study.cases[0].scenario, 0, 0, &mut options).expect("a run")
}

/// Mean throughput of a sending host after `warm_up` seconds, Mbit/s.
fn after_warm_up(record: &RunRecord, host: &str, warm_up: f64) -> f64 {
    let wanted = record.series.iter().find(|s| s.entity == host && s.metric == "throughput");
    let values = &wanted.unwrap_or_else(|| panic!("no series of {host}")).values;
    let from = (warm_up / record.sample.as_secs_f64()).round() as usize;
    values[from..].iter().map(|v| f64::from(*v)).sum::<f64>() / (values.len() - from) as f64
}
