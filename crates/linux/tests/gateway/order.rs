//! Counting in the order of packets, by programs in the kernel.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use super::lab::{KEYED, Lab, NO_PROGRAMS, receiver, sender};
use super::machine::{in_time, timely};

/// What a run has shown.
#[derive(Debug)]
struct Seen {
    /// Questions whose counts were read at both ends, and those of them with another count at the receiver.
    rounds: usize,
    wrong: usize,
    /// Times that the estimate fell.
    falls: u32,
    left_out: u64,
    packets: u64,
}

/// Packets and bytes before each question, by its number.
type Counts = BTreeMap<u64, (u64, u64)>;

/// Five flows of `kbits` each over a path that loses nothing.
fn watch(kbits: u64, seconds: u64) -> Option<Seen> {
    let lab = Lab::build_alone("300mbit")?;
    // A machine that pauses for some milliseconds sends what it owes at once: more than the path's usual queue holds.
    lab.inside("r", "tc qdisc replace dev right parent 1:10 pfifo limit 5000");
    let need = format!("{}kbit", kbits * 3 / 2);
    let initial = format!("[control]\ninitial = \"{}kbit\"", kbits * 8);
    let fast = sender(KEYED, "").replace("400kbit", &need).replace("[control]", &initial);
    let g2 = lab.start("g2", &lab.gateway("g2", &receiver(KEYED)));
    let g1 = lab.start("g1", &lab.gateway("g1", &fast));
    lab.until("g1", "answered", 20, |status| status.sender.as_ref().is_some_and(|s| s.answers > 0));
    println!("counting: {}; {}", lab.status("g1").counting, lab.status("g2").counting);
    let load = lab.start("s", &format!("load {kbits} {}", seconds + 5));
    let first =
        lab.until("g1", "under load", 5, |status| status.sender.as_ref().is_some_and(|s| s.packets > 0));
    let first = first.sender.expect("a sender");
    // Questions from before the receiver was there.
    let lost = first.questions - lab.status("g2").receiver.expect("a receiver").questions;
    let (mut sent, mut received) = (Counts::new(), Counts::new());
    let (mut last, mut falls) = (first, 0);
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(seconds) {
        thread::sleep(Duration::from_millis(100));
        let sender = lab.status("g1").sender.expect("a sender");
        let receiver = lab.status("g2").receiver.expect("a receiver");
        falls += u32::from(sender.estimate < last.estimate);
        sent.insert(sender.questions - lost, (sender.packets, sender.bytes));
        received.insert(receiver.questions, (receiver.packets, receiver.bytes));
        last = sender;
    }
    // Of the last question perhaps only its number was read.
    sent.pop_last();
    let both = sent.iter().filter_map(|(question, sent)| Some((question, sent, received.get(question)?)));
    let (mut rounds, mut wrong) = (0, 0);
    for (question, sent, received) in both {
        rounds += 1;
        wrong += usize::from(sent != received);
        if sent != received {
            println!("question {question}: {sent:?} (packets, bytes) sent before it, {received:?} received");
        }
    }
    let seen = Seen { rounds, wrong, falls, left_out: last.rounds_left_out, packets: last.packets };
    println!("{kbits} kbit/s in each of five classes: {seen:?}");
    load.signal("-KILL");
    load.end();
    assert!(g1.stop() && g2.stop());
    Some(seen)
}

fn exact(kbits: u64) -> Result<(), String> {
    let Some(seen) = watch(kbits, 20) else { return Ok(()) };
    timely!(seen.rounds >= 15 && seen.packets > kbits * 5 * 20 / 12 / 2, "{seen:?}");
    assert_eq!(seen.wrong, 0, "{seen:?}");
    timely!((seen.falls, seen.left_out) == (0, 0), "{seen:?}");
    Ok(())
}

/// Before each question both ends have counted the same packets and bytes, and the estimate never falls.
#[test]
fn both_ends_count_the_same_before_each_question_at_20_mbit() {
    in_time("both_ends_count_the_same_before_each_question_at_20_mbit", || exact(4000));
}

#[test]
fn both_ends_count_the_same_before_each_question_at_95_mbit() {
    in_time("both_ends_count_the_same_before_each_question_at_95_mbit", || exact(19_000));
}

/// Without the privilege the classes are counted, and status and log say why.
#[test]
fn without_programs_the_classes_are_counted() {
    let Some(lab) = Lab::build("2mbit") else { return };
    let g2 = lab.start("g2", &lab.gateway("g2", &receiver(KEYED)));
    let g1 = lab.start_by(&NO_PROGRAMS, "g1", &lab.gateway("g1", &sender(KEYED, "")));
    let status =
        lab.until("g1", "answered", 20, |status| status.sender.as_ref().is_some_and(|s| s.answers > 1));
    let why = "not permitted";
    assert!(
        status.counting.contains("class counters") && status.counting.contains(why),
        "{}",
        status.counting
    );
    assert!(lab.log("g1").contains(why), "{}", lab.log("g1"));
    assert!(g1.stop() && g2.stop());
}

mod programs {
    use std::collections::BTreeSet;
    use std::fs;

    use super::super::lab::Running;
    use super::*;

    /// Numbers of the programs that a process holds.
    fn held(process: &Running) -> BTreeSet<u32> {
        let files = fs::read_dir(process.folder().join("fdinfo")).expect("a process");
        let texts = files.flatten().filter_map(|file| fs::read_to_string(file.path()).ok());
        let id =
            |text: String| text.lines().find_map(|line| line.strip_prefix("prog_id:")?.trim().parse().ok());
        texts.filter_map(id).collect()
    }

    fn loaded() -> BTreeSet<u32> {
        aya::programs::loaded_programs().flatten().map(|program| program.id()).collect()
    }

    fn gone(ids: &BTreeSet<u32>, how: &str) {
        let begin = Instant::now();
        while !loaded().is_disjoint(ids) {
            assert!(begin.elapsed() < Duration::from_secs(5), "after {how}: {ids:?} of {:?}", loaded());
            thread::sleep(Duration::from_millis(50));
        }
    }

    #[test]
    fn nothing_is_left_after_an_end_of_any_kind() {
        let Some(lab) = Lab::build("2mbit") else { return };
        for (node, text) in [("g1", sender(KEYED, "")), ("g2", receiver(KEYED))] {
            for signal in ["-TERM", "-KILL"] {
                let gateway = lab.start(node, &lab.gateway(node, &text));
                lab.until(node, "up", 20, |status| status.counting.contains("eBPF") && status.uptime > 0.2);
                let ids = held(&gateway);
                assert_eq!(ids.len(), 1, "{node}");
                assert!(ids.is_subset(&loaded()));
                gateway.signal(signal);
                gateway.end();
                gone(&ids, signal);
            }
        }
    }

    /// With no data on its way, the programs, the shaper and nftables have all counted the same.
    #[test]
    fn at_rest_all_counters_agree() {
        let Some(lab) = Lab::build("20mbit") else { return };
        let g2 = lab.start("g2", &lab.gateway("g2", &receiver(KEYED)));
        let fast = sender(KEYED, "").replace("[control]", "[control]\ninitial = \"10mbit\"");
        let g1 = lab.start("g1", &lab.gateway("g1", &fast));
        lab.until("g1", "answered", 20, |status| status.sender.as_ref().is_some_and(|s| s.answers > 0));
        assert!(lab.start("s", "load 800 5").end());
        thread::sleep(Duration::from_secs(3));
        let sent = lab.status("g1").sender.expect("a sender");
        let received = lab.status("g2").receiver.expect("a receiver");
        let classes =
            sent.classes.iter().fold((0, 0), |(p, b), c| (p + c.packets, b + c.bytes - 14 * c.packets));
        let rules = lab.inside("g2", "nft list counter inet bandmaster data");
        println!("sent {} {}, received {received:?}, classes {classes:?}", sent.packets, sent.bytes);
        assert!(sent.packets > 1000, "{}", sent.packets);
        assert_eq!((sent.packets, sent.bytes), classes);
        assert_eq!((sent.packets, sent.bytes), (received.packets, received.bytes));
        assert!(rules.contains(&format!("packets {} bytes {}", received.packets, received.bytes)), "{rules}");
        assert!(g1.stop() && g2.stop());
    }

    /// An interface that goes away and comes back is another one to the kernel.
    #[test]
    fn the_programs_follow_an_interface_that_comes_back() {
        let Some(lab) = Lab::build("20mbit") else { return };
        let g2 = lab.start("g2", &lab.gateway("g2", &receiver(KEYED)));
        let g1 = lab.start("g1", &lab.gateway("g1", &sender(KEYED, "")));
        lab.until("g1", "answered", 20, |status| status.sender.as_ref().is_some_and(|s| s.answers > 0));
        lab.renew_right();
        lab.until("g2", "following", 20, |_| {
            lab.log("g2").contains("counts at the interface that came back")
        });
        let before = lab.status("g2").receiver.expect("a receiver").packets;
        assert!(lab.start("s", "load 100 3").end());
        let counted = |status: &bandmaster_linux::gateway::Status| {
            status.receiver.as_ref().is_some_and(|receiver| receiver.packets > before + 50)
        };
        lab.until("g2", "counting again", 5, counted);
        assert!(g1.stop() && g2.stop());
    }
}
