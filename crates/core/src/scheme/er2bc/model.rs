//! A small packet model of the experiment of Sect. 4, for tests: five flows, the gateway's scheduler, a first-in
//! first-out bottleneck with cross traffic, probes in packet order. All rates count the same bytes.

use std::collections::VecDeque;

use super::abw::{Estimator, Settings as AbwSettings, Update};
use super::probe::{Counters, Seq};
use super::shares::{Flow, Settings as SharesSettings, Shares};
use crate::rng::Stream;
use crate::time::{Span, Time};
use crate::units::Rate;

/// One run.
#[derive(Clone)]
pub(super) struct Model {
    pub(super) abw: AbwSettings,
    pub(super) shares: SharesSettings,
    pub(super) tcp: bool,
    /// Cross traffic in bit/s by second.
    pub(super) cross: fn(u64) -> f64,
    /// Packets that wait at the bottleneck.
    pub(super) buffer: usize,
    pub(super) seconds: u64,
    /// The estimator knows what the flows need.
    pub(super) goals: bool,
    /// Rate of a UDP flow, bit/s.
    pub(super) udp: f64,
    /// Bytes of a packet of the flows.
    pub(super) packet: u64,
    pub(super) probe_loss: f64,
    pub(super) seed: u64,
    /// Phase of the probes against the steps of the cross traffic.
    pub(super) phase: Span,
}

/// What came of it.
pub(super) struct Outcome {
    /// Bits of each flow received in each second.
    pub(super) received: Vec<[f64; FLOWS]>,
    /// W at the end of each tenth of a second.
    pub(super) estimates: Vec<f64>,
    /// Queueing delay of a packet that arrives then, s.
    pub(super) queueing: Vec<f64>,
    /// Packets of the flows lost at the bottleneck.
    pub(super) lost: u64,
    pub(super) cross_lost: u64,
    pub(super) updates: Vec<Update>,
}

pub(super) const FLOWS: usize = 5;
pub(super) const NEED: f64 = 400e3;
const CAPACITY: f64 = 5e6;
const ONE_WAY: u64 = 25_000;
/// us.
const TICK: u64 = 500;
const CROSS_PACKET: u64 = 1500;
const CLASS_LIMIT: usize = 50;
/// Of 1500 bytes.
const PACKET_BITS: f64 = 12e3;

/// Sect. 4.2: 3 Mb/s, and four flows of 310 kb/s on and off.
pub(super) fn table5(second: u64) -> f64 {
    let step = match second % 120 {
        0..15 => 0.0,
        15..30 | 105..120 => 1.0,
        30..45 | 90..105 => 2.0,
        45..60 | 75..90 => 3.0,
        _ => 4.0,
    };
    3e6 + 310e3 * step
}

/// Steps of 100 and 200 kb/s every 15 s, up and down.
pub(super) fn small_steps(second: u64) -> f64 {
    const LEVELS: [f64; 8] = [0.0, 1.0, 3.0, 4.0, 2.0, 3.0, 1.0, 2.0];
    3e6 + 100e3 * LEVELS[(second / 15 % 8) as usize]
}

pub(super) fn free(cross: fn(u64) -> f64, second: u64) -> f64 {
    CAPACITY - cross(second)
}

#[derive(Clone, Copy)]
enum Packet {
    Flow(usize, u64),
    Cross,
    Probe(Seq),
}

impl Packet {
    fn bytes(self) -> u64 {
        match self {
            Self::Flow(_, bytes) => bytes,
            Self::Cross => CROSS_PACKET,
            Self::Probe(_) => 32,
        }
    }
}

/// AIMD with CUBIC's factors; a loss is noticed a round trip later.
struct Tcp {
    cwnd: f64,
    threshold: f64,
    flying: f64,
    reduced_until: u64,
}

struct Class {
    queue: VecDeque<Packet>,
    tokens: f64,
}

impl Model {
    pub(super) fn run(&self) -> Outcome {
        let mut rng = Stream::new(self.seed, 0, "er2bc/model");
        let mut estimator = Estimator::new(self.abw.clone());
        let flow = Flow { need: Rate::from_bits_per_sec(NEED as u64), retransmits: self.tcp };
        let mut shares = Shares::new(self.shares, &[flow; FLOWS], estimator.estimate());
        if self.goals {
            estimator.set_goals(&shares.goals());
        }
        let mut out = Outcome {
            received: Vec::new(),
            estimates: Vec::new(),
            queueing: Vec::new(),
            lost: 0,
            cross_lost: 0,
            updates: Vec::new(),
        };
        let mut classes: Vec<Class> =
            (0..FLOWS).map(|_| Class { queue: VecDeque::new(), tokens: 0.0 }).collect();
        let mut root = 0.0f64;
        let mut tcps: Vec<Tcp> =
            (0..FLOWS).map(|_| Tcp { cwnd: 10.0, threshold: 1e9, flying: 0.0, reduced_until: 0 }).collect();
        let mut udp_credit: Vec<f64> = (0..FLOWS).map(|i| i as f64 * 2000.0).collect();
        let mut cross_credit = 0.0f64;
        let (mut queue, mut served) = (VecDeque::<Packet>::new(), 0.0f64);
        let mut flight: VecDeque<(u64, Packet)> = VecDeque::new();
        let mut acks: VecDeque<(u64, usize, bool)> = VecDeque::new();
        let mut answers: VecDeque<(u64, Seq, Counters)> = VecDeque::new();
        let (mut seq, mut counted, mut heard) = (Seq::new(65_500), Counters::default(), Counters::default());
        let mut late = 0;
        let mut next_probe = self.phase.as_nanos() / 1000;
        let mut bins = [0.0; FLOWS];
        let packet_bits = self.packet as f64 * 8.0;
        for tick in 0..self.seconds * 1_000_000 / TICK {
            let now = tick * TICK;
            let dt = TICK as f64 / 1e6;
            // Sources.
            for i in 0..FLOWS {
                let mut offered = 0;
                if self.tcp {
                    while tcps[i].flying + 1.0 <= tcps[i].cwnd {
                        tcps[i].flying += 1.0;
                        offered += 1;
                    }
                } else {
                    udp_credit[i] += self.udp * dt;
                    while udp_credit[i] >= packet_bits {
                        udp_credit[i] -= packet_bits;
                        offered += 1;
                    }
                }
                for _ in 0..offered {
                    if classes[i].queue.len() < CLASS_LIMIT {
                        classes[i].queue.push_back(Packet::Flow(i, self.packet));
                    } else if self.tcp {
                        acks.push_back((now + 2 * ONE_WAY, i, false));
                    }
                }
            }
            // Scheduler: within the promised rate first, then borrowing in order of priority.
            let plan = shares.plan();
            let w = plan.root.map_or(f64::INFINITY, |r| r.bits_per_sec() as f64);
            root = (root + w * dt).min(12_800.0);
            for (i, class) in classes.iter_mut().enumerate() {
                let rate = plan.classes.get(i).map_or(0.0, |c| c.rate.bits_per_sec() as f64);
                class.tokens = (class.tokens + rate * dt).min(12_800.0);
            }
            let mut sent = Vec::new();
            loop {
                let green = (0..FLOWS).find(|&i| {
                    plan.root.is_some() && classes[i].tokens >= 0.0 && !classes[i].queue.is_empty()
                });
                let next = green.or_else(|| {
                    let any = (0..FLOWS).find(|&i| !classes[i].queue.is_empty());
                    any.filter(|_| root >= 0.0)
                });
                let Some(i) = next else { break };
                let Some(packet) = classes[i].queue.pop_front() else { break };
                let bits = packet.bytes() as f64 * 8.0;
                root -= bits;
                if green.is_some() {
                    classes[i].tokens -= bits;
                }
                counted.packets += 1;
                counted.bytes += packet.bytes();
                sent.push(packet);
            }
            if now >= next_probe + late {
                // Timers are late now and then: no lasting step with the packets of the sources.
                next_probe += self.abw.cycle.as_nanos() / 1000;
                late = rng.below(10_000);
                seq = seq.next();
                counted.time = Time::from_nanos(now * 1000);
                if estimator.on_sent(seq, counted) {
                    shares.on_cut(estimator.estimate());
                }
                if !rng.chance(self.probe_loss) {
                    sent.push(Packet::Probe(seq));
                }
            }
            cross_credit += (self.cross)(now / 1_000_000) * dt;
            while cross_credit >= CROSS_PACKET as f64 * 8.0 {
                cross_credit -= CROSS_PACKET as f64 * 8.0;
                sent.push(Packet::Cross);
            }
            // Bottleneck.
            for packet in sent {
                if queue.len() < self.buffer {
                    queue.push_back(packet);
                    continue;
                }
                match packet {
                    Packet::Flow(i, _) => {
                        out.lost += 1;
                        if self.tcp {
                            let wait = queue.len() as u64 * 2400;
                            acks.push_back((now + 2 * ONE_WAY + wait, i, false));
                        }
                    }
                    Packet::Cross => out.cross_lost += 1,
                    Packet::Probe(_) => {}
                }
            }
            served += CAPACITY * dt;
            while let Some(head) = queue.front() {
                let bits = head.bytes() as f64 * 8.0;
                if served < bits {
                    break;
                }
                served -= bits;
                flight.extend(queue.pop_front().map(|p| (now + ONE_WAY, p)));
            }
            if queue.is_empty() {
                served = served.min(0.0);
            }
            // Receiver, with a clock of its own.
            while flight.front().is_some_and(|(at, _)| *at <= now) {
                let Some((_, packet)) = flight.pop_front() else { break };
                match packet {
                    Packet::Flow(i, bytes) => {
                        heard.packets += 1;
                        heard.bytes += bytes;
                        bins[i] += bytes as f64 * 8.0;
                        if self.tcp {
                            acks.push_back((now + ONE_WAY, i, true));
                        }
                    }
                    Packet::Probe(seq) => {
                        heard.time = Time::from_nanos(7_000_000_000 + now * 1000 + now * 4 / 100);
                        if !rng.chance(self.probe_loss) {
                            answers.push_back((now + ONE_WAY, seq, heard));
                        }
                    }
                    Packet::Cross => {}
                }
            }
            // Back at the sender.
            while answers.front().is_some_and(|(at, ..)| *at <= now) {
                let Some((_, seq, counters)) = answers.pop_front() else { break };
                if let Some(update) = estimator.on_answer(seq, counters, Time::from_nanos(now * 1000)) {
                    shares.on_update(&update);
                    out.updates.push(update);
                }
            }
            acks.retain(|&(at, i, arrived)| {
                if at > now {
                    return true;
                }
                let tcp = &mut tcps[i];
                tcp.flying -= 1.0;
                if arrived {
                    tcp.cwnd += if tcp.cwnd < tcp.threshold { 1.0 } else { 0.53 / tcp.cwnd };
                } else if now >= tcp.reduced_until {
                    tcp.cwnd = (tcp.cwnd * 0.7).max(2.0);
                    tcp.threshold = tcp.cwnd;
                    tcp.reduced_until = now + 200_000;
                }
                false
            });
            if (now + TICK).is_multiple_of(100_000) {
                out.estimates.push(estimator.estimate().bits_per_sec() as f64);
                out.queueing.push(queue.iter().map(|p| p.bytes() as f64 * 8.0).sum::<f64>() / CAPACITY);
            }
            if (now + TICK).is_multiple_of(1_000_000) {
                out.received.push(bins);
                bins = [0.0; FLOWS];
            }
        }
        out
    }
}

impl Outcome {
    /// Share of time in which each flow lacks a packet or more of its need, in percent: by the second, or by the mean of
    /// ten.
    pub(super) fn shortage(&self, tcp: bool) -> [f64; FLOWS] {
        let mut short = [0.0; FLOWS];
        let first = if tcp { 9 } else { 0 };
        let ends = self.received.len().saturating_sub(first) as f64;
        for end in first..self.received.len() {
            let begin = if tcp { (end + 1).saturating_sub(10) } else { end };
            let span = &self.received[begin..=end];
            for (i, short) in short.iter_mut().enumerate() {
                let mean = span.iter().map(|bins| bins[i]).sum::<f64>() / span.len() as f64;
                if mean <= NEED - PACKET_BITS / span.len() as f64 {
                    *short += 100.0 / ends;
                }
            }
        }
        short
    }

    /// After each step of `cross`: seconds until W stays within `band` of the free bandwidth for the rest of the
    /// level, and the most that W lies beyond the new level in the direction of the step or, `later` than so many
    /// seconds after it, off it in either direction.
    pub(super) fn steps(&self, cross: fn(u64) -> f64, band: f64, later: f64) -> Vec<(f64, f64)> {
        let seconds = self.received.len() as u64;
        let mut steps = Vec::new();
        let mut from = None;
        for second in 1..=seconds {
            if second < seconds && cross(second) == cross(second - 1) {
                continue;
            }
            if let Some(from) = from.replace(second) {
                let (level, before) = (free(cross, from), free(cross, from - 1));
                let span = &self.estimates[from as usize * 10..second as usize * 10];
                let settled = span.iter().rposition(|w| (w - level).abs() > band).map_or(0, |i| i + 1);
                let beyond = |(i, w): (usize, &f64)| {
                    let past = if level > before { w - level } else { level - w };
                    if (i as f64) < later * 10.0 { past.max(0.0) } else { (w - level).abs() }
                };
                let off = span.iter().enumerate().map(beyond).fold(0.0, f64::max);
                steps.push((settled as f64 / 10.0, off));
            }
        }
        steps
    }
}

#[cfg(test)]
mod tests {
    use super::super::{abw, delay, shares};
    use super::*;

    fn model(law: shares::Law, estimator: abw::Law, tcp: bool) -> Model {
        Model {
            abw: AbwSettings {
                law: estimator,
                ceiling: Rate::from_bits_per_sec(5_000_000),
                ..AbwSettings::default()
            },
            shares: SharesSettings { law, ..SharesSettings::default() },
            tcp,
            cross: table5,
            buffer: 100,
            seconds: 320,
            goals: false,
            udp: 440e3,
            packet: 1500,
            probe_loss: 0.0,
            seed: 1,
            phase: Span::from_millis(300),
        }
    }

    const LIMIT: [f64; FLOWS] = [0.0, 14.1, 39.1, 62.5, 85.9];

    /// Probe phases and a seed on which no setting was chosen.
    fn runs(model: &Model) -> Vec<Outcome> {
        let run = |(seed, phase)| Model { seed, phase: Span::from_millis(phase), ..model.clone() }.run();
        [(3, 20), (3, 210), (4, 480), (4, 860)].into_iter().map(run).collect()
    }

    fn mean_shortage(model: &Model) -> [f64; FLOWS] {
        let outcomes = runs(model);
        let mut mean = [0.0; FLOWS];
        for outcome in &outcomes {
            for (mean, short) in mean.iter_mut().zip(outcome.shortage(model.tcp)) {
                *mean += short / outcomes.len() as f64;
            }
        }
        let (lost, cross): (u64, u64) =
            outcomes.iter().fold((0, 0), |(l, c), out| (l + out.lost / 4, c + out.cross_lost / 4));
        let queueing = outcomes.iter().flat_map(|out| &out.queueing).sum::<f64>()
            / outcomes.iter().map(|out| out.queueing.len() as f64).sum::<f64>();
        println!(
            "{} buffer {:3} {:?} goals {}: {} lost {lost} + {cross}, queue {:.0} ms",
            if model.tcp { "TCP" } else { "UDP" },
            model.buffer,
            model.shares.law,
            model.goals,
            mean.map(|m| format!("{m:5.1}")).join(" "),
            queueing * 1e3,
        );
        mean
    }

    fn loss() -> abw::Law {
        abw::Law::Loss(abw::Loss::default())
    }

    fn by_delay() -> abw::Law {
        abw::Law::Delay(delay::Settings::default())
    }

    /// Table 5: eR2BC serves the first three better than the existing method. UDP comes within 10 points of the paper's
    /// figures or better for P1-P3 with either buffer, TCP with a buffer of 50 packets.
    #[test]
    fn table_5_comes_out_in_the_papers_order() {
        for (tcp, buffer, paper) in [
            (false, 50, Some([14.5, 37.6, 63.4])),
            (false, 100, Some([14.5, 37.6, 63.4])),
            (true, 50, Some([0.0, 32.5, 67.9])),
            (true, 100, None),
        ] {
            let run = |law| mean_shortage(&Model { buffer, ..model(law, loss(), tcp) });
            let (none, basic, er2bc) =
                (run(shares::Law::None), run(shares::Law::Basic), run(shares::Law::Paper));
            run(shares::Law::Strict);
            for i in 0..3 {
                assert!(er2bc[i] < basic[i], "P{}: {} {}", i + 1, er2bc[i], basic[i]);
                assert!(paper.is_none_or(|paper| er2bc[i] <= paper[i] + 10.0), "P{}: {}", i + 1, er2bc[i]);
            }
            for short in [basic, er2bc] {
                assert!(short.is_sorted(), "{short:?}");
            }
            assert!(none[0] > 40.0, "{none:?}");
        }
    }

    /// Our variant against the physical limit, in points: see the assertions. TCP's last two miss the goal of 5: a mean
    /// of 10 s needs 10 s of service, of 15 that the path gives P5 and 45 that it gives P4.
    #[test]
    fn the_limit_law_comes_near_the_physical_limit() {
        let run = |tcp, buffer, law, goals| {
            mean_shortage(&Model { buffer, goals, ..model(shares::Law::Limit, law, tcp) })
        };
        let within = |short: [f64; FLOWS], points: [f64; FLOWS]| {
            let over: Vec<f64> = short.iter().zip(LIMIT).map(|(s, l)| s - l).collect();
            assert!(over.iter().zip(points).all(|(over, most)| *over <= most), "{over:.1?}");
        };
        // P5 gets less than with a reserve of 170 ms (5.5 points), which made W overshoot by 190 kb/s after steps.
        within(run(false, 100, by_delay(), true), [5.0, 5.0, 5.0, 5.0, 9.5]);
        within(run(false, 50, by_delay(), true), [5.0, 5.0, 5.0, 5.0, 10.5]);
        within(run(true, 100, by_delay(), true), [1.0, 3.0, 5.0, 9.0, 12.0]);
        within(run(true, 50, by_delay(), true), [1.0, 3.0, 6.0, 13.0, 14.1]);
        for tcp in [false, true] {
            run(tcp, 100, by_delay(), false);
            run(tcp, 100, loss(), false);
            mean_shortage(&model(shares::Law::Paper, by_delay(), tcp));
        }
    }

    struct Steps {
        settled: Vec<f64>,
        off: Vec<f64>,
        lost: u64,
    }

    fn small_step_runs(law: &abw::Law, tcp: bool, buffer: usize) -> Steps {
        let base = model(shares::Law::Limit, law.clone(), tcp);
        let outcomes = runs(&Model { cross: small_steps, buffer, ..base });
        let (mut settled, mut off): (Vec<f64>, Vec<f64>) =
            outcomes.iter().flat_map(|out| out.steps(small_steps, 100e3, 2.0)).unzip();
        settled.sort_by(f64::total_cmp);
        off.sort_by(f64::total_cmp);
        let at = |values: &[f64], share: f64| values[((values.len() - 1) as f64 * share) as usize];
        println!(
            "{} buffer {buffer}: settled p50 {:.1} p90 {:.1} max {:.1} s, off p50 {:.0} p90 {:.0} max {:.0} kb/s, lost {}",
            if tcp { "TCP" } else { "UDP" },
            at(&settled, 0.5),
            at(&settled, 0.9),
            at(&settled, 1.0),
            at(&off, 0.5) / 1e3,
            at(&off, 0.9) / 1e3,
            at(&off, 1.0) / 1e3,
            outcomes.iter().map(|out| out.lost).sum::<u64>()
        );
        Steps { settled, off, lost: outcomes.iter().map(|out| out.lost).sum() }
    }

    /// Steps of 100 and 200 kb/s, 84 in all for each kind of flow: until W stays within 100 kb/s, and how far it is off
    /// 2 s after the step, or beyond the new level before.
    #[test]
    fn small_steps_are_followed() {
        for (tcp, buffer) in [(false, 50), (false, 100), (true, 50), (true, 100)] {
            let ours = small_step_runs(&by_delay(), tcp, buffer);
            let count = ours.settled.len() as f64;
            let share =
                |values: &[f64], most: f64| values.iter().filter(|v| **v <= most).count() as f64 / count;
            assert!(share(&ours.settled, 2.0) >= 0.95, "{:?}", ours.settled);
            assert!(share(&ours.off, 100e3) >= 0.95, "{:?}", ours.off);
            let paper = small_step_runs(&loss(), tcp, buffer);
            assert!(ours.lost == 0 && paper.lost > 1000, "{} {}", ours.lost, paper.lost);
        }
    }
}
