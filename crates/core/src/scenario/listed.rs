//! `flow-list`: flows that a file lists one by one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::reach::Reach;
use super::sources::Reader;
use crate::file::Section;
use crate::id::NodeId;
use crate::time::{Span, Time};
use crate::topology::Topology;
use crate::units::{Bytes, Dimension, parse_quantity};

/// What a line of a file is.
const ALLOWED: &str = "a time, two hosts and a size, as in `12.5ms web-1 db 40kB`";
/// Keys that say what the list says.
const INSTEAD: [&str; 16] = [
    "size",
    "size-cdf",
    "arrivals",
    "load",
    "rounds",
    "sizes",
    "persistent",
    "reset",
    "subflows",
    "count",
    "start",
    "start-per",
    "stop",
    "timeline",
    "on",
    "pairing",
];

/// A file of flows.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct FlowList {
    /// Name of the file.
    name: String,
    /// SHA-256 of the text, in hexadecimal.
    digest: String,
    /// In the order of the file.
    #[serde(skip)]
    pub(crate) flows: Arc<[Listed]>,
}

/// A flow of a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Listed {
    pub(crate) start: Time,
    pub(crate) src: NodeId,
    pub(crate) dst: NodeId,
    pub(crate) size: Bytes,
    /// Position of the sending group or host in the flow group's `from`.
    pub(crate) from: u32,
}

impl FlowList {
    /// Name of the file.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// SHA-256 of the text, in hexadecimal.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// How many flows there are.
    pub fn len(&self) -> usize {
        self.flows.len()
    }

    /// True when the file lists none.
    pub fn is_empty(&self) -> bool {
        self.flows.is_empty()
    }

    /// Mean size.
    pub(super) fn mean(&self) -> Bytes {
        let sum: u128 = self.flows.iter().map(|flow| u128::from(flow.size.get())).sum();
        Bytes::new((sum / self.flows.len().max(1) as u128) as u64)
    }
}

/// The list that `flow-list` names.
pub(super) fn read(
    reader: &mut Reader,
    section: &Section<'_>,
    topology: Option<&Topology>,
    duration: Option<Span>,
) -> Option<FlowList> {
    if !section.has("flow-list") {
        return None;
    }
    let name = section.text("flow-list")?;
    if let Some(key) = INSTEAD.iter().find(|key| section.item(key).is_some()) {
        reader.fail_key(
            section,
            key,
            "is not for flows of a `flow-list`, which says when each begins and how large it is",
        );
        return None;
    }
    let topology = topology?;
    let ends = |key| {
        let names = section.list(key).unwrap_or_default();
        let members = |(at, name): (u32, &String)| topology.members(name).map(|all| (at, all));
        let all = (0..).zip(&names).filter_map(members);
        let name = |node: NodeId| topology.nodes[node.index()].name.as_str();
        all.flat_map(|(at, all)| all.into_iter().map(move |node| (name(node), (node, at)))).collect()
    };
    let ends = [ends("from"), ends("to")];
    let parse = |text: String| parse(&name, &text, &ends, duration);
    reader.text(&name).and_then(parse).map_err(|why| reader.fail_key(section, "flow-list", why)).ok()
}

/// Hosts by name, each with the position of its group in a list.
type Places<'a> = BTreeMap<&'a str, (NodeId, u32)>;

fn parse(
    name: &str,
    text: &str,
    [from, to]: &[Places<'_>; 2],
    duration: Option<Span>,
) -> Result<FlowList, String> {
    let mut flows = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let written = line.split('#').next().unwrap_or_default().trim();
        if written.is_empty() {
            continue;
        }
        let at = |why: String| format!("{name}:{number}: {why}");
        let words: Vec<&str> = written.split_whitespace().collect();
        let [start, src, dst, size] = words[..] else {
            return Err(at(format!("\"{written}\" is not {ALLOWED}")));
        };
        let quantity =
            |word, dimension| parse_quantity(word, dimension).map_err(|why| at(format!("\"{word}\" {why}")));
        let (start, size) = (quantity(start, Dimension::Span)?, quantity(size, Dimension::Bytes)?);
        let node = |word: &str, places: &Places<'_>, key: &str| {
            places.get(word).copied().ok_or_else(|| at(format!("`{word}` is no host of `{key}`")))
        };
        let ((src, from), (dst, _)) = (node(src, from, "from")?, node(dst, to, "to")?);
        if src == dst {
            return Err(at(format!("\"{written}\" is from a host to itself")));
        }
        if size == 0 {
            return Err(at(format!("\"{written}\" is nothing to send")));
        }
        let start = Span::from_nanos(start);
        if duration.is_some_and(|duration| start >= duration) {
            return Err(at(format!("{start} is not before the end of the run")));
        }
        let (start, size) = (Time::ZERO + start, Bytes::new(size));
        flows.push(Listed { start, src, dst, size, from });
    }
    if flows.is_empty() {
        return Err(format!("{name}: has no line; write {ALLOWED}"));
    }
    let digest = crate::hex::hex(&Sha256::digest(text));
    Ok(FlowList { name: name.to_owned(), digest, flows: flows.into() })
}

/// Checks that each sender reaches its receiver; the number of flows.
pub(super) fn ends(reader: &mut Reader, section: &Section<'_>, reach: &Reach<'_>, list: &FlowList) -> u64 {
    let mut judged = BTreeSet::new();
    for Listed { src, dst, .. } in list.flows.iter() {
        if judged.insert((reach.class(*src), reach.class(*dst))) && !reach.judge(reader, section, *src, *dst)
        {
            return 0;
        }
    }
    list.flows.len() as u64
}

#[cfg(test)]
mod tests {
    use crate::file::OneText;
    use crate::scenario::{Options, Study, parse};
    use crate::time::{Span, Time};
    use crate::units::Bytes;
    use crate::workload::plan;

    fn study(list: &'static str, more: &str) -> Result<Study, String> {
        let text = format!(
            "version = 1\nname = \"t\"\n[run]\nduration = \"2s\"\n[network]\nbuilder = \"star\"\nsize = 3\n\
             [network.link]\nrate = \"1gbit\"\n\
             [[flows]]\nname = \"f\"\nfrom = [\"hosts.0\", \"hosts.1\"]\nto = \"hosts\"\nflow-list = \"l.flows\"\n{more}"
        );
        let files = OneText(list);
        let options = Options { files: Some(&files), ..Options::default() };
        parse("t.toml", &text, &options).map_err(|errors| errors.to_string())
    }

    #[test]
    fn flows_begin_as_listed_with_their_sizes() {
        let list = "# a comment\n1s hosts.1 hosts.0 40kB\n\n12.5ms hosts.0 hosts.2 1B # last\n";
        let study = study(list, "").unwrap_or_else(|e| panic!("{e}"));
        let scenario = &study.cases[0].scenario;
        let flows = plan(&scenario.flows, &scenario.topology, &scenario.run, 0);
        let told = |flow: &crate::workload::FlowPlan| {
            let size = flow.size(scenario, 0).map(Bytes::get);
            (flow.start.since(Time::ZERO), flow.name(&scenario.flows), flow.dst.0, size)
        };
        assert_eq!(
            flows.iter().map(told).collect::<Vec<_>>(),
            [
                (Span::from_secs(1), "f.hosts.1.0".to_owned(), flows[0].dst.0, Some(40_000)),
                (Span::from_micros(12_500), "f.hosts.0.1".to_owned(), flows[1].dst.0, Some(1)),
            ]
        );
        let node = |name| scenario.topology.node(name).expect(name);
        assert_eq!(
            (flows[0].src, flows[0].dst, flows[1].dst),
            (node("hosts.1"), node("hosts.0"), node("hosts.2"))
        );
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        for (list, more, why) in [
            (
                "1s hosts.0 hosts.2",
                "",
                "l.flows:1: \"1s hosts.0 hosts.2\" is not a time, two hosts and a size",
            ),
            ("1s hosts.2 hosts.0 1kB", "", "l.flows:1: `hosts.2` is no host of `from`"),
            ("1s hosts.0 hosts.9 1kB", "", "`hosts.9` is no host of `to`"),
            (
                "\n1s hosts.0 hosts.0 1kB",
                "",
                "l.flows:2: \"1s hosts.0 hosts.0 1kB\" is from a host to itself",
            ),
            ("2s hosts.0 hosts.1 1kB", "", "2s is not before the end of the run"),
            ("1s hosts.0 hosts.1 0B", "", "is nothing to send"),
            ("1s hosts.0 hosts.1 10", "", "\"10\" has no unit"),
            ("# none", "", "l.flows: has no line"),
            ("1s hosts.0 hosts.1 1kB", "size = \"3kB\"\n", "size: is not for flows of a `flow-list`"),
        ] {
            let said = study(list, more).expect_err(list);
            assert!(said.contains(why), "{list}: {said}");
        }
    }
}
