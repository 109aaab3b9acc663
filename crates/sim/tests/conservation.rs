//! Laws that hold for every scenario: packets are conserved (the engine asserts it at the end of a run), flows get
//! exactly their bytes, equal input gives equal output, and strangers change nothing.

use bandmaster_core::report::RunRecord;
use bandmaster_core::scenario::{Options, Scenario, parse};
use bandmaster_sim::{RunOptions, run};
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, failure_persistence: None, ..ProptestConfig::default() })]

    /// Any small scenario runs to its end with its packets conserved, and twice to the same record.
    #[test]
    fn packets_are_conserved_and_runs_repeat(text in scenario(true)) {
        let scenario = read(&text);
        let (first, second) = (record(&scenario), record(&scenario));
        prop_assert_eq!(same(&first), same(&second));
    }

    /// The same where links and nodes fail, at any time and with new routes after any time, and packets take different times.
    #[test]
    fn packets_are_conserved_when_links_fail(text in scenario(true), wire in wire(), faults in faults()) {
        let scenario = read(&(text + &wire + &faults));
        let (first, second) = (record(&scenario), record(&scenario));
        prop_assert_eq!(same(&first), same(&second));
        prop_assert!(first.metric("fault_losses").is_some());
    }

    /// Without loss every sized flow completes, with exactly its bytes in order.
    #[test]
    fn sized_flows_complete_exactly(
        network in network(false),
        tcp in tcp(),
        sizes in prop::collection::vec(0u64..60_000, 1..5),
    ) {
        let mut text = head("500s", "1s") + &tcp;
        for (i, size) in sizes.iter().enumerate() {
            text += &format!(
                "[[flows]]\nname = \"f{i}\"\nfrom = \"left.{}\"\nto = \"right.{}\"\nsize = \"{}B\"\n",
                i % 2, (i / 2) % 2, size + 1
            );
        }
        let record = record(&read(&(text + &network)));
        prop_assert_eq!(record.metric("completed"), Some(sizes.len() as f64));
        for (i, size) in sizes.iter().enumerate() {
            prop_assert_eq!(delivered(&record, &format!("f{i}.left.{}.0", i % 2)), size + 1);
        }
    }

    /// Lost packets are sent again until everything has come.
    #[test]
    fn loss_costs_time_but_no_bytes(
        tcp in tcp(),
        size in 1u64..40_000,
        drops in prop::collection::btree_set(1u64..60, 0..12),
    ) {
        let drops: Vec<u64> = drops.into_iter().collect();
        let text = format!(
            "{}{tcp}[[flows]]\nname = \"f\"\nfrom = \"a\"\nto = \"b\"\nsize = \"{size}B\"\n\
             [network]\nhosts = [\"a\", \"b\"]\n[[network.links]]\nends = [\"a\", \"b\"]\nrate = \"10mbit\"\n\
             delay = \"5ms\"\ndrop-packets = {drops:?}\n",
            head("20000s", "10s")
        );
        let record = record(&read(&text));
        prop_assert_eq!(record.metric("completed"), Some(1.0));
        prop_assert_eq!(delivered(&record, "f.a.0"), size);
    }

    /// Every message of an exchange comes once, over new connections and over persistent ones, whatever is lost.
    #[test]
    fn exchanges_complete_and_runs_repeat(
        network in network(true),
        tcp in tcp(),
        segments in 1u64..12,
        rounds in 1u32..4,
        window in 0u32..4,
        (persistent, idle_restart) in any::<(bool, bool)>(),
    ) {
        let mss: u64 = tcp.split("mss = \"").nth(1).and_then(|rest| rest.split('B').next()).map_or(0, |mss| {
            mss.parse().expect("a number")
        });
        let schedule = match window {
            0 => "schedule = \"pairwise\"".to_owned(),
            _ => format!("schedule = \"window\"\noutstanding = {window}"),
        };
        let text = format!(
            "{}{tcp}idle-restart = {idle_restart}\n[[flows]]\nname = \"m\"\nfrom = [\"left\", \"right\"]\n\
             to = [\"left\", \"right\"]\npairing = \"exchange\"\npersistent = {persistent}\nsize = \"{}B\"\n\
             rounds = {rounds}\ncompute = \"uniform(0ms, 900ms)\"\n{schedule}\n{network}",
            head("20000s", "10s"),
            mss * segments,
        );
        let scenario = read(&text);
        let (first, second) = (record(&scenario), record(&scenario));
        prop_assert_eq!(first.metric("completed"), Some(f64::from(12 * rounds)));
        prop_assert_eq!(first.metric("rounds"), Some(f64::from(rounds)));
        let payload = 12.0 * f64::from(rounds) * (mss * segments) as f64;
        let delivered = first.metric("throughput").unwrap_or_default() * 20_000.0 * 1e6 / 8.0;
        prop_assert!((delivered - payload).abs() < 1e-6 * payload, "{} {}", delivered, payload);
        prop_assert_eq!(same(&first), same(&second));
    }

    /// A host that no packet passes changes nothing.
    #[test]
    fn a_stranger_changes_nothing(text in scenario(true)) {
        let with_stranger = format!(
            "{text}[[network.links]]\nends = [\"stranger\", \"r1\"]\nrate = \"1mbit\"\n"
        )
        .replacen("[network]\n", "[network]\nhosts = [\"stranger\"]\n", 1);
        let (alone, together) = (record(&read(&text)), record(&read(&with_stranger)));
        prop_assert_eq!(same(&alone), same(&together));
    }
}

// -------------------------------------------------------------------------------------------------- generators

/// Everything before `[tcp]`.
fn head(duration: &str, sample: &str) -> String {
    format!(
        "version = 1\nname = \"random\"\n[run]\nduration = \"{duration}\"\nsample = \"{sample}\"\nseed = 7\n\
         [measure]\nrecord = \"flows\"\nlong-interval = \"{sample}\"\n"
    )
}

fn limit() -> impl Strategy<Value = String> {
    prop_oneof![
        (1u32..60).prop_map(|n| format!("{n}pkt")),
        // Room for the largest packet: what never fits is sent in vain for ever.
        (3_200u32..90_000).prop_map(|n| format!("{n}B")),
        Just("unlimited".to_owned()),
    ]
}

/// A dumbbell of two and two hosts.
fn network(lossy: bool) -> impl Strategy<Value = String> {
    let loss = if lossy { prop_oneof![Just(0.0), 0.0..0.2].boxed() } else { Just(0.0).boxed() };
    let link = |queue: String, rate: u64, delay: u64, loss: f64| {
        format!(
            "rate = \"{rate}kbit\"\ndelay = \"uniform(0ms, {delay}ms)\"\nqueue = \"{queue}\"\nloss = {loss}\n"
        )
    };
    (limit(), limit(), 500u64..50_000, 1_000u64..100_000, 0u64..40, 0.0..2.0, loss, 0u64..40).prop_map(
        move |(queue, access_queue, rate, access_rate, delay, host_delay, loss, overhead)| {
            format!(
                "[network]\nbuilder = \"dumbbell\"\nleft = 2\nright = 2\nframe-overhead = \"{overhead}B\"\n\
                 host-delay = {host_delay}\n[network.access]\n{}[network.bottleneck]\n{}",
                link(access_queue, access_rate, delay, 0.0),
                link(queue, rate, delay, loss)
            )
        },
    )
}

/// Every switch of `[tcp]`, at random.
fn tcp() -> impl Strategy<Value = String> {
    let words = (
        prop::sample::select(vec!["tahoe", "reno", "newreno", "cubic"]),
        prop::sample::select(vec!["prr", "rfc6675"]),
        prop::sample::select(vec!["rto", "variance"]),
        prop::option::of(100u32..20_000),
        prop::option::of(1u32..100),
    );
    let switches = prop::collection::vec(any::<bool>(), 14);
    let numbers = (100u64..3_000, 1u32..20, 1u32..5, 1u64..400, 10u64..2_000, 1u64..200);
    (words, switches, numbers).prop_map(
        |((control, recovery, floor, read, clamp), on, (mss, window, every, ack_ms, min_rto, segments))| {
            let read = read.map_or(String::new(), |rate| format!("read-rate = \"{rate}kbit\"\n"));
            let sack = on[0] && !matches!(control, "tahoe" | "reno");
            let detection = if sack && on[9] { "rack" } else { "rfc6675" };
            let probes = sack && on[9] && on[10];
            let (dsack, f_rto) = (sack && on[11], sack && on[12]);
            let rules = if on[13] { "rfc9406" } else { "linux" };
            let cubic = if on[4] { "rfc9438" } else { "linux" };
            let clamp = clamp.map_or(String::new(), |n| format!("cwnd-clamp = \"{n}pkt\"\n"));
            format!(
                "[tcp]\ncongestion-control = \"{control}\"\nrecovery = \"{recovery}\"\nrto-floor = \"{floor}\"\n\
                 mss = \"{mss}B\"\ninitial-window = \"{window}pkt\"\ndelayed-ack = \"{every}pkt\"\n\
                 delayed-ack-timeout = \"{ack_ms}ms\"\nmin-rto = \"{min_rto}ms\"\nmax-rto = \"10s\"\n\
                 receive-buffer = \"{}B\"\nsack = {sack}\ntimestamps = {}\nwindow-scaling = {}\n\
                 limited-transmit = {}\nbyte-counting = {}\ncwnd-validation = {}\necn = {}\npacing = {}\n\
                 hystart = {}\nhystart-rules = \"{rules}\"\ncubic-rules = \"{cubic}\"\n\
                 loss-detection = \"{detection}\"\n\
                 tail-loss-probe = {probes}\ndsack = {dsack}\nf-rto = {f_rto}\n{read}{clamp}",
                mss * segments, on[1], on[2], on[3], on[4], on[5], on[6], on[7], on[8]
            )
        },
    )
}

/// Half TCP, half UDP; sized or not, on and off, starting and stopping.
fn flow() -> impl Strategy<Value = String> {
    let life = prop_oneof![
        Just(String::new()),
        (1u64..300).prop_map(|ms| format!("on = \"exponential({ms}ms)\"\noff = \"uniform(0ms, {ms}ms)\"\n")),
        (500u64..3_000).prop_map(|ms| format!("stop = \"{ms}ms\"\n")),
    ];
    let kind = prop_oneof![
        (10u64..20_000, 100u64..1_500).prop_map(|(rate, packet)| format!(
            "transport = \"udp\"\nrate = \"{rate}kbit\"\npacket = \"{packet}B\"\n"
        )),
        Just("transport = \"tcp\"\n".to_owned()),
        (1u64..200_000).prop_map(|size| format!("transport = \"tcp\"\nsize = \"{size}B\"\n")),
    ];
    let ends = prop::sample::select(vec![
        ("left.0", "right.0"),
        ("left.1", "right.0"),
        ("right.1", "left.0"),
        ("left.0", "left.1"),
    ]);
    (kind, life, ends, 0u64..400).prop_map(|(kind, life, (from, to), start)| {
        format!("from = \"{from}\"\nto = \"{to}\"\n{kind}{life}start = \"uniform(0ms, {start}ms)\"\n")
    })
}

fn scenario(lossy: bool) -> impl Strategy<Value = String> {
    (tcp(), prop::collection::vec(flow(), 1..6), network(lossy)).prop_map(|(tcp, flows, network)| {
        let flows: String =
            flows.iter().enumerate().map(|(i, flow)| format!("[[flows]]\nname = \"f{i}\"\n{flow}")).collect();
        format!("{}{tcp}{flows}{network}", head("4s", "1s"))
    })
}

/// Keys of the shared link, which the text of a network ends with.
fn wire() -> impl Strategy<Value = String> {
    let jitter = (0u64..40, any::<bool>()).prop_map(|(most, reorders)| {
        format!("jitter = \"uniform(0ms, {most}ms)\"\njitter-reorders = {reorders}\n")
    });
    let reorder =
        (0.0..1.0_f64, 1u32..9).prop_map(|(share, gap)| format!("reorder = {share}\nreorder-gap = {gap}\n"));
    let bursts = (0.0..0.3_f64, 0.01..1.0_f64, 0.0..1.0_f64)
        .prop_map(|(p, r, bad)| format!("gemodel = {{ p = {p}, r = {r}, 1-h = {bad} }}\n"));
    let maybe = |keys: BoxedStrategy<String>| prop::option::of(keys).prop_map(Option::unwrap_or_default);
    (maybe(jitter.boxed()), maybe(reorder.boxed()), maybe(bursts.boxed())).prop_map(
        |(jitter, reorder, bursts)| {
            // A link without delay or jitter has nothing to overtake.
            if jitter.is_empty() { bursts } else { jitter + &reorder + &bursts }
        },
    )
}

/// The shared link of the dumbbell and perhaps a node, down at stated times or drawn ones.
fn faults() -> impl Strategy<Value = String> {
    let times = prop_oneof![
        prop::collection::btree_set(0u64..4_000, 1..5).prop_map(|times| {
            let listed = |parity: usize| -> Vec<String> {
                times.iter().skip(parity).step_by(2).map(|ms| format!("{ms}ms")).collect()
            };
            let (down, up) = (listed(0), listed(1));
            let up = if up.is_empty() { String::new() } else { format!("up = {up:?}\n") };
            format!("down = {down:?}\n{up}")
        }),
        (2u64..500, 1u64..500).prop_map(|(failure, repair)| format!(
            "time-to-failure = \"exponential({failure}ms)\"\ntime-to-repair = \"uniform(0ms, {repair}ms)\"\n"
        )),
    ]
    .boxed();
    let node = prop::option::of(prop::sample::select(vec!["r1", "r2", "left.0", "right.0"]));
    (0u64..200, times.clone(), node, times).prop_map(|(reroute, of_link, node, of_node)| {
        let node =
            node.map_or(String::new(), |node| format!("[[faults.nodes]]\nnode = \"{node}\"\n{of_node}"));
        format!(
            "[faults]\nreroute = \"uniform(0ms, {reroute}ms)\"\n[[faults.links]]\nends = [\"r1\", \"r2\"]\n{of_link}{node}"
        )
    })
}

// ----------------------------------------------------------------------------------------------------- harness

fn read(text: &str) -> Scenario {
    let study = parse("random", text, &Options::default()).unwrap_or_else(|e| panic!("{e}\n{text}"));
    study.cases[0].scenario.clone()
}

fn record(scenario: &Scenario) -> RunRecord {
    run(scenario, 0, 0, &mut RunOptions::default()).expect("a run")
}

/// Everything in a record, comparable though some metrics are not numbers.
fn same(record: &RunRecord) -> String {
    format!("{record:?}")
}

/// Payload bytes that a flow delivered, from its throughput series.
fn delivered(record: &RunRecord, flow: &str) -> u64 {
    let series = record.series.iter().find(|s| s.entity == flow && s.metric == "throughput");
    let values = &series.unwrap_or_else(|| panic!("no series of {flow}")).values;
    let bits: f64 = values.iter().map(|v| f64::from(*v)).sum::<f64>() * record.sample.as_secs_f64() * 1e6;
    (bits / 8.0).round() as u64
}
