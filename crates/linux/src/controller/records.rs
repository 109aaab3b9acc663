//! Hosts' reports of the last hour: one file per minute in the state directory.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use bandmaster_core::rng::Fnv;
use bandmaster_core::sketch::{self, Kept, Report};
use bandmaster_core::time::Time;

/// Folder in the state directory.
const FOLDER: &str = "recorded";
/// Minutes that are kept in addition to the current one.
const MINUTES: u64 = 60;
/// Bytes that a host may tell in a minute, in which two of its intervals may end, and that are kept in all.
const MOST_OF_HOST: usize = 3 * sketch::MOST;
const MOST: u64 = 256 << 20;

/// What becomes of what a host tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Taken {
    /// It is kept, or was already.
    Kept,
    /// It is no report.
    NoReport,
    /// The host has reached its limit for this minute.
    TooMuch,
}

/// What hosts tell, and where it is kept.
pub(super) struct Records {
    folder: PathBuf,
    /// Lines that are not written yet.
    pending: Vec<u8>,
    /// The current minute, and the bytes that each host has reported in it.
    minute: u64,
    told: BTreeMap<u32, usize>,
    /// Hosts and hashes of their reports in this minute and the one before: hosts send a report several times.
    known: [BTreeSet<(u32, u64)>; 2],
    /// The minute whose file was written last, and how long the file was then.
    written: (u64, u64),
}

fn minute_of(now: Time) -> u64 {
    now.as_nanos() / sketch::INTERVAL.as_nanos()
}

impl Records {
    /// In the state directory `folder`.
    pub(super) fn new(folder: &Path) -> Self {
        Self {
            folder: folder.join(FOLDER),
            pending: Vec::new(),
            minute: 0,
            told: BTreeMap::new(),
            known: Default::default(),
            written: (0, 0),
        }
    }

    /// Keeps what host number `host` tells from `from`.
    pub(super) fn take(&mut self, now: Time, host: u32, from: IpAddr, body: Vec<u8>) -> Taken {
        if std::mem::replace(&mut self.minute, minute_of(now)) != self.minute {
            self.told.clear();
            self.known.swap(0, 1);
            self.known[0].clear();
        }
        let mut hash = Fnv::new();
        hash.write(&body);
        let known = (host, hash.finish());
        if self.known.iter().any(|all| all.contains(&known)) {
            return Taken::Kept;
        }
        let told = self.told.entry(host).or_default();
        if sketch::read(&body).is_none() {
            return Taken::NoReport;
        }
        if *told + body.len() > MOST_OF_HOST {
            return Taken::TooMuch;
        }
        *told += body.len();
        self.known[0].insert(known);
        self.pending.extend(Kept { host, from: from.to_canonical(), report: body }.line());
        Taken::Kept
    }

    /// Writes what is pending, and takes away what is old.
    pub(super) fn keep(&mut self, now: Time) -> io::Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let pending = std::mem::take(&mut self.pending);
        if !self.folder.is_dir() {
            DirBuilder::new().mode(0o750).create(&self.folder)?;
        }
        let (minute, mut files) = (minute_of(now), files(&self.folder)?);
        let is_new = !files.contains_key(&minute);
        let path = self.folder.join(minute.to_string());
        let mut options = OpenOptions::new();
        let mut file =
            options.append(true).create(true).mode(0o640).custom_flags(libc::O_NOFOLLOW).open(&path)?;
        let mut length = file.metadata()?.len();
        if self.written != (minute, length) {
            // A full disk or the end of an earlier life may have cut its last line off.
            length = Kept::whole(&fs::read(&path)?) as u64;
            file.set_len(length)?;
        }
        file.write_all(&pending)?;
        self.written = (minute, length + pending.len() as u64);
        if is_new {
            let mut size = 0;
            while let Some((of, (path, length))) = files.pop_last() {
                size += length;
                if of + MINUTES < minute || of > minute || size > MOST {
                    fs::remove_file(path)?;
                }
            }
        }
        Ok(())
    }
}

/// The files in the folder, by minute, with their lengths.
fn files(folder: &Path) -> io::Result<BTreeMap<u64, (PathBuf, u64)>> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if let Some(minute) = entry.file_name().to_str().and_then(|name| name.parse().ok()) {
            all.insert(minute, (entry.path(), entry.metadata()?.len()));
        }
    }
    Ok(all)
}

/// Reports by minute.
type Minutes = Vec<Vec<(Kept, Report)>>;

/// What is kept in the state directory `folder`: each minute of the hour that ended with the newest report, also one
/// without reports, and how many minutes ago the last was at `now`.
pub(super) fn read(folder: &Path, now: Time) -> io::Result<(Minutes, u64)> {
    let (folder, minute) = (folder.join(FOLDER), minute_of(now));
    let mut files = if folder.is_dir() { files(&folder)? } else { BTreeMap::new() };
    files.retain(|of, _| *of <= minute);
    let Some(last) = files.keys().next_back().copied() else { return Ok((Vec::new(), 0)) };
    let first = files.keys().copied().find(|of| of + MINUTES >= last).unwrap_or(last);
    let of = |minute| match files.get(&minute) {
        Some((path, _)) => fs::read(path).map(|content| Kept::lines(&content)),
        None => Ok(Vec::new()),
    };
    Ok(((first..=last).map(of).collect::<io::Result<_>>()?, minute - last))
}

#[cfg(test)]
mod tests {
    use bandmaster_core::sketch::{About, parts};
    use bandmaster_core::time::Span;

    use super::*;

    #[test]
    fn an_hour_is_kept_and_no_more() {
        let folder = std::env::temp_dir().join(format!("bandmaster-records-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("made");
        let at = |minute: u64| Time::ZERO + Span::from_secs(60 * minute + 1);
        let read_at = |minute| read(&folder, at(minute)).expect("read");
        let mut records = Records::new(&folder);
        assert!(read_at(106).0.is_empty());
        let from_of = |host| IpAddr::from([10, 0, 0, host]);
        let body = |n| parts(n, sketch::INTERVAL, About::default(), Vec::new()).remove(0);
        for minute in 0..100u32 {
            let now = at(minute.into());
            assert_eq!(records.take(now, 7, [10, 0, 0, 7].into(), body(minute)), Taken::Kept);
            records.keep(now).expect("kept");
            assert_eq!(records.take(now, 8, [10, 0, 0, 8].into(), body(minute)), Taken::Kept);
            records.keep(now).expect("kept");
        }
        let kept = read_at(106).0;
        assert_eq!(kept.len(), 61);
        assert!(kept.iter().all(|minute| minute.len() == 2));
        assert_eq!((kept[0][0].1.interval, kept[60][1].0.host), (39, 8));
        // A report that is repeated, even in the next minute, is kept once. Two minutes later it counts as a new one.
        let known = body(1_000);
        for (minute, is_kept) in [(100, 1), (100, 1), (101, 1), (103, 2)] {
            assert_eq!(records.take(at(minute), 9, from_of(9), known.clone()), Taken::Kept);
            records.keep(at(minute)).expect("kept");
            let all = read_at(106).0;
            assert_eq!(all.iter().flatten().filter(|(kept, _)| kept.host == 9).count(), is_kept, "{minute}");
        }
        // A minute without reports is one of the hour; what is newer than now is not.
        let (kept, ago) = read_at(200);
        assert_eq!((kept.len(), ago, kept[59].len(), kept[60].len()), (61, 97, 0, 1));
        assert_eq!((read_at(101).1, read_at(101).0.len()), (1, 58));
        assert!(read_at(5).0.is_empty());
        // What an earlier life has left half written is cut off before more is written.
        let path = folder.join(FOLDER).join("103");
        let whole = fs::read(&path).expect("read");
        fs::write(&path, &whole[..whole.len() - 1]).expect("written");
        let mut other = Records::new(&folder);
        assert_eq!(other.take(at(103), 10, from_of(10), known.clone()), Taken::Kept);
        other.keep(at(103)).expect("kept");
        assert_eq!(fs::read(&path).expect("read").len(), whole.len());
        assert_eq!(other.take(at(103), 11, from_of(11), known.clone()), Taken::Kept);
        other.keep(at(103)).expect("kept");
        let kept = Kept::lines(&fs::read(&path).expect("read"));
        assert_eq!(kept.iter().map(|(kept, _)| kept.host).collect::<Vec<_>>(), [10, 11]);
        // What is no report, or too much, is not kept.
        let from = from_of(7);
        assert_eq!(records.take(at(104), 7, from, vec![1, 2, 3]), Taken::NoReport);
        let taken = (0..100_000)
            .take_while(|n| records.take(at(105), 7, from, body(100_000 + n)) == Taken::Kept)
            .count();
        assert_eq!(taken, MOST_OF_HOST / body(100_000).len());
        assert_eq!(records.take(at(105), 7, from, body(1_000_000)), Taken::TooMuch);
        assert_eq!(records.take(at(105), 8, from, body(0)), Taken::Kept);
        assert_eq!(records.take(at(106), 7, from, body(0)), Taken::Kept);
        fs::remove_dir_all(&folder).expect("removed");
    }
}
