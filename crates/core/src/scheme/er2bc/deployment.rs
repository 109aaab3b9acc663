//! Deployment files: what a real gateway is told. The same reader, quantities and errors as scenario files.

use std::net::{IpAddr, SocketAddr};

use super::shares;
pub use crate::control::Protocol;
use crate::file::{self, Content, Errors, Item, Layer, Reader, Section, Shape, TableDef};
use crate::id::{NodeId, PortId};
use crate::params::{Choice, Key, Kind, Params, Value, Written, choice, keys};
use crate::qdisc::dscp;
use crate::runtime::inventory::Inventory;
use crate::scheme::{self, Place, er2bc};
use crate::time::Span;
use crate::units::{Dimension, Rate};

/// A gateway as its file describes it: valid and complete.
#[derive(Clone, Debug)]
pub struct Deployment {
    /// Its name among the gateways of the machine.
    pub name: String,
    /// What it does.
    pub role: Role,
    /// Network device towards the peer.
    pub interface: String,
    /// Folder of the journal and of the status.
    pub state_directory: String,
    /// Where metrics are served; none: nowhere.
    pub metrics: Option<SocketAddr>,
    /// When the machine gets back what it had.
    pub restore: Restore,
    /// Replace a queue discipline that somebody else has put on the interface.
    pub replace_qdisc: bool,
    /// Form of the log.
    pub log: Log,
    /// The other gateway; nowhere (an address of zeros) when it is not fixed.
    pub peer: SocketAddr,
    /// How its address is known.
    pub whereabouts: Whereabouts,
    /// How long a receiver that hears no question waits before it says where it is; none: it does not.
    pub keep_alive: Option<Span>,
    /// Where the own socket is bound.
    pub listen: SocketAddr,
    /// How messages prove where they come from.
    pub auth: Auth,
    /// Of a sender.
    pub sender: Option<Sender>,
    /// Where the file has keys that a machine may not be fit for.
    pub places: Vec<(&'static str, String)>,
    /// Of a receiver: the data that is counted. A packet that one of them fits is data.
    pub data: Vec<Match>,
}

choice! {
    /// What a gateway does.
    pub enum Role {
        /// Asks, and shapes what it sends.
        Sender = "sender",
        /// Counts what it receives, and answers.
        Receiver = "receiver",
        /// Both, for both directions.
        Both = "both",
    }

    /// When the machine gets back what it had.
    pub enum Restore {
        /// Whenever the gateway ends.
        OnExit = "on-exit",
        /// When it ends by a failure; an ordered stop leaves the shaping in force.
        OnFailure = "on-failure",
        /// By `gateway restore` only.
        Never = "never",
    }

    /// Form of the log.
    pub enum Log {
        /// `key=value` words.
        Logfmt = "logfmt",
        /// A JSON object a line.
        Json = "json",
    }
}

/// How the address of the other gateway is known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Whereabouts {
    /// It is what the file says.
    Fixed,
    /// The name server tells; valid messages may move it.
    Named(String),
    /// Valid messages tell.
    Learnt,
}

/// How messages prove where they come from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Auth {
    /// Not at all: the paper's form.
    None,
    /// By secrets in files. A gateway that does both has one for each direction, so that nobody can send its own
    /// questions back to it.
    Hmac {
        /// Of the direction in which this gateway sends data, or of the only direction.
        key_file: String,
        /// Of the direction in which a gateway that does both receives data.
        answer_key_file: Option<String>,
    },
}

choice! {
    enum AuthKind { Hmac = "hmac", None = "none" }
}

/// What a sending gateway does.
#[derive(Clone, Debug)]
pub struct Sender {
    /// Parameters of the scheme, whose flows are `classes`.
    pub params: Params,
    /// The classes, the most important first.
    pub classes: Vec<Class>,
    /// Bandwidth in force while the peer is silent.
    pub safe_rate: Rate,
    /// How long the peer may be silent before `safe_rate`.
    pub hold: Span,
    /// Share of the bytes from which on it is said that they leave by no class.
    pub unclassified: f64,
}

/// This gateway, and the other, as its roles number them.
pub const OWN: NodeId = NodeId(0);
/// The other gateway.
pub const OTHER: NodeId = NodeId(1);
/// All that a gateway knows of the network: itself and the other.
pub fn inventory() -> Inventory {
    let mut both = Inventory::default();
    both.join("own");
    both.join("other");
    both
}

/// The shaper's port.
const PATH: PortId = PortId(0);

impl Sender {
    /// Takes as many flows in each class as were counted there, where they are; whether that changes what a class needs. A
    /// class needs no more than the ceiling.
    pub fn count(&mut self, counted: &[u32]) -> bool {
        let ceiling = self.params.rate("ceiling");
        let mut has_changed = false;
        for (class, counted) in self.classes.iter_mut().zip(counted) {
            let Some(least) = class.counted else { continue };
            let flows = (*counted).max(least);
            let all = class.each.bits_per_sec().saturating_mul(u64::from(flows));
            let need = Rate::from_bits_per_sec(all).min(ceiling);
            has_changed |= need != class.flow.need;
            (class.flows, class.flow.need) = (flows, need);
        }
        if has_changed {
            self.params.set("needs", needs(&self.classes));
        }
        has_changed
    }

    /// The role, which goes on from what an earlier one saved. The shaper counts `overhead` bytes more than those of IP.
    pub fn role(&self, overhead: u32, saved: Option<&[u8]>) -> scheme::Role {
        let place = Place {
            peers: vec![(OTHER, &er2bc::RECEIVER)],
            ports: vec![PATH],
            ..Place::new(&er2bc::SENDER, OWN, self.params.clone())
        };
        let mut both = inventory();
        let path = both.add_port("own->other", OWN, OTHER, self.params.rate("ceiling"));
        debug_assert_eq!(path, PATH);
        both.set_overhead(path, overhead);
        scheme::Role::new(&er2bc::DEF, place, &both, saved)
    }
}

impl Deployment {
    /// The peer as the file names it.
    pub fn peer_name(&self) -> String {
        match &self.whereabouts {
            Whereabouts::Fixed => self.peer.to_string(),
            Whereabouts::Named(name) => format!("{name}:{}", self.peer.port()),
            Whereabouts::Learnt => ANY.to_owned(),
        }
    }

    /// What is wrong with `key` on this machine, with its place; none when the file does not have it.
    pub fn complaint(&self, key: &str, what: &str) -> Option<String> {
        let (_, place) = self.places.iter().find(|(own, _)| *own == key)?;
        Some(format!("{place}: error: {key}: {what}"))
    }

    /// Its roles, which go on from what those before them saved. The shaper counts `overhead` bytes more than those of IP.
    pub fn roles(&self, overhead: u32, saved: &[Option<Vec<u8>>]) -> Vec<scheme::Role> {
        let answering = || {
            let place = Place {
                peers: vec![(OTHER, &er2bc::SENDER)],
                ..Place::new(&er2bc::RECEIVER, OWN, Params::default())
            };
            scheme::Role::new(&er2bc::DEF, place, &inventory(), None)
        };
        let saved = saved.first().and_then(Option::as_deref);
        let asking = self.sender.iter().map(|sender| sender.role(overhead, saved));
        asking.chain((self.role != Role::Sender).then(answering)).collect()
    }
}

/// A class of traffic.
#[derive(Clone, PartialEq, Debug)]
pub struct Class {
    /// Its name.
    pub name: String,
    /// Its priority: 1 before 2.
    pub priority: u32,
    /// What it needs.
    pub flow: shares::Flow,
    /// Flows in it: `flow.need` is what all of them need.
    pub flows: u32,
    /// What each needs.
    pub each: Rate,
    /// They are counted, and are at least so many.
    pub counted: Option<u32>,
    /// Packets that wait at most.
    pub queue: u32,
    /// A packet that one of them fits belongs to the class; none: every packet that no class before took.
    pub matches: Vec<Match>,
}

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

/// A prefix of addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Prefix {
    /// Its first address.
    pub address: IpAddr,
    /// Bits that count.
    pub length: u8,
}

impl core::fmt::Display for Prefix {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

impl Prefix {
    fn parse(text: &str) -> Result<Self, String> {
        let (address, length) = text.split_once('/').unzip();
        let address: IpAddr = address
            .unwrap_or(text)
            .parse()
            .map_err(|_| "is not an address or prefix such as \"10.1.0.0/16\"".to_owned())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let length = match length {
            None => most,
            Some(bits) => bits
                .parse()
                .ok()
                .filter(|bits| *bits <= most)
                .ok_or_else(|| format!("has a length that is not a whole number from 0 to {most}"))?,
        };
        let first = match address {
            IpAddr::V4(a) => IpAddr::V4((u32::from(a) & mask(u32::MAX, 32 - u32::from(length))).into()),
            IpAddr::V6(a) => {
                let shift = 128 - u32::from(length);
                IpAddr::V6((u128::from(a) & u128::MAX.checked_shl(shift).unwrap_or(0)).into())
            }
        };
        if first != address {
            return Err(format!("has bits set behind the prefix: did you mean \"{first}/{length}\"?"));
        }
        Ok(Self { address, length })
    }
}

fn mask(all: u32, shift: u32) -> u32 {
    all.checked_shl(shift).unwrap_or(0)
}

const RATE: Kind = Kind::Quantity(Dimension::Rate);
const SPAN: Kind = Kind::Quantity(Dimension::Span);
const PORT: Kind = Kind::Integer { min: 1, max: 65_535 };
/// The port in files that do not name one.
const DEFAULT_PORT: &str = "4741";
/// Longest name of a Linux network device, IFNAMSIZ less the final zero.
const LONGEST_INTERFACE: usize = 15;
/// The address of a peer that tells it itself.
const ANY: &str = "any";
/// The sum of the needs may be so many times the ceiling: order of priority is for more than there is, but not for that.
const MOST_TIMES: u64 = 10;
/// Where the folders of gateways are.
const STATE_FOLDER: &str = "/var/lib/bandmaster";
/// Longest name of a gateway: names of tables and sockets are made of it.
const LONGEST_NAME: usize = 32;
/// Shortest silence that is not an ordinary loss.
const FEWEST_CYCLES: u64 = 3;
/// Classes of a gateway.
const MOST_CLASSES: usize = 64;

static FILE: TableDef = TableDef {
    header: "the file",
    doc: "A bandmaster gateway",
    keys: &[keys! {
        /// Version of the file format: 1
        "version": Kind::Integer { min: 0, max: i64::MAX }, required;
        /// Ask and shape what is sent, count and answer, or both
        "role": Role::KIND, required;
        /// Network device towards the peer
        "interface": Kind::Text, required;
        /// Its name among the gateways of the machine; absent: that of the file, without `.toml`
        "name": Kind::Text, optional;
        /// Folder of journal and status; absent: `/var/lib/bandmaster/NAME`
        "state-directory": Kind::Text, optional;
        /// Address and port where metrics are served; absent: nowhere
        "metrics": Kind::Text, optional;
        /// When the machine gets back what it had
        "restore": Restore::KIND, default "on-exit";
        /// Replace a queue discipline of somebody else
        "replace-qdisc": Kind::Bool, default "false";
        /// Form of the log
        "log": Log::KIND, default "logfmt";
        /// The other gateway
        "peer": Kind::Nested, required;
        /// How the bandwidth is estimated and divided (sender)
        "control": Kind::Nested, optional;
        /// Classes of traffic (sender)
        "classes": Kind::Nested, optional;
        /// What is counted as data (receiver); absent: all that comes from the peer's address
        "data": Kind::Nested, optional;
    }],
    selector: None,
    nested: &[
        ("peer", Shape::Table(&PEER)),
        ("control", Shape::Table(&CONTROL)),
        ("classes", Shape::Tables(&CLASS)),
        ("data", Shape::Tables(&DATA)),
    ],
};

static PEER: TableDef = TableDef {
    header: "[peer]",
    doc: "The other gateway",
    keys: &[keys! {
        /// Its IP address, its name, or `any`: it is where its valid messages come from
        "address": Kind::Text, required;
        /// Its UDP port
        "port": PORT, default DEFAULT_PORT;
        /// Own address of the socket; absent: any
        "listen-address": Kind::Text, optional;
        /// Own UDP port
        "listen-port": PORT, default DEFAULT_PORT;
        /// `hmac`: messages carry a tag; `none`: the paper's form, which anybody can forge
        "auth": AuthKind::KIND, default "hmac";
        /// Receiver: after so long without a question, say where it is, for a peer that does not know
        "keep-alive": SPAN, optional;
        /// File with the secret that both gateways know (auth = "hmac")
        "key-file": Kind::Text, optional;
        /// role = "both": the secret of the direction in which data comes; the peer's key-file
        "answer-key-file": Kind::Text, optional;
    }],
    selector: None,
    nested: &[],
};

static CONTROL: TableDef = TableDef {
    header: "[control]",
    doc: "How the bandwidth is estimated and divided",
    keys: &[
        er2bc::CONTROL_KEYS,
        keys! {
            /// Bandwidth in force while the peer is silent
            "safe-rate": RATE, required;
            /// How long the peer may be silent before that
            "hold": SPAN, default "10s";
            /// Share of the bytes of 10 s, or of what all classes need when that is more, from which on it is said that they leave by no class
            "unclassified": Kind::Float { min: 0.0, max: 1.0 }, default "0.05";
        },
    ],
    selector: None,
    nested: &[],
};

static CLASS: TableDef = TableDef {
    header: "[[classes]]",
    doc: "A class of traffic",
    keys: &[keys! {
        /// Name
        "name": Kind::Text, required;
        /// Its place: 1 before 2
        "priority": Kind::Integer { min: 1, max: 1000 }, required;
        /// Rate of IP packets that each of its flows needs; other rates are of bytes on the link
        "need": RATE, required;
        /// Flows in it at a time; with count-flows, at least
        "flows": Kind::Integer { min: 1, max: 100_000 }, default "1";
        /// Count the flows in it (TCP and UDP, by addresses and ports, for 10 s after their last packet)
        "count-flows": Kind::Bool, default "false";
        /// It sends lost packets again (TCP); without, it is sent with redundancy (UDP)
        "retransmission": Kind::Bool, default "true", from "Sect. 3.1";
        /// Packets that wait at most
        "queue": Kind::Quantity(Dimension::Packets), default "50pkt";
        /// Rules, one of which a packet must fit; absent, on the last class only: all that is left
        "match": Kind::Nested, optional;
    }],
    selector: None,
    nested: &[("match", Shape::Tables(&MATCH))],
};

const MATCH_KEYS: &[Key] = keys! {
    /// Code points
    "dscp": Kind::Nested, optional;
    /// Source addresses or prefixes
    "source": Kind::TextList, optional;
    /// Destination addresses or prefixes
    "destination": Kind::TextList, optional;
    /// Transport protocol
    "protocol": Protocol::KIND, optional;
    /// Destination ports, or ranges as "5000-5010"; needs protocol
    "ports": Kind::Nested, optional;
};

static MATCH: TableDef = TableDef {
    header: "[[classes.match]]",
    doc: "A rule",
    keys: &[MATCH_KEYS],
    selector: None,
    nested: &[("dscp", Shape::CodePoints), ("ports", Shape::Values)],
};

static DATA: TableDef = TableDef {
    header: "[[data]]",
    doc: "A rule for what is counted as data",
    keys: &[MATCH_KEYS],
    selector: None,
    nested: &[("dscp", Shape::CodePoints), ("ports", Shape::Values)],
};

/// Reads a deployment file. `file` is its name in messages.
///
/// # Errors
/// Everything that is wrong with the text, each with its place.
pub fn parse(file: &str, text: &str) -> Result<Deployment, Errors> {
    let root = file::read_file(file, text).map_err(Errors::new)?;
    let mut reader = Reader::new(file, None, ());
    let deployment = read(&mut reader, file, &root);
    match deployment {
        Some(deployment) if reader.errors.is_empty() => Ok(deployment),
        _ => Err(Errors::new(reader.errors)),
    }
}

fn read(reader: &mut Reader, path: &str, root: &Item) -> Option<Deployment> {
    let file = reader.section(&FILE, &Layer::new("", root));
    if let Some(version) = file.integer("version").filter(|v| *v != 1) {
        reader.fail_key(&file, "version", format!("{version} is not known; this program reads version 1"));
    }
    let role: Option<Role> = file.choice("role");
    let interface = file.text("interface");
    if let Some(name) = &interface
        && !is_interface(name)
    {
        let what =
            format!("\"{name}\" is not the name of a network device (1 to {LONGEST_INTERFACE} letters)");
        reader.fail_key(&file, "interface", what);
    }
    let name = name(reader, path, &file);
    let state_directory =
        file.text("state-directory").or_else(|| name.as_ref().map(|name| format!("{STATE_FOLDER}/{name}")));
    if state_directory.as_ref().is_some_and(|dir| !dir.starts_with('/')) {
        reader.fail_key(&file, "state-directory", "is not an absolute path");
    }
    let metrics = file.text("metrics").and_then(|text| {
        let address = text.parse().ok();
        match address {
            None => {
                let what = format!("\"{text}\" is not an address with a port, such as \"127.0.0.1:9464\"");
                reader.fail_key(&file, "metrics", what);
            }
            Some(address) => {
                let whole: SocketAddr = address;
                let why =
                    if whole.port() == 0 { Some("has port 0; write 1 to 65535") } else { many(whole.ip()) };
                if let Some(why) = why {
                    reader.fail_key(&file, "metrics", format!("{text} {why}"));
                }
            }
        }
        address
    });
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

/// The name of the gateway: what the file says, or what it is called itself.
fn name(reader: &mut Reader, path: &str, file: &Section<'_>) -> Option<String> {
    let told = file.text("name");
    if told.is_none() && file.item("name").is_some() {
        return None;
    }
    let is_told = told.is_some();
    let name = told.unwrap_or_else(|| stem(path).to_owned());
    if is_name(&name) {
        return Some(name);
    }
    let allowed =
        format!("1 to {LONGEST_NAME} letters, digits, '-', '_' and '.', the first a letter or digit");
    if is_told {
        reader.fail_key(file, "name", format!("\"{name}\" is not a name: {allowed}"));
    } else {
        let what = format!("is missing, and that of the file, \"{name}\", is not a name: {allowed}");
        reader.fail(&file.place, "name", what);
    }
    None
}

/// What a file is called without its folder and its last `.toml`.
fn stem(file: &str) -> &str {
    let name = file.rsplit('/').next().unwrap_or(file);
    name.strip_suffix(".toml").unwrap_or(name)
}

fn is_name(name: &str) -> bool {
    let letter = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    (1..=LONGEST_NAME).contains(&name.len())
        && name.chars().all(letter)
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
}

fn is_interface(name: &str) -> bool {
    let letter = |c: char| c.is_ascii_alphanumeric() || "-_.@:".contains(c);
    (1..=LONGEST_INTERFACE).contains(&name.len()) && name.chars().all(letter) && name != "." && name != ".."
}

/// The table `[peer]`.
struct Peer {
    address: SocketAddr,
    whereabouts: Whereabouts,
    listen: SocketAddr,
    keep_alive: Option<Span>,
    auth: Auth,
}

/// Why no single machine has this address; none: one may.
fn many(address: IpAddr) -> Option<&'static str> {
    match address {
        _ if address.is_multicast() => Some("is a multicast address: many machines may have it"),
        IpAddr::V4(v4) if v4.is_broadcast() => Some("is the broadcast address: every machine has it"),
        IpAddr::V4(v4) if v4.octets()[0] == 0 && !v4.is_unspecified() => {
            Some("is of network 0: no machine has it")
        }
        IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some() => {
            Some("is an IPv4 address in an IPv6 one; write the IPv4 one")
        }
        _ => None,
    }
}

/// Labels of letters, digits and hyphens between points (RFC 1123), one of which is not a number.
fn is_host(name: &str) -> bool {
    let letter = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.chars().all(letter)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let labels = name.strip_suffix('.').unwrap_or(name);
    (1..=253).contains(&labels.len())
        && labels.split('.').all(label)
        && labels.split('.').next_back().is_some_and(|last| last.contains(|c: char| c.is_ascii_alphabetic()))
}

fn peer(reader: &mut Reader, file: &Section<'_>, role: Option<Role>) -> Option<Peer> {
    let layer = reader.table(file, "peer");
    let section = reader.section(&PEER, &layer);
    let plain = section.choice("auth") == Some(AuthKind::None);
    let own = section.text("listen-address").and_then(|text| {
        let address = text.parse::<IpAddr>().ok();
        let why = address.map_or(Some("is not an IP address, such as \"192.0.2.1\""), many);
        if let Some(why) = why {
            reader.fail_key(&section, "listen-address", format!("\"{text}\" {why}"));
        }
        address.filter(|_| why.is_none())
    });
    let text = section.text("address");
    let (peer, whereabouts) = match text.as_deref() {
        None => (None, Whereabouts::Fixed),
        Some(text) => match text.parse::<IpAddr>() {
            Ok(address) => {
                let none = "is no machine's address; write \"any\" when it is not known";
                if let Some(why) = address.is_unspecified().then_some(none).or(many(address)) {
                    reader.fail_key(&section, "address", format!("\"{text}\" {why}"));
                }
                (Some(address), Whereabouts::Fixed)
            }
            Err(_) if text == ANY => (None, Whereabouts::Learnt),
            Err(_) if is_host(text) => (None, Whereabouts::Named(text.to_owned())),
            Err(_) => {
                let what = format!(
                    "\"{text}\" is not an IP address, such as \"192.0.2.1\", a name such as \"gw.example.net\", or \
                     \"{ANY}\""
                );
                reader.fail_key(&section, "address", what);
                (None, Whereabouts::Fixed)
            }
        },
    };
    if plain && whereabouts != Whereabouts::Fixed {
        let what =
            "goes with auth = \"hmac\": with \"none\" anybody could move the address; write an IP address";
        reader.fail_key(&section, "address", what);
    }
    if whereabouts == Whereabouts::Learnt && section.item("port").is_some() {
        reader.fail_key(
            &section,
            "port",
            "goes with an address or a name: of \"any\" the port is learnt as well",
        );
    }
    if let (Some(peer), Some(own)) = (peer, own)
        && peer.is_ipv4() != own.is_ipv4()
    {
        reader.fail_key(&section, "listen-address", "is of another IP version than the peer's address");
    }
    let keep_alive = section.span("keep-alive");
    if keep_alive.is_some() && (plain || role == Some(Role::Sender)) {
        let what =
            "goes with auth = \"hmac\" and role = \"receiver\" or \"both\": questions tell where a sender is";
        reader.fail_key(&section, "keep-alive", what);
    }
    if keep_alive.is_some_and(|span| span < Span::from_secs(1)) {
        reader.fail_key(&section, "keep-alive", "must be at least 1s");
    }
    if keep_alive.is_some() && whereabouts == Whereabouts::Learnt {
        reader.fail_key(&section, "keep-alive", "needs an address or a name to send to");
    }
    let (key_file, answer_key_file) = (section.text("key-file"), section.text("answer-key-file"));
    if plain {
        for key in ["key-file", "answer-key-file"] {
            if section.item(key).is_some() {
                reader.fail_key(&section, key, "goes with auth = \"hmac\", not with \"none\"");
            }
        }
    } else {
        if key_file.is_none() && section.item("key-file").is_none() {
            let hint = "write the path of a file with a secret of at least 16 bytes, or auth = \"none\"";
            let path = format!("{}.key-file", section.path);
            reader.fail_with(&section.place, &path, "is missing", hint);
        }
        match (role, &answer_key_file) {
            (Some(Role::Both), None) => {
                let path = format!("{}.answer-key-file", section.path);
                let hint = "role = \"both\" needs a secret for each direction";
                reader.fail_with(&section.place, &path, "is missing", hint);
            }
            (Some(Role::Both), Some(file)) if Some(file) == key_file.as_ref() => {
                let what = "is the file of key-file; each direction needs a secret of its own";
                reader.fail_key(&section, "answer-key-file", what);
            }
            (Some(Role::Sender | Role::Receiver), Some(_)) => {
                reader.fail_key(&section, "answer-key-file", "goes with role = \"both\"");
            }
            _ => {}
        }
    }
    let port = |key| section.integer(key).and_then(|n| u16::try_from(n).ok());
    let any = |is_ipv4: bool| -> IpAddr { if is_ipv4 { [0; 4].into() } else { [0u16; 8].into() } };
    let is_ipv4 = peer.or(own).is_none_or(|address| address.is_ipv4());
    let nowhere = || (whereabouts != Whereabouts::Fixed).then(|| any(is_ipv4));
    let address = SocketAddr::new(peer.or_else(nowhere)?, port("port")?);
    let listen = SocketAddr::new(own.unwrap_or(any(is_ipv4)), port("listen-port")?);
    if whereabouts == Whereabouts::Fixed && address == listen {
        reader.fail_key(
            &section,
            "address",
            format!("{address} is the own address and port (listen-address)"),
        );
    }
    let auth = if plain { Auth::None } else { Auth::Hmac { key_file: key_file?, answer_key_file } };
    Some(Peer { address, whereabouts, listen, keep_alive, auth })
}

fn sender(reader: &mut Reader, file: &Section<'_>) -> Option<Sender> {
    for key in ["control", "classes"] {
        if file.item(key).is_none() {
            let hint = if key == "control" { "write [control]" } else { "write [[classes]]" };
            reader.fail_with(&file.place, key, "is missing", hint);
        }
    }
    file.item("control")?;
    file.item("classes")?;
    let layer = reader.table(file, "control");
    let control = reader.section(&CONTROL, &layer);
    let unclassified = control.float("unclassified");
    let (safe_rate, hold, cycle) = (control.rate("safe-rate"), control.span("hold"), control.span("cycle"));
    if cycle.is_some_and(|cycle| cycle < Span::from_millis(10)) {
        reader.fail_key(&control, "cycle", "must be at least 10ms");
    }
    if let (Some(hold), Some(cycle)) = (hold, cycle)
        && hold < cycle * FEWEST_CYCLES
    {
        let what =
            format!("{hold} is shorter than {FEWEST_CYCLES} cycles of {cycle}: a lost probe is no silence");
        reader.fail_key(&control, "hold", what);
    }
    if let (Some(safe), Some(ceiling)) = (safe_rate, control.rate("ceiling"))
        && safe > ceiling
    {
        reader.fail_key(&control, "safe-rate", format!("{safe} is above the ceiling of {ceiling}"));
    }
    for key in ["safe-rate", "initial", "ceiling"] {
        if control.rate(key) == Some(Rate::ZERO) {
            reader.fail_key(&control, key, "must be more than nothing");
        }
    }
    let classes = classes(reader, file, control.rate("ceiling"));
    if let (Some(initial), Some(ceiling)) = (control.rate("initial"), control.rate("ceiling"))
        && initial > ceiling
    {
        reader.fail_key(&control, "initial", format!("{initial} is above the ceiling of {ceiling}"));
    }
    let mut params = control.params(er2bc::CONTROL_KEYS)?;
    if let Err((key, what)) = er2bc::check_constants(&params) {
        reader.fail_key(&control, key, what);
    }
    let redundant = |(_, class): &(u32, &Class)| !class.flow.retransmits;
    let redundant = (1..).zip(&classes).filter(redundant).map(|(place, _)| place.to_string()).collect();
    params.set("needs", needs(&classes));
    params.set("retransmission", Value::Bool(true));
    params.set("redundant", Value::List(redundant));
    params.set("safe-rate", Value::Rate(safe_rate?));
    params.set("hold", Value::Span(hold?));
    Some(Sender { params, classes, safe_rate: safe_rate?, hold: hold?, unclassified: unclassified? })
}

fn needs(classes: &[Class]) -> Value {
    Value::List(classes.iter().map(|class| class.flow.need.to_string()).collect())
}

fn classes(reader: &mut Reader, file: &Section<'_>, ceiling: Option<Rate>) -> Vec<Class> {
    let layers = reader.tables(file, "classes");
    if layers.is_empty() || layers.len() > MOST_CLASSES {
        let what = format!("has {} classes; write 1 to {MOST_CLASSES}", layers.len());
        reader.fail_key(file, "classes", what);
    }
    let sections: Vec<Section<'_>> = layers.iter().map(|layer| reader.section(&CLASS, layer)).collect();
    let names: Vec<_> = sections.iter().filter_map(|section| section.name_entry("name")).collect();
    reader.unique(&names);
    let last = sections.iter().filter_map(|section| section.integer("priority")).max();
    let mut classes: Vec<Class> = Vec::new();
    let mut sum = 0u64;
    for section in &sections {
        let name = reader.name(section, "name");
        let mut matches = Vec::new();
        for layer in reader.tables(section, "match") {
            let rule_section = reader.section(&MATCH, &layer);
            matches.extend(rule(reader, &rule_section));
        }
        let priority = section.integer("priority");
        if section.item("match").is_none() && priority != last {
            let what = "has no match, so that it takes every packet: only the class of the last priority may";
            reader.fail(&section.place, &section.path, what);
        }
        let need = section.rate("need");
        if need == Some(Rate::ZERO) {
            reader.fail_key(section, "need", "must be more than nothing");
        }
        if let (Some(priority), Some(taken)) =
            (priority, classes.iter().find(|class| Some(i64::from(class.priority)) == priority))
        {
            let what = format!("{priority} is the priority of class `{}`", taken.name);
            reader.fail_key(section, "priority", what);
        }
        let queue = section.integer("queue").and_then(|n| u32::try_from(n).ok());
        if section.integer("queue").is_some() && queue.is_none_or(|n| n == 0) {
            reader.fail_key(section, "queue", "must be from 1pkt to 4294967295pkt");
        }
        let (Some(name), Some(priority), Some(need), Some(retransmits), Some(queue)) =
            (name, priority, need, section.bool("retransmission"), queue)
        else {
            continue;
        };
        let flows = section.integer("flows").and_then(|n| u32::try_from(n).ok()).unwrap_or(1);
        let all = need.bits_per_sec().saturating_mul(u64::from(flows));
        sum = sum.saturating_add(all);
        if let Some(ceiling) = ceiling {
            let said = |bits| Rate::from_bits_per_sec(bits);
            if all > ceiling.bits_per_sec() {
                let what = format!(
                    "{} is above the ceiling of {ceiling}: it would never be met",
                    if flows == 1 {
                        need.to_string()
                    } else {
                        format!("{need} for each of {flows} flows, {},", said(all))
                    }
                );
                reader.fail_key(section, "need", what);
            } else if sum > ceiling.bits_per_sec().saturating_mul(MOST_TIMES) {
                let what = format!(
                    "{need} makes the sum of the needs {}, more than {MOST_TIMES} times the ceiling of {ceiling}",
                    said(sum)
                );
                reader.fail_key(section, "need", what);
            }
        }
        // Eq. 6 is linear in the need: what flows with redundancy need together grows as that of each.
        let flow = shares::Flow { need: Rate::from_bits_per_sec(all), retransmits };
        let counted = (section.bool("count-flows") == Some(true)).then_some(flows);
        classes.push(Class {
            name,
            priority: priority as u32,
            flow,
            flows,
            each: need,
            counted,
            queue,
            matches,
        });
    }
    classes.sort_by_key(|class| class.priority);
    classes
}

fn rule(reader: &mut Reader, section: &Section<'_>) -> Option<Match> {
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

/// The keys of deployment files, table by table, for their documentation: header, then key, what is allowed, default
/// and meaning.
pub fn reference() -> Vec<(&'static str, Vec<&'static Key>)> {
    [&FILE, &PEER, &CONTROL, &CLASS, &MATCH].into_iter().map(|def| (def.header, def.keys_for(None))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
version = 1
role = "sender"
interface = "wan0"

[peer]
address = "192.0.2.2"
key-file = "peer.key"

[control]
estimator = "delay"
safe-rate = "500kbit"

[[classes]]
name = "rest"
priority = 9
need = "100kbit"

[[classes]]
name = "voice"
priority = 1
need = "400kbit"
retransmission = false

[[classes.match]]
dscp = ["ef", 34]
source = ["10.1.0.0/16"]
protocol = "udp"
ports = [5060, "10000-20000"]
"#;

    fn errors(text: &str) -> Vec<String> {
        parse("gw.toml", text)
            .err()
            .map_or_else(Vec::new, |errors| errors.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn a_file_becomes_a_deployment_in_order_of_priority() {
        let deployment = parse("gw.toml", GOOD).expect("valid");
        let sender = deployment.sender.expect("a sender");
        let names: Vec<&str> = sender.classes.iter().map(|class| class.name.as_str()).collect();
        assert_eq!(names, ["voice", "rest"]);
        let flows = er2bc::Settings::new(&sender.params, 0).flows;
        assert_eq!(flows[0].need, Rate::from_bits_per_sec(400_000));
        // 400 kbit/s of packets of 1500 B are 403.7 kbit/s of frames of 1514 B.
        let framed = er2bc::Settings::new(&sender.params, 14).flows;
        assert_eq!(framed[0].need, Rate::from_bits_per_sec(403_733));
        assert!(!flows[0].retransmits);
        assert_eq!(sender.hold, Span::from_secs(10));
        let rule = &sender.classes[0].matches[0];
        assert_eq!(
            (rule.dscp.as_slice(), rule.ports.as_slice()),
            (&[46, 34][..], &[(5060, 5060), (10_000, 20_000)][..])
        );
        assert_eq!(deployment.peer.to_string(), "192.0.2.2:4741");
        assert_eq!(deployment.listen.to_string(), "0.0.0.0:4741");
        assert_eq!(deployment.data[0].source[0].to_string(), "192.0.2.2/32");
    }

    #[test]
    fn a_gateway_is_called_as_its_file_says_or_as_the_file() {
        let read = |file: &str, text: &str| {
            parse(file, text).map(|deployment| (deployment.name, deployment.state_directory))
        };
        let pair = |name: &str, folder: &str| Ok((name.to_owned(), folder.to_owned()));
        assert_eq!(
            read("/etc/bandmaster/gateway.toml", GOOD),
            pair("gateway", "/var/lib/bandmaster/gateway")
        );
        assert_eq!(read("site-a.toml", GOOD), pair("site-a", "/var/lib/bandmaster/site-a"));
        let named = GOOD.replace("role =", "name = \"north\"\nrole =");
        assert_eq!(read("site-a.toml", &named), pair("north", "/var/lib/bandmaster/north"));
        let placed = GOOD.replace("role =", "state-directory = \"/run/x\"\nrole =");
        assert_eq!(read("site-a.toml", &placed), pair("site-a", "/run/x"));
        for wrong in ["", "-a", "../a", "a b", "a/b", &"a".repeat(33)] {
            let text = GOOD.replace("role =", &format!("name = \"{wrong}\"\nrole ="));
            assert!(errors(&text)[0].contains("gw.toml:3:8: error: name: "), "{wrong}: {:?}", errors(&text));
            let said = parse(&format!("{wrong}.toml"), GOOD).err();
            assert!(wrong.contains('/') || said.is_some(), "{wrong}");
        }
    }

    /// One mistake each: what was written, what to write instead, and what the message must say, place included.
    #[test]
    fn mistakes_are_named_with_place_and_remedy() {
        let cases = [
            (
                "role = \"sender\"",
                "role = \"sendr\"",
                "gw.toml:3:8: error: role: \"sendr\" is not \"sender\", \"receiver\" or \"both\"; did you mean \"sender\"?",
            ),
            ("interface = \"wan0\"", "interfce = \"wan0\"", "did you mean `interface`?"),
            (
                "\"wan0\"",
                "\"a wan\"",
                "gw.toml:4:13: error: interface: \"a wan\" is not the name of a network device",
            ),
            ("\"192.0.2.2\"", "\"gw_example..net\"", "a name such as"),
            (
                "\"192.0.2.2\"",
                "\"192.0.2.256\"",
                "gw.toml:7:11: error: peer.address: \"192.0.2.256\" is not an IP address",
            ),
            (
                "\"192.0.2.2\"",
                "\"0.0.0.0\"",
                "gw.toml:7:11: error: peer.address: \"0.0.0.0\" is no machine's address",
            ),
            ("\"192.0.2.2\"", "\"::\"", "is no machine's address"),
            ("\"192.0.2.2\"", "\"0.1.2.3\"", "is of network 0"),
            ("\"192.0.2.2\"", "\"224.0.0.5\"", "is a multicast address"),
            ("\"192.0.2.2\"", "\"ff02::1\"", "is a multicast address"),
            ("\"192.0.2.2\"", "\"255.255.255.255\"", "is the broadcast address"),
            ("\"192.0.2.2\"", "\"::ffff:192.0.2.2\"", "write the IPv4 one"),
            (
                "\"192.0.2.2\"",
                "\"192.0.2.2\"\nlisten-address = \"192.0.2.2\"",
                "peer.address: 192.0.2.2:4741 is the own address and port",
            ),
            (
                "\"192.0.2.2\"",
                "\"192.0.2.2\"\nlisten-address = \"239.1.1.1\"",
                "listen-address: \"239.1.1.1\" is a multicast",
            ),
            ("\"192.0.2.2\"", "\"any\"\nport = 5000", "peer.port: goes with an address or a name"),
            ("\"192.0.2.2\"", "\"192.0.2.2\"\nkeep-alive = \"25s\"", "peer.keep-alive: goes with"),
            (
                "\"192.0.2.2\"\nkey-file = \"peer.key\"",
                "\"gw.example\"\nauth = \"none\"",
                "peer.address: goes with auth = \"hmac\"",
            ),
            ("role =", "metrics = \"127.0.0.1:0\"\nrole =", "metrics: 127.0.0.1:0 has port 0"),
            ("role =", "metrics = \"224.0.0.1:9464\"\nrole =", "metrics: 224.0.0.1:9464 is a multicast"),
            (
                "need = \"400kbit\"",
                "need = \"2gbit\"",
                "gw.toml:22:8: error: classes.voice.need: 2gbit is above the ceiling of 1gbit",
            ),
            (
                "need = \"400kbit\"",
                "need = \"400kbit\"\nflows = 3000",
                "400kbit for each of 3000 flows, 1200mbit, is above the ceiling",
            ),
            ("need = \"400kbit\"", "need = \"400kbit\"\nflows = 0", "flows: "),
            ("safe-rate = \"500kbit\"", "safe-rate = \"0bit\"", "must be more than nothing"),
            (
                "safe-rate = \"500kbit\"",
                "safe-rate = \"500kbit\"\ninitial = \"1tbit\"",
                "initial: 1000gbit is above",
            ),
            ("key-file = \"peer.key\"", "", "peer.key-file: is missing"),
            ("key-file = \"peer.key\"", "key-file = \"k\"\nauth = \"none\"", "goes with auth = \"hmac\""),
            ("safe-rate = \"500kbit\"", "safe-rate = \"500kbps\"", "tc reads it as bytes per second"),
            ("safe-rate = \"500kbit\"", "safe-rate = \"2gbit\"", "2gbit is above the ceiling of 1gbit"),
            (
                "safe-rate = \"500kbit\"",
                "safe-rate = \"1mbit\"\nhold = \"2s\"",
                "2s is shorter than 3 cycles of 1s",
            ),
            (
                "safe-rate = \"500kbit\"",
                "safe-rate = \"500kbit\"\ntheta-low = 2",
                "theta-low: 2 is above theta-high, 1",
            ),
            ("priority = 9", "priority = 1", "1 is the priority of class `rest`"),
            ("name = \"rest\"", "name = \"voice\"", "the name `voice` is taken"),
            ("priority = 1\n", "priority = 10\n", "only the class of the last priority may"),
            ("10.1.0.0/16", "10.1.2.0/16", "did you mean \"10.1.0.0/16\"?"),
            ("10.1.0.0/16", "10.1.0.0/33", "from 0 to 32"),
            ("\"ef\"", "\"best\"", "is not a code point"),
            ("protocol = \"udp\"\n", "", "need protocol"),
            ("\"10000-20000\"", "\"20000-10000\"", "is not a port from 1 to 65535"),
            ("need = \"400kbit\"", "need = 400", "has no unit"),
            ("version = 1", "version = 2", "this program reads version 1"),
            ("10.1.0.0/16\"]", "10.1.0.0/16\", \"fd00::/8\"]", "mixes IPv4 and IPv6"),
            (
                "protocol = \"udp\"",
                "protocol = \"udp\"\ndestination = [\"fd00::/8\"]",
                "destination: is of another IP version than source",
            ),
            (
                "ports = [5060, \"10000-20000\"]\n",
                "ports = [5060, \"10000-20000\"]\n[[classes.match]]\n",
                "is empty: it would",
            ),
            ("need = \"100kbit\"", "need = \"100kbit\"\nqueue = \"0pkt\"", "queue: "),
            ("need = \"100kbit\"", "need = \"0kbit\"", "must be more than nothing"),
        ];
        for (from, to, expected) in cases {
            assert!(GOOD.contains(from), "{from}");
            let said = errors(&GOOD.replacen(from, to, 1));
            assert!(said.iter().any(|message| message.contains(expected)), "{to}: {said:#?}");
        }
    }

    /// Ten times the ceiling and a little.
    #[test]
    fn needs_far_beyond_the_ceiling_are_absurd() {
        let (head, _) = GOOD.split_once("[[classes]]").expect("classes");
        let class = |i: usize| {
            format!(
                "[[classes]]\nname = \"c{i}\"\npriority = {i}\nneed = \"1gbit\"\n[[classes.match]]\ndscp = [1]\n"
            )
        };
        let with = |count: usize| head.to_owned() + &(1..=count).map(class).collect::<String>();
        assert_eq!(errors(&with(10)), [] as [String; 0]);
        assert!(
            errors(&with(11))[0].contains("sum of the needs 11gbit, more than 10 times"),
            "{:?}",
            errors(&with(11))
        );
    }

    /// A peer without a fixed address; what it sends is told by `[[data]]`.
    #[test]
    fn a_peer_may_be_named_or_learnt() {
        let read = |address: &str| parse("gw.toml", &GOOD.replace("192.0.2.2", address)).expect("valid");
        let named = read("gw.example.net");
        assert_eq!(named.whereabouts, Whereabouts::Named("gw.example.net".to_owned()));
        assert_eq!(
            (named.peer.to_string(), named.listen.to_string()),
            ("0.0.0.0:4741".into(), "0.0.0.0:4741".into())
        );
        assert_eq!(read("any").whereabouts, Whereabouts::Learnt);
        assert_eq!(read("any\"\nlisten-address = \"::").listen.to_string(), "[::]:4741");
        let (head, _) = GOOD.split_once("[control]").expect("control");
        let receiver = head.replace("sender", "receiver").replace("192.0.2.2", "any");
        assert!(errors(&receiver)[0].contains("data: is missing"), "{:?}", errors(&receiver));
        assert_eq!(errors(&(receiver + "[[data]]\nsource = \"10.1.0.0/16\"\n")), [] as [String; 0]);
    }

    /// 30 calls of 80 kbit/s.
    #[test]
    fn a_class_needs_what_its_flows_need_together() {
        let text = GOOD.replace("need = \"400kbit\"", "need = \"80kbit\"\nflows = 30");
        let sender = parse("gw.toml", &text).expect("valid").sender.expect("a sender");
        assert_eq!((sender.classes[0].flows, sender.classes[1].flows), (30, 1));
        let flows = er2bc::Settings::new(&sender.params, 0).flows;
        assert_eq!(flows[0].need, Rate::from_bits_per_sec(2_400_000));
    }

    #[test]
    fn counted_flows_make_the_need() {
        let text = GOOD.replace("need = \"400kbit\"", "need = \"80kbit\"\nflows = 2\ncount-flows = true");
        let mut sender = parse("gw.toml", &text).expect("valid").sender.expect("a sender");
        let needs = |sender: &Sender| -> Vec<u64> {
            er2bc::Settings::new(&sender.params, 0)
                .flows
                .iter()
                .map(|flow| flow.need.bits_per_sec())
                .collect()
        };
        assert_eq!(needs(&sender), [160_000, 100_000]);
        assert!(!sender.count(&[1, 7]), "at least two; the other class is not counted");
        assert!(sender.count(&[30, 7]));
        assert_eq!((needs(&sender), sender.classes[0].flows), (vec![2_400_000, 100_000], 30));
        assert!(sender.count(&[u32::MAX, 0]));
        assert_eq!(needs(&sender)[0], 1_000_000_000, "the ceiling");
        assert!(sender.count(&[0, 0]));
        assert_eq!(needs(&sender), [160_000, 100_000]);
    }

    #[test]
    fn both_directions_need_two_keys() {
        let both = GOOD.replace("role = \"sender\"", "role = \"both\"");
        assert!(errors(&both)[0].contains("needs a secret for each direction"));
        let same = both.replace("key-file = \"peer.key\"", "key-file = \"k\"\nanswer-key-file = \"k\"");
        assert!(errors(&same)[0].contains("a secret of its own"));
    }

    #[test]
    fn every_address_of_a_network_and_every_length_of_it_is_taken() {
        for (text, bits) in [("10.1.2.3/32", 32), ("0.0.0.0/0", 0), ("fd00::1/128", 128), ("::/0", 0)] {
            let prefix = Prefix::parse(text).unwrap_or_else(|why| panic!("{text}: {why}"));
            assert_eq!(prefix.to_string(), text);
            assert_eq!(prefix.length, bits, "{text}");
        }
    }

    #[test]
    fn a_sender_takes_one_class_to_the_most() {
        let (head, _) = GOOD.split_once("[[classes]]").expect("classes");
        assert!(errors(head)[0].contains("classes: is missing"), "{:#?}", errors(head));
        let class = |i: usize| {
            format!(
                "[[classes]]\nname = \"c{i}\"\npriority = {i}\nneed = \"1kbit\"\n[[classes.match]]\ndscp = [1]\n"
            )
        };
        let with = |count: usize| head.to_owned() + &(1..=count).map(class).collect::<String>();
        assert_eq!(errors(&with(MOST_CLASSES)), [] as [String; 0]);
        assert!(errors(&with(MOST_CLASSES + 1))[0].contains("classes; write 1 to"));
    }

    #[test]
    fn a_receiver_takes_no_classes() {
        let receiver = GOOD.replace("role = \"sender\"", "role = \"receiver\"");
        assert!(errors(&receiver).iter().any(|e| e.contains("classes: goes with role = \"sender\"")));
    }
}
