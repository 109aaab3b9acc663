//! Data sent and received, as the kernel counts them.

use bandmaster_core::control::Passed;
use tracing::{info, warn};

use super::super::Error;
use super::super::counters;
use super::super::order;
use super::{EPOCH, MARGIN, Machine, device, rules, status};
use crate::kernel::NoProgram;

impl Machine {
    /// From now on without the program in the kernel.
    pub(super) fn lose_order(&mut self, why: &NoProgram) {
        let counting = order::how(self.loaded.deployment.role, Err(why));
        warn!(counting, "no longer counts in the order of packets");
        status::lock(&self.shared).counting = counting;
        self.order = None;
        // Other counters, which began at another time: the scheme must not take the difference for data.
        self.has_lost_order = true;
        if let Err(e) = self.next_epoch() {
            self.complain(&e.to_string());
        }
    }

    /// The counters were replaced: the roles must start again.
    pub(in crate::gateway) const fn has_lost_order(&self) -> bool {
        self.has_lost_order
    }

    /// Numbers go on above those that were used.
    pub(in crate::gateway) fn next_epoch(&mut self) -> Result<(), Error> {
        self.epoch = self.epoch.wrapping_add(1);
        self.keep_epoch().unwrap_or(Ok(()))
    }

    pub(super) fn keep_epoch(&self) -> Option<Result<(), Error>> {
        self.state.as_ref().map(|state| state.keep(EPOCH, &self.epoch.to_string()))
    }

    /// Continues on an interface that came back; true when the roles must start again.
    pub(in crate::gateway) fn follow_interface(&mut self) -> bool {
        let Some(order) = &mut self.order else { return false };
        match order.follow(&self.loaded.deployment) {
            Ok(false) => {}
            Ok(true) => info!("counts at the interface that came back"),
            // It may come back.
            Err(_) if device::index(&self.loaded.deployment.interface).is_err() => {}
            Err(why) => self.lose_order(&why),
        }
        self.has_lost_order
    }

    /// The shaper is new.
    pub(super) fn begin_sums_anew(&mut self) {
        self.sent.begin_anew();
        if let Some(order) = &mut self.order {
            order.begin_anew();
        }
    }

    /// Data sent so far; none while the counters cannot be read.
    pub(super) fn count_sent(&mut self) -> Option<Passed> {
        let Some(htb) = &mut self.htb else {
            let interface = &self.loaded.deployment.interface;
            return self.state.is_none().then(|| counters::interface(interface, "tx"));
        };
        match htb.stats() {
            Ok(stats) => Some(self.sent.read(stats)),
            Err(e) => {
                self.lose(&e.to_string());
                None
            }
        }
    }

    /// Data sent so far, read between questions: nothing else is done for it.
    pub(super) fn look_at_sent(&mut self) -> Option<Passed> {
        match &mut self.htb {
            // One reading may fail. If the class is gone, the next question or look around detects it.
            Some(htb) => htb.stats().ok().map(|stats| self.sent.read(stats)),
            None => self.count_sent(),
        }
    }

    pub(super) fn count_received(&mut self) -> Option<Passed> {
        if self.state.is_none() {
            return Some(counters::interface(&self.loaded.deployment.interface, "rx"));
        }
        if let Some(order) = &self.order {
            // It came by another interface, or was thrown out before it was read.
            return order.received();
        }
        let alone = status::lock(&self.shared).refused.total() == self.refused;
        self.counted_at = Some(self.clock.now() + rules::ANSWERING + MARGIN);
        match self.received.before_question(alone) {
            Ok(passed) => {
                self.content();
                Some(passed)
            }
            Err(e) => {
                // Somebody has flushed the rules: they come back, and the counter begins at nothing.
                self.mend_rules(&e.to_string());
                None
            }
        }
    }

    /// Data received so far, read between questions: nothing else is done for it.
    pub(super) fn look_at_received(&mut self) -> Option<Passed> {
        match &self.order {
            _ if self.state.is_none() => Some(counters::interface(&self.loaded.deployment.interface, "rx")),
            Some(order) => order.received(),
            // If the nft rules were deleted, the next probe detects it.
            None => self.received.look().ok(),
        }
    }
}
