//! What is noted of the packets that pass a port.

use bandmaster_core::control::Passed;
use bandmaster_core::measure::delays::SojournIntervals;
use bandmaster_core::measure::sojourn::Sojourns;
use bandmaster_core::time::Time;

use super::{LOST, MARKS};
use crate::events::{Event, EventQueue};
use crate::packet::{PROBE, Packet};

/// Counts data packets in the order in which they leave a port.
#[derive(Default)]
pub(crate) struct PathCounter {
    pub(super) left: Passed,
    /// Those that the wire does not lose.
    pub(super) arriving: Passed,
    /// Bytes that the link adds to an IP packet.
    overhead: u32,
    /// A role at the transmitting node sends probes here and is notified when they leave.
    pub(crate) tells: bool,
}

impl PathCounter {
    pub(crate) fn new(overhead: u32) -> Self {
        Self { overhead, ..Self::default() }
    }

    /// The packet with `key` begins transmission at `start`.
    pub(super) fn pass(&mut self, start: Time, key: u32, packet: &mut Packet, events: &mut EventQueue) {
        if packet.flow == PROBE {
            let is_first = packet.stamp(self.left, self.arriving);
            if is_first && self.tells {
                events.push(start, Event::ProbeLeft(key & !MARKS));
            }
            return;
        }
        let bytes = u64::from(packet.len - self.overhead);
        let count = |passed: &mut Passed| {
            passed.packets += 1;
            passed.bytes += bytes;
        };
        count(&mut self.left);
        if key & LOST == 0 {
            count(&mut self.arriving);
        }
    }
}

/// Time average and maximum of a queue.
#[derive(Clone, Copy, Default)]
pub(crate) struct QueueWatch {
    /// Packet-nanoseconds of waiting, known at enqueue where packets leave in order of arrival.
    pub(super) waited: u64,
    pub(super) reported: u64,
    pub(crate) max: u32,
    /// Elsewhere: packets that wait, and since when.
    pub(super) level: u32,
    since: Time,
}

impl QueueWatch {
    pub(super) fn set_level(&mut self, now: Time, packets: u32) {
        self.waited += u64::from(self.level) * now.since(self.since).as_nanos();
        self.since = now;
        self.level = packets;
        self.max = self.max.max(packets);
    }
}

/// How long packets stay in the queue.
pub(crate) struct SojournWatch {
    pub(crate) times: Sojourns,
    /// By sampling interval, where percentiles are asked for.
    pub(crate) intervals: Option<SojournIntervals>,
    /// Over the run, of a port that percentiles name.
    pub(crate) of_port: Option<Sojourns>,
    /// By key: when the packet arrived at the queue, on a port whose discipline picks.
    pub(super) arrived: Vec<Time>,
}

impl SojournWatch {
    pub(crate) fn new(times: Sojourns) -> Self {
        Self { times, intervals: None, of_port: None, arrived: Vec::new() }
    }

    /// A packet of `flow` that arrived at `arrived` begins transmission at `start`.
    pub(super) fn note(&mut self, flow: u32, arrived: Time, start: Time) {
        self.times.note(arrived, start);
        if let Some(intervals) = &mut self.intervals {
            intervals.note(flow, arrived, start);
        }
        if let Some(times) = &mut self.of_port {
            times.note(arrived, start);
        }
    }

    /// The packet with `key` arrives.
    pub(super) fn arrive(&mut self, key: u32, now: Time) {
        let key = key as usize;
        if key >= self.arrived.len() {
            self.arrived.resize(key + 1, Time::ZERO);
        }
        self.arrived[key] = now;
    }
}
