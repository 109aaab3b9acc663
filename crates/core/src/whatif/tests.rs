use super::*;
use crate::controller::{Deployment, Host, parse};
use crate::file::Files;
use crate::scenario::Options;
use crate::scheme::opentcp;
use crate::sketch::{About, BURST, INTERVAL, Row, parts, read};

#[derive(Debug)]
struct Beside(BTreeMap<String, String>);

impl Files for Beside {
    fn read(&self, name: &str) -> Result<String, String> {
        self.0.get(name).cloned().ok_or_else(|| "no such file".to_owned())
    }
}

const LINKS: &str = "[[links]]\nends = [\"a.example\", \"tor\"]\nrate = \"1gbit\"\ndelay = \"10us\"\nqueue = \"100pkt\"\n\
                     [[links]]\nends = [\"b\", \"tor\"]\nrate = \"1gbit\"\ndelay = \"10us\"\nqueue = \"100pkt\"\n\
                     [[links]]\nends = [\"c\", \"tor\"]\nrate = \"1gbit\"\ndelay = \"10us\"\nqueue = \"100pkt\"\n\
                     [[links]]\nends = [\"tor\", \"wan\"]\nrate = \"100mbit\"\ndelay = \"5ms\"\nqueue = \"150kB\"\n\
                     [[networks]]\nat = \"wan\"\nprefixes = [\"192.0.2.0/24\"]\n";

fn deployment(rest: &str) -> Deployment {
    let text = format!(
        "version = 1\nscheme = \"opentcp\"\nhosts-file = \"hosts\"\n[role]\npolicies = [\"few-flows\"]\ncycle = \"10s\"\n{rest}"
    );
    parse("c.toml", &text, &Beside(BTreeMap::new())).unwrap_or_else(|e| panic!("{e}"))
}

fn hosts() -> Vec<Host> {
    let host = |(number, name): (u32, &str)| Host { number, name: name.to_owned(), secret: String::new() };
    [(1, "a.example"), (2, "b"), (3, "c")].map(host).into()
}

fn address(host: u32) -> IpAddr {
    [10, 0, 0, host as u8].into()
}

/// A row of so many transfers of one size.
fn row(peer: IpAddr, way: Way, in_burst: bool, count: u32, size: u64) -> Row {
    let mut sizes = Histogram::default();
    (0..count).for_each(|_| sizes.note(size));
    let bytes = u64::from(count) * size;
    Row { peer, way, in_burst, bytes, sizes, times: Histogram::default(), held: 0 }
}

fn told(host: u32, about: About, rows: Vec<Row>) -> Vec<(Kept, Report)> {
    let kept = |report: Vec<u8>| {
        let parsed = read(&report).expect("a report");
        (Kept { host, from: address(host), report }, parsed)
    };
    parts(0, INTERVAL, about, rows).into_iter().map(kept).collect()
}

fn bursts(of: &[(u64, u32)]) -> About {
    let mut bursts = Histogram::default();
    of.iter().for_each(|(together, count)| (0..*count).for_each(|_| bursts.note(*together)));
    About { control: "cubic".to_owned(), tick: 4000, bursts, spread: 500, ..About::default() }
}

fn sides() -> [Policies; 2] {
    let deployment = deployment(LINKS);
    let files = deployment.params.files("policies");
    let policies = opentcp::policies(&files).unwrap_or_default();
    let side = Policies { files, policies, cycle: deployment.params.span("cycle") };
    [side.clone(), side]
}

/// `a` receives bursts of both others and single files of `b`; `b` sends to the outside.
fn minute() -> Vec<(Kept, Report)> {
    let (a, b, outside) = (address(1), address(2), [192, 0, 2, 7].into());
    let nowhere = [198, 51, 100, 1].into();
    let of_a = vec![
        row(b, Way::Received, true, 120, 32_000),
        row(address(3), Way::Received, true, 120, 32_000),
        row(b, Way::Received, false, 30, 5_000),
    ];
    let of_b = vec![
        // The same as `a` tells.
        row(a, Way::Sent, false, 150, 26_600),
        row(outside, Way::Sent, false, 600, 10_000),
        row(nowhere, Way::Sent, false, 1, 1_000),
        Row { held: 600_000, ..row(a, Way::Sent, false, 0, 0) },
        Row { held: 6_000_000, ..row(outside, Way::Sent, false, 0, 0) },
    ];
    [told(1, bursts(&[(4, 60), (1, 30)]), of_a), told(2, bursts(&[]), of_b), told(3, bursts(&[]), Vec::new())]
        .concat()
}

fn recording(minutes: usize) -> (Deployment, Network, Recording) {
    let deployment = deployment(LINKS);
    let network = Network::new(&deployment, &hosts()).expect("a network");
    let kept: Vec<_> = (0..minutes).map(|_| minute()).collect();
    let recording = Recording::new(&deployment, &hosts(), &network, &kept).expect("recorded");
    (deployment, network, recording)
}

#[test]
fn what_both_ends_tell_counts_once() {
    let (_, _, recording) = recording(2);
    assert_eq!((recording.minutes(), recording.hosts), (2, 3));
    assert_eq!(recording.transfers, 2 * (240 + 30 + 600));
    assert_eq!(recording.held, 2 * 6_000_000);
    assert_eq!(recording.unplaced, BTreeMap::from([([198, 51, 100, 1].into(), 2000)]));
    assert_eq!(recording.bytes, 2 * (240 * 32_000 + 30 * 5_000 + 600 * 10_000 + 6_000_000 + 1_000));
    let remarks = remarks(&recording).join("\n");
    assert!(remarks.contains("198.51.100.1") && remarks.contains("lived longer than a minute"), "{remarks}");
}

/// The scenario has what was counted: how many, from whom to whom, how large, and how many at once.
#[test]
fn flows_are_drawn_as_they_were_counted() {
    let (deployment, network, recording) = recording(1);
    let plan = Plan::new(&recording, &network, &sides(), 1e9).expect("a plan");
    assert_eq!((plan.share, plan.minutes.len(), plan.remarks.len()), (1.0, 1, 0));
    let written = plan.scenario(&recording, &network, &deployment, &sides(), 7);
    let beside = Beside(written.files.clone());
    let options = Options { files: Some(&beside), ..Options::default() };
    let study = crate::scenario::parse("w.toml", &written.text, &options)
        .unwrap_or_else(|e| panic!("{e}\n{}", written.text));
    assert_eq!(study.variants.iter().map(|variant| variant.name.as_str()).collect::<Vec<_>>(), VARIANTS);
    let scenario = &study.cases[0].scenario;
    let flows = crate::workload::plan(&scenario.flows, &scenario.topology, &scenario.run, 0);
    let name = |node: crate::id::NodeId| scenario.topology.nodes[node.index()].name.as_str();
    let counted: Vec<_> = flows.iter().filter(|flow| flow.group(&scenario.flows).measured).collect();
    let of = |src: &str, dst: &str| {
        let fitting = counted.iter().filter(|flow| name(flow.src) == src && name(flow.dst) == dst);
        let sizes: Vec<u64> = fitting.filter_map(|flow| flow.size(scenario, 0)).map(Bytes::get).collect();
        (sizes.len(), sizes.iter().sum::<u64>() as f64)
    };
    // Bursts take every sender once before one takes its second.
    assert_eq!((of("b", "a_example").0, of("c", "a_example").0, of("b", "wan").0), (150, 120, 600));
    for ((src, dst), bytes) in [(("c", "a_example"), 120.0 * 32e3), (("b", "wan"), 600.0 * 10e3)] {
        assert!((of(src, dst).1 / bytes - 1.0).abs() < 0.02, "{src} {dst}: {}", of(src, dst).1);
    }
    let mut starts: Vec<_> =
        counted.iter().filter(|flow| name(flow.dst) == "a_example").map(|flow| flow.start).collect();
    starts.sort_unstable();
    assert!(starts.iter().all(|at| (plan.warm_up..plan.end).contains(&at.since(crate::time::Time::ZERO))));
    let together =
        starts.windows(BURST as usize).filter(|of| of[3].since(of[0]) < Span::from_millis(1)).count();
    // Some bursts come by chance at the time of another.
    assert!((60..75).contains(&together), "{together}");
    // What lives long, and the first minute once more before anything counts.
    let held = flows.iter().filter(|flow| {
        !flow.group(&scenario.flows).measured && flow.start.since(crate::time::Time::ZERO) >= plan.warm_up
    });
    assert_eq!(held.clone().count(), 60);
    assert_eq!(held.filter_map(|flow| flow.size(scenario, 0)).map(Bytes::get).sum::<u64>(), 6_000_000);
    assert_eq!(plan.scenario(&recording, &network, &deployment, &sides(), 7), written);
    assert_ne!(plan.scenario(&recording, &network, &deployment, &sides(), 8).files, written.files);
}

/// Too much for the budget: minutes are shortened, but cycles never below a hundred round-trip times; then minutes are left out.
#[test]
fn what_is_too_much_is_shortened() {
    let (_, network, recording) = recording(60);
    // Two links of 5 ms and 10 us, there and back, a hundred times: 1.002 s of cycles of 10 s.
    let least = 0.1002;
    for (budget, shortened) in [(1e9, false), (400e3, true), (30e3, true)] {
        let plan = Plan::new(&recording, &network, &sides(), budget).expect("a plan");
        assert_eq!(plan.share < 1.0, shortened, "{budget}: {plan:?}");
        assert!(plan.share >= least - 1e-9, "{budget}: {plan:?}");
        let length = plan.end.as_secs_f64() - plan.warm_up.as_secs_f64();
        assert!((length - plan.minutes.len() as f64 * 60.0 * plan.share).abs() < 1e-6, "{plan:?}");
        assert_eq!(plan.warm_up, Span::from_secs(10).mul_f64(plan.share) * WARM_UP_CYCLES);
    }
    let few = Plan::new(&recording, &network, &sides(), 30e3).expect("a plan");
    assert!(few.minutes.len() < 30 && few.remarks[0].contains("one minute in"), "{few:?}");
}

/// What a busy host could not tell, and what did not arrive.
#[test]
fn what_reports_lack_is_named() {
    let many = row([0, 0, 0, 0].into(), Way::Sent, false, 10, 1_000);
    let rows =
        (0..400).map(|size| row([192, 0, 2, 7].into(), Way::Sent, false, 5, 1 << (size % 40))).collect();
    let mut kept = told(1, bursts(&[]), [vec![many], rows].concat());
    assert!(kept.len() > 3);
    kept.truncate(kept.len() - 2);
    kept.extend(told(3, bursts(&[]), Vec::new()));
    let deployment = deployment(LINKS);
    let network = Network::new(&deployment, &hosts()).expect("a network");
    let recording = Recording::new(&deployment, &hosts(), &network, &[kept]).expect("recorded");
    let remarks = remarks(&recording).join("\n");
    for part in ["had more peers than", "2 parts of reports are missing"] {
        assert!(remarks.contains(part), "{part}: {remarks}");
    }
    assert!(!remarks.contains("0.0.0.0"), "{remarks}");
}

/// A minute that exceeds the budget of a run is left out, wherever it is, and a remark reports what remains.
#[test]
fn a_heavy_minute_does_not_break_the_budget() {
    let of = |n| {
        let rows = vec![row(address(2), Way::Received, false, n, 10_000)];
        [told(1, bursts(&[(1, n)]), rows), told(2, bursts(&[]), Vec::new()), told(3, bursts(&[]), Vec::new())]
            .concat()
    };
    let deployment = deployment(LINKS);
    let network = Network::new(&deployment, &hosts()).expect("a network");
    let plan = |kept: &[Vec<(Kept, Report)>], budget| {
        let recording = Recording::new(&deployment, &hosts(), &network, kept).expect("recorded");
        Plan::new(&recording, &network, &sides(), budget)
    };
    for heavy in [0, 7] {
        let kept: Vec<_> = (0..60).map(|minute| of(if minute == heavy { 60_000 } else { 10 })).collect();
        let plan = plan(&kept, 100e3).expect("a plan");
        assert!(plan.minutes.len() == 30 && !plan.minutes.contains(&heavy), "{plan:?}");
        assert_eq!(plan.remarks, ["one minute in 2 is simulated, with 0.5 % of the bytes"]);
    }
    let alone = plan(&[of(60_000)], 100e3).expect("a plan");
    assert!(alone.remarks[0].contains("3.0 times its budget"), "{alone:?}");
    assert!(plan(&[of(60_000)], 10e3).is_err());
}

#[test]
fn what_a_network_lacks_is_named() {
    for (from, to, why) in [
        (LINKS, "", "[[links]] are missing"),
        ("delay = \"5ms\"\n", "", "the link between `tor` and `wan` has no `delay`"),
        ("ends = [\"c\", \"tor\"]", "ends = [\"d\", \"tor\"]", "host `c` has no link"),
        ("at = \"wan\"", "at = \"tor\"", "192.0.2.0/24 is at `tor`, which forwards"),
        ("ends = [\"tor\", \"wan\"]", "ends = [\"tor\", \"a_example\"]", "differ by dots alone"),
    ] {
        let said =
            Network::new(&deployment(&LINKS.replacen(from, to, 1)), &hosts()).err().unwrap_or_default();
        assert!(said.contains(why), "{why}: {said}");
    }
    let deployment = deployment(LINKS);
    let network = Network::new(&deployment, &hosts()).expect("a network");
    let said = Recording::new(&deployment, &hosts(), &network, &[Vec::new()]).err().unwrap_or_default();
    assert!(said.contains("nothing is recorded"), "{said}");
}

/// Agents and the controller begin their minutes at other times: two intervals of a host in one file are its minute, at their rate.
#[test]
fn two_intervals_in_a_minute_are_one_at_their_rate() {
    let deployment = deployment(LINKS);
    let network = Network::new(&deployment, &hosts()).expect("a network");
    let of_b = || told(2, bursts(&[(1, 600)]), vec![row(address(3), Way::Received, false, 600, 10_000)]);
    let of_a = || told(1, bursts(&[(1, 300)]), vec![row(address(3), Way::Received, false, 300, 10_000)]);
    let of_c = || told(3, bursts(&[]), Vec::new());
    let kept = [[of_a(), of_b(), of_b(), of_c()].concat(), [of_a(), of_c()].concat()];
    let recording = Recording::new(&deployment, &hosts(), &network, &kept).expect("recorded");
    assert_eq!((recording.minutes(), recording.transfers), (2, 1800));
    // A minute in which nobody tells anything is missing too: of four with three hosts each, that and `b` in the last.
    let kept = [&kept[..1], &[Vec::new(), Vec::new()], &kept[1..]].concat();
    let gaps = Recording::new(&deployment, &hosts(), &network, &kept).expect("recorded");
    assert!(
        remarks(&gaps)[0].starts_with("58.3 % of the hosts' minutes are missing"),
        "{:?}",
        remarks(&gaps)
    );
    let plan = Plan::new(&recording, &network, &sides(), 1e9).expect("a plan");
    assert_eq!(plan.end.as_secs_f64() - plan.warm_up.as_secs_f64(), 120.0);
    let written = plan.scenario(&recording, &network, &deployment, &sides(), 1);
    let count = |to: &str| written.files["recorded.flows"].lines().filter(|line| line.contains(to)).count();
    assert_eq!((count(" c a_example "), count(" c b ")), (600, 600));
}

/// What senders outside the network have sent is left out of bursts, and not ascribed to the others.
#[test]
fn bursts_shrink_to_the_senders_that_are_known() {
    let (of, nowhere) =
        (|in_burst, peer| row(peer, Way::Received, in_burst, 400, 32_000), |n| [198, 51, 100, n].into());
    let rows = vec![of(true, address(2)), of(true, address(3)), of(true, nowhere(1)), of(true, nowhere(2))];
    let kept = [
        told(1, bursts(&[(4, 400)]), rows),
        told(2, bursts(&[]), Vec::new()),
        told(3, bursts(&[]), Vec::new()),
    ];
    let deployment = deployment(LINKS);
    let network = Network::new(&deployment, &hosts()).expect("a network");
    let recording = Recording::new(&deployment, &hosts(), &network, &[kept.concat()]).expect("recorded");
    let plan = Plan::new(&recording, &network, &sides(), 1e9).expect("a plan");
    let written = plan.scenario(&recording, &network, &deployment, &sides(), 1);
    let flows = written.files["recorded.flows"].lines().count();
    // 1600, each with a probability of a half: a standard deviation of 20.
    assert!((720..880).contains(&flows), "{flows}");
}
