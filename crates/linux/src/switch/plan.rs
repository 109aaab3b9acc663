//! What a switch would change on this machine; nothing is touched.

use std::fmt;
use std::fs;
use std::path::Path;

use bandmaster_core::switch::{Deployment, Scheme};
use serde::Serialize;

use super::Loaded;
use super::lacking;
use super::queue::queues;
use crate::kernel::windows::Windows;

/// `ARPHRD_ETHER`.
const ETHERNET: &str = "1";

/// What a switch would change.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Plan {
    /// Why it would not start.
    pub obstacles: Vec<String>,
    /// What the ports hold.
    pub ports: Vec<String>,
    /// What is changed.
    pub changes: Vec<String>,
    /// Sockets that are opened.
    pub sockets: Vec<String>,
    /// When it is undone.
    pub undo: Vec<String>,
}

/// Numbers of the devices, as far as the ports of a file are fit.
///
/// # Errors
/// Why the first is not.
pub(super) fn devices(loaded: &Loaded) -> Result<Vec<u32>, String> {
    let deployment = &loaded.deployment;
    let device = |interface: &str| {
        let index = nix::net::if_::if_nametoindex(interface)
            .map_err(|_| format!("interface {interface}: no such device"))?;
        let kind = fs::read_to_string(format!("/sys/class/net/{interface}/type")).unwrap_or_default();
        // Without /sys of this network namespace nobody can tell.
        match kind.trim() {
            ETHERNET | "" => Ok(index),
            _ => Err(format!(
                "interface {interface}: is no Ethernet device; windows are lowered at those only"
            )),
        }
    };
    let devices: Vec<u32> =
        deployment.ports.iter().map(|port| device(&port.interface)).collect::<Result<_, _>>()?;
    if deployment.scheme == Scheme::Bas {
        return Ok(devices);
    }
    let buffer = deployment.params.bytes("buffer").get();
    for (port, queue) in deployment.ports.iter().zip(queues(&devices)?) {
        if let Some(why) = queue.lacks(&port.interface, buffer) {
            return Err(why);
        }
    }
    Ok(devices)
}

/// What a switch with this file would change on this machine.
pub fn plan(loaded: &Loaded) -> Plan {
    let deployment = &loaded.deployment;
    if deployment.scheme == Scheme::Fbqm {
        return super::fbqm::plan(loaded);
    }
    let is_bas = deployment.scheme == Scheme::Bas;
    let mut obstacles = Vec::new();
    if let Err(why) = if is_bas { Windows::load_timed() } else { Windows::load() } {
        obstacles.push(lacking(&why).to_string());
    }
    obstacles.extend(devices(loaded).err().map(|why| format!("error: {why}")));
    if super::status(Path::new(&deployment.state_directory)).is_ok() {
        obstacles.push(format!("error: a switch runs with {}", deployment.state_directory));
    }
    let ports = deployment.ports.iter().map(|port| {
        if is_bas {
            return format!(
                "{} {}: shared among the connections whose data depart by it; each window is a share times its round-trip time",
                port.interface, port.rate
            );
        }
        let turn = deployment.params.integer("turn") as u64;
        let whole = deployment.terms(port).whole();
        let segments = whole / bandmaster_core::switch::FRAME;
        format!(
            "{} {}: windows add up to {whole} B, {} flows of {turn} segments or {segments} of one",
            port.interface,
            port.rate,
            segments / turn
        )
    });
    let interfaces: Vec<&str> = deployment.ports.iter().map(|port| port.interface.as_str()).collect();
    Plan {
        obstacles,
        ports: ports.collect(),
        changes: vec![
            format!(
                "two programs (eBPF, tcx) at {}: one reads handshakes and what departs, one lowers the receive window of \
                 acknowledgements that arrive",
                interfaces.join(", ")
            ),
            "no queue discipline, parameter, route or interface is changed; other programs at the ports stay".to_owned(),
        ],
        sockets: sockets(deployment),
        undo: vec![
            "the programs end with the switch, also when it is killed; windows open with the next acknowledgement".to_owned(),
            "while the switch lives and is silent for half a second, windows pass as they are".to_owned(),
        ],
    }
}

/// Sockets that are opened.
pub(super) fn sockets(deployment: &Deployment) -> Vec<String> {
    let metrics = deployment.metrics.map(|address| format!("tcp {address}: metrics"));
    let status = format!("unix {}/switch.sock: status", deployment.state_directory);
    metrics.into_iter().chain([status]).collect()
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { obstacles, ports, changes, sockets, undo } = self;
        let all = [
            ("obstacle", obstacles),
            ("port", ports),
            ("changes", changes),
            ("opens", sockets),
            ("undone", undo),
        ];
        for (word, lines) in all {
            for line in lines {
                writeln!(f, "{word:<10} {line}")?;
            }
        }
        Ok(())
    }
}
