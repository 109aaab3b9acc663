//! A packet socket for all devices of a network namespace: what they receive comes by a ring shared with the kernel, what
//! they send goes many packets to a system call. See packet(7) and Documentation/networking/packet_mmap.rst.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::{AtomicU32, Ordering};

use libc::{
    PACKET_QDISC_BYPASS, PACKET_RX_RING, PACKET_STATISTICS, PACKET_VERSION, SOL_PACKET, TP_STATUS_KERNEL,
    TP_STATUS_USER, iovec, mmsghdr, sockaddr_ll, tpacket_req, tpacket_stats, tpacket2_hdr,
};
use socket2::{Domain, Protocol, Socket, Type};

use crate::syscall::set_option;

/// Packets sent by one system call.
pub(crate) const BATCH: usize = 64;
/// Bytes of an Ethernet header.
pub(crate) const ETHERNET: usize = 14;
/// Memory of a ring: at 250,000 packets/s it holds those of 65 ms, more than the kernel ever stops a real-time thread for.
const RING: usize = 32 << 20;
/// Least of a frame and of a block of them; both are powers of two.
const FRAME: usize = 2_048;
const BLOCK: usize = 1 << 17;
/// What the ring keeps before a packet: its header and an address, aligned, and room for that of Ethernet.
const BEFORE: usize = 128;
/// Where the address of a frame's device is.
const ADDRESS: usize = size_of::<tpacket2_hdr>().next_multiple_of(16);
/// `ETH_P_IP`.
const IPV4: u16 = 0x0800;

/// A packet to send: the number of its device, and from its IP header on.
pub(crate) type Outgoing<'a> = (u32, &'a [u8]);

/// The socket and its ring.
pub(crate) struct PacketRing {
    socket: Socket,
    map: NonNull<u8>,
    /// Bytes of a frame.
    frame: usize,
    frames: usize,
    next: usize,
    /// Before each packet that is sent.
    header: [u8; ETHERNET],
}

// SAFETY: the mapping is its own, and goes with it; nothing of it belongs to a thread.
unsafe impl Send for PacketRing {}

impl PacketRing {
    /// For IPv4 packets of at most `longest` bytes, in the calling thread's network namespace. What it sends goes from and to the
    /// Ethernet address `peers`.
    ///
    /// # Errors
    /// When the kernel or privileges do not allow it.
    pub(crate) fn new(longest: usize, peers: [u8; 6]) -> io::Result<Self> {
        // Protocol 0: nothing comes before it is bound.
        let socket = Socket::new(Domain::PACKET, Type::RAW.nonblocking(), Some(Protocol::from(0)))?;
        set_option(&socket, SOL_PACKET, PACKET_VERSION, libc::tpacket_versions::TPACKET_V2 as i32)?;
        // What is sent is not queued at the device.
        set_option(&socket, SOL_PACKET, PACKET_QDISC_BYPASS, 1)?;
        let frame = (BEFORE + longest).next_power_of_two().max(FRAME);
        let block = frame.max(BLOCK);
        let (frames, blocks) = (RING / frame, RING / block);
        let request = tpacket_req {
            tp_block_size: block as u32,
            tp_block_nr: blocks as u32,
            tp_frame_size: frame as u32,
            tp_frame_nr: frames as u32,
        };
        set(&socket, PACKET_RX_RING, &request)?;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at a place of the kernel's choice, of the whole ring of an open socket.
        let map =
            unsafe { libc::mmap(ptr::null_mut(), RING, access, libc::MAP_SHARED, socket.as_raw_fd(), 0) };
        let map = Some(map).filter(|map| *map != libc::MAP_FAILED).and_then(|map| NonNull::new(map.cast()));
        let map = map.ok_or_else(io::Error::last_os_error)?;
        let mut header = [0; ETHERNET];
        header[..6].copy_from_slice(&peers);
        header[6..12].copy_from_slice(&peers);
        header[12..].copy_from_slice(&IPV4.to_be_bytes());
        let ring = Self { socket, map, frame, frames, next: 0, header };
        ring.bind()?;
        Ok(ring)
    }

    /// From now on the packets of all devices come.
    fn bind(&self) -> io::Result<()> {
        let address = address(0);
        // SAFETY: the descriptor is open; the kernel reads one `sockaddr_ll`, which is live.
        let done = unsafe {
            libc::bind(
                self.socket.as_raw_fd(),
                (&raw const address).cast(),
                size_of::<sockaddr_ll>() as libc::socklen_t,
            )
        };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// The next packet that a device has received; none: there is none now.
    pub(crate) fn receive<T>(&mut self, see: impl FnOnce(Outgoing<'_>) -> T) -> Option<T> {
        // SAFETY: the ring has `frames` frames, each at a multiple of `frame`, aligned for the header at its begin.
        let frame = unsafe { self.map.as_ptr().add(self.next * self.frame) };
        let header = frame.cast::<tpacket2_hdr>();
        // SAFETY: the kernel and this program change this word by atomic accesses only; it lives as long as the mapping.
        let status = unsafe { AtomicU32::from_ptr(&raw mut (*header).tp_status) };
        if status.load(Ordering::Acquire) & TP_STATUS_USER == 0 {
            return None;
        }
        // SAFETY: with that status the kernel leaves the frame alone until it is given back. It has put an address behind the header, and
        // a packet between `tp_mac` and `tp_mac + tp_snaplen`, all inside the frame.
        let (device, packet) = unsafe {
            let tpacket2_hdr { tp_snaplen, tp_mac, tp_net, .. } = *header;
            let address = &*frame.add(ADDRESS).cast::<sockaddr_ll>();
            let length = (usize::from(tp_mac) + tp_snaplen as usize).saturating_sub(usize::from(tp_net));
            (address.sll_ifindex as u32, slice::from_raw_parts(frame.add(tp_net.into()), length))
        };
        let seen = see((device, packet));
        status.store(TP_STATUS_KERNEL, Ordering::Release);
        self.next = (self.next + 1) % self.frames;
        Some(seen)
    }

    /// Sends at most [`BATCH`] packets in their order; `refused` has the positions of those that were not taken.
    pub(crate) fn send(&self, packets: &[Outgoing<'_>], mut refused: impl FnMut(usize)) {
        // SAFETY: all zero bytes are valid values of these C structures.
        let (mut parts, mut addresses, mut messages): (
            [[iovec; 2]; BATCH],
            [sockaddr_ll; BATCH],
            [mmsghdr; BATCH],
        ) = unsafe { std::mem::zeroed() };
        let count = packets.len().min(BATCH);
        for (i, (device, packet)) in packets[..count].iter().enumerate() {
            addresses[i] = address(*device);
            // The kernel only reads what is sent.
            parts[i] = [
                iovec { iov_base: self.header.as_ptr().cast_mut().cast(), iov_len: ETHERNET },
                iovec { iov_base: packet.as_ptr().cast_mut().cast(), iov_len: packet.len() },
            ];
            let message = &mut messages[i].msg_hdr;
            message.msg_name = (&raw mut addresses[i]).cast();
            message.msg_namelen = size_of::<sockaddr_ll>() as libc::socklen_t;
            message.msg_iov = parts[i].as_mut_ptr();
            message.msg_iovlen = 2;
        }
        let mut done = 0;
        while done < count {
            // SAFETY: the descriptor is open; `count - done` messages lie there, each with an address and two parts that live on.
            let sent = unsafe {
                libc::sendmmsg(
                    self.socket.as_raw_fd(),
                    messages[done..].as_mut_ptr(),
                    (count - done) as u32,
                    libc::MSG_DONTWAIT,
                )
            };
            match usize::try_from(sent) {
                Ok(sent) if sent > 0 => done += sent,
                // The first of the rest.
                _ => {
                    refused(done);
                    done += 1;
                }
            }
        }
    }

    /// Packets that found the ring full since this was asked last.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub(crate) fn lost(&self) -> io::Result<u64> {
        let mut stats = tpacket_stats { tp_packets: 0, tp_drops: 0 };
        let mut length = size_of_val(&stats) as libc::socklen_t;
        // SAFETY: the descriptor is open; the kernel writes at most `length` bytes into `stats`, which is live.
        let done = unsafe {
            libc::getsockopt(
                self.socket.as_raw_fd(),
                SOL_PACKET,
                PACKET_STATISTICS,
                (&raw mut stats).cast(),
                &raw mut length,
            )
        };
        if done == 0 { Ok(stats.tp_drops.into()) } else { Err(io::Error::last_os_error()) }
    }
}

impl AsFd for PacketRing {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for PacketRing {
    fn drop(&mut self) {
        // SAFETY: the mapping was made with this length, and nothing borrows of it any more.
        unsafe { libc::munmap(self.map.as_ptr().cast(), RING) };
    }
}

/// A device, for packets of IPv4; 0 is all of them.
fn address(device: u32) -> sockaddr_ll {
    sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: IPV4.to_be(),
        sll_ifindex: device as i32,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    }
}

/// Sets an option of packet sockets.
fn set<T>(socket: &Socket, option: i32, value: &T) -> io::Result<()> {
    // SAFETY: the descriptor is open; the kernel reads `size_of::<T>()` bytes of a live value.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            SOL_PACKET,
            option,
            ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
