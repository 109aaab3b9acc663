//! The configuration of a host's agent: its file, and the roles of its scheme.
//!
//! An agent has the role that the scheme has at a host in a simulated network, and talks to one controller.

use std::net::{IpAddr, SocketAddr};

use crate::daemon::{self, Log, SHORTEST_CYCLE, many};
use crate::file::{Errors, Item, Layer, Reader, Section, Selector, Shape, TableDef, suggestion};
use crate::id::{NodeId, PortId};
use crate::params::{Choice, Key, Kind, Params, Value, choice, keys};
use crate::runtime::inventory::Inventory;
use crate::scheme::opentcp::statistic::{
    LINK_CAPACITY, LINK_FLOWS, STATISTICS, Source, Statistic, TRAFFIC_HOSTS, TRAFFIC_RACKS,
};
use crate::scheme::{Place, Role, SchemeDef, bas, opentcp};
use crate::time::Span;
use crate::units::{Dimension, Rate};

/// The UDP port of agents and controllers in files that do not name one.
pub(crate) const DEFAULT_PORT: &str = "4742";
/// How a controller is numbered in messages.
pub const CONTROLLER: u32 = 0;
/// This host, as its role numbers it.
pub const OWN: NodeId = NodeId(0);
/// The controller, as the role numbers it.
pub const OTHER: NodeId = NodeId(1);

choice! {
    /// A scheme that has a role at hosts which an agent can take.
    pub enum Scheme {
        /// OpenTCP: applies the CUEs of an Oracle.
        OpenTcp = "opentcp",
        /// BAS: measures flows, and keeps them to the shares of an allocator.
        Bas = "bas",
    }
}

choice! {
    /// What kind of machine the agent is on.
    pub enum Site {
        /// One that sends and receives: its TCP is measured and set.
        Host = "host",
        /// One that forwards: its ports are measured, and nothing is set.
        Router = "router",
    }
}

choice! {
    /// Who counts what the ports of a router carry.
    enum SourceKind {
        /// The kernel of this machine.
        Kernel = "kernel",
        /// A switch that is asked by SNMP.
        Snmp = "snmp",
        /// An Open vSwitch that is asked by OpenFlow.
        OpenVswitch = "open-vswitch",
        /// A switch that exports its counters by sFlow.
        Sflow = "sflow",
    }
}

choice! {
    /// Algorithm that authenticates messages of SNMP 3.
    pub enum SnmpHash {
        /// HMAC-SHA-1-96 (RFC 3414).
        Sha1 = "sha-1",
        /// HMAC-SHA-256-192 (RFC 7860).
        Sha256 = "sha-256",
        /// HMAC-SHA-512-384 (RFC 7860).
        Sha512 = "sha-512",
    }
}

/// How a switch knows who asks by SNMP; the files are secrets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SnmpAccess {
    /// SNMP 2c.
    Community {
        /// File with the community.
        file: String,
    },
    /// SNMP 3 with authentication and privacy (AES-128).
    User {
        /// Name of the user.
        name: String,
        /// File with the passphrases, a line each: authentication, privacy.
        file: String,
        /// What authenticates.
        hash: SnmpHash,
    },
}

/// Who counts what the ports of a router carry, and how it is asked.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum PortSource {
    /// The kernel of this machine.
    #[default]
    Kernel,
    /// A switch, by SNMP.
    Snmp {
        /// Where it listens.
        address: SocketAddr,
        /// By which right it is asked.
        access: SnmpAccess,
    },
    /// A switch that exports counters by sFlow 5.
    Sflow {
        /// Where its datagrams come from.
        address: IpAddr,
        /// Where they arrive.
        listen: SocketAddr,
    },
    /// An Open vSwitch, by OpenFlow 1.3.
    OpenVswitch {
        /// Name of a bridge on this machine, or `tcp:ADDRESS:PORT`.
        bridge: String,
        /// The table whose entries are flows; none: all tables.
        flow_table: Option<u8>,
    },
}

/// A port of a router.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Port {
    /// Network device, as the source calls it.
    pub interface: String,
    /// What it can send.
    pub rate: Rate,
}

/// An agent as its file describes it: valid and complete.
#[derive(Clone, Debug)]
pub struct Deployment {
    /// Its name among the daemons of the machine.
    pub name: String,
    /// What it takes part in.
    pub scheme: Scheme,
    /// What kind of machine it is on.
    pub site: Site,
    /// Of a router: its ports, in the order of its reports.
    pub ports: Vec<Port>,
    /// Of a router: who counts.
    pub source: PortSource,
    /// Of a router: flows are counted too.
    pub counts_flows: bool,
    /// This host's number in messages.
    pub number: u32,
    /// Folder of the journal and of the status.
    pub state_directory: String,
    /// Where metrics are served; none: nowhere.
    pub metrics: Option<SocketAddr>,
    /// Form of the log.
    pub log: Log,
    /// Control group of the programs whose connections are set; none: all.
    pub control_group: Option<String>,
    /// Connections are counted for the controller.
    pub record: bool,
    /// Of a router: it reports its neighbours.
    pub neighbours: bool,
    /// Where lldpd answers; none: the default of `lldpctl`.
    pub lldp_socket: Option<String>,
    /// The controller.
    pub controller: SocketAddr,
    /// Where its socket is bound.
    pub listen: SocketAddr,
    /// File with the secret that host and controller share.
    pub key_file: String,
    /// File with the certificate by which that is renewed; none: it is renewed by hand.
    pub certificate_file: Option<String>,
    /// Where the controller renews it, by TCP.
    pub enrolment: SocketAddr,
    /// Parameters of the scheme's role.
    pub params: Params,
}

static FILE: TableDef = TableDef {
    header: "the file",
    doc: "A bandmaster agent",
    keys: &[keys! {
        ..daemon::VERSION;
        /// Scheme of this agent
        "scheme": Scheme::KIND, required;
        /// This host's number at the controller, unique among its hosts
        "number": Kind::Integer { min: 1, max: u32::MAX as i64 }, required;
        /// A host, whose TCP the agent measures and sets, or a router, whose ports it measures
        "site": Site::KIND, default "host";
        ..daemon::NAME;
        /// Folder of journal and status; absent: `/var/lib/bandmaster/NAME`
        "state-directory": Kind::Text, optional;
        ..daemon::METRICS;
        ..daemon::LOG;
        /// Folder of a control group (cgroup2): set connections of its programs only; absent: those of all programs
        "control-group": Kind::Text, optional;
        /// Count connections and report them to the controller once a minute, for `controller whatif`; opentcp only
        "record": Kind::Bool, default "true";
        /// Router: report neighbours (`lldpctl`) and routes of this machine, for `controller discover`
        "neighbours": Kind::Bool, default "false";
        /// Socket of lldpd; absent: the default of `lldpctl`
        "lldp-socket": Kind::Text, optional;
        /// The controller
        "controller": Kind::Nested, required;
        /// How the scheme's role works here
        "role": Kind::Nested, optional;
        /// Router: its ports
        "ports": Kind::Nested, optional;
        /// Router: what counts the traffic of its ports
        "source": Kind::Nested, optional;
    }],
    selector: None,
    nested: &[
        ("controller", Shape::Table(&CONTROLLER_TABLE)),
        ("role", Shape::Table(&OPENTCP)),
        ("ports", Shape::Tables(&PORT)),
        ("source", Shape::Table(&SOURCE)),
    ],
};

static CONTROLLER_TABLE: TableDef = TableDef {
    header: "[controller]",
    doc: "Who decides",
    keys: &[keys! {
        /// Its IP address
        "address": Kind::Text, required;
        /// Its UDP port
        "port": Kind::Integer { min: 1, max: 65_535 }, default DEFAULT_PORT;
        /// Own address of the socket; absent: any
        "listen-address": Kind::Text, optional;
        /// Own UDP port
        "listen-port": Kind::Integer { min: 1, max: 65_535 }, default DEFAULT_PORT;
        /// File with the secret that this host and the controller know, and no other host; at least 16 bytes
        "key-file": Kind::Text, required;
        /// File with this host's certificate, from `agent enroll`; the agent renews secret and certificate by it; absent: the secret was carried by hand
        "certificate-file": Kind::Text, optional;
        /// The controller's TCP port for renewals
        "enrolment-port": Kind::Integer { min: 1, max: 65_535 }, default DEFAULT_PORT;
    }],
    selector: None,
    nested: &[],
};

const OPENTCP_KEYS: &[Key] = keys! {
    /// Interval between reports: the cycle of the controller's policies
    "cycle": Kind::Quantity(Dimension::Span), default "10s";
    /// Interval between checks of the preconditions of settings in force
    "look": Kind::Quantity(Dimension::Span), default "1s";
    /// Statistics to report; absent: all of a host except `traffic.hosts` and `traffic.racks`
    "statistics": Kind::TextList, optional;
};

static OPENTCP: TableDef = TableDef {
    header: "[role] of opentcp",
    doc: "How OpenTCP's agent works here",
    keys: &[OPENTCP_KEYS],
    selector: None,
    nested: &[],
};

static BAS: TableDef = TableDef {
    header: "[role] of bas",
    doc: "How BAS's host works here; what the allocator decides by has to be the same there",
    keys: &[bas::ROLE_KEYS],
    selector: None,
    nested: &[],
};

static PORT: TableDef = TableDef {
    header: "[[ports]]",
    doc: "A port of a router",
    keys: &[keys! {
        /// Network device
        "interface": Kind::Text, required;
        /// Its sending rate: that of its link, or of a shaper at it
        "rate": Kind::Quantity(Dimension::Rate), required;
    }],
    selector: None,
    nested: &[],
};

static SOURCE: TableDef = TableDef {
    header: "[source]",
    doc: "Who counts what the ports of a router carry",
    keys: &[keys! {
        /// The kernel of this machine, a switch by SNMP, an Open vSwitch by OpenFlow 1.3, or a switch that exports by sFlow 5
        "kind": SourceKind::KIND, default "kernel";
        /// Count flows too; not by SNMP or sFlow
        "count-flows": Kind::Bool, default "false";
    }],
    selector: Some(Selector {
        key: "kind",
        choices: &[
            ("kernel", &[]),
            (
                "snmp",
                keys! {
                    /// IP address of the switch
                    "address": Kind::Text, required;
                    /// Its UDP port
                    "port": Kind::Integer { min: 1, max: 65_535 }, default "161";
                    /// SNMP 2c: file with the community; owner and mode are checked as those of a secret
                    "community-file": Kind::Text, optional;
                    /// SNMP 3 instead: name of a user with authentication and privacy (AES-128)
                    "user": Kind::Text, optional;
                    /// SNMP 3: file with the user's passphrases, a line each, authentication first; checked as a secret
                    "passphrases-file": Kind::Text, optional;
                    /// SNMP 3: what authenticates
                    "authentication": SnmpHash::KIND, default "sha-256";
                },
            ),
            (
                "open-vswitch",
                keys! {
                    /// A bridge of this machine, or `tcp:ADDRESS:PORT` of one that listens there
                    "bridge": Kind::Text, required;
                    /// OpenFlow table in which each entry is a flow; absent: entries of all tables count
                    "flow-table": Kind::Integer { min: 0, max: 254 }, optional;
                },
            ),
            (
                "sflow",
                keys! {
                    /// IP address that the switch exports from; other senders are refused
                    "address": Kind::Text, required;
                    /// Own address of the socket; absent: any
                    "listen-address": Kind::Text, optional;
                    /// Own UDP port
                    "listen-port": Kind::Integer { min: 1, max: 65_535 }, default "6343";
                },
            ),
        ],
    }),
    nested: &[],
};

/// SNMP agents tell what they counted some seconds ago.
const SHORTEST_SNMP_CYCLE: Span = Span::from_secs(5);
/// A process is started for each question.
const SHORTEST_SWITCH_CYCLE: Span = Span::from_secs(1);
/// Switches export their counters every second at most.
const SHORTEST_SFLOW_CYCLE: Span = Span::from_secs(2);

/// A lease of BAS that the file does not tell, in measurement intervals.
const LEASE_INTERVALS: u64 = 20;

/// The keys of an agent's file, table by table, for their documentation.
pub fn reference() -> Vec<(&'static str, Vec<&'static Key>)> {
    [&FILE, &CONTROLLER_TABLE, &OPENTCP, &BAS, &PORT, &SOURCE]
        .into_iter()
        .map(|def| (def.header, def.keys_for(None)))
        .collect()
}

/// Reads an agent's file. `file` is its name in messages.
///
/// # Errors
/// Everything that is wrong with the text, each with its place.
pub fn parse(file: &str, text: &str) -> Result<Deployment, Errors> {
    daemon::parse(file, text, None, read)
}

fn read(reader: &mut Reader, path: &str, root: &Item) -> Option<Deployment> {
    let file = reader.section(&FILE, &Layer::new("", root));
    daemon::version(reader, &file);
    let name = daemon::name(reader, path, &file);
    let state_directory = daemon::state_directory(reader, &file, name.as_deref());
    let metrics = daemon::address(reader, &file, "metrics");
    let control_group = file.text("control-group");
    if control_group.as_ref().is_some_and(|folder| !folder.starts_with('/')) {
        reader.fail_key(&file, "control-group", "is not an absolute path");
    }
    let controller = file.item("controller").and_then(|_| controller(reader, &file));
    let scheme = file.choice::<Scheme>("scheme")?;
    let site = file.choice::<Site>("site")?;
    let ports = ports(reader, &file, site);
    let (source, counts_flows) = source(reader, &file, site, &ports).unwrap_or_default();
    let params = match scheme {
        Scheme::OpenTcp => opentcp(reader, &file, site, counts_flows),
        Scheme::Bas => bas(reader, &file, site),
    };
    if let Some(params) = &params {
        check_source(reader, &file, scheme, &source, params);
        if scheme == Scheme::Bas && site == Site::Router && bas::is_papers(params) && !counts_flows {
            let what = "counts no flows, by which the paper's allocator decides: write count-flows = true, or allocator = \"max-min\" in [role] where the controller has it";
            reader.fail(&file.place, "source", what);
        }
    }
    let neighbours = file.bool("neighbours")?;
    if neighbours && site == Site::Host {
        reader.fail_key(&file, "neighbours", "are reported by routers only: write site = \"router\"");
    }
    let Controller { address: controller, listen, key_file, certificate_file, enrolment } = controller?;
    Some(Deployment {
        name: name?,
        scheme,
        site,
        ports,
        source,
        counts_flows,
        number: u32::try_from(file.integer("number")?).ok()?,
        state_directory: state_directory?,
        metrics,
        log: file.choice("log")?,
        control_group,
        record: file.bool("record")?,
        neighbours,
        lldp_socket: file.text("lldp-socket"),
        controller,
        listen,
        key_file,
        certificate_file,
        enrolment,
        params: params?,
    })
}

/// The controller's addresses, the own one, and the files of secrets.
struct Controller {
    address: SocketAddr,
    listen: SocketAddr,
    key_file: String,
    certificate_file: Option<String>,
    enrolment: SocketAddr,
}

fn controller(reader: &mut Reader, file: &Section<'_>) -> Option<Controller> {
    let layer = reader.table(file, "controller");
    let section = reader.section(&CONTROLLER_TABLE, &layer);
    let mut address = |key| {
        let text = section.text(key)?;
        let address = text.parse::<IpAddr>().ok();
        let nobody = |address: &IpAddr| key == "address" && address.is_unspecified();
        let why = match address {
            None => Some("is not an IP address, such as \"192.0.2.1\""),
            Some(address) if nobody(&address) => Some("is no machine's address"),
            Some(address) => many(address),
        };
        if let Some(why) = why {
            reader.fail_key(&section, key, format!("\"{text}\" {why}"));
        }
        address.filter(|_| why.is_none())
    };
    let (controller, own) = (address("address"), address("listen-address"));
    if let (Some(controller), Some(own)) = (controller, own)
        && controller.is_ipv4() != own.is_ipv4()
    {
        reader.fail_key(&section, "listen-address", "is of another IP version than the controller's address");
    }
    let port = |key| section.integer(key).and_then(|n| u16::try_from(n).ok());
    let any: IpAddr = if controller?.is_ipv4() { [0; 4].into() } else { [0u16; 8].into() };
    let listen = SocketAddr::new(own.unwrap_or(any), port("listen-port")?);
    let controller = SocketAddr::new(controller?, port("port")?);
    if controller == listen {
        let what = format!("{controller} is the own address and port (listen-address)");
        reader.fail_key(&section, "address", what);
    }
    Some(Controller {
        address: controller,
        listen,
        key_file: section.text("key-file")?,
        certificate_file: section.text("certificate-file"),
        enrolment: SocketAddr::new(controller.ip(), port("enrolment-port")?),
    })
}

fn ports(reader: &mut Reader, file: &Section<'_>, site: Site) -> Vec<Port> {
    let mut ports: Vec<Port> = Vec::new();
    for layer in reader.tables(file, "ports") {
        let section = reader.section(&PORT, &layer);
        let (Some(interface), Some(rate)) = (section.text("interface"), section.rate("rate")) else {
            continue;
        };
        if rate == Rate::ZERO {
            reader.fail_key(&section, "rate", "must be more than nothing");
        }
        if ports.iter().any(|port| port.interface == interface) {
            reader.fail_key(&section, "interface", format!("names `{interface}` twice"));
        }
        ports.push(Port { interface, rate });
    }
    match site {
        Site::Host if file.item("ports").is_some() => {
            reader.fail_key(file, "ports", "are of a router: write site = \"router\"");
        }
        Site::Router if ports.is_empty() => {
            reader.fail(&file.place, "ports", "are missing: write [[ports]] for each port of the router");
        }
        _ => {}
    }
    ports
}

/// Who counts, and whether flows too; none when something is wrong with it.
fn source(reader: &mut Reader, file: &Section<'_>, site: Site, ports: &[Port]) -> Option<(PortSource, bool)> {
    if file.item("source").is_some() && site == Site::Host {
        reader.fail_key(file, "source", "is of a router: write site = \"router\"");
    }
    let layer = reader.table(file, "source");
    let section = reader.section(&SOURCE, &layer);
    let counts_flows = section.bool("count-flows")?;
    let source = match section.choice("kind")? {
        SourceKind::Kernel => PortSource::Kernel,
        SourceKind::Snmp => {
            if counts_flows {
                reader.fail_key(&section, "count-flows", "is nothing that SNMP tells: write false");
            }
            let address = switch_address(reader, &section, "address")?;
            let port = section.integer("port").and_then(|n| u16::try_from(n).ok())?;
            let access = snmp_access(reader, &section)?;
            PortSource::Snmp { address: SocketAddr::new(address, port), access }
        }
        SourceKind::Sflow => {
            if counts_flows {
                let what = "is nothing that sFlow tells: a switch samples packets, and of a sample no flows are counted; write false";
                reader.fail_key(&section, "count-flows", what);
            }
            let address = switch_address(reader, &section, "address")?;
            let any: IpAddr = if address.is_ipv4() { [0; 4].into() } else { [0u16; 8].into() };
            let own = match section.item("listen-address") {
                Some(_) => switch_address(reader, &section, "listen-address")?,
                None => any,
            };
            if own.is_ipv4() != address.is_ipv4() {
                reader.fail_key(
                    &section,
                    "listen-address",
                    "is of another IP version than the switch's address",
                );
            }
            let port = section.integer("listen-port").and_then(|n| u16::try_from(n).ok())?;
            PortSource::Sflow { address, listen: SocketAddr::new(own, port) }
        }
        SourceKind::OpenVswitch => {
            let bridge = section.text("bridge")?;
            let is_remote = bridge.strip_prefix("tcp:").is_some_and(|at| at.parse::<SocketAddr>().is_ok());
            if !is_remote && !daemon::is_name(&bridge) {
                let what =
                    format!("\"{bridge}\" is no bridge: {}, or tcp:ADDRESS:PORT", daemon::name_words());
                reader.fail_key(&section, "bridge", what);
            }
            let flow_table = section.integer("flow-table").and_then(|n| u8::try_from(n).ok());
            let is_name = |port: &&Port| {
                daemon::is_name(&port.interface) && !port.interface.bytes().all(|byte| byte.is_ascii_digit())
            };
            if let Some(port) = ports.iter().find(|port| !is_name(port)) {
                let what = format!("`{}` is no name of a port of an Open vSwitch", port.interface);
                reader.fail_key(file, "ports", what);
            }
            PortSource::OpenVswitch { bridge, flow_table }
        }
    };
    Some((source, counts_flows))
}

fn switch_address(reader: &mut Reader, section: &Section<'_>, key: &str) -> Option<IpAddr> {
    let text = section.text(key)?;
    let address = text.parse::<IpAddr>().ok();
    if address.is_none() {
        let what = format!("\"{text}\" is not an IP address, such as \"192.0.2.7\"");
        reader.fail_key(section, key, what);
    }
    address
}

fn snmp_access(reader: &mut Reader, section: &Section<'_>) -> Option<SnmpAccess> {
    let (community, user) = (section.text("community-file"), section.text("user"));
    let passphrases = section.text("passphrases-file");
    match (community, user, passphrases) {
        (Some(file), None, None) => {
            if section.item("authentication").is_some() {
                reader.fail_key(
                    section,
                    "authentication",
                    "is of SNMP 3: write `user` and `passphrases-file`, or leave it out",
                );
            }
            return Some(SnmpAccess::Community { file });
        }
        (None, Some(name), Some(file)) => {
            // RFC 3414, Sect. 5: `usmUserName`.
            if !(1..=32).contains(&name.len()) {
                reader.fail_key(section, "user", "has between 1 and 32 bytes");
            }
            return Some(SnmpAccess::User { name, file, hash: section.choice("authentication")? });
        }
        (Some(_), ..) => {
            let what = "is of SNMP 2c, `user` and `passphrases-file` are of SNMP 3: write one of the two";
            reader.fail_key(section, "community-file", what);
        }
        (None, Some(_), None) => reader.fail_key(section, "user", "needs a `passphrases-file`"),
        (None, None, _) => {
            let what = "is missing: write community-file (SNMP 2c), or user and passphrases-file (SNMP 3)";
            reader.fail(&section.place, "community-file", what);
        }
    }
    None
}

fn check_source(
    reader: &mut Reader,
    file: &Section<'_>,
    scheme: Scheme,
    source: &PortSource,
    params: &Params,
) {
    let shortest = match source {
        PortSource::Kernel => return,
        PortSource::Snmp { .. } => SHORTEST_SNMP_CYCLE,
        PortSource::OpenVswitch { .. } => SHORTEST_SWITCH_CYCLE,
        PortSource::Sflow { .. } => SHORTEST_SFLOW_CYCLE,
    };
    let key = match scheme {
        Scheme::OpenTcp => "cycle",
        Scheme::Bas => "notification-interval",
    };
    if scheme == Scheme::Bas && !bas::is_papers(params) {
        reader.fail_key(file, "source", "tells no queue, which max-min drains: write \"kernel\"");
        return;
    }
    let interval = params.span(key);
    if interval < shortest {
        let what = format!("is asked every {shortest} at most, and the {key} of the role is {interval}");
        reader.fail_key(file, "source", what);
    }
}

/// The parameters of BAS's host, or router.
fn bas(reader: &mut Reader, file: &Section<'_>, site: Site) -> Option<Params> {
    let layer = reader.table(file, "role");
    let section = reader.section(&BAS, &layer);
    let mut params = section.params(bas::ROLE_KEYS)?;
    let measurement = params.span("measurement-interval");
    at_least_the_shortest(reader, &section, &params, &["measurement-interval"]);
    if params.get("lease").is_none() {
        params.set("lease", Value::Span(measurement * LEASE_INTERVALS));
    }
    if let Err((key, why)) = bas::check_roles(&params) {
        reader.fail_key(&section, key, why);
    }
    if site == Site::Host && bas::is_papers(&params) && section.text("counting").as_deref() == Some("seen") {
        let what = "\"seen\" is of routers: a host counts the flows that are open";
        reader.fail_key_with(&section, "counting", what, "write \"open\"");
    }
    Some(params)
}

fn at_least_the_shortest(reader: &mut Reader, section: &Section<'_>, params: &Params, keys: &[&str]) {
    for key in keys {
        let span = params.span(key);
        if span < SHORTEST_CYCLE {
            reader.fail_key(section, key, format!("{span} is shorter than {SHORTEST_CYCLE}"));
        }
    }
}

/// The parameters of OpenTCP's agent, or switch.
fn opentcp(reader: &mut Reader, file: &Section<'_>, site: Site, counts_flows: bool) -> Option<Params> {
    let layer = reader.table(file, "role");
    let section = reader.section(&OPENTCP, &layer);
    let mut params = section.params(OPENTCP_KEYS)?;
    at_least_the_shortest(reader, &section, &params, &["cycle", "look"]);
    let of = |source| STATISTICS.iter().filter(move |statistic| statistic.source == source);
    let default: Vec<&str> = of(Source::Host).map(|statistic| statistic.name).collect();
    let known: Vec<&str> =
        of(Source::Host).chain(of(Source::Traffic)).map(|statistic| statistic.name).collect();
    let mut names = match params.get("statistics") {
        Some(Value::List(names)) => names.clone(),
        _ => default.iter().map(|&name| name.to_owned()).collect(),
    };
    for name in names.iter().filter(|name| !known.contains(&name.as_str())) {
        let what = match Statistic::named(name) {
            Some(other) => {
                format!("\"{name}\" is measured by {}, not reported by a host", other.source.who())
            }
            None => format!("\"{name}\" is no statistic; {}", suggestion(name, &known)),
        };
        reader.fail_key(&section, "statistics", what);
    }
    if site == Site::Router {
        if section.item("statistics").is_some() {
            reader.fail_key(
                &section,
                "statistics",
                "are of hosts: a router tells what its ports carry and drop",
            );
        }
        names.clear();
        names.push(LINK_CAPACITY.to_owned());
        names.extend(counts_flows.then(|| LINK_FLOWS.to_owned()));
    }
    params.set("collect", Value::List(names));
    params.set("reports", Value::Bool(true));
    Some(params)
}

impl Scheme {
    /// The registry entry.
    pub fn def(self) -> &'static SchemeDef {
        match self {
            Self::OpenTcp => &opentcp::DEF,
            Self::Bas => &bas::DEF,
        }
    }
}

impl Deployment {
    /// All that an agent knows of the network: its host, the controller, and of a router the ports. Who is at their other
    /// ends the controller knows.
    pub fn inventory(&self) -> Inventory {
        let mut all = Inventory::default();
        all.join("own");
        all.join("controller");
        for port in &self.ports {
            all.add_port(&port.interface, OWN, OWN, port.rate);
        }
        all
    }

    /// How often the role tells something.
    pub fn interval(&self) -> Span {
        let key = match (self.scheme, self.site) {
            (Scheme::OpenTcp, _) => "cycle",
            (Scheme::Bas, Site::Host) => "measurement-interval",
            (Scheme::Bas, Site::Router) => "notification-interval",
        };
        self.params.span(key)
    }

    /// The host has to tell what comes to it, from whom.
    pub fn tells_traffic(&self) -> bool {
        self.scheme == Scheme::OpenTcp
            && self.params.list("collect").iter().any(|name| name == TRAFFIC_HOSTS || name == TRAFFIC_RACKS)
    }

    /// Its roles. With the paper's allocator a host is a router too, of the port that its flows leave by.
    pub fn roles(&self) -> Vec<Role> {
        let is_counted =
            (self.scheme, self.site) == (Scheme::Bas, Site::Host) && bas::is_papers(&self.params);
        let counts = || {
            let peers = vec![(OTHER, &bas::ALLOCATOR)];
            let place =
                Place { peers, ports: vec![PortId(0)], ..Place::new(&bas::ROUTER, OWN, self.params.clone()) };
            Role::new(self.scheme.def(), place, &self.inventory(), None)
        };
        [self.role()].into_iter().chain(is_counted.then(counts)).collect()
    }

    /// The first of its roles.
    fn role(&self) -> Role {
        let (role, controller) = match (self.scheme, self.site) {
            (Scheme::OpenTcp, Site::Host) => (&opentcp::AGENT, &opentcp::ORACLE),
            (Scheme::OpenTcp, Site::Router) => (&opentcp::SWITCH, &opentcp::ORACLE),
            (Scheme::Bas, Site::Host) => (&bas::HOST, &bas::ALLOCATOR),
            (Scheme::Bas, Site::Router) => (&bas::ROUTER, &bas::ALLOCATOR),
        };
        let ports = (0..self.ports.len() as u32).map(PortId).collect();
        let peers = vec![(OTHER, controller)];
        let place = Place { peers, ports, ..Place::new(role, OWN, self.params.clone()) };
        Role::new(self.scheme.def(), place, &self.inventory(), None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheme::Act;

    const FILE: &str = "version = 1\nscheme = \"opentcp\"\nnumber = 7\n[controller]\naddress = \"192.0.2.1\"\nkey-file = \"k\"\n";

    #[test]
    fn an_agent_has_the_hosts_role_and_reports_what_a_host_has() {
        let deployment = parse("web-1.toml", FILE).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!((deployment.name.as_str(), deployment.number), ("web-1", 7));
        assert_eq!(deployment.state_directory, "/var/lib/bandmaster/web-1");
        assert_eq!(deployment.controller, "192.0.2.1:4742".parse().unwrap());
        assert_eq!(deployment.listen, "0.0.0.0:4742".parse().unwrap());
        let role = deployment.role();
        assert_eq!((role.place.role.name, role.place.node), ("agent", OWN));
        assert_eq!(role.place.role.acts, [Act::Tune, Act::Send]);
        // Every cycle and every look, as soon as it begins.
        assert!(role.built.controller.is_some_and(|controller| controller.wakeup().is_some()));
    }

    #[test]
    fn of_bas_it_has_a_hosts_role_and_a_lease() {
        let file = FILE.replace("opentcp", "bas")
            + "[role]\nallocator = \"max-min\"\nmeasurement-interval = \"200ms\"\n";
        let deployment = parse("web-1.toml", &file).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(deployment.params.span("lease").to_string(), "4s");
        let role = deployment.role();
        assert_eq!((role.scheme.name, role.place.role.name), ("bas", "host"));
        let names = |text: &str| {
            let deployment = parse("web-1.toml", text).unwrap_or_else(|e| panic!("{e}"));
            deployment.roles().iter().map(|role| role.place.role.name).collect::<Vec<_>>()
        };
        let paper = file.replace("max-min", "bas");
        assert_eq!((names(&file), names(&paper)), (vec!["host"], vec!["host", "router"]));
        let seen = parse("a.toml", &(paper + "counting = \"seen\"\n")).err().map(|e| e.to_string());
        assert!(seen.is_some_and(|said| said.contains("a host counts the flows that are open")));
        let short = file.clone() + "lease = \"500ms\"\n";
        let said = parse("a.toml", &short).err().map(|e| e.to_string()).unwrap_or_default();
        assert!(said.contains("shorter than 3 measurement intervals of 200ms"), "{said}");
    }

    #[test]
    fn a_router_tells_of_its_ports() {
        let router = FILE.replace("number = 7", "number = 8\nsite = \"router\"");
        let ports = "[[ports]]\ninterface = \"eth1\"\nrate = \"1gbit\"\n[[ports]]\ninterface = \"eth2\"\nrate = \"100mbit\"\n";
        let counted = "[source]\ncount-flows = true\n";
        for (scheme, name, source) in [("opentcp", "switch", ""), ("bas", "router", counted)] {
            let file = router.replace("opentcp", scheme) + ports + source;
            let deployment = parse("tor.toml", &file).unwrap_or_else(|e| panic!("{e}"));
            let role = deployment.role();
            assert_eq!((role.place.role.name, role.place.ports.len()), (name, 2));
            assert_eq!(role.place.role.acts, [Act::Send]);
        }
        for (file, expected) in [
            (router.clone(), "[[ports]] for each port"),
            (FILE.to_owned() + ports, "site = \"router\""),
            (router.clone() + &ports.replace("eth2", "eth1"), "names `eth1` twice"),
            (router + "[role]\nstatistics = [\"host.rtt\"]\n" + ports, "are of hosts"),
        ] {
            let said = parse("a.toml", &file).err().map(|e| e.to_string()).unwrap_or_default();
            assert!(said.contains(expected), "{expected}: {said}");
        }
    }

    #[test]
    fn a_router_may_ask_others_what_its_ports_carry() {
        let router = FILE.replace("number", "site = \"router\"\nnumber")
            + "[[ports]]\ninterface = \"eth0\"\nrate = \"1gbit\"\n[source]\n";
        let read = |rest: &str| parse("r.toml", &(router.clone() + rest));
        let of = |rest: &str| read(rest).unwrap_or_else(|e| panic!("{e}"));
        let counts =
            |deployment: &Deployment| deployment.params.list("collect").iter().any(|name| name == LINK_FLOWS);
        let kernel = of("count-flows = true\n");
        assert_eq!((&kernel.source, counts(&kernel)), (&PortSource::Kernel, true));
        assert_eq!(kernel.inventory().ports().count(), 1);
        let snmp = "kind = \"snmp\"\naddress = \"192.0.2.7\"\ncommunity-file = \"c\"\n";
        let address = "192.0.2.7:161".parse().unwrap();
        let source = PortSource::Snmp { address, access: SnmpAccess::Community { file: "c".to_owned() } };
        assert_eq!((of(snmp).source, counts(&of(snmp))), (source, false));
        let user = snmp.replace("community-file = \"c\"", "user = \"u\"\npassphrases-file = \"p\"");
        let access = SnmpAccess::User { name: "u".to_owned(), file: "p".to_owned(), hash: SnmpHash::Sha256 };
        assert_eq!(of(&user).source, PortSource::Snmp { address, access });
        let sflow = "kind = \"sflow\"\naddress = \"192.0.2.7\"\n";
        let listen = "0.0.0.0:6343".parse().unwrap();
        assert_eq!(of(sflow).source, PortSource::Sflow { address: address.ip(), listen });
        let switch = "kind = \"open-vswitch\"\nbridge = \"tcp:[2001:db8::8]:6653\"\nflow-table = 1\ncount-flows = true\n";
        let bridge = "tcp:[2001:db8::8]:6653".to_owned();
        assert_eq!(of(switch).source, PortSource::OpenVswitch { bridge, flow_table: Some(1) });
        let slow = router.replace("[source]", "[role]\ncycle = \"1s\"\n[source]");
        let said = |text: &str| parse("r.toml", text).err().map(|e| e.to_string()).unwrap_or_default();
        assert!(said(&(slow + snmp)).contains("every 5s at most, and the cycle of the role is 1s"));
        for (rest, expected) in [
            (&*snmp.replace("snmp\"", "snmp\"\ncount-flows = true"), "is nothing that SNMP tells"),
            (&snmp.replace("192.0.2.7", "switch"), "\"switch\" is not an IP address"),
            (&snmp.replace("snmp", "netflow"), "\"kernel\", \"snmp\", \"open-vswitch\" or \"sflow\""),
            (&(snmp.to_owned() + "user = \"u\"\n"), "write one of the two"),
            (&user.replace("passphrases-file = \"p\"\n", ""), "needs a `passphrases-file`"),
            (&snmp.replace("community-file = \"c\"\n", ""), "write community-file (SNMP 2c), or user"),
            (&(sflow.to_owned() + "count-flows = true\n"), "a switch samples packets"),
            (&(sflow.to_owned() + "listen-address = \"::1\"\n"), "another IP version"),
            ("address = \"192.0.2.7\"\n", "`address` goes with kind = \"snmp\""),
            (&switch.replace("tcp:[", "--db=["), "is no bridge"),
            (&switch.replace("= 1\n", "= 255\n"), "flow-table"),
        ] {
            let said = said(&(router.clone() + rest));
            assert!(said.contains("r.toml:") && said.contains(expected), "{rest}: {said}");
        }
        let odd = said(&(router.replace("eth0", "1") + switch));
        assert!(odd.contains("`1` is no name of a port of an Open vSwitch"), "{odd}");
        let bas = "site = \"router\"\n".to_owned()
            + &FILE.replace("opentcp", "bas")
            + "[[ports]]\ninterface = \"e\"\nrate = \"1gbit\"\nROLE[source]\n";
        let of = |role: &str, source: &str| said(&(bas.replace("ROLE", role) + source));
        assert!(of("[role]\nallocator = \"max-min\"\n", switch).contains("tells no queue"));
        // The paper's allocator wants counts of flows, and nothing else.
        assert!(
            of("", switch)
                .contains("asked every 1s at most, and the notification-interval of the role is 50ms")
        );
        assert_eq!(of("[role]\nnotification-interval = \"1s\"\n", switch), "");
        for (role, source) in [("", ""), ("[role]\nnotification-interval = \"5s\"\n", snmp)] {
            assert!(of(role, source).contains("counts no flows, by which the paper's allocator decides"));
        }
        let host = said(&router.replace("site = \"router\"\n", ""));
        assert!(host.contains("is of a router: write site = \"router\""), "{host}");
    }

    #[test]
    fn errors_name_the_place_the_value_and_what_is_allowed() {
        for (change, expected) in [
            (("number = 7", "number = 0"), "number"),
            (("opentcp", "qcbf"), "\"opentcp\" or \"bas\""),
            (("192.0.2.1", "gw.example"), "is not an IP address, such as"),
            (("192.0.2.1", "224.0.0.1"), "is a multicast address"),
            (("192.0.2.1", "0.0.0.0"), "is no machine's address"),
            (("key-file", "listen-address = \"::1\"\nkey-file"), "is of another IP version"),
            (("key-file = \"k\"\n", ""), "controller.key-file"),
            (
                ("key-file = \"k\"\n", "key-file = \"k\"\n[role]\nlook = \"1ms\"\n"),
                "1ms is shorter than 100ms",
            ),
            (
                ("key-file = \"k\"\n", "key-file = \"k\"\n[role]\nstatistics = [\"link.utilization\"]\n"),
                "\"link.utilization\" is measured by switches, not reported by a host",
            ),
            (
                ("key-file = \"k\"\n", "key-file = \"k\"\n[role]\nstatistics = [\"host.rtts\"]\n"),
                "did you mean",
            ),
        ] {
            let said = parse("a.toml", &FILE.replace(change.0, change.1)).err().map(|e| e.to_string());
            let said = said.unwrap_or_else(|| panic!("{change:?} is taken"));
            assert!(said.contains("a.toml:") && said.contains(expected), "{change:?}: {said}");
        }
    }
}
