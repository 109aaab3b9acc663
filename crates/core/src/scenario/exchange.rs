//! `pairing = "exchange"`: rounds of messages among all hosts of a group.

use std::collections::BTreeSet;

use super::choices::{Pairing, ScheduleKind};
use super::model::{Exchange, Schedule};
use super::reach::Reach;
use super::sources::Reader;
use crate::file::Section;
use crate::id::NodeId;
use crate::units::{Bytes, Dimension, parse_quantity};

/// Keys that only an exchange has.
const OWN: [&str; 4] = ["sizes", "schedule", "outstanding", "compute"];
/// Keys that an exchange has no use for.
const FOREIGN: [&str; 12] = [
    "size-cdf",
    "arrivals",
    "load",
    "count",
    "needs",
    "start-per",
    "stop",
    "timeline",
    "on",
    "off",
    "paths",
    "subflows",
];

/// Reads the exchange of a flow group; none when it is another group, or when something is wrong.
pub(super) fn read(reader: &mut Reader, section: &Section<'_>) -> Option<Exchange> {
    let is_tcp = section.has("sizes");
    if section.choice("pairing") != Some(Pairing::Exchange) {
        for key in OWN.into_iter().filter(|key| is_tcp && section.item(key).is_some()) {
            reader.fail_key(section, key, "also needs `pairing = \"exchange\"`");
        }
        return None;
    }
    if !is_tcp {
        reader.fail_key(section, "pairing", "\"exchange\" is of TCP; leave `transport` out");
        return None;
    }
    for key in FOREIGN.into_iter().filter(|key| section.item(key).is_some()) {
        reader.fail_key(section, key, "is not for an exchange; leave it out, or `pairing`");
    }
    if let (Some(from), Some(to)) = (section.list("from"), section.list("to"))
        && from != to
    {
        reader.fail_key(section, "to", "of an exchange are the hosts of `from`; write the same");
    }
    let outstanding = u32::try_from(section.integer("outstanding")?).ok()?;
    let schedule = match section.choice("schedule")? {
        ScheduleKind::Window => Schedule::Window(outstanding),
        ScheduleKind::Pairwise => Schedule::Pairwise,
    };
    if schedule == Schedule::Pairwise && section.item("outstanding").is_some() {
        reader.fail_key(section, "outstanding", "needs `schedule = \"window\"`; pairwise, it is 1");
    }
    let sizes = match (section.bytes("size"), sizes(section)) {
        (Some(size), None) => vec![size],
        (None, Some(sizes)) if sizes.is_empty() => {
            reader.fail_key(section, "sizes", "is empty");
            return None;
        }
        (None, Some(sizes)) => {
            let mut read = Vec::with_capacity(sizes.len());
            for size in sizes {
                match size {
                    Ok(size) => read.push(size),
                    Err(why) => reader.fail_key(section, "sizes", why),
                }
            }
            read
        }
        (Some(_), Some(_)) => {
            reader.fail_key(section, "sizes", "stands for `size`; write one of them");
            return None;
        }
        (None, None) => {
            reader.fail_key(section, "pairing", "\"exchange\" needs `size` or `sizes`, of its messages");
            return None;
        }
    };
    let rounds = match section.integer("rounds") {
        Some(rounds) => u32::try_from(rounds).ok()?,
        None => 1,
    };
    Some(Exchange { sizes, rounds, schedule, compute: section.draw("compute")? })
}

/// The sizes of a list, each or what is wrong with it.
pub(super) fn sizes(section: &Section<'_>) -> Option<Vec<Result<Bytes, String>>> {
    section.item("sizes")?;
    let read = |text: String| match parse_quantity(&text, Dimension::Bytes) {
        Ok(0) => Err("\"0B\" is nothing to send".to_owned()),
        Ok(size) => Ok(Bytes::new(size)),
        Err(why) => Err(why.to_string()),
    };
    Some(section.list("sizes")?.into_iter().map(read).collect())
}

/// Checks that the hosts of an exchange are different ones that reach each other; their number.
pub(super) fn ends(reader: &mut Reader, section: &Section<'_>, reach: &Reach<'_>, hosts: &[NodeId]) -> u64 {
    let name = |node: NodeId| reach.topology.nodes[node.index()].name.as_str();
    let mut seen = BTreeSet::new();
    if let Some(twice) = hosts.iter().find(|host| !seen.insert(**host)) {
        let message = format!("names `{}` twice; a host is once in an exchange", name(*twice));
        reader.fail_key(section, "from", message);
        return 0;
    }
    let [first, others @ ..] = hosts else { return 0 };
    if others.is_empty() {
        reader.fail_key(section, "from", "is one host; an exchange takes two");
    }
    // One host stands for its class.
    let mut judged = vec![*first];
    for &host in others {
        if judged.iter().any(|other| reach.class(*other) == reach.class(host)) {
            continue;
        }
        for &other in &judged {
            if !reach.judge(reader, section, other, host) {
                return 0;
            }
        }
        judged.push(host);
    }
    hosts.len() as u64
}
