//! A port whose packets may go to another part of the network.

use bandmaster_core::time::Time;

use super::{LOST, MARKS, Port};
use crate::packet::Label;

/// A packet that goes to another part of the network.
#[derive(Clone, Copy)]
pub(crate) struct Left {
    /// The port that it leaves over.
    pub(crate) port: u32,
    label: Label,
    /// When the port took it, when it has been transmitted, and when it arrives.
    pub(crate) accepted: Time,
    pub(crate) departs: Time,
    pub(crate) at: Time,
}

impl Left {
    /// What forwarding needs of it, and whether it arrives at all.
    pub(crate) fn label(&self) -> (Label, bool) {
        (Label { key: self.label.key & !MARKS, ..self.label }, self.label.key & LOST == 0)
    }
}

impl Port {
    /// Packets go to another part of the network: they leave as soon as it is known when they arrive, and what is kept of
    /// them here is how long they occupy the transmitter.
    pub(crate) fn set_crossing(&mut self) {
        self.crosses = true;
        self.rest.crossing_delay = std::mem::take(&mut self.delay);
    }

    /// Packets that have left this part of the network and are still being transmitted, or wait for it.
    pub(crate) fn left_early(&self) -> u64 {
        if self.crosses { u64::from(self.in_transit) } else { 0 }
    }

    /// Forgets packets that have left this part of the network and have been transmitted.
    #[cold]
    #[inline(never)]
    pub(super) fn forget_departed(&mut self, now: Time) {
        while self.in_transit > 0 && self.head.arrive <= now {
            let head = self.head;
            self.in_transit -= 1;
            if self.waiting > self.in_transit {
                self.waiting -= 1;
                self.waiting_bytes -= u64::from(head.label.len);
            }
            if let Some(next) = self.rest.ring.pop_front() {
                self.head = next;
            }
            if head.label.key & LOST == 0 {
                self.delivered += 1;
            } else {
                self.extras().lost += 1;
            }
        }
    }

    /// A packet of port `id` leaves, which is taken now and has been transmitted at `departs`.
    pub(super) fn leaves(&self, id: u32, label: Label, now: Time, departs: Time) -> Left {
        Left { port: id, label, accepted: now, departs, at: departs + self.rest.crossing_delay }
    }
}
