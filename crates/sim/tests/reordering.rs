//! Segments that arrive late and are not lost: what RFC 6675 and RFC 8985 send again, and what DSACK (RFC 2883) changes.

use bandmaster_core::report::RunRecord;
use bandmaster_core::scenario::{Options, parse};
use bandmaster_sim::{RunOptions, run};

/// A twentieth of the segments, drawn, takes 3 ms longer than the others' 10 ms.
const LATE: &str = "delay = \"13ms\"\nreorder = 0.95\nreorder-delay = \"10ms\"";
/// Each segment takes up to 9 ms longer.
const MIXED: &str = "delay = \"10ms\"\njitter = \"uniform(0ms, 9ms)\"\njitter-reorders = true";

/// 3000 segments over a wire of 10 Mbit/s, one in 0.84 ms.
fn transfer(wire: &str, tcp: &str) -> RunRecord {
    let text = format!(
        "version = 1\nname = \"late\"\n[run]\nduration = \"60s\"\n\
         [tcp]\nmss = \"1000B\"\ncongestion-control = \"newreno\"\ncwnd-clamp = \"30pkt\"\n{tcp}\n\
         [[flows]]\nname = \"flow\"\nfrom = \"tx\"\nto = \"rx\"\nsize = \"3MB\"\n\
         [network]\nframe-overhead = \"0B\"\nhost-delay = 0.0\nhosts = [\"tx\", \"rx\"]\n\
         [[network.links]]\nends = [\"tx\", \"rx\"]\nrate = \"10mbit\"\n{wire}\n"
    );
    let study = parse("late", &text, &Options::default()).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let record = run(&study.cases[0].scenario, 0, 0, &mut RunOptions::default()).expect("a run");
    assert_eq!(record.metric("completed"), Some(1.0), "{tcp}");
    assert_eq!(record.metric("rtos"), Some(0.0), "{tcp}");
    record
}

fn metric(record: &RunRecord, name: &str) -> f64 {
    record.metric(name).expect("a metric")
}

/// RFC 8985 section 9.1, example 3: once reordering has been seen, what arrives within a quarter of the least round-trip time, 5 ms,
/// is not lost. Three later segments arrive in 3 ms, which are enough for RFC 6675.
#[test]
fn rack_waits_for_late_segments_which_three_sacks_make_lost() {
    let counts = transfer(LATE, "loss-detection = \"rfc6675\"");
    let times = transfer(LATE, "loss-detection = \"rack\"");
    let needless = [&counts, &times].map(|record| metric(record, "retransmits"));
    // Before it has seen reordering, RACK counts to three too (section 6.2, step 4).
    assert!(needless[0] >= 40.0 && needless[1] <= 10.0, "{needless:?}");
    assert!(metric(&times, "fct_mean") < metric(&counts, "fct_mean"));
}

/// RFC 8985 section 6.2, step 4: 8 ms are longer than a quarter of the least round-trip time, and shorter than two. The first duplicate
/// widens the window, and sixteen recoveries without one narrow it again.
#[test]
fn duplicates_widen_the_reordering_window() {
    let rack = |dsack| transfer(MIXED, &format!("loss-detection = \"rack\"\ndsack = {dsack}"));
    let needless = [false, true].map(|dsack| metric(&rack(dsack), "retransmits"));
    assert!(needless[0] >= 50.0 && needless[1] <= needless[0] / 4.0, "{needless:?}");
}

/// RFC 3708: what is sent again is reported as a duplicate, so that the window is what it was.
#[test]
fn duplicates_undo_a_needless_reduction() {
    let counts = |dsack| transfer(LATE, &format!("loss-detection = \"rfc6675\"\ndsack = {dsack}"));
    let [silent, reports] = [false, true].map(counts);
    assert!(metric(&reports, "retransmits") >= 40.0);
    let times = [&silent, &reports].map(|record| metric(record, "fct_mean"));
    assert!(times[1] < 0.9 * times[0], "{times:?}");
}
