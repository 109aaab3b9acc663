//! Links and nodes that go down and come up again, at stated times or after drawn ones.

use crate::id::{NodeId, PortId};
use crate::rng::{SpanDraw, Stream};
use crate::scenario::Scenario;
use crate::time::Time;
use crate::topology::Topology;

/// What may go down.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Part {
    /// A link in both directions, by its position in the topology.
    Link(u32),
    /// A node, and with it all its links.
    Node(NodeId),
}

impl Part {
    /// Its links, by position in the topology.
    pub fn links(self, topology: &Topology) -> Vec<u32> {
        match self {
            Self::Link(link) => vec![link],
            Self::Node(node) => {
                let own = (0..).zip(&topology.links).filter(|(_, link)| link.a == node || link.b == node);
                own.map(|(number, _)| number).collect()
            }
        }
    }

    /// Name of its random stream.
    fn stream(self, topology: &Topology) -> String {
        match self {
            Self::Link(link) => format!("faults/link/{}", topology.port_name(PortId(2 * link))),
            Self::Node(node) => format!("faults/node/{}", topology.nodes[node.index()].name),
        }
    }
}

/// A part of the network, and when it is down. Every part has one entry at most.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Outage {
    /// Which.
    pub part: Part,
    /// When.
    pub times: Times,
}

/// When a part of the network goes down and comes up.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
#[serde(rename_all = "lowercase", tag = "kind")]
pub enum Times {
    /// At stated times, never decreasing: down at the first, up at the second, and so on.
    Stated {
        /// The times.
        turns: Vec<Time>,
    },
    /// Up for a drawn time, then down for a drawn time, and so on.
    Drawn {
        /// Time to failure.
        failure: SpanDraw,
        /// Time to repair.
        repair: SpanDraw,
    },
}

/// A part of the network goes down or comes up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Turn {
    /// When.
    pub at: Time,
    /// Which.
    pub part: Part,
    /// It goes down.
    pub is_down: bool,
}

/// Everything that goes down and comes up in a trial, by time, then in the order of the scenario.
pub fn turns(scenario: &Scenario, trial: u32) -> Vec<Turn> {
    let end = Time::ZERO + scenario.run.duration;
    let mut all = Vec::new();
    for Outage { part, times } in &scenario.faults.outages {
        let part = *part;
        let mut is_down = false;
        let mut turn = |at: Time| {
            is_down = !is_down;
            all.push(Turn { at, part, is_down });
        };
        match times {
            Times::Stated { turns } => turns.iter().copied().for_each(&mut turn),
            Times::Drawn { failure, repair } => {
                let name = part.stream(&scenario.topology);
                let mut stream = Stream::new(scenario.run.seed, trial, &name);
                let mut at = Time::ZERO;
                for draw in [failure, repair].into_iter().cycle() {
                    at += draw.draw(&mut stream);
                    if at > end {
                        break;
                    }
                    turn(at);
                }
            }
        }
    }
    // Stable: a part that is down for no time goes down first.
    all.sort_by_key(|turn| turn.at);
    all
}

/// More than a trial has [`turns`], but for one trial in a billion.
pub fn most_turns(scenario: &Scenario) -> u64 {
    let most = |outage: &Outage| match &outage.times {
        Times::Stated { turns } => turns.len() as u64,
        Times::Drawn { failure, repair } => {
            let cycle = (failure.mean() + repair.mean()).max(1e-9);
            let expected = scenario.run.duration.as_secs_f64() / cycle;
            // Six standard deviations of a Poisson process; no draw is less regular than that.
            2 * (expected + 6.0 * expected.sqrt() + 10.0) as u64
        }
    };
    scenario.faults.outages.iter().map(most).fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{Options, parse};
    use crate::time::Span;

    fn scenario(faults: &str) -> Scenario {
        let text = format!(
            "version = 1\nname = \"t\"\n[run]\nduration = \"1000s\"\n[network]\nbuilder = \"star\"\nsize = 3\n\
             [network.link]\nrate = \"1mbit\"\n[[flows]]\nname = \"f\"\nfrom = \"hosts.0\"\nto = \"hosts.1\"\n{faults}"
        );
        parse("t.toml", &text, &Options::default()).unwrap_or_else(|e| panic!("{e}")).cases.remove(0).scenario
    }

    fn at(seconds: u64) -> Time {
        Time::ZERO + Span::from_secs(seconds)
    }

    #[test]
    fn stated_turns_come_by_time_and_nodes_have_all_their_links() {
        let scenario = scenario(
            "[[faults.nodes]]\nnode = \"hub\"\ndown = [\"9s\", \"2s\"]\nup = [\"3s\"]\n\
             [[faults.links]]\nends = [\"hub\", \"hosts.1\"]\ndown = \"1s\"\nup = \"9s\"\n",
        );
        let hub = Part::Node(scenario.topology.node("hub").expect("a node"));
        let turn = |at, part, is_down| Turn { at, part, is_down };
        let expected = [
            turn(at(1), Part::Link(1), true),
            turn(at(2), hub, true),
            turn(at(3), hub, false),
            turn(at(9), Part::Link(1), false),
            turn(at(9), hub, true),
        ];
        assert_eq!(turns(&scenario, 0), expected);
        assert_eq!((hub.links(&scenario.topology), most_turns(&scenario)), (vec![0, 1, 2], 5));
    }

    /// Of 1000 s, exponential times of 8 s and 2 s give 100 failures, with a standard deviation of less than 10, and a fifth of
    /// the time down: 200 s, with one of sqrt(100) sqrt(0.8^2 2^2 + 0.2^2 8^2) = 23 s.
    #[test]
    fn drawn_turns_have_the_stated_means_and_streams_of_their_own() {
        let drawn = "time-to-failure = \"exponential(8s)\"\ntime-to-repair = \"exponential(2s)\"\n";
        let one = format!("[[faults.links]]\nends = [\"hosts.0\", \"hub\"]\n{drawn}");
        let scenario_of_one = scenario(&one);
        let all = turns(&scenario_of_one, 0);
        assert!((120..=280).contains(&all.len()) && all.len() as u64 <= most_turns(&scenario_of_one));
        assert!(all.windows(2).all(|pair| pair[0].at <= pair[1].at && pair[0].is_down != pair[1].is_down));
        let down: f64 = all.chunks_exact(2).map(|pair| pair[1].at.since(pair[0].at).as_secs_f64()).sum();
        assert!((108.0..292.0).contains(&down), "{down}");
        assert_eq!(turns(&scenario_of_one, 0), all);
        assert_ne!(turns(&scenario_of_one, 1), all);
        let both = format!("[[faults.nodes]]\nnode = \"hub\"\n{drawn}{one}");
        let of_link: Vec<Turn> =
            turns(&scenario(&both), 0).into_iter().filter(|turn| turn.part == Part::Link(0)).collect();
        assert_eq!(of_link, all, "another part changes nothing");
    }
}
