//! Token bucket: a queue whose packets leave as a bucket allows that fills at a rate (Linux tbf; RFC 2697 describes
//! such buckets).
//!
//! Tokens are counted in 10^-9 bits, so one nanosecond at 1 bit/s is one token and nothing is ever rounded: a busy
//! queue keeps its rate for good. Ours: Linux's `latency` is not there; `limit` says how much may wait.

use std::collections::VecDeque;

use super::fifo::DropTail;
use super::{Admission, Backlog, Discipline, Pkt, Qdisc, QdiscDef, Verdict};
use crate::params::{Kind, Params, keys};
use crate::time::{Span, Time};
use crate::units::{Bytes, Dimension, Rate};

/// The registry entry.
pub static DEF: QdiscDef = QdiscDef {
    name: "tbf",
    about: "Token bucket: shapes to a rate with bursts, drop-tail",
    source: "Linux tbf",
    keys: keys! {
        /// What may wait
        "limit": Kind::Limit, default "1000pkt", from "as fifo";
        /// Rate at which the bucket fills
        "rate": Kind::Quantity(Dimension::Rate), required;
        /// Depth of the bucket: bytes that may leave at once after a pause; longer packets are dropped
        "burst": Kind::Quantity(Dimension::Bytes), default "15140B", from "ten Ethernet frames";
        /// Rate of a second bucket that spreads bursts; absent: bursts leave at the port's rate
        "peak-rate": Kind::Quantity(Dimension::Rate), optional;
        /// Depth of the bucket of `peak-rate`; longer packets are dropped then
        "mtu": Kind::Quantity(Dimension::Bytes), default "1514B", from "Ethernet";
    },
    check,
    build: |params, _| Discipline::Ordered(Box::new(TokenBucket::new(params))),
};

fn check(params: &Params) -> Result<(), (&'static str, String)> {
    let (rate, burst, mtu) = (params.rate("rate"), params.bytes("burst"), params.bytes("mtu"));
    if rate == Rate::ZERO {
        return Err(("rate", format!("\"{rate}\" lets nothing leave")));
    }
    if mtu == Bytes::ZERO {
        return Err(("mtu", format!("\"{mtu}\" lets nothing leave")));
    }
    if burst == Bytes::ZERO {
        return Err(("burst", format!("\"{burst}\" lets nothing leave")));
    }
    if peak_rate(params).is_some() && burst < mtu {
        return Err(("burst", format!("\"{burst}\" is less than a packet of `mtu`, {mtu}")));
    }
    match peak_rate(params) {
        Some(peak) if peak < rate => Err(("peak-rate", format!("\"{peak}\" is below `rate`, {rate}"))),
        _ => Ok(()),
    }
}

fn peak_rate(params: &Params) -> Option<Rate> {
    params.optional("peak-rate", Params::rate)
}

/// A bucket of 10^-9 bits.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    rate: Rate,
    depth: u128,
    tokens: u128,
}

fn tokens(bytes: u64) -> u128 {
    u128::from(bytes) * 8 * 1_000_000_000
}

impl Bucket {
    fn full(rate: Rate, depth: Bytes) -> Self {
        Self { rate, depth: tokens(depth.get()), tokens: tokens(depth.get()) }
    }

    fn fill(&mut self, span: Span) {
        let rate = u128::from(self.rate.bits_per_sec());
        let more = rate * u128::from(span.as_nanos());
        // Less than a nanosecond's worth on top: no packet can leave within a nanosecond to use it.
        self.tokens = (self.tokens + more).min(self.depth + rate.saturating_sub(1));
    }

    /// How long the bucket must fill until it holds `cost`, which is not above its depth.
    fn wait(&self, cost: u128) -> Span {
        let missing = cost.saturating_sub(self.tokens);
        if missing == 0 {
            return Span::ZERO;
        }
        let nanos = missing.div_ceil(u128::from(self.rate.bits_per_sec().max(1)));
        Span::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

struct TokenBucket {
    limit: DropTail,
    /// The bucket, and that of the peak rate.
    buckets: [Option<Bucket>; 2],
    /// When the buckets were last filled.
    filled: Time,
    longest: u64,
    queue: VecDeque<Pkt>,
    bytes: u64,
}

impl TokenBucket {
    fn new(params: &Params) -> Self {
        let (burst, mtu) = (params.bytes("burst"), params.bytes("mtu"));
        let peak = peak_rate(params);
        Self {
            limit: DropTail { limit: params.limit("limit") },
            buckets: [
                Some(Bucket::full(params.rate("rate"), burst)),
                peak.map(|rate| Bucket::full(rate, mtu)),
            ],
            filled: Time::ZERO,
            longest: peak.map_or(burst, |_| burst.min(mtu)).get(),
            queue: VecDeque::new(),
            bytes: 0,
        }
    }
}

impl Qdisc for TokenBucket {
    fn enqueue(&mut self, now: Time, pkt: Pkt, _dropped: &mut Vec<Pkt>) -> Verdict {
        let len = u64::from(pkt.len);
        if len > self.longest {
            return Verdict::Drop;
        }
        let verdict = self.limit.admit(now, self.backlog(), Span::ZERO, &pkt);
        if verdict != Verdict::Drop {
            self.bytes += len;
            self.queue.push_back(pkt);
        }
        verdict
    }

    fn dequeue(&mut self, now: Time, _dropped: &mut Vec<Pkt>) -> Option<Pkt> {
        let cost = tokens(u64::from(self.queue.front()?.len));
        let span = now.since(self.filled);
        self.filled = self.filled.max(now);
        for bucket in self.buckets.iter_mut().flatten() {
            bucket.fill(span);
        }
        if self.buckets.iter().flatten().any(|bucket| bucket.tokens < cost) {
            return None;
        }
        for bucket in self.buckets.iter_mut().flatten() {
            bucket.tokens -= cost;
        }
        let pkt = self.queue.pop_front()?;
        self.bytes -= u64::from(pkt.len);
        Some(pkt)
    }

    fn next_ready(&self, _now: Time) -> Option<Time> {
        let cost = tokens(u64::from(self.queue.front()?.len));
        let wait = self.buckets.iter().flatten().map(|bucket| bucket.wait(cost)).max();
        Some(self.filled + wait.unwrap_or(Span::ZERO))
    }

    fn backlog(&self) -> Backlog {
        Backlog { packets: self.queue.len() as u32, bytes: self.bytes }
    }

    fn purge(&mut self, _now: Time, purged: &mut Vec<Pkt>) {
        self.bytes = 0;
        purged.extend(self.queue.drain(..));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::FlowId;
    use crate::params::{Limit, Value};

    fn params(rate: u64, burst: u64, peak: Option<u64>) -> Params {
        let mut params = Params::defaults(DEF.keys);
        params.set("rate", Value::Rate(Rate::from_bits_per_sec(rate)));
        params.set("burst", Value::Bytes(Bytes::new(burst)));
        params.set("mtu", Value::Bytes(Bytes::new(1000)));
        if let Some(peak) = peak {
            params.set("peak-rate", Value::Rate(Rate::from_bits_per_sec(peak)));
        }
        params
    }

    fn fill(queue: &mut TokenBucket, packets: u32, len: u32) {
        for key in 0..packets {
            let pkt = Pkt { key, len, flow: FlowId(0), dscp: 0, ect: false, ce: false, reverse: false };
            assert_eq!(queue.enqueue(Time::ZERO, pkt, &mut Vec::new()), Verdict::Accept);
        }
    }

    /// Times at which packets leave a queue that is asked whenever it says that it is ready, in nanoseconds.
    fn departures(queue: &mut TokenBucket) -> Vec<u64> {
        let mut times = Vec::new();
        let mut now = Time::ZERO;
        while let Some(at) = queue.next_ready(now) {
            now = now.max(at);
            assert!(queue.dequeue(now, &mut Vec::new()).is_some(), "nothing left at {now}");
            times.push(now.as_nanos());
        }
        times
    }

    #[test]
    fn a_burst_leaves_at_once_and_the_rest_at_the_rate() {
        // 1000 bytes at 8 Mbit/s take 1 ms.
        let mut queue = TokenBucket::new(&params(8_000_000, 3_000, None));
        assert_eq!(queue.next_ready(Time::ZERO), None);
        fill(&mut queue, 6, 1000);
        assert_eq!(departures(&mut queue), [0, 0, 0, 1_000_000, 2_000_000, 3_000_000]);
    }

    #[test]
    fn the_bucket_holds_no_more_than_its_depth() {
        let mut queue = TokenBucket::new(&params(8_000_000, 2_000, None));
        fill(&mut queue, 5, 1000);
        let late = Time::ZERO + Span::from_secs(100);
        let mut take = |now| queue.dequeue(now, &mut Vec::new()).map(|p| p.key);
        assert_eq!([take(late), take(late), take(late)], [Some(0), Some(1), None]);
        assert_eq!(take(late + Span::from_nanos(999_999)), None);
        assert_eq!(take(late + Span::from_millis(1)), Some(2));
    }

    #[test]
    fn a_peak_rate_spreads_the_burst() {
        // 1000 bytes take 1 ms at the rate and 0.25 ms at the peak rate.
        let mut queue = TokenBucket::new(&params(8_000_000, 3_000, Some(32_000_000)));
        fill(&mut queue, 6, 1000);
        // The bucket of 3000 is refilled meanwhile: 3000 - 1000 + 250 - 1000 + 250 - 1000 + 250 = 750 after three
        // packets and 0.75 ms; the fourth waits for 250 bytes, until 1 ms.
        assert_eq!(departures(&mut queue), [0, 250_000, 500_000, 1_000_000, 2_000_000, 3_000_000]);
    }

    #[test]
    fn nothing_is_lost_to_rounding() {
        // 1514 bytes at 7,777,777 bit/s take 1,557,257.2985... ns.
        let mut queue = TokenBucket::new(&params(7_777_777, 1514, None));
        queue.limit = DropTail { limit: Limit::Unlimited };
        fill(&mut queue, 100_001, 1514);
        let last = departures(&mut queue).pop();
        // 100,000 x 1514 x 8 x 10^9 / 7,777,777, rounded up.
        assert_eq!(last, Some(155_725_729_859));
    }

    #[test]
    fn what_is_longer_than_the_bucket_is_dropped() {
        let mut queue = TokenBucket::new(&params(8_000_000, 3_000, None));
        let pkt = |len| Pkt { key: 0, len, flow: FlowId(0), dscp: 0, ect: false, ce: false, reverse: false };
        assert_eq!(queue.enqueue(Time::ZERO, pkt(3_001), &mut Vec::new()), Verdict::Drop);
        assert_eq!(queue.enqueue(Time::ZERO, pkt(3_000), &mut Vec::new()), Verdict::Accept);
        let mut queue = TokenBucket::new(&params(8_000_000, 3_000, Some(9_000_000)));
        assert_eq!(queue.enqueue(Time::ZERO, pkt(1_001), &mut Vec::new()), Verdict::Drop);
        assert_eq!(queue.next_ready(Time::ZERO), None);
    }

    #[test]
    fn parameters_that_let_nothing_leave_are_refused() {
        assert_eq!(check(&params(8_000, 1_000, None)), Ok(()));
        let why = |params: Params| check(&params).unwrap_err();
        assert_eq!(why(params(0, 3_000, None)).0, "rate");
        let message = "\"999B\" is less than a packet of `mtu`, 1000B";
        assert_eq!(why(params(8_000, 999, Some(9_000))), ("burst", message.to_owned()));
        assert_eq!(check(&params(8_000, 999, None)), Ok(()));
        assert_eq!(why(params(8_000, 0, None)), ("burst", "\"0B\" lets nothing leave".to_owned()));
        let message = "\"7kbit\" is below `rate`, 8kbit";
        assert_eq!(why(params(8_000, 1_000, Some(7_000))), ("peak-rate", message.to_owned()));
    }
}
