//! Runs the roles of schemes: observations in, actions out. One [`Runner`] for the simulator, the lab and daemons; each
//! is a [`Host`].

pub mod record;

use core::fmt;

use crate::control::{
    Action, FlowStats, Gauges, Message, Observation, Outbox, PortStats, Reason, SegmentCounts, Subject,
};
use crate::id::{FlowId, NodeId, PortId};
use crate::port::flow_counter::Reader;
use crate::scheme::{Act, Role};
use crate::time::Time;
use crate::tuning::Tuning;
use crate::units::{Bytes, Rate};

/// Why a host did not do what a role wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// No host of this kind can do that.
    Unable,
    /// There is no such flow, port, class or way, or no more.
    Unknown,
    /// Not now: a device or queue is full, the peer is away.
    Busy,
    /// The system forbids it or failed.
    Failed(Reason),
}

/// The part of the world that roles see and change: a whole simulated network, or one real node.
///
/// Nothing here tells the time: calls carry it. What a host cannot do it need not implement; what it fails to do it
/// answers with a [`Refusal`], which comes back to the role as [`Observation::Refused`].
pub trait Host {
    /// What it can do. A runner refuses roles that need more, before anything runs.
    fn acts(&self) -> &'static [Act];

    /// Call [`Runner::wake`] with these at `at`.
    fn wake(&mut self, role: usize, at: Time);

    /// Ports of `node`, in port order. `reader` holds up to where this role has read counters that all roles share.
    fn port_stats(&mut self, _now: Time, _node: NodeId, _reader: &mut Reader) -> Vec<PortStats> {
        Vec::new()
    }

    /// Open flows that end at `node`, in flow order.
    fn flow_stats(&mut self, _now: Time, _node: NodeId) -> Vec<FlowStats> {
        Vec::new()
    }

    /// What the TCP of `node` has sent.
    fn segments(&mut self, _node: NodeId) -> SegmentCounts {
        SegmentCounts::default()
    }

    /// Role number `role` shows these values from now on.
    fn show(&mut self, _role: usize, _now: Time, _gauges: &Gauges) {}

    /// Puts a message on its way.
    fn send(&mut self, _now: Time, _from: NodeId, _to: NodeId, _message: Message) -> Result<(), Refusal> {
        Err(Refusal::Unable)
    }

    /// Sends a datagram behind the data.
    fn probe(&mut self, _now: Time, _from: NodeId, _to: NodeId, _payload: Vec<u8>) -> Result<(), Refusal> {
        Err(Refusal::Unable)
    }

    /// Bounds the window of `flow` from `node`'s end of it.
    fn set_window(&mut self, _node: NodeId, _flow: FlowId, _window: Bytes) -> Result<(), Refusal> {
        Err(Refusal::Unable)
    }

    /// Paces `flow` from `node`'s end of it.
    fn set_rate(&mut self, _node: NodeId, _flow: FlowId, _rate: Rate, _window: Bytes) -> Result<(), Refusal> {
        Err(Refusal::Unable)
    }

    /// Changes a class of the shaper at `port`.
    fn set_class(
        &mut self,
        _port: PortId,
        _class: Option<usize>,
        _rate: Rate,
        _ceil: Rate,
    ) -> Result<(), Refusal> {
        Err(Refusal::Unable)
    }

    /// Changes the TCP of `node` for flows that begin.
    fn tune(&mut self, _node: NodeId, _tuning: Tuning) -> Result<(), Refusal> {
        Err(Refusal::Unable)
    }
}

/// A role needs what its host cannot do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lacks {
    /// The role.
    pub role: &'static str,
    /// What the host lacks.
    pub acts: Vec<Act>,
}

impl fmt::Display for Lacks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the role {} needs what is not possible here: {:?}", self.role, self.acts)
    }
}

/// Roles, when they want to be woken, and what they have said.
#[derive(Default)]
pub struct Runner {
    running: Vec<Running>,
    /// By node: positions in `running`.
    at: Vec<Vec<u32>>,
    outbox: Outbox,
    refused: Vec<(Subject, Refusal)>,
    gauges: Gauges,
    /// Actions that hosts refused.
    refusals: u64,
}

struct Running {
    role: Role,
    wake_at: Option<Time>,
    reader: Reader,
}

impl Runner {
    /// A runner of `roles` for a host that can do `acts`.
    ///
    /// # Errors
    /// When a role needs more.
    pub fn new(roles: Vec<Role>, acts: &[Act]) -> Result<Self, Lacks> {
        let mut at = vec![Vec::new(); roles.iter().map(|role| role.node.index() + 1).max().unwrap_or(0)];
        for (position, role) in (0..).zip(&roles) {
            let lacks: Vec<Act> = role.acts.iter().copied().filter(|act| !acts.contains(act)).collect();
            if !lacks.is_empty() {
                return Err(Lacks { role: role.name, acts: lacks });
            }
            at[role.node.index()].push(position);
        }
        let running = roles
            .into_iter()
            .map(|role| Running { role, wake_at: None, reader: Reader::default() })
            .collect();
        Ok(Self { running, at, ..Self::default() })
    }

    /// No roles.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.running.is_empty()
    }

    /// The roles, in order of their numbers.
    pub fn roles(&self) -> impl Iterator<Item = &Role> {
        self.running.iter().map(|running| &running.role)
    }

    /// Actions that the host refused so far.
    pub fn refusals(&self) -> u64 {
        self.refusals
    }

    /// Everything begins: hears when the roles want to be woken first.
    pub fn begin(&mut self, host: &mut impl Host, now: Time) {
        for index in 0..self.running.len() {
            self.settle(index, host, now);
        }
    }

    /// Tells every role at `node`.
    pub fn observe(&mut self, host: &mut impl Host, now: Time, node: NodeId, observation: &Observation<'_>) {
        let mut place = 0;
        while let Some(&index) = self.at.get(node.index()).and_then(|at| at.get(place)) {
            self.call(index as usize, host, now, observation);
            place += 1;
        }
    }

    /// A time has come that role number `role` asked for: `due`, by the runtime's clock `now`.
    pub fn wake(&mut self, host: &mut impl Host, role: usize, due: Time, now: Time) {
        let Running { role: Role { node, wants, controller, .. }, wake_at, reader } = &mut self.running[role];
        if wake_at.take_if(|at| *at == due).is_none() {
            return;
        }
        let ports = if wants.ports { host.port_stats(now, *node, reader) } else { Vec::new() };
        let flows = if wants.flows { host.flow_stats(now, *node) } else { Vec::new() };
        if wants.flows {
            controller.on(now, &Observation::Sent(host.segments(*node)), &mut self.outbox);
        }
        self.call(role, host, now, &Observation::Tick { ports: &ports, flows: &flows });
    }

    /// Puts fresh roles in the place of those at `node`.
    pub fn restart(&mut self, host: &mut impl Host, now: Time, node: NodeId, fresh: Vec<Role>) {
        for (index, role) in fresh.into_iter().enumerate() {
            if role.node == node {
                self.running[index].role = role;
                self.running[index].wake_at = None;
            }
        }
        for index in 0..self.running.len() {
            if self.running[index].role.node == node {
                self.settle(index, host, now);
            }
        }
    }

    fn call(&mut self, index: usize, host: &mut impl Host, now: Time, observation: &Observation<'_>) {
        let role = &mut self.running[index].role;
        role.controller.on(now, observation, &mut self.outbox);
        for action in self.outbox.drain() {
            if let (subject, Err(why)) = apply(host, now, role.node, action) {
                self.refused.push((subject, why));
            }
        }
        if !self.refused.is_empty() {
            self.tell_refusals(index, host, now);
        }
        self.settle(index, host, now);
    }

    /// A role may answer a refusal; what is refused of that is counted and not told, so that this ends.
    #[cold]
    fn tell_refusals(&mut self, index: usize, host: &mut impl Host, now: Time) {
        let role = &mut self.running[index].role;
        for (subject, why) in std::mem::take(&mut self.refused) {
            self.refusals += 1;
            role.controller.on(now, &Observation::Refused { subject, why }, &mut self.outbox);
            for action in self.outbox.drain() {
                self.refusals += u64::from(apply(host, now, role.node, action).1.is_err());
            }
        }
    }

    /// Shows the gauges and plans the wake-up of a role that has just been called.
    fn settle(&mut self, index: usize, host: &mut impl Host, now: Time) {
        let Running { role, wake_at, .. } = &mut self.running[index];
        self.gauges.clear();
        role.controller.gauges(&mut self.gauges);
        if !self.gauges.values().is_empty() {
            host.show(index, now, &self.gauges);
        }
        let wanted = role.controller.wakeup().map(|wakeup| wakeup.at.max(now));
        if wanted != *wake_at {
            *wake_at = wanted;
            if let Some(at) = wanted {
                host.wake(index, at);
            }
        }
    }
}

/// The one place that knows every action.
fn apply(host: &mut impl Host, now: Time, node: NodeId, action: Action) -> (Subject, Result<(), Refusal>) {
    match action {
        Action::Send { to, message, .. } => (Subject::Node(to), host.send(now, node, to, message)),
        Action::Probe { to, payload, .. } => (Subject::Node(to), host.probe(now, node, to, payload)),
        Action::SetWindow { flow, window, .. } => (Subject::Flow(flow), host.set_window(node, flow, window)),
        Action::SetRate { flow, rate, window, .. } => {
            (Subject::Flow(flow), host.set_rate(node, flow, rate, window))
        }
        Action::SetClass { port, class, rate, ceil, .. } => {
            (Subject::Class(port, class), host.set_class(port, class, rate, ceil))
        }
        Action::Tune { tuning, .. } => (Subject::Tcp, host.tune(node, tuning)),
    }
}
