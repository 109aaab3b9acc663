//! A port whose link goes down and comes up.

use bandmaster_core::time::Time;

use super::{MARKS, Port, Queue, Transit};
use crate::packet::{PROBE, Slab};

impl Port {
    /// The link goes down: what waits, is being transmitted or is on the wire is lost, and so is what comes until
    /// [`Port::restore`]. Returns the keys of probes whose departure an event is still to tell of; the caller frees them.
    #[cold]
    pub(crate) fn fail(&mut self, now: Time, slab: &mut Slab) -> Vec<u32> {
        if self.plain != 0 {
            self.settle();
        }
        if self.crosses {
            self.forget_departed(now);
        }
        self.plain = 0;
        let path = self.extras.as_ref().and_then(|extras| extras.path.as_ref());
        let tells = path.is_some_and(|path| path.tells);
        let (mut gone, mut untold) = (Vec::new(), Vec::new());
        let (mut unsent, mut ahead) = (0, 0);
        let head = (self.in_transit > 0).then_some(self.head);
        for Transit { start, label, .. } in head.into_iter().chain(self.rest.ring.drain(..)) {
            if tells && start >= now && label.flow == PROBE {
                untold.push(label.key & !MARKS);
            } else {
                gone.push(label.key);
            }
            if start > now {
                unsent += u64::from(label.len);
                ahead += start.since(now).as_nanos();
            }
        }
        let left = gone.len();
        (self.in_transit, self.waiting, self.waiting_bytes) = (0, 0, 0);
        self.free_at = self.free_at.min(now);
        self.fraction = 0;
        if let Some(wire) = self.extras.as_mut().and_then(|extras| extras.wire.as_mut()) {
            gone.extend(wire.clear());
        }
        if let Queue::Ordered(ordered) = &mut self.queue {
            ordered.qdisc.purge(now, &mut ordered.dropped);
            gone.extend(ordered.dropped.drain(..).map(|pkt| pkt.key));
            ordered.wake = Time::MAX;
        }
        let extras = self.extras();
        extras.is_down = true;
        extras.faulted += (gone.len() + untold.len()) as u64;
        // What these packets would have done was noted when they came.
        extras.planned = extras.planned.saturating_sub(unsent);
        if let Some(watch) = &mut extras.watch {
            watch.waited = watch.waited.saturating_sub(ahead);
        }
        if let Some(capture) = &mut extras.capture {
            capture.retain(|(start, _)| *start <= now);
        }
        // What has left this part of the network is somebody else's, but for what an ordering discipline still held.
        let held = if self.crosses { gone.split_off(left) } else { gone };
        held.into_iter().for_each(|key| slab.remove(key & !MARKS));
        self.watch_level(now);
        untold
    }

    /// Packets that had left this part of the network were on the wire when the link went down.
    pub(crate) fn lose_delivered(&mut self, packets: u64) {
        self.delivered = self.delivered.saturating_sub(packets);
        self.extras().faulted += packets;
    }

    /// The link is up again, with nothing on it.
    #[cold]
    pub(crate) fn restore(&mut self) {
        self.extras().is_down = false;
    }
}
