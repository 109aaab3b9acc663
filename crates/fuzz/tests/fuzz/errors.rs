//! What many errors cost.

use std::time::Duration;

use bandmaster_core::scenario::{Options, parse};
use bandmaster_fuzz::{processor_time, turn};

const HEAD: &str = "version = 1\nname = \"x\"\n[run]\nduration = \"1s\"\nwarm-up = \"0s\"\n";
const NETWORK: &str = "[network]\nbuilder = \"dumbbell\"\nleft = 2\nright = 2\n\
                       link = { rate = \"10mbit\", delay = \"1ms\" }\n[[flows]]\nname = \"f\"\nfrom = \"left\"\nto = \"right\"\n";

/// Something wrong, so many times over.
type Wrong = fn(usize) -> String;

fn repeat(n: usize, one: impl Fn(usize) -> String) -> String {
    (0..n).map(one).collect()
}

const FILES: [(&str, Wrong); 14] = [
    ("unknown keys", |n| format!("{HEAD}{}{NETWORK}", repeat(n, |i| format!("key-{i} = {i}\n")))),
    ("unknown tables", |n| format!("{HEAD}{NETWORK}{}", repeat(n, |i| format!("[table-{i}]\nx = 1\n")))),
    ("wrong flows", |n| format!("{HEAD}{NETWORK}{}", repeat(n, |i| format!("[[flows]]\nname = \"f{i}\"\n")))),
    ("flows of nobody", |n| {
        let one = |i| format!("[[flows]]\nname = \"f{i}\"\nfrom = \"nobody{i}\"\nto = \"right\"\n");
        format!("{HEAD}{NETWORK}{}", repeat(n, one))
    }),
    ("flows of one name", |n| {
        let one = |_| "[[flows]]\nname = \"f\"\nfrom = \"left\"\nto = \"right\"\n".to_owned();
        format!("{HEAD}{NETWORK}{}", repeat(n, one))
    }),
    ("unknown schemes", |n| format!("{HEAD}{NETWORK}{}", repeat(n, |i| format!("[schemes.scheme{i}]\n")))),
    ("links without ends", |n| {
        let links =
            repeat(n, |i| format!("[[network.links]]\nends = [\"a{i}\", \"b{i}\"]\nrate = \"1mbit\"\n"));
        format!("{HEAD}[network]\nhosts = [\"a\", \"b\"]\n{links}")
    }),
    ("wrong claims", |n| {
        let one =
            |i| format!("[[claims]]\nid = \"c{i}\"\ntext = \"t\"\nmetric = \"none{i}\"\nbetween = [0, 1]\n");
        format!("{HEAD}{NETWORK}{}", repeat(n, one))
    }),
    ("wrong windows", |n| {
        let one = |i| format!("[[measure.windows]]\nname = \"w{i}\"\nfrom = \"3s\"\nto = \"2s\"\n");
        format!("{HEAD}{NETWORK}{}", repeat(n, one))
    }),
    ("values twice", |n| {
        let values = repeat(n, |_| "1, ".to_owned());
        format!("{HEAD}{NETWORK}[[sweeps]]\nname = \"s\"\nkey = \"run.seed\"\nvalues = [{values}]\n")
    }),
    ("unknown hosts", |n| format!("{HEAD}{NETWORK}from = [{}]\n", repeat(n, |i| format!("\"h{i}\", ")))),
    ("values that are quantities", |n| {
        let values = repeat(n, |i| format!("\"{i}ms\", \"{i}000us\", "));
        format!("{HEAD}{NETWORK}[[sweeps]]\nname = \"s\"\nkey = \"run.seed\"\nvalues = [{values}]\n")
    }),
    ("unknown variants", |n| {
        let variants = repeat(n, |i| format!("[[compare]]\nname = \"variant-{i}\"\n"));
        let names = repeat(n, |i| format!("\"varyant-{i}\", "));
        let sweep = "[[sweeps]]\nname = \"s\"\nkey = \"run.seed\"\nvalues = [1]\nvariants";
        format!("{HEAD}{NETWORK}{variants}{sweep} = [{names}]\n")
    }),
    ("wrong variants", |n| {
        let one = |i| format!("[[compare]]\nname = \"v{i}\"\nset = {{ \"run.nothing\" = {i} }}\n");
        format!("{HEAD}{NETWORK}{}", repeat(n, one))
    }),
];

/// Processor time of reading, the least of three times.
fn cost(text: &str) -> (Duration, usize) {
    let read = || {
        let began = processor_time();
        let errors = parse("x.toml", text, &Options::default()).map(drop).unwrap_err();
        let lines = errors.to_string().lines().count();
        (processor_time() - began, lines)
    };
    (0..3).map(|_| read()).min().expect("three")
}

/// Eight times the errors take less than 27 times the time: so twice as many take less than three times, on the average of
/// three doublings, which noise does not reach.
#[test]
fn reading_grows_with_the_errors_and_not_with_their_square() {
    let _turn = turn();
    let mut slow = Vec::new();
    for (what, wrong) in FILES {
        let ((few, told_few), (many, told_many)) = (cost(&wrong(500)), cost(&wrong(4000)));
        println!("{what}: 500 in {few:?} ({told_few} lines), 4000 in {many:?} ({told_many} lines)");
        if many > 27 * few.max(Duration::from_micros(500)) {
            slow.push(format!("{what}: {few:?} and {many:?}"));
        }
    }
    assert!(slow.is_empty(), "{}", slow.join("\n"));
}
