//! Finds what this machine can do by trying it in a temporary network namespace.

use std::collections::BTreeSet;
use std::env;
use std::ffi::CString;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use bandmaster_core::params::Limit;
use bandmaster_core::units::{Bytes, Rate};
use netlink_bindings::rt_link;
use netlink_bindings::tc::{self, Tcmsg};
use netlink_bindings::traits::NetlinkRequest;
use netlink_socket2::{NetlinkSocket, ReplyError};
use nix::unistd::geteuid;
use serde::Serialize;
use socket2::{Domain, Socket, Type};

use crate::cables::Far;
use crate::gateway;
use crate::htb::{Class, Htb, Plan};
use crate::kernel::NoProgram;
use crate::kernel::tcp::{self, HostTcp};
use crate::netns::{self, apart, parameter};
use crate::syscall;

/// What was found, in the order in which a person reads it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Examination {
    /// Release of the running kernel.
    pub kernel: String,
    /// Everything that was looked for.
    pub items: Vec<Item>,
}

/// One thing that a machine has or has not.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Item {
    /// What kind of thing: `qdisc`, `program`, ...
    pub area: &'static str,
    /// Its name.
    pub name: String,
    /// Whether it is there.
    pub state: State,
    /// What was seen.
    pub seen: String,
    /// Commands that do not work without it.
    pub needed_by: &'static [&'static str],
    /// What it is for; none: nothing of bandmaster uses it.
    pub purpose: Option<&'static str>,
    /// How to get it; none when it is there.
    pub remedy: Option<String>,
}

/// Whether something is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It works.
    Ok,
    /// It does not.
    Missing,
    /// It could not be tried.
    Unknown,
}

impl State {
    /// The word for it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Missing => "missing",
            Self::Unknown => "unknown",
        }
    }
}

impl Examination {
    /// Things that `command` needs and that are missing or unknown.
    pub fn gaps(&self, command: &str) -> Vec<&Item> {
        let lacks = |item: &&Item| item.state != State::Ok && item.needed_by.contains(&command);
        self.items.iter().filter(lacks).collect()
    }
}

/// The commands that need something of the machine.
pub const COMMANDS: [&str; 3] = ["emulate", "gateway", "agent"];

const EMULATE: &[&str] = &["emulate"];
const GATEWAY: &[&str] = &["gateway"];
const AGENT: &[&str] = &["agent"];
const NOBODY: &[&str] = &[];

/// Device of the throw-away namespace that everything is tried at.
const DEVICE: &str = "lo";
/// Bit of the capability to administrate networks in `CapEff`.
pub(crate) const CAP_NET_ADMIN: u32 = 12;
/// `TC_H_ROOT`, `TC_H_CLSACT` and the handle that goes with it.
const ROOT: u32 = u32::MAX;
const CLSACT: u32 = 0xffff_fff1;
const CLSACT_HANDLE: u32 = 0xffff_0000;
/// Handle of [`Htb`]'s qdisc.
const HTB_HANDLE: u32 = 0x0001_0000;
/// `ETH_P_ALL`.
const EVERY_PROTOCOL: u16 = 3;

/// Name, who does not work without, what for.
type Kind = (&'static str, &'static [&'static str], Option<&'static str>);

/// Kinds of queue disciplines.
const QDISCS: &[Kind] = &[
    ("pfifo", GATEWAY, Some("queues of the classes of htb")),
    ("bfifo", NOBODY, Some("queues of the classes of htb with limits in bytes")),
    ("clsact", NOBODY, Some("BPF on packets")),
    ("fq", NOBODY, None),
    ("fq_codel", NOBODY, Some("what most distributions put on devices; `gateway` gives it back on exit")),
    ("tbf", NOBODY, None),
    ("netem", NOBODY, None),
    ("prio", NOBODY, None),
    ("red", NOBODY, None),
    ("codel", NOBODY, None),
    ("pie", NOBODY, None),
    ("sfq", NOBODY, None),
    ("cake", NOBODY, None),
];

/// Kinds of filters.
const FILTERS: &[Kind] = &[
    ("u32", NOBODY, Some("classes by code point, in scenarios with htb")),
    ("bpf", NOBODY, Some("BPF on packets")),
    ("flower", NOBODY, None),
    ("matchall", NOBODY, None),
];

/// Congestion controls.
const CONTROLS: &[Kind] = &[
    ("cubic", EMULATE, Some("TCP of scenarios, unless they say otherwise")),
    ("reno", NOBODY, Some("scenarios with reno or newreno")),
    ("bbr", NOBODY, None),
    ("dctcp", NOBODY, None),
];

/// Programs.
const PROGRAMS: &[(&str, &str, &[&str], Option<&str>)] = &[
    ("nft", "nftables", GATEWAY, Some("classification and counting")),
    ("tc", "iproute2", NOBODY, Some("to look at queues by hand; no command starts it")),
    ("ip", "iproute2", NOBODY, Some("to look at namespaces by hand; no command starts it")),
    ("iperf3", "iperf3", NOBODY, Some("`emulate --traffic iperf3`; the lab has a sender of its own")),
    ("clang", "clang", NOBODY, Some("to rebuild the BPF programs; they come built")),
];

/// What the gateway asks of nftables.
const RULES: &str = "table inet bandmaster-doctor {
    counter data {}
    chain classes {
        type filter hook postrouting priority mangle; policy accept;
        ip daddr 192.0.2.1 ip dscp ef meta priority set 1:10 return
    }
    chain data {
        type filter hook prerouting priority raw; policy accept;
        iifname \"lo\" ip saddr 192.0.2.1 udp dport 1 counter name \"data\" return
    }
}
";

/// Looks at everything. Without root the process moves into a user namespace where that is allowed: a command that
/// asks does nothing else afterwards, and must ask while it has one thread.
pub fn examine() -> Examination {
    let kernel = line("/proc/sys/kernel/osrelease").unwrap_or_else(|| "unknown".to_owned());
    let mut items = vec![machine_cores(), machine_clock(), administration()];
    let (new, live) = (HostTcp::load().map(drop), HostTcp::only_live().map(drop));
    let routes = settings_by_routes(new.as_ref().and(live.as_ref()).err());
    let outside = [
        bpf_types(),
        counting(),
        new_connections(new),
        live_connections(live),
        routes,
        mptcp(),
        control_groups(),
    ];
    let programs = PROGRAMS
        .iter()
        .map(|(name, package, needed_by, purpose)| program(name, package, needed_by, *purpose));
    let programs: Vec<Item> = programs.collect();

    let privileges = netns::take_privileges().map_err(|error| error.to_string());
    items.push(user_namespace(&privileges));
    let inside = privileges.and_then(|()| apart(|| Ok(try_all())).map_err(|error| error.to_string()));
    items.push(network_namespace(&inside));
    match inside {
        Ok(inside) => items.extend(inside),
        Err(_) => items.extend(untried()),
    }
    items.extend(outside);
    items.extend(programs);
    Examination { kernel, items }
}

impl Item {
    fn new(
        area: &'static str,
        name: &str,
        needed_by: &'static [&'static str],
        purpose: Option<&'static str>,
    ) -> Self {
        let (state, seen, remedy) = (State::Ok, String::new(), None);
        Self { area, name: name.to_owned(), state, seen, needed_by, purpose, remedy }
    }

    fn seen(self, seen: impl Into<String>) -> Self {
        Self { seen: seen.into(), ..self }
    }

    fn missing(self, seen: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { state: State::Missing, seen: seen.into(), remedy: Some(remedy.into()), ..self }
    }

    fn unknown(self, seen: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { state: State::Unknown, seen: seen.into(), remedy: Some(remedy.into()), ..self }
    }
}

// ------------------------------------------------------------------------------------------------- read, not tried

fn machine_cores() -> Item {
    let item = Item::new("machine", "cores", NOBODY, Some("one for the forwarder, one for the traffic"));
    match thread::available_parallelism().map(usize::from) {
        Ok(1) => item.missing("1", "give the machine a second core: emulated timing is coarse with one"),
        Ok(cores) => item.seen(cores.to_string()),
        Err(error) => item.unknown(error.to_string(), "nothing: it is only advice"),
    }
}

fn machine_clock() -> Item {
    let item = Item::new(
        "machine",
        "clock",
        NOBODY,
        Some("reading it must be cheap: the forwarder does for each packet"),
    );
    match line("/sys/devices/system/clocksource/clocksource0/current_clocksource") {
        Some(clock) if matches!(&*clock, "hpet" | "acpi_pm" | "jiffies" | "refined-jiffies") => {
            item.missing(clock, "boot with a kernel and machine that keep `tsc` or `kvm-clock`")
        }
        Some(clock) => item.seen(clock),
        None => item.unknown("not reported", "nothing: it is only advice"),
    }
}

/// Before any user namespace gives us all capabilities over nothing.
fn administration() -> Item {
    let item = Item::new(
        "privileges",
        "network administration",
        GATEWAY,
        Some("queues and rules of the real interfaces"),
    );
    let user = if geteuid().is_root() { "root".to_owned() } else { format!("user {}", geteuid()) };
    match has_capability(CAP_NET_ADMIN) {
        Some(true) => item.seen(format!("{user}, CAP_NET_ADMIN")),
        Some(false) => item.missing(
            format!("{user}, no CAP_NET_ADMIN"),
            "run `gateway` as root (sudo), or by its systemd unit, which gives CAP_NET_ADMIN",
        ),
        None => item.unknown(user, "mount /proc"),
    }
}

/// Whether this process has a capability; none: `/proc` does not tell.
pub(crate) fn has_capability(number: u32) -> Option<bool> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    let mask = u64::from_str_radix(effective.trim(), 16).ok()?;
    Some(mask >> number & 1 == 1)
}

/// What an agent does where the kernel takes none of its programs.
fn settings_by_routes(refused: Option<&NoProgram>) -> Item {
    let purpose = "initial window, least timeout and congestion control of OpenTCP, where BPF is refused";
    let item = Item::new("tcp", "settings by routes", NOBODY, Some(purpose));
    match (refused, has_capability(CAP_NET_ADMIN)) {
        (None, _) => item.seen("not needed: the kernel takes the programs of `agent`"),
        (Some(why), Some(true)) if why.is_forbidden => {
            item.seen("`agent` sets routes here, for OpenTCP alone: BPF is refused")
        }
        (Some(why), Some(true)) => item.seen(format!("not done: {why}")),
        (Some(_), _) => item.missing("no CAP_NET_ADMIN", "run as root (sudo), or with CAP_NET_ADMIN"),
    }
}

fn bpf_types() -> Item {
    let item = Item::new("bpf", "types of the kernel (BTF)", AGENT, Some("BPF programs that fit any kernel"));
    if Path::new("/sys/kernel/btf/vmlinux").exists() {
        item.seen("/sys/kernel/btf/vmlinux")
    } else {
        item.missing("no /sys/kernel/btf/vmlinux", "a kernel with CONFIG_DEBUG_INFO_BTF")
    }
}

fn counting() -> Item {
    let purpose = "exact counters of `gateway`; without it counts by class counters and nftables";
    let item = Item::new("bpf", "counting in the order of packets", NOBODY, Some(purpose));
    by_load(item, gateway::counts_in_order(), "CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN; Linux 6.6 or later")
}

/// Attaches nothing.
fn new_connections(loaded: Result<(), NoProgram>) -> Item {
    let item = Item::new(
        "bpf",
        "TCP of new connections",
        AGENT,
        Some("settings of connections that begin; also in `emulate` of schemes that make them"),
    );
    by_load(item, loaded, "CAP_BPF and CAP_NET_ADMIN; Linux 5.14 or later")
}

fn live_connections(loaded: Result<(), NoProgram>) -> Item {
    let item = Item::new(
        "bpf",
        "TCP of live connections",
        AGENT,
        Some("settings and statistics of open connections"),
    );
    by_load(item, loaded, "CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN; Linux 5.14 or later")
}

fn by_load(item: Item, loaded: Result<(), NoProgram>, takes: &str) -> Item {
    match loaded {
        Ok(()) => item.seen("the kernel takes the program"),
        Err(why) => item.missing(why.to_string(), format!("run as root (sudo), or with {takes}")),
    }
}

fn mptcp() -> Item {
    let item = Item::new("tcp", "MPTCP", NOBODY, None);
    match parameter("net.mptcp.enabled").as_deref() {
        Some("1") => item.seen("net.mptcp.enabled = 1"),
        Some(value) => item.missing(format!("net.mptcp.enabled = {value}"), "`sysctl net.mptcp.enabled=1`"),
        None => item.missing("no net.mptcp.enabled", "a kernel with CONFIG_MPTCP"),
    }
}

fn control_groups() -> Item {
    let item = Item::new("bpf", "cgroup2", AGENT, Some("BPF on the connections of some processes"));
    match tcp::control_groups() {
        Ok(place) => item.seen(place.display().to_string()),
        Err(_) => item.missing("not mounted", "`mount -t cgroup2 none /sys/fs/cgroup`"),
    }
}

fn program(
    name: &str,
    package: &str,
    needed_by: &'static [&'static str],
    purpose: Option<&'static str>,
) -> Item {
    let item = Item::new("program", name, needed_by, purpose);
    match on_path(name) {
        Some(path) => item.seen(path.display().to_string()),
        None => item.missing("not on PATH", format!("install {package} (Debian: `apt install {package}`)")),
    }
}

/// Distributions put version numbers behind clang.
pub(crate) fn on_path(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    // Where administrators' programs are, which users' PATH often lacks.
    let folders = env::split_paths(&path).chain(["/usr/sbin", "/sbin"].map(PathBuf::from));
    let runs =
        |path: &PathBuf| fs::metadata(path).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0);
    let versioned = |folder: PathBuf| {
        let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
        let names: BTreeSet<PathBuf> = entries
            .filter(|entry| {
                let entry = entry.file_name();
                let version = entry.to_str().and_then(|entry| entry.strip_prefix(name)?.strip_prefix('-'));
                version.is_some_and(|version| version.parse::<u32>().is_ok())
            })
            .map(|entry| entry.path())
            .collect();
        names.into_iter().next_back()
    };
    let folders: Vec<PathBuf> = folders.collect();
    let plain = folders.iter().map(|folder| folder.join(name)).find(runs);
    plain.or_else(|| (name == "clang").then(|| folders.into_iter().find_map(versioned)).flatten())
}

fn line(path: &str) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

// ------------------------------------------------------------------------------------------------------------ tried

fn user_namespace(privileges: &Result<(), String>) -> Item {
    let item = Item::new("privileges", "namespaces", EMULATE, Some("the lab, and all that is tried here"));
    match privileges {
        Ok(()) if user_is_mapped() => item.seen("without root, in a user namespace"),
        Ok(()) => item.seen("root"),
        Err(why) => {
            let (seen, remedy) = why.rsplit_once("; ").unwrap_or((why, "run as root (sudo)"));
            item.missing(seen, remedy)
        }
    }
}

/// True in a user namespace whose root is somebody else outside.
fn user_is_mapped() -> bool {
    line("/proc/self/uid_map").is_some_and(|map| {
        let mut numbers = map.split_whitespace().skip(1);
        numbers.next().is_some_and(|outside| outside != "0")
    })
}

fn network_namespace(inside: &Result<Vec<Item>, String>) -> Item {
    let item = Item::new("network", "network namespace", EMULATE, Some("each node of a lab is one"));
    match inside {
        Ok(_) => item.seen("made one"),
        Err(why) => {
            let (seen, remedy) = why.rsplit_once("; ").unwrap_or((why, "run as root (sudo)"));
            item.unknown(seen, remedy)
        }
    }
}

/// Every item that [`try_all`] gives, not tried.
fn untried() -> Vec<Item> {
    let remedy = "run as root (sudo), or allow user namespaces, and ask again";
    all_tried().into_iter().map(|item| item.unknown("not tried: no network namespace", remedy)).collect()
}

/// What is tried, in order, before it is.
fn all_tried() -> Vec<Item> {
    let mut items = vec![
        Item::new(
            "network",
            "veth",
            EMULATE,
            Some("pairs of devices: emulated links, and tests of `gateway`"),
        ),
        Item::new("network", "packet sockets", EMULATE, Some("the forwarder of emulated links")),
        Item::new(
            "machine",
            "real-time priority",
            NOBODY,
            Some("keeps the forwarder in time while others work"),
        ),
        Item::new("qdisc", "htb", GATEWAY, Some("classes; `emulate` of scenarios with htb needs it too")),
    ];
    let of = |area: &'static str, list: &[Kind]| -> Vec<Item> {
        list.iter().map(|(name, needed_by, purpose)| Item::new(area, name, needed_by, *purpose)).collect()
    };
    items.extend(of("qdisc", QDISCS));
    items.extend(of("filter", FILTERS));
    items.push(Item::new("nftables", "rules and counters", GATEWAY, Some("classification and counting")));
    items.extend(of("tcp", CONTROLS));
    items.push(Item::new("bpf", "system call", NOBODY, Some("programs that count for `gateway`")));
    items
}

/// In a network namespace of our own.
fn try_all() -> Vec<Item> {
    let tried = |item: Item| match (item.area, &*item.name.clone()) {
        ("network", "veth") => veth(item),
        ("network", _) => packet_sockets(item),
        ("machine", _) => real_time(item),
        ("qdisc", "htb") => htb(item),
        ("qdisc", kind) => by_answer(item, "SCH", &format!("sch_{}", module_of(kind)), add_qdisc(kind)),
        ("filter", kind) => by_answer(item, "CLS", &format!("cls_{kind}"), add_filter(kind)),
        ("nftables", _) => nftables(item),
        ("tcp", name) => congestion_control(item, name),
        _ => bpf(item),
    };
    all_tried().into_iter().map(tried).collect()
}

fn packet_sockets(item: Item) -> Item {
    match Far::new(1500) {
        Ok(_) => item.seen("made one with a ring"),
        Err(error) => item.missing(
            error.to_string(),
            "`modprobe af_packet`, or a kernel with CONFIG_PACKET; run as root (sudo)",
        ),
    }
}

fn veth(item: Item) -> Item {
    let request = rt_link::Request::new().set_create().set_excl();
    let mut request = request.op_newlink_do(&rt_link::Ifinfomsg::default());
    drop(request.encode().push_ifname(c"probe0").nested_linkinfo().push_kind(c"veth").end_nested());
    match ask(&request) {
        Ok(()) => item.seen("made a pair"),
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
            item.missing("the kernel has no such device", "`modprobe veth`, or a kernel with CONFIG_VETH")
        }
        Err(error) => item.unknown(error.to_string(), "run as root (sudo)"),
    }
}

fn real_time(item: Item) -> Item {
    // This thread ends soon.
    match thread::scope(|scope| scope.spawn(|| syscall::run_first(1)).join()) {
        Ok(Ok(())) => item.seen("SCHED_FIFO"),
        Ok(Err(error)) => item.missing(error.to_string(), "run as root (sudo), or `ulimit -r 20`"),
        Err(_) => item.unknown("the attempt ended early", "report it as a bug"),
    }
}

/// Classes, their queues and the change of a rate: by the very code of `gateway`.
fn htb(item: Item) -> Item {
    match Htb::create(DEVICE, &classes()).and_then(|mut shaper| shaper.remove()) {
        Ok(()) => item.seen("made classes"),
        Err(error) if error.error.raw_os_error() == Some(libc::ENOENT) => item.missing(
            "the kernel has no such kind",
            "`modprobe sch_htb`, or a kernel with CONFIG_NET_SCH_HTB",
        ),
        Err(error) => item.unknown(error.to_string(), "run as root (sudo)"),
    }
}

fn classes() -> Plan {
    let (rate, burst) = (Rate::from_bits_per_sec(8_000_000), Bytes::new(1_600));
    let class = |name: &str, prio| Class {
        name: name.to_owned(),
        rate: Rate::from_bits_per_sec(1_000_000),
        ceil: rate,
        burst,
        cburst: burst,
        prio,
        quantum: None,
        limit: Limit::Packets(50),
        dscp: Vec::new(),
    };
    Plan {
        rate,
        ceil: rate,
        burst,
        cburst: burst,
        classes: vec![class("first", 0), class("second", 1)],
        default: Some(1),
        direct: Vec::new(),
        overhead: 0,
        uncounted: 0,
    }
}

/// The kernel says `ENOENT` when it has no such kind, and something else when it has but wants options.
fn by_answer(item: Item, group: &str, module: &str, answer: io::Result<()>) -> Item {
    let error = match answer {
        Ok(()) => return item.seen("made one"),
        Err(error) => error,
    };
    match error.raw_os_error() {
        Some(libc::ENOENT) => {
            let option = format!("CONFIG_NET_{group}_{}", item.name.to_uppercase());
            item.missing(
                "the kernel has no such kind",
                format!("`modprobe {module}`, or a kernel with {option}"),
            )
        }
        Some(libc::EINVAL) => item.seen("the kernel asks for its options"),
        _ => item.unknown(error.to_string(), "run as root (sudo)"),
    }
}

fn module_of(kind: &str) -> &str {
    match kind {
        "pfifo" | "bfifo" => "fifo",
        "clsact" => "ingress",
        kind => kind,
    }
}

fn add_qdisc(kind: &str) -> io::Result<()> {
    let index = loopback()?;
    let (parent, handle) = if kind == "clsact" { (CLSACT, CLSACT_HANDLE) } else { (ROOT, 0) };
    let header = Tcmsg { ifindex: index, parent, handle, ..Tcmsg::default() };
    let mut request = tc::Request::new().set_create().set_excl().op_newqdisc_do(&header);
    request.encode().push_kind(&name(kind)?);
    ask(&request)?;
    ask(&tc::Request::new().op_delqdisc_do(&header))
}

/// At htb, or where there is none, at prio.
fn add_filter(kind: &str) -> io::Result<()> {
    let index = loopback()?;
    let mut shaper = Htb::create(DEVICE, &classes()).map_err(|error| error.error)?;
    let header = Tcmsg {
        ifindex: index,
        parent: HTB_HANDLE,
        info: 1 << 16 | u32::from(EVERY_PROTOCOL.to_be()),
        ..Tcmsg::default()
    };
    let mut request = tc::Request::new().set_create().set_excl().op_newtfilter_do(&header);
    request.encode().push_kind(&name(kind)?);
    let answer = ask(&request);
    shaper.remove().map_err(|error| error.error)?;
    answer
}

fn loopback() -> io::Result<i32> {
    Ok(nix::net::if_::if_nametoindex(DEVICE)? as i32)
}

fn name(kind: &str) -> io::Result<CString> {
    Ok(CString::new(kind)?)
}

fn ask<R: NetlinkRequest>(request: &R) -> io::Result<()> {
    let mut socket = NetlinkSocket::new();
    let mut answer = socket.request(request)?;
    answer.recv_ack().map_err(|error: ReplyError| error.into())
}

fn nftables(item: Item) -> Item {
    let Some(nft) = on_path("nft") else {
        return item.unknown("not tried: there is no nft", "install nftables, and ask again");
    };
    let run = || -> io::Result<Result<(), String>> {
        let mut child = Command::new(&nft)
            .args(["-f", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        // nft may end before it has read all; what it says counts.
        let _ = child.stdin.take().map(|mut input| input.write_all(RULES.as_bytes()));
        let output = child.wait_with_output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        let first = said.lines().next().unwrap_or("nft failed").to_owned();
        Ok(if output.status.success() { Ok(()) } else { Err(first) })
    };
    match run() {
        Ok(Ok(())) => item.seen("made a table"),
        Ok(Err(said)) => item.missing(said, "`modprobe nf_tables`, or a kernel with CONFIG_NF_TABLES_INET"),
        Err(error) => item.unknown(error.to_string(), "run as root (sudo)"),
    }
}

/// As the lab asks for it: at a socket, where privileges count that a namespace's default does without.
fn congestion_control(item: Item, name: &str) -> Item {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None);
    let Err(error) = socket.and_then(|socket| socket.set_tcp_congestion(name.as_bytes())) else {
        return item.seen("set at a socket");
    };
    match error.raw_os_error() {
        Some(libc::ENOENT) => item.missing(
            "the kernel has no such control",
            format!("`modprobe tcp_{name}`, or a kernel with CONFIG_TCP_CONG_{}", name.to_uppercase()),
        ),
        Some(libc::EPERM) => {
            item.missing(error.to_string(), "add it to `sysctl net.ipv4.tcp_allowed_congestion_control`")
        }
        _ => item.unknown(error.to_string(), "run as root (sudo)"),
    }
}

fn bpf(item: Item) -> Item {
    match syscall::make_bpf_map() {
        Ok(()) => item.seen("made a map"),
        Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => {
            item.missing("the kernel has none", "a kernel with CONFIG_BPF_SYSCALL")
        }
        Err(error) => item.missing(error.to_string(), "run as root (sudo), or with CAP_BPF"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_tried_is_unknown_and_says_why() {
        let items = untried();
        assert!(items.len() > 20);
        for item in &items {
            assert_eq!(item.state, State::Unknown);
            assert!(item.seen.starts_with("not tried: ") && item.remedy.is_some(), "{item:?}");
        }
    }

    #[test]
    fn gaps_are_of_the_command_that_needs_the_thing() {
        let examination = Examination { kernel: "6.1".to_owned(), items: untried() };
        let names = |command| -> Vec<String> {
            examination.gaps(command).into_iter().map(|item| item.name.clone()).collect()
        };
        assert_eq!(names("emulate"), ["veth", "packet sockets", "cubic"]);
        assert_eq!(names("gateway"), ["htb", "pfifo", "rules and counters"]);
        assert!(names("run").is_empty());
    }

    #[test]
    fn the_kernels_answers_are_told_apart() {
        let answer = |errno: i32| {
            let item = Item::new("qdisc", "tbf", NOBODY, Some("tests"));
            by_answer(item, "SCH", "sch_tbf", Err(io::Error::from_raw_os_error(errno)))
        };
        assert_eq!(answer(libc::EINVAL).state, State::Ok);
        assert_eq!(answer(libc::EPERM).state, State::Unknown);
        let missing = answer(libc::ENOENT);
        assert_eq!(missing.state, State::Missing);
        assert_eq!(
            missing.remedy.as_deref(),
            Some("`modprobe sch_tbf`, or a kernel with CONFIG_NET_SCH_TBF")
        );
    }

    #[test]
    fn a_program_is_found_where_it_is() {
        assert!(on_path("sh").is_some_and(|path| path.ends_with("sh")));
        assert_eq!(on_path("no-such-program-anywhere"), None);
    }
}
