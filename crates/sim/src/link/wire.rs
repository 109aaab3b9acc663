//! A wire on which packets take different times.

use std::collections::BTreeMap;

use bandmaster_core::propagation::Propagation;
use bandmaster_core::time::{Span, Time};

use crate::packet::Label;

/// Packets that have been transmitted and have not arrived.
pub(super) struct Wire {
    propagation: Propagation,
    /// By arrival, then in the order in which they entered.
    packets: BTreeMap<(Time, u64), Label>,
    entered: u64,
}

impl Wire {
    pub(super) fn new(propagation: Propagation) -> Self {
        Self { propagation, packets: BTreeMap::new(), entered: 0 }
    }

    /// The delay that the link states.
    pub(super) fn delay(&self) -> Span {
        self.propagation.delay()
    }

    /// Takes a packet that has been transmitted: when it arrives.
    pub(super) fn enter(&mut self, now: Time, label: Label) -> Time {
        let arrive = self.propagation.arrival(now);
        self.packets.insert((arrive, self.entered), label);
        self.entered += 1;
        arrive
    }

    /// The packet that arrives now; none when a fault has taken it.
    pub(super) fn leave(&mut self, now: Time) -> Option<Label> {
        let entry = self.packets.first_entry().filter(|entry| entry.key().0 == now)?;
        Some(entry.remove())
    }

    /// Packets on the wire.
    pub(super) fn packets(&self) -> u64 {
        self.packets.len() as u64
    }

    /// Takes everything off the wire: the keys of the packets.
    pub(super) fn clear(&mut self) -> Vec<u32> {
        self.propagation.restart();
        std::mem::take(&mut self.packets).into_values().map(|label| label.key).collect()
    }
}
