//! Record files: what each trial gave, appended as it ends, so that a killed run goes on from its finished trials and shards
//! can be merged.
//!
//! A file is `bandmaster records`, a line break, the format version in 4 bytes, and frames. A frame is the length of its content
//! and its CRC-32 in 4 bytes each, little-endian, then its kind and the content in postcard. The first frame is the [`Header`].
//! Rows of flows come in frames of their own while a trial runs; the frame of a trial comes when it has ended and names them. So
//! whatever ends the program in the middle of a write loses no trial that has its frame.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, File, TryLockError};
use std::io::{self, BufReader, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use bandmaster_core::report::RunRecord;
use bandmaster_core::report::flow::FlowRecord;
use bandmaster_table::flows::encode;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::exit::Failure;
use crate::jobs::{TrialError, TrialKey, TrialResult};
use crate::report::flows::{FlowBlocks, read};
use crate::report::{COMMIT, ReportError, VERSION};

/// The record file of a folder of results, until these are complete.
pub(crate) const FILE: &str = "trials.records";

/// The command whose trials are run on real Linux, as the header has it.
pub(crate) const EMULATE: &str = "emulate";

/// Version of record files.
const FORMAT: u32 = 2;

const MAGIC: &[u8] = b"bandmaster records\n";

/// Bytes before the content of a frame.
const HEAD: usize = 9;

/// Bytes of rows that are written at once.
const BLOCK: usize = 1 << 16;

/// What frames hold.
const HEADER: u8 = 0;
const ROWS: u8 = 1;
const TRIAL: u8 = 2;

/// Where the content of a frame begins, and its length.
pub(crate) type Block = (u64, u32);

/// What a record file is of: all that is needed to run the trials, and to write their results.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Header {
    /// Version of the program, and its commit, when known.
    pub(crate) version: String,
    pub(crate) commit: Option<String>,
    /// As of an experiment.
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) command: Vec<String>,
    pub(crate) settings: Vec<String>,
    /// `--pcap`, `--pcap-case` and `--pcap-snaplen`.
    pub(crate) capture: (Option<String>, Option<String>, Option<u32>),
    /// The files.
    pub(crate) studies: Vec<StoredStudy>,
    /// Which trials are meant to be here.
    pub(crate) part: Option<Part>,
}

/// A scenario file, what it names, and how it was read.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct StoredStudy {
    pub(crate) path: String,
    pub(crate) text: String,
    pub(crate) named: BTreeMap<String, String>,
    pub(crate) overrides: Vec<(String, String)>,
    pub(crate) sweeps: Vec<(String, Vec<String>)>,
    /// Whether they are one grid.
    pub(crate) grid: bool,
    /// Which cases are run: `--variant` and `--base`.
    pub(crate) variants: Vec<String>,
    pub(crate) base: bool,
    pub(crate) trials: Option<u32>,
    pub(crate) seed: Option<u64>,
    pub(crate) quick: bool,
    /// As in the provenance of the results: of the scenario as read, and the seed of its random streams.
    pub(crate) digest: String,
    pub(crate) seed_used: u64,
}

/// A shard: `number` of `count`, from 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Part {
    pub(crate) number: u32,
    pub(crate) count: u32,
}

impl core::fmt::Display for Part {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}/{}", self.number, self.count)
    }
}

impl core::str::FromStr for Part {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let whole = |text: &str| text.parse().ok().filter(|number| *number > 0);
        let part = text.split_once('/').and_then(|(number, count)| Some((whole(number)?, whole(count)?)));
        match part {
            Some((number, count)) if number <= count => Ok(Self { number, count }),
            _ => Err("write I/N, the number of the shard from 1 and how many there are: 3/64".to_owned()),
        }
    }
}

impl Header {
    /// Of this program.
    pub(crate) fn new(name: &str, title: &str, command: &[String], settings: &[String]) -> Self {
        Self {
            version: VERSION.to_owned(),
            commit: COMMIT.map(str::to_owned),
            name: name.to_owned(),
            title: title.to_owned(),
            command: command.to_vec(),
            settings: settings.to_vec(),
            capture: (None, None, None),
            studies: Vec::new(),
            part: None,
        }
    }

    /// As the frame of a record file has it.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        // A vector takes everything.
        encoded(self).unwrap_or_default()
    }

    /// What [`to_bytes`](Self::to_bytes) was called of; none: the bytes are no header.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        decode(bytes)
    }

    /// How the runs of two record files differ; none: they are of one.
    pub(crate) fn difference(&self, other: &Self) -> Option<String> {
        let program = |header: &Self| match &header.commit {
            Some(commit) => format!("bandmaster {} ({commit})", header.version),
            None => format!("bandmaster {}", header.version),
        };
        let differ = |what: &str, a: String, b: String| (a != b).then(|| format!("{what} {a} and {b}"));
        let seeds = |header: &Self| words(header.studies.iter().map(|study| study.seed_used.to_string()));
        let names = |header: &Self| words(header.studies.iter().map(|study| study.path.clone()));
        let settings = |header: &Self| match header.settings.as_slice() {
            [] => "no settings".to_owned(),
            settings => format!("`{}`", settings.join(" ")),
        };
        let commands = |header: &Self| header.command.first().cloned().unwrap_or_default();
        let digests = |header: &Self| {
            words(header.studies.iter().map(|study| study.digest.chars().take(12).collect::<String>()))
        };
        differ("", program(self), program(other))
            .or_else(|| differ("the scenarios", names(self), names(other)))
            .or_else(|| differ("seed", seeds(self), seeds(other)))
            .or_else(|| differ("", settings(self), settings(other)))
            .or_else(|| differ("scenario texts", digests(self), digests(other)))
            .or_else(|| differ("the commands", commands(self), commands(other)))
            .map(|difference| difference.trim_start().to_owned())
    }

    /// Whether the trials were run by `emulate`, whose world no other command has.
    pub(crate) fn is_of_lab(&self) -> bool {
        self.command.first().is_some_and(|command| command == EMULATE)
    }

    /// Refuses records of another version of the program.
    pub(crate) fn check_version(&self, place: &Path) -> Result<(), Failure> {
        let own = Self::new("", "", &[], &[]);
        if (&self.version, &self.commit) == (&own.version, &own.commit) {
            return Ok(());
        }
        let of = |header: &Self| match &header.commit {
            Some(commit) => format!("{} ({commit})", header.version),
            None => header.version.clone(),
        };
        Err(Failure::usage(format!(
            "{}: was written by bandmaster {}; this is {}, whose results may differ: use the former, or start over",
            place.display(),
            of(self),
            of(&own)
        )))
    }
}

fn words(all: impl Iterator<Item = String>) -> String {
    all.collect::<Vec<_>>().join(", ")
}

/// What is known of a trial that ended.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Trial {
    /// Its record, or why there is none.
    pub(crate) result: Result<RunRecord, TrialError>,
    /// Its rows of flows.
    pub(crate) blocks: Vec<Block>,
}

impl Trial {
    fn is_of(&self, key: TrialKey) -> bool {
        self.result.as_ref().map_or(true, |record| (record.case, record.trial) == (key.1, key.2))
    }
}

/// A record file as read.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) path: PathBuf,
    pub(crate) header: Header,
    /// Trials that ended.
    pub(crate) trials: BTreeMap<TrialKey, Trial>,
    /// Bytes up to the end of the last trial: rows behind it are of trials that did not end.
    length: u64,
}

/// What could be read of a record file: its header, its trials and where the last of them ends.
type Scanned = (Header, BTreeMap<TrialKey, Trial>, u64);

/// Why a file gives no records.
#[derive(PartialEq, Eq, Debug)]
enum Refusal {
    /// Its program was killed before it had written the header.
    Unbegun,
    /// What is wrong with it.
    Wrong(String),
}

impl Refusal {
    fn none() -> Self {
        Self::Wrong("is no record file of bandmaster".to_owned())
    }

    fn damaged(at: u64) -> Self {
        Self::Wrong(format!(
            "is damaged at byte {at}, or of another version; nothing of it was changed: \
             move it away, or `run` again with --force"
        ))
    }
}

impl Found {
    /// Reads a record file. What follows the last whole frame is left out: a program was killed while it wrote that. A frame
    /// that is not whole with a whole one behind is damage.
    ///
    /// # Errors
    /// When it is none that this program reads.
    pub(crate) fn read(path: &Path) -> Result<Self, Failure> {
        Self::open(path, false)?.map(|(found, _)| found).ok_or_else(|| unbegun(path))
    }

    /// Reads a record file that is to be written on, and locks it.
    ///
    /// # Errors
    /// When it is none that this program reads, or another program is writing it.
    pub(crate) fn read_to_go_on(path: &Path) -> Result<(Self, File), Failure> {
        Self::open(path, true)?.ok_or_else(|| unbegun(path))
    }

    /// The same; none when its program was killed before it had written the header.
    ///
    /// # Errors
    /// When it is none that this program reads, or another program is writing it.
    pub(crate) fn read_begun(path: &Path) -> Result<Option<(Self, File)>, Failure> {
        Self::open(path, true)
    }

    fn open(path: &Path, writes: bool) -> Result<Option<(Self, File)>, Failure> {
        let place = path.display();
        let file =
            File::options().read(true).write(writes).open(path).map_err(|error| match error.kind() {
                ErrorKind::NotFound => Failure::usage(format!("{place}: no such file")),
                _ => Failure::usage(format!("{place}: cannot be read: {error}")),
            })?;
        if writes && lock(&file).is_err() {
            return Err(ReportError::InUse(path.to_owned()).into());
        }
        let scanned = file.metadata().map(|meta| meta.len()).and_then(|length| scan(&file, length));
        match scanned {
            Ok(Ok((header, trials, length))) => {
                header.check_version(path)?;
                if Path::new(&header.name).file_name() != Some(OsStr::new(&header.name)) {
                    return Err(Failure::usage(format!("{place}: {:?} is no name of a run", header.name)));
                }
                Ok(Some((Self { path: path.to_owned(), header, trials, length }, file)))
            }
            Ok(Err(Refusal::Unbegun)) => Ok(None),
            Ok(Err(Refusal::Wrong(why))) => Err(Failure::usage(format!("{place}: {why}"))),
            Err(error) => Err(Failure::run(format!("{place}: cannot be read: {error}"))),
        }
    }
}

fn unbegun(path: &Path) -> Failure {
    let place = path.display();
    Failure::usage(format!(
        "{place}: holds nothing: its program was killed as it began; `run` again with --force"
    ))
}

/// Reads all frames of a record file of `length` bytes; the text says why it is none.
fn scan(file: impl Read, length: u64) -> io::Result<Result<Scanned, Refusal>> {
    let mut file = BufReader::with_capacity(1 << 16, file);
    let mut begin = Vec::new();
    file.by_ref().take(MAGIC.len() as u64 + 4).read_to_end(&mut begin)?;
    let Some((magic, format)) = begin.split_at_checked(MAGIC.len()) else {
        let is_ours = MAGIC.starts_with(&begin);
        return Ok(Err(if is_ours { Refusal::Unbegun } else { Refusal::none() }));
    };
    if magic != MAGIC {
        return Ok(Err(Refusal::none()));
    }
    let Ok(format) = format.try_into().map(u32::from_le_bytes) else { return Ok(Err(Refusal::Unbegun)) };
    if format != FORMAT {
        return Ok(Err(Refusal::Wrong(format!(
            "has format version {format}; this program reads version {FORMAT}"
        ))));
    }
    let mut at = begin.len() as u64;
    let mut end = at;
    let (mut header, mut trials, mut rows) = (None, BTreeMap::new(), BTreeSet::new());
    let mut content = Vec::new();
    loop {
        let left = length - at;
        let frame = next_frame(&mut file, left, &mut content)?;
        let block = (at + HEAD as u64, content.len() as u32);
        let is_good = match (frame, &header) {
            (Frame::Whole(HEADER), None) => {
                header = decode::<Header>(&content);
                header.is_some()
            }
            (Frame::Whole(ROWS), Some(_)) => {
                rows.insert(block);
                true
            }
            (Frame::Whole(TRIAL), Some(_)) => match decode::<(TrialKey, Trial)>(&content) {
                Some((key, trial))
                    if trial.is_of(key) && trial.blocks.iter().all(|block| rows.contains(block)) =>
                {
                    trials.insert(key, trial);
                    true
                }
                _ => false,
            },
            (Frame::Whole(_), _) | (Frame::Wrong, None) => false,
            // A program was killed in the middle of a write: nothing that is whole can follow.
            (Frame::Wrong | Frame::Cut, _) => {
                file.by_ref().take(SEARCHED).read_to_end(&mut content)?;
                if !has_frame(&content) {
                    break;
                }
                false
            }
        };
        if !is_good {
            return Ok(Err(Refusal::damaged(at)));
        }
        at += HEAD as u64 + u64::from(block.1);
        if !matches!(frame, Frame::Whole(ROWS)) {
            end = at;
        }
    }
    Ok(header.map(|header| (header, trials, end)).ok_or(Refusal::Unbegun))
}

/// Bytes behind a frame that is not whole in which another one is looked for.
const SEARCHED: u64 = 1 << 24;

/// What is at a place in a file.
#[derive(Clone, Copy)]
enum Frame {
    /// A frame of this kind.
    Whole(u8),
    /// One whose checksum is wrong.
    Wrong,
    /// The file ends before it does.
    Cut,
}

/// The next of the `left` bytes' frames, whose content goes to `content`.
fn next_frame(file: &mut impl Read, left: u64, content: &mut Vec<u8>) -> io::Result<Frame> {
    content.clear();
    if left < HEAD as u64 {
        return Ok(Frame::Cut);
    }
    let mut head = [0; HEAD];
    file.read_exact(&mut head)?;
    let [a, b, c, d, e, f, g, h, kind] = head;
    let (length, sum) = (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]));
    if u64::from(length) > left - HEAD as u64 {
        return Ok(Frame::Cut);
    }
    content.resize(length as usize, 0);
    file.read_exact(content)?;
    Ok(if checksum(kind, content) == sum { Frame::Whole(kind) } else { Frame::Wrong })
}

/// Whether a whole frame begins anywhere in `bytes`.
fn has_frame(bytes: &[u8]) -> bool {
    bytes.windows(HEAD).enumerate().any(|(at, head)| {
        let (length, sum) = ([head[0], head[1], head[2], head[3]], [head[4], head[5], head[6], head[7]]);
        let content = &bytes[at + HEAD..];
        let content = content.get(..u32::from_le_bytes(length) as usize);
        head[8] <= TRIAL && content.is_some_and(|content| checksum(head[8], content).to_le_bytes() == sum)
    })
}

fn checksum(kind: u8, content: &[u8]) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    sum.update(&[kind]);
    sum.update(content);
    sum.finalize()
}

fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    postcard::take_from_bytes(bytes).ok().filter(|(_, rest)| rest.is_empty()).map(|(value, _)| value)
}

fn encoded(value: &impl Serialize) -> io::Result<Vec<u8>> {
    postcard::to_extend(value, Vec::new()).map_err(io::Error::other)
}

/// Keeps others from writing the file while it is open. Where files cannot be locked, they are not.
fn lock(file: &File) -> Result<(), ()> {
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => Err(()),
        Ok(()) | Err(TryLockError::Error(_)) => Ok(()),
    }
}

/// A record file that is being written.
#[derive(Debug)]
pub(crate) struct Records {
    path: PathBuf,
    kept: Mutex<Kept>,
}

#[derive(Debug)]
struct Kept {
    file: File,
    length: u64,
    /// Rows of the trials that ended.
    rows: BTreeMap<TrialKey, Vec<Block>>,
    /// Why trials are missing.
    failed: Option<io::Error>,
}

impl Records {
    /// A new file, over an earlier one.
    ///
    /// # Errors
    /// When the system refuses, or another program is writing it.
    pub(crate) fn create(path: &Path, header: &Header) -> Result<Self, ReportError> {
        let failed = |doing| move |error| ReportError::Io { doing, path: path.to_owned(), error };
        let file = File::options().read(true).write(true).create(true).truncate(false).open(path);
        let file = file.map_err(failed("create"))?;
        lock(&file).map_err(|()| ReportError::InUse(path.to_owned()))?;
        let write = || {
            file.set_len(0)?;
            (&file).write_all(MAGIC)?;
            (&file).write_all(&FORMAT.to_le_bytes())?;
            encoded(header)
        };
        let header = write().map_err(failed("write"))?;
        let length = MAGIC.len() as u64 + 4;
        let mut kept = Kept { file, length, rows: BTreeMap::new(), failed: None };
        kept.append(HEADER, &header);
        match kept.failed.take() {
            Some(error) => Err(failed("write")(error)),
            None => Ok(Self { path: path.to_owned(), kept: Mutex::new(kept) }),
        }
    }

    /// Goes on after the last trial of a file, and gives its trials.
    ///
    /// # Errors
    /// When the system refuses.
    pub(crate) fn go_on(
        found: Found,
        mut file: File,
    ) -> Result<(Self, BTreeMap<TrialKey, Trial>), ReportError> {
        let Found { path, trials, length, .. } = found;
        let ready = file.set_len(length).and_then(|()| file.seek(SeekFrom::Start(length)));
        ready.map_err(|error| ReportError::Io { doing: "write", path: path.clone(), error })?;
        let rows = trials.iter().map(|(key, trial)| (*key, trial.blocks.clone())).collect();
        let kept = Kept { file, length, rows, failed: None };
        Ok((Self { path, kept: Mutex::new(kept) }, trials))
    }

    /// What takes what a trial gives. When that cannot be written, `stop` is set: trials that cannot be kept are not run.
    pub(crate) fn trial<'a>(&'a self, key: TrialKey, stop: &'a AtomicBool) -> TrialRecorder<'a> {
        TrialRecorder { records: self, key, stop, block: RefCell::default(), blocks: RefCell::default() }
    }

    /// Takes all trials of another file of the same run.
    ///
    /// # Errors
    /// When that cannot be read.
    pub(crate) fn copy(&self, found: &Found) -> Result<(), ReportError> {
        let stop = AtomicBool::new(false);
        for (key, trial) in &found.trials {
            let recorder = self.trial(*key, &stop);
            for block in &trial.blocks {
                let rows = read(&found.path, *block);
                let unreadable = |error| ReportError::Io { doing: "read", path: found.path.clone(), error };
                recorder.block.replace(rows.map_err(unreadable)?);
                recorder.flush();
            }
            recorder.finish(&trial.result.clone().map(Some));
        }
        Ok(())
    }

    /// The rows of the trials that ended.
    ///
    /// # Errors
    /// When something could not be written.
    pub(crate) fn into_rows(self) -> Result<FlowBlocks, ReportError> {
        let Kept { file, rows, failed, .. } = self.kept.into_inner().unwrap_or_else(PoisonError::into_inner);
        match failed {
            Some(error) => Err(ReportError::Io { doing: "write", path: self.path, error }),
            None => Ok(FlowBlocks::new([(self.path, rows)], Some(file))),
        }
    }
}

impl Kept {
    /// Writes a frame, all of it or nothing, and gives where its content is. After a failure nothing more is written.
    fn append(&mut self, kind: u8, content: &[u8]) -> Option<Block> {
        if self.failed.is_some() {
            return None;
        }
        let written = u32::try_from(content.len()).map_err(io::Error::other).and_then(|length| {
            let mut head = [0; HEAD];
            head[..4].copy_from_slice(&length.to_le_bytes());
            head[4..8].copy_from_slice(&checksum(kind, content).to_le_bytes());
            head[8] = kind;
            self.file.write_all(&head)?;
            self.file.write_all(content)?;
            Ok(length)
        });
        match written {
            Ok(length) => {
                let begin = self.length + HEAD as u64;
                self.length = begin + u64::from(length);
                Some((begin, length))
            }
            Err(error) => {
                // A reader of the file also skips an incomplete frame.
                let _ = self.file.set_len(self.length);
                self.failed = Some(error);
                None
            }
        }
    }
}

/// Takes what a trial gives.
pub(crate) struct TrialRecorder<'a> {
    records: &'a Records,
    key: TrialKey,
    stop: &'a AtomicBool,
    block: RefCell<Vec<u8>>,
    blocks: RefCell<Vec<Block>>,
}

impl TrialRecorder<'_> {
    /// Takes a row of flows.
    pub(crate) fn push(&self, row: &FlowRecord) {
        let block = encode(row, self.block.take());
        let is_full = block.len() >= BLOCK;
        self.block.replace(block);
        if is_full {
            self.flush();
        }
    }

    /// The trial has ended; nothing is kept of one that was stopped.
    pub(crate) fn finish(self, result: &TrialResult) {
        self.flush();
        let result = match result {
            Ok(Some(record)) => Ok(record),
            Ok(None) => return,
            Err(why) => Err(why),
        };
        let blocks = self.blocks.take();
        // The same as of a `Trial`, without a copy of the record.
        let content = encoded(&(self.key, (result, &blocks)));
        let mut kept = self.records.kept.lock().unwrap_or_else(PoisonError::into_inner);
        match content {
            Ok(content) => {
                if kept.append(TRIAL, &content).is_some() {
                    kept.rows.insert(self.key, blocks);
                }
            }
            Err(error) => kept.failed = Some(error),
        }
        self.stop_if_failed(&kept);
    }

    fn stop_if_failed(&self, kept: &Kept) {
        if kept.failed.is_some() {
            self.stop.store(true, Ordering::SeqCst);
        }
    }

    fn flush(&self) {
        let mut block = self.block.borrow_mut();
        if !block.is_empty() {
            let mut kept = self.records.kept.lock().unwrap_or_else(PoisonError::into_inner);
            self.blocks.borrow_mut().extend(kept.append(ROWS, &block));
            self.stop_if_failed(&kept);
        }
        block.clear();
    }
}

/// Whether a folder holds records of a run that was not completed.
pub(crate) fn are_in(folder: &Path) -> bool {
    folder.join(FILE).exists()
}

/// Refuses a record file that another program is writing.
pub(crate) fn check_unused(path: &Path) -> Result<(), ReportError> {
    match File::options().write(true).open(path) {
        Ok(file) if lock(&file).is_err() => Err(ReportError::InUse(path.to_owned())),
        _ => Ok(()),
    }
}

/// Removes the record file of a folder, when there is one.
pub(crate) fn remove(folder: &Path) -> Result<(), ReportError> {
    let path = folder.join(FILE);
    match fs::remove_file(&path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(ReportError::Io { doing: "remove", path, error })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use bandmaster_core::report::{Distribution, Series, Work};
    use bandmaster_core::time::Span;
    use bandmaster_fuzz::{Corpus, INPUTS, Source, Target, turn};

    use super::*;
    use crate::report::tests::Scratch;

    fn header() -> Header {
        Header::new("name", "Title", &["run".to_owned()], &[])
    }

    fn record(trial: u32) -> RunRecord {
        RunRecord {
            case: 0,
            trial,
            metrics: vec![("throughput".to_owned(), -0.0), ("burst.jain".to_owned(), f64::MIN_POSITIVE)],
            series: vec![Series {
                entity: "all".to_owned(),
                metric: "queue",
                values: vec![f32::MAX, -0.0, f32::INFINITY],
            }],
            distributions: vec![Distribution { metric: "fct", quantiles: vec![0.1; 3] }],
            sample: Span::from_millis(100),
            work: Work { events: u64::MAX, packet_hops: 1 },
        }
    }

    /// A file of three trials: a record, a failure, and one that was stopped.
    fn written(scratch: &Scratch) -> Vec<u8> {
        let path = scratch.path().join(FILE);
        let records = Records::create(&path, &header()).unwrap();
        let stop = AtomicBool::new(false);
        for (trial, result) in
            [Ok(Some(record(0))), Err(TrialError::Failed("too much".to_owned())), Ok(None)].iter().enumerate()
        {
            let recorder = records.trial((0, 0, trial as u32), &stop);
            recorder.block.borrow_mut().extend([7; 10]);
            recorder.finish(result);
        }
        drop(records);
        fs::read(path).unwrap()
    }

    #[test]
    fn trials_come_back_bit_by_bit_and_go_on() {
        let scratch = Scratch::new("records");
        written(&scratch);
        let path = scratch.path().join(FILE);
        let (found, file) = Found::read_to_go_on(&path).unwrap();
        assert_eq!(found.header, header());
        let keys: Vec<_> = found.trials.keys().copied().collect();
        assert_eq!(keys, [(0, 0, 0), (0, 0, 1)], "what was stopped is no trial");
        let first = found.trials[&(0, 0, 0)].result.clone().unwrap();
        assert_eq!(first, record(0));
        assert!(first.metrics[0].1.is_sign_negative() && first.series[0].values[1].is_sign_negative());
        assert_eq!(found.trials[&(0, 0, 1)].result, Err(TrialError::Failed("too much".to_owned())));

        assert!(Found::read_to_go_on(&path).unwrap_err().message.contains("another bandmaster is writing"));
        let (records, trials) = Records::go_on(found, file).unwrap();
        assert_eq!(trials.len(), 2);
        records.trial((0, 0, 1), &AtomicBool::new(false)).finish(&Ok(Some(record(1))));
        drop(records);
        let found = Found::read(&path).unwrap();
        assert_eq!(found.trials[&(0, 0, 1)].result, Ok(record(1)), "the last word counts");
        assert_eq!(found.trials.len(), 2);
    }

    /// Of every length, a file gives the trials whose frames are whole, or says that none had begun.
    #[test]
    fn a_file_that_is_cut_anywhere_gives_what_is_whole() {
        let scratch = Scratch::new("cut-records");
        let bytes = written(&scratch);
        let mut least = None;
        for cut in 0..=bytes.len() {
            let found = scan(&bytes[..cut], cut as u64).unwrap();
            let count = match found {
                Ok((_, trials, end)) => {
                    assert!(end <= cut as u64);
                    Some(trials.len())
                }
                Err(why) => {
                    assert_eq!(why, Refusal::Unbegun, "{cut}");
                    None
                }
            };
            assert!(count >= least, "{cut}: {count:?} after {least:?}");
            least = count;
        }
        assert_eq!(least, Some(2));
    }

    /// A bit that is wrong anywhere before the last frame is damage, and no program that was killed.
    #[test]
    fn a_wrong_bit_before_whole_frames_is_refused() {
        let scratch = Scratch::new("bent-records");
        let path = scratch.path().join(FILE);
        written(&scratch);
        let (found, file) = Found::read_to_go_on(&path).unwrap();
        Records::go_on(found, file).unwrap();
        let bytes = fs::read(&path).unwrap();
        let last = encoded(&(
            (0_usize, 0_usize, 1_u32),
            Trial { result: Err(TrialError::Failed("too much".to_owned())), blocks: vec![(0, 10)] },
        ));
        let last = bytes.len() - last.unwrap().len() - HEAD - 8;
        for at in MAGIC.len() + 4..last {
            let mut bent = bytes.clone();
            bent[at] ^= 1 << (at % 8);
            let refusal = scan(&bent[..], bent.len() as u64).unwrap().unwrap_err();
            assert!(
                matches!(&refusal, Refusal::Wrong(why) if why.starts_with("is damaged at byte ")),
                "{at}"
            );
        }
        // Blocks that a power failure left unwritten are as if they were cut off.
        let mut zeros = bytes.clone();
        zeros.extend([0; 4096]);
        assert_eq!(scan(&zeros[..], zeros.len() as u64).unwrap().unwrap().2, bytes.len() as u64);
    }

    #[test]
    fn a_name_that_leads_out_of_the_folder_is_refused() {
        let scratch = Scratch::new("named-records");
        let path = scratch.path().join(FILE);
        for name in ["/home/x", "../..", "..", "", "a/"] {
            drop(Records::create(&path, &Header { name: name.to_owned(), ..header() }).unwrap());
            let failure = Found::read(&path).unwrap_err();
            assert!(failure.message.ends_with(" is no name of a run"), "{}", failure.message);
        }
    }

    #[test]
    fn records_of_anybody_are_read_or_refused() {
        let turn = turn();
        let scratch = Scratch::new("fuzz-records");
        let bytes = written(&scratch);
        let corpus = Corpus::new(vec![bytes.clone()], []);
        // Sums that are right lead the reader on.
        let mend = |bytes: &mut Vec<u8>| {
            let mut at = MAGIC.len() + 4;
            while let Some(head) = bytes.get(at..at + HEAD) {
                let length = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
                let Some(content) = bytes.get(at + HEAD..at + HEAD + length) else { break };
                let sum = checksum(head[8], content).to_le_bytes();
                bytes[at + 4..at + 8].copy_from_slice(&sum);
                at += HEAD + length;
            }
        };
        let make = |source: &mut Source| {
            let mut input = corpus.mutate(source);
            if source.once_in(2) {
                mend(&mut input);
            }
            input
        };
        let read = |input: &[u8]| drop(scan(input, input.len() as u64).unwrap());
        Target { name: "records", inputs: (INPUTS, 20_000), memory: 64 << 20, make: &make, read: &read }
            .fuzz(&turn);
    }

    #[test]
    fn an_emulation_differs_from_a_run() {
        let of =
            |command: &str| Header::new("name", "Title", &[command.to_owned(), "a.toml".to_owned()], &[]);
        let (run, lab) = (of("run"), of("emulate"));
        assert!(lab.is_of_lab() && !run.is_of_lab());
        assert_eq!(run.difference(&lab).as_deref(), Some("the commands run and emulate"));
        assert_eq!(lab.difference(&run).as_deref(), Some("the commands emulate and run"));
        assert_eq!(lab.difference(&of("emulate")), None);
    }

    #[test]
    fn a_part_is_a_number_of_a_count() {
        assert_eq!("3/64".parse(), Ok(Part { number: 3, count: 64 }));
        for wrong in ["", "3", "0/3", "4/3", "1/0", "1/2/3", " 1/2", "1/99999999999"] {
            assert!(wrong.parse::<Part>().is_err(), "{wrong}");
        }
    }
}
