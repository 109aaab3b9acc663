//! Ports of this machine, with the kernel's counters.

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
    /// The last warning about counts of flows.
    complained: Option<String>,
}

impl Kernel {
    /// Nothing is counted before it [begins](Self::begin).
    pub(super) fn new(counts_flows: bool) -> Result<Self, Error> {
        let lacking = |why: NoProgram| {
            Error::Missing(format!(
                "error: the kernel takes no program that counts flows: {why}; it needs CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON"
            ))
        };
        let flows = if counts_flows { Some(Box::new(FlowCounts::load().map_err(lacking)?)) } else { None };
        Ok(Self { flows, complained: None })
    }

    /// Counts flows at these ports, if it counts any.
    ///
    /// # Errors
    /// Why the kernel does not do so.
    pub(super) fn begin(&mut self, ports: &[Port]) -> Result<(), String> {
        let Some(flows) = &mut self.flows else { return Ok(()) };
        let indices = indices(ports)?;
        flows.keep_only(&indices);
        for (port, index) in ports.iter().zip(&indices) {
            flows
                .follow(&port.interface, *index, Direction::Departs)
                .map_err(|why| format!("flows at {} are not counted: {why}", port.interface))?;
        }
        Ok(())
    }

    pub(super) fn read(&mut self, ports: &[Port]) -> Result<Vec<Counts>, String> {
        let mut all = counts(ports)?;
        // Port counters are reported even when flows cannot be counted.
        let told = self.count_flows(ports, &mut all);
        let why = told.err();
        if let Some(why) = why.as_ref().filter(|why| self.complained.as_ref() != Some(*why)) {
            warn!(%why, "counts of flows are wrong or missing");
        }
        self.complained = why;
        Ok(all)
    }

    fn count_flows(&mut self, ports: &[Port], all: &mut [Counts]) -> Result<(), String> {
        // A device may have been recreated.
        self.begin(ports)?;
        let Some(flows) = &mut self.flows else { return Ok(()) };
        let told = flows.read().map_err(|why| why.to_string())?;
        let mut left_out = 0;
        for (counts, index) in all.iter_mut().zip(indices(ports)?) {
            let count = told.get(&(index, Direction::Departs)).copied().unwrap_or_default();
            counts.flows = Some(PortFlows { seen: count.seen, open: count.open });
            left_out += count.left_out;
        }
        match left_out {
            0 => Ok(()),
            _ => Err("more flows pass than the program in the kernel has room for".to_owned()),
        }
    }
}

/// Numbers of the devices.
fn indices(ports: &[Port]) -> Result<Vec<u32>, String> {
    let index = |port: &Port| {
        nix::net::if_::if_nametoindex(port.interface.as_str())
            .map_err(|_| format!("interface {}: no such device", port.interface))
    };
    ports.iter().map(index).collect()
}

/// Of these ports, without flows.
///
/// # Errors
/// When one is away, or the kernel does not tell.
pub(super) fn counts(ports: &[Port]) -> Result<Vec<Counts>, String> {
    let indices = indices(ports)?;
    let told = devices().map_err(|error| format!("rtnetlink: {error}"))?;
    let of = |(port, index): (&Port, u32)| {
        told.get(&(index as i32))
            .copied()
            .ok_or_else(|| format!("interface {}: no such device", port.interface))
    };
    ports.iter().zip(indices).map(of).collect()
}

/// Of all devices of this network namespace, by number.
fn devices() -> Result<BTreeMap<i32, Counts>, ReplyError> {
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
