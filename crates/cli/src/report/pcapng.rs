//! Captures that Wireshark reads: raw IPv4 with true TCP, UDP and IP headers, checksums and options.
//!
//! Addresses are 10.0.0.1 for node 0, counting up. Payload is zeros: the simulator moves lengths, not content.

use std::borrow::Cow;
use std::io::{self, Write};
use std::time::Duration;

use bandmaster_core::capture::{CapturedPacket, CapturedTcp, CapturedTransport};
use bandmaster_core::id::NodeId;
use etherparse::TcpOptionElement::{
    MaximumSegmentSize, Noop, SelectiveAcknowledgement, SelectiveAcknowledgementPermitted, Timestamp,
    WindowScale,
};
use etherparse::{
    IpDscp, IpEcn, IpHeaders, Ipv4Extensions, Ipv4Header, PacketBuilder, TcpHeader, TcpOptionElement,
    TcpOptionWriteError, TcpOptions, UdpHeader,
};
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketBlock;
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::blocks::section_header::{SectionHeaderBlock, SectionHeaderOption};
use pcap_file::{DataLink, Endianness, PcapError};

use super::VERSION;

/// LINKTYPE_RAW: packets start with the IP header.
const LINK_TYPE: u32 = 101;

/// Timestamps are in units of 10^-9 s.
const NANOSECONDS: u8 = 9;

const TIME_TO_LIVE: u8 = 64;

/// Writes the packets of one port.
pub(crate) struct PcapWriter<W: Write> {
    out: PcapNgWriter<W>,
    packet: Vec<u8>,
    /// Most bytes of a packet that are written; none: all.
    snap_length: Option<u32>,
}

impl<W: Write> PcapWriter<W> {
    /// Starts a capture of the port called `port`.
    ///
    /// # Errors
    /// When `out` refuses.
    pub(crate) fn new(out: W, port: &str, snap_length: Option<u32>) -> io::Result<Self> {
        let program = format!("bandmaster {VERSION}");
        let section = SectionHeaderBlock {
            endianness: Endianness::Little,
            options: vec![SectionHeaderOption::UserApplication(Cow::Owned(program))],
            ..Default::default()
        };
        let mut out = PcapNgWriter::with_section_header(out, section).map_err(into_io)?;
        let comment = format!("Packets as port {port} starts to transmit them; payload is zeros");
        out.write_pcapng_block(InterfaceDescriptionBlock {
            linktype: DataLink::from(LINK_TYPE),
            // 0: whole packets.
            snaplen: snap_length.unwrap_or(0),
            options: vec![
                InterfaceDescriptionOption::Comment(Cow::Owned(comment)),
                InterfaceDescriptionOption::IfName(Cow::Borrowed(port)),
                InterfaceDescriptionOption::IfTsResol(NANOSECONDS),
            ],
        })
        .map_err(into_io)?;
        Ok(Self { out, packet: Vec::new(), snap_length })
    }

    /// Writes a packet.
    ///
    /// # Errors
    /// When the packet does not fit into IPv4 (65535 bytes, 40 bytes of TCP options, 2^24 - 2 nodes) or `out` refuses.
    pub(crate) fn write(&mut self, packet: &CapturedPacket) -> io::Result<()> {
        encode(packet, &mut self.packet)?;
        let original_len = self.packet.len() as u32;
        self.packet.truncate(self.snap_length.unwrap_or(u32::MAX) as usize);
        self.out
            .write_pcapng_block(EnhancedPacketBlock {
                interface_id: 0,
                timestamp: Duration::from_nanos(packet.at.as_nanos()),
                original_len,
                data: Cow::Borrowed(&self.packet),
                options: Vec::new(),
            })
            .map_err(into_io)?;
        Ok(())
    }

    /// The writer below, with everything handed to it.
    ///
    /// # Errors
    /// When it refuses.
    pub(crate) fn finish(self) -> io::Result<W> {
        let mut out = self.out.into_inner();
        out.flush()?;
        Ok(out)
    }
}

/// Replaces `bytes` by the packet from the IP header on.
fn encode(packet: &CapturedPacket, bytes: &mut Vec<u8>) -> io::Result<()> {
    let ip = Ipv4Header {
        dscp: IpDscp::try_new(packet.tos >> 2).unwrap_or_default(),
        ecn: IpEcn::try_new(packet.tos & 0b11).unwrap_or_default(),
        // RFC 6864: the identification of a packet that is never fragmented means nothing.
        identification: 0,
        dont_fragment: true,
        time_to_live: TIME_TO_LIVE,
        source: address(packet.src)?,
        destination: address(packet.dst)?,
        ..Ipv4Header::default()
    };
    let headers = PacketBuilder::ip(IpHeaders::Ipv4(ip, Ipv4Extensions::default()));
    bytes.clear();
    let written = match &packet.transport {
        CapturedTransport::Udp => {
            let payload = payload(packet, UdpHeader::LEN)?;
            headers.udp(packet.src_port, packet.dst_port).write_to_vec(bytes, &payload)
        }
        CapturedTransport::Tcp(tcp) => {
            let header = tcp_header(packet, tcp)?;
            let payload = payload(packet, header.header_len())?;
            headers.tcp_header(header).write_to_vec(bytes, &payload)
        }
    };
    written.map_err(io::Error::other)
}

/// The payload behind a transport header of `header` bytes, when IPv4 can hold both.
fn payload(packet: &CapturedPacket, header: usize) -> io::Result<Vec<u8>> {
    let payload = packet.payload as usize;
    let length = Ipv4Header::MIN_LEN + header + payload;
    if length > usize::from(u16::MAX) {
        return Err(invalid(format!("packet of {length} bytes at {}: IPv4 allows 65535", packet.at)));
    }
    Ok(vec![0; payload])
}

fn tcp_header(packet: &CapturedPacket, tcp: &CapturedTcp) -> io::Result<TcpHeader> {
    let options = TcpOptions::try_from_elements(&tcp_options(tcp));
    let too_long = |TcpOptionWriteError::NotEnoughSpace(length)| {
        invalid(format!("{length} bytes of TCP options at {}: TCP allows {}", packet.at, TcpOptions::MAX_LEN))
    };
    let flag = |bit: u8| tcp.flags & bit != 0;
    Ok(TcpHeader {
        acknowledgment_number: tcp.ack,
        fin: flag(1),
        syn: flag(2),
        rst: flag(4),
        psh: flag(8),
        ack: flag(16),
        urg: flag(32),
        ece: flag(64),
        cwr: flag(128),
        options: options.map_err(too_long)?,
        ..TcpHeader::new(packet.src_port, packet.dst_port, tcp.seq, tcp.window)
    })
}

/// Options in the order and with the padding of Linux.
fn tcp_options(tcp: &CapturedTcp) -> Vec<TcpOptionElement> {
    let mut options = Vec::new();
    options.extend(tcp.mss.map(MaximumSegmentSize));
    let padding: &[TcpOptionElement] = match (tcp.sack_permitted, tcp.timestamps) {
        (true, Some(_)) => &[SelectiveAcknowledgementPermitted],
        (true, None) => &[Noop, Noop, SelectiveAcknowledgementPermitted],
        (false, Some(_)) => &[Noop, Noop],
        (false, None) => &[],
    };
    options.extend_from_slice(padding);
    options.extend(tcp.timestamps.map(|(value, echo)| Timestamp(value, echo)));
    options.extend(tcp.window_scale.into_iter().flat_map(|shift| [Noop, WindowScale(shift)]));
    let mut blocks = tcp.sack.into_iter().take(tcp.sack_count.into());
    if let Some(first) = blocks.next() {
        let rest = [blocks.next(), blocks.next(), blocks.next()];
        options.extend([Noop, Noop, SelectiveAcknowledgement(first, rest)]);
    }
    options
}

/// The address of a host.
///
/// # Errors
/// When there are more nodes than addresses.
pub(crate) fn address(node: NodeId) -> io::Result<[u8; 4]> {
    match node.0.checked_add(1) {
        Some(host) if host < (1 << 24) - 1 => {
            let [_, high, middle, low] = host.to_be_bytes();
            Ok([10, high, middle, low])
        }
        _ => Err(invalid(format!("{node} has no address: 10.0.0.0/8 holds 2^24 - 2 nodes"))),
    }
}

fn invalid(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

fn into_io(error: PcapError) -> io::Error {
    match error {
        PcapError::IoError(error) => error,
        error => io::Error::other(error),
    }
}

#[cfg(test)]
mod tests {
    use bandmaster_core::id::PortId;
    use bandmaster_core::time::Time;
    use pcap_file::pcapng::{Block, PcapNgReader};

    use super::*;

    fn packet(payload: u32, transport: CapturedTransport) -> CapturedPacket {
        CapturedPacket {
            at: Time::from_nanos(1_000_000_007),
            port: PortId(0),
            src: NodeId(0),
            dst: NodeId(300),
            src_port: 49_152,
            dst_port: 5001,
            tos: 2,
            payload,
            transport,
        }
    }

    fn encoded(packet: &CapturedPacket) -> Vec<u8> {
        let mut bytes = Vec::new();
        encode(packet, &mut bytes).unwrap();
        bytes
    }

    /// One's complement sum bit by bit, end-around carry after every word: correct data give 0xffff.
    fn ones_sum(bytes: &[u8]) -> u16 {
        let mut sum = 0_u16;
        for index in (0..bytes.len()).step_by(2) {
            let low = if index + 1 < bytes.len() { bytes[index + 1] } else { 0 };
            let (next, carry) = sum.overflowing_add(u16::from(bytes[index]) * 256 + u16::from(low));
            sum = next + u16::from(carry);
        }
        sum
    }

    fn transport_sum(bytes: &[u8]) -> u16 {
        let mut covered = bytes[12..20].to_vec();
        covered.extend_from_slice(&[0, bytes[9]]);
        covered.extend_from_slice(&((bytes.len() - 20) as u16).to_be_bytes());
        covered.extend_from_slice(&bytes[20..]);
        ones_sum(&covered)
    }

    #[test]
    fn ip_header_of_a_datagram() {
        let bytes = encoded(&packet(5, CapturedTransport::Udp));
        assert_eq!(bytes[..10], [0x45, 2, 0, 33, 0, 0, 0x40, 0, 64, 17]);
        assert_eq!(bytes[12..20], [10, 0, 0, 1, 10, 0, 1, 45]);
        assert_eq!(bytes[20..26], [0xc0, 0x00, 0x13, 0x89, 0, 13]);
        assert_eq!(bytes.len(), 33);
        assert_eq!(ones_sum(&bytes[..20]), 0xffff);
        assert_eq!(transport_sum(&bytes), 0xffff);
    }

    #[test]
    fn checksum_of_a_published_header() {
        // The worked example of the article "Internet checksum" in Wikipedia: 0xb861.
        let header =
            [0x45, 0, 0, 0x73, 0, 0, 0x40, 0, 0x40, 0x11, 0xb8, 0x61, 0xc0, 0xa8, 0, 1, 0xc0, 0xa8, 0, 0xc7];
        assert_eq!(ones_sum(&header), 0xffff);
        let (parsed, _) = Ipv4Header::from_slice(&header).unwrap();
        assert_eq!(parsed.calc_header_checksum(), 0xb861);
    }

    #[test]
    fn a_connection_request_has_the_options_of_linux() {
        let tcp = CapturedTcp {
            seq: 0xdead_beef,
            flags: 2,
            window: 64_240,
            mss: Some(1460),
            window_scale: Some(7),
            sack_permitted: true,
            timestamps: Some((1, 0)),
            ..CapturedTcp::default()
        };
        let bytes = encoded(&packet(0, CapturedTransport::Tcp(tcp)));
        assert_eq!(bytes.len(), 60);
        assert_eq!(bytes[24..28], [0xde, 0xad, 0xbe, 0xef]);
        assert_eq!(bytes[32..36], [0xa0, 2, 0xfa, 0xf0]);
        assert_eq!(bytes[40..], [2, 4, 5, 0xb4, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0, 1, 3, 3, 7]);
        assert_eq!((ones_sum(&bytes[..20]), transport_sum(&bytes)), (0xffff, 0xffff));
    }

    #[test]
    fn every_combination_of_options_is_aligned_and_sums_up() {
        for bits in 0..16_u8 {
            for blocks in 0..=4_u8 {
                let tcp = CapturedTcp {
                    flags: 16,
                    mss: (bits & 1 != 0).then_some(1448),
                    window_scale: (bits & 2 != 0).then_some(3),
                    sack_permitted: bits & 4 != 0,
                    timestamps: (bits & 8 != 0).then_some((77, 66)),
                    sack: [(1, 2), (3, 4), (5, 6), (7, 8)],
                    sack_count: blocks,
                    ..CapturedTcp::default()
                };
                let base = match (tcp.sack_permitted, tcp.timestamps) {
                    (_, Some(_)) => 12,
                    (true, None) => 4,
                    (false, None) => 0,
                };
                let single = 4 * tcp.mss.iter().count() + 4 * tcp.window_scale.iter().count();
                let sack = if blocks > 0 { 4 + 8 * usize::from(blocks) } else { 0 };
                let options = base + single + sack;
                let packet = packet(1447, CapturedTransport::Tcp(tcp));
                let mut bytes = Vec::new();
                if options > 40 {
                    let message = encode(&packet, &mut bytes).unwrap_err().to_string();
                    assert!(message.contains(&format!("{options} bytes of TCP options")), "{message}");
                    assert!(message.contains("TCP allows 40"), "{message}");
                } else {
                    encode(&packet, &mut bytes).unwrap();
                    assert_eq!(usize::from(bytes[32] >> 4) * 4, 20 + options);
                    assert_eq!(transport_sum(&bytes), 0xffff);
                }
            }
        }
    }

    #[test]
    fn what_ipv4_cannot_hold_is_refused() {
        let mut bytes = Vec::new();
        let message = encode(&packet(65_508, CapturedTransport::Udp), &mut bytes).unwrap_err().to_string();
        assert!(message.contains("65536 bytes"), "{message}");
        assert!(encode(&packet(65_507, CapturedTransport::Udp), &mut bytes).is_ok());
        assert!(address(NodeId((1 << 24) - 3)).is_ok());
        assert!(address(NodeId((1 << 24) - 2)).is_err());
        assert!(address(NodeId(u32::MAX)).is_err());
    }

    #[test]
    fn the_file_comes_back_with_port_and_nanoseconds() {
        let mut writer = PcapWriter::new(Vec::new(), "r1->server", None).unwrap();
        writer.write(&packet(100, CapturedTransport::Udp)).unwrap();
        let bytes = writer.finish().unwrap();
        let mut reader = PcapNgReader::new(&bytes[..]).unwrap();
        let Block::InterfaceDescription(interface) = reader.next_block().unwrap().unwrap().into_owned()
        else {
            panic!("no interface");
        };
        assert_eq!(u32::from(interface.linktype), LINK_TYPE);
        assert!(interface.options.contains(&InterfaceDescriptionOption::IfName(Cow::Borrowed("r1->server"))));
        assert!(interface.options.contains(&InterfaceDescriptionOption::IfTsResol(9)));
        let Block::EnhancedPacket(packet) = reader.next_block().unwrap().unwrap().into_owned() else {
            panic!("no packet");
        };
        assert_eq!(packet.timestamp, Duration::from_nanos(1_000_000_007));
        assert_eq!((packet.original_len, packet.data.len()), (128, 128));
        assert!(reader.next_block().is_none());
    }

    #[test]
    fn a_snap_length_cuts_packets_and_keeps_their_lengths() {
        let mut writer = PcapWriter::new(Vec::new(), "r1->server", Some(40)).unwrap();
        for payload in [100, 2] {
            writer.write(&packet(payload, CapturedTransport::Udp)).unwrap();
        }
        let bytes = writer.finish().unwrap();
        let mut reader = PcapNgReader::new(&bytes[..]).unwrap();
        let mut lengths = Vec::new();
        while let Some(block) = reader.next_block() {
            match block.unwrap() {
                Block::InterfaceDescription(interface) => assert_eq!(interface.snaplen, 40),
                Block::EnhancedPacket(packet) => lengths.push((packet.original_len, packet.data.len())),
                _ => {}
            }
        }
        assert_eq!(lengths, [(128, 40), (30, 30)]);
    }
}
