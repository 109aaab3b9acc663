//! Runs the roles of schemes: observations in, actions out, messages over the modelled control plane.

use std::collections::BTreeMap;

use bandmaster_core::control::{Gauges, Message, Outbox, Passed};
use bandmaster_core::id::NodeId;
use bandmaster_core::rng::Stream;
use bandmaster_core::scenario::ControlPlane;
use bandmaster_core::scheme::Role;
use bandmaster_core::time::{Span, Time};
use bandmaster_core::units::UDP_HEADERS;

use crate::events::{Event, EventQueue};
use crate::net::Net;
use crate::packet::{PROBE, Packet};

/// DSCP CS6 (RFC 4594): network control.
const NETWORK_CONTROL: u8 = 48;
/// Bytes of IP, UDP and message header that each message costs on the control plane.
const MESSAGE_HEADER: u64 = 44;

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
    plane: ControlPlane,
    stream: Stream,
    /// Messages on their way, by number; delivered ones are taken out.
    messages: Vec<Option<(NodeId, Message)>>,
    free: Vec<u32>,
    pub(crate) bytes_sent: u64,
    pub(crate) outbox: Outbox,
    /// First hop of the way between nodes that exchange probes.
    probe_routes: BTreeMap<(NodeId, NodeId), u32>,
    /// Probes on their way, by key of their packet; those of lost packets stay until the key is used again.
    probes: BTreeMap<u32, Probe>,
    /// Share of probes that are lost on their way, and which.
    probe_loss: (f64, Stream),
    /// What had passed a point of the path when its node last restarted.
    zero: BTreeMap<PathPoint, Passed>,
    pub(crate) gauges: Gauges,
}

/// Where data are counted for probes: at which end of which port's wire.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PathPoint {
    /// Where they leave.
    Start(u32),
    /// Where they arrive.
    End(u32),
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
        plane: ControlPlane,
        stream: Stream,
        probe_routes: BTreeMap<(NodeId, NodeId), u32>,
        probe_loss: (f64, Stream),
    ) -> Self {
        let mut at = vec![Vec::new(); roles.iter().map(|role| role.node.index() + 1).max().unwrap_or(0)];
        for (position, role) in (0..).zip(&roles) {
            at[role.node.index()].push(position);
        }
        let running = roles.into_iter().map(|role| RunningRole { role, wake_at: None }).collect();
        Self {
            running,
            at,
            plane,
            stream,
            messages: Vec::new(),
            free: Vec::new(),
            bytes_sent: 0,
            outbox: Outbox::default(),
            probe_routes,
            probes: BTreeMap::new(),
            probe_loss,
            zero: BTreeMap::new(),
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

    /// Counts at `point` begin anew after `passed`.
    pub(crate) fn set_zero(&mut self, point: PathPoint, passed: Passed) {
        self.zero.insert(point, passed);
    }

    /// What has passed `point` since its node began, of `passed` in all. Probes that were on their way at a restart
    /// tell nothing.
    pub(crate) fn since_restart(&self, point: PathPoint, passed: Passed) -> Passed {
        let zero = self.zero.get(&point).copied().unwrap_or_default();
        Passed {
            packets: passed.packets.saturating_sub(zero.packets),
            bytes: passed.bytes.saturating_sub(zero.bytes),
        }
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
        let delay = if from == to {
            Span::ZERO
        } else {
            self.bytes_sent += match &message {
                Message::Encoded(payload) => u64::from(UDP_HEADERS) + payload.len() as u64,
                _ => MESSAGE_HEADER + size(&message),
            };
            if self.plane.loss > 0.0 && self.stream.chance(self.plane.loss) {
                return;
            }
            self.plane.delay
        };
        let number = match self.free.pop() {
            Some(number) => {
                self.messages[number as usize] = Some((to, message));
                number
            }
            None => {
                self.messages.push(Some((to, message)));
                (self.messages.len() - 1) as u32
            }
        };
        events.push(now + delay, Event::Deliver(number));
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
        let (share, stream) = &mut self.probe_loss;
        probe.lost = *share > 0.0 && stream.chance(*share);
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
        self.bytes_sent += u64::from(payload + UDP_HEADERS);
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

    /// Takes message `number` out.
    pub(crate) fn receive(&mut self, number: u32) -> Option<(NodeId, Message)> {
        let message = self.messages[number as usize].take();
        self.free.push(number);
        message
    }
}

/// Bytes of a message's entries, with 32-bit identifiers and rates.
fn size(message: &Message) -> u64 {
    match message {
        Message::LinkReport { links } => 16 * links.len() as u64,
        Message::FlowReport { flows, .. } => 16 * flows.len() as u64,
        Message::FlowStarted { .. } | Message::FlowEnded { .. } => 4,
        Message::Allocation { shares } => 8 * shares.len() as u64,
        Message::Encoded(_) => 0,
    }
}
