//! The two directions of a gateway: the one in which it asks, and the one in which it answers.

use std::collections::VecDeque;

use bandmaster_core::control::{Action, Controller, Observation, Outbox, Passed};
use bandmaster_core::id::{NodeId, PortId};
use bandmaster_core::scenario::deployment::Sender;
use bandmaster_core::scheme::er2bc::probe::{Auth, Endpoint, ProbeError};
use bandmaster_core::scheme::er2bc::{self, Settings};
use bandmaster_core::time::{Span, Time};
use bandmaster_core::units::Rate;

use super::status::Refused;

const PEER: NodeId = NodeId(1);
const PORT: PortId = PortId(0);

/// Type of a question and of an answer, at the start of each probe.
const QUESTION: u16 = 1;
const ANSWER: u16 = 2;
/// Bytes of the type and of the whole number, in the authenticated form at the end before the tag.
pub(super) const NUMBER_AT: core::ops::Range<usize> = 2..4;
const EPOCH_OF_QUESTION: core::ops::Range<usize> = 4..8;
/// Questions whose answers are still taken.
const MOST_ASKED: usize = 64;

/// Which direction a datagram belongs to, by its type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Question,
    Answer,
}

/// The type of a datagram.
pub(super) fn kind(payload: &[u8]) -> Option<Kind> {
    match payload.get(..2).map(|b| u16::from_be_bytes([b[0], b[1]])) {
        Some(QUESTION) => Some(Kind::Question),
        Some(ANSWER) => Some(Kind::Answer),
        _ => None,
    }
}

/// Reads what comes, and keeps from the controller what is false or was heard before.
///
/// The controller refuses that too; here it is counted, and a question sent back to its sender cannot use up the number
/// of the answer.
#[derive(Debug)]
struct Door {
    endpoint: Endpoint,
}

impl Door {
    /// The epoch and number of a message that is let in.
    fn admit(&mut self, payload: &[u8], refused: &mut Refused) -> Option<(u32, u16)> {
        match self.endpoint.decode(payload) {
            Ok(message) => Some((message.epoch, message.seq.get())),
            Err(error) => {
                *match error {
                    ProbeError::Length(_) | ProbeError::ShortKey(_) => &mut refused.length,
                    ProbeError::Type(_) => &mut refused.kind,
                    ProbeError::Tag => &mut refused.tag,
                    ProbeError::Replay { .. } => &mut refused.replay,
                } += 1;
                None
            }
        }
    }
}

/// The direction in which this gateway sends data: it asks.
pub(super) struct Asking {
    controller: Box<dyn Controller>,
    outbox: Outbox,
    door: Door,
    /// Numbers of questions without an answer, oldest first.
    asked: VecDeque<(u32, u16)>,
    /// When the peer was last heard; the start before that.
    pub(super) heard: Time,
    /// Answers heard.
    pub(super) answers: u64,
    hold: Span,
}

/// A change that the scheme wants: of the root, or of a class.
pub(super) type Change = (Option<usize>, Rate, Rate);

impl Asking {
    /// `initial` is the first estimate.
    pub(super) fn new(sender: &Sender, auth: Auth, epoch: u32, initial: Rate, now: Time) -> Self {
        let mut settings: Settings = sender.settings.clone();
        settings.estimator.initial = initial;
        Self {
            controller: er2bc::sender_gateway(&settings, PORT, PEER, auth.clone(), epoch),
            outbox: Outbox::default(),
            door: Door { endpoint: Endpoint::new(auth) },
            asked: VecDeque::new(),
            heard: now,
            answers: 0,
            hold: sender.hold,
        }
    }

    /// When it wants to ask.
    pub(super) fn next(&self) -> Time {
        self.controller.wakeup().map_or(Time::MAX, |wakeup| wakeup.at)
    }

    /// Whether the peer has been silent for too long.
    pub(super) fn is_silent(&self, now: Time) -> bool {
        now.since(self.heard) > self.hold
    }

    /// It is time: the question to send, and changes.
    pub(super) fn tick(&mut self, now: Time) -> (Option<Vec<u8>>, Vec<Change>) {
        let (probe, changes) = self.tell(now, &Observation::Tick { ports: &[], flows: &[] });
        if let Some(payload) = &probe {
            if self.asked.len() == MOST_ASKED {
                self.asked.pop_front();
            }
            self.asked.extend(number(payload));
        }
        (probe, changes)
    }

    /// A question has left behind so much data.
    pub(super) fn left(&mut self, now: Time, payload: &[u8], passed: Passed) -> Vec<Change> {
        self.tell(now, &Observation::ProbeLeft { payload, passed }).1
    }

    /// A datagram of an answer's type has come; none when it is refused.
    pub(super) fn came(&mut self, now: Time, payload: &[u8], refused: &mut Refused) -> Option<Vec<Change>> {
        let number = self.door.admit(payload, refused)?;
        let Some(at) = self.asked.iter().position(|asked| *asked == number) else {
            refused.unasked += 1;
            return None;
        };
        self.asked.remove(at);
        self.heard = now;
        self.answers += 1;
        let passed = Passed::default();
        Some(self.tell(now, &Observation::ProbeCame { from: PEER, payload, passed }).1)
    }

    fn tell(&mut self, now: Time, observation: &Observation<'_>) -> (Option<Vec<u8>>, Vec<Change>) {
        self.controller.on(now, observation, &mut self.outbox);
        let (mut probe, mut changes) = (None, Vec::new());
        for action in self.outbox.drain() {
            match action {
                Action::Probe { payload, .. } => probe = Some(payload),
                Action::SetClass { class, rate, ceil, .. } => changes.push((class, rate, ceil)),
                Action::SetWindow { .. }
                | Action::SetRate { .. }
                | Action::Tune { .. }
                | Action::Send { .. } => {}
            }
        }
        (probe, changes)
    }
}

/// Epoch and number of a question.
pub(super) fn number(question: &[u8]) -> Option<(u32, u16)> {
    let seq = question.get(NUMBER_AT)?;
    let epoch = question.get(EPOCH_OF_QUESTION).map_or(0, |b| u32::from_be_bytes([b[0], b[1], b[2], b[3]]));
    Some((epoch, u16::from_be_bytes([seq[0], seq[1]])))
}

/// The direction in which data comes: it answers.
pub(super) struct Answering {
    controller: Box<dyn Controller>,
    outbox: Outbox,
    door: Door,
}

impl Answering {
    pub(super) fn new(auth: Auth) -> Self {
        Self {
            controller: er2bc::receiver_gateway(PEER, auth.clone()),
            outbox: Outbox::default(),
            door: Door { endpoint: Endpoint::new(auth) },
        }
    }

    /// Whether a datagram of a question's type is let in.
    pub(super) fn admits(&mut self, payload: &[u8], refused: &mut Refused) -> bool {
        self.door.admit(payload, refused).is_some()
    }

    /// A question that was let in has come behind so much data: the answer to send.
    pub(super) fn came(&mut self, now: Time, payload: &[u8], passed: Passed) -> Option<Vec<u8>> {
        let came = Observation::ProbeCame { from: PEER, payload, passed };
        self.controller.on(now, &came, &mut self.outbox);
        let probe = |action| if let Action::Probe { payload, .. } = action { Some(payload) } else { None };
        self.outbox.drain().find_map(probe)
    }
}
