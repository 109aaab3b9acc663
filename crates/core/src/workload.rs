//! Flow groups unrolled into flows, timelines into connections.

pub mod rounds;

use core::fmt::Write as _;
use core::net::Ipv4Addr;
use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::control::FlowKey;
use crate::id::NodeId;
use crate::rng::Stream;
use crate::scenario::{Arrivals, FlowGroup, Listed, OnOff, Pairing, RunPlan, Scenario, Transport};
use crate::time::{Span, Time};
use crate::topology::Topology;
use crate::units::{Bytes, Rate};

/// One connection or UDP stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FlowPlan {
    /// Position of its flow group in the scenario.
    group: u32,
    /// Position of the sending group or host in the flow group's `from`, and number among its flows.
    from: u32,
    member: u32,
    /// 1; 2, 3, ... for restarts.
    generation: u32,
    /// Sending host.
    pub src: NodeId,
    /// Receiving host.
    pub dst: NodeId,
    /// When it starts.
    pub start: Time,
    /// Without a stop: after all time.
    pub stop: Time,
}

/// For each flow the one whose ways it takes: the sets of flows that an incast's rounds use in turn take the same, all others
/// their own.
pub fn ways(plans: &[FlowPlan], groups: &[FlowGroup]) -> impl Iterator<Item = usize> {
    // Where the flows of this source begin, and those of this set.
    let (mut source, mut set) = (0, 0);
    plans.iter().enumerate().map(move |(i, plan)| {
        let is_new = plan.source() != plans[source].source();
        if is_new || plan.set() != plans[set].set() {
            set = i;
        }
        if is_new {
            source = i;
        }
        if plan.group(groups).rounds.is_some() { source + i - set } else { i }
    })
}

impl FlowPlan {
    /// Its flow group among `groups`, which are the scenario's.
    pub fn group<'a>(&self, groups: &'a [FlowGroup]) -> &'a FlowGroup {
        &groups[self.group as usize]
    }

    /// Position of its flow group in the scenario.
    pub fn group_index(&self) -> usize {
        self.group as usize
    }

    /// Positions of its flow group and, among that group's `from`, of the sending group or host.
    pub fn source(&self) -> (usize, usize) {
        (self.group as usize, self.from as usize)
    }

    /// Name of the sending group or host: the series it belongs to.
    pub fn entity<'a>(&self, groups: &'a [FlowGroup]) -> &'a str {
        &self.group(groups).from[self.from as usize]
    }

    /// `group-of-flows.from.number`, and `#2`, `#3`, ... for restarts.
    pub fn name(&self, groups: &[FlowGroup]) -> String {
        let mut name = String::new();
        self.write_name(groups, &mut name);
        name
    }

    /// Appends its [name](Self::name).
    pub fn write_name(&self, groups: &[FlowGroup], name: &mut String) {
        for part in [&self.group(groups).name, self.entity(groups)] {
            name.push_str(part);
            name.push('.');
        }
        // A string takes everything.
        let _ = write!(name, "{}", self.member);
        if self.generation > 1 {
            let _ = write!(name, "#{}", self.generation);
        }
    }

    /// Bytes that it sends; none: without end.
    pub fn size(&self, scenario: &Scenario, trial: u32) -> Option<Bytes> {
        let group = self.group(&scenario.flows);
        if let Some(list) = &group.list {
            return Some(list.flows[self.member as usize].size);
        }
        match (&group.size_cdf, &group.transport) {
            (Some(sizes), _) => {
                let name = format!("flow/{}/size", self.name(&scenario.flows));
                Some(sizes.draw(&mut Stream::new(scenario.run.seed, trial, &name)))
            }
            (None, Transport::Tcp { size, .. }) => *size,
            (None, Transport::Udp { .. }) => None,
        }
    }

    /// Number of its subflow; 0 without multipath TCP.
    pub fn subflow(&self, groups: &[FlowGroup]) -> u32 {
        self.group(groups).multipath.map_or(0, |multipath| self.member % multipath.subflows)
    }

    /// Routers that its way leads over.
    pub fn path<'a>(&self, groups: &'a [FlowGroup]) -> &'a [NodeId] {
        let group = self.group(groups);
        match group.paths.len() {
            0 => &[],
            paths => &group.paths[self.lane(groups) % paths],
        }
    }

    /// Its number among the flows and subflows of its pair of hosts. Subflows of a pair's second connection go on where the first
    /// one's end, so that connections of one subflow each use all the paths.
    pub fn lane(&self, groups: &[FlowGroup]) -> usize {
        let group = self.group(groups);
        let subflows = group.multipath.map_or(1, |multipath| multipath.subflows);
        (self.member % (group.count * subflows)) as usize
    }

    /// Which of the sets of flow numbers that the rounds of an incast use in turn.
    pub fn set(&self) -> usize {
        (self.generation - 1) as usize
    }

    /// The same, with another start.
    pub fn beginning(self, start: Time) -> Self {
        Self { start, ..self }
    }

    /// Exists through the whole interval.
    pub fn covers(&self, from: Time, to: Time) -> bool {
        self.start <= from && to <= self.stop
    }
}

/// Sets of flow numbers that the rounds of an incast use in turn.
pub const SETS: u32 = 2;

/// Every flow of `groups`, in file order.
pub fn plan(groups: &[FlowGroup], topology: &Topology, run: &RunPlan, trial: u32) -> Vec<FlowPlan> {
    let mut flows = Vec::new();
    for (index, group) in groups.iter().enumerate() {
        plan_group(index, group, topology, run, trial, &mut flows);
    }
    flows
}

fn plan_group(
    index: usize,
    group: &FlowGroup,
    topology: &Topology,
    run: &RunPlan,
    trial: u32,
    flows: &mut Vec<FlowPlan>,
) {
    if let Some(list) = &group.list {
        let plan = |(member, flow): (u32, &Listed)| FlowPlan {
            group: index as u32,
            from: flow.from,
            member,
            generation: 1,
            src: flow.src,
            dst: flow.dst,
            start: flow.start,
            stop: Time::MAX,
        };
        return flows.extend((0..).zip(list.flows.iter()).map(plan));
    }
    let hosts = |name: &String| topology.members(name).unwrap_or_default();
    let mut receivers: Vec<NodeId> = group.to.iter().flat_map(hosts).collect();
    if group.pairing == Pairing::Permutation {
        let senders: Vec<NodeId> = group.from.iter().flat_map(hosts).collect();
        let stream = Stream::new(run.seed, trial, &format!("flow/{}/permutation", group.name));
        permute(&senders, &mut receivers, stream);
    }
    let mut place = 0;
    for (from, name) in (0..).zip(&group.from) {
        let mut own = Vec::new();
        for src in hosts(name) {
            let targets = targets(group, &receivers, src, place);
            place += 1;
            let plan = FlowPlan {
                group: index as u32,
                from,
                member: 0,
                generation: 1,
                src,
                dst: src,
                start: Time::ZERO,
                stop: group.stop.unwrap_or(Time::MAX),
            };
            if let Some(arrivals) = group.arrivals {
                let host = &topology.nodes[src.index()].name;
                let stream = Stream::new(run.seed, trial, &format!("flow/{}/{host}/arrivals", group.name));
                let first = Time::ZERO + group.start.draw(&mut stream.clone());
                let end = plan.stop.min(Time::ZERO + run.duration);
                arrive(arrivals, stream, &targets, (first, end), plan, &mut own);
            } else {
                begin(group, name, &targets, plan, (run.seed, trial), &mut own);
            }
        }
        flows.extend(connections(group, own));
    }
}

/// Orders that are drawn before one is mended. Of two hosts or more, at least every third order has nobody at the place of
/// itself, so that mending has a probability below 1e-30.
const MOST_DRAWS: u32 = 200;

/// Puts `receivers` into an order in which none is the sender at the same place: draws orders (the shuffle of Fisher and
/// Yates) until one is such. So all of these have the same probability. No host is twice among `senders`, or among
/// `receivers`.
fn permute(senders: &[NodeId], receivers: &mut [NodeId], mut stream: Stream) {
    for _ in 0..MOST_DRAWS {
        for last in (1..receivers.len()).rev() {
            receivers.swap(last, stream.below(last as u64 + 1) as usize);
        }
        if senders.iter().zip(receivers.iter()).all(|(from, to)| from != to) {
            return;
        }
    }
    mend(senders, receivers);
}

/// Swaps each receiver that is its own sender with the one after it. Neither of the two is its own sender then: the other
/// sender and the other receiver are other hosts.
fn mend(senders: &[NodeId], receivers: &mut [NodeId]) {
    for at in 0..receivers.len() {
        if senders.get(at) == receivers.get(at) {
            receivers.swap(at, (at + 1) % receivers.len());
        }
    }
}

/// To whom the sender at a place among all senders of the group sends.
fn targets(group: &FlowGroup, receivers: &[NodeId], src: NodeId, place: usize) -> Vec<NodeId> {
    let at = |place: usize| receivers.get(place % receivers.len().max(1)).copied().into_iter().collect();
    match group.pairing {
        Pairing::OneToOne | Pairing::Permutation => at(place),
        Pairing::AllToAll => receivers.iter().copied().filter(|dst| *dst != src).collect(),
        // A connection for each message of a round, in the order of its steps.
        Pairing::Exchange if group.persistent => {
            (1..receivers.len()).map(|step| receivers[(place + step) % receivers.len()]).collect()
        }
        // Its messages follow each other; the first of these crosses the network.
        Pairing::Exchange => at(place + receivers.len() / 2),
    }
}

/// The flows of one sender, as `plan`, to each of `targets`; `name` is of its group of hosts.
fn begin(
    group: &FlowGroup,
    name: &str,
    targets: &[NodeId],
    plan: FlowPlan,
    (seed, trial): (u64, u32),
    flows: &mut Vec<FlowPlan>,
) {
    let first_of_host = flows.len() as u32;
    let subflows = group.multipath.map_or(1, |multipath| multipath.subflows);
    let count = group.each();
    for &dst in targets {
        for number in 0..count * subflows {
            let member = flows.len() as u32;
            // Subflows start when their connection does.
            let first = if group.starts_together { first_of_host } else { member - number % subflows };
            let mut stream = Stream::new(seed, trial, &format!("flow/{}.{name}.{first}/start", group.name));
            let start = Time::ZERO + group.start.draw(&mut stream);
            flows.push(FlowPlan { member, dst, start, ..plan });
        }
    }
}

/// The flows of one sender that arrive between two times, as `plan`, each to one of `others`.
fn arrive(
    arrivals: Arrivals,
    mut stream: Stream,
    others: &[NodeId],
    (first, end): (Time, Time),
    plan: FlowPlan,
    flows: &mut Vec<FlowPlan>,
) {
    let mut start = first;
    loop {
        start += arrivals.interval.draw(&mut stream);
        let drawn = stream.below(others.len() as u64) as usize;
        let Some(&dst) = others.get(drawn).filter(|_| start < end) else { break };
        flows.push(FlowPlan { member: flows.len() as u32, dst, start, ..plan });
    }
}

/// The connections that flows of one `from` make: the sets of an incast, or one after the other by the timeline.
fn connections(group: &FlowGroup, mut flows: Vec<FlowPlan>) -> Vec<FlowPlan> {
    if group.exchange.is_some() || group.rounds.is_some() {
        // They start when their round begins.
        for plan in &mut flows {
            plan.start = Time::MAX;
        }
    }
    let Some(rounds) = group.rounds else { return apply_timeline(group, flows) };
    let sets = rounds.min(if group.persistent { 1 } else { SETS });
    let set = |generation| flows.iter().map(move |plan| FlowPlan { generation, ..*plan });
    (1..=sets).flat_map(set).collect()
}

/// Cuts flows at their stops and appends their restarts.
fn apply_timeline(group: &FlowGroup, mut flows: Vec<FlowPlan>) -> Vec<FlowPlan> {
    let members = flows.len();
    // The connection that stands for each member now, and the members that stopped, longest ago first.
    let mut current: Vec<usize> = (0..members).collect();
    let mut generation = vec![1; members];
    let mut running: VecDeque<usize> = (0..members).collect();
    let mut stopped: VecDeque<usize> = VecDeque::new();
    let (mut stop_share, mut stops, mut start_share, mut starts) = (0.0, 0, 0.0, 0);
    let whole = |share: f64| (share * members as f64 + 1e-9) as usize;
    for step in &group.timeline {
        stop_share += step.stop;
        while stops < whole(stop_share)
            && let Some(member) = running.pop_front()
        {
            flows[current[member]].stop = step.at;
            stopped.push_back(member);
            stops += 1;
        }
        start_share += step.start;
        while starts < whole(start_share)
            && let Some(member) = stopped.pop_front()
        {
            generation[member] += 1;
            let restart = FlowPlan {
                generation: generation[member],
                start: step.at,
                stop: group.stop.unwrap_or(Time::MAX),
                ..flows[member]
            };
            current[member] = flows.len();
            flows.push(restart);
            running.push_back(member);
            starts += 1;
        }
    }
    flows
}

/// Where flows are in their on and off times.
pub struct Toggles(Vec<Option<Toggle>>);

struct Toggle {
    times: OnOff,
    stream: Stream,
    /// None: not started, or stopped for good.
    is_on: Option<bool>,
}

impl Toggles {
    /// Nobody has started. Each flow draws from a stream of its own.
    pub fn new(plans: &[FlowPlan], scenario: &Scenario, trial: u32) -> Self {
        let groups = &scenario.flows;
        let toggle = |plan: &FlowPlan| {
            let times = plan.group(groups).on_off.clone()?;
            let name = format!("flow/{}/on-off", plan.name(groups));
            Some(Toggle { times, stream: Stream::new(scenario.run.seed, trial, &name), is_on: None })
        };
        let has_any = groups.iter().any(|group| group.on_off.is_some());
        Self(plans.iter().filter(|_| has_any).map(toggle).collect())
    }

    /// The flow starts, on, and stays so for how long; none: until it stops.
    pub fn start(&mut self, flow: usize) -> Option<Span> {
        let toggle = self.0.get_mut(flow)?.as_mut()?;
        toggle.is_on = Some(true);
        Some(toggle.times.on.draw(&mut toggle.stream))
    }

    /// The flow stops for good.
    pub fn stop(&mut self, flow: usize) {
        if let Some(Some(toggle)) = self.0.get_mut(flow) {
            toggle.is_on = None;
        }
    }

    /// From on to off or back: whether the flow is on now, and for how long it stays as it is. None when it has been stopped.
    pub fn turn(&mut self, flow: usize) -> Option<(bool, Span)> {
        let Toggle { times, stream, is_on } = self.0.get_mut(flow)?.as_mut()?;
        let on = !(*is_on)?;
        *is_on = Some(on);
        Some((on, if on { &times.on } else { &times.off }.draw(stream)))
    }
}

/// How much later than their turns the packets of a constant-rate flow leave. Without it flows of equal rate keep their
/// phases, and which of them loses at a full queue hangs on nothing else (Floyd and Jacobson, "On Traffic Phase Effects in
/// Packet-Switched Gateways", 1992).
#[derive(Clone, Debug)]
pub struct Jitter {
    stream: Stream,
    most: Span,
}

impl Jitter {
    /// Of a flow, drawn from a stream of its own; none: it keeps its turns.
    pub fn new(plan: &FlowPlan, scenario: &Scenario, trial: u32) -> Option<Self> {
        let Transport::Udp { rate, packet, jitter } = plan.group(&scenario.flows).transport else {
            return None;
        };
        let most = interval(rate, packet).mul_f64(jitter);
        let name = format!("flow/{}/jitter", plan.name(&scenario.flows));
        (!most.is_zero()).then(|| Self { stream: Stream::new(scenario.run.seed, trial, &name), most })
    }

    /// How much later the next packet leaves; never later than the one after it.
    pub fn draw(&mut self) -> Span {
        self.stream.span_between(Span::ZERO, self.most)
    }
}

/// Time from packet to packet.
fn interval(rate: Rate, packet: Bytes) -> Span {
    rate.max(Rate::from_bits_per_sec(1)).time_for(packet)
}

/// Port at which every flow is received.
pub const SERVER_PORT: u16 = 5001;

/// Port from which the simulator's flow number `flow` is sent.
pub fn client_port(flow: u32) -> u16 {
    10_000 + (flow % 50_000) as u16
}

/// What the simulator and the lab call TCP flow number `flow`. The address of its sender tells it from all others; its
/// sender's port is the kernel's choice, and stands as 0.
pub fn flow_key(flow: u32) -> FlowKey {
    let address = |net: u32| Ipv4Addr::from_bits(net | (flow + 1)).into();
    FlowKey { from: (address(SENDERS), 0), to: (address(RECEIVERS), SERVER_PORT), protocol: 6 }
}

/// Addresses of flows where they begin: 10.128.0.1 is flow 0's.
pub const SENDERS: u32 = 0x0a80_0000;
/// Addresses of flows where they end: 10.0.0.1 is flow 0's.
pub const RECEIVERS: u32 = 0x0a00_0000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::SpanDraw;
    use crate::scenario::{TcpSettings, TimelineStep};
    use crate::time::Span;

    fn group(timeline: Vec<TimelineStep>) -> FlowGroup {
        FlowGroup {
            name: "u".into(),
            from: vec!["a".into()],
            to: vec!["s".into()],
            pairing: Pairing::OneToOne,
            count: 1,
            start: SpanDraw::fixed(Span::ZERO),
            starts_together: false,
            stop: None,
            timeline,
            on_off: None,
            transport: Transport::Tcp { size: None, settings: TcpSettings::default() },
            need: None,
            dscp: 0,
            paths: Vec::new(),
            rounds: None,
            size_cdf: None,
            list: None,
            arrivals: None,
            persistent: false,
            reset: false,
            exchange: None,
            multipath: None,
            measured: true,
        }
    }

    fn flow(i: usize) -> FlowPlan {
        FlowPlan {
            group: 0,
            from: 0,
            member: i as u32,
            generation: 1,
            src: NodeId(i as u32),
            dst: NodeId(99),
            start: Time::ZERO,
            stop: Time::MAX,
        }
    }

    /// Two senders with two flows each, one per receiver and pair.
    #[test]
    fn starts_are_drawn_per_flow_or_per_host() {
        let starts = |per: &str| -> Vec<Time> {
            let text = format!(
                "version = 1\nname = \"t\"\n[run]\nduration = \"2s\"\n[network]\nbuilder = \"star\"\nsize = 3\n\
                 [network.link]\nrate = \"1gbit\"\n\
                 [tcp]\ncongestion-control = \"newreno\"\n[[flows]]\nname = \"f\"\nfrom = [\"hosts.0\", \"hosts.1\"]\n\
                 to = [\"hosts.1\", \"hosts.2\"]\npairing = \"all-to-all\"\ncount = 2\nstart = \"uniform(0s, 1s)\"\n{per}"
            );
            let study = crate::scenario::parse("t.toml", &text, &Default::default());
            let scenario = &study.unwrap_or_else(|e| panic!("{e}")).cases[0].scenario;
            plan(&scenario.flows, &scenario.topology, &scenario.run, 0)
                .iter()
                .map(|flow| flow.start)
                .collect()
        };
        let distinct = |starts: &[Time]| starts.iter().collect::<std::collections::BTreeSet<_>>().len();
        let (each, together) = (starts(""), starts("start-per = \"host\""));
        assert_eq!((each.len(), distinct(&each)), (6, 6));
        // The first sender has flows to both receivers.
        assert_eq!((distinct(&together[..4]), distinct(&together[4..]), distinct(&together)), (1, 1, 2));
        assert_eq!((each[0], each[4]), (together[0], together[4]));
    }

    /// Who sends to whom in a permutation, on a star of so many hosts, with `more` keys.
    fn permutation(size: u32, [from, to]: [&str; 2], more: &str, trial: u32) -> Vec<(u32, u32)> {
        let text = format!(
            "version = 1\nname = \"t\"\n[run]\nduration = \"2s\"\n[network]\nbuilder = \"star\"\nsize = {size}\n\
             [network.link]\nrate = \"1gbit\"\n\
             [[flows]]\nname = \"f\"\nfrom = {from}\nto = {to}\npairing = \"permutation\"\n{more}"
        );
        let study = crate::scenario::parse("t.toml", &text, &Default::default());
        let scenario = &study.unwrap_or_else(|e| panic!("{e}")).cases[0].scenario;
        let flows = plan(&scenario.flows, &scenario.topology, &scenario.run, trial);
        flows.iter().map(|flow| (flow.src.0, flow.dst.0)).collect()
    }

    #[test]
    fn in_a_permutation_every_host_sends_and_receives_once() {
        let all = ["\"hosts\""; 2];
        for size in [2, 3, 5, 16] {
            for trial in 0..20 {
                let pairs = permutation(size, all, "", trial);
                let senders: Vec<u32> = pairs.iter().map(|(from, _)| *from).collect();
                let mut receivers: Vec<u32> = pairs.iter().map(|(_, to)| *to).collect();
                assert!(pairs.iter().all(|(from, to)| from != to), "{pairs:?}");
                receivers.sort_unstable();
                assert_eq!((senders.len(), &senders), (size as usize, &receivers), "the hub is node 0");
                assert_eq!(pairs, permutation(size, all, "", trial), "the same seed and trial");
            }
        }
        let drawn: std::collections::BTreeSet<_> =
            (0..20).map(|trial| permutation(16, all, "", trial)).collect();
        assert_eq!(drawn.len(), 20, "each trial has pairs of its own");
        let udp = permutation(16, all, "transport = \"udp\"\nrate = \"1mbit\"", 3);
        assert_eq!(udp, permutation(16, all, "", 3));
    }

    /// Two of three hosts that send receive too.
    #[test]
    fn a_permutation_of_lists_that_overlap_pairs_nobody_with_itself() {
        let lists = ["[\"hosts.0\", \"hosts.1\", \"hosts.2\"]", "[\"hosts.1\", \"hosts.2\", \"hosts.3\"]"];
        let mut drawn = std::collections::BTreeSet::new();
        for trial in 0..100 {
            let pairs = permutation(4, lists, "", trial);
            assert!(pairs.iter().all(|(from, to)| from != to), "{pairs:?}");
            let mut receivers: Vec<u32> = pairs.iter().map(|(_, to)| *to).collect();
            receivers.sort_unstable();
            assert_eq!(receivers, [2, 3, 4], "the hub is node 0");
            drawn.insert(pairs);
        }
        // Of 3! orders 2 have host 1 at its place, 2 have host 2, and 1 has both.
        assert_eq!(drawn.len(), 3);
    }

    #[test]
    fn all_flows_of_a_sender_that_arrive_go_to_its_partner() {
        let all = ["\"hosts\""; 2];
        let partners = permutation(6, all, "", 1);
        let pairs = permutation(6, all, "size = \"10kB\"\narrivals = \"exponential(100ms)\"", 1);
        assert!(pairs.len() > 60, "about 20 per sender, of 6: {}", pairs.len());
        assert!(pairs.iter().all(|pair| partners.contains(pair)), "{pairs:?}");
    }

    /// Chi-squared with 8 degrees of freedom exceeds 33 with a probability below 0.0001.
    #[test]
    fn derangements_of_four_have_equal_probabilities() {
        let senders: Vec<NodeId> = (0..4).map(NodeId).collect();
        let mut counts = std::collections::BTreeMap::new();
        for trial in 0..9000 {
            let mut receivers = senders.clone();
            permute(&senders, &mut receivers, Stream::new(1, trial, "t"));
            *counts.entry(receivers).or_insert(0_u32) += 1;
        }
        assert_eq!(counts.len(), 9);
        let squares = counts.values().map(|count| (f64::from(*count) - 1000.0).powi(2) / 1000.0);
        let chi_squared: f64 = squares.sum();
        assert!(chi_squared < 33.0, "{chi_squared}: {counts:?}");
    }

    /// When every draw failed.
    #[test]
    fn mending_leaves_nobody_at_its_own_place() {
        let hosts = |numbers: &[u32]| numbers.iter().copied().map(NodeId).collect::<Vec<_>>();
        for [senders, receivers] in [
            [&[0, 1][..], &[0, 1][..]],
            [&[0, 1, 2, 3, 4][..], &[0, 1, 2, 3, 4][..]],
            [&[0, 1, 2][..], &[3, 1, 2][..]],
        ] {
            let (senders, mut mended) = (hosts(senders), hosts(receivers));
            mend(&senders, &mut mended);
            assert!(senders.iter().zip(&mended).all(|(from, to)| from != to), "{mended:?}");
            mended.sort_unstable();
            let mut receivers = hosts(receivers);
            receivers.sort_unstable();
            assert_eq!(mended, receivers);
        }
    }

    /// Only host pairs with a link to each other reach each other without a router.
    #[test]
    fn two_hosts_with_one_link_are_a_permutation() {
        let text = "version = 1\nname = \"t\"\n[run]\nduration = \"2s\"\n[network]\nhosts = [\"a\", \"b\"]\n\
                    links = [{ ends = [\"a\", \"b\"] }]\n[network.link]\nrate = \"1gbit\"\n[[flows]]\nname = \"f\"\n\
                    from = [\"a\", \"b\"]\nto = [\"a\", \"b\"]\npairing = \"permutation\"\n";
        let study = crate::scenario::parse("t.toml", text, &Default::default());
        let scenario = &study.unwrap_or_else(|e| panic!("{e}")).cases[0].scenario;
        let flows = plan(&scenario.flows, &scenario.topology, &scenario.run, 0);
        let pairs: Vec<(u32, u32)> = flows.iter().map(|flow| (flow.src.0, flow.dst.0)).collect();
        assert_eq!(pairs, [(0, 1), (1, 0)]);
    }

    #[test]
    fn shares_are_rounded_down_over_the_sum_so_far() {
        let at = |s: u64| Time::from_nanos(s * 1_000_000_000);
        let stop = |s| TimelineStep { at: at(s), stop: 0.25, start: 0.0 };
        let start = |s| TimelineStep { at: at(s), stop: 0.0, start: 0.25 };
        let timeline = vec![stop(7), stop(9), stop(11), start(14), start(16), start(18)];
        let group = group(timeline);
        let flows = apply_timeline(&group, (0..2).map(flow).collect());
        // Of two members, half a flow at 7 s is none; one has stopped by 9 s and by 11 s.
        assert_eq!(flows.len(), 3);
        assert_eq!(flows[0].stop, at(9));
        assert_eq!(flows[1].stop, Time::MAX);
        assert_eq!((flows[2].name(&[group]), flows[2].start), ("u.a.0#2".to_owned(), at(16)));
    }
}
