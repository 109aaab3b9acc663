//! The lab as the host of every role.

use std::cmp::Reverse;
use std::sync::PoisonError;

use bandmaster_core::control::{
    FlowEnd, FlowStart, FlowStats, Gauges, Message, Observation, Passed, PortStats, SegmentCounts,
};
use bandmaster_core::id::{FlowId, NodeId, PortId};
use bandmaster_core::port::flow_counter::Reader;
use bandmaster_core::runtime::faults::PathEnd;
use bandmaster_core::runtime::inventory::Change;
use bandmaster_core::runtime::{Host, Refusal, Runner};
use bandmaster_core::scenario::{NodeFault, Transport};
use bandmaster_core::scheme::Act;
use bandmaster_core::time::Time;
use bandmaster_core::topology::NodeKind;
use bandmaster_core::tuning::Tuning;
use bandmaster_core::units::{Bytes, Rate, tcp_headers};
use bandmaster_core::workload::flow_key;

use super::tuner::Bound;
use super::{Event, Lab};
use crate::Error;
use crate::forwarder::Passage;
use crate::probes::Arrival;
use crate::timing::RoundTrip;

impl Lab<'_> {
    /// Takes what the forwarder and the roles' sockets have to tell.
    pub(super) fn hear(&mut self) -> Result<(), Error> {
        while let Ok(passage) = self.forwarder.passages.try_recv() {
            if passage.left {
                let Passage { at, from, to, payload, passed, .. } = passage;
                let passed = self.since_restart(from, to, passed, PathEnd::First);
                self.observe(from, at, &Observation::ProbeLeft { payload: &payload, passed })?;
            } else {
                self.probes.expect(passage);
            }
        }
        while let Some(Arrival { from, to, stamp }) = self.probes.receive() {
            let Passage { at, payload, passed, .. } = stamp;
            let passed = self.since_restart(from, to, passed, PathEnd::Last);
            self.observe(to, at, &Observation::ProbeCame { from, payload: &payload, passed })?;
        }
        Ok(())
    }

    /// What a probe's stamp counts, without what its node has forgotten.
    fn since_restart(&self, from: NodeId, to: NodeId, passed: Passed, end: PathEnd) -> Passed {
        let way = self.plan.probe_routes.iter().find(|(f, t, _)| (*f, *t) == (from, to));
        way.map_or(passed, |(.., ports)| self.probes.faults.since_restart(ports, end, passed))
    }

    /// Tells both ends of a TCP flow that it begins, before anything is sent: what they answer is in its first window.
    /// The receiver learns of it here when its sender connects, not when the SYN has come.
    pub(super) fn announce(&mut self, i: usize) -> Result<(), Error> {
        if self.runner.is_empty() {
            return Ok(());
        }
        let (src, dst) = (self.plan.flows[i].src, self.plan.flows[i].dst);
        self.announce_at(i, dst, FlowEnd::Receiver)?;
        self.announce_at(i, src, FlowEnd::Sender)
    }

    fn announce_at(&mut self, i: usize, node: NodeId, end: FlowEnd) -> Result<(), Error> {
        let stats = self.stats_of(i, end);
        let route: Vec<PortId> = self.plan.data_routes[i].iter().map(|port| PortId(*port)).collect();
        let start = FlowStart { stats, key: flow_key(i as u32), route: &route };
        self.observe(node, self.forwarder.clock.now(), &Observation::FlowStarted(start))
    }

    /// Tells both ends of the flows whose last byte has come; that may end a round.
    pub(super) fn tell_ends(&mut self) -> Result<(), Error> {
        while let Some(i) = self.traffic.next_complete() {
            self.end_of_part(i);
        }
        while let Some(i) = self.traffic.next_ended() {
            let (src, dst) = (self.plan.flows[i].src, self.plan.flows[i].dst);
            for (node, end) in [(dst, FlowEnd::Receiver), (src, FlowEnd::Sender)] {
                let carried = Observation::Carried(self.stats_of(i, end));
                self.observe(node, self.forwarder.clock.now(), &carried)?;
                let ended = Observation::FlowEnded(FlowId(i as u32));
                self.observe(node, self.forwarder.clock.now(), &ended)?;
            }
            let has_failed = self.traffic.stage(i).failed.is_some();
            if self.rounds.contains(i as u32) && (has_failed || self.rounds.target(i as u32).is_none()) {
                self.end_of_part(i);
                self.push(self.forwarder.clock.now(), Event::Renew(i));
            }
        }
        Ok(())
    }

    /// A connection has brought its part of a round, or failed.
    fn end_of_part(&mut self, i: usize) {
        self.tell_part(i);
        let (now, events) = (self.forwarder.clock.now(), &mut self.events);
        let start = |at, flow: u32| events.push(Reverse((at, Event::Start(flow as usize))));
        if self.traffic.stage(i).failed.is_some() {
            self.rounds.fail(i as u32, now, start);
        } else {
            self.rounds.complete(i as u32, now, start);
        }
    }

    /// Lets the runner work on the lab that it is part of.
    fn run_roles(&mut self, work: impl FnOnce(&mut Runner, &mut Self)) -> Result<(), Error> {
        let mut runner = std::mem::take(&mut self.runner);
        work(&mut runner, self);
        self.runner = runner;
        if let Some(tuner) = &mut self.tuner {
            tuner.flush(&self.network.nodes)?;
        }
        self.failed.take().map_or(Ok(()), Err)
    }

    /// Runs wake-ups due at time zero now, before any packet is sent.
    pub(super) fn begin_roles(&mut self) -> Result<(), Error> {
        self.run_roles(|runner, host| {
            runner.begin(host, Time::ZERO);
            for role in 0..runner.roles().count() {
                runner.wake(host, role, Time::ZERO, Time::ZERO);
            }
        })
    }

    pub(super) fn wake(&mut self, role: usize, due: Time) -> Result<(), Error> {
        let asks = self.runner.roles().nth(role).filter(|role| role.place.role.wants.flows);
        if let (Some(node), Some(tuner)) = (asks.map(|role| role.place.node), &mut self.tuner) {
            tuner.look(node, &self.network.nodes, || self.forwarder.clock.now())?;
        }
        // What was measured is of now: a look takes milliseconds.
        let now = self.forwarder.clock.now();
        self.run_roles(|runner, host| runner.wake(host, role, due, now))
    }

    /// Tells every role at `node`.
    fn observe(&mut self, node: NodeId, at: Time, observation: &Observation<'_>) -> Result<(), Error> {
        self.run_roles(|runner, host| runner.observe(host, at, node, observation))
    }

    /// A message has come.
    pub(super) fn deliver(&mut self, number: u32) -> Result<(), Error> {
        match self.post.receive(number) {
            Some((to, message)) => {
                self.observe(to, self.forwarder.clock.now(), &Observation::Message(&message))
            }
            None => Ok(()),
        }
    }

    /// Something happens to the roles at a node.
    pub(super) fn node_fault(&mut self, number: usize) -> Result<(), Error> {
        let NodeFault { node, change, .. } = self.scenario.faults.nodes[number];
        let now = self.forwarder.clock.now();
        if change == Change::Restart {
            let ways = self.plan.probe_routes.iter().map(|(from, to, ports)| (*from, *to, &**ports));
            let board = &self.forwarder.board;
            self.probes.faults.restart(node, ways, |port, end| match end {
                PathEnd::First => board.port(port).left,
                PathEnd::Last => board.port(port).arriving,
            });
        }
        self.run_roles(|runner, host| runner.change(host, now, node, change))?;
        if change != Change::Leave {
            for FlowStats { flow, end, .. } in self.flow_stats(now, node) {
                self.announce_at(flow.index(), node, end)?;
            }
        }
        Ok(())
    }

    /// A kernel that does not do what the scenario needs ends the trial.
    fn done(&mut self, result: Result<(), Error>) -> Result<(), Refusal> {
        result.map_err(|error| {
            self.failed.get_or_insert(error);
            Refusal::Failed("the trial ends")
        })
    }

    /// Which end of a TCP flow `node` is.
    fn end_at(&self, flow: FlowId, node: NodeId) -> Result<FlowEnd, Refusal> {
        let plan = self.plan.flows.get(flow.index()).filter(|_| flow.index() < self.plan.tcp_flows);
        match plan {
            Some(plan) if plan.dst == node => Ok(FlowEnd::Receiver),
            Some(plan) if plan.src == node => Ok(FlowEnd::Sender),
            _ => Err(Refusal::Unknown),
        }
    }

    /// Bounds a flow at `node`'s end by the program in the kernel; none where there is none.
    fn bound(
        &mut self,
        node: NodeId,
        flow: FlowId,
        window: Bytes,
        rate: Option<Rate>,
    ) -> Option<Result<(), Refusal>> {
        let end = match self.end_at(flow, node) {
            Ok(end) => end,
            Err(refusal) => return Some(Err(refusal)),
        };
        let tuner = self.tuner.as_mut()?;
        if rate.is_some() && end == FlowEnd::Receiver {
            // A receiver's window does not move on by itself.
            return Some(Err(Refusal::Unable));
        }
        let segment = match &self.plan.flows[flow.index()].group(&self.scenario.flows).transport {
            Transport::Tcp { settings, .. } => settings.mss,
            Transport::Udp { .. } => Bytes::ZERO,
        };
        let cookie = self.traffic.cookie(flow.index(), end);
        Some(tuner.bound(node, &Bound { end, cookie, window, segment, rate }))
    }

    fn stats_of(&self, i: usize, end: FlowEnd) -> FlowStats {
        let overhead = self.scenario.topology.frame_overhead.get();
        let (mss, frame) = match &self.plan.flows[i].group(&self.scenario.flows).transport {
            Transport::Tcp { settings, .. } => {
                let mss = settings.mss.get();
                (mss, mss + u64::from(tcp_headers(settings.timestamps)) + overhead)
            }
            Transport::Udp { packet, .. } => (packet.get(), packet.get() + overhead),
        };
        let (delivered, rtt) = self.measured(i, end).unwrap_or_else(|| match end {
            FlowEnd::Sender => {
                let info = self.traffic.info(i).unwrap_or_default();
                // No single measurement is told.
                let rtt = RoundTrip { smoothed: info.srtt, least: info.min_rtt, last: info.srtt };
                (info.acknowledged, rtt)
            }
            FlowEnd::Receiver => {
                // Since this connection began.
                let received = self.traffic.state(i).received - self.rounds.carried(i as u32);
                (received, self.receivers_rtt(i))
            }
        });
        FlowStats {
            flow: FlowId(i as u32),
            end,
            delivered: Bytes::new(delivered),
            srtt: rtt.smoothed,
            min_rtt: rtt.least,
            last_rtt: rtt.last,
            mss: Bytes::new(mss),
            frame: Bytes::new(frame),
        }
    }
}

impl Lab<'_> {
    /// As the agent of a host measures it; none before its role has looked, and where the kernel takes no program.
    fn measured(&self, i: usize, end: FlowEnd) -> Option<(u64, RoundTrip)> {
        let flow = &self.plan.flows[i];
        let node = if end == FlowEnd::Sender { flow.src } else { flow.dst };
        self.tuner.as_ref()?.measured(node, self.traffic.cookie(i, end)?, end)
    }

    /// By timestamps, as a capture at the receiver shows them, or else that of the handshake.
    fn receivers_rtt(&self, i: usize) -> RoundTrip {
        let timed = self.forwarder.board.timing.of(i);
        if timed.smoothed.is_some() {
            return timed;
        }
        let info = self.traffic.receiver_info(i).unwrap_or_default();
        RoundTrip { smoothed: info.srtt, least: info.min_rtt, last: None }
    }
}

impl Host for Lab<'_> {
    /// All; of windows in passing packets those in acknowledgements.
    const ACTS: &'static [Act] = &[
        Act::SetWindow,
        Act::SetRate,
        Act::MeasureRtt,
        Act::Probe,
        Act::SetClass,
        Act::Tune,
        Act::Send,
        Act::Watch,
        Act::Rewrite,
    ];

    fn wake(&mut self, role: usize, at: Time) {
        self.push(at, Event::Wakeup(role));
    }

    fn port_stats(&mut self, _now: Time, node: NodeId, reader: &mut Reader) -> Vec<PortStats> {
        let here = (0..self.plan.links.rates.len())
            .filter(|&port| self.scenario.topology.transmitter(PortId(port as u32)) == node);
        let stats = |port: usize| {
            let id = PortId(port as u32);
            let counter = self.network.flow_counters.get(&port);
            let flows = counter.map(|c| c.lock().unwrap_or_else(PoisonError::into_inner).read(id, reader));
            let state = self.forwarder.board.port(port);
            PortStats {
                port: id,
                capacity: self.plan.links.rates[port],
                flows,
                backlog: Some(Bytes::new(state.waiting_bytes)),
                sent: Bytes::new(state.counters.sent_bytes),
                offered: state.counters.arrived,
                dropped: state.counters.dropped,
            }
        };
        here.map(stats).collect()
    }

    fn flow_stats(&mut self, _now: Time, node: NodeId) -> Vec<FlowStats> {
        let mut stats = Vec::new();
        for i in 0..self.plan.tcp_flows {
            let (src, dst) = (self.plan.flows[i].src, self.plan.flows[i].dst);
            if dst == node && self.traffic.stage(i).is_receiving() {
                stats.push(self.stats_of(i, FlowEnd::Receiver));
            } else if src == node && self.traffic.stage(i).is_sending() {
                stats.push(self.stats_of(i, FlowEnd::Sender));
            }
        }
        stats
    }

    fn segments(&mut self, node: NodeId) -> SegmentCounts {
        let here = (0..self.plan.tcp_flows).filter(|&i| self.plan.flows[i].src == node);
        here.filter_map(|i| self.traffic.info(i)).fold(SegmentCounts::default(), |sum, info| SegmentCounts {
            sent: sum.sent + u64::from(info.data_segments),
            resent: sum.resent + u64::from(info.retransmits),
        })
    }

    fn show(&mut self, role: usize, now: Time, gauges: &Gauges) {
        self.meters.gauges.note(self.scenario, role, now, gauges);
    }

    fn send(&mut self, now: Time, to: NodeId, message: Message) -> Result<(), Refusal> {
        if let Some((delay, number)) = self.post.send(to, message) {
            self.push(now + delay, Event::Deliver(number));
        }
        Ok(())
    }

    fn probe(&mut self, _now: Time, from: NodeId, to: NodeId, payload: Vec<u8>) -> Result<(), Refusal> {
        let has_way = self.plan.probe_routes.iter().any(|(f, t, _)| (*f, *t) == (from, to));
        if has_way { self.probes.send(from, to, &payload) } else { Err(Refusal::Unknown) }
    }

    fn set_window(&mut self, node: NodeId, flow: FlowId, window: Bytes) -> Result<(), Refusal> {
        if let Some(result) = self.bound(node, flow, window, None) {
            return result;
        }
        let result = self.traffic.set_window(flow.index(), window);
        self.done(result)
    }

    fn set_rate(&mut self, node: NodeId, flow: FlowId, rate: Rate, window: Bytes) -> Result<(), Refusal> {
        if let Some(result) = self.bound(node, flow, window, Some(rate)) {
            return result;
        }
        let result = self
            .traffic
            .set_window(flow.index(), window)
            .and_then(|()| self.traffic.set_rate(flow.index(), rate));
        self.done(result)
    }

    fn measure_rtt(&mut self, node: NodeId, flow: FlowId) -> Result<(), Refusal> {
        // The kernel's program times marks, and else the forwarder; the kernel itself times handshakes.
        self.end_at(flow, node).map(drop)
    }

    fn tune(&mut self, node: NodeId, tuning: Tuning) -> Result<(), Refusal> {
        if self.scenario.topology.nodes[node.index()].kind != NodeKind::Host {
            return Err(Refusal::Unknown);
        }
        self.tuner.as_mut().map_or(Err(Refusal::Unable), |tuner| tuner.tune(node, &tuning))
    }

    fn set_class(
        &mut self,
        port: PortId,
        class: Option<usize>,
        rate: Rate,
        ceil: Rate,
    ) -> Result<(), Refusal> {
        let shaper = self.network.shapers.get_mut(&port.index());
        let shaper = shaper.filter(|shaper| shaper.takes(class, rate, ceil)).ok_or(Refusal::Unknown)?;
        let result = shaper.change(class, rate, ceil).map_err(Error::from);
        self.done(result)
    }
}
