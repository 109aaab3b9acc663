//! Percentiles of delays in each sampling interval, from a sketch for each sending group, or for each flow, that adds up to
//! that of all.

use std::collections::VecDeque;
use std::sync::Arc;

use super::rtt::RttSketch;
use crate::report::Series;
use crate::scenario::{RecordDetail, Scenario};
use crate::time::{Span, Time};
use crate::workload::FlowPlan;

/// Metrics per kind of delay, with their percentiles.
const RTT: [(&str, u64); 3] = [("rtt_p50", 50), ("rtt_p95", 95), ("rtt_p99", 99)];
const QUEUEING: [(&str, u64); 3] = [("queueing_p50", 50), ("queueing_p95", 95), ("queueing_p99", 99)];
const SOJOURN: [(&str, u64); 3] = [("sojourn_p50", 50), ("sojourn_p95", 95), ("sojourn_p99", 99)];

/// An entity's number: no flow that is measured.
const NONE: u32 = u32::MAX;

/// What delays of packets are measured of: the sending groups of measured flows, or each of these flows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Groups {
    names: Vec<String>,
    /// Each has a sketch of its own.
    parts: Vec<Part>,
    /// By flow: its part.
    of: Vec<u32>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Part {
    group: usize,
    /// Of a flow.
    name: Option<String>,
}

impl Groups {
    fn new(scenario: &Scenario, plans: &[FlowPlan]) -> Self {
        let is_by_flow = scenario.measure.record == RecordDetail::Flows;
        let (mut names, mut parts): (Vec<String>, Vec<Part>) = (Vec::new(), Vec::new());
        let of = plans.iter().map(|plan| {
            if !plan.group(&scenario.flows).measured {
                return NONE;
            }
            let name = plan.entity(&scenario.flows);
            let group = names.iter().position(|known| known == name).unwrap_or_else(|| {
                names.push(name.to_owned());
                names.len() - 1
            });
            if is_by_flow {
                parts.push(Part { group, name: Some(plan.name(&scenario.flows)) });
                parts.len() as u32 - 1
            } else {
                if group == parts.len() {
                    parts.push(Part { group, name: None });
                }
                group as u32
            }
        });
        Self { of: of.collect(), names, parts }
    }

    fn of(&self, flow: u32) -> Option<usize> {
        self.of.get(flow as usize).filter(|part| **part != NONE).map(|part| *part as usize)
    }

    /// Groups and flows that have rows of their own, from the sketches of the parts.
    fn own<'a>(&'a self, parts: &'a [RttSketch]) -> impl Iterator<Item = (&'a str, RttSketch)> {
        let several = if self.names.len() > 1 { self.names.as_slice() } else { &[] };
        let groups = several.iter().enumerate().map(move |(group, name)| {
            let own = self.parts.iter().zip(parts).filter(move |(part, _)| part.group == group);
            (name.as_str(), merged(own.map(|(_, sketch)| sketch)))
        });
        let flows = self.parts.iter().zip(parts);
        groups.chain(flows.filter_map(|(part, own)| Some((part.name.as_deref()?, own.clone()))))
    }
}

/// Round-trip times and queueing delays of the sampling interval under way, and the series so far.
pub struct Delays {
    /// The groups.
    pub groups: Arc<Groups>,
    rtts: Vec<RttSketch>,
    queueing: Vec<RttSketch>,
    series: Vec<Series>,
    /// The series that the next value is of.
    at: usize,
}

impl Delays {
    /// What `scenario` asks for; none when it does not.
    pub fn of(scenario: &Scenario, plans: &[FlowPlan]) -> Option<Box<Self>> {
        scenario.measure.percentiles.then(|| {
            let groups = Groups::new(scenario, plans);
            let none = vec![RttSketch::default(); groups.parts.len()];
            Box::new(Self {
                groups: Arc::new(groups),
                rtts: none.clone(),
                queueing: none,
                series: Vec::new(),
                at: 0,
            })
        })
    }

    /// Takes over what another part of the same run has measured in the present interval.
    pub fn absorb(&mut self, other: &mut Self) {
        let pairs = self.rtts.iter_mut().zip(&mut other.rtts);
        for (own, other) in pairs.chain(self.queueing.iter_mut().zip(&mut other.queueing)) {
            own.merge(&std::mem::take(other));
        }
    }

    /// A sender of a flow has measured a round-trip time.
    pub fn note_rtt(&mut self, flow: u32, time: Span) {
        if let Some(part) = self.groups.of(flow) {
            self.rtts[part].note(time);
        }
    }

    /// A data packet of a flow arrives that has waited for so long on its way.
    pub fn note_queueing(&mut self, flow: u32, time: Span) {
        if let Some(part) = self.groups.of(flow) {
            self.queueing[part].note(time);
        }
    }

    /// Ends the sampling interval. `ports` are the times in queues, each with the name of its port; those of groups and flows
    /// at the first of them count too.
    pub fn sample(&mut self, ports: Vec<(String, Vec<RttSketch>)>) {
        self.at = 0;
        let groups = self.groups.clone();
        let none = vec![RttSketch::default(); groups.parts.len()];
        for (metrics, now) in [
            (RTT, std::mem::replace(&mut self.rtts, none.clone())),
            (QUEUEING, std::mem::replace(&mut self.queueing, none)),
        ] {
            self.add("all", metrics, &merged(&now));
            groups.own(&now).for_each(|(name, own)| self.add(name, metrics, &own));
        }
        for (number, (port, times)) in ports.into_iter().enumerate() {
            self.add(&port, SOJOURN, &merged(&times));
            if number == 0 {
                groups.own(&times).for_each(|(name, own)| self.add(name, SOJOURN, &own));
            }
        }
    }

    fn add(&mut self, entity: &str, metrics: [(&'static str, u64); 3], of: &RttSketch) {
        for (metric, percent) in metrics {
            if self.at == self.series.len() {
                self.series.push(Series { entity: entity.to_owned(), metric, values: Vec::new() });
            }
            let is_any = of.summary().is_some();
            let value = if is_any { of.percentile(percent).as_secs_f64() * 1e3 } else { f64::NAN };
            self.series[self.at].values.push(value as f32);
            self.at += 1;
        }
    }

    /// The series.
    pub fn finish(self) -> Vec<Series> {
        self.series
    }
}

fn merged<'a>(parts: impl IntoIterator<Item = &'a RttSketch>) -> RttSketch {
    let mut all = RttSketch::default();
    parts.into_iter().for_each(|own| all.merge(own));
    all
}

/// Times in the queue of a port by sampling interval: a packet counts in the interval in which its transmission begins, which may
/// be known before it does.
pub struct SojournIntervals {
    groups: Arc<Groups>,
    sample: Span,
    /// Number of the first interval of `open`.
    first: u64,
    /// By interval: the parts, and all other packets.
    open: VecDeque<Vec<RttSketch>>,
}

impl SojournIntervals {
    /// No times, of intervals of `sample`.
    pub fn new(groups: Arc<Groups>, sample: Span) -> Self {
        Self { groups, sample, first: 0, open: VecDeque::new() }
    }

    /// A packet of `flow` that arrived at the queue at `arrived` begins transmission at `start`.
    pub fn note(&mut self, flow: u32, arrived: Time, start: Time) {
        let interval = start.since(Time::ZERO).as_nanos() / self.sample.as_nanos().max(1);
        // The time of what starts as an interval ends may be noted after the interval was taken.
        let at = interval.saturating_sub(self.first) as usize;
        let parts = self.groups.parts.len() + 1;
        while self.open.len() <= at {
            self.open.push_back(vec![RttSketch::default(); parts]);
        }
        let part = self.groups.of(flow).unwrap_or(parts - 1);
        self.open[at][part].note(start.since(arrived));
    }

    /// Ends an interval and returns its times, per part and of all other packets.
    pub fn take(&mut self) -> Vec<RttSketch> {
        self.first += 1;
        let parts = self.groups.parts.len() + 1;
        self.open.pop_front().unwrap_or_else(|| vec![RttSketch::default(); parts])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups(names: &[&str], of: &[u32]) -> Arc<Groups> {
        let parts = (0..names.len()).map(|group| Part { group, name: None }).collect();
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        Arc::new(Groups { names, parts, of: of.to_vec() })
    }

    fn ms(n: u64) -> Time {
        Time::ZERO + Span::from_millis(n)
    }

    /// Flows 0 and 1 are of group a, flow 2 of b, flow 3 is not measured.
    #[test]
    fn groups_add_up_to_all_and_intervals_begin_anew() {
        let groups = groups(&["a", "b"], &[0, 0, 1, NONE]);
        let mut delays = Delays {
            groups: groups.clone(),
            rtts: vec![RttSketch::default(); 2],
            queueing: vec![RttSketch::default(); 2],
            series: Vec::new(),
            at: 0,
        };
        for (flow, millis) in [(0, 10), (1, 20), (2, 40), (3, 500)] {
            delays.note_rtt(flow, Span::from_millis(millis));
        }
        let mut intervals = SojournIntervals::new(groups, Span::from_millis(100));
        // The second begins in the next interval, which is known now.
        intervals.note(0, ms(50), ms(58));
        intervals.note(2, ms(90), ms(100));
        intervals.note(3, ms(60), ms(90));
        delays.sample(vec![("r1->r2".to_owned(), intervals.take())]);
        delays.note_rtt(0, Span::from_millis(30));
        delays.sample(vec![("r1->r2".to_owned(), intervals.take())]);
        let series = delays.finish();
        let values = |entity: &str, metric: &str| {
            let found = series.iter().find(|s| s.entity == entity && s.metric == metric);
            found.unwrap_or_else(|| panic!("{entity} {metric}")).values.clone()
        };
        let near = |found: f32, exact: f32| (found / exact - 1.0).abs() <= 1.0 / 128.0;
        for (entity, metric, expected) in [
            ("all", "rtt_p50", [20.0, 30.0]),
            ("all", "rtt_p99", [40.0, 30.0]),
            ("a", "rtt_p99", [20.0, 30.0]),
            ("r1->r2", "sojourn_p50", [8.0, 10.0]),
            ("r1->r2", "sojourn_p99", [30.0, 10.0]),
        ] {
            let found = values(entity, metric);
            assert!(found.iter().zip(expected).all(|(f, e)| near(*f, e)), "{entity} {metric}: {found:?}");
        }
        assert!(near(values("b", "rtt_p50")[0], 40.0) && values("b", "rtt_p50")[1].is_nan());
        assert!(near(values("b", "sojourn_p50")[1], 10.0) && values("b", "sojourn_p50")[0].is_nan());
        assert!(values("all", "queueing_p95").iter().all(|value| value.is_nan()));
    }

    /// Nothing passes in the first interval, and values of later ones still are of their own entities.
    #[test]
    fn an_idle_interval_shifts_nothing() {
        let groups = groups(&["a", "b"], &[0, 1]);
        let none = vec![RttSketch::default(); 2];
        let mut delays =
            Delays { groups: groups.clone(), rtts: none.clone(), queueing: none, series: Vec::new(), at: 0 };
        let mut ports = [0, 1].map(|_| SojournIntervals::new(groups.clone(), Span::from_millis(100)));
        for begin in [0, 100] {
            if begin > 0 {
                ports[0].note(0, ms(begin), ms(begin + 3));
                ports[1].note(1, ms(begin), ms(begin + 50));
            }
            let [first, second] = &mut ports;
            delays.sample(vec![("one".to_owned(), first.take()), ("two".to_owned(), second.take())]);
        }
        let series = delays.finish();
        assert!(series.iter().all(|s| s.values.len() == 2), "{series:?}");
        for (entity, millis) in [("one", 3.0), ("a", 3.0), ("two", 50.0)] {
            let found =
                series.iter().find(|s| s.entity == entity && s.metric == "sojourn_p50").expect("a series");
            assert!(found.values[0].is_nan() && (found.values[1] / millis - 1.0).abs() < 0.01, "{found:?}");
        }
    }
}
