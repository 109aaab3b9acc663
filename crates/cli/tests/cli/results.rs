//! What a run prints and writes.

use std::path::Path;

use serde_json::{Value, json};

use crate::program::{SCENARIO, Scratch};

#[test]
fn json_has_claims_rows_and_work() {
    let scratch = Scratch::with_scenario("json");
    let ended = scratch.run(&["run", "small.toml", "--json", "--out", "out"]).expect(0);
    let json = ended.json();
    assert_eq!((&json["version"], &json["complete"]), (&json!(3), &json!(true)));
    assert_eq!(json["trials"], json!({"finished": 8, "planned": 8}));
    let claims = json["claims"].as_array().expect("a list");
    assert_eq!(claims.iter().map(|c| c["id"].clone()).collect::<Vec<_>>(), ["busy/newreno", "busy/cubic"]);
    for claim in claims {
        assert_eq!((&claim["ok"], &claim["low"], &claim["high"]), (&json!(true), &json!(1.0), &json!(null)));
        let value = claim["value"].as_f64().expect("a number");
        assert!((5.0..=10.0).contains(&value), "{claim}");
        assert!(claim["paper"].is_string() && claim["source"] == "by hand", "{claim}");
    }
    let rows = json["rows"].as_array().expect("a list");
    assert_eq!(rows.len(), 4);
    for row in rows {
        assert_eq!(row["trials"], 2);
        for metric in ["jain", "jain_normalised", "throughput", "queue", "drops", "rtos"] {
            assert!(row["metrics"][metric]["mean"].is_f64(), "{metric} in {row}");
        }
    }
    assert!(json["work"]["packet_hops"].as_u64() > Some(1_000));
    let written: Value =
        serde_json::from_slice(&scratch.files("out")[Path::new("summary.json")]).expect("JSON");
    assert_eq!(written, json);
}

#[test]
fn tables_go_to_stdout_and_messages_to_stderr() {
    let scratch = Scratch::with_scenario("streams");
    let ended = scratch.run(&["run", "small.toml", "--quick"]).expect(0);
    assert!(ended.stdout.contains("newreno") && ended.stdout.contains("busy/cubic"), "{}", ended.stdout);
    assert!(!ended.stdout.contains('\u{1b}') && !ended.stdout.contains("results/"), "{}", ended.stdout);
    assert_eq!(ended.stderr, "report: results/small-001/report.html\n");
    let quiet = scratch.run(&["run", "small.toml", "--quick", "-q"]).expect(0);
    assert_eq!((quiet.stdout, quiet.stderr.as_str()), (ended.stdout, ""));
    let folders = scratch.names("results");
    assert!(folders.contains(&"small-002/report.html".to_owned()), "earlier results stay: {folders:?}");
    assert!(
        !folders.iter().any(|name| name.contains("INCOMPLETE") || name.ends_with(".part")),
        "{folders:?}"
    );
}

#[test]
fn every_reproduction_holds_in_a_quick_run() {
    let scratch = Scratch::new("reproduce");
    let all = scratch.run(&["reproduce", "--quick", "--no-report"]).expect(0);
    assert!(all.stdout.contains("not reproduced") && !all.stdout.contains("FAILS"), "{}", all.stdout);
}

#[test]
fn a_reproduction_takes_another_seed_and_writes_it_down() {
    let scratch = Scratch::new("seeds");
    let rows = |out: &str, seed: &[&str]| {
        let code = scratch.run(&[&["reproduce", "er2bc", "--quick", "--json", "--out", out], seed].concat());
        let summary: Value = serde_json::from_str(&code.stdout).expect("JSON");
        summary["rows"].clone()
    };
    let (own, other) = (rows("own", &[]), rows("other", &["--seed", "7"]));
    assert!(own.is_array() && own != other);
    let manifest = String::from_utf8_lossy(&scratch.files("other")[Path::new("manifest.json")]).into_owned();
    assert!(manifest.contains("\"--seed\""), "{manifest}");
}

#[test]
fn without_a_report_nothing_is_written() {
    let scratch = Scratch::with_scenario("no-report");
    scratch.run(&["run", "small.toml", "--quick", "--no-report"]).expect(0);
    assert_eq!(scratch.names(""), ["small.toml"]);
}

#[test]
fn the_same_bytes_for_any_number_of_jobs_and_every_time() {
    let scratch = Scratch::with_scenario("bytes");
    for (out, jobs) in [("one", "1"), ("two", "2"), ("again", "2")] {
        scratch.run(&["run", "small.toml", "--jobs", jobs, "--out", out, "--pcap", "r1->r2"]).expect(0);
    }
    let one = scratch.files("one");
    for name in [
        "report.html",
        "flows.parquet",
        "trials.parquet",
        "series.parquet",
        "summary.json",
        "manifest.json",
        "r1-r2.pcapng",
    ] {
        assert!(one.contains_key(Path::new(name)), "no {name}");
    }
    for other in ["two", "again"] {
        let other_files = scratch.files(other);
        assert_eq!(scratch.names("one"), scratch.names(other));
        for (name, content) in &one {
            assert!(other_files[name] == *content, "{} differs between `one` and `{other}`", name.display());
        }
    }
    scratch.run(&["run", "small.toml", "--out", "seed", "--seed", "2", "--pcap", "r1->r2"]).expect(0);
    let series = Path::new("series.parquet");
    assert!(scratch.files("seed")[series] != one[series], "another seed gives other series");
}

#[test]
fn exit_codes_follow_the_claims() {
    let scratch = Scratch::new("claims");
    let impossible = SCENARIO.replace("low = 1.0", "low = 99.0");
    scratch.write("fails.toml", &impossible);
    scratch.write("known.toml", format!("{impossible}not-reproduced = \"headers take their share\"\n"));
    let ended =
        scratch.run(&["run", "fails.toml", "--quick", "--trials", "2", "--out", "fails", "--json"]).expect(1);
    assert_eq!(ended.json()["claims"][0]["ok"], false);
    assert!(ended.stderr.ends_with("claims: of 2, 2 fail, 0 undecided\n"), "{}", ended.stderr);
    assert!(!scratch.names("fails").contains(&"INCOMPLETE".to_owned()), "the run itself is complete");
    let json = scratch
        .run(&["run", "known.toml", "--quick", "--trials", "2", "--no-report", "--json"])
        .expect(0)
        .json();
    assert_eq!(json["claims"][0]["ok"], false);
    assert_eq!(json["claims"][0]["status"], "not-reproduced");
    assert_eq!(json["claims"][0]["not_reproduced"], "headers take their share");
}

#[test]
fn settings_change_what_runs_and_are_written_down() {
    let scratch = Scratch::with_scenario("settings");
    let args =
        ["run", "small.toml", "--set", "run.duration=1s", "--trials", "3", "--seed", "7", "--out", "out"];
    let json = scratch.run(&[&args[..], &["--json"]].concat()).expect(0).json();
    assert_eq!(json["trials"]["planned"], 12);
    let manifest: Value =
        serde_json::from_slice(&scratch.files("out")[Path::new("manifest.json")]).expect("JSON");
    assert_eq!(
        manifest["command"],
        json!(["run", "small.toml", "--set", "run.duration=1s", "--trials", "3", "--seed", "7"])
    );
    let study = &manifest["studies"][0];
    assert_eq!(study["cases"][0]["scenario"]["run"]["seed"], 7);
    assert_eq!(study["provenance"]["digest"].as_str().map(str::len), Some(64));
}

#[test]
fn sweep_adds_a_sweep() {
    let scratch = Scratch::with_scenario("sweep");
    let args = [
        "sweep",
        "small.toml",
        "--key",
        "network.bottleneck.queue=20pkt,80pkt",
        "--quick",
        "--no-report",
        "--json",
    ];
    let json = scratch.run(&args).expect(0).json();
    let sweeps = json["studies"][0]["sweeps"].as_array().expect("a list");
    let added = sweeps
        .iter()
        .find(|s| s["key"] == "network.bottleneck.queue")
        .expect("the sweep of the command line");
    assert_eq!(added["values"], json!(["20pkt", "80pkt"]));
    let at = |value: &str| {
        let rows = json["rows"].as_array().expect("a list");
        let name = added["name"].as_str().expect("a name");
        let row = rows.iter().find(|row| row["variant"] == "cubic" && row["points"][name] == value);
        row.unwrap_or_else(|| panic!("no row of {value}"))["metrics"]["queue_max"]["mean"]
            .as_f64()
            .expect("a number")
    };
    assert!(at("20pkt") <= 20.0 && at("80pkt") > 40.0, "{} and {}", at("20pkt"), at("80pkt"));
}

/// Only some cases, with the numbers that they have in the whole run.
#[test]
fn a_selection_runs_those_cases_alone() {
    let scratch = Scratch::with_scenario("selection");
    let run = |args: &[&str]| scratch.run(&[args, &["--no-report", "--json"]].concat()).expect(0).json();
    let metrics = |json: &Value| -> Vec<(String, String, String)> {
        let rows = json["rows"].as_array().expect("a list").iter();
        rows.map(|row| {
            let variant = row["variant"].as_str().expect("a name").to_owned();
            (variant, row["points"].to_string(), row["metrics"].to_string())
        })
        .collect()
    };
    let whole = metrics(&run(&["run", "small.toml"]));
    let own = run(&["run", "small.toml", "--variant", "cubic", "--base"]);
    assert_eq!(own["claims"].as_array().map(Vec::len), Some(1), "of the variant that is run");
    let said =
        scratch.run(&["run", "small.toml", "--variant", "cubic", "--base", "--no-report"]).expect(0).stderr;
    assert!(said.contains("one claim is about other cases and is not judged"), "{said}");
    let own = metrics(&own);
    assert!(own.len() == 1 && own[0].0 == "cubic" && whole.contains(&own[0]), "{own:?}");

    // Sweeps of the file go, those of the command line stay.
    let keys = ["--key", "network.bottleneck.queue=20pkt,80pkt", "--key", "network.bottleneck.delay=1ms,4ms"];
    let grid = [&["sweep", "small.toml", "--base", "--variant", "cubic", "--grid"], &keys[..]].concat();
    let swept = run(&grid);
    assert_eq!(metrics(&swept).len(), 1 + 4);
    assert_eq!(swept["studies"][0]["sweeps"].as_array().map(Vec::len), Some(1));
    // Also where a case is one of a sweep of the file: its other points are not there, nor the claims about them.
    let both = run(&["sweep", "small.toml", "--base", "--variant", "cubic", "--key", "flows.bulk.count=2,3"]);
    assert_eq!(metrics(&both).len(), 1 + 2);
    assert_eq!(both["studies"][0]["sweeps"].as_array().map(Vec::len), Some(1), "{both:#}");
    scratch.run(&[&grid[..], &["-o", "out"]].concat()).expect(0);
    scratch.run(&["export", "out", "--format", "csv"]).expect(0);
    let table = std::fs::read_to_string(scratch.path("out-csv/trials.csv")).expect("a table");
    // Texts with commas stand in quotes.
    let plain = |line: &str| line.split('"').step_by(2).collect::<String>();
    let table: Vec<String> = table.lines().map(plain).collect();
    let mut lines = table.iter().map(|line| line.split(',').collect::<Vec<_>>());
    let names = lines.next().expect("names");
    let of = |name: &str| {
        names.iter().position(|known| *known == name).unwrap_or_else(|| panic!("{name} in {names:?}"))
    };
    let (queue, delay) = (of("sweep.network.bottleneck.queue"), of("sweep.network.bottleneck.delay"));
    let points: std::collections::BTreeSet<(&str, &str)> =
        lines.map(|row| (row[queue], row[delay])).collect();
    // Packets, and nanoseconds; the base point has other values.
    let expected = [("20", "1000000"), ("20", "4000000"), ("", ""), ("80", "1000000"), ("80", "4000000")];
    assert_eq!(points, expected.into());

    let refused = scratch.run(&["run", "small.toml", "--variant", "cubc"]).expect(2);
    assert!(refused.stderr.contains("no variant `cubc`; allowed: newreno, cubic"), "{refused:?}");
    let refused = scratch.run(&["sweep", "small.toml", "--grid", "--key", "run.seed=1,2"]).expect(2);
    assert!(refused.stderr.contains("--grid: error: joins the values of two or more --key"), "{refused:?}");
}

/// A file that may not grow stands for a full disk: the trials are recorded, and the report has no room.
#[cfg(unix)]
#[test]
fn what_cannot_be_written_is_one_error_and_loses_no_results() {
    let scratch = Scratch::with_scenario("full");
    let all = scratch.run(&["run", "small.toml", "--no-report"]).expect(0);
    let program = scratch.command(&["run", "small.toml", "--out", "out"]);
    let mut shell = std::process::Command::new("bash");
    shell.current_dir(scratch.path("")).args(["-c", "trap '' XFSZ; ulimit -f 10; exec \"$0\" \"$@\""]);
    let ended = shell.arg(program.get_program()).args(program.get_args()).output().expect("a shell");
    let (stdout, stderr) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    assert_eq!((ended.status.code(), &*stdout), (Some(4), all.stdout.as_str()), "{stderr}");
    assert!(stderr.starts_with("error: cannot write `out/") && stderr.lines().count() == 1, "{stderr}");
    assert!(
        stderr.contains("; make room, or give another folder with --out; finished trials are kept: `"),
        "{stderr}"
    );
    let names = scratch.names("out");
    assert!(
        names.contains(&"INCOMPLETE".to_owned()) && !names.iter().any(|name| name.ends_with(".part")),
        "{names:?}"
    );
}

#[test]
fn the_table_of_flows_can_be_left_out_and_replaced() {
    let scratch = Scratch::with_scenario("flow-table");
    let flows = Path::new("flows.parquet");
    let run = |more: &[&str]| {
        scratch.run(&[&["run", "small.toml", "--quick", "--out", "out"], more].concat()).expect(0);
        scratch.files("out").contains_key(flows)
    };
    assert!(run(&[]));
    assert!(!run(&["--force", "--set", "measure.flow-table=none"]), "an earlier one goes");
    let wrong = scratch.run(&["check", "small.toml", "--set", "measure.flow-table=all"]).expect(2);
    assert!(
        wrong.stderr.contains("measure.flow-table") && wrong.stderr.contains("counts"),
        "{}",
        wrong.stderr
    );
}

#[test]
fn threads_change_no_byte_and_partitions_are_refused_by_name() {
    let scratch = Scratch::with_scenario("threads");
    let run = |out: &str, threads: &str| {
        scratch
            .run(&[
                "run",
                "small.toml",
                "--set",
                "run.partitions=2",
                "--jobs",
                "1",
                "--threads",
                threads,
                "--pcap",
                "r1->r2",
                "--out",
                out,
            ])
            .expect(0);
        let mut files = scratch.files(out);
        // They name the folder and the threads.
        files.remove(Path::new("manifest.json"));
        files.remove(Path::new("report.html"));
        files
    };
    let one = run("one", "1");
    assert!(one.keys().any(|file| file.ends_with("r1-r2.pcapng")), "{:?}", one.keys());
    for threads in ["2", "8"] {
        assert!(one == run(threads, threads), "{threads} threads");
    }

    let checked = scratch.run(&["check", "small.toml", "--set", "run.partitions=8"]).expect(0);
    assert!(
        checked.stdout.contains("; divided into 2 parts, windows of 2ms at most; 2 claims"),
        "{checked:?}"
    );

    let bas = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/bas/fixed.toml");
    let refused =
        scratch.run(&["run", bas, "--set", "run.partitions=2", "--set", "control.delay=0s"]).expect(2);
    let says = "run.partitions: a network with a `control.delay` of 0s cannot be divided; leave it out";
    assert!(refused.stderr.contains(says), "{refused:?}");
    let none = scratch.run(&["run", "small.toml", "--threads", "0"]).expect(2);
    assert!(none.stderr.contains("--threads"), "{none:?}");
}
