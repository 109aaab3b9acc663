//! What the lab tells the roles of schemes, and does for them.

use std::sync::PoisonError;

use bandmaster_core::control::faults::PathPoint;
use bandmaster_core::control::{
    Action, FlowEnd, FlowStats, Gauges, Observation, Passed, PortStats, SegmentCounts,
};
use bandmaster_core::id::{FlowId, NodeId, PortId};
use bandmaster_core::scenario::Transport;
use bandmaster_core::time::Time;
use bandmaster_core::units::Bytes;

use super::{Event, Lab, headers};
use crate::Error;
use crate::forwarder::Passage;
use crate::roles::Arrival;
use crate::timing::RoundTrip;

impl Lab<'_> {
    /// Takes what the forwarder and the roles' sockets have to tell.
    pub(super) fn hear(&mut self) -> Result<(), Error> {
        while let Ok(passage) = self.forwarder.passages.try_recv() {
            if passage.left {
                let Passage { at, from, to, payload, passed, .. } = passage;
                let passed = self.since_restart(from, to, passed, true);
                self.observe(from, at, &Observation::ProbeLeft { payload: &payload, passed })?;
            } else {
                self.roles.expect(passage);
            }
        }
        while let Some(Arrival { from, to, stamp }) = self.roles.receive() {
            let Passage { at, payload, passed, .. } = stamp;
            let passed = self.since_restart(from, to, passed, false);
            self.observe(to, at, &Observation::ProbeCame { from, payload: &payload, passed })?;
        }
        Ok(())
    }

    /// What a probe's stamp counts, without what its node has forgotten.
    fn since_restart(&self, from: NodeId, to: NodeId, passed: Passed, left: bool) -> Passed {
        let ways = &self.plan.probe_routes;
        let Some((.., ports)) = ways.iter().find(|(f, t, _)| (*f, *t) == (from, to)) else { return passed };
        let point = if left {
            ports.first().map(|port| PathPoint::Start(*port))
        } else {
            ports.last().map(|port| PathPoint::End(*port))
        };
        point.map_or(passed, |point| self.roles.faults.since_restart(point, passed))
    }

    /// Tells both ends of a TCP flow that it begins, before anything is sent: what they answer is in its first window.
    /// The receiver learns of it here when its sender connects, not when the SYN has come.
    pub(super) fn announce(&mut self, i: usize) -> Result<(), Error> {
        if self.roles.len() == 0 {
            return Ok(());
        }
        let (src, dst) = (self.plan.flows[i].src, self.plan.flows[i].dst);
        for (node, end) in [(dst, FlowEnd::Receiver), (src, FlowEnd::Sender)] {
            let stats = self.flow_stats(i, end);
            self.observe(node, self.forwarder.clock.now(), &Observation::FlowStarted(stats))?;
        }
        Ok(())
    }

    /// Tells both ends of the flows whose last byte has come.
    pub(super) fn tell_ends(&mut self) -> Result<(), Error> {
        while let Some(i) = self.traffic.next_ended() {
            let (src, dst) = (self.plan.flows[i].src, self.plan.flows[i].dst);
            for node in [dst, src] {
                let ended = Observation::FlowEnded(FlowId(i as u32));
                self.observe(node, self.forwarder.clock.now(), &ended)?;
            }
        }
        Ok(())
    }

    pub(super) fn wake(&mut self, role: usize, now: Time) -> Result<(), Error> {
        let node = self.roles.node(role);
        let (ports, flows) = if self.roles.wants_ports(role) {
            (self.ports_at(node), Vec::new())
        } else {
            let counts = self.segments_at(node);
            for action in self.roles.call(role, now, &Observation::Sent(counts)) {
                self.apply(node, now, action)?;
            }
            (Vec::new(), self.flows_at(node))
        };
        self.call(role, now, &Observation::Tick { ports: &ports, flows: &flows })
    }

    /// A message has come.
    pub(super) fn deliver(&mut self, number: u32) -> Result<(), Error> {
        match self.roles.post.receive(number) {
            Some((to, message)) => {
                self.observe(to, self.forwarder.clock.now(), &Observation::Message(&message))
            }
            None => Ok(()),
        }
    }

    /// The roles at a node begin anew, and so do the counters of its data path.
    pub(super) fn restart(&mut self, number: usize) -> Result<(), Error> {
        let node = self.scenario.faults.restarts[number].node;
        for (from, to, ports) in &self.plan.probe_routes {
            let ends = [
                ports.first().filter(|_| *from == node).map(|port| PathPoint::Start(*port)),
                ports.last().filter(|_| *to == node).map(|port| PathPoint::End(*port)),
            ];
            for point in ends.into_iter().flatten() {
                let passed = match point {
                    PathPoint::Start(port) => self.forwarder.board.port(port as usize).left,
                    PathPoint::End(port) => self.forwarder.board.port(port as usize).arriving,
                };
                self.roles.faults.set_zero(point, passed);
            }
        }
        self.roles.restart(node, self.plan.roles(self.scenario));
        let now = self.forwarder.clock.now();
        for role in 0..self.roles.len() {
            if self.roles.node(role) == node {
                self.note_gauges(role, now);
                if let Some(at) = self.roles.plan_wakeup(role, now) {
                    self.push(at, Event::Wakeup(role));
                }
            }
        }
        Ok(())
    }

    fn ports_at(&self, node: NodeId) -> Vec<PortStats> {
        let here = (0..self.plan.rates.len())
            .filter(|&port| self.scenario.topology.transmitter(PortId(port as u32)) == node);
        let stats = |port: usize| {
            let counter = self.network.flow_counters.get(&port);
            let counts = counter.map(|c| c.lock().unwrap_or_else(PoisonError::into_inner).take());
            let (flows_seen, flows_open) = counts.unwrap_or_default();
            let state = self.forwarder.board.port(port);
            PortStats {
                port: PortId(port as u32),
                capacity: self.plan.rates[port],
                flows_seen,
                flows_open,
                backlog: Bytes::new(state.waiting_bytes),
                sent: Bytes::new(state.counters.sent_bytes),
                offered: state.counters.arrived,
                dropped: state.counters.dropped,
            }
        };
        here.map(stats).collect()
    }

    /// Flows that end at `node` and are open.
    fn flows_at(&mut self, node: NodeId) -> Vec<FlowStats> {
        let mut stats = Vec::new();
        for i in 0..self.plan.tcp_flows {
            let (src, dst) = (self.plan.flows[i].src, self.plan.flows[i].dst);
            if dst == node && self.traffic.is_receiving(i) {
                stats.push(self.flow_stats(i, FlowEnd::Receiver));
            } else if src == node && self.traffic.is_sending(i) {
                stats.push(self.flow_stats(i, FlowEnd::Sender));
            }
        }
        stats
    }

    fn segments_at(&self, node: NodeId) -> SegmentCounts {
        let here = (0..self.plan.tcp_flows).filter(|&i| self.plan.flows[i].src == node);
        here.filter_map(|i| self.traffic.info(i)).fold(SegmentCounts::default(), |sum, info| SegmentCounts {
            sent: sum.sent + u64::from(info.data_segments),
            resent: sum.resent + u64::from(info.retransmits),
        })
    }

    fn flow_stats(&mut self, i: usize, end: FlowEnd) -> FlowStats {
        let overhead = self.scenario.topology.frame_overhead.get();
        let (mss, frame) = match &self.plan.flows[i].group(&self.scenario.flows).transport {
            Transport::Tcp { settings, .. } => {
                let mss = settings.mss.get();
                (mss, mss + headers(settings.timestamps) + overhead)
            }
            Transport::Udp { packet, .. } => (packet.get(), packet.get() + overhead),
        };
        let (delivered, rtt) = match end {
            FlowEnd::Sender => {
                let info = self.traffic.info(i).unwrap_or_default();
                // Linux tells no single measurement.
                let rtt = RoundTrip { smoothed: info.srtt, least: info.min_rtt, last: info.srtt };
                (info.acknowledged, rtt)
            }
            FlowEnd::Receiver => (self.traffic.state(i).received, self.forwarder.board.timing.of(i)),
        };
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

    /// Tells every role at `node`.
    fn observe(&mut self, node: NodeId, at: Time, observation: &Observation<'_>) -> Result<(), Error> {
        for role in 0..self.roles.len() {
            if self.roles.node(role) == node {
                self.call(role, at, observation)?;
            }
        }
        Ok(())
    }

    fn call(&mut self, role: usize, now: Time, observation: &Observation<'_>) -> Result<(), Error> {
        let node = self.roles.node(role);
        for action in self.roles.call(role, now, observation) {
            self.apply(node, now, action)?;
        }
        self.note_gauges(role, now);
        if let Some(at) = self.roles.plan_wakeup(role, now) {
            self.push(at, Event::Wakeup(role));
        }
        Ok(())
    }

    fn apply(&mut self, node: NodeId, now: Time, action: Action) -> Result<(), Error> {
        match action {
            Action::Probe { to, payload, .. } => self.roles.send_probe(node, to, &payload),
            Action::SetClass { port, class, rate, ceil, .. } => {
                match self.network.shapers.get_mut(&port.index()) {
                    Some(shaper) => Ok(shaper.change(class, rate, ceil)?),
                    None => Err(Error::Missing(format!(
                        "a role changes a class of port {}, which has no shaper",
                        self.scenario.topology.port_name(port)
                    ))),
                }
            }
            Action::SetWindow { flow, window, .. } => self.traffic.set_window(flow.index(), window),
            Action::SetRate { flow, rate, window, .. } => {
                self.traffic.set_window(flow.index(), window)?;
                self.traffic.set_rate(flow.index(), rate)
            }
            Action::Tune { .. } => Err(Error::Missing(
                "a role changes the TCP of a node, which its scheme does not declare and the lab cannot do"
                    .to_owned(),
            )),
            Action::Send { to, message, .. } => {
                if let Some((delay, number)) = self.roles.post.send(node, to, message) {
                    self.push(now + delay, Event::Deliver(number));
                }
                Ok(())
            }
        }
    }

    pub(super) fn note_gauges(&mut self, role: usize, now: Time) {
        let mut gauges = Gauges::default();
        self.roles.gauges(role, &mut gauges);
        if !gauges.values().is_empty() {
            self.gauge_meter.note(self.scenario, role, now, &gauges);
        }
    }
}
