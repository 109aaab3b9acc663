//! `bandmaster gateway`.

use std::path::{Path, PathBuf};

use bandmaster_core::scheme::er2bc::deployment::Role;
use bandmaster_linux::daemon::{End, printable};
use bandmaster_linux::gateway::{self, Restored};
use clap::{Args, Subcommand, ValueHint};

use crate::args::StatusArgs;
use crate::commands::to_json;
use crate::console::Console;
use crate::exit::{Exit, Failure};
use crate::watch::status::show;

/// Keep the rates of important flows on a real machine
#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub(crate) struct GatewayArgs {
    #[command(subcommand)]
    command: GatewayCommand,
}

#[derive(Subcommand, Debug)]
enum GatewayCommand {
    /// Check a deployment file and the secrets that it names
    Check {
        /// Deployment file
        #[arg(value_name = "GATEWAY.toml", value_hint = ValueHint::FilePath)]
        file: PathBuf,
    },
    /// Say what would be changed on this machine; nothing is touched
    Plan {
        /// Deployment file
        #[arg(value_name = "GATEWAY.toml", value_hint = ValueHint::FilePath)]
        file: PathBuf,
        /// JSON instead of text
        #[arg(long)]
        json: bool,
    },
    /// Run the gateway until SIGTERM or Ctrl-C; SIGHUP reads the file again
    Run {
        /// Deployment file
        #[arg(value_name = "GATEWAY.toml", value_hint = ValueHint::FilePath)]
        file: PathBuf,
        /// Ask, answer and estimate, but change nothing: the rates are logged
        #[arg(long)]
        dry_run: bool,
    },
    /// Ask a running gateway how it is
    Status {
        #[command(flatten)]
        of: Which,
        #[command(flatten)]
        how: StatusArgs,
    },
    /// Give the machine back what it had, after a gateway was killed or left its changes
    Restore {
        #[command(flatten)]
        of: Which,
        /// Forget the journal of an interface or a network namespace that is gone
        #[arg(long)]
        force: bool,
    },
}

/// The gateway that is asked about.
#[derive(Args, Debug)]
struct Which {
    /// Deployment file, for its state directory
    #[arg(value_name = "GATEWAY.toml", value_hint = ValueHint::FilePath)]
    file: Option<PathBuf>,
    /// State directory of the gateway, instead of a file
    #[arg(
        long,
        value_name = "DIR",
        default_value = gateway::STATE_DIRECTORY,
        conflicts_with = "file",
        value_hint = ValueHint::DirPath
    )]
    state_directory: PathBuf,
}

impl Which {
    /// The state directory that the file names, or else the one that is given.
    fn folder(&self) -> Result<PathBuf, Failure> {
        match &self.file {
            Some(file) => Ok(gateway::state_directory(file)?),
            None => Ok(self.state_directory.clone()),
        }
    }
}

const HELP: &str = "\
Examples:
  bandmaster gateway check /etc/bandmaster/gateway.toml
  bandmaster gateway plan /etc/bandmaster/gateway.toml
  bandmaster gateway run /etc/bandmaster/gateway.toml --dry-run
  bandmaster gateway status --json | jq '.sender.estimate'
  bandmaster gateway status /etc/bandmaster/site-a.toml
  bandmaster gateway status --watch
  bandmaster gateway restore

docs/gateway.md has every key of the file. A running gateway reads it again on SIGHUP, and keeps
the one before when it is wrong.

Exit codes: 0 done or stopped by SIGTERM, 2 usage or deployment file, 3 the machine lacks something,
4 failure, 130 interrupted.";

/// Does what the second word says.
pub(crate) fn gateway(args: &GatewayArgs, console: Console) -> Result<Exit, Failure> {
    match &args.command {
        GatewayCommand::Check { file } => check(file, console),
        GatewayCommand::Plan { file, json } => {
            let plan = gateway::plan(&gateway::load(file)?)?;
            console.print(&if *json { to_json(&plan)? } else { printable(&plan.to_string()) })?;
            Ok(if plan.obstacles.is_empty() { Exit::Success } else { Exit::MissingCapability })
        }
        GatewayCommand::Run { file, dry_run } => Ok(match gateway::run(file, *dry_run)? {
            End::Stopped => Exit::Success,
            End::Interrupted => Exit::Interrupted,
        }),
        GatewayCommand::Status { of, how } => {
            let folder = of.folder()?;
            show("gateway", move || gateway::status(&folder), *how, console)
        }
        GatewayCommand::Restore { of, force } => restore(&of.folder()?, *force, console),
    }
}

fn check(file: &Path, console: Console) -> Result<Exit, Failure> {
    let loaded = gateway::load(file)?;
    let deployment = &loaded.deployment;
    let classes = deployment.sender.as_ref().map_or(0, |sender| sender.classes.len());
    let with = if classes == 1 { "1 class".to_owned() } else { format!("{classes} classes") };
    let role = match deployment.role {
        Role::Receiver => "receiver".to_owned(),
        Role::Sender => format!("sender with {with}"),
        Role::Both => format!("sender with {with} and receiver"),
    };
    let place = printable(&file.display().to_string());
    console.print(&format!(
        "{place}: valid; {role} at {}, peer {}",
        deployment.interface,
        deployment.peer_name()
    ))?;
    gateway::fit(&loaded)?;
    console.print(&format!("counts by {}", gateway::counting(&loaded)))?;
    Ok(Exit::Success)
}

fn restore(folder: &Path, force: bool, console: Console) -> Result<Exit, Failure> {
    let text = match gateway::restore(folder, force)? {
        Restored::Nothing => "nothing to restore".to_owned(),
        Restored::Done(done) if done.is_empty() => "nothing was changed".to_owned(),
        Restored::Done(done) => done.join("\n"),
    };
    console.print(&printable(&text))?;
    Ok(Exit::Success)
}
