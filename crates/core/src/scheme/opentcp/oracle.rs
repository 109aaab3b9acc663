//! The Oracle: collects statistics, evaluates the policies each cycle, sends CUEs.

use std::collections::{BTreeMap, BTreeSet};

use super::condition::Values;
use super::policy::{Otherwise, Policy, Rule};
use super::statistic::{Source, State};
use super::switch::Schedule;
use super::wire::{self, Body, Cue, HostReport, SwitchReport};
use crate::control::{Action, Controller, Gauges, Message, Observation, Outbox, Wakeup};
use crate::id::NodeId;
use crate::scheme::World;
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
    /// Nodes that ought to report.
    expected: usize,
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
    /// `agents` in the order of the network; `switches` are those of `world` that report.
    pub fn new(
        policies: Vec<Policy>,
        world: &World,
        agents: &[NodeId],
        switches: &[NodeId],
        cycle: Span,
    ) -> Self {
        let name = |node: NodeId| world.nodes.get(node.index()).cloned().unwrap_or_default();
        let entry = |(position, &node): (usize, &NodeId)| {
            let is_for = |policy: &Policy| policy.is_for(&name(node), position);
            let of = policies.iter().enumerate().filter(|(_, policy)| is_for(policy)).map(|(at, _)| at);
            AgentEntry { node, policies: of.collect() }
        };
        let entries = agents.iter().enumerate().map(entry).collect();
        let mut ports: BTreeMap<NodeId, Vec<String>> =
            switches.iter().map(|node| (*node, Vec::new())).collect();
        for port in &world.ports {
            if let Some(ports) = ports.get_mut(&port.from) {
                ports.push(format!("{}->{}", name(port.from), name(port.to)));
            }
        }
        let hosts_report = policies.iter().any(|policy| policy.collects(Source::Host));
        let expected = switches.len() + if hosts_report { agents.len() } else { 0 };
        Self {
            cycle,
            agents: entries,
            switches: ports,
            names: agents.iter().map(|node| (*node, name(*node))).collect(),
            expected,
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

    /// What is known at `now`.
    pub fn state(&self, now: Time) -> State {
        let fresh = |at: &Time| now.since(*at) <= self.cycle * STALE_CYCLES;
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
        let coverage = if self.expected == 0 { 1.0 } else { heard as f64 / self.expected as f64 };
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
        for agent in &self.agents {
            let (decision, bytes) = decisions.entry(&agent.policies).or_insert_with(|| {
                let decision = combine(&self.policies, &fired, &agent.policies);
                let bytes = cue(&decision, epoch, sequence).map(|cue| wire::encode(&Body::Cue(cue)));
                (decision, bytes)
            });
            let Some(bytes) = bytes else { continue };
            if decision.lease.is_some() {
                self.cued.insert(agent.node);
                self.leased += 1;
            } else if !self.cued.remove(&agent.node) {
                continue;
            }
            let message = Message::Encoded(bytes.clone());
            out.push(Action::Send { to: agent.node, message, reason: "CUE" });
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
            Observation::Message(Message::Encoded(bytes)) => match wire::decode(bytes) {
                Some(Body::Host(report)) if self.names.contains_key(&NodeId(report.node)) => {
                    self.hosts_heard.insert(NodeId(report.node), (now, report));
                }
                Some(Body::Switch(report)) => {
                    let node = NodeId(report.node);
                    if let Some(ports) = self.switches.get(&node)
                        && report.first as usize + report.covered as usize <= ports.len()
                    {
                        self.switches_heard.insert((node, report.first), (now, report));
                    }
                }
                _ => {}
            },
            _ => {}
        }
    }

    fn wakeup(&self) -> Option<Wakeup> {
        Some(Wakeup { at: self.schedule.next, why: "cycle" })
    }

    fn gauges(&self, gauges: &mut Gauges) {
        gauges.show("coverage", self.coverage);
        gauges.show("cued", self.leased as f64);
    }
}
