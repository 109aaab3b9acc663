//! `bandmaster run`.

use super::execute::{Experiment, execute};
use super::scenario_file::{ScenarioFile, options};
use crate::args::{CaptureArgs, RunArgs, Settings};
use crate::console::Console;
use crate::exit::{Exit, Failure};

/// Runs one scenario file.
pub(crate) fn run(args: &RunArgs, console: Console) -> Result<Exit, Failure> {
    let file = ScenarioFile::read(&args.scenario)?;
    let study = file.study(&options(&args.settings, &[]))?;
    let mut command = vec!["run".to_owned(), file.path.clone()];
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

/// The settings as a command line gives them.
pub(crate) fn settings_as_written(settings: &Settings) -> Vec<String> {
    let mut words: Vec<String> =
        settings.set.iter().flat_map(|(key, value)| ["--set".to_owned(), format!("{key}={value}")]).collect();
    words.extend(settings.trials.iter().flat_map(|n| ["--trials".to_owned(), n.to_string()]));
    words.extend(settings.seed.iter().flat_map(|n| ["--seed".to_owned(), n.to_string()]));
    words.extend(settings.quick.then(|| "--quick".to_owned()));
    words
}

/// The capture as a command line gives it.
pub(crate) fn capture_as_written(capture: &CaptureArgs) -> Vec<String> {
    let pcap = capture.pcap.iter().flat_map(|port| ["--pcap".to_owned(), port.clone()]);
    let case = capture.pcap_case.iter().flat_map(|variant| ["--pcap-case".to_owned(), variant.clone()]);
    pcap.chain(case).collect()
}
