//! The status of a running controller, over a Unix socket in its state directory.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bandmaster_core::time::Time;
use serde::{Deserialize, Serialize};

use crate::daemon::clock::Clock;
use crate::daemon::{Error, answers};
use crate::enrolment::server::Questions;

pub use crate::agent::Refused;

/// Name of the socket in the state directory.
const SOCKET: &str = "controller.sock";

/// A running controller. Times are in seconds.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Status {
    /// Version of the program.
    pub version: String,
    /// Name of the controller.
    pub name: String,
    /// Its process.
    pub process: u32,
    /// Its file.
    pub file: String,
    /// What it decides.
    pub scheme: String,
    /// Where it listens.
    pub listen: String,
    /// Where hosts enrol; none: nowhere.
    #[serde(default)]
    pub enrolment: Option<String>,
    /// It decides and sends no settings.
    pub observes: bool,
    /// It is halted and sends nothing.
    pub halted: bool,
    /// Time since the start.
    pub uptime: f64,
    #[serde(skip)]
    pub(super) clock: Option<Clock>,
    #[serde(skip)]
    pub(super) started: Option<Time>,
    /// Hosts of the file.
    pub hosts: u64,
    /// Those of them that were heard within the last three cycles, or measurement intervals.
    pub hosts_heard: u64,
    /// Some of those that were not.
    pub silent: Vec<HostStatus>,
    /// Hosts that have enrolled by a token.
    #[serde(default)]
    pub enrolled: u64,
    /// Hosts that are revoked.
    #[serde(default)]
    pub revoked: u64,
    /// Some of them, by name.
    #[serde(default)]
    pub revoked_hosts: Vec<String>,
    /// Why it cannot be read who has enrolled and who is revoked; none: it can.
    #[serde(default)]
    pub ledger_error: Option<String>,
    /// What hosts asked for at the enrolment port, by what became of it.
    #[serde(default)]
    pub questions: Questions,
    /// What the role holds to be true: name and value.
    pub shown: Vec<(String, f64)>,
    /// Its last decision, and the values that made it.
    pub account: Vec<String>,
    /// Messages of hosts.
    pub messages: u64,
    /// Messages to them.
    pub sent: u64,
    /// Messages that were not sent, as it observes or is halted.
    pub held: u64,
    /// Messages that could not be sent.
    pub send_errors: u64,
    /// Datagrams that were refused, by reason.
    pub refused: Refused,
    /// What the role wanted and was not done: act, and how often.
    pub refused_acts: Vec<(String, u64)>,
}

/// A host that is not heard.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct HostStatus {
    /// Its name.
    pub name: String,
    /// Its number.
    pub number: u32,
    /// Time since its last message; none: there was none since the start.
    pub last_message: Option<f64>,
}

/// What threads of a controller share.
pub(super) type Shared = Arc<Mutex<Status>>;

pub(super) fn lock(shared: &Shared) -> MutexGuard<'_, Status> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The status as of now.
pub(super) fn current(shared: &Shared) -> Status {
    let mut status = lock(shared).clone();
    if let (Some(clock), Some(started)) = (status.clock, status.started) {
        status.uptime = clock.now().since(started).as_secs_f64();
    }
    status
}

/// Answers everybody who connects to the socket in `folder`, which this process holds.
pub(super) fn serve(folder: &Path, shared: Shared) -> Result<(), Error> {
    answers::serve(&folder.join(SOCKET), move || current(&shared))
}

/// Asks the controller whose state is in `folder`.
///
/// # Errors
/// When none runs there, or it does not answer.
pub fn status(folder: &Path) -> Result<Status, Error> {
    answers::ask(&folder.join(SOCKET), "controller", || false)
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}: {} at {}, process {}, up {:.0} s",
            self.name, self.scheme, self.listen, self.process, self.uptime
        )?;
        let says = match (self.observes, self.halted) {
            (_, true) => " (halted: sends nothing)",
            (true, false) => " (observes: sends nothing)",
            (false, false) => "",
        };
        writeln!(f, "file         {}{says}", self.file)?;
        writeln!(f, "hosts        {} of {} heard within three cycles", self.hosts_heard, self.hosts)?;
        for HostStatus { name, number, last_message } in &self.silent {
            let since =
                last_message.map_or("never heard".to_owned(), |since| format!("silent for {since:.0} s"));
            writeln!(f, "             {name} ({number}): {since}")?;
        }
        if let Some(at) = &self.enrolment {
            let counts: Vec<String> = self
                .questions
                .by_outcome()
                .iter()
                .map(|(outcome, count)| format!("{count} {outcome}"))
                .collect();
            writeln!(f, "enrolment    at {at}, {} hosts; {}", self.enrolled, counts.join(", "))?;
        }
        for name in &self.revoked_hosts {
            writeln!(f, "revoked      {name}")?;
        }
        if let Some(error) = &self.ledger_error {
            writeln!(f, "not read     {error}")?;
        }
        for (name, value) in &self.shown {
            writeln!(f, "{name:<12} {value}")?;
        }
        for line in &self.account {
            writeln!(f, "decides      {line}")?;
        }
        writeln!(
            f,
            "messages     {} from hosts, {} to them, {} held back, {} could not be sent",
            self.messages, self.sent, self.held, self.send_errors
        )?;
        for (act, count) in self.refused_acts.iter().filter(|(_, count)| *count > 0) {
            writeln!(f, "not done     {act}: {count}")?;
        }
        let refused: Vec<String> =
            self.refused.by_reason().iter().map(|(reason, count)| format!("{count} {reason}")).collect();
        write!(f, "refused      {}", refused.join(", "))
    }
}
