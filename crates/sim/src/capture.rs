//! Translates simulated packets into the terms of the wire.

use bandmaster_core::capture::{CapturedPacket, CapturedTcp, CapturedTransport};
use bandmaster_core::id::PortId;
use bandmaster_core::time::Time;
use bandmaster_core::workload::{SERVER_PORT, client_port};

use crate::packet::{Packet, flag};
use crate::tcp::Profile;
use crate::workload::FlowPlan;

/// Initial sequence number of every connection.
const ISN: u32 = 1;

/// The packet as a capture shows it.
pub(crate) fn describe(
    port: u32,
    at: Time,
    packet: &Packet,
    plan: &FlowPlan,
    profile: Option<&Profile>,
) -> CapturedPacket {
    let client_port = client_port(packet.flow);
    let (src, dst, src_port, dst_port) = if packet.reverse {
        (plan.dst, plan.src, SERVER_PORT, client_port)
    } else {
        (plan.src, plan.dst, client_port, SERVER_PORT)
    };
    let transport = match profile {
        None => CapturedTransport::Udp,
        Some(profile) => CapturedTransport::Tcp(tcp_header(packet, profile)),
    };
    CapturedPacket {
        at,
        port: PortId(port),
        src,
        dst,
        src_port,
        dst_port,
        tos: packet.tos,
        payload: u32::from(packet.payload),
        transport,
    }
}

fn tcp_header(packet: &Packet, profile: &Profile) -> CapturedTcp {
    let settings = &profile.settings;
    let syn = packet.flags & flag::SYN != 0;
    // Offset 0 is the byte after the SYN. The receiver sends nothing but its own SYN.
    let wire = |offset: u64| (offset as u32).wrapping_add(ISN).wrapping_add(1);
    let seq = match (packet.reverse, syn) {
        (_, true) => ISN,
        (true, false) if packet.is_keep_alive => ISN,
        (true, false) => ISN + 1,
        (false, false) => wire(packet.seq),
    };
    let ack = match (packet.reverse, packet.flags & flag::ACK != 0) {
        (_, false) => 0,
        (true, true) => wire(packet.ack),
        (false, true) => ISN + 1,
    };
    let shift = if syn { 0 } else { profile.window_shift };
    let mut header = CapturedTcp {
        seq,
        ack,
        flags: packet.flags,
        window: (packet.window >> shift).min(65_535) as u16,
        mss: syn.then(|| profile.mss.min(65_535) as u16 + if settings.timestamps { 12 } else { 0 }),
        window_scale: (syn && settings.window_scaling).then_some(profile.window_shift),
        sack_permitted: syn && settings.sack,
        timestamps: settings.timestamps.then_some((packet.ts_value, packet.ts_echo)),
        ..CapturedTcp::default()
    };
    header.sack_count = packet.sack_count;
    // Other segments may have something else there.
    let sack = if packet.reverse { &packet.sack } else { &[(0, 0); 4] };
    for (block, &(offset, len)) in header.sack.iter_mut().zip(sack) {
        let left = ack.wrapping_add(offset);
        *block = (left, left.wrapping_add(len));
    }
    header
}
