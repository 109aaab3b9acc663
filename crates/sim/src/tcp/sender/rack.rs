//! Losses found by time (RFC 8985 section 6): a segment is lost once one that was sent after it has been delivered.
//!
//! As in Linux, timestamps are not asked whether a retransmission or its original was delivered (section 6.2, step 2, condition
//! 1), only whether a round trip has passed since (condition 2).

use std::collections::VecDeque;

use bandmaster_core::scenario::{Recovery, TcpSettings};
use bandmaster_core::time::{Span, Time};

use super::probe::Tail;
use super::recovery::Progress;
use super::{Sender, State};
use crate::events::Event;
use crate::net::{Net, Timer};
use crate::tcp::Profile;
use crate::tcp::rtt::RttRange;
use crate::tcp::scoreboard::DUP_THRESH;

/// What Linux adds to the reordering timer and to that of probes (its `TCP_TIMEOUT_MIN_US`), where timers have ticks.
pub(super) const LEAST_TIMER: Span = Span::from_millis(2);

/// Step 4: recoveries without a duplicate after which the reordering window is the least again.
const PERSIST: u32 = 16;

#[derive(Default)]
pub(super) struct Rack {
    /// When each outstanding segment was last sent.
    sent: VecDeque<Time>,
    /// Of the segment sent last among those delivered: when, and its end (RACK.xmit_ts, RACK.end_seq).
    latest: (Time, u64),
    /// Round-trip time of the segment delivered last (RACK.rtt).
    rtt: Span,
    range: RttRange,
    /// End of the highest segment delivered (RACK.fack).
    highest: u64,
    is_reordered: bool,
    /// By how many quarters of the least round-trip time the reordering window is wider than one (RACK.reo_wnd_mult - 1).
    widened: u32,
    /// Recoveries for which it stays so (RACK.reo_wnd_persist).
    persist: u32,
    /// It does not widen again before this is acknowledged (RACK.dsack_round).
    widened_until: Option<u64>,
    /// Something was delivered since losses were last looked for.
    has_news: bool,
    timer: Timer,
    /// Tail-loss probes.
    pub(super) tail: Option<Tail>,
}

/// What a look for losses has found.
#[derive(Clone, Copy, Default)]
pub(super) struct Found {
    /// Lost segments.
    pub(super) segments: u32,
    /// Those of them that had been sent again.
    pub(super) again: u32,
}

impl Rack {
    pub(super) fn new(settings: &TcpSettings) -> Self {
        Self { tail: settings.tail_loss_probe.then(Tail::default), ..Self::default() }
    }

    pub(super) fn add_sample(&mut self, sample: Span) {
        self.range.add(sample);
        if let Some(tail) = &mut self.tail {
            tail.has_sample = true;
        }
    }

    pub(super) fn push(&mut self, now: Time) {
        self.sent.push_back(now);
    }

    pub(super) fn resend(&mut self, at: usize, now: Time) {
        self.sent[at] = now;
    }

    pub(super) fn forget(&mut self, segments: usize) {
        self.sent.drain(..segments.min(self.sent.len()));
    }

    /// Step 4: the receiver reports a duplicate, with `una` acknowledged before and `next` to be sent.
    pub(super) fn note_duplicate(&mut self, una: u64, next: u64) {
        if self.widened_until.is_none_or(|until| una >= until) {
            self.widened_until = Some(next);
            self.widened += 1;
            self.persist = PERSIST;
        }
    }

    /// Step 4: a recovery ends.
    pub(super) fn note_recovery(&mut self) {
        self.persist = self.persist.saturating_sub(1);
        if self.persist == 0 {
            self.widened = 0;
        }
    }

    /// Steps 2 and 3 for a segment that is newly acknowledged or SACKed. Call it in ascending order: segments of the same
    /// acknowledgement do not count as reordered.
    fn deliver(&mut self, at: usize, end: u64, is_resent: bool, now: Time) {
        if !is_resent && end < self.highest {
            self.is_reordered = true;
        }
        self.highest = self.highest.max(end);
        let rtt = now.since(self.sent[at]);
        if is_resent && self.range.min().is_some_and(|min| rtt < min) {
            // The original has arrived.
            return;
        }
        self.has_news = true;
        self.rtt = rtt;
        self.latest = self.latest.max((self.sent[at], end));
    }
}

impl Sender {
    pub(super) fn rack(&mut self) -> Option<&mut Rack> {
        self.steering.as_mut()?.rack.as_deref_mut()
    }

    /// Whether the end of a flow is probed.
    pub(super) fn probes(&self) -> bool {
        let rack = self.steering.as_ref().and_then(|steering| steering.rack.as_ref());
        rack.is_some_and(|rack| rack.tail.is_some())
    }

    pub(super) fn has_rack(&self) -> bool {
        self.steering.as_ref().is_some_and(|steering| steering.rack.is_some())
    }

    /// The outstanding segments at places `from` to `to` have been delivered, unless that was known.
    pub(super) fn note_delivered(&mut self, from: usize, to: usize, profile: &Profile, now: Time) {
        let Some(steering) = &mut self.steering else { return };
        if let Some(rack) = steering.rack.as_deref_mut() {
            for at in from..to.min(rack.sent.len()) {
                if !self.board.is_sacked(at) {
                    let end = self.board.una + (at as u64 + 1) * profile.mss;
                    rack.deliver(at, end, self.board.is_ever_retransmitted(at), now);
                }
            }
        }
        if let Some(rates) = steering.rates.as_deref_mut() {
            for at in from..to {
                if !self.board.is_sacked(at) {
                    let end = self.board.una + (at as u64 + 1) * profile.mss;
                    rates.deliver(at, end, self.board.is_ever_retransmitted(at));
                }
            }
        }
    }

    /// Step 4: how much later than a segment sent after it one may still arrive.
    fn reordering_window(&self, rack: &Rack) -> Span {
        let in_recovery = matches!(self.state, State::Recovery | State::Loss);
        if !rack.is_reordered && (in_recovery || self.board.sacked >= DUP_THRESH) {
            return Span::ZERO;
        }
        let quarters = u64::from(rack.widened + 1);
        let window = Span::from_nanos(rack.range.min().unwrap_or_default().as_nanos() * quarters / 4);
        window.min(self.rtt.srtt().unwrap_or_default())
    }

    /// Step 5: marks what is lost, and sets the timer for what may be.
    pub(super) fn find_losses(&mut self, profile: &Profile, net: &mut Net) -> Found {
        let mut found = Found::default();
        let Some(mut rack) = self.steering.as_mut().and_then(|steering| steering.rack.take()) else {
            return found;
        };
        let window = self.reordering_window(&rack);
        let mut longest = None;
        for (at, sent) in rack.sent.iter().enumerate() {
            let end = self.board.una + (at as u64 + 1) * profile.mss;
            if self.board.is_settled(at) || (*sent, end) >= rack.latest {
                continue;
            }
            let deadline = *sent + rack.rtt + window;
            if deadline <= net.now {
                found.segments += 1;
                found.again += u32::from(self.board.is_retransmitted(at));
                self.board.mark_lost_at(at);
            } else {
                longest = longest.max(Some(deadline));
            }
        }
        rack.has_news = false;
        match longest {
            None => rack.timer.cancel(),
            Some(deadline) => {
                let least = if profile.settings.timer_tick.is_some() { LEAST_TIMER } else { Span::ZERO };
                let end = self.timer_end(deadline.since(net.now) + least, profile, net);
                rack.timer.set(end, Event::Reordering(self.flow), &mut net.events);
            }
        }
        self.steering.get_or_insert_default().rack = Some(rack);
        found
    }

    /// [`Sender::find_losses`] if something was delivered since the last time.
    pub(super) fn find_losses_by_news(&mut self, profile: &Profile, net: &mut Net) -> Found {
        let has_news = self.rack().is_some_and(|rack| rack.has_news);
        if has_news { self.find_losses(profile, net) } else { Found::default() }
    }

    pub(crate) fn on_reordering_timer(&mut self, profile: &Profile, net: &mut Net) {
        let event = Event::Reordering(self.flow);
        if !self.rack().is_some_and(|rack| rack.timer.fires(event, net)) || !self.is_open() {
            return;
        }
        let found = self.find_losses(profile, net);
        if found.segments == 0 {
            return;
        }
        self.note_timer_losses(found.segments);
        if self.state != State::Recovery {
            self.enter_recovery(profile, net);
            if profile.settings.recovery != Recovery::Rfc6675 && !self.has_rates() {
                self.apply_prr(1, Progress::default(), profile);
            }
        }
        self.transmit(profile, net);
    }

    /// Section 6.3: after a timeout the first segment is lost, and what was sent more than a round trip ago.
    pub(super) fn mark_overdue(&mut self, now: Time) {
        let Some(rack) = self.steering.as_mut().and_then(|steering| steering.rack.as_deref_mut()) else {
            return;
        };
        for (at, sent) in rack.sent.iter().enumerate() {
            if at == 0 || *sent + rack.rtt <= now {
                self.board.mark_lost_at(at);
            }
        }
        rack.timer.cancel();
    }
}

#[cfg(test)]
mod tests {
    use bandmaster_core::scenario::{LossDetection, TcpSettings};

    use super::*;

    /// Of two segments the second is delivered, then the first, which may have been sent again and be lost once more.
    fn sees_reordering(is_sent_again: bool) -> bool {
        let settings = TcpSettings { loss_detection: LossDetection::Rack, ..TcpSettings::default() };
        let mut sender = Sender::new(0, 0, None, &settings);
        let profile = Profile::new(settings, 0, false, 0);
        let at = |millis| Time::ZERO + Span::from_millis(millis);
        for _ in 0..2 {
            sender.board.push();
            sender.rack().expect("RACK").push(at(0));
        }
        if is_sent_again {
            sender.board.mark_lost_at(0);
            assert_eq!(sender.board.take_lost(), Some(0));
            sender.rack().expect("RACK").resend(0, at(5));
            sender.board.mark_lost_at(0);
        }
        sender.note_delivered(1, 2, &profile, at(10));
        sender.note_delivered(0, 1, &profile, at(15));
        sender.rack().expect("RACK").is_reordered
    }

    #[test]
    fn a_late_retransmission_is_no_reordering() {
        assert_eq!([false, true].map(sees_reordering), [true, false]);
    }
}
