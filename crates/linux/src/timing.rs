//! Round-trip times as the receiver of a flow can measure them: from an acknowledgement to the first data that echo its
//! timestamp (RFC 7323), as a capture at its interface shows them. The kernel's own estimate at a receiver follows the
//! least and not the mean.

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
