//! The rows of `flows.parquet`: those of parts of rounds as they end, all others at the end of the run.

use bandmaster_core::report::flow::{FlowRecord, IdealFrames, IdealPort, ideal};
use bandmaster_core::scenario::Transport;
use bandmaster_core::time::{Span, Time};
use bandmaster_core::units::UDP_HEADERS;

use super::Lab;
use crate::syscall::TcpInfo;

/// What rows have told of a flow.
#[derive(Clone, Copy, Default)]
pub(super) struct Told {
    info: TcpInfo,
    dropped: u64,
}

impl Lab<'_> {
    /// A connection has brought its part of a round, or failed.
    pub(super) fn tell_part(&mut self, i: usize) {
        if self.take_row.is_none() {
            return;
        }
        let Some(start) = self.rounds.begun(i as u32) else { return };
        let has_failed = self.traffic.stage(i).failed.is_some();
        let now = self.forwarder.clock.now();
        match self.plan.sizes[i] {
            Some(size) if !has_failed => self.tell_row(i, start, Some(now), size),
            _ => self.tell_row(i, start, None, self.received_of_part(i)),
        }
    }

    /// All other flows that started, and parts of rounds under way.
    pub(super) fn tell_rows(&mut self, end: Time) {
        if self.take_row.is_none() {
            return;
        }
        for i in 0..self.plan.flows.len() {
            let plan = self.plan.flows[i];
            let (state, stage) = (self.traffic.state(i), self.traffic.stage(i));
            if self.rounds.contains(i as u32) {
                let is_over =
                    self.rounds.target(i as u32).is_some_and(|(target, _)| state.received >= target);
                if let Some(start) = self.rounds.begun(i as u32).filter(|_| stage.is_receiving() && !is_over)
                {
                    self.tell_row(i, start, None, self.received_of_part(i));
                }
                continue;
            }
            if plan.start >= plan.stop || plan.start > end {
                continue;
            }
            match &plan.group(&self.scenario.flows).transport {
                Transport::Tcp { .. } => {
                    let finished =
                        state.finished_at.or(state.ended_at.filter(|_| self.plan.sizes[i].is_none()));
                    self.tell_row(i, plan.start, finished, state.received);
                }
                Transport::Udp { packet, .. } => {
                    let payload = packet.get().saturating_sub(u64::from(UDP_HEADERS));
                    let stopped = Some(plan.stop).filter(|stop| *stop <= end);
                    self.tell_row(i, plan.start, stopped, state.datagrams * payload);
                }
            }
        }
    }

    /// Payload that a connection has brought of its part of a round.
    fn received_of_part(&self, i: usize) -> u64 {
        let received = self.traffic.state(i).received;
        match (self.rounds.target(i as u32), self.plan.sizes[i]) {
            (Some((target, _)), Some(size)) => size.saturating_sub(target.saturating_sub(received)),
            _ => received.saturating_sub(self.rounds.carried(i as u32)),
        }
    }

    fn tell_row(&mut self, i: usize, start: Time, end: Option<Time>, bytes: u64) {
        let Some(take) = self.take_row else { return };
        let (plan, size) = (self.plan.flows[i], self.plan.sizes[i]);
        // The kernel of a process of iperf3 tells nobody else.
        let info = self.traffic.info(i).filter(|_| i < self.plan.tcp_flows && self.traffic.has_sockets());
        let dropped = self.forwarder.board.dropped(i);
        let is_counted =
            self.plan.data_routes[i].iter().all(|port| !self.network.shapers.contains_key(&(*port as usize)));
        let last = Told { info: info.unwrap_or_default(), dropped };
        let before = self.told.insert(i, last);
        let opens = before.is_none() || self.rounds.target(i as u32).is_none();
        let before = before.unwrap_or_default();
        let since = |now: u32, before: u32| u64::from(now.saturating_sub(before));
        let timeouts = |info: TcpInfo| {
            Some(since(info.timeouts?.into(), before.info.timeouts.unwrap_or_default().into()))
        };
        take(FlowRecord {
            number: i as u32,
            plan: plan.beginning(start),
            size,
            end,
            bytes,
            ideal: size.and_then(|size| self.ideal(i, size, opens)),
            packets: info.map(|info| since(info.data_segments, before.info.data_segments)),
            drops: is_counted.then(|| dropped - before.dropped),
            retransmits: info.map(|info| since(info.retransmits, before.info.retransmits)),
            timeouts: info.and_then(timeouts),
            rtt: None,
            lab_port: Some(self.traffic.port()),
        });
    }

    /// The completion time of a transfer of `size` bytes in an empty network.
    fn ideal(&self, i: usize, size: u64, opens: bool) -> Option<Span> {
        let Transport::Tcp { settings, .. } = &self.plan.flows[i].group(&self.scenario.flows).transport
        else {
            return None;
        };
        let links = &self.plan.links;
        let way = |ports: &[u32]| -> Vec<IdealPort> {
            let ideal =
                |port: &u32| IdealPort::new(links.rates[*port as usize], links.delays[*port as usize / 2]);
            ports.iter().map(ideal).collect()
        };
        let frames = IdealFrames::new(settings, self.scenario.topology.frame_overhead.get(), size, opens);
        Some(ideal(&way(&self.plan.data_routes[i]), &way(self.plan.ack_routes.get(i)?), frames))
    }
}
