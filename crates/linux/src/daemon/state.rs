//! The state directory of a daemon: a lock, small files, and a journal with an entry written before every change.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::marker::PhantomData;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, Flock, FlockArg, fcntl};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::clock::seconds_of_day;
use super::{Error, is_trusted};

/// Name of the journal's file, and what messages call it.
pub(crate) const JOURNAL: &str = "journal";
/// What messages call the folder.
const DIRECTORY: &str = "state directory";
const LOCK: &str = "lock";
/// Mode of the folder and of the files in it.
const FOLDER_MODE: u32 = 0o750;
const FILE_MODE: u32 = 0o640;
/// Others than the owner may write.
const OTHERS_WRITE: u32 = 0o022;
/// Everybody may take away their own files only.
const STICKY: u32 = 0o1000;

/// How long a daemon may take to end.
const PATIENCE: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(20);

/// The state directory, held by this process alone, with a journal of entries of kind `E`.
pub(crate) struct State<E> {
    folder: PathBuf,
    lock: Flock<File>,
    entry: PhantomData<fn() -> E>,
}

/// An open journal.
pub(crate) struct Journal<E> {
    path: PathBuf,
    file: File,
    entry: PhantomData<fn() -> E>,
}

impl<E: Serialize + DeserializeOwned> State<E> {
    /// Takes the folder, making it when it is not there.
    pub(crate) fn hold(folder: &Path) -> Result<Self, Error> {
        let failed = |e: io::Error| failed(DIRECTORY, folder, e);
        fs::DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(folder).map_err(failed)?;
        trust(folder)?;
        let lock = own(OpenOptions::new().write(true).create(true), &folder.join(LOCK)).map_err(failed)?;
        // Programs that change the machine for us hold the lock too: when this process is killed, nobody restores before
        // they have ended.
        fcntl(&lock, FcntlArg::F_SETFD(FdFlag::empty())).map_err(|errno| failed(errno.into()))?;
        let (mut lock, begin) = (lock, Instant::now());
        loop {
            match Flock::lock(lock, FlockArg::LockExclusiveNonblock) {
                Ok(held) => return Ok(Self { folder: folder.to_owned(), lock: held, entry: PhantomData }),
                Err((file, Errno::EWOULDBLOCK)) if begin.elapsed() < PATIENCE => lock = file,
                Err((_, Errno::EWOULDBLOCK)) => {
                    let holder = fs::read_to_string(folder.join(LOCK)).unwrap_or_default();
                    let holder = match holder.trim() {
                        "" => "another daemon",
                        told => told,
                    };
                    return Err(Error::Missing(format!(
                        "error: {DIRECTORY} {}: {} runs with it; stop it first, or name another state-directory",
                        folder.display(),
                        holder.escape_debug()
                    )));
                }
                Err((_, errno)) => return Err(failed(errno.into())),
            }
            thread::sleep(PAUSE);
        }
    }

    /// Tells others who holds the folder.
    pub(crate) fn hold_as(&self, holder: &str) -> Result<(), Error> {
        let told = format!("{holder} (process {})\n", std::process::id());
        let write = || -> io::Result<()> {
            self.lock.set_len(0)?;
            (&*self.lock).write_all(told.as_bytes())
        };
        write().map_err(|e| failed(DIRECTORY, &self.folder, e))
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The entries that a daemon left; none when there is nothing to restore.
    pub(crate) fn left(&self) -> Result<Option<Vec<E>>, Error> {
        read(&self.folder)
    }

    /// Begins a journal.
    pub(crate) fn begin(&self, entry: &E) -> Result<Journal<E>, Error> {
        let mut journal = self.open(OpenOptions::new().append(true).create_new(true))?;
        journal.write(entry)?;
        self.sync()?;
        Ok(journal)
    }

    /// A journal of these entries alone, in the place of the one that is there.
    pub(crate) fn rewrite(&self, entries: &[E]) -> Result<Journal<E>, Error> {
        let lines = lines(entries).map_err(|e| failed(JOURNAL, &self.folder.join(JOURNAL), e))?;
        self.keep(JOURNAL, &lines)?;
        self.resume()
    }

    /// Goes on with the journal that is there.
    pub(crate) fn resume(&self) -> Result<Journal<E>, Error> {
        self.open(OpenOptions::new().append(true))
    }

    fn open(&self, options: &mut OpenOptions) -> Result<Journal<E>, Error> {
        let path = self.folder.join(JOURNAL);
        let file = own(options, &path).map_err(|e| failed(JOURNAL, &path, e))?;
        Ok(Journal { path, file, entry: PhantomData })
    }

    /// Everything is as it was: the journal goes.
    pub(crate) fn forget(&self) -> Result<(), Error> {
        let path = self.folder.join(JOURNAL);
        match fs::remove_file(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(failed(JOURNAL, &path, e)),
            _ => self.sync(),
        }
    }

    /// Replaces the content of a small file, all of it or nothing.
    pub(crate) fn keep(&self, name: &str, content: &str) -> Result<(), Error> {
        let path = self.folder.join(name);
        let failed = |e: io::Error| Error::Failed(format!("error: {}: {e}", path.display()));
        replace(&path, content.as_bytes()).map_err(failed)
    }

    /// A small file for a number that is written again and again, in place, so that a full disk does not take the last one.
    pub(crate) fn slot(&self, name: &str) -> Result<Slot, Error> {
        let path = self.folder.join(name);
        let wrong = |why: &dyn fmt::Display| Error::Failed(format!("error: {}: {why}", path.display()));
        let mut options = OpenOptions::new();
        let mut file =
            own(options.read(true).write(true).create(true).truncate(false), &path).map_err(|e| wrong(&e))?;
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(|e| wrong(&e))?;
        let number = match text.trim() {
            "" => 0,
            text => text.parse().map_err(|_| wrong(&"is not a number; remove the file"))?,
        };
        let slot = Slot { file, number };
        slot.write(number).map_err(|e| wrong(&e))?;
        Ok(slot)
    }

    /// Epochs go on from those in a small file.
    pub(crate) fn epochs(&self, name: &str) -> Result<Epochs, Error> {
        self.slot(name).map(Epochs)
    }

    /// A file that is written as a whole again and again, in place. What a machine without power leaves of it may be mixed.
    pub(crate) fn slab(&self, name: &str) -> Result<Slab, Error> {
        let path = self.folder.join(name);
        let wrong = |e: io::Error| Error::Failed(format!("error: {}: {e}", path.display()));
        let mut options = OpenOptions::new();
        let mut file =
            own(options.read(true).write(true).create(true).truncate(false), &path).map_err(wrong)?;
        let mut content = Vec::new();
        file.read_to_end(&mut content).map_err(wrong)?;
        Ok(Slab { file, content })
    }

    /// The content of a small file.
    pub(crate) fn kept(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.folder.join(name)).ok()
    }

    fn sync(&self) -> Result<(), Error> {
        let synced = File::open(&self.folder).and_then(|folder| folder.sync_all());
        synced.map_err(|e| failed(DIRECTORY, &self.folder, e))
    }
}

/// Epochs of what a daemon says: each is above all before, of earlier lives too, whatever the day's clock does.
pub(crate) struct Epochs(Slot);

impl Epochs {
    /// The next one; seconds of the day's clock, unless that was used.
    pub(crate) fn next(&mut self) -> io::Result<u32> {
        let last = u32::try_from(self.0.number).unwrap_or(u32::MAX);
        let next = seconds_of_day().max(last.saturating_add(1));
        self.0.write(next.into())?;
        self.0.number = next.into();
        Ok(next)
    }
}

/// A number in a file of its own.
pub(crate) struct Slot {
    file: File,
    /// What was there when it was opened.
    pub(crate) number: u64,
}

impl Slot {
    /// Puts another number there.
    pub(crate) fn write(&self, number: u64) -> io::Result<()> {
        self.file.write_all_at(format!("{number:020}\n").as_bytes(), 0)
    }
}

/// A file that is written as a whole.
pub(crate) struct Slab {
    file: File,
    /// What is there.
    pub(crate) content: Vec<u8>,
}

impl Slab {
    /// Puts other bytes there.
    pub(crate) fn write(&mut self, content: Vec<u8>) -> io::Result<()> {
        if content == self.content {
            return Ok(());
        }
        self.file.write_all_at(&content, 0)?;
        if content.len() < self.content.len() {
            self.file.set_len(content.len() as u64)?;
        }
        self.content = content;
        Ok(())
    }
}

impl<E: Serialize> Journal<E> {
    /// Writes an entry; when this returns it will be there whatever happens.
    pub(crate) fn write(&mut self, entry: &E) -> Result<(), Error> {
        self.note([entry])?;
        self.file.sync_data().map_err(|e| failed(JOURNAL, &self.path, e))
    }

    /// Writes entries about what ends with this life of the machine; when this returns they will be there whatever becomes of
    /// the process.
    pub(crate) fn note<'a>(&mut self, entries: impl IntoIterator<Item = &'a E>) -> Result<(), Error>
    where
        E: 'a,
    {
        let lines = lines(entries).map_err(|e| failed(JOURNAL, &self.path, e))?;
        let write = || -> io::Result<()> {
            let length = self.file.metadata()?.len();
            // A full disk takes a part of what is written; half a line would be in the way of what comes after it.
            (&self.file).write_all(lines.as_bytes()).inspect_err(|_| drop(self.file.set_len(length)))
        };
        write().map_err(|e| failed(JOURNAL, &self.path, e))
    }
}

fn lines<'a, E: Serialize + 'a>(entries: impl IntoIterator<Item = &'a E>) -> serde_json::Result<String> {
    let line = |entry| serde_json::to_string(entry).map(|line| line + "\n");
    entries.into_iter().map(line).collect()
}

/// Opens a file of the state directory: a plain one with one name, and no link to another place.
pub(crate) fn own(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let file = options.mode(FILE_MODE).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path).map_err(
        |e| match e.raw_os_error() {
            Some(libc::ELOOP) => io::Error::other(format!("{} is a link", path.display())),
            _ => e,
        },
    )?;
    let meta = file.metadata()?;
    if meta.is_file() && meta.nlink() == 1 {
        return Ok(file);
    }
    Err(io::Error::other(format!("{} is not a plain file with one name", path.display())))
}

/// The folder that `path` is in.
pub(crate) fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// What was made, renamed or removed in the folder of `path` stays so whatever happens.
pub(crate) fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(folder_of(path))?.sync_all()
}

/// Puts a file in the place of another one, all of it or nothing.
pub(crate) fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let new = PathBuf::from(new);
    // One that was left half-written goes first, whatever it is.
    let _ = fs::remove_file(&new);
    let write = || {
        let mut file = own(OpenOptions::new().write(true).create_new(true), &new)?;
        file.write_all(content)?;
        file.sync_all()?;
        own_as_folder(&file, &new)?;
        fs::rename(&new, path)
    };
    write().inspect_err(|_| drop(fs::remove_file(&new)))?;
    sync_folder(path)
}

/// Gives a new file, open at `path`, to whom its folder belongs to: a command of root makes it for a daemon. The open file
/// and not its name: the folder's user could put a link there meanwhile.
pub(crate) fn own_as_folder(file: &File, path: &Path) -> io::Result<()> {
    let (folder, own) = (fs::metadata(folder_of(path))?, file.metadata()?);
    let is_root = nix::unistd::geteuid().is_root();
    let user = Some(folder.uid()).filter(|user| is_root && *user != own.uid());
    let group = Some(folder.gid()).filter(|group| *group != own.gid());
    if user.is_none() && group.is_none() {
        return Ok(());
    }
    match fchown(file, user, group) {
        // Others than root may not be of that group; the file stays theirs.
        Err(error) if !is_root && error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        done => done,
    }
}

/// Refuses a folder in which somebody else could put something in the place of our files: it and all above it belong to who
/// is trusted, and nobody else may write there (or, as in /tmp, only their own files).
pub(crate) fn trust(folder: &Path) -> Result<(), Error> {
    let refused =
        |why: String| Err(Error::Missing(format!("error: {DIRECTORY} {}: {why}", folder.display())));
    let meta = fs::symlink_metadata(folder).map_err(|e| failed(DIRECTORY, folder, e))?;
    if meta.is_symlink() {
        return refused("is a link; write the directory that it leads to".to_owned());
    }
    if !meta.is_dir() {
        return refused("is not a directory".to_owned());
    }
    let whole = fs::canonicalize(folder).map_err(|e| failed(DIRECTORY, folder, e))?;
    for (above, place) in whole.ancestors().enumerate() {
        let meta = fs::metadata(place).map_err(|e| failed(DIRECTORY, place, e))?;
        let name = place.display();
        if !is_trusted(meta.uid()) {
            let user = meta.uid();
            return refused(format!(
                "{name} belongs to user {user}, who is neither root nor the daemon's; chown it"
            ));
        }
        let mode = meta.mode();
        let keeps_apart = above > 0 && mode & STICKY != 0;
        if mode & OTHERS_WRITE != 0 && !keeps_apart {
            return refused(format!("others may write in {name} (mode {:o}); chmod go-w it", mode & 0o7777));
        }
    }
    Ok(())
}

fn failed(what: &str, path: &Path, why: impl fmt::Display) -> Error {
    Error::Failed(format!("error: {what} {}: {why}", path.display()))
}

/// The journal in `folder`. A last line that is cut off was no change yet.
pub(crate) fn read<E: DeserializeOwned>(folder: &Path) -> Result<Option<Vec<E>>, Error> {
    let path = folder.join(JOURNAL);
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(failed(JOURNAL, &path, e)),
    };
    let whole = text.rfind('\n').map_or("", |end| &text[..=end]);
    let parse = |(number, line): (usize, &str)| {
        serde_json::from_str(line)
            .map_err(|e| Error::Failed(format!("error: journal {}:{}: {e}", path.display(), number + 1)))
    };
    whole.lines().enumerate().map(parse).collect::<Result<_, _>>().map(Some)
}

/// This life of the machine.
pub(crate) fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

/// This process's network namespace.
pub(crate) fn namespace() -> u64 {
    use std::os::unix::fs::MetadataExt;
    fs::metadata("/proc/thread-self/ns/net").map_or(0, |meta| meta.ino())
}

/// The name that `ip netns` has for network namespace number `number`.
pub(crate) fn namespace_name(number: u64) -> Option<String> {
    use std::os::unix::fs::MetadataExt;
    let names = fs::read_dir("/run/netns").ok()?.flatten();
    let mut fitting = names.filter(|entry| entry.metadata().is_ok_and(|meta| meta.ino() == number));
    fitting.next().map(|entry| entry.file_name().to_string_lossy().escape_debug().to_string())
}

/// Why the `daemon` whose changes to `interfaces` are in network namespace number `number` restores nothing here. What `forget`
/// says forgets its journal.
pub(crate) fn elsewhere(daemon: &str, interfaces: &str, number: u64, forget: &str) -> Error {
    let whereabouts = match namespace_name(number) {
        Some(name) => format!("restore there: ip netns exec {name} bandmaster {daemon} restore ..."),
        None => {
            format!("restore there; when it is gone, the changes are too, and {forget} forgets the journal")
        }
    };
    Error::Missing(format!(
        "error: the changes were made to {interfaces} in another network namespace (number {number}); {whereabouts}"
    ))
}

/// Whether network namespace number `number` has a name or a process.
pub(crate) fn namespace_lives(number: u64) -> bool {
    use std::os::unix::fs::MetadataExt;
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let of = |process: fs::DirEntry| fs::metadata(process.path().join("ns/net")).ok();
    namespace_name(number).is_some() || processes.filter_map(of).any(|meta| meta.ino() == number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("bandmaster-state-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        folder
    }

    /// What somebody could have put there to make root write elsewhere.
    #[test]
    fn a_folder_that_others_may_change_is_refused() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let base = folder("trust");
        fs::create_dir_all(&base).expect("made");
        let said =
            |folder: &Path| State::<String>::hold(folder).err().map(|e| e.to_string()).unwrap_or_default();
        let place = |name: &str| {
            let folder = base.join(name);
            fs::create_dir(&folder).expect("made");
            folder
        };
        symlink(place("real"), base.join("link")).expect("made");
        assert!(said(&base.join("link")).contains("is a link"), "{}", said(&base.join("link")));
        let open = place("open");
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).expect("set");
        assert!(said(&open).contains("others may write in"), "{}", said(&open));
        let below = open.join("below");
        fs::create_dir(&below).expect("made");
        assert!(said(&below).contains("others may write in"), "{}", said(&below));
        for name in [LOCK, JOURNAL, "epoch.new"] {
            let folder = place(&format!("with-{name}"));
            let victim = base.join("victim");
            fs::write(&victim, "precious").expect("written");
            symlink(&victim, folder.join(name)).expect("made");
            let outcome = State::<String>::hold(&folder).and_then(|state| {
                state.keep("epoch", "7")?;
                state.resume()
            });
            assert!(outcome.is_err(), "{name}");
            assert_eq!(fs::read_to_string(&victim).expect("there"), "precious", "{name}");
        }
        if nix::unistd::geteuid().is_root() {
            let theirs = place("theirs");
            std::os::unix::fs::chown(&theirs, Some(65_533), None).expect("given away");
            assert!(said(&theirs).contains("belongs to user 65533"), "{}", said(&theirs));
        }
        fs::remove_dir_all(&base).expect("removed");
    }

    /// A clock that was set back, or asked twice in a second, gives no number again.
    #[test]
    fn an_epoch_never_comes_back() {
        let folder = folder("epochs");
        let state = State::<String>::hold(&folder).expect("held");
        let mut epochs = state.epochs("epoch").expect("opened");
        let first = epochs.next().expect("kept");
        assert_eq!(epochs.next().expect("kept"), first + 1);
        let ahead = u64::from(first) + 1000;
        state.slot("epoch").expect("opened").write(ahead).expect("written");
        let mut again = state.epochs("epoch").expect("opened");
        assert_eq!(u64::from(again.next().expect("kept")), ahead + 1);
        fs::remove_dir_all(&folder).expect("removed");
    }

    #[test]
    fn a_number_stays_in_its_file() {
        let folder = folder("slot");
        let state = State::<String>::hold(&folder).expect("held");
        let slot = state.slot("heard").expect("opened");
        assert_eq!(slot.number, 0);
        for number in [u64::MAX, 7] {
            slot.write(number).expect("written");
            assert_eq!(state.slot("heard").expect("opened").number, number);
        }
        fs::write(folder.join("heard"), "much").expect("written");
        assert!(state.slot("heard").is_err_and(|e| e.to_string().contains("heard: is not a number")));
        fs::remove_dir_all(&folder).expect("removed");
    }
}
