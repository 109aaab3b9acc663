//! The agent as a process of its own, and a controller that this program plays.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use bandmaster_core::control::{Message, body};
use bandmaster_core::id::NodeId;
use bandmaster_core::rng::Stream;
use bandmaster_core::runtime::envelope::{Key, Line};
use bandmaster_core::scheme::opentcp;
use bandmaster_core::scheme::opentcp::wire::{self, Body, Cue, HostReport};
use bandmaster_core::time::Span;
use bandmaster_core::tuning::{Tuning, Variant};
use bandmaster_linux::agent::{self, Restored, Status};
use bandmaster_linux::controller;
use bandmaster_linux::kernel::tcp::{Connection, HostTcp, tick};

use bandmaster_linux::netns::Netns;

use super::hosts::{A, B, Hosts, run};
use super::machine::skip;

/// The environment variable with the words of a child.
const COMMAND: &str = "BANDMASTER_AGENT_TEST";
pub(super) const SECRET: &[u8] = b"of-this-host-and-its-controller";
pub(super) const NUMBER: u32 = 7;
const CONTROL: u16 = 4742;
const METRICS: u16 = 9464;
/// How long a test waits for what is bound to come.
const PATIENCE: Duration = Duration::from_secs(10);

#[test]
fn child() {
    let Ok(words) = std::env::var(COMMAND) else { return };
    let words: Vec<&str> = words.split(' ').collect();
    match words.as_slice() {
        ["run", file] => drop(agent::run(Path::new(file), false).unwrap_or_else(|e| panic!("{e}"))),
        ["dry-run", file] => drop(agent::run(Path::new(file), true).unwrap_or_else(|e| panic!("{e}"))),
        ["control", file] => drop(controller::run(Path::new(file), false).unwrap_or_else(|e| panic!("{e}"))),
        ["observe", file] => drop(controller::run(Path::new(file), true).unwrap_or_else(|e| panic!("{e}"))),
        other => panic!("unknown words {other:?}"),
    }
}

/// Two hosts; `a` has an agent, and `b` the controller.
pub(super) struct Site {
    pub(super) hosts: Hosts,
    /// Of the test, to see what has become of connections.
    tcp: Mutex<HostTcp>,
    pub(super) folder: PathBuf,
}

impl Site {
    fn new(test: &str) -> Option<Self> {
        Self::of(test, "opentcp", "cycle = \"1s\"\nlook = \"200ms\"\n")
    }

    /// With a role of a scheme.
    pub(super) fn of(test: &str, scheme: &str, role: &str) -> Option<Self> {
        let (hosts, _) = Hosts::new(test)?;
        let folder = std::env::temp_dir().join(format!("bandmaster-{}", hosts.a.name()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("made");
        fs::write(folder.join("key"), SECRET).expect("written");
        fs::set_permissions(folder.join("key"), fs::Permissions::from_mode(0o600)).expect("set");
        let file = format!(
            "version = 1\nscheme = \"{scheme}\"\nnumber = {NUMBER}\nstate-directory = \"{}\"\nmetrics = \"{A}:{METRICS}\"\n\
             [controller]\naddress = \"{B}\"\nkey-file = \"key\"\n[role]\n{role}",
            folder.join("state").display()
        );
        fs::write(folder.join("agent.toml"), file).expect("written");
        let tcp = Mutex::new(HostTcp::only_live().unwrap_or_else(|why| panic!("{why}")));
        Some(Self { hosts, tcp, folder })
    }

    pub(super) fn file(&self) -> PathBuf {
        self.folder.join("agent.toml")
    }

    pub(super) fn state(&self) -> PathBuf {
        self.folder.join("state")
    }

    /// An agent at `a`, started by `starter`, as far as its process.
    pub(super) fn spawn(&self, words: &str, starter: &[&str]) -> Agent {
        self.spawn_at(&self.hosts.a, &format!("{words} {}", self.file().display()), starter)
    }

    /// A daemon of this program.
    pub(super) fn spawn_at(&self, node: &Netns, words: &str, starter: &[&str]) -> Agent {
        let log =
            fs::OpenOptions::new().create(true).append(true).open(self.folder.join("log")).expect("a log");
        let program = std::env::current_exe().expect("this program");
        let mut command = match starter {
            [] => Command::new(program),
            [first, rest @ ..] => {
                let mut command = Command::new(first);
                command.args(rest).arg(program);
                command
            }
        };
        command
            .args(["--exact", "agent::child", "--nocapture", "--test-threads=1"])
            .env(COMMAND, words)
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a log"))
            .stderr(log);
        Agent(node.enter(|| Ok(command.spawn().expect("started"))).expect("entered"))
    }

    /// An agent at `a` that answers.
    pub(super) fn start(&self) -> Agent {
        self.start_by(&[])
    }

    pub(super) fn start_by(&self, starter: &[&str]) -> Agent {
        let agent = self.spawn("run", starter);
        self.until("the agent answers", || self.ask().is_some_and(|status| status.process != 0));
        agent
    }

    pub(super) fn ask(&self) -> Option<Status> {
        agent::status(&self.state()).ok()
    }

    pub(super) fn status(&self) -> Status {
        agent::status(&self.state()).unwrap_or_else(|e| panic!("{e}\n{}", self.log()))
    }

    pub(super) fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    /// Waits until what is bound to come has come.
    pub(super) fn until(&self, what: &str, holds: impl Fn() -> bool) {
        self.within(PATIENCE, what, holds);
    }

    pub(super) fn within(&self, patience: Duration, what: &str, holds: impl Fn() -> bool) {
        let begin = Instant::now();
        while !holds() {
            assert!(begin.elapsed() < patience, "not within {patience:?}: {what}\n{}", self.log());
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Connections and listening sockets of `a`.
    pub(super) fn look(&self) -> Vec<Connection> {
        self.hosts
            .a
            .enter(|| Ok(self.tcp.lock().expect("whole").look_at_all().expect("read")))
            .expect("entered")
    }

    /// The congestion control of `a`.
    fn control(&self) -> String {
        run(&format!("ip netns exec {} sysctl -n net.ipv4.tcp_congestion_control", self.hosts.a.name()))
            .trim()
            .to_owned()
    }

    /// Each is as the host makes them, and there are some.
    pub(super) fn assert_own(&self, when: &str) {
        let (own, all) = (self.control(), self.look());
        assert!(!all.is_empty(), "{when}");
        for connection in all {
            let Connection { control, least_timeout, window_cap, .. } = &connection;
            assert_eq!(*control, own, "{when}: {connection:?}");
            assert_eq!(*least_timeout, Span::from_millis(200), "{when}: {connection:?}");
            assert!(*window_cap >= i32::MAX as u32, "{when}: {connection:?}");
        }
    }

    /// Settings of `a` other than those of connections.
    pub(super) fn settings(&self) -> String {
        let node = self.hosts.a.name();
        ["sysctl -a -r ^net.(core|ipv4)", "ip -4 route show table all", "tc qdisc", "nft list ruleset"]
            .map(|command| run(&format!("ip netns exec {node} {command}")))
            .concat()
    }

    /// Byte by byte.
    pub(super) fn assert_settings(&self, before: &str, when: &str) {
        let now = self.settings();
        let differs = |(one, other): &(&str, &str)| one != other;
        let different: Vec<_> = before.lines().zip(now.lines()).filter(differs).collect();
        assert!(now == before, "{when}: {different:?}");
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A process, which ends with this.
pub(super) struct Agent(pub(super) Child);

impl Agent {
    pub(super) fn signal(&self, signal: &str) {
        run(&format!("kill -{signal} {}", self.0.id()));
    }

    /// Ends it by SIGTERM.
    pub(super) fn stop(mut self) -> ExitStatus {
        self.signal("TERM");
        self.0.wait().expect("ended")
    }

    pub(super) fn kill(mut self) {
        self.0.kill().expect("killed");
        self.0.wait().expect("ended");
    }

    fn end(&mut self) -> ExitStatus {
        self.0.wait().expect("ended")
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Says at `b` what an Oracle would.
pub(super) struct Controller {
    socket: UdpSocket,
    line: Line,
    sequence: u32,
}

impl Controller {
    pub(super) fn new(site: &Site) -> Self {
        Self::with(site, SECRET, 100)
    }

    fn with(site: &Site, secret: &[u8], epoch: u32) -> Self {
        let bind = || Ok(UdpSocket::bind((B, CONTROL)).expect("a port"));
        let socket = site.hosts.b.enter(bind).expect("entered");
        socket.set_read_timeout(Some(PATIENCE)).expect("set");
        let key = Key::new(secret).expect("long enough");
        Self { socket, line: Line::new(key, NodeId(0), NodeId(NUMBER), epoch), sequence: 0 }
    }

    fn cue(&mut self, tuning: Tuning, lease: Duration) -> Vec<u8> {
        self.sequence += 1;
        let lease = u32::try_from(lease.as_millis()).expect("a short lease");
        let cue = Cue { epoch: 1, sequence: self.sequence, lease, tuning, preconditions: Vec::new() };
        let said = body(&Body::Cue(cue));
        self.line.seal(&Message { from: NodeId(0), scheme: opentcp::DEF.code, body: said })
    }

    fn send(&self, datagram: &[u8]) {
        self.socket.send_to(datagram, (A, CONTROL)).expect("sent");
    }

    pub(super) fn say(&mut self, tuning: Tuning, lease: Duration) {
        let datagram = self.cue(tuning, lease);
        self.send(&datagram);
    }

    /// The next report of the agent.
    pub(super) fn hear(&mut self) -> HostReport {
        let mut bytes = [0; 2048];
        loop {
            let (length, from) = self.socket.recv_from(&mut bytes).expect("a report");
            assert_eq!(from, SocketAddr::from((A, CONTROL)));
            let message = self.line.open(&bytes[..length]).expect("of the agent");
            if let Some(Body::Host(report)) = wire::read(&message) {
                return report;
            }
        }
    }
}

pub(super) fn tuning() -> Tuning {
    Tuning {
        initial_window: Some(25),
        min_rto: Some(Span::from_nanos(2 * tick().as_nanos())),
        initial_rto: Some(Span::from_millis(100)),
        variant: Some(Variant::NewReno),
        window_cap: Some(40),
        ..Tuning::default()
    }
}

pub(super) const LONG: Duration = Duration::from_secs(600);

#[test]
fn an_agent_does_what_its_controller_says_for_as_long_as_it_says() {
    let Some(site) = Site::new("an_agent_does_what_its_controller_says_for_as_long_as_it_says") else {
        return;
    };
    let (mut controller, settings) = (Controller::new(&site), site.settings());
    let agent = site.start();
    let untouched = site.hosts.connection();
    controller.say(tuning(), LONG);
    site.until("settings are in force", || site.status().in_force.is_some());
    let (mut here, there) = site.hosts.connection();
    let told = Hosts::ss(&site.hosts.a, "state established");
    assert!(told.contains("reno") && told.contains("cwnd:25 ") && told.contains("cwnd:10 "), "{told}");
    here.write_all(&[0; 10_000]).expect("sent");
    site.until("the agent has seen it", || site.status().set == 1);
    let status = site.status();
    assert_eq!((status.connections, status.messages, status.changes), (2, 1, 1), "{status}");
    assert!(status.in_force.as_deref().is_some_and(|what| what.contains("initial-window 25")), "{status}");
    assert!(status.settings.iter().all(|kind| kind.refused == 0), "{status}");
    let metrics = site.metrics();
    assert!(metrics.contains("bandmaster_agent_tuned 1.0\n"), "{metrics}");
    assert!(metrics.contains("bandmaster_agent_connections_set 1.0\n"), "{metrics}");
    // The agent reports the connection that sends, and that it has begun.
    let reports: Vec<HostReport> = (0..4).map(|_| controller.hear()).collect();
    assert!(reports.iter().any(|report| report.live == 1 && report.rtt > 0), "{reports:?}");
    assert!(reports.iter().any(|report| report.started == 1), "{reports:?}");

    // The controller takes it back; then it says something, and nothing more.
    controller.say(Tuning::default(), Duration::ZERO);
    site.until("nothing is in force", || site.status().in_force.is_none());
    site.assert_own("taken back");
    let begin = Instant::now();
    controller.say(tuning(), Duration::from_secs(2));
    site.until("settings are in force again", || site.status().in_force.is_some());
    let late = site.hosts.connection();
    assert!(Hosts::ss(&site.hosts.a, "state established").contains("cwnd:25 "));
    site.until("the lease ends", || site.status().in_force.is_none());
    assert!(begin.elapsed() >= Duration::from_secs(2), "{:?}", begin.elapsed());
    site.assert_own("after the lease");

    controller.say(tuning(), LONG);
    site.until("settings are in force once more", || site.status().in_force.is_some());
    let last = site.hosts.connection();
    assert!(agent.stop().success(), "{}", site.log());
    site.assert_own("stopped");
    assert!(!site.state().join("journal").exists());
    site.assert_settings(&settings, "stopped");
    drop((untouched, here, there, late, last));
}

impl Site {
    pub(super) fn metrics(&self) -> String {
        let connect = || Ok(TcpStream::connect((A, METRICS)).expect("metrics"));
        let mut stream = self.hosts.b.enter(connect).expect("entered");
        stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").expect("asked");
        let mut told = String::new();
        stream.read_to_string(&mut told).expect("read");
        told
    }
}

/// Twenty agents are killed at moments drawn at random, while connections begin all the time. What hangs on the process is gone
/// at once, the rest when the next one starts.
#[test]
fn what_a_killed_agent_has_set_is_undone() {
    let Some(site) = Site::new("what_a_killed_agent_has_set_is_undone") else { return };
    let (mut controller, settings) = (Controller::new(&site), site.settings());
    let seed = std::process::id().into();
    println!("seed {seed}");
    let mut chance = Stream::new(seed, 0, "kills");
    let peers = Hosts::listen(&site.hosts.b);
    let mut agent = site.start();
    for round in 0..20 {
        controller.say(tuning(), LONG);
        site.until("settings are in force", || site.status().in_force.is_some());
        // A server at `a` too, and connections for a while that ends at any moment of the agent's beat.
        let server = Hosts::listen(&site.hosts.a);
        let mut kept = Vec::new();
        let until = Instant::now() + Duration::from_millis(chance.below(1500));
        while Instant::now() < until || kept.is_empty() {
            kept.push((site.hosts.connect(), peers.accept().expect("accepted")));
            thread::sleep(Duration::from_millis(50));
        }
        agent.kill();
        assert_eq!(site.ask(), None);
        let after = (site.hosts.connect(), peers.accept().expect("accepted"));
        let port = after.0.local_addr().expect("bound").port();
        let own = site.look().into_iter().find(|connection| connection.local.1 == port).expect("there");
        assert_eq!((own.control, own.least_timeout, own.cwnd), (site.control(), Span::from_millis(200), 10));
        site.assert_settings(&settings, "killed");
        // Every other time without another agent.
        if round % 2 == 0 {
            let state = site.state();
            let restored = site.hosts.a.enter(|| Ok(agent::restore(&state, false))).expect("entered");
            assert!(matches!(restored, Ok(Restored::Done { connections: 1.., .. })), "{restored:?}");
            site.assert_own("restored");
        }
        agent = site.start();
        site.assert_own("the next agent has started");
        drop((server, kept, after));
    }
    assert!(agent.stop().success(), "{}", site.log());
    site.assert_settings(&settings, "stopped");
    let state = site.state();
    let restored = site.hosts.a.enter(|| Ok(agent::restore(&state, false))).expect("entered");
    assert_eq!(restored, Ok(Restored::Nothing));
}

/// Who has another key, what was heard before, also in a life before, and a second agent.
#[test]
fn an_agent_refuses_who_is_not_its_controller() {
    let Some(site) = Site::new("an_agent_refuses_who_is_not_its_controller") else { return };
    let mut controller = Controller::new(&site);
    let agent = site.start();
    let mut second = site.spawn("run", &[]);
    assert!(!second.end().success());
    assert!(site.log().contains("another agent sets the connections"), "{}", site.log());

    let cue = controller.cue(tuning(), LONG);
    controller.send(&cue);
    controller.send(&cue);
    controller.send(&cue[..20]);
    controller.send(b"nonsense");
    controller.say(Tuning::default(), Duration::ZERO);
    site.until("two are heard", || site.status().messages == 2);
    let refused = site.status().refused;
    assert_eq!((refused.replay, refused.length, refused.version), (1, 1, 1), "{refused:?}");
    assert_eq!(site.status().in_force, None);
    drop(controller);
    let mut stranger = Controller::with(&site, b"of somebody who has another", 200);
    stranger.say(tuning(), LONG);
    site.until("the stranger is refused", || site.status().refused.tag == 1);
    assert!(agent.stop().success(), "{}", site.log());

    // The next life refuses what was recorded in this one.
    let agent = site.start();
    stranger.send(&cue);
    site.until("the record is refused", || site.status().refused.replay == 1);
    assert_eq!(site.status().in_force, None);
    assert!(agent.stop().success(), "{}", site.log());
}

/// With its own user and three capabilities, as the packaged unit has it. Without those for BPF it sets routes and says so; without
/// that for networks it says what it lacks.
#[test]
fn an_agent_needs_three_capabilities() {
    let test = "an_agent_needs_three_capabilities";
    let Some(site) = Site::new(test) else { return };
    if Command::new("setpriv").arg("--version").output().is_err() {
        skip(test, "no setpriv (package util-linux)");
        return;
    }
    run(&format!("chown -R 65534 {}", site.folder.display()));
    fs::set_permissions(&site.folder, fs::Permissions::from_mode(0o755)).expect("set");
    let starter = |capabilities: &'static str| {
        [
            "setpriv",
            "--reuid=65534",
            "--clear-groups",
            "--inh-caps",
            capabilities,
            "--ambient-caps",
            capabilities,
        ]
    };
    let mut controller = Controller::new(&site);
    let agent = site.start_by(&starter("-all,+bpf,+net_admin,+perfmon"));
    controller.say(tuning(), LONG);
    site.until("settings are in force", || site.status().in_force.is_some());
    let _connection = site.hosts.connection();
    assert!(Hosts::ss(&site.hosts.a, "state established").contains("cwnd:25 "));
    assert!(agent.stop().success(), "{}", site.log());
    site.assert_own("stopped");
    for lacking in ["-all,+net_admin,+perfmon", "-all,+bpf,+net_admin"] {
        let agent = site.start_by(&starter(lacking));
        assert!(site.status().by_routes.is_some(), "{lacking}: {}", site.status());
        assert!(agent.stop().success(), "{}", site.log());
    }
    let mut agent = site.spawn("run", &starter("-all,+bpf,+perfmon"));
    assert!(!agent.end().success());
    assert!(site.log().contains("it needs CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON"), "{}", site.log());
}

/// A dry run listens, reports and logs, and sets nothing.
#[test]
fn a_dry_run_changes_nothing() {
    let Some(site) = Site::new("a_dry_run_changes_nothing") else { return };
    let mut controller = Controller::new(&site);
    let agent = site.spawn("dry-run", &[]);
    let _connection = site.hosts.connection();
    controller.hear();
    controller.say(tuning(), LONG);
    site.until("it is logged", || site.log().contains("initial-window 25"));
    let _another = site.hosts.connection();
    site.assert_own("on a dry run");
    assert!(!site.state().exists());
    assert!(agent.stop().success(), "{}", site.log());
}

/// While nothing can be written down nothing is put in force, and what is goes on; then it works again.
#[test]
fn with_a_full_disk_nothing_is_put_in_force() {
    let Some(site) = Site::new("with_a_full_disk_nothing_is_put_in_force") else { return };
    let (mut controller, state) = (Controller::new(&site), site.state());
    fs::create_dir_all(&state).expect("made");
    run(&format!("mount -t tmpfs -o size=64k,mode=750 bandmaster-test {}", state.display()));
    let disk = Unmount(state.clone());
    let agent = site.start();
    controller.say(tuning(), LONG);
    site.until("settings are in force", || site.status().in_force.is_some());
    fill(&state.join("full"));
    // More than fit into what the journal has of the disk.
    let peers = Hosts::listen(&site.hosts.b);
    let connect = || (site.hosts.connect(), peers.accept().expect("accepted"));
    let connections: Vec<_> = (0..60).map(|_| connect()).collect();
    site.until("the status has it", || site.status().journal_error.is_some());
    let status = site.status();
    assert!(status.in_force.is_some() && status.to_string().contains("No space left"), "{status}");
    // What the last page of the journal has room for is put in force, and nothing more.
    let is_refused = || site.status().refused_acts.iter().any(|(act, times)| act == "tune" && *times > 0);
    for window in [31, 33].into_iter().cycle().take(100) {
        controller.say(Tuning { initial_window: Some(window), ..tuning() }, LONG);
        thread::sleep(Duration::from_millis(50));
        if is_refused() {
            break;
        }
    }
    site.until("it is refused", is_refused);
    // Half a line would be in the way of those that come after it.
    assert!(fs::read(state.join("journal")).expect("read").ends_with(b"\n"));
    let other = Tuning { initial_window: Some(31), ..tuning() };
    // What is in force can be taken back.
    controller.say(Tuning::default(), Duration::ZERO);
    site.until("nothing is in force", || site.status().in_force.is_none());
    site.assert_own("taken back");
    fs::remove_file(state.join("full")).expect("removed");
    controller.say(other, LONG);
    site.until("settings are in force again", || site.status().in_force.is_some());
    site.until("the journal is written", || site.status().journal_error.is_none());
    agent.kill();
    let restored = site.hosts.a.enter(|| Ok(agent::restore(&state, false))).expect("entered");
    assert!(matches!(restored, Ok(Restored::Done { .. })), "{restored:?}");
    site.assert_own("restored");
    drop((connections, disk));
}

pub(super) struct Unmount(pub(super) PathBuf);

impl Drop for Unmount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

/// Takes all that is left.
pub(super) fn fill(path: &Path) {
    let mut file = fs::File::create(path).expect("made");
    while file.write_all(&[0; 512]).is_ok() {}
}

/// A web server and its clients know nothing of the agent: nothing fails, its connections are set, and given back.
#[test]
fn nginx_and_h2load_go_on_under_an_agent() {
    let test = "nginx_and_h2load_go_on_under_an_agent";
    let Some(site) = Site::new(test) else { return };
    for (program, package) in [("nginx", "nginx-light"), ("h2load", "nghttp2-client")] {
        if Command::new(program)
            .arg("--version")
            .stderr(Stdio::null())
            .stdout(Stdio::null())
            .status()
            .is_err()
        {
            skip(test, format_args!("no {program} (package {package})"));
            return;
        }
    }
    let settings = site.settings();
    let server = site.nginx();
    let agent = site.start();
    let mut controller = Controller::new(&site);
    let (before, _) = site.requests();
    controller.say(tuning(), LONG);
    site.until("settings are in force", || site.status().in_force.is_some());
    let (after, set) = site.requests();
    println!("{before} without, {after} with settings of a controller");
    assert!(set > 0, "{}", site.status());
    assert!(agent.stop().success(), "{}", site.log());
    site.assert_own("stopped");
    let (last, set) = site.requests();
    println!("{last} afterwards");
    assert_eq!(set, 0);
    site.assert_settings(&settings, "stopped");
    drop(server);
}

const REQUESTS: usize = 400;

/// What clients have seen.
pub(super) struct Seen {
    /// Requests a second.
    pub(super) rate: f64,
    /// Times of requests, the shortest first.
    times: Vec<Duration>,
}

impl std::fmt::Display for Seen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let at =
            |share: f64| self.times[((self.times.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e3;
        write!(f, "{:.1} requests/s, median {:.0} ms, 99 % {:.0} ms", self.rate, at(0.5), at(0.99))
    }
}

impl Site {
    /// A web server at `a` with a file of 30 kB.
    pub(super) fn nginx(&self) -> Agent {
        let folder = self.folder.join("web");
        fs::create_dir_all(&folder).expect("made");
        fs::write(folder.join("file"), [b'x'; 30_000]).expect("written");
        let at = folder.display();
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|kind| format!("{kind}_temp_path {at}/{kind}; "))
            .concat();
        let file = format!(
            "daemon off; master_process off; user root; pid {at}/pid; error_log {at}/error.log;\n\
             events {{}}\nhttp {{ access_log off; {temporary}server {{ listen 8080; root {at}; }} }}\n"
        );
        let path = folder.join("nginx.conf");
        fs::write(&path, file).expect("written");
        let start = || {
            Ok(Command::new("nginx")
                .arg("-e")
                .arg(folder.join("error.log"))
                .arg("-c")
                .arg(&path)
                .spawn()
                .expect("started"))
        };
        let server = Agent(self.hosts.a.enter(start).expect("entered"));
        let connects = || self.hosts.b.enter(|| Ok(TcpStream::connect((A, 8080)).is_ok())).expect("entered");
        self.until("the web server answers", connects);
        server
    }

    /// Requests from `b`, and how many of their connections were set at `a`, as seen while they went on.
    pub(super) fn requests(&self) -> (Seen, usize) {
        let log = self.folder.join("requests");
        let _ = fs::remove_file(&log);
        let start = || {
            Ok(Command::new("h2load")
                .args(["--h1", "-c", "8", "-n", &REQUESTS.to_string(), "--log-file"])
                .arg(&log)
                .arg(format!("http://{A}:8080/file"))
                .stdout(Stdio::piped())
                .spawn()
                .expect("started"))
        };
        let mut clients = self.hosts.b.enter(start).expect("entered");
        let mut set = 0;
        while clients.try_wait().expect("asked").is_none() {
            thread::sleep(Duration::from_millis(200));
            let least = Span::from_nanos(2 * tick().as_nanos());
            let seen = self.look();
            set = set.max(seen.iter().filter(|one| one.carries && one.least_timeout == least).count());
        }
        let mut told = String::new();
        clients.stdout.take().expect("piped").read_to_string(&mut told).expect("read");
        assert!(told.contains(&format!("{REQUESTS} succeeded, 0 failed, 0 errored, 0 timeout")), "{told}");
        let rate = told.split(" req/s").next().and_then(|text| text.rsplit(' ').next()?.parse().ok());
        // Begin, status and time in microseconds, a line each.
        let times = fs::read_to_string(&log).expect("a log");
        let time = |line: &str| line.split('\t').nth(2)?.parse().map(Duration::from_micros).ok();
        let mut times: Vec<Duration> = times.lines().filter_map(time).collect();
        times.sort_unstable();
        assert_eq!(times.len(), REQUESTS);
        (Seen { rate: rate.unwrap_or_else(|| panic!("{told}")), times }, set)
    }
}
