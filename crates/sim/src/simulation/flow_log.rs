//! The rows of `flows.parquet`: those of transfers of rounds and exchanges as they end, all others at the end of the run.

use std::collections::BTreeMap;
use std::ops::Range;

use bandmaster_core::measure::rtt::RttSketch;
use bandmaster_core::report::flow::{FlowRecord, IdealFrames, IdealPort, ideal};
use bandmaster_core::scenario::{FlowRows, Scenario};
use bandmaster_core::time::{Span, Time};

use super::{Simulation, transfer_size};
use crate::RunOptions;
use crate::net::{Net, TAIL};
use crate::routes::route_ports;
use crate::tcp::sender::SenderCounters;

/// Flows whose memory is read before their rows are made.
const TOUCHED: usize = 64;

/// Transfers that ended since the rows were handed out last.
#[derive(Default)]
pub(crate) struct FlowLog {
    pub(super) ended: Vec<FlowRecord>,
    /// What persistent connections had counted when their last transfer ended.
    before: BTreeMap<u32, SenderCounters>,
}

impl FlowLog {
    /// A log, when the scenario asks for rows and somebody takes them; prepares the counters of `net` for so many flows.
    pub(crate) fn new(
        scenario: &Scenario,
        options: &RunOptions<'_>,
        flows: usize,
        net: &mut Net,
    ) -> Option<Box<Self>> {
        let is_wanted = options.flows.is_some() && scenario.measure.flow_table != FlowRows::None;
        is_wanted.then(|| {
            net.slab.log_drops(flows);
            Box::default()
        })
    }
}

impl Simulation<'_> {
    /// A transfer of a round or an exchange is complete; its connection begins with `flow`.
    pub(super) fn note_transfer(&mut self, flow: u32) {
        let sends = self.has_node(self.flows.plans[flow as usize].src);
        match (&mut self.part, &self.flow_log) {
            // Its sender is elsewhere.
            (Some(part), _) if !sends => return part.ended.push((self.net.now, flow)),
            (Some(part), Some(log)) => part.logged.push((flow, log.ended.len())),
            _ => {}
        }
        self.log_transfer(flow, self.net.now);
    }

    pub(super) fn log_transfer(&mut self, flow: u32, at: Time) {
        let row = self.transfer(flow, Some(at));
        if let Some(log) = &mut self.flow_log {
            log.ended.push(row);
        }
    }

    /// Takes over what the log of another part knows.
    pub(super) fn absorb_log(&mut self, other: &mut Self) {
        if let (Some(own), Some(other)) = (&mut self.flow_log, &mut other.flow_log) {
            own.before.append(&mut other.before);
        }
    }

    /// The flow numbers of the connection that begins with `flow`.
    pub(super) fn subflows(&self, flow: u32) -> Range<u32> {
        let group = self.flows.plans[flow as usize].group(&self.scenario.flows);
        flow..flow + group.multipath.map_or(1, |multipath| multipath.subflows)
    }

    /// Hands out the rows of transfers that ended.
    pub(super) fn flush_flows(&mut self, options: &RunOptions<'_>) {
        if let (Some(log), Some(take)) = (&mut self.flow_log, options.flows) {
            log.ended.drain(..).for_each(take);
        }
    }

    /// Hands out the rows of all other flows that started, and of transfers under way.
    pub(crate) fn finish_flows(&mut self, options: &RunOptions<'_>) {
        self.flush_flows(options);
        if self.flow_log.is_none() {
            return;
        }
        let all = self.flows.plans.len() as u32;
        for first in (0..all).step_by(TOUCHED) {
            let some = first..all.min(first + TOUCHED as u32);
            self.touch(some.clone());
            for flow in some {
                if let (Some(row), Some(take)) = (self.flow(flow), options.flows) {
                    take(row);
                }
            }
        }
    }

    /// Reads what the rows of these flows take from memory: here the processor waits for several at once, there for each.
    fn touch(&self, flows: Range<u32>) {
        let read = |flow: u32| {
            self.connections.get(flow as usize).map_or(0, |connection| {
                connection.receiver.delivered() ^ u64::from(connection.sender.counters.segments)
            })
        };
        // Those of UDP come last, and have no connection.
        let of_tcp = flows.start..flows.end.min(self.connections.flows() as u32);
        std::hint::black_box(of_tcp.map(read).fold(0, u64::wrapping_add));
    }

    /// The row of a flow at the end of the run; none of what never started, or has its row.
    fn flow(&mut self, flow: u32) -> Option<FlowRecord> {
        let i = flow as usize;
        let (plan, now) = (self.flows.plans[i], self.net.now);
        let repeats = self.exchanges.contains(flow) || self.rounds.contains(flow);
        let has_started = repeats || plan.start < plan.stop && plan.start <= now;
        if !has_started || plan.subflow(&self.scenario.flows) > 0 {
            return None;
        }
        if i >= self.connections.flows() {
            let source = i - self.connections.flows();
            let payload = u64::from(self.udp.sources[source].packet - bandmaster_core::units::UDP_HEADERS);
            return Some(FlowRecord {
                number: flow,
                plan,
                size: None,
                end: Some(plan.stop).filter(|stop| *stop <= now),
                bytes: self.udp.received[source] * payload,
                ideal: None,
                packets: None,
                drops: Some(self.net.slab.take_logged_drops(flow)),
                retransmits: None,
                timeouts: None,
                rtt: None,
                lab_port: None,
            });
        }
        self.connections.get(i)?;
        let finished = self.finished_at(i);
        let is_over = match self.target_of(flow) {
            Some((target, _)) => self.delivered(i) >= target,
            None => finished.is_some(),
        };
        (!repeats || !is_over).then(|| self.transfer(flow, finished.filter(|_| !repeats)))
    }

    /// When the last byte of a connection had arrived. None if `stop` cut it off before its size.
    pub(super) fn finished_at(&self, i: usize) -> Option<Time> {
        let finished = match self.flows.share(i) {
            Some(share) => self.net.multipath[share.connection].finished_at(),
            None => self.connections.get(i)?.receiver.finished_at(),
        };
        finished.filter(|_| self.size(i).is_none_or(|size| self.delivered(i) >= size))
    }

    /// The payload that a flow has to transfer; of an exchange, in its present message.
    pub(super) fn size(&self, i: usize) -> Option<u64> {
        let group = self.flows.plans[i].group(&self.scenario.flows);
        let drawn = self.flows.sizes.get(i).copied().filter(|_| group.has_sizes());
        self.exchanges.size(i as u32).or(drawn).or_else(|| transfer_size(group))
    }

    /// On a persistent connection: what it has to deliver up to the end of its transfer.
    fn target_of(&self, flow: u32) -> Option<(u64, bool)> {
        match self.exchanges.contains(flow) {
            true => self.exchanges.target(flow),
            false => self.rounds.target(flow),
        }
    }

    fn delivered(&self, i: usize) -> u64 {
        match self.flows.share(i) {
            Some(share) => self.net.multipath[share.connection].received(),
            None => self.connections.get(i).map_or(0, |connection| connection.receiver.delivered()),
        }
    }

    /// Packets that arrive too late for the previous message or connection count in no row.
    pub(super) fn forget_late(&mut self, flow: u32) {
        self.net.slab.forget_drops(flow);
        if let Some(own) = self.net.rtts.get_mut(flow as usize) {
            self.rtts_told[self.flows.plans[flow as usize].group_index()].merge(&std::mem::take(own));
        }
    }

    /// The row of what the connection that begins with `flow` transfers.
    fn transfer(&mut self, flow: u32, end: Option<Time>) -> FlowRecord {
        let i = flow as usize;
        let (plan, groups) = (self.flows.plans[i], &self.scenario.flows);
        let group = plan.group(groups);
        let start = self.exchanges.begun(flow).or(self.rounds.begun(flow)).unwrap_or(plan.start);
        let size = self.size(i);
        let target = self.target_of(flow);
        let (mut counters, mut drops) = (SenderCounters::default(), 0);
        let mut rtts = RttSketch::default();
        for subflow in flow..flow + group.multipath.map_or(1, |multipath| multipath.subflows) {
            if let Some(connection) = self.connections.get(subflow as usize) {
                counters.add(connection.sender.counters);
            }
            drops += self.net.slab.take_logged_drops(subflow);
            if let Some(own) = self.net.rtts.get_mut(subflow as usize) {
                rtts.merge(&std::mem::take(own));
            }
        }
        self.rtts_told[plan.group_index()].merge(&rtts);
        let log = self.flow_log.as_mut().filter(|_| target.is_some());
        let before = log.and_then(|log| log.before.insert(flow, counters));
        let opens = before.is_none();
        let before = before.unwrap_or_default();
        let bytes = match (target, size) {
            (Some((target, _)), Some(size)) => size.saturating_sub(target.saturating_sub(self.delivered(i))),
            _ => self.delivered(i),
        };
        FlowRecord {
            number: flow,
            plan: plan.beginning(start),
            size,
            end,
            bytes,
            ideal: size.filter(|_| group.multipath.is_none()).and_then(|size| self.ideal(i, size, opens)),
            packets: Some((counters.segments - before.segments).into()),
            drops: Some(drops),
            retransmits: Some((counters.retransmits - before.retransmits).into()),
            timeouts: Some((counters.timeouts - before.timeouts).into()),
            rtt: if self.scenario.measure.flow_table == FlowRows::Rtt { rtts.summary() } else { None },
            lab_port: None,
        }
    }

    /// The completion time of a transfer of `size` bytes in an empty network.
    fn ideal(&self, i: usize, size: u64, opens: bool) -> Option<Span> {
        let connection = self.connections.get(i)?;
        let profile = self.flows.profile(i);
        let way = |place: u32, back: usize| -> Vec<IdealPort> {
            let first = (place & TAIL != 0).then(|| self.net.starts[i][back]);
            let rest = route_ports(&self.net.routes, place & !TAIL).iter().copied();
            first.into_iter().chain(rest).map(|port| self.net.ports[port as usize].ideal()).collect()
        };
        let (there, back) = (way(connection.sender.route(), 0), way(connection.receiver.route(), 1));
        let overhead = self.scenario.topology.frame_overhead.get();
        Some(ideal(&there, &back, IdealFrames::new(&profile.settings, overhead, size, opens)))
    }
}
