//! Delivery rates (draft-cheng-iccrg-delivery-rate-estimation-00), and the pace of congestion controls that steer by them.
//!
//! Counts are of segments, as in Linux. Only flows whose control [asks for rates](super::CongestionControl::is_rate_based)
//! have this state.

use std::collections::VecDeque;

use bandmaster_core::rng::Stream;
use bandmaster_core::time::{Span, Time};
use bandmaster_core::units::{Bytes, Rate};

use super::{Sender, State};
use crate::net::Net;
use crate::tcp::Profile;
use crate::tcp::cc::{Delivery, RateSample, Repair};
use crate::tcp::rtt::RttRange;

/// Linux, as its fq discipline, paces from the segment after these on.
const UNPACED: u32 = 10;

#[derive(Default)]
pub(super) struct Rates {
    /// Of each outstanding segment, the state of the connection when it was last sent.
    sent: VecDeque<Sent>,
    /// Segments delivered (C.delivered), and when the last of them was (C.delivered_time).
    delivered: u64,
    delivered_at: Time,
    /// Segments found lost, again for each loss of a retransmission.
    lost: u64,
    /// When the segment left that was delivered last (C.first_sent_time).
    first_sent: Time,
    /// Samples are the application's until more than this is delivered (C.app_limited).
    app_limited: Option<u64>,
    /// Of the acknowledgement under way: the segment sent last among those delivered.
    latest: Option<Latest>,
    /// Of the acknowledgement under way: when the last segment left that was delivered and never sent again.
    timed: Option<Time>,
    range: RttRange,
    burst: Burst,
}

/// A segment's copy of the connection's state (section 2.2 of the draft).
#[derive(Clone, Copy)]
struct Sent {
    at: Time,
    first_sent: Time,
    delivered: u64,
    delivered_at: Time,
    is_app_limited: bool,
}

#[derive(Clone, Copy)]
struct Latest {
    sent: Sent,
    end: u64,
}

/// Segments that leave together, as one buffer of Linux does.
#[derive(Default)]
struct Burst {
    at: Time,
    left: u32,
    /// How late the first segment was.
    credit: Span,
}

impl Rates {
    /// Section 3.2: a segment leaves. `is_first`: nothing is outstanding.
    fn stamp(&mut self, is_first: bool, now: Time) -> Sent {
        if is_first {
            self.first_sent = now;
            self.delivered_at = now;
        }
        Sent {
            at: now,
            first_sent: self.first_sent,
            delivered: self.delivered,
            delivered_at: self.delivered_at,
            is_app_limited: self.app_limited.is_some(),
        }
    }

    pub(super) fn push(&mut self, is_first: bool, now: Time) {
        let sent = self.stamp(is_first, now);
        self.sent.push_back(sent);
    }

    pub(super) fn resend(&mut self, at: usize, now: Time) {
        self.sent[at] = self.stamp(false, now);
    }

    pub(super) fn forget(&mut self, segments: usize) {
        self.sent.drain(..segments.min(self.sent.len()));
    }

    /// Section 3.3, UpdateRateSample(): the segment at a place, which ends at an offset, is delivered.
    pub(super) fn deliver(&mut self, at: usize, end: u64, is_resent: bool) {
        let Some(&sent) = self.sent.get(at) else { return };
        if !is_resent {
            self.timed = Some(sent.at);
        }
        if self.latest.is_none_or(|latest| (sent.at, end) > (latest.sent.at, latest.end)) {
            self.latest = Some(Latest { sent, end });
            self.first_sent = sent.at;
        }
    }

    /// Section 3.3, GenerateRateSample(): so many segments are newly delivered. Also returns the round-trip time of the last.
    fn finish(&mut self, newly_delivered: u32, now: Time) -> (Option<RateSample>, Option<Span>) {
        self.delivered += u64::from(newly_delivered);
        if newly_delivered > 0 {
            self.delivered_at = now;
        }
        if self.app_limited.is_some_and(|until| self.delivered > until) {
            self.app_limited = None;
        }
        let rtt = self.timed.take().map(|sent| now.since(sent));
        if let Some(rtt) = rtt {
            self.range.add(rtt);
        }
        let sample = self.latest.take().map(|Latest { sent, .. }| RateSample {
            delivered: self.delivered - sent.delivered,
            prior_delivered: sent.delivered,
            interval: sent.at.since(sent.first_sent).max(now.since(sent.delivered_at)),
            is_app_limited: sent.is_app_limited,
        });
        // Less than the least round-trip time: a retransmission, whose original was delivered.
        let least = self.range.min().unwrap_or_default();
        (sample.filter(|sample| sample.interval >= least && !sample.interval.is_zero()), rtt)
    }

    /// Section 3.4: from here on the pipe has a bubble, which ends when what is in flight is delivered.
    fn mark_app_limited(&mut self, in_flight: u32) {
        self.app_limited = Some((self.delivered + u64::from(in_flight)).max(1));
    }

    /// A burst that began now may go on.
    pub(super) fn has_burst(&self, now: Time) -> bool {
        self.burst.at == now && self.burst.left > 0
    }

    /// A segment of `gap` leaves, in a burst of up to `quantum`: when the next may. As in Linux, up to half of each gap makes
    /// up for a burst that was late.
    fn next_send(&mut self, next_send: Time, gap: Span, quantum: u32, now: Time) -> Time {
        if !self.has_burst(now) {
            let credit = if next_send < now { now.since(next_send) } else { Span::ZERO };
            self.burst = Burst { at: now, left: quantum, credit };
        }
        self.burst.left = self.burst.left.saturating_sub(1);
        let used = Span::from_nanos(gap.as_nanos() / 2).min(self.burst.credit);
        self.burst.credit = Span::from_nanos(self.burst.credit.as_nanos() - used.as_nanos());
        next_send.max(now) + Span::from_nanos(gap.as_nanos() - used.as_nanos())
    }
}

impl Sender {
    pub(super) fn rates(&mut self) -> Option<&mut Rates> {
        self.steering.as_mut()?.rates.as_deref_mut()
    }

    pub(super) fn has_rates(&self) -> bool {
        self.steering.as_ref().is_some_and(|steering| steering.rates.is_some())
    }

    /// Gives a congestion control that draws at random its stream.
    pub(crate) fn set_stream(&mut self, stream: impl FnOnce() -> Stream) {
        if self.has_rates()
            && let Some(control) = &mut self.control
        {
            control.set_stream(stream());
        }
    }

    /// The connection is open, and this is the round-trip time of its SYN.
    pub(super) fn open_rates(&mut self, profile: &Profile, now: Time) {
        let rtt = self.rtt.srtt();
        let Some(rates) = self.rates() else { return };
        if let Some(rtt) = rtt {
            rates.range.add(rtt);
        }
        if let Some(control) = &mut self.control {
            control.on_open(&self.window, rtt, profile.mss, now);
        }
    }

    /// A new segment leaves: the first after a silence ends it.
    pub(super) fn push_rates(&mut self, profile: &Profile, now: Time) {
        if !self.has_rates() {
            return;
        }
        let is_silent = self.in_flight(&profile.settings) == 0;
        let is_first = self.board.is_empty();
        let Some(rates) = self.rates() else { return };
        let is_restart = is_silent && rates.app_limited.is_some();
        rates.push(is_first, now);
        if is_restart && let Some(control) = &mut self.control {
            control.on_restart(&mut self.window, profile.mss, now);
        }
    }

    /// The control answers an acknowledgement, whatever the state: it sets window and pace.
    pub(super) fn steer_by_rate(
        &mut self,
        (prior_in_flight, newly_delivered, newly_lost): (u32, u32, u32),
        sample: Option<Span>,
        profile: &Profile,
        now: Time,
    ) {
        let in_flight = self.in_flight(&profile.settings);
        let Some(steering) = &mut self.steering else { return };
        let Some(rates) = steering.rates.as_deref_mut() else { return };
        rates.lost += u64::from(newly_lost);
        let (rate, rtt) = rates.finish(newly_delivered, now);
        let delivery = Delivery {
            now,
            mss: profile.mss,
            newly_delivered,
            newly_lost,
            delivered: rates.delivered,
            lost: rates.lost,
            prior_in_flight,
            in_flight,
            repair: match self.state {
                State::Recovery => Repair::Recovery,
                State::Loss => Repair::Loss,
                _ => Repair::None,
            },
            rtt: rtt.or(sample),
            srtt: self.rtt.srtt(),
            sample: rate,
            next_send: steering.next_send.max(now),
        };
        let Some(control) = &mut self.control else { return };
        control.on_delivery(&mut self.window, &delivery);
        if control.is_app_limiting() {
            rates.mark_app_limited(in_flight);
        }
        if let Some(clamp) = profile.settings.cwnd_clamp {
            self.window.cwnd = self.window.cwnd.min(u64::from(clamp) * profile.mss);
        }
    }

    /// A timer has found so many segments lost.
    pub(super) fn note_timer_losses(&mut self, segments: u32) {
        if let Some(rates) = self.rates() {
            rates.lost += u64::from(segments);
        }
    }

    /// After what the window and the pace allow has been sent: the application may be what limits the sender (section 3.4).
    pub(super) fn note_app_limit(&mut self, profile: &Profile, net: &Net) {
        if !self.has_rates() || self.next < self.send_limit() || self.board.has_lost_pending() {
            return;
        }
        let has_data = self.share().is_some_and(|s| net.multipath[s.connection].has_data(s.subflow));
        let in_flight = self.in_flight(&profile.settings);
        if has_data || (u64::from(in_flight) + 1) * profile.mss > self.send_window(profile) {
            return;
        }
        if let Some(rates) = self.rates() {
            rates.mark_app_limited(in_flight);
        }
    }

    /// A segment has left, at the pace of the control.
    pub(super) fn charge_control(&mut self, payload: u16, rate: Rate, profile: &Profile, now: Time) {
        let quantum = self.control.as_ref().map_or(1, |control| control.send_quantum());
        let quantum = quantum.min(profile.settings.largest_burst.unwrap_or(u32::MAX));
        let is_unpaced = self.counters.segments <= UNPACED;
        let Some(steering) = &mut self.steering else { return };
        let Some(rates) = steering.rates.as_deref_mut() else { return };
        let gap = rate.time_for(Bytes::new(u64::from(payload))).min(Span::from_secs(1));
        steering.next_send = if is_unpaced {
            steering.next_send.max(now)
        } else {
            rates.next_send(steering.next_send, gap, quantum, now)
        };
    }
}

#[cfg(test)]
mod tests {
    use bandmaster_core::scenario::TcpSettings;

    use super::*;

    fn at(millis: u64) -> Time {
        Time::ZERO + Span::from_millis(millis)
    }

    /// Section 3.3: a flight is delivered in the longer of the times in which it was sent and acknowledged, so acknowledgements
    /// that arrive squeezed do not raise the rate.
    #[test]
    fn the_interval_is_the_longer_of_sending_and_acknowledging() {
        let mut rates = Rates::default();
        for n in 0..10 {
            rates.push(n == 0, at(n));
        }
        // The first is delivered: its sample covers one round trip.
        rates.deliver(0, 1, false);
        let (sample, rtt) = rates.finish(1, at(40));
        assert_eq!(rtt, Some(Span::from_millis(40)));
        let sample = sample.expect("a sample");
        assert_eq!((sample.delivered, sample.interval), (1, Span::from_millis(40)));
        rates.forget(1);
        rates.push(false, at(40));
        // The next five within a millisecond: they were sent before anything was delivered.
        (0..5).for_each(|n| rates.deliver(n, n as u64 + 2, false));
        let sample = rates.finish(5, at(41)).0.expect("a sample");
        assert_eq!((sample.delivered, sample.prior_delivered), (6, 0));
        assert_eq!(sample.interval, Span::from_millis(41));
        rates.forget(5);
        // The last was sent at 40, when the one had been delivered that left at 0.
        (0..5).for_each(|n| rates.deliver(n, n as u64 + 7, false));
        let sample = rates.finish(5, at(60)).0.expect("a sample");
        assert_eq!((sample.delivered, sample.prior_delivered), (10, 1));
        assert_eq!(sample.interval, Span::from_millis(40), "acknowledged in 20 ms");
    }

    /// Samples are the application's from when it ran dry until more than what was in flight then is delivered.
    #[test]
    fn a_bubble_passes_through_the_pipe() {
        let mut rates = Rates::default();
        let is_limited = |rates: &mut Rates, sent: u64, back: u64| {
            rates.push(rates.sent.is_empty(), at(sent));
            rates.deliver(0, sent, false);
            let sample = rates.finish(1, at(back)).0.expect("a sample");
            rates.forget(1);
            sample.is_app_limited
        };
        assert!(!is_limited(&mut rates, 0, 10));
        rates.mark_app_limited(2);
        assert_eq!(
            [20, 40, 60, 80].map(|sent| is_limited(&mut rates, sent, sent + 10)),
            [true, true, true, false]
        );
    }

    /// A retransmission gives no round-trip time, and no rate when it is acknowledged sooner than a round trip after.
    #[test]
    fn a_needless_retransmission_gives_no_sample() {
        let mut rates = Rates::default();
        rates.push(true, at(0));
        rates.push(false, at(0));
        rates.deliver(0, 1, false);
        assert!(rates.finish(1, at(40)).0.is_some());
        rates.forget(1);
        rates.resend(0, at(50));
        rates.deliver(0, 2, true);
        let (sample, rtt) = rates.finish(1, at(55));
        // What was sent at 50 followed a segment of 0, so the interval of sending is 50 ms.
        assert_eq!(sample.expect("a sample").interval, Span::from_millis(50));
        assert_eq!(rtt, None);
        rates.forget(1);
        rates.push(true, at(100));
        rates.resend(0, at(110));
        rates.deliver(0, 3, true);
        assert!(rates.finish(1, at(112)).0.is_none(), "12 ms");
    }

    /// Bursts of two: the second leaves with the first, and the next burst after the gaps of both. A burst that is late
    /// makes up for it, by half of a gap for each segment at most.
    #[test]
    fn bursts_leave_at_the_mean_rate() {
        let mut rates = Rates::default();
        let gap = Span::from_millis(4);
        let first = rates.next_send(at(100), gap, 2, at(100));
        assert!(rates.has_burst(at(100)));
        let next = rates.next_send(first, gap, 2, at(100));
        assert!(!rates.has_burst(at(100)));
        assert_eq!(next, at(108));
        let first = rates.next_send(next, gap, 2, at(109));
        assert_eq!(rates.next_send(first, gap, 2, at(109)), at(116), "a millisecond late");
        let first = rates.next_send(at(116), gap, 2, at(200));
        assert_eq!(rates.next_send(first, gap, 2, at(200)), at(204), "very late");
    }
    /// Ten segments per millisecond are paced: as one burst, or, where a burst is a segment, one by one.
    #[test]
    fn a_burst_has_a_largest_size() {
        let goes_on = |largest_burst| {
            let control = "bbr".to_owned();
            let settings =
                TcpSettings { congestion_control: control, largest_burst, ..TcpSettings::default() };
            let mut sender = Sender::new(0, 0, None, &settings);
            let profile = Profile::new(settings, 0, false, 0);
            sender.open_rates(&profile, at(0));
            sender.counters.segments = UNPACED + 1;
            sender.charge_control(1448, Rate::from_bits_per_sec(10_000_000), &profile, at(100));
            sender.rates().expect("rates").has_burst(at(100))
        };
        assert_eq!([None, Some(2), Some(1)].map(goes_on), [true, true, false]);
    }
}
