//! What a run leaves for people and programs: tables on the terminal, and a folder with `report.html`,
//! `figures/*.svg`, `trials.parquet`, `flows.parquet`, `series.parquet`, `summary.json` and `manifest.json`.
//!
//! Nothing here looks at a clock or at the machine: the same results give the same bytes.

pub(crate) mod axis;
pub(crate) mod figure;
pub(crate) mod flows;
pub(crate) mod folder;
pub(crate) mod html;
pub(crate) mod manifest;
pub(crate) mod number;
pub(crate) mod parquet;
pub(crate) mod pcapng;
pub(crate) mod picture;
pub(crate) mod plot;
pub(crate) mod svg;
pub(crate) mod table;
pub(crate) mod trials;

use std::io::{self, ErrorKind, Write};
use std::path::PathBuf;

use bandmaster_core::report::claims::{ClaimResult, Status, evaluate};
use bandmaster_core::report::summary::{Summary, SummaryRow};
use bandmaster_core::report::{Provenance, RunRecord, Work};
use bandmaster_core::scenario::{Case, Study, Sweep, Variant};
use bandmaster_table::{Cell, Column, Kind};
use serde::Serialize;

use self::flows::FlowBlocks;
use self::folder::OutputFolder;
use self::manifest::Manifest;

/// Version of `summary.json` and `manifest.json`.
pub(crate) const FORMAT_VERSION: u32 = 3;

/// Version of the program.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Commit that the program is built from, when it is built in its own repository.
pub(crate) const COMMIT: Option<&str> = option_env!("BANDMASTER_COMMIT");

/// A study and what came out.
#[derive(Clone, Debug)]
pub(crate) struct StudyResults<'a> {
    /// The study.
    pub(crate) study: &'a Study,
    /// Records of the finished trials, in any order.
    pub(crate) records: Vec<RunRecord>,
    /// Where the records come from.
    pub(crate) provenance: Provenance,
}

/// The content of `summary.json`, which is also what `--json` prints.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(crate) struct ReportSummary {
    /// [`FORMAT_VERSION`].
    pub(crate) version: u32,
    /// Title of the report.
    pub(crate) title: String,
    /// True when every planned trial finished.
    pub(crate) complete: bool,
    /// True of a quick look, which may leave claims undecided.
    pub(crate) quick: bool,
    /// Finished and planned trials.
    pub(crate) trials: Trials,
    /// What was studied.
    pub(crate) studies: Vec<StudyOutline>,
    /// One row per case of every study.
    pub(crate) rows: Vec<ReportRow>,
    /// Every claim of every study.
    pub(crate) claims: Vec<ReportClaim>,
    /// Work of all trials together.
    pub(crate) work: Work,
}

/// Finished and planned trials.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct Trials {
    /// With a record.
    pub(crate) finished: usize,
    /// Asked for.
    pub(crate) planned: usize,
}

/// A study without its scenarios.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(crate) struct StudyOutline {
    /// Short name, unique in the report.
    pub(crate) name: String,
    /// One line for people.
    pub(crate) title: String,
    /// Variants in file order.
    pub(crate) variants: Vec<Variant>,
    /// Sweeps in file order.
    pub(crate) sweeps: Vec<Sweep>,
    /// For each sweep, the metrics that the study's claims and figures look at.
    #[serde(skip)]
    pub(crate) focus: Vec<Vec<String>>,
}

/// Statistics of one case.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(crate) struct ReportRow {
    /// Name of the study.
    pub(crate) study: String,
    /// The statistics.
    #[serde(flatten)]
    pub(crate) row: SummaryRow,
}

/// A claim and what became of it.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(crate) struct ReportClaim {
    /// The result; its id is unique in the report.
    #[serde(flatten)]
    pub(crate) result: ClaimResult,
    /// Name of the study.
    pub(crate) study: String,
}

/// Why a report cannot be written.
#[derive(Debug)]
pub(crate) enum ReportError {
    /// The output folder has content.
    Occupied(PathBuf),
    /// The output folder holds a run that was not completed.
    Resumable(PathBuf),
    /// The output path is a file.
    NotAFolder(PathBuf),
    /// Another program is writing this record file.
    InUse(PathBuf),
    /// The system refused.
    Io {
        /// What was attempted, as in "cannot ...".
        doing: &'static str,
        /// On which path.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
}

impl ReportError {
    /// True when the command line asks for the impossible and nothing was touched.
    pub(crate) fn is_usage(&self) -> bool {
        !matches!(self, Self::Io { .. })
    }
}

impl core::fmt::Display for ReportError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Occupied(path) => write!(
                f,
                "output folder `{}` is not empty: give another one, or --force to replace the report in it",
                path.display()
            ),
            Self::Resumable(path) => {
                let path = path.display();
                write!(
                    f,
                    "output folder `{path}` holds a run that was not completed: `bandmaster resume {path}` goes on with it; \
                     --force starts over"
                )
            }
            Self::InUse(path) => {
                write!(f, "`{}`: another bandmaster is writing it; wait for it, or end it", path.display())
            }
            Self::NotAFolder(path) => {
                write!(f, "output folder `{}` is a file: give the path of a folder", path.display())
            }
            Self::Io { doing, path, error } => {
                let remedy = match error.kind() {
                    ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => {
                        "; make room, or give another folder with --out"
                    }
                    ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
                        "; give a folder that you may write to with --out"
                    }
                    _ => "",
                };
                write!(f, "cannot {doing} `{}`: {error}{remedy}", path.display())
            }
        }
    }
}

impl core::error::Error for ReportError {}

impl ReportSummary {
    /// Statistics and judged claims of `results`.
    pub(crate) fn new(title: &str, results: &[StudyResults<'_>]) -> Self {
        let names = study_names(results);
        let mut summary = Self {
            version: FORMAT_VERSION,
            title: title.to_owned(),
            complete: false,
            quick: results.iter().any(|results| results.study.quick),
            trials: Trials { finished: 0, planned: 0 },
            studies: Vec::new(),
            rows: Vec::new(),
            claims: Vec::new(),
            work: Work::default(),
        };
        let mut claim_ids = Vec::new();
        for (StudyResults { study, records, .. }, name) in results.iter().zip(&names) {
            summary.trials.finished += records.len();
            summary.trials.planned +=
                study.cases.iter().map(|case| case.scenario.run.trials as usize).sum::<usize>();
            for record in records {
                summary.work.events += record.work.events;
                summary.work.packet_hops += record.work.packet_hops;
            }
            let statistics = Summary::new(study, records);
            for result in evaluate(study, &statistics) {
                claim_ids.push((name.clone(), result.id.clone()));
                summary.claims.push(ReportClaim { result, study: name.clone() });
            }
            summary
                .rows
                .extend(statistics.rows.into_iter().map(|row| ReportRow { study: name.clone(), row }));
            summary.studies.push(StudyOutline {
                name: name.clone(),
                title: study.title.clone(),
                variants: study.variants.clone(),
                sweeps: study.sweeps.clone(),
                focus: study.sweeps.iter().map(|sweep| table::focus(study, sweep)).collect(),
            });
        }
        for (claim, id) in summary.claims.iter_mut().zip(unique_ids(&claim_ids)) {
            claim.result.id = id;
        }
        summary.complete = summary.trials.finished == summary.trials.planned;
        summary
    }

    /// Number of claims with this outcome.
    pub(crate) fn claims_that(&self, status: Status) -> usize {
        self.claims.iter().filter(|claim| claim.result.status == status).count()
    }

    /// Claims that keep a run from having shown what it set out to show.
    pub(crate) fn failures(&self) -> usize {
        self.claims.iter().filter(|claim| claim.result.status.is_failure(self.quick)).count()
    }

    /// The text of `summary.json`.
    pub(crate) fn to_json(&self) -> String {
        manifest::json_lines(&serde_json::json!(self), 2)
    }
}

/// Writes every file of the report into `folder`, which the caller then finishes.
///
/// # Errors
/// When the system refuses; the folder then keeps its mark `INCOMPLETE`.
pub(crate) fn write_all(
    folder: &OutputFolder,
    summary: &ReportSummary,
    results: &[StudyResults<'_>],
    flows: Option<&FlowBlocks>,
    manifest: &Manifest,
) -> Result<(), ReportError> {
    let unreadable =
        |error| ReportError::Io { doing: "read", path: folder.path().join("flows.parquet"), error };
    let figures = figure::draw_all(results, flows).map_err(unreadable)?;
    for figure in &figures {
        let Some(plot) = &figure.plot else { continue };
        folder.write(&figure.file, |out| out.write_all(svg::document(plot, &figure.id).as_bytes()))?;
        let column = format!("figures/{}.column.svg", figure.id);
        folder.write(&column, |out| out.write_all(svg::column(plot, &figure.id).as_bytes()))?;
    }
    folder.write("report.html", |out| {
        out.write_all(html::page(summary, results, &figures, manifest).as_bytes())
    })?;
    folder.write("trials.parquet", |out| trials::write_trials(out, results))?;
    folder.write("series.parquet", |out| parquet::write_series(out, results))?;
    if let Some(flows) = flows {
        folder.write("flows.parquet", |out| flows::write_flows(out, results, flows))?;
    }
    folder.write("summary.json", |out| out.write_all(summary.to_json().as_bytes()))?;
    folder.write("manifest.json", |out| out.write_all(manifest.to_json(summary, results).as_bytes()))
}

/// Columns that every file of rows begins with.
fn run_columns() -> &'static [Column] {
    const COLUMNS: &[Column] = &[
        Column::needed("scenario", Kind::Text, "", "Name of the study"),
        Column::needed("variant", Kind::Text, "", "Variant of the case"),
        Column::needed(
            "points",
            Kind::Text,
            "",
            "Points of sweeps that the case stands for: `sweep=value, ...`",
        ),
        Column::needed("trial", Kind::U32, "", "Trial, from 0"),
    ];
    COLUMNS
}

/// The cells of [`run_columns`].
fn run_cells(name: &str, study: &Study, case: &Case, trial: u32) -> Vec<Cell> {
    vec![Cell::text(name), Cell::text(&case.variant), Cell::text(&points(study, case)), Cell::U32(trial)]
}

/// The points of a case, as [`run_columns`] has them; those of grids name their keys.
fn points(study: &Study, case: &Case) -> String {
    let is_grid = |name: &str| study.sweeps.iter().any(|sweep| sweep.name == name && !sweep.grid.is_empty());
    let points: Vec<String> = case
        .points
        .iter()
        .map(|(sweep, value)| if is_grid(sweep) { value.clone() } else { format!("{sweep}={value}") })
        .collect();
    points.join(", ")
}

/// Records by case and trial, with their cases.
fn ordered<'a>(
    study: &'a Study,
    records: &'a [RunRecord],
) -> impl Iterator<Item = (&'a RunRecord, &'a Case)> {
    let mut ordered: Vec<&RunRecord> = records.iter().collect();
    ordered.sort_by_key(|record| (record.case, record.trial));
    ordered.into_iter().filter_map(|record| Some((record, study.cases.get(record.case)?)))
}

/// Each item once, where it comes first.
pub(crate) fn distinct<T: PartialEq>(items: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut found = Vec::new();
    for item in items {
        if !found.contains(&item) {
            found.push(item);
        }
    }
    found
}

/// Names of the studies, made different where two are the same.
fn study_names(results: &[StudyResults<'_>]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for StudyResults { study, .. } in results {
        let mut name = study.name.clone();
        let mut copy = 2;
        while names.contains(&name) {
            name = format!("{}-{copy}", study.name);
            copy += 1;
        }
        names.push(name);
    }
    names
}

/// One id for each (study, id): the id alone where it is unique in the report, otherwise `study.id`.
fn unique_ids(ids: &[(String, String)]) -> Vec<String> {
    let unique = |id: &str| ids.iter().filter(|(_, other)| other == id).count() == 1;
    ids.iter().map(|(study, id)| if unique(id) { id.clone() } else { format!("{study}.{id}") }).collect()
}

#[cfg(test)]
pub(crate) mod tests;
