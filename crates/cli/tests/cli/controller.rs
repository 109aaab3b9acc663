//! `bandmaster controller`: it needs no privilege. What it does to hosts is tested in `crates/linux/tests/host`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::program::Scratch;

const FILE: &str = "version = 1\nscheme = \"opentcp\"\nhosts-file = \"hosts\"\nstate-directory = \"STATE\"\n\
                    listen-address = \"127.0.0.1\"\nlisten-port = PORT\n[role]\npolicies = [\"few-flows\"]\n";

fn scratch(name: &str, port: &str) -> Scratch {
    let scratch = Scratch::new(name);
    let state = scratch.path("state").display().to_string();
    scratch.write("c.toml", FILE.replace("STATE", &state).replace("PORT", port));
    scratch
}

#[test]
fn hosts_are_enrolled_and_checked_and_planned() {
    let scratch = scratch("controller-enroll", "4742");
    let said = scratch.run(&["controller", "check", "c.toml"]);
    assert!(said.code == Some(2) && said.stderr.contains("hosts: cannot be opened"), "{said:#?}");
    let said = scratch.run(&["controller", "enroll", "c.toml", "web-1"]);
    assert_eq!(said.code, Some(0), "{said:#?}");
    assert!(said.stderr.contains("`web-1` is host 1"), "{said:#?}");
    assert!(said.stdout.contains("scheme = \"opentcp\"\nnumber = 1\n"), "{said:#?}");
    let told = scratch.run(&["controller", "enroll", "c.toml", "web-2", "--json"]).json();
    assert_eq!((told["number"].as_u64(), told["secret"].as_str().map(str::len)), (Some(2), Some(64)));
    let said = scratch.run(&["controller", "enroll", "c.toml", "web-2"]);
    assert!(said.code == Some(2) && said.stderr.contains("a host is called `web-2` already"), "{said:#?}");
    let mode = fs::metadata(scratch.path("hosts")).expect("made").permissions().mode();
    assert_eq!(mode & 0o007, 0, "{mode:o}");
    let said = scratch.run(&["controller", "check", "c.toml"]);
    assert_eq!(said.stdout, "c.toml: valid; opentcp, 2 hosts, at 127.0.0.1:4742\n", "{said:#?}");
    let said = scratch.run(&["controller", "plan", "c.toml"]);
    assert!(said.code == Some(0) && said.stdout.contains("on 2 of 2 hosts (web-1, web-2) when"), "{said:#?}");
    assert!(!scratch.path("state").exists(), "nothing is touched");
    fs::set_permissions(scratch.path("hosts"), fs::Permissions::from_mode(0o644)).expect("set");
    let said = scratch.run(&["controller", "check", "c.toml"]);
    assert!(said.code == Some(2) && said.stderr.contains("everybody may use it"), "{said:#?}");
    let said = scratch.run(&["controller", "status", "c.toml"]);
    assert!(said.code == Some(4) && said.stderr.contains("no controller answers at"), "{said:#?}");
}

/// Ends whatever happens.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_controller_is_asked_halted_and_interrupted() {
    let scratch = scratch("controller-run", "47421");
    assert_eq!(scratch.run(&["controller", "enroll", "c.toml", "web-1"]).code, Some(0));
    let mut command = scratch.command(&["controller", "run", "c.toml", "--observe"]);
    let mut running = Running(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("started"));
    let until = |what: &str, holds: &dyn Fn() -> bool| {
        let begin = Instant::now();
        while !holds() {
            assert!(begin.elapsed() < Duration::from_secs(20), "not in time: {what}");
            thread::sleep(Duration::from_millis(50));
        }
    };
    let status = || scratch.run(&["controller", "status", "c.toml", "--json"]);
    until("it answers", &|| status().code == Some(0));
    until("it has looked around", &|| status().json()["hosts"] == 1);
    let told = status().json();
    assert_eq!((told["observes"].as_bool(), told["halted"].as_bool()), (Some(true), Some(false)), "{told}");
    let second = scratch.run(&["controller", "run", "c.toml"]);
    assert!(second.code == Some(3) && second.stderr.contains("stop it first"), "{second:#?}");
    assert_eq!(scratch.run(&["controller", "halt", "c.toml"]).code, Some(0));
    until("it is halted", &|| status().json()["halted"] == true);
    assert!(scratch.run(&["controller", "status", "c.toml"]).stdout.contains("halted: nothing is said"));
    assert_eq!(
        scratch.run(&["controller", "resume", "c.toml"]).stdout,
        "goes on within a second; hosts are told with its next decision\n"
    );
    assert_eq!(scratch.run(&["controller", "resume", "c.toml"]).stdout, "it was not halted\n");
    interrupt(running.0.id());
    assert_eq!(running.0.wait().expect("ended").code(), Some(130));
}

fn interrupt(process: u32) {
    let done = std::process::Command::new("kill").args(["-INT", &process.to_string()]).status();
    assert!(done.is_ok_and(|status| status.success()));
}
