//! `bandmaster sweep`.

use std::path::PathBuf;

use bandmaster_core::scenario::ExtraSweep;
use clap::{Args, ValueHint};

use super::execute::{Experiment, execute};
use super::run::settings_as_written;
use super::scenario_file::{ScenarioFile, options};
use crate::args::{CaptureArgs, Settings, WorkArgs};
use crate::console::Console;
use crate::exit::{Exit, Failure};

/// Run a scenario file over values of any key
#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub(crate) struct SweepArgs {
    /// Scenario file
    #[arg(value_name = "SCENARIO.toml", value_hint = ValueHint::FilePath)]
    scenario: PathBuf,
    /// A key and its values; again for another sweep
    #[arg(long = "key", value_name = "KEY=V1,V2,...", required = true)]
    keys: Vec<ExtraSweep>,
    #[command(flatten)]
    settings: Settings,
    #[command(flatten)]
    work: WorkArgs,
    #[command(flatten)]
    capture: CaptureArgs,
}

const HELP: &str = "\
Examples:
  bandmaster sweep network.toml --key flows.uploads.count=1,2,4,8,16
  bandmaster sweep network.toml --key 'network.links.0.delay=1ms,uniform(2ms, 6ms)' --quick

Each --key is a sweep of its own beside those of the file, for every variant; keys are changed one
at a time.

Exit codes: 0 every claim holds, 1 a claim fails, 2 usage or scenario, 3 missing capability,
4 failure, 5 some trials failed, 130 interrupted (finished trials are kept).";

/// Runs one scenario file over values of keys.
pub(crate) fn sweep(args: &SweepArgs, console: Console) -> Result<Exit, Failure> {
    let file = ScenarioFile::read(&args.scenario)?;
    let study = file.study(&options(&args.settings, &args.keys))?;
    execute(
        &Experiment {
            name: study.name.clone(),
            title: study.title.clone(),
            command: vec!["sweep".to_owned(), file.path.clone()],
            settings: settings_as_written(&args.settings, &args.keys, &args.capture),
            studies: vec![(file, study)],
            capture: &args.capture,
        },
        &args.work,
        console,
    )
}
