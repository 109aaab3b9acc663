//! The controller of a network: decides what the agents of hosts do.
//!
//! The deciding is done by the very role of the simulator; what is here is its [`Host`](bandmaster_core::runtime::Host).
//! [`load`] reads a controller's file and that of its hosts, [`plan`] says what it would do, [`run`] does it until told to
//! stop, [`status`] asks a running controller. [`halt`] makes it silent, so that every lease ends, and [`enroll`] adds a host.

mod inbox;
mod life;
mod machine;
mod metrics;
mod plan;
mod status;

use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use bandmaster_core::controller::{self, Deployment, Host};
use bandmaster_core::file::Files;
use bandmaster_core::runtime::envelope::Key;
use bandmaster_core::runtime::inventory::Inventory;
use bandmaster_core::scheme::Role;

use crate::daemon::{self, Error};

pub use life::run;
pub use plan::{Plan, plan};
pub use status::{Refused, Status, status};

/// Where the state is when no file says otherwise.
pub const STATE_DIRECTORY: &str = "/var/lib/bandmaster/controller";
/// While this is in the state directory, the controller says nothing.
const HALTED: &str = "halted";

/// A controller's file as read, with its hosts.
pub struct Loaded {
    /// The file.
    pub file: PathBuf,
    /// What it says.
    pub deployment: Deployment,
    /// The hosts, in the order of their file.
    pub hosts: Vec<Host>,
    keys: Vec<Key>,
    inventory: Inventory,
    role: Role,
}

/// Policies that stand beside the controller's file.
#[derive(Debug)]
struct Beside<'a>(&'a Path);

impl Files for Beside<'_> {
    fn read(&self, name: &str) -> Result<String, String> {
        let path = self.0.parent().unwrap_or(Path::new("")).join(name);
        fs::read_to_string(&path).map_err(|error| error.to_string())
    }
}

/// Reads and checks a controller's file, the policies that it names, and its hosts with their secrets; paths are relative to
/// the file.
///
/// # Errors
/// Everything that is wrong, each with its place.
pub fn load(file: &Path) -> Result<Loaded, Error> {
    let deployment = read(file)?;
    let wrong = |why: String| Error::Usage(format!("error: {}: {why}", file.display()));
    let path = hosts_file(file, &deployment);
    let text =
        daemon::secret_text(&path).map_err(|why| wrong(format!("hosts-file {}: {why}", path.display())))?;
    let hosts = controller::hosts(&path.display().to_string(), &text)
        .map_err(|why| Error::Usage(format!("error: {why}")))?;
    let key = |host: &Host| {
        Key::new(host.secret.as_bytes()).map_err(|why| wrong(format!("host `{}`: {why}", host.name)))
    };
    let keys = hosts.iter().map(key).collect::<Result<_, _>>()?;
    let inventory = deployment.inventory(&hosts);
    let role = deployment.role(&hosts, &inventory).map_err(wrong)?;
    Ok(Loaded { file: file.to_owned(), deployment, hosts, keys, inventory, role })
}

fn read(file: &Path) -> Result<Deployment, Error> {
    controller::parse(&file.display().to_string(), &daemon::text(file)?, &Beside(file))
        .map_err(|errors| Error::Usage(errors.to_string()))
}

fn hosts_file(file: &Path, deployment: &Deployment) -> PathBuf {
    file.parent().unwrap_or(Path::new("")).join(&deployment.hosts_file)
}

/// The state directory that a file names; the hosts are not read.
///
/// # Errors
/// Everything that is wrong with the file, each with its place.
pub fn state_directory(file: &Path) -> Result<PathBuf, Error> {
    Ok(PathBuf::from(read(file)?.state_directory))
}

/// From now on, also after a restart, the controller with state in `folder` decides and says nothing, until it is
/// [resumed](resume). What is in force at hosts ends with its lease. False: that was so already.
///
/// # Errors
/// When the folder cannot be written.
pub fn halt(folder: &Path) -> Result<bool, Error> {
    let path = folder.join(HALTED);
    let made = OpenOptions::new().write(true).create_new(true).mode(0o640).open(&path);
    match made {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(Error::Failed(format!("error: {}: {error}", path.display()))),
    }
}

/// Undoes [`halt`]. False: it was not halted.
///
/// # Errors
/// When the folder cannot be written.
pub fn resume(folder: &Path) -> Result<bool, Error> {
    let path = folder.join(HALTED);
    match fs::remove_file(&path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(Error::Failed(format!("error: {}: {error}", path.display()))),
    }
}

/// A host that [`enroll`] has added.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Enrolled {
    /// The host.
    pub host: Host,
    /// The file that it was added to.
    pub hosts_file: PathBuf,
    /// What the controller decides.
    pub scheme: &'static str,
}

/// Adds a host called `name` with a new secret to the hosts of the controller's file. The controller knows it once it has read
/// its files again (SIGHUP).
///
/// # Errors
/// When a file is wrong, the name is taken, or the hosts cannot be written.
pub fn enroll(file: &Path, name: &str) -> Result<Enrolled, Error> {
    let deployment = read(file)?;
    let path = hosts_file(file, &deployment);
    let usage = |why: String| Error::Usage(format!("error: {why}"));
    let text = if path.exists() {
        daemon::secret_text(&path).map_err(|why| usage(format!("hosts-file {}: {why}", path.display())))?
    } else {
        String::new()
    };
    let place = path.display().to_string();
    let number = controller::hosts(&place, &text).map_err(usage)?.iter().map(|host| host.number).max();
    let number =
        number.unwrap_or(0).checked_add(1).ok_or_else(|| usage(format!("{place}: no number is left")))?;
    let failed = |error: std::io::Error| Error::Failed(format!("error: {place}: {error}"));
    let mut bytes = [0; 32];
    fs::File::open("/dev/urandom").and_then(|mut random| random.read_exact(&mut bytes)).map_err(failed)?;
    let secret: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let between = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    let line = format!("{between}{number} {name} {secret}\n");
    // A name that is wrong, or taken, is found before anything is written.
    controller::hosts(&place, &format!("{text}{line}")).map_err(usage)?;
    let added = OpenOptions::new().append(true).create(true).mode(0o640).open(&path);
    added
        .and_then(|mut file| {
            file.write_all(line.as_bytes())?;
            file.sync_all()
        })
        .map_err(failed)?;
    let host = Host { number, name: name.to_owned(), secret };
    Ok(Enrolled { host, hosts_file: path, scheme: deployment.scheme.def().name })
}
