//! Every table of a scenario file, as data: parsing, defaults, errors, the JSON Schema and `explain` come from here.

use crate::params::{Key, Kind};
use crate::qdisc::htb;
use crate::units::Dimension;

/// A table of the file.
#[derive(Debug)]
pub(super) struct TableDef {
    /// As in the file: `[run]`, `[[flows]]`.
    pub(super) header: &'static str,
    /// What it is, in one line.
    pub(super) doc: &'static str,
    /// Its keys; those of a [`Selector`] come on top.
    pub(super) keys: &'static [&'static [Key]],
    /// A key whose value decides which further keys there are.
    pub(super) selector: Option<Selector>,
    /// What the keys of kind [`Kind::Nested`] hold.
    pub(super) nested: &'static [(&'static str, Shape)],
}

/// A key whose value decides which further keys a table has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Selector {
    /// One of the table's keys, a [`Kind::Choice`].
    pub(super) key: &'static str,
    /// The choices and their keys.
    pub(super) choices: &'static [(&'static str, &'static [Key])],
}

/// What a key of kind [`Kind::Nested`] holds.
#[derive(Clone, Copy, Debug)]
pub(super) enum Shape {
    /// One table.
    Table(&'static TableDef),
    /// A list of tables.
    Tables(&'static TableDef),
    /// A queue: a limit, or a table with the name of a discipline and its parameters.
    Queue,
    /// A table per scheme of the registry.
    Schemes,
    /// Dotted keys with any values.
    Overrides,
    /// A list of any values.
    Values,
    /// Any value.
    Value,
    /// The name of a sweep and one of its values.
    Point,
    /// A list of numbers.
    Numbers,
    /// A list of code points: numbers from 0 to 63, or names.
    CodePoints,
}

impl TableDef {
    /// The keys for a choice of the selector; all keys when `choice` is none.
    pub(super) fn keys_for(&self, choice: Option<&str>) -> Vec<&'static Key> {
        let mut keys: Vec<&Key> = self.keys.iter().copied().flatten().collect();
        for (name, more) in self.selector.iter().flat_map(|s| s.choices) {
            if choice.is_none_or(|choice| choice == *name) {
                keys.extend(
                    more.iter().filter(|k| !keys.iter().any(|have| have.name == k.name)).collect::<Vec<_>>(),
                );
            }
        }
        keys
    }

    /// What a nested key holds.
    pub(super) fn shape(&self, key: &str) -> Option<Shape> {
        self.nested.iter().find(|(name, _)| *name == key).map(|(_, shape)| *shape)
    }
}

const RATE: Kind = Kind::Quantity(Dimension::Rate);
const SPAN: Kind = Kind::Quantity(Dimension::Span);
const BYTES: Kind = Kind::Quantity(Dimension::Bytes);
const PACKETS: Kind = Kind::Quantity(Dimension::Packets);
const SHARE: Kind = Kind::Float { min: 0.0, max: 1.0 };
const BAND: Kind = Kind::Float { min: -1e9, max: 1e9 };
const DSCP: Kind = Kind::Integer { min: 0, max: 63 };
const COUNT: Kind = Kind::Integer { min: 1, max: 1_000_000 };

/// Names of congestion controls.
const CONGESTION_CONTROLS: &[&str] =
    &["tahoe", "reno", "newreno", "bic", "cubic", "dctcp", "lia", "olia", "balia"];

/// Origin of defaults that no paper, RFC or system gives.
const HOUSE: &str = "";

/// The whole file.
pub(super) static FILE: TableDef = TableDef {
    header: "the file",
    doc: "A bandmaster scenario: a network, its traffic, the schemes in charge, and what must come out",
    keys: &[&[
        Key::optional(
            "version",
            Kind::Integer { min: 0, max: i64::MAX },
            "Version of the file format, always needed: 1",
        ),
        Key::required("name", Kind::Text, "Short name, also of the output folder: a-z, 0-9 and -"),
        Key::optional("title", Kind::Text, "One line for people; absent: the name"),
        Key::new("description", Kind::Text, "", "A paragraph for people", HOUSE),
        Key::optional("clients", COUNT, "Number of which each group's `share` is a part"),
        Key::required("run", Kind::Nested, "How long, how often, with which seed"),
        Key::required("network", Kind::Nested, "Nodes and links"),
        Key::optional("tcp", Kind::Nested, "TCP settings of every flow; absent: today's Linux"),
        Key::required("flows", Kind::Nested, "Who sends what to whom"),
        Key::optional("schemes", Kind::Nested, "Bandwidth-control schemes; absent: none"),
        Key::optional("control", Kind::Nested, "How messages between the roles of a scheme travel"),
        Key::optional("faults", Kind::Nested, "What goes wrong with schemes; absent: nothing"),
        Key::optional("measure", Kind::Nested, "What is recorded and summarised"),
        Key::optional("compare", Kind::Nested, "Variants of the scenario; absent: one, called base"),
        Key::optional("sweeps", Kind::Nested, "Keys that take several values"),
        Key::optional("claims", Kind::Nested, "What must come out"),
        Key::optional("figures", Kind::Nested, "Pictures of the report"),
    ]],
    selector: None,
    nested: &[
        ("run", Shape::Table(&RUN)),
        ("network", Shape::Table(&NETWORK)),
        ("tcp", Shape::Table(&TCP)),
        ("flows", Shape::Tables(&FLOW)),
        ("schemes", Shape::Schemes),
        ("control", Shape::Table(&CONTROL)),
        ("faults", Shape::Table(&FAULTS)),
        ("measure", Shape::Table(&MEASURE)),
        ("compare", Shape::Tables(&VARIANT)),
        ("sweeps", Shape::Tables(&SWEEP)),
        ("claims", Shape::Tables(&CLAIM)),
        ("figures", Shape::Tables(&FIGURE)),
    ],
};

/// `[run]`.
pub(super) static RUN: TableDef = TableDef {
    header: "[run]",
    doc: "How long, how often, with which seed",
    keys: &[&[
        Key::required("duration", SPAN, "Simulated time"),
        Key::new("warm-up", SPAN, "0s", "Time at the start that no summary figure includes", HOUSE),
        Key::new("sample", SPAN, "100ms", "Sampling interval of series and of the fairness index", HOUSE),
        Key::new("trials", Kind::Integer { min: 1, max: 100_000 }, "10", "Independent repetitions", HOUSE),
        Key::new(
            "quick-trials",
            Kind::Integer { min: 1, max: 100_000 },
            "2",
            "Repetitions of a quick run",
            HOUSE,
        ),
        Key::new("seed", Kind::Integer { min: 0, max: i64::MAX }, "1", "Seed of every random stream", HOUSE),
    ]],
    selector: None,
    nested: &[],
};

const LINK_KEYS: &[Key] = &[
    Key::optional("rate", RATE, "Transmission rate of each direction; must stand here or in the defaults"),
    Key::optional(
        "capacity",
        Kind::Nested,
        "How the capacity from the first end to the second changes with time; absent: it is `rate`",
    ),
    Key::optional(
        "capacity-back",
        Kind::Nested,
        "How the capacity from the second end to the first changes with time; absent: it is `rate`",
    ),
    Key::new("delay", Kind::Draw, "1ms", "One-way propagation delay, fixed or drawn per trial", HOUSE),
    Key::new("queue", Kind::Nested, "200pkt", "Queue at a router's end", HOUSE),
    Key::new("host-queue", Kind::Nested, "unlimited", "Queue at a host's end", "hosts hold back, not drop"),
    Key::new("loss", SHARE, "0.0", "Probability that a packet is lost on the wire, each direction", HOUSE),
];

/// Link settings that stand for several links: `[network.link]` and the links of builders.
pub(super) static LINK_DEFAULTS: TableDef = TableDef {
    header: "[network.link]",
    doc: "Settings of every link that does not say otherwise",
    keys: &[LINK_KEYS],
    selector: None,
    nested: OF_LINKS,
};

/// `[network.access]`.
pub(super) static ACCESS: TableDef = TableDef {
    header: "[network.access]",
    doc: "The builder's links between hosts and routers",
    keys: &[LINK_KEYS],
    selector: None,
    nested: OF_LINKS,
};

/// `[network.bottleneck]`.
pub(super) static BOTTLENECK: TableDef = TableDef {
    header: "[network.bottleneck]",
    doc: "The builder's links that the flows share",
    keys: &[LINK_KEYS],
    selector: None,
    nested: OF_LINKS,
};

/// `[network.fabric]`.
pub(super) static FABRIC: TableDef = TableDef {
    header: "[network.fabric]",
    doc: "The builder's links between routers",
    keys: &[LINK_KEYS],
    selector: None,
    nested: OF_LINKS,
};

/// `[[network.links]]`.
pub(super) static LINK: TableDef = TableDef {
    header: "[[network.links]]",
    doc: "A duplex link",
    keys: &[
        &[Key::required("ends", Kind::TextList, "The two nodes")],
        LINK_KEYS,
        &[Key::optional(
            "drop-packets",
            Kind::IntegerList,
            "Scripted losses: ordinal numbers, from 1, of the data packets from the first end to the second",
        )],
    ],
    selector: None,
    nested: OF_LINKS,
};

/// `[[network.groups]]`.
pub(super) static GROUP: TableDef = TableDef {
    header: "[[network.groups]]",
    doc: "Hosts that are named together, each with a link of its own to one router; member i is `name.i`",
    keys: &[
        &[
            Key::required("name", Kind::Text, "Name in flows and reports"),
            Key::required("attach", Kind::Text, "Router at the other end of the members' links"),
            Key::optional("count", COUNT, "Number of hosts; this or `share`"),
            Key::optional("share", SHARE, "Number of hosts as a part of `clients`; this or `count`"),
        ],
        LINK_KEYS,
    ],
    selector: None,
    nested: OF_LINKS,
};

const OF_LINKS: &[(&str, Shape)] = &[
    ("capacity", Shape::Table(&CAPACITY)),
    ("capacity-back", Shape::Table(&CAPACITY)),
    ("queue", Shape::Queue),
    ("host-queue", Shape::Queue),
];

/// `capacity` and `capacity-back` of links.
pub(super) static CAPACITY: TableDef = TableDef {
    header: "the capacity of a link",
    doc: "How the capacity of one direction of a link changes with time: by steps, or as a trace says",
    keys: &[&[
        Key::optional("steps", Kind::Nested, "Changes of the rate; before the first it is the link's `rate`"),
        Key::optional("period", SPAN, "The steps begin anew after so long; absent: the last rate stays"),
        Key::optional(
            "trace",
            Kind::Text,
            "File beside the scenario file with a line for each delivery opportunity of 1504 bytes, its time in ms \
             (Mahimahi's format)",
        ),
    ]],
    selector: None,
    nested: &[("steps", Shape::Tables(&CAPACITY_STEP))],
};

/// `steps` of a link's capacity.
pub(super) static CAPACITY_STEP: TableDef = TableDef {
    header: "a step of a link's capacity",
    doc: "A change of the rate",
    keys: &[&[
        Key::required("at", SPAN, "When, from the start of the run, or of the period"),
        Key::required("rate", RATE, "Rate from then on; `0bit`: a pause"),
    ]],
    selector: None,
    nested: &[],
};

/// What the keys of kind [`Kind::Nested`] of queue disciplines hold: discipline, key, shape.
pub(super) static OF_QUEUES: &[(&str, &str, Shape)] =
    &[("htb", "direct", Shape::CodePoints), ("htb", "classes", Shape::Tables(&HTB_CLASS))];

/// What a key of kind [`Kind::Nested`] of a queue discipline holds.
pub(super) fn shape_in_queue(discipline: &str, key: &str) -> Option<Shape> {
    OF_QUEUES.iter().find(|(d, k, _)| *d == discipline && *k == key).map(|(_, _, shape)| *shape)
}

/// `classes` of a queue with discipline "htb".
pub(super) static HTB_CLASS: TableDef = TableDef {
    header: "a class of discipline \"htb\"",
    doc: "A class of the queue: its own rate, and what it may borrow",
    keys: &[htb::CLASS_KEYS],
    selector: None,
    nested: &[("dscp", Shape::CodePoints)],
};

const SIZE: Key = Key::required("size", COUNT, "Hosts at each place that has hosts");
const ACCESS_KEY: Key = Key::optional("access", Kind::Nested, "Links of hosts; absent: as `link`");
const FABRIC_KEY: Key = Key::optional("fabric", Kind::Nested, "Links between routers; absent: as `link`");
const BOTTLENECK_KEY: Key = Key::optional("bottleneck", Kind::Nested, "Shared links; absent: as `link`");

/// `[network]`.
pub(super) static NETWORK: TableDef = TableDef {
    header: "[network]",
    doc: "Nodes and links; what a builder makes can be added to",
    keys: &[&[
        Key::new(
            "builder",
            Kind::Choice(&[
                "custom",
                "dumbbell",
                "star",
                "parking-lot",
                "leaf-spine",
                "fat-tree",
                "pod",
                "dual-fat-tree",
            ]),
            "custom",
            "Shape that is built first",
            HOUSE,
        ),
        Key::optional("routers", Kind::TextList, "Nodes that forward"),
        Key::optional("hosts", Kind::TextList, "Nodes that end flows and never forward"),
        Key::new(
            "frame-overhead",
            BYTES,
            "14B",
            "Bytes that a link adds to an IP packet",
            "Ethernet as Linux counts",
        ),
        Key::new(
            "host-delay",
            Kind::Float { min: 0.0, max: 100.0 },
            "1.0",
            "Random processing delay of hosts, uniform up to this share of the packet's time on the link; 0: none",
            "against phase effects",
        ),
        Key::new(
            "rate-tolerance",
            Kind::Float { min: 0.0, max: 0.1 },
            "0.0",
            "Each transmitter's rate is off by a uniform share up to this, drawn per trial",
            HOUSE,
        ),
        Key::optional("link", Kind::Nested, "Settings of every link that does not say otherwise"),
        Key::optional("links", Kind::Nested, "Links"),
        Key::optional("groups", Kind::Nested, "Groups of hosts"),
    ]],
    selector: Some(Selector {
        key: "builder",
        choices: &[
            ("custom", &[]),
            (
                "dumbbell",
                &[
                    Key::required("left", COUNT, "Hosts of the group `left`, at router r1"),
                    Key::required("right", COUNT, "Hosts of the group `right`, at router r2"),
                    ACCESS_KEY,
                    BOTTLENECK_KEY,
                ],
            ),
            ("star", &[SIZE, ACCESS_KEY]),
            (
                "parking-lot",
                &[
                    Key::required("hops", Kind::Integer { min: 1, max: 1_000 }, "Shared links in a row"),
                    SIZE,
                    ACCESS_KEY,
                    BOTTLENECK_KEY,
                ],
            ),
            (
                "leaf-spine",
                &[
                    Key::required(
                        "leaves",
                        Kind::Integer { min: 1, max: 1_000 },
                        "Number of leaf routers: leaf1, leaf2 and so on",
                    ),
                    Key::required(
                        "spines",
                        Kind::Integer { min: 1, max: 1_000 },
                        "Number of spine routers: spine1, spine2 and so on",
                    ),
                    SIZE,
                    ACCESS_KEY,
                    FABRIC_KEY,
                ],
            ),
            (
                "fat-tree",
                &[
                    Key::required(
                        "k",
                        Kind::Integer { min: 2, max: 64 },
                        "Ports per router, even: k^3/4 hosts",
                    ),
                    ACCESS_KEY,
                    FABRIC_KEY,
                ],
            ),
            (
                "pod",
                &[
                    SIZE,
                    Key::new(
                        "tors",
                        Kind::Integer { min: 1, max: 64 },
                        "2",
                        "Top-of-rack routers, each linked to every sender and to the receiver",
                        "dual-homed hosts",
                    ),
                    ACCESS_KEY,
                    BOTTLENECK_KEY,
                ],
            ),
            (
                "dual-fat-tree",
                &[
                    Key::required(
                        "k",
                        Kind::Integer { min: 2, max: 64 },
                        "Ports per router of the fabric, even: k^3/4 hosts with two links each",
                    ),
                    ACCESS_KEY,
                    FABRIC_KEY,
                ],
            ),
        ],
    }),
    nested: &[
        ("link", Shape::Table(&LINK_DEFAULTS)),
        ("access", Shape::Table(&ACCESS)),
        ("bottleneck", Shape::Table(&BOTTLENECK)),
        ("fabric", Shape::Table(&FABRIC)),
        ("links", Shape::Tables(&LINK)),
        ("groups", Shape::Tables(&GROUP)),
    ],
};

const LINUX: &str = "Linux";

/// `[tcp]`, and `tcp` of a flow. Defaults are those of [`super::TcpSettings`].
pub(super) static TCP: TableDef = TableDef {
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
        Key::new("limited-transmit", Kind::Bool, "true", "Limited transmit", "RFC 3042, Linux"),
        Key::new(
            "recovery",
            Kind::Choice(&["prr", "rfc6675"]),
            "prr",
            "How the window falls in fast recovery: proportional rate reduction, or at once to ssthresh",
            "RFC 6937, Linux",
        ),
        Key::new(
            "flight-size",
            Kind::Choice(&["outstanding", "pipe"]),
            "outstanding",
            "What NewReno halves on loss: data outstanding and not SACKed, or RFC 6675's pipe (ns-3)",
            "RFC 5681",
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
            Kind::Choice(&["variance", "rto"]),
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
pub(super) static FLOW: TableDef = TableDef {
    header: "[[flows]]",
    doc: "Flows of one kind between two sets of hosts",
    keys: &[&[
        Key::required("name", Kind::Text, "Name in reports"),
        Key::required("from", Kind::TextList, "Groups or hosts that send"),
        Key::required("to", Kind::TextList, "Groups or hosts that receive"),
        Key::new(
            "pairing",
            Kind::Choice(&["one-to-one", "all-to-all", "exchange"]),
            "one-to-one",
            "Sender i to receiver i modulo their number; every sender to every receiver but itself; or the same in rounds with a barrier, as MPI_Alltoall",
            HOUSE,
        ),
        Key::new("count", COUNT, "1", "Flows per pair", HOUSE),
        Key::optional("needs", RATE, "Rate that each flow must receive; gives the figure `NAME.shortage`"),
        Key::new("needs-over", SPAN, "1s", "The rate is a mean over so long", HOUSE),
        Key::new("dscp", DSCP, "0", "Code point in the IP header, both directions", "RFC 2474"),
        Key::new("transport", Kind::Choice(&["tcp", "udp"]), "tcp", "Transport", HOUSE),
        Key::new(
            "start",
            Kind::Draw,
            "0s",
            "When each flow starts, fixed or drawn per flow and trial",
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
                        Kind::Choice(&["pairwise", "window"]),
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
                        Kind::Choice(&["min-rtt", "round-robin"]),
                        "min-rtt",
                        "Multipath TCP: which subflow with room gets the next data",
                        "Linux",
                    ),
                    Key::new(
                        "measured",
                        Kind::Bool,
                        "true",
                        "Counts in fairness and throughput figures",
                        "TCP",
                    ),
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
                    Key::new(
                        "measured",
                        Kind::Bool,
                        "false",
                        "Counts in fairness and throughput figures",
                        "UDP",
                    ),
                ],
            ),
        ],
    }),
    nested: &[("timeline", Shape::Tables(&STEP)), ("tcp", Shape::Table(&TCP))],
};

/// `timeline` of a flow.
pub(super) static STEP: TableDef = TableDef {
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

/// Common to every scheme.
pub(super) const SCHEME_ENABLED: &[Key] =
    &[Key::new("enabled", Kind::Bool, "true", "Whether the scheme acts", HOUSE)];

/// `[control]`.
pub(super) static CONTROL: TableDef = TableDef {
    header: "[control]",
    doc: "How messages between the roles of a scheme travel",
    keys: &[&[
        Key::new("delay", SPAN, "1ms", "One-way delay of a message between two nodes", HOUSE),
        Key::new("loss", SHARE, "0.0", "Probability that a message between two nodes is lost", HOUSE),
    ]],
    selector: None,
    nested: &[],
};

/// `[faults]`.
pub(super) static FAULTS: TableDef = TableDef {
    header: "[faults]",
    doc: "What goes wrong with schemes; messages are lost by `control.loss`, packets by the `loss` of links",
    keys: &[&[
        Key::new(
            "probe-loss",
            SHARE,
            "0.0",
            "Probability that a probe of a scheme is lost on its way, beside what links lose",
            HOUSE,
        ),
        Key::optional("restarts", Kind::Nested, "Restarts of nodes that run a scheme; absent: none"),
    ]],
    selector: None,
    nested: &[("restarts", Shape::Tables(&RESTARTS))],
};

/// `[[faults.restarts]]`.
pub(super) static RESTARTS: TableDef = TableDef {
    header: "[[faults.restarts]]",
    doc: "Roles at a node that begin anew with counters at zero, as after a restart of the machine",
    keys: &[&[
        Key::required("node", Kind::Text, "The node"),
        Key::required("at", Kind::TextList, "Times such as \"90s\", at least one"),
    ]],
    selector: None,
    nested: &[],
};

/// `[measure]`.
pub(super) static MEASURE: TableDef = TableDef {
    header: "[measure]",
    doc: "What is recorded and summarised",
    keys: &[&[
        Key::optional(
            "queue",
            Kind::Text,
            "Port `from->to` of the queue figures; absent: the router port that most flows cross",
        ),
        Key::new(
            "record",
            Kind::Choice(&["none", "groups", "flows"]),
            "groups",
            "Recorded series: none, those of groups, or those of each flow too",
            HOUSE,
        ),
        Key::new("long-interval", SPAN, "1s", "Interval of the long-term fairness indices", HOUSE),
        Key::optional("windows", Kind::Nested, "Parts of the run with figures of their own"),
        Key::optional(
            "gauges",
            Kind::TextList,
            "Gauges of schemes as `node.gauge`, each with the figures `node.gauge.min`, `.max`, `.last`, `.still`; \
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
pub(super) static TRACKING: TableDef = TableDef {
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
pub(super) static WINDOW: TableDef = TableDef {
    header: "[[measure.windows]]",
    doc: "A part of the run with summary figures of its own, `name.figure`",
    keys: &[&[
        Key::required("name", Kind::Text, "Prefix of the figures' names"),
        Key::required("from", SPAN, "Start"),
        Key::required("to", SPAN, "End"),
    ]],
    selector: None,
    nested: &[],
};

/// `[[compare]]`.
pub(super) static VARIANT: TableDef = TableDef {
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
pub(super) static PAPER: TableDef = TableDef {
    header: "[[compare.paper]]",
    doc: "A summary figure as the paper reports it, for `compare` to show",
    keys: &[&[
        Key::required("figure", Kind::Text, "Summary figure, or `window.figure`"),
        Key::required("value", BAND, "Value in the figure's unit"),
    ]],
    selector: None,
    nested: &[],
};

/// `[[sweeps]]`.
pub(super) static SWEEP: TableDef = TableDef {
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
pub(super) static CLAIM: TableDef = TableDef {
    header: "[[claims]]",
    doc: "A two-sided statement about a summary figure",
    keys: &[&[
        Key::required("id", Kind::Text, "Unique name; with several variants the claims are `id/variant`"),
        Key::required("text", Kind::Text, "The statement in words"),
        Key::required("figure", Kind::Text, "Summary figure, or `window.figure`"),
        Key::required("variant", Kind::TextList, "Variants that are judged, a claim each"),
        Key::optional("minus", Kind::Text, "Variant whose figure is subtracted"),
        Key::optional("over", Kind::Text, "Variant by whose figure is divided"),
        Key::optional("against-figure", Kind::Text, "Figure of the other side; absent: the same"),
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
    ]],
    selector: None,
    nested: &[("at", Shape::Point), ("against-point", Shape::Value), ("points", Shape::Values)],
};

/// Measures that figures draw over time.
const SERIES: &[&str] = &[
    "throughput",
    "jain",
    "jain_normalised",
    "queue",
    "free",
    "estimate",
    "step",
    "received",
    "loss",
    "lost",
    "updates",
    "classes",
    "spare",
];

/// `[[figures]]`.
pub(super) static FIGURE: TableDef = TableDef {
    header: "[[figures]]",
    doc: "A picture of the report",
    keys: &[&[
        Key::required("id", Kind::Text, "Unique name, also of the file"),
        Key::required("title", Kind::Text, "Caption"),
        Key::new("source", Kind::Text, "", "Figure or table of the paper", HOUSE),
        Key::required(
            "kind",
            Kind::Choice(&["sweep", "series", "distribution"]),
            "A figure over a sweep, a measure over time, or the cumulative distribution of a measure",
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
                    Key::required("y", Kind::Text, "Summary figure on the y axis"),
                    Key::new("log-x", Kind::Bool, "false", "Logarithmic x axis", HOUSE),
                ],
            ),
            (
                "series",
                &[
                    Key::required("y", Kind::Choice(SERIES), "Measure on the y axis, or a gauge of schemes"),
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
                        Kind::Choice(SERIES),
                        "Another measure of the same entities, drawn once, in grey",
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
                    Key::required("x", Kind::Choice(DISTRIBUTIONS), "Measure on the x axis"),
                    Key::new("log-x", Kind::Bool, "false", "Logarithmic x axis", HOUSE),
                ],
            ),
        ],
    }),
    nested: &[("references", Shape::Tables(&REFERENCE)), ("at", Shape::Point)],
};

/// Measures whose distribution figures draw.
const DISTRIBUTIONS: &[&str] = &["fct", "flow_drops", "window", "utilization"];

/// `[[figures.references]]`.
pub(super) static REFERENCE: TableDef = TableDef {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params::Written;

    fn check(def: &'static TableDef) {
        for key in def.keys_for(None) {
            assert!(!key.doc.is_empty() && !key.doc.ends_with('.'), "{}: {}", def.header, key.name);
            if key.kind == Kind::Nested {
                match def.shape(key.name) {
                    Some(Shape::Table(inner) | Shape::Tables(inner)) => check(inner),
                    Some(_) => {}
                    None => panic!("{} has no shape for {}", def.header, key.name),
                }
            } else if let Some(default) = key.default.filter(|_| key.kind != Kind::Text) {
                key.kind.parse(&Written::from_word(default)).unwrap_or_else(|e| panic!("{}: {e}", key.name));
            }
        }
        for (name, _) in def.nested {
            assert!(def.keys_for(None).iter().any(|k| k.name == *name), "{} has no key {name}", def.header);
        }
    }

    #[test]
    fn defaults_are_values_of_their_keys_and_every_nested_key_has_a_shape() {
        check(&FILE);
        for (discipline, key, shape) in OF_QUEUES {
            let def = crate::qdisc::REGISTRY.iter().find(|def| def.name == *discipline);
            let key = def.and_then(|def| def.keys.iter().find(|k| k.name == *key));
            assert_eq!(key.map(|key| key.kind), Some(Kind::Nested), "{discipline}");
            if let Shape::Table(inner) | Shape::Tables(inner) = shape {
                check(inner);
            }
        }
        for def in crate::qdisc::REGISTRY {
            for key in def.keys.iter().filter(|key| key.kind == Kind::Nested) {
                assert!(shape_in_queue(def.name, key.name).is_some(), "{}: {}", def.name, key.name);
            }
        }
    }
}
