//! A run writes down what it creates before it creates it, so that it can be removed however the run ends.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::Error;
use crate::iperf3::PROGRAM;
use crate::netns::Netns;

/// Where journals are.
const FOLDER: &str = "/run/bandmaster/emulate";
/// A folder that always is, above the journals and the names of namespaces.
const COMMON: &str = "/run";
/// Begins the name of every namespace of ours.
const PREFIX: &str = "bm-";

/// Held while a namespace or a journal is made or taken away, and from [`abandon`] on: by a thread among those of this
/// process, and by a process among those of this machine.
struct Turn {
    _of_threads: MutexGuard<'static, ()>,
    /// None where the folder cannot be locked: what cannot be made there says so itself.
    _of_processes: Option<File>,
}

impl Turn {
    fn take() -> Self {
        static THREADS: Mutex<()> = Mutex::new(());
        let of_threads = THREADS.lock().unwrap_or_else(PoisonError::into_inner);
        let of_processes = File::open(COMMON).and_then(|folder| folder.lock().map(|()| folder)).ok();
        Self { _of_threads: of_threads, _of_processes: of_processes }
    }
}

/// The journal of a run. Dropping it takes away what the run made, and the journal with it.
pub(crate) struct Journal {
    path: PathBuf,
    entry: Entry,
}

#[derive(Serialize, Deserialize)]
struct Entry {
    run: String,
    process: u32,
    /// Start of the process in clock ticks since boot: a number that is used again does not mislead.
    started: u64,
    namespaces: Vec<String>,
}

impl Entry {
    /// Into a file that does not exist yet.
    fn write(&self, path: &Path) -> io::Result<()> {
        let mut file = File::create_new(path)?;
        file.write_all(&serde_json::to_vec(self)?)?;
        file.sync_all()
    }
}

impl Journal {
    /// Writes down namespaces for `nodes`, which do not exist yet, and gives their names in the same order.
    pub(crate) fn begin(nodes: &[String]) -> Result<(Self, Vec<String>), Error> {
        let _turn = Turn::take();
        fs::create_dir_all(FOLDER)
            .map_err(|error| Error::os(format!("make the folder of journals {FOLDER}"), error))?;
        let process = process::id();
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut number = since_1970.as_micros();
        loop {
            let run = format!("{process:x}{:05x}", number & 0xf_ffff);
            let namespaces: Vec<String> = nodes.iter().map(|node| format!("{PREFIX}{run}-{node}")).collect();
            let path = Path::new(FOLDER).join(format!("{run}.json"));
            let started = start_of(process).unwrap_or(0);
            let entry = Entry { run, process, started, namespaces: namespaces.clone() };
            match entry.write(&path) {
                Ok(()) => return Ok((Self { path, entry }, namespaces)),
                // Runs of one process may begin in the same microsecond.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
                Err(error) => {
                    return Err(Error::os(format!("write the journal {}", path.display()), error));
                }
            }
        }
    }

    /// Makes a namespace that is written down.
    pub(crate) fn create(&self, name: &str) -> Result<Netns, Error> {
        let _turn = Turn::take();
        Netns::create(name)
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        // Another lab must not find the folder that goes with the last journal.
        let _turn = Turn::take();
        // What cannot be taken away now stays in the journal, for `clean`.
        let _ = undo(&self.path, &self.entry);
    }
}

/// Takes away what runs left whose process has ended without doing so; the names of the namespaces, in order.
///
/// # Errors
/// The first thing that cannot be taken away; whatever else can is.
pub fn clean() -> Result<Vec<String>, Error> {
    let _turn = Turn::take();
    let mut gone = Vec::new();
    let mut failed = None;
    for path in journals() {
        match clean_after(&path) {
            Ok(names) => gone.extend(names),
            // The others' come first.
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    failed.map_or(Ok(gone), Err)
}

fn clean_after(path: &Path) -> Result<Vec<String>, Error> {
    let text =
        fs::read(path).map_err(|error| Error::os(format!("read the journal {}", path.display()), error))?;
    // Half a journal: killed before anything was made.
    let Ok(entry) = serde_json::from_slice::<Entry>(&text) else {
        let _ = fs::remove_file(path);
        return Ok(Vec::new());
    };
    let lives = start_of(entry.process).is_some_and(|started| started == entry.started);
    if lives { Ok(Vec::new()) } else { undo(path, &entry) }
}

/// Takes away what this process has made and prevents it from making more: for a program that ends at once.
pub fn abandon() {
    std::mem::forget(Turn::take());
    for path in journals() {
        let Ok(text) = fs::read(&path) else { continue };
        if let Ok(entry) = serde_json::from_slice::<Entry>(&text)
            && entry.process == process::id()
        {
            // What cannot be taken away now stays in the journal, for `clean`.
            let _ = undo(&path, &entry);
        }
    }
}

/// Paths of all journals, sorted.
fn journals() -> Vec<PathBuf> {
    let entries = fs::read_dir(FOLDER).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    let mut paths: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|kind| kind == "json")).collect();
    paths.sort();
    paths
}

fn undo(path: &Path, entry: &Entry) -> Result<Vec<String>, Error> {
    let mut gone = Vec::new();
    // A journal names nothing but our own.
    let own = format!("{PREFIX}{}-", entry.run);
    let names: Vec<String> = entry.namespaces.iter().filter(|name| name.starts_with(&own)).cloned().collect();
    Netns::end_processes(&names, PROGRAM);
    for name in names {
        if Netns::delete(&name)? {
            gone.push(name);
        }
    }
    let _ = fs::remove_file(path);
    for folder in path.ancestors().skip(1).take(2) {
        // Only when it is empty.
        let _ = fs::remove_dir(folder);
    }
    Ok(gone)
}

/// Field 22 of `/proc/PID/stat`; none when there is no such process, or it has ended and nobody has asked how.
fn start_of(process: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name in parentheses may hold anything.
    let (_, after) = stat.rsplit_once(')')?;
    let mut fields = after.split_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn runs_that_begin_together_have_names_of_their_own() {
        if !nix::unistd::geteuid().is_root() {
            let test = "runs_that_begin_together_have_names_of_their_own";
            let _ = writeln!(io::stderr(), "skipped: {test}: needs root: {FOLDER}");
            return;
        }
        let nodes = ["a".to_owned()];
        let all: Vec<(Journal, Vec<String>)> = std::thread::scope(|scope| {
            let begin = || (0..64).map(|_| Journal::begin(&nodes).expect("a journal")).collect::<Vec<_>>();
            let threads = [(); 4].map(|()| scope.spawn(begin));
            threads.into_iter().flat_map(|thread| thread.join().expect("journals")).collect()
        });
        let names: BTreeSet<&String> = all.iter().flat_map(|(_, names)| names).collect();
        assert_eq!(names.len(), 4 * 64);
        let paths: Vec<PathBuf> = all.iter().map(|(journal, _)| journal.path.clone()).collect();
        assert!(paths.iter().all(|path| path.exists()));
        drop(all);
        assert!(!paths.iter().any(|path| path.exists()));
    }

    /// A program of the name that a lab ends runs in its namespace twice: once for the lab, once for somebody else.
    #[test]
    fn what_others_run_in_a_lab_goes_on() {
        use std::process::{Child, Command};
        if !nix::unistd::geteuid().is_root() {
            let _ =
                writeln!(io::stderr(), "skipped: what_others_run_in_a_lab_goes_on: needs root: namespaces");
            return;
        }
        let folder = std::env::temp_dir().join(format!("bandmaster-others-{}", process::id()));
        fs::create_dir_all(&folder).expect("made");
        let program = folder.join(PROGRAM);
        fs::copy("/bin/sleep", &program).expect("a program that waits");
        let (journal, names) = Journal::begin(&["a".to_owned()]).expect("a journal");
        let place = journal.create(&names[0]).expect("a namespace");
        let start = |of_lab: bool| -> Child {
            let mut command = Command::new(&program);
            command.arg("60");
            if of_lab {
                command.env(crate::netns::LAB, place.name());
            }
            place.enter(|| Ok(command.spawn().expect("started"))).expect("entered")
        };
        let (mut ours, mut theirs) = (start(true), start(false));
        // Until they are what they are called.
        std::thread::sleep(std::time::Duration::from_millis(300));
        drop(journal);
        // Its end may have been asked for by who ended it.
        assert!(start_of(ours.id()).is_none());
        let _ = ours.try_wait();
        assert!(matches!(theirs.try_wait(), Ok(None)), "it was ended");
        theirs.kill().expect("ended");
        theirs.wait().expect("ended");
        fs::remove_dir_all(&folder).expect("removed");
    }
}
