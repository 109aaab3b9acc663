//! The status of a running agent, over a Unix socket in its state directory.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bandmaster_core::runtime::envelope::Forged;
use bandmaster_core::time::Time;
use serde::{Deserialize, Serialize};

use super::journal::Entry;
use crate::daemon::clock::Clock;
use crate::daemon::{Error, answers, state};

/// Name of the socket in the state directory.
const SOCKET: &str = "agent.sock";

/// A running agent. Times are in seconds.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Status {
    /// Version of the program.
    pub version: String,
    /// Name of the agent.
    pub name: String,
    /// Its process.
    pub process: u32,
    /// Its file.
    pub file: String,
    /// What it takes part in.
    pub scheme: String,
    /// This host's number at the controller.
    pub number: u32,
    /// The controller.
    pub controller: String,
    /// Changes nothing, only reports what would change.
    pub dry_run: bool,
    /// Time since the start.
    pub uptime: f64,
    /// Settings are made by routes, since the kernel takes no program: why.
    #[serde(default)]
    pub by_routes: Option<String>,
    /// What therefore cannot be set, a line each.
    #[serde(default)]
    pub lacks: Vec<String>,
    /// Routes that have what is in force.
    #[serde(default)]
    pub routes: u64,
    /// Routes that are left alone, and why.
    #[serde(default)]
    pub left_alone: Vec<String>,
    /// Gives the time of a status request.
    #[serde(skip)]
    pub(super) clock: Option<Clock>,
    /// What differs from the host's own settings; none: nothing.
    pub in_force: Option<String>,
    /// What of it the kernel does otherwise.
    pub remarks: Vec<String>,
    /// Times that what is in force has changed.
    pub changes: u64,
    /// Time since the last message of the controller.
    pub last_message: Option<f64>,
    /// When that was.
    #[serde(skip)]
    pub(super) heard: Option<Time>,
    /// Messages of the controller.
    pub messages: u64,
    /// Messages to it.
    pub sent: u64,
    /// Messages that could not be sent.
    pub send_errors: u64,
    /// Datagrams that were refused, by reason.
    pub refused: Refused,
    /// Why connections that are set cannot be written down; none: they are.
    pub journal_error: Option<String>,
    /// Why routes do not have what they should; none: they have.
    #[serde(default)]
    pub routes_error: Option<String>,
    /// Why connections could not be looked at; none: they were.
    #[serde(default)]
    pub look_error: Option<String>,
    /// Why a router's ports are not reported; none: they are.
    #[serde(default)]
    pub ports_silent: Option<String>,
    /// Of a router: samples by sFlow that came twice, or that a newer one had overtaken.
    #[serde(default)]
    pub samples_overtaken: u64,
    /// Seconds until the certificate expires; none: the secret was carried by hand.
    #[serde(default)]
    pub certificate_left: Option<f64>,
    /// Why it cannot be renewed; none: it can, or need not be.
    #[serde(default)]
    pub renewal_error: Option<String>,
    /// Connections that carry data, at the last look.
    pub connections: u64,
    /// Those, and listening sockets, that have been set and not given back.
    pub set: u64,
    /// Live connections that are bounded.
    pub bounded: u64,
    /// By kind of setting: how often the kernel did it, and how often not.
    pub settings: Vec<Done>,
    /// What the role wanted and the host did not do: act, and how often.
    pub refused_acts: Vec<(String, u64)>,
}

/// A kind of setting.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Done {
    /// Which.
    pub kind: String,
    /// Times that the kernel did it.
    pub done: u64,
    /// Times that it did not.
    pub refused: u64,
    /// The kernel's last error.
    pub error: Option<String>,
}

/// Datagrams that were refused, by reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct Refused {
    /// Too short for a message.
    pub length: u64,
    /// Of a version that this agent does not speak.
    pub version: u64,
    /// Not of the controller: the tag is wrong.
    pub tag: u64,
    /// Of another sender with the same key.
    pub sender: u64,
    /// Heard before, or overtaken by a newer one.
    pub replay: u64,
    /// Of another scheme.
    pub scheme: u64,
    /// To a controller: not to be read as what a host has recorded.
    pub report: u64,
    /// To a controller: more than a host may record in a minute.
    pub excess: u64,
    /// To a controller: of a host that is revoked.
    pub revoked: u64,
}

impl Refused {
    pub(crate) fn count(&mut self, why: Forged) {
        *match why {
            Forged::Length => &mut self.length,
            Forged::Version(_) => &mut self.version,
            Forged::Tag => &mut self.tag,
            Forged::Sender(_) => &mut self.sender,
            Forged::Replay => &mut self.replay,
        } += 1;
    }

    /// With their names, in order.
    pub fn by_reason(&self) -> [(&'static str, u64); 9] {
        let Self { length, version, tag, sender, replay, scheme, report, excess, revoked } = *self;
        [
            ("length", length),
            ("version", version),
            ("tag", tag),
            ("sender", sender),
            ("replay", replay),
            ("scheme", scheme),
            ("report", report),
            ("excess", excess),
            ("revoked", revoked),
        ]
    }
}

/// What threads of an agent share.
pub(super) type Shared = Arc<Mutex<Status>>;

pub(super) fn lock(shared: &Shared) -> MutexGuard<'_, Status> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The status as of now.
pub(super) fn current(shared: &Shared) -> Status {
    let mut status = lock(shared).clone();
    if let Some(clock) = status.clock {
        let now = clock.now();
        status.uptime = now.as_secs_f64();
        status.last_message = status.heard.map(|heard| now.since(heard).as_secs_f64());
    }
    status
}

/// Answers everybody who connects to the socket in `folder`, which this process holds.
pub(super) fn serve(folder: &Path, shared: Shared) -> Result<(), Error> {
    answers::serve(&folder.join(SOCKET), move || current(&shared))
}

/// Asks the agent whose state is in `folder`.
///
/// # Errors
/// When none runs there, or it does not answer.
pub fn status(folder: &Path) -> Result<Status, Error> {
    let has_left = || matches!(state::read::<Entry>(folder), Ok(Some(_)));
    answers::ask(&folder.join(SOCKET), "agent", has_left)
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}: host {} of {} at {}, process {}, up {:.0} s",
            self.name, self.number, self.scheme, self.controller, self.process, self.uptime
        )?;
        writeln!(f, "file         {}{}", self.file, if self.dry_run { " (dry run)" } else { "" })?;
        if let Some(why) = &self.by_routes {
            writeln!(f, "by routes    {} have what is in force; {why}", self.routes)?;
        }
        for what in &self.lacks {
            writeln!(f, "cannot have  {what}")?;
        }
        for route in &self.left_alone {
            writeln!(f, "left alone   {route}")?;
        }
        let heard = self.last_message.map_or("never".to_owned(), |s| format!("{s:.1} s ago"));
        writeln!(
            f,
            "controller   heard {heard}; {} messages from it, {} to it, {} could not be sent",
            self.messages, self.sent, self.send_errors
        )?;
        let in_force = self.in_force.as_deref().unwrap_or("the host's own settings");
        writeln!(f, "in force     {in_force}; changed {} times", self.changes)?;
        for remark in &self.remarks {
            writeln!(f, "             {remark}")?;
        }
        writeln!(
            f,
            "connections  {} carry data, {} are set, {} are bounded",
            self.connections, self.set, self.bounded
        )?;
        if let Some(why) = &self.ports_silent {
            writeln!(f, "ports        not reported: {why}")?;
        }
        if self.samples_overtaken > 0 {
            writeln!(f, "ports        {} samples by sFlow came twice or late", self.samples_overtaken)?;
        }
        if let Some(left) = self.certificate_left {
            let error =
                self.renewal_error.as_ref().map_or(String::new(), |error| format!("; not renewed: {error}"));
            writeln!(f, "certificate  valid for {:.0} days{error}", left / 86_400.0)?;
        }
        if let Some(error) = &self.journal_error {
            writeln!(f, "journal      {error}")?;
        }
        if let Some(error) = &self.routes_error {
            writeln!(f, "routes       {error}")?;
        }
        if let Some(error) = &self.look_error {
            writeln!(f, "connections  not shown by the kernel: {error}")?;
        }
        for Done { kind, done, refused, error } in &self.settings {
            if done + refused > 0 {
                let error = error.as_ref().map_or(String::new(), |error| format!(": {error}"));
                writeln!(f, "setting      {kind}: done {done} times, refused {refused} times{error}")?;
            }
        }
        for (act, count) in self.refused_acts.iter().filter(|(_, count)| *count > 0) {
            writeln!(f, "not done     {act}: {count}")?;
        }
        let refused: Vec<String> =
            self.refused.by_reason().iter().map(|(reason, count)| format!("{count} {reason}")).collect();
        write!(f, "refused      {}", refused.join(", "))
    }
}
