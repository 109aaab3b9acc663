//! Lowers the windows in acknowledgements that pass a router's ports.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, BorrowedFd};

use aya::maps::{Array, HashMap, MapData, PerCpuArray, RingBuf};
use aya::programs::links::LinkOrder;
use aya::programs::tc::{SchedClassifier, SchedClassifierLinkId, TcAttachOptions, TcAttachType};
use aya::programs::{ProgramFd, TestRunOptions};
use aya::{Ebpf, TestRun};
use bandmaster_core::id::FlowId;
use bandmaster_core::port::window::Segment;
use bandmaster_core::time::{Span, Time};
use nix::time::{ClockId, clock_gettime};

use super::{NoProgram, load, map, program, refused};
use crate::syscall::{TcxPlace, programs_at};

static OBJECT: &[u8] = aya::include_bytes_aligned!("../../bpf/windows.o");
static TIMED: &[u8] = aya::include_bytes_aligned!("../../bpf/timed.o");

/// As in `bpf/windows.c`.
const NAME: usize = 44;
const SHORT_NAME: usize = 16;
const DEVICE_BITS: u32 = 20;
const FLOW: usize = 56;
const TIMES: usize = 56;
const HALVES: [usize; 2] = [32, 44];
const DECIDE: &str = "decide";
const AFTER_ETHERNET: usize = 16;
const DECISION: usize = AFTER_ETHERNET + NAME + 12;
const HAS_SYN: u8 = 1;
const HAS_SCALE: u8 = 2;
const HAS_TIMESTAMPS: u8 = 4;
const HAS_ENDED: u8 = 32;
const HAS_MULTIPATH: u8 = 64;
/// Of a connection of Multipath TCP: a switch sees the subflows by its own port only.
const PATHS: u64 = 2;
const IPV4: u8 = 4;
const IPV6: u8 = 6;
/// Bytes around a segment of TCP.
const ETHERNET_HEADER: u64 = 14;
const VLAN_TAG: u64 = 4;
const IPV4_HEADER: u64 = 20;
const IPV6_HEADER: u64 = 40;
const TCP_HEADER: u64 = 20;
const TIMESTAMPS: u64 = 12;

type Name = [u8; NAME];
type ShortName = [u8; SHORT_NAME];
type Row = [u8; FLOW];
type TimesRow = [u8; TIMES];

/// Which of the two programs: what a port sends, or what comes in by it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// Data depart.
    Departs,
    /// Acknowledgements arrive.
    Arrives,
}

impl Direction {
    const fn program(self) -> &'static str {
        match self {
            Self::Departs => "departs",
            Self::Arrives => "arrives",
        }
    }

    const fn at(self) -> TcAttachType {
        match self {
            Self::Departs => TcAttachType::Egress,
            Self::Arrives => TcAttachType::Ingress,
        }
    }
}

/// What packets did with the programs, since they were loaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PacketCounts {
    /// Segments of TCP that came in at ports.
    pub acks: u64,
    /// Those whose window was lowered.
    pub lowered: u64,
    /// Packets that could not be read, and passed as they are.
    pub unread: u64,
    /// Segments that came in of connections whose handshake was not seen.
    pub unknown: u64,
    /// Handshakes for which there was no room.
    pub no_room: u64,
    /// Events for which there was no room.
    pub lost: u64,
    /// Segments that came in while the daemon was silent.
    pub silent: u64,
}

impl PacketCounts {
    /// With their names, in the program's order.
    pub fn by_kind(&self) -> [(&'static str, u64); 7] {
        let Self { acks, lowered, unread, unknown, no_room, lost, silent } = *self;
        [
            ("acks", acks),
            ("lowered", lowered),
            ("unread", unread),
            ("unknown", unknown),
            ("no-room", no_room),
            ("lost-events", lost),
            ("silent", silent),
        ]
    }
}

/// What a program reports at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// The first SYN.
    Begins,
    /// Both SYNs were seen.
    Established,
    /// The sender's FIN.
    Finished,
    /// A RST of either end.
    Reset,
    /// Another connection has the addresses and ports.
    Replaced,
}

/// A flow, as the programs know it.
#[derive(Clone, Copy, Debug)]
pub struct Flow {
    name: Name,
    row: Row,
}

impl Flow {
    fn u32_at(&self, at: usize) -> u32 {
        u32::from_ne_bytes(std::array::from_fn(|i| self.row[at + i]))
    }

    fn u16_at(&self, at: usize) -> u16 {
        u16::from_ne_bytes([self.row[at], self.row[at + 1]])
    }

    /// Its number; no other flow has the same until four billion have begun.
    pub fn id(&self) -> FlowId {
        FlowId(self.u32_at(40))
    }

    /// Number of the device by which its data depart.
    pub fn device(&self) -> u32 {
        u32::from_ne_bytes(std::array::from_fn(|i| self.name[36 + i]))
    }

    fn vlan(&self) -> u16 {
        u16::from_ne_bytes([self.name[40], self.name[41]])
    }

    /// Its name in the table of short ones; none: it is not there.
    fn short_name(&self) -> Option<ShortName> {
        (self.name[42] == IPV4 && self.device() >> DEVICE_BITS == 0).then(|| {
            let mut short = [0; SHORT_NAME];
            short[..4].copy_from_slice(&self.name[..4]);
            short[4..8].copy_from_slice(&self.name[16..20]);
            short[8..12].copy_from_slice(&self.name[32..36]);
            let place = self.device() | u32::from(self.vlan()) << DEVICE_BITS;
            short[12..].copy_from_slice(&place.to_ne_bytes());
            short
        })
    }

    fn of_short(short: &ShortName, row: Row) -> Self {
        let mut name = [0; NAME];
        name[..4].copy_from_slice(&short[..4]);
        name[16..20].copy_from_slice(&short[4..8]);
        name[32..36].copy_from_slice(&short[8..12]);
        let place = u32::from_ne_bytes(std::array::from_fn(|i| short[12 + i]));
        name[36..40].copy_from_slice(&(place & ((1 << DEVICE_BITS) - 1)).to_ne_bytes());
        name[40..42].copy_from_slice(&((place >> DEVICE_BITS) as u16).to_ne_bytes());
        name[42] = IPV4;
        Self { name, row }
    }

    /// When a packet of it passed last.
    pub fn last(&self) -> Time {
        Time::from_nanos(u64::from_ne_bytes(std::array::from_fn(|i| self.row[i])))
    }

    /// Its FIN or a RST has passed.
    pub fn has_ended(&self) -> bool {
        self.row[35] & HAS_ENDED != 0
    }

    /// Both ends have stated their scale and segments.
    pub fn is_established(&self) -> bool {
        self.row[35] & self.row[39] & HAS_SYN != 0
    }

    /// Addresses and ports of its sender and receiver.
    pub fn ends(&self) -> [(IpAddr, u16); 2] {
        let address = |at: usize| -> IpAddr {
            match self.name[42] {
                IPV6 => Ipv6Addr::from(std::array::from_fn::<u8, 16, _>(|i| self.name[at + i])).into(),
                _ => Ipv4Addr::from(std::array::from_fn::<u8, 4, _>(|i| self.name[at + i])).into(),
            }
        };
        let port = |at: usize| u16::from_be_bytes([self.name[at], self.name[at + 1]]);
        [(address(0), port(32)), (address(16), port(34))]
    }

    /// A segment of it, as the law sees it.
    pub fn segment(&self, offset: u64) -> Segment {
        let (sender, receiver) = (self.u16_at(32), self.u16_at(36));
        let stated = |mss: u16| (mss > 0).then_some(u64::from(mss));
        let mss = stated(sender).into_iter().chain(stated(receiver)).min().unwrap_or(1);
        let both = self.row[35] & self.row[39];
        let options = if both & HAS_TIMESTAMPS > 0 { TIMESTAMPS } else { 0 };
        let scale = if both & HAS_SCALE > 0 { 1 << self.row[38] } else { 1 };
        let mss = mss.saturating_sub(options).max(1);
        let ip = if self.name[42] == IPV6 { IPV6_HEADER } else { IPV4_HEADER };
        let vlan = if self.vlan() == 0 { 0 } else { VLAN_TAG };
        let frame = mss + options + TCP_HEADER + ip + vlan + ETHERNET_HEADER;
        let flow = self.id();
        let paths = if both & HAS_MULTIPATH > 0 { PATHS } else { 1 };
        let (syn, fin, rst, window) = (false, false, false, u64::MAX);
        Segment { flow, syn, fin, rst, offset, window, mss, frame, scale, paths }
    }

    /// Offset after what has come of it: the lower 32 bits.
    pub fn came(&self) -> u32 {
        self.u32_at(12).wrapping_sub(self.u32_at(44))
    }

    /// Offset up to which it is acknowledged: the lower 32 bits.
    pub fn acked(&self) -> u32 {
        self.u32_at(16).wrapping_sub(self.u32_at(44))
    }
}

/// Round-trip times of a flow: from the port to its receiver and back, and to its sender and back, together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RoundTrip {
    /// Latest.
    pub last: Span,
    /// The least of each half.
    pub least: Span,
    /// Smoothed.
    pub smoothed: Span,
}

impl RoundTrip {
    /// None while a half has not been measured.
    fn of(row: &TimesRow) -> Option<Self> {
        let sum = |at: usize| {
            let half = |begin: usize| u32::from_ne_bytes(std::array::from_fn(|i| row[begin + at + i]));
            let halves = HALVES.map(half);
            (!halves.contains(&0))
                .then(|| Span::from_micros(halves.iter().map(|half| u64::from(*half)).sum()))
        };
        Some(Self { last: sum(0)?, least: sum(4)?, smoothed: sum(8)? })
    }
}

/// The programs at work; they end with it.
pub struct Windows {
    kernel: Ebpf,
    settings: Array<MapData, [u32; 4]>,
    short_flows: HashMap<MapData, ShortName, Row>,
    flows: HashMap<MapData, Name, Row>,
    /// By a flow's number; none: these programs measure no times.
    times: Option<HashMap<MapData, u32, TimesRow>>,
    counts: PerCpuArray<MapData, u64>,
    events: RingBuf<MapData>,
    links: Vec<(String, Direction, SchedClassifierLinkId)>,
}

impl Windows {
    /// Lets the kernel check the programs; nothing is changed yet.
    ///
    /// # Errors
    /// Why it does not take them.
    pub fn load() -> Result<Self, NoProgram> {
        Self::of(load(OBJECT)?)
    }

    /// Those that measure round-trip times too.
    ///
    /// # Errors
    /// Why the kernel does not take them.
    pub fn load_timed() -> Result<Self, NoProgram> {
        let mut kernel = load(TIMED)?;
        let times = HashMap::try_from(map(&mut kernel, "TIMES")?).map_err(refused)?;
        Ok(Self { times: Some(times), ..Self::of(kernel)? })
    }

    fn of(mut kernel: Ebpf) -> Result<Self, NoProgram> {
        let settings = Array::try_from(map(&mut kernel, "SETTINGS")?).map_err(refused)?;
        let short_flows = HashMap::try_from(map(&mut kernel, "SHORT_FLOWS")?).map_err(refused)?;
        let flows = HashMap::try_from(map(&mut kernel, "FLOWS")?).map_err(refused)?;
        let counts = PerCpuArray::try_from(map(&mut kernel, "COUNT")?).map_err(refused)?;
        let events = RingBuf::try_from(map(&mut kernel, "EVENTS")?).map_err(refused)?;
        for name in [Direction::Departs.program(), Direction::Arrives.program(), DECIDE] {
            program::<SchedClassifier>(&mut kernel, name)?.load().map_err(refused)?;
        }
        Ok(Self { kernel, settings, short_flows, flows, times: None, counts, events, links: Vec::new() })
    }

    /// Follows the flows whose data depart by `interface`. Other programs there stay, and run after these.
    ///
    /// # Errors
    /// Why the kernel does not do so.
    pub fn follow(&mut self, interface: &str) -> Result<(), NoProgram> {
        for direction in [Direction::Departs, Direction::Arrives] {
            let program = program::<SchedClassifier>(&mut self.kernel, direction.program())?;
            let options = TcAttachOptions::TcxOrder(LinkOrder::first());
            let link = program.attach_with_options(interface, direction.at(), options).map_err(refused)?;
            self.links.push((interface.to_owned(), direction, link));
        }
        Ok(())
    }

    /// Whether both programs are at the device with this number.
    ///
    /// # Errors
    /// Why the kernel does not tell.
    pub fn is_at(&mut self, device: u32) -> Result<bool, NoProgram> {
        for (direction, place) in
            [(Direction::Departs, TcxPlace::Egress), (Direction::Arrives, TcxPlace::Ingress)]
        {
            let program = program::<SchedClassifier>(&mut self.kernel, direction.program())?;
            let own = program.info().map_err(refused)?.id();
            if !programs_at(device, place).map_err(refused)?.contains(&own) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The programs are no longer at `interface`, which may be gone.
    pub fn leave(&mut self, interface: &str) {
        let those = self.links.extract_if(.., |(name, ..)| name == interface).collect::<Vec<_>>();
        for (_, direction, link) in those {
            if let Ok(program) = program::<SchedClassifier>(&mut self.kernel, direction.program()) {
                // With its device the link has lost its program.
                let _ = program.detach(link);
            }
        }
    }

    /// The daemon lives. Flows of which the law has not spoken have windows of `first` segments. Without this windows stay as they
    /// are.
    ///
    /// # Errors
    /// Why the kernel does not take it.
    pub fn beat(&mut self, first: u32) -> Result<(), NoProgram> {
        let now = now().as_nanos();
        self.settings.set(0, [now as u32, (now >> 32) as u32, first, 0], 0).map_err(refused)
    }

    /// Windows of the flow are lowered to so many bytes from now on; nothing happens when it is gone. A program writes the window
    /// into the flow's row: an update of the whole row would undo what packets write there at the same time.
    ///
    /// # Errors
    /// Why the kernel does not take it.
    pub fn set(&mut self, flow: &Flow, window: u64) -> Result<(), NoProgram> {
        let window = u32::try_from(window).unwrap_or(u32::MAX).max(1);
        let mut decision = [0; DECISION];
        let short = flow.short_name();
        match &short {
            Some(short) => decision[AFTER_ETHERNET..][..SHORT_NAME].copy_from_slice(short),
            None => decision[AFTER_ETHERNET..][..NAME].copy_from_slice(&flow.name),
        }
        decision[AFTER_ETHERNET + NAME..][..4].copy_from_slice(&flow.id().0.to_ne_bytes());
        decision[AFTER_ETHERNET + NAME + 4..][..4].copy_from_slice(&window.to_ne_bytes());
        decision[AFTER_ETHERNET + NAME + 8..].copy_from_slice(&u32::from(short.is_some()).to_ne_bytes());
        let program: &mut SchedClassifier = program(&mut self.kernel, DECIDE)?;
        let options = TestRunOptions { data_in: Some(&decision), ..TestRunOptions::new() };
        program.test_run(options).map_err(refused).map(drop)
    }

    /// The flow has ended.
    pub fn forget(&mut self, flow: &Flow) {
        // Another may have the same name by now.
        let is_it = |row: Row| Flow { name: flow.name, row }.id() == flow.id();
        match flow.short_name() {
            Some(short) if self.short_flows.get(&short, 0).is_ok_and(is_it) => {
                let _ = self.short_flows.remove(&short);
            }
            None if self.flows.get(&flow.name, 0).is_ok_and(is_it) => {
                let _ = self.flows.remove(&flow.name);
            }
            _ => {}
        }
        if let Some(times) = &mut self.times {
            let _ = times.remove(&flow.id().0);
        }
    }

    /// Round-trip times of a flow; none: not measured yet, or never.
    pub fn round_trip(&self, flow: &Flow) -> Option<RoundTrip> {
        RoundTrip::of(&self.times.as_ref()?.get(&flow.id().0, 0).ok()?)
    }

    /// All flows.
    ///
    /// # Errors
    /// Why the kernel does not tell.
    pub fn flows(&self) -> Result<Vec<Flow>, NoProgram> {
        // What ends meanwhile is left out.
        let short = self.short_flows.iter().filter_map(Result::ok);
        let flows = self.flows.iter().filter_map(Result::ok).map(|(name, row)| Flow { name, row });
        Ok(short.map(|(name, row)| Flow::of_short(&name, row)).chain(flows).collect())
    }

    /// What the programs reported; none: nothing more.
    pub fn event(&mut self) -> Option<(Kind, Flow)> {
        loop {
            let item = self.events.next()?;
            let bytes: &[u8] = &item;
            // `struct event` has its flow at a multiple of 8.
            const AT: usize = 8 + NAME + 4;
            let (Some(kind), Some(name), Some(row)) = (
                bytes.first(),
                bytes.get(8..8 + NAME).and_then(|name| name.try_into().ok()),
                bytes.get(AT..AT + FLOW).and_then(|row| row.try_into().ok()),
            ) else {
                continue;
            };
            let kind = match kind {
                0 => Kind::Begins,
                1 => Kind::Established,
                2 => Kind::Finished,
                3 => Kind::Reset,
                _ => Kind::Replaced,
            };
            return Some((kind, Flow { name, row }));
        }
    }

    /// What packets did.
    ///
    /// # Errors
    /// Why the kernel does not tell.
    pub fn counts(&self) -> Result<PacketCounts, NoProgram> {
        let of = |kind: u32| -> Result<u64, NoProgram> {
            Ok(self.counts.get(&kind, 0).map_err(refused)?.iter().sum())
        };
        let (acks, lowered, unread, unknown) = (of(0)?, of(1)?, of(2)?, of(3)?);
        let (no_room, lost, silent) = (of(4)?, of(5)?, of(6)?);
        Ok(PacketCounts { acks, lowered, unread, unknown, no_room, lost, silent })
    }

    /// The program itself, for another one to call.
    ///
    /// # Errors
    /// When it is not loaded.
    pub fn descriptor(&mut self, direction: Direction) -> Result<&ProgramFd, NoProgram> {
        let program: &mut SchedClassifier = program(&mut self.kernel, direction.program())?;
        program.fd().map_err(refused)
    }

    /// Runs a program on a packet that nobody sent and of which offload makes `segments`, `repeat` times: what it makes of it,
    /// and the mean time in nanoseconds.
    ///
    /// # Errors
    /// Why the kernel does not do so.
    pub fn try_on(
        &mut self,
        direction: Direction,
        packet: &[u8],
        segments: u32,
        repeat: u32,
    ) -> Result<(Vec<u8>, u64), NoProgram> {
        let program: &mut SchedClassifier = program(&mut self.kernel, direction.program())?;
        let mut out = vec![0; packet.len() + 64];
        // `struct __sk_buff` of linux/bpf.h, up to `gso_segs`.
        let mut context = [0; 168];
        context[164..].copy_from_slice(&segments.to_ne_bytes());
        let options = TestRunOptions {
            data_in: Some(packet),
            data_out: Some(&mut out),
            ctx_in: Some(&context),
            repeat,
            ..TestRunOptions::new()
        };
        let done = program.test_run(options).map_err(refused)?;
        out.truncate(done.data_size_out as usize);
        Ok((out, done.duration.as_nanos() as u64))
    }
}

impl AsFd for Windows {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }
}

/// Since the machine began, as the programs have it.
pub fn now() -> Time {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(0, |t| t.tv_sec() * 1_000_000_000 + t.tv_nsec());
    Time::from_nanos(now as u64)
}
