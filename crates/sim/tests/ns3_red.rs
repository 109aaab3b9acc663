//! Five TCP flows through RED and drop-tail against ns-3.37: `scenarios/validation/ns3-red.toml`, 60 trials.
//!
//! The anchors are ns-3's own runs of the same dumbbell: 60 runs per case, with other random numbers for RED, and access
//! delays and starts drawn as here. Jain's indices and goodput lie between the quartiles of a normal distribution with ns-3's mean
//! and deviation, or within 2 %; equal means of drops are not rejected at 1 %, or they lie within 5 %; timeouts are at most one
//! apart. Without SACK ns-3 sends most segments again that have arrived: those rows are printed only.

use std::fmt::Write as _;
use std::path::PathBuf;

use bandmaster_core::report::RunRecord;
use bandmaster_core::scenario::{Options, Override, Study, parse};
use bandmaster_sim::{RunOptions, run};

const TRIALS: u32 = 60;

/// Mean and standard deviation over ns-3's runs.
type Spread = (f64, f64);

struct Anchor {
    variant: &'static str,
    /// Otherwise it is printed only.
    is_judged: bool,
    /// Jain's index over 1 s, mean from 10 to 30 s.
    jain: Spread,
    /// Jain's index of the same 20 s.
    jain_long: Spread,
    /// Total goodput in Mbit/s.
    throughput: Spread,
    drops: Spread,
    rtos: Spread,
}

const ANCHORS: [Anchor; 10] = [
    Anchor {
        variant: "red",
        is_judged: true,
        jain: (0.852, 0.059),
        jain_long: (0.916, 0.057),
        throughput: (0.9616, 0.0084),
        drops: (89.2, 8.7),
        rtos: (1.9, 1.3),
    },
    Anchor {
        variant: "red-gentle",
        is_judged: true,
        jain: (0.795, 0.073),
        jain_long: (0.857, 0.092),
        throughput: (0.9603, 0.0064),
        drops: (91.7, 8.2),
        rtos: (2.3, 1.3),
    },
    Anchor {
        variant: "red-syn-1s",
        is_judged: true,
        jain: (0.864, 0.050),
        jain_long: (0.927, 0.051),
        throughput: (0.9611, 0.0078),
        drops: (91.5, 10.1),
        rtos: (1.8, 1.2),
    },
    Anchor {
        variant: "fifo",
        is_judged: true,
        jain: (0.727, 0.128),
        jain_long: (0.755, 0.143),
        throughput: (0.9547, 0.0076),
        drops: (96.4, 18.7),
        rtos: (3.0, 1.1),
    },
    Anchor {
        variant: "fifo-syn-1s",
        is_judged: true,
        jain: (0.752, 0.117),
        jain_long: (0.783, 0.127),
        throughput: (0.9547, 0.0077),
        drops: (97.4, 18.3),
        rtos: (3.0, 1.0),
    },
    Anchor {
        variant: "fifo-ns2-window",
        is_judged: true,
        jain: (0.947, 0.009),
        jain_long: (1.000, 0.000),
        throughput: (0.9597, 0.0002),
        drops: (0.0, 0.0),
        rtos: (0.0, 0.0),
    },
    Anchor {
        variant: "red-no-sack",
        is_judged: false,
        jain: (0.710, 0.048),
        jain_long: (0.873, 0.058),
        throughput: (0.8077, 0.0232),
        drops: (166.8, 14.1),
        rtos: (8.8, 1.6),
    },
    Anchor {
        variant: "fifo-no-sack",
        is_judged: false,
        jain: (0.722, 0.038),
        jain_long: (0.904, 0.054),
        throughput: (0.7883, 0.0303),
        drops: (138.8, 6.8),
        rtos: (9.3, 1.3),
    },
    Anchor {
        variant: "red-ns2",
        is_judged: false,
        jain: (0.629, 0.060),
        jain_long: (0.865, 0.075),
        throughput: (0.7028, 0.0597),
        drops: (400.0, 50.0),
        rtos: (31.9, 14.5),
    },
    Anchor {
        variant: "red-ns2-window",
        is_judged: false,
        jain: (0.824, 0.036),
        jain_long: (0.964, 0.022),
        throughput: (0.8471, 0.0882),
        drops: (30.6, 13.5),
        rtos: (8.4, 5.6),
    },
];

/// Distance of a quartile from the mean of a normal distribution, in standard deviations.
const QUARTILE: f64 = 0.6745;
/// Largest distance of Jain's indices and goodput, as a part, where the quartiles are nearer.
const NEAR: f64 = 0.02;
/// The same of drops.
const COUNTS: f64 = 0.05;
/// Largest distance of means of few timeouts.
const FEW: f64 = 1.0;
/// The 99.5 % quantile of Student's t with 118 degrees: Welch's test of two samples of 60 at 1 %.
const STUDENT: f64 = 2.618;

#[test]
fn red_agrees_with_ns3() {
    let study = study();
    let mut table = String::new();
    let mut wrong = Vec::new();
    for anchor in &ANCHORS {
        let case = study.cases.iter().find(|case| case.variant == anchor.variant).expect("a variant");
        let records: Vec<RunRecord> = (0..TRIALS)
            .map(|trial| run(&case.scenario, 0, trial, &mut RunOptions::default()).expect("a run"))
            .collect();
        let _ = write!(table, "{:<16}", anchor.variant);
        for (name, theirs, places) in [
            ("jain", anchor.jain, 3),
            ("jain_long", anchor.jain_long, 3),
            ("throughput", anchor.throughput, 4),
            ("drops", anchor.drops, 1),
            ("rtos", anchor.rtos, 1),
        ] {
            let ours = spread(&records, name);
            let _ = write!(
                table,
                "  {name} {:.places$} +- {:.places$} ({:.places$} +- {:.places$})",
                ours.0, ours.1, theirs.0, theirs.1
            );
            if anchor.is_judged && !agrees(name, ours, theirs) {
                wrong.push((anchor.variant, name));
            }
        }
        table.push('\n');
    }
    println!("{table}");
    assert!(wrong.is_empty(), "do not hold: {wrong:?}\n{table}");
}

fn agrees(metric: &str, ours: Spread, theirs: Spread) -> bool {
    let apart = (ours.0 - theirs.0).abs();
    match metric {
        "drops" => {
            let error = ((ours.1.powi(2) + theirs.1.powi(2)) / f64::from(TRIALS)).sqrt();
            apart <= (STUDENT * error).max(COUNTS * theirs.0)
        }
        "rtos" => apart <= FEW,
        _ => apart <= (QUARTILE * theirs.1).max(NEAR * theirs.0),
    }
}

fn study() -> Study {
    let path: PathBuf =
        [env!("CARGO_MANIFEST_DIR"), "..", "..", "scenarios", "validation", "ns3-red.toml"].iter().collect();
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let overrides = vec![Override { key: "measure.record".to_owned(), value: "none".to_owned() }];
    let options = Options { overrides, ..Options::default() };
    parse("ns3-red.toml", &text, &options).unwrap_or_else(|e| panic!("{e}"))
}

fn spread(records: &[RunRecord], name: &str) -> Spread {
    let values: Vec<f64> = records.iter().map(|r| r.metric(name).expect("a metric")).collect();
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let variance = values.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (n - 1.0);
    (mean, variance.sqrt())
}
