//! `bandmaster controller`.

use std::path::{Path, PathBuf};

use bandmaster_linux::controller;
use bandmaster_linux::daemon::{End, printable};
use clap::{Args, Subcommand, ValueHint};

use super::whatif::{WhatifArgs, whatif};
use crate::commands::to_json;
use crate::console::Console;
use crate::exit::{Exit, Failure};

/// Decide what the agents of a network's hosts do
#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub(crate) struct ControllerArgs {
    #[command(subcommand)]
    command: ControllerCommand,
}

#[derive(Subcommand, Debug)]
enum ControllerCommand {
    /// Check a controller's file, its policies, its hosts and their secrets
    Check {
        /// The controller's file
        #[arg(value_name = "CONTROLLER.toml", value_hint = ValueHint::FilePath)]
        file: PathBuf,
    },
    /// Say what would be set on which host, and when; nothing is touched
    Plan {
        /// The controller's file
        #[arg(value_name = "CONTROLLER.toml", value_hint = ValueHint::FilePath)]
        file: PathBuf,
        /// JSON instead of text
        #[arg(long)]
        json: bool,
    },
    /// Run the controller until SIGTERM or Ctrl-C; SIGHUP reads its files again
    Run {
        /// The controller's file
        #[arg(value_name = "CONTROLLER.toml", value_hint = ValueHint::FilePath)]
        file: PathBuf,
        /// Decide and log, but tell hosts nothing
        #[arg(long)]
        observe: bool,
    },
    /// Simulate the recorded hour under the present policies and under others
    Whatif(WhatifArgs),
    /// Ask a running controller how it is
    Status {
        #[command(flatten)]
        of: Which,
        /// JSON instead of text
        #[arg(long)]
        json: bool,
    },
    /// Emergency stop: say nothing more, so that every lease ends
    Halt {
        #[command(flatten)]
        of: Which,
    },
    /// Go on after an emergency stop
    Resume {
        #[command(flatten)]
        of: Which,
    },
    /// Add a host: prints the secret and the file of its agent
    Enroll {
        /// The controller's file
        #[arg(value_name = "CONTROLLER.toml", value_hint = ValueHint::FilePath)]
        file: PathBuf,
        /// The host's name
        #[arg(value_name = "HOST")]
        name: String,
        /// JSON instead of text
        #[arg(long)]
        json: bool,
    },
}

/// The controller that is meant.
#[derive(Args, Debug)]
struct Which {
    /// The controller's file, for its state directory
    #[arg(value_name = "CONTROLLER.toml", value_hint = ValueHint::FilePath)]
    file: Option<PathBuf>,
    /// State directory of the controller, instead of a file
    #[arg(
        long,
        value_name = "DIR",
        default_value = controller::STATE_DIRECTORY,
        conflicts_with = "file",
        value_hint = ValueHint::DirPath
    )]
    state_directory: PathBuf,
}

impl Which {
    /// The state directory that the file names, or else the one that is given.
    fn folder(&self) -> Result<PathBuf, Failure> {
        match &self.file {
            Some(file) => Ok(controller::state_directory(file)?),
            None => Ok(self.state_directory.clone()),
        }
    }
}

const HELP: &str = "\
Examples:
  bandmaster controller enroll /etc/bandmaster/controller.toml web-1
  bandmaster controller check /etc/bandmaster/controller.toml
  bandmaster controller plan /etc/bandmaster/controller.toml
  bandmaster controller run /etc/bandmaster/controller.toml --observe
  bandmaster controller whatif /etc/bandmaster/controller.toml --policy new.toml
  bandmaster controller status --json | jq .account
  bandmaster controller halt

docs/controller.md has every key of the file, and a first policy in ten minutes.

Exit codes: 0 done or stopped by SIGTERM, 2 usage or file, 3 the machine lacks something,
4 failure, 130 interrupted.";

/// Does what the second word says.
pub(crate) fn controller(args: &ControllerArgs, console: Console) -> Result<Exit, Failure> {
    match &args.command {
        ControllerCommand::Check { file } => check(file, console),
        ControllerCommand::Plan { file, json } => {
            let plan = controller::plan(&controller::load(file)?);
            console.print(&if *json { to_json(&plan)? } else { printable(plan.to_string().trim_end()) })?;
            Ok(if plan.obstacles.is_empty() { Exit::Success } else { Exit::MissingCapability })
        }
        ControllerCommand::Run { file, observe } => Ok(match controller::run(file, *observe)? {
            End::Stopped => Exit::Success,
            End::Interrupted => Exit::Interrupted,
        }),
        ControllerCommand::Whatif(args) => whatif(args, console),
        ControllerCommand::Status { of, json } => {
            let status = controller::status(&of.folder()?)?;
            console.print(&if *json { to_json(&status)? } else { printable(&status.to_string()) })?;
            Ok(Exit::Success)
        }
        ControllerCommand::Halt { of } => {
            let folder = of.folder()?;
            let is_new = controller::halt(&folder)?;
            let text = match (controller::status(&folder), is_new) {
                (Err(_), _) => format!("no controller runs with {}; one that starts there will say nothing", folder.display()),
                (Ok(_), true) => "halted: hosts are told nothing within a second, and have their own settings when their leases have ended".to_owned(),
                (Ok(_), false) => "it was halted already".to_owned(),
            };
            console.print(&printable(&text))?;
            Ok(Exit::Success)
        }
        ControllerCommand::Resume { of } => {
            let folder = of.folder()?;
            let text = match (controller::resume(&folder)?, controller::status(&folder)) {
                (false, _) => "it was not halted".to_owned(),
                (true, Ok(_)) => "goes on within a second; hosts are told with its next decision".to_owned(),
                (true, Err(_)) => {
                    format!("not halted any more; no controller runs with {}", folder.display())
                }
            };
            console.print(&printable(&text))?;
            Ok(Exit::Success)
        }
        ControllerCommand::Enroll { file, name, json } => enroll(file, name, *json, console),
    }
}

fn check(file: &Path, console: Console) -> Result<Exit, Failure> {
    let loaded = controller::load(file)?;
    let place = printable(&file.display().to_string());
    let (scheme, hosts) = (loaded.deployment.scheme.def().name, loaded.hosts.len());
    console.print(&format!("{place}: valid; {scheme}, {hosts} hosts, at {}", loaded.deployment.listen))?;
    Ok(Exit::Success)
}

fn enroll(file: &Path, name: &str, as_json: bool, console: Console) -> Result<Exit, Failure> {
    let controller::Enrolled { host, hosts_file, agent } = controller::enroll(file, name)?;
    let hosts_file = hosts_file.display().to_string();
    if as_json {
        let told = serde_json::json!({
            "name": host.name,
            "number": host.number,
            "secret": host.secret,
            "hosts-file": hosts_file,
            "agent": agent,
        });
        console.print(&format!("{told:#}"))?;
        return Ok(Exit::Success);
    }
    console.say(format!(
        "{}: `{name}` is host {}; the controller knows it once it has read its files again (SIGHUP)",
        printable(&hosts_file),
        host.number
    ));
    console.print(&format!(
        "# /etc/bandmaster/agent.key on {name}, mode 640:\n{}\n\n# /etc/bandmaster/agent.toml on {name}:\n{}",
        host.secret,
        agent.trim_end()
    ))?;
    Ok(Exit::Success)
}
