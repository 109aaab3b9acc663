//! FQ-PIE: flow queueing (RFC 8290) with PIE (RFC 8033) in each queue.
//!
//! As Linux's fq_pie: flows are hashed to queues, queues take turns by bytes and new ones come first, as with FQ-CoDel. A
//! packet is dropped or marked when it arrives, by the drop probability of its queue, which follows from the waiting
//! times of the queue's own packets. All queues update their probabilities at the same times.
//!
//! Ours: `limit` may be bytes, which stand in for Linux's `memory_limit`; there is no `bytemode` and no estimate of the
//! departure rate, both off in Linux by default; drops are spaced only with `derandomize = true`, as with [`pie`].

use super::fifo::DropTail;
use super::flow_queues::{FlowQueues, check_quantum};
use super::pie::{self, Control, Settings};
use super::{Admission, Backlog, Discipline, Pkt, Qdisc, QdiscDef, Site, Verdict};
use crate::params::{Kind, Params, keys};
use crate::rng::Stream;
use crate::time::{Span, Time};
use crate::units::Dimension;

/// The registry entry.
pub static DEF: QdiscDef = QdiscDef {
    name: "fq-pie",
    about: "FQ-PIE: flows hashed to queues that take turns, sparse flows first, PIE in each",
    source: "Linux tc-fq_pie(8); RFC 8290, RFC 8033",
    keys: keys! {
        /// Most that may wait in all queues together, not counting the packet in transmission
        "limit": Kind::Limit, default "10240pkt", from "Linux tc-fq_pie(8)";
        /// Number of queues; flows whose hashes collide share one
        "queues": Kind::Integer { min: 1, max: 65_536 }, default "1024", from "Linux tc-fq_pie(8): flows";
        /// Bytes that a queue may send per turn
        "quantum": Kind::Quantity(Dimension::Bytes), default "1514B", from "Linux tc-fq_pie(8): the MTU";
        ..pie::KEYS[1];
        ..pie::KEYS[2];
        ..pie::KEYS[3];
        ..pie::KEYS[4];
        ..pie::KEYS[5];
        ..pie::KEYS[6];
        ..pie::KEYS[7];
        ..pie::KEYS[8];
        ..pie::KEYS[9];
        ..pie::KEYS[10];
        ..pie::KEYS[11];
    },
    check: |params| {
        check_quantum(params)?;
        pie::check(params)
    },
    build: |params, site| Discipline::Ordered(Box::new(FqPie::new(params, site))),
};

struct FqPie {
    settings: Settings,
    limit: DropTail,
    queues: FlowQueues<Control>,
    stream: Stream,
}

impl FqPie {
    fn new(params: &Params, mut site: Site) -> Self {
        let settings = Settings::new(params);
        let queues = params.integer("queues").max(1) as usize;
        let (quantum, perturbation) = (params.bytes("quantum"), site.stream.next_u64());
        Self {
            limit: DropTail { limit: params.limit("limit") },
            queues: FlowQueues::new(queues, quantum, Control::new(&settings), perturbation),
            settings,
            stream: site.stream,
        }
    }
}

impl Qdisc for FqPie {
    fn enqueue(&mut self, now: Time, pkt: Pkt, _dropped: &mut Vec<Pkt>) -> Verdict {
        let place = self.queues.place(pkt.flow);
        let backlog = self.queues.backlog();
        let (control, queue) = self.queues.at(place);
        control.catch_up(now, &self.settings);
        if self.limit.admit(now, backlog, Span::ZERO, &pkt) == Verdict::Drop {
            control.on_overflow();
            return Verdict::Drop;
        }
        let verdict = control.judge(&pkt, *queue.bytes, &self.settings, &mut self.stream);
        if verdict != Verdict::Drop {
            self.queues.push(place, pkt, now);
        }
        verdict
    }

    fn dequeue(&mut self, now: Time, _dropped: &mut Vec<Pkt>) -> Option<Pkt> {
        self.queues.dequeue(|control, queue| {
            control.catch_up(now, &self.settings);
            let (pkt, since) = queue.take()?;
            control.on_departure(now.since(since), *queue.bytes == 0);
            Some(pkt)
        })
    }

    fn next_ready(&self, now: Time) -> Option<Time> {
        (self.queues.backlog().packets > 0).then_some(now)
    }

    fn backlog(&self) -> Backlog {
        self.queues.backlog()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::FlowId;
    use crate::params::{Limit, Value};
    use crate::units::{Bytes, Rate};

    fn fq_pie(set: &[(&'static str, Value)]) -> FqPie {
        let mut params = Params::defaults(DEF.keys);
        for (key, value) in set {
            params.set(key, value.clone());
        }
        assert_eq!((DEF.check)(&params), Ok(()));
        let site = Site::new(Rate::from_bits_per_sec(12_000_000), Stream::new(1, 0, "fq-pie"));
        FqPie::new(&params, site)
    }

    /// Two flows with different queues.
    fn two(queue: &FqPie) -> [FlowId; 2] {
        let first = FlowId(0);
        let other = (1..).map(FlowId).find(|flow| queue.queues.place(*flow) != queue.queues.place(first));
        [first, other.expect("more than one queue")]
    }

    /// The key is when it arrived, in milliseconds.
    fn pkt(ms: u64, flow: FlowId, len: u32, ect: bool) -> Pkt {
        Pkt { key: ms as u32, len, flow, dscp: 0, ect, ce: false, reverse: false }
    }

    fn at(ms: u64) -> Time {
        Time::ZERO + Span::from_millis(ms)
    }

    /// 13 packets arrive where 10 can leave. The control brings waiting times to the target of 15 ms, with nearly a quarter
    /// of drops. A flow with one packet in 100 ms has a PIE of its own: its packets leave at once, and none is dropped.
    #[test]
    fn bulk_waits_for_the_target_and_a_sparse_flow_neither_waits_nor_loses() {
        let mut queue = fq_pie(&[]);
        let [bulk, sparse] = two(&queue);
        let (mut waits, mut offered, mut refused) = (Vec::new(), 0u32, 0u32);
        for ms in 0..30_000 {
            for _ in 0..1 + u32::from(ms % 10 < 3) {
                let verdict = queue.enqueue(at(ms), pkt(ms, bulk, 1_500, false), &mut Vec::new());
                if ms >= 20_000 {
                    offered += 1;
                    refused += u32::from(verdict == Verdict::Drop);
                }
            }
            if ms % 100 == 50 {
                let verdict = queue.enqueue(at(ms), pkt(ms, sparse, 100, false), &mut Vec::new());
                assert_eq!(verdict, Verdict::Accept, "at {ms} ms");
            }
            let left = queue.dequeue(at(ms), &mut Vec::new()).expect("a packet waits");
            let wait = ms - u64::from(left.key);
            if left.flow == sparse {
                assert_eq!(wait, 0, "at {ms} ms");
            } else if ms >= 20_000 {
                waits.push(wait);
            }
        }
        let mean = waits.iter().sum::<u64>() as f64 / waits.len() as f64;
        assert!((10.0..20.0).contains(&mean), "{mean} ms");
        // Of 1.3 packets a millisecond 0.99 leave: 23.8 % are too many.
        let share = f64::from(refused) / f64::from(offered);
        assert!((0.22..0.26).contains(&share), "{share}");
    }

    #[test]
    fn marks_stand_for_drops_below_the_limit() {
        let verdicts = |ecn: bool, ect: bool| {
            let mut queue = fq_pie(&[("ecn", Value::Bool(ecn))]);
            let mut seen = Vec::new();
            for ms in 0..20_000 {
                for _ in 0..1 + u32::from(ms % 20 == 0) {
                    let verdict = queue.enqueue(at(ms), pkt(ms, FlowId(0), 1_500, ect), &mut Vec::new());
                    if verdict != Verdict::Accept {
                        seen.push(verdict);
                    }
                }
                queue.dequeue(at(ms), &mut Vec::new());
            }
            seen
        };
        // Marks shorten no queue: the probability goes on to rise, and from a tenth on packets are dropped.
        let seen = verdicts(true, true);
        assert_eq!(seen.first(), Some(&Verdict::Mark));
        assert!(seen.contains(&Verdict::Drop));
        for (ecn, ect) in [(true, false), (false, true)] {
            let seen = verdicts(ecn, ect);
            assert!(!seen.is_empty() && !seen.contains(&Verdict::Mark), "{ecn} {ect}");
        }
    }

    #[test]
    fn over_the_limit_the_arriving_packet_is_refused_whatever_its_queue() {
        let mut queue = fq_pie(&[("limit", Value::Limit(Limit::Packets(3)))]);
        let [bulk, sparse] = two(&queue);
        let mut put = |flow| queue.enqueue(at(0), pkt(0, flow, 1_000, false), &mut Vec::new());
        assert_eq!([put(bulk), put(bulk), put(bulk)], [Verdict::Accept; 3]);
        assert_eq!([put(bulk), put(sparse)], [Verdict::Drop; 2]);
        assert_eq!(queue.backlog(), Backlog { packets: 3, bytes: 3_000 });
        let left = queue.dequeue(at(1), &mut Vec::new());
        assert_eq!(left.map(|p| p.flow), Some(bulk));
    }

    #[test]
    fn parameters_that_move_nothing_are_refused() {
        let key = |key, value| {
            let mut params = Params::defaults(DEF.keys);
            params.set(key, value);
            (DEF.check)(&params).unwrap_err().0
        };
        assert_eq!(key("quantum", Value::Bytes(Bytes::new(255))), "quantum");
        assert_eq!(key("target", Value::Span(Span::ZERO)), "target");
        assert_eq!(key("update", Value::Span(Span::from_micros(99))), "update");
    }
}
