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
