//! Scenario files: what was written, with its places, becomes a [`Study`] that is valid and complete.
//!
//! A file describes one base scenario, variants of it to compare, sweeps over keys, claims and figures.
//! [`parse`] gives the scenarios to run as [`Study::cases`]; [`explain`] says where each value came from.

mod arrivals;
mod choices;
mod claims;
mod exchange;
mod figures;
mod include;
mod keys;
mod listed;
mod matrix;
mod model;
mod network;
mod outages;
mod permutation;
mod queue;
mod reach;
mod schema;
mod sources;
mod study;
mod tcp_settings;
mod traffic;
mod whole;

pub use choices::{
    CdfOf, CubicRules, FlightSize, FlowRows, HyStartRules, LossDetection, MarkReduction, Pairing,
    ReceiveWindow, RecordDetail, Recovery, RtoFloor, RttSamples, Scheduler,
};
pub use include::{PRESETS, Preset};
pub use listed::FlowList;
pub(crate) use listed::Listed;
pub use model::*;
pub use tcp_settings::TcpSettings;

pub use crate::file::{Error, Errors, Explained, Files};
use crate::scheme::{self, SchemeDef};

/// What the command line changes in a file, and where further files are.
#[derive(Clone, Debug)]
pub struct Options<'a> {
    /// Schemes that the file may name.
    pub schemes: &'a [&'static SchemeDef],
    /// Congestion controls that the file may name in addition to the built-in ones: their names in files and in the settings.
    pub controls: &'a [(&'static str, &'static str)],
    /// `--set key=value`: values that go over the file's and its variants', but not over a sweep of the same key.
    pub overrides: Vec<Override>,
    /// `--key key=v1,v2`: sweeps in addition to the file's, named after their key.
    pub extra_sweeps: Vec<ExtraSweep>,
    /// `--grid`: they are one sweep, `grid`, of all combinations of their values.
    pub grid: bool,
    /// Independent repetitions.
    pub trials: Option<u32>,
    /// Seed of every random stream; at most `i64::MAX`, as in a file.
    pub seed: Option<u64>,
    /// Take the `quick` values of sweeps, and `run.quick-trials` unless `trials` is given.
    pub quick: bool,
    /// Files that the scenario names; none: it may not name any.
    pub files: Option<&'a dyn Files>,
}

impl Options<'_> {
    /// Names of the sweeps of the command line.
    pub fn names_of_extra_sweeps(&self) -> Vec<&str> {
        if self.grid {
            vec![study::GRID]
        } else {
            self.extra_sweeps.iter().map(|sweep| sweep.key.as_str()).collect()
        }
    }
}

impl Default for Options<'_> {
    fn default() -> Self {
        Self {
            schemes: scheme::REGISTRY,
            controls: &[],
            overrides: Vec::new(),
            extra_sweeps: Vec::new(),
            grid: false,
            trials: None,
            seed: None,
            quick: false,
            files: None,
        }
    }
}

/// A key and its value from the command line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Override {
    /// Dotted path; elements of lists by name or position (`flows.uploads.count`, `network.links.0.rate`).
    pub key: String,
    /// TOML, or a bare text such as `5mbit`.
    pub value: String,
}

/// A key and the values it takes one after the other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExtraSweep {
    /// Dotted path as in [`Override::key`].
    pub key: String,
    /// Values as in [`Override::value`].
    pub values: Vec<String>,
}

/// Reads a scenario file. `file` is its name in messages.
///
/// # Errors
/// Everything that is wrong with the text, each with its place.
pub fn parse(file: &str, text: &str, options: &Options<'_>) -> Result<Study, Errors> {
    study::read(file, text, options, false).map(|(study, _)| study)
}

/// Every key of the first variant's base scenario, in the order of reading, with its value and where that came from.
///
/// # Errors
/// As [`parse`].
pub fn explain(file: &str, text: &str, options: &Options<'_>) -> Result<Vec<Explained>, Errors> {
    study::read(file, text, options, true).map(|(_, explained)| explained)
}

/// JSON Schema (draft 2020-12) of scenario files that may name these schemes.
pub fn json_schema(schemes: &[&SchemeDef]) -> serde_json::Value {
    schema::with_includes(whole_schema(schemes))
}

/// The same of files that include no other.
pub fn whole_schema(schemes: &[&SchemeDef]) -> serde_json::Value {
    schema::build(schemes)
}

impl core::str::FromStr for Override {
    type Err = String;

    /// Reads `key=value`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (key, value) = split_assignment(text)?;
        Ok(Self { key: key.to_owned(), value: value.to_owned() })
    }
}

impl core::str::FromStr for ExtraSweep {
    type Err = String;

    /// Reads `key=v1,v2`; a comma inside quotes or brackets belongs to the value.
    fn from_str(text: &str) -> Result<Self, String> {
        let (key, list) = split_assignment(text)?;
        let mut values = vec![String::new()];
        let (mut depth, mut quoted) = (0_u32, false);
        for c in list.chars() {
            match c {
                '"' => quoted = !quoted,
                '(' | '[' | '{' if !quoted => depth += 1,
                ')' | ']' | '}' if !quoted => depth = depth.saturating_sub(1),
                _ => {}
            }
            match values.last_mut() {
                Some(value) if c != ',' || quoted || depth > 0 => value.push(c),
                _ => values.push(String::new()),
            }
        }
        for value in &mut values {
            *value = value.trim().to_owned();
        }
        match values.iter().any(String::is_empty) {
            true => Err(format!("`{text}` has an empty value")),
            false => Ok(Self { key: key.to_owned(), values }),
        }
    }
}

fn split_assignment(text: &str) -> Result<(&str, &str), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() && !value.trim().is_empty() => {
            Ok((key.trim(), value.trim()))
        }
        _ => Err(format!("`{text}` is not of the form key=value")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sweeps_of_the_command_line_split_at_outer_commas() {
        let sweep: ExtraSweep = "network.link.delay=1ms, uniform(2ms, 6ms)".parse().expect("a sweep");
        assert_eq!(sweep.values, ["1ms", "uniform(2ms, 6ms)"]);
        assert!("a=1,,2".parse::<ExtraSweep>().is_err());
        assert!("=3".parse::<Override>().is_err());
        let set: Override = "flows.up.from=[\"a\"]".parse().expect("an override");
        assert_eq!((set.key.as_str(), set.value.as_str()), ("flows.up.from", "[\"a\"]"));
    }
}
