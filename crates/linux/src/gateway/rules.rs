//! Our nftables table: which packets go to which class, and which are counted as data.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Stdio};

use bandmaster_core::scheme::er2bc::deployment::{
    Class, Deployment, Match, Protocol, Role, Sender, Whereabouts,
};
use bandmaster_core::time::Span;
use netlink_bindings::nftables::{Nfgenmsg, Request};
use netlink_socket2::{NetlinkSocket, ReplyError};

use super::Error;
use crate::htb;

/// Names of tables, family `inet`, begin so; that of a gateway called [`FIRST`] is this.
const TABLE: &str = "bandmaster";
/// The name of a gateway that is alone.
const FIRST: &str = "gateway";
/// Name of the counter of received data.
pub(super) const DATA: &str = "data";
/// Name of the counter of data that was received while a question was answered.
pub(super) const LATE: &str = "late";
/// Name of the counter of what leaves by no class.
pub(super) const UNCLASSIFIED: &str = "unclassified";
/// How long a question keeps the second counter running.
pub(super) const ANSWERING: Span = Span::from_millis(100);

/// The name of the table of the gateway called `name`.
pub(super) fn table(name: &str) -> String {
    if name == FIRST { TABLE.to_owned() } else { format!("{TABLE}-{name}") }
}

/// The table as `nft -f` reads it.
pub(super) fn ruleset(deployment: &Deployment) -> String {
    let Deployment { interface, peer, listen, .. } = deployment;
    let family = if peer.is_ipv4() { "ip" } else { "ip6" };
    // Of a peer that moves, the own port is all that is certain.
    let is_fixed = deployment.whereabouts == Whereabouts::Fixed;
    let at = |end: &str| if is_fixed { format!(" {family} {end} {}", peer.ip()) } else { String::new() };
    let port = |end: &str| if is_fixed { format!(" udp {end} {}", peer.port()) } else { String::new() };
    let mut text = format!("table inet {} {{\n", table(&deployment.name));
    if deployment.role != Role::Sender {
        let _ = writeln!(text, "\tcounter {DATA} {{\n\t}}\n\n\tcounter {LATE} {{\n\t}}\n");
        let _ = writeln!(
            text,
            "\tset asked {{\n\t\ttype iface_index\n\t\tsize 2\n\t\tflags dynamic,timeout\n\t\ttimeout {ANSWERING}\n\t}}\n"
        );
    }
    let takes_all = |sender: &Sender| sender.classes.last().is_some_and(|class| class.matches.is_empty());
    if let Some(sender) = &deployment.sender {
        if !takes_all(sender) {
            let _ = writeln!(text, "\tcounter {UNCLASSIFIED} {{\n\t}}\n");
        }
        for (number, _) in counted(sender) {
            for (version, address) in VERSIONS {
                let name = flows(number, version);
                let _ = writeln!(
                    text,
                    "\tset {name} {{\n\t\ttype {address} . {address} . inet_proto . inet_service . inet_service\n\t\tsize \
                     {MOST_FLOWS}\n\t\tflags dynamic,timeout\n\t\ttimeout {FLOW_TIMEOUT}\n\t}}\n"
                );
            }
        }
        text += "\tchain classes {\n\t\ttype filter hook postrouting priority mangle; policy accept;\n";
        // Probes leave unshaped, ahead of the data.
        let _ = writeln!(
            text,
            "\t\toifname \"{interface}\"{} udp sport {}{} return",
            at("daddr"),
            listen.port(),
            port("dport")
        );
        for (number, class) in sender.classes.iter().enumerate() {
            let everything = [Match::default()];
            let matches = if class.matches.is_empty() { &everything[..] } else { &class.matches };
            for rule in matches {
                let handle = htb::class_name(number);
                if class.counted.is_some() {
                    count_flows(&mut text, interface, number, rule);
                }
                for words in expressions(rule) {
                    let _ = writeln!(
                        text,
                        "\t\toifname \"{interface}\"{words} meta priority set {handle} return comment \"{}\"",
                        class.name
                    );
                }
            }
        }
        if !takes_all(sender) {
            let _ = writeln!(text, "\t\toifname \"{interface}\" counter name \"{UNCLASSIFIED}\"");
        }
        text += "\t}\n";
    }
    if deployment.role != Role::Sender {
        // Data first, so that what the second counter has the first one has too.
        let _ = writeln!(
            text,
            "\tchain counted {{\n\t\tcounter name \"{DATA}\"\n\t\tiif @asked counter name \"{LATE}\"\n\t\taccept\n\t}}\n"
        );
        text += "\tchain data {\n\t\ttype filter hook prerouting priority raw; policy accept;\n";
        let _ = writeln!(
            text,
            "\t\tiifname \"{interface}\"{}{} udp dport {} add @asked {{ iif }} return",
            at("saddr"),
            port("sport"),
            listen.port()
        );
        for rule in &deployment.data {
            for words in expressions(rule) {
                let _ = writeln!(text, "\t\tiifname \"{interface}\"{words} jump counted");
            }
        }
        text += "\t}\n";
    }
    text += "}\n";
    text
}

/// IP versions as nftables names them, and their addresses.
const VERSIONS: [(&str, &str); 2] = [("ip", "ipv4_addr"), ("ip6", "ipv6_addr")];
/// Flows counted in a class, per IP version.
const MOST_FLOWS: u32 = 65_535;
/// A flow counts for so long after its last packet.
const FLOW_TIMEOUT: Span = Span::from_secs(10);

fn counted(sender: &Sender) -> impl Iterator<Item = (usize, &Class)> {
    sender.classes.iter().enumerate().filter(|(_, class)| class.counted.is_some())
}

/// The set of flows of class `number`.
fn flows(number: usize, version: &str) -> String {
    format!("flows-{number}-{version}")
}

/// Notes the flow of every packet that fits `rule`.
fn count_flows(text: &mut String, interface: &str, number: usize, rule: &Match) {
    // What has ports; a rule that names one of the two says so itself.
    let transport = if rule.protocol.is_none() { " meta l4proto { tcp, udp }" } else { "" };
    for words in expressions(rule) {
        for (version, _) in VERSIONS {
            let other = if version == "ip" { " ip6 " } else { " ip " };
            if words.contains(other) {
                continue;
            }
            let protocol = if version == "ip" { "ipv4" } else { "ipv6" };
            let _ = writeln!(
                text,
                "\t\toifname \"{interface}\" meta nfproto {protocol}{transport}{words} update @{} {{ {version} \
                 saddr . {version} daddr . meta l4proto . th sport . th dport }}",
                flows(number, version)
            );
        }
    }
}

/// How many flows each class of `sender` has now; zero where they are not counted.
pub(super) fn read_flows(table: &str, sender: &Sender) -> Result<Vec<u32>, Error> {
    let mut all = vec![0; sender.classes.len()];
    for (number, _) in counted(sender) {
        for (version, _) in VERSIONS {
            let set = flows(number, version);
            let text = nft(&["list", "set", "inet", table, &set], "")?;
            all[number] += text.matches(" expires ").count() as u32;
        }
    }
    Ok(all)
}

/// The parts of `rule`, each with a space before it: one rule of nftables for each IP version it applies to.
fn expressions(rule: &Match) -> Vec<String> {
    let versions: &[&str] = match rule.source.first().or(rule.destination.first()) {
        Some(prefix) if prefix.address.is_ipv4() => &["ip"],
        Some(_) => &["ip6"],
        None if rule.dscp.is_empty() => &[""],
        None => &["ip", "ip6"],
    };
    let set = |items: Vec<String>| match items.as_slice() {
        [one] => one.clone(),
        _ => format!("{{ {} }}", items.join(", ")),
    };
    let mut all = Vec::new();
    for version in versions {
        let mut words = String::new();
        if !rule.dscp.is_empty() {
            let _ = write!(words, " {version} dscp {}", set(rule.dscp.iter().map(u8::to_string).collect()));
        }
        for (end, prefixes) in [("saddr", &rule.source), ("daddr", &rule.destination)] {
            if !prefixes.is_empty() {
                let prefixes = set(prefixes.iter().map(ToString::to_string).collect());
                let _ = write!(words, " {version} {end} {prefixes}");
            }
        }
        let protocol = rule.protocol.map(|protocol| match protocol {
            Protocol::Tcp => "tcp",
            Protocol::Udp => "udp",
        });
        if let Some(protocol) = protocol {
            if rule.ports.is_empty() {
                let _ = write!(words, " meta l4proto {protocol}");
            } else {
                let range = |(low, high): &(u16, u16)| {
                    if low == high { low.to_string() } else { format!("{low}-{high}") }
                };
                let _ = write!(words, " {protocol} dport {}", set(rule.ports.iter().map(range).collect()));
            }
        }
        all.push(words);
    }
    all
}

/// Loads `text`, all of it or nothing.
pub(super) fn load(text: &str) -> Result<(), Error> {
    nft(&["-f", "-"], text).map(|_| ())
}

/// Takes the table away; nothing happens when it is not there.
pub(super) fn remove(table: &str) -> Result<(), Error> {
    load(&format!("table inet {table} {{\n}}\ndelete table inet {table}\n"))
}

/// Loads `text` in place of the table that may be there.
pub(super) fn replace(table: &str, text: &str) -> Result<(), Error> {
    load(&format!("table inet {table} {{\n}}\ndelete table inet {table}\n{text}"))
}

/// The table as it stands, without counts and members of sets; none when it is not there.
pub(super) fn standing(table: &str) -> Result<Option<String>, Error> {
    if exist(table)? { nft(&["-s", "-t", "list", "table", "inet", table], "").map(Some) } else { Ok(None) }
}

/// The kernel's number of the rules that stand: it rises whenever anybody changes any.
pub(super) fn generation() -> Result<u32, Error> {
    let mut socket = NetlinkSocket::new();
    let mut read = || -> Result<u32, ReplyError> {
        let request = Request::new().op_getgen_do(&Nfgenmsg::default());
        let mut answer = socket.request(&request)?;
        let (_, attributes) = answer.recv_one()?;
        Ok(attributes.get_id()?)
    };
    read().map_err(|e| Error::Failed(format!("error: generation of nftables: {e}")))
}

/// Whether there is such a table.
pub(super) fn exist(table: &str) -> Result<bool, Error> {
    let tables = nft(&["list", "tables", "inet"], "")?;
    Ok(tables.lines().any(|line| line.trim() == format!("table inet {table}")))
}

fn nft(arguments: &[&str], input: &str) -> Result<String, Error> {
    let missing = |e: &std::io::Error| Error::Missing(format!("error: nft: {e}; install nftables"));
    let failed = |e: std::io::Error| Error::Failed(format!("error: nft: {e}"));
    let mut child = Command::new("nft")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| missing(&e))?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(input.as_bytes()).map_err(failed)?;
    }
    let output = child.wait_with_output().map_err(failed)?;
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let message = format!("error: nft {}: {}", arguments.join(" "), said.trim());
    Err(if said.contains("Operation not permitted") {
        Error::Missing(format!("{message}; it needs CAP_NET_ADMIN"))
    } else {
        Error::Failed(message)
    })
}

#[cfg(test)]
mod tests {
    use bandmaster_core::scheme::er2bc::deployment::parse;

    use super::*;

    const BOTH: &str = r#"
version = 1
role = "both"
interface = "wan0"
[peer]
address = "192.0.2.2"
port = 5000
key-file = "a"
answer-key-file = "b"
[control]
safe-rate = "500kbit"
[[classes]]
name = "voice"
priority = 1
need = "400kbit"
[[classes.match]]
dscp = ["ef", 34]
[[classes.match]]
source = ["10.1.0.0/16", "10.2.0.0/16"]
destination = "10.3.0.1"
protocol = "udp"
ports = [5060, "10000-20000"]
[[classes]]
name = "web"
priority = 2
need = "400kbit"
[[classes.match]]
source = "2001:db8::/32"
protocol = "tcp"
[[classes]]
name = "rest"
priority = 3
need = "100kbit"
[[data]]
source = "10.9.0.0/16"
"#;

    /// Probes first; code points for both IP versions; the last class takes all that is left.
    #[test]
    fn every_kind_of_rule() {
        let text = ruleset(&parse("f", BOTH).expect("valid"));
        let rules: Vec<&str> = text.lines().map(str::trim).filter(|line| line.contains("ifname")).collect();
        let expected = [
            "oifname \"wan0\" ip daddr 192.0.2.2 udp sport 4741 udp dport 5000 return",
            "oifname \"wan0\" ip dscp { 46, 34 } meta priority set 1:10 return comment \"voice\"",
            "oifname \"wan0\" ip6 dscp { 46, 34 } meta priority set 1:10 return comment \"voice\"",
            "oifname \"wan0\" ip saddr { 10.1.0.0/16, 10.2.0.0/16 } ip daddr 10.3.0.1/32 udp dport { 5060, 10000-20000 } \
             meta priority set 1:10 return comment \"voice\"",
            "oifname \"wan0\" ip6 saddr 2001:db8::/32 meta l4proto tcp meta priority set 1:11 return comment \"web\"",
            "oifname \"wan0\" meta priority set 1:12 return comment \"rest\"",
            "iifname \"wan0\" ip saddr 192.0.2.2 udp sport 5000 udp dport 4741 add @asked { iif } return",
            "iifname \"wan0\" ip saddr 10.9.0.0/16 jump counted",
        ];
        assert_eq!(rules, expected);
    }

    /// When no class takes all remaining packets, a counter counts those that no class takes.
    #[test]
    fn what_fits_no_class_is_counted() {
        let file = BOTH.replace("name = \"rest\"", "name = \"rest\"\nmatch = [{ dscp = [0] }]");
        let text = ruleset(&parse("f", &file).expect("valid"));
        assert!(text.contains("\t\toifname \"wan0\" counter name \"unclassified\"\n\t}\n"), "{text}");
        assert!(text.contains("counter unclassified {"), "{text}");
        assert!(!ruleset(&parse("f", BOTH).expect("valid")).contains("unclassified"));
    }

    /// Of a peer that moves, probes are known by the own port.
    #[test]
    fn probes_of_a_peer_that_moves() {
        let text = BOTH.replace("\"192.0.2.2\"\nport = 5000", "\"gw.example.net\"");
        let text = ruleset(&parse("f", &text).expect("valid"));
        for rule in [
            "oifname \"wan0\" udp sport 4741 return",
            "iifname \"wan0\" udp dport 4741 add @asked { iif } return",
        ] {
            assert!(text.lines().any(|line| line.trim() == rule), "{text}");
        }
    }

    /// nftables itself reads every kind of rule, where it is installed and may be asked.
    #[test]
    fn nftables_takes_them() {
        let counted = BOTH.replace("need =", "count-flows = true\nneed =");
        let text = ruleset(&parse("f", &counted).expect("valid"));
        assert_eq!(text.matches("update @flows-").count(), 6, "{text}");
        match nft(&["-c", "-f", "-"], &text) {
            Ok(_) => {}
            Err(Error::Missing(why)) => {
                let _ = writeln!(std::io::stderr(), "skipped: nftables_takes_them: {why}");
            }
            Err(error) => panic!("{error}"),
        }
    }
}
