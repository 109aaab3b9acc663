//! Counts the flows of a port, for BAS's notifications.

use std::collections::BTreeMap;

use super::{Header, PortProgram};
use crate::control::PortFlows;
use crate::id::PortId;
use crate::time::Time;

/// Counts flows seen since a reader's last reading, and flows open (after their SYN, before their FIN or RST). Reading
/// takes nothing from other readers.
#[derive(Clone, Debug, Default)]
pub struct FlowCounter {
    /// Number of the current interval between two readings, by whomever.
    interval: u32,
    open: u32,
    flows: Vec<Entry>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    /// Interval in which the flow was seen last; 0: never.
    interval: u32,
    open: bool,
}

/// Per port: how far one reader has read the counters.
#[derive(Clone, Debug, Default)]
pub struct Reader {
    read: BTreeMap<PortId, u32>,
}

impl FlowCounter {
    /// A counter in its first interval.
    pub fn new() -> Self {
        Self { interval: 1, ..Self::default() }
    }

    /// Flows seen since `reader` read `port`'s counter, which this is, and flows open now.
    pub fn read(&mut self, port: PortId, reader: &mut Reader) -> PortFlows {
        let read = reader.read.entry(port).or_default();
        let seen = self.flows.iter().filter(|entry| entry.interval > *read).count() as u32;
        *read = self.interval;
        self.interval += 1;
        PortFlows { seen, open: self.open }
    }
}

impl PortProgram for FlowCounter {
    fn on_packet(&mut self, _now: Time, header: &Header) {
        // Acknowledgements take no share of the link that is worth counting.
        if header.reverse {
            return;
        }
        let index = header.flow.index();
        if index >= self.flows.len() {
            self.flows.resize(index + 1, Entry::default());
        }
        let entry = &mut self.flows[index];
        entry.interval = self.interval;
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
            counter.on_packet(Time::ZERO, &Header { flow: FlowId(flow), reverse: false, syn, fin });
        };
        packet(3, true, false);
        packet(3, false, false);
        packet(1, true, false);
        packet(1, false, true);
        let (port, mut one, mut other) = (PortId(0), Reader::default(), Reader::default());
        assert_eq!(counter.read(port, &mut one), PortFlows { seen: 2, open: 1 });
        assert_eq!(counter.read(port, &mut one), PortFlows { seen: 0, open: 1 });
        let both = counter.read(port, &mut other);
        assert_eq!(both, PortFlows { seen: 2, open: 1 }, "what one has read the other reads too");
        counter.on_packet(Time::ZERO, &Header { flow: FlowId(1), reverse: false, syn: false, fin: false });
        let back = Header { flow: FlowId(7), reverse: true, syn: true, fin: false };
        counter.on_packet(Time::ZERO, &back);
        assert_eq!((counter.read(port, &mut other).seen, counter.read(port, &mut one).seen), (1, 1));
    }
}
