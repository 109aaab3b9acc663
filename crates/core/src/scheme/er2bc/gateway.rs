//! The two gateways as controllers: one asks and divides, the other answers.

use super::abw::Estimator;
use super::probe::{Body, Counters, Endpoint, Message, Numbering, Seq};
use super::shares::{Plan, Shares};
use crate::control::{Action, Controller, Gauges, Observation, Outbox, Passed, Wakeup};
use crate::id::{NodeId, PortId};
use crate::measure::gauges::mbit;
use crate::time::{Span, Time};
use crate::units::Rate;

/// The gateway before the path: asks each cycle, and sets the classes of its shaper by the answers.
pub(super) struct Sender {
    pub(super) port: PortId,
    pub(super) receiver: NodeId,
    pub(super) cycle: Span,
    pub(super) numbering: Numbering,
    pub(super) endpoint: Endpoint,
    pub(super) estimator: Estimator,
    pub(super) shares: Shares,
    /// The question that has not left yet.
    pub(super) asked: Option<(Seq, Vec<u8>)>,
    pub(super) next: Time,
}

impl Sender {
    fn ask(&mut self, out: &mut Outbox) {
        let question = self.numbering.question();
        let payload = self.endpoint.encode(&question).as_ref().to_vec();
        self.asked = Some((question.seq, payload.clone()));
        out.push(Action::Probe { to: self.receiver, payload, reason: "a cycle has passed" });
    }

    fn on_left(&mut self, now: Time, payload: &[u8], passed: Passed, out: &mut Outbox) {
        if let Some((seq, _)) = self.asked.take_if(|(_, asked)| asked == payload)
            && self.estimator.on_sent(seq, counters(passed, now))
        {
            set(self.port, self.shares.on_cut(self.estimator.estimate()), out);
        }
    }

    fn on_answer(&mut self, now: Time, payload: &[u8], out: &mut Outbox) {
        let Ok(Message { seq, body: Body::Answer(received), .. }) = self.endpoint.decode(payload) else {
            return;
        };
        if let Some(update) = self.estimator.on_answer(seq, received, now) {
            let plan = self.shares.on_update(&update);
            set(self.port, plan, out);
        }
    }
}

/// Puts `plan` into the shaper at `port`. A shaper refuses rates of nothing.
fn set(port: PortId, plan: &Plan, out: &mut Outbox) {
    let at_least_one = |rate: Rate| rate.max(Rate::from_bits_per_sec(1));
    if let Some(root) = plan.root {
        let (rate, ceil) = (at_least_one(root), at_least_one(root));
        out.push(Action::SetClass { port, class: None, rate, ceil, reason: "new estimate" });
    }
    for (number, class) in plan.classes.iter().enumerate() {
        let rate = at_least_one(class.rate);
        let ceil = class.ceil.max(rate);
        out.push(Action::SetClass { port, class: Some(number), rate, ceil, reason: "new shares" });
    }
}

impl Controller for Sender {
    fn on(&mut self, now: Time, observation: &Observation<'_>, out: &mut Outbox) {
        match observation {
            Observation::Tick { .. } => {
                if self.next == Time::ZERO {
                    set(self.port, self.shares.plan(), out);
                }
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

    fn wakeup(&self) -> Option<Wakeup> {
        Some(Wakeup { at: self.next, why: "cycle" })
    }

    fn gauges(&self, gauges: &mut Gauges) {
        let estimate = self.estimator.estimate();
        let last = self.estimator.last();
        let tally = self.estimator.tally();
        let classes: u64 = self.shares.plan().classes.iter().map(|class| class.rate.bits_per_sec()).sum();
        gauges.show("estimate", mbit(estimate));
        gauges.show("step", last.map_or(f64::NAN, |update| mbit(update.step)));
        gauges.show("received", last.map_or(f64::NAN, |update| mbit(update.received)));
        gauges.show("loss", last.map_or(f64::NAN, |update| update.lost as f64));
        gauges.show("lost", tally.lost as f64);
        gauges.show("updates", tally.updates as f64);
        gauges.show("classes", classes as f64 / 1e6);
        gauges.show("spare", (estimate.bits_per_sec() as f64 - classes as f64) / 1e6);
    }
}

/// The gateway behind the path: answers what it is asked.
pub(super) struct Receiver {
    pub(super) sender: NodeId,
    pub(super) endpoint: Endpoint,
}

impl Controller for Receiver {
    fn on(&mut self, now: Time, observation: &Observation<'_>, out: &mut Outbox) {
        let Observation::ProbeCame { from, payload, passed } = observation else { return };
        if *from != self.sender {
            return;
        }
        if let Ok(question @ Message { body: Body::Question, .. }) = self.endpoint.decode(payload) {
            let answer = Message { body: Body::Answer(counters(*passed, now)), ..question };
            let payload = self.endpoint.encode(&answer).as_ref().to_vec();
            out.push(Action::Probe { to: self.sender, payload, reason: "asked" });
        }
    }

    fn wakeup(&self) -> Option<Wakeup> {
        None
    }
}

fn counters(passed: Passed, now: Time) -> Counters {
    Counters { packets: passed.packets, bytes: passed.bytes, time: now }
}
