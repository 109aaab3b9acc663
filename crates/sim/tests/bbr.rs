//! BBR, version 1, on one bottleneck: alone, against itself, next to CUBIC, and under random loss.
//!
//! What must hold is the paper's (Cardwell et al. 2016) and that of Hock, Bless and Zitterbart, "Experimental Evaluation of BBR
//! Congestion Control" (ICNP 2017): a full link and a short queue alone, more than its part behind a short buffer, less
//! behind a long one. `--nocapture` prints the tables.

use bandmaster_core::report::RunRecord;
use bandmaster_core::scenario::{Options, parse};
use bandmaster_sim::{RunOptions, run};

/// Payload of 50 Mbit/s: 1448 of 1514 bytes.
const PAYLOAD: f64 = 50.0 * 1448.0 / 1514.0;
/// Segments of 50 Mbit/s in 40 ms.
const BDP: f64 = 50e6 * 0.04 / 8.0 / 1514.0;

/// 50 Mbit/s and 40 ms, with flows of these controls.
fn scenario(controls: &[&str], buffer: f64, more: &str) -> String {
    let flows: String = controls
        .iter()
        .zip(["a", "b"])
        .map(|(control, host)| {
            format!(
                "[[flows]]\nname = \"{host}\"\nfrom = \"{host}\"\nto = \"server\"\nstart = \"uniform(0s, 1s)\"\n\
                 tcp = {{ congestion-control = \"{control}\" }}\n"
            )
        })
        .collect();
    let windows: String = ["a", "b"][..controls.len()]
        .iter()
        .map(|host| format!("{{ name = \"{host}\", from = \"10s\", to = \"60s\", of = \"{host}\" }}, "))
        .collect();
    format!(
        "version = 1\nname = \"bbr\"\n[run]\nduration = \"60s\"\nwarm-up = \"10s\"\n\
         [network]\nhosts = [\"a\", \"b\", \"server\"]\nrouters = [\"r1\", \"r2\"]\nhost-delay = 0.0\n\
         [network.link]\nrate = \"1gbit\"\ndelay = \"1ms\"\n\
         [[network.links]]\nends = [\"a\", \"r1\"]\n[[network.links]]\nends = [\"b\", \"r1\"]\n\
         [[network.links]]\nends = [\"r1\", \"r2\"]\nrate = \"50mbit\"\ndelay = \"18ms\"\nqueue = \"{}pkt\"\n{more}\n\
         [[network.links]]\nends = [\"r2\", \"server\"]\n\
         [tcp]\nloss-detection = \"rack\"\n{flows}\
         [measure]\nqueue = \"r1->r2\"\nwindows = [{windows}]\n",
        (buffer * BDP).round()
    )
}

fn records(text: &str, trials: u32) -> Vec<RunRecord> {
    let study = parse("bbr", text, &Options::default()).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let trial = |trial| run(&study.cases[0].scenario, 0, trial, &mut RunOptions::default()).expect("a run");
    (0..trials).map(trial).collect()
}

fn mean(records: &[RunRecord], name: &str) -> f64 {
    let of = |record: &RunRecord| {
        let metric = record.metrics.iter().find(|(own, _)| own == name);
        metric.unwrap_or_else(|| panic!("no metric {name}")).1
    };
    records.iter().map(of).sum::<f64>() / records.len() as f64
}

/// Alone, BBR fills the link behind any buffer. Its window of two products bounds the queue to one, and its pace keeps it far
/// below that, where CUBIC's fills the buffer.
#[test]
fn one_flow_fills_the_link_and_not_the_buffer() {
    println!("buffer, BDP   BBR, Mbit/s   queue   drops   CUBIC, Mbit/s   queue   drops");
    for buffer in [0.5, 1.0, 2.0, 5.0, 10.0] {
        let [bbr, cubic] = ["bbr", "cubic"].map(|control| {
            let records = records(&scenario(&[control], buffer, ""), 2);
            ["throughput", "queue", "drops"].map(|name| mean(&records, name))
        });
        println!(
            "{buffer:>11} {:>13.2} {:>7.1} {:>7.0} {:>15.2} {:>7.1} {:>7.0}",
            bbr[0], bbr[1], bbr[2], cubic[0], cubic[1], cubic[2]
        );
        assert!(bbr[0] > 0.95 * PAYLOAD, "{buffer} BDP: {} Mbit/s", bbr[0]);
        assert!(bbr[1] < 0.4 * BDP, "{buffer} BDP: {} packets", bbr[1]);
        if buffer >= 2.0 {
            assert!(bbr[1] < cubic[1] / 4.0, "{buffer} BDP: {} packets, CUBIC {}", bbr[1], cubic[1]);
        }
    }
}

#[test]
fn two_flows_share() {
    let records = records(&scenario(&["bbr", "bbr"], 2.0, ""), 4);
    let (both, first) = (mean(&records, "throughput"), mean(&records, "a.throughput"));
    println!("two BBR flows: {both:.2} Mbit/s, the first {first:.2}");
    assert!(both > 0.95 * PAYLOAD, "{both} Mbit/s");
    for record in &records {
        let one = std::slice::from_ref(record);
        let share = mean(one, "a.throughput") / mean(one, "throughput");
        assert!((0.3..0.7).contains(&share), "{share}");
    }
}

/// Behind a short buffer BBR takes most, since it does not answer losses; behind a long one CUBIC's queue bounds BBR's window.
#[test]
fn next_to_cubic_the_buffer_decides() {
    println!("buffer, BDP   BBR's share");
    let shares = [0.5, 1.0, 5.0, 20.0].map(|buffer| {
        let records = records(&scenario(&["bbr", "cubic"], buffer, ""), 4);
        let share = mean(&records, "a.throughput") / mean(&records, "throughput");
        println!("{buffer:>11} {share:>13.2}");
        share
    });
    assert!(shares[0] > 0.7, "short: {}", shares[0]);
    assert!(shares[3] < 0.5, "long: {}", shares[3]);
    assert!(shares.windows(2).all(|pair| pair[0] > pair[1]), "{shares:?}");
}

/// The paper's Figure 8: a loss of 1 % leaves BBR its rate, less what is lost, and CUBIC a small part.
#[test]
fn random_loss_does_not_slow_it() {
    let [bbr, cubic] = ["bbr", "cubic"]
        .map(|control| mean(&records(&scenario(&[control], 1.0, "loss = 0.01"), 2), "throughput"));
    println!("1 % loss: BBR {bbr:.2} Mbit/s, CUBIC {cubic:.2}");
    assert!(bbr > 0.9 * PAYLOAD, "{bbr} Mbit/s");
    assert!(cubic < 0.2 * PAYLOAD, "{cubic} Mbit/s");
}

/// The same trial draws the same phases, another one others.
#[test]
fn phases_are_drawn_by_trial() {
    let text = scenario(&["bbr"], 1.0, "");
    let queue =
        |trials| records(&text, trials).iter().map(|one| mean(std::slice::from_ref(one), "queue")).collect();
    let (first, again): (Vec<f64>, Vec<f64>) = (queue(2), queue(2));
    assert_eq!(first, again);
    assert_ne!(first[0], first[1]);
}
