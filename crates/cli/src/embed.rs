//! Scenarios run within another program, with the same results as `bandmaster run`, `sweep`, `shard` and `merge` leave.
//!
//! Nothing here prints or watches signals: errors are values, and a flag of the caller ends a run early.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use bandmaster_core::report::flow::FlowRecord;
use bandmaster_core::scenario::{Errors, ExtraSweep, Options, Override, parse};
use bandmaster_core::scheme::{self, SchemeDef};

use crate::args::{CaptureArgs, KeyArgs, Settings};
use crate::commands::execute::{Done, Experiment, SIMULATE, SIMULATION, case_name, run_trials};
use crate::commands::run::settings_as_written;
use crate::commands::scenario_file::{Checked, ScenarioFile};
use crate::commands::selection::Selection;
use crate::exit::{Exit, Failure};
use crate::jobs::{self, Job, Outcome, TrialError, TrialResult};
use crate::records::{self, Found, Header, Part, Records};
use crate::report::folder::OutputFolder;
use crate::report::{ReportError, ReportSummary};

/// What a scenario may name besides what ships.
#[derive(Clone, Copy, Debug)]
pub struct Brought {
    /// Schemes, those that ship among them.
    pub schemes: &'static [&'static SchemeDef],
    /// Congestion controls: their names in files, and those under which the simulator has them (`bring_congestion_control`).
    pub controls: &'static [(&'static str, &'static str)],
}

impl Default for Brought {
    fn default() -> Self {
        Self { schemes: scheme::REGISTRY, controls: &[] }
    }
}

/// Why something was not done.
#[derive(Debug)]
pub enum Error {
    /// What is wrong with the scenario, and where.
    Scenario(Errors),
    /// What is wrong with what was asked for; nothing was touched.
    Usage(String),
    /// Reading, writing or running failed.
    Failed(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scenario(errors) => errors.fmt(f),
            Self::Usage(why) | Self::Failed(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for Error {}

impl From<Failure> for Error {
    fn from(Failure { exit, message }: Failure) -> Self {
        let message = message.strip_prefix("error: ").map(str::to_owned).unwrap_or(message);
        if exit == Exit::Usage { Self::Usage(message) } else { Self::Failed(message) }
    }
}

impl From<ReportError> for Error {
    fn from(error: ReportError) -> Self {
        Failure::from(error).into()
    }
}

/// A panic with this payload within a trial ends the trial with this reason. It comes from code that the caller brings, such as
/// a scheme, and is no bug of the simulator.
pub struct TrialEnded(pub String);

/// A scenario, and what the options of a command line would change.
#[derive(Clone, Debug)]
pub struct Request {
    /// Name of the file, in messages and in the report.
    pub path: String,
    /// Its text.
    pub text: String,
    /// Folder of the files that it names.
    pub folder: Option<PathBuf>,
    /// `--set`: keys and values.
    pub overrides: Vec<(String, String)>,
    /// `--key`: keys and the values that each takes.
    pub sweeps: Vec<(String, Vec<String>)>,
    /// `--grid`: they are one sweep of all combinations.
    pub grid: bool,
    /// `--variant`: only these; empty: all.
    pub variants: Vec<String>,
    /// `--base`: no sweeps of the file.
    pub base: bool,
    /// `--trials`.
    pub trials: Option<u32>,
    /// `--seed`.
    pub seed: Option<u64>,
    /// `--quick`.
    pub quick: bool,
    /// What it may name besides what ships.
    pub brought: Brought,
}

/// A trial without a record, and why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FailedTrial {
    /// Variant of its case, and points of sweeps.
    pub case: String,
    /// Its number, from 0.
    pub trial: u32,
    /// Why.
    pub why: String,
    /// The simulator has a bug.
    pub is_bug: bool,
}

/// What became of a run, whose report is in its folder.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ended {
    /// Trials with a record; without any there is no report.
    pub finished: usize,
    /// Trials that were asked for.
    pub planned: usize,
    /// Trials that failed.
    pub failed: Vec<FailedTrial>,
}

/// What is to be run.
pub struct Run {
    experiment: Experiment,
}

impl Run {
    /// Reads and checks a scenario.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn new(request: Request) -> Result<Self, Error> {
        let Request {
            path,
            text,
            folder,
            overrides,
            sweeps,
            grid,
            variants,
            base,
            trials,
            seed,
            quick,
            brought,
        } = request;
        let set = overrides.into_iter().map(|(key, value)| Override { key, value }).collect();
        let settings = Settings { set, trials, seed, quick };
        let keys = sweeps.into_iter().map(|(key, values)| ExtraSweep { key, values }).collect();
        let keys = KeyArgs { keys, grid };
        let file = ScenarioFile::new(path, text, folder);
        let options = Options {
            schemes: brought.schemes,
            controls: brought.controls,
            overrides: settings.set.clone(),
            extra_sweeps: keys.keys.clone(),
            grid: keys.grid,
            trials,
            seed,
            quick,
            files: None,
        };
        let mut study = parse(&file.path, &file.text, &Options { files: Some(&file), ..options.clone() })
            .map_err(Error::Scenario)?;
        let (selection, capture) = (Selection { variants, base }, CaptureArgs::default());
        let unjudged = selection.apply(&mut study, &options)?;
        let written = settings_as_written(&settings, &keys, &selection, &capture);
        let command = if keys.keys.is_empty() { "run" } else { "sweep" };
        let checked = Checked { file, options, selection, study, unjudged };
        Ok(Self { experiment: Experiment::of_file(command, checked, written, capture) })
    }

    /// The run that [`to_bytes`](Self::to_bytes) was called of.
    ///
    /// # Errors
    /// When the bytes are of something else, or of another version of the program.
    pub fn from_bytes(bytes: &[u8], brought: Brought) -> Result<Self, Error> {
        let header = Header::from_bytes(bytes).ok_or_else(|| Error::Usage("is no run".to_owned()))?;
        header.check_version(Path::new("the run"))?;
        Ok(Self { experiment: Experiment::of_header(&header, brought)? })
    }

    /// All that another process needs to run it.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.experiment.header(None).to_bytes()
    }

    /// Name of the scenario.
    pub fn name(&self) -> &str {
        &self.experiment.name
    }

    /// How many trials it has.
    pub fn planned(&self) -> usize {
        self.plan().len()
    }

    fn plan(&self) -> Vec<Job<'_>> {
        jobs::plan(self.experiment.studies())
    }

    /// Runs all trials until `stop` is set, on so many threads, and writes the report into the folder `out`.
    ///
    /// # Errors
    /// When the folder has content and `force` is false, or the system refuses.
    pub fn run(
        &self,
        out: &Path,
        force: bool,
        threads: NonZeroUsize,
        stop: &AtomicBool,
        shows_progress: bool,
    ) -> Result<Ended, Error> {
        let gathering = Gathering::new(self, out, force)?;
        let records = Some(&gathering.records);
        let plan = self.plan();
        let outcome =
            run_trials(&plan, 1, &simulate, (records, Done::new()), threads.into(), stop, shows_progress);
        gathering.publish(self, outcome)
    }

    /// Runs the trials of a shard, `number` of `count` from 1, into a record file.
    ///
    /// # Errors
    /// When there is no such shard, or the system refuses.
    pub fn shard(&self, number: u32, count: u32, file: &Path, stop: &AtomicBool) -> Result<(), Error> {
        let part: Part = format!("{number}/{count}").parse().map_err(Error::Usage)?;
        let all = self.plan();
        let shards = jobs::shards(&all, count);
        let plan: Vec<Job<'_>> = all
            .into_iter()
            .zip(shards)
            .filter(|(_, shard)| *shard == number - 1)
            .map(|(job, _)| job)
            .collect();
        let records = Records::create(file, &self.experiment.header(Some(part)))?;
        let done = (Some(&records), Done::new());
        run_trials(&plan, 1, &simulate, done, NonZeroUsize::MIN.into(), stop, false);
        records.into_rows()?;
        Ok(())
    }
}

/// Simulates a trial, whose schemes may end it.
fn simulate(job: &Job<'_>, stop: &AtomicBool, flows: Option<&dyn Fn(FlowRecord)>) -> TrialResult {
    let ended = |payload: Box<dyn Any + Send>| match payload.downcast::<TrialEnded>() {
        Ok(ended) => Err(TrialError::Failed(ended.0)),
        Err(payload) => resume_unwind(payload),
    };
    catch_unwind(AssertUnwindSafe(|| (SIMULATION.run)(job, stop, flows))).unwrap_or_else(ended)
}

/// The folder of a run whose trials are run elsewhere.
pub struct Gathering {
    header: Header,
    folder: OutputFolder,
    existed: bool,
    records: Records,
    done: Done,
}

impl Gathering {
    /// Makes the folder.
    ///
    /// # Errors
    /// When it has content and `force` is false, or the system refuses.
    pub fn new(run: &Run, out: &Path, force: bool) -> Result<Self, Error> {
        OutputFolder::check(Some(out), force)?;
        let existed = out.exists();
        let header = run.experiment.header(None);
        let folder = OutputFolder::create(Some(out), &header.name, force)?;
        let records = Records::create(&folder.path().join(records::FILE), &header)?;
        Ok(Self { header, folder, existed, records, done: BTreeMap::new() })
    }

    /// Takes the trials of a record file.
    ///
    /// # Errors
    /// When it is of another run, or the system refuses.
    pub fn take(&mut self, file: &Path) -> Result<(), Error> {
        let found = Found::read(file)?;
        if found.header != (Header { part: found.header.part, ..self.header.clone() }) {
            return Err(Error::Usage(format!("{}: holds trials of something else", file.display())));
        }
        self.records.copy(&found)?;
        self.done.extend(found.trials.into_iter().map(|(key, trial)| (key, trial.result)));
        Ok(())
    }

    /// Writes the report of the trials that have come.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn finish(mut self, run: &Run) -> Result<Ended, Error> {
        let plan = run.plan();
        let mut outcome = Outcome::new(1, plan.len());
        for job in plan {
            outcome.push(job, self.done.remove(&job.key()));
        }
        self.publish(run, outcome)
    }

    fn publish(self, Run { experiment }: &Run, outcome: Outcome<'_>) -> Result<Ended, Error> {
        let studies = experiment.studies();
        let failed = |(job, why): &(Job<'_>, TrialError)| {
            let (is_bug, why) = match why {
                TrialError::Unrunnable(why) | TrialError::Failed(why) => (false, why),
                TrialError::Panicked(why) => (true, why),
            };
            let case = case_name(&studies[job.study].cases[job.case]);
            FailedTrial { case, trial: job.trial, why: why.clone(), is_bug }
        };
        let ended = Ended {
            finished: outcome.finished(),
            planned: outcome.planned,
            failed: outcome.failed.iter().map(failed).collect(),
        };
        let rows = self.records.into_rows();
        if ended.finished == 0 {
            let discarded = self.folder.discard(self.existed);
            rows?;
            discarded?;
            return Ok(ended);
        }
        let results = experiment.results(SIMULATE, outcome.records);
        let summary = ReportSummary::new(&experiment.title, &results);
        experiment.write(&self.folder, &summary, &results, Some(&rows?))?;
        if summary.complete {
            self.folder.finish()?;
        }
        Ok(ended)
    }
}
