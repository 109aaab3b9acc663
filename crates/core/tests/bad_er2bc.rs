//! Wrong settings of `[schemes.er2bc]`, each with its message: pieces of `scenarios/er2bc/table5-udp.toml` are changed.

use bandmaster_core::scenario::{Options, parse};

const GOOD: &str = include_str!("../../../scenarios/er2bc/table5-udp.toml");

const PORT: &str = "port = \"gw1->r1\"";
const RECEIVER: &str = "receiver = \"gw2\"";
const NEEDS: &str = "needs = [\"400kbit\", \"400kbit\", \"400kbit\", \"400kbit\", \"400kbit\"]";

/// (text, its replacement, the expected error).
const CASES: &[(&str, &str, &str)] = &[
    (PORT, "", "schemes.er2bc.port: is missing"),
    (PORT, "port = \"gw1\"", "schemes.er2bc.port: `gw1` is not `from->to` with the names of two nodes"),
    (
        PORT,
        "port = \"gw1->r9\"",
        "schemes.er2bc.port: `gw1->r9` is not `from->to` with the names of two nodes",
    ),
    (PORT, "port = \"gw1->r2\"", "schemes.er2bc.port: `gw1->r2` is no port: no link joins the two nodes"),
    (
        PORT,
        "port = \"r1->r2\"",
        "schemes.er2bc.port: the queue at `r1->r2` is fifo; it must be htb, with a class for each flow",
    ),
    (RECEIVER, "", "schemes.er2bc.receiver: is missing"),
    (RECEIVER, "receiver = \"gw9\"", "schemes.er2bc.receiver: names `gw9`, which is not a node"),
    (RECEIVER, "receiver = \"gw1\"", "schemes.er2bc.receiver: is the sending gateway itself"),
    (NEEDS, "", "schemes.er2bc.needs: is missing"),
    (NEEDS, "needs = []", "schemes.er2bc.needs: is empty"),
    (NEEDS, "needs = [\"400pkt\"]", "schemes.er2bc.needs: `400pkt`: "),
    (
        NEEDS,
        "needs = [\"1kbit\", \"1kbit\", \"1kbit\", \"1kbit\", \"1kbit\", \"1kbit\"]",
        "schemes.er2bc.needs: are those of 6 flows; the queue at `gw1->r1` has 5 classes",
    ),
    (PORT, "port = \"gw1->r1\"\ncycle = \"0s\"", "schemes.er2bc.cycle: must be longer than 0s"),
    (PORT, "port = \"gw1->r1\"\ncontrol = \"fair\"", "schemes.er2bc.control: "),
    ("\nestimator = \"loss\"", "\nestimator = \"oracle\"", "schemes.er2bc.estimator: "),
    (PORT, "port = \"gw1->r1\"\nclass-floor = \"80\"", "schemes.er2bc.class-floor: "),
    (PORT, "port = \"gw1->r1\"\ntheta-low = 2", "schemes.er2bc.theta-low: 2 is above theta-high, 1"),
    (
        PORT,
        "port = \"gw1->r1\"\nstep-max = \"20kbit\"",
        "schemes.er2bc.step-initial: 50kbit is above step-max, 20kbit",
    ),
    (PORT, "port = \"gw1->r1\"\nalpha = 0.9", "schemes.er2bc.alpha: "),
    (PORT, "port = \"gw1->r1\"\ndeficit-rounds = 0", "schemes.er2bc.deficit-rounds: "),
];

fn said(text: &str) -> Vec<String> {
    match parse("x.toml", text, &Options::default()) {
        Ok(_) => Vec::new(),
        Err(errors) => errors.iter().map(ToString::to_string).collect(),
    }
}

#[test]
fn every_error_names_its_key_and_what_is_wrong() {
    assert_eq!(said(GOOD), [] as [String; 0]);
    for (piece, other, expected) in CASES {
        assert_eq!(GOOD.matches(piece).count(), 1, "{piece}");
        let said = said(&GOOD.replace(piece, other));
        assert!(said.iter().any(|error| error.contains(expected)), "{other}: {expected}: {said:#?}");
    }
}
