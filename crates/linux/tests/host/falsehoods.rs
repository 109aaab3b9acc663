//! Sends falsehoods to agents and controllers that run: none changes anything.

use std::fs;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bandmaster_core::control::{FlowKey, Message, body};
use bandmaster_core::id::{FlowId, NodeId, PortId};
use bandmaster_core::rng::Stream;
use bandmaster_core::runtime::envelope::{Key, Line};
use bandmaster_core::scheme::opentcp::wire::{
    Body, Columns, Cue, HostReport, PortReport, SwitchReport, TrafficReport, TrafficRow,
};
use bandmaster_core::scheme::{bas, opentcp};
use bandmaster_core::time::Span;
use bandmaster_core::tuning::Tuning;
use bandmaster_core::units::{Bytes, Rate};
use bandmaster_linux::agent::Refused;
use bandmaster_linux::netns::Netns;

use super::agent::{NUMBER, SECRET};
use super::controller::{DOMAIN, Network, PORT};
use super::hosts::{A, B, Load};
use super::messages::{LEASE, Share, Way, Word, pace, through_relay, word};
use super::relay::{Passed, Relay, To};

/// The host that has a secret of its own, and says what is not a host's to say.
const TRAITOR: u32 = NUMBER + 1;
const TRAITORS_SECRET: &[u8] = b"of-the-traitor-and-its-controller";
/// Datagrams between two pauses, which leave the daemons time for them.
const BURST: usize = 16;
/// A report that comes so long after the last one is late: of one of half a second, two cycles later it is stale.
const LATE: Duration = Duration::from_millis(800);
/// Most bytes by which a process may grow while it receives falsehoods.
const GROWTH: u64 = 1 << 20;

/// Makes falsehoods of messages that have passed.
struct Liar {
    to: To,
    real: Vec<Vec<u8>>,
    reflected: Vec<Vec<u8>>,
    other_key: Line,
    other_sender: Line,
    old: Line,
    traitor: Line,
    words: Vec<Vec<u8>>,
    scheme: u16,
    chance: Stream,
}

impl Liar {
    /// `words` are what the traitor says.
    fn new(to: To, scheme: u16, passed: &[Passed], words: Vec<Vec<u8>>) -> Self {
        let of = |to| {
            passed.iter().filter(move |one| one.to == to && one.has_left).map(|one| one.datagram.clone())
        };
        let key = |secret| Key::new(secret).expect("long enough");
        let (from, receiver) = match to {
            To::Agent => (NodeId(0), NodeId(NUMBER)),
            To::Controller => (NodeId(NUMBER), NodeId(0)),
        };
        let other = if to == To::Agent { To::Controller } else { To::Agent };
        Self {
            to,
            real: of(to).collect(),
            reflected: of(other).collect(),
            other_key: Line::new(key(b"of nobody who is known here"), from, receiver, u32::MAX),
            other_sender: Line::new(key(SECRET), NodeId(99), receiver, u32::MAX),
            old: Line::new(key(SECRET), from, receiver, 101),
            traitor: Line::new(key(TRAITORS_SECRET), NodeId(TRAITOR), NodeId(0), 1),
            words,
            scheme,
            chance: Stream::new(1, 0, "falsehoods"),
        }
    }

    fn any<'a>(chance: &mut Stream, of: &'a [Vec<u8>]) -> &'a [u8] {
        &of[chance.below(of.len() as u64) as usize]
    }

    /// The next one, and whether it is the traitor's, whose envelope is right.
    fn next(&mut self, number: usize) -> (Vec<u8>, bool) {
        let Self { chance, .. } = self;
        let real = Self::any(chance, &self.real);
        let said = |body: &[u8]| Message { from: NodeId(0), scheme: self.scheme, body: body.to_vec() };
        let body = said(&real[15..real.len() - 12]);
        let bytes = match number % 10 {
            0 => real.to_vec(),
            1 => real[..number / 10 % real.len()].to_vec(),
            2 => {
                let mut bytes = real.to_vec();
                let bit = number / 10 % (8 * bytes.len());
                bytes[bit / 8] ^= 1 << (bit % 8);
                bytes
            }
            3 => Self::any(chance, &self.reflected).to_vec(),
            4 => self.other_key.seal(&body),
            5 => self.old.seal(&body),
            6 => self.other_sender.seal(&body),
            7 => [real, &[chance.below(256) as u8]].concat(),
            8 => (0..chance.below(100)).map(|_| chance.below(256) as u8).collect(),
            _ if self.to == To::Agent => self.old.seal(&said(&[])),
            _ => {
                let word = Self::any(chance, &self.words);
                let cut =
                    if chance.chance(0.5) { word.len() } else { chance.below(word.len() as u64) as usize };
                return (self.traitor.seal(&said(&word[..cut])), true);
            }
        };
        (bytes, false)
    }
}

/// Memory of a process in bytes.
pub(super) fn resident(process: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{process}/status")).expect("it runs");
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("its memory");
    line.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok()).expect("KiB") * 1024
}

/// Datagrams that the socket of the daemons had no room for, in a namespace.
fn without_room(node: &Netns) -> u64 {
    let read = || Ok(fs::read_to_string("/proc/thread-self/net/udp").expect("read"));
    let text = node.enter(read).expect("entered");
    let port = format!(":{PORT:04X}");
    let ours =
        text.lines().filter(|line| line.split_whitespace().nth(1).is_some_and(|own| own.ends_with(&port)));
    ours.filter_map(|line| line.split_whitespace().last()?.parse::<u64>().ok()).sum()
}

fn refused(counts: &Refused) -> u64 {
    counts.by_reason().iter().map(|(_, count)| count).sum()
}

/// Tells `count` falsehoods to agent and controller, half of them each; `steady` is what must not change.
fn storm(
    network: &Network,
    relay: &Relay,
    (agent, controller): (u32, u32),
    (scheme, words): (u16, Vec<Vec<u8>>),
    count: usize,
    steady: &dyn Fn() -> String,
) {
    let site = &network.site;
    let passed = relay.passed();
    let account = || {
        let outcome = |line: &String| line.split(';').next().map(str::to_owned);
        network.status().account.iter().filter_map(outcome).collect::<Vec<_>>()
    };
    let (before, decided, log) = (steady(), account(), site.log().len());
    let (heard, told) = (site.status(), network.status());
    // If the machine stands still, a report is late, and the controller misses it with or without a liar.
    let is_late = || {
        let reports: Vec<Instant> = relay
            .passed()
            .iter()
            .filter(|one| one.to == To::Controller && one.has_left)
            .map(|one| one.at)
            .collect();
        let gaps = reports.windows(2).rev().take(4).map(|two| two[1] - two[0]);
        gaps.chain(reports.last().map(Instant::elapsed)).any(|gap| gap > LATE)
    };
    let is_decided = || account() == decided || is_late();
    let drops = [without_room(&site.hosts.a), without_room(&site.hosts.b)];
    let memory = [agent, controller].map(resident);
    let sent = relay.passed().len();
    let begin = Instant::now();
    let traitors = thread::scope(|scope| {
        // Not over the bottleneck.
        let tell = |to, node: &Netns, address| {
            let socket = node.enter(|| Ok(UdpSocket::bind("0.0.0.0:0").expect("a port"))).expect("entered");
            let mut liar = Liar::new(to, scheme, &passed, words.clone());
            scope.spawn(move || {
                let mut traitors = 0;
                for number in 0..count / 2 {
                    let (bytes, is_traitor) = liar.next(number);
                    traitors += u64::from(is_traitor);
                    socket.send_to(&bytes, (address, PORT)).expect("sent");
                    if number % BURST == BURST - 1 {
                        thread::sleep(Duration::from_millis(1));
                    }
                }
                traitors
            })
        };
        let both = [tell(To::Agent, &site.hosts.r, A), tell(To::Controller, &site.hosts.b, B)];
        let mut looks = 0;
        while both.iter().any(|thread| !thread.is_finished()) {
            assert_eq!(steady(), before, "after {:?}", begin.elapsed());
            assert!(is_decided(), "after {:?}: {:?}", begin.elapsed(), account());
            looks += 1;
            thread::sleep(Duration::from_millis(100));
        }
        println!("{looks} looks in {:?}: {before}; {decided:?}", begin.elapsed());
        both.map(|thread| thread.join().expect("sent")).iter().sum::<u64>()
    });
    // It tells once a second.
    thread::sleep(Duration::from_secs(2));
    assert_eq!(steady(), before);
    assert!(is_decided(), "{:?}", account());
    let lost = [without_room(&site.hosts.a) - drops[0], without_room(&site.hosts.b) - drops[1]];
    let (now, then) = (site.status(), network.status());
    println!(
        "to the agent: {:?}; to the controller: {:?}, {traitors} of the traitor; without room {lost:?}",
        now.refused, then.refused
    );
    let half = count as u64 / 2;
    let [at_agent, at_controller] =
        [refused(&now.refused) - refused(&heard.refused), refused(&then.refused) - refused(&told.refused)];
    // All that the daemons got was refused, and nothing else was.
    assert!(at_agent <= half && at_agent >= half - lost[0], "{at_agent} of {half}");
    assert!(
        at_controller <= half - traitors && at_controller >= half - traitors - lost[1],
        "{at_controller} of {half}"
    );
    assert!(lost.iter().all(|lost| *lost < half / 5), "{lost:?}: too fast to tell");
    for refused in [now.refused, then.refused] {
        let kinds = [refused.length, refused.version, refused.tag, refused.sender, refused.replay];
        assert!(kinds.iter().all(|count| *count > 100), "{refused:?}");
    }
    // True messages were heard meanwhile, nearly all.
    let true_ones =
        |to| relay.passed()[sent..].iter().filter(|one| one.to == to && one.has_left).count() as u64;
    let (of_controller, of_agent) = (now.messages - heard.messages, then.messages - told.messages - traitors);
    println!(
        "heard: {of_controller} of {} CUEs or shares, {of_agent} of {} reports",
        true_ones(To::Agent),
        true_ones(To::Controller)
    );
    assert!(
        of_controller + 2 + lost[0] >= true_ones(To::Agent)
            && of_agent + 20 + lost[1] >= true_ones(To::Controller)
    );
    for (what, process, before) in [("agent", agent, memory[0]), ("controller", controller, memory[1])] {
        let now = resident(process);
        println!("{what}: {before} bytes, {now} afterwards");
        assert!(now < before + GROWTH, "{what}: {before} bytes, {now} afterwards");
    }
    let grown = site.log().len() - log;
    assert!(grown < 10_000, "{grown} bytes of log");
}

/// Whose envelope would have been right, in an earlier life of the controller: what a controller has not to say changes nothing.
fn speak_out_of_turn(network: &Network, scheme: u16, words: &[Vec<u8>]) {
    let site = &network.site;
    let mut line = Line::new(Key::new(SECRET).expect("long enough"), NodeId(0), NodeId(NUMBER), 100);
    let socket = site.hosts.r.enter(|| Ok(UdpSocket::bind("0.0.0.0:0").expect("a port"))).expect("entered");
    for word in words.iter().cycle().take(100) {
        let said = Message { from: NodeId(0), scheme, body: word.clone() };
        socket.send_to(&line.seal(&said), (A, PORT)).expect("sent");
    }
    site.until("they are heard", || site.status().messages == 100);
    let status = site.status();
    assert_eq!((status.in_force, status.changes, status.bounded), (None, 0, 0));
}

/// Adds the traitor to the hosts of the controller.
fn enrol_traitor(network: &Network) {
    let hosts = network.site.folder.join("hosts");
    let text = fs::read_to_string(&hosts).expect("read");
    let secret = std::str::from_utf8(TRAITORS_SECRET).expect("text");
    fs::write(&hosts, format!("{text}{TRAITOR} traitor {secret}\n")).expect("written");
}

/// Six hundred thousand datagrams and more that are replayed, cut off at each length, changed in each bit, of other roles, with wrong keys,
/// old numbers, other senders, and of a host with a right key that says what is not its to say.
#[test]
fn of_many_false_cues_and_reports_none_changes_anything() {
    let test = "of_many_false_cues_and_reports_none_changes_anything";
    let Some(network) = Network::oracle(test, "500ms") else { return };
    enrol_traitor(&network);
    let relay = through_relay(&network, None);
    let scheme = opentcp::DEF.code;
    let tuning = Tuning { initial_window: Some(99), ..Tuning::default() };
    let of_oracle =
        Body::Cue(Cue { epoch: 1, sequence: 1, lease: 60_000, tuning, preconditions: Vec::new() });
    let wrong =
        Body::Cue(Cue { epoch: u64::MAX, sequence: 1, lease: u32::MAX, tuning, preconditions: Vec::new() });
    let report = Body::Host(HostReport { sequence: u32::MAX, live: 1000, started: 1, drop_rate: 9, rtt: 9 });
    let ports = vec![PortReport { place: 0, utilization: 9000, drop_rate: 1, backlog: 1 }];
    let switch = SwitchReport { sequence: 9, first: 0, covered: 1, ports };
    let traffic = Body::Traffic(TrafficReport { sequence: 1, rows: vec![TrafficRow { from: 1, rate: 1 }] });
    let bytes = |bodies: &[&Body]| bodies.iter().copied().map(body).collect::<Vec<_>>();
    let (switch, also) = (Body::Switch(switch.clone()), Body::SwitchAlso(switch, Columns::default()));
    let agent = network.site.start();
    // What an Oracle does not say.
    speak_out_of_turn(&network, scheme, &bytes(&[&report, &switch, &also, &traffic, &wrong]));
    let controller = network.start();
    network.site.until("settings are in force", || network.in_force() && network.status().hosts_heard == 1);
    thread::sleep(Duration::from_secs(2));
    let steady = || {
        let status = network.site.status();
        format!("{:?}, {} changes", status.in_force, status.changes)
    };
    let words = bytes(&[&of_oracle, &wrong, &switch, &also, &traffic]);
    storm(&network, &relay, (agent.0.id(), controller.0.id()), (scheme, words), 660_000, &steady);
    assert!(agent.stop().success() && controller.stop().success(), "{}", network.site.log());
}

/// Four hundred thousand and more of BAS's kinds.
#[test]
fn of_many_false_shares_and_measurements_none_changes_anything() {
    let test = "of_many_false_shares_and_measurements_none_changes_anything";
    let domain = DOMAIN.replace("[\"a\", \"r\", \"b\"]", "[\"a\", \"r\", \"b\", \"traitor\"]").replacen(
        "[[links]]",
        "[[links]]\nends = [\"traitor\", \"r\"]\nrate = \"1gbit\"\n[[links]]",
        1,
    ) + "[[networks]]\nat = \"traitor\"\nprefixes = [\"10.77.2.1\"]\n";
    let Some(network) = Network::allocator(test, &domain) else { return };
    enrol_traitor(&network);
    let relay = through_relay(&network, None);
    let scheme = bas::DEF.code;
    let share = |flow| Share {
        flow: FlowId(flow),
        rate: Rate::from_bits_per_sec(1000),
        paced: true,
        queueing: Span::ZERO,
    };
    let shares = Word::Shares((0..3).map(share).collect());
    let links =
        Word::Links((0..4).map(|port| (PortId(port), 9, Bytes::new(1 << 20), Bytes::new(1 << 40))).collect());
    let key = FlowKey { from: (A.into(), 1), to: (B.into(), 2), protocol: 6 };
    let started = Word::Started(FlowId(0), Way { key, ports: vec![PortId(0)] });
    let agent = network.site.start();
    speak_out_of_turn(
        &network,
        scheme,
        &[body(&links), body(&started), body(&Word::Ended(FlowId(0))), body(&shares)],
    );
    let controller = network.start();
    let (here, there) = network.site.hosts.connection();
    let load = Load::start(here, there);
    // One flow has the whole link, or what it can use of it while the machine is busy: a share that the allocator sent of late.
    let steady = || {
        let paces: Vec<Option<u64>> =
            network.site.look().iter().filter(|one| one.carries).map(|one| one.pacing_rate).collect();
        let passed = relay.passed();
        let mut last = passed.iter().rev().filter(|one| one.to == To::Agent && one.has_left).take(5);
        let is_told = |seen: u64, one| match word(one) {
            Word::Shares(shares) => shares.iter().any(|share| pace(share).abs_diff(seen) <= seen / 1000),
            other => panic!("{other:?} of an allocator"),
        };
        let told = matches!(paces[..], [Some(seen)] if last.any(|one| is_told(seen, one)));
        if told { "paced as shared".to_owned() } else { format!("{paces:?}") }
    };
    network.site.until("it is paced", || steady() == "paced as shared");
    thread::sleep(Duration::from_secs(2));
    let words = vec![body(&shares), body(&links), body(&Word::Ended(FlowId(0)))];
    storm(&network, &relay, (agent.0.id(), controller.0.id()), (scheme, words), 440_000, &steady);
    drop(load);
    assert!(agent.stop().success() && controller.stop().success(), "{}", network.site.log());
}

/// More arrives than the agent reads. It still does its work.
#[test]
fn a_flood_does_not_keep_an_agent_from_its_work() {
    let Some(network) = Network::oracle("a_flood_does_not_keep_an_agent_from_its_work", "200ms") else {
        return;
    };
    let (agent, controller) = (network.site.start(), network.start());
    network.site.until("settings are in force", || network.in_force());
    let ends = AtomicBool::new(false);
    let flood = || {
        let socket = network.site.hosts.a.enter(|| Ok(UdpSocket::bind("0.0.0.0:0").expect("a port")));
        let socket = socket.expect("entered");
        while !ends.load(Ordering::Relaxed) {
            let _ = socket.send_to(&[1; 60_000], (A, PORT));
        }
    };
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(flood);
        }
        thread::sleep(Duration::from_secs(1));
        controller.kill();
        let begin = Instant::now();
        while network.in_force() && begin.elapsed() < Duration::from_secs(5) {
            thread::sleep(Duration::from_millis(20));
        }
        let took = begin.elapsed();
        let stopped = Instant::now();
        agent.signal("TERM");
        let mut agent = agent;
        while agent.0.try_wait().expect("asked").is_none() && stopped.elapsed() < Duration::from_secs(5) {
            thread::sleep(Duration::from_millis(20));
        }
        ends.store(true, Ordering::Relaxed);
        println!("the lease ended after {took:?}, the agent after {:?}", stopped.elapsed());
        assert!(took < LEASE + Duration::from_secs(1), "{took:?}");
        assert!(stopped.elapsed() < Duration::from_secs(2), "{:?}", stopped.elapsed());
    });
}
