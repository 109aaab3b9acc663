//! `bandmaster controller`: it needs no privilege. What it does to hosts is tested in `crates/linux/tests/host`.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
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
    assert!(scratch.run(&["controller", "status", "c.toml"]).stdout.contains("halted: sends nothing"));
    assert_eq!(
        scratch.run(&["controller", "resume", "c.toml"]).stdout,
        "goes on within a second; hosts receive its next decision\n"
    );
    assert_eq!(scratch.run(&["controller", "resume", "c.toml"]).stdout, "it was not halted\n");
    interrupt(running.0.id());
    assert_eq!(running.0.wait().expect("ended").code(), Some(130));
}

fn interrupt(process: u32) {
    let done = std::process::Command::new("kill").args(["-INT", &process.to_string()]).status();
    assert!(done.is_ok_and(|status| status.success()));
}

/// A controller that hosts enrol at, and a host whose agent needs no privilege: it tells of the loopback.
struct Network {
    scratch: Scratch,
    controller: Option<Running>,
    agent: Option<Running>,
}

const AGENT: &str = "version = 1\nscheme = \"opentcp\"\nsite = \"router\"\nnumber = 1\nstate-directory = \"STATE\"\n\
                     [controller]\naddress = \"127.0.0.1\"\nport = PORT\nlisten-port = OWN\nenrolment-port = PORT\n\
                     key-file = \"key\"\ncertificate-file = \"certificate\"\n[role]\ncycle = \"100ms\"\n\
                     [[ports]]\ninterface = \"lo\"\nrate = \"1gbit\"\n";

impl Network {
    fn new(name: &str, port: u16) -> Self {
        let scratch = scratch(name, &port.to_string());
        let file = fs::read_to_string(scratch.path("c.toml")).expect("there");
        let enrolment = format!("enrolment = \"127.0.0.1:{port}\"\n[role]\ncycle = \"100ms\"\n");
        scratch.write("c.toml", file.replace("[role]\n", &enrolment));
        let agent = AGENT.replace("STATE", &scratch.path("agent-state").display().to_string());
        let agent = agent.replace("PORT", &port.to_string()).replace("OWN", &(port + 1).to_string());
        scratch.write("a.toml", agent);
        Self { scratch, controller: None, agent: None }
    }

    fn start(&self, daemon: &str, file: &str) -> Option<Running> {
        let log = fs::OpenOptions::new().append(true).create(true).open(self.scratch.path("log"));
        let mut command = self.scratch.command(&[daemon, "run", file]);
        command.stdout(Stdio::null()).stderr(log.expect("a log"));
        Some(Running(command.spawn().expect("started")))
    }

    fn until(&self, what: &str, holds: impl Fn(&serde_json::Value) -> bool) -> serde_json::Value {
        let begin = Instant::now();
        loop {
            let said = self.scratch.run(&["controller", "status", "c.toml", "--json"]);
            if said.code == Some(0) && holds(&said.json()) {
                return said.json();
            }
            let log = fs::read_to_string(self.scratch.path("log")).unwrap_or_default();
            assert!(begin.elapsed() < Duration::from_secs(20), "not in time: {what}\n{said:#?}\n{log}");
            thread::sleep(Duration::from_millis(50));
        }
    }

    fn token(&self) -> String {
        let said = self.scratch.run(&["controller", "enroll", "c.toml", "web-1"]).expect(0);
        assert!(said.stderr.contains("`web-1` is host 1. The token is valid once, for 24 h"), "{said:#?}");
        said.stdout.trim().to_owned()
    }

    fn port(&self) -> String {
        let file = fs::read_to_string(self.scratch.path("c.toml")).expect("there");
        let port = file.lines().find_map(|line| line.strip_prefix("listen-port = "));
        port.expect("a port").to_owned()
    }

    fn enroll(&self, token: &str) -> crate::program::Ended {
        let token_file = self.scratch.path("token");
        fs::write(&token_file, token).expect("written");
        let port = self.port();
        let mut command = self.scratch.command(&["agent", "enroll", "a.toml", "127.0.0.1", "--port", &port]);
        command.stdin(fs::File::open(&token_file).expect("there"));
        crate::program::ended(command)
    }

    fn secret(&self) -> String {
        fs::read_to_string(self.scratch.path("key")).expect("there").trim().to_owned()
    }
}

#[test]
fn a_host_enrols_renews_and_is_revoked() {
    let mut network = Network::new("controller-revoke", 47_431);
    // The controller that runs does not know the host: it hears of it when the host enrols.
    network.scratch.write("hosts", "");
    fs::set_permissions(network.scratch.path("hosts"), fs::Permissions::from_mode(0o640)).expect("set");
    network.controller = network.start("controller", "c.toml");
    network.until("it answers", |status| status["listen"] == "127.0.0.1:47431");
    let token = network.token();
    let digits = token.strip_prefix("bm1-").expect("a token");
    let other = network.token();
    assert!(other != token);
    let said = network.enroll(&token);
    assert!(said.code == Some(4) && said.stderr.contains("refused: the token is not known"), "{said:#?}");
    assert!(!network.scratch.path("agent-state").exists(), "who is refused has no state");
    let said = network.enroll(&other[..40]);
    assert!(said.code == Some(2) && said.stderr.contains("the token is cut off"), "{said:#?}");
    let file = fs::read_to_string(network.scratch.path("a.toml")).expect("there");
    network.scratch.write("a.toml", file.replace("number = 1\n", "number = 2\n"));
    let said = network.enroll(&other);
    assert!(
        said.code == Some(2) && said.stderr.contains("is of host 2, and the token of host 1"),
        "{said:#?}"
    );
    network.scratch.write("a.toml", &file);
    let said = network.enroll(&other).expect(0);
    assert!(said.stdout.contains("this host is `web-1`"), "{said:#?}");
    let said = network.enroll(&other);
    assert!(said.code == Some(4) && said.stderr.contains("the token was used"), "{said:#?}");
    network.scratch.run(&["agent", "check", "a.toml"]).expect(0);
    network.agent = network.start("agent", "a.toml");
    network.until("it is heard", |status| status["hosts-heard"] == 1 && status["enrolled"] == 1);

    let first = network.secret();
    network.scratch.run(&["agent", "renew", "a.toml"]).expect(0);
    let second = network.secret();
    assert_ne!(first, second);
    network.until("both have the new secret", |_| {
        let log = fs::read_to_string(network.scratch.path("log")).expect("a log");
        log.contains("has another secret") && log.contains("goes on with another secret")
    });
    let before = network.until("it renewed", |status| status["questions"]["renewed"] == 1);
    let text = network.scratch.run(&["controller", "status", "c.toml"]).stdout;
    let counts =
        "enrolment    at 127.0.0.1:47431, 1 hosts; 1 enrolled, 1 renewed, 2 token, 0 certificate, 0 revoked";
    assert!(text.contains(counts), "{text}");
    let text = network.scratch.run(&["agent", "status", "a.toml"]).stdout;
    assert!(text.contains("certificate  valid for 90 days\n"), "{text}");
    let messages = before["messages"].as_u64().expect("a number");
    network.until("it is heard", |status| status["messages"].as_u64().is_some_and(|now| now > messages + 5));

    let said = network.scratch.run(&["controller", "revoke", "c.toml", "web-2"]);
    assert!(said.code == Some(2) && said.stderr.contains("no host is called `web-2`"), "{said:#?}");
    let revoked = Instant::now();
    let said = network.scratch.run(&["controller", "revoke", "c.toml", "web-1"]).expect(0);
    assert!(said.stdout.contains("`web-1` is revoked: it is refused within a second"), "{said:#?}");
    let refuses = |status: &serde_json::Value| {
        status["revoked"] == 1 && status["refused"]["revoked"].as_u64().is_some_and(|count| count > 0)
    };
    network.until("it is refused", refuses);
    assert!(revoked.elapsed() < Duration::from_secs(4), "{:?}", revoked.elapsed());
    let text = network.scratch.run(&["controller", "status", "c.toml"]).stdout;
    assert!(text.contains("revoked      web-1\n"), "{text}");
    let said = network.scratch.run(&["agent", "renew", "a.toml"]);
    assert!(said.code == Some(4) && said.stderr.contains("refused: the host is revoked"), "{said:#?}");
    let again = network.scratch.run(&["controller", "revoke", "c.toml", "web-1"]).expect(0);
    assert_eq!(again.stdout, "`web-1` was revoked already\n");

    // Another life of the controller refuses it too.
    network.controller = None;
    network.controller = network.start("controller", "c.toml");
    network.until("it is refused", |status| refuses(status) && status["hosts-heard"] == 0);
    // Another token takes it back; the agent goes on with what it brings.
    let last = network.token();
    network.enroll(&last).expect(0);
    network.until("it is heard again", |status| status["revoked"] == 0 && status["hosts-heard"] == 1);

    let log = fs::read_to_string(network.scratch.path("log")).expect("a log");
    assert!(log.contains("is revoked: its messages are refused"), "{log}");
    let ledger = fs::read_to_string(network.scratch.path("state/enrolment")).expect("a ledger");
    for secret in [&first, &second, &network.secret()] {
        assert!(!log.contains(secret.as_str()) && ledger.contains(secret.as_str()));
    }
    for token in [&token, &other, &last] {
        // The token's own secret: 32 digits behind the number.
        let own = &token[12..44];
        assert!(!log.contains(own) && !ledger.contains(own));
    }
    assert!(!log.contains(digits));
}

/// Its certificate renews its secret, and is not needed to use it.
#[test]
fn an_agent_with_a_damaged_certificate_goes_on_with_its_secret() {
    let mut network = Network::new("controller-damaged", 47_461);
    let token = network.token();
    network.controller = network.start("controller", "c.toml");
    network.until("it answers", |status| status["hosts"] == 1);
    network.enroll(&token).expect(0);
    let check = || network.scratch.run(&["agent", "check", "a.toml"]).expect(0).stderr;
    let outside = "is not in the state directory";
    let said = check();
    assert!(!said.contains("enrol again") && said.matches(outside).count() == 2, "{said}");
    let path = network.scratch.path("certificate");
    let whole = fs::read_to_string(&path).expect("there");
    fs::write(&path, &whole[..whole.len() / 2]).expect("written");
    let said = check();
    assert!(
        said.contains("warning: a.toml: certificate-file") && said.contains("is cut off; enrol again"),
        "{said}"
    );
    fs::write(&path, whole.replace("\"until\": ", "\"until\": 1, \"was\": ")).expect("written");
    assert!(check().contains("has expired; enrol again"));
    fs::write(&path, &whole[..whole.len() / 2]).expect("written");
    network.agent = network.start("agent", "a.toml");
    network.until("it is heard", |status| status["hosts-heard"] == 1);
    let status = network.scratch.run(&["agent", "status", "a.toml"]).expect(0).stdout;
    assert!(status.contains("; not renewed: error: certificate-file"), "{status}");
    network.enroll(&network.token()).expect(0);
    let begin = Instant::now();
    while network.scratch.run(&["agent", "status", "a.toml"]).stdout.contains("not renewed") {
        assert!(begin.elapsed() < Duration::from_secs(20), "the new certificate is not read");
        thread::sleep(Duration::from_millis(50));
    }
}

/// A host that was taken out of the hosts-file keeps its number, and what the ledger has of it.
#[test]
fn a_number_is_not_given_again() {
    let network = Network::new("controller-number", 47_471);
    network.token();
    network.scratch.write("hosts", "");
    let args = ["controller", "enroll", "c.toml", "web-2", "--by-hand", "--json"];
    assert_eq!(network.scratch.run(&args).json()["number"], 2);
}

/// The state directory cannot be written, and then it can.
#[test]
fn a_reload_that_fails_changes_nothing_and_one_keeps_who_is_revoked() {
    let mut network = Network::new("controller-reload", 47_481);
    let token = network.token();
    // A process whose file may not grow gets a signal too.
    let run = format!("trap '' XFSZ; exec {} controller run c.toml", env!("CARGO_BIN_EXE_bandmaster"));
    let mut command = std::process::Command::new("bash");
    command.args(["-c", &run]).current_dir(network.scratch.path("")).stdin(Stdio::null());
    // A log in a file would not grow either.
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("started");
    let process = child.id().to_string();
    let (log, stderr) = (Arc::new(Mutex::new(String::new())), child.stderr.take().expect("a pipe"));
    network.controller = Some(Running(child));
    let copy = Arc::clone(&log);
    thread::spawn(move || {
        for line in BufReader::new(stderr).lines().map_while(Result::ok) {
            let mut log = copy.lock().expect("whole");
            *log += &line;
            *log += "\n";
        }
    });
    let times = |text: &str| log.lock().expect("whole").matches(text).count();
    let reload = || {
        let done = std::process::Command::new("kill").args(["-HUP", &process]).status();
        assert!(done.is_ok_and(|status| status.success()));
    };
    let number = |status: &serde_json::Value| status["messages"].as_u64().expect("a number");
    network.until("it answers", |status| status["hosts"] == 1);
    network.enroll(&token).expect(0);
    network.agent = network.start("agent", "a.toml");
    network.until("it is heard", |status| status["hosts-heard"] == 1);
    let hosts = fs::read_to_string(network.scratch.path("hosts")).expect("there");
    network.scratch.write("hosts", hosts + "2 web-2 0123456789abcdef0123456789abcdef\n");
    let limit = |bytes: &str| {
        let limit = format!("--fsize={bytes}:unlimited");
        std::process::Command::new("prlimit").args(["--pid", &process, &limit]).status()
    };
    if limit("0").is_ok_and(|status| status.success()) {
        reload();
        network.until("it fails", |_| times("the files are wrong: the controller goes on as before") == 1);
        let before = network.until("it has the old hosts", |status| status["hosts"] == 1);
        network.until("the host is heard on", |status| {
            number(status) > number(&before) + 5 && status["hosts-heard"] == 1 && status["enrolled"] == 1
        });
        assert!(limit("unlimited").is_ok_and(|status| status.success()));
    }
    reload();
    network.until("it has the new hosts", |status| status["hosts"] == 2 && status["hosts-heard"] == 1);
    network.scratch.run(&["controller", "revoke", "c.toml", "web-1"]).expect(0);
    let refused = |status: &serde_json::Value| status["refused"]["revoked"].as_u64().expect("a number");
    network.until("it is refused", |status| refused(status) > 0 && status["hosts-heard"] == 0);
    let reloads = times("has read its files again");
    reload();
    network.until("it has reloaded", |_| times("has read its files again") == reloads + 1);
    let before = network.until("it says so", |status| status["revoked"] == 1);
    let after = network.until("it is refused on", |status| refused(status) > refused(&before) + 20);
    assert_eq!(number(&after), number(&before));
    assert!(after["revoked"] == 1 && after["hosts-heard"] == 0, "{after}");
}

/// Before an operator sees a token, the ledger is on the disk, and so is its entry in the folder.
#[test]
fn a_ledger_is_synced_before_a_token_is_told() {
    let network = Network::new("controller-synced", 47_491);
    let program = env!("CARGO_BIN_EXE_bandmaster");
    let mut command = std::process::Command::new("strace");
    command.args(["-f", "-y", "-e", "trace=fsync,fdatasync,write", "-o", "trace", program]);
    command.args(["controller", "enroll", "c.toml", "web-1"]).current_dir(network.scratch.path(""));
    match command.output() {
        Ok(output) if output.status.success() => {}
        other => return eprintln!("skipped: strace does not run: {other:?}"),
    }
    let trace = fs::read_to_string(network.scratch.path("trace")).expect("there");
    let state = network.scratch.path("state").canonicalize().expect("made");
    let at = |call: &str, path: &str| {
        trace.lines().position(|line| line.contains(call) && line.contains(&format!("<{path}>")))
    };
    let ledger = state.join("enrolment").display().to_string();
    let (written, synced) = (at("write(", &ledger), at("sync(", &ledger));
    let folder = at("sync(", &state.display().to_string());
    let told = trace.lines().position(|line| line.contains("write(1<"));
    assert!(
        written.is_some() && written < synced && synced < told && folder.is_some() && folder < told,
        "{trace}"
    );
}

/// A host whose secret is in the hosts-file.
#[test]
fn a_host_by_hand_is_revoked_until_it_has_another_secret() {
    let mut network = Network::new("controller-by-hand", 47_441);
    let args = ["controller", "enroll", "c.toml", "web-1", "--by-hand", "--json"];
    let secret = network.scratch.run(&args).json()["secret"].as_str().expect("a secret").to_owned();
    network.scratch.write("key", &secret);
    fs::set_permissions(network.scratch.path("key"), fs::Permissions::from_mode(0o600)).expect("set");
    let file = fs::read_to_string(network.scratch.path("a.toml")).expect("there");
    network.scratch.write("a.toml", file.replace("certificate-file = \"certificate\"\n", ""));
    network.controller = network.start("controller", "c.toml");
    network.agent = network.start("agent", "a.toml");
    network.until("it is heard", |status| status["hosts-heard"] == 1 && status["enrolled"] == 0);
    network.scratch.run(&["controller", "revoke", "c.toml", "web-1"]).expect(0);
    network.until("it is refused", |status| status["refused"]["revoked"].as_u64().is_some_and(|n| n > 0));
    let hosts = fs::read_to_string(network.scratch.path("hosts")).expect("there");
    let other = "0123456789abcdef0123456789abcdef";
    network.scratch.write("hosts", hosts.replace(&secret, other));
    network.scratch.write("key", other);
    network.agent = None;
    network.agent = network.start("agent", "a.toml");
    let process = network.controller.as_ref().expect("it runs").0.id();
    let done = std::process::Command::new("kill").args(["-HUP", &process.to_string()]).status();
    assert!(done.is_ok_and(|status| status.success()));
    network.until("it is heard again", |status| status["revoked"] == 0 && status["hosts-heard"] == 1);
}

/// Ctrl-C while the controller does not answer, and a full disk at either end: nothing is half done.
#[test]
fn an_enrolment_that_ends_in_the_middle_changes_nothing() {
    let mut network = Network::new("controller-middle", 47_451);
    let token = network.token();
    let silent = std::net::TcpListener::bind(format!("127.0.0.1:{}", network.port())).expect("free");
    network.scratch.write("token", &token);
    let port = network.port();
    let mut command = network.scratch.command(&["agent", "enroll", "a.toml", "127.0.0.1", "--port", &port]);
    command.stdin(fs::File::open(network.scratch.path("token")).expect("there"));
    let mut waits = Running(command.spawn().expect("started"));
    silent.set_nonblocking(true).expect("set");
    let begin = Instant::now();
    let asked = loop {
        match silent.accept() {
            Ok((asked, _)) => break asked,
            Err(_) => assert!(begin.elapsed() < Duration::from_secs(10), "nobody asks"),
        }
        thread::sleep(Duration::from_millis(10));
    };
    interrupt(waits.0.id());
    let code = waits.0.wait().expect("ended");
    assert!(!code.success() && !network.scratch.path("key").exists(), "{code}");
    drop((asked, silent));

    // A process whose file may not grow gets a signal too; on a full disk it does not.
    let run = format!("trap '' XFSZ; exec {} controller run c.toml", env!("CARGO_BIN_EXE_bandmaster"));
    let mut command = std::process::Command::new("bash");
    command.args(["-c", &run]).current_dir(network.scratch.path("")).stdin(Stdio::null());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    network.controller = Some(Running(command.spawn().expect("started")));
    network.until("it answers", |status| status["listen"] == format!("127.0.0.1:{port}"));
    let state = network.scratch.path("state");
    // What a file may not grow to stands for a full disk: the ledger has to.
    let bash = |script: &str| {
        let mut command = std::process::Command::new("bash");
        command.args(["-c", script]).current_dir(network.scratch.path("")).stdin(Stdio::null());
        crate::program::ended(command)
    };
    let program = env!("CARGO_BIN_EXE_bandmaster");
    let ledger = fs::read_to_string(state.join("enrolment")).expect("there");
    let said = bash(&format!("ulimit -f 0; trap '' XFSZ; {program} controller enroll c.toml web-2"));
    assert!(said.code == Some(4) && said.stderr.contains("File too large"), "{said:#?}");
    let said = bash(&format!("ulimit -f 0; trap '' XFSZ; {program} controller revoke c.toml web-1"));
    assert!(said.code == Some(4) && said.stderr.contains("File too large"), "{said:#?}");
    assert_eq!(fs::read_to_string(state.join("enrolment")).expect("there"), ledger);
    let enroll = format!("{program} agent enroll a.toml 127.0.0.1 --port {port} < token");
    let said = bash(&format!("ulimit -f 0; trap '' XFSZ; {enroll}"));
    assert!(said.code == Some(4) && said.stderr.contains("key.new: File too large"), "{said:#?}");
    // The controller's disk is full.
    let process = network.controller.as_ref().expect("it runs").0.id();
    let limit = |bytes: &str| bash(&format!("prlimit --pid {process} --fsize={bytes}:unlimited"));
    if limit("10").code == Some(0) {
        let said = bash(&enroll);
        assert!(said.code == Some(4) && said.stderr.contains("enrolment: File too large"), "{said:#?}");
        network.until("it is counted", |status| status["questions"]["failed"] == 1);
        limit("unlimited").expect(0);
    }
    // The token is as good as it was.
    bash(&enroll).expect(0);
}
