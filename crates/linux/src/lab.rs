//! A trial on real Linux: the scenario's network in namespaces, its traffic by real TCP and UDP, its schemes by the
//! controllers that the simulator runs.

mod rows;
mod schemes;
mod tuner;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::collections::BinaryHeap;
use std::os::fd::AsFd;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bandmaster_core::capacity::bits_between;
use bandmaster_core::measure::meters::Meters;
use bandmaster_core::measure::record::{self, Tallies};
use bandmaster_core::measure::rtt::RttSketch;
use bandmaster_core::measure::sojourn::Sojourns;
use bandmaster_core::measure::{FlowSample, Flows, PortSample};
use bandmaster_core::report::flow::FlowRecord;
use bandmaster_core::report::{Distribution, RunRecord, Work};
use bandmaster_core::runtime::post::Post;
use bandmaster_core::runtime::{Host, Lacks, Runner};
use bandmaster_core::scenario::{FlowRows, Scenario, Transport};
use bandmaster_core::time::{Span, Time};
use bandmaster_core::units::UDP_HEADERS;
use bandmaster_core::workload::Toggles;
use bandmaster_core::workload::rounds::Rounds;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;

use crate::Error;
use crate::calibrate;
use crate::forwarder::Forwarder;
pub use crate::forwarder::{Counters, Health};
use crate::iperf3::{self, Iperf3};
use crate::limits::{self, Remarks, sets_windows};
use crate::network::Network;
use crate::probes::Probes;
use crate::syscall::{self, TcpInfo};
use crate::timing::Timing;
use crate::traffic::{Sockets, Traffic};
use crate::workplan::Workplan;
use rows::Told;
use tuner::Tuner;

/// Real-time priority of the traffic and the roles: below the forwarder's.
const PRIORITY: i32 = 10;
/// How often the level of a kernel's shaper is read, for the mean of its queue.
const LOOK: Span = Span::from_millis(10);
/// Longest sleep, so that a request to stop is seen.
const PATIENCE: Span = Span::from_millis(50);

/// Who sends and receives.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TrafficSource {
    /// This program.
    #[default]
    Own,
    /// Processes of iperf3.
    Iperf3,
}

/// How to run, beyond what the scenario says.
#[derive(Default)]
pub struct RunOptions<'a> {
    /// Set from outside to end the run early with [`Error::Stopped`].
    pub stop: Option<&'a AtomicBool>,
    /// Who sends and receives.
    pub traffic: TrafficSource,
    /// Skip the check before the run that this machine is fast enough. Remarks after the run still say what it was too slow for.
    pub even_if_slow: bool,
    /// Takes the row of each flow, where the scenario asks for them.
    pub flows: Option<&'a dyn Fn(FlowRecord)>,
}

/// What came out of a trial.
#[derive(Clone, Debug)]
pub struct Trial {
    /// As the simulator gives it.
    pub record: RunRecord,
    /// What Linux, or this machine, did in another way than the scenario says.
    pub remarks: Remarks,
    /// What became of the packets of each port.
    pub ports: Vec<Counters>,
    /// How well the forwarder kept the time.
    pub health: Health,
}

/// Runs one trial of a scenario and takes everything away again. `case` is copied into the record.
///
/// # Errors
/// When stopped, when the scenario asks for what Linux or the source of traffic cannot do, when privileges are missing, or the kernel refuses.
pub fn run(scenario: &Scenario, case: usize, trial: u32, options: &RunOptions<'_>) -> Result<Trial, Error> {
    let mut remarks = limits::check(scenario, 1)?;
    if !options.even_if_slow {
        remarks.extend(calibrate::fits(scenario)?);
    }
    let mut plan = Workplan::new(scenario, trial)?;
    if options.traffic == TrafficSource::Iperf3 {
        remarks.extend(iperf3::check(scenario)?);
        plan.add_ways_back(scenario, trial)?;
    }
    let mut lab = Lab::build(scenario, trial, &plan, options.traffic)?;
    lab.remarks = remarks;
    lab.take_row = options.flows.filter(|_| scenario.measure.flow_table != FlowRows::None);
    lab.run(options.stop)?;
    lab.finish(case, trial)
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Event {
    Start(usize),
    /// The flow will start again.
    Renew(usize),
    Stop(usize),
    Toggle(usize),
    Datagram(usize),
    Wakeup(usize),
    Deliver(u32),
    NodeFault(usize),
    Look,
    Sample,
}

pub(crate) struct Lab<'a> {
    scenario: &'a Scenario,
    plan: &'a Workplan,
    /// Goes before the network in which it is.
    traffic: Box<dyn Traffic>,
    network: Network,
    runner: Runner,
    post: Post,
    probes: Probes,
    /// None when no role changes TCP.
    tuner: Option<Tuner>,
    /// Why the trial cannot go on, from within a role's action.
    failed: Option<Error>,
    toggles: Toggles,
    rounds: Rounds,
    meters: Meters,
    /// The measured port's shaper: packet-nanoseconds of waiting, and the most that waited.
    shaper_waited: u64,
    shaper_most: u32,
    waited_before: u64,
    events: BinaryHeap<Reverse<(Time, Event)>>,
    forwarder: Forwarder,
    remarks: Remarks,
    work: u64,
    take_row: Option<&'a dyn Fn(FlowRecord)>,
    /// By flow: what had been counted when its last row was taken.
    told: BTreeMap<usize, Told>,
}

impl<'a> Lab<'a> {
    fn build(
        scenario: &'a Scenario,
        trial: u32,
        plan: &'a Workplan,
        source: TrafficSource,
    ) -> Result<Self, Error> {
        let inventory = plan.inventory(scenario);
        let mut roles = plan.roles(scenario);
        // Their programs are taken out of them next.
        Lacks::none(&roles, Self::ACTS).map_err(|lacks| Error::Missing(lacks.to_string()))?;
        let (network, ring, ports) = Network::build(scenario, trial, plan, &mut roles)?;
        let (traffic, receipts): (Box<dyn Traffic>, _) = match source {
            TrafficSource::Own => {
                (Box::new(Sockets::open(scenario, trial, plan, &network.nodes)?), Arc::default())
            }
            TrafficSource::Iperf3 => {
                let traffic = Iperf3::open(scenario, plan, &network.nodes)?;
                let receipts = traffic.receipts();
                (Box::new(traffic), receipts)
            }
        };
        let measured_port = plan.measured_port(scenario);
        let meters = Meters::new(scenario, &plan.flows, &roles, &plan.links.rates, measured_port);
        let probes = Probes::open(&roles, scenario, trial, &network.nodes)?;
        let (tuner, remarks) = Tuner::new(&roles, &network.nodes, traffic.has_sockets())?;
        let runner =
            Runner::new::<Lab<'_>>(roles, inventory).map_err(|lacks| Error::Missing(lacks.to_string()))?;

        let looks = tuner.as_ref().is_some_and(Tuner::looks);
        let timing = if !looks && scenario.schemes.iter().any(|config| sets_windows(config.scheme)) {
            Timing::new(&plan.data_routes, &plan.ack_routes)
        } else {
            Timing::default()
        };
        let forwarder = Forwarder::start(ring, ports, &plan.data_routes, timing, receipts)?;
        Ok(Self {
            scenario,
            plan,
            toggles: Toggles::new(&plan.flows, scenario, trial),
            rounds: Rounds::new(&plan.flows, scenario, trial),
            meters,
            shaper_waited: 0,
            shaper_most: 0,
            waited_before: 0,
            events: BinaryHeap::new(),
            network,
            traffic,
            runner,
            post: scenario.post(trial, None),
            probes,
            tuner,
            failed: None,
            forwarder,
            remarks,
            work: 0,
            take_row: None,
            told: BTreeMap::new(),
        })
    }

    /// Runs to the end of the scenario.
    fn run(&mut self, stop: Option<&AtomicBool>) -> Result<(), Error> {
        // Without it other programs delay datagrams; the forwarder tells whether it was allowed.
        let _ = syscall::run_first(PRIORITY);
        let _ = nix::sys::prctl::set_timerslack(1);
        let result = self.drive(stop);
        let _ = syscall::run_as_usual();
        result
    }

    fn drive(&mut self, stop: Option<&AtomicBool>) -> Result<(), Error> {
        let end = Time::ZERO + self.scenario.run.duration;
        self.schedule_start()?;
        loop {
            let now = self.forwarder.clock.now();
            self.traffic.serve(now);
            self.tell_ends()?;
            self.hear()?;
            while let Some(&Reverse((at, event))) = self.events.peek()
                && at <= now
            {
                self.events.pop();
                self.work += 1;
                if at > end {
                    return Ok(());
                }
                self.handle(at, event)?;
            }
            if now >= end {
                return Ok(());
            }
            if stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
                return Err(Error::Stopped);
            }
            self.wait(end);
        }
    }

    fn schedule_start(&mut self) -> Result<(), Error> {
        self.push(Time::ZERO + self.scenario.run.sample, Event::Sample);
        for (i, flow) in self.plan.flows.iter().enumerate().filter(|(_, flow)| flow.start < flow.stop) {
            self.events.push(Reverse((flow.start, Event::Start(i))));
            if flow.stop != Time::MAX {
                self.events.push(Reverse((flow.stop, Event::Stop(i))));
            }
        }
        let events = &mut self.events;
        self.rounds.begin(|at, flow| events.push(Reverse((at, Event::Start(flow as usize)))));
        let measured = self.meters.measured_port;
        if measured.is_some_and(|port| self.network.shapers.contains_key(&port.index())) {
            self.push(Time::ZERO + LOOK, Event::Look);
        }
        for (number, fault) in self.scenario.faults.nodes.iter().enumerate() {
            self.events.push(Reverse((fault.at, Event::NodeFault(number))));
        }
        self.begin_roles()
    }

    fn push(&mut self, at: Time, event: Event) {
        self.events.push(Reverse((at, event)));
    }

    /// Sleeps until a socket, a passage, or the next event.
    fn wait(&mut self, end: Time) {
        let next = self.events.peek().map_or(end, |Reverse((at, _))| (*at).min(end));
        let nanos = next.since(self.forwarder.clock.now()).min(PATIENCE).as_nanos();
        let timeout = TimeSpec::new((nanos / 1_000_000_000) as _, (nanos % 1_000_000_000) as _);
        let bells = self.traffic.bell().into_iter().chain([self.forwarder.bell.as_fd()]);
        let all = bells.chain(self.probes.sockets());
        let mut waiting: Vec<PollFd<'_>> = all.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        // Interrupted or not: the loop looks at everything.
        let _ = ppoll(&mut waiting, Some(timeout), None);
        let _ = self.forwarder.bell.read();
    }

    fn handle(&mut self, at: Time, event: Event) -> Result<(), Error> {
        match event {
            Event::Start(i) => self.start(i, at)?,
            Event::Renew(i) => {
                let flow = &self.plan.flows[i];
                let host = &self.network.nodes[flow.src.index()];
                self.traffic.renew(i, flow.group(&self.scenario.flows), host)?;
            }
            Event::Stop(i) => {
                self.toggles.stop(i);
                self.set_on(i, false, at);
                self.traffic.stop(i);
            }
            Event::Toggle(i) => self.toggle(i, at),
            Event::Datagram(i) => {
                let now = self.forwarder.clock.now();
                if let Some(next) = self.traffic.send_due(i, now) {
                    self.push(next, Event::Datagram(i));
                }
            }
            Event::Wakeup(role) => self.wake(role, at)?,
            Event::Deliver(number) => self.deliver(number)?,
            Event::NodeFault(number) => self.node_fault(number)?,
            Event::Look => self.look(at)?,
            Event::Sample => self.sample(at),
        }
        Ok(())
    }

    // ------------------------------------------------------------------------------------------------ traffic

    fn start(&mut self, i: usize, at: Time) -> Result<(), Error> {
        let flow = i as u32;
        let kept = self.rounds.target(flow).map(|(_, is_last)| is_last);
        if let Some(is_last) = kept.filter(|_| self.traffic.stage(i).started) {
            self.rounds.open(flow, 0, at);
            self.traffic.give(i, is_last);
            return Ok(());
        }
        let before = self.traffic.state(i).received - self.rounds.carried(flow);
        self.rounds.open(flow, before, at);
        if let Some(length) = self.toggles.start(i) {
            self.push(at + length, Event::Toggle(i));
        }
        if i < self.plan.tcp_flows {
            self.announce(i)?;
        }
        self.traffic.start(i, at);
        if let Some(is_last) = kept {
            self.traffic.give(i, is_last);
        }
        self.account(i, true, at);
        if i >= self.plan.tcp_flows {
            self.push(at, Event::Datagram(i));
        }
        Ok(())
    }

    fn toggle(&mut self, i: usize, at: Time) {
        let Some((on, length)) = self.toggles.turn(i) else { return };
        self.push(at + length, Event::Toggle(i));
        self.set_on(i, on, at);
    }

    fn set_on(&mut self, i: usize, on: bool, at: Time) {
        if self.traffic.stage(i).on == on {
            return;
        }
        self.traffic.set_on(i, on, at);
        self.account(i, on, at);
        if on && i >= self.plan.tcp_flows {
            self.push(at, Event::Datagram(i));
        }
    }

    /// Tells the meters of a flow that is on, or off.
    fn account(&mut self, i: usize, on: bool, at: Time) {
        let group = self.plan.flows[i].group(&self.scenario.flows);
        self.meters.turn(at, group, &self.plan.data_routes[i], on);
    }

    // ------------------------------------------------------------------------------------------------ results

    /// Reads the level of the measured port's shaper, which keeps no mean itself.
    fn look(&mut self, at: Time) -> Result<(), Error> {
        let measured = self.meters.measured_port;
        if let Some(shaper) = measured.and_then(|port| self.network.shapers.get_mut(&port.index())) {
            let waiting = shaper.stats()?.iter().map(|class| class.waiting_packets).sum::<u32>();
            self.shaper_waited += u64::from(waiting) * LOOK.as_nanos();
            self.shaper_most = self.shaper_most.max(waiting);
        }
        self.push(at + LOOK, Event::Look);
        Ok(())
    }

    fn sample(&mut self, at: Time) {
        let (scenario, plan) = (self.scenario, self.plan);
        let measured = self.meters.measured_port.map_or_else(PortSample::default, |port| {
            let port = port.index();
            let state = self.forwarder.board.port(port);
            let waited = self.shaper_waited + state.waited(at);
            let waited_since = waited - self.waited_before.min(waited);
            self.waited_before = waited;
            let (schedule, rate) = (plan.links.schedules.get(&port), plan.links.rates[port]);
            PortSample {
                waited: waited_since,
                begun: state.counters.sent_bytes,
                capacity: bits_between(schedule, rate, at - scenario.run.sample, at),
                varies: schedule.is_some(),
            }
        });
        let (board, traffic) = (&self.forwarder.board, &*self.traffic);
        let transport = |i: usize| &plan.flows[i].group(&scenario.flows).transport;
        let efficiency = |i: usize| match transport(i) {
            Transport::Tcp { settings, .. } => settings.efficiency(scenario.topology.frame_overhead),
            Transport::Udp { .. } => 1.0,
        };
        let state = |i: usize| {
            let got = traffic.state(i);
            match transport(i) {
                Transport::Udp { packet, .. } => FlowSample {
                    delivered: got.datagrams * packet.get().saturating_sub(u64::from(UDP_HEADERS)),
                    ip_bytes: got.datagrams as f64 * packet.get() as f64,
                    ..FlowSample::default()
                },
                Transport::Tcp { settings, .. } => {
                    let mss = settings.mss.get();
                    let info = traffic.info(i);
                    let initial = u64::from(settings.initial_window) * mss;
                    FlowSample {
                        delivered: got.received,
                        ip_bytes: board.came(i) as f64,
                        cwnd: traffic
                            .has_sockets()
                            .then(|| info.map_or(initial, |info| u64::from(info.cwnd) * u64::from(info.mss))),
                        srtt: info.and_then(|info| info.srtt),
                        is_over: false,
                    }
                }
            }
        };
        let flows = Flows {
            groups: &scenario.flows,
            plans: &plan.flows,
            route: &|i| &plan.data_routes[i],
            efficiency: &efficiency,
            state: &state,
        };
        self.meters.sample(scenario, at, measured, &flows);
        self.push(at + scenario.run.sample, Event::Sample);
    }

    /// Ends the forwarder and sums up; the network goes with `self`.
    fn finish(mut self, case: usize, trial: u32) -> Result<Trial, Error> {
        let scenario = self.scenario;
        let end = Time::ZERO + scenario.run.duration;
        let worked = self.forwarder.end().unwrap_or_else(|panic| resume_unwind(panic))?;
        self.tell_rows(end);
        let board = &self.forwarder.board;
        let ports: Vec<Counters> =
            (0..self.plan.links.rates.len()).map(|port| board.port(port).counters).collect();
        for (port, counters) in ports.iter().enumerate() {
            assert!(counters.add_up(), "port {port}: packets and their fates: {counters:?}");
        }
        let queue_max = self
            .meters
            .measured_port
            .map_or(f64::NAN, |port| f64::from(board.port(port.index()).most_waiting.max(self.shaper_most)));
        let (health, sojourns) = (board.health(), board.take_sojourns());
        let mut in_classes = 0;
        for shaper in self.network.shapers.values_mut() {
            in_classes += shaper.stats()?.iter().map(|class| class.drops).sum::<u64>();
        }
        let sum = |f: &dyn Fn(&Counters) -> u64| ports.iter().map(f).sum::<u64>();
        let work = worked.processor.as_secs_f64() / worked.elapsed.as_secs_f64().max(1e-9);
        self.remark_on_machine(&health, work, sum(&|c| c.refused));

        let infos: Vec<TcpInfo> = (0..self.plan.tcp_flows).filter_map(|i| self.traffic.info(i)).collect();
        let is_known = self.traffic.has_sockets();
        let timeouts: Option<f64> = infos.iter().map(|info| info.timeouts.map(f64::from)).sum();
        let retransmits: f64 = infos.iter().map(|info| f64::from(info.retransmits)).sum();
        let completion = |i: usize| {
            let finished = self.traffic.state(i).finished_at?;
            Some(finished.since(self.plan.flows[i].start))
        };
        let is_unfinished = |i: &usize| {
            let plan = &self.plan.flows[*i];
            self.plan.sizes[*i].is_some()
                && plan.group(&scenario.flows).rounds.is_none()
                && plan.start < plan.stop
                && plan.start <= end
                && self.traffic.state(*i).finished_at.is_none()
        };
        let unfinished = (0..self.plan.tcp_flows).filter(is_unfinished).count() as f64;
        let in_rounds = self.rounds.completions.iter().copied();
        let tallies = Tallies {
            queue_max,
            drops: sum(&|c| c.dropped) + in_classes,
            marks: sum(&|c| c.marked),
            timeouts: timeouts.filter(|_| is_known).unwrap_or(f64::NAN),
            retransmits: if is_known { retransmits } else { f64::NAN },
            completions: (0..self.plan.tcp_flows).filter_map(completion).chain(in_rounds).collect(),
            unfinished,
            rounds: self.rounds.metrics(std::iter::empty()),
            // The kernel does not tell each round-trip time.
            rtts: vec![RttSketch::default(); scenario.flows.len()],
            delays: Vec::new(),
            ports: Vec::new(),
            faults: None,
            control_bytes: self.post.bytes_sent() + self.probes.bytes,
            refusals: *self.runner.refusals(),
            work: Work { events: self.work, packet_hops: sum(&|c| c.sent) },
        };
        let meters = (self.meters.flows, self.meters.gauges);
        let record = record::record(scenario, (case, trial), end, meters, tallies, |completions| {
            let asked = scenario.measure.distributions;
            let fct = Distribution::new("fct", completions).filter(|_| asked);
            let of_queue = sojourns.as_ref().and_then(Sojourns::distribution);
            let metrics = sojourns.as_ref().map(Sojourns::metrics).unwrap_or_default();
            (fct.into_iter().chain(of_queue).collect(), metrics)
        });
        self.remarks.extend(self.tuner.map(Tuner::remarks).into_iter().flatten());
        Ok(Trial { record, remarks: self.remarks, ports, health })
    }

    /// What this machine did not manage.
    fn remark_on_machine(&mut self, health: &Health, work: f64, refused: u64) {
        self.remarks.extend(health.remarks());
        let mut remark = |text: String| self.remarks.push(text);
        if work > calibrate::MOST_WORK {
            remark(format!(
                "the forwarder worked for {:.0} % of its time: links may have carried less than their rates, and the results \
                 show this machine",
                100.0 * work
            ));
        }
        let (near, far) = self.network.dropped_by_devices();
        // Older kernels do not tell the forwarder what a device drops.
        let lost = near + health.unread + far.max(refused) + self.traffic.refused_datagrams();
        if lost > 0 {
            remark(format!("{lost} packets were lost by devices, beside those of the scenario's queues"));
        }
        let plan = self.plan;
        for (i, why) in self.traffic.failures().into_iter().take(3) {
            remark(format!("flow {}: {why}", plan.flows[i].name(&self.scenario.flows)));
        }
    }
}
