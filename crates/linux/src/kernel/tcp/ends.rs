//! Connections that have ended, as the kernel reports them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use bandmaster_core::sketch::collect::Ended;
use bandmaster_core::time::Time;

/// Bytes of `struct end`.
pub(super) const END: usize = 72;

/// `struct end`.
pub(super) fn parse(row: &[u8; END]) -> Ended {
    let u64_at = |at: usize| u64::from_ne_bytes(std::array::from_fn(|i| row[at + i]));
    let began = u64_at(8);
    let time = |at: usize| u64_at(at).checked_sub(began).map(bandmaster_core::time::Span::from_nanos);
    let is_ipv4 = u16::from_ne_bytes([row[64], row[65]]) == libc::AF_INET as u16;
    let peer: IpAddr = if is_ipv4 {
        Ipv4Addr::from(std::array::from_fn::<u8, 4, _>(|i| row[48 + i])).into()
    } else {
        Ipv6Addr::from(std::array::from_fn::<u8, 16, _>(|i| row[48 + i])).to_canonical()
    };
    // A FIN counts as a byte that came.
    let (sent, received) = (u64_at(32), u64_at(40).saturating_sub(1));
    Ended {
        cookie: u64_at(0),
        peer,
        opened: row[66] != 0,
        established: row[67] != 0,
        began: Time::from_nanos(began),
        bytes: [sent, received],
        times: [time(16), time(24)],
    }
}

#[cfg(test)]
mod tests {
    use bandmaster_core::time::Span;

    use super::*;

    #[test]
    fn an_end_is_read_as_the_program_writes_it() {
        let mut row = [0; END];
        for (at, value) in [(0, 7u64), (8, 1_000), (16, 5_000), (32, 40_000), (40, 201)] {
            row[at..at + 8].copy_from_slice(&value.to_ne_bytes());
        }
        row[48..52].copy_from_slice(&[10, 0, 0, 2]);
        row[64..66].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
        row[66] = 1;
        let ended = parse(&row);
        assert_eq!((ended.cookie, ended.peer, ended.bytes), (7, IpAddr::from([10, 0, 0, 2]), [40_000, 200]));
        assert_eq!(
            (ended.times, ended.opened, ended.established),
            ([Some(Span::from_nanos(4_000)), None], true, false)
        );
    }
}
