//! A server: measures the flows that end at it, and enforces the shares that it is given.

use std::collections::{BTreeMap, BTreeSet};

use super::{AllocatorKind, FlowMeasurement, MOST_FLOWS, Settings, Share, Way, Word, shares};
use crate::control::{
    Action, Controller, FlowEnd, FlowStart, FlowStats, Gauges, Observation, Outbox, Refusal, Subject,
    UNBOUNDED,
};
use crate::id::{FlowId, NodeId};
use crate::time::{Span, Time};
use crate::units::{Bytes, Rate};

/// Window of a flow that has no share yet: the initial window of RFC 6928, so that its first round is as ever and the
/// right edge is not far out when the share comes.
const FIRST_WINDOW: u64 = 10;
/// Paced flows: the least window in segments, so that pacing and not the window sets the rate. In place of a pace: the window
/// until a round-trip time is known.
const PACED_SLACK: u64 = 3;
/// Paced flows: the window covers this much more than the least round-trip time.
const PACED_RTT_SLACK: Span = Span::from_millis(5);

/// Measurements without any share after which a flow is let go, where there are leases: more than messages are lost.
const UNPLACED: u32 = 5;
/// In place of a number of those: it had a share.
const ANSWERED: u32 = u32::MAX;

pub(super) struct Host {
    settings: Settings,
    allocator: NodeId,
    flows: BTreeMap<FlowId, Known>,
    /// Paced flows that may send nothing before their first share.
    waiting: BTreeSet<FlowId>,
    /// This host can move a window on with time.
    paces_receivers: bool,
    /// When the allocator was last heard; none: its lease has ended, and flows go as they like.
    heard: Option<Time>,
    next: Time,
    /// The last measurement.
    last: Option<Time>,
}

struct Known {
    stats: FlowStats,
    /// None when the flow began before the role.
    way: Option<Way>,
    /// The allocator has given a share since the last report: it knows the flow.
    answered: bool,
    /// Measurements without a share, until the first one.
    unanswered: u32,
    /// Present at the last measurement.
    measured: bool,
    /// The last share, while it is enforced by a pace.
    paced: Option<Share>,
    /// It has moved to another way; the connection's least round-trip time is of all its ways.
    moved: Option<Moved>,
}

/// Round-trip times of a flow since it moved.
#[derive(Clone, Copy, Default)]
struct Moved {
    /// There was a measurement since then. What had been measured until then may be of the old way.
    is_measured: bool,
    before: Option<Span>,
    least: Option<Span>,
}

impl Moved {
    /// `last` is what the connection has measured last.
    fn measure(&mut self, last: Option<Span>) {
        if !std::mem::replace(&mut self.is_measured, true) {
            self.before = last;
        }
        if last != self.before {
            self.before = None;
            self.least = self.least.into_iter().chain(last).min();
        }
    }
}

impl Known {
    /// Round-trip time without queues.
    fn least_rtt(&self) -> Option<Span> {
        self.moved.map_or(self.stats.min_rtt, |moved| moved.least)
    }

    const fn count_unanswered(&self) -> u32 {
        self.unanswered.saturating_add(1)
    }
}

impl Host {
    pub(super) fn new(settings: Settings, allocator: NodeId) -> Self {
        Self {
            next: Time::ZERO + settings.measurement,
            paces_receivers: settings.paces_receivers,
            settings,
            allocator,
            flows: BTreeMap::new(),
            waiting: BTreeSet::new(),
            heard: Some(Time::ZERO),
            last: None,
        }
    }

    /// Entries that it keeps.
    #[cfg(test)]
    pub(super) fn kept(&self) -> usize {
        self.flows.len() + self.waiting.len()
    }

    /// Without a word of the allocator for a lease, all flows are let go until it is heard again.
    fn end_lease(&mut self, now: Time, out: &mut Outbox) {
        let (Some(heard), Some(lease)) = (self.heard, self.settings.lease) else { return };
        if self.flows.is_empty() {
            // There is nothing that the allocator would answer.
            self.heard = Some(now);
            return;
        }
        if now.since(heard) < lease {
            return;
        }
        self.heard = None;
        self.waiting.clear();
        for (flow, known) in &mut self.flows {
            known.paced = None;
            out.push(Action::SetWindow { flow: *flow, window: UNBOUNDED });
        }
    }

    fn measure(&mut self, now: Time, flows: &[FlowStats], out: &mut Outbox) {
        // A daemon's ticks may be late.
        let since = self.last.replace(now).map_or(self.settings.measurement, |last| now.since(last));
        let seconds = since.as_secs_f64().max(f64::MIN_POSITIVE);
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
            let mut moved = before.as_ref().and_then(|known| known.moved);
            if let Some(moved) = &mut moved {
                moved.measure(stats.last_rtt);
            }
            let least = moved.map_or(stats.min_rtt, |moved| moved.least);
            let queueing = match (stats.last_rtt, least) {
                (Some(last), Some(min)) => last.saturating_sub(min),
                _ => Span::ZERO,
            };
            // The receiver holds an acknowledgement until the next segment comes (RFC 9293 section 3.8.6.3).
            let held = match throughput {
                Some(rate) if stats.end == FlowEnd::Sender => rate.time_for(stats.frame),
                _ => Span::ZERO,
            };
            let queueing = queueing.saturating_sub(held);
            let paced = before.as_ref().and_then(|known| known.paced);
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
            let unanswered = before.as_ref().map_or(0, Known::count_unanswered);
            let way = before.and_then(|known| known.way);
            let now = Known { stats: *stats, way, answered: false, unanswered, measured: true, paced, moved };
            known.insert(stats.flow, now);
        }
        // A flow that was announced and is not measured yet is still connecting.
        for (flow, begun) in std::mem::take(&mut self.flows).into_iter().filter(|(_, begun)| !begun.measured)
        {
            let way = begun.way.clone().filter(|_| !begun.answered);
            let frame = begun.stats.frame;
            measurements.push(FlowMeasurement { flow, throughput: None, queueing: Span::ZERO, frame, way });
            let unanswered = begun.count_unanswered();
            known.insert(flow, Known { answered: false, unanswered, ..begun });
        }
        self.flows = known;
        self.waiting.retain(|flow| self.flows.contains_key(flow));
        if self.settings.lease.is_some() && self.heard.is_some() {
            self.let_go_unplaced(out);
        }
        self.tell(measurements, out);
    }

    fn tell(&self, mut flows: Vec<FlowMeasurement>, out: &mut Outbox) {
        if flows.len() <= MOST_FLOWS {
            return out.send(self.allocator, &Word::Flows(flows));
        }
        flows.sort_unstable_by_key(|measurement| measurement.flow);
        let mut first = FlowId(0);
        while !flows.is_empty() {
            let rest = flows.split_off(flows.len().min(MOST_FLOWS));
            let next = rest.first().map_or(FlowId(u32::MAX), |measurement| measurement.flow);
            let last = if rest.is_empty() { next } else { FlowId(next.0 - 1) };
            out.send(self.allocator, &Word::SomeFlows { first, last, flows });
            (first, flows) = (next, rest);
        }
    }

    /// Flows of which the allocator says nothing while it answers: it cannot tell which links they take.
    fn let_go_unplaced(&mut self, out: &mut Outbox) {
        for (flow, known) in &self.flows {
            if known.unanswered == UNPLACED {
                self.waiting.remove(flow);
                out.push(Action::SetWindow { flow: *flow, window: UNBOUNDED });
            }
        }
    }

    /// Nobody answers: flows that wait for a first share begin as those of the paper do.
    fn go_ahead(&mut self, out: &mut Outbox) {
        let waiting = std::mem::take(&mut self.waiting);
        for known in waiting.iter().filter_map(|flow| self.flows.get(flow)) {
            out.push(first_window(&known.stats));
        }
    }

    fn enforce(&mut self, share: &Share, out: &mut Outbox) {
        let Some(known) = self.flows.get_mut(&share.flow) else { return };
        // Nothing measured on a new way: the smoothed time bounds no window too tightly.
        let least = known.least_rtt().or(known.stats.srtt);
        let Known { stats, answered, unanswered, paced, .. } = known;
        *answered = true;
        *unanswered = ANSWERED;
        self.waiting.remove(&share.flow);
        let bits = share.rate.bits_per_sec() as f64;
        let can_pace = stats.end == FlowEnd::Sender || self.paces_receivers;
        *paced = (share.paced && can_pace).then_some(*share);
        if share.paced && can_pace {
            let payload =
                Rate::from_bits_per_sec_f64(bits * stats.mss.get() as f64 / stats.frame.get() as f64);
            let rtt = least.unwrap_or_default().mul_f64(1.25) + PACED_RTT_SLACK + share.queueing;
            let window = Bytes::new(payload.bytes_in(rtt).get() + PACED_SLACK * stats.mss.get());
            out.push(Action::SetRate { flow: share.flow, rate: payload, window });
            return;
        }
        // Deviation: the paper's servers receive. Where they send, a window of the smoothed time would keep up any queue
        // that it once made, as the time grows with it; and one segment more is in flight, as receivers acknowledge
        // every other one (RFC 1122, Sect. 4.2.3.2).
        let sends = stats.end == FlowEnd::Sender;
        let unacknowledged = if sends { stats.mss } else { Bytes::ZERO };
        let rtt = if self.settings.minimum_rtt || sends { least } else { stats.srtt };
        let Some(rtt) = rtt else {
            if share.paced {
                let window = Bytes::new(PACED_SLACK * stats.mss.get());
                out.push(Action::SetWindow { flow: share.flow, window });
            }
            return;
        };
        let segment = if self.settings.by_payload { stats.mss } else { stats.frame };
        let window = shares::window(bits, rtt, stats.mss, segment, self.settings.rounding);
        let window = Bytes::new(window.get().saturating_add(unacknowledged.get()));
        out.push(Action::SetWindow { flow: share.flow, window });
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
                self.end_lease(now, out);
                self.measure(now, flows, out);
            }
            Observation::FlowStarted(FlowStart { stats, key, route }) => {
                let way = Way { key: *key, ports: route.to_vec() };
                let known = Known {
                    stats: *stats,
                    way: Some(way.clone()),
                    answered: false,
                    unanswered: 0,
                    measured: false,
                    paced: None,
                    moved: None,
                };
                self.flows.insert(stats.flow, known);
                // Paced flows wait for their share, or many that start at once would overflow every queue.
                let paced = self.settings.allocator == AllocatorKind::MaxMin;
                if self.heard.is_none() {
                    // Nobody decides.
                } else if paced {
                    self.waiting.insert(stats.flow);
                    out.push(Action::SetWindow { flow: stats.flow, window: Bytes::ZERO });
                } else {
                    out.push(first_window(stats));
                }
                out.send(self.allocator, &Word::Started(stats.flow, way));
            }
            Observation::FlowMoved(FlowStart { stats, key, route }) => {
                let way = Way { key: *key, ports: route.to_vec() };
                // Its share stays until the allocator has one for the new way.
                if let Some(known) = self.flows.get_mut(&stats.flow) {
                    known.way = Some(way.clone());
                    known.moved = Some(Moved::default());
                    out.send(self.allocator, &Word::Started(stats.flow, way));
                }
            }
            Observation::FlowEnded(flow) if self.flows.remove(flow).is_some() => {
                self.waiting.remove(flow);
                out.send(self.allocator, &Word::Ended(*flow));
            }
            Observation::Message(message) if message.from == self.allocator => {
                if let Some(Word::Shares(shares)) = message.read() {
                    self.heard = Some(now);
                    shares.iter().for_each(|share| self.enforce(share, out));
                }
            }
            Observation::Refused { subject: Subject::Flow(flow), why: Refusal::Unable } => {
                let known = self.flows.get(flow).filter(|known| known.stats.end == FlowEnd::Receiver);
                if let Some(share) = known.and_then(|known| known.paced) {
                    self.paces_receivers = false;
                    self.enforce(&share, out);
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

    fn gauges(&self, gauges: &mut Gauges) {
        if self.settings.lease.is_some() {
            gauges.show("managed", if self.heard.is_some() { 1.0 } else { 0.0 });
        }
    }
}

#[cfg(test)]
mod tests {
    use core::net::{IpAddr, Ipv4Addr};

    use super::super::DEF;
    use super::*;
    use crate::control::{FlowKey, Message, body};
    use crate::id::PortId;
    use crate::params::{Params, Value};

    const ALLOCATOR: NodeId = NodeId(9);
    const FLOW: FlowId = FlowId(3);

    fn host() -> Host {
        let mut params = Params::defaults(DEF.keys);
        params.set("allocator", Value::Text("max-min".to_owned()));
        Host::new(Settings::new(&params), ALLOCATOR)
    }

    fn stats(end: FlowEnd, min_rtt: Option<Span>) -> FlowStats {
        FlowStats {
            flow: FLOW,
            end,
            delivered: Bytes::ZERO,
            srtt: min_rtt,
            min_rtt,
            last_rtt: min_rtt,
            mss: Bytes::new(1448),
            frame: Bytes::new(1502),
        }
    }

    fn start(stats: FlowStats) -> Observation<'static> {
        let any = (IpAddr::from(Ipv4Addr::UNSPECIFIED), 0);
        let key = FlowKey { from: any, to: any, protocol: 6 };
        Observation::FlowStarted(FlowStart { stats, key, route: &[] })
    }

    fn tell(host: &mut Host, observation: &Observation<'_>) -> Vec<Action> {
        let mut out = Outbox::default();
        host.on(Time::ZERO, observation, &mut out);
        out.drain().collect()
    }

    fn give(host: &mut Host, mbit: u64) -> Vec<Action> {
        let rate = Rate::from_bits_per_sec(mbit * 1_000_000);
        let share = Share { flow: FLOW, rate, paced: true, queueing: Span::ZERO };
        let message = Message { from: ALLOCATOR, scheme: DEF.code, body: body(&Word::Shares(vec![share])) };
        tell(host, &Observation::Message(&message))
    }

    /// A flow is announced, and the next two measurements come before its connection exists.
    #[test]
    fn a_flow_that_is_being_connected_is_not_forgotten() {
        let mut host = host();
        tell(&mut host, &start(stats(FlowEnd::Sender, None)));
        for _ in 0..2 {
            let said = tell(&mut host, &Observation::Tick { ports: &[], flows: &[] });
            let [Action::Send { body, .. }] = &said[..] else { panic!("{said:?}") };
            let Ok(Word::Flows(told)) = postcard::from_bytes(body) else { panic!("no report") };
            assert_eq!((told.len(), told[0].flow, told[0].throughput), (1, FLOW, None));
            assert!(told[0].way.is_some(), "the allocator has not answered");
        }
        let said = give(&mut host, 10);
        assert!(matches!(said[..], [Action::SetRate { flow: FLOW, .. }]), "{said:?}");
        // It is there, and ends.
        let flows = [stats(FlowEnd::Sender, Some(Span::from_millis(10)))];
        tell(&mut host, &Observation::Tick { ports: &[], flows: &flows });
        let said = tell(&mut host, &Observation::Tick { ports: &[], flows: &[] });
        let [Action::Send { body, .. }] = &said[..] else { panic!("{said:?}") };
        assert_eq!(postcard::from_bytes(body), Ok(Word::Flows(Vec::new())));
    }

    /// A lease of half a second: nothing is heard for so long, and what begins meanwhile is left alone, until a share comes.
    #[test]
    fn without_a_word_for_a_lease_flows_are_let_go() {
        let mut params = Params::defaults(DEF.keys);
        params.set("allocator", Value::Text("max-min".to_owned()));
        params.set("lease", Value::Span(Span::from_millis(500)));
        let mut host = Host::new(Settings::new(&params), ALLOCATOR);
        let known = [stats(FlowEnd::Sender, Some(Span::from_millis(10)))];
        let tick = |host: &mut Host, at: u64| {
            let mut out = Outbox::default();
            let tick = Observation::Tick { ports: &[], flows: &known };
            host.on(Time::from_nanos(at * 1_000_000), &tick, &mut out);
            out.drain().filter(|action| !matches!(action, Action::Send { .. })).collect::<Vec<_>>()
        };
        tell(&mut host, &start(known[0]));
        assert!(matches!(give(&mut host, 10)[..], [Action::SetRate { .. }]));
        assert_eq!(tick(&mut host, 499), []);
        assert_eq!(tick(&mut host, 500), [Action::SetWindow { flow: FLOW, window: UNBOUNDED }]);
        assert_eq!(tick(&mut host, 600), [], "once");
        let begun = tell(&mut host, &start(known[0]));
        assert!(matches!(begun[..], [Action::Send { .. }]), "{begun:?}");
        assert!(matches!(give(&mut host, 10)[..], [Action::SetRate { .. }]));
    }

    #[test]
    fn a_flow_that_moves_is_announced_with_its_new_way() {
        let mut host = host();
        let any = (IpAddr::from(Ipv4Addr::UNSPECIFIED), 0);
        let key = FlowKey { from: any, to: any, protocol: 6 };
        let route = [PortId(4), PortId(6)];
        let begun = stats(FlowEnd::Sender, None);
        let moved = Observation::FlowMoved(FlowStart { stats: begun, key, route: &route });
        assert_eq!(tell(&mut host, &moved), [], "nothing is known of it");
        tell(&mut host, &start(begun));
        let said = Word::Started(FLOW, Way { key, ports: route.to_vec() });
        assert_eq!(tell(&mut host, &moved), [Action::Send { to: ALLOCATOR, body: body(&said) }]);
    }

    /// From a way of 10 ms to one of 40 ms: those are no 30 ms of queueing. What was measured until the first look is of the old way.
    #[test]
    fn a_flow_that_moves_queues_by_the_times_of_its_new_way() {
        let mut host = host();
        let any = (IpAddr::from(Ipv4Addr::UNSPECIFIED), 0);
        let key = FlowKey { from: any, to: any, protocol: 6 };
        let at = |millis| FlowStats {
            last_rtt: Some(Span::from_millis(millis)),
            ..stats(FlowEnd::Receiver, Some(Span::from_millis(10)))
        };
        let queueing = |host: &mut Host, millis| {
            let acts = tell(host, &Observation::Tick { ports: &[], flows: &[at(millis)] });
            let Some(Action::Send { body, .. }) = acts.last() else { panic!("{acts:?}") };
            let Ok(Word::Flows(flows)) = postcard::from_bytes(body) else { panic!("no report") };
            flows[0].queueing
        };
        tell(&mut host, &start(at(10)));
        assert_eq!(queueing(&mut host, 12), Span::from_millis(2));
        let moved = FlowStart { stats: at(12), key, route: &[PortId(4)] };
        tell(&mut host, &Observation::FlowMoved(moved));
        let seen = [12, 12, 40, 43, 41].map(|millis| queueing(&mut host, millis));
        assert_eq!(seen, [0, 0, 0, 3, 1].map(Span::from_millis));
    }

    /// The allocator answers for another flow, and never for this one.
    #[test]
    fn a_flow_that_cannot_be_placed_is_let_go() {
        let mut params = Params::defaults(DEF.keys);
        params.set("allocator", Value::Text("max-min".to_owned()));
        params.set("lease", Value::Span(Span::from_secs(2)));
        let mut host = Host::new(Settings::new(&params), ALLOCATOR);
        let astray = FlowStats { flow: FlowId(4), ..stats(FlowEnd::Sender, None) };
        let flows = [stats(FlowEnd::Sender, None), astray];
        flows.iter().for_each(|flow| drop(tell(&mut host, &start(*flow))));
        let mut free = Vec::new();
        for tick in 1..20 {
            give(&mut host, 10);
            let mut out = Outbox::default();
            host.on(
                Time::from_nanos(tick * 100_000_000),
                &Observation::Tick { ports: &[], flows: &flows },
                &mut out,
            );
            let windows = out.drain().filter(|action| matches!(action, Action::SetWindow { .. }));
            free.extend(windows.map(|action| (tick, action)));
        }
        let let_go = Action::SetWindow { flow: FlowId(4), window: UNBOUNDED };
        assert_eq!(free, [(5, let_go)]);
    }

    /// Each part fits into a datagram, and together they tell of all flows.
    #[test]
    fn of_many_flows_several_messages_tell() {
        let mut host = host();
        let flow = |number| FlowStats { flow: FlowId(number), ..stats(FlowEnd::Sender, None) };
        let flows: Vec<FlowStats> = (0..2000).map(|number| flow(3 * number)).collect();
        let key = FlowKey {
            from: (IpAddr::from([0xff; 16]), 60_000),
            to: (IpAddr::from([0xff; 16]), 60_000),
            protocol: 6,
        };
        for stats in &flows {
            tell(&mut host, &Observation::FlowStarted(FlowStart { stats: *stats, key, route: &[] }));
        }
        let said = tell(&mut host, &Observation::Tick { ports: &[], flows: &flows });
        let (mut told, mut next) = (Vec::new(), 0);
        for action in &said {
            let Action::Send { body, .. } = action else { panic!("{action:?}") };
            assert!(body.len() < 65_000, "{} bytes", body.len());
            let Ok(Word::SomeFlows { first, last, flows }) = postcard::from_bytes(body) else {
                panic!("no part")
            };
            assert!(
                first.0 == next
                    && flows.iter().all(|one| one.way.is_some() && (first..=last).contains(&one.flow))
            );
            next = last.0.wrapping_add(1);
            told.extend(flows.iter().map(|one| one.flow.0));
        }
        assert_eq!((said.len(), next, told), (3, 0, (0..2000).map(|number| 3 * number).collect()));
    }

    /// 12 Mbit/s over 10 ms are 15,000 bytes, 9.987 frames.
    #[test]
    fn where_a_receiver_cannot_pace_a_window_takes_its_place() {
        let mut host = host();
        let begun = stats(FlowEnd::Receiver, None);
        tell(&mut host, &start(begun));
        assert!(matches!(give(&mut host, 12)[..], [Action::SetRate { .. }]));
        let refused = Observation::Refused { subject: Subject::Flow(FLOW), why: Refusal::Unable };
        let window = |segments: u64| [Action::SetWindow { flow: FLOW, window: Bytes::new(segments * 1448) }];
        assert_eq!(tell(&mut host, &refused), window(PACED_SLACK), "no round-trip time is known");
        let flows = [stats(FlowEnd::Receiver, Some(Span::from_millis(10)))];
        tell(&mut host, &Observation::Tick { ports: &[], flows: &flows });
        assert_eq!(give(&mut host, 12), window(10), "from then on at once");
        // Another refusal is none of a pace.
        assert_eq!(tell(&mut host, &refused), []);
    }
}
