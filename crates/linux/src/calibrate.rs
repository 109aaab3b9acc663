//! Measures how well this machine emulates links: the lab's forwarder, seen from outside.
//!
//! One link joins two unnamed network namespaces. A sender in the first stamps packets with the time, and the kernel stamps
//! them when they arrive in the second, so a receiving program's delay does not count.

use std::fs;
use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use bandmaster_core::fairness::{self, max_min};
use bandmaster_core::id::PortId;
use bandmaster_core::params::Limit;
use bandmaster_core::qdisc::fifo::{DropTail, Fifo};
use bandmaster_core::qdisc::htb;
use bandmaster_core::scenario::{Scenario, Transport};
use bandmaster_core::sketch::Histogram;
use bandmaster_core::span_cdf::SpanCdf;
use bandmaster_core::time::Span;
use bandmaster_core::units::{Rate, tcp_headers};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt, sockopt};
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_gettime};
use serde::Serialize;

use crate::cables::{self, Far};
use crate::forwarder::{self, Counters, Forwarder, Health, PortPlan, Worked};
use crate::netns::{self, apart};
use crate::packet_ring::{self, PacketRing};
use crate::timing::Timing;
use crate::wiring::{RouteMetrics, Wiring};
use crate::workplan::Workplan;
use crate::{Error, address, limits, syscall};

/// Delay of the link that delay and loss are measured on.
pub const DELAY: Span = Span::from_millis(25);
/// Packets per second while delay is measured.
pub const DELAY_PACKETS: u32 = 2_000;
/// Goal: most that the 99th percentile is off.
pub const DELAY_GOAL: Span = Span::from_micros(200);
/// Packets per second of which none may be lost, nor be late.
pub const LOSS_PACKETS: u32 = 250_000;
/// Rates of the links whose rate is measured.
pub const RATES: [Rate; 2] = [Rate::from_bits_per_sec(5_000_000), Rate::from_bits_per_sec(100_000_000)];
/// Windows that the rate is measured over.
pub const WINDOWS: [Span; 4] =
    [Span::from_millis(1), Span::from_millis(10), Span::from_millis(100), Span::from_secs(1)];
/// Each measurement is made so often, and the best counts.
pub const ROUNDS: usize = 3;
/// A scenario may ask for this share of the capacity without a warning.
pub const COMFORTABLE: f64 = 0.5;

/// What of a measurement does not count: caches and queues fill.
const WARM_UP: Duration = Duration::from_millis(200);
/// Lengths of the measurements, with the warm-up.
const DELAY_TIME: Duration = Duration::from_millis(1_800);
const LOSS_TIME: Duration = Duration::from_millis(1_200);
const RATE_TIME: Duration = Duration::from_millis(1_900);
const CAPACITY_TIME: Duration = Duration::from_millis(900);
/// A rate for which transmission takes next to no time.
const FAST: Rate = Rate::from_bits_per_sec(10_000_000_000);
/// IP packets of full and of small size.
const FULL: usize = 1_500;
const SMALL: usize = 128;
/// IPv4 and UDP headers.
const HEADERS: usize = bandmaster_core::units::UDP_HEADERS as usize;
const PORT: u16 = 9;
/// Real-time priority of sender and receiver, as the lab's traffic has it: below the forwarder's.
const PRIORITY: i32 = 10;
/// A sender that is late by more than this forgets the rest instead of sending it at once.
const MOST_BURST: Duration = Duration::from_millis(1);
/// Receive buffer: more than is ever on the way, and comes between two looks.
const BUFFER: usize = 64 << 20;
const LOOKS: Duration = Duration::from_millis(1);

/// What was measured.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Calibration {
    /// Mean number of runnable tasks in the minute before, as the kernel tells.
    pub load_before: Option<f64>,
    /// Cores of the machine.
    pub cores: usize,
    /// True when the forwarder runs before all ordinary threads.
    pub real_time: bool,
    /// One-way delay.
    pub delay: DelayFit,
    /// How late the forwarder hands packets over, in the measurements of delay and rate: jitter that gives a simulated path
    /// the pauses of this machine.
    pub lateness: SpanCdf,
    /// Packets that did not arrive.
    pub loss: LossFit,
    /// One link per rate in [`RATES`].
    pub rates: Vec<RateFit>,
    /// Most that the forwarder carries.
    pub capacity: Capacity,
    /// The same of a loop that reads each packet and writes it, and does nothing else: what the kernel allows.
    pub bare: Capacity,
}

/// One-way delays over a link of [`DELAY`], in milliseconds.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct DelayFit {
    /// Packets.
    pub packets: usize,
    /// Median.
    pub p50: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Longest.
    pub max: f64,
}

impl DelayFit {
    /// Whether the 99th percentile is as near to the link's delay as it should be.
    pub fn reaches_goal(&self) -> bool {
        (self.p99 - DELAY.as_secs_f64() * 1e3).abs() <= DELAY_GOAL.as_secs_f64() * 1e3
    }
}

/// What became of packets at [`LOSS_PACKETS`] per second.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct LossFit {
    /// Packets per second that the sender managed.
    pub rate: f64,
    /// Packets sent.
    pub sent: u64,
    /// Lost before the forwarder read them.
    pub unread: u64,
    /// Dropped by the link's queue, which would have held all in time.
    pub dropped: u64,
    /// Refused by the device of the receiver, or lost behind it.
    pub unreceived: u64,
    /// Of those that came.
    pub delay: DelayFit,
}

impl LossFit {
    /// Packets that did not arrive.
    pub fn lost(&self) -> u64 {
        self.unread + self.dropped + self.unreceived
    }

    /// Whether the sender managed the rate.
    pub fn is_at_rate(&self) -> bool {
        self.rate >= 0.98 * f64::from(LOSS_PACKETS)
    }

    /// Whether the sender managed the rate, nothing was lost, and the 99th percentile is as near to the link's delay as it should be.
    pub fn reaches_goal(&self) -> bool {
        self.lost() == 0 && self.is_at_rate() && self.delay.reaches_goal()
    }

    /// How far it is from its goal.
    fn badness(&self) -> f64 {
        self.lost() as f64 + (f64::from(LOSS_PACKETS) - self.rate).max(0.0) + 1e3 * self.delay.p99
    }
}

/// How evenly a saturated link carries.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct RateFit {
    /// Rate that was asked for, in bit/s.
    pub asked: u64,
    /// Mean rate, in bit/s.
    pub mean: f64,
    /// For each of [`WINDOWS`].
    pub windows: Vec<WindowFit>,
}

/// Rates in windows of one length, as shares of the rate asked for.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct WindowFit {
    /// Length in milliseconds.
    pub window: f64,
    /// 99th percentile of the deviation.
    pub p99: f64,
    /// Largest deviation.
    pub worst: f64,
}

/// Full packets without rest over one link.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Capacity {
    /// Packets per second that the sender offered.
    pub offered: f64,
    /// Packets per second that were handed to the receiver's device.
    pub carried: f64,
    /// Share of a core that the forwarder used.
    pub core: f64,
}

impl Capacity {
    /// Packets per second that the forwarder carries on one core; the sum over all links of a network.
    pub fn per_core(&self) -> f64 {
        if self.core > 0.0 { self.carried / self.core.min(1.0) } else { 0.0 }
    }
}

/// What a scenario asks of the forwarder.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Load {
    /// Packets per second, each counted at every link that it crosses.
    pub packets: f64,
}

/// Packets per second that the flows of `scenario` put on its links when all of them send, at max-min fair rates.
///
/// # Errors
/// When the lab cannot build the scenario at all, with what it cannot.
pub fn load(scenario: &Scenario) -> Result<Load, Error> {
    limits::check(scenario, 1)?;
    let plan = Workplan::new(scenario, 0)?;
    let overhead = scenario.topology.frame_overhead.get() as f64;
    let headers = f64::from(tcp_headers(true));
    // An HTB passes no more than its root's rate.
    let shaped = |port: usize, rate: Rate| {
        let queue = scenario.topology.queue(PortId(port as u32));
        if queue.discipline == &htb::DEF { rate.min(queue.params.rate("rate")) } else { rate }
    };
    let ports = plan.links.rates.iter().enumerate();
    let capacities: Vec<f64> = ports.map(|(port, rate)| shaped(port, *rate).bits_per_sec() as f64).collect();
    let transport = |i: usize| &plan.flows[i].group(&scenario.flows).transport;
    let most = |i: usize| match transport(i) {
        Transport::Tcp { .. } => f64::INFINITY,
        Transport::Udp { rate, .. } => rate.bits_per_sec() as f64,
    };
    let demands: Vec<fairness::Demand<'_>> = (plan.data_routes.iter().enumerate())
        .map(|(i, links)| fairness::Demand { links, most: most(i), flows: 1 })
        .collect();
    let rates = max_min(&capacities, &demands);
    let packets = rates.iter().enumerate().map(|(i, rate)| {
        let hops = plan.data_routes[i].len() as f64;
        match transport(i) {
            Transport::Udp { packet, .. } => hops * rate / (8.0 * packet.get() as f64),
            Transport::Tcp { settings, .. } => {
                let data = rate / (8.0 * (settings.mss.get() as f64 + headers + overhead));
                let answers = plan.ack_routes.get(i).map_or(0.0, |ports| ports.len() as f64);
                data * (hops + answers / f64::from(settings.delayed_ack.max(1)))
            }
        }
    });
    Ok(Load { packets: packets.sum() })
}

/// Packets per second from which a run is worth a look at the machine before it: some 120 Mbit/s over one link.
const WORTH_A_LOOK: f64 = 10_000.0;
/// A forwarder that works for a larger share of its time has no rest for what comes at once.
pub const MOST_WORK: f64 = 0.9;

/// Whether this machine carries what the flows of `scenario` put on its links; the remark when it does only just. The
/// capacity is measured once, for less than 3 s, and only for what asks for much.
///
/// # Errors
/// When it does not.
pub(crate) fn fits(scenario: &Scenario) -> Result<Option<String>, Error> {
    static CAPACITY: Mutex<Option<f64>> = Mutex::new(None);
    let asked = load(scenario)?.packets;
    if asked < WORTH_A_LOOK {
        return Ok(None);
    }
    let mut known = CAPACITY.lock().unwrap_or_else(PoisonError::into_inner);
    let most = match *known {
        Some(most) => most,
        None => {
            // The best counts, as in `calibrate`: others disturb, and do not help.
            let rounds = (0..ROUNDS).map(|_| capacity().map(|capacity| capacity.per_core()));
            let most = rounds.collect::<Result<Vec<_>, _>>()?.into_iter().fold(0.0, f64::max);
            *known = Some(most);
            most
        }
    };
    judge(asked, most)
}

fn judge(asked: f64, most: f64) -> Result<Option<String>, Error> {
    let share = asked / most.max(1.0);
    let said = format!(
        "the links carry {asked:.0} packets/s, and this machine forwards {most:.0} (`bandmaster calibrate`)"
    );
    if share > 1.0 {
        return Err(Error::Missing(format!(
            "{said}: the results would show this machine instead of the network; lower the rates, or `run` simulates it"
        )));
    }
    Ok((share > COMFORTABLE).then(|| format!("{said}: it is near its limit")))
}

/// Measures, for less than 30 s. Needs the privileges of [`take_privileges`](crate::netns::take_privileges).
///
/// # Errors
/// When privileges or devices are missing, or the kernel refuses.
pub fn measure() -> Result<Calibration, Error> {
    let load = fs::read_to_string("/proc/loadavg").ok();
    let load_before = load.and_then(|text| text.split(' ').next()?.parse().ok());
    let mut real_time = true;
    let mut lateness = Histogram::default();
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let (delay, health) = delay()?;
        real_time &= health.real_time;
        lateness.merge(&health.lateness);
        let rates = RATES.map(|asked| {
            let (fit, health) = rate(asked)?;
            lateness.merge(&health.lateness);
            Ok::<_, Error>(fit)
        });
        let [slow, fast] = rates;
        rounds.push((delay, loss()?, slow?, fast?, capacity()?, bare()?));
    }
    // Three rounds have a best.
    let none = || Error::Missing("nothing was measured".to_owned());
    let least = |of: &dyn Fn(&Round) -> f64| {
        rounds.iter().min_by(|a, b| of(a).total_cmp(&of(b))).cloned().ok_or_else(none)
    };
    Ok(Calibration {
        load_before,
        cores: thread::available_parallelism().map_or(1, usize::from),
        real_time,
        delay: least(&|round| round.0.p99)?.0,
        lateness: distribution(&lateness).ok_or_else(none)?,
        loss: least(&|round| round.1.badness())?.1,
        rates: vec![least(&|round| unevenness(&round.2))?.2, least(&|round| unevenness(&round.3))?.3],
        capacity: least(&|round| -round.4.per_core())?.4,
        bare: least(&|round| -round.5.per_core())?.5,
    })
}

type Round = (DelayFit, LossFit, RateFit, RateFit, Capacity, Capacity);

fn unevenness(fit: &RateFit) -> f64 {
    fit.windows.iter().map(|window| window.worst).sum()
}

/// Of values in ns, without the largest of each 10,000: one accident of the machine would decide where it ends. None of nothing.
fn distribution(values: &Histogram) -> Option<SpanCdf> {
    let points = [0.0, 0.1, 0.5, 0.9, 0.99, 0.999, 1.0]
        .map(|share: f64| (Span::from_nanos(values.at(share.min(0.9999))), share));
    SpanCdf::new(&points).ok().filter(|_| !values.is_empty())
}

fn delay() -> Result<(DelayFit, Health), Error> {
    let rig = Rig::new(FAST, DELAY, 100_000)?;
    let run = rig.run(DELAY_TIME, SMALL, Some(f64::from(DELAY_PACKETS)))?;
    Ok((run.delay()?, run.health))
}

fn loss() -> Result<LossFit, Error> {
    let rig = Rig::new(FAST, DELAY, 100_000)?;
    let run = rig.run(LOSS_TIME, SMALL, Some(f64::from(LOSS_PACKETS)))?;
    let Counters { arrived, dropped, .. } = run.counters;
    // The namespaces' kernels send now and then too.
    Ok(LossFit {
        rate: run.sent as f64 / LOSS_TIME.as_secs_f64(),
        sent: run.sent,
        unread: run.sent.saturating_sub(arrived),
        dropped,
        unreceived: arrived.min(run.sent).saturating_sub(dropped).saturating_sub(run.arrivals.len() as u64),
        delay: run.delay()?,
    })
}

fn rate(asked: Rate) -> Result<(RateFit, Health), Error> {
    let rig = Rig::new(asked, Span::ZERO, 50)?;
    let offered = 1.25 * asked.bits_per_sec() as f64 / (8.0 * FULL as f64);
    let run = rig.run(RATE_TIME, FULL, Some(offered))?;
    let times: Vec<f64> = run.counted().map(|arrival| arrival.came.as_secs_f64()).collect();
    Ok((evenness(asked, &times), run.health))
}

fn capacity() -> Result<Capacity, Error> {
    let rig = Rig::new(FAST, Span::ZERO, 1_000)?;
    let run = rig.run(CAPACITY_TIME, FULL, None)?;
    // It goes on with what waits in the device when the sender has ended.
    let seconds = run.forwarder.elapsed.as_secs_f64();
    Ok(Capacity {
        offered: run.sent as f64 / CAPACITY_TIME.as_secs_f64(),
        carried: run.counters.delivered as f64 / seconds,
        core: run.forwarder.processor.as_secs_f64() / seconds,
    })
}

/// A loop in the forwarder's place that only reads and writes.
fn bare() -> Result<Capacity, Error> {
    let Ends { sender, receiver, ring } = Ends::new()?;
    let (stop, over) = (AtomicBool::new(false), AtomicBool::new(false));
    let (sent, carried) = thread::scope(|scope| {
        let carrying = scope.spawn(|| carry(ring, &stop));
        let receiving = scope.spawn(|| receive(&receiver, &over));
        let sending = scope.spawn(|| send(&sender, CAPACITY_TIME, FULL, None));
        let sent = sending.join().unwrap_or_else(|panic| resume_unwind(panic));
        stop.store(true, Ordering::Relaxed);
        let carried = carrying.join().unwrap_or_else(|panic| resume_unwind(panic));
        over.store(true, Ordering::Relaxed);
        receiving.join().unwrap_or_else(|panic| resume_unwind(panic));
        (sent, carried)
    });
    let (carried, worked) = carried.map_err(|error| Error::os("carry packets", error))?;
    let seconds = worked.elapsed.as_secs_f64();
    Ok(Capacity {
        offered: sent.map_err(|error| Error::os("send", error))? as f64 / CAPACITY_TIME.as_secs_f64(),
        carried: carried as f64 / seconds,
        core: worked.processor.as_secs_f64() / seconds,
    })
}

/// Hands every packet of a link on to its other end until `stop`; so many.
fn carry(mut ring: PacketRing, stop: &AtomicBool) -> io::Result<(u64, Worked)> {
    let _ = forwarder::run_before_all();
    let _awake = forwarder::stay_awake();
    let begin = Instant::now();
    let mut carried = 0;
    let mut held = vec![(0, Vec::with_capacity(FULL)); packet_ring::BATCH];
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    epoll.add(&ring, EpollEvent::new(EpollFlags::EPOLLIN, 0))?;
    while !stop.load(Ordering::Relaxed) {
        let mut count = 0;
        while let Some((to, packet)) = held.get_mut(count)
            && let Some(()) = ring.receive(|(device, bytes)| {
                let port = cables::port_of(device).unwrap_or_default();
                *to = cables::far_end(port ^ 1);
                packet.clear();
                packet.extend_from_slice(bytes);
            })
        {
            count += 1;
        }
        if count == 0 {
            syscall::wait_for(&epoll, &mut [EpollEvent::empty()], Span::from_millis(1))?;
            continue;
        }
        let packets: Vec<_> = held[..count].iter().map(|(to, packet)| (*to, &packet[..])).collect();
        carried += count as u64;
        ring.send(&packets, |_| carried -= 1);
    }
    let processor = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)?.into();
    Ok((carried, Worked { processor, elapsed: begin.elapsed() }))
}

/// Full packets that arrived at `times`. Between two arrivals the second packet comes evenly.
fn evenness(asked: Rate, times: &[f64]) -> RateFit {
    let bits_per_sec = asked.bits_per_sec() as f64;
    let packet = 8.0 * FULL as f64;
    let (Some(first), Some(last)) = (times.first().copied(), times.last().copied()) else {
        return RateFit { asked: asked.bits_per_sec(), mean: 0.0, windows: Vec::new() };
    };
    // Bits up to a time; `from` is the position of an arrival before it.
    let carried = |at: f64, from: &mut usize| {
        while *from + 1 < times.len() && times[*from + 1] <= at {
            *from += 1;
        }
        let next = times.get(*from + 1).copied().unwrap_or(f64::INFINITY);
        let gap = next - times[*from];
        packet * (*from as f64 + if gap > 0.0 { (at - times[*from]) / gap } else { 0.0 })
    };
    let windows = WINDOWS.iter().filter_map(|window| {
        let (length, step) = (window.as_secs_f64(), window.as_secs_f64() / 10.0);
        let (mut begin, mut low, mut high) = (first, 0, 0);
        let mut deviations = Vec::new();
        while begin + length <= last {
            let bits = carried(begin + length, &mut high) - carried(begin, &mut low);
            deviations.push((bits / (bits_per_sec * length) - 1.0).abs());
            begin += step;
        }
        deviations.sort_by(f64::total_cmp);
        Some(WindowFit {
            window: length * 1e3,
            p99: at_share(&deviations, 0.99)?,
            worst: deviations.last().copied()?,
        })
    });
    let span = last - first;
    let mean = if span > 0.0 { packet * (times.len() - 1) as f64 / span } else { 0.0 };
    RateFit { asked: asked.bits_per_sec(), mean, windows: windows.collect() }
}

/// The value at a share of a sorted list.
fn at_share(sorted: &[f64], share: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    sorted.get((share * last as f64).round() as usize).copied()
}

// ------------------------------------------------------------------------------------------------------- one link

/// Two namespaces, a device in each, and a socket at each end. All of it goes when this is dropped.
struct Ends {
    sender: UdpSocket,
    receiver: UdpSocket,
    /// Of the link between them.
    ring: PacketRing,
}

/// A link between two ends.
struct Rig {
    sender: UdpSocket,
    receiver: UdpSocket,
    forwarder: Forwarder,
}

/// What came of sending over a [`Rig`].
struct Run {
    sent: u64,
    arrivals: Vec<Arrival>,
    /// Stamp before which nothing counts.
    counts_from: Duration,
    counters: Counters,
    forwarder: Worked,
    health: Health,
}

/// A packet that arrived, with the system's time when it was sent and came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Arrival {
    sent: Duration,
    came: Duration,
}

impl Arrival {
    fn delay(&self) -> Duration {
        self.came.saturating_sub(self.sent)
    }
}

impl Run {
    fn counted(&self) -> impl Iterator<Item = &Arrival> {
        self.arrivals.iter().filter(|arrival| arrival.sent >= self.counts_from)
    }

    fn delay(&self) -> Result<DelayFit, Error> {
        let mut delays: Vec<f64> =
            self.counted().map(|arrival| arrival.delay().as_secs_f64() * 1e3).collect();
        delays.sort_by(f64::total_cmp);
        let (Some(p50), Some(p99), Some(max)) =
            (at_share(&delays, 0.5), at_share(&delays, 0.99), delays.last().copied())
        else {
            return Err(Error::Missing(
                "not one packet came through an emulated link; does this system filter packets in new network \
                 namespaces?"
                    .to_owned(),
            ));
        };
        Ok(DelayFit { packets: delays.len(), p50, p99, max })
    }
}

impl Ends {
    fn new() -> Result<Self, Error> {
        let (far, ring) = Far::new(FULL as u32)?;
        let sender = end(&far, 0, address::sender(0), address::receiver(0))?;
        let receiver = end(&far, 1, address::receiver(0), address::sender(0))?;
        let refused = |error: io::Error| Error::os("prepare a socket", error);
        sender.connect(SocketAddr::from((address::receiver(0), PORT))).map_err(refused)?;
        setsockopt(&receiver, sockopt::ReceiveTimestampns, &true).map_err(|errno| refused(errno.into()))?;
        // Beyond what users may take; in a user namespace it stays at what they may.
        if setsockopt(&receiver, sockopt::RcvBufForce, &BUFFER).is_err() {
            let _ = setsockopt(&receiver, sockopt::RcvBuf, &BUFFER);
        }
        receiver.set_nonblocking(true).map_err(refused)?;
        Ok(Self { sender, receiver, ring })
    }
}

impl Rig {
    /// A link of `rate` and `delay` whose queue holds `limit` packets.
    fn new(rate: Rate, delay: Span, limit: u32) -> Result<Self, Error> {
        let Ends { sender, receiver, ring } = Ends::new()?;
        let port = || PortPlan {
            queue: Box::new(Fifo::new(Box::new(DropTail { limit: Limit::Packets(limit) }))),
            rate,
            schedule: None,
            delay,
            losses: None,
            overhead: 0,
            tells_left: false,
            tells_came: false,
            programs: Vec::new(),
            gate: None,
            sojourns: None,
        };
        let forwarder = Forwarder::start(ring, vec![port(), port()], &[], Timing::default(), Arc::default())?;
        Ok(Self { sender, receiver, forwarder })
    }

    /// Sends IP packets of `size` for `time`, so many a second, or as many as it can.
    fn run(mut self, time: Duration, size: usize, packets_per_second: Option<f64>) -> Result<Run, Error> {
        let over = AtomicBool::new(false);
        let counts_from = now() + WARM_UP;
        let (sent, arrivals, worked) = thread::scope(|scope| {
            let receiving = scope.spawn(|| receive(&self.receiver, &over));
            let sending = scope.spawn(|| send(&self.sender, time, size, packets_per_second));
            let sent = sending.join().unwrap_or_else(|panic| resume_unwind(panic));
            // What is still on its way has the link's delay to come, and a queue before it.
            thread::sleep(Duration::from_nanos(DELAY.as_nanos()) * 3);
            let ended = self.forwarder.end();
            over.store(true, Ordering::Relaxed);
            let arrivals = receiving.join().unwrap_or_else(|panic| resume_unwind(panic));
            (sent, arrivals, ended.unwrap_or_else(|panic| resume_unwind(panic)))
        });
        Ok(Run {
            sent: sent.map_err(|error| Error::os("send", error))?,
            arrivals,
            counts_from,
            counters: self.forwarder.board.port(0).counters,
            forwarder: worked?,
            health: self.forwarder.board.health(),
        })
    }
}

/// A namespace with an address, and a device of `port` that leads to `peer`.
fn end(
    far: &Far,
    port: usize,
    own: std::net::Ipv4Addr,
    peer: std::net::Ipv4Addr,
) -> Result<UdpSocket, Error> {
    apart(|| {
        netns::without_ipv6()?;
        let mut wiring = Wiring::new();
        let index = far.add(&mut wiring, "link", port, FULL as u32)?;
        wiring.add_address(index, own)?;
        wiring.add_route(index, peer, RouteMetrics::default())?;
        UdpSocket::bind((own, PORT)).map_err(|error| Error::os(format!("bind to {own}"), error))
    })
}

/// The system's time, as the kernel stamps packets.
fn now() -> Duration {
    clock_gettime(ClockId::CLOCK_REALTIME).map_or(Duration::ZERO, Duration::from)
}

fn send(socket: &UdpSocket, time: Duration, size: usize, packets_per_second: Option<f64>) -> io::Result<u64> {
    // Without privileges the sender is not so even.
    let _ = syscall::run_first(PRIORITY);
    let _ = nix::sys::prctl::set_timerslack(1);
    let mut payload = vec![0; size - HEADERS];
    let begin = Instant::now();
    // Packets that were due but forgotten count as sent for the schedule only.
    let (mut sent, mut forgotten) = (0u64, 0u64);
    loop {
        let elapsed = begin.elapsed();
        if elapsed >= time {
            return Ok(sent);
        }
        if let Some(rate) = packets_per_second {
            let due = (elapsed.as_secs_f64() * rate) as u64;
            let most = (MOST_BURST.as_secs_f64() * rate) as u64 + 1;
            if due <= sent + forgotten {
                let next = Duration::from_secs_f64((sent + forgotten + 1) as f64 / rate);
                thread::sleep(next.saturating_sub(begin.elapsed()).max(Duration::from_micros(50)));
                continue;
            }
            forgotten = forgotten.max((due - sent).saturating_sub(most));
        }
        payload[..8].copy_from_slice(&(now().as_nanos() as u64).to_ne_bytes());
        match socket.send(&payload) {
            Ok(_) => sent += 1,
            // A full device: as lost as on the wire.
            Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => sent += 1,
            Err(error) => return Err(error),
        }
    }
}

/// Everything that comes until `over`. It looks now and then: a program that each packet wakes takes more of the machine than the
/// forwarder.
fn receive(socket: &UdpSocket, over: &AtomicBool) -> Vec<Arrival> {
    let _ = syscall::run_first(PRIORITY);
    let mut arrivals = Vec::with_capacity(1 << 18);
    let mut payload = [0; 8];
    let mut control = nix::cmsg_space!(TimeSpec);
    loop {
        let mut parts = [IoSliceMut::new(&mut payload)];
        let got = recvmsg::<()>(socket.as_raw_fd(), &mut parts, Some(&mut control), MsgFlags::empty());
        let came = match got {
            Ok(message) => message.cmsgs().ok().and_then(|mut own| {
                own.find_map(|own| match own {
                    ControlMessageOwned::ScmTimestampns(came) => Some(Duration::from(came)),
                    _ => None,
                })
            }),
            Err(_) if over.load(Ordering::Relaxed) => return arrivals,
            Err(_) => {
                thread::sleep(LOOKS);
                continue;
            }
        };
        if let Some(came) = came {
            arrivals.push(Arrival { sent: Duration::from_nanos(u64::from_ne_bytes(payload)), came });
        }
    }
}

#[cfg(test)]
mod tests {
    use bandmaster_core::scenario::{Options, parse};

    use super::*;

    /// A tenth of the link's rate, a tenth of the packets.
    #[test]
    fn a_port_with_htb_carries_what_the_htb_passes() {
        let packets = |queue: &str| {
            let text = format!(
                "version = 1\nname = \"x\"\nrun = {{ duration = \"1s\" }}\n\
                 network = {{ builder = \"dumbbell\", left = 1, right = 1, \
                 access = {{ rate = \"400mbit\", delay = \"1ms\" }}, \
                 bottleneck = {{ rate = \"100mbit\", delay = \"1ms\", queue = {queue} }} }}\n\
                 flows = [{{ name = \"up\", from = \"left\", to = \"right\" }}]\n"
            );
            let study = parse("x.toml", &text, &Options::default()).unwrap_or_else(|e| panic!("{e}"));
            load(&study.cases[0].scenario).unwrap_or_else(|e| panic!("{e}")).packets
        };
        let classes = "default = \"all\", classes = [{ name = \"all\", rate = \"5mbit\" }]";
        let ratio = packets(&format!("{{ discipline = \"htb\", rate = \"10mbit\", {classes} }}"))
            / packets("\"50pkt\"");
        assert!((ratio - 0.1).abs() < 1e-9, "{ratio}");
    }

    #[test]
    fn an_even_link_has_no_deviation() {
        let asked = Rate::from_bits_per_sec(12_000_000);
        let times: Vec<f64> = (0..2_500).map(|i| f64::from(i) * 1e-3).collect();
        let fit = evenness(asked, &times);
        assert!((fit.mean - 12e6).abs() < 1.0, "{fit:?}");
        assert_eq!(fit.windows.len(), WINDOWS.len());
        assert!(fit.windows.iter().all(|window| window.worst < 1e-6), "{fit:?}");
    }

    /// A load of twice the capacity is refused, three quarters gives a warning, half gives none.
    #[test]
    fn a_scenario_that_is_too_much_is_refused() {
        assert!(
            judge(100e3, 50e3)
                .is_err_and(|e| e.to_string().contains("100000 packets/s, and this machine forwards 50000"))
        );
        assert!(
            judge(75e3, 100e3)
                .is_ok_and(|remark| remark.is_some_and(|remark| remark.contains("near its limit")))
        );
        assert!(judge(50e3, 100e3).is_ok_and(|remark| remark.is_none()));
    }

    /// Every other packet 0.5 ms late: gaps of 1.5 and 0.5 ms. A window of 1 ms carries two thirds inside the long gap,
    /// four thirds around the short one; longer windows hold whole pairs.
    #[test]
    fn late_packets_show_in_short_windows() {
        let asked = Rate::from_bits_per_sec(12_000_000);
        let times: Vec<f64> = (0..4_000).map(|i| f64::from(i) * 1e-3 + f64::from(i % 2) * 5e-4).collect();
        let fit = evenness(asked, &times);
        let worst: Vec<f64> = fit.windows.iter().map(|window| window.worst).collect();
        assert!((worst[0] - 1.0 / 3.0).abs() < 1e-6, "{fit:?}");
        assert!(worst[1..].iter().all(|worst| *worst < 1e-6), "{fit:?}");
    }

    #[test]
    fn nothing_that_arrived_is_no_rate() {
        let fit = evenness(RATES[0], &[]);
        assert_eq!((fit.mean, fit.windows.len()), (0.0, 0));
        assert_eq!(at_share(&[], 0.5), None);
        assert_eq!(at_share(&[1.0, 2.0, 3.0], 0.5), Some(2.0));
    }

    #[test]
    fn lateness_becomes_a_distribution() {
        let mut late = Histogram::default();
        assert_eq!(distribution(&late), None);
        (0..99_900).for_each(|_| late.note(8_192));
        (0..99).for_each(|_| late.note(65_536));
        late.note(1 << 30);
        let text = distribution(&late).unwrap().to_string();
        // Buckets are an eighth of a power of two wide.
        assert!(text.starts_with("cdf(8.192us 0, ") && text.contains("us 0.999, "), "{text}");
        assert!(text.ends_with("us 1)"), "{text}");
        let end = text.rsplit(", ").next().unwrap().strip_suffix("us 1)").unwrap();
        assert!((65.0..74.0).contains(&end.parse::<f64>().unwrap()), "{text}");
    }

    #[test]
    fn goals_are_judged() {
        let delay = DelayFit { packets: 1, p50: 25.0, p99: 25.2, max: 40.0 };
        assert!(delay.reaches_goal() && !DelayFit { p99: 25.21, ..delay }.reaches_goal());
        let loss = LossFit { rate: 250_000.0, sent: 9, unread: 0, dropped: 0, unreceived: 0, delay };
        assert!(loss.reaches_goal() && !LossFit { unread: 1, ..loss }.reaches_goal());
        assert!(!LossFit { rate: 200_000.0, ..loss }.reaches_goal(), "not at the rate that was asked for");
        let late = DelayFit { p99: 26.0, ..delay };
        assert!(
            !LossFit { delay: late, ..loss }.reaches_goal()
                && loss.badness() < LossFit { delay: late, ..loss }.badness()
        );
        let capacity = Capacity { offered: 200e3, carried: 90e3, core: 0.9 };
        assert!((capacity.per_core() - 100e3).abs() < 1e-6);
    }
}
