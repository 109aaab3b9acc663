//! Two result folders side by side.

use std::fs;

use serde_json::{Value, json};

use crate::program::{SCENARIO, Scratch};

/// Folders `a` (seed 1) and `b` (seed 2) of the small scenario.
fn two(name: &str) -> Scratch {
    let scratch = Scratch::with_scenario(name);
    scratch.run(&["run", "small.toml", "--trials", "3", "--out", "a"]).expect(0);
    scratch.run(&["run", "small.toml", "--trials", "3", "--seed", "2", "--out", "b"]).expect(0);
    scratch
}

fn summary(scratch: &Scratch, folder: &str) -> Value {
    let bytes = fs::read(scratch.path(folder).join("summary.json")).expect("a summary");
    serde_json::from_slice(&bytes).expect("JSON")
}

#[test]
fn metrics_of_joined_cases_have_their_difference() {
    let scratch = two("compare-metrics");
    let json = scratch.run(&["compare", "a", "b", "--json"]).expect(0).json();
    let study = &json["studies"][0];
    assert_eq!(study["same_scenario"], false, "another seed is another digest");
    assert_eq!(study["changes"][0]["key"], "run.seed");
    assert_eq!((&study["only_a"], &study["only_b"]), (&json!([]), &json!([])));
    let cases = study["cases"].as_array().expect("a list");
    assert_eq!(cases.len(), 4);
    let (a, b) = (summary(&scratch, "a"), summary(&scratch, "b"));
    let mut significant_digits_differ = false;
    for (index, case) in cases.iter().enumerate() {
        assert_eq!(case["variant"], a["rows"][index]["variant"]);
        for metric in case["metrics"].as_array().expect("a list") {
            let name = metric["metric"].as_str().expect("a name");
            let mean =
                |summary: &Value| summary["rows"][index]["metrics"][name]["mean"].as_f64().expect("a mean");
            let difference = metric["difference"]["mean"].as_f64().expect("a difference");
            assert!((difference - (mean(&b) - mean(&a))).abs() < 1e-9, "{metric}");
            assert!(metric["difference"]["ci95"].is_f64(), "three trials each: {metric}");
            significant_digits_differ |= difference != 0.0;
        }
    }
    assert!(significant_digits_differ, "other seeds give other results");

    let same = scratch.run(&["compare", "a", "a", "--within", "0%", "--json"]).expect(0).json();
    assert_eq!((&same["studies"][0]["same_scenario"], &same["failed"]), (&json!(true), &json!(0)));
    assert!(same["judged"].as_u64() > Some(10));
    let text = scratch.run(&["compare", "a", "b", "--metric", "throughput"]).expect(0).stdout;
    assert!(text.contains("throughput") && text.contains("B - A") && !text.contains("jain"), "{text}");
    assert!(text.contains("run.seed: 1 in A, 2 in B"), "{text}");
}

/// 1 Mbit/s of which 900 kbit/s are needed, with 1.5 Mbit/s of cross traffic, over 2 Mbit/s.
const NEEDY: &str = r#"version = 1
name = "needy"
[run]
duration = "4s"
trials = 2
[network]
hosts = ["a", "b", "x", "y"]
routers = ["r", "s"]
[network.link]
rate = "100mbit"
delay = "1ms"
[[network.links]]
ends = ["a", "r"]
[[network.links]]
ends = ["x", "r"]
[[network.links]]
ends = ["r", "s"]
rate = "2mbit"
queue = "20pkt"
[[network.links]]
ends = ["s", "b"]
[[network.links]]
ends = ["s", "y"]
[[flows]]
name = "one"
transport = "udp"
from = "a"
to = "b"
rate = "1mbit"
needs = "900kbit"
measured = true
[[flows]]
name = "cross"
transport = "udp"
from = "x"
to = "y"
rate = "1500kbit"
[measure]
queue = "r->s"
[[compare]]
name = "all"
paper = [{ metric = "one.shortage", value = 42.5 }]
"#;

#[test]
fn what_the_paper_reports_and_what_is_possible_stand_beside() {
    let scratch = Scratch::new("compare-paper");
    scratch.write("needy.toml", NEEDY);
    for (folder, jitter) in [("a", "0"), ("b", "1")] {
        let set = format!("flows.one.jitter={jitter}");
        scratch.run(&["run", "needy.toml", "--set", &set, "--out", folder]).expect(0);
    }
    let json = scratch.run(&["compare", "a", "b", "--metric", "shortage", "--json"]).expect(0).json();
    let metric = &json["studies"][0]["cases"][0]["metrics"][0];
    assert_eq!((&metric["metric"], &metric["paper"]), (&json!("one.shortage"), &json!(42.5)));
    assert_eq!(metric["limit"], json!(100.0), "0.5 Mbit/s are left");
    let text = scratch.run(&["compare", "a", "b", "--metric", "shortage"]).expect(0).stdout;
    let line = |word: &str| text.lines().find(|line| line.contains(word)).unwrap_or_else(|| panic!("{text}"));
    let head: Vec<&str> = line("relative").split_whitespace().collect();
    assert_eq!(head, ["metric", "unit", "paper", "A", "B", "limit", "B", "-", "A", "relative"]);
    let cells: Vec<&str> = line("one.shortage").split_whitespace().collect();
    assert_eq!((cells[2], cells[5]), ("42.5", "100"), "{text}");
    let text = scratch.run(&["compare", "a", "b", "--metric", "throughput"]).expect(0).stdout;
    assert!(!text.contains("paper") && !text.contains("limit"), "{text}");
}

/// Version 1 used `figure` for `metric`, in files and on the command line.
#[test]
fn folders_of_the_version_before_are_read() {
    let scratch = Scratch::new("compare-older");
    scratch.write("needy.toml", NEEDY);
    scratch.run(&["run", "needy.toml", "--out", "a"]).expect(0);
    fs::create_dir(scratch.path("older")).expect("a folder");
    for name in ["summary.json", "manifest.json"] {
        let text = fs::read_to_string(scratch.path("a").join(name)).expect("a text");
        assert!(text.contains("\"metric"), "{name}");
        let older = text.replace("\"metrics\":", "\"figures\":").replace("\"metric\":", "\"figure\":");
        let older = older.replacen("\"version\": 3", "\"version\": 1", 1);
        assert!(older.contains("\"version\": 1"), "{name}");
        scratch.write(&format!("older/{name}"), older);
    }
    let args = ["compare", "older", "a", "--figure", "shortage", "--within", "0%", "--json"];
    let json = scratch.run(&args).expect(0).json();
    let metric = &json["studies"][0]["cases"][0]["metrics"][0];
    assert_eq!((&metric["metric"], &metric["paper"]), (&json!("one.shortage"), &json!(42.5)));
    assert!(json["judged"].as_u64() > Some(0), "{json}");
}

#[test]
fn tolerances_decide_the_exit_code() {
    let scratch = two("compare-tolerances");
    let kept = ["compare", "a", "b", "--tolerance", "throughput=50%", "--tolerance", "jain=1", "--json"];
    let json = scratch.run(&kept).expect(0).json();
    assert_eq!((&json["judged"], &json["failed"]), (&json!(8), &json!(0)));
    let ended =
        scratch.run(&["compare", "a", "b", "--tolerance", "throughput=0", "--metric", "jain"]).expect(1);
    assert!(ended.stdout.contains("EXCEEDED"), "{}", ended.stdout);
    assert!(ended.stderr.contains("4 of 4 tolerances are exceeded"), "{}", ended.stderr);
    scratch.run(&["compare", "a", "b", "--within", "0.0001%"]).expect(1);
    // A metric's own tolerance is asked for even where one folder has no such metric.
    let path = scratch.path("b").join("summary.json");
    let mut without = summary(&scratch, "b");
    without["rows"][0]["metrics"].as_object_mut().expect("a map").remove("throughput");
    fs::write(path, without.to_string()).expect("writable");
    let ended = scratch.run(&["compare", "a", "b", "--tolerance", "throughput=50%"]).expect(1);
    assert!(ended.stderr.contains("1 of 4 tolerances are exceeded"), "{}", ended.stderr);
    scratch.run(&["compare", "a", "b", "--within", "1000%", "--metric", "throughput"]).expect(0);
}

#[test]
fn what_only_one_folder_has_is_said() {
    let scratch = Scratch::with_scenario("compare-only");
    scratch.write(
        "other.toml",
        SCENARIO.replace("name = \"cubic\"", "name = \"tahoe\"").replace("\"cubic\"]", "\"tahoe\"]"),
    );
    scratch.run(&["run", "small.toml", "--quick", "--out", "a"]).expect(0);
    scratch.run(&["run", "other.toml", "--quick", "--out", "b"]).expect(0);
    let text = scratch.run(&["compare", "a", "b"]).expect(0).stdout;
    assert!(text.contains("Cases in A only: cubic; cubic, count = 2"), "{text}");
    assert!(text.contains("Cases in B only: tahoe; tahoe, count = 2"), "{text}");
    assert!(text.contains("What the compared cases describe is the same."), "{text}");
    let json = scratch.run(&["compare", "a", "b", "--json"]).expect(0).json();
    let metric = &json["studies"][0]["cases"][0]["metrics"][0];
    assert!(metric["difference"]["ci95"].is_null(), "one trial each has no interval: {metric}");

    let renamed = SCENARIO
        .replace("name = \"newreno\"", "name = \"one\"")
        .replace("name = \"cubic\"", "name = \"two\"");
    scratch.write("third.toml", renamed.replace("[\"newreno\", \"cubic\"]", "[\"one\", \"two\"]"));
    scratch.run(&["run", "third.toml", "--quick", "--out", "c"]).expect(0);
    let ended = scratch.run(&["compare", "a", "c"]).expect(2);
    assert!(
        ended.stderr.contains("nothing to compare: a has small (newreno, cubic), c has small (one, two)"),
        "{}",
        ended.stderr
    );
}

#[test]
fn folders_that_are_no_results_are_refused() {
    let scratch = Scratch::with_scenario("compare-refusals");
    scratch.run(&["run", "small.toml", "--quick", "--out", "a"]).expect(0);
    fs::create_dir(scratch.path("empty")).expect("a folder");
    fs::create_dir(scratch.path("begun")).expect("a folder");
    scratch.write("begun/INCOMPLETE", "");
    fs::create_dir(scratch.path("broken")).expect("a folder");
    scratch.write("broken/summary.json", "{\"version\": 1, \"rows\": 3}");
    fs::create_dir(scratch.path("newer")).expect("a folder");
    scratch.write("newer/summary.json", "{\"version\": 4}");
    let cases = [
        ("absent", "error: absent: no such folder"),
        ("small.toml", "error: small.toml: is a file; give the folder"),
        ("empty", "error: empty: is no result folder: it has no summary.json"),
        ("begun", "error: begun: is marked INCOMPLETE and has no summary.json"),
        ("broken", "error: broken/summary.json: is not a result of bandmaster: "),
        ("newer", "error: newer/summary.json: has format version 4; this program reads versions 1 to 3"),
    ];
    for (folder, words) in cases {
        for args in [["compare", "a", folder], ["compare", folder, "a"]] {
            let ended = scratch.run(&args).expect(2);
            assert!(ended.stderr.starts_with(words), "{folder}: {}", ended.stderr);
            assert_eq!(ended.stdout, "");
        }
    }
    for (option, value, words) in [
        (
            "--tolerance",
            "elegance=5",
            "--tolerance elegance: neither folder has such a metric; they have: jain",
        ),
        ("--metric", "elegance", "--metric elegance: neither folder has such a metric"),
        ("--tolerance", "throughput", "write METRIC=NUMBER"),
        ("--within", "5", "write a percentage from 0 on, such as 5%"),
    ] {
        let ended = scratch.run(&["compare", "a", "a", option, value]).expect(2);
        assert!(ended.stderr.contains(words), "{}", ended.stderr);
    }
}

#[test]
fn an_incomplete_folder_is_compared_with_a_warning() {
    let scratch = Scratch::with_scenario("compare-incomplete");
    scratch.run(&["run", "small.toml", "--quick", "--out", "a"]).expect(0);
    scratch.write("a/INCOMPLETE", "");
    let ended = scratch.run(&["compare", "a", "a"]).expect(0);
    assert_eq!(ended.stderr, "warning: a is not complete: it is marked INCOMPLETE\n".repeat(2));
}
