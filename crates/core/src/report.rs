//! What a run leaves behind: the same columns from every runtime.

pub mod claims;
pub mod difference;
pub mod flow;
pub mod metric;
pub mod quantile;
pub mod summary;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use crate::time::Span;

/// One trial of one case.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RunRecord {
    /// Position of the case in the study.
    pub case: usize,
    /// Trial number from 0.
    pub trial: u32,
    /// The summary by name, in a fixed order: see [`metric::summarised`] and [`metric::of_gauge`].
    pub metrics: Vec<(String, f64)>,
    /// Recorded series; all have one value per sampling interval, the first for the interval that ends at
    /// `sample`.
    pub series: Vec<Series>,
    /// How values are spread over flows, packets or links; see [`Distribution`].
    pub distributions: Vec<Distribution>,
    /// Length of the sampling interval.
    pub sample: Span,
    /// Work done.
    pub work: Work,
}

impl RunRecord {
    /// A metric of the summary.
    pub fn metric(&self, name: &str) -> Option<f64> {
        self.metrics.iter().find(|(n, _)| n == name).map(|(_, v)| *v)
    }
}

/// The name of a metric of the registry. Not written as a reference, which serde would borrow from its input.
type MetricName = &'static str;

fn known_metric<'de, D: Deserializer<'de>>(from: D) -> Result<MetricName, D::Error> {
    let name = String::deserialize(from)?;
    let metric = metric::find(&name).ok_or_else(|| D::Error::custom(format!("no metric `{name}`")))?;
    Ok(metric.name)
}

/// One metric of one entity over time.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Series {
    /// `all`, a group, a flow (`uploads.3`), a port (`r1->server`) or the node of a role (`gw1`).
    pub entity: String,
    /// Its name: of one at [`metric::SERIES`].
    #[serde(deserialize_with = "known_metric")]
    pub metric: MetricName,
    /// Values; not-a-number where the metric is undefined (no flow existed).
    pub values: Vec<f32>,
}

/// How the values of a metric are spread.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Distribution {
    /// Its name: one of [`metric::DISTRIBUTED`].
    #[serde(deserialize_with = "known_metric")]
    pub metric: MetricName,
    /// Quantiles at equal steps from 0 to 1, [`Distribution::POINTS`] of them.
    pub quantiles: Vec<f64>,
}

impl Distribution {
    /// Number of quantiles.
    pub const POINTS: usize = 401;

    /// The distribution of `values`, which are ascending; none when there are none. Nearest rank.
    pub fn new(metric: &'static str, values: &[f64]) -> Option<Self> {
        let steps = Self::POINTS - 1;
        let at = |step| quantile::quantile(values, step, steps);
        Some(Self { metric, quantiles: (0..=steps).map(at).collect::<Option<_>>()? })
    }

    /// The distribution with these quantiles, by the share from 0 to 1.
    pub fn of_quantiles(metric: &'static str, quantile: impl Fn(f64) -> f64) -> Self {
        let steps = Self::POINTS - 1;
        let quantiles = (0..=steps).map(|step| quantile(step as f64 / steps as f64));
        Self { metric, quantiles: quantiles.collect() }
    }

    /// The distribution of whole numbers of which `counts` has how often each occurs.
    pub fn of_counts(metric: &'static str, counts: &[u64]) -> Option<Self> {
        let total: u64 = counts.iter().sum();
        if total == 0 {
            return None;
        }
        let steps = (Self::POINTS - 1) as u64;
        let (mut number, mut below) = (0, counts[0]);
        let at = |step: u64| {
            while below < quantile::rank(total, step, steps) {
                number += 1;
                below += counts[number];
            }
            number as f64
        };
        Some(Self { metric, quantiles: (0..=steps).map(at).collect() })
    }
}

/// Work that a run did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Work {
    /// Events taken from the queue.
    pub events: u64,
    /// Packets handed to a link transmitter.
    pub packet_hops: u64,
}

/// Where results come from.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Provenance {
    /// `simulate`, `emulate` or `deploy`.
    pub world: &'static str,
    /// Version of bandmaster.
    pub version: &'static str,
    /// Commit it was built from, when known.
    pub commit: Option<&'static str>,
    /// Digest of the scenario file's text, overrides and traces.
    pub digest: String,
    /// Seed.
    pub seed: u64,
}
