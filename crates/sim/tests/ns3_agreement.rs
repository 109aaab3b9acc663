//! Conventional TCP on the topology of BAS against ns-3.37: `scenarios/validation/ns3-bas.toml`, 30 trials.
//!
//! The anchors are ns-3's own runs with SACK, delayed acknowledgements and a 200-packet drop-tail queue, over seeds
//! and 0 and 100 ppm of rate tolerance; a trial here draws its access delays as ns-3's seeds do.

use std::fmt::Write as _;
use std::path::PathBuf;

use bandmaster_core::report::RunRecord;
use bandmaster_core::scenario::{Options, Override, parse};
use bandmaster_sim::{RunOptions, run};

const TRIALS: u32 = 30;

struct Anchor {
    clients: u32,
    /// Lower quartile, median, upper quartile of Jain's index.
    jain: [f64; 3],
    /// Means per run.
    drops: f64,
    rtos: f64,
}

const ANCHORS: [Anchor; 5] = [
    Anchor { clients: 4, jain: [0.49, 0.68, 0.81], drops: 675.0, rtos: 7.0 },
    Anchor { clients: 8, jain: [0.72, 0.80, 0.84], drops: 651.0, rtos: 10.0 },
    Anchor { clients: 16, jain: [0.69, 0.77, 0.79], drops: 866.0, rtos: 11.5 },
    Anchor { clients: 32, jain: [0.67, 0.71, 0.72], drops: 1800.0, rtos: 46.5 },
    Anchor { clients: 64, jain: [0.61, 0.62, 0.64], drops: 4090.0, rtos: 134.0 },
];

/// ns-3's total goodput in Mbit/s, over all its runs.
const GOODPUT: f64 = 96.40;

#[test]
fn conventional_tcp_agrees_with_ns3() {
    let mut table =
        "   N  jain q1/median/q3 (ns-3)                   goodput   drops (ns-3)    rtos (ns-3)\n".to_owned();
    let mut wrong = Vec::new();
    for anchor in &ANCHORS {
        let records = trials(anchor.clients);
        let jain = sorted(&records, "jain");
        let [q1, median, q3] = [0.25, 0.5, 0.75].map(|q| quantile(&jain, q));
        let [low, middle, high] = anchor.jain;
        let (goodput, drops, rtos) =
            (mean(&records, "throughput"), mean(&records, "drops"), mean(&records, "rtos"));
        let mut judge = |metric: &'static str, holds: bool| {
            if !holds {
                wrong.push((anchor.clients, metric));
            }
        };
        judge("quartiles", (low..=high).contains(&median));
        if anchor.clients >= 16 {
            judge("median", (median - middle).abs() <= 0.04);
        }
        judge("goodput", (goodput / GOODPUT - 1.0).abs() <= 0.005);
        let near = |ours: f64, theirs: f64| (1.0 / 1.5..=1.5).contains(&(ours / theirs));
        judge("drops", near(drops, anchor.drops));
        judge("timeouts", near(rtos, anchor.rtos));
        let _ = writeln!(
            table,
            "{:>4}  {q1:.3} / {median:.3} / {q3:.3} ({low:.2} / {middle:.2} / {high:.2})   {goodput:>6.2}  {drops:>6.0} ({:>4})  {rtos:>6.1} ({:>5.1})",
            anchor.clients, anchor.drops, anchor.rtos
        );
    }
    println!("{table}");
    assert!(wrong.is_empty(), "do not hold: {wrong:?}\n{table}");
}

fn trials(clients: u32) -> Vec<RunRecord> {
    let path: PathBuf =
        [env!("CARGO_MANIFEST_DIR"), "..", "..", "scenarios", "validation", "ns3-bas.toml"].iter().collect();
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let overrides = vec![
        Override { key: "clients".to_owned(), value: clients.to_string() },
        Override { key: "measure.record".to_owned(), value: "none".to_owned() },
    ];
    let options = Options { overrides, ..Options::default() };
    let study = parse("ns3-bas.toml", &text, &options).unwrap_or_else(|e| panic!("{e}"));
    let case = study.cases.iter().find(|case| case.base).expect("a base case");
    (0..TRIALS)
        .map(|trial| run(&case.scenario, 0, trial, &mut RunOptions::default()).expect("a run"))
        .collect()
}

fn metric(record: &RunRecord, name: &str) -> f64 {
    record.metric(name).expect("a metric")
}

fn mean(records: &[RunRecord], name: &str) -> f64 {
    records.iter().map(|r| metric(r, name)).sum::<f64>() / records.len() as f64
}

fn sorted(records: &[RunRecord], name: &str) -> Vec<f64> {
    let mut values: Vec<f64> = records.iter().map(|r| metric(r, name)).collect();
    values.sort_unstable_by(f64::total_cmp);
    values
}

/// Linear interpolation between order statistics.
fn quantile(sorted: &[f64], q: f64) -> f64 {
    let at = q * (sorted.len() - 1) as f64;
    let (low, part) = (at.floor() as usize, at.fract());
    sorted[low] + part * (sorted[(low + 1).min(sorted.len() - 1)] - sorted[low])
}
