//! Links whose capacity changes with time, from the scenario file to the metrics.

use bandmaster_core::report::{RunRecord, Series};
use bandmaster_core::scenario::{Files, Options, parse};
use bandmaster_sim::{RunOptions, run};

/// Opportunities in each 10 ms: at 1, 1, 2, 7 and 10 ms.
const TRACE: &str = "1\n1\n2\n7\n10\n";

#[derive(Debug)]
struct Beside;

impl Files for Beside {
    fn read(&self, name: &str) -> Result<String, String> {
        assert_eq!(name, "some.trace");
        Ok(TRACE.to_owned())
    }
}

/// Datagrams of 1500 bytes at `rate` over a link with `capacity` and `queue`, 1504 bytes each there.
fn load(rate: &str, capacity: &str, queue: &str) -> RunRecord {
    let text = format!(
        "version = 1\nname = \"load\"\n[run]\nduration = \"21s\"\nwarm-up = \"1s\"\nsample = \"10ms\"\n\
         [network]\nhosts = [\"tx\", \"rx\"]\nrouters = [\"r\"]\nframe-overhead = \"4B\"\n\
         [[network.links]]\nends = [\"tx\", \"r\"]\nrate = \"1gbit\"\n\
         [[network.links]]\nends = [\"r\", \"rx\"]\nrate = \"6mbit\"\nqueue = {queue}\ndelay = \"5500us\"\n{capacity}\n\
         [[flows]]\nname = \"load\"\nfrom = \"tx\"\nto = \"rx\"\ntransport = \"udp\"\nrate = \"{rate}\"\n\
         measured = true\n[measure]\nqueue = \"r->rx\"\n"
    );
    let options = Options { files: Some(&Beside), ..Options::default() };
    let study = parse("load", &text, &options).unwrap_or_else(|e| panic!("{e}\n{text}"));
    run(&study.cases[0].scenario, 0, 0, &mut RunOptions::default()).expect("a run")
}

/// Datagrams that arrived in each sampling interval.
fn arrived(record: &RunRecord) -> Vec<f64> {
    let is_load = |s: &&Series| s.entity == "all" && s.metric == "throughput";
    let series = record.series.iter().find(is_load).expect("a series");
    series.values.iter().map(|mbit| (f64::from(*mbit) * 1e6 * 0.010 / 8.0 / 1472.0).round()).collect()
}

/// CAKE without overflows: after one, BLUE's drops leave a queue that is empty now and then.
const QUEUES: [&str; 13] = [
    "\"30pkt\"",
    "{ discipline = \"red\", min-th = \"10pkt\", max-th = \"25pkt\", limit = \"30pkt\" }",
    "{ discipline = \"ared\", target-delay = \"15ms\", limit = \"60pkt\" }",
    "{ discipline = \"pie\" }",
    "{ discipline = \"codel\" }",
    "{ discipline = \"fq-codel\" }",
    "{ discipline = \"fq-pie\" }",
    "{ discipline = \"cake\", limit = \"unlimited\" }",
    "{ discipline = \"cake\", rate = \"50mbit\", limit = \"unlimited\" }",
    "{ discipline = \"drr\", limit = \"30pkt\" }",
    "{ discipline = \"prio\", limit = \"30pkt\" }",
    "{ discipline = \"tbf\", rate = \"50mbit\", limit = \"30pkt\" }",
    "{ discipline = \"htb\", rate = \"50mbit\", limit = \"30pkt\" }",
];

/// A datagram takes one opportunity: with more of them than opportunities, each 10 ms bring 5, whatever orders them.
#[test]
fn a_trace_delivers_its_opportunities_behind_every_discipline() {
    for queue in QUEUES {
        let record = load("20mbit", "capacity.trace = \"some.trace\"", queue);
        let arrived = arrived(&record);
        assert!(arrived.iter().all(|n| *n <= 5.0), "{queue}: {arrived:?}");
        assert_eq!(arrived[100..].iter().sum::<f64>(), 10_000.0, "{queue}");
        // A datagram fills an opportunity. Of 10,000, one or two begin on the other side of an end of the window.
        let used = record.metric("link_use").expect("a metric");
        assert!((used - 100.0).abs() <= 0.02, "{queue}: {used} %");
    }
}

/// 5 Mbit/s arrive where 4 can leave: 1504 bytes of 1500 carry the load, so 21 s leave 21 s x 1.0133 Mbit/s behind.
#[test]
fn the_largest_queue_is_counted_without_a_limit_too() {
    let waits = 21.0 * (5e6 * 1504.0 / 1500.0 - 4e6) / (8.0 * 1504.0);
    for queue in
        ["\"unlimited\"", "\"100000pkt\"", "\"100MB\"", "{ discipline = \"drr\", limit = \"unlimited\" }"]
    {
        let record = load("5mbit", "capacity.steps = [{ at = \"1ms\", rate = \"4mbit\" }]", queue);
        let largest = record.metric("queue_max").expect("a metric");
        assert!((largest - waits).abs() <= 2.0, "{queue}: {largest} packets, {waits}");
    }
}

/// 6 Mbit/s for 1 s of 2 s and 0.6 Mbit/s for half a second, then nothing: 0.75 + 0.0375 MB a period. ARED's
/// average is as long as a second of arrivals: after a pause it drops everything, its queue runs empty, and the average
/// still falls.
#[test]
fn steps_deliver_their_mean_behind_every_discipline() {
    let capacity = "capacity.steps = [{ at = \"1s\", rate = \"600kbit\" }, { at = \"1500ms\", rate = \"0bit\" }]\n\
                    capacity.period = \"2s\"";
    let mean = (6.0 + 0.3) / 2.0 * 1472.0 / 1504.0;
    for queue in QUEUES {
        let record = load("20mbit", capacity, queue);
        let ratio = record.metric("throughput").expect("a metric") / mean;
        println!("{queue}: {ratio:.4} of the mean");
        // The ends of the window are worth a datagram in 5000 each.
        let low = if queue.contains("ared") { 0.7 } else { 0.999 };
        assert!((low..1.001).contains(&ratio), "{queue}: {ratio}");
        // Of what the steps offer, not of the link's rate. Those on the wire at the two ends are up to 4 of 5236.
        let used = record.metric("link_use").expect("a metric") / 100.0;
        assert!((used - ratio).abs() < 0.001, "{queue}: {used} used, {ratio} arrived");
    }
}

/// The other direction keeps the link's rate; a capacity that falls to nothing in between loses nothing.
#[test]
fn directions_have_capacities_of_their_own() {
    let pause = "{ steps = [{ at = \"5s\", rate = \"0bit\" }, { at = \"6s\", rate = \"6mbit\" }] }";
    let forward = load("5mbit", &format!("capacity = {pause}"), "\"1000pkt\"");
    let back = load("5mbit", &format!("capacity-back = {pause}"), "\"1000pkt\"");
    assert_eq!((forward.metric("drops"), back.metric("drops")), (Some(0.0), Some(0.0)));
    let in_pause = |record: &RunRecord| arrived(record)[501..600].iter().sum::<f64>();
    assert_eq!(in_pause(&forward), 0.0);
    // 99 intervals of 10 ms at 5 Mbit/s are 412.5 datagrams.
    assert!((in_pause(&back) - 412.5).abs() <= 1.0, "{}", in_pause(&back));
    // In the pause 416 wait, and one is with the transmitter.
    assert_eq!(forward.metric("queue_max").map(|n| (n - 416.0).abs() <= 1.0), Some(true), "{forward:?}");
}

/// Both directions of the link at once: each carries what its own rate allows, of 1500 bytes 1472 payload.
#[test]
fn directions_have_rates_of_their_own() {
    let flow = |name: &str, from: &str, to: &str| {
        format!(
            "[[flows]]\nname = \"{name}\"\nfrom = \"{from}\"\nto = \"{to}\"\ntransport = \"udp\"\nrate = \"30mbit\"\nmeasured = true\n"
        )
    };
    let throughputs = |rates: &str| {
        let text = format!(
            "version = 1\nname = \"load\"\n[run]\nduration = \"21s\"\nwarm-up = \"1s\"\n\
             [network]\nhosts = [\"tx\", \"rx\"]\nrouters = [\"r\"]\nframe-overhead = \"0B\"\n\
             [[network.links]]\nends = [\"tx\", \"r\"]\n{rates}\n\
             [[network.links]]\nends = [\"r\", \"rx\"]\nrate = \"1gbit\"\n{}{}",
            flow("up", "tx", "rx"),
            flow("down", "rx", "tx")
        );
        let study = parse("load", &text, &Options::default()).unwrap_or_else(|e| panic!("{e}\n{text}"));
        let record = run(&study.cases[0].scenario, 0, 0, &mut RunOptions::default()).expect("a run");
        ["tx", "rx"].map(|name| {
            let is_own = |s: &&Series| s.entity == name && s.metric == "throughput";
            let values = &record.series.iter().find(is_own).expect("a series").values;
            values.iter().map(|mbit| f64::from(*mbit)).sum::<f64>() / values.len() as f64
        })
    };
    let payload = 1472.0 / 1500.0;
    for (rates, wanted) in [
        ("rate = \"2mbit\"\nrate-back = \"20mbit\"", [2.0, 20.0]),
        ("rate = \"20mbit\"\nrate-back = \"2mbit\"", [20.0, 2.0]),
        ("rate = \"20mbit\"", [20.0, 20.0]),
    ] {
        for (seen, wanted) in throughputs(rates).into_iter().zip(wanted) {
            assert!((seen / (wanted * payload) - 1.0).abs() < 0.002, "{rates}: {seen} for {wanted}");
        }
    }
}
