//! `bandmaster sweep`.

use super::execute::{Experiment, execute};
use super::run::{capture_as_written, settings_as_written};
use super::scenario_file::{ScenarioFile, options};
use crate::args::SweepArgs;
use crate::console::Console;
use crate::exit::{Exit, Failure};

/// Runs one scenario file over values of keys.
pub(crate) fn sweep(args: &SweepArgs, console: Console) -> Result<Exit, Failure> {
    let file = ScenarioFile::read(&args.scenario)?;
    let study = file.study(&options(&args.settings, &args.keys))?;
    let mut command = vec!["sweep".to_owned(), file.path.clone()];
    let keys = args.keys.iter().flat_map(|k| ["--key".to_owned(), format!("{}={}", k.key, k.values.join(","))]);
    command.extend(keys);
    command.extend(settings_as_written(&args.settings));
    command.extend(capture_as_written(&args.capture));
    execute(
        Experiment {
            name: study.name.clone(),
            title: study.title.clone(),
            sources: vec![file],
            studies: vec![study],
            command,
            capture: &args.capture,
        },
        &args.work,
        console,
    )
}
