//! Runs the roles of schemes: observations in, actions out, messages over the modelled control plane.

use std::collections::BTreeMap;

use bandmaster_core::control::faults::ProbeFaults;
use bandmaster_core::control::post::Post;
use bandmaster_core::control::{Gauges, Message, NETWORK_CONTROL, Outbox};
use bandmaster_core::id::NodeId;
use bandmaster_core::scheme::Role;
use bandmaster_core::time::Time;
use bandmaster_core::units::UDP_HEADERS;

use crate::events::{Event, EventQueue};
use crate::net::Net;
use crate::packet::{PROBE, Packet};

/// A role and its pending wake-up.
pub(crate) struct RunningRole {
    pub(crate) role: Role,
    pub(crate) wake_at: Option<Time>,
}

/// All roles of all schemes.
pub(crate) struct Roles {
    pub(crate) running: Vec<RunningRole>,
    /// By node: positions in `running`.
    at: Vec<Vec<u32>>,
    pub(crate) post: Post,
    /// Bytes of IP of the probes sent.
    probe_bytes: u64,
    pub(crate) outbox: Outbox,
    /// First hop of the way between nodes that exchange probes.
    probe_routes: BTreeMap<(NodeId, NodeId), u32>,
    /// Probes on their way, by key of their packet; those of lost packets stay until the key is used again.
    probes: BTreeMap<u32, Probe>,
    pub(crate) faults: ProbeFaults,
    pub(crate) gauges: Gauges,
}

/// A scheme's datagram on the data path.
pub(crate) struct Probe {
    pub(crate) from: NodeId,
    pub(crate) to: NodeId,
    pub(crate) payload: Vec<u8>,
    /// Never arrives.
    pub(crate) lost: bool,
}

impl Roles {
    pub(crate) fn new(
        roles: Vec<Role>,
        post: Post,
        probe_routes: BTreeMap<(NodeId, NodeId), u32>,
        faults: ProbeFaults,
    ) -> Self {
        let mut at = vec![Vec::new(); roles.iter().map(|role| role.node.index() + 1).max().unwrap_or(0)];
        for (position, role) in (0..).zip(&roles) {
            at[role.node.index()].push(position);
        }
        let running = roles.into_iter().map(|role| RunningRole { role, wake_at: None }).collect();
        Self {
            running,
            at,
            post,
            probe_bytes: 0,
            outbox: Outbox::default(),
            probe_routes,
            probes: BTreeMap::new(),
            faults,
            gauges: Gauges::default(),
        }
    }

    /// The way of probes between two nodes.
    pub(crate) fn probe_route(&self, from: NodeId, to: NodeId) -> Option<u32> {
        self.probe_routes.get(&(from, to)).copied()
    }

    /// Ends and ways of all probes.
    pub(crate) fn probe_routes(&self) -> impl Iterator<Item = ((NodeId, NodeId), u32)> {
        self.probe_routes.iter().map(|(ends, route)| (*ends, *route))
    }

    /// Puts fresh roles in the place of those at `node`, and forgets when these wanted to be woken.
    pub(crate) fn restart(&mut self, node: NodeId, fresh: Vec<Role>) {
        for (running, role) in self.running.iter_mut().zip(fresh) {
            if role.node == node {
                *running = RunningRole { role, wake_at: None };
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.running.is_empty()
    }

    /// Bytes of all messages and probes.
    pub(crate) fn bytes_sent(&self) -> u64 {
        self.post.bytes_sent() + self.probe_bytes
    }

    /// The role at `node` that is at `place` among those there.
    #[inline]
    pub(crate) fn at(&self, node: NodeId, place: usize) -> Option<usize> {
        self.at.get(node.index())?.get(place).map(|position| *position as usize)
    }

    /// Schedules the wake-up that role `index` asks for.
    pub(crate) fn plan_wakeup(&mut self, index: usize, now: Time, events: &mut EventQueue) {
        let entry = &mut self.running[index];
        let wanted = entry.role.controller.wakeup().map(|wakeup| wakeup.at.max(now));
        if wanted != entry.wake_at {
            entry.wake_at = wanted;
            if let Some(at) = wanted {
                events.push(at, Event::Wakeup(index as u32));
            }
        }
    }

    /// Puts a message on its way from `from`.
    pub(crate) fn send(
        &mut self,
        from: NodeId,
        to: NodeId,
        message: Message,
        now: Time,
        events: &mut EventQueue,
    ) {
        if let Some((delay, number)) = self.post.send(from, to, message) {
            events.push(now + delay, Event::Deliver(number));
        }
    }

    /// Puts a probe on the data path.
    ///
    /// # Panics
    /// When the role did not declare that it sends probes there.
    pub(crate) fn send_probe(&mut self, mut probe: Probe, overhead: u32, net: &mut Net) {
        let Probe { from, to, .. } = probe;
        let Some(&hop) = self.probe_routes.get(&(from, to)) else {
            panic!("a role at node {} sends a probe to node {} and did not declare it", from.0, to.0)
        };
        probe.lost = self.faults.lose();
        let payload = probe.payload.len() as u32;
        let len = payload + UDP_HEADERS + overhead;
        let packet = Packet {
            hop,
            flow: PROBE,
            len,
            payload: payload as u16,
            tos: NETWORK_CONTROL << 2,
            ..Packet::default()
        };
        let label = net.slab.insert(packet);
        self.probe_bytes += u64::from(payload + UDP_HEADERS);
        self.probes.insert(label.key, probe);
        net.forward(label);
    }

    /// The probe whose packet has `key`.
    pub(crate) fn probe(&self, key: u32) -> Option<&Probe> {
        self.probes.get(&key)
    }

    /// Takes the probe out whose packet has `key`.
    pub(crate) fn take_probe(&mut self, key: u32) -> Option<Probe> {
        self.probes.remove(&key)
    }
}
