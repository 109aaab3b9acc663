//! The agent of a host: takes the part that a scheme has at hosts, on the TCP of this one.
//!
//! The deciding is done by the very role of the simulator; what is here is its [`Host`](bandmaster_core::runtime::Host).
//! [`load`] reads an agent's file, [`plan`] says what would be changed, [`run`] does it until told to stop, [`status`] asks a
//! running agent, and [`restore`] gives live connections back what they had, from the journal, after an agent was killed.

mod bounds;
mod journal;
mod life;
mod machine;
mod metrics;
mod plan;
mod ports;
mod sketch;
mod status;

use std::fmt;
use std::path::{Path, PathBuf};

use bandmaster_core::agent::{self, Deployment, PortSource, SnmpAccess};
use bandmaster_core::runtime::envelope::Key;

use crate::daemon::{self, Error};
use crate::kernel::NoProgram;
use crate::kernel::tcp::{HostTcp, control_groups};

pub use journal::{Restored, restore};
pub use life::run;
pub use plan::{Capabilities, Plan, plan};
pub use status::{Refused, Status, status};

/// Where journal and status are when no file says otherwise.
pub const STATE_DIRECTORY: &str = "/var/lib/bandmaster/agent";

/// An agent's file as read, with the secrets that it names.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The file.
    pub file: PathBuf,
    /// What it says.
    pub deployment: Deployment,
    key: Key,
    /// Of a switch that is asked by SNMP: its community, or passphrases.
    switch_secret: SwitchSecret,
}

/// A secret, which nobody prints.
#[derive(Clone, Default)]
struct SwitchSecret(Vec<u8>);

impl fmt::Debug for SwitchSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SwitchSecret")
    }
}

/// Reads and checks an agent's file and the secret that it names; the secret's path is relative to the file.
///
/// # Errors
/// Everything that is wrong, each with its place.
pub fn load(file: &Path) -> Result<Loaded, Error> {
    let deployment = read(file)?;
    let key = daemon::secret(file, &deployment.key_file)?;
    let switch_secret = match &deployment.source {
        PortSource::Snmp {
            access: SnmpAccess::Community { file: secret } | SnmpAccess::User { file: secret, .. },
            ..
        } => SwitchSecret(daemon::foreign_secret(file, secret)?),
        _ => SwitchSecret::default(),
    };
    Ok(Loaded { file: file.to_owned(), deployment, key, switch_secret })
}

fn read(file: &Path) -> Result<Deployment, Error> {
    agent::parse(&file.display().to_string(), &daemon::text(file)?)
        .map_err(|errors| Error::Usage(errors.to_string()))
}

/// The state directory that a file names; the secret is not read.
///
/// # Errors
/// Everything that is wrong with the file, each with its place.
pub fn state_directory(file: &Path) -> Result<PathBuf, Error> {
    Ok(PathBuf::from(read(file)?.state_directory))
}

/// The control group whose programs' connections are set.
fn control_group(deployment: &Deployment) -> Result<PathBuf, NoProgram> {
    match &deployment.control_group {
        Some(folder) => Ok(PathBuf::from(folder)),
        None => control_groups(),
    }
}

/// The programs in the kernel; connections that begin are not set yet.
fn programs() -> Result<HostTcp, Error> {
    let load = || {
        let mut tcp = HostTcp::load()?;
        tcp.load_live()?;
        Ok(tcp)
    };
    load().map_err(|why| lacking(&why))
}

fn lacking(why: &NoProgram) -> Error {
    Error::Missing(format!(
        "error: the kernel takes no program for TCP: {why}; it needs CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON, and `bandmaster \
         doctor` says what this kernel allows"
    ))
}
