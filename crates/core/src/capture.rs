//! What a packet capture holds, in the terms of the wire.

use crate::id::{NodeId, PortId};
use crate::time::Time;

/// A packet as it is handed to a port's transmitter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CapturedPacket {
    /// When.
    pub at: Time,
    /// Where.
    pub port: PortId,
    /// Sending host.
    pub src: NodeId,
    /// Receiving host.
    pub dst: NodeId,
    /// Source port number.
    pub src_port: u16,
    /// Destination port number.
    pub dst_port: u16,
    /// Second byte of the IPv4 header: DSCP (RFC 2474) and ECN (RFC 3168).
    pub tos: u8,
    /// Payload bytes after the transport header.
    pub payload: u32,
    /// Transport header.
    pub transport: CapturedTransport,
}

/// Transport header of a captured packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CapturedTransport {
    /// UDP.
    Udp,
    /// TCP (RFC 9293).
    Tcp(CapturedTcp),
}

/// TCP header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CapturedTcp {
    /// Sequence number.
    pub seq: u32,
    /// Acknowledgement number.
    pub ack: u32,
    /// Flags: FIN 1, SYN 2, RST 4, PSH 8, ACK 16, URG 32, ECE 64, CWR 128.
    pub flags: u8,
    /// Window field as on the wire (scaled).
    pub window: u16,
    /// Maximum segment size option (SYN).
    pub mss: Option<u16>,
    /// Window scale option (SYN).
    pub window_scale: Option<u8>,
    /// SACK permitted option (SYN).
    pub sack_permitted: bool,
    /// Timestamps option: value and echo.
    pub timestamps: Option<(u32, u32)>,
    /// SACK blocks, the first `sack_count` of them: left and right edge.
    pub sack: [(u32, u32); 4],
    /// Number of SACK blocks.
    pub sack_count: u8,
}
