//! The general path of a port, with a first-in-first-out discipline, is the fast path to the nanosecond.

use bandmaster_core::capacity::{Capacity, Step, Steps, Trace};
use bandmaster_core::losses::LossPlan;
use bandmaster_core::measure::sojourn::Sojourns;
use bandmaster_core::propagation::Variation;
use bandmaster_core::qdisc::fifo::{DropTail, Fifo};
use bandmaster_core::rng::{SpanDraw, Stream};
use bandmaster_core::units::Bytes;
use proptest::prelude::*;

use super::*;

/// Arrival at the far end: when, which packet.
type Arrival = (u64, u64);

/// Sends packets (gap before it in ns, bytes) through a port; returns arrivals and counters.
fn arrivals(discipline: Discipline, rate: u64, packets: &[(u64, u32)]) -> (Vec<Arrival>, PortCounters) {
    pass(host_port(discipline, rate, 0.0), packets)
}

/// A port that loses packets, with the processing delay of a host.
fn host_port(discipline: Discipline, rate: u64, host_delay: f64) -> Port {
    let mut port = Port::new(Rate::from_bits_per_sec(rate), Span::from_micros(7), discipline, None);
    port.set_jitter(host_delay, Stream::new(1, 0, "processing"));
    let plan = LossPlan { random: 0.02, script: vec![3, 5, 6], ..LossPlan::default() };
    port.set_losses(Losses::from_plan(plan, |_| Stream::new(1, 0, "loss")).expect("losses"));
    port
}

fn pass(mut port: Port, packets: &[(u64, u32)]) -> (Vec<Arrival>, PortCounters) {
    port.finish_setup();
    let (mut slab, mut events) = (Slab::default(), EventQueue::new());
    let mut at = Time::ZERO;
    for (i, (gap, _)) in packets.iter().enumerate() {
        at += Span::from_nanos(*gap);
        events.push(at, Event::Datagram(i as u32));
    }
    let mut arrived = Vec::new();
    let mut postponed = vec![false; packets.len()];
    while let Some((now, event)) = events.pop() {
        match event {
            // Whatever else happens at this moment comes first: the transmitter has become free then.
            Event::Datagram(i) if !postponed[i as usize] => {
                postponed[i as usize] = true;
                events.push(now, event);
            }
            Event::Datagram(i) => {
                let len = packets[i as usize].1;
                let label =
                    slab.insert(Packet { len, payload: len as u16, seq: u64::from(i), ..Packet::default() });
                port.enqueue(0, now, label, &mut slab, &mut events);
            }
            Event::Processed(_) => port.finish_processing(0, now, &mut slab, &mut events),
            Event::PortFree(_) => port.wake(0, now, &mut slab, &mut events),
            Event::Arrival(_) => {
                if let Some(label) = port.arrive(0, now, &mut slab, &mut events) {
                    arrived.push((now.as_nanos(), slab.at(label.key).seq));
                    slab.remove(label.key);
                }
            }
            Event::Landing(_) => {
                if let Some(label) = port.land(now) {
                    arrived.push((now.as_nanos(), slab.at(label.key).seq));
                    slab.remove(label.key);
                }
            }
            other => panic!("{other:?} on a lone port"),
        }
    }
    assert_eq!(slab.live(), 0);
    (arrived, port.counters())
}

/// Last in, first out. Drops short packets when their turn comes.
struct Stack(Vec<Pkt>);

impl Qdisc for Stack {
    fn enqueue(&mut self, _now: Time, pkt: Pkt, _dropped: &mut Vec<Pkt>) -> Verdict {
        self.0.push(pkt);
        Verdict::Accept
    }

    fn dequeue(&mut self, _now: Time, dropped: &mut Vec<Pkt>) -> Option<Pkt> {
        loop {
            let pkt = self.0.pop()?;
            if pkt.len >= 100 {
                return Some(pkt);
            }
            dropped.push(pkt);
        }
    }

    fn next_ready(&self, now: Time) -> Option<Time> {
        (!self.0.is_empty()).then_some(now)
    }

    fn backlog(&self) -> Backlog {
        let bytes = self.0.iter().map(|pkt| u64::from(pkt.len)).sum();
        Backlog { packets: self.0.len() as u32, bytes }
    }
}

/// Sends packets (arrival in us, bytes) through a port of 8 Mbit/s: bytes whose transmission has begun at each of `looks`,
/// in us, and the quantiles of the times in the queue in ms.
fn watched(discipline: Discipline, packets: &[(u64, u32)], looks: &[u64]) -> (Vec<u64>, Vec<f64>) {
    let mut port = Port::new(Rate::from_bits_per_sec(8_000_000), Span::from_micros(7), discipline, None);
    let times = Sojourns::new([(String::new(), Time::ZERO, Time::MAX)]).expect("three figures");
    port.extras().sojourns = Some(Box::new(SojournWatch::new(times)));
    port.finish_setup();
    let (mut slab, mut events) = (Slab::default(), EventQueue::new());
    let at = |micros: &u64| Time::ZERO + Span::from_micros(*micros);
    for (i, (micros, _)) in (0..).zip(packets) {
        events.push(at(micros), Event::Datagram(i));
    }
    let (mut begun, mut looks) = (Vec::new(), looks.iter().map(at).peekable());
    while let Some((now, event)) = events.pop() {
        while let Some(look) = looks.next_if(|look| *look < now) {
            begun.push(port.begun_bytes(look));
        }
        match event {
            Event::Datagram(i) => {
                let len = packets[i as usize].1;
                let label = slab.insert(Packet { len, ..Packet::default() });
                port.enqueue(0, now, label, &mut slab, &mut events);
            }
            Event::PortFree(_) => port.wake(0, now, &mut slab, &mut events),
            Event::Arrival(_) => {
                if let Some(label) = port.arrive(0, now, &mut slab, &mut events) {
                    slab.remove(label.key);
                }
            }
            other => panic!("{other:?} on a lone port"),
        }
    }
    assert_eq!(slab.live(), 0);
    let watch = port.extras().sojourns.take().expect("set above");
    (begun, watch.times.metrics().into_iter().map(|(_, millis)| millis).collect())
}

fn unlimited() -> Box<DropTail> {
    Box::new(DropTail { limit: Limit::Unlimited })
}

/// A port of 80 Mbit/s to a wire of 5 ms with this variation.
fn varied(discipline: Discipline, variation: Variation) -> Port {
    let delay = Span::from_millis(5);
    let mut port = Port::new(Rate::from_bits_per_sec(80_000_000), delay, discipline, None);
    let propagation = Propagation::new(variation, delay, |kind| Stream::new(1, 0, kind)).expect("it varies");
    port.set_propagation(propagation);
    assert_eq!(port.ideal(), IdealPort { nanos_per_byte: port.nanos_per_byte(), delay });
    port
}

/// Packets of 1000 bytes leave each millisecond and take 0.1 ms; the third and the sixth overtake at once. Of those that arrive at the
/// same time the earlier comes first.
#[test]
fn packets_overtake_others_on_the_wire_whatever_orders_the_queue() {
    let variation = Variation { reorder: 1.0, reorder_gap: 3, ..Variation::default() };
    for discipline in [Discipline::Fifo(unlimited()), Discipline::Ordered(Box::new(Fifo::new(unlimited())))] {
        let (arrived, counters) = pass(varied(discipline, variation), &[(1_000_000, 1_000); 6]);
        let expected: [Arrival; 6] = [(31, 2), (61, 0), (61, 5), (71, 1), (91, 3), (101, 4)];
        assert_eq!(arrived, expected.map(|(tenths, number)| (tenths * 100_000, number)));
        assert_eq!(counters, PortCounters { delivered: 6, ..PortCounters::default() });
    }
}

/// Sends packets of 1000 bytes (arrival in us) through a port of 8 Mbit/s that is down between two times in us: when in us which
/// arrive, and the counters.
fn interrupted(
    discipline: Discipline,
    limit: Option<Limit>,
    sent: &[u64],
    (down, up): (u64, u64),
) -> (Vec<Arrival>, PortCounters) {
    let mut port = Port::new(Rate::from_bits_per_sec(8_000_000), Span::from_micros(7), discipline, limit);
    port.finish_setup();
    let (mut slab, mut events) = (Slab::default(), EventQueue::new());
    let at = |micros: u64| Time::ZERO + Span::from_micros(micros);
    events.push(at(down), Event::Outage(0));
    events.push(at(up), Event::Outage(1));
    for (i, micros) in (0..).zip(sent) {
        events.push(at(*micros), Event::Datagram(i));
    }
    let mut arrived = Vec::new();
    while let Some((now, event)) = events.pop() {
        match event {
            Event::Outage(0) => assert!(port.fail(now, &mut slab).is_empty(), "no probes"),
            Event::Outage(_) => port.restore(),
            Event::Datagram(i) => {
                let label = slab.insert(Packet { len: 1_000, seq: u64::from(i), ..Packet::default() });
                port.enqueue(0, now, label, &mut slab, &mut events);
            }
            Event::PortFree(_) => port.wake(0, now, &mut slab, &mut events),
            Event::Arrival(_) => {
                if let Some(label) = port.arrive(0, now, &mut slab, &mut events) {
                    arrived.push((now.as_nanos() / 1_000, slab.at(label.key).seq));
                    slab.remove(label.key);
                }
            }
            other => panic!("{other:?} on a lone port"),
        }
    }
    assert_eq!((slab.live(), port.waiting_bytes(Time::MAX)), (0, 0));
    (arrived, port.counters())
}

/// Packet 0 has arrived, packet 1 is being transmitted and would arrive at 2007 us, 2 and 3 wait, 4 comes while the link is down.
/// Afterwards the transmitter is free at once, and the event of packet 1 takes none of the new packets.
#[test]
fn a_link_that_fails_loses_what_it_has_and_begins_afresh() {
    let sent = [0, 0, 0, 0, 1_600, 2_000, 2_000];
    for (discipline, limit) in [
        (Discipline::Fifo(unlimited()), None),
        (Discipline::Fifo(unlimited()), Some(Limit::Packets(9))),
        (Discipline::Ordered(Box::new(Fifo::new(unlimited()))), None),
        (Discipline::Ordered(Box::new(Stack(Vec::new()))), None),
    ] {
        let (arrived, counters) = interrupted(discipline, limit, &sent, (1_500, 1_900));
        assert_eq!(arrived, [(1_007, 0), (3_007, 5), (4_007, 6)]);
        assert_eq!(counters, PortCounters { delivered: 3, faulted: 4, ..PortCounters::default() });
    }
    // One packet that is alone on a plain link, and the next one.
    let alone =
        interrupted(Discipline::Fifo(unlimited()), Some(Limit::Packets(9)), &[0, 700, 900], (500, 600));
    assert_eq!(alone.0, [(1_707, 1), (2_707, 2)]);
    assert_eq!(alone.1, PortCounters { delivered: 2, faulted: 1, ..PortCounters::default() });
}

/// Transmissions of 1 ms each begin at 0, 1, 2 and 3 ms.
#[test]
fn what_waits_has_not_begun_whatever_orders_it() {
    let packets = [(0, 1000); 4];
    for discipline in [
        Discipline::Fifo(unlimited()),
        Discipline::Ordered(Box::new(Fifo::new(unlimited()))),
        Discipline::Ordered(Box::new(Stack(Vec::new()))),
    ] {
        let (begun, sojourns) = watched(discipline, &packets, &[500, 999, 1500, 2500, 3500]);
        assert_eq!(begun, [1000, 1000, 2000, 3000, 4000]);
        assert!((sojourns[3] - 3.0).abs() < 0.003, "{sojourns:?}");
    }
}

/// A leaves at 0, C at 1 ms before B at 2 ms; D is dropped at its turn and counts nowhere.
#[test]
fn times_in_the_queue_are_of_each_packet_and_of_those_that_leave() {
    let packets = [(0, 1000), (0, 1000), (200, 1000), (300, 40)];
    let fifo = [0.0, 1.0, 2.7, 2.7];
    for (discipline, expected) in [
        (Discipline::Ordered(Box::new(Stack(Vec::new()))), [0.0, 0.8, 2.0, 2.0]),
        (Discipline::Ordered(Box::new(Fifo::new(unlimited()))), fifo),
        (Discipline::Fifo(unlimited()), fifo),
    ] {
        let (_, sojourns) = watched(discipline, &packets, &[]);
        let is_near = |(own, expected): (&f64, &f64)| (own - expected).abs() <= 0.001 * expected;
        assert!(sojourns.iter().zip(&expected).all(is_near), "{sojourns:?}, not {expected:?}");
    }
}

fn limit() -> impl Strategy<Value = Limit> {
    prop_oneof![
        (0u32..20).prop_map(Limit::Packets),
        // Few packets, or enough for the short way.
        prop_oneof![0u64..20_000, LARGEST - 10..150_000].prop_map(|bytes| Limit::Bytes(Bytes::new(bytes))),
        Just(Limit::Unlimited),
    ]
}

/// Steps with pauses, or a trace, over some milliseconds.
fn capacity() -> impl Strategy<Value = Capacity> {
    let step = (1u64..3_000_000, prop_oneof![Just(0), 1_000_000u64..100_000_000]);
    let steps = (prop::collection::vec(step, 1..5), any::<bool>()).prop_map(|(list, repeats)| {
        let mut at = Span::ZERO;
        let mut next = |(gap, rate): (u64, u64)| {
            at += Span::from_nanos(gap);
            Step { at, rate: Rate::from_bits_per_sec(rate) }
        };
        let mut steps: Vec<Step> = list.into_iter().map(&mut next).collect();
        if !repeats {
            steps.push(next((1_000, 10_000_000)));
        }
        let period = repeats.then(|| at + Span::from_millis(1));
        Capacity::Steps(Steps::new(steps, period).expect("steps"))
    });
    let trace = prop::collection::vec(1u32..20, 1..40).prop_map(|mut times| {
        times.sort_unstable();
        let text: String = times.iter().map(|at| format!("{at}\n")).collect();
        Capacity::Trace(Trace::parse("t", &text).expect("a trace"))
    });
    prop_oneof![steps, trace]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn fast_path_equals_general_path(
        limit in limit(),
        rate in 1_000_000u64..1_000_000_000,
        packets in prop::collection::vec((0u64..200_000, 40u32..1_600), 1..300),
    ) {
        let rule = || Box::new(DropTail { limit });
        let fast = arrivals(Discipline::Fifo(rule()), rate, &packets);
        let general = arrivals(Discipline::Ordered(Box::new(Fifo::new(rule()))), rate, &packets);
        prop_assert_eq!(fast, general);
    }

    /// A plain port counts what waits when somebody asks, now and then, as if it had looked all the time.
    #[test]
    fn a_plain_port_knows_what_waits(
        limit in limit(),
        delay in 1u64..50_000,
        packets in prop::collection::vec((0u64..100_000, 40u32..1_600, any::<bool>()), 1..200),
    ) {
        let mut port = Port::new(Rate::from_bits_per_sec(100_000_000), Span::from_nanos(delay), Discipline::Fifo(Box::new(DropTail { limit })), Some(limit));
        port.finish_setup();
        let (mut slab, mut events) = (Slab::default(), EventQueue::new());
        let mut now = Time::ZERO;
        for (gap, len, looks) in packets {
            now += Span::from_nanos(gap);
            while let Some((at, _)) = events.pop_before(now) {
                let label = port.arrive(0, at, &mut slab, &mut events);
                label.into_iter().for_each(|label| slab.remove(label.key));
            }
            let label = slab.insert(Packet { len, ..Packet::default() });
            port.enqueue(0, now, label, &mut slab, &mut events);
            if looks {
                let backlog = port.backlog(now);
                prop_assert_eq!(port.waiting_at(now), backlog);
            }
        }
    }

    /// Packets that come far apart, or in bursts, through a port that does nothing to them.
    #[test]
    fn plain_path_equals_general_path(
        limit in limit(),
        rate in 1_000_000u64..1_000_000_000,
        delay in 0u64..50_000,
        packets in prop::collection::vec((0u64..100_000, 40u32..1_600), 1..300),
    ) {
        let delay = Span::from_nanos(delay);
        let rate = Rate::from_bits_per_sec(rate);
        let rule = || Box::new(DropTail { limit });
        let plain = Port::new(rate, delay, Discipline::Fifo(rule()), Some(limit));
        let general = Port::new(rate, delay, Discipline::Ordered(Box::new(Fifo::new(rule()))), None);
        prop_assert_eq!(pass(plain, &packets), pass(general, &packets));
    }

    /// A capacity that changes is the same for both paths. Packets come between whole milliseconds: at the very moment of
    /// an opportunity, several packets may leave one after the other, and who comes in between is a matter of order.
    #[test]
    fn a_changing_capacity_is_the_same_for_both_paths(
        limit in limit(),
        rate in 1_000_000u64..1_000_000_000,
        capacity in capacity(),
        packets in prop::collection::vec((0u64..200_000, 40u32..1_600), 1..300),
    ) {
        let packets: Vec<_> =
            packets.iter().enumerate().map(|(i, (gap, len))| (gap * 2 + u64::from(i == 0), *len)).collect();
        let rate = Rate::from_bits_per_sec(rate);
        let send = |discipline: Discipline, limit: Option<Limit>| {
            let mut port = Port::new(rate, Span::from_micros(7), discipline, limit);
            port.set_schedule(Schedule::new(&capacity, rate, 0.0));
            pass(port, &packets)
        };
        let rule = || Box::new(DropTail { limit });
        let limited = send(Discipline::Fifo(rule()), Some(limit));
        prop_assert_eq!(limited.0.len() as u64 + limited.1.dropped, packets.len() as u64);
        prop_assert_eq!(&limited, &send(Discipline::Fifo(rule()), None));
        prop_assert_eq!(&limited, &send(Discipline::Ordered(Box::new(Fifo::new(rule()))), None));
    }

    /// Before a queue that drops nothing, a host's delay does not depend on the discipline that orders its packets.
    #[test]
    fn processing_delay_is_the_same_before_any_discipline(
        host_delay in 0.0f64..4.0,
        rate in 1_000_000u64..1_000_000_000,
        packets in prop::collection::vec((0u64..200_000, 40u32..1_600), 1..300),
    ) {
        let rule = || Box::new(DropTail { limit: Limit::Unlimited });
        let fast = pass(host_port(Discipline::Fifo(rule()), rate, host_delay), &packets);
        let ordered = Discipline::Ordered(Box::new(Fifo::new(rule())));
        prop_assert_eq!(fast, pass(host_port(ordered, rate, host_delay), &packets));
    }

    /// Jitter delays no packet by more than its bound. It keeps their order unless it may reorder them, and an ordering discipline
    /// changes nothing.
    #[test]
    fn jitter_delays_within_its_bound_and_keeps_the_order_unless_it_may_not(
        jitter_reorders in any::<bool>(),
        bound in 1u64..20_000_000,
        packets in prop::collection::vec((0u64..2_000_000, 40u32..1_600), 1..200),
    ) {
        let jitter = SpanDraw::Uniform { low: Span::ZERO, high: Span::from_nanos(bound) };
        let variation = Variation { jitter: Some(jitter), jitter_reorders, ..Variation::default() };
        let exact = Variation { jitter: Some(SpanDraw::fixed(Span::ZERO)), ..Variation::default() };
        let by_number = |(mut arrived, counters): (Vec<Arrival>, PortCounters)| {
            arrived.sort_by_key(|(_, number)| *number);
            (arrived, counters)
        };
        let undelayed = pass(varied(Discipline::Fifo(unlimited()), exact), &packets);
        let fast = pass(varied(Discipline::Fifo(unlimited()), variation), &packets);
        let ordered = Discipline::Ordered(Box::new(Fifo::new(unlimited())));
        prop_assert_eq!(&fast, &pass(varied(ordered, variation), &packets));
        prop_assert!(jitter_reorders || fast.0.iter().map(|(_, number)| *number).is_sorted());
        let ((fast, delivered), (undelayed, all)) = (by_number(fast), by_number(undelayed));
        prop_assert_eq!(delivered, all);
        for ((late, number), (early, other)) in fast.into_iter().zip(undelayed) {
            prop_assert_eq!(number, other);
            prop_assert!((early..=early + bound).contains(&late), "{} ns late, at most {}", late - early, bound);
        }
    }

    /// A busy link transmits at its rate: what rounding to nanoseconds owes is carried on.
    #[test]
    fn back_to_back_packets_keep_the_rate(rate in 1_000_000u64..2_000_000_000_000, len in 40u32..9_000) {
        let packets = vec![(0, len); 1_000];
        let unlimited = Box::new(Fifo::new(Box::new(DropTail { limit: Limit::Unlimited })));
        for discipline in [Discipline::Fifo(Box::new(DropTail { limit: Limit::Unlimited })), Discipline::Ordered(unlimited)] {
            let (arrived, _) = arrivals(discipline, rate, &packets);
            let (last, number) = arrived[arrived.len() - 1];
            let exact = u128::from(number + 1) * u128::from(len) * 8_000_000_000 / u128::from(rate);
            let took = u128::from(last - 7_000);
            prop_assert!(took.abs_diff(exact) <= 1 + (exact >> 20), "{} ns for {} exactly", took, exact);
        }
    }
}
