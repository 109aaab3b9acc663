//! What is refused, with which words, and that nothing is touched.

use crate::program::{SCENARIO, Scratch};

#[test]
fn wrong_command_lines_exit_2_and_touch_nothing() {
    let scratch = Scratch::with_scenario("usage");
    let cases: &[(&[&str], &str)] = &[
        (&["nonsense"], "unrecognized subcommand 'nonsense'"),
        (&["run"], "<SCENARIO.toml>"),
        (&["run", "small.toml", "--jobs", "0"], "write a whole number from 1 to 1024"),
        (&["run", "small.toml", "--jobs", "two"], "write a whole number from 1 to 1024"),
        (&["run", "small.toml", "--jobs", "-2"], "write a whole number from 1 to 1024"),
        (&["run", "small.toml", "--trials", "0"], "write a whole number from 1 to 100000"),
        (&["run", "small.toml", "--seed", "-1"], "write a whole number from 0 to 9223372036854775807"),
        (&["run", "small.toml", "--set", "run.trials"], "key=value"),
        (&["run", "small.toml", "--force"], "--out <DIR>"),
        (&["run", "small.toml", "--no-report", "--out", "x"], "cannot be used with"),
        (&["run", "small.toml", "--pcap-case", "cubic"], "--pcap <FROM->TO>"),
        (&["sweep", "small.toml"], "--key <KEY=V1,V2,...>"),
        (&["sweep", "small.toml", "--key", "run.seed=1,,2"], "empty value"),
        (&["reproduce", "nothing"], "[possible values: bas, fbqm, er2bc, qcbf, opentcp, published]"),
        (&["list", "nothing"], "[possible values: schemes"),
        (&["completions", "dos"], "[possible values: bash"),
    ];
    for (args, words) in cases {
        let ended = scratch.run(args).expect(2);
        assert!(ended.stderr.contains(words), "{args:?}: {}", ended.stderr);
        assert_eq!(ended.stdout, "", "{args:?}");
    }
    assert_eq!(scratch.names(""), ["small.toml"]);
}

#[test]
fn files_that_are_no_scenarios_are_named() {
    let scratch = Scratch::new("files");
    scratch.write("empty.toml", "");
    scratch.write("blank.toml", " \n\t\n");
    scratch.write("latin.toml", b"version = 1\nname = \"caf\xe9\"\n");
    scratch.write("broken.toml", "version = 1\nname = \n");
    scratch.write("policy.toml", include_str!("../../../../policies/opentcp1.toml"));
    std::fs::create_dir(scratch.path("folder")).expect("a folder");
    scratch.write("folder/a.toml", SCENARIO);
    scratch.write("folder/b.toml", SCENARIO);
    let before = scratch.files("");
    let cases = [
        ("absent.toml", "error: absent.toml: no such file\n"),
        (
            "empty.toml",
            "error: empty.toml: is empty; a scenario starts with `version = 1` (see `bandmaster schema`)\n",
        ),
        (
            "blank.toml",
            "error: blank.toml: is empty; a scenario starts with `version = 1` (see `bandmaster schema`)\n",
        ),
        ("latin.toml", "error: latin.toml:2:12: is not UTF-8 text\n"),
        ("folder", "error: folder: is a folder; it holds a.toml, b.toml\n"),
        (
            "policy.toml",
            "error: policy.toml: is a policy, not a scenario; `bandmaster explain` takes it with a --state\n",
        ),
    ];
    for command in ["run", "check", "explain"] {
        for (file, message) in cases {
            let ended = scratch.run(&[command, file]).expect(2);
            assert_eq!((ended.stderr.as_str(), ended.stdout.as_str()), (message, ""), "{command} {file}");
        }
        let ended = scratch.run(&[command, "broken.toml"]).expect(2);
        assert!(ended.stderr.starts_with("broken.toml:2:8: error: "), "{}", ended.stderr);
    }
    assert_eq!(scratch.files(""), before);
}

#[test]
fn wrong_keys_and_values_are_found_before_anything_is_touched() {
    let scratch = Scratch::with_scenario("keys");
    scratch.write(
        "wrong.toml",
        SCENARIO.replace("delay = \"2ms\"", "dely = \"2ms\"").replace("\"10mbit\"", "\"10mbps\""),
    );
    let ended = scratch.run(&["run", "wrong.toml", "--out", "out"]).expect(2);
    assert!(ended.stderr.contains("`dely`") && ended.stderr.contains("`delay`"), "{}", ended.stderr);
    assert!(ended.stderr.contains("mbps"), "all errors at once: {}", ended.stderr);

    let ended = scratch.run(&["run", "small.toml", "--out", "out", "--set", "run.trails=3"]).expect(2);
    assert!(
        ended.stderr.contains("--set run.trails=3") && ended.stderr.contains("`trials`"),
        "{}",
        ended.stderr
    );

    let ended = scratch.run(&["run", "small.toml", "--out", "out", "--pcap", "r1->r3"]).expect(2);
    assert!(ended.stderr.contains("no such port") && ended.stderr.contains("r1->r2"), "{}", ended.stderr);
    let ended = scratch
        .run(&["run", "small.toml", "--out", "out", "--pcap", "r1->r2", "--pcap-case", "reno"])
        .expect(2);
    assert!(ended.stderr.contains("allowed: newreno, cubic"), "{}", ended.stderr);
    assert_eq!(scratch.names(""), ["small.toml", "wrong.toml"]);
}

#[test]
fn check_goes_on_after_a_wrong_file() {
    let scratch = Scratch::with_scenario("check");
    let ended = scratch.run(&["check", "absent.toml", "small.toml"]).expect(2);
    assert_eq!(ended.stderr, "error: absent.toml: no such file\n");
    assert_eq!(
        ended.stdout,
        "small.toml: valid; 2 variants, 1 sweep: 4 cases x 2 trials = 8 runs of up to 4 flows and 2s; at most 22 MiB of \
         memory a run; 2 claims\n"
    );
    let ended = scratch.run(&["check", "small.toml", "--quick"]).expect(0);
    assert!(ended.stdout.contains("4 cases x 1 trial = 4 runs"), "{}", ended.stdout);
}

#[test]
fn a_folder_with_content_is_refused_and_untouched() {
    let scratch = Scratch::with_scenario("occupied");
    std::fs::create_dir(scratch.path("out")).expect("a folder");
    scratch.write("out/thesis.txt", "years of work");
    let before = scratch.files("");
    let ended = scratch.run(&["run", "small.toml", "--out", "out"]).expect(2);
    assert!(
        ended.stderr.contains("`out` is not empty") && ended.stderr.contains("--force"),
        "{}",
        ended.stderr
    );
    let ended = scratch.run(&["run", "small.toml", "--out", "small.toml", "--force"]).expect(2);
    assert!(ended.stderr.contains("is a file"), "{}", ended.stderr);
    assert_eq!(scratch.files(""), before);

    scratch.run(&["run", "small.toml", "--quick", "--out", "out", "--force"]).expect(0);
    let names = scratch.names("out");
    assert!(
        names.contains(&"thesis.txt".to_owned()) && names.contains(&"report.html".to_owned()),
        "{names:?}"
    );
}

#[cfg(target_os = "linux")]
#[test]
fn a_folder_that_cannot_be_made_is_a_failure_of_the_run() {
    let scratch = Scratch::with_scenario("unwritable");
    let ended = scratch.run(&["run", "small.toml", "--out", "/proc/bandmaster"]).expect(4);
    assert!(ended.stderr.contains("/proc/bandmaster"), "{}", ended.stderr);
}
