//! Beginnings, ends, and what happens in between.

use std::fs;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bandmaster_linux::gateway::{State, Status};

use super::lab::{KEYED, Lab, PLAIN, receiver, sender};

fn answering(status: &Status) -> bool {
    status.sender.as_ref().is_some_and(|sender| sender.state == State::Answering)
}

/// Both directions, so that every kind of change is made.
fn both() -> String {
    let auth = "key-file = \"key\"\nanswer-key-file = \"other\"";
    sender(auth, "replace-qdisc = true").replace("\"sender\"", "\"both\"")
        + "[[data]]\nsource = \"10.2.0.0/16\"\n"
}

fn second_key(lab: &Lab) {
    // Something for the receiver's part to change.
    lab.inside("g1", "ethtool -K wan0 gro on");
    fs::write(lab.path("other"), "another secret of many bytes").expect("written");
    lab.inside("g1", &format!("chmod 600 {}", lab.path("other").display()));
}

/// Killed at ten random points, with and without a queue discipline of somebody else.
#[test]
fn a_killed_gateway_leaves_nothing_that_restore_does_not_undo() {
    let Some(lab) = Lab::build("2mbit") else { return };
    second_key(&lab);
    let run = lab.gateway("g1", &both());
    let restore = format!("restore {}", lab.state("g1").display());
    let mut random = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |now| now.as_nanos() as u64) | 1;
    let mut changed = 0;
    for round in 0..10 {
        if round == 5 {
            foreign(&lab);
        }
        let before = lab.machine("g1");
        let gateway = lab.start("g1", &run);
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let millis = 10 + random % 190;
        thread::sleep(Duration::from_millis(millis));
        gateway.signal("-KILL");
        gateway.end();
        let between = lab.machine("g1") != before;
        changed += u32::from(between);
        assert!(lab.start("g1", &restore).end(), "killed after {millis} ms: {}", lab.log("g1"));
        let context = format!("killed after {millis} ms\n{}", lab.log("g1"));
        lab.machine("g1").assert_is(&before, context);
        println!(
            "killed after {millis} ms: {}",
            if between { "changed, restored" } else { "nothing changed yet" }
        );
        assert!(!lab.state("g1").join("journal").exists());
    }
    assert!(changed > 0, "no kill came late enough to find a change");
}

fn foreign(lab: &Lab) {
    for command in [
        "tc qdisc add dev wan0 root handle 5: htb default 20 r2q 7",
        "tc class add dev wan0 parent 5: classid 5:1 htb rate 50mbit burst 15k",
        "tc class add dev wan0 parent 5:1 classid 5:10 htb rate 10mbit ceil 50mbit prio 2 quantum 3000",
        "tc class add dev wan0 parent 5:1 classid 5:20 htb rate 40mbit ceil 50mbit",
        "tc qdisc add dev wan0 parent 5:10 handle 10: pfifo limit 77",
        "tc qdisc add dev wan0 parent 5:20 handle 20: tbf rate 30mbit burst 10k limit 30k",
    ] {
        lab.inside("g1", command);
    }
}

#[test]
fn somebodys_qdisc_is_refused_or_replaced_and_put_back() {
    let Some(lab) = Lab::build("2mbit") else { return };
    foreign(&lab);
    let before = lab.machine("g1");
    let refused = lab.start("g1", &lab.gateway("g1", &sender(KEYED, "")));
    assert!(!refused.end());
    let log = lab.log("g1");
    assert!(
        log.contains("has the qdisc htb 5: of somebody else") && log.contains("replace-qdisc = true"),
        "{log}"
    );
    lab.machine("g1").assert_is(&before, lab.log("g1"));
    let replaced = lab.start("g1", &lab.gateway("g1", &sender(KEYED, "replace-qdisc = true")));
    lab.until("g1", "up", 5, |_| true);
    lab.until_shaped("g1", 5);
    assert!(replaced.stop());
    lab.machine("g1").assert_is(&before, lab.log("g1"));
    // Filters could not be put back: refused, even with `replace-qdisc`.
    lab.inside(
        "g1",
        "tc filter add dev wan0 parent 5: protocol ip prio 1 u32 match ip dport 22 0xffff flowid 5:10",
    );
    let before = lab.machine("g1");
    let refused = lab.start("g1", &lab.gateway("g1", &sender(KEYED, "replace-qdisc = true")));
    assert!(!refused.end());
    assert!(lab.log("g1").contains("has filters, which could not be put back"), "{}", lab.log("g1"));
    lab.machine("g1").assert_is(&before, lab.log("g1"));
}

/// By policy: an ordered stop leaves everything with `on-failure`, and the next start begins from what was before.
#[test]
fn restore_follows_the_policy_and_the_next_start_restores() {
    let Some(lab) = Lab::build("2mbit") else { return };
    let before = lab.machine("g1");
    let run = lab.gateway("g1", &sender(KEYED, "restore = \"on-failure\""));
    let gateway = lab.start("g1", &run);
    lab.until("g1", "up", 5, |_| true);
    lab.until_shaped("g1", 5);
    assert!(gateway.stop());
    assert!(lab.machine("g1") != before, "an ordered stop leaves the shaping in force");
    let gateway = lab.start("g1", &lab.gateway("g1", &sender(KEYED, "restore = \"on-exit\"")));
    lab.until("g1", "up again", 5, |status| status.uptime > 0.5);
    assert!(lab.log("g1").contains("a gateway before this one left changes, which were undone"));
    assert!(gateway.stop());
    lab.machine("g1").assert_is(&before, lab.log("g1"));
}

#[test]
fn a_silent_peer_brings_the_safe_rate_until_it_answers() {
    let Some(lab) = Lab::build("2mbit") else { return };
    // The state is shown first, and the rate then goes to the kernel.
    let at = |status: &Status, state, rate| {
        status.sender.as_ref().is_some_and(|sender| sender.state == state && sender.in_force == rate)
    };
    let receiving = lab.gateway("g2", &receiver(KEYED));
    let g2 = lab.start("g2", &receiving);
    let g1 = lab.start("g1", &lab.gateway("g1", &sender(KEYED, "")));
    lab.until("g1", "answering", 5, answering);
    assert!(g2.stop());
    let status = lab.until("g1", "silent at the safe rate", 8, |status| at(status, State::Silent, 500_000));
    let sender = status.sender.expect("a sender");
    assert_eq!(sender.estimate, 1_000_000);
    // 400 kbit/s of IP packets of 1500 B are so much of Ethernet's frames of 1514 B, which the shaper counts.
    assert_eq!(sender.classes.iter().map(|class| class.rate).collect::<Vec<_>>()[0], 403_733);
    assert!(lab.inside("g1", "tc class show dev wan0").contains("1:1 root rate 500Kbit ceil 500Kbit"));
    let asked = sender.questions;
    lab.until("g1", "asking on", 8, |s| s.sender.as_ref().is_some_and(|s| s.questions >= asked + 3));
    assert_eq!(lab.log("g1").matches("the peer is silent").count(), 1, "logged once");
    // The peer restarts, and so do its clock and counters.
    let g2 = lab.start("g2", &receiving);
    lab.until("g1", "answering at the estimate", 8, |status| at(status, State::Answering, 1_000_000));
    assert!(g1.stop() && g2.stop());
}

#[test]
fn the_interface_may_go_down_and_its_qdisc_away() {
    let Some(lab) = Lab::build("2mbit") else { return };
    let g2 = lab.start("g2", &lab.gateway("g2", &receiver(PLAIN)));
    let g1 = lab.start("g1", &lab.gateway("g1", &sender(PLAIN, "")));
    lab.until("g1", "answering", 5, answering);
    lab.inside("g1", "ip link set dev wan0 down");
    lab.until("g1", "silent", 8, |s| s.sender.as_ref().is_some_and(|s| s.state == State::Silent));
    lab.inside("g1", "ip link set dev wan0 up");
    lab.routes();
    lab.until("g1", "answering after the link came back", 8, answering);
    lab.inside("g1", "tc qdisc del dev wan0 root");
    lab.until_shaped("g1", 5);
    lab.until("g1", "answering with a new shaper", 5, answering);
    // Somebody flushes the rules of the receiver.
    lab.inside("g2", "nft flush ruleset");
    let asked = lab.status("g2").receiver.expect("a receiver").questions;
    lab.until("g2", "counting again", 8, |s| s.receiver.as_ref().is_some_and(|r| r.questions > asked + 1));
    assert!(g1.stop() && g2.stop());
}

#[test]
fn a_reload_takes_a_good_file_and_keeps_the_last_good_one() {
    let Some(lab) = Lab::build("2mbit") else { return };
    let before = lab.machine("g1");
    let good = sender(KEYED, "");
    let run = lab.gateway("g1", &good);
    let g1 = lab.start("g1", &run);
    lab.until("g1", "up", 5, |_| true);
    lab.gateway("g1", &good.replace("need = \"400kbit\"", "need = \"400kbps\""));
    g1.signal("-HUP");
    let status = lab.until("g1", "an error", 5, |status| status.reload_error.is_some());
    let said = status.reload_error.expect("an error");
    assert!(said.contains("g1.toml") && said.contains("kbps"), "{said}");
    assert_eq!(status.sender.expect("a sender").classes[0].need, 400_000);
    lab.gateway("g1", &good.replace("interface = \"wan0\"", "interface = \"lan0\""));
    g1.signal("-HUP");
    lab.until("g1", "an error", 5, |s| {
        s.reload_error.as_ref().is_some_and(|why| why.contains("takes a restart"))
    });
    lab.gateway("g1", &good.replace("need = \"400kbit\"", "need = \"300kbit\""));
    g1.signal("-HUP");
    let status = lab.until("g1", "reloaded", 5, |status| status.reloads == 1);
    assert_eq!((status.sender.expect("a sender").classes[0].need, status.reload_error), (300_000, None));
    lab.gateway("g1", &good.replace("5201", "6201"));
    g1.signal("-HUP");
    lab.until("g1", "rebuilt", 5, |status| status.reloads == 2);
    assert!(lab.inside("g1", "nft list ruleset").contains("udp dport 6201"));
    assert!(g1.stop());
    lab.machine("g1").assert_is(&before, lab.log("g1"));
}

/// The day's clock was set back since the last life: the numbers of the questions still rise, so that the peer, which has
/// heard the higher ones, answers.
#[test]
fn a_clock_that_was_set_back_does_not_make_questions_old() {
    let Some(lab) = Lab::build("2mbit") else { return };
    fs::create_dir_all(lab.state("g1")).expect("a folder");
    fs::write(lab.state("g1").join("epoch"), "4000000000").expect("written");
    let g2 = lab.start("g2", &lab.gateway("g2", &receiver(KEYED)));
    for _ in 0..2 {
        let g1 = lab.start("g1", &lab.gateway("g1", &sender(KEYED, "")));
        lab.until("g1", "answering", 5, answering);
        assert!(g1.stop());
    }
    assert_eq!(fs::read_to_string(lab.state("g1").join("epoch")).expect("kept"), "4000000002");
    assert!(g2.stop());
}

#[test]
fn a_dry_run_changes_nothing() {
    let Some(lab) = Lab::build("2mbit") else { return };
    let before = lab.machine("g1");
    let run = lab.gateway("g1", &sender(PLAIN, ""));
    let g1 = lab.start("g1", &format!("dry-{run}"));
    lab.until_logged("g1", "would set", 5);
    lab.machine("g1").assert_is(&before, lab.log("g1"));
    assert!(g1.stop());
    assert!(!lab.state("g1").exists());
}
