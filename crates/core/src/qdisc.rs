//! Queue disciplines. The same code runs in the simulator and in the forwarder that real packets pass.
//!
//! A discipline is either an [`Admission`] rule over one first-in-first-out queue (drop-tail; RED decides there too),
//! or a full [`Qdisc`] that chooses what leaves. Runtimes that know a packet's departure when it arrives use the
//! admission rule alone; everyone else wraps it in [`fifo::Fifo`].

pub mod ared;
pub mod cake;
pub mod codel;
pub mod drr;
pub mod dscp;
pub mod fbqm;
pub mod fifo;
mod flow_queues;
pub mod fq_codel;
pub mod fq_pie;
pub mod htb;
pub mod lists;
pub mod pie;
pub mod prio;
pub mod red;
pub mod registry;
pub mod shared;
pub mod tbf;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::id::{FlowId, NodeId};
use crate::params::{Key, Limit, Params, Value};
use crate::rng::Stream;
use crate::time::{Span, Time};
use crate::units::Rate;

/// What a discipline sees of a packet. The payload stays with the runtime.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pkt {
    /// The runtime's handle.
    pub key: u32,
    /// Bytes on the link.
    pub len: u32,
    /// Flow that it belongs to.
    pub flow: FlowId,
    /// Differentiated services code point (RFC 2474), 0 to 63.
    pub dscp: u8,
    /// RFC 3168: the packet may be marked instead of dropped.
    pub ect: bool,
    /// Set by a discipline that marks at departure: congestion experienced (RFC 3168).
    pub ce: bool,
    /// From the receiver of the flow to its sender.
    pub reverse: bool,
}

/// What waits in a queue, without the packet that is being transmitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Backlog {
    /// Packets.
    pub packets: u32,
    /// Bytes.
    pub bytes: u64,
}

impl Backlog {
    /// With `pkt` on top.
    #[inline]
    fn with(self, pkt: &Pkt) -> Self {
        Self { packets: self.packets.saturating_add(1), bytes: self.bytes + u64::from(pkt.len) }
    }

    /// Whether it is no more than `limit`.
    #[inline]
    fn within(self, limit: Limit) -> bool {
        match limit {
            Limit::Packets(packets) => self.packets <= packets,
            Limit::Bytes(bytes) => self.bytes <= bytes.get(),
            Limit::Unlimited => true,
        }
    }
}

/// Positions of the bits that are set, lowest first.
fn ones(mut bits: u64) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        let at = (bits != 0).then(|| bits.trailing_zeros() as usize)?;
        bits &= bits - 1;
        Some(at)
    })
}

/// The fate of an arriving packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Queued.
    Accept,
    /// Queued, and marked with congestion experienced (RFC 3168).
    Mark,
    /// Dropped.
    Drop,
}

/// Decides at arrival whether a packet joins a first-in-first-out queue.
pub trait Admission: Send {
    /// Judges `pkt`, which arrives at `now` to find `backlog` waiting and the transmitter without work for `idle`
    /// (zero while it transmits).
    fn admit(&mut self, now: Time, backlog: Backlog, idle: Span, pkt: &Pkt) -> Verdict;
}

/// A queue discipline that orders packets itself.
///
/// Counter identities, checked over the whole registry: arrived = dropped at enqueue + enqueued;
/// enqueued = dequeued + dropped after being queued + purged + backlog; the same in bytes.
pub trait Qdisc: Send {
    /// Takes `pkt`, or drops it. Packets that were queued before and make room are added to `dropped`.
    fn enqueue(&mut self, now: Time, pkt: Pkt, dropped: &mut Vec<Pkt>) -> Verdict;

    /// The next packet to transmit, when there is one and it may leave now. Packets that the discipline drops on the
    /// way are added to `dropped`.
    fn dequeue(&mut self, now: Time, dropped: &mut Vec<Pkt>) -> Option<Pkt>;

    /// When a packet may leave: `None` when empty, a time in the past or present when at once.
    fn next_ready(&self, now: Time) -> Option<Time>;

    /// What waits.
    fn backlog(&self) -> Backlog;

    /// Takes out everything that waits, as when the link goes down, and adds it to `purged`. A shaper, which would hold
    /// packets back, needs one of its own that leaves its buckets alone.
    fn purge(&mut self, now: Time, purged: &mut Vec<Pkt>) {
        while let Some(pkt) = self.dequeue(now, purged) {
            purged.push(pkt);
        }
    }

    /// Changes a class while packets wait. False when the discipline has no such class or cannot give it these rates;
    /// nothing has changed then. Afterwards packets may leave at other times: the runtime asks [`Qdisc::next_ready`] again.
    fn set_class(&mut self, _now: Time, _change: &ClassChange<'_>) -> bool {
        false
    }
}

/// New rates for a class of a shaper.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClassChange<'a> {
    /// Which.
    pub class: ClassName<'a>,
    /// What it has in any case; not zero.
    pub rate: Rate,
    /// What it never exceeds; at least `rate`.
    pub ceil: Rate,
}

/// A class of a discipline.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClassName<'a> {
    /// What all classes share.
    Root,
    /// By its position in the scenario, from 0.
    Number(usize),
    /// By its name in the scenario.
    Name(&'a str),
}

/// A discipline as built for one port.
pub enum Discipline {
    /// One first-in-first-out queue behind an admission rule.
    Fifo(Box<dyn Admission>),
    /// Anything else.
    Ordered(Box<dyn Qdisc>),
}

/// Where a discipline is put to work.
#[derive(Clone, Debug)]
pub struct Site {
    /// Rate of the port's transmitter.
    pub rate: Rate,
    /// The port's own random numbers.
    pub stream: Stream,
    /// What waits at all ports of the node that share their memory.
    pub pool: Pool,
    /// Hosts of the flows.
    pub hosts: Hosts,
}

impl Site {
    /// A port that shares its memory with no other, and knows no hosts.
    pub fn new(rate: Rate, stream: Stream) -> Self {
        Self { rate, stream, pool: Pool::default(), hosts: Hosts::default() }
    }
}

/// Which hosts flows join. The runtime keeps it; disciplines that share by host read it.
#[derive(Clone, Debug, Default)]
pub struct Hosts(Arc<[AtomicU64]>);

impl Hosts {
    /// Sender and receiver of flow 0, flow 1 and so on.
    pub fn new(flows: impl Iterator<Item = (NodeId, NodeId)>) -> Self {
        Self(flows.map(|(from, to)| AtomicU64::new(both(from, to))).collect())
    }

    /// `flow` joins other hosts from now on. A flow that is not in the list stays unknown.
    pub fn set(&self, flow: FlowId, from: NodeId, to: NodeId) {
        if let Some(ends) = self.0.get(flow.index()) {
            ends.store(both(from, to), Ordering::Relaxed);
        }
    }

    /// The hosts that send and get `pkt`; none when the runtime does not know them.
    pub fn of(&self, pkt: &Pkt) -> Option<(NodeId, NodeId)> {
        let ends = self.0.get(pkt.flow.index())?.load(Ordering::Relaxed);
        let (from, to) = (NodeId((ends >> 32) as u32), NodeId(ends as u32));
        Some(if pkt.reverse { (to, from) } else { (from, to) })
    }
}

fn both(from: NodeId, to: NodeId) -> u64 {
    u64::from(from.0) << 32 | u64::from(to.0)
}

/// What waits in a memory that several queues share.
#[derive(Clone, Debug, Default)]
pub struct Pool(Arc<(AtomicU64, AtomicU64)>);

impl Pool {
    fn used(&self) -> (u64, u64) {
        let (packets, bytes) = &*self.0;
        (packets.load(Ordering::Relaxed), bytes.load(Ordering::Relaxed))
    }

    fn add(&self, pkt: &Pkt) {
        let (packets, bytes) = &*self.0;
        packets.fetch_add(1, Ordering::Relaxed);
        bytes.fetch_add(u64::from(pkt.len), Ordering::Relaxed);
    }

    fn remove(&self, pkt: &Pkt) {
        let (packets, bytes) = &*self.0;
        packets.fetch_sub(1, Ordering::Relaxed);
        bytes.fetch_sub(u64::from(pkt.len), Ordering::Relaxed);
    }
}

/// An entry of the registry.
#[derive(Debug)]
pub struct QdiscDef {
    /// Name in scenario files.
    pub name: &'static str,
    /// One line about it.
    pub about: &'static str,
    /// Paper or RFC.
    pub source: &'static str,
    /// Parameters.
    pub keys: &'static [Key],
    /// Checks parameters against each other.
    pub check: CheckParams,
    /// Builds one for a port.
    pub build: fn(&Params, Site) -> Discipline,
}

/// Checks parameters against each other; an error is (key, what is wrong with its value).
pub type CheckParams = fn(&Params) -> Result<(), (&'static str, String)>;

impl PartialEq for QdiscDef {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

/// A discipline with its parameters, as a scenario states it.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct QueueConfig {
    /// The entry.
    #[serde(serialize_with = "name_of_def")]
    pub discipline: &'static QdiscDef,
    /// Its parameters.
    pub params: Params,
}

impl QueueConfig {
    /// True when it marks packets of ECN-capable flows.
    pub fn marks(&self) -> bool {
        self.params.get("ecn-threshold").is_some() || self.params.get("ecn") == Some(&Value::Bool(true))
    }

    /// True when it shares by host: it needs [`Site::hosts`].
    pub fn isolates_hosts(&self) -> bool {
        self.params.get("isolation").is_some()
    }

    /// True when it shares memory with the other ports of its node: it needs [`Site::pool`].
    pub fn shares_memory(&self) -> bool {
        self.discipline.name == "shared"
    }

    /// Builds the discipline for one port.
    pub fn build(&self, site: Site) -> Discipline {
        (self.discipline.build)(&self.params, site)
    }
}

fn name_of_def<S: serde::Serializer>(def: &&'static QdiscDef, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(def.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_follow_the_direction_of_a_packet_and_the_flow() {
        let hosts = Hosts::new([(NodeId(1), NodeId(2)), (NodeId(1), NodeId(3))].into_iter());
        let pkt = |flow, reverse| Pkt {
            key: 0,
            len: 100,
            flow: FlowId(flow),
            dscp: 0,
            ect: false,
            ce: false,
            reverse,
        };
        assert_eq!(hosts.of(&pkt(0, false)), Some((NodeId(1), NodeId(2))));
        assert_eq!(hosts.of(&pkt(1, true)), Some((NodeId(3), NodeId(1))));
        let port = hosts.clone();
        hosts.set(FlowId(1), NodeId(4), NodeId(u32::MAX));
        assert_eq!(port.of(&pkt(1, false)), Some((NodeId(4), NodeId(u32::MAX))));
        // Probes have no flow.
        hosts.set(FlowId(2), NodeId(4), NodeId(5));
        assert_eq!([2, u32::MAX].map(|flow| hosts.of(&pkt(flow, false))), [None; 2]);
    }
}
