//! Tail-loss probes (RFC 8985 section 7): when acknowledgements stop, a segment asks for one before the timer runs out.
//!
//! The retransmission timer runs on while a probe is planned. No probe is planned later than its end, so that the probe comes first.

use bandmaster_core::time::Span;

use super::rack::LEAST_TIMER;
use super::{Sender, State};
use crate::events::Event;
use crate::net::{Net, Timer};
use crate::packet::Packet;
use crate::tcp::Profile;

#[derive(Default)]
pub(super) struct Tail {
    timer: Timer,
    /// What had been sent when the last probe had left, until it is known what became of it (TLP.end_seq).
    end: Option<u64>,
    /// The last probe was sent again, instead of new data (TLP.is_retrans).
    is_resent: bool,
    /// A round-trip time was measured since the last probe, or since the start.
    pub(super) has_sample: bool,
}

impl Sender {
    fn tail(&mut self) -> Option<&mut Tail> {
        self.rack()?.tail.as_mut()
    }

    /// Section 7.2: the wait for an acknowledgement. With ticks it is as in Linux, which adds 2 ms, or the least timeout to the wait
    /// for a lone segment.
    fn probe_timeout(&self, profile: &Profile) -> Span {
        let settings = &profile.settings;
        let Some(srtt) = self.rtt.srtt() else { return Span::from_secs(1) };
        let is_lone = self.board.outstanding() == 1;
        let allowance = match (settings.timer_tick, is_lone) {
            (None, false) => Span::ZERO,
            (None, true) => settings.delayed_ack_timeout,
            (Some(_), false) => LEAST_TIMER,
            (Some(_), true) => settings.min_rto,
        };
        srtt * 2 + allowance
    }

    /// Section 7.2: new data was sent, or acknowledged.
    pub(super) fn plan_probe(&mut self, profile: &Profile, net: &mut Net) {
        if self.state != State::Open || self.board.is_empty() || self.board.sacked > 0 {
            self.cancel_probe();
            return;
        }
        let end = self.timer_end(self.probe_timeout(profile), profile, net);
        let latest = self.retransmit.left(net.now).map_or(end, |left| net.now + left);
        let event = Event::Probe(self.flow);
        if let Some(tail) = self.tail() {
            tail.timer.set(end.min(latest), event, &mut net.events);
        }
    }

    /// Section 7.2: none is sent in a recovery, nor when segments were SACKed.
    pub(super) fn cancel_probe(&mut self) {
        if let Some(tail) = self.tail() {
            tail.timer.cancel();
        }
    }

    /// The window falls for another reason, which covers what a probe may have repaired.
    pub(super) fn forget_probe(&mut self) {
        if let Some(tail) = self.tail() {
            tail.timer.cancel();
            tail.end = None;
        }
    }

    pub(crate) fn on_probe_timer(&mut self, profile: &Profile, net: &mut Net) {
        let event = Event::Probe(self.flow);
        if self.tail().is_some_and(|tail| tail.timer.fires(event, net)) && self.is_open() {
            self.probe(profile, net);
        }
    }

    /// A probe is due with the retransmission timer, and comes instead.
    pub(super) fn is_probe_due(&mut self) -> bool {
        self.tail().is_some_and(|tail| tail.timer.is_set())
    }

    /// Section 7.3.
    pub(super) fn probe(&mut self, profile: &Profile, net: &mut Net) {
        if self.tail().is_some_and(|tail| tail.end.is_none() && tail.has_sample) {
            self.send_probe(profile, net);
        }
        self.cancel_probe();
        if !self.board.is_empty() {
            self.arm_timer(profile, net);
        }
    }

    /// A new segment, else the last one again.
    fn send_probe(&mut self, profile: &Profile, net: &mut Net) {
        let in_flight = u64::from(self.in_flight(&profile.settings)) * profile.mss;
        let cap = self.steering.as_ref().and_then(|steering| steering.cap);
        let fits = cap.is_none_or(|cap| in_flight + profile.mss <= cap);
        let is_resent = match self.next_len(profile).filter(|_| fits) {
            Some(len) => {
                self.send_new(len, profile, net);
                false
            }
            None => {
                let Some(at) = self.board.take_last() else { return };
                self.resend(at, profile, net);
                true
            }
        };
        let end = self.next;
        if let Some(tail) = self.tail() {
            tail.end = Some(end);
            tail.is_resent = is_resent;
            tail.has_sample = false;
        }
    }

    /// Section 7.4.2: what an acknowledgement says of the last probe. It may be a bare duplicate, or report the end of a duplicate. A
    /// probe that repaired the only loss lowers the window as a fast recovery would.
    pub(super) fn judge_probe(
        &mut self,
        packet: &Packet,
        is_bare: bool,
        reported: Option<u64>,
        profile: &Profile,
        net: &mut Net,
    ) {
        let Some(tail) = self.tail() else { return };
        let Some(end) = tail.end.filter(|end| packet.ack >= *end) else { return };
        let has_repaired = tail.is_resent && reported != Some(end) && packet.ack > end;
        if !tail.is_resent || reported == Some(end) || has_repaired || is_bare {
            tail.end = None;
        }
        // A control by rates sets its window.
        if has_repaired && !self.has_rates() {
            self.window.ssthresh = self.ssthresh_after_loss(profile, net);
            self.window.cwnd = self.window.ssthresh.max(profile.mss);
            self.end_reduction();
            self.send_cwr = profile.settings.ecn;
        }
    }
}
