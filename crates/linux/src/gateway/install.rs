//! Makes a gateway's changes to the machine, and undoes them.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::path::Path;

use bandmaster_core::scheme::er2bc::deployment::Role;

use super::counters::link_header;
use super::journal::{self, Entry, Journal, Made, State};
use super::saved::{Saved, remove_root};
use super::{Error, Loaded, claims, device, plan, rules};
use crate::daemon::state::elsewhere;
use crate::htb::{self, Htb};

/// Our queue discipline.
const OUR_KIND: &str = "htb";
/// Version of the journal.
const VERSION: u32 = 2;

/// What `restore` found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Restored {
    /// No journal: nothing was changed, or it was put back.
    Nothing,
    /// What was put back, in order.
    Done(Vec<String>),
}

/// Puts the gateway's shaper and rules in place; what is not complete is taken back.
pub(super) fn install(state: &State, loaded: &Loaded) -> Result<Option<Htb>, Error> {
    let deployment = &loaded.deployment;
    let interface = &deployment.interface;
    let index = device::index(interface)?;
    let before = device::root_qdisc(index)?;
    let table = rules::table(&deployment.name);
    if rules::exist(&table)? {
        return Err(Error::Missing(format!(
            "error: nftables has a table inet {table} already, and no journal says that it is this gateway's; \
             `nft delete table inet {table}` removes it"
        )));
    }
    let begin = Entry::Begin {
        version: VERSION,
        process: std::process::id(),
        boot: journal::boot(),
        namespace: journal::namespace(),
        interface: interface.clone(),
        index,
        before: before.map(|qdisc| qdisc.kind),
    };
    let mut journal = state.begin(&begin)?;
    match install_all(&mut journal, state, loaded, index) {
        Ok(htb) => Ok(htb),
        Err(error) => match undo(state, Gone::Fine) {
            Ok(_) => Err(error),
            Err(second) => Err(Error::Failed(format!("{error}\n{second}"))),
        },
    }
}

fn install_all(
    journal: &mut Journal,
    state: &State,
    loaded: &Loaded,
    index: i32,
) -> Result<Option<Htb>, Error> {
    let deployment = &loaded.deployment;
    let htb = if deployment.sender.is_some() { Some(shaper(journal, loaded, index, &[])?) } else { None };
    journal.write(&Entry::AddRules { table: rules::table(&deployment.name) })?;
    rules::load(&rules::ruleset(deployment))?;
    if deployment.role != Role::Sender {
        let others = claims::counting(&deployment.interface);
        let merges = device::merges_received(&deployment.interface);
        // The last that counts lets them be merged again, when they were before the first.
        let merged = merges == Some(true) || others.iter().any(claims::Holder::found_merging);
        if let Some(claim) = &state.claim {
            claim.note_merged(merged);
            claim.count();
        }
        match merges {
            Some(true) => {
                journal.write(&Entry::MergingOff)?;
                device::set_merging(&deployment.interface, false)?;
            }
            Some(false) if merged => journal.write(&Entry::MergingOff)?,
            Some(false) => {}
            None => tracing::warn!(
                interface = deployment.interface,
                "cannot tell whether received packets are merged (no ethtool): if they are, they are counted wrongly"
            ),
        }
    }
    Ok(htb)
}

/// Puts the shaper in place, for one of `left` that is still there.
pub(super) fn shaper(
    journal: &mut Journal,
    loaded: &Loaded,
    index: i32,
    left: &[Entry],
) -> Result<Htb, Error> {
    let deployment = &loaded.deployment;
    let Some(sender) = &deployment.sender else {
        return Err(Error::Failed("error: a receiver has no shaper".to_owned()));
    };
    let there = device::root_qdisc(index)?.filter(device::RootQdisc::foreign);
    if there.as_ref().is_some_and(|qdisc| is_ours(qdisc, index, left)) {
        remove_root(index)?;
    } else if let Some(qdisc) = there {
        if !deployment.replace_qdisc {
            let interface = &deployment.interface;
            return Err(Error::Missing(format!(
                "error: interface {interface} has the qdisc {} of somebody else; remove it (tc qdisc del \
                 dev {interface} root), or say replace-qdisc = true",
                named(&qdisc)
            )));
        }
        let saved = Saved::take(index)?;
        if saved.has_filters(index)? {
            let (interface, kind) = (&deployment.interface, qdisc.kind);
            return Err(Error::Missing(format!(
                "error: interface {interface}: the qdisc {kind} of somebody else has filters, which could not be put \
                 back; remove it yourself (tc qdisc del dev {interface} root)"
            )));
        }
        journal.write(&Entry::RemoveQdisc { saved })?;
        remove_root(index)?;
    }
    let made = Made { kind: OUR_KIND.to_owned(), handle: htb::QDISC, index, mark: draw() };
    let mark = made.mark;
    journal.write(&Entry::AddQdisc { made: Some(made) })?;
    let plan = plan::shaper(sender, link_header(&deployment.interface));
    Htb::create_marked(&deployment.interface, &plan, mark)
        .map_err(|e| privileged(&format!("error: {e}"), &e.error))
}

/// Whether one of `entries` proves that the gateway made `qdisc`, which stands at device number `index`.
fn is_ours(qdisc: &device::RootQdisc, index: i32, entries: &[Entry]) -> bool {
    let here = Made { kind: qdisc.kind.clone(), handle: qdisc.handle, index, mark: qdisc.mark };
    entries.iter().any(|entry| matches!(entry, Entry::AddQdisc { made: Some(made) } if *made == here))
}

/// Whether the shaper at the interface is the one that the journal of `state` says was made.
pub(super) fn has_ours(state: &State, interface: &str) -> Result<bool, Error> {
    let index = device::index(interface)?;
    let entries = state.left()?.unwrap_or_default();
    Ok(device::root_qdisc(index)?.is_some_and(|qdisc| is_ours(&qdisc, index, &entries)))
}

/// A number from 1 to 65,535 that nobody foresees.
pub(crate) fn draw() -> u16 {
    let drawn = RandomState::new().build_hasher().finish();
    (drawn % u64::from(u16::MAX)) as u16 + 1
}

pub(crate) fn named(qdisc: &device::RootQdisc) -> String {
    format!("{} {:x}:", qdisc.kind.escape_debug(), qdisc.handle >> 16)
}

fn privileged(message: &str, error: &std::io::Error) -> Error {
    match error.raw_os_error() {
        Some(libc::EPERM) => Error::Missing(format!("{message}; it needs CAP_NET_ADMIN")),
        _ => Error::Failed(message.to_owned()),
    }
}

/// What to do about an interface that has gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Gone {
    /// Its changes went with it: nothing is left to undo.
    Fine,
    /// Somebody wants to know; the journal stays.
    Tell,
}

/// Undoes what the journal says, last change first; then the journal goes.
pub(super) fn undo(state: &State, gone: Gone) -> Result<Restored, Error> {
    let Some(entries) = state.left()? else { return Ok(Restored::Nothing) };
    let Some(Entry::Begin { boot, namespace, interface, index, .. }) = entries.first() else {
        // Cut off before the first line was whole: nothing was changed.
        state.forget()?;
        return Ok(Restored::Nothing);
    };
    if *boot != journal::boot() {
        state.forget()?;
        return Ok(Restored::Done(vec!["the machine has restarted, which undid everything".to_owned()]));
    }
    if *namespace != journal::namespace() {
        return Err(elsewhere("gateway", interface, *namespace, "`restore --force`"));
    }
    let mut undoing = Undoing { entries: &entries, device: find(interface, *index), said: Vec::new() };
    let mut failures = Vec::new();
    for entry in entries.iter().rev() {
        if let Err(error) = undoing.undo(entry) {
            failures.push(error.to_string());
        }
    }
    let mut done = undoing.said;
    if undoing.device.is_none() {
        let what = format!("interface {interface} is gone, and the changes to it with it");
        if gone == Gone::Tell {
            failures.push(format!("error: {what}; `restore --force` forgets the journal"));
        } else {
            done.push(what);
        }
    }
    if failures.is_empty() {
        state.forget()?;
        return Ok(Restored::Done(done));
    }
    // The journal stays, for another try.
    Err(Error::Failed(failures.into_iter().chain(done).collect::<Vec<_>>().join("\n")))
}

/// The device that was number `index` (0: not known) and called `interface`: it may be called something else by now.
fn find(interface: &str, index: i32) -> Option<(i32, String)> {
    if index != 0
        && let Some(name) = device::name(index)
    {
        return Some((index, name));
    }
    let now = device::index(interface).ok()?;
    Some((now, interface.to_owned()))
}

struct Undoing<'a> {
    entries: &'a [Entry],
    device: Option<(i32, String)>,
    /// What was done, and what was left and why.
    said: Vec<String>,
}

impl Undoing<'_> {
    fn say(&mut self, what: String) {
        if !self.said.contains(&what) {
            self.said.push(what);
        }
    }

    fn undo(&mut self, entry: &Entry) -> Result<(), Error> {
        if let Entry::AddRules { table } = entry {
            if rules::exist(table)? {
                rules::remove(table)?;
                self.say(format!("removed table inet {table}"));
            }
            return Ok(());
        }
        let Some((index, interface)) = self.device.clone() else { return Ok(()) };
        match entry {
            Entry::Begin { .. } | Entry::AddRules { .. } => {}
            Entry::MergingOff => {
                if let Some(other) = claims::counting(&interface).first() {
                    self.say(format!("left {interface} not merging received packets, for {other}"));
                } else if device::merges_received(&interface) != Some(true) {
                    device::set_merging(&interface, true)?;
                    self.say(format!("{interface} merges received packets again"));
                }
            }
            Entry::AddQdisc { made } => self.undo_qdisc(made.is_some(), index, &interface)?,
            Entry::RemoveQdisc { saved } => {
                match device::root_qdisc(index)?.filter(device::RootQdisc::foreign) {
                    None => {
                        saved.put_back(index)?;
                        self.say(format!("put the qdisc of {interface} back"));
                    }
                    // It was never taken away.
                    Some(_) if Saved::take(index)? == *saved => {}
                    Some(qdisc) => self.say(format!(
                        "did not put the qdisc of {interface} back: somebody has put the {} there since",
                        named(&qdisc)
                    )),
                }
            }
        }
        Ok(())
    }

    fn undo_qdisc(&mut self, is_proved: bool, index: i32, interface: &str) -> Result<(), Error> {
        let Some(qdisc) = device::root_qdisc(index)?.filter(device::RootQdisc::foreign) else {
            return Ok(());
        };
        if is_ours(&qdisc, index, self.entries) {
            remove_root(index)?;
            self.say(format!("removed the htb from {interface}"));
        } else if is_proved {
            let saved = self.entries.iter().any(|entry| matches!(entry, Entry::RemoveQdisc { .. }));
            if !saved {
                self.say(format!(
                    "left the qdisc {} of {interface}: somebody else has put it there",
                    named(&qdisc)
                ));
            }
        } else if qdisc.kind == OUR_KIND && qdisc.handle == htb::QDISC {
            return Err(Error::Failed(format!(
                "error: the journal of an earlier version does not prove whose the qdisc {} of {interface} is; when \
                 it is the gateway's, remove it (tc qdisc del dev {interface} root), then restore again",
                named(&qdisc)
            )));
        }
        Ok(())
    }
}

/// Gives the machine back what it had before the gateway whose state is in `folder`. With `force`, a journal of an interface
/// or a network namespace that is gone is forgotten.
///
/// # Errors
/// When a gateway runs with that folder, or something cannot be put back; the journal then stays.
pub fn restore(folder: &Path, force: bool) -> Result<Restored, Error> {
    if journal::read(folder)?.is_none() && !folder.exists() {
        return Ok(Restored::Nothing);
    }
    let state = State::hold(folder)?;
    if force
        && let Some(namespace) = other_namespace(&state)?.filter(|number| !journal::namespace_lives(*number))
    {
        state.forget()?;
        return Ok(Restored::Done(vec![format!(
            "forgot the journal of network namespace number {namespace}; nothing was touched"
        )]));
    }
    undo(&state, if force { Gone::Fine } else { Gone::Tell })
}

/// The number of the network namespace of the changes, when it is another than this one.
fn other_namespace(state: &State) -> Result<Option<u64>, Error> {
    let entries = state.left()?.unwrap_or_default();
    Ok(match entries.first() {
        Some(Entry::Begin { namespace, .. }) if *namespace != journal::namespace() => Some(*namespace),
        _ => None,
    })
}
