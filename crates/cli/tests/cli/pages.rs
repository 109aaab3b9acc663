//! Every command and every file of `docs/agent.md`, `docs/controller.md` and `docs/switch.md`, as a reader would use them one after the other: in a
//! private copy of `/etc`, `/usr` and `/var` and a home of its own, with the controller and the host in two network namespaces.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::program::{Ended, Scratch, copy_program, ended, no_lab, skip};

/// What of the pages is not run, and why. All else is.
const LEFT_OUT: &[(&str, &str)] = &[
    ("cargo install --path crates/cli", "the program under test is where cargo would put it"),
    ("systemctl enable --now bandmaster-agent", "no service manager: what the unit says is run, as its user"),
    (
        "systemctl enable --now bandmaster-controller",
        "no service manager: what the unit says is run, as its user",
    ),
    (
        "systemctl enable --now bandmaster-switch",
        "no service manager: what the unit says is run, as its user",
    ),
    ("systemctl reload bandmaster-controller", "no service manager: SIGHUP is sent"),
    ("journalctl -u bandmaster-agent", "no journal"),
    ("journalctl -u bandmaster-controller", "no journal"),
    ("cargo bench -p bandmaster-linux --bench controller", "ten minutes: `ci.sh long`"),
    (
        "bandmaster controller whatif /etc/bandmaster/controller.toml --policy new.toml",
        "it needs what agents record in minutes: `whatif::` of these tests",
    ),
    // Names, not commands.
    ("bandmaster run", "a name"),
    ("bandmaster agent", "a name"),
    ("bandmaster controller", "a name"),
    ("bandmaster switch", "a name"),
    ("bandmaster controller enroll", "a name"),
    ("nsenter --net=/run/netns/NAME", "each command here is run by it"),
];
/// Programs that the pages' sentences ask to run.
const PROGRAMS: [&str; 6] = ["bandmaster", "cargo", "curl", "journalctl", "nsenter", "systemctl"];
/// Of the controller, as in the pages' examples, and of the host.
const ADDRESSES: [&str; 2] = ["192.0.2.10", "192.0.2.20"];
/// Of the sources, as far as the pages need them.
const REPOSITORY: &str = "/mnt/repository";
/// For what takes two cycles of 10 s, or a lease of three.
const PATIENCE: Duration = Duration::from_secs(45);

/// A part of a page, in its order.
enum Part {
    /// A line of a block without a language.
    Line(String),
    /// A file of TOML, and the path that the paragraph before it begins with.
    File(Option<String>, String),
    /// A line of the controller's log.
    Log(String),
    /// A command in a sentence or a table.
    Inline(String),
}

fn page(name: &str) -> Vec<Part> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    let text = fs::read_to_string(path).expect("a page");
    let (mut parts, mut inline) = (Vec::new(), BTreeSet::new());
    let mut before = String::new();
    for (number, block) in text.split("```").enumerate() {
        if number % 2 == 0 {
            for (at, span) in block.split('`').enumerate() {
                let words: Vec<&str> = span.split_whitespace().collect();
                let is_command = at % 2 == 1 && words.len() > 1 && PROGRAMS.contains(&words[0]);
                if is_command && inline.insert(words.join(" ")) {
                    parts.push(Part::Inline(words.join(" ")));
                }
            }
            before = block.trim().rsplit("\n\n").next().unwrap_or_default().to_owned();
            continue;
        }
        let (language, text) = block.split_once('\n').expect("a block");
        match language {
            "" => {
                // A line that ends with one goes on.
                let lines = text.lines().map(|line| line.split("  #").next().unwrap_or_default().trim());
                parts.extend(lines.filter(|line| !line.is_empty()).map(|line| Part::Line(line.to_owned())));
            }
            "toml" => {
                let path = before.strip_prefix('`').and_then(|rest| rest.split('`').next());
                let path = path.filter(|path| path.starts_with('/') || path.starts_with('~'));
                parts.push(Part::File(path.map(str::to_owned), text.to_owned()));
            }
            "text" if text.starts_with("level=") => parts.push(Part::Log(text.to_owned())),
            // What a command prints.
            "text" => {}
            // Rules of an Open vSwitch: a test of the `host` tests gives it theirs.
            "openflow" => {}
            other => panic!("{name}: a block of {other}: is it to be run?"),
        }
    }
    parts
}

/// Ends with this.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The two machines, which share their files.
struct Machines {
    scratch: Scratch,
    names: [String; 2],
    /// Holds the private mounts.
    holder: Running,
    /// Daemons that run: what they are, and a process that leads to them.
    daemons: Vec<(&'static str, Running)>,
    /// What was run.
    done: BTreeSet<String>,
    folder: String,
    /// The example of a router's file.
    router: String,
}

impl Drop for Machines {
    fn drop(&mut self) {
        self.daemons.clear();
        for name in &self.names {
            let _ = Command::new("ip").args(["netns", "delete", name]).stderr(Stdio::null()).status();
        }
    }
}

fn sh(script: &str) -> Ended {
    let mut command = Command::new("sh");
    command.args(["-ec", script]).stdin(Stdio::null());
    ended(command)
}

impl Machines {
    /// None, with the reason on stderr, where they cannot be made.
    fn new(test: &str) -> Option<Self> {
        if let Some(why) = no_lab() {
            skip(test, why);
            return None;
        }
        for program in ["ip", "unshare", "nsenter", "setpriv", "curl", "systemd-sysusers"] {
            if Command::new(program)
                .arg("--version")
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status()
                .is_err()
            {
                skip(test, &format!("no {program}"));
                return None;
            }
        }
        let scratch = Scratch::new(test);
        copy_program(&scratch.path("bandmaster"));
        let names = ["c", "h"].map(|end| format!("bmpages-{}-{end}", std::process::id()));
        let [c, h] = &names;
        let [at_c, at_h] = ADDRESSES;
        let network = sh(&format!(
            "ip netns add {c}; ip netns add {h}; ip link add cable netns {c} type veth peer name cable netns {h}
             ip link add lan0 netns {h} type veth peer name lan1 netns {c}; ip -n {h} link set lan0 up
             for end in '{c} {at_c}' '{h} {at_h}'; do set -- $end
               ip -n $1 address add $2/24 dev cable; ip -n $1 link set cable up; ip -n $1 link set lo up
             done"
        ));
        let packaging = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging");
        // What is below /tmp is no longer to be seen.
        let script = format!(
            "mount -t tmpfs tmpfs /mnt; mkdir -p /mnt/home/.cargo/bin /mnt/repository
             cp {0}/bandmaster /mnt/home/.cargo/bin/; cp -r {1} /mnt/repository/
             for folder in etc usr var; do
               mkdir -p /mnt/upper/$folder /mnt/scratch/$folder
               mount -t overlay overlay -o lowerdir=/$folder,upperdir=/mnt/upper/$folder,workdir=/mnt/scratch/$folder /$folder
             done
             mount -t tmpfs -o mode=1777 tmpfs /tmp
             echo ready; exec sleep 600",
            scratch.path("").display(),
            packaging.display()
        );
        let log = scratch.path("holder");
        let output = fs::File::create(&log).expect("made");
        let mut holder = Command::new("unshare");
        holder.args(["--mount", "--propagation", "private", "sh", "-ec", &script]).stdin(Stdio::null());
        holder.stdout(output.try_clone().expect("cloned")).stderr(output);
        let holder = Running(holder.spawn().expect("started"));
        let machines = Self {
            scratch,
            names,
            holder,
            daemons: Vec::new(),
            done: BTreeSet::new(),
            folder: REPOSITORY.to_owned(),
            router: String::new(),
        };
        let begin = Instant::now();
        let said = || fs::read_to_string(&log).unwrap_or_default();
        while !said().contains("ready") && begin.elapsed() < Duration::from_secs(5) {
            thread::sleep(Duration::from_millis(20));
        }
        if network.code != Some(0) || !said().contains("ready") {
            skip(test, &format!("no private machines here: {}{}", network.stderr, said()));
            return None;
        }
        Some(machines)
    }

    /// A line of a shell at the controller's machine, or the host's.
    fn shell(&self, at: usize, line: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--mount=/proc/{}/ns/mnt", self.holder.0.id()));
        command.arg(format!("--net=/run/netns/{}", self.names[at]));
        command.args(["--", "sh", "-c", &format!("cd {} && {line}", self.folder)]);
        command.env("HOME", "/mnt/home").env("PATH", "/mnt/home/.cargo/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        command.stdin(Stdio::null());
        command
    }

    fn run(&self, at: usize, line: &str) -> Ended {
        ended(self.shell(at, line)).expect(0)
    }

    fn write(&self, path: &str, content: &str) {
        let mut command = self.shell(0, &format!("cat > {path}"));
        let mut child = command.stdin(Stdio::piped()).spawn().expect("started");
        child.stdin.take().expect("piped").write_all(content.as_bytes()).expect("written");
        assert!(child.wait().expect("ended").success(), "{path}");
    }

    fn log(&self, what: &str) -> PathBuf {
        self.scratch.path(&format!("{what}.log"))
    }

    /// Starts a daemon, when another of its kind was interrupted (Ctrl-C).
    fn start(&mut self, at: usize, what: &'static str, line: &str) {
        self.end(what);
        let log = fs::File::create(self.log(what)).expect("a log");
        let mut command = self.shell(at, &format!("exec {line}"));
        command.stdout(Stdio::null()).stderr(log);
        self.daemons.push((what, Running(command.spawn().expect("started"))));
        self.until(line, || {
            fs::read_to_string(self.log(what)).is_ok_and(|log| log.contains("message=begins"))
        });
    }

    fn end(&mut self, what: &str) {
        while let Some(at) = self.daemons.iter().position(|(one, _)| *one == what) {
            let (_, mut running) = self.daemons.remove(at);
            sh(&format!("kill -INT {}", running.0.id())).expect(0);
            assert_eq!(running.0.wait().expect("ended").code(), Some(130), "{what}");
        }
    }

    fn until(&self, what: &str, holds: impl Fn() -> bool) {
        let begin = Instant::now();
        while !holds() {
            let logs = ["agent", "controller", "switch"]
                .map(|what| fs::read_to_string(self.log(what)).unwrap_or_default());
            assert!(begin.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}\n{}", logs.concat());
            thread::sleep(Duration::from_millis(200));
        }
    }

    fn status(&self, line: &str) -> serde_json::Value {
        self.run(usize::from(line.contains(" agent ")), &format!("{line} --json")).json()
    }

    /// A command of a page, at `at` unless it is of a daemon that is elsewhere.
    fn command(&mut self, at: usize, written: &str) {
        let line =
            &written.replace("FILE", "/etc/bandmaster/controller.toml").replace("ADDRESS", "127.0.0.1:9466");
        let at = match line.split(' ').nth(1) {
            Some("agent" | "switch") => 1,
            Some("controller") => 0,
            _ => at,
        };
        println!("{}: {line}", ["controller", "host"][at]);
        self.done.insert(written.to_owned());
        if LEFT_OUT.iter().any(|(left_out, _)| *left_out == written) {
            return self.left_out(written);
        }
        if line.contains(" agent run ") {
            return self.start(1, "agent", line);
        }
        if line.contains(" controller run ") {
            return self.start(0, "controller", line);
        }
        if line.contains(" switch run ") {
            return self.start(1, "switch", line);
        }
        // After a `kill -9`.
        for daemon in ["agent", "switch"] {
            if line.starts_with(&format!("bandmaster {daemon} restore")) {
                self.daemons.retain(|(what, _)| *what != daemon);
            }
        }
        // "After two cycles ask both".
        if line.starts_with("bandmaster controller status") {
            self.until("the host is heard", || self.status(line)["hosts-heard"] == 1);
        } else if line.starts_with("bandmaster agent status") {
            self.until("the agent answers", || ended(self.shell(1, line)).code == Some(0));
            if self.daemons.iter().any(|(what, _)| *what == "controller") {
                self.until("settings are in force", || !self.status(line)["in-force"].is_null());
            }
        }
        // "In the folder of bandmaster's sources".
        if line.contains("packaging/") {
            self.folder = REPOSITORY.to_owned();
        }
        let said = self.run(at, line);
        if let Some(folder) = line.split("&& cd ").nth(1) {
            self.folder = folder.replace('~', "/mnt/home");
        } else if line.starts_with("bandmaster controller enroll") && !line.contains('>') {
            let (key, rest) = said.stdout.split_once("\n\n").expect("two files");
            let (_, key) = key.split_once('\n').expect("a secret");
            let (_, agent) = rest.split_once('\n').expect("a file");
            self.write("/etc/bandmaster/agent.key", key);
            self.write(
                "/etc/bandmaster/agent.toml",
                &agent.replace("ADDRESS OF THE CONTROLLER", ADDRESSES[0]),
            );
        } else if line.starts_with("bandmaster controller halt") {
            // "Half a minute later, when the lease of three cycles has ended, the host has its own settings."
            let status = "bandmaster agent status /etc/bandmaster/agent.toml";
            self.until("the host has its own settings", || self.status(status)["in-force"].is_null());
        } else if line.starts_with("bandmaster agent renew") {
            // "The controller knows the host within a second", with either secret.
            let status = "bandmaster controller status /etc/bandmaster/enrolling.toml";
            self.until("it is heard after it renewed", || {
                let told = self.status(status);
                told["hosts-heard"] == 1 && told["enrolled"] == 1 && told["questions"]["renewed"] == 1
            });
        } else if line.starts_with("bandmaster controller revoke") {
            let status = "bandmaster controller status /etc/bandmaster/enrolling.toml";
            self.until("it is refused", || {
                self.status(status)["refused"]["revoked"].as_u64().is_some_and(|count| count > 0)
            });
            // The rest of the page is about those that ran before.
            self.start(1, "agent", "bandmaster agent run /etc/bandmaster/agent.toml");
            self.unit(0, "controller");
        } else if line.starts_with("curl") {
            assert!(said.stdout.contains("bandmaster_"), "{said:?}");
        }
    }

    /// Does what a service manager would.
    fn left_out(&mut self, line: &str) {
        match line {
            "systemctl enable --now bandmaster-agent" => self.unit(1, "agent"),
            "systemctl enable --now bandmaster-switch" => self.unit(1, "switch"),
            "systemctl enable --now bandmaster-controller" => {
                // What was tried becomes the service's.
                let file = self.run(0, "cat /mnt/home/first/controller.toml").stdout;
                let of_service = |line: &&str| !line.starts_with("state-directory");
                let file: Vec<&str> = file.lines().filter(of_service).collect();
                // `hosts` belongs to the group of its folder, as one that `enroll` makes there.
                self.run(0, "cp -p /mnt/home/first/hosts /mnt/home/first/mine.toml /etc/bandmaster/");
                self.run(0, "chgrp bandmaster /etc/bandmaster/hosts");
                let file = file.join("\n").replace("[role]", "metrics = \"127.0.0.1:9466\"\n[role]");
                self.write("/etc/bandmaster/controller.toml", &file);
                self.unit(0, "controller");
            }
            "systemctl reload bandmaster-controller" => {
                let (_, running) =
                    self.daemons.iter().find(|(what, _)| *what == "controller").expect("it runs");
                sh(&format!("kill -HUP {}", running.0.id())).expect(0);
                let log = || fs::read_to_string(self.log("controller")).unwrap_or_default();
                self.until("it has read its files again", || log().contains("has read its files again"));
            }
            _ => {}
        }
    }

    /// Starts what a unit starts: with its user, its capabilities and its state directory.
    fn unit(&mut self, at: usize, what: &'static str) {
        let unit = self.run(at, &format!("cat /etc/systemd/system/bandmaster-{what}.service")).stdout;
        let value = |key: &str| {
            let value = unit.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
            value.unwrap_or_default().to_owned()
        };
        let user = value("User");
        let state = value("StateDirectory");
        self.run(at, &format!("install -d -o {user} -g {user} -m 750 /var/lib/{state}"));
        let capabilities = value("AmbientCapabilities").to_lowercase().replace("cap_", "+").replace(' ', ",");
        let capabilities = format!("-all,{capabilities}");
        let capabilities = capabilities.trim_end_matches(',');
        let privileges = format!(
            "setpriv --reuid={user} --regid={user} --clear-groups --inh-caps={capabilities} --ambient-caps={capabilities}"
        );
        self.run(at, &format!("{privileges} {}", value("ExecStartPre")));
        self.start(at, what, &format!("{privileges} {}", value("ExecStart")));
    }

    /// Files and lines of a page in their order, then the commands of its sentences and tables.
    fn walk(&mut self, name: &str, at: usize) {
        let mut inline = Vec::new();
        for part in page(name) {
            match part {
                Part::Line(line) => self.command(at, &line),
                Part::Inline(command) => inline.push(command),
                Part::File(Some(path), text) => self.write(&path, &text),
                Part::File(None, text) => self.example(&text),
                Part::Log(text) => {
                    // But for the last number.
                    let why = text.find("why=").zip(text.rfind(" = ")).map(|(from, to)| &text[from..to]);
                    let why = why.expect("a decision");
                    self.until(why, || {
                        fs::read_to_string(self.log("controller")).is_ok_and(|log| log.contains(why))
                    });
                }
            }
        }
        for command in inline {
            self.command(at, &command);
        }
    }

    /// A file that the page gives no path: that of a daemon, or more of the controller's.
    fn example(&mut self, text: &str) {
        if text.contains("site = \"router\"") {
            self.router = text.to_owned();
        }
        let is_source = text.starts_with("[source]");
        let base = match text.starts_with("version") {
            true => String::new(),
            false if is_source => self.router.clone(),
            false => self.run(0, "cat /mnt/home/first/controller.toml").stdout,
        };
        let kind = if is_source || text.contains("[controller]") { "agent" } else { "controller" };
        if text.contains("community-file") {
            self.run(0, "cd /etc/bandmaster; umask 077; echo public > community");
        }
        if text.contains("passphrases-file") {
            let two = "printf 'to authenticate\\nto encrypt\\n' > passphrases";
            self.run(0, &format!("cd /etc/bandmaster; umask 077; {two}"));
        }
        let file = format!("/etc/bandmaster/example-{kind}.toml");
        self.write(&file, &format!("{base}\n{text}").replace("\"hosts\"", "\"example-hosts\""));
        if kind == "controller" {
            self.run(0, "rm -f /etc/bandmaster/example-hosts; cp /mnt/home/first/mine.toml /etc/bandmaster/");
            for host in ["web-1", "tor"].into_iter().filter(|host| text.contains(&format!("\"{host}\""))) {
                self.run(0, &format!("bandmaster controller enroll {file} {host}"));
            }
        }
        self.run(0, &format!("bandmaster {kind} check {file}"));
    }
}

#[test]
fn every_command_of_the_pages_of_daemons_runs() {
    let test = "every_command_of_the_pages_of_daemons_runs";
    let pages = ["agent.md", "controller.md", "switch.md"];
    let commands: BTreeSet<String> = pages
        .into_iter()
        .flat_map(page)
        .filter_map(|part| match part {
            Part::Line(line) | Part::Inline(line) => Some(line),
            Part::File(..) | Part::Log(_) => None,
        })
        .collect();
    for (left_out, why) in LEFT_OUT {
        assert!(commands.contains(*left_out), "`{left_out}` ({why}) is on no page");
    }
    let Some(mut machines) = Machines::new(test) else { return };
    machines.walk("agent.md", 1);
    machines.walk("controller.md", 0);
    machines.walk("switch.md", 1);
    assert_eq!(machines.done, commands);
    machines.end("agent");
    machines.end("controller");
}
