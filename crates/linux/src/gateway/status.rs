//! The status of a running gateway, over a Unix socket in its state directory.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bandmaster_core::runtime::{Host, Refusals};
use bandmaster_core::scheme::er2bc::probe::ProbeError;
use bandmaster_core::time::Time;
use serde::{Deserialize, Serialize};

use super::faults::FaultStatus;
use super::journal;
use super::machine::Machine;
use crate::daemon::clock::Clock;
use crate::daemon::{Error, answers};

/// Name of the socket in the state directory.
pub(super) const SOCKET: &str = "gateway.sock";

/// A running gateway. Rates are in bit/s, times in seconds.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Status {
    /// Version of the program.
    pub version: String,
    /// Name of the gateway.
    #[serde(default)]
    pub name: String,
    /// Its process.
    pub process: u32,
    /// Deployment file.
    pub file: String,
    /// Device.
    pub interface: String,
    /// The other gateway.
    pub peer: String,
    /// Changes nothing, only reports what would change.
    pub dry_run: bool,
    /// How packets are counted.
    pub counting: String,
    /// Time since the start.
    pub uptime: f64,
    /// Gives the time of a status request.
    #[serde(skip)]
    pub(super) clock: Option<Clock>,
    /// What it does as a sender.
    pub sender: Option<SenderStatus>,
    /// What it does as a receiver.
    pub receiver: Option<ReceiverStatus>,
    /// What is wrong, or was: a kind each.
    #[serde(default)]
    pub faults: Vec<FaultStatus>,
    /// Datagrams that were refused, by reason.
    pub refused: Refused,
    /// What roles wanted and the machine did not do: act, and how often.
    #[serde(default)]
    pub refused_acts: Vec<(String, u64)>,
    /// Deployment files taken on a reload.
    pub reloads: u64,
    /// Why the last reload kept the file before.
    pub reload_error: Option<String>,
}

/// A sender.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct SenderStatus {
    /// What is known of the peer.
    pub state: State,
    /// The interface with the shaper is there.
    #[serde(skip)]
    pub(super) has_interface: bool,
    /// The estimated bandwidth.
    pub estimate: u64,
    /// The bandwidth in force: the estimate, or the safe rate.
    pub in_force: u64,
    /// Time since the last answer.
    pub last_answer: Option<f64>,
    /// When that was.
    #[serde(skip)]
    pub(super) heard: Option<Time>,
    /// Questions sent.
    pub questions: u64,
    /// Answers heard.
    pub answers: u64,
    /// Rounds left out because data passed while the counters were read, or a question was not seen to go.
    pub rounds_left_out: u64,
    /// Packets of data sent, as of the last question that was not left out.
    pub packets: u64,
    /// Their bytes of IP.
    pub bytes: u64,
    /// Datagrams that could not be sent.
    pub send_errors: u64,
    /// Times that the peer fell silent.
    pub silences: u64,
    /// Classes, the most important first.
    pub classes: Vec<ClassStatus>,
}

/// What is known of the peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// It has not answered yet.
    #[default]
    Waiting,
    /// It answers.
    Answering,
    /// It has not answered for too long.
    Silent,
    /// The interface or its shaper has gone.
    #[serde(rename = "no interface")]
    NoInterface,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Waiting => "waiting",
            Self::Answering => "answering",
            Self::Silent => "silent",
            Self::NoInterface => "no interface",
        })
    }
}

/// A class.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct ClassStatus {
    /// Its name.
    pub name: String,
    /// What it needs.
    pub need: u64,
    /// What it has in any case.
    pub rate: u64,
    /// What it never exceeds.
    pub ceil: u64,
    /// Packets sent.
    pub packets: u64,
    /// Bytes sent.
    pub bytes: u64,
    /// Packets dropped.
    pub drops: u64,
    /// Packets that wait.
    pub waiting: u32,
}

/// A receiver.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct ReceiverStatus {
    /// Questions answered.
    pub questions: u64,
    /// Time since the last question.
    pub last_question: Option<f64>,
    /// When that was.
    #[serde(skip)]
    pub(super) heard: Option<Time>,
    /// Packets of data received, as of the last question.
    pub packets: u64,
    /// Their bytes of IP.
    pub bytes: u64,
}

impl Status {
    /// Notes what roles wanted in vain.
    pub(super) fn note(&mut self, refusals: &Refusals) {
        let acts = Machine::ACTS.iter().map(|act| (act.name().to_owned(), refusals.of(*act)));
        self.refused_acts = acts.collect();
    }
}

/// Datagrams that were refused, by reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Refused {
    /// No probe has such a length.
    pub length: u64,
    /// Neither question nor answer, or not for this role.
    pub kind: u64,
    /// Not from the peer: the tag is wrong.
    pub tag: u64,
    /// Heard before.
    pub replay: u64,
    /// An answer to no open question.
    pub unasked: u64,
}

impl Refused {
    /// Counts one.
    pub(super) fn count(&mut self, error: ProbeError) {
        *match error {
            ProbeError::Length(_) => &mut self.length,
            ProbeError::Type(_) | ProbeError::Version(_) => &mut self.kind,
            ProbeError::Tag => &mut self.tag,
            ProbeError::Replay { .. } => &mut self.replay,
        } += 1;
    }

    /// All together.
    pub fn total(&self) -> u64 {
        self.length + self.kind + self.tag + self.replay + self.unasked
    }
}

/// What threads of a gateway share.
pub(super) type Shared = Arc<Mutex<Status>>;

pub(super) fn lock(shared: &Shared) -> MutexGuard<'_, Status> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The status as of now.
pub(super) fn current(shared: &Shared) -> Status {
    let mut status = lock(shared).clone();
    if let Some(clock) = status.clock {
        let now = clock.now();
        let ago = |heard: Option<Time>| heard.map(|heard| now.since(heard).as_secs_f64());
        status.uptime = now.as_secs_f64();
        for fault in &mut status.faults {
            fault.began = now.since(fault.since).as_secs_f64();
        }
        if let Some(sender) = &mut status.sender {
            sender.last_answer = ago(sender.heard);
            if !sender.has_interface {
                sender.state = State::NoInterface;
            }
        }
        if let Some(receiver) = &mut status.receiver {
            receiver.last_question = ago(receiver.heard);
        }
    }
    status
}

/// Answers everybody who connects to the socket in `folder`, which this process holds.
pub(super) fn serve(folder: &Path, shared: Shared) -> Result<(), Error> {
    answers::serve(&folder.join(SOCKET), move || current(&shared))
}

/// Asks the gateway whose state is in `folder`.
///
/// # Errors
/// When none runs there, or it does not answer.
pub fn status(folder: &Path) -> Result<Status, Error> {
    answers::ask(&folder.join(SOCKET), "gateway", || matches!(journal::read(folder), Ok(Some(_))))
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = |bits: u64| format!("{:.3} Mbit/s", bits as f64 / 1e6);
        let ago = |time: Option<f64>| time.map_or("never".to_owned(), |s| format!("{s:.1} s ago"));
        writeln!(
            f,
            "{}: {} to {}, process {}, up {:.0} s",
            self.name, self.interface, self.peer, self.process, self.uptime
        )?;
        writeln!(f, "file       {}{}", self.file, if self.dry_run { " (dry run)" } else { "" })?;
        writeln!(f, "counting   {}", self.counting)?;
        for fault in self.faults.iter().filter(|fault| fault.active) {
            writeln!(f, "fault      {}, for {:.0} s: {}", fault.kind, fault.began, fault.cause)?;
        }
        let over = |fault: &&FaultStatus| fault.times > u64::from(fault.active);
        for fault in self.faults.iter().filter(over) {
            writeln!(
                f,
                "faults     {} began {} times, last {:.0} s ago",
                fault.kind, fault.times, fault.began
            )?;
        }
        if let Some(sender) = &self.sender {
            writeln!(f, "peer       {}, last answer {}", sender.state, ago(sender.last_answer))?;
            writeln!(
                f,
                "bandwidth  {} estimated, {} in force",
                rate(sender.estimate),
                rate(sender.in_force)
            )?;
            writeln!(f, "rounds     {} asked, {} answered", sender.questions, sender.answers)?;
            writeln!(f, "data       {} packets, {} B sent", sender.packets, sender.bytes)?;
            for class in &sender.classes {
                let ClassStatus { name, need, packets, drops, waiting, .. } = class;
                writeln!(
                    f,
                    "class      {name}: has {} of {}, sent {packets} packets, dropped {drops}, {waiting} wait",
                    rate(class.rate),
                    rate(*need)
                )?;
            }
        }
        if let Some(receiver) = &self.receiver {
            let ReceiverStatus { questions, packets, bytes, last_question, .. } = receiver;
            writeln!(f, "answers    {questions}, last {}", ago(*last_question))?;
            writeln!(f, "data       {packets} packets, {bytes} B received")?;
        }
        if let Some(why) = &self.reload_error {
            writeln!(f, "reload     kept the file before: {why}")?;
        }
        for (act, count) in self.refused_acts.iter().filter(|(_, count)| *count > 0) {
            writeln!(f, "not done   {act}: {count}")?;
        }
        let Refused { length, kind, tag, replay, unasked } = self.refused;
        write!(
            f,
            "refused    {length} length, {kind} type, {tag} tag, {replay} heard before, {unasked} not asked"
        )
    }
}
