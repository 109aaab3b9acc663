//! `bandmaster run`.

use std::path::PathBuf;

use clap::{Args, ValueHint};

use super::execute::{Experiment, SIMULATION, execute};
use super::scenario_file::{ScenarioFile, options};
use super::selection::Selection;
use crate::args::{CaptureArgs, KeyArgs, Settings, WatchArgs, WorkArgs};
use crate::console::Console;
use crate::exit::{Exit, Failure};

/// Run a scenario file: every variant, sweep and trial
#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    file: FileArgs,
}

/// A scenario file, and how to run it.
#[derive(Args, Debug)]
pub(crate) struct FileArgs {
    /// Scenario file
    #[arg(value_name = "SCENARIO.toml", value_hint = ValueHint::FilePath)]
    scenario: PathBuf,
    #[command(flatten)]
    settings: Settings,
    #[command(flatten)]
    selection: Selection,
    #[command(flatten)]
    work: WorkArgs,
    #[command(flatten)]
    capture: CaptureArgs,
    #[command(flatten)]
    watch: WatchArgs,
}

const HELP: &str = "\
Examples:
  bandmaster run network.toml
  bandmaster run network.toml --variant bas --base
  bandmaster run network.toml --quick --set flows.uploads.count=8 --set run.duration=5s
  bandmaster run network.toml --json --no-report | jq '.claims[] | select(.ok | not)'
  bandmaster run network.toml --pcap 'r1->server' --out results/look
  bandmaster run network.toml --watch

The folder holds report.html, figures/*.svg, summary.json and manifest.json, and tables for other
programs: trials.parquet, flows.parquet and series.parquet. The same scenario, seed and version
give the same bytes, for any --jobs. While the folder holds a file INCOMPLETE, something is missing.

--watch takes the screen while trials run: trials finished, means and 95 % intervals of every case.
q closes the view, and the trials go on; Ctrl-C stops them. The results are the same.

Exit codes: 0 every claim holds, 1 a claim fails, 2 usage or scenario, 3 missing capability,
4 failure, 5 some trials failed, 130 interrupted (finished trials are kept; see resume).";

/// Runs one scenario file.
pub(crate) fn run(args: &RunArgs, console: Console) -> Result<Exit, Failure> {
    run_file("run", &args.file, &KeyArgs::default(), console)
}

/// Runs a scenario file with extra sweeps, as `command` does.
pub(crate) fn run_file(
    command: &str,
    args: &FileArgs,
    keys: &KeyArgs,
    console: Console,
) -> Result<Exit, Failure> {
    let console = args.watch.applied(console, args.work.report.json)?;
    let file = ScenarioFile::read(&args.scenario)?;
    let checked = file.checked(options(&args.settings, keys), args.selection.clone())?;
    checked.say_unjudged(console);
    let settings = settings_as_written(&args.settings, keys, &args.selection, &args.capture);
    let experiment = Experiment::of_file(command, checked, settings, args.capture.clone());
    execute(&SIMULATION, &experiment, &args.work, console)
}

/// The options that change results, as a command line gives them.
pub(crate) fn settings_as_written(
    settings: &Settings,
    keys: &KeyArgs,
    selection: &Selection,
    capture: &CaptureArgs,
) -> Vec<String> {
    let option = |name: &str, value: String| [format!("--{name}"), value];
    let grid = keys.grid.then(|| "--grid".to_owned());
    let keys = keys.keys.iter();
    let keys = keys.flat_map(|sweep| option("key", format!("{}={}", sweep.key, sweep.values.join(","))));
    let sets = settings.set.iter().flat_map(|set| option("set", format!("{}={}", set.key, set.value)));
    let trials = settings.trials.iter().flat_map(|n| option("trials", n.to_string()));
    let seed = settings.seed.iter().flat_map(|n| option("seed", n.to_string()));
    let quick = settings.quick.then(|| "--quick".to_owned());
    let port = capture.pcap.iter().flat_map(|port| option("pcap", port.clone()));
    let case = capture.pcap_case.iter().flat_map(|variant| option("pcap-case", variant.clone()));
    let snap = capture.pcap_snaplen.iter().flat_map(|bytes| option("pcap-snaplen", bytes.to_string()));
    let capture = port.chain(case).chain(snap);
    let changes = keys.chain(grid).chain(sets).chain(trials).chain(seed).chain(quick);
    changes.chain(capture).chain(selection.as_written()).collect()
}
