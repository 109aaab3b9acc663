//! The controller as a process of its own, and the agent that it decides for.

use std::fs;
use std::io::Write as _;
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use bandmaster_core::rng::Stream;
use bandmaster_core::time::Span;
use bandmaster_linux::agent;
use bandmaster_linux::controller::{self, Status};
use bandmaster_linux::kernel::tcp::Connection;

use super::agent::{Agent, NUMBER, SECRET, Site};
use super::hosts::{B, Hosts, Load, RATE, run};

/// Sets what is easily seen, when few flows are live.
const POLICY: &str = "version = 1\nname = \"test\"\ngoal = \"to be seen\"\ncycle = \"CYCLE\"\n\
                      statistics = [\"flows.live\"]\n[[rules]]\nname = \"few\"\nwhen = \"sum(flows.live) < 50\"\n\
                      [rules.set]\ninitial-window = 25\nmin-rto = \"8ms\"\n";
pub(super) const PORT: u16 = 4742;

/// A site with a controller at `b`.
pub(super) struct Network {
    pub(super) site: Site,
}

impl Network {
    pub(super) fn oracle(test: &str, cycle: &str) -> Option<Self> {
        let role = format!("cycle = \"{cycle}\"\nlook = \"{cycle}\"\n");
        let network = Self { site: Site::of(test, "opentcp", &role)? };
        fs::write(network.site.folder.join("policy.toml"), POLICY.replace("CYCLE", cycle)).expect("written");
        network.write("opentcp", "[role]\npolicies = [\"policy.toml\"]\nforce = [\"timescale\"]\n");
        Some(network)
    }

    pub(super) fn allocator(test: &str, domain: &str) -> Option<Self> {
        Self::allocator_as(test, "max-min", domain)
    }

    fn allocator_as(test: &str, allocator: &str, domain: &str) -> Option<Self> {
        let role = format!("allocator = \"{allocator}\"\nlease = \"1s\"\n");
        let network = Self { site: Site::of(test, "bas", &role)? };
        network.write("bas", &format!("[role]\n{role}{domain}"));
        Some(network)
    }

    pub(super) fn write(&self, scheme: &str, rest: &str) {
        let folder = &self.site.folder;
        let secret = std::str::from_utf8(SECRET).expect("text");
        let hosts = folder.join("hosts");
        fs::write(&hosts, format!("# of the test\n{NUMBER} a {secret}\n")).expect("written");
        fs::set_permissions(&hosts, fs::Permissions::from_mode(0o600)).expect("set");
        let file = format!(
            "version = 1\nscheme = \"{scheme}\"\nhosts-file = \"hosts\"\nstate-directory = \"{}\"\n{rest}",
            self.state().display()
        );
        fs::write(self.file(), file).expect("written");
    }

    pub(super) fn file(&self) -> PathBuf {
        self.site.folder.join("controller.toml")
    }

    pub(super) fn state(&self) -> PathBuf {
        self.site.folder.join("controller")
    }

    /// A controller that answers.
    pub(super) fn start(&self) -> Agent {
        let words = format!("control {}", self.file().display());
        let controller = self.site.spawn_at(&self.site.hosts.b, &words, &[]);
        let process = controller.0.id();
        self.site.until("the controller answers", || {
            controller::status(&self.state()).is_ok_and(|status| status.process == process)
        });
        controller
    }

    pub(super) fn status(&self) -> Status {
        controller::status(&self.state()).unwrap_or_else(|e| panic!("{e}\n{}", self.site.log()))
    }

    /// The policy has this condition, and names these statistics besides that in it.
    pub(super) fn ask(&self, cycle: &str, when: &str, more: &[&str]) {
        let named = when.split_once('(').and_then(|(_, rest)| rest.split_once(')')).expect("a statistic").0;
        let names: Vec<String> = [named].iter().chain(more).map(|name| format!("\"{name}\"")).collect();
        let policy = POLICY
            .replace("CYCLE", cycle)
            .replace("\"flows.live\"", &names.join(", "))
            .replace("sum(flows.live) < 50", when);
        fs::write(self.site.folder.join("policy.toml"), policy).expect("written");
    }

    /// The router is a host of the controller's: its secret.
    pub(super) fn add_router(&self) -> String {
        let (secret, number) = (std::str::from_utf8(SECRET).expect("text"), NUMBER + 1);
        let hosts = format!("{NUMBER} a {secret}\n{number} r {secret}-r\n");
        fs::write(self.site.folder.join("hosts"), hosts).expect("written");
        format!("{secret}-r")
    }

    /// The policy asks for links, and the router tells of them: the file of its agent.
    pub(super) fn with_router(&self, cycle: &str, when: &str, more: &[&str], ports: &str) -> PathBuf {
        let (folder, number) = (&self.site.folder, NUMBER + 1);
        self.ask(cycle, when, more);
        write_secret(&folder.join("router.key"), &self.add_router());
        let with_routers = fs::read_to_string(self.file()).expect("read")
            + "[[routers]]\nname = \"r\"\nports = [\"a\", \"b\"]\n";
        fs::write(self.file(), with_routers).expect("written");
        let file = folder.join("router.toml");
        let text = format!(
            "version = 1\nscheme = \"opentcp\"\nsite = \"router\"\nnumber = {number}\nstate-directory = \"{}\"\n\
             [controller]\naddress = \"{B}\"\nkey-file = \"router.key\"\n[role]\ncycle = \"{cycle}\"\n{ports}",
            folder.join("router").display()
        );
        fs::write(&file, text).expect("written");
        file
    }

    /// The status of the router's agent.
    pub(super) fn router(&self) -> agent::Status {
        agent::status(&self.site.folder.join("router")).unwrap_or_else(|e| panic!("{e}\n{}", self.site.log()))
    }

    pub(super) fn in_force(&self) -> bool {
        self.site.ask().is_some_and(|status| status.in_force.is_some())
    }
}

/// A file that only its owner may read.
pub(super) fn write_secret(path: &Path, secret: &str) {
    fs::write(path, secret).expect("written");
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).expect("set");
}

/// What one command stops, and what a policy's values are.
#[test]
fn a_controller_sets_its_hosts_until_it_is_halted() {
    let Some(network) = Network::oracle("a_controller_sets_its_hosts_until_it_is_halted", "1s") else {
        return;
    };
    let settings = network.site.settings();
    let agent = network.site.start();
    let process = network.start();
    network.site.until("settings are in force", || network.in_force());
    let (here, there) = network.site.hosts.connection();
    let told = Hosts::ss(&network.site.hosts.a, "state established");
    assert!(told.contains("cwnd:25 "), "{told}");
    network.site.until("it tells who was heard", || network.status().hosts_heard == 1);
    let status = network.status();
    assert_eq!((status.hosts, status.held), (1, 0), "{status}");
    let why = "`test`: rule `few` fires; few: sum(flows.live) < 50 holds (sum(flows.live) = 0)";
    assert_eq!(status.account, [why], "{status}");
    assert!(
        network.site.log().contains("msg=decides") || network.site.log().contains("message=decides"),
        "{}",
        network.site.log()
    );

    assert!(
        controller::halt(&network.state()).expect("halted")
            && !controller::halt(&network.state()).expect("halted")
    );
    let not_done = |status: &Status| status.refused_acts.iter().map(|(_, count)| count).sum::<u64>();
    let before = not_done(&status);
    let begin = Instant::now();
    network.site.until("the lease has ended", || !network.in_force());
    // A lease of three cycles, a second until it is seen, and a cycle in which one went out.
    assert!(begin.elapsed() < Duration::from_secs(6), "{:?}", begin.elapsed());
    network.site.assert_own("halted");
    let status = network.status();
    // What is held back is not refused too.
    assert!(status.halted && status.held > 0 && not_done(&status) == before, "{status}");
    assert!(controller::resume(&network.state()).expect("resumed"));
    network.site.until("settings are in force again", || network.in_force());
    assert!(process.stop().success(), "{}", network.site.log());
    network.site.until("the lease has ended once more", || !network.in_force());
    network.site.assert_own("stopped");
    assert!(agent.stop().success(), "{}", network.site.log());
    network.site.assert_settings(&settings, "stopped");
    drop((here, there));
}

/// Who only looks says how many hosts it would cue, and that it has cued none.
#[test]
fn a_controller_that_observes_cues_nobody() {
    let Some(network) = Network::oracle("a_controller_that_observes_cues_nobody", "1s") else { return };
    let agent = network.site.start();
    let words = format!("observe {}", network.file().display());
    let process = network.site.spawn_at(&network.site.hosts.b, &words, &[]);
    let shown = |status: &Status, metric: &str| {
        status.shown.iter().find(|(name, _)| name == metric).map(|(_, value)| *value)
    };
    network.site.until("it would cue the host", || {
        controller::status(&network.state()).is_ok_and(|status| shown(&status, "would_cue") == Some(1.0))
    });
    let status = network.status();
    assert!(shown(&status, "cued").is_none() && status.sent == 0 && status.held > 0, "{status}");
    assert!(!network.in_force());
    assert!(process.stop().success() && agent.stop().success(), "{}", network.site.log());
}

/// Twenty kills at moments drawn at random, a fifth of the messages lost.
#[test]
fn within_a_lease_of_a_killed_controller_hosts_are_as_they_were() {
    let test = "within_a_lease_of_a_killed_controller_hosts_are_as_they_were";
    let Some(network) = Network::oracle(test, "200ms") else { return };
    // The lease is three cycles.
    let lease = Duration::from_millis(600);
    let router = network.site.hosts.r.name().to_owned();
    run(&format!("ip netns exec {router} nft add table inet lossy"));
    run(&format!(
        "ip netns exec {router} nft add chain inet lossy forward {{ type filter hook forward priority 0 ; }}"
    ));
    run(&format!(
        "ip netns exec {router} nft add rule inet lossy forward udp dport {PORT} numgen random mod 100 < 20 drop"
    ));
    let settings = network.site.settings();
    let agent = network.site.start();
    let mut chance = Stream::new(1, 0, "kills");
    for kill in 0..20 {
        let process = network.start();
        network.site.until("settings are in force", || network.in_force());
        thread::sleep(Duration::from_millis(chance.below(500)));
        process.kill();
        let begin = Instant::now();
        network.site.until("the lease has ended", || !network.in_force());
        let late = Duration::from_millis(400);
        assert!(begin.elapsed() < lease + late, "kill {kill}: {:?}", begin.elapsed());
        let pair = network.site.hosts.connection();
        network.site.assert_own("killed");
        network.site.assert_settings(&settings, "killed");
        drop(pair);
    }
    assert!(agent.stop().success(), "{}", network.site.log());
}

#[test]
fn a_controller_refuses_strangers_and_a_second_one() {
    let Some(network) = Network::oracle("a_controller_refuses_strangers_and_a_second_one", "1s") else {
        return;
    };
    let process = network.start();
    let stranger =
        network.site.hosts.a.enter(|| Ok(UdpSocket::bind("0.0.0.0:0").expect("a port"))).expect("entered");
    let mut chance = Stream::new(1, 0, "strangers");
    for _ in 0..2000 {
        let mut bytes: Vec<u8> = (0..40).map(|_| chance.below(256) as u8).collect();
        // As from a host that is known, half of the time.
        if chance.below(2) == 0 {
            bytes[..7].copy_from_slice(&[1, 0, 3, 0, 0, 0, NUMBER as u8]);
        }
        stranger.send_to(&bytes, (B, PORT)).expect("sent");
    }
    network.site.until("they are counted", || network.status().refused.tag > 500);
    let status = network.status();
    assert!(status.refused.sender > 500 && status.messages == 0 && status.hosts_heard == 0, "{status}");
    let second = network.site.hosts.b.enter(|| Ok(controller::run(&network.file(), false))).expect("entered");
    let said = second.err().map(|e| e.to_string()).unwrap_or_default();
    assert!(said.contains("controller `controller`") && said.contains("stop it first"), "{said}");
    drop(process);
}

/// A host is added and receives settings, and then is removed, while the controller runs.
#[test]
fn hosts_come_and_go_with_the_file() {
    let Some(network) = Network::oracle("hosts_come_and_go_with_the_file", "200ms") else { return };
    let agent = network.site.start();
    let process = network.start();
    network.site.until("settings are in force", || network.in_force());
    let enrolled = controller::enroll(&network.file(), "b", true, 3600).expect("enrolled");
    assert_eq!((enrolled.host.number, enrolled.host.secret.len()), (NUMBER + 1, 64));
    assert!(
        controller::enroll(&network.file(), "b", true, 3600)
            .is_err_and(|e| e.to_string().contains("is called `b` already"))
    );
    process.signal("HUP");
    network.site.until("the new host is known", || network.status().hosts == 2);
    network.site.until("the old one is renewed", || network.status().sent > 0 && network.in_force());
    let hosts = network.site.folder.join("hosts");
    let text = fs::read_to_string(&hosts).expect("read");
    let without: Vec<&str> = text.lines().filter(|line| !line.starts_with(&format!("{NUMBER} "))).collect();
    fs::write(&hosts, without.join("\n")).expect("written");
    process.signal("HUP");
    network.site.until("the old host is gone", || network.status().hosts == 1);
    network.site.until("its lease has ended", || !network.in_force());
    network.site.until("it is refused", || network.status().refused.sender > 0);
    // It comes back: what it has heard of the controller before does not make it deaf.
    fs::write(&hosts, &text).expect("written");
    process.signal("HUP");
    network.site.until("the old host is set again", || network.in_force() && network.status().hosts == 2);
    assert_eq!(network.status().refused.replay, 0, "{}", network.status());
    // A file that is wrong changes nothing.
    fs::write(&hosts, "nonsense").expect("written");
    process.signal("HUP");
    network.site.until("the error is logged", || network.site.log().contains("write NUMBER NAME SECRET"));
    assert_eq!(network.status().hosts, 2);
    drop((process, agent));
}

/// A policy that asks for links has them from a router: while a flow fills one, nothing is set.
#[test]
fn what_a_router_carries_decides() {
    let Some(network) = Network::oracle("what_a_router_carries_decides", "200ms") else { return };
    let site = &network.site;
    let ports = "[[ports]]\ninterface = \"to0\"\nrate = \"1gbit\"\n[[ports]]\ninterface = \"to1\"\nrate = \"20mbit\"\n";
    let file = network.with_router("200ms", "max(link.utilization) < 0.7", &["link.backlog"], ports);
    let (agent, process) = (site.start(), network.start());
    let router = site.spawn_at(&site.hosts.r, &format!("run {}", file.display()), &[]);
    site.until("settings are in force while nothing is sent", || network.in_force());
    let (here, there) = site.hosts.connection();
    let load = Load::start(here, there);
    site.until("nothing is in force while a link is full", || !network.in_force());
    let account = network.status().account.concat();
    assert!(account.contains("no rule fires; few: max(link.utilization) < 0.7 does not hold"), "{account}");
    drop(load);
    site.until("settings are in force again", || network.in_force());
    // A router that says nothing more: its statistics are stale, and nothing is decided without.
    router.kill();
    site.until("nothing is in force without the router", || !network.in_force());
    assert!(network.status().account.concat().contains("there are no data for link"), "{}", network.status());
    let pair = site.hosts.connection();
    assert!(agent.stop().success() && process.stop().success(), "{}", site.log());
    site.assert_own("stopped");
    drop(pair);
}

/// `a` sends over a link of 20 Mbit/s, and has shares of 16.
pub(super) const DOMAIN: &str = "domain = [\"a\", \"r\", \"b\"]\n[[links]]\nends = [\"a\", \"r\"]\nrate = \"1gbit\"\n\
                      [[links]]\nends = [\"r\", \"b\"]\nrate = \"16mbit\"\n\
                      [[networks]]\nat = \"a\"\nprefixes = [\"10.77.0.1\"]\n\
                      [[networks]]\nat = \"b\"\nprefixes = [\"10.77.1.0/24\"]\n";

/// The paper's allocator divides the rate of a link by the flows that are counted there: by the agent of `a` on the link that it
/// sends by, and by the router's on the way back. While one of the two is not counted, it gives nothing.
#[test]
fn the_papers_allocator_divides_links_by_counts_of_flows() {
    const GIGABITS: f64 = 40.0;
    let test = "the_papers_allocator_divides_links_by_counts_of_flows";
    // Much more than the flows get, so that a round trip of microseconds is many segments.
    let domain = format!(
        "domain = [\"a\", \"r\"]\n[[routers]]\nname = \"r\"\nports = [\"a\"]\n[[links]]\nends = [\"a\", \"r\"]\n\
         rate = \"{GIGABITS}gbit\"\n[[links]]\nends = [\"r\", \"b\"]\nrate = \"{GIGABITS}gbit\"\n[[networks]]\nat = \"a\"\n\
         prefixes = [\"10.77.0.1\"]\n[[networks]]\nat = \"b\"\nprefixes = [\"10.77.1.0/24\"]\n"
    );
    let Some(network) = Network::allocator_as(test, "bas", &domain) else { return };
    let site = &network.site;
    write_secret(&site.folder.join("router.key"), &network.add_router());
    let file = site.folder.join("router.toml");
    let text = format!(
        "version = 1\nscheme = \"bas\"\nsite = \"router\"\nnumber = {}\nstate-directory = \"{}\"\n[controller]\n\
         address = \"{B}\"\nkey-file = \"router.key\"\n[[ports]]\ninterface = \"to0\"\nrate = \"{GIGABITS}gbit\"\n\
         [source]\ncount-flows = true\n",
        NUMBER + 1,
        site.folder.join("router").display()
    );
    fs::write(&file, text).expect("written");
    let settings = site.settings();
    let (agent, process) = (site.start(), network.start());
    let load = || {
        let (here, there) = site.hosts.connection();
        Load::start(here, there)
    };
    let mut loads = vec![load(), load()];
    site.until("the host has reported its flows", || network.status().messages > 60);
    let status = network.status();
    assert!(status.sent == 0 && status.hosts_heard == 1, "{status}");

    let router = site.spawn_at(&site.hosts.r, &format!("run {}", file.display()), &[]);
    // By flow to `b`: its cap on the congestion window, and the cap that a share and its round-trip time give, in segments.
    let caps = |flows: f64| {
        let cap = |connection: &Connection| {
            let frame = f64::from(connection.mss + u32::from(connection.header)) + 34.0;
            let rtt = connection.min_rtt.map_or(0.0, Span::as_secs_f64);
            (f64::from(connection.window_cap), (GIGABITS * 1e9 / flows * rtt / 8.0 / frame).ceil() + 1.0)
        };
        let sends = |connection: &&Connection| connection.carries && connection.data_segments > 10;
        site.look().iter().filter(sends).map(cap).collect::<Vec<_>>()
    };
    let are_shares = |flows: usize| {
        let caps = caps(flows as f64);
        caps.len() == flows && caps.iter().all(|(cap, share)| (cap - share).abs() <= 1.0)
    };
    site.until("each of two has half", || are_shares(2));
    println!("two: {:?}", caps(2.0));
    loads.push(load());
    site.until("each of three has a third", || are_shares(3));
    println!("three: {:?}", caps(3.0));
    // What comes is bounded by its receiver's window, and takes nothing of the other direction.
    let (here, there) = site.hosts.connection();
    let download = Load::start(there, here);
    site.until("what comes is bounded too", || site.status().bounded == 4);
    site.until("each of three has a third still", || are_shares(3));
    drop(loads.pop());
    site.until("each of two has half again", || are_shares(2));

    process.kill();
    site.until("they are let go", || caps(2.0).iter().all(|(cap, _)| *cap >= f64::from(i32::MAX)));
    assert!(agent.stop().success() && router.stop().success(), "{}", site.log());
    site.assert_own("stopped");
    drop((loads, download));
    site.assert_settings(&settings, "stopped");
}

/// By load: bytes that arrive per second, over the next `seconds`.
fn rates(loads: &[Load], seconds: u64) -> Vec<f64> {
    let (begin, before) = (Instant::now(), loads.iter().map(Load::received).collect::<Vec<_>>());
    thread::sleep(Duration::from_secs(seconds));
    let time = begin.elapsed().as_secs_f64();
    loads.iter().zip(before).map(|(load, before)| (load.received() - before) as f64 / time).collect()
}

/// Four flows of a server share a link without filling its queue. Then the controller goes, and they are let go.
#[test]
fn an_allocator_shares_a_link_among_flows_of_a_host() {
    let test = "an_allocator_shares_a_link_among_flows_of_a_host";
    let Some(network) = Network::allocator(test, DOMAIN) else { return };
    let settings = network.site.settings();
    let (agent, process) = (network.site.start(), network.start());
    let loads: Vec<Load> = (0..4)
        .map(|_| {
            let (here, there) = network.site.hosts.connection();
            Load::start(here, there)
        })
        .collect();
    network.site.until("all are bounded", || network.site.status().bounded == 4);
    thread::sleep(Duration::from_secs(2));
    let rates = rates(&loads, 5);
    let share = 16e6 / 8.0 / 4.0 * 1448.0 / 1514.0;
    println!("{rates:?} of {share}");
    for rate in &rates {
        assert!((0.93..1.03).contains(&(rate / share)), "{rates:?}, share {share}");
    }
    assert!(network.site.hosts.waiting() < 20_000, "{}", network.site.hosts.waiting());
    // Without a controller each goes as it likes, and together they fill the link.
    process.kill();
    network.site.until("they are let go", || network.site.look().iter().all(|one| one.pacing_rate.is_none()));
    thread::sleep(Duration::from_secs(3));
    let total: f64 = self::rates(&loads, 4).iter().sum();
    println!("{total} of {RATE} without a controller");
    assert!(total > 1.08 * 4.0 * share, "{total} of {RATE}");
    // It comes back.
    let process = network.start();
    network.site.until("they are paced again", || {
        network.site.look().iter().filter(|one| one.pacing_rate.is_some()).count() == 4
    });
    // A killed agent leaves bounds, which the next start takes away.
    agent.kill();
    process.kill();
    assert_eq!(network.site.look().iter().filter(|one| one.pacing_rate.is_some()).count(), 4);
    let agent = network.site.start();
    network
        .site
        .until("they have what they had", || network.site.look().iter().all(|one| one.pacing_rate.is_none()));
    assert!(agent.stop().success(), "{}", network.site.log());
    network.site.assert_own("stopped");
    drop(loads);
    network.site.assert_settings(&settings, "stopped");
}

/// A host's measurements of 3,000 flows do not fit into one datagram. All flows are reported, and bounded.
#[test]
fn an_allocator_shares_a_link_among_three_thousand_flows() {
    const FLOWS: usize = 3000;
    let test = "an_allocator_shares_a_link_among_three_thousand_flows";
    let Some(network) = Network::allocator(test, DOMAIN) else { return };
    run(&format!("prlimit --pid {} --nofile=16384", std::process::id()));
    let peers = Hosts::listen(&network.site.hosts.b);
    let (agent, process) = (network.site.start(), network.start());
    let all: Vec<_> = (0..FLOWS).map(|_| network.site.hosts.connection_by(&peers)).collect();
    for (here, _) in &all {
        let mut here = here;
        // More than the first segments.
        here.write_all(&[0; 20_000]).expect("room");
    }
    let paced = || network.site.look().iter().filter(|one| one.pacing_rate.is_some()).count();
    let until = |what: &str, count: usize| {
        let begin = Instant::now();
        while paced() != count {
            assert!(begin.elapsed() < Duration::from_secs(30), "{what}: {}\n{}", paced(), network.status());
            thread::sleep(Duration::from_millis(100));
        }
        println!("{what}: {:?}", begin.elapsed());
    };
    until("all are paced", FLOWS);
    // A controller that restarts knows none of them, so the host reports where each goes.
    process.kill();
    until("all are let go", 0);
    let process = network.start();
    until("all are paced again", FLOWS);
    assert_eq!(network.site.status().send_errors, 0);
    drop(all);
    assert!(agent.stop().success() && process.stop().success(), "{}", network.site.log());
}

/// nginx serves h2load under BAS, as without.
#[test]
fn nginx_and_h2load_go_on_under_an_allocator() {
    let test = "nginx_and_h2load_go_on_under_an_allocator";
    let Some(network) = Network::allocator(test, &DOMAIN.replace("16mbit", "20mbit")) else { return };
    for (program, package) in [("nginx", "nginx-light"), ("h2load", "nghttp2-client")] {
        if Command::new(program).arg("--version").output().is_err() {
            super::machine::skip(test, format_args!("no {program} (package {package})"));
            return;
        }
    }
    let settings = network.site.settings();
    let server = network.site.nginx();
    let (without, _) = network.site.requests();
    let (agent, process) = (network.site.start(), network.start());
    let (with, _) = network.site.requests();
    println!("{without} without, {with} with BAS");
    let status = network.site.status();
    assert!(status.messages > 0, "{status}");
    assert!((0.9..1.05).contains(&(with.rate / without.rate)), "{with}, {without}");
    assert!(process.stop().success() && agent.stop().success(), "{}", network.site.log());
    network.site.assert_own("stopped");
    let (last, _) = network.site.requests();
    println!("{last} afterwards");
    network.site.assert_settings(&settings, "stopped");
    drop(server);
}
