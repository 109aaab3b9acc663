//! What OpenTCP's statistics and CUEs cost in the paper's network. The bytes that its roles really send are compared with the
//! paper's Table 1, and every part's work is in proportion to the hosts. `cargo bench -p bandmaster-core --bench opentcp`
//! measures the processor time.
//!
//! `BANDMASTER_BLESS=1 cargo test -p bandmaster-core --test opentcp_overhead` rewrites the golden table.

mod scinet;

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use bandmaster_core::time::Span;

use scinet::{HOSTS_PER_RACK, Part, RACKS, Scinet, Work};

const HOSTS: u32 = RACKS * HOSTS_PER_RACK;
/// Table 1: cycle in seconds, collection and CUE traffic in kbit/s.
const PAPER: [(u64, Option<(f64, f64)>); 4] =
    [(1, None), (60, Some((453.0, 530.0))), (300, Some((189.0, 252.0))), (600, Some((95.0, 75.0)))];
/// Tells a run of this program under an instruction counter how many racks there are.
const WORK: &str = "BANDMASTER_SCINET";

/// What statistics and CUEs take in the third cycle: bytes and messages.
fn traffic(cycle: Span) -> [(u64, u64); 2] {
    // Preconditions are not looked at between reports here: they cost no message.
    let mut scinet = Scinet::new(RACKS, "opentcp2", cycle, cycle * 1000);
    let mut last = Default::default();
    for _ in 0..3 {
        let [agents, switches, oracle] = scinet.cycle(|_, work| work());
        assert_eq!(oracle.messages, u64::from(HOSTS), "a CUE for every agent");
        assert!(agents.messages == u64::from(HOSTS) && switches.messages > u64::from(RACKS));
        last = [
            (agents.bytes + switches.bytes, agents.messages + switches.messages),
            (oracle.bytes, oracle.messages),
        ];
    }
    // Each agent clears its host's settings at the start, and changes them with its first CUE.
    assert_eq!(scinet.tuned_and_refused(), (2 * HOSTS as usize, 0));
    last
}

#[test]
fn statistics_and_cues_cost_a_tenth_of_what_the_paper_spent() {
    let mut table = "3864 hosts, 93 switches; kbit/s of IP and UDP\n\
                     cycle_s  collection   paper    CUEs   paper  bytes_per_report  bytes_per_cue\n"
        .to_owned();
    let mut bounds = [("", f64::NAN, 0.0); 2];
    for (seconds, paper) in PAPER {
        let [reports, cues] = traffic(Span::from_secs(seconds));
        let rate = |bytes: u64| bytes as f64 * 8.0 / 1000.0 / seconds as f64;
        let (collection, updates) = (rate(reports.0), rate(cues.0));
        let shown = |rate: Option<f64>| rate.map_or_else(|| "-".to_owned(), |x| format!("{x:.0}"));
        let _ = writeln!(
            table,
            "{seconds:>7} {collection:>11.1} {:>7} {updates:>7.1} {:>7} {:>17.1} {:>14.1}",
            shown(paper.map(|p| p.0)),
            shown(paper.map(|p| p.1)),
            reports.0 as f64 / reports.1 as f64,
            cues.0 as f64 / cues.1 as f64,
        );
        if let (60, Some(paper)) = (seconds, paper) {
            bounds = [("collection", collection, paper.0), ("CUEs", updates, paper.1)];
        }
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden/opentcp-overhead.txt");
    if std::env::var_os("BANDMASTER_BLESS").is_some_and(|value| value == "1") {
        std::fs::write(&path, &table).expect("the table is written");
    }
    let golden = std::fs::read_to_string(&path).expect("golden/opentcp-overhead.txt");
    assert_eq!(golden, table);
    for (what, spent, paper) in bounds {
        assert!(spent * 10.0 <= paper, "{what}: {spent} kbit/s");
    }
}

/// By part: calls, statistics read, messages and bytes in the third cycle.
fn work(racks: u32) -> [Work; 3] {
    let mut scinet = Scinet::new(racks, "opentcp2", Span::from_secs(1), Span::from_millis(100));
    let mut last = Default::default();
    for _ in 0..3 {
        last = scinet.cycle(|_, work| work());
    }
    last
}

#[test]
fn calls_messages_and_bytes_are_in_proportion_to_the_hosts() {
    let (small, large) = (RACKS / 4, RACKS);
    let parts = [Part::Agents, Part::Switches, Part::Oracle];
    for ((part, few), many) in parts.into_iter().zip(work(small)).zip(work(large)) {
        let grown = |few: u64, many: u64| many as f64 / few as f64 / (f64::from(large) / f64::from(small));
        for (what, few, many) in [
            ("calls", few.calls, many.calls),
            ("statistics", few.read, many.read),
            ("messages", few.messages, many.messages),
            ("bytes", few.bytes, many.bytes),
        ] {
            // The Oracle reads none. There is one core switch for any number of racks.
            let is_sound = if few == 0 { many == 0 } else { (0.9..=1.02).contains(&grown(few, many)) };
            assert!(is_sound, "{part:?}, {what}: {few} for {small} racks, {many} for {large}");
        }
    }
}

/// Three cycles of so many racks as `BANDMASTER_SCINET` says, to be counted from outside.
#[test]
fn counted() {
    let Ok(asked) = std::env::var(WORK) else { return };
    let cycle = Span::from_secs(1);
    let mut scinet = Scinet::new(asked.parse().expect("racks"), "opentcp2", cycle, cycle * 1000);
    for _ in 0..3 {
        scinet.cycle(|_, work| work());
    }
}

/// Instructions of the Oracle in three cycles of so many racks; none where nothing counts them.
fn instructions(racks: u32) -> Option<f64> {
    let own = std::env::current_exe().expect("this program");
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg("--toggle-collect=*opentcp::oracle::Oracle as*Controller>::on")
        .arg(own)
        .args(["--exact", "counted", "--test-threads=1"])
        .env(WORK, racks.to_string())
        .output()
        .ok()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    let counted = said.lines().find_map(|line| line.split_once("Collected :")).expect("a count");
    Some(counted.1.trim().parse::<f64>().expect("a number"))
}

/// Maps over all hosts take more steps for more of them, but the Oracle compares no host with every other.
#[test]
fn the_oracles_instructions_are_in_proportion_to_the_hosts() {
    let (small, large) = (4, 16);
    let (Some(few), Some(many)) = (instructions(small), instructions(large)) else {
        println!("skipped: valgrind is not installed");
        return;
    };
    let grown = many / few / (f64::from(large) / f64::from(small));
    assert!((0.6..=1.15).contains(&grown), "{few} instructions for {small} racks, {many} for {large}");
}
