//! Coupled congestion controls over paths with random losses, beside a model of their published rules.
//!
//! The fixed points of the papers' differential equations are those of mean windows. Windows that halve at random fluctuate,
//! and rules with a maximum over the paths see that: LIA's and BALIA's take the better of two windows as if it stayed so. So
//! the model draws losses too, and knows nothing of segments, acknowledgements or recovery but their rates.

use std::fmt::Write as _;

use bandmaster_core::capture::CapturedPacket;
use bandmaster_core::rng::Stream;
use bandmaster_core::scenario::{Options, parse};
use bandmaster_sim::{RunOptions, run};

/// A path of the model: windows in segments, times in seconds.
struct Path {
    loss: f64,
    rtt: f64,
    window: f64,
    threshold: f64,
    next: f64,
    recovers_until: f64,
    since_loss: f64,
    between_losses: f64,
    delivered: f64,
}

impl Path {
    fn new((loss, rtt): (f64, f64)) -> Self {
        Self {
            loss,
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
fn growth(control: &str, paths: &[Path], at: usize) -> f64 {
    let own = &paths[at];
    let total: f64 = paths.iter().map(Path::rate).sum();
    let coupled = own.rate() / own.rtt / (total * total);
    let most = |f: &dyn Fn(&Path) -> f64| paths.iter().map(f).fold(0.0, f64::max);
    match control {
        "lia" => (most(&|p| p.rate() / p.rtt) / (total * total)).min(1.0 / own.window),
        "balia" => {
            let alpha = most(&Path::rate) / own.rate();
            coupled * (1.0 + alpha) / 2.0 * (4.0 + alpha) / 5.0
        }
        "olia" => {
            let quality = |p: &Path| p.since_loss.max(p.between_losses).powi(2) / p.rtt;
            let (best, largest) = (most(&quality), most(&|p| p.window));
            let is_best = |p: &Path| quality(p) >= best;
            let is_largest = |p: &Path| p.window >= largest;
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
fn model(control: &str, paths: &[(f64, f64)], segments: u32) -> Vec<f64> {
    let mut stream = Stream::new(7, 0, control);
    let mut paths: Vec<Path> = paths.iter().map(|path| Path::new(*path)).collect();
    let mut began = 0.0;
    let mut now = 0.0;
    for n in 0..segments {
        let at =
            (1..paths.len()).fold(0, |least, i| if paths[i].next < paths[least].next { i } else { least });
        now = paths[at].next;
        if n == segments / 20 {
            began = now;
            paths.iter_mut().for_each(|path| path.delivered = 0.0);
        }
        let fastest = paths.iter().map(Path::rate).fold(0.0, f64::max);
        let grown = growth(control, &paths, at);
        let path = &mut paths[at];
        path.next = now + path.rtt / path.window;
        let recovers = now < path.recovers_until;
        if !stream.chance(path.loss) {
            path.delivered += 1.0;
            path.since_loss += 1.0;
            if !recovers {
                let grown = if path.window < path.threshold { 1.0 } else { grown };
                path.window = (path.window + grown).max(1.0);
            }
        } else if !recovers {
            let alpha = if control == "balia" { fastest / path.rate() } else { 1.0 };
            path.window = (path.window * (1.0 - alpha.min(1.5) / 2.0)).max(2.0);
            path.threshold = path.window;
            path.recovers_until = now + path.rtt;
            path.between_losses = std::mem::take(&mut path.since_loss);
        }
    }
    paths.iter().map(|path| path.delivered / (now - began)).collect()
}

/// Segments per second that come over each of two paths, of losses and round-trip times.
fn simulated(control: &str, subflows: u32, paths: [(f64, f64); 2], seconds: u32) -> [f64; 2] {
    let mut text = format!(
        "version = 1\nname = \"t\"\n[run]\nduration = \"{seconds}s\"\nsample = \"10s\"\ntrials = 1\nseed = 3\n\
         [network]\nhosts = [\"s\", \"d\"]\nrouters = [\"r1\", \"r2\"]\nhost-delay = 0.0\nframe-overhead = \"2B\"\n\
         [network.link]\nrate = \"10gbit\"\nqueue = \"10000pkt\"\ndelay = \"1us\"\n"
    );
    for (router, (loss, rtt)) in ["r1", "r2"].iter().zip(paths) {
        let _ = write!(
            text,
            "[[network.links]]\nends = [\"s\", \"{router}\"]\ndelay = \"{}us\"\nloss = {loss}\n\
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
    let study = parse("t.toml", &text, &Options::default()).unwrap_or_else(|e| panic!("{e}\n{text}"));
    ["r1->d", "r2->d"].map(|port| {
        let mut bytes = 0.0;
        let mut count = |packet: &CapturedPacket| {
            if packet.at.as_nanos() > 20_000_000_000 {
                bytes += f64::from(packet.payload);
            }
        };
        let mut options = RunOptions { capture: Some((port, &mut count)), ..RunOptions::default() };
        run(&study.cases[0].scenario, 0, 0, &mut options).unwrap_or_else(|e| panic!("{e}"));
        bytes / 1000.0 / f64::from(seconds - 20)
    })
}

/// Equal losses, losses p and 4 p, and round-trip times of 20 and 60 ms: the rate over each path beside the model's, within 5 %.
#[test]
fn rates_over_paths_with_random_losses_are_those_of_the_rules() {
    let mut table = String::new();
    let mut wrong = Vec::new();
    let cases =
        [[(0.001, 0.02), (0.001, 0.02)], [(0.001, 0.02), (0.004, 0.02)], [(0.001, 0.02), (0.001, 0.06)]];
    for control in ["lia", "olia", "balia"] {
        for paths in cases {
            let expected = model(control, &paths, 3_000_000);
            let came = simulated(control, 2, paths, 1_500);
            let ratio = [came[0] / expected[0], came[1] / expected[1]];
            let whole = (came[0] + came[1]) / (expected[0] + expected[1]);
            let _ = writeln!(
                table,
                "{control:<8} {paths:?}: {:.0} + {:.0} segments/s, model {:.0} + {:.0}: {:.3}, {:.3}, in all {whole:.3}",
                came[0], came[1], expected[0], expected[1], ratio[0], ratio[1]
            );
            if ratio.iter().chain([&whole]).any(|ratio| (ratio - 1.0).abs() > 0.05) {
                wrong.push((control, paths));
            }
        }
    }
    // A coupled control without subflows is TCP.
    let tcp = simulated("lia", 1, cases[0], 1_500)[0] / model("tcp", &cases[0][..1], 2_000_000)[0];
    let _ = writeln!(table, "TCP: {tcp:.3} of the model");
    if (tcp - 1.0).abs() > 0.05 {
        wrong.push(("tcp", cases[0]));
    }
    println!("{table}");
    assert!(wrong.is_empty(), "do not hold: {wrong:?}\n{table}");
}
