//! Addresses of the lab: one per flow at each end, and one per node for messages between roles.
//!
//! A packet's addresses alone identify its flow and direction, so each flow can take the route that the simulator gives
//! it.

use std::net::Ipv4Addr;

use bandmaster_core::id::{FlowId, NodeId};
use bandmaster_core::workload::{RECEIVERS, SENDERS};

/// Flows that have addresses: 23 bits.
pub(crate) const MOST_FLOWS: usize = (1 << 23) - 1;

/// What a packet is, by its addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Of a flow, on the way to its receiver.
    Data(FlowId),
    /// Of a flow, on the way back.
    Reverse(FlowId),
    /// From a role at one node to a role at another.
    Probe {
        /// Sender.
        from: NodeId,
        /// Receiver.
        to: NodeId,
    },
    /// None of the lab's.
    Stray,
}

/// Where a flow ends: 10.0.0.1 is flow 0's.
pub(crate) fn receiver(flow: usize) -> Ipv4Addr {
    Ipv4Addr::from_bits(RECEIVERS | (flow as u32 + 1))
}

/// Where a flow begins: 10.128.0.1 is flow 0's.
pub(crate) fn sender(flow: usize) -> Ipv4Addr {
    Ipv4Addr::from_bits(SENDERS | (flow as u32 + 1))
}

/// A node's: 172.16.0.1 is node 0's.
pub(crate) fn node(node: NodeId) -> Ipv4Addr {
    Ipv4Addr::from_bits(0xac10_0000 | (node.0 + 1))
}

/// What a packet between these addresses is.
pub(crate) fn kind(source: [u8; 4], destination: [u8; 4]) -> Kind {
    let (source, destination) = (u32::from_be_bytes(source), u32::from_be_bytes(destination));
    let flow = |address: u32| FlowId((address & 0x007f_ffff).wrapping_sub(1));
    let as_node = |address: u32| NodeId((address & 0x000f_ffff).wrapping_sub(1));
    match destination >> 23 {
        0x14 => Kind::Data(flow(destination)),
        0x15 => Kind::Reverse(flow(destination)),
        _ if destination >> 20 == 0xac1 && source >> 20 == 0xac1 => {
            Kind::Probe { from: as_node(source), to: as_node(destination) }
        }
        _ => Kind::Stray,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_say_what_a_packet_is() {
        for flow in [0, 1, 255, 256, MOST_FLOWS - 1] {
            let (from, to) = (sender(flow).octets(), receiver(flow).octets());
            assert_eq!(kind(from, to), Kind::Data(FlowId(flow as u32)));
            assert_eq!(kind(to, from), Kind::Reverse(FlowId(flow as u32)));
        }
        assert_eq!(receiver(0), Ipv4Addr::new(10, 0, 0, 1));
        assert_eq!(sender(0), Ipv4Addr::new(10, 128, 0, 1));
        let (a, b) = (NodeId(0), NodeId(300));
        assert_eq!(kind(node(a).octets(), node(b).octets()), Kind::Probe { from: a, to: b });
        assert_eq!(kind([127, 0, 0, 1], [224, 0, 0, 22]), Kind::Stray);
    }
}
