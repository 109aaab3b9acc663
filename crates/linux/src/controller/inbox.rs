//! Received datagrams, many per system call.

use std::io::IoSliceMut;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;

use nix::sys::socket::{MsgFlags, MultiHeaders, SockaddrStorage, recvmmsg};

/// Datagrams that one call takes.
const BATCH: usize = 64;
/// Longest datagram: a host reports all its flows in one. A little more, so that buffers begin in different sets of a cache.
const MOST_DATAGRAM: usize = 65_536 + 192;

/// Datagrams that were received and not yet examined.
pub(super) struct Inbox {
    buffers: Vec<[u8; MOST_DATAGRAM]>,
    headers: MultiHeaders<SockaddrStorage>,
    /// Length and sender of those that are there.
    came: Vec<(usize, Option<SocketAddr>)>,
    next: usize,
}

impl Default for Inbox {
    fn default() -> Self {
        Self {
            buffers: vec![[0; MOST_DATAGRAM]; BATCH],
            headers: MultiHeaders::preallocate(BATCH, None),
            came: Vec::with_capacity(BATCH),
            next: 0,
        }
    }
}

impl Inbox {
    /// Takes datagrams that wait at `socket`, instead of those that are there; how many.
    pub(super) fn fetch(&mut self, socket: &UdpSocket) -> usize {
        self.came.clear();
        self.next = 0;
        let mut slices: Vec<[IoSliceMut<'_>; 1]> =
            self.buffers.iter_mut().map(|buffer| [IoSliceMut::new(buffer)]).collect();
        let flags = MsgFlags::MSG_DONTWAIT;
        // An error is that of a datagram of ours which came back, or nothing is there: the loop looks again.
        if let Ok(all) = recvmmsg(socket.as_raw_fd(), &mut self.headers, slices.iter_mut(), flags, None) {
            self.came.extend(all.map(|one| (one.bytes, one.address.as_ref().and_then(address))));
        }
        self.came.len()
    }

    /// The next of those that were fetched, and where it came from.
    pub(super) fn next(&mut self) -> Option<(&[u8], SocketAddr)> {
        while let Some(&(length, from)) = self.came.get(self.next) {
            let buffer = &self.buffers[self.next];
            self.next += 1;
            if let Some(from) = from {
                return Some((&buffer[..length], from));
            }
        }
        None
    }
}

fn address(from: &SockaddrStorage) -> Option<SocketAddr> {
    let v4 = from.as_sockaddr_in().map(|v4| SocketAddr::new(v4.ip().into(), v4.port()));
    v4.or_else(|| from.as_sockaddr_in6().map(|v6| SocketAddr::from(std::net::SocketAddrV6::from(*v6))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_come_in_order_with_their_senders() {
        for any in ["127.0.0.1:0", "[::1]:0"] {
            let (here, there) =
                (UdpSocket::bind(any).expect("a port"), UdpSocket::bind(any).expect("a port"));
            let mut inbox = Inbox::default();
            assert!(inbox.fetch(&here) == 0 && inbox.next().is_none());
            let to = here.local_addr().expect("bound");
            for number in 0..100u8 {
                there.send_to(&vec![number; usize::from(number)], to).expect("sent");
            }
            let mut seen = 0u8;
            while inbox.fetch(&here) > 0 {
                while let Some((bytes, from)) = inbox.next() {
                    assert_eq!(
                        (bytes, from),
                        (&vec![seen; usize::from(seen)][..], there.local_addr().expect("bound"))
                    );
                    seen += 1;
                }
            }
            assert_eq!(seen, 100);
        }
    }
}
