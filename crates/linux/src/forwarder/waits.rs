//! Waiting for what is due. A timer wakes the thread early, and the thread asks the clock for the rest of the time.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use bandmaster_core::time::{Span, Time};
use nix::sys::epoll::{Epoll, EpollEvent};

use super::Clock;
use crate::syscall;

/// Nobody waits longer, so that a request to stop is seen.
const PATIENCE: Span = Span::from_millis(50);
/// Earliest that the timer wakes it, before the time. Most virtual machines wake a thread in 20 to 50 us.
const MOST_EARLY: Span = Span::from_micros(100);
/// By how much each wake-up corrects what the next ones take for granted.
const STEP: Span = Span::from_nanos(100);
/// One wake-up of so many may be later than that.
const OF: u64 = 10;
/// It may be awake for so many times as long as it has slept, with work or without: the lab's traffic needs the processor too, and the
/// kernel stops who takes too much of it.
const FOR_SLEEP: u64 = 2;
/// What it has slept is not saved up beyond this.
const MOST_SAVED: Span = Span::from_millis(1);

/// While it is open no processor sleeps when it is idle: in a virtual machine a wake-up takes 40 us and more. None without root.
/// The kernel reads microseconds (Documentation/power/pm_qos_interface.rst), and forgets them when the file is closed.
pub(crate) fn stay_awake() -> Option<File> {
    let mut file = OpenOptions::new().write(true).open("/dev/cpu_dma_latency").ok()?;
    file.write_all(&0i32.to_ne_bytes()).ok()?;
    Some(file)
}

/// Threads of this process that wait like this.
static WAITING: AtomicUsize = AtomicUsize::new(0);

/// Waits of one thread.
pub(super) struct Waits {
    epoll: Epoll,
    lead: Lead,
    cores: usize,
    /// How long it may stay awake.
    saved: Span,
    /// When it waited last.
    waited: Time,
    /// For how long it stayed awake with nothing to do.
    pub(super) idle: Span,
}

impl Drop for Waits {
    fn drop(&mut self) {
        WAITING.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Waits {
    pub(super) fn new(epoll: Epoll) -> Self {
        WAITING.fetch_add(1, Ordering::Relaxed);
        let cores = thread::available_parallelism().map_or(1, usize::from);
        Self { epoll, lead: Lead::default(), cores, saved: Span::ZERO, waited: Time::ZERO, idle: Span::ZERO }
    }

    /// How long before its time the timer may wake it. Where each core has such a thread they would delay those that they wait for.
    fn lead(&self) -> Span {
        let others_have_room = WAITING.load(Ordering::Relaxed) < self.cores;
        if others_have_room && !self.saved.is_zero() { self.lead.0 } else { Span::ZERO }
    }

    /// Waits for packets, up to `due` or shortly before.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(super) fn wait(&mut self, clock: Clock, due: Time) -> io::Result<()> {
        let now = clock.now();
        self.saved = self.saved.saturating_sub(now.since(self.waited));
        let left = due.since(now).min(PATIENCE);
        let sleep = left.saturating_sub(self.lead());
        let ready = syscall::wait_for(&self.epoll, &mut [EpollEvent::empty()], sleep)?;
        self.waited = clock.now();
        let took = self.waited.since(now);
        if !sleep.is_zero() {
            self.saved = (self.saved + took * FOR_SLEEP).min(MOST_SAVED);
            if ready == 0 {
                self.lead.learn(took.saturating_sub(sleep));
            }
        } else if !left.is_zero() {
            self.saved = self.saved.saturating_sub(took);
            self.idle += took;
        }
        Ok(())
    }
}

/// By how much the timer wakes the thread early: by what all wake-ups but one of [`OF`] are late, learned from each.
#[derive(Default)]
struct Lead(Span);

impl Lead {
    fn learn(&mut self, late: Span) {
        self.0 = if late > self.0 {
            (self.0 + STEP * (OF - 1)).min(MOST_EARLY)
        } else {
            self.0.saturating_sub(STEP)
        };
    }
}

#[cfg(test)]
mod tests {
    use bandmaster_core::rng::Stream;

    use super::*;

    #[test]
    fn nine_of_ten_wake_ups_are_in_time() {
        let mut stream = Stream::new(1, 0, "late");
        let mut late = || stream.span_between(Span::from_micros(10), Span::from_micros(30));
        let mut lead = Lead::default();
        (0..1_000).for_each(|_| lead.learn(late()));
        let in_time = (0..10_000).filter(|_| {
            let late = late();
            let was = lead.0;
            lead.learn(late);
            late <= was
        });
        let in_time = in_time.count();
        assert!((8_900..9_100).contains(&in_time), "{in_time}");
        assert!((Span::from_micros(26)..Span::from_micros(31)).contains(&lead.0), "{}", lead.0);
    }

    #[test]
    fn the_lead_is_bounded() {
        let mut lead = Lead::default();
        (0..10_000).for_each(|_| lead.learn(Span::from_millis(3)));
        assert_eq!(lead.0, MOST_EARLY);
        (0..10_000).for_each(|_| lead.learn(Span::ZERO));
        assert_eq!(lead.0, Span::ZERO);
    }
}
