//! The gateway on a path whose bandwidth moves.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use super::lab::{KEYED, Lab, PLAIN, receiver, sender};

/// Counters of what both gateways send to each other, at `r`.
const WIRE: &str = "table inet wire {\n\tchain forward {\n\t\ttype filter hook forward priority 0\n\t\tudp dport 4741 iifname \
                    \"left\" counter comment \"questions\"\n\t\tudp dport 4741 iifname \"right\" counter comment \
                    \"answers\"\n\t}\n}\n";

/// Packets and bytes of questions and of answers.
fn wire(lab: &Lab) -> [u64; 4] {
    let text = lab.inside("r", "nft list table inet wire");
    let numbers: Vec<u64> = text
        .split("counter packets ")
        .skip(1)
        .flat_map(|part| {
            let mut words = part.split(' ');
            [words.next(), words.nth(1)].map(|word| word.and_then(|n| n.parse().ok()).unwrap_or(0))
        })
        .collect();
    numbers.try_into().expect("two counters")
}

fn count_wire(lab: &Lab) {
    let file = lab.path("wire.nft");
    fs::write(&file, WIRE).expect("written");
    lab.inside("r", &format!("nft -f {}", file.display()));
}

fn probe_sizes(auth: &str, question: u64, answer: u64) {
    let Some(lab) = Lab::build("2mbit") else { return };
    count_wire(&lab);
    let (g2, g1) = (
        lab.start("g2", &lab.gateway("g2", &receiver(auth))),
        lab.start("g1", &lab.gateway("g1", &sender(auth, ""))),
    );
    lab.until("g1", "answered", 5, |status| status.sender.as_ref().is_some_and(|s| s.answers > 0));
    let (begin, before) = (Instant::now(), wire(&lab));
    thread::sleep(Duration::from_secs(10));
    let after = wire(&lab);
    let passed: Vec<u64> = after.iter().zip(before).map(|(a, b)| a - b).collect();
    let seconds = begin.elapsed().as_secs_f64();
    let rate = (passed[1] + passed[3]) as f64 * 8e-3 / seconds;
    println!(
        "probes on the wire in {seconds:.2} s: {passed:?} (packets, bytes; there and back): {rate:.3} kbit/s"
    );
    assert_eq!((passed[1], passed[3]), (question * passed[0], answer * passed[2]), "sizes");
    assert!((9..=11).contains(&passed[0]) && (9..=11).contains(&passed[2]), "one round a second: {passed:?}");
    assert!(g1.stop() && g2.stop());
}

/// 32 + 56 bytes a second: 0.704 kbit/s.
#[test]
fn plain_probes_take_88_bytes_a_second() {
    probe_sizes(PLAIN, 32, 56);
}

/// 48 + 72 bytes a second.
#[test]
fn authenticated_probes_take_120_bytes_a_second() {
    probe_sizes(KEYED, 48, 72);
}

/// Steps of the bandwidth: after 5 s the mean estimate is within 300 kbit/s, as in Fig. 13 and in simulation, and the sum
/// of the classes within the estimate.
#[test]
fn the_estimate_follows_the_path() {
    let Some(lab) = Lab::build("2mbit") else { return };
    let g2 = lab.start("g2", &lab.gateway("g2", &receiver(KEYED)));
    let g1 = lab.start("g1", &lab.gateway("g1", &sender(KEYED, "")));
    lab.until("g1", "answered", 5, |status| status.sender.as_ref().is_some_and(|s| s.answers > 0));
    let load = lab.start("s", "load 440 75");
    thread::sleep(Duration::from_secs(12));
    for kbits in [2000, 1380, 1070, 1690] {
        lab.set_rate(&format!("{kbits}kbit"));
        thread::sleep(Duration::from_secs(5));
        let mut estimates = Vec::new();
        for _ in 0..20 {
            thread::sleep(Duration::from_millis(500));
            let sender = lab.status("g1").sender.expect("a sender");
            estimates.push(sender.estimate as f64 / 1e3);
            let sum: u64 = sender.classes.iter().map(|class| class.rate).sum();
            assert!(sum <= sender.in_force, "classes have {sum} of {}", sender.in_force);
        }
        let mean = estimates.iter().sum::<f64>() / estimates.len() as f64;
        let (least, most) = estimates.iter().fold((f64::MAX, 0f64), |(a, b), w| (a.min(*w), b.max(*w)));
        println!("path {kbits} kbit/s: estimate {mean:.0}, from {least:.0} to {most:.0}");
        assert!((mean - f64::from(kbits)).abs() <= 300.0, "{kbits}: {mean}");
    }
    let sender = lab.status("g1").sender.expect("a sender");
    println!("rounds left out: {} of {}", sender.rounds_left_out, sender.questions);
    assert!(sender.classes[0].drops < sender.classes[4].drops, "{:#?}", sender.classes);
    load.signal("-KILL");
    load.end();
    assert!(g1.stop() && g2.stop());
}

/// The gateways decide once a second and forward nothing themselves.
#[test]
fn the_gateway_takes_less_than_a_hundredth_of_a_core_at_100_mbit() {
    let Some(lab) = Lab::build("200mbit") else { return };
    let fast = sender(KEYED, "")
        .replace("400kbit", "20mbit")
        .replace("[control]", "[control]\ninitial = \"110mbit\"");
    let g2 = lab.start("g2", &lab.gateway("g2", &receiver(KEYED)));
    let g1 = lab.start("g1", &lab.gateway("g1", &fast));
    lab.until("g1", "answered", 5, |status| status.sender.as_ref().is_some_and(|s| s.answers > 0));
    let load = lab.start("s", "load 20000 14");
    thread::sleep(Duration::from_secs(2));
    let sent =
        |lab: &Lab| lab.status("g1").sender.expect("a sender").classes.iter().map(|c| c.bytes).sum::<u64>();
    let (begin, cpu, bytes) = (Instant::now(), [g1.cpu(), g2.cpu()], sent(&lab));
    thread::sleep(Duration::from_secs(10));
    let seconds = begin.elapsed().as_secs_f64();
    let used = [g1.cpu() - cpu[0], g2.cpu() - cpu[1]].map(|used| 100.0 * used / seconds);
    let rate = (sent(&lab) - bytes) as f64 * 8e-6 / seconds;
    println!(
        "{rate:.1} Mbit/s through the classes; processor: sender {:.2} %, receiver {:.2} %",
        used[0], used[1]
    );
    assert!(rate > 50.0, "{rate} Mbit/s");
    assert!(used[0] < 1.0 && used[1] < 1.0, "{used:?}");
    load.signal("-KILL");
    load.end();
    assert!(g1.stop() && g2.stop());
}

/// 20 Mbit/s over a path that loses nothing: were a packet counted on the wrong side of a probe at either end, `loss` would
/// see a loss, and the estimate would fall.
#[test]
fn packets_are_counted_in_the_order_of_probes() {
    let Some(lab) = Lab::build("200mbit") else { return };
    let fast =
        sender(KEYED, "").replace("400kbit", "6mbit").replace("[control]", "[control]\ninitial = \"40mbit\"");
    let g2 = lab.start("g2", &lab.gateway("g2", &receiver(KEYED)));
    let g1 = lab.start("g1", &lab.gateway("g1", &fast));
    lab.until("g1", "answered", 5, |status| status.sender.as_ref().is_some_and(|s| s.answers > 0));
    let load = lab.start("s", "load 4000 25");
    thread::sleep(Duration::from_secs(1));
    let (mut estimate, mut falls) = (0, 0);
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(20) {
        let now = lab.status("g1").sender.expect("a sender").estimate;
        falls += u32::from(now < estimate);
        estimate = now;
        thread::sleep(Duration::from_millis(200));
    }
    let sender = lab.status("g1").sender.expect("a sender");
    let packets: u64 = sender.classes.iter().map(|class| class.packets).sum();
    let left_out = sender.rounds_left_out;
    println!(
        "{packets} packets in {} rounds, {left_out} left out: the estimate fell {falls} times",
        sender.questions
    );
    assert!(packets > 30_000, "{packets}");
    assert!(falls <= 1, "the estimate fell {falls} times");
    load.signal("-KILL");
    load.end();
    assert!(g1.stop() && g2.stop());
}
