//! Code that the daemons share.

pub(crate) mod answers;
pub(crate) mod clock;
pub(crate) mod metrics;
pub(crate) mod signals;
pub(crate) mod state;
pub(crate) mod wakes;

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use bandmaster_core::runtime::envelope::Key;

pub use signals::End;

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

/// `text` without characters that would command a terminal: names come from files, name servers and devices. Lines and tabs stay.
pub fn printable(text: &str) -> String {
    let mut all = String::with_capacity(text.len());
    for c in text.chars() {
        let turns = matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}');
        if turns || c.is_control() && !matches!(c, '\n' | '\t') {
            all.extend(c.escape_default());
        } else {
            all.push(c);
        }
    }
    all
}

/// Larger files are no deployments.
const MOST_BYTES: u64 = 1 << 20;
/// Longer secrets gain nothing (RFC 2104, Sect. 3).
const MOST_SECRET_BYTES: u64 = 4096;
/// Some hundred thousand hosts.
const MOST_SECRETS_BYTES: u64 = 64 << 20;
/// User of the packaged units.
const USER: &str = "bandmaster";
/// Permissions of everybody.
const OTHERS: u32 = 0o007;

/// The text of a deployment file.
pub(crate) fn text(file: &Path) -> Result<String, Error> {
    let place = file.display();
    let bytes = read_up_to(file, MOST_BYTES).map_err(|e| Error::Usage(format!("error: {place}: {e}")))?;
    String::from_utf8(bytes)
        .map_err(|e| Error::Usage(format!("error: {place}: is not UTF-8 text: {}", e.utf8_error())))
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

/// Who may own what root and a daemon trust: root, this user, and the user that the packaged units run as.
pub(crate) fn is_trusted(user: u32) -> bool {
    let packaged = || nix::unistd::User::from_name(USER).ok().flatten().map(|user| user.uid.as_raw());
    user == 0 || user == nix::unistd::geteuid().as_raw() || packaged() == Some(user)
}

/// Makes a state directory that is not there: for the user of the packaged units, when root does it and there is one.
pub(crate) fn make_folder(folder: &Path) -> Result<(), Error> {
    let failed =
        |e: std::io::Error| Error::Failed(format!("error: state directory {}: {e}", folder.display()));
    if folder.exists() {
        return Ok(());
    }
    // That of all daemons is not of this one alone.
    fs::create_dir_all(folder.parent().unwrap_or(folder)).map_err(failed)?;
    let packaged = nix::unistd::User::from_name(USER).ok().flatten();
    match packaged.filter(|_| nix::unistd::geteuid().is_root()) {
        Some(user) => make_folder_for(folder, &user).map_err(failed),
        None => fs::DirBuilder::new().recursive(true).mode(0o750).create(folder).map_err(failed),
    }
}

/// Folders of `folder` that are not there yet, the innermost first.
pub(crate) fn missing(folder: &Path) -> Vec<PathBuf> {
    folder
        .ancestors()
        .take_while(|above| !above.as_os_str().is_empty() && !above.exists())
        .map(Path::to_owned)
        .collect()
}

/// Made and given away within one open folder, without links: who may write there cannot have another folder given away.
fn make_folder_for(folder: &Path, user: &nix::unistd::User) -> std::io::Result<()> {
    use nix::fcntl::{OFlag, openat};
    use nix::sys::stat::{Mode, mkdirat};
    let name = folder.file_name().ok_or(std::io::ErrorKind::InvalidFilename)?;
    let above = fs::File::open(state::folder_of(folder))?;
    mkdirat(&above, name, Mode::from_bits_truncate(0o750))?;
    let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let made = openat(&above, name, flags, Mode::empty())?;
    std::os::unix::fs::fchown(made, Some(user.uid.as_raw()), Some(user.gid.as_raw()))
}

fn read_up_to(path: &Path, most: u64) -> Result<Vec<u8>, String> {
    read_from(open_plain(path)?, most)
}

fn read_from(file: fs::File, most: u64) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes).map_err(|e| format!("cannot be read: {e}"))?;
    if bytes.len() as u64 > most { Err(format!("is larger than {most} bytes")) } else { Ok(bytes) }
}

/// The secret in the file that `file` calls `path`, relative to itself.
pub(crate) fn secret(file: &Path, path: &str) -> Result<Key, Error> {
    secret_as(file, path, |bytes| Key::new(bytes).map_err(|e| e.to_string()))
}

/// A secret that another program has chosen; the file is as that of [`secret`].
pub(crate) fn foreign_secret(file: &Path, path: &str) -> Result<Vec<u8>, Error> {
    secret_as(
        file,
        path,
        |bytes| if bytes.is_empty() { Err("is empty".to_owned()) } else { Ok(bytes.to_vec()) },
    )
}

fn secret_as<T>(file: &Path, path: &str, read: impl Fn(&[u8]) -> Result<T, String>) -> Result<T, Error> {
    let path = file.parent().unwrap_or(Path::new("")).join(path);
    let wrong =
        |why: String| Error::Usage(format!("error: {}: secret {}: {why}", file.display(), path.display()));
    let mut bytes = secret_bytes(&path, MOST_SECRET_BYTES).map_err(wrong)?;
    while bytes.last().is_some_and(|byte| matches!(byte, b'\n' | b'\r')) {
        bytes.pop();
    }
    read(&bytes).map_err(wrong)
}

/// The text of a file with many secrets.
pub(crate) fn secret_text(path: &Path) -> Result<String, String> {
    String::from_utf8(secret_bytes(path, MOST_SECRETS_BYTES)?)
        .map_err(|e| format!("is not UTF-8 text: {}", e.utf8_error()))
}

/// What is in a file that only those may read who may know it.
fn secret_bytes(path: &Path, most: u64) -> Result<Vec<u8>, String> {
    // Links are followed; what is asked about owner and mode is what is read.
    let secret = open_plain(path)?;
    let meta = secret.metadata().map_err(|e| e.to_string())?;
    if !is_trusted(meta.uid()) {
        return Err(format!(
            "belongs to user {}, who is neither root nor the daemon's; chown it",
            meta.uid()
        ));
    }
    let mode = meta.permissions().mode();
    if mode & OTHERS != 0 {
        return Err(format!("everybody may use it (mode {:o}); chmod o= it", mode & 0o777));
    }
    read_from(secret, most)
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
