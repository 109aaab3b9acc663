//! `bandmaster merge`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bandmaster_core::scenario::Study;
use clap::{Args, ValueHint};

use super::execute::{Experiment, Output, SIMULATE, case_name, publish};
use super::scenario_file::all_or_every_error;
use crate::args::ReportArgs;
use crate::console::Console;
use crate::exit::{Exit, Failure};
use crate::jobs::{self, Job, Outcome, TrialKey};
use crate::records::{self, Found, Trial};
use crate::report::flows::FlowBlocks;
use crate::report::folder::OutputFolder;

/// Make the report of one run from the record files of its shards
#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub(crate) struct MergeArgs {
    /// Record files of `shard`: all of one scenario's shards
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath, required = true)]
    files: Vec<PathBuf>,
    #[command(flatten)]
    report: ReportArgs,
}

const HELP: &str = "\
Examples:
  bandmaster merge shards/*.records -o results/network
  bandmaster merge 1.records 2.records --no-report --json | jq '.claims[] | select(.ok | not)'

The folder has the same bytes as one `bandmaster run` with the options of the shards. No scenario
file is needed: the record files hold it. Files of different scenarios, options, seeds or versions
are refused, and so are files that share a trial. Missing trials are listed with their shard.

Exit codes: 0 every claim holds, 1 a claim fails, 2 trials are missing or files do not fit,
4 failure, 5 some trials failed; the report holds the others.";

/// Trials that an error lists.
const LISTED: usize = 10;

/// Merges record files.
pub(crate) fn merge(args: &MergeArgs, console: Console) -> Result<Exit, Failure> {
    let &ReportArgs { force, json, no_report, .. } = &args.report;
    let out = args.report.out.as_deref();
    OutputFolder::check(out, force)?;
    // `--force` removes the records of the folder.
    let own = out.and_then(|out| Some((out, out.join(records::FILE).canonicalize().ok()?)));
    let is_own =
        |file: &&PathBuf| file.canonicalize().is_ok_and(|file| own.as_ref().is_some_and(|own| own.1 == file));
    if let (Some(file), Some((out, _))) = (args.files.iter().find(is_own), &own) {
        let (file, out) = (file.display(), out.display());
        return Err(Failure::usage(format!(
            "{file}: lies in --out, whose records --force removes: give another folder, or `bandmaster resume {out}`"
        )));
    }
    let mut all = all_or_every_error(args.files.iter().map(|path| Found::read(path)))?;
    let Some((first, others)) = all.split_first() else {
        return Err(Failure::usage("give the record files of all shards"));
    };
    if let Some(lab) = all.iter().find(|found| found.header.is_of_lab()) {
        let place = lab.path.display();
        return Err(Failure::usage(format!(
            "{place}: is of an emulation, which is not run in parts: `bandmaster resume` goes on with it"
        )));
    }
    for other in others {
        if let Some(difference) = first.header.difference(&other.header) {
            return Err(Failure::usage(format!(
                "{} and {} are of different runs: {difference}",
                first.path.display(),
                other.path.display()
            )));
        }
    }
    let experiment = Experiment::of_records(first)?;
    let studies = experiment.studies();
    let plan = jobs::plan(studies.iter().copied());
    check_overlaps(&all, &plan, &studies)?;
    check_missing(&all, &plan, &studies)?;

    let mut trials: BTreeMap<TrialKey, Trial> = BTreeMap::new();
    let mut parts = Vec::new();
    for Found { path, trials: own, .. } in all.drain(..) {
        parts.push((path, own.iter().map(|(key, trial)| (*key, trial.blocks.clone())).collect()));
        trials.extend(own);
    }
    let mut outcome = Outcome::new(studies.len(), plan.len());
    for job in plan {
        outcome.push(job, trials.remove(&job.key()).map(|trial| trial.result));
    }
    let rows = Ok(Some(FlowBlocks::new(parts, None)));
    let existed = out.is_some_and(Path::exists);
    let folder = match no_report {
        true => None,
        false => Some(OutputFolder::create(out, &experiment.name, force)?),
    };
    publish(SIMULATE, &experiment, outcome, rows, Ok(()), Output { folder, existed, json }, console)
}

/// Refuses files that share trials.
fn check_overlaps(all: &[Found], plan: &[Job<'_>], studies: &[&Study]) -> Result<(), Failure> {
    let mut holder: BTreeMap<TrialKey, &Found> = BTreeMap::new();
    for found in all {
        let shared = found.trials.keys().find_map(|key| Some((key, holder.get(key)?)));
        if let Some((key, other)) = shared {
            let (a, b) = (other.path.display(), found.path.display());
            let count = found.trials.keys().filter(|key| other.trials.contains_key(key)).count();
            let name = plan.iter().find(|job| job.key() == *key).map(|job| name(job, studies));
            return Err(Failure::usage(format!(
                "{a} and {b} share {count} trials, such as {}: give each trial once",
                name.unwrap_or_default()
            )));
        }
        holder.extend(found.trials.keys().map(|key| (*key, found)));
    }
    Ok(())
}

/// Refuses files that leave trials out, and says where these belong.
fn check_missing(all: &[Found], plan: &[Job<'_>], studies: &[&Study]) -> Result<(), Failure> {
    let is_there = |job: &Job<'_>| all.iter().any(|found| found.trials.contains_key(&job.key()));
    let count = all.iter().find_map(|found| found.header.part).map(|part| part.count);
    let shards = count.map(|count| jobs::shards(plan, count)).unwrap_or_default();
    let missing: Vec<usize> = (0..plan.len()).filter(|&index| !is_there(&plan[index])).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let mut text = format!("{} of {} trials are missing:", missing.len(), plan.len());
    for &index in missing.iter().take(LISTED) {
        let shard = shards.get(index).zip(count);
        let shard = shard.map(|(shard, count)| format!(" (shard {}/{count})", shard + 1));
        text += &format!("\n  {}{}", name(&plan[index], studies), shard.unwrap_or_default());
    }
    if let Some(more) = missing.len().checked_sub(LISTED).filter(|more| *more > 0) {
        text += &format!("\n  and {more} more");
    }
    text += "\nfinish their shards, and give all files";
    Err(Failure::usage(text))
}

fn name(job: &Job<'_>, studies: &[&Study]) -> String {
    let study = studies[job.study];
    format!("{}, {}, trial {}", study.name, case_name(&study.cases[job.case]), job.trial)
}
