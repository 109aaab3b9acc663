//! An agent: measures its host, and applies a CUE for as long as its lease and its preconditions last.

use super::condition::{Condition, Scope, Values};
use super::statistic::HostState;
use super::switch::Schedule;
use super::traffic::Traffic;
use super::wire::{self, Body, Cue, HostReport};
use crate::control::{
    Action, Controller, FlowEnd, FlowStart, FlowStats, Gauges, Observation, Outbox, SegmentCounts, Subject,
};
use crate::id::NodeId;
use crate::time::{Span, Time};
use crate::tuning::Tuning;

/// The role of a host.
pub(super) struct Agent {
    oracle: NodeId,
    /// It has something to report.
    reports: bool,
    /// Interval between checks of preconditions.
    look: Span,
    schedule: Schedule,
    sequence: u32,
    next_look: Time,
    /// The host's settings are known to be those of `mode`.
    begun: bool,
    mode: Mode,
    /// The host has refused the last settings: the next CUE tries again.
    refused: bool,
    counts: SegmentCounts,
    /// Counts, and flows started, at the last report and at the last CUE.
    at_report: SegmentCounts,
    at_cue: SegmentCounts,
    started_since_report: u32,
    started_since_cue: u32,
    /// Where policies ask for it.
    traffic: Option<Traffic>,
}

/// What is in force.
enum Mode {
    /// The host's own settings.
    Own,
    /// A CUE's.
    Tuned(Lease),
    /// The host's own, until another CUE comes: a precondition of the last has failed.
    HeldBack(Lease),
}

struct Lease {
    until: Time,
    order: (u64, u32),
    tuning: Tuning,
    preconditions: Vec<Condition>,
}

impl Agent {
    /// `place` of `agents` spreads the reports of all over the last tenth of a cycle.
    pub(super) fn new(
        oracle: NodeId,
        cycle: Span,
        look: Span,
        reports: bool,
        traffic: Option<Traffic>,
        (place, agents): (usize, usize),
    ) -> Self {
        let phase = 0.9 + 0.08 * place as f64 / agents.max(1) as f64;
        Self {
            oracle,
            reports,
            look,
            schedule: Schedule::new(cycle, cycle.mul_f64(phase)),
            sequence: 0,
            next_look: Time::MAX,
            begun: false,
            mode: Mode::Own,
            refused: false,
            counts: SegmentCounts::default(),
            at_report: SegmentCounts::default(),
            at_cue: SegmentCounts::default(),
            started_since_report: 0,
            started_since_cue: 0,
            traffic,
        }
    }

    /// What is in force now.
    pub(super) fn tuning(&self) -> Tuning {
        match &self.mode {
            Mode::Tuned(lease) => lease.tuning,
            Mode::Own | Mode::HeldBack(_) => Tuning::default(),
        }
    }

    /// Changes what is in force.
    fn set_mode(&mut self, mode: Mode, out: &mut Outbox) {
        let before = self.tuning();
        self.mode = mode;
        let tuning = self.tuning();
        if std::mem::take(&mut self.refused) || tuning != before {
            out.push(Action::Tune { tuning });
        }
        if !matches!(&self.mode, Mode::Tuned(lease) if !lease.preconditions.is_empty()) {
            self.next_look = Time::MAX;
        }
    }

    /// Goes back to the host's own settings, and refuses CUEs up to `order` for as long as the lease would have lasted.
    fn hold_back(&mut self, order: (u64, u32), out: &mut Outbox) {
        let held = match &self.mode {
            Mode::Own => return,
            Mode::Tuned(lease) | Mode::HeldBack(lease) => {
                Lease { until: lease.until, order, tuning: Tuning::default(), preconditions: Vec::new() }
            }
        };
        self.set_mode(Mode::HeldBack(held), out);
    }

    fn on_cue(&mut self, now: Time, cue: &Cue, out: &mut Outbox) {
        self.end_lease(now, out);
        // While a lease is in force, an older CUE is one that was overtaken. After it there is nothing to overtake.
        if let Mode::Tuned(lease) | Mode::HeldBack(lease) = &self.mode
            && cue.order() <= lease.order
        {
            return;
        }
        if cue.lease == 0 {
            self.hold_back(cue.order(), out);
            return;
        }
        // Most CUEs say what the last one did.
        let known = match &self.mode {
            Mode::Tuned(lease) => lease.preconditions.as_slice(),
            Mode::Own | Mode::HeldBack(_) => &[],
        };
        let condition = |text: &String| match known.iter().find(|known| known.text() == text) {
            Some(known) => Some(known.clone()),
            None => Condition::compile(text, Scope::Host).ok(),
        };
        let preconditions = cue.preconditions.iter().map(condition);
        // What cannot be checked is not applied.
        let Some(preconditions) = preconditions.collect::<Option<Vec<_>>>() else { return };
        self.at_cue = self.counts;
        self.started_since_cue = 0;
        if self.next_look == Time::MAX {
            self.next_look = now + self.look;
        }
        let lease = Lease { until: now + cue.lease(), order: cue.order(), tuning: cue.tuning, preconditions };
        self.set_mode(Mode::Tuned(lease), out);
    }

    fn end_lease(&mut self, now: Time, out: &mut Outbox) {
        if let Mode::Tuned(lease) | Mode::HeldBack(lease) = &self.mode
            && lease.until <= now
        {
            self.set_mode(Mode::Own, out);
        }
    }

    /// Goes back when a precondition fails; one for which there are no data has not failed.
    fn look(&mut self, now: Time, flows: &[FlowStats], out: &mut Outbox) {
        if self.next_look > now {
            return;
        }
        self.next_look = now + self.look;
        let Mode::Tuned(lease) = &self.mode else { return };
        let state = HostState {
            live: f64::from(live(flows)),
            started: self.started_since_cue.into(),
            drop_rate: drop_rate(self.at_cue, self.counts),
            rtt: longest_rtt(flows).map(Span::as_secs_f64),
            ..HostState::default()
        };
        let values = Values::of_host(&state);
        if lease.preconditions.iter().any(|condition| condition.holds(&values) == Ok(false)) {
            self.hold_back(lease.order, out);
        }
    }

    fn report(&mut self, flows: &[FlowStats], out: &mut Outbox) {
        let rtt = longest_rtt(flows).map_or(0, |rtt| rtt.as_nanos().div_ceil(1000));
        let report = HostReport {
            sequence: self.sequence,
            live: live(flows),
            started: self.started_since_report,
            drop_rate: (drop_rate(self.at_report, self.counts) * 1e6).round() as u32,
            rtt: u32::try_from(rtt).unwrap_or(u32::MAX),
        };
        out.send(self.oracle, &Body::Host(report));
        self.sequence = self.sequence.wrapping_add(1);
        self.at_report = self.counts;
        self.started_since_report = 0;
    }
}

fn live(flows: &[FlowStats]) -> u32 {
    flows.iter().filter(|flow| flow.end == FlowEnd::Sender).count() as u32
}

fn longest_rtt(flows: &[FlowStats]) -> Option<Span> {
    flows.iter().filter(|flow| flow.end == FlowEnd::Sender).filter_map(|flow| flow.srtt).max()
}

fn drop_rate(before: SegmentCounts, now: SegmentCounts) -> f64 {
    let resent = now.resent.saturating_sub(before.resent);
    f64::from(wire::share(resent, now.sent.saturating_sub(before.sent))) / 1e6
}

impl Controller for Agent {
    fn on(&mut self, now: Time, observation: &Observation<'_>, out: &mut Outbox) {
        match observation {
            Observation::Sent(counts) => self.counts = *counts,
            Observation::FlowStarted(FlowStart { stats, .. }) if stats.end == FlowEnd::Sender => {
                self.started_since_report = self.started_since_report.saturating_add(1);
                self.started_since_cue = self.started_since_cue.saturating_add(1);
            }
            Observation::FlowStarted(start) => {
                if let Some(traffic) = &mut self.traffic {
                    traffic.begins(start);
                }
            }
            Observation::Carried(stats) => {
                if let Some(traffic) = &mut self.traffic {
                    traffic.carried(stats);
                }
            }
            Observation::FlowEnded(flow) => {
                if let Some(traffic) = &mut self.traffic {
                    traffic.ended(*flow);
                }
            }
            Observation::Tick { flows, .. } => {
                if !self.begun {
                    // A previous agent may have left settings behind: reset them.
                    self.begun = true;
                    (self.at_report, self.at_cue) = (self.counts, self.counts);
                    (self.started_since_report, self.started_since_cue) = (0, 0);
                    out.push(Action::Tune { tuning: Tuning::default() });
                    if let Some(traffic) = &mut self.traffic {
                        traffic.restart(now, flows);
                    }
                    self.schedule.advance(now);
                }
                self.end_lease(now, out);
                self.look(now, flows, out);
                if self.schedule.next <= now {
                    if let Some(traffic) = &mut self.traffic {
                        for report in traffic.reports(now, flows) {
                            out.send(self.oracle, &report);
                        }
                    }
                    if self.reports {
                        self.report(flows, out);
                    }
                    self.schedule.advance(now);
                }
            }
            Observation::Refused { subject: Subject::Tcp, .. } => self.refused = true,
            Observation::Message(message) if message.from == self.oracle => {
                if let Some(Body::Cue(cue)) = wire::read(message)
                    && self.begun
                {
                    self.on_cue(now, &cue, out);
                }
            }
            _ => {}
        }
    }

    fn wakeup(&self) -> Option<Time> {
        let lease_end = match &self.mode {
            Mode::Own => Time::MAX,
            Mode::Tuned(lease) | Mode::HeldBack(lease) => lease.until,
        };
        Some(self.schedule.next.min(lease_end).min(self.next_look))
    }

    fn gauges(&self, gauges: &mut Gauges) {
        gauges.show("tuned", if self.tuning().is_default() { 0.0 } else { 1.0 });
    }
}

#[cfg(test)]
mod tests {
    use super::super::DEF;
    use super::*;
    use crate::control::{Message, Refusal, body};

    /// Of a full disk, say: what it could not set is set once it can, and what it has set is not set again.
    #[test]
    fn what_a_host_refuses_the_next_cue_tries_again() {
        let oracle = NodeId(1);
        let second = Span::from_secs(1);
        let mut agent = Agent::new(oracle, second, second, false, None, (0, 1));
        let mut tell = |observation: &Observation<'_>| {
            let mut out = Outbox::default();
            agent.on(Time::ZERO, observation, &mut out);
            out.drain().filter(|action| matches!(action, Action::Tune { .. })).count()
        };
        let cue = |sequence| {
            let tuning = Tuning { initial_window: Some(20), ..Tuning::default() };
            let cue = Cue { epoch: 1, sequence, lease: 3000, tuning, preconditions: Vec::new() };
            Message { from: oracle, scheme: DEF.code, body: body(&Body::Cue(cue)) }
        };
        assert_eq!(tell(&Observation::Tick { ports: &[], flows: &[] }), 1, "the host's own at the start");
        assert_eq!(tell(&Observation::Message(&cue(1))), 1);
        assert_eq!(tell(&Observation::Message(&cue(2))), 0);
        assert_eq!(tell(&Observation::Refused { subject: Subject::Tcp, why: Refusal::Busy }), 0);
        assert_eq!(tell(&Observation::Message(&cue(3))), 1);
        assert_eq!(tell(&Observation::Message(&cue(4))), 0);
    }
}
