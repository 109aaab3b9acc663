//! Programs in the kernel that set and read connections. `ss` and receivers show what the kernel has done.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bandmaster_core::time::Span;
use bandmaster_linux::kernel::tcp::{Connection, HostTcp, Settings, control_groups, tick};
use bandmaster_linux::netns::{Netns, set_parameter};
use socket2::{Domain, SockRef, Socket, Type};

use super::hosts::{A, B, HALF_A_SECOND, Hosts, Load, NOBODY, PORT, RATE, has};
use super::machine::{in_time, timely};

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
    let outcomes = tcp.outcomes().expect("read");
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
            let _ = socket.connect(&SocketAddr::from((NOBODY, PORT)).into());
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
        let outcomes = tcp.outcomes().expect("read");
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
    // Nothing is in force yet.
    Hosts::tune(&mut tcp, &hosts.a, &Settings::default());
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
        let given_back = node.enter(|| Ok(tcp.give_back())).expect("entered");
        given_back.expect("given back");
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
    let outcomes = tcp.outcomes().expect("read");
    assert!(outcomes.iter().all(|outcome| outcome.refused == 0), "{outcomes:?}");
}

/// What a receiver offers first does not choose the scale of its window: later it may offer more than 64 KiB.
#[test]
fn a_bound_on_the_first_window_does_not_bound_later_ones() {
    let test = "a_bound_on_the_first_window_does_not_bound_later_ones";
    in_time(test, || {
        let Some((hosts, mut tcp)) = Hosts::new(test) else { return Ok(()) };
        let first = Settings { receive_window: Some(20_000), first_offer: Some(4), ..Settings::default() };
        Hosts::tune(&mut tcp, &hosts.b, &first);
        // A sender that fills what it may.
        let reno = Settings { control: Some("reno".to_owned()), ..Settings::default() };
        Hosts::tune(&mut tcp, &hosts.a, &reno);
        let (here, there) = hosts.connection();
        // Of the SYN-ACK: four segments.
        let offered = Hosts::ss(&hosts.a, "state established");
        assert!(offered.contains("snd_wnd:5792"), "{offered}");
        let _load = Load::start(here, there);
        thread::sleep(HALF_A_SECOND);
        let receiver = Hosts::look(&mut tcp, &hosts.b)[0].clone();
        for (window, waits) in [(20_000, 10_000..23_000), (200_000, 120_000..230_000)] {
            let settings = Settings { receive_window: Some(window), ..Settings::default() };
            tcp.set(receiver.cookie, &settings).expect("set");
            Hosts::look(&mut tcp, &hosts.b);
            thread::sleep(HALF_A_SECOND * 2);
            let waiting = hosts.waiting();
            timely!(waits.contains(&waiting), "{waiting} bytes wait with a window of {window}");
        }
        Ok(())
    });
}

/// In a namespace that is recorded each end tells of a connection that has ended, from which end whatever began it.
#[test]
fn connections_that_end_are_told_with_bytes_and_times() {
    let Some((hosts, mut tcp)) = Hosts::new("connections_that_end_are_told_with_bytes_and_times") else {
        return;
    };
    drop(hosts.connection());
    assert_eq!(tcp.ends().expect("read").0, [], "nothing is recorded yet");
    for node in [&hosts.a, &hosts.b] {
        tcp.record(super::hosts::cookie(node)).expect("recorded");
    }
    // The answer of 500 bytes goes before the accepting end closes.
    let (mut here, mut there) = hosts.connection();
    let reader = thread::spawn(move || {
        let mut all = vec![0; 100_000];
        there.read_exact(&mut all).expect("read");
        there.write_all(&[1; 500]).expect("written");
        drop(there);
    });
    here.write_all(&[0; 100_000]).expect("written");
    let mut answer = Vec::new();
    here.read_to_end(&mut answer).expect("read");
    reader.join().expect("it ends");
    drop(here);
    thread::sleep(HALF_A_SECOND);
    let (mut ends, missed) = tcp.ends().expect("read");
    ends.sort_by_key(|end| !end.opened);
    let [opener, accepter] = &ends[..] else { panic!("{ends:?}") };
    assert_eq!((missed, opener.peer, accepter.peer), (0, B.into(), A.into()));
    assert!(opener.established && accepter.established && !accepter.opened);
    assert_eq!((opener.bytes, accepter.bytes), ([100_000, 500], [500, 100_000]));
    let [Some(sent), Some(received)] = opener.times else { panic!("{opener:?}") };
    // 100 kB take 41.8 ms at 20 Mbit/s, less the 5 kB that the shaper lets pass at once.
    for time in [sent, received] {
        assert!((0.038..0.4).contains(&time.as_secs_f64()), "{opener:?}");
    }
    // One that nobody accepts was never established.
    let nobody = hosts.a.enter(|| Ok(TcpStream::connect((B, PORT + 1)))).expect("entered");
    assert!(nobody.is_err());
    let (ends, _) = tcp.ends().expect("read");
    assert!(ends.iter().any(|end| end.opened && !end.established && end.bytes == [0, 0]), "{ends:?}");
    assert_eq!(tcp.ends().expect("read").0, []);
}

/// In a namespace that is followed, a connection is reported once its first window has arrived, and when it ends. The window that
/// is set for it stays, while the kernel looks for a buffer that fits.
#[test]
fn a_connection_that_is_followed_is_told_of_and_keeps_its_window() {
    let test = "a_connection_that_is_followed_is_told_of_and_keeps_its_window";
    in_time(test, || {
        let Some((hosts, mut tcp)) = Hosts::new(test) else { return Ok(()) };
        hosts.b.enter(|| set_parameter("net.ipv4.tcp_rmem", "4096 131072 6291456")).expect("set");
        // A sender that fills what it may.
        let reno = Settings { control: Some("reno".to_owned()), ..Settings::default() };
        Hosts::tune(&mut tcp, &hosts.a, &reno);
        let group = control_groups().expect("a group");
        tcp.hear(&group).and_then(|()| tcp.follow(super::hosts::cookie(&hosts.b))).expect("followed");
        let (mut here, mut there) = hosts.connection();
        here.write_all(&[0; 5000]).expect("written");
        there.read_exact(&mut [0; 5000]).expect("read");
        thread::sleep(HALF_A_SECOND / 5);
        assert_eq!(tcp.news(), [], "four segments are no flow");
        let load = Load::start(here, there);
        let begin = Instant::now();
        let told = loop {
            if let Some(told) = tcp.news().pop() {
                break told;
            }
            timely!(begin.elapsed() < HALF_A_SECOND, "nothing is reported");
        };
        assert!(told.carries && told.followed && told.local == (B.into(), PORT), "{told:?}");
        assert!((10 * 1448 + 1..14 * 1448).contains(&told.received), "{told:?}");
        tcp.set_window(told.cookie, 20_000).expect("set");
        thread::sleep(HALF_A_SECOND * 3);
        let waiting = hosts.waiting();
        timely!((10_000..23_000).contains(&waiting), "{waiting} bytes wait with a window of 20 kB");
        let now = Hosts::look(&mut tcp, &hosts.b)[0].clone();
        assert_eq!(now.receive_window, 20_000);
        // 20 kB at 20 Mbit/s.
        let rtt = now.receiver_rtt.expect("measured").as_secs_f64();
        timely!((0.006..0.011).contains(&rtt), "{rtt} s");
        drop(load);
        thread::sleep(HALF_A_SECOND);
        let ended = tcp.news().pop().expect("it is reported");
        assert!(!ended.carries && ended.cookie == told.cookie, "{ended:?}");
        Ok(())
    });
}

/// A watched namespace shows the same connections, with the same values, as a reading of the kernel's whole table: those from
/// before, those that begin, of all families, that end, that are closed but still open in their program, that are bound to an
/// interface, and more than fit into one answer.
#[test]
fn watched_connections_are_those_of_the_table() {
    let Some((hosts, mut tcp)) = Hosts::new("watched_connections_are_those_of_the_table") else { return };
    let mut table = HostTcp::only_live().expect("loaded");
    let mut old = hosts.connections(B, 3);
    Hosts::tune(
        &mut tcp,
        &hosts.a,
        &Settings { window_cap: Some(40), control: Some("reno".to_owned()), ..Settings::default() },
    );
    tcp.watch(super::hosts::cookie(&hosts.a)).expect("watched");
    let inside = hosts.a.enter(|| Ok(TcpListener::bind("[::]:7101").expect("a port"))).expect("entered");
    // Whether the connections can be looked up, and how many carry data.
    let mut same = |tcp: &mut HostTcp, can: bool, carrying: usize, what: &str| {
        let up = hosts.a.enter(|| Ok(tcp.look_up().expect("read"))).expect("entered");
        assert_eq!(up.is_some(), can, "{what}");
        let listening = |all: &[Connection]| all.iter().filter(|one| one.remote.1 == 0).count();
        for mut all in up.into_iter().chain([Hosts::look(tcp, &hosts.a)]) {
            assert_eq!(listening(&all), 1, "{what}");
            let mut expected = Hosts::look(&mut table, &hosts.a);
            // The other reader knows nothing of what was set.
            all.retain(|one| one.carries);
            expected.retain(|one| one.carries);
            assert_eq!(all.len(), carrying, "{what}");
            for one in &mut all {
                one.before = None;
            }
            for side in [&mut all, &mut expected] {
                side.sort_unstable_by_key(|one| one.cookie);
            }
            assert_eq!(all, expected, "{what}");
        }
    };
    same(&mut tcp, false, 3, "a socket listens since");
    same(&mut tcp, true, 3, "those from before");
    let mut new = hosts.connections(B, 400);
    for (here, there) in &mut new[..50] {
        here.write_all(&[0; 3000]).expect("written");
        there.read_exact(&mut [0; 3000]).expect("read");
    }
    thread::sleep(HALF_A_SECOND);
    same(&mut tcp, true, 403, "those from before and those that began");
    let connect =
        |to: &str| hosts.a.enter(|| Ok(TcpStream::connect(to).expect("connected"))).expect("entered");
    let own = ["[::1]:7101", "[::ffff:127.0.0.1]:7101", "127.0.0.1:7101"].map(connect);
    let own_ends = [(); 3].map(|()| inside.accept().expect("accepted"));
    same(&mut tcp, true, 409, "both ends of three within");
    let before = Hosts::look(&mut tcp, &hosts.a).into_iter().filter(|one| one.before.is_some());
    assert_eq!(before.count(), 407, "with the listening socket, which was set too");
    drop((own, own_ends));
    // A reset closes the socket, which its program still has.
    let reset = |(here, there): (TcpStream, TcpStream)| {
        SockRef::from(&there).set_linger(Some(Duration::ZERO)).expect("set");
        drop(there);
        here
    };
    let closed: Vec<TcpStream> = new.drain(..100).map(reset).collect();
    drop(new.drain(..100));
    // Nobody has seen this one begin, so nobody sees it end.
    old.pop();
    thread::sleep(HALF_A_SECOND);
    same(&mut tcp, false, 202, "one from before has ended");
    for look in 0..24 {
        same(&mut tcp, true, 202, &format!("look {look} after many ended"));
    }
    drop(closed);
    let listener = Hosts::listen(&hosts.b);
    let bound = || {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.bind_device(Some(b"cable"))?;
        socket.connect(&SocketAddr::from((B, PORT)).into())?;
        Ok::<_, std::io::Error>(socket)
    };
    let bound = hosts.a.enter(|| Ok(bound())).expect("entered");
    let bound = (bound.expect("connected"), listener.accept().expect("accepted"));
    for look in 0..12 {
        same(&mut tcp, false, 203, &format!("look {look} with one that is bound to an interface"));
    }
    drop((bound, listener));
    thread::sleep(HALF_A_SECOND);
    Hosts::look(&mut tcp, &hosts.a);
    let many = hosts.connections(B, 4600);
    for look in 0..12 {
        same(&mut tcp, false, 4802, &format!("look {look} at many"));
    }
    drop(many);
    thread::sleep(HALF_A_SECOND);
    for _ in 0..2 {
        same(&mut tcp, false, 202, "they are few again");
    }
    for look in 0..12 {
        same(&mut tcp, true, 202, &format!("look {look} after many"));
    }
    // Others come and go on another processor while the kernel looks these up.
    let ends = AtomicBool::new(false);
    let listener = Hosts::listen(&hosts.b);
    let connect = || {
        while !ends.load(Ordering::Relaxed) {
            let here = TcpStream::connect((B, PORT)).expect("connected");
            SockRef::from(&here).set_linger(Some(Duration::ZERO)).expect("set");
            drop((here, listener.accept().expect("accepted")));
        }
        Ok(())
    };
    let kept: BTreeSet<u64> = Hosts::look(&mut tcp, &hosts.a).iter().map(|one| one.cookie).collect();
    let looked_up = thread::scope(|scope| {
        scope.spawn(|| hosts.a.enter(connect).expect("entered"));
        let looks = (0..400).map(|_| {
            let up = hosts.a.enter(|| Ok(tcp.look_up().expect("read"))).expect("entered");
            let is_up = up.is_some();
            let all = up.unwrap_or_else(|| Hosts::look(&mut tcp, &hosts.a));
            let all: BTreeSet<u64> = all.iter().map(|one| one.cookie).collect();
            assert!(kept.is_subset(&all), "{:?}", kept.difference(&all));
            usize::from(is_up)
        });
        let looked_up: usize = looks.sum();
        ends.store(true, Ordering::Relaxed);
        looked_up
    });
    assert!(looked_up > 200, "{looked_up} of 400");
}
