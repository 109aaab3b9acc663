//! `bandmaster compare`.

pub(crate) mod results;
mod tolerance;

use std::collections::BTreeMap;
use std::path::PathBuf;

use bandmaster_core::report::difference::{Difference, Sample};
use bandmaster_core::report::metric::label;
use clap::{Args, ValueHint};
use comfy_table::CellAlignment::{Left, Right};
use comfy_table::{ColumnConstraint, Table};
use serde::Serialize;
use serde_json::{Value, json};

use self::results::{CaseRow, Origin, Results, StudyRows};
use self::tolerance::{Percent, Tolerance};
use crate::console::{Console, complain};
use crate::exit::{Exit, Failure};
use crate::report::distinct;
use crate::report::manifest::json_lines;
use crate::report::number::significant;
use crate::report::table::plain;

/// Compare two result folders, metric by metric
#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub(crate) struct CompareArgs {
    /// Result folder
    #[arg(value_name = "A", value_hint = ValueHint::DirPath)]
    a: PathBuf,
    /// Result folder that is compared with it
    #[arg(value_name = "B", value_hint = ValueHint::DirPath)]
    b: PathBuf,
    /// Only this metric; may be given again. `shortage` stands for every `NAME.shortage` too
    #[arg(long = "metric", alias = "figure", value_name = "METRIC")]
    metrics: Vec<String>,
    /// Most that the means of a metric may differ by, in its unit or in per cent of A; may be given again
    #[arg(long = "tolerance", value_name = "METRIC=NUMBER[%]")]
    tolerances: Vec<Tolerance>,
    /// Most that the means of all other metrics may differ by, in per cent of A
    #[arg(long, value_name = "PERCENT%")]
    within: Option<Percent>,
    /// JSON instead of tables
    #[arg(long)]
    json: bool,
}

const HELP: &str = "\
Examples:
  bandmaster compare results/sim results/emulated
  bandmaster compare results/sim results/emulated --metric throughput --metric shortage
  bandmaster compare before after --tolerance shortage=10 --tolerance throughput=5%
  bandmaster compare before after --within 1% --json | jq '.studies[].cases[].metrics[]'

Cases are joined by variant and sweep value. For each metric: both means, B - A with its 95 %
confidence interval (Welch; none for a single trial), and that as a share of A. What only one folder
has is listed. A tolerance judges the difference of the means, not the interval; a metric with a
--tolerance of its own that one folder lacks exceeds it.

Exit codes: 0 no tolerance is exceeded, 1 one is, 2 usage, no result folder, or nothing in common.";

/// Differing keys of scenarios that the table names.
const SHOWN_KEYS: usize = 12;

/// Prints how the metrics of two result folders differ.
pub(crate) fn compare(args: &CompareArgs, console: Console) -> Result<Exit, Failure> {
    let (a, b) = (Results::read(&args.a)?, Results::read(&args.b)?);
    let wanted = Wanted::new(args, &a, &b)?;
    let comparison = Comparison::new(&a, &b, &wanted);
    if comparison.studies.iter().all(|study| study.cases.is_empty()) {
        return Err(Failure::usage(nothing_common(&a, &b)));
    }
    for results in [&a, &b] {
        if let Some(why) = &results.incomplete {
            complain(format!("warning: {} is not complete: {why}", results.path));
        }
    }
    let text = if args.json { json_lines(&json!(comparison), 4) } else { comparison.table() };
    console.print(&text)?;
    if comparison.failed > 0 {
        complain(format!("{} of {} tolerances are exceeded", comparison.failed, comparison.judged));
        return Ok(Exit::ClaimFailed);
    }
    Ok(Exit::Success)
}

/// Which metrics to compare, and how near they must be.
struct Wanted<'a> {
    metrics: &'a [String],
    tolerances: &'a [Tolerance],
    within: Option<Percent>,
}

impl<'a> Wanted<'a> {
    fn new(args: &'a CompareArgs, a: &Results, b: &Results) -> Result<Self, Failure> {
        let mut known = a.metrics();
        known.extend(b.metrics());
        let named = args.metrics.iter().map(|metric| ("--metric", metric));
        let tolerated = args.tolerances.iter().map(|tolerance| ("--tolerance", &tolerance.metric));
        for (option, metric) in named.chain(tolerated) {
            if !known.iter().any(|name| names(metric, name)) {
                let known = distinct(known).join(", ");
                return Err(Failure::usage(format!(
                    "{option} {metric}: neither folder has such a metric; they have: {known}"
                )));
            }
        }
        Ok(Self { metrics: &args.metrics, tolerances: &args.tolerances, within: args.within })
    }

    fn shows(&self, metric: &str) -> bool {
        self.metrics.is_empty()
            || self.metrics.iter().any(|wanted| names(wanted, metric))
            || self.tolerance(metric).is_some()
    }

    fn tolerance(&self, metric: &str) -> Option<&Tolerance> {
        self.tolerances.iter().rev().find(|tolerance| names(&tolerance.metric, metric))
    }

    /// Whether the difference is tolerated; none: nothing is asked of this metric.
    fn judge(&self, metric: &str, a: Option<Sample>, b: Option<Sample>) -> Option<bool> {
        let difference = a.zip(b).map(|(a, b)| Difference::new(a, b));
        match (self.tolerance(metric), self.within, difference) {
            (Some(tolerance), _, difference) => Some(difference.is_some_and(|d| tolerance.holds(&d))),
            (None, Some(within), Some(difference)) => Some(within.holds(&difference)),
            (None, _, _) => None,
        }
    }
}

/// `shortage` names `shortage` and `real.shortage`.
fn names(wanted: &str, metric: &str) -> bool {
    metric.strip_suffix(wanted).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

/// Two result folders side by side: the content of `--json`.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct Comparison {
    version: u32,
    a: Side,
    b: Side,
    studies: Vec<StudyComparison>,
    /// Studies of one folder only.
    only_a: Vec<String>,
    only_b: Vec<String>,
    /// Differences that a tolerance applies to, and those that exceed it.
    judged: usize,
    failed: usize,
}

/// A folder.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct Side {
    path: String,
    complete: bool,
}

/// A study that both folders have.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct StudyComparison {
    /// Its name in A; and in B.
    a: String,
    b: String,
    world_a: String,
    world_b: String,
    /// Whether both are of one scenario text with the same settings.
    same_scenario: bool,
    /// What differs in the scenarios of compared cases.
    changes: Vec<Change>,
    cases: Vec<CaseComparison>,
    /// Cases of one folder only.
    only_a: Vec<String>,
    only_b: Vec<String>,
}

/// A key of the scenarios whose values differ.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct Change {
    key: String,
    a: Value,
    b: Value,
    /// Compared cases in which it differs.
    cases: usize,
}

/// A case that both have.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct CaseComparison {
    variant: String,
    points: Value,
    base: bool,
    #[serde(skip)]
    name: String,
    trials_a: u32,
    trials_b: u32,
    metrics: Vec<MetricComparison>,
}

/// A metric of a case.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct MetricComparison {
    metric: String,
    unit: &'static str,
    /// What the paper reports; none: it, or the scenario file, says nothing.
    paper: Option<f64>,
    a: Option<Sample>,
    b: Option<Sample>,
    /// Mean of the metric `METRIC_limit` in A, or in B: the best that is possible; none: there is no such metric.
    limit: Option<f64>,
    difference: Option<Difference>,
    /// Whether the tolerance for it is kept; none: there is none.
    ok: Option<bool>,
}

impl Comparison {
    fn new(a: &Results, b: &Results, wanted: &Wanted<'_>) -> Self {
        let pairs = pair_studies(&a.studies, &b.studies);
        let studies: Vec<StudyComparison> =
            pairs.iter().map(|(a, b)| StudyComparison::new(a, b, wanted)).collect();
        let without = |all: &[StudyRows], paired: &dyn Fn(&StudyRows) -> bool| -> Vec<String> {
            all.iter().filter(|study| !paired(study)).map(|study| study.name.clone()).collect()
        };
        let verdicts = || {
            let cases = studies.iter().flat_map(|study| &study.cases);
            cases.flat_map(|case| &case.metrics).filter_map(|metric| metric.ok)
        };
        let (judged, failed) = (verdicts().count(), verdicts().filter(|ok| !ok).count());
        let side =
            |results: &Results| Side { path: results.path.clone(), complete: results.incomplete.is_none() };
        Self {
            version: 2,
            a: side(a),
            b: side(b),
            only_a: without(&a.studies, &|study| pairs.iter().any(|(a, _)| std::ptr::eq(*a, study))),
            only_b: without(&b.studies, &|study| pairs.iter().any(|(_, b)| std::ptr::eq(*b, study))),
            studies,
            judged,
            failed,
        }
    }

    fn table(&self) -> String {
        let mut text = format!("A: {}\nB: {}\n", self.a.path, self.b.path);
        for study in &self.studies {
            study.table(&mut text);
        }
        for (name, only) in [("A", &self.only_a), ("B", &self.only_b)] {
            if !only.is_empty() {
                text += &format!("\nStudies in {name} only: {}\n", only.join(", "));
            }
        }
        text += "\nB - A with its 95 % confidence interval (Welch); * where that excludes zero.\n";
        if self.judged > 0 {
            text += &format!("Tolerances: {} judged, {} exceeded.\n", self.judged, self.failed);
        }
        text
    }
}

impl StudyComparison {
    fn new(a: &StudyRows, b: &StudyRows, wanted: &Wanted<'_>) -> Self {
        let pairs = pair_cases(&a.cases, &b.cases);
        let same_scenario = a.origin.digest == b.origin.digest;
        let only = |all: &[CaseRow], paired: &dyn Fn(&CaseRow) -> bool| -> Vec<String> {
            all.iter().filter(|case| !paired(case)).map(|case| case.statistics.name()).collect()
        };
        Self {
            a: a.name.clone(),
            b: b.name.clone(),
            world_a: words(&a.origin),
            world_b: words(&b.origin),
            same_scenario,
            changes: if same_scenario { Vec::new() } else { changes(&pairs) },
            cases: pairs
                .iter()
                .map(|(case_a, case_b)| {
                    let paper = |metric: &str| {
                        let of_a = a.paper(&case_a.statistics, metric);
                        of_a.or_else(|| b.paper(&case_b.statistics, metric))
                    };
                    CaseComparison::new(case_a, case_b, &paper, wanted)
                })
                .collect(),
            only_a: only(&a.cases, &|case| pairs.iter().any(|(a, _)| std::ptr::eq(*a, case))),
            only_b: only(&b.cases, &|case| pairs.iter().any(|(_, b)| std::ptr::eq(*b, case))),
        }
    }

    fn table(&self, text: &mut String) {
        let name = if self.a == self.b { self.a.clone() } else { format!("{} and {}", self.a, self.b) };
        *text += &format!("\n{name}\n  A: {}\n  B: {}\n", self.world_a, self.world_b);
        if !self.same_scenario {
            *text += "  The scenario text or its settings differ; cases are compared by variant and sweep value.\n";
            if self.changes.is_empty() && !self.cases.is_empty() {
                *text += "  What the compared cases describe is the same.\n";
            }
            for change in self.changes.iter().take(SHOWN_KEYS) {
                let Change { key, a, b, cases } = change;
                let of = if *cases < self.cases.len() { format!(" ({cases} cases)") } else { String::new() };
                *text += &format!("  {key}: {} in A, {} in B{of}\n", short(a), short(b));
            }
            if let Some(more) = self.changes.len().checked_sub(SHOWN_KEYS).filter(|more| *more > 0) {
                *text += &format!("  and {more} more keys\n");
            }
        }
        for case in &self.cases {
            case.table(text);
        }
        for (name, only) in [("A", &self.only_a), ("B", &self.only_b)] {
            if !only.is_empty() {
                *text += &format!("\nCases in {name} only: {}\n", only.join("; "));
            }
        }
    }
}

impl CaseComparison {
    fn new(a: &CaseRow, b: &CaseRow, paper: &dyn Fn(&str) -> Option<f64>, wanted: &Wanted<'_>) -> Self {
        let (a, b) = (&a.statistics, &b.statistics);
        let mut metrics: Vec<&str> = a.metrics.iter().map(|(name, _)| name.as_str()).collect();
        metrics.extend(b.metrics.iter().map(|(n, _)| n.as_str()).filter(|n| a.metric(n).is_none()));
        metrics.retain(|metric| wanted.shows(metric));
        let compared = |metric: &str| {
            let limit = format!("{metric}_limit");
            let limit = a.metric(&limit).or_else(|| b.metric(&limit)).map(|sample| sample.mean);
            let (a, b) = (a.metric(metric), b.metric(metric));
            MetricComparison {
                metric: metric.to_owned(),
                unit: label(metric).unit,
                paper: paper(metric),
                limit,
                a,
                b,
                difference: a.zip(b).map(|(a, b)| Difference::new(a, b)),
                ok: wanted.judge(metric, a, b),
            }
        };
        Self {
            variant: a.variant.clone(),
            points: a.points.iter().cloned().collect(),
            base: a.base,
            name: a.name(),
            trials_a: a.trials,
            trials_b: b.trials,
            metrics: metrics.into_iter().map(compared).collect(),
        }
    }

    fn table(&self, text: &mut String) {
        *text += &format!("\n{} ({} and {} trials)\n", self.name, self.trials_a, self.trials_b);
        let mut table = Table::new();
        let filled = |is: fn(&MetricComparison) -> bool| self.metrics.iter().any(is);
        let columns = [
            ("  metric", Left, true),
            ("unit", Left, true),
            ("paper", Right, filled(|metric| metric.paper.is_some())),
            ("A", Right, true),
            ("B", Right, true),
            ("limit", Right, filled(|metric| metric.limit.is_some())),
            ("B - A", Right, true),
            ("relative", Right, true),
            ("tolerance", Left, filled(|metric| metric.ok.is_some())),
        ];
        table.set_header(columns.map(|(name, ..)| name));
        table.add_rows(self.metrics.iter().map(MetricComparison::cells));
        for (column, (_, alignment, filled)) in table.column_iter_mut().zip(columns) {
            column.set_cell_alignment(alignment);
            if !filled {
                column.set_constraint(ColumnConstraint::Hidden);
            }
        }
        *text += &format!("{}\n", plain(table));
    }
}

impl MetricComparison {
    fn cells(&self) -> [String; 9] {
        let absent = || "–".to_owned();
        let mean = |sample: Option<Sample>| sample.map_or_else(absent, |sample| significant(sample.mean, 5));
        let plain = |value: Option<f64>| value.map_or_else(absent, |value| significant(value, 5));
        let difference = self.difference.map_or_else(absent, |difference| {
            let mark = if difference.is_significant() == Some(true) { "*" } else { "" };
            let mean = significant(difference.mean, 3);
            match difference.ci95 {
                Some(half) => format!("{mean} ±{}{mark}", significant(half, 2)),
                None => mean,
            }
        });
        let share = self.difference.and_then(|difference| difference.relative);
        let relative = share.map_or_else(absent, |share| format!("{:+.1} %", share * 100.0));
        let verdict = self.ok.map_or("", |ok| if ok { "kept" } else { "EXCEEDED" });
        [
            format!("  {}", self.metric),
            self.unit.to_owned(),
            plain(self.paper),
            mean(self.a),
            mean(self.b),
            plain(self.limit),
            difference,
            relative,
            verdict.to_owned(),
        ]
    }
}

/// Studies of one name; two folders of one study each are compared whatever the names.
fn pair_studies<'a>(a: &'a [StudyRows], b: &'a [StudyRows]) -> Vec<(&'a StudyRows, &'a StudyRows)> {
    if let ([a], [b]) = (a, b) {
        return vec![(a, b)];
    }
    a.iter().filter_map(|a| Some((a, b.iter().find(|b| b.name == a.name)?))).collect()
}

/// Cases of one variant at one point; base cases belong together wherever their sweeps put them.
fn pair_cases<'a>(a: &'a [CaseRow], b: &'a [CaseRow]) -> Vec<(&'a CaseRow, &'a CaseRow)> {
    let mut free: Vec<&CaseRow> = b.iter().collect();
    let mut pairs = Vec::new();
    for case in a {
        let own = &case.statistics;
        let fits = |other: &&CaseRow| {
            let other = &other.statistics;
            let meets = || own.points.iter().any(|point| other.points.contains(point));
            own.variant == other.variant && own.base == other.base && (own.base || meets())
        };
        if let Some(at) = free.iter().position(fits) {
            pairs.push((case, free.remove(at)));
        }
    }
    pairs
}

/// Keys whose values differ in a pair of cases, in the order of the scenarios.
fn changes(pairs: &[(&CaseRow, &CaseRow)]) -> Vec<Change> {
    let mut found: Vec<Change> = Vec::new();
    let mut positions: BTreeMap<String, usize> = BTreeMap::new();
    for (a, b) in pairs {
        let mut of_pair = Vec::new();
        differing("", &a.scenario, &b.scenario, &mut of_pair);
        for (key, a, b) in of_pair {
            match positions.get(&key) {
                Some(at) => found[*at].cases += 1,
                None => {
                    positions.insert(key.clone(), found.len());
                    found.push(Change { key, a: a.clone(), b: b.clone(), cases: 1 });
                }
            }
        }
    }
    found
}

fn differing<'a>(key: &str, a: &'a Value, b: &'a Value, found: &mut Vec<(String, &'a Value, &'a Value)>) {
    let below = |name: &str| if key.is_empty() { name.to_owned() } else { format!("{key}.{name}") };
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            for (name, value) in a {
                differing(&below(name), value, b.get(name).unwrap_or(&Value::Null), found);
            }
            for (name, value) in b.iter().filter(|(name, _)| !a.contains_key(*name)) {
                differing(&below(name), &Value::Null, value, found);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (index, (a, b)) in a.iter().zip(b).enumerate() {
                differing(&below(&index.to_string()), a, b, found);
            }
        }
        (a, b) if a != b => found.push((key.to_owned(), a, b)),
        _ => {}
    }
}

/// A value of a scenario, on one short line.
fn short(value: &Value) -> String {
    match value {
        Value::Null => "nothing".to_owned(),
        Value::Array(items) if !items.is_empty() => format!("{} entries", items.len()),
        Value::Object(_) => "a table".to_owned(),
        value => value.to_string(),
    }
}

fn words(origin: &Origin) -> String {
    let Origin { world, version, digest, seed } = origin;
    let digest: String = digest.chars().take(12).collect();
    format!("{world}, version {version}, seed {seed}, scenario {digest}")
}

fn nothing_common(a: &Results, b: &Results) -> String {
    let has = |results: &Results| {
        let of = |study: &StudyRows| {
            let variants = distinct(study.cases.iter().map(|case| case.statistics.variant.as_str()));
            format!("{} ({})", study.name, variants.join(", "))
        };
        results.studies.iter().map(of).collect::<Vec<_>>().join("; ")
    };
    format!("nothing to compare: {} has {}, {} has {}", a.path, has(a), b.path, has(b))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use bandmaster_fuzz::{Corpus, INPUTS, Source, Target, turn};

    use super::*;
    use crate::report::FORMAT_VERSION;

    #[test]
    fn a_metric_is_named_with_or_without_its_prefix() {
        assert!(names("shortage", "shortage") && names("shortage", "real.shortage"));
        assert!(names("real.shortage", "real.shortage"));
        assert!(!names("shortage", "realshortage") && !names("real.shortage", "shortage"));
    }

    fn manifest() -> Value {
        let provenance = json!({"world": "simulate", "version": "0.1.0", "digest": "d", "seed": 1});
        let case = json!({"scenario": {"run": {"duration": 5}, "topology": 0}});
        let study = json!({
            "name": "s", "provenance": provenance, "variants": [{"name": "v"}], "topologies": [{}], "cases": [case],
        });
        json!({"version": FORMAT_VERSION, "studies": [study]})
    }

    fn summary(n: u64) -> Value {
        let metric = json!({"n": n, "mean": 1.5, "sd": 0.5});
        let row = json!({
            "study": "s", "variant": "v", "points": {}, "base": true, "trials": 3, "metrics": {"throughput": metric},
        });
        json!({"version": FORMAT_VERSION, "complete": true, "trials": {"finished": 3, "planned": 3}, "rows": [row]})
    }

    fn compared(folder: &Path, files: [&[u8]; 2]) -> Option<String> {
        fs::create_dir_all(folder).expect("a folder");
        for (name, bytes) in ["summary.json", "manifest.json"].into_iter().zip(files) {
            fs::write(folder.join(name), bytes).expect("written");
        }
        let both = [(); 2].map(|()| Results::read(folder));
        let [Ok(a), Ok(b)] = both else { return None };
        let wanted = Wanted { metrics: &[], tolerances: &[], within: Some("1%".parse().expect("per cent")) };
        Some(Comparison::new(&a, &b, &wanted).table())
    }

    /// Whatever a folder holds, and however many trials it says there were.
    #[test]
    fn results_of_anybody_are_compared_or_refused() {
        let turn = turn();
        let folder = std::env::temp_dir().join(format!("bandmaster-compare-{}", std::process::id()));
        let bytes = |value: &Value| value.to_string().into_bytes();
        for n in [3, 10_000_000, u64::from(u32::MAX)] {
            assert!(compared(&folder, [&bytes(&summary(n)), &bytes(&manifest())]).is_some(), "{n} trials");
        }
        let corpus = Corpus::new(vec![bytes(&summary(3)), bytes(&manifest())], []);
        let read = |input: &[u8]| {
            drop(compared(&folder, [input, &bytes(&manifest())]));
            drop(compared(&folder, [&bytes(&summary(3)), input]));
        };
        let make = |source: &mut Source| corpus.mutate(source);
        Target { name: "compare", inputs: (INPUTS, 3_000), memory: 64 << 20, make: &make, read: &read }
            .fuzz(&turn);
        fs::remove_dir_all(&folder).expect("removed");
    }

    #[test]
    fn differing_keys_have_their_paths() {
        let (a, b) = (
            json!({"run": {"duration": 5, "seed": 1}, "flows": [{"count": 1}, {"count": 2}], "x": [1]}),
            json!({"run": {"duration": 7, "seed": 1}, "flows": [{"count": 1}, {"count": 3}], "x": [1, 2], "y": 0}),
        );
        let mut found = Vec::new();
        differing("", &a, &b, &mut found);
        let keys: Vec<&str> = found.iter().map(|(key, ..)| key.as_str()).collect();
        assert_eq!(keys, ["run.duration", "flows.1.count", "x", "y"]);
    }
}
