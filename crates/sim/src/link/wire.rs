//! A wire on which packets take different times.

use std::collections::BTreeMap;

use bandmaster_core::propagation::Propagation;
use bandmaster_core::time::{Span, Time};

use super::{LOST, MARKS, Port};
use crate::events::{Event, EventQueue};
use crate::packet::{Label, Slab};

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

impl Port {
    /// The wire loses a packet, or gives it a delay of its own.
    #[cold]
    pub(super) fn end_transmission(
        &mut self,
        id: u32,
        now: Time,
        label: Label,
        slab: &mut Slab,
        events: &mut EventQueue,
    ) {
        let key = label.key & !MARKS;
        let extras = self.extras();
        match &mut extras.wire {
            Some(wire) if label.key & LOST == 0 => {
                let arrive = wire.enter(now, Label { key, ..label });
                events.push(arrive, Event::Landing(id));
            }
            _ => {
                extras.lost += 1;
                slab.remove(key);
            }
        }
    }

    /// Takes a packet that arrives now over a wire whose packets take different times; `None` when a fault took it before.
    #[cold]
    pub(crate) fn land(&mut self, now: Time) -> Option<Label> {
        let label = self.extras.as_mut()?.wire.as_mut()?.leave(now)?;
        self.delivered += 1;
        Some(label)
    }
}
