//! `bandmaster check`.

use std::fmt::Write;

use bandmaster_core::scenario::Study;

use super::scenario_file::{ScenarioFile, options};
use crate::args::CheckArgs;
use crate::console::{Console, complain};
use crate::exit::{Exit, Failure};
use crate::jobs::flow_count;

/// Checks files and says what each would run.
pub(crate) fn check(args: &CheckArgs, console: Console) -> Result<Exit, Failure> {
    let options = options(&args.settings, &[]);
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
    if !study.claims.is_empty() {
        let _ = write!(text, "; {}", counted(study.claims.len(), "claim"));
    }
    text
}
