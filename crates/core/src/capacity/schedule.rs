//! When a port whose capacity changes with time has sent a packet. The schedule is known beforehand, so this is known as
//! soon as the transmission begins.

use std::sync::Arc;

use super::{Capacity, Steps, Trace};
use crate::time::{Span, Time};
use crate::units::Rate;

/// Capacity over time, and how far it is used up.
#[derive(Clone, Debug)]
pub struct Schedule(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Steps(Stepper),
    Trace(Opportunities),
}

impl Schedule {
    /// `rate` is that before the first step; a transmitter whose rate is off by the share `off` is so at each step. Times
    /// of a trace are what was measured and stay.
    pub fn new(capacity: &Capacity, rate: Rate, off: f64) -> Self {
        Self(match capacity {
            Capacity::Steps(steps) => Kind::Steps(Stepper::new(steps, rate, off)),
            Capacity::Trace(trace) => Kind::Trace(Opportunities::new(trace)),
        })
    }

    /// When `len` bytes have been sent whose transmission begins at `start`; `continues` when the transmitter became
    /// free at that moment. Starts never decrease, and none is before the end of the transmission before it.
    pub fn finish(&mut self, start: Time, continues: bool, len: u32) -> Time {
        match &mut self.0 {
            Kind::Steps(stepper) => stepper.finish(start, continues, len),
            Kind::Trace(opportunities) => opportunities.finish(start, continues, len),
        }
    }

    /// Bits that it offers after `from` and until `to`, used or not.
    pub fn carries(&self, from: Time, to: Time) -> f64 {
        match &self.0 {
            Kind::Steps(stepper) => {
                stepper.until(to).saturating_sub(stepper.until(from)) as f64 / NANOS as f64
            }
            Kind::Trace(opportunities) => {
                let number = opportunities.until(to).saturating_sub(opportunities.until(from));
                number as f64 * f64::from(OPPORTUNITY) * 8.0
            }
        }
    }
}

const NANOS: u128 = 1_000_000_000;

/// A rate that changes at stated times. Amounts are counted in nanobits, what 1 bit/s sends in a nanosecond: whole
/// numbers, so that nothing is lost to rounding.
#[derive(Clone, Debug)]
struct Stepper {
    /// Start within the cycle in ns, and bit/s from then on; the first starts at 0.
    parts: Vec<(u64, u64)>,
    /// Length of the cycle in ns, and what it carries.
    cycle: Option<(u64, u128)>,
    /// Start of the present cycle in ns, and the part that was last used.
    origin: u64,
    at: usize,
    /// What the transmitter still owes of a packet at the time it became free, less than a nanosecond's worth.
    owed: u128,
}

impl Stepper {
    fn new(steps: &Steps, rate: Rate, off: f64) -> Self {
        let actual = |rate: Rate| match rate {
            Rate::ZERO => 0,
            _ => Rate::from_bits_per_sec_f64(rate.bits_per_sec() as f64 * (1.0 + off)).bits_per_sec().max(1),
        };
        let mut parts = Vec::with_capacity(steps.steps().len() + 1);
        if steps.steps().iter().all(|step| !step.at.is_zero()) {
            parts.push((0, actual(rate)));
        }
        parts.extend(steps.steps().iter().map(|step| (step.at.as_nanos(), actual(step.rate))));
        let cycle = steps.period().map(|period| {
            let ends = parts.iter().skip(1).map(|(start, _)| *start).chain([period.as_nanos()]);
            let carries = parts
                .iter()
                .zip(ends)
                .map(|((start, rate), end)| u128::from(*rate) * u128::from(end - start));
            (period.as_nanos(), carries.sum())
        });
        Self { parts, cycle, origin: 0, at: 0, owed: 0 }
    }

    fn finish(&mut self, start: Time, continues: bool, len: u32) -> Time {
        let mut now = start.as_nanos();
        let mut rest = u128::from(len) * 8 * NANOS;
        if continues {
            rest += self.owed;
        }
        self.seek(now);
        if let Some((period, carries)) = self.cycle
            && rest > carries
        {
            let whole = (rest - 1) / carries;
            let skipped = u64::try_from(whole).unwrap_or(u64::MAX).saturating_mul(period);
            rest -= whole * carries;
            now = now.saturating_add(skipped);
            self.origin = self.origin.saturating_add(skipped);
        }
        loop {
            let rate = u128::from(self.parts[self.at].1);
            let end = self.end_of_part();
            let most = end.map(|end| rate * u128::from(end.saturating_sub(now)));
            if rate > 0 && most.is_none_or(|most| rest <= most) {
                self.owed = rest % rate;
                let nanos = u64::try_from(rest / rate).unwrap_or(u64::MAX);
                return Time::from_nanos(now) + Span::from_nanos(nanos);
            }
            match (end, most) {
                (Some(end), Some(most)) if end < u64::MAX => {
                    rest -= most;
                    now = end;
                    self.next_part();
                }
                // After all time.
                _ => return Time::MAX,
            }
        }
    }

    /// Nanobits that can be sent from the start of the run until `now`.
    fn until(&self, now: Time) -> u128 {
        let now = now.as_nanos();
        let (cycles, within) = self.cycle.map_or((0, now), |(period, _)| (now / period, now % period));
        let ends = self.parts.iter().skip(1).map(|(start, _)| *start).chain([u64::MAX]);
        let carries = |((start, rate), end): (&(u64, u64), u64)| {
            u128::from(*rate) * u128::from(within.min(end).saturating_sub(*start))
        };
        let of_cycles = u128::from(cycles) * self.cycle.map_or(0, |(_, carries)| carries);
        of_cycles + self.parts.iter().zip(ends).map(carries).sum::<u128>()
    }

    /// Finds the part at `now`.
    fn seek(&mut self, now: u64) {
        if let Some((period, _)) = self.cycle
            && now - self.origin >= period
        {
            self.origin = now - (now - self.origin) % period;
            self.at = 0;
        }
        let within = now - self.origin;
        self.at += self.parts[self.at + 1..].partition_point(|(start, _)| *start <= within);
    }

    /// When the present part ends; none: never.
    fn end_of_part(&self) -> Option<u64> {
        let end =
            self.parts.get(self.at + 1).map(|(start, _)| *start).or(self.cycle.map(|(period, _)| period));
        end.map(|end| self.origin.saturating_add(end))
    }

    fn next_part(&mut self) {
        self.at += 1;
        if self.at == self.parts.len() {
            self.at = 0;
            self.origin = self.origin.saturating_add(self.cycle.map_or(0, |(period, _)| period));
        }
    }
}

/// Delivery opportunities of a trace. What a packet leaves of one is for the packet after it, if that is already there;
/// an opportunity that finds no packet is lost.
#[derive(Clone, Debug)]
struct Opportunities {
    /// Within a round, in milliseconds.
    times: Arc<[u32]>,
    /// The first that is not used up, counted over all rounds.
    next: u64,
    /// Bytes that may still leave at the last used opportunity.
    left: u32,
}

const MILLI: u64 = 1_000_000;
const OPPORTUNITY: u32 = Trace::OPPORTUNITY.get() as u32;

impl Opportunities {
    fn new(trace: &Trace) -> Self {
        let mut new = Self { times: Arc::clone(trace.opportunities()), next: 0, left: 0 };
        new.skip(Time::ZERO);
        new
    }

    fn finish(&mut self, start: Time, continues: bool, len: u32) -> Time {
        if !continues {
            self.left = 0;
            self.skip(start);
        }
        if let Some(left) = self.left.checked_sub(len) {
            self.left = left;
            return start;
        }
        let missing = len - self.left;
        let used = missing.div_ceil(OPPORTUNITY);
        self.left = used * OPPORTUNITY - missing;
        self.next += u64::from(used);
        self.time(self.next - 1)
    }

    /// Forgets the opportunities until `now`: a packet that comes at the very moment of one is too late.
    fn skip(&mut self, now: Time) {
        self.next = self.until(now);
    }

    /// Opportunities until `now`, that moment included, counted over all rounds.
    fn until(&self, now: Time) -> u64 {
        let nanos = now.as_nanos();
        let round = nanos / self.length();
        let within = (nanos % self.length()) / MILLI;
        let gone = self.times.partition_point(|at| u64::from(*at) <= within);
        round * self.times.len() as u64 + gone as u64
    }

    /// Time of an opportunity.
    fn time(&self, number: u64) -> Time {
        let (round, within) = (number / self.times.len() as u64, number % self.times.len() as u64);
        Time::from_nanos(round * self.length() + u64::from(self.times[within as usize]) * MILLI)
    }

    /// Length of a round in ns.
    fn length(&self) -> u64 {
        u64::from(self.times[self.times.len() - 1]) * MILLI
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::capacity::Step;

    const MBIT: u64 = 1_000_000;

    fn steps(list: &[(u64, u64)], period: Option<u64>) -> Capacity {
        let step =
            |&(at, rate): &(u64, u64)| Step { at: Span::from_nanos(at), rate: Rate::from_bits_per_sec(rate) };
        Capacity::Steps(
            Steps::new(list.iter().map(step).collect(), period.map(Span::from_nanos)).expect("steps"),
        )
    }

    fn trace(times: &[u32]) -> Capacity {
        let text: String = times.iter().map(|at| format!("{at}\n")).collect();
        Capacity::Trace(Trace::parse("t", &text).expect("a trace"))
    }

    /// Finish times in ns of packets of `lens` bytes that are all there at `start`.
    fn burst(schedule: &mut Schedule, start: u64, lens: &[u32]) -> Vec<u64> {
        let mut free = Time::from_nanos(start);
        let mut finish = |(i, len): (usize, &u32)| {
            free = schedule.finish(free, i > 0, *len);
            free.as_nanos()
        };
        lens.iter().enumerate().map(&mut finish).collect()
    }

    /// 1000 bytes take 1 ms at 8 Mbit/s. The third packet has sent half of its bytes when the rate falls to 2 Mbit/s, and
    /// the fifth waits in the pause from 10 ms to 20 ms with half of its bytes to go.
    #[test]
    fn a_burst_through_steps_and_a_pause() {
        let capacity = steps(&[(2_500_000, 2 * MBIT), (10_000_000, 0), (20_000_000, MBIT)], None);
        let mut schedule = Schedule::new(&capacity, Rate::from_bits_per_sec(8 * MBIT), 0.0);
        let finished = burst(&mut schedule, 0, &[1_000, 1_000, 1_000, 1_000, 750, 125]);
        // 2.5 ms + 500 B at 2 Mbit/s = 4.5 ms; + 4 ms = 8.5 ms; 375 B by 10 ms, the other 375 B at 1 Mbit/s take 3 ms.
        assert_eq!(finished, [1_000_000, 2_000_000, 4_500_000, 8_500_000, 23_000_000, 24_000_000]);
        assert_eq!(burst(&mut schedule, 100_000_000, &[125]), [101_000_000], "the last rate stays");
    }

    #[test]
    fn steps_begin_anew_after_the_period() {
        // 8 Mbit/s for 1 ms in every 4 ms: 1000 bytes a period.
        let capacity = steps(&[(1_000_000, 0)], Some(4_000_000));
        let rate = Rate::from_bits_per_sec(8 * MBIT);
        let schedule = || Schedule::new(&capacity, rate, 0.0);
        assert_eq!(burst(&mut schedule(), 0, &[500, 1_000, 500]), [500_000, 4_500_000, 5_000_000]);
        assert_eq!(burst(&mut schedule(), 41_000_000, &[250]), [44_250_000]);
        assert_eq!(burst(&mut schedule(), 500_000, &[1_000_000]), [4_000_500_000]);
        let fast = Schedule::new(&capacity, rate, 0.25);
        assert_eq!(burst(&mut { fast }, 0, &[1_000]), [800_000], "a transmitter that is too fast");
    }

    /// By hand, as `mm-link` does: opportunities at 2, 2, 5 and 7 ms, then 9, 9, 12, 14.
    #[test]
    fn packets_share_opportunities_and_span_them() {
        let mut schedule = Schedule::new(&trace(&[2, 2, 5, 7]), Rate::from_bits_per_sec(MBIT), 0.0);
        let ms = |times: &[u64]| times.iter().map(|t| t * 1_000_000).collect::<Vec<_>>();
        // 1504 + 1504 bytes at 2 ms: three of 1000; the fourth has 8 bytes of them and 992 of those at 5 ms.
        assert_eq!(burst(&mut schedule, 0, &[1_000, 1_000, 1_000, 1_000, 500]), ms(&[2, 2, 2, 5, 5]));
        // The rest of that at 5 ms is lost; 7 ms is used up by 1504 bytes; 4000 bytes need three more.
        assert_eq!(burst(&mut schedule, 5_000_001, &[1_504, 4_000, 512]), ms(&[7, 12, 12]));
        // At the very moment of an opportunity it is too late for it.
        assert_eq!(burst(&mut schedule, 14_000_000, &[40]), ms(&[16]));
        assert_eq!(burst(&mut schedule, 700_000_000_000_000, &[40]), [700_000_002_000_000]);
        let mut zero = Schedule::new(&trace(&[0, 1]), Rate::from_bits_per_sec(MBIT), 0.0);
        assert_eq!(burst(&mut zero, 0, &[1_504, 1_504, 1_504, 1_504]), ms(&[1, 1, 2, 2]));
    }

    #[test]
    fn what_a_schedule_offers_is_counted_by_hand() {
        let ms = |ms: f64| Time::ZERO + Span::from_secs_f64(ms / 1e3);
        let rate = Rate::from_bits_per_sec(8 * MBIT);
        let once = steps(&[(2_500_000, 2 * MBIT), (10_000_000, 0), (20_000_000, MBIT)], None);
        // 8 Mbit/s for 1 ms in every 4 ms.
        let cycle = steps(&[(1_000_000, 0)], Some(4_000_000));
        // Opportunities of 1504 bytes at 2, 2, 5 and 7 ms, then at 9, 9, 12 and 14 ms.
        let opportunities = trace(&[2, 2, 5, 7]);
        for (capacity, from, to, bits) in [
            (&once, 0.0, 2.5, 20_000.0),
            (&once, 0.0, 10.0, 35_000.0),
            (&once, 10.0, 20.0, 0.0),
            (&once, 5.0, 30.0, 20_000.0),
            (&cycle, 0.0, 4.0, 8_000.0),
            (&cycle, 0.5, 4.25, 6_000.0),
            (&cycle, 41.0, 44.0, 0.0),
            (&cycle, 4.0, 404.0, 800_000.0),
            (&opportunities, 0.0, 1.5, 0.0),
            (&opportunities, 0.0, 2.0, 2.0 * 12_032.0),
            (&opportunities, 2.0, 7.0, 2.0 * 12_032.0),
            (&opportunities, 7.0, 9.0, 2.0 * 12_032.0),
            (&opportunities, 0.0, 14.0, 8.0 * 12_032.0),
        ] {
            let schedule = Schedule::new(capacity, rate, 0.0);
            assert_eq!(schedule.carries(ms(from), ms(to)), bits, "{capacity:?} from {from} to {to} ms");
        }
        let fast = Schedule::new(&once, rate, 0.25);
        assert_eq!(fast.carries(ms(0.0), ms(2.5)), 25_000.0, "a transmitter that is too fast");
    }

    /// Bits that could have been sent, ns by ns.
    struct Naive<'a> {
        list: &'a [(u64, u64)],
        period: Option<u64>,
        rate: u64,
    }

    impl Naive<'_> {
        fn rate_at(&self, now: u64) -> u64 {
            let within = self.period.map_or(now, |period| now % period);
            self.list.iter().rev().find(|(at, _)| *at <= within).map_or(self.rate, |(_, rate)| *rate)
        }

        /// Finish times, rounded down, of packets sent back to back from `start` on.
        fn burst(&self, start: u64, lens: &[u32]) -> Vec<u64> {
            let (mut now, mut sent, mut asked) = (start, 0u128, 0u128);
            let mut finished = Vec::new();
            for len in lens {
                asked += u128::from(*len) * 8 * NANOS;
                while sent < asked {
                    sent += u128::from(self.rate_at(now));
                    now += 1;
                }
                finished.push(if sent > asked { now - 1 } else { now });
            }
            finished
        }
    }

    fn parts() -> impl Strategy<Value = Vec<(u64, u64)>> {
        let rate = prop_oneof![Just(0), 100 * MBIT..20_000 * MBIT];
        prop::collection::btree_map(0u64..8_000, rate, 1..6).prop_map(|parts| parts.into_iter().collect())
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn steps_are_integrated_exactly(
            mut list in parts(),
            more in prop::option::of(1u64..4_000),
            rate in 100 * MBIT..20_000 * MBIT,
            bursts in prop::collection::vec((1u64..20_000, prop::collection::vec(1u32..1_600, 1..6)), 1..6),
        ) {
            let period = more.map(|more| list[list.len() - 1].0 + more);
            // Something must be left to send at.
            if let Some(last) = list.last_mut() && last.1 == 0 {
                last.1 = 300 * MBIT;
            }
            let naive = Naive { list: &list, period, rate };
            let mut schedule = Schedule::new(&steps(&list, period), Rate::from_bits_per_sec(rate), 0.0);
            let mut now = 0;
            for (gap, lens) in bursts {
                now += gap;
                let finished = burst(&mut schedule, now, &lens);
                prop_assert_eq!(&finished, &naive.burst(now, &lens), "{:?} {:?} from {}", list, period, now);
                now = finished[finished.len() - 1];
            }
        }

        /// While packets wait, what leaves until any moment is what the opportunities until then hold, cut to whole packets;
        /// a packet that fits exactly wastes nothing.
        #[test]
        fn a_busy_trace_carries_every_opportunity(
            mut times in prop::collection::vec(0u32..50, 1..40),
            lens in prop::collection::vec(40u32..4_000, 1..200),
        ) {
            times.sort_unstable();
            times.push(times[times.len() - 1] + 1);
            let length = u64::from(times[times.len() - 1]);
            let bytes_until = |ms: u64| {
                let in_round = times.iter().filter(|at| u64::from(**at) <= ms % length).count() as u64;
                let at_start = times.iter().filter(|at| **at == 0).count() as u64;
                (ms / length * times.len() as u64 + in_round - at_start) * 1_504
            };
            let mut schedule = Schedule::new(&trace(&times), Rate::from_bits_per_sec(MBIT), 0.0);
            let finished = burst(&mut schedule, 0, &lens);
            let mut sent = 0;
            for (at, len) in finished.iter().zip(&lens) {
                prop_assert_eq!(at % MILLI, 0);
                sent += u64::from(*len);
                prop_assert!(sent <= bytes_until(at / MILLI));
                prop_assert!(sent > bytes_until(at / MILLI - 1));
            }
            let mut schedule = Schedule::new(&trace(&times), Rate::from_bits_per_sec(MBIT), 0.0);
            let whole = burst(&mut schedule, 0, &[1_504; 100]);
            for ms in 0..whole[whole.len() - 1] / MILLI {
                let left = whole.iter().filter(|at| **at <= ms * MILLI).count() as u64;
                prop_assert_eq!(left * 1_504, bytes_until(ms), "until {} ms", ms);
            }
        }
    }
}
