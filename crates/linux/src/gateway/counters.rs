//! Counters of data sent and received.

use std::fs;

use bandmaster_core::control::Passed;
use netlink_bindings::nftables::{Nfgenmsg, ObjData, Request};
use netlink_socket2::{NetlinkSocket, ReplyError};

use super::{Error, rules};
use crate::htb::ClassStats;

/// `NFPROTO_INET`.
const INET: u8 = 1;
/// `NFT_OBJECT_COUNTER`.
const COUNTER_TYPE: u32 = 1;
/// `ARPHRD_ETHER`, and its header before the IP packet.
const ETHERNET: &str = "1";
const ETHERNET_HEADER: u32 = 14;

/// Bytes of a packet that `interface` counts before IP.
pub(super) fn link_header(interface: &str) -> u32 {
    let kind = fs::read_to_string(format!("/sys/class/net/{interface}/type")).unwrap_or_default();
    if kind.trim() == ETHERNET { ETHERNET_HEADER } else { 0 }
}

/// Adds up the counters of classes. Their packet counts wrap at 32 bits, and a new shaper starts them at zero.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    last: Vec<ClassStats>,
    passed: Passed,
    /// Bytes of a packet that the device counts before IP.
    header: u64,
}

impl Sent {
    /// For `interface`, whose shaper is new.
    pub(super) fn new(interface: &str) -> Self {
        Self { last: Vec::new(), passed: Passed::default(), header: link_header(interface).into() }
    }

    /// The shaper is new: its counters begin at nothing.
    pub(super) fn begin_anew(&mut self) {
        self.last.clear();
    }

    /// Adds what was sent since the last reading.
    pub(super) fn read(&mut self, stats: Vec<ClassStats>) -> Passed {
        self.last.resize(stats.len(), ClassStats::default());
        for (new, old) in stats.iter().zip(&self.last) {
            // The kernel counts packets in 32 bits, whatever the type.
            let packets = u64::from((new.packets as u32).wrapping_sub(old.packets as u32));
            let bytes = new.bytes.wrapping_sub(old.bytes);
            self.passed.packets += packets;
            self.passed.bytes += bytes.saturating_sub(packets * self.header);
        }
        self.last = stats;
        self.passed
    }

    /// All that was sent, as of the last reading.
    pub(super) const fn passed(&self) -> Passed {
        self.passed
    }

    /// Something was sent that no class has counted: the counters begin at nothing, so that nobody compares them with those
    /// before.
    pub(super) fn forget(&mut self) {
        self.passed = Passed::default();
    }

    /// The last reading.
    pub(super) fn classes(&self) -> &[ClassStats] {
        &self.last
    }
}

/// Reads how much data arrived before a question.
///
/// A question starts a second counter, in the kernel and in the order of packets, for a tenth of a second. What it has
/// counted until both are read came behind the question.
pub(super) struct Received {
    socket: NetlinkSocket,
    table: String,
    /// The second counter while it stood; none from a question until it stands again.
    late: Option<Passed>,
}

/// Tries to read two counters without a packet between.
const MOST_READINGS: usize = 8;

impl Received {
    /// For `table`, which is new.
    pub(super) fn new(table: String) -> Self {
        Self { socket: NetlinkSocket::new(), table, late: Some(Passed::default()) }
    }

    /// Data before the question that has just come. When something else may have started the second counter, it is not
    /// `alone`, and what came since counts too.
    pub(super) fn before_question(&mut self, alone: bool) -> Result<Passed, Error> {
        let mut late = self.read(rules::LATE)?;
        let mut data = self.read(rules::DATA)?;
        for _ in 0..MOST_READINGS {
            let again = self.read(rules::LATE)?;
            if again == late {
                break;
            }
            late = again;
            data = self.read(rules::DATA)?;
        }
        Ok(match self.late.take().filter(|_| alone) {
            Some(stood) => Passed {
                packets: data.packets.saturating_sub(late.packets.saturating_sub(stood.packets)),
                bytes: data.bytes.saturating_sub(late.bytes.saturating_sub(stood.bytes)),
            },
            None => data,
        })
    }

    /// The second counter stands again: what it shows is where it begins.
    pub(super) fn after_question(&mut self) -> Result<(), Error> {
        self.late = Some(self.read(rules::LATE)?);
        Ok(())
    }

    /// Something else has started the second counter.
    pub(super) fn disturb(&mut self) {
        self.late = None;
    }

    /// Data so far, between questions.
    pub(super) fn look(&mut self) -> Result<Passed, Error> {
        self.read(rules::DATA)
    }

    /// What a counter of our table has counted.
    pub(super) fn read(&mut self, name: &str) -> Result<Passed, Error> {
        let header = Nfgenmsg { nfgen_family: INET, ..Nfgenmsg::default() };
        let mut request = Request::new().op_getobj_do(&header);
        request
            .encode()
            .push_table_bytes(self.table.as_bytes())
            .push_name_bytes(name.as_bytes())
            .push_type(COUNTER_TYPE);
        let read = || -> Result<Option<Passed>, ReplyError> {
            let mut answer = self.socket.request(&request)?;
            let (_, attributes) = answer.recv_one()?;
            let ObjData::Counter(counter) = attributes.get_data()? else { return Ok(None) };
            Ok(Some(Passed { packets: counter.get_packets()?, bytes: counter.get_bytes()? }))
        };
        let place = format!("counter {name} of table inet {}", self.table);
        match { read }() {
            Ok(Some(passed)) => Ok(passed),
            Ok(None) => Err(Error::Failed(format!("error: {place}: is no counter"))),
            Err(e) => Err(Error::Failed(format!("error: {place}: {e}"))),
        }
    }
}

/// What a whole interface has sent (`tx`) or received (`rx`), for a run that changes nothing.
pub(super) fn interface(name: &str, direction: &str) -> Passed {
    let read = |what: &str| {
        let path = format!("/sys/class/net/{name}/statistics/{direction}_{what}");
        fs::read_to_string(path).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
    };
    Passed { packets: read("packets"), bytes: read("bytes") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats(packets: u64, bytes: u64) -> ClassStats {
        ClassStats { packets, bytes, ..ClassStats::default() }
    }

    /// 32-bit wrap: from 2^32 - 2 by 5 to 3. Each packet has 14 bytes before IP. A new shaper goes on from there.
    #[test]
    fn counters_wrap_and_begin_anew_without_a_jump() {
        let mut sent = Sent { last: Vec::new(), passed: Passed::default(), header: 14 };
        assert_eq!(sent.read(vec![stats(2, 228), stats(0, 0)]), Passed { packets: 2, bytes: 200 });
        sent.last[1] = stats(u64::from(u32::MAX) - 1, 1000);
        let passed = sent.read(vec![stats(2, 228), stats(3, 1000 + 5 * 114)]);
        assert_eq!(passed, Passed { packets: 7, bytes: 700 });
        sent.begin_anew();
        assert_eq!(sent.read(vec![stats(1, 114), stats(0, 0)]), Passed { packets: 8, bytes: 800 });
    }
}
