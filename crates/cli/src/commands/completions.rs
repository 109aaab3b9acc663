//! `bandmaster completions`.

use clap::{Args, Command};
use clap_complete::Shell;

use crate::console::Console;
use crate::exit::{Exit, Failure};

/// Print a shell's completion script
#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub(crate) struct CompletionsArgs {
    /// Shell
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

const HELP: &str = "\
Examples:
  bandmaster completions bash > ~/.local/share/bash-completion/completions/bandmaster
  bandmaster completions fish > ~/.config/fish/completions/bandmaster.fish

Exit codes: 0 done, 2 usage.";

/// Prints a shell's completion script for `program`.
pub(crate) fn completions(
    args: &CompletionsArgs,
    mut program: Command,
    console: Console,
) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut program, "bandmaster", &mut script);
    console.print(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Success)
}
