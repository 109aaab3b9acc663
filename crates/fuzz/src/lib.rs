//! Hostile input: kept reproducers first, then inputs that a number alone decides.
//!
//! `BANDMASTER_FUZZ=1000000 BANDMASTER_FUZZ_RUNS=10000 cargo test -p bandmaster-fuzz` makes so many inputs per target, and so
//! many runs. An input that breaks a target is written to a file, which the failure names. Put it into `kept/TARGET/`: it is
//! tried first from then on.

mod mutate;
mod schema;
mod source;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

pub use mutate::{Corpus, bend};
pub use schema::Schema;
pub use source::Source;

/// The variable that says how many inputs readers of files and messages get.
pub const INPUTS: &str = "BANDMASTER_FUZZ";
/// The variable that says how many whole runs there are.
pub const RUNS: &str = "BANDMASTER_FUZZ_RUNS";

/// Processor time that one input may take.
pub const MOST_TIME: Duration = Duration::from_secs(2);

/// Wall time after which a target hangs, whatever else the machine does.
const HANGS: Duration = Duration::from_secs(120);

/// What reads input.
pub struct Target<'a> {
    /// Its name, and that of its folder of kept inputs.
    pub name: &'a str,
    /// Inputs, unless the environment says how many, in the variable of that name.
    pub inputs: (&'a str, u64),
    /// Bytes by which the process may grow over one input.
    pub memory: u64,
    /// The input of a number.
    pub make: &'a dyn Fn(&mut Source) -> Vec<u8>,
    /// Reads an input. Panics when something is wrong that the reader should have seen.
    pub read: &'a dyn Fn(&[u8]),
}

/// Targets take turns: the processor time and the memory are those of one. A test takes its turn before it prepares anything,
/// since what another prepares meanwhile would count as memory of the present input.
pub type Turn = MutexGuard<'static, ()>;

static TURN: Mutex<()> = Mutex::new(());
/// When the present input began, in milliseconds since the first; 0: none.
static BEGAN: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

/// How many inputs there are, when there are so many in a short run.
fn inputs(variable: &str, short: u64) -> u64 {
    match std::env::var(variable) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{variable}={text} is not a number of inputs")),
        Err(_) => short,
    }
}

impl Target<'_> {
    /// Tries the kept inputs, then new ones.
    ///
    /// # Panics
    /// When an input makes the target panic, takes more than [`MOST_TIME`], or more memory than it may.
    pub fn fuzz(&self, _: &Turn) {
        watch();
        let mut found = BTreeMap::new();
        let kept = kept(self.name);
        for (name, input) in &kept {
            if let Err(why) = self.try_one(input) {
                found.insert(why, format!("kept input {name}"));
            }
        }
        let inputs = inputs(self.inputs.0, self.inputs.1);
        for number in 0..inputs {
            let input = (self.make)(&mut Source::seeded(self.name, number));
            if let Err(why) = self.try_one(&input) {
                let path = std::env::temp_dir().join(format!("{}-{number}", self.name));
                let written =
                    fs::write(&path, &input).map_or_else(|e| e.to_string(), |()| path.display().to_string());
                found.entry(why).or_insert(written);
            }
            if found.len() > 20 {
                break;
            }
        }
        println!("{}: {} kept inputs and {inputs} new ones", self.name, kept.len());
        let found: Vec<String> = found.into_iter().map(|(why, input)| format!("{why}\n  {input}")).collect();
        assert!(found.is_empty(), "{}:\n{}", self.name, found.join("\n"));
    }

    fn try_one(&self, input: &[u8]) -> Result<(), String> {
        let memory = Memory::now();
        // A processor whose core or cache others use is slower for a while: the least of three times is the input's.
        for reading in 1..=3 {
            if self.time(input)? <= MOST_TIME {
                break;
            }
            if reading == 3 {
                return Err(format!("takes more than {MOST_TIME:?}"));
            }
        }
        if memory.grown() > self.memory {
            return Err(format!("takes more than {} MiB of memory", self.memory >> 20));
        }
        Ok(())
    }

    /// Processor time of one reading.
    fn time(&self, input: &[u8]) -> Result<Duration, String> {
        BEGAN.store(now(ClockId::CLOCK_MONOTONIC).as_millis() as u64, Ordering::Relaxed);
        let began = processor_time();
        PANIC.take();
        let result = catch_unwind(AssertUnwindSafe(|| (self.read)(input)));
        let took = processor_time().saturating_sub(began);
        BEGAN.store(0, Ordering::Relaxed);
        result.map_or_else(|_| Err(PANIC.take()), |()| Ok(took))
    }
}

/// Waits until no other target runs.
pub fn turn() -> Turn {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The time of a clock.
pub fn now(clock: ClockId) -> Duration {
    clock_gettime(clock).map_or(Duration::ZERO, Duration::from)
}

/// Processor time that this thread has used.
pub fn processor_time() -> Duration {
    now(ClockId::CLOCK_THREAD_CPUTIME_ID)
}

/// What the process has of memory at a time. The program's own text does not count: how much of it is in memory depends on
/// what the machine did before.
#[derive(Debug)]
pub struct Memory(u64);

impl Memory {
    /// Memory in use now. Resets the peak, where the system can.
    pub fn now() -> Self {
        let _ = fs::write("/proc/self/clear_refs", "5");
        Self(resident("VmRSS:"))
    }

    /// Bytes by which the peak since lies above it; nothing where the system does not say.
    pub fn grown(&self) -> u64 {
        resident("VmHWM:").saturating_sub(self.0)
    }
}

fn resident(what: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let value = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let kibibytes = line.and_then(|rest| rest.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
        kibibytes.unwrap_or(0) << 10
    };
    value(what).saturating_sub(value("RssFile:"))
}

/// Inputs that have broken a target once, by name.
fn kept(target: &str) -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("kept").join(target);
    let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    let read = |path: PathBuf| {
        let input = fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        (path.display().to_string(), input)
    };
    paths.into_iter().map(read).collect()
}

/// Notes where targets panic, and ends a process that hangs.
fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if BEGAN.load(Ordering::Relaxed) == 0 {
                usual(info);
                return;
            }
            let place = info.location().map(ToString::to_string).unwrap_or_default();
            let payload = info.payload();
            let text = payload.downcast_ref::<String>().map(String::as_str);
            let message = text.or(payload.downcast_ref::<&str>().copied()).unwrap_or_default();
            // One place breaks in one way, whatever the numbers.
            let message: String =
                message.chars().map(|c| if c.is_ascii_digit() { '#' } else { c }).take(200).collect();
            PANIC.set(format!("{place}: {message}"));
        }));
        std::thread::spawn(|| {
            loop {
                std::thread::sleep(Duration::from_secs(1));
                let began = BEGAN.load(Ordering::Relaxed);
                let now = now(ClockId::CLOCK_MONOTONIC).as_millis() as u64;
                if began > 0 && now.saturating_sub(began) > HANGS.as_millis() as u64 {
                    eprintln!("an input takes more than {HANGS:?}");
                    std::process::abort();
                }
            }
        });
    });
}
