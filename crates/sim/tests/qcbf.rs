//! QCBF: `scenarios/qcbf/`.
use std::path::PathBuf;
use bandmaster_core::scenario::{Options, Override, parse};
use bandmaster_sim::{RunOptions, run};
#[test]
fn look() {
    let sets = std::env::var("SETS").unwrap_or_default();
    let only = std::env::var("ONLY").unwrap_or_default();
    let overrides = sets.split(';').filter(|s| !s.is_empty()).map(|s| { let (k, v) = s.split_once('=').unwrap(); Override { key: k.into(), value: v.into() } }).collect();
    let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "..", "..", "scenarios", "qcbf", "paper.toml"].iter().collect();
    let text = std::fs::read_to_string(&path).unwrap();
    let study = parse("x.toml", &text, &Options { overrides, ..Options::default() }).unwrap_or_else(|e| panic!("{e}"));
    for case in study.cases.iter().filter(|c| only.is_empty() || only.split(',').any(|o| c.variant == o)) {
        let t0 = std::time::Instant::now();
        let r: Vec<_> = (0..3).map(|t| run(&case.scenario, 0, t, &mut RunOptions::default()).unwrap()).collect();
        let mean = |n: &str| r.iter().map(|r| r.figure(n).unwrap()).sum::<f64>() / r.len() as f64;
        println!("{:<16} {:?} good {:.0} tmax {:.2}ms rto {:.1} drops {:.1} rounds {} qmax {} q {:.2} retx {} fct {:.3}ms wall {:.2}", case.variant, case.points, mean("round_goodput"), mean("round_time_max")*1e3, mean("rtos"), mean("drops"), mean("rounds"), mean("queue_max"), mean("queue"), mean("retransmits"), mean("fct_mean")*1e3, t0.elapsed().as_secs_f64());
    }
}
