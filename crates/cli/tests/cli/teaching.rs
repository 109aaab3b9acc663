//! Help, lists, schema, completions and man pages.

use std::io::Read;
use std::process::Stdio;

use serde_json::Value;

use crate::program::{Scratch, ended};

const COMMANDS: [&str; 16] = [
    "run",
    "reproduce",
    "sweep",
    "resume",
    "shard",
    "merge",
    "compare",
    "export",
    "doctor",
    "calibrate",
    "check",
    "explain",
    "list",
    "schema",
    "completions",
    "man",
];

#[test]
fn every_command_helps() {
    let scratch = Scratch::new("help");
    let top = scratch.run(&["--help"]).expect(0).stdout;
    for command in COMMANDS {
        assert!(top.contains(&format!("\n  {command} ")), "{command} is not in the help");
        let help = scratch.run(&[command, "--help"]).expect(0).stdout;
        assert!(help.contains(&format!("Usage: bandmaster {command}")), "{help}");
        assert!(help.contains("Example") && help.contains("Exit codes:"), "{help}");
    }
    for code in ["0 ", "1 ", "2 ", "3 ", "4 ", "5 ", "130 "] {
        assert!(top.contains(&format!("\n  {code}")), "exit code {code} is not in the help");
    }
    let bare = scratch.run(&[]).expect(2);
    assert!(bare.stdout.is_empty() && bare.stderr.contains("Usage: bandmaster"), "{bare:?}");
    let version = scratch.run(&["--version"]).expect(0).stdout;
    assert!(version.starts_with(concat!("bandmaster ", env!("CARGO_PKG_VERSION"))), "{version}");
}

#[test]
fn nobody_gets_colours_against_their_will() {
    let scratch = Scratch::new("colours");
    let help = |args: &[&str], no_color: &str| {
        let mut command = scratch.command(args);
        command.env("CLICOLOR_FORCE", "1").env("NO_COLOR", no_color);
        ended(command).expect(0).stdout
    };
    assert!(help(&["--help"], "").contains('\u{1b}'), "the forced colours are there to be taken away");
    assert!(!help(&["--help"], "1").contains('\u{1b}'));
    assert!(!help(&["--help", "--no-color"], "").contains('\u{1b}'));
}

#[test]
fn lists_name_what_scenarios_can_name() {
    let scratch = Scratch::new("lists");
    let all = scratch.run(&["list"]).expect(0).stdout;
    for word in ["bas", "fifo", "newreno", "cubic", "leaf-spine", "jain_normalised"] {
        assert!(all.contains(word), "{word} is not listed in {all}");
    }
    let json = scratch.run(&["list", "--json"]).expect(0).json();
    let lists: Vec<&String> = json.as_object().expect("an object").keys().collect();
    assert_eq!(lists, ["schemes", "qdiscs", "tcp", "builders", "presets", "reproductions", "metrics"]);
    let schemes = scratch.run(&["list", "schemes", "--json"]).expect(0).json();
    assert_eq!(schemes["schemes"], json["schemes"]);
    let key = &schemes["schemes"][0]["keys"][0];
    assert!(key["name"].is_string() && key["allowed"].is_string() && key["required"].is_boolean(), "{key}");
}

#[test]
fn explain_says_where_values_come_from() {
    let scratch = Scratch::with_scenario("explain");
    let args = ["explain", "small.toml", "--set", "run.sample=200ms"];
    let keys = scratch.run(&[&args[..], &["--json"]].concat()).expect(0).json();
    let origin = |path: &str| -> (String, String) {
        let keys = keys.as_array().expect("a list");
        let key = keys.iter().find(|key| key["path"] == path).unwrap_or_else(|| panic!("no {path}"));
        (
            key["value"].as_str().unwrap_or_default().to_owned(),
            key["origin"].as_str().unwrap_or_default().to_owned(),
        )
    };
    assert_eq!(origin("run.duration"), ("\"2s\"".to_owned(), "small.toml:6".to_owned()));
    assert!(origin("run.sample").0.contains("200ms") && origin("run.sample").1.contains("--set"));
    assert!(origin("network.frame-overhead").1.starts_with("default"));
    let table = scratch.run(&args).expect(0).stdout;
    assert!(
        table.lines().any(|line| line.starts_with("run.duration ") && line.ends_with("small.toml:6")),
        "{table}"
    );
}

#[test]
fn the_schema_is_a_json_schema() {
    let schema = Scratch::new("schema").run(&["schema"]).expect(0).json();
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    assert_eq!(schema["additionalProperties"], Value::Bool(false));
    assert!(schema["properties"]["flows"].is_object());
}

#[test]
fn completions_and_man_pages_name_every_command() {
    let scratch = Scratch::new("man");
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = scratch.run(&["completions", shell]).expect(0).stdout;
        assert!(COMMANDS.iter().all(|command| script.contains(command)), "{shell}: {script}");
    }
    let page = scratch.run(&["man"]).expect(0).stdout;
    assert!(page.contains(".TH bandmaster") && page.contains("reproduce"), "{page}");
    scratch.run(&["man", "--dir", "pages"]).expect(0);
    let pages = scratch.names("pages");
    for command in COMMANDS {
        assert!(pages.contains(&format!("bandmaster-{command}.1")), "no page of {command} in {pages:?}");
    }
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let scratch = Scratch::new("pipe");
    let mut command = scratch.command(&["schema"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary starts");
    drop(child.stdout.take());
    let mut stderr = String::new();
    child.stderr.take().expect("piped").read_to_string(&mut stderr).expect("stderr is UTF-8");
    let code = child.wait().expect("the binary ends").code();
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
}
