//! The configuration of a switch's daemon: its file, and the role of its scheme at the ports of a router.

pub mod bas;
pub mod fbqm;

use std::net::SocketAddr;

use crate::daemon::{self, Log};
use crate::file::{Content, Errors, Item, Layer, Reader, Section, Shape, TableDef};
use crate::id::{NodeId, PortId};
use crate::params::{Choice, Key, Kind, Params, Value, choice, keys};
use crate::qdisc;
use crate::runtime::inventory::Inventory;
use crate::scheme::qcbf::law::Terms;
use crate::scheme::{self, Place, Role, qcbf};
use crate::time::Span;
use crate::units::{Dimension, Rate};

/// The router, as its role numbers it.
pub const OWN: NodeId = NodeId(0);
/// Bytes that a full segment takes on an Ethernet.
pub const FRAME: u64 = 1514;
/// Longest name of a Linux network device, IFNAMSIZ less the final zero.
const LONGEST_INTERFACE: usize = 15;
/// The daemon looks at its flows so often that silence of less is none.
const SHORTEST_AGEING: Span = Span::from_millis(100);

choice! {
    /// A scheme that a switch's daemon can run.
    pub enum Scheme {
        /// QCBF: windows from the port's buffer.
        Qcbf = "qcbf",
        /// FBQM: classes of faster and slower flows, served in turn, and RED.
        Fbqm = "fbqm",
        /// BAS: a share of the port for each flow, as a window.
        Bas = "bas",
    }
}

/// A port of the router.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Port {
    /// Network device by which data depart.
    pub interface: String,
    /// What it can send.
    pub rate: Rate,
}

/// A switch as its file describes it: valid and complete.
#[derive(Clone, Debug)]
pub struct Deployment {
    /// Its name among the daemons of the machine.
    pub name: String,
    /// What runs.
    pub scheme: Scheme,
    /// Its ports.
    pub ports: Vec<Port>,
    /// Folder of the journal and of the status.
    pub state_directory: String,
    /// Where metrics are served; none: nowhere.
    pub metrics: Option<SocketAddr>,
    /// Form of the log.
    pub log: Log,
    /// Parameters of QCBF's role, of FBQM's discipline, or of BAS's roles.
    pub params: Params,
}

static FILE: TableDef = TableDef {
    header: "the file",
    doc: "A bandmaster switch",
    keys: &[keys! {
        ..daemon::VERSION;
        /// Scheme that runs at the ports
        "scheme": Scheme::KIND, required;
        ..daemon::NAME;
        /// Folder of journal and status; absent: `/var/lib/bandmaster/NAME`
        "state-directory": Kind::Text, optional;
        ..daemon::METRICS;
        ..daemon::LOG;
        /// How the scheme works here
        "role": Kind::Nested, required;
        /// Ports by which data reach their receivers
        "ports": Kind::Nested, required;
    }],
    selector: None,
    nested: &[("role", Shape::Table(&QCBF)), ("ports", Shape::Tables(&PORT))],
};

const QCBF_KEYS: &[Key] = keys! {
    /// Buffer of every port: no more than its queue discipline holds
    "buffer": Kind::Quantity(Dimension::Bytes), required;
    /// Round-trip time without queues, which gives D_L = C x RTT
    "rtt": Kind::Quantity(Dimension::Span), required;
    /// Part of the buffer that windows fill, in addition to D_L; the rest is for packets without data and for new flows
    "beta": Kind::Float { min: 0.01, max: 1.0 }, default "0.8";
    /// Concurrent flows at a port that the buffer must hold
    "flows": Kind::Integer { min: 1, max: 100_000 }, default "16";
    /// Least segments of a flow's window while the buffer holds them; as many as receivers acknowledge at once
    "turn": Kind::Integer { min: 1, max: 64 }, default "2";
    /// Segments that slow start begins with; a flow is not given what it cannot use
    "initial-window": Kind::Integer { min: 1, max: 1000 }, default "10";
    /// A flow that is silent for this time, up to half as much longer, gives its share back until it wakes
    "ageing": Kind::Quantity(Dimension::Span), default "1s";
};

static QCBF: TableDef = TableDef {
    header: "[role] of qcbf",
    doc: "How QCBF works here",
    keys: &[QCBF_KEYS],
    selector: None,
    nested: &[],
};

static PORT: TableDef = TableDef {
    header: "[[ports]]",
    doc: "A port of the router",
    keys: &[keys! {
        /// Network device by which data depart; with QCBF and BAS, their acknowledgements arrive by it
        "interface": Kind::Text, required;
        /// Its sending rate: that of its link, or of a shaper at it
        "rate": Kind::Quantity(Dimension::Rate), required;
    }],
    selector: None,
    nested: &[],
};

/// The keys of a switch's file, table by table, for their documentation.
pub fn reference() -> Vec<(&'static str, Vec<&'static Key>)> {
    [&FILE, &QCBF, &fbqm::TABLE, &bas::TABLE, &PORT]
        .into_iter()
        .map(|def| (def.header, def.keys_for(None)))
        .collect()
}

/// Reads a switch's file. `file` is its name in messages.
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
    let ports = ports(reader, &file);
    let params = file.item("role").and_then(|_| match file.choice("scheme")? {
        Scheme::Qcbf => qcbf(reader, &file, &ports),
        Scheme::Fbqm => fbqm::read(reader, &file, &ports),
        Scheme::Bas => bas::read(reader, &file),
    });
    let params = params?;
    Some(Deployment {
        name: name?,
        scheme: file.choice("scheme")?,
        ports,
        state_directory: state_directory?,
        metrics,
        log: file.choice("log")?,
        params,
    })
}

fn ports(reader: &mut Reader, file: &Section<'_>) -> Vec<Port> {
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
        if !is_interface(&interface) {
            let what = format!(
                "`{interface}` is no name of a network device: write 1 to {LONGEST_INTERFACE} bytes without `/`, `:` and space, \
                 as `ip link` shows it"
            );
            reader.fail_key(&section, "interface", what);
        }
        ports.push(Port { interface, rate });
    }
    if file.item("ports").is_some_and(|item| matches!(&item.content, Content::List(all) if all.is_empty())) {
        reader.fail_key(file, "ports", "names no port: write a table [[ports]] with `interface` and `rate`");
    }
    ports
}

/// As the kernel has it (dev_valid_name).
fn is_interface(name: &str) -> bool {
    let is_odd = |c: char| c == '/' || c == ':' || c.is_ascii_whitespace() || c == '\0';
    (1..=LONGEST_INTERFACE).contains(&name.len()) && name != "." && name != ".." && !name.contains(is_odd)
}

fn qcbf(reader: &mut Reader, file: &Section<'_>, ports: &[Port]) -> Option<Params> {
    let layer = reader.table(file, "role");
    let section = reader.section(&QCBF, &layer);
    let mut params = section.params(QCBF_KEYS)?;
    params.set("form", Value::Text("share".to_owned()));
    params.set("timeout", Value::Text("tcp".to_owned()));
    if let Err((key, why)) = qcbf::check_params(&params) {
        reader.fail_key(&section, key, why);
    }
    let ageing = params.span("ageing");
    if ageing < SHORTEST_AGEING {
        reader.fail_key(&section, "ageing", format!("{ageing} is shorter than {SHORTEST_AGEING}"));
    }
    let (buffer, flows) = (params.bytes("buffer"), params.integer("flows") as u64);
    for Port { interface, rate } in ports {
        let terms = qcbf::terms(&params, *rate);
        let whole = terms.whole();
        if whole > buffer.get() {
            let what = format!(
                "windows at {interface} add up to {whole} B (C x RTT is {} B, beta x buffer {} B), more than the buffer of \
                 {buffer}, which must hold them: lower beta or rtt",
                terms.pipe, terms.queue
            );
            reader.fail_key(&section, "beta", what);
        } else if flows * FRAME > whole {
            let what = format!(
                "{flows} flows of a segment each ({FRAME} B) are more than the {whole} B of windows at {interface}: below a \
                 segment flows take turns, which a program in the kernel cannot; at most {}",
                whole / FRAME
            );
            reader.fail_key(&section, "flows", what);
        }
    }
    Some(params)
}

impl Scheme {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Qcbf => qcbf::DEF.name,
            Self::Fbqm => qdisc::fbqm::DEF.name,
            Self::Bas => scheme::bas::DEF.name,
        }
    }
}

impl Deployment {
    /// The router and its ports.
    pub fn inventory(&self) -> Inventory {
        let mut all = Inventory::default();
        all.join("own");
        for port in &self.ports {
            all.add_port(&port.interface, OWN, OWN, port.rate);
        }
        all
    }

    /// What QCBF's law is set to at a port.
    pub fn terms(&self, port: &Port) -> Terms {
        qcbf::terms(&self.params, port.rate)
    }

    /// QCBF's role. FBQM has none: it is a queue discipline. [BAS](Self::bas_roles) has three.
    pub fn role(&self) -> Role {
        let ports = (0..self.ports.len() as u32).map(PortId).collect();
        let place = Place { ports, ..Place::new(&qcbf::TOR, OWN, self.params.clone()) };
        Role::new(&qcbf::DEF, place, &self.inventory(), None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheme::Act;

    const FILE: &str = "version = 1\nscheme = \"qcbf\"\n[role]\nbuffer = \"64KiB\"\nrtt = \"1ms\"\n[[ports]]\n\
                        interface = \"lan0\"\nrate = \"40mbit\"\n";

    #[test]
    fn a_switch_has_a_program_at_each_port() {
        let text = format!("{FILE}[[ports]]\ninterface = \"lan1\"\nrate = \"20mbit\"\n");
        let deployment = parse("tor-1.toml", &text).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(deployment.state_directory, "/var/lib/bandmaster/tor-1");
        let role = deployment.role();
        let programs: Vec<_> =
            role.built.programs.iter().map(|(port, program)| (*port, program.act())).collect();
        assert_eq!(programs, [(PortId(0), Act::Rewrite), (PortId(1), Act::Rewrite)]);
        assert_eq!(deployment.terms(&deployment.ports[0]).whole(), 5_000 + 52_428);
    }

    #[test]
    fn what_the_kernel_form_cannot_hold_is_refused_by_name() {
        for (from, to, expected) in [
            ("1ms", "4ms", "more than the buffer of 64KiB"),
            ("rtt =", "flows = 38\nrtt =", "38 flows of a segment each (1514 B) are more than the 57428 B"),
            ("rtt =", "ageing = \"10ms\"\nrtt =", "10ms is shorter than 100ms"),
            ("64KiB", "2kB", "below 3000B"),
            ("\"qcbf\"", "\"opentcp\"", "\"qcbf\", \"fbqm\" or \"bas\""),
            ("\"qcbf\"", "\"bas\"", "buffer"),
            ("\"qcbf\"", "\"fbqm\"", "buffer"),
            ("[[ports]]", "[[port]]", "ports"),
            ("\"lan0\"", "\"\"", "`` is no name of a network device: write 1 to 15 bytes"),
            ("\"lan0\"", "\"a234567890123456\"", "ports.0.interface"),
            ("\"lan0\"", "\"lan/0\"", "`lan/0` is no name"),
            ("\"lan0\"", "\"lan 0\"", "`lan 0` is no name"),
            ("\"lan0\"", "\"..\"", "`..` is no name"),
        ] {
            let told = parse("tor.toml", &FILE.replace(from, to)).expect_err("refused").to_string();
            assert!(told.contains(expected), "{expected}: {told}");
        }
        assert!(parse("tor.toml", &FILE.replace("rtt =", "flows = 37\nrtt =")).is_ok());
        assert!(parse("tor.toml", &FILE.replace("lan0", "a23456789012345")).is_ok());
        let (head, _) = FILE.split_once("[role]").expect("a role");
        let fbqm = "version = 1\nscheme = \"fbqm\"\n[role]\nclasses = 4\n[[ports]]\ninterface = \"lan0\"\nrate = \"1mbit\"\n";
        let read = parse("tor.toml", fbqm).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!((read.scheme.name(), read.params.text("serve")), ("fbqm", "always".to_owned()));
        for (from, to, expected) in [
            ("classes = 4", "classes = 65", "from 2 to 64"),
            ("classes", "interval = \"1ms\"\nclasses", "1ms is shorter than 10ms"),
            ("classes", "cells = 100\nclasses", "100 is not a power of two"),
            ("classes", "limit = \"40pkt\"\nclasses", "nothing would be dropped early"),
            ("classes", "limit = \"unlimited\"\nclasses", "is not \"200pkt\" or \"64KiB\""),
            ("classes", "min-th = \"unlimited\"\nclasses", "is not \"200pkt\" or \"64KiB\""),
            ("classes", "max-th = \"unlimited\"\nclasses", "is not \"200pkt\" or \"64KiB\""),
            ("1mbit", "1kbit", "takes lan0 more than"),
        ] {
            let told = parse("tor.toml", &fbqm.replace(from, to)).expect_err("refused").to_string();
            assert!(told.contains(expected), "{expected}: {told}");
        }
        let none = format!("{head}ports = []\n[role]\nbuffer = \"64KiB\"\nrtt = \"1ms\"\n");
        let told = parse("tor.toml", &none).expect_err("refused").to_string();
        assert!(
            told.contains("tor.toml:3") && told.contains("names no port: write a table [[ports]]"),
            "{told}"
        );
    }
}
