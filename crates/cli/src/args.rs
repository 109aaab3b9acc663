//! The command line.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::thread;

use bandmaster_core::scenario::{ExtraSweep, Override};
use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use clap_complete::Shell;

use crate::commands::compare::{Percent, Tolerance};
#[cfg(target_os = "linux")]
use crate::commands::emulate::EmulateArgs;
#[cfg(target_os = "linux")]
use crate::commands::gateway::GatewayArgs;
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
    /// Run a scenario file on real Linux: TCP, UDP and shapers of the kernel between network namespaces
    #[cfg(target_os = "linux")]
    #[command(after_help = EMULATE_HELP)]
    Emulate(EmulateArgs),
    /// Keep the rates of important flows on a real machine
    #[cfg(target_os = "linux")]
    #[command(after_help = GATEWAY_HELP)]
    Gateway(GatewayArgs),
    /// Compare two result folders, figure by figure
    #[command(after_help = COMPARE_HELP)]
    Compare(CompareArgs),
    /// Say what this machine can do, what is missing, and the remedy
    #[command(after_help = DOCTOR_HELP)]
    Doctor(DoctorArgs),
    /// Measure how well this machine emulates links, and whether a scenario asks for more
    #[command(after_help = CALIBRATE_HELP)]
    Calibrate(CalibrateArgs),
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
    /// The network of the paper where the default is a part of it (opentcp: 3,864 hosts)
    #[arg(long, conflicts_with = "quick")]
    pub(crate) full: bool,
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

/// `compare`.
#[derive(Args, Debug)]
pub(crate) struct CompareArgs {
    /// Result folder
    #[arg(value_name = "A", value_hint = ValueHint::DirPath)]
    pub(crate) a: PathBuf,
    /// Result folder that is compared with it
    #[arg(value_name = "B", value_hint = ValueHint::DirPath)]
    pub(crate) b: PathBuf,
    /// Only this figure; may be given again. `shortage` stands for every `NAME.shortage` too
    #[arg(long = "figure", value_name = "FIGURE")]
    pub(crate) figures: Vec<String>,
    /// Most that the means of a figure may differ by, in its unit or in per cent of A; may be given again
    #[arg(long = "tolerance", value_name = "FIGURE=NUMBER[%]")]
    pub(crate) tolerances: Vec<Tolerance>,
    /// Most that the means of all other figures may differ by, in per cent of A
    #[arg(long, value_name = "PERCENT%")]
    pub(crate) within: Option<Percent>,
    /// JSON instead of tables
    #[arg(long)]
    pub(crate) json: bool,
}

/// `doctor`.
#[derive(Args, Debug)]
pub(crate) struct DoctorArgs {
    /// JSON instead of a table
    #[arg(long)]
    pub(crate) json: bool,
}

/// `calibrate`.
#[derive(Args, Debug)]
pub(crate) struct CalibrateArgs {
    /// Say too whether this scenario asks for more than was measured
    #[arg(value_name = "SCENARIO.toml", value_hint = ValueHint::FilePath)]
    pub(crate) scenario: Option<PathBuf>,
    /// JSON instead of a table
    #[arg(long)]
    pub(crate) json: bool,
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
    /// Scenario file; with --state a policy file of OpenTCP
    #[arg(value_name = "SCENARIO.toml", value_hint = ValueHint::FilePath)]
    pub(crate) scenario: PathBuf,
    #[command(flatten)]
    pub(crate) settings: Settings,
    /// Say which rule of the policy fires in this state of the network, and why
    #[arg(long, value_name = "STATE.json", value_hint = ValueHint::FilePath, conflicts_with_all = ["set", "trials", "seed", "quick"])]
    pub(crate) state: Option<PathBuf>,
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
pub(crate) fn whole_number<T: TryFrom<u64>>(
    least: u64,
    most: u64,
) -> impl Fn(&str) -> Result<T, String> + Clone {
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

#[cfg(target_os = "linux")]
const EMULATE_HELP: &str = "\
Examples:
  sudo bandmaster emulate scenarios/examples/htb.toml --quick
  sudo bandmaster emulate scenarios/er2bc/table5-tcp.toml --variant er2bc --trials 1 --out lab
  sudo bandmaster emulate scenarios/bas/fixed.toml --variant conventional --base --set clients=8
  sudo bandmaster emulate scenarios/examples/htb.toml --quick --traffic iperf3
  sudo bandmaster emulate --clean

The same file as for `run`, the same report. Each node is a network namespace bm-RUN-NODE, each
link is forwarded at its rate and delay through the queue discipline of the simulator, or the
kernel's for htb. Trials take their real time, --jobs of them at once. Nothing outside the
namespaces is touched, and they go at the end; after a kill -9, --clean or the next emulation
removes them. Without root a user namespace is used where the system allows it.

Exit codes: 0 every claim holds, 1 a claim fails, 2 usage or scenario, 3 Linux or this machine
cannot do what the scenario asks for, 4 failure, 5 some trials failed, 130 interrupted.";

#[cfg(target_os = "linux")]
const GATEWAY_HELP: &str = "\
Examples:
  bandmaster gateway check /etc/bandmaster/gateway.toml
  bandmaster gateway plan /etc/bandmaster/gateway.toml
  bandmaster gateway run /etc/bandmaster/gateway.toml --dry-run
  bandmaster gateway status --json | jq '.sender.estimate'
  bandmaster gateway restore

docs/gateway.md has every key of the file. A running gateway reads it again on SIGHUP, and keeps
the one before when it is wrong.

Exit codes: 0 done or stopped by SIGTERM, 2 usage or deployment file, 3 the machine lacks something,
4 failure, 130 interrupted.";

const COMPARE_HELP: &str = "\
Examples:
  bandmaster compare results/sim results/emulated
  bandmaster compare results/sim results/emulated --figure throughput --figure shortage
  bandmaster compare before after --tolerance shortage=10 --tolerance throughput=5%
  bandmaster compare before after --within 1% --json | jq '.studies[].cases[].figures[]'

Cases are joined by variant and sweep value. For each figure: both means, B - A with its 95 %
confidence interval (Welch; none for a single trial), and that as a share of A. What only one folder
has is listed. A tolerance judges the difference of the means, not the interval; a figure with a
--tolerance of its own that one folder lacks exceeds it.

Exit codes: 0 no tolerance is exceeded, 1 one is, 2 usage, no result folder, or nothing in common.";

const DOCTOR_HELP: &str = "\
Examples:
  bandmaster doctor
  sudo bandmaster doctor
  bandmaster doctor --json | jq '.items[] | select(.state != \"ok\")'

What the kernel can do is found by trying it in a network namespace that ends with the command; the
machine's own network is not touched. Without root a user namespace is tried, and what could not be
tried is `unknown`. Trying may make the kernel load its module, as the first use does.

Exit codes: 0 all that `emulate` and `gateway` need is there, 2 usage, 3 something is missing or
could not be tried.";

const CALIBRATE_HELP: &str = "\
Examples:
  bandmaster calibrate
  bandmaster calibrate network.toml
  bandmaster calibrate --json | jq .capacity

Joins two network namespaces by one emulated link and measures delay, loss, rate and how many
packets per second the forwarder carries; under 30 s. Each measurement is made three times and the
best counts, since whatever else runs on the machine disturbs: stop builds and other load first.

Exit codes: 0 measured (a missed goal is said, not an error), 2 usage or scenario, 3 the machine
lacks what emulation needs, or the scenario asks for more than was measured, 4 failure.";

const CHECK_HELP: &str = "\
Examples:
  bandmaster check scenarios/*/*.toml
  bandmaster check network.toml --set schemes.bas.enabled=true

Exit codes: 0 all files are valid, 2 one is not (every error is listed with its line).";

const EXPLAIN_HELP: &str = "\
Examples:
  bandmaster explain network.toml
  bandmaster explain network.toml --json | jq '.[] | select(.origin | startswith(\"default\"))'
  bandmaster explain policies/opentcp1.toml --state state.json

docs/schemes/opentcp.md has the form of a state.

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

    #[test]
    fn example_commands_are_what_the_command_line_takes() {
        let mut command = CommandLine::command();
        let helps = command.get_subcommands().map(|sub| sub.get_after_help().cloned());
        let helps: String = helps.flatten().map(|help| help.to_string()).collect();
        let helps = format!("{TOP_HELP}\n{helps}");
        let examples = helps.lines().filter_map(|line| {
            let line = line.strip_prefix("  ")?;
            line.strip_prefix("sudo ").unwrap_or(line).strip_prefix("bandmaster ")
        });
        let mut count = 0;
        for example in examples {
            let ours = example.split("   ").next().unwrap_or_default();
            let words = shlex::split(ours).unwrap_or_else(|| panic!("{example}: not a shell's"));
            let words = words.into_iter().take_while(|word| !["|", ">"].contains(&word.as_str()));
            let words = std::iter::once("bandmaster".to_owned()).chain(words);
            command.try_get_matches_from_mut(words).unwrap_or_else(|why| panic!("{example}: {why}"));
            count += 1;
        }
        assert!(count >= 30, "{count} examples");
    }
}
