//! QCBF's switch as a process of its own: a router whose port to a receiver is slower than its senders.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use aya::programs::tc::TcAttachType;
use aya::programs::{ProgramInfo, SchedClassifier};
use bandmaster_core::rng::Stream;
use bandmaster_linux::kernel::flows::{self, FlowCounts};
use bandmaster_linux::netns::{Netns, set_parameter};
use bandmaster_linux::switch::{self, Restored, Status};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use socket2::{Domain, Protocol, SockRef, Socket, Type};

use super::hosts::run;
use super::machine::{in_time, no_lab, skip, timely};

/// The environment variable with the words of a child.
pub(super) const COMMAND: &str = "BANDMASTER_SWITCH_TEST";
/// Second number of the addresses of a network; the receiver's is 10.NET.0.1.
const NET: u8 = 79;
const PORT: u16 = 7200;
/// How long a test waits for what is bound to come.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a state may take to come: silent flows sleep after 1.4 s at most, all else takes less.
const SETTLES: Duration = Duration::from_secs(3);
/// Within this the other subflow of a connection of MPTCP has joined.
const JOINS: Duration = Duration::from_millis(300);
/// Namespaces that the senders are in.
const HOSTS: usize = 4;
/// A small port, and what windows may come to there: C x RTT and 0.8 of the buffer.
pub(super) const MBITS: u64 = 40;
pub(super) const BUFFER: u64 = 64 << 10;
pub(super) const BUDGET: u64 = 1_000 + 52_428;
/// Payload of a full segment, and what it is on the link.
pub(super) const SEGMENT: f64 = 1448.0 / 1514.0;

#[test]
fn child() {
    let Ok(file) = std::env::var(COMMAND) else { return };
    switch::run(Path::new(&file), false).unwrap_or_else(|e| panic!("{e}"));
}

/// Senders, a router and a receiver.
pub(super) struct Rack {
    net: u8,
    pub(super) senders: Vec<Netns>,
    pub(super) router: Netns,
    pub(super) receiver: Netns,
    pub(super) folder: PathBuf,
}

/// A daemon; killed when it is dropped.
pub(super) struct Daemon(pub(super) Child);

/// A count of the TCP of these namespaces.
pub(super) fn counted(nodes: &[Netns], name: &str) -> u64 {
    let of = |node: &Netns| {
        let told = run(&format!("ip netns exec {} nstat -asz {name}", node.name()));
        let mut words = told.split_whitespace().skip_while(|word| *word != name);
        words.nth(1).expect("a count").parse::<u64>().expect("a number")
    };
    nodes.iter().map(of).sum()
}

/// Retransmission timeouts.
pub(super) const TIMEOUTS: &str = "TcpExtTCPTimeouts";

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Rack {
    /// The router's port to the receiver sends `mbits` and holds `buffer` bytes. None, with the reason on stderr, where it
    /// cannot be made.
    pub(super) fn new(test: &str, mbits: u64, buffer: u64) -> Option<Self> {
        if let Some(why) = no_lab() {
            skip(test, why);
            return None;
        }
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let make = |node: &str| Netns::create(&format!("bmswitch-{number}-{node}")).expect("a namespace");
        let senders: Vec<Netns> = (0..HOSTS).map(|host| make(&format!("s{host}"))).collect();
        Some(Self::wire(NET, senders, make("r"), make("d"), mbits, buffer))
    }

    /// The same senders and receiver with another router, at addresses of their own.
    pub(super) fn second(&self, mbits: u64, buffer: u64) -> Self {
        let again = |node: &Netns| Netns::open(node.name()).expect("a namespace");
        let router = Netns::create(&format!("{}2", self.router.name())).expect("a namespace");
        let senders = self.senders.iter().map(again).collect();
        Self::wire(self.net - 1, senders, router, again(&self.receiver), mbits, buffer)
    }

    fn wire(net: u8, senders: Vec<Netns>, router: Netns, receiver: Netns, mbits: u64, buffer: u64) -> Self {
        let folder = std::env::temp_dir().join(format!("bandmaster-{}", router.name()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("made");
        let rack = Self { net, senders, router, receiver, folder };
        rack.router.enter(|| set_parameter("net.ipv4.ip_forward", "1")).expect("set");
        for (number, node) in std::iter::once(&rack.receiver).chain(&rack.senders).enumerate() {
            rack.cable(number, node);
        }
        rack.shape(mbits, buffer);
        let role = format!("buffer = \"{buffer}B\"\nrtt = \"200us\"\nageing = \"600ms\"");
        rack.write("qcbf", &role, mbits);
        rack
    }

    /// The switch's file.
    pub(super) fn write(&self, scheme: &str, role: &str, mbits: u64) {
        let file = format!(
            "version = 1\nscheme = \"{scheme}\"\nstate-directory = \"{}\"\n[role]\n{role}\n[[ports]]\n\
             interface = \"to0\"\nrate = \"{mbits}mbit\"\n",
            self.state().display()
        );
        fs::write(self.file(), file).expect("written");
    }

    /// Gives the port to the receiver its rate and buffer.
    pub(super) fn shape(&self, mbits: u64, buffer: u64) {
        let router = self.router.name();
        run(&format!("tc -n {router} qdisc add dev to0 root handle 1: htb default 10"));
        run(&format!(
            "tc -n {router} class add dev to0 parent 1: classid 1:10 htb rate {mbits}mbit burst 3200 cburst 3200 quantum 1514"
        ));
        run(&format!("tc -n {router} qdisc add dev to0 parent 1:10 handle 10: bfifo limit {buffer}"));
    }

    /// Connects a node to the router: the receiver is 0.
    pub(super) fn cable(&self, number: usize, node: &Netns) {
        let (node, router, net) = (node.name(), self.router.name(), self.net);
        run(&format!("ip link add cable{net} netns {node} type veth peer name to{number} netns {router}"));
        run(&format!("ip -n {router} address add 10.{net}.{number}.254/24 dev to{number}"));
        run(&format!("ip -n {router} link set to{number} up"));
        run(&format!("ip -n {node} address add 10.{net}.{number}.1/24 dev cable{net}"));
        run(&format!("ip -n {node} link set cable{net} up"));
        run(&format!("ip -n {node} route add 10.{net}.0.0/16 via 10.{net}.{number}.254"));
        // Packets, not the giants that segmentation offload makes of them.
        for (node, device) in [(node, format!("cable{net}")), (router, format!("to{number}"))] {
            run(&format!("ip netns exec {node} ethtool -K {device} tso off gso off gro off"));
        }
    }

    /// The receiver's.
    pub(super) fn address(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, self.net, 0, 1)
    }

    pub(super) fn file(&self) -> PathBuf {
        self.folder.join("switch.toml")
    }

    pub(super) fn state(&self) -> PathBuf {
        self.folder.join("state")
    }

    pub(super) fn spawn(&self) -> Daemon {
        self.spawn_by(&["env"])
    }

    /// Started by another program, which takes these words before it.
    fn spawn_by(&self, starter: &[&str]) -> Daemon {
        let log =
            fs::OpenOptions::new().create(true).append(true).open(self.folder.join("log")).expect("a log");
        let mut command = Command::new(starter[0]);
        command
            .args(&starter[1..])
            .arg(std::env::current_exe().expect("this program"))
            .args(["--exact", "switch::child", "--nocapture", "--test-threads=1"])
            .env(COMMAND, self.file())
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a log"))
            .stderr(log);
        Daemon(self.router.enter(|| Ok(command.spawn().expect("started"))).expect("entered"))
    }

    /// A switch that answers.
    pub(super) fn start(&self) -> Daemon {
        let daemon = self.spawn();
        self.until("the switch answers", |status| !status.ports.is_empty());
        daemon
    }

    /// Waits until what is bound to come has come.
    pub(super) fn until(&self, what: &str, holds: impl Fn(&Status) -> bool) -> Status {
        let begin = Instant::now();
        loop {
            let status = switch::status(&self.state());
            match &status {
                Ok(status) if holds(status) => return status.clone(),
                _ if begin.elapsed() < PATIENCE => thread::sleep(Duration::from_millis(20)),
                _ => {
                    let log = fs::read_to_string(self.folder.join("log")).unwrap_or_default();
                    panic!("{what}: {status:?}\n{log}")
                }
            }
        }
    }

    /// So many connections, their senders' ends and the receiver's.
    pub(super) fn connections(&self, many: usize) -> Vec<(TcpStream, TcpStream)> {
        self.connections_of(Protocol::TCP, many)
    }

    fn connections_of(&self, protocol: Protocol, many: usize) -> Vec<(TcpStream, TcpStream)> {
        let address: SocketAddr = (self.address(), PORT).into();
        let socket = |node: &Netns| {
            let make = || Ok(Socket::new(Domain::IPV4, Type::STREAM, Some(protocol)).expect("a socket"));
            node.enter(make).expect("entered")
        };
        let listener = socket(&self.receiver);
        listener.set_reuse_address(true).expect("set");
        // Other subflows come to other addresses.
        listener.bind(&SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT)).into()).expect("a port");
        listener.listen(128).expect("it listens");
        let connect = |number: usize| {
            let here = socket(&self.senders[number % HOSTS]);
            here.connect(&address.into()).expect("connected");
            (here.into(), listener.accept().expect("accepted").0.into())
        };
        let ends = (0..many).map(connect).collect();
        if protocol == Protocol::MPTCP {
            thread::sleep(JOINS);
        }
        ends
    }

    /// `many` senders begin at once; each sends `bytes`. Payload bytes a second until the last has come.
    fn transfer(&self, many: usize, bytes: usize) -> f64 {
        transfer(self.connections(many), bytes)
    }

    /// The same with MPTCP, whose other subflows have had time to join.
    pub(super) fn transfer_by_mptcp(&self, many: usize, bytes: usize) -> f64 {
        transfer(self.connections_of(Protocol::MPTCP, many), bytes)
    }

    pub(super) fn dropped(&self) -> u64 {
        let told = run(&format!("tc -n {} -s -j qdisc show dev to0", self.router.name()));
        let told: serde_json::Value = serde_json::from_str(&told).expect("JSON");
        told.as_array().expect("a list").iter().filter_map(|qdisc| qdisc["drops"].as_u64()).max().unwrap_or(0)
    }

    /// Windows that senders see.
    pub(super) fn windows(&self) -> Vec<u64> {
        let of = |node: &Netns| {
            run(&format!("ip netns exec {} ss -tinOH state established dport = :{PORT}", node.name()))
        };
        let told: String = self.senders.iter().map(of).collect();
        let words = told.split_whitespace().filter_map(|word| word.strip_prefix("snd_wnd:"));
        words.map(|window| window.parse().expect("a window")).collect()
    }

    /// What the kernel has at the port: disciplines, classes, programs.
    pub(super) fn kernel(&self) -> String {
        let router = self.router.name();
        let tc =
            run(&format!("tc -n {router} qdisc show")) + &run(&format!("tc -n {router} class show dev to0"));
        let programs = |at| {
            let query = || Ok(SchedClassifier::query_tcx("to0", at).expect("read").1);
            self.router.enter(query).expect("entered").iter().map(ProgramInfo::id).collect::<Vec<u32>>()
        };
        let (arrives, departs) = (programs(TcAttachType::Ingress), programs(TcAttachType::Egress));
        // In whatever order the devices were made.
        let mut tc: Vec<&str> = tc.lines().collect();
        tc.sort_unstable();
        format!("{tc:#?}{arrives:?} {departs:?}")
    }
}

/// Each sender begins at once, and sends `bytes`. Payload bytes a second until the last has come.
fn transfer(ends: Vec<(TcpStream, TcpStream)>, bytes: usize) -> f64 {
    let many = ends.len();
    let barrier = Arc::new(Barrier::new(many + 1));
    let mut threads = Vec::new();
    for (mut here, mut there) in ends {
        let barrier = Arc::clone(&barrier);
        threads.push(thread::spawn(move || {
            barrier.wait();
            here.write_all(&vec![0; bytes]).expect("sent");
            here.shutdown(std::net::Shutdown::Write).expect("shut");
            // Until the receiver has all.
            let _ = here.read(&mut [0]);
        }));
        threads.push(thread::spawn(move || {
            let mut buffer = vec![0; 1 << 16];
            let mut got = 0;
            while let Ok(more @ 1..) = there.read(&mut buffer) {
                got += more;
            }
            assert_eq!(got, bytes);
        }));
    }
    barrier.wait();
    let begin = Instant::now();
    for thread in threads {
        thread.join().expect("transferred");
    }
    (many * bytes) as f64 / begin.elapsed().as_secs_f64()
}

impl Drop for Rack {
    fn drop(&mut self) {
        for node in self.senders.iter().chain([&self.router, &self.receiver]) {
            let _ = Netns::delete(node.name());
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Ports of 64 KiB at 40 Mbit/s and of 512 KiB at 100 Mbit/s, with 4 to 64 senders of 1 and 2 MiB, or as many that they send
/// 16 and 32 MiB together. Four senders alone end their slow start in time for 512 KiB; everywhere else plain TCP (CUBIC) has
/// to drop.
#[test]
fn incast_drops_no_packet_where_plain_tcp_does() {
    let test = "incast_drops_no_packet_where_plain_tcp_does";
    // The budget of windows in 64 KiB has room for 34 segments: with 32 senders packets were dropped.
    let few: &[usize] = &[4, 8, 16, 24];
    let many: &[usize] = &[4, 8, 16, 24, 64];
    for (buffer, mbits, most, all) in [(64 << 10, 40, 1 << 20, few), (512 << 10, 100, 2 << 20, many)] {
        for &senders in all {
            let bytes = most.min(16 * most / senders);
            in_time(test, || {
                let limit = mbits as f64 * 1e6 / 8.0 * SEGMENT;
                let Some(rack) = Rack::new(test, mbits, buffer) else { return Ok(()) };
                let plain = rack.transfer(senders, bytes) / limit;
                let plain_drops = rack.dropped();
                let plain_timeouts = counted(&rack.senders, TIMEOUTS);
                let daemon = rack.start();
                let managed = rack.transfer(senders, bytes) / limit;
                let drops = rack.dropped() - plain_drops;
                let expired = counted(&rack.senders, TIMEOUTS) - plain_timeouts;
                println!(
                    "{buffer} B, {senders} senders of {bytes} B: {drops} drops, {expired} timeouts, {managed:.3} of the limit; \
                     plain TCP {plain_drops} drops, {plain_timeouts} timeouts, {plain:.3}"
                );
                let status = rack.until("the flows are gone", |status| status.ports[0].flows == 0);
                drop(daemon);
                timely!(drops == 0, "{drops} packets of managed flows were dropped: {status}");
                timely!(expired == 0, "{expired} retransmission timeouts of managed flows: {status}");
                timely!(managed > 0.95, "{managed} of the limit: {status}");
                let overflows = senders > 4 || buffer < 512 << 10;
                timely!(plain_drops > 0 || !overflows, "plain TCP drops nothing, so that nothing is shown");
                Ok(())
            });
        }
    }
}

/// Waits until `state` is there.
fn settle(what: &str, state: impl Fn() -> Result<(), String>) -> Result<(), String> {
    let begin = Instant::now();
    loop {
        match state() {
            Ok(()) => return Ok(()),
            Err(_) if begin.elapsed() < SETTLES => thread::sleep(Duration::from_millis(20)),
            Err(state) => return Err(format!("not within {SETTLES:?}: {what}: {state}")),
        }
    }
}

/// Flows that end by RST, or fall silent, leave their share to the others. A daemon that stands still, and one that is
/// killed, leaves windows open: after a second, and what a busy machine takes.
#[test]
fn shares_return_and_windows_open_when_nobody_decides() {
    let test = "shares_return_and_windows_open_when_nobody_decides";
    in_time(test, || {
        let Some(rack) = Rack::new(test, MBITS, BUFFER) else { return Ok(()) };
        let daemon = rack.start();
        let mut ends = rack.connections(12);
        let (first, mut first_end) = ends.remove(0);
        let reader = thread::spawn(move || while let Ok(1..) = first_end.read(&mut [0; 1 << 16]) {});
        let writer = {
            let mut first = first.try_clone().expect("a copy");
            thread::spawn(move || while first.write_all(&[0; 1 << 14]).is_ok() {})
        };
        let widest = || rack.windows().into_iter().max().unwrap_or(0);
        let shares = |what: &str, flows: u64, holds: &dyn Fn(u64) -> bool| {
            settle(what, || {
                let (status, widest) = (switch::status(&rack.state()).expect("read"), widest());
                match status.ports[0].flows == flows && holds(widest) {
                    true => Ok(()),
                    false => Err(format!("{widest} B; {status}")),
                }
            })
        };
        // 53,428 B for 12 flows and one more are 2 segments each.
        shares("one of 12", 12, &|share| (2896..2 * 1448 + 1024).contains(&share))?;
        for (here, _) in ends.drain(..8) {
            SockRef::from(&here).set_linger(Some(Duration::ZERO)).expect("set");
        }
        shares("one of 4", 4, &|share| share >= 6 * 1448)?;
        // Three are silent, and sleep.
        let opens = |what: &str, least: u64| {
            settle(what, || match widest() {
                width if width >= least => Ok(()),
                width => Err(format!("{width} B")),
            })
        };
        opens("one that is alone awake", 14 * 1448)?;

        let process = Pid::from_raw(daemon.0.id() as i32);
        kill(process, Signal::SIGSTOP).expect("stopped");
        let open = opens("after the daemon fell silent", BUDGET + 1);
        kill(process, Signal::SIGCONT).expect("goes on");
        open?;
        drop(daemon);
        opens("after the daemon was killed", BUDGET + 1)?;
        drop(ends);
        first.shutdown(std::net::Shutdown::Both).expect("shut");
        let _ = (writer.join(), reader.join());
        Ok(())
    });
}

/// Killed at 20 moments, from its start on, with traffic: disciplines, classes and programs at the port are as before, also
/// the program of somebody else.
#[test]
fn a_killed_switch_leaves_nothing_in_the_kernel() {
    let test = "a_killed_switch_leaves_nothing_in_the_kernel";
    let Some(rack) = Rack::new(test, MBITS, BUFFER) else { return };
    let foreign = rack.router.enter(|| {
        let mut counts = FlowCounts::load().unwrap_or_else(|why| panic!("{why}"));
        let device = nix::net::if_::if_nametoindex("to0").expect("a device");
        counts.follow("to0", device, flows::Direction::Departs).unwrap_or_else(|why| panic!("{why}"));
        Ok(counts)
    });
    let _foreign = foreign.expect("entered");
    let before = rack.kernel();
    let mut random = Stream::new(7, 0, "kills");
    let mut worked = 0;
    for _ in 0..20 {
        let daemon = rack.spawn();
        let _ends = rack.connections(2);
        thread::sleep(Duration::from_millis(random.below(1500)));
        worked += u32::from(rack.kernel() != before);
        drop(daemon);
        assert_eq!(rack.kernel(), before, "after a kill");
        let restored = rack.router.enter(|| Ok(switch::restore(&rack.state()))).expect("entered");
        assert!(matches!(restored, Ok(Restored::Nothing | Restored::Done(_))), "{restored:?}");
        assert_eq!(switch::restore(&rack.state()), Ok(Restored::Nothing));
    }
    assert!(worked >= 5, "killed at work {worked} times of 20 only");
    // A daemon that gets SIGTERM leaves no journal either.
    let mut daemon = rack.start();
    assert_ne!(rack.kernel(), before);
    let second = rack.spawn().0.wait().expect("ended");
    assert!(!second.success(), "two switches at a port");
    kill(Pid::from_raw(daemon.0.id() as i32), Signal::SIGTERM).expect("signalled");
    assert!(daemon.0.wait().expect("ended").success());
    assert_eq!(rack.kernel(), before, "after a stop");
    assert_eq!(switch::restore(&rack.state()), Ok(Restored::Nothing));
}

/// With its own user and the two capabilities of the packaged unit. Without CAP_PERFMON the kernel looks through paths too that a
/// processor may take by mistake: what it looks at stays far below the million steps at which it refuses a program.
#[test]
fn a_switch_needs_two_capabilities() {
    let test = "a_switch_needs_two_capabilities";
    let Some(rack) = Rack::new(test, MBITS, BUFFER) else { return };
    if Command::new("setpriv").arg("--version").output().is_err() {
        skip(test, "no setpriv (package util-linux)");
        return;
    }
    run(&format!("chown -R 65534 {}", rack.folder.display()));
    fs::set_permissions(&rack.folder, fs::Permissions::from_mode(0o755)).expect("set");
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
    let qcbf = fs::read_to_string(rack.file()).expect("read");
    let (head, rest) = qcbf.split_once("[role]").expect("a role");
    let (_, ports) = rest.split_once("[[ports]]").expect("a port");
    let bas = format!("{}[role]\n[[ports]]{ports}", head.replace("\"qcbf\"", "\"bas\""));
    for file in [bas, qcbf] {
        fs::write(rack.file(), file).expect("written");
        let daemon = rack.spawn_by(&starter("-all,+bpf,+net_admin"));
        rack.until("the switch answers", |status| !status.ports.is_empty());
        for at in [TcAttachType::Ingress, TcAttachType::Egress] {
            let query = || Ok(SchedClassifier::query_tcx("to0", at).expect("read").1);
            for program in rack.router.enter(query).expect("entered") {
                let steps = program.verified_instruction_count().expect("a kernel that tells it");
                assert!((1_000..100_000).contains(&steps), "{at:?}: {steps}");
            }
        }
        drop(daemon);
    }
    for lacking in ["-all,+net_admin", "-all,+bpf"] {
        let mut daemon = rack.spawn_by(&starter(lacking));
        assert!(!daemon.0.wait().expect("ended").success(), "{lacking}");
    }
    let log = fs::read_to_string(rack.folder.join("log")).expect("a log");
    assert!(log.contains("it needs CAP_BPF and CAP_NET_ADMIN"), "{log}");
}

/// The flows of a device that is gone give their shares back when it is made again.
#[test]
fn a_device_made_anew_has_no_flows() {
    let test = "a_device_made_anew_has_no_flows";
    let Some(rack) = Rack::new(test, MBITS, BUFFER) else { return };
    let _daemon = rack.start();
    let _ends = rack.connections(4);
    rack.until("flows are known", |status| status.ports[0].flows == 4);
    let (router, receiver) = (rack.router.name(), rack.receiver.name());
    run(&format!("ip -n {router} link del to0"));
    rack.until("a fault says so", |status| {
        status.faults.iter().any(|fault| fault.contains("no such device"))
    });
    run(&format!("ip link add cable{NET} netns {receiver} type veth peer name to0 netns {router}"));
    run(&format!("ip -n {router} link set to0 up"));
    rack.until("they are forgotten", |status| status.ports[0].flows == 0);
}

/// A queue that holds less than the buffer of the file, and one of unknown size, are refused by name.
#[test]
fn a_queue_that_does_not_hold_the_buffer_is_refused() {
    let test = "a_queue_that_does_not_hold_the_buffer_is_refused";
    let Some(rack) = Rack::new(test, MBITS, BUFFER) else { return };
    let obstacles = || {
        let loaded = switch::load(&rack.file()).unwrap_or_else(|e| panic!("{e}"));
        rack.router.enter(|| Ok(switch::plan(&loaded).obstacles.join("\n"))).expect("entered")
    };
    assert_eq!(obstacles(), "");
    let router = rack.router.name().to_owned();
    run(&format!("tc -n {router} qdisc change dev to0 parent 1:10 handle 10: bfifo limit 65535"));
    assert!(obstacles().contains("holds 65535 B, less than the buffer of 65536 B"), "{}", obstacles());
    run(&format!("tc -n {router} qdisc replace dev to0 root tbf rate 40mbit burst 5kb limit 65536"));
    assert_eq!(obstacles(), "");
    run(&format!("tc -n {router} qdisc del dev to0 root"));
    assert!(obstacles().contains("(noqueue) is no FIFO of known size"), "{}", obstacles());
}
