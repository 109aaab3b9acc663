//! Ports of this machine, as its kernel counts.

use std::collections::BTreeMap;

use bandmaster_core::agent::Port;
use bandmaster_core::control::PortFlows;
use netlink_bindings::rt_link::{self, Ifinfomsg};
use netlink_bindings::tc::{self, Tcmsg};
use netlink_socket2::{NetlinkSocket, ReplyError};
use tracing::warn;

use super::Counts;
use crate::daemon::Error;
use crate::kernel::NoProgram;
use crate::kernel::flows::{Direction, FlowCounts};

/// `TC_H_ROOT`.
const ROOT: u32 = u32::MAX;

pub(super) struct Kernel {
    flows: Option<Box<FlowCounts>>,
    /// Said that there are more flows than are counted.
    complained: bool,
}

impl Kernel {
    /// Nothing is counted before the first reading.
    pub(super) fn new(counts_flows: bool) -> Result<Self, Error> {
        let lacking = |why: NoProgram| {
            Error::Missing(format!(
                "error: the kernel takes no program that counts flows: {why}; it needs CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON"
            ))
        };
        let flows = if counts_flows { Some(Box::new(FlowCounts::load().map_err(lacking)?)) } else { None };
        Ok(Self { flows, complained: false })
    }

    pub(super) fn read(&mut self, ports: &[Port]) -> Result<Vec<Counts>, String> {
        let indices = indices(ports)?;
        let now = counts().map_err(|error| format!("rtnetlink: {error}"))?;
        let mut all = Vec::with_capacity(ports.len());
        for (port, index) in ports.iter().zip(&indices) {
            let counts = now.get(&(*index as i32)).copied();
            all.push(counts.ok_or_else(|| format!("interface {}: no such device", port.interface))?);
        }
        if let Some(flows) = &mut self.flows {
            let why = |error: NoProgram| format!("flows are not counted: {error}");
            flows.keep_only(&indices);
            for (port, index) in ports.iter().zip(&indices) {
                flows.follow(&port.interface, *index, Direction::Departs).map_err(why)?;
            }
            let told = flows.read().map_err(why)?;
            for (counts, index) in all.iter_mut().zip(&indices) {
                let count = told.get(&(*index, Direction::Departs)).copied().unwrap_or_default();
                counts.flows = Some(PortFlows { seen: count.seen, open: count.open });
                if count.left_out > 0 && !self.complained {
                    self.complained = true;
                    warn!(
                        "more flows pass than the program in the kernel has room for: counts of flows are too low"
                    );
                }
            }
        }
        Ok(all)
    }
}

/// Numbers of the devices.
pub(super) fn indices(ports: &[Port]) -> Result<Vec<u32>, String> {
    let index = |port: &Port| {
        nix::net::if_::if_nametoindex(port.interface.as_str())
            .map_err(|_| format!("interface {}: no such device", port.interface))
    };
    ports.iter().map(index).collect()
}

/// Of all devices of this network namespace, by number.
fn counts() -> Result<BTreeMap<i32, Counts>, ReplyError> {
    let mut socket = NetlinkSocket::new();
    let mut all = BTreeMap::new();
    let request = rt_link::Request::new().op_getlink_dump(&Ifinfomsg::default());
    let mut answer = socket.request(&request)?;
    while let Some(item) = answer.recv() {
        let (header, attributes) = item?;
        let stats = attributes.get_stats64()?;
        // Packed: copied, not borrowed.
        let (sent, packets, dropped) = (stats.tx_bytes, stats.tx_packets, stats.tx_dropped);
        all.insert(header.ifi_index, Counts { sent, packets, dropped, backlog: Some(0), flows: None });
    }
    let request = tc::Request::new().op_getqdisc_dump(&Tcmsg::default());
    let mut answer = socket.request(&request)?;
    while let Some(item) = answer.recv() {
        let (header, attributes) = item?;
        if let Some(counts) = all.get_mut(&header.ifindex).filter(|_| header.parent == ROOT) {
            let queue = attributes.get_stats2()?.get_queue()?;
            counts.backlog = Some(queue.backlog.into());
            // A queue discipline's drops are in `tx_dropped` of some devices and not of others: the larger count has them all.
            counts.dropped = counts.dropped.max(queue.drops.into());
        }
    }
    Ok(all)
}
