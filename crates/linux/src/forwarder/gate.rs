//! Windows that a scheme sets in the acknowledgements that pass a port: the simulator's program, on the kernel's packets.
//!
//! A SYN tells a connection's segments, its begin, and the scale of its windows. Of an acknowledgement the window and the checksum
//! are changed, nothing else. Segments of connections whose SYN did not pass go on as they are.

use std::collections::BTreeMap;

use bandmaster_core::id::FlowId;
use bandmaster_core::port::window::{AckVerdict, Offset, Segment, WindowProgram};
use bandmaster_core::time::Time;
use bandmaster_core::units::tcp_headers;
use etherparse::{IpNumber, Ipv4HeaderSlice, TcpHeaderSlice, TcpOptionElement};

/// Places in a header of TCP, the flag that reports marks, and options.
const FLAGS: usize = 12;
const WINDOW: usize = 14;
const CHECKSUM: usize = 16;
const OPTIONS: usize = 20;
const ECE: u16 = 0x40;
const SYN: u16 = 2;
const SEQUENCE: usize = 4;
const NOP: u8 = 1;
const TIMESTAMPS: u8 = 8;
/// Of a SYN that states none (RFC 9293, section 3.7.1).
const DEFAULT_MSS: u16 = 536;

/// A window program at a port, and the connections whose data go out by it.
pub(crate) struct Gate {
    program: Box<dyn WindowProgram>,
    /// Bytes that the link adds to an IP packet.
    overhead: u32,
    /// No two connections have the same number.
    next: u32,
    numbers: BTreeMap<Name, FlowId>,
    connections: BTreeMap<FlowId, Connection>,
}

/// Addresses and ports of a connection's sender and receiver.
type Name = ([[u8; 4]; 2], [u16; 2]);

/// What a SYN states.
#[derive(Clone, Copy)]
struct Stated {
    mss: u16,
    shift: Option<u8>,
    timestamps: bool,
}

struct Connection {
    /// Sequence number of the first byte of data.
    begin: u32,
    came: Offset,
    /// Of its data, and its FIN.
    furthest: u64,
    acked: Offset,
    sender: Stated,
    receiver: Option<Stated>,
    /// Its FIN has passed.
    has_ended: bool,
    /// An acknowledgement that waits, and a copy of the last one that was given a window.
    held: Option<Vec<u8>>,
    last: Option<Vec<u8>>,
}

/// A segment of TCP as it was read.
struct Read {
    name: Name,
    sequence: u32,
    payload: u32,
    acknowledged: Option<u32>,
    window: u16,
    syn: bool,
    fin: bool,
    rst: bool,
    /// Of a SYN.
    stated: Option<Stated>,
}

impl Read {
    fn new(bytes: &[u8], is_data: bool) -> Option<Self> {
        let ip = Ipv4HeaderSlice::from_slice(bytes).ok().filter(|ip| ip.protocol() == IpNumber::TCP)?;
        let tcp = TcpHeaderSlice::from_slice(bytes.get(ip.slice().len()..)?).ok()?;
        let headers = ip.slice().len() + tcp.slice().len();
        let ends = ([ip.source(), ip.destination()], [tcp.source_port(), tcp.destination_port()]);
        let ([source, destination], [from, to]) = ends;
        let name = if is_data { ends } else { ([destination, source], [to, from]) };
        Some(Self {
            name,
            sequence: tcp.sequence_number(),
            payload: usize::from(ip.total_len()).saturating_sub(headers) as u32,
            acknowledged: tcp.ack().then(|| tcp.acknowledgment_number()),
            window: tcp.window_size(),
            syn: tcp.syn(),
            fin: tcp.fin(),
            rst: tcp.rst(),
            stated: tcp.syn().then(|| stated(&tcp)),
        })
    }
}

fn stated(syn: &TcpHeaderSlice<'_>) -> Stated {
    let mut stated = Stated { mss: DEFAULT_MSS, shift: None, timestamps: false };
    for option in syn.options_iterator().map_while(Result::ok) {
        match option {
            TcpOptionElement::MaximumSegmentSize(mss) => stated.mss = mss,
            // RFC 7323, section 2.3.
            TcpOptionElement::WindowScale(shift) => stated.shift = Some(shift.min(14)),
            TcpOptionElement::Timestamp(..) => stated.timestamps = true,
            _ => {}
        }
    }
    stated
}

impl Connection {
    fn new(begin: u32, sender: Stated) -> Self {
        Self {
            begin,
            came: Offset::default(),
            furthest: 0,
            acked: Offset::default(),
            sender,
            receiver: None,
            has_ended: false,
            held: None,
            last: None,
        }
    }

    /// A segment of it, as programs see it. Before the receiver has spoken it is taken to be as the sender is.
    fn segment(&self, flow: FlowId, read: &Read, offset: u64, overhead: u32) -> Segment {
        let receiver = self.receiver.unwrap_or(self.sender);
        let headers = tcp_headers(self.sender.timestamps && receiver.timestamps);
        let options = headers - tcp_headers(false);
        let mss = u64::from(self.sender.mss.min(receiver.mss)).saturating_sub(options.into()).max(1);
        let scale = 1 << self.sender.shift.and(receiver.shift).unwrap_or(0);
        Segment {
            flow,
            syn: read.syn,
            fin: read.fin,
            rst: read.rst,
            offset,
            window: u64::from(read.window) * if read.syn { 1 } else { scale },
            mss,
            frame: mss + u64::from(headers + overhead),
            scale,
            // The lab's hosts have no Multipath TCP.
            paths: 1,
        }
    }
}

/// States a window in an acknowledgement, unless it states less.
fn lower(bytes: &mut [u8], window: u64, mss: u64, scale: u64) {
    let at = header_of_ip(bytes);
    let is_syn = bytes[at + FLAGS + 1] & 2 != 0;
    let field = if is_syn { window } else { Segment::stated(window, mss, scale) / scale };
    let field = u16::try_from(field).unwrap_or(u16::MAX);
    if field < word(bytes, at + WINDOW) {
        set_word(bytes, at + WINDOW, at + CHECKSUM, field);
    }
}

/// Makes an answer to a SYN the acknowledgement that its host sends next: to a second SYN a sender would not listen.
fn take_back_syn(bytes: &mut [u8]) {
    let at = header_of_ip(bytes);
    let flags = word(bytes, at + FLAGS);
    if flags & SYN == 0 {
        return;
    }
    set_word(bytes, at + FLAGS, at + CHECKSUM, flags & !SYN);
    let [high, low] = [0, 2].map(|place| u32::from(word(bytes, at + SEQUENCE + place)));
    let sequence = (high << 16 | low).wrapping_add(1);
    set_word(bytes, at + SEQUENCE, at + CHECKSUM, (sequence >> 16) as u16);
    set_word(bytes, at + SEQUENCE + 2, at + CHECKSUM, sequence as u16);
}

/// Takes away what an acknowledgement reports of losses and marks, and what only a SYN states.
fn forget_news(bytes: &mut [u8]) {
    let at = header_of_ip(bytes);
    let over = (at + usize::from(bytes[at + FLAGS] >> 4) * 4).min(bytes.len());
    let flags = word(bytes, at + FLAGS) & !ECE;
    set_word(bytes, at + FLAGS, at + CHECKSUM, flags);
    let mut option = at + OPTIONS;
    while option + 1 < over && bytes[option] != 0 {
        let length = if bytes[option] == NOP { 1 } else { usize::from(bytes[option + 1]).max(2) };
        let end = (option + length).min(over);
        if ![NOP, TIMESTAMPS].contains(&bytes[option]) {
            // Words begin at even places of the header.
            for place in (option & !1..end).step_by(2) {
                let both =
                    [place, place + 1].map(|i| if (option..end).contains(&i) { NOP } else { bytes[i] });
                set_word(bytes, place, at + CHECKSUM, u16::from_be_bytes(both));
            }
        }
        option = end;
    }
}

fn header_of_ip(bytes: &[u8]) -> usize {
    usize::from(bytes[0] & 15) * 4
}

pub(super) fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// Changes a word of a packet, and mends the checksum that covers it (RFC 1624).
pub(super) fn set_word(bytes: &mut [u8], at: usize, checksum: usize, value: u16) {
    let mut sum = u32::from(!word(bytes, checksum)) + u32::from(!word(bytes, at)) + u32::from(value);
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
    bytes[checksum..checksum + 2].copy_from_slice(&(!(sum as u16)).to_be_bytes());
}

impl Gate {
    pub(crate) fn new(program: Box<dyn WindowProgram>, overhead: u32) -> Self {
        Self { program, overhead, next: 0, numbers: BTreeMap::new(), connections: BTreeMap::new() }
    }

    /// A packet of a sender is about to wait at the port: it and what waits there are `held` bytes on the link.
    pub(super) fn on_data(&mut self, now: Time, bytes: &[u8], held: u64) {
        let Some(read) = Read::new(bytes, true) else { return };
        if let (Some(stated), None) = (read.stated, read.acknowledged) {
            self.begin(now, &read, stated, held);
        }
        let Some(flow) = self.numbers.get(&read.name).copied() else { return };
        let Some(connection) = self.connections.get_mut(&flow) else { return };
        let after = read.sequence.wrapping_add(read.payload + u32::from(read.fin));
        let offset = if read.syn { 0 } else { connection.came.follow(after.wrapping_sub(connection.begin)) };
        connection.has_ended |= read.fin;
        connection.furthest = connection.furthest.max(offset);
        let segment = connection.segment(flow, &read, offset, self.overhead);
        self.program.on_data(now, &segment, held);
        if read.rst {
            self.forget(flow, &read.name);
        }
    }

    /// The sender's SYN. Another begin is another connection.
    fn begin(&mut self, now: Time, read: &Read, stated: Stated, held: u64) {
        let begin = read.sequence.wrapping_add(1);
        if let Some(flow) = self.numbers.get(&read.name).copied()
            && let Some(earlier) = self.connections.get(&flow)
        {
            if earlier.begin == begin {
                return;
            }
            let end = Segment { rst: true, syn: false, ..earlier.segment(flow, read, 0, self.overhead) };
            self.program.on_data(now, &end, held);
            self.forget(flow, &read.name);
        }
        let flow = FlowId(self.next);
        self.next += 1;
        self.numbers.insert(read.name, flow);
        self.connections.insert(flow, Connection::new(begin, stated));
    }

    fn forget(&mut self, flow: FlowId, name: &Name) {
        self.connections.remove(&flow);
        self.numbers.remove(name);
    }

    /// A packet of a receiver has come while `held` bytes wait at the port. False when it is kept here.
    pub(super) fn on_ack(&mut self, now: Time, bytes: &mut [u8], held: u64) -> bool {
        let Some(read) = Read::new(bytes, false) else { return true };
        let Some(flow) = self.numbers.get(&read.name).copied() else { return true };
        let Some(connection) = self.connections.get_mut(&flow) else { return true };
        connection.receiver = read.stated.or(connection.receiver);
        let told = read.acknowledged.map(|number| number.wrapping_sub(connection.begin));
        let offset = told.map_or(0, |told| connection.acked.follow(told));
        let segment = connection.segment(flow, &read, offset, self.overhead);
        let verdict = self.program.on_ack(now, &segment, held);
        match verdict {
            AckVerdict::Pass => connection.last = None,
            AckVerdict::Window(window) => {
                let last = connection.last.get_or_insert_default();
                last.clear();
                last.extend_from_slice(bytes);
                lower(bytes, window, segment.mss, segment.scale);
            }
            // An earlier one tells nothing more.
            AckVerdict::Hold => connection.held = Some(bytes.to_vec()),
        }
        let all_acknowledged = connection.has_ended && offset >= connection.furthest;
        if read.rst || all_acknowledged || verdict == AckVerdict::Pass && connection.has_ended {
            self.forget(flow, &read.name);
        }
        verdict != AckVerdict::Hold
    }

    /// Sends on to their senders the acknowledgements that may go now.
    pub(super) fn release(&mut self, mut send: impl FnMut(&[u8])) {
        while let Some((flow, window)) = self.program.release() {
            let Some(connection) = self.connections.get_mut(&flow) else { continue };
            let copy = |last: &Vec<u8>| {
                let mut copy = last.clone();
                take_back_syn(&mut copy);
                forget_news(&mut copy);
                copy
            };
            let kept = connection.held.take().or_else(|| connection.last.as_ref().map(copy));
            let Some(mut bytes) = kept else { continue };
            let Some(read) = Read::new(&bytes, false) else { continue };
            let Segment { mss, scale, .. } = connection.segment(flow, &read, 0, self.overhead);
            lower(&mut bytes, window, mss, scale);
            send(&bytes);
        }
    }

    /// When [`Gate::on_timer`] is to be called.
    pub(super) fn timer(&self) -> Option<Time> {
        self.program.timer()
    }

    /// The time asked for has come; `held` bytes wait at the port.
    pub(super) fn on_timer(&mut self, now: Time, held: u64) {
        self.program.on_timer(now, held);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::{Arc, Mutex};

    use etherparse::PacketBuilder;

    use super::*;

    const OVERHEAD: u32 = 14;
    const BEGIN: u32 = u32::MAX - 2000;
    const SHIFT: u8 = 7;

    /// Answers what it was told to, and writes down what it saw.
    #[derive(Default)]
    struct Script {
        seen: Vec<Segment>,
        verdicts: VecDeque<AckVerdict>,
        released: VecDeque<(FlowId, u64)>,
    }

    struct Scripted(Arc<Mutex<Script>>);

    impl WindowProgram for Scripted {
        fn on_data(&mut self, _now: Time, segment: &Segment, _held: u64) -> Option<u64> {
            self.0.lock().expect("sound").seen.push(*segment);
            None
        }

        fn on_ack(&mut self, _now: Time, segment: &Segment, _held: u64) -> AckVerdict {
            let mut script = self.0.lock().expect("sound");
            script.seen.push(*segment);
            script.verdicts.pop_front().unwrap_or(AckVerdict::Pass)
        }

        fn release(&mut self) -> Option<(FlowId, u64)> {
            self.0.lock().expect("sound").released.pop_front()
        }

        fn timer(&self) -> Option<Time> {
            None
        }

        fn on_timer(&mut self, _now: Time, _held: u64) {}
    }

    fn gate() -> (Gate, Arc<Mutex<Script>>) {
        let script = Arc::<Mutex<Script>>::default();
        (Gate::new(Box::new(Scripted(script.clone())), OVERHEAD), script)
    }

    /// A packet between port 7 of the sender and port 5 of the receiver.
    struct Shape<'a> {
        is_data: bool,
        flags: &'a str,
        sequence: u32,
        acknowledged: u32,
        window: u16,
        options: &'a [TcpOptionElement],
        payload: usize,
    }

    const PLAIN: Shape<'static> = Shape {
        is_data: true,
        flags: "a",
        sequence: 0,
        acknowledged: 0,
        window: 500,
        options: &[],
        payload: 0,
    };

    fn packet(shape: &Shape<'_>) -> Vec<u8> {
        let mut ends = [([10, 128, 0, 1], 7), ([10, 0, 0, 1], 5)];
        if !shape.is_data {
            ends.reverse();
        }
        let [(source, from), (destination, to)] = ends;
        let mut builder =
            PacketBuilder::ipv4(source, destination, 64).tcp(from, to, shape.sequence, shape.window);
        for flag in shape.flags.chars() {
            builder = match flag {
                's' => builder.syn(),
                'f' => builder.fin(),
                'r' => builder.rst(),
                'e' => builder.ece(),
                _ => builder.ack(shape.acknowledged),
            };
        }
        let builder = builder.options(shape.options).expect("they fit");
        let mut bytes = vec![0; builder.size(shape.payload)];
        builder.write_to_slice(&mut bytes, &vec![7; shape.payload]).expect("room");
        bytes
    }

    fn is_sound(bytes: &[u8]) -> bool {
        let ip = Ipv4HeaderSlice::from_slice(bytes).expect("IPv4");
        let rest = &bytes[ip.slice().len()..];
        let tcp = TcpHeaderSlice::from_slice(rest).expect("TCP");
        tcp.calc_checksum_ipv4(&ip, &rest[tcp.slice().len()..]).expect("short") == tcp.checksum()
    }

    fn field(bytes: &[u8]) -> u16 {
        word(bytes, header_of_ip(bytes) + WINDOW)
    }

    const OPTIONS_OF_SYN: [TcpOptionElement; 3] = [
        TcpOptionElement::MaximumSegmentSize(1460),
        TcpOptionElement::WindowScale(SHIFT),
        TcpOptionElement::Timestamp(1, 0),
    ];

    fn syn(sequence: u32) -> Vec<u8> {
        packet(&Shape { flags: "s", sequence, options: &OPTIONS_OF_SYN, ..PLAIN })
    }

    fn syn_ack(acknowledged: u32) -> Vec<u8> {
        let options = &OPTIONS_OF_SYN;
        packet(&Shape { is_data: false, flags: "sa", acknowledged, window: 65_000, options, ..PLAIN })
    }

    #[test]
    fn windows_are_lowered_and_nothing_else_is_changed() {
        let (mut gate, script) = gate();
        script.lock().expect("sound").verdicts =
            [AckVerdict::Window(1448), AckVerdict::Window(2896), AckVerdict::Window(1 << 20)].into();
        gate.on_data(Time::ZERO, &syn(BEGIN - 1), 76);
        // The window of a SYN is not scaled.
        let before = syn_ack(BEGIN);
        let mut after = before.clone();
        assert!(gate.on_ack(Time::ZERO, &mut after, 0));
        assert_eq!(field(&after), 1448);
        assert!(is_sound(&after));
        gate.on_data(Time::ZERO, &packet(&Shape { sequence: BEGIN, payload: 1448, ..PLAIN }), 1514);
        let acknowledged = BEGIN.wrapping_add(1448);
        let before = packet(&Shape { is_data: false, acknowledged, ..PLAIN });
        let mut after = before.clone();
        assert!(gate.on_ack(Time::ZERO, &mut after, 0));
        // 22.6 steps of 128 B, rounded up: no segment more.
        assert_eq!(field(&after), 23);
        assert!(is_sound(&after));
        let changed: Vec<usize> = (0..before.len()).filter(|i| before[*i] != after[*i]).collect();
        assert!(changed.iter().all(|i| (34..38).contains(i)), "{changed:?}: window and checksum");
        // What states less stays.
        let mut same = before.clone();
        assert!(gate.on_ack(Time::ZERO, &mut same, 0));
        assert_eq!(same, before);

        let script = script.lock().expect("sound");
        let [begin, answer, data, ack, _] = script.seen[..] else { panic!("{:?}", script.seen) };
        assert!(begin.syn && answer.syn && !data.syn);
        assert_eq!((begin.offset, answer.offset, data.offset, ack.offset), (0, 0, 1448, 1448));
        assert_eq!((answer.window, ack.window), (65_000, 500 << SHIFT));
        for segment in [begin, answer, data, ack] {
            assert_eq!((segment.mss, segment.frame, segment.scale), (1448, 1514, 128));
        }
    }

    #[test]
    fn offsets_go_on_where_numbers_wrap() {
        let (mut gate, script) = gate();
        gate.on_data(Time::ZERO, &syn(BEGIN - 1), 76);
        for sent in [1448, 2896, 1448, 4344] {
            let sequence = BEGIN.wrapping_add(sent - 1448);
            gate.on_data(Time::ZERO, &packet(&Shape { sequence, payload: 1448, ..PLAIN }), 1514);
        }
        // A probe of a closed window is a byte behind.
        let sequence = BEGIN.wrapping_sub(1);
        gate.on_data(Time::ZERO, &packet(&Shape { sequence, ..PLAIN }), 66);
        let offsets: Vec<u64> = script.lock().expect("sound").seen.iter().map(|s| s.offset).collect();
        assert_eq!(offsets, [0, 1448, 2896, 2896, 4344, 4344]);
    }

    #[test]
    fn a_copy_of_an_answer_to_a_syn_is_an_acknowledgement() {
        let (mut gate, script) = gate();
        script.lock().expect("sound").verdicts = [AckVerdict::Window(1448)].into();
        gate.on_data(Time::ZERO, &syn(BEGIN - 1), 76);
        assert!(gate.on_ack(Time::ZERO, &mut syn_ack(BEGIN), 0));
        script.lock().expect("sound").released = [(FlowId(0), 2896)].into();
        let mut sent: Vec<Vec<u8>> = Vec::new();
        gate.release(|bytes| sent.push(bytes.to_vec()));
        let [copy] = &sent[..] else { panic!("{sent:?}") };
        assert!(is_sound(copy));
        // Scaled.
        assert_eq!(field(copy), 23);
        let tcp = TcpHeaderSlice::from_slice(&copy[header_of_ip(copy)..]).expect("TCP");
        assert!(!tcp.syn() && tcp.ack() && tcp.sequence_number() == 1);
        let left: Vec<_> = tcp.options_iterator().map(|option| option.expect("an option")).collect();
        assert_eq!(left.iter().filter(|option| **option != TcpOptionElement::Noop).count(), 1, "{left:?}");
    }

    #[test]
    fn connections_that_have_ended_are_forgotten() {
        let (mut gate, script) = gate();
        gate.on_data(Time::ZERO, &syn(BEGIN - 1), 76);
        gate.on_data(
            Time::ZERO,
            &packet(&Shape { flags: "fa", sequence: BEGIN, payload: 100, ..PLAIN }),
            154,
        );
        for (acknowledged, kept) in [(100, 1), (101, 0)] {
            script.lock().expect("sound").verdicts = [AckVerdict::Window(1448)].into();
            let acknowledged = BEGIN.wrapping_add(acknowledged);
            let mut ack = packet(&Shape { is_data: false, acknowledged, ..PLAIN });
            assert!(gate.on_ack(Time::ZERO, &mut ack, 0));
            assert_eq!((gate.connections.len(), gate.numbers.len()), (kept, kept));
        }
    }

    #[test]
    fn what_is_held_goes_when_its_turn_has_come() {
        let (mut gate, script) = gate();
        script.lock().expect("sound").verdicts = [AckVerdict::Hold, AckVerdict::Window(0)].into();
        gate.on_data(Time::ZERO, &syn(BEGIN - 1), 76);
        assert!(!gate.on_ack(Time::ZERO, &mut syn_ack(BEGIN), 0));
        let mut sent: Vec<Vec<u8>> = Vec::new();
        gate.release(|bytes| sent.push(bytes.to_vec()));
        assert!(sent.is_empty(), "nobody has a turn");
        script.lock().expect("sound").released = [(FlowId(0), 2896), (FlowId(9), 1)].into();
        gate.release(|bytes| sent.push(bytes.to_vec()));
        assert_eq!(sent.iter().map(|bytes| field(bytes)).collect::<Vec<_>>(), [2896]);
        assert!(sent.iter().all(|bytes| is_sound(bytes)));

        // An acknowledgement goes on with a closed window; a copy without its news opens it.
        let options = [
            TcpOptionElement::Timestamp(9, 8),
            TcpOptionElement::SelectiveAcknowledgement((3, 4), [Some((5, 6)), None, None]),
        ];
        let shape = Shape { is_data: false, flags: "ae", acknowledged: BEGIN, options: &options, ..PLAIN };
        let mut ack = packet(&shape);
        assert!(gate.on_ack(Time::ZERO, &mut ack, 0));
        assert_eq!(field(&ack), 0);
        assert!(is_sound(&ack));
        script.lock().expect("sound").released = [(FlowId(0), 2896)].into();
        sent.clear();
        gate.release(|bytes| sent.push(bytes.to_vec()));
        let [copy] = &sent[..] else { panic!("{sent:?}") };
        assert_eq!(field(copy), 23);
        assert!(is_sound(copy));
        let tcp = TcpHeaderSlice::from_slice(&copy[header_of_ip(copy)..]).expect("TCP");
        assert!(!tcp.ece() && tcp.ack() && tcp.acknowledgment_number() == BEGIN);
        let left: Vec<_> = tcp.options_iterator().map(|option| option.expect("an option")).collect();
        assert!(left.contains(&TcpOptionElement::Timestamp(9, 8)), "{left:?}");
        assert!(
            !left.iter().any(|o| matches!(o, TcpOptionElement::SelectiveAcknowledgement(..))),
            "{left:?}"
        );
    }

    #[test]
    fn another_connection_of_the_same_ports_is_another_flow() {
        let (mut gate, script) = gate();
        let mut stray = packet(&Shape { is_data: false, ..PLAIN });
        assert!(gate.on_ack(Time::ZERO, &mut stray, 0), "nobody knows it");
        gate.on_data(Time::ZERO, &packet(&Shape { payload: 9, ..PLAIN }), 63);
        assert!(script.lock().expect("sound").seen.is_empty());
        gate.on_data(Time::ZERO, &syn(10), 76);
        gate.on_data(Time::ZERO, &syn(10), 76);
        gate.on_data(Time::ZERO, &syn(99), 76);
        // A FIN, and its acknowledgement: it is known no more.
        gate.on_data(Time::ZERO, &packet(&Shape { flags: "fa", sequence: 100, ..PLAIN }), 66);
        let mut last = packet(&Shape { is_data: false, acknowledged: 101, ..PLAIN });
        assert!(gate.on_ack(Time::ZERO, &mut last, 0));
        assert!(gate.on_ack(Time::ZERO, &mut last, 0));
        gate.on_data(Time::ZERO, &syn(99), 76);
        gate.on_data(Time::ZERO, &packet(&Shape { flags: "r", sequence: 100, ..PLAIN }), 54);
        assert!(gate.connections.is_empty() && gate.numbers.is_empty());
        let script = script.lock().expect("sound");
        let seen: Vec<_> = script.seen.iter().map(|s| (s.flow.0, s.syn, s.fin, s.rst, s.offset)).collect();
        let syn = |flow| (flow, true, false, false, 0);
        let expected = [
            syn(0),
            syn(0),
            (0, false, false, true, 0),
            syn(1),
            (1, false, true, false, 1),
            (1, false, false, false, 1),
            syn(2),
            (2, false, false, true, 0),
        ];
        assert_eq!(seen, expected);
    }
}
