//! Processor time of OpenTCP's Oracle, agents and switches in the paper's network, for Table 1:
//! `cargo bench -p bandmaster-core --bench opentcp`, with `-- --json` for machines.
//!
//! All roles run under OpenTCP2 with every host and port busy. What they observe is made up, so that the kernel's part, such
//! as reading the state of each connection, is not in it; what they do is all in it: reading and writing messages,
//! conditions, flows that begin and end, and looks at preconditions. Times are the thread's own CPU time where Linux states
//! it. The shares of Table 1 are claims: printed with a verdict, and one that fails ends the bench with an error.

#![expect(clippy::disallowed_methods, reason = "a bench measures time")]

mod harness;
#[path = "../tests/scinet/mod.rs"]
mod scinet;
#[expect(dead_code, reason = "the reference loop is for disciplines")]
mod yardstick;

use bandmaster_core::time::Span;
use serde_json::{Value as Json, json};

use harness::{number, run, table};
use scinet::{FLOWS, HOSTS_PER_RACK, RACKS, Scinet};
use yardstick::{processor, seconds, spread};

/// Measurements of everything; values are medians.
const ROUNDS: usize = 5;
/// Cycles of a round; one before them is not measured.
const CYCLES: u32 = 10;
/// Interval of looks at preconditions: the default.
const LOOK: Span = Span::from_millis(100);
/// Table 1: cycle in seconds; Oracle and agent, in per cent of a processor that the paper does not tell.
const PAPER: [(u64, Option<[f64; 2]>); 4] =
    [(1, None), (60, Some([0.9, 0.5])), (300, Some([0.0, 0.1])), (600, Some([0.0, 0.0]))];

/// The paper prints one decimal place: what rounds to more than its number is above it.
const ROUNDED: f64 = 0.05;
fn main() -> Result<(), String> {
    let mut failed = Vec::new();
    let mut judged = || {
        let all = measure();
        failed = of(&all, |claim| claim["verdict"] == "fails");
        all
    };
    run(&mut judged, print)?;
    if failed.is_empty() { Ok(()) } else { Err(format!("claims that fail: {}", failed.join(", "))) }
}

/// Names of the claims of which `such` is true.
fn of(all: &Json, such: impl Fn(&Json) -> bool) -> Vec<String> {
    let claims = all["claims"].as_array().into_iter().flatten().filter(|claim| such(claim));
    claims.filter_map(|claim| claim["id"].as_str().map(str::to_owned)).collect()
}

/// Per cent of a core in the cycle of `row`.
fn share(row: &Json, key: &str) -> f64 {
    number(row, key, "median") / 1e4 / row["cycle_s"].as_f64().unwrap_or(f64::NAN)
}

/// Table 1: ours takes no more of a core than what rounds to the paper's share.
fn claims(rows: &[Json]) -> Vec<Json> {
    let judge = |row: &Json, (part, key, paper): (&str, &str, &str)| {
        let high = row[paper].as_f64()? + ROUNDED;
        let (id, value) = (format!("table1-{part}/{}", row["cycle_s"]), share(row, key));
        let verdict = if value < high { "ok" } else { "fails" };
        Some(json!({ "id": id, "percent": value, "below": high, "verdict": verdict }))
    };
    let parts =
        [("oracle", "oracle_us", "paper_oracle_percent"), ("agent", "agent_us", "paper_agent_percent")];
    rows.iter().flat_map(|row| parts.map(|part| judge(row, part))).flatten().collect()
}

/// Seconds of agents, switches and Oracle in one cycle.
fn cycle(racks: u32, cycle: Span, look: Span, cycles: u32) -> [f64; 3] {
    let mut scinet = Scinet::new(racks, "opentcp2", cycle, look);
    scinet.cycle(|_, work| work());
    let mut spent = [0.0; 3];
    for _ in 0..cycles {
        scinet.cycle(|part, work| spent[part as usize] += seconds(work).0);
    }
    assert_eq!(scinet.tuned_and_refused().1, 0, "no act is refused");
    spent.map(|seconds| seconds / f64::from(cycles))
}

fn measure() -> Json {
    let per_cycle = PAPER.map(|(seconds, paper)| {
        let (mut oracle, mut switch, mut agent) = (Vec::new(), Vec::new(), Vec::new());
        let period = Span::from_secs(seconds);
        for _ in 0..ROUNDS {
            // Looks of all hosts would take minutes, and those of a rack say as much.
            let [_, switches, brain] = cycle(RACKS, period, period * 1000, CYCLES);
            let [agents, ..] = cycle(1, period, LOOK, (600 / seconds as u32).clamp(1, 100));
            oracle.push(brain * 1e6);
            switch.push(switches * 1e6 / f64::from(RACKS + 1));
            agent.push(agents * 1e6 / f64::from(HOSTS_PER_RACK));
        }
        json!({
            "cycle_s": seconds,
            "oracle_us": spread(oracle),
            "switch_us": spread(switch),
            "agent_us": spread(agent),
            "paper_oracle_percent": paper.map(|p| p[0]),
            "paper_agent_percent": paper.map(|p| p[1]),
        })
    });
    json!({
        "machine": processor(),
        "rounds": ROUNDS,
        "hosts": RACKS * HOSTS_PER_RACK,
        "flows_per_host": FLOWS,
        "claims": claims(&per_cycle),
        "cycles": per_cycle,
    })
}

fn print(all: &Json) {
    println!(
        "{}, {} cores; {} hosts with {FLOWS} flows each, {} switches; medians of {ROUNDS} rounds; us of processor time in a \
         cycle, and per cent of one core\n",
        all["machine"]["model"].as_str().unwrap_or("unknown processor"),
        all["machine"]["cores"],
        all["hosts"],
        RACKS + 1,
    );
    let mut table = table([
        "T (s)",
        "Oracle (us)",
        "min .. max",
        "%",
        "paper %",
        "agent (us)",
        "min .. max",
        "%",
        "paper %",
        "switch (us)",
    ]);
    for row in all["cycles"].as_array().into_iter().flatten() {
        let period = row["cycle_s"].as_f64().unwrap_or(f64::NAN);
        let of = |key: &str| {
            let range = format!("{:.1} .. {:.1}", number(row, key, "min"), number(row, key, "max"));
            let share = format!("{:.5}", share(row, key));
            [format!("{:.1}", number(row, key, "median")), range, share]
        };
        let paper = |key: &str| row[key].as_f64().map_or_else(|| "-".to_owned(), |x| format!("{x:.1}"));
        let mut cells = vec![period.to_string()];
        cells.extend(of("oracle_us"));
        cells.push(paper("paper_oracle_percent"));
        cells.extend(of("agent_us"));
        cells.push(paper("paper_agent_percent"));
        cells.push(format!("{:.1}", number(row, "switch_us", "median")));
        table.add_row(cells);
    }
    println!("{table}\n");
    for claim in all["claims"].as_array().into_iter().flatten() {
        let text = |key: &str| claim[key].as_str().unwrap_or("?");
        let value = |key: &str| claim[key].as_f64().unwrap_or(f64::NAN);
        println!(
            "{:<15} {:<17} {:.5} % of a core, below {:.2}",
            text("verdict"),
            text("id"),
            value("percent"),
            value("below")
        );
    }
}
