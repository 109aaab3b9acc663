//! A daemon's clock: it keeps running while the machine sleeps, and it cannot be set.

use bandmaster_core::time::{Span, Time};
use nix::sys::time::TimeValLike;
use nix::time::{ClockId, clock_gettime};

/// A clock that began when it was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Clock {
    start: u64,
}

impl Clock {
    pub(crate) fn new() -> Self {
        Self { start: nanos(ClockId::CLOCK_BOOTTIME) }
    }

    /// A clock that says the time of the day as it was made, so that it goes on after those of lives before.
    pub(crate) fn of_day() -> Self {
        Self { start: nanos(ClockId::CLOCK_BOOTTIME).wrapping_sub(nanos(ClockId::CLOCK_REALTIME)) }
    }

    pub(crate) fn now(&self) -> Time {
        self.at(nanos(ClockId::CLOCK_BOOTTIME))
    }

    /// The time that the kernel calls `boot_nanos`, since the machine started.
    pub(crate) fn at(&self, boot_nanos: u64) -> Time {
        Time::from_nanos(boot_nanos.wrapping_sub(self.start))
    }
}

/// Seconds of the day's clock: only to number rounds above those of a life before.
pub(crate) fn seconds_of_day() -> u32 {
    let seconds = Span::from_nanos(nanos(ClockId::CLOCK_REALTIME)).as_nanos() / 1_000_000_000;
    u32::try_from(seconds).unwrap_or(u32::MAX)
}

fn nanos(clock: ClockId) -> u64 {
    // These clocks exist on every Linux since 2.6.39.
    clock_gettime(clock).map_or(0, |time| u64::try_from(time.num_nanoseconds()).unwrap_or(0))
}
