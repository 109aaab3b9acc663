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
mod peer;
mod plan;
mod rules;
mod saved;
mod shaper;
mod status;

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::Read;
use std::net::IpAddr;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use bandmaster_core::runtime::envelope;
use bandmaster_core::scheme::er2bc::deployment::{self, Deployment, Whereabouts};
use bandmaster_core::scheme::er2bc::probe;

pub use daemon::{End, run};
pub use faults::{Fault, FaultStatus};
pub use install::{Restored, restore};
pub use order::{counting, counts_in_order};
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
            Self::Usage(message) | Self::Missing(message) | Self::Failed(message) => {
                f.write_str(&printable(message))
            }
        }
    }
}

impl std::error::Error for Error {}

/// `text` without characters that would command a terminal: names come from files, name servers and devices. Lines stay.
pub fn printable(text: &str) -> String {
    let mut all = String::with_capacity(text.len());
    for c in text.chars() {
        let turns = matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}');
        if (c.is_control() && c != '\n') || turns { all.extend(c.escape_default()) } else { all.push(c) }
    }
    all
}

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
/// User of the packaged unit.
const USER: &str = "bandmaster";
/// Permissions of everybody.
const OTHERS: u32 = 0o007;

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

/// Opens a plain file for reading: it does not wait for the other end of a pipe, and does not wake a device.
fn open_plain(path: &Path) -> Result<fs::File, String> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path)
        .map_err(|e| format!("cannot be opened: {e}"))?;
    let kind = file.metadata().map_err(|e| format!("cannot be asked: {e}"))?.file_type();
    if kind.is_file() {
        return Ok(file);
    }
    Err(if kind.is_dir() {
        "is not a file: it is a directory".to_owned()
    } else if kind.is_fifo() {
        "is not a file: it is a FIFO".to_owned()
    } else {
        "is not a file: it is a device or a socket".to_owned()
    })
}

/// Who may own what root and the gateway trust: root, this user, and the user that the packaged unit runs as.
fn is_trusted(user: u32) -> bool {
    let packaged = || nix::unistd::User::from_name(USER).ok().flatten().map(|user| user.uid.as_raw());
    user == 0 || user == nix::unistd::geteuid().as_raw() || packaged() == Some(user)
}

fn read_up_to(path: &Path, most: u64) -> Result<Vec<u8>, String> {
    read_from(open_plain(path)?, most)
}

fn read_from(file: fs::File, most: u64) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes).map_err(|e| format!("cannot be read: {e}"))?;
    if bytes.len() as u64 > most { Err(format!("is larger than {most} bytes")) } else { Ok(bytes) }
}

fn secret(file: &Path, path: &str) -> Result<probe::Auth, Error> {
    let path = file.parent().unwrap_or(Path::new("")).join(path);
    let wrong =
        |why: String| Error::Usage(format!("error: {}: secret {}: {why}", file.display(), path.display()));
    // Links are followed; what is asked about owner and mode is what is read.
    let secret = open_plain(&path).map_err(wrong)?;
    let meta = secret.metadata().map_err(|e| wrong(e.to_string()))?;
    if !is_trusted(meta.uid()) {
        return Err(wrong(format!(
            "belongs to user {}, who is neither root nor the gateway's; chown it",
            meta.uid()
        )));
    }
    let mode = meta.permissions().mode();
    if mode & OTHERS != 0 {
        return Err(wrong(format!("everybody may use it (mode {:o}); chmod o= it", mode & 0o777)));
    }
    let mut bytes = read_from(secret, MOST_SECRET_BYTES).map_err(wrong)?;
    while bytes.last().is_some_and(|byte| matches!(byte, b'\n' | b'\r')) {
        bytes.pop();
    }
    envelope::Key::new(&bytes).map(probe::Auth::Key).map_err(|e| wrong(e.to_string()))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn what_commands_a_terminal_is_escaped() {
        assert_eq!(printable("a\x1b[2Jb\nc\u{202e}d\re ü"), "a\\u{1b}[2Jb\nc\\u{202e}d\\re ü");
        let error = Error::Usage("error: \x07".to_owned());
        assert_eq!(error.to_string(), "error: \\u{7}");
    }

    /// A secret is a plain file of somebody trusted, also behind a link; whatever else is there is named, and nobody waits.
    #[test]
    fn a_secret_is_a_plain_file() {
        let folder = std::env::temp_dir().join(format!("bandmaster-secret-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("made");
        let file = folder.join("gw.toml");
        let good = folder.join("good");
        let mut key =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o640).open(&good).expect("made");
        key.write_all(b"a secret of many bytes").expect("written");
        std::os::unix::fs::symlink("good", folder.join("link")).expect("made");
        nix::unistd::mkfifo(&folder.join("fifo"), nix::sys::stat::Mode::S_IRUSR).expect("made");
        fs::create_dir(folder.join("folder")).expect("made");
        fs::write(folder.join("open"), "a secret of many bytes").expect("written");
        fs::set_permissions(folder.join("open"), fs::Permissions::from_mode(0o644)).expect("set");
        assert!(secret(&file, "good").is_ok());
        assert!(secret(&file, "link").is_ok());
        let cases = [
            ("fifo", "it is a FIFO"),
            ("folder", "it is a directory"),
            ("/dev/zero", "it is a device"),
            ("open", "everybody may use it (mode 644)"),
            ("absent", "cannot be opened"),
        ];
        for (name, expected) in cases {
            let said = secret(&file, name).err().map(|e| e.to_string()).unwrap_or_default();
            assert!(said.contains(&format!("secret {}", folder.join(name).display())), "{said}");
            assert!(said.contains(expected), "{name}: {said}");
        }
        if nix::unistd::geteuid().is_root() {
            std::os::unix::fs::chown(&good, Some(65_533), None).expect("given away");
            let said = secret(&file, "link").err().map(|e| e.to_string()).unwrap_or_default();
            assert!(said.contains("belongs to user 65533"), "{said}");
        }
        fs::remove_dir_all(&folder).expect("removed");
    }
}
