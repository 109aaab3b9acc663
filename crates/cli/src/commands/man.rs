//! `bandmaster man`.

use std::fs;
use std::path::PathBuf;

use clap::{Args, Command, ValueHint};
use clap_mangen::Man;

use crate::console::Console;
use crate::exit::{Exit, Failure};

/// Print the man page, or write one for each command
#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub(crate) struct ManArgs {
    /// Write a page for each command into this folder instead of the main page to stdout
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    dir: Option<PathBuf>,
}

const HELP: &str = "\
Examples:
  bandmaster man | man -l -
  bandmaster man --dir ~/.local/share/man/man1

Exit codes: 0 done, 4 the folder cannot be written.";

/// Prints the main man page of `program`, or writes every command's page.
pub(crate) fn man(args: &ManArgs, program: Command, console: Console) -> Result<Exit, Failure> {
    match &args.dir {
        None => {
            let mut page = Vec::new();
            Man::new(program).render(&mut page).map_err(|e| Failure::run(format!("man page: {e}")))?;
            console.print(&String::from_utf8_lossy(&page))?;
        }
        Some(dir) => {
            let unwritable = |e| Failure::run(format!("{}: cannot write man pages: {e}", dir.display()));
            fs::create_dir_all(dir).map_err(unwritable)?;
            clap_mangen::generate_to(program, dir).map_err(unwritable)?;
            console.say(format!("man pages are in {}", dir.display()));
        }
    }
    Ok(Exit::Success)
}
