//! `pairing = "permutation"`: each sender has a receiver of its own, drawn once per trial.

use std::collections::{BTreeMap, BTreeSet};

use super::reach::Reach;
use super::sources::Reader;
use crate::file::Section;
use crate::id::NodeId;

/// Pairs that are judged before a trial. Only hosts with links to hosts make so many; a pair beyond them without a path is an
/// error when the trial begins.
const MOST_JUDGED: usize = 1_000_000;

/// Checks that the lists `from` and `to` have equally many hosts, each once, and that any two which a permutation may pair
/// reach each other; the number of pairs.
pub(super) fn ends(
    reader: &mut Reader,
    section: &Section<'_>,
    reach: &Reach<'_>,
    [from, to]: [&[NodeId]; 2],
) -> u64 {
    let name = |node: NodeId| reach.topology.nodes[node.index()].name.as_str();
    for (key, hosts) in [("from", from), ("to", to)] {
        let mut seen = BTreeSet::new();
        if let Some(twice) = hosts.iter().find(|host| !seen.insert(**host)) {
            let message = format!("names `{}` twice; a host is once in a permutation", name(*twice));
            reader.fail_key(section, key, message);
            return 0;
        }
    }
    if from.len() != to.len() {
        let message = format!(
            "the number of hosts is {}, and {} in `from`; a permutation needs equal numbers",
            to.len(),
            from.len()
        );
        reader.fail_key(section, "to", message);
        return 0;
    }
    if let ([only], [other]) = (from, to)
        && only == other
    {
        reader.fail_key(section, "from", format!("pairs `{}` with itself", name(*only)));
        return 0;
    }
    let (senders, receivers) = (first_two(reach, from), first_two(reach, to));
    let pairs = senders.iter().flat_map(|a| receivers.iter().map(move |b| (*a, *b)));
    for (a, b) in pairs.filter(|(a, b)| a != b).take(MOST_JUDGED) {
        if !reach.judge(reader, section, a, b) {
            return 0;
        }
    }
    from.len() as u64
}

/// Every class's first two hosts: with two, one has a partner that is another host.
fn first_two(reach: &Reach<'_>, hosts: &[NodeId]) -> Vec<NodeId> {
    let mut seen: BTreeMap<(&[u32], Option<NodeId>), u32> = BTreeMap::new();
    let is_early = |host: &NodeId| {
        let count = seen.entry(reach.class(*host)).or_default();
        *count += 1;
        *count <= 2
    };
    hosts.iter().copied().filter(is_early).collect()
}
