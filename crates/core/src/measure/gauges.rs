//! What roles show: series, least and largest values, and an estimate compared with the true value.

use std::collections::BTreeSet;

use crate::control::Gauges;
use crate::id::NodeId;
use crate::report::Series;
use crate::report::metric::{self, Place};
use crate::scenario::{RecordDetail, Scenario, Tracking};
use crate::time::{Span, Time};

/// Follows the gauges of every role through a run.
#[derive(Clone, Debug)]
pub struct GaugeMeter {
    warm_up: Time,
    recorded: bool,
    roles: Vec<Shown>,
    tracker: Option<Tracker>,
    /// `free` per sample, when an estimate is tracked.
    free: Vec<f32>,
}

/// The gauges of one role.
#[derive(Clone, Debug)]
struct Shown {
    node: NodeId,
    name: String,
    gauges: Vec<Gauge>,
}

#[derive(Clone, Debug)]
struct Gauge {
    metric: &'static str,
    summed_up: bool,
    value: f64,
    since: Time,
    min: f64,
    max: f64,
    still: Span,
    /// Integral of the value over the time that it had one, and that time.
    integral: f64,
    seconds: f64,
    samples: Vec<f32>,
}

impl GaugeMeter {
    /// A meter of roles at `nodes`, a node for each role.
    pub fn new(scenario: &Scenario, nodes: impl IntoIterator<Item = NodeId>) -> Self {
        let warm_up = Time::ZERO + scenario.run.warm_up;
        let role = |node: NodeId| Shown {
            node,
            name: scenario.topology.nodes[node.index()].name.clone(),
            gauges: Vec::new(),
        };
        Self {
            warm_up,
            recorded: scenario.measure.record != RecordDetail::None,
            roles: nodes.into_iter().map(role).collect(),
            tracker: scenario.measure.tracking.clone().map(|tracking| Tracker::new(tracking, warm_up)),
            free: Vec::new(),
        }
    }

    /// What role number `role` shows from `now` on: the same metrics at every call. `scenario` is that of [`new`](Self::new).
    pub fn note(&mut self, scenario: &Scenario, role: usize, now: Time, shown: &Gauges) {
        let warm_up = self.warm_up;
        let role = &mut self.roles[role];
        for (at, &(metric, value)) in shown.values().iter().enumerate() {
            if at == role.gauges.len() {
                let named = |(node, gauge): &(String, String)| *node == role.name && gauge == metric;
                let summed_up = scenario.measure.gauges.iter().any(named);
                role.gauges.push(Gauge::new(metric, summed_up, now));
            }
            role.gauges[at].note(now, value, warm_up);
            if metric == "estimate"
                && let Some(tracker) = self.tracker.as_mut().filter(|t| t.tracking.node == role.node)
            {
                tracker.on_estimate(now, value * 1e6);
            }
        }
    }

    /// The bandwidth that is free at the tracked port from `now` on, in bit/s.
    pub fn set_free(&mut self, now: Time, free: f64) {
        if let Some(tracker) = &mut self.tracker {
            tracker.on_free(now, free);
        }
    }

    /// The port whose free bandwidth [`set_free`](Self::set_free) wants to know.
    pub fn tracking(&self) -> Option<&Tracking> {
        self.tracker.as_ref().map(|tracker| &tracker.tracking)
    }

    /// Ends a sampling interval.
    pub fn sample(&mut self) {
        if !self.recorded {
            return;
        }
        for gauge in self.roles.iter_mut().flat_map(|role| &mut role.gauges) {
            gauge.samples.push(gauge.value as f32);
        }
        if let Some(tracker) = &self.tracker {
            self.free.push((tracker.free / 1e6) as f32);
        }
    }

    /// Metrics of the summary, and the series.
    pub fn finish(self, end: Time) -> (Vec<(String, f64)>, Vec<Series>) {
        let (mut metrics, mut series) = (Vec::new(), Vec::<Series>::new());
        let mut said = BTreeSet::new();
        let truth = self.tracker.as_ref().map(|tracker| tracker.tracking.node);
        for role in self.roles {
            for mut gauge in role.gauges {
                // Of two roles at a node that show the same, the first is recorded.
                if !said.insert((role.node, gauge.metric)) {
                    continue;
                }
                if gauge.summed_up {
                    let all = gauge.metrics(end, self.warm_up);
                    metrics.extend(metric::at(&[Place::Gauge]).zip(all).map(|(metric, value)| {
                        (format!("{}.{}.{}", role.name, gauge.metric, metric.name), value)
                    }));
                }
                if self.recorded {
                    let entity = role.name.clone();
                    series.push(Series { entity, metric: gauge.metric, values: gauge.samples });
                }
            }
            if self.recorded && truth == Some(role.node) && !series.iter().any(|s| s.metric == "free") {
                series.push(Series { entity: role.name, metric: "free", values: self.free.clone() });
            }
        }
        metrics.extend(self.tracker.into_iter().flat_map(|tracker| tracker.finish(end)));
        (metrics, series)
    }
}

impl Gauge {
    fn new(metric: &'static str, summed_up: bool, now: Time) -> Self {
        Self {
            metric,
            summed_up,
            value: f64::NAN,
            since: now,
            min: f64::NAN,
            max: f64::NAN,
            still: Span::ZERO,
            integral: 0.0,
            seconds: 0.0,
            samples: Vec::new(),
        }
    }

    fn note(&mut self, now: Time, value: f64, warm_up: Time) {
        if now >= warm_up {
            self.extend(self.value);
            self.extend(value);
        }
        // Not-a-number stays what it is.
        if value != self.value && !(value.is_nan() && self.value.is_nan()) {
            let stood = now.since(self.since.max(warm_up));
            self.still = self.still.max(stood);
            self.integrate(stood);
            self.value = value;
            self.since = now;
        }
    }

    fn extend(&mut self, value: f64) {
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }

    fn integrate(&mut self, stood: Span) {
        if !self.value.is_nan() {
            self.integral += self.value * stood.as_secs_f64();
            self.seconds += stood.as_secs_f64();
        }
    }

    /// In the order of those at [`Place::Gauge`].
    fn metrics(&mut self, end: Time, warm_up: Time) -> [f64; 5] {
        let stood = end.since(self.since.max(warm_up));
        let still = self.still.max(stood);
        self.integrate(stood);
        let mean = self.integral / self.seconds;
        [self.min.min(self.value), self.max.max(self.value), mean, self.value, still.as_secs_f64()]
    }
}

/// An estimate and the true value, both constant between changes.
#[derive(Clone, Debug)]
struct Tracker {
    tracking: Tracking,
    warm_up: Time,
    free: f64,
    estimate: f64,
    /// Both stand since.
    since: Time,
    /// The level before the first change after the warm-up is not a step.
    step: Option<Step>,
    /// The step before, and how many were judged without it: a change that is taken back at once was none.
    replaced: (Option<Step>, usize),
    judged: Vec<Judged>,
    /// Integral of the distance over time, and that time.
    error: f64,
    seconds: f64,
}

#[derive(Clone, Copy, Debug)]
struct Step {
    at: Time,
    from: f64,
    reached: Option<Time>,
    /// Within the distance since.
    inside: Option<Time>,
    over: f64,
    under: f64,
}

#[derive(Clone, Copy, Debug)]
struct Judged {
    follow: Span,
    settle: Span,
    over: f64,
    under: f64,
}

impl Tracker {
    fn new(tracking: Tracking, warm_up: Time) -> Self {
        Self {
            tracking,
            warm_up,
            free: f64::NAN,
            estimate: f64::NAN,
            since: Time::ZERO,
            step: None,
            replaced: (None, 0),
            judged: Vec::new(),
            error: 0.0,
            seconds: 0.0,
        }
    }

    fn on_estimate(&mut self, now: Time, estimate: f64) {
        self.pass(now);
        self.estimate = estimate;
        self.judge(now);
    }

    fn on_free(&mut self, now: Time, free: f64) {
        self.pass(now);
        // Sources that come and go at once are one step, or none. Sums of rates are off by rounding.
        let same = |a: f64, b: f64| (a - b).abs() < 1.0;
        let from = match self.step.filter(|step| step.at == now) {
            Some(step) => {
                self.step = self.replaced.0.take();
                self.judged.truncate(self.replaced.1);
                step.from
            }
            None => self.free,
        };
        if from.is_finite() && !same(from, free) && now >= self.warm_up {
            self.replaced = (self.step, self.judged.len());
            self.close(now);
            self.step = Some(Step { at: now, from, reached: None, inside: None, over: 0.0, under: 0.0 });
        }
        self.free = free;
        self.judge(now);
    }

    /// Time passes up to `now`.
    fn pass(&mut self, now: Time) {
        let from = self.since.max(self.warm_up);
        let off = (self.estimate - self.free).abs();
        if now > from && off.is_finite() {
            let seconds = now.since(from).as_secs_f64();
            self.error += off * seconds;
            self.seconds += seconds;
            if let Some(step) = &mut self.step {
                let (above, up) = (self.estimate - self.free, self.free > step.from);
                let responded = now > step.at + self.tracking.response;
                if up || responded {
                    step.over = step.over.max(above);
                }
                if !up || responded {
                    step.under = step.under.max(-above);
                }
            }
        }
        self.since = now;
    }

    fn judge(&mut self, now: Time) {
        let within = self.tracking.within.bits_per_sec() as f64;
        let off = self.estimate - self.free;
        let Some(step) = &mut self.step else { return };
        // What has not moved yet has not followed.
        let near = within.min((self.free - step.from).abs() / 2.0);
        let up = self.free > step.from;
        if if up { off >= -near } else { off <= near } {
            step.reached = step.reached.or(Some(now));
        }
        step.inside = if off.abs() <= within { step.inside.or(Some(now)) } else { None };
    }

    /// The step, if any, ends.
    fn close(&mut self, now: Time) {
        let Some(step) = self.step.take() else { return };
        if now.since(step.at) < self.tracking.lasting {
            return;
        }
        let after = |time: Option<Time>| time.unwrap_or(now).since(step.at);
        self.judged.push(Judged {
            follow: after(step.reached),
            settle: after(step.inside),
            over: step.over,
            under: step.under,
        });
    }

    fn finish(mut self, end: Time) -> Vec<(String, f64)> {
        self.pass(end);
        self.close(end);
        let n = self.judged.len() as f64;
        let seconds = |of: fn(&Judged) -> Span| {
            let values = self.judged.iter().map(|judged| of(judged).as_secs_f64());
            (values.clone().sum::<f64>() / n, values.fold(f64::NAN, f64::max))
        };
        let kbit = |of: fn(&Judged) -> f64| self.judged.iter().map(of).fold(f64::NAN, f64::max) / 1e3;
        let (follow, settle) = (seconds(|judged| judged.follow), seconds(|judged| judged.settle));
        [
            ("steps", n),
            ("follow", follow.0),
            ("follow_max", follow.1),
            ("settle", settle.0),
            ("settle_max", settle.1),
            ("overshoot", kbit(|judged| judged.over)),
            ("undershoot", kbit(|judged| judged.under)),
            ("error", self.error / self.seconds / 1e3),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::PortId;
    use crate::units::Rate;

    fn at(seconds: f64) -> Time {
        Time::ZERO + Span::from_secs_f64(seconds)
    }

    fn tracker(within: u64, lasting: u64) -> Tracker {
        let within = Rate::from_bits_per_sec(within * 1000);
        let lasting = Span::from_secs(lasting);
        let response = Span::from_secs(4);
        Tracker::new(Tracking { node: NodeId(0), port: PortId(0), within, response, lasting }, at(1.0))
    }

    fn metric(metrics: &[(String, f64)], name: &str) -> f64 {
        metrics.iter().find(|(n, _)| n == name).unwrap().1
    }

    /// Free 2,000 kb/s, from 10 s on 1,800, from 20 s on 2,000. The estimate follows the fall at 12 s (1,840), goes to
    /// 1,700 at 13 s and stays within 50 from 14 s on; it is back at 1,950 from 23 s on, and at 2,200 from 25 to 26 s.
    #[test]
    fn steps_are_timed_by_hand() {
        let mut tracker = tracker(50, 0);
        tracker.on_free(at(0.0), 2000e3);
        for (time, estimate) in [(0.0, 1000e3), (5.0, 2000e3)] {
            tracker.on_estimate(at(time), estimate);
        }
        tracker.on_free(at(10.0), 1800e3);
        for (time, estimate) in [(12.0, 1840e3), (13.0, 1700e3), (14.0, 1790e3)] {
            tracker.on_estimate(at(time), estimate);
        }
        tracker.on_free(at(20.0), 2000e3);
        for (time, estimate) in [(23.0, 1950e3), (25.0, 2200e3), (26.0, 2000e3)] {
            tracker.on_estimate(at(time), estimate);
        }
        let metrics = tracker.finish(at(30.0));
        let expected = [
            ("steps", 2.0),
            ("follow", 2.5),
            ("follow_max", 3.0),
            ("settle", 5.0),
            ("settle_max", 6.0),
            // Of the step up, from the beginning; the 100 below the step down likewise.
            ("overshoot", 200.0),
            ("undershoot", 100.0),
            // From 1 s: 4 s of 1,000; 2 of 200, 1 of 40, 1 of 100, 6 of 10; 3 of 210, 2 of 50, 1 of 200: 5,530 in 29 s.
            ("error", 5530.0 / 29.0),
        ];
        for (name, value) in expected {
            assert!((metric(&metrics, name) - value).abs() < 1e-6, "{name}: {metrics:?}");
        }
        let names: Vec<&str> = metrics.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, metric::at(&[Place::Tracking]).map(|metric| metric.name).collect::<Vec<_>>());
    }

    #[test]
    fn a_step_that_is_never_followed_counts_in_full_and_a_short_one_not_at_all() {
        let mut tracker = tracker(50, 5);
        tracker.on_free(at(0.0), 2000e3);
        tracker.on_estimate(at(0.0), 2000e3);
        tracker.on_free(at(10.0), 1000e3);
        tracker.on_free(at(14.0), 1500e3);
        let metrics = tracker.finish(at(21.0));
        // The step up to 1,500 is reached at once: the estimate of 2,000 is above it.
        assert_eq!((metric(&metrics, "steps"), metric(&metrics, "follow_max")), (1.0, 0.0));
        assert_eq!((metric(&metrics, "settle_max"), metric(&metrics, "overshoot")), (7.0, 500.0));
    }

    #[test]
    fn sources_that_change_at_once_are_one_step_or_none() {
        let mut tracker = tracker(50, 0);
        tracker.on_free(at(0.0), 2000e3);
        tracker.on_estimate(at(0.0), 2000e3);
        for free in [1900e3, 1800e3] {
            tracker.on_free(at(10.0), free);
        }
        for free in [1900e3, 1800e3] {
            tracker.on_free(at(20.0), free);
        }
        let metrics = tracker.finish(at(30.0));
        assert_eq!((metric(&metrics, "steps"), metric(&metrics, "follow_max")), (1.0, 20.0));
    }

    #[test]
    fn a_gauge_knows_its_extremes_and_its_longest_rest_after_the_warm_up() {
        let mut gauge = Gauge::new("estimate", true, at(0.0));
        for (time, value) in [(0.0, 9.0), (4.0, 1.0), (6.0, 3.0), (7.0, 3.0), (9.0, 2.0)] {
            gauge.note(at(time), value, at(5.0));
        }
        // 1 stands from 5 s on, 3 from 6 to 9 s: (1 + 3 * 3 + 2) / 5 in the mean.
        assert_eq!(gauge.metrics(at(10.0), at(5.0)), [1.0, 3.0, 2.4, 2.0, 3.0]);
    }
}
