//! Drop-tail: first in, first out, dropping what does not fit.

use std::collections::VecDeque;

use super::{Admission, Backlog, Discipline, Pkt, Qdisc, QdiscDef, QueueConfig, Verdict};
use crate::params::{Key, Kind, Limit, Params, Value};
use crate::time::{Span, Time};

/// The registry entry.
pub static DEF: QdiscDef = QdiscDef {
    name: "fifo",
    about: "Drop-tail: first in, first out, dropping what does not fit",
    source: "Linux pfifo and bfifo",
    keys: &[Key::new(
        "limit",
        Kind::Limit,
        "1000pkt",
        "What may wait, not counting the packet in transmission",
        "Linux txqueuelen",
    )],
    check: |_| Ok(()),
    build: |params, _| Discipline::Fifo(Box::new(DropTail { limit: params.limit("limit") })),
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
    fn byte_limit_admits_what_fits_whole() {
        let mut rule = DropTail { limit: Limit::Bytes(Bytes::new(250)) };
        let backlog = Backlog { packets: 2, bytes: 200 };
        assert_eq!(rule.admit(Time::ZERO, backlog, Span::ZERO, &pkt(1, 50)), Verdict::Accept);
        assert_eq!(rule.admit(Time::ZERO, backlog, Span::ZERO, &pkt(1, 51)), Verdict::Drop);
    }
}
