//! Keeps what routers' agents see in the state directory, and compares it with the controller's file.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::fs;
use std::path::Path;

use bandmaster_core::controller::{Deployment, Link, Router};
use bandmaster_core::neighbours::{self, MOST_ROWS, Part, Row, What};
use bandmaster_core::prefix::Prefix;
use bandmaster_core::time::{Span, Time};
use bandmaster_core::units::Rate;
use serde::{Deserialize, Serialize};

use super::load;
use crate::daemon::clock::Clock;
use crate::daemon::state::State;
use crate::daemon::{self, Error};

/// What does not change is written down so often.
const REFRESH: Span = Span::from_secs(30);
/// A look that is older says nothing of now.
const OLD: f64 = 300.0;
/// Bytes of a file that are read.
const MOST_BYTES: usize = 1 << 20;

/// A router's last complete report.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
struct Look {
    /// When, in ns of the epoch.
    at: u64,
    rows: Vec<Row>,
}

/// What routers tell, as it comes.
#[derive(Default)]
pub(super) struct Looks {
    /// By the router's number: the look that is coming in, part by part, and when the last was written.
    coming: BTreeMap<u32, (Part, BTreeMap<u16, Vec<Row>>)>,
    whole: BTreeMap<u32, (Look, bool)>,
}

fn name_of(number: u32) -> String {
    format!("neighbours-{number}")
}

impl Looks {
    /// Takes a message of host `number`; false: it is none.
    pub(super) fn take(&mut self, now: Time, number: u32, body: &[u8]) -> bool {
        let Some(part) = neighbours::read(body) else { return false };
        let (look, parts) = self.coming.entry(number).or_insert_with(|| (part.clone(), BTreeMap::new()));
        if (look.number, look.parts) != (part.number, part.parts) {
            parts.clear();
        }
        let mut part = part;
        parts.insert(part.part, std::mem::take(&mut part.rows));
        *look = part;
        if parts.len() < usize::from(look.parts) {
            return true;
        }
        let mut rows: Vec<Row> = std::mem::take(parts).into_values().flatten().collect();
        rows.truncate(MOST_ROWS);
        let (last, is_written) = self.whole.entry(number).or_default();
        if *is_written && last.rows == rows && now.since(Time::from_nanos(last.at)) < REFRESH {
            return true;
        }
        (*last, *is_written) = (Look { at: now.as_nanos(), rows }, false);
        true
    }

    /// Writes down what is new.
    pub(super) fn keep<E: Serialize + for<'de> Deserialize<'de>>(
        &mut self,
        state: &State<E>,
    ) -> Result<(), Error> {
        for (number, (look, is_written)) in self.whole.iter_mut().filter(|(_, (_, is_written))| !is_written) {
            let text = serde_json::to_string(look).unwrap_or_default();
            state.keep(&name_of(*number), &text)?;
            *is_written = true;
        }
        Ok(())
    }
}

/// How what is seen stands to what the file says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The same.
    Agrees,
    /// The file says otherwise.
    Differs,
    /// Nobody sees what the file says.
    NotSeen,
    /// The file does not have it.
    New,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Agrees => "agrees",
            Self::Differs => "differs",
            Self::NotSeen => "not seen",
            Self::New => "new",
        })
    }
}

/// A link, or a prefix, in the file and as a router sees it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Finding {
    /// The router.
    pub router: String,
    /// Its interface; none: the agent has no port for what the file says.
    pub interface: Option<String>,
    /// The prefix; none: it is about a link.
    pub prefix: Option<String>,
    /// Which node the file says is there.
    pub file: Option<String>,
    /// Who is seen there: names, and the ports of theirs that LLDP tells.
    pub seen: Vec<String>,
    /// How they stand to each other.
    pub verdict: Verdict,
}

/// A controller's file compared with what its routers see.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Discovery {
    /// Routers of the file, and the age of their last reports in seconds; none: no report.
    pub routers: Vec<(String, Option<f64>)>,
    /// Links and prefixes.
    pub findings: Vec<Finding>,
    /// What could not be seen, and why.
    pub remarks: Vec<String>,
    /// Lines for the files, to be judged and copied; empty: all agrees.
    pub toml: String,
}

/// Compares a controller's file with what its routers reported. The controller may be running.
///
/// # Errors
/// Everything that is wrong with the files, each with its place.
pub fn discover(file: &Path) -> Result<Discovery, Error> {
    let loaded = load(file)?;
    let folder = Path::new(&loaded.deployment.state_directory);
    let now = Clock::of_day().now();
    let look = |router: &Router| {
        let host = loaded.hosts.iter().find(|host| host.name == router.name)?;
        let text = fs::read_to_string(folder.join(name_of(host.number))).ok()?;
        let look: Look = serde_json::from_str(&text).ok().filter(|_| text.len() < MOST_BYTES)?;
        Some((now.since(Time::from_nanos(look.at)).as_secs_f64(), look.rows))
    };
    let looks = loaded.deployment.routers.iter().map(look).collect();
    Ok(compare(&loaded.deployment, looks))
}

/// A node of the file is who is seen: by its name, or by its first label, or the file has numbered one of parallel links.
fn is(node: &str, seen: &str) -> bool {
    let numbered = |of: &str| {
        node.strip_prefix(of)
            .and_then(|rest| rest.strip_prefix('-'))
            .is_some_and(|n| n.parse::<u32>().is_ok())
    };
    let short = seen.split('.').next().unwrap_or(seen);
    node == seen || node == short || numbered(seen) || numbered(short)
}

/// A text of TOML. Names are plain ASCII.
fn quoted(text: &str) -> String {
    format!("{text:?}")
}

/// What a router sees at an interface.
#[derive(Default)]
struct Seen<'a> {
    place: Option<u32>,
    rate: Option<u64>,
    neighbours: Vec<(&'a str, &'a str)>,
    prefixes: Vec<&'a str>,
}

impl Seen<'_> {
    fn names(&self) -> Vec<String> {
        self.neighbours.iter().map(|(name, port)| format!("{name} {port}").trim_end().to_owned()).collect()
    }

    /// As the file would call who is there.
    fn short(&self) -> Option<&str> {
        let name = self.neighbours.first()?.0;
        let is_address = name.contains(':');
        Some(if is_address { name } else { name.split('.').next().unwrap_or(name) })
    }
}

fn compare(deployment: &Deployment, looks: Vec<Option<(f64, Vec<Row>)>>) -> Discovery {
    let mut told =
        Discovery { routers: Vec::new(), findings: Vec::new(), remarks: Vec::new(), toml: String::new() };
    if deployment.routers.is_empty() {
        told.remarks.push(
            "the file has no [[routers]], and nobody else tells what is around: give a router an agent with `neighbours = true`, and \
             write it here with its `ports`"
                .to_owned(),
        );
    }
    for (router, look) in deployment.routers.iter().zip(looks) {
        let name = &router.name;
        told.routers.push((name.clone(), look.as_ref().map(|(ago, _)| *ago)));
        match look {
            Some((ago, rows)) if ago <= OLD => of_router(deployment, router, &rows, &mut told),
            Some((ago, _)) => told.remarks.push(format!("{name}: no report for {ago:.0} s")),
            None => told
                .remarks
                .push(format!("{name}: no report yet; a router reports every 20 s, with `neighbours = true` in its agent's file")),
        }
    }
    told
}

fn of_router(deployment: &Deployment, router: &Router, rows: &[Row], told: &mut Discovery) {
    let mut all: BTreeMap<&str, Seen<'_>> = BTreeMap::new();
    for Row { interface, what } in rows {
        if let What::Unknown { why } = what {
            told.remarks.push(format!("{}: {why}", router.name));
            continue;
        }
        let seen = all.entry(interface).or_default();
        match what {
            What::Port { place, rate } => (seen.place, seen.rate) = (Some(*place), Some(*rate)),
            What::Neighbour { name, port } => seen.neighbours.push((name, port)),
            What::Route { prefix } => seen.prefixes.push(prefix),
            What::Unknown { .. } => {}
        }
    }
    let finding = |interface: Option<&str>, file: Option<&String>, seen: Vec<String>, verdict| Finding {
        router: router.name.clone(),
        interface: interface.map(str::to_owned),
        prefix: None,
        file: file.cloned(),
        seen,
        verdict,
    };
    let mut nodes = router.ports.clone();
    let mut ports: Vec<(&str, &Seen<'_>)> = all.iter().map(|(name, seen)| (*name, seen)).collect();
    ports.sort_by_key(|(name, seen)| (seen.place.unwrap_or(u32::MAX), *name));
    let mut lines = String::new();
    for (place, node) in router.ports.iter().enumerate() {
        if !ports.iter().any(|(_, seen)| seen.place == Some(place as u32)) {
            told.findings.push(finding(None, Some(node), Vec::new(), Verdict::NotSeen));
        }
    }
    for (interface, seen) in &ports {
        let node = seen.place.and_then(|place| router.ports.get(place as usize));
        let verdict = match node {
            Some(_) if seen.neighbours.is_empty() => Verdict::NotSeen,
            Some(node) if seen.neighbours.iter().any(|(name, _)| is(node, name)) => Verdict::Agrees,
            Some(_) => Verdict::Differs,
            None if seen.neighbours.is_empty() && seen.place.is_none() => Verdict::Agrees,
            None => Verdict::New,
        };
        if node.is_some() || verdict != Verdict::Agrees {
            told.findings.push(finding(Some(interface), node, seen.names(), verdict));
        }
        match (verdict, seen.place, seen.short()) {
            (Verdict::Differs, Some(place), Some(short)) => short.clone_into(&mut nodes[place as usize]),
            (Verdict::New, Some(_), Some(short)) => nodes.push(short.to_owned()),
            (Verdict::New, None, Some(short)) => {
                let (name, interface) = (&router.name, quoted(interface));
                let _ = writeln!(
                    lines,
                    "# In the file of {name}'s agent, with its rate; then {} behind `ports` of {name} here:\n\
                     # [[ports]]\n# interface = {interface}\n# rate = \"1gbit\"",
                    quoted(short)
                );
            }
            _ => {}
        }
        let at = node.filter(|_| verdict == Verdict::Agrees).map(String::as_str).or(seen.short());
        prefixes(deployment, router, interface, seen, at, (told, &mut lines));
        links(deployment, router, seen, at, &mut lines);
    }
    if nodes != router.ports {
        let ports: Vec<String> = nodes.iter().map(|node| quoted(node)).collect();
        let (name, ports) = (quoted(&router.name), ports.join(", "));
        let _ = writeln!(
            told.toml,
            "# Instead of the present one:\n[[routers]]\nname = {name}\nports = [{ports}]\n"
        );
    }
    if !lines.is_empty() {
        let _ = writeln!(told.toml, "{}\n", lines.trim_end());
    }
}

/// Prefixes that leave by an interface, where `at` is: a file that has another at the same router's port is wrong.
fn prefixes(
    deployment: &Deployment,
    router: &Router,
    interface: &str,
    seen: &Seen<'_>,
    at: Option<&str>,
    (told, lines): (&mut Discovery, &mut String),
) {
    // Who keeps no networks wants none.
    if deployment.networks.is_empty() {
        return;
    }
    let mut new = Vec::new();
    for text in &seen.prefixes {
        let Ok(prefix) = Prefix::parse(text) else { continue };
        let file = deployment.networks.iter().find(|(known, _)| *known == prefix).map(|(_, node)| node);
        let verdict = match file {
            None => Verdict::New,
            Some(node) if at.is_some_and(|at| is(node, at)) => Verdict::Agrees,
            // Further on, behind who is there, say.
            Some(node) if !router.ports.contains(node) => continue,
            Some(_) => Verdict::Differs,
        };
        if verdict == Verdict::New {
            new.push(quoted(text));
        }
        told.findings.push(Finding {
            router: router.name.clone(),
            interface: Some(interface.to_owned()),
            prefix: Some((*text).to_owned()),
            file: file.cloned(),
            seen: at.into_iter().map(str::to_owned).collect(),
            verdict,
        });
    }
    if let Some(at) = at.filter(|_| !new.is_empty()) {
        let _ = writeln!(lines, "[[networks]]\nat = {}\nprefixes = [{}]", quoted(at), new.join(", "));
    }
}

/// A file that has links lacks one.
fn links(deployment: &Deployment, router: &Router, seen: &Seen<'_>, at: Option<&str>, lines: &mut String) {
    let (Some(at), Some(rate)) = (at, seen.rate) else { return };
    let joins = |link: &Link| {
        let [one, other] = &link.ends;
        (*one == router.name && is(other, at)) || (*other == router.name && is(one, at))
    };
    if deployment.links.is_empty() || deployment.links.iter().any(joins) {
        return;
    }
    let (router, at, rate) = (quoted(&router.name), quoted(at), Rate::from_bits_per_sec(rate));
    let _ = writeln!(lines, "[[links]]\nends = [{router}, {at}]\nrate = \"{rate}\"");
}

impl fmt::Display for Discovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = ["router", "interface", "prefix", "file", "seen", ""].map(str::to_owned);
        let row = |of: &Finding| {
            let or_none = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
            let seen = if of.seen.is_empty() { "-".to_owned() } else { of.seen.join(", ") };
            let prefix = of.prefix.clone().unwrap_or_default();
            [
                of.router.clone(),
                or_none(&of.interface),
                prefix,
                or_none(&of.file),
                seen,
                of.verdict.to_string(),
            ]
        };
        let head = Some(head).filter(|_| !self.findings.is_empty());
        let rows: Vec<[String; 6]> = head.into_iter().chain(self.findings.iter().map(row)).collect();
        let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
        let widths: [usize; 6] = std::array::from_fn(width);
        for row in &rows {
            let line: Vec<String> =
                row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
            writeln!(f, "{}", line.join("  ").trim_end())?;
        }
        for (at, remark) in self.remarks.iter().enumerate() {
            let gap = if at == 0 && rows.is_empty() { "" } else { "\n" };
            writeln!(f, "{gap}{remark}")?;
        }
        match self.toml.is_empty() {
            true => Ok(()),
            false => write!(f, "\n{}", daemon::printable(&self.toml)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(interface: &str, what: What) -> Row {
        Row { interface: interface.to_owned(), what }
    }

    fn neighbour(interface: &str, name: &str) -> Row {
        at(interface, What::Neighbour { name: name.to_owned(), port: "eth0".to_owned() })
    }

    fn deployment(rest: &str) -> Deployment {
        #[derive(Debug)]
        struct Nothing;
        impl bandmaster_core::file::Files for Nothing {
            fn read(&self, _: &str) -> Result<String, String> {
                Err("no such file".to_owned())
            }
        }
        let text = format!(
            "version = 1\nscheme = \"opentcp\"\nhosts-file = \"h\"\n[role]\npolicies = [\"few-flows\"]\n{rest}"
        );
        bandmaster_core::controller::parse("c.toml", &text, &Nothing).unwrap_or_else(|e| panic!("{e}"))
    }

    #[test]
    fn without_routers_it_says_what_to_do() {
        let told = compare(&deployment(""), Vec::new()).to_string();
        assert!(
            told.starts_with("the file has no [[routers]]") && told.contains("`neighbours = true`"),
            "{told}"
        );
    }

    #[test]
    fn links_and_prefixes_are_held_against_the_file() {
        let file = deployment(
            "[[routers]]\nname = \"tor\"\nports = [\"web-1\", \"web-2\", \"core-2\", \"web-3\", \"gone\"]\n\
             [[routers]]\nname = \"mute\"\nports = [\"web-1\"]\n\
             [[links]]\nends = [\"web-1\", \"tor\"]\nrate = \"1gbit\"\n\
             [[networks]]\nat = \"web-1\"\nprefixes = [\"10.0.2.0/24\"]\n\
             [[networks]]\nat = \"far\"\nprefixes = [\"10.9.0.0/16\"]\n",
        );
        let names = ["e0", "e1", "e2", "e3"];
        let port = |(place, name): (u32, &&str)| at(name, What::Port { place, rate: 1_000_000_000 });
        let mut rows: Vec<Row> = (0..).zip(&names).map(port).collect();
        let route = |interface: &str, prefix: &str| at(interface, What::Route { prefix: prefix.to_owned() });
        rows.extend([
            neighbour("e0", "web-1.example.net"),
            neighbour("e1", "web-9"),
            neighbour("e2", "core"),
            neighbour("e9", "spare\"\\"),
            route("e1", "10.0.2.0/24"),
            route("e2", "0.0.0.0/0"),
            route("e2", "10.9.0.0/16"),
            at("", What::Unknown { why: "lldpctl: of a test".to_owned() }),
        ]);
        let told = compare(&file, vec![Some((1.0, rows)), None]);
        let of = |finding: &Finding| {
            let text = |text: &Option<String>| text.clone().unwrap_or("-".to_owned());
            format!(
                "{} {} {} {}",
                text(&finding.interface),
                text(&finding.prefix),
                text(&finding.file),
                finding.verdict
            )
        };
        let all: Vec<String> = told.findings.iter().map(of).collect();
        assert_eq!(
            all,
            [
                "- - gone not seen",
                "e0 - web-1 agrees",
                "e1 - web-2 differs",
                "e1 10.0.2.0/24 web-1 differs",
                "e2 - core-2 agrees",
                "e2 0.0.0.0/0 - new",
                "e3 - web-3 not seen",
                "e9 - - new",
            ]
        );
        assert_eq!(
            told.remarks,
            [
                "tor: lldpctl: of a test",
                "mute: no report yet; a router reports every 20 s, with `neighbours = true` in its agent's file"
            ]
        );
        let expected = [
            "ports = [\"web-1\", \"web-9\", \"core-2\", \"web-3\", \"gone\"]",
            "[[networks]]\nat = \"core-2\"\nprefixes = [\"0.0.0.0/0\"]",
            "[[links]]\nends = [\"tor\", \"web-9\"]\nrate = \"1gbit\"",
            "# interface = \"e9\"",
            "then \"spare\\\"\\\\\" behind `ports`",
        ];
        for part in expected {
            assert!(told.toml.contains(part), "{part}: {}", told.toml);
        }
        // What is to be copied is read as it is meant.
        let copied = told.toml.replace("name = \"tor\"", "name = \"tor-2\"");
        let more = copied.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n");
        let routers = deployment(&more).routers;
        assert_eq!(routers[0].ports[1], "web-9");
        let silent = compare(&file, vec![Some((301.0, Vec::new())), Some((1.0, Vec::new()))]);
        assert_eq!(silent.remarks, ["tor: no report for 301 s"]);
        let shown = told.to_string();
        assert!(shown.contains("tor     e1         10.0.2.0/24  web-1   web-9"), "{shown}");
    }

    #[test]
    fn a_look_counts_when_all_of_it_has_come() {
        let at_second = |seconds| Time::ZERO + Span::from_secs(seconds);
        let rows: Vec<Row> = (0..300).map(|n| neighbour(&format!("e{n}"), "somebody")).collect();
        let parts = neighbours::parts(1, rows.clone());
        assert!(parts.len() > 2);
        let mut looks = Looks::default();
        assert!(!looks.take(at_second(1), 7, b"nonsense"));
        for part in parts[1..].iter().rev() {
            assert!(looks.take(at_second(1), 7, part) && looks.whole.is_empty());
        }
        // Of another look: what was there of the last is dropped.
        assert!(
            looks.take(at_second(2), 7, &neighbours::parts(2, rows.clone())[0]) && looks.whole.is_empty()
        );
        for part in &neighbours::parts(2, rows.clone())[1..] {
            looks.take(at_second(2), 7, part);
        }
        assert_eq!(looks.whole[&7].0, Look { at: at_second(2).as_nanos(), rows });
    }
}
