//! Flow groups unrolled into flows, timelines into connections.

use bandmaster_core::id::NodeId;
use bandmaster_core::rng::Stream;
use bandmaster_core::scenario::{FlowGroup, OnOff, Pairing, RunPlan, Transport};
use bandmaster_core::time::Time;
use bandmaster_core::topology::Topology;

/// One connection or UDP stream.
#[derive(Clone, Debug)]
pub(crate) struct FlowPlan {
    /// `group-of-flows.from.number`, and `#2`, `#3`, ... for restarts.
    pub(crate) name: String,
    /// Name of the sending group or host: the series it belongs to.
    pub(crate) entity: String,
    /// Position of its flow group in the scenario.
    pub(crate) group: usize,
    pub(crate) src: NodeId,
    pub(crate) dst: NodeId,
    pub(crate) start: Time,
    pub(crate) stop: Option<Time>,
    pub(crate) measured: bool,
}

impl FlowPlan {
    /// Exists through the whole interval.
    pub(crate) fn covers(&self, from: Time, to: Time) -> bool {
        self.start <= from && self.stop.is_none_or(|stop| stop >= to)
    }
}

/// Every flow of `groups`, in file order.
pub(crate) fn plan(groups: &[FlowGroup], topology: &Topology, run: &RunPlan, trial: u32) -> Vec<FlowPlan> {
    let mut flows = Vec::new();
    for (index, group) in groups.iter().enumerate() {
        plan_group(index, group, topology, run, trial, &mut flows);
    }
    flows
}

fn plan_group(
    index: usize,
    group: &FlowGroup,
    topology: &Topology,
    run: &RunPlan,
    trial: u32,
    flows: &mut Vec<FlowPlan>,
) {
    let members = |names: &[String]| -> Vec<(String, NodeId)> {
        let of = |name: &String| {
            let nodes = topology.members(name).unwrap_or_default();
            nodes.into_iter().map(|node| (name.clone(), node)).collect::<Vec<_>>()
        };
        names.iter().flat_map(of).collect()
    };
    let receivers = members(&group.to);
    let mut sender_index = 0;
    for name in &group.from {
        let mut own = Vec::new();
        for (_, src) in members(std::slice::from_ref(name)) {
            let targets: Vec<NodeId> = match group.pairing {
                Pairing::OneToOne => receivers
                    .get(sender_index % receivers.len().max(1))
                    .map(|(_, dst)| *dst)
                    .into_iter()
                    .collect(),
                Pairing::AllToAll => {
                    receivers.iter().map(|(_, dst)| *dst).filter(|dst| *dst != src).collect()
                }
            };
            sender_index += 1;
            for dst in targets {
                for _ in 0..group.count {
                    let flow_name = format!("{}.{name}.{}", group.name, own.len());
                    let mut stream = Stream::new(run.seed, trial, &format!("flow/{flow_name}/start"));
                    own.push(FlowPlan {
                        name: flow_name,
                        entity: name.clone(),
                        group: index,
                        src,
                        dst,
                        start: Time::ZERO + group.start.draw(&mut stream),
                        stop: group.stop,
                        measured: group.measured,
                    });
                }
            }
        }
        flows.extend(apply_timeline(group, own));
    }
}

/// Cuts flows at their stops and appends their restarts.
fn apply_timeline(group: &FlowGroup, mut flows: Vec<FlowPlan>) -> Vec<FlowPlan> {
    let members = flows.len();
    // The connection that stands for each member now, and the members that stopped, longest ago first.
    let mut current: Vec<usize> = (0..members).collect();
    let mut generation = vec![1; members];
    let mut running: Vec<usize> = (0..members).collect();
    let mut stopped: Vec<usize> = Vec::new();
    let (mut stop_share, mut stops, mut start_share, mut starts) = (0.0, 0, 0.0, 0);
    let whole = |share: f64| (share * members as f64 + 1e-9) as usize;
    for step in &group.timeline {
        stop_share += step.stop;
        while stops < whole(stop_share) && !running.is_empty() {
            let member = running.remove(0);
            flows[current[member]].stop = Some(step.at);
            stopped.push(member);
            stops += 1;
        }
        start_share += step.start;
        while starts < whole(start_share) && !stopped.is_empty() {
            let member = stopped.remove(0);
            generation[member] += 1;
            let first = &flows[member];
            let restart = FlowPlan {
                name: format!("{}#{}", first.name, generation[member]),
                start: step.at,
                stop: group.stop,
                ..first.clone()
            };
            current[member] = flows.len();
            flows.push(restart);
            running.push(member);
            starts += 1;
        }
    }
    flows
}

/// A constant-rate UDP source.
pub(crate) struct UdpSource {
    pub(crate) flow: u32,
    pub(crate) route: u32,
    /// Bytes of an IP packet.
    pub(crate) packet: u32,
    pub(crate) rate: u64,
    /// Start of the current on time, and packets sent since.
    pub(crate) since: Time,
    pub(crate) sent: u64,
    pub(crate) on: bool,
    pub(crate) received: u64,
}

impl UdpSource {
    pub(crate) fn new(flow: u32, route: u32, transport: &Transport) -> Option<Self> {
        let Transport::Udp { rate, packet } = transport else { return None };
        Some(Self {
            flow,
            route,
            packet: packet.get() as u32,
            rate: rate.bits_per_sec(),
            since: Time::ZERO,
            sent: 0,
            on: false,
            received: 0,
        })
    }

    /// Packet n leaves when the source has made n packets' worth of bits.
    pub(crate) fn next_at(&self) -> Time {
        let bits = u128::from(self.sent + 1) * u128::from(self.packet) * 8;
        self.since
            + bandmaster_core::time::Span::from_nanos((bits * 1_000_000_000 / u128::from(self.rate)) as u64)
    }
}

/// On and off times of a flow.
pub(crate) struct Toggle {
    pub(crate) on: bool,
    pub(crate) times: OnOff,
    pub(crate) stream: Stream,
}

#[cfg(test)]
mod tests {
    use super::*;
    use bandmaster_core::scenario::{TcpSettings, TimelineStep};
    use bandmaster_core::time::Span;
    use bandmaster_core::topology::SpanDraw;

    fn group(timeline: Vec<TimelineStep>) -> FlowGroup {
        FlowGroup {
            name: "u".into(),
            from: vec!["a".into()],
            to: vec!["s".into()],
            pairing: Pairing::OneToOne,
            count: 1,
            start: SpanDraw::fixed(Span::ZERO),
            stop: None,
            timeline,
            on_off: None,
            transport: Transport::Tcp { size: None, settings: TcpSettings::default() },
            measured: true,
        }
    }

    fn flow(i: usize) -> FlowPlan {
        FlowPlan {
            name: format!("u.a.{i}"),
            entity: "a".into(),
            group: 0,
            src: NodeId(i as u32),
            dst: NodeId(99),
            start: Time::ZERO,
            stop: None,
            measured: true,
        }
    }

    #[test]
    fn shares_are_rounded_down_over_the_sum_so_far() {
        let at = |s: u64| Time::from_nanos(s * 1_000_000_000);
        let stop = |s| TimelineStep { at: at(s), stop: 0.25, start: 0.0 };
        let start = |s| TimelineStep { at: at(s), stop: 0.0, start: 0.25 };
        let timeline = vec![stop(7), stop(9), stop(11), start(14), start(16), start(18)];
        let flows = apply_timeline(&group(timeline), (0..2).map(flow).collect());
        // Of two members, half a flow at 7 s is none; one has stopped by 9 s and by 11 s.
        assert_eq!(flows.len(), 3);
        assert_eq!(flows[0].stop, Some(at(9)));
        assert_eq!(flows[1].stop, None);
        assert_eq!((flows[2].name.as_str(), flows[2].start), ("u.a.0#2", at(16)));
    }
}
