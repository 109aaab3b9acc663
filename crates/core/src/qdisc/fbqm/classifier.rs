//! Which class a packet belongs to. Class 0 is the slowest.

use super::super::Pkt;
use super::super::dscp::CodePoints;
use super::sketch::{Hash, RateSketch};
use crate::id::FlowId;
use crate::time::{Span, Time};

/// Sorts packets into classes.
#[derive(Clone, Debug)]
pub enum Classifier {
    /// By the flow's arrival rate relative to the mean of the active flows.
    Rate(Box<RateClasses>),
    /// By the order in which flows were first seen: the first is the fastest.
    StartOrder {
        /// The first flows seen; all later ones are of class 0.
        first: Vec<FlowId>,
        /// Number of classes.
        classes: usize,
    },
    /// By code point: those that are fast.
    Address(CodePoints),
}

impl Classifier {
    /// The class of a packet that arrives.
    #[inline]
    pub fn classify(&mut self, now: Time, pkt: &Pkt) -> usize {
        match self {
            Self::Rate(rate) => rate.classify(now, pkt),
            Self::StartOrder { first, classes } => {
                let position = first.iter().position(|flow| *flow == pkt.flow);
                let position = position.unwrap_or_else(|| {
                    if first.len() + 1 < *classes {
                        first.push(pkt.flow);
                        first.len() - 1
                    } else {
                        *classes - 1
                    }
                });
                *classes - 1 - position
            }
            Self::Address(fast) => usize::from(fast.contains(pkt.dscp)),
        }
    }

    /// A packet of this class was queued.
    #[inline]
    pub fn queued(&mut self, flow: FlowId, class: usize) {
        if let Self::Rate(rate) = self {
            rate.queued(flow, class);
        }
    }

    /// A packet left the queue.
    #[inline]
    pub fn left(&mut self, flow: FlowId) {
        if let Self::Rate(rate) = self {
            rate.left(flow);
        }
    }
}

/// Where classes begin: at mean x 4^(j/k - 1/2) for j = 1 .. k - 1, which is the mean itself for two classes.
#[derive(Clone, Debug)]
pub struct Boundaries {
    /// Over the mean.
    ratios: Vec<f64>,
    /// For this interval, bytes per interval.
    rates: Vec<u64>,
}

impl Boundaries {
    /// All flows are of class 0 until there is a mean.
    pub fn new(classes: usize) -> Self {
        let exponent = |j: usize| j as f64 / classes as f64 - 0.5;
        Self {
            ratios: (1..classes).map(|j| libm::pow(4.0, exponent(j))).collect(),
            rates: vec![u64::MAX; classes - 1],
        }
    }

    /// The mean rate of flows has become `mean`.
    pub fn set(&mut self, mean: f64) {
        for (rate, ratio) in self.rates.iter_mut().zip(&self.ratios) {
            *rate = libm::round(ratio * mean) as u64;
        }
    }

    /// Above these rates the classes from 1 on begin.
    pub fn rates(&self) -> &[u64] {
        &self.rates
    }

    #[inline]
    fn class(&self, rate: u64) -> usize {
        self.rates.iter().take_while(|boundary| rate > **boundary).count()
    }
}

/// Classes by rate.
#[derive(Clone, Debug)]
pub struct RateClasses {
    hash: Hash,
    sketch: RateSketch,
    interval: Span,
    /// End of the interval that runs.
    until: Time,
    boundaries: Boundaries,
    /// Rate of the flow that was classified last, bytes per interval.
    rate: u64,
    /// Flows per class in this interval and in the last.
    counting: Vec<u32>,
    counts: Vec<u32>,
    /// Waiting packets and their class, per cell of the first row; empty: a flow changes class at once.
    waiting: Vec<Waiting>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Waiting {
    packets: u32,
    class: u8,
}

impl RateClasses {
    /// `classes` rate classes, re-evaluated each `interval`; when `in_order`, a flow changes class only while none of
    /// its packets waits.
    pub fn new(hash: Hash, classes: usize, interval: Span, in_order: bool) -> Self {
        Self {
            sketch: RateSketch::new(hash.cells()),
            interval,
            until: Time::ZERO + interval,
            boundaries: Boundaries::new(classes),
            rate: 0,
            counting: vec![0; classes],
            counts: vec![0; classes],
            waiting: vec![Waiting::default(); if in_order { hash.cells() } else { 0 }],
            hash,
        }
    }

    /// Rate of the flow that was classified last, bytes per interval.
    pub const fn rate(&self) -> u64 {
        self.rate
    }

    /// Flows that sent in the last interval, at least 1.
    pub const fn flows(&self) -> f64 {
        self.sketch.totals().flows()
    }

    /// Flows of a class in the last interval.
    pub fn count(&self, class: usize) -> u32 {
        self.counts[class]
    }

    #[inline]
    fn classify(&mut self, now: Time, pkt: &Pkt) -> usize {
        if now >= self.until {
            self.end_interval(now);
        }
        let slots = self.hash.slots(pkt.flow);
        let arrival = self.sketch.arrive(&slots, pkt.len);
        self.rate = arrival.rate;
        let class = self.boundaries.class(arrival.rate);
        if arrival.first {
            self.counting[class] += 1;
        }
        match self.waiting.get(slots[0] as usize) {
            Some(waiting) if waiting.packets > 0 => usize::from(waiting.class),
            _ => class,
        }
    }

    #[cold]
    fn end_interval(&mut self, now: Time) {
        let number = now.as_nanos() / self.interval.as_nanos().max(1);
        self.until = Time::from_nanos((number + 1).saturating_mul(self.interval.as_nanos().max(1)));
        if self.sketch.advance(number as u32) {
            self.boundaries.set(self.sketch.totals().mean());
            std::mem::swap(&mut self.counts, &mut self.counting);
            self.counting.fill(0);
        }
    }

    #[inline]
    fn queued(&mut self, flow: FlowId, class: usize) {
        if self.waiting.is_empty() {
            return;
        }
        if let Some(waiting) = self.waiting.get_mut(self.hash.first(flow)) {
            waiting.packets += 1;
            waiting.class = class as u8;
        }
    }

    #[inline]
    fn left(&mut self, flow: FlowId) {
        if self.waiting.is_empty() {
            return;
        }
        if let Some(waiting) = self.waiting.get_mut(self.hash.first(flow)) {
            waiting.packets = waiting.packets.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Stream;

    fn pkt(flow: u32, len: u32, dscp: u8) -> Pkt {
        Pkt { key: 0, len, flow: FlowId(flow), dscp, ect: false, ce: false, reverse: false }
    }

    fn rates(classes: usize, in_order: bool) -> RateClasses {
        let hash = Hash::new(1 << 12, &mut Stream::new(1, 0, "classes"));
        RateClasses::new(hash, classes, Span::from_millis(100), in_order)
    }

    /// Flow 0 sends 800 bytes in the interval that begins at `millis`, flow 1 200.
    fn interval(rates: &mut RateClasses, millis: u64) -> (usize, usize) {
        let now = Time::ZERO + Span::from_millis(millis);
        (rates.classify(now, &pkt(0, 800, 0)), rates.classify(now, &pkt(1, 200, 0)))
    }

    #[test]
    fn above_the_mean_is_fast_from_the_next_interval_on() {
        let mut rates = rates(2, false);
        assert_eq!(interval(&mut rates, 0), (0, 0));
        // Averages 400 and 100 bytes, mean 250.
        assert_eq!(interval(&mut rates, 100), (1, 0));
        assert_eq!((rates.count(0), rates.count(1)), (2, 0));
        assert_eq!(interval(&mut rates, 200), (1, 0));
        assert_eq!((rates.count(0), rates.count(1)), (1, 1));
    }

    #[test]
    fn four_classes_lie_at_half_steps_around_the_mean() {
        let mut rates = rates(4, false);
        interval(&mut rates, 0);
        // Boundaries at 250 / sqrt 2, 250, 250 sqrt 2; the flows' averages are 400 and 100.
        assert_eq!(interval(&mut rates, 100), (3, 0));
        assert_eq!(rates.boundaries.rates(), [177, 250, 353]);
    }

    #[test]
    fn a_flow_keeps_its_class_while_it_waits() {
        let mut rates = rates(2, true);
        assert_eq!(interval(&mut rates, 0), (0, 0));
        rates.queued(FlowId(0), 0);
        assert_eq!(interval(&mut rates, 100), (0, 0));
        rates.left(FlowId(0));
        assert_eq!(interval(&mut rates, 150), (1, 0));
    }

    #[test]
    fn the_first_flow_is_fast_by_start_order() {
        let mut order = Classifier::StartOrder { first: Vec::new(), classes: 3 };
        let mut class = |flow| order.classify(Time::ZERO, &pkt(flow, 100, 0));
        assert_eq!([class(9), class(4), class(5), class(9), class(4), class(6)], [2, 1, 0, 2, 1, 0]);
    }

    #[test]
    fn code_points_in_the_set_are_fast() {
        let mut address = Classifier::Address(CodePoints::parse(&["ef".to_owned()]).unwrap());
        assert_eq!(address.classify(Time::ZERO, &pkt(0, 100, 46)), 1);
        assert_eq!(address.classify(Time::ZERO, &pkt(0, 100, 0)), 0);
    }
}
