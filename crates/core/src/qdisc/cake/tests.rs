use super::tin::{named, tag};
use super::*;
use crate::fairness;
use crate::id::{FlowId, NodeId};
use crate::params::Value;

fn params(set: &[(&'static str, Value)]) -> Params {
    let mut params = Params::defaults(DEF.keys);
    for (key, value) in set {
        params.set(key, value.clone());
    }
    params
}

fn cake(set: &[(&'static str, Value)], hosts: Hosts) -> Cake {
    let params = params(set);
    assert_eq!(check(&params), Ok(()));
    let mut site = Site::new(Rate::from_bits_per_sec(1_000_000_000), Stream::new(1, 0, "cake"));
    site.hosts = hosts;
    Cake::new(&params, site)
}

fn rate(bits: u64) -> (&'static str, Value) {
    ("rate", Value::Rate(Rate::from_bits_per_sec(bits)))
}

fn word(key: &'static str, word: &str) -> (&'static str, Value) {
    (key, Value::Text(word.to_owned()))
}

fn bytes(key: &'static str, bytes: u64) -> (&'static str, Value) {
    (key, Value::Bytes(Bytes::new(bytes)))
}

/// Jain's index.
fn jain(shares: &[f64]) -> f64 {
    fairness::jain(shares.iter().copied()).expect("shares")
}

/// Traffic whose packets may be marked.
#[derive(Clone, Copy)]
struct Load {
    flow: u32,
    len: u32,
    dscp: u8,
    reverse: bool,
}

impl Load {
    const fn new(flow: u32, len: u32, dscp: u8) -> Self {
        Self { flow, len, dscp, reverse: false }
    }

    fn pkt(self) -> Pkt {
        let Self { flow, len, dscp, reverse } = self;
        Pkt { key: flow, len, flow: FlowId(flow), dscp, ect: true, ce: false, reverse }
    }
}

fn put(cake: &mut Cake, now: Time, load: Load) -> (Verdict, Vec<u32>) {
    let mut dropped = Vec::new();
    let verdict = cake.enqueue(now, load.pkt(), &mut dropped);
    (verdict, dropped.iter().map(|p| p.flow.0).collect())
}

/// What leaves next, and when: the transmitter behind the shaper is always free.
fn take(cake: &mut Cake, now: Time) -> Option<(Time, Pkt)> {
    let now = cake.next_ready(now)?.max(now);
    let mut dropped = Vec::new();
    let pkt = cake.dequeue(now, &mut dropped).expect("a packet is ready");
    assert!(dropped.is_empty(), "packets are marked: {dropped:?}");
    Some((now, pkt))
}

/// Bytes by load of so many departures, while ten packets of each wait all the time. Load `i` is flow `i`.
fn served(cake: &mut Cake, loads: &[Load], departures: u32) -> Vec<f64> {
    let mut now = Time::ZERO;
    for load in loads {
        for _ in 0..10 {
            assert_eq!(put(cake, now, *load), (Verdict::Accept, vec![]));
        }
    }
    let mut served = vec![0.0; loads.len()];
    for _ in 0..departures {
        let (at, pkt) = take(cake, now).expect("packets wait");
        now = at;
        served[pkt.flow.index()] += f64::from(pkt.len);
        put(cake, now, loads[pkt.flow.index()]);
    }
    served
}

// ---------------------------------------------------------------------------------------------------------- the shaper

#[test]
fn packets_leave_at_the_rate_with_what_the_link_adds() {
    let last = |set: &[(&'static str, Value)], len: u32| {
        let mut cake = cake(set, Hosts::default());
        for _ in 0..10_001 {
            put(&mut cake, Time::ZERO, Load::new(0, len, 0));
        }
        let mut now = Time::ZERO;
        while let Some((at, _)) = take(&mut cake, now) {
            now = at;
        }
        now.as_nanos()
    };
    let unlimited = ("limit", Value::Limit(Limit::Unlimited));
    let of = |more: &[(&'static str, Value)]| {
        let mut set = vec![rate(7_777_777), unlimited.clone()];
        set.extend_from_slice(more);
        set
    };
    // 10,000 x 1514 x 8 x 10^9 / 7,777,777: exact, where 1 % would do.
    assert_eq!(last(&of(&[]), 1514), 15_572_572_985);
    // 44 of the 1514 bytes are the link's; 320 bytes take seven cells; 78 count as 84.
    assert_eq!(last(&of(&[bytes("overhead", 44)]), 1470), 15_572_572_985);
    let atm = of(&[bytes("overhead", 20), word("link-layer", "atm")]);
    assert_eq!(last(&atm, 300), 10_000 * 371 * 8_000_000_000 / 7_777_777);
    let short = of(&[bytes("overhead", 38), bytes("mpu", 84)]);
    assert_eq!(last(&short, 40), 10_000 * 84 * 8_000_000_000 / 7_777_777);
}

#[test]
fn a_pause_saves_nothing_up() {
    // 1000 bytes take 1 ms.
    let mut cake = cake(&[rate(8_000_000)], Hosts::default());
    let at = |millis| Time::ZERO + Span::from_millis(millis);
    for millis in [0, 500] {
        for _ in 0..3 {
            put(&mut cake, at(millis), Load::new(0, 1000, 0));
        }
        for later in 0..3 {
            assert_eq!(take(&mut cake, at(millis)).map(|(left, _)| left), Some(at(millis + later)));
        }
        assert_eq!(cake.next_ready(at(millis)), None);
    }
}

#[test]
fn without_a_rate_packets_leave_at_once() {
    let mut cake = cake(&[], Hosts::default());
    for _ in 0..100 {
        put(&mut cake, Time::ZERO, Load::new(0, 1000, 0));
    }
    for _ in 0..100 {
        assert_eq!(take(&mut cake, Time::ZERO).map(|(left, _)| left), Some(Time::ZERO));
    }
    assert_eq!(cake.next_ready(Time::ZERO), None);
}

// ------------------------------------------------------------------------------------------------------------ fairness

/// Host 1 has one flow, host 2 eight, to or from as many others.
fn one_and_eight(isolation: &str, reverse: bool, set: &[(&'static str, Value)]) -> f64 {
    let ends = |flow: u32| (NodeId(if flow == 0 { 1 } else { 2 }), NodeId(10 + flow));
    let hosts = Hosts::new((0..9).map(ends));
    let mut all = vec![word("isolation", isolation), word("diffserv", "besteffort")];
    all.extend_from_slice(set);
    let mut cake = cake(&all, hosts);
    // The lone flow has short packets.
    let loads: Vec<Load> = (0..9)
        .map(|flow| Load { reverse, ..Load::new(flow, if flow == 0 { 700 } else { 1514 }, 0) })
        .collect();
    let served = served(&mut cake, &loads, 20_000);
    jain(&[served[0], served[1..].iter().sum()])
}

#[test]
fn hosts_share_equally_whatever_their_number_of_flows() {
    for isolation in ["triple-isolate", "dual-srchost"] {
        let index = one_and_eight(isolation, false, &[]);
        assert!(index > 0.999, "{isolation}: {index}");
    }
    for isolation in ["triple-isolate", "dual-dsthost"] {
        let index = one_and_eight(isolation, true, &[rate(5_000_000)]);
        assert!(index > 0.99, "{isolation}: {index}");
    }
    // By flow, and by the hosts of the other side, of which each has one: 81 / (2 x 65) = 0.623.
    for (isolation, reverse) in [("flows", false), ("dual-dsthost", false), ("dual-srchost", true)] {
        let index = one_and_eight(isolation, reverse, &[]);
        assert!((index - 0.623).abs() < 0.01, "{isolation}: {index}");
    }
}

#[test]
fn the_flows_of_a_host_share_its_part_equally() {
    let hosts = Hosts::new((0..9).map(|flow| (NodeId(u32::from(flow > 0)), NodeId(9))));
    let mut cake = cake(&[word("isolation", "dual-srchost")], hosts);
    let loads: Vec<Load> = (0..9).map(|flow| Load::new(flow, 400 + 100 * flow, 0)).collect();
    let served = served(&mut cake, &loads, 20_000);
    assert!(jain(&served[1..]) > 0.999, "{served:?}");
}

/// Where nothing is known of hosts, flows are all there is.
#[test]
fn unknown_hosts_are_no_hosts() {
    let mut cake = cake(&[], Hosts::default());
    let loads: Vec<Load> = (0..5).map(|flow| Load::new(flow, 1000, 0)).collect();
    let served = served(&mut cake, &loads, 5_000);
    assert!(jain(&served) > 0.999, "{served:?}");
}

/// 100 bytes every 20 ms among four flows that always have 30 packets waiting, at 20 Mbit/s: each waits for the packet that
/// the shaper has just let go, 0.606 ms, where its own queue behind theirs would be 73 ms.
#[test]
fn a_sparse_flow_waits_for_no_more_than_one_packet() {
    let mut cake = cake(&[rate(20_000_000), word("diffserv", "besteffort")], Hosts::default());
    let mut now = Time::ZERO;
    for flow in 1..5 {
        for _ in 0..30 {
            put(&mut cake, now, Load::new(flow, 1514, 0));
        }
    }
    let (mut sent, mut waits) = (Time::ZERO + Span::from_micros(20_100), Vec::new());
    while now < Time::ZERO + Span::from_secs(5) {
        let ready = cake.next_ready(now).expect("packets wait");
        if sent <= ready && sent >= now {
            put(&mut cake, sent, Load::new(0, 100, 0));
            now = sent;
        }
        let (left, pkt) = take(&mut cake, now).expect("packets wait");
        now = left;
        if pkt.flow.0 == 0 {
            waits.push(left.since(sent));
            sent += Span::from_millis(20);
        } else {
            put(&mut cake, now, Load::new(pkt.flow.0, 1514, 0));
        }
    }
    assert!(waits.len() >= 248, "{}", waits.len());
    assert!(waits.iter().all(|wait| *wait <= Span::from_micros(606)), "{waits:?}");
}

// ------------------------------------------------------------------------------------------------------------- queues

/// `N` flows with the same hash.
fn alike<const N: usize>(cake: &Cake) -> [u32; N] {
    let name = |flow: u32| named(tag(&Load::new(flow, 0, 0).pkt()), cake.perturbation);
    let found: Vec<u32> = (0..).filter(|flow| name(*flow) == name(0)).take(N).collect();
    found.try_into().expect("as many")
}

/// Queues of the tin that have packets.
fn busy(cake: &Cake) -> usize {
    cake.tins[0].slots.iter().filter(|slot| !slot.chain.is_empty()).count()
}

/// Queues a packet of `flow` at the start; returns in which queue, and how many are busy then.
fn place(cake: &mut Cake, flow: u32) -> (usize, usize) {
    let pkt = Load::new(flow, 100, 0).pkt();
    let at = cake.tins[0].push(Time::ZERO, pkt, None, cake.perturbation, &mut cake.store);
    (at, busy(cake))
}

#[test]
fn eight_flows_with_one_hash_have_queues_of_their_own_and_the_ninth_shares() {
    let mut cake = cake(&[word("diffserv", "besteffort")], Hosts::default());
    let flows: [u32; 10] = alike(&cake);
    for (many, flow) in (1..).zip(&flows[..8]) {
        for _ in 0..2 {
            put(&mut cake, Time::ZERO, Load::new(*flow, 1514, 0));
        }
        assert_eq!(busy(&cake), many);
    }
    // The first of the eight has the queue that the hash names.
    let name = named(tag(&Load::new(flows[0], 0, 0).pkt()), cake.perturbation);
    for _ in 0..20 {
        assert_eq!(place(&mut cake, flows[8]), (name, 8));
    }
    // Two rounds of a packet each. A turn of the ninth flow is 16 packets; the other queues are found empty after it.
    let later = |secs| Time::ZERO + Span::from_secs(secs);
    let order: Vec<u32> =
        (0..33).filter_map(|_| take(&mut cake, later(10))).map(|(_, pkt)| pkt.flow.0).collect();
    let twice = [&flows[..8], &flows[..8]].concat();
    assert_eq!((&order[..16], &order[16..]), (&twice[..], &[flows[8]; 17][..]));
    // Its next packets stay behind those that wait, though nobody uses the other queues.
    assert_eq!(busy(&cake), 1);
    put(&mut cake, later(20), Load::new(flows[8], 100, 0));
    assert_eq!(busy(&cake), 1);
    while take(&mut cake, later(20)).is_some() {}
    // Empty queues that have forgotten their flows are anybody's.
    put(&mut cake, later(30), Load::new(flows[9], 100, 0));
    put(&mut cake, later(30), Load::new(flows[8], 100, 0));
    assert_eq!(busy(&cake), 2);
}

#[test]
fn directions_of_a_flow_are_two_flows_and_ports_hash_differently() {
    let one = cake(&[], Hosts::default());
    let pkt = Load::new(5, 100, 0).pkt();
    assert_ne!(tag(&pkt), tag(&Pkt { reverse: true, ..pkt }));
    let site = Site::new(Rate::ZERO, Stream::new(1, 0, "other"));
    let other = Cake::new(&params(&[]), site);
    assert_ne!(one.perturbation, other.perturbation);
}

#[test]
fn a_full_memory_takes_first_packets_from_the_longest_queue() {
    let mut cake = cake(&[("limit", Value::Limit(Limit::Packets(10)))], Hosts::default());
    let at = |millis| Time::ZERO + Span::from_millis(millis);
    for (flow, packets, len) in [(1, 6, 1000), (2, 4, 1400)] {
        for _ in 0..packets {
            assert_eq!(put(&mut cake, at(0), Load::new(flow, len, 0)), (Verdict::Accept, vec![]));
        }
    }
    // 6000 bytes and 5600; then 5000 and 5600, also from another tin.
    assert_eq!(put(&mut cake, at(1), Load::new(3, 500, 0)), (Verdict::Accept, vec![1]));
    assert_eq!(put(&mut cake, at(1), Load::new(4, 500, 46)), (Verdict::Accept, vec![2]));
    assert_eq!(cake.backlog(), Backlog { packets: 10, bytes: 5_000 + 4_200 + 1_000 });
    // Whoever arrives at the longest queue drops its first packet, itself when it is alone.
    assert_eq!(put(&mut cake, at(1), Load::new(1, 1000, 0)), (Verdict::Accept, vec![1]));
    let mut none = self::cake(&[("limit", Value::Limit(Limit::Packets(0)))], Hosts::default());
    assert_eq!(put(&mut none, at(1), Load::new(1, 1000, 0)), (Verdict::Drop, vec![]));
    assert_eq!(none.next_ready(at(1)), None);
    let mut short = self::cake(&[("limit", Value::Limit(Limit::Bytes(Bytes::new(1_500))))], Hosts::default());
    assert_eq!(put(&mut short, at(1), Load::new(1, 900, 0)), (Verdict::Accept, vec![]));
    assert_eq!(put(&mut short, at(1), Load::new(2, 1000, 0)), (Verdict::Drop, vec![]));
    assert_eq!(put(&mut short, at(1), Load::new(2, 1501, 0)), (Verdict::Drop, vec![]));
    assert_eq!(put(&mut short, at(1), Load::new(2, 700, 0)), (Verdict::Accept, vec![1]));
}

/// A source that sends twice what can leave, and heeds nothing. CoDel alone needs the memory's end to stop it; BLUE rises
/// with each overflow until the queue stays below.
#[test]
fn blue_keeps_an_unresponsive_flow_from_the_end_of_memory() {
    let mut cake = cake(&[rate(8_000_000), ("limit", Value::Limit(Limit::Packets(100)))], Hosts::default());
    let mut overflows = [0; 2];
    for millis in 0..20_000 {
        let now = Time::ZERO + Span::from_millis(millis);
        let late = usize::from(millis >= 15_000);
        for _ in 0..2 {
            let mut dropped = Vec::new();
            let verdict = cake.enqueue(now, Load::new(1, 1000, 0).pkt(), &mut dropped);
            overflows[late] += dropped.len() + usize::from(verdict == Verdict::Drop);
        }
        cake.dequeue(now, &mut Vec::new());
    }
    // Without BLUE one packet a millisecond overflows.
    assert!(overflows[0] > 100, "{overflows:?}");
    assert!(overflows[1] < 500, "{overflows:?}");
}

#[test]
fn the_last_packet_of_a_queue_is_never_dropped() {
    let mut cake = cake(&[], Hosts::default());
    let pkt = Pkt { ect: false, ..Load::new(1, 1000, 0).pkt() };
    let at = |millis| Time::ZERO + Span::from_millis(millis);
    for _ in 0..6 {
        cake.enqueue(at(0), pkt, &mut Vec::new());
    }
    // Above the target at 1000 ms; a drop is due at 1100.
    let mut dropped = Vec::new();
    assert!(cake.dequeue(at(1000), &mut dropped).is_some());
    assert_eq!(dropped.len(), 0);
    assert!(cake.dequeue(at(1100), &mut dropped).is_some());
    assert_eq!(dropped.len(), 1);
    // Long after, drops are due for all three that are left.
    assert!(cake.dequeue(at(5000), &mut dropped).is_some());
    assert_eq!((dropped.len(), cake.backlog()), (3, Backlog::default()));
}

// --------------------------------------------------------------------------------------------------------------- tins

#[test]
fn code_points_have_their_tins() {
    let tins = |diffserv: Diffserv, names: &str| -> Vec<u8> {
        let points = names.split(' ').map(|name| super::super::dscp::code_point(name).expect(name));
        points.map(|dscp| diffserv.tin(usize::from(dscp))).collect()
    };
    let names = "cs1 le 0 af11 cs2 af21 af33 cs3 af41 4 cs4 cs5 va ef cs6 cs7 63";
    assert_eq!(tins(Diffserv::Four, names), [1, 1, 0, 0, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 0]);
    assert_eq!(tins(Diffserv::Three, names), [1, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 2, 2, 2, 2, 0]);
    assert_eq!(tins(Diffserv::One, names), [0; 17]);
}

/// Shares of loads with these code points that always wait, of 1000 bytes each.
fn shares(diffserv: &str, set: &[(&'static str, Value)], dscps: &[u8]) -> Vec<f64> {
    let mut all = vec![word("diffserv", diffserv)];
    all.extend_from_slice(set);
    let loads: Vec<Load> = (0..).zip(dscps).map(|(flow, dscp)| Load::new(flow, 1000, *dscp)).collect();
    let served = served(&mut cake(&all, Hosts::default()), &loads, 16_000);
    let total: f64 = served.iter().sum();
    served.iter().map(|own| own / total).collect()
}

fn close(found: &[f64], wanted: &[f64]) {
    let is_close = found.iter().zip(wanted).all(|(found, wanted)| (found - wanted).abs() < 0.005);
    assert!(found.len() == wanted.len() && is_close, "{found:?} are not {wanted:?}");
}

#[test]
fn tins_have_their_thresholds_and_borrow_the_rest() {
    let (best, bulk, video, voice) = (0, 8, 34, 46);
    let shaped = [rate(8_000_000)];
    // Within its threshold a tin comes before best effort, which has what the others leave.
    close(&shares("diffserv3", &shaped, &[best, voice]), &[0.75, 0.25]);
    close(&shares("diffserv3", &shaped, &[best, bulk, voice]), &[0.6875, 0.0625, 0.25]);
    close(&shares("diffserv4", &shaped, &[best, bulk, video, voice]), &[0.1875, 0.0625, 0.5, 0.25]);
    // Alone, or beside a tin that leaves something, it has more than its threshold.
    close(&shares("diffserv3", &shaped, &[voice]), &[1.0]);
    let [bulk_share, voice_share] = shares("diffserv3", &shaped, &[bulk, voice])[..] else { panic!("two") };
    assert!(bulk_share >= 0.0625 && voice_share >= 0.25 && (bulk_share + voice_share - 1.0).abs() < 1e-9);
    // Without tins all are alike.
    close(&shares("besteffort", &shaped, &[best, voice]), &[0.5, 0.5]);
}

#[test]
fn without_a_shaper_tins_share_by_weight() {
    // 1024, 64 and 256 bytes a turn; then 1024, 64, 512 and 256.
    close(&shares("diffserv3", &[], &[0, 8, 46]), &[0.762, 0.048, 0.190]);
    close(&shares("diffserv4", &[], &[0, 8, 34, 46]), &[0.552, 0.034, 0.276, 0.138]);
}

/// 1 Mbit/s of voice below a threshold of 2 beside best effort that always waits: it goes first.
#[test]
fn voice_below_its_threshold_waits_for_one_packet_at_most() {
    let mut cake = cake(&[rate(8_000_000)], Hosts::default());
    let (mut now, mut sent) = (Time::ZERO, Time::ZERO + Span::from_micros(10_500));
    for _ in 0..30 {
        put(&mut cake, now, Load::new(0, 1000, 0));
    }
    let mut waits = Vec::new();
    while waits.len() < 200 {
        let ready = cake.next_ready(now).expect("packets wait");
        if sent <= ready && sent >= now {
            put(&mut cake, sent, Load::new(1, 1000, 46));
            now = sent;
        }
        let (left, pkt) = take(&mut cake, now).expect("packets wait");
        now = left;
        if pkt.flow.0 == 1 {
            waits.push(left.since(sent));
            sent += Span::from_millis(8);
        } else {
            put(&mut cake, now, Load::new(0, 1000, 0));
        }
    }
    // The shaper has let a packet of 1 ms go half of it before.
    assert!(waits.iter().all(|wait| *wait == Span::from_micros(500)), "{waits:?}");
}

// --------------------------------------------------------------------------------------------------------- parameters

#[test]
fn memory_follows_from_rate_and_round_trip() {
    let limit = |set: &[(&'static str, Value)]| cake(set, Hosts::default()).limit;
    // tc-cake(8) has 100 Mbit/s and 100 ms with 5,000,000 bytes.
    assert_eq!(limit(&[rate(100_000_000)]), Limit::Bytes(Bytes::new(5_000_000)));
    assert_eq!(limit(&[rate(1_000_000)]), Limit::Bytes(Bytes::new(4_194_304)));
    assert_eq!(limit(&[]), Limit::Bytes(Bytes::new(10_240 * 1514)));
    let stated = ("limit", Value::Limit(Limit::Packets(7)));
    assert_eq!(limit(&[rate(1_000_000), stated]), Limit::Packets(7));
}

#[test]
fn parameters_out_of_range_are_refused() {
    let why = |key, value| check(&params(&[(key, value)])).unwrap_err();
    assert_eq!(why("rate", Value::Rate(Rate::ZERO)), ("rate", "\"0gbit\" lets nothing leave".to_owned()));
    assert_eq!(why("rtt", Value::Span(Span::ZERO)).0, "rtt");
    assert_eq!(why("rtt", Value::Span(Span::from_secs(3_601))).0, "rtt");
    let message = "\"257B\" is more than 256B".to_owned();
    assert_eq!(why("overhead", Value::Bytes(Bytes::new(257))), ("overhead", message.clone()));
    assert_eq!(why("mpu", Value::Bytes(Bytes::new(257))), ("mpu", message));
}

/// A link that fails takes every packet at once, whatever the shaper allows, and the queue goes on afterwards.
#[test]
fn a_purge_takes_what_the_shaper_would_hold() {
    let mut cake = cake(&[rate(1_000_000)], Hosts::default());
    for load in [Load::new(0, 1500, 0), Load::new(1, 1500, 0), Load::new(2, 100, 46)] {
        for _ in 0..3 {
            assert_eq!(put(&mut cake, Time::ZERO, load), (Verdict::Accept, vec![]));
        }
    }
    let mut purged = Vec::new();
    cake.purge(Time::ZERO, &mut purged);
    assert_eq!((purged.len(), cake.backlog()), (9, Backlog::default()));
    assert_eq!(cake.next_ready(Time::ZERO), None);
    let later = Time::ZERO + Span::from_millis(100);
    assert_eq!(put(&mut cake, later, Load::new(1, 1500, 0)), (Verdict::Accept, vec![]));
    assert_eq!(take(&mut cake, later).map(|(_, pkt)| pkt.flow), Some(FlowId(1)));
}
