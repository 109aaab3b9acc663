//! Wrong settings of `[schemes.opentcp]`, and of flows that arrive with drawn sizes, each with its message and place.

use bandmaster_core::scenario::{Files, Options, parse};

const GOOD: &str = r#"
version = 1
name = "good"

[run]
duration = "60s"

[network]
builder = "leaf-spine"
leaves = 2
spines = 1
size = 2

[network.link]
rate = "1gbit"
delay = "100us"

[[flows]]
name = "requests"
from = "leaf1-hosts"
to = "leaf2-hosts"
size-cdf = "web-search"
load = 0.1

[schemes.opentcp]
policies = ["opentcp1"]
cycle = "1s"
"#;

const POLICIES: &str = "policies = [\"opentcp1\"]";
const CYCLE: &str = "cycle = \"1s\"";
const SIZES: &str = "size-cdf = \"web-search\"";
const LOAD: &str = "load = 0.1";

/// (text, its replacement, the expected error).
const CASES: &[(&str, &str, &str)] = &[
    (POLICIES, "", "schemes.opentcp.policies: is missing"),
    (
        POLICIES,
        "policies = [\"opentcp3\"]",
        "schemes.opentcp.policies: no policy `opentcp3` ships; did you mean `opentcp1`?",
    ),
    (
        POLICIES,
        "policies = [\"no.toml\"]",
        "x.toml:26:13: error: schemes.opentcp.policies: no.toml: no such file",
    ),
    (
        POLICIES,
        "policies = [\"bad.toml\"]",
        "bad.toml:8:8: error: rules.one.when: \"max(link.utilisation) < 1.0\": unknown statistic `link.utilisation`",
    ),
    (CYCLE, "cycle = \"0s\"", "schemes.opentcp.cycle: must be longer than 0s"),
    (
        CYCLE,
        "cycle = \"50ms\"",
        "schemes.opentcp.cycle: a cycle of 50ms is shorter than 100 round-trip times of 800us",
    ),
    (CYCLE, "cycle = 1", "schemes.opentcp.cycle: 1 has no unit"),
    (CYCLE, "look = \"0s\"", "schemes.opentcp.look: must be longer than 0s"),
    (
        CYCLE,
        "collect = [\"link.flow\"]",
        "schemes.opentcp.collect: \"link.flow\" is no statistic; did you mean `link.flows`?",
    ),
    (CYCLE, "agents = []", "schemes.opentcp.agents: is empty"),
    (
        CYCLE,
        "agents = [\"leaf1-hosts.9\"]",
        "x.toml:27:10: error: schemes.opentcp.agents: names `leaf1-hosts.9`, which is not a node; did you mean \
         `leaf1-hosts.0`? allowed: leaf1-hosts.0, leaf1-hosts.1, leaf2-hosts.0, leaf2-hosts.1",
    ),
    (
        CYCLE,
        "agents = [\"leaf1-hosts.0\", \"leaf1\"]",
        "x.toml:27:10: error: schemes.opentcp.agents: names `leaf1`, which is a router; agents are at hosts",
    ),
    (
        CYCLE,
        "agents = [\"leaf1-hosts.0\", \"leaf1-hosts.0\"]",
        "x.toml:27:10: error: schemes.opentcp.agents: names `leaf1-hosts.0` twice; a host has one agent",
    ),
    (
        CYCLE,
        "oracle = \"spine\"",
        "x.toml:27:10: error: schemes.opentcp.oracle: names `spine`, which is not a node; did you mean `spine1`? \
         allowed: ",
    ),
    (
        CYCLE,
        "force = [\"all\"]",
        "x.toml:27:9: error: schemes.opentcp.force: \"all\" is no check of a scenario; allowed: timescale",
    ),
    (
        CYCLE,
        "force = [\"timescales\"]",
        "\"timescales\" is no check of a scenario; did you mean `timescale`? allowed: timescale",
    ),
    (
        SIZES,
        "size-cdf = \"web-search\"\nsubflows = 2",
        "x.toml:26:2: error: schemes: opentcp changes plain TCP, and `requests` is multipath TCP; leave its `subflows` \
         out",
    ),
    (CYCLE, "cycles = \"1s\"", "schemes.opentcp: unknown key `cycles`"),
    (
        SIZES,
        "size-cdf = \"web-serch\"",
        "flows.requests.size-cdf: no distribution `web-serch` ships; did you mean `web-search`?",
    ),
    (
        SIZES,
        "size-cdf = \"bad.cdf\"",
        "x.toml:22:12: error: flows.requests.size-cdf: bad.cdf:2: \"10\" has no unit",
    ),
    (SIZES, "size-cdf = \"no.cdf\"", "flows.requests.size-cdf: no.cdf: no such file"),
    (
        SIZES,
        "size-cdf = \"hadoop\"\nsize = \"1kB\"",
        "flows.requests.size-cdf: conflicts with `size`; write one of them",
    ),
    (SIZES, "", "flows.requests.load: needs `size` or `size-cdf`: flows without end would pile up"),
    (
        LOAD,
        "load = 0.1\narrivals = \"1s\"",
        "flows.requests.load: conflicts with `arrivals`; write one of them",
    ),
    (LOAD, "load = 0.1\ncount = 2", "flows.requests.count: is not for flows that arrive"),
    (LOAD, "arrivals = \"0s\"", "flows.requests.arrivals: \"0s\" would start flows without end at once"),
    (LOAD, "arrivals = \"10us\"", "flows.requests.arrivals: makes some 12000000 flows; at most 1000000"),
    (LOAD, "load = 1e9", "flows.requests.load: "),
];

#[derive(Debug)]
struct Beside;

impl Files for Beside {
    fn read(&self, name: &str) -> Result<String, String> {
        match name {
            "bad.toml" => Ok(concat!(
                "version = 1\nname = \"bad\"\ngoal = \"none\"\ncycle = \"1s\"\nstatistics = [\"link.utilization\"]\n",
                "[[rules]]\nname = \"one\"\nwhen = \"max(link.utilisation) < 1.0\"\nset = { pacing = true }\n",
            )
            .to_owned()),
            "bad.cdf" => Ok("# sizes\n10 0.5\n20kB 1\n".to_owned()),
            _ => Err("no such file".to_owned()),
        }
    }
}

fn said(text: &str) -> Vec<String> {
    match parse("x.toml", text, &Options { files: Some(&Beside), ..Options::default() }) {
        Ok(_) => Vec::new(),
        Err(errors) => errors.iter().map(ToString::to_string).collect(),
    }
}

#[test]
fn every_error_names_its_key_and_what_is_wrong() {
    assert_eq!(said(GOOD), [] as [String; 0]);
    let mut wrong = Vec::new();
    for (piece, other, expected) in CASES {
        assert_eq!(GOOD.matches(piece).count(), 1, "{piece}");
        let said = said(&GOOD.replace(piece, other));
        if !said.iter().any(|error| error.contains(expected)) {
            wrong.push(format!("{other}: {expected}: {said:#?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
