//! The two gateways as controllers: one asks and divides, the other answers.

use super::abw::{self, Estimator};
use super::mismatch::Mismatch;
use super::probe::{Body, Counters, Message, Report, Seq, WATCHED};
use super::robust::Hurry;
use super::robust::pace::Pace;
use super::robust::watch::{LOOK, Looks, POLL, Watch};
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
    /// With the estimator `robust`.
    pub(super) lookout: Option<Lookout>,
}

/// What a gateway looks at between questions, and when it asks.
pub(super) struct Lookout {
    pace: Pace,
    looks: Looks,
    poll: Time,
    /// When the other gateway is asked to watch again.
    watch: Time,
    /// The question that left with the last watch: an answer says that both have come, most likely.
    watched_with: Option<Seq>,
    /// Watches that have still to come, most likely, before the next waits for long.
    unwatched: u8,
    /// Messages that left by this pace, and reports that came.
    messages: u64,
}

impl Lookout {
    /// The next watch makes up for a lost one.
    const WATCH_EVERY: Span = Span::from_secs(60);
    /// Time to the next watch after one whose question stays unanswered.
    const WATCH_AGAIN: Span = Span::from_secs(3);
    /// Time until the question after a report leaves, so that it is behind what was sent at the old rate.
    const AFTER_REPORT: Span = Span::from_millis(20);

    /// Watches at the start. When one is lost, the question sent with it may still be answered. Later ones may be lost, since
    /// each lasts for longer than two intervals.
    const WATCHES: u8 = 2;

    /// Gateways with other `number`s ask at other times.
    pub(super) fn new(cycle: Span, number: u64) -> Self {
        Self {
            pace: Pace::new(cycle, number),
            looks: Looks::default(),
            poll: Time::ZERO,
            watch: Time::ZERO,
            watched_with: None,
            unwatched: Self::WATCHES,
            messages: 0,
        }
    }

    /// The other gateway may have restarted: then it watches nothing.
    const fn on_restart(&mut self, now: Time) {
        (self.watch, self.watched_with, self.unwatched) = (now, None, Self::WATCHES);
    }

    /// Question `seq` is answered: when enough watches have left just before such a question, the next need not be soon.
    fn on_answered(&mut self, seq: Seq) {
        if self.watched_with.take_if(|with| !seq.precedes(*with)).is_some_and(|with| with == seq) {
            self.unwatched = self.unwatched.saturating_sub(1);
            if self.unwatched == 0 {
                self.watch += Self::WATCH_EVERY.saturating_sub(Self::WATCH_AGAIN);
            }
        }
    }
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
        let (seq, received) = match Message::decode(payload) {
            Ok(Message { seq, body: Body::Answer(received) }) => (seq, received),
            Ok(Message { body: Body::Report(report), .. }) => return self.on_report(now, report, out),
            _ => return,
        };
        let was_silent = self.watchdog.as_mut().is_some_and(|watchdog| {
            watchdog.heard = now;
            std::mem::take(&mut watchdog.is_silent)
        });
        let has_changed = self.compare(seq, received);
        let trusts = self.watchdog.as_ref().is_none_or(|watchdog| watchdog.counts.verdict().is_none());
        let begun = self.estimator.beginnings();
        let update = if trusts { self.estimator.on_answer(seq, self.on_link(received), now) } else { None };
        if let Some(update) = &update {
            self.shares.on_update(update);
        }
        if update.is_some() || was_silent || has_changed {
            self.set(out);
        }
        if let Some(lookout) = &mut self.lookout {
            lookout.on_answered(seq);
            if self.estimator.beginnings() > begun && begun > 0 {
                lookout.on_restart(now);
            }
            match self.estimator.hurries() {
                Some(Hurry::Moves) => lookout.pace.hasten(now, None),
                Some(Hurry::ToSee) => lookout.pace.hasten_to_see(now),
                None => {}
            }
        }
    }

    fn on_report(&mut self, now: Time, report: Report, out: &mut Outbox) {
        let Some(lookout) = &mut self.lookout else { return };
        lookout.messages += 1;
        // Who measured over no time has looked as often as all do.
        let seconds = if report.millis == 0 { POLL.as_secs_f64() } else { f64::from(report.millis) / 1e3 };
        if self.estimator.on_report(now, &lookout.looks, report.rate as f64, seconds) {
            lookout.pace.hasten(now, Some(now + Lookout::AFTER_REPORT));
            self.shares.on_cut(self.estimator.estimate());
            self.set(out);
        }
    }

    /// Looks between questions; true when the next one leaves now.
    fn look(&mut self, now: Time, out: &mut Outbox) -> bool {
        let Some(lookout) = &mut self.lookout else { return true };
        lookout.poll = now + POLL;
        if self.estimator.look_for_overdue(now) {
            lookout.pace.hasten(now, Some(now));
            self.shares.on_cut(self.estimator.estimate());
            set_in_force(self.port, self.watchdog.as_ref(), &self.shares, out);
        }
        if !lookout.pace.take(now) {
            return false;
        }
        lookout.messages += 1;
        if lookout.watch <= now && self.estimator.last().is_some() {
            lookout.watch = now + Lookout::WATCH_AGAIN;
            lookout.watched_with = Some(self.number);
            lookout.messages += 1;
            let payload = Message { seq: self.number, body: Body::Watch }.encode();
            out.push(Action::Probe { to: self.receiver, payload });
        }
        true
    }

    /// Compares the counts of both ends; true when a mismatch begins or ends. The estimator gets no input meanwhile, and
    /// restarts from the last trusted estimate.
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
        set_in_force(self.port, self.watchdog.as_ref(), &self.shares, out);
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

fn set_in_force(port: PortId, watchdog: Option<&Watchdog>, shares: &Shares, out: &mut Outbox) {
    match watchdog {
        Some(watchdog) if watchdog.is_alarmed() => set(port, &watchdog.safe, out),
        _ => set(port, shares.plan(), out),
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
                if self.look(now, out) {
                    self.next = now + self.cycle;
                    self.ask(out);
                }
            }
            Observation::Counted(passed) => {
                let passed = self.on_link(counters(*passed, now));
                if let Some(lookout) = &mut self.lookout {
                    lookout.looks.add(now, Passed { packets: passed.packets, bytes: passed.bytes });
                }
            }
            Observation::ProbeLeft { payload, passed } => self.on_left(now, payload, *passed, out),
            Observation::ProbeCame { from, payload, .. } if *from == self.receiver => {
                self.on_answer(now, payload, out);
            }
            _ => {}
        }
    }

    fn wakeup(&self) -> Option<Time> {
        Some(self.lookout.as_ref().map_or(self.next, |lookout| lookout.poll.min(lookout.pace.next())))
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
        if let Some(lookout) = &self.lookout {
            gauges.show("messages", lookout.messages as f64);
            gauges.show("noise", self.estimator.noise());
        }
        if let Some(watchdog) = &self.watchdog {
            gauges.show("silent", f64::from(u8::from(watchdog.is_silent)));
            let verdict = watchdog.counts.verdict();
            gauges.show("mismatch", verdict.map_or(0.0, |verdict| f64::from(verdict.cause.code())));
        }
    }
}

/// The gateway behind the path: answers questions, and watches arrivals on request.
pub(super) struct Receiver {
    sender: NodeId,
    watch: Option<Watching>,
    /// The last question that came, and reports since.
    asked: Option<(Seq, u16)>,
}

struct Watching {
    watch: Watch,
    until: Time,
    next: Time,
}

impl Receiver {
    pub(super) const fn new(sender: NodeId) -> Self {
        Self { sender, watch: None, asked: None }
    }

    fn look(&mut self, now: Time, passed: Passed, out: &mut Outbox) {
        let Some(watching) = self.watch.as_mut().filter(|watching| now >= watching.next) else { return };
        watching.next = now + LOOK;
        if let Some((seq, number)) = &mut self.asked
            && let Some(fall) = watching.watch.look(now, passed)
        {
            let (millis, rate) = ((fall.seconds * 1e3) as u16, fall.rate as u64);
            let report = Report { number: *number, millis, rate };
            *number = number.wrapping_add(1);
            let payload = Message { seq: *seq, body: Body::Report(report) }.encode();
            out.push(Action::Probe { to: self.sender, payload });
        }
    }
}

impl Controller for Receiver {
    fn on(&mut self, now: Time, observation: &Observation<'_>, out: &mut Outbox) {
        let (from, payload, passed) = match observation {
            Observation::ProbeCame { from, payload, passed } => (from, payload, passed),
            Observation::Counted(passed) => return self.look(now, *passed, out),
            Observation::Tick { .. } => {
                if let Some(watching) = &mut self.watch {
                    // Counters that are unknown now may be known at the next look.
                    watching.next = watching.next.max(now + LOOK);
                }
                self.watch.take_if(|watching| watching.until <= now);
                return;
            }
            _ => return,
        };
        if *from != self.sender {
            return;
        }
        match Message::decode(payload) {
            Ok(Message { seq, body: Body::Question }) => {
                self.asked = Some((seq, 0));
                let payload = Message { seq, body: Body::Answer(counters(*passed, now)) }.encode();
                out.push(Action::Probe { to: self.sender, payload });
            }
            Ok(Message { body: Body::Watch, .. }) => {
                let new = || Watching { watch: Watch::new(), until: now, next: now + LOOK };
                self.watch.get_or_insert_with(new).until = now + WATCHED;
            }
            _ => {}
        }
    }

    fn wakeup(&self) -> Option<Time> {
        self.watch.as_ref().map(|watching| watching.next)
    }
}

fn counters(passed: Passed, now: Time) -> Counters {
    Counters { packets: passed.packets, bytes: passed.bytes, time: now }
}

/// Rates of gauges are in Mbit/s.
fn mbit(rate: Rate) -> f64 {
    rate.bits_per_sec() as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The last watch leaves just before question 7. An answer to 6 says nothing of it; one to 7 does; one to 8 alone means that
    /// 7 was lost, and maybe the watch, so the watch is sent again after 3 s. The first watch is always sent again.
    #[test]
    fn a_watch_is_said_again_until_the_questions_beside_two_are_answered() {
        let second = |s: u64| Time::ZERO + Span::from_secs(s);
        let said = |unwatched: u8, answers: &[u16]| {
            let mut lookout = Lookout::new(Span::from_secs(1), 1);
            (lookout.watch, lookout.watched_with) = (second(10) + Lookout::WATCH_AGAIN, Some(Seq::new(7)));
            lookout.unwatched = unwatched;
            answers.iter().for_each(|seq| lookout.on_answered(Seq::new(*seq)));
            lookout.watch
        };
        assert_eq!(Lookout::new(Span::from_secs(1), 1).unwatched, 2);
        assert_eq!(said(2, &[7]), second(13), "the first may still be lost");
        for before in [0, 1] {
            assert_eq!(said(before, &[6]), second(13));
            assert_eq!(said(before, &[6, 7]), second(70));
            assert_eq!(said(before, &[7, 7, 8]), second(70), "once");
            assert_eq!(said(before, &[8, 7]), second(13));
        }
    }
}
