//! Losses on the wire of one direction of a link: random, in bursts, periodic and scripted.

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

/// Losses in bursts by the model of Gilbert (1960) and Elliott (1963), with netem's parameters: the wire is in a good or in a bad
/// state, which lose packets with probabilities of their own.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize)]
pub struct GilbertElliott {
    /// Probability that a packet turns the good state bad: netem's p.
    pub p: f64,
    /// Probability that a packet turns the bad state good: netem's r; above 0.
    pub r: f64,
    /// Probability that the bad state loses a packet: netem's 1-h.
    pub bad_loss: f64,
    /// Probability that the good state loses a packet: netem's 1-k; below 1.
    pub good_loss: f64,
}

impl GilbertElliott {
    /// Share of all packets that find the bad state, in the long run.
    pub fn bad_share(&self) -> f64 {
        self.p / (self.p + self.r)
    }

    /// Share of all packets that are lost, in the long run.
    pub fn loss_rate(&self) -> f64 {
        let bad = self.bad_share();
        bad * self.bad_loss + (1.0 - bad) * self.good_loss
    }

    /// True when it loses no packet.
    fn is_lossless(&self) -> bool {
        self.good_loss <= 0.0 && (self.p <= 0.0 || self.bad_loss <= 0.0)
    }
}

/// What the wire of one direction of a link loses; the default is nothing.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct LossPlan {
    /// Probability that a packet is lost, from 0 to below 1.
    pub random: f64,
    /// Losses in bursts.
    pub bursts: Option<GilbertElliott>,
    /// Which packets `random` and `bursts` reach.
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
    bursts: Option<Bursts>,
    of: LossOf,
    every: Option<u64>,
    script: Vec<u64>,
    /// Data packets so far.
    data_packets: u64,
}

impl Losses {
    /// The losses of `plan`, those by chance drawn from a `stream` of this name for each kind; none when the wire loses nothing.
    pub fn from_plan(plan: LossPlan, stream: impl Fn(&'static str) -> Stream) -> Option<Box<Self>> {
        let LossPlan { random, bursts, of, every, script } = plan;
        let bursts = bursts.filter(|model| !model.is_lossless());
        if random <= 0.0 && bursts.is_none() && every.is_none() && script.is_empty() {
            return None;
        }
        let random = (random > 0.0).then(|| (random, stream("loss")));
        let bursts = bursts.map(|model| Bursts { model, is_bad: false, stream: stream("gemodel") });
        Some(Box::new(Self { random, bursts, of, every, script, data_packets: 0 }))
    }

    /// True when the wire loses the next packet. Random numbers are drawn for every packet that losses by chance reach, and for
    /// no other.
    pub fn loses_next(&mut self, is_data: bool) -> bool {
        let by_number = is_data && self.count();
        let reaches = is_data || self.of == LossOf::All;
        let by_chance = reaches && self.random.as_mut().is_some_and(|(p, stream)| stream.chance(*p));
        let by_burst = reaches && self.bursts.as_mut().is_some_and(Bursts::loses_next);
        by_number || by_chance || by_burst
    }

    /// Counts a data packet; true when its number says that it is lost.
    fn count(&mut self) -> bool {
        self.data_packets += 1;
        let number = self.data_packets;
        let is_periodic = self.every.is_some_and(|every| number.is_multiple_of(every));
        is_periodic || self.script.binary_search(&number).is_ok()
    }
}

/// A wire that loses in bursts.
#[derive(Debug)]
struct Bursts {
    model: GilbertElliott,
    is_bad: bool,
    stream: Stream,
}

impl Bursts {
    /// As netem does it: the state that a packet finds decides over the packet, which may also turn the state. Two random numbers for
    /// each packet.
    fn loses_next(&mut self) -> bool {
        let GilbertElliott { p, r, bad_loss, good_loss } = self.model;
        let (turns, loses) = if self.is_bad { (r, bad_loss) } else { (p, good_loss) };
        self.is_bad ^= self.stream.chance(turns);
        self.stream.chance(loses)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn losses(plan: LossPlan) -> Box<Losses> {
        Losses::from_plan(plan, |kind| Stream::new(1, 0, &format!("port/a->b/{kind}"))).expect("losses")
    }

    /// Losses without a random number.
    fn counted(plan: LossPlan) -> Box<Losses> {
        Losses::from_plan(plan, |_| panic!("nothing is drawn")).expect("losses")
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
            assert!(Losses::from_plan(random(0.0, of), |_| panic!("nothing is drawn")).is_none());
        }
        for (p, bad_loss) in [(0.0, 1.0), (0.5, 0.0)] {
            let model = GilbertElliott { p, r: 0.5, bad_loss, good_loss: 0.0 };
            let plan = LossPlan { bursts: Some(model), ..LossPlan::default() };
            assert!(Losses::from_plan(plan, |_| panic!("nothing is drawn")).is_none());
        }
    }

    /// Of n packets a share b = p / (p + r) finds the bad state. The state is correlated, by l = 1 - p - r from packet to packet: the
    /// variance of the number of losses is n ((h - k)^2 b (1 - b) (1 + l) / (1 - l) + the mean of the binomial ones). A burst of the
    /// bad state has 1 / r packets in the mean, with a variance of (1 - r) / r^2; there are n b r of them.
    #[test]
    fn bursts_have_the_rate_and_the_length_of_the_closed_form() {
        let n = 400_000;
        for (p, r, bad_loss, good_loss) in [
            (0.01, 0.2, 1.0, 0.0),
            (0.001, 0.02, 1.0, 0.0),
            (0.05, 0.5, 0.7, 0.01),
            (0.3, 0.7, 0.4, 0.0),
            (1.0, 1.0, 1.0, 0.0),
        ] {
            let model = GilbertElliott { p, r, bad_loss, good_loss };
            let mut losses = losses(LossPlan { bursts: Some(model), ..LossPlan::default() });
            let lost: Vec<bool> = (0..n).map(|i| losses.loses_next(i % 3 == 0)).collect();
            let (bad, count) = (model.bad_share(), f64::from(n));
            let correlation = 1.0 - p - r;
            let binomial = bad * bad_loss * (1.0 - bad_loss) + (1.0 - bad) * good_loss * (1.0 - good_loss);
            let of_states = (bad_loss - good_loss).powi(2) * bad * (1.0 - bad);
            let variance = count * (of_states * (1.0 + correlation) / (1.0 - correlation) + binomial);
            let seen = lost.iter().filter(|is_lost| **is_lost).count() as f64;
            let mean = count * model.loss_rate();
            assert!((seen - mean).abs() <= 4.0 * variance.sqrt() + 1.0, "{seen} lost, not {mean}: {model:?}");
            if (bad_loss, good_loss) != (1.0, 0.0) {
                continue;
            }
            // Only the bad state loses, and all: a burst of losses is a visit of it.
            let bursts = lost.chunk_by(|a, b| a == b).filter(|run| run[0]).count() as f64;
            let deviation = ((1.0 - r) / (r * r) / (count * bad * r)).sqrt();
            let length = seen / bursts;
            let off = (length - 1.0 / r).abs();
            assert!(off <= 4.0 * deviation + 0.01, "{length} packets a burst: {model:?}");
        }
    }

    /// The random losses are those that there are without bursts, and bursts those without random losses; acknowledgements neither
    /// are lost nor turn the state where they are spared.
    #[test]
    fn bursts_shift_nothing_and_are_not_shifted() {
        let model = GilbertElliott { p: 0.1, r: 0.3, bad_loss: 0.8, good_loss: 0.0 };
        let bursts = LossPlan { bursts: Some(model), of: LossOf::Data, ..LossPlan::default() };
        let both = LossPlan { random: 0.2, ..bursts.clone() };
        let [mut alone, mut plain, mut together] =
            [bursts.clone(), random(0.2, LossOf::Data), both].map(losses);
        for _ in 0..1_000 {
            assert!(!together.loses_next(false));
            let expected = alone.loses_next(true) | plain.loses_next(true);
            assert_eq!(together.loses_next(true), expected);
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
