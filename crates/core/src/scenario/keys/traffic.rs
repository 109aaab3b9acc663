//! Tables of TCP and of flows.

use super::{BYTES, CONGESTION_CONTROLS, COUNT, DSCP, HOUSE, LINUX, PACKETS, RATE, SHARE, SPAN};
use crate::control::Protocol;
use crate::file::{Selector, Shape, TableDef};
use crate::params::{Choice, Key, Kind};
use crate::scenario::choices::{FlightSize, Pairing, Recovery, RtoFloor, ScheduleKind, Scheduler, StartPer};

/// `[tcp]`, and `tcp` of a flow. Defaults are those of [`super::TcpSettings`].
pub(in crate::scenario) static TCP: TableDef = TableDef {
    header: "[tcp]",
    doc: "TCP settings of both ends",
    keys: &[&[
        Key::new(
            "congestion-control",
            Kind::Choice(CONGESTION_CONTROLS),
            "cubic",
            "Congestion control",
            LINUX,
        ),
        Key::new(
            "mss",
            BYTES,
            "1448B",
            "Payload of a full segment, without options",
            "1500 B with timestamps",
        ),
        Key::new("initial-window", PACKETS, "10pkt", "Initial congestion window", "RFC 6928"),
        Key::new("sack", Kind::Bool, "true", "Selective acknowledgements", "RFC 2018, Linux"),
        Key::new(
            "timestamps",
            Kind::Bool,
            "true",
            "Timestamps, 12 bytes in every segment",
            "RFC 7323, Linux",
        ),
        Key::new("window-scaling", Kind::Bool, "true", "Window scaling", "RFC 7323, Linux"),
        Key::new(
            "delayed-ack",
            PACKETS,
            "2pkt",
            "Segments per acknowledgement; 1pkt acknowledges each",
            "RFC 1122",
        ),
        Key::new("delayed-ack-timeout", SPAN, "40ms", "Longest delay of an acknowledgement", LINUX),
        Key::new(
            "quick-acks",
            PACKETS,
            "0pkt",
            "First segments of a connection that are acknowledged at once: 1pkt in ns-3, up to 16pkt in Linux",
            "RFC 1122",
        ),
        Key::new("limited-transmit", Kind::Bool, "true", "Limited transmit", "RFC 3042, Linux"),
        Key::new(
            "recovery",
            Recovery::KIND,
            "prr",
            "How the window falls in fast recovery: proportional rate reduction, or at once to ssthresh",
            "RFC 6937, Linux",
        ),
        Key::new(
            "flight-size",
            FlightSize::KIND,
            "outstanding",
            "What NewReno halves on loss: data outstanding and not SACKed, or RFC 6675's pipe (ns-3)",
            "RFC 5681",
        ),
        Key::new(
            "partial-ack-sends",
            Kind::Bool,
            "false",
            "A partial acknowledgement in fast recovery sends a segment whatever the window, unless the next was sent again (ns-3)",
            "RFC 6675",
        ),
        Key::new(
            "impatient-timer",
            Kind::Bool,
            "false",
            "In fast recovery only the first partial acknowledgement restarts the retransmission timer (RFC 6582 section 4, ns-3)",
            "RFC 6298, Linux",
        ),
        Key::new(
            "byte-counting",
            Kind::Bool,
            "true",
            "Grow by bytes acknowledged, not per acknowledgement",
            LINUX,
        ),
        Key::new(
            "cwnd-validation",
            Kind::Bool,
            "true",
            "No growth of a window that is not the limit",
            "RFC 7661, Linux",
        ),
        Key::new(
            "initial-rto",
            SPAN,
            "1s",
            "Retransmission timeout before the first measurement",
            "RFC 6298",
        ),
        Key::new("min-rto", SPAN, "200ms", "Least retransmission timeout", LINUX),
        Key::new(
            "rto-floor",
            RtoFloor::KIND,
            "variance",
            "What `min-rto` bounds: the variance term, or the whole timeout (RFC 6298)",
            LINUX,
        ),
        Key::new("max-rto", SPAN, "120s", "Largest retransmission timeout", LINUX),
        Key::new("receive-buffer", BYTES, "6MiB", "Largest window that is offered", "Linux tcp_rmem"),
        Key::optional("read-rate", RATE, "Rate at which the receiver reads; absent: at once"),
        Key::new(
            "ecn",
            Kind::Bool,
            "false",
            "Explicit congestion notification",
            "RFC 3168; Linux: only if asked",
        ),
        Key::new("pacing", Kind::Bool, "false", "Pace segments over the round-trip time", LINUX),
        Key::new(
            "pacing-gain-slow-start",
            Kind::Float { min: 0.1, max: 100.0 },
            "2.0",
            "Pacing rate in slow start, in cwnd / srtt",
            LINUX,
        ),
        Key::new(
            "pacing-gain",
            Kind::Float { min: 0.1, max: 100.0 },
            "1.2",
            "Pacing rate in congestion avoidance, in cwnd / srtt",
            LINUX,
        ),
        Key::new(
            "idle-restart",
            Kind::Bool,
            "false",
            "RFC 5681: the initial window again after an idle retransmission timeout",
            HOUSE,
        ),
        Key::optional("cwnd-clamp", PACKETS, "Upper bound of the congestion window; absent: none"),
        Key::new("hystart", Kind::Bool, "true", "HyStart's delay-increase part, for cubic", LINUX),
    ]],
    selector: None,
    nested: &[],
};

/// `[[flows]]`.
pub(in crate::scenario) static FLOW: TableDef = TableDef {
    header: "[[flows]]",
    doc: "Flows of one kind between two sets of hosts",
    keys: &[&[
        Key::required("name", Kind::Text, "Name in reports"),
        Key::required("from", Kind::TextList, "Groups or hosts that send"),
        Key::required("to", Kind::TextList, "Groups or hosts that receive"),
        Key::new(
            "pairing",
            Pairing::KIND,
            "one-to-one",
            "Sender i to receiver i modulo their number; every sender to every receiver but itself; or the same in rounds with a barrier, as MPI_Alltoall",
            HOUSE,
        ),
        Key::new("count", COUNT, "1", "Flows per pair", HOUSE),
        Key::optional("needs", RATE, "Rate that each flow must receive; gives the metric `NAME.shortage`"),
        Key::new("needs-over", SPAN, "1s", "The rate is a mean over so long", HOUSE),
        Key::new("dscp", DSCP, "0", "Code point in the IP header, both directions", "RFC 2474"),
        Key::new("transport", Protocol::KIND, "tcp", "Transport", HOUSE),
        Key::new(
            "start",
            Kind::Draw,
            "0s",
            "When each flow starts, fixed or drawn for each `start-per` and trial",
            HOUSE,
        ),
        Key::new(
            "start-per",
            StartPer::KIND,
            "flow",
            "What `start` is drawn for: each flow, or each sender, whose flows (with `rounds`, to a receiver) then start together",
            HOUSE,
        ),
        Key::optional("stop", SPAN, "When each flow stops sending; absent: at the end of the run"),
        Key::optional("timeline", Kind::Nested, "Stops and restarts of parts of the flows"),
        Key::optional(
            "paths",
            Kind::TextList,
            "Routers that the way leads over, both directions, several in one text; flow or subflow i of a pair takes path i modulo their number; absent: a shortest way",
        ),
        Key::optional("on", Kind::Draw, "Sending for so long, drawn anew each time; with `off`"),
        Key::optional("off", Kind::Draw, "Silent for so long, drawn anew each time; with `on`"),
    ]],
    selector: Some(Selector {
        key: "transport",
        choices: &[
            (
                "tcp",
                &[
                    Key::optional("size", BYTES, "Bytes to send; absent: without end"),
                    Key::optional(
                        "size-cdf",
                        Kind::Text,
                        "Bytes to send, drawn for each flow from a distribution instead of `size`: a file beside the scenario file with a size and the share of flows up to it on each line, or what ships: web-search, data-mining, hadoop, file-system",
                    ),
                    Key::optional(
                        "arrivals",
                        Kind::Draw,
                        "Each sender begins a flow after every such time, from `start` to `stop`, each to another receiver, drawn, when `pairing` is \"all-to-all\"; `exponential(10ms)`: Poisson",
                    ),
                    Key::optional(
                        "load",
                        Kind::Float { min: 0.000_001, max: 100.0 },
                        "Poisson arrivals that offer so large a part of the rate of each sender's link, instead of `arrivals`",
                    ),
                    Key::optional(
                        "rounds",
                        COUNT,
                        "Incast: `size` from every sender so many times, over new connections; a receiver's next round begins, and `start` counts from there, when the one before is complete. An exchange: so many rounds of each size, 1 when absent",
                    ),
                    Key::optional(
                        "sizes",
                        Kind::TextList,
                        "An exchange: sizes of messages in turn, instead of `size`",
                    ),
                    Key::new(
                        "schedule",
                        ScheduleKind::KIND,
                        "pairwise",
                        "An exchange: in step i host r sends to host r + i, and goes on when that is acknowledged and the message of host r - i has come; or it sends to r + 1, r + 2, ... with so many messages unacknowledged as `outstanding` says",
                        "Open MPI",
                    ),
                    Key::new(
                        "outstanding",
                        COUNT,
                        "8",
                        "An exchange with `schedule` `window`: messages of a host that are not acknowledged, at most",
                        HOUSE,
                    ),
                    Key::new(
                        "compute",
                        Kind::Draw,
                        "0s",
                        "An exchange: time from the barrier to a host's next round, drawn per host and round",
                        HOUSE,
                    ),
                    Key::new(
                        "persistent",
                        Kind::Bool,
                        "false",
                        "All rounds go over the connections of the first; with plain TCP `size` is in whole segments then",
                        HOUSE,
                    ),
                    Key::new(
                        "reset",
                        Kind::Bool,
                        "false",
                        "At `stop` a flow breaks off with a RST, instead of delivering what it has and closing",
                        HOUSE,
                    ),
                    Key::optional(
                        "subflows",
                        Kind::Integer { min: 1, max: 8 },
                        "Multipath TCP with so many subflows; without `paths` subflow i leaves and arrives by link i of the hosts; absent: plain TCP",
                    ),
                    Key::new(
                        "scheduler",
                        Scheduler::KIND,
                        "min-rtt",
                        "Multipath TCP: which subflow with room gets the next data",
                        "Linux",
                    ),
                    Key::new("measured", Kind::Bool, "true", "Counts in fairness and throughput", "TCP"),
                    Key::optional("tcp", Kind::Nested, "TCP settings of these flows; absent: as [tcp]"),
                ],
            ),
            (
                "udp",
                &[
                    Key::required("rate", RATE, "Rate, counted in IP packets"),
                    Key::new("packet", BYTES, "1500B", "Size of an IP packet", HOUSE),
                    Key::new(
                        "jitter",
                        Kind::Float { min: 0.0, max: 1.0 },
                        "0",
                        "Each packet leaves up to this share of the packet interval after its turn, drawn uniformly; the rate stays",
                        "constant bit rate",
                    ),
                    Key::new("measured", Kind::Bool, "false", "Counts in fairness and throughput", "UDP"),
                ],
            ),
        ],
    }),
    nested: &[("timeline", Shape::Tables(&STEP)), ("tcp", Shape::Table(&TCP))],
};

/// `timeline` of a flow.
pub(in crate::scenario) static STEP: TableDef = TableDef {
    header: "timeline",
    doc: "At one moment, a share of the flows stops or starts again",
    keys: &[&[
        Key::required("at", SPAN, "When, from the start of the run"),
        Key::new("stop", SHARE, "0.0", "Share of the flows that stop", HOUSE),
        Key::new("start", SHARE, "0.0", "Share of the flows that start again", HOUSE),
    ]],
    selector: None,
    nested: &[],
};
