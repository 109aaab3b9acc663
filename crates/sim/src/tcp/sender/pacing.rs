//! Segments leave one by one, at the rate of a scheme or at that of the window; or in bursts, at the rate of the congestion control.

use bandmaster_core::time::Span;
use bandmaster_core::units::{Bytes, Rate};

use super::Sender;
use crate::events::Event;
use crate::net::Net;
use crate::packet::Packet;
use crate::tcp::Profile;

impl Sender {
    pub(super) fn scheme_rate(&self) -> Option<Rate> {
        self.steering.as_ref().and_then(|steering| steering.rate)
    }

    pub(super) fn pacing_rate(&self, profile: &Profile) -> Option<Rate> {
        if let Some(rate) = self.scheme_rate() {
            return Some(rate);
        }
        if self.has_rates() {
            return self.control.as_ref().and_then(|control| control.pacing_rate());
        }
        if !profile.settings.pacing {
            return None;
        }
        let srtt = self.rtt.srtt()?.as_secs_f64();
        let gain = if self.window.cwnd < self.window.ssthresh / 2 {
            profile.settings.pacing_gain_slow_start
        } else {
            profile.settings.pacing_gain
        };
        Some(Rate::from_bits_per_sec_f64(gain * self.window.cwnd as f64 * 8.0 / srtt.max(1e-6)))
    }

    pub(super) fn must_wait_for_pace(&mut self, profile: &Profile, net: &mut Net) -> bool {
        let Some(steering) = &mut self.steering else { return false };
        let is_paced = profile.settings.pacing || steering.rate.is_some() || steering.rates.is_some();
        if !is_paced || steering.next_send <= net.now {
            return false;
        }
        let rates = steering.rates.as_ref().filter(|_| steering.rate.is_none());
        if rates.is_some_and(|rates| rates.has_burst(net.now)) {
            return false;
        }
        steering.timer.set(steering.next_send, Event::Pace(self.flow), &mut net.events);
        true
    }

    pub(super) fn charge_pace(&mut self, packet: &Packet, profile: &Profile, net: &Net) {
        if let Some(rate) = self.pacing_rate(profile) {
            if self.has_rates() && self.scheme_rate().is_none() {
                self.charge_control(packet.payload, rate, profile, net.now);
                return;
            }
            // A scheme's rate is of payload, cwnd / srtt of what the link carries.
            let len =
                if self.scheme_rate().is_some() { u64::from(packet.payload) } else { u64::from(packet.len) };
            let steering = self.steering.get_or_insert_default();
            steering.next_send =
                steering.next_send.max(net.now) + rate.time_for(Bytes::new(len)).min(Span::from_secs(1));
        }
    }

    pub(crate) fn on_pace_timer(&mut self, profile: &Profile, net: &mut Net) {
        let Some(steering) = &mut self.steering else { return };
        if steering.timer.fires(Event::Pace(self.flow), net) {
            self.transmit_if_open(profile, net);
        }
    }
}
