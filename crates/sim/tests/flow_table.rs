//! Compares rows of flows with the metrics that sum them up, and completion times with those of an empty network.

use std::cell::RefCell;

use bandmaster_core::report::RunRecord;
use bandmaster_core::report::flow::FlowRecord;
use bandmaster_core::scenario::{Options, parse};
use bandmaster_core::time::{Span, Time};
use bandmaster_sim::{RunOptions, run};

/// A dumbbell of 100 Mbit/s links into one of 10 Mbit/s, with `flows`.
fn outcome(keys: &str, flows: &str) -> (RunRecord, Vec<FlowRecord>) {
    let text = format!(
        r#"version = 1
        name = "rows"
        [run]
        duration = "4s"
        [network]
        builder = "dumbbell"
        left = 3
        right = 3
        access = {{ rate = "100mbit", delay = "1ms", queue = "30pkt" }}
        bottleneck = {{ rate = "10mbit", delay = "5ms", queue = "10pkt" }}
        {keys}
        {flows}"#
    );
    let study = parse("x.toml", &text, &Options::default()).unwrap_or_else(|e| panic!("{e}"));
    let rows = RefCell::new(Vec::new());
    let take = |row| rows.borrow_mut().push(row);
    let mut options = RunOptions { flows: Some(&take), ..RunOptions::default() };
    let scenario = &study.cases[0].scenario;
    let record = run(scenario, 0, 0, &mut options).unwrap_or_else(|e| panic!("{e}"));
    let without = run(scenario, 0, 0, &mut RunOptions::default()).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(format!("{record:?}"), format!("{without:?}"), "rows change nothing");
    (record, rows.into_inner())
}

/// What rows add up to is what the summary says.
fn assert_sums(record: &RunRecord, rows: &[FlowRecord]) {
    let metric = |name: &str| record.metric(name).unwrap_or_else(|| panic!("no {name}"));
    let times: Vec<f64> = rows.iter().filter_map(|row| Some(row.fct()?.as_secs_f64())).collect();
    assert_eq!(times.len() as f64, metric("completed"));
    let mean = times.iter().sum::<f64>() / times.len() as f64;
    assert!(times.is_empty() || (mean / metric("fct_mean") - 1.0).abs() < 1e-9, "{mean}");
    let sum = |of: &dyn Fn(&FlowRecord) -> u64| rows.iter().map(of).sum::<u64>() as f64;
    assert_eq!(sum(&|row| row.drops.unwrap_or(0)), metric("drops"));
    assert!(rows.iter().all(|row| row.drops.is_some()));
    assert_eq!(sum(&|row| row.retransmits.unwrap_or(0)), metric("retransmits"));
    assert_eq!(sum(&|row| row.timeouts.unwrap_or(0)), metric("rtos"));
    assert!(metric("drops") > 0.0 && metric("retransmits") > 0.0, "the queue overflows");
    for row in rows {
        assert!(row.slowdown().is_none_or(|slowdown| slowdown >= 1.0), "{row:?}");
        assert!(row.size.is_none_or(|size| row.bytes <= size), "{row:?}");
        assert_eq!(row.size.is_some() && row.end.is_some(), row.size == Some(row.bytes), "{row:?}");
    }
}

const SIZED: &str = r#"
    [[flows]]
    name = "sized"
    from = "left"
    to = "right"
    size = "300kB"
    count = 4
    start = "uniform(0s, 2s)"
    [[flows]]
    name = "endless"
    from = "left.0"
    to = "right.0"
    [[flows]]
    name = "stopped"
    from = "left.1"
    to = "right.1"
    stop = "1s"
    [[flows]]
    name = "calls"
    transport = "udp"
    from = "left.2"
    to = "right.2"
    rate = "1mbit"
    packet = "1000B"
    stop = "3s"
"#;

#[test]
fn rows_of_flows_add_up() {
    let (record, rows) = outcome("", SIZED);
    assert_sums(&record, &rows);
    assert_eq!(rows.len(), 12 + 3);
    let (sized, others) = rows.split_at(12);
    assert!(sized.iter().all(|row| row.size == Some(300_000)), "{sized:?}");
    assert!(sized.iter().any(|row| row.end.is_none()), "some are unfinished: {sized:?}");
    let [endless, stopped, calls] = others else { panic!("{others:?}") };
    assert_eq!((endless.end, endless.size, endless.ideal, endless.fct()), (None, None, None, None));
    assert!(stopped.end > Some(Time::from_nanos(1_000_000_000)) && stopped.fct().is_none(), "{stopped:?}");
    assert_eq!((calls.end, calls.packets), (Some(Time::from_nanos(3_000_000_000)), None));
    // 972 bytes of payload each 8 ms, the first after 8 ms; it stops before the 375th.
    assert_eq!(calls.bytes, (374 - calls.drops.unwrap_or(0)) * 972, "{calls:?}");
}

/// Each connection of several subflows has the size that was drawn for it.
#[test]
fn sizes_of_multipath_connections_are_drawn() {
    let flows = "[[flows]]\nname = \"drawn\"\nfrom = \"left\"\nto = \"right.0\"\nsubflows = 2\ncount = 4\nsize-cdf = \"hadoop\"";
    let (record, rows) = outcome("", flows);
    let sizes: std::collections::BTreeSet<_> = rows.iter().map(|row| row.size).collect();
    assert!(sizes.len() > 3 && record.metric("completed") > Some(6.0), "{rows:?}");
    for row in rows.iter().filter(|row| row.end.is_some()) {
        assert_eq!(row.size, Some(row.bytes), "{row:?}");
    }
}

/// `stop` in the middle of a transfer: the data on the way still arrives, and the flow is not complete.
#[test]
fn what_stop_cuts_off_is_unfinished() {
    for keys in ["size = \"10MB\"", "size = \"10MB\"\nsubflows = 2"] {
        let flows =
            format!("[[flows]]\nname = \"cut\"\nfrom = \"left.0\"\nto = \"right.0\"\nstop = \"1s\"\n{keys}");
        let (record, rows) = outcome("", &format!("{flows}\n[measure]\ndistributions = true"));
        assert_eq!(
            record.metric("undropped").filter(|share| !share.is_nan()),
            None,
            "{keys}: nothing completed"
        );
        let [cut] = &rows[..] else { panic!("{rows:?}") };
        assert!(cut.bytes > 100_000 && cut.bytes < 10_000_000, "{cut:?}");
        assert_eq!((cut.end, cut.fct()), (None, None), "{keys}");
        assert_eq!(
            (record.metric("completed"), record.metric("unfinished")),
            (Some(0.0), Some(1.0)),
            "{keys}"
        );
    }
}

#[test]
fn rows_of_messages_add_up() {
    let flows = |keys: &str| {
        format!(
            "[[flows]]\nname = \"m\"\nfrom = \"left\"\nto = \"right.0\"\nsize = \"99912B\"\nrounds = 5\n{keys}"
        )
    };
    for (keys, rounds) in [("", 5.0), ("persistent = true", 5.0), ("subflows = 2", 5.0)] {
        let (record, rows) = outcome("", &flows(keys));
        assert_eq!((record.metric("rounds"), rows.len()), (Some(rounds), 15), "{keys}");
        if !keys.starts_with("persistent") {
            // What comes after the last byte of a message is of no row where a new connection takes its number.
            assert!(rows.iter().all(|row| row.bytes == 99_912 && row.end.is_some()), "{rows:?}");
            assert_eq!(rows.iter().any(|row| row.ideal.is_some()), keys.is_empty());
            continue;
        }
        assert_sums(&record, &rows);
        let handshake = |row: &FlowRecord| row.ideal.map(Span::as_nanos);
        let (first, second) = (handshake(&rows[0]), handshake(&rows[14]));
        assert!(
            first > second && second > Some(80_000_000),
            "a handshake in the first only: {first:?}, {second:?}"
        );
    }
}

#[test]
fn rows_of_an_exchange_add_up() {
    let exchange = |keys: &str| {
        format!(
            "[[flows]]\nname = \"x\"\nfrom = \"left\"\nto = \"left\"\npairing = \"exchange\"\nsizes = [\"144800B\"]\n\
             rounds = 4\n{keys}"
        )
    };
    // A last message that is shorter than the first is complete, too.
    let falling = outcome("", &exchange("").replace("[\"144800B\"]", "[\"144800B\", \"14480B\"]"));
    assert_eq!((falling.0.metric("completed"), falling.1.len()), (Some(48.0), 48));
    assert!(falling.1.iter().all(|row| row.size == Some(row.bytes) && row.end.is_some()), "{falling:?}");
    for keys in ["", "persistent = true", "schedule = \"window\"\noutstanding = 2"] {
        let (record, rows) = outcome("", &exchange(keys));
        assert_eq!((record.metric("completed"), rows.len()), (Some(24.0), 24), "{keys}");
        let hosts = |row: &FlowRecord| (row.plan.src, row.plan.dst);
        let mut pairs: Vec<_> = rows.iter().map(hosts).collect();
        pairs.sort_unstable();
        pairs.dedup();
        assert_eq!(pairs.len(), 6, "{keys}: each to each");
        let times = rows.iter().filter_map(FlowRecord::fct).map(Span::as_secs_f64);
        let mean = times.sum::<f64>() / 24.0;
        assert!((mean / record.metric("fct_mean").unwrap_or(0.0) - 1.0).abs() < 1e-9, "{keys}: {mean}");
        assert!(rows.iter().all(|row| row.slowdown().is_some_and(|slowdown| slowdown >= 1.0)), "{rows:?}");
    }
}

/// Alone, with a window for all, a flow takes the ideal time and, over the slowest link, that of the bare acknowledgement that
/// ends the handshake: 66 bytes, 52.8 us.
#[test]
fn a_flow_alone_takes_the_ideal_time() {
    let alone = |size: &str, window: &str| {
        let flow = format!(
            "[[flows]]\nname = \"f\"\nfrom = \"left.0\"\nto = \"right.0\"\nsize = \"{size}\"\n\
             tcp.initial-window = \"{window}\"\n"
        );
        let (_, rows) = outcome("host-delay = 0.0", &flow);
        assert_eq!(rows.len(), 1);
        (rows[0].fct().expect("complete").as_nanos(), rows[0].ideal.expect("one path").as_nanos())
    };
    for (size, window) in [("1B", "10pkt"), ("1448B", "10pkt"), ("1449B", "10pkt"), ("10kB", "10pkt")] {
        let (fct, ideal) = alone(size, window);
        assert!((ideal..ideal + 52_810).contains(&fct), "{size}: {fct} of {ideal} ns");
    }
    // By hand: three times 7 ms; a SYN of 74 bytes there and back: 2 x (59.2 + 2 x 5.92) us; data of 67 bytes: 53.6 + 2 x 5.36 us.
    let (_, ideal) = alone("1B", "10pkt");
    assert!(ideal.abs_diff(21_206_400) < 40, "{ideal} ns");
    let (fct, ideal) = alone("100kB", "2pkt");
    assert!(fct as f64 > 1.3 * ideal as f64, "slow start is not in the ideal: {fct} of {ideal} ns");
}

/// The metrics of a group are those of its flows together; a row has its own.
#[test]
fn round_trip_times_of_rows_and_groups() {
    let times = |keys: &str| outcome("", &format!("{SIZED}\n[measure]\n{keys}"));
    let (record, rows) = times("flow-table = \"rtt\"");
    let metric = |name: &str| record.metric(name).unwrap_or_else(|| panic!("no {name}"));
    let sized: Vec<_> = rows[..12].iter().filter_map(|row| row.rtt).collect();
    let count: u64 = sized.iter().map(|rtt| rtt.count).sum();
    let sum: f64 = sized.iter().map(|rtt| rtt.count as f64 * rtt.mean.as_secs_f64() * 1e3).sum();
    assert!((sum / count as f64 / metric("sized.rtt_mean") - 1.0).abs() < 1e-6);
    let least = sized.iter().map(|rtt| rtt.min).min().expect("rows");
    assert_eq!(least.as_secs_f64() * 1e3, metric("sized.rtt_min"));
    // 7 ms there and back; ten packets wait for 1.2 ms each, and one is on its way; an acknowledgement may wait for 40 ms.
    for (name, most) in [("rtt_min", 16.0), ("rtt_p50", 35.0), ("rtt_p95", 75.0)] {
        assert!((14.0..most).contains(&metric(name)), "{name}: {}", metric(name));
    }
    assert!(metric("rtt_p50") <= metric("rtt_p95") && metric("sized.rtt_p50") <= metric("sized.rtt_p99"));
    for rtt in &sized {
        assert!(
            rtt.min <= rtt.p50 && rtt.p50 <= rtt.p95 && rtt.p95 <= rtt.p99 && rtt.error == 1.0 / 128.0,
            "{rtt:?}"
        );
    }
    assert!(rows[14].rtt.is_none(), "UDP has none");
    let (without, bare) = times("");
    assert!(bare.iter().all(|row| row.rtt.is_none()) && without.metric("rtt_p50").is_none());
    let of_others = |record: &RunRecord| -> Vec<(String, String)> {
        let others = record.metrics.iter().filter(|(name, _)| !name.contains("rtt_"));
        others.map(|(name, value)| (name.clone(), value.to_string())).collect()
    };
    assert_eq!(of_others(&record), of_others(&without), "measuring changes nothing");
}

/// A message's round-trip times are of its own path: those of the one before, which went elsewhere, are of no row.
#[test]
fn round_trip_times_are_of_the_message() {
    let exchange = "[[flows]]\nname = \"x\"\nfrom = [\"left\", \"right\"]\nto = [\"left\", \"right\"]\npairing = \"exchange\"\n\
                    sizes = [\"1000B\"]\nrounds = 3\n[measure]\nflow-table = \"rtt\"";
    let (record, rows) = outcome("", exchange);
    // Hosts of a side are 2 ms from each other and back 4 ms, those of two sides 14 ms.
    let is_far = |row: &&FlowRecord| row.ideal.is_some_and(|ideal| ideal > Span::from_millis(12));
    let (far, near): (Vec<_>, Vec<_>) = rows.iter().partition(is_far);
    assert!(far.len() > 10 && near.len() > 10, "{rows:?}");
    let times = |rows: &[&FlowRecord]| -> Vec<f64> {
        let told = rows.iter().filter_map(|row| row.rtt);
        told.flat_map(|rtt| [rtt.min.as_secs_f64(), rtt.p99.as_secs_f64()]).collect()
    };
    let (far, near) = (times(&far), times(&near));
    assert!(!far.is_empty() && !near.is_empty());
    assert!(
        far.iter().all(|time| *time >= 0.0139) && near.iter().all(|time| *time < 0.0139),
        "{far:?} {near:?}"
    );
    assert!(record.metric("rtt_min").is_some_and(|least| least < 5.0), "late samples are in the metrics");
}

/// Values of a series.
fn series<'a>(record: &'a RunRecord, entity: &str, metric: &str) -> &'a [f32] {
    let found = record.series.iter().find(|s| s.entity == entity && s.metric == metric);
    &found.unwrap_or_else(|| panic!("no {metric} of {entity}")).values
}

/// UDP at twice the rate of the bottleneck. A packet that is accepted as the tenth waits for nine packets of 1.2 ms each and
/// for the end of the one in transmission. Packets wait nowhere else, so the path's queueing delay is the time in that queue.
#[test]
fn delays_over_time_by_hand() {
    let flow = "[[flows]]\nname = \"u\"\nfrom = \"left\"\nto = \"right\"\ncount = 1\ntransport = \"udp\"\nrate = \"20mbit\"\n\
                packet = \"1500B\"\nmeasured = true\nstart = \"1s\"\n[measure]\npercentiles = true\nports = [\"r2->right.0\", \"r1->r2\"]";
    let (record, _) = outcome("host-delay = 0.0", flow);
    let (queueing, sojourn) =
        (series(&record, "all", "queueing_p50"), series(&record, "r1->r2", "sojourn_p50"));
    assert!(queueing[..9].iter().chain(&sojourn[..9]).all(|value| value.is_nan()), "nothing is sent");
    for (queueing, sojourn) in queueing.iter().zip(sojourn).skip(12) {
        assert!((10.7..=12.1).contains(sojourn), "{sojourn}");
        assert!((queueing / sojourn - 1.0).abs() < 0.02, "{queueing} of {sojourn}");
    }
    assert!(series(&record, "r2->right.0", "sojourn_p99")[12..].iter().all(|wait| *wait < 0.01));
    assert!(
        series(&record, "all", "rtt_p50").iter().all(|time| time.is_nan()),
        "UDP has no round-trip times"
    );
    let metric = |name: &str| record.metric(name).unwrap_or_else(|| panic!("no {name}"));
    assert!((10.7..=12.1).contains(&metric("r1->r2.sojourn_p50")));
    assert!(metric("r2->right.0.sojourn_p99") < 0.01);
}

/// Groups have series of their own, and measuring changes nothing else.
#[test]
fn delays_over_time_of_groups() {
    let flows = "[[flows]]\nname = \"a\"\nfrom = \"left.0\"\nto = \"right.0\"\n[[flows]]\nname = \"b\"\nfrom = \"left.1\"\n\
                 to = \"right.1\"\n[measure]\n";
    // A bucket's middle is clamped to the values of its own sketch.
    let within = |all: f32, a: f32, b: f32| (a.min(b) * 0.992..=a.max(b) * 1.008).contains(&all);
    let (record, rows) = outcome("", &format!("{flows}percentiles = true"));
    assert!(rows.iter().all(|row| row.rtt.is_none()), "rows are not asked for them");
    for (metric, least) in
        [("rtt_p50", 14.0), ("rtt_p99", 14.0), ("queueing_p50", 0.0), ("queueing_p99", 1.0)]
    {
        let values = ["all", "left.0", "left.1"].map(|entity| &series(&record, entity, metric)[5..]);
        for ((all, a), b) in values[0].iter().zip(values[1]).zip(values[2]) {
            assert!(*all >= least && within(*all, *a, *b), "{metric}: {all} of {a} and {b}");
        }
    }
    let groups = ["left.0", "left.1"].map(|entity| series(&record, entity, "sojourn_p99"));
    let port = series(&record, "r1->r2", "sojourn_p99");
    for ((all, a), b) in port.iter().zip(groups[0]).zip(groups[1]).skip(5) {
        assert!(within(*all, *a, *b), "{all} of {a} and {b}");
    }
    let (without, _) = outcome("", flows);
    assert_eq!(format!("{:?}", record.metrics), format!("{:?}", without.metrics));
    assert!(without.series.iter().all(|s| !s.metric.contains("_p")));
}

/// With `record = "flows"` each flow has percentiles of its own; those of its group are of the flows' together.
#[test]
fn delays_over_time_of_flows() {
    let flows = "[[flows]]\nname = \"a\"\nfrom = \"left\"\nto = \"right\"\n[measure]\npercentiles = true\nports = [\"r2->right.0\"]\n";
    let (record, rows) = outcome("", &format!("{flows}record = \"flows\""));
    let (groups, _) = outcome("", flows);
    let names = ["a.left.0", "a.left.1", "a.left.2"];
    assert_eq!(rows.len(), names.len());
    for metric in ["rtt_p50", "rtt_p99", "queueing_p95", "sojourn_p99"] {
        let all = series(&record, if metric.starts_with("sojourn") { "r1->r2" } else { "all" }, metric);
        let own = names.map(|name| series(&record, name, metric));
        for (at, all) in all.iter().enumerate().skip(5) {
            let (low, high) = own
                .iter()
                .map(|own| own[at])
                .fold((f32::MAX, 0.0_f32), |(low, high), v| (low.min(v), high.max(v)));
            assert!((low * 0.992..=high * 1.008).contains(all), "{metric} at {at}: {all} of {low} to {high}");
        }
        assert!(own[0] != own[1] && own[1] != own[2], "{metric}: flows differ");
    }
    let shared = |record: &RunRecord| {
        let found = record.series.iter().filter(|s| s.metric.contains("_p") && !s.entity.starts_with("a."));
        found.map(|s| format!("{s:?}")).collect::<Vec<_>>()
    };
    assert_eq!(shared(&record), shared(&groups), "groups and ports are as without");
}

/// A queue of half a second at the end of the run: what still waits is not in the capture.
#[test]
fn a_capture_ends_with_the_run() {
    let text = r#"
        version = 1
        name = "captured"
        [run]
        duration = "2s"
        [network]
        builder = "dumbbell"
        left = 1
        right = 1
        access = { rate = "100mbit", delay = "1ms" }
        bottleneck = { rate = "1mbit", delay = "1ms", queue = "50pkt" }
        [[flows]]
        name = "up"
        from = "left"
        to = "right"
    "#;
    let study = parse("x.toml", text, &Options::default()).unwrap_or_else(|e| panic!("{e}"));
    let mut last = Time::ZERO;
    let mut keep = |packet: &bandmaster_core::capture::CapturedPacket| last = packet.at;
    let mut options = RunOptions { capture: Some(("r1->r2", &mut keep)), ..RunOptions::default() };
    run(&study.cases[0].scenario, 0, 0, &mut options).unwrap_or_else(|e| panic!("{e}"));
    let end = Time::ZERO + Span::from_millis(2_000);
    assert!(last <= end && last > Time::ZERO + Span::from_millis(1_980), "{last:?}");
}

/// As in Linux, whose `tcp_init_cwnd` takes no more than the clamp.
#[test]
fn a_clamp_bounds_the_initial_window() {
    let text = r#"
        version = 1
        name = "clamped"
        [run]
        duration = "190ms"
        [network]
        builder = "dumbbell"
        left = 1
        right = 1
        access = { rate = "100mbit", delay = "1ms" }
        bottleneck = { rate = "100mbit", delay = "48ms", queue = "50pkt" }
        [tcp]
        initial-window = "10pkt"
        cwnd-clamp = "2pkt"
        [[flows]]
        name = "up"
        from = "left"
        to = "right"
    "#;
    let study = parse("x.toml", text, &Options::default()).unwrap_or_else(|e| panic!("{e}"));
    let mut sent = 0;
    let mut count = |_: &bandmaster_core::capture::CapturedPacket| sent += 1;
    let mut options = RunOptions { capture: Some(("left.0->r1", &mut count)), ..RunOptions::default() };
    run(&study.cases[0].scenario, 0, 0, &mut options).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(sent, 1 + 2 + 1, "a SYN, the handshake's end, and two segments in the first round trip");
}
