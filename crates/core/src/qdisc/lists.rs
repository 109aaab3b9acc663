//! Many first-in-first-out queues in one array: no allocation per packet once the array has grown, and a queue costs
//! eight bytes.

use super::Pkt;
use crate::time::Time;

/// Stands for "no place" where places in an array are linked.
pub const NONE: u32 = u32::MAX;

/// The packets of all queues.
#[derive(Clone, Debug)]
pub struct Pool {
    nodes: Vec<Node>,
    /// First of the places that are free.
    free: u32,
}

/// One queue; its packets are in the [`Pool`].
#[derive(Clone, Copy, Debug)]
pub struct Chain {
    first: u32,
    last: u32,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    since: Time,
    pkt: Pkt,
    next: u32,
}

impl Pool {
    /// A pool without packets.
    pub const fn new() -> Self {
        Self { nodes: Vec::new(), free: NONE }
    }

    /// Adds `pkt`, queued at `since`, to the end of `chain`.
    #[inline]
    pub fn push(&mut self, chain: &mut Chain, pkt: Pkt, since: Time) {
        let node = Node { since, pkt, next: NONE };
        let place = self.free;
        let place = match self.nodes.get_mut(place as usize) {
            Some(free) => {
                self.free = free.next;
                *free = node;
                place
            }
            None => {
                self.nodes.push(node);
                (self.nodes.len() - 1) as u32
            }
        };
        match self.nodes.get_mut(chain.last as usize) {
            Some(last) => last.next = place,
            None => chain.first = place,
        }
        chain.last = place;
    }

    /// Takes the first packet of `chain`, and when it was queued.
    #[inline]
    pub fn pop(&mut self, chain: &mut Chain) -> Option<(Pkt, Time)> {
        let place = chain.first;
        let node = self.nodes.get_mut(place as usize)?;
        chain.first = node.next;
        if chain.first == NONE {
            chain.last = NONE;
        }
        node.next = self.free;
        self.free = place;
        Some((node.pkt, node.since))
    }

    /// The first packet of `chain`.
    #[inline]
    pub fn first(&self, chain: &Chain) -> Option<&Pkt> {
        self.nodes.get(chain.first as usize).map(|node| &node.pkt)
    }
}

impl Default for Pool {
    fn default() -> Self {
        Self::new()
    }
}

impl Chain {
    /// A queue without packets.
    pub const EMPTY: Self = Self { first: NONE, last: NONE };

    /// True without packets.
    pub const fn is_empty(&self) -> bool {
        self.first == NONE
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::FlowId;

    fn pkt(key: u32) -> Pkt {
        Pkt { key, len: 100, flow: FlowId(0), dscp: 0, ect: false, ce: false, reverse: false }
    }

    #[test]
    fn chains_keep_their_order_and_places_are_used_again() {
        let mut pool = Pool::new();
        let (mut a, mut b) = (Chain::EMPTY, Chain::EMPTY);
        for key in 0..4 {
            pool.push(if key % 2 == 0 { &mut a } else { &mut b }, pkt(key), Time::from_nanos(u64::from(key)));
        }
        let mut pop = |chain: &mut Chain| pool.pop(chain).map(|(pkt, since)| (pkt.key, since.as_nanos()));
        assert_eq!(pop(&mut b), Some((1, 1)));
        assert_eq!(pop(&mut a), Some((0, 0)));
        assert_eq!(pop(&mut b), Some((3, 3)));
        assert_eq!(pop(&mut b), None);
        assert!(b.is_empty() && !a.is_empty());
        for key in 4..7 {
            pool.push(&mut b, pkt(key), Time::ZERO);
        }
        assert_eq!((pool.nodes.len(), size_of::<Node>()), (4, 32));
        assert_eq!(pool.first(&a).map(|p| p.key), Some(2));
        let order: Vec<u32> = core::iter::from_fn(|| pool.pop(&mut b)).map(|(pkt, _)| pkt.key).collect();
        assert_eq!(order, [4, 5, 6]);
    }
}
