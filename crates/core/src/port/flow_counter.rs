//! Counts the flows of a port, for BAS's notifications.

use super::{Header, PortProgram};
use crate::time::Time;

/// Counts flows seen in the current interval, and flows open (after their SYN, before their FIN or RST).
#[derive(Clone, Debug, Default)]
pub struct FlowCounter {
    interval: u32,
    seen: u32,
    open: u32,
    flows: Vec<Entry>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    /// Interval in which the flow was seen last; 0: never.
    interval: u32,
    open: bool,
}

impl FlowCounter {
    /// A counter in its first interval.
    pub fn new() -> Self {
        Self { interval: 1, ..Self::default() }
    }

    /// Ends the interval: flows seen in it, and flows open at its end.
    pub fn take(&mut self) -> (u32, u32) {
        let seen = self.seen;
        self.seen = 0;
        self.interval += 1;
        (seen, self.open)
    }
}

impl PortProgram for FlowCounter {
    fn on_packet(&mut self, _now: Time, header: &Header) {
        let index = header.flow.index();
        if index >= self.flows.len() {
            self.flows.resize(index + 1, Entry::default());
        }
        let entry = &mut self.flows[index];
        if entry.interval != self.interval {
            entry.interval = self.interval;
            self.seen += 1;
        }
        if header.fin && entry.open {
            entry.open = false;
            self.open -= 1;
        } else if header.syn && !entry.open {
            entry.open = true;
            self.open += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::FlowId;

    #[test]
    fn counts_distinct_and_open_flows() {
        let mut counter = FlowCounter::new();
        let mut packet = |flow, syn, fin| {
            counter.on_packet(Time::ZERO, &Header { flow: FlowId(flow), syn, fin });
        };
        packet(3, true, false);
        packet(3, false, false);
        packet(1, true, false);
        packet(1, false, true);
        assert_eq!(counter.take(), (2, 1));
        assert_eq!(counter.take(), (0, 1));
    }
}
