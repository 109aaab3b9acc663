//! Rules that packets fit, and how files write them.

use crate::control::Protocol;
use crate::file::{Content, Reader, Section};
use crate::params::Written;
use crate::prefix::Prefix;
use crate::qdisc::dscp;

/// A rule that packets fit when each of its parts does; an absent part fits all.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Match {
    /// Code points.
    pub dscp: Vec<u8>,
    /// Prefixes of the source.
    pub source: Vec<Prefix>,
    /// Prefixes of the destination.
    pub destination: Vec<Prefix>,
    /// Transport.
    pub protocol: Option<Protocol>,
    /// Destination ports, both ends included.
    pub ports: Vec<(u16, u16)>,
}

pub(super) fn rule(reader: &mut Reader, section: &Section<'_>) -> Option<Match> {
    let errors_before = reader.errors.len();
    let keys = ["dscp", "source", "destination", "protocol", "ports"];
    if keys.iter().all(|key| section.item(key).is_none()) {
        reader.fail(&section.place, &section.path, "is empty: it would fit every packet");
    }
    let names = reader.code_points(section, "dscp").unwrap_or_default();
    let dscp = names.iter().filter_map(|name| dscp::code_point(name)).collect();
    let source = prefixes(reader, section, "source");
    let destination = prefixes(reader, section, "destination");
    let version = |prefixes: &[Prefix]| prefixes.first().map(|prefix| prefix.address.is_ipv4());
    if let (Some(a), Some(b)) = (version(&source), version(&destination))
        && a != b
    {
        reader.fail_key(section, "destination", "is of another IP version than source: no packet fits");
    }
    let protocol = section.choice("protocol");
    let ports = ports(reader, section);
    if !ports.is_empty() && section.item("protocol").is_none() {
        reader.fail_key(section, "ports", "need protocol = \"tcp\" or \"udp\"");
    }
    (reader.errors.len() == errors_before).then_some(Match { dscp, source, destination, protocol, ports })
}

fn prefixes(reader: &mut Reader, section: &Section<'_>, key: &str) -> Vec<Prefix> {
    let mut prefixes: Vec<Prefix> = Vec::new();
    for text in section.list(key).unwrap_or_default() {
        match Prefix::parse(&text) {
            Ok(prefix) => prefixes.push(prefix),
            Err(why) => reader.fail_key(section, key, format!("\"{text}\" {why}")),
        }
    }
    if prefixes.iter().any(|prefix| prefix.address.is_ipv4() != prefixes[0].address.is_ipv4()) {
        reader.fail_key(section, key, "mixes IPv4 and IPv6; write a rule for each");
    }
    prefixes
}

fn ports(reader: &mut Reader, section: &Section<'_>) -> Vec<(u16, u16)> {
    let mut ports = Vec::new();
    for item in reader.items(section, "ports").unwrap_or_default() {
        let range = match &item.content {
            Content::Scalar(Written::Integer(n)) => u16::try_from(*n).ok().map(|n| (n, n)),
            Content::Scalar(Written::Text(text)) => {
                let (low, high) = text.split_once('-').unwrap_or((text, text));
                low.trim().parse().ok().zip(high.trim().parse().ok())
            }
            _ => None,
        };
        match range.filter(|(low, high)| 1 <= *low && low <= high) {
            Some(range) => ports.push(range),
            None => {
                let what = format!("{item} is not a port from 1 to 65535 or a range such as \"5000-5010\"");
                reader.fail(&item.place, section.key_path("ports"), what);
            }
        }
    }
    ports
}
