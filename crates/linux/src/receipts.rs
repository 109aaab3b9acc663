//! Tracks what receivers received from the packets that pass the forwarder, for receivers that cannot be asked.

use std::sync::{Mutex, MutexGuard, PoisonError};

use bandmaster_core::time::Time;
use etherparse::{IpNumber, Ipv4HeaderSlice, TcpHeaderSlice};

use crate::traffic::FlowState;

/// What receivers have got of all flows; empty where the receivers can be asked.
#[derive(Default)]
pub(crate) struct Receipts {
    flows: Vec<(Watched, Mutex<Receipt>)>,
}

/// What to look at of a flow.
pub(crate) struct Watched {
    /// Ports where acknowledgements leave the receiver, and where data come to it.
    pub(crate) leave: u32,
    pub(crate) come: u32,
    /// The TCP port that its connection has at one end, and others of the same hosts have not.
    pub(crate) port: u16,
    /// Bytes of the IP packet of a datagram; none: TCP.
    pub(crate) datagram: Option<u64>,
    /// Bytes that its connection carries before the payload.
    pub(crate) preamble: u64,
    /// Payload bytes after which it is complete.
    pub(crate) size: Option<u64>,
}

#[derive(Default)]
struct Receipt {
    /// The first acknowledgement's number, and the highest.
    numbers: Option<(u64, u64)>,
    state: FlowState,
}

impl Receipts {
    pub(crate) fn new(flows: impl Iterator<Item = Watched>) -> Self {
        Self { flows: flows.map(|watched| (watched, Mutex::default())).collect() }
    }

    /// What the receiver of `flow` has got: in order with TCP, as its last acknowledgement says.
    pub(crate) fn of(&self, flow: usize) -> FlowState {
        self.flows.get(flow).map(|(_, receipt)| lock(receipt).state).unwrap_or_default()
    }

    /// A packet of the receiver goes into `port`.
    pub(crate) fn note_sent(&self, port: usize, flow: usize, bytes: &[u8], now: Time) {
        let Some((watched, receipt)) = self.flows.get(flow) else { return };
        if watched.leave as usize != port || watched.datagram.is_some() {
            return;
        }
        let Some(number) = acknowledged(bytes, watched.port) else { return };
        let mut receipt = lock(receipt);
        let number = u64::from(number);
        let (first, highest) = receipt.numbers.unwrap_or((number, number));
        // Numbers are of 32 bits, and old ones come late.
        let ahead = (number as u32).wrapping_sub(highest as u32);
        let highest = if ahead < 1 << 31 { highest + u64::from(ahead) } else { highest };
        receipt.numbers = Some((first, highest));
        let received = (highest - first).saturating_sub(watched.preamble);
        receipt.state.received = received;
        if watched.size.is_some_and(|size| received >= size) {
            receipt.state.finished_at.get_or_insert(now);
        }
    }

    /// A packet reached the receiver over `port`.
    pub(crate) fn note_come(&self, port: usize, flow: usize, bytes: &[u8]) {
        let Some((watched, receipt)) = self.flows.get(flow) else { return };
        if watched.come as usize != port || watched.datagram != Some(bytes.len() as u64) {
            return;
        }
        if Ipv4HeaderSlice::from_slice(bytes).is_ok_and(|ip| ip.protocol() == IpNumber::UDP) {
            lock(receipt).state.datagrams += 1;
        }
    }
}

fn lock(receipt: &Mutex<Receipt>) -> MutexGuard<'_, Receipt> {
    receipt.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The acknowledgement number of a packet of the connection that has `port` at one end.
fn acknowledged(bytes: &[u8], port: u16) -> Option<u32> {
    let ip = Ipv4HeaderSlice::from_slice(bytes).ok().filter(|ip| ip.protocol() == IpNumber::TCP)?;
    let tcp = TcpHeaderSlice::from_slice(&bytes[ip.slice().len()..]).ok()?;
    let is_own = tcp.source_port() == port || tcp.destination_port() == port;
    // A reset need not carry one.
    (is_own && tcp.ack() && !tcp.rst()).then(|| tcp.acknowledgment_number())
}

#[cfg(test)]
mod tests {
    use etherparse::PacketBuilder;

    use super::*;

    fn acknowledgement(from: u16, to: u16, number: u32) -> Vec<u8> {
        let builder =
            PacketBuilder::ipv4([10, 0, 0, 1], [10, 128, 0, 1], 64).tcp(from, to, 1, 1000).ack(number);
        let mut bytes = vec![0; builder.size(0)];
        builder.write_to_slice(&mut bytes, &[]).expect("room");
        bytes
    }

    fn datagram(payload: usize) -> Vec<u8> {
        let builder = PacketBuilder::ipv4([10, 128, 0, 1], [10, 0, 0, 1], 64).udp(7, 5);
        let mut bytes = vec![0; builder.size(payload)];
        builder.write_to_slice(&mut bytes, &vec![0; payload]).expect("room");
        bytes
    }

    fn watched(datagram: Option<u64>) -> Watched {
        Watched { leave: 3, come: 2, port: 7, datagram, preamble: 37, size: Some(5000) }
    }

    #[test]
    fn acknowledgements_say_what_has_come() {
        let receipts = Receipts::new([watched(None)].into_iter());
        let at = |ms: u64| Time::from_nanos(ms * 1_000_000);
        let first = u32::MAX - 1000;
        // Of the connection: from 5 to 7. From 5 to 9 is another.
        for (ms, port, to, number, received) in [
            (0, 3, 7, first, 0),
            (1, 3, 7, first + 37, 0),
            (2, 3, 9, first + 900, 0),
            (3, 1, 7, first + 900, 0),
            (4, 3, 7, first + 537, 500),
            (5, 3, 7, first.wrapping_add(3037), 3000),
            (6, 3, 7, first + 937, 3000),
            (7, 3, 7, first.wrapping_add(5037), 5000),
            (8, 3, 7, first.wrapping_add(5137), 5100),
        ] {
            receipts.note_sent(port, 0, &acknowledgement(5, to, number), at(ms));
            assert_eq!(receipts.of(0).received, received, "after {ms} ms");
            assert_eq!(receipts.of(0).finished_at, (ms >= 7).then_some(at(7)), "after {ms} ms");
        }
        receipts.note_come(2, 0, &datagram(100));
        assert_eq!((receipts.of(0).datagrams, receipts.of(1)), (0, FlowState::default()));
    }

    #[test]
    fn datagrams_of_the_size_are_counted_where_they_come() {
        let receipts = Receipts::new([watched(Some(128))].into_iter());
        for (port, payload) in [(2, 100), (2, 4), (0, 100), (2, 100)] {
            receipts.note_come(port, 0, &datagram(payload));
        }
        receipts.note_come(2, 0, &[&acknowledgement(5, 7, 1)[..], &[0; 88]].concat());
        assert_eq!(receipts.of(0).datagrams, 2);
    }
}
