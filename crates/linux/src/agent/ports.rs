//! Ports of a router: what they have sent and dropped, as the kernel counts it.

use std::collections::BTreeMap;

use bandmaster_core::agent::Port;
use bandmaster_core::control::PortStats;
use bandmaster_core::id::PortId;
use bandmaster_core::units::Bytes;
use netlink_bindings::rt_link::{self, Ifinfomsg};
use netlink_bindings::tc::{self, Tcmsg};
use netlink_socket2::{NetlinkSocket, ReplyError};

/// `TC_H_ROOT`.
const ROOT: u32 = u32::MAX;

/// The ports, in the order of the file.
#[derive(Default)]
pub(super) struct Ports {
    ports: Vec<Port>,
    /// What each had when it was last there: counts of a device that is away stand still.
    last: Vec<Counts>,
    /// What goes on from a device that was made anew.
    before: Vec<Counts>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Counts {
    sent: u64,
    packets: u64,
    dropped: u64,
    backlog: u32,
}

impl Ports {
    pub(super) fn new(ports: &[Port]) -> Self {
        let none = vec![Counts::default(); ports.len()];
        Self { ports: ports.to_vec(), last: none.clone(), before: none }
    }

    /// Those that are not there.
    pub(super) fn missing(&self) -> Vec<&str> {
        let is_missing = |interface: &&str| nix::net::if_::if_nametoindex(*interface).is_err();
        self.ports.iter().map(|port| port.interface.as_str()).filter(is_missing).collect()
    }

    /// None while one of them is away, or the kernel does not tell: nobody takes that for an idle port.
    pub(super) fn read(&mut self) -> Vec<PortStats> {
        let now = counts().unwrap_or_default();
        let find = |port: &Port| {
            let index = nix::net::if_::if_nametoindex(port.interface.as_str()).ok()?;
            now.get(&(index as i32)).copied()
        };
        let Some(now) = self.ports.iter().map(find).collect::<Option<Vec<Counts>>>() else {
            return Vec::new();
        };
        let mut all = Vec::with_capacity(self.ports.len());
        for (at, (port, now)) in self.ports.iter().zip(now).enumerate() {
            let last = std::mem::replace(&mut self.last[at], now);
            let before = &mut self.before[at];
            // A device that was made anew, or its queue discipline, counts from zero.
            for (before, last, now) in [
                (&mut before.sent, last.sent, now.sent),
                (&mut before.packets, last.packets, now.packets),
                (&mut before.dropped, last.dropped, now.dropped),
            ] {
                if now < last {
                    *before += last;
                }
            }
            let dropped = before.dropped + now.dropped;
            all.push(PortStats {
                port: PortId(at as u32),
                capacity: port.rate,
                flows_seen: 0,
                flows_open: 0,
                backlog: Bytes::new(now.backlog.into()),
                sent: Bytes::new(before.sent + now.sent),
                offered: before.packets + now.packets + dropped,
                dropped,
            });
        }
        all
    }
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
        all.insert(header.ifi_index, Counts { sent, packets, dropped, backlog: 0 });
    }
    let request = tc::Request::new().op_getqdisc_dump(&Tcmsg::default());
    let mut answer = socket.request(&request)?;
    while let Some(item) = answer.recv() {
        let (header, attributes) = item?;
        if let Some(counts) = all.get_mut(&header.ifindex).filter(|_| header.parent == ROOT) {
            let queue = attributes.get_stats2()?.get_queue()?;
            counts.backlog = queue.backlog;
            // A queue discipline's drops are in `tx_dropped` of some devices and not of others: the larger count has them all.
            counts.dropped = counts.dropped.max(queue.drops.into());
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use bandmaster_core::units::Rate;

    use super::*;

    #[test]
    fn a_port_counts_and_one_that_is_away_is_not_taken_for_idle() {
        let port = |interface: &str| Port {
            interface: interface.to_owned(),
            rate: Rate::from_bits_per_sec(1_000_000),
        };
        let mut ports = Ports::new(&[port("lo"), port("no-such-port")]);
        assert_eq!(ports.missing(), ["no-such-port"]);
        assert!(ports.read().is_empty());
        let mut ports = Ports::new(&[port("lo")]);
        let before = ports.read();
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port");
        socket.send_to(&[0; 1000], socket.local_addr().expect("bound")).expect("sent");
        let after = ports.read();
        assert!(after[0].sent.get() >= before[0].sent.get() + 1000 && after[0].offered > before[0].offered);
        // A queue made anew counts from zero: what was counted stays, and nothing else moves.
        ports.last[0].dropped += 7;
        let anew = ports.read();
        assert_eq!(anew[0].dropped, after[0].dropped + 7);
        assert!(anew[0].sent.get() < after[0].sent.get() + 100_000_000);
    }
}
