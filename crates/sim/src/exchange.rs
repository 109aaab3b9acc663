//! Exchanges: every host sends a message to every other, in rounds with a barrier (MPI_Alltoall).
//!
//! Nothing is kept of a message but its completion time: which host is next follows from the step. A host has a flow
//! number for each message that it may have outstanding. A connection takes the number of one that has been acknowledged
//! to its end; packets of the old one that are still on their way bear another generation.

use bandmaster_core::id::NodeId;
use bandmaster_core::rng::Stream;
use bandmaster_core::scenario::{Exchange, Scenario, Schedule};
use bandmaster_core::time::{Span, Time};
use bandmaster_core::topology::SpanDraw;

use crate::events::{Event, EventQueue};
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
    /// The same for every message between two hosts.
    pub(crate) key: u64,
    pub(crate) generation: u8,
    /// Profile of the group.
    pub(crate) profile: u32,
    /// Position of the flow group in the scenario.
    pub(crate) group: usize,
}

struct Running {
    /// Position of its flow group in the scenario.
    group: usize,
    profile: u32,
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
    /// Pairwise: bit by host and step, whether the message that a host gets in a step has come.
    came: Vec<u64>,
}

struct Host {
    node: NodeId,
    /// Step of its next message; 0 while it computes.
    step: u32,
}

/// A flow number.
#[derive(Clone, Copy, Default)]
struct Slot {
    /// Step of its message; 0: none is under way.
    step: u32,
    generation: u8,
    begun: Time,
    /// Payload of this message, or of the last, and of those before.
    bytes: u64,
    carried: u64,
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
                all.push(Running::new(index, profiles[index], flow, exchange, group.start, stream));
            }
            if let Some(running) = all.last_mut() {
                if running.slots.len().is_multiple_of(exchange.outstanding() as usize) {
                    running.hosts.push(Host { node: plan.src, step: 0 });
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

    /// Begins the first rounds.
    pub(crate) fn begin(&mut self, events: &mut EventQueue) {
        self.all.iter_mut().for_each(|running| running.begin(Time::ZERO, events));
    }

    pub(crate) fn contains(&self, flow: u32) -> bool {
        self.all.iter().any(|running| running.contains(flow))
    }

    /// Payload that earlier messages with this flow number have delivered.
    pub(crate) fn carried(&self, flow: u32) -> u64 {
        let found = self.all.iter().find(|running| running.contains(flow));
        found.map_or(0, |running| running.slots[(flow - running.first) as usize].carried)
    }

    /// When the message of `flow` was begun.
    pub(crate) fn begun(&self, flow: u32) -> Option<Time> {
        let running = self.all.iter().find(|running| running.contains(flow))?;
        Some(running.slots[(flow - running.first) as usize].begun)
    }

    /// The host that has `flow` enters its round: flow numbers that have a message now.
    pub(crate) fn enter(&mut self, flow: u32) -> std::ops::Range<u32> {
        let Some(running) = self.all.iter_mut().find(|running| running.contains(flow)) else { return 0..0 };
        let outstanding = running.outstanding();
        let host = (flow - running.first) / outstanding;
        running.hosts[host as usize].step = 1;
        let first = running.first + host * outstanding;
        first..first + outstanding
    }

    /// What `flow` carries next, when its host is to send and the number is free; it is under way from `now` on.
    pub(crate) fn take(&mut self, flow: u32, now: Time) -> Option<Message> {
        self.all.iter_mut().find(|running| running.contains(flow))?.take(flow, now)
    }

    /// The last byte of the message of `flow` has come. Returns the flow number that may have a message now.
    pub(crate) fn come(&mut self, flow: u32, now: Time) -> Option<u32> {
        let running = self.all.iter_mut().find(|running| running.contains(flow))?;
        let slot = &running.slots[(flow - running.first) as usize];
        self.completions.push(now.since(slot.begun));
        running.come(flow, now)
    }

    /// The message of `flow` is acknowledged to its end; the number is free. The barrier may be passed.
    pub(crate) fn acknowledge(&mut self, flow: u32, now: Time, events: &mut EventQueue) {
        if let Some(running) = self.all.iter_mut().find(|running| running.contains(flow)) {
            running.acknowledge(flow, now, events);
        }
    }

    /// Duration of each complete round, and payload that a host got in it.
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
        }
    }

    fn contains(&self, flow: u32) -> bool {
        (flow.wrapping_sub(self.first) as usize) < self.slots.len()
    }

    fn outstanding(&self) -> u32 {
        match self.schedule {
            Schedule::Pairwise => 1,
            Schedule::Window(outstanding) => outstanding,
        }
    }

    /// Size of the messages of the round that was begun last.
    fn bytes(&self) -> u64 {
        self.sizes[(self.begun as usize - 1) % self.sizes.len()]
    }

    fn begin(&mut self, now: Time, events: &mut EventQueue) {
        if self.begun == self.rounds {
            return;
        }
        let wait = if self.begun == 0 { self.start } else { self.compute };
        self.begun += 1;
        let hosts = self.hosts.len() as u64;
        (self.coming, self.open) = (hosts * (hosts - 1), hosts * (hosts - 1));
        self.came.fill(0);
        self.at = Time::MAX;
        let outstanding = self.outstanding();
        for (number, host) in (0..).zip(&mut self.hosts) {
            host.step = 0;
            let at = now + wait.draw(&mut self.stream);
            self.at = self.at.min(at);
            events.push(at, Event::Start(self.first + number * outstanding));
        }
    }

    fn take(&mut self, flow: u32, now: Time) -> Option<Message> {
        let (at, hosts) = ((flow - self.first) as usize, self.hosts.len());
        let number = at / self.outstanding() as usize;
        let step = self.hosts[number].step;
        // Pairwise, the free number says that the host's own message of the step before is acknowledged.
        let waits = self.schedule == Schedule::Pairwise && step > 1 && !self.has_come(number, step - 1);
        if self.slots[at].step != 0 || step == 0 || step as usize >= hosts || waits {
            return None;
        }
        self.hosts[number].step += 1;
        let to = (number + step as usize) % hosts;
        let generation = self.slots[at].generation.wrapping_add(1);
        let carried = self.slots[at].carried + self.slots[at].bytes;
        self.slots[at] = Slot { step, generation, begun: now, bytes: self.bytes(), carried };
        Some(Message {
            from: self.hosts[number].node,
            to: self.hosts[to].node,
            bytes: self.bytes(),
            key: u64::from(self.first) + (number * hosts + to) as u64,
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
        if self.coming == 0 {
            self.times.push((now.since(self.at), self.bytes() * (self.hosts.len() as u64 - 1)));
        }
        if self.schedule != Schedule::Pairwise {
            return None;
        }
        let step = self.slots[at].step;
        let to = (at + step as usize) % self.hosts.len();
        let bit = to * self.hosts.len() + step as usize;
        self.came[bit / 64] |= 1 << (bit % 64);
        Some(self.first + to as u32)
    }

    fn acknowledge(&mut self, flow: u32, now: Time, events: &mut EventQueue) {
        let slot = &mut self.slots[(flow - self.first) as usize];
        if slot.step == 0 {
            return;
        }
        slot.step = 0;
        self.open -= 1;
        if self.open == 0 {
            self.begin(now, events);
        }
    }
}
