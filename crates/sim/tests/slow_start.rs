//! How slow start ends over a path whose queue it may overflow.

use bandmaster_core::report::RunRecord;
use bandmaster_core::scenario::{Options, parse};
use bandmaster_sim::{RunOptions, run};

/// 3 s over 50 Mbit/s with 40 ms of propagation there and back, which hold 170 segments, and a queue of 1600.
fn first_seconds(tcp: &str) -> RunRecord {
    let text = format!(
        "version = 1\nname = \"start\"\n[run]\nduration = \"3s\"\n[tcp]\nreceive-buffer = \"64MiB\"\n{tcp}\n\
         [[flows]]\nname = \"flow\"\nfrom = \"tx\"\nto = \"rx\"\n\
         [network]\nhosts = [\"tx\", \"rx\"]\nrouters = [\"r\"]\n\
         [[network.links]]\nends = [\"tx\", \"r\"]\nrate = \"1gbit\"\ndelay = \"0ms\"\n\
         [[network.links]]\nends = [\"r\", \"rx\"]\nrate = \"50mbit\"\ndelay = \"20ms\"\nqueue = \"1600pkt\"\n\
         [measure]\nqueue = \"r->rx\"\n"
    );
    let study = parse("start", &text, &Options::default()).unwrap_or_else(|e| panic!("{e}\n{text}"));
    run(&study.cases[0].scenario, 0, 0, &mut RunOptions::default()).expect("a run")
}

/// RFC 9406: slow start overshoots by as many segments as path and queue hold. HyStart++ has left it before, and fills the link.
#[test]
fn hystart_plus_plus_leaves_slow_start_before_the_queue_overflows() {
    for control in ["cubic", "newreno"] {
        let run = |hystart| {
            let tcp = format!(
                "congestion-control = \"{control}\"\nhystart = {hystart}\nhystart-rules = \"rfc9406\""
            );
            first_seconds(&tcp)
        };
        let metric = |record: &RunRecord, name: &str| record.metric(name).expect("a metric");
        let [plain, careful] = [false, true].map(run);
        let drops = [&plain, &careful].map(|record| metric(record, "drops"));
        assert!(drops[0] > 1000.0 && drops[1] == 0.0, "{control}: {drops:?}");
        let rates = [&plain, &careful].map(|record| metric(record, "throughput"));
        assert!(rates[1] > 0.95 * rates[0], "{control}: {rates:?}");
    }
}
