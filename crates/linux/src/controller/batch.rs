//! Datagrams that wait to be sent, many per system call.

use std::io::IoSlice;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;

use bandmaster_core::id::NodeId;
use nix::sys::socket::{MsgFlags, MultiHeaders, SockaddrStorage, sendmmsg};

/// Datagrams that one call sends.
const MOST: usize = 64;

/// Datagrams in the order in which they are sent, each with the node that it is for.
pub(super) struct Batch {
    waiting: Vec<(NodeId, Vec<u8>)>,
    addresses: Vec<Option<SockaddrStorage>>,
    headers: MultiHeaders<SockaddrStorage>,
}

/// What became of a batch.
#[derive(Default, PartialEq, Eq, Debug)]
pub(super) struct Sent {
    /// Datagrams that the kernel took.
    pub(super) sent: u64,
    /// Nodes of those that it refused.
    pub(super) refused: Vec<NodeId>,
}

impl Default for Batch {
    fn default() -> Self {
        let (waiting, addresses) = (Vec::with_capacity(MOST), Vec::with_capacity(MOST));
        Self { waiting, addresses, headers: MultiHeaders::preallocate(MOST, None) }
    }
}

impl Batch {
    /// Adds a datagram; true: the batch is full now.
    pub(super) fn add(&mut self, node: NodeId, to: SocketAddr, bytes: Vec<u8>) -> bool {
        self.waiting.push((node, bytes));
        self.addresses.push(Some(to.into()));
        self.waiting.len() >= MOST
    }

    /// Sends all that waits.
    pub(super) fn send(&mut self, socket: &UdpSocket) -> Sent {
        let mut result = Sent::default();
        let mut done = 0;
        while done < self.waiting.len() {
            let slices: Vec<[IoSlice<'_>; 1]> =
                self.waiting[done..].iter().map(|(_, bytes)| [IoSlice::new(bytes)]).collect();
            let (descriptor, addresses) = (socket.as_raw_fd(), &self.addresses[done..]);
            let flags = MsgFlags::MSG_DONTWAIT;
            match sendmmsg(descriptor, &mut self.headers, slices.iter(), addresses, [], flags) {
                // The kernel stops at one that it refuses, and says why at the next call, whose first it is.
                Ok(all) => {
                    let sent = all.count();
                    result.sent += sent as u64;
                    done += sent;
                }
                Err(_) => {
                    result.refused.push(self.waiting[done].0);
                    done += 1;
                }
            }
        }
        self.waiting.clear();
        self.addresses.clear();
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_sent_in_order_but_those_that_the_kernel_refuses() {
        for any in ["127.0.0.1:0", "[::1]:0"] {
            let (here, there) =
                (UdpSocket::bind(any).expect("a port"), UdpSocket::bind(any).expect("a port"));
            let to = there.local_addr().expect("bound");
            let mut batch = Batch::default();
            assert_eq!(batch.send(&here), Sent::default());
            // Longer than a datagram can be: nobody takes it.
            let too_long = |number: u8| [3, 4, 9].contains(&number);
            for number in 0..10 {
                let length = if too_long(number) { 70_000 } else { 1 + usize::from(number) };
                assert!(!batch.add(NodeId(number.into()), to, vec![number; length]));
            }
            let sent = batch.send(&here);
            assert_eq!(sent, Sent { sent: 7, refused: vec![NodeId(3), NodeId(4), NodeId(9)] });
            let mut buffer = [0; 100];
            for number in (0..10).filter(|number| !too_long(*number)) {
                let (length, from) = there.recv_from(&mut buffer).expect("it was sent");
                assert_eq!(buffer[..length], vec![number; 1 + usize::from(number)]);
                assert_eq!(from, here.local_addr().expect("bound"));
            }
            assert_eq!(batch.send(&here), Sent::default(), "nothing is sent twice");
            for number in 1..=MOST {
                assert_eq!(batch.add(NodeId(0), to, vec![1]), number == MOST);
            }
            assert_eq!(batch.send(&here).sent, MOST as u64);
        }
    }
}
