//! Flows drawn from what was counted in a minute.

use std::collections::BTreeMap;

use crate::rng::Stream;
use crate::sketch::{BURST, Histogram, Row, TOGETHER};
use crate::time::Span;

/// A flow to be simulated.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Flow {
    pub(super) start: Span,
    pub(super) src: usize,
    pub(super) dst: usize,
    pub(super) size: u64,
}

/// What was counted in a minute.
#[derive(Clone, Debug, Default)]
pub(super) struct Minute {
    pub(super) length: Span,
    /// What hosts with an agent have received.
    pub(super) receivers: BTreeMap<usize, Receiver>,
    /// What others were sent, with who it was.
    pub(super) alone: Vec<(usize, Source)>,
    /// Bytes of connections that live long.
    pub(super) held: BTreeMap<(usize, usize), u64>,
}

/// What a host has received.
#[derive(Clone, Debug, Default)]
pub(super) struct Receiver {
    /// How many transfers began together, and their spread in us in all.
    pub(super) bursts: Histogram,
    pub(super) spread: u64,
    /// Of the counts: as if they had been made in the time of the minute.
    pub(super) scale: f64,
    /// From whom: those outside bursts, those in bursts.
    pub(super) pools: [Vec<Source>; 2],
}

/// Transfers of one sender.
#[derive(Clone, Debug)]
pub(super) struct Source {
    src: usize,
    sizes: Histogram,
    count: u64,
    bytes: u64,
    scale: f64,
    /// What was counted exactly, over what the middles of buckets come to.
    correction: f64,
}

impl Source {
    pub(super) fn new(src: usize, row: &Row, scale: f64) -> Self {
        let count = row.sizes.count();
        let middles: f64 = row.sizes.middles().map(|(middle, count)| middle * count as f64).sum();
        let correction = if middles > 0.0 { row.bytes as f64 / middles } else { 1.0 };
        Self { src, sizes: row.sizes.clone(), count, bytes: row.bytes, scale, correction }
    }

    /// Bytes and transfers of the minute.
    fn rate(&self) -> (f64, f64) {
        (self.bytes as f64 * self.scale, self.count as f64 * self.scale)
    }

    fn size(&self, stream: &mut Stream) -> u64 {
        ((self.sizes.at(stream.unit()) as f64 * self.correction).round() as u64).max(1)
    }
}

/// The whole part of `mean`, or one more: on average `mean`.
fn about(stream: &mut Stream, mean: f64) -> u64 {
    (mean + stream.unit()) as u64
}

impl Receiver {
    /// Of transfers alone and in bursts: the share whose senders are on the network. The rest is left out, one by one.
    fn known(&self) -> [f64; 2] {
        [false, true].map(|in_burst| {
            let of = |together: f64| (together >= BURST as f64) == in_burst;
            let counted = self.bursts.middles().filter(|(together, _)| of(*together));
            let all: f64 = counted.map(|(together, count)| together * count as f64).sum();
            let known: u64 = self.pools[usize::from(in_burst)].iter().map(|source| source.count).sum();
            if all > 0.0 { (known as f64 / all).min(1.0) } else { 1.0 }
        })
    }

    /// Draws senders of `count` transfers that begin together, weighted by how many each has sent. A sender comes again
    /// only after all others.
    fn senders(&self, stream: &mut Stream, count: u64) -> Vec<&Source> {
        let wanted = usize::from(count >= BURST);
        let pool = if self.pools[wanted].is_empty() { &self.pools[1 - wanted] } else { &self.pools[wanted] };
        let mut chosen: Vec<&Source> = Vec::new();
        let mut left: Vec<&Source> = Vec::new();
        for _ in 0..count {
            if left.is_empty() {
                left = pool.iter().collect();
            }
            let total: u64 = left.iter().map(|source| source.count).sum();
            let mut at = stream.below(total);
            let place = left.iter().position(|source| match at.checked_sub(source.count) {
                Some(rest) => {
                    at = rest;
                    false
                }
                None => true,
            });
            let Some(place) = place else { break };
            chosen.push(left.swap_remove(place));
        }
        chosen
    }
}

impl Minute {
    /// Sender, receiver, bytes and number of what there is.
    pub(super) fn pairs(&self) -> impl Iterator<Item = (usize, usize, f64, f64)> {
        let received = self
            .receivers
            .iter()
            .flat_map(|(dst, receiver)| receiver.pools.iter().flatten().map(move |source| (*dst, source)));
        let of_source = |(dst, source): (usize, &Source)| {
            let (bytes, count) = source.rate();
            (source.src, dst, bytes, count)
        };
        let all = received.chain(self.alone.iter().map(|(dst, source)| (*dst, source))).map(of_source);
        let seconds = self.length.as_secs_f64();
        all.chain(self.held.iter().map(move |((src, dst), bytes)| (*src, *dst, *bytes as f64, seconds)))
    }

    pub(super) fn sizes(&self) -> impl Iterator<Item = &Histogram> {
        let pools = self.receivers.values().flat_map(|receiver| receiver.pools.iter().flatten());
        pools.chain(self.alone.iter().map(|(_, source)| source)).map(|source| &source.sizes)
    }

    /// Draws flows for `length` from `begin`, as in the minute. Long-lived ones go to `held`, or with the rest.
    pub(super) fn draw(
        &self,
        stream: &mut Stream,
        begin: Span,
        length: Span,
        flows: &mut Vec<Flow>,
        held: Option<&mut Vec<Flow>>,
    ) {
        let share = length.as_secs_f64() / self.length.as_secs_f64();
        let last = length.as_nanos().saturating_sub(1);
        for (dst, receiver) in &self.receivers {
            if receiver.pools.iter().all(Vec::is_empty) {
                continue;
            }
            let several: u64 =
                receiver.bursts.middles().filter(|(together, _)| *together > 1.0).map(|(_, n)| n).sum();
            let spread = Span::from_micros(receiver.spread / several.max(1)).min(TOGETHER);
            let known = receiver.known();
            for (together, count) in receiver.bursts.middles() {
                for _ in 0..about(stream, count as f64 * receiver.scale * share) {
                    let start = begin + Span::from_nanos(stream.below(last + 1));
                    let share = known[usize::from(together >= BURST as f64)];
                    let together =
                        (0..about(stream, together).max(1)).filter(|_| stream.chance(share)).count() as u64;
                    for (number, source) in receiver.senders(stream, together).into_iter().enumerate() {
                        let later =
                            if number == 0 { Span::ZERO } else { stream.span_between(Span::ZERO, spread) };
                        let start = (start + later).min(begin + Span::from_nanos(last));
                        flows.push(Flow { start, src: source.src, dst: *dst, size: source.size(stream) });
                    }
                }
            }
        }
        for (dst, source) in &self.alone {
            for _ in 0..about(stream, source.rate().1 * share) {
                let start = begin + Span::from_nanos(stream.below(last + 1));
                flows.push(Flow { start, src: source.src, dst: *dst, size: source.size(stream) });
            }
        }
        let flows = held.unwrap_or(flows);
        for ((src, dst), bytes) in &self.held {
            let pieces = (length.as_secs_f64().round() as u64).max(1);
            let size = (*bytes as f64 * share / pieces as f64).round() as u64;
            let phase = stream.below(last / pieces + 1);
            for piece in 0..pieces {
                let start = begin + Span::from_nanos(last / pieces * piece + phase);
                flows.push(Flow { start, src: *src, dst: *dst, size: size.max(1) });
            }
        }
    }
}
