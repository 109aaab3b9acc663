//! Adaptive RED: RED whose greatest drop probability follows the average queue, and whose other parameters follow
//! from the link.
//!
//! Floyd, Gummadi, Shenker, "Adaptive RED: An Algorithm for Increasing the Robustness of RED's Active Queue
//! Management", ICSI 2001: the adaptation is its Fig. 2, the automatic parameters are its Sect. 4. The RED below
//! is gentle, as in the paper. `max_p` is clamped to its range; in the figure the last step may leave it.

use super::red::{
    ECN, MEAN_PACKET, Red, SPARE_BELOW, Settings, amount, check_mean_packet, check_thresholds, spare_below,
};
use super::{Admission, Backlog, Discipline, Pkt, QdiscDef, Site, Verdict};
use crate::params::{Key, Kind, Limit, Params, keys};
use crate::time::{Span, Time};
use crate::units::{Bytes, Dimension, Rate};

/// The registry entry.
pub static DEF: QdiscDef = QdiscDef {
    name: "ared",
    about: "Adaptive RED: keeps the average queue half-way between thresholds that follow from the link rate",
    source: "Floyd, Gummadi, Shenker: Adaptive RED, ICSI, 2001",
    keys: KEYS,
    check,
    build: |params, site| Discipline::Fifo(Box::new(AdaptiveRed::new(params, site))),
};

const KEYS: &[Key] = keys! {
    /// Most that may wait, not counting the packet in transmission; should be well above twice `max-th`
    "limit": Kind::Limit, default "1000pkt", from "Linux txqueuelen";
    /// Average queueing delay that the automatic thresholds aim at
    "target-delay": Kind::Quantity(Dimension::Span), default "5ms",
        from "Floyd, Gummadi and Shenker 2001, Sect. 4";
    /// Average queue below which nothing is dropped early; absent: half of `target-delay` at the link rate,
    /// but 5 packets at least
    "min-th": Kind::Limit, optional;
    /// Upper threshold, in the unit of `min-th` and only together with it; absent: three times the lower one
    "max-th": Kind::Limit, optional;
    /// Weight of the queue at an arrival in its average; absent: 1 - exp(-1/C), C the link's packets per
    /// second
    "weight": Kind::Float { min: 1e-9, max: 1.0 }, optional;
    /// Drop probability at `max-th` at the start
    "max-p": Kind::Float { min: LEAST_MAX_P, max: GREATEST_MAX_P }, default "0.1", from "ns-2";
    /// Time between two changes of the drop probability
    "interval": Kind::Quantity(Dimension::Span), default "500ms",
        from "Floyd, Gummadi and Shenker 2001, Fig. 2";
    /// At least 1/p packets pass between two early drops, and at most 2/p, instead of up to 1/p
    "wait": Kind::Bool, default "true", from "ns-2, the paper's simulator";
    ..SPARE_BELOW;
    ..ECN;
    ..MEAN_PACKET;
};

/// Range of `max_p`. Fig. 2.
const LEAST_MAX_P: f64 = 0.01;
const GREATEST_MAX_P: f64 = 0.5;
/// Increment: this, or a quarter of `max_p` where that is less. Fig. 2.
const ALPHA: f64 = 0.01;
/// Decrease factor. Fig. 2.
const BETA: f64 = 0.9;
/// The target lies between these parts of the way from the lower to the upper threshold. Fig. 2.
const TARGET: (f64, f64) = (0.4, 0.6);
/// Least automatic lower threshold in packets. Sect. 4.
const LEAST_MIN_TH: f64 = 5.0;

fn check(params: &Params) -> Result<(), (&'static str, String)> {
    if params.span("interval").is_zero() {
        return Err(("interval", "must be longer than 0s".to_owned()));
    }
    check_mean_packet(params.bytes("mean-packet"))?;
    let limit = params.limit("limit");
    match (params.optional("min-th", Params::limit), params.optional("max-th", Params::limit)) {
        (None, None) => Ok(()),
        (Some(min_th), Some(max_th)) => check_thresholds(limit, min_th, max_th),
        (Some(min_th), None) => check_thresholds(limit, min_th, triple(min_th)),
        (None, Some(max_th)) => Err(("max-th", format!("\"{max_th}\" stands without `min-th`"))),
    }
}

fn triple(limit: Limit) -> Limit {
    match limit {
        Limit::Packets(packets) => Limit::Packets(packets.saturating_mul(3)),
        Limit::Bytes(bytes) => Limit::Bytes(Bytes::new(bytes.get().saturating_mul(3))),
        Limit::Unlimited => Limit::Unlimited,
    }
}

/// What `params` and the link make of RED.
fn settings(params: &Params, rate: Rate) -> Settings {
    let mean_packet = params.bytes("mean-packet");
    let packets_per_second = rate.bits_per_sec() as f64 / (8.0 * mean_packet.get() as f64);
    let in_bytes = matches!(params.optional("min-th", Params::limit), Some(Limit::Bytes(_)));
    let min_th = params.optional("min-th", Params::limit).map_or_else(
        || (params.span("target-delay").as_secs_f64() * packets_per_second / 2.0).max(LEAST_MIN_TH),
        amount,
    );
    let weight = params.optional("weight", Params::float);
    Settings {
        limit: params.limit("limit"),
        min_th,
        max_th: params.optional("max-th", Params::limit).map_or(3.0 * min_th, amount),
        in_bytes,
        weight: weight.unwrap_or_else(|| -libm::expm1(-1.0 / packets_per_second)),
        max_p: params.float("max-p"),
        gentle: true,
        wait: params.bool("wait"),
        spare_below: spare_below(params),
        ecn: params.bool("ecn"),
        mean_packet,
    }
}

/// RED that adapts its `max_p`.
#[derive(Clone, Debug)]
pub struct AdaptiveRed {
    red: Red,
    interval: Span,
    next: Time,
    target: (f64, f64),
}

impl AdaptiveRed {
    /// Adaptive RED for one port; `params` are those of [`DEF`].
    pub fn new(params: &Params, site: Site) -> Self {
        let settings = settings(params, site.rate);
        let between = |part: f64| settings.min_th + part * (settings.max_th - settings.min_th);
        let interval = params.span("interval");
        Self {
            target: (between(TARGET.0), between(TARGET.1)),
            interval,
            next: Time::ZERO + interval,
            red: Red::new(settings, site),
        }
    }

    /// Drop probability at the upper threshold, as it is.
    pub const fn max_p(&self) -> f64 {
        self.red.settings().max_p
    }

    /// Does what a timer would have done by `now`. The average stands still between arrivals, so `max_p` soon does too,
    /// and the rest of a long silence needs no steps.
    fn catch_up(&mut self, now: Time) {
        while self.next <= now {
            let before = self.max_p();
            self.red.set_max_p(adapted(before, self.red.average(), self.target));
            self.next += self.interval;
            if self.max_p() == before && self.next <= now {
                let behind = now.since(self.next).as_nanos() / self.interval.as_nanos();
                self.next += self.interval * (behind + 1);
            }
        }
    }
}

/// `max_p` after an interval that ends with average `avg`.
fn adapted(max_p: f64, avg: f64, (low, high): (f64, f64)) -> f64 {
    if avg > high {
        (max_p + ALPHA.min(max_p / 4.0)).min(GREATEST_MAX_P)
    } else if avg < low {
        (max_p * BETA).max(LEAST_MAX_P)
    } else {
        max_p
    }
}

impl Admission for AdaptiveRed {
    fn admit(&mut self, now: Time, backlog: Backlog, idle: Span, pkt: &Pkt) -> Verdict {
        self.catch_up(now);
        self.red.admit(now, backlog, idle, pkt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::FlowId;
    use crate::params::Value;
    use crate::rng::Stream;

    fn close(a: f64, b: f64) {
        assert!((a - b).abs() <= 1e-12 * b.abs().max(1.0), "{a} is not {b}");
    }

    fn ared(rate: u64, set: &[(&'static str, Value)]) -> AdaptiveRed {
        let mut params = Params::defaults(KEYS);
        for (key, value) in set {
            params.set(key, value.clone());
        }
        AdaptiveRed::new(&params, Site::new(Rate::from_bits_per_sec(rate), Stream::new(1, 0, "ared")))
    }

    #[test]
    fn thresholds_and_weight_follow_from_the_link() {
        // 80 Mbit/s is 10,000 packets of 1000 B a second, 50 in 5 ms.
        let fast = ared(80_000_000, &[]);
        close(fast.red.settings().min_th, 25.0);
        close(fast.red.settings().max_th, 75.0);
        // 1 - exp(-1e-4) = 1e-4 - 5e-9 + 1.6667e-13 - ...
        assert!((fast.red.settings().weight - 9.999_500_016_666e-5).abs() < 1e-16);
        // Half-way is the target: 50 packets, 5 ms.
        close(fast.target.0, 45.0);
        close(fast.target.1, 55.0);
        // 1 Mbit/s is 125 packets a second, less than one in 5 ms: five packets at least.
        let slow = ared(1_000_000, &[]);
        close(slow.red.settings().min_th, 5.0);
        close(slow.red.settings().max_th, 15.0);
    }

    #[test]
    fn given_thresholds_win() {
        let one = ared(80_000_000, &[("min-th", Value::Limit(Limit::Bytes(Bytes::new(2_000))))]);
        close(one.red.settings().max_th, 6_000.0);
        assert!(one.red.settings().in_bytes);
        let weighted = ared(80_000_000, &[("weight", Value::Float(0.5))]);
        close(weighted.red.settings().weight, 0.5);
    }

    /// Distances of the drops among 20,000 packets that each find `packets` waiting, all in one moment.
    fn gaps(packets: u32, set: &[(&'static str, Value)]) -> Vec<u32> {
        let pkt = Pkt { key: 0, len: 1_000, flow: FlowId(0), dscp: 0, ect: false, ce: false, reverse: false };
        let mut queue = ared(1_000_000, &[&[("weight", Value::Float(1.0))][..], set].concat());
        let backlog = Backlog { packets, bytes: u64::from(packets) * 1_000 };
        let (mut gaps, mut since) = (Vec::new(), 0);
        for _ in 0..20_000 {
            since += 1;
            if queue.admit(Time::ZERO, backlog, Span::ZERO, &pkt) == Verdict::Drop {
                gaps.push(since);
                since = 0;
            }
        }
        gaps
    }

    /// An average of 14 between 5 and 15 gives `p_b` = 0.09. `p_a` reaches 1 where (count + 1) `p_b` does, at 11. With
    /// `wait` it is 0 where count `p_b` is below 1, up to 11, and 1 where (count + 1) `p_b` reaches 2, at 22.
    #[test]
    fn early_drops_are_spaced_as_the_key_says() {
        let range = |gaps: &[u32]| (gaps[1..].iter().min().copied(), gaps[1..].iter().max().copied());
        assert_eq!(range(&gaps(14, &[("wait", Value::Bool(false))])), (Some(1), Some(11)));
        assert_eq!(range(&gaps(14, &[])), (Some(12), Some(22)));
    }

    #[test]
    fn short_queues_are_spared_as_the_key_says() {
        let spare = |packets: i64| [("spare-below", Value::Integer(packets))];
        // From twice `max-th` on everything is dropped.
        assert_eq!(gaps(30, &[]).len(), 20_000);
        assert_eq!(gaps(30, &spare(30)).len(), 20_000);
        assert_eq!(gaps(30, &spare(31)).len(), 0);
    }

    #[test]
    fn steps_are_those_of_the_figure() {
        let target = (9.0, 11.0);
        // A quarter of 0.02 is less than 0.01; of 0.1 it is more.
        close(adapted(0.02, 12.0, target), 0.025);
        close(adapted(0.1, 12.0, target), 0.11);
        close(adapted(0.1, 8.0, target), 0.09);
        close(adapted(0.1, 9.0, target), 0.1);
        close(adapted(0.1, 11.0, target), 0.1);
        close(adapted(0.495, 12.0, target), 0.5);
        close(adapted(0.0105, 8.0, target), 0.01);
    }

    #[test]
    fn late_steps_are_those_of_a_timer() {
        let pkt = Pkt { key: 0, len: 1_000, flow: FlowId(0), dscp: 0, ect: false, ce: false, reverse: false };
        let mut queue = ared(1_000_000, &[]);
        let at = |ms: u64| Time::ZERO + Span::from_millis(ms);
        // The average is zero, below the target: the steps at 500 ms and 1 s, not yet the one at 1.5 s.
        queue.admit(at(1_499), Backlog::default(), Span::ZERO, &pkt);
        close(queue.max_p(), 0.1 * 0.9 * 0.9);
        // A step falls due before the arrival of its own moment.
        queue.admit(at(1_500), Backlog::default(), Span::ZERO, &pkt);
        close(queue.max_p(), 0.1 * 0.9 * 0.9 * 0.9);
        // An hour of silence; the next step is in phase.
        queue.admit(at(3_600_100), Backlog::default(), Span::ZERO, &pkt);
        close(queue.max_p(), LEAST_MAX_P);
        assert_eq!(queue.next, at(3_600_500));
    }

    #[test]
    fn a_full_queue_raises_the_probability() {
        let pkt = Pkt { key: 0, len: 1_000, flow: FlowId(0), dscp: 0, ect: false, ce: false, reverse: false };
        let mut queue = ared(1_000_000, &[("weight", Value::Float(1.0))]);
        let full = Backlog { packets: 14, bytes: 14_000 };
        queue.admit(Time::ZERO, full, Span::ZERO, &pkt);
        queue.admit(Time::ZERO + Span::from_millis(1_000), full, Span::ZERO, &pkt);
        close(queue.max_p(), 0.12);
    }

    #[test]
    fn parameters_are_checked_against_each_other() {
        let wrong = |set: &[(&'static str, Value)]| {
            let mut params = Params::defaults(KEYS);
            for (key, value) in set {
                params.set(key, value.clone());
            }
            check(&params).unwrap_err().0
        };
        let packets = |n| Value::Limit(Limit::Packets(n));
        assert_eq!(check(&Params::defaults(KEYS)), Ok(()));
        assert_eq!(wrong(&[("max-th", packets(10))]), "max-th");
        assert_eq!(wrong(&[("min-th", packets(10)), ("max-th", packets(10))]), "max-th");
        assert_eq!(wrong(&[("min-th", packets(0))]), "max-th");
        assert_eq!(wrong(&[("min-th", packets(1_000))]), "limit");
        assert_eq!(wrong(&[("interval", Value::Span(Span::ZERO))]), "interval");
        assert_eq!(wrong(&[("mean-packet", Value::Bytes(Bytes::ZERO))]), "mean-packet");
    }
}
