//! Tables of the network: links, queues, builders.

use super::{BYTES, COUNT, RATE, SHARE, SPAN};
use crate::file::{Selector, Shape, TableDef};
use crate::losses::LossOf;
use crate::params::{Choice, Key, Kind, key, keys};
use crate::qdisc::htb;
use crate::scenario::choices::Builder;

const LINK_KEYS: &[Key] = keys! {
    /// Transmission rate, the same in both directions; needed here or in the defaults
    "rate": RATE, optional;
    /// Transmission rate from the second end to the first; absent: it is `rate`
    "rate-back": RATE, optional;
    /// How the capacity from the first end to the second changes with time; absent: it is `rate`
    "capacity": Kind::Nested, optional;
    /// How the capacity from the second end to the first changes with time; absent: it is `rate-back`
    "capacity-back": Kind::Nested, optional;
    /// One-way propagation delay, fixed or drawn per trial
    "delay": Kind::Draw, default "1ms";
    /// Queue at a router's end
    "queue": Kind::Nested, default "200pkt";
    /// Queue at the second end, when that is a router; absent: it is `queue`
    "queue-back": Kind::Nested, optional;
    /// Queue at a host's end
    "host-queue": Kind::Nested, default "unlimited", from "hosts hold back, not drop";
    /// Probability that a packet is lost on the wire, each direction
    "loss": SHARE, default "0.0";
    /// Probability that a packet is lost on the wire from the second end to the first; absent: it is `loss`
    "loss-back": SHARE, optional;
    /// Which packets `loss`, `gemodel` and those of the other direction reach: all, or those of flows that
    /// carry payload
    "loss-of": LossOf::KIND, default "all";
    /// Periodic loss: every N-th data packet from the first end to the second; absent: none
    "loss-every": Kind::Integer { min: 2, max: i64::MAX }, optional;
    /// Losses in bursts, each direction; absent: none
    "gemodel": Kind::Nested, optional;
    /// Losses in bursts from the second end to the first; absent: it is `gemodel`
    "gemodel-back": Kind::Nested, optional;
    /// Delay that each packet has in addition, drawn for it, in each direction; absent: none
    "jitter": Kind::Draw, optional;
    /// A packet with less jitter may arrive before one sent earlier; false: it arrives with that one
    "jitter-reorders": Kind::Bool, default "false";
    /// Share of the packets that overtake others, of those that may, in each direction
    "reorder": SHARE, default "0.0";
    /// Only one of so many packets may overtake: the last after one that did
    "reorder-gap": COUNT, default "1", from "netem";
    /// Delay of packets that overtake, instead of `delay` and `jitter`
    "reorder-delay": SPAN, default "0s", from "netem: at once";
};

/// Link settings that stand for several links: `[network.link]` and the links of builders.
pub(in crate::scenario) static LINK_DEFAULTS: TableDef = TableDef {
    header: "[network.link]",
    doc: "Settings of every link, unless the link sets its own",
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
        keys! {
            /// The two nodes
            "ends": Kind::TextList, required;
        },
        LINK_KEYS,
        keys! {
            /// Allows a second link between the same two nodes; without it a second one is an error
            "parallel": Kind::Bool, default "false";
            /// Changes a link that the builder or a group made; keys that you leave out keep their values
            "override": Kind::Bool, default "false";
            /// Scripted losses: ordinal numbers, from 1, of the data packets from the first end to the second
            "drop-packets": Kind::IntegerList, optional;
        },
    ],
    selector: None,
    nested: OF_LINKS,
};

/// `[[network.groups]]`.
pub(in crate::scenario) static GROUP: TableDef = TableDef {
    header: "[[network.groups]]",
    doc: "Hosts with a common name, each with its own link to one router; member i is `name.i`",
    keys: &[
        keys! {
            /// Name in flows and reports
            "name": Kind::Text, required;
            /// Router at the other end of the members' links
            "attach": Kind::Text, required;
            /// Number of hosts; this or `share`
            "count": COUNT, optional;
            /// Number of hosts as a fraction of `clients`; this or `count`
            "share": SHARE, optional;
        },
        LINK_KEYS,
    ],
    selector: None,
    nested: OF_LINKS,
};

const OF_LINKS: &[(&str, Shape)] = &[
    ("capacity", Shape::Table(&CAPACITY)),
    ("capacity-back", Shape::Table(&CAPACITY)),
    ("gemodel", Shape::Table(&GEMODEL)),
    ("gemodel-back", Shape::Table(&GEMODEL)),
    ("queue", Shape::Queue),
    ("queue-back", Shape::Queue),
    ("host-queue", Shape::Queue),
];

/// `capacity` and `capacity-back` of links.
pub(in crate::scenario) static CAPACITY: TableDef = TableDef {
    header: "the capacity of a link",
    doc: "How the capacity of one direction of a link changes with time: by steps, or as a trace says",
    keys: &[keys! {
        /// Changes of the rate; before the first it is the link's `rate`
        "steps": Kind::Nested, optional;
        /// The steps repeat after this time; absent: the last rate stays
        "period": SPAN, optional;
        /// File, relative to the scenario file, with one line per delivery opportunity of 1504 bytes: its time
        /// in ms (Mahimahi's format)
        "trace": Kind::Text, optional;
    }],
    selector: None,
    nested: &[("steps", Shape::Tables(&CAPACITY_STEP))],
};

/// `steps` of a link's capacity.
pub(in crate::scenario) static CAPACITY_STEP: TableDef = TableDef {
    header: "a step of a link's capacity",
    doc: "A change of the rate",
    keys: &[keys! {
        /// When, from the start of the run, or of the period
        "at": SPAN, required;
        /// Rate from then on; `0bit`: a pause
        "rate": RATE, required;
    }],
    selector: None,
    nested: &[],
};

/// `gemodel` and `gemodel-back` of links.
pub(in crate::scenario) static GEMODEL: TableDef = TableDef {
    header: "the losses of a link in bursts",
    doc: "The model of Gilbert and Elliott, with the parameters of netem's gemodel: a link in a good or in a bad state",
    keys: &[keys! {
        /// Probability that a packet turns the good state bad
        "p": SHARE, required;
        /// Probability that a packet turns the bad state good; above 0
        "r": SHARE, required;
        /// Probability that a packet is lost in the bad state
        "1-h": SHARE, default "1.0", from "netem";
        /// Probability that a packet is lost in the good state
        "1-k": SHARE, default "0.0", from "netem";
    }],
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

const SIZE: Key = key! {
    /// Hosts at each place that has hosts
    "size": COUNT, required
};

const ACCESS_KEY: Key = key! {
    /// Links of hosts; absent: as `link`
    "access": Kind::Nested, optional
};

const FABRIC_KEY: Key = key! {
    /// Links between routers; absent: as `link`
    "fabric": Kind::Nested, optional
};

const BOTTLENECK_KEY: Key = key! {
    /// Shared links; absent: as `link`
    "bottleneck": Kind::Nested, optional
};

/// `[network]`.
pub(in crate::scenario) static NETWORK: TableDef = TableDef {
    header: "[network]",
    doc: "Nodes and links; what a builder makes can be added to",
    keys: &[keys! {
        /// Shape of the network, to which the file adds nodes and links
        "builder": Builder::KIND, default "custom";
        /// Nodes that forward
        "routers": Kind::TextList, optional;
        /// Nodes that send and receive flows and never forward
        "hosts": Kind::TextList, optional;
        /// Bytes that a link adds to an IP packet
        "frame-overhead": BYTES, default "14B", from "Ethernet as Linux counts";
        /// Random processing delay of hosts, uniform up to this multiple of the packet's transmission time on
        /// the slowest link of its route; 0: none
        "host-delay": Kind::Float { min: 0.0, max: 100.0 }, default "1.0", from "against phase effects";
        /// Each transmitter's rate deviates by a uniform share up to this, drawn per trial
        "rate-tolerance": Kind::Float { min: 0.0, max: 0.1 }, default "0.0";
        /// Settings of every link, unless the link sets its own
        "link": Kind::Nested, optional;
        /// Links
        "links": Kind::Nested, optional;
        /// Groups of hosts
        "groups": Kind::Nested, optional;
    }],
    selector: Some(Selector {
        key: "builder",
        choices: &[
            ("custom", &[]),
            (
                "dumbbell",
                keys! {
                    /// Hosts of the group `left`, at router r1
                    "left": COUNT, required;
                    /// Hosts of the group `right`, at router r2
                    "right": COUNT, required;
                    ..ACCESS_KEY;
                    ..BOTTLENECK_KEY;
                },
            ),
            ("star", &[SIZE, ACCESS_KEY]),
            (
                "parking-lot",
                keys! {
                    /// Shared links in a row
                    "hops": Kind::Integer { min: 1, max: 1_000 }, required;
                    ..SIZE;
                    ..ACCESS_KEY;
                    ..BOTTLENECK_KEY;
                },
            ),
            (
                "leaf-spine",
                keys! {
                    /// Number of leaf routers: leaf1, leaf2 and so on
                    "leaves": Kind::Integer { min: 1, max: 1_000 }, required;
                    /// Number of spine routers: spine1, spine2 and so on
                    "spines": Kind::Integer { min: 1, max: 1_000 }, required;
                    ..SIZE;
                    ..ACCESS_KEY;
                    ..FABRIC_KEY;
                },
            ),
            (
                "fat-tree",
                keys! {
                    /// Ports per router, even: k^3/4 hosts
                    "k": Kind::Integer { min: 2, max: 64 }, required;
                    ..ACCESS_KEY;
                    ..FABRIC_KEY;
                },
            ),
            (
                "pod",
                keys! {
                    ..SIZE;
                    /// Top-of-rack routers, each linked to every sender and to the receiver
                    "tors": Kind::Integer { min: 1, max: 64 }, default "2", from "dual-homed hosts";
                    ..ACCESS_KEY;
                    ..BOTTLENECK_KEY;
                },
            ),
            (
                "dual-fat-tree",
                keys! {
                    /// Ports per router of the fabric, even: k^3/4 hosts with two links each
                    "k": Kind::Integer { min: 2, max: 64 }, required;
                    ..ACCESS_KEY;
                    ..FABRIC_KEY;
                },
            ),
            (
                "graphml",
                keys! {
                    /// File with the routers and links, relative to the scenario file, as the Internet Topology
                    /// Zoo has them; its name ends in .graphml or .xml
                    "map": Kind::Text, required;
                    /// Rates of the map are multiplied by this
                    "rate-scale": Kind::Float { min: 1e-9, max: 1000.0 }, default "1.0";
                    ..SIZE;
                    ..ACCESS_KEY;
                    ..FABRIC_KEY;
                },
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
