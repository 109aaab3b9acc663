//! The binary `bandmaster`.

mod args;
mod commands;
mod console;
mod exit;
mod interrupt;
mod jobs;
mod progress;
mod report;

use std::process::ExitCode;

use clap::{ColorChoice, CommandFactory, FromArgMatches};

use crate::args::{Command, CommandLine};
use crate::console::{Console, complain};

fn main() -> ExitCode {
    let plain = std::env::args_os().any(|arg| arg == "--no-color");
    let colour = if plain { ColorChoice::Never } else { ColorChoice::Auto };
    let matches = CommandLine::command().color(colour).get_matches();
    let CommandLine { global, command } =
        CommandLine::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let console = Console::new(global.quiet, global.no_color);

    let result = match command {
        Command::Run(args) => commands::run::run(&args, console),
        Command::Reproduce(args) => commands::reproduce::reproduce(&args, console),
        Command::Sweep(args) => commands::sweep::sweep(&args, console),
        #[cfg(target_os = "linux")]
        Command::Emulate(args) => commands::emulate::emulate(&args, console),
        #[cfg(target_os = "linux")]
        Command::Gateway(args) => commands::gateway::gateway(&args, console),
        Command::Compare(args) => commands::compare::compare(&args, console),
        Command::Doctor(args) => commands::doctor::doctor(&args, console),
        Command::Calibrate(args) => commands::calibrate::calibrate(&args, console),
        Command::Check(args) => commands::check::check(&args, console),
        Command::Explain(args) => commands::explain::explain(&args, console),
        Command::List(args) => commands::list::list(&args, console),
        Command::Schema => commands::schema::schema(console),
        Command::Completions(args) => commands::completions::completions(&args, console),
        Command::Man(args) => commands::man::man(&args, console),
    };
    let exit = result.unwrap_or_else(|failure| {
        complain(&failure.message);
        failure.exit
    });
    exit.into()
}
