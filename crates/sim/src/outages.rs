//! Links and nodes that are down, and when routes learn of it.

use std::collections::BTreeMap;

use bandmaster_core::outages::{self, Part, Turn};
use bandmaster_core::rng::{SpanDraw, Stream};
use bandmaster_core::scenario::Scenario;
use bandmaster_core::time::{Span, Time};
use bandmaster_core::topology::Topology;

/// The outages of a trial.
pub(crate) struct Outages {
    turns: Vec<Turn>,
    /// By link, and by node: it is down itself. Empty when nothing fails.
    links: Vec<bool>,
    nodes: Vec<bool>,
    /// By link: since when it is down, by itself or by a node; none: it is up.
    since: Vec<Option<Time>>,
    /// By link: routes leave it out.
    avoided: Vec<bool>,
    /// Links whose state routes learn at a time.
    learning: BTreeMap<Time, Vec<u32>>,
    reroute: SpanDraw,
    stream: Stream,
    /// Time that links were down and are up again, over all links.
    downtime: Span,
    /// How often routes were computed again.
    pub(crate) reroutes: u64,
}

impl Outages {
    pub(crate) fn new(scenario: &Scenario, trial: u32) -> Self {
        let turns = outages::turns(scenario, trial);
        let room = |of: usize| if turns.is_empty() { 0 } else { of };
        let (links, nodes) = (room(scenario.topology.links.len()), room(scenario.topology.nodes.len()));
        Self {
            turns,
            links: vec![false; links],
            nodes: vec![false; nodes],
            since: vec![None; links],
            avoided: vec![false; links],
            learning: BTreeMap::new(),
            reroute: scenario.faults.reroute,
            stream: Stream::new(scenario.run.seed, trial, "faults/reroute"),
            downtime: Span::ZERO,
            reroutes: 0,
        }
    }

    /// When what goes down or comes up, by time.
    pub(crate) fn turns(&self) -> &[Turn] {
        &self.turns
    }

    /// Turn `number` happens: the links that go down now, or come up now.
    pub(crate) fn turn(&mut self, number: usize, topology: &Topology) -> Vec<u32> {
        let Turn { at, part, is_down } = self.turns[number];
        match part {
            Part::Link(link) => self.links[link as usize] = is_down,
            Part::Node(node) => self.nodes[node.index()] = is_down,
        }
        let mut links = part.links(topology);
        // Another reason may keep a link down.
        links.retain(|&link| {
            let ends = &topology.links[link as usize];
            let own = self.links[link as usize];
            let stays_down = own || self.nodes[ends.a.index()] || self.nodes[ends.b.index()];
            let since = &mut self.since[link as usize];
            match (since.is_some(), stays_down) {
                (false, true) => *since = Some(at),
                (true, false) => self.downtime += at.since(since.take().unwrap_or(at)),
                (false, false) | (true, true) => return false,
            }
            true
        });
        links
    }

    /// Whether a link is down.
    pub(crate) fn is_down(&self, link: u32) -> bool {
        self.since[link as usize].is_some()
    }

    /// `links` have changed at `now`: when routes learn of it, if that is no time at which they learn of others.
    pub(crate) fn learn_later(&mut self, now: Time, links: &[u32]) -> Option<Time> {
        let at = now + self.reroute.draw(&mut self.stream);
        let is_first = !self.learning.contains_key(&at);
        self.learning.entry(at).or_default().extend(links);
        is_first.then_some(at)
    }

    /// Routes learn the state of `links` without delay.
    pub(crate) fn learn_at_once(&mut self, links: &[u32]) {
        for &link in links {
            self.avoided[link as usize] = self.is_down(link);
        }
    }

    /// Routes learn now the state of the links that have changed for so long. True when it is another than they knew.
    pub(crate) fn learn(&mut self, now: Time) -> bool {
        let mut changes = false;
        for link in self.learning.remove(&now).unwrap_or_default() {
            let is_down = self.is_down(link);
            changes |= std::mem::replace(&mut self.avoided[link as usize], is_down) != is_down;
        }
        changes
    }

    /// By link: routes leave it out.
    pub(crate) fn avoided(&self) -> &[bool] {
        &self.avoided
    }

    /// Time that links have been down until `now`, over all links.
    pub(crate) fn downtime(&self, now: Time) -> Span {
        self.since.iter().flatten().fold(self.downtime, |sum, since| sum + now.since(*since))
    }
}

#[cfg(test)]
mod tests {
    use bandmaster_core::scenario::{Options, parse};

    use super::*;

    /// Links 0 and 1 lead from the hosts to the hub.
    fn outages(faults: &str) -> (Outages, Topology) {
        let text = format!(
            "version = 1\nname = \"t\"\n[run]\nduration = \"10s\"\n[network]\nbuilder = \"star\"\nsize = 2\n\
             [network.link]\nrate = \"1mbit\"\n[[flows]]\nname = \"f\"\nfrom = \"hosts.0\"\nto = \"hosts.1\"\n{faults}"
        );
        let mut study = parse("t.toml", &text, &Options::default()).unwrap_or_else(|e| panic!("{e}"));
        let scenario = study.cases.remove(0).scenario;
        (Outages::new(&scenario, 0), scenario.topology)
    }

    fn at(seconds: u64) -> Time {
        Time::ZERO + Span::from_secs(seconds)
    }

    /// The hub is down from 1 s to 4 s, link 0 by itself from 2 s to 6 s.
    #[test]
    fn a_link_is_down_for_any_reason_and_counts_its_time_once() {
        let (mut outages, topology) = outages(
            "[[faults.links]]\nends = [\"hosts.0\", \"hub\"]\ndown = \"2s\"\nup = \"6s\"\n\
             [[faults.nodes]]\nnode = \"hub\"\ndown = \"1s\"\nup = \"4s\"\n",
        );
        let changed: Vec<Vec<u32>> = (0..4).map(|number| outages.turn(number, &topology)).collect();
        let expected: [Vec<u32>; 4] = [vec![0, 1], vec![], vec![1], vec![0]];
        assert_eq!(changed, expected);
        assert_eq!(outages.downtime(at(9)), Span::from_secs(5 + 3));
        assert!(!outages.is_down(0) && !outages.is_down(1));
    }

    /// Routes hear of each change a second later, and take a link as it is then.
    #[test]
    fn routes_learn_later_what_is_so_by_then() {
        let (mut outages, topology) = outages(
            "[faults]\nreroute = \"1s\"\n\
             [[faults.links]]\nends = [\"hosts.0\", \"hub\"]\ndown = [\"1s\", \"5s\"]\nup = [\"1500ms\"]\n",
        );
        let turn = |outages: &mut Outages, number: usize| {
            let now = outages.turns()[number].at;
            let links = outages.turn(number, &topology);
            outages.learn_later(now, &links)
        };
        assert_eq!(turn(&mut outages, 0), Some(at(2)));
        assert_eq!(turn(&mut outages, 1), Some(Time::from_nanos(2_500_000_000)));
        assert!(!outages.learn(at(2)), "it is up again");
        assert!(!outages.learn(Time::from_nanos(2_500_000_000)));
        assert_eq!(turn(&mut outages, 2), Some(at(6)));
        assert_eq!(outages.learn_later(at(5), &[1]), None, "with the other");
        assert!(outages.learn(at(6)));
        assert_eq!(outages.avoided(), [true, false]);
        assert!(!outages.learn(at(6)), "once");
    }
}
