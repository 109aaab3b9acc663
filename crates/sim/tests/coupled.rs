//! Coupled congestion controls over paths with losses, compared with a model of their published rules.
//!
//! The fixed points of the papers' differential equations are those of mean windows. Windows that halve fluctuate, and rules
//! with a maximum over the paths see that: LIA's and BALIA's take the better of two windows as if it stayed so, and OLIA moves
//! window to whichever path was lucky. The model has windows, losses and round-trip times, and knows nothing of segments'
//! acknowledgements and recovery but that a window is reduced once per round trip. It meets the same losses as the simulation.

use std::fmt::Write as _;

use bandmaster_core::capture::CapturedPacket;
use bandmaster_core::rng::Stream;
use bandmaster_core::scenario::{Options, parse};
use bandmaster_sim::{RunOptions, run};

/// Simulated time, and what of it does not count.
const SECONDS: u32 = 1_000;
const WARM_UP: f64 = 20.0;

/// Which segments of a path are lost, and its round-trip time in seconds.
struct Conditions {
    name: &'static str,
    lost: Vec<u64>,
    rtt: f64,
}

impl Conditions {
    /// Each segment is lost with probability `loss`.
    fn random(name: &'static str, loss: f64, rtt: f64) -> Self {
        let mut stream = Stream::new(11, 0, name);
        Self { name, lost: (1..3_000_000).filter(|_| stream.chance(loss)).collect(), rtt }
    }

    /// One segment in so many is lost.
    fn even(name: &'static str, every: u64, rtt: f64) -> Self {
        Self { name, lost: (1..3_000_000 / every).map(|n| n * every).collect(), rtt }
    }
}

/// A path of the model: windows in segments, times in seconds.
struct Path<'a> {
    /// Ordinals of segments that will be lost, the next first, and segments so far.
    lost: &'a [u64],
    sent: u64,
    rtt: f64,
    window: f64,
    threshold: f64,
    next: f64,
    recovers_until: f64,
    since_loss: f64,
    between_losses: f64,
    delivered: f64,
}

impl<'a> Path<'a> {
    fn new(conditions: &'a Conditions) -> Self {
        let rtt = conditions.rtt;
        Self {
            lost: &conditions.lost,
            sent: 0,
            rtt,
            window: 10.0,
            threshold: f64::INFINITY,
            next: rtt / 10.0,
            recovers_until: 0.0,
            since_loss: 0.0,
            between_losses: 0.0,
            delivered: 0.0,
        }
    }

    fn rate(&self) -> f64 {
        self.window / self.rtt
    }
}

/// Growth of window `at` for an acknowledged segment: RFC 6356, Khalili et al. equations 5 and 6, Peng et al. Algorithm 1.
fn growth(control: &str, paths: &[Path<'_>], at: usize) -> f64 {
    let own = &paths[at];
    let total: f64 = paths.iter().map(Path::rate).sum();
    let coupled = own.rate() / own.rtt / (total * total);
    let most = |f: &dyn Fn(&Path<'_>) -> f64| paths.iter().map(f).fold(0.0, f64::max);
    match control {
        "lia" => (most(&|p| p.rate() / p.rtt) / (total * total)).min(1.0 / own.window),
        "balia" => {
            let alpha = most(&|p| p.rate()) / own.rate();
            coupled * (1.0 + alpha) / 2.0 * (4.0 + alpha) / 5.0
        }
        "olia" => {
            let quality = |p: &Path<'_>| p.since_loss.max(p.between_losses).powi(2) / p.rtt;
            let (best, largest) = (most(&quality), most(&|p| p.window));
            let is_best = |p: &Path<'_>| quality(p) >= best;
            let is_largest = |p: &Path<'_>| p.window >= largest;
            let collected = paths.iter().filter(|p| is_best(p) && !is_largest(p)).count() as f64;
            let n = paths.len() as f64;
            let alpha = if collected == 0.0 {
                0.0
            } else if is_best(own) && !is_largest(own) {
                1.0 / (n * collected)
            } else if is_largest(own) {
                -1.0 / (n * paths.iter().filter(|p| is_largest(p)).count() as f64)
            } else {
                0.0
            };
            coupled + alpha / own.window
        }
        _ => 1.0 / own.window,
    }
}

/// Segments per second that each path delivers by the model.
fn model(control: &str, conditions: &[&Conditions]) -> Vec<f64> {
    let mut paths: Vec<Path<'_>> = conditions.iter().map(|path| Path::new(path)).collect();
    let mut is_warm = false;
    loop {
        let mut at = 0;
        for i in 1..paths.len() {
            if paths[i].next < paths[at].next {
                at = i;
            }
        }
        let now = paths[at].next;
        if now > f64::from(SECONDS) {
            break;
        }
        if now > WARM_UP && !std::mem::replace(&mut is_warm, true) {
            paths.iter_mut().for_each(|path| path.delivered = 0.0);
        }
        let fastest = paths.iter().map(Path::rate).fold(0.0, f64::max);
        let grown = growth(control, &paths, at);
        let path = &mut paths[at];
        path.next = now + path.rtt / path.window;
        path.sent += 1;
        let recovers = now < path.recovers_until;
        let is_lost = path.lost.first() == Some(&path.sent);
        if !is_lost {
            path.delivered += 1.0;
            path.since_loss += 1.0;
            if !recovers {
                let grown = if path.window < path.threshold { 1.0 } else { grown };
                path.window = (path.window + grown).max(1.0);
            }
            continue;
        }
        path.lost = &path.lost[1..];
        if !recovers {
            let alpha = if control == "balia" { fastest / path.rate() } else { 1.0 };
            path.window = (path.window * (1.0 - alpha.min(1.5) / 2.0)).max(2.0);
            path.threshold = path.window;
            path.recovers_until = now + path.rtt;
            path.between_losses = std::mem::take(&mut path.since_loss);
        }
    }
    paths.iter().map(|path| path.delivered / (f64::from(SECONDS) - WARM_UP)).collect()
}

/// Segments per second that come over each of two paths.
fn simulated(control: &str, subflows: u32, paths: [&Conditions; 2]) -> [f64; 2] {
    let mut text = format!(
        "version = 1\nname = \"t\"\n[run]\nduration = \"{SECONDS}s\"\nsample = \"10s\"\ntrials = 1\n\
         [network]\nhosts = [\"s\", \"d\"]\nrouters = [\"r1\", \"r2\"]\nhost-delay = 0.0\nframe-overhead = \"2B\"\n\
         [network.link]\nrate = \"10gbit\"\nqueue = \"10000pkt\"\ndelay = \"1us\"\n"
    );
    for (router, Conditions { lost, rtt, .. }) in ["r1", "r2"].iter().zip(paths) {
        let _ = write!(
            text,
            "[[network.links]]\nends = [\"s\", \"{router}\"]\ndelay = \"{}us\"\ndrop-packets = {lost:?}\n\
             [[network.links]]\nends = [\"{router}\", \"d\"]\n",
            rtt * 5e5
        );
    }
    let flow = if subflows > 1 { format!("subflows = {subflows}") } else { "paths = [\"r1\"]".to_owned() };
    let _ = write!(
        text,
        "[tcp]\nmss = \"1000B\"\ndelayed-ack = \"1pkt\"\nreceive-buffer = \"64MiB\"\nrecovery = \"rfc6675\"\n\
         congestion-control = \"{control}\"\n[[flows]]\nname = \"f\"\nfrom = \"s\"\nto = \"d\"\n{flow}\n\
         [measure]\nrecord = \"none\"\nlong-interval = \"10s\"\n"
    );
    let study = parse("t.toml", &text, &Options::default()).unwrap_or_else(|e| panic!("{e}"));
    ["r1->d", "r2->d"].map(|port| {
        let mut bytes = 0.0;
        let mut count = |packet: &CapturedPacket| {
            if packet.at.as_secs_f64() > WARM_UP {
                bytes += f64::from(packet.payload);
            }
        };
        let mut options = RunOptions { capture: Some((port, &mut count)), ..RunOptions::default() };
        run(&study.cases[0].scenario, 0, 0, &mut options).unwrap_or_else(|e| panic!("{e}"));
        bytes / 1000.0 / (f64::from(SECONDS) - WARM_UP)
    })
}

/// Two paths with equal losses, with losses p and 4 p, and with round-trip times of 20 and 60 ms. Losses are random; p and 4 p are
/// also spaced evenly. Equal paths are not: OLIA's estimates would tie for ever, and the order of acknowledgements decide. A
/// TCP's rate, and each control's total and its rate over the first path, are within 5 % of the model's. The rate over the
/// second path is within 5 % of the total.
#[test]
fn rates_over_paths_with_losses_are_those_of_the_rules() {
    let first = Conditions::random("first", 0.001, 0.02);
    let even = Conditions::even("even", 1000, 0.02);
    let cases = [
        (&first, Conditions::random("alike", 0.001, 0.02)),
        (&first, Conditions::random("lossy", 0.004, 0.02)),
        (&first, Conditions::random("long", 0.001, 0.06)),
        (&even, Conditions::even("even-lossy", 250, 0.02)),
    ];
    let mut table = String::new();
    let mut wrong = Vec::new();
    for (name, path) in [("random", &first), ("even", &even)] {
        let [came, expected] = [simulated("lia", 1, [path, path])[0], model("tcp", &[path])[0]];
        // A coupled control without subflows is TCP.
        let _ = writeln!(
            table,
            "TCP   {name:<10} {came:.0} segments/s, model {expected:.0}: {:.3}",
            came / expected
        );
        if (came / expected - 1.0).abs() > 0.05 {
            wrong.push(("tcp", name));
        }
    }
    for control in ["lia", "olia", "balia"] {
        for (first, second) in &cases {
            let expected = model(control, &[first, second]);
            let came = simulated(control, 2, [first, second]);
            let sums = [came[0] + came[1], expected[0] + expected[1]];
            let ratios = [came[0] / expected[0], sums[0] / sums[1]];
            let share = (came[1] - expected[1]).abs() / sums[1];
            let _ = writeln!(
                table,
                "{control:<5} {:<10} {:.0} + {:.0} segments/s, model {:.0} + {:.0}: {:.3}, in all {:.3}",
                second.name, came[0], came[1], expected[0], expected[1], ratios[0], ratios[1]
            );
            if ratios.iter().any(|ratio| (ratio - 1.0).abs() > 0.05) || share > 0.05 {
                wrong.push((control, second.name));
            }
        }
    }
    println!("{table}");
    assert!(wrong.is_empty(), "do not hold: {wrong:?}\n{table}");
}
