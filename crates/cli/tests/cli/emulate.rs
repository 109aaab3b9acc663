//! What `emulate` leaves of itself: nothing, however it ends. As root; without, each test says that it was skipped.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::program::{Ended, Scratch, copy_program, ended, is_root, no_lab, skip};

/// Two hosts, a router, and a shaper of the kernel.
const SCENARIO: &str = r#"version = 1
name = "lab"
[run]
duration = "1s"
sample = "500ms"
trials = 1
[network]
hosts = ["a", "b"]
routers = ["r"]
host-delay = 0.0
[network.link]
rate = "100mbit"
delay = "1ms"
[[network.links]]
ends = ["a", "r"]
[[network.links]]
ends = ["r", "b"]
[network.links.queue]
discipline = "htb"
rate = "4mbit"
limit = "20pkt"
direct = [48]
[[network.links.queue.classes]]
name = "one"
dscp = [0]
rate = "1mbit"
[[flows]]
name = "bulk"
from = "a"
to = "b"
"#;
const PATIENCE: Duration = Duration::from_secs(20);

/// One at a time, and only as root.
fn alone(test: &str) -> Option<MutexGuard<'static, ()>> {
    static ONE: Mutex<()> = Mutex::new(());
    if let Some(why) = no_lab() {
        skip(test, why);
        return None;
    }
    Some(ONE.lock().unwrap_or_else(PoisonError::into_inner))
}

fn scratch(name: &str) -> Scratch {
    let scratch = Scratch::new(name);
    scratch.write("lab.toml", SCENARIO);
    scratch
}

/// What the machine has outside of the namespaces of emulations.
fn machine() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let commands: [&[&str]; 7] = [
        &["ip", "-o", "link", "show"],
        &["ip", "-o", "address", "show"],
        &["ip", "rule", "show"],
        &["ip", "route", "show", "table", "all"],
        &["tc", "qdisc", "show"],
        &["tc", "class", "show"],
        &["nft", "list", "ruleset"],
    ];
    let mut add = |words: &[&str]| {
        // Where a program is missing, so is what it would list, before and after.
        let output = Command::new(words[0]).args(&words[1..]).output();
        let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
        let text = text.unwrap_or_default();
        found.extend(text.lines().map(|line| format!("{}: {}", words.join(" "), line.trim())));
    };
    commands.into_iter().for_each(&mut add);
    for device in names("/sys/class/net") {
        for side in ["root", "ingress"] {
            add(&["tc", "filter", "show", "dev", &device, side]);
        }
    }
    found.extend(names("/sys/fs/bpf").into_iter().map(|name| format!("pinned: {name}")));
    found.extend(programs_of_nobody());
    for folder in ["/proc/sys/net/core", "/proc/sys/net/ipv4", "/proc/sys/kernel"] {
        parameters(Path::new(folder), &mut found);
    }
    found
}

/// BPF programs that no process holds, as they are after the end of the one that loaded them.
fn programs_of_nobody() -> Vec<String> {
    let output = Command::new("bpftool").args(["--json", "prog", "show"]).output();
    let all: Value = output.ok().and_then(|o| serde_json::from_slice(&o.stdout).ok()).unwrap_or_default();
    let all = all.as_array().map(Vec::as_slice).unwrap_or_default();
    // Where bpftool cannot tell who holds them, it tells of none.
    if all.iter().all(|program| program["pids"].is_null()) {
        return Vec::new();
    }
    let lonely = all.iter().filter(|program| program["pids"].is_null());
    lonely.map(|program| format!("bpf: {} {}", program["id"], program["name"])).collect()
}

fn names(folder: &str) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// Kernel parameters below a folder, without those that change by themselves.
fn parameters(folder: &Path, found: &mut BTreeSet<String>) {
    const COUNTERS: [&str; 6] = [
        "random",
        "ns_last_pid",
        "pty",
        "tainted",
        "perf_event_max_sample_rate",
        "perf_cpu_time_max_percent",
    ];
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        if COUNTERS.iter().any(|counter| name == *counter) {
            continue;
        }
        if path.is_dir() {
            parameters(&path, found);
        } else if let Ok(value) = fs::read_to_string(&path) {
            found.insert(format!("{} = {}", path.display(), value.trim()));
        }
    }
}

/// Namespaces, journals and processes of the emulation that was process `id`.
fn left_by(id: u32) -> BTreeSet<String> {
    let own = format!("{id:x}");
    // The process, then five digits.
    let is_own = |run: &str| run.len() == own.len() + 5 && run.starts_with(&own);
    let namespaces = names("/run/netns").into_iter();
    let namespaces = namespaces
        .filter(|name| name.strip_prefix("bm-").and_then(|rest| rest.split('-').next()).is_some_and(is_own));
    let journals = names("/run/bandmaster/emulate").into_iter();
    let journals = journals.filter(|name| name.strip_suffix(".json").is_some_and(is_own));
    // The test makes each emulation the leader of a group of its own.
    let in_group = |process: &String| {
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        let after = stat.rsplit_once(')').map_or("", |(_, after)| after);
        after.split_whitespace().nth(2) == Some(&id.to_string())
    };
    let processes = names("/proc").into_iter().filter(in_group).map(|process| format!("process {process}"));
    namespaces.chain(journals).chain(processes).collect()
}

/// Nothing is left of process `id`, and the machine is as it was. Others use it too, so what differs may come and go.
fn expect_nothing_left(before: &BTreeSet<String>, id: u32) {
    assert_eq!(left_by(id), BTreeSet::new());
    let start = Instant::now();
    loop {
        let after = machine();
        if after == *before {
            return;
        }
        let differs: Vec<&String> = after.symmetric_difference(before).collect();
        assert!(start.elapsed() < Duration::from_secs(5), "{differs:#?}");
        sleep(Duration::from_millis(200));
    }
}

fn start(mut command: Command) -> Child {
    command.process_group(0).stdout(Stdio::null()).stderr(Stdio::piped());
    command.spawn().expect("the binary starts")
}

/// An emulation of minutes whose traffic runs.
fn at_work(scratch: &Scratch) -> Child {
    let args = ["emulate", "lab.toml", "--no-report", "--set", "run.duration=300s"];
    let child = start(scratch.command(&args));
    let begin = Instant::now();
    // Three namespaces and a journal, and the process.
    while left_by(child.id()).len() < 5 {
        assert!(begin.elapsed() < PATIENCE, "the emulation never starts: {:?}", left_by(child.id()));
        sleep(Duration::from_millis(20));
    }
    sleep(Duration::from_millis(800));
    child
}

fn signal(child: &Child, name: &str) {
    let status = Command::new("kill").args([name, &child.id().to_string()]).status().expect("kill runs");
    assert!(status.success());
}

fn code(child: &mut Child) -> Option<i32> {
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        if let Some(status) = child.try_wait().expect("the binary can be waited for") {
            return status.code();
        }
        sleep(Duration::from_millis(20));
    }
    child.kill().expect("the binary can be killed");
    panic!("the emulation does not end");
}

#[test]
fn a_run_to_its_end_leaves_nothing() {
    let Some(_alone) = alone("a_run_to_its_end_leaves_nothing") else { return };
    let scratch = scratch("emulate-end");
    let before = machine();
    let mut child =
        start(scratch.command(&["emulate", "lab.toml", "--trials", "2", "--jobs", "2", "--out", "out"]));
    let code = code(&mut child);
    let mut said = String::new();
    let _ = child.stderr.take().map(|mut stderr| stderr.read_to_string(&mut said));
    assert_eq!(code, Some(0), "{said}");
    expect_nothing_left(&before, child.id());
    assert!(scratch.path("out/report.html").exists());
}

/// Each file that it opens could be the first too many: before, while and after the network is made.
#[test]
fn a_run_that_fails_leaves_nothing() {
    let Some(_alone) = alone("a_run_that_fails_leaves_nothing") else { return };
    let scratch = scratch("emulate-fail");
    let before = machine();
    let mut failed = 0;
    for files in [8, 12, 14, 16, 18, 20, 24] {
        let mut command = Command::new("sh");
        let script = format!("ulimit -n {files}; exec \"$0\" emulate lab.toml --no-report");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_bandmaster")]);
        command.current_dir(scratch.path("")).stdin(Stdio::null());
        let mut child = start(command);
        let code = code(&mut child);
        assert!(matches!(code, Some(0 | 3 | 4)), "{files} files: {code:?}");
        failed += u32::from(code == Some(4));
        assert_eq!(left_by(child.id()), BTreeSet::new(), "{files} files");
        if code == Some(0) {
            break;
        }
    }
    assert!(failed > 0, "no limit made a run fail");
    let child = start(scratch.command(&["--version"]));
    let id = child.id();
    let _ = child.wait_with_output();
    expect_nothing_left(&before, id);
}

#[test]
fn ctrl_c_leaves_nothing_and_neither_does_a_second_one() {
    let Some(_alone) = alone("ctrl_c_leaves_nothing_and_neither_does_a_second_one") else { return };
    let scratch = scratch("emulate-stop");
    let before = machine();
    for signals in [1, 2] {
        let mut child = at_work(&scratch);
        for _ in 0..signals {
            signal(&child, "-INT");
        }
        assert_eq!(code(&mut child), Some(130), "{signals} signals");
        expect_nothing_left(&before, child.id());
    }
}

/// A transfer of 400 kB at 8 Mbit/s, and datagrams.
const FLOWS: &str = r#"version = 1
name = "rows"
[run]
duration = "2s"
sample = "500ms"
trials = 3
[network]
hosts = ["a", "b"]
routers = ["r"]
host-delay = 0.0
[[network.links]]
ends = ["a", "r"]
rate = "100mbit"
[[network.links]]
ends = ["r", "b"]
rate = "8mbit"
delay = "5ms"
queue = "20pkt"
[[flows]]
name = "short"
from = "a"
to = "b"
size = "400kB"
[[flows]]
name = "endless"
from = "b"
to = "a"
[[flows]]
name = "steady"
from = "a"
to = "b"
transport = "udp"
rate = "1mbit"
start = "500ms"
stop = "1500ms"
"#;

/// Trials that finished are kept, and rows say what Linux tells of flows.
#[test]
fn a_killed_emulation_goes_on_from_its_trials_and_has_rows_of_flows() {
    let Some(_alone) = alone("a_killed_emulation_goes_on_from_its_trials_and_has_rows_of_flows") else {
        return;
    };
    let scratch = scratch("emulate-resume");
    scratch.write("rows.toml", FLOWS);
    let mut child = start(scratch.command(&["emulate", "rows.toml", "--out", "out"]));
    let length = || fs::metadata(scratch.path("out/trials.records")).map_or(0, |meta| meta.len());
    let begin = Instant::now();
    let mut header = 0;
    while header == 0 || length() == header {
        if header == 0 {
            sleep(Duration::from_millis(200));
            header = length();
        }
        let ended = child.try_wait().expect("the binary can be waited for");
        assert!(ended.is_none() && begin.elapsed() < PATIENCE, "no trial ends: {header} bytes, {ended:?}");
        sleep(Duration::from_millis(20));
    }
    sleep(Duration::from_millis(300));
    signal(&child, "-KILL");
    assert_eq!(code(&mut child), None, "killed");
    let merged = scratch.run(&["merge", "out/trials.records", "-o", "merged"]).expect(2);
    assert!(merged.stderr.contains("is of an emulation"), "{merged:?}");

    let many = scratch.run(&["resume", "out", "--jobs", "64"]).expect(2);
    assert!(many.stderr.contains("--jobs 64 of an emulation: write a whole number from 1 to 16"), "{many:?}");
    let resumed = scratch.run(&["resume", "out"]).expect(0);
    assert!(resumed.stderr.contains("resuming: 1 of 3 trials are there"), "{resumed:?}");
    assert!(!scratch.path("out/INCOMPLETE").exists() && !scratch.path("out/trials.records").exists());
    assert_eq!(left_by(child.id()), BTreeSet::new());

    scratch.run(&["export", "out", "--format", "csv"]).expect(0);
    let text = fs::read_to_string(scratch.path("out-csv/flows.csv")).expect("a table");
    let mut lines = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let names = lines.next().expect("names");
    let rows: Vec<Vec<&str>> = lines.collect();
    assert_eq!(rows.len(), 9, "{text}");
    let cell = |row: &[&str], name: &str| {
        let at = names.iter().position(|known| *known == name).unwrap_or_else(|| panic!("no column {name}"));
        row[at].to_owned()
    };
    let number = |row: &[&str], name: &str| -> f64 {
        cell(row, name).parse().unwrap_or_else(|e| panic!("{name}: {e} in {row:?}"))
    };
    for row in &rows {
        let group = cell(row, "group");
        for unknown in ["source_port", "rtt_samples", "rtt_p50_ms"] {
            assert_eq!(cell(row, unknown), "", "{unknown} of {group}");
        }
        assert_eq!(cell(row, "destination_port"), "5001");
        match group.as_str() {
            "short" => {
                assert_eq!(number(row, "bytes"), 400_000.0);
                // 400 kB take 0.42 s at the link's rate, and share it with datagrams.
                let (took, slowdown) = (number(row, "fct_s"), number(row, "slowdown"));
                assert!((0.4..1.9).contains(&took) && slowdown > 0.98, "{took} s, {slowdown}");
                assert!(
                    number(row, "packets") >= 277.0 && number(row, "retransmits") <= number(row, "packets")
                );
                assert!(number(row, "drops") <= 100.0);
            }
            "endless" => {
                assert_eq!((cell(row, "size"), cell(row, "end_s"), cell(row, "fct_s")), Default::default());
                assert!(number(row, "bytes") > 100_000.0);
            }
            _ => {
                assert_eq!((cell(row, "protocol").as_str(), cell(row, "packets").as_str()), ("udp", ""));
                assert_eq!((number(row, "start_s"), number(row, "end_s")), (0.5, 1.5));
            }
        }
    }
    let lost: f64 = rows.iter().map(|row| number(row, "drops")).sum();
    let trials = fs::read_to_string(scratch.path("out-csv/trials.csv")).expect("a table");
    let mut lines = trials.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let at = lines.next().and_then(|names| names.iter().position(|name| *name == "drops")).expect("drops");
    let drops: f64 = lines.map(|row| row[at].parse::<f64>().expect("a number")).sum();
    assert!(lost > 0.0 && lost <= drops, "{lost} of {drops} drops are of senders");
}

#[test]
fn clean_removes_what_a_killed_run_leaves() {
    let Some(_alone) = alone("clean_removes_what_a_killed_run_leaves") else { return };
    let scratch = scratch("emulate-kill");
    let before = machine();
    let mut child = at_work(&scratch);
    signal(&child, "-KILL");
    assert_eq!(code(&mut child), None, "killed");
    let cleaned = scratch.run(&["emulate", "--clean"]).expect(0);
    expect_nothing_left(&before, child.id());
    // Any other emulation that starts on this machine cleans too.
    let says = format!("removed bm-{:x}", child.id());
    assert!(cleaned.stdout.contains(&says) || cleaned.stderr.contains("nothing was left"), "{cleaned:?}");
}

/// Both are found before anything that needs root.
#[test]
fn iperf3_is_refused_what_it_cannot_express_and_missed_where_it_is_not() {
    let scratch = scratch("emulate-iperf3");
    let pauses = format!("{SCENARIO}on = \"1s\"\noff = \"1s\"\n");
    scratch.write("pauses.toml", pauses);
    let refused = scratch.run(&["emulate", "pauses.toml", "--traffic", "iperf3", "--no-report"]).expect(2);
    let says = "error: lab, base: flows bulk: `on` and `off`: iperf3 sends without pauses";
    assert!(refused.stderr.contains(says), "{refused:?}");
    let mut command = scratch.command(&["emulate", "lab.toml", "--traffic", "iperf3", "--no-report"]);
    command.env("PATH", "");
    let missed = ended(command).expect(3);
    assert!(missed.stderr.contains("install iperf3"), "{missed:?}");
}

/// Only root can become somebody else to try it; others are somebody else already.
#[test]
fn without_root_it_works_or_says_what_to_do() {
    let scratch = scratch("emulate-user");
    let ended = if is_root() {
        // The folder of the test may be closed to others.
        let folder = std::env::temp_dir().join(format!("bandmaster-emulate-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("room");
        let (program, file) = (folder.join("bandmaster"), folder.join("lab.toml"));
        copy_program(&program);
        fs::write(&file, SCENARIO).expect("room");
        let mut command = Command::new(&program);
        command.args(["emulate", "lab.toml", "--no-report"]).current_dir(&folder).uid(65_534).gid(65_534);
        let ended = ended(command);
        fs::remove_dir_all(folder).expect("it was made above");
        ended
    } else {
        scratch.run(&["emulate", "lab.toml", "--no-report"])
    };
    judge(&ended);
}

fn judge(ended: &Ended) {
    if ended.code != Some(0) {
        assert_eq!(ended.code, Some(3), "{ended:?}");
        let error = ended.stderr.lines().last().unwrap_or_default();
        assert!(error.starts_with("error: ") && error.contains("run as root"), "{ended:?}");
    }
}
