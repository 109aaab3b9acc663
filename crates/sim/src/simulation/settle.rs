//! What concerns all parts of a network, between two windows and at the end of a run.

use bandmaster_core::control::Gauges;
use bandmaster_core::id::NodeId;
use bandmaster_core::report::flow::FlowRecord;
use bandmaster_core::time::Time;

use super::Simulation;
use crate::RunOptions;
use crate::tcp::multipath::{Share, Shared};

impl Simulation<'_> {
    /// Makes the rows of transfers whose ends are in different parts, adds what was dropped elsewhere to the others, and counts
    /// completions.
    pub(crate) fn settle_transfers(parts: &mut [&mut Self]) {
        for at in 0..parts.len() {
            let Some(part) = &mut parts[at].part else { continue };
            let (logged, ended) = (std::mem::take(&mut part.logged), std::mem::take(&mut part.ended));
            let completed = std::mem::take(&mut part.completed);
            for (end, flow) in completed {
                let first = flow - parts[at].flows.plans[flow as usize].subflow(&parts[at].scenario.flows);
                for flow in parts[at].subflows(first) {
                    let dropped = take_from_others(parts, at, |part| part.net.slab.take_drops(flow).into());
                    parts[at].net.slab.add_drops(flow, dropped as u32);
                }
                with_sender(parts, at, first, |part| part.note_completion(flow, end));
            }
            for (flow, row) in logged {
                let subflows = parts[at].subflows(flow);
                let dropped: u64 = subflows.map(|flow| take_logged_drops(parts, at, flow)).sum();
                if let Some(log) = &mut parts[at].flow_log {
                    let drops = &mut log.ended[row].drops;
                    *drops = drops.map(|drops| drops + dropped);
                }
            }
            for (end, flow) in ended {
                let sender = parts[at].part_of_sender(flow);
                for flow in parts[at].subflows(flow) {
                    let dropped = take_logged_drops(parts, at, flow);
                    parts[at].net.slab.add_logged_drops(flow, dropped);
                    if let Some(times) = parts[sender].net.rtts.get_mut(flow as usize) {
                        let times = std::mem::take(times);
                        parts[at].net.rtts[flow as usize].merge(&times);
                    }
                }
                with_sender(parts, at, flow, |part| part.log_transfer(flow, end));
            }
        }
    }

    /// Hands out the rows of transfers that ended in any part.
    pub(crate) fn flush_all_flows(parts: &mut [&mut Self], options: &RunOptions<'_>) {
        let logs = parts.iter_mut().filter_map(|part| part.flow_log.as_mut());
        let mut ended: Vec<FlowRecord> = logs.flat_map(|log| log.ended.drain(..)).collect();
        ended.sort_by_key(|row| (row.end, row.number));
        if let Some(take) = options.flows {
            ended.into_iter().for_each(take);
        }
    }

    /// Tells the meters, which the first part has, of sources that went on or off.
    pub(crate) fn settle_turns(parts: &mut [&mut Self]) {
        let own = parts.iter_mut().filter_map(|part| part.part.as_mut());
        let mut turns: Vec<_> = own.flat_map(|part| part.turns.drain(..)).collect();
        turns.sort_by_key(|(at, index, ..)| (*at, *index));
        for (at, index, on, route) in turns {
            parts[0].meter_turn(at, index as usize, on, route);
        }
    }

    /// Tells the meters, which the first part has, what roles show.
    pub(crate) fn settle_shown(parts: &mut [&mut Self]) {
        let own = parts.iter_mut().filter_map(|part| part.part.as_mut());
        let mut shown: Vec<(Time, usize, Gauges)> = own.flat_map(|part| part.shown.drain(..)).collect();
        shown.sort_by_key(|(at, role, _)| (*at, *role));
        let first = &mut *parts[0];
        for (at, role, gauges) in shown {
            first.meters.gauges.note(first.scenario, role, at, &gauges);
        }
    }

    /// The whole network at the `end` of a run, from its parts.
    pub(crate) fn merge(parts: &mut Vec<Self>, end: Time, options: &mut RunOptions<'_>) -> Option<Self> {
        let mut all: Vec<&mut Self> = parts.iter_mut().collect();
        for part in &mut all {
            part.flush_capture_at(end, options);
            part.check_conservation();
        }
        Self::settle_turns(&mut all);
        Self::settle_shown(&mut all);
        Self::flush_all_flows(&mut all, options);
        let mut others = parts.split_off(1.min(parts.len()));
        let mut whole = parts.pop()?;
        let all = whole.part.take()?.all;
        let of = |node: NodeId| usize::from(all.of_node[node.index()]);
        whole.merge_flows(&mut others, of);
        for (number, other) in (1..).zip(&mut others) {
            for (port, _) in all.of_port.iter().enumerate().filter(|(_, part)| usize::from(**part) == number)
            {
                std::mem::swap(&mut whole.net.ports[port], &mut other.net.ports[port]);
            }
            let plans = &whole.flows.plans;
            whole.rounds.absorb(&mut other.rounds, |flow| of(plans[flow as usize].dst) == number);
            whole.exchanges.absorb(&mut other.exchanges, |flow| of(plans[flow as usize].src) == number);
            whole.net.events.count(other.net.events.taken());
            whole.connections.replaced.add(other.connections.replaced);
            for (own, other) in whole.rtts_told.iter_mut().zip(&other.rtts_told) {
                own.merge(other);
            }
            whole.absorb_log(other);
            whole.control.runner.absorb(&other.control.runner);
            whole.control.post.absorb(&other.control.post);
            whole.control.probes.bytes += other.control.probes.bytes;
            whole.distributions.absorb(&mut other.distributions);
            for (own, other) in whole.net.windows.iter_mut().zip(&other.net.windows) {
                *own += other;
            }
        }
        Some(whole)
    }

    /// Takes the ends of flows from the parts that have them.
    fn merge_flows(&mut self, others: &mut [Self], of: impl Fn(NodeId) -> usize) {
        let mut shared: Vec<Vec<Option<Shared>>> = Vec::new();
        for part in std::iter::once(&mut *self).chain(others.iter_mut()) {
            shared.push(std::mem::take(&mut part.net.multipath).into_iter().map(Some).collect());
        }
        let tcp_flows = self.connections.flows();
        for i in 0..self.flows.plans.len() {
            let sender = of(self.flows.plans[i].src);
            let this = &mut *self;
            let plan = if sender == 0 { this.flows.plans[i] } else { others[sender - 1].flows.plans[i] };
            let receiver = of(plan.dst);
            this.flows.plans[i] = plan;
            if i >= tcp_flows {
                if receiver > 0 {
                    this.udp.received[i - tcp_flows] = others[receiver - 1].udp.received[i - tcp_flows];
                }
                continue;
            }
            let dropped: u64 = others.iter_mut().map(|o| o.net.slab.take_logged_drops(i as u32)).sum();
            this.net.slab.add_logged_drops(i as u32, dropped);
            let share = if receiver == 0 { this.flows.share(i) } else { others[receiver - 1].flows.share(i) };
            if let Some(Share { connection, subflow }) = share {
                if subflow == 0 {
                    this.net.multipath.extend(shared[receiver][connection].take());
                }
                let connection = this.net.multipath.len() - 1;
                this.flows.shares[i] = Some(Share { connection, subflow });
            }
            if sender > 0 {
                let other = &mut others[sender - 1];
                if let Some(first) = other.net.starts.get(i) {
                    this.net.starts[i] = *first;
                }
                if let Some(times) = other.net.rtts.get_mut(i) {
                    this.net.rtts[i] = std::mem::take(times);
                }
                if let Some(connection) = other.connections.get_mut(i) {
                    let new = || this.flows.connect(i, &this.scenario.flows);
                    let own = this.connections.get_or_insert_with(i, new);
                    own.sender = std::mem::take(&mut connection.sender);
                }
            }
            if receiver > 0 {
                let other = &mut others[receiver - 1];
                if let Some(came) = other.flows.received_ip_bytes.get(i) {
                    this.flows.received_ip_bytes[i] = *came;
                }
                if let Some(connection) = other.connections.get_mut(i) {
                    let new = || this.flows.connect(i, &this.scenario.flows);
                    let own = this.connections.get_or_insert_with(i, new);
                    own.receiver = std::mem::take(&mut connection.receiver);
                }
            }
        }
    }
}

/// Lets part `at` work on the connection that begins with `first` as if it had its sender too.
fn with_sender(
    parts: &mut [&mut Simulation<'_>],
    at: usize,
    first: u32,
    work: impl FnOnce(&mut Simulation<'_>),
) {
    let ends = [at, parts[at].part_of_sender(first)];
    let subflows = parts[at].subflows(first);
    subflows.clone().for_each(|flow| swap_senders(parts, ends, flow));
    work(parts[at]);
    subflows.for_each(|flow| swap_senders(parts, ends, flow));
}

/// Lends the sender of a flow to another part, or takes it back.
fn swap_senders(parts: &mut [&mut Simulation<'_>], ends: [usize; 2], flow: u32) {
    if let Ok([one, other]) = parts.get_disjoint_mut(ends)
        && let Some(one) = one.connections.get_mut(flow as usize)
        && let Some(other) = other.connections.get_mut(flow as usize)
    {
        std::mem::swap(&mut one.sender, &mut other.sender);
    }
}

/// Packets of a flow's sender that the queues of other parts than `at` dropped since a row of it was made.
fn take_logged_drops(parts: &mut [&mut Simulation<'_>], at: usize, flow: u32) -> u64 {
    take_from_others(parts, at, |part| part.net.slab.take_logged_drops(flow))
}

/// The sum of what all parts but `at` give.
fn take_from_others(
    parts: &mut [&mut Simulation<'_>],
    at: usize,
    mut take: impl FnMut(&mut Simulation<'_>) -> u64,
) -> u64 {
    let others = parts.iter_mut().enumerate().filter(|(part, _)| *part != at);
    others.map(|(_, part)| take(part)).sum()
}
