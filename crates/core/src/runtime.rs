//! Runs the roles of schemes: observations in, actions out. One [`Runner`] for the simulator, the lab and daemons; each
//! is a [`Host`].

pub mod envelope;
pub mod faults;
pub mod inventory;
pub mod post;

use core::fmt;

pub use crate::control::Refusal;
use crate::control::{
    Action, FlowStats, Gauges, Message, Observation, Outbox, Passed, PortStats, SegmentCounts, Subject,
};
use crate::id::{FlowId, NodeId, PortId};
use crate::port::flow_counter::Reader;
use crate::runtime::faults::PathEnd;
use crate::runtime::inventory::{Change, Inventory};
use crate::scheme::{Act, Role};
use crate::time::Time;
use crate::tuning::Tuning;
use crate::units::{Bytes, Rate};

/// The part of the world that roles see and change: a whole simulated network, or one real node.
///
/// Nothing here tells the time: calls carry it. What a host cannot do it need not implement; what it fails to do it
/// answers with a [`Refusal`], which comes back to the role as [`Observation::Refused`].
pub trait Host {
    /// What hosts of this kind can do. Roles that need more are refused before anything runs.
    const ACTS: &'static [Act];

    /// Whether it has `node`: another part of the same run may.
    fn has(&self, _node: NodeId) -> bool {
        true
    }

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

    /// What has passed the `end` of the path of probes `from` one node `to` another; none while it is unknown.
    fn passed(&mut self, _from: NodeId, _to: NodeId, _end: PathEnd) -> Option<Passed> {
        None
    }

    /// Role number `role` shows these values from now on.
    fn show(&mut self, _role: usize, _now: Time, _gauges: &Gauges) {}

    /// Puts a message on its way, or keeps it until [`flush`](Self::flush).
    fn send(&mut self, _now: Time, _to: NodeId, _message: Message) -> Result<(), Refusal> {
        Err(Refusal::Unable)
    }

    /// Sends what [`send`](Self::send) has put off, once the actions of a role are done. Nodes whose messages could not be sent.
    fn flush(&mut self) -> Vec<NodeId> {
        Vec::new()
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

    /// Has the round-trip time of `flow` measured, of which `node` is the receiver.
    fn measure_rtt(&mut self, _node: NodeId, _flow: FlowId) -> Result<(), Refusal> {
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
    /// The scheme.
    pub scheme: &'static str,
    /// The role.
    pub role: &'static str,
    /// What the host lacks.
    pub acts: Vec<Act>,
}

impl Lacks {
    /// What of `roles` a host that can do `acts` cannot run: the first of them.
    ///
    /// # Errors
    /// When there is one.
    pub fn none(roles: &[Role], acts: &[Act]) -> Result<(), Self> {
        for Role { scheme, place, built } in roles {
            let programs = built.programs.iter().map(|(_, program)| program.act());
            let mut lacks: Vec<Act> = place.role.acts.iter().copied().chain(programs).collect();
            lacks.retain(|act| !acts.contains(act));
            lacks.dedup();
            if !lacks.is_empty() {
                return Err(Self { scheme: scheme.name, role: place.role.name, acts: lacks });
            }
        }
        Ok(())
    }
}

impl fmt::Display for Lacks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<&str> = self.acts.iter().map(|act| act.words()).collect();
        write!(
            f,
            "{}'s role `{}` has to {}, which cannot be done here",
            self.scheme,
            self.role,
            words.join(", ")
        )
    }
}

/// The roles, their wake-up times, and the actions and gauges that they hand over.
#[derive(Default)]
pub struct Runner {
    running: Vec<Running>,
    inventory: Inventory,
    /// By node: positions in `running`.
    at: Vec<Vec<u32>>,
    outbox: Outbox,
    refused: Vec<(Subject, Refusal)>,
    gauges: Gauges,
    refusals: Refusals,
}

/// How many actions hosts have refused, by kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Refusals([u64; Act::ACTIONS.len()]);

impl Refusals {
    /// Of one kind.
    pub fn of(&self, act: Act) -> u64 {
        Act::ACTIONS.iter().position(|known| *known == act).map_or(0, |at| self.0[at])
    }

    /// Of all kinds.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    fn add(&mut self, act: Act) {
        if let Some(at) = Act::ACTIONS.iter().position(|known| *known == act) {
            self.0[at] += 1;
        }
    }
}

struct Running {
    role: Role,
    wake_at: Option<Time>,
    reader: Reader,
}

impl Runner {
    /// A runner of `roles` for hosts of this kind, in a network of which `inventory` is known.
    ///
    /// # Errors
    /// When a role needs more.
    pub fn new<H: Host>(roles: Vec<Role>, inventory: Inventory) -> Result<Self, Lacks> {
        Lacks::none(&roles, H::ACTS)?;
        let nodes = roles.iter().map(|role| role.place.node.index() + 1).max().unwrap_or(0);
        let mut at = vec![Vec::new(); nodes];
        for (position, role) in (0..).zip(&roles) {
            at[role.place.node.index()].push(position);
        }
        let running = roles
            .into_iter()
            .map(|role| Running { role, wake_at: None, reader: Reader::default() })
            .collect();
        Ok(Self { running, at, inventory, ..Self::default() })
    }

    /// No roles.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.running.is_empty()
    }

    /// The roles, in order of their numbers.
    pub fn roles(&self) -> impl ExactSizeIterator<Item = &Role> {
        self.running.iter().map(|running| &running.role)
    }

    /// Actions that the host refused so far.
    pub fn refusals(&self) -> &Refusals {
        &self.refusals
    }

    /// The state to hand back to each role when it is rebuilt.
    pub fn save(&self) -> Vec<Option<Vec<u8>>> {
        let saved = |role: &Role| role.built.controller.as_ref().and_then(|controller| controller.save());
        self.roles().map(saved).collect()
    }

    /// Counts refusals on from those of a runner before.
    pub fn go_on_from(&mut self, refusals: Refusals) {
        self.refusals = refusals;
    }

    /// Everything begins: hears when the roles want to be woken first.
    pub fn begin(&mut self, host: &mut impl Host, now: Time) {
        for index in 0..self.running.len() {
            self.settle(index, host, now);
        }
    }

    /// Takes over the refusals that another part of the same run has counted.
    pub fn absorb(&mut self, other: &Self) {
        for (own, other) in self.refusals.0.iter_mut().zip(other.refusals.0) {
            *own += other;
        }
    }

    /// Tells every role at `node`; a message, those of its scheme.
    pub fn observe(&mut self, host: &mut impl Host, now: Time, node: NodeId, observation: &Observation<'_>) {
        let mut place = 0;
        while let Some(&index) = self.at.get(node.index()).and_then(|at| at.get(place)) {
            place += 1;
            if let Observation::Message(message) = observation
                && message.scheme != self.running[index as usize].role.scheme.code
            {
                continue;
            }
            self.call(index as usize, host, now, observation);
        }
    }

    /// A time has come that role number `role` asked for: `due`, by the runtime's clock `now`.
    pub fn wake(&mut self, host: &mut impl Host, role: usize, due: Time, now: Time) {
        let Running { role: Role { place, built, .. }, wake_at, reader } = &mut self.running[role];
        if wake_at.take_if(|at| *at == due).is_none() {
            return;
        }
        let (node, wants) = (place.node, place.role.wants);
        let ports = if wants.ports { host.port_stats(now, node, reader) } else { Vec::new() };
        let flows = if wants.flows { host.flow_stats(now, node) } else { Vec::new() };
        if let Some(controller) = built.controller.as_mut().filter(|_| wants.flows) {
            controller.on(now, &Observation::Sent(host.segments(node)), &mut self.outbox);
        }
        let peer = wants.passed.zip(place.peers.first());
        let passed = peer.and_then(|(end, &(peer, _))| {
            let (from, to) = if end == PathEnd::First { (node, peer) } else { (peer, node) };
            host.passed(from, to, end)
        });
        if let (Some(controller), Some(passed)) = (built.controller.as_mut(), passed) {
            controller.on(now, &Observation::Counted(passed), &mut self.outbox);
        }
        self.call(role, host, now, &Observation::Tick { ports: &ports, flows: &flows });
    }

    /// Something happens to the roles at `node`. Their programs stay: they are the ports'.
    /// New ones hear who is away, and count from now on. What is away cannot restart.
    pub fn change(&mut self, host: &mut impl Host, now: Time, node: NodeId, change: Change) {
        match change {
            Change::Restart if !self.inventory.has(node) => return,
            Change::Restart => {}
            Change::Leave => self.inventory.leave(node),
            Change::Join => self.inventory.come_back(node),
        }
        let away: Vec<NodeId> = self.inventory.away().collect();
        for index in 0..self.running.len() {
            let Running { role, wake_at, reader } = &mut self.running[index];
            if role.place.node != node {
                continue;
            }
            *wake_at = None;
            if change == Change::Leave {
                role.built.controller = None;
                continue;
            }
            role.built.controller = (role.scheme.build)(&role.place, &self.inventory, None).controller;
            if role.place.role.wants.ports {
                let _ = host.port_stats(now, node, reader);
            }
            self.settle(index, host, now);
            for gone in &away {
                self.call(index, host, now, &Observation::Left(*gone));
            }
        }
        match change {
            Change::Restart => {}
            Change::Leave => self.tell_all(host, now, &Observation::Left(node)),
            Change::Join => self.tell_all(host, now, &Observation::Joined(node)),
        }
    }

    fn tell_all(&mut self, host: &mut impl Host, now: Time, observation: &Observation<'_>) {
        for index in 0..self.running.len() {
            self.call(index, host, now, observation);
        }
    }

    fn call(&mut self, index: usize, host: &mut impl Host, now: Time, observation: &Observation<'_>) {
        let Role { scheme, place, built } = &mut self.running[index].role;
        if !host.has(place.node) {
            return;
        }
        let Some(controller) = &mut built.controller else { return };
        controller.on(now, observation, &mut self.outbox);
        for action in self.outbox.drain() {
            let at = At { now, node: place.node, scheme: scheme.code, inventory: &self.inventory };
            let (act, subject, result) = at.apply(host, action);
            if let Err(why) = result {
                self.refusals.add(act);
                self.refused.push((subject, why));
            }
        }
        for node in host.flush() {
            self.refusals.add(Act::Send);
            self.refused.push((Subject::Node(node), Refusal::Busy));
        }
        if !self.refused.is_empty() {
            self.tell_refusals(index, host, now);
        }
        self.settle(index, host, now);
    }

    /// Reports refusals to a role. The role may answer; refusals of its answer are only counted, so that this ends.
    #[cold]
    fn tell_refusals(&mut self, index: usize, host: &mut impl Host, now: Time) {
        let Role { scheme, place, built } = &mut self.running[index].role;
        let Some(controller) = &mut built.controller else { return };
        for (subject, why) in std::mem::take(&mut self.refused) {
            controller.on(now, &Observation::Refused { subject, why }, &mut self.outbox);
            for action in self.outbox.drain() {
                let at = At { now, node: place.node, scheme: scheme.code, inventory: &self.inventory };
                if let (act, _, Err(_)) = at.apply(host, action) {
                    self.refusals.add(act);
                }
            }
        }
        host.flush().iter().for_each(|_| self.refusals.add(Act::Send));
    }

    /// Shows the gauges and plans the wake-up of a role that has just been called.
    fn settle(&mut self, index: usize, host: &mut impl Host, now: Time) {
        let Running { role, wake_at, .. } = &mut self.running[index];
        let Some(controller) = role.built.controller.as_ref().filter(|_| host.has(role.place.node)) else {
            return;
        };
        self.gauges.clear();
        controller.gauges(&mut self.gauges);
        if !self.gauges.values().is_empty() {
            host.show(index, now, &self.gauges);
        }
        let wanted = controller.wakeup().map(|at| at.max(now));
        if wanted != *wake_at {
            *wake_at = wanted;
            if let Some(at) = wanted {
                host.wake(index, at);
            }
        }
    }
}

/// When and where a role acts.
struct At<'a> {
    now: Time,
    node: NodeId,
    scheme: u16,
    inventory: &'a Inventory,
}

impl At<'_> {
    /// The one place that knows every action.
    fn apply(&self, host: &mut impl Host, action: Action) -> (Act, Subject, Result<(), Refusal>) {
        let Self { now, node, scheme, inventory } = *self;
        let known = |to: NodeId| inventory.has(to).then_some(()).ok_or(Refusal::Unknown);
        match action {
            Action::Send { to, body } => {
                let message = Message { from: node, scheme, body };
                (Act::Send, Subject::Node(to), known(to).and_then(|()| host.send(now, to, message)))
            }
            Action::Probe { to, payload } => {
                let sent = known(to).and_then(|()| host.probe(now, node, to, payload));
                (Act::Probe, Subject::Node(to), sent)
            }
            Action::SetWindow { flow, window } => {
                (Act::SetWindow, Subject::Flow(flow), host.set_window(node, flow, window))
            }
            Action::SetRate { flow, rate, window } => {
                (Act::SetRate, Subject::Flow(flow), host.set_rate(node, flow, rate, window))
            }
            Action::MeasureRtt { flow } => {
                (Act::MeasureRtt, Subject::Flow(flow), host.measure_rtt(node, flow))
            }
            Action::SetClass { port, class, rate, ceil } => {
                (Act::SetClass, Subject::Class(port, class), host.set_class(port, class, rate, ceil))
            }
            Action::Tune { tuning } => (Act::Tune, Subject::Tcp, host.tune(node, tuning)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::control::Controller;
    use crate::params::Params;
    use crate::scheme::{Built, Place, RoleDef, SchemeDef, Wants};

    /// What the roles of the nodes heard, in order; the tests of this module take turns.
    static HEARD: Mutex<Vec<String>> = Mutex::new(Vec::new());

    const COUNTS: Wants = Wants { ports: true, ..Wants::NOTHING };
    const ROLE: RoleDef = RoleDef { name: "listener", wants: COUNTS, acts: &[] };
    static SCHEME: SchemeDef = SchemeDef {
        name: "listeners",
        about: "",
        source: "",
        code: 999,
        keys: &[],
        roles: &[ROLE],
        check: |_, _| Ok(()),
        fits: |_, _| Ok(()),
        place: |_, _, _| Vec::new(),
        build: |place, inventory, _| {
            assert!(inventory.has(place.node), "built while it is away");
            Built::brain(Listener(place.node))
        },
    };

    struct Listener(NodeId);

    impl Controller for Listener {
        fn on(&mut self, _now: Time, observation: &Observation<'_>, _out: &mut Outbox) {
            let mut heard = HEARD.lock().expect("no other panicked");
            heard.push(format!("{} {observation:?}", self.0.0));
        }

        fn wakeup(&self) -> Option<Time> {
            None
        }
    }

    /// Counts how often each node's counters are read.
    #[derive(Default)]
    struct Counting(Vec<NodeId>);

    impl Host for Counting {
        const ACTS: &'static [Act] = &[];

        fn wake(&mut self, _role: usize, _at: Time) {}

        fn port_stats(&mut self, _now: Time, node: NodeId, _reader: &mut Reader) -> Vec<PortStats> {
            self.0.push(node);
            Vec::new()
        }
    }

    #[test]
    fn who_begins_anew_hears_who_is_away_and_nobody_begins_while_away() {
        let mut inventory = Inventory::default();
        let nodes = ["a", "b", "c"].map(|name| inventory.join(name));
        let role = |&node: &NodeId| {
            let place = Place::new(&ROLE, node, Params::default());
            Role { scheme: &SCHEME, built: (SCHEME.build)(&place, &inventory, None), place }
        };
        let roles: Vec<Role> = nodes.iter().map(role).collect();
        let mut runner = Runner::new::<Counting>(roles, inventory.clone()).expect("nothing is needed");
        let mut host = Counting::default();
        let mut change = |node: usize, change| {
            HEARD.lock().expect("no other panicked").clear();
            runner.change(&mut host, Time::ZERO, nodes[node], change);
            HEARD.lock().expect("no other panicked").clone()
        };
        assert_eq!(change(1, Change::Leave), ["0 Left(node1)", "2 Left(node1)"]);
        assert_eq!(change(1, Change::Restart), [""; 0], "what is away does not restart");
        assert_eq!(change(0, Change::Restart), ["0 Left(node1)"]);
        assert_eq!(change(2, Change::Leave), ["0 Left(node2)"]);
        let joined = ["1 Left(node2)", "0 Joined(node1)", "1 Joined(node1)"];
        assert_eq!(change(1, Change::Join), joined);
        // Counters of the time before are not theirs.
        assert_eq!(host.0, [nodes[0], nodes[1]]);
    }
}
