//! Whether the machine gave a test its time: what real traffic comes to within so many seconds depends on it.

use std::fmt::Display;
use std::io::{self, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

/// A processor that stands still for longer empties the shortest queue of the tests.
const STILL: Duration = Duration::from_millis(20);
/// Standing still for less is counted from here on, and may take this share of the time.
const SHORT: Duration = Duration::from_millis(3);
const SHARE: f64 = 0.01;
const ATTEMPTS: u32 = 3;

/// Gives up what a test does [in time](in_time) unless the condition holds.
macro_rules! timely {
    ($condition:expr, $($words:tt)+) => {
        let holds: bool = $condition;
        if !holds {
            return Err(format!($($words)+));
        }
    };
}
pub(crate) use timely;

/// Why no test should make namespaces here; none: it may. `ci.sh quick` leaves them to `ci.sh`.
pub(crate) fn no_lab() -> Option<&'static str> {
    if std::env::var_os("BANDMASTER_NO_LAB").is_some() {
        return Some("BANDMASTER_NO_LAB is set");
    }
    (!nix::unistd::geteuid().is_root()).then_some("needs root: network namespaces")
}

/// Whether the lab itself says that this attempt came too late.
static LATE: AtomicBool = AtomicBool::new(false);

/// Notes what a trial of the lab says of the machine.
#[allow(dead_code, reason = "the gateway's tests have no trials")]
pub(crate) fn note_late(is_late: bool) {
    LATE.fetch_or(is_late, Ordering::Relaxed);
}

/// Says that a test did not do what it is for: also where the test passes, whose other words are not shown.
pub(crate) fn skip(test: &str, why: impl Display) {
    let _ = writeln!(io::stderr(), "skipped: {test}: {why}");
}

/// Runs a test of what real traffic comes to. What is [timely] and does not hold fails, but while the machine stood still, as
/// virtual and busy ones do, it is tried again; a test that no attempt could decide is skipped. Whatever else does not hold
/// fails.
pub(crate) fn in_time(test: &str, body: impl Fn() -> Result<(), String>) {
    for _ in 0..ATTEMPTS {
        LATE.store(false, Ordering::Relaxed);
        let watch = Watch::start();
        let result = body();
        let pauses = watch.end();
        match result {
            Ok(()) => return,
            Err(why) => {
                assert!(pauses.disturb() || LATE.load(Ordering::Relaxed), "{why}");
                println!("while the machine did not keep the time ({pauses:?}): {why}");
            }
        }
    }
    skip(test, format_args!("the machine did not keep the time in {ATTEMPTS} attempts"));
}

/// How a processor stood still.
#[derive(Clone, Copy, Debug)]
struct Pauses {
    longest: Duration,
    sum: Duration,
    of: Duration,
}

impl Pauses {
    fn disturb(&self) -> bool {
        self.longest > STILL || self.sum > self.of.mul_f64(SHARE)
    }
}

/// A thread on each processor that wakes up each millisecond.
struct Watch {
    ends: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Pauses>>,
}

impl Watch {
    fn start() -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        let processors = thread::available_parallelism().map_or(1, usize::from);
        let watch = |processor| {
            let ends = ends.clone();
            thread::spawn(move || watch(processor, &ends))
        };
        let threads = (0..processors).map(watch).collect();
        Self { ends, threads }
    }

    /// Those of the processor that stood still longest.
    fn end(mut self) -> Pauses {
        self.ends.store(true, Ordering::Relaxed);
        let pauses = self.threads.drain(..).map(|thread| thread.join().expect("a watch counts"));
        pauses.max_by_key(|pauses| (pauses.longest, pauses.sum)).expect("a machine has a processor")
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
    }
}

fn watch(processor: usize, ends: &AtomicBool) -> Pauses {
    let mut one = CpuSet::new();
    // Where threads may not choose, they watch whichever they are on.
    let _ = one.set(processor).and_then(|()| sched_setaffinity(Pid::from_raw(0), &one));
    let begin = Instant::now();
    let mut last = begin;
    let (mut longest, mut sum) = (Duration::ZERO, Duration::ZERO);
    while !ends.load(Ordering::Relaxed) {
        thread::sleep(Duration::from_millis(1));
        let now = Instant::now();
        let late = (now - last).saturating_sub(Duration::from_millis(1));
        last = now;
        longest = longest.max(late);
        sum += if late > SHORT { late } else { Duration::ZERO };
    }
    Pauses { longest, sum, of: begin.elapsed() }
}
