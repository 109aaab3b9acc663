//! Lists what this host can do, and what an agent would change on it. Changes nothing.

use std::fmt;
use std::path::Path;

use bandmaster_core::agent::{Deployment, PortSource, Site};
use serde::Serialize;

use super::journal::NO_CAP;
use super::ports::Ports;
use super::routes::LACKS;
use super::{Loaded, Means, control_group, means};
use crate::kernel::tcp::{FEWEST_TICKS, HIGHEST_LEAST_TIMEOUT, tick};
use crate::netns::parameter;

/// Settings that a host's TCP accepts.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Capabilities {
    /// Congestion controls.
    pub variants: Vec<String>,
    /// Granularity of timers: other times are rounded up.
    pub tick: String,
    /// The shortest least retransmission timeout.
    pub min_rto_from: String,
    /// The longest.
    pub min_rto_to: String,
    /// What a controller may ask for and is not done.
    pub not_done: Vec<String>,
}

/// What an agent would change.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Plan {
    /// Why it would not start.
    pub obstacles: Vec<String>,
    /// What this host can do.
    pub capabilities: Capabilities,
    /// Settings are made by routes, since the kernel takes no program: why.
    pub by_routes: Option<String>,
    /// Control group of the programs whose connections are set.
    pub control_group: Option<String>,
    /// What is changed.
    pub changes: Vec<String>,
    /// Sockets that are opened.
    pub sockets: Vec<String>,
    /// When it is undone.
    pub undo: Vec<String>,
}

impl Capabilities {
    /// Of this machine.
    fn here() -> Self {
        let known = parameter("net.ipv4.tcp_available_congestion_control").unwrap_or_default();
        let tick = tick();
        Self {
            variants: known.split_whitespace().map(str::to_owned).collect(),
            tick: tick.to_string(),
            min_rto_from: (tick * FEWEST_TICKS).to_string(),
            min_rto_to: HIGHEST_LEAST_TIMEOUT.to_string(),
            not_done: vec![
                "idle-restart: Linux has it for the whole host; the agent leaves it alone".to_owned(),
                "pacing off: a pacing that programs or queue disciplines ask for stays".to_owned(),
            ],
        }
    }
}

/// What an agent with this file would change on this machine.
pub fn plan(loaded: &Loaded) -> Plan {
    let deployment = &loaded.deployment;
    let mut obstacles = Vec::new();
    if deployment.site == Site::Router {
        return of_router(loaded);
    }
    let by_routes = match means(deployment) {
        Ok(Means::Programs(_)) => None,
        Ok(Means::Routes(why)) => Some(why),
        Err(error) => {
            obstacles.push(error.to_string());
            None
        }
    };
    let group = control_group(deployment);
    match &group {
        _ if by_routes.is_some() => {}
        Err(why) => obstacles.push(format!("error: {why}")),
        Ok(folder) if !folder.join("cgroup.controllers").exists() => {
            obstacles.push(format!("error: control-group {}: no control group (cgroup2)", folder.display()));
        }
        Ok(_) => {}
    }
    if super::status(Path::new(&deployment.state_directory)).is_ok() {
        obstacles.push(format!("error: an agent runs with {}", deployment.state_directory));
    }
    if by_routes.is_some() {
        return of_routes(deployment, obstacles, by_routes);
    }
    Plan {
        obstacles,
        by_routes,
        capabilities: Capabilities::here(),
        control_group: group.ok().map(|folder| folder.display().to_string()),
        changes: vec![
            "a program (eBPF, sock_ops) at the control group sets connections that begin in this network namespace, as the \
             controller says, and listening sockets"
                .to_owned(),
            "a program (eBPF, iter/tcp) reads live connections once a second, and gives them back what they had".to_owned(),
            "no parameter, route, interface or queue discipline is changed".to_owned(),
        ],
        sockets: sockets(deployment),
        undo: vec![
            "when a lease ends that the controller does not renew, and when the agent stops: connections get back what they had"
                .to_owned(),
            "when the agent is killed: new connections have the host's own settings at once; live ones get theirs back at the \
             next start, or by `agent restore`"
                .to_owned(),
            format!("a cap on the congestion window is given back as {NO_CAP} segments; an initial window is spent, and a pace stays on with its limit gone"),
        ],
    }
}

/// Where the kernel takes no program.
fn of_routes(deployment: &Deployment, obstacles: Vec<String>, by_routes: Option<String>) -> Plan {
    let mut capabilities = Capabilities::here();
    capabilities.not_done.extend(LACKS.map(str::to_owned));
    Plan {
        obstacles,
        by_routes,
        capabilities,
        control_group: None,
        changes: vec![
            "IPv4 routes of the main table of this network namespace get the metrics initcwnd, rto_min (locked) and congctl, as the \
             controller says; routes that come later too"
                .to_owned(),
            "live connections are read once a second, as `ss` reads them".to_owned(),
            "no parameter, interface or queue discipline is changed".to_owned(),
        ],
        sockets: sockets(deployment),
        undo: vec![
            "when a lease ends that the controller does not renew, and when the agent stops: routes are what they were; one that \
             somebody has changed since is left alone"
                .to_owned(),
            "when the agent is killed: at the next start, or by `agent restore`".to_owned(),
        ],
    }
}

/// A router's agent looks, and changes nothing.
fn of_router(loaded: &Loaded) -> Plan {
    let deployment = &loaded.deployment;
    let checked = Ports::new(loaded)
        .map_err(|error| error.to_string())
        .and_then(|mut ports| ports.check().map_err(|why| format!("error: {why}")));
    let mut obstacles: Vec<String> = checked.err().into_iter().collect();
    if super::status(Path::new(&deployment.state_directory)).is_ok() {
        obstacles.push(format!("error: an agent runs with {}", deployment.state_directory));
    }
    let counts_here = deployment.counts_flows && deployment.source == PortSource::Kernel;
    Plan {
        obstacles,
        by_routes: None,
        capabilities: Capabilities::here(),
        control_group: None,
        changes: vec![match counts_here {
            true => "a program (eBPF, tcx) at each port counts the flows that it sends; counters of ports and queues are read and reported",
            false => "nothing: counters of ports are read and reported",
        }.to_owned()],
        sockets: sockets(deployment),
        undo: if counts_here { vec!["the programs end with the agent, also when it is killed".to_owned()] } else { Vec::new() },
    }
}

fn sockets(deployment: &Deployment) -> Vec<String> {
    let exported = match &deployment.source {
        PortSource::Sflow { address, listen } => {
            Some(format!("udp {listen} from the switch {address}: sFlow"))
        }
        _ => None,
    };
    let sockets = [
        exported,
        Some(format!("udp {} from and to the controller {}", deployment.listen, deployment.controller)),
        deployment.metrics.map(|address| format!("tcp {address}: metrics")),
        Some(format!("unix {}/agent.sock: status", deployment.state_directory)),
    ];
    sockets.into_iter().flatten().collect()
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Capabilities { variants, tick, min_rto_from, min_rto_to, not_done } = &self.capabilities;
        for obstacle in &self.obstacles {
            writeln!(f, "obstacle       {obstacle}")?;
        }
        if let Some(why) = &self.by_routes {
            writeln!(f, "by routes      {why}")?;
        }
        writeln!(f, "variants       {}", variants.join(" "))?;
        writeln!(f, "min-rto        {min_rto_from} to {min_rto_to}, in ticks of {tick}")?;
        for what in not_done {
            writeln!(f, "not done       {what}")?;
        }
        if let Some(group) = &self.control_group {
            writeln!(f, "control group  {group}")?;
        }
        for (word, lines) in [("changes", &self.changes), ("opens", &self.sockets), ("undone", &self.undo)] {
            for line in lines {
                writeln!(f, "{word:<14} {line}")?;
            }
        }
        Ok(())
    }
}
