//! Where each value of the effective scenario came from.

use bandmaster_core::scenario::{Options, explain, parse};

const FILE: &str = r#"version = 1
name = "explained"

[run]
duration = "2s"

[network]
hosts = ["a", "b"]
link = { rate = "10mbit" }

[[network.links]]
ends = ["a", "b"]
queue = { discipline = "fifo", limit = "64KiB" }

[[flows]]
name = "bulk"
from = "a"
to = "b"
tcp = { sack = false }

[schemes.bas]
servers = "b"
domain = ["a", "b"]

[[compare]]
name = "first"
set = { "run.sample" = "50ms", schemes.bas.beta = 0.6 }

[[compare]]
name = "second"
"#;

/// Value and origin of a path.
fn origin(options: &Options, path: &str) -> (String, String) {
    let explained = explain("f.toml", FILE, options).unwrap_or_else(|errors| panic!("{errors}"));
    let mut found = explained.into_iter().filter(|e| e.path == path);
    let entry = found.next().unwrap_or_else(|| panic!("no {path}"));
    assert_eq!(found.next(), None, "{path} twice");
    (entry.value, entry.origin)
}

#[test]
fn origins_are_lines_defaults_variants_and_options() {
    let options = Options {
        overrides: vec!["network.link.delay=5ms".parse().expect("an override")],
        trials: Some(3),
        ..Options::default()
    };
    let expected = [
        ("run.duration", "\"2s\"", "f.toml:5"),
        ("run.warm-up", "\"0s\"", "default"),
        ("run.sample", "\"50ms\"", "variant first"),
        ("run.trials", "3", "--trials"),
        ("network.builder", "\"custom\"", "default"),
        ("network.host-delay", "1.0", "default (against phase effects)"),
        ("network.links.a-b.rate", "\"10mbit\"", "f.toml:9"),
        ("network.links.a-b.delay", "\"5ms\"", "--set"),
        ("network.links.a-b.queue.limit", "\"64KiB\"", "f.toml:13"),
        ("network.links.a-b.host-queue", "\"unlimited\"", "default (hosts hold back, not drop)"),
        ("flows.bulk.tcp.sack", "false", "f.toml:19"),
        ("flows.bulk.tcp.initial-window", "\"10pkt\"", "default (RFC 6928)"),
        ("schemes.bas.alpha", "0.4", "default (Sect. 5.1)"),
        ("schemes.bas.beta", "0.6", "variant first"),
        ("control.delay", "\"1ms\"", "default"),
    ];
    for (path, value, from) in expected {
        assert_eq!(origin(&options, path), (value.to_owned(), from.to_owned()), "{path}");
    }
}

/// What is explained is what is run: writing every explained value of the run table back changes nothing.
#[test]
fn explained_values_can_be_set() {
    let explained = explain("f.toml", FILE, &Options::default()).unwrap_or_else(|errors| panic!("{errors}"));
    let set = |path: &str| path.starts_with("run.") || path.contains(".tcp.") || path.starts_with("schemes.");
    let overrides: Vec<_> = explained
        .iter()
        .filter(|e| set(&e.path))
        .map(|e| format!("{}={}", e.path, e.value).parse().expect("an override"))
        .collect();
    assert!(overrides.len() > 30, "only {}", overrides.len());
    let again = parse("f.toml", FILE, &Options { overrides, ..Options::default() });
    let plain = parse("f.toml", FILE, &Options::default());
    assert_eq!(again.map(|s| s.cases[0].clone()), plain.map(|s| s.cases[0].clone()));
}

#[test]
fn cases_are_base_points_and_sweep_points_once() {
    let options = Options {
        extra_sweeps: vec!["network.link.delay=1ms,0.002s,2500us".parse().expect("a sweep")],
        ..Options::default()
    };
    let study = parse("f.toml", FILE, &options).unwrap_or_else(|errors| panic!("{errors}"));
    let cases: Vec<(&str, bool, Vec<&str>)> = study
        .cases
        .iter()
        .map(|c| (c.variant.as_str(), c.base, c.points.iter().map(|(_, value)| value.as_str()).collect()))
        .collect();
    // The default delay is 1ms, so the base case is that point too.
    let expected = |variant| {
        [(variant, true, vec!["1ms"]), (variant, false, vec!["0.002s"]), (variant, false, vec!["2500us"])]
    };
    assert_eq!(cases, [expected("first"), expected("second")].concat());
}

#[test]
fn quick_takes_the_quick_values_and_trials_and_drops_what_they_leave_out() {
    let file = format!(
        "{FILE}
[[sweeps]]
name = \"rate\"
key = \"network.link.rate\"
values = [\"5mbit\", \"10mbit\", \"20mbit\"]
quick = [\"0.02gbit\"]

[[claims]]
id = \"gone\"
text = \"at a point that a quick run leaves out\"
metric = \"throughput\"
variant = \"first\"
at = {{ rate = \"5mbit\" }}
low = 1.0
high = 5.0

[[claims]]
id = \"kept\"
text = \"at two points, one of which a quick run leaves out\"
metric = \"throughput\"
variant = [\"first\", \"second\"]
sweep = \"rate\"
points = [\"5mbit\", \"20mbit\"]
low = 1.0
high = 20.0
"
    );
    let read = |quick, trials| {
        let study = parse("f.toml", &file, &Options { quick, trials, ..Options::default() });
        study.unwrap_or_else(|errors| panic!("{errors}"))
    };
    let full = read(false, None);
    assert_eq!(full.sweeps[0].values, ["5mbit", "10mbit", "20mbit"]);
    assert_eq!(full.cases.len(), 6);
    assert_eq!(full.cases[0].scenario.run.trials, 10);
    let ids = |study: &bandmaster_core::scenario::Study| -> Vec<String> {
        study.claims.iter().map(|c| c.id.clone()).collect()
    };
    assert_eq!(ids(&full), ["gone", "kept/first", "kept/second"]);
    let quick = read(true, None);
    assert_eq!(quick.sweeps[0].values, ["20mbit"]);
    assert_eq!(quick.cases.len(), 4);
    assert_eq!(quick.cases[0].scenario.run.trials, 2);
    assert_eq!(ids(&quick), ["kept/first", "kept/second"]);
    let at = bandmaster_core::scenario::ClaimAt::Points("rate".to_owned(), vec!["20mbit".to_owned()]);
    assert_eq!(quick.claims[0].at, at);
    assert_eq!(read(true, Some(7)).cases[0].scenario.run.trials, 7);
}
