//! The Oracle: collects statistics, evaluates the policies each cycle, sends CUEs.

use std::collections::{BTreeMap, BTreeSet};

use super::condition::Values;
use super::policy::{Otherwise, Policy, Rule};
use super::statistic::{Source, State};
use super::switch::Schedule;
use super::wire::{self, Body, Cue, HostReport, SwitchReport};
use super::{AGENT, SWITCH};
use crate::control::{self, Action, Controller, Gauges, Observation, Outbox};
use crate::id::NodeId;
use crate::runtime::inventory::Inventory;
use crate::scheme::Place;
use crate::time::{Span, Time};
use crate::tuning::Tuning;

/// Reports older than this many cycles are of no account.
const STALE_CYCLES: u64 = 2;

/// The role of the controller.
pub struct Oracle {
    policies: Vec<Policy>,
    cycle: Span,
    agents: Vec<AgentEntry>,
    /// Ports of each node that ought to report them, in its order, with their names.
    switches: BTreeMap<NodeId, Vec<String>>,
    names: BTreeMap<NodeId, String>,
    /// Agents ought to report.
    hosts_report: bool,
    /// Agents and switches that have gone.
    away: BTreeSet<NodeId>,
    hosts_heard: BTreeMap<NodeId, (Time, HostReport)>,
    switches_heard: BTreeMap<(NodeId, u32), (Time, SwitchReport)>,
    epoch: Option<u64>,
    sequence: u32,
    schedule: Schedule,
    /// Agents whose last CUE may still be in force.
    cued: BTreeSet<NodeId>,
    /// Agents that got one with a lease in the last cycle.
    leased: usize,
    coverage: f64,
}

/// An agent as the Oracle knows it.
struct AgentEntry {
    node: NodeId,
    /// Positions of the policies that are for it.
    policies: Vec<usize>,
}

/// What several policies say to one agent.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Decision {
    /// What to set: where policies differ, what the first says.
    pub tuning: Tuning,
    /// What the agent has to check.
    pub preconditions: Vec<String>,
    /// How long it is in force: the shortest lease.
    pub lease: Option<Span>,
    /// When nothing is set: tell the agent so.
    pub release: bool,
    /// Settings on which policies differ: policy that is not followed, and setting.
    pub conflicts: Vec<(String, &'static str)>,
}

impl Oracle {
    /// The Oracle at `place`.
    pub fn new(policies: Vec<Policy>, inventory: &Inventory, place: &Place, cycle: Span) -> Self {
        let agents: Vec<NodeId> = place.peers_in(&AGENT).collect();
        let name = |node: NodeId| inventory.name(node).to_owned();
        let entry = |(position, &node): (usize, &NodeId)| {
            let is_for = |policy: &Policy| policy.is_for(inventory.name(node), position);
            let of = policies.iter().enumerate().filter(|(_, policy)| is_for(policy)).map(|(at, _)| at);
            AgentEntry { node, policies: of.collect() }
        };
        let entries = agents.iter().enumerate().map(entry).collect();
        let mut switches: BTreeMap<NodeId, Vec<String>> =
            place.peers_in(&SWITCH).map(|node| (node, Vec::new())).collect();
        for (_, port) in inventory.ports() {
            if let Some(ports) = switches.get_mut(&port.from) {
                ports.push(format!("{}->{}", inventory.name(port.from), inventory.name(port.to)));
            }
        }
        Self {
            cycle,
            agents: entries,
            switches,
            names: agents.iter().map(|node| (*node, name(*node))).collect(),
            hosts_report: policies.iter().any(|policy| policy.collects(Source::Host)),
            away: BTreeSet::new(),
            hosts_heard: BTreeMap::new(),
            switches_heard: BTreeMap::new(),
            epoch: None,
            sequence: 0,
            schedule: Schedule::new(cycle, Span::ZERO),
            cued: BTreeSet::new(),
            leased: 0,
            coverage: 0.0,
            policies,
        }
    }

    /// Nodes that ought to report.
    fn expected(&self) -> usize {
        let here = |node: &&NodeId| !self.away.contains(node);
        let hosts = if self.hosts_report { self.names.keys().filter(here).count() } else { 0 };
        hosts + self.switches.keys().filter(here).count()
    }

    fn is_fresh(&self, now: Time, at: Time) -> bool {
        now.since(at) <= self.cycle * STALE_CYCLES
    }

    /// A report with the number `sequence` is newer than the `last` one, which came at a time and had a number. Numbers
    /// wrap (RFC 1982). A sender that restarts begins again at 0: its reports count once the last one is stale.
    fn is_news(&self, now: Time, last: Option<(Time, u32)>, sequence: u32) -> bool {
        last.is_none_or(|(at, last)| {
            let ahead = sequence.wrapping_sub(last);
            !self.is_fresh(now, at) || (1..1 << 31).contains(&ahead)
        })
    }

    /// What is known at `now`.
    pub fn state(&self, now: Time) -> State {
        let fresh = |at: &Time| self.is_fresh(now, *at);
        let hosts: Vec<_> = self
            .hosts_heard
            .iter()
            .filter(|(_, (at, _))| fresh(at))
            .map(|(node, (_, report))| report.state(self.names.get(node).cloned().unwrap_or_default()))
            .collect();
        let mut links = Vec::new();
        let mut switches = BTreeSet::new();
        for ((node, _), (_, report)) in self.switches_heard.iter().filter(|(_, (at, _))| fresh(at)) {
            let ports = &self.switches[node];
            links.extend(report.states(|place| ports.get(place as usize).cloned().unwrap_or_default()));
            switches.insert(*node);
        }
        let heard = hosts.len() + switches.len();
        let expected = self.expected();
        let coverage = if expected == 0 { 1.0 } else { heard as f64 / expected as f64 };
        State { coverage, links, hosts }
    }

    fn decide(&mut self, now: Time, out: &mut Outbox) {
        let state = self.state(now);
        self.coverage = state.coverage;
        let values = Values::of_network(&state);
        let fired: Vec<Option<&Rule>> = self.policies.iter().map(|policy| policy.decide(&values)).collect();
        let (Some(epoch), sequence) = (self.epoch, self.sequence) else { return };
        self.leased = 0;
        // Agents of the same policies get the same.
        let mut decisions: BTreeMap<&[usize], (Decision, Option<Vec<u8>>)> = BTreeMap::new();
        for agent in self.agents.iter().filter(|agent| !self.away.contains(&agent.node)) {
            let (decision, bytes) = decisions.entry(&agent.policies).or_insert_with(|| {
                let decision = combine(&self.policies, &fired, &agent.policies);
                let bytes = cue(&decision, epoch, sequence).map(|cue| control::body(&Body::Cue(cue)));
                (decision, bytes)
            });
            let Some(bytes) = bytes else { continue };
            if decision.lease.is_some() {
                self.cued.insert(agent.node);
                self.leased += 1;
            } else if !self.cued.remove(&agent.node) {
                continue;
            }
            out.push(Action::Send { to: agent.node, body: bytes.clone() });
        }
        self.sequence = self.sequence.wrapping_add(1);
    }
}

/// The CUE of a decision; none when there is nothing to say.
fn cue(decision: &Decision, epoch: u64, sequence: u32) -> Option<Cue> {
    let lease = match decision.lease {
        Some(lease) => u32::try_from(lease.as_nanos() / 1_000_000).unwrap_or(u32::MAX).max(1),
        None if decision.release => 0,
        None => return None,
    };
    let Decision { tuning, preconditions, .. } = decision;
    Some(Cue { epoch, sequence, lease, tuning: *tuning, preconditions: preconditions.clone() })
}

/// What the policies at places `of` say together, when these rules have fired.
pub fn combine(policies: &[Policy], fired: &[Option<&Rule>], of: &[usize]) -> Decision {
    let mut decision = Decision::default();
    for &at in of {
        let policy = &policies[at];
        let Some(rule) = fired[at] else {
            decision.release |= policy.otherwise == Otherwise::Release;
            continue;
        };
        let conflicts = decision.tuning.or(&rule.tuning);
        decision.conflicts.extend(conflicts.into_iter().map(|setting| (policy.name.clone(), setting)));
        for condition in &policy.preconditions {
            if !decision.preconditions.iter().any(|known| known == condition.text()) {
                decision.preconditions.push(condition.text().to_owned());
            }
        }
        decision.lease = Some(decision.lease.map_or(policy.lease, |lease| lease.min(policy.lease)));
    }
    decision
}

impl Controller for Oracle {
    fn on(&mut self, now: Time, observation: &Observation<'_>, out: &mut Outbox) {
        match observation {
            Observation::Tick { .. } => {
                if self.epoch.is_none() {
                    self.epoch = Some(now.as_nanos() / 1_000_000);
                } else {
                    self.decide(now, out);
                }
                self.schedule.advance(now);
            }
            Observation::Message(message) if !self.away.contains(&message.from) => {
                match wire::read(message) {
                    Some(Body::Host(report)) if self.names.contains_key(&message.from) => {
                        let last = self.hosts_heard.get(&message.from).map(|(at, last)| (*at, last.sequence));
                        if self.is_news(now, last, report.sequence) {
                            self.hosts_heard.insert(message.from, (now, report));
                        }
                    }
                    Some(Body::Switch(report)) => {
                        let node = message.from;
                        if let Some(ports) = self.switches.get(&node)
                            && u64::from(report.first) + u64::from(report.covered) <= ports.len() as u64
                        {
                            let key = (node, report.first);
                            let last = self.switches_heard.get(&key).map(|(at, last)| (*at, last.sequence));
                            if self.is_news(now, last, report.sequence) {
                                self.switches_heard.insert(key, (now, report));
                            }
                        }
                    }
                    _ => {}
                }
            }
            Observation::Left(node) => {
                self.away.insert(*node);
                self.cued.remove(node);
                self.hosts_heard.remove(node);
                self.switches_heard.retain(|(of, _), _| of != node);
            }
            Observation::Joined(node) => {
                self.away.remove(node);
            }
            _ => {}
        }
    }

    fn wakeup(&self) -> Option<Time> {
        Some(self.schedule.next)
    }

    fn gauges(&self, gauges: &mut Gauges) {
        gauges.show("coverage", self.coverage);
        gauges.show("cued", self.leased as f64);
    }
}
