//! Every number that results give: its name, unit, label for people, decimals and meaning, and where it occurs.
//!
//! Scenario files, reports, `list` and the reference tables take all of that from here.

use Place::{
    Arrivals, Distribution, Faults, FlowSeries, Gauge, Group, RoundTrips, Series, Shown, Spread, Summary,
    Tracking,
};
use Unit::{Count, In, Index, Named, OfGauge};

/// A number that results give.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Metric {
    /// Name in files and columns.
    pub name: &'static str,
    /// Unit.
    pub unit: Unit,
    /// Name for people, in the head of a column.
    pub short: &'static str,
    /// Name for people, at an axis.
    pub long: &'static str,
    /// Decimal places of its values for people.
    pub decimals: u8,
    /// Where it occurs.
    pub places: &'static [Place],
    /// Meaning.
    pub doc: &'static str,
}

/// What the values of a metric are counted in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// An index from 0 to 1.
    Index,
    /// Nothing but the number of what the label names.
    Count,
    /// This unit.
    In(&'static str),
    /// This unit, which the label names too.
    Named(&'static str),
    /// That of the gauge which it sums up.
    OfGauge,
}

/// Where a metric occurs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// In the summary of a run, and of each window as `window.metric`.
    Summary,
    /// The same, of a group of flows that need a rate, as `group.metric`.
    Group,
    /// The same, of runs with `measure.distributions`.
    Spread,
    /// The same, of runs with `measure.arrivals`.
    Arrivals,
    /// In the summary of a run with `[[faults.links]]` or `[[faults.nodes]]`.
    Faults,
    /// The same, of runs with `measure.flow-table = "rtt"`, and of each flow group as `group.metric`.
    RoundTrips,
    /// The same, of runs with `[measure.tracking]`: how well an estimate of the free bandwidth tracks it. A step is a
    /// change of the free bandwidth after the warm-up; it lasts until the next, or the end of the run.
    Tracking,
    /// The same, of a gauge in `measure.gauges`, as `node.gauge.metric`.
    Gauge,
    /// In series of groups of flows, of ports and of the tracked node.
    Series,
    /// In series of single flows only.
    FlowSeries,
    /// In series of the node of a role that shows it ([`Gauges`](crate::control::Gauges)), at the end of the interval.
    Shown,
    /// As a distribution, of runs with `measure.distributions`.
    Distribution,
}

impl Unit {
    /// The unit in tables of programs; empty for indices and counts.
    pub const fn word(self) -> &'static str {
        match self {
            Self::In(word) | Self::Named(word) => word,
            Self::Index | Self::Count | Self::OfGauge => "",
        }
    }

    /// The unit after a label; empty where the label says enough.
    pub fn beside_label(self) -> &'static str {
        match self {
            Self::In("pkt") => "packets",
            Self::In(word) => word,
            Self::Index | Self::Count | Self::Named(_) | Self::OfGauge => "",
        }
    }
}

impl Metric {
    const fn is_at(&self, wanted: &[Place]) -> bool {
        let mut own = 0;
        while own < self.places.len() {
            let mut other = 0;
            while other < wanted.len() {
                if self.places[own] as u8 == wanted[other] as u8 {
                    return true;
                }
                other += 1;
            }
            own += 1;
        }
        false
    }
}

/// Where the summary of any run may have metrics by their bare names.
pub const SUMMARY: &[Place] = &[Summary, Arrivals, Faults, Group, Spread, RoundTrips];

/// Where series have metrics, in the order of the columns of `series.parquet`.
pub const SERIES: &[Place] = &[Series, FlowSeries, Shown];

/// Metrics that figures draw over time.
pub static DRAWN: &[&str] = &names::<{ count(&[Series, Shown]) }>(&[Series, Shown]);

/// Metrics whose distribution figures draw.
pub static DISTRIBUTED: &[&str] = &names::<{ count(&[Distribution]) }>(&[Distribution]);

/// The metrics at any of these places, in the order of the registry.
pub fn at(places: &[Place]) -> impl Iterator<Item = &'static Metric> + Clone {
    METRICS.iter().filter(|metric| metric.is_at(places))
}

/// The metric of this bare name.
pub fn find(name: &str) -> Option<&'static Metric> {
    METRICS.iter().find(|metric| metric.name == name)
}

/// The metric of this bare name if it occurs at any of these places.
pub fn find_at(places: &[Place], name: &str) -> Option<&'static Metric> {
    find(name).filter(|metric| metric.is_at(places))
}

/// The metric of a summary called `name`, and the window or group that it is limited to, if any: `burst.throughput` is
/// `throughput` in the window `burst`.
pub fn summarised(name: &str) -> Option<(Option<&str>, &'static Metric)> {
    let (window, metric) = match name.rsplit_once('.') {
        Some((window, metric)) => (Some(window), metric),
        None => (None, name),
    };
    let places = [Summary, Arrivals, Faults, Group, Spread, RoundTrips, Tracking];
    find_at(&places, metric).map(|metric| (window, metric))
}

/// The parts of a metric of a gauge, `node.gauge.metric`: the node, the gauge and what is summed up of it.
pub fn of_gauge(name: &str) -> Option<(&str, &'static Metric, &'static Metric)> {
    let (gauge, metric) = name.rsplit_once('.')?;
    let (node, gauge) = gauge.rsplit_once('.')?;
    Some((node, find_at(&[Shown], gauge)?, find_at(&[Gauge], metric)?))
}

/// How a metric is called.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Label {
    /// For the head of a column.
    pub short: String,
    /// For an axis.
    pub long: String,
    /// Unit; empty for indices and counts.
    pub unit: &'static str,
}

/// The label of a metric, also of one limited to a window or summed up of a gauge.
pub fn label(name: &str) -> Label {
    if let Some((node, gauge, sum)) = of_gauge(name) {
        let unit = if sum.unit == OfGauge { gauge.unit } else { sum.unit };
        return Label {
            short: format!("{node} {}, {}", gauge.short, sum.short),
            long: format!("{} at {node}, {}", gauge.long, sum.long),
            unit: unit.beside_label(),
        };
    }
    let found = summarised(name).or_else(|| Some((None, find(name)?)));
    let Some((window, metric)) = found else {
        return Label { short: name.to_owned(), long: name.to_owned(), unit: "" };
    };
    let window = window.map(|window| format!(", {window}")).unwrap_or_default();
    Label {
        short: format!("{}{window}", metric.short),
        long: format!("{}{window}", metric.long),
        unit: metric.unit.beside_label(),
    }
}

impl Label {
    /// Text of an axis: name and unit.
    pub fn axis(&self) -> String {
        if self.unit.is_empty() { self.long.clone() } else { format!("{} ({})", self.long, self.unit) }
    }

    /// Text of a column's head: short name and unit.
    pub fn column(&self) -> String {
        if self.unit.is_empty() { self.short.clone() } else { format!("{} ({})", self.short, self.unit) }
    }
}

/// The values that a metric of a summary can take: an index and a share have two ends, all others begin at zero, but for
/// what a gauge has left over.
pub fn range(name: &str) -> [f64; 2] {
    let of_unit = |unit| match unit {
        Index => [0.0, 1.0],
        In("%") => [0.0, 100.0],
        Count | In(_) | Named(_) | OfGauge => [0.0, f64::INFINITY],
    };
    match (of_gauge(name), summarised(name)) {
        (Some((_, gauge, sum)), _) if sum.unit == OfGauge && gauge.name == "spare" => {
            [f64::NEG_INFINITY, f64::INFINITY]
        }
        (Some((_, gauge, sum)), _) => of_unit(if sum.unit == OfGauge { gauge.unit } else { sum.unit }),
        (None, Some((_, metric))) => of_unit(metric.unit),
        (None, None) => [f64::NEG_INFINITY, f64::INFINITY],
    }
}

const fn count(places: &[Place]) -> usize {
    let (mut at, mut count) = (0, 0);
    while at < METRICS.len() {
        count += METRICS[at].is_at(places) as usize;
        at += 1;
    }
    count
}

const fn names<const N: usize>(places: &[Place]) -> [&'static str; N] {
    let mut names = [""; N];
    let (mut at, mut count) = (0, 0);
    while at < METRICS.len() {
        if METRICS[at].is_at(places) {
            names[count] = METRICS[at].name;
            count += 1;
        }
        at += 1;
    }
    names
}

/// A block for each list of places: name, unit, decimals, label in a column, label at an axis, meaning.
macro_rules! metrics {
    ($($places:tt { $($name:literal, $unit:expr, $decimals:literal, $short:literal, $long:literal: $doc:literal;)* })*) => {
        /// All of them. Series come in the order of the columns of `series.parquet`.
        pub static METRICS: &[Metric] = &[$($(Metric {
            name: $name, unit: $unit, short: $short, long: $long, decimals: $decimals, places: &$places, doc: $doc,
        },)*)*];
    };
}

metrics! {
    [Summary, Series] {
        "throughput", In("Mbit/s"), 2, "throughput", "Throughput":
            "Goodput (in-order TCP payload): of all measured flows together; in series, of the entity in the \
             interval";
        "jain", Index, 3, "Jain", "Jain’s index":
            "Jain's index of per-flow goodput in a sampling interval; in summaries, the mean over the intervals";
        "jain_normalised", Index, 3, "norm. Jain", "Normalised Jain’s index":
            "Jain's index of goodput over the max-min fair goodput in a sampling interval; in summaries, the mean \
             over the intervals";
        "queue", In("pkt"), 1, "queue", "Mean queue":
            "Time average of the measured port's queue; in series, over the interval";
    }
    [Summary] {
        "jain_long", Index, 3, "Jain, long", "Jain’s index, long interval": "As jain, over the long interval";
        "jain_normalised_long", Index, 3, "norm. Jain, long", "Normalised Jain’s index, long interval":
            "As jain_normalised, over the long interval";
        "queue_max", In("pkt"), 1, "queue max", "Largest queue": "Largest queue of the measured port";
        "link_use", In("%"), 1, "link use", "Use of the measured link":
            "Frames that began transmission at the measured port, as a share of what its link could carry";
        "drops", Named("pkt"), 1, "drops", "Dropped packets": "Packets dropped by queues, whole run";
        "marks", Named("pkt"), 1, "marks", "Marked packets": "Packets marked by queues (ECN), whole run";
        "rtos", Count, 1, "RTOs", "Retransmission timeouts": "Retransmission timeouts, whole run";
        "retransmits", Named("pkt"), 1, "retransmits", "Retransmitted segments": "Segments sent again, whole run";
        "throughput_least", In("Mbit/s"), 1, "least throughput", "Least throughput of a long interval":
            "Least total goodput of the measured flows over one long interval";
        "completed", Count, 1, "completed", "Completed flows": "Flows of limited size that completed, whole run";
        "unfinished", Count, 1, "unfinished", "Unfinished flows":
            "Flows of limited size that started and did not complete, whole run";
        "fct_mean", In("s"), 3, "FCT mean", "Mean flow completion time":
            "Mean completion time of flows of limited size, whole run";
        "fct_p99", In("s"), 3, "FCT p99", "Flow completion time, 99th percentile":
            "99th percentile of the completion time";
        "fct_p50", In("s"), 3, "FCT median", "Median flow completion time": "Median of the completion time";
        "fct_p80", In("s"), 3, "FCT p80", "Flow completion time, 80th percentile":
            "80th percentile of the completion time";
        "fct_max", In("s"), 3, "FCT max", "Longest flow completion time": "Longest completion time";
        "rounds", Count, 1, "rounds", "Complete incast rounds": "Rounds of incast or of an exchange that completed";
        "round_time_mean", In("s"), 1, "round, mean", "Time of an incast round, mean":
            "Mean time from a round's begin to its last byte";
        "round_time_max", In("s"), 1, "round, longest", "Time of an incast round, longest": "Longest time of a round";
        "round_goodput", In("Mbit/s"), 1, "goodput", "Goodput of incast rounds":
            "Payload of the complete rounds over the time that they took, per receiver";
        "control_rate", In("kbit/s"), 1, "control", "Rate of control messages":
            "Rate of the scheme's messages between nodes";
        "refusals", Count, 1, "refusals", "Refused requests of schemes":
            "Requests of schemes that the network or its hosts refused";
    }
    [Faults] {
        "fault_losses", Named("pkt"), 1, "lost to faults", "Packets lost to faults":
            "Packets that waited for a link or were on it when it went down, or were sent to it while it was down, whole run";
        "outage", In("s"), 2, "outage", "Time that links were down": "Time that links were down, summed over all links";
        "reroutes", Count, 1, "reroutes", "Changes of routes":
            "How often routes were computed again because links went down or came up";
    }
    [Group] {
        "shortage", In("%"), 1, "shortage", "Time short of what is needed":
            "`NAME.shortage`: share of the time in which a flow of group NAME receives less than it needs";
        "shortage_limit", In("%"), 1, "shortage, limit", "Time short of what is needed, at best":
            "`NAME.shortage_limit`: share of the time in which the measured port cannot carry the UDP \
             traffic that is not measured and the needs of group NAME and the groups listed before it";
    }
    [Spread] {
        "fct_own_p99", In("s"), 3, "FCT p99, own TCP", "Flow completion time with own settings, 99th percentile":
            "As fct_p99, of flows that began with their host's own TCP settings";
        "fct_tuned_p99", In("s"), 3, "FCT p99, tuned TCP", "Flow completion time with changed settings, 99th percentile":
            "As fct_p99, of flows that began with TCP settings that a scheme had changed";
        "undropped", In("%"), 1, "without a drop", "Flows without a drop":
            "Share of the completed flows of limited size of which no queue dropped a packet";
        "flow_drops_p99", In("%"), 1, "flow drops p99", "Drop rate of flows, 99th percentile":
            "99th percentile over these flows of the share of their packets that queues dropped";
        "drops_per_flow", Named("pkt"), 2, "drops per flow", "Dropped packets per flow":
            "Mean over these flows of the number of their packets that queues dropped; of a multipath connection, over \
             all its subflows";
        "delay_mean", In("ms"), 3, "delay mean", "Mean delay of packets":
            "Mean over the TCP data packets that arrive of the time from their sender's TCP to their receiver";
        "delay_p99", In("ms"), 3, "delay p99", "Delay of packets, 99th percentile": "As delay_mean, 99th percentile";
        "delay_flow_max", In("ms"), 3, "delay, worst flow", "Mean delay of packets, worst flow":
            "As delay_mean of the packets of one flow or subflow, the largest";
        "window_to_5", In("%"), 1, "windows up to 5", "Packets sent with a window up to five segments":
            "Share of the data packets that leave while the congestion window is at most five segments";
        "utilization_p80", In("%"), 1, "utilization p80", "Use of links, 80th percentile":
            "80th percentile over router ports and sampling intervals of the part of the capacity that is used";
        "sojourn_p5", In("ms"), 2, "sojourn p5", "Time in the queue, 5th percentile":
            "5th percentile over the packets that leave the measured port's queue of the time from their arrival \
             there to the begin of their transmission";
    }
    [Spread, Series] {
        "sojourn_p50", In("ms"), 2, "sojourn median", "Median time in the queue":
            "As sojourn_p5, the median; in series with `measure.percentiles`, of the packets that leave in the interval, \
             of the entity";
        "sojourn_p95", In("ms"), 2, "sojourn p95", "Time in the queue, 95th percentile":
            "As sojourn_p5, 95th percentile";
        "sojourn_p99", In("ms"), 2, "sojourn p99", "Time in the queue, 99th percentile":
            "As sojourn_p5, 99th percentile";
    }
    [Tracking] {
        "steps", Count, 1, "steps", "Steps judged": "Steps that are judged";
        "follow", In("s"), 1, "follow", "Time to follow a step, mean":
            "Time from a step until the estimate reaches the new level or comes within the stated distance, \
             at most half the step; the whole step if it never does; mean over the steps";
        "follow_max", In("s"), 1, "follow, longest", "Time to follow a step, longest": "As follow, the longest";
        "settle", In("s"), 1, "settle", "Time to settle after a step, mean":
            "Time from a step until the estimate stays within the stated distance to the end of the step; mean";
        "settle_max", In("s"), 1, "settle, longest", "Time to settle after a step, longest": "As settle, the longest";
        "overshoot", In("kbit/s"), 1, "overshoot", "Overshoot of the estimate":
            "Most that the estimate is above the free bandwidth: after a step up from the beginning, after a step \
             down from the time on that it has to respond";
        "undershoot", In("kbit/s"), 1, "undershoot", "Undershoot of the estimate":
            "Most that the estimate is below the free bandwidth: after a step down from the beginning, after a \
             step up from the time on that it has to respond";
        "error", In("kbit/s"), 1, "error", "Error of the estimate, mean":
            "Distance of the estimate from the free bandwidth, mean over the time after the warm-up";
    }
    [Gauge] {
        "min", OfGauge, 1, "least", "least": "Least value after the warm-up";
        "max", OfGauge, 1, "most", "most": "Largest value after the warm-up";
        "mean", OfGauge, 1, "mean", "mean": "Mean over the time after the warm-up in which it has a value";
        "last", OfGauge, 1, "at the end", "at the end": "Value at the end";
        "still", In("s"), 1, "still", "longest time without change": "Longest time without a change of the value";
    }
    [Series] {
        "flows", Count, 1, "flows", "Flows": "Measured flows that existed through the interval";
    }
    [RoundTrips] {
        "rtt_min", In("ms"), 3, "RTT min", "Least round-trip time":
            "Least round-trip time that senders of the measured flows measured, handshakes included, whole run; as `NAME.rtt_min` of \
             flow group NAME";
        "rtt_mean", In("ms"), 3, "RTT mean", "Mean round-trip time": "As rtt_min, the mean";
    }
    [RoundTrips, Series] {
        "rtt_p50", In("ms"), 3, "RTT median", "Median round-trip time":
            "As rtt_min, the median, within 0.8 %, or `rtt_error` of the rows where times span much (docs/data.md); in \
             series with `measure.percentiles`, of the interval and the entity";
        "rtt_p95", In("ms"), 3, "RTT p95", "Round-trip time, 95th percentile": "As rtt_p50, 95th percentile";
        "rtt_p99", In("ms"), 3, "RTT p99", "Round-trip time, 99th percentile": "As rtt_p50, 99th percentile";
    }
    [Series] {
        "queueing_p50", In("ms"), 3, "queueing median", "Median queueing delay":
            "Median, over the data packets that arrive in the interval, of the time in transit beyond \
             propagation and transmission, within 0.8 % as rtt_p50; with `measure.percentiles`";
        "queueing_p95", In("ms"), 3, "queueing p95", "Queueing delay, 95th percentile":
            "As queueing_p50, 95th percentile";
        "queueing_p99", In("ms"), 3, "queueing p99", "Queueing delay, 99th percentile":
            "As queueing_p50, 99th percentile";
    }
    [Arrivals, Series] {
        "arrivals", In("Mbit/s"), 3, "arrivals", "Arrivals at receivers":
            "IP packets of the measured flows that arrive at their receivers, headers included, in order or not, for \
             the first time or again; in series, of the entity in the interval";
    }
    [FlowSeries] {
        "cwnd", In("B"), 1, "cwnd", "Congestion window": "Congestion window at the end of the interval";
        "srtt", In("ms"), 1, "SRTT", "Smoothed round-trip time":
            "Smoothed round-trip time at the end of the interval";
    }
    [Series] {
        "free", In("Mbit/s"), 1, "free", "Free bandwidth":
            "Rate of the tracked port less its background UDP, in frames, at the end of the interval";
    }
    [Shown] {
        "estimate", In("Mbit/s"), 1, "estimate", "Estimated bandwidth": "W: bandwidth estimated to be free";
        "step", In("Mbit/s"), 1, "step", "Next step of the estimate": "D: next increase of the estimate";
        "received", In("Mbit/s"), 1, "received", "Received rate": "R: rate received in the last round";
        "loss", In("pkt"), 1, "loss", "Packets lost in a round": "L: packets lost in the last round";
        "lost", In("pkt"), 1, "lost", "Lost packets": "Sum of L since the role began";
        "updates", Count, 1, "updates", "Updates of the estimate":
            "Rounds that brought an answer, since the role began";
        "classes", In("Mbit/s"), 1, "classes", "Rates of all classes":
            "Sum of the rates promised to the classes of the shaper";
        "tuned", Index, 1, "tuned", "Host tuned by a CUE":
            "OpenTCP, agent: 1 while a CUE changes the TCP of its host, else 0";
        "cued", In("hosts"), 1, "cued", "Hosts with a CUE":
            "OpenTCP, Oracle: hosts that got a CUE with a lease in the last cycle";
        "firing", Count, 1, "firing", "Rules that fire":
            "OpenTCP, Oracle: rules that fired in the last cycle, as the sum of 2^n for the n-th of all rules, from 0";
        "coverage", Index, 1, "coverage", "Share of nodes heard of":
            "OpenTCP, Oracle: share of nodes heard of in the last two cycles";
        "spare", In("Mbit/s"), 1, "spare", "Estimate less the rates of all classes": "The estimate less `classes`";
        "silent", Index, 1, "silent", "Silence of the other gateway":
            "1 while the other gateway is silent and the safe rate is in force, else 0";
        "mismatch", Count, 1, "mismatch", "Why counts cannot match":
            "0 while the counts of both gateways can match; else the safe rate is in force, and the number of the cause: 1 nothing \
             is counted, 2 what is counted was not sent, 3 more is counted than sent, 4 packets are merged, 5 sizes differ, 6 a \
             share is not counted";
        "messages", Count, 1, "messages", "Messages between the gateways":
            "eR2BC, estimator robust: questions and watches sent and reports received since the role began";
        "noise", Index, 4, "noise", "The path's own share of lost packets":
            "eR2BC, estimator robust: p0, the share of packets that the path loses without a queue";
    }
    [Distribution] {
        "fct", In("s"), 3, "FCT", "Flow completion time":
            "Completion times of the flows of limited size that completed";
        "flow_drops", In("%"), 1, "flow drops", "Drop rate of a flow":
            "Share of a flow's packets that queues dropped, over these flows";
        "window", In("segments"), 1, "window", "Congestion window of a packet":
            "Congestion window when a data packet leaves, over the packets";
        "utilization", In("%"), 1, "utilization", "Use of a link in an interval":
            "Part of the capacity of a router port that is used in a sampling interval, over ports and intervals";
        "sojourn", In("ms"), 2, "sojourn", "Time in the queue":
            "Time from a packet's arrival at the measured port's queue to the begin of its transmission, over the \
             packets that leave it";
        "rtt", In("ms"), 2, "RTT", "Round-trip time":
            "Round-trip times that senders of the measured flows measured, handshakes included, within 0.8 %; with \
             `measure.flow-table = \"rtt\"` instead of `measure.distributions`";
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_has_one_name_a_label_a_known_unit_and_a_meaning() {
        let units = ["%", "B", "Mbit/s", "hosts", "kbit/s", "ms", "pkt", "s", "segments"];
        for (number, metric) in METRICS.iter().enumerate() {
            let name = metric.name;
            assert!(!METRICS[..number].iter().any(|other| other.name == name), "{name} stands there twice");
            assert!(!metric.short.is_empty() && !metric.long.is_empty(), "{name} has no label");
            assert!(!metric.doc.is_empty() && !metric.places.is_empty(), "{name} has no meaning or place");
            match metric.unit {
                In(unit) | Named(unit) => assert!(units.contains(&unit), "{name}: {unit}"),
                OfGauge => assert_eq!(metric.places, [Gauge], "{name}"),
                Index | Count => {}
            }
        }
    }

    #[test]
    fn names_are_found_in_windows_groups_and_gauges() {
        let unit = |name| summarised(name).map(|(window, metric)| (window, metric.unit.word()));
        assert_eq!(unit("throughput"), Some((None, "Mbit/s")));
        assert_eq!(unit("burst.queue"), Some((Some("burst"), "pkt")));
        assert_eq!(unit("follow_max"), Some((None, "s")));
        assert_eq!((unit("burst.elegance"), unit("cwnd")), (None, None));
        let gauge = of_gauge("gw.1.silent.max").map(|(node, gauge, metric)| (node, gauge.name, metric.name));
        assert_eq!(gauge, Some(("gw.1", "silent", "max")));
        assert_eq!(of_gauge("gw1.cwnd.max"), None);
    }

    #[test]
    fn labels_name_unit_and_window() {
        assert_eq!(label("burst.throughput").axis(), "Throughput, burst (Mbit/s)");
        assert_eq!(label("queue").column(), "queue (packets)");
        assert_eq!(label("drops").column(), "drops");
        assert_eq!(label("marks").axis(), "Marked packets");
        assert_eq!(label("p1.shortage").column(), "shortage, p1 (%)");
        assert_eq!(label("gw1.lost.max").axis(), "Lost packets at gw1, most (packets)");
        assert_eq!(label("gw1.lost.still").column(), "gw1 lost, still (s)");
        assert_eq!(label("elegance").axis(), "elegance");
        assert_eq!(label("srtt").axis(), "Smoothed round-trip time (ms)");
    }

    #[test]
    fn ranges_are_of_what_is_measured() {
        assert_eq!([range("burst.jain"), range("p1.shortage")], [[0.0, 1.0], [0.0, 100.0]]);
        assert_eq!([range("link_use"), range("burst.sojourn_p95")], [[0.0, 100.0], [0.0, f64::INFINITY]]);
        assert_eq!([range("drops"), range("gw1.estimate.still")], [[0.0, f64::INFINITY]; 2]);
        assert_eq!(range("gw1.silent.max"), [0.0, 1.0]);
        assert_eq!(range("gw1.spare.min"), [f64::NEG_INFINITY, f64::INFINITY]);
    }

    #[test]
    fn key_lists_name_what_figures_can_draw() {
        assert_eq!(DRAWN[..4], ["throughput", "jain", "jain_normalised", "queue"]);
        assert!(["flows", "rtt_p50", "queueing_p99", "sojourn_p95"].iter().all(|name| DRAWN.contains(name)));
        assert!(DRAWN.contains(&"silent") && !DRAWN.contains(&"cwnd") && !DRAWN.contains(&""));
        assert_eq!(DISTRIBUTED, ["fct", "flow_drops", "window", "utilization", "sojourn", "rtt"]);
    }
}
