//! What ports of routers and switches carry, as the kernel, an Open vSwitch and an SNMP agent count it.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use bandmaster_linux::agent::status as agent_status;
use bandmaster_linux::kernel::flows::{Direction, FlowCount, FlowCounts};
use bandmaster_linux::netns::Netns;
use nix::net::if_::if_nametoindex;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::agent::{Agent, Site};
use super::controller::{Network, write_secret};
use super::hosts::{A, B, Hosts, Load, run};
use super::machine::skip;

/// Of the issue that this is for.
const MANY: usize = 1000;

fn write(connections: &mut [(TcpStream, TcpStream)]) {
    for (here, there) in connections {
        here.write_all(&[1; 100]).expect("written");
        let mut buffer = [0; 100];
        there.read_exact(&mut buffer).expect("read");
    }
}

/// Flows are counted to the last one: open, seen since the last reading, closed in three ways, over IPv4 and IPv6.
#[test]
fn a_router_counts_the_flows_that_pass_it() {
    let Some((hosts, _)) = Hosts::new("a_router_counts_the_flows_that_pass_it") else { return };
    let router = hosts.r.name().to_owned();
    for (node, device, address) in [
        (hosts.a.name(), "cable", "fd77::1:1"),
        (&router, "to0", "fd77::1:fe"),
        (&router, "to1", "fd77::2:fe"),
        (hosts.b.name(), "cable", "fd77::2:1"),
    ] {
        run(&format!("ip -n {node} address add {address}/112 dev {device} nodad"));
    }
    run(&format!("ip -n {} route add default via fd77::1:fe", hosts.a.name()));
    run(&format!("ip -n {} route add default via fd77::2:fe", hosts.b.name()));
    hosts
        .r
        .enter(|| bandmaster_linux::netns::set_parameter("net.ipv6.conf.all.forwarding", "1"))
        .expect("set");
    let mut counts = FlowCounts::load().expect("loaded");
    // Towards `b`, as packets leave; and what comes from there.
    let index = hosts
        .r
        .enter(|| {
            let index = if_nametoindex("to1").expect("a device");
            counts.follow("to1", index, Direction::Departs).expect("followed");
            counts.follow("to1", index, Direction::Arrives).expect("followed");
            Ok(index)
        })
        .expect("entered");
    let mut read = |direction| -> FlowCount { counts.read().expect("read")[&(index, direction)] };
    let mut connections = hosts.connections(B, MANY);
    let before = read(Direction::Departs);
    assert_eq!((before.open, before.seen), (0, 0), "a handshake is no flow");
    write(&mut connections);
    let all = read(Direction::Departs);
    assert_eq!((all.open, all.seen, all.left_out), (MANY as u32, MANY as u32, 0));
    write(&mut connections[..300]);
    write(&mut connections[..200]);
    let some = read(Direction::Departs);
    assert_eq!((some.open, some.seen), (MANY as u32, 300), "each once");
    let back = read(Direction::Arrives);
    assert_eq!((back.open, back.seen), (0, 0), "acknowledgements are no flow");
    // From here on what has changed since counts, in both directions: this reading was the other direction's too.
    let settle = || thread::sleep(Duration::from_millis(200));
    // FIN from the sender's end.
    for (here, there) in connections.drain(..250) {
        drop(here);
        drop(there);
    }
    settle();
    assert_eq!(read(Direction::Departs).open, 750);
    // RST: a linger of nothing.
    for (here, there) in connections.drain(..250) {
        let linger = socket2::SockRef::from(&here).set_linger(Some(Duration::ZERO));
        linger.expect("set");
        drop(here);
        drop(there);
    }
    settle();
    assert_eq!(read(Direction::Departs).open, 500);
    // The other direction.
    for (here, there) in &mut connections[..100] {
        there.write_all(&[2; 10]).expect("written");
        here.read_exact(&mut [0; 10]).expect("read");
    }
    let back = read(Direction::Arrives);
    assert_eq!((back.open, back.seen), (100, 100));
    // UDP is seen, and never open.
    let socket = hosts.a.enter(|| Ok(UdpSocket::bind("0.0.0.0:0").expect("a port"))).expect("entered");
    for port in 0..50 {
        socket.send_to(&[0; 10], (B, 9000 + port)).expect("sent");
    }
    settle();
    let udp = read(Direction::Departs);
    assert_eq!((udp.open, udp.seen), (500, 50));
    // IPv6.
    let listener = hosts
        .b
        .enter(|| Ok(std::net::TcpListener::bind("[fd77::2:1]:7200").expect("a port")))
        .expect("entered");
    let here =
        hosts.a.enter(|| Ok(TcpStream::connect("[fd77::2:1]:7200").expect("connected"))).expect("entered");
    let (there, _) = listener.accept().expect("accepted");
    let mut six = [(here, there)];
    write(&mut six);
    assert_eq!(read(Direction::Departs).open, 501);
}

/// What is asked about: both ports of the router.
pub(super) fn ports(source: &str) -> String {
    format!(
        "[[ports]]\ninterface = \"to0\"\nrate = \"1gbit\"\n[[ports]]\ninterface = \"to1\"\nrate = \"20mbit\"\n[source]\n{source}"
    )
}

/// Conditions about flows on links hold at 999 and not at 1,000, counted by the router's kernel.
#[test]
fn flows_on_links_decide() {
    let Some(network) = Network::oracle("flows_on_links_decide", "200ms") else { return };
    let more = ["topology.links", "link.capacity"];
    let file = network.with_router("200ms", "max(link.flows) < 1000", &more, &ports("count-flows = true\n"));
    flows_decide(&network, &file, B, Agent::kill);
}

/// A policy sees 1,000 flows to `to` with any source of counts; `silence` takes the counts away.
fn flows_decide(network: &Network, file: &Path, to: Ipv4Addr, silence: impl FnOnce(Agent)) {
    let site = &network.site;
    let (agent, process) = (site.start(), network.start());
    let router = site.spawn_at(&site.hosts.r, &format!("run {}", file.display()), &[]);
    site.until("settings are in force without flows", || network.in_force());
    let mut connections = site.hosts.connections(to, MANY - 1);
    write(&mut connections);
    let says = |what: &str| network.status().account.concat().contains(what);
    site.until("999 are counted", || says("max(link.flows) < 1000 holds (max(link.flows) = 999)"));
    let mut last = site.hosts.connections(to, 1);
    write(&mut last);
    site.until("nothing is in force at 1,000", || {
        says("max(link.flows) < 1000 does not hold (max(link.flows) = 1000)") && !network.in_force()
    });
    drop(last);
    site.until("settings are in force at 999 again", || network.in_force());
    silence(router);
    drop(connections);
    site.until("stale counts are not zero", || says("there are no data for link") && !network.in_force());
    assert!(agent.stop().success() && process.stop().success(), "{}", site.log());
}

/// A daemon of another project, which ends with it.
pub(super) struct Foreign(Child);

impl Foreign {
    /// Its files are in `folder`.
    pub(super) fn start(node: &Netns, folder: &Path, program: &str, words: &[&str]) -> Self {
        let mut command = Command::new(program);
        command.args(words).env("OVS_RUNDIR", folder).env("SNMP_PERSISTENT_DIR", folder).env("MIBS", "");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Self(node.enter(|| Ok(command.spawn().expect("started"))).expect("entered"))
    }

    /// Answers no more, and does not end.
    fn stop(&self) {
        kill(Pid::from_raw(self.0.id() as i32), Signal::SIGSTOP).expect("stopped");
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(super) fn is_missing(test: &str, programs: &[&str]) -> bool {
    let is_absent = |program: &&&str| Command::new(program).arg("--version").output().is_err();
    match programs.iter().find(is_absent) {
        Some(program) => {
            skip(test, format!("{program} is not installed"));
            true
        }
        None => false,
    }
}

/// On the switch's own subnet.
const A_BRIDGED: &str = "10.78.0.1";
const B_BRIDGED: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 2);

/// An Open vSwitch in userspace at the router, with both of its ports, and the daemons that it consists of.
struct Switch {
    daemon: Foreign,
    _server: Foreign,
    /// `ovs-vsctl`, and what it needs to find the database.
    vsctl: String,
}

impl Switch {
    /// Frames of `a` and `b` go by `rules`.
    fn start(site: &Site, rules: &str) -> Self {
        let folder = site.folder.join("ovs");
        fs::create_dir_all(&folder).expect("made");
        let at = |name: &str| folder.join(name).display().to_string();
        let (base, socket) = (at("conf.db"), format!("punix:{}", at("db.sock")));
        let database = format!("unix:{}", at("db.sock"));
        run(&format!("ovsdb-tool create {base} /usr/share/openvswitch/vswitch.ovsschema"));
        let router = &site.hosts.r;
        run(&format!("ip -n {} link set lo up", router.name()));
        let pid = |name: &str| format!("--pidfile={}", at(name));
        let control = |name: &str| format!("--unixctl={}", at(name));
        let remote = format!("--remote={socket}");
        let words = [&base, &remote, &pid("db.pid"), &control("db.ctl"), "--no-chdir"];
        let server = Foreign::start(router, &folder, "ovsdb-server", &words);
        site.until("the database answers", || folder.join("db.sock").exists());
        let vsctl = format!("ovs-vsctl --db={database} --timeout=10");
        run(&format!("{vsctl} --no-wait init"));
        let words = [&database, &pid("vs.pid"), &control("vs.ctl"), "--no-chdir"];
        let daemon = Foreign::start(router, &folder, "ovs-vswitchd", &words);
        run(&format!(
            "{vsctl} add-br br0 -- set bridge br0 datapath_type=netdev fail_mode=secure -- add-port br0 to0 -- \
             set interface to0 ofport_request=1 -- add-port br0 to1 -- set interface to1 ofport_request=2 -- set-controller br0 ptcp:6653"
        ));
        let (a, b) = (site.hosts.a.name(), site.hosts.b.name());
        run(&format!("ip -n {a} address add {A_BRIDGED}/24 dev cable"));
        run(&format!("ip -n {b} address add {B_BRIDGED}/24 dev cable"));
        // A switch in userspace passes on what the kernel has left to a device: a checksum that nobody has made.
        for node in [a, b] {
            run(&format!("ip netns exec {node} ethtool -K cable tx off"));
        }
        let file = folder.join("rules");
        let both = format!(
            "table=0,priority=20,tcp,nw_dst={A_BRIDGED} actions=output:1\n\
             table=0,priority=10,arp,arp_tpa={B_BRIDGED} actions=output:2\n\
             table=0,priority=10,arp,arp_tpa={A_BRIDGED} actions=output:1\n{rules}"
        );
        fs::write(&file, both).expect("written");
        let ofctl = format!("ip netns exec {} ovs-ofctl -O OpenFlow13 --timeout=10", router.name());
        run(&format!("{ofctl} add-flows tcp:127.0.0.1:6653 {}", file.display()));
        Self { daemon, _server: server, vsctl }
    }
}

const OPEN_VSWITCH: [&str; 5] = ["ovs-vsctl", "ovs-ofctl", "ovsdb-tool", "ovsdb-server", "ovs-vswitchd"];

/// An Open vSwitch in userspace, whose rules make an entry for every TCP flow: it counts those.
#[test]
fn an_open_vswitch_feeds_an_oracle() {
    let test = "an_open_vswitch_feeds_an_oracle";
    if is_missing(test, &OPEN_VSWITCH) {
        return;
    }
    let Some(network) = Network::oracle(test, "1s") else { return };
    // As docs/agent.md has them.
    let learn = "learn(table=1,idle_timeout=30,fin_idle_timeout=1,priority=10,eth_type=0x800,nw_proto=6,NXM_OF_IP_SRC[],\
                 NXM_OF_IP_DST[],NXM_OF_TCP_SRC[],NXM_OF_TCP_DST[],output:NXM_NX_REG0[])";
    let rules = format!(
        "table=0,priority=20,tcp,nw_dst={B_BRIDGED} actions=load:2->NXM_NX_REG0[],resubmit(,1)\n\
         table=1,priority=1,tcp actions={learn},output:NXM_NX_REG0[]\n"
    );
    let switch = Switch::start(&network.site, &rules);
    let source =
        "kind = \"open-vswitch\"\nbridge = \"tcp:127.0.0.1:6653\"\ncount-flows = true\nflow-table = 1\n";
    let file = network.with_router("1s", "max(link.flows) < 1000", &["link.utilization"], &ports(source));
    flows_decide(&network, &file, B_BRIDGED, |_router| switch.daemon.stop());
}

/// The same switch exports its counters once a second: of cycles of 4 s, a utilization is wrong by up to a quarter of itself.
#[test]
fn an_open_vswitch_that_exports_by_sflow_feeds_an_oracle() {
    let test = "an_open_vswitch_that_exports_by_sflow_feeds_an_oracle";
    if is_missing(test, &OPEN_VSWITCH) {
        return;
    }
    let Some(network) = Network::oracle(test, "4s") else { return };
    let site = &network.site;
    let switch =
        Switch::start(site, &format!("table=0,priority=20,tcp,nw_dst={B_BRIDGED} actions=output:2\n"));
    let Switch { vsctl, .. } = &switch;
    run(&format!(
        "{vsctl} -- --id=@s create sflow agent=lo targets=\"127.0.0.1:6343\" polling=1 -- set bridge br0 sflow=@s"
    ));
    let source = "kind = \"sflow\"\naddress = \"127.0.0.1\"\n";
    let when = "max(link.utilization) < 0.5 && topology.links == 2";
    let file = network.with_router("4s", when, &["topology.links"], &ports(source));
    let (agent, process) = (site.start(), network.start());
    let router = site.spawn_at(&site.hosts.r, &format!("run {}", file.display()), &[]);
    let patience = Duration::from_secs(30);
    site.within(patience, "settings are in force while nothing is sent", || network.in_force());
    let (here, there) = site.hosts.connections(B_BRIDGED, 1).remove(0);
    let load = Load::start(here, there);
    let measured = || -> Option<f64> {
        let account = network.status().account.concat();
        let (_, rest) = account.split_once("max(link.utilization) = ")?;
        rest[..rest.find(|c: char| !c.is_ascii_digit() && c != '.')?].parse().ok()
    };
    site.within(patience, "a full link is seen to be full", || {
        measured().is_some_and(|share| (0.74..1.3).contains(&share)) && !network.in_force()
    });
    drop(load);
    site.within(patience, "settings are in force again", || network.in_force());
    switch.daemon.stop();
    site.within(patience, "one that exports no more is not idle", || {
        network.status().account.concat().contains("there are no data for") && !network.in_force()
    });
    let why = network.router().ports_silent.unwrap_or_default();
    assert!(why.contains("no counters by sFlow from 127.0.0.1 for 4 s"), "{why}");
    assert!(agent.stop().success() && process.stop().success() && router.stop().success(), "{}", site.log());
}

#[test]
fn an_snmp_agent_feeds_an_oracle() {
    snmp_feeds_an_oracle("an_snmp_agent_feeds_an_oracle", "rocommunity of-this-test", |folder| {
        write_secret(&folder.join("community"), "of-this-test\n");
        "community-file = \"community\"\n"
    });
}

/// By SNMP 3, authenticated and encrypted. Another passphrase is not answered.
#[test]
fn an_snmp_3_agent_feeds_an_oracle() {
    let user = "createUser watcher SHA-256 \"of this test\" AES \"of that test\"\nrouser watcher priv";
    snmp_feeds_an_oracle("an_snmp_3_agent_feeds_an_oracle", user, |folder| {
        write_secret(&folder.join("passphrases"), "of this test\nof that test\n");
        "user = \"watcher\"\npassphrases-file = \"passphrases\"\n"
    });
}

/// Net-SNMP's daemon tells what it has counted up to 3 s ago: of cycles of 5 s, 0.4 is less than it can be wrong by.
fn snmp_feeds_an_oracle(test: &str, rights: &str, access: fn(&Path) -> &'static str) {
    if is_missing(test, &["snmpd"]) {
        return;
    }
    let Some(network) = Network::oracle(test, "5s") else { return };
    let site = &network.site;
    let folder = site.folder.join("snmp");
    fs::create_dir_all(&folder).expect("made");
    let file = folder.join("snmpd.conf");
    fs::write(&file, format!("{rights}\nagentaddress udp:127.0.0.1:1161\n")).expect("written");
    let router = &site.hosts.r;
    run(&format!("ip -n {} link set lo up", router.name()));
    let (file, log) = (file.display().to_string(), format!("-Lf{}", folder.join("log").display()));
    let daemon = Foreign::start(router, &folder, "snmpd", &["-f", "-r", "-C", "-c", &file, &log]);
    let access = access(&site.folder);
    let source = format!("kind = \"snmp\"\naddress = \"127.0.0.1\"\nport = 1161\n{access}");
    let when = "max(link.utilization) < 0.4 && topology.links == 2";
    let file_of_router = network.with_router("5s", when, &["topology.links"], &ports(&source));
    let (agent, process) = (site.start(), network.start());
    let router = site.spawn_at(router, &format!("run {}", file_of_router.display()), &[]);
    let patience = Duration::from_secs(40);
    site.within(patience, "settings are in force while nothing is sent", || network.in_force());
    let (here, there) = site.hosts.connection();
    let load = Load::start(here, there);
    site.within(patience, "nothing is in force while a link is full", || !network.in_force());
    let account = network.status().account.concat();
    assert!(account.contains("does not hold (max(link.utilization) = "), "{account}");
    drop(load);
    site.within(patience, "settings are in force again", || network.in_force());
    daemon.stop();
    site.within(patience, "one that does not answer is not idle", || {
        network.status().account.concat().contains("there are no data for") && !network.in_force()
    });
    let why = network.router().ports_silent.unwrap_or_default();
    assert!(why.contains("SNMP at 127.0.0.1:1161"), "{why}");
    // The status says why a wrong secret fails, and no count is reported.
    assert!(router.stop().success(), "{}", site.log());
    for (name, wrong) in [("community", "of-that-test"), ("passphrases", "of this test\nof thIs test")] {
        if site.folder.join(name).exists() {
            write_secret(&site.folder.join(name), wrong);
        }
    }
    kill(Pid::from_raw(daemon.0.id() as i32), Signal::SIGCONT).expect("continued");
    let router = site.spawn_at(&site.hosts.r, &format!("run {}", file_of_router.display()), &[]);
    site.within(patience, "with another secret nothing is readable", || {
        agent_status(&site.folder.join("router"))
            .is_ok_and(|status| status.ports_silent.is_some_and(|why| why.contains("SNMP at 127.0.0.1:1161")))
    });
    assert!(!network.in_force(), "{}", network.status());
    assert!(agent.stop().success() && process.stop().success() && router.stop().success(), "{}", site.log());
}

/// Who sends how much to whom: hosts tell it by address, and the controller knows whose they are.
#[test]
fn the_traffic_matrix_decides() {
    let Some(network) = Network::oracle("the_traffic_matrix_decides", "200ms") else { return };
    let site = &network.site;
    network.ask("200ms", "max(traffic.racks) < 5000000.0", &["traffic.hosts"]);
    let text = fs::read_to_string(network.file()).expect("read");
    let places = format!(
        "[[routers]]\nname = \"r\"\nports = [\"a\", \"b\"]\n[[networks]]\nat = \"a\"\nprefixes = [\"{A}\"]\n[[networks]]\nat = \"b\"\n\
         prefixes = [\"{B}\"]\n"
    );
    fs::write(network.file(), text + &places).expect("written");
    network.add_router();
    let file = site.folder.join("agent.toml");
    let text = fs::read_to_string(&file).expect("read");
    fs::write(&file, text + "statistics = [\"traffic.hosts\"]\n").expect("written");
    let (agent, process) = (site.start(), network.start());
    site.until("settings are in force while nothing comes", || network.in_force());
    let (here, there) = site.hosts.connection();
    let load = Load::start(there, here);
    let says = |what: &str| network.status().account.concat().contains(what);
    site.until("nothing is in force while much comes", || {
        says("max(traffic.racks) < 5000000.0 does not hold (max(traffic.racks) = ") && !network.in_force()
    });
    drop(load);
    site.until("settings are in force again", || network.in_force());
    agent.kill();
    site.until("what nobody tells is no data", || says("there are no data for"));
    assert!(process.stop().success(), "{}", site.log());
}
