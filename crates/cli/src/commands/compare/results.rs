//! A result folder as `run`, `sweep`, `reproduce` or `emulate` left it, read again.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use bandmaster_core::report::difference::Sample;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use crate::exit::Failure;
use crate::records;
use crate::report::{FORMAT_VERSION, distinct};

/// What was studied, where and how, and every case's statistics.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Results {
    /// The folder as the command line names it.
    pub(crate) path: String,
    /// Why something may be missing; none: nothing is.
    pub(crate) incomplete: Option<String>,
    pub(super) studies: Vec<StudyRows>,
}

/// A study and its cases.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct StudyRows {
    pub(super) name: String,
    pub(super) origin: Origin,
    pub(super) cases: Vec<CaseRow>,
    variants: Vec<VariantRow>,
}

/// A variant, as far as it is compared.
#[derive(Clone, PartialEq, Debug, Deserialize)]
struct VariantRow {
    name: String,
    #[serde(default)]
    paper: Vec<PaperRow>,
}

#[derive(Clone, PartialEq, Debug, Deserialize)]
struct PaperRow {
    #[serde(alias = "figure")]
    metric: String,
    value: f64,
}

/// Where results come from.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub(super) struct Origin {
    pub(super) world: String,
    pub(super) version: String,
    pub(super) digest: String,
    pub(super) seed: u64,
}

/// Statistics of a case, and what it was.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct CaseRow {
    pub(super) statistics: Statistics,
    /// The complete scenario.
    pub(super) scenario: Value,
}

/// A row of `summary.json`, as far as it is compared.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub(super) struct Statistics {
    study: String,
    pub(super) variant: String,
    #[serde(deserialize_with = "pairs")]
    pub(super) points: Vec<(String, String)>,
    pub(super) base: bool,
    pub(super) trials: u32,
    #[serde(alias = "figures", deserialize_with = "pairs")]
    pub(super) metrics: Vec<(String, Sample)>,
}

#[derive(Deserialize)]
struct SummaryFile {
    complete: bool,
    trials: Trials,
    rows: Vec<Statistics>,
}

#[derive(Deserialize)]
struct Trials {
    finished: u64,
    planned: u64,
}

#[derive(Deserialize)]
struct ManifestFile {
    studies: Vec<ManifestStudy>,
}

#[derive(Deserialize)]
struct ManifestStudy {
    name: String,
    provenance: Origin,
    variants: Vec<VariantRow>,
    topologies: Vec<Value>,
    cases: Vec<ManifestCase>,
}

#[derive(Deserialize)]
struct ManifestCase {
    scenario: Value,
}

impl Results {
    /// Reads the folder `path`.
    pub(crate) fn read(path: &Path) -> Result<Self, Failure> {
        let place = path.display();
        match fs::metadata(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Err(Failure::usage(format!("{place}: no such folder")));
            }
            Err(error) => return Err(Failure::usage(format!("{place}: cannot be read: {error}"))),
            Ok(meta) if !meta.is_dir() => {
                return Err(Failure::usage(format!(
                    "{place}: is a file; give the folder that holds summary.json and manifest.json"
                )));
            }
            Ok(_) => {}
        }
        let summary: SummaryFile = file(path, "summary.json")?;
        let manifest: ManifestFile = file(path, "manifest.json")?;
        let Trials { finished, planned } = summary.trials;
        let incomplete = if !summary.complete {
            Some(format!("{finished} of {planned} trials finished"))
        } else if path.join("INCOMPLETE").exists() {
            Some("it is marked INCOMPLETE".to_owned())
        } else {
            None
        };
        let mut rows = summary.rows;
        let mut studies = Vec::new();
        for study in manifest.studies {
            let (own, others): (Vec<_>, Vec<_>) = rows.into_iter().partition(|row| row.study == study.name);
            rows = others;
            if own.len() != study.cases.len() {
                return Err(Failure::usage(format!(
                    "{place}: summary.json has {} cases of the study {}, manifest.json {}: the files are not of one run",
                    own.len(),
                    study.name,
                    study.cases.len()
                )));
            }
            let cases = own.into_iter().zip(study.cases).map(|(statistics, case)| CaseRow {
                statistics,
                scenario: with_topology(case.scenario, &study.topologies),
            });
            studies.push(StudyRows {
                name: study.name,
                origin: study.provenance,
                cases: cases.collect(),
                variants: study.variants,
            });
        }
        if studies.iter().all(|study| study.cases.is_empty()) {
            return Err(Failure::usage(format!("{place}: holds no case")));
        }
        Ok(Self { path: place.to_string(), incomplete, studies })
    }

    /// Names of all metrics, each once.
    pub(super) fn metrics(&self) -> Vec<&str> {
        let cases = self.studies.iter().flat_map(|study| &study.cases);
        distinct(cases.flat_map(|case| &case.statistics.metrics).map(|(name, _)| name.as_str()))
    }
}

impl StudyRows {
    /// What the paper reports of a metric of the case; of base cases only.
    pub(super) fn paper(&self, case: &Statistics, metric: &str) -> Option<f64> {
        let variant = self.variants.iter().find(|variant| case.base && variant.name == case.variant)?;
        variant.paper.iter().find(|row| row.metric == metric).map(|row| row.value)
    }
}

impl Statistics {
    /// Statistics of a metric.
    pub(super) fn metric(&self, name: &str) -> Option<Sample> {
        self.metrics.iter().find(|(n, _)| n == name).map(|(_, sample)| *sample)
    }

    /// The variant, and the points where it is not the base.
    pub(super) fn name(&self) -> String {
        let points = self.points.iter().filter(|_| !self.base);
        let points = points.map(|(sweep, value)| format!(", {sweep} = {value}"));
        self.variant.clone() + &points.collect::<String>()
    }
}

/// Reads one of the folder's files, of the format version that this program writes or of the one before, which used `figure` for
/// `metric`.
fn file<T: DeserializeOwned>(folder: &Path, name: &str) -> Result<T, Failure> {
    let path = folder.join(name);
    let place = path.display();
    let bytes = fs::read(&path).map_err(|error| match error.kind() {
        ErrorKind::NotFound if records::are_in(folder) => Failure::usage(format!(
            "{}: is marked INCOMPLETE and has no {name}: `bandmaster resume {}` goes on with the run",
            folder.display(),
            folder.display()
        )),
        ErrorKind::NotFound if folder.join("INCOMPLETE").exists() => Failure::usage(format!(
            "{}: is marked INCOMPLETE and has no {name}: the run has not ended, or was killed",
            folder.display()
        )),
        ErrorKind::NotFound => Failure::usage(format!(
            "{}: is no result folder: it has no {name} (`bandmaster run --out DIR` makes one)",
            folder.display()
        )),
        _ => Failure::usage(format!("{place}: cannot be read: {error}")),
    })?;
    let no_result = |error: &dyn core::fmt::Display| {
        Failure::usage(format!("{place}: is not a result of bandmaster: {error}"))
    };
    let value: Value = serde_json::from_slice(&bytes).map_err(|error| no_result(&error))?;
    match value["version"].as_u64() {
        Some(version) if (1..=u64::from(FORMAT_VERSION)).contains(&version) => {}
        Some(version) => {
            return Err(Failure::usage(format!(
                "{place}: has format version {version}; this program reads versions 1 to {FORMAT_VERSION}"
            )));
        }
        None => return Err(no_result(&"it has no `version`")),
    }
    T::deserialize(value).map_err(|error| no_result(&error))
}

/// Cases name their network by its position.
fn with_topology(mut scenario: Value, topologies: &[Value]) -> Value {
    let position = scenario["topology"].as_u64().and_then(|position| usize::try_from(position).ok());
    if let Some(topology) = position.and_then(|position| topologies.get(position)) {
        scenario["topology"] = topology.clone();
    }
    scenario
}

/// A map in the order of the file.
fn pairs<'de, D: Deserializer<'de>, T: DeserializeOwned>(from: D) -> Result<Vec<(String, T)>, D::Error> {
    let map = Map::<String, Value>::deserialize(from)?;
    let pair = |(name, value)| {
        let typed = T::deserialize(value).map_err(|error| D::Error::custom(format!("{name}: {error}")))?;
        Ok((name, typed))
    };
    map.into_iter().map(pair).collect()
}
