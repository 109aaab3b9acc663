//! Reads and sets the TCP of a host's connections, whatever program they belong to.
//!
//! A BPF program on a control group sets new connections, separately for each network namespace. Another one iterates over all
//! connections of the calling thread's namespace; it reads and sets live ones. The kernel removes both when the process ends,
//! for whatever reason. While the process lives, it keeps a connection's earlier settings, which can be restored.

mod connection;
mod ends;
mod settings;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use aya::Ebpf;
use aya::maps::{Array, HashMap, MapData, MapError, RingBuf};
use aya::programs::{
    CgroupAttachMode, CgroupSkb, CgroupSkbAttachType, Iter, SchedClassifier, SockOps, TestRun, TestRunOptions,
};
use bandmaster_core::sketch::collect::Ended;
use tracing::warn;

use super::{NoProgram, load, map, program, refused, types};
use crate::syscall;
use connection::ROW;
use settings::SETTINGS;

pub use connection::{Before, Connection};
pub(crate) use settings::{FEWEST_TICKS, HIGHEST_LEAST_TIMEOUT};
pub use settings::{Settings, Translation, tick};

static OBJECT: &[u8] = aya::include_bytes_aligned!("../../bpf/tcp.o");

const BEGINS: &str = "begins";
const LOOKS: &str = "looks";
const PASSES: &str = "passes";
const COMES: &str = "comes";

/// What is done in a namespace: the same as in `bpf/tcp.c`.
const RECORD: u32 = 1;
const FOLLOW: u32 = 2;
const WATCH: u32 = 4;

/// Number of the file that is the root of all control groups.
const ROOT_GROUP: u64 = 1;

/// Bytes of a congestion control's name.
const NAME: usize = 16;
const OUTCOME: usize = 24;
/// Bytes of `struct addresses`.
const ADDRESSES: usize = 40;
/// Places in the map of what is wanted.
const GIVES_BACK: u32 = 0;
const ALL: u32 = 1;
const WATCHED: u32 = 2;
/// Place of rows in the map of what was missed.
const ROWS: u32 = 1;

/// With more connections than these, a [look](HostTcp::look) reads the kernel's whole table. As in `bpf/tcp.c`.
const MOST_WATCHED: usize = 2048;
/// So many looks at watched connections go by before one reads the kernel's whole table, for those that began unseen.
const PASSES_IN_TURN: u32 = 9;

/// As many bytes, in the order of this machine, as in `bpf/tcp.c`.
type SettingsMap = HashMap<MapData, u64, [u8; SETTINGS]>;
type Outcomes = Array<MapData, [u8; OUTCOME]>;

/// Kinds of settings, in the order of `bpf/tcp.c`.
pub const KINDS: [&str; 8] = [
    "congestion control",
    "initial window",
    "least timeout",
    "first timeout",
    "window cap",
    "pace",
    "receive window",
    "first offer",
];

/// How often the kernel applied a kind of setting, and how often it refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Outcome {
    /// Times that it did.
    pub done: u64,
    /// Times that it did not.
    pub refused: u64,
    /// The last error, as an `errno` number; 0: none.
    pub error: i32,
}

/// Of a namespace whose connections are watched.
struct Watched {
    namespace: u64,
    /// They are few enough.
    is_on: bool,
    /// All that are there are watched, as of the last reading of the whole table.
    is_whole: bool,
    /// How often they may be looked up before the whole table is read.
    passes: u32,
    /// Rows that were missed, as of the last reading of the whole table.
    missed: u64,
    /// Listening sockets, as of that.
    listening: Vec<Connection>,
    /// Those that the last look has shown, in order.
    shown: Vec<u64>,
}

/// The programs in the kernel; they end with this.
pub struct HostTcp {
    kernel: Ebpf,
    settings: SettingsMap,
    live: SettingsMap,
    wants: Array<MapData, u32>,
    outcomes: Outcomes,
    recorded: HashMap<MapData, u64, u32>,
    ends: RingBuf<MapData>,
    news: RingBuf<MapData>,
    windows: HashMap<MapData, u64, u32>,
    missed: Array<MapData, u64>,
    rows: RingBuf<MapData>,
    addresses: HashMap<MapData, u64, [u8; ADDRESSES]>,
    /// A program sees every connection of the machine begin.
    sees_all: bool,
    /// Whether the kernel takes the program that looks connections up.
    can_pass: Result<(), NoProgram>,
    watched: Option<Watched>,
    /// Connections that are set at each look.
    set: BTreeSet<u64>,
    /// Those of `missed` that were reported already.
    told_missed: u64,
}

impl HostTcp {
    /// Lets the kernel check the program for connections that begin; nothing is set yet.
    ///
    /// # Errors
    /// Why it does not take it.
    pub fn load() -> Result<Self, NoProgram> {
        let mut new = Self::maps()?;
        program::<SockOps>(&mut new.kernel, BEGINS)?.load().map_err(refused)?;
        Ok(new)
    }

    fn maps() -> Result<Self, NoProgram> {
        let mut kernel = load(OBJECT)?;
        let settings = HashMap::try_from(map(&mut kernel, "SETTINGS")?).map_err(refused)?;
        let live = HashMap::try_from(map(&mut kernel, "LIVE")?).map_err(refused)?;
        let wants = Array::try_from(map(&mut kernel, "WANTS")?).map_err(refused)?;
        let outcomes = Array::try_from(map(&mut kernel, "OUTCOMES")?).map_err(refused)?;
        let recorded = HashMap::try_from(map(&mut kernel, "RECORDED")?).map_err(refused)?;
        let ends = RingBuf::try_from(map(&mut kernel, "ENDS")?).map_err(refused)?;
        let news = RingBuf::try_from(map(&mut kernel, "NEWS")?).map_err(refused)?;
        let windows = HashMap::try_from(map(&mut kernel, "WINDOWS")?).map_err(refused)?;
        let missed = Array::try_from(map(&mut kernel, "MISSED")?).map_err(refused)?;
        let rows = RingBuf::try_from(map(&mut kernel, "ROWS")?).map_err(refused)?;
        let addresses = HashMap::try_from(map(&mut kernel, "WATCHED")?).map_err(refused)?;
        Ok(Self {
            kernel,
            settings,
            live,
            wants,
            outcomes,
            recorded,
            ends,
            news,
            windows,
            missed,
            rows,
            addresses,
            sees_all: false,
            can_pass: Err(NoProgram::new("it was not loaded".to_owned())),
            watched: None,
            set: BTreeSet::new(),
            told_missed: 0,
        })
    }

    /// Lets the kernel check the program for live connections too. Takes 0.3 to 2 s.
    ///
    /// # Errors
    /// Why it does not take it.
    pub fn load_live(&mut self) -> Result<(), NoProgram> {
        program::<Iter>(&mut self.kernel, LOOKS)?.load("tcp", &types()?).map_err(refused)?;
        self.can_pass = program::<SchedClassifier>(&mut self.kernel, PASSES)?.load().map_err(refused);
        Ok(())
    }

    /// The program for live connections alone.
    ///
    /// # Errors
    /// Why the kernel does not take it.
    pub fn only_live() -> Result<Self, NoProgram> {
        let mut new = Self::maps()?;
        new.load_live()?;
        Ok(new)
    }

    /// From now on connections are set that programs in `group` begin or accept, and in all groups below.
    ///
    /// # Errors
    /// Why the kernel does not do so.
    pub fn attach(&mut self, group: &Path) -> Result<(), NoProgram> {
        let folder =
            File::open(group).map_err(|error| NoProgram::new(format!("{}: {error}", group.display())))?;
        let begins = program::<SockOps>(&mut self.kernel, BEGINS)?;
        // A link of the kernel's always lets others be.
        begins.attach(folder, CgroupAttachMode::Single).map_err(refused)?;
        // The root of all groups, not that of a container.
        self.sees_all = fs::metadata(group).is_ok_and(|folder| folder.ino() == ROOT_GROUP);
        Ok(())
    }

    /// Connections that begin in a [network namespace](namespace) get these settings, instead of all earlier ones.
    ///
    /// # Errors
    /// Why the kernel does not do so.
    pub fn tune(&mut self, namespace: u64, settings: &Settings) -> Result<(), NoProgram> {
        if *settings == Settings::default() {
            return forget(&mut self.settings, namespace);
        }
        self.settings.insert(namespace, settings.bytes(), 0).map_err(refused)
    }

    /// A connection gets these settings at the next [`look`](Self::look), and at each after that.
    ///
    /// # Errors
    /// Why the kernel does not do so.
    pub fn set(&mut self, cookie: u64, settings: &Settings) -> Result<(), NoProgram> {
        self.set.insert(cookie);
        self.live.insert(cookie, settings.bytes(), 0).map_err(refused)
    }

    /// A connection is left as it is.
    ///
    /// # Errors
    /// Why the kernel does not do so.
    pub fn leave(&mut self, cookie: u64) -> Result<(), NoProgram> {
        self.set.remove(&cookie);
        forget(&mut self.live, cookie)
    }

    /// From now on a [`look`](Self::look) costs what there are connections. Each is from within this [network
    /// namespace](namespace), as is this call. Needs [`load_live`](Self::load_live), and an [`attach`](Self::attach) to the root
    /// of all control groups: what begins unseen is shown up to nine looks late.
    ///
    /// # Errors
    /// Why the kernel does not do so; looks go on to read its whole table.
    pub fn watch(&mut self, namespace: u64) -> Result<(), NoProgram> {
        if !self.sees_all {
            return Err(NoProgram::new("no program sees all connections begin".to_owned()));
        }
        self.can_pass.clone()?;
        self.pass()?;
        self.set_watching(namespace, true)?;
        let (missed, listening, shown) = (0, Vec::new(), Vec::new());
        self.watched =
            Some(Watched { namespace, is_on: true, is_whole: false, passes: 0, missed, listening, shown });
        Ok(())
    }

    fn set_watching(&mut self, namespace: u64, on: bool) -> Result<(), NoProgram> {
        let before = self.recorded.get(&namespace, 0).unwrap_or(0) & !WATCH;
        self.recorded.insert(namespace, if on { before | WATCH } else { before }, 0).map_err(refused)?;
        self.wants.set(WATCHED, u32::from(on), 0).map_err(refused)
    }

    /// Sets the connections of the calling thread's namespace that are to be set, and tells of all that carry data, or were set
    /// when they began.
    ///
    /// # Errors
    /// Why the kernel does not do so.
    pub fn look(&mut self) -> Result<Vec<Connection>, NoProgram> {
        if self.set.is_empty()
            && let Some(watched) = self.watched.as_mut().filter(|watched| watched.is_whole)
            && let Some(left) = watched.passes.checked_sub(1)
        {
            watched.passes = left;
            match self.look_up() {
                Ok(Some(all)) => return Ok(all),
                Ok(None) => {}
                Err(why) => {
                    warn!(%why, "from now on each look at the connections reads the kernel's whole table of them");
                    if let Some(watched) = self.watched.take() {
                        self.set_watching(watched.namespace, false)?;
                    }
                }
            }
        }
        let before = self.missed.get(&ROWS, 0).map_err(refused)?;
        let all = self.look_through_table()?;
        let missed = self.missed.get(&ROWS, 0).map_err(refused)?;
        let Some(watched) = &mut self.watched else { return Ok(all) };
        let (was_on, namespace) = (watched.is_on, watched.namespace);
        watched.missed = missed;
        watched.is_on = all.len() <= MOST_WATCHED;
        watched.is_whole = was_on && watched.is_on && missed == before;
        watched.passes = PASSES_IN_TURN;
        watched.listening = all.iter().filter(|one| is_listening(one)).cloned().collect();
        watched.shown = cookies(all.iter().filter(|one| !is_listening(one)));
        if watched.is_on != was_on {
            self.set_watching(namespace, !was_on)?;
        }
        Ok(all)
    }

    /// Tells of the connections that are [watched](Self::watch), without reading the kernel's table. None: it has to be read, since
    /// connections are many or bound to an interface, a socket has begun to listen, or one is missing that has not closed.
    ///
    /// # Errors
    /// Why the kernel does not do so.
    pub fn look_up(&mut self) -> Result<Option<Vec<Connection>>, NoProgram> {
        self.pass()?;
        let mut all = connections(&mut self.rows);
        let missed = self.missed.get(&ROWS, 0).map_err(refused)?;
        let is_whole = |watched: &&mut Watched| watched.is_whole && missed == watched.missed;
        let Some(watched) = self.watched.as_mut().filter(is_whole) else { return Ok(None) };
        let shown = cookies(&all);
        // The kernel's walk goes on in another place when an entry is used again under it: it may have missed some, or met them
        // twice.
        let has_closed = |cookie: &u64| is_missing(&self.addresses, *cookie);
        let is_known = |cookie: &u64| shown.binary_search(cookie).is_ok() || has_closed(cookie);
        if shown.windows(2).any(|two| two[0] == two[1]) || !watched.shown.iter().all(is_known) {
            return Ok(None);
        }
        watched.shown = shown;
        all.retain(|one| one.carries || one.before.is_some());
        all.extend_from_slice(&watched.listening);
        Ok(Some(all))
    }

    /// Lets the program look up the connections that are watched.
    fn pass(&mut self) -> Result<(), NoProgram> {
        const ETHERNET: [u8; 14] = [0; 14];
        let passes: &mut SchedClassifier = program(&mut self.kernel, PASSES)?;
        let options = TestRunOptions { data_in: Some(&ETHERNET), ..TestRunOptions::new() };
        passes.test_run(options).map_err(refused).map(drop)
    }

    fn look_through_table(&mut self) -> Result<Vec<Connection>, NoProgram> {
        let looks = program::<Iter>(&mut self.kernel, LOOKS)?;
        let link = looks.attach().map_err(refused)?;
        let mut file = looks.take_link(link).map_err(refused)?.into_file().map_err(refused)?;
        let mut rows = Vec::new();
        file.read_to_end(&mut rows).map_err(refused)?;
        let (rows, _) = rows.as_chunks::<ROW>();
        let tick = tick();
        Ok(rows.iter().map(|row| Connection::parse(row, tick)).collect())
    }

    /// Gives all connections of the calling thread's namespace, and listening sockets, what they had before they were set when
    /// they began. What others have set since stays.
    ///
    /// # Errors
    /// Why the kernel does not do so.
    pub fn give_back(&mut self) -> Result<(), NoProgram> {
        let micros = u32::try_from(tick().as_nanos() / 1000).unwrap_or(u32::MAX);
        self.look_wanting(GIVES_BACK, micros).map(drop)
    }

    /// As [`look`](Self::look), with all listening sockets.
    ///
    /// # Errors
    /// Why the kernel does not do so.
    pub fn look_at_all(&mut self) -> Result<Vec<Connection>, NoProgram> {
        self.look_wanting(ALL, 1)
    }

    fn look_wanting(&mut self, what: u32, value: u32) -> Result<Vec<Connection>, NoProgram> {
        self.wants.set(what, value, 0).map_err(refused)?;
        let looked = self.look_through_table();
        if let Some(watched) = &mut self.watched {
            // What is given back is set no more.
            watched.is_whole = false;
        }
        self.wants.set(what, 0, 0).map_err(refused)?;
        looked
    }

    /// From now on, [`ends`](Self::ends) reports connections that begin in a [network namespace](namespace) once they have ended.
    ///
    /// # Errors
    /// Why the kernel does not do so.
    pub fn record(&mut self, namespace: u64) -> Result<(), NoProgram> {
        self.also_do(namespace, RECORD)
    }

    /// From now on segments are seen that come to programs in `group`, which is [attached](Self::attach).
    ///
    /// # Errors
    /// Why the kernel does not do so.
    pub fn hear(&mut self, group: &Path) -> Result<(), NoProgram> {
        let folder =
            File::open(group).map_err(|error| NoProgram::new(format!("{}: {error}", group.display())))?;
        let comes = program::<CgroupSkb>(&mut self.kernel, COMES)?;
        comes.load().map_err(refused)?;
        comes.attach(folder, CgroupSkbAttachType::Ingress, CgroupAttachMode::Single).map_err(refused)?;
        Ok(())
    }

    /// From now on connections of programs that are [heard](Self::hear) and begin in a [network namespace](namespace) are
    /// followed: there is [news](Self::news) when one has become a flow, and when that ends, round-trip times are measured where
    /// data come, and [windows](Self::set_window) stay.
    ///
    /// # Errors
    /// Why the kernel does not do so.
    pub fn follow(&mut self, namespace: u64) -> Result<(), NoProgram> {
        self.also_do(namespace, FOLLOW)
    }

    fn also_do(&mut self, namespace: u64, what: u32) -> Result<(), NoProgram> {
        let before = self.recorded.get(&namespace, 0).unwrap_or(0);
        self.recorded.insert(namespace, before | what, 0).map_err(refused)
    }

    /// Connections that are [followed](Self::follow) and have become flows since the last time, or, where they carry nothing,
    /// are none any more.
    pub fn news(&mut self) -> Vec<Connection> {
        connections(&mut self.news)
    }

    /// A connection that is [followed](Connection::followed) offers no more than a window of so many bytes, from its next
    /// acknowledgement on.
    ///
    /// # Errors
    /// Why the kernel does not do so.
    pub fn set_window(&mut self, cookie: u64, window: u32) -> Result<(), NoProgram> {
        self.windows.insert(cookie, window, 0).map_err(refused)
    }

    /// A connection's window is left as it is.
    ///
    /// # Errors
    /// Why the kernel does not do so.
    pub fn leave_window(&mut self, cookie: u64) -> Result<(), NoProgram> {
        forget(&mut self.windows, cookie)
    }

    /// Readable when there is news.
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.news.as_fd()
    }

    /// Connections that have ended since the last time, and how many more there were.
    ///
    /// # Errors
    /// Why the kernel does not say.
    pub fn ends(&mut self) -> Result<(Vec<Ended>, u64), NoProgram> {
        let mut all = Vec::new();
        while let Some(row) = self.ends.next() {
            all.extend(row.first_chunk().map(ends::parse));
        }
        let missed = self.missed.get(&0, 0).map_err(refused)?;
        let more = missed.saturating_sub(std::mem::replace(&mut self.told_missed, missed));
        Ok((all, more))
    }

    /// What became of the settings so far, in the order of [`KINDS`].
    ///
    /// # Errors
    /// Why the kernel does not say.
    pub fn outcomes(&self) -> Result<[Outcome; KINDS.len()], NoProgram> {
        outcomes(&self.outcomes)
    }
}

fn is_listening(connection: &Connection) -> bool {
    connection.remote.1 == 0
}

/// In order.
fn cookies<'a>(all: impl IntoIterator<Item = &'a Connection>) -> Vec<u64> {
    let mut all: Vec<u64> = all.into_iter().map(|one| one.cookie).collect();
    all.sort_unstable();
    all
}

/// Whether the kernel has no entry for this key.
fn is_missing<V: aya::Pod>(map: &HashMap<MapData, u64, V>, key: u64) -> bool {
    matches!(map.get(&key, 0), Err(MapError::KeyNotFound))
}

/// Those in a ring, each as a `struct row`.
fn connections(ring: &mut RingBuf<MapData>) -> Vec<Connection> {
    let tick = tick();
    let mut all = Vec::new();
    while let Some(row) = ring.next() {
        all.extend(row.first_chunk().map(|row| Connection::parse(row, tick)));
    }
    all
}

fn outcomes(map: &Outcomes) -> Result<[Outcome; KINDS.len()], NoProgram> {
    let mut all = [Outcome::default(); KINDS.len()];
    for (number, outcome) in (0..).zip(&mut all) {
        let bytes = map.get(&number, 0).map_err(refused)?;
        let u64_at = |at: usize| u64::from_ne_bytes(std::array::from_fn(|i| bytes[at + i]));
        let said = i32::from_ne_bytes(std::array::from_fn(|i| bytes[16 + i]));
        *outcome = Outcome { done: u64_at(0), refused: u64_at(8), error: -said };
    }
    Ok(all)
}

fn forget<V: aya::Pod>(map: &mut HashMap<MapData, u64, V>, key: u64) -> Result<(), NoProgram> {
    match map.remove(&key) {
        Ok(()) | Err(MapError::KeyNotFound) => Ok(()),
        Err(MapError::SyscallError(error)) if error.io_error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(refused(error)),
    }
}

/// The number of the calling thread's network namespace, as programs in the kernel see it.
///
/// # Errors
/// When no socket can be made there, or the kernel is older than 5.14.
pub fn namespace() -> io::Result<u64> {
    syscall::namespace_cookie()
}

/// The control group below which every process of this machine is: where cgroup2 is mounted.
///
/// # Errors
/// When it is mounted nowhere.
pub fn control_groups() -> Result<PathBuf, NoProgram> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let place = mounts.lines().find_map(|line| {
        let mut words = line.split(' ').skip(1);
        let place = words.next()?;
        (words.next() == Some("cgroup2")).then(|| PathBuf::from(place))
    });
    place.ok_or_else(|| {
        NoProgram::new("cgroup2 is not mounted (mount -t cgroup2 none /sys/fs/cgroup)".to_owned())
    })
}
