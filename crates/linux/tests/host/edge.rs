//! BAS's switch at an edge router: hosts whose ways have delays send over one port.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use bandmaster_linux::make_tun;
use bandmaster_linux::netns::{Netns, set_parameter};
use bandmaster_linux::switch::{self, Restored, Status};
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;

use super::hosts::{Load, run};
use super::machine::{in_time, no_lab, skip, timely};
use super::switch::{COMMAND, Daemon};

const PORT: u16 = 7300;
const MBITS: u64 = 40;
/// 13 ms of the port.
const BUFFER: u64 = 64 << 10;
/// Payload of a full segment, and what it is on the link.
const SEGMENT: f64 = 1448.0 / 1514.0;
/// Round-trip times of the ways, in ms.
const NEAR: u64 = 5;
const FAR: u64 = 40;
const TRIPS: [u64; 4] = [NEAR, NEAR, FAR, FAR];
/// Of plain TCP a slow start and a loss or two; of BAS several measurements.
const SETTLES: Duration = Duration::from_secs(4);
const MEASURED: Duration = Duration::from_secs(8);
const PATIENCE: Duration = Duration::from_secs(10);
/// As the page has it.
const LEAST: &str = "allocator = \"max-min\"\nrtt = \"minimum\"";
/// Stated before the first measurement.
const LEAST_JAIN: f64 = 0.95;
const LEAST_PART: f64 = 0.90;
/// Of plain TCP (Reno), which gives the more the shorter the way is; it has more, and nothing is shown.
const PLAIN_JAIN: f64 = 0.80;
/// Within this, windows of a switch that was killed are open.
const OPENS: Duration = Duration::from_secs(1);

/// Whose ways have the delays.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Delayed {
    Senders,
    Receivers,
}

/// Packets between two TUN devices, each late by the same time.
struct Delay {
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Delay {
    fn start(devices: [File; 2], by: Duration) -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        let thread = {
            let ends = Arc::clone(&ends);
            thread::spawn(move || delay(devices, by, &ends))
        };
        Self { ends, thread: Some(thread) }
    }
}

impl Drop for Delay {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn delay(mut devices: [File; 2], by: Duration, ends: &AtomicBool) {
    let mut on_the_way: [VecDeque<(Instant, Vec<u8>)>; 2] = Default::default();
    let mut buffer = [0; 2048];
    while !ends.load(Ordering::Relaxed) {
        let next = on_the_way.iter().filter_map(|packets| packets.front()).map(|(due, _)| *due).min();
        let rest =
            next.map_or(Duration::from_millis(50), |due| due.saturating_duration_since(Instant::now()));
        let mut wanted = devices.each_ref().map(|device| PollFd::new(device.as_fd(), PollFlags::POLLIN));
        let _ = ppoll(&mut wanted, Some(TimeSpec::from_duration(rest)), None);
        for (at, packets) in on_the_way.iter_mut().enumerate() {
            while let Ok(length @ 1..) = devices[at].read(&mut buffer) {
                packets.push_back((Instant::now() + by, buffer[..length].to_vec()));
            }
            while packets.front().is_some_and(|(due, _)| *due <= Instant::now()) {
                let (_, packet) = packets.pop_front().expect("one");
                let _ = devices[1 - at].write(&packet);
            }
        }
    }
}

/// Senders, the edge router with its port, a router behind it, and receivers.
struct Edge {
    senders: Vec<Netns>,
    receivers: Vec<Netns>,
    router: Netns,
    beyond: Netns,
    folder: PathBuf,
    delays: Vec<Delay>,
}

impl Edge {
    /// None, with the reason on stderr, where it cannot be made.
    fn new(test: &str, delayed: Delayed, role: &str) -> Option<Self> {
        if let Some(why) = no_lab() {
            skip(test, why);
            return None;
        }
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let make = |node: String| Netns::create(&format!("bmedge-{number}-{node}")).expect("a namespace");
        let hosts = |kind: &str| (0..TRIPS.len()).map(|host| make(format!("{kind}{host}"))).collect();
        let (router, beyond) = (make("r".to_owned()), make("w".to_owned()));
        let folder = std::env::temp_dir().join(format!("bandmaster-{}", router.name()));
        fs::create_dir_all(&folder).expect("made");
        let mut edge =
            Self { senders: hosts("s"), receivers: hosts("d"), router, beyond, folder, delays: Vec::new() };
        edge.wire(delayed);
        let file = format!(
            "version = 1\nscheme = \"bas\"\nstate-directory = \"{}\"\n[role]\n{role}\n[[ports]]\n\
             interface = \"out\"\nrate = \"{MBITS}mbit\"\n",
            edge.state().display()
        );
        fs::write(edge.file(), file).expect("written");
        Some(edge)
    }

    fn wire(&mut self, delayed: Delayed) {
        let (router, beyond) = (self.router.name().to_owned(), self.beyond.name().to_owned());
        run(&format!("ip link add out netns {router} type veth peer name in netns {beyond}"));
        for (node, device, address) in [(&router, "out", "10.78.100.1/24"), (&beyond, "in", "10.78.100.2/24")]
        {
            run(&format!("ip -n {node} address add {address} dev {device}"));
            run(&format!("ip -n {node} link set {device} up"));
            run(&format!("ip netns exec {node} ethtool -K {device} tso off gso off gro off"));
        }
        for node in [&self.router, &self.beyond] {
            node.enter(|| set_parameter("net.ipv4.ip_forward", "1")).expect("set");
        }
        run(&format!("ip -n {router} route add 10.78.16.0/20 via 10.78.100.2"));
        run(&format!("ip -n {beyond} route add 10.78.0.0/20 via 10.78.100.1"));
        run(&format!("tc -n {router} qdisc add dev out root handle 1: htb default 10"));
        run(&format!(
            "tc -n {router} class add dev out parent 1: classid 1:10 htb rate {MBITS}mbit burst 3200 cburst 3200 quantum 1514"
        ));
        run(&format!("tc -n {router} qdisc add dev out parent 1:10 handle 10: bfifo limit {BUFFER}"));
        for node in &self.senders {
            node.enter(|| set_parameter("net.ipv4.tcp_congestion_control", "reno")).expect("set");
        }
        for (host, trip) in TRIPS.into_iter().enumerate() {
            let by = |side| if delayed == side { Duration::from_millis(trip) / 2 } else { Duration::ZERO };
            let cables = [
                (&self.senders[host], &self.router, host, by(Delayed::Senders)),
                (&self.receivers[host], &self.beyond, 16 + host, by(Delayed::Receivers)),
            ];
            for (node, router, net, by) in cables {
                self.delays.extend(cable(node, router, net, by));
            }
        }
    }

    fn file(&self) -> PathBuf {
        self.folder.join("edge.toml")
    }

    fn state(&self) -> PathBuf {
        self.folder.join("state")
    }

    /// A switch that answers.
    fn start(&self) -> Daemon {
        let log = File::create(self.folder.join("log")).expect("a log");
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command
            .args(["--exact", "switch::child", "--nocapture", "--test-threads=1"])
            .env(COMMAND, self.file())
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a log"))
            .stderr(log);
        let daemon = Daemon(self.router.enter(|| Ok(command.spawn().expect("started"))).expect("entered"));
        let begin = Instant::now();
        while switch::status(&self.state()).is_err() {
            let log = || fs::read_to_string(self.folder.join("log")).unwrap_or_default();
            assert!(begin.elapsed() < PATIENCE, "no answer: {}", log());
            thread::sleep(Duration::from_millis(20));
        }
        daemon
    }

    fn status(&self) -> Status {
        switch::status(&self.state()).expect("an answer")
    }

    /// Each sender sends to its receiver until it is dropped.
    fn loads(&self) -> Vec<Load> {
        let load = |(at, (sender, receiver)): (usize, (&Netns, &Netns))| {
            let listen = || Ok(TcpListener::bind(("0.0.0.0", PORT)).expect("a port"));
            let listener = receiver.enter(listen).expect("entered");
            let to = Ipv4Addr::new(10, 78, 16 + at as u8, 1);
            let connect = || Ok(TcpStream::connect((to, PORT)).expect("connected"));
            let here = sender.enter(connect).expect("entered");
            Load::start(here, listener.accept().expect("accepted").0)
        };
        self.senders.iter().zip(&self.receivers).enumerate().map(load).collect()
    }

    /// Windows that senders see, one each.
    fn windows(&self) -> Vec<u64> {
        let of = |node: &Netns| {
            let told =
                run(&format!("ip netns exec {} ss -tinOH state established dport = :{PORT}", node.name()));
            let window = told.split_whitespace().find_map(|word| word.strip_prefix("snd_wnd:"));
            window.expect("a window").parse().expect("a number")
        };
        self.senders.iter().map(of).collect()
    }
}

impl Drop for Edge {
    fn drop(&mut self) {
        self.delays.clear();
        for node in self.senders.iter().chain(&self.receivers).chain([&self.router, &self.beyond]) {
            let _ = Netns::delete(node.name());
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Connects a node to a router; packets are late by so much in each direction.
fn cable(node: &Netns, router: &Netns, net: usize, by: Duration) -> Option<Delay> {
    let port = format!("to{net}");
    let delay = if by.is_zero() {
        let (node, router) = (node.name(), router.name());
        run(&format!("ip link add cable netns {node} type veth peer name {port} netns {router}"));
        for (node, device) in [(node, "cable"), (router, port.as_str())] {
            run(&format!("ip netns exec {node} ethtool -K {device} tso off gso off gro off"));
        }
        None
    } else {
        let tun = |node: &Netns, name: &str| node.enter(|| make_tun(name)).expect("a device");
        Some(Delay::start([tun(node, "cable"), tun(router, &port)], by))
    };
    let (node, router) = (node.name(), router.name());
    run(&format!("ip -n {router} address add 10.78.{net}.254/24 dev {port}"));
    run(&format!("ip -n {router} link set {port} up"));
    run(&format!("ip -n {node} address add 10.78.{net}.1/24 dev cable"));
    run(&format!("ip -n {node} link set cable up"));
    run(&format!("ip -n {node} route add default via 10.78.{net}.254"));
    delay
}

/// Jain's index of the rates, and their sum over what the port can carry.
fn shared(loads: &[Load]) -> (f64, f64, Vec<f64>) {
    thread::sleep(SETTLES);
    let before: Vec<u64> = loads.iter().map(Load::received).collect();
    let begin = Instant::now();
    thread::sleep(MEASURED);
    let seconds = begin.elapsed().as_secs_f64();
    let rates: Vec<f64> = loads
        .iter()
        .zip(before)
        .map(|(load, before)| (load.received() - before) as f64 * 8e-6 / seconds)
        .collect();
    let (sum, squares) = (rates.iter().sum::<f64>(), rates.iter().map(|rate| rate * rate).sum::<f64>());
    (sum * sum / squares / rates.len() as f64, sum / (MBITS as f64 * SEGMENT), rates)
}

/// Hosts 5 and 40 ms away send over one port, without the switch and with it. Then it is killed.
fn is_shared(test: &str, delayed: Delayed, role: &str) {
    in_time(test, || {
        let Some(edge) = Edge::new(test, delayed, role) else { return Ok(()) };
        let (plain_jain, plain_part, plain) = shared(&edge.loads());
        let daemon = edge.start();
        let loads = edge.loads();
        let (jain, part, rates) = shared(&loads);
        let status = edge.status();
        let before = edge.windows();
        println!(
            "{role}, {delayed:?}: Jain {jain:.3}, {part:.3} of the limit, {rates:.2?} Mbit/s; plain TCP {plain_jain:.3}, \
             {plain_part:.3}, {plain:.2?}; windows {before:?}\n{status}"
        );
        drop(daemon);
        let begin = Instant::now();
        let opened = loop {
            let after = edge.windows();
            if after.iter().zip(&before).all(|(after, before)| *after > 60_000.max(before + 1448)) {
                break Ok(begin.elapsed());
            }
            if begin.elapsed() > OPENS {
                break Err(format!("windows were {before:?} and are {after:?}"));
            }
            thread::sleep(Duration::from_millis(20));
        };
        println!("opened: {opened:?}");
        drop(loads);
        let restored = edge.router.enter(|| Ok(switch::restore(&edge.state()))).expect("entered");
        assert_eq!(restored, Ok(Restored::Done(vec!["out".to_owned()])));
        timely!(status.connections.len() == TRIPS.len(), "{status}");
        for (connection, trip) in status.connections.iter().zip(TRIPS) {
            let (least, trip) = (connection.least_rtt.unwrap_or(0.0), trip as f64);
            assert!(least >= trip, "{connection}: the way takes {trip} ms");
            timely!(least < trip + 4.0, "{connection}: the way takes {trip} ms");
        }
        timely!(plain_jain < PLAIN_JAIN, "plain TCP shares by itself: {plain_jain}");
        timely!(jain >= LEAST_JAIN, "{jain}: {rates:?}");
        timely!(part >= LEAST_PART, "{part}: {rates:?}");
        timely!(opened.is_ok(), "{opened:?}");
        Ok(())
    });
}

#[test]
fn senders_near_and_far_have_equal_shares() {
    is_shared("senders_near_and_far_have_equal_shares", Delayed::Senders, LEAST);
}

#[test]
fn receivers_near_and_far_have_equal_shares() {
    is_shared("receivers_near_and_far_have_equal_shares", Delayed::Receivers, LEAST);
}

#[test]
fn the_papers_allocator_shares_too() {
    is_shared("the_papers_allocator_shares_too", Delayed::Senders, "allocator = \"bas\"");
}
