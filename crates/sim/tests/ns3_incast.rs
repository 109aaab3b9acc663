//! Incast over two switches against ns-3.37: `scenarios/validation/ns3-incast.toml`, 40 trials.
//!
//! The anchors are 40 runs of ns-3 per case of the collapse and 10 before it, with SACK, delayed acknowledgements of 40 ms and
//! rates that are off by up to 0.1 %, as here: without, a nanosecond of rounding decides who is dropped.
//! The share of rounds that collapse must be ns-3's; where none does, goodput too, and where all do, the median of completion
//! times must lie in ns-3's spread; drops lie within 5 %. Equal means of timeouts are not rejected at 1 %, or are at most one apart where
//! there are few.

use std::fmt::Write as _;
use std::path::PathBuf;

use bandmaster_core::report::RunRecord;
use bandmaster_core::scenario::{Case, Options, parse};
use bandmaster_sim::{RunOptions, run};

struct Anchor {
    variant: &'static str,
    senders: u32,
    /// Median, least and largest goodput of the round in Mbit/s.
    goodput: [f64; 3],
    /// Share of rounds that collapse.
    collapsed: f64,
    /// Mean.
    drops: f64,
    /// Mean and standard deviation.
    rtos: [f64; 2],
}

const fn anchor(
    variant: &'static str,
    senders: u32,
    goodput: [f64; 3],
    collapsed: f64,
    drops: f64,
    rtos: [f64; 2],
) -> Anchor {
    Anchor { variant, senders, goodput, collapsed, drops, rtos }
}

const ANCHORS: [Anchor; 12] = [
    anchor("deep", 4, [16_621.0, 16_341.0, 16_734.0], 0.0, 0.0, [0.0, 0.0]),
    anchor("deep", 8, [17_889.0, 17_710.0, 17_952.0], 0.0, 0.0, [0.0, 0.0]),
    anchor("deep", 16, [18_564.0, 18_519.0, 18_579.0], 0.0, 0.0, [0.0, 0.0]),
    anchor("deep", 24, [125.0, 90.0, 17_113.0], 0.925, 261.8, [2.55, 1.91]),
    anchor("deep", 32, [167.0, 139.0, 17_509.0], 0.975, 430.6, [5.45, 2.56]),
    anchor("deep", 48, [209.0, 209.0, 251.0], 1.0, 599.5, [7.95, 3.2]),
    anchor("shallow", 4, [11_097.0, 21.0, 16_256.0], 0.2, 39.9, [0.28, 0.6]),
    anchor("shallow", 8, [42.0, 35.0, 14_269.0], 0.9, 99.3, [2.05, 1.24]),
    anchor("shallow", 16, [84.0, 70.0, 84.0], 1.0, 256.4, [10.9, 3.66]),
    anchor("shallow", 24, [84.0, 57.0, 126.0], 1.0, 432.0, [24.18, 5.65]),
    anchor("shallow", 32, [84.0, 56.0, 139.0], 1.0, 643.6, [46.38, 10.12]),
    anchor("shallow", 48, [99.0, 79.0, 114.0], 1.0, 1_009.2, [100.62, 10.39]),
];

/// Quantile of the normal distribution that leaves 1 % on both sides together.
const ONE_PER_CENT: f64 = 2.576;

/// Goodput below this, in Mbit/s, is collapse; nothing lies near it.
const COLLAPSE: f64 = 5_000.0;
/// Two standard errors of the difference of two shares of 40.
const SHARE: f64 = 0.22;
/// Largest ratio of goodputs that count as the same.
const SAME: f64 = 1.02;
/// Largest ratio of drops.
const DROPS: f64 = 1.05;

#[test]
fn incast_agrees_with_ns3() {
    let path: PathBuf =
        [env!("CARGO_MANIFEST_DIR"), "..", "..", "scenarios", "validation", "ns3-incast.toml"]
            .iter()
            .collect();
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let study = parse("ns3-incast.toml", &text, &Options::default()).unwrap_or_else(|e| panic!("{e}"));
    let mut table = String::new();
    let mut wrong = Vec::new();
    for Anchor { variant, senders, goodput: [median, least, most], collapsed, drops, rtos } in ANCHORS {
        let fits = |case: &&Case| {
            case.variant == variant && case.points.iter().any(|(_, value)| *value == senders.to_string())
        };
        let case = study.cases.iter().find(fits).expect("a case");
        let records: Vec<RunRecord> = (0..case.scenario.run.trials)
            .map(|trial| run(&case.scenario, 0, trial, &mut RunOptions::default()).expect("a run"))
            .collect();
        let sorted = |name: &str| {
            let mut values: Vec<f64> = records.iter().map(|r| r.metric(name).expect("a metric")).collect();
            values.sort_unstable_by(f64::total_cmp);
            values
        };
        let trials = records.len() as f64;
        let mean = |name: &str| sorted(name).iter().sum::<f64>() / trials;
        let ours = sorted("round_goodput");
        let [low, middle, high] = [0, ours.len() / 2, ours.len() - 1].map(|i| ours[i]);
        let mut judge = |metric: &'static str, holds: bool| {
            if !holds {
                wrong.push((variant, senders, metric));
            }
        };
        judge("rounds", mean("rounds") == 1.0);
        let share = ours.partition_point(|goodput| *goodput < COLLAPSE) as f64 / ours.len() as f64;
        judge("collapse", (share - collapsed).abs() <= SHARE);
        judge("ranges", low <= most * SAME && high * SAME >= least);
        let near = |a: f64, b: f64, ratio: f64| a <= b * ratio && b <= a * ratio;
        if collapsed == 0.0 {
            judge("median", near(middle, median, SAME));
        } else if collapsed == 1.0 {
            judge("median", (least / SAME..=most * SAME).contains(&middle));
        }
        judge("drops", near(mean("drops"), drops, DROPS));
        let [rtos, deviation] = rtos;
        let square = |value: &f64| (value - mean("rtos")).powi(2);
        let variance = sorted("rtos").iter().map(square).sum::<f64>() / (trials - 1.0);
        let error = ((variance + deviation * deviation) / trials).sqrt();
        let most_apart = if rtos >= 5.0 { ONE_PER_CENT * error } else { 1.0 };
        judge("timeouts", (mean("rtos") - rtos).abs() <= most_apart);
        let _ = writeln!(
            table,
            "{variant:<8} {senders:>3}  goodput {middle:>6.0} [{low:.0}, {high:.0}] ({median:.0} [{least:.0}, {most:.0}])  collapsed {share:.2} ({collapsed:.2})  \
             longest {:.1} ms  rtos {:.1} ({rtos:.1})  drops {:.0} ({drops:.0})",
            sorted("round_time_max").last().expect("a trial") * 1e3,
            mean("rtos"),
            mean("drops"),
        );
    }
    println!("{table}");
    assert!(wrong.is_empty(), "do not hold: {wrong:?}\n{table}");
}
