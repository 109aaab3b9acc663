//! Faults are reported in status, log and metrics within 15 s, and repaired. Traffic goes on meanwhile.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bandmaster_core::rng::Stream;
use bandmaster_core::scheme::er2bc::probe::{Body, Endpoint, Message, ProbeError, Reason, Seq};
use bandmaster_linux::gateway::{Fault, State, Status};

use super::lab::{self, GATEWAY_1, GATEWAY_2, KEYED, Lab, Running, SINK, receiver, sender};
use super::probes;

/// How long it may take until a fault is seen, and until it is seen to be over.
const SECONDS: u64 = 15;
const METRICS: &str = "metrics = \"127.0.0.1:9464\"";

/// Two gateways with traffic of 0.5 Mbit/s between them.
struct Gateways {
    lab: Lab,
    g1: Running,
    g2: Running,
    load: Running,
    /// Other traffic.
    stray: Option<Running>,
}

impl Gateways {
    /// With these files, waiting until the sender is answered.
    fn start(lab: Lab, g1: &str, g2: &str) -> Self {
        let gateways = Self::start_any(lab, g1, g2);
        gateways.lab.until("g1", "answering", SECONDS, answering);
        gateways
    }

    fn start_any(lab: Lab, g1: &str, g2: &str) -> Self {
        let g2 = lab.start("g2", &lab.gateway("g2", g2));
        let g1 = lab.start("g1", &lab.gateway("g1", g1));
        let load = lab.start("s", "load 100 600");
        lab.until("g1", "up", SECONDS, |_| true);
        lab.until("g2", "up", SECONDS, |_| true);
        Self { lab, g1, g2, load, stray: None }
    }

    /// A sender and a receiver that say what is wrong.
    fn usual() -> Option<Self> {
        let lab = Lab::build("2mbit")?;
        Some(Self::start(lab, &sender(KEYED, METRICS), &receiving()))
    }

    fn expect(&self, node: &str, kind: Fault, words: &[&str]) {
        expect(&self.lab, node, kind, words);
    }

    fn expect_over(&self, node: &str, kind: Fault) {
        expect_over(&self.lab, node, kind);
    }

    /// Data arrives: more than probes alone.
    fn expect_traffic(&self) {
        let count = || -> u64 {
            let text = self.lab.inside("g2", "cat /sys/class/net/wan0/statistics/rx_packets");
            text.trim().parse().expect("a number")
        };
        let before = count();
        self.lab.until_true("g2", "reached by data", 5, || count() > before + 30);
    }

    /// No fault is left, and everything is shaped and counted.
    fn end(self) {
        for node in ["g1", "g2"] {
            let faults = self.lab.status(node).faults;
            assert!(faults.iter().all(|fault| !fault.active), "{node}: {faults:#?}\n{}", self.lab.log(node));
        }
        self.lab.until("g1", "answering", SECONDS, answering);
        self.load.signal("-KILL");
        self.load.end();
        assert!(self.g1.stop() && self.g2.stop());
    }
}

/// `kind` is there at `node`: status, metric, and one line in the log which says `words`.
fn expect(lab: &Lab, node: &str, kind: Fault, words: &[&str]) {
    let status = lab.until(node, kind.name(), SECONDS, |status| status.has_fault(kind));
    let text = status.to_string();
    assert!(text.contains(&format!("fault      {kind}, for ")), "{text}");
    lab.until_true(node, "measured", 5, || metric(lab, node, kind) == (true, status.fault_times(kind)));
    let lines = said(lab, node, kind, "begins: ");
    assert_eq!(lines.len() as u64, status.fault_times(kind), "{lines:#?}");
    let last = lines.last().expect("a line");
    words.iter().for_each(|word| assert!(last.contains(word), "{word} in {last}"));
}

/// `kind` is over at `node`.
fn expect_over(lab: &Lab, node: &str, kind: Fault) {
    let over = |status: &Status| !status.has_fault(kind);
    let status = lab.until(node, &format!("without {kind}"), SECONDS, over);
    assert_eq!(metric(lab, node, kind), (false, status.fault_times(kind)));
    let lines = said(lab, node, kind, "ends");
    assert_eq!(lines.len() as u64, status.fault_times(kind), "{lines:#?}");
}

/// Whether the metrics of `node` tell of a fault, and how often it began.
fn metric(lab: &Lab, node: &str, kind: Fault) -> (bool, u64) {
    let text = lab.at(node, || {
        let mut stream = TcpStream::connect("127.0.0.1:9464").expect("metrics are served");
        stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").expect("asked");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("answered");
        text
    });
    let value = |name: &str| -> f64 {
        let start = format!("bandmaster_gateway_{name}{{kind=\"{kind}\"}} ");
        let line = text.lines().find_map(|line| line.strip_prefix(&start));
        line.unwrap_or_else(|| panic!("{start} in\n{text}")).parse().expect("a number")
    };
    (value("fault") == 1.0, value("faults_begun_total") as u64)
}

fn answering(status: &Status) -> bool {
    status.sender.as_ref().is_some_and(|sender| sender.state == State::Answering)
}

/// Lines about `kind` in the log of `node`, whose message begins with `word`.
fn said(lab: &Lab, node: &str, kind: Fault, word: &str) -> Vec<String> {
    let (message, field) =
        ([format!("message={word}"), format!("message=\"{word}")], format!("fault={kind}"));
    let log = lab.log(node);
    let about = |line: &&str| {
        line.split(' ').any(|part| part == field) && message.iter().any(|begin| line.contains(begin))
    };
    log.lines().filter(about).map(str::to_owned).collect()
}

fn receiving() -> String {
    receiver(KEYED).replace("[peer]", &format!("{METRICS}\n[peer]"))
}

/// Something that goes wrong.
struct Trouble {
    name: &'static str,
    /// Where it is seen, and what.
    at: &'static [(&'static str, Fault)],
    /// What the log says of it.
    words: &'static [&'static str],
    begin: fn(&mut Gateways),
    end: fn(&mut Gateways),
    /// Data arrives meanwhile.
    carries: bool,
}

impl Trouble {
    /// It comes, is seen, and goes.
    fn pass(&self, gateways: &mut Gateways) {
        (self.begin)(gateways);
        self.expect(gateways);
        (self.end)(gateways);
        for (node, kind) in self.at {
            gateways.expect_over(node, *kind);
        }
    }

    fn expect(&self, gateways: &Gateways) {
        for (node, kind) in self.at {
            gateways.expect(node, *kind, self.words);
        }
        if self.carries {
            gateways.expect_traffic();
        }
    }
}

fn nothing(_: &mut Gateways) {}

/// Writes `node`'s file with a change, and reloads it.
fn reload(gateways: &Gateways, node: &str, change: impl Fn(String) -> String) {
    let text = if node == "g1" { sender(KEYED, METRICS) } else { receiving() };
    gateways.lab.gateway(node, &change(text));
    let running = if node == "g1" { &gateways.g1 } else { &gateways.g2 };
    let reloads = gateways.lab.status(node).reloads;
    running.signal("-HUP");
    gateways.lab.until(node, "reloaded", 5, |status| status.reloads > reloads);
}

/// All that a pair of gateways goes through while it runs.
const TROUBLES: &[Trouble] = &[
    Trouble {
        name: "the sender's rules are flushed",
        at: &[("g1", Fault::ClassifierGone)],
        words: &["table inet bandmaster", "nft flush ruleset"],
        begin: |gateways| drop(gateways.lab.inside("g1", "nft flush ruleset")),
        end: nothing,
        carries: true,
    },
    Trouble {
        name: "the receiver's table is deleted",
        at: &[("g2", Fault::ClassifierGone)],
        words: &["table inet bandmaster", "nft flush ruleset"],
        begin: |gateways| drop(gateways.lab.inside("g2", "nft delete table inet bandmaster")),
        end: nothing,
        carries: true,
    },
    Trouble {
        name: "the shaper is deleted",
        at: &[("g1", Fault::ShaperGone)],
        words: &["Somebody", "wan0", "tc monitor"],
        begin: |gateways| drop(gateways.lab.inside("g1", "tc qdisc del dev wan0 root")),
        end: nothing,
        carries: true,
    },
    Trouble {
        name: "a class is deleted",
        at: &[("g1", Fault::ShaperGone)],
        words: &["Somebody", "wan0", "tc monitor"],
        begin: |gateways| drop(gateways.lab.inside("g1", "tc class del dev wan0 classid 1:12")),
        end: nothing,
        carries: true,
    },
    Trouble {
        name: "addresses are translated on the way",
        at: &[("g1", Fault::Mismatch)],
        words: &["counts nothing", "NAT", "[[data]]"],
        begin: |gateways| {
            for words in [
                "add table ip translate",
                "add chain ip translate way { type filter hook forward priority 0 ; }",
                "add rule ip translate way ip saddr 10.1.0.0/24 ip saddr set 10.7.0.1",
            ] {
                gateways.lab.inside("r", &format!("nft {words}"));
            }
        },
        end: |gateways| drop(gateways.lab.inside("r", "nft delete table ip translate")),
        carries: true,
    },
    Trouble {
        name: "a rule of the receiver misses three fifths",
        at: &[("g1", Fault::Mismatch)],
        words: &["a share", "[[data]]", "IPv6"],
        begin: |gateways| {
            reload(gateways, "g2", |text| text + "protocol = \"udp\"\nports = [5201, 5202]\n");
        },
        end: |gateways| reload(gateways, "g2", |text| text),
        carries: true,
    },
    Trouble {
        name: "the secret of the sender is another",
        at: &[("g1", Fault::KeysDiffer), ("g2", Fault::KeysDiffer)],
        words: &["keys differ", "Put the same key-file on both"],
        begin: |gateways| {
            let other = gateways.lab.path("other");
            fs::write(&other, "another secret of many bytes").expect("written");
            gateways.lab.inside("g1", &format!("chmod 600 {}", other.display()));
            reload(gateways, "g1", |text| text.replace("\"key\"", "\"other\""));
        },
        end: |gateways| reload(gateways, "g1", |text| text),
        carries: true,
    },
    Trouble {
        name: "data fits no class",
        at: &[("g1", Fault::Unclassified)],
        words: &["fits no class", "`match`"],
        begin: |gateways| {
            // Nor is it counted.
            reload(gateways, "g2", |text| text + "protocol = \"udp\"\nports = [\"5201-5205\"]\n");
            gateways.stray = Some(gateways.lab.start("s", &format!("load 60 600 {SINK} 6201")));
        },
        end: |gateways| {
            let stray = gateways.stray.take().expect("started");
            stray.signal("-KILL");
            stray.end();
        },
        carries: true,
    },
    Trouble {
        name: "the receiver merges packets again",
        at: &[("g2", Fault::MergesReceived)],
        words: &["generic receive offload of wan0 is on again"],
        begin: |gateways| drop(gateways.lab.inside("g2", "ethtool -K wan0 gro on")),
        end: nothing,
        carries: true,
    },
    Trouble {
        name: "the link is down",
        at: &[("g1", Fault::LinkDown)],
        words: &["interface wan0 is down", "ip link set dev wan0 up"],
        begin: |gateways| drop(gateways.lab.inside("g1", "ip link set dev wan0 down")),
        end: |gateways| {
            gateways.lab.inside("g1", "ip link set dev wan0 up");
            gateways.lab.routes();
        },
        carries: false,
    },
    Trouble {
        name: "the sender has another address",
        at: &[("g1", Fault::AddressChanged)],
        words: &["10.9.1.1", "[peer]"],
        begin: |gateways| change_address(gateways, "10.9.1.1", "10.9.1.7"),
        end: |gateways| change_address(gateways, "10.9.1.7", "10.9.1.1"),
        carries: true,
    },
    Trouble {
        name: "the sender's interface becomes a port of a bridge",
        at: &[("g1", Fault::Enslaved)],
        words: &["belongs to the bridge br0", "nomaster"],
        begin: |gateways| {
            let lab = &gateways.lab;
            lab.inside("g1", "ip link add br0 type bridge");
            lab.inside("g1", "ip link set dev wan0 master br0");
            lab.inside("g1", "ip link set dev br0 up");
            lab.inside("g1", "ip addr del 10.9.1.1/24 dev wan0");
            lab.inside("g1", "ip addr add 10.9.1.1/24 dev br0");
            lab.routes();
        },
        end: |gateways| {
            let lab = &gateways.lab;
            lab.inside("g1", "ip link del dev br0");
            lab.inside("g1", "ip addr add 10.9.1.1/24 dev wan0");
            lab.routes();
        },
        carries: true,
    },
];

fn change_address(gateways: &Gateways, from: &str, to: &str) {
    gateways.lab.inside("g1", &format!("ip addr del {from}/24 dev wan0"));
    gateways.lab.inside("g1", &format!("ip addr add {to}/24 dev wan0"));
    gateways.lab.routes();
}

/// Those whose name has one of these parts, one after the other.
fn pass(parts: &[&str]) -> Option<Gateways> {
    let mut gateways = Gateways::usual()?;
    for trouble in TROUBLES.iter().filter(|trouble| parts.iter().any(|part| trouble.name.contains(part))) {
        println!("{}", trouble.name);
        trouble.pass(&mut gateways);
    }
    Some(gateways)
}

/// Rules of nftables go in every way there is; both ends mend them.
#[test]
fn rules_that_somebody_flushes_come_back() {
    let Some(gateways) = pass(&["rules are flushed", "table is deleted"]) else { return };
    let lab = &gateways.lab;
    let rules = |node: &str| lab.inside(node, "nft -s -t list ruleset");
    let before = [rules("g1"), rules("g2")];
    for (node, before) in ["g1", "g2"].into_iter().zip(&before) {
        lab.inside(node, "nft flush table inet bandmaster");
        gateways.expect(node, Fault::ClassifierGone, &["rules of it were changed"]);
        lab.until_true(node, "with its rules", 5, || rules(node) == *before);
        gateways.expect_over(node, Fault::ClassifierGone);
    }
    let sent = |lab: &Lab| lab.status("g1").sender.expect("a sender").classes[0].packets;
    let first = sent(lab);
    lab.until_true("g1", "shaping", 5, || sent(lab) > first);
    gateways.end();
}

/// Somebody removes the shaper, replaces it, or changes a class.
#[test]
fn a_shaper_that_somebody_changes_comes_back() {
    let Some(gateways) = pass(&["shaper is deleted", "class is deleted"]) else { return };
    let lab = &gateways.lab;
    lab.inside("g1", "tc qdisc replace dev wan0 parent 1:13 handle 99: pfifo limit 3");
    gateways.expect("g1", Fault::ShaperGone, &["the queue of class 1:13 is another"]);
    gateways.expect_over("g1", Fault::ShaperGone);
    lab.until_shaped("g1", 5);
    // That of somebody is refused until it goes.
    lab.inside("g1", "tc qdisc replace dev wan0 root handle 7: pfifo limit 100");
    gateways.expect("g1", Fault::ShaperGone, &["wan0"]);
    gateways.expect_traffic();
    let status = lab.until("g1", "whose it is", 5, |status| status.to_string().contains("of somebody else"));
    assert_eq!(status.sender.expect("a sender").state, State::NoInterface);
    lab.inside("g1", "tc qdisc del dev wan0 root");
    gateways.expect_over("g1", Fault::ShaperGone);
    lab.until_shaped("g1", 5);
    gateways.end();
}

/// What cannot match brings the safe rate, not the floor, and the estimate comes back with what matches.
#[test]
fn counts_that_cannot_match_bring_the_safe_rate() {
    let Some(mut gateways) = Gateways::usual() else { return };
    for trouble in TROUBLES.iter().filter(|trouble| trouble.at[0].1 == Fault::Mismatch) {
        println!("{}", trouble.name);
        (trouble.begin)(&mut gateways);
        trouble.expect(&gateways);
        let in_force = gateways.lab.status("g1").sender.expect("a sender").in_force;
        assert_eq!(in_force, 500_000, "{}", trouble.name);
        (trouble.end)(&mut gateways);
        gateways.expect_over("g1", Fault::Mismatch);
        let above = |status: &Status| status.sender.as_ref().is_some_and(|s| s.in_force > 600_000);
        gateways.lab.until("g1", "above the safe rate", SECONDS, above);
    }
    gateways.end();
}

/// Three quarters of the data are of an address family that the receiver does not count: .25^8 < 10^-3, so that eight rounds tell.
/// Of one half it takes ten rounds or fourteen, by the phase of the packets.
#[test]
fn ipv6_that_nobody_counts_is_told() {
    let Some(mut gateways) = Gateways::usual() else { return };
    let lab = &gateways.lab;
    for (node, command) in [
        ("s", "ip -6 addr add fd01::2/64 dev eth0 nodad"),
        ("g1", "ip -6 addr add fd01::1/64 dev lan0 nodad"),
        ("g1", "ip -6 addr add fd09:1::1/64 dev wan0 nodad"),
        ("r", "ip -6 addr add fd09:1::2/64 dev left nodad"),
        ("r", "ip -6 addr add fd09:2::2/64 dev right nodad"),
        ("g2", "ip -6 addr add fd09:2::1/64 dev wan0 nodad"),
        ("g2", "ip -6 addr add fd02::2/128 dev lo nodad"),
        ("g1", "sysctl -qw net.ipv6.conf.all.forwarding=1"),
        ("r", "sysctl -qw net.ipv6.conf.all.forwarding=1"),
        ("s", "ip -6 route add fd02::/64 via fd01::1"),
        ("g1", "ip -6 route add fd02::/64 via fd09:1::2"),
        ("r", "ip -6 route add fd02::/64 via fd09:2::1"),
    ] {
        lab.inside(node, command);
    }
    gateways.stray = Some(lab.start("s", "load 300 600 fd02::2 5201"));
    gateways.expect("g1", Fault::Mismatch, &["a share", "IPv6"]);
    assert_eq!(gateways.lab.status("g1").sender.expect("a sender").in_force, 500_000);
    gateways.expect_traffic();
    let stray = gateways.stray.take().expect("started");
    stray.signal("-KILL");
    stray.end();
    gateways.expect_over("g1", Fault::Mismatch);
    gateways.end();
}

#[test]
fn keys_that_differ_are_told_from_silence_at_both_ends() {
    let Some(gateways) = pass(&["secret of the sender"]) else { return };
    gateways.end();
}

#[test]
fn data_that_fits_no_class_is_told() {
    let Some(gateways) = pass(&["data fits no class"]) else { return };
    gateways.end();
}

/// The state directory is lost and the clock behind: the peer says so, and the numbers go on above.
#[test]
fn questions_refused_as_old_go_on_above() {
    let Some(lab) = Lab::build("2mbit") else { return };
    fs::create_dir_all(lab.state("g1")).expect("a folder");
    fs::write(lab.state("g1").join("epoch"), "4000000000").expect("written");
    let mut gateways = Gateways::start(lab, &sender(KEYED, METRICS), &receiving());
    let run = gateways.lab.gateway("g1", &sender(KEYED, METRICS));
    gateways.g1.signal("-TERM");
    gateways.lab.until_logged("g1", "stops by signal", 5);
    thread::sleep(Duration::from_millis(500));
    fs::remove_file(gateways.lab.state("g1").join("epoch")).expect("lost");
    let stopped = std::mem::replace(&mut gateways.g1, gateways.lab.start("g1", &run));
    assert!(stopped.end());
    gateways.expect(
        "g1",
        Fault::RefusedAsOld,
        &["heard epoch 4000000001", "clock", "go on with epoch 4000000002"],
    );
    gateways.expect_traffic();
    gateways.lab.until("g1", "answered", 5, |status| status.sender.as_ref().is_some_and(|s| s.answers > 1));
    gateways.expect_over("g1", Fault::RefusedAsOld);
    let kept = fs::read_to_string(gateways.lab.state("g1").join("epoch")).expect("kept");
    assert_eq!(kept, "4000000002");
    gateways.end();
}

/// Asks, or refuses, as a gateway of version 7 does, until a file is there; all that it hears is no longer than a question.
pub(crate) fn stranger(words: &[&str]) {
    let [how, end] = words else { panic!("unknown words {words:?}") };
    let asks = *how == "asks";
    let (own, peer) = if asks { (GATEWAY_1, GATEWAY_2) } else { (GATEWAY_2, GATEWAY_1) };
    let socket = probes::socket(own, peer);
    let mut other = Endpoint::new(lab::key(), u32::MAX).speaking(7);
    let mut seq = Seq::new(0);
    while !Path::new(end).exists() {
        let mut datagram = [0; 256];
        if asks {
            let question = other.seal(Message { seq, body: Body::Question }.encode());
            seq = seq.next();
            socket.send(&question).expect("sent");
            if let Ok(length) = socket.recv(&mut datagram) {
                let refusal = other.heed(&datagram[..length]).expect("a refusal");
                assert_eq!(refusal.reason, Reason::Version(0));
                assert!(length <= question.len());
            }
        } else if let Ok(length) = socket.recv(&mut datagram) {
            let refusal = other.refuse(&datagram[..length], ProbeError::Version(0)).expect("a question");
            socket.send(&refusal).expect("sent");
        }
    }
}

/// Each end reports that the other is older or newer.
#[test]
fn gateways_of_different_versions_say_so() {
    let Some(lab) = Lab::build("2mbit") else { return };
    let ends = lab.path("ends");
    let g2 = lab.start("g2", &lab.gateway("g2", &receiving()));
    lab.until("g2", "up", SECONDS, |_| true);
    let stranger = lab.start("g1", &format!("stranger asks {}", ends.display()));
    let words = ["10.9.1.1:4741 speaks version 7", "this gateway is too old"];
    expect(&lab, "g2", Fault::OtherVersion, &words);
    fs::write(&ends, "").expect("written");
    assert!(stranger.end(), "{}", lab.log("g1"));
    let g1 = lab.start("g1", &lab.gateway("g1", &sender(KEYED, METRICS)));
    expect_over(&lab, "g2", Fault::OtherVersion);
    lab.until("g1", "answering", SECONDS, answering);
    assert!(g2.stop());
    fs::remove_file(&ends).expect("removed");
    let stranger = lab.start("g2", &format!("stranger refuses {}", ends.display()));
    let words = ["10.9.2.1:4741 speaks version 7", "this gateway is too old"];
    expect(&lab, "g1", Fault::OtherVersion, &words);
    fs::write(&ends, "").expect("written");
    assert!(stranger.end(), "{}", lab.log("g2"));
    let g2 = lab.start("g2", &lab.gateway("g2", &receiving()));
    expect_over(&lab, "g1", Fault::OtherVersion);
    lab.until("g1", "answering", SECONDS, answering);
    assert!(g1.stop() && g2.stop());
}

/// The link goes down, the address changes, the interface goes and comes back merging.
#[test]
fn an_interface_that_changes_is_told_and_followed() {
    let Some(gateways) = pass(&["link is down", "another address", "merges packets"]) else { return };
    let lab = &gateways.lab;
    lab.inside("r", "ip link set dev left down");
    gateways.expect("g1", Fault::LinkDown, &["has no carrier"]);
    lab.inside("r", "ip link set dev left up");
    lab.inside("r", "ip route replace 10.1.0.0/24 via 10.9.1.1");
    gateways.expect_over("g1", Fault::LinkDown);
    lab.inside("r", "ip link del dev right");
    gateways.expect("g2", Fault::NoInterface, &["there is no interface wan0"]);
    lab.make_right();
    lab.inside("g2", "ethtool -K wan0 gro on");
    gateways.expect_over("g2", Fault::NoInterface);
    gateways.expect("g2", Fault::MergesReceived, &["is on again"]);
    gateways.expect_over("g2", Fault::MergesReceived);
    let told = lab.inside("g2", "ethtool -k wan0");
    assert!(told.contains("generic-receive-offload: off"), "{told}");
    gateways.expect_traffic();
    gateways.end();
}

/// The address comes back as the second of two, of which the kernel prefers the other one.
#[test]
fn an_address_that_comes_back_beside_another_is_used() {
    let Some(gateways) = Gateways::usual() else { return };
    let lab = &gateways.lab;
    change_address(&gateways, "10.9.1.1", "10.9.1.7");
    gateways.expect("g1", Fault::AddressChanged, &["10.9.1.1"]);
    lab.inside("g1", "ip addr add 10.9.1.1/24 dev wan0");
    lab.routes();
    gateways.expect_over("g1", Fault::AddressChanged);
    let answers = |status: &Status| status.sender.as_ref().map_or(0, |sender| sender.answers);
    let before = answers(&lab.status("g1"));
    lab.until("g1", "answered", SECONDS, |status| answers(status) > before + 2);
    gateways.end();
}

/// A gateway refuses a bridge, and a port of a bridge, at the start. It reports an interface that becomes a port later.
#[test]
fn bridges_are_refused_by_name() {
    let Some(gateways) = pass(&["port of a bridge"]) else { return };
    gateways.lab.until("g1", "answering", SECONDS, answering);
    gateways.lab.inside("g2", "ip link add br0 type bridge");
    let bridge = receiving().replace("\"wan0\"", "\"br0\"").replace("STATE", "STATE-bridge");
    let refused = gateways.lab.start("g2", &gateways.lab.gateway("g2", &bridge));
    assert!(!refused.end());
    gateways.lab.until_logged("g2", "interface br0 is a bridge", 5);
    gateways.lab.inside("g1", "ip link add br1 type bridge");
    gateways.lab.inside("g1", "ip link add name p0 type veth peer name p1");
    gateways.lab.inside("g1", "ip link set dev p0 master br1");
    let port = sender(KEYED, "").replace("\"wan0\"", "\"p0\"").replace("STATE", "STATE-port");
    let refused = gateways.lab.start("g1", &gateways.lab.gateway("g1", &port));
    assert!(!refused.end());
    gateways.lab.until_logged("g1", "interface p0 belongs to the bridge br1", 5);
    gateways.end();
}

/// Troubles drawn at random, for `BANDMASTER_FAULTS` seconds (`./ci.sh long`: ten minutes), from `BANDMASTER_FAULTS_SEED`.
#[test]
fn whatever_goes_wrong_is_told_and_over_in_time() {
    let variable = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seconds = variable("BANDMASTER_FAULTS").unwrap_or(40);
    let clock = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |now| now.as_nanos() as u64);
    let seed = variable("BANDMASTER_FAULTS_SEED").unwrap_or_else(clock);
    println!("BANDMASTER_FAULTS_SEED={seed}");
    let Some(mut gateways) = Gateways::usual() else { return };
    let mut random = Stream::new(seed, 0, "troubles");
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(seconds) {
        let trouble = &TROUBLES[random.below(TROUBLES.len() as u64) as usize];
        let at = begin.elapsed().as_secs_f64();
        trouble.pass(&mut gateways);
        println!("{at:.1} s: {}, over after {:.1} s", trouble.name, begin.elapsed().as_secs_f64() - at);
        for node in ["g1", "g2"] {
            let none = |status: &Status| status.faults.iter().all(|fault| !fault.active);
            gateways.lab.until(node, "without faults", SECONDS, none);
        }
        gateways.lab.until("g1", "answering", SECONDS, answering);
        thread::sleep(Duration::from_millis(random.below(2000)));
    }
    gateways.end();
}
