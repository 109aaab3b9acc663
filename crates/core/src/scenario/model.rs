//! The valid, complete description of an experiment.

use super::choices::{CdfOf, FlowRows, Pairing, ReceiveWindow, RecordDetail, Scheduler};
use super::listed::FlowList;
use super::tcp_settings::TcpSettings;
use crate::id::{NodeId, PortId};
use crate::outages::Outage;
use crate::rng::SpanDraw;
use crate::rng::Stream;
use crate::runtime::faults::ProbeFaults;
use crate::runtime::inventory::Change;
pub use crate::runtime::post::ControlPlane;
use crate::runtime::post::Post;
use crate::scheme::SchemeConfig;
use crate::sizes::SizeDistribution;
use crate::time::{Span, Time};
use crate::topology::Topology;
use crate::units::{Bytes, Rate};

/// One runnable experiment: a network, its traffic, the schemes in charge and what to measure.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct Scenario {
    /// Short name, also of the output folder.
    pub name: String,
    /// How long, how often, with which seed.
    pub run: RunPlan,
    /// The network.
    pub topology: Topology,
    /// Who sends what to whom.
    pub flows: Vec<FlowGroup>,
    /// Schemes that are switched on, in registry order.
    pub schemes: Vec<SchemeConfig>,
    /// How messages between roles of a scheme travel.
    pub control: ControlPlane,
    /// What goes wrong, and when.
    pub faults: Faults,
    /// What is recorded.
    pub measure: Measure,
}

/// What fails; the default is nothing.
#[derive(Clone, PartialEq, Debug, Default, serde::Serialize)]
pub struct Faults {
    /// Probability that a probe of a scheme is lost on its path, in addition to losses of the links.
    pub probe_loss: f64,
    /// What happens to the roles at nodes, by time.
    pub nodes: Vec<NodeFault>,
    /// Links and nodes that go down and up.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub outages: Vec<Outage>,
    /// From a change of the network until routes follow it, drawn for each change.
    #[serde(skip_serializing_if = "is_at_once")]
    pub reroute: SpanDraw,
}

fn is_at_once(reroute: &SpanDraw) -> bool {
    *reroute == SpanDraw::default()
}

/// Something happens to the roles at a node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, serde::Serialize)]
pub struct NodeFault {
    /// When.
    pub at: Time,
    /// Which.
    pub node: NodeId,
    /// What.
    pub change: Change,
}

impl Scenario {
    /// Messages of one trial, with nothing on its way; of a divided network those of one `part`.
    pub fn post(&self, trial: u32, part: Option<usize>) -> Post {
        Post::new(self.control.clone(), self.stream_of_part("control-plane", trial, part))
    }

    /// Losses of probes in one trial; of a divided network those of one `part`.
    pub fn probe_faults(&self, trial: u32, part: Option<usize>) -> ProbeFaults {
        let stream = self.stream_of_part("faults/probe-loss", trial, part);
        ProbeFaults::new(self.faults.probe_loss, stream)
    }

    fn stream_of_part(&self, name: &str, trial: u32, part: Option<usize>) -> Stream {
        let part = part.map_or(String::new(), |part| format!("/part-{part}"));
        Stream::new(self.run.seed, trial, &format!("{name}{part}"))
    }
}

/// Duration, warm-up, sampling, trials, seed.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct RunPlan {
    /// Simulated time.
    pub duration: Span,
    /// Time at the start that metrics leave out, except those of the whole run.
    pub warm_up: Span,
    /// Sampling interval of series and of the fairness index.
    pub sample: Span,
    /// Independent repetitions.
    pub trials: u32,
    /// Seed of every random stream.
    pub seed: u64,
    /// Parts of the network that are simulated at the same time; 1: the whole is one.
    #[serde(skip_serializing_if = "is_one")]
    pub partitions: u32,
}

fn is_one(partitions: &u32) -> bool {
    *partitions == 1
}

/// What is recorded and summarised.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Measure {
    /// Port (`from->to`) whose queue is the metric `queue`; none: the router port that most flows' data cross.
    pub queue: Option<String>,
    /// Detail of the recorded series.
    pub record: RecordDetail,
    /// Named parts of the run with metrics of their own (`window.metric`).
    pub windows: Vec<Window>,
    /// Interval of the long-term indices `jain_long` and `jain_normalised_long`; a multiple of the sampling interval.
    pub long_interval: Span,
    /// Gauges that are summed up, as (node, gauge).
    pub gauges: Vec<(String, String)>,
    /// An estimate that is compared with the bandwidth that is free.
    pub tracking: Option<Tracking>,
    /// Whether the distributions over flows, packets and links are recorded.
    pub distributions: bool,
    /// Whether arrivals at receivers are measured in addition to goodput.
    pub arrivals: bool,
    /// Detail of the rows of `flows.parquet`.
    pub flow_table: FlowRows,
    /// Whether series have percentiles of delays in each sampling interval.
    pub percentiles: bool,
    /// Ports, in addition to the measured one, whose times in the queue have percentiles.
    pub ports: Vec<PortId>,
}

/// An estimate to compare with the free bandwidth.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Tracking {
    /// Node whose role shows the gauge `estimate`.
    pub node: NodeId,
    /// Port whose free bandwidth it is: the rate less that of the background UDP flows, in frames.
    pub port: PortId,
    /// An estimate this near is right.
    pub within: Rate,
    /// Time to respond to a step: until then, only values beyond the new level are over- or undershoot.
    pub response: Span,
    /// Steps shorter than this are not judged.
    pub lasting: Span,
}

/// A named part of the run.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Window {
    /// Prefix of the metrics' names.
    pub name: String,
    /// Start.
    pub from: Time,
    /// End.
    pub to: Time,
    /// Name of the group or host whose flows count; none: those of all.
    pub of: Option<String>,
}

/// Flows of one kind between two sets of hosts.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct FlowGroup {
    /// Name in reports.
    pub name: String,
    /// Names of groups or hosts that send.
    pub from: Vec<String>,
    /// Names of groups or hosts that receive.
    pub to: Vec<String>,
    /// Who sends to whom.
    pub pairing: Pairing,
    /// Flows per pair.
    pub count: u32,
    /// When each flow starts.
    pub start: SpanDraw,
    /// All flows of a sender start at one drawn time.
    pub starts_together: bool,
    /// When each flow stops sending; none: at the end of the run.
    pub stop: Option<Time>,
    /// Stops and restarts of parts of the group.
    pub timeline: Vec<TimelineStep>,
    /// On and off times; none: always on.
    pub on_off: Option<OnOff>,
    /// TCP or UDP, and how much.
    pub transport: Transport,
    /// What each flow must receive.
    pub need: Option<Need>,
    /// Differentiated services code point (RFC 2474), both directions.
    pub dscp: u8,
    /// Routers that the ways lead over: flow or subflow i of a pair takes path i modulo their number. Empty: shortest ways.
    pub paths: Vec<Vec<NodeId>>,
    /// Incast: every sender sends its size so many times; none: once.
    pub rounds: Option<u32>,
    /// Sizes that are drawn for each flow; with it the size of the transport is their mean.
    pub size_cdf: Option<SizeDistribution>,
    /// Flows that a file lists one by one; with it the size of the transport is their mean.
    pub list: Option<FlowList>,
    /// Flows that arrive one after the other; none: all of `count`.
    pub arrivals: Option<Arrivals>,
    /// Rounds go over the connections of the first.
    pub persistent: bool,
    /// At its stop a flow breaks off with a RST.
    pub reset: bool,
    /// Rounds of messages among all hosts; with it the size of the transport is that of the first round.
    pub exchange: Option<Exchange>,
    /// Multipath TCP; none: plain.
    pub multipath: Option<Multipath>,
    /// Whether the flows count in fairness and throughput (background traffic does not).
    pub measured: bool,
}

/// Every sender's new flows, from `start` to `stop`. With every receiver for every sender, each flow draws one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Arrivals {
    /// Time between a sender's flows.
    pub interval: SpanDraw,
}

/// A rate that flows must receive.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Need {
    /// The rate, of IP packets.
    pub rate: Rate,
    /// It is a mean over so long.
    pub over: Span,
}

/// Multipath TCP (RFC 8684).
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Multipath {
    /// Subflows of a connection.
    pub subflows: u32,
    /// Which subflow with room gets the next data.
    pub scheduler: Scheduler,
    /// What the window in an acknowledgement bounds.
    pub receive_window: ReceiveWindow,
    /// Subflows take different shortest paths; otherwise a hash chooses for each.
    pub distinct_paths: bool,
}

/// Rounds in which every host sends a message to every other (MPI_Alltoall), over new connections or over one for each pair.
/// A round begins when every message of the one before is acknowledged.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct Exchange {
    /// Size of a message, by round in turn.
    pub sizes: Vec<Bytes>,
    /// Rounds per size.
    pub rounds: u32,
    /// When a host sends what.
    pub schedule: Schedule,
    /// From the barrier to a host's next round.
    pub compute: SpanDraw,
}

impl FlowGroup {
    /// Each flow has a size of its own.
    pub fn has_sizes(&self) -> bool {
        self.size_cdf.is_some() || self.list.is_some()
    }

    /// Flow numbers of a pair, without subflows; of an exchange, of a host or, when connections are kept, of a pair.
    pub fn each(&self) -> u32 {
        match &self.exchange {
            Some(_) if self.persistent => 1,
            Some(exchange) => exchange.outstanding(),
            None => self.count,
        }
    }
}

impl Exchange {
    /// Messages that a host has under way at once, at most.
    pub fn outstanding(&self) -> u32 {
        match self.schedule {
            Schedule::Pairwise => 1,
            Schedule::Window(outstanding) => outstanding,
        }
    }
}

/// In which order a host of an exchange sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Schedule {
    /// Step i: to host r + i, until that is acknowledged and the message of host r - i has come.
    Pairwise,
    /// To r + 1, r + 2, ... with so many messages unacknowledged.
    Window(u32),
}

/// Part of a timeline. `stop` ends flows that run, lowest number first; `start` restarts, as new connections, those
/// that stopped longest ago. Shares are of the members that each `from` name contributes; the sum of the shares so
/// far is rounded down to whole flows.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct TimelineStep {
    /// When.
    pub at: Time,
    /// Share of the flows that stop.
    pub stop: f64,
    /// Share of the flows that start again.
    pub start: f64,
}

/// On and off times; every one is a new draw.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct OnOff {
    /// Sending for so long.
    pub on: SpanDraw,
    /// Silent for so long.
    pub off: SpanDraw,
}

/// The transport of a flow.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
#[serde(rename_all = "lowercase", tag = "kind")]
pub enum Transport {
    /// A TCP connection.
    Tcp {
        /// Bytes to send; none: without end.
        size: Option<Bytes>,
        /// Settings of both ends.
        settings: TcpSettings,
    },
    /// Constant bit rate over UDP.
    Udp {
        /// Rate, counted in IP packets.
        rate: Rate,
        /// Size of an IP packet.
        packet: Bytes,
        /// Most that a packet leaves after its turn, as a share of the packet interval; from 0 to 1.
        jitter: f64,
    },
}

/// A file's worth of experiments.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct Study {
    /// Short name.
    pub name: String,
    /// One line for people.
    pub title: String,
    /// A paragraph for people.
    pub description: String,
    /// Variants in file order; at least one (`base` when the file names none).
    pub variants: Vec<Variant>,
    /// Sweeps in file order.
    pub sweeps: Vec<Sweep>,
    /// Results that must hold.
    pub claims: Vec<Claim>,
    /// Pictures of the report.
    pub figures: Vec<Figure>,
    /// Every scenario to run: the base point per variant, and every point of every sweep.
    pub cases: Vec<Case>,
    /// A quick look, which may leave claims undecided.
    pub quick: bool,
}

/// A named set of overrides.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct Variant {
    /// Short name.
    pub name: String,
    /// Name for people.
    pub title: String,
    /// What the paper reports of it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub paper: Vec<PaperValue>,
}

/// A metric as a paper reports it.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct PaperValue {
    /// Metric, or `window.metric`.
    pub metric: String,
    /// Its value, in the metric's unit.
    pub value: f64,
}

/// Values of one key, or all combinations of the values of several.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Sweep {
    /// Short name.
    pub name: String,
    /// Axis label.
    pub title: String,
    /// Dotted path of the key; of a grid, its keys with commas.
    pub key: String,
    /// Values as written; of a grid, its points as `name=value, name=value`, the last key's values first.
    pub values: Vec<String>,
    /// Keys of a grid; empty: a sweep of one key.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub grid: Vec<Axis>,
    /// Names of the variants that are swept; the others have their base point only.
    pub variants: Vec<String>,
}

/// One key of a grid.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Axis {
    /// Short name.
    pub name: String,
    /// Axis label.
    pub title: String,
    /// Dotted path of the key.
    pub key: String,
    /// Values as written.
    pub values: Vec<String>,
}

impl Sweep {
    /// Its keys, by name, with their values: one, or those of its grid.
    pub fn axes(&self) -> Vec<(&str, &[String])> {
        match self.grid.as_slice() {
            [] => vec![(&self.name, &self.values)],
            grid => grid.iter().map(|axis| (axis.name.as_str(), axis.values.as_slice())).collect(),
        }
    }

    /// The values of its keys at `point`, which is one of its values.
    pub fn coordinates(&self, point: &str) -> Vec<&str> {
        let Some(mut place) = self.values.iter().position(|value| value == point) else { return Vec::new() };
        let mut coordinates = Vec::new();
        for (_, values) in self.axes().into_iter().rev() {
            coordinates.push(values[place % values.len()].as_str());
            place /= values.len();
        }
        coordinates.reverse();
        coordinates
    }
}

/// One scenario of a study.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct Case {
    /// Name of the variant.
    pub variant: String,
    /// Points that this case stands for: (sweep, value). Empty: the base point only. The base point of a sweep (the
    /// value that the file itself gives to the key) is one case together with the base point of the variant.
    pub points: Vec<(String, String)>,
    /// True when this is the variant's base point.
    pub base: bool,
    /// What to run.
    pub scenario: Scenario,
}

/// A two-sided statement about a metric.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct Claim {
    /// Unique in the file.
    pub id: String,
    /// The statement in words.
    pub text: String,
    /// Metric, e.g. `jain` or `burst.throughput`.
    pub metric: String,
    /// Variant that is judged.
    pub variant: String,
    /// Subtract or divide by the same metric elsewhere.
    pub against: Option<Against>,
    /// Where: base point, one point, or every point of a sweep.
    pub at: ClaimAt,
    /// Least value; none: no such edge.
    pub low: Option<f64>,
    /// Largest value; none: no such edge.
    pub high: Option<f64>,
    /// Why the edges stand where they do.
    pub because: String,
    /// What the paper reports, as text.
    pub paper: String,
    /// Figure, table or section of the paper.
    pub source: String,
    /// Why the claim is known not to be reproduced, when it is not.
    pub not_reproduced: Option<String>,
}

/// The other side of a comparing claim.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct Against {
    /// Difference or ratio.
    pub relation: Relation,
    /// Variant; none: the judged one.
    pub variant: Option<String>,
    /// Point (sweep, value); none: the same point (or that variant's base when it is not swept).
    pub point: Option<(String, String)>,
    /// Metric; none: the judged one.
    pub metric: Option<String>,
}

/// Difference or ratio.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Relation {
    /// Judged minus other.
    Minus,
    /// Judged over other.
    Over,
}

/// Where a claim looks.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ClaimAt {
    /// The variant's base point.
    Base,
    /// One point of a sweep.
    Point(String, String),
    /// Each point of a sweep; the value farthest out is reported.
    Every(String),
    /// Stated points of a sweep; the value farthest out is reported.
    Points(String, Vec<String>),
}

/// A picture of the report.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct Figure {
    /// Unique in the file.
    pub id: String,
    /// Caption.
    pub title: String,
    /// Figure or table of the paper.
    pub source: String,
    /// What is drawn.
    pub content: FigureContent,
    /// Variants drawn, in order.
    pub variants: Vec<String>,
    /// Curves from elsewhere (a paper, ns-3).
    pub references: Vec<ReferenceCurve>,
}

/// What a figure draws.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum FigureContent {
    /// A metric over the values of a sweep, mean and 95 % interval per variant.
    Sweep {
        /// Sweep on the x axis.
        sweep: String,
        /// Metric on the y axis.
        y: String,
        /// Of a grid, the key on the x axis; the others have a curve for each combination of their values.
        #[serde(skip_serializing_if = "Option::is_none")]
        x: Option<String>,
        /// Logarithmic x axis.
        log_x: bool,
    },
    /// A recorded metric over time, mean over the trials.
    Series {
        /// Metrics of one unit, or a gauge; a panel each.
        y: Vec<String>,
        /// `all`, or names of groups, or of nodes for a gauge; a panel each. For `queue`: ignored.
        entities: Vec<String>,
        /// A curve for each point of this sweep; none: base point (or `at`).
        sweep: Option<String>,
        /// One point of a sweep instead of the base.
        at: Option<(String, String)>,
        /// Another metric of the same entities, drawn once, in grey.
        beside: Option<String>,
        /// One trial instead of the mean over all.
        trial: Option<u32>,
        /// Each value is the mean over so long up to it.
        average: Option<Span>,
    },
    /// Cumulative distribution of a metric, over all trials.
    Distribution {
        /// Metric.
        x: String,
        /// Logarithmic x axis.
        log_x: bool,
    },
    /// Cumulative distribution of a value of flows, or of a metric over trials.
    Cdf {
        /// What is counted.
        of: CdfOf,
        /// One of [`FLOW_VALUES`], or a metric.
        x: String,
        /// The only flow group that counts.
        group: Option<String>,
        /// Which cases.
        cases: FigureCases,
        /// Logarithmic x axis.
        log_x: bool,
    },
    /// A metric over trials: median, quartiles and extremes for each case.
    Box {
        /// Metric.
        y: String,
        /// Which cases.
        cases: FigureCases,
    },
    /// Metrics side by side, such as those of flow groups: mean and 95 % interval.
    Bars {
        /// Metrics.
        metrics: Vec<String>,
        /// Which cases.
        cases: FigureCases,
    },
    /// A metric over both keys of a grid, a panel for each variant.
    Heatmap {
        /// The grid.
        sweep: String,
        /// Metric.
        z: String,
    },
    /// Median and 99th percentile of the slowdown of flows, by their size.
    Slowdown {
        /// The only flow group that counts.
        group: Option<String>,
        /// Sizes are parted so that each of so many bins has as many flows.
        bins: u32,
        /// Which cases.
        cases: FigureCases,
    },
}

/// Values of flows that figures draw: name, label, and whether they need `flow-table = "rtt"`.
pub const FLOW_VALUES: [(&str, &str, bool); 7] = [
    ("fct", "Flow completion time (s)", false),
    ("slowdown", "Slowdown of flows", false),
    ("rtt_min", "Least round-trip time of a flow (ms)", true),
    ("rtt_mean", "Mean round-trip time of a flow (ms)", true),
    ("rtt_p50", "Median round-trip time of a flow (ms)", true),
    ("rtt_p95", "Round-trip time of a flow, 95th percentile (ms)", true),
    ("rtt_p99", "Round-trip time of a flow, 99th percentile (ms)", true),
];

/// Which cases of its variants a figure draws: the base point, unless it says more.
#[derive(Clone, PartialEq, Eq, Debug, Default, serde::Serialize)]
pub struct FigureCases {
    /// Each point of this sweep.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sweep: Option<String>,
    /// This point of a sweep.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<(String, String)>,
}

impl FigureContent {
    /// The sweep that it is about.
    pub fn sweep(&self) -> Option<&str> {
        fn at_sweep(at: &Option<(String, String)>) -> Option<&str> {
            at.as_ref().map(|(sweep, _)| sweep.as_str())
        }
        match self {
            Self::Sweep { sweep, .. } | Self::Heatmap { sweep, .. } => Some(sweep),
            Self::Series { sweep, at, .. } => sweep.as_deref().or_else(|| at_sweep(at)),
            Self::Distribution { .. } => None,
            Self::Cdf { cases, .. }
            | Self::Box { cases, .. }
            | Self::Bars { cases, .. }
            | Self::Slowdown { cases, .. } => cases.sweep.as_deref().or_else(|| at_sweep(&cases.at)),
        }
    }

    /// True when it draws values of single flows.
    pub fn needs_flows(&self) -> bool {
        matches!(self, Self::Slowdown { .. } | Self::Cdf { of: CdfOf::Flows, .. })
    }
}

/// A curve that another source gives.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct ReferenceCurve {
    /// Legend.
    pub label: String,
    /// Positions.
    pub x: Vec<f64>,
    /// Values.
    pub y: Vec<f64>,
    /// Lower ends of the interval bars; empty: none.
    pub low: Vec<f64>,
    /// Upper ends of the interval bars; empty: none.
    pub high: Vec<f64>,
}
