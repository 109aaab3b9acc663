//! Changes the TCP of the lab's hosts as an agent does on a host of its own.

use std::collections::BTreeSet;

use bandmaster_core::id::NodeId;
use bandmaster_core::runtime::Refusal;
use bandmaster_core::scheme::{Act, Role};
use bandmaster_core::tuning::Tuning;

use crate::Error;
use crate::kernel::NoProgram;
use crate::kernel::tcp::{HostTcp, KINDS, Translation, control_groups, namespace};
use crate::limits::Remarks;
use crate::netns::Netns;

/// The TCP of all nodes.
pub(super) struct Tuner {
    connections: HostTcp,
    /// By node: the kernel's number of its namespace.
    namespaces: Vec<u64>,
    /// What the kernel does in another way than it is told, each once.
    remarks: BTreeSet<String>,
}

impl Tuner {
    /// For roles that change TCP; none when there is none among `roles`.
    pub(super) fn new(roles: &[Role], nodes: &[Netns]) -> Result<Option<Self>, Error> {
        if !roles.iter().any(|role| role.place.role.acts.contains(&Act::Tune)) {
            return Ok(None);
        }
        let load = || -> Result<HostTcp, NoProgram> {
            let mut connections = HostTcp::load()?;
            connections.attach(&control_groups()?)?;
            Ok(connections)
        };
        let connections = load().map_err(|why| {
            Error::Missing(format!(
                "the lab cannot {}: {why}; run as root (sudo), `bandmaster doctor` says what this kernel allows",
                Act::Tune.words()
            ))
        })?;
        let number =
            |node: &Netns| node.enter(|| namespace().map_err(|error| Error::os("number a namespace", error)));
        let namespaces = nodes.iter().map(number).collect::<Result<_, _>>()?;
        Ok(Some(Self { connections, namespaces, remarks: BTreeSet::new() }))
    }

    /// Connections that begin at `node` are set so.
    pub(super) fn tune(&mut self, node: NodeId, tuning: &Tuning) -> Result<(), Refusal> {
        let Translation { settings, remarks } = Translation::new(tuning);
        self.remarks.extend(remarks);
        let namespace = *self.namespaces.get(node.index()).ok_or(Refusal::Unknown)?;
        self.connections.tune(namespace, &settings).map_err(|_| Refusal::Failed("the kernel refuses"))
    }

    /// What was not done as it was told.
    pub(super) fn remarks(self) -> Remarks {
        let outcomes = self.connections.outcomes().unwrap_or_default();
        let refused = KINDS.iter().zip(outcomes).filter(|(_, outcome)| outcome.refused > 0);
        let refused = refused.map(|(kind, outcome)| {
            let error = std::io::Error::from_raw_os_error(outcome.error);
            format!(
                "{kind}: the kernel refused {} times of {}: {error}",
                outcome.refused,
                outcome.refused + outcome.done
            )
        });
        self.remarks.into_iter().chain(refused).map(|remark| format!("tune: {remark}")).collect()
    }
}
