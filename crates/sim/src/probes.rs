//! Datagrams of schemes on the data path, and the messages between roles beside it.

use std::collections::BTreeMap;

use bandmaster_core::control::NETWORK_CONTROL;
use bandmaster_core::id::NodeId;
use bandmaster_core::runtime::faults::{PathPoint, ProbeFaults};
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

    /// First and last point of the way of probes between two nodes.
    pub(crate) fn ends(&self, from: NodeId, to: NodeId, table: &[u32]) -> Option<[PathPoint; 2]> {
        let ports = route_ports(table, *self.routes.get(&(from, to))?);
        Some([PathPoint::Start(*ports.first()?), PathPoint::End(*ports.last()?)])
    }

    /// Points of all ways of probes at `node`.
    pub(crate) fn points_at(&self, node: NodeId, table: &[u32]) -> Vec<PathPoint> {
        let of = |(from, to): &(NodeId, NodeId)| {
            let ends = self.ends(*from, *to, table).into_iter().flatten();
            let here = [*from == node, *to == node];
            ends.zip(here).filter_map(|(point, here)| here.then_some(point)).collect::<Vec<_>>()
        };
        self.routes.keys().flat_map(of).collect()
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

    /// The probe whose packet has `key`.
    pub(crate) fn get(&self, key: u32) -> Option<&Probe> {
        self.on_way.get(&key)
    }

    /// Takes the probe out whose packet has `key`.
    pub(crate) fn take(&mut self, key: u32) -> Option<Probe> {
        self.on_way.remove(&key)
    }
}
