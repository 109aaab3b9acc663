//! Sorts departing packets into the classes of an HTB by the rate of their flow, and drops early.

use aya::maps::{Array, MapData, PerCpuArray};
use aya::programs::TestRunOptions;
use aya::programs::links::LinkOrder;
use aya::programs::tc::{SchedClassifier, SchedClassifierLinkId, TcAttachOptions, TcAttachType};
use aya::{Ebpf, TestRun};
use bandmaster_core::params::{Limit, Params};
use bandmaster_core::qdisc::fbqm::classifier::Boundaries;
use bandmaster_core::qdisc::fbqm::sketch::{ROWS, Totals};
use bandmaster_core::rng::Stream;
use bandmaster_core::switch::fbqm::bytes;
use bandmaster_core::units::Rate;

use super::{NoProgram, load_sized, map, program, refused};
use crate::syscall::{TcxPlace, programs_at};

static OBJECT: &[u8] = aya::include_bytes_aligned!("../../bpf/fbqm.o");

/// As in `bpf/fbqm.c`.
const PROGRAM: &str = "departs";
const MOST_CLASSES: usize = 64;
const UNREAD: u32 = MOST_CLASSES as u32;
const AGES: usize = 64;
const FIRST_CLASS: u32 = 0x10010;
/// `TCX_DROP`.
const DROP: i32 = 2;
/// Places of the settings' words.
const INTERVAL: usize = 1;
const SHARE: usize = 14;
const AGED: usize = 16;

type Settings = [u64; AGED + 3 * AGES];

/// What arrived of a class since the program was loaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Arrivals {
    /// Packets, those of them that were dropped too.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Flows, each counted once in an interval.
    pub begun: u64,
    /// Packets that RED dropped.
    pub early: u64,
    /// Packets that RED marked.
    pub marked: u64,
    /// Packets for which the queue had no room.
    pub full: u64,
}

/// What the program does with a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tried {
    /// Its class; none: its priority is no class.
    pub class: Option<usize>,
    /// It departs.
    pub passes: bool,
    /// Mean time in nanoseconds.
    pub nanos: u64,
}

/// The program of one port; it ends with it.
pub struct Classes {
    kernel: Ebpf,
    settings: Array<MapData, Settings>,
    begins: Array<MapData, u32>,
    port: Array<MapData, [u64; 3]>,
    counts: PerCpuArray<MapData, [u64; 6]>,
    link: Option<SchedClassifierLinkId>,
    now: Settings,
    totals: Totals,
    boundaries: Boundaries,
    /// Bytes that the port sends in an interval.
    capacity: f64,
    /// What had arrived when the last interval ended.
    before: Vec<Arrivals>,
}

impl Classes {
    /// Lets the kernel check the program for a port of `rate` with FBQM's `params`; nothing is changed yet. Unless it `acts`, it
    /// counts only.
    ///
    /// # Errors
    /// Why the kernel does not take it.
    pub fn load(params: &Params, rate: Rate, acts: bool) -> Result<Self, NoProgram> {
        let cells = params.integer("cells") as u32;
        let classes = params.integer("classes") as usize;
        let mut kernel = load_sized(OBJECT, "CELLS", ROWS as u32 * cells)?;
        let settings = Array::try_from(map(&mut kernel, "SETTINGS")?).map_err(refused)?;
        let begins = Array::try_from(map(&mut kernel, "BEGINS")?).map_err(refused)?;
        let port = Array::try_from(map(&mut kernel, "PORT")?).map_err(refused)?;
        let counts = PerCpuArray::try_from(map(&mut kernel, "COUNTS")?).map_err(refused)?;
        program::<SchedClassifier>(&mut kernel, PROGRAM)?.load().map_err(refused)?;
        let mut new = Self {
            kernel,
            settings,
            begins,
            port,
            counts,
            link: None,
            now: words(params, rate, acts),
            totals: Totals::new(cells as usize),
            boundaries: Boundaries::new(classes),
            capacity: rate.bits_per_sec() as f64 / 8.0 * params.span("interval").as_secs_f64(),
            before: vec![Arrivals::default(); classes],
        };
        for class in 0..MOST_CLASSES as u32 {
            new.begins.set(class, u32::MAX, 0).map_err(refused)?;
        }
        new.set()?;
        Ok(new)
    }

    fn set(&mut self) -> Result<(), NoProgram> {
        for (class, rate) in (0..).zip(self.boundaries.rates()) {
            self.begins.set(class, u32::try_from(*rate).unwrap_or(u32::MAX), 0).map_err(refused)?;
        }
        self.now[SHARE] = (self.capacity / self.totals.flows()) as u64;
        self.settings.set(0, self.now, 0).map_err(refused)
    }

    /// Sorts what departs by `interface` from now on. Other programs there run before it.
    ///
    /// # Errors
    /// Why the kernel does not do so.
    pub fn attach(&mut self, interface: &str) -> Result<(), NoProgram> {
        let program = program::<SchedClassifier>(&mut self.kernel, PROGRAM)?;
        if let Some(lost) = self.link.take() {
            let _ = program.detach(lost);
        }
        let options = TcAttachOptions::TcxOrder(LinkOrder::last());
        let link = program.attach_with_options(interface, TcAttachType::Egress, options).map_err(refused)?;
        self.link = Some(link);
        Ok(())
    }

    /// Whether the program is still at the device with this number: somebody may have taken it away.
    ///
    /// # Errors
    /// Why the kernel does not tell.
    pub fn is_attached(&mut self, index: u32) -> Result<bool, NoProgram> {
        let program = program::<SchedClassifier>(&mut self.kernel, PROGRAM)?;
        let own = program.info().map_err(refused)?.id();
        Ok(programs_at(index, TcxPlace::Egress).map_err(refused)?.contains(&own))
    }

    /// Ends an interval and reclassifies flows. Returns how many flows sent in it, per class.
    ///
    /// # Errors
    /// Why the kernel does not do so.
    pub fn end_interval(&mut self) -> Result<Vec<u64>, NoProgram> {
        let arrived = self.arrivals()?;
        let since = arrived.iter().zip(&self.before);
        let (bytes, flows): (Vec<u64>, Vec<u64>) =
            since.map(|(now, before)| (now.bytes - before.bytes, now.begun - before.begun)).unzip();
        self.before = arrived;
        self.totals.arrive(bytes.iter().sum(), flows.iter().sum::<u64>() as u32);
        self.totals.end(1);
        self.boundaries.set(self.totals.mean());
        self.now[INTERVAL] += 1;
        self.set()?;
        Ok(flows)
    }

    /// What arrived, per class.
    ///
    /// # Errors
    /// Why the kernel does not tell.
    pub fn arrivals(&self) -> Result<Vec<Arrivals>, NoProgram> {
        (0..self.before.len() as u32).map(|class| self.arrivals_of(class)).collect()
    }

    /// What arrived and could not be read.
    ///
    /// # Errors
    /// Why the kernel does not tell.
    pub fn unread(&self) -> Result<Arrivals, NoProgram> {
        self.arrivals_of(UNREAD)
    }

    fn arrivals_of(&self, place: u32) -> Result<Arrivals, NoProgram> {
        let mut sum = [0; 6];
        for each in self.counts.get(&place, 0).map_err(refused)?.iter() {
            sum.iter_mut().zip(each).for_each(|(sum, each)| *sum += each);
        }
        let [packets, bytes, begun, early, marked, full] = sum;
        Ok(Arrivals { packets, bytes, begun, early, marked, full })
    }

    /// The average queue in bytes, as RED had it at the last arrival.
    ///
    /// # Errors
    /// Why the kernel does not tell.
    pub fn average(&self) -> Result<u64, NoProgram> {
        let [_, nanos, _] = self.port.get(&0, 0).map_err(refused)?;
        let byte_time = u128::from(self.now[8].max(1));
        Ok(((u128::from(nanos) << 16) / byte_time) as u64)
    }

    /// Runs the program `repeat` times on a packet that nobody sent.
    ///
    /// # Errors
    /// Why the kernel does not do so.
    pub fn try_on(&mut self, packet: &[u8], repeat: u32) -> Result<Tried, NoProgram> {
        let program: &mut SchedClassifier = program(&mut self.kernel, PROGRAM)?;
        let mut out = vec![0; packet.len() + 64];
        // `struct __sk_buff` of linux/bpf.h; the ninth word is its priority.
        let mut after = [0; 256];
        let options = TestRunOptions {
            data_in: Some(packet),
            data_out: Some(&mut out),
            ctx_out: Some(&mut after),
            repeat,
            ..TestRunOptions::new()
        };
        let done = program.test_run(options).map_err(refused)?;
        let priority = u32::from_ne_bytes(std::array::from_fn(|at| after[32 + at]));
        let class = priority.checked_sub(FIRST_CLASS).map(|class| class as usize);
        Ok(Tried { class, passes: done.return_value as i32 != DROP, nanos: done.duration.as_nanos() as u64 })
    }
}

/// The settings before the first interval.
fn words(params: &Params, rate: Rate, acts: bool) -> Settings {
    let bits = rate.bits_per_sec().max(1);
    // Nanoseconds to send these, which may be more than 64 bits for what has no limit.
    let nanos = |limit: Limit| match bytes(params, limit) {
        Some(bytes) => {
            u64::try_from(u128::from(bytes.get()) * 8_000_000_000 / u128::from(bits)).unwrap_or(u64::MAX)
        }
        None => u64::MAX,
    };
    let (lower, upper) = (nanos(params.limit("min-th")), nanos(params.limit("max-th")));
    let weight = params.float("weight");
    let cells = params.integer("cells") as u64;
    let mut words = [0; AGED + 3 * AGES];
    let named = [
        Stream::new(random(), 0, "fbqm").next_u64(),
        0,
        cells - 1,
        cells.trailing_zeros().into(),
        acts.into(),
        params.bool("ecn").into(),
        matches!(params.limit("min-th"), Limit::Bytes(_)).into(),
        params.bytes("mean-packet").get(),
        (u128::from(8_000_000_000_u64 << 16) / u128::from(bits)) as u64,
        nanos(params.limit("limit")),
        lower,
        upper,
        (weight * f64::from(1 << 24)).round().max(1.0) as u64,
        (params.float("max-p") * (1_u64 << 48) as f64 / (upper - lower).max(1) as f64) as u64,
        0,
        (params.text("drop") == "fair").into(),
    ];
    words[..AGED].copy_from_slice(&named);
    for (at, word) in words[AGED..].iter_mut().enumerate() {
        let sixteenths = (at % AGES * AGES.pow((at / AGES) as u32)) as f64;
        *word = ((1.0 - weight).powf(sixteenths / 16.0) * f64::from(1 << 24)).round() as u64;
    }
    words
}

/// A number that nobody foresees: flows that share cells cannot be made at will.
fn random() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}
