//! The daemon of a router that takes the part which a scheme has in switches: windows in passing acknowledgements, from the
//! port's buffer (QCBF) or from each flow's share (BAS), or classes of faster and slower flows (FBQM).
//!
//! The deciding is done by the very program of the simulator, fed by what a program in the kernel sees. [`load`] reads a
//! switch's file, [`plan`] says what would be changed, [`run`] does it until told to stop, [`status`] asks a running one, and
//! [`restore`] takes away what one that was killed has left; its programs have ended with it.

mod bas;
mod fbqm;
mod journal;
mod life;
mod machine;
mod metrics;
mod plan;
mod queue;
mod status;

use std::path::{Path, PathBuf};

use bandmaster_core::switch::{self, Deployment};

use crate::daemon::{self, Error};
use crate::kernel::NoProgram;

pub use journal::{Restored, restore};
pub use life::run;
pub use plan::{Plan, plan};
pub use status::{ClassStatus, ConnectionStatus, PortStatus, Status, status};

/// Where journal and status are when no file says otherwise.
pub const STATE_DIRECTORY: &str = "/var/lib/bandmaster/switch";

/// A switch's file as read.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The file.
    pub file: PathBuf,
    /// What it says.
    pub deployment: Deployment,
}

/// Reads and checks a switch's file.
///
/// # Errors
/// Everything that is wrong, each with its place.
pub fn load(file: &Path) -> Result<Loaded, Error> {
    let deployment = switch::parse(&file.display().to_string(), &daemon::text(file)?)
        .map_err(|errors| Error::Usage(errors.to_string()))?;
    Ok(Loaded { file: file.to_owned(), deployment })
}

/// The state directory that a file names.
///
/// # Errors
/// Everything that is wrong with the file, each with its place.
pub fn state_directory(file: &Path) -> Result<PathBuf, Error> {
    Ok(PathBuf::from(load(file)?.deployment.state_directory))
}

fn lacking(why: &NoProgram) -> Error {
    Error::Missing(format!(
        "error: the kernel takes no program that lowers windows: {why}; it needs CAP_BPF and CAP_NET_ADMIN, and Linux 6.6"
    ))
}
