//! Probes of schemes, live: real datagrams, stamped by the forwarder.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};

use bandmaster_core::control::NETWORK_CONTROL;
use bandmaster_core::id::NodeId;
use bandmaster_core::runtime::Refusal;
use bandmaster_core::runtime::faults::ProbeFaults;
use bandmaster_core::scenario::Scenario;
use bandmaster_core::scheme::Role;
use bandmaster_core::units::UDP_HEADERS;
use socket2::SockRef;

use crate::Error;
use crate::address;
use crate::forwarder::Passage;
use crate::netns::Netns;

/// UDP port of every role.
const PORT: u16 = 5002;
/// Stamps of probes that never came, beyond which the oldest is forgotten.
const MOST_PENDING: usize = 1024;

/// Probes on their way.
pub(crate) struct Probes {
    sockets: BTreeMap<NodeId, UdpSocket>,
    /// Stamps of probes that the forwarder has handed over, in order; the probes come by the sockets.
    pending: Vec<Passage>,
    /// Bytes of IP of the probes sent.
    pub(crate) bytes: u64,
    pub(crate) faults: ProbeFaults,
}

/// A received probe, with the stamp that the forwarder gave it.
pub(crate) struct Arrival {
    pub(crate) from: NodeId,
    pub(crate) to: NodeId,
    pub(crate) stamp: Passage,
}

impl Probes {
    /// Opens a socket at every node with a role that sends or receives probes.
    pub(crate) fn open(
        roles: &[Role],
        scenario: &Scenario,
        trial: u32,
        nodes: &[Netns],
    ) -> Result<Self, Error> {
        let mut sockets = BTreeMap::new();
        let ends = roles.iter().flat_map(|role| role.probes().flat_map(|to| [role.place.node, to]));
        for node in ends {
            if sockets.contains_key(&node) {
                continue;
            }
            let netns = &nodes[node.index()];
            let socket = netns.enter(|| {
                let open = || -> io::Result<UdpSocket> {
                    let socket = UdpSocket::bind((address::node(node), PORT))?;
                    socket.set_nonblocking(true)?;
                    SockRef::from(&socket).set_tos_v4(u32::from(NETWORK_CONTROL) << 2)?;
                    Ok(socket)
                };
                open().map_err(|error| {
                    Error::os(format!("open the socket of the role in {}", netns.name()), error)
                })
            })?;
            sockets.insert(node, socket);
        }
        let faults = scenario.probe_faults(trial, None);
        Ok(Self { sockets, pending: Vec::new(), bytes: 0, faults })
    }

    /// Readable when a probe has arrived.
    pub(crate) fn sockets(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.sockets.values().map(AsFd::as_fd)
    }

    /// Sends a probe.
    pub(crate) fn send(&mut self, from: NodeId, to: NodeId, payload: &[u8]) -> Result<(), Refusal> {
        let socket = self.sockets.get(&from).ok_or(Refusal::Unknown)?;
        match socket.send_to(payload, (address::node(to), PORT)) {
            Ok(length) => {
                self.bytes += length as u64 + u64::from(UDP_HEADERS);
                Ok(())
            }
            // A full device loses probes as it loses other packets.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(Refusal::Busy),
            Err(_) => Err(Refusal::Failed("the kernel does not send the probe")),
        }
    }

    /// Keeps the stamp of a probe until the probe itself arrives.
    pub(crate) fn expect(&mut self, stamp: Passage) {
        if self.pending.len() == MOST_PENDING {
            self.pending.remove(0);
        }
        self.pending.push(stamp);
    }

    /// The next received probe.
    pub(crate) fn receive(&mut self) -> Option<Arrival> {
        let mut buffer = [0; 2048];
        for (&to, socket) in &self.sockets {
            while let Ok((length, SocketAddr::V4(source))) = socket.recv_from(&mut buffer) {
                let payload = &buffer[..length];
                let from = node_of(source);
                let is_it = |p: &Passage| (Some(p.from), p.to) == (from, to) && p.payload == payload;
                if let Some(at) = self.pending.iter().position(is_it) {
                    let stamp = self.pending.remove(at);
                    if self.faults.lose() {
                        continue;
                    }
                    return Some(Arrival { from: stamp.from, to, stamp });
                }
            }
        }
        None
    }
}

fn node_of(source: SocketAddrV4) -> Option<NodeId> {
    let first = address::node(NodeId(0)).to_bits();
    let number = source.ip().to_bits().checked_sub(first)?;
    (address::node(NodeId(number)) == Ipv4Addr::from_bits(source.ip().to_bits())).then_some(NodeId(number))
}
