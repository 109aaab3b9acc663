//! Changes the machine, and gives it back what it had.

use std::path::Path;

use bandmaster_core::scheme::er2bc::deployment::Role;

use super::counters::link_header;
use super::journal::{self, Entry, Journal, State};
use super::saved::{Saved, remove_root};
use super::{Error, Loaded, device, plan, rules};
use crate::htb::Htb;

/// Handle of our queue discipline.
const OURS: u32 = 1 << 16;
const OUR_KIND: &str = "htb";

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
    if rules::exist()? {
        let table = rules::TABLE;
        return Err(Error::Missing(format!(
            "error: nftables has a table inet {table} already, and no journal says that it is this gateway's; \
             `nft delete table inet {table}` removes it"
        )));
    }
    let begin = Entry::Begin {
        version: 1,
        process: std::process::id(),
        boot: journal::boot(),
        namespace: journal::namespace(),
        interface: interface.clone(),
        before: before.map(|qdisc| qdisc.kind),
    };
    let mut journal = state.begin(&begin)?;
    match install_all(&mut journal, loaded, index) {
        Ok(htb) => Ok(htb),
        Err(error) => match undo(state) {
            Ok(_) => Err(error),
            Err(second) => Err(Error::Failed(format!("{error}\n{second}"))),
        },
    }
}

fn install_all(journal: &mut Journal, loaded: &Loaded, index: i32) -> Result<Option<Htb>, Error> {
    let deployment = &loaded.deployment;
    let htb = if deployment.sender.is_some() { Some(shaper(journal, loaded, index, false)?) } else { None };
    journal.write(&Entry::AddRules)?;
    rules::load(&rules::ruleset(deployment))?;
    if deployment.role != Role::Sender {
        match device::merges_received(&deployment.interface) {
            Some(true) => {
                journal.write(&Entry::MergingOff)?;
                device::set_merging(&deployment.interface, false)?;
            }
            Some(false) => {}
            None => tracing::warn!(
                interface = deployment.interface,
                "cannot tell whether received packets are merged (no ethtool): if they are, they are counted wrongly"
            ),
        }
    }
    Ok(htb)
}

/// Puts the shaper in place; `again` at a device that came back, or whose shaper is not to be trusted.
pub(super) fn shaper(journal: &mut Journal, loaded: &Loaded, index: i32, again: bool) -> Result<Htb, Error> {
    let deployment = &loaded.deployment;
    let Some(sender) = &deployment.sender else {
        return Err(Error::Failed("error: a receiver has no shaper".to_owned()));
    };
    let there = device::root_qdisc(index)?.filter(device::RootQdisc::foreign);
    if again && there.as_ref().is_some_and(is_ours) {
        remove_root(index)?;
    } else if let Some(qdisc) = there {
        if !deployment.replace_qdisc {
            let (interface, kind) = (&deployment.interface, qdisc.kind);
            return Err(Error::Missing(format!(
                "error: interface {interface} has the qdisc {kind} {:x}: of somebody else; remove it (tc qdisc del \
                 dev {interface} root), or say replace-qdisc = true",
                qdisc.handle >> 16
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
    journal.write(&Entry::AddQdisc)?;
    Htb::create(&deployment.interface, &plan::shaper(sender, link_header(&deployment.interface)))
        .map_err(|e| privileged(&format!("error: {e}"), &e.error))
}

fn is_ours(qdisc: &device::RootQdisc) -> bool {
    qdisc.kind == OUR_KIND && qdisc.handle == OURS
}

fn privileged(message: &str, error: &std::io::Error) -> Error {
    match error.raw_os_error() {
        Some(libc::EPERM) => Error::Missing(format!("{message}; it needs CAP_NET_ADMIN")),
        _ => Error::Failed(message.to_owned()),
    }
}

/// Undoes what the journal says, last change first; then the journal goes.
pub(super) fn undo(state: &State) -> Result<Restored, Error> {
    let Some(entries) = state.left()? else { return Ok(Restored::Nothing) };
    let Some(Entry::Begin { boot, namespace, interface, .. }) = entries.first() else {
        // Cut off before the first line was whole: nothing was changed.
        state.forget()?;
        return Ok(Restored::Nothing);
    };
    if *boot != journal::boot() {
        state.forget()?;
        return Ok(Restored::Done(vec!["the machine has restarted, which undid everything".to_owned()]));
    }
    if *namespace != journal::namespace() {
        return Err(Error::Missing(format!(
            "error: the changes were made to {interface} in another network namespace (number {namespace}); \
             restore there"
        )));
    }
    let mut done = Vec::new();
    let mut failures = Vec::new();
    for entry in entries.iter().rev() {
        match undo_entry(entry, interface) {
            Ok(Some(what)) => done.push(what),
            Ok(None) => {}
            Err(error) => failures.push(error.to_string()),
        }
    }
    if failures.is_empty() {
        state.forget()?;
        return Ok(Restored::Done(done));
    }
    // The journal stays, for another try.
    Err(Error::Failed(failures.join("\n")))
}

fn undo_entry(entry: &Entry, interface: &str) -> Result<Option<String>, Error> {
    let index = device::index(interface).ok();
    match (entry, index) {
        (Entry::Begin { .. }, _) => Ok(None),
        (Entry::AddRules, _) => {
            if !rules::exist()? {
                return Ok(None);
            }
            rules::remove()?;
            Ok(Some(format!("removed table inet {}", rules::TABLE)))
        }
        (_, None) => Ok(Some(format!("interface {interface} is gone, and what it had with it"))),
        (Entry::MergingOff, Some(_)) => {
            if device::merges_received(interface) == Some(true) {
                return Ok(None);
            }
            device::set_merging(interface, true)?;
            Ok(Some(format!("{interface} merges received packets again")))
        }
        (Entry::AddQdisc, Some(index)) => {
            let ours = device::root_qdisc(index)?.filter(is_ours);
            if ours.is_none() {
                return Ok(None);
            }
            remove_root(index)?;
            Ok(Some(format!("removed the htb from {interface}")))
        }
        (Entry::RemoveQdisc { saved }, Some(index)) => {
            if device::root_qdisc(index)?.is_some_and(|qdisc| qdisc.foreign()) {
                return Ok(None);
            }
            saved.put_back(index)?;
            Ok(Some(format!("put the qdisc of {interface} back")))
        }
    }
}

/// Gives the machine back what it had before the gateway whose state is in `folder`.
///
/// # Errors
/// When a gateway runs with that folder, or something cannot be put back; the journal then stays.
pub fn restore(folder: &Path) -> Result<Restored, Error> {
    if journal::read(folder)?.is_none() && !folder.exists() {
        return Ok(Restored::Nothing);
    }
    undo(&State::hold(folder)?)
}
