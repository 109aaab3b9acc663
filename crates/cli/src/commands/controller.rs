//! `bandmaster controller`.

use std::path::{Path, PathBuf};

use bandmaster_linux::controller::{self, Carried};
use bandmaster_linux::daemon::{End, printable};
use clap::{Args, Subcommand, ValueHint};

use super::whatif::{WhatifArgs, whatif};
use crate::args::StatusArgs;
use crate::commands::to_json;
use crate::console::Console;
use crate::exit::{Exit, Failure};
use crate::watch::status::show;

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
    /// Hold what routers see around them against the file: links and prefixes that differ or are missing; nothing is changed
    Discover {
        /// The controller's file
        #[arg(value_name = "CONTROLLER.toml", value_hint = ValueHint::FilePath)]
        file: PathBuf,
        /// JSON instead of text
        #[arg(long)]
        json: bool,
    },
    /// Simulate the recorded hour under the present policies and under others
    Whatif(WhatifArgs),
    /// Ask a running controller how it is
    Status {
        #[command(flatten)]
        of: Which,
        #[command(flatten)]
        how: StatusArgs,
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
    /// Add a host: prints a token, or its secret and the file of its agent
    Enroll {
        /// The controller's file
        #[arg(value_name = "CONTROLLER.toml", value_hint = ValueHint::FilePath)]
        file: PathBuf,
        /// The host's name
        #[arg(value_name = "HOST")]
        name: String,
        /// A secret instead of a token, where hosts enrol by tokens
        #[arg(long)]
        by_hand: bool,
        /// How long the token is valid
        #[arg(long, value_name = "HOURS", default_value_t = 24, value_parser = clap::value_parser!(u32).range(1..=720))]
        hours: u32,
        /// JSON instead of text
        #[arg(long)]
        json: bool,
    },
    /// Refuse a host from now on, until it enrols again
    Revoke {
        /// The controller's file
        #[arg(value_name = "CONTROLLER.toml", value_hint = ValueHint::FilePath)]
        file: PathBuf,
        /// The host's name
        #[arg(value_name = "HOST")]
        name: String,
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

/// The port that `agent enroll` asks by default.
pub(super) const DEFAULT_PORT: u16 = 4742;

const HELP: &str = "\
Examples:
  bandmaster controller enroll /etc/bandmaster/controller.toml web-1
  bandmaster controller check /etc/bandmaster/controller.toml
  bandmaster controller plan /etc/bandmaster/controller.toml
  bandmaster controller run /etc/bandmaster/controller.toml --observe
  bandmaster controller discover /etc/bandmaster/controller.toml
  bandmaster controller whatif /etc/bandmaster/controller.toml --policy new.toml
  bandmaster controller status --json | jq .account
  bandmaster controller status --watch
  bandmaster controller halt
  bandmaster controller revoke /etc/bandmaster/controller.toml web-1

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
        ControllerCommand::Discover { file, json } => {
            let told = controller::discover(file)?;
            console.print(&if *json { to_json(&told)? } else { printable(told.to_string().trim_end()) })?;
            Ok(Exit::Success)
        }
        ControllerCommand::Whatif(args) => whatif(args, console),
        ControllerCommand::Status { of, how } => {
            let folder = of.folder()?;
            show("controller", move || controller::status(&folder), *how, console)
        }
        ControllerCommand::Halt { of } => {
            let folder = of.folder()?;
            let is_new = controller::halt(&folder)?;
            let text = match (controller::status(&folder), is_new) {
                (Err(_), _) => format!("no controller runs with {}; one that starts there will say nothing", folder.display()),
                (Ok(_), true) => "halted: within a second nothing more is sent to hosts; they return to their own settings when their leases end".to_owned(),
                (Ok(_), false) => "it was halted already".to_owned(),
            };
            console.print(&printable(&text))?;
            Ok(Exit::Success)
        }
        ControllerCommand::Resume { of } => {
            let folder = of.folder()?;
            let text = match (controller::resume(&folder)?, controller::status(&folder)) {
                (false, _) => "it was not halted".to_owned(),
                (true, Ok(_)) => "goes on within a second; hosts receive its next decision".to_owned(),
                (true, Err(_)) => {
                    format!("not halted any more; no controller runs with {}", folder.display())
                }
            };
            console.print(&printable(&text))?;
            Ok(Exit::Success)
        }
        ControllerCommand::Enroll { file, name, by_hand, hours, json } => {
            let enrolled = controller::enroll(file, name, *by_hand, hours * 3600)?;
            print_enrolled(&enrolled, *hours, *json, console)
        }
        ControllerCommand::Revoke { file, name } => {
            let is_new = controller::revoke(file, name)?;
            let text = match (is_new, controller::status(&controller::state_directory(file)?)) {
                (false, _) => format!("`{name}` was revoked already"),
                (true, Ok(_)) => format!(
                    "`{name}` is revoked: it is refused within a second, and the settings sent to it end with its lease"
                ),
                (true, Err(_)) => {
                    format!(
                        "`{name}` is revoked; no controller runs with this file, and one that starts refuses it"
                    )
                }
            };
            console.print(&printable(&text))?;
            Ok(Exit::Success)
        }
    }
}

fn check(file: &Path, console: Console) -> Result<Exit, Failure> {
    let loaded = controller::load(file)?;
    let place = printable(&file.display().to_string());
    let (scheme, hosts) = (loaded.deployment.scheme.def().name, loaded.hosts.len());
    console.print(&format!("{place}: valid; {scheme}, {hosts} hosts, at {}", loaded.deployment.listen))?;
    Ok(Exit::Success)
}

fn print_enrolled(
    enrolled: &controller::Enrolled,
    hours: u32,
    as_json: bool,
    console: Console,
) -> Result<Exit, Failure> {
    let controller::Enrolled { host, hosts_file, carried } = enrolled;
    let hosts_file = hosts_file.display().to_string();
    if as_json {
        let mut told =
            serde_json::json!({ "name": host.name, "number": host.number, "hosts-file": hosts_file });
        match carried {
            Carried::Token { token, at } => {
                told["token"] = token.to_string().into();
                told["at"] = at.to_string().into();
            }
            Carried::Secret { agent } => {
                told["secret"] = host.secret.clone().into();
                told["agent"] = agent.clone().into();
            }
        }
        console.print(&format!("{told:#}"))?;
        return Ok(Exit::Success);
    }
    let (place, name) = (printable(&hosts_file), &host.name);
    match carried {
        Carried::Token { token, at } => {
            let (address, port) = (at.ip(), at.port());
            let address = if address.is_unspecified() { "ADDRESS".to_owned() } else { address.to_string() };
            let port = if port == DEFAULT_PORT { String::new() } else { format!(" --port {port}") };
            console.say(format!(
                "{place}: `{name}` is host {}. The token is valid once, for {hours} h, and is not shown again. On {name}:\n  \
                 bandmaster agent enroll /etc/bandmaster/agent.toml {address}{port} < TOKEN",
                host.number
            ));
            console.print(&token.to_string())?;
        }
        Carried::Secret { agent } => {
            console.say(format!(
                "{place}: `{name}` is host {}; the controller knows it once it has read its files again (SIGHUP)",
                host.number
            ));
            console.print(&format!(
                "# /etc/bandmaster/agent.key on {name}, mode 640:\n{}\n\n# /etc/bandmaster/agent.toml on {name}:\n{}",
                host.secret,
                agent.trim_end()
            ))?;
        }
    }
    Ok(Exit::Success)
}
