//! `bandmaster run`.

use bandmaster_core::scenario::ExtraSweep;

use super::execute::{Experiment, execute};
use super::scenario_file::{ScenarioFile, options};
use crate::args::{CaptureArgs, RunArgs, Settings};
use crate::console::Console;
use crate::exit::{Exit, Failure};

/// Runs one scenario file.
pub(crate) fn run(args: &RunArgs, console: Console) -> Result<Exit, Failure> {
    let file = ScenarioFile::read(&args.scenario)?;
    let study = file.study(&options(&args.settings, &[]))?;
    execute(
        &Experiment {
            name: study.name.clone(),
            title: study.title.clone(),
            command: vec!["run".to_owned(), file.path.clone()],
            settings: settings_as_written(&args.settings, &[], &args.capture),
            studies: vec![(file, study)],
            capture: &args.capture,
        },
        &args.work,
        console,
    )
}

/// The options that change results, as a command line gives them.
pub(crate) fn settings_as_written(
    settings: &Settings,
    sweeps: &[ExtraSweep],
    capture: &CaptureArgs,
) -> Vec<String> {
    let option = |name: &str, value: String| [format!("--{name}"), value];
    let keys =
        sweeps.iter().flat_map(|sweep| option("key", format!("{}={}", sweep.key, sweep.values.join(","))));
    let sets = settings.set.iter().flat_map(|set| option("set", format!("{}={}", set.key, set.value)));
    let trials = settings.trials.iter().flat_map(|n| option("trials", n.to_string()));
    let seed = settings.seed.iter().flat_map(|n| option("seed", n.to_string()));
    let quick = settings.quick.then(|| "--quick".to_owned());
    let port = capture.pcap.iter().flat_map(|port| option("pcap", port.clone()));
    let case = capture.pcap_case.iter().flat_map(|variant| option("pcap-case", variant.clone()));
    keys.chain(sets).chain(trials).chain(seed).chain(quick).chain(port).chain(case).collect()
}
