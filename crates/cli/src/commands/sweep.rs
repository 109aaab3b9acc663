//! `bandmaster sweep`.

use super::execute::{Experiment, execute};
use super::run::settings_as_written;
use super::scenario_file::{ScenarioFile, options};
use crate::args::SweepArgs;
use crate::console::Console;
use crate::exit::{Exit, Failure};

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
