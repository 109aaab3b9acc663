//! How long packets are on the wire of one direction of a link, where they differ: jitter, and packets that overtake others.

use crate::rng::{SpanDraw, Stream};
use crate::time::{Span, Time};

/// How the delays of single packets differ; the default is not at all.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize)]
pub struct Variation {
    /// Drawn for each packet and added to the delay of the link; none: nothing.
    pub jitter: Option<SpanDraw>,
    /// A packet that draws less may arrive before one that was sent earlier. Otherwise it arrives with that one.
    pub jitter_reorders: bool,
    /// Probability that a packet overtakes, of those that may.
    pub reorder: f64,
    /// After a packet that overtook, the next `reorder_gap - 1` packets may not; at least 1.
    pub reorder_gap: u32,
    /// Delay of packets that overtake, instead of that of the link and its jitter.
    pub reorder_delay: Span,
}

impl Default for Variation {
    fn default() -> Self {
        Self { jitter: None, jitter_reorders: false, reorder: 0.0, reorder_gap: 1, reorder_delay: Span::ZERO }
    }
}

impl Variation {
    /// All packets take equally long.
    pub fn is_none(&self) -> bool {
        self.jitter.is_none() && self.reorder <= 0.0
    }

    /// Share of the packets that overtake, in the long run: one of the packets that may not and of those that may until one does.
    pub fn reordered_share(&self) -> f64 {
        if self.reorder <= 0.0 {
            return 0.0;
        }
        1.0 / (f64::from(self.reorder_gap - 1) + 1.0 / self.reorder)
    }
}

/// Decides for each packet of one direction of a link when it arrives.
#[derive(Debug)]
pub struct Propagation {
    delay: Span,
    variation: Variation,
    jitter: Stream,
    reorder: Stream,
    /// Packets since the last one that overtook.
    in_order: u32,
    /// The latest arrival of a packet that keeps its order.
    last: Time,
}

impl Propagation {
    /// Over a wire with this delay; each kind draws from a `stream` of its name. None when all packets take equally long.
    pub fn new(variation: Variation, delay: Span, stream: impl Fn(&'static str) -> Stream) -> Option<Self> {
        (!variation.is_none()).then(|| Self {
            delay,
            variation,
            jitter: stream("jitter"),
            reorder: stream("reorder"),
            in_order: 0,
            last: Time::ZERO,
        })
    }

    /// The delay of the link, which the packets' own differ from.
    pub fn delay(&self) -> Span {
        self.delay
    }

    /// When the next packet arrives, which has been transmitted at `sent`. These times never decrease.
    pub fn arrival(&mut self, sent: Time) -> Time {
        if self.overtakes() {
            return sent + self.variation.reorder_delay;
        }
        let jitter = self.variation.jitter.map_or(Span::ZERO, |draw| draw.draw(&mut self.jitter));
        let arrival = sent + self.delay + jitter;
        if self.variation.jitter_reorders {
            return arrival;
        }
        self.last = self.last.max(arrival);
        self.last
    }

    /// What was on the wire is gone: the next packet has nothing to overtake.
    pub fn restart(&mut self) {
        self.in_order = 0;
        self.last = Time::ZERO;
    }

    /// As netem decides: a random number is drawn only for packets that may overtake.
    fn overtakes(&mut self) -> bool {
        let Variation { reorder, reorder_gap, .. } = self.variation;
        if reorder <= 0.0 {
            return false;
        }
        let may = self.in_order.saturating_add(1) >= reorder_gap;
        let overtakes = may && self.reorder.chance(reorder);
        self.in_order = if overtakes { 0 } else { self.in_order.saturating_add(1) };
        overtakes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DELAY: Span = Span::from_millis(10);
    /// Between packets.
    const GAP: Span = Span::from_millis(1);

    /// Arrivals of so many packets.
    fn arrivals(variation: Variation, count: u64) -> Vec<Time> {
        let stream = |kind| Stream::new(1, 0, &format!("port/a->b/{kind}"));
        let mut wire = Propagation::new(variation, DELAY, stream).expect("packets differ");
        (0..count).map(|i| wire.arrival(Time::ZERO + GAP * i)).collect()
    }

    /// How much longer than the delay packet `i` is on its way.
    fn late(arrivals: &[Time], i: usize) -> Span {
        arrivals[i].since(Time::ZERO + GAP * i as u64 + DELAY)
    }

    #[test]
    fn without_variation_there_is_nothing_to_decide() {
        let none = Variation { jitter_reorders: true, reorder_gap: 5, ..Variation::default() };
        assert!(Propagation::new(none, DELAY, |_| panic!("nothing is drawn")).is_none());
    }

    /// Uniform up to 4 ms, with 1 ms between packets: in order the mean lateness is more than the 2 ms that are drawn, since
    /// packets wait for one before them. Out of order it is 2 ms, within 4 x 4 ms / sqrt(12 n).
    #[test]
    fn jitter_keeps_the_order_unless_it_may_not() {
        let jitter = SpanDraw::Uniform { low: Span::ZERO, high: Span::from_millis(4) };
        let in_order = Variation { jitter: Some(jitter), ..Variation::default() };
        let mean = |arrivals: &[Time]| {
            (0..arrivals.len()).map(|i| late(arrivals, i).as_secs_f64()).sum::<f64>() / arrivals.len() as f64
        };
        let [kept, free] =
            [false, true].map(|jitter_reorders| arrivals(Variation { jitter_reorders, ..in_order }, 20_000));
        assert!(kept.is_sorted() && !free.is_sorted());
        for arrivals in [&kept, &free] {
            assert!((0..arrivals.len()).all(|i| late(arrivals, i) <= Span::from_millis(4)));
        }
        let (kept, free) = (1e3 * mean(&kept), 1e3 * mean(&free));
        assert!((free - 2.0).abs() < 4.0 * 4.0 / (12.0f64 * 20_000.0).sqrt(), "{free} ms");
        assert!((2.1..4.0).contains(&kept), "{kept} ms");
    }

    /// With a gap of g, of every (g - 1) + 1 / p packets one overtakes. The number in n packets has a variance below n times the share;
    /// a gap above 1 makes it more regular.
    #[test]
    fn packets_that_overtake_have_their_share_and_their_gap() {
        let n = 100_000;
        for (reorder, reorder_gap) in [(0.25, 1), (0.25, 5), (1.0, 5), (0.01, 1)] {
            let variation = Variation { reorder, reorder_gap, ..Variation::default() };
            let arrivals = arrivals(variation, n);
            let early: Vec<usize> =
                (0..arrivals.len()).filter(|i| arrivals[*i] == Time::ZERO + GAP * *i as u64).collect();
            let expected = n as f64 * variation.reordered_share();
            let seen = early.len() as f64;
            let off = (seen - expected).abs();
            assert!(off <= 4.0 * expected.sqrt(), "{seen}, not {expected}: {variation:?}");
            assert!(early.windows(2).all(|pair| pair[1] - pair[0] >= reorder_gap as usize), "{variation:?}");
            let mut others = (0..arrivals.len()).filter(|i| !early.contains(i)).take(1_000);
            assert!(others.all(|i| late(&arrivals, i).is_zero()), "the others take the delay");
        }
    }

    /// Every third packet overtakes, with 2 ms instead of 15 ms. After a restart the count begins again.
    #[test]
    fn packets_that_overtake_have_a_delay_of_their_own() {
        let variation = Variation {
            jitter: Some(SpanDraw::fixed(Span::from_millis(5))),
            reorder: 1.0,
            reorder_gap: 3,
            reorder_delay: Span::from_millis(2),
            ..Variation::default()
        };
        let millis =
            |times: &[Time]| -> Vec<u64> { times.iter().map(|at| at.as_nanos() / 1_000_000).collect() };
        assert_eq!(millis(&arrivals(variation, 7)), [15, 16, 4, 18, 19, 7, 21]);
        let mut wire =
            Propagation::new(variation, DELAY, |kind| Stream::new(1, 0, kind)).expect("they differ");
        let first: Vec<Time> = (0..2).map(|_| wire.arrival(Time::ZERO)).collect();
        wire.restart();
        let after: Vec<Time> = (0..3).map(|_| wire.arrival(Time::ZERO)).collect();
        assert_eq!((millis(&first), millis(&after)), (vec![15, 15], vec![15, 15, 2]));
    }
}
