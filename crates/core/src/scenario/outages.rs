//! `[[faults.links]]` and `[[faults.nodes]]`: what goes down, and when.

use super::keys;
use super::sources::Reader;
use super::whole::{known_node, times};
use crate::file::{Place, Section, list, suggestion};
use crate::id::NodeId;
use crate::outages::{Outage, Part, Times};
use crate::rng::SpanDraw;
use crate::time::{Span, Time};
use crate::topology::{Link, Topology};

/// Most drawn failures that are expected in a trial: routes are computed again for each.
const MOST_FAILURES: f64 = 5_000.0;

/// Reads both lists.
pub(super) fn read(
    reader: &mut Reader,
    faults: &Section<'_>,
    topology: Option<&Topology>,
    duration: Option<Span>,
) -> Vec<Outage> {
    let mut outages: Vec<(Outage, Place)> = Vec::new();
    let mut failures = 0.0;
    let lists = [("links", "ends", &keys::LINK_OUTAGE), ("nodes", "node", &keys::NODE_OUTAGE)];
    for (name, key, def) in lists {
        for layer in reader.tables(faults, name) {
            let section = reader.section(def, &layer);
            let part = match name {
                "links" => link(reader, &section, topology),
                _ => known_node(reader, &section, key, topology).map(Part::Node),
            };
            let when = when(reader, &section, duration, &mut failures);
            let (Some(part), Some(times)) = (part, when) else { continue };
            if let Some((_, first)) = outages.iter().find(|(known, _)| known.part == part) {
                let there = if first.line > 0 { format!(" (line {})", first.line) } else { String::new() };
                let what = if name == "links" { "link" } else { "node" };
                let message = format!("this {what} has a table already{there}");
                reader.fail_key_with(&section, key, message, "write all its times in one table");
                continue;
            }
            outages.push((Outage { part, times }, section.place(key).clone()));
        }
    }
    outages.into_iter().map(|(outage, _)| outage).collect()
}

/// The link that `ends` and `number` name.
fn link(reader: &mut Reader, section: &Section<'_>, topology: Option<&Topology>) -> Option<Part> {
    let (names, topology) = (section.list("ends")?, topology?);
    let [first, second] = names.as_slice() else {
        let message = format!("a link has two ends, as in [\"r1\", \"r2\"], not {}", names.len());
        reader.fail_key(section, "ends", message);
        return None;
    };
    let ends = [first, second].map(|name| {
        let node = topology.node(name);
        if node.is_none() {
            let known: Vec<&str> = topology.nodes.iter().map(|node| node.name.as_str()).collect();
            let hint = suggestion(name, &known);
            reader.fail_key_with(section, "ends", format!("no node is called \"{name}\""), hint);
        }
        node
    });
    let [Some(a), Some(b)] = ends else { return None };
    let number = section.integer("number")?;
    let is_between = |link: &Link| (link.a, link.b) == (a, b) || (link.a, link.b) == (b, a);
    let between: Vec<u32> =
        (0..).zip(&topology.links).filter(|(_, link)| is_between(link)).map(|(at, _)| at).collect();
    if between.is_empty() {
        let message = format!("`{first}` and `{second}` have no link");
        let hint = [a, b].map(|end| neighbours(topology, end)).join("; ");
        reader.fail_key_with(section, "ends", message, hint);
        return None;
    }
    let found = usize::try_from(number - 1).ok().and_then(|at| between.get(at));
    if found.is_none() {
        let message = format!("{number} is no link: `{first}` and `{second}` have {}", between.len());
        reader.fail_key(section, "number", message);
    }
    found.copied().map(Part::Link)
}

/// What a node has links to, in words.
fn neighbours(topology: &Topology, node: NodeId) -> String {
    let name = |node: NodeId| topology.nodes[node.index()].name.as_str();
    let own = topology.links.iter().filter(|link| link.a == node || link.b == node);
    let others: Vec<&str> = own.map(|link| name(if link.a == node { link.b } else { link.a })).collect();
    format!("`{}` has links to {}", name(node), list(&others))
}

/// When the part of `section` is down. Adds the failures that are expected in a trial to `failures`.
fn when(
    reader: &mut Reader,
    section: &Section<'_>,
    duration: Option<Span>,
    failures: &mut f64,
) -> Option<Times> {
    let [failure, repair] = ["time-to-failure", "time-to-repair"].map(|key| section.item(key).is_some());
    if section.item("down").is_some() {
        for (key, is_there) in [("time-to-failure", failure), ("time-to-repair", repair)] {
            if is_there {
                reader.fail_key(section, key, "conflicts with `down`; times are stated or drawn");
                return None;
            }
        }
        return stated(reader, section, duration);
    }
    if section.item("up").is_some() {
        reader.fail_key(section, "up", "also needs `down`");
        return None;
    }
    match (failure, repair) {
        (true, true) => drawn(reader, section, duration, failures),
        (true, false) => {
            reader.fail_key(section, "time-to-failure", "also needs `time-to-repair`");
            None
        }
        (false, true) => {
            reader.fail_key(section, "time-to-repair", "also needs `time-to-failure`");
            None
        }
        (false, false) => {
            let hint = "write `down`, or `time-to-failure` and `time-to-repair`";
            reader.fail_with(&section.place, &section.path, "does not say when it goes down", hint);
            None
        }
    }
}

fn stated(reader: &mut Reader, section: &Section<'_>, duration: Option<Span>) -> Option<Times> {
    let errors_before = reader.errors.len();
    let [down, up] = ["down", "up"].map(|key| times(reader, section, key, duration));
    if reader.errors.len() > errors_before || !section.sound {
        return None;
    }
    let going_down = down.into_iter().map(|at| (at, true));
    let mut all: Vec<(Span, bool)> = going_down.chain(up.into_iter().map(|at| (at, false))).collect();
    // In the order of time, whatever the order in the file; at one time it comes up first.
    all.sort_unstable();
    let mut is_down = false;
    for (at, goes_down) in &all {
        if *goes_down == is_down {
            let state = if is_down { "down" } else { "up" };
            reader.fail_key(section, state, format!("at {at} it is {state} already"));
            return None;
        }
        is_down = *goes_down;
    }
    Some(Times::Stated { turns: all.into_iter().map(|(at, _)| Time::ZERO + at).collect() })
}

fn drawn(
    reader: &mut Reader,
    section: &Section<'_>,
    duration: Option<Span>,
    failures: &mut f64,
) -> Option<Times> {
    let errors_before = reader.errors.len();
    let mut draw = |key: &str| -> Option<SpanDraw> {
        let draw = section.draw(key)?;
        if draw.mean() == 0.0 {
            let message = "a mean of 0s is no time; write a longer one, such as \"exponential(1s)\"";
            reader.fail_key(section, key, message);
        }
        Some(draw)
    };
    let (failure, repair) = (draw("time-to-failure"), draw("time-to-repair"));
    let (failure, repair) = (failure?, repair?);
    if reader.errors.len() > errors_before {
        return None;
    }
    *failures += duration.unwrap_or_default().as_secs_f64() / (failure.mean() + repair.mean());
    if *failures > MOST_FAILURES {
        let message =
            format!("makes {failures:.0} failures in a trial, with those above; at most {MOST_FAILURES}");
        reader.fail_key(section, "time-to-failure", message);
        return None;
    }
    Some(Times::Drawn { failure, repair })
}
