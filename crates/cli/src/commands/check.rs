//! `bandmaster check`.

use std::fmt::Write;
use std::path::PathBuf;

use bandmaster_core::memory;
use bandmaster_core::scenario::Study;
use bandmaster_sim::Division;
use clap::{Args, ValueHint};

use super::scenario_file::{ScenarioFile, options};
use crate::args::{KeyArgs, Settings};
use crate::console::{Console, complain};
use crate::exit::{Exit, Failure};
use crate::jobs::flow_count;

/// Check scenario files without running them
#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub(crate) struct CheckArgs {
    /// Scenario files
    #[arg(value_name = "SCENARIO.toml", required = true, value_hint = ValueHint::FilePath)]
    scenarios: Vec<PathBuf>,
    #[command(flatten)]
    settings: Settings,
}

const HELP: &str = "\
Examples:
  bandmaster check scenarios/*/*.toml
  bandmaster check network.toml --set schemes.bas.enabled=true

The memory is that of one simulated run at most; with `--jobs 4`, four runs need it each. A scenario
that may need more than 8 GiB is not valid. More than 4,194,304 packets on their way at one time end
a simulation with an error.

Exit codes: 0 all files are valid, 2 one is not (every error is listed with its line).";

/// Checks files and says what each would run.
pub(crate) fn check(args: &CheckArgs, console: Console) -> Result<Exit, Failure> {
    let options = options(&args.settings, &KeyArgs::default());
    let mut worst = Exit::Success;
    for path in &args.scenarios {
        let study = ScenarioFile::read(path).and_then(|file| file.study(&options));
        match study {
            Ok(study) => console.print(&format!("{}: {}", path.display(), plan(&study)))?,
            Err(failure) => {
                complain(&failure.message);
                worst = worst.max(failure.exit);
            }
        }
    }
    Ok(worst)
}

fn plan(study: &Study) -> String {
    let counted = |n: usize, noun: &str| format!("{n} {noun}{}", if n == 1 { "" } else { "s" });
    let trials: Vec<u32> = study.cases.iter().map(|case| case.scenario.run.trials).collect();
    let runs: u64 = trials.iter().copied().map(u64::from).sum();
    let mut text = format!("valid; {}", counted(study.variants.len(), "variant"));
    if !study.sweeps.is_empty() {
        let _ = write!(text, ", {}", counted(study.sweeps.len(), "sweep"));
    }
    let _ = match trials.first() {
        Some(first) if trials.iter().all(|n| n == first) => {
            write!(
                text,
                ": {} x {} = {}",
                counted(trials.len(), "case"),
                counted(*first as usize, "trial"),
                counted(runs as usize, "run")
            )
        }
        _ => write!(text, ": {}, {}", counted(trials.len(), "case"), counted(runs as usize, "run")),
    };
    let flows = study.cases.iter().map(|case| {
        let scenario = &case.scenario;
        scenario.flows.iter().map(|group| flow_count(group, &scenario.topology)).sum::<u64>()
    });
    let durations = study.cases.iter().map(|case| case.scenario.run.duration);
    if let (Some(most), Some(longest)) = (flows.max(), durations.max()) {
        let _ = write!(text, " of up to {} and {longest}", counted(most as usize, "flow"));
    }
    if let Some(most) = study.cases.iter().map(|case| memory::most(&case.scenario)).max() {
        let _ = write!(text, "; at most {} MiB of memory a run", most.div_ceil(1 << 20));
    }
    if let Some(divided) = study.cases.iter().map(|case| &case.scenario).find(|s| s.run.partitions > 1) {
        let _ = match bandmaster_sim::division(divided, 0) {
            Ok(Division { parts, window: Some(window) }) => {
                write!(text, "; divided into {parts} parts, windows of {window} at most")
            }
            Ok(_) => write!(text, "; not divided: the network is one part"),
            Err(why) => write!(text, "; not divided: {why}"),
        };
    }
    if !study.claims.is_empty() {
        let _ = write!(text, "; {}", counted(study.claims.len(), "claim"));
    }
    text
}
