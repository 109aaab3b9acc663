//! The eR2BC gateway on a real machine.
//!
//! The simulator's own roles decide; this module is their [`Host`](bandmaster_core::runtime::Host). [`load`] reads a deployment
//! file, [`plan`] lists what would change, [`run`] runs the gateway until a signal stops it, and [`status`] asks a running
//! gateway. The gateway writes a journal before every change, and [`restore`] uses it to undo them all.

mod claims;
mod counters;
pub(crate) mod device;
mod faults;
pub(crate) mod install;
pub(crate) mod journal;
mod life;
mod machine;
mod metrics;
mod order;
mod peer;
mod plan;
mod rules;
pub(crate) mod saved;
mod shaper;
mod status;

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use bandmaster_core::scheme::er2bc::deployment::{self, Deployment, Whereabouts};
use bandmaster_core::scheme::er2bc::probe;

use crate::daemon::{self, Error};

pub use faults::{Fault, FaultStatus};
pub use install::{Restored, restore};
pub use life::run;
pub use order::{counting, counts_in_order};
pub use plan::{Plan, plan};
pub use status::{ClassStatus, ReceiverStatus, Refused, SenderStatus, State, Status, status};

/// Where journal and status are when no deployment file says otherwise.
pub const STATE_DIRECTORY: &str = "/var/lib/bandmaster/gateway";

/// A deployment file as read, with the secrets that it names.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The file.
    pub file: PathBuf,
    /// What it says.
    pub deployment: Deployment,
    /// Of questions that this gateway sends, or answers as a receiver only.
    auth: probe::Auth,
    /// Of questions that a gateway for both directions answers.
    answer_auth: probe::Auth,
}

/// Reads and checks a deployment file and the secrets that it names; paths of secrets are relative to the file.
///
/// # Errors
/// Everything that is wrong, each with its place.
pub fn load(file: &Path) -> Result<Loaded, Error> {
    let deployment = read(file)?;
    fits(&deployment)?;
    let (auth, answer_auth) = match &deployment.auth {
        deployment::Auth::None => (probe::Auth::None, probe::Auth::None),
        deployment::Auth::Hmac { key_file, answer_key_file } => {
            let own = secret(file, key_file)?;
            let other = answer_key_file.as_ref().map(|path| secret(file, path)).transpose()?;
            (own.clone(), other.unwrap_or(own))
        }
    };
    Ok(Loaded { file: file.to_owned(), deployment, auth, answer_auth })
}

fn read(file: &Path) -> Result<Deployment, Error> {
    deployment::parse(&file.display().to_string(), &daemon::text(file)?)
        .map_err(|errors| Error::Usage(errors.to_string()))
}

/// The state directory that a deployment file names; the secrets are not read.
///
/// # Errors
/// Everything that is wrong with the file, each with its place.
pub fn state_directory(file: &Path) -> Result<PathBuf, Error> {
    Ok(PathBuf::from(read(file)?.state_directory))
}

/// Whether packets at the interface of `loaded` pass the gateway at all, as far as this machine can tell: an interface that is
/// not there may be another machine's.
///
/// # Errors
/// When the interface is a bridge, or belongs to a bridge or the like.
pub fn fit(loaded: &Loaded) -> Result<(), Error> {
    device::fit(&loaded.deployment.interface)
}

/// Refuses what this machine cannot do, by key and place; on a machine without the interface nothing is known.
fn fits(deployment: &Deployment) -> Result<(), Error> {
    let interface = &deployment.interface;
    if device::index(interface).is_err() {
        return Ok(());
    }
    let mut wrong = Vec::new();
    let peer = deployment.peer.ip();
    let own = is_own(peer);
    if own && !peer.is_loopback() && deployment.whereabouts == Whereabouts::Fixed {
        wrong.extend(deployment.complaint("peer.address", &format!("{peer} is an address of this machine")));
    }
    if let (Some(sender), Some(link)) = (&deployment.sender, device::speed(interface)) {
        for key in ["safe-rate", "initial", "ceiling"] {
            let rate = sender.params.rate(key);
            if rate > link {
                let what = format!("{rate} is above what {interface} carries, {link}");
                wrong.extend(deployment.complaint(&format!("control.{key}"), &what));
            }
        }
    }
    if wrong.is_empty() { Ok(()) } else { Err(Error::Usage(wrong.join("\n"))) }
}

/// Whether this machine has `address`.
fn is_own(address: IpAddr) -> bool {
    nix::ifaddrs::getifaddrs().into_iter().flatten().any(|own| {
        let own = own.address.as_ref();
        let v4 = own.and_then(|a| a.as_sockaddr_in()).map(|a| IpAddr::V4(a.ip()));
        let v6 = own.and_then(|a| a.as_sockaddr_in6()).map(|a| IpAddr::V6(a.ip()));
        v4.or(v6) == Some(address)
    })
}

fn secret(file: &Path, path: &str) -> Result<probe::Auth, Error> {
    daemon::secret(file, path).map(probe::Auth::Key)
}
