//! The system calls that no safe crate offers.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};

use bandmaster_core::time::Span;
use nix::sys::epoll::{Epoll, EpollEvent};
use socket2::{Domain, Socket, Type};

/// What the kernel tells of a TCP connection, as far as the lab reads it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct TcpInfo {
    /// Congestion window in segments.
    pub(crate) cwnd: u32,
    /// Payload bytes of a segment that it sends.
    pub(crate) mss: u32,
    /// Smoothed round-trip time; none before the first measurement.
    pub(crate) srtt: Option<Span>,
    /// Least round-trip time; none before the first measurement.
    pub(crate) min_rtt: Option<Span>,
    /// Segments sent again.
    pub(crate) retransmits: u32,
    /// Data segments sent, those sent again included.
    pub(crate) data_segments: u32,
    /// Retransmission timeouts; none on kernels before 6.7.
    pub(crate) timeouts: Option<u16>,
    /// Payload bytes acknowledged.
    pub(crate) acknowledged: u64,
    /// Payload bytes received in order.
    pub(crate) received: u64,
    /// Round-trip time as its receiver measures it; none before the first measurement.
    pub(crate) receiver_rtt: Option<Span>,
    /// Payload bytes of a segment that comes.
    pub(crate) came_mss: u32,
    /// Both ends mark their segments with timestamps.
    pub(crate) timestamps: bool,
}

/// Programs that this thread starts have no capability of its user any more; those of root have all.
pub(crate) fn give_no_capability() -> io::Result<()> {
    // SAFETY: takes numbers only, and changes nothing but what this thread's programs begin with.
    let done = unsafe {
        libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL as libc::c_ulong, 0, 0, 0)
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Programs that this thread starts have `CAP_NET_ADMIN`, as systemd's `AmbientCapabilities` has it; false: it has none to give.
#[cfg(test)]
pub(crate) fn raise_ambient() -> bool {
    // Of linux/capability.h: the version of three sets of 64 bits, and the capability.
    const VERSION: u32 = 0x2008_0522;
    const CAP_NET_ADMIN: u32 = 12;
    let mut head = [VERSION, 0];
    let mut sets = [0u32; 6];
    // SAFETY: the kernel reads `head`, and reads or writes six words in `sets`; both live on.
    unsafe {
        if libc::syscall(libc::SYS_capget, head.as_mut_ptr(), sets.as_mut_ptr()) != 0 {
            return false;
        }
        sets[2] |= 1 << CAP_NET_ADMIN;
        libc::syscall(libc::SYS_capset, head.as_mut_ptr(), sets.as_ptr()) == 0
            && libc::prctl(
                libc::PR_CAP_AMBIENT,
                libc::PR_CAP_AMBIENT_RAISE as libc::c_ulong,
                libc::c_ulong::from(CAP_NET_ADMIN),
                0,
                0,
            ) == 0
    }
}

/// Where a device has programs (tcx), as linux/bpf.h numbers it.
#[derive(Clone, Copy)]
pub(crate) enum TcxPlace {
    Ingress = 46,
    Egress = 47,
}

/// Numbers of the programs at a device. Aya's `query_tcx` opens each of them too, which takes
/// `CAP_SYS_ADMIN`.
pub(crate) fn programs_at(index: u32, place: TcxPlace) -> io::Result<Vec<u32>> {
    // Of linux/bpf.h: the command, the place, and as many programs as can be at one.
    const BPF_PROG_QUERY: libc::c_long = 16;
    const MOST: u32 = 64;
    let mut programs = vec![0u32; MOST as usize];
    // `struct { ... } query` of `union bpf_attr`, as eight words of 64 bits, in the order of a little-endian machine.
    let mut query = [0u64; 8];
    query[0] = u64::from(place as u32) << 32 | u64::from(index);
    query[2] = programs.as_mut_ptr() as u64;
    query[3] = MOST.into();
    // SAFETY: the kernel reads and writes `query`, whose length is passed, and at most `MOST` numbers in `programs`; both live on.
    let done =
        unsafe { libc::syscall(libc::SYS_bpf, BPF_PROG_QUERY, query.as_mut_ptr(), size_of_val(&query)) };
    if done != 0 {
        return Err(io::Error::last_os_error());
    }
    programs.truncate(query[3] as u32 as usize);
    Ok(programs)
}

/// Reads a connection's `TCP_INFO`.
pub(crate) fn tcp_info(socket: &impl AsFd) -> io::Result<TcpInfo> {
    let mut buf = [0u8; 256];
    let mut len = buf.len() as libc::socklen_t;
    // SAFETY: the descriptor is open while borrowed; the kernel writes at most `len` bytes into `buf`.
    let done = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            buf.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    if done != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(TcpInfo::parse(&buf[..(len as usize).min(buf.len())]))
}

impl TcpInfo {
    /// The same, with the segments and timeouts of the connections before it.
    pub(crate) fn after(self, past: &Self) -> Self {
        Self {
            retransmits: self.retransmits + past.retransmits,
            data_segments: self.data_segments + past.data_segments,
            timeouts: self
                .timeouts
                .zip(past.timeouts.or(Some(0)))
                .map(|(now, before)| now.saturating_add(before)),
            ..self
        }
    }

    /// `struct tcp_info` of include/uapi/linux/tcp.h, which grows at its end only.
    pub(crate) fn parse(bytes: &[u8]) -> Self {
        /// `TCPI_OPT_TIMESTAMPS`.
        const TIMESTAMPS: u8 = 1;
        let u32_at = |at: usize| {
            let field = bytes.get(at..at + 4).and_then(|b| b.try_into().ok());
            field.map(u32::from_ne_bytes)
        };
        let u64_at = |at: usize| {
            let field = bytes.get(at..at + 8).and_then(|b| b.try_into().ok());
            field.map(u64::from_ne_bytes)
        };
        let micros = |value: Option<u32>| value.filter(|us| *us > 0 && *us < u32::MAX).map(u64::from);
        let timeouts = bytes.get(240..242).and_then(|b| b.try_into().ok()).map(u16::from_ne_bytes);
        Self {
            cwnd: u32_at(80).unwrap_or(0),
            mss: u32_at(16).unwrap_or(0),
            srtt: micros(u32_at(68)).map(Span::from_micros),
            min_rtt: micros(u32_at(148)).map(Span::from_micros),
            retransmits: u32_at(100).unwrap_or(0),
            data_segments: u32_at(156).unwrap_or(0),
            timeouts,
            acknowledged: u64_at(120).unwrap_or(0),
            received: u64_at(128).unwrap_or(0),
            receiver_rtt: micros(u32_at(92)).map(Span::from_micros),
            came_mss: u32_at(20).unwrap_or(0),
            timestamps: bytes.get(5).is_some_and(|options| options & TIMESTAMPS != 0),
        }
    }
}

/// Sets a socket option that is a C `int`.
pub(crate) fn set_option(socket: &impl AsFd, level: i32, option: i32, value: i32) -> io::Result<()> {
    // SAFETY: the descriptor is open while borrowed; the kernel reads one `int` from a live value.
    let done = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            option,
            (&raw const value).cast(),
            size_of::<i32>() as libc::socklen_t,
        )
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Throws received TCP payload away without copying it; the number of bytes, 0 at the end.
pub(crate) fn discard(socket: &impl AsFd) -> io::Result<usize> {
    // SAFETY: the descriptor is open while borrowed; with MSG_TRUNC the kernel drops TCP payload and never touches
    // the buffer, so that none is given.
    let got = unsafe {
        libc::recv(
            socket.as_fd().as_raw_fd(),
            std::ptr::null_mut(),
            1 << 20,
            libc::MSG_TRUNC | libc::MSG_DONTWAIT,
        )
    };
    usize::try_from(got).map_err(|_| io::Error::last_os_error())
}

/// Makes the device behind `file`, an open `/dev/net/tun`: IP packets without framing, called `name`.
pub(crate) fn make_tun(file: &File, name: &str) -> io::Result<()> {
    let mut request = device(name)?;
    request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;
    // SAFETY: the descriptor is open while borrowed; TUNSETIFF reads and writes one `ifreq`, which is live.
    let done = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF as _, &raw mut request) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// What the device `name` of the calling thread's network namespace sends has checksums, and one segment to a packet.
pub(crate) fn complete_checksums(name: &str) -> io::Result<()> {
    /// `ETHTOOL_STXCSUM`, of linux/ethtool.h.
    const SET: u32 = 0x17;
    let socket = Socket::new(Domain::UNIX, Type::DGRAM, None)?;
    let mut request = device(name)?;
    // A `struct ethtool_value`.
    let mut off = [SET, 0];
    request.ifr_ifru.ifru_data = off.as_mut_ptr().cast();
    // SAFETY: the descriptor is open; SIOCETHTOOL reads one `ifreq` and the two words that it leads to, which are live.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// A request for the device `name`.
fn device(name: &str) -> io::Result<libc::ifreq> {
    if name.is_empty() || name.len() >= libc::IFNAMSIZ {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: all zero bytes are a valid `ifreq`.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    Ok(request)
}

/// Waits for events with the clock's own resolution; their number. Needs Linux 5.11.
pub(crate) fn wait_for(epoll: &Epoll, events: &mut [EpollEvent], most: Span) -> io::Result<usize> {
    let nanos = most.as_nanos();
    // SAFETY: all zero bytes are a valid `timespec`.
    let mut timeout: libc::timespec = unsafe { mem::zeroed() };
    timeout.tv_sec = (nanos / 1_000_000_000) as _;
    timeout.tv_nsec = (nanos % 1_000_000_000) as _;
    // SAFETY: the descriptor is open while borrowed; `EpollEvent` is a transparent `epoll_event`, and the
    // kernel writes at most the number passed, the length of `events`; it reads one `timespec`, which is live, and no signal mask.
    let ready = unsafe {
        libc::syscall(
            libc::SYS_epoll_pwait2,
            epoll.0.as_raw_fd(),
            events.as_mut_ptr(),
            events.len() as libc::c_int,
            &raw const timeout,
            std::ptr::null::<libc::sigset_t>(),
            0usize,
        )
    };
    match usize::try_from(ready) {
        Ok(ready) => Ok(ready),
        Err(_) => match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::Interrupted => Ok(0),
            error => Err(error),
        },
    }
}

/// Gives the calling thread real-time priority `priority`, from 1: it runs before every ordinary thread. Threads and
/// processes that it starts are ordinary ones.
pub(crate) fn run_first(priority: i32) -> io::Result<()> {
    set_policy(libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, priority)
}

/// Gives the calling thread so much of a processor in each `period`, before all threads with real-time priorities, and what nobody else
/// reserves. Threads and processes that it starts are ordinary ones. See sched(7), `SCHED_DEADLINE` and `SCHED_FLAG_RECLAIM`.
pub(crate) fn run_by_deadline(runtime: Span, period: Span) -> io::Result<()> {
    /// Of linux/sched.h.
    const DEADLINE: u32 = 6;
    let attributes = libc::sched_attr {
        size: size_of::<libc::sched_attr>() as u32,
        sched_policy: DEADLINE,
        sched_flags: (libc::SCHED_FLAG_RESET_ON_FORK | libc::SCHED_FLAG_RECLAIM) as u64,
        sched_nice: 0,
        sched_priority: 0,
        sched_runtime: runtime.as_nanos(),
        sched_deadline: period.as_nanos(),
        sched_period: period.as_nanos(),
    };
    // SAFETY: 0 is the calling thread; the kernel reads one `sched_attr`, whose length it holds, and no flags.
    let done = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Makes the calling thread an ordinary one again.
pub(crate) fn run_as_usual() -> io::Result<()> {
    set_policy(libc::SCHED_OTHER, 0)
}

fn set_policy(policy: i32, priority: i32) -> io::Result<()> {
    // SAFETY: all zero bytes are a valid `sched_param`.
    let mut param: libc::sched_param = unsafe { mem::zeroed() };
    param.sched_priority = priority;
    // SAFETY: 0 is the calling thread; the kernel reads one `sched_param`, which is live.
    let done = unsafe { libc::sched_setscheduler(0, policy, &raw const param) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The number by which the kernel knows the calling thread's network namespace. Needs Linux 5.14.
pub(crate) fn namespace_cookie() -> io::Result<u64> {
    cookie(&Socket::new(Domain::UNIX, Type::DGRAM, None)?, libc::SO_NETNS_COOKIE)
}

/// The number by which the kernel knows a socket.
pub(crate) fn socket_cookie(socket: &Socket) -> io::Result<u64> {
    cookie(socket, libc::SO_COOKIE)
}

fn cookie(socket: &Socket, option: libc::c_int) -> io::Result<u64> {
    let mut cookie = 0u64;
    let mut len = size_of_val(&cookie) as libc::socklen_t;
    // SAFETY: the descriptor is open; the kernel writes at most `len` bytes into `cookie`, which is live.
    let done = unsafe {
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, option, (&raw mut cookie).cast(), &raw mut len)
    };
    if done == 0 { Ok(cookie) } else { Err(io::Error::last_os_error()) }
}

/// Makes a BPF map and lets it go, to see whether that is allowed.
pub(crate) fn make_bpf_map() -> io::Result<()> {
    /// `BPF_MAP_CREATE`, and `BPF_MAP_TYPE_ARRAY` with keys and values of 4 bytes and one entry.
    const MAKE: libc::c_int = 0;
    let attributes: [u32; 4] = [2, 4, 4, 1];
    // SAFETY: the kernel reads the number of bytes passed, the size of a live array.
    let made = unsafe {
        libc::syscall(libc::SYS_bpf, MAKE, attributes.as_ptr(), size_of_val(&attributes) as libc::c_uint)
    };
    let file = RawFd::try_from(made).ok().filter(|file| *file >= 0).ok_or_else(io::Error::last_os_error)?;
    // SAFETY: the kernel has just made the descriptor; nobody else knows it.
    drop(unsafe { OwnedFd::from_raw_fd(file) });
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn fields_are_where_the_kernel_puts_them() {
        let mut bytes = [0u8; 256];
        for (at, value) in
            [(16, 1448u32), (68, 50_123), (80, 10), (100, 3), (120, 7), (148, 50_001), (156, 77)]
        {
            bytes[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        }
        bytes[240..242].copy_from_slice(&2u16.to_ne_bytes());
        let info = TcpInfo::parse(&bytes);
        assert_eq!((info.mss, info.cwnd, info.retransmits, info.timeouts), (1448, 10, 3, Some(2)));
        assert_eq!(info.data_segments, 77);
        assert_eq!(
            (info.srtt, info.min_rtt),
            (Some(Span::from_micros(50_123)), Some(Span::from_micros(50_001)))
        );
        assert_eq!(TcpInfo::parse(&bytes[..104]).timeouts, None, "an older kernel tells less");
    }

    #[test]
    fn a_connection_tells_and_payload_is_discarded() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut client =
            TcpStream::connect(listener.local_addr().expect("an address")).expect("a connection");
        let (server, _) = listener.accept().expect("a peer");
        client.write_all(&[1; 3000]).expect("room");
        let mut got = 0;
        while got < 3000 {
            match discard(&server) {
                Ok(n) => got += n,
                Err(e) => assert_eq!(e.kind(), io::ErrorKind::WouldBlock),
            }
        }
        let info = tcp_info(&client).expect("a connection");
        assert!(info.cwnd > 0 && info.mss > 0, "{info:?}");
    }
}
