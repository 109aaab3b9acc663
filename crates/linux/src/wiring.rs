//! Devices, addresses and routes in the calling thread's network namespace, by netlink.

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

use netlink_bindings::traits::{NetlinkRequest, Pusher};
use netlink_bindings::utils::{finalize_nested_header, push_nested_header};
use netlink_bindings::{rt_addr, rt_link, rt_route};
use netlink_socket2::NetlinkSocket;

use crate::Error;
use crate::syscall;

/// `RT_TABLE_MAIN`, `RTPROT_STATIC`, `RT_SCOPE_UNIVERSE`, `RTN_UNICAST`, `RTNH_F_ONLINK`.
const MAIN: u8 = 254;
const STATIC: u8 = 4;
const EVERYWHERE: u8 = 0;
const UNICAST: u8 = 1;
const ON_LINK: u32 = 4;
/// The other end of every link, as routes name it: one neighbour for each device, whatever goes there.
const NEXT_HOP: Ipv4Addr = Ipv4Addr::new(169, 254, 0, 1);
/// `IFLA_INFO_DATA`, `VETH_INFO_PEER`.
const INFO_DATA: u16 = 2;
const PEER: u16 = 1;
/// Ethernet address of all ends at nodes. What a node sends it sends to itself; so does who sends to it.
pub(crate) const NODES: [u8; 6] = [2, b'b', b'm', 0, 0, 1];
/// That of all far ends: none of what comes there is for them, and their kernel leaves it alone.
const FAR: [u8; 6] = [2, b'b', b'm', 0, 0, 2];

const UP: u32 = rt_link::IfinfoFlags::Up as u32;

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

    /// Makes a virtual Ethernet device, number `index`, whose other end is number `far_index` in the network namespace `far`. It knows one
    /// neighbour, and computes checksums itself.
    pub(crate) fn add_cable(
        &mut self,
        name: &str,
        index: u32,
        (far, far_index): (&File, u32),
        mtu: u32,
    ) -> Result<(), Error> {
        let doing = || format!("make the device {name}");
        let invalid = |_| Error::os(doing(), ErrorKind::InvalidInput.into());
        let (near_name, far_name) =
            (CString::new(name).map_err(invalid)?, CString::new(format!("far{far_index}")).map_err(invalid)?);
        let request = rt_link::Request::new().set_create().set_excl();
        // The near end is the peer: of the two only the other one can be brought up where it is made.
        let mut request = request.op_newlink_do(&message(far_index, UP));
        let attrs = request.encode().push_ifname(&far_name).push_address(&FAR).push_mtu(mtu);
        let mut info = attrs.push_net_ns_fd(far.as_raw_fd() as u32).nested_linkinfo().push_kind(c"veth");
        let data = push_nested_header(info.as_vec_mut(), INFO_DATA);
        let peer = push_nested_header(info.as_vec_mut(), PEER);
        info.as_vec_mut().extend(message(index, 0).as_slice());
        let attrs = rt_link::PushLinkAttrs::new(info.as_vec_mut()).push_ifname(&near_name);
        drop(attrs.push_address(&NODES).push_mtu(mtu).push_gso_max_segs(1));
        finalize_nested_header(info.as_vec_mut(), peer);
        finalize_nested_header(info.as_vec_mut(), data);
        drop(info.end_nested());
        self.ask(&request, doing).map_err(|error| match error {
            Error::Os { error, .. } if error.raw_os_error() == Some(libc::EOPNOTSUPP) => Error::Missing(
                "this kernel has no virtual Ethernet: `modprobe veth`, or a kernel with CONFIG_VETH"
                    .to_owned(),
            ),
            error => error,
        })?;
        syscall::complete_checksums(name)
            .map_err(|error| Error::os(format!("let {name} compute checksums"), error))?;
        let header = message(index, UP | rt_link::IfinfoFlags::NoArp as u32);
        self.ask(&rt_link::Request::new().op_setlink_do(&header), || format!("bring {name} up"))
    }

    /// Brings `lo` up.
    pub(crate) fn bring_up_loopback(&mut self) -> Result<u32, Error> {
        let index = index("lo")?;
        let header = message(index, UP);
        self.ask(&rt_link::Request::new().op_setlink_do(&header), || "bring lo up".to_owned())?;
        Ok(index)
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
            rtm_scope: EVERYWHERE,
            rtm_type: UNICAST,
            rtm_flags: ON_LINK,
            ..rt_route::Rtmsg::default()
        };
        let mut request = rt_route::Request::new().set_create().set_excl().op_newroute_do(&header);
        let attrs =
            request.encode().push_dst(IpAddr::V4(address)).push_oif(index).push_gateway(IpAddr::V4(NEXT_HOP));
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

/// A device's number, and flags to set.
fn message(index: u32, flags: u32) -> rt_link::Ifinfomsg {
    rt_link::Ifinfomsg {
        ifi_index: index as i32,
        ifi_flags: flags,
        ifi_change: flags,
        ..rt_link::Ifinfomsg::default()
    }
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
