//! Counts the flows that pass network devices.

use std::collections::BTreeMap;

use aya::Ebpf;
use aya::maps::{Array, HashMap, MapData};
use aya::programs::links::LinkOrder;
use aya::programs::tc::{SchedClassifier, SchedClassifierLinkId, TcAttachOptions, TcAttachType};
use bandmaster_core::time::{Span, Time};
use nix::time::{ClockId, clock_gettime};

use super::{NoProgram, load, map, program, refused};

static OBJECT: &[u8] = aya::include_bytes_aligned!("../../bpf/flows.o");

/// A flow that has been silent for so long is no longer open: its host may be gone. A little longer than the 30 s after which
/// programs like to end a connection.
const SILENCE: Span = Span::from_secs(33);
/// How often silent flows are looked for.
const SWEEP: Span = Span::from_secs(10);

/// As many bytes as in `bpf/flows.c`.
const NAME: usize = 44;
/// Where the device is in a name.
const DEVICE: std::ops::Range<usize> = 36..40;

/// Opened, closed, seen in intervals of even number, of odd number, packets left out.
type Counts = HashMap<MapData, u32, [u64; 5]>;
/// Last time in nanoseconds; interval, and whether it is open.
type Flows = HashMap<MapData, [u8; NAME], [u32; 4]>;

/// Which packets of a device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Direction {
    /// Those that it sends.
    Departs,
    /// Those that it receives.
    Arrives,
}

/// Flows at a device, in one direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FlowCount {
    /// Flows of TCP and UDP whose data have passed since the last reading.
    pub seen: u32,
    /// Directions of TCP connections that have carried data, before their FIN or RST.
    pub open: u32,
    /// Packets of flows that there was no room for: there are more than are counted.
    pub left_out: u64,
}

/// The programs at work; they end with it.
pub struct FlowCounts {
    kernel: Ebpf,
    interval: Array<MapData, u32>,
    now: u32,
    counts: Counts,
    flows: Flows,
    devices: BTreeMap<(u32, Direction), Device>,
    next_sweep: Time,
}

struct Device {
    /// Takes the program away.
    link: SchedClassifierLinkId,
    /// Flows that have fallen silent.
    silent: u64,
    /// Flows seen in intervals of even and of odd number, until they were read last.
    seen: [u64; 2],
}

impl Direction {
    const fn program(self) -> &'static str {
        match self {
            Self::Departs => "departs",
            Self::Arrives => "arrives",
        }
    }

    const fn key(self, device: u32) -> u32 {
        device << 1 | matches!(self, Self::Arrives) as u32
    }
}

impl FlowCounts {
    /// Lets the kernel check the programs; nothing is counted yet.
    ///
    /// # Errors
    /// Why it does not take them.
    pub fn load() -> Result<Self, NoProgram> {
        let mut kernel = load(OBJECT)?;
        let interval = Array::try_from(map(&mut kernel, "INTERVAL")?).map_err(refused)?;
        let counts = HashMap::try_from(map(&mut kernel, "COUNTS")?).map_err(refused)?;
        let flows = HashMap::try_from(map(&mut kernel, "FLOWS")?).map_err(refused)?;
        for direction in [Direction::Departs, Direction::Arrives] {
            program::<SchedClassifier>(&mut kernel, direction.program())?.load().map_err(refused)?;
        }
        let mut new = Self {
            kernel,
            interval,
            now: 0,
            counts,
            flows,
            devices: BTreeMap::new(),
            next_sweep: Time::ZERO,
        };
        // What is new was last seen in interval 0.
        new.begin_interval()?;
        Ok(new)
    }

    fn begin_interval(&mut self) -> Result<(), NoProgram> {
        self.now = self.now.wrapping_add(1).max(1);
        self.interval.set(0, self.now, 0).map_err(refused)
    }

    /// Flows that pass the device `index`, called `interface`, are counted from now on. One that is gone already took its
    /// program with it.
    ///
    /// # Errors
    /// Why the kernel does not do so.
    pub fn follow(&mut self, interface: &str, index: u32, direction: Direction) -> Result<(), NoProgram> {
        if self.devices.contains_key(&(index, direction)) {
            return Ok(());
        }
        self.counts.insert(direction.key(index), [0; 5], 0).map_err(refused)?;
        let at = match direction {
            Direction::Departs => TcAttachType::Egress,
            Direction::Arrives => TcAttachType::Ingress,
        };
        let program = program::<SchedClassifier>(&mut self.kernel, direction.program())?;
        let options = TcAttachOptions::TcxOrder(LinkOrder::default());
        let link = program.attach_with_options(interface, at, options).map_err(refused)?;
        self.devices.insert((index, direction), Device { link, silent: 0, seen: [0; 2] });
        Ok(())
    }

    /// Of devices other than `those` nothing is counted any more.
    pub fn keep_only(&mut self, those: &[u32]) {
        let gone: Vec<_> = self.devices.keys().filter(|(index, _)| !those.contains(index)).copied().collect();
        for (index, direction) in gone {
            if let Some(device) = self.devices.remove(&(index, direction))
                && let Ok(program) = program::<SchedClassifier>(&mut self.kernel, direction.program())
            {
                // With its device the link has lost its program.
                let _ = program.detach(device.link);
            }
            let _ = self.counts.remove(&direction.key(index));
        }
    }

    /// The counts of all devices; those of flows seen are since the last reading.
    ///
    /// # Errors
    /// Why the kernel does not tell.
    pub fn read(&mut self) -> Result<BTreeMap<(u32, Direction), FlowCount>, NoProgram> {
        let now = now();
        if self.next_sweep <= now {
            self.next_sweep = now + SWEEP;
            self.forget_silent(now)?;
        }
        let slot = (self.now & 1) as usize;
        self.begin_interval()?;
        let mut all = BTreeMap::new();
        for ((index, direction), device) in &mut self.devices {
            let [opened, closed, even, odd, left_out] =
                self.counts.get(&direction.key(*index), 0).map_err(refused)?;
            let sum = [even, odd][slot];
            let seen = (sum - std::mem::replace(&mut device.seen[slot], sum)) as u32;
            let open = opened.saturating_sub(closed + device.silent) as u32;
            all.insert((*index, *direction), FlowCount { seen, open, left_out });
        }
        Ok(all)
    }

    fn forget_silent(&mut self, now: Time) -> Result<(), NoProgram> {
        let is_silent = |[low, high, ..]: [u32; 4]| {
            now.since(Time::from_nanos(u64::from(high) << 32 | u64::from(low))) > SILENCE
        };
        let mut silent = Vec::new();
        for entry in &self.flows {
            let (name, flow) = entry.map_err(refused)?;
            if is_silent(flow) {
                silent.push(name);
            }
        }
        for name in silent {
            // It may have ended, or gone on, meanwhile.
            let Ok(flow) = self.flows.get(&name, 0) else { continue };
            let is_open = flow[3] == 1;
            if !is_silent(flow) || self.flows.remove(&name).is_err() || !is_open {
                continue;
            }
            let Some(device) = name[DEVICE].try_into().ok().map(u32::from_ne_bytes) else { continue };
            let direction = if device & 1 == 1 { Direction::Arrives } else { Direction::Departs };
            if let Some(device) = self.devices.get_mut(&(device >> 1, direction)) {
                device.silent += 1;
            }
        }
        Ok(())
    }
}

/// Since the machine began, as the programs have it.
fn now() -> Time {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(0, |t| t.tv_sec() * 1_000_000_000 + t.tv_nsec());
    Time::from_nanos(now as u64)
}
