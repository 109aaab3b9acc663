//! The kernel's shaper and rules: sets rates, restores what was removed, and applies a new file.

use bandmaster_core::scheme::er2bc::deployment::Deployment;
use bandmaster_core::time::Span;
use tracing::{info, warn};

use super::super::install::Gone;
use super::super::{Error, Loaded};
use super::{Machine, Received, device, install, rules, status};

/// Between two tries to put a shaper back.
const RETURN: Span = Span::from_millis(900);

impl Machine {
    /// Puts the wanted rates in force.
    pub(super) fn apply(&mut self) {
        let Some(rates) = &self.wanted else { return };
        if let Some(status) = &mut status::lock(&self.shared).sender {
            status.in_force = rates.root.1.bits_per_sec();
            for (class, (rate, ceil)) in status.classes.iter_mut().zip(&rates.classes) {
                (class.rate, class.ceil) = (rate.bits_per_sec(), ceil.bits_per_sec());
            }
        }
        if self.state.is_none() {
            let classes: Vec<String> = rates.classes.iter().map(|(rate, _)| rate.to_string()).collect();
            info!(root = %rates.root.1, classes = classes.join(" "), "would set");
        }
        if let Some(Err(e)) = self.htb.as_mut().map(|htb| rates.apply(htb)) {
            self.lose(&e.to_string());
        }
    }

    /// The shaper is gone: somebody removed it, or the interface.
    pub(super) fn lose(&mut self, why: &str) {
        self.htb = None;
        self.note_shaper_gone(why);
    }

    /// Puts the shaper back when the interface is there again. When that fails, it is tried again a while later: roles are
    /// woken much more often.
    pub(in crate::gateway) fn return_interface(&mut self) {
        let Some(state) = self.state.as_ref().filter(|_| self.htb.is_none()) else { return };
        let now = self.clock.now();
        if self.loaded.deployment.sender.is_none() || now < self.next_return {
            return;
        }
        let again = device::index(&self.loaded.deployment.interface).and_then(|index| {
            let left = state.left()?.unwrap_or_default();
            install::shaper(&mut state.resume()?, &self.loaded, index, &left)
        });
        match again {
            Ok(htb) => {
                self.htb = Some(htb);
                self.begin_sums_anew();
                self.content();
                self.note_shaper_back();
                self.apply();
            }
            Err(e) => {
                self.next_return = now + RETURN;
                self.note_shaper_gone(&e.to_string());
            }
        }
    }

    /// Replaces what the deployment sets in the kernel; false when that failed and `before` is in force again.
    pub(in crate::gateway) fn rebuild(&mut self, before: Loaded) -> Result<bool, Error> {
        if self.state.is_some() && has_same_queues(&before.deployment, &self.loaded.deployment) {
            return Ok(self.rebuild_rules(before));
        }
        let Some(state) = &self.state else { return Ok(true) };
        self.htb = None;
        install::undo(state, Gone::Fine)?;
        let installed = install::install(state, &self.loaded);
        let taken = installed.is_ok();
        match installed {
            Ok(htb) => self.htb = htb,
            Err(error) => {
                warn!(%error, "keeps the file before");
                status::lock(&self.shared).reload_error = Some(error.to_string());
                self.loaded = before;
                self.htb = install::install(state, &self.loaded)?;
            }
        }
        self.begin_sums_anew();
        self.received = Received::new(rules::table(&self.loaded.deployment.name));
        self.forget_rules();
        if !taken {
            self.apply();
            return Ok(false);
        }
        self.tell_order();
        Ok(true)
    }

    /// Puts other rules in the place of the table's, all of them or none: packets wait where they are, and nothing else
    /// changes. False when `before` stays in force.
    fn rebuild_rules(&mut self, before: Loaded) -> bool {
        let table = rules::table(&self.loaded.deployment.name);
        if let Err(error) = rules::replace(&table, &rules::ruleset(&self.loaded.deployment)) {
            warn!(%error, "keeps the file before");
            status::lock(&self.shared).reload_error = Some(error.to_string());
            self.loaded = before;
            return false;
        }
        self.received = Received::new(table);
        self.sent.forget();
        self.forget_rules();
        self.tell_order();
        true
    }

    /// The programs in the kernel count by the deployment as it is now.
    fn tell_order(&mut self) {
        let told = self.order.as_mut().map(|order| order.set(&self.loaded.deployment));
        if let Some(Err(why)) = told {
            self.lose_order(&why);
        }
    }
}

/// Whether the shapers of two deployments are the same but for their rates.
fn has_same_queues(a: &Deployment, b: &Deployment) -> bool {
    let queues = |deployment: &Deployment| -> Vec<u32> {
        deployment.sender.iter().flat_map(|sender| &sender.classes).map(|class| class.queue).collect()
    };
    queues(a) == queues(b) && a.replace_qdisc == b.replace_qdisc
}
