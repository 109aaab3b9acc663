//! Wrong scenario files, each with the whole of its message.

use bandmaster_core::losses::{GilbertElliott, LossOf, LossPlan};
use bandmaster_core::qdisc;
use bandmaster_core::scenario::{ExtraSweep, Files, Options, Override, parse};
use proptest::prelude::*;

/// A valid file; each case below changes a piece of it.
const GOOD: &str = r#"version = 1
name = "good"
clients = 8

[run]
duration = "20s"
warm-up = "5s"

[network]
routers = ["r1", "r2"]
hosts = ["server"]

[network.link]
rate = "100mbit"
delay = "1ms"

[[network.links]]
ends = ["server", "r1"]
queue = "200pkt"

[[network.links]]
ends = ["r1", "r2"]

[[network.groups]]
name = "near"
attach = "r2"
share = 0.5
delay = "uniform(2ms, 6ms)"

[[network.groups]]
name = "far"
attach = "r2"
count = 4

[tcp]
congestion-control = "newreno"

[[flows]]
name = "uploads"
from = ["near", "far"]
to = "server"

[[flows]]
name = "noise"
transport = "udp"
from = "near.0"
to = "far.0"
rate = "5mbit"
start = "10s"
stop = "15s"

[schemes.bas]
servers = ["server"]
domain = ["server", "r1", "r2"]

[measure]
queue = "r1->server"
windows = [{ name = "burst", from = "10s", to = "15s" }]

[[compare]]
name = "tcp"
set = { "schemes.bas.enabled" = false }

[[compare]]
name = "bas"

[[sweeps]]
name = "n"
key = "clients"
values = [4, 8]

[[sweeps]]
name = "alpha"
key = "schemes.bas.alpha"
values = [0.1, 0.4]
variants = ["bas"]

[[claims]]
id = "fairer"
text = "BAS is fairer"
metric = "jain"
variant = "bas"
minus = "tcp"
sweep = "n"
low = -0.5
high = 0.5

[[figures]]
id = "jain"
title = "Jain's index"
kind = "sweep"
sweep = "n"
y = "jain"
"#;

fn message(text: &str, options: &Options) -> String {
    match parse("x.toml", text, options) {
        Ok(_) => "no error".to_owned(),
        Err(errors) => errors.to_string(),
    }
}

/// Checks (what is replaced, by what, the message).
fn check(cases: &[(&str, &str, &str)]) {
    check_in(GOOD, cases);
}

fn check_in(good: &str, cases: &[(&str, &str, &str)]) {
    let mut failures = String::new();
    for (from, to, expected) in cases {
        assert_eq!(good.matches(from).count(), 1, "`{from}` must occur once");
        let got = message(&good.replacen(from, to, 1), &Options::default());
        if got != *expected {
            failures.push_str(&format!("\n--- {from:?} -> {to:?}\nexpected {expected}\ngot      {got}\n"));
        }
    }
    assert!(failures.is_empty(), "{failures}");
}

#[test]
fn the_good_file_is_good() {
    assert_eq!(message(GOOD, &Options::default()), "no error");
}

/// Until the next version.
#[test]
fn keys_that_said_figure_for_metric_are_read() {
    let claim = GOOD.replace("minus = \"tcp\"", "minus = \"tcp\"\nagainst-metric = \"drops\"");
    let new =
        claim.replace("name = \"bas\"\n", "name = \"bas\"\npaper = [{ metric = \"jain\", value = 1.0 }]\n");
    let old = new.replace("metric = ", "figure = ");
    assert_eq!(old.matches("figure = ").count(), 3);
    let [new, old] = [new, old].map(|text| parse("x.toml", &text, &Options::default()).expect("valid"));
    assert_eq!((&old.claims, &old.variants), (&new.claims, &new.variants));
    check(&[(
        "metric = \"jain\"",
        "metric = \"jain\"\nfigure = \"queue\"",
        "x.toml:82:1: error: claims.fairer: `figure` conflicts with `metric`, its new name",
    )]);
}

#[test]
fn text_that_is_not_toml() {
    check(&[
        (
            "version = 1",
            "version = ",
            "x.toml:1:11: error: not TOML: string values must be quoted, expected literal string",
        ),
        (
            "rate = \"5mbit\"",
            "rate = 5mbit",
            "x.toml:48:8: error: not TOML: string values must be quoted, expected literal string",
        ),
        (
            "name = \"good\"",
            "name = \"good\"\nname = \"again\"",
            "x.toml:3:1: error: not TOML: duplicate key",
        ),
        (
            "clients = 8",
            "clients = 99999999999999999999",
            "x.toml:3:11: error: a number that does not fit into 64 bits: at most 9223372036854775807",
        ),
    ]);
}

#[test]
fn the_top_of_the_file() {
    check(&[
        (
            "version = 1",
            "",
            "x.toml:1:1: error: version: is missing; write version = 1 at the top of the file",
        ),
        (
            "version = 1",
            "version = 2",
            "x.toml:1:11: error: version: 2 is not known; this program reads version 1",
        ),
        (
            "version = 1",
            "version = \"1\"",
            "x.toml:1:11: error: version: \"1\" is not a whole number of at least 0",
        ),
        (
            "name = \"good\"",
            "name = \"Good One\"",
            "x.toml:2:8: error: name: \"Good One\" is not a word of a-z, 0-9 and -",
        ),
        ("name = \"good\"", "name = 5", "x.toml:2:8: error: name: 5 is not a text"),
        (
            "[run]",
            "[rnu]",
            "x.toml:1:1: error: run: is missing; write [run]\n\
             x.toml:5:2: error: unknown key `rnu` in the file; did you mean `run`? allowed: version, name, \
             title, description, include, clients, run, network, tcp, flows, schemes, control, faults, measure, compare, \
             sweeps, claims, figures",
        ),
        (
            "[measure]",
            "[mesure]",
            "x.toml:56:2: error: unknown key `mesure` in the file; did you mean `measure`? allowed: \
             version, name, title, description, include, clients, run, network, tcp, flows, schemes, control, faults, \
             measure, compare, sweeps, claims, figures",
        ),
    ]);
}

#[test]
fn quantities() {
    check(&[
        (
            "rate = \"100mbit\"",
            "rate = \"100mbps\"",
            "x.toml:14:8: error: network.link.rate: \"100mbps\" has the unit `mbps`: tc reads it as bytes \
             per second, ns-3 as bits; write bit, kbit, mbit or gbit",
        ),
        (
            "rate = \"100mbit\"",
            "rate = 100",
            "x.toml:14:8: error: network.link.rate: 100 has no unit; write a bit rate such as \"5mbit\" \
             (bit, kbit, mbit, gbit, tbit)",
        ),
        (
            "rate = \"100mbit\"",
            "rate = \"100\"",
            "x.toml:14:8: error: network.link.rate: \"100\" has no unit; write a bit rate such as \
             \"5mbit\" (bit, kbit, mbit, gbit, tbit)",
        ),
        (
            "rate = \"100mbit\"",
            "rate = \"-1mbit\"",
            "x.toml:14:8: error: network.link.rate: \"-1mbit\" is negative; write a bit rate such as \
             \"5mbit\" (bit, kbit, mbit, gbit, tbit)",
        ),
        (
            "rate = \"100mbit\"",
            "rate = \"0mbit\"",
            "x.toml:14:8: error: network.link.rate: \"0mbit\" is below 1kbit, the least rate",
        ),
        (
            "rate = \"100mbit\"",
            "rate = \"999bit\"",
            "x.toml:14:8: error: network.link.rate: \"999bit\" is below 1kbit, the least rate",
        ),
        (
            "delay = \"1ms\"",
            "delay = \"1msec\"",
            "x.toml:15:9: error: network.link.delay: \"1msec\" has the unit `msec`: write ms",
        ),
        (
            "delay = \"1ms\"",
            "delay = \"exponential(1ms)\"",
            "x.toml:15:9: error: network.link.delay: an exponential delay has no bound; write a time, \
             uniform(a, b), normal(mean, sd) or cdf(...)",
        ),
        (
            "delay = \"1ms\"",
            "delay = \"normal(1ms, 2ms)\"",
            "x.toml:15:9: error: network.link.delay: \"normal(1ms, 2ms)\" has a deviation above its mean, with \
             too many draws below zero; its deviation is at most its mean; write a time such as \"25ms\", \
             \"uniform(2ms, 6ms)\", \"normal(20ms, 2ms)\", \"exponential(15s)\", or \"cdf(10us 0.5, 20us 0.9, 1ms 1)\"",
        ),
        (
            "delay = \"1ms\"",
            "delay = \"normal(2ms)\"",
            "x.toml:15:9: error: network.link.delay: \"normal(2ms)\" needs a mean and a deviation, as in \
             \"normal(20ms, 2ms)\"; write a time such as \"25ms\", \"uniform(2ms, 6ms)\", \"normal(20ms, 2ms)\", \
             \"exponential(15s)\", or \"cdf(10us 0.5, 20us 0.9, 1ms 1)\"",
        ),
        (
            "delay = \"1ms\"",
            "delay = \"normal(50min, 3min)\"",
            "x.toml:15:9: error: network.link.delay: is longer than an hour",
        ),
        (
            "\"uniform(2ms, 6ms)\"",
            "\"uniform(6ms, 2ms)\"",
            "x.toml:28:9: error: network.groups.near.delay: \"uniform(6ms, 2ms)\" has its ends in the \
             wrong order; write a time such as \"25ms\", \"uniform(2ms, 6ms)\", \"normal(20ms, 2ms)\", \
             \"exponential(15s)\", or \"cdf(10us 0.5, 20us 0.9, 1ms 1)\"",
        ),
        (
            "queue = \"200pkt\"",
            "queue = 200",
            "x.toml:19:9: error: network.links.server-r1.queue: 200 has no unit; write \"200pkt\", \
             \"64KiB\", \"unlimited\", or a table such as { discipline = \"fifo\", limit = \"200pkt\" }",
        ),
        (
            "queue = \"200pkt\"",
            "queue = \"200packets\"",
            "x.toml:19:9: error: network.links.server-r1.queue: \"200packets\" has the unit `packets`: \
             write pkt; write \"200pkt\", \"64KiB\", \"unlimited\", or a table such as { discipline = \
             \"fifo\", limit = \"200pkt\" }",
        ),
        (
            "queue = \"200pkt\"",
            "queue = \"0B\"",
            "x.toml:19:9: error: network.links.server-r1.queue: would lose every packet; write at least \"1pkt\", or \
             as many bytes as the largest packet has",
        ),
        (
            "queue = \"200pkt\"",
            "queue = { discipline = \"codel\", limit = \"0pkt\" }",
            "x.toml:19:41: error: network.links.server-r1.queue.limit: would lose every packet; write at least \
             \"1pkt\", or as many bytes as the largest packet has",
        ),
        (
            "queue = \"200pkt\"",
            "queue = { discipline = \"fifo\", limits = \"5pkt\" }",
            "x.toml:19:32: error: network.links.server-r1.queue: unknown key `limits` in a queue with \
             discipline \"fifo\"; did you mean `limit`? allowed: discipline, limit, ecn-threshold, push-out",
        ),
        (
            "queue = \"200pkt\"",
            "loss = 1.0",
            "x.toml:19:8: error: network.links.server-r1.loss: 1 would lose every packet; write a number \
             from 0 to below 1",
        ),
        (
            "queue = \"200pkt\"",
            "loss = 1.5",
            "x.toml:19:8: error: network.links.server-r1.loss: 1.5 is not a number from 0 to 1",
        ),
        (
            "queue = \"200pkt\"",
            "drop-packets = [3, 0]",
            "x.toml:19:20: error: network.links.server-r1.drop-packets: 0 is not a whole number from 1",
        ),
        (
            "queue = \"200pkt\"",
            "loss-of = \"acks\"",
            "x.toml:19:11: error: network.links.server-r1.loss-of: \"acks\" is not \"all\" or \"data\"",
        ),
        (
            "queue = \"200pkt\"",
            "loss-of = \"date\"",
            "x.toml:19:11: error: network.links.server-r1.loss-of: \"date\" is not \"all\" or \"data\"; \
             did you mean \"data\"?",
        ),
        (
            "queue = \"200pkt\"",
            "loss-every = 1",
            "x.toml:19:14: error: network.links.server-r1.loss-every: 1 is not a whole number of at least 2",
        ),
        (
            "queue = \"200pkt\"",
            "gemodel = 0.1",
            "x.toml:19:11: error: network.links.server-r1.gemodel: 0.1 is not a table; write { p = 0.01, r = 0.25 }",
        ),
        (
            "queue = \"200pkt\"",
            "gemodel = { p = 0.1 }",
            "x.toml:19:11: error: network.links.server-r1.gemodel.r: is missing; write a number from 0 to 1",
        ),
        (
            "queue = \"200pkt\"",
            "gemodel = { p = 0.1, r = 0.0 }",
            "x.toml:19:26: error: network.links.server-r1.gemodel.r: 0 would never leave the bad state; write a number above 0, up to 1",
        ),
        (
            "queue = \"200pkt\"",
            "jitter-reorders = true",
            "x.toml:19:19: error: network.links.server-r1.jitter-reorders: also needs `jitter`",
        ),
        (
            "queue = \"200pkt\"",
            "reorder-gap = 5",
            "x.toml:19:15: error: network.links.server-r1.reorder-gap: also needs `reorder`",
        ),
        (
            "queue = \"200pkt\"",
            "reorder = 0.1\nreorder-delay = \"1ms\"",
            "x.toml:19:11: error: network.links.server-r1.reorder: 0.1 overtakes nothing: packets that overtake take 1ms, \
             and the others 1ms; write a longer `delay`, or a shorter `reorder-delay`",
        ),
        (
            "queue = \"200pkt\"",
            "rate-back = \"999bit\"",
            "x.toml:19:13: error: network.links.server-r1.rate-back: \"999bit\" is below 1kbit, the least rate",
        ),
        (
            "queue = \"200pkt\"",
            "rate-back = 5",
            "x.toml:19:13: error: network.links.server-r1.rate-back: 5 has no unit; write a bit rate such as \
             \"5mbit\" (bit, kbit, mbit, gbit, tbit)",
        ),
        (
            "queue = \"200pkt\"",
            "loss-every = 0",
            "x.toml:19:14: error: network.links.server-r1.loss-every: 0 is not a whole number of at least 2",
        ),
        (
            "queue = \"200pkt\"",
            "loss-every = 2.5",
            "x.toml:19:14: error: network.links.server-r1.loss-every: 2.5 is not a whole number of at least 2",
        ),
        (
            "rate = \"100mbit\"\n",
            "rate = \"100mbit\"\nloss-every = 1\n",
            "x.toml:15:14: error: network.link.loss-every: 1 is not a whole number of at least 2",
        ),
        (
            "duration = \"20s\"",
            "duration = 2020-01-01",
            "x.toml:6:12: error: run.duration: 2020-01-01 is not a time such as \"25ms\" (ns, us, ms, s, \
             min)",
        ),
    ]);
}

/// Links and groups take from `[network.link]` what they lack. Periodic and scripted losses have one direction.
#[test]
fn losses_reach_links_and_groups() {
    let defaults = "delay = \"1ms\"\nloss = 0.1\nloss-back = 0.2\nloss-of = \"data\"\nloss-every = 50";
    let text = GOOD
        .replace("delay = \"1ms\"", defaults)
        .replace("queue = \"200pkt\"", "loss-of = \"all\"\nloss-every = 7\ndrop-packets = [9, 3]");
    let study = parse("x.toml", &text, &Options::default()).unwrap_or_else(|e| panic!("{e}"));
    let mut scripted = 0;
    for link in &study.cases[0].scenario.topology.links {
        let is_scripted = !link.drop_packets.is_empty();
        let (of, every, script) =
            if is_scripted { (LossOf::All, 7, vec![3, 9]) } else { (LossOf::Data, 50, Vec::new()) };
        let every = Some(every);
        assert_eq!(link.losses(true), LossPlan { random: 0.1, of, every, script, ..LossPlan::default() });
        assert_eq!(link.losses(false), LossPlan { random: 0.2, of, ..LossPlan::default() });
        scripted += u32::from(is_scripted);
    }
    assert_eq!(scripted, 1);
}

/// The two directions lose alike unless one says otherwise; the parameters that netem gives a default have it.
#[test]
fn bursts_and_variations_reach_links_and_groups() {
    let defaults =
        "delay = \"1ms\"\ngemodel = { p = 0.01, r = 0.25 }\njitter = \"uniform(0ms, 2ms)\"\nreorder = 0.1";
    let back = "gemodel-back = { p = 0.5, r = 1, 1-h = 0.3, 1-k = 0.1 }\nreorder-gap = 4";
    let text = GOOD.replace("delay = \"1ms\"", defaults).replace("queue = \"200pkt\"", back);
    let study = parse("x.toml", &text, &Options::default()).unwrap_or_else(|e| panic!("{e}"));
    let usual = GilbertElliott { p: 0.01, r: 0.25, bad_loss: 1.0, good_loss: 0.0 };
    let other = GilbertElliott { p: 0.5, r: 1.0, bad_loss: 0.3, good_loss: 0.1 };
    let mut others = 0;
    for link in &study.cases[0].scenario.topology.links {
        let is_other = link.bursts_back.is_some();
        others += u32::from(is_other);
        assert_eq!(link.losses(true).bursts, Some(usual));
        assert_eq!(link.losses(false).bursts, Some(if is_other { other } else { usual }));
        let variation = link.variation;
        assert_eq!((variation.reorder, variation.reorder_gap), (0.1, if is_other { 4 } else { 1 }));
        assert!(variation.jitter.is_some() && !variation.jitter_reorders);
    }
    assert_eq!(others, 1);
}

#[test]
fn disciplines_that_do_not_exist() {
    let names: Vec<&str> = qdisc::registry::REGISTRY.iter().map(|def| def.name).collect();
    let names = names.join(", ");
    check(&[
        (
            "queue = \"200pkt\"",
            "queue = { discipline = \"fiffo\" }",
            &format!(
                "x.toml:19:24: error: network.links.server-r1.queue.discipline: unknown discipline \"fiffo\"; \
                 did you mean `fifo`? allowed: {names}"
            ),
        ),
        (
            "queue = \"200pkt\"",
            "queue = { limit = \"5pkt\" }",
            &format!(
                "x.toml:19:9: error: network.links.server-r1.queue.discipline: is missing or not a text; write \
                 the name of one: {names}"
            ),
        ),
    ]);
}

#[test]
fn parameters_of_a_discipline_that_do_not_go_together() {
    check(&[
        (
            "queue = \"200pkt\"",
            "queue = { discipline = \"red\", min-th = \"80pkt\", max-th = \"50pkt\" }",
            "x.toml:19:58: error: network.links.server-r1.queue.max-th: \"50pkt\" is not more than `min-th`, \
             \"80pkt\"",
        ),
        (
            // The default of one is held against what is written for the other.
            "queue = \"200pkt\"",
            "queue = { discipline = \"red\", min-th = \"20pkt\" }",
            "x.toml:19:9: error: network.links.server-r1.queue.max-th: \"15pkt\" is not more than `min-th`, \
             \"20pkt\"",
        ),
        (
            "queue = \"200pkt\"",
            "queue = { discipline = \"red\", min-th = \"20kB\", max-th = \"50pkt\" }",
            "x.toml:19:57: error: network.links.server-r1.queue.max-th: \"50pkt\" is not in the unit of `min-th`, \
             \"20000B\"",
        ),
        (
            "queue = \"200pkt\"",
            "queue = { discipline = \"red\", max-th = \"unlimited\" }",
            "x.toml:19:40: error: network.links.server-r1.queue.max-th: \"unlimited\" is not a threshold; write \
             \"50pkt\" or \"64KiB\"",
        ),
        (
            "queue = \"200pkt\"",
            "queue = { discipline = \"red\", limit = \"5pkt\" }",
            "x.toml:19:39: error: network.links.server-r1.queue.limit: \"5pkt\" is not more than `min-th`, \
             \"5pkt\": nothing would be dropped early",
        ),
        (
            "queue = \"200pkt\"",
            "queue = { discipline = \"red\", mean-packet = \"0B\" }",
            "x.toml:19:45: error: network.links.server-r1.queue.mean-packet: \"0B\" is not a packet; write a size \
             such as \"1000B\"",
        ),
        (
            "queue = \"200pkt\"",
            "queue = { discipline = \"red\", spare-below = \"3kB\" }",
            "x.toml:19:45: error: network.links.server-r1.queue.spare-below: \"3kB\" has the unknown unit `kB`; write \
             a number of packets such as \"200pkt\"",
        ),
        (
            "queue = \"200pkt\"",
            "queue = { discipline = \"ared\", max-th = \"50pkt\" }",
            "x.toml:19:41: error: network.links.server-r1.queue.max-th: \"50pkt\" stands without `min-th`",
        ),
        (
            "queue = \"200pkt\"",
            "queue = { discipline = \"pie\", update = \"0ms\" }",
            "x.toml:19:40: error: network.links.server-r1.queue.update: \"0s\" is shorter than 100us",
        ),
    ]);
}

#[test]
fn run_and_measure() {
    check(&[
        (
            "duration = \"20s\"",
            "",
            "x.toml:5:1: error: run.duration: is missing; write a time such as \"25ms\" (ns, us, ms, s, \
             min)",
        ),
        (
            "duration = \"20s\"",
            "duration = \"0s\"",
            "x.toml:5:1: error: run.sample: \"100ms\" is longer than the run, 0s\n\
             x.toml:6:12: error: run.duration: must be longer than 0s",
        ),
        (
            "warm-up = \"5s\"",
            "warm-up = \"20s\"",
            "x.toml:7:11: error: run.warm-up: \"20s\" is not shorter than the run, 20s",
        ),
        ("warm-up = \"5s\"", "sample = \"0s\"", "x.toml:7:10: error: run.sample: must be longer than 0s"),
        (
            "warm-up = \"5s\"",
            "sample = \"21s\"",
            "x.toml:7:10: error: run.sample: \"21s\" is longer than the run, 20s",
        ),
        (
            "warm-up = \"5s\"",
            "sample = \"1ns\"",
            "x.toml:7:10: error: run.sample: \"1ns\" makes more than 10000000 samples of 20s",
        ),
        (
            "warm-up = \"5s\"",
            "sample = \"300ms\"",
            "x.toml:56:1: error: measure.long-interval: \"1s\", the default, is not a multiple of the \
             sampling interval, 300ms",
        ),
        (
            "warm-up = \"5s\"",
            "trials = 0",
            "x.toml:7:10: error: run.trials: 0 is not a whole number from 1 to 100000",
        ),
        (
            "queue = \"r1->server\"",
            "queue = \"r1->sever\"",
            "x.toml:57:9: error: measure.queue: no port is called \"r1->sever\"; did you mean \
             `r1->server`? allowed: server->r1, r1->server, r1->r2, r2->r1",
        ),
        (
            "queue = \"r1->server\"",
            "record = \"all\"",
            "x.toml:57:10: error: measure.record: \"all\" is not \"none\", \"groups\" or \"flows\"",
        ),
        (
            "to = \"15s\" }",
            "to = \"25s\" }",
            "x.toml:58:49: error: measure.windows.burst.to: \"25s\" is after the end of the run, 20s",
        ),
        (
            "to = \"15s\" }",
            "to = \"10s\" }",
            "x.toml:58:49: error: measure.windows.burst.to: \"10s\" is not after `from`, 10s",
        ),
        (
            "to = \"15s\" }]",
            "to = \"15s\" }, { name = \"burst\", from = \"0s\", to = \"1s\" }]",
            "x.toml:58:67: error: measure.windows.burst.name: the name `burst` is taken (line 58)",
        ),
        (
            "to = \"15s\" }]",
            "to = \"15s\", of = \"nobody\" }]",
            "x.toml:58:61: error: measure.windows.burst.of: \"nobody\" sends no flow that is measured; allowed: near, far",
        ),
    ]);
}

/// Keys that stand in `[faults]` and `[measure]`.
#[test]
fn faults_gauges_and_tracking() {
    let cases: &[(&str, &str)] = &[
        (
            "[faults]\nprobe-loss = 1.0",
            "x.toml:21:14: error: faults.probe-loss: 1 would lose every probe; write a number from 0 to below 1",
        ),
        (
            "[faults]\nprobe-loss = \"5%\"",
            "x.toml:21:14: error: faults.probe-loss: \"5%\" is not a number from 0 to 1",
        ),
        (
            "[[faults.restarts]]\nnode = \"r3\"\nat = [\"1s\"]",
            "x.toml:21:8: error: faults.restarts.0.node: no node is called \"r3\"; did you mean `r1`? allowed: r1, r2, a, b",
        ),
        (
            "[[faults.restarts]]\nnode = \"r1\"\nat = []",
            "x.toml:22:6: error: faults.restarts.0.at: is an empty list",
        ),
        (
            "[[faults.restarts]]\nnode = \"r1\"\nat = [\"1s\", \"2\"]",
            "x.toml:22:6: error: faults.restarts.0.at: \"2\" has no unit; write a time such as \"25ms\" (ns, us, ms, s, min)",
        ),
        (
            "[[faults.restarts]]\nnode = \"r1\"\nat = [\"21s\"]",
            "x.toml:22:6: error: faults.restarts.0.at: \"21s\" is after the end of the run, 20s",
        ),
        (
            "[[faults.restarts]]\nnode = \"r1\"",
            "x.toml:20:1: error: faults.restarts.0.at: is missing; write a text or a list of texts",
        ),
        (
            "[[faults.absences]]\nnode = \"r3\"\nleaves = [\"1s\"]",
            "x.toml:21:8: error: faults.absences.0.node: no node is called \"r3\"; did you mean `r1`? allowed: r1, r2, a, b",
        ),
        (
            "[[faults.absences]]\nnode = \"r1\"",
            "x.toml:20:1: error: faults.absences.0.leaves: is missing; write a text or a list of texts",
        ),
        (
            "[[faults.absences]]\nnode = \"r1\"\nleaves = []",
            "x.toml:22:10: error: faults.absences.0.leaves: is an empty list",
        ),
        (
            "[[faults.absences]]\nnode = \"r1\"\nleaves = [\"1s\"]\njoins = []",
            "x.toml:23:9: error: faults.absences.0.joins: is an empty list",
        ),
        (
            "[[faults.absences]]\nnode = \"r1\"\nleaves = [\"1s\"]\njoins = [\"21s\"]",
            "x.toml:23:9: error: faults.absences.0.joins: \"21s\" is after the end of the run, 20s",
        ),
        (
            "[[faults.absences]]\nnode = \"r1\"\nleaves = [\"2s\"]\njoins = [\"1s\"]",
            "x.toml:20:1: error: faults.absences: at 1s \"r1\" joins, and has not left before",
        ),
        (
            "[[faults.absences]]\nnode = \"r1\"\nleaves = [\"1s\"]\n[[faults.absences]]\nnode = \"r1\"\nleaves = [\"2s\"]",
            "x.toml:20:1: error: faults.absences: at 2s \"r1\" leaves, and has left before",
        ),
        (
            "[faults]\nreroute = \"50\"",
            "x.toml:21:11: error: faults.reroute: \"50\" has no unit; write a time such as \"25ms\", \"uniform(2ms, 6ms)\", \"normal(20ms, 2ms)\", \"exponential(15s)\", or \"cdf(10us 0.5, 20us 0.9, 1ms 1)\"",
        ),
        (
            "[[faults.links]]\nends = [\"r1\", \"r3\"]\ndown = \"1s\"",
            "x.toml:21:8: error: faults.links.r1-r3.ends: no node is called \"r3\"; did you mean `r1`? allowed: r1, r2, a, b",
        ),
        (
            "[[faults.links]]\nends = \"r1\"\ndown = \"1s\"",
            "x.toml:21:8: error: faults.links.0.ends: a link has two ends, as in [\"r1\", \"r2\"], not 1",
        ),
        (
            "[[faults.links]]\nends = [\"a\", \"b\"]\ndown = \"1s\"",
            "x.toml:21:8: error: faults.links.a-b.ends: `a` and `b` have no link; `a` has links to r1; `b` has links to r2",
        ),
        (
            "[[faults.links]]\nends = [\"r2\", \"r1\"]\nnumber = 2\ndown = \"1s\"",
            "x.toml:22:10: error: faults.links.r2-r1.number: 2 is no link: `r2` and `r1` have 1",
        ),
        (
            "[[faults.nodes]]\nnode = \"r1\"",
            "x.toml:20:1: error: faults.nodes.0: does not say when it goes down; write `down`, or `time-to-failure` and `time-to-repair`",
        ),
        (
            "[[faults.nodes]]\nnode = \"r1\"\ndown = [\"1s\", \"2s\"]",
            "x.toml:22:8: error: faults.nodes.0.down: at 2s it is down already",
        ),
        (
            "[[faults.nodes]]\nnode = \"r1\"\ndown = \"3s\"\nup = \"2s\"",
            "x.toml:23:6: error: faults.nodes.0.up: at 2s it is up already",
        ),
        (
            "[[faults.nodes]]\nnode = \"r1\"\ndown = \"21s\"",
            "x.toml:22:8: error: faults.nodes.0.down: \"21s\" is after the end of the run, 20s",
        ),
        (
            "[[faults.nodes]]\nnode = \"r1\"\nup = \"2s\"",
            "x.toml:22:6: error: faults.nodes.0.up: also needs `down`",
        ),
        (
            "[[faults.nodes]]\nnode = \"r1\"\ndown = \"2s\"\ntime-to-repair = \"1s\"",
            "x.toml:23:18: error: faults.nodes.0.time-to-repair: conflicts with `down`; times are stated or drawn",
        ),
        (
            "[[faults.nodes]]\nnode = \"r1\"\ntime-to-failure = \"1s\"",
            "x.toml:22:19: error: faults.nodes.0.time-to-failure: also needs `time-to-repair`",
        ),
        (
            "[[faults.nodes]]\nnode = \"r1\"\ntime-to-failure = \"1ms\"\ntime-to-repair = \"1ms\"",
            "x.toml:22:19: error: faults.nodes.0.time-to-failure: makes 10000 failures in a trial, with those above; at most 5000",
        ),
        (
            "[[faults.nodes]]\nnode = \"r1\"\ntime-to-failure = \"0s\"\ntime-to-repair = \"1ms\"",
            "x.toml:22:19: error: faults.nodes.0.time-to-failure: a mean of 0s is no time; write a longer one, such as \"exponential(1s)\"",
        ),
        (
            "[[faults.nodes]]\nnode = \"r1\"\ndown = \"1s\"\n[[faults.nodes]]\nnode = \"r1\"\ndown = \"2s\"",
            "x.toml:24:8: error: faults.nodes.1.node: this node has a table already (line 21); write all its times in one table",
        ),
        ("[measure]\ngauges = [\"r1\"]", "x.toml:21:10: error: measure.gauges: \"r1\" is not `node.gauge`"),
        (
            "[measure]\ngauges = [\"r3.estimate\"]",
            "x.toml:21:10: error: measure.gauges: no node is called \"r3\"; did you mean `r1`? allowed: r1, r2, a, b",
        ),
        (
            "[measure]\ngauges = [\"r1.estimat\"]",
            "x.toml:21:10: error: measure.gauges: unknown gauge `estimat`; did you mean `estimate`? allowed: estimate, step, received, loss, lost, updates, classes, tuned, cued, firing, coverage, spare, silent, mismatch, messages, noise",
        ),
        (
            "[measure]\ngauges = [\"r1.spare\", \"r1.spare\"]",
            "x.toml:21:10: error: measure.gauges: \"r1.spare\" occurs twice",
        ),
        (
            "[measure.tracking]\nnode = \"r3\"\nport = \"r1->r2\"",
            "x.toml:21:8: error: measure.tracking.node: no node is called \"r3\"; did you mean `r1`? allowed: r1, r2, a, b",
        ),
        (
            "[measure.tracking]\nnode = \"r1\"\nport = \"r2->r3\"",
            "x.toml:22:8: error: measure.tracking.port: no port is called \"r2->r3\"; did you mean `r2->r1`? allowed: r1->r2, r2->r1, a->r1, r1->a, r2->b, b->r2",
        ),
        (
            "[measure.tracking]\nnode = \"r1\"\nport = \"r1->r2\"\nwithin = \"0bit\"",
            "x.toml:23:10: error: measure.tracking.within: must be more than nothing",
        ),
        (
            "[measure.tracking]\nnode = \"r1\"\nport = \"r1->r2\"\n[[network.links]]\nends = [\"a\", \"r2\"]",
            "no error",
        ),
        (
            "needs = \"1mbit\"\nneeds-over = \"0s\"",
            "x.toml:21:14: error: flows.f.needs-over: \"0s\" is not a multiple of the sampling interval, 100ms",
        ),
        (
            "needs = \"1mbit\"\nneeds-over = \"1550ms\"",
            "x.toml:21:14: error: flows.f.needs-over: \"1550ms\" is not a multiple of the sampling interval, 100ms",
        ),
        (
            "CHANGING",
            "x.toml:25:8: error: measure.tracking.port: the capacity of \"r2->a\" changes by the link's `capacity-back`; write a port whose link has a fixed rate",
        ),
        (
            "CLAIM gw",
            "x.toml:25:10: error: claims.c.metric: \"r1.estimate.max\" is of a gauge that `measure.gauges` does not name; write measure.gauges = [\"r1.estimate\"]",
        ),
        (
            "CLAIM follow",
            "x.toml:25:10: error: claims.c.metric: \"follow_max\" needs [measure.tracking]; say there which estimate is compared with which port",
        ),
        (
            "CLAIM faults",
            "x.toml:25:10: error: claims.c.metric: \"fault_losses\" is of links and nodes that fail; write [[faults.links]] or [[faults.nodes]]",
        ),
        ("FIGURE free", "x.toml:26:10: error: figures.f.beside: \"free\" needs [measure.tracking]"),
        (
            "FIGURE node",
            "x.toml:25:12: error: figures.f.entities: no node is called \"r3\"; a gauge is of a node; did you mean `r1`? allowed: r1, r2, a, b",
        ),
        ("FIGURE trial", "x.toml:25:9: error: figures.f.trial: 10 is not run: there are 10 trials, from 0"),
    ];
    let base = "version = 1\nname = \"faults\"\n[run]\nduration = \"20s\"\n[network]\nrouters = [\"r1\", \"r2\"]\n\
                hosts = [\"a\", \"b\"]\n[network.link]\nrate = \"1mbit\"\n[[network.links]]\nends = [\"r1\", \"r2\"]\n\
                [[network.links]]\nends = [\"a\", \"r1\"]\n[[network.links]]\nends = [\"r2\", \"b\"]\n\
                [[flows]]\nname = \"f\"\nfrom = \"a\"\nto = \"b\"\n";
    let claim = |metric: &str| {
        format!("[[claims]]\nid = \"c\"\ntext = \"t\"\nvariant = \"base\"\nhigh = 0.5\nmetric = \"{metric}\"")
    };
    let figure = |rest: &str| format!("[[figures]]\nid = \"f\"\ntitle = \"t\"\nkind = \"series\"\n{rest}");
    let mut failures = String::new();
    for (written, expected) in cases {
        let written = match *written {
            "CHANGING" => "[[network.links]]\nends = [\"a\", \"r2\"]\n\
                           capacity-back.steps = [{ at = \"5s\", rate = \"2mbit\" }]\n\
                           [measure.tracking]\nnode = \"r1\"\nport = \"r2->a\"\nwithin = \"1kbit\""
                .to_owned(),
            "CLAIM gw" => claim("r1.estimate.max"),
            "CLAIM follow" => claim("follow_max"),
            "CLAIM faults" => claim("fault_losses"),
            "FIGURE free" => figure("y = \"estimate\"\nentities = \"r1\"\nbeside = \"free\""),
            "FIGURE node" => figure("y = \"estimate\"\nentities = \"r3\""),
            "FIGURE trial" => figure("y = \"throughput\"\ntrial = 10"),
            other => other.to_owned(),
        };
        let got = message(&format!("{base}{written}\n"), &Options::default());
        if got != *expected {
            failures.push_str(&format!("\n--- {written}\nexpected {expected}\ngot      {got}\n"));
        }
    }
    assert!(failures.is_empty(), "{failures}");
    assert_eq!(message(base, &Options::default()), "no error");
}

#[test]
fn networks() {
    check(&[
        (
            "delay = \"1ms\"",
            "dely = \"1ms\"",
            "x.toml:15:1: error: network.link: unknown key `dely` in [network.link]; did you mean `delay`? \
             allowed: rate, rate-back, capacity, capacity-back, delay, queue, queue-back, host-queue, loss, loss-back, loss-of, loss-every, gemodel, gemodel-back, jitter, jitter-reorders, reorder, reorder-gap, reorder-delay",
        ),
        (
            "rate = \"100mbit\"\n",
            "",
            "x.toml:16:1: error: network.links.server-r1.rate: is missing; write it here or in \
             [network.link]\n\
             x.toml:20:1: error: network.links.r1-r2.rate: is missing; write it here or in [network.link]\n\
             x.toml:23:1: error: network.groups.near.rate: is missing; write it here or in [network.link]\n\
             x.toml:29:1: error: network.groups.far.rate: is missing; write it here or in [network.link]",
        ),
        (
            "ends = [\"r1\", \"r2\"]",
            "ends = [\"r1\", \"r3\"]",
            "x.toml:22:8: error: network.links.r1-r3.ends: unknown node `r3`; did you mean `r1`? allowed: \
             r1, r2, server",
        ),
        (
            "ends = [\"r1\", \"r2\"]",
            "ends = [\"r1\", \"r1\"]",
            "x.toml:22:8: error: network.links.r1-r1.ends: links `r1` to itself",
        ),
        (
            "ends = [\"r1\", \"r2\"]",
            "ends = [\"r1\"]",
            "x.toml:22:8: error: network.links.r1.ends: a link has two ends, as in [\"r1\", \"r2\"], not 1",
        ),
        (
            "[[network.links]]\nends = [\"r1\", \"r2\"]",
            "",
            "x.toml:39:8: error: flows.uploads.from: no path from `near.0` to `server`: they are in \
             separate parts of the network; link the nodes through routers",
        ),
        (
            "[[network.links]]\nends = [\"server\", \"r1\"]\nqueue = \"200pkt\"\n",
            "",
            "x.toml:37:8: error: flows.uploads.from: no path from `near.0` to `server`: `server` has no link; link the nodes through routers\n\
             x.toml:54:9: error: measure.queue: no port is called \"r1->server\"; allowed: r1->r2, r2->r1",
        ),
        (
            "routers = [\"r1\", \"r2\"]\nhosts = [\"server\"]",
            "routers = [\"r2\"]\nhosts = [\"server\", \"r1\"]",
            "x.toml:40:8: error: flows.uploads.from: no path from `near.0` to `server`: it leads through a \
             host, and hosts do not forward; link the nodes through routers",
        ),
        (
            "hosts = [\"server\"]",
            "hosts = [\"server\", \"r1\"]",
            "x.toml:11:20: error: network.hosts: the name `r1` is taken (line 10)",
        ),
        (
            "hosts = [\"server\"]",
            "hosts = [\"the server\"]",
            "x.toml:11:10: error: network.hosts: \"the server\" is not a name of letters, digits, - and _\n\
             x.toml:18:8: error: network.links.server-r1.ends: unknown node `server`; allowed: r1, r2",
        ),
        (
            "hosts = [\"server\"]",
            "hosts = [\"server\", \"far\"]",
            "x.toml:31:8: error: network.groups.far: the name `far` is already that of a node",
        ),
        (
            "name = \"far\"",
            "name = \"near\"",
            "x.toml:25:8: error: network.groups.near: the name `near` is already that of a group",
        ),
        (
            "attach = \"r2\"\ncount",
            "attach = \"server\"\ncount",
            "x.toml:32:10: error: network.groups.far.attach: `server` is a host, and hosts do not forward",
        ),
        (
            "attach = \"r2\"\ncount",
            "attach = \"r3\"\ncount",
            "x.toml:32:10: error: network.groups.far.attach: unknown router `r3`; did you mean `r1`? \
             allowed: r1, r2",
        ),
        (
            "count = 4",
            "",
            "x.toml:30:1: error: network.groups.far: has no number of hosts; write `count` or `share`",
        ),
        (
            "count = 4",
            "count = 4\nshare = 0.5",
            "x.toml:34:9: error: network.groups.far.share: conflicts with `count`; a group has one of them",
        ),
        (
            "count = 4",
            "count = 0",
            "x.toml:33:9: error: network.groups.far.count: 0 is not a whole number from 1 to 1000000",
        ),
        (
            "share = 0.5",
            "share = 0.3",
            "x.toml:27:9: error: network.groups.near.share: 0.3 of 8 clients is 2.4 hosts; it must be a \
             whole number, 1 or more",
        ),
        (
            "clients = 8",
            "",
            "x.toml:27:9: error: network.groups.near.share: is a part of `clients`, which the file does \
             not give",
        ),
        (
            "hosts = [\"server\"]",
            "hosts = [\"server\"]\nspines = 2",
            "x.toml:12:1: error: network: `spines` goes with builder = \"leaf-spine\", not with \"custom\"",
        ),
        (
            "hosts = [\"server\"]",
            "hosts = [\"server\"]\nbuilder = \"dumbell\"",
            "x.toml:12:11: error: network.builder: \"dumbell\" is not \"custom\", \"dumbbell\", \"star\", \
             \"parking-lot\", \"leaf-spine\", \"fat-tree\", \"pod\", \"dual-fat-tree\" or \"graphml\"; did you mean \"dumbbell\"?",
        ),
        (
            "hosts = [\"server\"]",
            "hosts = [\"server\"]\nbuilder = \"fat-tree\"\nk = 3\nleaves = 4",
            "x.toml:13:5: error: network.k: 3 is odd; a fat tree needs an even number of ports\n\
             x.toml:14:1: error: network: `leaves` goes with builder = \"leaf-spine\", not with \
             \"fat-tree\"",
        ),
    ]);
}

/// Files in the folder of the scenario.
#[derive(Debug)]
struct Beside;

impl Files for Beside {
    fn read(&self, name: &str) -> Result<String, String> {
        match name {
            "good.trace" => Ok("0\n1\n1\n9\n".to_owned()),
            "empty.trace" => Ok(String::new()),
            "blank.trace" => Ok("1\n\n2\n".to_owned()),
            "words.trace" => Ok("1\n2\nthree\n".to_owned()),
            "fraction.trace" => Ok("1.5\n".to_owned()),
            "back.trace" => Ok("1\n7\n5\n".to_owned()),
            "zero.trace" => Ok("0\n0\n".to_owned()),
            _ => Err("no such file".to_owned()),
        }
    }
}

/// What stands in place of a link's queue, and the message.
#[test]
fn links_whose_capacity_changes() {
    const PLACE: &str = "queue = \"200pkt\"";
    const FORMS: &str = "write { steps = [{ at = \"15s\", rate = \"1mbit\" }] } or { trace = \"FILE\" }";
    let cases: &[(&str, &str)] = &[
        (
            "capacity = { steps = [{ at = \"0s\", rate = \"0bit\" }, { at = \"5s\", rate = \"1mbit\" }] }",
            "no error",
        ),
        ("capacity.steps = [{ at = \"5s\", rate = \"0bit\" }]\ncapacity.period = \"6s\"", "no error"),
        ("capacity.trace = \"good.trace\"\ncapacity-back.trace = \"good.trace\"", "no error"),
        (
            "capacity = \"1mbit\"",
            &format!(
                "x.toml:19:12: error: network.links.server-r1.capacity: \"1mbit\" is not a table; {FORMS}"
            ),
        ),
        (
            "capacity-back = {}",
            "x.toml:19:17: error: network.links.server-r1.capacity-back: does not say how the capacity changes; \
             write `steps` or `trace`",
        ),
        (
            "capacity = { step = [] }",
            "x.toml:19:12: error: network.links.server-r1.capacity: does not say how the capacity changes; write \
             `steps` or `trace`\n\
             x.toml:19:14: error: network.links.server-r1.capacity: unknown key `step` in the capacity of a link; \
             did you mean `steps`? allowed: steps, period, trace",
        ),
        (
            "capacity = { trace = \"good.trace\", steps = [] }",
            "x.toml:19:22: error: network.links.server-r1.capacity.trace: conflicts with `steps`; a capacity has one \
             of them",
        ),
        (
            "capacity = { trace = \"good.trace\", period = \"5s\" }",
            "x.toml:19:45: error: network.links.server-r1.capacity.period: goes with `steps`; a trace restarts after \
             its last line",
        ),
        (
            "capacity.steps = []",
            "x.toml:19:18: error: network.links.server-r1.capacity.steps: is empty; write steps such as \
             { at = \"15s\", rate = \"1mbit\" }",
        ),
        (
            "capacity.steps = [{ at = \"5s\" }]",
            "x.toml:19:19: error: network.links.server-r1.capacity.steps.0.rate: is missing; write a bit rate such \
             as \"5mbit\" (bit, kbit, mbit, gbit, tbit)",
        ),
        (
            "capacity.steps = [{ at = \"5s\", rate = \"1bit\" }]",
            "x.toml:19:39: error: network.links.server-r1.capacity.steps.0.rate: \"1bit\" is below 1kbit, the least \
             rate, and not a pause, 0bit",
        ),
        (
            "capacity.steps = [{ at = \"5s\", rate = \"2mbit\" }, { at = \"5000ms\", rate = \"1mbit\" }]",
            "x.toml:19:57: error: network.links.server-r1.capacity.steps.1.at: \"5s\" is not after the step before \
             it, \"5s\"",
        ),
        (
            "capacity.steps = [{ at = \"5s\", rate = \"2mbit\" }, { at = \"6s\", rate = \"0bit\" }]",
            "x.toml:19:70: error: network.links.server-r1.capacity.steps.1.rate: is 0 for ever; write a later step \
             with a rate, or a `period`",
        ),
        (
            "capacity = { steps = [{ at = \"5s\", rate = \"2mbit\" }], period = \"5s\" }",
            "x.toml:19:30: error: network.links.server-r1.capacity.steps.0.at: \"5s\" is not before the end of the \
             period, \"5s\"",
        ),
        (
            "capacity = { steps = [{ at = \"0s\", rate = \"0bit\" }], period = \"5s\" }",
            "x.toml:19:22: error: network.links.server-r1.capacity.steps: is a pause for ever: no step has a rate \
             above 0",
        ),
        (
            "capacity.trace = \"none.trace\"",
            "x.toml:19:18: error: network.links.server-r1.capacity.trace: none.trace: no such file",
        ),
        (
            "capacity.trace = \"empty.trace\"",
            "x.toml:19:18: error: network.links.server-r1.capacity.trace: empty.trace: is empty; write a line for \
             each opportunity, a time in whole milliseconds, from 0 to 4294967295",
        ),
        (
            "capacity.trace = \"blank.trace\"",
            "x.toml:19:18: error: network.links.server-r1.capacity.trace: blank.trace:2: is empty; each line is a \
             time in whole milliseconds, from 0 to 4294967295",
        ),
        (
            "capacity.trace = \"words.trace\"",
            "x.toml:19:18: error: network.links.server-r1.capacity.trace: words.trace:3: \"three\" is not a time in \
             whole milliseconds, from 0 to 4294967295",
        ),
        (
            "capacity.trace = \"fraction.trace\"",
            "x.toml:19:18: error: network.links.server-r1.capacity.trace: fraction.trace:1: \"1.5\" is not a time in \
             whole milliseconds, from 0 to 4294967295",
        ),
        (
            "capacity-back.trace = \"back.trace\"",
            "x.toml:19:23: error: network.links.server-r1.capacity-back.trace: back.trace:3: 5 comes before the line \
             above it, 7; times never decrease",
        ),
        (
            "capacity.trace = \"zero.trace\"",
            "x.toml:19:18: error: network.links.server-r1.capacity.trace: zero.trace: ends at 0; the last line is the \
             length of the trace and must be at least 1",
        ),
    ];
    let options = Options { files: Some(&Beside), ..Options::default() };
    let mut failures = String::new();
    for (written, expected) in cases {
        let got = message(&GOOD.replacen(PLACE, written, 1), &options);
        if got != *expected {
            failures.push_str(&format!("\n--- {written}\nexpected {expected}\ngot      {got}\n"));
        }
    }
    assert!(failures.is_empty(), "{failures}");
    let traced = GOOD.replacen(PLACE, "capacity.trace = \"good.trace\"", 1);
    assert_eq!(
        message(&traced, &Options::default()),
        "x.toml:19:18: error: network.links.server-r1.capacity.trace: \"good.trace\" is a file, and there are no \
         files here"
    );
    // What stands for several links is wrong once.
    let common = GOOD.replacen("delay = \"1ms\"", "delay = \"1ms\"\ncapacity.trace = \"zero.trace\"", 1);
    assert_eq!(
        message(&common, &options),
        "x.toml:16:18: error: network.link.capacity.trace: zero.trace: ends at 0; the last line is the length of the \
         trace and must be at least 1"
    );
    // A table of a variant or of the command line takes the place of the file's.
    let replaced = Options {
        overrides: vec![
            "network.links.server-r1.capacity={ steps = [{ at = '1s', rate = '1mbit' }] }"
                .parse()
                .expect("an override"),
        ],
        ..options
    };
    assert_eq!(message(&traced, &replaced), "no error");
}

#[test]
fn traffic() {
    check(&[
        (
            "to = \"server\"",
            "to = \"near\"\npairing = \"exchange\"\nsize = \"1MB\"",
            "x.toml:41:6: error: flows.uploads.to: of an exchange are the hosts of `from`; write the same\n\
             x.toml:54:2: error: schemes: bas decides for single flows, and those of an exchange are too many to be \
             distinguished (variant `bas`)",
        ),
        (
            "to = \"server\"",
            "to = [\"near\", \"far\"]\npairing = \"exchange\"",
            "x.toml:42:11: error: flows.uploads.pairing: \"exchange\" needs `size` or `sizes`, of its messages",
        ),
        (
            "to = \"server\"",
            "to = [\"near\", \"far\"]\npairing = \"exchange\"\nsizes = [\"1MB\", \"0B\"]",
            "x.toml:43:9: error: flows.uploads.sizes: \"0B\" is nothing to send\n\
             x.toml:54:2: error: schemes: bas decides for single flows, and those of an exchange are too many to be \
             distinguished (variant `bas`)",
        ),
        (
            "to = \"server\"",
            "to = [\"near\", \"far\"]\npairing = \"exchange\"\nsizes = [\"16kb\"]",
            "x.toml:43:9: error: flows.uploads.sizes: has the unit `kb`: bits or bytes? write mbit, or MB\n\
             x.toml:54:2: error: schemes: bas decides for single flows, and those of an exchange are too many to be \
             distinguished (variant `bas`)",
        ),
        (
            "to = \"server\"",
            "to = [\"near\", \"far\"]\npairing = \"exchange\"\nsizes = [\"1MB\"]\nsize = \"1MB\"",
            "x.toml:43:9: error: flows.uploads.sizes: stands for `size`; write one of them",
        ),
        (
            "to = \"server\"",
            "to = [\"near\", \"far\"]\npairing = \"exchange\"\nsize = \"1MB\"\noutstanding = 4",
            "x.toml:44:15: error: flows.uploads.outstanding: needs `schedule = \"window\"`; pairwise, it is 1\n\
             x.toml:55:2: error: schemes: bas decides for single flows, and those of an exchange are too many to be \
             distinguished (variant `bas`)",
        ),
        (
            "to = \"server\"",
            "to = [\"near\", \"far\"]\npairing = \"exchange\"\nsize = \"1MB\"\nstop = \"9s\"",
            "x.toml:44:8: error: flows.uploads.stop: is not for an exchange; leave it out, or `pairing`\n\
             x.toml:55:2: error: schemes: bas decides for single flows, and those of an exchange are too many to be \
             distinguished (variant `bas`)",
        ),
        (
            "to = \"server\"",
            "to = [\"near\", \"far\"]\npairing = \"exchange\"\nsize = \"1MB\"\nrounds = 4\npersistent = true",
            "x.toml:43:8: error: flows.uploads.size: \"1000000B\" is not a multiple of the MSS, 1448B, as persistent \
             connections need it\n\
             x.toml:56:2: error: schemes: bas decides for single flows, and those of an exchange are too many to be \
             distinguished (variant `bas`)",
        ),
        (
            "to = \"server\"",
            "to = \"server\"\ncompute = \"1ms\"",
            "x.toml:42:11: error: flows.uploads.compute: also needs `pairing = \"exchange\"`",
        ),
        (
            "from = [\"near\", \"far\"]\nto = \"server\"",
            "from = [\"near\", \"near.0\"]\nto = [\"near\", \"near.0\"]\npairing = \"exchange\"\nsize = \"1MB\"",
            "x.toml:40:8: error: flows.uploads.from: names `near.0` twice; a host is once in an exchange\n\
             x.toml:54:2: error: schemes: bas decides for single flows, and those of an exchange are too many to be \
             distinguished (variant `bas`)",
        ),
        (
            "from = [\"near\", \"far\"]\nto = \"server\"",
            "from = \"server\"\nto = \"server\"\npairing = \"exchange\"\nsize = \"1MB\"",
            "x.toml:40:8: error: flows.uploads.from: is one host; an exchange takes two\n\
             x.toml:54:2: error: schemes: bas decides for single flows, and those of an exchange are too many to be \
             distinguished (variant `bas`)",
        ),
        (
            "to = \"server\"",
            "to = \"server\"\npairing = \"permutation\"",
            "x.toml:41:6: error: flows.uploads.to: the number of hosts is 1, and 8 in `from`; a permutation needs \
             equal numbers",
        ),
        (
            "from = [\"near\", \"far\"]\nto = \"server\"",
            "from = [\"near\", \"near.0\"]\nto = \"far\"\npairing = \"permutation\"",
            "x.toml:40:8: error: flows.uploads.from: names `near.0` twice; a host is once in a permutation",
        ),
        (
            "from = [\"near\", \"far\"]\nto = \"server\"",
            "from = [\"near.0\", \"near.1\"]\nto = [\"far.1\", \"far.1\"]\npairing = \"permutation\"",
            "x.toml:41:6: error: flows.uploads.to: names `far.1` twice; a host is once in a permutation",
        ),
        (
            "from = [\"near\", \"far\"]\nto = \"server\"",
            "from = \"server\"\nto = \"server\"\npairing = \"permutation\"",
            "x.toml:40:8: error: flows.uploads.from: pairs `server` with itself",
        ),
        (
            "to = \"server\"",
            "to = \"server\"\npaths = \"distinct\"",
            "x.toml:42:9: error: flows.uploads.paths: \"distinct\" is for multipath TCP; add `subflows`",
        ),
        (
            "transport = \"udp\"",
            "transport = \"udp\"\npaths = \"distinct\"",
            "x.toml:46:9: error: flows.noise.paths: \"distinct\" is for multipath TCP; add `subflows`",
        ),
        ("to = \"server\"", "to = \"server\"\npaths = \"hash\"", "no error"),
        ("to = \"server\"", "to = \"server\"\nsubflows = 2\npaths = \"distinct\"", "no error"),
        (
            "transport = \"udp\"",
            "transport = \"udp\"\npairing = \"exchange\"",
            "x.toml:46:11: error: flows.noise.pairing: \"exchange\" is of TCP; leave `transport` out",
        ),
        (
            "to = \"server\"",
            "to = \"servr\"",
            "x.toml:41:6: error: flows.uploads.to: unknown group or host `servr`; did you mean `server`? \
             allowed: near, far, server",
        ),
        (
            "to = \"server\"",
            "to = \"r1\"",
            "x.toml:41:6: error: flows.uploads.to: `r1` is a router; flows end at hosts",
        ),
        (
            "to = \"server\"",
            "to = [\"near\", \"far\"]",
            "x.toml:40:8: error: flows.uploads.from: pairs `near.0` with itself",
        ),
        (
            "to = \"server\"",
            "",
            "x.toml:38:1: error: flows.uploads.to: is missing; write a text or a list of texts",
        ),
        (
            "to = \"server\"",
            "to = \"server\"\ncount = 200000",
            "x.toml:42:9: error: flows.uploads.count: makes 1600000 flows in all; at most 1000000",
        ),
        (
            "to = \"server\"",
            "to = \"server\"\nrate = \"1mbit\"",
            "x.toml:42:1: error: flows.uploads: `rate` goes with transport = \"udp\", not with \"tcp\"",
        ),
        (
            "rate = \"5mbit\"",
            "",
            "x.toml:43:1: error: flows.noise.rate: is missing; write a bit rate such as \"5mbit\" (bit, \
             kbit, mbit, gbit, tbit)",
        ),
        (
            "rate = \"5mbit\"",
            "rate = \"5mbit\"\nsize = \"1MB\"",
            "x.toml:49:1: error: flows.noise: `size` goes with transport = \"tcp\", not with \"udp\"",
        ),
        (
            "rate = \"5mbit\"",
            "rate = \"5mbit\"\npacket = \"20B\"",
            "x.toml:49:10: error: flows.noise.packet: \"20B\" is not an IP packet with UDP; write a size \
             from 28B to 65535B",
        ),
        (
            "rate = \"5mbit\"",
            "rate = \"5mbit\"\njitter = 1.5",
            "x.toml:49:10: error: flows.noise.jitter: 1.5 is not a number from 0 to 1",
        ),
        (
            "name = \"bas\"",
            "name = \"bas\"\npaper = [{ metric = \"jain\", value = 1.0 }, { metric = \"jain\", value = 2.0 }]",
            "x.toml:66:55: error: compare.bas.paper.1.metric: \"jain\" stands here twice",
        ),
        (
            "transport = \"udp\"",
            "transport = \"upd\"",
            "x.toml:45:13: error: flows.noise.transport: \"upd\" is not \"tcp\" or \"udp\"; did you mean \
             \"udp\"?",
        ),
        (
            "stop = \"15s\"",
            "stop = \"10s\"",
            "x.toml:50:8: error: flows.noise.stop: \"10s\" is not after the start, \"10s\"",
        ),
        (
            "stop = \"15s\"",
            "stop = \"21s\"",
            "x.toml:50:8: error: flows.noise.stop: \"21s\" is after the end of the run, 20s",
        ),
        (
            "start = \"10s\"",
            "start = \"20s\"",
            "x.toml:49:9: error: flows.noise.start: \"20s\" is not before the end of the run, 20s\n\
             x.toml:50:8: error: flows.noise.stop: \"15s\" is not after the start, \"20s\"",
        ),
        ("stop = \"15s\"", "on = \"1s\"", "x.toml:50:6: error: flows.noise.on: also needs `off`"),
        (
            "stop = \"15s\"",
            "on = \"exponential(0s)\"\noff = \"1s\"",
            "x.toml:50:6: error: flows.noise.on: a mean of 0s would never send; write a longer time, such as \"1s\"",
        ),
        (
            "to = \"server\"",
            "to = \"server\"\ntimeline = [{ at = \"7s\", stop = 0.25 }, { at = \"9s\", start = 0.5 }]",
            "x.toml:42:62: error: flows.uploads.timeline.1.start: 0.5 is more than the share that stands \
             still, 0.250",
        ),
        (
            "to = \"server\"",
            "to = \"server\"\ntimeline = [{ at = \"7s\", stop = 0.75 }, { at = \"9s\", stop = 0.5 }]",
            "x.toml:42:61: error: flows.uploads.timeline.1.stop: 0.5 more would stop 1.250 of the flows",
        ),
        (
            "to = \"server\"",
            "to = \"server\"\ntimeline = [{ at = \"7s\" }, { at = \"20s\", stop = 0.5 }]",
            "x.toml:42:13: error: flows.uploads.timeline.0: changes nothing; write `stop` or `start`, or \
             both\n\
             x.toml:42:35: error: flows.uploads.timeline.1.at: \"20s\" is not before the end of the run, \
             20s",
        ),
        (
            "name = \"noise\"",
            "name = \"uploads\"",
            "x.toml:44:8: error: flows.uploads.name: the name `uploads` is taken (line 39)",
        ),
        (
            "congestion-control = \"newreno\"",
            "congestion-control = \"vegas\"",
            "x.toml:36:22: error: tcp.congestion-control: \"vegas\" is not \"tahoe\", \"reno\", \"newreno\", \"bic\", \
             \"cubic\", \"dctcp\", \"bbr\", \"lia\", \"olia\" or \"balia\"",
        ),
        (
            "congestion-control = \"newreno\"",
            "congestion-control = \"reno\"",
            "x.toml:36:22: error: tcp.congestion-control: \"reno\" is older than selective acknowledgements and \
             makes no use of them; write `sack = false`, or name \"newreno\"",
        ),
        (
            "congestion-control = \"newreno\"",
            "loss-detection = \"rack\"\nsack = false",
            "x.toml:36:18: error: tcp.loss-detection: \"rack\" needs selective acknowledgements; leave `sack = false` out",
        ),
        (
            "congestion-control = \"newreno\"",
            "mss = \"63B\"",
            "x.toml:36:7: error: tcp.mss: \"63B\" is not from 64B to 65000B",
        ),
        (
            "congestion-control = \"newreno\"",
            "quick-acks = \"1001pkt\"",
            "x.toml:36:14: error: tcp.quick-acks: \"1001pkt\" is not from 0pkt to 1000pkt",
        ),
        (
            "congestion-control = \"newreno\"",
            "tail-loss-probe = true",
            "x.toml:36:19: error: tcp.tail-loss-probe: needs losses found by time; write `loss-detection = \"rack\"`",
        ),
        (
            "congestion-control = \"newreno\"",
            "sack = false\nf-rto = true",
            "x.toml:37:9: error: tcp.f-rto: needs selective acknowledgements; leave `sack = false` out",
        ),
        (
            "congestion-control = \"newreno\"",
            "min-rto = \"121s\"",
            "x.toml:36:11: error: tcp.min-rto: \"121s\" is above `max-rto`, 120s",
        ),
        (
            "congestion-control = \"newreno\"",
            "initial-window = 10",
            "x.toml:36:18: error: tcp.initial-window: 10 has no unit; write a number of packets such as \
             \"200pkt\"",
        ),
        (
            "to = \"server\"",
            "to = \"server\"\ntcp = { scak = false }",
            "x.toml:42:9: error: flows.uploads.tcp: unknown key `scak` in [tcp]; did you mean `sack`? \
             allowed: congestion-control, mss, initial-window, sack, timestamps, aligned-options, window-scaling, \
             delayed-ack, delayed-ack-timeout, quick-acks, limited-transmit, recovery, loss-detection, tail-loss-probe, dsack, f-rto, rack-tlp, mark-reduction, flight-size, \
             partial-ack-sends, impatient-timer, byte-counting, cwnd-validation, rtt-samples, initial-rto, min-rto, \
             rto-floor, timer-tick, max-rto, receive-buffer, read-rate, ecn, pacing, pacing-gain-slow-start, pacing-gain, largest-burst, idle-restart, cwnd-clamp, hystart, \
             hystart-rules and 3 more",
        ),
    ]);
}

#[test]
fn words_of_paths_are_not_names_of_routers() {
    let named = GOOD.replacen("[\"r1\", \"r2\"]\nhosts", "[\"r1\", \"r2\", \"distinct\"]\nhosts", 1);
    let chosen = "to = \"server\"\nsubflows = 2\npaths = \"distinct\"";
    assert_eq!(
        message(&named.replacen("to = \"server\"", chosen, 1), &Options::default()),
        "x.toml:43:9: error: flows.uploads.paths: \"distinct\" chooses among shortest paths, and a router has this name \
         too; give the router another name"
    );
    // Without the word the name is free.
    assert_eq!(message(&named, &Options::default()), "no error");
}

#[test]
fn hosts_of_a_permutation_reach_each_other() {
    let text = GOOD.replacen("[[network.links]]\nends = [\"r1\", \"r2\"]", "", 1).replacen(
        "from = [\"near\", \"far\"]\nto = \"server\"",
        "from = [\"near.0\", \"near.1\"]\nto = [\"far.0\", \"server\"]\npairing = \"permutation\"",
        1,
    );
    assert_eq!(
        message(&text, &Options::default()),
        "x.toml:39:8: error: flows.uploads.from: no path from `near.0` to `server`: they are in separate parts of the \
         network; link the nodes through routers"
    );
}

#[test]
fn schemes() {
    check(&[
        (
            "to = \"server\"",
            "to = [\"near\", \"far\"]\npairing = \"exchange\"\nsize = \"1MB\"",
            "x.toml:54:2: error: schemes: bas decides for single flows, and those of an exchange are too many to be \
             distinguished (variant `bas`)",
        ),
        (
            "[schemes.bas]",
            "[schemes.bass]",
            "x.toml:52:10: error: schemes: unknown scheme `bass`; did you mean `bas`? allowed: bas, er2bc, opentcp, qcbf\n\
             x.toml:62:9: error: schemes.bas.servers: is missing; write a text or a list of texts (variant \
             `tcp`)\n\
             x.toml:62:9: error: schemes.bas.domain: is missing; write a text or a list of texts (variant \
             `tcp`)\n\
             x.toml:74:7: error: sweeps.alpha.key: variant `bas` has no [schemes.bas]; name the variants \
             to sweep in `variants`",
        ),
        (
            "servers = [\"server\"]\n",
            "",
            "x.toml:52:1: error: schemes.bas.servers: is missing; write a text or a list of texts",
        ),
        (
            "servers = [\"server\"]",
            "servers = [\"sever\"]",
            "x.toml:53:11: error: schemes.bas.servers: names `sever`, which is not a node",
        ),
        (
            "servers = [\"server\"]",
            "servers = [\"server\"]\nalpha = 2",
            "x.toml:54:9: error: schemes.bas.alpha: 2 is not a number from 0.01 to 1",
        ),
        (
            "servers = [\"server\"]",
            "servers = [\"server\", 5]",
            "x.toml:53:11: error: schemes.bas.servers: [\"server\", 5] is not a text or a list of texts",
        ),
        (
            "servers = [\"server\"]",
            "servers = [\"server\"]\nrounding = \"upp\"",
            "x.toml:54:12: error: schemes.bas.rounding: \"upp\" is not \"up\", \"nearest\" or \"down\"; \
             did you mean \"up\"?",
        ),
        (
            "[measure]",
            "[control]\nloss = 1.0\n[measure]",
            "x.toml:57:8: error: control.loss: 1 would lose every message; write a number from 0 to below 1",
        ),
    ]);
}

#[test]
fn variants_and_sweeps() {
    check(&[
        (
            "name = \"bas\"\n",
            "name = \"tcp\"\n",
            "x.toml:65:8: error: compare.tcp.name: the name `tcp` is taken (line 61)\n\
             x.toml:76:12: error: sweeps.alpha.variants: unknown variant `bas`; allowed: tcp",
        ),
        (
            "\"schemes.bas.enabled\" = false",
            "\"flows.downloads.count\" = 2",
            "x.toml:62:9: error: compare.tcp.set: `flows` has no element `downloads`; it has uploads, \
             noise (variant `tcp`)",
        ),
        (
            "\"schemes.bas.enabled\" = false",
            "\"run.sample.x\" = 2, \"run.duration.x\" = 2",
            "x.toml:62:9: error: run.sample: { x = 2 } is not a time such as \"25ms\" (ns, us, ms, s, min) \
             (variant `tcp`)\n\
             x.toml:62:29: error: compare.tcp.set: `run.duration` is the value \"20s\", not a table \
             (variant `tcp`)",
        ),
        (
            "\"schemes.bas.enabled\" = false",
            "\"schemes.bas.enabled\" = 0",
            "x.toml:62:33: error: schemes.bas.enabled: 0 is not true or false (variant `tcp`)",
        ),
        (
            "\"schemes.bas.enabled\" = false",
            "\"run.duration\" = \"12s\"",
            "x.toml:50:8: error: flows.noise.stop: \"15s\" is after the end of the run, 12s (variant \
             `tcp`)\n\
             x.toml:58:49: error: measure.windows.burst.to: \"15s\" is after the end of the run, 12s \
             (variant `tcp`)",
        ),
        (
            "\"schemes.bas.enabled\" = false",
            "\"claims.fairer.low\" = 0.5",
            "x.toml:62:7: error: compare.tcp.set: changes `claims`, which is common to all variants \
             (variant `tcp`)",
        ),
        (
            "values = [4, 8]",
            "values = [4, 5]",
            "x.toml:27:9: error: network.groups.near.share: 0.5 of 5 clients is 2.5 hosts; it must be a \
             whole number, 1 or more (variant `tcp`, sweep `n` at 5)",
        ),
        (
            "values = [4, 8]",
            "values = [4, \"8\"]",
            "x.toml:27:9: error: network.groups.near.share: is a part of `clients`, which the file does \
             not give (variant `tcp`, sweep `n` at 8)\n\
             x.toml:70:14: error: clients: \"8\" is not a whole number from 1 to 1000000 (variant `tcp`, \
             sweep `n` at 8)",
        ),
        (
            "values = [4, 8]",
            "values = [400000, 800000]",
            "x.toml:27:9: error: network.groups.near.share: makes 400000 hosts, and 200020 are there; at most 600000 in \
             all cases of a file (variant `tcp`, sweep `n` at 800000)\n\
             x.toml:27:9: error: network.groups.near.share: makes 400000 hosts, and 400028 are there; at most 600000 in \
             all cases of a file (variant `bas`, sweep `n` at 800000)",
        ),
        ("values = [4, 8]", "values = []", "x.toml:70:10: error: sweeps.n.values: is an empty list"),
        ("values = [4, 8]", "values = [4, 8, 4.0]", "x.toml:70:17: error: sweeps.n.values: 4.0 occurs twice"),
        (
            "values = [4, 8]",
            "values = [4, 8]\nquick = [5]",
            "x.toml:71:10: error: sweeps.n.quick: 5 is not one of `values`",
        ),
        (
            "key = \"clients\"",
            "key = \"client\"",
            "x.toml:69:7: error: unknown key `client` in the file; did you mean `clients`? allowed: \
             version, name, title, description, include, clients, run, network, tcp, flows, schemes, control, faults, \
             measure, compare, sweeps, claims, figures (variant `tcp`, sweep `n` at 4)",
        ),
        (
            "key = \"clients\"",
            "key = \"flows.downloads.count\"",
            "x.toml:69:7: error: sweeps.n.key: `flows` has no element `downloads`; it has uploads, noise \
             (variant `tcp`, sweep `n` at 4)",
        ),
        (
            "key = \"clients\"",
            "key = \"clients =\"",
            "x.toml:69:7: error: sweeps.n.key: `clients =` is not a dotted path of keys, such as \
             `flows.uploads.count`",
        ),
        (
            "variants = [\"bas\"]",
            "variants = [\"bass\"]",
            "x.toml:76:12: error: sweeps.alpha.variants: unknown variant `bass`; did you mean `bas`? \
             allowed: tcp, bas",
        ),
    ]);
}

#[test]
fn claims_and_figures() {
    check(&[
        (
            "metric = \"jain\"",
            "metric = \"jane\"",
            "x.toml:81:10: error: claims.fairer.metric: unknown metric \"jane\"; did you mean `jain`? \
             allowed: throughput, jain, jain_normalised, queue, jain_long, jain_normalised_long, \
             queue_max, link_use, drops, marks, rtos, retransmits, throughput_least, completed, unfinished, fct_mean, fct_p99, fct_p50, fct_p80, fct_max, \
             rounds, round_time_mean, round_time_max, round_goodput, control_rate, refusals, \
             fct_own_p99, fct_tuned_p99, undropped, flow_drops_p99, drops_per_flow, delay_mean, delay_p99, delay_flow_max, window_to_5, utilization_p80, sojourn_p5, \
             sojourn_p50, sojourn_p95, sojourn_p99 and 6 more",
        ),
        (
            "metric = \"jain\"",
            "metric = \"sojourn_p95\"",
            "x.toml:81:10: error: claims.fairer.metric: \"sojourn_p95\" needs distributions; write \
             `distributions = true` in [measure]",
        ),
        (
            "metric = \"jain\"",
            "metric = \"burst.sojourn_p95\"",
            "x.toml:81:10: error: claims.fairer.metric: \"burst.sojourn_p95\" needs distributions; write \
             `distributions = true` in [measure]",
        ),
        (
            "y = \"jain\"",
            "y = \"sojourn_p50\"",
            "x.toml:93:5: error: figures.jain.y: \"sojourn_p50\" needs distributions; write \
             `distributions = true` in [measure]",
        ),
        (
            "kind = \"sweep\"\nsweep = \"n\"\ny = \"jain\"",
            "kind = \"distribution\"\nx = \"sojourn\"",
            "x.toml:91:8: error: figures.jain.kind: draws a distribution, but `measure.distributions` of variant \
             `tcp` is false",
        ),
        (
            "metric = \"jain\"",
            "metric = \"brust.jain\"",
            "x.toml:81:10: error: claims.fairer.metric: unknown window `brust` in \"brust.jain\"; did you \
             mean `burst`? allowed: burst",
        ),
        (
            "variant = \"bas\"",
            "variant = \"bsa\"",
            "x.toml:82:11: error: claims.fairer.variant: unknown variant `bsa`; did you mean `bas`? \
             allowed: tcp, bas",
        ),
        (
            "minus = \"tcp\"",
            "minus = \"bas\"",
            "x.toml:83:9: error: claims.fairer.minus: compares `bas` with itself; name another variant, or \
             an `against-point` or `against-metric`",
        ),
        (
            "minus = \"tcp\"",
            "against-point = 4",
            "x.toml:83:17: error: claims.fairer.against-point: also needs `minus` or `over`",
        ),
        (
            "minus = \"tcp\"",
            "minus = \"bas\"\nagainst-point = 5",
            "x.toml:84:17: error: claims.fairer.against-point: 5 is not a value of the sweep `n`; it has \
             4, 8",
        ),
        (
            "sweep = \"n\"\nlow",
            "sweep = \"m\"\nlow",
            "x.toml:84:9: error: claims.fairer.sweep: unknown sweep `m`; did you mean `n`? allowed: n, \
             alpha",
        ),
        (
            "sweep = \"n\"\nlow",
            "at = { n = 5 }\nlow",
            "x.toml:84:12: error: claims.fairer.at: 5 is not a value of the sweep `n`; it has 4, 8",
        ),
        (
            "sweep = \"n\"\nlow",
            "at = { n = 4, alpha = 0.1 }\nlow",
            "x.toml:84:6: error: claims.fairer.at: { n = 4, alpha = 0.1 } is not one point; write the name \
             of a sweep = one value",
        ),
        (
            "sweep = \"n\"\nlow",
            "points = [4]\nlow",
            "x.toml:84:10: error: claims.fairer.points: also needs `sweep`",
        ),
        ("low = -0.5", "low = 0.6", "x.toml:85:7: error: claims.fairer.low: 0.6 is above `high`, 0.5"),
        (
            "low = -0.5",
            "low = -1.0",
            "x.toml:85:7: error: claims.fairer.low: -1 cannot fail: what is judged is never below -1; leave `low` out",
        ),
        (
            "minus = \"tcp\"",
            "",
            "x.toml:85:7: error: claims.fairer.low: -0.5 cannot fail: what is judged is never below 0; leave `low` out",
        ),
        (
            "high = 0.5",
            "high = 1.5",
            "x.toml:86:8: error: claims.fairer.high: 1.5 cannot fail: what is judged is never above 1; leave `high` out",
        ),
        (
            "low = -0.5\nhigh = 0.5",
            "low = 1.5",
            "x.toml:85:7: error: claims.fairer.low: 1.5 cannot hold: what is judged is never above 1; write less than 1",
        ),
        (
            "low = -0.5\nhigh = 0.5",
            "high = -1.5",
            "x.toml:85:8: error: claims.fairer.high: -1.5 cannot hold: what is judged is never below -1; write more than -1",
        ),
        (
            "low = -0.5\nhigh = 0.5",
            "",
            "x.toml:78:1: error: claims.fairer.low: is missing, and `high` too; write one of them or both",
        ),
        (
            "high = 0.5",
            "high = inf",
            "x.toml:86:8: error: claims.fairer.high: inf is not a number from -1000000000 to 1000000000",
        ),
        (
            "kind = \"sweep\"",
            "kind = \"sweep\"\nentities = \"all\"",
            "x.toml:92:1: error: figures.jain: `entities` goes with kind = \"series\", not with \"sweep\"",
        ),
        (
            "kind = \"sweep\"\nsweep = \"n\"\ny = \"jain\"",
            "kind = \"series\"\ny = \"drops\"",
            "x.toml:92:5: error: figures.jain.y: \"drops\" is no metric over time; allowed: throughput, jain, jain_normalised, queue, sojourn_p50, sojourn_p95, sojourn_p99, flows, \
             rtt_p50, rtt_p95, rtt_p99, queueing_p50, queueing_p95, queueing_p99, arrivals, free, estimate, step, received, loss, lost, updates, classes, \
             tuned, cued, firing, coverage, spare, silent, mismatch, messages, noise",
        ),
        (
            "kind = \"sweep\"\nsweep = \"n\"",
            "kind = \"series\"\nentities = [\"near\", \"fra\"]",
            "x.toml:92:12: error: figures.jain.entities: unknown sender `fra`; did you mean `far`? allowed: \
             all, near, far",
        ),
        // A group of flows has no series of its own.
        (
            "kind = \"sweep\"\nsweep = \"n\"",
            "kind = \"series\"\nentities = \"uploads\"",
            "x.toml:92:12: error: figures.jain.entities: unknown sender `uploads`; allowed: all, near, far",
        ),
        (
            "y = \"jain\"",
            "y = \"jain\"\nreferences = [{ label = \"paper\", x = [4, 8], y = [0.5] }]",
            "x.toml:94:50: error: figures.jain.references.0.y: has 1 values for 2 positions",
        ),
    ]);
}

#[test]
fn grids() {
    check(&[
        (
            "name = \"n\"\nkey = \"clients\"\nvalues = [4, 8]",
            "name = \"n\"",
            "x.toml:67:1: error: sweeps.n.key: is missing; write `key` and `values`, or a `grid` of several keys\n\
             x.toml:67:1: error: sweeps.n.values: is missing; write `key` and `values`, or a `grid` of several keys",
        ),
        (
            "name = \"n\"\nkey = \"clients\"\nvalues = [4, 8]",
            "name = \"n\"\ngrid = [{ name = \"c\", key = \"clients\", values = [4, 8] }]",
            "x.toml:69:8: error: sweeps.n.grid: has 1 of the two or more keys of a grid; name a second key, or write `key` and `values` without `grid`",
        ),
        (
            "name = \"n\"\nkey = \"clients\"\nvalues = [4, 8]",
            "name = \"n\"\nkey = \"clients\"\ngrid = [{ name = \"c\", key = \"clients\", values = [4, 8] }, { name = \"d\", key = \"network.link.delay\", values = [\"1ms\", \"2ms\"] }]",
            "x.toml:69:7: error: sweeps.n.key: conflicts with `grid`; write it in the elements of `grid`",
        ),
        (
            "name = \"n\"\nkey = \"clients\"\nvalues = [4, 8]",
            "name = \"n\"\ngrid = [{ name = \"c\", key = \"clients\", values = [4, 8] }, { name = \"c\", key = \"run.seed\", values = [1] }]",
            "x.toml:69:68: error: sweeps.n.grid.c.name: the name `c` is taken (line 69)",
        ),
        (
            "name = \"n\"\nkey = \"clients\"\nvalues = [4, 8]",
            "name = \"n\"\ngrid = [{ name = \"c\", key = \"clients\", values = [4, 8] }, { name = \"d\", key = \"clients\", values = [1] }]",
            "x.toml:69:79: error: sweeps.n.grid.d.key: `clients` is changed by `c` of this grid too",
        ),
        (
            "name = \"n\"\nkey = \"clients\"\nvalues = [4, 8]",
            "name = \"n\"\ngrid = [{ name = \"c\", key = \"clients\", values = [4, 8] }, { name = \"d\", key = \"claims.fairer.low\", values = [1] }]",
            "x.toml:69:79: error: sweeps.n.grid.d.key: `claims` is common to all cases; a sweep cannot change it",
        ),
        (
            "name = \"n\"\nkey = \"clients\"\nvalues = [4, 8]",
            "name = \"n\"\ngrid = [{ name = \"c\", key = \"clients\", values = [4, 8] }, { name = \"d\", key = \"network.link.delay\", values = [\"1ms\", \"1ms\"] }]",
            "x.toml:69:118: error: sweeps.n.grid.d.values: \"1ms\" occurs twice",
        ),
        (
            "name = \"n\"\nkey = \"clients\"\nvalues = [4, 8]",
            "name = \"n\"\ngrid = [{ name = \"c\", key = \"clients\", values = [4, 8] }, { name = \"d\", key = \"network.link.delay\" }]",
            "x.toml:69:59: error: sweeps.n.grid.d.values: is missing; write a list",
        ),
        (
            "name = \"n\"\nkey = \"clients\"\nvalues = [4, 8]",
            "name = \"n\"\ngrid = [{ name = \"c\", key = \"clients\", values = [4, 8] }, { name = \"d\", keys = \"network.link.delay\", values = [\"1ms\"] }]",
            "x.toml:69:59: error: sweeps.n.grid.d.key: is missing; write a text\n\
             x.toml:69:73: error: sweeps.n.grid.d: unknown key `keys` in [[sweeps.grid]]; did you mean `key`? allowed: name, title, key, values, quick",
        ),
        (
            "name = \"n\"\nkey = \"clients\"\nvalues = [4, 8]",
            "name = \"n\"\ngrid = [{ name = \"c\", key = \"clients\", values = [5] }, { name = \"d\", key = \"network.link.delay\", values = [\"1ms\", \"2ms\"] }]",
            "x.toml:27:9: error: network.groups.near.share: 0.5 of 5 clients is 2.5 hosts; it must be a whole number, 1 or more (variant `tcp`, sweep `n` at c=5, d=1ms)",
        ),
    ]);
}

/// A file whose sweep `n` is a grid.
#[test]
fn claims_and_figures_of_grids() {
    let grid = GOOD.replace(
        "key = \"clients\"\nvalues = [4, 8]",
        "grid = [{ name = \"c\", key = \"clients\", values = [4, 8] }, { name = \"d\", key = \"network.link.delay\", values = [\"1ms\", \"2ms\"] }]",
    );
    assert_eq!(message(&grid, &Options::default()), "no error");
    check_in(
        &grid,
        &[
            (
                "sweep = \"n\"\nlow",
                "at = { n = 4 }\nlow",
                "x.toml:83:12: error: claims.fairer.at: 4 is not a point of the grid `n`; write { c = 4, d = \"1ms\" }",
            ),
            (
                "sweep = \"n\"\nlow",
                "at = { n = { c = 4 } }\nlow",
                "x.toml:83:12: error: claims.fairer.at: names no value of `d`, so it is not one point; write { c = 4, d = \"1ms\" }",
            ),
            (
                "sweep = \"n\"\nlow",
                "at = { n = { c = 4, e = 4 } }\nlow",
                "x.toml:83:25: error: claims.fairer.at: the grid `n` has no key `e`; did you mean `c`? allowed: c, d",
            ),
            (
                "sweep = \"n\"\nlow",
                "at = { n = { c = 5, d = \"1ms\" } }\nlow",
                "x.toml:83:18: error: claims.fairer.at: 5 is not a value of the key `c` of the grid `n`; it has 4, 8",
            ),
            (
                "sweep = \"n\"\nlow",
                "sweep = \"n\"\npoints = [{ d = \"3ms\" }]\nlow",
                "x.toml:84:17: error: claims.fairer.points: \"3ms\" is not a value of the key `d` of the grid `n`; it has 1ms, 2ms",
            ),
            (
                "y = \"jain\"",
                "y = \"jain\"\nx = \"e\"",
                "x.toml:93:5: error: figures.jain.x: the grid `n` has no key `e`; did you mean `c`? allowed: c, d",
            ),
        ],
    );
}

/// A builder's network, in which single links are changed.
const BUILT: &str = r#"version = 1
name = "built"
[run]
duration = "2s"
[network]
builder = "dumbbell"
left = 4
right = 2
access = { rate = "1gbit", rate-back = "500mbit", delay = "2ms", queue = "70pkt" }
bottleneck = { rate = "50mbit", delay = "5ms" }
routers = ["edge"]
[network.link]
loss = 0.25
host-queue = "900pkt"
[[network.groups]]
name = "far"
attach = "edge"
count = 2
rate = "8mbit"
[[network.links]]
ends = ["r2", "edge"]
rate = "9mbit"
[[network.links]]
ends = ["left.3", "r1"]
override = true
rate = "2mbit"
loss = 0.0
[[flows]]
name = "up"
from = "left"
to = "right"
"#;

#[test]
fn one_link_of_a_builder_is_overridden() {
    let mbit = |n: u64| bandmaster_core::units::Rate::from_bits_per_sec(n * 1_000_000);
    let links = |text: &str, options: &Options| {
        let study = parse("x.toml", text, options).unwrap_or_else(|e| panic!("{e}"));
        let topology = study.cases[0].scenario.topology.clone();
        (topology.links.clone(), topology)
    };
    let plain = BUILT.replace(
        "[[network.links]]\nends = [\"left.3\", \"r1\"]\noverride = true\nrate = \"2mbit\"\nloss = 0.0\n",
        "",
    );
    let (before, _) = links(&plain, &Options::default());
    let (after, topology) = links(BUILT, &Options::default());
    assert_eq!(before.len(), after.len());
    let changed: Vec<usize> = (0..after.len()).filter(|&i| before[i] != after[i]).collect();
    let [at] = changed[..] else { panic!("links {changed:?} differ") };
    let name = |node: bandmaster_core::id::NodeId| topology.nodes[node.index()].name.as_str();
    assert_eq!((name(after[at].a), name(after[at].b)), ("left.3", "r1"));
    let mut expected = before[at].clone();
    (expected.rate, expected.loss) = (mbit(2), 0.0);
    assert_eq!(after[at], expected, "what the table leaves out stays as `access` and `link` have it");
    assert!(expected.rate_back.is_some() && expected.delay != before[0].delay);

    // Members of a group, and shared links, have other tables.
    let other = |ends: &str| BUILT.replace("ends = [\"left.3\", \"r1\"]", &format!("ends = [{ends}]"));
    for (ends, back) in [("\"far.1\", \"edge\"", None), ("\"r1\", \"r2\"", None)] {
        let (after, _) = links(&other(ends), &Options::default());
        let changed: Vec<usize> = (0..after.len()).filter(|&i| before[i] != after[i]).collect();
        let [at] = changed[..] else { panic!("{ends}: links {changed:?} differ") };
        let mut expected = before[at].clone();
        (expected.rate, expected.loss) = (mbit(2), 0.0);
        assert_eq!(after[at], expected, "{ends}");
        assert_eq!(after[at].rate_back, back);
    }

    // A sweep reaches it by its ends.
    let set = |value: &str| Options {
        overrides: vec![format!("network.links.\"left.3-r1\".rate={value}").parse().expect("an override")],
        ..Options::default()
    };
    assert_eq!(links(BUILT, &set("3mbit")).0[at].rate, mbit(3));
}

#[test]
fn overrides_that_fit_no_link() {
    let ends = "ends = [\"left.3\", \"r1\"]";
    let more = "loss = 0.0\n[[flows]]";
    check_in(
        BUILT,
        &[
            (
                ends,
                "ends = [\"left.4\", \"r1\"]",
                "x.toml:24:8: error: network.links.left.4-r1.ends: unknown node `left.4`; the hosts of `left` are `left.0` to `left.3`",
            ),
            (
                ends,
                "ends = [\"lft.3\", \"r1\"]",
                "x.toml:24:8: error: network.links.lft.3-r1.ends: unknown node `lft.3`; did you mean `left.3`? allowed: r1, r2, left.3, edge",
            ),
            (
                ends,
                "ends = [\"left.3\", \"rl\"]",
                "x.toml:24:8: error: network.links.left.3-rl.ends: unknown node `rl`; did you mean `r1`? allowed: r1, r2, edge",
            ),
            (
                ends,
                "ends = [\"left.3\", \"r2\"]",
                "x.toml:24:8: error: network.links.left.3-r2.ends: `left.3` and `r2` have no link to override; `left.3` has links to r1; `r2` has links to r1, right.0, right.1, edge",
            ),
            (
                ends,
                "ends = [\"r1\", \"left.3\"]",
                "x.toml:24:8: error: network.links.r1-left.3.ends: the first end of this link is `left.3`; write ends = [\"left.3\", \"r1\"]",
            ),
            (
                ends,
                "ends = [\"r2\", \"edge\"]",
                "x.toml:24:8: error: network.links.r2-edge.ends: the link of `r2` and `edge` is one of this file's; change its settings where it stands",
            ),
            (
                "override = true",
                "override = true\nparallel = true",
                "x.toml:26:12: error: network.links.left.3-r1.parallel: conflicts with `override`; a link has one of them",
            ),
            (
                "override = true",
                "",
                "x.toml:24:8: error: network.links.left.3-r1.ends: `left.3` and `r1` have a link already; write `parallel = true` to add another, or `override = true` to change it",
            ),
            (
                more,
                "loss = 0.0\n[[network.links]]\nends = [\"left.3\", \"r1\"]\noverride = true\n[[flows]]",
                "x.toml:29:8: error: network.links.left.3-r1.ends: the link of `left.3` and `r1` is overridden already (line 24)",
            ),
            (
                "rate = \"2mbit\"",
                "rate = \"2\"",
                "x.toml:26:8: error: network.links.left.3-r1.rate: \"2\" has no unit; write a bit rate such as \"5mbit\" (bit, kbit, mbit, gbit, tbit)",
            ),
            // What is wrong with the builder's own table is one error.
            (
                "rate = \"1gbit\"",
                "rate = \"1\"",
                "x.toml:9:19: error: network.access.rate: \"1\" has no unit; write a bit rate such as \"5mbit\" (bit, kbit, mbit, gbit, tbit)",
            ),
        ],
    );
}

#[test]
fn links_flows_and_marks() {
    check(&[
        (
            "ends = [\"server\", \"r1\"]",
            "ends = [\"r2\", \"r1\"]",
            "x.toml:22:8: error: network.links.r1-r2.ends: `r1` and `r2` have a link already; write `parallel = true` to add another, or change the settings of that link",
        ),
        (
            "ends = [\"server\", \"r1\"]",
            "parallel = \"yes\"\nends = [\"server\", \"r1\"]",
            "x.toml:18:12: error: network.links.server-r1.parallel: \"yes\" is not true or false",
        ),
        (
            "queue = \"200pkt\"",
            "queue-back = \"200\"",
            "x.toml:19:14: error: network.links.server-r1.queue-back: \"200\" has no unit; write \"200pkt\", \"64KiB\", \"unlimited\", or a table such as { discipline = \"fifo\", limit = \"200pkt\" }",
        ),
        (
            "queue = \"200pkt\"",
            "queue-back = { discipline = \"fif\" }",
            "x.toml:19:29: error: network.links.server-r1.queue-back.discipline: unknown discipline \"fif\"; did you mean `fifo`? allowed: fifo, fbqm, red, ared, pie, codel, fq-codel, fq-pie, cake, drr, prio, tbf, htb, shared",
        ),
        (
            "to = \"server\"",
            "to = \"server\"\ncount = -1",
            "x.toml:42:9: error: flows.uploads.count: -1 is not a whole number from 0 to 1000000",
        ),
        (
            "congestion-control = \"newreno\"",
            "congestion-control = \"dctcp\"\necn = true",
            "x.toml:39:1: error: flows.uploads: \"dctcp\" of `uploads` meets no queue that marks; write queue = { discipline = \"fifo\", limit = \"200pkt\", ecn-threshold = \"20pkt\" } for its links",
        ),
        (
            "congestion-control = \"newreno\"",
            "congestion-control = \"dctcp\"\necn = true\n[[sweeps]]\nname = \"m\"\nkey = \"network.links.0.queue\"\nvalues = [{ discipline = \"fifo\", limit = \"200pkt\", ecn-threshold = \"20pkt\" }]",
            "x.toml:43:1: error: flows.uploads: \"dctcp\" of `uploads` meets no queue that marks; write queue = { discipline = \"fifo\", limit = \"200pkt\", ecn-threshold = \"20pkt\" } for its links",
        ),
    ]);
}

#[test]
fn groups_that_are_off_send_nothing() {
    let off = GOOD.replace("to = \"server\"", "to = \"server\"\ncount = 0");
    let study = parse("x.toml", &off, &Options::default()).expect("valid");
    assert!(study.cases.iter().all(|case| case.scenario.flows.len() == 1));
    let all_off = off.replace("to = \"far.0\"", "to = \"far.0\"\ncount = 0");
    assert_eq!(
        message(&all_off, &Options::default()),
        "x.toml:38:1: error: flows: are all off: nothing would be sent; leave `count = 0` out of one"
    );
    // One queue that marks is enough for DCTCP.
    let marks = GOOD.replace("\"newreno\"", "\"dctcp\"\necn = true").replace(
        "queue = \"200pkt\"",
        "queue-back = { discipline = \"fifo\", limit = \"200pkt\", ecn-threshold = \"20pkt\" }",
    );
    assert_eq!(message(&marks, &Options::default()), "no error");
}

#[test]
fn kinds_of_figures() {
    check(&[
        (
            "y = \"jain\"",
            "y = \"jain\"\nx = \"n\"",
            "x.toml:94:5: error: figures.jain.x: is of grids; the sweep `n` has one key",
        ),
        (
            "kind = \"sweep\"\nsweep = \"n\"\ny = \"jain\"",
            "kind = \"heatmap\"\nsweep = \"n\"\nz = \"jain\"",
            "x.toml:92:9: error: figures.jain.sweep: has 1 key, and a heatmap is over two; name a sweep with a `grid` of two keys",
        ),
        (
            "kind = \"sweep\"\nsweep = \"n\"\ny = \"jain\"",
            "kind = \"cdf\"\nx = \"size\"",
            "x.toml:92:5: error: figures.jain.x: \"size\" is not a value of flows; allowed: fct, slowdown, rtt_min, rtt_mean, rtt_p50, rtt_p95, rtt_p99",
        ),
        (
            "kind = \"sweep\"\nsweep = \"n\"\ny = \"jain\"",
            "kind = \"cdf\"\nx = \"rtt_p50\"",
            "x.toml:91:8: error: figures.jain.kind: draws values of flows, which variant `tcp` does not record; write `flow-table = \"rtt\"` in [measure]",
        ),
        (
            "kind = \"sweep\"\nsweep = \"n\"\ny = \"jain\"",
            "kind = \"cdf\"\nx = \"fct\"\ngroup = \"uplods\"",
            "x.toml:93:9: error: figures.jain.group: unknown flow group `uplods`; did you mean `uploads`? allowed: uploads, noise",
        ),
        (
            "kind = \"sweep\"\nsweep = \"n\"\ny = \"jain\"",
            "kind = \"cdf\"\nof = \"trials\"\nx = \"jain\"\ngroup = \"uploads\"",
            "x.toml:94:9: error: figures.jain.group: is of flows, not of trials",
        ),
        (
            "kind = \"sweep\"\nsweep = \"n\"\ny = \"jain\"",
            "kind = \"box\"\ny = \"jane.jain\"",
            "x.toml:92:5: error: figures.jain.y: unknown window `jane` in \"jane.jain\"; allowed: burst",
        ),
        (
            "kind = \"sweep\"\nsweep = \"n\"\ny = \"jain\"",
            "kind = \"bars\"\nmetrics = []",
            "x.toml:92:11: error: figures.jain.metrics: is an empty list",
        ),
        (
            "kind = \"sweep\"\nsweep = \"n\"\ny = \"jain\"",
            "kind = \"bars\"\nmetrics = [\"jain\", \"throughput\"]",
            "x.toml:92:11: error: figures.jain.metrics: \"throughput\" has not the unit of \"jain\"; bars share an axis",
        ),
        (
            "kind = \"sweep\"\nsweep = \"n\"\ny = \"jain\"",
            "kind = \"slowdown\"\nbins = 0",
            "x.toml:92:8: error: figures.jain.bins: 0 is not a whole number from 1 to 100",
        ),
        (
            "kind = \"sweep\"\nsweep = \"n\"\ny = \"jain\"",
            "kind = \"slowdown\"\ngroup = \"fast\"",
            "x.toml:92:9: error: figures.jain.group: unknown flow group `fast`; allowed: uploads, noise",
        ),
        (
            "kind = \"sweep\"\nsweep = \"n\"\ny = \"jain\"",
            "kind = \"box\"\ny = \"jain\"\nsweep = \"n\"\nat = { n = 4 }",
            "x.toml:94:6: error: figures.jain.at: conflicts with `sweep`; a figure has one of them",
        ),
        (
            "kind = \"sweep\"\nsweep = \"n\"\ny = \"jain\"",
            "kind = \"bars\"\nmetrics = [\"jain\"]\nreferences = [{ label = \"p\", x = [1], y = [1] }]",
            "x.toml:93:14: error: figures.jain.references: are curves, and this kind of figure has none; leave them out, or draw \"sweep\", \"series\", \"distribution\" or \"cdf\"",
        ),
        (
            "kind = \"sweep\"\nsweep = \"n\"\ny = \"jain\"",
            "kind = \"distribution\"\nx = \"rtt\"",
            "x.toml:92:5: error: figures.jain.x: \"rtt\" is not measured in variant `tcp`; write `flow-table = \"rtt\"` in [measure]",
        ),
        (
            "kind = \"sweep\"\nsweep = \"n\"\ny = \"jain\"",
            "kind = \"boxes\"\ny = \"jain\"",
            "x.toml:91:8: error: figures.jain.kind: \"boxes\" is not \"sweep\", \"series\", \"distribution\", \"cdf\", \"box\", \"bars\", \"heatmap\" or \"slowdown\"",
        ),
    ]);
}

/// One reading reports everything that is wrong, in the order of the file.
#[test]
fn several_errors_at_once() {
    let text = GOOD
        .replace("delay = \"1ms\"", "dely = \"1ms\"")
        .replace("count = 4", "count = -4")
        .replace("warm-up = \"5s\"", "warmup = \"5s\"")
        .replace("rate = \"5mbit\"", "rate = \"5mb\"");
    let expected = "x.toml:7:1: error: run: unknown key `warmup` in [run]; did you mean `warm-up`? allowed: duration, \
         warm-up, sample, trials, quick-trials, seed, partitions\n\
         x.toml:15:1: error: network.link: unknown key `dely` in [network.link]; did you mean `delay`? \
         allowed: rate, rate-back, capacity, capacity-back, delay, queue, queue-back, host-queue, loss, loss-back, loss-of, loss-every, gemodel, gemodel-back, jitter, jitter-reorders, reorder, reorder-gap, reorder-delay\n\
         x.toml:33:9: error: network.groups.far.count: -4 is not a whole number from 1 to 1000000\n\
         x.toml:48:8: error: flows.noise.rate: \"5mb\" has the unknown unit `mb`; write a bit rate such as \
         \"5mbit\" (bit, kbit, mbit, gbit, tbit)";
    assert_eq!(message(&text, &Options::default()), expected);
}

/// `--grid` is the sweep that a `grid` in the file would be.
#[test]
fn a_grid_of_the_command_line_is_one_of_the_file() {
    let keys = ["network.links.1.rate=5mbit,20mbit", "flows.noise.rate=1mbit,2mbit,3mbit"];
    let options = Options {
        extra_sweeps: keys.iter().map(|key| key.parse().expect("a sweep")).collect(),
        grid: true,
        ..Options::default()
    };
    let study = parse("x.toml", GOOD, &options).unwrap_or_else(|e| panic!("{e}"));
    let grid = study.sweeps.last().expect("a sweep");
    assert_eq!((grid.name.as_str(), grid.grid.len(), grid.values.len()), ("grid", 2, 6));
    let of_grid = study.cases.iter().filter(|case| case.points.iter().any(|(sweep, _)| sweep == "grid"));
    assert_eq!(of_grid.count(), 2 * 6, "for both variants");
    let axes = "grid = [{ name = \"a\", key = \"network.links.1.rate\", values = [\"5mbit\", \"20mbit\"] }, \
                { name = \"b\", key = \"flows.noise.rate\", values = [\"1mbit\", \"2mbit\", \"3mbit\"] }]";
    let written = GOOD.replace("[[claims]]", &format!("[[sweeps]]\nname = \"grid\"\n{axes}\n[[claims]]"));
    let written = parse("x.toml", &written, &Options::default()).unwrap_or_else(|e| panic!("{e}"));
    let scenarios = |study: &bandmaster_core::scenario::Study| {
        study.cases.iter().map(|case| (case.variant.clone(), case.scenario.clone())).collect::<Vec<_>>()
    };
    assert_eq!(scenarios(&study), scenarios(&written));
    // A sweep of the file may have the name of a key, when it is of that key.
    let named =
        GOOD.replace("name = \"n\"", "name = \"clients\"").replace("sweep = \"n\"", "sweep = \"clients\"");
    let keys = ["clients=4,8", "flows.noise.rate=1mbit,2mbit"];
    let extra_sweeps = keys.iter().map(|key| key.parse().expect("a sweep")).collect();
    let mut options = Options { extra_sweeps, grid: true, ..Options::default() };
    let study = parse("x.toml", &named, &options).unwrap_or_else(|e| panic!("{e}"));
    let names: Vec<&str> = study.sweeps.iter().map(|sweep| sweep.name.as_str()).collect();
    assert_eq!(names, ["clients", "alpha", "grid"]);
    let other = named
        .replace("key = \"clients\"\nvalues = [4, 8]", "key = \"flows.noise.rate\"\nvalues = [\"1mbit\"]");
    assert_ne!(other, named);
    assert!(message(&other, &options).contains("the name `clients` is taken"));
    options.grid = false;
    assert!(message(&named, &options).contains("the name `clients` is taken"));
}

#[test]
fn values_of_the_command_line() {
    let set = |assignments: &[&str]| Options {
        overrides: assignments.iter().map(|a| a.parse::<Override>().expect("an assignment")).collect(),
        ..Options::default()
    };
    let key = |assignment: &str| Options {
        extra_sweeps: vec![assignment.parse::<ExtraSweep>().expect("a sweep")],
        ..Options::default()
    };
    let grid = |assignments: &[&str]| Options {
        extra_sweeps: assignments.iter().map(|a| a.parse::<ExtraSweep>().expect("a sweep")).collect(),
        grid: true,
        ..Options::default()
    };
    let cases = [
        (
            set(&["run.duration=20"]),
            "--set run.duration=20: error: run.duration: 20 has no unit; write a time such as \"25ms\" \
             (ns, us, ms, s, min)",
        ),
        (
            set(&["network.links.0.raet=20mbit"]),
            "--set network.links.0.raet=20mbit: error: network.links.server-r1: unknown key `raet` in \
             [[network.links]]; did you mean `rate`? allowed: ends, rate, rate-back, capacity, capacity-back, delay, queue, queue-back, host-queue, loss, loss-back, \
             loss-of, loss-every, gemodel, gemodel-back, jitter, jitter-reorders, reorder, reorder-gap, reorder-delay, parallel, override, drop-packets",
        ),
        (
            set(&["flows.downloads.count=3"]),
            "--set flows.downloads.count=3: error: `flows` has no element `downloads`; it has uploads, \
             noise",
        ),
        (
            set(&["flows.uploads.from=[near"]),
            "--set flows.uploads.from=[near: error: not TOML: unclosed array, expected `]`",
        ),
        (
            set(&["run..duration=20s"]),
            "--set run..duration=20s: error: `run..duration` is not a dotted path of keys, such as \
             `flows.uploads.count`",
        ),
        (
            set(&["name=other", "clients=9"]),
            "x.toml:27:9: error: network.groups.near.share: 0.5 of 9 clients is 4.5 hosts; it must be a \
             whole number, 1 or more",
        ),
        (
            grid(&["network.link.rate=5mbit,6mbit"]),
            "--grid: error: joins the values of two or more --key; give the keys of the grid, each with a --key of its own",
        ),
        (
            grid(&["schemes.qcbf.beta=0.5,0.6", "clients=4,8"]),
            "--key schemes.qcbf.beta=0.5,0.6: error: no variant has [schemes.qcbf]",
        ),
        (
            Options { trials: Some(0), ..Options::default() },
            "--trials 0: error: run.trials: 0 is not a whole number from 1 to 100000",
        ),
        (
            Options { seed: Some(u64::MAX), ..Options::default() },
            "--seed 18446744073709551615: error: a number that does not fit into 64 bits: at most 9223372036854775807",
        ),
        (
            key("network.link.rate=5mbit,5mbps"),
            "--key network.link.rate=5mbit,5mbps: error: network.link.rate: \"5mbps\" has the unit `mbps`: \
             tc reads it as bytes per second, ns-3 as bits; write bit, kbit, mbit or gbit (variant `tcp`, \
             sweep `network.link.rate` at 5mbps)",
        ),
        (
            key("network.link.rate=5mbit,5000kbit"),
            "--key network.link.rate=5mbit,5000kbit: error: \"5000kbit\" occurs twice",
        ),
    ];
    let mut failures = String::new();
    for (options, expected) in &cases {
        let got = message(GOOD, options);
        if got != *expected {
            failures.push_str(&format!("\n--- {options:?}\nexpected {expected}\ngot      {got}\n"));
        }
    }
    assert!(failures.is_empty(), "{failures}");
    let without =
        GOOD.replace("[schemes.bas]\nservers = [\"server\"]\ndomain = [\"server\", \"r1\", \"r2\"]\n", "");
    let without = without.replace("\"schemes.bas.enabled\" = false", "").replace("variants = [\"bas\"]", "");
    let without = without.replace("schemes.bas.alpha", "tcp.pacing-gain").replace("0.1, 0.4", "1, 2");
    assert_eq!(message(&without, &Options::default()), "no error");
    assert_eq!(
        message(&without, &set(&["schemes.bas.alpha=0.5"])),
        "--set schemes.bas.alpha=0.5: error: no variant has [schemes.bas]; switch it on with --set \
         schemes.bas.enabled=true"
    );
}

/// What may stand where a value should.
const TOKENS: [&str; 22] = [
    "0",
    "3",
    "-1",
    "0.5",
    "inf",
    "nan",
    "true",
    "\"\"",
    "\"x\"",
    "\"0s\"",
    "\"3ms\"",
    "\"5mbit\"",
    "\"2pkt\"",
    "\"near\"",
    "\"uploads\"",
    "\"bas\"",
    "\"udp\"",
    "\"series\"",
    "[]",
    "{}",
    "[1, \"a\", { b = 2 }]",
    "2020-01-01",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    /// Whatever stands in the file, reading ends with a study or with errors at places of the file.
    #[test]
    fn no_file_makes_the_reader_panic(
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0..TOKENS.len() + 3), 1..6),
        quick in any::<bool>(),
    ) {
        let mut lines: Vec<String> = GOOD.lines().map(str::to_owned).collect();
        for (index, kind) in edits {
            let at = index.index(lines.len());
            match (TOKENS.get(kind), lines[at].split_once(" = ")) {
                (Some(token), Some((key, _))) => lines[at] = format!("{key} = {token}"),
                (Some(token), None) => lines.insert(at, format!("name = {token}")),
                (None, _) if kind == TOKENS.len() => lines[at].clear(),
                (None, _) if kind == TOKENS.len() + 1 => lines.insert(at, "[network.access]".to_owned()),
                (None, _) => { lines[at].pop(); }
            }
        }
        let text = lines.join("\n");
        if let Err(errors) = parse("x.toml", &text, &Options { quick, ..Options::default() }) {
            prop_assert!(errors.iter().count() > 0);
            for error in &errors {
                prop_assert!((1..=lines.len() as u32 + 1).contains(&error.line), "{}", error);
                prop_assert!(error.column >= 1 && !error.message.is_empty(), "{}", error);
            }
        }
    }
}

/// Percentiles of delays, and figures of several metrics.
#[test]
fn percentiles_over_time() {
    let measure = "[measure]";
    let with = |keys: &str| format!("[measure]\n{keys}");
    for (keys, expected) in [
        (
            "percentiles = true\nrecord = \"none\"",
            "measure.percentiles: are series, and `record` is \"none\"; write `record = \"groups\"`, or leave `percentiles` out",
        ),
        (
            "ports = [\"r1->server\"]",
            "measure.ports: are of percentiles, which are off; add `percentiles = true`",
        ),
        (
            "percentiles = true\nports = [\"r1->servr\"]",
            "measure.ports: no port is called \"r1->servr\"; did you mean `r1->server`?",
        ),
        (
            "percentiles = true\nports = [\"r1->server\", \"r1->server\"]",
            "measure.ports: \"r1->server\" occurs twice",
        ),
        ("percentiles = \"yes\"", "measure.percentiles: \"yes\" is not"),
    ] {
        let found = message(&GOOD.replacen(measure, &with(keys), 1), &Options::default());
        assert!(found.contains(expected), "{keys}: {found}");
        assert!(found.starts_with("x.toml:"), "{found}");
    }
    for (y, expected) in [
        ("[\"rtt_p50\"]", "figures.jain.y: \"rtt_p50\" is not recorded in variant"),
        (
            "[\"throughput\", \"queue\"]",
            "figures.jain.y: \"queue\" has not the unit of \"throughput\"; panels share an axis",
        ),
        ("[]", "figures.jain.y: is an empty list"),
        ("\"rtt_p55\"", "figures.jain.y: \"rtt_p55\" is no metric over time; did you mean `rtt_p"),
    ] {
        let figure = format!("kind = \"series\"\ny = {y}");
        let found = message(
            &GOOD.replacen("kind = \"sweep\"\nsweep = \"n\"\ny = \"jain\"", &figure, 1),
            &Options::default(),
        );
        assert!(found.contains(expected), "{y}: {found}");
    }
}

/// What cannot be divided is named, and where it is asked for.
#[test]
fn a_network_that_cannot_be_divided() {
    let good = GOOD.replace("warm-up = \"5s\"", "warm-up = \"5s\"\npartitions = 2");
    parse("x.toml", &good, &Options::default()).unwrap_or_else(|errors| panic!("{errors}"));
    let without_delay = format!("{good}\n[control]\ndelay = \"0s\"\n");
    let expected = "x.toml:8:14: error: run.partitions: a network with a `control.delay` of 0s cannot be divided; leave it out (variant `bas`)";
    assert_eq!(message(&without_delay, &Options::default()), expected);
    let many = message(&good.replace("partitions = 2", "partitions = 65"), &Options::default());
    assert_eq!(many, "x.toml:8:14: error: run.partitions: 65 is not a whole number from 1 to 64");
}
