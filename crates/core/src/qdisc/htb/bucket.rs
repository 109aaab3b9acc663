//! A bucket of time: how long a class must be silent until its rate has paid for what it has sent.

use crate::time::Time;
use crate::units::{Bytes, Rate};

/// Bits of a byte, in the billionths that a nanosecond at 1 bit/s carries.
const BILLIONTHS: u64 = 8_000_000_000;

/// A token bucket as Linux's HTB keeps it: tokens are nanoseconds at the bucket's rate, and may be below zero.
///
/// Ours: not the tokens are kept, but the moment at which there are none, in exact arithmetic. So nothing is done as time
/// passes, and nothing is rounded away: a busy class keeps its rate for good.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bucket {
    rate: Rate,
    /// What a long silence saves up, in nanoseconds at the rate.
    depth: i64,
    /// No tokens at this nanosecond, which a full bucket puts before the start of the run ...
    even_at: i64,
    /// ... and so many parts of a nanosecond, of `rate` each.
    part: u64,
}

fn nanos(time: Time) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}

/// Nanoseconds, rounded up and at least one: asked at the first whole nanosecond that allows a packet, a bucket has lost
/// nothing.
fn depth(rate: Rate, burst: Bytes) -> i64 {
    let nanos = u128::from(burst.get()) * u128::from(BILLIONTHS);
    i64::try_from(nanos.div_ceil(u128::from(rate.bits_per_sec().max(1)))).unwrap_or(i64::MAX).max(1)
}

impl Bucket {
    /// A bucket that is full at the start of the run.
    pub(super) fn full(rate: Rate, burst: Bytes) -> Self {
        let depth = depth(rate, burst);
        Self { rate, depth, even_at: -depth, part: 0 }
    }

    /// Changes the rate. Tokens stay what they are in nanoseconds, as with Linux's `tc class change`; those above the new
    /// depth are lost with the next packet.
    pub(super) fn change(&mut self, rate: Rate, burst: Bytes) {
        self.even_at = self.ready_nanos();
        self.part = 0;
        self.rate = rate;
        self.depth = depth(rate, burst);
    }

    /// When the tokens are no longer below zero.
    #[inline]
    pub(super) fn ready(&self) -> Time {
        Time::from_nanos(self.ready_nanos().max(0) as u64)
    }

    #[inline]
    fn ready_nanos(&self) -> i64 {
        self.even_at.saturating_add(i64::from(self.part > 0))
    }

    /// Takes the tokens of `len` bytes, however many there are.
    #[inline]
    pub(super) fn charge(&mut self, now: Time, len: u32) {
        let full = nanos(now).saturating_sub(self.depth);
        if self.even_at < full {
            self.even_at = full;
            self.part = 0;
        }
        let rate = self.rate.bits_per_sec().max(1);
        let (whole, part) = match u64::from(len).checked_mul(BILLIONTHS) {
            Some(billionths) => (billionths / rate, billionths % rate),
            None => {
                let billionths = u128::from(len) * u128::from(BILLIONTHS);
                let rate = u128::from(rate);
                (u64::try_from(billionths / rate).unwrap_or(u64::MAX), (billionths % rate) as u64)
            }
        };
        let carry = part >= rate - self.part;
        self.part = if carry { part - (rate - self.part) } else { self.part + part };
        let whole = i64::try_from(whole).unwrap_or(i64::MAX).saturating_add(i64::from(carry));
        self.even_at = self.even_at.saturating_add(whole);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Span;

    const fn mbit(rate: u64) -> Rate {
        Rate::from_bits_per_sec(rate * 1_000_000)
    }

    #[test]
    fn tokens_are_saved_up_to_the_depth_and_may_be_below_zero() {
        // 1000 bytes at 8 Mbit/s are 1 ms.
        let mut bucket = Bucket::full(mbit(8), Bytes::new(2_000));
        let second = Time::ZERO + Span::from_secs(1);
        assert_eq!(bucket.ready(), Time::ZERO);
        for _ in 0..2 {
            bucket.charge(second, 1_000);
        }
        assert_eq!(bucket.ready(), second);
        bucket.charge(second, 1_500);
        assert_eq!(bucket.ready(), second + Span::from_micros(1_500));
        // Full again 2 ms after that, not more later.
        let late = second + Span::from_secs(9);
        bucket.charge(late, 2_001);
        assert_eq!(bucket.ready(), late + Span::from_micros(1));
    }

    #[test]
    fn nothing_is_lost_to_rounding() {
        // 1514 bytes at 7,777,777 bit/s take 1,557,257.2985... ns; 100,001 of them from tokens for one.
        let mut bucket = Bucket::full(Rate::from_bits_per_sec(7_777_777), Bytes::new(1_514));
        let mut now = Time::ZERO;
        for _ in 0..100_001 {
            now = now.max(bucket.ready());
            bucket.charge(now, 1_514);
        }
        // 100,000 x 1514 x 8 x 10^9 / 7,777,777 = 155,725,729,858.287..., less 0.701 by which the depth was rounded up.
        assert_eq!(bucket.ready().as_nanos(), 155_725_729_858);
    }

    #[test]
    fn a_change_keeps_the_tokens_in_nanoseconds() {
        let mut bucket = Bucket::full(mbit(8), Bytes::new(1_000));
        bucket.charge(Time::ZERO, 3_000);
        assert_eq!(bucket.ready().as_nanos(), 2_000_000);
        // Below zero: 2 ms of silence at any rate.
        bucket.change(mbit(1), Bytes::new(1_000));
        assert_eq!(bucket.ready().as_nanos(), 2_000_000);
        let now = Time::ZERO + Span::from_millis(2);
        bucket.charge(now, 1_000);
        assert_eq!(bucket.ready().as_nanos(), 10_000_000);
        // 8 ms saved at 1 Mbit/s are 8000 bytes at 8 Mbit/s, of which the burst keeps 1000.
        let full = Time::ZERO + Span::from_millis(18);
        bucket.change(mbit(8), Bytes::new(1_000));
        bucket.charge(full, 1_500);
        assert_eq!(bucket.ready(), full + Span::from_micros(500));
    }

    #[test]
    fn extremes_neither_wrap_nor_panic() {
        let mut slow = Bucket::full(Rate::from_bits_per_sec(1), Bytes::new(u64::MAX));
        slow.charge(Time::ZERO, u32::MAX);
        assert_eq!(slow.ready(), Time::ZERO);
        let mut fast = Bucket::full(Rate::from_bits_per_sec(u64::MAX), Bytes::ZERO);
        for _ in 0..3 {
            fast.charge(Time::MAX, u32::MAX);
        }
        assert_eq!(fast.ready().as_nanos(), i64::MAX as u64);
        let mut never = Bucket::full(Rate::from_bits_per_sec(1), Bytes::ZERO);
        for _ in 0..3 {
            never.charge(Time::ZERO, u32::MAX);
        }
        assert_eq!(never.ready().as_nanos(), i64::MAX as u64);
    }
}
