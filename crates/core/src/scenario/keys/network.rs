//! Tables of the network: links, queues, builders.

use super::{BYTES, COUNT, HOUSE, RATE, SHARE, SPAN};
use crate::file::{Selector, Shape, TableDef};
use crate::params::{Choice, Key, Kind};
use crate::qdisc::htb;
use crate::scenario::choices::Builder;

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
pub(in crate::scenario) static LINK_DEFAULTS: TableDef = TableDef {
    header: "[network.link]",
    doc: "Settings of every link that does not say otherwise",
    keys: &[LINK_KEYS],
    selector: None,
    nested: OF_LINKS,
};

/// `[network.access]`.
pub(in crate::scenario) static ACCESS: TableDef = TableDef {
    header: "[network.access]",
    doc: "The builder's links between hosts and routers",
    keys: &[LINK_KEYS],
    selector: None,
    nested: OF_LINKS,
};

/// `[network.bottleneck]`.
pub(in crate::scenario) static BOTTLENECK: TableDef = TableDef {
    header: "[network.bottleneck]",
    doc: "The builder's links that the flows share",
    keys: &[LINK_KEYS],
    selector: None,
    nested: OF_LINKS,
};

/// `[network.fabric]`.
pub(in crate::scenario) static FABRIC: TableDef = TableDef {
    header: "[network.fabric]",
    doc: "The builder's links between routers",
    keys: &[LINK_KEYS],
    selector: None,
    nested: OF_LINKS,
};

/// `[[network.links]]`.
pub(in crate::scenario) static LINK: TableDef = TableDef {
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
pub(in crate::scenario) static GROUP: TableDef = TableDef {
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
pub(in crate::scenario) static CAPACITY: TableDef = TableDef {
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
pub(in crate::scenario) static CAPACITY_STEP: TableDef = TableDef {
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
pub(in crate::scenario) static OF_QUEUES: &[(&str, &str, Shape)] =
    &[("htb", "direct", Shape::CodePoints), ("htb", "classes", Shape::Tables(&HTB_CLASS))];

/// What a key of kind [`Kind::Nested`] of a queue discipline holds.
pub(in crate::scenario) fn shape_in_queue(discipline: &str, key: &str) -> Option<Shape> {
    OF_QUEUES.iter().find(|(d, k, _)| *d == discipline && *k == key).map(|(_, _, shape)| *shape)
}

/// `classes` of a queue with discipline "htb".
pub(in crate::scenario) static HTB_CLASS: TableDef = TableDef {
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
pub(in crate::scenario) static NETWORK: TableDef = TableDef {
    header: "[network]",
    doc: "Nodes and links; what a builder makes can be added to",
    keys: &[&[
        Key::new("builder", Builder::KIND, "custom", "Shape that is built first", HOUSE),
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
