//! The two gateways as controllers: one asks and divides, the other answers.

use super::abw::{self, Estimator};
use super::mismatch::Mismatch;
use super::probe::{Body, Counters, Message, Seq};
use super::shares::{Plan, Shares};
use crate::control::{Action, Controller, Gauges, Observation, Outbox, Passed, body};
use crate::id::{NodeId, PortId};
use crate::time::{Span, Time};
use crate::units::Rate;

/// The gateway before the path: asks each cycle, and sets the classes of its shaper by the answers.
pub(super) struct Sender {
    pub(super) port: PortId,
    pub(super) receiver: NodeId,
    /// Bytes that the link at the port adds to an IP packet: all rates are of bytes on that link.
    pub(super) overhead: u32,
    pub(super) cycle: Span,
    /// Of the next question.
    pub(super) number: Seq,
    pub(super) estimator: Estimator,
    pub(super) shares: Shares,
    /// The question that has not left yet.
    pub(super) asked: Option<(Seq, Vec<u8>)>,
    pub(super) next: Time,
    pub(super) watchdog: Option<Watchdog>,
}

/// Goes to a safe bandwidth while the other gateway is silent, since the estimate is of a path that may be another by then, and
/// while the counts of both ends cannot match, since the estimate then is of nothing.
pub(super) struct Watchdog {
    /// How long it may be silent.
    pub(super) hold: Span,
    /// In force meanwhile.
    pub(super) safe: Plan,
    /// When it was heard last; the start before that.
    pub(super) heard: Time,
    pub(super) is_silent: bool,
    pub(super) counts: Mismatch,
    /// The estimate when counts began to tell something: what it goes on from when they match again.
    pub(super) trusted: Rate,
}

impl Watchdog {
    /// Whether the safe bandwidth is in force.
    fn is_alarmed(&self) -> bool {
        self.is_silent || self.counts.verdict().is_some()
    }
}

impl Sender {
    fn ask(&mut self, out: &mut Outbox) {
        let payload = Message { seq: self.number, body: Body::Question }.encode();
        self.asked = Some((self.number, payload.clone()));
        self.number = self.number.next();
        out.push(Action::Probe { to: self.receiver, payload });
    }

    fn on_left(&mut self, now: Time, payload: &[u8], passed: Passed, out: &mut Outbox) {
        let Some((seq, _)) = self.asked.take_if(|(_, asked)| asked == payload) else { return };
        let counted = counters(passed, now);
        if let Some(watchdog) = &mut self.watchdog {
            watchdog.counts.on_sent(seq, counted);
            if watchdog.counts.verdict().is_some() {
                return;
            }
        }
        if self.estimator.on_sent(seq, self.on_link(counted)) {
            self.shares.on_cut(self.estimator.estimate());
            self.set(out);
        }
    }

    fn on_answer(&mut self, now: Time, payload: &[u8], out: &mut Outbox) {
        let Ok(Message { seq, body: Body::Answer(received) }) = Message::decode(payload) else {
            return;
        };
        let was_silent = self.watchdog.as_mut().is_some_and(|watchdog| {
            watchdog.heard = now;
            std::mem::take(&mut watchdog.is_silent)
        });
        let has_changed = self.compare(seq, received);
        let trusts = self.watchdog.as_ref().is_none_or(|watchdog| watchdog.counts.verdict().is_none());
        let update = if trusts { self.estimator.on_answer(seq, self.on_link(received), now) } else { None };
        if let Some(update) = &update {
            self.shares.on_update(update);
        }
        if update.is_some() || was_silent || has_changed {
            self.set(out);
        }
    }

    /// Compares the counts of both ends; true when they begin or end to mismatch. The estimator hears nothing meanwhile, and
    /// begins anew at what could be trusted last.
    fn compare(&mut self, seq: Seq, received: Counters) -> bool {
        let Some(watchdog) = &mut self.watchdog else { return false };
        if !watchdog.counts.is_suspicious() {
            watchdog.trusted = self.estimator.estimate();
        }
        if !watchdog.counts.on_answer(seq, received) {
            return false;
        }
        if watchdog.counts.verdict().is_none() {
            let initial = watchdog.trusted;
            let settings = abw::Settings { initial, ..self.estimator.settings().clone() };
            self.estimator = Estimator::new(settings);
            self.estimator.set_goals(&self.shares.goals());
            self.shares.on_cut(self.estimator.estimate());
        }
        true
    }

    /// Counters of IP packets as bytes on the link. They wrap.
    fn on_link(&self, counters: Counters) -> Counters {
        let framing = counters.packets.wrapping_mul(u64::from(self.overhead));
        Counters { bytes: counters.bytes.wrapping_add(framing), ..counters }
    }

    /// Puts into the shaper what is to be in force now.
    fn set(&self, out: &mut Outbox) {
        match &self.watchdog {
            Some(watchdog) if watchdog.is_alarmed() => set(self.port, &watchdog.safe, out),
            _ => set(self.port, self.shares.plan(), out),
        }
    }

    /// The other gateway has been silent for too long.
    fn bark(&mut self, now: Time, out: &mut Outbox) {
        if let Some(watchdog) = self.watchdog.as_mut().filter(|watchdog| !watchdog.is_silent)
            && now.since(watchdog.heard) > watchdog.hold
        {
            watchdog.is_silent = true;
            self.set(out);
        }
    }
}

/// Puts `plan` into the shaper at `port`. A shaper refuses rates of nothing.
fn set(port: PortId, plan: &Plan, out: &mut Outbox) {
    let at_least_one = |rate: Rate| rate.max(Rate::from_bits_per_sec(1));
    if let Some(root) = plan.root {
        let (rate, ceil) = (at_least_one(root), at_least_one(root));
        out.push(Action::SetClass { port, class: None, rate, ceil });
    }
    for (number, class) in plan.classes.iter().enumerate() {
        let rate = at_least_one(class.rate);
        let ceil = class.ceil.max(rate);
        out.push(Action::SetClass { port, class: Some(number), rate, ceil });
    }
}

impl Controller for Sender {
    fn on(&mut self, now: Time, observation: &Observation<'_>, out: &mut Outbox) {
        match observation {
            Observation::Tick { .. } => {
                if self.next == Time::ZERO {
                    if let Some(watchdog) = &mut self.watchdog {
                        watchdog.heard = now;
                    }
                    self.set(out);
                }
                self.bark(now, out);
                self.next = now + self.cycle;
                self.ask(out);
            }
            Observation::ProbeLeft { payload, passed } => self.on_left(now, payload, *passed, out),
            Observation::ProbeCame { from, payload, .. } if *from == self.receiver => {
                self.on_answer(now, payload, out);
            }
            _ => {}
        }
    }

    fn wakeup(&self) -> Option<Time> {
        Some(self.next)
    }

    fn save(&self) -> Option<Vec<u8>> {
        let untrue = self.watchdog.as_ref().filter(|watchdog| watchdog.counts.verdict().is_some());
        Some(body(&untrue.map_or(self.estimator.estimate(), |watchdog| watchdog.trusted)))
    }

    fn gauges(&self, gauges: &mut Gauges) {
        let estimate = self.estimator.estimate();
        let last = self.estimator.last();
        let tally = self.estimator.tally();
        let rates = self.shares.plan().classes.iter().map(|class| class.rate.bits_per_sec());
        let classes = rates.fold(0, u64::saturating_add);
        gauges.show("estimate", mbit(estimate));
        gauges.show("step", last.map_or(f64::NAN, |update| mbit(update.step)));
        gauges.show("received", last.map_or(f64::NAN, |update| mbit(update.received)));
        gauges.show("loss", last.map_or(f64::NAN, |update| update.lost as f64));
        gauges.show("lost", tally.lost as f64);
        gauges.show("updates", tally.updates as f64);
        gauges.show("classes", classes as f64 / 1e6);
        gauges.show("spare", (estimate.bits_per_sec() as f64 - classes as f64) / 1e6);
        if let Some(watchdog) = &self.watchdog {
            gauges.show("silent", f64::from(u8::from(watchdog.is_silent)));
            let verdict = watchdog.counts.verdict();
            gauges.show("mismatch", verdict.map_or(0.0, |verdict| f64::from(verdict.cause.code())));
        }
    }
}

/// The gateway behind the path: answers what it is asked.
pub(super) struct Receiver {
    pub(super) sender: NodeId,
}

impl Controller for Receiver {
    fn on(&mut self, now: Time, observation: &Observation<'_>, out: &mut Outbox) {
        let Observation::ProbeCame { from, payload, passed } = observation else { return };
        if *from != self.sender {
            return;
        }
        if let Ok(Message { seq, body: Body::Question }) = Message::decode(payload) {
            let payload = Message { seq, body: Body::Answer(counters(*passed, now)) }.encode();
            out.push(Action::Probe { to: self.sender, payload });
        }
    }

    fn wakeup(&self) -> Option<Time> {
        None
    }
}

fn counters(passed: Passed, now: Time) -> Counters {
    Counters { packets: passed.packets, bytes: passed.bytes, time: now }
}

/// Rates of gauges are in Mbit/s.
fn mbit(rate: Rate) -> f64 {
    rate.bits_per_sec() as f64 / 1e6
}
