//! Looks around once a second: whether what the gateway has put in place still stands, and what is wrong beside it. What it
//! can mend it mends.

use super::super::faults::Fault;
use super::{Machine, Received, device, install, rules, status};

/// What was seen last.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// The kernel's number of its rules, when the table was as it should be.
    generation: Option<u32>,
    /// The table as it should be.
    table: Option<String>,
}

impl Machine {
    /// Looks for what is wrong, and mends what can be mended.
    pub(super) fn look_around(&mut self) {
        self.look_at_interface();
        if self.state.is_some() {
            self.look_at_rules();
            self.look_at_shaper();
        }
        let now = self.clock.now();
        status::lock(&self.shared).end_mended(now);
    }

    pub(super) fn begin_fault(&self, kind: Fault, cause: impl Into<String>) {
        status::lock(&self.shared).begin_fault(self.clock.now(), kind, cause.into());
    }

    pub(super) fn mend_fault(&self, kind: Fault) {
        status::lock(&self.shared).mend_fault(self.clock.now(), kind);
    }

    pub(super) fn end_fault(&self, kind: Fault) {
        status::lock(&self.shared).end_fault(self.clock.now(), kind);
    }

    // ------------------------------------------------------------------------------------------------ interface

    fn look_at_interface(&mut self) {
        let interface = &self.loaded.deployment.interface;
        if device::index(interface).is_err() {
            self.begin_fault(Fault::NoInterface, self.no_interface());
        } else {
            self.end_fault(Fault::NoInterface);
        }
    }

    fn no_interface(&self) -> String {
        let interface = &self.loaded.deployment.interface;
        format!("there is no interface {interface}; when it comes back, the gateway goes on by itself")
    }

    // ------------------------------------------------------------------------------------------------ shaper

    /// Whether the shaper stands as it was made, and is the one that this gateway made.
    fn look_at_shaper(&mut self) {
        let interface = &self.loaded.deployment.interface;
        let (Some(htb), Some(state)) = (&mut self.htb, &self.state) else { return };
        // What cannot be asked is told when it is used.
        if install::has_ours(state, interface) == Ok(false) {
            let why = format!("the shaper of {interface} is not the one that this gateway made");
            return self.lose(&why);
        }
        match htb.difference() {
            Ok(None) => {}
            Ok(Some(why)) => self.lose(&why),
            Err(e) => self.lose(&e.to_string()),
        }
        self.return_interface();
    }

    /// The shaper is not there; the interface may have gone with it.
    pub(super) fn note_shaper_gone(&self, why: &str) {
        let interface = &self.loaded.deployment.interface;
        if device::index(interface).is_err() {
            return self.begin_fault(Fault::NoInterface, self.no_interface());
        }
        let why = why.trim_start_matches("error: ");
        self.begin_fault(
            Fault::ShaperGone,
            format!(
                "{why}. Somebody has removed or changed the queue discipline of {interface}; the shaper is put back as soon \
                 as the kernel takes it. Find what changes it (`tc monitor`)"
            ),
        );
    }

    pub(super) fn note_shaper_back(&self) {
        self.mend_fault(Fault::ShaperGone);
    }

    // ------------------------------------------------------------------------------------------------ rules

    /// The kernel tells by one number whether any rule was changed; only then the table is read.
    fn look_at_rules(&mut self) {
        let generation = rules::generation().ok();
        if generation.is_some() && generation == self.watch.generation {
            return;
        }
        match (rules::standing(&self.table()), &self.watch.table) {
            (Ok(Some(table)), None) => self.watch.table = Some(table),
            (Ok(Some(table)), Some(good)) if table == *good => {}
            (Ok(Some(_)), Some(_)) => return self.mend_rules("rules of it were changed"),
            (Ok(None), _) => return self.mend_rules("it is not there"),
            (Err(e), _) => return self.complain(&e.to_string()),
        }
        self.watch.generation = generation;
    }

    /// The table is not as it should be: it comes back.
    pub(super) fn mend_rules(&mut self, why: &str) {
        let why = why.trim_start_matches("error: ");
        let table = format!("table inet {}", self.table());
        self.begin_fault(
            Fault::ClassifierGone,
            format!(
                "nftables, {table}: {why}. Somebody has flushed or changed it (`nft flush ruleset`, a firewall that \
                 loads its own); it is loaded again. Let that program leave {table} alone"
            ),
        );
        match rules::replace(&self.table(), &rules::ruleset(&self.loaded.deployment)) {
            Ok(()) => {
                self.received = Received::new(self.table());
                self.forget_rules();
                self.mend_fault(Fault::ClassifierGone);
            }
            Err(e) => self.complain(&e.to_string()),
        }
    }

    /// Name of the gateway's table.
    fn table(&self) -> String {
        rules::table(&self.loaded.deployment.name)
    }

    /// The table was made anew.
    pub(super) fn forget_rules(&mut self) {
        (self.watch.generation, self.watch.table) = (None, rules::standing(&self.table()).ok().flatten());
    }
}
