//! BAS where its servers send.

use bandmaster_core::report::RunRecord;
use bandmaster_core::scenario::{Options, parse};
use bandmaster_sim::{RunOptions, run};

/// Goodput that a link of so many Mbit/s can carry: payload of 1448 bytes in frames of 1514.
fn limit(rate: u32) -> f64 {
    f64::from(rate) * 1448.0 / 1514.0
}

/// Four clients at 3, 6, 11 and 21 ms from a server behind a link of `rate` Mbit/s, with these flows and keys of the
/// scheme.
fn served(rate: u32, flows: &str, keys: &str, seed: u64) -> RunRecord {
    let clients = [2, 5, 10, 20].iter().enumerate();
    let links = clients.map(|(n, delay)| {
        format!("[[network.links]]\nends = [\"r\", \"c{n}\"]\nrate = \"1gbit\"\ndelay = \"{delay}ms\"\n")
    });
    let text = format!(
        "version = 1\nname = \"served\"\n[run]\nduration = \"20s\"\nwarm-up = \"5s\"\nseed = {seed}\n\
         [network]\nhosts = [\"server\", \"c0\", \"c1\", \"c2\", \"c3\"]\nrouters = [\"edge\", \"r\"]\n\
         frame-overhead = \"14B\"\n\
         [[network.links]]\nends = [\"server\", \"edge\"]\nrate = \"1gbit\"\nqueue = \"1000pkt\"\n\
         [[network.links]]\nends = [\"edge\", \"r\"]\nrate = \"{rate}mbit\"\ndelay = \"1ms\"\nqueue = \"1000pkt\"\n\
         {}{flows}\n[schemes.bas]\nservers = [\"server\"]\ndomain = [\"server\", \"edge\", \"r\"]\n{keys}\n",
        links.collect::<String>()
    );
    let study = parse("served.toml", &text, &Options::default()).unwrap_or_else(|e| panic!("{e}\n{text}"));
    run(&study.cases[0].scenario, 0, 0, &mut RunOptions::default()).unwrap_or_else(|e| panic!("{e}"))
}

fn group(name: &str, from: &str, to: &str) -> String {
    format!("[[flows]]\nname = \"{name}\"\nfrom = {from}\nto = {to}\npairing = \"all-to-all\"\n")
}

const CLIENTS: &str = "[\"c0\", \"c1\", \"c2\", \"c3\"]";

/// Windows of the smoothed round-trip time kept up a queue of 595 packets; before servers counted flows, downloads were
/// given nothing at all.
#[test]
fn downloads_share_the_link_without_a_queue() {
    let downloads = group("downloads", "\"server\"", CLIENTS);
    let max_min = "allocator = \"max-min\"";
    let bas = [(10, "", 1), (10, "", 2), (20, "", 1), (50, "", 1), (100, "", 1), (100, "", 2), (100, "", 3)];
    for (rate, keys, seed) in bas.into_iter().chain([(10, max_min, 1), (100, max_min, 1), (1000, max_min, 1)])
    {
        let record = served(rate, &downloads, keys, seed);
        let metric = |name| record.metric(name).unwrap_or(f64::NAN);
        let (throughput, jain, queue) = (metric("throughput"), metric("jain_long"), metric("queue_max"));
        println!(
            "{rate} Mbit/s {keys:?} {seed}: {throughput:.2} Mbit/s, Jain {jain:.4}, queue at most {queue}"
        );
        assert!(
            throughput > 0.95 * limit(rate) && throughput < 1.001 * limit(rate),
            "{throughput} of {}",
            limit(rate)
        );
        assert!(jain > 0.99, "{jain}");
        assert!(queue < 100.0, "{queue} packets");
        assert_eq!(metric("refusals"), 0.0);
    }
}

/// Acknowledgements of downloads come by the ports of uploads: they take no share of them. Counted as
/// flows, they would halve every share.
#[test]
fn the_two_directions_are_shared_apart() {
    let both = group("downloads", "\"server\"", CLIENTS) + &group("uploads", CLIENTS, "\"server\"");
    let record = served(100, &both, "", 1);
    let throughput = record.metric("throughput").unwrap_or(f64::NAN);
    assert!(throughput > 1.5 * limit(100), "{throughput} Mbit/s of {} each way", limit(100));
}

/// A first share that is lost leaves the window closed, and a client probes it. Its probe was taken for the answer to a keep-alive that
/// had just left, so that the round-trip time was too short for ever: the flow counted as limited elsewhere.
#[test]
fn a_window_probe_is_no_answer_to_a_keep_alive() {
    let uploads =
        group("uploads", CLIENTS, "\"server\"") + "[tcp]\ntimestamps = false\n[control]\nloss = 0.4\n";
    let keys = "allocator = \"max-min\"\nreceivers = \"windows\"";
    for seed in 1..=10 {
        let record = served(100, &uploads, keys, seed);
        let jain = record.metric("jain_long").unwrap_or(f64::NAN);
        println!("seed {seed}: {jain:.4}");
        assert!(jain > 0.98, "seed {seed}: {jain}");
    }
}
