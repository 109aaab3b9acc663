//! Multipath TCP and its coupled congestion controls against theory, and DCTCP against its threshold.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::PathBuf;

use bandmaster_core::capture::{CapturedPacket, CapturedTransport};
use bandmaster_core::report::RunRecord;
use bandmaster_core::scenario::{Options, Scenario, parse};
use bandmaster_sim::{RunOptions, run};

/// Two disjoint paths of `s` to `d` over `r1` and `r2`, with one-way delays and a bottleneck rate; each loses the data
/// packets with the ordinals given.
fn two_paths(
    drops: [&[u64]; 2],
    delays: [&str; 2],
    rate: &str,
    tcp: &str,
    flow: &str,
    duration: &str,
) -> String {
    let mut text = format!(
        "version = 1\nname = \"t\"\n[run]\nduration = \"{duration}\"\nsample = \"1s\"\ntrials = 1\n\
         [network]\nhosts = [\"s\", \"d\"]\nrouters = [\"r1\", \"r2\"]\nhost-delay = 0.0\nframe-overhead = \"2B\"\n\
         [network.link]\nrate = \"{rate}\"\nqueue = \"100pkt\"\n"
    );
    for (path, (drops, delay)) in ["r1", "r2"].iter().zip(drops.iter().zip(delays)) {
        let drops = if drops.is_empty() { String::new() } else { format!("drop-packets = {drops:?}\n") };
        let _ = write!(
            text,
            "[[network.links]]\nends = [\"s\", \"{path}\"]\nrate = \"10gbit\"\ndelay = \"{delay}\"\n{drops}\
             [[network.links]]\nends = [\"{path}\", \"d\"]\ndelay = \"1us\"\n"
        );
    }
    let _ = write!(
        text,
        "[tcp]\n{tcp}\n[[flows]]\nname = \"f\"\nfrom = \"s\"\nto = \"d\"\n{flow}\n[measure]\nrecord = \"none\"\nlong-interval = \"1s\"\n"
    );
    text
}

fn scenario(text: &str) -> Scenario {
    let study = parse("t.toml", text, &Options::default()).unwrap_or_else(|e| panic!("{e}\n{text}"));
    study.cases.into_iter().next().expect("a case").scenario
}

fn record(text: &str) -> RunRecord {
    run(&scenario(text), 0, 0, &mut RunOptions::default()).unwrap_or_else(|e| panic!("{e}"))
}

fn metric(record: &RunRecord, name: &str) -> f64 {
    record.metric(name).expect("a metric")
}

/// Packets handed to a port in a trial.
fn captured(scenario: &Scenario, trial: u32, port: &str) -> Vec<CapturedPacket> {
    let mut packets = Vec::new();
    let mut take = |packet: &CapturedPacket| packets.push(*packet);
    let mut options = RunOptions { capture: Some((port, &mut take)), ..RunOptions::default() };
    run(scenario, 0, trial, &mut options).unwrap_or_else(|e| panic!("{e}"));
    packets
}

const THEORY: &str =
    "mss = \"1000B\"\ndelayed-ack = \"1pkt\"\nreceive-buffer = \"64MiB\"\nrecovery = \"rfc6675\"";

/// Bytes over each of two paths with equal round-trip times that lose one packet in as many as given.
fn rates(control: &str, subflows: Option<u32>, every: [u64; 2]) -> [f64; 2] {
    let flow = subflows.map_or_else(|| "paths = [\"r1\"]".to_owned(), |n| format!("subflows = {n}"));
    let tcp = format!("{THEORY}\ncongestion-control = \"{control}\"");
    let drops = every.map(|every| (1..2_000_000 / every).map(|n| n * every).collect::<Vec<u64>>());
    let drops = [&drops[0][..], &drops[1][..]];
    let scenario = scenario(&two_paths(drops, ["10ms", "10ms"], "10gbit", &tcp, &flow, "300s"));
    ["r1->d", "r2->d"].map(|port| {
        let packets = captured(&scenario, 0, port);
        packets.iter().map(|packet| f64::from(packet.payload)).sum()
    })
}

/// Two paths with loss rates p and q, compared with a TCP on the first alone: RFC 6356, and the papers' fixed points.
/// TCP's window is w = sqrt(2/p). LIA: windows in the ratio of 1/p, their sum TCP's on the best path. OLIA: the best path
/// only, but for the least window, two segments of a mean of sqrt(3/2p). BALIA: (1 + a)(4 + a) p = 15 q with a the ratio of the windows.
///
/// Losses are spaced evenly, since theory describes mean windows. With random losses windows fluctuate, and LIA, which takes
/// their maximum over the paths, is a tenth faster.
#[test]
fn coupled_controls_take_the_shares_of_their_theory() {
    let (p, q) = (1000, 250);
    let ratio = p as f64 / q as f64;
    // Without subflows a coupled control is a TCP that halves as they do.
    let [uncoupled, plain] = ["newreno", "lia"].map(|control| rates(control, None, [p, p])[0]);
    let balia = (-5.0 + f64::sqrt(25.0 - 4.0 * (4.0 - 15.0 * ratio))) / 2.0;
    // Control, packets per loss, expected total over TCP's, expected share of the first path. On equal paths windows that fall
    // at the same segments of both make OLIA 7 % slower and BALIA 7 % faster than at mean windows; `coupled.rs` has that.
    let cases = [
        ("newreno", [p, p], Some(2.0), 0.5),
        ("lia", [p, p], Some(1.0), 0.5),
        ("olia", [p, p], None, 0.5),
        ("balia", [p, p], None, 0.5),
        ("lia", [p, q], Some(1.0), ratio / (1.0 + ratio)),
        ("olia", [p, q], Some(1.0), 1.0 - 2.0 / f64::sqrt(1.5 * p as f64)),
        ("balia", [p, q], Some(1.0), balia / (1.0 + balia)),
    ];
    let mut table = String::new();
    let mut wrong = Vec::new();
    for (control, losses, total, share) in cases {
        let [first, second] = rates(control, Some(2), losses);
        let tcp = if control == "newreno" { uncoupled } else { plain };
        let (ours, split) = ((first + second) / tcp, first / (first + second));
        let _ = writeln!(
            table,
            "{control:<8} {losses:?}: total {ours:.3} of TCP, first path {split:.3} ({share:.3})"
        );
        if total.is_some_and(|total: f64| (ours / total - 1.0).abs() > 0.05)
            || (split / share - 1.0).abs() > 0.05
        {
            wrong.push((control, losses));
        }
    }
    println!("{table}");
    assert!(wrong.is_empty(), "do not hold: {wrong:?}\n{table}");
}

/// Two subflows over bottlenecks of so many Mbit/s with a RED queue, with so many TCPs at each: by link, what a TCP and a
/// subflow have of it from 100 s to 600 s in the mean of the trials.
fn shares(control: &str, trials: u32, links: [(u32, &str); 2], tcps: [u32; 2]) -> [[f64; 2]; 2] {
    // A coupled control without subflows is a TCP that halves as they do.
    let plain = if control == "newreno" { control } else { "lia" };
    let [(rate, queue), (other_rate, other_queue)] = links;
    let mut text = format!(
        "version = 1\nname = \"t\"\n[run]\nduration = \"600s\"\nsample = \"10s\"\ntrials = {trials}\n\
         [network]\nhosts = [\"s\", \"t\", \"u\", \"d\"]\nrouters = [\"r1\", \"r2\"]\nhost-delay = 0.0\nframe-overhead = \"2B\"\n\
         [network.link]\nrate = \"1gbit\"\ndelay = \"40ms\"\nqueue = \"10000pkt\"\n\
         [[network.links]]\nends = [\"s\", \"r1\"]\n[[network.links]]\nends = [\"s\", \"r2\"]\n\
         [[network.links]]\nends = [\"t\", \"r1\"]\n[[network.links]]\nends = [\"u\", \"r2\"]\n\
         [[network.links]]\nends = [\"r1\", \"d\"]\nrate = \"{rate}mbit\"\ndelay = \"1us\"\n{queue}\n\
         [[network.links]]\nends = [\"r2\", \"d\"]\nrate = \"{other_rate}mbit\"\ndelay = \"1us\"\n{other_queue}\n\
         [tcp]\n{THEORY}\ncongestion-control = \"{control}\"\n\
         [[flows]]\nname = \"mp\"\nfrom = \"s\"\nto = \"d\"\nsubflows = 2\n\
         [measure]\nrecord = \"none\"\nlong-interval = \"10s\"\n"
    );
    for (host, count) in ["t", "u"].iter().zip(tcps).filter(|(_, count)| *count > 0) {
        let _ = write!(
            text,
            "[[flows]]\nname = \"tcp-{host}\"\nfrom = \"{host}\"\nto = \"d\"\ncount = {count}\n\
             start = \"uniform(0s, 5s)\"\ntcp = {{ congestion-control = \"{plain}\" }}\n"
        );
    }
    let scenario = scenario(&text);
    let multipath = scenario.topology.node("s").expect("a host");
    let mut shares = [("r1->d", rate), ("r2->d", other_rate)].map(|(port, rate)| {
        let mut bytes = [0.0; 2];
        for trial in 0..trials {
            let packets = captured(&scenario, trial, port);
            for packet in packets.iter().filter(|packet| packet.at.as_nanos() > 100_000_000_000) {
                bytes[usize::from(packet.src == multipath)] += f64::from(packet.payload);
            }
        }
        bytes.map(|bytes| bytes / f64::from(rate))
    });
    // What a full link carries.
    let full = shares.iter().map(|[theirs, ours]| theirs + ours).fold(0.0, f64::max);
    for (link, count) in shares.iter_mut().zip(tcps) {
        link[0] /= full * f64::from(count.max(1));
        link[1] /= full;
    }
    shares
}

/// Share of a link that a control's subflow gets in competition with a TCP, when its other subflow is alone and has `ratio` times
/// that link's rate: the fixed point of windows that fill the links, `x` and `ratio`. Loss rates: `p = 2/(1 - x)^2` with the TCP,
/// `q = 2/(x + ratio)^2` alone. LIA: `x p = ratio q`. BALIA: `(1 + ratio/x)(4 + ratio/x) q = 15 p`, where `ratio/x` is 1.5 at least.
fn share_beside_a_tcp(control: &str, ratio: f64) -> f64 {
    let excess = |x: f64| {
        let (p, q) = (2.0 / (1.0 - x).powi(2), 2.0 / (x + ratio).powi(2));
        match control {
            "lia" => x * p - ratio * q,
            "balia" => 15.0 * p - (1.0 + ratio / x) * (4.0 + ratio / x) * q,
            "newreno" => x - 0.5,
            // Its windows are on paths that no other has fewer losses than, and `q < p` for every share above 0.
            "olia" => x,
            _ => unreachable!("no theory of {control}"),
        }
    };
    let (mut low, mut high) = (0.0, 0.9);
    for _ in 0..50 {
        let middle = f64::midpoint(low, high);
        if excess(middle) < 0.0 { low = middle } else { high = middle }
    }
    high
}

/// Two subflows: the first competes with a TCP at a RED bottleneck; the second is alone at another, of equal or twice the rate.
/// RFC 6356's goals hold: the sum is at least a TCP's rate on the best path, and no path carries more than a TCP. The shares are
/// those of theory.
///
/// OLIA's share with equal rates is the exception. A share of 0 gives both paths the same loss rate there, so neither is
/// better, and OLIA's estimate of the better path changes with each loss.
#[test]
fn a_tcp_at_a_shared_bottleneck_keeps_its_share() {
    // The same queueing delay at both.
    let red = |times: u32| {
        let [limit, min, max] = [600, 60, 300].map(|packets| packets * times);
        format!(
            "queue = {{ discipline = \"red\", limit = \"{limit}pkt\", min-th = \"{min}pkt\", max-th = \"{max}pkt\", max-p = 0.02 }}"
        )
    };
    let mut table = String::new();
    let mut wrong = Vec::new();
    for ratio in [1, 2] {
        for control in ["newreno", "lia", "olia", "balia"] {
            let theory = share_beside_a_tcp(control, f64::from(ratio));
            let links = [(10, &*red(1)), (10 * ratio, &*red(ratio))];
            let [[tcp, first], [_, second]] = shares(control, 4, links, [1, 0]);
            let _ = writeln!(
                table,
                "{control:<8} 1:{ratio}  TCP {tcp:.3}, with it {first:.3} ({theory:.3}), alone {second:.3}"
            );
            // One TCP alone leaves a fiftieth of a RED bottleneck.
            let at_the_edge = control == "olia" && ratio == 1;
            // One TCP alone leaves a fiftieth of a RED bottleneck. A subflow that competes with the TCP makes up for that,
            // unless theory gives it nothing.
            let best = f64::from(ratio) * if at_the_edge || theory > 0.001 { 1.0 } else { 0.98 };
            let goals = first + f64::from(ratio) * second >= best && first <= tcp.max(0.525);
            let near = (first - theory).abs() <= 0.05 && (second - 1.0).abs() <= 0.05;
            if !goals || !(near || at_the_edge) {
                wrong.push((control, ratio));
            }
        }
    }
    println!("{table}");
    assert!(wrong.is_empty(), "do not hold: {wrong:?}\n{table}");
}

/// OLIA competes with many TCPs, so one loss moves little window: five on the first path, and none or ten on the second. By the
/// paper OLIA sends everything over the path with fewer losses, at a TCP's rate; the TCPs share the rest.
#[test]
fn olia_leaves_the_path_with_more_losses_to_tcp() {
    let red = "queue = { discipline = \"red\", limit = \"500pkt\", min-th = \"125pkt\", max-th = \"250pkt\", max-p = 0.1, gentle = true }";
    let mut wrong = Vec::new();
    for (tcps, theory) in
        [([5, 0], [[0.2, 0.0], [0.0, 1.0]]), ([5, 10], [[1.0 / 6.0, 1.0 / 6.0], [0.1, 0.0]])]
    {
        let found = shares("olia", 1, [(50, red); 2], tcps);
        println!("OLIA with {tcps:?} TCPs: {found:.3?}, theory {theory:.3?}");
        let near = |link: usize| {
            let [[tcp, own], [tcp_theory, own_theory]] = [found[link], theory[link]];
            // One connection alone does not fill a RED bottleneck.
            let alone = tcps[link] == 0 && own > 0.9;
            (tcp - tcp_theory).abs() <= 0.05 * tcp_theory && ((own - own_theory).abs() <= 0.05 || alone)
        };
        if !near(0) || !near(1) {
            wrong.push((tcps, found));
        }
    }
    assert!(wrong.is_empty(), "{wrong:.3?}");
}

/// `start-per = "host"`: in each round of an incast a sender's flows over both paths start at the same, newly drawn time.
#[test]
fn flows_of_a_sender_start_together_in_each_round() {
    let starts = |per: &str| -> [Vec<u64>; 2] {
        let text = format!(
            "version = 1\nname = \"t\"\n[run]\nduration = \"1s\"\ntrials = 1\n[network]\nbuilder = \"pod\"\nsize = 2\nhost-delay = 0.0\n\
             [network.link]\nrate = \"10gbit\"\ndelay = \"5us\"\nqueue = \"512KiB\"\n[tcp]\ncongestion-control = \"newreno\"\n\
             [[flows]]\nname = \"f\"\nfrom = \"senders\"\nto = \"receiver\"\ncount = 2\npaths = [\"tor1\", \"tor2\"]\nsize = \"20kB\"\n\
             rounds = 3\nstart = \"uniform(0us, 100us)\"\n{per}\n[measure]\nrecord = \"none\"\n"
        );
        let scenario = scenario(&text);
        ["senders.0->tor1", "senders.0->tor2"].map(|port| {
            let packets = captured(&scenario, 0, port);
            let syns = packets.iter().filter(|packet| match packet.transport {
                CapturedTransport::Tcp(tcp) => tcp.flags & 2 != 0,
                CapturedTransport::Udp => false,
            });
            syns.map(|packet| packet.at.as_nanos()).collect()
        })
    };
    let [[first, second], [alone, other]] = [starts("start-per = \"host\""), starts("")];
    assert_eq!((first.len(), &first), (3, &second));
    assert!(alone.iter().zip(&other).all(|(a, b)| a != b), "{alone:?} {other:?}");
}

/// Between the pods of a fat tree with k = 4 there are four paths, each over a core router of its own: four subflows use
/// all of them, and their acknowledgements come back the same ways.
#[test]
fn distinct_subflows_use_every_path() {
    let text = "version = 1\nname = \"t\"\n[run]\nduration = \"1s\"\ntrials = 3\n[network]\nbuilder = \"fat-tree\"\nk = 4\n\
                [network.link]\nrate = \"1gbit\"\ndelay = \"5us\"\nqueue = \"100pkt\"\n[tcp]\ncongestion-control = \"newreno\"\n\
                [[flows]]\nname = \"f\"\nfrom = \"pod1.0\"\nto = \"pod2.0\"\nsubflows = 4\nscheduler = \"round-robin\"\n\
                paths = \"distinct\"\nsize = \"400kB\"\n[measure]\nrecord = \"none\"\n";
    let scenario = scenario(text);
    for trial in 0..3 {
        for (aggregation, core) in [(1, 1), (1, 2), (2, 3), (2, 4)] {
            let there = captured(&scenario, trial, &format!("agg1-{aggregation}->core{core}"));
            let back = captured(&scenario, trial, &format!("core{core}->agg1-{aggregation}"));
            let sent: u32 = there.iter().map(|packet| packet.payload).sum();
            assert!(sent > 30_000, "core{core} carries {sent} B of 400 kB in trial {trial}");
            assert!(!back.is_empty() && back.iter().all(|packet| packet.payload == 0));
        }
    }
}

/// Both schedulers fill both paths, the short one and the long one.
#[test]
fn schedulers_use_the_sum_of_the_paths() {
    for scheduler in ["min-rtt", "round-robin"] {
        let flow = format!("subflows = 2\nscheduler = \"{scheduler}\"");
        let text = two_paths(
            [&[], &[]],
            ["2ms", "8ms"],
            "10mbit",
            "congestion-control = \"newreno\"\nmss = \"1428B\"",
            &flow,
            "30s",
        );
        let record = record(&text);
        // 1428 of 1502 bytes on each of two links of 10 Mbit/s; slow start takes a little of 30 s.
        let goodput = metric(&record, "throughput");
        assert!((0.97..=1.0).contains(&(goodput / (20.0 * 1428.0 / 1502.0))), "{scheduler}: {goodput}");
    }
}

/// A path dies: after the timeout its data goes over the other, and the transfer completes.
#[test]
fn a_dead_path_costs_a_timeout_and_no_data() {
    let transfer = |drops| {
        let flow = "subflows = 2\nsize = \"2MB\"";
        two_paths(drops, ["5ms", "5ms"], "100mbit", "congestion-control = \"newreno\"", flow, "10s")
    };
    let healthy = record(&transfer([&[], &[]]));
    let dead = record(&transfer([&[], &(20..2000).collect::<Vec<u64>>()]));
    assert_eq!((metric(&healthy, "completed"), metric(&dead, "completed")), (1.0, 1.0));
    let (before, after) = (metric(&healthy, "fct_mean"), metric(&dead, "fct_mean"));
    // 2 MB at 200 Mbit/s, and at 100 Mbit/s after one timeout of 200 ms.
    assert!((0.08..0.2).contains(&before), "{before} s");
    assert!((0.25..0.6).contains(&after), "{after} s");
    assert!(metric(&dead, "rtos") >= 1.0);
}

/// The shared buffer bounds what is in flight on all paths together: a buffer of 20 segments over a round trip of 20 ms.
#[test]
fn the_shared_buffer_bounds_the_connection() {
    let tcp = "congestion-control = \"newreno\"\nmss = \"1000B\"\nreceive-buffer = \"20000B\"";
    let record = record(&two_paths([&[], &[]], ["10ms", "10ms"], "1gbit", tcp, "subflows = 2", "20s"));
    let (goodput, limit) = (metric(&record, "throughput"), 20_000.0 * 8.0 / 0.02 / 1e6);
    assert!((0.9..=1.0).contains(&(goodput / limit)), "{goodput} of {limit}");
}

/// RFC 8257 with K = 20 packets at 1 Gbit/s and 100 us: two flows fill the link with a queue about K, without loss.
#[test]
fn dctcp_holds_the_queue_at_its_threshold() {
    let text = "version = 1\nname = \"t\"\n[run]\nduration = \"2s\"\nwarm-up = \"500ms\"\nsample = \"100ms\"\ntrials = 1\n\
        [network]\nbuilder = \"dumbbell\"\nleft = 2\nright = 2\n[network.link]\nrate = \"1gbit\"\ndelay = \"20us\"\n\
        [network.bottleneck]\nqueue = { limit = \"500pkt\", ecn-threshold = \"20pkt\", discipline = \"fifo\" }\n\
        [tcp]\ncongestion-control = \"dctcp\"\necn = true\n[[flows]]\nname = \"f\"\nfrom = \"left\"\nto = \"right\"\n\
        [measure]\nrecord = \"none\"\nlong-interval = \"100ms\"\n";
    let record = record(text);
    let (goodput, queue) = (metric(&record, "throughput"), metric(&record, "queue"));
    assert!(goodput > 0.99 * 1000.0 * 1448.0 / 1514.0, "{goodput}");
    assert!((8.0..=25.0).contains(&queue), "mean queue {queue}");
    assert_eq!(metric(&record, "drops"), 0.0);
    assert!(metric(&record, "queue_max") < 60.0, "{}", metric(&record, "queue_max"));
}

/// Two connections of one subflow each take the two paths, as two flows of plain TCP do, with routers named and without. Three
/// subflows of two connections take them in turn.
#[test]
fn connections_of_a_pair_take_the_paths_in_turn() {
    let named = "paths = [\"r1\", \"r2\"]\n";
    for (flow, expected) in [
        (format!("{named}count = 2"), [1, 1]),
        (format!("{named}count = 2\nsubflows = 1"), [1, 1]),
        ("count = 2\nsubflows = 1".to_owned(), [1, 1]),
        ("count = 2\nsubflows = 2".to_owned(), [2, 2]),
        ("count = 2\nsubflows = 3".to_owned(), [3, 3]),
        ("subflows = 3".to_owned(), [2, 1]),
    ] {
        let tcp = "congestion-control = \"newreno\"";
        let text =
            two_paths([&[], &[]], ["1ms", "1ms"], "10mbit", tcp, &format!("{flow}\nsize = \"60kB\""), "2s");
        let flows = ["r1->d", "r2->d"].map(|port| {
            let packets = captured(&scenario(&text), 0, port);
            let data = packets.iter().filter(|packet| packet.payload > 0);
            data.map(|packet| (packet.src_port, packet.dst_port)).collect::<BTreeSet<_>>().len()
        });
        assert_eq!(flows, expected, "{flow}");
    }
}

/// A transfer over two paths, with a loss on each; `BANDMASTER_BLESS=1` rewrites the files.
#[test]
fn traces_are_as_before() {
    for (control, tcp) in [
        ("lia", "congestion-control = \"lia\""),
        ("olia", "congestion-control = \"olia\""),
        ("balia", "congestion-control = \"balia\""),
        ("dctcp", "congestion-control = \"dctcp\"\necn = true"),
    ] {
        let tcp = format!("{tcp}\nmss = \"1000B\"\ntimestamps = false");
        let text =
            two_paths([&[25], &[9]], ["5ms", "10ms"], "10mbit", &tcp, "subflows = 2\nsize = \"120kB\"", "2s")
                .replace(
                    "queue = \"100pkt\"",
                    "queue = { limit = \"100pkt\", ecn-threshold = \"8pkt\", discipline = \"fifo\" }",
                );
        let scenario = scenario(&text);
        let mut rows = Vec::new();
        for (path, port) in ["s->r1", "s->r2", "r1->s", "r2->s"].into_iter().enumerate() {
            for packet in captured(&scenario, 0, port) {
                let CapturedTransport::Tcp(tcp) = packet.transport else { continue };
                let at = packet.at.as_nanos() as f64 / 1e6;
                let number = if path < 2 { tcp.seq } else { tcp.ack };
                rows.push((
                    packet.at,
                    format!("{at:>9.3} {port} {:>3} {number:>7} {:>5}\n", tcp.flags, packet.payload),
                ));
            }
        }
        rows.sort();
        let mut table = "  time_ms port  flags seq_or_ack len\n".to_owned();
        rows.iter().for_each(|(_, row)| table.push_str(row));
        let path: PathBuf =
            [env!("CARGO_MANIFEST_DIR"), "..", "..", "golden", &format!("tcp-{control}-two-paths.txt")]
                .iter()
                .collect();
        if std::env::var_os("BANDMASTER_BLESS").is_some_and(|value| value == "1") {
            std::fs::write(&path, &table).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        }
        let golden = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        assert!(golden == table, "{} differs from\n{table}", path.display());
    }
}
