//! Sets the TCP of the lab's hosts as an agent does on a host of its own: connections that begin, and live ones at their own end.

use std::collections::BTreeSet;

use bandmaster_core::control::FlowEnd;
use bandmaster_core::id::NodeId;
use bandmaster_core::runtime::Refusal;
use bandmaster_core::scheme::{Act, Role};
use bandmaster_core::time::Time;
use bandmaster_core::tuning::Tuning;
use bandmaster_core::units::{Bytes, Rate};

use crate::Error;
use crate::agent::connections::Connections;
use crate::kernel::NoProgram;
use crate::kernel::tcp::{HostTcp, KINDS, Settings, Translation, control_groups, namespace};
use crate::limits::Remarks;
use crate::netns::Netns;
use crate::timing::RoundTrip;

/// The TCP of all nodes.
pub(super) struct Tuner {
    tcp: HostTcp,
    hosts: Vec<Host>,
    /// What the kernel does in another way than it is told, each once.
    remarks: BTreeSet<String>,
}

/// A node.
#[derive(Default)]
struct Host {
    /// The kernel's number of its namespace.
    namespace: u64,
    /// For connections that begin: what it is tuned to, and the bounds until the scheme says more of one.
    tuned: Settings,
    first: Settings,
    /// A role there bounds flows: its connections are looked at and followed.
    bounds: bool,
    connections: Connections,
}

/// A bound on a flow, at one end of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bound {
    pub(super) end: FlowEnd,
    /// The kernel's number of the socket; none: it does not connect before now.
    pub(super) cookie: Option<u64>,
    /// Most payload in flight.
    pub(super) window: Bytes,
    /// Payload of a segment.
    pub(super) segment: Bytes,
    /// Pace of the payload, at a sender.
    pub(super) rate: Option<Rate>,
}

impl Tuner {
    /// Whether connections of some hosts are looked at.
    pub(super) fn looks(&self) -> bool {
        self.hosts.iter().any(|host| host.bounds)
    }

    /// For roles that change TCP; none when there is none among `roles`. The lab's own sockets, where it `has_sockets`, can be
    /// bounded without: then that is remarked.
    pub(super) fn new(
        roles: &[Role],
        nodes: &[Netns],
        has_sockets: bool,
    ) -> Result<(Option<Self>, Remarks), Error> {
        let does = |role: &Role, acts: &[Act]| acts.iter().any(|act| role.place.role.acts.contains(act));
        let bounding = |role: &&Role| has_sockets && does(role, &[Act::SetWindow, Act::SetRate]);
        let bounding: BTreeSet<NodeId> = roles.iter().filter(bounding).map(|role| role.place.node).collect();
        let (tunes, bounds) = (roles.iter().any(|role| does(role, &[Act::Tune])), !bounding.is_empty());
        if !tunes && !bounds {
            return Ok((None, Remarks::new()));
        }
        let load = || -> Result<HostTcp, NoProgram> {
            let (mut tcp, group) = (HostTcp::load()?, control_groups()?);
            tcp.attach(&group)?;
            if bounds {
                tcp.load_live()?;
                tcp.hear(&group)?;
            }
            Ok(tcp)
        };
        let mut tcp = match load() {
            Ok(tcp) => tcp,
            Err(why) if !tunes => {
                let remark = format!(
                    "windows are bounded by the receiver's socket, paces are kept by the sender's, whichever of the two the \
                     scheme acts at: the kernel takes no program for that: {why}"
                );
                return Ok((None, Remarks::from_iter([remark])));
            }
            Err(why) => {
                return Err(Error::Missing(format!(
                    "the lab cannot {}: {why}; run as root (sudo), `bandmaster doctor` says what this kernel allows",
                    Act::Tune.words()
                )));
            }
        };
        let mut host = |(place, node): (u32, &Netns)| {
            let number = || namespace().map_err(|error| Error::os("number a namespace", error));
            let (namespace, bounds) = (node.enter(number)?, bounding.contains(&NodeId(place)));
            if bounds {
                let failed =
                    |why| Error::Missing(format!("follow the connections of {}: {why}", node.name()));
                tcp.follow(namespace).map_err(failed)?;
            }
            Ok(Host { namespace, bounds, ..Host::default() })
        };
        let hosts = (0..).zip(nodes).map(&mut host).collect::<Result<_, Error>>()?;
        Ok((Some(Self { tcp, hosts, remarks: BTreeSet::new() }), Remarks::new()))
    }

    /// Connections that begin at `node` are set so.
    pub(super) fn tune(&mut self, node: NodeId, tuning: &Tuning) -> Result<(), Refusal> {
        let Translation { settings, remarks } = Translation::new(tuning);
        self.remarks.extend(remarks);
        self.hosts.get_mut(node.index()).ok_or(Refusal::Unknown)?.tuned = settings;
        self.begin(node)
    }

    /// Tells the kernel what connections get that begin at `node`.
    fn begin(&mut self, node: NodeId) -> Result<(), Refusal> {
        let Host { namespace, tuned, first, .. } = &self.hosts[node.index()];
        let caps = tuned.window_cap.into_iter().chain(first.window_cap);
        let Settings { receive_window, first_offer, .. } = *first;
        let settings = Settings { window_cap: caps.min(), receive_window, first_offer, ..tuned.clone() };
        self.tcp.tune(*namespace, &settings).map_err(|_| Refusal::Failed("the kernel refuses"))
    }

    /// Looks at the connections of `node`, where a scheme bounds them.
    pub(super) fn look(
        &mut self,
        node: NodeId,
        nodes: &[Netns],
        now: impl Fn() -> Time,
    ) -> Result<(), Error> {
        let Self { tcp, hosts, .. } = self;
        let (Some(host), Some(netns)) = (hosts.get_mut(node.index()), nodes.get(node.index())) else {
            return Ok(());
        };
        if !host.bounds {
            return Ok(());
        }
        // A look shows what they tell of.
        tcp.news();
        let looked = netns.enter(|| Ok(host.connections.look(tcp)))?;
        looked
            .map_err(|why| Error::Missing(format!("look at the connections of {}: {why}", netns.name())))?;
        host.connections.time_windows(now());
        Ok(())
    }

    /// Payload bytes and round-trip times of a connection at `node`; none where nobody has looked at it.
    pub(super) fn measured(&self, node: NodeId, cookie: u64, end: FlowEnd) -> Option<(u64, RoundTrip)> {
        let connections = &self.hosts.get(node.index())?.connections;
        Some(connections.measured(connections.get(cookie)?, end))
    }

    /// Bounds a flow at `node`'s end of it, at the next [`flush`](Self::flush).
    pub(super) fn bound(&mut self, node: NodeId, bound: &Bound) -> Result<(), Refusal> {
        let host = self.hosts.get_mut(node.index()).ok_or(Refusal::Unknown)?;
        let as_u32 = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        let Bound { end, cookie, window, segment, rate } = *bound;
        if let Some(cookie) = cookie {
            host.connections.bound(cookie, end, window, as_u32(segment.get()), rate);
            return Ok(());
        }
        let window = window.max(segment).get();
        let cap = as_u32(window / segment.get().max(1));
        let first = match end {
            FlowEnd::Sender => Settings { window_cap: Some(cap), ..host.first.clone() },
            FlowEnd::Receiver => Settings {
                receive_window: Some(as_u32(window)),
                first_offer: Some(cap),
                ..host.first.clone()
            },
        };
        if host.first == first {
            return Ok(());
        }
        host.first = first;
        self.begin(node)
    }

    /// Sets what has been said since the last time.
    pub(super) fn flush(&mut self, nodes: &[Netns]) -> Result<(), Error> {
        let Self { tcp, hosts, .. } = self;
        for (host, node) in hosts.iter_mut().zip(nodes).filter(|(host, _)| host.connections.waits()) {
            // The lab's connections end with it: nothing is to be given back.
            let done = node.enter(|| Ok(host.connections.set(tcp)))?;
            done.map_err(|why| Error::Missing(format!("bound the windows at {}: {why}", node.name())))?;
        }
        Ok(())
    }

    /// What was not done as it was told.
    pub(super) fn remarks(self) -> Remarks {
        let outcomes = self.tcp.outcomes().unwrap_or_default();
        let refused = KINDS.iter().zip(outcomes).filter(|(_, outcome)| outcome.refused > 0);
        let refused = refused.map(|(kind, outcome)| {
            let error = std::io::Error::from_raw_os_error(outcome.error);
            format!(
                "{kind}: the kernel refused {} times of {}: {error}",
                outcome.refused,
                outcome.refused + outcome.done
            )
        });
        self.remarks.into_iter().chain(refused).map(|remark| format!("tcp: {remark}")).collect()
    }
}
