//! Reads connections through `sock_diag`, as `ss` does, where the kernel takes no program.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use bandmaster_core::time::Span;
use netlink_bindings::inet_diag::{Msg, ReqV2, Request};
use netlink_socket2::{NetlinkSocket, ReplyError};

use crate::kernel::tcp::Connection;
use crate::syscall::TcpInfo;

/// `TCP_ESTABLISHED`, `TCP_FIN_WAIT1` and `TCP_CLOSE_WAIT`, a bit each: connections that carry data.
const CARRY: u32 = 1 << 1 | 1 << 4 | 1 << 8;
/// `INET_DIAG_INFO`.
const INFO: u8 = 2;

/// All of the calling thread's namespace that carry data.
pub(super) fn look() -> Result<Vec<Connection>, ReplyError> {
    let mut all = Vec::new();
    for family in [libc::AF_INET, libc::AF_INET6] {
        let header = ReqV2 {
            family: family as u8,
            protocol: libc::IPPROTO_TCP as u8,
            ext: 1 << (INFO - 1),
            states: CARRY,
            ..ReqV2::default()
        };
        let mut socket = NetlinkSocket::new();
        let request = Request::new().op_tcp_diag_dump(&header);
        let mut answer = socket.request(&request)?;
        while let Some(item) = answer.recv() {
            let (message, attributes) = item?;
            let info = super::routes::split(attributes.get_buf());
            let info = info.into_iter().find(|(kind, _)| *kind == u16::from(INFO));
            all.push(connection(&message, &info.map(|(_, bytes)| bytes).unwrap_or_default()));
        }
    }
    Ok(all)
}

fn connection(message: &Msg, info: &[u8]) -> Connection {
    let id = &message.sockid;
    let is_ipv4 = i32::from(message.family) == libc::AF_INET;
    let address = |bytes: [u8; 16]| -> IpAddr {
        match is_ipv4 {
            true => Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3]).into(),
            // An IPv4 address of a socket for both is what it is for everybody else.
            false => Ipv6Addr::from(bytes).to_canonical(),
        }
    };
    let tcp = TcpInfo::parse(info);
    Connection {
        cookie: u64::from_ne_bytes(id.cookie),
        local: (address(id.src), u16::from_be(id._sport_be)),
        remote: (address(id.dst), u16::from_be(id._dport_be)),
        user: message.uid,
        acknowledged: tcp.acknowledged,
        received: tcp.received,
        cwnd: tcp.cwnd,
        window_cap: u32::MAX,
        srtt: tcp.srtt,
        last_rtt: None,
        min_rtt: tcp.min_rtt,
        receiver_rtt: tcp.receiver_rtt,
        last_receiver_rtt: None,
        least_receiver_rtt: None,
        came_mss: tcp.came_mss,
        header: if tcp.timestamps { 32 } else { 20 },
        mss: tcp.mss,
        data_segments: tcp.data_segments,
        resent: tcp.retransmits,
        control: String::new(),
        least_timeout: Span::ZERO,
        pacing_rate: None,
        receive_window: 0,
        carries: true,
        followed: false,
        before: None,
    }
}
