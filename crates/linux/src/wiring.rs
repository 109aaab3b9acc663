//! Devices, addresses and routes in the calling thread's network namespace, by netlink.

use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::OpenOptionsExt;

use netlink_bindings::traits::NetlinkRequest;
use netlink_bindings::{rt_addr, rt_link, rt_route};
use netlink_socket2::NetlinkSocket;

use crate::Error;
use crate::syscall;

/// Packets that a device holds for its reader; a burst of a whole window is less.
const DEVICE_PACKETS: u32 = 20_000;
/// `RT_TABLE_MAIN`, `RTPROT_STATIC`, `RT_SCOPE_LINK`, `RTN_UNICAST`.
const MAIN: u8 = 254;
const STATIC: u8 = 4;
const ON_LINK: u8 = 253;
const UNICAST: u8 = 1;

/// A connection to the kernel's tables in one network namespace.
pub(crate) struct Wiring {
    socket: NetlinkSocket,
}

/// What a route tells TCP.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct RouteMetrics {
    /// Initial congestion window in segments; none: the kernel's.
    pub(crate) initial_window: Option<u32>,
    /// Acknowledge every segment.
    pub(crate) quick_acknowledgements: bool,
}

impl Wiring {
    /// Of the calling thread's network namespace.
    pub(crate) fn new() -> Self {
        Self { socket: NetlinkSocket::new() }
    }

    /// Makes a TUN device called `name` and gives its other side, without blocking reads.
    pub(crate) fn add_tun(&mut self, name: &str, mtu: u32) -> Result<(File, u32), Error> {
        let file = make_tun(name)?;
        let index = index(name)?;
        self.bring_up(index, name, |request| {
            request.push_mtu(mtu).push_txqlen(DEVICE_PACKETS).push_gso_max_segs(1);
        })?;
        Ok((file, index))
    }

    /// Brings `lo` up.
    pub(crate) fn bring_up_loopback(&mut self) -> Result<u32, Error> {
        let index = index("lo")?;
        self.bring_up(index, "lo", |_| ())?;
        Ok(index)
    }

    fn bring_up(
        &mut self,
        index: u32,
        name: &str,
        settings: impl FnOnce(rt_link::PushLinkAttrs<&mut Vec<u8>>),
    ) -> Result<(), Error> {
        let up = rt_link::IfinfoFlags::Up as u32;
        let header = rt_link::Ifinfomsg {
            ifi_index: index as i32,
            ifi_flags: up,
            ifi_change: up,
            ..rt_link::Ifinfomsg::default()
        };
        let mut request = rt_link::Request::new().op_setlink_do(&header);
        settings(request.encode());
        self.ask(&request, || format!("bring {name} up"))
    }

    /// Gives a device an address of its own.
    pub(crate) fn add_address(&mut self, index: u32, address: Ipv4Addr) -> Result<(), Error> {
        let header = rt_addr::Ifaddrmsg {
            ifa_family: libc::AF_INET as u8,
            ifa_prefixlen: 32,
            ifa_index: index,
            ..rt_addr::Ifaddrmsg::default()
        };
        let mut request = rt_addr::Request::new().set_create().set_excl().op_newaddr_do(&header);
        request.encode().push_local(IpAddr::V4(address)).push_address(IpAddr::V4(address));
        self.ask(&request, || format!("add the address {address}"))
    }

    /// Sends packets to `address` over a device.
    pub(crate) fn add_route(
        &mut self,
        index: u32,
        address: Ipv4Addr,
        metrics: RouteMetrics,
    ) -> Result<(), Error> {
        let header = rt_route::Rtmsg {
            rtm_family: libc::AF_INET as u8,
            rtm_dst_len: 32,
            rtm_table: MAIN,
            rtm_protocol: STATIC,
            rtm_scope: ON_LINK,
            rtm_type: UNICAST,
            ..rt_route::Rtmsg::default()
        };
        let mut request = rt_route::Request::new().set_create().set_excl().op_newroute_do(&header);
        let attrs = request.encode().push_dst(IpAddr::V4(address)).push_oif(index);
        if metrics != RouteMetrics::default() {
            let mut nested = attrs.nested_metrics();
            if let Some(segments) = metrics.initial_window {
                nested = nested.push_initcwnd(segments);
            }
            if metrics.quick_acknowledgements {
                nested = nested.push_quickack(1);
            }
            drop(nested.end_nested());
        } else {
            drop(attrs);
        }
        self.ask(&request, || format!("add the route to {address}"))
    }

    fn ask<R: NetlinkRequest>(&mut self, request: &R, doing: impl Fn() -> String) -> Result<(), Error> {
        let mut answer = self.socket.request(request).map_err(|error| Error::os(doing(), error))?;
        answer.recv_ack().map_err(|error| Error::os(doing(), error.into()))
    }
}

/// Finds out whether this user may make TUN devices, as far as opening goes.
///
/// # Errors
/// When there is no `/dev/net/tun`, or it is closed to this user, with what to do.
pub fn check_tun() -> Result<(), Error> {
    open_tun().map(drop)
}

/// Makes a TUN device called `name` in the network namespace of this thread: its other side, without blocking reads. It goes with
/// that.
///
/// # Errors
/// When it cannot be made, with what to do.
pub fn make_tun(name: &str) -> Result<File, Error> {
    let file = open_tun()?;
    syscall::make_tun(&file, name).map_err(|error| Error::os(format!("make the device {name}"), error))?;
    Ok(file)
}

fn open_tun() -> Result<File, Error> {
    const PATH: &str = "/dev/net/tun";
    let flags = nix::fcntl::OFlag::O_NONBLOCK.bits();
    OpenOptions::new().read(true).write(true).custom_flags(flags).open(PATH).map_err(|error| match error.kind() {
        ErrorKind::NotFound => Error::Missing(format!(
            "there is no {PATH}; `sudo modprobe tun` brings it, in a container `mknod {PATH} c 10 200`"
        )),
        ErrorKind::PermissionDenied => Error::Missing(format!(
            "{PATH} is closed to this user; `sudo chmod 666 {PATH}` opens it, as most systems have it, or run as root \
             (sudo)"
        )),
        _ => Error::os(format!("open {PATH}"), error),
    })
}

fn index(name: &str) -> Result<u32, Error> {
    nix::net::if_::if_nametoindex(name)
        .map_err(|errno| Error::os(format!("find the interface {name}"), errno.into()))
}
