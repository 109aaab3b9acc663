//! Ports: a transmitter, its queue and the wire behind it.
//!
//! On a first-in-first-out port the departure of a packet is known when it arrives, so a packet costs one event per
//! hop: its arrival at the other end. `head` and the ring hold packets that wait, are being transmitted or are on
//! the wire; only `head` has a pending event. Other disciplines need a second event when the transmitter becomes free.

mod crossing;
mod outage;
mod processing;
mod watch;
mod wire;

use std::collections::VecDeque;

use bandmaster_core::capacity::Schedule;
use bandmaster_core::control::Passed;
use bandmaster_core::id::FlowId;
use bandmaster_core::losses::Losses;
use bandmaster_core::params::Limit;
use bandmaster_core::port::{Header, PortProgram, flow_counter::FlowCounter};
use bandmaster_core::propagation::Propagation;
use bandmaster_core::qdisc::fifo::DropTail;
use bandmaster_core::qdisc::{Admission, Backlog, ClassChange, Discipline, Pkt, Qdisc, Verdict};
use bandmaster_core::report::flow::IdealPort;
use bandmaster_core::runtime::faults::PathEnd;
use bandmaster_core::time::{Span, Time};
use bandmaster_core::units::Rate;

pub(crate) use self::crossing::Left;
use self::processing::Jitter;
pub(crate) use self::watch::{PathCounter, QueueWatch, SojournWatch};
use self::wire::Wire;
use crate::events::{Event, EventQueue};
use crate::packet::{Label, PROBE, Packet, Slab, flag};

/// Marks a packet key in the ring whose packet does not arrive.
const LOST: u32 = 1 << 31;
/// Marks one whose packet, when it has been transmitted, gets a delay of its own.
const VARIED: u32 = 1 << 30;
/// No packet is larger with its frame, in bytes.
const LARGEST: u64 = 65_535 + 1000;
/// Not of the key.
const MARKS: u32 = LOST | VARIED;

#[derive(Clone, Copy, Default)]
struct Transit {
    /// Start of transmission.
    start: Time,
    /// Arrival at the other end.
    arrive: Time,
    label: Label,
}

/// How a port queues.
enum Queue {
    /// First in, first out up to a limit.
    DropTail(DropTail),
    /// First in, first out behind another rule.
    Fifo(Box<Rule>),
    /// The discipline picks.
    Ordered(Box<Ordered>),
}

impl Default for Queue {
    fn default() -> Self {
        Self::DropTail(DropTail { limit: Limit::Unlimited })
    }
}

struct Rule {
    admission: Box<dyn Admission>,
}

struct Ordered {
    qdisc: Box<dyn Qdisc>,
    /// When the transmitter is to ask for the next packet; after all time when nothing is planned.
    wake: Time,
    dropped: Vec<Pkt>,
    /// Host ports with random processing delay: packets that have not been handed to the discipline, and when they are.
    processing: VecDeque<(Time, Label)>,
}

impl Ordered {
    /// Frees what the discipline has dropped; returns how much that was.
    fn bury(&mut self, slab: &mut Slab) -> u64 {
        let count = self.dropped.len() as u64;
        for pkt in self.dropped.drain(..) {
            slab.drop(pkt.key & !MARKS);
        }
        count
    }
}

/// What a port does besides forwarding; most ports have none of it.
#[derive(Default)]
pub(crate) struct Extras {
    /// What the wire loses.
    losses: Option<Box<Losses>>,
    /// The wire, when its packets take different times.
    wire: Option<Box<Wire>>,
    /// Packets that the wire lost.
    lost: u64,
    /// The link is down.
    is_down: bool,
    /// Packets lost because it was down, or went down.
    faulted: u64,
    /// Bytes of the packets whose begin of transmission is known: past, or to come before that of any that arrive now.
    planned: u64,
    /// Data that passed, for the stamps of probes.
    pub(crate) path: Option<PathCounter>,
    /// BAS's flow counts.
    pub(crate) flow_counter: Option<FlowCounter>,
    /// Programs of schemes.
    pub(crate) programs: Vec<Box<dyn PortProgram>>,
    /// Queue-length statistics.
    pub(crate) watch: Option<QueueWatch>,
    /// Times in the queue.
    pub(crate) sojourns: Option<Box<SojournWatch>>,
    /// Copies of packets with the start of their transmission.
    pub(crate) capture: Option<Vec<(Time, Packet)>>,
}

/// Counters of a port. Every packet that it was offered has one fate: dropped, held, in transit, delivered, lost by the wire
/// or lost to a fault of the link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PortCounters {
    pub(crate) dropped: u64,
    pub(crate) delivered: u64,
    pub(crate) lost: u64,
    pub(crate) faulted: u64,
}

/// With thousands of ports, a hop costs as much as the cache lines that it touches: the first is enough for an arrival,
/// and for taking a packet when nothing else is on the wire.
#[derive(Default)]
#[repr(C, align(128))]
pub(crate) struct Port {
    /// The packet that arrives next, when there is one.
    head: Transit,
    /// Packets between acceptance and arrival: `head`, then those of the ring.
    in_transit: u32,
    /// The last so many have not begun transmission, as far as anyone has looked.
    waiting: u32,
    delivered: u64,
    /// `nanos_per_byte` of a port that does nothing to a packet that it takes while nothing is on its wire; else 0.
    plain: u64,
    delay: Span,
    /// When the transmitter becomes free, and the part of a nanosecond that it owes; not up to date while a packet
    /// that was taken by [`Port::enqueue_plain`] is alone on the wire.
    free_at: Time,
    fraction: u32,
    has_jitter: bool,
    /// The other end may be of another part of the network.
    crosses: bool,
    /// The capacity changes with time: `rest` has a schedule.
    varies: bool,
    /// Nanoseconds per byte at the nominal rate, 32 binary places.
    nanos_per_byte: u64,
    waiting_bytes: u64,
    queue: Queue,
    pub(crate) extras: Option<Box<Extras>>,
    rest: Box<Rest>,
}

const _: () = assert!(size_of::<Port>() == 128);

/// What a hop over an idle link leaves alone.
#[derive(Default)]
struct Rest {
    /// Capacity over time, where it changes.
    schedule: Option<Box<Schedule>>,
    ring: VecDeque<Transit>,
    dropped: u64,
    marked: u64,
    /// Host ports: random processing delay.
    jitter: Option<Jitter>,
    /// Where packets go to another part of the network: the link's delay.
    crossing_delay: Span,
}

impl Port {
    pub(crate) fn new(rate: Rate, delay: Span, discipline: Discipline, limit: Option<Limit>) -> Self {
        let nanos_per_byte = IdealPort::new(rate, delay).nanos_per_byte;
        let queue = match (discipline, limit) {
            (_, Some(limit)) => Queue::DropTail(DropTail { limit }),
            (Discipline::Fifo(admission), _) => Queue::Fifo(Box::new(Rule { admission })),
            (Discipline::Ordered(qdisc), _) => Queue::Ordered(Box::new(Ordered {
                qdisc,
                wake: Time::MAX,
                dropped: Vec::new(),
                processing: VecDeque::new(),
            })),
        };
        Self { nanos_per_byte, delay, queue, ..Self::default() }
    }

    /// Nanoseconds per byte at the nominal rate, 32 binary places.
    pub(crate) fn nanos_per_byte(&self) -> u64 {
        self.nanos_per_byte
    }

    /// What the completion time in an empty network depends on.
    pub(crate) fn ideal(&self) -> IdealPort {
        let wire = self.extras.as_ref().and_then(|extras| extras.wire.as_deref());
        let delay = wire.map_or(self.delay + self.rest.crossing_delay, Wire::delay);
        IdealPort { nanos_per_byte: self.nanos_per_byte, delay }
    }

    /// Capacity over time, where it changes.
    pub(crate) fn schedule(&self) -> Option<&Schedule> {
        self.rest.schedule.as_deref()
    }

    /// Lets the capacity change with time.
    pub(crate) fn set_schedule(&mut self, schedule: Schedule) {
        self.varies = true;
        self.rest.schedule = Some(Box::new(schedule));
    }

    /// Lets packets take different times on the wire, which they enter when they have been transmitted.
    pub(crate) fn set_propagation(&mut self, propagation: Propagation) {
        self.delay = Span::ZERO;
        self.extras().wire = Some(Box::new(Wire::new(propagation)));
    }

    /// Adds losses on the wire.
    pub(crate) fn set_losses(&mut self, losses: Box<Losses>) {
        self.extras().losses = Some(losses);
    }

    /// Data that began transmission, or what of it arrives, where probes are stamped.
    pub(crate) fn passed(&self, end: PathEnd) -> Passed {
        let path = self.extras.as_ref().and_then(|extras| extras.path.as_ref());
        path.map_or_else(Passed::default, |path| match end {
            PathEnd::First => path.left,
            PathEnd::Last => path.arriving,
        })
    }

    pub(crate) fn extras(&mut self) -> &mut Extras {
        self.extras.get_or_insert_default()
    }

    /// Takes a packet; the port is number `id`.
    #[inline(always)]
    pub(crate) fn enqueue(
        &mut self,
        id: u32,
        now: Time,
        label: Label,
        slab: &mut Slab,
        events: &mut EventQueue,
    ) {
        if self.plain != 0 {
            if self.in_transit == 0 {
                self.enqueue_plain(id, now, label, events);
            } else {
                self.enqueue_behind(now, label, slab);
            }
            return;
        }
        if self.crosses {
            self.forget_departed(now);
        }
        let mut fate = 0;
        if self.extras.is_some() {
            match self.pass_extras(now, label, slab) {
                Some(own) => fate = own,
                None => return slab.remove(label.key),
            }
        }
        let backlog = self.waiting_at(now);
        let verdict = match &mut self.queue {
            Queue::DropTail(rule) => {
                // It looks at lengths only.
                let pkt = Pkt {
                    key: label.key,
                    len: label.len,
                    flow: FlowId(label.flow),
                    dscp: 0,
                    ect: false,
                    ce: false,
                    reverse: false,
                };
                rule.admit(now, backlog, Span::ZERO, &pkt)
            }
            Queue::Fifo(rule) => {
                let idle = now.since(self.free_at);
                rule.admission.admit(now, backlog, idle, &pkt_view(label.key, slab.at(label.key)))
            }
            Queue::Ordered(ordered) => {
                let label = Label { key: label.key | fate, ..label };
                let Some(jitter) = &mut self.rest.jitter else {
                    return self.enqueue_ordered(id, now, label, slab, events);
                };
                let ready = jitter.ready(now, label.len);
                if ordered.processing.is_empty() {
                    events.push(ready, Event::Processed(id));
                }
                ordered.processing.push_back((ready, label));
                return;
            }
        };
        match verdict {
            Verdict::Accept => {}
            Verdict::Mark => {
                slab.at(label.key).mark();
                self.rest.marked += 1;
            }
            Verdict::Drop => {
                self.rest.dropped += 1;
                slab.drop(label.key);
                return;
            }
        }
        let ready = if self.has_jitter { self.processed_at(now, label.len) } else { now };
        let label = Label { key: label.key | fate, ..label };
        let start = self.transmit(id, ready, now, label, events);
        if self.extras.is_some() {
            self.watch(start, now, label, slab, events);
        }
    }

    /// Takes a packet on a plain port with nothing on its wire: transmission begins now.
    #[inline]
    fn enqueue_plain(&mut self, id: u32, now: Time, label: Label, events: &mut EventQueue) {
        let arrive = now + self.transmission_alone(label.len) + self.delay;
        self.head = Transit { start: now, arrive, label };
        self.in_transit = 1;
        events.push(arrive, Event::Arrival(id));
    }

    /// Takes a packet on a plain port with others on its wire or waiting, unless too many wait.
    #[inline(always)]
    fn enqueue_behind(&mut self, now: Time, label: Label, slab: &mut Slab) {
        self.settle();
        // Packets that nobody has looked for since count as waiting: it is enough to look when they might be too many.
        if self.is_full(label.len) {
            self.waiting_at(now);
            if self.is_full(label.len) {
                self.rest.dropped += 1;
                slab.drop(label.key);
                return;
            }
        }
        let start = self.occupy(now, label.len);
        self.rest.ring.push_back(Transit { start, arrive: self.free_at + self.delay, label });
        self.in_transit += 1;
        // Where this one need not wait, all before it have begun.
        (self.waiting, self.waiting_bytes) = match start > now {
            true => (self.waiting + 1, self.waiting_bytes + u64::from(label.len)),
            false => (0, 0),
        };
    }

    /// A packet of `len` bytes does not fit on a drop-tail port, if what counts as waiting still waits.
    #[inline]
    fn is_full(&self, len: u32) -> bool {
        match &self.queue {
            Queue::DropTail(DropTail { limit: Limit::Packets(most) }) => self.waiting >= *most,
            Queue::DropTail(DropTail { limit: Limit::Bytes(most) }) => {
                self.waiting_bytes + u64::from(len) > most.get()
            }
            _ => false,
        }
    }

    /// Transmission time of a packet that finds a plain port idle.
    #[inline]
    fn transmission_alone(&self, len: u32) -> Span {
        Span::from_nanos(((u128::from(len) * u128::from(self.plain)) >> 32) as u64)
    }

    /// Brings the transmitter's state up to date after [`Port::enqueue_plain`].
    #[inline]
    fn settle(&mut self) {
        if self.in_transit != 1 {
            return;
        }
        let free_at = self.head.start + self.transmission_alone(self.head.label.len);
        // A packet that was taken otherwise has set a time that is as late or later.
        if free_at > self.free_at {
            self.free_at = free_at;
            // The low half is the same whatever the high half overflows by.
            self.fraction = u64::from(self.head.label.len).wrapping_mul(self.plain) as u32;
        }
    }

    /// Finds out, once everything is set, whether [`Port::enqueue_plain`] may be used. On a wire without delay the part of
    /// a nanosecond that the transmitter owes would still count when a packet has arrived.
    pub(crate) fn finish_setup(&mut self) {
        let takes_any = match &self.queue {
            Queue::DropTail(DropTail { limit: Limit::Bytes(most) }) => most.get() >= LARGEST,
            Queue::DropTail(rule) => matches!(rule.limit, Limit::Packets(1..) | Limit::Unlimited),
            Queue::Fifo(_) | Queue::Ordered(_) => false,
        };
        let is_simple = !self.varies && !self.has_jitter && !self.crosses && self.extras.is_none();
        if takes_any && is_simple && !self.delay.is_zero() {
            self.plain = self.nanos_per_byte;
        }
    }

    fn enqueue_ordered(
        &mut self,
        id: u32,
        now: Time,
        label: Label,
        slab: &mut Slab,
        events: &mut EventQueue,
    ) {
        let Queue::Ordered(ordered) = &mut self.queue else { return };
        if let Some(sojourns) = self.extras.as_mut().and_then(|extras| extras.sojourns.as_mut()) {
            sojourns.arrive(label.key & !MARKS, now);
        }
        let packet = slab.at(label.key & !MARKS);
        packet.hop = label.hop;
        let verdict = ordered.qdisc.enqueue(now, pkt_view(label.key, packet), &mut ordered.dropped);
        match verdict {
            Verdict::Accept => {}
            Verdict::Mark => {
                packet.mark();
                self.rest.marked += 1;
            }
            Verdict::Drop => {
                self.rest.dropped += 1;
                slab.drop(label.key & !MARKS);
            }
        }
        self.rest.dropped += ordered.bury(slab);
        // Idle, or held back by a shaper. A transmitter that becomes free at this very moment has its own event.
        let is_free = ordered.wake == Time::MAX || self.free_at <= now && ordered.wake > now;
        if is_free && verdict != Verdict::Drop {
            self.start_next(id, now, slab, events);
        } else {
            self.watch_level(now);
        }
    }

    /// Bytes that wait at `now`.
    #[inline]
    pub(crate) fn waiting_bytes(&mut self, now: Time) -> u64 {
        if self.crosses {
            self.forget_departed(now);
        }
        match &self.queue {
            Queue::Ordered(ordered) => ordered.qdisc.backlog().bytes,
            _ => self.waiting_at(now).bytes,
        }
    }

    /// What waits at `now` on a port that transmits in order of arrival; transmissions that have begun are forgotten.
    #[inline]
    fn waiting_at(&mut self, now: Time) -> Backlog {
        while self.waiting > 0 {
            let first = match self.in_transit - self.waiting {
                0 => self.head,
                begun => self.rest.ring[begun as usize - 1],
            };
            if first.start > now {
                break;
            }
            self.waiting -= 1;
            self.waiting_bytes -= u64::from(first.label.len);
        }
        Backlog { packets: self.waiting, bytes: self.waiting_bytes }
    }

    /// Puts a packet on the wire as soon as the transmitter is free after `ready`; returns when that is.
    #[inline]
    fn transmit(&mut self, id: u32, ready: Time, now: Time, label: Label, events: &mut EventQueue) -> Time {
        let start = if self.varies {
            let continues = self.free_at >= ready;
            let start = if continues { self.free_at } else { ready };
            self.free_at = self.finish_by_schedule(start, continues, label.len);
            start
        } else {
            self.occupy(ready, label.len)
        };
        let arrive = self.free_at + self.delay;
        let transit = Transit { start, arrive, label };
        if self.in_transit > 0 {
            self.rest.ring.push_back(transit);
        } else {
            self.head = transit;
            if !self.crosses {
                events.push(arrive, Event::Arrival(id));
            }
        }
        if self.crosses {
            events.leave(self.leaves(id, label, now, arrive));
        }
        self.in_transit += 1;
        if start > now {
            self.waiting += 1;
            self.waiting_bytes += u64::from(label.len);
        }
        start
    }

    /// Lets the transmitter, whose rate stays, send a packet that is ready; returns when it begins.
    #[inline(always)]
    fn occupy(&mut self, ready: Time, len: u32) -> Time {
        // At the very moment the transmitter becomes free it still owes its part of a nanosecond.
        let start = if self.free_at >= ready {
            self.free_at
        } else {
            self.fraction = 0;
            ready
        };
        let owed = u128::from(len) * u128::from(self.nanos_per_byte) + u128::from(self.fraction);
        self.fraction = owed as u32;
        self.free_at = start + Span::from_nanos((owed >> 32) as u64);
        start
    }

    #[cold]
    #[inline(never)]
    fn finish_by_schedule(&mut self, start: Time, continues: bool, len: u32) -> Time {
        self.rest.schedule.as_mut().map_or(start, |schedule| schedule.finish(start, continues, len))
    }

    /// The transmitter may ask for the next packet now, unless it has done so already.
    pub(crate) fn wake(&mut self, id: u32, now: Time, slab: &mut Slab, events: &mut EventQueue) {
        if let Queue::Ordered(ordered) = &mut self.queue
            && ordered.wake == now
        {
            // Taken: a transmission that rounds to no time plans this very moment again.
            ordered.wake = Time::MAX;
            self.start_next(id, now, slab, events);
        }
    }

    /// The discipline picks the next packet, when the transmitter is free.
    fn start_next(&mut self, id: u32, now: Time, slab: &mut Slab, events: &mut EventQueue) {
        let Queue::Ordered(ordered) = &mut self.queue else { return };
        let next = ordered.qdisc.dequeue(now, &mut ordered.dropped);
        self.rest.dropped += ordered.bury(slab);
        match next {
            Some(pkt) => {
                let packet = slab.at(pkt.key & !MARKS);
                if pkt.ce && !packet.is_ce() {
                    packet.mark();
                    self.rest.marked += 1;
                }
                let hop = packet.hop;
                let label = Label { key: pkt.key, hop, len: pkt.len, flow: pkt.flow.0 };
                self.transmit(id, now, now, label, events);
                if self.extras.is_some() {
                    self.watch(now, now, label, slab, events);
                }
                self.plan_wake(id, self.free_at, events);
            }
            None => match ordered.qdisc.next_ready(now) {
                // A shaper holds packets back.
                Some(at) => self.plan_wake(id, at.max(now + Span::from_nanos(1)), events),
                None => ordered.wake = Time::MAX,
            },
        }
        self.watch_level(now);
    }

    /// Changes a class of a shaper; false when the shaper refuses. Packets that were held back may go earlier: the
    /// transmitter asks again after whatever else happens now, so that a plan of several changes applies as a whole.
    pub(crate) fn set_class(
        &mut self,
        id: u32,
        now: Time,
        change: &ClassChange<'_>,
        events: &mut EventQueue,
    ) -> bool {
        let Queue::Ordered(ordered) = &mut self.queue else { return false };
        let known = ordered.qdisc.set_class(now, change);
        if known && ordered.wake != Time::MAX && self.free_at <= now && ordered.wake > now {
            self.plan_wake(id, now, events);
        }
        known
    }

    fn plan_wake(&mut self, id: u32, at: Time, events: &mut EventQueue) {
        let Queue::Ordered(ordered) = &mut self.queue else { return };
        if ordered.wake != at {
            ordered.wake = at;
            events.push(at, Event::PortFree(id));
        }
    }

    /// On a port whose discipline picks: the queue is what it is from now on.
    #[inline]
    fn watch_level(&mut self, now: Time) {
        if let Some(watch) = self.extras.as_mut().and_then(|extras| extras.watch.as_mut())
            && let Queue::Ordered(ordered) = &self.queue
        {
            watch.set_level(now, ordered.qdisc.backlog().packets);
        }
    }

    /// Place in the table of routes of the packet that arrives next.
    #[inline]
    pub(crate) fn head_hop(&self) -> u32 {
        self.head.label.hop
    }

    /// Loads what taking a packet needs into the cache.
    #[inline]
    pub(crate) fn fetch(&self) {
        std::hint::black_box(self.in_transit);
    }

    /// Takes the packet that arrives now at the other end; `None` when the wire lost it, or lost it to a fault before.
    #[inline(always)]
    pub(crate) fn arrive(
        &mut self,
        id: u32,
        now: Time,
        slab: &mut Slab,
        events: &mut EventQueue,
    ) -> Option<Label> {
        let head = self.head;
        // The event of a packet that a fault took may come while others are on the wire.
        if head.arrive != now {
            return None;
        }
        self.in_transit = self.in_transit.checked_sub(1)?;
        let waited = self.waiting > self.in_transit;
        self.waiting -= u32::from(waited);
        self.waiting_bytes -= u64::from(head.label.len) * u64::from(waited);
        if self.in_transit > 0
            && let Some(next) = self.rest.ring.pop_front()
        {
            self.head = next;
            events.push_near(next.arrive, Event::Arrival(id));
            if self.rest.ring.is_empty() {
                // The next entry goes to the front again, which is in the cache, and not around the whole ring.
                self.rest.ring.clear();
            }
        }
        if head.label.key & MARKS != 0 {
            self.end_transmission(id, now, head.label, slab, events);
            return None;
        }
        self.delivered += 1;
        Some(head.label)
    }

    /// What waits at `now`.
    pub(crate) fn backlog(&self, now: Time) -> Backlog {
        if let Queue::Ordered(ordered) = &self.queue {
            return ordered.qdisc.backlog();
        }
        self.latest_first().take_while(|t| t.start > now).fold(Backlog::default(), |b, t| Backlog {
            packets: b.packets + 1,
            bytes: b.bytes + u64::from(t.label.len),
        })
    }

    /// Packets that the wire lost.
    fn lost(&self) -> u64 {
        self.extras.as_ref().map_or(0, |extras| extras.lost)
    }

    /// Packets that were lost because the link was down, or went down.
    fn faulted(&self) -> u64 {
        self.extras.as_ref().map_or(0, |extras| extras.faulted)
    }

    /// Packets that a queue in order of arrival has taken, or that the discipline has picked.
    pub(crate) fn accepted(&self) -> u64 {
        self.delivered + self.lost() + self.in_transit()
    }

    /// Bytes of the packets whose transmission has begun by `now`; counted on ports with extras only.
    pub(crate) fn begun_bytes(&self, now: Time) -> u64 {
        let planned = self.extras.as_ref().map_or(0, |extras| extras.planned);
        match &self.queue {
            Queue::Ordered(_) => planned,
            _ => planned.saturating_sub(self.backlog(now).bytes),
        }
    }

    /// Packets that were offered to it.
    pub(crate) fn offered(&self) -> u64 {
        self.accepted() + self.held() + self.rest.dropped + self.faulted()
    }

    pub(crate) fn counters(&self) -> PortCounters {
        PortCounters {
            dropped: self.rest.dropped,
            delivered: self.delivered,
            lost: self.lost(),
            faulted: self.faulted(),
        }
    }

    /// Packets marked with congestion experienced here.
    pub(crate) fn marked(&self) -> u64 {
        self.rest.marked
    }

    /// Packets between acceptance and arrival, waiting included.
    pub(crate) fn in_transit(&self) -> u64 {
        let wire = self.extras.as_ref().and_then(|extras| extras.wire.as_deref());
        u64::from(self.in_transit) + wire.map_or(0, Wire::packets)
    }

    /// Packets in transit, the last accepted first.
    fn latest_first(&self) -> impl Iterator<Item = &Transit> {
        self.rest.ring.iter().rev().chain((self.in_transit > 0).then_some(&self.head))
    }

    /// Packets that an ordering discipline holds, or the host that will hand them to it.
    pub(crate) fn held(&self) -> u64 {
        match &self.queue {
            Queue::Ordered(ordered) => {
                u64::from(ordered.qdisc.backlog().packets) + ordered.processing.len() as u64
            }
            _ => 0,
        }
    }

    /// Packet-nanoseconds waited since the last call.
    pub(crate) fn take_waited(&mut self, now: Time) -> u64 {
        // What waiting packets will still wait was added at their enqueue.
        let ahead: u64 =
            self.latest_first().map(|t| t.start.since(now).as_nanos()).take_while(|w| *w > 0).sum();
        let Some(watch) = self.extras.as_mut().and_then(|e| e.watch.as_mut()) else { return 0 };
        watch.set_level(now, watch.level);
        let until_now = watch.waited - ahead;
        let since_last = until_now - watch.reported;
        watch.reported = until_now;
        since_last
    }

    /// Notes a packet whose transmission begins at `start`, not before `now`. What only the label tells leaves the packet alone.
    #[cold]
    fn watch(&mut self, start: Time, now: Time, label: Label, slab: &mut Slab, events: &mut EventQueue) {
        let Some(extras) = &mut self.extras else { return };
        let Label { key, len, flow, .. } = label;
        extras.planned += u64::from(len);
        if let Some(watch) = &mut extras.watch {
            watch.waited += start.since(now).as_nanos();
            watch.max = watch.max.max(self.waiting);
        }
        if let Some(sojourns) = &mut extras.sojourns {
            let arrived = match (&self.queue, &self.rest.jitter) {
                (Queue::Ordered(_), _) => sojourns.arrived[(key & !MARKS) as usize],
                (_, Some(jitter)) => jitter.last,
                _ => now,
            };
            sojourns.note(flow, arrived, start);
        }
        if let Some(path) = &mut extras.path {
            path.pass(start, key, slab.at(key & !MARKS), events);
        }
        if let Some(capture) = &mut extras.capture
            && flow != PROBE
        {
            capture.push((start, *slab.at(key & !MARKS)));
        }
    }

    /// What becomes of a packet on the wire; none: it is lost here, as the link is down.
    #[cold]
    fn pass_extras(&mut self, now: Time, label: Label, slab: &mut Slab) -> Option<u32> {
        let Some(extras) = &mut self.extras else { return Some(0) };
        if extras.is_down {
            extras.faulted += 1;
            return None;
        }
        let is_data = label.flow != PROBE;
        if is_data && (extras.flow_counter.is_some() || !extras.programs.is_empty()) {
            let packet = slab.at(label.key);
            let header = Header {
                flow: FlowId(packet.flow),
                reverse: packet.reverse,
                syn: packet.flags & flag::SYN != 0,
                fin: packet.flags & flag::FIN != 0,
            };
            let counter = extras.flow_counter.as_mut().map(|counter| counter as &mut dyn PortProgram);
            let programs = extras.programs.iter_mut().map(|program| program.as_mut() as &mut dyn PortProgram);
            counter.into_iter().chain(programs).for_each(|program| program.on_packet(now, &header));
        }
        let is_lost = (extras.losses.as_mut())
            .is_some_and(|losses| losses.loses_next(is_data && slab.at(label.key).payload > 0));
        let varies = if extras.wire.is_some() { VARIED } else { 0 };
        Some(if is_lost { LOST } else { varies })
    }
}

fn pkt_view(key: u32, packet: &Packet) -> Pkt {
    Pkt {
        key,
        len: packet.len,
        flow: FlowId(packet.flow),
        dscp: packet.dscp(),
        ect: packet.is_ect(),
        ce: packet.is_ce(),
        reverse: packet.reverse,
    }
}

#[cfg(test)]
mod tests;
