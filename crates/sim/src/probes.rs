//! Datagrams that schemes send on the data path.

use std::collections::BTreeMap;

use bandmaster_core::control::{NETWORK_CONTROL, Passed};
use bandmaster_core::id::NodeId;
use bandmaster_core::runtime::faults::{PathEnd, ProbeFaults};
use bandmaster_core::units::UDP_HEADERS;

use crate::net::Net;
use crate::packet::{PROBE, Packet};
use crate::routes::route_ports;

/// Probes on their way.
pub(crate) struct Probes {
    /// First hop of the way between nodes that exchange probes.
    routes: BTreeMap<(NodeId, NodeId), u32>,
    /// By key of their packet; those of lost packets stay until the key is used again.
    on_way: BTreeMap<u32, Probe>,
    /// Bytes of IP of those sent.
    pub(crate) bytes: u64,
    pub(crate) faults: ProbeFaults,
}

/// A scheme's datagram on the data path.
pub(crate) struct Probe {
    pub(crate) from: NodeId,
    pub(crate) to: NodeId,
    pub(crate) payload: Vec<u8>,
    /// Never arrives.
    pub(crate) lost: bool,
}

impl Probes {
    pub(crate) fn new(routes: BTreeMap<(NodeId, NodeId), u32>, faults: ProbeFaults) -> Self {
        Self { routes, on_way: BTreeMap::new(), bytes: 0, faults }
    }

    /// Ports of the way of probes between two nodes; none when there is no way.
    pub(crate) fn way<'t>(&self, from: NodeId, to: NodeId, table: &'t [u32]) -> &'t [u32] {
        self.routes.get(&(from, to)).map_or(&[], |route| route_ports(table, *route))
    }

    /// Lets probes take ways that `find` finds, given both nodes and the place of their way now.
    pub(crate) fn reroute(&mut self, mut find: impl FnMut(NodeId, NodeId, u32) -> u32) {
        for ((from, to), place) in &mut self.routes {
            *place = find(*from, *to, *place);
        }
    }

    /// Restarts the counters of the data path at `node`; `passed` as in [`ProbeFaults::restart`].
    pub(crate) fn restart(&mut self, node: NodeId, table: &[u32], passed: impl Fn(usize, PathEnd) -> Passed) {
        let ways = self.routes.iter().map(|((from, to), route)| (*from, *to, route_ports(table, *route)));
        self.faults.restart(node, ways, passed);
    }

    /// Puts a probe on the data path; false when there is no way.
    pub(crate) fn send(
        &mut self,
        from: NodeId,
        to: NodeId,
        payload: Vec<u8>,
        overhead: u32,
        net: &mut Net,
    ) -> bool {
        let Some(&hop) = self.routes.get(&(from, to)) else { return false };
        let lost = self.faults.lose();
        let bytes = payload.len() as u32;
        let packet = Packet {
            hop,
            flow: PROBE,
            len: bytes + UDP_HEADERS + overhead,
            payload: bytes as u16,
            tos: NETWORK_CONTROL << 2,
            ..Packet::default()
        };
        let label = net.slab.insert(packet);
        self.bytes += u64::from(bytes + UDP_HEADERS);
        self.on_way.insert(label.key, Probe { from, to, payload, lost });
        net.forward(label);
        true
    }

    /// A probe has come from another part of the network; its packet has `key` here.
    pub(crate) fn put(&mut self, key: u32, probe: Probe) {
        self.on_way.insert(key, probe);
    }

    /// The probe whose packet has `key`.
    pub(crate) fn get(&self, key: u32) -> Option<&Probe> {
        self.on_way.get(&key)
    }

    /// Takes the probe out whose packet has `key`.
    pub(crate) fn take(&mut self, key: u32) -> Option<Probe> {
        self.on_way.remove(&key)
    }
}
