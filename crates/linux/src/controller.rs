//! The controller of a network: decides what the agents of hosts do.
//!
//! The simulator's own role decides; this module is its [`Host`](bandmaster_core::runtime::Host). [`load`] reads a controller's
//! file and its hosts' file, [`plan`] lists what it would do, [`run`] runs it until a signal stops it, and [`status`] asks a
//! running controller. [`halt`] silences it, so that every lease ends. [`enroll`] adds a host, and [`revoke`] makes the
//! controller refuse one.

mod batch;
mod discover;
mod inbox;
mod life;
mod machine;
mod metrics;
mod places;
mod plan;
mod records;
mod status;

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use bandmaster_core::agent::Scheme;
use bandmaster_core::controller::{self, Deployment, ENROLLED, Host};
use bandmaster_core::file::Files;
use bandmaster_core::runtime::envelope::Key;
use bandmaster_core::runtime::inventory::Inventory;
use bandmaster_core::scheme::Role;
use nix::fcntl::{Flock, FlockArg};

use crate::daemon::clock::{Clock, seconds_of_day};
use crate::daemon::{self, Error, state};
use crate::enrolment::ledger::{Entry, Ledger, Waiting, nobodys_secret};
use crate::enrolment::tls::Authority;
use crate::enrolment::{digest, hex, random};

pub use crate::enrolment::Token;
pub use crate::enrolment::server::Questions;
pub use bandmaster_core::sketch::{Kept, Report};
pub use discover::{Discovery, Finding, Verdict, discover};
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

/// Reads policies from the folder of the controller's file.
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
    let ledger = Ledger::of(Path::new(&deployment.state_directory))?;
    let keys = hosts.iter().map(|host| key_of(host, &ledger)).collect::<Result<_, _>>()?;
    let inventory = deployment.inventory(&hosts);
    let role = deployment.role(&hosts, &inventory).map_err(wrong)?;
    Ok(Loaded { file: file.to_owned(), deployment, hosts, keys, inventory, role })
}

/// What `host` and the controller share. Nobody knows that of one that has not enrolled.
fn key_of(host: &Host, ledger: &Ledger) -> Result<Key, Error> {
    let nobodys;
    let secret = match ledger.secret(host) {
        Some(secret) => secret,
        None => {
            nobodys = nobodys_secret()?;
            &nobodys
        }
    };
    Key::new(secret.as_bytes())
        .map_err(|why| Error::Usage(format!("error: hosts-file: host `{}`: {why}", host.name)))
}

fn read(file: &Path) -> Result<Deployment, Error> {
    controller::parse(&file.display().to_string(), &daemon::text(file)?, &Beside(file))
        .map_err(|errors| Error::Usage(errors.to_string()))
}

/// What [`load`] reads, and what hosts reported in the last hour; the controller may be running. With `policies` (files or
/// shipped ones), the deployment as it would decide by these.
///
/// # Errors
/// Everything that is wrong, each with its place.
pub fn whatif(file: &Path, policies: &[String]) -> Result<Whatif, Error> {
    let loaded = load(file)?;
    let place = file.display().to_string();
    let as_errors = |errors: bandmaster_core::file::Errors| Error::Usage(errors.to_string());
    let new = controller::parse_with(&place, &daemon::text(file)?, &Here(Beside(file)), policies)
        .map_err(as_errors)?;
    let folder = PathBuf::from(&loaded.deployment.state_directory);
    let (kept, ago) = records::read(&folder, Clock::of_day().now())
        .map_err(|error| Error::Failed(format!("error: {}: {error}", folder.display())))?;
    Ok(Whatif { deployment: loaded.deployment, new, hosts: loaded.hosts, kept, ago })
}

/// What a comparison needs.
pub struct Whatif {
    /// The controller's file.
    pub deployment: Deployment,
    /// The same with other policies.
    pub new: Deployment,
    /// Its hosts.
    pub hosts: Vec<Host>,
    /// What the hosts reported, minute by minute; minutes without reports are included.
    pub kept: Vec<Vec<(Kept, Report)>>,
    /// How many minutes ago the last of them was.
    pub ago: u64,
}

/// Policies that the command line names, where it is called.
#[derive(Debug)]
struct Here<'a>(Beside<'a>);

impl Files for Here<'_> {
    fn read(&self, name: &str) -> Result<String, String> {
        fs::read_to_string(name).or_else(|error| self.0.read(name).map_err(|_| error.to_string()))
    }
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
    /// What has to be carried to the host.
    pub carried: Carried,
}

/// What an operator carries to a host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Carried {
    /// A token, and how to use it.
    Token {
        /// The token.
        token: Token,
        /// Where the host enrols; none of its address when the controller listens at any.
        at: SocketAddr,
    },
    /// The secret, and the file of its agent, but for the controller's address.
    Secret {
        /// That file.
        agent: String,
    },
}

/// The file of the agent of host `number`.
fn agent_file(deployment: &Deployment, number: u32) -> String {
    let scheme = deployment.scheme.def().name;
    let role = match deployment.scheme {
        Scheme::OpenTcp => {
            let asked: Vec<String> =
                deployment.asked_of_hosts().iter().map(|name| format!("\"{name}\"")).collect();
            let statistics = match deployment.asks_for_traffic() {
                true => format!("statistics = [{}]\n", asked.join(", ")),
                false => String::new(),
            };
            format!("\n[role]\ncycle = \"{}\"\n{statistics}", deployment.interval())
        }
        Scheme::Bas => {
            let params = &deployment.params;
            let (allocator, interval) = (params.text("allocator"), params.span("measurement-interval"));
            let role =
                format!("\n[role]\nallocator = \"{allocator}\"\nmeasurement-interval = \"{interval}\"\n");
            // What the paper's hosts do by themselves with a rate.
            let keys = ["rounding", "segment", "rtt", "sampling"].into_iter().filter(|_| allocator == "bas");
            let rest = keys.map(|key| format!("{key} = \"{}\"\n", params.text(key)));
            let notes = format!("notification-interval = \"{}\"\n", params.span("notification-interval"));
            let notes = if allocator == "bas" { notes } else { String::new() };
            role + &rest.collect::<String>() + &notes
        }
    };
    let port = match deployment.listen.port() {
        4742 => String::new(),
        port => format!("port = {port}\n"),
    };
    format!(
        "version = 1\nscheme = \"{scheme}\"\nnumber = {number}\n\n[controller]\naddress = \"{}\"\n{port}key-file = \"agent.key\"\n{role}",
        crate::enrolment::ADDRESS
    )
}

/// Adds a host called `name` to the hosts of the controller's file. Where hosts enrol themselves, and unless `by_hand`, it gets a
/// token that is valid for so many `seconds`, also when it is there already; else a new secret. The controller knows the host once
/// it has read its files again (SIGHUP), or the host has enrolled.
///
/// # Errors
/// When a file is wrong, the name is taken, or the hosts cannot be written.
pub fn enroll(file: &Path, name: &str, by_hand: bool, seconds: u32) -> Result<Enrolled, Error> {
    let deployment = read(file)?;
    let path = hosts_file(file, &deployment);
    let usage = |why: String| Error::Usage(format!("error: {why}"));
    let place = path.display().to_string();
    let failed = |error: std::io::Error| Error::Failed(format!("error: {place}: {error}"));
    let by_token = deployment.enrolment.filter(|_| !by_hand);
    let folder = Path::new(&deployment.state_directory);
    if by_token.is_some() {
        daemon::make_folder(folder)?;
        state::trust(folder)?;
    }
    // One at a time, from reading the last number to writing the next.
    let opened = OpenOptions::new().append(true).create(true).mode(0o640).open(&path).map_err(failed)?;
    let lock = Flock::lock(opened, FlockArg::LockExclusive).map_err(|(_, errno)| failed(errno.into()))?;
    let text = daemon::secret_text(&path).map_err(|why| usage(format!("hosts-file {place}: {why}")))?;
    if text.is_empty() {
        state::own_as_folder(&lock, &path).map_err(failed)?;
    }
    let known = controller::hosts(&place, &text).map_err(usage)?;
    let there = known.iter().find(|host| host.name == name);
    let is_by_token = |host: &&Host| by_token.is_some() && host.secret == ENROLLED;
    if there.is_some_and(|host| !is_by_token(&host)) {
        return Err(usage(format!("{place}: a host is called `{name}` already")));
    }
    controller::hosts("the name", &format!("1 {name} secret"))
        .ok()
        .filter(|hosts| hosts.len() == 1)
        .ok_or_else(|| usage(format!("\"{name}\" is not a name: {}", controller::name_words())))?;
    let last = known.iter().map(|host| host.number).max();
    // A number of a host that was taken away stays its.
    let mut ledger = Ledger::of(folder)?;
    let last = last.max(ledger.last_number());
    let next =
        || last.unwrap_or(0).checked_add(1).ok_or_else(|| usage(format!("{place}: no number is left")));
    let number = there.map_or_else(next, |host| Ok(host.number))?;
    let secret = match by_token {
        Some(_) => ENROLLED.to_owned(),
        None => hex(&random::<32>()?),
    };
    let host = Host { number, name: name.to_owned(), secret };
    let carried = match by_token {
        Some(at) => {
            let token = give_token(&deployment, &mut ledger, &host, seconds)?;
            Carried::Token { token, at }
        }
        None => Carried::Secret { agent: agent_file(&deployment, number) },
    };
    if there.is_none() {
        let between = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
        let line = format!("{between}{number} {name} {}\n", host.secret);
        let written = (&*lock).write_all(line.as_bytes()).and_then(|()| lock.sync_all());
        if let Err(error) = written {
            let _ = lock.set_len(text.len() as u64);
            return Err(failed(error));
        }
    }
    Ok(Enrolled { host, hosts_file: path, carried })
}

/// A new token for `host`, in the place of one that waits.
fn give_token(
    deployment: &Deployment,
    ledger: &mut Ledger,
    host: &Host,
    seconds: u32,
) -> Result<Token, Error> {
    let authority = Authority::of(Path::new(&deployment.state_directory))?;
    let token = Token::new(host.number, authority.public())?;
    let waiting = Waiting { digest: token.digest(), until: seconds_of_day().saturating_add(seconds) };
    ledger.change::<Error>(|ledger| Ok(Entry { token: Some(waiting), ..entry_of(ledger, host) }))?;
    Ok(token)
}

/// What is known of `host`, or of one that has not been heard of.
fn entry_of(ledger: &Ledger, host: &Host) -> Entry {
    let known = ledger.entry(host.number).filter(|entry| entry.name == host.name).cloned();
    known.unwrap_or_else(|| Entry { number: host.number, name: host.name.clone(), ..Entry::default() })
}

/// From now on, also after a restart, the controller refuses the host called `name`, until it has another secret: it enrols again, or
/// the operator writes one. A token that waits is void. False: that was so already.
///
/// # Errors
/// When a file is wrong, there is no such host, or the state directory cannot be written.
pub fn revoke(file: &Path, name: &str) -> Result<bool, Error> {
    let deployment = read(file)?;
    let path = hosts_file(file, &deployment);
    let usage = |why: String| Error::Usage(format!("error: {why}"));
    let text =
        daemon::secret_text(&path).map_err(|why| usage(format!("hosts-file {}: {why}", path.display())))?;
    let hosts = controller::hosts(&path.display().to_string(), &text).map_err(usage)?;
    let folder = Path::new(&deployment.state_directory);
    let mut ledger = Ledger::of(folder)?;
    let mut named: Vec<Host> = hosts.into_iter().filter(|host| host.name == name).collect();
    if named.is_empty() {
        named.extend(ledger.named(name));
    }
    if named.is_empty() {
        return Err(usage(format!("{}: no host is called `{name}`", path.display())));
    }
    daemon::make_folder(folder)?;
    state::trust(folder)?;
    let mut is_new = false;
    for host in &named {
        ledger.change::<Error>(|ledger| {
            let entry = entry_of(ledger, host);
            is_new |= !ledger.is_revoked(host) || entry.token.is_some();
            let secret = ledger.secret(host).unwrap_or_default();
            Ok(Entry { token: None, revoked: Some(digest(secret.as_bytes())), ..entry })
        })?;
    }
    Ok(is_new)
}
