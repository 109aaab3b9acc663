//! A switch whose ports share one memory: dynamic thresholds (Choudhury and Hahne 1998).

use std::collections::VecDeque;

use super::{Backlog, Discipline, Pkt, Pool, Qdisc, QdiscDef, Verdict};
use crate::params::{Kind, Limit, keys};
use crate::time::Time;

/// The registry entry.
pub static DEF: QdiscDef = QdiscDef {
    name: "shared",
    about: "Memory that a router's ports share: a queue may grow to `alpha` times the free memory",
    source: "Choudhury, Hahne: Dynamic Queue Length Thresholds for Shared-Memory Packet Switches, IEEE/ACM ToN 6(2), 1998",
    keys: keys! {
        /// Memory of the router, shared by all its ports with this discipline
        "limit": Kind::Limit, default "1000pkt", from "as fifo's, for the router";
        /// A packet is dropped when the port's queue is as long as `alpha` times the free memory
        "alpha": Kind::Float { min: 0.001, max: 1000.0 }, default "1.0", from "Sect. III: powers of two";
    },
    check: |_| Ok(()),
    build: |params, site| {
        Discipline::Ordered(Box::new(Shared {
            limit: params.limit("limit"),
            alpha: params.float("alpha"),
            pool: site.pool,
            queue: VecDeque::new(),
            backlog: Backlog::default(),
        }))
    },
};

struct Shared {
    limit: Limit,
    alpha: f64,
    pool: Pool,
    queue: VecDeque<Pkt>,
    backlog: Backlog,
}

impl Shared {
    fn admits(&self, pkt: &Pkt) -> bool {
        let (packets, bytes) = self.pool.used();
        let (memory, used, added, own) = match self.limit {
            Limit::Packets(limit) => (u64::from(limit), packets, 1, u64::from(self.backlog.packets)),
            Limit::Bytes(limit) => (limit.get(), bytes, u64::from(pkt.len), self.backlog.bytes),
            Limit::Unlimited => return true,
        };
        let free = memory.saturating_sub(used);
        added <= free && (own as f64) < self.alpha * free as f64
    }
}

impl Qdisc for Shared {
    fn enqueue(&mut self, _now: Time, pkt: Pkt, _dropped: &mut Vec<Pkt>) -> Verdict {
        if !self.admits(&pkt) {
            return Verdict::Drop;
        }
        self.pool.add(&pkt);
        self.backlog = self.backlog.with(&pkt);
        self.queue.push_back(pkt);
        Verdict::Accept
    }

    fn dequeue(&mut self, _now: Time, _dropped: &mut Vec<Pkt>) -> Option<Pkt> {
        let pkt = self.queue.pop_front()?;
        self.pool.remove(&pkt);
        self.backlog.packets -= 1;
        self.backlog.bytes -= u64::from(pkt.len);
        Some(pkt)
    }

    fn next_ready(&self, now: Time) -> Option<Time> {
        (!self.queue.is_empty()).then_some(now)
    }

    fn backlog(&self) -> Backlog {
        self.backlog
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::FlowId;
    use crate::units::Bytes;

    fn queue(alpha: f64, pool: &Pool) -> Shared {
        Shared {
            limit: Limit::Bytes(Bytes::new(100_000)),
            alpha,
            pool: pool.clone(),
            queue: VecDeque::new(),
            backlog: Backlog::default(),
        }
    }

    fn fill(queue: &mut Shared) -> u64 {
        let pkt = Pkt { key: 0, len: 100, flow: FlowId(0), dscp: 0, ect: false, ce: false, reverse: false };
        while queue.enqueue(Time::ZERO, pkt, &mut Vec::new()) == Verdict::Accept {}
        queue.backlog.bytes
    }

    /// The paper's steady state: S busy queues hold alpha / (1 + alpha S) of the memory each.
    #[test]
    fn busy_queues_share_and_leave_a_reserve() {
        for alpha in [0.5, 1.0, 2.0] {
            let pool = Pool::default();
            let (mut a, mut b) = (queue(alpha, &pool), queue(alpha, &pool));
            let alone = fill(&mut a) as f64;
            assert!((alone / 100_000.0 - alpha / (1.0 + alpha)).abs() < 0.002, "{alone}");
            // The first gives way as the second grows.
            for _ in 0..1000 {
                fill(&mut b);
                if a.backlog.bytes > b.backlog.bytes {
                    a.dequeue(Time::ZERO, &mut Vec::new());
                }
            }
            for bytes in [a.backlog.bytes, b.backlog.bytes] {
                let share = bytes as f64 / 100_000.0;
                assert!((share - alpha / (1.0 + 2.0 * alpha)).abs() < 0.003, "{alpha}: {share}");
            }
        }
    }
}
