//! Lists what a controller would do. Changes nothing.

use std::fmt;

use bandmaster_core::agent::Scheme;
use bandmaster_core::scheme::opentcp::{self, condition::Condition};
use serde::Serialize;

use super::Loaded;

/// What a controller would do.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Plan {
    /// Why it would not start.
    pub obstacles: Vec<String>,
    /// Hosts that it may set.
    pub hosts: Vec<String>,
    /// What it would set, on which of them and when.
    pub changes: Vec<String>,
    /// Sockets that are opened.
    pub sockets: Vec<String>,
    /// When it is undone.
    pub undo: Vec<String>,
}

/// What a controller with these files would do.
pub fn plan(loaded: &Loaded) -> Plan {
    let deployment = &loaded.deployment;
    let mut obstacles = Vec::new();
    if loaded.hosts.is_empty() {
        obstacles
            .push(format!("error: {} has no hosts: `bandmaster controller enroll`", deployment.hosts_file));
    }
    let changes = match deployment.scheme {
        Scheme::OpenTcp => of_policies(loaded),
        Scheme::Bas => vec![
            match deployment.params.text("allocator").as_str() {
                "bas" => "each host bounds each of its flows to its share by a window, once flows are counted on every link of the domain",
                _ => "each host bounds each of its flows to its share: what it sends by a pace, what it receives by its window",
            }
            .to_owned(),
        ],
    };
    let sockets = [
        Some(format!("udp {} from and to hosts", deployment.listen)),
        deployment.enrolment.map(|address| format!("tcp {address}: enrolment")),
        deployment.metrics.map(|address| format!("tcp {address}: metrics")),
        Some(format!("unix {}/controller.sock: status", deployment.state_directory)),
    ];
    Plan {
        obstacles,
        hosts: loaded.hosts.iter().map(|host| format!("{} {}", host.number, host.name)).collect(),
        changes,
        sockets: sockets.into_iter().flatten().collect(),
        undo: vec![
            "on each host, when a lease ends that the controller does not renew: after `controller halt`, or when it stops or is killed"
                .to_owned(),
            "nothing is changed on this machine".to_owned(),
        ],
    }
}

/// A line for each rule: on how many hosts, when, and what.
fn of_policies(loaded: &Loaded) -> Vec<String> {
    let params = &loaded.deployment.params;
    let policies = opentcp::policies(&params.files("policies")).unwrap_or_default();
    let mut lines = Vec::new();
    for policy in &policies {
        // The policy's halves are of hosts, without routers.
        let agents = loaded.hosts.iter().filter(|host| !loaded.deployment.is_router(host));
        let hosts = (0..).zip(agents).filter(|(at, host)| policy.is_for(&host.name, *at));
        let names: Vec<&str> = hosts.map(|(_, host)| host.name.as_str()).collect();
        let constraints: Vec<&str> = policy.constraints.iter().map(Condition::text).collect();
        for rule in &policy.rules {
            let when: Vec<&str> = constraints.iter().copied().chain([rule.when.text()]).collect();
            lines.push(format!(
                "`{}`, rule `{}`: {} on {} of {} hosts ({}) when {}",
                policy.name,
                rule.name,
                rule.tuning,
                names.len(),
                loaded.hosts.len(),
                some(&names),
                when.join(" && ")
            ));
        }
    }
    lines
}

fn some(names: &[&str]) -> String {
    const SHOWN: usize = 8;
    let more = if names.len() > SHOWN { ", ..." } else { "" };
    format!("{}{more}", names.iter().take(SHOWN).copied().collect::<Vec<_>>().join(", "))
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for obstacle in &self.obstacles {
            writeln!(f, "obstacle  {obstacle}")?;
        }
        for (word, lines) in
            [("host", &self.hosts), ("sets", &self.changes), ("opens", &self.sockets), ("undone", &self.undo)]
        {
            for line in lines {
                writeln!(f, "{word:<9} {line}")?;
            }
        }
        Ok(())
    }
}
