//! Round-trip times measured at a flow's receiver: from an acknowledgement to the first data that echo its timestamp
//! (RFC 7323), as captured at the receiver's interface. The kernel's own estimate at a receiver follows the minimum
//! instead of the mean.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use bandmaster_core::time::{Span, Time};
use etherparse::{Ipv4HeaderSlice, TcpHeaderSlice, TcpOptionElement};

/// Acknowledgements remembered of a flow: more than are ever on their way within one tick of the timestamps' clock.
const REMEMBERED: usize = 1024;

/// Round-trip times of all TCP flows; empty where nobody asks.
#[derive(Default)]
pub(crate) struct Timing {
    flows: Vec<FlowTiming>,
}

struct FlowTiming {
    /// Ports where its acknowledgements leave the receiver, and where its data come to it.
    leave: u32,
    come: u32,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Timestamp of an acknowledgement, and when the first that bore it left.
    sent: VecDeque<(u32, Time)>,
    rtt: RoundTrip,
}

/// What is known of a flow's round-trip time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct RoundTrip {
    /// Smoothed as in RFC 6298.
    pub(crate) smoothed: Option<Span>,
    pub(crate) least: Option<Span>,
    pub(crate) last: Option<Span>,
}

impl Timing {
    /// Of flows with these routes of data and acknowledgements.
    pub(crate) fn new(data_routes: &[Vec<u32>], ack_routes: &[Vec<u32>]) -> Self {
        let flow = |(data, acks): (&Vec<u32>, &Vec<u32>)| FlowTiming {
            leave: acks.first().copied().unwrap_or(u32::MAX),
            come: data.last().copied().unwrap_or(u32::MAX),
            state: Mutex::default(),
        };
        Self { flows: data_routes.iter().zip(ack_routes).map(flow).collect() }
    }

    /// What is known of `flow`.
    pub(crate) fn of(&self, flow: usize) -> RoundTrip {
        let flow = self.flows.get(flow);
        flow.map(|flow| flow.state.lock().unwrap_or_else(PoisonError::into_inner).rtt).unwrap_or_default()
    }

    /// An acknowledgement goes into `port`.
    pub(crate) fn note_sent(&self, port: usize, flow: usize, bytes: &[u8], now: Time) {
        let Some(flow) = self.flows.get(flow).filter(|flow| flow.leave as usize == port) else { return };
        let Some((value, _)) = timestamps(bytes) else { return };
        let mut state = flow.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.sent.back().is_none_or(|(last, _)| *last != value) {
            if state.sent.len() == REMEMBERED {
                state.sent.pop_front();
            }
            state.sent.push_back((value, now));
        }
    }

    /// Data have come over `port`.
    pub(crate) fn note_come(&self, port: usize, flow: usize, bytes: &[u8], now: Time) {
        let Some(flow) = self.flows.get(flow).filter(|flow| flow.come as usize == port) else { return };
        let Some((_, echo)) = timestamps(bytes) else { return };
        let mut state = flow.state.lock().unwrap_or_else(PoisonError::into_inner);
        // Earlier ones were not echoed and will not be.
        let Some(at) = state.sent.iter().position(|(value, _)| *value == echo) else { return };
        let sent = state.sent.drain(..=at).next_back();
        if let Some((_, left)) = sent {
            state.rtt.add(now.since(left));
        }
    }
}

impl RoundTrip {
    fn add(&mut self, sample: Span) {
        let smoothed = self
            .smoothed
            .map_or(sample, |smoothed| Span::from_nanos((7 * smoothed.as_nanos() + sample.as_nanos()) / 8));
        self.smoothed = Some(smoothed);
        self.least = Some(self.least.map_or(sample, |least| least.min(sample)));
        self.last = Some(sample);
    }
}

/// The round-trip time of a receiver without timestamps: the window that it has offered over what has come. As that of echoed
/// timestamps, it is right for flows that the window limits, and too long for others.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct WindowTiming {
    /// When it was last looked at, and what had come until then.
    last: Option<(Time, u64)>,
    /// Bytes, and bytes a second, smoothed alike.
    window: f64,
    rate: f64,
}

impl WindowTiming {
    /// Weight of a new look: a look is a tenth of a second, in which few windows come.
    const WEIGHT: f64 = 1.0 / 8.0;
    /// Longer than this many handshakes a window does not take.
    const MOST_HANDSHAKES: f64 = 4.0;

    /// `window` bytes have been offered since the last look, and `received` have come in all.
    pub(crate) fn look(&mut self, now: Time, window: u64, received: u64) {
        let Some((then, before)) = self.last.replace((now, received)) else { return };
        let seconds = now.since(then).as_secs_f64();
        let Some(fresh) = received.checked_sub(before).filter(|_| seconds > 0.0) else { return };
        let is_first = self.rate <= 0.0;
        let weight = if is_first { 1.0 } else { Self::WEIGHT };
        self.window = weight * window as f64 + (1.0 - weight) * self.window;
        self.rate = weight * fresh as f64 / seconds + (1.0 - weight) * self.rate;
    }

    /// The round-trip time of a connection whose handshake took so long.
    pub(crate) fn rtt(&self, handshake: Option<Span>) -> Option<Span> {
        let handshake = handshake?;
        if self.rate <= 0.0 {
            return Some(handshake);
        }
        let most = handshake.mul_f64(Self::MOST_HANDSHAKES);
        Some(Span::from_secs_f64(self.window / self.rate).min(most))
    }
}

/// TSval and TSecr of an IP packet.
fn timestamps(bytes: &[u8]) -> Option<(u32, u32)> {
    let ip = Ipv4HeaderSlice::from_slice(bytes).ok()?;
    let tcp = TcpHeaderSlice::from_slice(&bytes[ip.slice().len()..]).ok()?;
    tcp.options_iterator().flatten().find_map(|option| match option {
        TcpOptionElement::Timestamp(value, echo) => Some((value, echo)),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use etherparse::PacketBuilder;

    use super::*;

    /// 30,000 bytes offered and 1,000,000 a second that come: 30 ms, whatever the handshake took, up to four times that.
    #[test]
    fn a_window_over_what_comes_is_a_round_trip_time() {
        let mut timing = WindowTiming::default();
        let ms = |ms: u64| Span::from_millis(ms);
        assert_eq!((timing.rtt(None), timing.rtt(Some(ms(20)))), (None, Some(ms(20))), "nothing has come");
        for look in 0..50 {
            timing.look(Time::ZERO + ms(100 * look), 30_000, 100_000 * look);
        }
        let is = |timing: WindowTiming, handshake: u64, rtt: f64| {
            let now = timing.rtt(Some(ms(handshake))).expect("known").as_secs_f64() * 1e3;
            assert!((now - rtt).abs() < 0.01, "{now} instead of {rtt}");
        };
        is(timing, 20, 30.0);
        is(timing, 90, 30.0);
        // A flow that something else limits.
        is(timing, 5, 20.0);
        // Another connection: received bytes count from zero again.
        timing.look(Time::ZERO + ms(5000), 30_000, 7);
        is(timing, 20, 30.0);
    }

    fn packet(value: u32, echo: u32) -> Vec<u8> {
        let options = [TcpOptionElement::Timestamp(value, echo)];
        let builder = PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
            .tcp(1, 2, 3, 4)
            .options(&options)
            .expect("they fit");
        let mut bytes = vec![0; builder.size(0)];
        builder.write_to_slice(&mut bytes, &[]).expect("room");
        bytes
    }

    #[test]
    fn an_echo_is_measured_once_from_the_first_that_bore_it() {
        let timing = Timing::new(&[vec![0, 2]], &[vec![3, 1]]);
        let ms = |ms: u64| Time::from_nanos(ms * 1_000_000);
        timing.note_sent(3, 0, &packet(70, 0), ms(10));
        timing.note_sent(3, 0, &packet(70, 0), ms(11));
        timing.note_sent(1, 0, &packet(71, 0), ms(12));
        timing.note_sent(3, 0, &packet(72, 0), ms(20));
        timing.note_come(0, 0, &packet(5, 70), ms(15));
        assert_eq!(timing.of(0), RoundTrip::default(), "other ports are not the receiver's");
        timing.note_come(2, 0, &packet(5, 70), ms(30));
        timing.note_come(2, 0, &packet(6, 70), ms(50));
        assert_eq!(timing.of(0).last, Some(Span::from_millis(20)));
        timing.note_come(2, 0, &packet(7, 72), ms(48));
        let rtt = timing.of(0);
        assert_eq!((rtt.last, rtt.least), (Some(Span::from_millis(28)), Some(Span::from_millis(20))));
        assert_eq!(rtt.smoothed, Some(Span::from_millis(21)), "7/8 of 20 and 1/8 of 28");
        assert_eq!(timing.of(1), RoundTrip::default());
    }
}
