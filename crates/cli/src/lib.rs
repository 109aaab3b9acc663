//! The program `bandmaster`, and [`embed`], by which other programs run scenarios in their own process.

mod args;
mod commands;
mod console;
pub mod embed;
mod exit;
mod interrupt;
mod jobs;
mod progress;
mod records;
mod report;
mod watch;

use std::process::ExitCode;

use clap::{ColorChoice, CommandFactory, FromArgMatches, Parser, Subcommand};

#[cfg(target_os = "linux")]
use crate::commands::{agent, controller, emulate, gateway, switch};
use crate::commands::{
    calibrate, check, compare, completions, doctor, explain, export, list, man, merge, reproduce, resume,
    run, schema, shard, sweep,
};
use crate::console::{Console, complain};

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
struct CommandLine {
    /// No messages and no progress bar on stderr, only errors
    #[arg(short, long, global = true, help_heading = "Everywhere")]
    quiet: bool,
    /// No colours; so does a non-empty NO_COLOR in the environment
    #[arg(long, global = true, help_heading = "Everywhere")]
    no_color: bool,
    #[command(subcommand)]
    command: Command,
}

/// What to do.
#[derive(Subcommand, Debug)]
enum Command {
    Run(run::RunArgs),
    Reproduce(reproduce::ReproduceArgs),
    Sweep(sweep::SweepArgs),
    Resume(resume::ResumeArgs),
    Shard(shard::ShardArgs),
    Merge(merge::MergeArgs),
    #[cfg(target_os = "linux")]
    Emulate(emulate::EmulateArgs),
    #[cfg(target_os = "linux")]
    Gateway(gateway::GatewayArgs),
    #[cfg(target_os = "linux")]
    Agent(agent::AgentArgs),
    #[cfg(target_os = "linux")]
    Controller(controller::ControllerArgs),
    #[cfg(target_os = "linux")]
    Switch(switch::SwitchArgs),
    Compare(compare::CompareArgs),
    Export(export::ExportArgs),
    Doctor(doctor::DoctorArgs),
    Calibrate(calibrate::CalibrateArgs),
    Check(check::CheckArgs),
    Explain(explain::ExplainArgs),
    List(list::ListArgs),
    /// Print the JSON Schema of scenario files
    #[command(after_help = schema::HELP)]
    Schema,
    Completions(completions::CompletionsArgs),
    Man(man::ManArgs),
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

/// Does what the command line says.
pub fn main() -> ExitCode {
    let plain = std::env::args_os().any(|arg| arg == "--no-color");
    let colour = if plain { ColorChoice::Never } else { ColorChoice::Auto };
    let matches = CommandLine::command().color(colour).get_matches();
    let CommandLine { quiet, no_color, command } =
        CommandLine::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let console = Console::new(quiet, no_color);

    let result = match command {
        Command::Run(args) => run::run(&args, console),
        Command::Reproduce(args) => reproduce::reproduce(&args, console),
        Command::Sweep(args) => sweep::sweep(&args, console),
        Command::Resume(args) => resume::resume(&args, console),
        Command::Shard(args) => shard::shard(&args, console),
        Command::Merge(args) => merge::merge(&args, console),
        #[cfg(target_os = "linux")]
        Command::Emulate(args) => emulate::emulate(&args, console),
        #[cfg(target_os = "linux")]
        Command::Gateway(args) => gateway::gateway(&args, console),
        #[cfg(target_os = "linux")]
        Command::Agent(args) => agent::agent(&args, console),
        #[cfg(target_os = "linux")]
        Command::Controller(args) => controller::controller(&args, console),
        #[cfg(target_os = "linux")]
        Command::Switch(args) => switch::switch(&args, console),
        Command::Compare(args) => compare::compare(&args, console),
        Command::Export(args) => export::export(&args, console),
        Command::Doctor(args) => doctor::doctor(&args, console),
        Command::Calibrate(args) => calibrate::calibrate(&args, console),
        Command::Check(args) => check::check(&args, console),
        Command::Explain(args) => explain::explain(&args, console),
        Command::List(args) => list::list(&args, console),
        Command::Schema => schema::schema(console),
        Command::Completions(args) => completions::completions(&args, CommandLine::command(), console),
        Command::Man(args) => man::man(&args, CommandLine::command(), console),
    };
    let exit = result.unwrap_or_else(|failure| {
        complain(&failure.message);
        failure.exit
    });
    exit.into()
}

#[cfg(test)]
mod tests {
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
            let words = words.into_iter().take_while(|word| !["|", "<", ">"].contains(&word.as_str()));
            let words = std::iter::once("bandmaster".to_owned()).chain(words);
            command.try_get_matches_from_mut(words).unwrap_or_else(|why| panic!("{example}: {why}"));
            count += 1;
        }
        assert!(count >= 30, "{count} examples");
    }
}
