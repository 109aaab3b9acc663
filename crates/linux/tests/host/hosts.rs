//! Two hosts and a router between them.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use bandmaster_linux::kernel::NoProgram;
use bandmaster_linux::kernel::tcp::{Connection, HostTcp, Settings, control_groups, namespace};
use bandmaster_linux::netns::{Netns, set_parameter};

use super::machine::{no_lab, skip};

pub(crate) const A: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
pub(crate) const B: Ipv4Addr = Ipv4Addr::new(10, 77, 1, 1);
/// Has a neighbour's entry, and nobody who answers.
pub(crate) const NOBODY: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 9);
pub(crate) const HALF_A_SECOND: Duration = Duration::from_millis(500);
pub(crate) const PORT: u16 = 7100;
/// Of the bottleneck, in payload bytes a second.
pub(crate) const RATE: f64 = 20e6 / 8.0 * 1448.0 / 1514.0;

/// Hosts `a` and `b`, and a router between them whose port to `b` sends 20 Mbit/s.
pub(crate) struct Hosts {
    pub(crate) a: Netns,
    pub(crate) r: Netns,
    pub(crate) b: Netns,
}

impl Hosts {
    /// None, with the reason on stderr, where they cannot be made, or the kernel takes no programs.
    pub(crate) fn new(test: &str) -> Option<(Self, HostTcp)> {
        if let Some(why) = no_lab() {
            skip(test, why);
            return None;
        }
        let load = || {
            let mut tcp = HostTcp::load()?;
            tcp.attach(&control_groups()?)?;
            tcp.load_live()?;
            Ok(tcp)
        };
        let tcp = match load() {
            Ok(tcp) => tcp,
            Err::<_, NoProgram>(why) => {
                skip(test, why);
                return None;
            }
        };
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let name = |node: &str| format!("bmhost-{number}-{node}");
        let make = |node| Netns::create(&name(node)).expect("a namespace");
        let hosts = Self { a: make("a"), r: make("r"), b: make("b") };
        let router = hosts.r.name();
        hosts.r.enter(|| set_parameter("net.ipv4.ip_forward", "1")).expect("set");
        // Buffers that do not bound: Linux applies a cap only to a window that is what bounds a sender. What a receiver has
        // offered it does not take back, so that they are not larger either.
        hosts.a.enter(|| set_parameter("net.ipv4.tcp_wmem", "4096 1000000 1000000")).expect("set");
        hosts.b.enter(|| set_parameter("net.ipv4.tcp_rmem", "4096 1000000 1000000")).expect("set");
        for (node, address, net) in [(&hosts.a, A, 0), (&hosts.b, B, 1)] {
            let node = node.name();
            run(&format!("ip link add cable netns {node} type veth peer name to{net} netns {router}"));
            run(&format!("ip -n {router} address add 10.77.{net}.254/24 dev to{net}"));
            run(&format!("ip -n {router} link set to{net} up"));
            run(&format!("ip -n {node} address add {address}/24 dev cable"));
            run(&format!("ip -n {node} link set lo up"));
            run(&format!("ip -n {node} link set cable up"));
            run(&format!("ip -n {node} route add default via 10.77.{net}.254"));
        }
        run(&format!("tc -n {router} qdisc add dev to1 root tbf rate 20mbit burst 5kb limit 2mb"));
        // Packets, not the giants that segmentation offload makes of them.
        for (node, device) in
            [(hosts.a.name(), "cable"), (router, "to0"), (router, "to1"), (hosts.b.name(), "cable")]
        {
            run(&format!("ip netns exec {node} ethtool -K {device} tso off gso off gro off"));
        }
        run(&format!("ip -n {} neighbour add {NOBODY} lladdr 02:00:00:00:00:09 dev cable", hosts.a.name()));
        Some((hosts, tcp))
    }

    /// `ss` of a host, a connection a line.
    pub(crate) fn ss(node: &Netns, words: &str) -> String {
        run(&format!("ip netns exec {} ss -tinOH {words}", node.name()))
    }

    /// Bytes that wait at the bottleneck.
    pub(crate) fn waiting(&self) -> u64 {
        let told = run(&format!("tc -n {} -s -j qdisc show dev to1", self.r.name()));
        let told: serde_json::Value = serde_json::from_str(&told).expect("JSON");
        told[0]["backlog"].as_u64().unwrap_or_else(|| panic!("{told}"))
    }

    pub(crate) fn tune(tcp: &mut HostTcp, node: &Netns, settings: &Settings) {
        tcp.tune(cookie(node), settings).expect("tuned");
    }

    /// What a host's own programs tell.
    pub(crate) fn look(tcp: &mut HostTcp, node: &Netns) -> Vec<Connection> {
        node.enter(|| Ok(tcp.look().expect("read"))).expect("entered")
    }

    pub(crate) fn listen(node: &Netns) -> TcpListener {
        node.enter(|| Ok(TcpListener::bind(("0.0.0.0", PORT)).expect("a port"))).expect("entered")
    }

    pub(crate) fn connect(&self) -> TcpStream {
        self.a.enter(|| Ok(TcpStream::connect((B, PORT)).expect("connected"))).expect("entered")
    }

    /// So many connections from `a` to an address of `b`: their ends at each.
    pub(crate) fn connections(&self, to: Ipv4Addr, many: usize) -> Vec<(TcpStream, TcpStream)> {
        let listener = Self::listen(&self.b);
        let connect = || {
            let here = TcpStream::connect((to, PORT)).expect("connected");
            (here, listener.accept().expect("accepted").0)
        };
        self.a.enter(|| Ok((0..many).map(|_| connect()).collect())).expect("entered")
    }

    /// A connection from `a` to `b`.
    pub(crate) fn connection(&self) -> (TcpStream, TcpStream) {
        let listener = Self::listen(&self.b);
        let here = self.connect();
        let (there, _) = listener.accept().expect("accepted");
        (here, there)
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for node in [&self.a, &self.r, &self.b] {
            let _ = Netns::delete(node.name());
        }
    }
}

pub(crate) fn cookie(node: &Netns) -> u64 {
    node.enter(|| Ok(namespace().expect("a namespace"))).expect("entered")
}

pub(crate) fn run(command: &str) -> String {
    let mut words = command.split_whitespace();
    let output = Command::new(words.next().expect("a program")).args(words).output().expect("started");
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub(crate) fn has(control: &str) -> bool {
    let known = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control");
    known.is_ok_and(|known| known.split_whitespace().any(|known| known == control))
}

/// Data that flows until it is dropped, counted where it arrives.
pub(crate) struct Load {
    received: Arc<AtomicU64>,
    ends: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    pub(crate) fn start(mut from: TcpStream, mut to: TcpStream) -> Self {
        let (received, ends) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let sender = {
            let ends = ends.clone();
            thread::spawn(
                move || {
                    while !ends.load(Ordering::Relaxed) && from.write_all(&[0; 1 << 14]).is_ok() {}
                },
            )
        };
        let receiver = {
            let received = received.clone();
            thread::spawn(move || {
                let mut buffer = [0; 1 << 16];
                while let Ok(got @ 1..) = to.read(&mut buffer) {
                    received.fetch_add(got as u64, Ordering::Relaxed);
                }
            })
        };
        Self { received, ends, threads: vec![sender, receiver] }
    }

    /// Bytes that have arrived.
    pub(crate) fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Bytes that arrive in a second of the next `time`.
    pub(crate) fn rate(&self, time: Duration) -> f64 {
        let (begin, before) = (Instant::now(), self.received.load(Ordering::Relaxed));
        thread::sleep(time);
        (self.received.load(Ordering::Relaxed) - before) as f64 / begin.elapsed().as_secs_f64()
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
