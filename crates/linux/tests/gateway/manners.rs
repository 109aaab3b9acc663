//! Several gateways on a machine, and what belongs to somebody else.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use bandmaster_linux::gateway::{State, Status};

use super::lab::{KEYED, Lab, receiver, sender};
use super::machine::{in_time, timely};

fn answering(status: &Status) -> bool {
    status.sender.as_ref().is_some_and(|sender| sender.state == State::Answering)
}

/// What a gateway makes, by somebody else: same kind, handle, classes and queues.
fn lookalike(lab: &Lab) {
    lab.inside("g1", "tc qdisc add dev wan0 root handle 1: htb default 0");
    lab.inside("g1", "tc class add dev wan0 parent 1: classid 1:1 htb rate 1mbit burst 1600 cburst 1600");
    for minor in 10..15 {
        lab.inside(
            "g1",
            &format!(
                "tc class add dev wan0 parent 1:1 classid 1:{minor} htb rate 200kbit ceil 1mbit burst 1600 cburst 1600 \
                 quantum 1514 prio {}",
                minor - 10
            ),
        );
        lab.inside("g1", &format!("tc qdisc add dev wan0 parent 1:{minor} handle {minor}: pfifo limit 50"));
    }
}

/// The journal proves what is ours, not its handle.
#[test]
fn an_htb_of_somebody_else_that_looks_like_ours_survives() {
    let Some(lab) = Lab::build("2mbit") else { return };
    lookalike(&lab);
    let before = lab.machine("g1");
    let run = lab.gateway("g1", &sender(KEYED, ""));
    let restore = format!("restore {}", lab.state("g1").display());
    assert!(!lab.start("g1", &run).end());
    assert!(lab.log("g1").contains("has the qdisc htb 1: of somebody else"), "{}", lab.log("g1"));
    lab.machine("g1").assert_is(&before, "a start that is refused");
    assert!(lab.start("g1", &restore).end());
    lab.machine("g1").assert_is(&before, "restore without a journal");

    // A gateway is killed, its shaper removed by hand, and somebody else's put there.
    lab.inside("g1", "tc qdisc del dev wan0 root");
    let gateway = lab.start("g1", &run);
    lab.until_shaped("g1", 5);
    gateway.signal("-KILL");
    gateway.end();
    assert!(lab.state("g1").join("journal").exists());
    lab.inside("g1", "tc qdisc del dev wan0 root");
    lookalike(&lab);
    assert!(lab.start("g1", &restore).end(), "{}", lab.log("g1"));
    assert!(lab.log("g1").contains("left the qdisc htb 1: of wan0"), "{}", lab.log("g1"));
    lab.machine("g1").assert_is(&before, "restore with a journal");
    assert!(!lab.state("g1").join("journal").exists());
    assert!(!lab.start("g1", &run).end());
    lab.machine("g1").assert_is(&before, "a start after the restore");
}

/// Somebody puts a shaper in the place of ours while the gateway runs: it is neither changed nor removed.
#[test]
fn an_htb_that_takes_the_place_of_ours_is_left_alone() {
    let Some(lab) = Lab::build("2mbit") else { return };
    let before = lab.machine("g1");
    let gateway = lab.start("g1", &lab.gateway("g1", &sender(KEYED, "")));
    lab.until_shaped("g1", 5);
    lab.inside("g1", "tc qdisc del dev wan0 root");
    lookalike(&lab);
    let theirs = lab.inside("g1", "tc class show dev wan0");
    lab.until("g1", "gone", 5, |s| s.sender.as_ref().is_some_and(|s| s.state == State::NoInterface));
    thread::sleep(Duration::from_secs(4));
    assert_eq!(lab.inside("g1", "tc class show dev wan0"), theirs);
    assert!(gateway.stop(), "{}", lab.log("g1"));
    assert_eq!(lab.inside("g1", "tc class show dev wan0"), theirs);
    lab.inside("g1", "tc qdisc del dev wan0 root");
    lab.machine("g1").assert_is(&before, lab.log("g1"));
}

/// A hub, and a link of its own to each spoke.
fn star(spokes: &[&'static str]) -> Option<Lab> {
    let nodes: Vec<&'static str> = ["hub"].into_iter().chain(spokes.iter().copied()).collect();
    let lab = Lab::bare(&nodes)?;
    for (number, spoke) in (1..).zip(spokes) {
        let (device, hub, other) =
            (format!("wan{number}"), format!("10.7.{number}.1/24"), format!("10.7.{number}.2/24"));
        lab.link(("hub", &device, &hub), (spoke, "wan0", &other));
        lab.write_key(&format!("key-{spoke}"), format!("a secret for the way to {spoke}").as_bytes());
        lab.write_key(&format!("back-{spoke}"), format!("a secret for the way from {spoke}").as_bytes());
    }
    Some(lab)
}

/// A file of `role` at `interface`, to `peer`; `port` is that of both ends.
fn file(role: &str, interface: &str, peer: &str, port: u16, more: (&str, &str)) -> String {
    let (top, keys) = more;
    let mut text = format!(
        "version = 1\nrole = \"{role}\"\ninterface = \"{interface}\"\nstate-directory = \"STATE\"\n{top}\n[peer]\n\
         address = \"{peer}\"\nport = {port}\nlisten-port = {port}\n{keys}\n"
    );
    if role != "receiver" {
        text += "[control]\nsafe-rate = \"500kbit\"\nhold = \"3s\"\n[[classes]]\nname = \"all\"\npriority = 1\n\
                 need = \"400kbit\"\n";
    }
    text
}

/// One gateway each way to `a`, one that sends to `b`, one that receives from `c`: each with an interface, a port, a state
/// directory, a table and metrics of its own.
#[test]
fn a_hub_has_a_gateway_for_each_spoke() {
    let Some(lab) = star(&["a", "b", "c"]) else { return };
    let before = lab.inside("hub", "tc qdisc show") + &lab.inside("hub", "nft list ruleset");
    let metrics = |port: u16| format!("metrics = \"127.0.0.1:{port}\"");
    let (to, from) = (
        "key-file = \"key-a\"\nanswer-key-file = \"back-a\"",
        "key-file = \"back-a\"\nanswer-key-file = \"key-a\"",
    );
    let hub = [
        ("north", file("both", "wan1", "10.7.1.2", 4741, (&metrics(9464), to))),
        ("south", file("sender", "wan2", "10.7.2.2", 4742, (&metrics(9465), "key-file = \"key-b\""))),
        ("west", file("receiver", "wan3", "10.7.3.2", 4743, (&metrics(9466), "key-file = \"back-c\""))),
    ];
    let spokes = [
        ("a", file("both", "wan0", "10.7.1.1", 4741, ("", from))),
        ("b", file("receiver", "wan0", "10.7.2.1", 4742, ("", "key-file = \"key-b\""))),
        ("c", file("sender", "wan0", "10.7.3.1", 4743, ("", "key-file = \"back-c\""))),
    ];
    let mut running = Vec::new();
    for (name, text) in &hub {
        running.push(lab.start("hub", &lab.instance(name, text)));
    }
    for (name, text) in &spokes {
        running.push(lab.start(name, &lab.instance(name, text)));
    }
    for name in ["north", "south", "a", "c"] {
        lab.until(name, "answering", 10, answering);
    }
    for name in ["north", "west", "a", "b"] {
        lab.until(name, "asked", 10, |s| s.receiver.as_ref().is_some_and(|r| r.questions > 2));
    }
    let tables = lab.inside("hub", "nft list tables");
    for name in ["north", "south", "west"] {
        assert!(tables.contains(&format!("table inet bandmaster-{name}\n")), "{tables}");
        assert_eq!(lab.status(name).refused.total(), 0, "{name}");
        assert_eq!(lab.status(name).name, name);
    }

    // A second one for what one of them has is refused, by the name of who has it; nothing of the others changes.
    let rules = || lab.inside("hub", "nft -s -t list ruleset");
    let before_clashes = rules();
    let clashes = [
        ("interface", file("sender", "wan1", "10.7.1.2", 4750, ("", "key-file = \"key-a\"")), "north"),
        ("port", file("receiver", "wan1", "10.7.1.2", 4742, ("", "key-file = \"key-a\"")), "south"),
        (
            "metrics",
            file("receiver", "wan1", "10.7.1.2", 4751, (&metrics(9466), "key-file = \"key-a\"")),
            "west",
        ),
        (
            "state",
            file("receiver", "wan1", "10.7.1.2", 4752, ("", "key-file = \"key-a\""))
                .replace("STATE", &lab.state("south").to_string_lossy()),
            "south",
        ),
    ];
    for (what, text, holder) in clashes {
        let begun = lab.log("hub").len();
        assert!(!lab.start("hub", &lab.instance(what, &text)).end(), "{what}");
        let said = lab.log("hub")[begun..].to_owned();
        assert!(said.contains(&format!("gateway `{holder}` (process ")), "{what}: {said}");
    }
    assert_eq!(rules(), before_clashes);

    // One stops; the others go on.
    let south = running.remove(1);
    assert!(south.stop());
    assert!(!lab.inside("hub", "nft list tables").contains("bandmaster-south"));
    let asked = lab.status("north").sender.expect("a sender").answers;
    lab.until("north", "going on", 5, |s| s.sender.as_ref().is_some_and(|s| s.answers > asked + 1));
    for gateway in running {
        assert!(gateway.stop());
    }
    let after = lab.inside("hub", "tc qdisc show") + &lab.inside("hub", "nft list ruleset");
    assert_eq!(after, before);
}

/// Gateways that only receive may share an interface: the last of them lets packets be merged again, when they were before
/// the first.
#[test]
fn receivers_share_an_interface() {
    let Some(lab) = star(&["a"]) else { return };
    let merges = || lab.inside("hub", "ethtool -k wan1").contains("generic-receive-offload: on");
    let start = |name: &str, port: u16| {
        let text = file("receiver", "wan1", "10.7.1.2", port, ("", "key-file = \"key-a\""));
        let running = lab.start("hub", &lab.instance(name, &text));
        lab.until(name, "up", 10, |status| !status.counting.is_empty());
        running
    };
    for before in ["off", "on"] {
        lab.inside("hub", &format!("ethtool -K wan1 gro {before}"));
        let (one, two) = (start("one", 4741), start("two", 4742));
        assert!(!merges());
        assert!(one.stop());
        assert!(!merges(), "{before}: {}", lab.log("hub"));
        assert!(two.stop());
        assert_eq!(merges(), before == "on", "{}", lab.log("hub"));
    }
}

/// The interface has gone for good: `restore` reports it, and forgets the journal with `--force`.
#[test]
fn a_journal_of_an_interface_that_is_gone_is_told_and_forgotten() {
    let Some(lab) = Lab::build("2mbit") else { return };
    let gateway = lab.start("g1", &lab.gateway("g1", &sender(KEYED, "")));
    lab.until_shaped("g1", 5);
    gateway.signal("-KILL");
    gateway.end();
    lab.inside("g1", "ip link del dev wan0");
    let restore = format!("restore {}", lab.state("g1").display());
    let failed = !lab.start("g1", &restore).end();
    let said = lab.log("g1");
    assert!(failed, "{said}");
    assert!(said.contains("interface wan0 is gone") && said.contains("restore --force"), "{said}");
    assert!(
        !lab.inside("g1", "nft list tables").contains("bandmaster"),
        "the table is no part of the interface"
    );
    assert!(lab.state("g1").join("journal").exists());
    assert!(lab.start("g1", &format!("{restore} --force")).end(), "{}", lab.log("g1"));
    assert!(!lab.state("g1").join("journal").exists());
}

/// A renamed interface is found by its number.
#[test]
fn a_renamed_interface_is_restored() {
    let Some(lab) = Lab::build("2mbit") else { return };
    let gateway = lab.start("g1", &lab.gateway("g1", &sender(KEYED, "")));
    lab.until_shaped("g1", 5);
    gateway.signal("-KILL");
    gateway.end();
    lab.inside("g1", "ip link set dev wan0 down");
    lab.inside("g1", "ip link set dev wan0 name uplink");
    assert!(lab.inside("g1", "tc qdisc show dev uplink").contains("htb"));
    assert!(lab.start("g1", &format!("restore {}", lab.state("g1").display())).end(), "{}", lab.log("g1"));
    assert!(!lab.inside("g1", "tc qdisc show dev uplink").contains("htb"), "{}", lab.log("g1"));
}

/// The changes were made in another network namespace: restored there, or forgotten when it is gone.
#[test]
fn a_journal_of_a_namespace_that_is_gone_is_told_and_forgotten() {
    let Some(lab) = Lab::build("2mbit") else { return };
    let gateway = lab.start("g2", &lab.gateway("g2", &receiver(KEYED)));
    lab.until("g2", "up", 10, |status| !status.counting.is_empty());
    gateway.signal("-KILL");
    gateway.end();
    let restore = format!("restore {}", lab.state("g2").display());
    // It lives: not forgotten, whatever one says.
    for words in [restore.clone(), format!("{restore} --force")] {
        let begun = lab.log("s").len();
        assert!(!lab.start("s", &words).end());
        let said = lab.log("s")[begun..].to_owned();
        assert!(said.contains(&format!("ip netns exec {}", lab.name("g2"))), "{said}");
    }
    lab.forget("g2");
    let begun = lab.log("s").len();
    assert!(!lab.start("s", &restore).end());
    let said = lab.log("s")[begun..].to_owned();
    assert!(said.contains("in another network namespace") && said.contains("restore --force"), "{said}");
    assert!(lab.start("s", &format!("{restore} --force")).end(), "{}", lab.log("s"));
    assert!(!fs::exists(lab.state("g2").join("journal")).expect("asked"));
}

/// A hub with an address, and spokes behind a router that gives all of them its own (`r`).
fn behind_nat(spokes: &[&'static str]) -> Option<Lab> {
    let nodes: Vec<&'static str> = ["hub", "r"].into_iter().chain(spokes.iter().copied()).collect();
    let lab = Lab::bare(&nodes)?;
    lab.link(("hub", "wan0", "10.8.0.1/24"), ("r", "out", "10.8.0.2/24"));
    lab.inside("r", "sysctl -qw net.ipv4.ip_forward=1");
    let file = lab.path("nat.nft");
    fs::write(
        &file,
        "table ip nat {\n\tchain out {\n\t\ttype nat hook postrouting priority srcnat\n\t\toifname \"out\" masquerade\n\t}\n}\n",
    )
    .expect("written");
    lab.inside("r", &format!("nft -f {}", file.display()));
    for (number, spoke) in (1..).zip(spokes) {
        let (device, inner, outer) =
            (format!("in{number}"), format!("192.168.{number}.1/24"), format!("192.168.{number}.2/24"));
        lab.link(("r", &device, &inner), (spoke, "wan0", &outer));
        lab.inside(spoke, &format!("ip route add default via 192.168.{number}.1"));
        lab.write_key(&format!("key-{spoke}"), format!("a secret for the way to {spoke}").as_bytes());
    }
    Some(lab)
}

const DATA: &str = "[[data]]\nprotocol = \"udp\"\n";

/// Two senders behind the same NAT: the hub has their address once, with two ports that nobody knew before.
#[test]
fn two_peers_behind_the_same_nat_are_told_apart() {
    let Some(lab) = behind_nat(&["a", "b"]) else { return };
    let mut running = Vec::new();
    for (spoke, port) in [("a", 4741), ("b", 4742)] {
        let keys = format!("key-file = \"key-{spoke}\"");
        let hub = file("receiver", "wan0", "any", port, ("", &keys))
            .replace(&format!("port = {port}\nlisten"), "listen")
            + DATA;
        running.push(lab.start("hub", &lab.instance(&format!("to-{spoke}"), &hub)));
        let spoke_file = file("sender", "wan0", "10.8.0.1", port, ("", &keys));
        running.push(lab.start(spoke, &lab.instance(spoke, &spoke_file)));
    }
    let peer_of = |name: &str| {
        lab.until(name, "asked", 15, |s| s.receiver.as_ref().is_some_and(|r| r.questions > 2)).peer
    };
    let peers = ["to-a", "to-b"].map(peer_of);
    assert!(peers.iter().all(|peer| peer.starts_with("any (10.8.0.2:")), "{peers:?}");
    assert_ne!(peers[0], peers[1], "the same port");
    for spoke in ["a", "b"] {
        lab.until(spoke, "answering", 10, answering);
    }

    // The router gets another address while everything runs: the next question moves the peers.
    lab.inside("r", "ip addr flush dev out");
    lab.inside("r", "ip addr add 10.8.0.3/24 dev out");
    for name in ["to-a", "to-b"] {
        lab.until(name, "elsewhere", 15, |s| s.peer.starts_with("any (10.8.0.3:"));
    }
    let answers = lab.status("a").sender.expect("a sender").answers;
    lab.until("a", "answering on", 10, |s| s.sender.as_ref().is_some_and(|s| s.answers > answers + 1));
    for gateway in running {
        assert!(gateway.stop(), "{}", lab.log("hub"));
    }
}

/// The receiver is behind the NAT: it says where it is, and the sender asks there. It says so again to a sender that
/// has restarted.
#[test]
fn a_receiver_behind_nat_says_where_it_is() {
    let Some(lab) = behind_nat(&["a"]) else { return };
    let keys = "key-file = \"key-a\"";
    let hub = file("sender", "wan0", "any", 4741, ("", keys)).replace("port = 4741\nlisten", "listen");
    let spoke =
        file("receiver", "wan0", "10.8.0.1", 4741, ("", &format!("{keys}\nkeep-alive = \"2s\""))) + DATA;
    let run = lab.instance("hub", &hub);
    let hub = lab.start("hub", &run);
    let a = lab.start("a", &lab.instance("a", &spoke));
    lab.until("hub", "answering", 15, answering);
    assert!(lab.status("hub").peer.starts_with("any (10.8.0.2:"), "{}", lab.status("hub").peer);
    // A hub that starts again knows nothing, until the spoke has heard no question for so long.
    assert!(hub.stop());
    let hub = lab.start("hub", &run);
    lab.until("hub", "answering again", 20, |s| s.uptime < 30.0 && answering(s));
    assert!(hub.stop() && a.stop());
}

/// A peer with a name whose address changes: the name is looked up again when it is silent.
#[test]
fn a_name_is_resolved_again_when_its_peer_is_silent() {
    let Some(lab) = star(&["a"]) else { return };
    let hosts = lab.path("hosts");
    fs::write(&hosts, "10.7.1.2 gw.example.net\n").expect("written");
    let mount = format!("mount --bind {} /etc/hosts && exec \"$0\" \"$@\"", hosts.display());
    let keys = "key-file = \"key-a\"";
    let hub = lab.instance("hub", &file("sender", "wan1", "gw.example.net", 4741, ("", keys)));
    let hub = lab.start_by(&["sh", "-c", &mount], "hub", &hub);
    let a = lab.start("a", &lab.instance("a", &file("receiver", "wan0", "10.7.1.1", 4741, ("", keys))));
    lab.until("hub", "answering", 15, answering);
    assert_eq!(lab.status("hub").peer, "gw.example.net (10.7.1.2:4741)");
    lab.inside("a", "ip addr flush dev wan0");
    lab.inside("a", "ip addr add 10.7.1.9/24 dev wan0");
    fs::write(&hosts, "10.7.1.9 gw.example.net\n").expect("written");
    lab.until("hub", "elsewhere", 30, |s| s.peer == "gw.example.net (10.7.1.9:4741)" && answering(s));
    assert!(hub.stop() && a.stop());
}

/// The gateway reports what disk and directory refuse, and leaves nothing half-done.
#[test]
fn a_full_or_read_only_state_directory_changes_nothing() {
    let Some(lab) = Lab::build("2mbit") else { return };
    let before = lab.machine("g1");
    let run = lab.gateway("g1", &sender(KEYED, "restore = \"never\""));
    let state = lab.state("g1");
    fs::create_dir_all(&state).expect("made");
    let fill = |pages: u32| {
        format!(
            "mount -t tmpfs -o size={}k,mode=750 tmpfs {dir} && (touch {dir}/lock; dd if=/dev/zero of={dir}/fill bs=4k count=8 \
             2>/dev/null; truncate -s {}k {dir}/fill); exec \"$0\" \"$@\"",
            8 * 4,
            (8 - pages) * 4,
            dir = state.display()
        )
    };
    let mut refused = 0;
    for pages in 0..4 {
        let begun = lab.log("g1").len();
        let gateway = lab.start_by(&["sh", "-c", &fill(pages)], "g1", &run);
        thread::sleep(Duration::from_millis(700));
        if lab.inside("g1", "tc qdisc show dev wan0").contains("htb") {
            // There was room for everything.
            gateway.signal("-KILL");
            gateway.end();
            lab.inside("g1", "tc qdisc del dev wan0 root");
            lab.inside("g1", "nft flush ruleset");
            continue;
        }
        assert!(!gateway.end(), "{pages} pages");
        let said = lab.log("g1")[begun..].to_owned();
        assert!(said.contains("No space left on device"), "{pages} pages: {said}");
        lab.machine("g1").assert_is(&before, format!("{pages} pages: {said}"));
        refused += 1;
    }
    assert!(refused >= 2, "{refused}");
    let read_only = format!("mount -t tmpfs -o ro,mode=750 tmpfs {} && exec \"$0\" \"$@\"", state.display());
    assert!(!lab.start_by(&["sh", "-c", &read_only], "g1", &run).end());
    assert!(lab.log("g1").contains("Read-only file system"), "{}", lab.log("g1"));
    lab.machine("g1").assert_is(&before, "a read-only directory");
}

/// What this machine is not fit for is refused with line and key.
#[test]
fn what_the_machine_cannot_do_is_refused_with_its_place() {
    let Some(lab) = Lab::build("2mbit") else { return };
    let text = sender(KEYED, "");
    let cases = [
        (
            text.replace("\"10.9.2.1\"", "\"10.9.1.1\""),
            "peer.address: 10.9.1.1 is an address of this machine",
        ),
        (
            text.replace("[control]", "[control]\nceiling = \"1tbit\""),
            "control.ceiling: 1000gbit is above what wan0 carries, 10gbit",
        ),
    ];
    for (text, expected) in cases {
        let begun = lab.log("g1").len();
        assert!(!lab.start("g1", &lab.gateway("g1", &text)).end());
        let said = lab.log("g1")[begun..].to_owned();
        assert!(said.contains(expected) && said.contains("g1.toml:"), "{said}");
    }
    // What a tunnel of a program says of its speed is nobody's measurement.
    lab.inside("g1", "ip tuntap add tun0 mode tun");
    lab.inside("g1", "ip link set dev tun0 up");
    let text = text.replace("wan0", "tun0").replace("[control]", "[control]\nceiling = \"1tbit\"");
    let g1 = lab.start("g1", &lab.gateway("g1", &text));
    lab.until("g1", "up", 10, |status| status.interface == "tun0");
    assert!(g1.stop(), "{}", lab.log("g1"));
}

/// Five flows begin in one class, and end: its need follows.
#[test]
fn a_class_needs_as_much_as_the_flows_that_are_counted() {
    let Some(lab) = Lab::build("20mbit") else { return };
    let g2 = lab.start("g2", &lab.gateway("g2", &receiver(KEYED)));
    let head = sender(KEYED, "");
    let (head, _) = head.split_once("[[classes]]").expect("classes");
    let one = head.to_owned()
        + "[[classes]]\nname = \"all\"\npriority = 1\nneed = \"100kbit\"\ncount-flows = true\n";
    let g1 = lab.start("g1", &lab.gateway("g1", &one));
    lab.until("g1", "answering", 10, answering);
    let need = |status: &Status| status.sender.as_ref().map_or(0, |sender| sender.classes[0].need);
    assert_eq!(need(&lab.status("g1")), 100_000);
    // One socket to five ports.
    let load = lab.start("s", "load 100 60");
    lab.until("g1", "counting five", 20, |status| need(status) == 500_000);
    lab.until("g1", "answering", 10, answering);
    load.signal("-KILL");
    load.end();
    lab.until("g1", "counting none", 30, |status| need(status) == 100_000);
    assert!(g1.stop() && g2.stop());
}

/// Twenty reloads under load, every other one of which rebuilds classes and rules: questions go on.
#[test]
fn a_reload_never_stops_probing() {
    in_time("a_reload_never_stops_probing", reload_under_load);
}

fn reload_under_load() -> Result<(), String> {
    let Some(lab) = Lab::build_alone("2mbit") else { return Ok(()) };
    let g2 = lab.start("g2", &lab.gateway("g2", &receiver(KEYED)));
    let good = sender(KEYED, "");
    let g1 = lab.start("g1", &lab.gateway("g1", &good));
    lab.until("g1", "answering", 10, answering);
    let load = lab.start("s", "load 440 60");
    let asked = |lab: &Lab| lab.status("g1").sender.expect("a sender").questions;
    let (mut last, mut count, mut widest) = (Instant::now(), asked(&lab), Duration::ZERO);
    for round in 0..20u64 {
        let ports = if round % 2 == 0 { "6201" } else { "5201" };
        lab.gateway("g1", &good.replace("5201", ports).replace("400kbit", &format!("{}kbit", 300 + round)));
        g1.signal("-HUP");
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_millis(1300) || lab.status("g1").reloads < round + 1 {
            assert!(begin.elapsed() < Duration::from_secs(20), "{}", lab.log("g1"));
            let now = asked(&lab);
            if now != count {
                count = now;
                last = Instant::now();
            }
            widest = widest.max(last.elapsed());
            thread::sleep(Duration::from_millis(10));
        }
    }
    println!("widest gap between questions over 20 reloads: {widest:?}");
    timely!(widest < Duration::from_secs(2), "{widest:?}");
    assert!(answering(&lab.status("g1")));
    load.signal("-KILL");
    load.end();
    assert!(g1.stop() && g2.stop());
    Ok(())
}
