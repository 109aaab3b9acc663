//! Exchanges: every host sends a message to every other, in rounds with a barrier (MPI_Alltoall).
//!
//! Nothing is kept of a message but its completion time: which host is next follows from the step. A host has a flow
//! number for each message that it may have outstanding. A connection takes the number of one that has been acknowledged
//! to its end; packets of the old one that are still on their way bear another generation. With persistent connections a host
//! has a flow number for each other host, in the order of the steps, and a connection for all its messages to that host.

use bandmaster_core::id::NodeId;
use bandmaster_core::rng::SpanDraw;
use bandmaster_core::rng::Stream;
use bandmaster_core::scenario::{Exchange, Scenario, Schedule};
use bandmaster_core::time::{Span, Time};

use crate::workload::FlowPlan;

/// The exchanges of a run.
#[derive(Default)]
pub(crate) struct Exchanges {
    all: Vec<Running>,
    /// Completion times of messages.
    pub(crate) completions: Vec<Span>,
}

/// What a flow number carries next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Message {
    pub(crate) from: NodeId,
    pub(crate) to: NodeId,
    pub(crate) bytes: u64,
    /// On a persistent connection: what it has carried with this message, and whether that is the last one.
    pub(crate) total: Option<(u64, bool)>,
    /// The same for every message between two hosts.
    pub(crate) key: u64,
    pub(crate) generation: u8,
    /// Profile of the group.
    pub(crate) profile: u32,
    /// Position of the flow group in the scenario.
    pub(crate) group: usize,
}

/// How far a round is in one part of a run.
#[derive(Clone, Copy)]
pub(crate) struct Progress {
    pub(crate) all: u64,
    pub(crate) came: (u64, Time),
    pub(crate) acknowledged: (u64, Time),
}

struct Running {
    /// Position of its flow group in the scenario.
    group: usize,
    profile: u32,
    persistent: bool,
    /// Flow number of the first message of the first host; those of a host follow each other.
    first: u32,
    hosts: Vec<Host>,
    slots: Vec<Slot>,
    sizes: Vec<u64>,
    /// Rounds in all, and begun.
    rounds: u32,
    begun: u32,
    schedule: Schedule,
    start: SpanDraw,
    compute: SpanDraw,
    stream: Stream,
    /// When the round began, and its messages that have not come, and that have not been acknowledged.
    at: Time,
    coming: u64,
    open: u64,
    times: Vec<(Span, u64)>,
    /// Pairwise: bit by host and step, whether the message that a host gets in a step has arrived.
    came: Vec<u64>,
    /// Somebody else begins the rounds that follow. When a message came last, and was acknowledged.
    is_held: bool,
    last_came: Time,
    last_acknowledged: Time,
}

struct Host {
    node: NodeId,
    /// Step of its next message; 0 while it computes.
    step: u32,
    /// Messages that are not acknowledged.
    under_way: u32,
}

/// A flow number.
#[derive(Clone, Copy, Default)]
pub(crate) struct Slot {
    /// Step of its message; 0: none is under way.
    step: u32,
    generation: u8,
    begun: Time,
    /// Payload of this message, or of the last, and of those before.
    bytes: u64,
    carried: u64,
    /// Messages so far.
    given: u32,
}

impl Exchanges {
    /// `profiles` are those of the flow groups.
    pub(crate) fn new(plans: &[FlowPlan], scenario: &Scenario, profiles: &[u32], trial: u32) -> Self {
        let mut all: Vec<Running> = Vec::new();
        for (flow, plan) in (0..).zip(plans) {
            let group = plan.group(&scenario.flows);
            let Some(exchange) = &group.exchange else { continue };
            let index = plan.group_index();
            if all.last().is_none_or(|last| last.group != index) {
                let stream = Stream::new(scenario.run.seed, trial, &format!("exchange/{}", group.name));
                let mut running = Running::new(index, profiles[index], flow, exchange, group.start, stream);
                running.persistent = group.persistent;
                all.push(running);
            }
            if let Some(running) = all.last_mut() {
                if running.hosts.last().is_none_or(|last| last.node != plan.src) {
                    running.hosts.push(Host { node: plan.src, step: 0, under_way: 0 });
                }
                running.slots.push(Slot::default());
            }
        }
        for running in &mut all {
            if running.schedule == Schedule::Pairwise {
                running.came = vec![0; running.hosts.len().pow(2).div_ceil(64)];
            }
        }
        Self { all, completions: Vec::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Begins the first rounds: the flow that enters for each host, and when.
    pub(crate) fn begin(&mut self, mut start: impl FnMut(Time, u32)) {
        self.all.iter_mut().for_each(|running| running.begin(Time::ZERO, &mut start));
    }

    /// From now on somebody else begins the rounds that follow.
    pub(crate) fn hold(&mut self) {
        self.all.iter_mut().for_each(|running| running.is_held = true);
    }

    /// Number of exchanges.
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Of the present round of a held exchange: messages in all, those that have come and been acknowledged here, and when each
    /// happened last.
    pub(crate) fn progress(&self, number: usize) -> Progress {
        let running = &self.all[number];
        let hosts = running.hosts.len() as u64;
        let all = hosts * (hosts - 1);
        Progress {
            all,
            came: (all - running.coming, running.last_came),
            acknowledged: (all - running.open, running.last_acknowledged),
        }
    }

    /// All messages of a held exchange's round had come at `now`.
    pub(crate) fn end_round(&mut self, number: usize, now: Time) {
        self.all[number].end_round(now);
    }

    /// The next round of a held exchange begins.
    pub(crate) fn begin_round(&mut self, number: usize, now: Time, mut start: impl FnMut(Time, u32)) {
        self.all[number].begin(now, &mut start);
    }

    /// What a flow number carries, for another part of the run.
    pub(crate) fn slot(&self, flow: u32) -> Option<Slot> {
        let running = self.all.iter().find(|running| running.contains(flow))?;
        Some(running.slots[(flow - running.first) as usize])
    }

    /// A flow number carries what another part of the run says.
    pub(crate) fn adopt(&mut self, flow: u32, slot: Slot) {
        if let Some(running) = self.all.iter_mut().find(|running| running.contains(flow)) {
            running.slots[(flow - running.first) as usize] = slot;
        }
    }

    /// The hosts of an exchange.
    pub(crate) fn hosts(&self, number: usize) -> impl Iterator<Item = NodeId> {
        self.all[number].hosts.iter().map(|host| host.node)
    }

    /// The hosts that the host at place `from` of an exchange sends messages to, with the keys of their ways.
    pub(crate) fn pairs(&self, number: usize, from: usize) -> impl Iterator<Item = (NodeId, u64)> {
        let running = &self.all[number];
        let others = (0..running.hosts.len()).filter(move |to| *to != from);
        others.map(move |to| (running.hosts[to].node, running.key(from, to)))
    }

    /// Takes over what another part of the same run has seen; `is_of` tells the flows that it has the senders of.
    pub(crate) fn absorb(&mut self, other: &mut Self, is_of: impl Fn(u32) -> bool) {
        self.completions.append(&mut other.completions);
        for (own, other) in self.all.iter_mut().zip(&other.all) {
            let slots = (other.first..).zip(own.slots.iter_mut().zip(&other.slots));
            slots.filter(|(flow, _)| is_of(*flow)).for_each(|(_, (own, other))| *own = *other);
        }
    }

    pub(crate) fn contains(&self, flow: u32) -> bool {
        self.all.iter().any(|running| running.contains(flow))
    }

    /// Payload that earlier messages with this flow number have delivered.
    pub(crate) fn carried(&self, flow: u32) -> u64 {
        let found = self.all.iter().find(|running| running.contains(flow));
        found
            .filter(|running| !running.persistent)
            .map_or(0, |running| running.slots[(flow - running.first) as usize].carried)
    }

    /// On a persistent connection: what it has to deliver up to the end of its message, and whether that is the last one.
    pub(crate) fn target(&self, flow: u32) -> Option<(u64, bool)> {
        let running = self.all.iter().find(|running| running.contains(flow))?;
        running.persistent.then(|| running.total((flow - running.first) as usize))
    }

    /// One connection carries all messages of `flow`.
    pub(crate) fn is_persistent(&self, flow: u32) -> bool {
        self.all.iter().any(|running| running.persistent && running.contains(flow))
    }

    /// When the message of `flow` was begun.
    pub(crate) fn begun(&self, flow: u32) -> Option<Time> {
        let running = self.all.iter().find(|running| running.contains(flow))?;
        Some(running.slots[(flow - running.first) as usize].begun)
    }

    /// The host that has `flow` enters its round: flow numbers that have a message now.
    pub(crate) fn enter(&mut self, flow: u32) -> std::ops::Range<u32> {
        let Some(running) = self.all.iter_mut().find(|running| running.contains(flow)) else { return 0..0 };
        let each = running.each();
        let host = (flow - running.first) / each;
        running.hosts[host as usize].step = 1;
        let first = running.first + host * each;
        first..first + running.outstanding().min(each)
    }

    /// Connections that a message is under way on, or that are kept: flow number, and the key of their ways.
    pub(crate) fn open(&self) -> Vec<(u32, u64)> {
        self.all.iter().flat_map(Running::open_flows).collect()
    }

    /// Payload of the message of `flow`.
    pub(crate) fn size(&self, flow: u32) -> Option<u64> {
        let running = self.all.iter().find(|running| running.contains(flow))?;
        Some(running.slots[(flow - running.first) as usize].bytes)
    }

    /// What `flow` carries next, when its host is to send and the number is free; it is under way from `now` on.
    pub(crate) fn take(&mut self, flow: u32, now: Time) -> Option<Message> {
        self.all.iter_mut().find(|running| running.contains(flow))?.take(flow, now)
    }

    /// The last byte of the message of `flow` has arrived. Returns the flow number that may have a message now.
    pub(crate) fn come(&mut self, flow: u32, now: Time) -> Option<u32> {
        let running = self.all.iter_mut().find(|running| running.contains(flow))?;
        let slot = &running.slots[(flow - running.first) as usize];
        self.completions.push(now.since(slot.begun));
        running.come(flow, now)
    }

    /// The message of `flow` is acknowledged to its end; the number is free. The barrier may be passed. Returns the flow number
    /// that may have a message now.
    pub(crate) fn acknowledge(&mut self, flow: u32, now: Time, start: impl FnMut(Time, u32)) -> Option<u32> {
        let running = self.all.iter_mut().find(|running| running.contains(flow))?;
        running.acknowledge(flow, now, start);
        running.next_of((flow - running.first) as usize / running.each() as usize, flow)
    }

    /// Duration of every complete round, and payload that a host received in it.
    pub(crate) fn rounds(&self) -> impl Iterator<Item = (Span, u64)> {
        self.all.iter().flat_map(|running| running.times.iter().copied())
    }
}

impl Running {
    fn new(
        group: usize,
        profile: u32,
        first: u32,
        exchange: &Exchange,
        start: SpanDraw,
        stream: Stream,
    ) -> Self {
        Self {
            group,
            profile,
            persistent: false,
            first,
            hosts: Vec::new(),
            slots: Vec::new(),
            sizes: exchange.sizes.iter().map(|size| size.get()).collect(),
            rounds: exchange.rounds.saturating_mul(exchange.sizes.len() as u32),
            begun: 0,
            schedule: exchange.schedule,
            start,
            compute: exchange.compute,
            stream,
            at: Time::ZERO,
            coming: 0,
            open: 0,
            times: Vec::new(),
            came: Vec::new(),
            is_held: false,
            last_came: Time::ZERO,
            last_acknowledged: Time::ZERO,
        }
    }

    fn contains(&self, flow: u32) -> bool {
        (flow.wrapping_sub(self.first) as usize) < self.slots.len()
    }

    fn open_flows(&self) -> Vec<(u32, u64)> {
        let (hosts, each) = (self.hosts.len(), self.each() as usize);
        let flow = |(at, slot): (usize, &Slot)| {
            let (host, own) = (at / each, at % each);
            // A kept connection leads to the same host in every round.
            let step = if self.persistent { own + 1 } else { slot.step as usize };
            let is_open = if self.persistent { slot.given > 0 } else { slot.step > 0 };
            let to = (host + step) % hosts;
            is_open.then(|| (self.first + at as u32, self.key(host, to)))
        };
        self.slots.iter().enumerate().filter_map(flow).collect()
    }

    /// What picks the way of messages between two hosts where there are several.
    fn key(&self, from: usize, to: usize) -> u64 {
        u64::from(self.first) + (from * self.hosts.len() + to) as u64
    }

    fn outstanding(&self) -> u32 {
        match self.schedule {
            Schedule::Pairwise => 1,
            Schedule::Window(outstanding) => outstanding,
        }
    }

    /// Flow numbers of a host.
    fn each(&self) -> u32 {
        if self.persistent { self.hosts.len() as u32 - 1 } else { self.outstanding() }
    }

    /// The flow number of the host's next message, when it may have one; otherwise `free`.
    fn next_of(&self, host: usize, free: u32) -> Option<u32> {
        if !self.persistent {
            return Some(free);
        }
        let step = self.hosts[host].step;
        (1..self.hosts.len() as u32)
            .contains(&step)
            .then(|| self.first + host as u32 * self.each() + step - 1)
    }

    /// Persistent: what the connection at place `at` has carried with the last message that it was given, and whether that is
    /// the last of all. A message that is given in a round is given to every connection once.
    fn total(&self, at: usize) -> (u64, bool) {
        let slot = &self.slots[at];
        (slot.carried + slot.bytes, slot.given == self.rounds)
    }

    /// Size of the messages of the round that was begun last.
    fn bytes(&self) -> u64 {
        self.sizes[(self.begun as usize - 1) % self.sizes.len()]
    }

    fn begin(&mut self, now: Time, start: &mut impl FnMut(Time, u32)) {
        if self.begun == self.rounds {
            return;
        }
        let wait = if self.begun == 0 { self.start } else { self.compute };
        self.begun += 1;
        let each = self.each();
        let hosts = self.hosts.len() as u64;
        (self.coming, self.open) = (hosts * (hosts - 1), hosts * (hosts - 1));
        self.came.fill(0);
        self.at = Time::MAX;
        for (number, host) in (0..).zip(&mut self.hosts) {
            host.step = 0;
            let at = now + wait.draw(&mut self.stream);
            self.at = self.at.min(at);
            start(at, self.first + number * each);
        }
    }

    fn take(&mut self, flow: u32, now: Time) -> Option<Message> {
        let (at, hosts) = ((flow - self.first) as usize, self.hosts.len());
        let (number, own) = (at / self.each() as usize, at % self.each() as usize);
        let step = self.hosts[number].step;
        if self.persistent && (step as usize != own + 1 || self.hosts[number].under_way >= self.outstanding())
        {
            return None;
        }
        // Pairwise, the free number says that the host's own message of the step before is acknowledged.
        let waits = self.schedule == Schedule::Pairwise && step > 1 && !self.has_come(number, step - 1);
        if self.slots[at].step != 0 || step == 0 || step as usize >= hosts || waits {
            return None;
        }
        self.hosts[number].step += 1;
        self.hosts[number].under_way += 1;
        let to = (number + step as usize) % hosts;
        let before = self.slots[at];
        // A persistent connection is always the same.
        let generation = if self.persistent { 1 } else { before.generation.wrapping_add(1) };
        let carried = before.carried + before.bytes;
        let given = before.given + 1;
        self.slots[at] = Slot { step, generation, begun: now, bytes: self.bytes(), carried, given };
        Some(Message {
            from: self.hosts[number].node,
            to: self.hosts[to].node,
            bytes: self.bytes(),
            total: self.persistent.then(|| self.total(at)),
            key: self.key(number, to),
            generation,
            profile: self.profile,
            group: self.group,
        })
    }

    fn has_come(&self, host: usize, step: u32) -> bool {
        let bit = host * self.hosts.len() + step as usize;
        self.came[bit / 64] >> (bit % 64) & 1 != 0
    }

    fn come(&mut self, flow: u32, now: Time) -> Option<u32> {
        let at = (flow - self.first) as usize;
        self.coming -= 1;
        self.last_came = now;
        if self.coming == 0 && !self.is_held {
            self.end_round(now);
        }
        if self.schedule != Schedule::Pairwise {
            return None;
        }
        let step = self.slots[at].step;
        let to = (at / self.each() as usize + step as usize) % self.hosts.len();
        let bit = to * self.hosts.len() + step as usize;
        self.came[bit / 64] |= 1 << (bit % 64);
        self.next_of(to, self.first + to as u32)
    }

    fn end_round(&mut self, now: Time) {
        self.times.push((now.since(self.at), self.bytes() * (self.hosts.len() as u64 - 1)));
    }

    fn acknowledge(&mut self, flow: u32, now: Time, mut start: impl FnMut(Time, u32)) {
        let at = (flow - self.first) as usize;
        if self.slots[at].step == 0 {
            return;
        }
        self.slots[at].step = 0;
        let host = at / self.each() as usize;
        self.hosts[host].under_way -= 1;
        self.open -= 1;
        self.last_acknowledged = now;
        if self.open == 0 && !self.is_held {
            self.begin(now, &mut start);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use bandmaster_core::units::Bytes;
    use proptest::prelude::*;

    use super::*;
    use crate::events::{Event, EventQueue};

    fn running(hosts: u32, schedule: Schedule, rounds: u32) -> Exchanges {
        kept(hosts, schedule, rounds, false)
    }

    fn kept(hosts: u32, schedule: Schedule, rounds: u32, persistent: bool) -> Exchanges {
        let exchange = Exchange {
            sizes: vec![Bytes::new(1000), Bytes::new(3000)],
            rounds,
            schedule,
            compute: SpanDraw::fixed(Span::from_micros(5)),
        };
        let start = SpanDraw::fixed(Span::ZERO);
        let mut running = Running::new(0, 0, 10, &exchange, start, Stream::new(1, 0, "exchange/test"));
        running.persistent = persistent;
        running.hosts = (0..hosts).map(|node| Host { node: NodeId(node), step: 0, under_way: 0 }).collect();
        running.slots = vec![Slot::default(); (hosts * running.each()) as usize];
        if schedule == Schedule::Pairwise {
            running.came = vec![0; (hosts as usize).pow(2).div_ceil(64)];
        }
        Exchanges { all: vec![running], completions: Vec::new() }
    }

    /// Delivers and acknowledges in any order. Returns every round's pairs with their sizes, and checks what must
    /// hold at any time.
    fn drive(mut exchanges: Exchanges, schedule: Schedule, picks: &[u16]) -> Vec<BTreeMap<(u32, u32), u64>> {
        let mut events = EventQueue::new();
        exchanges.begin(|at, flow| events.push(at, Event::Start(flow)));
        let mut rounds = Vec::new();
        // By flow number: the message, and whether it has arrived.
        let mut under_way: BTreeMap<u32, (Message, bool)> = BTreeMap::new();
        let mut picks = picks.iter().cycle();
        let (mut now, mut begun) = (Time::ZERO, 0);
        loop {
            let mut ready = Vec::new();
            if exchanges.all[0].begun > begun {
                begun += 1;
                assert!(under_way.is_empty(), "the barrier holds until all is acknowledged");
                rounds.push(BTreeMap::new());
                for _ in 0..exchanges.all[0].hosts.len() {
                    let Some((at, Event::Start(flow))) = events.pop() else {
                        panic!("a host without a start")
                    };
                    now = at;
                    ready.extend(exchanges.enter(flow));
                }
                assert_eq!(events.pop(), None);
            } else {
                let Some(pick) = picks.next() else { panic!("no picks") };
                let at = usize::from(*pick) % under_way.len().max(1);
                let Some((&flow, entry)) = under_way.iter_mut().nth(at) else { return rounds };
                if entry.1 {
                    under_way.remove(&flow);
                    ready.extend(
                        exchanges.acknowledge(flow, now, |at, flow| events.push(at, Event::Start(flow))),
                    );
                    exchanges.acknowledge(flow, now, |at, flow| events.push(at, Event::Start(flow)));
                } else {
                    entry.1 = true;
                    ready.extend(exchanges.come(flow, now));
                }
            }
            for flow in ready {
                let Some(message) = exchanges.take(flow, now) else { continue };
                assert!(under_way.insert(flow, (message, false)).is_none(), "number {flow} is used twice");
                let pair = (message.from.0, message.to.0);
                let round = rounds.last_mut().expect("a round");
                assert_eq!(round.insert(pair, message.bytes), None, "{pair:?} twice in a round");
                let of_host = under_way.values().filter(|(m, _)| m.from == message.from).count();
                let most = if let Schedule::Window(outstanding) = schedule { outstanding } else { 1 };
                assert!(of_host <= most as usize, "{of_host} messages of a host");
            }
        }
    }

    proptest! {
        #[test]
        fn every_pair_has_a_message_in_every_round(
            hosts in 2u32..12,
            window in 0u32..5,
            rounds in 1u32..3,
            persistent in any::<bool>(),
            picks in prop::collection::vec(any::<u16>(), 1..200),
        ) {
            let schedule = if window == 0 { Schedule::Pairwise } else { Schedule::Window(window) };
            let seen = drive(kept(hosts, schedule, rounds, persistent), schedule, &picks);
            prop_assert_eq!(seen.len() as u32, 2 * rounds);
            for (number, round) in seen.iter().enumerate() {
                prop_assert_eq!(round.len() as u32, hosts * (hosts - 1));
                prop_assert!(round.keys().all(|(from, to)| from != to && from.max(to) < &hosts));
                let size = [1000, 3000][number % 2];
                prop_assert!(round.values().all(|bytes| *bytes == size));
            }
        }
    }

    /// Two sizes in turn for two rounds: 1000, 3000, 1000 and 3000 bytes over one connection for each pair.
    #[test]
    fn a_persistent_connection_is_told_what_it_carries_in_all() {
        let mut exchanges = kept(3, Schedule::Window(2), 2, true);
        let mut events = EventQueue::new();
        exchanges.begin(|at, flow| events.push(at, Event::Start(flow)));
        let mut totals = Vec::new();
        for _ in 0..4 {
            while let Some((_, Event::Start(flow))) = events.pop() {
                for flow in exchanges.enter(flow) {
                    let message = exchanges.take(flow, Time::ZERO).expect("a message");
                    assert_eq!((message.generation, exchanges.target(flow)), (1, message.total));
                    if flow == 10 {
                        assert_eq!((message.from, message.to), (NodeId(0), NodeId(1)));
                        totals.extend(message.total);
                    }
                }
            }
            for flow in 10..16 {
                exchanges.come(flow, Time::ZERO);
                exchanges.acknowledge(flow, Time::ZERO, |at, flow| events.push(at, Event::Start(flow)));
            }
        }
        assert_eq!(totals, [(1000, false), (4000, false), (5000, false), (8000, true)]);
        assert_eq!(exchanges.carried(10), 0, "the connection itself counts");
    }

    /// Of three hosts, 0 gets the message of step 1 from host 2: until then it does not go on to step 2.
    #[test]
    fn pairwise_a_host_waits_for_the_message_of_its_step() {
        let mut exchanges = running(3, Schedule::Pairwise, 1);
        let mut events = EventQueue::new();
        exchanges.begin(|at, flow| events.push(at, Event::Start(flow)));
        for flow in 10..13 {
            assert_eq!(exchanges.enter(flow), flow..flow + 1);
            assert!(exchanges.take(flow, Time::ZERO).is_some());
        }
        let now = Time::from_nanos(1000);
        assert_eq!(exchanges.come(10, now), Some(11));
        exchanges.acknowledge(10, now, |at, flow| events.push(at, Event::Start(flow)));
        assert_eq!(exchanges.take(10, now), None);
        assert_eq!(exchanges.come(12, now), Some(10));
        let message = exchanges.take(10, now).expect("a message");
        assert_eq!((message.to, message.generation), (NodeId(2), 2));
        assert_eq!(exchanges.carried(10), 1000);
        assert_eq!(exchanges.completions, [Span::from_micros(1), Span::from_micros(1)]);
    }
}
