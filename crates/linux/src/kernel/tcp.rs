//! The TCP of hosts: sets it, whatever program a connection belongs to, and reads it.
//!
//! Connections that begin are set by a program on a control group, for each network namespace on its own. Live ones are
//! read, and set, by a program that goes over all of the calling thread's namespace. Both end with the process, whatever ends
//! it; what they have set on a live connection stays.

use std::fs::{self, File};
use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};

use aya::Ebpf;
use aya::maps::{Array, HashMap, MapData, MapError};
use aya::programs::{CgroupAttachMode, Iter, SockOps};
use bandmaster_core::time::Span;
use bandmaster_core::tuning::Tuning;
use nix::time::{ClockId, clock_getres};

use super::{NoProgram, load, map, program, refused, types};
use crate::limits::kernel_name;
use crate::netns::parameter;
use crate::syscall;

static OBJECT: &[u8] = aya::include_bytes_aligned!("../../bpf/tcp.o");

const BEGINS: &str = "begins";
const LOOKS: &str = "looks";

const NAME: usize = 16;
const SETTINGS: usize = NAME + 6 * 4;
const OUTCOME: usize = 24;
const ROW: usize = 128;

/// A pace without a limit of its own: the kernel then spaces segments over the round-trip time.
const PACED: u32 = u32::MAX - 1;
/// Least and most that the kernel takes for the least retransmission timeout: two ticks, and `TCP_RTO_MIN`.
const FEWEST_TICKS: u64 = 2;
const HIGHEST_LEAST_TIMEOUT: Span = Span::from_millis(200);

/// As many bytes, in the order of this machine, as in `bpf/tcp.c`.
type SettingsMap = HashMap<MapData, u64, [u8; SETTINGS]>;
type Outcomes = Array<MapData, [u8; OUTCOME]>;

/// What to set on a connection; none: leave what it has.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Settings {
    /// Congestion control, by the kernel's name.
    pub control: Option<String>,
    /// Initial window, segments; for connections that begin only.
    pub initial_window: Option<u32>,
    /// Least retransmission timeout; two ticks at least, 200 ms at most.
    pub least_timeout: Option<Span>,
    /// Timeout of the SYN, and before the first measurement; for connections that begin only.
    pub first_timeout: Option<Span>,
    /// Most segments in the congestion window.
    pub window_cap: Option<u32>,
    /// Most payload that leaves in a second, bytes.
    pub pacing_rate: Option<u32>,
    /// Most that the receiver's window offers, bytes.
    pub receive_window: Option<u32>,
}

/// What this kernel makes of a [`Tuning`].
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Translation {
    /// What is set.
    pub settings: Settings,
    /// What of it is not what was asked for, and what is not done at all, a line each.
    pub remarks: Vec<String>,
}

impl Translation {
    /// By the congestion controls and the timer of this machine.
    pub fn new(tuning: &Tuning) -> Self {
        let known = parameter("net.ipv4.tcp_available_congestion_control").unwrap_or_default();
        Self::by(tuning, &known, tick())
    }

    fn by(tuning: &Tuning, known: &str, tick: Span) -> Self {
        let mut remarks = Vec::new();
        let control = tuning.variant.and_then(|variant| {
            let name = kernel_name(variant.name());
            let is_known = known.split_whitespace().any(|known| known == name);
            if !is_known {
                remarks.push(format!("variant {}: this kernel has {known}", variant.name()));
            }
            is_known.then(|| name.to_owned())
        });
        let least_timeout = tuning.min_rto.map(|asked| {
            let most = HIGHEST_LEAST_TIMEOUT;
            let set = asked.up_to(tick).max(tick * FEWEST_TICKS).min(most);
            if set != asked {
                remarks.push(format!(
                    "min-rto {asked}: {set}; this kernel takes {FEWEST_TICKS} ticks of {tick} to {most}"
                ));
            }
            set
        });
        let first_timeout = tuning.initial_rto.map(|asked| {
            let set = asked.up_to(tick).max(tick);
            if set != asked {
                remarks.push(format!("initial-rto {asked}: {set}; the kernel's timer has ticks of {tick}"));
            }
            set
        });
        if tuning.idle_restart.is_some() {
            remarks
                .push("idle-restart: Linux has it for the whole host; the agent leaves it alone".to_owned());
        }
        if tuning.pacing == Some(false) {
            remarks.push("pacing off: a pacing that programs or queue disciplines ask for stays".to_owned());
        }
        let settings = Settings {
            control,
            initial_window: tuning.initial_window,
            least_timeout,
            first_timeout,
            window_cap: tuning.window_cap,
            pacing_rate: (tuning.pacing == Some(true)).then_some(PACED),
            receive_window: None,
        };
        Self { settings, remarks }
    }
}

/// The granularity of the kernel's timers: 1 / `CONFIG_HZ`.
pub fn tick() -> Span {
    // The coarse clocks go by ticks.
    let resolution = clock_getres(ClockId::CLOCK_MONOTONIC_COARSE).map_or(0, |res| res.tv_nsec());
    Span::from_nanos(u64::try_from(resolution).unwrap_or(0).max(1))
}

impl Settings {
    /// `struct settings`: zero leaves what is.
    fn bytes(&self) -> [u8; SETTINGS] {
        let micros = |span: Span| u32::try_from(span.as_nanos().div_ceil(1000)).unwrap_or(u32::MAX);
        let ticks = |span: Span| {
            let tick = tick();
            u32::try_from(span.up_to(tick).as_nanos() / tick.as_nanos()).unwrap_or(u32::MAX)
        };
        let mut bytes = [0; SETTINGS];
        if let Some(name) = &self.control {
            // The last byte stays zero.
            for (to, from) in bytes[..NAME - 1].iter_mut().zip(name.bytes()) {
                *to = from;
            }
        }
        let numbers = [
            self.initial_window,
            self.least_timeout.map(micros),
            self.first_timeout.map(ticks),
            self.window_cap,
            self.pacing_rate,
            self.receive_window,
        ];
        for (place, number) in bytes[NAME..].chunks_exact_mut(4).zip(numbers) {
            place.copy_from_slice(&number.unwrap_or(0).to_ne_bytes());
        }
        bytes
    }
}

/// Kinds of settings, in the order of `bpf/tcp.c`.
pub const KINDS: [&str; 7] = [
    "congestion control",
    "initial window",
    "least timeout",
    "first timeout",
    "window cap",
    "pace",
    "receive window",
];

/// How often the kernel did what it was told, for a kind of setting.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Outcome {
    /// It did.
    pub done: u64,
    /// It did not.
    pub refused: u64,
    /// What it said last when it did not: a number of `errno`; 0: never.
    pub error: i32,
}

/// A live connection, as its host sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Connection {
    /// Its number, which no other has until the machine starts again.
    pub cookie: u64,
    /// Address and port here.
    pub local: (IpAddr, u16),
    /// Address and port there.
    pub remote: (IpAddr, u16),
    /// User whose program it belongs to.
    pub user: u32,
    /// Payload bytes that the other end has acknowledged.
    pub acknowledged: u64,
    /// Payload bytes received in order.
    pub received: u64,
    /// Congestion window, segments.
    pub cwnd: u32,
    /// Most segments in it.
    pub window_cap: u32,
    /// Smoothed round-trip time; none before the first measurement.
    pub srtt: Option<Span>,
    /// Least round-trip time; none before the first measurement.
    pub min_rtt: Option<Span>,
    /// Payload bytes of a segment that it sends.
    pub mss: u32,
    /// Data segments sent, those sent again included.
    pub data_segments: u32,
    /// Segments sent again.
    pub resent: u32,
    /// Congestion control.
    pub control: String,
    /// Least retransmission timeout.
    pub least_timeout: Span,
    /// Most that leaves in a second, bytes; none: without a limit.
    pub pacing_rate: Option<u64>,
    /// Most that the receiver's window offers, bytes.
    pub receive_window: u32,
}

impl Connection {
    /// `struct row`.
    fn parse(row: &[u8; ROW], tick: Span) -> Self {
        let u64_at = |at: usize| u64::from_ne_bytes(std::array::from_fn(|i| row[at + i]));
        let u32_at = |at: usize| u32::from_ne_bytes(std::array::from_fn(|i| row[at + i]));
        let u16_at = |at: usize| u16::from_ne_bytes([row[at], row[at + 1]]);
        let is_ipv4 = u16_at(60) == libc::AF_INET as u16;
        let address = |at: usize| -> IpAddr {
            if is_ipv4 {
                Ipv4Addr::from(std::array::from_fn::<u8, 4, _>(|i| row[at + i])).into()
            } else {
                // An IPv4 address of a socket for both is what it is for everybody else.
                Ipv6Addr::from(std::array::from_fn::<u8, 16, _>(|i| row[at + i])).to_canonical()
            }
        };
        let span = |at: usize| {
            let micros = u32_at(at);
            (micros > 0 && micros < u32::MAX).then(|| Span::from_micros(micros.into()))
        };
        Self {
            cookie: u64_at(0),
            acknowledged: u64_at(8),
            received: u64_at(16),
            local: (address(24), u16_at(56)),
            remote: (address(40), u16_at(58)),
            cwnd: u32_at(64),
            window_cap: u32_at(68),
            srtt: span(72),
            min_rtt: span(76),
            mss: u32_at(80),
            data_segments: u32_at(84),
            resent: u32_at(88),
            user: u32_at(92),
            pacing_rate: Some(u64_at(96)).filter(|rate| *rate != u64::MAX),
            least_timeout: tick * u64::from(u32_at(104)),
            receive_window: u32_at(108),
            control: String::from_utf8_lossy(&row[112..]).trim_end_matches('\0').to_owned(),
        }
    }
}

/// Sets connections that begin, by a program on a control group; it ends with this.
pub struct NewConnections {
    kernel: Ebpf,
    settings: SettingsMap,
    outcomes: Outcomes,
}

impl NewConnections {
    /// Lets the kernel check the program; nothing is set yet.
    ///
    /// # Errors
    /// Why it does not take it.
    pub fn load() -> Result<Self, NoProgram> {
        let mut kernel = load(OBJECT)?;
        let settings = HashMap::try_from(map(&mut kernel, "SETTINGS")?).map_err(refused)?;
        let outcomes = Array::try_from(map(&mut kernel, "OUTCOMES")?).map_err(refused)?;
        program::<SockOps>(&mut kernel, BEGINS)?.load().map_err(refused)?;
        Ok(Self { kernel, settings, outcomes })
    }

    /// From now on connections are set that programs in `group` begin or accept, and in all groups below.
    ///
    /// # Errors
    /// Why the kernel does not do so.
    pub fn attach(&mut self, group: &Path) -> Result<(), NoProgram> {
        let folder = File::open(group).map_err(|error| NoProgram(format!("{}: {error}", group.display())))?;
        let begins = program::<SockOps>(&mut self.kernel, BEGINS)?;
        // A link of the kernel's always lets others be.
        begins.attach(folder, CgroupAttachMode::Single).map_err(refused)?;
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

    /// What became of the settings so far, in the order of [`KINDS`].
    ///
    /// # Errors
    /// Why the kernel does not say.
    pub fn outcomes(&self) -> Result<[Outcome; KINDS.len()], NoProgram> {
        outcomes(&self.outcomes)
    }
}

/// Reads live connections, and sets them, by a program that goes over all of a namespace; it ends with this.
pub struct LiveConnections {
    kernel: Ebpf,
    settings: SettingsMap,
    outcomes: Outcomes,
}

impl LiveConnections {
    /// Lets the kernel check the program; nothing is set yet. Takes 0.3 to 2 s, once.
    ///
    /// # Errors
    /// Why it does not take it.
    pub fn load() -> Result<Self, NoProgram> {
        let mut kernel = load(OBJECT)?;
        let settings = HashMap::try_from(map(&mut kernel, "LIVE")?).map_err(refused)?;
        let outcomes = Array::try_from(map(&mut kernel, "OUTCOMES")?).map_err(refused)?;
        program::<Iter>(&mut kernel, LOOKS)?.load("tcp", &types()?).map_err(refused)?;
        Ok(Self { kernel, settings, outcomes })
    }

    /// A connection gets these settings at the next [`look`](Self::look), and at each after that.
    ///
    /// # Errors
    /// Why the kernel does not do so.
    pub fn set(&mut self, cookie: u64, settings: &Settings) -> Result<(), NoProgram> {
        self.settings.insert(cookie, settings.bytes(), 0).map_err(refused)
    }

    /// A connection is left as it is.
    ///
    /// # Errors
    /// Why the kernel does not do so.
    pub fn leave(&mut self, cookie: u64) -> Result<(), NoProgram> {
        forget(&mut self.settings, cookie)
    }

    /// Sets the connections of the calling thread's namespace that are to be set, and tells of all that carry data.
    ///
    /// # Errors
    /// Why the kernel does not do so.
    pub fn look(&mut self) -> Result<Vec<Connection>, NoProgram> {
        let looks = program::<Iter>(&mut self.kernel, LOOKS)?;
        let link = looks.attach().map_err(refused)?;
        let mut file = looks.take_link(link).map_err(refused)?.into_file().map_err(refused)?;
        let mut rows = Vec::new();
        file.read_to_end(&mut rows).map_err(refused)?;
        let (rows, _) = rows.as_chunks::<ROW>();
        let tick = tick();
        Ok(rows.iter().map(|row| Connection::parse(row, tick)).collect())
    }

    /// What became of the settings so far, in the order of [`KINDS`].
    ///
    /// # Errors
    /// Why the kernel does not say.
    pub fn outcomes(&self) -> Result<[Outcome; KINDS.len()], NoProgram> {
        outcomes(&self.outcomes)
    }
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

fn forget(map: &mut SettingsMap, key: u64) -> Result<(), NoProgram> {
    match map.remove(&key) {
        Ok(()) | Err(MapError::KeyNotFound) => Ok(()),
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
    place.ok_or_else(|| NoProgram("cgroup2 is not mounted (mount -t cgroup2 none /sys/fs/cgroup)".to_owned()))
}

#[cfg(test)]
mod tests {
    use bandmaster_core::tuning::Variant;

    use super::*;

    #[test]
    fn what_the_kernel_cannot_do_is_said() {
        let tick = Span::from_millis(4);
        let by = |tuning: Tuning| Translation::by(&tuning, "reno cubic bbr", tick);
        let exact = by(Tuning {
            initial_window: Some(20),
            min_rto: Some(Span::from_millis(8)),
            initial_rto: Some(Span::from_millis(4)),
            variant: Some(Variant::NewReno),
            pacing: Some(true),
            window_cap: Some(8),
            idle_restart: None,
        });
        assert_eq!(exact.remarks, Vec::<String>::new());
        assert_eq!(exact.settings.control.as_deref(), Some("reno"));
        assert_eq!((exact.settings.initial_window, exact.settings.window_cap), (Some(20), Some(8)));
        let short = by(Tuning { min_rto: Some(Span::from_millis(2)), ..Tuning::default() });
        assert_eq!(short.settings.least_timeout, Some(Span::from_millis(8)));
        assert_eq!(short.remarks, ["min-rto 2ms: 8ms; this kernel takes 2 ticks of 4ms to 200ms"]);
        let long = by(Tuning { min_rto: Some(Span::from_secs(1)), ..Tuning::default() });
        assert_eq!(long.settings.least_timeout, Some(Span::from_millis(200)));
        let bic = by(Tuning { variant: Some(Variant::Bic), ..Tuning::default() });
        assert_eq!((bic.settings, bic.remarks.len()), (Settings::default(), 1));
        let first = by(Tuning { initial_rto: Some(Span::from_millis(2)), ..Tuning::default() });
        assert_eq!(first.settings.first_timeout, Some(tick));
    }

    #[test]
    fn a_row_is_read_as_the_program_writes_it() {
        let mut row = [0; ROW];
        row[..8].copy_from_slice(&7u64.to_ne_bytes());
        row[8..16].copy_from_slice(&1_000_000u64.to_ne_bytes());
        row[24..28].copy_from_slice(&[10, 0, 0, 1]);
        row[40..44].copy_from_slice(&[10, 0, 0, 2]);
        row[56..58].copy_from_slice(&5001u16.to_ne_bytes());
        row[60..62].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
        row[64..68].copy_from_slice(&20u32.to_ne_bytes());
        row[72..76].copy_from_slice(&50_000u32.to_ne_bytes());
        row[76..80].copy_from_slice(&u32::MAX.to_ne_bytes());
        let connection = Connection::parse(&row, Span::from_millis(4));
        assert_eq!((connection.cookie, connection.acknowledged, connection.cwnd), (7, 1_000_000, 20));
        assert_eq!(connection.local, (IpAddr::from([10, 0, 0, 1]), 5001));
        assert_eq!((connection.srtt, connection.min_rtt), (Some(Span::from_millis(50)), None));
        row[60..62].copy_from_slice(&(libc::AF_INET6 as u16).to_ne_bytes());
        row[24..40].copy_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 3]);
        assert_eq!(Connection::parse(&row, Span::from_millis(4)).local.0, IpAddr::from([10, 0, 0, 3]));
    }
}
