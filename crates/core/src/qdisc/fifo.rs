//! Drop-tail: first in, first out, dropping what does not fit.

use std::collections::VecDeque;

use super::{Admission, Backlog, Discipline, Pkt, Qdisc, QdiscDef, QueueConfig, Verdict};
use crate::params::{Kind, Limit, Params, Value, keys};
use crate::time::{Span, Time};

/// The registry entry.
pub static DEF: QdiscDef = QdiscDef {
    name: "fifo",
    about: "Drop-tail: first in, first out, dropping what does not fit",
    source: "Linux pfifo and bfifo",
    keys: keys! {
        /// What may wait, not counting the packet in transmission
        "limit": Kind::Limit, default "1000pkt", from "Linux txqueuelen";
        /// ECN-capable packets that find more than this waiting are marked (DCTCP's K); absent: none
        "ecn-threshold": Kind::Limit, optional;
    },
    check: |params| match (params.optional("ecn-threshold", Params::limit), params.limit("limit")) {
        (Some(Limit::Packets(mark)), Limit::Packets(limit)) if mark >= limit => {
            Err(("ecn-threshold", format!("\"{mark}pkt\" is not below the limit, \"{limit}pkt\"")))
        }
        (Some(Limit::Bytes(mark)), Limit::Bytes(limit)) if mark >= limit => {
            Err(("ecn-threshold", format!("\"{mark}\" is not below the limit, \"{limit}\"")))
        }
        _ => Ok(()),
    },
    build: |params, _| {
        let drop_tail = DropTail { limit: params.limit("limit") };
        Discipline::Fifo(match params.optional("ecn-threshold", Params::limit) {
            Some(threshold) => Box::new(Step { drop_tail, threshold }),
            None => Box::new(drop_tail),
        })
    },
};

/// A drop-tail queue with `limit`.
pub fn config(limit: Limit) -> QueueConfig {
    QueueConfig { discipline: &DEF, params: Params::new(vec![("limit", Value::Limit(limit))]) }
}

/// The admission rule of drop-tail.
#[derive(Clone, Copy, Debug)]
pub struct DropTail {
    /// What may wait.
    pub limit: Limit,
}

impl Admission for DropTail {
    fn admit(&mut self, _now: Time, backlog: Backlog, _idle: Span, pkt: &Pkt) -> Verdict {
        let fits = backlog.with(pkt).within(self.limit);
        if fits { Verdict::Accept } else { Verdict::Drop }
    }
}

/// Drop-tail that marks above a threshold of the queue at this moment (RFC 8257 section 4.1 asks for it).
struct Step {
    drop_tail: DropTail,
    threshold: Limit,
}

impl Admission for Step {
    fn admit(&mut self, now: Time, backlog: Backlog, idle: Span, pkt: &Pkt) -> Verdict {
        match self.drop_tail.admit(now, backlog, idle, pkt) {
            Verdict::Accept if pkt.ect && !backlog.within(self.threshold) => Verdict::Mark,
            verdict => verdict,
        }
    }
}

/// A first-in-first-out queue behind any admission rule.
pub struct Fifo {
    rule: Box<dyn Admission>,
    queue: VecDeque<Pkt>,
    bytes: u64,
    /// When the transmitter asked and found nothing.
    idle_since: Option<Time>,
}

impl Fifo {
    /// An empty queue.
    pub fn new(rule: Box<dyn Admission>) -> Self {
        Self { rule, queue: VecDeque::new(), bytes: 0, idle_since: Some(Time::ZERO) }
    }
}

impl Qdisc for Fifo {
    fn enqueue(&mut self, now: Time, pkt: Pkt, _dropped: &mut Vec<Pkt>) -> Verdict {
        let idle = self.idle_since.map_or(Span::ZERO, |since| now.since(since));
        let verdict = self.rule.admit(now, self.backlog(), idle, &pkt);
        if verdict != Verdict::Drop {
            self.bytes += u64::from(pkt.len);
            self.queue.push_back(pkt);
        }
        verdict
    }

    fn dequeue(&mut self, now: Time, _dropped: &mut Vec<Pkt>) -> Option<Pkt> {
        let pkt = self.queue.pop_front();
        match &pkt {
            Some(pkt) => {
                self.bytes -= u64::from(pkt.len);
                self.idle_since = None;
            }
            None => self.idle_since = self.idle_since.or(Some(now)),
        }
        pkt
    }

    fn next_ready(&self, now: Time) -> Option<Time> {
        (!self.queue.is_empty()).then_some(now)
    }

    fn backlog(&self) -> Backlog {
        Backlog { packets: self.queue.len() as u32, bytes: self.bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::FlowId;
    use crate::units::Bytes;

    fn pkt(key: u32, len: u32) -> Pkt {
        Pkt { key, len, flow: FlowId(0), dscp: 0, ect: false, ce: false }
    }

    #[test]
    fn packet_limit_counts_waiting_packets() {
        let mut q = Fifo::new(Box::new(DropTail { limit: Limit::Packets(2) }));
        assert_eq!(q.enqueue(Time::ZERO, pkt(1, 100), &mut Vec::new()), Verdict::Accept);
        assert_eq!(q.enqueue(Time::ZERO, pkt(2, 100), &mut Vec::new()), Verdict::Accept);
        assert_eq!(q.enqueue(Time::ZERO, pkt(3, 100), &mut Vec::new()), Verdict::Drop);
        assert_eq!(q.backlog(), Backlog { packets: 2, bytes: 200 });
        assert_eq!(q.dequeue(Time::ZERO, &mut Vec::new()).map(|p| p.key), Some(1));
    }

    #[test]
    fn only_ecn_capable_packets_above_the_threshold_are_marked() {
        let rule = DropTail { limit: Limit::Packets(4) };
        let mut step = Step { drop_tail: rule, threshold: Limit::Packets(2) };
        let mut at = |packets, ect| {
            let backlog = Backlog { packets, bytes: 0 };
            step.admit(Time::ZERO, backlog, Span::ZERO, &Pkt { ect, ..pkt(1, 100) })
        };
        assert_eq!(
            [at(2, true), at(3, true), at(3, false), at(4, true)],
            [Verdict::Accept, Verdict::Mark, Verdict::Accept, Verdict::Drop]
        );
    }

    #[test]
    fn byte_limit_admits_what_fits_whole() {
        let mut rule = DropTail { limit: Limit::Bytes(Bytes::new(250)) };
        let backlog = Backlog { packets: 2, bytes: 200 };
        assert_eq!(rule.admit(Time::ZERO, backlog, Span::ZERO, &pkt(1, 50)), Verdict::Accept);
        assert_eq!(rule.admit(Time::ZERO, backlog, Span::ZERO, &pkt(1, 51)), Verdict::Drop);
    }
}
