//! `bandmaster switch`.

use std::path::{Path, PathBuf};

use bandmaster_linux::daemon::{End, printable};
use bandmaster_linux::switch::{self, Restored};
use clap::{Args, Subcommand, ValueHint};

use crate::args::StatusArgs;
use crate::commands::to_json;
use crate::console::Console;
use crate::exit::{Exit, Failure};
use crate::watch::status::show;

/// At a router's ports, keep windows within the buffers (QCBF), share the rate among near and far hosts (BAS), or the queue among flows (FBQM)
#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub(crate) struct SwitchArgs {
    #[command(subcommand)]
    command: SwitchCommand,
}

#[derive(Subcommand, Debug)]
enum SwitchCommand {
    /// Check a switch's file: what the kernel cannot hold is refused by name
    Check {
        /// The switch's file
        #[arg(value_name = "SWITCH.toml", value_hint = ValueHint::FilePath)]
        file: PathBuf,
    },
    /// Say what the ports hold, and what would be changed; nothing is touched
    Plan {
        /// The switch's file
        #[arg(value_name = "SWITCH.toml", value_hint = ValueHint::FilePath)]
        file: PathBuf,
        /// JSON instead of text
        #[arg(long)]
        json: bool,
    },
    /// Run the switch until SIGTERM or Ctrl-C
    Run {
        /// The switch's file
        #[arg(value_name = "SWITCH.toml", value_hint = ValueHint::FilePath)]
        file: PathBuf,
        /// Look and report, but change no window and no queue
        #[arg(long)]
        dry_run: bool,
    },
    /// Ask a running switch how it is
    Status {
        #[command(flatten)]
        of: Which,
        #[command(flatten)]
        how: StatusArgs,
    },
    /// Take away what a switch that was killed has left, and forget its journal
    Restore {
        #[command(flatten)]
        of: Which,
    },
}

/// The switch that is asked about.
#[derive(Args, Debug)]
struct Which {
    /// The switch's file, for its state directory
    #[arg(value_name = "SWITCH.toml", value_hint = ValueHint::FilePath)]
    file: Option<PathBuf>,
    /// State directory of the switch, instead of a file
    #[arg(
        long,
        value_name = "DIR",
        default_value = switch::STATE_DIRECTORY,
        conflicts_with = "file",
        value_hint = ValueHint::DirPath
    )]
    state_directory: PathBuf,
}

impl Which {
    /// The state directory that the file names, or else the one that is given.
    fn folder(&self) -> Result<PathBuf, Failure> {
        match &self.file {
            Some(file) => Ok(switch::state_directory(file)?),
            None => Ok(self.state_directory.clone()),
        }
    }
}

const HELP: &str = "\
Examples:
  bandmaster switch check /etc/bandmaster/switch.toml
  bandmaster switch plan /etc/bandmaster/switch.toml
  bandmaster switch run /etc/bandmaster/switch.toml --dry-run
  bandmaster switch status --json | jq .ports
  bandmaster switch status --watch
  bandmaster switch restore

docs/switch.md has every key of the file, and what happens on faults.

Exit codes: 0 done or stopped by SIGTERM, 2 usage or file, 3 the machine lacks something,
4 failure, 130 interrupted.";

/// Does what the second word says.
pub(crate) fn switch(args: &SwitchArgs, console: Console) -> Result<Exit, Failure> {
    match &args.command {
        SwitchCommand::Check { file } => check(file, console),
        SwitchCommand::Plan { file, json } => {
            let plan = switch::plan(&switch::load(file)?);
            console.print(&if *json { to_json(&plan)? } else { printable(plan.to_string().trim_end()) })?;
            Ok(if plan.obstacles.is_empty() { Exit::Success } else { Exit::MissingCapability })
        }
        SwitchCommand::Run { file, dry_run } => Ok(match switch::run(file, *dry_run)? {
            End::Stopped => Exit::Success,
            End::Interrupted => Exit::Interrupted,
        }),
        SwitchCommand::Status { of, how } => {
            let folder = of.folder()?;
            show("switch", move || switch::status(&folder), *how, console)
        }
        SwitchCommand::Restore { of } => restore(&of.folder()?, console),
    }
}

fn check(file: &Path, console: Console) -> Result<Exit, Failure> {
    let loaded = switch::load(file)?;
    let deployment = &loaded.deployment;
    let place = printable(&file.display().to_string());
    let ports: Vec<&str> = deployment.ports.iter().map(|port| port.interface.as_str()).collect();
    let scheme = deployment.scheme.name();
    console.print(&printable(&format!("{place}: valid; {scheme} at {}", ports.join(", "))))?;
    Ok(Exit::Success)
}

fn restore(folder: &Path, console: Console) -> Result<Exit, Failure> {
    let text = match switch::restore(folder)? {
        Restored::Nothing => "nothing to restore".to_owned(),
        Restored::Undone(what) => what.join("\n"),
        Restored::Done(ports) => {
            format!("the programs at {} ended with their switch; the journal is forgotten", ports.join(", "))
        }
    };
    console.print(&printable(&text))?;
    Ok(Exit::Success)
}
