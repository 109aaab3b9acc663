//! The agent of a host: runs a scheme's host part on this machine's TCP.
//!
//! The simulator's own role decides; this module is its [`Host`](bandmaster_core::runtime::Host). [`load`] reads an agent's
//! file, [`plan`] lists what would change, [`run`] runs the agent until a signal stops it, and [`status`] asks a running agent.
//! After an agent was killed, [`restore`] reads its journal and gives live connections their earlier settings back.

mod bounds;
pub(crate) mod connections;
mod journal;
mod life;
mod machine;
mod metrics;
mod neighbours;
mod plan;
mod ports;
mod renewal;
mod routes;
mod sketch;
mod sockets;
mod status;

use std::fmt;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use bandmaster_core::agent::{self, Deployment, PortSource, Scheme, Site, SnmpAccess};
use bandmaster_core::runtime::envelope::Key;

use crate::daemon::clock::seconds_of_day;
use crate::daemon::{self, Error};
use crate::doctor::{CAP_NET_ADMIN, has_capability};
use crate::enrolment::{ADDRESS, Token, client};
use crate::kernel::NoProgram;
use crate::kernel::tcp::{HostTcp, control_groups};

pub use journal::{Restored, restore};
pub use life::run;
pub use plan::{Capabilities, Plan, plan};
pub use status::{Refused, Status, status};

/// Where journal and status are when no file says otherwise.
pub const STATE_DIRECTORY: &str = "/var/lib/bandmaster/agent";

/// Names of what `enroll` writes into the state directory.
const KEY: &str = "secret";
const CERTIFICATE: &str = "certificate";

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

impl Loaded {
    /// What will not work later, though the agent runs: a certificate that cannot be read or has expired, and files that it cannot replace.
    pub fn warnings(&self) -> Vec<String> {
        let Some((key, certificate)) = paths(&self.file, &self.deployment) else { return Vec::new() };
        let mut all = Vec::new();
        match client::Certificate::read(&certificate) {
            Err(error) => {
                let why = error.to_string();
                all.push(why.strip_prefix("error: ").unwrap_or(&why).to_owned());
            }
            Ok(read) if read.until <= seconds_of_day() => {
                all.push(format!("certificate-file {}: has expired; enrol again", certificate.display()));
            }
            Ok(_) => {}
        }
        let folder = Path::new(&self.deployment.state_directory);
        let outside = |(name, path): &(&str, PathBuf)| {
            (!path.starts_with(folder)).then(|| {
                format!(
                    "{name} {}: is not in the state directory {}: under the packaged unit, which lets the agent write nowhere else, it \
                     cannot be renewed",
                    path.display(),
                    folder.display()
                )
            })
        };
        all.extend([("key-file", key), ("certificate-file", certificate)].iter().filter_map(outside));
        all
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

/// Enrols this host at a controller, whose address is `controller`, by the token that its operator was given. Writes the agent's file,
/// unless it is there, and in its state directory the secret and the certificate, readable for their owner alone. The host's name at
/// the controller, and the folder.
///
/// # Errors
/// When the token is not valid, the controller is another one or does not answer, or a file cannot be written.
pub fn enroll(file: &Path, controller: SocketAddr, token: &str) -> Result<(String, PathBuf), Error> {
    let usage = |why: String| Error::Usage(format!("error: {why}"));
    let token: Token = token.trim().parse().map_err(|why| usage(format!("token: {why}")))?;
    let place = file.display();
    let there = if file.try_exists().unwrap_or(true) { Some(read(file)?) } else { None };
    let beside = |path: &str| file.parent().unwrap_or(Path::new("")).join(path);
    let (folder, key, certificate) = match &there {
        Some(deployment) => {
            let number = deployment.number;
            if number != token.number {
                let of = token.number;
                return Err(usage(format!("{place}: is of host {number}, and the token of host {of}")));
            }
            let certificate = deployment.certificate_file.as_deref().ok_or_else(|| {
                usage(format!(
                    "{place}: has no controller.certificate-file; write one, or take the file away"
                ))
            })?;
            (PathBuf::from(&deployment.state_directory), beside(&deployment.key_file), beside(certificate))
        }
        None => {
            // What the controller says of it is not known yet.
            let empty = "version = 1\nscheme = \"opentcp\"\nnumber = 1\n[controller]\naddress = \"192.0.2.1\"\nkey-file = \"k\"\n";
            let folder = agent::parse(&place.to_string(), empty)
                .map_err(|errors| Error::Usage(errors.to_string()))?
                .state_directory;
            let folder = PathBuf::from(folder);
            (folder.clone(), folder.join(KEY), folder.join(CERTIFICATE))
        }
    };
    let missing = daemon::missing(&folder);
    daemon::make_folder(&folder)?;
    daemon::state::trust(&folder)?;
    let port = match controller.port() {
        4742 => String::new(),
        port => format!("enrolment-port = {port}\n"),
    };
    // The role's table comes after the controller's.
    let whole = |text: &str| {
        let files = format!(
            "key-file = \"{}\"\ncertificate-file = \"{}\"\n{port}",
            key.display(),
            certificate.display()
        );
        let text = text.replacen(ADDRESS, &controller.ip().to_string(), 1).replacen(
            "key-file = \"agent.key\"\n",
            &files,
            1,
        );
        let said =
            agent::parse(&place.to_string(), &text).map_err(|errors| Error::Failed(errors.to_string()))?;
        match said.number == token.number {
            true => Ok(text),
            false => Err(Error::Failed("error: the controller says that this is another host".to_owned())),
        }
    };
    let files =
        client::Files { agent: there.is_none().then_some(file), key: &key, certificate: &certificate };
    let enrolled = client::enroll(controller, &token, &files, whole);
    if enrolled.is_err() {
        // Who is not enrolled has no state. A folder with something in it stays.
        missing.iter().take_while(|made| fs::remove_dir(made).is_ok()).for_each(drop);
    }
    Ok((enrolled?, folder))
}

/// Takes a new secret and certificate from the controller, by the certificate; a running agent goes on with them within a second.
///
/// # Errors
/// When the file names no certificate, the controller refuses it or does not answer, or a file cannot be written.
pub fn renew(file: &Path) -> Result<(), Error> {
    let deployment = read(file)?;
    let lacks = || {
        Error::Usage(format!(
            "error: {}: has no controller.certificate-file: it did not enrol by a token",
            file.display()
        ))
    };
    let Some((key, certificate)) = paths(file, &deployment) else { return Err(lacks()) };
    client::renew(
        deployment.enrolment,
        &client::Files { agent: None, key: &key, certificate: &certificate },
    )?;
    Ok(())
}

/// Files of the secret and of the certificate; none: it did not enrol by a token.
fn paths(file: &Path, deployment: &Deployment) -> Option<(PathBuf, PathBuf)> {
    let beside = |path: &str| file.parent().unwrap_or(Path::new("")).join(path);
    Some((beside(&deployment.key_file), beside(deployment.certificate_file.as_deref()?)))
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
fn programs() -> Result<HostTcp, NoProgram> {
    let mut tcp = HostTcp::load()?;
    tcp.load_live()?;
    Ok(tcp)
}

/// By what the TCP of a host is set and read.
enum Means {
    /// Programs in the kernel.
    Programs(Box<HostTcp>),
    /// The metrics of its routes, and what the kernel tells everybody, since it takes no program: why.
    Routes(String),
}

/// Routes only where the kernel refuses programs as such, and where they can serve.
fn means(deployment: &Deployment) -> Result<Means, Error> {
    let why = match programs() {
        Ok(tcp) => return Ok(Means::Programs(Box::new(tcp))),
        Err(why) => why,
    };
    let what = match deployment.scheme {
        Scheme::Bas => {
            "per-connection windows, paces, and settings of live connections, which are all that BAS sets"
        }
        Scheme::OpenTcp if deployment.control_group.is_some() => {
            "control-group: settings of some programs alone"
        }
        Scheme::OpenTcp if why.is_forbidden && has_capability(CAP_NET_ADMIN) == Some(true) => {
            return Ok(Means::Routes(why.to_string()));
        }
        Scheme::OpenTcp => return Err(lacking(&why)),
    };
    Err(Error::Missing(format!("{}; routes cannot have {what}", lacking(&why))))
}

/// What an agent with this file cannot set on this machine, where it sets routes: why it does, and a line for each.
pub fn lacks(loaded: &Loaded) -> Option<(String, Vec<String>)> {
    let deployment = &loaded.deployment;
    match (deployment.site == Site::Host).then(|| means(deployment)) {
        Some(Ok(Means::Routes(why))) => Some((why, routes::LACKS.map(str::to_owned).to_vec())),
        _ => None,
    }
}

fn lacking(why: &NoProgram) -> Error {
    Error::Missing(format!(
        "error: the kernel takes no program for TCP: {why}; it needs CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON, and `bandmaster \
         doctor` says what this kernel allows"
    ))
}
