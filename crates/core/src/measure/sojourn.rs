//! How long packets stay in a queue: from their arrival there to the begin of their transmission.

use hdrhistogram::Histogram;

use crate::report::Distribution;
use crate::scenario::Scenario;
use crate::time::Time;

/// Metrics of the summary, and the shares of the packets that stay no longer.
pub const QUANTILES: [(&str, f64); 4] =
    [("sojourn_p5", 0.05), ("sojourn_p50", 0.5), ("sojourn_p95", 0.95), ("sojourn_p99", 0.99)];

/// Significant figures of a time.
const FIGURES: u8 = 3;

/// Times in a queue, for the run after its warm-up and per window. Each part of the run has a histogram of at most
/// half a megabyte, however many packets pass.
pub struct Sojourns(Vec<Part>);

struct Part {
    /// Of the names of metrics.
    prefix: String,
    from: Time,
    to: Time,
    nanos: Histogram<u64>,
}

impl Part {
    /// The time in milliseconds that this share of the packets stays at most; not-a-number when there are no packets.
    fn millis(&self, share: f64) -> f64 {
        if self.nanos.is_empty() { f64::NAN } else { self.nanos.value_at_quantile(share) as f64 / 1e6 }
    }
}

impl Sojourns {
    /// What `scenario` asks for; none when it asks for no distributions.
    pub fn of(scenario: &Scenario) -> Option<Self> {
        let (run, measure) = (&scenario.run, &scenario.measure);
        if !measure.distributions {
            return None;
        }
        let whole = (String::new(), Time::ZERO + run.warm_up, Time::ZERO + run.duration);
        let windows = measure.windows.iter().map(|w| (format!("{}.", w.name), w.from, w.to));
        Self::new(std::iter::once(whole).chain(windows))
    }

    /// Empty ones of these parts of the run: prefix of the names of metrics, begin and end.
    pub fn new(parts: impl IntoIterator<Item = (String, Time, Time)>) -> Option<Self> {
        let part = |(prefix, from, to)| Some(Part { prefix, from, to, nanos: Histogram::new(FIGURES).ok()? });
        parts.into_iter().map(part).collect::<Option<Vec<Part>>>().map(Self)
    }

    /// A packet that arrived at the queue at `arrived` begins transmission at `start`. It counts in the parts of the run
    /// in which `start` lies; `start` may still be to come.
    pub fn note(&mut self, arrived: Time, start: Time) {
        let nanos = start.since(arrived).as_nanos();
        for part in self.0.iter_mut().filter(|part| part.from <= start && start < part.to) {
            // It grows as far as a run is long.
            let _ = part.nanos.record(nanos);
        }
    }

    /// Takes over what another part of the network has seen.
    pub fn absorb(&mut self, other: &Self) {
        for (own, other) in self.0.iter_mut().zip(&other.0) {
            // It grows as far as a run is long.
            let _ = own.nanos.add(&other.nanos);
        }
    }

    /// Mean time of the first part of the run, in milliseconds; not-a-number without packets.
    pub fn mean_millis(&self) -> f64 {
        self.0.first().filter(|part| !part.nanos.is_empty()).map_or(f64::NAN, |part| part.nanos.mean() / 1e6)
    }

    /// The time in milliseconds that this share of the packets of the first part stays at most.
    pub fn quantile_millis(&self, share: f64) -> f64 {
        self.0.first().map_or(f64::NAN, |part| part.millis(share))
    }

    /// The quantiles in milliseconds, by name.
    pub fn metrics(&self) -> Vec<(String, f64)> {
        let of_part = |part: &Part| {
            QUANTILES.map(|(name, share)| (format!("{}{name}", part.prefix), part.millis(share)))
        };
        self.0.iter().flat_map(of_part).collect()
    }

    /// The distribution over the packets of the first part of the run; none without packets.
    pub fn distribution(&self) -> Option<Distribution> {
        let part = self.0.first().filter(|part| !part.nanos.is_empty())?;
        Some(Distribution::of_quantiles("sojourn", |share| part.millis(share)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::metric::{self, Place};
    use crate::time::Span;

    fn at(micros: u64) -> Time {
        Time::ZERO + Span::from_micros(micros)
    }

    /// Packet n of 1000 begins transmission at n us and has stayed as long.
    #[test]
    fn quantiles_of_a_ramp_by_hand() {
        let part = |prefix: &str, from, to| (prefix.to_owned(), at(from), at(to));
        let parts = [part("", 1, 2000), part("late.", 901, 1001), part("never.", 5000, 6000)];
        let mut sojourns = Sojourns::new(parts).expect("three figures");
        // Those before 1 us and after 2000 us are of no part.
        for start in [0, 2000].into_iter().chain(1..=1000) {
            sojourns.note(at(0), at(start));
        }
        let metrics = sojourns.metrics();
        let value = |name: &str| metrics.iter().find(|(known, _)| known == name).expect("a metric").1;
        for (name, expected) in [
            ("sojourn_p5", 0.05),
            ("sojourn_p50", 0.5),
            ("sojourn_p95", 0.95),
            ("sojourn_p99", 0.99),
            ("late.sojourn_p5", 0.905),
            ("late.sojourn_p50", 0.95),
            ("late.sojourn_p99", 0.999),
        ] {
            assert!((value(name) / expected - 1.0).abs() <= 0.001, "{name}: {} ms", value(name));
        }
        assert!(value("never.sojourn_p50").is_nan());
        assert!((sojourns.mean_millis() / 0.5005 - 1.0).abs() <= 0.001, "{}", sojourns.mean_millis());
        assert_eq!(sojourns.quantile_millis(0.5), value("sojourn_p50"));
        let distribution = sojourns.distribution().expect("there are packets");
        assert_eq!((distribution.metric, distribution.quantiles.len()), ("sojourn", Distribution::POINTS));
        for (step, expected) in [(0, 0.001), (100, 0.25), (400, 1.0)] {
            let quantile = distribution.quantiles[step];
            assert!((quantile / expected - 1.0).abs() <= 0.001, "at {step} of 400: {quantile} ms");
        }
    }

    #[test]
    fn no_packets_have_no_distribution() {
        let sojourns = Sojourns::new([(String::new(), at(0), at(1))]).expect("three figures");
        assert_eq!(sojourns.distribution(), None);
        assert!(sojourns.mean_millis().is_nan());
        assert!(sojourns.metrics().iter().all(|(_, value)| value.is_nan()));
    }

    #[test]
    fn every_quantile_is_in_the_registry() {
        for (name, _) in QUANTILES {
            assert!(metric::find_at(&[Place::Spread], name).is_some(), "{name}");
        }
        assert!(metric::DISTRIBUTED.contains(&"sojourn"));
    }
}
