//! Incast over two switches against ns-3.37: `scenarios/validation/ns3-incast.toml`, 30 trials.
//!
//! The anchors are ns-3's own 10 runs per case, with SACK and delayed acknowledgements of 40 ms. The collapse must begin at
//! the same number of senders; before it goodput must be ns-3's, after it completion times must lie in ns-3's spread.

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
    /// Means.
    drops: f64,
    rtos: f64,
}

const fn anchor(variant: &'static str, senders: u32, goodput: [f64; 3], [drops, rtos]: [f64; 2]) -> Anchor {
    Anchor { variant, senders, goodput, drops, rtos }
}

const ANCHORS: [Anchor; 12] = [
    anchor("deep", 4, [16_627.0, 16_352.0, 16_746.0], [0.0, 0.0]),
    anchor("deep", 8, [17_896.0, 17_724.0, 17_952.0], [0.0, 0.0]),
    anchor("deep", 16, [18_568.0, 18_534.0, 18_579.0], [0.0, 0.0]),
    anchor("deep", 24, [125.0, 104.0, 17_800.0], [261.0, 1.8]),
    anchor("deep", 32, [167.0, 167.0, 18_410.0], [439.0, 4.2]),
    anchor("deep", 48, [251.0, 209.0, 251.0], [614.0, 7.4]),
    anchor("shallow", 4, [12_076.0, 21.0, 15_972.0], [40.0, 0.8]),
    anchor("shallow", 8, [42.0, 42.0, 16_044.0], [99.0, 2.0]),
    anchor("shallow", 16, [84.0, 70.0, 84.0], [260.0, 9.4]),
    anchor("shallow", 24, [125.0, 57.0, 126.0], [427.0, 23.0]),
    anchor("shallow", 32, [139.0, 84.0, 167.0], [617.0, 31.0]),
    anchor("shallow", 48, [84.0, 78.0, 114.0], [1_076.0, 104.0]),
];

/// Goodput below this, in Mbit/s, is collapse; nothing lies near it.
const COLLAPSE: f64 = 5_000.0;
/// Largest ratio of the medians without collapse. The mixed case, 4 senders at 64 KiB, is judged by its ranges only.
const STEADY: f64 = 1.02;
const DROPS: f64 = 1.2;

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
    for Anchor { variant, senders, goodput: [median, least, most], drops, rtos } in ANCHORS {
        let fits = |case: &&Case| {
            case.variant == variant && case.points.iter().any(|(_, value)| *value == senders.to_string())
        };
        let case = study.cases.iter().find(fits).expect("a case");
        let records: Vec<RunRecord> = (0..case.scenario.run.trials)
            .map(|trial| run(&case.scenario, 0, trial, &mut RunOptions::default()).expect("a run"))
            .collect();
        let sorted = |name: &str| {
            let mut values: Vec<f64> = records.iter().map(|r| r.figure(name).expect("a figure")).collect();
            values.sort_unstable_by(f64::total_cmp);
            values
        };
        let mean = |name: &str| sorted(name).iter().sum::<f64>() / records.len() as f64;
        let ours = sorted("round_goodput");
        let [low, middle, high] = [0, ours.len() / 2, ours.len() - 1].map(|i| ours[i]);
        let mut judge = |figure: &'static str, holds: bool| {
            if !holds {
                wrong.push((variant, senders, figure));
            }
        };
        judge("rounds", mean("rounds") == 1.0);
        judge("collapse", (middle < COLLAPSE) == (median < COLLAPSE));
        judge("ranges", low <= most * STEADY && high * STEADY >= least);
        let near = |a: f64, b: f64, ratio: f64| a <= b * ratio && b <= a * ratio;
        if median < COLLAPSE {
            judge("median", (least / STEADY..=most * STEADY).contains(&middle));
        } else if least >= COLLAPSE {
            judge("median", near(middle, median, STEADY));
        }
        judge("drops", near(mean("drops"), drops, DROPS));
        let _ = writeln!(
            table,
            "{variant:<8} {senders:>3}  goodput {middle:>6.0} [{low:.0}, {high:.0}] ({median:.0} [{least:.0}, {most:.0}])  \
             longest {:.1} ms  rtos {:.1} ({rtos:.1})  drops {:.0} ({drops:.0})",
            sorted("round_time_max").last().expect("a trial") * 1e3,
            mean("rtos"),
            mean("drops"),
        );
    }
    println!("{table}");
    assert!(wrong.is_empty(), "do not hold: {wrong:?}\n{table}");
}
