//! `bandmaster shard`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use clap::{Args, ValueHint};
use serde_json::json;

use super::execute::{Done, Experiment, SIMULATION, complain_of, exit_of, run_trials};
use super::run::settings_as_written;
use super::scenario_file::{ScenarioFile, options};
use super::selection::Selection;
use crate::args::{CaptureArgs, JobsArgs, KeyArgs, Settings};
use crate::console::{Console, complain};
use crate::exit::{Exit, Failure};
use crate::interrupt;
use crate::jobs::{self, Job};
use crate::records::{Found, Header, Part, Records};
use crate::report::ReportError;
use crate::report::manifest::json_lines;

/// Run a part of a scenario file's trials, for `merge`
#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub(crate) struct ShardArgs {
    /// Which part: its number from 1, and how many there are
    #[arg(value_name = "I/N")]
    part: Part,
    /// Scenario file
    #[arg(value_name = "SCENARIO.toml", value_hint = ValueHint::FilePath)]
    scenario: PathBuf,
    #[command(flatten)]
    keys: KeyArgs,
    #[command(flatten)]
    settings: Settings,
    #[command(flatten)]
    selection: Selection,
    #[command(flatten)]
    jobs: JobsArgs,
    /// Record file to write; one of the same shard goes on where it ended
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    out: PathBuf,
    /// Replace an earlier record file
    #[arg(long)]
    force: bool,
    /// Print what is in the file as JSON on stdout
    #[arg(long)]
    json: bool,
}

const HELP: &str = "\
Examples:
  bandmaster shard 1/2 network.toml -o 1.records
  bandmaster shard 3/64 network.toml --trials 100 -o shards/3.records --jobs 1
  parallel 'bandmaster shard {}/8 network.toml -o {}.records' ::: 1 2 3 4 5 6 7 8
  bandmaster merge 1.records 2.records -o results/network

Cases and trials are dealt to the N shards by their work; a shard may be empty. The record file
holds each trial as it ends. The same command goes on with the file of a shard that was killed.
merge needs all shards, of one scenario, with the same options and by one version of bandmaster.

Exit codes: 0 done (merge judges claims), 2 usage, scenario, or a file of something else, 3 missing
capability, 4 failure, 5 some trials failed, 130 interrupted (finished trials are kept).";

/// Runs a shard.
pub(crate) fn shard(args: &ShardArgs, console: Console) -> Result<Exit, Failure> {
    let &ShardArgs { part, force, json, .. } = args;
    let (keys, selection) = (&args.keys, &args.selection);
    let checked =
        ScenarioFile::read(&args.scenario)?.checked(options(&args.settings, keys), selection.clone())?;
    checked.say_unjudged(console);
    let settings = settings_as_written(&args.settings, keys, selection, &CaptureArgs::default());
    // The merged report is that of this command.
    let command = if keys.keys.is_empty() { "run" } else { "sweep" };
    let experiment = Experiment::of_file(command, checked, settings, CaptureArgs::default());
    let header = experiment.header(Some(part));
    let studies = experiment.studies();
    let all = jobs::plan(studies.iter().copied());
    let shards = jobs::shards(&all, part.count);
    let plan: Vec<Job<'_>> =
        all.iter().zip(shards).filter(|(_, shard)| *shard == part.number - 1).map(|(job, _)| *job).collect();

    let stop = interrupt::watch()?;
    let (records, done) = open(&args.out, &header, force)?;
    if !done.is_empty() {
        console.say(format!("going on: {} of {} trials are there", done.len(), plan.len()));
    }
    let visible = console.animates() && !json;
    let cores = args.jobs.cores();
    let outcome =
        run_trials(&plan, studies.len(), SIMULATION.run, (Some(&records), done), cores, stop, visible);
    records.into_rows().map_err(|error| {
        Failure::run(format!("{error}; finished trials are kept: the same command goes on with them"))
    })?;
    complain_of(&outcome.failed, &studies);
    let (finished, failed, planned) = (outcome.finished(), outcome.failed.len(), plan.len());
    let place = args.out.display();
    if json {
        let summary = json!({
            "version": 1,
            "shard": part.number,
            "of": part.count,
            "file": place.to_string(),
            "trials": {"finished": finished, "failed": failed, "planned": planned},
        });
        console.print(&json_lines(&summary, 1))?;
    }
    if outcome.stopped {
        complain(format!(
            "interrupted: {finished} of {planned} trials finished; the same command goes on with them"
        ));
    } else if failed > 0 {
        complain(format!("error: {failed} of {planned} trials failed; the same command runs them again"));
    } else {
        console.say(format!("shard {part}: {finished} of {} trials in {place}", all.len()));
    }
    Ok(exit_of(&outcome))
}

/// The record file, new or as a shard that ended early left it, and what it holds.
fn open(path: &Path, header: &Header, force: bool) -> Result<(Records, Done), Failure> {
    let place = path.display();
    let is_there = path.metadata().is_ok_and(|meta| meta.len() > 0);
    if is_there
        && !force
        && let Some((found, file)) = Found::read_begun(path)?
    {
        if found.header != *header {
            let difference = match (found.header.part, header.part) {
                (Some(a), Some(b)) if a != b => format!("shards {a} and {b}"),
                (None, _) => "it is of a whole run".to_owned(),
                _ => found.header.difference(header).unwrap_or_else(|| "other files".to_owned()),
            };
            return Err(Failure::usage(format!(
                "{place}: holds trials of something else ({difference}): give another file, or --force to replace it"
            )));
        }
        let (records, mut trials) = Records::go_on(found, file)?;
        trials.retain(|_, trial| trial.result.is_ok());
        return Ok((records, trials.into_iter().map(|(key, trial)| (key, trial.result)).collect()));
    }
    if let Some(parent) = path.parent() {
        let failed = |error| ReportError::Io { doing: "create the folder", path: parent.to_owned(), error };
        fs::create_dir_all(parent).map_err(failed)?;
    }
    Ok((Records::create(path, header)?, BTreeMap::new()))
}
