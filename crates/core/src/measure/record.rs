//! Writes the record of a trial: the same columns in the same order from every runtime.

use super::gauges::GaugeMeter;
use super::rtt::{RttSketch, RttSummary};
use super::{Meter, sojourn};
use crate::report::metric::{self, Place};
use crate::report::quantile::percentile;
use crate::report::{Distribution, RunRecord, Series, Work};
use crate::runtime::Refusals;
use crate::scenario::{FlowRows, Scenario};
use crate::time::{Span, Time};

/// Metrics of incast rounds, in the order of [`Tallies::rounds`].
const ROUNDS: [&str; 4] = ["rounds", "round_time_mean", "round_time_max", "round_goodput"];

/// Metrics of faults, in the order of [`Tallies::faults`].
const FAULTS: [&str; 3] = ["fault_losses", "outage", "reroutes"];

/// Results of a run, apart from its samples. Not-a-number: the runtime does not know the value.
#[derive(Clone, Debug)]
pub struct Tallies {
    /// Most packets that waited at the measured port.
    pub queue_max: f64,
    /// Packets that queues dropped.
    pub drops: u64,
    /// Packets that queues marked.
    pub marks: u64,
    /// Retransmission timeouts.
    pub timeouts: f64,
    /// Segments sent again.
    pub retransmits: f64,
    /// How long each transfer of known size took that is complete.
    pub completions: Vec<Span>,
    /// Transfers of known size that began and are not complete.
    pub unfinished: f64,
    /// How many rounds of incast, their mean and longest time, and their goodput.
    pub rounds: [f64; 4],
    /// Packets lost to faults, seconds that links were down, and how often routes were computed again; none where neither links
    /// nor nodes fail.
    pub faults: Option<[f64; 3]>,
    /// Bytes of IP of messages and probes.
    pub control_bytes: u64,
    /// Percentiles of delays in each sampling interval, where the scenario asks for them and the runtime can tell.
    pub delays: Vec<Series>,
    /// Metrics of the times in queues of [`Measure::ports`](crate::scenario::Measure::ports), by name.
    pub ports: Vec<(String, f64)>,
    /// Round-trip times by flow group, where the scenario asks for them and the runtime can tell.
    pub rtts: Vec<RttSketch>,
    /// What hosts have refused.
    pub refusals: Refusals,
    /// Work done.
    pub work: Work,
}

/// Distributions, and the metrics at [`Place::Spread`] that a runtime can tell, of windows too.
pub type Spread = (Vec<Distribution>, Vec<(String, f64)>);

/// The record of trial `trial` of `case`, which ended at `end`. `spread` makes distributions of the completion times in
/// seconds, ascending, when the scenario asks for them.
pub fn record(
    scenario: &Scenario,
    (case, trial): (usize, u32),
    end: Time,
    (meter, gauges): (Meter, GaugeMeter),
    tallies: Tallies,
    spread: impl FnOnce(&[f64]) -> Spread,
) -> RunRecord {
    let (mut metrics, mut series) = meter.finish();
    let (of_gauges, shown) = gauges.finish(end);
    series.extend(tallies.delays);
    series.extend(shown);
    // A sum of nothing is -0 in floating point.
    let mut push = |name: &str, value: f64| metrics.push((name.to_owned(), value + 0.0));
    push("queue_max", tallies.queue_max);
    push("drops", tallies.drops as f64);
    push("marks", tallies.marks as f64);
    push("rtos", tallies.timeouts);
    push("retransmits", tallies.retransmits);
    let mut completions = tallies.completions;
    completions.sort_unstable();
    let completions: Vec<f64> = completions.iter().map(|span| span.as_secs_f64()).collect();
    let n = completions.len() as f64;
    push("completed", n);
    push("unfinished", tallies.unfinished);
    push("fct_mean", completions.iter().sum::<f64>() / n);
    for (name, percent) in [("fct_p99", 99), ("fct_p50", 50), ("fct_p80", 80), ("fct_max", 100)] {
        push(name, percentile(&completions, percent));
    }
    let (mut distributions, told) = spread(&completions);
    if scenario.measure.distributions {
        let value = |name: &str| told.iter().find(|(known, _)| known == name).map_or(f64::NAN, |(_, v)| *v);
        metric::at(&[Place::Spread]).for_each(|metric| push(metric.name, value(metric.name)));
        for window in &scenario.measure.windows {
            for (name, _) in sojourn::QUANTILES {
                let name = format!("{}.{name}", window.name);
                push(&name, value(&name));
            }
        }
    }
    ROUNDS.into_iter().zip(tallies.rounds).for_each(|(name, value)| push(name, value));
    push("control_rate", tallies.control_bytes as f64 * 8.0 / 1e3 / scenario.run.duration.as_secs_f64());
    push("refusals", tallies.refusals.total() as f64);
    FAULTS.into_iter().zip(tallies.faults.into_iter().flatten()).for_each(|(name, value)| push(name, value));
    if scenario.measure.flow_table == FlowRows::Rtt {
        let mut all = RttSketch::default();
        let groups = || scenario.flows.iter().zip(&tallies.rtts);
        groups().filter(|(group, _)| group.measured).for_each(|(_, own)| all.merge(own));
        distributions.extend(all.distribution());
        let of_groups = groups().map(|(group, own)| (format!("{}.", group.name), own));
        for (prefix, times) in std::iter::once((String::new(), &all)).chain(of_groups) {
            let millis = |of: &dyn Fn(&RttSummary) -> Span| {
                times.summary().map_or(f64::NAN, |summary| of(&summary).as_secs_f64() * 1e3)
            };
            let values = [
                ("rtt_min", millis(&|of| of.min)),
                ("rtt_mean", millis(&|of| of.mean)),
                ("rtt_p50", millis(&|of| of.p50)),
                ("rtt_p95", millis(&|of| of.p95)),
                ("rtt_p99", millis(&|of| of.p99)),
            ];
            values.into_iter().for_each(|(name, value)| push(&format!("{prefix}{name}"), value));
        }
    }
    metrics.extend(tallies.ports);
    metrics.extend(of_gauges);
    let known = |name: &str| metric::summarised(name).is_some() || metric::of_gauge(name).is_some();
    debug_assert!(metrics.iter().all(|(name, _)| known(name)), "not in the registry: {metrics:?}");
    debug_assert!(series.iter().all(|s| metric::find_at(metric::SERIES, s.metric).is_some()), "{series:?}");
    let (sample, work) = (scenario.run.sample, tallies.work);
    RunRecord { case, trial, metrics, series, distributions, sample, work }
}
