//! The links of the lab: real packets through the simulator's own queues, at the links' rates and delays.
//!
//! Each end of a link is a device in the namespace of its node. What a node sends there is read here, judged by the
//! queue discipline of core, transmitted at the link's rate, held for its delay, and handed to the device at the other
//! end. One thread does it for all links: a packet that it hands to a router comes back within the same system call, by
//! the router's next device. What is due at the same time is handed over by one system call.

pub(crate) mod gate;
mod health;
mod waits;

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use bandmaster_core::capacity::Schedule;
use bandmaster_core::control::Passed;
use bandmaster_core::id::{FlowId, NodeId};
use bandmaster_core::losses::Losses;
use bandmaster_core::measure::sojourn::Sojourns;
use bandmaster_core::port::{Header, PortProgram};
use bandmaster_core::qdisc::{Pkt, Qdisc, Verdict};
use bandmaster_core::time::{Span, Time};
use bandmaster_core::units::{Bytes, Rate, UDP_HEADERS};
use etherparse::{IpNumber, Ipv4HeaderSlice, TcpHeaderSlice};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::time::{ClockId, clock_gettime};

use crate::Error;
use crate::address::{self, Kind};
use crate::cables;
use crate::packet_ring::{self, PacketRing};
use crate::receipts::Receipts;
use crate::syscall;
use crate::timing::Timing;
use gate::Gate;
pub use health::Health;
use waits::Waits;
pub(crate) use waits::stay_awake;

/// What it has of a processor before everything else; it takes what nobody else reserves too, up to 95 %, and is then stopped for the
/// rest of a period. Threads with a real-time priority that take as much are stopped for 50 ms of a second
/// (Documentation/scheduler/sched-deadline.rst and sched-rt-group.rst).
const RUNTIME: Span = Span::from_micros(600);
const PERIOD: Span = Span::from_millis(1);
/// Real-time priority where the kernel has no deadlines to give: above the traffic's.
const PRIORITY: i32 = 20;
/// Place of the checksum in a header of IPv4.
const CHECKSUM: usize = 10;
/// Packets read before what is due has its turn.
const BATCH: usize = packet_ring::BATCH;

/// The time of a run: nanoseconds since its start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: Instant,
}

impl Clock {
    /// Starts at `start`; until then it is 0.
    pub(crate) fn new(start: Instant) -> Self {
        Self { start }
    }

    pub(crate) fn now(self) -> Time {
        let nanos = Instant::now().saturating_duration_since(self.start).as_nanos();
        Time::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

/// One direction of a link.
pub(crate) struct PortPlan {
    /// What waits for the transmitter; not used when the kernel's shaper is before it.
    pub(crate) queue: Box<dyn Qdisc>,
    /// The nominal one where `schedule` says how it changes.
    pub(crate) rate: Rate,
    pub(crate) schedule: Option<Schedule>,
    pub(crate) delay: Span,
    /// What the wire loses.
    pub(crate) losses: Option<Box<Losses>>,
    /// Bytes that the link adds to an IP packet.
    pub(crate) overhead: u32,
    /// The first port of a way of probes: counts data, and tells when a probe leaves.
    pub(crate) tells_left: bool,
    /// The last port of a way of probes: counts data, and tells when a probe comes.
    pub(crate) tells_came: bool,
    /// See the headers of what the queue accepts.
    pub(crate) programs: Vec<Arc<Mutex<dyn PortProgram>>>,
    /// Sets windows in the acknowledgements that come over the other direction.
    pub(crate) gate: Option<Gate>,
    /// Of the measured port, where the scenario asks for it: times in the queue.
    pub(crate) sojourns: Option<Sojourns>,
}

/// A probe has passed a port that stamps.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Passage {
    /// When it began transmission at the first port, or arrives behind the last.
    pub(crate) at: Time,
    pub(crate) left: bool,
    pub(crate) from: NodeId,
    pub(crate) to: NodeId,
    pub(crate) payload: Vec<u8>,
    pub(crate) passed: Passed,
}

/// What became of the packets of a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Read from the device of the transmitting node.
    pub arrived: u64,
    /// Dropped by the queue.
    pub dropped: u64,
    /// Lost on the wire, as the scenario says.
    pub lost: u64,
    /// Handed to the device of the receiving node.
    pub delivered: u64,
    /// Refused by the device of the receiving node.
    pub refused: u64,
    /// In the queue, in the transmitter or on the wire.
    pub inside: u64,
    /// Marked with congestion experienced.
    pub marked: u64,
    /// Began transmission.
    pub sent: u64,
    /// Bytes of these, with what the link adds.
    pub sent_bytes: u64,
}

impl Counters {
    /// Every packet has one fate.
    pub fn add_up(&self) -> bool {
        self.arrived == self.dropped + self.lost + self.delivered + self.refused + self.inside
    }
}

/// What the lab reads of a port while it runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct PortState {
    pub(crate) counters: Counters,
    /// Packet-nanoseconds of waiting up to `since`.
    waited: u64,
    since: Time,
    pub(crate) waiting_packets: u32,
    pub(crate) waiting_bytes: u64,
    pub(crate) most_waiting: u32,
    /// Data that began transmission, and those of them that arrive, where probes are stamped.
    pub(crate) left: Passed,
    pub(crate) arriving: Passed,
}

impl PortState {
    /// Packet-nanoseconds of waiting up to `now`.
    pub(crate) fn waited(&self, now: Time) -> u64 {
        self.waited + u64::from(self.waiting_packets) * now.since(self.since).as_nanos()
    }

    fn set_level(&mut self, now: Time, packets: u32, bytes: u64) {
        self.waited = self.waited(now);
        self.since = self.since.max(now);
        (self.waiting_packets, self.waiting_bytes) = (packets, bytes);
        self.most_waiting = self.most_waiting.max(packets);
    }
}

/// States of all ports, and what was found out of time.
pub(crate) struct Board {
    ports: Vec<Mutex<PortState>>,
    /// By flow: the last port of its data, and the bytes of the IP packets that came over it.
    came: Vec<(usize, AtomicU64)>,
    /// By flow: packets of its sender that queues dropped.
    dropped: Vec<AtomicU64>,
    health: Mutex<Health>,
    /// Round-trip times, where a scheme asks for them.
    pub(crate) timing: Timing,
    /// What receivers have got, where they cannot be asked.
    receipts: Arc<Receipts>,
    /// Times in the measured queue, when the forwarder has ended.
    sojourns: Mutex<Option<Sojourns>>,
}

impl Board {
    /// Of so many ports, with the routes of the flows' data.
    pub(crate) fn new(
        ports: usize,
        data_routes: &[Vec<u32>],
        timing: Timing,
        receipts: Arc<Receipts>,
    ) -> Self {
        let last = |route: &Vec<u32>| route.last().map_or(usize::MAX, |port| *port as usize);
        Self {
            ports: (0..ports).map(|_| Mutex::default()).collect(),
            came: data_routes.iter().map(|route| (last(route), AtomicU64::new(0))).collect(),
            dropped: data_routes.iter().map(|_| AtomicU64::new(0)).collect(),
            health: Mutex::default(),
            timing,
            receipts,
            sojourns: Mutex::default(),
        }
    }

    /// Bytes of the IP packets of a flow that have come to its receiver, in order or not, new or again.
    pub(crate) fn came(&self, flow: usize) -> u64 {
        self.came.get(flow).map_or(0, |(_, bytes)| bytes.load(Ordering::Relaxed))
    }

    /// Packets of a flow's sender that queues dropped.
    pub(crate) fn dropped(&self, flow: usize) -> u64 {
        self.dropped.get(flow).map_or(0, |packets| packets.load(Ordering::Relaxed))
    }

    fn note_drop(&self, packet: Kind) {
        if let Kind::Data(flow) = packet
            && let Some(packets) = self.dropped.get(flow.index())
        {
            packets.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn note_arrival(&self, port: usize, packet: &Packet, now: Time) {
        if let Kind::Data(flow) = packet.kind {
            self.timing.note_come(port, flow.index(), &packet.bytes, now);
            self.receipts.note_come(port, flow.index(), &packet.bytes);
        }
        if let Kind::Data(flow) = packet.kind
            && let Some((last, bytes)) = self.came.get(flow.index())
            && *last == port
        {
            bytes.fetch_add(packet.bytes.len() as u64, Ordering::Relaxed);
        }
    }

    pub(crate) fn port(&self, port: usize) -> PortState {
        *self.ports[port].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the times in the measured queue.
    pub(crate) fn take_sojourns(&self) -> Option<Sojourns> {
        self.sojourns.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(crate) fn health(&self) -> Health {
        self.health.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// How the forwarder talks to the lab.
struct Wires {
    clock: Clock,
    stop: Arc<AtomicBool>,
    board: Arc<Board>,
    passages: Sender<Passage>,
    /// Rung after each passage.
    bell: Arc<EventFd>,
}

/// The running thread of the forwarder. Dropping it ends the thread.
pub(crate) struct Forwarder {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<io::Result<Worked>>>,
    pub(crate) board: Arc<Board>,
    pub(crate) passages: Receiver<Passage>,
    pub(crate) bell: Arc<EventFd>,
    pub(crate) clock: Clock,
    _awake: Option<File>,
}

/// What a forwarder took from its start to its end.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Worked {
    /// Without what it waited awake.
    pub(crate) processor: Duration,
    pub(crate) elapsed: Duration,
}

impl Forwarder {
    /// Starts to forward, and the clock of the run.
    pub(crate) fn start(
        ring: PacketRing,
        ports: Vec<PortPlan>,
        data_routes: &[Vec<u32>],
        timing: Timing,
        receipts: Arc<Receipts>,
    ) -> Result<Self, Error> {
        let bell = EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC);
        let bell = Arc::new(bell.map_err(|errno| Error::os("make an eventfd", errno.into()))?);
        let (sender, passages) = channel();
        let stop = Arc::new(AtomicBool::new(false));
        let board = Arc::new(Board::new(ports.len(), data_routes, timing, receipts));
        let clock = Clock::new(Instant::now());
        let wires =
            Wires { clock, stop: stop.clone(), board: board.clone(), passages: sender, bell: bell.clone() };
        let work = move || {
            let begin = Instant::now();
            let idle = forward(ring, ports, &wires)?;
            let processor: Duration = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)?.into();
            Ok(Worked {
                processor: processor.saturating_sub(Duration::from_nanos(idle.as_nanos())),
                elapsed: begin.elapsed(),
            })
        };
        let thread = thread::Builder::new().name("forwarder".to_owned()).spawn(work);
        let thread = Some(thread.map_err(|error| Error::os("start the forwarder", error))?);
        Ok(Self { stop, thread, board, passages, bell, clock, _awake: stay_awake() })
    }

    /// Ends the thread; the outer error is its panic.
    pub(crate) fn end(&mut self) -> thread::Result<Result<Worked, Error>> {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map_or(Ok(Ok(Worked::default())), JoinHandle::join)?;
        Ok(ended.map_err(|error| Error::os("wait for packets", error)))
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        // What went wrong has been told where it was ended.
        let _ = self.end();
    }
}

/// Forwards until `wires.stop` is set; for how long it waited awake. Ports 2i and 2i + 1 are the two directions of link i.
///
/// # Errors
/// When waiting for devices fails.
fn forward(ring: PacketRing, plans: Vec<PortPlan>, wires: &Wires) -> io::Result<Span> {
    let real_time = run_before_all().is_ok();
    // Without it a wake-up may come 50 us late.
    let _ = nix::sys::prctl::set_timerslack(1);
    let mut ports: Vec<Port> = plans.into_iter().map(Port::new).collect();
    let mut store = Store::default();
    let mut health = Health { real_time, ..Health::default() };
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    epoll.add(&ring, EpollEvent::new(EpollFlags::EPOLLIN, 0))?;
    let mut outbox = Outbox { ring, letters: Vec::with_capacity(BATCH) };
    let mut waits = Waits::new(epoll);
    // When each port has something to do.
    let mut due = vec![Time::ZERO; ports.len()];
    while !wires.stop.load(Ordering::Relaxed) {
        let now = wires.clock.now();
        for i in 0..due.len() {
            while due[i] <= now
                && let Ok([port, twin]) = ports.get_disjoint_mut([i, i ^ 1])
            {
                due[i] = port.advance(i, twin, wires, &mut store, &mut outbox);
                if twin.plan.gate.is_some() {
                    due[i ^ 1] = twin.due(wires.clock.now());
                }
                if outbox.letters.len() < BATCH {
                    break;
                }
                outbox.hand_over(&mut ports, wires, &mut store, &mut health);
            }
        }
        outbox.hand_over(&mut ports, wires, &mut store, &mut health);
        let mut read = 0;
        while read < BATCH && outbox.take_in(&mut ports, &mut due, wires, &mut store) {
            read += 1;
        }
        if read == 0 {
            let next = due.iter().copied().min().unwrap_or(Time::MAX);
            waits.wait(wires.clock, next)?;
        }
    }
    health.unread = outbox.ring.lost()?;
    *wires.board.health.lock().unwrap_or_else(PoisonError::into_inner) = health;
    let sojourns = ports.iter_mut().find_map(|port| port.plan.sojourns.take());
    *wires.board.sojourns.lock().unwrap_or_else(PoisonError::into_inner) = sojourns;
    Ok(waits.idle)
}

/// What goes to devices with the next system call, and the devices.
struct Outbox {
    ring: PacketRing,
    letters: Vec<Letter>,
}

/// A packet for a device, in the store.
struct Letter {
    key: u32,
    /// By which port's device.
    device: usize,
    /// The port that it came over, and when it arrives; none: a gate had kept it.
    over: Option<(usize, Time)>,
}

impl Outbox {
    /// Reads a packet that a node has sent; false: there is none.
    fn take_in(&mut self, ports: &mut [Port], due: &mut [Time], wires: &Wires, store: &mut Store) -> bool {
        let letters = &mut self.letters;
        let taken = self.ring.receive(|(device, bytes)| {
            let Some(id) = cables::port_of(device) else { return };
            if let Some(port) = ports.get_mut(id) {
                port.accept(id, wires, store, letters, bytes);
                port.publish(id, wires);
                due[id] = port.due(wires.clock.now());
            }
        });
        taken.is_some()
    }

    /// Hands everything to its device.
    fn hand_over(&mut self, ports: &mut [Port], wires: &Wires, store: &mut Store, health: &mut Health) {
        for letters in self.letters.chunks(BATCH) {
            let mut packets: [packet_ring::Outgoing<'_>; BATCH] = [(0, &[]); BATCH];
            for (packet, letter) in packets.iter_mut().zip(letters) {
                *packet = (cables::far_end(letter.device), &store.packets[letter.key as usize].bytes);
            }
            let now = wires.clock.now();
            let mut refused = 0u64;
            self.ring.send(&packets[..letters.len()], |at| refused |= 1 << at);
            for (at, letter) in letters.iter().enumerate() {
                if let Some((id, arrived)) = letter.over {
                    let port = &mut ports[id];
                    health.note(now.since(arrived), arrived <= port.handed);
                    port.handed = now;
                    let is_refused = refused >> at & 1 == 1;
                    port.handed_over(id, is_refused, letter.key, now, wires, store);
                }
                store.remove(letter.key);
            }
        }
        self.letters.clear();
    }
}

/// The calling thread runs before the traffic's and all others.
pub(crate) fn run_before_all() -> io::Result<()> {
    syscall::run_by_deadline(RUNTIME, PERIOD).or_else(|_| syscall::run_first(PRIORITY))
}

/// Packets on their way, by key.
#[derive(Default)]
struct Store {
    packets: Vec<Packet>,
    free: Vec<u32>,
}

struct Packet {
    bytes: Vec<u8>,
    kind: Kind,
    is_payload: bool,
    /// When it came to the queue.
    arrived: Time,
}

impl Store {
    fn insert(&mut self, bytes: &[u8], kind: Kind, is_payload: bool, arrived: Time) -> u32 {
        match self.free.pop() {
            Some(key) => {
                let packet = &mut self.packets[key as usize];
                packet.bytes.clear();
                packet.bytes.extend_from_slice(bytes);
                (packet.kind, packet.is_payload, packet.arrived) = (kind, is_payload, arrived);
                key
            }
            None => {
                self.packets.push(Packet { bytes: bytes.to_vec(), kind, is_payload, arrived });
                self.packets.len() as u32 - 1
            }
        }
    }

    fn remove(&mut self, key: u32) {
        self.free.push(key);
    }
}

struct Port {
    plan: PortPlan,
    /// When the transmitter has sent what it began.
    free_at: Time,
    /// The transmitter found nothing since.
    is_idle: bool,
    /// Arrival, key; lost packets are not on it.
    wire: VecDeque<(Time, u32)>,
    /// When it handed over the last packet.
    handed: Time,
    state: PortState,
    dropped: Vec<Pkt>,
}

impl Port {
    fn new(plan: PortPlan) -> Self {
        Self {
            plan,
            free_at: Time::ZERO,
            is_idle: true,
            wire: VecDeque::new(),
            handed: Time::ZERO,
            state: PortState::default(),
            dropped: Vec::new(),
        }
    }

    /// A packet comes to the queue.
    fn accept(
        &mut self,
        id: usize,
        wires: &Wires,
        store: &mut Store,
        letters: &mut Vec<Letter>,
        bytes: &[u8],
    ) {
        let Ok(ip) = Ipv4HeaderSlice::from_slice(bytes) else { return };
        let now = wires.clock.now();
        let kind = address::kind(ip.source(), ip.destination());
        let flow = match kind {
            Kind::Data(flow) | Kind::Reverse(flow) => flow,
            Kind::Probe { .. } | Kind::Stray => FlowId(u32::MAX),
        };
        let (mut syn, mut fin, mut payload) = (false, false, true);
        let rest = &bytes[ip.slice().len()..];
        if ip.protocol() == IpNumber::TCP
            && let Ok(tcp) = TcpHeaderSlice::from_slice(rest)
        {
            (syn, fin) = (tcp.syn(), tcp.fin() || tcp.rst());
            payload = usize::from(ip.total_len()) > ip.slice().len() + tcp.slice().len();
        }
        if let Kind::Reverse(flow) = kind {
            wires.board.timing.note_sent(id, flow.index(), bytes, now);
            wires.board.receipts.note_sent(id, flow.index(), bytes, now);
        }
        let is_payload = payload && matches!(kind, Kind::Data(_));
        let key = store.insert(bytes, kind, is_payload, now);
        let ecn = ip.ecn().value();
        let pkt = Pkt {
            key,
            len: bytes.len() as u32 + self.plan.overhead,
            flow,
            dscp: ip.dcp().value(),
            ect: ecn != 0,
            ce: ecn == 3,
            reverse: matches!(kind, Kind::Reverse(_)),
        };
        self.state.counters.arrived += 1;
        // What the transmitter does up to now it does first.
        self.transmit(now, wires, store);
        if let Some(gate) = &mut self.plan.gate
            && matches!(kind, Kind::Data(_))
        {
            gate.on_data(now, bytes, self.plan.queue.backlog().bytes + u64::from(pkt.len));
            self.release(id, now, store, letters);
        }
        let verdict = self.plan.queue.enqueue(now, pkt, &mut self.dropped);
        match verdict {
            Verdict::Drop => {
                self.state.counters.dropped += 1;
                wires.board.note_drop(kind);
                store.remove(key);
            }
            Verdict::Accept | Verdict::Mark => {
                self.state.counters.inside += 1;
                if verdict == Verdict::Mark {
                    self.mark(key, store);
                }
                if matches!(kind, Kind::Data(_) | Kind::Reverse(_)) {
                    for program in &self.plan.programs {
                        let mut program = program.lock().unwrap_or_else(PoisonError::into_inner);
                        program.on_packet(
                            now,
                            &Header { flow, reverse: matches!(kind, Kind::Reverse(_)), syn, fin },
                        );
                    }
                }
            }
        }
        self.bury(wires, store);
        self.transmit(now, wires, store);
        self.level(now);
    }

    /// Transmits what is due, puts into `outbox` what has arrived, as far as that has room; when something is due next. `twin` is the
    /// other direction of its link.
    fn advance(
        &mut self,
        id: usize,
        twin: &mut Self,
        wires: &Wires,
        store: &mut Store,
        outbox: &mut Outbox,
    ) -> Time {
        let now = wires.clock.now();
        let before = self.state;
        self.transmit(now, wires, store);
        if let Some(gate) = &mut self.plan.gate
            && gate.timer().is_some_and(|at| at <= now)
        {
            gate.on_timer(now, self.plan.queue.backlog().bytes);
            self.release(id, now, store, &mut outbox.letters);
        }
        while let Some((at, key)) = self.wire.front().copied()
            && at <= now
            && outbox.letters.len() < BATCH
        {
            self.wire.pop_front();
            if twin.lets_pass(id ^ 1, now, key, wires, store) {
                outbox.letters.push(Letter { key, device: id ^ 1, over: Some((id, at)) });
            } else {
                // What a gate keeps has come to its router.
                self.handed_over(id, false, key, now, wires, store);
                store.remove(key);
            }
            twin.release(id ^ 1, now, store, &mut outbox.letters);
        }
        if self.state != before {
            self.level(now);
            self.publish(id, wires);
        }
        self.due(now)
    }

    /// A packet has left the wire.
    fn handed_over(&mut self, id: usize, refused: bool, key: u32, now: Time, wires: &Wires, store: &Store) {
        if refused {
            self.state.counters.refused += 1;
        } else {
            self.state.counters.delivered += 1;
            wires.board.note_arrival(id, &store.packets[key as usize], now);
        }
        self.state.counters.inside -= 1;
        self.publish(id, wires);
    }

    /// What has come over the other direction, and whether it goes on now.
    fn lets_pass(&mut self, id: usize, now: Time, key: u32, wires: &Wires, store: &mut Store) -> bool {
        if self.plan.gate.is_none() || !matches!(store.packets[key as usize].kind, Kind::Reverse(_)) {
            return true;
        }
        self.transmit(now, wires, store);
        self.publish(id, wires);
        let held = self.plan.queue.backlog().bytes;
        let bytes = &mut store.packets[key as usize].bytes;
        self.plan.gate.as_mut().is_none_or(|gate| gate.on_ack(now, bytes, held))
    }

    /// Sends on what its gate lets go, to the node that transmits.
    fn release(&mut self, id: usize, now: Time, store: &mut Store, letters: &mut Vec<Letter>) {
        if let Some(gate) = &mut self.plan.gate {
            gate.release(|bytes| {
                let key = store.insert(bytes, Kind::Stray, false, now);
                letters.push(Letter { key, device: id, over: None });
            });
        }
    }

    /// When it has something to do.
    fn due(&self, now: Time) -> Time {
        let arrival = self.wire.front().map_or(Time::MAX, |(at, _)| *at);
        let waiting = self.plan.queue.next_ready(now.max(self.free_at));
        let timer = self.plan.gate.as_ref().and_then(Gate::timer).unwrap_or(Time::MAX);
        arrival.min(timer).min(waiting.map_or(Time::MAX, |at| at.max(self.free_at)))
    }

    /// The transmitter's work up to `now`, each packet at the time that the link's rate gives it.
    fn transmit(&mut self, now: Time, wires: &Wires, store: &mut Store) {
        while self.free_at <= now {
            // Between two packets the transmitter asks at the very moment it becomes free; else it asks now.
            let asked = if self.is_idle { now } else { self.free_at };
            let next = self.plan.queue.dequeue(asked, &mut self.dropped);
            self.bury(wires, store);
            let Some(pkt) = next else {
                self.is_idle = true;
                return;
            };
            let start = asked;
            let continues = !self.is_idle;
            self.is_idle = false;
            self.free_at = match &mut self.plan.schedule {
                Some(schedule) => schedule.finish(start, continues, pkt.len),
                None => start + self.plan.rate.time_for(Bytes::new(pkt.len.into())),
            };
            self.state.counters.sent += 1;
            self.state.counters.sent_bytes += u64::from(pkt.len);
            if pkt.ce {
                self.mark(pkt.key, store);
            }
            if let Some(sojourns) = &mut self.plan.sojourns {
                sojourns.note(store.packets[pkt.key as usize].arrived, start);
            }
            let is_payload = store.packets[pkt.key as usize].is_payload;
            let lost = self.plan.losses.as_mut().is_some_and(|losses| losses.loses_next(is_payload));
            self.stamp(start, &pkt, lost, wires, store);
            if lost {
                self.state.counters.lost += 1;
                self.state.counters.inside -= 1;
                store.remove(pkt.key);
            } else {
                self.wire.push_back((self.free_at + self.plan.delay, pkt.key));
            }
            self.level(start);
        }
    }

    /// Counts a packet that begins transmission, and stamps a probe with what was counted before it.
    fn stamp(&mut self, start: Time, pkt: &Pkt, lost: bool, wires: &Wires, store: &Store) {
        let PortPlan { tells_left, tells_came, .. } = self.plan;
        if !tells_left && !tells_came {
            return;
        }
        let packet = &store.packets[pkt.key as usize];
        let Kind::Probe { from, to } = packet.kind else {
            let bytes = packet.bytes.len() as u64;
            let count = |passed: &mut Passed| {
                passed.packets += 1;
                passed.bytes += bytes;
            };
            count(&mut self.state.left);
            if !lost {
                count(&mut self.state.arriving);
            }
            return;
        };
        let payload = packet.bytes.get(UDP_HEADERS as usize..).unwrap_or_default().to_vec();
        let tell = |passage| {
            // The lab may have ended already.
            let _ = wires.passages.send(passage);
            let _ = wires.bell.write(1);
        };
        if tells_left {
            let payload = payload.clone();
            tell(Passage { at: start, left: true, from, to, payload, passed: self.state.left });
        }
        if tells_came && !lost {
            let at = self.free_at + self.plan.delay;
            tell(Passage { at, left: false, from, to, payload, passed: self.state.arriving });
        }
    }

    /// Sets congestion experienced in the packet's header, and mends the checksum (RFC 1624).
    fn mark(&mut self, key: u32, store: &mut Store) {
        let bytes = &mut store.packets[key as usize].bytes;
        if bytes.len() < 20 || bytes[1] & 3 == 3 {
            return;
        }
        self.state.counters.marked += 1;
        let word = gate::word(bytes, 0) | 3;
        gate::set_word(bytes, 0, CHECKSUM, word);
    }

    /// Packets that the discipline dropped after it had queued them.
    fn bury(&mut self, wires: &Wires, store: &mut Store) {
        for pkt in self.dropped.drain(..) {
            wires.board.note_drop(store.packets[pkt.key as usize].kind);
            self.state.counters.dropped += 1;
            self.state.counters.inside -= 1;
            store.remove(pkt.key);
        }
    }

    fn level(&mut self, now: Time) {
        let backlog = self.plan.queue.backlog();
        self.state.set_level(now, backlog.packets, backlog.bytes);
    }

    fn publish(&mut self, id: usize, wires: &Wires) {
        *wires.board.ports[id].lock().unwrap_or_else(PoisonError::into_inner) = self.state;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_has_come_when_the_last_port_of_its_way_hands_it_over() {
        let board = Board::new(4, &[vec![0, 2], vec![2]], Timing::default(), Arc::default());
        let packet = |kind| Packet { bytes: vec![0; 1500], kind, is_payload: true, arrived: Time::ZERO };
        let data = |flow| packet(Kind::Data(FlowId(flow)));
        for (port, packet) in [(0, data(0)), (3, packet(Kind::Reverse(FlowId(0)))), (2, data(7))] {
            board.note_arrival(port, &packet, Time::ZERO);
        }
        assert_eq!((board.came(0), board.came(1)), (0, 0));
        board.note_arrival(2, &data(0), Time::ZERO);
        board.note_arrival(2, &data(0), Time::ZERO);
        board.note_arrival(2, &data(1), Time::ZERO);
        assert_eq!((board.came(0), board.came(1), board.came(2)), (3000, 1500, 0));
    }
}
