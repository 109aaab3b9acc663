//! The program that lowers windows, run on packets that nobody sent.

use std::time::{Duration, Instant};

use aya::maps::{Array, MapData, ProgramArray};
use aya::programs::{SchedClassifier, TestRunOptions};
use aya::{Ebpf, TestRun};
use bandmaster_core::rng::Stream;
use bandmaster_core::time::Span;
use bandmaster_linux::kernel::windows::{Direction, Flow, Windows};

use super::machine::{no_lab, skip};

const ETHERNET: usize = 14;
/// What the law gives the flows of this test, in steps of 2^7 bytes.
const WINDOW: u64 = 2944;
const SCALE: u8 = 7;
/// Ports of flows that only whole acknowledgements belong to, and of those that anything may come to.
const CALM: [u16; 2] = [7000, 7001];
const WILD: [u16; 2] = [7100, 7103];
const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

/// A frame with a segment of TCP.
#[derive(Clone, Debug)]
struct Frame {
    /// IPv6 instead of IPv4.
    is_v6: bool,
    /// VLAN tags.
    tags: Vec<u16>,
    /// Of the receiver.
    arrives: bool,
    flags: u8,
    window: u16,
    /// 4-byte words of options of IPv4, or extension headers of IPv6.
    extras: u8,
    options: Vec<u8>,
    payload: Vec<u8>,
    numbers: [u32; 2],
    /// Of the sender and the receiver.
    ports: [u16; 2],
}

/// Ones' complement sum, folded.
fn sum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)));
    let mut sum: u64 = words.map(u64::from).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

impl Frame {
    fn new(arrives: bool, flags: u8) -> Self {
        let (tags, options, payload) = Default::default();
        Self {
            is_v6: false,
            tags,
            arrives,
            flags,
            window: 500,
            extras: 0,
            options,
            payload,
            numbers: [1, 1],
            ports: CALM,
        }
    }

    /// The frame, and where its TCP header is.
    fn bytes(&self) -> (Vec<u8>, usize) {
        // To the loopback device, which the kernel takes for the one by which the frame came.
        let mut frame = vec![0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 2];
        for tag in &self.tags {
            frame.extend([0x81, 0, (tag >> 8) as u8, *tag as u8]);
        }
        let addresses = |length: usize| {
            let end = |last: u8| {
                let mut address = vec![0x20; length];
                address[length - 1] = last;
                address
            };
            let ends = [end(1), end(2)];
            if self.arrives { [&ends[1][..], &ends[0]].concat() } else { ends.concat() }
        };
        let mut options = self.options.clone();
        options.resize(options.len().next_multiple_of(4), 0);
        let mut ports = self.ports;
        if self.arrives {
            ports.reverse();
        }
        let mut tcp: Vec<u8> = ports.iter().flat_map(|port| port.to_be_bytes()).collect();
        tcp.extend(self.numbers.iter().flat_map(|number| number.to_be_bytes()));
        tcp.extend([((20 + options.len()) / 4 * 16) as u8, self.flags]);
        tcp.extend(self.window.to_be_bytes());
        tcp.extend([0; 4]);
        tcp.extend(&options);
        tcp.extend(&self.payload);
        let whole = addresses(if self.is_v6 { 16 } else { 4 });
        let pseudo = [&whole[..], &[0, 6], &(tcp.len() as u16).to_be_bytes(), &tcp].concat();
        let checksum = !sum(&pseudo);
        tcp[16..18].copy_from_slice(&checksum.to_be_bytes());
        if self.is_v6 {
            let extras = usize::from(self.extras.min(3));
            let length = (extras * 8 + tcp.len()) as u16;
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend(length.to_be_bytes());
            frame.extend([if extras > 0 { 60 } else { 6 }, 64]);
            frame.extend(&whole);
            for left in (0..extras).rev() {
                frame.extend([if left > 0 { 60 } else { 6 }, 0, 1, 4, 0, 0, 0, 0]);
            }
        } else {
            let header = 20 + usize::from(self.extras) * 4;
            frame.extend([8, 0, 0x40 | (header / 4) as u8, 0]);
            frame.extend(((header + tcp.len()) as u16).to_be_bytes());
            frame.extend([0, 7, 0x40, 0, 64, 6, 0, 0]);
            frame.extend(&whole);
            frame.extend(std::iter::repeat_n(1, header - 20));
        }
        let at = frame.len();
        frame.extend(tcp);
        (frame, at)
    }
}

/// The programs; none, with the reason on stderr, where the kernel does not take them.
fn windows(test: &str) -> Option<Windows> {
    if let Some(why) = no_lab() {
        skip(test, why);
        return None;
    }
    Windows::load().inspect_err(|why| skip(test, why)).ok()
}

/// The handshake of a flow, after which its window is [`WINDOW`]. With `scales` both ends scale.
fn handshake(windows: &mut Windows, like: &Frame, scales: bool) {
    let options = |scale: u8| {
        let scale = if scales { vec![1, 3, 3, scale] } else { Vec::new() };
        [vec![2, 4, 5, 0xb4, 1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2], scale].concat()
    };
    let syn = Frame { flags: SYN, arrives: false, options: options(2), numbers: [0, 0], ..like.clone() };
    let answer =
        Frame { flags: SYN | ACK, arrives: true, options: options(SCALE), numbers: [9, 1], ..like.clone() };
    for (direction, frame) in [(Direction::Departs, syn), (Direction::Arrives, answer)] {
        windows.try_on(direction, &frame.bytes().0, 1, 1).unwrap_or_else(|why| panic!("{why}"));
    }
    for flow in windows.flows().unwrap_or_else(|why| panic!("{why}")) {
        windows.set(&flow, WINDOW).unwrap_or_else(|why| panic!("{why}"));
    }
}

/// Whatever comes, only the window and the checksum of a segment of the receiver change, the window only becomes less, and
/// the sum that the checksum makes even stays as it was. `BANDMASTER_FUZZ` packets or as many as a minute allows; 200,000
/// without.
#[test]
fn hostile_packets_keep_all_but_their_windows() {
    let test = "hostile_packets_keep_all_but_their_windows";
    let Some(windows) = windows(test) else { return };
    hostile(windows);
    hostile(Windows::load_timed().unwrap_or_else(|why| panic!("{why}")));
}

fn hostile(mut windows: Windows) {
    let many: u64 = std::env::var("BANDMASTER_FUZZ").ok().and_then(|n| n.parse().ok()).unwrap_or(200_000);
    let mut random = Stream::new(3, 0, "packets");
    for (is_v6, tags) in [(false, vec![]), (true, vec![]), (false, vec![5]), (true, vec![5])] {
        windows.beat(1).expect("heard");
        for ports in [CALM, WILD] {
            handshake(
                &mut windows,
                &Frame { is_v6, tags: tags.clone(), ports, ..Frame::new(false, 0) },
                true,
            );
        }
    }
    let flows = windows.flows().expect("read");
    assert_eq!(flows.iter().filter(|flow| flow.is_established()).count(), 8, "{flows:?}");
    let (begin, mut lowered, mut tried, mut ran) = (Instant::now(), 0u64, 0u64, 0u64);
    while tried < many && begin.elapsed() < Duration::from_secs(60) {
        if tried.is_multiple_of(256) {
            windows.beat(1).expect("heard");
        }
        tried += 1;
        let bytes =
            |random: &mut Stream, most| (0..random.below(most)).map(|_| random.next_u64() as u8).collect();
        let mut frame = Frame {
            is_v6: random.chance(0.5),
            tags: vec![5; [0, 0, 0, 1, 1, 2][random.below(6) as usize]],
            window: random.next_u64() as u16,
            extras: if random.chance(0.3) { random.below(11) as u8 } else { 0 },
            options: if random.chance(0.5) { bytes(&mut random, 41) } else { Vec::new() },
            payload: bytes(&mut random, 60),
            numbers: [random.next_u64() as u32, random.below(4000) as u32],
            ..Frame::new(random.chance(0.8), ACK)
        };
        let is_whole = random.chance(0.6);
        frame.flags |= random.next_u64() as u8 & !(FIN | SYN | RST);
        if !is_whole {
            frame.ports = WILD;
            if random.chance(0.1) {
                frame.flags = random.next_u64() as u8;
            }
        }
        let (mut sent, mut at) = frame.bytes();
        if !is_whole {
            match random.below(3) {
                0 => sent.truncate(ETHERNET + 1 + random.below((sent.len() - ETHERNET) as u64) as usize),
                1 => (0..=random.below(4)).for_each(|_| {
                    let at = random.below(sent.len() as u64) as usize;
                    sent[at] = random.next_u64() as u8;
                }),
                _ => {
                    let from = ETHERNET + random.below((sent.len() - ETHERNET) as u64) as usize;
                    sent[from..].iter_mut().for_each(|byte| *byte = random.next_u64() as u8);
                }
            }
        }
        let direction = if frame.arrives { Direction::Arrives } else { Direction::Departs };
        let got = match windows.try_on(direction, &sent, 1, 1) {
            Ok((got, _)) => got,
            // The kernel runs no program on a frame without a whole header of IP.
            Err(_) if !is_whole => continue,
            Err(why) => panic!("{sent:?}: {why}"),
        };
        ran += 1;
        assert_eq!(got.len(), sent.len());
        let changed: Vec<usize> = (0..sent.len()).filter(|byte| sent[*byte] != got[*byte]).collect();
        if changed.is_empty() {
            continue;
        }
        lowered += 1;
        assert!(frame.arrives, "{sent:?}: what departs is not changed");
        if !is_whole {
            // A header that was changed moves it.
            at = tcp_at(&sent).unwrap_or_else(|| panic!("{sent:?}: no segment, and changed"));
        }
        let [window, checksum] = [14, 16].map(|field| at + field..at + field + 2);
        let of_fields = |byte: &usize| window.contains(byte) || checksum.contains(byte);
        assert!(changed.iter().all(of_fields), "{sent:?}: {changed:?} changed");
        let value = |bytes: &[u8]| u16::from_be_bytes([bytes[window.start], bytes[window.start + 1]]);
        assert!(value(&got) < value(&sent), "{sent:?}: {} from {}", value(&got), value(&sent));
        // Padded to the parity of the header, so that words are the checksum's. 0 and ffff are the same.
        let even = |bytes: &[u8]| sum(&bytes[at..]) % 0xffff;
        assert_eq!(even(&sent), even(&got), "{sent:?}: the checksum does not follow");
        if is_whole {
            assert_eq!(u64::from(value(&got)), WINDOW >> SCALE, "{sent:?}");
        }
    }
    println!(
        "{tried} packets, of which the kernel took {ran}; {lowered} windows lowered, in {:?}",
        begin.elapsed()
    );
    assert!(lowered > ran / 10, "{lowered} of {ran} were lowered");
}

/// Where the TCP header of a frame is, as a reader of the protocols finds it.
fn tcp_at(frame: &[u8]) -> Option<usize> {
    let u16_at = |at: usize| Some(u16::from_be_bytes([*frame.get(at)?, *frame.get(at + 1)?]));
    let (mut at, mut kind) = (ETHERNET, u16_at(12)?);
    if matches!(kind, 0x8100 | 0x88a8) {
        (kind, at) = (u16_at(16)?, 18);
    }
    match kind {
        0x0800 => (*frame.get(at + 9)? == 6).then_some(at + usize::from(frame[at] & 15) * 4),
        0x86dd => {
            let mut next = *frame.get(at + 6)?;
            at += 40;
            while matches!(next, 0 | 43 | 60) {
                next = *frame.get(at)?;
                at += (usize::from(*frame.get(at + 1)?) + 1) * 8;
            }
            (next == 6).then_some(at)
        }
        _ => None,
    }
}

/// What is right for each kind of segment, worked by hand.
#[test]
fn windows_are_lowered_as_the_handshake_scales_them() {
    let test = "windows_are_lowered_as_the_handshake_scales_them";
    let Some(mut windows) = windows(test) else { return };
    let at = |windows: &mut Windows, frame: &Frame| {
        let (sent, at) = frame.bytes();
        let direction = if frame.arrives { Direction::Arrives } else { Direction::Departs };
        let (got, _) = windows.try_on(direction, &sent, 1, 1).unwrap_or_else(|why| panic!("{why}"));
        u16::from_be_bytes([got[at + 14], got[at + 15]])
    };
    let acks = Frame { window: 502, ..Frame::new(true, ACK) };
    // Nobody has been heard: windows stay as they are.
    handshake(&mut windows, &acks, true);
    assert_eq!(at(&mut windows, &acks), 502);
    windows.beat(1).expect("heard");
    assert_eq!(at(&mut windows, &acks), 23, "2944 B in steps of 128");
    assert_eq!(at(&mut windows, &Frame { window: 22, ..acks.clone() }), 22, "the least of both");
    assert_eq!(at(&mut windows, &Frame { window: 0, ..acks.clone() }), 0);
    assert_eq!(at(&mut windows, &Frame { arrives: false, ..acks.clone() }), 502, "a window of the sender");
    assert_eq!(at(&mut windows, &Frame { flags: ACK | RST, ..Frame { is_v6: true, ..acks.clone() } }), 502);
    let options = vec![2, 4, 5, 0xb4, 3, 3, SCALE, 1];
    let answer = Frame { flags: SYN | ACK, window: 64_240, options, numbers: [9, 1], ..acks.clone() };
    assert_eq!(at(&mut windows, &answer), 2944, "a SYN-ACK does not scale");
    // A flow whose handshake nobody saw, and one whose sender does not scale.
    let unknown = Frame { is_v6: true, ..acks.clone() };
    assert_eq!(at(&mut windows, &unknown), 502);
    handshake(&mut windows, &unknown, false);
    assert_eq!(at(&mut windows, &Frame { window: 60_000, ..unknown.clone() }), 2944);
    // Fragments and two tags cannot be read.
    let before = windows.counts().expect("read");
    let two = Frame { tags: vec![5, 6], ..acks.clone() };
    assert_eq!(at(&mut windows, &two), 502);
    let counts = windows.counts().expect("read");
    assert_eq!((counts.unread, counts.unknown), (before.unread + 1, before.unknown));
    // The daemon falls silent.
    std::thread::sleep(Duration::from_millis(600));
    assert_eq!(at(&mut windows, &acks), 502);
}

/// Until the law has spoken a window is a segment as its field can state it: rounded up, and never nothing.
#[test]
fn first_windows_are_a_segment_rounded_up() {
    let test = "first_windows_are_a_segment_rounded_up";
    let Some(mut windows) = windows(test) else { return };
    windows.beat(1).expect("heard");
    for (port, mss, scale, expected) in
        [(1, 1460u16, 0, 1460), (2, 1460, 7, 12), (3, 1460, 11, 1), (4, 1460, 14, 1), (5, 0, 0, 1)]
    {
        let [high, low] = mss.to_be_bytes();
        let options = vec![2, 4, high, low, 3, 3, scale, 1];
        let like = Frame { ports: [7200, 7200 + port], options, ..Frame::new(true, ACK) };
        let syn = Frame { flags: SYN, arrives: false, numbers: [0, 0], ..like.clone() };
        let answer = Frame { flags: SYN | ACK, numbers: [9, 1], ..like.clone() };
        let ack = Frame { options: Vec::new(), window: u16::MAX, ..like };
        let mut got = 0;
        for frame in [syn, answer, ack] {
            let direction = if frame.arrives { Direction::Arrives } else { Direction::Departs };
            let (sent, at) = frame.bytes();
            let (bytes, _) = windows.try_on(direction, &sent, 1, 1).unwrap_or_else(|why| panic!("{why}"));
            got = u16::from_be_bytes([bytes[at + 14], bytes[at + 15]]);
        }
        assert_eq!(got, expected, "segments of {mss} B, scale {scale}");
    }
}

/// What is signed, windows included, makes no flow (RFC 2385, RFC 5925).
#[test]
fn signed_connections_pass_as_they_are() {
    let test = "signed_connections_pass_as_they_are";
    let Some(mut windows) = windows(test) else { return };
    windows.beat(1).expect("heard");
    for (port, kind, length) in [(1, 19, 18), (2, 29, 16), (3, 3, 3)] {
        let mut options = vec![0; 20];
        options[..2].copy_from_slice(&[kind, length]);
        let like = Frame { ports: [7200, 7200 + port], options, ..Frame::new(true, ACK) };
        let syn = Frame { flags: SYN, arrives: false, numbers: [0, 0], ..like.clone() };
        let answer = Frame { flags: SYN | ACK, numbers: [9, 1], ..like.clone() };
        let ack = Frame { window: u16::MAX, ..like };
        let mut got = 0;
        for frame in [syn, answer, ack] {
            let direction = if frame.arrives { Direction::Arrives } else { Direction::Departs };
            let (sent, at) = frame.bytes();
            let (bytes, _) = windows.try_on(direction, &sent, 1, 1).unwrap_or_else(|why| panic!("{why}"));
            got = u16::from_be_bytes([bytes[at + 14], bytes[at + 15]]);
        }
        assert_eq!(got == u16::MAX, kind != 3, "option {kind}: {got}");
    }
    assert_eq!(windows.flows().expect("read").len(), 1);
}

/// Segments that offload has yet to cut are payload, without the header of Ethernet.
#[test]
fn what_offload_cuts_is_counted_without_headers() {
    let test = "what_offload_cuts_is_counted_without_headers";
    let Some(mut windows) = windows(test) else { return };
    for (is_v6, tags) in [(false, vec![]), (true, vec![]), (false, vec![5])] {
        let like = Frame { is_v6, tags, ..Frame::new(false, ACK) };
        handshake(&mut windows, &like, true);
        for (segments, begin) in [(1, 1), (2, 1001)] {
            let data = Frame { payload: vec![0; 1000], numbers: [begin, 10], ..like.clone() };
            windows
                .try_on(Direction::Departs, &data.bytes().0, segments, 1)
                .unwrap_or_else(|why| panic!("{why}"));
        }
    }
    let flows = windows.flows().expect("read");
    assert_eq!(flows.iter().map(Flow::came).collect::<Vec<_>>(), [2000; 3]);
}

/// A program that makes a packet what it was before each of many runs, of a flow drawn among many.
static REPEAT: &[u8] = aya::include_bytes_aligned!("../../bpf/repeat.o");

/// Another program, run as often as its time can be told.
struct Repeat {
    kernel: Ebpf,
    settings: Array<MapData, [u32; 6]>,
    programs: ProgramArray<MapData>,
}

/// The frame with the addresses and ports that the program of `bpf/repeat.c` gives to this flow.
fn of_flow(mut frame: Vec<u8>, arrives: bool, flow: u32) -> Vec<u8> {
    let (address, port) = if arrives { (32, 36) } else { (28, 34) };
    frame[address..address + 2].copy_from_slice(&((flow >> 14) as u16).to_be_bytes());
    frame[port..port + 2].copy_from_slice(&((flow & 0x3fff) as u16).to_be_bytes());
    frame
}

impl Repeat {
    fn load() -> Self {
        let mut kernel = Ebpf::load(REPEAT).expect("loaded");
        let settings = Array::try_from(kernel.take_map("SETTINGS").expect("a map")).expect("an array");
        let programs =
            ProgramArray::try_from(kernel.take_map("NEXT_PROGRAM").expect("a map")).expect("programs");
        for name in ["again", "nothing"] {
            let program: &mut SchedClassifier =
                kernel.program_mut(name).expect("a program").try_into().expect("a classifier");
            program.load().expect("loaded");
        }
        Self { kernel, settings, programs }
    }

    /// Nanoseconds of a run, of the program and of one that does nothing, each with what makes the packet again: the median of
    /// `many` runs, by a thousand.
    fn times(
        &mut self,
        windows: &mut Windows,
        direction: Direction,
        frame: &[u8],
        flows: u32,
        many: usize,
    ) -> [u64; 2] {
        const AT_ONCE: u32 = 1000;
        let arrives = u32::from(direction == Direction::Arrives);
        let fields = u32::from_ne_bytes(frame[48..52].try_into().expect("four"));
        self.programs.set(0, windows.descriptor(direction).expect("loaded"), 0).expect("set");
        let nothing: &SchedClassifier =
            self.kernel.program("nothing").expect("a program").try_into().expect("a classifier");
        self.programs.set(1, nothing.fd().expect("loaded"), 0).expect("set");
        let mut times = [Vec::new(), Vec::new()];
        for run in 0..many / AT_ONCE as usize {
            windows.beat(1).expect("heard");
            for (program, times) in times.iter_mut().enumerate() {
                self.settings
                    .set(0, [run as u32, 7, flows, arrives, fields, program as u32], 0)
                    .expect("set");
                let again: &SchedClassifier =
                    self.kernel.program("again").expect("a program").try_into().expect("a classifier");
                let options =
                    TestRunOptions { data_in: Some(frame), repeat: AT_ONCE, ..TestRunOptions::new() };
                times.push(again.test_run(options).expect("run").duration.as_nanos() as u64);
            }
        }
        times.map(|mut times| {
            times.sort_unstable();
            times[times.len() / 2]
        })
    }
}

/// Prints what the programs take for a packet, of a few flows and of 100,000; how long that is depends on the machine.
/// `BANDMASTER_FUZZ` packets; 100,000 without.
#[test]
fn the_time_for_a_segment_is_told() {
    let test = "the_time_for_a_segment_is_told";
    let Some(windows) = windows(test) else { return };
    tell_times("QCBF", windows);
    tell_times("BAS", Windows::load_timed().unwrap_or_else(|why| panic!("{why}")));
}

fn tell_times(scheme: &str, mut windows: Windows) {
    let many: usize = std::env::var("BANDMASTER_FUZZ").ok().and_then(|n| n.parse().ok()).unwrap_or(100_000);
    let mut repeat = Repeat::load();
    let options = vec![1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2];
    let acks = Frame { options, ..Frame::new(true, ACK) };
    let data = Frame { arrives: false, payload: vec![0; 1448], ..acks.clone() };
    let low = Frame { window: 20, ..acks.clone() };
    let options = |scale| vec![2, 4, 5, 0xb4, 1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2, 1, 3, 3, scale];
    let syn = Frame { flags: SYN, options: options(2), numbers: [0, 0], ..Frame::new(false, SYN) };
    let answer = Frame { options: options(SCALE), numbers: [9, 1], ..Frame::new(true, SYN | ACK) };
    let (syn, answer) = (syn.bytes().0, answer.bytes().0);
    let all = if many < 1_000_000 { 10_000 } else { 100_000 };
    let mut known = 0;
    for flows in [16, all] {
        for flow in known..flows {
            for (direction, frame) in [(Direction::Departs, &syn), (Direction::Arrives, &answer)] {
                let frame = of_flow(frame.clone(), direction == Direction::Arrives, flow);
                windows.try_on(direction, &frame, 1, 1).unwrap_or_else(|why| panic!("{why}"));
            }
        }
        known = flows;
        let rows = windows.flows().expect("read");
        assert_eq!(rows.iter().filter(|flow| flow.is_established()).count(), flows as usize);
        for flow in rows {
            windows.set(&flow, WINDOW).expect("set");
        }
        for (what, direction, frame, lowers) in [
            ("an acknowledgement that is lowered", Direction::Arrives, &acks, true),
            ("one that is not", Direction::Arrives, &low, false),
            ("data", Direction::Departs, &data, false),
        ] {
            let before = windows.counts().expect("read");
            let frame = frame.bytes().0;
            let [time, nothing] = repeat.times(&mut windows, direction, &frame, flows, many);
            let counts = windows.counts().expect("read");
            assert_eq!((counts.unknown, counts.unread), (before.unknown, before.unread), "{what}");
            // A processor may have been away for longer than a silent daemon is waited for.
            let heard = (counts.acks - before.acks) - (counts.silent - before.silent);
            assert!(heard * 10 >= 9 * many as u64 || direction == Direction::Departs, "{what}: {counts:?}");
            assert_eq!(counts.lowered - before.lowered, if lowers { heard } else { 0 }, "{what}");
            println!(
                "{scheme}, {flows} flows, {what}: {time} ns a run, {nothing} ns without the program: {} ns",
                time.saturating_sub(nothing)
            );
        }
    }
}

/// Who knows addresses and ports, and no sequence numbers, ends no flow, replaces none, and changes no scale. Who knows them does.
#[test]
fn forged_segments_end_no_flow() {
    let test = "forged_segments_end_no_flow";
    let Some(mut windows) = windows(test) else { return };
    windows.beat(1).expect("heard");
    let like = Frame { window: 502, ..Frame::new(true, ACK) };
    handshake(&mut windows, &like, true);
    let put = |windows: &mut Windows, frame: &Frame| {
        let direction = if frame.arrives { Direction::Arrives } else { Direction::Departs };
        let (sent, at) = frame.bytes();
        let (got, _) = windows.try_on(direction, &sent, 1, 1).unwrap_or_else(|why| panic!("{why}"));
        u16::from_be_bytes([got[at + 14], got[at + 15]])
    };
    let flow = |windows: &Windows| windows.flows().expect("read")[0];
    let first = flow(&windows).id();
    let far = 0x4000_0000;
    let options = vec![2, 4, 5, 0xb4, 3, 3, 0, 1];
    for arrives in [false, true] {
        for (flags, numbers) in
            [(RST, [far, 0]), (RST | ACK, [far, far]), (FIN | ACK, [far, far]), (ACK, [far, far])]
        {
            put(&mut windows, &Frame { arrives, flags, numbers, ..like.clone() });
        }
        for flags in [SYN | ACK, SYN] {
            put(
                &mut windows,
                &Frame { arrives, flags, numbers: [far, far], options: options.clone(), ..like.clone() },
            );
        }
        let now = flow(&windows);
        assert_eq!((now.id(), now.has_ended(), now.came(), now.acked()), (first, false, 0, 0), "{arrives}");
        assert_eq!(put(&mut windows, &like), 23, "in the steps of the handshake");
    }
    // The sender opens a new connection, and the receiver answers: it knows the old one no more.
    let begins =
        Frame { arrives: false, flags: SYN, numbers: [far, 0], options: options.clone(), ..like.clone() };
    let answers = Frame { flags: SYN | ACK, numbers: [5, far + 1], options, ..like.clone() };
    put(&mut windows, &begins);
    assert_eq!(flow(&windows).id(), first, "nobody has answered");
    put(&mut windows, &answers);
    let second = flow(&windows);
    assert!(second.id() != first && second.is_established() && !second.has_ended());
    // Each end's RST.
    put(&mut windows, &Frame { flags: RST, numbers: [6, 0], ..like.clone() });
    assert!(flow(&windows).has_ended());
    put(&mut windows, &begins);
    put(&mut windows, &answers);
    put(&mut windows, &Frame { arrives: false, flags: RST, numbers: [far + 1, 0], ..like.clone() });
    assert!(flow(&windows).has_ended());
    // A SYN that is refused.
    put(&mut windows, &begins);
    assert!(!flow(&windows).has_ended());
    put(&mut windows, &Frame { flags: RST | ACK, numbers: [0, far + 1], ..like.clone() });
    assert!(flow(&windows).has_ended());
}

/// Another route carries a flow for 2 MiB from both ends. Counting restarts where data and their acknowledgement agree; neither
/// alone moves it, nor do both with a segment that fits in between.
#[test]
fn numbers_begin_anew_after_a_gap() {
    let test = "numbers_begin_anew_after_a_gap";
    let Some(mut windows) = windows(test) else { return };
    let like = Frame::new(false, ACK);
    handshake(&mut windows, &like, true);
    let put = |windows: &mut Windows, arrives: bool, flags: u8, numbers: [u32; 2], bytes: usize| {
        let direction = if arrives { Direction::Arrives } else { Direction::Departs };
        let frame = Frame { arrives, flags, numbers, payload: vec![0; bytes], ..like.clone() };
        windows.try_on(direction, &frame.bytes().0, 1, 1).unwrap_or_else(|why| panic!("{why}"));
    };
    let offsets = |windows: &Windows| {
        let flow = windows.flows().expect("read")[0];
        (flow.came(), flow.acked())
    };
    put(&mut windows, false, ACK, [1, 10], 1000);
    put(&mut windows, true, ACK, [10, 1001], 0);
    assert_eq!(offsets(&windows), (1000, 1000));
    let gap = 2 << 20;
    // An acknowledgement, and data, of which the other end says nothing; then data that the old numbers follow.
    put(&mut windows, true, ACK, [10, 2001 + gap], 0);
    put(&mut windows, false, ACK, [1001 + gap, 10], 1000);
    assert_eq!(offsets(&windows), (1000, 1000));
    put(&mut windows, true, ACK, [10, 1001], 0);
    put(&mut windows, true, ACK, [10, 2001 + gap], 0);
    assert_eq!(offsets(&windows), (1000, 1000));
    // Both.
    put(&mut windows, false, ACK, [1001 + gap, 10], 1000);
    put(&mut windows, true, ACK, [10, 2001 + gap], 0);
    assert_eq!(offsets(&windows), (2000 + gap, 2000 + gap));
    put(&mut windows, false, ACK, [2001 + gap, 10], 1000);
    assert_eq!(offsets(&windows), (3000 + gap, 2000 + gap));
    // The receiver's own data, and its RST.
    put(&mut windows, true, ACK, [10 + gap, 3001 + gap], 100);
    put(&mut windows, true, RST, [110 + gap, 0], 0);
    assert!(!windows.flows().expect("read")[0].has_ended(), "nobody has acknowledged it");
    put(&mut windows, false, ACK, [3001 + gap, 110 + gap], 0);
    put(&mut windows, true, RST, [110 + gap, 0], 0);
    assert!(windows.flows().expect("read")[0].has_ended());
    // The FIN of a sender.
    let mut windows = Windows::load().expect("loaded");
    handshake(&mut windows, &like, true);
    put(&mut windows, false, ACK, [1 + gap, 10], 1000);
    put(&mut windows, true, ACK, [10, 1001 + gap], 0);
    put(&mut windows, false, FIN | ACK, [1001 + gap, 10], 0);
    assert!(windows.flows().expect("read")[0].has_ended());
}

/// Both halves of a round trip are measured by the handshake, and later by what is acknowledged and by the receiver's timestamps.
/// What is sent again tells no time, nor does a timestamp that the receiver sent before.
#[test]
fn round_trips_are_measured_in_halves() {
    let test = "round_trips_are_measured_in_halves";
    if windows(test).is_none() {
        return;
    }
    let mut windows = Windows::load_timed().unwrap_or_else(|why| panic!("{why}"));
    let stamps = |clock: u32, echo: u32| {
        [vec![1, 1, 8, 10], clock.to_be_bytes().to_vec(), echo.to_be_bytes().to_vec()].concat()
    };
    let put =
        |windows: &mut Windows, arrives: bool, flags: u8, numbers: [u32; 2], stamps: &[u8], bytes: usize| {
            let direction = if arrives { Direction::Arrives } else { Direction::Departs };
            let mss: &[u8] = if flags & SYN > 0 { &[2, 4, 5, 0xb4] } else { &[] };
            let options = [stamps, mss].concat();
            let frame =
                Frame { flags, numbers, options, payload: vec![0; bytes], ..Frame::new(arrives, ACK) };
            windows.try_on(direction, &frame.bytes().0, 1, 1).unwrap_or_else(|why| panic!("{why}"));
        };
    let wait = |millis| std::thread::sleep(Duration::from_millis(millis));
    let flow = |windows: &Windows| windows.flows().expect("read")[0];
    let trip = |windows: &Windows| windows.round_trip(&flow(windows));
    let span = |begin: Instant| Span::from_nanos(begin.elapsed().as_nanos() as u64) + Span::from_micros(4);
    let begin = Instant::now();
    put(&mut windows, false, SYN, [0, 0], &stamps(1, 0), 0);
    wait(20);
    put(&mut windows, true, SYN | ACK, [9, 1], &stamps(90, 1), 0);
    assert_eq!(trip(&windows), None, "a half is missing");
    wait(10);
    put(&mut windows, false, ACK, [1, 10], &stamps(2, 90), 0);
    let first = trip(&windows).expect("measured");
    assert!(first.last >= Span::from_millis(30) && first.last <= span(begin), "{first:?}");
    assert_eq!((first.least, first.smoothed), (first.last, first.last));
    // Sent again: which of the two is acknowledged nobody knows.
    put(&mut windows, false, ACK, [1, 10], &stamps(3, 90), 1000);
    wait(5);
    put(&mut windows, false, ACK, [1, 10], &stamps(4, 90), 1000);
    put(&mut windows, true, ACK, [10, 1001], &stamps(91, 3), 0);
    assert_eq!(trip(&windows), Some(first));
    // The receiver's half takes 8 ms, then the sender's 3: the least of each.
    let begin = Instant::now();
    put(&mut windows, false, ACK, [1001, 10], &stamps(5, 91), 1000);
    put(&mut windows, false, ACK, [2001, 10], &stamps(5, 91), 1000);
    wait(8);
    put(&mut windows, true, ACK, [10, 2001], &stamps(92, 5), 0);
    wait(3);
    let before = trip(&windows).expect("measured");
    put(&mut windows, false, ACK, [3001, 10], &stamps(6, 91), 1000);
    assert_eq!(trip(&windows), Some(before), "a timestamp of before");
    put(&mut windows, false, ACK, [4001, 10], &stamps(6, 92), 1000);
    let second = trip(&windows).expect("measured");
    assert!(second.last >= Span::from_millis(11) && second.last <= span(begin), "{second:?}");
    assert!(second.least == second.last && second.smoothed > second.least, "{second:?}");
    let known = flow(&windows);
    windows.forget(&known);
    assert_eq!(windows.round_trip(&known), None);
}
