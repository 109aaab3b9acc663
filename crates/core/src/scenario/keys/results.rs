//! Tables of what is measured, compared, claimed and drawn.

use super::{BAND, RATE, SPAN};
use crate::file::{Selector, Shape, TableDef};
use crate::params::{Choice, Kind, keys};
use crate::report::metric::{DISTRIBUTED, DRAWN};
use crate::scenario::choices::{CdfOf, FigureKind, FlowRows, RecordDetail};

/// `[measure]`.
pub(in crate::scenario) static MEASURE: TableDef = TableDef {
    header: "[measure]",
    doc: "What is recorded and summarised",
    keys: &[keys! {
        /// Port `from->to` of the metrics of a queue; absent: the router port that most flows cross
        "queue": Kind::Text, optional;
        /// Recorded series: none, one per group, or also one per flow
        "record": RecordDetail::KIND, default "groups";
        /// Interval of the long-term fairness indices
        "long-interval": SPAN, default "1s";
        /// Parts of the run with metrics of their own
        "windows": Kind::Nested, optional;
        /// Gauges of schemes as `node.gauge`, each with the metrics `node.gauge.min`, `.max`, `.last`,
        /// `.still`; absent: none
        "gauges": Kind::TextList, optional;
        /// An estimate to compare with the free bandwidth
        "tracking": Kind::Nested, optional;
        /// Whether completion times, drops and windows of flows, the use of links and the times in the measured
        /// queue are recorded as distributions
        "distributions": Kind::Bool, default "false";
        /// Whether the packets that arrive at receivers are measured too, as `arrivals`
        "arrivals": Kind::Bool, default "false";
        /// Rows of `flows.parquet`: none, one for each flow, or the same with round-trip times, which are metrics
        /// too
        "flow-table": FlowRows::KIND, default "counts";
        /// Whether series have the median, 95th and 99th percentile of round-trip times, queueing delays and
        /// times in the measured queue in each sampling interval; with `record = "flows"` also per flow
        "percentiles": Kind::Bool, default "false";
        /// More ports `from->to` whose times in the queue are percentiles too, in series and as metrics
        /// `from->to.sojourn_p99`; with `percentiles`
        "ports": Kind::TextList, optional;
    }],
    selector: None,
    nested: &[("windows", Shape::Tables(&WINDOW)), ("tracking", Shape::Table(&TRACKING))],
};

/// `[measure.tracking]`.
pub(in crate::scenario) static TRACKING: TableDef = TableDef {
    header: "[measure.tracking]",
    doc: "An estimate to compare with the free bandwidth: the port's rate less its background UDP",
    keys: &[keys! {
        /// Node whose scheme shows the gauge `estimate`
        "node": Kind::Text, required;
        /// Port `from->to` whose free bandwidth it estimates
        "port": Kind::Text, required;
        /// An estimate this near is right
        "within": RATE, default "100kbit";
        /// Time to respond to a step: until then, only values beyond the new level are over- or undershoot
        "response": SPAN, default "5s";
        /// Steps shorter than this are not judged
        "lasting": SPAN, default "0s";
    }],
    selector: None,
    nested: &[],
};

/// `[[measure.windows]]`.
pub(in crate::scenario) static WINDOW: TableDef = TableDef {
    header: "[[measure.windows]]",
    doc: "A part of the run with metrics of its own, `name.metric`",
    keys: &[keys! {
        /// Prefix of the metrics' names
        "name": Kind::Text, required;
        /// Start
        "from": SPAN, required;
        /// End
        "to": SPAN, required;
        /// Only flows from this group or host count; absent: all measured flows
        "of": Kind::Text, optional;
    }],
    selector: None,
    nested: &[],
};

/// `[[compare]]`.
pub(in crate::scenario) static VARIANT: TableDef = TableDef {
    header: "[[compare]]",
    doc: "A variant of the scenario",
    keys: &[keys! {
        /// Short name
        "name": Kind::Text, required;
        /// Name for people; absent: the name
        "title": Kind::Text, optional;
        /// Dotted keys and the values they have in this variant; absent: none
        "set": Kind::Nested, optional;
        /// The paper's results for this variant; absent: none
        "paper": Kind::Nested, optional;
    }],
    selector: None,
    nested: &[("set", Shape::Overrides), ("paper", Shape::Tables(&PAPER))],
};

/// `paper` of a variant.
pub(in crate::scenario) static PAPER: TableDef = TableDef {
    header: "[[compare.paper]]",
    doc: "A metric as the paper reports it, for `compare` to show",
    keys: &[keys! {
        /// Metric, or `window.metric`
        "metric": Kind::Text, required, formerly "figure";
        /// Value in the metric's unit
        "value": BAND, required;
    }],
    selector: None,
    nested: &[],
};

/// `[[sweeps]]`.
pub(in crate::scenario) static SWEEP: TableDef = TableDef {
    header: "[[sweeps]]",
    doc: "A key that takes several values, or several keys in all combinations of their values; one case each",
    keys: &[keys! {
        /// Short name
        "name": Kind::Text, required;
        /// Axis label; absent: the key, or the titles of the grid's keys
        "title": Kind::Text, optional;
        /// Dotted path; elements of lists by name or position, as `flows.uploads.count`
        "key": Kind::Text, optional;
        /// Values of `key`
        "values": Kind::Nested, optional;
        /// Values of a quick run; absent: all
        "quick": Kind::Nested, optional;
        /// Two or more keys instead of `key`; every combination of their values is a case
        "grid": Kind::Nested, optional;
        /// Variants that are swept; absent: all
        "variants": Kind::TextList, optional;
    }],
    selector: None,
    nested: &[("values", Shape::Values), ("quick", Shape::Values), ("grid", Shape::Tables(&AXIS))],
};

/// `[[sweeps.grid]]`.
pub(in crate::scenario) static AXIS: TableDef = TableDef {
    header: "[[sweeps.grid]]",
    doc: "One key of a grid",
    keys: &[keys! {
        /// Short name, which no other sweep or key of a grid has
        "name": Kind::Text, required;
        /// Axis label; absent: the key
        "title": Kind::Text, optional;
        /// Dotted path, as in a sweep of one key
        "key": Kind::Text, required;
        /// Values
        "values": Kind::Nested, required;
        /// Values of a quick run; absent: all
        "quick": Kind::Nested, optional;
    }],
    selector: None,
    nested: &[("values", Shape::Values), ("quick", Shape::Values)],
};

/// `[[claims]]`.
pub(in crate::scenario) static CLAIM: TableDef = TableDef {
    header: "[[claims]]",
    doc: "A statement about a metric: the 95 % interval of its mean over trials lies in a band",
    keys: &[keys! {
        /// Unique name; with several variants the claims are `id/variant`
        "id": Kind::Text, required;
        /// The statement in words
        "text": Kind::Text, required;
        /// Metric, or `window.metric`
        "metric": Kind::Text, required, formerly "figure";
        /// Variants that are judged, a claim each
        "variant": Kind::TextList, required;
        /// Variant whose metric is subtracted
        "minus": Kind::Text, optional;
        /// Variant by whose metric is divided
        "over": Kind::Text, optional;
        /// Metric of the other side; absent: the same
        "against-metric": Kind::Text, optional, formerly "against-figure";
        /// Value of the same sweep on the other side; absent: the same
        "against-point": Kind::Nested, optional;
        /// One point: name of a sweep = value; without `at` and `sweep`: the base
        "at": Kind::Nested, optional;
        /// Sweep; the claim must hold at every point
        "sweep": Kind::Text, optional;
        /// Only these values of `sweep`
        "points": Kind::Nested, optional;
        /// Least value; absent: no such edge
        "low": BAND, optional;
        /// Largest value; absent: no such edge
        "high": BAND, optional;
        /// Reason for the edges, physical or published
        "because": Kind::Text, default "";
        /// The paper's result
        "paper": Kind::Text, default "";
        /// Figure, table or section of the paper
        "source": Kind::Text, default "";
        /// Why the claim is known not to hold
        "not-reproduced": Kind::Text, optional;
        /// Judged in a quick run too
        "quick": Kind::Bool, default "true";
    }],
    selector: None,
    nested: &[("at", Shape::Point), ("against-point", Shape::Value), ("points", Shape::Values)],
};

/// `[[figures]]`.
pub(in crate::scenario) static FIGURE: TableDef = TableDef {
    header: "[[figures]]",
    doc: "A picture of the report",
    keys: &[keys! {
        /// Unique name, also of the file
        "id": Kind::Text, required;
        /// Caption
        "title": Kind::Text, required;
        /// Figure or table of the paper
        "source": Kind::Text, default "";
        /// A metric over a sweep, a metric over time, the cumulative distribution of a recorded metric, the same of a
        /// value of flows or trials, boxes over trials, bars, a heatmap over a grid, or the slowdown by flow size
        "kind": FigureKind::KIND, required;
        /// Variants drawn, in order; absent: all
        "variants": Kind::TextList, optional;
        /// Curves from elsewhere
        "references": Kind::Nested, optional;
    }],
    selector: Some(Selector {
        key: "kind",
        choices: &[
            (
                "sweep",
                keys! {
                    /// Sweep on the x axis
                    "sweep": Kind::Text, required;
                    /// Metric on the y axis
                    "y": Kind::Text, required;
                    /// Of a grid, the key on the x axis; absent: its first one. The others have a curve for each
                    /// combination of their values
                    "x": Kind::Text, optional;
                    /// Logarithmic x axis
                    "log-x": Kind::Bool, default "false";
                },
            ),
            (
                "series",
                keys! {
                    /// Metric on the y axis, or a gauge of schemes; a list of metrics of one unit has a panel for each
                    "y": Kind::TextList, required;
                    /// `all`, or names as in `from` of measured flows, when there are several; of a gauge,
                    /// nodes; a panel each
                    "entities": Kind::TextList, default "all";
                    /// A curve for each point of this sweep
                    "sweep": Kind::Text, optional;
                    /// One point: name of a sweep = value; absent: the base
                    "at": Kind::Nested, optional;
                    /// Another metric of the same entities, drawn once, in grey
                    "beside": Kind::Choice(DRAWN), optional;
                    /// One trial, counted from 0; absent: the mean over all
                    "trial": Kind::Integer { min: 0, max: 99_999 }, optional;
                    /// Time over which each value is averaged, up to the value; absent: one sample
                    "average": SPAN, optional;
                },
            ),
            (
                "distribution",
                keys! {
                    /// Metric on the x axis
                    "x": Kind::Choice(DISTRIBUTED), required;
                    /// Logarithmic x axis
                    "log-x": Kind::Bool, default "false";
                },
            ),
            (
                "cdf",
                keys! {
                    /// What is counted: completed flows (of round-trip times: flows that measured any), or trials
                    "of": CdfOf::KIND, default "flows";
                    /// Of flows: `fct`, `slowdown`, `rtt_min`, `rtt_mean`, `rtt_p50`, `rtt_p95` or `rtt_p99`; of
                    /// trials: a metric
                    "x": Kind::Text, required;
                    /// The only flow group that counts; absent: all that are measured
                    "group": Kind::Text, optional;
                    /// A curve for each point of this sweep
                    "sweep": Kind::Text, optional;
                    /// One point: name of a sweep = value; absent: the base
                    "at": Kind::Nested, optional;
                    /// Logarithmic x axis
                    "log-x": Kind::Bool, default "false";
                },
            ),
            (
                "box",
                keys! {
                    /// Metric on the y axis
                    "y": Kind::Text, required;
                    /// A box for each point of this sweep
                    "sweep": Kind::Text, optional;
                    /// One point: name of a sweep = value; absent: the base
                    "at": Kind::Nested, optional;
                },
            ),
            (
                "bars",
                keys! {
                    /// A bar for each of these metrics, all of one unit, as `window.metric` or `group.metric`
                    "metrics": Kind::TextList, required;
                    /// Bars for each point of this sweep
                    "sweep": Kind::Text, optional;
                    /// One point: name of a sweep = value; absent: the base
                    "at": Kind::Nested, optional;
                },
            ),
            (
                "heatmap",
                keys! {
                    /// Grid of two keys, the first on the x axis
                    "sweep": Kind::Text, required;
                    /// Metric that the colours show
                    "z": Kind::Text, required;
                },
            ),
            (
                "slowdown",
                keys! {
                    /// The only flow group that counts; absent: all that are measured
                    "group": Kind::Text, optional;
                    /// Bins of sizes, with as many flows each
                    "bins": Kind::Integer { min: 1, max: 100 }, default "10";
                    /// Curves for each point of this sweep
                    "sweep": Kind::Text, optional;
                    /// One point: name of a sweep = value; absent: the base
                    "at": Kind::Nested, optional;
                },
            ),
        ],
    }),
    nested: &[("references", Shape::Tables(&REFERENCE)), ("at", Shape::Point)],
};

/// `[[figures.references]]`.
pub(in crate::scenario) static REFERENCE: TableDef = TableDef {
    header: "[[figures.references]]",
    doc: "A curve that another source gives",
    keys: &[keys! {
        /// Legend
        "label": Kind::Text, required;
        /// Positions
        "x": Kind::Nested, required;
        /// Values, one per position
        "y": Kind::Nested, required;
        /// Lower ends of interval bars, one per position; with `high`
        "low": Kind::Nested, optional;
        /// Upper ends of interval bars, one per position; with `low`
        "high": Kind::Nested, optional;
    }],
    selector: None,
    nested: &[
        ("x", Shape::Numbers),
        ("y", Shape::Numbers),
        ("low", Shape::Numbers),
        ("high", Shape::Numbers),
    ],
};
