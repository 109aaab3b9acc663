//! The schemes, queue disciplines, scenarios and reports of bandmaster.
//!
//! Nothing here reads a clock, a file, a socket or the system's randomness: time is an argument, random streams come
//! from a seed and a name, and the crate builds for wasm32 without a single host import. Runtimes feed it
//! plain values: the simulator, the Linux lab and the daemons.
//!
//! Reading order: [`time`], [`units`], [`control`] (the loop of every scheme), [`scheme`], [`qdisc`], [`port`],
//! [`topology`], [`scenario`], [`report`].

pub mod agent;
pub mod by_node;
pub mod capacity;
pub mod capture;
pub mod control;
pub mod controller;
pub mod daemon;
pub mod fairness;
pub mod file;
pub mod hex;
pub mod id;
pub mod losses;
pub mod measure;
pub mod memory;
pub mod neighbours;
pub mod outages;
pub mod params;
pub mod plan;
pub mod port;
pub mod prefix;
pub mod propagation;
pub mod qdisc;
pub mod report;
pub mod rng;
pub mod routing;
pub mod runtime;
pub mod scenario;
pub mod scheme;
pub mod sizes;
pub mod sketch;
pub mod span_cdf;
pub mod switch;
pub mod time;
pub mod topology;
pub mod tuning;
pub mod units;
pub mod whatif;
pub mod workload;
