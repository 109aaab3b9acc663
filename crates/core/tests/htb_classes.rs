//! Classes of a queue in scenario files: read, explained, changed by `--set`, in the schema, and refused.

use bandmaster_core::params::{Limit, Params, Value};
use bandmaster_core::scenario::{Options, explain, json_schema, parse};
use bandmaster_core::scheme::REGISTRY;
use bandmaster_core::units::Rate;
use serde_json::json;

const HEAD: &str = "version = 1\nname = \"classes\"\n\n[run]\nduration = \"1s\"\n\n[network]\nhosts = [\"a\", \"b\"]\nrouters = [\"r\"]\n\
     link = { rate = \"10mbit\" }\n\n[[network.links]]\nends = [\"a\", \"r\"]\n\n[[flows]]\nname = \"bulk\"\nfrom = \"a\"\nto = \"b\"\n\n\
     [[network.links]]\nends = [\"r\", \"b\"]\n";

/// Line 22 of the file.
const QUEUE: &str = r#"queue = { discipline = "htb", rate = "5mbit", default = "bulk", direct = ["cs6"], classes = [
  { name = "p1", dscp = [46, "va"], rate = "400kbit", ceil = "5mbit", limit = "50pkt" },
  { name = "p2", dscp = [34], rate = "400kbit", ceil = "5mbit", prio = 1, quantum = "3000B" },
  { name = "bulk", rate = "80kbit", prio = 7 },
] }
"#;

fn queue(text: &str, options: &Options) -> Params {
    let study = parse("x.toml", text, options).unwrap_or_else(|e| panic!("{e}"));
    let links = &study.cases[0].scenario.topology.links;
    let config = links.iter().map(|link| &link.queue).find(|queue| queue.discipline.name == "htb");
    config.expect("a queue with classes").params.clone()
}

fn set(text: &str) -> Options<'static> {
    Options { overrides: vec![text.parse().expect("an override")], ..Options::default() }
}

#[test]
fn classes_are_read_with_their_defaults() {
    let params = queue(&format!("{HEAD}{QUEUE}"), &Options::default());
    assert_eq!(params.list("direct"), ["cs6"]);
    let classes = params.tables("classes");
    let names: Vec<String> = classes.iter().map(|class| class.text("name")).collect();
    assert_eq!(names, ["p1", "p2", "bulk"]);
    assert_eq!(classes[0].list("dscp"), ["46", "va"]);
    assert_eq!(classes[0].limit("limit"), Limit::Packets(50));
    assert_eq!((classes[0].integer("prio"), classes[1].integer("prio")), (0, 1));
    assert_eq!(classes[1].bytes("quantum").get(), 3000);
    assert_eq!((classes[2].get("dscp"), classes[2].get("ceil")), (None, None));
    assert_eq!(classes[2].bytes("burst").get(), 1600);
}

#[test]
fn classes_are_changed_by_name_and_by_list() {
    let text = format!("{HEAD}{QUEUE}");
    let params = queue(&text, &set("network.links.r-b.queue.classes.p2.rate=1mbit"));
    let rate = Value::Rate(Rate::from_bits_per_sec(1_000_000));
    assert_eq!(params.tables("classes")[1].get("rate"), Some(&rate));
    let list = "network.links.r-b.queue.classes=[{ name = \"bulk\", rate = \"5mbit\" }]";
    assert_eq!(queue(&text, &set(list)).tables("classes").len(), 1);
}

#[test]
fn classes_as_tables_of_their_own_are_the_same() {
    let tables = "[network.links.queue]\ndiscipline = \"htb\"\nrate = \"5mbit\"\ndefault = \"bulk\"\ndirect = [48]\n\
                  [[network.links.queue.classes]]\nname = \"bulk\"\nrate = \"80kbit\"\n";
    let params = queue(&format!("{HEAD}{tables}"), &Options::default());
    assert_eq!((params.tables("classes").len(), params.list("direct")), (1, vec!["48".to_owned()]));
}

#[test]
fn classes_are_explained_key_by_key() {
    let text = format!("{HEAD}{QUEUE}");
    let options = set("network.links.r-b.queue.classes.p1.ceil=4mbit");
    let explained = explain("x.toml", &text, &options).unwrap_or_else(|e| panic!("{e}"));
    let of = |path: &str| {
        let path = format!("network.links.r-b.queue.{path}");
        let mut found = explained.iter().filter(|e| e.path == path);
        let entry = found.next().unwrap_or_else(|| panic!("no {path}"));
        assert_eq!(found.next(), None, "{path} twice");
        (entry.value.as_str(), entry.origin.as_str())
    };
    assert_eq!(of("rate"), ("\"5mbit\"", "x.toml:22"));
    assert_eq!(of("direct"), ("[\"cs6\"]", "x.toml:22"));
    assert_eq!(of("classes.p1.dscp"), ("[46, \"va\"]", "x.toml:23"));
    assert_eq!(of("classes.p1.ceil"), ("\"4mbit\"", "--set"));
    assert_eq!(of("classes.bulk.prio"), ("7", "x.toml:25"));
    assert_eq!(of("classes.bulk.burst"), ("\"1600B\"", "default (tc, with precise timers)"));
    assert_eq!(of("classes.p1.prio"), ("0", "default (Linux)"));
}

/// The file with one piece changed, and the whole of its message.
const WRONG: &[(&str, &str, &str)] = &[
    (
        "rate = \"400kbit\", ceil = \"5mbit\", limit",
        "raet = \"400kbit\", ceil = \"5mbit\", limit",
        "x.toml:23:3: error: network.links.r-b.queue.classes.p1.rate: is missing; write a bit rate such as \"5mbit\" (bit, \
         kbit, mbit, gbit, tbit)\n\
         x.toml:23:37: error: network.links.r-b.queue.classes.p1: unknown key `raet` in a class of discipline \"htb\"; did \
         you mean `rate`? allowed: name, dscp, rate, ceil, prio, quantum, burst, cburst, limit",
    ),
    (
        "name = \"p2\"",
        "name = \"p1\"",
        "x.toml:24:12: error: network.links.r-b.queue.classes.p1.name: the name `p1` is taken (line 23)",
    ),
    (
        "dscp = [34]",
        "dscp = [34, 46]",
        "x.toml:24:25: error: network.links.r-b.queue.classes.p2.dscp: code point 46 has class `p1` already",
    ),
    (
        "dscp = [34]",
        "dscp = [\"CS6\"]",
        "x.toml:24:25: error: network.links.r-b.queue.classes.p2.dscp: code point CS6 is `direct` already",
    ),
    (
        "dscp = [34]",
        "dscp = [34, 64]",
        "x.toml:24:30: error: network.links.r-b.queue.classes.p2.dscp: 64 is not a code point; write a number from 0 to 63, \
         \"ef\", \"af41\" or \"cs6\"",
    ),
    (
        "dscp = [34]",
        "dscp = 34",
        "x.toml:24:25: error: network.links.r-b.queue.classes.p2.dscp: 34 is not a list of code points, as [46] or [\"ef\"]",
    ),
    (
        "dscp = [34], ",
        "",
        "x.toml:24:3: error: network.links.r-b.queue.classes.p2.dscp: is missing: no packet would find the class",
    ),
    (
        "ceil = \"5mbit\", prio = 1",
        "ceil = \"300kbit\", prio = 1",
        "x.toml:24:56: error: network.links.r-b.queue.classes.p2.ceil: \"300kbit\" is below `rate`, 400kbit",
    ),
    (
        "ceil = \"5mbit\", prio = 1",
        "ceil = \"5mbit\", prio = 8",
        "x.toml:24:72: error: network.links.r-b.queue.classes.p2.prio: 8 is not a whole number from 0 to 7",
    ),
    (
        "rate = \"80kbit\"",
        "rate = \"4.3mbit\"",
        "x.toml:25:27: error: network.links.r-b.queue.classes.bulk.rate: \"4300kbit\" makes 5100kbit with the classes before \
         it: more than `rate` of the queue, 5mbit",
    ),
    (
        "rate = \"5mbit\", default = \"bulk\"",
        "rate = \"5mbit\", default = \"bluk\"",
        "x.toml:22:57: error: network.links.r-b.queue.default: \"bluk\" is not a class; there are p1, p2, bulk",
    ),
    (
        "direct = [\"cs6\"]",
        "direct = [\"cs9\"]",
        "x.toml:22:75: error: network.links.r-b.queue.direct: \"cs9\" is not a code point; write a number from 0 to 63, \"ef\", \
         \"af41\" or \"cs6\"",
    ),
    (
        "rate = \"5mbit\", default",
        "rate = \"5mbit\", ceil = \"4mbit\", default",
        "x.toml:22:54: error: network.links.r-b.queue.ceil: \"4mbit\" is below `rate`, 5mbit",
    ),
];

#[test]
fn what_is_wrong_is_said_at_its_key() {
    let mut others = Vec::new();
    for (from, to, message) in WRONG {
        let queue = QUEUE.replacen(from, to, 1);
        assert_ne!(queue, QUEUE, "{from} is not in the file");
        let errors = parse("x.toml", &format!("{HEAD}{queue}"), &Options::default()).expect_err(to);
        if errors.to_string().trim_end() != *message {
            others.push(format!("{errors}, not\n{message}"));
        }
    }
    assert!(others.is_empty(), "{}", others.join("\n"));
    let list = |classes: &str| {
        let queue = format!("queue = {{ discipline = \"htb\", rate = \"5mbit\", classes = {classes} }}\n");
        let errors = parse("x.toml", &format!("{HEAD}{queue}"), &Options::default()).expect_err(classes);
        errors.to_string().trim_end().to_owned()
    };
    let place = "x.toml:22:57: error: network.links.r-b.queue.classes";
    assert_eq!(list("[]"), format!("{place}: is empty; leave it out for one class that takes everything"));
    assert_eq!(list("3"), format!("{place}: 3 is not a list of tables"));
}

#[test]
fn the_schema_knows_classes() {
    let schema = jsonschema::draft202012::new(&json_schema(REGISTRY)).expect("a valid schema");
    let file: toml::Table = format!("{HEAD}{QUEUE}").parse().expect("valid TOML");
    let good = serde_json::to_value(file).expect("TOML without dates is JSON");
    assert!(schema.is_valid(&good), "{:?}", schema.iter_errors(&good).next().map(|e| e.to_string()));
    for (pointer, value) in [
        ("/classes/0/dscp", json!([64])),
        ("/classes/0/dscp", json!(46)),
        ("/classes/0/rate", json!(5)),
        ("/classes/0/raet", json!("5mbit")),
        ("/classes/1/prio", json!(8)),
        ("/classes", json!("p1")),
        ("/direct", json!([true])),
    ] {
        let mut wrong = good.clone();
        let (parent, key) = pointer.rsplit_once('/').expect("a path");
        let queue = wrong.pointer_mut("/network/links/1/queue").expect("the queue");
        queue.pointer_mut(parent).expect("a table")[key] = value.clone();
        assert!(!schema.is_valid(&wrong), "{pointer} = {value}");
    }
}
