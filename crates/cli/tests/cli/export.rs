//! Results in formats of other programs.

use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::program::{Scratch, ended};

const RECORDED: [&str; 4] = ["--set", "measure.record=flows", "--set", "run.duration=4s"];

fn with_results(test: &str) -> Scratch {
    let scratch = Scratch::with_scenario(test);
    scratch.run(&[&["run", "small.toml", "-o", "out"], &RECORDED[..]].concat()).expect(0);
    scratch
}

fn lines(scratch: &Scratch, file: &str) -> Vec<Vec<String>> {
    let text = fs::read_to_string(scratch.path(file)).expect("a file");
    text.lines().map(|line| line.split(',').map(str::to_owned).collect()).collect()
}

#[test]
fn csv_has_the_tables_and_their_numbers() {
    let scratch = with_results("csv");
    let json = scratch.run(&["export", "out", "--format", "csv", "--json"]).expect(0).json();
    let files = json["files"].as_array().expect("a list");
    assert_eq!(files[0], json!({"file": "trials.csv", "rows": 8}));
    assert_eq!(scratch.names("out-csv"), ["flows.csv", "series.csv", "trials.csv"]);
    let trials = lines(&scratch, "out-csv/trials.csv");
    assert_eq!(trials[0][..5], ["scenario", "variant", "points", "trial", "base"]);
    assert_eq!(trials.len(), 9);
    assert!(trials.iter().all(|line| line.len() == trials[0].len()));
    // The means of the summary are those of the column.
    let summary: Value =
        serde_json::from_slice(&scratch.files("out")[Path::new("summary.json")]).expect("JSON");
    let column = trials[0].iter().position(|name| name == "throughput").expect("a column");
    let values: Vec<f64> = trials[1..3].iter().map(|line| line[column].parse().expect("a number")).collect();
    let mean = summary["rows"][0]["metrics"]["throughput"]["mean"].as_f64().expect("a number");
    assert!(((values[0] + values[1]) / 2.0 - mean).abs() < 1e-12, "{values:?} {mean}");
    let flows = lines(&scratch, "out-csv/flows.csv");
    // One flow per host, of two hosts, and two flows; two variants, two trials.
    assert_eq!(flows.len(), 1 + 2 * 2 * (2 + 4));
    let mut inside = scratch.command(&["export", ".", "--format", "csv"]);
    inside.current_dir(scratch.path("out"));
    let inside = ended(inside).expect(2);
    assert!(inside.stderr.contains("out-csv` is not empty"), "{}", inside.stderr);
    let again = scratch.run(&["export", "out", "--format", "csv"]).expect(2);
    assert!(again.stderr.contains("`out-csv` is not empty"), "{}", again.stderr);
}

#[test]
fn flent_files_have_what_flent_reads() {
    let scratch = with_results("flent");
    scratch.run(&["export", "out", "--format", "flent", "-o", "a"]).expect(0);
    scratch.run(&["export", "out", "--format", "flent", "-o", "b"]).expect(0);
    assert!(scratch.files("a") == scratch.files("b"), "the same bytes every time");
    let names = scratch.names("a");
    assert_eq!(names.len(), 8);
    assert!(names.contains(&"small-cubic-count=2-trial1.flent.gz".to_owned()), "{names:?}");
    let file = fs::File::open(scratch.path("a/small-cubic-count=2-trial1.flent.gz")).expect("a file");
    let mut text = String::new();
    flate2::read::GzDecoder::new(file).read_to_string(&mut text).expect("gzip");
    let data: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(data["version"], 4);
    assert_eq!(data["metadata"]["NAME"], "tcp_nup");
    assert_eq!(data["metadata"]["TEST_PARAMETERS"], json!({"upload_streams": "4"}));
    assert_eq!(data["metadata"]["STEP_SIZE"], 0.1);
    let times = data["x_values"].as_array().expect("a list");
    assert_eq!((times.len(), &times[39]), (40, &json!(4.0)));
    let results = data["results"].as_object().expect("an object");
    for name in [
        "TCP upload::1",
        "TCP upload::4",
        "TCP upload sum",
        "TCP upload avg",
        "TCP upload fairness",
        "Ping (ms) ICMP",
    ] {
        assert_eq!(results[name].as_array().map(Vec::len), Some(40), "{name}");
    }
    assert!(!results.contains_key("TCP upload::5"));
    let raw = data["raw_values"]["TCP upload sum"].as_array().expect("a list");
    assert_eq!((&raw[39]["t"], &raw[39]["val"]), (&json!(4.0), &results["TCP upload sum"][39]));
    // Streams add up to the sum.
    let at = |name: &str, index: usize| results[name][index].as_f64().unwrap_or(0.0);
    for index in 20..40 {
        let sum: f64 = (1..=4).map(|stream| at(&format!("TCP upload::{stream}"), index)).sum();
        assert!((sum - at("TCP upload sum", index)).abs() < 1e-4, "{sum} at {index}");
    }
}

/// The files are opened by Flent itself: `BANDMASTER_FLENT` is its command.
#[test]
#[ignore = "needs flent; `bash ci.sh flent` runs it"]
fn flent_opens_them() {
    let scratch = with_results("real-flent");
    scratch.run(&["export", "out", "--format", "flent", "-o", "a"]).expect(0);
    let file = scratch.path("a/small-cubic-count=2-trial1.flent.gz");
    let flent = std::env::var("BANDMASTER_FLENT").unwrap_or_else(|_| "flent".to_owned());
    let stats = |format: &str| {
        let mut command = Command::new(&flent);
        command.current_dir(scratch.path("")).args(["-i"]).arg(&file).args(["-f", format]);
        ended(command).expect(0)
    };
    let summary = stats("summary");
    assert!(
        summary.stdout.contains("Ping (ms) ICMP") && summary.stdout.contains("TCP upload sum"),
        "{summary:?}"
    );
    let csv = stats("csv");
    assert_eq!(csv.stdout.lines().count(), 2 + 40, "{csv:?}");
}

#[test]
fn what_cannot_be_exported_is_named() {
    let scratch = Scratch::with_scenario("unexportable");
    scratch.run(&["run", "small.toml", "--quick", "-o", "out", "--set", "measure.record=none"]).expect(0);
    scratch.run(&["run", "small.toml", "--quick", "-o", "old"]).expect(0);
    fs::remove_file(scratch.path("old/trials.parquet")).expect("removed");
    fs::write(scratch.path("old/series.parquet"), "PAR1").expect("written");
    fs::create_dir(scratch.path("newer")).expect("a folder");
    scratch.write("newer/summary.json", "{\"version\": 99}");
    let before = scratch.names("");
    for (args, words) in [
        (&["absent", "--format", "csv"][..], "absent: no such folder"),
        (&["small.toml", "--format", "csv"], "is a file"),
        (&["newer", "--format", "csv"], "has format version 99; this program reads versions 1 to 3"),
        (&["out", "--format", "xml"], "[possible values: csv, flent, svg, pdf, png]"),
        (&["out"], "--format <FORMAT>"),
        (&["out", "--format", "flent", "-o", "x"], "has no series; run the scenario with measure.record"),
        (
            &["old", "--format", "csv"],
            "old/trials.parquet: no such table; this folder is of an older version",
        ),
    ] {
        let ended = scratch.run(&[&["export"], args].concat()).expect(2);
        assert!(ended.stderr.contains(words), "{args:?}: {}", ended.stderr);
    }
    assert_eq!(scratch.names(""), before);
    scratch.run(&["export", "old", "--format", "flent"]).expect(4);
    assert_eq!(scratch.names(""), before);
}

/// SVG needs nothing else; without the feature `pictures` the others say what is missing.
#[test]
fn figures_have_the_width_that_is_asked_for() {
    let scratch = Scratch::new("export-figures");
    let figure = "[[figures]]\nid = \"use\"\ntitle = \"Use\"\nkind = \"sweep\"\nsweep = \"count\"\ny = \"throughput\"\n";
    scratch.write("small.toml", format!("{}{figure}", crate::program::SCENARIO));
    scratch.run(&["run", "small.toml", "-o", "out", "--quick"]).expect(0);
    let json = scratch.run(&["export", "out", "--format", "svg", "--json"]).expect(0).json();
    assert_eq!(json["files"], json!([{"file": "use.svg"}]));
    let svg = fs::read_to_string(scratch.path("out-svg/use.svg")).expect("a file");
    assert!(svg.contains(" width=\"85.000mm\""), "{}", svg.lines().nth(1).unwrap_or_default());
    let column = fs::read_to_string(scratch.path("out/figures/use.column.svg")).expect("a file");
    assert_eq!(svg.split("viewBox").nth(1), column.split("viewBox").nth(1), "the figure for a column");
    scratch.run(&["export", "out", "--format", "svg", "--width", "17cm", "-o", "wide"]).expect(0);
    let wide = fs::read_to_string(scratch.path("wide/use.svg")).expect("a file");
    assert!(
        wide.contains(" width=\"170.000mm\"") && wide.contains("viewBox=\"0 0 800 "),
        "the figure for a page"
    );
    let pdf = scratch.run(&["export", "out", "--format", "pdf", "-o", "pdf"]);
    if cfg!(feature = "pictures") {
        let pdf = fs::read(scratch.path("pdf/use.pdf")).expect("a file");
        assert!(pdf.starts_with(b"%PDF-"));
    } else {
        assert_eq!(pdf.code, Some(3), "{pdf:?}");
        assert!(pdf.stderr.starts_with("error: this bandmaster draws SVG only: build it with "), "{pdf:?}");
        assert!(!scratch.path("pdf").exists(), "nothing is touched");
    }
    if cfg!(feature = "pictures") {
        let large = ["export", "out", "--format", "png", "--width", "100cm", "--dpi", "2400", "-o", "large"];
        let refused = scratch.run(&large).expect(2);
        for word in ["megapixels, of at most 100", "--width", "--dpi"] {
            assert!(refused.stderr.contains(word), "{refused:?}");
        }
        assert!(!scratch.path("large").exists(), "nothing is made");
    }
    for (args, says) in [
        (&["--format", "csv", "--width", "9cm"][..], "--width is of figures"),
        (&["--format", "svg", "--width", "9"], "write a width with its unit"),
        (&["--format", "pdf", "--dpi", "300"], "--dpi is of --format png"),
    ] {
        let refused = scratch.run(&[&["export", "out", "-o", "no"], args].concat()).expect(2);
        assert!(refused.stderr.contains(says), "{refused:?}");
    }
    fs::remove_file(scratch.path("out/figures/use.column.svg")).expect("removed");
    let old = scratch.run(&["export", "out", "--format", "svg", "-o", "no"]).expect(2);
    assert!(
        old.stderr
            .contains("use.column.svg: no such figure; this folder is of an older version: run it again")
    );
    assert!(!scratch.path("no").exists(), "nothing is made");
}
