//! Runs in parts: killed and resumed, in shards and merged. The bytes are those of one run.
#![cfg(unix)]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::program::{Ended, SCENARIO, Scratch, ended};

const PATIENCE: Duration = Duration::from_secs(60);
/// SIGKILL.
const KILLED: i32 = 9;

type Files = BTreeMap<PathBuf, Vec<u8>>;

/// The same names, and the same bytes.
#[track_caller]
fn assert_same(one: &Files, other: &Files, what: &str) {
    assert_eq!(one.keys().collect::<Vec<_>>(), other.keys().collect::<Vec<_>>(), "{what}");
    for (name, content) in one {
        assert!(other[name] == *content, "{what}: {} differs", name.display());
    }
}

/// 24 trials of some 20 ms and 20 kB each, with everything that is recorded.
const TRIALS: [&str; 8] = [
    "--trials",
    "6",
    "--set",
    "run.duration=80s",
    "--set",
    "measure.flow-table=rtt",
    "--set",
    "measure.distributions=true",
];

fn whole(scratch: &Scratch, more: &[&str]) -> Files {
    let args = [&["run", "small.toml", "--out", "whole"], &TRIALS[..], more].concat();
    scratch.run(&args).expect(0);
    scratch.files("whole")
}

fn kill(child: &mut Child) {
    child.kill().expect("it can be killed");
    let status = child.wait().expect("it can be waited for");
    assert!(status.signal() == Some(KILLED) || status.success(), "{status}");
}

/// Bytes of a file; 0: none.
fn length(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |meta| meta.len())
}

/// A run that is killed when its record file has so many bytes.
fn killed_at(scratch: &Scratch, args: &[&str], file: &str, bytes: u64) {
    let mut child =
        scratch.command(args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the binary starts");
    let start = Instant::now();
    while length(&scratch.path(file)) < bytes && child.try_wait().expect("it can be asked").is_none() {
        assert!(start.elapsed() < PATIENCE, "{file} never has {bytes} bytes");
        sleep(Duration::from_micros(200));
    }
    kill(&mut child);
}

/// Numbers below one, the same for a seed.
fn random(mut state: u64) -> impl FnMut() -> f64 {
    move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[test]
fn a_run_killed_at_ten_random_points_is_resumed_to_the_same_bytes() {
    let scratch = Scratch::with_scenario("killed");
    let start = Instant::now();
    let port = ["--pcap", "r2->r1"];
    let one = whole(&scratch, &port);
    let took = start.elapsed();
    let seed = std::env::var("BANDMASTER_KILL_SEED").map_or_else(
        |_| std::time::UNIX_EPOCH.elapsed().map_or(0, |now| now.as_nanos() as u64),
        |seed| seed.parse().expect("a number"),
    );
    println!("BANDMASTER_KILL_SEED={seed}");
    let mut random = random(seed);
    let mut cut = 0;
    for point in 0..10 {
        let out = format!("killed-{point}");
        let args = [&["run", "small.toml", "--out", &out], &TRIALS[..], &port].concat();
        let mut child = scratch
            .command(&args)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the binary starts");
        sleep(took.mul_f64(random()));
        kill(&mut child);
        let records = scratch.path(&out).join("trials.records");
        if length(&records) == 0 && !scratch.path(&out).join("report.html").exists() {
            // Killed before there was anything to go on with.
            let _ = fs::remove_dir_all(scratch.path(&out));
            continue;
        }
        if records.exists() {
            cut += 1;
            // And a second time on the way.
            let mut child = scratch
                .command(&["resume", &out, "--jobs", "1"])
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .expect("the binary starts");
            sleep(took.mul_f64(random() / 2.0));
            kill(&mut child);
        }
        if records.exists() {
            let jobs = ["1", "2"][point % 2];
            scratch.run(&["resume", &out, "--jobs", jobs]).expect(0);
        }
        assert_same(&one, &scratch.files(&out), &format!("point {point}, seed {seed}"));
    }
    assert!(cut >= 3, "only {cut} runs were killed on their way");
}

/// Whatever part of a frame was written, the trials before it are there: each length of a file that a kill can leave.
#[test]
fn half_a_record_costs_its_trial_only() {
    let scratch = Scratch::with_scenario("half");
    let args = [&["shard", "1/1", "small.toml", "-o", "all.records", "--jobs", "1"], &TRIALS[..]].concat();
    scratch.run(&args).expect(0);
    let all = fs::read(scratch.path("all.records")).expect("a record file");
    let mut least = 0;
    for cut in [0, 10, 40, 1_500, 20_000, all.len() / 3, all.len() / 2, all.len() - 1, all.len()] {
        scratch.write("cut.records", &all[..cut]);
        let merged = scratch.run(&["merge", "cut.records", "--no-report"]);
        if cut < all.len() {
            assert_eq!(merged.code, Some(2), "{cut}: {}", merged.stderr);
        }
        let mut again = args.clone();
        again[4] = "cut.records";
        let ended = scratch.run(&again).expect(0);
        let there = ended.stderr.split("going on: ").nth(1).and_then(|rest| rest.split(' ').next());
        let there: u32 = there.map_or(0, |count| count.parse().expect("a number"));
        assert!(there >= least, "{cut}: {there} after {least}");
        least = there;
        assert!(fs::read(scratch.path("cut.records")).expect("a file") == all, "cut at {cut}");
    }
    assert_eq!(least, 24, "of a whole file nothing runs again");
    // One bit of the header or of a record before others: damage, which no command makes worse.
    fs::create_dir(scratch.path("out")).expect("a folder");
    for at in [60, all.len() / 2] {
        let mut bent = all.clone();
        bent[at] ^= 4;
        scratch.write("bent.records", &bent);
        scratch.write("out/trials.records", &bent);
        let mut again = args.clone();
        again[4] = "bent.records";
        for args in [&["merge", "bent.records", "--no-report"][..], &["resume", "out"], &again] {
            let ended = scratch.run(args).expect(2);
            assert!(ended.stderr.contains(": is damaged at byte "), "{at}: {}", ended.stderr);
        }
        for file in ["bent.records", "out/trials.records"] {
            assert!(fs::read(scratch.path(file)).expect("a file") == bent, "{at}: {file}");
        }
    }
}

#[test]
fn shards_merge_to_the_bytes_of_one_run() {
    let scratch = Scratch::with_scenario("shards");
    let one = whole(&scratch, &[]);
    for count in [1, 3, 64] {
        let name = |number: u32| format!("{number}-of-{count}.records");
        for number in 1..=count {
            let (part, file) = (format!("{number}/{count}"), name(number));
            let args = [&["shard", &part, "small.toml", "-o", &file, "--json"], &TRIALS[..]].concat();
            let json = scratch.run(&args).expect(0).json();
            let planned = json["trials"]["planned"].as_u64().expect("a number");
            assert_eq!(planned, u64::from((24 / count).max(u32::from(number <= 24))), "{part}");
            assert_eq!(json["trials"]["finished"], planned);
        }
        // In any order.
        let files: Vec<String> = (1..=count).rev().map(name).collect();
        let files: Vec<&str> = files.iter().map(String::as_str).collect();
        let out = format!("merged-{count}");
        // There may be more files than a program may have open.
        let merged = limited(&scratch, "-n 32", &[&["merge"], &files[..], &["-o", &out]].concat()).expect(0);
        assert!(merged.stdout.contains("busy/cubic"), "{}", merged.stdout);
        assert_same(&one, &scratch.files(&out), &out);
    }
}

/// A file in the folder of the scenario, quick values, several keys: the record file has all of it.
#[test]
fn a_record_file_needs_no_scenario() {
    let scratch = Scratch::new("moved");
    scratch.write("trace.txt", "0 5mbit\n1s 9mbit\n");
    scratch.write("small.toml", SCENARIO);
    let settings = ["--seed", "9", "--set", "run.duration=1s", "--quick", "--trials", "2"];
    scratch.run(&[&["run", "small.toml", "-o", "whole"], &settings[..]].concat()).expect(0);
    for (part, file) in [("1/2", "a"), ("2/2", "b")] {
        scratch.run(&[&["shard", part, "small.toml", "-o", file], &settings[..]].concat()).expect(0);
    }
    fs::remove_file(scratch.path("small.toml")).expect("removed");
    scratch.run(&["merge", "a", "b", "-o", "merged"]).expect(0);
    assert_same(&scratch.files("whole"), &scratch.files("merged"), "merged");
}

#[test]
fn shards_of_a_sweep_merge_to_its_bytes() {
    let scratch = Scratch::with_scenario("sweep-shards");
    let key = ["small.toml", "--key", "network.bottleneck.queue=20pkt,80pkt", "--quick"];
    scratch.run(&[&["sweep"], &key[..], &["-o", "whole"]].concat()).expect(0);
    for (part, file) in [("1/2", "a"), ("2/2", "b")] {
        scratch.run(&[&["shard", part], &key[..], &["-o", file]].concat()).expect(0);
    }
    scratch.run(&["merge", "a", "b", "-o", "merged"]).expect(0);
    assert_same(&scratch.files("whole"), &scratch.files("merged"), "merged");
}

/// Shards of some cases, and of a grid.
#[test]
fn shards_of_a_selection_merge_to_its_bytes() {
    let scratch = Scratch::with_scenario("selected-shards");
    let select = ["small.toml", "--variant", "cubic", "--base"];
    let grid = [
        "--grid",
        "--key",
        "network.bottleneck.queue=20pkt,80pkt",
        "--key",
        "network.bottleneck.delay=1ms,4ms",
    ];
    for (name, command, more) in [("some", "run", &[][..]), ("grid", "sweep", &grid[..])] {
        let args = [&select[..], more].concat();
        let whole = format!("{name}-whole");
        scratch.run(&[&[command], &args[..], &["-o", &whole]].concat()).expect(0);
        let files = [format!("{name}-a"), format!("{name}-b")];
        for (part, file) in ["1/2", "2/2"].into_iter().zip(&files) {
            scratch.run(&[&["shard", part], &args[..], &["-o", file]].concat()).expect(0);
        }
        let merged = format!("{name}-merged");
        scratch.run(&["merge", &files[0], &files[1], "-o", &merged]).expect(0);
        assert_same(&scratch.files(&whole), &scratch.files(&merged), &merged);
    }
}

/// A trial whose rows come in several blocks, of trials that run at the same time.
#[test]
fn rows_of_many_flows_are_merged_in_order() {
    let scratch = Scratch::new("many-rows");
    scratch.write("many.toml", MANY);
    scratch.run(&["run", "many.toml", "-o", "whole"]).expect(0);
    for (part, file) in [("1/2", "a"), ("2/2", "b")] {
        scratch.run(&["shard", part, "many.toml", "-o", file, "--jobs", "2"]).expect(0);
        let bytes = length(&scratch.path(file));
        assert!(bytes > 2 * 3 * 65_536, "{bytes} bytes are not three blocks for each of two trials");
    }
    scratch.run(&["merge", "a", "b", "-o", "merged"]).expect(0);
    assert_same(&scratch.files("whole"), &scratch.files("merged"), "merged");
}

const MANY: &str = r#"
version = 1
name = "many"
[run]
duration = "200ms"
trials = 4
[network]
builder = "star"
size = 10
[network.link]
rate = "10gbit"
delay = "10us"
[[flows]]
name = "short"
from = "hosts"
to = "hosts"
pairing = "all-to-all"
size = "20kB"
arrivals = "exponential(200us)"
"#;

#[test]
fn a_killed_shard_goes_on_with_the_same_command() {
    let scratch = Scratch::with_scenario("killed-shard");
    let one = whole(&scratch, &[]);
    let args = [&["shard", "1/1", "small.toml", "-o", "x", "--jobs", "1"], &TRIALS[..]].concat();
    killed_at(&scratch, &args, "x", 100_000);
    let ended = scratch.run(&args).expect(0);
    assert!(ended.stderr.starts_with("going on: "), "{}", ended.stderr);
    scratch.run(&["merge", "x", "-o", "merged"]).expect(0);
    assert_same(&one, &scratch.files("merged"), "merged");
}

#[test]
fn files_that_do_not_fit_are_refused_by_what_is_wrong() {
    let scratch = Scratch::with_scenario("misfits");
    scratch.write("other.toml", SCENARIO.replace("2ms", "3ms"));
    scratch.write("text", "hello");
    let shard = |part: &str, scenario: &str, file: &str, more: &[&str]| {
        scratch.run(&[&["shard", part, scenario, "-o", file], more].concat()).expect(0);
    };
    shard("1/3", "small.toml", "1", &[]);
    shard("2/3", "small.toml", "2", &[]);
    shard("3/3", "small.toml", "3", &[]);
    shard("2/2", "small.toml", "half", &[]);
    shard("3/3", "small.toml", "seed", &["--seed", "5"]);
    shard("3/3", "small.toml", "quick", &["--quick"]);
    shard("3/3", "other.toml", "other", &[]);
    let mut version = fs::read(scratch.path("3")).expect("a file");
    version[19] = 7;
    scratch.write("format", &version);
    let mut program = fs::read(scratch.path("3")).expect("a file");
    let at = program.windows(5).position(|bytes| bytes == b"0.1.0").expect("its version");
    program[at] = b'9';
    let sum = {
        let length = u32::from_le_bytes(program[23..27].try_into().expect("four")) as usize;
        crc(&program[31..32 + length])
    };
    program[27..31].copy_from_slice(&sum.to_le_bytes());
    scratch.write("program", &program);
    scratch.write("lab", of_an_emulation(&fs::read(scratch.path("3")).expect("a file")));
    let before = scratch.names("");
    let cases: &[(&[&str], &[&str])] = &[
        (&[], &["<FILE>"]),
        (&["1", "absent"], &["absent: no such file"]),
        (&["1", "text"], &["text: is no record file of bandmaster"]),
        (&["1", "2", "format"], &["format: has format version 7; this program reads version 2"]),
        (&["1", "2", "program"], &["program: was written by bandmaster 9.1.0", "start over"]),
        (&["1", "3"], &["of 8 trials are missing:", "small, newreno", "trial ", "(shard 2/3)"]),
        (&["1", "2", "3", "half"], &["and half share", "give each trial once"]),
        (&["1", "2", "1"], &["1 and 1 share 3 trials"]),
        (&["1", "2", "seed"], &["1 and seed are of different runs: seed 1 and 5"]),
        (&["1", "2", "quick"], &["of different runs: no settings and `--quick`"]),
        (&["1", "2", "other"], &["of different runs: the scenarios small.toml and other.toml"]),
        (&["lab", "1"], &["lab: is of an emulation, which is not run in parts"]),
        (&["1", "lab"], &["lab: is of an emulation, which is not run in parts"]),
    ];
    for (files, words) in cases {
        let ended = scratch.run(&[&["merge"], *files, &["-o", "out"]].concat()).expect(2);
        for word in *words {
            assert!(ended.stderr.contains(word), "{files:?}: {}", ended.stderr);
        }
        assert_eq!((ended.stdout.as_str(), scratch.names("")), ("", before.clone()), "{files:?}");
    }
    scratch.write("small.toml", SCENARIO.replace("40pkt", "41pkt"));
    shard("3/3", "small.toml", "changed", &[]);
    let ended = scratch.run(&["merge", "1", "2", "changed", "-o", "out"]).expect(2);
    assert!(ended.stderr.contains("different runs: scenario texts "), "{}", ended.stderr);

    // A shard's own file is not overwritten unasked.
    let before = fs::read(scratch.path("1")).expect("a file");
    for (part, more, words) in [
        ("1/3", None, "1: holds trials of something else (scenario texts"),
        ("1/3", Some("--quick"), "(no settings and `--quick`)"),
        ("2/3", None, "(shards 1/3 and 2/3)"),
    ] {
        let args = ["shard", part, "small.toml", "-o", "1"].into_iter().chain(more).collect::<Vec<_>>();
        let ended = scratch.run(&args).expect(2);
        assert!(ended.stderr.contains(words) && ended.stderr.contains("--force"), "{}", ended.stderr);
    }
    let ended = scratch.run(&["shard", "1/3", "small.toml", "-o", "text"]).expect(2);
    assert!(ended.stderr.contains("text: is no record file"), "{}", ended.stderr);
    assert!(fs::read(scratch.path("1")).expect("a file") == before);
    for part in ["0/3", "4/3", "3", "1/0", "-1/3", "a/b"] {
        let ended = scratch.run(&["shard", part, "small.toml", "-o", "new"]).expect(2);
        let words = if part == "-1/3" { "-1" } else { "write I/N" };
        assert!(ended.stderr.contains(words), "{part}: {}", ended.stderr);
    }
}

/// The header of a record file of `run`, as `emulate` would have written it, without trials.
fn of_an_emulation(file: &[u8]) -> Vec<u8> {
    let length = u32::from_le_bytes(file[23..27].try_into().expect("four")) as usize;
    let content = &file[32..32 + length];
    let at = content.windows(4).position(|bytes| bytes == b"\x03run").expect("its command");
    // The kind of the frame comes before its content.
    let mut framed = vec![file[31]];
    framed.extend(&content[..at]);
    framed.extend(b"\x07emulate");
    framed.extend(&content[at + 4..]);
    let mut lab = file[..23].to_vec();
    lab.extend((framed.len() as u32 - 1).to_le_bytes());
    lab.extend(crc(&framed).to_le_bytes());
    lab.extend(framed);
    lab
}

/// Where there is no lab, an emulation is refused and not simulated.
#[cfg(not(target_os = "linux"))]
#[test]
fn an_emulation_is_resumed_on_linux_only() {
    let scratch = Scratch::with_scenario("elsewhere");
    scratch.run(&["shard", "1/3", "small.toml", "-o", "1"]).expect(0);
    fs::create_dir(scratch.path("out")).expect("a folder");
    scratch.write("out/trials.records", of_an_emulation(&fs::read(scratch.path("1")).expect("a file")));
    let refused = scratch.run(&["resume", "out"]).expect(3);
    assert!(refused.stderr.contains("out: is of an emulation"), "{refused:?}");
}

/// CRC-32 by its definition, bit by bit; the kind of a frame comes before its content, but behind the sum.
fn crc(kind_and_content: &[u8]) -> u32 {
    let mut sum = u32::MAX;
    for byte in kind_and_content {
        sum ^= u32::from(*byte);
        for _ in 0..8 {
            sum = if sum & 1 == 1 { sum >> 1 ^ 0xedb8_8320 } else { sum >> 1 };
        }
    }
    !sum
}

#[test]
fn what_cannot_be_resumed_is_named() {
    let scratch = Scratch::with_scenario("unresumable");
    scratch.run(&["run", "small.toml", "--quick", "-o", "whole"]).expect(0);
    fs::create_dir(scratch.path("empty")).expect("a folder");
    fs::create_dir(scratch.path("old")).expect("a folder");
    scratch.write("old/INCOMPLETE", "");
    fs::create_dir(scratch.path("begun")).expect("a folder");
    scratch.write("begun/trials.records", "bandmaster rec");
    for (folder, words) in [
        ("absent", "absent: no such folder"),
        ("small.toml", "small.toml: is a file"),
        ("empty", "empty: is no result folder"),
        ("whole", "whole: is complete; there is nothing to resume"),
        ("old", "has no trials.records: it is of a merge"),
        ("begun", "holds nothing: its program was killed as it began"),
    ] {
        let ended = scratch.run(&["resume", folder]).expect(2);
        assert!(ended.stderr.contains(words), "{folder}: {}", ended.stderr);
    }
}

#[test]
fn a_folder_that_is_not_complete_is_not_overwritten_and_not_shared() {
    let scratch = Scratch::with_scenario("shared");
    let args = ["run", "small.toml", "--trials", "2000", "-o", "out"];
    let mut child =
        scratch.command(&args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
    let records = scratch.path("out/trials.records");
    let start = Instant::now();
    while length(&records) < 20_000 {
        assert!(start.elapsed() < PATIENCE, "no trial ends");
        sleep(Duration::from_millis(1));
    }
    for args in [&["resume", "out"][..], &[&args[..], &["--force"]].concat()] {
        let ended = scratch.run(args).expect(2);
        assert!(ended.stderr.contains("another bandmaster is writing it"), "{args:?}: {}", ended.stderr);
    }
    kill(&mut child);
    let before = scratch.files("out");
    let ended = scratch.run(&args).expect(2);
    assert!(
        ended.stderr.contains("`bandmaster resume out` goes on with it; --force starts over"),
        "{}",
        ended.stderr
    );
    let ended = scratch.run(&["merge", "--force", "-o", "out", "out/../out/trials.records"]).expect(2);
    assert!(ended.stderr.contains("lies in --out"), "{}", ended.stderr);
    assert!(scratch.files("out") == before);
    scratch.run(&["run", "small.toml", "--quick", "-o", "out", "--force"]).expect(0);
    assert!(!records.exists());
}

/// Trials that finished before Ctrl-C are in the report, and are not run again.
#[test]
fn an_interrupted_run_is_resumed() {
    let scratch = Scratch::with_scenario("interrupted");
    let one = whole(&scratch, &[]);
    let args = [&["run", "small.toml", "--out", "out", "--jobs", "1"], &TRIALS[..]].concat();
    let mut command = scratch.command(&args);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
    let start = Instant::now();
    while length(&scratch.path("out/trials.records")) < 100_000 {
        assert!(start.elapsed() < PATIENCE, "no trial ends");
        sleep(Duration::from_micros(200));
    }
    let kill = Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill runs");
    assert!(kill.success());
    let code = child.wait().expect("it ends").code();
    assert!(code == Some(130), "{code:?}: it was not interrupted");
    let names = scratch.names("out");
    assert!(
        names.contains(&"report.html".to_owned()) && names.contains(&"INCOMPLETE".to_owned()),
        "{names:?}"
    );
    let ended = scratch.run(&["resume", "out"]).expect(0);
    assert!(!ended.stderr.contains("resuming: 0 of"), "{}", ended.stderr);
    assert_same(&one, &scratch.files("out"), "resumed");
}

/// Runs the binary with a limit of the shell's.
fn limited(scratch: &Scratch, limit: &str, args: &[&str]) -> Ended {
    let program = scratch.command(args);
    let mut shell = Command::new("bash");
    shell.current_dir(scratch.path("")).arg("-c");
    shell.arg(format!("trap '' XFSZ; ulimit {limit}; exec \"$0\" \"$@\""));
    shell.arg(program.get_program()).args(program.get_args());
    ended(shell)
}

/// Trials that cannot be kept are not run: of 8000, those that fit.
#[test]
fn a_disk_that_is_full_ends_the_run() {
    let scratch = Scratch::with_scenario("full-early");
    for (rows, file) in [("none", "out"), ("counts", "rows")] {
        let set = format!("measure.flow-table={rows}");
        let args = ["run", "small.toml", "--trials", "2000", "--set", &set, "--json", "--out", file];
        let full = limited(&scratch, "-f 20", &args).expect(4);
        assert!(full.stderr.contains(&format!("bandmaster resume {file}")), "{}", full.stderr);
        let finished = full.json()["trials"]["finished"].as_u64().expect("a number");
        assert!((1..200).contains(&finished), "{finished}");
        assert!(length(&scratch.path(file).join("trials.records")) > 4_000, "the trials are kept");
    }
    let args = ["shard", "1/1", "small.toml", "--trials", "2000", "-o", "x"];
    let full = limited(&scratch, "-f 20", &args).expect(4);
    assert!(full.stderr.contains("the same command goes on with them"), "{}", full.stderr);
}

/// A file that may not grow stands for a full disk; and a real one, where root may mount it.
#[test]
fn trials_that_finished_before_the_disk_was_full_are_resumed() {
    let scratch = Scratch::with_scenario("full-disk");
    let one = whole(&scratch, &[]);
    let args = [&["run", "small.toml", "--out", "out"], &TRIALS[..]].concat();
    let full = limited(&scratch, "-f 150", &args).expect(4);
    assert!(full.stderr.contains("bandmaster resume out"), "{}", full.stderr);
    let resumed = scratch.run(&["resume", "out"]).expect(0);
    assert!(!resumed.stderr.contains("resuming: 0 of"), "{}", resumed.stderr);
    assert_same(&one, &scratch.files("out"), "resumed");
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_file_system_loses_no_finished_trial() {
    let test = "a_full_file_system_loses_no_finished_trial";
    let scratch = Scratch::with_scenario("tmpfs");
    if !crate::program::is_root() {
        return crate::program::skip(test, "needs root: mounts a file system");
    }
    fs::create_dir(scratch.path("disk")).expect("a folder");
    let mount = |args: &[&str]| {
        let mut command = Command::new("mount");
        ended({
            command.args(args).arg(scratch.path("disk"));
            command
        })
    };
    let mounted = mount(&["-t", "tmpfs", "-o", "size=200k", "bandmaster-test"]);
    if mounted.code != Some(0) {
        return crate::program::skip(test, mounted.stderr.trim());
    }
    let one = whole(&scratch, &[]);
    let full = scratch.run(&[&["run", "small.toml", "--out", "disk/out"], &TRIALS[..]].concat());
    let larger = mount(&["-o", "remount,size=64m"]);
    let resumed = scratch.run(&["resume", "disk/out"]);
    let files = scratch.files("disk/out");
    let unmounted = ended({
        let mut command = Command::new("umount");
        command.arg(scratch.path("disk"));
        command
    });
    unmounted.expect(0);
    larger.expect(0);
    let full = full.expect(4);
    assert!(
        full.stderr.contains("No space left") && full.stderr.contains("bandmaster resume"),
        "{}",
        full.stderr
    );
    let resumed = resumed.expect(0);
    assert!(!resumed.stderr.contains("resuming: 0 of"), "{}", resumed.stderr);
    assert_same(&one, &files, "resumed");
}

/// Record files keep what a scenario includes: shards are merged, and a run is resumed, after the files have changed.
#[test]
fn included_files_are_kept() {
    let scratch = Scratch::new("included");
    let text =
        SCENARIO.replacen("version = 1\n", "version = 1\ninclude = [\"hosts-2012\", \"base.toml\"]\n", 1);
    assert_ne!(text, SCENARIO);
    scratch.write("small.toml", &text);
    scratch.write("base.toml", "version = 1\n[tcp]\ninitial-window = \"4pkt\"\n");
    let whole = whole(&scratch, &[]);
    for shard in ["1", "2"] {
        let (part, out) = (format!("{shard}/2"), format!("{shard}.records"));
        let args = [&["shard", &part, "small.toml", "-o", &out], &TRIALS[..]].concat();
        scratch.run(&args).expect(0);
    }
    let args = [&["run", "small.toml", "--out", "killed"], &TRIALS[..]].concat();
    killed_at(&scratch, &args, "killed/trials.records", 100_000);
    let is_killed = scratch.path("killed/trials.records").exists();
    scratch.write("base.toml", "version = 1\n[tcp]\ninitial-window = \"40pkt\"\n");
    scratch.run(&["merge", "1.records", "2.records", "-o", "merged"]).expect(0);
    let without = |mut files: Files| {
        // They name the command.
        files.remove(Path::new("manifest.json"));
        files.remove(Path::new("report.html"));
        files
    };
    assert_same(&without(whole.clone()), &without(scratch.files("merged")), "merged");
    if is_killed {
        scratch.run(&["resume", "killed"]).expect(0);
        assert_same(&without(whole.clone()), &without(scratch.files("killed")), "resumed");
    }
    let other = [&["run", "small.toml", "--out", "other"], &TRIALS[..]].concat();
    scratch.run(&other).expect(0);
    let digest = |folder: &str| {
        let summary =
            String::from_utf8(scratch.files(folder)[Path::new("manifest.json")].clone()).expect("UTF-8");
        summary
            .split("\"digest\"")
            .nth(1)
            .and_then(|rest| rest.split('"').nth(1))
            .expect("a digest")
            .to_owned()
    };
    assert_ne!(digest("whole"), digest("other"), "what is included counts in the digest");
}
