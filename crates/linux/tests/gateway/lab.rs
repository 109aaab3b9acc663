//! Namespaces `s - g1 - r - g2`: data goes from `s` to an address of `g2`, through a bottleneck at `r`.

use std::fmt::Display;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread;
use std::time::{Duration, Instant};

use bandmaster_linux::gateway::Status;
use nix::sched::{CloneFlags, setns};

use super::child::COMMAND;
use super::machine::{no_lab, skip};

const NODES: [&str; 4] = ["s", "g1", "r", "g2"];
pub(crate) const GATEWAY_1: &str = "10.9.1.1";
pub(crate) const GATEWAY_2: &str = "10.9.2.1";
pub(crate) const SINK: &str = "10.2.0.2";
/// Starts a process that may load no program into the kernel.
pub(crate) const NO_PROGRAMS: [&str; 2] = ["setpriv", "--bounding-set=-sys_admin,-bpf,-perfmon"];
/// The environment variable with which all gateways are started so: they count by classes and rules.
const WITHOUT_PROGRAMS: &str = "BANDMASTER_TEST_WITHOUT_PROGRAMS";
const KEY: &[u8] = b"a secret of thirty-two bytes....";

pub(crate) struct Lab {
    prefix: String,
    folder: PathBuf,
    nodes: Vec<&'static str>,
    _turn: Turn,
}

/// Labs share the machine's processors, but for those in which times count.
enum Turn {
    Shared(#[expect(dead_code, reason = "held")] RwLockReadGuard<'static, ()>),
    Alone(#[expect(dead_code, reason = "held")] RwLockWriteGuard<'static, ()>),
}

static MACHINE: RwLock<()> = RwLock::new(());

/// A process in the lab that ends with it.
pub(crate) struct Running(Child);

impl Lab {
    /// None, with the reason on stderr, where it cannot be built.
    pub(crate) fn build(rate: &str) -> Option<Self> {
        Self::new(&NODES, rate, Turn::Shared(MACHINE.read().unwrap_or_else(PoisonError::into_inner)))
    }

    /// Namespaces without links; none as for [`build`](Self::build).
    pub(crate) fn bare(nodes: &[&'static str]) -> Option<Self> {
        Self::namespaces(nodes, Turn::Shared(MACHINE.read().unwrap_or_else(PoisonError::into_inner)))
    }

    /// The same, with no other lab at the same time.
    pub(crate) fn build_alone(rate: &str) -> Option<Self> {
        Self::new(&NODES, rate, Turn::Alone(MACHINE.write().unwrap_or_else(PoisonError::into_inner)))
    }

    /// The same, with a node `x` between the bottleneck and `g2`, which loses so many of a hundred packets to `g2` at random.
    pub(crate) fn build_lossy(rate: &str, percent: u32) -> Option<Self> {
        let turn = Turn::Alone(MACHINE.write().unwrap_or_else(PoisonError::into_inner));
        let lab = Self::new(&["s", "g1", "r", "x", "g2"], rate, turn)?;
        let file = lab.path("loss.nft");
        let rule = format!("iifname \"left\" numgen random mod 100 < {percent} drop");
        let chain = format!("chain forward {{\n\t\ttype filter hook forward priority 0\n\t\t{rule}\n\t}}");
        fs::write(&file, format!("table inet loss {{\n\t{chain}\n}}\n")).expect("written");
        lab.inside("x", &format!("nft -f {}", file.display()));
        Some(lab)
    }

    fn namespaces(nodes: &[&'static str], turn: Turn) -> Option<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        for (program, version) in [("ip", "-V"), ("tc", "-V"), ("nft", "-v"), ("ethtool", "--version")] {
            if Command::new(program).arg(version).output().is_err() {
                skip_this(format_args!("no program {program}"));
                return None;
            }
        }
        if let Some(why) = no_lab() {
            skip_this(why);
            return None;
        }
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let prefix = format!("bmgate{}x{number}", std::process::id());
        let folder = std::env::temp_dir().join(&prefix);
        let lab = Self { prefix, folder, nodes: nodes.to_vec(), _turn: turn };
        if !run("ip", &["netns", "add", &lab.name(nodes[0])]).0 {
            skip_this("needs root: network namespaces");
            return None;
        }
        fs::create_dir_all(&lab.folder).expect("a folder");
        for node in &nodes[1..] {
            lab.host("ip", &["netns", "add", &lab.name(node)]);
        }
        for node in nodes {
            lab.inside(node, "ip link set dev lo up");
        }
        lab.write_key("key", KEY);
        Some(lab)
    }

    /// A secret in a file of that name.
    pub(crate) fn write_key(&self, name: &str, secret: &[u8]) {
        let path = self.path(name);
        fs::write(&path, secret).expect("a key");
        self.host("chmod", &["600", &path.to_string_lossy()]);
    }

    fn new(nodes: &[&'static str], rate: &str, turn: Turn) -> Option<Self> {
        let lab = Self::namespaces(nodes, turn)?;
        lab.link(("s", "eth0", "10.1.0.2/24"), ("g1", "lan0", "10.1.0.1/24"));
        lab.link(("g1", "wan0", "10.9.1.1/24"), ("r", "left", "10.9.1.2/24"));
        if nodes.contains(&"x") {
            lab.link(("r", "right", "10.9.3.2/24"), ("x", "left", "10.9.3.1/24"));
            lab.link(("x", "right", "10.9.2.2/24"), ("g2", "wan0", "10.9.2.1/24"));
        } else {
            lab.right();
        }
        for node in nodes.iter().filter(|node| !["s", "g2"].contains(node)) {
            lab.inside(node, "sysctl -qw net.ipv4.ip_forward=1");
        }
        lab.inside("s", "ip route add default via 10.1.0.1");
        lab.routes();
        if nodes.contains(&"x") {
            lab.inside("r", "ip route add 10.2.0.0/24 via 10.9.3.1");
            lab.inside("r", "ip route add 10.9.2.0/24 via 10.9.3.1");
            lab.inside("x", "ip route add 10.2.0.0/24 via 10.9.2.1");
            lab.inside("x", "ip route add default via 10.9.3.2");
            lab.inside("g2", "ip route add default via 10.9.2.2");
        } else {
            lab.right_routes();
        }
        lab.inside("g2", &format!("ip addr add {SINK}/32 dev lo"));
        lab.inside("r", "ip route add 10.1.0.0/24 via 10.9.1.1");
        lab.inside("r", "tc qdisc add dev right root handle 1: htb default 10");
        lab.inside(
            "r",
            &format!("tc class add dev right parent 1: classid 1:10 htb rate {rate} burst 1600 cburst 1600"),
        );
        lab.inside("r", "tc qdisc add dev right parent 1:10 pfifo limit 50");
        Some(lab)
    }

    fn right(&self) {
        self.link(("r", "right", "10.9.2.2/24"), ("g2", "wan0", "10.9.2.1/24"));
    }

    fn right_routes(&self) {
        self.inside("g2", "ip route add default via 10.9.2.2");
        self.inside("r", "ip route add 10.2.0.0/24 via 10.9.2.1");
    }

    /// Another link of the same names between `r` and `g2`, without a bottleneck.
    pub(crate) fn renew_right(&self) {
        self.inside("r", "ip link del dev right");
        self.make_right();
    }

    /// That link, where there is none.
    pub(crate) fn make_right(&self) {
        self.right();
        self.right_routes();
    }

    /// The routes that go with the link of `g1`.
    pub(crate) fn routes(&self) {
        self.inside("g1", "ip route replace default via 10.9.1.2");
    }

    pub(crate) fn set_rate(&self, rate: &str) {
        self.inside(
            "r",
            &format!(
                "tc class change dev right parent 1: classid 1:10 htb rate {rate} burst 1600 cburst 1600"
            ),
        );
    }

    pub(crate) fn link(&self, a: (&str, &str, &str), b: (&str, &str, &str)) {
        let (left, right) = (self.name(a.0), self.name(b.0));
        self.host(
            "ip",
            &[
                "link", "add", "name", a.1, "netns", &left, "type", "veth", "peer", "name", b.1, "netns",
                &right,
            ],
        );
        for (node, device, address) in [a, b] {
            self.inside(node, &format!("ip addr add {address} dev {device}"));
            self.inside(node, &format!("ip link set dev {device} up"));
            self.inside(node, &format!("ethtool -K {device} tso off gso off tx off sg off"));
            // A cable keeps the order of packets; a veth pair, with a queue for each processor, does not.
            let steer = format!("echo 1 > /sys/class/net/{device}/queues/rx-0/rps_cpus");
            self.host("ip", &["netns", "exec", &self.name(node), "sh", "-c", &steer]);
        }
    }

    pub(crate) fn name(&self, node: &str) -> String {
        format!("{}-{node}", self.prefix)
    }

    fn host(&self, program: &str, words: &[&str]) {
        let (good, said) = run(program, words);
        assert!(good, "{program} {words:?}: {said}");
    }

    /// What `command` prints in the namespace of `node`.
    pub(crate) fn inside(&self, node: &str, command: &str) -> String {
        let name = self.name(node);
        let mut words = vec!["netns", "exec", &name];
        words.extend(command.split(' '));
        let (good, said) = run("ip", &words);
        assert!(good, "{node}: {command}: {said}");
        said
    }

    /// Takes the namespace of `node` away, in which nothing runs.
    pub(crate) fn forget(&self, node: &str) {
        self.host("ip", &["netns", "del", &self.name(node)]);
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Starts this test program in the namespace of `node`, to do `words` (see [`super::child`]).
    pub(crate) fn start(&self, node: &str, words: &str) -> Running {
        let without = std::env::var_os(WITHOUT_PROGRAMS).is_some();
        self.start_by(if without { &NO_PROGRAMS } else { &[] }, node, words)
    }

    /// Starts this test program by another one.
    pub(crate) fn start_by(&self, starter: &[&str], node: &str, words: &str) -> Running {
        let program = std::env::current_exe().expect("this program");
        let log = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.path(&format!("{node}.log")))
            .expect("a log");
        let child = Command::new("ip")
            .args(["netns", "exec", &self.name(node)])
            .args(starter)
            .arg(program)
            .args(["--exact", "child::child", "--nocapture", "--test-threads=1"])
            .env(COMMAND, words)
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a log"))
            .stderr(log)
            .spawn()
            .expect("started");
        Running(child)
    }

    /// Five flows of `kbits` each, counted as IP with 1400 bytes of payload, from `iperf3` at `s` to servers at `g2`. None,
    /// with the reason on stderr, where there is no such program.
    pub(crate) fn iperf3(&self, kbits: u64, seconds: u64) -> Option<Vec<Running>> {
        if Command::new("iperf3").arg("-v").output().is_err() {
            skip_this("no program iperf3");
            return None;
        }
        let bits = kbits * 1000 * 1400 / 1428;
        let run = |node: &str, words: String| {
            let log =
                fs::File::create(self.path(&format!("iperf3-{node}-{}.log", words.len()))).expect("a log");
            Command::new("ip")
                .args(["netns", "exec", &self.name(node), "iperf3"])
                .args(words.split(' '))
                .stdin(Stdio::null())
                .stdout(log.try_clone().expect("a log"))
                .stderr(log)
                .spawn()
                .map(Running)
                .expect("started")
        };
        let mut all: Vec<Running> =
            (5201..5206).map(|port| run("g2", format!("-s -1 -B {SINK} -p {port}"))).collect();
        thread::sleep(Duration::from_millis(500));
        all.extend(
            (5201..5206)
                .map(|port| run("s", format!("-c {SINK} -p {port} -u -b {bits} -l 1400 -t {seconds}"))),
        );
        Some(all)
    }

    /// What `work` comes to in the namespace of `node`.
    pub(crate) fn at<T: Send>(&self, node: &str, work: impl FnOnce() -> T + Send) -> T {
        let namespace = fs::File::open(format!("/run/netns/{}", self.name(node))).expect("a namespace");
        thread::scope(|scope| {
            let there = scope.spawn(|| {
                setns(&namespace, CloneFlags::CLONE_NEWNET).expect("entered");
                work()
            });
            there.join().expect("worked")
        })
    }

    pub(crate) fn log(&self, node: &str) -> String {
        fs::read_to_string(self.path(&format!("{node}.log"))).unwrap_or_default()
    }

    /// A deployment file for `node`, and the words that run it.
    pub(crate) fn gateway(&self, node: &str, text: &str) -> String {
        self.instance(node, &format!("name = \"gateway\"\n{text}"))
    }

    /// A deployment file that is called `name`, and the words that run it.
    pub(crate) fn instance(&self, name: &str, text: &str) -> String {
        let file = self.path(&format!("{name}.toml"));
        let text = text.replace("STATE", &self.state(name).to_string_lossy());
        fs::write(&file, text).expect("a file");
        format!("run {}", file.display())
    }

    pub(crate) fn state(&self, node: &str) -> PathBuf {
        self.path(&format!("{node}-state"))
    }

    pub(crate) fn status(&self, node: &str) -> Status {
        bandmaster_linux::gateway::status(&self.state(node))
            .unwrap_or_else(|e| panic!("{e}\n{}", self.log(node)))
    }

    /// Waits until the status of `node` is as wanted.
    pub(crate) fn until(
        &self,
        node: &str,
        what: &str,
        seconds: u64,
        wanted: impl Fn(&Status) -> bool,
    ) -> Status {
        let begin = Instant::now();
        loop {
            let status = bandmaster_linux::gateway::status(&self.state(node));
            match status {
                Ok(status) if wanted(&status) => return status,
                other if begin.elapsed() > Duration::from_secs(seconds) => {
                    panic!("{node}: not {what} after {seconds} s: {other:#?}\n{}", self.log(node))
                }
                _ => thread::sleep(Duration::from_millis(50)),
            }
        }
    }

    /// Waits until the last class of `node` is in the kernel.
    pub(crate) fn until_shaped(&self, node: &str, seconds: u64) {
        self.until_true(node, "shaped", seconds, || {
            self.inside(node, "tc class show dev wan0").contains("htb 1:14")
        });
    }

    /// Waits until `node` has logged `text`.
    pub(crate) fn until_logged(&self, node: &str, text: &str, seconds: u64) {
        self.until_true(node, text, seconds, || self.log(node).contains(text));
    }

    pub(crate) fn until_true(&self, node: &str, what: &str, seconds: u64, holds: impl Fn() -> bool) {
        let begin = Instant::now();
        while !holds() {
            let late = begin.elapsed() > Duration::from_secs(seconds);
            assert!(!late, "{node}: not {what} after {seconds} s\n{}", self.log(node));
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// All that a gateway could change at `node`, as the kernel tells it.
    pub(crate) fn machine(&self, node: &str) -> Machine {
        let commands = [
            "tc -p -j qdisc show",
            "tc -p -j class show dev wan0",
            "tc filter show dev wan0",
            "nft list ruleset",
            "ethtool -k wan0",
            "sysctl -a -r ^net[.]",
        ];
        let lines = commands.into_iter().flat_map(|command| {
            let said = self.inside(node, command);
            let settings = said.lines().filter(|line| !COUNTERS.iter().any(|counter| line.contains(counter)));
            settings.map(|line| format!("{command}: {line}")).collect::<Vec<_>>()
        });
        Machine(lines.collect())
    }
}

/// Numbers among the settings that any packet changes.
const COUNTERS: [&str; 2] = ["\"direct_packets_stat\"", "net.netfilter.nf_conntrack_count"];

/// Settings, a line each.
#[derive(PartialEq, Eq)]
pub(crate) struct Machine(Vec<String>);

impl Machine {
    /// # Panics
    /// With the lines that differ.
    #[track_caller]
    pub(crate) fn assert_is(&self, before: &Self, context: impl Display) {
        let only = |here: &Self, there: &Self| -> Vec<String> {
            here.0.iter().filter(|line| !there.0.contains(line)).cloned().collect()
        };
        let (gone, new) = (only(before, self), only(self, before));
        assert!(self == before, "{context}\ngone: {gone:#?}\nnew: {new:#?}");
    }
}

/// Each test has a thread of its name.
fn skip_this(why: impl Display) {
    skip(thread::current().name().unwrap_or("a test"), why);
}

impl Drop for Lab {
    fn drop(&mut self) {
        for node in &self.nodes {
            // What a failed test left goes with its namespace.
            let (_, pids) = run("ip", &["netns", "pids", &self.name(node)]);
            for pid in pids.split_whitespace() {
                run("kill", &["-9", pid]);
            }
            run("ip", &["netns", "del", &self.name(node)]);
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl Running {
    pub(crate) fn signal(&self, signal: &str) {
        // `ip netns exec` becomes the program: the process is the child itself.
        run("kill", &[signal, &self.0.id().to_string()]);
    }

    /// Waits for the end; true when it was good.
    pub(crate) fn end(mut self) -> bool {
        self.0.wait().is_ok_and(|status| status.success())
    }

    pub(crate) fn stop(self) -> bool {
        self.signal("-TERM");
        self.end()
    }

    /// A folder of `/proc`.
    pub(crate) fn folder(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}", self.0.id()))
    }

    /// Processor time so far, s.
    pub(crate) fn cpu(&self) -> f64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.0.id())).expect("a process");
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
        let ticks: f64 = fields[11..13].iter().filter_map(|n| n.parse::<f64>().ok()).sum();
        ticks / 100.0
    }
}

fn run(program: &str, words: &[&str]) -> (bool, String) {
    match Command::new(program).args(words).stdin(Stdio::null()).output() {
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let good = output.status.success();
            (good, if good { text } else { text + &String::from_utf8_lossy(&output.stderr) })
        }
        Err(e) => (false, e.to_string()),
    }
}

/// [`receiver`], for data of UDP: connections of `iperf3` leave unshaped, and are not counted.
pub(crate) fn udp_receiver(auth: &str) -> String {
    receiver(auth) + "protocol = \"udp\"\n"
}

/// A sender with five classes by destination port, as in the experiment of the paper.
pub(crate) fn sender(auth: &str, more: &str) -> String {
    let mut text = format!(
        "version = 1\nrole = \"sender\"\ninterface = \"wan0\"\nstate-directory = \"STATE\"\n{more}\n[peer]\naddress = \
         \"{GATEWAY_2}\"\n{auth}\n[control]\nestimator = \"loss\"\nsafe-rate = \"500kbit\"\nhold = \"3s\"\n"
    );
    for i in 1..=5 {
        text += &format!(
            "[[classes]]\nname = \"p{i}\"\npriority = {i}\nneed = \"400kbit\"\nretransmission = false\n\
             [[classes.match]]\nprotocol = \"udp\"\nports = [{}]\n",
            5200 + i
        );
    }
    text
}

pub(crate) fn receiver(auth: &str) -> String {
    format!(
        "version = 1\nrole = \"receiver\"\ninterface = \"wan0\"\nstate-directory = \"STATE\"\n[peer]\naddress = \
         \"{GATEWAY_1}\"\n{auth}\n[[data]]\nsource = \"10.1.0.0/24\"\n"
    )
}

pub(crate) const PLAIN: &str = "auth = \"none\"";
pub(crate) const KEYED: &str = "key-file = \"key\"";

/// The secret of `KEYED`.
pub(crate) fn key() -> bandmaster_core::scheme::er2bc::probe::Auth {
    use bandmaster_core::runtime::envelope::Key;
    use bandmaster_core::scheme::er2bc::probe::Auth;
    Auth::Key(Key::new(KEY).expect("long enough"))
}
