//! Samples a run and sums it up: goodput, fairness, queue.

pub mod delays;
pub mod gauges;
pub mod meters;
pub mod record;
pub mod rtt;
pub mod sojourn;

use std::collections::{BTreeMap, VecDeque};

use crate::fairness::{Demand, jain, max_min};
use crate::report::Series;
use crate::scenario::{FlowGroup, RecordDetail, Scenario, Transport};
use crate::time::{Span, Time};
use crate::units::tcp_headers;
use crate::workload::FlowPlan;

/// What the sampler reads from every measured flow.
#[derive(Default)]
pub struct FlowSample {
    /// Payload bytes that have arrived in order.
    pub delivered: u64,
    /// Bytes of the IP packets that have come, in order or not.
    pub ip_bytes: f64,
    /// Congestion window in bytes, where it is known.
    pub cwnd: Option<u64>,
    /// Smoothed round-trip time, once measured.
    pub srtt: Option<Span>,
    /// No more payload will arrive, unless the flow is used again.
    pub is_over: bool,
}

/// The flows of a run, by position in the list of all.
pub struct Flows<'a> {
    /// Flow groups of the scenario.
    pub groups: &'a [FlowGroup],
    /// Every flow.
    pub plans: &'a [FlowPlan],
    /// Ports on the way of the data.
    pub route: &'a dyn Fn(usize) -> &'a [u32],
    /// Payload share of a full frame.
    pub efficiency: &'a dyn Fn(usize) -> f64,
    /// What a flow has come to.
    pub state: &'a dyn Fn(usize) -> FlowSample,
}

/// What the sampler reads of the measured port.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct PortSample {
    /// Packet-nanoseconds of waiting since the last sample.
    pub waited: u64,
    /// Bytes on the link of the packets that have begun transmission since the start of the run.
    pub begun: u64,
    /// Bits that the link could carry since the last sample.
    pub capacity: f64,
    /// The capacity changes with time.
    pub varies: bool,
}

/// Collects samples.
pub struct Meter {
    sample: Span,
    long_samples: usize,
    warm_up: Time,
    detail: RecordDetail,
    /// Plans of measured flows, by position in the list of all.
    measured: Vec<u32>,
    /// Positions in `measured` of flows that are not over.
    running: Vec<u32>,
    last: Vec<u64>,
    /// [`FlowSample::ip_bytes`] of the last sample; empty when arrivals are not measured.
    last_came: Vec<f64>,
    fair: Vec<f64>,
    /// The state that `fair` was computed for: which flows cover the interval, and the capacities.
    fair_key: (Vec<bool>, Vec<f64>),
    ways: Ways,
    entities: Vec<String>,
    /// Per entity: the positions of its flows in `measured`.
    flows_of: Vec<Vec<usize>>,
    windows: Vec<Window>,
    series: Vec<Series>,
    long: LongInterval,
    shortages: Vec<Shortage>,
    room: Option<Room>,
    /// [`PortSample::begun`] of the last sample.
    begun: u64,
}

/// The routes of measured flows, until [`Meter::forget_fair`].
#[derive(Default)]
struct Ways {
    /// Per measured flow: the position of its route in `alike`.
    of: Vec<u32>,
    /// Per route, in the order of their ports: a flow that takes it.
    alike: Vec<u32>,
    /// Per measured flow: [`Flows::efficiency`].
    efficiency: Vec<f64>,
}

impl Ways {
    fn of(measured: &[u32], flows: &Flows<'_>) -> Self {
        let route = |i: u32| (flows.route)(i as usize);
        let mut all: BTreeMap<&[u32], (u32, u32)> = measured.iter().map(|&i| (route(i), (0, i))).collect();
        all.values_mut().zip(0..).for_each(|((way, _), number)| *way = number);
        Self {
            of: measured.iter().map(|&i| all[route(i)].0).collect(),
            alike: all.values().map(|(_, i)| *i).collect(),
            efficiency: measured.iter().map(|&i| (flows.efficiency)(i as usize)).collect(),
        }
    }
}

/// The capacity that unmeasured traffic leaves at the measured port.
struct Room {
    /// bit/s.
    rate: f64,
    /// bit/s of the traffic that is not measured.
    background: f64,
    since: Time,
    /// Bits since the last sample, at the rate that the link begins with.
    bits: f64,
    /// Bits of the background since the last sample.
    taken: f64,
}

impl Room {
    fn advance(&mut self, at: Time) {
        let seconds = at.since(self.since).as_secs_f64();
        self.bits += self.rate * seconds;
        self.taken += self.background * seconds;
        self.since = at;
    }

    /// Bits since the last sample, over a link that varies those that it could carry.
    fn take(&mut self, now: Time, port: &PortSample) -> f64 {
        self.advance(now);
        let (bits, taken) = (std::mem::take(&mut self.bits), std::mem::take(&mut self.taken));
        if port.varies { (port.capacity - taken).max(0.0) } else { bits }
    }
}

/// How often the flows of a group receive less than they need.
struct Shortage {
    group: String,
    /// Bytes that a flow needs in one interval of measurement, less a packet, by which a constant rate varies.
    least: f64,
    intervals: usize,
    over: Span,
    flows: Vec<u32>,
    /// What each flow had received at the end of the last samples.
    history: VecDeque<Vec<f64>>,
    short: u64,
    all: u64,
    limit: ShortageLimit,
}

/// How often the measured port cannot carry what the flows of a group, and of the groups listed before it, need.
struct ShortageLimit {
    /// Bits on the port that all of them need in one interval of measurement, each less a packet.
    least: f64,
    /// What the port could carry in the last samples.
    rooms: VecDeque<f64>,
    short: u64,
    all: u64,
}

/// Bytes of a full IP packet.
fn packet_bytes(group: &FlowGroup) -> f64 {
    match &group.transport {
        Transport::Tcp { settings, .. } => {
            (settings.mss.get() + u64::from(tcp_headers(settings.timestamps))) as f64
        }
        Transport::Udp { packet, .. } => packet.get() as f64,
    }
}

impl ShortageLimit {
    fn of(groups: &[FlowGroup], plans: &[FlowPlan], over: Span, frame_overhead: f64) -> Self {
        let needed = |plan: &FlowPlan| {
            let group = groups.get(plan.group_index())?;
            let packet = packet_bytes(group);
            let least = group.need?.rate.bytes_in(over).get() as f64 - packet;
            Some(8.0 * least.max(0.0) * (packet + frame_overhead) / packet)
        };
        Self { least: plans.iter().filter_map(needed).sum(), rooms: VecDeque::new(), short: 0, all: 0 }
    }

    fn take(&mut self, room: f64, intervals: usize, counts: bool) {
        self.rooms.push_back(room);
        if self.rooms.len() > intervals {
            self.rooms.pop_front();
        }
        if counts && self.rooms.len() == intervals {
            self.all += 1;
            self.short += u64::from(self.rooms.iter().sum::<f64>() < self.least);
        }
    }
}

impl Shortage {
    fn of(
        index: usize,
        groups: &[FlowGroup],
        plans: &[FlowPlan],
        sample: Span,
        frame_overhead: f64,
    ) -> Option<Self> {
        let group = &groups[index];
        let need = group.need?;
        let over = need.over;
        let intervals = over.as_nanos() / sample.as_nanos();
        let flows = (0..plans.len()).filter(|&i| plans[i].group_index() == index).map(|i| i as u32);
        Some(Self {
            group: group.name.clone(),
            least: need.rate.bytes_in(over).get() as f64 - packet_bytes(group),
            intervals: intervals as usize,
            over,
            flows: flows.collect(),
            history: VecDeque::new(),
            short: 0,
            all: 0,
            limit: ShortageLimit::of(&groups[..=index], plans, over, frame_overhead),
        })
    }

    fn take(&mut self, at: Time, warm_up: Time, flows: &Flows<'_>) {
        let from = at - self.over;
        let now: Vec<f64> = self.flows.iter().map(|&i| (flows.state)(i as usize).ip_bytes).collect();
        if self.history.len() == self.intervals {
            let start = self.history.pop_front().unwrap_or_default();
            for ((i, before), after) in self.flows.iter().zip(start).zip(&now) {
                if from >= warm_up && flows.plans[*i as usize].covers(from, at) {
                    self.all += 1;
                    self.short += u64::from(after - before < self.least);
                }
            }
        }
        self.history.push_back(now);
    }
}

/// Sums over one part of the run.
struct Window {
    prefix: String,
    /// Position of the entity whose flows count; none: all.
    of: Option<usize>,
    from: Time,
    to: Time,
    bytes: f64,
    /// Bytes of IP packets that came.
    came: f64,
    time: f64,
    jain: Mean,
    jain_normalised: Mean,
    waited: u64,
    /// Bits that the measured link began to transmit, and could carry.
    sent: f64,
    capacity: f64,
}

#[derive(Default)]
struct LongInterval {
    samples: usize,
    from: Time,
    bytes: Vec<f64>,
    fair: Vec<f64>,
    jain: Mean,
    jain_normalised: Mean,
    /// Least goodput of all flows over one interval, in bit/s.
    least: Option<f64>,
}

#[derive(Clone, Copy, Default)]
struct Mean {
    sum: f64,
    n: u32,
}

impl Mean {
    fn add(&mut self, value: Option<f64>) {
        if let Some(value) = value {
            self.sum += value;
            self.n += 1;
        }
    }

    fn get(self) -> f64 {
        if self.n == 0 { f64::NAN } else { self.sum / f64::from(self.n) }
    }
}

impl Meter {
    /// A meter of the measured ones of `plans`.
    pub fn new(scenario: &Scenario, plans: &[FlowPlan]) -> Self {
        let groups = &scenario.flows;
        let mut entities: Vec<String> = Vec::new();
        let mut measured = Vec::with_capacity(plans.len());
        let is_measured = |plan: &FlowPlan| plan.group(groups).measured && plan.subflow(groups) == 0;
        measured.extend((0..plans.len() as u32).filter(|&i| is_measured(&plans[i as usize])));
        let mut entity = |name: &String| {
            entities.iter().position(|e| e == name).unwrap_or_else(|| {
                entities.push(name.clone());
                entities.len() - 1
            })
        };
        let mut entity_of: Vec<Vec<usize>> = vec![Vec::new(); groups.len()];
        // UDP flows come after TCP flows, so groups in the order of their first flows.
        for &i in &measured {
            let (group, _) = plans[i as usize].source();
            if entity_of[group].is_empty() {
                entity_of[group] = groups[group].from.iter().map(&mut entity).collect();
            }
        }
        let mut flows_of = vec![Vec::new(); entities.len()];
        for (f, &i) in measured.iter().enumerate() {
            let (group, from) = plans[i as usize].source();
            flows_of[entity_of[group][from]].push(f);
        }
        let run = &scenario.run;
        let whole = Window {
            prefix: String::new(),
            of: None,
            from: Time::ZERO + run.warm_up,
            to: Time::MAX,
            bytes: 0.0,
            came: 0.0,
            time: 0.0,
            jain: Mean::default(),
            jain_normalised: Mean::default(),
            waited: 0,
            sent: 0.0,
            capacity: 0.0,
        };
        let named = scenario.measure.windows.iter().map(|w| Window {
            prefix: format!("{}.", w.name),
            of: w.of.as_ref().and_then(|of| entities.iter().position(|name| name == of)),
            from: w.from,
            to: w.to,
            ..Window { prefix: String::new(), ..whole }
        });
        let windows = named.collect::<Vec<_>>();
        let frame_overhead = scenario.topology.frame_overhead.get() as f64;
        let shortage = |i| Shortage::of(i, groups, plans, run.sample, frame_overhead);
        let shortages = (0..groups.len()).filter_map(shortage).collect();
        let sample = run.sample;
        Self {
            sample,
            long_samples: (scenario.measure.long_interval.as_nanos() / sample.as_nanos().max(1)).max(1)
                as usize,
            warm_up: Time::ZERO + run.warm_up,
            detail: scenario.measure.record,
            running: (0..measured.len() as u32).collect(),
            last: vec![0; measured.len()],
            last_came: vec![0.0; if scenario.measure.arrivals { measured.len() } else { 0 }],
            fair: vec![0.0; measured.len()],
            fair_key: (Vec::new(), Vec::new()),
            ways: Ways::default(),
            long: LongInterval {
                bytes: vec![0.0; measured.len()],
                fair: vec![0.0; measured.len()],
                ..LongInterval::default()
            },
            flows_of,
            entities,
            measured,
            windows: std::iter::once(whole).chain(windows).collect(),
            series: Vec::new(),
            shortages,
            room: None,
            begun: 0,
        }
    }

    /// From `at` on, the measured port can carry `rate` bit/s in addition to `background`, the unmeasured traffic,
    /// unless its capacity varies.
    pub fn set_room(&mut self, at: Time, rate: f64, background: f64) {
        let room = self.room.get_or_insert(Room { rate, background, since: at, bits: 0.0, taken: 0.0 });
        room.advance(at);
        (room.rate, room.background) = (rate, background);
    }

    /// Flows have taken other ways: the next sample reads routes and fair shares again.
    pub fn forget_fair(&mut self) {
        self.fair_key = (Vec::new(), Vec::new());
        self.ways = Ways::default();
    }

    /// Ends the interval at `now`. `port` is of the measured port; `capacities` are of the ports, in bit/s, less what
    /// inelastic traffic takes.
    pub fn take(
        &mut self,
        now: Time,
        port: PortSample,
        queue_name: Option<&str>,
        capacities: &[f64],
        flows: &Flows<'_>,
    ) {
        let from = now - self.sample;
        let seconds = self.sample.as_secs_f64();
        let covers: Vec<bool> =
            self.measured.iter().map(|&i| flows.plans[i as usize].covers(from, now)).collect();
        self.update_fair(&covers, capacities, flows);
        let mut rates = vec![0.0; self.measured.len()];
        self.running.retain(|&f| {
            let (f, i) = (f as usize, self.measured[f as usize] as usize);
            let plan = &flows.plans[i];
            let group = plan.group(flows.groups);
            // Rounds and exchanges use a flow again, and start it when they do.
            let is_used_again = group.rounds.is_some() || group.exchange.is_some();
            if plan.start > now && !is_used_again {
                return true;
            }
            let state = (flows.state)(i);
            let last = std::mem::replace(&mut self.last[f], state.delivered);
            rates[f] = (state.delivered - last) as f64 * 8.0 / seconds;
            is_used_again || !state.is_over
        });
        let total: f64 = rates.iter().sum();
        let came_since = |(&i, last): (&u32, &mut f64)| {
            let came = (flows.state)(i as usize).ip_bytes;
            (came - std::mem::replace(last, came)) * 8.0 / seconds
        };
        let arrivals: Vec<f64> = self.measured.iter().zip(&mut self.last_came).map(came_since).collect();
        let everybody: Vec<usize> = (0..rates.len()).collect();
        let index = |of: &[usize], normalised: bool| {
            let chosen = of.iter().copied().filter(|&f| covers[f]);
            jain(chosen.map(|f| if normalised { rates[f] / self.fair[f].max(1.0) } else { rates[f] }))
        };
        let (all_jain, all_normalised) = (index(&everybody, false), index(&everybody, true));
        let PortSample { waited, begun, capacity, .. } = port;
        let sent = 8.0 * (begun - self.begun.min(begun)) as f64;
        self.begun = begun;
        for window in self.windows.iter_mut().filter(|w| w.from <= from && now <= w.to) {
            let (rate, came, plain, normalised) = match window.of {
                None => (total, arrivals.iter().sum::<f64>(), all_jain, all_normalised),
                Some(entity) => {
                    let chosen = &self.flows_of[entity];
                    let sum = |of: &[f64]| chosen.iter().filter_map(|&f| of.get(f)).sum::<f64>();
                    (sum(&rates), sum(&arrivals), index(chosen, false), index(chosen, true))
                }
            };
            window.bytes += rate * seconds / 8.0;
            window.came += came * seconds / 8.0;
            window.time += seconds;
            window.jain.add(plain);
            window.jain_normalised.add(normalised);
            window.waited += waited;
            window.sent += sent;
            window.capacity += capacity;
        }
        if self.detail != RecordDetail::None {
            let mut row = Row { series: &mut self.series, at: 0 };
            let mut entity = |name: &str, of: &[usize]| {
                let chosen = || of.iter().copied();
                row.add(name, "throughput", chosen().map(|f| rates[f]).sum::<f64>() / 1e6);
                row.add(name, "jain", index(of, false).unwrap_or(f64::NAN));
                row.add(name, "jain_normalised", index(of, true).unwrap_or(f64::NAN));
                row.add(name, "flows", chosen().filter(|&f| covers[f]).count() as f64);
                if !arrivals.is_empty() {
                    row.add(name, "arrivals", chosen().map(|f| arrivals[f]).sum::<f64>() / 1e6);
                }
            };
            entity("all", &everybody);
            if self.entities.len() > 1 {
                self.entities.iter().zip(&self.flows_of).for_each(|(name, own)| entity(name, own));
            }
            if let Some(name) = queue_name {
                row.add(name, "queue", waited as f64 / self.sample.as_nanos() as f64);
            }
            if self.detail == RecordDetail::Flows {
                for (&i, rate) in self.measured.iter().zip(&rates) {
                    let name = flows.plans[i as usize].name(flows.groups);
                    let state = (flows.state)(i as usize);
                    row.add(&name, "throughput", rate / 1e6);
                    row.add(&name, "cwnd", state.cwnd.map_or(f64::NAN, |cwnd| cwnd as f64));
                    row.add(&name, "srtt", state.srtt.map_or(f64::NAN, |s| s.as_secs_f64() * 1e3));
                }
            }
        }
        let room = self.room.as_mut().map(|room| room.take(now, &port));
        for shortage in &mut self.shortages {
            shortage.take(now, self.warm_up, flows);
            if let Some(room) = room {
                let counts = self.warm_up + shortage.over <= now;
                shortage.limit.take(room, shortage.intervals, counts);
            }
        }
        if from >= self.warm_up {
            self.add_to_long_interval(from, now, &rates, seconds, flows.plans);
        }
    }

    fn add_to_long_interval(
        &mut self,
        from: Time,
        now: Time,
        rates: &[f64],
        seconds: f64,
        plans: &[FlowPlan],
    ) {
        let long = &mut self.long;
        if long.samples == 0 {
            long.from = from;
        }
        long.samples += 1;
        for (f, rate) in rates.iter().enumerate() {
            long.bytes[f] += rate * seconds;
            long.fair[f] += self.fair[f] * seconds;
        }
        if long.samples == self.long_samples {
            let covers = |&f: &usize| plans[self.measured[f] as usize].covers(long.from, now);
            let whole: Vec<usize> = (0..rates.len()).filter(covers).collect();
            long.jain.add(jain(whole.iter().map(|&f| long.bytes[f])));
            long.jain_normalised.add(jain(whole.iter().map(|&f| long.bytes[f] / long.fair[f].max(1.0))));
            let goodput = long.bytes.iter().sum::<f64>() / (long.samples as f64 * seconds);
            long.least = Some(long.least.map_or(goodput, |least| least.min(goodput)));
            long.samples = 0;
            long.bytes.fill(0.0);
            long.fair.fill(0.0);
        }
    }

    /// Max-min fair goodput of the flows that cover the interval.
    fn update_fair(&mut self, covers: &[bool], capacities: &[f64], flows: &Flows<'_>) {
        if self.fair_key.0 == covers && self.fair_key.1 == capacities {
            return;
        }
        if self.ways.of.is_empty() {
            self.ways = Ways::of(&self.measured, flows);
        }
        let ways = &self.ways;
        let mut flows_on = vec![0; ways.alike.len()];
        for (way, _) in ways.of.iter().zip(covers).filter(|(_, covers)| **covers) {
            flows_on[*way as usize] += 1;
        }
        let used = || (0..flows_on.len()).filter(|&way| flows_on[way] > 0);
        let demand = |way: usize| {
            let links = (flows.route)(ways.alike[way] as usize);
            Demand { links, most: f64::INFINITY, flows: flows_on[way] }
        };
        let rates = max_min(capacities, &used().map(demand).collect::<Vec<_>>());
        let mut rate_on = vec![0.0; flows_on.len()];
        used().zip(rates).for_each(|(way, rate)| rate_on[way] = rate);
        for (f, fair) in self.fair.iter_mut().enumerate() {
            let rate = if covers[f] { rate_on[ways.of[f] as usize] } else { 0.0 };
            *fair = rate * ways.efficiency[f];
        }
        self.fair_key = (covers.to_vec(), capacities.to_vec());
    }

    /// Metrics of the summary that come from samples, and the series.
    pub fn finish(self) -> (Vec<(String, f64)>, Vec<Series>) {
        let mut metrics = Vec::new();
        for window in &self.windows {
            let mut add = |name: &str, value: f64| metrics.push((format!("{}{name}", window.prefix), value));
            add("jain", window.jain.get());
            add("jain_normalised", window.jain_normalised.get());
            if window.prefix.is_empty() {
                add("jain_long", self.long.jain.get());
                add("jain_normalised_long", self.long.jain_normalised.get());
            }
            add("throughput", window.bytes * 8.0 / window.time / 1e6);
            if !self.last_came.is_empty() {
                add("arrivals", window.came * 8.0 / window.time / 1e6);
            }
            if window.prefix.is_empty() {
                add("throughput_least", self.long.least.map_or(f64::NAN, |least| least / 1e6));
            }
            add("queue", window.waited as f64 / (window.time * 1e9));
            // A link without capacity, in a pause or because there is none, has no use.
            let is_there = window.capacity > 0.0;
            add("link_use", if is_there { 100.0 * window.sent / window.capacity } else { f64::NAN });
        }
        for shortage in &self.shortages {
            let share = 100.0 * shortage.short as f64 / shortage.all as f64;
            metrics.push((format!("{}.shortage", shortage.group), share));
            let limit = 100.0 * shortage.limit.short as f64 / shortage.limit.all as f64;
            metrics.push((format!("{}.shortage_limit", shortage.group), limit));
        }
        (metrics, self.series)
    }
}

/// One sample's values, put to their series in the same order every time.
struct Row<'a> {
    series: &'a mut Vec<Series>,
    at: usize,
}

impl Row<'_> {
    fn add(&mut self, entity: &str, metric: &'static str, value: f64) {
        if self.at == self.series.len() {
            self.series.push(Series { entity: entity.to_owned(), metric, values: Vec::new() });
        }
        self.series[self.at].values.push(value as f32);
        self.at += 1;
    }
}
