//! Policy files: how an operator wants TCP to be tuned. The same reader, quantities and errors as scenario files.

use super::condition::{Condition, Scope};
use super::policy::{Check, Half, MOST_RULES, Otherwise, Policy, Rule, incompatible, too_fast};
use super::statistic::{STATISTICS, Statistic};
use super::wire::LONGEST_LEASE;
use crate::file::{self, Errors, Item, Layer, Reader, Section, Shape, TableDef, suggestion};
use crate::params::{Choice, Key, Kind, keys};
use crate::time::Span;
use crate::tuning::{Tuning, Variant};
use crate::units::Dimension;

const SPAN: Kind = Kind::Quantity(Dimension::Span);
/// A lease that is not given, in cycles: two CUEs may be lost.
const LEASE_CYCLES: u64 = 3;
/// Longest text of preconditions, all together: a CUE is one datagram.
const LONGEST_PRECONDITIONS: usize = 400;

static FILE: TableDef = TableDef {
    header: "the file",
    doc: "A congestion control policy",
    keys: &[keys! {
        /// Version of the format: 1
        "version": Kind::Integer { min: 1, max: 1 }, required;
        /// Name
        "name": Kind::Text, required;
        /// Purpose of the policy
        "goal": Kind::Text, required;
        /// T: interval between decisions
        "cycle": SPAN, required;
        /// How long a CUE is in force unless renewed; absent: three cycles
        "lease": SPAN, optional;
        /// Longest round-trip time of the network; a cycle is at least 100 of them
        "rtt": SPAN, optional;
        /// Statistics to collect; conditions can name only these
        "statistics": Kind::TextList, required;
        /// Conditions on the network that must hold for any rule
        "constraints": Kind::TextList, optional;
        /// Conditions on its own host that each agent checks itself; when one fails it restores the host's own
        /// settings at once
        "preconditions": Kind::TextList, optional;
        /// Hosts to which the policy applies: names, or prefixes followed by *
        "hosts": Kind::TextList, default "*";
        /// Every host, or every other one
        "half": Half::KIND, default "all";
        /// When no rule fires: no CUE, so that leases end, or a CUE that ends them at once
        "otherwise": Otherwise::KIND, default "silence", from "Sect. 3";
        /// What hosts use without a CUE
        "own-variant": Variant::KIND, optional;
        /// Checks that are overruled: timescale, variants
        "force": Kind::TextList, optional;
        /// Conditions and their settings; the first rule that fires applies
        "rules": Kind::Nested, required;
    }],
    selector: None,
    nested: &[("rules", Shape::Tables(&RULE))],
};

static RULE: TableDef = TableDef {
    header: "[[rules]]",
    doc: "What is set when",
    keys: &[keys! {
        /// Name
        "name": Kind::Text, required;
        /// Condition on the network
        "when": Kind::Text, default "true";
        /// The TCP settings of flows that begin
        "set": Kind::Nested, required;
    }],
    selector: None,
    nested: &[("set", Shape::Table(&SET))],
};

static SET: TableDef = TableDef {
    header: "[rules.set]",
    doc: "TCP settings of flows that begin; an absent one is the host's own",
    keys: &[keys! {
        /// Initial window in segments
        "initial-window": Kind::Integer { min: 1, max: 1000 }, optional;
        /// Least retransmission timeout
        "min-rto": SPAN, optional;
        /// Retransmission timeout before the first measurement, and of the SYN
        "initial-rto": SPAN, optional;
        /// Congestion control
        "variant": Variant::KIND, optional;
        /// Pace segments over the round-trip time
        "pacing": Kind::Bool, optional;
        /// Restart from the initial window after idle time
        "idle-restart": Kind::Bool, optional;
        /// Most segments in the window
        "window-cap": Kind::Integer { min: 1, max: 1_000_000 }, optional;
    }],
    selector: None,
    nested: &[],
};

/// Reads a policy file. `file` is its name in messages.
///
/// # Errors
/// Everything that is wrong with the text, each with its place.
pub fn parse(file: &str, text: &str) -> Result<Policy, Errors> {
    let root = file::read_file(file, text).map_err(Errors::new)?;
    let mut reader = Reader::new(file, None, ());
    let policy = read(&mut reader, &root);
    match policy {
        Some(policy) if reader.errors.is_empty() => Ok(policy),
        _ => Err(Errors::new(reader.errors)),
    }
}

fn read(reader: &mut Reader<'_>, root: &Item) -> Option<Policy> {
    let file = reader.section(&FILE, &Layer::new("", root));
    let name = reader.name(&file, "name");
    let statistics = statistics(reader, &file);
    let constraints = conditions(reader, &file, "constraints", Scope::Network, &statistics);
    let preconditions = conditions(reader, &file, "preconditions", Scope::Host, &statistics);
    if preconditions.iter().map(|condition| condition.text().len()).sum::<usize>() > LONGEST_PRECONDITIONS {
        let what = format!("are longer than {LONGEST_PRECONDITIONS} characters together");
        reader.fail_key(&file, "preconditions", what);
    }
    let mut forced = Vec::new();
    for word in file.list("force").unwrap_or_default() {
        match Check::WORDS.iter().find(|(known, _)| *known == word) {
            Some((_, check)) => forced.push(*check),
            None => {
                let known: Vec<&str> = Check::WORDS.iter().map(|(known, _)| *known).collect();
                let what = format!("\"{word}\" is no check; {}", suggestion(&word, &known));
                reader.fail_key(&file, "force", what);
            }
        }
    }
    let (cycle, rtt) = (file.span("cycle"), file.span("rtt"));
    if cycle.is_some_and(Span::is_zero) {
        reader.fail_key(&file, "cycle", "must be longer than 0s");
    }
    if let (Some(cycle), Some(rtt), false) = (cycle, rtt, forced.contains(&Check::Timescale))
        && let Some(why) = too_fast(cycle, rtt)
    {
        reader.fail_key(&file, "cycle", why);
    }
    let lease = file.span("lease").or_else(|| Some(cycle? * LEASE_CYCLES));
    if let (Some(lease), Some(cycle)) = (lease, cycle)
        && lease < cycle
    {
        let what =
            format!("{lease} is shorter than a cycle of {cycle}: every lease would end before it is renewed");
        reader.fail_key(&file, "lease", what);
    }
    if lease.is_some_and(|lease| lease > LONGEST_LEASE) {
        reader.fail_key(&file, "lease", "is longer than a week");
    }
    let rules = rules(reader, &file, &statistics);
    let own_variant = file.choice("own-variant");
    let variants = rules.iter().filter_map(|rule| rule.tuning.variant).chain(own_variant);
    if !forced.contains(&Check::Variants)
        && let Some((a, b)) = incompatible(variants)
    {
        let what = format!(
            "`{}` and `{}` have no compatible measures of congestion; write force = [\"variants\"] to overrule this",
            a.name(),
            b.name()
        );
        reader.fail_key(&file, "rules", what);
    }
    Some(Policy {
        name: name?,
        goal: file.text("goal")?,
        cycle: cycle?,
        lease: lease?,
        rtt,
        statistics,
        constraints,
        preconditions,
        hosts: file.list("hosts")?,
        half: file.choice("half")?,
        otherwise: file.choice("otherwise")?,
        own_variant,
        forced,
        rules,
    })
}

fn statistics(reader: &mut Reader<'_>, file: &Section<'_>) -> Vec<&'static Statistic> {
    let names: Vec<&str> = STATISTICS.iter().map(|statistic| statistic.name).collect();
    let mut found = Vec::new();
    for name in file.list("statistics").unwrap_or_default() {
        match Statistic::named(&name) {
            Some(statistic) => found.push(statistic),
            None => {
                let what = format!("\"{name}\" is no statistic; {}", suggestion(&name, &names));
                reader.fail_key(file, "statistics", what);
            }
        }
    }
    found
}

fn conditions(
    reader: &mut Reader<'_>,
    section: &Section<'_>,
    key: &'static str,
    scope: Scope,
    collected: &[&'static Statistic],
) -> Vec<Condition> {
    let mut conditions = Vec::new();
    for text in section.list(key).unwrap_or_default() {
        conditions.extend(condition(reader, section, key, &text, scope, collected));
    }
    conditions
}

fn condition(
    reader: &mut Reader<'_>,
    section: &Section<'_>,
    key: &'static str,
    text: &str,
    scope: Scope,
    collected: &[&'static Statistic],
) -> Option<Condition> {
    match Condition::compile(text, scope) {
        Ok(condition) => {
            let is_known = |name: &str| collected.iter().any(|statistic| statistic.name == name);
            let missing = condition.statistics().iter().find(|statistic| !is_known(statistic.name));
            if let Some(missing) = missing {
                let what =
                    format!("\"{text}\": `{}` is not among the statistics that are collected", missing.name);
                reader.fail_key(section, key, what);
            }
            Some(condition)
        }
        Err(fault) => {
            reader.fail_key(section, key, format!("\"{text}\": {fault}"));
            None
        }
    }
}

fn rules(reader: &mut Reader<'_>, file: &Section<'_>, collected: &[&'static Statistic]) -> Vec<Rule> {
    let layers = reader.tables(file, "rules");
    if file.item("rules").is_some() && (layers.is_empty() || layers.len() > MOST_RULES) {
        reader.fail_key(file, "rules", format!("are {}; write 1 to {MOST_RULES}", layers.len()));
    }
    let sections: Vec<Section<'_>> = layers.iter().map(|layer| reader.section(&RULE, layer)).collect();
    let names: Vec<_> = sections.iter().filter_map(|section| section.name_entry("name")).collect();
    reader.unique(&names);
    let mut rules = Vec::new();
    for section in &sections {
        let name = section.text("name");
        let text = section.text("when").unwrap_or_default();
        let when = condition(reader, section, "when", &text, Scope::Network, collected);
        if section.item("set").is_none() {
            continue;
        }
        let layer = reader.table(section, "set");
        let set = reader.section(&SET, &layer);
        let whole = |key| set.integer(key).and_then(|n| u32::try_from(n).ok());
        let tuning = Tuning {
            initial_window: whole("initial-window"),
            min_rto: set.span("min-rto"),
            initial_rto: set.span("initial-rto"),
            variant: set.choice("variant"),
            pacing: set.bool("pacing"),
            idle_restart: set.bool("idle-restart"),
            window_cap: whole("window-cap"),
        };
        if set.sound && tuning.is_default() {
            reader.fail(&set.place, &set.path, "sets nothing");
        }
        for (key, span) in [("min-rto", tuning.min_rto), ("initial-rto", tuning.initial_rto)] {
            if span.is_some_and(Span::is_zero) {
                reader.fail_key(&set, key, "must be longer than 0s");
            }
        }
        if let (Some(name), Some(when)) = (name, when) {
            rules.push(Rule { name, when, tuning });
        }
    }
    rules
}

/// The keys of policy files, table by table, for their documentation.
pub fn reference() -> Vec<(&'static str, Vec<&'static Key>)> {
    [&FILE, &RULE, &SET].into_iter().map(|def| (def.header, def.keys_for(None))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheme::opentcp::SHIPPED;

    const GOOD: &str = r#"
version = 1
name = "mine"
goal = "short flows"
cycle = "60s"
rtt = "1ms"
statistics = ["link.utilization", "host.drop_rate"]
constraints = ["max(link.utilization) < 0.7"]
preconditions = ["host.drop_rate <= 0.001"]

[[rules]]
name = "fast"
when = "mean(link.utilization) < 0.5"

[rules.set]
initial-window = 20
min-rto = "2ms"
"#;

    #[test]
    fn a_file_becomes_a_policy() {
        let policy = parse("p.toml", GOOD).expect("valid");
        assert_eq!(policy.lease, Span::from_secs(180));
        assert_eq!(policy.rules[0].tuning.min_rto, Some(Span::from_millis(2)));
        assert_eq!((policy.half, policy.otherwise), (Half::All, Otherwise::Silence));
        assert!(policy.is_for("rack1.7", 4));
    }

    #[test]
    fn what_ships_is_valid() {
        for (name, text) in SHIPPED {
            let policy = parse(&format!("{name}.toml"), text).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(policy.name, *name);
        }
    }

    /// One mistake each: what was written, what to write instead, and what the message must say, place included.
    #[test]
    fn mistakes_are_named_with_place_and_remedy() {
        let cases = [
            (
                "max(link.utilization) < 0.7",
                "max(link.utilisation) < 0.7",
                "p.toml:8:15: error: constraints: \"max(link.utilisation) < 0.7\": unknown statistic \
                 `link.utilisation`; did you mean `link.utilization`?",
            ),
            (
                "mean(link.utilization) < 0.5",
                "mean(link.utilization)",
                "p.toml:13:8: error: rules.fast.when: \"mean(link.utilization)\": is a number, not true or false",
            ),
            ("host.drop_rate <= 0.001", "link.drop_rate <= 0.001", "is not known to an agent"),
            ("host.drop_rate <= 0.001", "flows.live <= 5", "`flows.live` is not among the statistics"),
            ("\"host.drop_rate\"]", "\"host.droprate\"]", "did you mean `host.drop_rate`?"),
            ("cycle = \"60s\"", "cycle = \"60ms\"", "60ms is shorter than 100 round-trip times of 1ms"),
            ("cycle = \"60s\"", "cycle = \"60s\"\nlease = \"30s\"", "30s is shorter than a cycle of"),
            ("cycle = \"60s\"", "cycle = \"60s\"\nforce = [\"all\"]", "\"all\" is no check"),
            ("initial-window = 20\nmin-rto = \"2ms\"", "", "rules.fast.set: sets nothing"),
            ("min-rto = \"2ms\"", "min-rto = 2", "has no unit"),
            ("min-rto = \"2ms\"", "variant = \"vegas\"", "is not \"tahoe\", \"reno\""),
            ("initial-window = 20", "initial-windw = 20", "did you mean `initial-window`?"),
            (
                "min-rto = \"2ms\"",
                "variant = \"dctcp\"\n\n[[rules]]\nname = \"slow\"\nset = { variant = \"cubic\" }",
                "`dctcp` and `cubic` have no compatible measures of congestion",
            ),
            ("goal = \"short flows\"\n", "", "goal: is missing"),
        ];
        for (from, to, expected) in cases {
            assert!(GOOD.contains(from), "{from}");
            let errors = parse("p.toml", &GOOD.replacen(from, to, 1)).expect_err(to);
            let said: Vec<String> = errors.iter().map(ToString::to_string).collect();
            assert!(said.iter().any(|message| message.contains(expected)), "{to}: {said:#?}");
        }
    }

    #[test]
    fn an_operator_may_overrule_checks() {
        let fast = GOOD.replace("\"60s\"", "\"60ms\"").replace("rtt =", "force = [\"timescale\"]\nrtt =");
        assert_eq!(parse("p.toml", &fast).map(|policy| policy.cycle), Ok(Span::from_millis(60)));
    }
}
