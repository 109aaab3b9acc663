//! `matrix`: demands between groups of hosts, from a file of comma-separated values.

use std::collections::BTreeSet;

use super::choices::Pairing;
use super::model::{Arrivals, FlowGroup, Transport};
use super::network::{self, LEAST_RATE};
use super::reach::Reach;
use super::sources::Reader;
use super::traffic::hosts;
use crate::file::Section;
use crate::id::NodeId;
use crate::rng::SpanDraw;
use crate::time::Span;
use crate::topology::Topology;
use crate::units::Rate;

/// Keys that say what the matrix says, or that are of single flows.
const INSTEAD: [&str; 10] = [
    "pairing",
    "needs",
    "timeline",
    "flow-list",
    "arrivals",
    "load",
    "rounds",
    "sizes",
    "persistent",
    "subflows",
];
/// Most flows that may be expected.
const MOST_FLOWS: f64 = 1e6;
/// Most demands: each is a flow group.
const MOST_DEMANDS: usize = 10_000;

/// What one sender of a file wants to send to one receiver.
#[derive(Clone, PartialEq, Debug)]
struct Demand {
    /// Line of the file, from 1.
    line: u64,
    from: String,
    to: String,
    /// Above 0.
    amount: f64,
}

/// The flow groups that the matrix of `section` makes of `base`, one for each demand, and how many flows they have, expected ones
/// included. None when something is wrong, which is noted.
pub(super) fn groups(
    reader: &mut Reader,
    section: &Section<'_>,
    base: &FlowGroup,
    reach: &Reach<'_>,
    duration: Option<Span>,
) -> Option<(Vec<FlowGroup>, u64)> {
    let name = section.text("matrix")?;
    let is_tcp = matches!(base.transport, Transport::Tcp { .. });
    let of_tcp = if is_tcp { &["count"][..] } else { &[] };
    let is_written = |key: &&&str| section.has(key) && section.item(key).is_some();
    if let Some(key) = INSTEAD.iter().chain(of_tcp).find(is_written) {
        reader.fail_key(section, key, "is not for the demands of a `matrix`");
        return None;
    }
    if !name.ends_with(".csv") {
        reader.fail_key(section, "matrix", format!("\"{name}\" is not a file whose name ends in .csv"));
        return None;
    }
    let unit = unit(reader, section, base)?;
    let read = reader.text(&name).and_then(|text| parse(&name, &text));
    let demands = read.map_err(|why| reader.fail_key(section, "matrix", why)).ok()?;
    let ends = ["from", "to"].map(|key| hosts(reader, section, key, reach.topology));
    let [Some(from), Some(to)] = ends else { return None };
    let [from, to]: [BTreeSet<NodeId>; 2] = [from, to].map(BTreeSet::from_iter);
    let (mut groups, mut names, mut judged, mut flows) =
        (Vec::new(), BTreeSet::new(), BTreeSet::new(), 0.0_f64);
    for demand in demands {
        let made = group(base, &demand, unit, reach.topology, [&from, &to]);
        let (group, [senders, receivers]) = match made {
            Ok(made) => made,
            Err(why) => {
                reader.fail_key(section, "matrix", format!("{name}:{}: {why}", demand.line));
                return None;
            }
        };
        if !names.insert(group.name.clone()) {
            let message = format!("{name}:{}: makes a second group `{}`", demand.line, group.name);
            reader.fail_key_with(section, "matrix", message, "give one of its hosts another name");
            return None;
        }
        for (a, b) in senders.iter().flat_map(|a| receivers.iter().map(move |b| (*a, *b))) {
            if a != b
                && judged.insert((reach.class(a), reach.class(b)))
                && !reach.judge(reader, section, a, b)
            {
                return None;
            }
        }
        let each = group.arrivals.map_or(f64::from(group.count), |arrivals| {
            duration.map_or(0.0, Span::as_secs_f64) / arrivals.interval.mean().max(1e-9)
        });
        flows += each * senders.len() as f64;
        groups.push(group);
    }
    if flows > MOST_FLOWS {
        let message = format!("{name}: makes some {flows:.0} flows; at most {MOST_FLOWS:.0}");
        reader.fail_key(section, "matrix", message);
        return None;
    }
    Some((groups, flows as u64))
}

/// What 1 in the matrix stands for.
fn unit(reader: &mut Reader, section: &Section<'_>, base: &FlowGroup) -> Option<Rate> {
    match &base.transport {
        Transport::Udp { rate, .. } => Some(*rate),
        Transport::Tcp { size, .. } => {
            if section.item("demand").is_none() {
                let message = "also needs `demand`, what 1 in it stands for";
                reader.fail_key_with(section, "matrix", message, "write demand = \"1mbit\"");
                return None;
            }
            if size.is_none() {
                reader.fail_key(section, "matrix", "also needs `size` or `size-cdf`, what flows send");
                return None;
            }
            network::rate(reader, section, "demand")
        }
    }
}

/// The flow group of a demand, and the hosts at both its ends.
///
/// # Errors
/// What is wrong with the demand.
fn group(
    base: &FlowGroup,
    demand: &Demand,
    unit: Rate,
    topology: &Topology,
    [from, to]: [&BTreeSet<NodeId>; 2],
) -> Result<(FlowGroup, [Vec<NodeId>; 2]), String> {
    let Demand { from: sender, to: receiver, amount, .. } = demand;
    let find = |label: &str, allowed: &BTreeSet<NodeId>, key: &str| {
        let (name, members) =
            members(topology, label).ok_or_else(|| format!("unknown group or host `{label}`"))?;
        match members.iter().find(|host| !allowed.contains(*host)) {
            Some(host) => {
                let host = &topology.nodes[host.index()].name;
                Err(format!("`{host}` of `{label}` is not one of `{key}`"))
            }
            None => Ok((name, members)),
        }
    };
    let (from_name, senders) = find(sender, from, "from")?;
    let (to_name, receivers) = find(receiver, to, "to")?;
    let plain = |label: &str| label.replace('.', "-");
    let mut group = FlowGroup {
        name: format!("{}-{}-{}", base.name, plain(sender), plain(receiver)),
        from: vec![from_name],
        to: vec![to_name],
        ..base.clone()
    };
    let bits = amount * unit.bits_per_sec() as f64 / senders.len() as f64;
    match &mut group.transport {
        Transport::Udp { rate, .. } => {
            *rate = Rate::from_bits_per_sec_f64(bits / f64::from(base.count));
            if *rate < LEAST_RATE {
                return Err(format!("{amount} makes flows of {rate}; at least {LEAST_RATE}"));
            }
        }
        Transport::Tcp { size, .. } => {
            let bytes = size.map_or(0.0, |size| size.get() as f64);
            let mean = Span::from_secs_f64(8.0 * bytes / bits);
            if mean.is_zero() || mean > LONGEST {
                return Err(format!("{amount} makes a flow each {mean} per sender; from 1ns to {LONGEST}"));
            }
            group.arrivals = Some(Arrivals { interval: SpanDraw::Exponential { mean } });
            group.pairing = Pairing::AllToAll;
        }
    }
    Ok((group, [senders, receivers]))
}

/// The longest mean time between two flows of a sender.
const LONGEST: Span = Span::from_secs(365 * 24 * 3600);

/// The group or host of this name, or the hosts of the router of this name, with the name that flows give it.
fn members(topology: &Topology, label: &str) -> Option<(String, Vec<NodeId>)> {
    let names = [label.to_owned(), format!("{label}-hosts")];
    names.into_iter().find_map(|name| {
        let members = topology.members(&name)?;
        Some((name, members))
    })
}

/// Reads a file: the first line names receivers after its first cell, each other line a sender and its demands. Empty cells are 0. Lines
/// that begin with `#` are comments.
fn parse(name: &str, text: &str) -> Result<Vec<Demand>, String> {
    let mut builder = csv::ReaderBuilder::new();
    builder.has_headers(false).flexible(true).trim(csv::Trim::All).comment(Some(b'#'));
    let mut reader = builder.from_reader(text.as_bytes());
    let mut rows = Vec::new();
    for record in reader.records() {
        let record = record.map_err(|error| format!("{name}: {error}"))?;
        let (at, byte) = record.position().map_or((1, 0), |at| (at.line(), at.byte() as usize));
        // There it went on to read: lines that it passes over may come first.
        let rest = text.get(byte..).unwrap_or_default().lines();
        let passed = rest.take_while(|line| line.is_empty() || line.starts_with('#')).count();
        rows.push((at + passed as u64, record));
    }
    let mut rows = rows.iter().map(|(line, record)| (*line, record.iter().collect::<Vec<&str>>()));
    let Some((first, header)) = rows.next() else {
        return Err(format!("{name}: has no line; write a header of receivers and a line for each sender"));
    };
    let receivers = &header[1..];
    if receivers.is_empty() || receivers.iter().any(|receiver| receiver.is_empty()) {
        return Err(format!("{name}:{first}: a header names a receiver in each cell after the first"));
    }
    if let Some(twice) = (1..receivers.len()).find(|at| receivers[..*at].contains(&receivers[*at])) {
        return Err(format!("{name}:{first}: `{}` occurs twice", receivers[twice].escape_debug()));
    }
    let (mut demands, mut senders) = (Vec::new(), BTreeSet::new());
    for (line, cells) in rows {
        let wrong = |why: String| Err(format!("{name}:{line}: {why}"));
        let (sender, amounts) = (cells[0], &cells[1..]);
        if sender.is_empty() || !senders.insert(sender) {
            let why = if sender.is_empty() { "has no sender" } else { "has the sender of a line above" };
            return wrong(why.to_owned());
        }
        if amounts.len() != receivers.len() {
            return wrong(format!("has {} demands for {} receivers", amounts.len(), receivers.len()));
        }
        for (receiver, cell) in receivers.iter().zip(amounts) {
            let amount = if cell.is_empty() { Some(0.0) } else { cell.parse::<f64>().ok() };
            let Some(amount) = amount.filter(|amount| (0.0..=1e15).contains(amount)) else {
                let cell: String = cell.chars().take(40).collect();
                return wrong(format!("\"{}\" is not a number from 0 to 1e15", cell.escape_debug()));
            };
            if amount > 0.0 && sender == *receiver {
                return wrong(format!("`{}` has a demand for itself", sender.escape_debug()));
            }
            if amount > 0.0 {
                demands.push(Demand { line, from: sender.to_owned(), to: (*receiver).to_owned(), amount });
            }
        }
    }
    match demands.len() {
        0 => Err(format!("{name}: has no demand above 0")),
        1..=MOST_DEMANDS => Ok(demands),
        more => Err(format!("{name}: has {more} demands above 0; at most {MOST_DEMANDS}")),
    }
}

#[cfg(test)]
mod tests {
    use crate::file::OneText;
    use crate::rng::SpanDraw;
    use crate::scenario::{Options, Pairing, Study, Transport, parse};
    use crate::time::Span;
    use crate::units::Rate;

    fn study(matrix: &'static str, flows: &str) -> Result<Study, String> {
        let text = format!(
            "version = 1\nname = \"t\"\n[run]\nduration = \"2s\"\n[network]\nbuilder = \"leaf-spine\"\nleaves = 3\nspines = 1\n\
             size = 2\n[network.link]\nrate = \"1gbit\"\n\
             [[flows]]\nname = \"f\"\nfrom = \"hosts\"\nto = \"hosts\"\nmatrix = \"m.csv\"\n{flows}"
        );
        let files = OneText(matrix);
        let options = Options { files: Some(&files), ..Options::default() };
        parse("t.toml", &text, &options).map_err(|errors| errors.to_string())
    }

    const MATRIX: &str =
        "# Mbit/s\nfrom, leaf1,\"leaf2\", leaf3-hosts.1\nleaf1, 0, 8, 0.5\n\n# less\nleaf2-hosts, 2, , 0\n";
    const UDP: &str = "transport = \"udp\"\nrate = \"1mbit\"\ncount = 2\n";

    /// Two hosts at each leaf, and two flows from each to one host at the other end.
    #[test]
    fn a_demand_is_shared_by_the_flows_of_its_hosts() {
        let study = study(MATRIX, UDP).unwrap_or_else(|e| panic!("{e}"));
        let groups = &study.cases[0].scenario.flows;
        let told: Vec<(&str, &str, &str, u64)> = groups
            .iter()
            .map(|group| {
                let Transport::Udp { rate, .. } = group.transport else { panic!("{group:?}") };
                (group.name.as_str(), group.from[0].as_str(), group.to[0].as_str(), rate.bits_per_sec())
            })
            .collect();
        let expected = [
            ("f-leaf1-leaf2", "leaf1-hosts", "leaf2-hosts", 2_000_000),
            ("f-leaf1-leaf3-hosts-1", "leaf1-hosts", "leaf3-hosts.1", 125_000),
            ("f-leaf2-hosts-leaf1", "leaf2-hosts", "leaf1-hosts", 500_000),
        ];
        assert_eq!(told, expected);
        assert!(groups.iter().all(|group| group.pairing == Pairing::OneToOne && group.count == 2));
    }

    /// 8 Mbit/s of files of 100 kB from two hosts: one each 0.2 s at each.
    #[test]
    fn tcp_meets_a_demand_by_flows_that_arrive() {
        let study = study(MATRIX, "size = \"100kB\"\ndemand = \"1mbit\"\n").unwrap_or_else(|e| panic!("{e}"));
        let group = &study.cases[0].scenario.flows[0];
        let mean = Span::from_millis(200);
        let interval = group.arrivals.map(|arrivals| arrivals.interval);
        assert_eq!((interval, group.pairing), (Some(SpanDraw::Exponential { mean }), Pairing::AllToAll));
        assert_eq!(Rate::from_bits_per_sec(8_000_000).bytes_in(mean * 2).get(), 4 * 100_000);
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        let tcp = "size = \"100kB\"\ndemand = \"1mbit\"\n";
        for (matrix, flows, why) in [
            ("", UDP, "m.csv: has no line"),
            ("from\n", UDP, "m.csv:1: a header names a receiver"),
            ("from,leaf1,leaf1\n", UDP, "m.csv:1: `leaf1` occurs twice"),
            ("from,leaf1\nleaf2,0\n", UDP, "m.csv: has no demand above 0"),
            ("from,leaf1\n\nleaf2,1,2\n", UDP, "m.csv:3: has 2 demands for 1 receivers"),
            ("from,leaf1\nleaf2,-1\n", UDP, "m.csv:2: \"-1\" is not a number from 0 to 1e15"),
            ("from,leaf1\nleaf2,1mbit\n", UDP, "m.csv:2: \"1mbit\" is not a number"),
            ("from,leaf1\nleaf1,1\n", UDP, "m.csv:2: `leaf1` has a demand for itself"),
            ("from,leaf1\nleaf9,1\n", UDP, "m.csv:2: unknown group or host `leaf9`"),
            ("from,leaf1\nleaf2,1\nleaf2,1\n", UDP, "m.csv:3: has the sender of a line above"),
            ("from,leaf1\nleaf2,0.001\n", UDP, "m.csv:2: 0.001 makes flows of 250bit; at least 1kbit"),
            ("from,leaf1\nleaf2,1\n", "size = \"100kB\"\n", "also needs `demand`"),
            ("from,leaf1\nleaf2,1\n", "demand = \"1mbit\"\n", "also needs `size` or `size-cdf`"),
            ("from,leaf1\nleaf2,1\n", "demand = \"1mbit\"\nsize = \"1kB\"\ncount = 3\n", "count: is not for"),
            ("from,leaf1\nleaf2,1e9\n", tcp, "m.csv: makes some"),
        ] {
            let wrong = study(matrix, flows).expect_err(why);
            assert!(wrong.contains(why), "{matrix:?}: {wrong}");
        }
    }
}
