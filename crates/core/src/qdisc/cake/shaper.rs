//! CAKE's shaper: virtual clocks, and what a packet takes on the link behind the shaper.

use crate::params::choice;
use crate::time::{Span, Time};
use crate::units::Rate;

choice! {
    /// How the link behind the shaper divides packets into cells.
    pub(super) enum LinkLayer {
        /// Not at all.
        Plain = "none",
        /// ATM: a cell of 53 bytes carries 48.
        Atm = "atm",
        /// PTM: 65 bytes carry 64.
        Ptm = "ptm",
    }
}

/// What the link behind the shaper adds to a packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Framing {
    /// Bytes that it adds to each packet.
    pub(super) overhead: u64,
    /// Least bytes that a packet takes with them.
    pub(super) mpu: u64,
    /// What its cells add then.
    pub(super) layer: LinkLayer,
}

impl Framing {
    /// Bytes that a packet of `len` takes there.
    pub(super) fn bytes(self, len: u32) -> u64 {
        let framed = (u64::from(len) + self.overhead).max(self.mpu);
        match self.layer {
            LinkLayer::Plain => framed,
            LinkLayer::Atm => framed.div_ceil(48) * 53,
            LinkLayer::Ptm => framed + framed.div_ceil(64),
        }
    }
}

/// When a packet may leave at a rate: a moment that each packet moves on by its own time. No burst is saved up, and
/// nothing is rounded away: a busy clock keeps its rate for good.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    /// Bits per second, at least one.
    rate: u64,
    next: Time,
    /// Parts of a nanosecond by which `next` is early, of `rate` each.
    owed: u64,
}

impl Clock {
    /// A clock that lets a packet go at once.
    pub(super) fn new(rate: Rate) -> Self {
        Self { rate: rate.bits_per_sec().max(1), next: Time::ZERO, owed: 0 }
    }

    /// When the next packet may leave; in the past while the packets so far took less than the rate.
    pub(super) const fn next(&self) -> Time {
        self.next
    }

    /// Forgets what was not used before `now`.
    pub(super) fn catch_up(&mut self, now: Time) {
        if self.next < now {
            (self.next, self.owed) = (now, 0);
        }
    }

    /// Charges a packet that takes so many bytes.
    pub(super) fn charge(&mut self, bytes: u64) {
        let (nanos, owed) = self.time_for(bytes, self.owed);
        self.next += nanos;
        self.owed = owed;
    }

    /// Charges a packet that leaves at `now`. A clock that is early or in time goes on from its own time; one that is late
    /// already is late by one packet from now at least, and no debt adds up.
    pub(super) fn charge_at(&mut self, now: Time, bytes: u64) {
        if self.next < now {
            self.charge(bytes);
            return;
        }
        let (nanos, owed) = self.time_for(bytes, 0);
        if now + nanos > self.next {
            (self.next, self.owed) = (now + nanos, owed);
        }
    }

    /// Time for so many bytes and `owed` parts of a nanosecond, in whole nanoseconds and parts.
    fn time_for(&self, bytes: u64, owed: u64) -> (Span, u64) {
        let parts = u128::from(bytes) * 8_000_000_000 + u128::from(owed);
        let rate = u128::from(self.rate);
        (Span::from_nanos(u64::try_from(parts / rate).unwrap_or(u64::MAX)), (parts % rate) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_take_what_the_link_adds() {
        let plain = Framing { overhead: 44, mpu: 0, layer: LinkLayer::Plain };
        assert_eq!([1500, 40].map(|len| plain.bytes(len)), [1544, 84]);
        // Ethernet: 38 bytes around 1500 or more, never less than 84.
        let ethernet = Framing { overhead: 38, mpu: 84, layer: LinkLayer::Plain };
        assert_eq!([1500, 40, 46, 47].map(|len| ethernet.bytes(len)), [1538, 84, 84, 85]);
        // 1540 bytes take 33 cells: 32 carry 1536. 80 bytes take two.
        let atm = Framing { overhead: 40, mpu: 0, layer: LinkLayer::Atm };
        assert_eq!([1500, 40, 56, 57].map(|len| atm.bytes(len)), [1749, 106, 106, 159]);
        // 1530 bytes begin 24 times 64.
        let ptm = Framing { overhead: 30, mpu: 0, layer: LinkLayer::Ptm };
        assert_eq!([1500, 34, 35].map(|len| ptm.bytes(len)), [1554, 65, 67]);
        let raised = Framing { overhead: 10, mpu: 96, layer: LinkLayer::Atm };
        assert_eq!([40, 86, 87].map(|len| raised.bytes(len)), [106, 106, 159]);
    }

    #[test]
    fn a_clock_keeps_its_rate_and_saves_nothing_up() {
        // A byte at 3 bit/s takes 2,666,666,666 2/3 ns.
        let mut clock = Clock::new(Rate::from_bits_per_sec(3));
        for nanos in [2_666_666_666, 5_333_333_333, 8_000_000_000] {
            clock.charge(1);
            assert_eq!(clock.next().as_nanos(), nanos);
        }
        clock.catch_up(Time::from_nanos(7_000_000_000));
        assert_eq!(clock.next().as_nanos(), 8_000_000_000);
        clock.catch_up(Time::from_nanos(9_000_000_000));
        assert_eq!(clock.next().as_nanos(), 9_000_000_000);
    }

    #[test]
    fn a_clock_that_is_late_owes_no_more_than_a_packet() {
        // A byte takes 1 us.
        let mut clock = Clock::new(Rate::from_bits_per_sec(8_000_000));
        let at = |micros| Time::ZERO + Span::from_micros(micros);
        // In time: from its own time. Early: too.
        clock.charge_at(at(0), 10);
        assert_eq!(clock.next(), at(10));
        clock.charge_at(at(25), 10);
        assert_eq!(clock.next(), at(20));
        clock.charge_at(at(25), 10);
        assert_eq!(clock.next(), at(30));
        // Late: the packets that borrow do not add up.
        for micros in [25, 26, 27] {
            clock.charge_at(at(micros), 10);
            assert_eq!(clock.next(), at(micros + 10));
        }
        clock.charge_at(at(28), 1);
        assert_eq!(clock.next(), at(37));
    }
}
