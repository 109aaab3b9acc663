//! The allocator: turns notifications and measurements into shares.

use std::collections::{BTreeMap, BTreeSet};

use super::shares::{Claimant, Scope, fair_share, reallocate};
use super::{
    AllocatorKind, FlowMeasurement, HOST, LinkCount, MOST_SHARES, NOT_COUNTED, ROUTER, Settings, Share,
    Way as Reported, Word,
};
use crate::control::{Controller, FlowKey, Observation, Outbox};
use crate::fairness::{Demand, max_min};
use crate::id::{FlowId, NodeId, PortId};
use crate::runtime::inventory::{Inventory, Port};
use crate::scheme::Place;
use crate::time::{Span, Time};
use crate::units::{Bytes, Rate};

/// max-min: a flow that uses less than this part of what it was given is limited elsewhere.
const LIMITED: f64 = 0.7;
/// max-min: segments that a throughput average spans at least, so that a slow flow is not judged by single packets.
const AVERAGED_SEGMENTS: f64 = 10.0;
/// max-min: a limited flow may always use this part of the share of an unlimited one.
const LEAST_PART: f64 = 0.5;
/// max-min: flows that start may take the sum of all shares to this multiple of the largest link until the others get
/// new shares; their data need a round trip anyway.
const OVERBOOKED: f64 = 1.4;
/// max-min: time over which the traffic that the allocator does not control is averaged.
const OTHERS_SECONDS: f64 = 0.5;
/// max-min: after a flow under control comes or goes, averages need so many measurement intervals to tell it from others.
const SETTLED_INTERVALS: f64 = 3.0;
/// max-min: a queue is worked off in this time, by giving out less (as in RCP).
const DRAIN_SECONDS: f64 = 0.5;
/// Of all numbers of flows.
const LOWEST: FlowId = FlowId(0);
const HIGHEST: FlowId = FlowId(u32::MAX);

/// max-min: flows that enter or leave the domain by the same link share whatever limits it outside. Their sum tells the
/// limit sooner and closer than any one of them.
#[derive(Default)]
struct Outside {
    used: f64,
    could_use: f64,
    /// Estimated limit, while there is one.
    limit: Option<f64>,
    /// Next relative increase of the limit: doubles while the flows follow.
    step: f64,
    /// Measurements since the limit went below what passes, and the seconds of queueing then; none while it does not.
    backing_off: Option<(u32, f64)>,
    /// Seconds of queueing that sending less has not changed: no queue outside, but flows that know their least time wrongly, or
    /// a queue of others.
    stays: f64,
}

impl Outside {
    /// With more queueing than this the limit is taken below what passes, until the queue is gone.
    const QUEUEING: Span = Span::from_millis(5);
    const BACK_OFF: f64 = 0.9;
    /// A queue outside is shorter after so many measurements with less than passes, by this part of it at least.
    const PATIENCE: u32 = 20;
    const SHORTER: f64 = 0.25;
    /// Least and largest relative increase.
    const STEPS: (f64, f64) = (0.02, 0.5);
    /// The flows follow when they use this part of what they were given.
    const FOLLOWED: f64 = 0.985;

    fn measure(&mut self, sum: &Sum, domain_queueing: f64, weight: f64) {
        self.used = weight * sum.used + (1.0 - weight) * self.used;
        self.could_use = weight * sum.could_use + (1.0 - weight) * self.could_use;
        let outside = sum.mean_queueing().map_or(0.0, |queueing| queueing - domain_queueing);
        // A segment more or less in an interval tells nothing.
        let followed = self.used + weight * sum.grain >= Self::FOLLOWED * self.could_use;
        self.stays = self.stays.min(outside.max(0.0));
        // While a queue in the domain falls, flows that see it at different times differ by a part of it.
        if outside - self.stays > Self::QUEUEING.as_secs_f64().max(domain_queueing) {
            self.step = Self::STEPS.0 / 2.0;
            self.limit = Some(self.used * Self::BACK_OFF);
            let (since, first) = self.backing_off.unwrap_or((0, outside));
            if since < Self::PATIENCE {
                self.backing_off = Some((since + 1, first));
            } else {
                self.backing_off = None;
                if outside > (1.0 - Self::SHORTER) * first {
                    self.stays = outside;
                }
            }
            return;
        }
        self.backing_off = None;
        if self.could_use <= 0.0 || (followed && self.limit.is_none()) {
            return;
        }
        self.step = if followed { (2.0 * self.step).min(Self::STEPS.1) } else { Self::STEPS.0 };
        // A window carries less than its share when its packets wait in the domain. That is no limit outside: the limit
        // still rises, until packets wait outside or it no longer binds.
        let waits = domain_queueing > Self::QUEUEING.as_secs_f64() / 2.0;
        let base = if followed || !waits { self.used } else { self.limit.unwrap_or_default().max(self.used) };
        self.limit = Some(base * (1.0 + self.step));
    }
}

/// One interval's measurements of the flows of one link to the outside.
#[derive(Default)]
struct Sum {
    /// Flows that have measured how long they queue.
    timed: u32,
    used: f64,
    could_use: f64,
    /// Seconds, of them all.
    queueing: f64,
    /// One segment per flow in a measurement interval, bit/s.
    grain: f64,
    /// The links that its flows take in the domain.
    inside: BTreeSet<PortId>,
}

impl Sum {
    /// None when nothing came through: its flows have measured no time.
    fn mean_queueing(&self) -> Option<f64> {
        (self.timed > 0).then(|| self.queueing / f64::from(self.timed))
    }
}

pub(super) struct Allocator {
    settings: Settings,
    now: Time,
    /// The nodes that report flows and counts.
    peers: BTreeMap<NodeId, Peer>,
    /// The ports of the domain and beyond, and where addresses are.
    inventory: Inventory,
    /// Links inside the domain, by port, with the last count of flows.
    links: BTreeMap<PortId, Link>,
    /// Paths of the flows that hosts reported; a flow's number is its host's own.
    ways: BTreeMap<Name, Way>,
    flows: BTreeMap<Name, Flow>,
    outsides: BTreeMap<PortId, Outside>,
}

/// A node that reports.
#[derive(Default)]
struct Peer {
    /// It has left.
    away: bool,
    /// It has a router's role, and a host's.
    counts: bool,
    measures: bool,
    /// max-min: seconds that its flows wait before links of the domain, where they can be distinguished from waits outside.
    queueing: BTreeMap<PortId, f64>,
    /// Sums of the parts of its measurements that have arrived, until the last part arrives.
    sums: BTreeMap<PortId, Sum>,
}

/// A flow: the host that controls it, and the host's number of it.
type Name = (NodeId, FlowId);

struct Link {
    capacity: Rate,
    flows: Option<u32>,
    backlog: Bytes,
    /// When the last report arrived, and the bytes that had left until then.
    sent: Option<(Time, Bytes)>,
    /// max-min: bit/s of what the allocator does not control (acknowledgements, other flows), averaged.
    others: f64,
    /// max-min: flows that the allocator does not control.
    foreign: u32,
    /// When a flow under control last came or went.
    changed: Time,
    /// max-min: flows not under control would use more than their part. A controlled flow that falls short loses to them.
    contested: bool,
}

/// Links of a flow inside the domain, and the router by which it enters or leaves.
struct Way {
    links: Vec<PortId>,
    edge: NodeId,
    /// Link by which it comes in or goes out; none when its other end is inside.
    outside: Option<PortId>,
    /// What others call it, where hosts tell.
    key: Option<FlowKey>,
    /// The host at its other end tells of it too: it is one flow, and counts once.
    is_second: bool,
}

impl Way {
    fn is_contested(&self, links: &BTreeMap<PortId, Link>) -> bool {
        self.links.iter().any(|port| links.get(port).is_some_and(|link| link.contested))
    }
}

#[derive(Default)]
struct Flow {
    /// R_th,f and E_f, once measured.
    sample: Option<f64>,
    used: Option<f64>,
    /// Rate given last.
    given: f64,
    /// max-min: the rate given, with the filter that E_f has, so that the two compare.
    could_use: f64,
    /// max-min: least rates given in this measurement interval and the one before.
    least_given: [f64; 2],
}

impl Flow {
    /// max-min: E_f when something outside the domain limits the flow.
    fn limited_at(&self) -> Option<f64> {
        self.used.filter(|used| *used < LIMITED * self.could_use)
    }
}

impl Allocator {
    /// Entries that it keeps.
    #[cfg(test)]
    pub(super) fn kept(&self) -> usize {
        let parts: usize = self.peers.values().map(|peer| peer.sums.len()).sum();
        self.ways.len() + self.flows.len() + self.links.len() + self.outsides.len() + self.peers.len() + parts
    }

    /// Of the domain whose links are the ports of `place`.
    pub(super) fn new(settings: Settings, inventory: &Inventory, place: &Place) -> Self {
        let link = |&Port { capacity, .. }: &Port| Link {
            capacity,
            flows: None,
            backlog: Bytes::ZERO,
            sent: None,
            others: 0.0,
            foreign: 0,
            changed: Time::ZERO,
            contested: false,
        };
        let known = |port: &PortId| Some((*port, link(inventory.port(*port)?)));
        let links = place.ports.iter().filter_map(known).collect();
        let mut peers: BTreeMap<NodeId, Peer> = BTreeMap::new();
        for (node, role) in &place.peers {
            let peer = peers.entry(*node).or_default();
            peer.counts |= role.name == ROUTER.name;
            peer.measures |= role.name == HOST.name;
        }
        let (ways, flows, outsides) = Default::default();
        let inventory = inventory.clone();
        Self { settings, now: Time::ZERO, peers, inventory, links, ways, flows, outsides }
    }

    /// A host tells where the data of one of its flows go.
    fn learn(&mut self, name: Name, Reported { key, ports }: Reported) {
        // What a host calls a port counts only where it does not number its own.
        let ports: Vec<PortId> =
            ports.into_iter().filter_map(|port| self.inventory.port_of(name.0, port)).collect();
        let ports = if ports.is_empty() { self.way_of(name.0, &key).unwrap_or_default() } else { ports };
        let is_inside = |port: &PortId| self.links.contains_key(port);
        let ends = |port: PortId| self.inventory.port(port).map(|port| (port.from, port.to));
        let Some(first) = ports.iter().position(is_inside) else { return };
        let last = ports.iter().rposition(is_inside).unwrap_or(first);
        // The end of the way inside the domain that is not the controlled host is the edge router; beyond it lies the outside.
        let is_sent = ports.first().and_then(|port| ends(*port)).is_some_and(|(from, _)| from == name.0);
        let (edge, outside) = if is_sent {
            (ends(ports[last]).map(|(_, to)| to), ports.get(last + 1))
        } else {
            (ends(ports[first]).map(|(from, _)| from), first.checked_sub(1).map(|at| &ports[at]))
        };
        let Some(edge) = edge else { return };
        let outside = outside.copied().filter(|port| ends(*port).is_some());
        if let Some(port) = outside {
            self.outsides.entry(port).or_default();
        }
        let links: Vec<PortId> = ports.into_iter().filter(|port| self.links.contains_key(port)).collect();
        let before = self.ways.get(&name).map(|way| way.links.as_slice());
        if before != Some(links.as_slice()) {
            for port in before.unwrap_or_default().iter().chain(&links) {
                self.links.entry(*port).and_modify(|link| link.changed = self.now);
            }
        }
        let is_told = key.from.1 != 0 && key.to.1 != 0;
        let is_same = |(other, way): (&Name, &Way)| way.key == Some(key) && *other != name && !way.is_second;
        let is_second = is_told && self.ways.iter().any(is_same);
        self.ways.insert(name, Way { links, edge, outside, key: is_told.then_some(key), is_second });
    }

    /// Of a flow at `host`, which does not know the ports on the way: by its addresses.
    fn way_of(&self, host: NodeId, key: &FlowKey) -> Option<Vec<PortId>> {
        let (from, to) = (self.inventory.node_at(key.from.0)?, self.inventory.node_at(key.to.0)?);
        // One within the host, or of an address that is not known to be the host's, takes no way that is known.
        if (from == host) == (to == host) { None } else { self.inventory.way(from, to) }
    }

    fn count(&mut self, router: NodeId, links: &[LinkCount]) {
        for count in links {
            let Some(port) = self.inventory.port_of(router, count.port) else { continue };
            let Some(link) = self.links.get_mut(&port) else { continue };
            link.flows = (count.flows != NOT_COUNTED).then_some(count.flows);
            link.backlog = count.backlog;
            let before = link.sent.replace((self.now, count.sent));
            if self.settings.allocator == AllocatorKind::MaxMin
                && let Some((then, sent)) = before
                // A router that restarted counts from zero.
                && let Some(fresh) = count.sent.get().checked_sub(sent.get())
            {
                self.tell_others(port, self.now.since(then), Bytes::new(fresh));
            }
        }
    }

    /// max-min: what of the bytes that a link has sent within `interval` the flows under control do not explain.
    fn tell_others(&mut self, port: PortId, interval: Span, fresh: Bytes) {
        let own = self.ways.iter().filter(|(_, way)| way.links.contains(&port) && !way.is_second);
        let used = own.map(|(name, _)| self.flows.get(name).and_then(|flow| flow.sample));
        // None while one of them has not been measured.
        let Some(used) = used.collect::<Option<Vec<f64>>>() else { return };
        let Some(link) = self.links.get_mut(&port) else { return };
        let settled = self.settings.measurement.mul_f64(SETTLED_INTERVALS);
        let seconds = interval.as_secs_f64();
        if self.now.since(link.changed) < settled || seconds <= 0.0 {
            return;
        }
        let weight = (seconds / OTHERS_SECONDS).min(1.0);
        let others = fresh.get() as f64 * 8.0 / seconds - used.iter().sum::<f64>();
        link.others = weight * others + (1.0 - weight) * link.others;
        link.foreign = link.flows.unwrap_or(0).saturating_sub(used.len() as u32);
    }

    /// Every link of the domain has been reported once.
    fn is_counted(&self) -> bool {
        self.links.values().all(|link| link.flows.is_some())
    }

    /// The flow has ended, or its host is gone.
    fn forget(&mut self, is_it: impl Fn(&Name) -> bool) {
        self.flows.retain(|name, _| !is_it(name));
        let links = &mut self.links;
        let now = self.now;
        self.ways.retain(|name, way| {
            let stays = !is_it(name);
            for port in way.links.iter().filter(|_| !stays) {
                links.entry(*port).and_modify(|link| link.changed = now);
            }
            stays
        });
        // The host at the other end may still tell of it.
        let mut told = BTreeSet::new();
        for way in self.ways.values_mut().filter(|way| way.key.is_some()) {
            way.is_second = !told.insert(way.key);
        }
    }

    /// `measurements` are of all live flows of `host` with numbers from `first` to `last`.
    fn measure(&mut self, host: NodeId, (first, last): (FlowId, FlowId), measurements: Vec<FlowMeasurement>) {
        let live: BTreeSet<FlowId> = measurements.iter().map(|m| m.flow).collect();
        self.forget(|(of, flow)| *of == host && (first..=last).contains(flow) && !live.contains(flow));
        let before = self.peers.get_mut(&host).map(|peer| std::mem::take(&mut peer.sums));
        let mut sums = before.filter(|_| first != LOWEST).unwrap_or_default();
        let any_contested = self.links.values().any(|link| link.contested);
        for m in measurements {
            let name = (host, m.flow);
            if let Some(way) = m.way {
                self.learn(name, way);
            }
            let flow = self.flows.entry(name).or_default();
            let Some(throughput) = m.throughput else { continue };
            let sample = throughput.bits_per_sec() as f64;
            flow.sample = Some(sample);
            let mut weight = self.settings.alpha;
            if self.settings.allocator == AllocatorKind::MaxMin {
                let per_interval =
                    flow.given * self.settings.measurement.as_secs_f64() / (8.0 * m.frame.get() as f64);
                weight = weight.min((per_interval / AVERAGED_SEGMENTS).max(0.02));
                let could_use = flow.least_given[0].min(flow.least_given[1]);
                flow.could_use = weight * could_use + (1.0 - weight) * flow.could_use;
                flow.least_given = [flow.given, flow.least_given[0]];
                let way = self.ways.get(&name).filter(|way| !any_contested || !way.is_contested(&self.links));
                if let Some((way, outside)) = way.and_then(|way| Some((way, way.outside?))) {
                    let sum = sums.entry(outside).or_default();
                    sum.inside.extend(&way.links);
                    sum.used += sample;
                    sum.grain += 8.0 * m.frame.get() as f64 / self.settings.measurement.as_secs_f64();
                    sum.could_use += could_use;
                    if sample > 0.0 {
                        sum.timed += 1;
                        sum.queueing += m.queueing.as_secs_f64();
                    }
                }
            }
            // E_f <- alpha R_th + (1 - alpha) E_f.
            flow.used = Some(flow.used.map_or(sample, |used| weight * sample + (1.0 - weight) * used));
        }
        if last != HIGHEST {
            self.peers.entry(host).and_modify(|peer| peer.sums = sums);
            return;
        }
        // Queueing that every link to the outside sees, of those whose flows share a link of the domain, is the domain's own.
        let mut least: BTreeMap<PortId, (u32, f64)> = BTreeMap::new();
        for sum in sums.values() {
            for link in &sum.inside {
                let (many, least) = least.entry(*link).or_insert((0, f64::INFINITY));
                *many += 1;
                *least = sum.mean_queueing().map_or(*least, |queueing| least.min(queueing));
            }
        }
        for (port, sum) in sums {
            let inside =
                sum.inside.iter().filter_map(|link| Some(least.get(link)?.1)).fold(f64::INFINITY, f64::min);
            let seen = if inside.is_finite() { inside } else { 0.0 };
            // A flow that began while packets waited takes a part of their wait for the way's. Routers know better.
            let links = sum.inside.iter().filter_map(|link| self.links.get(link));
            let told = links.fold(Span::ZERO, |sum, link| sum + link.capacity.time_for(link.backlog));
            if let Some(outside) = self.outsides.get_mut(&port) {
                outside.measure(&sum, seen.max(told.as_secs_f64()), self.settings.alpha);
            }
        }
        // One alone may queue outside.
        let told = least.into_iter().filter(|(_, (many, least))| *many > 1 && least.is_finite());
        let queueing = told.map(|(link, (_, least))| (link, least)).collect();
        self.peers.entry(host).and_modify(|peer| peer.queueing = queueing);
    }

    /// max-min: bits that wait before a link of the domain: as its router tells, or by how long flows wait where none does.
    fn waiting(&self, port: PortId, link: &Link) -> f64 {
        if link.sent.is_some() || link.backlog > Bytes::ZERO {
            return link.backlog.get() as f64 * 8.0;
        }
        let told = self.peers.values().filter(|peer| !peer.away).filter_map(|peer| peer.queueing.get(&port));
        let least = told.copied().reduce(f64::min).unwrap_or_default();
        (least - Outside::QUEUEING.as_secs_f64()).max(0.0) * link.capacity.bits_per_sec() as f64
    }

    /// Sends shares to every flow, or to `only` one.
    fn allocate(&mut self, only: Option<Name>, out: &mut Outbox) {
        let rates = match self.settings.allocator {
            AllocatorKind::Paper if self.is_counted() => self.paper_rates(),
            AllocatorKind::Paper => return,
            AllocatorKind::MaxMin => self.max_min_rates(),
        };
        let paced = self.settings.allocator == AllocatorKind::MaxMin;
        let is_shared = paced && self.links.values().any(|link| link.foreign > 0);
        let mut by_host: BTreeMap<NodeId, Vec<Share>> = BTreeMap::new();
        for (flow, rate) in rates.into_iter().filter(|(flow, _)| only.is_none_or(|only| only == *flow)) {
            if let Some(state) = self.flows.get_mut(&flow) {
                state.given = rate;
                state.least_given[0] = state.least_given[0].min(rate);
                let (host, flow) = flow;
                let rate = Rate::from_bits_per_sec_f64(rate);
                let queueing = if is_shared { self.shared_queueing((host, flow)) } else { Span::ZERO };
                let share = Share { flow, rate, paced, queueing };
                by_host.entry(host).or_default().push(share);
            }
        }
        for (to, shares) in by_host {
            for shares in shares.chunks(MOST_SHARES) {
                out.send(to, &Word::Shares(shares.to_vec()));
            }
        }
    }

    /// max-min: what a flow waits in queues that flows of others fill, as those links were last reported.
    fn shared_queueing(&self, name: Name) -> Span {
        let Some(way) = self.ways.get(&name) else { return Span::ZERO };
        let links = way.links.iter().filter_map(|port| self.links.get(port));
        let shared = links.filter(|link| link.foreign > 0);
        shared.fold(Span::ZERO, |sum, link| sum + link.capacity.time_for(link.backlog))
    }

    /// Sect. 3: fair share, then reallocation.
    fn paper_rates(&self) -> Vec<(Name, f64)> {
        let settings = &self.settings;
        let mut ids = Vec::with_capacity(self.flows.len());
        let mut claimants = Vec::with_capacity(self.flows.len());
        for (&id, flow) in &self.flows {
            let Some(way) = self.ways.get(&id) else { continue };
            let counts = way.links.iter().map(|port| {
                let link = &self.links[port];
                (link.capacity, link.flows.unwrap_or(1))
            });
            let Some((share, bottleneck)) = fair_share(counts) else { continue };
            let scope = match settings.scope {
                Scope::BottleneckLink => way.links[bottleneck].0,
                Scope::EdgeRouter => way.edge.0,
            };
            let under =
                |used: &f64| settings.reallocation && settings.under_use.test(*used, share, settings.beta);
            ids.push(id);
            claimants.push(Claimant { scope, share, unused_at: flow.used.filter(under) });
        }
        ids.into_iter().zip(reallocate(&claimants)).collect()
    }

    /// Water-filling with the measured use of limited flows as their demand. A limited flow may grow by the head-room,
    /// but the head-room is not kept free for it: the others get all that is not used.
    fn max_min_rates(&mut self) -> Vec<(Name, f64)> {
        // The links of the domain, then the limited ways into it and out of it.
        let ports: Vec<PortId> = self.links.keys().copied().collect();
        // How many flows there are besides, and the most that one of them uses.
        let others = |link: &Link| {
            (link.foreign, self.settings.headroom * link.others.max(0.0) / f64::from(link.foreign.max(1)))
        };
        let others: Vec<(u32, f64)> = self.links.values().map(others).collect();
        let capacity = |((port, link), (flows, _)): ((&PortId, &Link), &(u32, f64))| {
            let full = link.capacity.bits_per_sec() as f64;
            // A queue of the others' is not worked off by giving out less. Without flows, the others are acknowledgements:
            // nobody shares with them.
            let drain = self.waiting(*port, link) / DRAIN_SECONDS;
            let taken = if *flows == 0 { drain + link.others.max(0.0) } else { 0.0 };
            (full * self.settings.utilization - taken).max(full / 2.0)
        };
        let mut capacities: Vec<f64> = self.links.iter().zip(&others).map(capacity).collect();
        let alone: Vec<u32> = (0..ports.len() as u32).collect();
        let mut limits: BTreeMap<PortId, u32> = BTreeMap::new();
        for (port, outside) in &self.outsides {
            if let Some(limit) = outside.limit {
                limits.insert(*port, capacities.len() as u32);
                capacities.push(limit);
            }
        }
        let any_contested = self.links.values().any(|link| link.contested);
        let flows: Vec<(Name, Option<f64>, Vec<u32>)> = self
            .flows
            .iter()
            .filter_map(|(&id, flow)| {
                let way = self.ways.get(&id).filter(|way| !way.is_second)?;
                let inside =
                    way.links.iter().filter_map(|port| ports.binary_search(port).ok().map(|i| i as u32));
                let is_contested = any_contested && way.is_contested(&self.links);
                let outside =
                    way.outside.and_then(|port| limits.get(&port)).copied().filter(|_| !is_contested);
                let limited = flow.limited_at().filter(|_| !is_contested);
                Some((id, limited, inside.chain(outside).collect()))
            })
            .collect();
        let mut demands: Vec<Demand<'_>> = flows
            .iter()
            .map(|(_, limited, links)| Demand { links, most: limited.unwrap_or(f64::INFINITY), flows: 1 })
            .collect();
        let beside = || (0..).zip(&others).filter(|(_, (flows, _))| *flows > 0);
        demands.extend(beside().map(|(at, &(flows, most))| Demand { links: &alone[at..=at], most, flows }));
        let mut rates = max_min(&capacities, &demands);
        let theirs = rates.split_off(flows.len());
        let level = rates.iter().copied().fold(0.0, f64::max);
        let grown = |((id, limited, _), rate): (&(Name, Option<f64>, Vec<u32>), f64)| {
            let Some(used) = limited else { return (*id, rate) };
            let most = (used * self.settings.headroom).max(level * LEAST_PART);
            (*id, most.clamp(rate.min(level), level))
        };
        let given: Vec<(Name, f64)> = flows.iter().zip(rates.iter().copied()).map(grown).collect();
        let mut contested = vec![false; ports.len()];
        for ((at, (_, most)), rate) in beside().zip(theirs) {
            contested[at] = rate < *most;
        }
        for (link, contested) in self.links.values_mut().zip(contested) {
            link.contested = contested;
        }
        // A limit that no longer binds is forgotten.
        let mut loads = vec![0.0; capacities.len()];
        for ((_, _, links), rate) in flows.iter().zip(&rates) {
            for &link in links {
                loads[link as usize] += rate;
            }
        }
        for (port, at) in limits {
            let slack = loads[at as usize] < 0.99 * capacities[at as usize];
            if let Some(outside) = self.outsides.get_mut(&port).filter(|_| slack) {
                outside.limit = None;
            }
        }
        let mut given = given;
        self.give_seconds(&mut given);
        given
    }
}

impl Allocator {
    /// Both ends of a flow have its rate.
    fn give_seconds(&self, given: &mut Vec<(Name, f64)>) {
        let seconds = self.ways.iter().filter(|(name, way)| way.is_second && self.flows.contains_key(name));
        let mut rates: Option<BTreeMap<FlowKey, f64>> = None;
        for (name, way) in seconds {
            let rates = rates.get_or_insert_with(|| {
                let rate = |(name, rate): &(Name, f64)| Some((self.ways.get(name)?.key?, *rate));
                given.iter().filter_map(rate).collect()
            });
            given.extend(way.key.and_then(|key| rates.get(&key)).map(|rate| (*name, *rate)));
        }
    }

    /// What is known of the ports of a router that is gone is of no use.
    fn forget_ports(&mut self, router: NodeId) {
        for (port, link) in &mut self.links {
            if self.inventory.port(*port).is_some_and(|port| port.from == router) {
                *link = Link {
                    capacity: link.capacity,
                    flows: link.flows,
                    backlog: Bytes::ZERO,
                    sent: None,
                    others: 0.0,
                    foreign: 0,
                    changed: link.changed,
                    contested: false,
                };
            }
        }
    }
}

impl Controller for Allocator {
    fn on(&mut self, now: Time, observation: &Observation<'_>, out: &mut Outbox) {
        self.now = now;
        let is_paper = self.settings.allocator == AllocatorKind::Paper;
        let message = match observation {
            Observation::Message(message) => message,
            Observation::Left(node) => {
                self.peers.entry(*node).and_modify(|peer| peer.away = true);
                self.forget_ports(*node);
                return self.forget(|(host, _)| host == node);
            }
            Observation::Joined(node) => {
                self.peers.entry(*node).and_modify(|peer| peer.away = false);
                return;
            }
            _ => return,
        };
        let host = message.from;
        let Some(&Peer { counts, measures, .. }) = self.peers.get(&host).filter(|peer| !peer.away) else {
            return;
        };
        // A host's word counts for its own flows only.
        match message.read().filter(|word| if matches!(word, Word::Links(_)) { counts } else { measures }) {
            Some(Word::Links(links)) => self.count(host, &links),
            Some(Word::Flows(flows)) => self.measure(host, (LOWEST, HIGHEST), flows),
            Some(Word::SomeFlows { first, last, flows }) => {
                self.measure(host, (first, last), flows);
                if last != HIGHEST {
                    return;
                }
            }
            Some(Word::Started(flow, way)) => {
                let name = (host, flow);
                self.learn(name, way);
                // The paper's allocator learns of flows from the next report.
                if is_paper {
                    return;
                }
                self.flows.insert(name, Flow::default());
                let given: f64 = self.flows.values().map(|flow| flow.given).sum();
                let largest = self.links.values().map(|link| link.capacity.bits_per_sec()).max().unwrap_or(0);
                let only = Some(name).filter(|_| given <= OVERBOOKED * largest as f64);
                return self.allocate(only, out);
            }
            Some(Word::Ended(_)) if is_paper => return,
            Some(Word::Ended(flow)) => self.forget(|name| *name == (host, flow)),
            Some(Word::Shares(_)) | None => return,
        }
        self.allocate(None, out);
    }

    fn wakeup(&self) -> Option<Time> {
        None
    }
}

#[cfg(test)]
mod tests {
    use core::net::{IpAddr, Ipv4Addr};

    use super::*;
    use crate::control::{Action, Message, body};
    use crate::params::{Params, Value};
    use crate::prefix::Prefix;
    use crate::scheme::bas::{ALLOCATOR, DEF};

    const SERVER: NodeId = NodeId(0);
    /// The link into the domain, and the link to the server.
    const ACCESS: PortId = PortId(0);
    const LAST: PortId = PortId(1);

    fn mbit(n: f64) -> Rate {
        Rate::from_bits_per_sec_f64(n * 1e6)
    }

    /// Flows come from outside over one router to the server, 100 Mbit/s each link.
    fn allocator(kind: &str) -> Allocator {
        let mut inventory = Inventory::default();
        let [server, router, outside] = ["server", "r", "out"].map(|name| inventory.join(name));
        assert_eq!(inventory.add_port("out->r", outside, router, mbit(100.0)), ACCESS);
        assert_eq!(inventory.add_port("r->server", router, server, mbit(100.0)), LAST);
        let mut params = Params::defaults(DEF.keys);
        params.set("allocator", Value::Text(kind.into()));
        let settings = Settings::new(&params);
        let peers = vec![(SERVER, &HOST), (SERVER, &ROUTER)];
        let place = Place { peers, ports: vec![LAST], ..Place::new(&ALLOCATOR, SERVER, params) };
        Allocator::new(settings, &inventory, &place)
    }

    fn way() -> Reported {
        let any = (IpAddr::from(Ipv4Addr::UNSPECIFIED), 0);
        Reported { key: FlowKey { from: any, to: any, protocol: 6 }, ports: vec![ACCESS, LAST] }
    }

    fn tell(allocator: &mut Allocator, word: &Word) -> Vec<(u32, f64)> {
        let mut out = Outbox::default();
        let message = Message { from: SERVER, scheme: DEF.code, body: body(word) };
        allocator.on(Time::ZERO, &Observation::Message(&message), &mut out);
        let mut rates = Vec::new();
        for action in out.drain() {
            if let Action::Send { body, .. } = action
                && let Ok(Word::Shares(shares)) = postcard::from_bytes(&body)
            {
                rates.extend(shares.iter().map(|s| (s.flow.0, s.rate.bits_per_sec() as f64 / 1e6)));
            }
        }
        rates
    }

    fn count(flows: u32) -> Word {
        Word::Links(vec![LinkCount { port: LAST, flows, backlog: Bytes::ZERO, sent: Bytes::ZERO }])
    }

    fn report(throughputs: &[f64]) -> Word {
        let measurement = |(f, t): (usize, &f64)| FlowMeasurement {
            flow: FlowId(f as u32),
            throughput: Some(mbit(*t)),
            queueing: Span::ZERO,
            frame: Bytes::new(1502),
            way: Some(way()),
        };
        Word::Flows(throughputs.iter().enumerate().map(measurement).collect())
    }

    /// Measurements in parts count as one report: shares follow the last part, and a flow in no part has ended.
    #[test]
    fn measurements_come_in_parts() {
        let mut allocator = allocator("max-min");
        let measurement = |flow| FlowMeasurement {
            flow: FlowId(flow),
            throughput: None,
            queueing: Span::ZERO,
            frame: Bytes::new(1502),
            way: Some(way()),
        };
        let part = |first, last, flows: &[u32]| Word::SomeFlows {
            first: FlowId(first),
            last: FlowId(last),
            flows: flows.iter().map(|flow| measurement(*flow)).collect(),
        };
        assert_eq!(tell(&mut allocator, &part(0, 9, &[0, 4, 9])), []);
        let given = tell(&mut allocator, &part(10, u32::MAX, &[10]));
        assert_eq!(given, [(0, 25.0), (4, 25.0), (9, 25.0), (10, 25.0)]);
        assert_eq!(tell(&mut allocator, &part(0, 9, &[0, 9])), []);
        // A part that is lost changes nothing of its flows.
        assert_eq!(tell(&mut allocator, &part(11, u32::MAX, &[])).len(), 3);
    }

    /// More than fit into one datagram.
    #[test]
    fn many_shares_come_in_parts() {
        let mut allocator = allocator("max-min");
        for flow in 0..MOST_SHARES as u32 + 1 {
            allocator.flows.insert((SERVER, FlowId(flow)), Flow::default());
            allocator.learn((SERVER, FlowId(flow)), way());
        }
        let mut out = Outbox::default();
        allocator.allocate(None, &mut out);
        let size = |action| if let Action::Send { body, .. } = action { body.len() } else { usize::MAX };
        let sizes: Vec<usize> = out.drain().map(size).collect();
        assert!(sizes.len() == 2 && sizes.iter().all(|size| *size < 65_000), "{sizes:?}");
    }

    #[test]
    fn nothing_is_given_before_every_link_is_counted() {
        let mut allocator = allocator("bas");
        assert_eq!(tell(&mut allocator, &report(&[50.0, 50.0])), []);
        assert_eq!(tell(&mut allocator, &count(2)), [(0, 50.0), (1, 50.0)]);
    }

    /// Four flows of share 25 Mbit/s. Flow 0 falls from 25 to 5: E = 0.4 5 + 0.6 25 = 17 < 0.8 25, so its 8 are
    /// divided over three: 27.667. Once more: E = 0.4 5 + 0.6 17 = 12.2, and 12.8 / 3 = 4.267 more.
    #[test]
    fn spare_follows_the_moving_average() {
        let mut allocator = allocator("bas");
        tell(&mut allocator, &count(4));
        tell(&mut allocator, &report(&[25.0; 4]));
        let fallen = report(&[5.0, 25.0, 25.0, 25.0]);
        let rates = tell(&mut allocator, &fallen);
        assert_eq!(rates[0], (0, 25.0));
        assert!((rates[1].1 - (25.0 + 8.0 / 3.0)).abs() < 1e-5, "{rates:?}");
        let rates = tell(&mut allocator, &fallen);
        assert!((rates[1].1 - (25.0 + 12.8 / 3.0)).abs() < 1e-5, "{rates:?}");
    }

    #[test]
    fn max_min_answers_a_new_flow_at_once_and_the_others_when_overbooked() {
        let mut allocator = allocator("max-min");
        let start = |f| Word::Started(FlowId(f), way());
        assert_eq!(tell(&mut allocator, &start(0)), [(0, 100.0)]);
        assert_eq!(tell(&mut allocator, &start(1)), [(1, 50.0)]);
        // 150 Mbit/s are out: more than 1.4 times the link, so every flow gets a new share.
        assert_eq!(tell(&mut allocator, &start(2)).len(), 3);
        assert_eq!(tell(&mut allocator, &Word::Ended(FlowId(0))), [(1, 50.0), (2, 50.0)]);
    }

    /// Flows that together get 60 of the 100 Mbit/s they were given are limited on their way in; once they follow
    /// again, the limit is lifted in growing steps until it does not bind.
    #[test]
    fn a_limited_way_in_is_found_and_forgotten() {
        let mut allocator = allocator("max-min");
        for f in 0..2 {
            tell(&mut allocator, &Word::Started(FlowId(f), way()));
        }
        for _ in 0..20 {
            tell(&mut allocator, &report(&[30.0, 30.0]));
        }
        let limit = allocator.outsides[&ACCESS].limit;
        assert!(limit.is_some_and(|limit| (60e6..63e6).contains(&limit)), "{limit:?}");
        for _ in 0..60 {
            let given: Vec<f64> = allocator.flows.values().map(|flow| flow.given / 1e6).collect();
            tell(&mut allocator, &report(&given));
        }
        assert_eq!(allocator.outsides[&ACCESS].limit, None);
        assert!(allocator.flows.values().all(|flow| flow.given > 49e6));
    }

    /// Reports of the last link, a second apart: `sent` in Mbit.
    fn sent(allocator: &mut Allocator, seconds: u64, flows: u32, sent: f64) {
        let report = LinkCount {
            port: LAST,
            flows,
            backlog: Bytes::ZERO,
            sent: Bytes::new((sent * 1e6 / 8.0) as u64),
        };
        allocator.now = Time::ZERO + Span::from_secs(seconds);
        allocator.count(SERVER, &[report]);
    }

    /// Acknowledgements of the other direction take 4 of 100 Mbit/s: two flows share 96.
    #[test]
    fn acknowledgements_take_their_part_of_a_link() {
        let mut allocator = allocator("max-min");
        for f in 0..2 {
            tell(&mut allocator, &Word::Started(FlowId(f), way()));
        }
        tell(&mut allocator, &report(&[48.0, 48.0]));
        sent(&mut allocator, 1, 2, 0.0);
        sent(&mut allocator, 2, 2, 100.0);
        assert_eq!(tell(&mut allocator, &report(&[48.0, 48.0])), [(0, 48.0), (1, 48.0)]);
        // The router restarts: its first count gives no rate.
        sent(&mut allocator, 3, 2, 1.0);
        assert!((allocator.links[&LAST].others - 4e6).abs() < 1.0);
    }

    /// Two flows not under control take 60 of 100 Mbit/s and leave 20 each to two under control. Every flow's part is 25, and
    /// one that falls short is not taken for limited elsewhere. When the former use little, the latter get the rest.
    #[test]
    fn flows_of_others_have_their_part_and_no_more() {
        let mut allocator = allocator("max-min");
        for f in 0..2 {
            tell(&mut allocator, &Word::Started(FlowId(f), way()));
        }
        let mut rates = Vec::new();
        for second in 0..20 {
            sent(&mut allocator, second, 4, second as f64 * 100.0);
            rates = tell(&mut allocator, &report(&[20.0, 20.0]));
        }
        assert_eq!(rates, [(0, 25.0), (1, 25.0)]);
        // They go down to 8 Mbit/s, and those under control take what they are given.
        let mut total = 1900.0;
        for second in 20..60 {
            let own: Vec<f64> = rates.iter().map(|(_, rate)| *rate).collect();
            total += own.iter().sum::<f64>() + 8.0;
            rates = tell(&mut allocator, &report(&own));
            sent(&mut allocator, second, 4, total);
        }
        // 8 Mbit/s, and a quarter more so that they can grow.
        assert!(rates.iter().all(|(_, rate)| (44.0..=46.0).contains(rate)), "{rates:?}");
    }

    /// A download leaves the domain at the router after its last link there, and what limits it outside is the link after that.
    #[test]
    fn the_edge_is_the_end_that_is_not_the_host() {
        let mut inventory = Inventory::default();
        let [server, first, edge, outside] = ["server", "r1", "r2", "out"].map(|name| inventory.join(name));
        let mut ports = Vec::new();
        for (from, to) in [(server, first), (first, edge), (edge, outside)] {
            for (from, to) in [(from, to), (to, from)] {
                ports.push(inventory.add_port(&format!("{}->{}", from.0, to.0), from, to, mbit(100.0)));
            }
        }
        let params = Params::defaults(DEF.keys);
        let peers = vec![(server, &HOST)];
        let place = Place { peers, ports: ports[..4].to_vec(), ..Place::new(&ALLOCATOR, server, params) };
        let mut allocator = Allocator::new(Settings::new(&place.params), &inventory, &place);
        let key = way().key;
        let down = vec![ports[0], ports[2], ports[4]];
        let up = vec![ports[5], ports[3], ports[1]];
        allocator.learn((server, FlowId(0)), Reported { key, ports: down });
        allocator.learn((server, FlowId(1)), Reported { key, ports: up });
        for (flow, outside) in [(0, ports[4]), (1, ports[5])] {
            let way = &allocator.ways[&(server, FlowId(flow))];
            assert_eq!((way.edge, way.outside, way.links.len()), (edge, Some(outside), 2), "flow {flow}");
        }
    }

    /// A host that knows no ports tells addresses: the other end's is in a network behind a node.
    #[test]
    fn the_way_of_a_flow_follows_from_its_addresses() {
        let mut inventory = Inventory::default();
        let [server, edge, outside] = ["server", "r", "out"].map(|name| inventory.join(name));
        let mut ports = Vec::new();
        for (from, to) in [(server, edge), (edge, server), (edge, outside), (outside, edge)] {
            ports.push(inventory.add_port(&format!("{}->{}", from.0, to.0), from, to, mbit(100.0)));
        }
        let (own, far) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([192, 0, 2, 7]));
        inventory.add_network(Prefix::parse("10.0.0.1").unwrap(), server);
        inventory.add_network(Prefix::parse("0.0.0.0/0").unwrap(), outside);
        let params = Params::defaults(DEF.keys);
        let peers = vec![(server, &HOST)];
        let place = Place { peers, ports: ports[..2].to_vec(), ..Place::new(&ALLOCATOR, server, params) };
        let mut allocator = Allocator::new(Settings::new(&place.params), &inventory, &place);
        for (flow, from, to, link, beyond) in [(0, own, far, 0, 2), (1, far, own, 1, 3)] {
            let key = FlowKey { from: (from, 80), to: (to, 7000), protocol: 6 };
            allocator.learn((server, FlowId(flow)), Reported { key, ports: Vec::new() });
            let way = &allocator.ways[&(server, FlowId(flow))];
            assert_eq!(
                (way.links.as_slice(), way.edge, way.outside),
                (&[ports[link]][..], edge, Some(ports[beyond]))
            );
        }
        // Within the host, and of an address of the host's that is not known: no link is charged.
        for (from, to) in [(own, own), (far, IpAddr::from([172, 17, 0, 2]))] {
            let key = FlowKey { from: (from, 80), to: (to, 7000), protocol: 6 };
            allocator.learn((server, FlowId(3)), Reported { key, ports: Vec::new() });
            assert!(!allocator.ways.contains_key(&(server, FlowId(3))), "{from} to {to}");
        }
        // Nobody knows where this address is.
        let nowhere = FlowKey { from: (own, 80), to: (IpAddr::from([0u16; 8]), 1), protocol: 6 };
        allocator.learn((server, FlowId(2)), Reported { key: nowhere, ports: Vec::new() });
        assert!(!allocator.ways.contains_key(&(server, FlowId(2))));
    }

    /// Both hosts tell of the flow between them: it is one, and both ends are given all of the link.
    #[test]
    fn a_flow_between_two_hosts_counts_once() {
        let mut inventory = Inventory::default();
        let [one, edge, other] = ["one", "r", "other"].map(|name| inventory.join(name));
        let mut ports = Vec::new();
        for (from, to) in [(one, edge), (edge, other)] {
            ports.push(inventory.add_port("", from, to, mbit(100.0)));
        }
        let addresses = [IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2])];
        for (node, address) in [one, other].into_iter().zip(addresses) {
            inventory.add_network(Prefix::parse(&address.to_string()).unwrap(), node);
            inventory.number_by_itself(node, Vec::new());
        }
        let mut params = Params::defaults(DEF.keys);
        params.set("allocator", Value::Text("max-min".into()));
        let peers = vec![(one, &HOST), (other, &HOST)];
        let place = Place { peers, ports, ..Place::new(&ALLOCATOR, edge, params) };
        let mut allocator = Allocator::new(Settings::new(&place.params), &inventory, &place);
        let key = FlowKey { from: (addresses[0], 4000), to: (addresses[1], 80), protocol: 6 };
        let mut tell = |from: NodeId, word: &Word| {
            let mut out = Outbox::default();
            let message = Message { from, scheme: DEF.code, body: body(word) };
            allocator.on(Time::ZERO, &Observation::Message(&message), &mut out);
            let rate = |action| match action {
                Action::Send { body, .. } => match postcard::from_bytes(&body) {
                    Ok(Word::Shares(shares)) => shares[0].rate.bits_per_sec() / 1_000_000,
                    other => panic!("{other:?}"),
                },
                other => panic!("{other:?}"),
            };
            out.drain().map(rate).collect::<Vec<_>>()
        };
        // What a host says of ports is not believed.
        let way = Reported { key, ports: vec![PortId(7)] };
        assert_eq!(tell(one, &Word::Started(FlowId(0), way.clone())), [100]);
        assert_eq!(tell(other, &Word::Started(FlowId(5), way)), [100]);
        let nothing: Vec<u64> = Vec::new();
        assert_eq!(tell(one, &count(u32::MAX)), nothing, "a host is no router");
        assert_eq!(tell(one, &Word::Ended(FlowId(0))), [100], "the other end still tells of it");
    }

    #[test]
    fn the_flows_of_a_host_that_is_gone_are_forgotten() {
        let mut allocator = allocator("max-min");
        tell(&mut allocator, &Word::Started(FlowId(0), way()));
        allocator.on(Time::ZERO, &Observation::Left(SERVER), &mut Outbox::default());
        assert!(allocator.flows.is_empty() && allocator.ways.is_empty());
    }

    #[test]
    fn a_queue_in_the_domain_is_worked_off() {
        let mut allocator = allocator("max-min");
        tell(&mut allocator, &Word::Started(FlowId(0), way()));
        let backlog = Bytes::new(625_000);
        let link = LinkCount { port: LAST, flows: 1, backlog, sent: Bytes::ZERO };
        // 5 Mbit in half a second: 10 Mbit/s less.
        assert_eq!(tell(&mut allocator, &Word::Links(vec![link])), [(0, 90.0)]);
    }

    fn told(flows: u32, used: f64, could_use: f64, queueing_ms: f64) -> Sum {
        Sum {
            timed: flows,
            used,
            could_use,
            queueing: queueing_ms * 1e-3,
            grain: 0.0,
            inside: BTreeSet::from([LAST]),
        }
    }

    /// By hand, with alpha 0.5: averages, the limit below what passes while packets queue outside, and steps that double.
    #[test]
    fn the_limit_of_a_way_in_follows_what_passes() {
        let mut outside = Outside::default();
        outside.measure(&told(2, 80.0, 100.0, 20.0), 0.004, 0.5);
        // 10 ms each, 4 of them the domain's: 6 ms outside are more than 5.
        assert_eq!((outside.used, outside.could_use), (40.0, 50.0));
        assert_eq!((outside.limit, outside.step), (Some(36.0), 0.01));
        // Not followed: the least step over what passes.
        outside.measure(&told(2, 80.0, 100.0, 17.0), 0.004, 0.5);
        assert_eq!((outside.used, outside.could_use), (60.0, 75.0));
        assert_eq!((outside.limit, outside.step), (Some(60.0 * 1.02), 0.02));
        // Followed: twice the step, up to a half.
        for step in [0.04, 0.08, 0.16, 0.32, 0.5, 0.5] {
            outside.measure(&told(2, outside.could_use, outside.could_use, 0.0), 0.0, 1.0);
            assert_eq!((outside.step, outside.limit), (step, Some(75.0 * (1.0 + step))));
        }
    }

    /// What waits 20 ms longer than elsewhere, however little is sent, is no queue outside: the limit rises again. A queue that
    /// has become shorter is one.
    #[test]
    fn what_sending_less_does_not_shorten_is_no_queue_outside() {
        let queueing = |shorter: f64| {
            let mut outside = Outside::default();
            let mut limits = Vec::new();
            for n in 0..60 {
                let milliseconds = (20.0 - shorter * f64::from(n)).max(8.0);
                let passes = outside.limit.map_or(100.0, |limit| limit.min(100.0));
                outside.measure(&told(1, passes, passes, milliseconds), 0.0, 0.5);
                limits.push(outside.limit.unwrap_or(f64::INFINITY));
            }
            limits
        };
        let stays = queueing(0.0);
        assert!(stays[..=20].is_sorted_by(|a, b| a >= b) && stays[20] < 50.0, "{stays:?}");
        assert!(stays[21..].is_sorted() && stays[59] > 100.0, "{stays:?}");
        let falls = queueing(0.5);
        assert!(falls[..=40].is_sorted_by(|a, b| a >= b), "{falls:?}");
    }

    /// What flows 0 and 1 send from two places waits 25 ms before the server, and what the server sends does not: neither
    /// direction is limited outside. No router tells of the queue, so that it is worked off by what the flows tell, but for 5 ms
    /// of it: 2 Mbit in half a second. What waits before one of the two only is outside, but where a router tells that it waits
    /// in the domain: the other flow began while as much waited, and knows no shorter time.
    #[test]
    fn each_direction_has_its_own_queue() {
        let mut inventory = Inventory::default();
        let [server, router, near, far] = ["server", "r", "near", "far"].map(|name| inventory.join(name));
        let mut port = |from: NodeId, to: NodeId| {
            inventory.add_port(&format!("{}->{}", from.0, to.0), from, to, mbit(100.0))
        };
        let (up, down) = (port(router, server), port(server, router));
        let ways =
            [vec![port(near, router), up], vec![port(far, router), up], vec![down, port(router, near)]];
        let mut params = Params::defaults(DEF.keys);
        params.set("allocator", Value::Text("max-min".into()));
        let settings = Settings::new(&params);
        let peers = vec![(server, &HOST), (server, &ROUTER)];
        let place = Place { peers, ports: vec![up, down], ..Place::new(&ALLOCATOR, server, params) };
        let mut allocator = Allocator::new(settings, &inventory, &place);
        let key = way().key;
        for (flow, ports) in (0..).zip(&ways) {
            tell(&mut allocator, &Word::Started(FlowId(flow), Reported { key, ports: ports.clone() }));
        }
        let flow = |flow: u32, rate, queueing| FlowMeasurement {
            flow: FlowId(flow),
            throughput: Some(mbit(rate)),
            queueing: Span::from_millis(queueing),
            frame: Bytes::new(1502),
            way: None,
        };
        let say = |allocator: &mut Allocator, first, second| {
            let flows = vec![flow(0, 50.0, first), flow(1, 50.0, second), flow(2, 100.0, 0)];
            let rates = tell(allocator, &Word::Flows(flows));
            let limits: Vec<bool> = ways
                .iter()
                .map(|way| {
                    way.iter().any(|port| allocator.outsides.get(port).is_some_and(|o| o.limit.is_some()))
                })
                .collect();
            (rates, limits)
        };
        for (queueing, rate) in [(0, 50.0), (5, 50.0), (25, 48.0), (0, 50.0)] {
            let wanted = vec![(0, rate), (1, rate), (2, 100.0)];
            assert_eq!(say(&mut allocator, queueing, queueing), (wanted, vec![false; 3]), "{queueing} ms");
        }
        for (backlog, is_limited) in [(312_500, false), (0, true)] {
            let backlog = Bytes::new(backlog);
            tell(
                &mut allocator,
                &Word::Links(vec![LinkCount { port: up, flows: 2, backlog, sent: Bytes::ZERO }]),
            );
            assert_eq!(say(&mut allocator, 0, 25).1, [false, is_limited, false], "{backlog:?}");
        }
    }

    /// Flow 0 is known to be limited at 10 Mbit/s: the other gets the rest, and flow 0 may grow by the head-room, but not
    /// below half of what the other has.
    #[test]
    fn a_limited_flow_keeps_room_to_grow() {
        let mut allocator = allocator("max-min");
        for f in 0..2 {
            tell(&mut allocator, &Word::Started(FlowId(f), way()));
        }
        let mut rates = Vec::new();
        for _ in 0..60 {
            rates = tell(&mut allocator, &report(&[10.0, 90.0]));
        }
        assert_eq!(rates.len(), 2);
        let [(_, limited), (_, free)] = rates[..] else { panic!("{rates:?}") };
        assert!((free - 90.0).abs() < 0.5, "{rates:?}");
        assert!((limited - free * LEAST_PART).abs() < 0.5, "{rates:?}");
    }
}
