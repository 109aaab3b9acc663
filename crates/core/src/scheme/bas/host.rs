//! A server: measures the flows that end at it, and enforces the shares that it is given.

use std::collections::BTreeMap;

use super::{AllocatorKind, Settings, shares};
use crate::control::{
    Action, Controller, FlowMeasurement, FlowStats, Message, Observation, Outbox, Share, Wakeup,
};
use crate::id::{FlowId, NodeId};
use crate::time::{Span, Time};
use crate::units::{Bytes, Rate};

/// Window of a flow that has no share yet: the initial window of RFC 6928, so that its first round is as ever and the
/// right edge is not far out when the share comes.
const FIRST_WINDOW: u64 = 10;
/// Paced flows: the least window in segments, so that pacing and not the window sets the rate.
const PACED_SLACK: u64 = 3;
/// Paced flows: the window covers this much more than the least round-trip time.
const PACED_RTT_SLACK: Span = Span::from_millis(5);

pub(super) struct Host {
    settings: Settings,
    node: NodeId,
    allocator: NodeId,
    flows: BTreeMap<FlowId, Known>,
    next: Time,
}

#[derive(Clone, Copy)]
struct Known {
    stats: FlowStats,
    /// Present at the last measurement.
    measured: bool,
}

impl Host {
    pub(super) fn new(settings: Settings, node: NodeId, allocator: NodeId) -> Self {
        let next = Time::ZERO + settings.measurement;
        Self { settings, node, allocator, flows: BTreeMap::new(), next }
    }

    fn measure(&mut self, flows: &[FlowStats], out: &mut Outbox) {
        let seconds = self.settings.measurement.as_secs_f64();
        let mut measurements = Vec::with_capacity(flows.len());
        let mut known = BTreeMap::new();
        for stats in flows {
            let before = self.flows.get(&stats.flow).filter(|known| known.measured);
            let throughput = before.map(|known| {
                let payload = (stats.delivered.get() - known.stats.delivered.get()) as f64;
                let wire = payload * stats.frame.get() as f64 / stats.mss.get() as f64;
                Rate::from_bits_per_sec_f64(wire * 8.0 / seconds)
            });
            let queueing = match (stats.last_rtt, stats.min_rtt) {
                (Some(last), Some(min)) => last.saturating_sub(min),
                _ => Span::ZERO,
            };
            measurements.push(FlowMeasurement { flow: stats.flow, throughput, queueing, frame: stats.frame });
            known.insert(stats.flow, Known { stats: *stats, measured: true });
        }
        self.flows = known;
        let message = Message::FlowReport { host: self.node, flows: measurements };
        out.push(Action::Send { to: self.allocator, message, reason: "measurement interval" });
    }

    fn enforce(&self, share: &Share, out: &mut Outbox) {
        let Some(Known { stats, .. }) = self.flows.get(&share.flow) else { return };
        let bits = share.rate.bits_per_sec() as f64;
        if share.paced {
            let payload =
                Rate::from_bits_per_sec_f64(bits * stats.mss.get() as f64 / stats.frame.get() as f64);
            let rtt = stats.min_rtt.unwrap_or_default().mul_f64(1.25) + PACED_RTT_SLACK;
            let window = Bytes::new(payload.bytes_in(rtt).get() + PACED_SLACK * stats.mss.get());
            out.push(Action::SetRate { flow: share.flow, rate: payload, window, reason: "max-min share" });
            return;
        }
        let rtt = if self.settings.minimum_rtt { stats.min_rtt } else { stats.srtt };
        if let Some(rtt) = rtt {
            let window = shares::window(bits, rtt, stats.mss, stats.frame, self.settings.rounding);
            out.push(Action::SetWindow { flow: share.flow, window, reason: "fair share" });
        }
    }
}

impl Controller for Host {
    fn on(&mut self, now: Time, observation: &Observation<'_>, out: &mut Outbox) {
        match observation {
            Observation::Tick { flows, .. } => {
                self.next = now + self.settings.measurement;
                self.measure(flows, out);
            }
            Observation::FlowStarted(stats) => {
                self.flows.insert(stats.flow, Known { stats: *stats, measured: false });
                // Paced flows wait for their share, or many that start at once would overflow every queue.
                let paced = self.settings.allocator == AllocatorKind::MaxMin;
                let window = Bytes::new(if paced { 0 } else { FIRST_WINDOW * stats.mss.get() });
                out.push(Action::SetWindow { flow: stats.flow, window, reason: "no share yet" });
                let message = Message::FlowStarted { host: self.node, flow: stats.flow };
                out.push(Action::Send { to: self.allocator, message, reason: "flow started" });
            }
            Observation::FlowEnded(flow) => {
                if self.flows.remove(flow).is_some() {
                    let message = Message::FlowEnded { flow: *flow };
                    out.push(Action::Send { to: self.allocator, message, reason: "flow ended" });
                }
            }
            Observation::Message(Message::Allocation { shares }) => {
                for share in shares {
                    self.enforce(share, out);
                }
            }
            Observation::Message(_)
            | Observation::Sent(_)
            | Observation::Refused { .. }
            | Observation::ProbeLeft { .. }
            | Observation::ProbeCame { .. } => {}
        }
    }

    fn wakeup(&self) -> Option<Wakeup> {
        Some(Wakeup { at: self.next, why: "measurement interval" })
    }
}
