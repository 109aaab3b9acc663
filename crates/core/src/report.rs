//! What a run leaves behind: the same columns from every runtime.

pub mod claims;
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
    /// `all`, a group, a flow (`uploads.3`) or a port (`r1->server`).
    pub entity: String,
    /// One of [`MEASURES`].
    pub measure: &'static str,
    /// Values; not-a-number where the measure is undefined (no flow existed).
    pub values: Vec<f32>,
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
    Quantity { name: "completed", unit: "", doc: "Flows of limited size that completed" },
    Quantity { name: "fct_mean", unit: "s", doc: "Mean completion time of flows of limited size" },
    Quantity { name: "fct_p99", unit: "s", doc: "99th percentile of the completion time" },
    Quantity { name: "rounds", unit: "", doc: "Incast rounds that completed" },
    Quantity {
        name: "round_time_mean",
        unit: "s",
        doc: "Mean time from an incast round's begin to its last byte",
    },
    Quantity { name: "round_time_max", unit: "s", doc: "Longest time of an incast round" },
    Quantity {
        name: "round_goodput",
        unit: "Mbit/s",
        doc: "Payload of the complete incast rounds over the time that they took, per receiver",
    },
    Quantity { name: "control_rate", unit: "kbit/s", doc: "Rate of the scheme's messages between nodes" },
];

/// The figure that only groups of flows have.
pub const SHORTAGE: &str = "shortage";

/// Measures of series.
pub static MEASURES: &[Quantity] = &[
    Quantity { name: "throughput", unit: "Mbit/s", doc: "Goodput in the interval" },
    Quantity { name: "jain", unit: "", doc: "Jain's index of per-flow goodput in the interval" },
    Quantity { name: "jain_normalised", unit: "", doc: "Jain's index of goodput over max-min fair goodput" },
    Quantity { name: "queue", unit: "pkt", doc: "Time average of the queue in the interval" },
    Quantity { name: "flows", unit: "", doc: "Measured flows that existed through the interval" },
    Quantity { name: "cwnd", unit: "B", doc: "Congestion window at the end of the interval" },
    Quantity { name: "srtt", unit: "ms", doc: "Smoothed round-trip time at the end of the interval" },
];

/// Where results come from.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Provenance {
    /// `simulate`, `emulate` or `deploy`.
    pub world: &'static str,
    /// Version of bandmaster.
    pub version: &'static str,
    /// Commit it was built from, when known.
    pub commit: Option<&'static str>,
    /// Digest of the scenario file's text and overrides.
    pub digest: String,
    /// Seed.
    pub seed: u64,
}
