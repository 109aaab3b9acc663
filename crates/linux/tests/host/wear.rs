//! Switches to which troubles drawn at random happen. After each all is right again within a stated time, and neither the process
//! nor what it holds in the kernel has grown.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use aya::programs::tc::TcAttachType;
use aya::programs::{ProgramInfo, SchedClassifier};
use bandmaster_core::rng::Stream;
use bandmaster_linux::netns::Netns;
use bandmaster_linux::switch::{Restored, Status, restore, status};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use socket2::SockRef;

use super::falsehoods::resident;
use super::hosts::run;
use super::machine::skip;
use super::messages::seed;
use super::{fbqm, switch};

/// Within this all is right again: silent flows sleep after 0.9 s, a process starts, and the machine is busy.
const RIGHT: Duration = Duration::from_secs(8);
/// Within this windows are open when nobody decides: half a second, the next acknowledgement, and the machine is busy.
const OPEN: Duration = Duration::from_secs(3);
/// Within this a switch has put back what somebody took away: 0.2 s, and the machine is busy.
const BACK: Duration = Duration::from_secs(3);
/// Of the memory of a process, over that of the first one.
const GROWTH: u64 = 3 << 20;
/// Of its open files: who asks for its status holds one.
const FILES: usize = 4;

/// A switch with what is around it.
trait Site {
    fn status(&self) -> Option<Status>;

    fn process(&self) -> u32;

    fn chance(&mut self) -> &mut Stream;

    fn log(&self) -> String;

    /// What is not as it is to be at rest.
    fn wrong(&self) -> Result<(), String>;

    fn start(&mut self);

    /// Without a word to it.
    fn kill(&mut self);

    /// Told to end, which leaves nothing.
    fn stop(&mut self);

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.process() as i32), signal).expect("signalled");
    }

    fn pause(&mut self, most: u64) -> Duration {
        Duration::from_millis(200 + self.chance().below(most))
    }

    fn until(&self, what: &str, most: Duration, holds: impl Fn(&Self) -> Result<(), String>) -> Duration {
        let begin = Instant::now();
        while let Err(state) = holds(self) {
            assert!(begin.elapsed() < most, "not within {most:?}: {what}: {state}\n{}", self.log());
            thread::sleep(Duration::from_millis(20));
        }
        begin.elapsed()
    }

    fn until_fault(&self, words: &str) {
        self.until(words, RIGHT, |site| match site.status() {
            Some(status) if status.faults.iter().any(|fault| fault.contains(words)) => Ok(()),
            status => Err(format!("{status:?}")),
        });
    }
}

/// Something that goes wrong, and ends.
type Trouble<S> = (&'static str, fn(&mut S));

/// What the process has: memory, open files, and bytes of its maps and programs in the kernel.
fn held(process: u32) -> (u64, usize, u64) {
    let files = fs::read_dir(format!("/proc/{process}/fd")).expect("it runs").count();
    let infos = fs::read_dir(format!("/proc/{process}/fdinfo")).expect("it runs").flatten();
    let bytes = |text: String| -> Option<u64> {
        text.lines().find_map(|line| line.strip_prefix("memlock:"))?.trim().parse().ok()
    };
    let kernel = infos.filter_map(|file| bytes(fs::read_to_string(file.path()).ok()?)).sum();
    (resident(process), files, kernel)
}

/// For `BANDMASTER_SOAK` seconds (`./ci.sh long`: a quarter of an hour).
fn wear_out<S: Site>(site: &mut S, troubles: &[Trouble<S>]) {
    let seconds = std::env::var("BANDMASTER_SOAK").ok().and_then(|text| text.parse().ok()).unwrap_or(15);
    site.start();
    site.until("all is right at the start", RIGHT, S::wrong);
    // What the first connections need is no growth.
    troubles[0].1(site);
    site.until(troubles[0].0, RIGHT, S::wrong);
    let first = held(site.process());
    let (begin, mut counts) = (Instant::now(), BTreeMap::<&str, (u32, Duration)>::new());
    while begin.elapsed() < Duration::from_secs(seconds) {
        let (name, trouble) = troubles[site.chance().below(troubles.len() as u64) as usize];
        println!("{:.1} s: {name}", begin.elapsed().as_secs_f64());
        trouble(site);
        let took = site.until(name, RIGHT, S::wrong);
        let entry = counts.entry(name).or_default();
        *entry = (entry.0 + 1, entry.1.max(took));
        let now = held(site.process());
        assert!(
            now.0 < first.0 + GROWTH && now.1 <= first.1 + FILES,
            "{name}: memory, files, kernel: {first:?}, now {now:?}"
        );
        // What is forgotten is freed a moment later.
        site.until("the kernel holds what it held", RIGHT, |site| match held(site.process()).2 {
            kernel if kernel <= first.2 => Ok(()),
            kernel => Err(format!("{kernel} B, at first {} B", first.2)),
        });
    }
    for (name, (times, longest)) in counts {
        println!("{name}: {times} times, right again after {longest:?} at most");
    }
    println!(
        "memory, files and bytes in the kernel: {first:?} at first, {:?} at the end",
        held(site.process())
    );
    site.stop();
}

/// Programs at a port.
fn programs(router: &Netns, at: TcAttachType) -> Vec<u32> {
    let query = || Ok(SchedClassifier::query_tcx("to0", at).expect("read").1);
    router.enter(query).expect("entered").iter().map(ProgramInfo::id).collect()
}

/// Somebody removes a program.
fn take_away(program: u32) {
    let links: serde_json::Value = serde_json::from_str(&run("bpftool -j link show")).expect("JSON");
    let is_it = |link: &&serde_json::Value| link["prog_id"] == program;
    let link = links.as_array().expect("links").iter().find(is_it).expect("a link");
    run(&format!("bpftool link detach id {}", link["id"]));
}

/// Data that flow until it is dropped.
struct Pump {
    here: TcpStream,
    threads: Vec<JoinHandle<()>>,
}

impl Pump {
    fn start((here, mut there): (TcpStream, TcpStream)) -> Self {
        let mut writer = here.try_clone().expect("a copy");
        let writer = thread::spawn(move || while writer.write_all(&[0; 1 << 14]).is_ok() {});
        let reader = thread::spawn(move || while let Ok(1..) = there.read(&mut [0; 1 << 16]) {});
        Self { here, threads: vec![writer, reader] }
    }
}

impl Drop for Pump {
    fn drop(&mut self) {
        // What is under way is thrown away: nothing is sent again after the end.
        let _ = SockRef::from(&self.here).set_linger(Some(Duration::ZERO));
        let _ = self.here.shutdown(Shutdown::Both);
        self.threads.drain(..1).for_each(|writer| writer.join().expect("ended"));
    }
}

// --- Switches that lower windows: QCBF and BAS

struct Windows {
    rack: switch::Rack,
    /// BAS needs no queue of a known size, and keeps a silent flow.
    is_bas: bool,
    daemon: Option<switch::Daemon>,
    chance: Stream,
    /// The port without a switch.
    bare: String,
}

impl Windows {
    /// What the kernel has at the port, without what an HTB counts that had no class for a while.
    fn kernel(rack: &switch::Rack) -> String {
        let told = rack.kernel();
        let mut words: Vec<&str> = told.split(' ').collect();
        while let Some(at) = words.iter().position(|word| *word == "direct_packets_stat") {
            words.drain(at..at + 2);
        }
        words.join(" ")
    }

    fn widest(&self) -> u64 {
        self.rack.windows().into_iter().max().unwrap_or(0)
    }

    /// Nobody decides: windows are wider than all may be together.
    fn opens(&self, what: &str) {
        self.until(what, OPEN, |site| match site.widest() {
            width if width > switch::BUDGET => Ok(()),
            width => Err(format!("{width} B")),
        });
    }

    /// So many connections that send.
    fn pumps(&self, many: usize) -> Vec<Pump> {
        self.rack.connections(many).into_iter().map(Pump::start).collect()
    }

    /// The receiver's device again, with its queue.
    fn connect(&self) {
        self.rack.cable(0, &self.rack.receiver);
        self.rack.shape(switch::MBITS, switch::BUFFER);
    }
}

impl Site for Windows {
    fn status(&self) -> Option<Status> {
        status(&self.rack.state()).ok()
    }

    fn process(&self) -> u32 {
        self.daemon.as_ref().expect("it runs").0.id()
    }

    fn chance(&mut self) -> &mut Stream {
        &mut self.chance
    }

    fn log(&self) -> String {
        fs::read_to_string(self.rack.folder.join("log")).unwrap_or_default()
    }

    /// No fault, no flow that has ended, both programs, and windows of new flows within the budget. BAS's are a share x a short
    /// round-trip time: few segments.
    fn wrong(&self) -> Result<(), String> {
        let status = self.status().ok_or("no answer")?;
        let at =
            [TcAttachType::Ingress, TcAttachType::Egress].map(|at| programs(&self.rack.router, at).len());
        if !status.faults.is_empty() || status.ports[0].flows != 0 || at != [1, 1] {
            return Err(format!("{status}, programs {at:?}"));
        }
        let pumps = self.pumps(3);
        let end = Instant::now() + OPEN;
        let least = if self.is_bas { 1448 } else { 4 * 1448 };
        let is_shared = || {
            let windows = self.rack.windows();
            windows.len() == 3
                && windows.iter().all(|window| *window >= least)
                && windows.iter().sum::<u64>() <= switch::BUDGET
        };
        while !is_shared() {
            if Instant::now() > end {
                return Err(format!("windows of {:?}, {:?}", self.rack.windows(), self.status()));
            }
            thread::sleep(Duration::from_millis(20));
        }
        drop(pumps);
        while self.status().is_none_or(|status| status.ports[0].flows != 0) {
            if Instant::now() > end {
                return Err(format!("flows stay: {:?}", self.status()));
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    fn start(&mut self) {
        self.daemon = Some(self.rack.start());
    }

    fn kill(&mut self) {
        drop(self.daemon.take());
        assert_eq!(Self::kernel(&self.rack), self.bare, "after a kill");
    }

    fn stop(&mut self) {
        self.signal(Signal::SIGTERM);
        assert!(self.daemon.take().expect("it runs").0.wait().expect("ended").success(), "{}", self.log());
        assert_eq!(Self::kernel(&self.rack), self.bare, "after a stop");
        assert_eq!(restore(&self.rack.state()), Ok(Restored::Nothing));
    }
}

const TROUBLES_OF_WINDOWS: &[Trouble<Windows>] = &[
    ("flows begin, and end by FIN, by RST or in silence", |site| {
        let many = 1 + site.chance.below(40) as usize;
        let pumps = site.pumps(1 + many / 8);
        let mut silent = Vec::new();
        for (mut here, mut there) in site.rack.connections(many) {
            let bytes = site.chance.below(60_000) as usize;
            let reader = thread::spawn(move || {
                while let Ok(1..) = there.read(&mut [0; 1 << 16]) {}
                there
            });
            let _ = here.write_all(&vec![0; bytes]);
            match site.chance.below(3) {
                0 => drop(here.shutdown(Shutdown::Write)),
                1 => SockRef::from(&here).set_linger(Some(Duration::ZERO)).expect("set"),
                // After they fell asleep they wake, and end.
                _ => silent.push(here),
            }
            drop(reader);
        }
        thread::sleep(site.pause(1500));
        for mut here in silent {
            let _ = here.write_all(&vec![0; site.chance.below(10_000) as usize]);
        }
        drop(pumps);
    }),
    ("it is killed", |site| {
        let pumps = site.pumps(2);
        thread::sleep(site.pause(500));
        site.kill();
        site.opens("after the switch was killed");
        drop(pumps);
        site.start();
    }),
    ("it stands still", |site| {
        let pumps = site.pumps(2);
        thread::sleep(site.pause(500));
        site.signal(Signal::SIGSTOP);
        site.opens("after the switch fell silent");
        site.signal(Signal::SIGCONT);
        if site.is_bas {
            // Else the queue is full, and drops the ends of the flows.
            site.until("windows are lowered again", RIGHT, |site| match site.widest() {
                width if width <= switch::BUDGET => Ok(()),
                width => Err(format!("{width} B")),
            });
        }
        drop(pumps);
    }),
    ("it is restarted", |site| {
        let pumps = site.pumps(2);
        site.stop();
        site.opens("after the switch ended");
        site.start();
        drop(pumps);
    }),
    ("a program is removed", |site| {
        let at = if site.chance.chance(0.5) { TcAttachType::Ingress } else { TcAttachType::Egress };
        let pumps = site.pumps(2);
        let ours = programs(&site.rack.router, at);
        take_away(ours[0]);
        site.until("it is back", BACK, |site| {
            let now = programs(&site.rack.router, at);
            (now == ours).then_some(()).ok_or_else(|| format!("{now:?}"))
        });
        drop(pumps);
    }),
    ("the queue is removed", |site| {
        run(&format!("tc -n {} qdisc del dev to0 root", site.rack.router.name()));
        site.until_fault("is no FIFO of known size");
        site.rack.shape(switch::MBITS, switch::BUFFER);
    }),
    ("the queue is somebody else's, and shorter", |site| {
        let router = site.rack.router.name().to_owned();
        run(&format!("tc -n {router} qdisc replace dev to0 root handle 7: pfifo limit 20"));
        site.until_fault("holds 30280 B, less than the buffer");
        assert!(run(&format!("tc -n {router} qdisc show dev to0")).contains("pfifo 7:"));
        run(&format!("tc -n {router} qdisc del dev to0 root"));
        site.rack.shape(switch::MBITS, switch::BUFFER);
    }),
    ("the device is recreated", |site| {
        let pumps = site.pumps(3);
        run(&format!("ip -n {} link del to0", site.rack.router.name()));
        site.until_fault("no such device");
        thread::sleep(site.pause(500));
        site.connect();
        drop(pumps);
    }),
    ("the link is down", |site| {
        let pumps = site.pumps(3);
        run(&format!("ip -n {} link set to0 down", site.rack.router.name()));
        thread::sleep(site.pause(1500));
        run(&format!("ip -n {} link set to0 up", site.rack.router.name()));
        drop(pumps);
    }),
    ("somebody starts a second one", |site| {
        assert!(!site.rack.spawn().0.wait().expect("ended").success(), "two switches at a port");
    }),
];

/// Seed: `BANDMASTER_SOAK_SEED`.
fn wear_out_windows(test: &str, is_bas: bool) {
    let Some(rack) = switch::Rack::new(test, switch::MBITS, switch::BUFFER) else { return };
    if !has_bpftool(test) {
        return;
    }
    if is_bas {
        rack.write("bas", "allocator = \"max-min\"\nrtt = \"minimum\"", switch::MBITS);
    }
    let of_scheme = |(name, _): &&Trouble<Windows>| !is_bas || !name.starts_with("the queue");
    let troubles: Vec<_> = TROUBLES_OF_WINDOWS.iter().filter(of_scheme).copied().collect();
    let purpose = if is_bas { "troubles of BAS" } else { "troubles of QCBF" };
    let chance = Stream::new(seed("BANDMASTER_SOAK_SEED"), 0, purpose);
    let bare = Windows::kernel(&rack);
    wear_out(&mut Windows { rack, is_bas, daemon: None, chance, bare }, &troubles);
}

#[test]
fn whatever_goes_wrong_qcbf_is_right_again_in_time() {
    wear_out_windows("whatever_goes_wrong_qcbf_is_right_again_in_time", false);
}

#[test]
fn whatever_goes_wrong_bas_is_right_again_in_time() {
    wear_out_windows("whatever_goes_wrong_bas_is_right_again_in_time", true);
}

fn has_bpftool(test: &str) -> bool {
    let has = std::process::Command::new("bpftool").arg("version").output().is_ok();
    if !has {
        skip(test, "no bpftool");
    }
    has
}

// --- FBQM

struct Fbqm {
    rack: fbqm::Rack,
    daemon: Option<fbqm::Daemon>,
    chance: Stream,
    bare: String,
    /// Port of the next flow.
    next: u16,
}

impl Fbqm {
    /// So many connections send for a while; bytes that came.
    fn flows(&mut self, many: u16, time: Duration) -> u64 {
        let (now, first) = (Instant::now(), self.next);
        self.next = (self.next + many) % 500;
        let flow = |flow| self.rack.flow(0, (first + flow) % 500, now, now + time);
        let flows: Vec<_> = (0..many).map(flow).collect();
        flows.into_iter().map(|flow| flow.join().expect("ended").iter().sum::<u64>()).sum()
    }

    fn router(&self) -> &str {
        self.rack.router.name()
    }

    fn qdiscs(&self) -> String {
        run(&format!("tc -n {} qdisc show dev to0", self.router()))
    }
}

impl Site for Fbqm {
    fn status(&self) -> Option<Status> {
        status(&self.rack.state()).ok()
    }

    fn process(&self) -> u32 {
        self.daemon.as_ref().expect("it runs").0.id()
    }

    fn chance(&mut self) -> &mut Stream {
        &mut self.chance
    }

    fn log(&self) -> String {
        fs::read_to_string(self.rack.folder.join("log")).unwrap_or_default()
    }

    /// No fault, the program, the HTB with its classes, and no flow that sends no more.
    fn wrong(&self) -> Result<(), String> {
        let status = self.status().ok_or("no answer")?;
        let count = programs(&self.rack.router, TcAttachType::Egress).len();
        let classes = run(&format!("tc -n {} class show dev to0", self.router())).matches("leaf").count();
        let is_right = status.faults.is_empty() && status.ports[0].flows == 0 && (count, classes) == (1, 4);
        is_right.then_some(()).ok_or_else(|| format!("{status}, {count} programs, {classes} classes"))
    }

    fn start(&mut self) {
        self.daemon = Some(self.rack.start());
    }

    fn kill(&mut self) {
        drop(self.daemon.take());
        assert_eq!(programs(&self.rack.router, TcAttachType::Egress), Vec::<u32>::new());
    }

    fn stop(&mut self) {
        self.signal(Signal::SIGTERM);
        assert!(self.daemon.take().expect("it runs").0.wait().expect("ended").success(), "{}", self.log());
        assert_eq!(self.rack.kernel(), self.bare, "after a stop");
        assert_eq!(self.rack.restore(), Ok(Restored::Nothing));
    }
}

const TROUBLES_OF_FBQM: &[Trouble<Fbqm>] = &[
    ("flows come and go", |site| {
        let (many, time) = (1 + site.chance.below(20) as u16, site.pause(1500));
        assert!(site.flows(many, time) > 0, "nothing came");
        site.until("their packets are counted", RIGHT, |site| match site.status() {
            Some(status) if status.ports[0].classes.iter().any(|class| class.packets > 0) => Ok(()),
            status => Err(format!("{status:?}")),
        });
    }),
    ("it is killed", |site| {
        let time = site.pause(800);
        site.flows(2, time);
        site.kill();
        assert!(site.qdiscs().contains("htb"), "{}", site.qdiscs());
        if site.chance.chance(0.5) {
            assert!(matches!(site.rack.restore(), Ok(Restored::Undone(_))));
            assert_eq!(site.rack.kernel(), site.bare, "after `restore`");
        }
        site.start();
    }),
    ("it stands still", |site| {
        site.signal(Signal::SIGSTOP);
        let time = site.pause(1000);
        assert!(site.flows(3, time) > 0, "nothing passes");
        site.signal(Signal::SIGCONT);
    }),
    ("it is restarted", |site| {
        site.stop();
        site.start();
    }),
    ("the program is removed", |site| {
        let ours = programs(&site.rack.router, TcAttachType::Egress);
        take_away(ours[0]);
        site.until("it is back", BACK, |site| {
            let now = programs(&site.rack.router, TcAttachType::Egress);
            (now == ours).then_some(()).ok_or_else(|| format!("{now:?}"))
        });
    }),
    ("the HTB is removed", |site| {
        run(&format!("tc -n {} qdisc del dev to0 root", site.router()));
        site.until("it is back", BACK, |site| {
            site.qdiscs().contains("htb").then_some(()).ok_or(site.qdiscs())
        });
    }),
    ("the queue is somebody else's", |site| {
        run(&format!("tc -n {} qdisc replace dev to0 root handle 7: pfifo limit 77", site.router()));
        site.until_fault("to0 has the qdisc pfifo 7:");
        thread::sleep(site.pause(500));
        assert!(site.qdiscs().contains("pfifo 7:"), "{}", site.qdiscs());
        run(&format!("tc -n {} qdisc del dev to0 root", site.router()));
    }),
    ("the device is recreated", |site| {
        run(&format!("ip -n {} link del to0", site.router()));
        thread::sleep(site.pause(500));
        site.rack.reconnect();
    }),
    ("the link is down", |site| {
        run(&format!("ip -n {} link set to0 down", site.router()));
        thread::sleep(site.pause(1000));
        run(&format!("ip -n {} link set to0 up", site.router()));
        let time = site.pause(500);
        assert!(site.flows(1, time + Duration::from_secs(1)) > 0, "nothing passes");
    }),
    ("somebody starts a second one", |site| {
        assert!(!site.rack.spawn(&[]).0.wait().expect("ended").success(), "two switches at a port");
    }),
];

/// Seed: `BANDMASTER_SOAK_SEED`.
#[test]
fn whatever_goes_wrong_fbqm_is_right_again_in_time() {
    let test = "whatever_goes_wrong_fbqm_is_right_again_in_time";
    let Some(rack) = fbqm::Rack::new(test, 1, 1500) else { return };
    if !has_bpftool(test) {
        return;
    }
    rack.write("classes = 4\ncells = 1024", [0], "40mbit");
    let chance = Stream::new(seed("BANDMASTER_SOAK_SEED"), 0, "troubles of FBQM");
    let bare = rack.kernel();
    wear_out(&mut Fbqm { rack, daemon: None, chance, bare, next: 0 }, TROUBLES_OF_FBQM);
}
