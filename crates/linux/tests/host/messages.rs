//! What agents and controllers make of messages that are lost, late, overtaken and repeated.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bandmaster_core::control::FlowKey;
use bandmaster_core::id::{FlowId, PortId};
use bandmaster_core::rng::Stream;
use bandmaster_core::scheme::opentcp::wire::{self, Body, Cue};
use bandmaster_core::time::Span;
use bandmaster_core::units::{Bytes, Rate};
use bandmaster_linux::kernel::tcp::tick;
use serde::{Deserialize, Serialize};

use super::controller::{DOMAIN, Network};
use super::hosts::{B, Hosts, Load};
use super::relay::{LATEST, Passed, RELAY, Relay, To};

/// How late a process may act on a message. The effects that tests look for last longer: a lease, or a delay.
const SLACK: Duration = Duration::from_millis(200);
/// How long a controller that begins is left alone: it may remember messages that the model does not know of.
const BEGINS: Duration = Duration::from_millis(1500);
/// Of the Oracle: three cycles.
const CYCLE: Duration = Duration::from_millis(200);
pub(super) const LEASE: Duration = Duration::from_millis(600);
/// Of BAS.
const BAS_LEASE: Duration = Duration::from_secs(1);
const MEASUREMENT: Duration = Duration::from_millis(100);
/// Of a controller, until it is killed.
const LIFE: Duration = Duration::from_secs(6);
/// The link that [`DOMAIN`] shares out.
const SHARED: u64 = 16_000_000;

/// From the environment variable, or of the clock; printed.
pub(super) fn seed(variable: &str) -> u64 {
    let clock = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |now| now.as_nanos() as u64);
    let seed = std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or_else(clock);
    println!("{variable}={seed}");
    seed
}

/// The agent speaks to the relay instead of the controller.
pub(super) fn through_relay(network: &Network, seed: Option<u64>) -> Relay {
    let file = network.site.file();
    let text = fs::read_to_string(&file).expect("read");
    fs::write(&file, text.replace(&format!("\"{B}\""), &format!("\"{RELAY}\""))).expect("written");
    Relay::start(&network.site.hosts, seed)
}

/// What the receiver takes of what has come to it: nothing that something newer has overtaken.
fn taken(passed: &[Passed], to: To) -> Vec<&Passed> {
    let mut newest = 0;
    let is_newer = |one: &&Passed| {
        let is_newer = one.number() > newest;
        newest = newest.max(one.number());
        is_newer
    };
    passed.iter().filter(|one| one.to == to && one.has_left).filter(is_newer).collect()
}

/// The relay did what it is for, in each direction.
fn assert_disturbed(passed: &[Passed]) {
    for to in [To::Agent, To::Controller] {
        let count = |has_left| passed.iter().filter(|one| one.to == to && one.has_left == has_left).count();
        let overtaken = count(true) - taken(passed, to).len();
        println!(
            "to {to:?}: {} came, {} left, {overtaken} of them overtaken or twice",
            count(false),
            count(true)
        );
        assert!(overtaken > 3, "to {to:?}");
    }
}

/// Initial window and least timeout of connections that begin.
type Seen = (u32, Span);

/// Of the host itself.
fn own() -> Seen {
    (10, Span::from_millis(200))
}

/// Of the policy's rule for so many live flows; none fires for more than two.
fn of_rule(live: u32) -> Option<Seen> {
    let least = Span::from_nanos(u64::from(live + 2) * tick().as_nanos());
    (live < 3).then_some((20 + 5 * live, least))
}

fn policy() -> String {
    let head = format!(
        "version = 1\nname = \"turns\"\ngoal = \"to turn\"\ncycle = \"{}ms\"\nstatistics = [\"flows.live\"]\n\
         otherwise = \"release\"\n",
        CYCLE.as_millis()
    );
    let rule = |live| {
        let (window, least) = of_rule(live).expect("a rule");
        format!(
            "[[rules]]\nname = \"of-{live}\"\nwhen = \"sum(flows.live) == {live}\"\n[rules.set]\n\
             initial-window = {window}\nmin-rto = \"{}ns\"\n",
            least.as_nanos()
        )
    };
    head + &(0..3).map(rule).collect::<String>()
}

/// What a connection had that began between two moments.
struct Sample {
    begin: Instant,
    end: Instant,
    seen: Seen,
}

fn sample(network: &Network, peers: &TcpListener) -> Sample {
    let begin = Instant::now();
    let (here, _there) = (network.site.hosts.connect(), peers.accept().expect("accepted"));
    let end = Instant::now();
    let port = here.local_addr().expect("bound").port();
    let all = network.site.look();
    let one = all.iter().find(|connection| connection.local.1 == port).expect("there");
    Sample { begin, end, seen: (one.cwnd, one.least_timeout) }
}

/// Live connections.
pub(super) fn connections(hosts: &Hosts, peers: &TcpListener, count: u64) -> Vec<(TcpStream, TcpStream)> {
    let connect = |_| {
        let (mut here, (there, _)) = (hosts.connect(), peers.accept().expect("accepted"));
        here.write_all(&[0; 3000]).expect("sent");
        (here, there)
    };
    (0..count).map(connect).collect()
}

/// What is in force by the CUEs that have come: each for its lease, the newest only.
fn in_force(cues: &[(Instant, Cue)], at: Instant) -> Seen {
    let newest = cues.iter().rev().find(|(came, _)| *came <= at);
    let newest = newest.filter(|(came, cue)| at < *came + Duration::from_nanos(cue.lease().as_nanos()));
    newest.map_or(own(), |(_, cue)| {
        let tuning = &cue.tuning;
        (tuning.initial_window.expect("of the policy"), tuning.min_rto.expect("of the policy"))
    })
}

/// Some of this time, between which nothing changes.
fn moments(changes: &[Instant], from: Instant, to: Instant) -> Vec<Instant> {
    let inside = changes.iter().copied().filter(|at| (from..=to).contains(at));
    [from].into_iter().chain(inside).collect()
}

/// A fifth of the messages are lost, three tenths are up to a second late, which is longer than a lease, a tenth come twice.
/// The policy turns with the connections, and controllers are killed. A connection that begins has the settings of the newest CUE
/// that arrived, or the host's own; every CUE follows from the newest report. A second and a lease after a kill everything is as
/// before.
#[test]
fn of_messages_lost_late_and_overtaken_the_newest_is_in_force() {
    let Some(network) =
        Network::oracle("of_messages_lost_late_and_overtaken_the_newest_is_in_force", "200ms")
    else {
        return;
    };
    let seed = seed("BANDMASTER_MESSAGES_SEED");
    let mut chance = Stream::new(seed, 0, "connections");
    fs::write(network.site.folder.join("policy.toml"), policy()).expect("written");
    let relay = through_relay(&network, Some(seed));
    let settings = network.site.settings();
    let agent = network.site.start();
    let peers = Hosts::listen(&network.site.hosts.b);
    let (mut samples, mut lives) = (Vec::new(), Vec::new());
    for _ in 0..4 {
        let process = network.start();
        let up = Instant::now();
        let (mut live, mut turn) = (Vec::new(), up);
        while up.elapsed() < LIFE {
            if turn <= Instant::now() {
                live = connections(&network.site.hosts, &peers, chance.below(5));
                turn = Instant::now() + Duration::from_millis(300 + chance.below(1200));
            }
            samples.push(sample(&network, &peers));
            thread::sleep(Duration::from_millis(20));
        }
        drop(live);
        process.kill();
        lives.push((up, Instant::now()));
        let end = Instant::now() + LATEST + LEASE + SLACK;
        while Instant::now() < end {
            samples.push(sample(&network, &peers));
            thread::sleep(Duration::from_millis(20));
        }
        assert!(!network.in_force(), "{}", network.site.log());
        let pair = network.site.hosts.connection_by(&peers);
        network.site.assert_own("killed");
        network.site.assert_settings(&settings, "killed");
        drop(pair);
    }
    let passed = relay.passed();
    assert_disturbed(&passed);

    // The host.
    let cue = |one: &&Passed| match wire::read(&one.message()) {
        Some(Body::Cue(cue)) => (one.at, cue),
        other => panic!("{other:?} to an agent"),
    };
    let cues: Vec<(Instant, Cue)> = taken(&passed, To::Agent).iter().map(cue).collect();
    let ends = cues.iter().map(|(at, cue)| *at + Duration::from_nanos(cue.lease().as_nanos()));
    let mut changes: Vec<Instant> = cues.iter().map(|(at, _)| *at).chain(ends).collect();
    changes.sort_unstable();
    let mut wrong = Vec::new();
    for Sample { begin, end, seen } in &samples {
        let may: BTreeSet<Seen> = moments(&changes, *begin - SLACK, *end + SLACK)
            .into_iter()
            .map(|at| in_force(&cues, at))
            .collect();
        // One that begins while settings change may have some old and some new ones.
        let is_right =
            may.iter().any(|(window, _)| *window == seen.0) && may.iter().any(|(_, least)| *least == seen.1);
        if !is_right {
            wrong.push(format!("at {:?}: {seen:?}, not of {may:?}", *begin - samples[0].begin));
        }
    }
    let turns = samples.windows(2).filter(|two| two[0].seen != two[1].seen).count();
    let kinds: BTreeSet<Seen> = samples.iter().map(|sample| sample.seen).collect();
    println!(
        "{} connections with {} settings, which changed {turns} times; {} wrong",
        samples.len(),
        kinds.len(),
        wrong.len()
    );
    assert!(wrong.is_empty(), "{wrong:#?}\n{}", network.site.log());
    assert!(turns > 10 && kinds.len() >= 4, "{kinds:?}");

    // The Oracle.
    let report = |one: &&Passed| match wire::read(&one.message()) {
        Some(Body::Host(report)) => (one.at, report.live),
        other => panic!("{other:?} to a controller"),
    };
    let mut checked = 0;
    for (up, killed) in lives {
        let of_life = |one: &&Passed| (up..killed).contains(&one.at);
        let heard: Vec<Passed> = passed.iter().filter(of_life).cloned().collect();
        let reports: Vec<(Instant, u32)> = taken(&heard, To::Controller).iter().map(report).collect();
        let changes: Vec<Instant> = reports.iter().flat_map(|(at, _)| [*at, *at + 2 * CYCLE]).collect();
        for one in heard.iter().filter(|one| one.to == To::Agent && !one.has_left && one.at > up + BEGINS) {
            let (_, said) = cue(&one);
            let newest = |at: Instant| {
                let newest = reports.iter().rev().find(|(came, _)| *came <= at)?;
                // One that is older than two cycles counts for nothing.
                (at - newest.0 < 2 * CYCLE).then(|| of_rule(newest.1))?
            };
            let may: Vec<Option<Seen>> =
                moments(&changes, one.at - SLACK, one.at).into_iter().map(newest).collect();
            let says = said.tuning.initial_window.zip(said.tuning.min_rto).filter(|_| said.lease > 0);
            assert!(may.contains(&says), "{says:?}, not of {may:?}");
            checked += 1;
        }
    }
    println!("{checked} CUEs are what the newest report makes of them");
    assert!(checked > 20);
    assert!(agent.stop().success(), "{}", network.site.log());
}

/// What the roles of BAS tell each other, as `bas::Word`.
#[derive(Serialize, Deserialize, Debug)]
pub(super) enum Word {
    Links(Vec<(PortId, u32, Bytes, Bytes)>),
    Flows(Vec<Measured>),
    Started(FlowId, Way),
    Ended(FlowId),
    Shares(Vec<Share>),
}

#[derive(Serialize, Deserialize, Debug)]
pub(super) struct Measured {
    pub(super) flow: FlowId,
    pub(super) throughput: Option<Rate>,
    pub(super) queueing: Span,
    pub(super) frame: Bytes,
    pub(super) way: Option<Way>,
}

#[derive(Serialize, Deserialize, Debug)]
pub(super) struct Way {
    pub(super) key: FlowKey,
    pub(super) ports: Vec<PortId>,
}

#[derive(Serialize, Deserialize, Debug)]
pub(super) struct Share {
    pub(super) flow: FlowId,
    pub(super) rate: Rate,
    pub(super) paced: bool,
    pub(super) queueing: Span,
}

pub(super) fn word(one: &Passed) -> Word {
    one.message().read().expect("a word of BAS")
}

/// The pace of a share, in payload bytes a second.
pub(super) fn pace(share: &Share) -> u64 {
    // Segments of 1448 bytes with a header of 32 in IPv4 and Ethernet.
    let payload = share.rate.bits_per_sec() as f64 * 1448.0 / f64::from(1448 + 32 + 20 + 14);
    (payload / 8.0) as u64
}

/// By flow: paces that it may have from a moment on.
type Paces = BTreeMap<FlowId, Vec<(Instant, Vec<Option<u64>>)>>;

/// What was in force at `from`, and what came until `to`, of changes in their order.
fn in_time<T>(changes: &[(Instant, T)], from: Instant, to: Instant) -> &[(Instant, T)] {
    let first = changes.iter().rposition(|(at, _)| *at <= from).unwrap_or(0);
    &changes[first..changes.partition_point(|(at, _)| *at <= to).max(first)]
}

/// By port of a sender: the flows that its host has reported, and when. The message that one begins may be lost before it reaches
/// the relay, in a queue that flows without shares fill; reports repeat it until there is an answer.
fn told(passed: &[Passed]) -> BTreeMap<u16, Vec<(Instant, FlowId)>> {
    let mut told = BTreeMap::<u16, Vec<_>>::new();
    for one in passed.iter().filter(|one| one.to == To::Controller && !one.has_left) {
        let begun = match word(one) {
            Word::Started(flow, way) => vec![(flow, way)],
            Word::Flows(flows) => flows.into_iter().filter_map(|one| Some((one.flow, one.way?))).collect(),
            _ => Vec::new(),
        };
        for (flow, way) in begun {
            told.entry(way.key.from.1).or_default().push((one.at, flow));
        }
    }
    told
}

/// Each flow has its newest share, and none once the allocator has not been heard for a lease.
fn paces(passed: &[Passed], end: Instant) -> Paces {
    let mut paces = Paces::new();
    let mut heard: Option<Instant> = None;
    let mut silence = |paces: &mut Paces, until: Instant| {
        let Some(last) = heard.replace(until) else { return };
        let may_end = last + BAS_LEASE - SLACK;
        let has_ended = last + BAS_LEASE + MEASUREMENT + SLACK;
        for of_flow in paces.values_mut() {
            if until > may_end {
                let now = of_flow.last().and_then(|(_, paces)| paces[0]);
                of_flow.push((may_end, vec![now, None]));
            }
            if until > has_ended {
                of_flow.push((has_ended, vec![None]));
            }
        }
    };
    for one in taken(passed, To::Agent) {
        let Word::Shares(shares) = word(one) else { panic!("not of an allocator") };
        silence(&mut paces, one.at);
        for share in shares {
            paces.entry(share.flow).or_default().push((one.at, vec![Some(pace(&share))]));
        }
    }
    silence(&mut paces, end);
    paces
}

impl Hosts {
    /// A connection from `a` to a listener of `b`.
    pub(super) fn connection_by(&self, peers: &TcpListener) -> (TcpStream, TcpStream) {
        (self.connect(), peers.accept().expect("accepted").0)
    }
}

/// The same of BAS: a connection's pace is that of the newest share that arrived for it, or none after a lease without any.
/// No message gives a share to a flow that has ended by the newest report.
#[test]
fn of_shares_lost_late_and_overtaken_the_newest_is_in_force() {
    let test = "of_shares_lost_late_and_overtaken_the_newest_is_in_force";
    let Some(network) = Network::allocator(test, DOMAIN) else { return };
    let seed = seed("BANDMASTER_MESSAGES_SEED");
    let mut chance = Stream::new(seed, 0, "connections");
    let relay = through_relay(&network, Some(seed));
    let settings = network.site.settings();
    let agent = network.site.start();
    let peers = Hosts::listen(&network.site.hosts.b);
    let (mut samples, mut lives) = (Vec::new(), Vec::new());
    let look = |samples: &mut Vec<(Instant, Instant, u16, Option<u64>)>| {
        let begin = Instant::now();
        let all = network.site.look();
        let end = Instant::now();
        let sending = all.into_iter().filter(|one| one.carries && one.data_segments > 10);
        samples.extend(sending.map(|one| (begin, end, one.local.1, one.pacing_rate)));
        thread::sleep(Duration::from_millis(20));
    };
    for _ in 0..3 {
        let process = network.start();
        let up = Instant::now();
        let (mut loads, mut turn): (Vec<Load>, _) = (Vec::new(), up);
        while up.elapsed() < LIFE {
            if turn <= Instant::now() {
                let begin = |_| {
                    let (here, there) = network.site.hosts.connection_by(&peers);
                    Load::start(here, there)
                };
                // Some stay.
                let stay = chance.below(loads.len() as u64 + 1) as usize;
                loads.truncate(stay);
                loads.extend((0..chance.below(4)).map(begin));
                loads.truncate(5);
                turn = Instant::now() + Duration::from_millis(500 + chance.below(1500));
            }
            look(&mut samples);
        }
        process.kill();
        lives.push((up, Instant::now()));
        let end = Instant::now() + LATEST + BAS_LEASE + MEASUREMENT + SLACK;
        while Instant::now() < end {
            look(&mut samples);
        }
        let bounded = |all: &[bandmaster_linux::kernel::tcp::Connection]| {
            all.iter().filter(|one| one.pacing_rate.is_some() || one.window_cap < i32::MAX as u32).count()
        };
        assert_eq!(bounded(&network.site.look()), 0, "{:?}", network.site.look());
        network.site.assert_settings(&settings, "killed");
        drop(loads);
    }
    let passed = relay.passed();
    assert_disturbed(&passed);

    // The host.
    let told = told(&passed);
    let paces = paces(&passed, Instant::now());
    let (mut wrong, mut bound, mut values) = (Vec::new(), 0, BTreeSet::<u64>::new());
    for (begin, end, port, seen) in &samples {
        let (from, to) = (*begin - SLACK, *end + SLACK);
        let of_port: &[(Instant, FlowId)] = told.get(port).map_or(&[], Vec::as_slice);
        let may: Vec<Option<u64>> = in_time(of_port, from, to)
            .iter()
            .flat_map(|(_, flow)| {
                let of_flow: &[_] = paces.get(flow).map_or(&[], Vec::as_slice);
                let begins = of_flow.first().is_none_or(|(at, _)| *at > from);
                let later = in_time(of_flow, from, to).iter().flat_map(|(_, may)| may.clone());
                begins.then_some(None).into_iter().chain(later)
            })
            // Nobody bounds a flow that nobody has reported.
            .chain(of_port.first().is_none_or(|(at, _)| *at > from).then_some(None))
            .collect();
        let is_same = |one: &Option<u64>| match (one, seen) {
            (None, None) => true,
            (Some(one), Some(seen)) => one.abs_diff(*seen) <= one / 1000,
            _ => false,
        };
        bound += usize::from(seen.is_some());
        values.extend(seen);
        if !may.iter().any(is_same) {
            wrong.push(format!("at {:?}, port {port}: {seen:?}, not of {may:?}", *begin - samples[0].0));
        }
    }
    println!(
        "{} looks at connections, {bound} paced, by {} paces; {} wrong",
        samples.len(),
        values.len(),
        wrong.len()
    );
    assert!(wrong.is_empty(), "{wrong:#?}, told: {told:#?}, paces: {paces:#?}");
    assert!(bound > samples.len() / 3 && values.len() >= 3, "{values:?}");

    // The allocator.
    let mut checked = 0;
    for (up, killed) in lives {
        let of_life = |one: &&Passed| (up..killed).contains(&one.at);
        let heard: Vec<Passed> = passed.iter().filter(of_life).cloned().collect();
        let mut live: Vec<(Instant, BTreeSet<FlowId>)> = Vec::new();
        for one in taken(&heard, To::Controller) {
            let mut now = live.last().map_or(BTreeSet::new(), |(_, live)| live.clone());
            match word(one) {
                Word::Flows(flows) => now = flows.into_iter().map(|one| one.flow).collect(),
                Word::Started(flow, _) => drop(now.insert(flow)),
                Word::Ended(flow) => drop(now.remove(&flow)),
                other => panic!("{other:?} of a host"),
            }
            live.push((one.at, now));
        }
        for one in heard.iter().filter(|one| one.to == To::Agent && !one.has_left && one.at > up + BEGINS) {
            let Word::Shares(shares) = word(one) else { panic!("not of an allocator") };
            let first = live.iter().rposition(|(at, _)| *at <= one.at - SLACK).unwrap_or(0);
            let known = live[first..].iter().filter(|(at, _)| *at <= one.at);
            let known: BTreeSet<FlowId> = known.flat_map(|(_, live)| live.iter().copied()).collect();
            let ended: Vec<&Share> = shares.iter().filter(|share| !known.contains(&share.flow)).collect();
            assert!(ended.is_empty(), "{ended:?} have ended, {known:?} have not");
            // A flow that uses less than its share may be given more than the others leave, so that the sum tells nothing.
            let rates = || shares.iter().map(|share| share.rate.bits_per_sec());
            let largest = rates().max().unwrap_or(0);
            let least = SHARED / known.len() as u64 * 999 / 1000;
            assert!(
                shares.len() == 1 || (least..=SHARED).contains(&largest),
                "{shares:?}, {} flows",
                known.len()
            );
            checked += 1;
        }
    }
    println!("{checked} messages give shares of the link to flows that are there");
    assert!(checked > 50);
    assert!(agent.stop().success(), "{}", network.site.log());
    network.site.assert_settings(&settings, "stopped");
}
