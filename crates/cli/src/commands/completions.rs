//! `bandmaster completions`.

use clap::CommandFactory;

use crate::args::{CommandLine, CompletionsArgs};
use crate::console::Console;
use crate::exit::{Exit, Failure};

/// Prints a shell's completion script.
pub(crate) fn completions(args: &CompletionsArgs, console: Console) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut CommandLine::command(), "bandmaster", &mut script);
    console.print(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Success)
}
