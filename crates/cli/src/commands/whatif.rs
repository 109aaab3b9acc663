//! `bandmaster controller whatif`.

use std::collections::BTreeMap;
use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Instant;

use bandmaster_core::agent::Scheme;
use bandmaster_core::controller::Deployment;
use bandmaster_core::report::RunRecord;
use bandmaster_core::report::difference::{Difference, Sample};
use bandmaster_core::scenario::{Files, Options, Study, parse};
use bandmaster_core::scheme::opentcp;
use bandmaster_core::time::Span;
use bandmaster_core::whatif::{Network, Plan, Policies, Recording, VARIANTS, Written, largest, remarks};
use bandmaster_linux::controller;
use bandmaster_linux::daemon::printable;
use bandmaster_sim::RunOptions;
use clap::{Args, ValueHint};
use comfy_table::{CellAlignment, Table};
use serde::Serialize;

use crate::args::whole_number;
use crate::commands::to_json;
use crate::console::Console;
use crate::exit::{Exit, Failure};
use crate::interrupt;
use crate::jobs::{self, Job, simulated};
use crate::progress::Progress;
use crate::report::ReportError;
use crate::report::folder::OutputFolder;
use crate::report::number::significant;
use crate::report::table::plain;

/// What `controller whatif` takes.
#[derive(Args, Debug)]
pub(crate) struct WhatifArgs {
    /// The controller's file
    #[arg(value_name = "CONTROLLER.toml", value_hint = ValueHint::FilePath)]
    file: PathBuf,
    /// Policy instead of those of the file: a file, or what ships; may be given again
    #[arg(long = "policy", value_name = "POLICY.toml", required = true, value_hint = ValueHint::FilePath)]
    policies: Vec<String>,
    /// Seed of the first drawing of flows
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole_number::<u64>(0, i64::MAX as u64))]
    seed: u64,
    /// Drawings, each simulated under both
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = whole_number::<u16>(1, 100))]
    seeds: u16,
    /// Write the scenario of the first drawing to this folder too; `bandmaster run` takes it
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    scenario: Option<PathBuf>,
    /// JSON instead of a table
    #[arg(long)]
    json: bool,
}

/// Packets over links that a run may simulate: some 4 s of one processor.
const BUDGET: f64 = 8e6;

/// Rows of the table: metric of the simulator, what it is called, and how its values are shown.
const ROWS: [(&str, &str, Shown); 7] = [
    ("fct_p50", "completion, median", Shown::Time),
    ("fct_mean", "completion, mean", Shown::Time),
    ("fct_p99", "completion, 99th percentile", Shown::Time),
    ("completed", "completed", Shown::Number),
    ("unfinished", "not completed", Shown::Number),
    ("drops", "dropped packets", Shown::Number),
    ("rtos", "timeouts", Shown::Number),
];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Shown {
    Time,
    Number,
}

impl Shown {
    fn of(self, value: f64) -> String {
        match self {
            Self::Time => format!("{} ms", significant(value * 1e3, 3)),
            Self::Number => format!("{value:.0}"),
        }
    }
}

/// Results of the comparison.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Outcome {
    recorded: Recorded,
    simulated: Simulated,
    /// By metric.
    metrics: BTreeMap<&'static str, Compared>,
    rules: Vec<Rule>,
    /// Share of the time in which hosts have settings of a rule, present and new.
    tuned: [f64; 2],
    remarks: Vec<String>,
}

/// What hosts have reported. Times are in seconds.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Recorded {
    minutes: usize,
    /// How many minutes ago the first of them was, and the last.
    minutes_ago: [u64; 2],
    hosts: usize,
    transfers: u64,
    bytes: u64,
    largest: u64,
    /// Completion times that were measured; those of connections that hosts without an agent open are not.
    measured: u64,
    fct_p50: Option<f64>,
    fct_mean: Option<f64>,
    fct_p99: Option<f64>,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Simulated {
    minutes: usize,
    /// Share of every minute that is simulated.
    share: f64,
    seeds: u16,
    seconds: f64,
}

/// A metric of both sides, over seeds.
#[derive(Serialize)]
struct Compared {
    recorded: Option<f64>,
    present: Side,
    new: Side,
    difference: Difference,
}

#[derive(Serialize)]
struct Side {
    mean: f64,
    min: f64,
    max: f64,
}

/// How often a rule fires.
#[derive(Serialize)]
struct Rule {
    side: &'static str,
    policy: String,
    rule: String,
    /// Share of the cycles; none: the rule comes after the first 24.
    fires: Option<f64>,
}

/// Prints what the recorded hour would have been under other policies.
pub(crate) fn whatif(args: &WhatifArgs, console: Console) -> Result<Exit, Failure> {
    let began = Instant::now();
    OutputFolder::check(args.scenario.as_deref(), false).map_err(|error| match error {
        ReportError::Occupied(path) => Failure::usage(format!(
            "error: {}: it is not empty: give --scenario another folder",
            printable(&path.display().to_string())
        )),
        error => error.into(),
    })?;
    let read = controller::whatif(&args.file, &args.policies)?;
    let wrong = |why: String| {
        Failure::usage(format!("error: {}: {why}", printable(&args.file.display().to_string())))
    };
    if read.deployment.scheme != Scheme::OpenTcp {
        return Err(wrong("whatif is of opentcp: BAS has no policies".to_owned()));
    }
    let network = Network::new(&read.deployment, &read.hosts).map_err(&wrong)?;
    let recording = Recording::new(&read.deployment, &read.hosts, &network, &read.kept).map_err(&wrong)?;
    let sides = [policies(&read.deployment), policies(&read.new)];
    let plan = Plan::new(&recording, &network, &sides, BUDGET).map_err(&wrong)?;
    let seeds = || (0..u64::from(args.seeds)).map(|number| args.seed.saturating_add(number));
    let written: Vec<Written> =
        seeds().map(|seed| plan.scenario(&recording, &network, &read.deployment, &sides, seed)).collect();
    if let Some(folder) = &args.scenario {
        save(folder, &written[0])?;
        console.say(format!("scenario: {}", folder.join("whatif.toml").display()));
    }
    let studies = written.iter().map(study).collect::<Result<Vec<_>, _>>()?;
    let records = simulate(&studies, console)?;
    let outcome = Outcome {
        recorded: Recorded::new(&recording, [read.ago + read.kept.len().saturating_sub(1) as u64, read.ago]),
        simulated: Simulated {
            minutes: plan.minutes.len(),
            share: plan.share,
            seeds: args.seeds,
            seconds: began.elapsed().as_secs_f64(),
        },
        metrics: ROWS
            .map(|(metric, ..)| (metric, Compared::new(metric, &recording, &studies, &records)))
            .into(),
        rules: rules(&sides, &records, &plan),
        tuned: [0, 1].map(|side| share_of(&records, side, &plan, "tuned", f64::from)),
        remarks: plan.remarks.iter().cloned().chain(remarks(&recording)).collect(),
    };
    console.print(&if args.json { to_json(&outcome)? } else { printable(outcome.text().trim_end()) })?;
    Ok(Exit::Success)
}

fn policies(deployment: &Deployment) -> Policies {
    let files = deployment.params.files("policies");
    // They have been read once.
    let policies = opentcp::policies(&files).unwrap_or_default();
    Policies { files, policies, cycle: deployment.params.span("cycle") }
}

/// Files of a scenario that is in memory.
#[derive(Debug)]
struct Beside<'a>(&'a BTreeMap<String, String>);

impl Files for Beside<'_> {
    fn read(&self, name: &str) -> Result<String, String> {
        self.0.get(name).cloned().ok_or_else(|| "no such file".to_owned())
    }
}

fn study(written: &Written) -> Result<Study, Failure> {
    let beside = Beside(&written.files);
    parse("whatif.toml", &written.text, &Options { files: Some(&beside), ..Options::default() })
        .map_err(|errors| Failure::run(format!("the recorded hour makes no scenario: {errors}")))
}

fn save(folder: &Path, written: &Written) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::run(format!("error: {}: {error}", folder.display()));
    fs::create_dir_all(folder).map_err(failed)?;
    let scenario = ("whatif.toml", &written.text);
    for (name, text) in written.files.iter().map(|(name, text)| (name.as_str(), text)).chain([scenario]) {
        fs::write(folder.join(name), text).map_err(failed)?;
    }
    Ok(())
}

/// By study: a record of every case.
fn simulate(studies: &[Study], console: Console) -> Result<Vec<Vec<RunRecord>>, Failure> {
    let stop = interrupt::watch()?;
    let plan = jobs::plan(studies);
    let progress = Progress::new(plan.len(), jobs::total_weight(&plan), console.animates());
    let run = |job: &Job<'_>| {
        let mut options = RunOptions { stop: Some(stop), ..RunOptions::default() };
        simulated(bandmaster_sim::run(job.scenario, job.case, job.trial, &mut options))
    };
    let threads = thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let outcome = jobs::run_all(&plan, studies.len(), BTreeMap::new(), threads.into(), stop, &progress, run);
    interrupt::heard();
    progress.clear();
    if outcome.stopped {
        return Err(Failure::new(Exit::Interrupted, "interrupted".to_owned()));
    }
    if let Some((_, why)) = outcome.failed.first() {
        let (jobs::TrialError::Unrunnable(why)
        | jobs::TrialError::Failed(why)
        | jobs::TrialError::Panicked(why)) = why;
        return Err(Failure::run(format!("the simulation failed: {why}")));
    }
    Ok(outcome.records)
}

impl Recorded {
    fn new(recording: &Recording, minutes_ago: [u64; 2]) -> Self {
        let measured = recording.times.count();
        Self {
            minutes: recording.minutes(),
            minutes_ago,
            hosts: recording.hosts,
            transfers: recording.transfers,
            bytes: recording.bytes,
            largest: largest(recording).get(),
            measured,
            fct_p50: measured_value("fct_p50", recording),
            fct_mean: measured_value("fct_mean", recording),
            fct_p99: measured_value("fct_p99", recording),
        }
    }
}

/// What was measured of a metric, in its unit.
fn measured_value(metric: &str, recording: &Recording) -> Option<f64> {
    let times = &recording.times;
    let micros = match metric {
        "fct_p50" => times.quantile(0.5),
        "fct_p99" => times.quantile(0.99),
        "fct_mean" => times.mean(),
        _ => return None,
    };
    micros.is_finite().then_some(micros / 1e6)
}

impl Compared {
    fn new(metric: &str, recording: &Recording, studies: &[Study], records: &[Vec<RunRecord>]) -> Self {
        let value = |(study, record): (&Study, &RunRecord)| match metric {
            "unfinished" => {
                let groups = &study.cases[record.case].scenario.flows;
                let flows: usize = groups
                    .iter()
                    .filter(|group| group.measured)
                    .filter_map(|group| Some(group.list.as_ref()?.len()))
                    .sum();
                flows as f64 - record.metric("completed").unwrap_or(0.0)
            }
            metric => record.metric(metric).unwrap_or(f64::NAN),
        };
        let values = |side: usize| -> Vec<f64> {
            studies.iter().zip(records).map(|(study, records)| value((study, &records[side]))).collect()
        };
        let all = [values(0), values(1)];
        let [first, second] = [0, 1].map(|side| sample(&all[side]));
        let side = |values: &[f64], sample: Sample| Side {
            mean: sample.mean,
            min: values.iter().copied().fold(f64::INFINITY, f64::min),
            max: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        };
        Self {
            recorded: measured_value(metric, recording),
            present: side(&all[0], first),
            new: side(&all[1], second),
            difference: Difference::new(first, second),
        }
    }
}

fn sample(values: &[f64]) -> Sample {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (n - 1.0);
    Sample { n: values.len() as u32, mean, sd: (values.len() > 1).then(|| variance.sqrt()) }
}

/// Mean of `value` over the samples of a series, of all its entities and seeds, while flows that count begin.
fn share_of(
    records: &[Vec<RunRecord>],
    side: usize,
    plan: &Plan,
    metric: &str,
    value: impl Fn(f32) -> f64,
) -> f64 {
    let (mut sum, mut count) = (0.0, 0u32);
    for record in records.iter().map(|records| &records[side]) {
        let place = |at: Span| (at.as_nanos() / record.sample.as_nanos().max(1)) as usize;
        for series in record.series.iter().filter(|series| series.metric == metric) {
            let during = series.values.iter().take(place(plan.end)).skip(place(plan.warm_up));
            for sample in during.filter(|sample| sample.is_finite()) {
                sum += value(*sample);
                count += 1;
            }
        }
    }
    sum / f64::from(count)
}

fn rules(sides: &[Policies; 2], records: &[Vec<RunRecord>], plan: &Plan) -> Vec<Rule> {
    let mut all = Vec::new();
    for (number, side) in sides.iter().enumerate() {
        let rules =
            side.policies.iter().flat_map(|policy| policy.rules.iter().map(move |rule| (policy, rule)));
        for (bit, (policy, rule)) in rules.enumerate() {
            let fires = |value: f32| f64::from((value as u32) >> bit & 1);
            all.push(Rule {
                side: VARIANTS[number],
                policy: policy.name.clone(),
                rule: rule.name.clone(),
                fires: (bit < opentcp::oracle::TOLD_RULES)
                    .then(|| share_of(records, number, plan, "firing", fires)),
            });
        }
    }
    all
}

impl Outcome {
    fn text(&self) -> String {
        let Recorded { minutes, minutes_ago: [first, last], hosts, transfers, bytes, measured, .. } =
            &self.recorded;
        let Simulated { minutes: of, share, seeds, seconds } = &self.simulated;
        let mut text = format!(
            "recorded   {minutes} minutes of {hosts} hosts, from {first} to {last} minutes ago: {transfers} transfers, {} MB; {measured} completion times measured\n\
             simulated  {of} minutes, {:.0} % of every minute, {seeds} drawings, each under both policies, in {seconds:.0} s\n\n",
            significant(*bytes as f64 / 1e6, 3),
            share * 100.0
        );
        let mut table = Table::new();
        table.set_header(["", "measured", "present", "new", "new less present"]);
        for (metric, name, shown) in ROWS {
            let Some(Compared { recorded, present, new, difference }) = self.metrics.get(metric) else {
                continue;
            };
            let side = |side: &Side| {
                format!("{} ({} to {})", shown.of(side.mean), shown.of(side.min), shown.of(side.max))
            };
            let interval = difference.ci95.map_or(String::new(), |half| format!(" ±{}", shown.of(half)));
            let relative =
                difference.relative.map_or(String::new(), |share| format!(", {:+.0} %", share * 100.0));
            let sign = if difference.mean > 0.0 { "+" } else { "" };
            table.add_row([
                name.to_owned(),
                recorded.map_or(String::new(), |value| shown.of(value)),
                side(present),
                side(new),
                format!("{sign}{}{interval}{relative}", shown.of(difference.mean)),
            ]);
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        text += &plain(table);
        text.push_str("\n\n");
        for Rule { side, policy, rule, fires } in &self.rules {
            let fires = fires.map_or("not reported".to_owned(), |share| {
                format!("fires in {:.0} % of the cycles", share * 100.0)
            });
            text += &format!("{side:<8}  `{policy}`, rule `{rule}`: {fires}\n");
        }
        for (side, tuned) in VARIANTS.iter().zip(self.tuned) {
            text +=
                &format!("{side:<8}  hosts have settings of rules for {:.0} % of the time\n", tuned * 100.0);
        }
        let off = |metric| {
            let Compared { recorded, present, .. } = self.metrics.get(metric)?;
            Some(format!("{:+.0} %", (present.mean / (*recorded)? - 1.0) * 100.0))
        };
        if let (Some(median), Some(mean), Some(tail)) = (off("fct_p50"), off("fct_mean"), off("fct_p99")) {
            text += &format!(
                "model     under the present policies it is off what was measured: median {median}, mean {mean}, 99th percentile {tail}\n"
            );
        }
        for remark in &self.remarks {
            text += &format!("note      {remark}\n");
        }
        text
    }
}
