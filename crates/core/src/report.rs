//! What a run leaves behind: the same columns from every runtime.

pub mod claims;
pub mod difference;
pub mod quantile;
pub mod summary;

use serde::Serialize;

use crate::time::Span;

/// One trial of one case.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct RunRecord {
    /// Position of the case in the study.
    pub case: usize,
    /// Trial number from 0.
    pub trial: u32,
    /// Summary figures by name, in a fixed order: see [`FIGURES`]. A window's figures are `window.figure`.
    pub figures: Vec<(String, f64)>,
    /// Recorded series; all have one value per sampling interval, the first for the interval that ends at
    /// `sample`.
    pub series: Vec<Series>,
    /// How values are spread over flows, packets or links; see [`DISTRIBUTIONS`].
    pub distributions: Vec<Distribution>,
    /// Length of the sampling interval.
    pub sample: Span,
    /// Work done.
    pub work: Work,
}

impl RunRecord {
    /// A summary figure.
    pub fn figure(&self, name: &str) -> Option<f64> {
        self.figures.iter().find(|(n, _)| n == name).map(|(_, v)| *v)
    }
}

/// One measure of one entity over time.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Series {
    /// `all`, a group, a flow (`uploads.3`), a port (`r1->server`) or the node of a role (`gw1`).
    pub entity: String,
    /// One of [`MEASURES`] or [`GAUGES`].
    pub measure: &'static str,
    /// Values; not-a-number where the measure is undefined (no flow existed).
    pub values: Vec<f32>,
}

/// How the values of a measure are spread.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Distribution {
    /// One of [`DISTRIBUTIONS`].
    pub measure: &'static str,
    /// Quantiles at equal steps from 0 to 1, [`Distribution::POINTS`] of them.
    pub quantiles: Vec<f64>,
}

impl Distribution {
    /// Number of quantiles.
    pub const POINTS: usize = 401;

    /// The distribution of `values`, which are ascending; none when there are none. Nearest rank.
    pub fn new(measure: &'static str, values: &[f64]) -> Option<Self> {
        let steps = Self::POINTS - 1;
        let at = |step| quantile::quantile(values, step, steps);
        Some(Self { measure, quantiles: (0..=steps).map(at).collect::<Option<_>>()? })
    }

    /// The distribution of whole numbers of which `counts` has how often each occurs.
    pub fn of_counts(measure: &'static str, counts: &[u64]) -> Option<Self> {
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
        Some(Self { measure, quantiles: (0..=steps).map(at).collect() })
    }
}

/// Work that a run did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Work {
    /// Events taken from the queue.
    pub events: u64,
    /// Packets handed to a link transmitter.
    pub packet_hops: u64,
}

/// A named quantity with its unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Quantity {
    /// Name in files and columns.
    pub name: &'static str,
    /// Unit; empty for ratios and indices.
    pub unit: &'static str,
    /// Meaning.
    pub doc: &'static str,
}

/// Summary figures of a run, after the warm-up.
pub static FIGURES: &[Quantity] = &[
    Quantity {
        name: "jain",
        unit: "",
        doc: "Jain's index of per-flow goodput, mean over the sampling intervals",
    },
    Quantity {
        name: "jain_normalised",
        unit: "",
        doc: "Jain's index of goodput over the max-min fair goodput, mean over the sampling intervals",
    },
    Quantity { name: "jain_long", unit: "", doc: "As jain, over the long interval" },
    Quantity { name: "jain_normalised_long", unit: "", doc: "As jain_normalised, over the long interval" },
    Quantity {
        name: "throughput",
        unit: "Mbit/s",
        doc: "Total goodput (in-order TCP payload) of the measured flows",
    },
    Quantity { name: "queue", unit: "pkt", doc: "Time average of the measured port's queue" },
    Quantity { name: "queue_max", unit: "pkt", doc: "Largest queue of the measured port" },
    Quantity { name: "drops", unit: "pkt", doc: "Packets dropped by queues, whole run" },
    Quantity { name: "marks", unit: "pkt", doc: "Packets marked by queues (ECN), whole run" },
    Quantity { name: "rtos", unit: "", doc: "Retransmission timeouts, whole run" },
    Quantity { name: "retransmits", unit: "pkt", doc: "Segments sent again, whole run" },
    Quantity {
        name: "shortage",
        unit: "%",
        doc: "`NAME.shortage`: share of the time in which a flow of group NAME receives less than it needs",
    },
    Quantity {
        name: "shortage_limit",
        unit: "%",
        doc: "`NAME.shortage_limit`: share of the time in which the measured port cannot carry, beside UDP traffic that \
              is not measured, what group NAME and the groups listed before it need",
    },
    Quantity {
        name: "throughput_least",
        unit: "Mbit/s",
        doc: "Least total goodput of the measured flows over one long interval",
    },
    Quantity { name: "completed", unit: "", doc: "Flows of limited size that completed" },
    Quantity { name: "fct_mean", unit: "s", doc: "Mean completion time of flows of limited size" },
    Quantity { name: "fct_p99", unit: "s", doc: "99th percentile of the completion time" },
    Quantity { name: "fct_p50", unit: "s", doc: "Median of the completion time" },
    Quantity { name: "fct_p80", unit: "s", doc: "80th percentile of the completion time" },
    Quantity { name: "fct_max", unit: "s", doc: "Longest completion time" },
    Quantity {
        name: "fct_own_p99",
        unit: "s",
        doc: "As fct_p99, of flows that began with their host's own TCP settings",
    },
    Quantity {
        name: "fct_tuned_p99",
        unit: "s",
        doc: "As fct_p99, of flows that began with TCP settings that a scheme had changed",
    },
    Quantity {
        name: "undropped",
        unit: "%",
        doc: "Share of the completed flows of limited size of which no queue dropped a packet",
    },
    Quantity {
        name: "flow_drops_p99",
        unit: "%",
        doc: "99th percentile over these flows of the share of their packets that queues dropped",
    },
    Quantity {
        name: "window_to_5",
        unit: "%",
        doc: "Share of the data packets that leave while the congestion window is at most five segments",
    },
    Quantity {
        name: "utilization_p80",
        unit: "%",
        doc: "80th percentile over router ports and sampling intervals of the part of the capacity that is used",
    },
    Quantity { name: "rounds", unit: "", doc: "Rounds of incast or of an exchange that completed" },
    Quantity { name: "round_time_mean", unit: "s", doc: "Mean time from a round's begin to its last byte" },
    Quantity { name: "round_time_max", unit: "s", doc: "Longest time of a round" },
    Quantity {
        name: "round_goodput",
        unit: "Mbit/s",
        doc: "Payload of the complete rounds over the time that they took, per receiver",
    },
    Quantity { name: "control_rate", unit: "kbit/s", doc: "Rate of the scheme's messages between nodes" },
    Quantity { name: "refusals", unit: "", doc: "What schemes wanted and the network or its hosts refused" },
];

/// Measures whose distribution is recorded when `measure.distributions` asks for it.
pub static DISTRIBUTIONS: &[Quantity] = &[
    Quantity { name: "fct", unit: "s", doc: "Completion times of the flows of limited size that completed" },
    Quantity {
        name: "flow_drops",
        unit: "%",
        doc: "Share of a flow's packets that queues dropped, over these flows",
    },
    Quantity {
        name: "window",
        unit: "segments",
        doc: "Congestion window when a data packet leaves, over the packets",
    },
    Quantity {
        name: "utilization",
        unit: "%",
        doc: "Part of the capacity of a router port that is used in a sampling interval, over ports and intervals",
    },
];

/// Summary figures of a run with `[measure.tracking]`: how well an estimate of the free bandwidth tracks it. A step is
/// a change of the free bandwidth after the warm-up; it lasts until the next, or the end of the run.
pub static TRACKING: &[Quantity] = &[
    Quantity { name: "steps", unit: "", doc: "Steps that are judged" },
    Quantity {
        name: "follow",
        unit: "s",
        doc: "Time from a step until the estimate has reached the new level or is near it, by the stated distance but \
              at most half the step; all of the step when it never is; mean over the steps",
    },
    Quantity { name: "follow_max", unit: "s", doc: "As follow, the longest" },
    Quantity {
        name: "settle",
        unit: "s",
        doc: "Time from a step until the estimate stays within the stated distance to the end of the step; mean",
    },
    Quantity { name: "settle_max", unit: "s", doc: "As settle, the longest" },
    Quantity {
        name: "overshoot",
        unit: "kbit/s",
        doc: "Most that the estimate is above the free bandwidth: after a step up from the beginning, after a step down \
              from the time on that it has to respond",
    },
    Quantity {
        name: "undershoot",
        unit: "kbit/s",
        doc: "Most that the estimate is below the free bandwidth: after a step down from the beginning, after a step up \
              from the time on that it has to respond",
    },
    Quantity {
        name: "error",
        unit: "kbit/s",
        doc: "Distance of the estimate from the free bandwidth, mean over the time after the warm-up",
    },
];

/// What is summed up of a gauge in `measure.gauges`, as `NODE.GAUGE.min` and so on. The unit is that of the gauge,
/// where none stands here.
pub static GAUGE_FIGURES: &[Quantity] = &[
    Quantity { name: "min", unit: "", doc: "Least value after the warm-up" },
    Quantity { name: "max", unit: "", doc: "Largest value after the warm-up" },
    Quantity { name: "last", unit: "", doc: "Value at the end" },
    Quantity { name: "still", unit: "s", doc: "Longest time without a change of the value" },
];

/// The figures that only groups of flows have.
pub const OF_GROUPS: [&str; 2] = ["shortage", "shortage_limit"];

/// The figures that need `measure.distributions`.
pub const OF_DISTRIBUTIONS: [&str; 6] =
    ["fct_own_p99", "fct_tuned_p99", "undropped", "flow_drops_p99", "window_to_5", "utilization_p80"];

/// Measures of series.
pub static MEASURES: &[Quantity] = &[
    Quantity { name: "throughput", unit: "Mbit/s", doc: "Goodput in the interval" },
    Quantity { name: "jain", unit: "", doc: "Jain's index of per-flow goodput in the interval" },
    Quantity { name: "jain_normalised", unit: "", doc: "Jain's index of goodput over max-min fair goodput" },
    Quantity { name: "queue", unit: "pkt", doc: "Time average of the queue in the interval" },
    Quantity { name: "flows", unit: "", doc: "Measured flows that existed through the interval" },
    Quantity { name: "cwnd", unit: "B", doc: "Congestion window at the end of the interval" },
    Quantity { name: "srtt", unit: "ms", doc: "Smoothed round-trip time at the end of the interval" },
    Quantity {
        name: "free",
        unit: "Mbit/s",
        doc: "Rate of the tracked port less its background UDP, in frames, at the end of the interval",
    },
];

/// Measures that roles of schemes show ([`Gauges`](crate::control::Gauges)), as series of the role's node, each at the
/// end of the interval.
pub static GAUGES: &[Quantity] = &[
    Quantity { name: "estimate", unit: "Mbit/s", doc: "W: bandwidth that is taken to be free" },
    Quantity { name: "step", unit: "Mbit/s", doc: "D: next increase of the estimate" },
    Quantity { name: "received", unit: "Mbit/s", doc: "R: rate received in the last round" },
    Quantity { name: "loss", unit: "pkt", doc: "L: packets lost in the last round" },
    Quantity { name: "lost", unit: "pkt", doc: "Sum of L since the role began" },
    Quantity { name: "updates", unit: "", doc: "Rounds that brought an answer, since the role began" },
    Quantity {
        name: "classes",
        unit: "Mbit/s",
        doc: "Sum of the rates promised to the classes of the shaper",
    },
    Quantity {
        name: "tuned",
        unit: "",
        doc: "OpenTCP, agent: 1 while a CUE changes the TCP of its host, else 0",
    },
    Quantity {
        name: "cued",
        unit: "hosts",
        doc: "OpenTCP, Oracle: hosts that got a CUE with a lease in the last cycle",
    },
    Quantity {
        name: "coverage",
        unit: "",
        doc: "OpenTCP, Oracle: share of nodes heard of in the last two cycles",
    },
    Quantity { name: "spare", unit: "Mbit/s", doc: "The estimate less `classes`" },
];

/// A measure of series or distributions: one of [`MEASURES`], [`GAUGES`] or [`DISTRIBUTIONS`].
pub fn measure(name: &str) -> Option<&'static Quantity> {
    MEASURES.iter().chain(GAUGES).chain(DISTRIBUTIONS).find(|measure| measure.name == name)
}

/// The parts of a figure of a gauge, `NODE.GAUGE.FIGURE`: the node, the gauge and one of [`GAUGE_FIGURES`].
pub fn gauge_figure(name: &str) -> Option<(&str, &'static Quantity, &'static Quantity)> {
    let (gauge, figure) = name.rsplit_once('.')?;
    let (node, gauge) = gauge.rsplit_once('.')?;
    let named = |list: &'static [Quantity], name: &str| list.iter().find(|quantity| quantity.name == name);
    Some((node, named(GAUGES, gauge)?, named(GAUGE_FIGURES, figure)?))
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
