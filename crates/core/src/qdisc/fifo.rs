//! Drop-tail: first in, first out, dropping what does not fit.

use std::collections::VecDeque;

use super::dscp::CodePoints;
use super::{Admission, Backlog, Discipline, Pkt, Qdisc, QdiscDef, QueueConfig, Verdict};
use crate::params::{Kind, Limit, Params, Value, keys};
use crate::time::{Span, Time};

/// The registry entry.
pub static DEF: QdiscDef = QdiscDef {
    name: "fifo",
    about: "Drop-tail: first in, first out; drops packets that do not fit",
    source: "Linux pfifo and bfifo; Kroener, Hebuterne, Boyer, Gravey: Priority Management in ATM Switching Nodes, IEEE JSAC 9(3), 1991",
    keys: keys! {
        /// Most that may wait, not counting the packet in transmission
        "limit": Kind::Limit, default "1000pkt", from "Linux txqueuelen";
        /// ECN-capable packets that find more than this waiting are marked (DCTCP's K); absent: no packet is
        /// marked
        "ecn-threshold": Kind::Limit, optional;
        /// Code points, by name or number, whose waiting packets are dropped, the youngest first, to accept
        /// packets of other code points; absent: none
        "push-out": Kind::TextList, optional;
    },
    check,
    build: |params, _| {
        let drop_tail = DropTail { limit: params.limit("limit") };
        let rule: Box<dyn Admission> = match params.optional("ecn-threshold", Params::limit) {
            Some(threshold) => Box::new(Step { drop_tail, threshold }),
            None => Box::new(drop_tail),
        };
        match low(params) {
            Ok(low) if !low.is_empty() => Discipline::Ordered(Box::new(PushOut::new(rule, low))),
            _ => Discipline::Fifo(rule),
        }
    },
};

fn check(params: &Params) -> Result<(), (&'static str, String)> {
    let mark = "ecn-threshold";
    match (params.optional(mark, Params::limit), params.limit("limit")) {
        (Some(Limit::Packets(above)), Limit::Packets(limit)) if above >= limit => {
            return Err((mark, format!("\"{above}pkt\" is not below the limit, \"{limit}pkt\"")));
        }
        (Some(Limit::Bytes(above)), Limit::Bytes(limit)) if above >= limit => {
            return Err((mark, format!("\"{above}\" is not below the limit, \"{limit}\"")));
        }
        _ => {}
    }
    low(params).map(|_| ()).map_err(|unknown| ("push-out", unknown))
}

/// The code points of `push-out`.
fn low(params: &Params) -> Result<CodePoints, String> {
    CodePoints::parse(&params.optional("push-out", Params::list).unwrap_or_default())
}

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

/// First in, first out, where packets of some code points make room for others. Its rules look at lengths only.
struct PushOut {
    rule: Box<dyn Admission>,
    /// A bit for each of these code points.
    low: CodePoints,
    /// Their packets and the others, by the order in which they came.
    queues: [VecDeque<(u64, Pkt)>; 2],
    backlogs: [Backlog; 2],
    next: u64,
}

impl PushOut {
    fn new(rule: Box<dyn Admission>, low: CodePoints) -> Self {
        Self { rule, low, queues: Default::default(), backlogs: Default::default(), next: 0 }
    }

    fn forget(&mut self, queue: usize, pkt: &Pkt) {
        self.backlogs[queue].packets -= 1;
        self.backlogs[queue].bytes -= u64::from(pkt.len);
    }
}

impl Qdisc for PushOut {
    fn enqueue(&mut self, now: Time, pkt: Pkt, dropped: &mut Vec<Pkt>) -> Verdict {
        let queue = usize::from(!self.low.contains(pkt.dscp));
        let mut verdict = self.rule.admit(now, self.backlog(), Span::ZERO, &pkt);
        if verdict == Verdict::Drop
            && queue == 1
            // Room is made only where it will be enough.
            && self.rule.admit(now, self.backlogs[1], Span::ZERO, &pkt) != Verdict::Drop
        {
            while verdict == Verdict::Drop
                && let Some((_, last)) = self.queues[0].pop_back()
            {
                self.forget(0, &last);
                dropped.push(last);
                verdict = self.rule.admit(now, self.backlog(), Span::ZERO, &pkt);
            }
        }
        if verdict != Verdict::Drop {
            self.backlogs[queue] = self.backlogs[queue].with(&pkt);
            self.queues[queue].push_back((self.next, pkt));
            self.next += 1;
        }
        verdict
    }

    fn dequeue(&mut self, _now: Time, _dropped: &mut Vec<Pkt>) -> Option<Pkt> {
        let [low, others] = &self.queues;
        let is_low = match (low.front(), others.front()) {
            (Some((low, _)), Some((other, _))) => low < other,
            (low, _) => low.is_some(),
        };
        let queue = usize::from(!is_low);
        let (_, pkt) = self.queues[queue].pop_front()?;
        self.forget(queue, &pkt);
        Some(pkt)
    }

    fn next_ready(&self, now: Time) -> Option<Time> {
        self.queues.iter().any(|queue| !queue.is_empty()).then_some(now)
    }

    fn backlog(&self) -> Backlog {
        let [low, others] = self.backlogs;
        Backlog { packets: low.packets + others.packets, bytes: low.bytes + others.bytes }
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
        Pkt { key, len, flow: FlowId(0), dscp: 0, ect: false, ce: false, reverse: false }
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

    /// LE is 1, EF 46. The queue holds 500 bytes.
    #[test]
    fn the_youngest_low_packets_make_room_and_the_rest_keeps_its_order() {
        let mut params = Params::defaults(DEF.keys);
        params.set("limit", Value::Limit(Limit::Bytes(Bytes::new(500))));
        params.set("push-out", Value::List(vec!["LE".to_owned(), "cs1".to_owned()]));
        let site = super::super::Site::new(crate::units::Rate::ZERO, crate::rng::Stream::new(1, 0, "test"));
        let Discipline::Ordered(mut q) = (DEF.build)(&params, site) else { panic!("it takes packets out") };
        let mut put = |key, len, dscp| {
            let mut dropped = Vec::new();
            let verdict = q.enqueue(Time::ZERO, Pkt { dscp, ..pkt(key, len) }, &mut dropped);
            (verdict == Verdict::Accept, dropped.iter().map(|pkt| pkt.key).collect::<Vec<u32>>())
        };
        for (key, dscp) in [(1, 1), (2, 0), (3, 8), (4, 46), (5, 1)] {
            assert_eq!(put(key, 100, dscp), (true, vec![]));
        }
        assert_eq!(put(6, 100, 1), (false, vec![]), "low packets make no room for low ones");
        assert_eq!(put(7, 350, 0), (false, vec![]), "all three would not do: 650 bytes");
        assert_eq!(put(8, 150, 0), (true, vec![5, 3]));
        assert_eq!(put(9, 100, 0), (true, vec![1]));
        let left = core::iter::from_fn(|| q.dequeue(Time::ZERO, &mut Vec::new())).map(|pkt| pkt.key);
        assert_eq!(left.collect::<Vec<u32>>(), [2, 4, 8, 9]);
        assert_eq!(q.backlog(), Backlog::default());
        params.set("push-out", Value::List(vec!["af9".to_owned()]));
        assert_eq!(check(&params).unwrap_err().0, "push-out");
    }

    #[test]
    fn byte_limit_admits_what_fits_whole() {
        let mut rule = DropTail { limit: Limit::Bytes(Bytes::new(250)) };
        let backlog = Backlog { packets: 2, bytes: 200 };
        assert_eq!(rule.admit(Time::ZERO, backlog, Span::ZERO, &pkt(1, 50)), Verdict::Accept);
        assert_eq!(rule.admit(Time::ZERO, backlog, Span::ZERO, &pkt(1, 51)), Verdict::Drop);
    }
}
