//! A part of a network that is simulated at the same time as the others.
//!
//! Every part knows the whole scenario. It has the queues and the hosts that [`Partitioning`] gives it; what it knows of others
//! is a copy that nothing happens to. A connection between two parts has its sender in one and its receiver in the other.

use std::collections::BTreeMap;
use std::sync::Arc;

use bandmaster_core::control::{self, FlowEnd, Gauges, Observation};
use bandmaster_core::id::{FlowId, NodeId};
use bandmaster_core::time::Time;
use bandmaster_core::tuning::Tuning;

use super::Simulation;
use crate::events::Event;
use crate::exchange::{Message, Slot};
use crate::link::Left;
use crate::net::ROUTE_END;
use crate::packet::{Label, PROBE, Packet};
use crate::partition::Partitioning;
use crate::probes::Probe;
use crate::workload::FlowPlan;
use crate::{RunError, RunOptions};

/// What a part knows of the others.
pub(crate) struct Part {
    pub(crate) number: usize,
    pub(crate) all: Arc<Partitioning>,
    /// By part: what goes there.
    pub(crate) out: Vec<Mail>,
    /// By key: a packet that arrives later. How many there are.
    coming: Vec<Coming>,
    pub(super) expected: u64,
    /// Sources that went on or off, when, and the places of their routes in the table.
    pub(crate) turns: Vec<(Time, u32, bool, u32)>,
    /// By port: when its link went down.
    failures: BTreeMap<u32, Vec<Time>>,
    /// Why the run is given up.
    pub(crate) failure: Option<RunError>,
    /// What roles show, and since when.
    pub(crate) shown: Vec<(Time, usize, Gauges)>,
    /// Transfers that ended here and began elsewhere, for rows and for distributions.
    pub(crate) ended: Vec<(Time, u32)>,
    pub(crate) completed: Vec<(Time, u32)>,
    /// Transfers that have a row: flow number, and place of the row.
    pub(crate) logged: Vec<(u32, usize)>,
}

/// A packet of this part that arrives later. It has what forwarding needs, so that the packet itself can stay out of the cache.
#[derive(Clone, Copy)]
struct Coming {
    /// The port that it comes over; `NONE`: no packet comes.
    port: u32,
    label: Label,
    /// When that port has transmitted it.
    departs: Time,
}

/// What a part has for another.
#[derive(Default)]
pub(crate) struct Mail {
    pub(crate) packets: Vec<Crossing>,
    pub(crate) notices: Vec<Notice>,
}

/// A packet that goes from part to part.
pub(crate) struct Crossing {
    /// The port that it arrives over.
    port: u32,
    packet: Packet,
    /// When its sender's TCP handed it over, where somebody asks.
    sent: Option<Time>,
    /// What a scheme's probe says.
    probe: Option<Box<Probe>>,
    /// When that port took it, when it has been transmitted, and when it arrives.
    accepted: Time,
    departs: Time,
    at: Time,
}

/// In place of a port: no packet comes, or a fault has taken it.
const NONE: u32 = u32::MAX;
const GONE: u32 = u32::MAX - 1;

/// What a part tells another. It is heeded when the next window begins, before any packet that was sent after it.
pub(crate) enum Notice {
    /// Packets that had left a port were lost, as its link went down.
    Lost { port: u32, packets: u64 },
    /// A message between roles.
    Message { at: Time, to: NodeId, message: control::Message },
    /// A flow has ended at its receiver.
    FlowEnded { flow: u32 },
    /// A scheme has changed the settings of a flow.
    Tuned { flow: u32, tuning: Tuning },
    /// A flow number has a message of an exchange.
    Transfer { flow: u32, message: Message, slot: Slot },
    /// A flow number goes to another host: what its last message has left in the network comes too late.
    Replaced { flow: u32, generation: u8, to: NodeId },
    /// Packets with this flow number and generation go to this host.
    Captured { key: (u32, u8), to: NodeId },
    /// A multipath connection that begins with this flow ends after so many bytes.
    Ends { flow: u32, total: u64 },
}

impl Mail {
    pub(crate) fn is_empty(&self) -> bool {
        self.packets.is_empty() && self.notices.is_empty()
    }

    /// When something happens because of it for the first time; a notice is heeded at `limit`.
    pub(crate) fn first(&self, limit: Time) -> Option<Time> {
        let noticed = (!self.notices.is_empty()).then_some(limit);
        self.packets.iter().map(|packet| packet.at).chain(noticed).min()
    }
}

impl Part {
    pub(crate) fn new(number: usize, all: Arc<Partitioning>) -> Self {
        let out = (0..all.parts).map(|_| Mail::default()).collect();
        Self {
            number,
            all,
            out,
            coming: Vec::new(),
            expected: 0,
            turns: Vec::new(),
            failures: BTreeMap::new(),
            failure: None,
            shown: Vec::new(),
            ended: Vec::new(),
            completed: Vec::new(),
            logged: Vec::new(),
        }
    }

    /// The part that has a node.
    pub(crate) fn of(&self, node: NodeId) -> usize {
        self.all.of_node[node.index()].into()
    }

    /// The link of these ports goes down at `now`: takes its packets off the wire, as far as they are here. Returns their numbers by
    /// port.
    fn fail(&mut self, ports: [u32; 2], now: Time) -> [u64; 2] {
        ports.iter().for_each(|port| self.failures.entry(*port).or_default().push(now));
        let mut lost = [0; 2];
        for coming in &mut self.coming {
            if let Some(at) = ports.iter().position(|failed| *failed == coming.port) {
                coming.port = GONE;
                // The port itself counts what waits for its transmitter, or is being transmitted.
                lost[at] += u64::from(coming.departs <= now);
            }
        }
        lost
    }

    /// When the link went down between a port's taking of a packet and its arrival.
    fn lost_at(&self, packet: &Crossing) -> Option<Time> {
        let mut times = self.failures.get(&packet.port)?.iter().copied();
        times.find(|time| packet.accepted <= *time && *time <= packet.at)
    }

    /// Has something to tell the part that has a node.
    pub(super) fn tell(&mut self, node: NodeId, notice: Notice) {
        let to = self.of(node);
        self.out[to].notices.push(notice);
    }

    fn tell_of_loss(&mut self, port: u32, packets: u64) {
        let to = usize::from(self.all.of_port[port as usize]);
        self.out[to].notices.push(Notice::Lost { port, packets });
    }

    /// A packet arrives later over a port.
    fn expect(&mut self, label: Label, port: u32, departs: Time) {
        let place = label.key as usize;
        if self.coming.len() <= place {
            let none = Coming { port: NONE, label: Label::default(), departs: Time::ZERO };
            self.coming.resize(place + 1, none);
        }
        self.coming[place] = Coming { port, label, departs };
        self.expected += 1;
    }

    /// Place in the table of routes of the next port of the packet with this key, which arrives later.
    #[inline]
    pub(super) fn next_hop(&self, key: u32) -> Option<u32> {
        self.coming.get(key as usize).map(|coming| coming.label.hop)
    }
}

impl Simulation<'_> {
    /// This part has `node`.
    #[inline]
    pub(super) fn has_node(&self, node: NodeId) -> bool {
        self.part.as_ref().is_none_or(|part| part.of(node) == part.number)
    }

    /// The part that has the sender of a flow.
    pub(super) fn part_of_sender(&self, flow: u32) -> usize {
        let src = self.flows.plans[flow as usize].src;
        self.part.as_ref().map_or(0, |part| part.of(src))
    }

    /// Plans what begins by itself in this part.
    pub(super) fn schedule_part(&mut self) {
        self.rounds.hold();
        self.exchanges.hold();
        let groups = &self.scenario.flows;
        for flow in 0..self.flows.plans.len() as u32 {
            let plan = &self.flows.plans[flow as usize];
            if plan.start >= plan.stop || plan.subflow(groups) > 0 {
                continue;
            }
            let (plan, sends) = (*plan, self.has_node(plan.src));
            // The receiver of others is made by their first packet.
            if sends || plan.group(groups).multipath.is_some() && self.has_node(plan.dst) {
                self.net.events.push(plan.start, Event::Start(flow));
            }
            if sends && plan.stop != Time::MAX {
                self.net.events.push(plan.stop, Event::Stop(flow));
            }
        }
        let mut starts = Vec::new();
        self.rounds.begin(|at, flow| starts.push((at, flow)));
        starts.drain(..).for_each(|(at, flow)| self.plan_start(flow, at, Time::ZERO));
        self.exchanges.begin(|at, flow| starts.push((at, flow)));
        for (at, flow) in starts {
            if self.has_node(self.flows.plans[flow as usize].src) {
                self.net.events.push(at, Event::Start(flow));
            }
        }
        for (number, fault) in (0..).zip(&self.scenario.faults.nodes) {
            self.net.events.push(fault.at, Event::NodeFault(number));
        }
        self.begin_roles();
    }

    /// Handles what happens before `limit`.
    pub(crate) fn drive_before(&mut self, limit: Time) {
        let fetches = self.fetches();
        while let Some((at, event)) = self.net.events.pop_before(limit) {
            self.net.now = at;
            if fetches {
                self.fetch_ahead();
            }
            self.take(event);
            self.hand_over();
            if matches!(event, Event::Reroute)
                && let Err(why) = self.reroute(&RunOptions::default())
                && let Some(part) = &mut self.part
            {
                part.failure = Some(why);
            }
        }
    }

    /// Hands packets over that have left ports whose other ends may be of other parts.
    #[inline]
    fn hand_over(&mut self) {
        if let Some(left) = self.net.events.take_left() {
            self.hand_all_over(&left);
            self.net.events.give_back(left);
        }
    }

    fn hand_all_over(&mut self, left: &[Left]) {
        let Some(part) = &mut self.part else { return };
        for packet in left {
            let (label, arrives) = packet.label();
            if !arrives {
                self.net.slab.remove(label.key);
                continue;
            }
            let to = match self.net.routes[label.hop as usize] {
                ROUTE_END => part.all.of_node[part.all.ends[packet.port as usize] as usize],
                next => part.all.of_port[next as usize],
            };
            let &Left { port, accepted, departs, at, .. } = packet;
            if usize::from(to) == part.number {
                part.expect(label, port, departs);
                self.net.events.push(at, Event::Crossed(label.key));
                continue;
            }
            let packet = Packet { hop: label.hop, ..*self.net.slab.at(label.key) };
            let sent = self.net.slab.sent(label.key);
            self.net.slab.remove(label.key);
            let is_probe = packet.flow == PROBE;
            let probe = if is_probe { self.control.probes.take(label.key).map(Box::new) } else { None };
            let crossing = Crossing { port, packet, sent, probe, accepted, departs, at };
            part.out[usize::from(to)].packets.push(crossing);
        }
    }

    /// The packet with this key, which came from another part, arrives.
    #[inline]
    pub(super) fn come_over(&mut self, key: u32) {
        let Some(part) = &mut self.part else { return };
        let coming = &mut part.coming[key as usize];
        let (port, label) = (std::mem::replace(&mut coming.port, NONE), coming.label);
        part.expected -= 1;
        if port == GONE {
            return self.net.slab.remove(key);
        }
        self.pass_on(port, label);
    }

    /// Takes what other parts have for this one; the order does not depend on who was first.
    pub(crate) fn take_mail<'m>(&mut self, now: Time, mail: impl Iterator<Item = &'m mut Mail>) {
        self.net.now = now;
        for mail in mail {
            for notice in std::mem::take(&mut mail.notices) {
                self.heed(notice);
            }
            mail.packets.drain(..).for_each(|packet| self.import(packet));
        }
        // A role that has heard something may have acted.
        self.hand_over();
    }

    /// Takes a packet in that arrives later.
    fn import(&mut self, crossing: Crossing) {
        let Some(part) = &mut self.part else { return };
        if !part.failures.is_empty()
            && let Some(failed) = part.lost_at(&crossing)
        {
            if crossing.departs <= failed {
                part.tell_of_loss(crossing.port, 1);
            }
            return;
        }
        let Crossing { port, packet, sent, probe, departs, at, .. } = crossing;
        let label = self.net.slab.insert(packet);
        if let Some(sent) = sent {
            self.net.slab.note_sent(label.key, sent);
        }
        if let Some(probe) = probe {
            self.control.probes.put(label.key, *probe);
        }
        part.expect(label, port, departs);
        self.net.events.push(at, Event::Crossed(label.key));
    }

    fn heed(&mut self, notice: Notice) {
        match notice {
            Notice::Transfer { flow, message, slot } => {
                self.exchanges.adopt(flow, slot);
                let is_kept = message.total.is_some() && self.connections.get(flow as usize).is_some();
                if !is_kept {
                    self.open_message(flow, &message);
                }
            }
            Notice::Lost { port, packets } => self.net.ports[port as usize].lose_delivered(packets),
            Notice::Message { at, to, message } => {
                let number = self.control.post.take_in(to, message);
                self.net.events.push(at, Event::Deliver(number));
            }
            Notice::FlowEnded { flow } => self.tell_of_flow_end(flow, FlowEnd::Sender),
            Notice::Tuned { flow, tuning } => self.adopt_tuning(flow as usize, tuning),
            Notice::Replaced { flow, generation, to } => {
                if !self.control.runner.is_empty() {
                    self.move_flow(flow, to);
                    self.flows.plans[flow as usize].dst = to;
                }
                if let Some(connection) = self.connections.get_mut(flow as usize) {
                    connection.sender.set_generation(generation);
                }
            }
            Notice::Captured { key, to } => {
                self.captured_messages.insert(key, to);
            }
            Notice::Ends { flow, total } => {
                if let Some(share) = self.flows.share(flow as usize) {
                    self.net.multipath[share.connection].end_at(total);
                }
            }
        }
    }

    /// Hands out the packets that have left the captured port up to `now`.
    pub(crate) fn flush_capture_at(&mut self, now: Time, options: &mut RunOptions<'_>) {
        self.net.now = now;
        self.flush_capture(options);
    }

    /// A link goes down: what is on its wire is lost in this part too.
    pub(super) fn fail_crossing(&mut self, link: u32) {
        let now = self.net.now;
        let Some(part) = &mut self.part else { return };
        let ports = [2 * link, 2 * link + 1];
        for (port, lost) in ports.into_iter().zip(part.fail(ports, now)) {
            if lost > 0 {
                part.tell_of_loss(port, lost);
            }
        }
    }

    /// Plans the start of a flow that one of this part's hosts has an end of, not before `from`.
    pub(crate) fn plan_start(&mut self, flow: u32, at: Time, from: Time) {
        let plan = &self.flows.plans[flow as usize];
        if self.has_node(plan.src) || self.has_node(plan.dst) {
            self.net.events.push(at.max(from), Event::Start(flow));
        }
    }

    /// The next round of a series begins at `now`; flows start at `from` at the earliest.
    pub(crate) fn begin_series(&mut self, series: u32, now: Time, from: Time) {
        let mut starts = Vec::new();
        self.rounds.begin_series(series, now, |at, flow| starts.push((at, flow)));
        starts.into_iter().for_each(|(at, flow)| self.plan_start(flow, at, from));
    }

    /// The next round of exchange `number` begins at `now`; hosts enter it at `from` at the earliest.
    /// False when that was the last.
    pub(crate) fn begin_exchange(&mut self, number: usize, now: Time, from: Time) -> bool {
        let mut starts = Vec::new();
        self.exchanges.begin_round(number, now, |at, flow| starts.push((at, flow)));
        let begins = !starts.is_empty();
        for (at, flow) in starts {
            if self.has_node(self.flows.plans[flow as usize].src) {
                self.net.events.push(at.max(from), Event::Start(flow));
            }
        }
        begins
    }

    /// Tells the receiver's part of a message.
    pub(super) fn tell_of_message(&mut self, flow: u32, message: Message) {
        let Some(part) = &mut self.part else { return };
        if let Some(port) = self.captured_port {
            let to = usize::from(part.all.of_port[port as usize]);
            if to != part.number {
                let (key, to_node) = ((flow, message.generation), message.to);
                part.out[to].notices.push(Notice::Captured { key, to: to_node });
            }
        }
        let (last, to) = (part.of(self.flows.plans[flow as usize].dst), part.of(message.to));
        if last != part.number && last != to {
            let generation = message.generation;
            part.out[last].notices.push(Notice::Replaced { flow, generation, to: message.to });
        }
        if to != part.number
            && let Some(slot) = self.exchanges.slot(flow)
        {
            part.out[to].notices.push(Notice::Transfer { flow, message, slot });
        }
    }

    /// Tells the receiver's part what a scheme has changed in a flow.
    pub(super) fn tell_of_tuning(&mut self, flow: u32, tuning: Tuning) {
        let plan = self.flows.plans[flow as usize];
        if let Some(part) = &mut self.part
            && part.of(plan.src) == part.number
            && part.of(plan.dst) != part.number
        {
            part.tell(plan.dst, Notice::Tuned { flow, tuning });
        }
    }

    /// Tells the roles at one end of a flow that it has ended.
    pub(super) fn tell_of_flow_end(&mut self, flow: u32, end: FlowEnd) {
        let FlowPlan { src, dst, .. } = self.flows.plans[flow as usize];
        let node = if end == FlowEnd::Receiver { dst } else { src };
        if let Some(part) = &mut self.part
            && part.of(node) != part.number
        {
            part.tell(node, Notice::FlowEnded { flow });
            return;
        }
        let stats = self.stats_of(flow, end);
        self.observe(node, &Observation::Carried(stats));
        self.observe(node, &Observation::FlowEnded(FlowId(flow)));
    }

    /// Tells the receiver's part how much a multipath connection that stops will deliver.
    pub(super) fn tell_of_end(&mut self, flow: u32, total: u64) {
        let Some(part) = &mut self.part else { return };
        let to = part.of(self.flows.plans[flow as usize].dst);
        if to != part.number {
            part.out[to].notices.push(Notice::Ends { flow, total });
        }
    }
}
