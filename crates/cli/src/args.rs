//! The command line.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::thread;

use bandmaster_core::scenario::{ExtraSweep, Override};
use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use clap_complete::Shell;

use crate::commands::reproduce;

/// Simulates network-assisted bandwidth control.
#[derive(Parser, Debug)]
#[command(
    name = "bandmaster",
    version,
    about = "Try and measure network-assisted bandwidth control",
    long_about = "Try and measure network-assisted bandwidth control: a scenario file names a network, its traffic and \
                  the schemes in charge; bandmaster simulates it packet by packet, compares variants over sweeps and \
                  trials, judges the file's claims, and writes a report.",
    after_help = TOP_HELP,
    arg_required_else_help = true,
    max_term_width = 110
)]
pub(crate) struct CommandLine {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Options of every command.
#[derive(Args, Debug)]
pub(crate) struct Global {
    /// No messages and no progress bar on stderr, only errors
    #[arg(short, long, global = true, help_heading = "Everywhere")]
    pub(crate) quiet: bool,
    /// No colours; so does a non-empty NO_COLOR in the environment
    #[arg(long, global = true, help_heading = "Everywhere")]
    pub(crate) no_color: bool,
}

/// What to do.
#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Run a scenario file: every variant, sweep and trial
    #[command(after_help = RUN_HELP)]
    Run(RunArgs),
    /// Redo the evaluation of a paper and judge it against the published numbers
    #[command(after_help = REPRODUCE_HELP)]
    Reproduce(ReproduceArgs),
    /// Run a scenario file over values of any key
    #[command(after_help = SWEEP_HELP)]
    Sweep(SweepArgs),
    /// Check scenario files without running them
    #[command(after_help = CHECK_HELP)]
    Check(CheckArgs),
    /// Print every key of a scenario, its value, and where the value comes from
    #[command(after_help = EXPLAIN_HELP)]
    Explain(ExplainArgs),
    /// List what scenario files can name
    #[command(after_help = LIST_HELP)]
    List(ListArgs),
    /// Print the JSON Schema of scenario files
    #[command(after_help = SCHEMA_HELP)]
    Schema,
    /// Print a shell's completion script
    #[command(after_help = COMPLETIONS_HELP)]
    Completions(CompletionsArgs),
    /// Print the man page, or write one for each command
    #[command(after_help = MAN_HELP)]
    Man(ManArgs),
}

/// `run`.
#[derive(Args, Debug)]
pub(crate) struct RunArgs {
    /// Scenario file
    #[arg(value_name = "SCENARIO.toml", value_hint = ValueHint::FilePath)]
    pub(crate) scenario: PathBuf,
    #[command(flatten)]
    pub(crate) settings: Settings,
    #[command(flatten)]
    pub(crate) work: WorkArgs,
    #[command(flatten)]
    pub(crate) capture: CaptureArgs,
}

/// `reproduce`.
#[derive(Args, Debug)]
pub(crate) struct ReproduceArgs {
    /// Which paper; without it all, each into a folder of its own
    #[arg(value_name = "NAME", value_parser = reproduce::names())]
    pub(crate) name: Option<String>,
    /// Fewer trials and values, as the scenarios say: a look, not a result
    #[arg(long)]
    pub(crate) quick: bool,
    #[command(flatten)]
    pub(crate) work: WorkArgs,
}

/// `sweep`.
#[derive(Args, Debug)]
pub(crate) struct SweepArgs {
    /// Scenario file
    #[arg(value_name = "SCENARIO.toml", value_hint = ValueHint::FilePath)]
    pub(crate) scenario: PathBuf,
    /// A key and its values; again for another sweep
    #[arg(long = "key", value_name = "KEY=V1,V2,...", required = true)]
    pub(crate) keys: Vec<ExtraSweep>,
    #[command(flatten)]
    pub(crate) settings: Settings,
    #[command(flatten)]
    pub(crate) work: WorkArgs,
    #[command(flatten)]
    pub(crate) capture: CaptureArgs,
}

/// `check`.
#[derive(Args, Debug)]
pub(crate) struct CheckArgs {
    /// Scenario files
    #[arg(value_name = "SCENARIO.toml", required = true, value_hint = ValueHint::FilePath)]
    pub(crate) scenarios: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) settings: Settings,
}

/// `explain`.
#[derive(Args, Debug)]
pub(crate) struct ExplainArgs {
    /// Scenario file
    #[arg(value_name = "SCENARIO.toml", value_hint = ValueHint::FilePath)]
    pub(crate) scenario: PathBuf,
    #[command(flatten)]
    pub(crate) settings: Settings,
    /// JSON instead of a table
    #[arg(long)]
    pub(crate) json: bool,
}

/// `list`.
#[derive(Args, Debug)]
pub(crate) struct ListArgs {
    /// Which list; without it all
    #[arg(value_name = "WHAT")]
    pub(crate) what: Option<Listed>,
    /// JSON with the parameters of each entry instead of a table
    #[arg(long)]
    pub(crate) json: bool,
}

/// What `list` lists.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Listed {
    /// Bandwidth control schemes
    Schemes,
    /// Queue disciplines
    Qdiscs,
    /// TCP congestion controls
    Tcp,
    /// Network builders
    Builders,
    /// Papers that `reproduce` redoes
    Reproductions,
    /// Summary figures of a run, for claims and charts
    Figures,
}

/// `completions`.
#[derive(Args, Debug)]
pub(crate) struct CompletionsArgs {
    /// Shell
    #[arg(value_name = "SHELL")]
    pub(crate) shell: Shell,
}

/// `man`.
#[derive(Args, Debug)]
pub(crate) struct ManArgs {
    /// Write a page for each command into this folder instead of the main page to stdout
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) dir: Option<PathBuf>,
}

/// Changes to what the file says.
#[derive(Args, Debug)]
pub(crate) struct Settings {
    /// Replace the value of a key; dotted path, lists by name or number; may be given again
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) set: Vec<Override>,
    /// Trials of each case, instead of run.trials
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = whole_number::<u32>(1, u32::MAX.into()))]
    pub(crate) trials: Option<u32>,
    /// Seed of every random stream, instead of run.seed
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = whole_number::<u64>(0, i64::MAX as u64))]
    pub(crate) seed: Option<u64>,
    /// run.quick-trials trials and the `quick` values of sweeps: a look, not a result
    #[arg(long)]
    pub(crate) quick: bool,
}

/// How to work and where results go.
#[derive(Args, Clone, Debug)]
pub(crate) struct WorkArgs {
    /// Trials at the same time; does not change results [default: the number of cores]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = whole_number::<u16>(1, 1_024))]
    pub(crate) jobs: Option<u16>,
    /// Folder for the report; must be new or empty [default: results/NAME-001, -002, ...]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, conflicts_with = "no_report")]
    pub(crate) out: Option<PathBuf>,
    /// Replace an earlier report in the --out folder
    #[arg(long, requires = "out")]
    pub(crate) force: bool,
    /// Print summary and claims as JSON on stdout, instead of tables
    #[arg(long)]
    pub(crate) json: bool,
    /// Write no folder, print only
    #[arg(long)]
    pub(crate) no_report: bool,
}

impl WorkArgs {
    /// Number of threads.
    pub(crate) fn threads(&self) -> NonZeroUsize {
        let asked = self.jobs.and_then(|jobs| NonZeroUsize::new(jobs.into()));
        asked.or_else(|| thread::available_parallelism().ok()).unwrap_or(NonZeroUsize::MIN)
    }
}

/// What to capture.
#[derive(Args, Default, Debug)]
pub(crate) struct CaptureArgs {
    /// Write the packets that a port sends in trial 0 of the first case as FROM-TO.pcapng, for Wireshark
    #[arg(long, value_name = "FROM->TO", conflicts_with = "no_report")]
    pub(crate) pcap: Option<String>,
    /// Capture the base case of this variant instead
    #[arg(long, value_name = "VARIANT", requires = "pcap")]
    pub(crate) pcap_case: Option<String>,
}

/// A parser of numbers from `least` to `most`, which `T` can hold.
fn whole_number<T: TryFrom<u64>>(least: u64, most: u64) -> impl Fn(&str) -> Result<T, String> + Clone {
    move |text| {
        let number = text.parse().ok().filter(|number| (least..=most).contains(number));
        let typed = number.and_then(|number| T::try_from(number).ok());
        typed.ok_or_else(|| format!("write a whole number from {least} to {most}"))
    }
}

const TOP_HELP: &str = "\
Examples:
  bandmaster reproduce bas --quick              a paper's evaluation in seconds
  bandmaster run scenarios/examples/dumbbell.toml
  bandmaster explain scenarios/examples/dumbbell.toml
  bandmaster list schemes

stdout carries results, stderr messages.

Exit codes:
  0    done, and every claim holds
  1    done, but a claim does not hold
  2    wrong command line or scenario; nothing was touched
  3    this machine or runtime lacks what the scenario asks for
  4    running, reading or writing failed
  5    some trials failed; the report holds the others
  130  interrupted; the report holds the finished trials";

const RUN_HELP: &str = "\
Examples:
  bandmaster run network.toml
  bandmaster run network.toml --quick --set flows.uploads.count=8 --set run.duration=5s
  bandmaster run network.toml --json --no-report | jq '.claims[] | select(.ok | not)'
  bandmaster run network.toml --pcap 'r1->server' --out results/look

The folder holds report.html, figures/*.svg, series.parquet, summary.json and manifest.json. The
same scenario, seed and version give the same bytes, for any --jobs. While the folder holds a file
INCOMPLETE, something is missing.

Exit codes: 0 every claim holds, 1 a claim fails, 2 usage or scenario, 3 missing capability,
4 failure, 5 some trials failed, 130 interrupted (finished trials are kept).";

const REPRODUCE_HELP: &str = "\
Examples:
  bandmaster reproduce bas --quick
  bandmaster reproduce bas --out results/bas
  bandmaster list reproductions

The scenarios are part of the program; their files are in scenarios/ of the source. Without NAME,
--out gets a folder for each paper, and --json prints a document for each.

Exit codes: 0 every claim holds or is known not to be reproduced, 1 a claim fails, 2 usage,
4 failure, 5 some trials failed, 130 interrupted (finished trials are kept).";

const SWEEP_HELP: &str = "\
Examples:
  bandmaster sweep network.toml --key flows.uploads.count=1,2,4,8,16
  bandmaster sweep network.toml --key 'network.links.0.delay=1ms,uniform(2ms, 6ms)' --quick

Each --key is a sweep of its own beside those of the file, for every variant; keys are changed one
at a time.

Exit codes: 0 every claim holds, 1 a claim fails, 2 usage or scenario, 3 missing capability,
4 failure, 5 some trials failed, 130 interrupted (finished trials are kept).";

const CHECK_HELP: &str = "\
Examples:
  bandmaster check scenarios/*.toml
  bandmaster check network.toml --set schemes.bas.enabled=true

Exit codes: 0 all files are valid, 2 one is not (every error is listed with its line).";

const EXPLAIN_HELP: &str = "\
Examples:
  bandmaster explain network.toml
  bandmaster explain network.toml --json | jq '.[] | select(.origin | startswith(\"default\"))'

Exit codes: 0 valid, 2 not valid.";

const LIST_HELP: &str = "\
Examples:
  bandmaster list
  bandmaster list schemes --json

Exit codes: 0 done, 2 usage.";

const SCHEMA_HELP: &str = "\
Example:
  bandmaster schema > bandmaster.schema.json

Editors check and complete a scenario whose first line is `#:schema bandmaster.schema.json`.

Exit codes: 0 done, 2 usage.";

const COMPLETIONS_HELP: &str = "\
Examples:
  bandmaster completions bash > ~/.local/share/bash-completion/completions/bandmaster
  bandmaster completions fish > ~/.config/fish/completions/bandmaster.fish

Exit codes: 0 done, 2 usage.";

const MAN_HELP: &str = "\
Examples:
  bandmaster man | man -l -
  bandmaster man --dir ~/.local/share/man/man1

Exit codes: 0 done, 4 the folder cannot be written.";

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        CommandLine::command().debug_assert();
    }

    #[test]
    fn every_command_teaches_by_example_and_lists_exit_codes() {
        for command in CommandLine::command().get_subcommands() {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains("Example"), "{} has no example", command.get_name());
            assert!(help.contains("Exit codes"), "{} has no exit codes", command.get_name());
            assert!(help.lines().all(|line| line.len() <= 100), "{} wraps", command.get_name());
        }
    }
}
