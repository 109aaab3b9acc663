//! The roles of schemes, live: their probes are real datagrams.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};

use bandmaster_core::control::faults::ProbeFaults;
use bandmaster_core::control::post::Post;
use bandmaster_core::control::{Action, Gauges, NETWORK_CONTROL, Observation, Outbox};
use bandmaster_core::id::NodeId;
use bandmaster_core::scenario::Scenario;
use bandmaster_core::scheme::Role;
use bandmaster_core::time::Time;
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

/// All roles of all schemes.
pub(crate) struct Roles {
    running: Vec<Running>,
    sockets: BTreeMap<NodeId, UdpSocket>,
    /// Stamps of probes that the forwarder has handed over, in order; the probes come by the sockets.
    pending: Vec<Passage>,
    /// Bytes of IP of the probes sent.
    probe_bytes: u64,
    /// Messages on their way, by the lab's clock.
    pub(crate) post: Post,
    pub(crate) faults: ProbeFaults,
}

struct Running {
    role: Role,
    wake_at: Option<Time>,
}

/// A probe that has come, with the stamp that the forwarder gave it.
pub(crate) struct Arrival {
    pub(crate) from: NodeId,
    pub(crate) to: NodeId,
    pub(crate) stamp: Passage,
}

impl Roles {
    /// Opens a socket at the node of each role that sends or receives probes.
    pub(crate) fn open(
        roles: Vec<Role>,
        scenario: &Scenario,
        trial: u32,
        nodes: &[Netns],
    ) -> Result<Self, Error> {
        let mut sockets = BTreeMap::new();
        let ends = roles.iter().flat_map(|role| role.probes.iter().flat_map(|&to| [role.node, to]));
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
        let running = roles.into_iter().map(|role| Running { role, wake_at: None }).collect();
        Ok(Self {
            running,
            sockets,
            pending: Vec::new(),
            probe_bytes: 0,
            post: Post::new(scenario, trial),
            faults: ProbeFaults::new(scenario, trial),
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.running.len()
    }

    /// Bytes of all messages and probes.
    pub(crate) fn bytes_sent(&self) -> u64 {
        self.post.bytes_sent() + self.probe_bytes
    }

    /// Puts fresh roles in the place of those at `node`, and forgets when these wanted to be woken.
    pub(crate) fn restart(&mut self, node: NodeId, fresh: Vec<Role>) {
        for (running, role) in self.running.iter_mut().zip(fresh) {
            if role.node == node {
                *running = Running { role, wake_at: None };
            }
        }
    }

    /// Readable when a probe has come.
    pub(crate) fn sockets(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.sockets.values().map(AsFd::as_fd)
    }

    pub(crate) fn node(&self, index: usize) -> NodeId {
        self.running[index].role.node
    }

    pub(crate) fn wants_ports(&self, index: usize) -> bool {
        self.running[index].role.wants_ports
    }

    /// When role `index` asks to be woken, when that has changed.
    pub(crate) fn plan_wakeup(&mut self, index: usize, now: Time) -> Option<Time> {
        let entry = &mut self.running[index];
        let wanted = entry.role.controller.wakeup().map(|wakeup| wakeup.at.max(now));
        if wanted == entry.wake_at {
            return None;
        }
        entry.wake_at = wanted;
        wanted
    }

    /// True when `at` is the wake-up that role `index` waits for; it waits for none afterwards.
    pub(crate) fn takes_wakeup(&mut self, index: usize, at: Time) -> bool {
        self.running[index].wake_at.take_if(|wanted| *wanted == at).is_some()
    }

    /// Tells role `index`; what it wants done.
    pub(crate) fn call(&mut self, index: usize, now: Time, observation: &Observation<'_>) -> Vec<Action> {
        let mut outbox = Outbox::default();
        self.running[index].role.controller.on(now, observation, &mut outbox);
        outbox.drain().collect()
    }

    pub(crate) fn gauges(&self, index: usize, gauges: &mut Gauges) {
        self.running[index].role.controller.gauges(gauges);
    }

    /// Sends a probe.
    pub(crate) fn send_probe(&mut self, from: NodeId, to: NodeId, payload: &[u8]) -> Result<(), Error> {
        let Some(socket) = self.sockets.get(&from) else {
            return Err(Error::Missing(format!("a role at node {} sends probes and declared none", from.0)));
        };
        self.probe_bytes += payload.len() as u64 + u64::from(UDP_HEADERS);
        match socket.send_to(payload, (address::node(to), PORT)) {
            // A full device loses probes as it loses other packets.
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => {
                Err(Error::os(format!("send a probe to node {}", to.0), error))
            }
            _ => Ok(()),
        }
    }

    /// Keeps the stamp of a probe until the probe itself has come.
    pub(crate) fn expect(&mut self, stamp: Passage) {
        if self.pending.len() == MOST_PENDING {
            self.pending.remove(0);
        }
        self.pending.push(stamp);
    }

    /// The next probe that has come.
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
