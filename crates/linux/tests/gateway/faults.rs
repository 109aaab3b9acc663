//! What goes wrong is said, shown and mended: in status, log and metrics within 15 s, and traffic goes on.

use std::io::{Read, Write};
use std::net::TcpStream;

use bandmaster_linux::gateway::{Fault, State, Status};

use super::lab::{KEYED, Lab, Running, receiver, sender};

/// How long it may take until a fault is seen, and until it is seen to be over.
const SECONDS: u64 = 15;
const METRICS: &str = "metrics = \"127.0.0.1:9464\"";

/// Two gateways with traffic of 0.5 Mbit/s between them.
struct Gateways {
    lab: Lab,
    g1: Running,
    g2: Running,
    load: Running,
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
        Self { lab, g1, g2, load }
    }

    /// A sender and a receiver that say what is wrong.
    fn usual() -> Option<Self> {
        let lab = Lab::build("2mbit")?;
        Some(Self::start(lab, &sender(KEYED, METRICS), &receiving()))
    }

    /// `kind` is there at `node`: status, metric, and one line in the log which says `words`.
    fn expect(&self, node: &str, kind: Fault, words: &[&str]) {
        let status = self.lab.until(node, kind.name(), SECONDS, |status| status.has_fault(kind));
        let text = status.to_string();
        assert!(text.contains(&format!("fault      {kind}, for ")), "{text}");
        self.lab
            .until_true(node, "measured", 5, || self.metric(node, kind) == (true, status.fault_times(kind)));
        let lines = said(&self.lab, node, kind, "begins: ");
        assert_eq!(lines.len() as u64, status.fault_times(kind), "{lines:#?}");
        let last = lines.last().expect("said");
        words.iter().for_each(|word| assert!(last.contains(word), "{word} in {last}"));
    }

    /// `kind` is over at `node`.
    fn expect_over(&self, node: &str, kind: Fault) {
        let over = |status: &Status| !status.has_fault(kind);
        let status = self.lab.until(node, &format!("without {kind}"), SECONDS, over);
        assert_eq!(self.metric(node, kind), (false, status.fault_times(kind)));
        let lines = said(&self.lab, node, kind, "ends");
        assert_eq!(lines.len() as u64, status.fault_times(kind), "{lines:#?}");
    }

    /// Whether the metrics of `node` tell of a fault, and how often it began.
    fn metric(&self, node: &str, kind: Fault) -> (bool, u64) {
        let text = self.lab.at(node, || {
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

/// Rules of nftables go in every way there is; both ends mend them.
#[test]
fn rules_that_somebody_flushes_come_back() {
    let Some(gateways) = Gateways::usual() else { return };
    let lab = &gateways.lab;
    let rules = |node: &str| lab.inside(node, "nft -s -t list ruleset");
    let before = [rules("g1"), rules("g2")];
    let ways = ["flush ruleset", "delete table inet bandmaster", "flush table inet bandmaster"];
    for (node, before) in ["g1", "g2"].into_iter().zip(&before) {
        for way in ways {
            lab.inside(node, &format!("nft {way}"));
            gateways.expect(node, Fault::ClassifierGone, &["table inet bandmaster", "nft flush ruleset"]);
            lab.until_true(node, "with its rules", 5, || rules(node) == *before);
            gateways.expect_traffic();
            gateways.expect_over(node, Fault::ClassifierGone);
        }
    }
    let sent = |lab: &Lab| lab.status("g1").sender.expect("a sender").classes[0].packets;
    let first = sent(lab);
    lab.until_true("g1", "shaping", 5, || sent(lab) > first);
    gateways.end();
}

/// Somebody removes the shaper, replaces it, or changes a class.
#[test]
fn a_shaper_that_somebody_changes_comes_back() {
    let Some(gateways) = Gateways::usual() else { return };
    let lab = &gateways.lab;
    for command in [
        "tc qdisc del dev wan0 root",
        "tc class change dev wan0 parent 1:1 classid 1:12 htb rate 64kbit ceil 64kbit",
        "tc qdisc replace dev wan0 parent 1:13 handle 99: pfifo limit 3",
    ] {
        lab.inside("g1", command);
        gateways.expect("g1", Fault::ShaperGone, &["Somebody", "wan0"]);
        gateways.expect_traffic();
        gateways.expect_over("g1", Fault::ShaperGone);
        lab.until_shaped("g1", 5);
    }
    // That of somebody is refused until it goes.
    lab.inside("g1", "tc qdisc replace dev wan0 root handle 7: pfifo limit 100");
    gateways.expect("g1", Fault::ShaperGone, &["wan0"]);
    gateways.expect_traffic();
    let status = lab.until("g1", "told whose", 5, |status| status.to_string().contains("of somebody else"));
    assert_eq!(status.sender.expect("a sender").state, State::NoInterface);
    lab.inside("g1", "tc qdisc del dev wan0 root");
    gateways.expect_over("g1", Fault::ShaperGone);
    lab.until_shaped("g1", 5);
    gateways.end();
}
