//! Losses on the wire of one direction of a link: random, periodic and scripted.

use crate::params::choice;
use crate::rng::Stream;

choice! {
    /// Which packets random loss reaches.
    #[derive(Default, serde::Serialize)]
    #[serde(rename_all = "lowercase")]
    pub enum LossOf {
        /// Every packet.
        #[default]
        All = "all",
        /// Packets of flows that carry payload: no pure acknowledgement, no handshake, no probe of a scheme.
        Data = "data",
    }
}

/// What the wire of one direction of a link loses; the default is nothing.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct LossPlan {
    /// Probability that a packet is lost, from 0 to below 1.
    pub random: f64,
    /// Which packets `random` reaches.
    pub of: LossOf,
    /// Every N-th data packet is lost, N at least 2.
    pub every: Option<u64>,
    /// Ordinal numbers of data packets that are lost, from 1, ascending.
    pub script: Vec<u64>,
}

/// Decides for each packet of one direction of a link whether its wire loses it.
///
/// A data packet is a packet of a flow that carries payload; retransmissions count too. A packet is lost when any kind of
/// loss takes it. Each kind counts or draws as it would without the others.
#[derive(Debug)]
pub struct Losses {
    /// Probability, and what it is drawn from.
    random: Option<(f64, Stream)>,
    of: LossOf,
    every: Option<u64>,
    script: Vec<u64>,
    /// Data packets so far.
    data_packets: u64,
}

impl Losses {
    /// The losses of `plan`, the random ones drawn from `stream`; none when the wire loses nothing.
    pub fn from_plan(plan: LossPlan, stream: impl FnOnce() -> Stream) -> Option<Box<Self>> {
        let LossPlan { random, of, every, script } = plan;
        if random <= 0.0 && every.is_none() && script.is_empty() {
            return None;
        }
        let random = (random > 0.0).then(|| (random, stream()));
        Some(Box::new(Self { random, of, every, script, data_packets: 0 }))
    }

    /// True when the wire loses the next packet. A random number is drawn for every packet that random loss reaches, and for
    /// no other.
    pub fn loses_next(&mut self, is_data: bool) -> bool {
        let by_number = is_data && self.count();
        let reaches = is_data || self.of == LossOf::All;
        let by_chance = reaches && self.random.as_mut().is_some_and(|(p, stream)| stream.chance(*p));
        by_number || by_chance
    }

    /// Counts a data packet; true when its number says that it is lost.
    fn count(&mut self) -> bool {
        self.data_packets += 1;
        let number = self.data_packets;
        let is_periodic = self.every.is_some_and(|every| number.is_multiple_of(every));
        is_periodic || self.script.binary_search(&number).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn losses(plan: LossPlan) -> Box<Losses> {
        Losses::from_plan(plan, || Stream::new(1, 0, "port/a->b/loss")).expect("losses")
    }

    /// Losses without a random number.
    fn counted(plan: LossPlan) -> Box<Losses> {
        Losses::from_plan(plan, || panic!("nothing is drawn")).expect("losses")
    }

    fn random(random: f64, of: LossOf) -> LossPlan {
        LossPlan { random, of, ..LossPlan::default() }
    }

    /// Numbers, from 1, of the data packets that are lost out of `count`. An acknowledgement precedes each and is never lost.
    fn lost_of(losses: &mut Losses, count: u64) -> Vec<u64> {
        let mut lost = Vec::new();
        for number in 1..=count {
            assert!(!losses.loses_next(false), "the acknowledgement before {number}");
            if losses.loses_next(true) {
                lost.push(number);
            }
        }
        lost
    }

    #[test]
    fn nothing_is_lost_or_drawn_without_losses() {
        for of in [LossOf::All, LossOf::Data] {
            assert!(Losses::from_plan(random(0.0, of), || panic!("nothing is drawn")).is_none());
        }
    }

    /// Within four standard deviations of a binomial distribution, n p +- 4 sqrt(n p (1 - p)).
    #[test]
    fn random_loss_takes_its_share() {
        let n = 200_000;
        for p in [0.001, 0.03, 0.5, 0.99] {
            let mut losses = losses(random(p, LossOf::All));
            let lost = (0..n).filter(|i| losses.loses_next(i % 3 == 0)).count() as f64;
            let (mean, deviation) = (f64::from(n) * p, f64::sqrt(f64::from(n) * p * (1.0 - p)));
            assert!((lost - mean).abs() < 4.0 * deviation, "{lost} of {n} lost with p = {p}");
        }
    }

    /// Acknowledgements draw no number: the same data packets are lost with and without them.
    #[test]
    fn losses_of_data_spare_and_skip_the_rest() {
        let with = lost_of(&mut losses(random(0.5, LossOf::Data)), 1_000);
        let mut alone = losses(random(0.5, LossOf::Data));
        let without: Vec<u64> = (1..=1_000).filter(|_| alone.loses_next(true)).collect();
        assert_eq!(with, without);
        // 500 +- 4 sqrt(250).
        assert!((437..=563).contains(&with.len()), "{}", with.len());
    }

    #[test]
    fn periodic_loss_takes_every_nth_data_packet() {
        for every in [2, 3, 100] {
            let mut losses = counted(LossPlan { every: Some(every), ..LossPlan::default() });
            let lost = lost_of(&mut losses, 1_000);
            assert_eq!(lost, (1..=1_000 / every).map(|k| k * every).collect::<Vec<u64>>());
        }
    }

    #[test]
    fn scripted_loss_takes_what_the_script_says() {
        let script = vec![1, 2, 40, 999, 5_000];
        let mut losses = counted(LossPlan { script, ..LossPlan::default() });
        assert_eq!(lost_of(&mut losses, 1_000), [1, 2, 40, 999]);
    }

    /// The random losses are those that there are without the others.
    #[test]
    fn kinds_do_not_shift_each_other() {
        let mut alone = losses(random(0.1, LossOf::All));
        let plan = LossPlan { every: Some(10), script: vec![3, 20, 33], ..random(0.1, LossOf::All) };
        let mut together = losses(plan);
        let mut both = 0;
        for number in 1..=1_000u64 {
            let by_number = number.is_multiple_of(10) || [3, 20, 33].contains(&number);
            let by_chance = alone.loses_next(true);
            assert_eq!(together.loses_next(true), by_number || by_chance, "{number}");
            both += u32::from(by_number && by_chance);
        }
        assert!(both > 0, "no packet is lost by both");
    }
}
