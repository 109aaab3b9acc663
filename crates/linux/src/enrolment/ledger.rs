//! The ledger of a controller: tokens that it issued, hosts that used them, and hosts that are revoked.
//!
//! The ledger is a file in the state directory. A change appends a line with a host's whole entry; the host's last line counts.
//! The daemon and an operator's commands write under a lock, one at a time. A line counts once it is complete and on the disk.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use bandmaster_core::controller::{ENROLLED, Host};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};

use super::{Digest, digest, is_same, random};
use crate::daemon::Error;
use crate::daemon::state;

/// Name of the file in the state directory.
const NAME: &str = "enrolment";
/// With so many lines more than hosts, the next start leaves out those that have been overtaken.
const OVERTAKEN: usize = 1_000;
/// For so long one waits for another process that writes, and looks so often.
const PATIENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(5);

/// What is known of a host.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub(crate) struct Entry {
    /// Its number.
    pub(crate) number: u32,
    /// Its name.
    pub(crate) name: String,
    /// A token that waits to be used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) token: Option<Waiting>,
    /// The token that was used last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) used: Option<Digest>,
    /// What the host and the controller share; none: it has not enrolled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) secret: Option<String>,
    /// The public key of its certificates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<Digest>,
    /// Digest of the secret that is revoked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) revoked: Option<Digest>,
}

/// A token that waits to be used.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Waiting {
    /// Digest of its secret.
    pub(crate) digest: Digest,
    /// The second of the day's clock when it expires.
    pub(crate) until: u32,
}

/// What the file says.
pub(crate) struct Ledger {
    path: PathBuf,
    entries: BTreeMap<u32, Entry>,
    by_key: BTreeMap<Digest, u32>,
    /// Of the file that was read, and how much of it.
    inode: u64,
    read: u64,
    lines: usize,
}

impl Ledger {
    /// That in the state directory `folder`; absent, it is empty.
    pub(crate) fn of(folder: &Path) -> Result<Self, Error> {
        let mut ledger = Self::empty(folder.join(NAME));
        ledger.refresh()?;
        Ok(ledger)
    }

    fn empty(path: PathBuf) -> Self {
        let (entries, by_key) = (BTreeMap::new(), BTreeMap::new());
        Self { path, entries, by_key, inode: 0, read: 0, lines: 0 }
    }

    fn failed(&self, why: impl std::fmt::Display) -> Error {
        Error::Failed(format!("error: {}: {why}", self.path.display()))
    }

    /// Reads what was written since the last time; whether there was anything.
    pub(crate) fn refresh(&mut self) -> Result<bool, Error> {
        match File::open(&self.path) {
            Ok(file) => self.read_from(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(self.failed(error)),
        }
    }

    fn read_from(&mut self, file: File) -> Result<bool, Error> {
        let meta = file.metadata().map_err(|error| self.failed(error))?;
        if meta.ino() == self.inode && meta.len() == self.read {
            return Ok(false);
        }
        if meta.ino() != self.inode || meta.len() < self.read {
            let mut other = Self { inode: meta.ino(), ..Self::empty(self.path.clone()) };
            other.read_on(file)?;
            *self = other;
            return Ok(true);
        }
        self.read_on(file)
    }

    fn read_on(&mut self, mut file: File) -> Result<bool, Error> {
        let mut text = String::new();
        file.seek(SeekFrom::Start(self.read))
            .and_then(|_| file.read_to_string(&mut text))
            .map_err(|error| self.failed(error))?;
        // A last line that is cut off was no change yet.
        let whole = text.rfind('\n').map_or("", |end| &text[..=end]);
        let parse = |(at, line): (usize, &str)| {
            // Drop serde's message: it could quote the line, which holds secrets.
            serde_json::from_str(line).map_err(|_| {
                let at = self.lines + at + 1;
                self.failed(format!("line {at} is no entry; take it out, and the host of it enrols again"))
            })
        };
        let entries = whole.lines().enumerate().map(parse).collect::<Result<Vec<Entry>, _>>()?;
        self.lines += entries.len();
        self.read += whole.len() as u64;
        for entry in entries {
            self.take(entry);
        }
        Ok(!whole.is_empty())
    }

    fn take(&mut self, entry: Entry) {
        if let Some(key) = self.entries.get(&entry.number).and_then(|before| before.key) {
            self.by_key.remove(&key);
        }
        if let Some(key) = entry.key {
            self.by_key.insert(key, entry.number);
        }
        self.entries.insert(entry.number, entry);
    }

    /// Another one whenever something was written.
    pub(crate) fn version(&self) -> (u64, u64) {
        (self.inode, self.read)
    }

    /// What is known of host `number`.
    pub(crate) fn entry(&self, number: u32) -> Option<&Entry> {
        self.entries.get(&number)
    }

    /// The host whose certificates have this public key.
    pub(crate) fn of_key(&self, key: &Digest) -> Option<&Entry> {
        self.entries.get(self.by_key.get(key)?)
    }

    /// The highest number.
    pub(crate) fn last_number(&self) -> Option<u32> {
        self.entries.last_key_value().map(|(number, _)| *number)
    }

    /// Hosts called `name`, also those that were taken out of the hosts-file.
    pub(crate) fn named(&self, name: &str) -> impl Iterator<Item = Host> {
        let entries = self.entries.values().filter(move |entry| entry.name == name);
        entries.map(|Entry { number, name, .. }| Host {
            number: *number,
            name: name.clone(),
            secret: ENROLLED.to_owned(),
        })
    }

    /// Numbers of hosts that have enrolled.
    pub(crate) fn enrolled(&self) -> impl Iterator<Item = u32> {
        self.entries.values().filter(|entry| entry.secret.is_some()).map(|entry| entry.number)
    }

    /// The secret of `host`, as its file says or as it was enrolled; none: it has not enrolled.
    pub(crate) fn secret<'a>(&'a self, host: &'a Host) -> Option<&'a str> {
        if host.secret != ENROLLED {
            return Some(&host.secret);
        }
        let entry = self.entry(host.number).filter(|entry| entry.name == host.name)?;
        entry.secret.as_deref()
    }

    /// Whether `host` is revoked, with the secret that it has now.
    pub(crate) fn is_revoked(&self, host: &Host) -> bool {
        let revoked = self.entry(host.number).filter(|entry| entry.name == host.name);
        let revoked = revoked.and_then(|entry| entry.revoked);
        revoked.is_some_and(|revoked| {
            is_same(&revoked, &digest(self.secret(host).unwrap_or_default().as_bytes()))
        })
    }

    /// Writes the entry that `decide` makes of what is there, and no other process changes meanwhile. When this returns it will be
    /// there whatever happens.
    ///
    /// # Errors
    /// What `decide` says, or why it cannot be written; then nothing has changed.
    pub(crate) fn change<E: From<Error>>(
        &mut self,
        decide: impl FnOnce(&Self) -> Result<Entry, E>,
    ) -> Result<Entry, E> {
        let mut file = self.lock()?;
        self.refresh()?;
        let entry = decide(self)?;
        let line = serde_json::to_string(&entry).map_err(|error| self.failed(error))? + "\n";
        // What a process left that was killed while it wrote.
        let before = self.read;
        let written = file
            .set_len(before)
            .and_then(|()| file.write_all(line.as_bytes()))
            .and_then(|()| file.sync_all());
        if let Err(error) = written {
            let _ = file.set_len(before);
            return Err(self.failed(error).into());
        }
        self.refresh()?;
        Ok(entry)
    }

    /// Holds the file, or says that another process does not let it go.
    fn hold(&self, mut file: File) -> Result<Flock<File>, Error> {
        let begin = Instant::now();
        loop {
            match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                Ok(held) => return Ok(held),
                Err((back, Errno::EWOULDBLOCK)) if begin.elapsed() < PATIENCE => file = back,
                Err((_, Errno::EWOULDBLOCK)) => return Err(self.failed("another process holds it")),
                Err((_, errno)) => return Err(self.failed(io::Error::from(errno))),
            }
            thread::sleep(PAUSE);
        }
    }

    /// The file, open for appending, and held. A new one belongs to whom the folder belongs to.
    fn lock(&self) -> Result<Flock<File>, Error> {
        loop {
            let mut options = OpenOptions::new();
            let is_new = !self.path.exists();
            let file =
                state::own(options.append(true).create(true), &self.path).map_err(|e| self.failed(e))?;
            if is_new {
                state::own_as_folder(&file, &self.path)
                    .and_then(|()| state::sync_folder(&self.path))
                    .map_err(|e| self.failed(e))?;
            }
            let file = self.hold(file)?;
            // Another process may have put a shorter one in its place.
            let inode = |meta: fs::Metadata| meta.ino();
            if fs::metadata(&self.path).map(inode).ok() == file.metadata().map(inode).ok() {
                return Ok(file);
            }
        }
    }

    /// Leaves out lines that have been overtaken, when they are many.
    pub(crate) fn shorten(&mut self) -> Result<(), Error> {
        if self.lines < self.entries.len() + OVERTAKEN {
            return Ok(());
        }
        let _held = self.lock()?;
        self.refresh()?;
        let lines: Result<String, _> =
            self.entries.values().map(|entry| serde_json::to_string(entry).map(|line| line + "\n")).collect();
        let lines = lines.map_err(|error| self.failed(error))?;
        state::replace(&self.path, lines.as_bytes()).map_err(|error| self.failed(error))?;
        self.refresh()?;
        Ok(())
    }
}

/// A secret that nobody knows, of a host that has not enrolled.
pub(crate) fn nobodys_secret() -> Result<String, Error> {
    random::<32>().map(|bytes| super::hex(&bytes))
}
