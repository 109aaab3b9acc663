//! Random early detection: drops or marks with a probability that rises with the average queue.
//!
//! Floyd and Jacobson, "Random Early Detection Gateways for Congestion Avoidance", IEEE/ACM Trans. Networking 1(4),
//! 1993, from its Fig. 2: `avg` moves at each arrival and decays over idle time, `p_b` is linear between the
//! thresholds, and `p_a = p_b / (1 - count p_b)` spaces the drops evenly. `gentle` is Floyd's "Recommendation on using
//! the gentle variant of RED" (2000), `wait` is ns-2's and ns-3's spacing. Above the upper threshold, or twice it when
//! gentle, everything is dropped, packets with ECT too: RFC 3168 section 7 marks only early. `spare-below` is ns-2's and
//! ns-3's guard of short queues, off by default.
//!
//! Deviation: thresholds in bytes scale `p_b` by length over `mean-packet`, as ns-2 does, where the paper has the
//! largest packet.

use super::fifo::DropTail;
use super::{Admission, Backlog, Discipline, Pkt, QdiscDef, Site, Verdict};
use crate::params::{Key, Kind, Limit, Params, key, keys};
use crate::rng::Stream;
use crate::time::{Span, Time};
use crate::units::{Bytes, Dimension, Rate};

/// The registry entry.
pub static DEF: QdiscDef = QdiscDef {
    name: "red",
    about: "Random early detection: drops or marks with a probability that rises with the average queue",
    source: "Floyd, Jacobson: Random Early Detection Gateways for Congestion Avoidance, IEEE/ACM Trans. Networking \
             1(4), 1993",
    keys: KEYS,
    check: |params| {
        check_mean_packet(params.bytes("mean-packet"))?;
        check_thresholds(params.limit("limit"), params.limit("min-th"), params.limit("max-th"))
    },
    build: |params, site| {
        let settings = Settings::new(params, params.bool("gentle"), params.bool("wait"));
        Discipline::Fifo(Box::new(Red::new(Settings { spare_below: spare_below(params), ..settings }, site)))
    },
};

const KEYS: &[Key] = keys! {
    /// Most that may wait, not counting the packet in transmission
    "limit": Kind::Limit, default "1000pkt", from "Linux txqueuelen";
    /// Average queue below which nothing is dropped early; its unit, packets or bytes, is that of the average
    "min-th": Kind::Limit, default "5pkt", from "Floyd and Jacobson 1993, Sect. 9";
    /// Average queue at which the drop probability reaches `max-p`; same unit as `min-th`
    "max-th": Kind::Limit, default "15pkt", from "Floyd and Jacobson 1993, Sect. 9";
    ..WEIGHT;
    /// Drop probability at `max-th`, before spacing
    "max-p": Kind::Float { min: 0.0, max: 1.0 }, default "0.1",
        from "Floyd 1997, RED: Discussions of Setting Parameters";
    /// Between `max-th` and twice that the probability rises from `max-p` to 1, instead of being 1
    "gentle": Kind::Bool, default "true", from "Floyd 2000; ns-2, ns-3";
    ..WAIT;
    ..SPARE_BELOW;
    ..ECN;
    ..MEAN_PACKET;
};

/// Spacing of early drops.
const WAIT: Key = key! {
    /// At least 1/p packets pass between two early drops, and at most 2/p, instead of up to 1/p
    "wait": Kind::Bool, default "false", from "Floyd and Jacobson 1993; Linux. ns-2 and ns-3: true"
};

/// Queue that the average does not touch.
pub(super) const SPARE_BELOW: Key = key! {
    /// While fewer packets wait, the average drops and marks nothing
    "spare-below": Kind::Quantity(Dimension::Packets), default "0pkt",
        from "Floyd and Jacobson 1993; Linux. ns-2 and ns-3: 2pkt"
};

/// The value of [`SPARE_BELOW`].
pub(super) fn spare_below(params: &Params) -> u32 {
    u32::try_from(params.integer(SPARE_BELOW.name)).unwrap_or(u32::MAX)
}

/// Weight of an arrival in the average.
pub(super) const WEIGHT: Key = key! {
    /// Weight of the queue at an arrival in its average
    "weight": Kind::Float { min: 1e-9, max: 1.0 }, default "0.002", from "Floyd and Jacobson 1993, Sect. 9"
};

/// Marking, of every discipline that drops early.
pub(super) const ECN: Key = key! {
    /// Mark packets of ECN-capable flows instead of dropping them early
    "ecn": Kind::Bool, default "false", from "RFC 3168; Linux tc: off"
};

/// The packet by which transmission times are counted.
pub(super) const MEAN_PACKET: Key = key! {
    /// Typical packet: an idle link ages the average by one arrival for each that it could have sent
    "mean-packet": Kind::Quantity(Dimension::Bytes), default "1000B", from "Linux tc-red(8)"
};

/// RED's settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// What may wait.
    pub limit: Limit,
    /// Thresholds of the average, in the unit of `in_bytes`.
    pub min_th: f64,
    /// See `min_th`; larger.
    pub max_th: f64,
    /// True when queue, average and thresholds are in bytes, false in packets.
    pub in_bytes: bool,
    /// Weight of a new sample, in (0, 1].
    pub weight: f64,
    /// `p_b` at `max_th`, in [0, 1].
    pub max_p: f64,
    /// Whether `p_b` goes on to 1 at twice `max_th`.
    pub gentle: bool,
    /// Whether early drops are at least `1/p_b` packets apart.
    pub wait: bool,
    /// Packets that must wait for the average to drop or mark; 0: it always may.
    pub spare_below: u32,
    /// Whether ECT packets are marked.
    pub ecn: bool,
    /// Typical packet, above zero.
    pub mean_packet: Bytes,
}

impl Settings {
    /// From the keys that every discipline with RED inside shares; no queue is spared.
    pub(super) fn new(params: &Params, gentle: bool, wait: bool) -> Self {
        let (min_th, max_th) = (params.limit("min-th"), params.limit("max-th"));
        Self {
            limit: params.limit("limit"),
            min_th: amount(min_th),
            max_th: amount(max_th),
            in_bytes: matches!(min_th, Limit::Bytes(_)),
            weight: params.float("weight"),
            max_p: params.float("max-p"),
            gentle,
            wait,
            spare_below: 0,
            ecn: params.bool("ecn"),
            mean_packet: params.bytes("mean-packet"),
        }
    }
}

/// Checks that a typical packet has bytes.
///
/// # Errors
/// When it has none. The error is (key, what is wrong).
pub fn check_mean_packet(mean_packet: Bytes) -> Result<(), (&'static str, String)> {
    if mean_packet == Bytes::ZERO {
        return Err(("mean-packet", "\"0B\" is not a packet; write a size such as \"1000B\"".to_owned()));
    }
    Ok(())
}

/// Checks thresholds `min-th` and `max-th` against each other and against `limit`.
///
/// # Errors
/// When they have no unit, different units, the wrong order, or RED could never act. The error is (key, what is wrong).
pub fn check_thresholds(limit: Limit, min_th: Limit, max_th: Limit) -> Result<(), (&'static str, String)> {
    for (key, threshold) in [("min-th", min_th), ("max-th", max_th)] {
        if threshold == Limit::Unlimited {
            return Err((key, "\"unlimited\" is not a threshold; write \"50pkt\" or \"64KiB\"".to_owned()));
        }
    }
    let same_unit = |a: Limit, b: Limit| matches!(a, Limit::Bytes(_)) == matches!(b, Limit::Bytes(_));
    if !same_unit(min_th, max_th) {
        let message = format!("\"{max_th}\" is not in the unit of `min-th`, \"{min_th}\"");
        return Err(("max-th", message));
    }
    if amount(max_th) <= amount(min_th) {
        return Err(("max-th", format!("\"{max_th}\" is not more than `min-th`, \"{min_th}\"")));
    }
    if limit != Limit::Unlimited && same_unit(min_th, limit) && amount(min_th) >= amount(limit) {
        let message =
            format!("\"{limit}\" is not more than `min-th`, \"{min_th}\": nothing would be dropped early");
        return Err(("limit", message));
    }
    Ok(())
}

/// A threshold as a number.
pub(super) fn amount(limit: Limit) -> f64 {
    match limit {
        Limit::Packets(packets) => f64::from(packets),
        Limit::Bytes(bytes) => bytes.get() as f64,
        Limit::Unlimited => f64::INFINITY,
    }
}

/// The average queue: `avg <- (1 - w) avg + w q` at each arrival, and `(1 - w)^m avg` after an idle time in which `m`
/// typical packets could have left.
#[derive(Clone, Copy, Debug)]
pub struct Average {
    weight: f64,
    /// Seconds to send a typical packet.
    transmission: f64,
    value: f64,
    /// The last arrival: idle time before it is in the average already, also when that packet was dropped.
    seen: Time,
}

impl Average {
    /// The average of an empty queue before a transmitter of `rate`.
    pub fn new(weight: f64, mean_packet: Bytes, rate: Rate) -> Self {
        let transmission = mean_packet.get() as f64 * 8.0 / rate.bits_per_sec().max(1) as f64;
        Self { weight, transmission, value: 0.0, seen: Time::ZERO }
    }

    /// Takes in an arrival that finds `queue` waiting and the transmitter without work for `idle`.
    pub fn arrive(&mut self, now: Time, queue: f64, idle: Span) -> f64 {
        let idle = idle.min(now.since(self.seen));
        self.seen = now;
        if idle.is_zero() {
            self.value += self.weight * (queue - self.value);
        } else if self.value > 0.0 {
            self.value *= libm::pow(1.0 - self.weight, idle.as_secs_f64() / self.transmission);
        }
        self.value
    }

    /// The average now.
    pub const fn get(&self) -> f64 {
        self.value
    }
}

/// RED's rule for arriving packets.
#[derive(Clone, Debug)]
pub struct Red {
    settings: Settings,
    average: Average,
    tail: DropTail,
    /// Packets since the last that was dropped or marked early, while the average may drop.
    count: Option<u64>,
    stream: Stream,
}

impl Red {
    /// RED for one port.
    pub fn new(settings: Settings, site: Site) -> Self {
        Self {
            average: Average::new(settings.weight, settings.mean_packet, site.rate),
            tail: DropTail { limit: settings.limit },
            settings,
            count: None,
            stream: site.stream,
        }
    }

    /// The average queue, in packets or bytes as the thresholds.
    pub const fn average(&self) -> f64 {
        self.average.get()
    }

    /// Its settings, with the present `max_p`.
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// True while the average is at least `min_th` and below `max_th`.
    pub fn between_thresholds(&self) -> bool {
        (self.settings.min_th..self.settings.max_th).contains(&self.average())
    }

    /// Changes `p_b` at `max_th`.
    pub const fn set_max_p(&mut self, max_p: f64) {
        self.settings.max_p = max_p;
    }

    /// `p_b` for the average as it is; `None` where nothing is dropped early, 1 where everything is.
    fn probability(&self) -> Option<f64> {
        let Settings { min_th, max_th, max_p, gentle, .. } = self.settings;
        let avg = self.average();
        if avg < min_th {
            None
        } else if avg < max_th {
            Some(max_p * (avg - min_th) / (max_th - min_th))
        } else if gentle && avg < 2.0 * max_th {
            Some(max_p + (1.0 - max_p) * (avg - max_th) / max_th)
        } else {
            Some(1.0)
        }
    }

    /// `p_a`: the probability after `count` packets that were let through.
    fn spaced(&self, p_b: f64, count: u64) -> f64 {
        let share = count as f64 * p_b;
        match self.settings.wait {
            true if share < 1.0 => 0.0,
            true if share < 2.0 => p_b / (2.0 - share),
            false if share < 1.0 => p_b / (1.0 - share),
            _ => 1.0,
        }
    }

    /// Whether the average wants this packet, which finds `waiting` packets, dropped or marked, and whether it may be
    /// marked.
    fn early(&mut self, waiting: u32, pkt: &Pkt) -> Option<Verdict> {
        let Some(mut p_b) = self.probability().filter(|_| waiting >= self.settings.spare_below) else {
            self.count = None;
            return None;
        };
        if p_b >= 1.0 {
            self.count = Some(0);
            return Some(Verdict::Drop);
        }
        if self.settings.in_bytes {
            p_b = (p_b * f64::from(pkt.len) / self.settings.mean_packet.get() as f64).min(1.0);
        }
        let count = self.count.map_or(0, |count| count + 1);
        self.count = Some(count);
        let p_a = self.spaced(p_b, count);
        if p_a >= 1.0 || (p_a > 0.0 && self.stream.chance(p_a)) {
            self.count = Some(0);
            return Some(if self.settings.ecn && pkt.ect { Verdict::Mark } else { Verdict::Drop });
        }
        None
    }
}

impl Admission for Red {
    fn admit(&mut self, now: Time, backlog: Backlog, idle: Span, pkt: &Pkt) -> Verdict {
        let queue = if self.settings.in_bytes { backlog.bytes as f64 } else { f64::from(backlog.packets) };
        self.average.arrive(now, queue, idle);
        match (self.early(backlog.packets, pkt), self.tail.admit(now, backlog, idle, pkt)) {
            (Some(Verdict::Drop), _) | (_, Verdict::Drop) => Verdict::Drop,
            (Some(early), _) => early,
            (None, fits) => fits,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::FlowId;
    use crate::params::Value;

    fn settings() -> Settings {
        Settings {
            limit: Limit::Packets(100),
            min_th: 5.0,
            max_th: 15.0,
            in_bytes: false,
            weight: 1.0,
            max_p: 0.1,
            gentle: false,
            wait: false,
            spare_below: 0,
            ecn: false,
            mean_packet: Bytes::new(1_000),
        }
    }

    fn red(settings: Settings) -> Red {
        let site = Site::new(Rate::from_bits_per_sec(8_000_000), Stream::new(1, 0, "red"));
        Red::new(settings, site)
    }

    fn pkt(len: u32, ect: bool) -> Pkt {
        Pkt { key: 0, len, flow: FlowId(0), dscp: 0, ect, ce: false, reverse: false }
    }

    fn waiting(packets: u32) -> Backlog {
        Backlog { packets, bytes: u64::from(packets) * 1_000 }
    }

    fn close(a: f64, b: f64) {
        assert!((a - b).abs() <= 1e-12 * b.abs().max(1.0), "{a} is not {b}");
    }

    #[test]
    fn average_moves_at_arrivals_and_decays_when_idle() {
        // 8 Mbit/s: 1 ms for 1000 B.
        let mut average = Average::new(0.5, Bytes::new(1_000), Rate::from_bits_per_sec(8_000_000));
        let at = |us: u64| Time::ZERO + Span::from_micros(us);
        close(average.arrive(at(10_000), 8.0, Span::ZERO), 4.0);
        close(average.arrive(at(10_001), 8.0, Span::ZERO), 6.0);
        // Empty but transmitting: a sample of zero.
        close(average.arrive(at(10_002), 0.0, Span::ZERO), 3.0);
        // Idle for 2 ms: m = 2, a quarter is left; without a sample.
        close(average.arrive(at(13_002), 0.0, Span::from_millis(2)), 0.75);
        // That packet was dropped, so the same idle time goes on: only 1 ms of it is new.
        close(average.arrive(at(14_002), 0.0, Span::from_millis(3)), 0.375);
        // m need not be whole: half a packet's time, sqrt(1/2).
        let half = average.arrive(at(20_000), 0.0, Span::from_micros(500));
        close(half, 0.375 * core::f64::consts::FRAC_1_SQRT_2);
    }

    #[test]
    fn probability_has_the_shape_of_the_paper() {
        let at = |avg: f64, gentle: bool| {
            let mut queue = red(Settings { gentle, ..settings() });
            queue.average.value = avg;
            queue.probability()
        };
        let is = |p: Option<f64>, expected: f64| close(p.expect("a probability"), expected);
        assert_eq!(at(4.999, false), None);
        is(at(5.0, false), 0.0);
        is(at(10.0, false), 0.05);
        is(at(12.5, true), 0.075);
        is(at(15.0, false), 1.0);
        is(at(15.0, true), 0.1);
        // Half-way from max to twice max: half-way from max_p to 1.
        is(at(22.5, true), 0.55);
        is(at(30.0, true), 1.0);
    }

    #[test]
    fn spacing_is_uniform() {
        let queue = red(settings());
        // p_b = 1/4: 1/4, 1/3, 1/2, 1.
        for (count, p_a) in [(0, 0.25), (1, 1.0 / 3.0), (2, 0.5), (3, 1.0), (4, 1.0), (9, 1.0)] {
            close(queue.spaced(0.25, count), p_a);
        }
        let waiting = red(Settings { wait: true, ..settings() });
        for (count, p_a) in [(0, 0.0), (3, 0.0), (4, 0.25), (5, 1.0 / 3.0), (6, 0.5), (7, 1.0), (8, 1.0)] {
            close(waiting.spaced(0.25, count), p_a);
        }
        close(queue.spaced(0.0, 1_000_000), 0.0);
    }

    /// Gaps between early drops while the average stands at 10 packets, where `p_b` is 1/20.
    fn gaps(wait: bool) -> Vec<u32> {
        let mut queue = red(Settings { wait, ..settings() });
        let (mut gaps, mut since) = (Vec::new(), 0);
        for i in 0..40_000 {
            since += 1;
            if queue.admit(Time::from_nanos(i), waiting(10), Span::ZERO, &pkt(1_000, false)) == Verdict::Drop
            {
                gaps.push(since);
                since = 0;
            }
        }
        gaps.remove(0);
        gaps
    }

    #[test]
    fn drops_are_evenly_spread() {
        // Fig. 2 raises count before it is used, so the packet after a drop has count 1: gaps are uniform on 1..=19.
        let gaps_1993 = gaps(false);
        let mean = |gaps: &[u32]| f64::from(gaps.iter().sum::<u32>()) / gaps.len() as f64;
        assert_eq!((gaps_1993.iter().min(), gaps_1993.iter().max()), (Some(&1), Some(&19)));
        assert!((mean(&gaps_1993) - 10.0).abs() < 0.3, "{}", mean(&gaps_1993));
        let ones = gaps_1993.iter().filter(|gap| **gap == 1).count() as f64 / gaps_1993.len() as f64;
        assert!((ones - 1.0 / 19.0).abs() < 0.012, "{ones}");
        // With wait: uniform on 20..=39.
        let gaps_wait = gaps(true);
        assert_eq!((gaps_wait.iter().min(), gaps_wait.iter().max()), (Some(&20), Some(&39)));
        assert!((mean(&gaps_wait) - 29.5).abs() < 0.6, "{}", mean(&gaps_wait));
    }

    #[test]
    fn below_the_lower_threshold_nothing_is_dropped_and_the_count_begins_anew() {
        let mut queue = red(settings());
        for i in 0..1_000 {
            let verdict = queue.admit(Time::from_nanos(i), waiting(4), Span::ZERO, &pkt(1_000, false));
            assert_eq!((verdict, queue.count), (Verdict::Accept, None));
        }
        queue.admit(Time::from_nanos(1_000), waiting(5), Span::ZERO, &pkt(1_000, false));
        assert_eq!(queue.count, Some(0));
        queue.admit(Time::from_nanos(1_001), waiting(5), Span::ZERO, &pkt(1_000, false));
        assert_eq!(queue.count, Some(1));
        assert!(queue.between_thresholds());
        queue.admit(Time::from_nanos(1_002), waiting(4), Span::ZERO, &pkt(1_000, false));
        assert_eq!(queue.count, None);
        assert!(!queue.between_thresholds());
    }

    #[test]
    fn above_the_upper_threshold_everything_is_dropped_ect_too() {
        let mut queue = red(Settings { ecn: true, ..settings() });
        for i in 0..100 {
            let verdict = queue.admit(Time::from_nanos(i), waiting(15), Span::ZERO, &pkt(1_000, true));
            assert_eq!(verdict, Verdict::Drop);
        }
    }

    #[test]
    fn early_drops_become_marks_for_ect_packets_only() {
        for (ecn, ect, expected) in
            [(true, true, Verdict::Mark), (true, false, Verdict::Drop), (false, true, Verdict::Drop)]
        {
            let mut queue = red(Settings { ecn, ..settings() });
            let mut seen = Vec::new();
            for i in 0..200 {
                let verdict = queue.admit(Time::from_nanos(i), waiting(14), Span::ZERO, &pkt(1_000, ect));
                if verdict != Verdict::Accept {
                    seen.push(verdict);
                }
            }
            // p_b is 0.09: between two a gap of at most 11.
            assert!(seen.len() >= 200 / 11 && seen.iter().all(|v| *v == expected), "{seen:?}");
        }
    }

    #[test]
    fn a_full_queue_drops_what_would_be_marked() {
        let mut queue = red(Settings { ecn: true, limit: Limit::Packets(10), ..settings() });
        for i in 0..200 {
            let verdict = queue.admit(Time::from_nanos(i), waiting(10), Span::ZERO, &pkt(1_000, true));
            assert_eq!(verdict, Verdict::Drop);
        }
        let mut none = red(Settings { limit: Limit::Packets(0), ..settings() });
        assert_eq!(none.admit(Time::ZERO, waiting(0), Span::ZERO, &pkt(64, false)), Verdict::Drop);
    }

    /// RED whose average stays at `average`, whatever waits.
    fn standing(average: f64, settings: Settings) -> Red {
        let mut queue = red(Settings { weight: 1e-9, ..settings });
        queue.average.value = average;
        queue
    }

    #[test]
    fn a_short_queue_is_spared() {
        let admit = |queue: &mut Red, packets: u32| {
            queue.admit(Time::ZERO, waiting(packets), Span::ZERO, &pkt(1_000, true))
        };
        // From the upper threshold on the average drops everything, but not where fewer than three wait.
        let mut spared = standing(20.0, Settings { spare_below: 3, ..settings() });
        let verdicts = [0, 2, 3, 2].map(|packets| admit(&mut spared, packets));
        assert_eq!(verdicts, [Verdict::Accept, Verdict::Accept, Verdict::Drop, Verdict::Accept]);
        assert_eq!(admit(&mut standing(20.0, settings()), 0), Verdict::Drop);
        // Between the thresholds it marks, one of twelve packets at least: `p_b` is 0.09.
        let mut marking = standing(14.0, Settings { spare_below: 3, ecn: true, ..settings() });
        assert!((0..200).all(|_| admit(&mut marking, 2) == Verdict::Accept));
        assert!((0..12).any(|_| admit(&mut marking, 3) == Verdict::Mark));
        // A full queue still drops.
        let mut full = standing(20.0, Settings { spare_below: 3, limit: Limit::Packets(2), ..settings() });
        assert_eq!([1, 2].map(|packets| admit(&mut full, packets)), [Verdict::Accept, Verdict::Drop]);
    }

    #[test]
    fn spared_packets_do_not_count_in_the_spacing() {
        let mut queue = standing(14.0, Settings { spare_below: 3, ..settings() });
        for (packets, count) in [(3, Some(0)), (2, None), (2, None), (3, Some(0))] {
            queue.early(packets, &pkt(1_000, false));
            assert_eq!(queue.count, count, "{packets} wait");
        }
    }

    #[test]
    fn the_key_for_short_queues_is_read() {
        let verdict = |spare_below: Option<i64>| {
            let mut params = Params::defaults(KEYS);
            params.set("weight", Value::Float(1.0));
            params.set("min-th", Value::Limit(Limit::Packets(1)));
            params.set("max-th", Value::Limit(Limit::Packets(2)));
            params.set("gentle", Value::Bool(false));
            if let Some(packets) = spare_below {
                params.set("spare-below", Value::Integer(packets));
            }
            let site = Site::new(Rate::from_bits_per_sec(8_000_000), Stream::new(1, 0, "red"));
            let Discipline::Fifo(mut rule) = (DEF.build)(&params, site) else {
                panic!("RED is an admission rule")
            };
            rule.admit(Time::ZERO, waiting(2), Span::ZERO, &pkt(1_000, false))
        };
        assert_eq!([None, Some(0), Some(2)].map(verdict), [Verdict::Drop; 3]);
        assert_eq!([Some(3), Some(i64::MAX)].map(verdict), [Verdict::Accept; 2]);
    }

    #[test]
    fn in_bytes_small_packets_are_dropped_less() {
        let drops = |len: u32| {
            let bytes = Settings { in_bytes: true, min_th: 5_000.0, max_th: 15_000.0, ..settings() };
            let mut queue = red(bytes);
            let drop = |i: &u64| {
                queue.admit(Time::from_nanos(*i), waiting(10), Span::ZERO, &pkt(len, false)) == Verdict::Drop
            };
            (0..20_000u64).filter(drop).count() as f64
        };
        // p_b = 0.05 len / 1000; mean gaps of 10, 100 and 5.
        assert!((drops(1_000) - 2_000.0).abs() < 100.0, "{}", drops(1_000));
        assert!((drops(100) - 200.0).abs() < 30.0, "{}", drops(100));
        assert!((drops(2_000) - 4_000.0).abs() < 200.0, "{}", drops(2_000));
    }

    #[test]
    fn thresholds_are_checked() {
        let packets = Limit::Packets;
        let bytes = |n| Limit::Bytes(Bytes::new(n));
        let key = |limit, min_th, max_th| check_thresholds(limit, min_th, max_th).err().map(|(key, _)| key);
        assert_eq!(key(packets(100), packets(50), packets(80)), None);
        assert_eq!(key(packets(60), packets(50), packets(80)), None);
        assert_eq!(key(Limit::Unlimited, packets(50), packets(80)), None);
        assert_eq!(key(bytes(1_000), packets(50), packets(80)), None);
        assert_eq!(key(packets(100), packets(80), packets(80)), Some("max-th"));
        assert_eq!(key(packets(100), packets(50), bytes(80)), Some("max-th"));
        assert_eq!(key(packets(100), Limit::Unlimited, packets(80)), Some("min-th"));
        assert_eq!(key(packets(50), packets(50), packets(80)), Some("limit"));
    }
}
