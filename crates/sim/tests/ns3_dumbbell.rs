//! TCP against ns-3.37: four flows over a dumbbell behind every queue (`scenarios/validation/ns3-dumbbell.toml`), and conventional TCP
//! on the topology of BAS (`ns3-bas.toml`), 48 trials each.
//!
//! Medians of Jain's index, goodput, queue and marks lie inside ns-3's quartiles or within 2 % of its median; medians of drops
//! within 5 %, or Welch's test does not reject equal means at 1 %: behind PIE the median of 36 runs of ns-3 has an error of 10 %. Timeouts: where ns-3's mean is 5 or more, Welch's test does not reject equal means at 1 %; else the
//! means are at most one apart.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::thread;

use bandmaster_core::report::RunRecord;
use bandmaster_core::report::summary::Estimate;
use bandmaster_core::scenario::{Case, Options, Override, Scenario, Study, parse};
use bandmaster_sim::{RunOptions, run};

const TRIALS: u32 = 48;

/// ns-3.37 (Debian 3.37-2), own runs: first quartile, median and third quartile, or one number where the three are the
/// same or only one is known. `forty` has no spread to test its timeouts with.
const DUMBBELL: &str = "
case      runs  jain            throughput         queue           drops           marks              rtos
equal       16  .826/.847/.860  19.28              36.3/37.0/37.5  174/184/188     -                  0/0/1
each        36  .503/.570/.629  19.13/19.17/19.20  31.7/34.6/35.4  394/415/450     -                  6/10.5/19
slow        12  .728/.753/.790  .9497/.9518/.9536  23.2/23.9/24.2  94/100/110      -                  27/30/34
lossy       36  .880/.889/.895  4.98/5.30/5.48     .084/.0885/.092  0              -                  7/10/12
acks        36  .599/.648/.732  12.20/12.49/12.62  1.22/1.48/1.64  2856/2995/3363  -                  3/4/6
codel       36  .858/.883/.911  47.72/47.85/47.94  15.8/16.3/17.4  35/39/42        -                  0
fq-codel     8  .966/.966/.968  46.6/46.6/46.8     6.6/7.3/7.8     42/46/48        -                  0/.5/1
pie         36  .865/.892/.903  47.91/48.11/48.19  55.4/58.8/59.8  117/148/223     -                  2/3/4
red-ecn     36  .847/.878/.904  46.33/46.60/46.95  15.0/16.1/17.2  -               220/236/266        0
dctcp        8  .663/.766/.871  96.41              20.1/20.2/20.4  -               16800/18000/19800  0
forty        3  -               192.6              -               4604            -                  -
";

/// The same for the number of clients of BAS, which the queue was not noted for.
const BAS: &str = "
clients   runs  jain            throughput         queue           drops           marks              rtos
4           36  .551/.716/.820  96.39/96.40/96.41  -               462/576/682     -                  2/3.5/9
8           60  .681/.762/.807  96.40/96.40/96.41  -               537/595/790     -                  5/6/8
16          36  .680/.742/.787  96.40/96.41/96.43  -               787/825/911     -                  8.75/11/14
32          36  .660/.695/.732  96.34/96.41/96.42  -               1712/1806/1906  -                  27/33/49
64          30  .592/.606/.632  96.37/96.40/96.43  -               3975/4033/4159  -                  122/136/149
";

/// Largest distance of the medians, as a part of ns-3's: of Jain's index, goodput, queue and marks outside the
/// quartiles.
const NEAR: f64 = 0.02;
/// The same, of drops.
const COUNTS: f64 = 0.05;
/// Timeouts from which their means are tested.
const TESTED: f64 = 5.0;
/// Largest distance of the means of fewer timeouts.
const FEW: f64 = 1.0;

/// A row of [`DUMBBELL`] or [`BAS`].
struct Row {
    case: &'static str,
    runs: f64,
    /// Metrics and what is written for them.
    cells: Vec<(&'static str, &'static str)>,
}

fn rows(table: &'static str) -> Vec<Row> {
    let mut lines = table.trim().lines();
    let names: Vec<&str> = lines.next().expect("a head").split_whitespace().skip(2).collect();
    let row = |line: &'static str| {
        let cells: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(cells.len(), names.len() + 2, "{line}");
        Row {
            case: cells[0],
            runs: cells[1].parse().expect("a number"),
            cells: names.iter().copied().zip(cells[2..].iter().copied()).collect(),
        }
    };
    lines.map(row).collect()
}

/// A metric over ns-3's runs.
#[derive(Clone, Copy, Debug)]
struct Reference {
    runs: f64,
    q1: f64,
    median: f64,
    q3: f64,
}

impl Reference {
    /// None where the table has none.
    fn read(cell: &str, runs: f64) -> Option<Self> {
        if cell == "-" {
            return None;
        }
        let values: Vec<f64> = cell.split('/').map(|value| value.parse().expect("a number")).collect();
        let [q1, median, q3] = match values[..] {
            [only] => [only; 3],
            [q1, median, q3] => [q1, median, q3],
            _ => panic!("{cell} is neither one number nor three"),
        };
        Some(Self { runs, q1, median, q3 })
    }

    /// Estimated from the quartiles: Wan, Wang, Liu and Tong 2014.
    fn mean(&self) -> f64 {
        (self.q1 + self.median + self.q3) / 3.0
    }

    /// Estimated from the quartiles, which are 1.349 standard deviations apart in a normal distribution.
    fn sd(&self) -> f64 {
        (self.q3 - self.q1) / 1.349
    }
}

/// The rule of the metric.
fn agrees(metric: &str, ours: &Estimate, ns3: &Reference) -> bool {
    let near = |part: f64| (ours.median - ns3.median).abs() <= part * ns3.median;
    match metric {
        "drops" => near(COUNTS) || ns3.sd() > 0.0 && has_same_mean(ours, ns3),
        "rtos" if ns3.mean() >= TESTED => has_same_mean(ours, ns3),
        "rtos" => (ours.mean - ns3.mean()).abs() <= FEW,
        _ => (ns3.q1..=ns3.q3).contains(&ours.median) || near(NEAR),
    }
}

/// Welch's test of equal means, two-sided: true unless it rejects at 1 %.
fn has_same_mean(ours: &Estimate, ns3: &Reference) -> bool {
    let (n, sd) = (f64::from(ours.n), ours.sd.expect("more than one trial"));
    let (a, b) = (sd.powi(2) / n, ns3.sd().powi(2) / ns3.runs);
    // Welch and Satterthwaite.
    let degrees = (a + b).powi(2) / (a.powi(2) / (n - 1.0) + b.powi(2) / (ns3.runs - 1.0));
    (ours.mean - ns3.mean()).abs() <= student_t_995(degrees) * (a + b).sqrt()
}

/// The 99.5 % quantile of Student's t, from eight degrees on within 0.2 %: Abramowitz and Stegun, 26.7.5.
fn student_t_995(degrees: f64) -> f64 {
    const Z: f64 = 2.575_829_303_548_9;
    let [z3, z5, z7] = [3, 5, 7].map(|power| Z.powi(power));
    Z + (z3 + Z) / (4.0 * degrees)
        + (5.0 * z5 + 16.0 * z3 + 3.0 * Z) / (96.0 * degrees.powi(2))
        + (3.0 * z7 + 19.0 * z5 + 17.0 * z3 - 15.0 * Z) / (384.0 * degrees.powi(3))
}

#[test]
fn dumbbell_agrees_with_ns3() {
    let study = study("ns3-dumbbell.toml");
    // `base` has no numbers of ns-3.
    let cases = study.cases.iter().filter(|case| case.variant != "base");
    compare(DUMBBELL, cases.map(|case| (case.variant.as_str(), case)).collect());
}

#[test]
fn conventional_tcp_agrees_with_ns3() {
    let study = study("ns3-bas.toml");
    let swept = study.cases.iter().filter_map(|case| Some((case.points.first()?.1.as_str(), case)));
    let mut cases: Vec<(&str, &Case)> = swept.collect();
    // The base case comes first.
    cases.sort_by_key(|(clients, _)| clients.parse::<u32>().expect("a number"));
    compare(BAS, cases);
}

/// Judges every number of a table by the case of the same name.
fn compare(table: &'static str, cases: Vec<(&str, &Case)>) {
    let rows = rows(table);
    let names: Vec<&str> = cases.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, rows.iter().map(|row| row.case).collect::<Vec<_>>());
    let mut table = String::new();
    let mut wrong = BTreeSet::new();
    for (row, (_, case)) in rows.iter().zip(cases) {
        let records = trials(&case.scenario);
        for (metric, cell) in &row.cells {
            let values = records.iter().map(|record| record.metric(metric).expect("a metric"));
            let ours = Estimate::new(values).expect("trials");
            let verdict = match Reference::read(cell, row.runs) {
                None => "",
                Some(ns3) if agrees(metric, &ours, &ns3) => "agrees",
                Some(_) => {
                    wrong.insert((row.case, *metric));
                    "differs"
                }
            };
            let [q1, median, q3, mean] = [ours.q1, ours.median, ours.q3, ours.mean].map(shown);
            let ours = format!("{q1}/{median}/{q3}");
            let _ = writeln!(
                table,
                "{:<9} {metric:<11} {ours:<20} mean {mean:<7}  ns-3 {cell:<18} {verdict}",
                row.case
            );
        }
    }
    println!("{table}");
    assert!(wrong.is_empty(), "do not agree: {wrong:?}\n{table}");
}

/// Three places below 1, two below 100, else none.
fn shown(value: f64) -> String {
    let places = match value.abs() {
        small if small < 1.0 => 3,
        medium if medium < 100.0 => 2,
        _ => 0,
    };
    format!("{value:.places$}")
}

fn study(file: &str) -> Study {
    let path: PathBuf =
        [env!("CARGO_MANIFEST_DIR"), "..", "..", "scenarios", "validation", file].iter().collect();
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let overrides = vec![Override { key: "measure.record".to_owned(), value: "none".to_owned() }];
    let options = Options { overrides, trials: Some(TRIALS), ..Options::default() };
    parse(file, &text, &options).unwrap_or_else(|e| panic!("{e}"))
}

/// Every trial, on all processors.
fn trials(scenario: &Scenario) -> Vec<RunRecord> {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let of = move |first: usize| -> Vec<RunRecord> {
        (0..TRIALS)
            .skip(first)
            .step_by(threads)
            .map(|trial| run(scenario, 0, trial, &mut RunOptions::default()).expect("a run"))
            .collect()
    };
    let mut records: Vec<RunRecord> = thread::scope(|scope| {
        let parts: Vec<_> = (0..threads).map(|first| scope.spawn(move || of(first))).collect();
        parts.into_iter().flat_map(|part| part.join().expect("a thread's trials")).collect()
    });
    records.sort_by_key(|record| record.trial);
    records
}

/// From tables of the distribution.
#[test]
fn quantiles_of_students_t_are_those_of_tables() {
    for (degrees, quantile) in [(8.0, 3.3554), (10.0, 3.1693), (20.0, 2.8453), (60.0, 2.6603)] {
        let ours = student_t_995(degrees);
        assert!((ours / quantile - 1.0).abs() < 0.002, "{degrees}: {ours}");
    }
}

#[test]
fn the_rule_by_hand() {
    let estimate = |values: &[f64]| Estimate::new(values.iter().copied()).expect("values");
    let verdict = |metric, ours: &[f64], cell| {
        agrees(metric, &estimate(ours), &Reference::read(cell, 9.0).expect("a number"))
    };
    // Inside the quartiles, or within 2 % of the median.
    assert!(verdict("queue", &[2.5], "1.5/1.8/2.5") && !verdict("queue", &[2.6], "1.5/1.8/2.5"));
    assert!(verdict("throughput", &[102.0], "100") && !verdict("throughput", &[102.1], "100"));
    // Drops within 5 % of the median where the mean is sure; none is none.
    assert!(verdict("drops", &[105.0], "100") && !verdict("drops", &[105.1], "100"));
    assert!(
        verdict("drops", &[120.0, 130.0], "50/100/150") && !verdict("drops", &[129.0, 131.0], "99/100/101")
    );
    assert!(verdict("drops", &[0.0], "0") && !verdict("drops", &[1.0], "0"));
    // Few timeouts: the mean of 1, 2 and 6 is 3.
    assert!(verdict("rtos", &[4.0], "1/2/6") && !verdict("rtos", &[4.1], "1/2/6"));
    // Many: two samples of nine with variance 9 have 16 degrees, t = 2.9208, and an error of 1.4142: 4.13 apart.
    let nine = |mean: f64| {
        let variance_7 = [-4.0, -2.0, -2.0, -2.0, 0.0, 2.0, 2.0, 2.0, 4.0];
        variance_7.map(|x| mean + x * (9.0_f64 / 7.0).sqrt())
    };
    let cell = "7.9765/10/12.0235";
    assert!(verdict("rtos", &nine(14.1), cell) && !verdict("rtos", &nine(14.2), cell));
    assert!(verdict("rtos", &nine(5.9), cell) && !verdict("rtos", &nine(5.8), cell));
}
