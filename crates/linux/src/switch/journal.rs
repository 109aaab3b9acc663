//! What a switch changes, written down: its programs at ports, which end with its process.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::fbqm;

use crate::daemon::Error;
use crate::daemon::state::{self, Journal, State, boot, namespace};
use crate::gateway::journal::Made;

/// Version of the journal.
const VERSION: u32 = 1;

/// A line of the journal.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "entry", rename_all = "kebab-case")]
pub(super) enum Entry {
    /// A switch begins.
    Begin {
        /// Version of the journal.
        version: u32,
        /// Its process.
        process: u32,
        /// The machine's life.
        boot: String,
        /// Its network namespace.
        namespace: u64,
    },
    /// Programs come to a port.
    Follow {
        /// Its device.
        interface: String,
    },
    /// An HTB comes to a port.
    Shape {
        /// Its device.
        interface: String,
        /// By which the HTB is known again.
        made: Made,
    },
}

impl Entry {
    /// The first line.
    pub(super) fn begin() -> Self {
        Self::Begin { version: VERSION, process: std::process::id(), boot: boot(), namespace: namespace() }
    }
}

/// What `restore` found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Restored {
    /// No journal: nothing was left.
    Nothing,
    /// The programs at these ports ended with the process; the journal is forgotten.
    Done(Vec<String>),
    /// What was taken away, and what was left and why; the journal is forgotten.
    Undone(Vec<String>),
}

/// Forgets the journal of a switch with state in `folder` that was killed.
///
/// # Errors
/// When a switch runs with the folder, or the journal cannot be read.
pub fn restore(folder: &Path) -> Result<Restored, Error> {
    if state::read::<Entry>(folder)?.is_none() {
        return Ok(Restored::Nothing);
    }
    undo(&State::hold(folder)?)
}

/// Where changes are written down: the folder, which nobody else has, and the journal.
pub(super) type Written = (State<Entry>, Journal<Entry>);

/// Takes back what an earlier switch left, and begins a journal; none on a dry run.
///
/// # Errors
/// When either cannot be done.
pub(super) fn begin(state: Option<State<Entry>>) -> Result<Option<Written>, Error> {
    let Some(state) = state else { return Ok(None) };
    undo(&state)?;
    let journal = state.begin(&Entry::begin())?;
    Ok(Some((state, journal)))
}

/// The programs are held by the process: what there is to undo are HTBs, and the journal.
pub(super) fn undo(state: &State<Entry>) -> Result<Restored, Error> {
    let Some(entries) = state.left()? else { return Ok(Restored::Nothing) };
    if let Some(Entry::Begin { version, .. }) = entries.first()
        && *version > VERSION
    {
        return Err(Error::Failed(format!(
            "error: the journal in {} is of version {version}; this program reads version {VERSION}",
            state.folder().display()
        )));
    }
    let undone = fbqm::undo(state, &entries)?;
    state.forget()?;
    if let Some(undone) = undone {
        return Ok(Restored::Undone(undone));
    }
    let interface = |entry| match entry {
        Entry::Follow { interface } => Some(interface),
        Entry::Begin { .. } | Entry::Shape { .. } => None,
    };
    Ok(Restored::Done(entries.into_iter().filter_map(interface).collect()))
}
