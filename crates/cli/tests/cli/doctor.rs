//! What the machine can do, and that asking leaves nothing behind.

use std::os::unix::process::CommandExt;
use std::process::Command;

use serde_json::Value;

use crate::program::{Ended, Scratch, copy_program, ended};

fn state<'a>(json: &'a Value, area: &str, name: &str) -> &'a Value {
    let items = json["items"].as_array().expect("a list");
    let item = items.iter().find(|item| item["area"] == area && item["name"] == name);
    item.unwrap_or_else(|| panic!("no {area} {name} in {json}"))
}

/// Everything of the network that a probe could leave, as far as this user sees it.
fn network() -> String {
    let show = |args: &[&str]| {
        let output = Command::new(args[0]).args(&args[1..]).output();
        output.map_or_else(
            |error| error.to_string(),
            |output| String::from_utf8_lossy(&output.stdout).into_owned(),
        )
    };
    let shown: [&[&str]; 4] = [
        &["ip", "-brief", "link"],
        &["ip", "netns", "list"],
        &["tc", "qdisc", "show"],
        &["nft", "list", "ruleset"],
    ];
    shown.map(show).join("\n")
}

fn examined(ended: Ended) -> Value {
    assert!(matches!(ended.code, Some(0 | 3)), "{ended:#?}");
    let json = ended.json();
    let lacks = ["emulate", "gateway", "agent"].iter().any(|command| json[command]["ok"] == false);
    assert_eq!(ended.code, Some(if lacks { 3 } else { 0 }), "{json}");
    json
}

#[test]
fn everything_is_ok_missing_or_unknown_and_nothing_stays() {
    let scratch = Scratch::new("doctor");
    let json = examined(scratch.run(&["doctor", "--json"]));
    // Others change this machine's network too, but not each time; what a probe leaves is there each time.
    let unchanged = (0..5).any(|_| {
        let before = network();
        examined(scratch.run(&["doctor", "--json"]));
        network() == before
    });
    assert!(unchanged, "asking changes {}", network());
    let items = json["items"].as_array().expect("a list");
    assert!(items.len() > 30, "{json}");
    for item in items {
        let is_ok = item["state"] == "ok";
        assert!(is_ok || item["state"] == "missing" || item["state"] == "unknown", "{item}");
        assert_eq!(item["remedy"].is_null(), is_ok, "{item}");
        assert!(item["seen"].as_str().is_some_and(|seen| !seen.is_empty()), "{item}");
    }
    for command in ["emulate", "gateway", "agent"] {
        let lacks = json[command]["lacks"].as_array().expect("a list");
        let needed: Vec<&Value> = items
            .iter()
            .filter(|item| item["needed_by"].as_array().is_some_and(|list| list.contains(&command.into())))
            .filter(|item| item["state"] != "ok")
            .map(|item| &item["name"])
            .collect();
        assert_eq!(lacks.iter().collect::<Vec<_>>(), needed);
    }
    let text = scratch.run(&["doctor"]).stdout;
    assert!(
        text.starts_with("Linux ")
            && text.contains("\nemulate: ")
            && text.contains("\ngateway: ")
            && text.contains("\nagent: "),
        "{text}"
    );
}

/// Only root can become somebody else to try it; others are somebody else already.
#[test]
fn without_root_it_works_and_says_what_it_could_not_try() {
    let is_root = std::fs::metadata("/proc/self").is_ok_and(|m| std::os::unix::fs::MetadataExt::uid(&m) == 0);
    let scratch = Scratch::new("doctor-user");
    let mut command = scratch.command(&["doctor", "--json"]);
    if is_root {
        // The folder of the test may be closed to others.
        let program = std::env::temp_dir().join(format!("bandmaster-doctor-{}", std::process::id()));
        copy_program(&program);
        command = Command::new(&program);
        command.args(["doctor", "--json"]).current_dir("/").uid(65_534).gid(65_534);
        let json = examined(ended(command));
        std::fs::remove_file(program).expect("it was made above");
        judge(&json);
    } else {
        judge(&examined(ended(command)));
    }
}

fn judge(json: &Value) {
    assert_eq!(state(json, "privileges", "network administration")["state"], "missing");
    assert_eq!(json["gateway"]["ok"], false);
    assert_eq!(json["agent"]["ok"], false);
    let namespaces = state(json, "privileges", "namespaces");
    let htb = state(json, "qdisc", "htb");
    if namespaces["state"] == "ok" {
        assert!(
            namespaces["seen"].as_str().is_some_and(|seen| seen.contains("user namespace")),
            "{namespaces}"
        );
        assert_ne!(htb["state"], "unknown", "{htb}");
    } else {
        assert_eq!(htb["state"], "unknown");
        assert!(htb["seen"].as_str().is_some_and(|seen| seen.starts_with("not tried: ")), "{htb}");
    }
}
