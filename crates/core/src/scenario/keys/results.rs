//! Tables of what is measured, compared, claimed and drawn.

use super::{BAND, HOUSE, RATE, SPAN};
use crate::file::{Selector, Shape, TableDef};
use crate::params::{Choice, Key, Kind};
use crate::report::metric::{DISTRIBUTED, DRAWN};
use crate::scenario::choices::{FigureKind, RecordDetail};

/// `[measure]`.
pub(in crate::scenario) static MEASURE: TableDef = TableDef {
    header: "[measure]",
    doc: "What is recorded and summarised",
    keys: &[&[
        Key::optional(
            "queue",
            Kind::Text,
            "Port `from->to` of the metrics of a queue; absent: the router port that most flows cross",
        ),
        Key::new(
            "record",
            RecordDetail::KIND,
            "groups",
            "Recorded series: none, those of groups, or those of each flow too",
            HOUSE,
        ),
        Key::new("long-interval", SPAN, "1s", "Interval of the long-term fairness indices", HOUSE),
        Key::optional("windows", Kind::Nested, "Parts of the run with metrics of their own"),
        Key::optional(
            "gauges",
            Kind::TextList,
            "Gauges of schemes as `node.gauge`, each with the metrics `node.gauge.min`, `.max`, `.last`, `.still`; \
             absent: none",
        ),
        Key::optional("tracking", Kind::Nested, "An estimate to compare with the bandwidth that is free"),
        Key::new(
            "distributions",
            Kind::Bool,
            "false",
            "Whether completion times, drops and windows of flows, and the use of links, are recorded as distributions",
            HOUSE,
        ),
    ]],
    selector: None,
    nested: &[("windows", Shape::Tables(&WINDOW)), ("tracking", Shape::Table(&TRACKING))],
};

/// `[measure.tracking]`.
pub(in crate::scenario) static TRACKING: TableDef = TableDef {
    header: "[measure.tracking]",
    doc: "An estimate of the free bandwidth beside the truth: the port's rate less its background UDP",
    keys: &[&[
        Key::required("node", Kind::Text, "Node whose scheme shows the gauge `estimate`"),
        Key::required("port", Kind::Text, "Port `from->to` whose free bandwidth it estimates"),
        Key::new("within", RATE, "100kbit", "An estimate this near is right", HOUSE),
        Key::new(
            "response",
            SPAN,
            "5s",
            "Time to respond to a step: before, only what goes beyond the new level is over- or undershoot",
            HOUSE,
        ),
        Key::new("lasting", SPAN, "0s", "Steps that last shorter are not judged", HOUSE),
    ]],
    selector: None,
    nested: &[],
};

/// `[[measure.windows]]`.
pub(in crate::scenario) static WINDOW: TableDef = TableDef {
    header: "[[measure.windows]]",
    doc: "A part of the run with metrics of its own, `name.metric`",
    keys: &[&[
        Key::required("name", Kind::Text, "Prefix of the metrics' names"),
        Key::required("from", SPAN, "Start"),
        Key::required("to", SPAN, "End"),
    ]],
    selector: None,
    nested: &[],
};

/// `[[compare]]`.
pub(in crate::scenario) static VARIANT: TableDef = TableDef {
    header: "[[compare]]",
    doc: "A variant of the scenario",
    keys: &[&[
        Key::required("name", Kind::Text, "Short name"),
        Key::optional("title", Kind::Text, "Name for people; absent: the name"),
        Key::optional(
            "set",
            Kind::Nested,
            "Dotted keys and the values they have in this variant; absent: none",
        ),
        Key::optional("paper", Kind::Nested, "What the paper reports of this variant; absent: nothing"),
    ]],
    selector: None,
    nested: &[("set", Shape::Overrides), ("paper", Shape::Tables(&PAPER))],
};

/// `paper` of a variant.
pub(in crate::scenario) static PAPER: TableDef = TableDef {
    header: "[[compare.paper]]",
    doc: "A metric as the paper reports it, for `compare` to show",
    keys: &[&[
        Key::required("metric", Kind::Text, "Metric, or `window.metric`").formerly("figure"),
        Key::required("value", BAND, "Value in the metric's unit"),
    ]],
    selector: None,
    nested: &[],
};

/// `[[sweeps]]`.
pub(in crate::scenario) static SWEEP: TableDef = TableDef {
    header: "[[sweeps]]",
    doc: "A key that takes several values, one case each",
    keys: &[&[
        Key::required("name", Kind::Text, "Short name"),
        Key::optional("title", Kind::Text, "Axis label; absent: the key"),
        Key::required(
            "key",
            Kind::Text,
            "Dotted path; elements of lists by name or position, as `flows.uploads.count`",
        ),
        Key::required("values", Kind::Nested, "Values"),
        Key::optional("quick", Kind::Nested, "Values of a quick run; absent: all"),
        Key::optional("variants", Kind::TextList, "Variants that are swept; absent: all"),
    ]],
    selector: None,
    nested: &[("values", Shape::Values), ("quick", Shape::Values)],
};

/// `[[claims]]`.
pub(in crate::scenario) static CLAIM: TableDef = TableDef {
    header: "[[claims]]",
    doc: "A two-sided statement about a metric",
    keys: &[&[
        Key::required("id", Kind::Text, "Unique name; with several variants the claims are `id/variant`"),
        Key::required("text", Kind::Text, "The statement in words"),
        Key::required("metric", Kind::Text, "Metric, or `window.metric`").formerly("figure"),
        Key::required("variant", Kind::TextList, "Variants that are judged, a claim each"),
        Key::optional("minus", Kind::Text, "Variant whose metric is subtracted"),
        Key::optional("over", Kind::Text, "Variant by whose metric is divided"),
        Key::optional("against-metric", Kind::Text, "Metric of the other side; absent: the same")
            .formerly("against-figure"),
        Key::optional(
            "against-point",
            Kind::Nested,
            "Value of the same sweep on the other side; absent: the same",
        ),
        Key::optional(
            "at",
            Kind::Nested,
            "One point: name of a sweep = value; without `at` and `sweep`: the base",
        ),
        Key::optional("sweep", Kind::Text, "Sweep of which every point must hold"),
        Key::optional("points", Kind::Nested, "Only these values of `sweep`"),
        Key::required("low", BAND, "Least value"),
        Key::required("high", BAND, "Largest value"),
        Key::new("paper", Kind::Text, "", "What the paper reports", HOUSE),
        Key::new("source", Kind::Text, "", "Figure, table or section of the paper", HOUSE),
        Key::optional("not-reproduced", Kind::Text, "Why the claim is known not to hold"),
        Key::new("quick", Kind::Bool, "true", "Judged in a quick run too", HOUSE),
    ]],
    selector: None,
    nested: &[("at", Shape::Point), ("against-point", Shape::Value), ("points", Shape::Values)],
};

/// `[[figures]]`.
pub(in crate::scenario) static FIGURE: TableDef = TableDef {
    header: "[[figures]]",
    doc: "A picture of the report",
    keys: &[&[
        Key::required("id", Kind::Text, "Unique name, also of the file"),
        Key::required("title", Kind::Text, "Caption"),
        Key::new("source", Kind::Text, "", "Figure or table of the paper", HOUSE),
        Key::required(
            "kind",
            FigureKind::KIND,
            "A metric over a sweep, a metric over time, or the cumulative distribution of a metric",
        ),
        Key::optional("variants", Kind::TextList, "Variants drawn, in order; absent: all"),
        Key::optional("references", Kind::Nested, "Curves from elsewhere"),
    ]],
    selector: Some(Selector {
        key: "kind",
        choices: &[
            (
                "sweep",
                &[
                    Key::required("sweep", Kind::Text, "Sweep on the x axis"),
                    Key::required("y", Kind::Text, "Metric on the y axis"),
                    Key::new("log-x", Kind::Bool, "false", "Logarithmic x axis", HOUSE),
                ],
            ),
            (
                "series",
                &[
                    Key::required("y", Kind::Choice(DRAWN), "Metric on the y axis, or a gauge of schemes"),
                    Key::new(
                        "entities",
                        Kind::TextList,
                        "all",
                        "`all`, or names as in `from` of measured flows, when there are several; of a gauge, nodes; a panel each",
                        HOUSE,
                    ),
                    Key::optional("sweep", Kind::Text, "A curve for each point of this sweep"),
                    Key::optional("at", Kind::Nested, "One point: name of a sweep = value; absent: the base"),
                    Key::optional(
                        "beside",
                        Kind::Choice(DRAWN),
                        "Another metric of the same entities, drawn once, in grey",
                    ),
                    Key::optional(
                        "trial",
                        Kind::Integer { min: 0, max: 99_999 },
                        "One trial, counted from 0; absent: the mean over all",
                    ),
                ],
            ),
            (
                "distribution",
                &[
                    Key::required("x", Kind::Choice(DISTRIBUTED), "Metric on the x axis"),
                    Key::new("log-x", Kind::Bool, "false", "Logarithmic x axis", HOUSE),
                ],
            ),
        ],
    }),
    nested: &[("references", Shape::Tables(&REFERENCE)), ("at", Shape::Point)],
};

/// `[[figures.references]]`.
pub(in crate::scenario) static REFERENCE: TableDef = TableDef {
    header: "[[figures.references]]",
    doc: "A curve that another source gives",
    keys: &[&[
        Key::required("label", Kind::Text, "Legend"),
        Key::required("x", Kind::Nested, "Positions"),
        Key::required("y", Kind::Nested, "Values, one per position"),
        Key::optional("low", Kind::Nested, "Lower ends of interval bars, one per position; with `high`"),
        Key::optional("high", Kind::Nested, "Upper ends of interval bars, one per position; with `low`"),
    ]],
    selector: None,
    nested: &[
        ("x", Shape::Numbers),
        ("y", Shape::Numbers),
        ("low", Shape::Numbers),
        ("high", Shape::Numbers),
    ],
};
