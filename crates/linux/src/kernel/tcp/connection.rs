//! A connection as the kernel reports it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use bandmaster_core::time::Span;
use serde::{Deserialize, Serialize};

use super::NAME;

/// Bytes of `struct row`.
pub(super) const ROW: usize = 184;

/// Bytes of a TCP header without options.
const PLAIN_HEADER: u16 = 20;

/// A live connection, as its host sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Connection {
    /// Its number, which no other has until the machine starts again.
    pub cookie: u64,
    /// Address and port here.
    pub local: (IpAddr, u16),
    /// Address and port there.
    pub remote: (IpAddr, u16),
    /// User whose program it belongs to.
    pub user: u32,
    /// Payload bytes that the other end has acknowledged.
    pub acknowledged: u64,
    /// Payload bytes received in order.
    pub received: u64,
    /// Congestion window, segments.
    pub cwnd: u32,
    /// Most segments in it.
    pub window_cap: u32,
    /// Smoothed round-trip time; none before the first measurement.
    pub srtt: Option<Span>,
    /// The last measurement of it.
    pub last_rtt: Option<Span>,
    /// Least round-trip time; none before the first measurement.
    pub min_rtt: Option<Span>,
    /// Round-trip time as its receiver measures it, from marks or from window to window; none before the first measurement.
    pub receiver_rtt: Option<Span>,
    /// The last measurement of it, and the least; none where the kernel alone measures.
    pub last_receiver_rtt: Option<Span>,
    /// See there.
    pub least_receiver_rtt: Option<Span>,
    /// Payload bytes of a segment that comes.
    pub came_mss: u32,
    /// Bytes of the TCP header of a segment without more options than each has: 20, or 32 with timestamps.
    pub header: u16,
    /// Payload bytes of a segment that it sends.
    pub mss: u32,
    /// Data segments sent, those sent again included.
    pub data_segments: u32,
    /// Segments sent again.
    pub resent: u32,
    /// Congestion control.
    pub control: String,
    /// Least retransmission timeout.
    pub least_timeout: Span,
    /// Most that leaves in a second, bytes; none: without a limit.
    pub pacing_rate: Option<u64>,
    /// Most that the receiver's window offers, bytes.
    pub receive_window: u32,
    /// It carries data, or may: it is neither a listening socket nor one that begins or ends.
    pub carries: bool,
    /// Its window is [set](super::HostTcp::set_window) with each segment that leaves.
    pub followed: bool,
    /// What it had before it was set when it began; none: it was not.
    pub before: Option<Before>,
}

/// What a connection had before it was set.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Before {
    /// Congestion control.
    pub control: String,
    /// Least retransmission timeout.
    pub least_timeout: Span,
    /// Most segments in the congestion window.
    pub window_cap: u32,
    /// Most that leaves in a second, bytes; none: without a limit.
    pub pacing_rate: Option<u64>,
    /// Most that the receiver's window offers, bytes; none: that was left alone.
    #[serde(default)]
    pub receive_window: Option<u32>,
}

impl Before {
    /// `struct before`; all zeros: none.
    fn parse(bytes: &[u8], tick: Span) -> Option<Self> {
        let control = control(&bytes[..NAME]);
        let u32_at = |at: usize| u32::from_ne_bytes(std::array::from_fn(|i| bytes[at + i]));
        let rate = u64::from_ne_bytes(std::array::from_fn(|i| bytes[NAME + i]));
        (!control.is_empty()).then_some(Self {
            control,
            pacing_rate: Some(rate).filter(|rate| *rate != u64::MAX),
            least_timeout: tick * u64::from(u32_at(NAME + 8)),
            window_cap: u32_at(NAME + 12),
            receive_window: None,
        })
    }
}

fn control(name: &[u8]) -> String {
    String::from_utf8_lossy(name).trim_end_matches('\0').to_owned()
}

impl Connection {
    /// Both ends mark their segments with timestamps.
    pub const fn has_timestamps(&self) -> bool {
        self.header > PLAIN_HEADER
    }

    /// `struct row`.
    pub(super) fn parse(row: &[u8; ROW], tick: Span) -> Self {
        let u64_at = |at: usize| u64::from_ne_bytes(std::array::from_fn(|i| row[at + i]));
        let u32_at = |at: usize| u32::from_ne_bytes(std::array::from_fn(|i| row[at + i]));
        let u16_at = |at: usize| u16::from_ne_bytes([row[at], row[at + 1]]);
        let is_ipv4 = u16_at(60) == libc::AF_INET as u16;
        let address = |at: usize| -> IpAddr {
            if is_ipv4 {
                Ipv4Addr::from(std::array::from_fn::<u8, 4, _>(|i| row[at + i])).into()
            } else {
                // An IPv4 address of a socket for both is what it is for everybody else.
                Ipv6Addr::from(std::array::from_fn::<u8, 16, _>(|i| row[at + i])).to_canonical()
            }
        };
        let span = |at: usize| {
            let micros = u32_at(at);
            (micros > 0 && micros < u32::MAX).then(|| Span::from_micros(micros.into()))
        };
        Self {
            cookie: u64_at(0),
            acknowledged: u64_at(8),
            received: u64_at(16),
            local: (address(24), u16_at(56)),
            remote: (address(40), u16_at(58)),
            cwnd: u32_at(64),
            window_cap: u32_at(68),
            srtt: span(72),
            last_rtt: span(172),
            min_rtt: span(76),
            mss: u32_at(80),
            data_segments: u32_at(84),
            resent: u32_at(88),
            user: u32_at(92),
            pacing_rate: Some(u64_at(96)).filter(|rate| *rate != u64::MAX),
            least_timeout: tick * u64::from(u32_at(104)),
            receive_window: u32_at(108),
            control: control(&row[112..112 + NAME]),
            carries: row[62] != 0,
            followed: row[63] != 0,
            before: Before::parse(&row[112 + NAME..], tick),
            receiver_rtt: span(160),
            came_mss: u32_at(164),
            header: u16_at(168),
            last_receiver_rtt: span(176),
            least_receiver_rtt: span(180),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_read_as_the_program_writes_it() {
        let mut row = [0; ROW];
        row[..8].copy_from_slice(&7u64.to_ne_bytes());
        row[8..16].copy_from_slice(&1_000_000u64.to_ne_bytes());
        row[24..28].copy_from_slice(&[10, 0, 0, 1]);
        row[40..44].copy_from_slice(&[10, 0, 0, 2]);
        row[56..58].copy_from_slice(&5001u16.to_ne_bytes());
        row[60..62].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
        row[64..68].copy_from_slice(&20u32.to_ne_bytes());
        row[72..76].copy_from_slice(&50_000u32.to_ne_bytes());
        row[76..80].copy_from_slice(&u32::MAX.to_ne_bytes());
        let connection = Connection::parse(&row, Span::from_millis(4));
        assert_eq!((connection.cookie, connection.acknowledged, connection.cwnd), (7, 1_000_000, 20));
        assert_eq!(connection.local, (IpAddr::from([10, 0, 0, 1]), 5001));
        assert_eq!((connection.srtt, connection.min_rtt), (Some(Span::from_millis(50)), None));
        row[60..62].copy_from_slice(&(libc::AF_INET6 as u16).to_ne_bytes());
        row[24..40].copy_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 3]);
        assert_eq!(Connection::parse(&row, Span::from_millis(4)).local.0, IpAddr::from([10, 0, 0, 3]));
    }
}
