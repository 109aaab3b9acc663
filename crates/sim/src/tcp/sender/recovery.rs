//! Losses: when one is believed, what the window becomes, what is sent again (RFC 5681, 6582, 6675, 9937), and the timer
//! (RFC 6298).

use bandmaster_core::scenario::{FlightSize, MarkReduction, Recovery};
use bandmaster_core::time::{Span, Time};

use super::{Sender, State, Timed};
use crate::events::Event;
use crate::net::Net;
use crate::packet::{Packet, flag};
use crate::tcp::Profile;
use crate::tcp::cc::FastRecovery;
use crate::tcp::multipath::Share;
use crate::tcp::scoreboard::DUP_THRESH;

/// RFC 9937 (first RFC 6937), in segments.
#[derive(Clone, Copy, Default)]
pub(super) struct Prr {
    pub(super) delivered: u32,
    pub(super) out: u32,
    pub(super) flight_at_start: u32,
}

impl Prr {
    /// Bytes that ns-3.37 lets go (its tcp-prr-recovery.cc), in integers of 32 bits. The product wraps once ssthresh times
    /// what was delivered, in bytes, exceeds 2^32, as it does within a flight of 100 segments; then hardly anything is sent before
    /// the pipe is below ssthresh.
    fn sent_by_ns3(&self, delivered: u32, pipe: u64, ssthresh: u64, progress: Progress, mss: u64) -> u64 {
        let bytes = |segments: u32| i64::from(segments) * mss as i64;
        let (all, out) = (bytes(self.delivered), bytes(self.out));
        let send = if pipe > ssthresh {
            let product = (all as u32).wrapping_mul(ssthresh as u32);
            u64::from(product).div_ceil(bytes(self.flight_at_start).max(1) as u64) as i64 - out
        } else {
            let limit = match progress.repairs {
                // More sent than delivered: the unsigned difference is the greater, and negative when it is read.
                true if out > all => all - out + mss as i64,
                true => (all - out).max(bytes(delivered)) + mss as i64,
                false => bytes(delivered),
            };
            limit.min((ssthresh - pipe) as i64)
        };
        send.max(0) as u64
    }
}

/// What an acknowledgement in fast recovery says of its progress.
#[derive(Clone, Copy, Default)]
pub(super) struct Progress {
    /// It covers more than the last one, and tells of no new loss.
    pub(super) is_safe: bool,
    /// It covers a retransmission.
    pub(super) repairs: bool,
}

/// Line 21 of QCBF's Algorithm 1: ssthresh at each timeout, in bytes, of the window, of the field that came back, and of the number
/// of subflows.
fn ssthresh_of_algorithm_1(cwnd: u64, field: u64, mss: u64, subflows: u64) -> u64 {
    (cwnd / 2).min(field).max(2 * mss) / subflows
}

impl Sender {
    pub(super) fn reduced_until(&self) -> u64 {
        self.steering.as_ref().map_or(0, |steering| steering.reduced_until)
    }

    pub(super) fn react_to_echo(&mut self, packet: &Packet, profile: &Profile, net: &mut Net) {
        // The last segment of the window that was reduced came before CWR, so its acknowledgement echoes the same mark.
        let reduced_until = self.reduced_until();
        let answered = self.board.una <= reduced_until && reduced_until > 0;
        if packet.flags & flag::ECE == 0 || answered || self.state != State::Open {
            return;
        }
        if self.has_rates() {
            // Its control does not react to marks.
            self.steering.get_or_insert_default().reduced_until = self.next;
            self.send_cwr = true;
            return;
        }
        let flight = u64::from(self.board.outstanding().saturating_sub(self.board.sacked)) * profile.mss;
        self.window.ssthresh = match &mut self.control {
            Some(control) if profile.echoes_each || control.tells_marks_from_losses() => {
                control.ssthresh_after_mark(&self.window, flight, profile.mss)
            }
            _ => self.ssthresh_after_loss(profile, net),
        };
        self.forget_probe();
        let steering = self.steering.get_or_insert_default();
        steering.reduced_until = self.next;
        match profile.settings.mark_reduction {
            MarkReduction::AtOnce => self.window.cwnd = self.window.ssthresh,
            MarkReduction::Prr => {
                steering.is_reducing = true;
                self.prr = Prr { flight_at_start: self.board.outstanding(), ..Prr::default() };
            }
        }
        self.send_cwr = true;
    }

    /// The window still falls after a mark.
    pub(super) fn is_reducing(&self) -> bool {
        self.steering.as_ref().is_some_and(|steering| steering.is_reducing) && self.state == State::Open
    }

    /// A further acknowledgement while the window falls after a mark.
    pub(super) fn reduce_further(&mut self, delivered: u32, profile: &Profile) {
        if self.board.una <= self.reduced_until() {
            self.apply_prr(delivered, Progress::default(), profile);
            if self.prr.out == 0 {
                // As a recovery begins with a retransmission, a reduction begins with a segment.
                let pipe = u64::from(self.board.pipe(self.board.sacked)) * profile.mss;
                self.window.cwnd = self.window.cwnd.max(pipe + profile.mss);
            }
            return;
        }
        self.window.cwnd = self.window.ssthresh;
        self.end_reduction();
    }

    pub(super) fn end_reduction(&mut self) {
        if let Some(steering) = &mut self.steering {
            steering.is_reducing = false;
        }
    }

    pub(super) fn ssthresh_after_loss(&mut self, profile: &Profile, net: &mut Net) -> u64 {
        let left = match profile.settings.flight_size {
            _ if self.control.as_ref().is_some_and(|control| control.halves_outstanding()) => {
                self.board.outstanding()
            }
            // After a timeout most of it is known to be lost.
            _ if self.state == State::Loss && self.has_rack() => self.board.pipe(self.board.sacked),
            FlightSize::Outstanding => self.board.outstanding().saturating_sub(self.board.sacked),
            FlightSize::Pipe => self.board.pipe(self.board.sacked),
        };
        let flight = u64::from(left) * profile.mss;
        let share = self.share();
        let Some(control) = &mut self.control else { return flight / 2 };
        match share {
            Some(Share { connection, subflow }) => {
                let shared = &mut net.multipath[connection];
                shared.note_loss(subflow);
                let (window, paths) = (&self.window, &shared.paths);
                control.ssthresh_after_subflow_loss(window, flight, profile.mss, paths, subflow)
            }
            None => control.ssthresh_after_loss(&self.window, flight, profile.mss),
        }
    }

    pub(super) fn fast_recovery(&self) -> FastRecovery {
        self.control.as_ref().map_or(FastRecovery::UntilRepaired, |control| control.fast_recovery())
    }

    pub(super) fn update_state(&mut self, advanced: bool, profile: &Profile, net: &mut Net) {
        let is_over = match self.state {
            State::Recovery if advanced && self.fast_recovery() == FastRecovery::UntilProgress => true,
            State::Recovery | State::Loss => self.board.una >= self.recovery_point,
            _ => false,
        };
        if is_over {
            if self.state == State::Recovery && !self.has_rates() {
                self.window.cwnd = self.window.ssthresh.max(profile.mss);
            }
            self.state = State::Open;
            self.end_recovery();
            if !profile.settings.sack {
                self.board.sacked = 0;
            }
        }
        match self.state {
            State::Open => {
                let duplicates =
                    u32::from(self.duplicates) >= DUP_THRESH && !self.board.is_empty() && !self.has_rack();
                // RFC 6582 section 3.2 step 1: duplicates of an old recovery do not start a new one.
                let stale = !profile.settings.sack
                    && self.board.una <= self.recovery_point
                    && self.recovery_point > 0
                    && self.fast_recovery() != FastRecovery::UntilProgress;
                if self.board.lost() > 0 || duplicates && !stale {
                    self.enter_recovery(profile, net);
                }
            }
            // RFC 6582: a partial acknowledgement means that the next segment was lost too.
            State::Recovery if advanced && !profile.settings.sack => {
                self.board.mark_head_lost(profile.mss);
            }
            _ => {}
        }
    }

    pub(super) fn end_recovery(&mut self) {
        self.had_partial_ack = false;
        if let Some(rack) = self.rack() {
            rack.note_recovery();
        }
    }

    pub(super) fn enter_recovery(&mut self, profile: &Profile, net: &mut Net) {
        self.remember_window();
        self.window.ssthresh = self.ssthresh_after_loss(profile, net);
        if self.fast_recovery() == FastRecovery::None {
            self.send_cwr = profile.settings.ecn;
            self.start_over(profile, net);
            return;
        }
        self.prr = Prr { flight_at_start: self.board.outstanding(), ..Prr::default() };
        self.end_reduction();
        self.forget_probe();
        self.state = State::Recovery;
        self.recovery_point = self.next;
        self.rescued = false;
        self.send_cwr = profile.settings.ecn;
        if self.board.lost() == 0 {
            self.board.mark_head_lost(profile.mss);
        }
        if self.has_rates() {
            // The control sets the window, and what is lost leaves at its pace.
            return;
        }
        if profile.settings.recovery == Recovery::Rfc6675 {
            self.window.cwnd = self.window.ssthresh;
        }
        // RFC 5681 section 3.2 step 2: the first retransmission does not wait for the window.
        self.retransmit_next(profile, net);
    }

    /// The window falls to a segment; what is outstanding is to be sent again, as acknowledgements allow.
    pub(super) fn start_over(&mut self, profile: &Profile, net: &mut Net) {
        self.end_reduction();
        self.forget_probe();
        self.state = State::Loss;
        self.recovery_point = self.next;
        self.timed = Timed::default();
        let lost_before = self.board.lost();
        if self.has_rack() {
            self.mark_overdue(net.now);
        } else {
            self.board.mark_all_lost(self.next);
        }
        self.note_timer_losses(self.board.lost().saturating_sub(lost_before));
        // What is not lost is still in flight (Linux).
        self.window.cwnd = (u64::from(self.in_flight(&profile.settings)) + 1) * profile.mss;
        self.retransmit_next(profile, net);
        self.arm_timer(profile, net);
    }

    /// RFC 9937 section 6: growth beyond what was delivered only on progress without new losses.
    pub(super) fn apply_prr(&mut self, delivered: u32, progress: Progress, profile: &Profile) {
        let mss = profile.mss;
        self.prr.delivered = self.prr.delivered.wrapping_add(delivered);
        let bytes = |segments: u32| u64::from(segments) * mss;
        let pipe = u64::from(self.board.pipe(self.board.sacked)) * mss;
        let ssthresh = self.window.ssthresh;
        let send = if profile.settings.recovery == Recovery::PrrNs3 {
            self.prr.sent_by_ns3(delivered, pipe, ssthresh, progress, mss)
        } else if pipe > ssthresh {
            (bytes(self.prr.delivered) * ssthresh)
                .div_ceil(bytes(self.prr.flight_at_start).max(1))
                .saturating_sub(bytes(self.prr.out))
        } else {
            let owed = self.prr.delivered.saturating_sub(self.prr.out);
            let limit = bytes(owed.max(delivered)) + if progress.is_safe { mss } else { 0 };
            limit.min(ssthresh - pipe)
        };
        self.window.cwnd = (pipe + send).max(mss);
    }

    /// Sends a lost segment again, else a new one (RFC 6675 NextSeg rules 1 and 2), else the first outstanding one, whatever
    /// the congestion window; a scheme's bound and pacing hold. A subflow's new data comes by [`Sender::push_data`] only.
    pub(super) fn answer_partial_ack(&mut self, profile: &Profile, net: &mut Net) {
        let in_flight = u64::from(self.in_flight(&profile.settings)) * profile.mss;
        let cap = self.steering.as_ref().and_then(|steering| steering.cap);
        if cap.is_some_and(|cap| in_flight + profile.mss > cap) || self.must_wait_for_pace(profile, net) {
            return;
        }
        if self.board.has_lost_pending() {
            self.retransmit_next(profile, net);
            return;
        }
        if let Some(len) = self.next_len(profile) {
            self.send_new(len, profile, net);
        } else if let Some(at) = self.board.take_head() {
            self.resend(at, profile, net);
        }
    }

    /// Sends the first lost segment again that has not been.
    pub(super) fn retransmit_next(&mut self, profile: &Profile, net: &mut Net) {
        let Some(at) = self.board.take_lost() else { return };
        self.resend(at, profile, net);
    }

    /// RFC 6675 NextSeg rules 3 and 4: in recovery, with nothing new to send, a segment not known to have arrived.
    pub(super) fn retransmit_speculatively(&mut self, profile: &Profile, net: &mut Net) -> bool {
        if self.state != State::Recovery || !profile.settings.sack || self.has_rack() {
            return false;
        }
        let mut found = self.board.take_unknown(profile.mss);
        if found.is_none() && !std::mem::replace(&mut self.rescued, true) {
            found = self.board.take_rescue();
        }
        let Some(at) = found else { return false };
        self.resend(at, profile, net);
        true
    }

    /// When a timer of so long ends.
    pub(super) fn timer_end(&self, wait: Span, profile: &Profile, net: &Net) -> Time {
        match profile.settings.timer_tick {
            // The wait is so many ticks, and the tick that has begun does not count.
            Some(tick) => (net.now + wait.up_to(tick)).up_to(tick),
            None => net.now + wait,
        }
    }

    pub(super) fn arm_timer(&mut self, profile: &Profile, net: &mut Net) {
        let mut rto = self.rtt.rto(&profile.settings);
        // RFC 6298 (5.7): data starts with 3 s when the SYN timed out and nothing could be measured.
        if self.rtt.srtt().is_none() && self.state != State::SynSent && self.counters.timeouts > 0 {
            rto = rto.max(Span::from_secs(3)).min(profile.settings.max_rto);
        }
        let backed_off = (rto * (1 << self.backoff.min(16))).min(profile.settings.max_rto);
        let end = self.timer_end(backed_off, profile, net);
        self.retransmit.set(end, Event::Retransmit(self.flow), &mut net.events);
    }

    /// RFC 6298 (5.2), (5.3).
    pub(super) fn restart_timer(&mut self, profile: &Profile, net: &mut Net) {
        if self.board.is_empty() {
            self.retransmit.cancel();
        } else {
            self.arm_timer(profile, net);
        }
    }

    pub(crate) fn on_retransmit_timer(&mut self, profile: &Profile, net: &mut Net) {
        if !self.retransmit.fires(Event::Retransmit(self.flow), net)
            || self.is_done()
            || self.state == State::Reset
        {
            return;
        }
        if self.is_probe_due() {
            self.probe(profile, net);
            return;
        }
        self.backoff = self.backoff.saturating_add(1);
        if self.state == State::SynSent {
            self.counters.timeouts += 1;
            self.send_syn(profile, net);
            self.timed = Timed::default();
            return;
        }
        if self.board.is_empty() {
            if self.next >= self.send_limit() && !self.awaits_window(net) {
                return;
            }
            // Window probe: an old offset, so that the receiver answers with its window. Before the first byte it is the SYN's, which
            // has none here.
            let mut probe = self.segment(self.board.una.saturating_sub(1), 0, profile, net);
            probe.flags = flag::ACK;
            probe.is_keep_alive = true;
            net.send(probe);
            self.arm_timer(profile, net);
            return;
        }
        self.counters.timeouts += 1;
        // RFC 5681 section 3.1: ssthresh falls once per loss, not with every timeout of the same segment.
        let cwnd = self.window.cwnd;
        let looks_spurious = self.state == State::Open || self.state == State::Loss && self.backoff > 1;
        if self.state != State::Loss || self.board.una >= self.recovery_point || self.backoff <= 1 {
            self.remember_window();
            self.window.ssthresh = self.ssthresh_after_loss(profile, net);
        }
        if profile.divides_at_timeout {
            let field = self.steering.as_ref().and_then(|steering| steering.cap).unwrap_or(u64::MAX);
            let subflows = self.share().map_or(1, |share| net.multipath[share.connection].paths.len());
            self.window.ssthresh = ssthresh_of_algorithm_1(cwnd, field, profile.mss, subflows as u64);
        }
        if let Some(control) = &mut self.control {
            control.on_timeout();
        }
        if let Some(share) = self.share() {
            net.multipath[share.connection].send_again_elsewhere(share.subflow);
        }
        self.duplicates = 0;
        if !profile.settings.sack {
            self.board.sacked = 0;
        }
        if let Some(steering) = &mut self.steering {
            steering.next_send = net.now;
        }
        self.start_over(profile, net);
        if looks_spurious && profile.settings.f_rto {
            self.begin_forward();
        }
    }
}

#[cfg(test)]
mod tests {
    use bandmaster_core::scenario::TcpSettings;

    use super::*;

    /// The window, in segments, of a flight of 20 of which `sacked` arrived, after one more is delivered.
    fn window(recovery: Recovery, sacked: u32, prr: Prr, progress: Progress) -> u64 {
        let settings = TcpSettings { recovery, ..TcpSettings::default() };
        let mut sender = Sender::new(0, 0, None, &settings);
        let profile = Profile::new(settings, 0, false, 0);
        (0..20).for_each(|_| sender.board.push());
        sender.board.sacked = sacked;
        sender.window.ssthresh = 15 * profile.mss;
        sender.prr = prr;
        sender.apply_prr(1, progress, &profile);
        sender.window.cwnd / profile.mss
    }

    /// 5 segments are in the network, 11 were delivered and 4 sent; ssthresh is 15.
    #[test]
    fn below_ssthresh_ns3_sends_what_is_owed_only_with_a_repair() {
        let prr = || Prr { delivered: 10, out: 4, flight_at_start: 20 };
        let window = |recovery, is_safe, repairs| window(recovery, 15, prr(), Progress { is_safe, repairs });
        // RFC 9937: the 7 that are owed, and one more on progress.
        assert_eq!([false, true].map(|is_safe| window(Recovery::Prr, is_safe, false)), [12, 13]);
        // ns-3: the one that was delivered; all, and one more, with a repair.
        assert_eq!([false, true].map(|is_safe| window(Recovery::PrrNs3, is_safe, false)), [6, 6]);
        assert_eq!([false, true].map(|is_safe| window(Recovery::PrrNs3, is_safe, true)), [13, 13]);
    }

    /// max(2, min(cwnd / 2, awnd)) / n, in segments of 1000 bytes: of a window of 20 half is 10, over a field of 8 it is 8, and
    /// a half of that 4. A window of 2 leaves the least, 2, of which each of two subflows has one.
    #[test]
    fn a_timeout_divides_ssthresh_by_the_subflows() {
        let cases = [
            (20_000, u64::MAX, 1, 10_000),
            (20_000, 50_000, 2, 5_000),
            (20_000, 8_000, 2, 4_000),
            (9_000, 64_000, 2, 2_250),
            (2_000, 64_000, 2, 1_000),
            (1_000, 300, 4, 500),
        ];
        for (cwnd, field, subflows, expected) in cases {
            let ssthresh = ssthresh_of_algorithm_1(cwnd, field, 1000, subflows);
            assert_eq!(ssthresh, expected, "{cwnd} {field} {subflows}");
        }
    }

    /// Of the 7.5 segments that half of a flight allows, 4 were sent. Of the larger flight, 200 segments times 15, in bytes, are
    /// 1.46 times 2^32.
    #[test]
    fn above_ssthresh_a_product_of_ns3_wraps() {
        let window = |recovery, flight: u32| {
            let prr = Prr { delivered: flight / 2 - 1, out: 4, flight_at_start: flight };
            window(recovery, 0, prr, Progress::default())
        };
        assert_eq!([20, 400].map(|flight| window(Recovery::Prr, flight)), [23, 23]);
        assert_eq!([20, 400].map(|flight| window(Recovery::PrrNs3, flight)), [23, 20]);
    }
}
