//! Whether what one gateway sends can be what the other counts.
//!
//! Lost packets and packets that are not counted look the same to an estimator, and the second kind takes it down to its floor.
//! They differ in this: probes suffer the losses of the path, and no errors of counting. With S, R the packets of a round sent
//! and received, over rounds in which there were any:
//!
//! | cause | rule |
//! |---|---|
//! | [`Nothing`](Cause::Nothing) | R = 0 and S > 0 in three rounds, of 10 packets |
//! | [`Unsent`](Cause::Unsent) | R > 0 and S = 0 in three rounds, of 10 packets |
//! | [`More`](Cause::More) | sum R > 1.02 sum S + 10 in ten rounds, R > S in three of them, and twenty rounds before lack less than half of it: a queue that empties is none |
//! | [`Merged`](Cause::Merged) | of 60 rounds: more than 5 % and 100 of the packets are missing, and less than a quarter of that share of the bytes |
//! | [`Bytes`](Cause::Bytes) | of 60 rounds and 1000 packets: the bytes differ by more than 2 %, and more than missing packets can explain |
//! | [`Share`](Cause::Share) | of the last 8, 10, 14, 20, 30, 60, 120, 240 or 600 rounds: P(at most k of n probes lost when each is with m) < 10^-3 up to 30 probes, 10^-6 beyond |
//!
//! There m is the share of packets that is missing: of all, or the lower quartile of rounds of at least 10 packets when that
//! is less, since losses of a full queue come in some rounds, and errors of counting in all. What is lost at random with equal
//! chance for data and probes gives hardly an alarm: at 10 % and a return path that loses nothing, one in 4 10^5 days with 40
//! packets a round, 2 10^4 with 200, 200 with any number, and one in 10^5 starts (binomial distributions, summed over the ways to
//! cross the bounds). Losses on the way back make it rarer. Beyond 25 % there may be some a day.

use std::collections::VecDeque;

use super::probe::{Counters, Seq};
use crate::control::Passed;

/// Why counts cannot match.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    /// Nothing of what is sent is counted.
    Nothing,
    /// What is counted was not sent by the classes.
    Unsent,
    /// More is counted than was sent.
    More,
    /// Packets arrive merged, and are counted as one.
    Merged,
    /// Packets have another size at the other end.
    Bytes,
    /// A share is not counted.
    Share,
}

impl Cause {
    /// All, by their codes from 1.
    const ALL: [Self; 6] = [Self::Nothing, Self::Unsent, Self::More, Self::Merged, Self::Bytes, Self::Share];

    /// As a gauge tells it; 0 is none.
    pub const fn code(self) -> u8 {
        self as u8 + 1
    }

    /// That of a gauge.
    pub fn from_code(code: f64) -> Option<Self> {
        Self::ALL.into_iter().find(|cause| f64::from(cause.code()) == code)
    }
}

/// What cannot match.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Verdict {
    /// Why.
    pub cause: Cause,
    /// Part of the packets that is missing, of what was sent; negative when there are more.
    pub missing: f64,
}

/// Compares counts, round for round.
#[derive(Clone, Debug, Default)]
pub struct Mismatch {
    /// Questions without an answer, oldest first.
    open: VecDeque<(Seq, Counters)>,
    base: Option<(Counters, Counters)>,
    /// Rounds since the last verdict began or ended, or counters restarted, oldest first.
    rounds: VecDeque<Round>,
    verdict: Option<Verdict>,
}

/// What passed between two probes that both ends have counted.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    sent: Passed,
    received: Passed,
    /// Probes without an answer.
    lost: u32,
}

const MOST_OPEN: usize = 64;
const MOST_ROUNDS: usize = 600;
/// Rounds in which what happens in all is no chance, and packets.
const FEW_ROUNDS: usize = 3;
const FEW_PACKETS: u64 = 10;
/// Rounds for [`Cause::More`], and with those before them.
const EXCESS_ROUNDS: usize = 10;
const EXCESS_BEFORE: usize = 30;
/// Rounds by which sizes are compared.
const SIZE_ROUNDS: usize = 60;
const SIZE_PACKETS: u64 = 1000;
const MERGED_PACKETS: u64 = 100;
const MERGED_SHARE: f64 = 0.05;
/// Bytes may differ by this share, and by the largest of the missing packets.
const SIZE_SHARE: f64 = 0.02;
const LARGEST_PACKET: f64 = 2000.0;
/// A round that differs by more is no ground to trust an estimate.
const SUSPICIOUS: f64 = 0.1;
/// Less is not looked at.
const LEAST_SHARE: f64 = 0.02;
/// Rounds for [`Cause::Share`]: the last so many, so that a late mismatch is seen as soon. In fewer rounds,
/// [`Cause::Nothing`] detects it.
const SHARE_ROUNDS: [usize; 9] = [8, 10, 14, 20, 30, 60, 120, 240, MOST_ROUNDS];
/// Few probes, and the chance that is taken for none with them, and with more.
const FEW_PROBES: u64 = 30;
const CHANCE: [f64; 2] = [1e-3, 1e-6];
/// Rounds that match after which a verdict is over.
const MATCHING: usize = 5;
/// Or, where much is lost, so many probes of which as many are lost as packets with this chance.
const LIKELY: f64 = 0.05;

impl Mismatch {
    /// What cannot match now.
    pub const fn verdict(&self) -> Option<Verdict> {
        self.verdict
    }

    /// Whether the last round was none to trust an estimate by.
    pub fn is_suspicious(&self) -> bool {
        let last = Sum::of(self.last(1));
        self.verdict.is_some() || last.lost().abs() > SUSPICIOUS * last.sent.packets as f64
    }

    /// Question `seq` leaves after `sent`.
    pub fn on_sent(&mut self, seq: Seq, sent: Counters) {
        let last = self.open.back().map(|(_, sent)| sent).or(self.base.as_ref().map(|(sent, _)| sent));
        if last.is_some_and(|last| advance(last, &sent).is_none()) {
            self.open.clear();
            self.base = None;
            self.rounds.clear();
        }
        self.open.retain(|(open, _)| open.precedes(seq));
        if self.open.len() == MOST_OPEN {
            self.open.pop_front();
        }
        self.open.push_back((seq, sent));
    }

    /// The answer to question `seq`: the other gateway had `received` so much. True when the verdict has changed.
    pub fn on_answer(&mut self, seq: Seq, received: Counters) -> bool {
        let Some(at) = self.open.iter().position(|(open, _)| *open == seq) else { return false };
        let Some((_, sent)) = self.open.drain(..=at).next_back() else { return false };
        let base = self.base.replace((sent, received));
        let Some(base) = base else { return false };
        let passed = advance(&base.0, &sent).zip(advance(&base.1, &received));
        let Some((sent, received)) = passed else {
            // What was before is of other counters.
            self.rounds.clear();
            return false;
        };
        let lost = u32::try_from(at).unwrap_or(u32::MAX);
        let round = Round { sent, received, lost };
        if sent.packets == 0 && received.packets == 0 && !self.is(Cause::Unsent) {
            return false;
        }
        if self.rounds.len() == MOST_ROUNDS {
            self.rounds.pop_front();
        }
        self.rounds.push_back(round);
        let before = self.verdict;
        match before {
            None => self.verdict = self.judge(),
            Some(verdict) if self.matches_again(verdict) => self.verdict = None,
            Some(_) => {}
        }
        let has_changed = before != self.verdict;
        if has_changed {
            self.rounds.clear();
        }
        has_changed
    }

    fn is(&self, cause: Cause) -> bool {
        self.verdict.is_some_and(|verdict| verdict.cause == cause)
    }

    fn last(&self, rounds: usize) -> impl Iterator<Item = &Round> {
        self.rounds.iter().rev().take(rounds)
    }

    fn judge(&self) -> Option<Verdict> {
        if let Some(missing) = self.unmatched(|round| round.received.packets == 0, |sum| sum.sent.packets) {
            return Some(Verdict { cause: Cause::Nothing, missing });
        }
        if let Some(missing) = self.unmatched(|round| round.sent.packets == 0, |sum| sum.received.packets) {
            return Some(Verdict { cause: Cause::Unsent, missing });
        }
        let recent = Sum::of(self.last(EXCESS_ROUNDS));
        let above = self.last(EXCESS_ROUNDS).filter(|round| round.received.packets > round.sent.packets);
        let excess = -Sum::of(self.last(EXCESS_BEFORE)).lost();
        if recent.has_more() && above.count() >= FEW_ROUNDS && 2.0 * excess >= -recent.lost() {
            return Some(Verdict { cause: Cause::More, missing: recent.missing() });
        }
        let sizes = Sum::of(self.last(SIZE_ROUNDS));
        if sizes.is_merged() {
            return Some(Verdict { cause: Cause::Merged, missing: sizes.missing() });
        }
        if sizes.sent.packets >= SIZE_PACKETS && sizes.differs_in_size() {
            return Some(Verdict { cause: Cause::Bytes, missing: sizes.missing() });
        }
        SHARE_ROUNDS.iter().find_map(|rounds| {
            let sum = Sum::of(self.last(*rounds));
            let (missing, probes) = (self.share(*rounds, &sum), sum.probes);
            let chance = CHANCE[usize::from(probes > FEW_PROBES)];
            let is_beyond = self.rounds.len() >= *rounds
                && missing >= LEAST_SHARE
                && at_most(sum.lost_probes, probes, missing) < chance;
            is_beyond.then_some(Verdict { cause: Cause::Share, missing })
        })
    }

    /// Part that is missing when the last rounds, three at least, are all such, and of enough packets.
    fn unmatched(&self, such: impl Fn(&Round) -> bool, packets: impl Fn(&Sum) -> u64) -> Option<f64> {
        let run = self.rounds.iter().rev().take_while(|round| such(round)).count();
        let sum = Sum::of(self.last(run));
        (run >= FEW_ROUNDS && packets(&sum) >= FEW_PACKETS).then(|| sum.missing())
    }

    /// Part of the packets that is missing in the last rounds, of which `sum` is the sum.
    fn share(&self, rounds: usize, sum: &Sum) -> f64 {
        let full = self.last(rounds).filter(|round| round.sent.packets >= FEW_PACKETS);
        let mut shares: Vec<f64> = full.map(|round| Sum::of([round].into_iter()).missing()).collect();
        if shares.is_empty() {
            return 0.0;
        }
        let quartile = (shares.len() - 1) / 4;
        let (_, quartile, _) = shares.select_nth_unstable_by(quartile, f64::total_cmp);
        quartile.min(sum.missing())
    }

    /// Whether the rounds since `verdict` began match.
    fn matches_again(&self, verdict: Verdict) -> bool {
        let recent = Sum::of(self.last(MATCHING));
        if self.rounds.len() < MATCHING || recent.has_more() {
            return false;
        }
        let is_idle = recent.sent.packets == 0;
        let matches = match verdict.cause {
            // Foreign traffic has ended; nothing else can be decided without data.
            Cause::Unsent if is_idle => return recent.received.packets == 0,
            _ if is_idle => return false,
            Cause::Unsent | Cause::More => true,
            Cause::Bytes => !recent.differs_in_size(),
            Cause::Nothing | Cause::Merged | Cause::Share => recent.missing() < verdict.missing / 2.0,
        };
        let all = Sum::of(self.rounds.iter());
        matches
            || all.probes > FEW_PROBES
                && verdict.cause == Cause::Share
                && at_most(all.lost_probes, all.probes, all.missing().max(0.0)) > LIKELY
    }
}

/// Sums over rounds.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    sent: Passed,
    received: Passed,
    probes: u64,
    lost_probes: u64,
}

impl Sum {
    fn of<'a>(rounds: impl Iterator<Item = &'a Round>) -> Self {
        rounds.fold(Self::default(), |sum, round| Self {
            sent: add(sum.sent, round.sent),
            received: add(sum.received, round.received),
            probes: sum.probes + u64::from(round.lost) + 1,
            lost_probes: sum.lost_probes + u64::from(round.lost),
        })
    }

    fn lost(&self) -> f64 {
        self.sent.packets as f64 - self.received.packets as f64
    }

    fn missing(&self) -> f64 {
        self.lost() / self.sent.packets.max(1) as f64
    }

    fn has_more(&self) -> bool {
        self.received.packets as f64 > self.sent.packets as f64 * (1.0 + SIZE_SHARE) + FEW_PACKETS as f64
    }

    fn missing_bytes(&self) -> f64 {
        self.sent.bytes as f64 - self.received.bytes as f64
    }

    fn is_merged(&self) -> bool {
        let missing = self.missing();
        let bytes = self.missing_bytes() / self.sent.bytes.max(1) as f64;
        self.lost() >= MERGED_PACKETS as f64 && missing > MERGED_SHARE && bytes < missing / 4.0
    }

    fn differs_in_size(&self) -> bool {
        let explained = SIZE_SHARE * self.sent.bytes as f64 + LARGEST_PACKET * self.lost().abs();
        self.missing_bytes().abs() > explained
    }
}

fn add(a: Passed, b: Passed) -> Passed {
    Passed { packets: a.packets.saturating_add(b.packets), bytes: a.bytes.saturating_add(b.bytes) }
}

/// What passed from one point to another; none when the counters have restarted.
fn advance(from: &Counters, to: &Counters) -> Option<Passed> {
    let step = |from: u64, to: u64| {
        let step = to.wrapping_sub(from);
        (step < 1 << 63).then_some(step)
    };
    let (packets, bytes) = (step(from.packets, to.packets)?, step(from.bytes, to.bytes)?);
    step(from.time.as_nanos(), to.time.as_nanos()).map(|_| Passed { packets, bytes })
}

/// P(at most `k` of `n` are lost when each is with `p`).
fn at_most(k: u64, n: u64, p: f64) -> f64 {
    if k as f64 >= n as f64 * p {
        return 1.0;
    }
    if p >= 1.0 {
        return 0.0;
    }
    // The terms rise up to k: from there down.
    let ways: f64 = (1..=k).map(|i| libm::log((n - i + 1) as f64 / i as f64)).sum();
    let last = libm::exp(ways + k as f64 * libm::log(p) + (n - k) as f64 * libm::log(1.0 - p));
    let (mut term, mut sum) = (1.0, 1.0);
    for i in (1..=k).rev() {
        term *= i as f64 * (1.0 - p) / ((n - i + 1) as f64 * p);
        sum += term;
    }
    last * sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Stream;
    use crate::time::Time;

    /// Two ends that count, round for round.
    #[derive(Default)]
    struct Ends {
        mismatch: Mismatch,
        seq: u16,
        sent: Passed,
        received: Passed,
    }

    impl Ends {
        /// So many packets of 1000 bytes sent and received; whether the probe comes back.
        fn round(&mut self, sent: u64, received: u64, is_answered: bool) -> Option<Cause> {
            self.sized((sent, sent * 1000), (received, received * 1000), is_answered)
        }

        fn sized(&mut self, sent: (u64, u64), received: (u64, u64), is_answered: bool) -> Option<Cause> {
            self.sent = add(self.sent, Passed { packets: sent.0, bytes: sent.1 });
            self.received = add(self.received, Passed { packets: received.0, bytes: received.1 });
            self.seq += 1;
            let time = Time::from_nanos(u64::from(self.seq) * 1_000_000_000);
            let at = |passed: Passed| Counters { packets: passed.packets, bytes: passed.bytes, time };
            self.mismatch.on_sent(Seq::new(self.seq), at(self.sent));
            if is_answered {
                self.mismatch.on_answer(Seq::new(self.seq), at(self.received));
            }
            self.mismatch.verdict().map(|verdict| verdict.cause)
        }

        /// Rounds until the verdict is `wanted`.
        fn until(&mut self, wanted: Option<Cause>, sent: u64, received: u64) -> usize {
            (1..200).find(|_| self.round(sent, received, true) == wanted).expect("in 200 rounds")
        }
    }

    /// By hand: .7^10 = 0.0282; of 20 with .3 at most 2: .7^20 + 20 .3 .7^19 + 190 .09 .7^18 = 0.0355.
    #[test]
    fn chances_are_those_of_the_binomial() {
        let near = |a: f64, b: f64| assert!((a / b - 1.0).abs() < 1e-3, "{a} {b}");
        near(at_most(0, 10, 0.3), 0.028_248);
        near(at_most(2, 20, 0.3), 0.035_483);
        assert_eq!((at_most(3, 10, 0.3), at_most(1, 10, 1.0), at_most(0, 5, 0.0)), (1.0, 0.0, 1.0));
        let direct = |k: u64, n: u64, p: f64| -> f64 {
            let mut ways = 1.0;
            let mut sum = 0.0;
            for i in 0..=k {
                sum += ways * p.powi(i as i32) * (1.0 - p).powi((n - i) as i32);
                ways = ways * (n - i) as f64 / (i + 1) as f64;
            }
            sum
        };
        for (k, n, p) in [(5, 100, 0.1), (40, 600, 0.1), (1, 30, 0.5), (90, 600, 0.2)] {
            near(at_most(k, n, p), direct(k, n, p));
        }
    }

    #[test]
    fn what_is_not_counted_at_all_is_found_in_three_rounds_and_forgotten_in_five() {
        let mut ends = Ends::default();
        assert_eq!((ends.round(50, 50, true), ends.round(50, 50, true)), (None, None));
        assert_eq!(ends.until(Some(Cause::Nothing), 50, 0), 3);
        assert!((0..100).all(|_| ends.round(0, 0, true) == Some(Cause::Nothing)), "silence tells nothing");
        assert_eq!(ends.until(None, 50, 50), MATCHING);
        assert_eq!(ends.until(Some(Cause::Nothing), 4, 0), 3, "rounds of 4 packets: 12 of 10");
        assert_eq!(ends.until(None, 4, 4), MATCHING);
        assert_eq!(ends.until(Some(Cause::Nothing), 2, 0), 5);
    }

    #[test]
    fn what_is_counted_but_not_sent_is_found_and_ends_with_it() {
        let mut ends = Ends::default();
        ends.round(50, 50, true);
        assert_eq!(ends.until(Some(Cause::Unsent), 0, 20), 3);
        assert_eq!(ends.until(None, 0, 0), MATCHING);
        for _ in 0..40 {
            ends.round(50, 50, true);
        }
        assert_eq!(ends.until(Some(Cause::More), 50, 75), 3);
        assert_eq!(ends.until(None, 50, 50), MATCHING);
    }

    /// Probes that overtake a queue: what stood in it comes later, and was missing before.
    #[test]
    fn a_queue_that_empties_is_no_mismatch() {
        let mut ends = Ends::default();
        for _ in 0..40 {
            assert_eq!(ends.round(100, 100, true), None);
        }
        for received in [20, 20, 20, 20, 20] {
            assert_eq!(ends.round(100, received, true), None);
        }
        for _ in 0..10 {
            assert_eq!(ends.round(20, 60, true), None);
        }
    }

    /// The first round is cut by what begins in it: 95 % are missing, then all.
    #[test]
    fn what_begins_within_a_round_has_the_same_cause() {
        let mut ends = Ends::default();
        ends.round(40, 40, true);
        ends.round(40, 2, true);
        assert_eq!(ends.until(Some(Cause::Nothing), 40, 0), 3);
    }

    /// Half is IPv6 that nobody counts: .5^10 < 10^-3; 30 %: .7^20 < 10^-3.
    #[test]
    fn a_share_is_told_from_losses_by_probes_that_are_not_lost() {
        let mut ends = Ends::default();
        for _ in 0..700 {
            assert_eq!(ends.round(100, 100, true), None);
        }
        assert_eq!(ends.until(Some(Cause::Share), 100, 50), 10);
        assert!((ends.mismatch.verdict().expect("one").missing - 0.5).abs() < 1e-9);
        assert_eq!(ends.until(None, 100, 100), MATCHING);
        assert_eq!(ends.until(Some(Cause::Share), 100, 70), 20);
        assert_eq!(ends.until(None, 100, 90), MATCHING);
    }

    /// A full queue loses packets in some rounds, half of them in each; probes come through.
    #[test]
    fn losses_of_a_full_queue_are_no_mismatch() {
        let mut ends = Ends::default();
        for round in 0..2000 {
            let received = if round % 3 == 0 { 50 } else { 100 };
            assert_eq!(ends.round(100, received, true), None);
        }
    }

    /// Twenty packets of 1500 bytes become one; or each end counts other headers.
    #[test]
    fn merged_packets_and_other_sizes_are_told_by_their_bytes() {
        let mut ends = Ends::default();
        ends.sized((100, 150_000), (100, 150_000), true);
        let merged = (0..10).find_map(|_| ends.sized((100, 150_000), (5, 144_000), true));
        assert_eq!(merged, Some(Cause::Merged));
        let mut ends = Ends::default();
        let headers = (0..30).find_map(|_| ends.sized((100, 20_000), (100, 24_000), true));
        assert_eq!(headers, Some(Cause::Bytes));
        // Large packets are lost more often than small ones.
        let mut ends = Ends::default();
        for _ in 0..700 {
            assert_eq!(ends.sized((100, 78_000), (95, 70_500), false), None);
            assert_eq!(ends.sized((100, 78_000), (95, 70_500), true), None);
        }
    }

    /// Data bypasses the classes for a round now and then, and the gateway that finds out restarts its counts.
    #[test]
    fn rounds_of_other_counters_do_not_add_up() {
        let mut ends = Ends::default();
        for _ in 0..10 {
            assert_eq!(ends.round(0, 0, true), None);
            assert_eq!(ends.round(500, 500, true), None);
            assert_eq!(ends.round(0, 50, true), None);
            assert_eq!(ends.round(0, 50, true), None);
            ends.sent = Passed::default();
        }
    }

    /// A restart at either end, and a counter that wraps.
    #[test]
    fn counters_that_begin_anew_are_no_mismatch() {
        let mut ends = Ends::default();
        for _ in 0..20 {
            assert_eq!(ends.round(100, 100, true), None);
            ends.received = Passed::default();
            assert_eq!(ends.round(100, 0, true), None);
            ends.sent = Passed { packets: u64::MAX - 150, bytes: u64::MAX - 2000 };
        }
    }

    /// Days of 86,400 rounds at random losses of data and probes alike.
    fn days(loss: f64, packets: u64, rounds: u32) -> u32 {
        let mut random = Stream::new(7, 0, "mismatch");
        let mut ends = Ends::default();
        let mut alarms = 0;
        for _ in 0..rounds {
            let received = (0..packets).filter(|_| !random.chance(loss)).count() as u64;
            let is_answered = !random.chance(loss);
            let was = ends.mismatch.verdict().is_some();
            let is = ends.round(packets, received, is_answered).is_some();
            alarms += u32::from(is && !was);
            ends.seq %= 60_000;
        }
        alarms
    }

    /// The return path loses nothing here, which is the worst case.
    #[test]
    fn random_loss_is_no_mismatch() {
        let rounds = 10_000;
        for (loss, packets) in [(0.01, 40), (0.05, 100), (0.1, 12), (0.1, 40), (0.1, 200)] {
            assert_eq!(days(loss, packets, rounds), 0, "{loss} of {packets} packets");
        }
    }
}
