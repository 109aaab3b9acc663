//! The Oracle: collects statistics, evaluates the policies each cycle, sends CUEs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::condition::{Use, Values};
use super::policy::{Otherwise, Policy, Rule};
use super::statistic::{PairState, Source, State, Statistic, TRAFFIC_HOSTS, TRAFFIC_RACKS};
use super::switch::Schedule;
use super::wire::{self, Body, Columns, Cue, HostReport, Origin, PortLink, SwitchReport};
use super::{AGENT, SWITCH, topology};
use crate::by_node::ByNode;
use crate::control::{self, Action, Controller, Gauges, Observation, Outbox, Refusal, Subject};
use crate::id::NodeId;
use crate::rng::Fnv;
use crate::runtime::inventory::{Inventory, Port};
use crate::scheme::Place;
use crate::time::{Span, Time};
use crate::tuning::Tuning;

/// Reports older than this many cycles are ignored.
const STALE_CYCLES: u64 = 2;

/// The role of the controller.
pub struct Oracle {
    policies: Vec<Policy>,
    cycle: Span,
    agents: Vec<AgentEntry>,
    /// Names of the ports that a node ought to report, in its order.
    switches: BTreeMap<NodeId, Vec<String>>,
    /// What is at the ports of switches that do not know it.
    ends: BTreeMap<NodeId, Vec<NodeId>>,
    names: ByNode<String>,
    /// Agents ought to report.
    hosts_report: bool,
    /// Agents and switches that have gone.
    away: BTreeSet<NodeId>,
    /// Agents of which nobody knows where they are, until they are heard.
    lost: BTreeSet<NodeId>,
    hosts_heard: ByNode<(Time, HostReport)>,
    switches_heard: BTreeMap<(NodeId, u32), (Time, SwitchReport, Columns)>,
    /// The topology is asked for.
    topology: bool,
    /// Where the traffic matrix is asked for.
    matrix: Option<Matrix>,
    epoch: Option<u64>,
    /// When it was called first: for a cycle from then it only listens, or until all have reported.
    began: Time,
    listens: bool,
    sequence: u32,
    schedule: Schedule,
    /// Agents whose last CUE may still be in force, and its content.
    cued: ByNode<Told>,
    /// Agents whose settings may change in a cycle.
    rollout: usize,
    /// Agents that got one with a lease in the last cycle.
    leased: usize,
    coverage: f64,
    /// Rules that fired in the last cycle, a bit each in the order of policies and rules.
    firing: u32,
}

/// Rules that `firing` tells apart: samples of series have so many bits.
pub const TOLD_RULES: usize = 24;

/// An agent as the Oracle knows it.
struct AgentEntry {
    node: NodeId,
    /// Positions of the policies that are for it.
    policies: Vec<usize>,
}

/// The last CUE of an agent.
struct Told {
    /// When.
    at: Time,
    /// A hash of what to set and to check, and for how long.
    settings: u64,
    decision: Arc<Decision>,
}

impl Told {
    /// A renewal is due. Half a cycle early, as cycles are not exact.
    fn is_due(&self, now: Time, cycle: Span) -> bool {
        let lease = self.decision.lease.unwrap_or_default();
        (now.since(self.at) * 2 + cycle) * RENEWALS > lease * 2
    }
}

/// Hosts, racks or addresses that data of one host come from, at most.
const MOST_ORIGINS: usize = 100_000;
/// Renewals within a lease: two of them may be lost.
const RENEWALS: u64 = 3;

/// The traffic matrix as agents tell it.
struct Matrix {
    /// Agents tell hosts apart, not racks.
    by_host: bool,
    /// It is asked for by rack.
    racks: bool,
    /// Names of all nodes, and every host's switch.
    names: Vec<String>,
    rack_of: BTreeMap<NodeId, NodeId>,
    /// By receiver.
    heard: BTreeMap<NodeId, Came>,
    /// Where addresses are.
    inventory: Inventory,
}

/// What has come to a host.
#[derive(Clone, Debug)]
struct Came {
    /// When its last report came, and the number of that.
    at: Time,
    sequence: u32,
    /// Reports with this number that have not come.
    missing: u32,
    /// From whom, in kbit/s.
    rows: BTreeMap<Origin, u32>,
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
    /// The Oracle at `place`, for which so much is `collected`.
    pub fn new(
        policies: Vec<Policy>,
        collected: &[&Statistic],
        inventory: &Inventory,
        place: &Place,
        cycle: Span,
    ) -> Self {
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
        let mut ends = BTreeMap::new();
        for (node, names) in &mut switches {
            let mut own: Vec<&Port> =
                inventory.ports().map(|(_, port)| port).filter(|port| port.from == *node).collect();
            if let Some(numbered) = inventory.own_ports(*node) {
                own = numbered.iter().filter_map(|port| inventory.port(*port)).collect();
                ends.insert(*node, own.iter().map(|port| port.to).collect());
            }
            let name = |port: &&Port| format!("{}->{}", inventory.name(port.from), inventory.name(port.to));
            names.extend(own.iter().map(name));
        }
        Self {
            cycle,
            agents: entries,
            switches,
            ends,
            names: agents.iter().map(|node| (*node, name(*node))).collect(),
            hosts_report: collected.iter().any(|statistic| statistic.source == Source::Host),
            topology: collected.iter().any(|statistic| statistic.source == Source::Topology),
            matrix: Matrix::new(collected, inventory),
            away: BTreeSet::new(),
            lost: BTreeSet::new(),
            hosts_heard: ByNode::default(),
            switches_heard: BTreeMap::new(),
            epoch: None,
            began: Time::ZERO,
            listens: true,
            sequence: 0,
            schedule: Schedule::new(cycle, Span::ZERO),
            cued: ByNode::default(),
            rollout: usize::MAX,
            leased: 0,
            coverage: 0.0,
            firing: 0,
            policies,
        }
    }

    /// No more agents than so many get other settings in a cycle.
    #[must_use]
    pub fn rolling_out(self, rollout: usize) -> Self {
        Self { rollout, ..self }
    }

    /// Entries that it keeps.
    #[cfg(test)]
    fn kept(&self) -> usize {
        self.away.len()
            + self.lost.len()
            + self.hosts_heard.len()
            + self.switches_heard.len()
            + self.cued.len()
    }

    /// Nodes that ought to report.
    fn expected(&self) -> usize {
        let here = |node: &NodeId| !self.away.contains(node);
        let tell = self.hosts_report || self.matrix.is_some();
        let hosts = if tell { self.names.iter().filter(|(node, _)| here(node)).count() } else { 0 };
        hosts + self.switches.keys().filter(|node| here(node)).count()
    }

    /// It began between two cycles, as after a restart, and nothing is left to wait for. A limit on changes is one per cycle.
    fn has_heard_all(&self) -> bool {
        let is_between = !self.began.as_nanos().is_multiple_of(self.cycle.as_nanos().max(1));
        // A switch with many ports reports in parts.
        let is_heard = |node: NodeId, ports: usize| {
            let parts = self.switches_heard.range((node, 0)..=(node, u32::MAX));
            let covered = parts.map(|(_, (_, report, _))| u64::from(report.covered));
            covered.reduce(|all, part| all + part).is_some_and(|covered| covered >= ports as u64)
        };
        let missing = self.names.len().saturating_sub(self.hosts_heard.len());
        // It is asked with every message: what costs little is first. Switches and other nodes may be away too.
        let away_agents = || self.away.iter().filter(|node| self.names.has(**node)).count();
        is_between
            && self.rollout == usize::MAX
            && missing <= self.away.len()
            && missing <= away_agents()
            && self.matrix.as_ref().is_none_or(|matrix| {
                matrix.heard.len() >= self.names.len() && matrix.heard.values().all(|came| came.missing == 0)
            })
            && self
                .switches
                .iter()
                .all(|(node, ports)| self.away.contains(node) || is_heard(*node, ports.len()))
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
        self.state_with(now, |node| self.names.get(*node).cloned().unwrap_or_default())
    }

    /// Hosts called so.
    fn state_with(&self, now: Time, name: impl Fn(&NodeId) -> String) -> State {
        let fresh = |at: &Time| self.is_fresh(now, *at);
        let hosts: Vec<_> = self
            .hosts_heard
            .iter()
            .filter(|(_, (at, _))| fresh(at))
            .map(|(node, (_, report))| report.state(name(&node)))
            .collect();
        let mut links = Vec::new();
        let mut switches = BTreeSet::new();
        let mut ports: BTreeMap<NodeId, Vec<PortLink>> = BTreeMap::new();
        for ((node, _), (_, report, also)) in self.switches_heard.iter().filter(|(_, (at, ..))| fresh(at)) {
            let names = &self.switches[node];
            links.extend(report.states(also, |place| names.get(place as usize).cloned().unwrap_or_default()));
            switches.insert(*node);
            if self.topology && !also.links.is_empty() {
                ports.entry(*node).or_default().extend(&also.links);
            }
        }
        let told = |node: &NodeId| self.matrix.as_ref().is_none_or(|matrix| matrix.has(node, fresh));
        let reported = |node: &NodeId| {
            !self.hosts_report || self.hosts_heard.get(*node).is_some_and(|(at, _)| fresh(at))
        };
        let tell = self.hosts_report || self.matrix.is_some();
        let heard_hosts = self.names.iter().filter(|(node, _)| tell && told(node) && reported(node)).count();
        let heard = heard_hosts + switches.len();
        let expected = self.expected();
        let coverage = if expected == 0 { 1.0 } else { heard as f64 / expected as f64 };
        let (traffic_hosts, traffic_racks) =
            self.matrix.as_ref().map(|matrix| matrix.state(fresh)).unwrap_or_default();
        let topology = topology::of_switches(&ports);
        State { coverage, links, hosts, traffic_hosts, traffic_racks, topology }
    }

    fn on_switch(&mut self, now: Time, node: NodeId, report: SwitchReport, mut also: Columns) {
        if let Some(ends) = self.ends.get(&node) {
            let covered = ends.iter().skip(report.first as usize);
            also.links.iter_mut().zip(covered).for_each(|(link, end)| link.to = end.0);
        }
        if let Some(ports) = self.switches.get(&node)
            && u64::from(report.first) + u64::from(report.covered) <= ports.len() as u64
        {
            let key = (node, report.first);
            let last = self.switches_heard.get(&key).map(|(at, last, _)| (*at, last.sequence));
            if self.is_news(now, last, report.sequence) {
                self.switches_heard.insert(key, (now, report, also));
            }
        }
    }

    /// Of several reports with one number each adds its rows.
    fn on_traffic(
        &mut self,
        now: Time,
        node: NodeId,
        (sequence, parts): (u32, u32),
        rows: impl Iterator<Item = (Origin, u32)>,
    ) {
        let Some(matrix) = &self.matrix else { return };
        let last = matrix.heard.get(&node).map(|came| (came.at, came.sequence));
        let is_more = last.is_some_and(|(at, last)| self.is_fresh(now, at) && last == sequence);
        if !is_more && !self.is_news(now, last, sequence) {
            return;
        }
        let Some(matrix) = &mut self.matrix else { return };
        let new = Came { at: now, sequence, missing: parts, rows: BTreeMap::new() };
        let entry = matrix.heard.entry(node).or_insert_with(|| new.clone());
        if !is_more {
            *entry = new;
        }
        entry.missing = entry.missing.saturating_sub(1);
        let is_known = |from: &Origin| match from {
            Origin::Node(node) => node.index() < matrix.names.len(),
            Origin::Address(address) => matrix.inventory.node_at(*address).is_some(),
        };
        let room = MOST_ORIGINS.saturating_sub(entry.rows.len());
        entry.rows.extend(rows.filter(|(from, _)| is_known(from)).take(room));
    }

    fn decide(&mut self, now: Time, out: &mut Outbox) {
        // Conditions have no names of hosts.
        let state = self.state_with(now, |_| String::new());
        self.coverage = state.coverage;
        let used = |statistic: &Statistic| {
            let uses = self.policies.iter().map(|policy| policy.use_of(statistic));
            uses.max().unwrap_or(Use::No)
        };
        let values = Values::of_some(&state, used);
        let fired: Vec<Option<&Rule>> = self.policies.iter().map(|policy| policy.decide(&values)).collect();
        let rules = self.policies.iter().zip(&fired).flat_map(|(policy, fired)| {
            policy.rules.iter().map(|rule| fired.is_some_and(|fired| std::ptr::eq(fired, rule)))
        });
        self.firing = (0..).zip(rules).take(TOLD_RULES).map(|(bit, fires)| u32::from(fires) << bit).sum();
        let (Some(epoch), sequence) = (self.epoch, self.sequence) else { return };
        self.leased = 0;
        let mut changed = 0;
        // Agents of the same policies get the same.
        let mut decisions: BTreeMap<&[usize], Said> = BTreeMap::new();
        let (away, lost) = (&self.away, &self.lost);
        let is_there = |node: &NodeId| !away.contains(node) && !lost.contains(node);
        for agent in self.agents.iter().filter(|agent| is_there(&agent.node)) {
            let said = decisions.entry(&agent.policies).or_insert_with(|| {
                let decision = combine(&self.policies, &fired, &agent.policies);
                Said::new(decision, epoch, sequence)
            });
            let Some(bytes) = &said.bytes else { continue };
            if said.decision.lease.is_some() {
                let before = self.cued.get_mut(agent.node);
                let told = before.as_ref().filter(|told| told.settings == said.settings);
                // An agent that was never heard takes no place of one that was.
                let is_heard = !self.hosts_report || self.hosts_heard.has(agent.node);
                let is_limited = self.rollout < usize::MAX;
                if told.is_none() && (changed == self.rollout || (is_limited && !is_heard)) {
                    // The agent keeps its previous settings.
                    let Some(before) = before else { continue };
                    self.leased += 1;
                    if before.is_due(now, self.cycle)
                        && let Some(cue) = cue(&before.decision, epoch, sequence)
                    {
                        before.at = now;
                        out.push(Action::Send { to: agent.node, body: control::body(&Body::Cue(cue)) });
                    }
                    continue;
                }
                self.leased += 1;
                if told.is_some_and(|told| !told.is_due(now, self.cycle)) {
                    continue;
                }
                changed += usize::from(told.is_none());
                let (settings, decision) = (said.settings, said.decision.clone());
                self.cued.insert(agent.node, Told { at: now, settings, decision });
            } else if self.cued.remove(agent.node).is_none() {
                continue;
            }
            out.push(Action::Send { to: agent.node, body: bytes.clone() });
        }
        self.sequence = self.sequence.wrapping_add(1);
    }
}

impl Matrix {
    fn new(collected: &[&Statistic], inventory: &Inventory) -> Option<Self> {
        let asked = |name| collected.iter().any(|statistic| statistic.name == name);
        let (by_host, racks) = (asked(TRAFFIC_HOSTS), asked(TRAFFIC_RACKS));
        if !by_host && !racks {
            return None;
        }
        let mut rack_of = BTreeMap::new();
        for (_, port) in inventory.ports() {
            rack_of.entry(port.from).or_insert(port.to);
        }
        let names = (0..inventory.nodes() as u32).map(|node| inventory.name(NodeId(node)).to_owned());
        let (names, inventory) = (names.collect(), inventory.clone());
        Some(Self { by_host, racks, names, rack_of, heard: BTreeMap::new(), inventory })
    }

    fn has(&self, node: &NodeId, fresh: impl Fn(&Time) -> bool) -> bool {
        self.heard.get(node).is_some_and(|came| came.missing == 0 && fresh(&came.at))
    }

    /// Between hosts, and between racks.
    fn state(&self, fresh: impl Fn(&Time) -> bool) -> (Vec<PairState>, Vec<PairState>) {
        let name = |node: u32| self.names.get(node as usize).cloned().unwrap_or_default();
        let pair = |from: u32, to: u32, rate: u64| PairState {
            from: name(from),
            to: name(to),
            rate: rate as f64 * 1e3,
        };
        let heard = || self.heard.iter().filter(|(_, came)| came.missing == 0 && fresh(&came.at));
        let rack = |node: NodeId| self.rack_of.get(&node).map(|rack| rack.0);
        // A host or rack, as agents tell of them; a host may have several addresses.
        let node = |from: &Origin| match from {
            Origin::Node(node) => Some(node.0),
            Origin::Address(address) => {
                let host = self.inventory.node_at(*address)?;
                if self.by_host { Some(host.0) } else { rack(host) }
            }
        };
        let rows = || {
            let of = |(to, came): (&NodeId, &Came)| {
                let mut rows: BTreeMap<u32, u64> = BTreeMap::new();
                for (from, rate) in &came.rows {
                    if let Some(from) = node(from) {
                        *rows.entry(from).or_default() += u64::from(*rate);
                    }
                }
                let to = *to;
                rows.into_iter().map(move |row| (row, to))
            };
            heard().flat_map(of)
        };
        let hosts = match self.by_host {
            true => rows().map(|((from, rate), to)| pair(from, to.0, rate)).collect(),
            false => Vec::new(),
        };
        if !self.racks {
            return (hosts, Vec::new());
        }
        let all: BTreeSet<u32> = heard().filter_map(|(node, _)| rack(*node)).collect();
        let mut sums: BTreeMap<(u32, u32), u64> =
            all.iter().flat_map(|from| all.iter().map(move |to| ((*from, *to), 0))).collect();
        for ((from, rate), to) in rows() {
            let from = if self.by_host { rack(NodeId(from)) } else { Some(from) };
            if let (Some(from), Some(to)) = (from, rack(to)) {
                *sums.entry((from, to)).or_default() += rate;
            }
        }
        (hosts, sums.into_iter().map(|((from, to), rate)| pair(from, to, rate)).collect())
    }
}

/// A decision in words for agents.
struct Said {
    decision: Arc<Decision>,
    /// A hash of what to set and to check, and for how long.
    settings: u64,
    /// None: there is nothing to say.
    bytes: Option<Vec<u8>>,
}

impl Said {
    fn new(decision: Decision, epoch: u64, sequence: u32) -> Self {
        let mut settings = Fnv::new();
        settings.write(&control::body(&(decision.tuning, &decision.preconditions, decision.lease)));
        let bytes = cue(&decision, epoch, sequence).map(|cue| control::body(&Body::Cue(cue)));
        Self { decision: Arc::new(decision), settings: settings.finish(), bytes }
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
                    self.began = now;
                } else if !self.listens || now.since(self.began) >= self.cycle {
                    self.listens = false;
                    self.decide(now, out);
                }
                self.schedule.advance(now);
            }
            Observation::Refused { subject: Subject::Node(node), why } => {
                if *why == Refusal::Unknown {
                    self.lost.insert(*node);
                }
                if self.cued.remove(*node).is_some() {
                    self.leased -= 1;
                }
            }
            Observation::Message(message) if !self.away.contains(&message.from) => {
                self.lost.remove(&message.from);
                match wire::read(message) {
                    Some(Body::Host(report)) if self.names.has(message.from) => {
                        let last = self.hosts_heard.get(message.from).map(|(at, last)| (*at, last.sequence));
                        if self.is_news(now, last, report.sequence) {
                            self.hosts_heard.insert(message.from, (now, report));
                        }
                    }
                    Some(Body::Switch(report)) => {
                        self.on_switch(now, message.from, report, Columns::default());
                    }
                    Some(Body::SwitchAlso(report, also)) => {
                        self.on_switch(now, message.from, report, also);
                    }
                    Some(Body::Traffic(report)) if self.names.has(message.from) => {
                        let rows = report.rows.iter().map(|row| (Origin::Node(NodeId(row.from)), row.rate));
                        self.on_traffic(now, message.from, (report.sequence, 1), rows);
                    }
                    Some(Body::TrafficFrom(report)) if self.names.has(message.from) => {
                        let rows = report.rows.iter().map(|row| (Origin::Address(row.from), row.rate));
                        self.on_traffic(now, message.from, (report.sequence, report.parts), rows);
                    }
                    _ => {}
                }
                if self.listens && self.has_heard_all() {
                    self.listens = false;
                    self.schedule.next = now;
                }
            }
            Observation::Left(node) => {
                self.away.insert(*node);
                self.cued.remove(*node);
                self.hosts_heard.remove(*node);
                if let Some(matrix) = &mut self.matrix {
                    matrix.heard.remove(node);
                }
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
        gauges.show("firing", f64::from(self.firing));
    }

    fn account(&self, now: Time) -> Option<String> {
        let state = self.state(now);
        let lines = self.policies.iter().map(|policy| policy.explain(&state).to_string());
        Some(lines.collect::<Vec<_>>().join("\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{DEF, ORACLE};
    use super::*;
    use crate::params::{NamedText, Params, Value};
    use crate::rng::Stream;
    use crate::scheme::Built;
    use crate::units::Rate;

    const POLICY: &str = "version = 1\nname = \"p\"\ngoal = \"a test\"\ncycle = \"1s\"\nlease = \"LEASE\"\n\
                          statistics = [\"flows.live\"]\n[[rules]]\nname = \"few\"\nwhen = \"max(flows.live) < 10\"\n\
                          set = { initial-window = 20 }\n[[rules]]\nname = \"many\"\nset = { initial-window = 10 }\n";
    const AGENTS: u32 = 5;

    /// An Oracle of five agents, nodes 1 to 5.
    struct Site {
        oracle: Box<dyn Controller>,
        cycle: u64,
        live: u32,
        /// Initial windows of the last CUEs.
        windows: Vec<u32>,
    }

    impl Site {
        fn new(lease: &str, rollout: Option<i64>) -> Self {
            let oracle = Self::oracle(lease, rollout, 0);
            let mut site = Self { oracle, cycle: 0, live: 1, windows: Vec::new() };
            assert!(site.decide().is_empty(), "nothing before the first cycle has passed");
            site
        }

        /// With a switch of one port, the node after the agents, where `has_switch`.
        fn oracle(lease: &str, rollout: Option<i64>, switch_ports: u32) -> Box<dyn Controller> {
            let mut inventory = Inventory::default();
            for node in 0..=AGENTS + switch_ports.min(1) {
                inventory.join(&format!("n{node}"));
            }
            let switch = (switch_ports > 0).then_some(NodeId(AGENTS + 1));
            for (switch, to) in switch.iter().flat_map(|switch| (1..=switch_ports).map(|to| (*switch, to))) {
                inventory.add_port("", switch, NodeId(to), Rate::from_bits_per_sec(1_000_000));
            }
            let mut params = Params::defaults(DEF.keys);
            let text = Some(POLICY.replace("LEASE", lease));
            params.set("policies", Value::Files(vec![NamedText { name: "p.toml".to_owned(), text }]));
            if let Some(most) = rollout {
                params.set("rollout", Value::Integer(most));
            }
            let agents = (1..=AGENTS).map(|node| (NodeId(node), &AGENT));
            let peers = agents.chain(switch.map(|node| (node, &SWITCH))).collect();
            let place = Place { peers, ..Place::new(&ORACLE, NodeId(0), params) };
            let Built { controller, .. } = (DEF.build)(&place, &inventory, None);
            controller.expect("an Oracle")
        }

        /// All report, and it decides: whom it tells something.
        fn decide(&mut self) -> Vec<u32> {
            let report =
                HostReport { sequence: self.cycle as u32, live: self.live, started: 0, drop_rate: 0, rtt: 0 };
            let at = |half: u64| Time::from_nanos((2 * self.cycle + half) * 500_000_000);
            for node in 1..=AGENTS {
                let body = control::body(&Body::Host(report.clone()));
                let message = control::Message { from: NodeId(node), scheme: DEF.code, body };
                self.oracle.on(at(1), &Observation::Message(&message), &mut Outbox::default());
            }
            let mut out = Outbox::default();
            self.oracle.on(at(2), &Observation::Tick { ports: &[], flows: &[] }, &mut out);
            self.cycle += 1;
            self.windows.clear();
            let to = |action| match action {
                Action::Send { to, body } => {
                    if let Ok(Body::Cue(cue)) = postcard::from_bytes(&body) {
                        self.windows.extend(cue.tuning.initial_window);
                    }
                    to.0
                }
                other => panic!("{other:?}"),
            };
            out.drain().map(to).collect()
        }

        fn shown(&self, metric: &str) -> f64 {
            let mut gauges = Gauges::default();
            self.oracle.gauges(&mut gauges);
            gauges.values().iter().find(|(name, _)| *name == metric).expect("shown").1
        }
    }

    /// A third of a lease of nine seconds is three cycles; changes are sent at once.
    #[test]
    fn a_long_lease_is_renewed_three_times() {
        let mut site = Site::new("9s", None);
        let all = [1, 2, 3, 4, 5];
        for _ in 0..2 {
            assert_eq!((site.decide(), site.shown("cued")), (all.to_vec(), 5.0));
            assert_eq!((site.decide(), site.shown("cued")), (vec![], 5.0));
            assert!(site.decide().is_empty());
        }
        site.live = 50;
        assert_eq!(site.decide(), all);
        assert!(site.decide().is_empty());
        let mut site = Site::new("3s", None);
        assert_eq!((site.decide(), site.decide()), (all.to_vec(), all.to_vec()), "every cycle");
    }

    /// After a restart: as soon as all have reported, else at the end of the first whole cycle.
    #[test]
    fn an_oracle_that_begins_between_cycles_waits_for_the_last_report() {
        let at = |millis: u64| Time::from_nanos(millis * 1_000_000);
        // The cycle is a second; when agents, and the ports of a switch where there is one, report, in ms, and when it decides
        // first.
        let all = |last: u64| [100, 200, 300, 400, last];
        for (began, rollout, reports, switch, decides) in [
            (5_050, None, all(500), &[][..], 5_550),
            (5_050, None, all(990), &[], 6_040),
            (5_050, None, all(3_000), &[], 7_000),
            (5_050, Some(2), all(500), &[], 7_000),
            (5_000, None, all(500), &[], 6_000),
            (5_050, None, all(500), &[300], 5_550),
            (5_050, None, all(500), &[700], 5_750),
            (5_050, None, all(500), &[3_000], 7_000),
            (5_050, None, all(500), &[300, 800], 5_850),
        ] {
            let mut oracle = Site::oracle("9s", rollout, switch.len() as u32);
            let mut out = Outbox::default();
            // One that is neither agent nor switch is away: all others are still waited for.
            oracle.on(at(began), &Observation::Left(NodeId(AGENTS + 2)), &mut out);
            let mut first = None;
            for now in (began..began + 2_500).step_by(10) {
                for (place, after) in (0..).zip(reports.into_iter().chain(switch.iter().copied())) {
                    if now != began + after {
                        continue;
                    }
                    let body = match place {
                        0..AGENTS => {
                            Body::Host(HostReport { sequence: 1, live: 1, started: 0, drop_rate: 0, rtt: 0 })
                        }
                        _ => {
                            let first = place - AGENTS;
                            Body::Switch(SwitchReport { sequence: 1, first, covered: 1, ports: vec![] })
                        }
                    };
                    let (from, scheme) = (NodeId(place.min(AGENTS) + 1), DEF.code);
                    let message = control::Message { from, scheme, body: control::body(&body) };
                    oracle.on(at(now), &Observation::Message(&message), &mut out);
                }
                if oracle.wakeup().is_some_and(|due| due <= at(now)) {
                    oracle.on(at(now), &Observation::Tick { ports: &[], flows: &[] }, &mut out);
                }
                if out.drain().next().is_some() {
                    first = first.or(Some(now));
                }
            }
            assert_eq!(first, Some(decides), "began at {began}, {rollout:?}, {reports:?}, {switch:?}");
        }
    }

    #[test]
    fn settings_are_rolled_out_to_few_at_a_time() {
        let mut site = Site::new("3s", Some(2));
        assert_eq!(site.decide(), [1, 2]);
        assert_eq!(site.decide(), [1, 2, 3, 4]);
        assert_eq!((site.decide(), site.shown("cued")), (vec![1, 2, 3, 4, 5], 5.0));
        // Other settings: agents that wait for them keep getting their previous ones.
        site.live = 50;
        let all = vec![1, 2, 3, 4, 5];
        assert_eq!((site.decide(), site.windows.clone()), (all.clone(), vec![10, 10, 20, 20, 20]));
        assert_eq!((site.decide(), site.windows.clone()), (all.clone(), vec![10, 10, 10, 10, 20]));
        assert_eq!((site.decide(), site.shown("cued")), (all, 5.0));
    }

    /// An agent that cannot be reached does not count, and gets its settings once it is heard.
    #[test]
    fn who_cannot_be_reached_waits_until_it_is_heard() {
        let mut site = Site::new("9s", Some(2));
        assert_eq!(site.decide(), [1, 2]);
        let refused = |node, why| Observation::Refused { subject: Subject::Node(NodeId(node)), why };
        site.oracle.on(Time::ZERO, &refused(1, Refusal::Unknown), &mut Outbox::default());
        site.oracle.on(Time::ZERO, &refused(2, Refusal::Busy), &mut Outbox::default());
        assert_eq!(site.shown("cued"), 0.0);
        // In this test all are heard before each decision.
        assert_eq!(site.decide(), [1, 2]);
        assert!(site.oracle.account(Time::ZERO).is_some_and(|text| text.contains("rule `few` fires")));
    }

    /// A day of cycles of a second, in which agents fall silent, are lost, leave and come back.
    #[test]
    fn of_a_day_of_reports_the_last_ones_are_kept() {
        let mut inventory = Inventory::default();
        for node in 0..=AGENTS {
            inventory.join(&format!("n{node}"));
        }
        let policies = vec![super::super::parse("p.toml", &POLICY.replace("LEASE", "9s")).expect("a policy")];
        let peers = (1..=AGENTS).map(|node| (NodeId(node), &AGENT)).collect();
        let place = Place { peers, ..Place::new(&ORACLE, NodeId(0), Params::defaults(DEF.keys)) };
        let collected: Vec<&Statistic> = policies[0].statistics.clone();
        let mut oracle = Oracle::new(policies, &collected, &inventory, &place, Span::from_secs(1));
        let mut chance = Stream::new(1, 0, "a day");
        let (mut out, mut said) = (Outbox::default(), 0);
        for second in 0..86_400u32 {
            let now = Time::from_nanos(u64::from(second) * 1_000_000_000);
            // Also nodes that are no agents.
            for node in (1..=AGENTS + 3).map(NodeId) {
                let report = HostReport { sequence: second, live: 1, started: 0, drop_rate: 0, rtt: 0 };
                let message = control::Message {
                    from: node,
                    scheme: DEF.code,
                    body: control::body(&Body::Host(report)),
                };
                let happens = [0.9, 0.01, 0.01, 0.02].map(|odds| chance.chance(odds));
                let refused = Observation::Refused { subject: Subject::Node(node), why: Refusal::Unknown };
                let all = [
                    Observation::Message(&message),
                    refused,
                    Observation::Left(node),
                    Observation::Joined(node),
                ];
                for (observation, _) in all.iter().zip(happens).filter(|(_, happens)| *happens) {
                    oracle.on(now, observation, &mut out);
                }
            }
            oracle.on(now, &Observation::Tick { ports: &[], flows: &[] }, &mut out);
            said += out.drain().count();
            // An agent is heard, cued, and away or lost; a stranger may be the latter.
            assert!(oracle.kept() <= 4 * AGENTS as usize + 2 * 3, "{} after {second} s", oracle.kept());
        }
        assert!(said > 86_400, "{said} CUEs");
    }
}
