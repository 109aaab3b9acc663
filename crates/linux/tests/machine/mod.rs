//! Whether the machine gave a test its time: what real traffic comes to within so many seconds depends on it.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
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

/// Runs a test of what real traffic comes to. When it fails while the machine stood still, as virtual and busy ones do, it
/// is run again; a test that no attempt could decide is skipped, and says so.
pub(crate) fn in_time(test: &str, body: impl Fn()) {
    for _ in 0..ATTEMPTS {
        let watch = Watch::start();
        let result = catch_unwind(AssertUnwindSafe(&body));
        let pauses = watch.end();
        match result {
            Ok(()) => return,
            Err(panic) if !pauses.disturb() => resume_unwind(panic),
            Err(_) => eprintln!("{test} failed while the machine did not keep the time: {pauses:?}"),
        }
    }
    eprintln!("skipped: {test}: the machine did not keep the time in {ATTEMPTS} attempts");
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
    fn end(self) -> Pauses {
        self.ends.store(true, Ordering::Relaxed);
        let pauses = self.threads.into_iter().map(|thread| thread.join().expect("a watch counts"));
        pauses.max_by_key(|pauses| (pauses.longest, pauses.sum)).expect("a machine has a processor")
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
