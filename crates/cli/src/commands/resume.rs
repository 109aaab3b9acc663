//! `bandmaster resume`.

use std::path::PathBuf;

use clap::{Args, ValueHint};

#[cfg(target_os = "linux")]
use super::emulate;
use super::execute::{Experiment, SIMULATION, go_on};
use crate::args::JobsArgs;
use crate::console::Console;
use crate::exit::{Exit, Failure};
use crate::records::{self, Found};

/// Go on with a run that was killed, interrupted or partly failed
#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub(crate) struct ResumeArgs {
    /// Result folder that is marked INCOMPLETE
    #[arg(value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    folder: PathBuf,
    #[command(flatten)]
    jobs: JobsArgs,
    /// Print summary and claims as JSON on stdout, instead of tables
    #[arg(long)]
    json: bool,
}

const HELP: &str = "\
Examples:
  bandmaster resume results/network-001
  bandmaster resume results/network-001 --jobs 4 --json

run, sweep, reproduce and emulate append each trial to FOLDER/trials.records when it ends. resume
reads that file, runs the trials that are missing or failed, and writes the report: the same bytes
as a run that nothing stopped. An emulation keeps the trials that finished, and needs the rights
that emulate needs. The file holds the scenario and all options, so resume needs no scenario file,
but the same version of bandmaster. A complete report replaces the record file.

Exit codes: 0 every claim holds, 1 a claim fails, 2 nothing to resume or another version,
3 missing capability, 4 failure, 5 some trials failed, 130 interrupted.";

/// Goes on with a run.
pub(crate) fn resume(args: &ResumeArgs, console: Console) -> Result<Exit, Failure> {
    let folder = &args.folder;
    let place = folder.display();
    if !records::are_in(folder) {
        return Err(Failure::usage(match () {
            () if folder.is_file() => format!(
                "{place}: is a file; give the folder of a run. A shard goes on with the command that began it"
            ),
            () if !folder.is_dir() => format!("{place}: no such folder"),
            () if folder.join("INCOMPLETE").exists() => format!(
                "{place}: is marked INCOMPLETE and has no {}: it is of a merge or an older version; \
                 run that again with --force",
                records::FILE
            ),
            () if folder.join("manifest.json").exists() => {
                format!("{place}: is complete; there is nothing to resume")
            }
            () => format!("{place}: is no result folder (`bandmaster run --out DIR` makes one)"),
        }));
    }
    let (found, file) = Found::read_to_go_on(&folder.join(records::FILE))?;
    if found.header.is_of_lab() {
        #[cfg(target_os = "linux")]
        return emulate::go_on(folder, (found, file), args.jobs.jobs, args.json, console);
        #[cfg(not(target_os = "linux"))]
        return Err(Failure::new(
            Exit::MissingCapability,
            format!("{place}: is of an emulation, which takes Linux: resume it there"),
        ));
    }
    let experiment = Experiment::of_records(&found)?;
    go_on(&SIMULATION, &experiment, folder, (found, file), args.jobs.cores(), args.json, console)
}
