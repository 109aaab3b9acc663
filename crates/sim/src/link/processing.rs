//! The random time that a host takes for a packet before it hands it to its port.

use bandmaster_core::rng::Stream;
use bandmaster_core::time::{Span, Time};

use super::{MARKS, Port, Queue};
use crate::events::{Event, EventQueue};
use crate::packet::Slab;

pub(super) struct Jitter {
    /// Upper bound as a share of a packet's time on the slowest link of its way.
    share: f64,
    /// The same in nanoseconds per byte, 32 binary places.
    most_per_byte: u64,
    pub(super) last: Time,
    stream: Stream,
}

impl Jitter {
    /// When the host has processed a packet of `len` bytes that it began at `now`; packets keep their order.
    #[inline]
    pub(super) fn ready(&mut self, now: Time, len: u32) -> Time {
        // A slow link takes seconds for a packet: more than 64 bits with their binary places.
        let most = (u128::from(len) * u128::from(self.most_per_byte)) >> 32;
        let delay = self.stream.below(most as u64 + 1);
        self.last = (now + Span::from_nanos(delay)).max(self.last);
        self.last
    }
}

impl Port {
    /// Adds the random processing delay of a host that sends through this port.
    pub(crate) fn set_jitter(&mut self, share: f64, stream: Stream) {
        if share > 0.0 {
            self.has_jitter = true;
            self.rest.jitter = Some(Jitter { share, most_per_byte: 0, last: Time::ZERO, stream });
            self.leads_over(self.nanos_per_byte);
        }
    }

    /// A way that begins here leads over a link that takes so long for a byte.
    pub(crate) fn leads_over(&mut self, nanos_per_byte: u64) {
        if let Some(jitter) = &mut self.rest.jitter {
            jitter.most_per_byte = jitter.most_per_byte.max((nanos_per_byte as f64 * jitter.share) as u64);
        }
    }

    /// When the host at this port has processed a packet of `len` bytes.
    #[inline]
    pub(super) fn processed_at(&mut self, now: Time, len: u32) -> Time {
        self.rest.jitter.as_mut().map_or(now, |jitter| jitter.ready(now, len))
    }

    /// The host at this port has processed a packet; its discipline gets it.
    pub(crate) fn finish_processing(&mut self, id: u32, now: Time, slab: &mut Slab, events: &mut EventQueue) {
        let Queue::Ordered(ordered) = &mut self.queue else { return };
        let Some((_, label)) = ordered.processing.pop_front() else { return };
        if let Some((next, _)) = ordered.processing.front() {
            events.push(*next, Event::Processed(id));
        }
        if let Some(extras) = self.extras.as_mut().filter(|extras| extras.is_down) {
            extras.faulted += 1;
            return slab.remove(label.key & !MARKS);
        }
        self.enqueue_ordered(id, now, label, slab, events);
    }
}
