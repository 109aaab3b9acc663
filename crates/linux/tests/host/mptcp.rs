//! QCBF at two routers, by which senders with two addresses reach a receiver with two: the kernel's MPTCP.

use std::fs;
use std::slice;

use super::hosts::run;
use super::machine::{in_time, skip, timely};
use super::switch::{Rack, SEGMENT, TIMEOUTS, counted};

/// Subflows that joined, at the receiver.
const JOINED: &str = "MPTcpExtMPJoinAckRx";
/// Ports of so many Mbit/s and bytes, so many senders, and what each sends.
struct Case {
    mbits: [u64; 2],
    buffers: [u64; 2],
    senders: usize,
    bytes: usize,
}

impl Case {
    const fn alike(mbits: u64, buffer: u64, senders: usize, bytes: usize) -> Self {
        Self { mbits: [mbits; 2], buffers: [buffer; 2], senders, bytes }
    }
}

const SHORT: &[Case] = &[Case::alike(40, 64 << 10, 8, 1 << 20), Case::alike(40, 64 << 10, 16, 1 << 20)];
const OTHERS: &[Case] = &[
    Case::alike(40, 64 << 10, 4, 1 << 20),
    Case::alike(100, 512 << 10, 4, 2 << 20),
    Case::alike(100, 512 << 10, 8, 2 << 20),
    Case::alike(100, 512 << 10, 16, 2 << 20),
    Case { mbits: [40, 100], buffers: [64 << 10, 512 << 10], senders: 4, bytes: 2 << 20 },
    Case { mbits: [40, 100], buffers: [64 << 10, 512 << 10], senders: 8, bytes: 2 << 20 },
    Case { mbits: [40, 100], buffers: [64 << 10, 512 << 10], senders: 16, bytes: 2 << 20 },
];

/// None, with the reason on stderr, where they cannot be made.
fn racks(test: &str, case: &Case) -> Option<[Rack; 2]> {
    let first = Rack::new(test, case.mbits[0], case.buffers[0])?;
    let racks = [first.second(case.mbits[1], case.buffers[1]), first];
    let [second, first] = &racks;
    for node in first.senders.iter().chain([&first.receiver]) {
        run(&format!("ip -n {} mptcp limits set subflows 4 add_addr_accepted 4", node.name()));
    }
    let address = second.address();
    run(&format!("ip -n {} mptcp endpoint add {address} signal", first.receiver.name()));
    let [second, first] = racks;
    Some([first, second])
}

/// Between ports that are alike no packet is dropped, and both ports are in use, where MPTCP alone drops. Where one port is
/// smaller the greater window of the other is in force there too (RFC 8684, section 3.3.1): few packets are dropped. With
/// `BANDMASTER_FUZZ` all cases; two without.
#[test]
fn two_routers_drop_no_packet_of_mptcp() {
    let test = "two_routers_drop_no_packet_of_mptcp";
    if fs::metadata("/proc/sys/net/mptcp/enabled").is_err() {
        skip(test, "no MPTCP in this kernel");
        return;
    }
    let others = if std::env::var_os("BANDMASTER_FUZZ").is_some() { OTHERS } else { &[] };
    for case in SHORT.iter().chain(others) {
        in_time(test, || {
            let Some(racks) = racks(test, case) else { return Ok(()) };
            let Case { mbits, buffers, senders, bytes } = case;
            let limit = mbits.iter().sum::<u64>() as f64 * 1e6 / 8.0 * SEGMENT;
            let dropped = || racks.each_ref().map(Rack::dropped);
            let of_senders = |name| counted(&racks[0].senders, name);
            let joined = || counted(slice::from_ref(&racks[0].receiver), JOINED);
            let daemons = racks.each_ref().map(Rack::start);
            // First: subflows that time out after the end of a transfer alone would be counted here.
            let managed = racks[0].transfer_by_mptcp(*senders, *bytes) / limit;
            let (drops, expired, joined) = (dropped(), of_senders(TIMEOUTS), joined());
            let drops: u64 = drops.iter().sum();
            let status = racks
                .each_ref()
                .map(|rack| rack.until("the flows are gone", |told| told.ports[0].flows == 0));
            drop(daemons);
            let plain = racks[0].transfer_by_mptcp(*senders, *bytes) / limit;
            let plain_drops: u64 = dropped().iter().sum::<u64>() - drops;
            let plain_timeouts = of_senders(TIMEOUTS) - expired;
            println!(
                "{mbits:?} Mbit/s, {buffers:?} B, {senders} senders of {bytes} B: {drops} drops, {expired} timeouts, \
                 {managed:.3} of the limit; MPTCP alone {plain_drops} drops, {plain_timeouts} timeouts, {plain:.3}"
            );
            let [first, second] = status;
            timely!(joined == *senders as u64, "{joined} of {senders} subflows joined");
            if buffers[0] == buffers[1] {
                timely!(drops == 0, "{drops} packets of managed flows were dropped: {first}\n{second}");
                timely!(expired == 0, "{expired} retransmission timeouts of managed flows");
                // Four senders end their slow start in time for 512 KiB.
                timely!(plain_drops > 0 || *senders == 4, "MPTCP alone drops nothing");
            } else {
                timely!(drops * 10 < plain_drops, "{drops} packets were dropped, {plain_drops} without QCBF");
            }
            timely!(managed > 0.9, "{managed} of the limit: {first}\n{second}");
            Ok(())
        });
    }
}
