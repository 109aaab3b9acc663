//! Tables of TCP and of flows.

use super::{BYTES, CONGESTION_CONTROLS, COUNT, DSCP, PACKETS, RATE, SHARE, SPAN};
use crate::control::Protocol;
use crate::file::{Selector, Shape, TableDef};
use crate::params::{Choice, Kind, keys};
use crate::scenario::choices::{
    CubicRules, FlightSize, HyStartRules, LossDetection, MarkReduction, Pairing, ReceiveWindow, Recovery,
    RtoFloor, RttSamples, ScheduleKind, Scheduler, StartPer,
};

/// `[tcp]`, and `tcp` of a flow. Defaults are those of [`super::TcpSettings`].
pub(in crate::scenario) static TCP: TableDef = TableDef {
    header: "[tcp]",
    doc: "TCP settings of both ends",
    keys: &[keys! {
        /// Congestion control
        "congestion-control": Kind::Choice(CONGESTION_CONTROLS), default "cubic", from "Linux";
        /// Payload of a full segment, without options
        "mss": BYTES, default "1448B", from "1500 B with timestamps";
        /// Initial congestion window
        "initial-window": PACKETS, default "10pkt", from "RFC 6928";
        /// Selective acknowledgements
        "sack": Kind::Bool, default "true", from "RFC 2018, Linux";
        /// Timestamps, 12 bytes in every segment
        "timestamps": Kind::Bool, default "true", from "RFC 7323, Linux";
        /// Each TCP option begins at a multiple of four bytes; off: only their total length is a multiple, and
        /// SACK blocks with timestamps take four bytes less (ns-3)
        "aligned-options": Kind::Bool, default "true", from "RFC 7323 appendix A, Linux";
        /// Window scaling
        "window-scaling": Kind::Bool, default "true", from "RFC 7323, Linux";
        /// Segments per acknowledgement; 1pkt acknowledges each
        "delayed-ack": PACKETS, default "2pkt", from "RFC 1122";
        /// Longest delay of an acknowledgement
        "delayed-ack-timeout": SPAN, default "40ms", from "Linux";
        /// First segments of a connection that are acknowledged at once: 1pkt in ns-3, up to 16pkt in Linux
        "quick-acks": PACKETS, default "0pkt", from "RFC 1122";
        /// Limited transmit
        "limited-transmit": Kind::Bool, default "true", from "RFC 3042, Linux";
        /// How the window falls in fast recovery: by proportional rate reduction, by that as ns-3.37 computes it,
        /// or at once to ssthresh
        "recovery": Recovery::KIND, default "prr", from "RFC 9937, Linux";
        /// How losses are found: by three SACKed segments above, or by a segment sent later that was delivered,
        /// retransmissions too; Linux from 6.17 on knows only the latter
        "loss-detection": LossDetection::KIND, default "rfc6675", from "RFC 6675, 8985";
        /// The simulator sends tail-loss probes: when acknowledgements stop for about two round trips, a segment that
        /// asks for one. Needs `loss-detection` "rack"
        "tail-loss-probe": Kind::Bool, default "false", from "RFC 8985; Linux: true";
        /// The simulator's receiver reports segments that arrive twice. With `loss-detection` "rack" the sender then waits
        /// longer for reordered segments, and when all segments that it sent again were needless it takes its reduction
        /// back. Needs `sack`
        "dsack": Kind::Bool, default "false", from "RFC 2883, 3708, 8985; Linux: true";
        /// After a timeout the simulator's sender sends new data first: an acknowledgement of what was sent before the
        /// timeout takes its reduction back. Needs `sack`
        "f-rto": Kind::Bool, default "false", from "RFC 5682; Linux: true";
        /// The lab's kernel sends tail-loss probes, and finds losses as RFC 8985 does. Off: no probes, and kernels
        /// before 6.17 find losses as `loss-detection` says. Probes of the simulator: `tail-loss-probe`
        "rack-tlp": Kind::Bool, default "true", from "RFC 8985, Linux";
        /// How the window falls after an ECN echo: at once to ssthresh, or by proportional rate reduction
        /// (Linux, ns-3)
        "mark-reduction": MarkReduction::KIND, default "at-once", from "RFC 3168";
        /// What NewReno halves on loss: data outstanding and not SACKed, or RFC 6675's pipe (ns-3)
        "flight-size": FlightSize::KIND, default "outstanding", from "RFC 5681";
        /// A partial acknowledgement in fast recovery sends a segment whatever the window, unless the next
        /// was sent again (ns-3)
        "partial-ack-sends": Kind::Bool, default "false", from "RFC 6675";
        /// In fast recovery only the first partial acknowledgement restarts the retransmission timer (RFC
        /// 6582 section 4, ns-3)
        "impatient-timer": Kind::Bool, default "false", from "RFC 6298, Linux";
        /// Grow by bytes acknowledged, not per acknowledgement
        "byte-counting": Kind::Bool, default "true", from "Linux";
        /// A window that does not limit the sender does not grow
        "cwnd-validation": Kind::Bool, default "true", from "RFC 7661, Linux";
        /// Without timestamps: one segment is timed at a time (ns-2), or each acknowledgement of new data gives a
        /// round-trip sample, of the oldest segment that it covers (Linux, ns-3)
        "rtt-samples": RttSamples::KIND, default "each-round-trip", from "RFC 6298, ns-2";
        /// Retransmission timeout before the first measurement
        "initial-rto": SPAN, default "1s", from "RFC 6298";
        /// Least retransmission timeout
        "min-rto": SPAN, default "200ms", from "Linux";
        /// What `min-rto` bounds: the variance term, or the whole timeout (RFC 6298)
        "rto-floor": RtoFloor::KIND, default "variance", from "Linux";
        /// Tick of the retransmission timer: it expires at multiples of this only, and a least timeout that a
        /// scheme sets is at least two ticks, as in Linux (4ms where CONFIG_HZ is 250); absent: exact
        "timer-tick": SPAN, optional;
        /// Largest retransmission timeout
        "max-rto": SPAN, default "120s", from "Linux";
        /// Largest window that is offered
        "receive-buffer": BYTES, default "6MiB", from "Linux tcp_rmem";
        /// Rate at which the receiver reads; absent: at once
        "read-rate": RATE, optional;
        /// Explicit congestion notification
        "ecn": Kind::Bool, default "false", from "RFC 3168; Linux: only if asked";
        /// Pace segments over the round-trip time
        "pacing": Kind::Bool, default "false", from "Linux";
        /// Pacing rate in slow start, in cwnd / srtt
        "pacing-gain-slow-start": Kind::Float { min: 0.1, max: 100.0 }, default "2.0", from "Linux";
        /// Pacing rate in congestion avoidance, in cwnd / srtt
        "pacing-gain": Kind::Float { min: 0.1, max: 100.0 }, default "1.2", from "Linux";
        /// Most segments that bbr sends together; absent: as many as Linux puts into one buffer for segmentation
        /// offload; 1pkt: no offload, as in the lab
        "largest-burst": PACKETS, optional;
        /// RFC 5681: the initial window again after an idle retransmission timeout
        "idle-restart": Kind::Bool, default "false";
        /// Upper bound of the congestion window; absent: none
        "cwnd-clamp": PACKETS, optional;
        /// Growing delay ends slow start, for cubic
        "hystart": Kind::Bool, default "true", from "Linux";
        /// With `hystart`: slow start ends at once, by HyStart's delay-increase part; or by HyStart++ (RFC 9406),
        /// through five rounds of slower growth that end if the delay falls again, for newreno too
        "hystart-rules": HyStartRules::KIND, default "linux", from "Linux";
        /// How cubic's window grows: as RFC 9438 says; or as in Linux, by a twentieth or more per round trip before
        /// the first loss, never at Reno's whole rate, and with all of HyStart
        "cubic-rules": CubicRules::KIND, default "rfc9438", from "RFC 9438";
        /// After a loss at a smaller window than the previous loss, aim lower, for cubic
        "fast-convergence": Kind::Bool, default "true", from "RFC 9438, Linux";
        /// Acknowledge at once when less than one segment of the offered window remains; off: after the
        /// delayed-ACK timer
        "ack-at-window-end": Kind::Bool, default "true";
    }],
    selector: None,
    nested: &[],
};

/// `[[flows]]`.
pub(in crate::scenario) static FLOW: TableDef = TableDef {
    header: "[[flows]]",
    doc: "Flows of one kind between two sets of hosts",
    keys: &[keys! {
        /// Name in reports
        "name": Kind::Text, required;
        /// Groups or hosts that send
        "from": Kind::TextList, required;
        /// Groups or hosts that receive
        "to": Kind::TextList, required;
        /// Sender i to receiver i modulo their number; every sender to every receiver but itself; each sender
        /// to a receiver of its own, drawn in each trial; or every sender to every receiver in rounds with a
        /// barrier, as MPI_Alltoall
        "pairing": Pairing::KIND, default "one-to-one";
        /// Flows per pair; 0: the group is off
        "count": Kind::Integer { min: 0, max: 1_000_000 }, default "1";
        /// A file, relative to the scenario file, whose name ends in .csv: a header of receivers, and a line for each
        /// sender with its demands; a flow group `NAME-SENDER-RECEIVER` for each above 0, among `from` and `to`
        "matrix": Kind::Text, optional;
        /// Rate that each flow must receive; gives the metric `NAME.shortage`
        "needs": RATE, optional;
        /// Time over which the rate is averaged
        "needs-over": SPAN, default "1s";
        /// Code point in the IP header, both directions
        "dscp": DSCP, default "0", from "RFC 2474";
        /// Transport
        "transport": Protocol::KIND, default "tcp";
        /// When each flow starts, fixed or drawn for each `start-per` and trial
        "start": Kind::Draw, default "0s";
        /// What `start` is drawn for: each flow, or each sender, whose flows (with `rounds`, to a receiver)
        /// then start together
        "start-per": StartPer::KIND, default "flow";
        /// When each flow stops sending; absent: at the end of the run
        "stop": SPAN, optional;
        /// Stops and restarts of parts of the flows
        "timeline": Kind::Nested, optional;
        /// Routers on the path, both directions, several in one text; flow or subflow i of a pair takes path i
        /// modulo their number; "distinct": subflows take different shortest paths; "hash" or absent: a hash
        /// chooses a shortest path
        "paths": Kind::TextList, optional;
        /// Time for which the flow sends, drawn for every period; with `off`
        "on": Kind::Draw, optional;
        /// Time for which the flow is silent, drawn for every period; with `on`
        "off": Kind::Draw, optional;
    }],
    selector: Some(Selector {
        key: "transport",
        choices: &[
            (
                "tcp",
                keys! {
                    /// Bytes to send; absent: without end
                    "size": BYTES, optional;
                    /// Bytes to send, drawn for each flow from a distribution instead of `size`: a file,
                    /// relative to the scenario file, with a size and the share of flows up to it on each line,
                    /// or one that ships: web-search, data-mining, hadoop, file-system
                    "size-cdf": Kind::Text, optional;
                    /// A file, relative to the scenario file, with one flow per line: start, sender, receiver
                    /// and size, as in `12.5ms web-1 db 40kB`; instead of `size`, `count` and `start`; with
                    /// `measured = false` completion times do not count either
                    "flow-list": Kind::Text, optional;
                    /// Time between the flows that each sender starts, from `start` to `stop`; when `pairing`
                    /// is "all-to-all" each flow draws its receiver; `exponential(10ms)`: Poisson
                    "arrivals": Kind::Draw, optional;
                    /// With `matrix`: what 1 in it stands for, in offered payload of flows of `size` or `size-cdf`
                    /// that arrive one after the other, Poisson
                    "demand": RATE, optional;
                    /// Poisson arrivals, instead of `arrivals`: offered payload as a share of what each
                    /// sender's link can carry in full segments
                    "load": Kind::Float { min: 0.000_001, max: 100.0 }, optional;
                    /// Incast: times that every sender sends `size`, over new connections; a receiver's next
                    /// round begins, and `start` counts from there, when the previous one is complete.
                    /// Exchange: rounds per size, 1 when absent
                    "rounds": COUNT, optional;
                    /// Exchange: sizes of messages, used in turn, instead of `size`
                    "sizes": Kind::TextList, optional;
                    /// Exchange: in step i host r sends to host r + i, and goes on when that is acknowledged
                    /// and the message of host r - i has arrived; or it sends to r + 1, r + 2, ... with at most
                    /// `outstanding` messages unacknowledged
                    "schedule": ScheduleKind::KIND, default "pairwise", from "Open MPI";
                    /// Exchange with `schedule` `window`: most unacknowledged messages of a host
                    "outstanding": COUNT, default "8";
                    /// Exchange: time from the barrier to a host's next round, drawn per host and round
                    "compute": Kind::Draw, default "0s";
                    /// All rounds reuse the connections of the first; an exchange has one connection per pair.
                    /// With plain TCP `size` must be a multiple of the MSS
                    "persistent": Kind::Bool, default "false";
                    /// At `stop` a flow resets its connection (RST), instead of delivering its data and closing
                    "reset": Kind::Bool, default "false";
                    /// Number of subflows of multipath TCP; without routers in `paths` subflow i leaves and
                    /// arrives by link i of the hosts; absent: plain TCP
                    "subflows": Kind::Integer { min: 1, max: 8 }, optional;
                    /// Multipath TCP: which subflow with window space sends the next data
                    "scheduler": Scheduler::KIND, default "min-rtt", from "Linux";
                    /// Multipath TCP: the window in an acknowledgement bounds its subflow, in addition to the
                    /// buffer that all share; or the whole connection, from the data acknowledged on (RFC 8684
                    /// section 3.3.1)
                    "receive-window": ReceiveWindow::KIND, default "each", from "QCBF's paper";
                    /// Counts in fairness and throughput
                    "measured": Kind::Bool, default "true", from "TCP";
                    /// TCP settings of these flows; absent: as [tcp]
                    "tcp": Kind::Nested, optional;
                },
            ),
            (
                "udp",
                keys! {
                    /// Rate, counted in IP packets; with `matrix`: what 1 in it stands for
                    "rate": RATE, required;
                    /// Size of an IP packet
                    "packet": BYTES, default "1500B";
                    /// Each packet leaves up to this share of the packet interval after its turn, drawn
                    /// uniformly; the mean rate stays the same
                    "jitter": Kind::Float { min: 0.0, max: 1.0 }, default "0", from "constant bit rate";
                    /// Counts in fairness and throughput
                    "measured": Kind::Bool, default "false", from "UDP";
                },
            ),
        ],
    }),
    nested: &[("timeline", Shape::Tables(&STEP)), ("tcp", Shape::Table(&TCP))],
};

/// `timeline` of a flow.
pub(in crate::scenario) static STEP: TableDef = TableDef {
    header: "timeline",
    doc: "At one moment, a share of the flows stops or starts again",
    keys: &[keys! {
        /// When, from the start of the run
        "at": SPAN, required;
        /// Share of the flows that stop
        "stop": SHARE, default "0.0";
        /// Share of the flows that start again
        "start": SHARE, default "0.0";
    }],
    selector: None,
    nested: &[],
};
