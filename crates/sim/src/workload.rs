//! Constant-rate sources, and the flows of every runtime.

use bandmaster_core::scenario::{FlowGroup, Transport};
use bandmaster_core::time::{Span, Time};
pub(crate) use bandmaster_core::workload::{FlowPlan, Jitter, Toggles, flow_key, ways};

/// A constant-rate UDP source; a cache line.
#[repr(align(64))]
pub(crate) struct UdpSource {
    pub(crate) flow: u32,
    pub(crate) route: u32,
    /// Bytes of an IP packet.
    pub(crate) packet: u32,
    /// DSCP, where the IPv4 header has it.
    pub(crate) tos: u8,
    pub(crate) rate: u64,
    /// When the next packet leaves, and what that rounds off in units of 1 ns / `rate`.
    pub(crate) next: Time,
    owed: u64,
    /// Time between packets, in the same two parts.
    gap: (Span, u64),
    pub(crate) on: bool,
    jittered: Option<Box<Jittered>>,
}

/// A source whose packets leave after their turns.
struct Jittered {
    jitter: Jitter,
    /// The next packet's turn.
    turn: Time,
}

impl UdpSource {
    pub(crate) fn new(flow: u32, route: u32, group: &FlowGroup, jitter: Option<Jitter>) -> Option<Self> {
        let Transport::Udp { rate, packet, .. } = &group.transport else { return None };
        let rate = rate.bits_per_sec().max(1);
        let bits = packet.get() * 8_000_000_000;
        Some(Self {
            flow,
            route,
            packet: packet.get() as u32,
            tos: group.dscp << 2,
            rate,
            next: Time::ZERO,
            owed: 0,
            gap: (Span::from_nanos(bits / rate), bits % rate),
            on: false,
            jittered: jitter.map(|jitter| Box::new(Jittered { jitter, turn: Time::ZERO })),
        })
    }

    /// Begins an on time: packet n leaves when the source has made n packets' worth of bits since.
    pub(crate) fn restart(&mut self, now: Time) {
        self.next = now;
        self.owed = 0;
        if let Some(jittered) = &mut self.jittered {
            jittered.turn = now;
        }
        self.advance();
    }

    /// Sets the time of the packet after the next.
    pub(crate) fn advance(&mut self) {
        if let Some(jittered) = &self.jittered {
            self.next = jittered.turn;
        }
        let (gap, rest) = self.gap;
        self.next += gap;
        self.owed += rest;
        if self.owed >= self.rate {
            self.owed -= self.rate;
            self.next += Span::from_nanos(1);
        }
        if let Some(jittered) = &mut self.jittered {
            jittered.turn = self.next;
            self.next += jittered.jitter.draw();
        }
    }
}

#[cfg(test)]
mod tests {
    use bandmaster_core::scenario::{Options, Scenario, parse};

    use super::*;

    fn scenario(jitter: &str) -> Scenario {
        let text = format!(
            r#"
            version = 1
            name = "two"
            run.duration = "1s"
            network.hosts = ["a", "b"]
            network.links = [{{ ends = ["a", "b"], rate = "1gbit", delay = "0s" }}]
            [[flows]]
            name = "cbr"
            transport = "udp"
            from = "a"
            to = "b"
            rate = "12mbit"
            packet = "1500B"
            count = 2
            {jitter}
            "#
        );
        let study = parse("x.toml", &text, &Options::default()).unwrap_or_else(|e| panic!("{e}"));
        study.cases[0].scenario.clone()
    }

    /// By flow: the times of its first packets, in microseconds.
    fn times(jitter: &str) -> Vec<Vec<f64>> {
        let scenario = scenario(jitter);
        let (plans, _) = bandmaster_core::plan::flows(&scenario, 0);
        let of_flow = |plan: &FlowPlan| {
            let jitter = Jitter::new(plan, &scenario, 0);
            let mut source =
                UdpSource::new(0, 0, plan.group(&scenario.flows), jitter).expect("a constant rate");
            source.restart(Time::ZERO);
            let time = |_| {
                let at = source.next.as_nanos() as f64 / 1e3;
                source.advance();
                at
            };
            (0..1000).map(time).collect()
        };
        plans.iter().map(of_flow).collect()
    }

    #[test]
    fn jittered_packets_leave_within_their_turns_at_the_same_rate() {
        // 1500 bytes at 12 Mbit/s: one a millisecond.
        for own in times("") {
            assert!((0..1000).all(|n| own[n] == (n + 1) as f64 * 1e3), "{own:?}");
        }
        let flows = times("jitter = 0.5");
        assert_ne!(flows[0], flows[1], "each flow draws its own");
        for own in flows {
            let late: Vec<f64> = (0..1000).map(|n| own[n] - (n + 1) as f64 * 1e3).collect();
            assert!(late.iter().all(|late| (0.0..=500.0).contains(late)), "{late:?}");
            let mean = late.iter().sum::<f64>() / 1000.0;
            // Uniform: the mean of 1000 has a standard deviation of 4.6 us.
            assert!((mean - 250.0).abs() < 20.0, "{mean} us");
        }
        assert!(times("jitter = 1.0").iter().all(|own| own.windows(2).all(|pair| pair[0] <= pair[1])));
    }
}
