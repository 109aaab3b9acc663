//! Processor time, memory and messages of a controller with many hosts: `cargo bench -p bandmaster-linux --bench controller`,
//! with `-- HOSTS` for another number than 100,000, and `-- HOSTS enrolled` for secrets that the hosts have enrolled for: one more
//! is renewed in each cycle.
//!
//! The controller is a process of its own, as an operator runs it, with a cycle of a second. This program plays all hosts: each
//! reports once a cycle. Time is the controller's alone, as the kernel states it.
//!
//! A veth pair connects the two. What the controller sends goes to a ring, as that of a network card; a thread of the kernel
//! takes it from there, counts it and drops it: what hosts do with a CUE is not the controller's time. Reports are delivered in
//! the time of this program, as an interrupt of a network card delivers them in nobody's. It needs root, `ip`, `ethtool` and
//! `nft`. Both ends are in namespaces without a name, which end with this program.
//!
//! A program that only takes and sends as many datagrams of these lengths, and reads none, is measured in the controller's place:
//! what it costs is the kernel's part.

use std::fs::{self, File, OpenOptions};
use std::io::{IoSlice, IoSliceMut, Write};
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bandmaster_core::control::{Message, body};
use bandmaster_core::id::NodeId;
use bandmaster_core::runtime::envelope::{Key, Line};
use bandmaster_core::scheme::opentcp;
use bandmaster_core::scheme::opentcp::wire::{Body, HostReport};
use bandmaster_linux::controller;
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::socket::{MsgFlags, MultiHeaders, SetSockOpt, SockaddrStorage, recvmmsg, sendmmsg, sockopt};
use nix::unistd::geteuid;

/// The environment variable with the file of a child.
const FILE: &str = "BANDMASTER_CONTROLLER_BENCH";
/// That of a child that only takes and sends datagrams: how many it sends in a cycle.
const BARE: &str = "BANDMASTER_CONTROLLER_BENCH_BARE";
/// Bytes of Ethernet's header, which an interface counts.
const ETHERNET: u64 = 14;
/// Bytes of a CUE in UDP, in this bench.
const CUE: usize = 47;
const HOSTS: u32 = 100_000;
const CYCLES: u32 = 10;
const RESTARTS: usize = 6;
/// Cycles before those that are measured.
const BEFORE: u32 = 3;
/// The controller's, and the hosts'.
const ADDRESS: &str = "192.0.2.1:47420";
const HOSTS_ADDRESS: &str = "192.0.2.2:0";
const SECOND: Duration = Duration::from_secs(1);
/// Reports between two looks at the clock.
const BATCH: usize = 200;

/// Two settings, by what the hosts report; for the hosts of a pattern.
fn policy(name: &str, hosts: &str) -> String {
    format!(
        "version = 1\nname = \"{name}\"\ngoal = \"a bench\"\ncycle = \"1s\"\nlease = \"60s\"\nstatistics = [\"flows.live\"]\n\
         hosts = [\"{hosts}\"]\n[[rules]]\nname = \"few\"\nwhen = \"max(flows.live) < 10\"\nset = {{ initial-window = 20 }}\n\
         [[rules]]\nname = \"many\"\nset = {{ initial-window = 10 }}\n"
    )
}

/// The same for all, whatever they report.
const STILL: &str = "version = 1\nname = \"still\"\ngoal = \"a bench\"\ncycle = \"1s\"\nlease = \"60s\"\nstatistics = [\"flows.live\"]\n\
                     [[rules]]\nname = \"always\"\nset = { min-rto = \"8ms\" }\n";

fn main() {
    if let Ok(file) = std::env::var(FILE) {
        controller::run(Path::new(&file), false).unwrap_or_else(|error| panic!("{error}"));
        return;
    }
    if let Ok(sends) = std::env::var(BARE) {
        bare(sends.parse().expect("a number"));
    }
    if !geteuid().is_root() {
        println!("skipped: it makes a pair of interfaces, which needs root");
        return;
    }
    let wire = Wire::new();
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let hosts = words.first().map_or(HOSTS, |word| word.parse().expect("a number of hosts"));
    let enrolled = words.get(1).is_some_and(|word| word == "enrolled");
    let kind = if enrolled { "enrolled hosts" } else { "hosts" };
    println!("{hosts} {kind}, a cycle of 1 s; processor time of the controller");
    for (what, changed, policies) in [
        ("every CUE changes", hosts, vec![policy("all", "*")]),
        ("1 % of them change", hosts / 100, vec![STILL.to_owned(), policy("some", "x*")]),
    ] {
        let mut site = Site::new(&wire, hosts, &policies, enrolled);
        let kernel = site.kernel_alone(changed);
        let seen = site.measure();
        println!(
            "{what}: {:.2} of a core, of which the kernel takes {kernel:.2} for such datagrams alone; {:.0} MB; {:.0} reports and {:.0} CUEs a cycle, {:.1} and {:.1} bytes of IP each",
            seen.cores, seen.megabytes, seen.reports, seen.cues, seen.report_bytes, seen.cue_bytes
        );
        println!("{what}: after restarts all were told again after {:.1?} s", seen.back);
    }
}

/// Takes every datagram that comes, and sends so many at the end of each second, to where the last came from.
fn bare(sends: usize) -> ! {
    let socket = UdpSocket::bind(ADDRESS).expect("free");
    let _ = sockopt::RcvBufForce.set(&socket, &(64 << 20));
    let mut buffers = vec![[0; 2048]; 64];
    // Those that have sent point to the addresses that they sent to, where the kernel must not write.
    let headers = || MultiHeaders::<SockaddrStorage>::preallocate(64, None);
    let (mut receives, mut sends_with) = (headers(), headers());
    let mut to = None;
    loop {
        let second = || SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
        let now = second();
        while second() == now {
            thread::sleep(Duration::from_millis(1));
            loop {
                let mut slices: Vec<_> = buffers.iter_mut().map(|buffer| [IoSliceMut::new(buffer)]).collect();
                let flags = MsgFlags::MSG_DONTWAIT;
                let all = recvmmsg(socket.as_raw_fd(), &mut receives, slices.iter_mut(), flags, None);
                match all.map(|all| all.last().and_then(|last| last.address)) {
                    Ok(from) => to = from,
                    Err(_) => break,
                }
            }
        }
        let bytes = [0; CUE];
        let (slices, addresses) = ([[IoSlice::new(&bytes)]; 64], [to; 64]);
        for begin in (0..sends).step_by(64).filter(|_| to.is_some()) {
            let many = (sends - begin).min(64);
            let (slices, addresses) = (slices[..many].iter(), &addresses[..many]);
            let flags = MsgFlags::empty();
            let sent = sendmmsg(socket.as_raw_fd(), &mut sends_with, slices, addresses, [], flags);
            assert_eq!(sent.expect("sent").count(), many);
        }
    }
}

/// A veth pair between the hosts, in the namespace of this program, and the controller, in one of its own.
struct Wire {
    controller: File,
}

impl Wire {
    fn new() -> Self {
        let run = |command: &str| {
            let words: Vec<&str> = command.split(' ').collect();
            let status = Command::new(words[0]).args(&words[1..]).status().expect("it runs");
            assert!(status.success(), "{command}");
        };
        unshare(CloneFlags::CLONE_NEWNET).expect("as root");
        let unnamed = || {
            unshare(CloneFlags::CLONE_NEWNET).expect("as root");
            File::open("/proc/thread-self/ns/net").expect("this thread's")
        };
        let wire = Self { controller: thread::scope(|scope| scope.spawn(unnamed).join().expect("made")) };
        wire.at_controller(|| {
            run(&format!("ip link add wire type veth peer name wire netns {}", std::process::id()));
            run("ip address add 192.0.2.1/30 dev wire");
            run("ip link set wire up");
        });
        run("ip address add 192.0.2.2/30 dev wire");
        run("ip link set wire up");
        // A ring and a thread of the kernel for what arrives. Files of an interface are seen in its namespace only.
        run("ethtool -K wire gro on");
        let thread = "mount -t sysfs sysfs /sys && echo 1 > /sys/class/net/wire/threaded";
        let status = Command::new("unshare").args(["--mount", "sh", "-c", thread]).status().expect("it runs");
        assert!(status.success(), "{thread}");
        run("nft add table netdev bench");
        run("nft add chain netdev bench in { type filter hook ingress device wire priority 0 ; }");
        run("nft add rule netdev bench in meta l4proto udp drop");
        wire
    }

    fn at_controller<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let inside = || {
            setns(&self.controller, CloneFlags::CLONE_NEWNET).expect("as root");
            work()
        };
        thread::scope(|scope| scope.spawn(inside).join().expect("done"))
    }

    /// Starts this program in the controller's place.
    fn spawn(&self, variable: &str, value: &str) -> Running {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.env(variable, value).env("RUST_LOG", "warn").stdin(Stdio::null());
        Running(self.at_controller(|| command.spawn().expect("started")))
    }

    /// Datagrams that the kernel has dropped on their way to the controller: in the queues of processors, before its socket was
    /// there, and in its socket.
    fn lost(&self) -> u64 {
        let softnet = fs::read_to_string("/proc/net/softnet_stat").expect("read");
        let dropped =
            |line: &str| u64::from_str_radix(line.split(' ').nth(1).expect("a field"), 16).expect("a number");
        let queues: u64 = softnet.lines().map(dropped).sum();
        let snmp = self.at_controller(|| fs::read_to_string("/proc/thread-self/net/snmp").expect("read"));
        let udp = snmp.lines().filter_map(|line| line.strip_prefix("Udp: ")).nth(1).expect("numbers");
        let fields: Vec<u64> = udp.split(' ').map(|field| field.parse().expect("a number")).collect();
        // InDatagrams NoPorts InErrors ...
        queues + fields[1] + fields[2]
    }

    /// What the hosts' end has received.
    fn heard() -> Heard {
        let text = fs::read_to_string("/proc/thread-self/net/dev").expect("read");
        let line = text.lines().find_map(|line| line.trim().strip_prefix("wire:")).expect("it is there");
        let mut fields = line.split_whitespace().map(|field| field.parse().expect("a number"));
        let [bytes, messages] = [(); 2].map(|()| fields.next().expect("a field"));
        Heard { messages, bytes: bytes - messages * ETHERNET }
    }
}

struct Site<'a> {
    wire: &'a Wire,
    folder: PathBuf,
    lines: Vec<Line>,
    enrolled: bool,
}

struct Seen {
    cores: f64,
    megabytes: f64,
    reports: f64,
    cues: f64,
    report_bytes: f64,
    cue_bytes: f64,
    back: Vec<f64>,
}

fn secret(host: u32) -> String {
    format!("secret-of-host-{host:010}")
}

/// A hundredth begin with x.
fn name(host: u32) -> String {
    if host.is_multiple_of(100) { format!("x{host}") } else { format!("h{host}") }
}

/// What the ledger of those who have enrolled says of `host`.
fn entry(host: u32) -> String {
    format!("{{\"number\":{host},\"name\":\"{}\",\"secret\":\"{}\"}}\n", name(host), secret(host))
}

fn start(wire: &Wire, folder: &Path) -> Running {
    let running = wire.spawn(FILE, folder.join("controller.toml").to_str().expect("plain"));
    while controller::status(&folder.join("state")).is_err() {
        thread::sleep(Duration::from_millis(10));
    }
    running
}

/// Kills the controller again and again, at other points of a cycle, and starts it: the seconds until all hosts are told again. A
/// report that is lost tells its host a cycle later.
fn restarts(wire: &Wire, folder: &Path, mut running: Running, hosts: u64) -> Vec<f64> {
    let mut all = Vec::new();
    for number in 0..RESTARTS {
        thread::sleep(SECOND.mul_f64(1.2 + 0.3 * (number % 3) as f64));
        drop(running);
        let begin = Instant::now();
        running = start(wire, folder);
        let answers = begin.elapsed().as_secs_f64();
        let lost = wire.lost();
        // It decides nothing before a report comes.
        let before = Wire::heard().messages;
        while Wire::heard().messages < before + hosts {
            assert!(begin.elapsed() < 20 * SECOND, "not told again");
            thread::sleep(Duration::from_millis(5));
        }
        all.push(begin.elapsed().as_secs_f64());
        println!("  it answers after {answers:.2} s; {} reports are lost after that", wire.lost() - lost);
    }
    all
}

impl<'a> Site<'a> {
    fn new(wire: &'a Wire, hosts: u32, policies: &[String], enrolled: bool) -> Self {
        let folder = std::env::temp_dir().join(format!("bandmaster-bench-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("made");
        let shared = |host| if enrolled { "enrolled".to_owned() } else { secret(host) };
        let line = |host: u32| format!("{host} {} {}\n", name(host), shared(host));
        fs::write(folder.join("hosts"), (1..=hosts).map(line).collect::<String>()).expect("written");
        fs::set_permissions(folder.join("hosts"), fs::Permissions::from_mode(0o600)).expect("set");
        let mut names = Vec::new();
        for (number, policy) in policies.iter().enumerate() {
            fs::write(folder.join(format!("{number}.toml")), policy).expect("written");
            names.push(format!("\"{number}.toml\""));
        }
        let (address, port) = ADDRESS.split_once(':').expect("both");
        let file = format!(
            "version = 1\nscheme = \"opentcp\"\nhosts-file = \"hosts\"\nstate-directory = \"{}\"\nlisten-address = \"{address}\"\n\
             listen-port = {port}\n[role]\npolicies = [{}]\n",
            folder.join("state").display(),
            names.join(", ")
        );
        fs::write(folder.join("controller.toml"), file).expect("written");
        let line = |host| {
            let key = Key::new(secret(host).as_bytes()).expect("long enough");
            Line::new(key, NodeId(host), NodeId(0), 1)
        };
        if enrolled {
            let state = folder.join("state");
            fs::create_dir(&state).expect("made");
            fs::set_permissions(&state, fs::Permissions::from_mode(0o700)).expect("set");
            let ledger = state.join("enrolment");
            fs::write(&ledger, (1..=hosts).map(entry).collect::<String>()).expect("written");
            fs::set_permissions(ledger, fs::Permissions::from_mode(0o600)).expect("set");
        }
        Self { wire, lines: (1..=hosts).map(line).collect(), folder, enrolled }
    }

    /// The part of a core that the kernel takes for the datagrams alone, so many `sends` in a cycle.
    fn kernel_alone(&mut self, sends: u32) -> f64 {
        let socket = UdpSocket::bind(HOSTS_ADDRESS).expect("a port");
        let running = self.wire.spawn(BARE, &sends.to_string());
        let mut at_begin = 0.0;
        for cycle in 0..BEFORE + CYCLES {
            if cycle == BEFORE {
                at_begin = running.seconds();
            }
            self.cycle(&socket, cycle);
        }
        (running.seconds() - at_begin) / f64::from(CYCLES)
    }

    fn measure(mut self) -> Seen {
        let socket = UdpSocket::bind(HOSTS_ADDRESS).expect("a port");
        let running = start(self.wire, &self.folder);
        let hosts = self.lines.len() as u64;
        let (mut bytes, mut at_begin) = (0, (0.0, Heard::default()));
        for cycle in 0..BEFORE + CYCLES {
            if cycle == BEFORE {
                at_begin = (running.seconds(), Wire::heard());
            }
            bytes = self.cycle(&socket, cycle);
        }
        let (spent, heard) = (running.seconds() - at_begin.0, Wire::heard());
        // It tells of itself once a second.
        thread::sleep(2 * SECOND);
        let status = controller::status(&self.folder.join("state")).expect("it answers");
        let shown =
            |name: &str| status.shown.iter().find(|(shown, _)| shown == name).map(|(_, value)| *value);
        assert_eq!(status.messages, hosts * u64::from(BEFORE + CYCLES), "reports are lost: {status}");
        println!(
            "  coverage {:?}, cued {:?}, not sent {}",
            shown("coverage"),
            shown("cued"),
            status.send_errors
        );
        let (cues, cue_bytes) = (heard.messages - at_begin.1.messages, heard.bytes - at_begin.1.bytes);
        let megabytes = running.megabytes();
        // All are told again once they have reported, as they go on to do.
        let (wire, folder, ends) = (self.wire, self.folder.clone(), AtomicBool::new(false));
        let back = thread::scope(|scope| {
            scope.spawn(|| {
                let mut cycle = 0;
                while !ends.load(Ordering::Relaxed) {
                    self.cycle(&socket, cycle);
                    cycle += 1;
                }
            });
            let back = restarts(wire, &folder, running, hosts);
            ends.store(true, Ordering::Relaxed);
            back
        });
        let cycles = f64::from(CYCLES);
        Seen {
            cores: spent / cycles,
            megabytes,
            reports: hosts as f64,
            cues: cues as f64 / cycles,
            report_bytes: bytes as f64 / hosts as f64,
            cue_bytes: cue_bytes as f64 / (cues as f64).max(1.0),
            back,
        }
    }

    /// Every host reports, spread over most of a second of the day; decisions come between two of them.
    fn cycle(&mut self, socket: &UdpSocket, cycle: u32) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
        thread::sleep(SECOND - Duration::from_nanos(since.subsec_nanos().into()) + SECOND / 20);
        let begin = Instant::now();
        let live = if cycle.is_multiple_of(2) { 3 } else { 30 };
        let (mut bytes, hosts) = (0, self.lines.len());
        if self.enrolled {
            let ledger = OpenOptions::new().append(true).open(self.folder.join("state/enrolment"));
            ledger.and_then(|mut file| file.write_all(entry(cycle + 1).as_bytes())).expect("written");
        }
        for (batch, lines) in self.lines.chunks_mut(BATCH).enumerate() {
            for line in lines {
                let report = HostReport { sequence: cycle, live, started: 100, drop_rate: 500, rtt: 900 };
                let said =
                    Message { from: NodeId(0), scheme: opentcp::DEF.code, body: body(&Body::Host(report)) };
                let datagram = line.seal(&said);
                bytes += datagram.len() as u64 + 28;
                // A controller that starts has no socket yet.
                let _ = socket.send_to(&datagram, ADDRESS);
            }
            let due = SECOND.mul_f64(0.7 * (batch * BATCH) as f64 / hosts as f64);
            thread::sleep(due.saturating_sub(begin.elapsed()));
        }
        // The decision is at the end of the second.
        bytes
    }
}

impl Drop for Site<'_> {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// What is sent to hosts, with IP's and UDP's headers.
#[derive(Clone, Copy, Default)]
struct Heard {
    messages: u64,
    bytes: u64,
}

/// The controller.
struct Running(Child);

impl Running {
    /// Processor time of all its threads.
    fn seconds(&self) -> f64 {
        let text = fs::read_to_string(format!("/proc/{}/stat", self.0.id())).expect("it runs");
        let fields: Vec<&str> = text.rsplit(')').next().expect("fields").split_whitespace().collect();
        let ticks: f64 = fields[11..13].iter().map(|field| field.parse::<f64>().expect("ticks")).sum();
        // USER_HZ is 100 on every Linux that counts.
        ticks / 100.0
    }

    fn megabytes(&self) -> f64 {
        let text = fs::read_to_string(format!("/proc/{}/status", self.0.id())).expect("it runs");
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("its memory");
        line.split_whitespace().next().and_then(|kib| kib.parse::<f64>().ok()).expect("KiB") * 1024.0 / 1e6
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
