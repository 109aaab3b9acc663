//! `bandmaster agent` as far as it needs no privilege. What it does to connections is tested in `crates/linux/tests/host`.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::program::Scratch;

const FILE: &str = "version = 1\nscheme = \"opentcp\"\nnumber = 7\nstate-directory = \"STATE\"\n\
                    [controller]\naddress = \"192.0.2.1\"\nkey-file = \"key\"\n";

fn scratch(name: &str) -> Scratch {
    let scratch = Scratch::new(name);
    let state = scratch.path("state");
    scratch.write("agent.toml", FILE.replace("STATE", &state.display().to_string()));
    scratch.write("key", "of this host and its controller");
    fs::set_permissions(scratch.path("key"), fs::Permissions::from_mode(0o600)).expect("set");
    scratch
}

#[test]
fn a_file_is_checked_with_its_secret() {
    let scratch = scratch("agent-check");
    let said = scratch.run(&["agent", "check", "agent.toml"]);
    assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""));
    assert_eq!(said.stdout, "agent.toml: valid; host 7 of opentcp, controller 192.0.2.1:4742\n");
    fs::set_permissions(scratch.path("key"), fs::Permissions::from_mode(0o644)).expect("set");
    let said = scratch.run(&["agent", "check", "agent.toml"]);
    assert!(said.code == Some(2) && said.stderr.contains("everybody may use it (mode 644)"), "{said:#?}");
    scratch.write("agent.toml", FILE.replace("number = 7", "nunber = 7"));
    let said = scratch.run(&["agent", "check", "agent.toml"]);
    assert!(said.code == Some(2) && said.stderr.contains("agent.toml:3:1"), "{said:#?}");
    assert!(said.stderr.contains("did you mean `number`"), "{said:#?}");
}

#[test]
fn a_plan_names_what_the_host_can_do_and_what_stands_in_the_way() {
    let scratch = scratch("agent-plan");
    let said = scratch.run(&["agent", "plan", "agent.toml", "--json"]);
    let plan = said.json();
    let is_ready = plan["obstacles"].as_array().is_some_and(Vec::is_empty);
    assert_eq!(said.code, Some(if is_ready { 0 } else { 3 }), "{said:#?}");
    let variants = plan["capabilities"]["variants"].as_array().expect("a list");
    assert!(variants.contains(&"reno".into()), "{plan}");
    assert!(plan["capabilities"]["tick"].as_str().is_some_and(|tick| tick.ends_with('s')), "{plan}");
    assert!(!scratch.path("state").exists(), "nothing is touched");
}

#[test]
fn nobody_runs_and_nothing_is_left() {
    let scratch = scratch("agent-nobody");
    let said = scratch.run(&["agent", "status", "agent.toml"]);
    assert!(said.code == Some(4) && said.stderr.contains("no agent answers at"), "{said:#?}");
    let said = scratch.run(&["agent", "restore", "agent.toml"]);
    assert_eq!((said.code, said.stdout.as_str()), (Some(0), "nothing to restore\n"));
}
