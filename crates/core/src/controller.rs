//! A controller's configuration: its file, the hosts that it may set, and the role that decides.
//!
//! The hosts and their secrets are in a separate file, one host a line: `NUMBER NAME SECRET`, or [`ENROLLED`] instead of the secret.
//! A host takes part once its line is read. When its line is removed, it no longer takes part.

use core::fmt;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use crate::agent::{DEFAULT_PORT, Scheme};
pub use crate::daemon::name_words;
use crate::daemon::{self, Log, many};
use crate::file::{
    Errors, Files, Item, Layer, Place as Written, Reader, Section, Shape, TableDef, read_word, suggestion,
};
use crate::id::{NodeId, PortId};
use crate::params::{Choice, Key, Kind, Params, Value, keys};
use crate::prefix::Prefix;
use crate::runtime::inventory::Inventory;
use crate::scheme::opentcp::statistic::{Source, Statistic, TRAFFIC_HOSTS, TRAFFIC_RACKS};
use crate::scheme::{Place, Role, bas, opentcp};
use crate::time::Span;
use crate::units::{Dimension, Rate, parse_quantity};

/// In the place of a secret: the host enrols by a token, and its secret is in the controller's state directory.
pub const ENROLLED: &str = "enrolled";
/// The controller, as its role numbers it.
pub const OWN: NodeId = NodeId(0);

/// A controller as its file describes it: valid and complete, but for the hosts.
#[derive(Clone, Debug)]
pub struct Deployment {
    /// Its name among the daemons of the machine.
    pub name: String,
    /// What it decides.
    pub scheme: Scheme,
    /// Where its socket is bound.
    pub listen: SocketAddr,
    /// Where hosts enrol, by TCP; none: nowhere.
    pub enrolment: Option<SocketAddr>,
    /// The file with the hosts and their secrets.
    pub hosts_file: String,
    /// Folder of what is kept from one life to the next.
    pub state_directory: String,
    /// Where metrics are served; none: nowhere.
    pub metrics: Option<SocketAddr>,
    /// Form of the log.
    pub log: Log,
    /// Parameters of the scheme's role.
    pub params: Params,
    /// Links of the network, as far as the scheme wants to know them.
    pub links: Vec<Link>,
    /// Where addresses are.
    pub networks: Vec<(Prefix, String)>,
    /// Machines of the hosts-file that forward.
    pub routers: Vec<Router>,
}

/// A router that has an agent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Router {
    /// Its name.
    pub name: String,
    /// Nodes at the other ends of its ports, in the order of its agent.
    pub ports: Vec<String>,
}

/// A link, each direction of which has this rate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Link {
    /// Nodes at its ends.
    pub ends: [String; 2],
    /// Rate.
    pub rate: Rate,
    /// One-way propagation delay, for `whatif`.
    pub delay: Option<Span>,
    /// What may wait at a router's end, as a scenario says it, for `whatif`.
    pub queue: Option<String>,
}

/// A host that has an agent.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Host {
    /// Its number in messages.
    pub number: u32,
    /// Its name.
    pub name: String,
    /// What it shares with the controller.
    pub secret: String,
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Host({} {})", self.number, self.name)
    }
}

static FILE: TableDef = TableDef {
    header: "the file",
    doc: "A bandmaster controller",
    keys: &[keys! {
        ..daemon::VERSION;
        /// Scheme by which it decides
        "scheme": Scheme::KIND, required;
        /// File with a line per host: NUMBER NAME SECRET, or `enrolled` for the secret; `controller enroll` adds a line
        "hosts-file": Kind::Text, required;
        /// Own address of the socket; absent: any IPv4 address
        "listen-address": Kind::Text, optional;
        /// Own UDP port
        "listen-port": Kind::Integer { min: 1, max: 65_535 }, default DEFAULT_PORT;
        /// Address and TCP port where hosts enrol; absent: nowhere, and secrets are carried by hand
        "enrolment": Kind::Text, optional;
        ..daemon::NAME;
        /// Folder of what survives a restart; absent: `/var/lib/bandmaster/NAME`
        "state-directory": Kind::Text, optional;
        ..daemon::METRICS;
        ..daemon::LOG;
        /// How the scheme decides
        "role": Kind::Nested, required;
        /// Machines of the hosts-file that are routers or switches
        "routers": Kind::Nested, optional;
        /// Links of the network: for bas, and for `controller whatif`
        "links": Kind::Nested, optional;
        /// Where addresses are: for bas, for policies about `traffic.*`, and for `controller whatif`
        "networks": Kind::Nested, optional;
    }],
    selector: None,
    nested: &[
        ("role", Shape::Table(&ORACLE)),
        ("routers", Shape::Tables(&ROUTER)),
        ("links", Shape::Tables(&LINK)),
        ("networks", Shape::Tables(&NETWORK)),
    ],
};

const ORACLE_KEYS: &[Key] = keys! {
    /// Policies, the first has precedence: files in this file's folder (`mine.toml`), or those that ship (`bandmaster list`)
    "policies": Kind::Files, required;
    /// T in place of the policies' cycle; leases change in proportion
    "cycle": Kind::Quantity(Dimension::Span), optional;
    /// Most hosts whose settings change in one cycle; absent: all
    "rollout": Kind::Integer { min: 1, max: 1_000_000 }, optional;
    /// Checks to overrule: timescale
    "force": Kind::TextList, optional;
};

static ORACLE: TableDef = TableDef {
    header: "[role] of opentcp",
    doc: "How the Oracle decides",
    keys: &[ORACLE_KEYS],
    selector: None,
    nested: &[],
};

const DOMAIN_KEYS: &[Key] = keys! {
    /// Nodes of the data centre; the scheme allocates the links between them
    "domain": Kind::TextList, required;
};

static ALLOCATOR: TableDef = TableDef {
    header: "[role] of bas",
    doc: "How the allocator decides",
    keys: &[DOMAIN_KEYS, bas::ROLE_KEYS],
    selector: None,
    nested: &[],
};

static ROUTER: TableDef = TableDef {
    header: "[[routers]]",
    doc: "A router that has an agent",
    keys: &[keys! {
        /// Its name in the hosts-file
        "name": Kind::Text, required;
        /// Nodes at the other ends of its ports, in the order of its agent's file
        "ports": Kind::TextList, required;
    }],
    selector: None,
    nested: &[],
};

static LINK: TableDef = TableDef {
    header: "[[links]]",
    doc: "A link",
    keys: &[keys! {
        /// Nodes at its ends: hosts by their names in the hosts-file, and others
        "ends": Kind::TextList, required;
        /// Its rate, the same in each direction
        "rate": Kind::Quantity(Dimension::Rate), required;
        /// Its one-way propagation delay, for `controller whatif`
        "delay": Kind::Quantity(Dimension::Span), optional;
        /// Queue limit at a router's end, such as "200pkt" or "150kB", for `controller whatif`
        "queue": Kind::Text, optional;
    }],
    selector: None,
    nested: &[],
};

static NETWORK: TableDef = TableDef {
    header: "[[networks]]",
    doc: "Where addresses are",
    keys: &[keys! {
        /// Node at or behind which the addresses are
        "at": Kind::Text, required;
        /// Addresses or prefixes; the longest match counts
        "prefixes": Kind::TextList, required;
    }],
    selector: None,
    nested: &[],
};

/// The keys of a controller's file, table by table, for their documentation.
pub fn reference() -> Vec<(&'static str, Vec<&'static Key>)> {
    let tables = [&FILE, &ORACLE, &ALLOCATOR, &ROUTER, &LINK, &NETWORK];
    tables.into_iter().map(|def| (def.header, def.keys_for(None))).collect()
}

/// Reads a controller's file. `file` is its name in messages, `beside` are the policies that it may name.
///
/// # Errors
/// Everything that is wrong with the text, each with its place.
pub fn parse(file: &str, text: &str, beside: &dyn Files) -> Result<Deployment, Errors> {
    daemon::parse(file, text, Some(beside), read)
}

/// As [`parse`], with these policies instead of those that the file names.
///
/// # Errors
/// Everything that is wrong with the text, or with the policies.
pub fn parse_with(
    file: &str,
    text: &str,
    beside: &dyn Files,
    policies: &[String],
) -> Result<Deployment, Errors> {
    let place = Written::flag("--policy");
    let list = serde_json::to_string(policies).unwrap_or_default();
    let item = read_word(&list, &place).map_err(Errors::new)?;
    daemon::parse(file, text, Some(beside), |reader, path, root| {
        let mut root = root.clone();
        let keys = ["role", "policies"].map(str::to_owned);
        if let Err((place, why)) = root.assign(&keys, &place, &item) {
            reader.fail(&place, "", why);
        }
        read(reader, path, &root)
    })
}

fn read(reader: &mut Reader<'_>, path: &str, root: &Item) -> Option<Deployment> {
    let file = reader.section(&FILE, &Layer::new("", root));
    daemon::version(reader, &file);
    let name = daemon::name(reader, path, &file);
    let state_directory = daemon::state_directory(reader, &file, name.as_deref());
    let metrics = daemon::address(reader, &file, "metrics");
    let enrolment = daemon::address(reader, &file, "enrolment");
    let listen = listen(reader, &file);
    if let Some((enrolment, listen)) = enrolment.zip(listen) {
        check_enrolment(reader, &file, enrolment.ip(), listen.ip());
    }
    let scheme = file.choice::<Scheme>("scheme")?;
    let links = links(reader, &file);
    let networks = networks(reader, &file);
    let routers = routers(reader, &file);
    if scheme == Scheme::Bas && links.iter().any(|link| link.delay.is_some() || link.queue.is_some()) {
        reader.fail_key(
            &file,
            "links",
            "have a `delay` or a `queue`, which are for `controller whatif` of opentcp",
        );
    }
    let params = match scheme {
        Scheme::OpenTcp => oracle(reader, &file, &routers, &networks),
        Scheme::Bas => allocator(reader, &file, &links, &networks),
    };
    Some(Deployment {
        name: name?,
        scheme,
        listen: listen?,
        enrolment,
        hosts_file: file.text("hosts-file")?,
        state_directory: state_directory?,
        metrics,
        log: file.choice("log")?,
        params: params?,
        links,
        networks,
        routers,
    })
}

fn routers(reader: &mut Reader<'_>, file: &Section<'_>) -> Vec<Router> {
    let layers = reader.tables(file, "routers");
    let sections: Vec<Section<'_>> = layers.iter().map(|layer| reader.section(&ROUTER, layer)).collect();
    let names: Vec<_> = sections.iter().filter_map(|section| section.name_entry("name")).collect();
    reader.unique(&names);
    let mut routers = Vec::new();
    for section in &sections {
        let (Some(name), Some(ports)) = (section.text("name"), section.list("ports")) else { continue };
        if ports.is_empty() {
            reader.fail_key(section, "ports", "are none");
        }
        let names: BTreeSet<&String> = ports.iter().collect();
        if names.len() < ports.len() {
            reader.fail_key(
                section,
                "ports",
                "name a node twice; give each of parallel links a name, as \"core-2\"",
            );
        }
        routers.push(Router { name, ports });
    }
    routers
}

fn listen(reader: &mut Reader<'_>, file: &Section<'_>) -> Option<SocketAddr> {
    let port = file.integer("listen-port").and_then(|n| u16::try_from(n).ok());
    let Some(text) = file.text("listen-address") else {
        return Some(SocketAddr::new([0; 4].into(), port?));
    };
    let address = text.parse::<IpAddr>().ok();
    let why = match address {
        None => Some("is not an IP address, such as \"192.0.2.1\""),
        Some(address) => many(address),
    };
    if let Some(why) = why {
        reader.fail_key(file, "listen-address", format!("\"{text}\" {why}"));
        return None;
    }
    Some(SocketAddr::new(address?, port?))
}

/// A host tells its reports where it has enrolled. At `::` one hears IPv4 too.
fn check_enrolment(reader: &mut Reader<'_>, file: &Section<'_>, enrolment: IpAddr, listen: IpAddr) {
    let is_heard = match (listen.is_unspecified(), enrolment.is_unspecified()) {
        (true, _) => listen.is_ipv6() || enrolment.is_ipv4(),
        (false, true) => listen.is_ipv4() == enrolment.is_ipv4(),
        (false, false) => listen == enrolment,
    };
    if !is_heard {
        let what = format!("is at {enrolment}, and reports of hosts are heard at {listen} only");
        let hint = format!("write listen-address = \"{enrolment}\"");
        reader.fail_key_with(file, "enrolment", what, hint);
    }
}

fn links(reader: &mut Reader<'_>, file: &Section<'_>) -> Vec<Link> {
    let mut links: Vec<Link> = Vec::new();
    for layer in reader.tables(file, "links") {
        let section = reader.section(&LINK, &layer);
        let Some(ends) = section.list("ends") else { continue };
        let Ok::<[String; 2], _>(ends) = ends.try_into() else {
            reader.fail_key(&section, "ends", "are two nodes");
            continue;
        };
        let rate = section.rate("rate");
        if rate == Some(Rate::ZERO) {
            reader.fail_key(&section, "rate", "must be more than nothing");
        }
        let is_same = |link: &Link| link.ends == ends || (link.ends[0] == ends[1] && link.ends[1] == ends[0]);
        if ends[0] == ends[1] {
            reader.fail_key(&section, "ends", "are the same node");
        } else if links.iter().any(is_same) {
            reader.fail_key(&section, "ends", "have a link already; write one with the rate of both");
        } else if let Some(rate) = rate {
            let queue = section.text("queue");
            let is_limit = |text: &String| {
                [Dimension::Packets, Dimension::Bytes]
                    .iter()
                    .any(|of| parse_quantity(text, *of).is_ok_and(|n| n > 0))
            };
            if queue.as_ref().is_some_and(|text| !is_limit(text)) {
                reader.fail_key(
                    &section,
                    "queue",
                    "is not a number of packets or bytes above 0, such as \"200pkt\" or \"150kB\"",
                );
            }
            links.push(Link { ends, rate, delay: section.span("delay"), queue });
        }
    }
    links
}

fn networks(reader: &mut Reader<'_>, file: &Section<'_>) -> Vec<(Prefix, String)> {
    let mut networks: Vec<(Prefix, String)> = Vec::new();
    for layer in reader.tables(file, "networks") {
        let section = reader.section(&NETWORK, &layer);
        for text in section.list("prefixes").unwrap_or_default() {
            match Prefix::parse(&text) {
                Err(why) => reader.fail_key(&section, "prefixes", format!("\"{text}\" {why}")),
                Ok(prefix) => match networks.iter().find(|(known, _)| *known == prefix) {
                    Some((_, node)) => {
                        let what = format!("{prefix} is at `{node}` already");
                        reader.fail_key(&section, "prefixes", what);
                    }
                    None => networks.extend(section.text("at").map(|node| (prefix, node))),
                },
            }
        }
    }
    networks
}

/// The parameters of an Oracle. What its policies want to know, hosts and routers have to tell.
fn oracle(
    reader: &mut Reader<'_>,
    file: &Section<'_>,
    routers: &[Router],
    networks: &[(Prefix, String)],
) -> Option<Params> {
    let layer = reader.table(file, "role");
    let section = reader.section(&ORACLE, &layer);
    let mut params = section.params(ORACLE_KEYS)?;
    let policies = match opentcp::policies(&params.files("policies")) {
        Ok(policies) => policies,
        Err(why) => {
            reader.fail_key(&section, "policies", why);
            return None;
        }
    };
    for wrong in [opentcp::check_force(&params), opentcp::check_leases(&params, &policies)] {
        if let Err((key, why)) = wrong {
            reader.fail_key(&section, key, why);
        }
    }
    let named = policies.iter().flat_map(|policy| policy.statistics.iter().map(|of| (&policy.name, *of)));
    for (policy, Statistic { name, source, .. }) in named {
        let what = match source {
            Source::Host | Source::Oracle => continue,
            Source::Link | Source::Topology if !routers.is_empty() => continue,
            Source::Link | Source::Topology => "which routers tell: write [[routers]]",
            Source::Traffic if *name == TRAFFIC_RACKS && routers.is_empty() => {
                "and racks are the hosts at a router: write [[routers]]"
            }
            Source::Traffic if networks.is_empty() => {
                "which needs the addresses of hosts: write [[networks]]"
            }
            Source::Traffic => continue,
        };
        reader.fail_key(&section, "policies", format!("of `{policy}` want `{name}`, {what}"));
    }
    let own = params.optional("cycle", Params::span);
    let cycle = own.or(policies.first().map(|policy| policy.cycle)).unwrap_or_default();
    if cycle < daemon::SHORTEST_CYCLE {
        let key = if own.is_some() { "cycle" } else { "policies" };
        let what = format!("a cycle of {cycle} is shorter than {}", daemon::SHORTEST_CYCLE);
        reader.fail_key(&section, key, what);
    }
    params.set("cycle", Value::Span(cycle));
    params.set("reports", Value::Bool(true));
    Some(params)
}

/// The parameters of an allocator.
fn allocator(
    reader: &mut Reader<'_>,
    file: &Section<'_>,
    links: &[Link],
    networks: &[(Prefix, String)],
) -> Option<Params> {
    let layer = reader.table(file, "role");
    let section = reader.section(&ALLOCATOR, &layer);
    let mut params = section.params(bas::ROLE_KEYS)?;
    if let Err((key, why)) = bas::check_roles(&params) {
        reader.fail_key(&section, key, why);
    }
    let known: BTreeSet<&str> = links.iter().flat_map(|link| &link.ends).map(String::as_str).collect();
    let domain = section.list("domain")?;
    let names: Vec<&str> = known.iter().copied().collect();
    for node in domain.iter().filter(|node| !known.contains(node.as_str())) {
        let what = format!("names `{node}`, which has no link; {}", suggestion(node, &names));
        reader.fail_key(&section, "domain", what);
    }
    let inside = |name: &String| domain.contains(name);
    if !links.iter().any(|link| link.ends.iter().all(inside)) {
        reader.fail_key(&section, "domain", "has no link between two of its nodes");
    }
    for (prefix, node) in networks.iter().filter(|(_, node)| !known.contains(node.as_str())) {
        let what = format!("have {prefix} at `{node}`, which has no link; {}", suggestion(node, &names));
        reader.fail_key(file, "networks", what);
    }
    params.set("domain", Value::List(domain));
    Some(params)
}

/// Reads the hosts: lines `NUMBER NAME SECRET`; empty lines and those that begin with `#` are left out. `file` is its name in
/// messages.
///
/// # Errors
/// What is wrong with the first line that is, with its number.
pub fn hosts(file: &str, text: &str) -> Result<Vec<Host>, String> {
    let (mut numbers, mut names, mut secrets) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    let mut hosts = Vec::new();
    for (at, line) in (1..).zip(text.lines()) {
        if line.trim().is_empty() || line.trim_start().starts_with('#') {
            continue;
        }
        let wrong = |why: String| format!("{file}:{at}: {why}");
        let words: Vec<&str> = line.split_whitespace().collect();
        let [number, name, secret] = words[..] else {
            return Err(wrong(format!("has {} words; write NUMBER NAME SECRET", words.len())));
        };
        let number: u32 = number
            .parse()
            .ok()
            .filter(|number| *number > 0)
            .ok_or_else(|| wrong(format!("\"{number}\" is not a whole number from 1 to {}", u32::MAX)))?;
        if !daemon::is_name(name) {
            return Err(wrong(format!("\"{name}\" is not a name: {}", name_words())));
        }
        if !numbers.insert(number) {
            return Err(wrong(format!("another host has number {number}")));
        }
        if !names.insert(name) {
            return Err(wrong(format!("another host is called `{name}`")));
        }
        if secret != ENROLLED && !secrets.insert(secret) {
            return Err(wrong(format!("another host has the secret of `{name}`: each has one of its own")));
        }
        let (name, secret) = (name.to_owned(), secret.to_owned());
        hosts.push(Host { number, name, secret });
    }
    Ok(hosts)
}

impl Deployment {
    /// All that the controller knows of the network: itself, then the hosts in their order, then other nodes and the ports.
    pub fn inventory(&self, hosts: &[Host]) -> Inventory {
        let mut all = Inventory::default();
        all.join("");
        for host in hosts {
            all.join(&host.name);
        }
        // An Oracle decides by the reports of hosts and routers.
        let is_bas = self.scheme == Scheme::Bas;
        for Link { ends, rate, .. } in self.links.iter().filter(|_| is_bas) {
            let [one, other] = [all.join(&ends[0]), all.join(&ends[1])];
            for (from, to) in [(one, other), (other, one)] {
                let name = format!("{}->{}", all.name(from), all.name(to));
                all.add_port(&name, from, to, *rate);
            }
        }
        for (prefix, node) in &self.networks {
            let node = all.join(node);
            all.add_network(*prefix, node);
        }
        // Port reports of hosts are ignored, but the paper's allocator needs every host's flow count per port.
        let inside = self.inside(&all);
        let mut sends: BTreeMap<NodeId, Vec<PortId>> = BTreeMap::new();
        if self.counts_flows() {
            for (number, port) in all.ports().filter(|(_, port)| inside.contains(&port.to)) {
                sends.entry(port.from).or_default().push(number);
            }
        }
        for node in (1..=hosts.len() as u32).map(NodeId) {
            all.number_by_itself(node, sends.remove(&node).unwrap_or_default());
        }
        let mut have_ports: BTreeSet<NodeId> = all.ports().map(|(_, port)| port.from).collect();
        for Router { name, ports } in &self.routers {
            let from = all.join(name);
            have_ports.insert(from);
            let numbered = ports.iter().map(|port| {
                let name = format!("{name}->{port}");
                let to = all.join(port);
                // OpenTCP knows no rate: its router reports shares of it.
                all.port_named(&name).unwrap_or_else(|| all.add_port(&name, from, to, Rate::ZERO))
            });
            let numbered = numbered.collect();
            all.number_by_itself(from, numbered);
            // A host to which no link gives a port is at the router that has a port to it.
            for port in ports {
                let host = all.join(port);
                if have_ports.insert(host) {
                    all.add_port(&format!("{port}->{name}"), host, from, Rate::ZERO);
                }
            }
        }
        all
    }

    /// How often hosts and routers tell something.
    pub fn interval(&self) -> Span {
        let span = |key| self.params.span(key);
        match self.scheme {
            Scheme::OpenTcp => span("cycle"),
            Scheme::Bas => span("measurement-interval").max(span("notification-interval")),
        }
    }

    /// It decides by the counts of flows on all links of its domain.
    fn counts_flows(&self) -> bool {
        self.scheme == Scheme::Bas && bas::is_papers(&self.params)
    }

    /// The nodes of the domain.
    fn inside(&self, inventory: &Inventory) -> BTreeSet<NodeId> {
        match self.scheme {
            Scheme::OpenTcp => BTreeSet::new(),
            Scheme::Bas => {
                self.params.list("domain").iter().filter_map(|name| inventory.node(name)).collect()
            }
        }
    }

    /// Whether a host of the hosts-file is a router.
    pub fn is_router(&self, host: &Host) -> bool {
        self.routers.iter().any(|router| router.name == host.name)
    }

    /// The role that decides for `hosts`, in the network of [`inventory`](Self::inventory).
    ///
    /// # Errors
    /// When a host is not what the file says.
    pub fn role(&self, hosts: &[Host], inventory: &Inventory) -> Result<Role, String> {
        for Router { name, ports } in &self.routers {
            if !hosts.iter().any(|host| host.name == *name) {
                return Err(format!("router `{name}` is not in the hosts-file"));
            }
            let is_linked = |port: &String| {
                self.links.iter().any(|link| link.ends.contains(name) && link.ends.contains(port))
            };
            if let Some(port) = ports.iter().find(|port| self.scheme == Scheme::Bas && !is_linked(port)) {
                return Err(format!(
                    "router `{name}` has a port to `{port}`, and there is no link: write [[links]]"
                ));
            }
        }
        if self.asks_for_traffic() {
            self.have_addresses(hosts)?;
        }
        let agents = || (1..=hosts.len() as u32).map(NodeId).zip(hosts);
        let place = match self.scheme {
            Scheme::OpenTcp => {
                let role = |host| if self.is_router(host) { &opentcp::SWITCH } else { &opentcp::AGENT };
                let peers = agents().map(|(node, host)| (node, role(host))).collect();
                Place { peers, ..Place::new(&opentcp::ORACLE, OWN, self.params.clone()) }
            }
            Scheme::Bas => {
                self.has_places(hosts)?;
                let inside = self.inside(inventory);
                let of_domain = inventory
                    .ports()
                    .filter(|(_, port)| inside.contains(&port.from) && inside.contains(&port.to));
                let ports: Vec<PortId> = of_domain.map(|(number, _)| number).collect();
                if self.counts_flows() {
                    self.are_counted(hosts, inventory, &ports)?;
                }
                let role = |host| if self.is_router(host) { &bas::ROUTER } else { &bas::HOST };
                let mut peers: Vec<_> = agents().map(|(node, host)| (node, role(host))).collect();
                if self.counts_flows() {
                    // A host counts the flows that it sends, as a router does.
                    let hosts = agents().filter(|(_, host)| !self.is_router(host));
                    peers.extend(hosts.map(|(node, _)| (node, &bas::ROUTER)));
                }
                Place { peers, ports, ..Place::new(&bas::ALLOCATOR, OWN, self.params.clone()) }
            }
        };
        Ok(Role::new(self.scheme.def(), place, inventory, None))
    }

    /// Checks that a router or a host counts the flows of every port of the domain.
    fn are_counted(&self, hosts: &[Host], inventory: &Inventory, ports: &[PortId]) -> Result<(), String> {
        let max_min = "or take allocator = \"max-min\"";
        let agents: BTreeSet<&str> = hosts.iter().map(|host| host.name.as_str()).collect();
        let mut routers: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for Router { name, ports } in &self.routers {
            routers.insert(name, ports.iter().map(String::as_str).collect());
        }
        for port in ports.iter().filter_map(|port| inventory.port(*port)) {
            let (from, to) = (inventory.name(port.from), inventory.name(port.to));
            let nobody = format!(
                "nobody counts the flows from `{from}` to `{to}`, which the paper's allocator has to know"
            );
            if let Some(counted) = routers.get(from) {
                if !counted.contains(to) {
                    return Err(format!(
                        "{nobody}: write \"{to}\" into the `ports` of [[routers]] `{from}`, {max_min}"
                    ));
                }
            } else if !agents.contains(from) {
                return Err(format!(
                    "{nobody}: give `{from}` an agent, as a host or in [[routers]], take it out of `domain`, {max_min}"
                ));
            } else if inventory.own_ports(port.from).is_some_and(|own| own.len() > 1) {
                return Err(format!(
                    "host `{from}` has several links within the domain, and its agent knows of no flow which one it takes: leave \
                     one, {max_min}"
                ));
            }
        }
        Ok(())
    }

    /// Each host has a link in the domain, and an address.
    fn has_places(&self, hosts: &[Host]) -> Result<(), String> {
        let domain = self.params.list("domain");
        for Host { name, .. } in hosts.iter().filter(|host| !self.is_router(host)) {
            let is_linked =
                |link: &Link| link.ends.contains(name) && link.ends.iter().all(|end| domain.contains(end));
            if !self.links.iter().any(is_linked) {
                return Err(format!("host `{name}` has no link within the domain: write [[links]]"));
            }
        }
        self.have_addresses(hosts)
    }

    fn have_addresses(&self, hosts: &[Host]) -> Result<(), String> {
        let addressed: BTreeSet<&str> = self.networks.iter().map(|(_, node)| node.as_str()).collect();
        let has_none = |host: &&Host| !self.is_router(host) && !addressed.contains(host.name.as_str());
        match hosts.iter().find(has_none) {
            Some(Host { name, .. }) => {
                Err(format!("host `{name}` has no address: write [[networks]] with at = \"{name}\""))
            }
            None => Ok(()),
        }
    }

    /// Statistics of hosts that policies ask for.
    pub fn asked_of_hosts(&self) -> BTreeSet<&'static str> {
        let policies = match self.scheme {
            Scheme::OpenTcp => opentcp::policies(&self.params.files("policies")).unwrap_or_default(),
            Scheme::Bas => Vec::new(),
        };
        let asked = policies.iter().flat_map(|policy| policy.statistics.iter().copied());
        asked.filter(|of| matches!(of.source, Source::Host | Source::Traffic)).map(|of| of.name).collect()
    }

    /// Policies ask who sends how much to whom, which hosts tell only when they have to.
    pub fn asks_for_traffic(&self) -> bool {
        self.asked_of_hosts().iter().any(|name| [TRAFFIC_HOSTS, TRAFFIC_RACKS].contains(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheme::Act;

    #[derive(Debug)]
    struct Nothing;

    impl Files for Nothing {
        fn read(&self, _name: &str) -> Result<String, String> {
            Err("there are no files here".to_owned())
        }
    }

    const OPENTCP: &str = "version = 1\nscheme = \"opentcp\"\nhosts-file = \"hosts\"\n[role]\npolicies = [\"few-flows\"]\ncycle = \"1s\"\n";
    const BAS: &str = "version = 1\nscheme = \"bas\"\nhosts-file = \"hosts\"\nlisten-address = \"::\"\n\
                       [role]\nallocator = \"max-min\"\ndomain = [\"web\", \"edge\"]\n\
                       [[links]]\nends = [\"web\", \"edge\"]\nrate = \"100mbit\"\n\
                       [[links]]\nends = [\"edge\", \"wan\"]\nrate = \"50mbit\"\n\
                       [[networks]]\nat = \"web\"\nprefixes = [\"10.0.0.1\"]\n\
                       [[networks]]\nat = \"wan\"\nprefixes = [\"0.0.0.0/0\"]\n";

    fn host(number: u32, name: &str) -> Host {
        Host { number, name: name.to_owned(), secret: "0123456789abcdef".to_owned() }
    }

    fn read(text: &str) -> Deployment {
        parse("main.toml", text, &Nothing).unwrap_or_else(|e| panic!("{e}"))
    }

    #[test]
    fn an_oracle_has_the_agents_of_the_hosts() {
        let deployment = read(OPENTCP);
        assert_eq!(deployment.listen, "0.0.0.0:4742".parse().unwrap());
        assert_eq!(deployment.state_directory, "/var/lib/bandmaster/main");
        for (listen, enrolment) in [("::", "192.0.2.1"), ("::", "[2001:db8::1]"), ("192.0.2.1", "0.0.0.0")] {
            let with = format!("listen-address = \"{listen}\"\nenrolment = \"{enrolment}:4750\"\n[role]");
            assert!(read(&OPENTCP.replacen("[role]", &with, 1)).enrolment.is_some(), "{with}");
        }
        let hosts = [host(7, "web-1"), host(9, "web-2")];
        let inventory = deployment.inventory(&hosts);
        assert_eq!(inventory.node("web-2"), Some(NodeId(2)));
        let role = deployment.role(&hosts, &inventory).expect("a role");
        assert_eq!((role.place.role.name, role.place.node), ("oracle", OWN));
        let peers: Vec<u32> = role.place.peers.iter().map(|(node, _)| node.0).collect();
        assert_eq!((peers, role.place.role.acts), (vec![1, 2], &[Act::Send][..]));
        assert!(role.built.controller.is_some());
    }

    #[test]
    fn an_allocator_has_the_links_of_its_domain() {
        let deployment = read(BAS);
        let hosts = [host(1, "web")];
        let inventory = deployment.inventory(&hosts);
        let role = deployment.role(&hosts, &inventory).expect("a role");
        let ports: Vec<u32> = role.place.ports.iter().map(|port| port.0).collect();
        assert_eq!((role.place.role.name, ports), ("allocator", vec![0, 1]));
        assert_eq!(inventory.node_at([10, 0, 0, 1].into()), inventory.node("web"));
        let why =
            |hosts: &[Host]| deployment.role(hosts, &deployment.inventory(hosts)).err().unwrap_or_default();
        assert!(why(&[host(2, "db")]).contains("host `db` has no link within the domain"));
    }

    /// Every direction of every link of the domain needs a node that counts its flows.
    #[test]
    fn the_papers_allocator_needs_a_count_of_each_port() {
        let paper = BAS.replace("max-min", "bas");
        let router = "[[routers]]\nname = \"edge\"\nports = [\"wan\", \"web\"]\n";
        let hosts = [host(1, "web"), host(2, "edge")];
        let why = |text: &str, hosts: &[Host]| {
            let deployment = read(text);
            deployment.role(hosts, &deployment.inventory(hosts)).err().unwrap_or_default()
        };
        let said = why(&paper, &hosts[..1]);
        assert!(
            said.contains("counts the flows from `edge` to `web`") && said.contains("`edge` an agent"),
            "{said}"
        );
        let said = why(&(paper.clone() + &router.replace(", \"web\"", "")), &hosts);
        assert!(said.contains("write \"web\" into the `ports` of [[routers]] `edge`"), "{said}");
        let two = paper.replace("[\"web\", \"edge\"]\n[[links]]", "[\"web\", \"edge\", \"core\"]\n[[links]]")
            + "[[links]]\nends = [\"web\", \"core\"]\nrate = \"1gbit\"\n"
            + router
            + &router.replace("edge", "core").replace("\"wan\", ", "");
        let said = why(&two, &[host(1, "web"), host(2, "edge"), host(3, "core")]);
        assert!(said.contains("host `web` has several links within the domain"), "{said}");

        let whole = read(&(paper + router));
        let inventory = whole.inventory(&hosts);
        let role = whole.role(&hosts, &inventory).expect("a role");
        let peers: Vec<_> = role.place.peers.iter().map(|(node, role)| (node.0, role.name)).collect();
        assert_eq!(peers, [(1, "host"), (2, "router"), (1, "router")]);
        let (web, edge) = (NodeId(1), NodeId(2));
        assert_eq!(inventory.port_of(web, PortId(0)), inventory.port_named("web->edge"));
        assert_eq!(
            (inventory.port_of(web, PortId(1)), inventory.own_ports(edge).map(<[_]>::len)),
            (None, Some(2))
        );
    }

    #[test]
    fn who_sends_to_whom_needs_addresses() {
        let matrix = OPENTCP.replace("few-flows", "matrix")
            + "[[routers]]\nname = \"tor\"\nports = [\"web\", \"db\"]\n";
        let said = parse("main.toml", &matrix, &Nothing).err().map(|e| e.to_string()).unwrap_or_default();
        assert!(
            said.contains("`traffic.racks`, which needs the addresses of hosts: write [[networks]]"),
            "{said}"
        );
        let with = |at: &str| format!("[[networks]]\nat = \"{at}\"\nprefixes = [\"10.0.0.{}\"]\n", at.len());
        let hosts = [host(1, "web"), host(2, "db"), host(3, "tor")];
        let half = read(&(matrix.clone() + &with("web")));
        let why = half.role(&hosts, &half.inventory(&hosts)).err().unwrap_or_default();
        assert!(why.contains("host `db` has no address"), "{why}");
        let whole = read(&(matrix + &with("web") + &with("db")));
        let inventory = whole.inventory(&hosts);
        assert!(whole.role(&hosts, &inventory).is_ok());
        // Racks are the hosts at a router.
        let at: Vec<_> = inventory.ports().filter(|(_, port)| port.from == NodeId(2)).collect();
        assert_eq!((at.len(), at[0].1.to), (1, NodeId(3)));
        assert!(whole.asked_of_hosts().contains("traffic.racks"));
    }

    /// What a router calls its first and second port are the ports to the host and to the core.
    #[test]
    fn routers_tell_of_their_ports() {
        let routers = "[[routers]]\nname = \"tor\"\nports = [\"core\", \"web\"]\n";
        let hosts = [host(1, "web"), host(2, "tor")];
        let deployment = read(&(OPENTCP.replace("few-flows", "opentcp1") + routers));
        let inventory = deployment.inventory(&hosts);
        let role = deployment.role(&hosts, &inventory).expect("a role");
        let roles: Vec<_> = role.place.peers.iter().map(|(node, role)| (node.0, role.name)).collect();
        assert_eq!(roles, [(1, "agent"), (2, "switch")]);
        assert_eq!(inventory.ports().filter(|(_, port)| port.from == NodeId(2)).count(), 2);
        let missing = deployment.role(&hosts[..1], &inventory).err().unwrap_or_default();
        assert_eq!(missing, "router `tor` is not in the hosts-file");

        let routers = "[[routers]]\nname = \"edge\"\nports = [\"wan\", \"web\"]\n";
        let hosts = [host(1, "web"), host(2, "edge")];
        let deployment = read(&(BAS.to_owned() + routers));
        let inventory = deployment.inventory(&hosts);
        let role = deployment.role(&hosts, &inventory).expect("a role");
        assert_eq!(role.place.peers[1].1.name, "router");
        let edge = NodeId(2);
        let named = |name: &str| inventory.port_named(name);
        assert_eq!(inventory.port_of(edge, PortId(0)), named("edge->wan"));
        assert_eq!(inventory.port_of(edge, PortId(1)), named("edge->web"));
        assert_eq!(
            (inventory.port_of(edge, PortId(2)), inventory.port_of(NodeId(1), PortId(0))),
            (None, None)
        );
        let astray = read(&(BAS.to_owned() + &routers.replace("wan", "lan")));
        let why = astray.role(&hosts, &astray.inventory(&hosts)).err().unwrap_or_default();
        assert!(why.contains("a port to `lan`, and there is no link"), "{why}");
    }

    #[test]
    fn errors_name_the_place_the_value_and_what_is_allowed() {
        for (text, change, expected) in [
            (OPENTCP, ("few-flows", "few-flow"), "few-flows"),
            (OPENTCP, ("few-flows", "opentcp1"), "`link.utilization`, which routers tell: write [[routers]]"),
            (
                OPENTCP,
                ("few-flows", "matrix"),
                "`traffic.racks`, and racks are the hosts at a router: write [[routers]]",
            ),
            (OPENTCP, ("[role]", "[[routers]]\nname = \"r\"\nports = []\n[role]"), "are none"),
            (
                OPENTCP,
                ("[role]", "[[routers]]\nname = \"r\"\nports = [\"a\", \"a\"]\n[role]"),
                "a node twice",
            ),
            (OPENTCP, ("1s", "1ms"), "1ms is shorter than 100ms"),
            (OPENTCP, ("1s", "6000min"), "1080000s; the longest is 604800s"),
            (OPENTCP, ("cycle", "cycel"), "did you mean"),
            (
                OPENTCP,
                ("[role]", "[[links]]\nends = [\"a\", \"b\"]\nrate = \"1gbit\"\nqueue = \"100\"\n[role]"),
                "is not a number of packets or bytes",
            ),
            (
                OPENTCP,
                ("[role]", "enrolment = \"[2001:db8::10]:4750\"\n[role]"),
                "write listen-address = \"2001:db8::10\"",
            ),
            (BAS, ("\"::\"", "\"192.0.2.1\"\nenrolment = \"192.0.2.2:4750\""), "heard at 192.0.2.1 only"),
            (BAS, ("domain = [\"web\", \"edge\"]", "domain = [\"web\", \"egde\"]"), "did you mean `edge`?"),
            (BAS, ("domain = [\"web\", \"edge\"]", "domain = [\"web\", \"wan\"]"), "no link between two"),
            (BAS, ("10.0.0.1", "10.0.0.1/8"), "did you mean \"10.0.0.0/8\"?"),
            (BAS, ("10.0.0.1", "0.0.0.0/0"), "0.0.0.0/0 is at `web` already"),
            (BAS, ("ends = [\"web\", \"edge\"]", "ends = [\"web\"]"), "are two nodes"),
            (BAS, ("ends = [\"web\", \"edge\"]", "ends = [\"wan\", \"edge\"]"), "have a link already"),
            (BAS, ("50mbit", "0mbit"), "rate"),
            (BAS, ("at = \"wan\"", "at = \"lan\""), "at `lan`, which has no link"),
            (BAS, ("listen-address = \"::\"", "listen-address = \"gw\""), "is not an IP address"),
        ] {
            assert!(text.contains(change.0), "{change:?}");
            let said = parse("c.toml", &text.replacen(change.0, change.1, 1), &Nothing).err();
            let said = said.map(|e| e.to_string()).unwrap_or_else(|| panic!("{change:?} is taken"));
            assert!(said.contains("c.toml:") && said.contains(expected), "{change:?}: {said}");
        }
    }

    #[test]
    fn hosts_are_lines() {
        let text = "# number name secret\n\n7 web-1 0123456789abcdef\n 9\tweb-2  fedcba9876543210\n";
        let read = hosts("h", text).expect("hosts");
        assert_eq!((read.len(), read[1].number, read[1].secret.as_str()), (2, 9, "fedcba9876543210"));
        let enrolled = hosts("h", "1 a enrolled\n2 b enrolled\n").expect("hosts");
        assert!(enrolled.iter().all(|host| host.secret == ENROLLED));
        for (text, expected) in [
            ("7 web", "h:1: has 2 words; write NUMBER NAME SECRET"),
            ("\n0 web s", "h:2: \"0\" is not a whole number from 1"),
            ("x web s", "\"x\" is not a whole number"),
            ("1 we/b s", "\"we/b\" is not a name"),
            ("1 a s\n1 b t", "h:2: another host has number 1"),
            ("1 a s\n2 a t", "h:2: another host is called `a`"),
            ("1 a s\n2 b s", "h:2: another host has the secret of `b`"),
        ] {
            let said = hosts("h", text).expect_err(text);
            assert!(said.contains(expected), "{said}");
        }
    }
}
