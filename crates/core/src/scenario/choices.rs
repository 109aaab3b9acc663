//! Words of scenario files that choose, and what they stand for.

use crate::params::choice;

choice! {
    /// Shape of a network that is built.
    pub(super) enum Builder {
        Custom = "custom",
        Dumbbell = "dumbbell",
        Star = "star",
        ParkingLot = "parking-lot",
        LeafSpine = "leaf-spine",
        FatTree = "fat-tree",
        Pod = "pod",
        DualFatTree = "dual-fat-tree",
        GraphMl = "graphml",
    }

    /// Who sends to whom.
    #[derive(serde::Serialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Pairing {
        /// Sender i to receiver i modulo the number of receivers.
        OneToOne = "one-to-one",
        /// Every sender to every receiver but itself.
        AllToAll = "all-to-all",
        /// Each sender to a receiver of its own, never itself, drawn once per trial.
        Permutation = "permutation",
        /// The same in rounds with a barrier: the hosts that send are those that receive.
        Exchange = "exchange",
    }

    /// What the receive window in an acknowledgement of a subflow bounds.
    #[derive(serde::Serialize)]
    #[serde(rename_all = "lowercase")]
    pub enum ReceiveWindow {
        /// What that subflow has under way, besides the buffer that all share: QCBF's paper hands each subflow a window.
        Each = "each",
        /// The connection: the data acknowledged plus the window is the right edge of all subflows (RFC 8684 section 3.3.1).
        Shared = "shared",
    }

    /// Which subflow with room gets the next data.
    #[derive(serde::Serialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Scheduler {
        /// The one with the least smoothed round-trip time.
        MinRtt = "min-rtt",
        /// In turn.
        RoundRobin = "round-robin",
    }

    /// How losses are found, with selective acknowledgements.
    #[derive(serde::Serialize)]
    #[serde(rename_all = "lowercase")]
    pub enum LossDetection {
        /// RFC 6675: a segment below three SACKed ones is lost, once.
        Rfc6675 = "rfc6675",
        /// RFC 8985: a segment sent before one that was delivered is lost, as often as it is sent (Linux).
        Rack = "rack",
    }

    /// How the window falls in fast recovery.
    #[derive(serde::Serialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Recovery {
        /// RFC 6937: proportional rate reduction (Linux).
        Prr = "prr",
        /// The same as ns-3.37 computes it. What earlier acknowledgements allowed is sent only with an acknowledgement of a
        /// retransmission. A product of bytes wraps at 2^32. A partial acknowledgement with new SACK blocks counts twice; before a
        /// recovery it neither grows the window nor restarts the timer. A retransmission leaves the pipe with the cumulative
        /// acknowledgement only.
        PrrNs3 = "prr-ns3",
        /// RFC 6675 section 5: at once to ssthresh; RFC 6582 inflation without SACK.
        Rfc6675 = "rfc6675",
    }

    /// How the window falls after an ECN echo.
    #[derive(serde::Serialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum MarkReduction {
        /// At once to ssthresh (RFC 3168, RFC 8257).
        AtOnce = "at-once",
        /// Over a round trip by proportional rate reduction (Linux, ns-3).
        Prr = "prr",
    }

    /// What NewReno halves on loss.
    #[derive(serde::Serialize)]
    #[serde(rename_all = "lowercase")]
    pub enum FlightSize {
        /// Data outstanding that is not SACKed: RFC 5681's FlightSize without what limited transmit added.
        Outstanding = "outstanding",
        /// RFC 6675's pipe, which leaves lost segments out too (ns-3).
        Pipe = "pipe",
    }

    /// Which acknowledgements give a round-trip sample, without timestamps.
    #[derive(serde::Serialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum RttSamples {
        /// One segment is timed at a time: RFC 6298's least, 4.4BSD and ns-2.
        EachRoundTrip = "each-round-trip",
        /// Each that covers new data, of the oldest segment that it covers (Linux, ns-3).
        EachAck = "each-ack",
    }

    /// How growing delay ends slow start.
    #[derive(serde::Serialize)]
    #[serde(rename_all = "lowercase")]
    pub enum HyStartRules {
        /// HyStart's delay-increase part, at once to congestion avoidance (Linux's CUBIC).
        Linux = "linux",
        /// RFC 9406, HyStart++: through a conservative slow start, which ends if the delay falls again.
        Rfc9406 = "rfc9406",
    }

    /// By which rules CUBIC's window grows.
    #[derive(serde::Serialize)]
    #[serde(rename_all = "lowercase")]
    pub enum CubicRules {
        /// RFC 9438, with the delay part of HyStart.
        Rfc9438 = "rfc9438",
        /// Linux's: faster before the first loss, slower later in the Reno-friendly region, and all of HyStart.
        Linux = "linux",
    }

    /// What the least retransmission timeout bounds.
    #[derive(serde::Serialize)]
    #[serde(rename_all = "lowercase")]
    pub enum RtoFloor {
        /// Linux: RTO = SRTT + max(min, 4 RTTVAR).
        Variance = "variance",
        /// RFC 6298: RTO >= min.
        Rto = "rto",
    }

    /// Detail of the recorded series.
    #[derive(serde::Serialize)]
    #[serde(rename_all = "lowercase")]
    pub enum RecordDetail {
        /// Summary only.
        None = "none",
        /// All flows together, each group, and the measured port.
        Groups = "groups",
        /// Each flow too.
        Flows = "flows",
    }

    /// Detail of the rows of `flows.parquet`.
    #[derive(serde::Serialize)]
    #[serde(rename_all = "lowercase")]
    pub enum FlowRows {
        /// No rows.
        None = "none",
        /// A row for each flow.
        Counts = "counts",
        /// The same, with round-trip times; and metrics of them.
        Rtt = "rtt",
    }

    /// What the start of flows is drawn for.
    pub(super) enum StartPer { Flow = "flow", Host = "host" }

    /// The order of an exchange; [`Schedule`](super::Schedule) has its number too.
    pub(super) enum ScheduleKind { Pairwise = "pairwise", Window = "window" }

    /// What a figure draws.
    pub(super) enum FigureKind {
        Sweep = "sweep",
        Series = "series",
        Distribution = "distribution",
        Cdf = "cdf",
        Box = "box",
        Bars = "bars",
        Heatmap = "heatmap",
        Slowdown = "slowdown",
    }

    /// What a cumulative distribution counts.
    #[derive(serde::Serialize)]
    #[serde(rename_all = "lowercase")]
    pub enum CdfOf {
        /// Flows of limited size that completed; of round-trip times, flows that measured any.
        Flows = "flows",
        /// Trials.
        Trials = "trials",
    }
}
