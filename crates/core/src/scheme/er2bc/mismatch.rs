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
//! | [`Share`](Cause::Share) | of up to 600 rounds: P(at most k of n probes lost when each is with m) < 10^-3 up to 30 probes, 10^-6 beyond |
//!
//! There m is the share of packets that is missing: of all, or the lower quartile of rounds of at least 10 packets when that
//! is less, since losses of a full queue come in some rounds, and errors of counting in all. What is lost at random with equal
//! chance for data and probes gives no alarm: at 10 % one in 10^4 days or fewer (see the tests).

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
    /// Rounds since the last verdict began or ended, oldest first.
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
/// Less is not looked at.
const LEAST_SHARE: f64 = 0.02;
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

    /// Question `seq` leaves after `sent`.
    pub fn on_sent(&mut self, seq: Seq, sent: Counters) {
        let last = self.open.back().map(|(_, sent)| sent).or(self.base.as_ref().map(|(sent, _)| sent));
        if last.is_some_and(|last| advance(last, &sent).is_none()) {
            self.open.clear();
            self.base = None;
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
        let passed =
            base.and_then(|base| Some((advance(&base.0, &sent)?, advance(&base.1, &received)?)));
        let Some((sent, received)) = passed else { return false };
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
        let all = Sum::of(self.rounds.iter());
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
        let (missing, probes) = (self.share(&all), self.rounds.len() as u64 + all.lost_probes);
        let chance = CHANCE[usize::from(probes > FEW_PROBES)];
        let is_beyond = missing >= LEAST_SHARE && at_most(all.lost_probes, probes, missing) < chance;
        is_beyond.then_some(Verdict { cause: Cause::Share, missing })
    }

    /// Part that is missing when the last rounds, three at least, are all such, and of enough packets.
    fn unmatched(&self, such: impl Fn(&Round) -> bool, packets: impl Fn(&Sum) -> u64) -> Option<f64> {
        let run = self.rounds.iter().rev().take_while(|round| such(round)).count();
        let sum = Sum::of(self.last(run));
        (run >= FEW_ROUNDS && packets(&sum) >= FEW_PACKETS).then(|| sum.missing())
    }

    /// Part of the packets that is missing.
    fn share(&self, all: &Sum) -> f64 {
        let full = self.rounds.iter().filter(|round| round.sent.packets >= FEW_PACKETS);
        let mut shares: Vec<f64> = full.map(|round| Sum::of([round].into_iter()).missing()).collect();
        if shares.is_empty() {
            return 0.0;
        }
        let quartile = (shares.len() - 1) / 4;
        let (_, quartile, _) = shares.select_nth_unstable_by(quartile, f64::total_cmp);
        quartile.min(all.missing())
    }

    /// Whether the rounds since `verdict` began match.
    fn matches_again(&self, verdict: Verdict) -> bool {
        let recent = Sum::of(self.last(MATCHING));
        if self.rounds.len() < MATCHING || recent.has_more() {
            return false;
        }
        let is_idle = recent.sent.packets == 0;
        let matches = match verdict.cause {
            // What was not ours has ended; nothing else can be told without data.
            Cause::Unsent if is_idle => return recent.received.packets == 0,
            _ if is_idle => return false,
            Cause::Unsent | Cause::More => true,
            Cause::Bytes => !recent.differs_in_size(),
            Cause::Nothing | Cause::Merged | Cause::Share => recent.missing() < verdict.missing / 2.0,
        };
        let all = Sum::of(self.rounds.iter());
        let probes = self.rounds.len() as u64 + all.lost_probes;
        matches
            || probes > FEW_PROBES
                && verdict.cause == Cause::Share
                && at_most(all.lost_probes, probes, all.missing().max(0.0)) > LIKELY
    }
}

/// Sums over rounds.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    sent: Passed,
    received: Passed,
    lost_probes: u64,
}

impl Sum {
    fn of<'a>(rounds: impl Iterator<Item = &'a Round>) -> Self {
        rounds.fold(Self::default(), |sum, round| Self {
            sent: add(sum.sent, round.sent),
            received: add(sum.received, round.received),
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

/// What passed from one point to another; none when the counters have begun anew.
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
