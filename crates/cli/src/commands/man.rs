//! `bandmaster man`.

use std::fs;

use clap::CommandFactory;
use clap_mangen::Man;

use crate::args::{CommandLine, ManArgs};
use crate::console::Console;
use crate::exit::{Exit, Failure};

/// Prints the main man page, or writes the page of each command.
pub(crate) fn man(args: &ManArgs, console: Console) -> Result<Exit, Failure> {
    let command = CommandLine::command();
    match &args.dir {
        None => {
            let mut page = Vec::new();
            Man::new(command).render(&mut page).map_err(|e| Failure::run(format!("man page: {e}")))?;
            console.print(&String::from_utf8_lossy(&page))?;
        }
        Some(dir) => {
            let unwritable = |e| Failure::run(format!("{}: cannot write man pages: {e}", dir.display()));
            fs::create_dir_all(dir).map_err(unwritable)?;
            clap_mangen::generate_to(command, dir).map_err(unwritable)?;
            console.say(format!("man pages are in {}", dir.display()));
        }
    }
    Ok(Exit::Success)
}
