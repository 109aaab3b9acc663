//! `bandmaster agent`.

use std::io::Read;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use bandmaster_linux::agent::{self, Restored};
use bandmaster_linux::daemon::{End, Error, printable};
use clap::{Args, Subcommand, ValueHint};

use super::controller::DEFAULT_PORT;
use crate::args::StatusArgs;
use crate::commands::to_json;
use crate::console::Console;
use crate::exit::{Exit, Failure};
use crate::watch::status::show;

/// Let a controller set the TCP of this host
#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub(crate) struct AgentArgs {
    #[command(subcommand)]
    command: AgentCommand,
}

#[derive(Subcommand, Debug)]
enum AgentCommand {
    /// Check an agent's file and the secret that it names
    Check {
        /// The agent's file
        #[arg(value_name = "AGENT.toml", value_hint = ValueHint::FilePath)]
        file: PathBuf,
    },
    /// Say what this host can do, and what would be changed on it; nothing is touched
    Plan {
        /// The agent's file
        #[arg(value_name = "AGENT.toml", value_hint = ValueHint::FilePath)]
        file: PathBuf,
        /// JSON instead of text
        #[arg(long)]
        json: bool,
    },
    /// Run the agent until SIGTERM or Ctrl-C
    Run {
        /// The agent's file
        #[arg(value_name = "AGENT.toml", value_hint = ValueHint::FilePath)]
        file: PathBuf,
        /// Listen and report, but change nothing: what would be set is logged
        #[arg(long)]
        dry_run: bool,
    },
    /// Enrol this host at a controller, by a token that is read from the standard input
    Enroll {
        /// The agent's file; it is written unless it is there
        #[arg(value_name = "AGENT.toml", value_hint = ValueHint::FilePath)]
        file: PathBuf,
        /// IP address of the controller
        #[arg(value_name = "ADDRESS")]
        controller: IpAddr,
        /// TCP port of the controller's enrolment
        #[arg(long, default_value_t = DEFAULT_PORT, value_parser = clap::value_parser!(u16).range(1..))]
        port: u16,
    },
    /// Take a new secret and certificate from the controller, by the certificate
    Renew {
        /// The agent's file
        #[arg(value_name = "AGENT.toml", value_hint = ValueHint::FilePath)]
        file: PathBuf,
    },
    /// Ask a running agent how it is
    Status {
        #[command(flatten)]
        of: Which,
        #[command(flatten)]
        how: StatusArgs,
    },
    /// Give connections back what they had, after an agent was killed
    Restore {
        #[command(flatten)]
        of: Which,
        /// Forget the journal of a network namespace that is gone
        #[arg(long)]
        force: bool,
    },
}

/// The agent that is asked about.
#[derive(Args, Debug)]
struct Which {
    /// The agent's file, for its state directory
    #[arg(value_name = "AGENT.toml", value_hint = ValueHint::FilePath)]
    file: Option<PathBuf>,
    /// State directory of the agent, instead of a file
    #[arg(
        long,
        value_name = "DIR",
        default_value = agent::STATE_DIRECTORY,
        conflicts_with = "file",
        value_hint = ValueHint::DirPath
    )]
    state_directory: PathBuf,
}

impl Which {
    /// The state directory that the file names, or else the one that is given.
    fn folder(&self) -> Result<PathBuf, Failure> {
        match &self.file {
            Some(file) => Ok(agent::state_directory(file)?),
            None => Ok(self.state_directory.clone()),
        }
    }
}

const HELP: &str = "\
Examples:
  bandmaster agent enroll /etc/bandmaster/agent.toml 192.0.2.10 < token
  bandmaster agent check /etc/bandmaster/agent.toml
  bandmaster agent plan /etc/bandmaster/agent.toml
  bandmaster agent run /etc/bandmaster/agent.toml --dry-run
  bandmaster agent status --json | jq '.\"in-force\"'
  bandmaster agent status --watch
  bandmaster agent restore

docs/agent.md has every key of the file, and what the kernel can do.

Exit codes: 0 done or stopped by SIGTERM, 2 usage or file, 3 the machine lacks something,
4 failure, 130 interrupted.";

/// Does what the second word says.
pub(crate) fn agent(args: &AgentArgs, console: Console) -> Result<Exit, Failure> {
    match &args.command {
        AgentCommand::Check { file } => check(file, console),
        AgentCommand::Plan { file, json } => {
            let plan = agent::plan(&agent::load(file)?);
            console.print(&if *json { to_json(&plan)? } else { printable(plan.to_string().trim_end()) })?;
            Ok(if plan.obstacles.is_empty() { Exit::Success } else { Exit::MissingCapability })
        }
        AgentCommand::Run { file, dry_run } => Ok(match agent::run(file, *dry_run)? {
            End::Stopped => Exit::Success,
            End::Interrupted => Exit::Interrupted,
        }),
        AgentCommand::Enroll { file, controller, port } => {
            enroll(file, SocketAddr::new(*controller, *port), console)
        }
        AgentCommand::Renew { file } => {
            agent::renew(file)?;
            console.print("this host has a new secret and certificate; a running agent goes on with them within a second")?;
            Ok(Exit::Success)
        }
        AgentCommand::Status { of, how } => {
            let folder = of.folder()?;
            show("agent", move || agent::status(&folder), *how, console)
        }
        AgentCommand::Restore { of, force } => restore(&of.folder()?, *force, console),
    }
}

fn check(file: &Path, console: Console) -> Result<Exit, Failure> {
    let loaded = agent::load(file)?;
    let deployment = &loaded.deployment;
    let place = printable(&file.display().to_string());
    let (scheme, number) = (deployment.scheme.def().name, deployment.number);
    console
        .print(&format!("{place}: valid; host {number} of {scheme}, controller {}", deployment.controller))?;
    if let Some((why, lacks)) = agent::lacks(&loaded) {
        console.print(&printable(&format!("settings by routes: {why}")))?;
        for what in lacks {
            console.print(&printable(&format!("cannot have {what}")))?;
        }
    }
    for warning in loaded.warnings() {
        console.say(printable(&format!("warning: {place}: {warning}")));
    }
    Ok(Exit::Success)
}

/// Longer ones are no tokens.
const MOST_TOKEN: u64 = 4096;

fn enroll(file: &Path, controller: SocketAddr, console: Console) -> Result<Exit, Failure> {
    // On the command line others of this machine would see it.
    let mut token = String::new();
    std::io::stdin()
        .take(MOST_TOKEN)
        .read_to_string(&mut token)
        .map_err(|error| Error::Failed(format!("error: token: {error}")))?;
    let (name, folder) = agent::enroll(file, controller, &token)?;
    let (file, folder) = (file.display(), folder.display());
    console.print(&printable(&format!(
        "this host is `{name}`; its file is {file}, its secret and certificate are in {folder}"
    )))?;
    Ok(Exit::Success)
}

fn restore(folder: &Path, force: bool, console: Console) -> Result<Exit, Failure> {
    let text = match agent::restore(folder, force)? {
        Restored::Nothing => "nothing to restore".to_owned(),
        Restored::Gone => "the connections that were set are gone; the journal is forgotten".to_owned(),
        Restored::Done { connections, routes, left_alone } => {
            let connections = match connections {
                0 => "no connection has what was set".to_owned(),
                1 => "1 connection has what it had".to_owned(),
                count => format!("{count} connections have what they had"),
            };
            let routes = match routes {
                0 => None,
                1 => Some("1 route is what it was".to_owned()),
                count => Some(format!("{count} routes are what they were")),
            };
            let left_alone = left_alone.iter().map(|route| format!("left alone: {}", printable(route)));
            [connections].into_iter().chain(routes).chain(left_alone).collect::<Vec<_>>().join("\n")
        }
    };
    console.print(&text)?;
    Ok(Exit::Success)
}
