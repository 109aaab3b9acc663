//! A controller, agents of two hosts and of a router, to which troubles drawn at random happen. After each all is right again
//! within a stated time, and no process has grown.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use bandmaster_core::rng::Stream;
use bandmaster_linux::{agent, controller};

use super::agent::{Agent, NUMBER, SECRET, Unmount, fill};
use super::controller::{Network, PORT};
use super::falsehoods::resident;
use super::hosts::{B, Hosts, run};
use super::messages::{connections, seed, through_relay};
use super::relay::Relay;

/// Within this all is right again: two cycles, a look, and the start of a process, on a busy machine.
const RIGHT: Duration = Duration::from_secs(8);
/// Within this nothing is in force any more: a second until `halted` is seen, two cycles, and a lease of three.
const GONE: Duration = Duration::from_secs(4);
/// Of the memory of a process of a kind, over that of the first one.
const GROWTH: u64 = 3 << 20;
/// Of its open files: who asks for its status holds one.
const FILES: usize = 4;

/// What runs. It ends in this order.
struct Site {
    /// By kind.
    running: BTreeMap<&'static str, Agent>,
    /// State directories of `a` and of the controller.
    disks: Vec<Unmount>,
    relay: Relay,
    network: Network,
    /// Initial window of the policy.
    window: u32,
    /// By kind: memory and open files of its first process.
    first: BTreeMap<&'static str, (u64, usize)>,
    chance: Stream,
}

const KINDS: [&str; 4] = ["agent a", "agent b", "router", "controller"];

impl Site {
    fn new(test: &str, seed: u64) -> Option<Self> {
        let network = Network::oracle(test, "200ms")?;
        let folder = network.site.folder.clone();
        let secret = |number: u32| format!("{}-{number}", std::str::from_utf8(SECRET).expect("text"));
        let mut hosts = fs::read_to_string(folder.join("hosts")).expect("read");
        for (number, name, site, port, rest) in [
            (NUMBER + 1, "b", "host", PORT + 1, "look = \"200ms\"\n"),
            (
                NUMBER + 2,
                "r",
                "router",
                // The relay has the other.
                PORT + 2,
                "[[ports]]\ninterface = \"to0\"\nrate = \"1gbit\"\n[[ports]]\ninterface = \"to1\"\nrate = \"20mbit\"\n",
            ),
        ] {
            hosts += &format!("{number} {name} {}\n", secret(number));
            let key = folder.join(format!("key-{name}"));
            fs::write(&key, secret(number)).expect("written");
            fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).expect("set");
            let text = format!(
                "version = 1\nscheme = \"opentcp\"\nsite = \"{site}\"\nnumber = {number}\nstate-directory = \"{}\"\n\
                 [controller]\naddress = \"{B}\"\nlisten-port = {port}\nkey-file = \"key-{name}\"\n[role]\ncycle = \"200ms\"\n{rest}",
                folder.join(format!("state-{name}")).display()
            );
            fs::write(folder.join(format!("agent-{name}.toml")), text).expect("written");
        }
        fs::write(folder.join("hosts"), hosts).expect("written");
        let file = fs::read_to_string(network.file()).expect("read");
        let routers = "[[routers]]\nname = \"r\"\nports = [\"a\", \"b\"]\n";
        fs::write(network.file(), file + routers).expect("written");
        let relay = through_relay(&network, Some(seed));
        relay.disturb(false);
        let chance = Stream::new(seed, 0, "troubles");
        let disk = |state: PathBuf| {
            fs::create_dir_all(&state).expect("made");
            run(&format!("mount -t tmpfs -o size=64k,mode=750 bandmaster-test {}", state.display()));
            Unmount(state)
        };
        let disks = [network.site.state(), network.state()].map(disk).into();
        let (running, first) = Default::default();
        let mut site = Self { running, disks, relay, network, window: 25, first, chance };
        site.write_policy();
        Some(site)
    }

    fn write_policy(&mut self) {
        let text = format!(
            "version = 1\nname = \"test\"\ngoal = \"to be seen\"\ncycle = \"200ms\"\nstatistics = [\"flows.live\", \"link.utilization\"]\n\
             [[rules]]\nname = \"few\"\nwhen = \"sum(flows.live) < 1000 && max(link.utilization) < 2\"\n[rules.set]\n\
             initial-window = {}\nmin-rto = \"8ms\"\n",
            self.window
        );
        fs::write(self.network.site.folder.join("policy.toml"), text).expect("written");
    }

    /// Another policy, which is read.
    fn turn(&mut self) {
        self.window = if self.window == 25 { 31 } else { 25 };
        self.write_policy();
        self.running["controller"].signal("HUP");
    }

    fn start(&mut self, kind: &'static str) {
        let site = &self.network.site;
        let (node, file) = match kind {
            "agent a" => (&site.hosts.a, site.file()),
            "agent b" => (&site.hosts.b, site.folder.join("agent-b.toml")),
            "router" => (&site.hosts.r, site.folder.join("agent-r.toml")),
            _ => (&site.hosts.b, self.network.file()),
        };
        let word = if kind == "controller" { "control" } else { "run" };
        self.running.insert(kind, site.spawn_at(node, &format!("{word} {}", file.display()), &[]));
    }

    fn kill(&mut self, kind: &str) {
        self.running.remove(kind).expect("it runs").kill();
    }

    /// What is in force at `a` and `b`.
    fn in_force(&self) -> [Option<String>; 2] {
        let folder = &self.network.site.folder;
        ["state", "state-b"].map(|state| agent::status(&folder.join(state)).ok()?.in_force)
    }

    fn has(&self, window: u32) -> [bool; 2] {
        let words = format!("initial-window {window},");
        self.in_force().map(|in_force| in_force.is_some_and(|in_force| in_force.contains(&words)))
    }

    fn is_right(&self) -> bool {
        let told = controller::status(&self.network.state()).ok();
        let coverage = |(name, value): &(String, f64)| name == "coverage" && *value == 1.0;
        let all_heard =
            told.is_some_and(|status| status.hosts_heard == 3 && status.shown.iter().any(coverage));
        all_heard && self.has(self.window) == [true; 2]
    }

    fn is_gone(&self) -> bool {
        self.in_force() == [None, None]
    }

    fn until(&self, what: &str, most: Duration, holds: impl Fn(&Self) -> bool) -> Duration {
        let begin = Instant::now();
        while !holds(self) {
            let told = controller::status(&self.network.state()).map(|status| status.to_string());
            assert!(
                begin.elapsed() < most,
                "not within {most:?}: {what}: {:?}\n{}\n{}",
                self.in_force(),
                told.unwrap_or_default(),
                self.network.site.log()
            );
            thread::sleep(Duration::from_millis(20));
        }
        begin.elapsed()
    }

    fn until_gone(&self, why: &str) {
        self.until(why, GONE, Self::is_gone);
    }

    fn pause(&mut self, most: u64) -> Duration {
        Duration::from_millis(500 + self.chance.below(most))
    }

    /// A file that takes all that is left of the disk of `folder`.
    fn fill(folder: PathBuf) -> PathBuf {
        let file = folder.join("full");
        fill(&file);
        file
    }

    /// No process has more memory or files than the first of its kind.
    fn assert_flat(&mut self) {
        for kind in KINDS {
            let process = self.running[kind].0.id();
            let files = fs::read_dir(format!("/proc/{process}/fd")).expect("it runs").count();
            let now = (resident(process), files);
            let first = *self.first.entry(kind).or_insert(now);
            assert!(now.0 < first.0 + GROWTH && now.1 <= first.1 + FILES, "{kind}: {first:?}, now {now:?}");
        }
    }
}

/// Something that goes wrong, and ends.
type Trouble = (&'static str, fn(&mut Site));

const TROUBLES: &[Trouble] = &[
    ("the controller is killed", |site| {
        site.kill("controller");
        site.until_gone("killed");
        site.start("controller");
    }),
    ("the agent of a is killed", |site| {
        site.kill("agent a");
        let (here, there) = site.network.site.hosts.connection();
        let told = Hosts::ss(&site.network.site.hosts.a, "state established");
        assert!(told.contains("cwnd:10 "), "{told}");
        drop((here, there));
        site.start("agent a");
    }),
    ("the agent of the router is killed", |site| {
        site.kill("router");
        site.until_gone("nothing is reported of links");
        site.start("router");
    }),
    ("messages of a are lost, late and overtaken", |site| {
        site.relay.disturb(true);
        let end = Instant::now() + site.pause(4000);
        while Instant::now() < end {
            let other = if site.window == 25 { 31 } else { 25 };
            assert_eq!(site.has(other), [false; 2], "of another policy");
            thread::sleep(Duration::from_millis(50));
        }
        site.relay.disturb(false);
    }),
    ("it is halted and resumed", |site| {
        assert!(controller::halt(&site.network.state()).expect("halted"));
        site.until_gone("halted");
        assert!(controller::resume(&site.network.state()).expect("resumed"));
    }),
    ("the policy is another", Site::turn),
    ("the policy is wrong", |site| {
        let path = site.network.site.folder.join("policy.toml");
        let wrong = |site: &Site| site.network.site.log().matches("the files are wrong").count();
        let before = wrong(site);
        fs::write(path, "nonsense").expect("written");
        site.running["controller"].signal("HUP");
        site.until("the error is logged", RIGHT, |site| wrong(site) > before);
        thread::sleep(site.pause(500));
        site.until("it goes on as before", RIGHT, Site::is_right);
        site.write_policy();
    }),
    ("the disk of a is full, and the policy another", |site| {
        let full = Site::fill(site.network.site.state());
        site.turn();
        site.until("b has the other policy", RIGHT, |site| site.has(site.window)[1]);
        // `a` may have room for it in what its journal has of the disk; else it has its own settings, or the old ones for a lease.
        thread::sleep(site.pause(1000));
        fs::remove_file(full).expect("removed");
    }),
    ("the disk of the controller is full", |site| {
        let full = Site::fill(site.network.state());
        thread::sleep(site.pause(1500));
        site.until("it goes on in spite of that", RIGHT, Site::is_right);
        fs::remove_file(full).expect("removed");
    }),
    ("a link is down", |site| {
        let router = site.network.site.hosts.r.name().to_owned();
        run(&format!("ip -n {router} link set to1 down"));
        site.until_gone("a link is down");
        run(&format!("ip -n {router} link set to1 up"));
    }),
    ("many connections come and go", |site| {
        let peers = Hosts::listen(&site.network.site.hosts.b);
        for _ in 0..3 {
            let count = site.chance.below(60);
            let all = connections(&site.network.site.hosts, &peers, count);
            thread::sleep(site.pause(500));
            drop(all);
        }
    }),
];

/// For `BANDMASTER_SOAK` seconds (`./ci.sh long`: a quarter of an hour), from `BANDMASTER_SOAK_SEED`.
#[test]
fn whatever_goes_wrong_all_is_right_again_in_time() {
    let seconds = std::env::var("BANDMASTER_SOAK").ok().and_then(|text| text.parse().ok()).unwrap_or(40);
    let seed = seed("BANDMASTER_SOAK_SEED");
    let Some(mut site) = Site::new("whatever_goes_wrong_all_is_right_again_in_time", seed) else { return };
    let settings = site.network.site.settings();
    KINDS.into_iter().for_each(|kind| site.start(kind));
    site.until("all is right at the start", 2 * RIGHT, Site::is_right);
    let (begin, mut counts) = (Instant::now(), BTreeMap::<&str, (u32, Duration)>::new());
    while begin.elapsed() < Duration::from_secs(seconds) {
        let (name, trouble) = TROUBLES[site.chance.below(TROUBLES.len() as u64) as usize];
        println!("{:.1} s: {name}", begin.elapsed().as_secs_f64());
        trouble(&mut site);
        let took = site.until(name, RIGHT, Site::is_right);
        let entry = counts.entry(name).or_default();
        *entry = (entry.0 + 1, entry.1.max(took));
        // As it was when it had just begun: what a process needs to begin is no growth.
        thread::sleep(site.pause(1000));
        site.assert_flat();
    }
    for (name, (times, longest)) in counts {
        println!("{name}: {times} times, right again after {longest:?} at most");
    }
    println!("memory and files of the first process by kind: {:?}", site.first);
    for kind in KINDS {
        let process = site.running.remove(kind).expect("it runs");
        println!("{kind}: {} bytes at the end", resident(process.0.id()));
        assert!(process.stop().success(), "{kind}: {}", site.network.site.log());
    }
    let pair = site.network.site.hosts.connection();
    site.network.site.assert_own("stopped");
    site.network.site.assert_settings(&settings, "stopped");
    drop(pair);
    site.disks.clear();
}
