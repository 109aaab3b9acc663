//! Incast: synchronised rounds of answers. A receiver's next round begins when the last byte of the one before has come.
//!
//! Persistent connections carry all rounds, and only the first of two sets of flow numbers is used. Otherwise every round
//! opens new connections, and the sets, which have the same ways, take turns: what a round left in the network has gone
//! before a connection of the same number opens.

use std::collections::BTreeMap;

use super::{FlowPlan, SETS};
use crate::id::NodeId;
use crate::rng::{SpanDraw, Stream};
use crate::scenario::{Scenario, Transport};
use crate::time::{Span, Time};

/// The rounds of every receiver; empty when no flow has any.
#[derive(Default)]
pub struct Rounds {
    series: Vec<RoundSeries>,
    /// By flow: position in `series`; only first flows of connections are in it.
    of_flow: BTreeMap<u32, u32>,
    /// By flow: payload that earlier connections of the same number have delivered, and when this one began.
    carried: BTreeMap<u32, (u64, Time)>,
    /// Completion times of the connections of rounds.
    pub completions: Vec<Span>,
    /// Series whose round is over, and when, where somebody else begins the next.
    over: Option<Vec<(u32, Time)>>,
}

/// One receiver's rounds.
struct RoundSeries {
    /// Per set: every connection's first flow, and whether it starts with the one before.
    flows: [Vec<(u32, bool)>; SETS as usize],
    rounds: u32,
    /// All rounds go over the first set; what each connection carries in a round.
    persistent: bool,
    size: u64,
    bytes: u64,
    start: SpanDraw,
    stream: Stream,
    /// Rounds started, start of the current round, and its unfinished connections.
    begun: u32,
    at: Time,
    left: usize,
    /// A connection of the current round has failed.
    broken: bool,
    times: Vec<Span>,
}

impl Rounds {
    /// None has begun.
    pub fn new(plans: &[FlowPlan], scenario: &Scenario, trial: u32) -> Self {
        let mut rounds = Self::default();
        let mut known: BTreeMap<(usize, NodeId), u32> = BTreeMap::new();
        for (i, plan) in plans.iter().enumerate() {
            let group = plan.group(&scenario.flows);
            let Transport::Tcp { size: Some(size), .. } = &group.transport else { continue };
            let Some(times) = group.rounds else { continue };
            if plan.subflow(&scenario.flows) > 0 {
                continue;
            }
            let at = *known.entry((plan.group_index(), plan.dst)).or_insert_with(|| {
                let name =
                    format!("rounds/{}/{}", group.name, scenario.topology.nodes[plan.dst.index()].name);
                rounds.series.push(RoundSeries {
                    flows: Default::default(),
                    rounds: times,
                    persistent: group.persistent,
                    size: size.get(),
                    bytes: 0,
                    start: group.start,
                    stream: Stream::new(scenario.run.seed, trial, &name),
                    begun: 0,
                    at: Time::ZERO,
                    left: 0,
                    broken: false,
                    times: Vec::new(),
                });
                (rounds.series.len() - 1) as u32
            });
            let series = &mut rounds.series[at as usize];
            let set = plan.set();
            let before = series.flows[set].last().map(|&(flow, _)| plans[flow as usize].src);
            series.flows[set].push((i as u32, group.starts_together && before == Some(plan.src)));
            series.bytes += if set == 0 { size.get() } else { 0 };
            rounds.of_flow.insert(i as u32, at);
        }
        rounds
    }

    /// No flow has any.
    pub fn is_empty(&self) -> bool {
        self.series.is_empty()
    }

    /// Begins every receiver's first round: the connections that start, and when.
    pub fn begin(&mut self, mut start: impl FnMut(Time, u32)) {
        self.series.iter_mut().for_each(|series| series.begin(Time::ZERO, &mut start));
    }

    /// From now on somebody else begins the rounds that follow.
    pub fn hold(&mut self) {
        self.over = Some(Vec::new());
    }

    /// Held series whose round is over, and when.
    pub fn take_over(&mut self) -> Vec<(u32, Time)> {
        self.over.as_mut().map_or_else(Vec::new, std::mem::take)
    }

    /// The next round of a held series begins at `now`: the connections that start, and when.
    pub fn begin_series(&mut self, series: u32, now: Time, mut start: impl FnMut(Time, u32)) {
        self.series[series as usize].begin(now, &mut start);
    }

    /// Takes over what another part of the same run has seen; `is_of` tells the flows that it has the receivers of.
    pub fn absorb(&mut self, other: &mut Self, is_of: impl Fn(u32) -> bool) {
        self.completions.append(&mut other.completions);
        for (own, other) in self.series.iter_mut().zip(&mut other.series) {
            own.times.append(&mut other.times);
        }
        self.carried.extend(other.carried.iter().filter(|(flow, _)| is_of(**flow)));
    }

    /// The connection that begins with `flow` is opened at `now`; the one that had its number had delivered so much.
    pub fn open(&mut self, flow: u32, delivered: u64, now: Time) {
        if self.of_flow.contains_key(&flow) {
            let entry = self.carried.entry(flow).or_default();
            *entry = (entry.0 + delivered, now);
        }
    }

    /// Payload that earlier connections with this number have delivered.
    pub fn carried(&self, flow: u32) -> u64 {
        self.carried.get(&flow).map_or(0, |entry| entry.0)
    }

    /// When the connection that begins with `flow` was opened.
    pub fn begun(&self, flow: u32) -> Option<Time> {
        self.carried.get(&flow).map(|entry| entry.1)
    }

    /// Whether the connection that begins with `flow` is one of rounds.
    pub fn contains(&self, flow: u32) -> bool {
        self.of_flow.contains_key(&flow)
    }

    /// On a persistent connection: what it has to deliver up to the end of the round, and whether that is the last one.
    pub fn target(&self, flow: u32) -> Option<(u64, bool)> {
        let series = &self.series[*self.of_flow.get(&flow)? as usize];
        let target = u64::from(series.begun) * series.size;
        series.persistent.then_some((target, series.begun == series.rounds))
    }

    /// The last byte of the connection that begins with `flow` has come. When it is the round's last, the next one begins:
    /// the connections that start, and when.
    pub fn complete(&mut self, flow: u32, now: Time, start: impl FnMut(Time, u32)) {
        let Some(&at) = self.of_flow.get(&flow) else { return };
        self.completions.push(now.since(self.carried.get(&flow).map_or(now, |entry| entry.1)));
        self.part_is_over(at, now, start);
    }

    /// The connection that begins with `flow` has failed. Its round goes on without it, and does not count.
    pub fn fail(&mut self, flow: u32, now: Time, start: impl FnMut(Time, u32)) {
        let Some(&at) = self.of_flow.get(&flow) else { return };
        self.series[at as usize].broken = true;
        self.part_is_over(at, now, start);
    }

    fn part_is_over(&mut self, at: u32, now: Time, mut start: impl FnMut(Time, u32)) {
        let series = &mut self.series[at as usize];
        if series.part_is_over(now) {
            match &mut self.over {
                Some(over) => over.push((at, now)),
                None => series.begin(now, &mut start),
            }
        }
    }

    /// Complete rounds, their mean and longest time in seconds, and payload of a receiver over time in Mbit/s; `others`
    /// are times and payloads of rounds of exchanges.
    pub fn metrics(&self, others: impl Iterator<Item = (Span, u64)>) -> [f64; 4] {
        let mut times: Vec<f64> =
            self.series.iter().flat_map(|s| &s.times).map(|t| t.as_secs_f64()).collect();
        let mut payload: f64 = self.series.iter().map(|s| s.bytes as f64 * s.times.len() as f64).sum();
        for (time, bytes) in others {
            times.push(time.as_secs_f64());
            payload += bytes as f64;
        }
        let (n, sum) = (times.len() as f64, times.iter().sum::<f64>());
        let longest = times.iter().copied().fold(f64::NAN, f64::max);
        [n, sum / n, longest, payload * 8e-6 / sum]
    }
}

impl RoundSeries {
    /// True when that was the last of the round.
    fn part_is_over(&mut self, now: Time) -> bool {
        self.left -= 1;
        let is_over = self.left == 0;
        if is_over && !std::mem::take(&mut self.broken) {
            self.times.push(now.since(self.at));
        }
        is_over
    }

    fn begin(&mut self, now: Time, start: &mut impl FnMut(Time, u32)) {
        if self.begun == self.rounds {
            return;
        }
        let set = if self.persistent { 0 } else { self.begun % SETS };
        let flows = &self.flows[set as usize];
        self.begun += 1;
        self.at = now;
        self.left = flows.len();
        let mut after = Span::ZERO;
        for &(flow, joins) in flows {
            if !joins {
                after = self.start.draw(&mut self.stream);
            }
            start(now + after, flow);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{Options, parse};
    use crate::workload::plan;

    /// Two servers, three rounds: of the second a connection fails.
    #[test]
    fn a_round_goes_on_without_what_has_failed_and_does_not_count() {
        let text = "version = 1\nname = \"r\"\n[run]\nduration = \"9s\"\n[network]\nbuilder = \"star\"\nsize = 2\nhosts = [\"c\"]\n\
                    [network.link]\nrate = \"1mbit\"\n[[network.links]]\nends = [\"c\", \"hub\"]\n\
                    [[flows]]\nname = \"a\"\nfrom = \"hosts\"\nto = \"c\"\nsize = \"1kB\"\nrounds = 3\n";
        let study = parse("r.toml", text, &Options::default()).unwrap_or_else(|e| panic!("{e}"));
        let scenario = &study.cases[0].scenario;
        let plans = plan(&scenario.flows, &scenario.topology, &scenario.run, 0);
        let mut rounds = Rounds::new(&plans, scenario, 0);
        let (mut due, mut at) = (Vec::new(), Time::ZERO);
        rounds.begin(|_, flow| due.push(flow));
        let mut begun = 0;
        while let [first, second] = std::mem::take(&mut due)[..] {
            begun += 1;
            at += Span::from_secs(1);
            rounds.open(first, 0, at);
            rounds.open(second, 0, at);
            at += Span::from_secs(1);
            rounds.complete(first, at, |_, flow| due.push(flow));
            match begun {
                2 => rounds.fail(second, at, |_, flow| due.push(flow)),
                _ => rounds.complete(second, at, |_, flow| due.push(flow)),
            }
        }
        assert_eq!((begun, rounds.completions.len()), (3, 5));
        let [counted, mean, ..] = rounds.metrics(std::iter::empty());
        assert_eq!((counted, mean), (2.0, 2.0));
    }
}
