//! Ctrl-C. Signals are sent by `kill`.
#![cfg(unix)]

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::program::Scratch;

const PATIENCE: Duration = Duration::from_secs(60);

fn signal(child: &Child, name: &str) {
    let status = Command::new("kill").args([name, &child.id().to_string()]).status().expect("kill runs");
    assert!(status.success());
}

/// Starts a run of minutes, and waits until it is at work and a little longer.
fn at_work(scratch: &Scratch, args: &[&str]) -> Child {
    let mut command = scratch.command(&[args, &["--out", "out", "--json"]].concat());
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary starts");
    let start = Instant::now();
    while !scratch.path("out/INCOMPLETE").exists() {
        assert!(start.elapsed() < PATIENCE, "the run never starts");
        sleep(Duration::from_millis(10));
    }
    sleep(Duration::from_secs(1));
    child
}

fn code(mut child: Child) -> Option<i32> {
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        if let Some(status) = child.try_wait().expect("the binary can be waited for") {
            return status.code();
        }
        sleep(Duration::from_millis(10));
    }
    child.kill().expect("the binary can be killed");
    panic!("the run does not end");
}

#[test]
fn finished_trials_are_kept_and_the_folder_stays_marked() {
    let scratch = Scratch::with_scenario("interrupt");
    let mut child = at_work(&scratch, &["run", "small.toml", "--trials", "20000"]);
    signal(&child, "-INT");
    let (mut stdout, mut stderr) = (String::new(), String::new());
    child.stdout.take().expect("piped").read_to_string(&mut stdout).expect("UTF-8");
    child.stderr.take().expect("piped").read_to_string(&mut stderr).expect("UTF-8");
    assert_eq!(code(child), Some(130), "{stderr}");

    let json: Value = serde_json::from_str(&stdout).unwrap_or_else(|e| panic!("{e}: {stdout} {stderr}"));
    assert_eq!(json["complete"], false);
    let finished = json["trials"]["finished"].as_u64().expect("a number");
    assert!(finished > 0 && finished < 80_000, "{finished}");
    assert!(stderr.contains(&format!("interrupted: {finished} of 80000 trials finished")), "{stderr}");
    let names = scratch.names("out");
    for name in [
        "INCOMPLETE",
        "report.html",
        "summary.json",
        "manifest.json",
        "series.parquet",
        "flows.parquet",
        "trials.parquet",
    ] {
        assert!(names.contains(&name.to_owned()), "no {name} in {names:?}");
    }
}

#[test]
fn a_second_signal_ends_at_once() {
    let scratch = Scratch::with_scenario("impatient");
    // JSON of a thousand points fills the pipe, which nobody reads: after one signal the run cannot end.
    let seeds: Vec<String> = (1..=1_000).map(|seed| seed.to_string()).collect();
    let key = format!("run.seed={}", seeds.join(","));
    let mut child = at_work(&scratch, &["sweep", "small.toml", "--key", &key, "--trials", "20"]);
    signal(&child, "-INT");
    let mut line = String::new();
    BufReader::new(child.stderr.take().expect("piped")).read_line(&mut line).expect("UTF-8");
    assert!(line.starts_with("stopping: finished trials are kept"), "{line}");
    let start = Instant::now();
    while !scratch.path("out/manifest.json").exists() {
        assert!(start.elapsed() < PATIENCE, "the report never comes");
        sleep(Duration::from_millis(10));
    }
    sleep(Duration::from_millis(500));
    assert_eq!(child.try_wait().expect("the binary can be waited for"), None, "the pipe is full");
    signal(&child, "-INT");
    assert_eq!(code(child), Some(130));
    assert!(scratch.path("out/INCOMPLETE").exists());
}

/// Half a million flows, whose network alone takes a while to build.
const LARGE: &str = r#"
version = 1
name = "large"
[run]
duration = "10s"
trials = 4
[network]
builder = "dumbbell"
left = 250
right = 2
access = { rate = "1gbit", delay = "1ms" }
bottleneck = { rate = "100mbit", delay = "1ms" }
[[flows]]
name = "many"
from = "left"
to = "right"
count = 2000
timeline = [{ at = "1s", stop = 1.0 }, { at = "2s", start = 0.9 }]
"#;

/// How long a program may take to end, with some time for a busy machine to start and see it.
const ENDS: Duration = Duration::from_millis(2500);

#[test]
fn a_signal_ends_a_run_that_is_still_being_built() {
    let scratch = Scratch::new("building");
    scratch.write("large.toml", LARGE);
    for name in ["-INT", "-TERM"] {
        // Asked once soon after it has begun, and once later.
        for wait in [200, 1200] {
            let mut command =
                scratch.command(&["run", "large.toml", "--no-report", "--set", "tcp.receive-buffer=64KiB"]);
            let child =
                command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the binary starts");
            sleep(Duration::from_millis(wait));
            let start = Instant::now();
            signal(&child, name);
            let code = code(child);
            let took = start.elapsed();
            // Before anything is watched, a signal ends the program as it ends any other.
            assert!(code == Some(130) || code.is_none(), "{name} after {wait} ms: {code:?}");
            assert!(took < ENDS, "{name} after {wait} ms: {took:?}");
        }
    }
}
