//! Reads a deployment file: its first table, and which of the others it needs.

use super::keys::{DATA, FILE};
use super::peer::{Peer, peer};
use super::rule::rule;
use super::sender::sender;
use super::{Deployment, Match, Prefix, Role, Whereabouts};
use crate::daemon;
use crate::file::{self, Errors, Item, Layer, Reader, Section};

/// Longest name of a Linux network device, IFNAMSIZ less the final zero.
const LONGEST_INTERFACE: usize = 15;

/// Reads a deployment file. `file` is its name in messages.
///
/// # Errors
/// Everything that is wrong with the text, each with its place.
pub fn parse(file: &str, text: &str) -> Result<Deployment, Errors> {
    daemon::parse(file, text, None, read)
}

fn read(reader: &mut Reader, path: &str, root: &Item) -> Option<Deployment> {
    let file = reader.section(&FILE, &Layer::new("", root));
    daemon::version(reader, &file);
    let role: Option<Role> = file.choice("role");
    let interface = file.text("interface");
    if let Some(name) = &interface
        && !is_interface(name)
    {
        let what =
            format!("\"{name}\" is not the name of a network device (1 to {LONGEST_INTERFACE} letters)");
        reader.fail_key(&file, "interface", what);
    }
    let name = daemon::name(reader, path, &file);
    let state_directory = daemon::state_directory(reader, &file, name.as_deref());
    let metrics = daemon::address(reader, &file, "metrics");
    let peer = file.item("peer").and_then(|_| peer(reader, &file, role));
    let sends = role != Some(Role::Receiver);
    for (key, wanted) in [("control", sends), ("classes", sends), ("data", role != Some(Role::Sender))] {
        if role.is_some() && file.item(key).is_some() && !wanted {
            let other = if sends { "receiver" } else { "sender" };
            reader.fail_key(&file, key, format!("goes with role = \"{other}\" or \"both\""));
        }
    }
    let sender = if sends { sender(reader, &file) } else { None };
    let mut data = Vec::new();
    for layer in reader.tables(&file, "data") {
        let section = reader.section(&DATA, &layer);
        data.extend(rule(reader, &section));
    }
    let Peer { address: peer, whereabouts, listen, keep_alive, auth } = peer?;
    if data.is_empty() && whereabouts != Whereabouts::Fixed && role != Some(Role::Sender) {
        let what = "is missing: the peer's address is not fixed, so that it does not tell what is data";
        reader.fail_with(&file.place, "data", what, "write [[data]]");
    }
    if data.is_empty() {
        let length = if peer.is_ipv4() { 32 } else { 128 };
        data.push(Match { source: vec![Prefix { address: peer.ip(), length }], ..Match::default() });
    }
    if sends && sender.is_none() {
        return None;
    }
    Some(Deployment {
        name: name?,
        role: role?,
        interface: interface?,
        state_directory: state_directory?,
        metrics,
        restore: file.choice("restore")?,
        replace_qdisc: file.bool("replace-qdisc")?,
        log: file.choice("log")?,
        peer,
        whereabouts,
        keep_alive,
        listen,
        auth,
        sender,
        places: places(path, &file),
        data,
    })
}

/// Where `[peer]` and `[control]` have keys whose fitness depends on the machine.
fn places(path: &str, file: &Section<'_>) -> Vec<(&'static str, String)> {
    let keys = [
        ("peer.address", "peer", "address"),
        ("control.safe-rate", "control", "safe-rate"),
        ("control.initial", "control", "initial"),
        ("control.ceiling", "control", "ceiling"),
    ];
    let place = |(whole, table, key): (&'static str, &str, &str)| {
        let file::Place { line, column, .. } = &file.item(table)?.table()?.get(key)?.place;
        Some((whole, format!("{path}:{line}:{column}")))
    };
    keys.into_iter().filter_map(place).collect()
}

fn is_interface(name: &str) -> bool {
    let letter = |c: char| c.is_ascii_alphanumeric() || "-_.@:".contains(c);
    (1..=LONGEST_INTERFACE).contains(&name.len()) && name.chars().all(letter) && name != "." && name != ".."
}
