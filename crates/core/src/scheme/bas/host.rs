//! A server: measures the flows that end at it, and enforces the shares that it is given.

use std::collections::{BTreeMap, BTreeSet};

use super::{AllocatorKind, FlowMeasurement, Settings, Share, Way, Word, shares};
use crate::control::{Action, Controller, FlowEnd, FlowStart, FlowStats, Observation, Outbox, Subject};
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
    allocator: NodeId,
    flows: BTreeMap<FlowId, Known>,
    /// Paced flows that may send nothing before their first share.
    waiting: BTreeSet<FlowId>,
    next: Time,
}

struct Known {
    stats: FlowStats,
    /// None when the flow began before the role.
    way: Option<Way>,
    /// The allocator has given a share since the last report: it knows the flow.
    answered: bool,
    /// Present at the last measurement.
    measured: bool,
}

impl Host {
    pub(super) fn new(settings: Settings, allocator: NodeId) -> Self {
        let next = Time::ZERO + settings.measurement;
        Self { settings, allocator, flows: BTreeMap::new(), waiting: BTreeSet::new(), next }
    }

    fn measure(&mut self, flows: &[FlowStats], out: &mut Outbox) {
        let seconds = self.settings.measurement.as_secs_f64();
        let mut measurements = Vec::with_capacity(flows.len());
        let mut known = BTreeMap::new();
        for stats in flows {
            let before = self.flows.remove(&stats.flow);
            let throughput = before.as_ref().filter(|known| known.measured).map(|known| {
                // A flow of the same number may be another.
                let payload = stats.delivered.get().saturating_sub(known.stats.delivered.get()) as f64;
                let wire = payload * stats.frame.get() as f64 / stats.mss.get() as f64;
                Rate::from_bits_per_sec_f64(wire * 8.0 / seconds)
            });
            let queueing = match (stats.last_rtt, stats.min_rtt) {
                (Some(last), Some(min)) => last.saturating_sub(min),
                _ => Span::ZERO,
            };
            // The receiver holds an acknowledgement until the next segment comes (RFC 9293 section 3.8.6.3).
            let held = match throughput {
                Some(rate) if stats.end == FlowEnd::Sender => rate.time_for(stats.frame),
                _ => Span::ZERO,
            };
            let queueing = queueing.saturating_sub(held);
            let way = before.as_ref().filter(|known| !known.answered).and_then(|known| known.way.clone());
            measurements.push(FlowMeasurement {
                flow: stats.flow,
                throughput,
                queueing,
                frame: stats.frame,
                way,
            });
            if stats.end == FlowEnd::Receiver {
                out.push(Action::MeasureRtt { flow: stats.flow });
            }
            let way = before.and_then(|known| known.way);
            known.insert(stats.flow, Known { stats: *stats, way, answered: false, measured: true });
        }
        self.flows = known;
        self.waiting.retain(|flow| self.flows.contains_key(flow));
        out.send(self.allocator, &Word::Flows(measurements));
    }

    /// Nobody answers: flows that wait for a first share begin as those of the paper do.
    fn go_ahead(&mut self, out: &mut Outbox) {
        let waiting = std::mem::take(&mut self.waiting);
        for known in waiting.iter().filter_map(|flow| self.flows.get(flow)) {
            out.push(first_window(&known.stats));
        }
    }

    fn enforce(&mut self, share: &Share, out: &mut Outbox) {
        let Some(Known { stats, answered, .. }) = self.flows.get_mut(&share.flow) else { return };
        *answered = true;
        self.waiting.remove(&share.flow);
        let bits = share.rate.bits_per_sec() as f64;
        if share.paced {
            let payload =
                Rate::from_bits_per_sec_f64(bits * stats.mss.get() as f64 / stats.frame.get() as f64);
            let rtt = stats.min_rtt.unwrap_or_default().mul_f64(1.25) + PACED_RTT_SLACK + share.queueing;
            let window = Bytes::new(payload.bytes_in(rtt).get() + PACED_SLACK * stats.mss.get());
            out.push(Action::SetRate { flow: share.flow, rate: payload, window });
            return;
        }
        // Deviation: the paper's servers receive. Where they send, a window of the smoothed time would keep up any queue
        // that it once made, as the time grows with it; and one segment more is in flight, as receivers acknowledge
        // every other one (RFC 1122, Sect. 4.2.3.2).
        let sends = stats.end == FlowEnd::Sender;
        let unacknowledged = if sends { stats.mss } else { Bytes::ZERO };
        let rtt = if self.settings.minimum_rtt || sends { stats.min_rtt } else { stats.srtt };
        if let Some(rtt) = rtt {
            let segment = if self.settings.by_payload { stats.mss } else { stats.frame };
            let window = shares::window(bits, rtt, stats.mss, segment, self.settings.rounding);
            let window = Bytes::new(window.get().saturating_add(unacknowledged.get()));
            out.push(Action::SetWindow { flow: share.flow, window });
        }
    }
}

fn first_window(stats: &FlowStats) -> Action {
    Action::SetWindow { flow: stats.flow, window: Bytes::new(FIRST_WINDOW * stats.mss.get()) }
}

impl Controller for Host {
    fn on(&mut self, now: Time, observation: &Observation<'_>, out: &mut Outbox) {
        match observation {
            Observation::Tick { flows, .. } => {
                self.next = now + self.settings.measurement;
                self.measure(flows, out);
            }
            Observation::FlowStarted(FlowStart { stats, key, route }) => {
                let way = Way { key: *key, ports: route.to_vec() };
                let known = Known { stats: *stats, way: Some(way.clone()), answered: false, measured: false };
                self.flows.insert(stats.flow, known);
                // Paced flows wait for their share, or many that start at once would overflow every queue.
                let paced = self.settings.allocator == AllocatorKind::MaxMin;
                if paced {
                    self.waiting.insert(stats.flow);
                    out.push(Action::SetWindow { flow: stats.flow, window: Bytes::ZERO });
                } else {
                    out.push(first_window(stats));
                }
                out.send(self.allocator, &Word::Started(stats.flow, way));
            }
            Observation::FlowEnded(flow) if self.flows.remove(flow).is_some() => {
                self.waiting.remove(flow);
                out.send(self.allocator, &Word::Ended(*flow));
            }
            Observation::Message(message) if message.from == self.allocator => {
                if let Some(Word::Shares(shares)) = message.read() {
                    shares.iter().for_each(|share| self.enforce(share, out));
                }
            }
            Observation::Refused { subject: Subject::Node(node), .. } | Observation::Left(node)
                if *node == self.allocator =>
            {
                self.go_ahead(out);
            }
            _ => {}
        }
    }

    fn wakeup(&self) -> Option<Time> {
        Some(self.next)
    }
}
