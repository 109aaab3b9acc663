//! Samples a run and sums it up: goodput, fairness, queue.

use bandmaster_core::fairness::{Demand, jain, max_min};
use bandmaster_core::report::Series;
use bandmaster_core::scenario::{RecordDetail, Scenario};
use bandmaster_core::time::{Span, Time};

use crate::workload::FlowPlan;

/// What the sampler reads of each measured flow.
pub(crate) struct FlowSample {
    pub(crate) delivered: u64,
    pub(crate) cwnd: u64,
    pub(crate) srtt: Option<Span>,
}

/// Load of the packet plane that the fair share must respect: what inelastic traffic takes of each port, in bit/s.
pub(crate) struct Load<'a> {
    /// Capacity per port in bit/s, less inelastic load.
    pub(crate) capacities: &'a [f64],
    /// Payload share of a full frame, per flow plan.
    pub(crate) efficiency: &'a dyn Fn(usize) -> f64,
}

/// Collects samples.
pub(crate) struct Meter {
    sample: Span,
    long_samples: usize,
    warm_up: Time,
    detail: RecordDetail,
    /// Plans of measured flows, by position in the list of all.
    measured: Vec<usize>,
    plans: Vec<FlowPlan>,
    /// Ports on the way of each measured flow's data.
    routes: Vec<Vec<u32>>,
    last: Vec<u64>,
    fair: Vec<f64>,
    /// The state that `fair` was computed for: which flows cover the interval, and the capacities.
    fair_key: (Vec<bool>, Vec<f64>),
    entities: Vec<String>,
    entity_of: Vec<usize>,
    windows: Vec<Window>,
    series: Vec<Series>,
    long: LongInterval,
}

/// Sums over one part of the run.
struct Window {
    prefix: String,
    from: Time,
    to: Time,
    bytes: f64,
    time: f64,
    jain: Mean,
    jain_normalised: Mean,
    waited: u64,
}

#[derive(Default)]
struct LongInterval {
    samples: usize,
    from: Time,
    bytes: Vec<f64>,
    fair: Vec<f64>,
    jain: Mean,
    jain_normalised: Mean,
}

#[derive(Clone, Copy, Default)]
struct Mean {
    sum: f64,
    n: u32,
}

impl Mean {
    fn add(&mut self, value: Option<f64>) {
        if let Some(value) = value {
            self.sum += value;
            self.n += 1;
        }
    }

    fn get(self) -> f64 {
        if self.n == 0 { f64::NAN } else { self.sum / f64::from(self.n) }
    }
}

impl Meter {
    pub(crate) fn new(scenario: &Scenario, plans: &[FlowPlan], route_of: impl Fn(usize) -> Vec<u32>) -> Self {
        let measured: Vec<usize> = (0..plans.len()).filter(|&i| plans[i].measured).collect();
        let mut entities = Vec::new();
        for &i in &measured {
            if !entities.contains(&plans[i].entity) {
                entities.push(plans[i].entity.clone());
            }
        }
        let entity_of = measured
            .iter()
            .map(|&i| entities.iter().position(|e| *e == plans[i].entity).unwrap_or(0))
            .collect();
        let run = &scenario.run;
        let whole = Window {
            prefix: String::new(),
            from: Time::ZERO + run.warm_up,
            to: Time::MAX,
            bytes: 0.0,
            time: 0.0,
            jain: Mean::default(),
            jain_normalised: Mean::default(),
            waited: 0,
        };
        let named = scenario.measure.windows.iter().map(|w| Window {
            prefix: format!("{}.", w.name),
            from: w.from,
            to: w.to,
            ..Window { prefix: String::new(), ..whole }
        });
        let windows = named.collect::<Vec<_>>();
        let sample = run.sample;
        Self {
            sample,
            long_samples: (scenario.measure.long_interval.as_nanos() / sample.as_nanos().max(1)).max(1)
                as usize,
            warm_up: Time::ZERO + run.warm_up,
            detail: scenario.measure.record,
            routes: measured.iter().map(|&i| route_of(i)).collect(),
            last: vec![0; measured.len()],
            fair: vec![0.0; measured.len()],
            fair_key: (Vec::new(), Vec::new()),
            long: LongInterval {
                bytes: vec![0.0; measured.len()],
                fair: vec![0.0; measured.len()],
                ..LongInterval::default()
            },
            entity_of,
            entities,
            measured,
            plans: plans.to_vec(),
            windows: std::iter::once(whole).chain(windows).collect(),
            series: Vec::new(),
        }
    }

    /// Ends the interval at `now`. `waited` is the measured port's packet-nanoseconds of waiting in it.
    pub(crate) fn take(
        &mut self,
        now: Time,
        waited: u64,
        queue_name: Option<&str>,
        load: &Load<'_>,
        state: impl Fn(usize) -> FlowSample,
    ) {
        let from = now - self.sample;
        let seconds = self.sample.as_secs_f64();
        let samples: Vec<FlowSample> = self.measured.iter().map(|&i| state(i)).collect();
        let covers: Vec<bool> = self.measured.iter().map(|&i| self.plans[i].covers(from, now)).collect();
        self.update_fair(&covers, load);
        let rates: Vec<f64> = samples
            .iter()
            .zip(&self.last)
            .map(|(s, last)| (s.delivered - last) as f64 * 8.0 / seconds)
            .collect();
        let total: f64 = rates.iter().sum();
        let index = |select: &dyn Fn(usize) -> bool, normalised: bool| {
            let chosen = (0..rates.len()).filter(|&f| covers[f] && select(f));
            jain(chosen.map(|f| if normalised { rates[f] / self.fair[f].max(1.0) } else { rates[f] }))
        };
        let (all_jain, all_normalised) = (index(&|_| true, false), index(&|_| true, true));
        for window in self.windows.iter_mut().filter(|w| w.from <= from && now <= w.to) {
            window.bytes += total * seconds / 8.0;
            window.time += seconds;
            window.jain.add(all_jain);
            window.jain_normalised.add(all_normalised);
            window.waited += waited;
        }
        if self.detail != RecordDetail::None {
            let mut row: Vec<(String, &'static str, f64)> = Vec::new();
            let mut entity = |name: &str, select: &dyn Fn(usize) -> bool| {
                let chosen = || (0..rates.len()).filter(|&f| select(f));
                row.push((name.to_owned(), "throughput", chosen().map(|f| rates[f]).sum::<f64>() / 1e6));
                row.push((name.to_owned(), "jain", index(select, false).unwrap_or(f64::NAN)));
                row.push((name.to_owned(), "jain_normalised", index(select, true).unwrap_or(f64::NAN)));
                row.push((name.to_owned(), "flows", chosen().filter(|&f| covers[f]).count() as f64));
            };
            entity("all", &|_| true);
            if self.entities.len() > 1 {
                for (i, name) in self.entities.iter().enumerate() {
                    entity(name, &|f| self.entity_of[f] == i);
                }
            }
            if let Some(name) = queue_name {
                row.push((name.to_owned(), "queue", waited as f64 / self.sample.as_nanos() as f64));
            }
            if self.detail == RecordDetail::Flows {
                for (f, sample) in samples.iter().enumerate() {
                    let name = &self.plans[self.measured[f]].name;
                    row.push((name.clone(), "throughput", rates[f] / 1e6));
                    row.push((name.clone(), "cwnd", sample.cwnd as f64));
                    let srtt = sample.srtt.map_or(f64::NAN, |s| s.as_secs_f64() * 1e3);
                    row.push((name.clone(), "srtt", srtt));
                }
            }
            self.record(row);
        }
        if from >= self.warm_up {
            self.add_to_long_interval(from, now, &rates, seconds);
        }
        for (last, sample) in self.last.iter_mut().zip(&samples) {
            *last = sample.delivered;
        }
    }

    fn record(&mut self, row: Vec<(String, &'static str, f64)>) {
        if self.series.is_empty() {
            self.series = row
                .iter()
                .map(|(entity, measure, _)| Series { entity: entity.clone(), measure, values: Vec::new() })
                .collect();
        }
        for (series, (_, _, value)) in self.series.iter_mut().zip(row) {
            series.values.push(value as f32);
        }
    }

    fn add_to_long_interval(&mut self, from: Time, now: Time, rates: &[f64], seconds: f64) {
        let long = &mut self.long;
        if long.samples == 0 {
            long.from = from;
        }
        long.samples += 1;
        for (f, rate) in rates.iter().enumerate() {
            long.bytes[f] += rate * seconds;
            long.fair[f] += self.fair[f] * seconds;
        }
        if long.samples == self.long_samples {
            let whole: Vec<usize> =
                (0..rates.len()).filter(|&f| self.plans[self.measured[f]].covers(long.from, now)).collect();
            long.jain.add(jain(whole.iter().map(|&f| long.bytes[f])));
            long.jain_normalised.add(jain(whole.iter().map(|&f| long.bytes[f] / long.fair[f].max(1.0))));
            long.samples = 0;
            long.bytes.fill(0.0);
            long.fair.fill(0.0);
        }
    }

    /// Max-min fair goodput of the flows that cover the interval.
    fn update_fair(&mut self, covers: &[bool], load: &Load<'_>) {
        if self.fair_key.0 == covers && self.fair_key.1 == load.capacities {
            return;
        }
        let present: Vec<usize> = (0..covers.len()).filter(|&f| covers[f]).collect();
        let demands: Vec<Demand<'_>> =
            present.iter().map(|&f| Demand { links: &self.routes[f], most: f64::INFINITY }).collect();
        let rates = max_min(load.capacities, &demands);
        self.fair.fill(0.0);
        for (&f, rate) in present.iter().zip(rates) {
            self.fair[f] = rate * (load.efficiency)(self.measured[f]);
        }
        self.fair_key = (covers.to_vec(), load.capacities.to_vec());
    }

    /// Summary figures that come from samples, and the series.
    pub(crate) fn finish(self) -> (Vec<(String, f64)>, Vec<Series>) {
        let mut figures = Vec::new();
        for window in &self.windows {
            let mut add = |name: &str, value: f64| figures.push((format!("{}{name}", window.prefix), value));
            add("jain", window.jain.get());
            add("jain_normalised", window.jain_normalised.get());
            if window.prefix.is_empty() {
                add("jain_long", self.long.jain.get());
                add("jain_normalised_long", self.long.jain_normalised.get());
            }
            add("throughput", window.bytes * 8.0 / window.time / 1e6);
            add("queue", window.waited as f64 / (window.time * 1e9));
        }
        (figures, self.series)
    }
}
