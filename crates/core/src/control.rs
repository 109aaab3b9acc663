//! The one loop of every scheme: observe, decide, act.
//!
//! A [`Controller`] is one role of a scheme at one node. Runtimes feed it [`Observation`]s and apply the [`Action`]s
//! it puts in the outbox before they call it again. It has no clock, no sockets and no randomness but what it was
//! given at construction.

use core::net::IpAddr;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::id::{FlowId, NodeId, PortId};
use crate::params::choice;
use crate::time::{Span, Time};
use crate::tuning::Tuning;
use crate::units::{Bytes, Rate};

/// DSCP of probes: CS6, network control (RFC 4594).
pub const NETWORK_CONTROL: u8 = 48;

/// One role of a scheme.
pub trait Controller: Send {
    /// Handles an observation at `now` and puts its actions into `out`.
    fn on(&mut self, now: Time, observation: &Observation<'_>, out: &mut Outbox);

    /// When to be called with [`Observation::Tick`] next.
    fn wakeup(&self) -> Option<Time>;

    /// The state to hand back when it is rebuilt after a reload or a restart of its daemon; none: no state.
    fn save(&self) -> Option<Vec<u8>> {
        None
    }

    /// Shows what the role holds to be true now: the same metrics in the same order at every call.
    fn gauges(&self, _gauges: &mut Gauges) {}

    /// What it would decide at `now` and by which values, in words for an operator; none: it has no words for it. Costs as much
    /// as a decision.
    fn account(&self, _now: Time) -> Option<String> {
        None
    }
}

/// Values that a role shows, for reports only: nothing acts on them.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Gauges {
    values: Vec<(&'static str, f64)>,
}

impl Gauges {
    /// Shows a value of a metric at [`Place::Shown`](crate::report::metric::Place::Shown), in its unit; not-a-number: none
    /// yet.
    pub fn show(&mut self, metric: &'static str, value: f64) {
        self.values.push((metric, value));
    }

    /// What was shown, in order.
    pub fn values(&self) -> &[(&'static str, f64)] {
        &self.values
    }

    /// Forgets what was shown.
    pub fn clear(&mut self) {
        self.values.clear();
    }
}

/// A window that bounds nothing.
pub const UNBOUNDED: Bytes = Bytes::new(u64::MAX);

/// What a role observes.
#[derive(Clone, PartialEq, Debug)]
pub enum Observation<'a> {
    /// The requested time has come; the runtime has fresh statistics of the ports and flows that the role watches.
    Tick {
        /// Ports of the role's node, in port order.
        ports: &'a [PortStats],
        /// Flows that end at the role's node, in flow order.
        flows: &'a [FlowStats],
    },
    /// What the TCP of the role's node has sent. Arrives just before a tick that brings flows.
    Sent(SegmentCounts),
    /// The data that probes count at the role's end of their path. Arrives just before a tick, while the count is known.
    Counted(Passed),
    /// A flow begins at the role's node. In the simulator and the lab the answer still applies to the first window that
    /// the node offers or uses; a daemon sees flows late.
    FlowStarted(FlowStart<'a>),
    /// The data of a flow at the role's node take another way from now on, because a link or a node has failed or is back.
    FlowMoved(FlowStart<'a>),
    /// The last statistics of a flow at the role's node. Arrives just before [`Observation::FlowEnded`].
    Carried(FlowStats),
    /// A flow at the role's node has ended.
    FlowEnded(FlowId),
    /// A message from another role of the scheme arrived.
    Message(&'a Message),
    /// A node joined the inventory, for the first time or again.
    Joined(NodeId),
    /// A node left the inventory, and its roles and flows with it.
    Left(NodeId),
    /// A probe that a role at the node sent with [`Action::Probe`] leaves it. `passed` counts the data that left ahead of it.
    ProbeLeft {
        /// Its UDP payload.
        payload: &'a [u8],
        /// Data that left the same port before.
        passed: Passed,
    },
    /// The host refused an action of the role.
    Refused {
        /// What it was about.
        subject: Subject,
        /// Why.
        why: Refusal,
    },
    /// A probe from another role arrived. `passed` counts the data that arrived ahead of it.
    ProbeCame {
        /// Node that sent it.
        from: NodeId,
        /// Its UDP payload.
        payload: &'a [u8],
        /// Data that arrived over the same link before.
        passed: Passed,
    },
}

/// Data packets that have passed a point of the path, probes not included.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Passed {
    /// Packets.
    pub packets: u64,
    /// Bytes of IP.
    pub bytes: u64,
}

/// Segments of all TCP flows of a node, from the start of the node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SegmentCounts {
    /// Data segments sent, those sent again included.
    pub sent: u64,
    /// Data segments sent again.
    pub resent: u64,
}

/// Statistics of one port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PortStats {
    /// The port.
    pub port: PortId,
    /// Its rate.
    pub capacity: Rate,
    /// Flows that pass; none where nobody counts them.
    pub flows: Option<PortFlows>,
    /// Bytes that wait; none where nobody reports them.
    pub backlog: Option<Bytes>,
    /// Bytes of the packets that have begun transmission since the port was there.
    pub sent: Bytes,
    /// Packets offered to the port since it was there.
    pub offered: u64,
    /// Those of them that its queue dropped, or that were lost because the link is down or went down.
    pub dropped: u64,
}

/// Flows that pass a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PortFlows {
    /// Since this role's last tick.
    pub seen: u32,
    /// Between their SYN and their FIN.
    pub open: u32,
}

/// Statistics of one flow, at its receiver or sender.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct FlowStats {
    /// The flow.
    pub flow: FlowId,
    /// The node's part in it.
    pub end: FlowEnd,
    /// Payload bytes delivered in order (receiver) or acknowledged (sender) since the flow began.
    pub delivered: Bytes,
    /// Smoothed round-trip time, once measured.
    pub srtt: Option<Span>,
    /// Least round-trip time, once measured.
    pub min_rtt: Option<Span>,
    /// Latest round-trip time, once measured.
    pub last_rtt: Option<Span>,
    /// Payload bytes of a full segment.
    pub mss: Bytes,
    /// Bytes that a full segment takes on a link.
    pub frame: Bytes,
}

/// A flow that begins, or takes another way.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct FlowStart<'a> {
    /// What is known of it.
    pub stats: FlowStats,
    /// What others call it.
    pub key: FlowKey,
    /// Ports on the way of its data, as far as the host knows them.
    pub route: &'a [PortId],
}

/// The addresses of a flow, which are the same for all; a [`FlowId`] is its host's own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, serde::Serialize, serde::Deserialize)]
pub struct FlowKey {
    /// Address and port of its sender.
    pub from: (IpAddr, u16),
    /// Address and port of its receiver.
    pub to: (IpAddr, u16),
    /// IP protocol.
    pub protocol: u8,
}

choice! {
    /// A transport protocol.
    pub enum Protocol {
        /// TCP.
        Tcp = "tcp",
        /// UDP.
        Udp = "udp",
    }
}

/// Which end of a flow.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum FlowEnd {
    /// Data leaves here.
    Sender,
    /// Data arrives here.
    Receiver,
}

/// What a role of a scheme tells another. Runtimes delay and lose messages between nodes; their form on the wire, and
/// with it their size, is that of [`envelope`](crate::runtime::envelope).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    /// Who says it, as the envelope proves.
    pub from: NodeId,
    /// Scheme of both: [`SchemeDef::code`](crate::scheme::SchemeDef::code).
    pub scheme: u16,
    /// What it says, in the postcard format.
    pub body: Vec<u8>,
}

impl Message {
    /// What it says; none when the scheme has no such word, or bytes are left over.
    pub fn read<T: DeserializeOwned>(&self) -> Option<T> {
        postcard::take_from_bytes(&self.body).ok().and_then(|(body, rest)| rest.is_empty().then_some(body))
    }
}

/// The body of a message.
pub fn body(said: &impl Serialize) -> Vec<u8> {
    // Only a full buffer makes postcard fail, and a vector grows.
    postcard::to_allocvec(said).unwrap_or_default()
}

/// What a scheme may do.
#[derive(Clone, PartialEq, Debug)]
pub enum Action {
    /// Bounds the data in flight of `flow`: the congestion window at its sender, the advertised window at its
    /// receiver. The right edge already offered never moves back.
    SetWindow {
        /// The flow.
        flow: FlowId,
        /// Window in payload bytes; [`UNBOUNDED`] lets the flow go.
        window: Bytes,
    },
    /// Paces `flow` from the node at hand: a sender spaces its segments, a receiver lets the right edge of the window
    /// move on at this rate (credit), with `window` as the most that is ever outstanding.
    SetRate {
        /// The flow.
        flow: FlowId,
        /// Payload rate.
        rate: Rate,
        /// Most payload bytes outstanding.
        window: Bytes,
    },
    /// Has the round-trip time of `flow` measured at the node at hand, which receives. Hosts whose TCP measures it from the
    /// data do nothing; others ask the sender for a segment (RFC 9293 section 3.8.4).
    MeasureRtt {
        /// The flow.
        flow: FlowId,
    },
    /// Sends a UDP datagram to a role at another node over the data path, behind the data sent before it.
    Probe {
        /// Node of the role addressed: one of the role's [peers](crate::scheme::Place::peers).
        to: NodeId,
        /// UDP payload.
        payload: Vec<u8>,
    },
    /// Changes a class of a shaper.
    SetClass {
        /// The port.
        port: PortId,
        /// Its position among the shaper's classes, from 0; none: the root.
        class: Option<usize>,
        /// What it has in any case.
        rate: Rate,
        /// What it never exceeds; at least `rate`.
        ceil: Rate,
    },
    /// Changes the TCP of the node at hand for the flows that begin from now on; it stands for all earlier changes.
    Tune {
        /// What differs from the node's own settings.
        tuning: Tuning,
    },
    /// Says something to a role of the scheme at another (or the same) node.
    Send {
        /// Node of the role addressed.
        to: NodeId,
        /// What it says: [`body`].
        body: Vec<u8>,
    },
}

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
    Failed(&'static str),
}

/// What an action is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Subject {
    /// The window, rate or round-trip time of a flow.
    Flow(FlowId),
    /// A message or probe to a node.
    Node(NodeId),
    /// A class of a port's shaper.
    Class(PortId, Option<usize>),
    /// The TCP of the node at hand.
    Tcp,
}

/// Actions of one call, applied in order before the next.
#[derive(Clone, Debug, Default)]
pub struct Outbox {
    actions: Vec<Action>,
}

impl Outbox {
    /// Adds an action.
    pub fn push(&mut self, action: Action) {
        self.actions.push(action);
    }

    /// Says something to a role at another (or the same) node.
    pub fn send(&mut self, to: NodeId, said: &impl Serialize) {
        self.push(Action::Send { to, body: body(said) });
    }

    /// Takes all actions out, leaving the outbox empty.
    pub fn drain(&mut self) -> std::vec::Drain<'_, Action> {
        self.actions.drain(..)
    }

    /// The actions so far.
    pub fn actions(&self) -> &[Action] {
        &self.actions
    }
}
