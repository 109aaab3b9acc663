//! `--watch`: where it is refused, and what it does to a terminal. `script` of util-linux makes the terminal.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use bandmaster_linux::agent::Status;

use crate::program::{Scratch, skip};

const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(10);

/// The program enters and leaves the second screen of a terminal by these, and shows the cursor again.
const ENTERS: &str = "\u{1b}[?1049h";
const LEAVES: &str = "\u{1b}[?1049l";
const CURSOR: &str = "\u{1b}[?25h";

#[test]
fn a_view_without_a_terminal_is_refused() {
    let scratch = Scratch::with_scenario("no-terminal");
    let commands: &[&[&str]] = &[
        &["run", "small.toml"],
        &["sweep", "small.toml", "--key", "run.seed=1,2"],
        &["emulate", "small.toml"],
        &["gateway", "status"],
        &["controller", "status"],
        &["agent", "status"],
        &["switch", "status"],
    ];
    for command in commands {
        let ended = scratch.run(&[*command, &["--watch"]].concat()).expect(2);
        assert!(ended.stderr.starts_with("error: --watch needs a terminal, and stdout is none"), "{ended:?}");
        let ended = scratch.run(&[*command, &["--watch", "--json"]].concat()).expect(2);
        assert!(ended.stderr.starts_with("error: --watch draws on the terminal, and --json"), "{ended:?}");
        assert_eq!(ended.stdout, "");
    }
    for interval in ["--watch=1", "--watch=1ms", "--watch=2h"] {
        let ended = scratch.run(&["agent", "status", interval]).expect(2);
        assert!(ended.stderr.contains("write a time from 100ms to 60min"), "{ended:?}");
    }
    assert_eq!(scratch.names(""), ["small.toml"]);
}

/// The program in a terminal of 30 lines and 100 columns.
struct Terminal {
    script: Child,
    seen: Arc<Mutex<Vec<u8>>>,
    reader: thread::JoinHandle<()>,
}

impl Terminal {
    /// None, with the reason on stderr, where there is no `script`.
    fn new(test: &str, scratch: &Scratch, args: &str) -> Option<Self> {
        let program = env!("CARGO_BIN_EXE_bandmaster");
        let line = format!("echo $$ >process; stty rows 30 cols 100; exec '{program}' {args}");
        let mut script = Command::new("script");
        script.args(["-qefc", &line, "/dev/null"]).current_dir(scratch.path(""));
        script.env("SHELL", "/bin/sh").env("TERM", "xterm").env_remove("NO_COLOR");
        script.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let Ok(mut script) = script.spawn() else {
            skip(test, "no script");
            return None;
        };
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (mut output, all) = (script.stdout.take().expect("piped"), Arc::clone(&seen));
        let reader = thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = output.read(&mut bytes) {
                all.lock().expect("no panic").extend_from_slice(&bytes[..count]);
            }
        });
        Some(Self { script, seen, reader })
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.seen.lock().expect("no panic")).into_owned()
    }

    /// Waits until these words are there. Spaces do not count: those of a screen are not written.
    fn wait_for(&self, words: &str) {
        let (words, start) = (words.replace(' ', ""), Instant::now());
        while !bare(&self.text()).contains(&words) {
            assert!(start.elapsed() < PATIENCE, "no {words} in {:?}", self.text());
            thread::sleep(PAUSE);
        }
    }

    fn press(&mut self, keys: &str) {
        let input = self.script.stdin.as_mut().expect("piped");
        input.write_all(keys.as_bytes()).and_then(|()| input.flush()).expect("the terminal reads");
    }

    /// The exit code and all output, once the program has ended.
    fn end(mut self) -> (Option<i32>, String) {
        let start = Instant::now();
        let status = loop {
            if let Some(status) = self.script.try_wait().expect("can be waited for") {
                break status;
            }
            if start.elapsed() > PATIENCE {
                let _ = self.script.kill();
                panic!("it does not end: {:?}", self.text());
            }
            thread::sleep(PAUSE);
        };
        self.reader.join().expect("no panic");
        let text = String::from_utf8(self.seen.lock().expect("no panic").clone()).expect("UTF-8");
        (status.code(), text)
    }
}

/// A text without escape sequences and spaces.
fn bare(text: &str) -> String {
    let mut bare = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c == '\u{1b}' && chars.next() == Some('[') {
            chars.find(|c| ('@'..='~').contains(c));
        } else if !c.is_whitespace() {
            bare.push(c);
        }
    }
    bare
}

/// What is on the terminal after the view, and left there.
fn after_the_view(text: &str) -> String {
    let (before, after) = text.rsplit_once(LEAVES).unwrap_or_else(|| panic!("no view: {text:?}"));
    assert!(before.contains(ENTERS), "{before:?}");
    assert!(text.contains(CURSOR), "{text:?}");
    after.replace(CURSOR, "")
}

#[test]
fn a_watched_run_prints_the_same_and_writes_the_same() {
    let test = "a_watched_run_prints_the_same_and_writes_the_same";
    let scratch = Scratch::with_scenario("watched");
    let run = |args: &str| Some(Terminal::new(test, &scratch, args)?.end());
    let Some((code, watched)) = run("run small.toml -q --watch --out watched") else { return };
    assert_eq!(code, Some(0), "{watched:?}");
    assert!(bare(&watched).contains("of8trialsfinished"), "{watched:?}");
    let (code, plain) = run("run small.toml -q --out plain").expect("a terminal");
    assert_eq!((code, after_the_view(&watched)), (Some(0), plain));
    assert_eq!(scratch.files("watched"), scratch.files("plain"));
}

#[test]
fn ctrl_c_in_a_view_keeps_finished_trials() {
    let test = "ctrl_c_in_a_view_keeps_finished_trials";
    let scratch = Scratch::with_scenario("watched-interrupt");
    let args = "run small.toml --trials 20000 --watch --out out";
    let Some(mut terminal) = Terminal::new(test, &scratch, args) else { return };
    terminal.wait_for("of 80000 trials finished");
    thread::sleep(Duration::from_secs(1));
    terminal.press("\u{3}");
    let (code, text) = terminal.end();
    assert_eq!(code, Some(130), "{text:?}");
    let after = after_the_view(&text);
    assert!(after.starts_with("stopping: finished trials are kept"), "{after:?}");
    assert!(after.contains("\r\ninterrupted: ") && after.contains("Two flows share a link"), "{after:?}");
    assert!(scratch.path("out/INCOMPLETE").exists());
}

#[test]
fn a_view_can_be_closed_and_the_trials_go_on() {
    let test = "a_view_can_be_closed_and_the_trials_go_on";
    let scratch = Scratch::with_scenario("watched-closed");
    let args = "run small.toml --trials 20000 --watch --no-report";
    let Some(mut terminal) = Terminal::new(test, &scratch, args) else { return };
    terminal.wait_for("of 80000 trials finished");
    terminal.press("q");
    terminal.wait_for("the view is closed; the trials go on");
    thread::sleep(Duration::from_secs(1));
    // The terminal is as it was: Ctrl-C is a signal again.
    terminal.press("\u{3}");
    let (code, text) = terminal.end();
    assert_eq!(code, Some(130), "{text:?}");
    assert!(after_the_view(&text).contains("Two flows share a link"), "{text:?}");
}

/// Answers like an agent until its socket is removed.
fn answer(folder: &Path) {
    let listener = UnixListener::bind(folder.join("agent.sock")).expect("bound");
    thread::spawn(move || {
        for (connections, stream) in (7..).zip(listener.incoming()) {
            let mut status = Status::default();
            (status.name, status.connections) = ("web-1".to_owned(), connections);
            let text = serde_json::to_string(&status).expect("JSON");
            let _ = stream.expect("connected").write_all(text.as_bytes());
        }
    });
}

#[test]
fn a_status_is_watched_until_a_key_ends_it() {
    let test = "a_status_is_watched_until_a_key_ends_it";
    let scratch = Scratch::new("watched-status");
    let args = "agent status --watch=100ms --state-directory .";
    let Some(mut terminal) = Terminal::new(test, &scratch, args) else { return };
    terminal.wait_for("no answer");
    answer(&scratch.path(""));
    terminal.wait_for("web-1: host 0");
    terminal.wait_for("carry data");
    fs::remove_file(scratch.path("agent.sock")).expect("removed");
    terminal.wait_for("no answer; last answer");
    terminal.press("q");
    let (code, text) = terminal.end();
    assert_eq!((code, after_the_view(&text).as_str()), (Some(0), ""), "{text:?}");

    let mut terminal = Terminal::new(test, &scratch, args).expect("a terminal");
    terminal.wait_for("no answer");
    terminal.press("\u{3}");
    assert_eq!(terminal.end().0, Some(130));
}

/// As when its window is closed.
#[test]
fn a_view_ends_with_its_terminal() {
    let test = "a_view_ends_with_its_terminal";
    let scratch = Scratch::new("watched-hangup");
    let args = "agent status --watch=100ms --state-directory .";
    let Some(mut terminal) = Terminal::new(test, &scratch, args) else { return };
    terminal.wait_for("no answer");
    let process = fs::read_to_string(scratch.path("process")).expect("the shell writes it");
    terminal.script.kill().and_then(|()| terminal.script.wait()).expect("ended");
    // A process that has ended has no command line, even before its parent takes note.
    let command = format!("/proc/{}/cmdline", process.trim());
    let start = Instant::now();
    while fs::read(&command).is_ok_and(|line| !line.is_empty()) {
        assert!(start.elapsed() < PATIENCE, "it goes on without a terminal");
        thread::sleep(PAUSE);
    }
}
