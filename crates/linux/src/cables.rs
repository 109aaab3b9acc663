//! The lab's links outside its nodes: virtual Ethernet devices, whose far ends are in a network namespace without a name.

use std::fs::File;
use std::sync::Arc;

use crate::Error;
use crate::netns::{self, apart};
use crate::packet_ring::PacketRing;
use crate::wiring::{NODES, Wiring};

/// Number of the far end of the device by which port 0 transmits. No end at a node has its number: the kernel would take the two for
/// one device.
const FIRST_FAR: u32 = 1 << 20;
/// Number of link 0's device at a node; 1 is `lo`.
const FIRST_NEAR: u32 = 2;

/// Where the far ends of devices are. They and the devices are there as long as this, or what comes and goes there.
#[derive(Clone)]
pub(crate) struct Far(Arc<File>);

impl Far {
    /// With what comes and goes there: IP packets of at most `longest` bytes.
    ///
    /// # Errors
    /// When privileges or packet sockets are missing.
    pub(crate) fn new(longest: u32) -> Result<(Self, PacketRing), Error> {
        apart(|| {
            netns::without_ipv6()?;
            let namespace = File::open("/proc/thread-self/ns/net")
                .map_err(|error| Error::os("open a network namespace", error))?;
            let ring = PacketRing::new(longest as usize, NODES).map_err(|error| match error.raw_os_error() {
                Some(libc::EAFNOSUPPORT) => Error::Missing(
                    "this kernel has no packet sockets: `modprobe af_packet`, or a kernel with CONFIG_PACKET".to_owned(),
                ),
                _ => Error::os("make a packet socket with a ring", error),
            })?;
            Ok((Self(Arc::new(namespace)), ring))
        })
    }

    /// Packets that the far ends dropped instead of handing them over; 0 where the kernel does not tell.
    pub(crate) fn unsent(&self) -> u64 {
        netns::enter(&self.0, "of far ends", || Ok(netns::unsent())).unwrap_or_default()
    }

    /// Makes the device `name` of a link, in the calling thread's network namespace; `port` transmits by it. Its number.
    ///
    /// # Errors
    /// When it cannot be made.
    pub(crate) fn add(&self, wiring: &mut Wiring, name: &str, port: usize, mtu: u32) -> Result<u32, Error> {
        let index = FIRST_NEAR + port as u32 / 2;
        wiring.add_cable(name, index, (&self.0, far_end(port)), mtu)?;
        Ok(index)
    }
}

/// Number of the far end of the device by which a port transmits.
pub(crate) const fn far_end(port: usize) -> u32 {
    FIRST_FAR + port as u32
}

/// The port that transmits by the device with this far end.
pub(crate) fn port_of(far_end: u32) -> Option<usize> {
    far_end.checked_sub(FIRST_FAR).map(|port| port as usize)
}

#[cfg(test)]
mod tests {
    use std::io::{self, Write as _};
    use std::net::{Ipv4Addr, UdpSocket};
    use std::time::Duration;

    use etherparse::Ipv4HeaderSlice;

    use super::*;
    use crate::packet_ring::BATCH;
    use crate::wiring::RouteMetrics;

    const HOST: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
    const PEER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

    /// A host at the end of link 0 whose packets have at most `mtu` bytes; none without root, which it says.
    fn host(test: &str, mtu: u32) -> Option<(Far, PacketRing, UdpSocket)> {
        if !nix::unistd::geteuid().is_root() {
            let _ = writeln!(io::stderr(), "skipped: {test}: needs root: network namespaces");
            return None;
        }
        let (far, ring) = Far::new(mtu).unwrap_or_else(|e| panic!("{e}"));
        let socket = apart(|| {
            netns::without_ipv6()?;
            let mut wiring = Wiring::new();
            let index = far.add(&mut wiring, "link", 0, mtu)?;
            wiring.add_address(index, HOST)?;
            wiring.add_route(index, PEER, RouteMetrics::default())?;
            let socket = UdpSocket::bind((HOST, 7)).expect("a socket");
            socket.connect((PEER, 7)).expect("a peer");
            Ok(socket)
        });
        Some((far, ring, socket.unwrap_or_else(|e| panic!("{e}"))))
    }

    /// Ones' complement sum of RFC 1071 over what a checksum covers: 0xffff when that is right.
    fn sum(parts: &[&[u8]]) -> u16 {
        let words = parts.iter().flat_map(|part| part.chunks(2));
        let all = words.map(|two| u32::from(two[0]) << 8 | u32::from(*two.get(1).unwrap_or(&0))).sum::<u32>();
        let all = (all & 0xffff) + (all >> 16);
        ((all & 0xffff) + (all >> 16)) as u16
    }

    /// What a host sends comes whole, once, in order, with its checksums; what is sent back with addresses changed its program reads.
    #[test]
    fn packets_go_out_and_come_back() {
        for mtu in [1_500, 65_535] {
            let Some((_far, mut ring, socket)) = host("packets_go_out_and_come_back", mtu) else { return };
            let sizes = [1, 18, 999, mtu as usize - 28];
            for (number, size) in sizes.iter().enumerate() {
                socket.send(&vec![number as u8 + 1; *size]).expect("room");
            }
            let mut back = Vec::new();
            while let Some((device, packet)) = ring.receive(|(device, bytes)| (device, bytes.to_vec())) {
                assert_eq!(port_of(device), Some(0));
                let ip = Ipv4HeaderSlice::from_slice(&packet).expect("IPv4");
                assert_eq!(usize::from(ip.total_len()), packet.len());
                let udp = &packet[20..];
                assert_eq!(sum(&[&packet[12..20], &[0, 17], &udp[4..6], udp]), 0xffff, "complete");
                let mut answer = packet.clone();
                answer[12..16].copy_from_slice(&PEER.octets());
                answer[16..20].copy_from_slice(&HOST.octets());
                back.push(answer);
            }
            assert_eq!(back.iter().map(|packet| packet.len() - 28).collect::<Vec<_>>(), sizes);
            let letters: Vec<_> = back.iter().map(|packet| (far_end(0), &packet[..])).collect();
            ring.send(&letters, |at| panic!("{at} was refused"));
            socket.set_read_timeout(Some(Duration::from_secs(1))).expect("a time");
            let mut buffer = vec![0; 65_535];
            for (number, size) in sizes.iter().enumerate() {
                let length = socket.recv(&mut buffer).expect("an answer");
                assert_eq!((length, buffer[0]), (*size, number as u8 + 1));
            }
            assert_eq!(ring.lost().expect("a count"), 0);
        }
    }

    /// Packets for a device that is not there are refused by their positions, the others go.
    #[test]
    fn a_refused_packet_holds_up_none() {
        let Some((far, mut ring, socket)) = host("a_refused_packet_holds_up_none", 1_500) else { return };
        socket.send(&[1; 100]).expect("room");
        let mut packet = ring.receive(|(_, bytes)| bytes.to_vec()).expect("a packet");
        packet[12..16].copy_from_slice(&PEER.octets());
        packet[16..20].copy_from_slice(&HOST.octets());
        let letters: Vec<_> = (0..BATCH).map(|i| (far_end(2 * (i % 2)), &packet[..])).collect();
        let mut refused = Vec::new();
        ring.send(&letters, |at| refused.push(at));
        assert_eq!(refused, (1..BATCH).step_by(2).collect::<Vec<_>>());
        socket.set_read_timeout(Some(Duration::from_millis(200))).expect("a time");
        let came = std::iter::from_fn(|| socket.recv(&mut [0; 200]).ok()).count();
        assert_eq!((came, far.unsent()), (BATCH / 2, 0));
    }

    /// A ring that nobody reads is full at some time. Each packet is read later, or counted as lost.
    #[test]
    fn what_finds_the_ring_full_is_counted() {
        let Some((_far, mut ring, socket)) = host("what_finds_the_ring_full_is_counted", 1_500) else {
            return;
        };
        let sent = 20_000;
        (0..sent).for_each(|_| drop(socket.send(&[0; 50])));
        let read = std::iter::from_fn(|| ring.receive(|_| ())).count() as u64;
        let lost = ring.lost().expect("a count");
        assert!(lost > 0 && read + lost == sent, "{read} read, {lost} lost");
        socket.send(&[0; 50]).expect("room");
        assert!(ring.receive(|_| ()).is_some(), "it goes on");
    }
}
