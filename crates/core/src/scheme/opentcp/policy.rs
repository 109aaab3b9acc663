//! Congestion control policies, and what they decide on a state of the network.

use core::fmt;

use super::condition::{Condition, Term, Use, Values};
use super::statistic::{Source, State, Statistic};
use crate::params::choice;
use crate::time::Span;
use crate::tuning::{Tuning, Variant};

/// Least number of round-trip times in a cycle: two time scales.
pub const LEAST_ROUND_TRIPS: u64 = 100;
/// Rules of a policy at most.
pub const MOST_RULES: usize = 64;

/// A congestion control policy of an operator.
#[derive(Clone, PartialEq, Debug)]
pub struct Policy {
    /// Name.
    pub name: String,
    /// What it is for, for people.
    pub goal: String,
    /// T: interval between decisions.
    pub cycle: Span,
    /// How long a CUE is in force unless it is renewed.
    pub lease: Span,
    /// Longest round-trip time of the network, where the operator states it.
    pub rtt: Option<Span>,
    /// What is collected.
    pub statistics: Vec<&'static Statistic>,
    /// All must hold for any rule to fire.
    pub constraints: Vec<Condition>,
    /// What agents check by themselves, all the time that a CUE is in force.
    pub preconditions: Vec<Condition>,
    /// Hosts that it is for: names, or beginnings of names with `*` behind.
    pub hosts: Vec<String>,
    /// Which of these.
    pub half: Half,
    /// What happens when no rule fires.
    pub otherwise: Otherwise,
    /// What hosts use without a CUE, where the operator states it.
    pub own_variant: Option<Variant>,
    /// Checks that the operator overrules.
    pub forced: Vec<Check>,
    /// The first that fires is applied.
    pub rules: Vec<Rule>,
}

/// A rule of a policy.
#[derive(Clone, PartialEq, Debug)]
pub struct Rule {
    /// Name.
    pub name: String,
    /// When it fires.
    pub when: Condition,
    /// What it sets.
    pub tuning: Tuning,
}

choice! {
    /// Which of the hosts.
    pub enum Half {
        /// All.
        All = "all",
        /// The first, third, ... in the order of the network.
        Odd = "odd",
        /// The second, fourth, ...
        Even = "even",
    }

    /// What the Oracle does when no rule fires.
    pub enum Otherwise {
        /// It sends nothing, and the lease ends.
        Silence = "silence",
        /// It sends a CUE that ends the lease at once.
        Release = "release",
    }

    /// A check that an operator may overrule.
    pub enum Check {
        /// A cycle is at least [`LEAST_ROUND_TRIPS`] round-trip times.
        Timescale = "timescale",
        /// All variants have the same measure of congestion.
        Variants = "variants",
    }
}

/// Which rule fired, and why.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct Explanation {
    /// The policy.
    pub policy: String,
    /// The rule that fired; none: no rule.
    pub fired: Option<String>,
    /// What it sets.
    pub tuning: Tuning,
    /// Every constraint, then every rule up to the one that fired.
    pub steps: Vec<Step>,
}

/// A condition on the way to a decision.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct Step {
    /// `constraint`, or the name of the rule.
    pub of: String,
    /// The condition as written.
    pub condition: String,
    /// Whether it holds; a condition that cannot be decided does not.
    pub holds: bool,
    /// Why it cannot be decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unknown: Option<String>,
    /// The values that it compares.
    pub terms: Vec<Term>,
}

impl fmt::Display for Explanation {
    /// In a line: the rule that fires, and each condition with the values that it compares.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.fired {
            Some(rule) => write!(f, "`{}`: rule `{rule}` fires", self.policy)?,
            None => write!(f, "`{}`: no rule fires", self.policy)?,
        }
        for Step { of, condition, holds, unknown, terms } in &self.steps {
            let holds = if *holds { "holds" } else { "does not hold" };
            write!(f, "; {of}: {condition} {holds}")?;
            let shown = |term: &Term| match term.value {
                Some(value) => format!("{} = {value}", term.text),
                None => format!("{} has no data", term.text),
            };
            let because: Vec<String> = unknown.iter().cloned().chain(terms.iter().map(shown)).collect();
            if !because.is_empty() {
                write!(f, " ({})", because.join(", "))?;
            }
        }
        Ok(())
    }
}

impl Policy {
    /// True when `name`, at place `position` from 0 of the hosts, is one of its hosts.
    pub fn is_for(&self, name: &str, position: usize) -> bool {
        let fits = |pattern: &String| match pattern.strip_suffix('*') {
            Some(beginning) => name.starts_with(beginning),
            None => name == pattern,
        };
        let half = match self.half {
            Half::All => true,
            Half::Odd => position.is_multiple_of(2),
            Half::Even => !position.is_multiple_of(2),
        };
        half && self.hosts.iter().any(fits)
    }

    /// True when something has to measure for it.
    pub fn collects(&self, source: Source) -> bool {
        self.statistics.iter().any(|statistic| statistic.source == source)
    }

    /// How its conditions use a statistic.
    pub fn use_of(&self, statistic: &Statistic) -> Use {
        let conditions = self.constraints.iter().chain(self.rules.iter().map(|rule| &rule.when));
        conditions.map(|condition| condition.use_of(statistic)).max().unwrap_or(Use::No)
    }

    /// Variants that hosts use under it.
    pub fn variants(&self) -> impl Iterator<Item = Variant> {
        self.rules.iter().filter_map(|rule| rule.tuning.variant).chain(self.own_variant)
    }

    /// The rule that fires.
    pub fn decide(&self, values: &Values) -> Option<&Rule> {
        let holds = |condition: &Condition| condition.holds(values) == Ok(true);
        if !self.constraints.iter().all(holds) {
            return None;
        }
        self.rules.iter().find(|rule| holds(&rule.when))
    }

    /// As [`Self::decide`], step by step.
    pub fn explain(&self, state: &State) -> Explanation {
        let values = Values::of_network(state);
        let step = |of: &str, condition: &Condition| {
            let holds = condition.holds(&values);
            Step {
                of: of.to_owned(),
                condition: condition.text().to_owned(),
                holds: holds == Ok(true),
                unknown: holds.err(),
                terms: condition.terms(&values),
            }
        };
        let mut steps: Vec<Step> = self.constraints.iter().map(|c| step("constraint", c)).collect();
        let fired = self.decide(&values);
        if steps.iter().all(|step| step.holds) {
            for rule in &self.rules {
                steps.push(step(&rule.name, &rule.when));
                if fired.is_some_and(|fired| fired.name == rule.name) {
                    break;
                }
            }
        }
        Explanation {
            policy: self.name.clone(),
            fired: fired.map(|rule| rule.name.clone()),
            tuning: fired.map(|rule| rule.tuning).unwrap_or_default(),
            steps,
        }
    }
}

/// What is wrong with these policies together: (position of a policy, what).
///
/// # Errors
/// Cycles that differ, and variants that are not compatible unless all policies force that.
pub fn check_together(policies: &[Policy]) -> Result<(), String> {
    let Some(first) = policies.first() else { return Err("is empty".to_owned()) };
    for policy in policies {
        if policy.cycle != first.cycle {
            return Err(format!(
                "`{}` has a cycle of {} and `{}` one of {}; one Oracle has one cycle",
                first.name, first.cycle, policy.name, policy.cycle
            ));
        }
        if policies.iter().filter(|other| other.name == policy.name).count() > 1 {
            return Err(format!("two policies are called `{}`", policy.name));
        }
    }
    if policies.iter().all(|policy| policy.forced.contains(&Check::Variants)) {
        return Ok(());
    }
    incompatible(policies.iter().flat_map(Policy::variants)).map_or(Ok(()), |(a, b)| {
        Err(format!(
            "`{}` and `{}` have no compatible measures of congestion; force = [\"variants\"] in every policy \
             overrules this",
            a.name(),
            b.name()
        ))
    })
}

/// Two of `variants` with different measures of congestion.
pub fn incompatible(variants: impl Iterator<Item = Variant>) -> Option<(Variant, Variant)> {
    let variants: Vec<Variant> = variants.collect();
    let first = *variants.first()?;
    let other = variants.iter().find(|other| other.measure() != first.measure())?;
    Some((first, *other))
}

/// What is wrong with a cycle of `cycle` in a network whose longest round-trip time is `rtt`.
pub fn too_fast(cycle: Span, rtt: Span) -> Option<String> {
    let least = rtt * LEAST_ROUND_TRIPS;
    (cycle < least).then(|| {
        format!(
            "{cycle} is shorter than {LEAST_ROUND_TRIPS} round-trip times of {rtt}: flows would not settle between \
             changes; write at least {least}, or force = [\"timescale\"]"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::super::statistic::{HostState, LinkState};
    use super::super::{NamedText, policies};
    use super::*;

    fn shipped(name: &str) -> Policy {
        let file = NamedText { name: name.to_owned(), text: None };
        policies(&[file]).unwrap_or_else(|e| panic!("{e}")).remove(0)
    }

    fn state(utilization: f64, live: f64) -> State {
        let link = LinkState { name: "a->b".to_owned(), utilization, ..LinkState::default() };
        let host = HostState { name: "a".to_owned(), live, ..HostState::default() };
        State { coverage: 1.0, links: vec![link], hosts: vec![host], ..State::default() }
    }

    #[test]
    fn what_ships_decides_as_the_paper_says() {
        for (name, state, rule) in [
            ("opentcp1", state(0.69, 5.0), Some("aggressive")),
            ("opentcp1", state(0.71, 5.0), None),
            ("opentcp2", state(0.69, 5.0), Some("aggressive")),
            ("example1", state(0.49, 5.0), Some("quiet")),
            ("example1", state(0.51, 5.0), None),
            ("example2", state(0.9, 999.0), Some("few-flows")),
            ("example2", state(0.9, 1000.0), None),
            ("variant", state(0.9, 5.0), Some("many-flows")),
            ("variant", state(0.2, 4.0), Some("long-fat")),
            ("variant", state(0.2, 10.0), None),
            ("opentcp1", State::default(), None),
        ] {
            let policy = shipped(name);
            let fired = policy.decide(&Values::of_network(&state)).map(|rule| rule.name.as_str());
            assert_eq!(fired, rule, "{name} on {state:?}");
            assert_eq!(policy.explain(&state).fired.as_deref(), rule);
        }
    }

    #[test]
    fn explanations_show_the_values_and_stop_where_the_decision_falls() {
        let explained = shipped("variant").explain(&state(0.2, 4.0));
        let steps: Vec<(&str, bool)> = explained.steps.iter().map(|s| (s.of.as_str(), s.holds)).collect();
        assert_eq!(steps, [("many-flows", false), ("long-fat", true)]);
        assert_eq!(explained.steps[0].terms[0].text, "mean(flows.live)");
        assert_eq!(explained.steps[0].terms[0].value, Some(4.0));
        let nothing = shipped("opentcp1").explain(&State::default());
        assert_eq!(nothing.steps[0].unknown.as_deref(), Some("there are no data for link"));
        assert_eq!(nothing.steps.len(), 1, "no rule is looked at when a constraint fails");
    }

    #[test]
    fn halves_are_all_hosts_and_have_none_in_common() {
        let (a, b) = (shipped("half-a"), shipped("half-b"));
        for position in 0..9 {
            assert!(a.is_for("host", position) != b.is_for("host", position));
        }
        let some = Policy { hosts: vec!["rack1.*".to_owned(), "login".to_owned()], ..shipped("opentcp1") };
        assert!(some.is_for("rack1.41", 0) && some.is_for("login", 1) && !some.is_for("rack12.1", 2));
    }

    #[test]
    fn what_does_not_go_together_is_refused() {
        let named = |names: &[&str]| {
            let files: Vec<_> =
                names.iter().map(|name| NamedText { name: (*name).to_owned(), text: None }).collect();
            policies(&files).err().unwrap_or_default()
        };
        assert!(named(&["variant", "opentcp1"]).contains("`dctcp` and `cubic` have no compatible"));
        assert!(named(&["opentcp1", "opentcp1"]).contains("two policies are called `opentcp1`"));
        assert!(named(&["opentcp3"]).contains("no policy `opentcp3` ships; did you mean `opentcp1`?"));
        assert!(named(&[]).contains("is empty"));
        assert_eq!(named(&["half-a", "half-b"]), "");
        assert!(too_fast(Span::from_millis(99), Span::from_millis(1)).is_some());
        assert!(too_fast(Span::from_millis(100), Span::from_millis(1)).is_none());
    }
}
