//! The TCP of real hosts, set and read by programs in the kernel. What the kernel has done is told by `ss`, and by receivers.

#[path = "../machine/mod.rs"]
mod machine;

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use bandmaster_core::time::Span;
use bandmaster_linux::kernel::NoProgram;
use bandmaster_linux::kernel::tcp::{Connection, HostTcp, Settings, control_groups, namespace, tick};
use bandmaster_linux::netns::{Netns, set_parameter};
use machine::{in_time, no_lab, skip, timely};
use socket2::{Domain, SockRef, Socket, Type};

const A: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
const B: Ipv4Addr = Ipv4Addr::new(10, 77, 1, 1);
/// Has a neighbour's entry, and nobody who answers.
const NOBODY: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 9);
const HALF_A_SECOND: Duration = Duration::from_millis(500);
const PORT: u16 = 7100;
/// Of the bottleneck, in payload bytes a second.
const RATE: f64 = 20e6 / 8.0 * 1448.0 / 1514.0;

/// Hosts `a` and `b`, and a router between them whose port to `b` sends 20 Mbit/s.
struct Hosts {
    a: Netns,
    r: Netns,
    b: Netns,
}

impl Hosts {
    /// None, with the reason on stderr, where they cannot be made, or the kernel takes no programs.
    fn new(test: &str) -> Option<(Self, HostTcp)> {
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
    fn ss(node: &Netns, words: &str) -> String {
        run(&format!("ip netns exec {} ss -tinOH {words}", node.name()))
    }

    /// Bytes that wait at the bottleneck.
    fn waiting(&self) -> u64 {
        let told = run(&format!("tc -n {} -s -j qdisc show dev to1", self.r.name()));
        let told: serde_json::Value = serde_json::from_str(&told).expect("JSON");
        told[0]["backlog"].as_u64().unwrap_or_else(|| panic!("{told}"))
    }

    fn tune(tcp: &mut HostTcp, node: &Netns, settings: &Settings) {
        tcp.tune(cookie(node), settings).expect("tuned");
    }

    /// What a host's own programs tell.
    fn look(tcp: &mut HostTcp, node: &Netns) -> Vec<Connection> {
        node.enter(|| Ok(tcp.look().expect("told"))).expect("entered")
    }

    fn listen(node: &Netns) -> TcpListener {
        node.enter(|| Ok(TcpListener::bind(("0.0.0.0", PORT)).expect("a port"))).expect("entered")
    }

    fn connect(&self) -> TcpStream {
        self.a.enter(|| Ok(TcpStream::connect((B, PORT)).expect("connected"))).expect("entered")
    }

    /// A connection from `a` to `b`.
    fn connection(&self) -> (TcpStream, TcpStream) {
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

fn cookie(node: &Netns) -> u64 {
    node.enter(|| Ok(namespace().expect("a namespace"))).expect("entered")
}

fn run(command: &str) -> String {
    let mut words = command.split_whitespace();
    let output = Command::new(words.next().expect("a program")).args(words).output().expect("started");
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn has(control: &str) -> bool {
    let known = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control");
    known.is_ok_and(|known| known.split_whitespace().any(|known| known == control))
}

/// Data that flows until it is dropped, counted where it arrives.
struct Load {
    received: Arc<AtomicU64>,
    ends: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    fn start(mut from: TcpStream, mut to: TcpStream) -> Self {
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

    /// Bytes that arrive in a second of the next `time`.
    fn rate(&self, time: Duration) -> f64 {
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

/// Both ends of a connection that begins have what was asked for; a namespace without settings keeps its own.
#[test]
fn connections_that_begin_are_set_at_both_ends() {
    let Some((hosts, mut tcp)) = Hosts::new("connections_that_begin_are_set_at_both_ends") else {
        return;
    };
    let least = Span::from_nanos(3 * tick().as_nanos());
    let control = if has("bbr") { "bbr" } else { "reno" };
    let settings = |initial_window| Settings {
        control: Some(control.to_owned()),
        initial_window: Some(initial_window),
        least_timeout: Some(least),
        window_cap: Some(40),
        pacing_rate: Some(2_000_000),
        ..Settings::default()
    };
    Hosts::tune(&mut tcp, &hosts.a, &settings(25));
    let first = hosts.connection();
    let (at_a, at_b) = (Hosts::ss(&hosts.a, ""), Hosts::ss(&hosts.b, &format!("sport = {PORT}")));
    assert!(at_a.contains(control) && at_a.contains("cwnd:25 "), "{at_a}");
    assert!(!at_b.contains("cwnd:25 "), "{at_b}");
    let seen = Hosts::look(&mut tcp, &hosts.a);
    let [seen] = &seen[..] else { panic!("{seen:?}") };
    assert_eq!((seen.cwnd, seen.window_cap, seen.least_timeout), (25, 40, least));
    assert_eq!((&*seen.control, seen.pacing_rate), (control, Some(2_000_000)));
    assert_eq!((seen.local.0, seen.remote), (A.into(), (B.into(), PORT)));
    drop(first);

    // The end that accepts.
    Hosts::tune(&mut tcp, &hosts.a, &Settings::default());
    Hosts::tune(&mut tcp, &hosts.b, &settings(31));
    let second = hosts.connection();
    let (at_a, at_b) = (Hosts::ss(&hosts.a, "state established"), Hosts::ss(&hosts.b, "state established"));
    assert!(at_b.contains(control) && at_b.contains("cwnd:31 "), "{at_b}");
    assert!(at_a.contains("cwnd:10 "), "{at_a}");
    let outcomes = tcp.outcomes().expect("told");
    assert!(outcomes.iter().all(|outcome| outcome.refused == 0), "{outcomes:?}");
    drop(second);

    // When the programs have gone, the host's own settings are in force again.
    drop(tcp);
    let _third = hosts.connection();
    let at_b = Hosts::ss(&hosts.b, "state established");
    assert!(at_b.contains("cwnd:10 "), "{at_b}");
}

/// The timeout of a SYN that nobody answers.
#[test]
fn the_first_timeout_is_set() {
    let Some((hosts, mut tcp)) = Hosts::new("the_first_timeout_is_set") else { return };
    let first = Span::from_nanos(50 * tick().as_nanos());
    let timeout = || -> u64 {
        let _socket = hosts.a.enter(|| {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
            socket.set_nonblocking(true).expect("set");
            let _ = socket.connect(&std::net::SocketAddr::from((NOBODY, PORT)).into());
            Ok(socket)
        });
        let told = Hosts::ss(&hosts.a, "state syn-sent");
        let rto = told.split_whitespace().find_map(|word| word.strip_prefix("rto:"));
        rto.and_then(|rto| rto.parse().ok()).unwrap_or_else(|| panic!("{told}"))
    };
    assert_eq!(timeout(), 1000);
    Hosts::tune(&mut tcp, &hosts.a, &Settings { first_timeout: Some(first), ..Settings::default() });
    assert_eq!(timeout(), first.as_nanos() / 1_000_000);
}

/// Each setting of a live connection acts within a second; what the others have stays.
#[test]
fn live_connections_are_set_within_a_second() {
    let test = "live_connections_are_set_within_a_second";
    in_time(test, || {
        let Some((hosts, mut tcp)) = Hosts::new(test) else { return Ok(()) };
        // 200 segments in flight, most of which wait at the bottleneck, without a loss.
        let begin =
            Settings { control: Some("reno".to_owned()), window_cap: Some(200), ..Settings::default() };
        Hosts::tune(&mut tcp, &hosts.a, &begin);
        let (here, there) = hosts.connection();
        let load = Load::start(here, there);
        thread::sleep(Duration::from_secs(1));
        let sender = Hosts::look(&mut tcp, &hosts.a)[0].clone();
        let receiver = Hosts::look(&mut tcp, &hosts.b)[0].clone();
        let (free, waiting) = (load.rate(HALF_A_SECOND), hosts.waiting());
        timely!(free > 0.95 * RATE, "{free} bytes/s without a bound");
        timely!(
            (180 * 1514..=205 * 1514).contains(&waiting),
            "{waiting} bytes wait with a cap of 200 segments"
        );

        let act = |tcp: &mut HostTcp, node: &Netns, cookie: u64, settings: Settings| {
            tcp.set(cookie, &settings).expect("set");
            Hosts::look(tcp, node);
            thread::sleep(HALF_A_SECOND);
            // The next one stands for itself.
            tcp.leave(cookie).expect("left");
        };
        // A cap of 20 segments; most of them wait.
        act(&mut tcp, &hosts.a, sender.cookie, Settings { window_cap: Some(20), ..Settings::default() });
        let (capped, waiting) = (load.rate(HALF_A_SECOND), hosts.waiting());
        timely!(capped > 0.9 * RATE, "{capped} bytes/s with a cap that fills the path");
        timely!((10 * 1514..=22 * 1514).contains(&waiting), "{waiting} bytes wait with a cap of 20 segments");

        // The receiver's window.
        let open = Settings { window_cap: Some(200), ..Settings::default() };
        act(&mut tcp, &hosts.a, sender.cookie, open);
        act(
            &mut tcp,
            &hosts.b,
            receiver.cookie,
            Settings { receive_window: Some(50_000), ..Settings::default() },
        );
        let waiting = hosts.waiting();
        timely!((20_000..=53_000).contains(&waiting), "{waiting} bytes wait with a window of 50,000");

        // A pace.
        act(
            &mut tcp,
            &hosts.a,
            sender.cookie,
            Settings { pacing_rate: Some(1_000_000), ..Settings::default() },
        );
        let paced = load.rate(HALF_A_SECOND);
        timely!((0.9e6..1.1e6).contains(&paced), "{paced} bytes/s paced at 1,000,000");

        // Congestion control and least timeout.
        let least = Span::from_nanos(4 * tick().as_nanos());
        let rest =
            Settings { control: Some("cubic".to_owned()), least_timeout: Some(least), ..Settings::default() };
        tcp.set(sender.cookie, &rest).expect("set");
        Hosts::look(&mut tcp, &hosts.a);
        let told = Hosts::ss(&hosts.a, "state established");
        assert!(told.contains("cubic"), "{told}");
        assert_eq!(Hosts::look(&mut tcp, &hosts.a)[0].least_timeout, least);
        let outcomes = tcp.outcomes().expect("told");
        assert!(outcomes.iter().all(|outcome| outcome.refused == 0), "{outcomes:?}");
        Ok(())
    });
}

/// Connections, those that are accepted, and their listening sockets get back what they had; what a program has set itself
/// stays. What was never set is left alone.
#[test]
fn what_a_connection_had_is_given_back() {
    let Some((hosts, mut tcp)) = Hosts::new("what_a_connection_had_is_given_back") else { return };
    let least = Span::from_nanos(3 * tick().as_nanos());
    let other = if has("bbr") { "bbr" } else { "reno" };
    let settings = Settings {
        control: Some("reno".to_owned()),
        least_timeout: Some(least),
        window_cap: Some(40),
        pacing_rate: Some(2_000_000),
        ..Settings::default()
    };
    // A server that was there before, and one that begins afterwards.
    let early = Hosts::listen(&hosts.b);
    let untouched = hosts.connect();
    let own = Hosts::look(&mut tcp, &hosts.a)[0].clone();
    assert_eq!(own.before, None);
    for node in [&hosts.a, &hosts.b] {
        Hosts::tune(&mut tcp, node, &settings);
    }
    let first = (hosts.connect(), early.accept().expect("accepted"), early.accept().expect("accepted"));
    drop(early);
    let late = Hosts::listen(&hosts.b);
    let second = hosts.connect();
    // Its program changes its mind.
    SockRef::from(&second).set_tcp_congestion(other.as_bytes()).expect("set");
    let _there = late.accept().expect("accepted");
    let set: Vec<Connection> =
        [&hosts.a, &hosts.b].into_iter().flat_map(|node| Hosts::look(&mut tcp, node)).collect();
    // Two at `a`, and two and a listening socket at `b`; the connection before is not among them.
    let marked: Vec<&Connection> = set.iter().filter(|connection| connection.before.is_some()).collect();
    assert_eq!(marked.len(), 5, "{set:?}");
    for connection in marked {
        let before = connection.before.as_ref().expect("marked");
        assert_eq!((&before.control, before.least_timeout), (&own.control, own.least_timeout));
        assert_eq!((before.window_cap, before.pacing_rate), (own.window_cap, None));
        assert_eq!((connection.least_timeout, connection.window_cap), (least, 40));
    }
    for node in [&hosts.a, &hosts.b] {
        Hosts::tune(&mut tcp, node, &Settings::default());
        node.enter(|| Ok(tcp.give_back().expect("given back"))).expect("entered");
    }
    let third = (hosts.connect(), late.accept().expect("accepted"));
    for node in [&hosts.a, &hosts.b] {
        let seen = Hosts::look(&mut tcp, node);
        assert_eq!(seen.len(), 4, "{seen:?}");
        for connection in seen {
            let port = second.local_addr().expect("bound").port();
            let control = if connection.local.1 == port { other } else { &own.control };
            assert_eq!((&*connection.control, connection.before), (control, None));
            assert_eq!((connection.least_timeout, connection.pacing_rate), (own.least_timeout, None));
            // As much as can be set.
            assert!(connection.window_cap >= own.window_cap.min(i32::MAX as u32));
        }
    }
    drop((untouched, first, third));
    let outcomes = tcp.outcomes().expect("told");
    assert!(outcomes.iter().all(|outcome| outcome.refused == 0), "{outcomes:?}");
}
