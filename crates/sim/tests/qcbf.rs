//! QCBF beside its claims: `scenarios/qcbf/`, and flows that end without saying so.

use std::fmt::Write as _;
use std::path::PathBuf;

use bandmaster_core::report::RunRecord;
use bandmaster_core::scenario::{Options, Override, Scenario, parse};
use bandmaster_sim::{RunOptions, run};

/// The case of a variant of a file in `scenarios/qcbf/`, with these values.
fn case(file: &str, variant: &str, set: &[(&str, &str)]) -> Scenario {
    let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "..", "..", "scenarios", "qcbf", file].iter().collect();
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let overrides = set.iter().chain(&[("measure.record", "none")]);
    let overrides =
        overrides.map(|(k, v)| Override { key: (*k).to_owned(), value: (*v).to_owned() }).collect();
    let study =
        parse(file, &text, &Options { overrides, ..Options::default() }).unwrap_or_else(|e| panic!("{e}"));
    let case = study.cases.into_iter().find(|case| case.base && case.variant == variant);
    case.expect("a variant").scenario
}

fn record(scenario: &Scenario, trial: u32) -> RunRecord {
    run(scenario, 0, trial, &mut RunOptions::default()).unwrap_or_else(|e| panic!("{e}"))
}

fn figure(record: &RunRecord, name: &str) -> f64 {
    record.figure(name).expect("a figure")
}

/// Both links' payload with 1448 of 1502 bytes.
const LIMIT: f64 = 2.0 * 10_000.0 * 1448.0 / 1502.0;

/// No drop and no timeout for the paper's numbers of senders in both buffers and all forms; goodput flat within 5 %, over
/// blocks that are long beside the handshake.
#[test]
fn incast_neither_drops_nor_collapses() {
    let mut table = String::new();
    let mut wrong = Vec::new();
    for file in ["shallow.toml", "deep.toml"] {
        for variant in ["qcbf", "qcbf-field", "qcbf-tcp"] {
            for (size, rounds) in [("128KiB", 4.0), ("2MB", 2.0)] {
                let mut goodput = Vec::new();
                for senders in ["4", "8", "16", "24", "32", "48"] {
                    let per_flow = match (variant, size) {
                        ("qcbf-tcp", "128KiB") => "64KiB",
                        ("qcbf-tcp", _) => "1MB",
                        (_, size) => size,
                    };
                    let rounds_written = format!("{rounds:.0}");
                    let set = [
                        ("network.size", senders),
                        ("flows.answers.size", per_flow),
                        ("flows.answers.rounds", &rounds_written),
                    ];
                    for trial in 0..3 {
                        let record = record(&case(file, variant, &set), trial);
                        let [drops, rtos, done] =
                            ["drops", "rtos", "rounds"].map(|name| figure(&record, name));
                        goodput.push(figure(&record, "round_goodput"));
                        if (drops, rtos, done) != (0.0, 0.0, rounds) {
                            wrong.push(format!("{file} {variant} {senders} {size}: {drops} drops, {rtos} timeouts, {done} rounds"));
                        }
                    }
                }
                let (least, most) =
                    goodput.iter().fold((f64::MAX, 0.0f64), |(l, m), x| (l.min(*x), m.max(*x)));
                let _ = writeln!(table, "{file:<13} {variant:<11} {size:<7} {least:.0} to {most:.0} Mbit/s");
                if size == "2MB" && least < 0.95 * most {
                    wrong.push(format!("{file} {variant}: {least:.0} to {most:.0}"));
                }
            }
        }
    }
    println!("{table}");
    assert!(wrong.is_empty(), "{wrong:#?}\n{table}");
}

/// A shallow buffer, and the paper's field: what comes at once in a synchronised start of many must fit too. Fields far below
/// a segment share the pipe alone, which leaves half of the link unused.
#[test]
fn many_senders_start_without_loss() {
    let shallow = [("network.link.queue", "64KiB"), ("schemes.qcbf.buffer", "64KiB")];
    let field = [
        ("schemes.qcbf.form", "window-field"),
        ("schemes.qcbf.beta", "0.5"),
        ("tcp.initial-window", "1pkt"),
        ("tcp.delayed-ack", "1pkt"),
    ];
    let mut wrong = Vec::new();
    for (set, senders) in [(&shallow[..], "64 100 128 256"), (&field[..], "64 128 256 512 1024")] {
        for (senders, trial) in senders.split(' ').flat_map(|senders| [(senders, 0), (senders, 1)]) {
            let set = [set, &[("network.size", senders)]].concat();
            let record = record(&case("many.toml", "128-kib", &set), trial);
            let figures = ["round_goodput", "drops", "rtos"].map(|name| figure(&record, name));
            println!("{set:?}: {figures:?}");
            let least = if matches!(senders, "512" | "1024") { 0.5 } else { 0.9 };
            if figures[0] < least * LIMIT || figures[1..] != [0.0, 0.0] {
                wrong.push((senders, trial, figures));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Shares far below a segment: turns. Blocks of few senders must be long beside the two round trips of the handshake.
#[test]
fn a_thousand_senders_reach_the_limit() {
    let mut wrong = Vec::new();
    let cases = [
        ("1-mb", "4"),
        ("512-kib", "8"),
        ("256-kib", "16"),
        ("1-mb", "16"),
        ("128-kib", "32"),
        ("128-kib", "48"),
        ("128-kib", "256"),
        ("128-kib", "1024"),
        ("1-mb", "512"),
    ];
    for (variant, senders) in cases {
        let record = record(&case("many.toml", variant, &[("network.size", senders)]), 0);
        let figures = ["round_goodput", "drops", "rtos", "rounds"].map(|name| figure(&record, name));
        println!("{variant} {senders}: {figures:?}, {:.3} of the limit", figures[0] / LIMIT);
        if figures[0] < 0.95 * LIMIT || figures[1..] != [0.0, 0.0, 2.0] {
            wrong.push((variant, senders, figures));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Two flows of a receiver. One dies with its 200th segment: nothing that it sends arrives; or that is its last segment, and
/// is lost with the FIN in it, 200 ms before its timeout. Its share, half, comes back within 1.5 times the ageing time of 2 ms.
#[test]
fn the_share_of_a_dead_sender_and_of_a_lost_fin_comes_back() {
    let limit = 10_000.0 * 1448.0 / 1502.0;
    for (name, size, lost) in [("dead", "", 200..5_000), ("FIN", "size = \"289600B\"\n", 200..201)] {
        let lost: Vec<u64> = lost.collect();
        let text = format!(
            "version = 1\nname = \"t\"\n[run]\nduration = \"60ms\"\nsample = \"1ms\"\ntrials = 1\n\
             [network]\nrouters = [\"tor\"]\nhosts = [\"d\", \"x\"]\nhost-delay = 0.0\nframe-overhead = \"2B\"\n\
             [network.link]\nrate = \"10gbit\"\ndelay = \"5us\"\nqueue = \"64KiB\"\n\
             [[network.groups]]\nname = \"s\"\nattach = \"tor\"\ncount = 1\n\
             [[network.links]]\nends = [\"tor\", \"d\"]\n[[network.links]]\nends = [\"x\", \"tor\"]\ndrop-packets = {lost:?}\n\
             [tcp]\ncongestion-control = \"newreno\"\n\
             [[flows]]\nname = \"others\"\nfrom = \"s\"\nto = \"d\"\n\
             [[flows]]\nname = \"dying\"\nfrom = \"x\"\nto = \"d\"\n{size}measured = false\n\
             [schemes.qcbf]\nbuffer = \"64KiB\"\nrtt = \"22us\"\nbeta = 0.25\n\
             [measure]\nrecord = \"none\"\nlong-interval = \"1ms\"\n\
             [[measure.windows]]\nname = \"dead\"\nfrom = \"1ms\"\nto = \"2ms\"\n\
             [[measure.windows]]\nname = \"aged\"\nfrom = \"5ms\"\nto = \"60ms\"\n"
        );
        let study = parse("t.toml", &text, &Options::default()).unwrap_or_else(|e| panic!("{e}"));
        let record = record(&study.cases[0].scenario, 0);
        let [before, after] =
            ["dead.throughput", "aged.throughput"].map(|window| figure(&record, window) / limit);
        println!("{name}: {before:.3} while its share is lost, {after:.3} after");
        assert!(after > 0.98, "{name}: {after:.3} of the limit after the ageing time");
        assert!(before < 0.95, "{name}: the lost share must show, or this test shows nothing: {before:.3}");
        assert_eq!(figure(&record, "drops"), 0.0);
    }
}

/// Among other traffic, in a dual-homed fat tree of 128 hosts.
#[test]
fn incast_in_a_fat_tree_spares_the_cross_traffic() {
    let records =
        ["cross-alone", "mptcp-lia", "qcbf"].map(|variant| record(&case("fat-tree.toml", variant, &[]), 0));
    for record in &records {
        let figures =
            ["throughput", "rounds", "round_goodput", "rtos", "drops"].map(|name| figure(record, name));
        println!("{figures:?}");
    }
    let [alone, _, qcbf] = &records;
    let kept = figure(qcbf, "throughput") / figure(alone, "throughput");
    assert!((0.95..=1.05).contains(&kept), "cross traffic keeps {kept:.3}");
    assert!(figure(qcbf, "round_goodput") > 0.8 * LIMIT, "{}", figure(qcbf, "round_goodput"));
    assert!(figure(qcbf, "rtos") <= figure(alone, "rtos"), "the incast adds timeouts");
}
