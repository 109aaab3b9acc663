//! The eR2BC gateway on a real machine.
//!
//! The deciding is done by the very roles of the simulator; what is here is their [`Host`](bandmaster_core::runtime::Host). [`load`] reads a deployment file, [`plan`] says what would be changed, [`run`] does it until told to stop,
//! [`status`] asks a running gateway, and [`restore`] gives the machine back what it had, from the journal that is written
//! before every change.

mod claims;
mod clock;
mod counters;
mod daemon;
mod device;
mod faults;
mod install;
mod journal;
mod machine;
mod metrics;
mod order;
mod plan;
mod rules;
mod saved;
mod shaper;
mod status;

use std::fmt;
use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use bandmaster_core::runtime::envelope;
use bandmaster_core::scheme::er2bc::deployment::{self, Deployment};
use bandmaster_core::scheme::er2bc::probe;

pub use daemon::{End, run};
pub use faults::{Fault, FaultStatus};
pub use install::{Restored, restore};
pub use order::{NoOrder, counting, counts_in_order};
pub use plan::{Plan, plan};
pub use status::{ClassStatus, ReceiverStatus, Refused, SenderStatus, State, Status, status};

/// Where journal and status are when no deployment file says otherwise.
pub const STATE_DIRECTORY: &str = "/var/lib/bandmaster/gateway";

/// Why a command did not do what it should, with a complete message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Error {
    /// The deployment file or the command is wrong; nothing was touched.
    Usage(String),
    /// The machine lacks something: a program, a privilege, an interface.
    Missing(String),
    /// It went wrong on the way.
    Failed(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(message) | Self::Missing(message) | Self::Failed(message) => f.write_str(message),
        }
    }
}

impl std::error::Error for Error {}

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

/// Larger files are no deployments.
const MOST_BYTES: u64 = 1 << 20;
/// Longer secrets gain nothing (RFC 2104, Sect. 3).
const MOST_SECRET_BYTES: u64 = 4096;
/// Permissions of everybody.
const OTHERS: u32 = 0o007;

/// Reads and checks a deployment file and the secrets that it names; paths of secrets are relative to the file.
///
/// # Errors
/// Everything that is wrong, each with its place.
pub fn load(file: &Path) -> Result<Loaded, Error> {
    let deployment = read(file)?;
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
    let place = file.display();
    let bytes = read_up_to(file, MOST_BYTES).map_err(|e| Error::Usage(format!("error: {place}: {e}")))?;
    let text = String::from_utf8(bytes)
        .map_err(|e| Error::Usage(format!("error: {place}: is not UTF-8 text: {}", e.utf8_error())))?;
    deployment::parse(&place.to_string(), &text).map_err(|errors| Error::Usage(errors.to_string()))
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

fn read_up_to(path: &Path, most: u64) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let file = fs::File::open(path).map_err(|e| format!("cannot be opened: {e}"))?;
    if !file.metadata().is_ok_and(|meta| meta.is_file()) {
        return Err("is not a file".to_owned());
    }
    file.take(most + 1).read_to_end(&mut bytes).map_err(|e| format!("cannot be read: {e}"))?;
    if bytes.len() as u64 > most { Err(format!("is larger than {most} bytes")) } else { Ok(bytes) }
}

fn secret(file: &Path, path: &str) -> Result<probe::Auth, Error> {
    let path = file.parent().unwrap_or(Path::new("")).join(path);
    let wrong =
        |why: String| Error::Usage(format!("error: {}: secret {}: {why}", file.display(), path.display()));
    let mut bytes = read_up_to(&path, MOST_SECRET_BYTES).map_err(wrong)?;
    let mode = fs::metadata(&path).map_err(|e| wrong(e.to_string()))?.permissions().mode();
    if mode & OTHERS != 0 {
        return Err(wrong(format!("everybody may use it (mode {:o}); chmod o= it", mode & 0o777)));
    }
    while bytes.last().is_some_and(|byte| matches!(byte, b'\n' | b'\r')) {
        bytes.pop();
    }
    envelope::Key::new(&bytes).map(probe::Auth::Key).map_err(|e| wrong(e.to_string()))
}
