//! Sets the TCP of the lab's hosts as an agent does on a host of its own: connections that begin, and live ones at their own end.

use std::collections::{BTreeMap, BTreeSet};

use bandmaster_core::control::FlowEnd;
use bandmaster_core::id::NodeId;
use bandmaster_core::runtime::Refusal;
use bandmaster_core::scheme::{Act, Role};
use bandmaster_core::tuning::Tuning;
use bandmaster_core::units::{Bytes, Rate};

use crate::Error;
use crate::kernel::NoProgram;
use crate::kernel::tcp::{HostTcp, KINDS, Settings, Translation, control_groups, namespace};
use crate::limits::Remarks;
use crate::netns::Netns;

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
    /// By cookie: what is set when all roles have spoken.
    pending: BTreeMap<u64, Settings>,
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
    /// For roles that change TCP; none when there is none among `roles`. The lab's own sockets, where it `has_sockets`, can be
    /// bounded without: then that is remarked.
    pub(super) fn new(
        roles: &[Role],
        nodes: &[Netns],
        has_sockets: bool,
    ) -> Result<(Option<Self>, Remarks), Error> {
        let has =
            |acts: &[Act]| roles.iter().any(|role| acts.iter().any(|act| role.place.role.acts.contains(act)));
        let (tunes, bounds) = (has(&[Act::Tune]), has_sockets && has(&[Act::SetWindow, Act::SetRate]));
        if !tunes && !bounds {
            return Ok((None, Remarks::new()));
        }
        let load = || -> Result<HostTcp, NoProgram> {
            let mut tcp = HostTcp::load()?;
            tcp.attach(&control_groups()?)?;
            if bounds {
                tcp.load_live()?;
            }
            Ok(tcp)
        };
        let tcp = match load() {
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
        let host = |node: &Netns| {
            let number = || namespace().map_err(|error| Error::os("number a namespace", error));
            Ok(Host { namespace: node.enter(number)?, ..Host::default() })
        };
        let hosts = nodes.iter().map(host).collect::<Result<_, Error>>()?;
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

    /// Bounds a flow at `node`'s end of it, at the next [`flush`](Self::flush).
    pub(super) fn bound(&mut self, node: NodeId, bound: &Bound) -> Result<(), Refusal> {
        let host = self.hosts.get_mut(node.index()).ok_or(Refusal::Unknown)?;
        let window = bound.window.max(bound.segment).get();
        let as_u32 = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        let cap = as_u32(window / bound.segment.get().max(1));
        match (bound.end, bound.cookie) {
            (FlowEnd::Receiver, Some(cookie)) => {
                host.pending.entry(cookie).or_default().receive_window = Some(as_u32(window));
                Ok(())
            }
            (FlowEnd::Sender, Some(cookie)) => {
                let settings = host.pending.entry(cookie).or_default();
                settings.window_cap = Some(cap);
                let pace = bound.rate.map(|rate| as_u32(rate.bits_per_sec() / 8).max(1));
                settings.pacing_rate = pace.or(settings.pacing_rate);
                Ok(())
            }
            (end, None) => {
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
        }
    }

    /// Sets what has been said since the last time: one pass over the connections of each host that has any.
    pub(super) fn flush(&mut self, nodes: &[Netns]) -> Result<(), Error> {
        let Self { tcp, hosts, .. } = self;
        for (host, node) in hosts.iter_mut().zip(nodes).filter(|(host, _)| !host.pending.is_empty()) {
            let pending = std::mem::take(&mut host.pending);
            let mut pass = || -> Result<(), NoProgram> {
                for (cookie, settings) in &pending {
                    tcp.set(*cookie, settings)?;
                }
                tcp.look()?;
                pending.keys().try_for_each(|cookie| tcp.leave(*cookie))
            };
            let done = node.enter(|| Ok(pass()))?;
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
