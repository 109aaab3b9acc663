//! What leaves: new segments and old ones again, as far as window, pace and the receiver allow.

use bandmaster_core::scenario::RttSamples;

use super::{Sender, State, Timed};
use crate::net::Net;
use crate::packet::{Packet, ecn, flag};
use crate::tcp::{Profile, timestamp};

impl Sender {
    pub(super) fn is_window_limited(&self, profile: &Profile) -> bool {
        let in_flight = u64::from(self.in_flight(&profile.settings)) * profile.mss;
        if self.window.cwnd < self.window.ssthresh {
            // Linux: in slow start a window half used may grow.
            return in_flight * 2 >= self.window.cwnd;
        }
        in_flight + profile.mss > self.window.cwnd
    }

    /// Offset after the last one that may be sent, the FIN's included.
    pub(super) fn send_limit(&self) -> u64 {
        if self.paused { self.next } else { self.limit.saturating_add(u64::from(self.closing)) }
    }

    /// Length of the next new segment, if there is one and the receiver has room for it.
    pub(super) fn next_len(&self, profile: &Profile) -> Option<u64> {
        let len = profile.mss.min(self.limit.saturating_sub(self.next));
        (self.next < self.send_limit() && self.next + len <= self.edge).then_some(len)
    }

    /// Congestion window and a scheme's bound, at least a segment.
    pub(super) fn send_window(&self, profile: &Profile) -> u64 {
        let cap = self.steering.as_ref().and_then(|steering| steering.cap);
        self.window.cwnd.min(cap.unwrap_or(u64::MAX)).max(profile.mss)
    }

    /// Sends what the windows allow.
    pub(super) fn transmit(&mut self, profile: &Profile, net: &mut Net) {
        if self.state == State::Loss && self.awaits_forward() {
            return;
        }
        let window = self.send_window(profile);
        loop {
            let in_flight = u64::from(self.in_flight(&profile.settings));
            if (in_flight + 1) * profile.mss > window {
                break;
            }
            if self.must_wait_for_pace(profile, net) {
                break;
            }
            if self.board.has_lost_pending() {
                self.retransmit_next(profile, net);
            } else if self.next < self.send_limit() {
                let len = profile.mss.min(self.limit - self.next);
                if self.next + len > self.edge {
                    // RFC 6675 NextSeg rule 3 may still find something.
                    if !self.retransmit_speculatively(profile, net) {
                        break;
                    }
                    continue;
                }
                self.send_new(len, profile, net);
            } else if self.share().is_some_and(|s| net.multipath[s.connection].has_data(s.subflow))
                || !self.retransmit_speculatively(profile, net)
            {
                break;
            }
        }
        self.note_app_limit(profile, net);
        let blocked = self.board.is_empty() && (self.next < self.send_limit() || self.awaits_window(net));
        if blocked && !self.retransmit.is_set() && self.is_open() {
            // RFC 9293 section 3.8.6.1: probe a closed window.
            self.arm_timer(profile, net);
        }
    }

    /// The shared window of its connection is closed, and nothing under way will open it.
    pub(super) fn awaits_window(&self, net: &Net) -> bool {
        self.share().is_some_and(|share| net.multipath[share.connection].awaits_window())
    }

    pub(super) fn send_new(&mut self, len: u64, profile: &Profile, net: &mut Net) {
        let offset = self.next;
        let mut packet = self.segment(offset, len as u32, profile, net);
        let last = offset + len == self.limit && self.closing;
        if last {
            packet.flags |= flag::FIN;
        }
        if self.send_cwr && len > 0 {
            packet.flags |= flag::CWR;
            self.send_cwr = false;
        }
        match profile.settings.rtt_samples {
            _ if profile.settings.timestamps => {}
            RttSamples::EachAck => self.steering.get_or_insert_default().sent.push_back(net.now),
            RttSamples::EachRoundTrip if !self.timed.is_set() => {
                self.timed = Timed { offset, sent: net.now };
            }
            RttSamples::EachRoundTrip => {}
        }
        let width = if profile.is_multipath && len > 0 { profile.mss } else { len };
        self.push_rates(profile, net.now);
        self.next += width + u64::from(last);
        self.board.push();
        let mut probes = false;
        if let Some(rack) = self.rack() {
            rack.push(net.now);
            probes = rack.tail.is_some();
        }
        self.counters.segments += 1;
        self.prr.out = self.prr.out.wrapping_add(1);
        net.note_window(self.window.cwnd / profile.mss);
        net.send(packet);
        if !self.retransmit.is_set() {
            self.arm_timer(profile, net);
        }
        if probes {
            self.plan_probe(profile, net);
        }
        self.charge_pace(&packet, profile, net);
    }

    pub(super) fn resend(&mut self, at: usize, profile: &Profile, net: &mut Net) {
        let offset = self.board.una + at as u64 * profile.mss;
        let width = profile.mss.min(self.limit - offset);
        let len = match self.share() {
            Some(share) if width > 0 => net.multipath[share.connection].len_at(share.subflow, offset),
            _ => width,
        };
        let mut packet = self.segment(offset, len as u32, profile, net);
        if offset + width == self.limit && self.closing {
            packet.flags |= flag::FIN;
        }
        // RFC 3168 section 6.1.5: retransmissions are not ECT.
        packet.tos = profile.tos;
        if let Some(rack) = self.rack() {
            rack.resend(at, net.now);
        }
        if let Some(rates) = self.rates() {
            rates.resend(at, net.now);
        }
        if profile.settings.dsack {
            self.note_resent();
        }
        self.timed = Timed::default();
        self.counters.segments += 1;
        self.counters.retransmits += 1;
        self.prr.out = self.prr.out.wrapping_add(1);
        net.note_window(self.window.cwnd / profile.mss);
        net.send(packet);
        // With RFC 8985, as Linux: the first segment gets a whole timeout again.
        if !self.retransmit.is_set() || at == 0 && self.has_rack() {
            self.arm_timer(profile, net);
        }
        self.charge_pace(&packet, profile, net);
    }

    pub(super) fn segment(&self, offset: u64, payload: u32, profile: &Profile, net: &Net) -> Packet {
        let (ts_value, ts_echo) =
            if profile.settings.timestamps { (timestamp(net.now), self.echo) } else { (0, 0) };
        let mut packet = Packet {
            hop: self.route,
            flow: self.flow,
            len: payload + profile.overhead,
            payload: payload as u16,
            generation: self.generation,
            seq: offset,
            flags: flag::ACK,
            tos: profile.tos | if profile.settings.ecn && payload > 0 { ecn::ECT0 } else { 0 },
            window: 65_535,
            ts_value,
            ts_echo,
            ..Packet::default()
        };
        if profile.is_multipath && payload > 0 {
            self.state_mapping(&mut packet, net);
        }
        packet
    }

    /// A segment of a subflow whose receiver is in another part of the network states where its data belong.
    #[cold]
    fn state_mapping(&self, packet: &mut Packet, net: &Net) {
        let Some(share) = self.share() else { return };
        if let Some(mapping) = net.multipath[share.connection].mapping(share.subflow, packet.seq) {
            packet.sack[0] = mapping;
        }
    }

    pub(super) fn send_syn(&mut self, profile: &Profile, net: &mut Net) {
        let mut packet = self.segment(0, 0, profile, net);
        packet.flags = flag::SYN;
        packet.len = profile.syn_len();
        packet.tos = profile.tos;
        self.timed = Timed { offset: 0, sent: net.now };
        net.send(packet);
        self.arm_timer(profile, net);
    }
}
