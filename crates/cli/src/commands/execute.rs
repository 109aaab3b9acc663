//! From checked scenarios to a report: what `run`, `sweep`, `reproduce`, `resume`, `shard` and `merge` share.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, PoisonError};

use bandmaster_core::capacity::Capacity;
use bandmaster_core::report::claims::Status;
use bandmaster_core::report::flow::FlowRecord;
use bandmaster_core::report::{Provenance, RunRecord};
use bandmaster_core::scenario::{Case, ExtraSweep, Options, Override, Study};
use bandmaster_sim::{RunError, RunOptions};
use sha2::{Digest, Sha256};

use super::scenario_file::{Checked, ScenarioFile, all_or_every_error};
use super::selection::Selection;
use crate::args::{CaptureArgs, ReportArgs, WorkArgs};
use crate::console::{Console, complain};
use crate::embed::Brought;
use crate::exit::{Exit, Failure};
use crate::interrupt;
use crate::jobs::{self, Cores, Job, Outcome, TrialError, TrialKey, TrialResult, simulated};
use crate::progress::Progress;
use crate::records::{self, Found, Header, Part, Records, StoredStudy};
use crate::report::flows::{self, FlowBlocks};
use crate::report::folder::OutputFolder;
use crate::report::manifest::Manifest;
use crate::report::pcapng::PcapWriter;
use crate::report::{self, COMMIT, ReportError, ReportSummary, StudyResults, VERSION, table};
use crate::watch;
use crate::watch::trials::{Board, Trials};

/// Failures that are printed one by one; the rest is counted.
const PRINTED_FAILURES: usize = 10;

/// What to run and what to call it.
pub(crate) struct Experiment {
    /// Short name, of the output folder too.
    pub(crate) name: String,
    /// Title of the report.
    pub(crate) title: String,
    /// The files and what they describe.
    pub(crate) studies: Vec<Checked>,
    /// First words of the command line: the command and what it works on.
    pub(crate) command: Vec<String>,
    /// Words of the command line that change what the files say.
    pub(crate) settings: Vec<String>,
    /// Packets to write down.
    pub(crate) capture: CaptureArgs,
}

impl Experiment {
    /// Of one file, as `command` runs it.
    pub(crate) fn of_file(
        command: &str,
        checked: Checked,
        settings: Vec<String>,
        capture: CaptureArgs,
    ) -> Self {
        Self {
            name: checked.study.name.clone(),
            title: checked.study.title.clone(),
            command: vec![command.to_owned(), checked.file.path.clone()],
            settings,
            studies: vec![checked],
            capture,
        }
    }

    /// What each file describes.
    pub(crate) fn studies(&self) -> Vec<&Study> {
        self.studies.iter().map(|checked| &checked.study).collect()
    }

    /// The header of a record file of it.
    pub(crate) fn header(&self, part: Option<Part>) -> Header {
        let stored = |checked: &Checked| {
            let Checked { file, options, selection, study, .. } = checked;
            let provenance = provenance("", file, study, &self.settings);
            let set = |set: &Override| (set.key.clone(), set.value.clone());
            let sweep = |sweep: &ExtraSweep| (sweep.key.clone(), sweep.values.clone());
            StoredStudy {
                path: file.path.clone(),
                text: file.text.clone(),
                named: file.named.borrow().clone(),
                overrides: options.overrides.iter().map(set).collect(),
                sweeps: options.extra_sweeps.iter().map(sweep).collect(),
                grid: options.grid,
                variants: selection.variants.clone(),
                base: selection.base,
                trials: options.trials,
                seed: options.seed,
                quick: options.quick,
                digest: provenance.digest,
                seed_used: provenance.seed,
            }
        };
        Header {
            capture: (self.capture.pcap.clone(), self.capture.pcap_case.clone(), self.capture.pcap_snaplen),
            studies: self.studies.iter().map(stored).collect(),
            part,
            ..Header::new(&self.name, &self.title, &self.command, &self.settings)
        }
    }

    /// The experiment of a record file, read from what its header keeps.
    ///
    /// # Errors
    /// When that is no scenario, or another one than was run.
    pub(crate) fn of_records(found: &Found) -> Result<Self, Failure> {
        let experiment = Self::of_header(&found.header, Brought::default())?;
        experiment.check_records(found)?;
        Ok(experiment)
    }

    /// Refuses records of something else.
    ///
    /// # Errors
    /// How they differ.
    pub(crate) fn check_records(&self, found: &Found) -> Result<(), Failure> {
        let place = found.path.display();
        if self.header(found.header.part) != found.header {
            return Err(Failure::usage(format!("{place}: the scenario in it is not the one that was run")));
        }
        let plan: BTreeSet<TrialKey> = jobs::plan(self.studies()).iter().map(Job::key).collect();
        if let Some((study, case, trial)) = found.trials.keys().find(|key| !plan.contains(key)) {
            return Err(Failure::usage(format!(
                "{place}: has trial {trial} of case {case} of study {study}, which its scenario has not"
            )));
        }
        Ok(())
    }

    /// The experiment of the header of a record file, whose scenario may name what is `brought`.
    ///
    /// # Errors
    /// When what it keeps is no scenario.
    pub(crate) fn of_header(header: &Header, brought: Brought) -> Result<Self, Failure> {
        let read = |stored: &StoredStudy| {
            let file = ScenarioFile::new(stored.path.clone(), stored.text.clone(), None);
            file.named.replace(stored.named.clone());
            let set = |(key, value): &(String, String)| Override { key: key.clone(), value: value.clone() };
            let sweep = |(key, values): &(String, Vec<String>)| ExtraSweep {
                key: key.clone(),
                values: values.clone(),
            };
            let options = Options {
                schemes: brought.schemes,
                controls: brought.controls,
                overrides: stored.overrides.iter().map(set).collect(),
                extra_sweeps: stored.sweeps.iter().map(sweep).collect(),
                grid: stored.grid,
                trials: stored.trials,
                seed: stored.seed,
                quick: stored.quick,
                ..Options::default()
            };
            file.checked(options, Selection { variants: stored.variants.clone(), base: stored.base })
        };
        let (pcap, pcap_case, pcap_snaplen) = header.capture.clone();
        Ok(Self {
            name: header.name.clone(),
            title: header.title.clone(),
            studies: all_or_every_error(header.studies.iter().map(read))?,
            command: header.command.clone(),
            settings: header.settings.clone(),
            capture: CaptureArgs { pcap, pcap_case, pcap_snaplen },
        })
    }

    /// Pairs every study with its records and their provenance.
    pub(crate) fn results(&self, world: &'static str, records: Vec<Vec<RunRecord>>) -> Vec<StudyResults<'_>> {
        let of_study = |(checked, records): (_, _)| {
            let Checked { file, study, .. }: &Checked = checked;
            let provenance = provenance(world, file, study, &self.settings);
            StudyResults { study, records, provenance }
        };
        self.studies.iter().zip(records).map(of_study).collect()
    }

    /// Writes every file of the report.
    ///
    /// # Errors
    /// When the system refuses.
    pub(crate) fn write(
        &self,
        folder: &OutputFolder,
        summary: &ReportSummary,
        results: &[StudyResults<'_>],
        rows: Option<&FlowBlocks>,
    ) -> Result<(), ReportError> {
        let command = [&self.command[..], &self.settings[..]].concat();
        let rows = rows.filter(|_| flows::are_wanted(self.studies()));
        report::write_all(folder, summary, results, rows, &Manifest { command })
    }
}

/// What runs trials.
pub(crate) struct Runtime<'a> {
    /// Where results come from: [`SIMULATE`], `emulate`.
    pub(crate) world: &'static str,
    /// Runs one until the flag is set.
    pub(crate) run: &'a RunTrial<'a>,
}

/// Runs a trial until the flag is set, and hands out the rows of its flows where it can.
pub(crate) type RunTrial<'a> =
    dyn Fn(&Job<'_>, &AtomicBool, Option<&dyn Fn(FlowRecord)>) -> TrialResult + Sync + 'a;

/// The world of simulations.
pub(crate) const SIMULATE: &str = "simulate";

/// Simulates trials.
pub(crate) const SIMULATION: Runtime<'static> = Runtime { world: SIMULATE, run: &simulate };

fn simulate(job: &Job<'_>, stop: &AtomicBool, flows: Option<&dyn Fn(FlowRecord)>) -> TrialResult {
    let mut options = RunOptions { stop: Some(stop), flows, threads: job.threads, ..RunOptions::default() };
    simulated(bandmaster_sim::run(job.scenario, job.case, job.trial, &mut options))
}

/// Runs every trial, prints the results and writes the report. Packets are captured in simulations only.
pub(crate) fn execute(
    runtime: &Runtime<'_>,
    experiment: &Experiment,
    work: &WorkArgs,
    console: Console,
) -> Result<Exit, Failure> {
    Capture::new(&experiment.capture, &experiment.studies())?;
    let &ReportArgs { force, json, no_report, .. } = &work.report;
    let out = work.report.out.as_deref();
    OutputFolder::check(out, force)?;
    interrupt::watch()?;
    let existed = out.is_some_and(Path::exists);
    let folder = match no_report {
        true => None,
        false => Some(OutputFolder::create(out, &experiment.name, force)?),
    };
    let create =
        |folder: &OutputFolder| Records::create(&folder.path().join(records::FILE), &experiment.header(None));
    let records = folder.as_ref().map(create).transpose()?;
    let output = Output { folder, existed, json };
    run_and_publish(runtime, experiment, (records, BTreeMap::new()), output, work.jobs.cores(), console)
}

/// Goes on with the run whose records are `found` in the folder `path`.
pub(crate) fn go_on(
    runtime: &Runtime<'_>,
    experiment: &Experiment,
    path: &Path,
    (found, file): (Found, File),
    cores: Cores,
    json: bool,
    console: Console,
) -> Result<Exit, Failure> {
    let capture = Capture::new(&experiment.capture, &experiment.studies())?;
    interrupt::watch()?;
    let folder = OutputFolder::resume(path)?;
    let (records, mut trials) = Records::go_on(found, file)?;
    // Failed ones have another chance. The packets of a trial are written before its record.
    trials.retain(|_, trial| trial.result.is_ok());
    if let Some(capture) = capture
        && !folder.path().join(capture.file()).exists()
    {
        trials.remove(&capture.key());
    }
    let planned = jobs::plan(experiment.studies()).len();
    console.say(format!("resuming: {} of {planned} trials are there", trials.len()));
    let done = trials.into_iter().map(|(key, trial)| (key, trial.result)).collect();
    let output = Output { folder: Some(folder), existed: true, json };
    run_and_publish(runtime, experiment, (Some(records), done), output, cores, console)
}

/// What ended trials gave.
pub(crate) type Done = BTreeMap<TrialKey, Result<RunRecord, TrialError>>;

fn run_and_publish(
    runtime: &Runtime<'_>,
    experiment: &Experiment,
    (records, done): (Option<Records>, Done),
    output: Output,
    cores: Cores,
    console: Console,
) -> Result<Exit, Failure> {
    let studies = experiment.studies();
    let plan = jobs::plan(studies.iter().copied());
    let visible = console.animates() && !output.json;
    let captured = Mutex::new(Ok(()));
    let capture = Capture::new(&experiment.capture, &studies)?.zip(output.folder.as_ref());
    let run = |job: &Job<'_>, stop: &AtomicBool, flows: Option<&dyn Fn(FlowRecord)>| match &capture {
        Some((capture, folder)) if capture.key() == job.key() => {
            let (result, written) = capture.run(job, folder, stop, flows);
            *captured.lock().unwrap_or_else(PoisonError::into_inner) = written;
            simulated(result)
        }
        _ => (runtime.run)(job, stop, flows),
    };
    let stop = interrupt::watch()?;
    let work = |run: &RunTrial<'_>| {
        run_trials(&plan, studies.len(), run, (records.as_ref(), done), cores, stop, visible)
    };
    let outcome = if console.has_view() {
        let trials = Board::new(Trials::new(&experiment.title, &studies, &plan));
        let run = |job: &Job<'_>, stop: &AtomicBool, flows: Option<&dyn Fn(FlowRecord)>| {
            let result = jobs::unpanicked(|| run(job, stop, flows));
            trials.enter(job, &result);
            result
        };
        watch::trials::show(&trials, console, || work(&run))
    } else {
        work(&run)
    };
    let rows = records.map(Records::into_rows).transpose();
    let captured = captured.into_inner().unwrap_or_else(PoisonError::into_inner);
    publish(runtime.world, experiment, outcome, rows, captured, output, console)
}

/// Runs those trials of a plan that are not done until `stop` is set, and records them.
pub(crate) fn run_trials<'a>(
    plan: &[Job<'a>],
    studies: usize,
    run: &RunTrial<'_>,
    (records, done): (Option<&Records>, Done),
    cores: Cores,
    stop: &AtomicBool,
    visible: bool,
) -> Outcome<'a> {
    let progress = Progress::new(plan.len(), jobs::total_weight(plan), visible);
    let run = |job: &Job<'_>| {
        let Some(records) = records else { return run(job, stop, None) };
        let trial = records.trial(job.key(), stop);
        let result = jobs::unpanicked(|| run(job, stop, Some(&|row| trial.push(&row))));
        trial.finish(&result);
        result
    };
    let outcome = jobs::run_all(plan, studies, done, cores, stop, &progress, run);
    interrupt::heard();
    progress.clear();
    outcome
}

/// Where results go.
pub(crate) struct Output {
    /// Where the report is written, if anywhere.
    pub(crate) folder: Option<OutputFolder>,
    /// Whether the folder was there before.
    pub(crate) existed: bool,
    /// Print JSON.
    pub(crate) json: bool,
}

/// Prints the results and writes the report.
pub(crate) fn publish(
    world: &'static str,
    experiment: &Experiment,
    outcome: Outcome<'_>,
    rows: Result<Option<FlowBlocks>, ReportError>,
    captured: Result<(), ReportError>,
    output: Output,
    console: Console,
) -> Result<Exit, Failure> {
    let Output { folder, existed, json } = output;
    let (finished, planned, stopped) = (outcome.finished(), outcome.planned, outcome.stopped);
    let mut exit = exit_of(&outcome);
    complain_of(&outcome.failed, &experiment.studies());
    if finished == 0 {
        folder.map_or(Ok(()), |folder| folder.discard(existed))?;
        rows?;
        let why = if stopped { "interrupted" } else { "failed" };
        return Err(Failure::new(exit, format!("{why}: 0 of {planned} trials finished; no report")));
    }

    let results = experiment.results(world, outcome.records);
    let summary = ReportSummary::new(&experiment.title, &results);
    let written = rows.and_then(|rows| {
        let Some(folder) = &folder else { return Ok(()) };
        experiment.write(folder, &summary, &results, rows.as_ref())
    });
    let text = if json { summary.to_json() } else { table::render(&summary, console.colour()) };
    console.print(&text)?;
    let kept = folder.as_ref().map(OutputFolder::path).filter(|path| records::are_in(path));
    written.and(captured).map_err(|error| match kept {
        Some(path) => Failure::run(format!(
            "{error}; finished trials are kept: `bandmaster resume {}` goes on with them",
            path.display()
        )),
        None => error.into(),
    })?;

    if stopped {
        complain(format!(
            "interrupted: {finished} of {planned} trials finished; the results are of these only"
        ));
    } else if finished < planned {
        complain(format!(
            "error: {} of {planned} trials failed; the results are of the others",
            planned - finished
        ));
    }
    if summary.failures() > 0 && exit == Exit::Success {
        exit = Exit::ClaimFailed;
    }
    if let Some(folder) = folder {
        let path = folder.path().to_owned();
        let mark = if summary.complete { "" } else { " (marked INCOMPLETE)" };
        if summary.complete {
            folder.finish()?;
        }
        console.say(format!("report: {}{mark}", path.join("report.html").display()));
        if !summary.complete && records::are_in(&path) {
            console.say(format!("to go on: bandmaster resume {}", path.display()));
        }
    }
    if exit == Exit::ClaimFailed && json {
        let (all, undecided) = (summary.claims.len(), summary.claims_that(Status::Undecided));
        let open = if summary.quick { 0 } else { undecided };
        console.say(format!("claims: of {all}, {} fail, {undecided} undecided", summary.failures() - open));
    }
    Ok(exit)
}

impl From<ReportError> for Failure {
    fn from(error: ReportError) -> Self {
        if error.is_usage() { Self::usage(error) } else { Self::run(error) }
    }
}

/// The exit as far as the trials decide it.
pub(crate) fn exit_of(outcome: &Outcome<'_>) -> Exit {
    let unrunnable = |(_, why): &(_, _)| matches!(why, TrialError::Unrunnable(_));
    if outcome.stopped {
        Exit::Interrupted
    } else if outcome.failed.is_empty() {
        Exit::Success
    } else if outcome.finished() > 0 {
        Exit::Partial
    } else if outcome.failed.iter().all(unrunnable) {
        Exit::MissingCapability
    } else {
        Exit::RunFailed
    }
}

/// Prints why trials failed.
pub(crate) fn complain_of(failed: &[(Job<'_>, TrialError)], studies: &[&Study]) {
    for (job, why) in failed.iter().take(PRINTED_FAILURES) {
        let study = studies[job.study];
        let place = format!("{}, {}, trial {}", study.name, case_name(&study.cases[job.case]), job.trial);
        let (bug, why) = match why {
            TrialError::Unrunnable(why) | TrialError::Failed(why) => ("", why),
            TrialError::Panicked(why) => ("a bug of bandmaster, please report it: ", why),
        };
        complain(format!("error: {place}: {bug}{why}"));
    }
    if let Some(more) = failed.len().checked_sub(PRINTED_FAILURES).filter(|more| *more > 0) {
        complain(format!("error: and {more} more trials failed"));
    }
}

/// The variant of a case and its points.
pub(crate) fn case_name(case: &Case) -> String {
    let points = case.points.iter().map(|(sweep, value)| format!(", {sweep} = {value}"));
    case.variant.clone() + &points.collect::<String>()
}

fn provenance(world: &'static str, file: &ScenarioFile, study: &Study, settings: &[String]) -> Provenance {
    let mut digest = Sha256::new();
    digest.update(&file.text);
    // Of other files the study has the digests.
    let is_whole = |name: &str| [".toml", ".graphml", ".xml", ".csv"].iter().any(|end| name.ends_with(end));
    for (name, text) in file.named.borrow().iter().filter(|(name, _)| is_whole(name.as_str())) {
        digest.update([0]);
        digest.update(name);
        digest.update([0]);
        digest.update(text);
    }
    let traces = traces(study).into_iter().flat_map(|(file, content)| [file, content]);
    for word in settings.iter().map(String::as_str).chain(traces) {
        digest.update([0]);
        digest.update(word);
    }
    Provenance {
        world,
        version: VERSION,
        commit: COMMIT,
        digest: bandmaster_core::hex::hex(&digest.finalize()),
        seed: study.cases.first().map_or(0, |case| case.scenario.run.seed),
    }
}

/// Names and digests of the traces and size distributions that cases of the study use.
fn traces(study: &Study) -> BTreeSet<(&str, &str)> {
    let flows = study.cases.iter().flat_map(|case| &case.scenario.flows);
    let sizes = flows.filter_map(|group| group.size_cdf.as_ref()).map(|sizes| (sizes.name(), sizes.digest()));
    let lists =
        study.cases.iter().flat_map(|case| &case.scenario.flows).filter_map(|group| group.list.as_ref());
    let sizes = sizes.chain(lists.map(|list| (list.name(), list.digest())));
    let links = study.cases.iter().flat_map(|case| &case.scenario.topology.links);
    links
        .flat_map(|link| [&link.capacity, &link.capacity_back])
        .filter_map(|capacity| match capacity {
            Some(Capacity::Trace(trace)) => Some((trace.file(), trace.digest())),
            Some(Capacity::Steps(_)) | None => None,
        })
        .chain(sizes)
        .collect()
}

/// A port to listen at, in trial 0 of one case of the first study.
struct Capture<'a> {
    port: &'a str,
    case: usize,
    /// Most bytes of a packet; none: all.
    snap_length: Option<u32>,
}

impl<'a> Capture<'a> {
    fn new(args: &'a CaptureArgs, studies: &[&Study]) -> Result<Option<Self>, Failure> {
        let (Some(port), [study, ..]) = (&args.pcap, studies) else { return Ok(None) };
        let case = match &args.pcap_case {
            None => 0,
            Some(name) => {
                study.cases.iter().position(|case| case.base && case.variant == *name).ok_or_else(|| {
                    let names: Vec<&str> = study.variants.iter().map(|v| v.name.as_str()).collect();
                    let allowed = names.join(", ");
                    Failure::usage(format!("--pcap-case {name}: no such variant; allowed: {allowed}"))
                })?
            }
        };
        let topology = &study.cases[case].scenario.topology;
        if topology.port(port).is_none() {
            return Err(Failure::usage(no_such_port(port, topology)));
        }
        Ok(Some(Self { port, case, snap_length: args.pcap_snaplen }))
    }

    /// The trial that is captured.
    fn key(&self) -> TrialKey {
        (0, self.case, 0)
    }

    /// Name of the file.
    fn file(&self) -> String {
        format!("{}.pcapng", self.port.replace("->", "-"))
    }

    /// Runs the trial and writes its packets; without a record there is no file either.
    fn run(
        &self,
        job: &Job<'_>,
        folder: &OutputFolder,
        stop: &AtomicBool,
        flows: Option<&dyn Fn(FlowRecord)>,
    ) -> (Result<RunRecord, RunError>, Result<(), ReportError>) {
        let mut result = Err(RunError::Stopped);
        let written = folder.write(&self.file(), |out| {
            let mut writer = PcapWriter::new(out, self.port, self.snap_length)?;
            let mut failed = Ok(());
            let mut on_packet = |packet: &_| {
                if failed.is_ok() {
                    failed = writer.write(packet);
                }
            };
            let mut options = RunOptions {
                stop: Some(stop),
                capture: Some((self.port, &mut on_packet)),
                flows,
                threads: job.threads,
            };
            result = bandmaster_sim::run(job.scenario, job.case, job.trial, &mut options);
            failed?;
            match &result {
                Ok(_) => writer.finish().map(drop),
                Err(why) => Err(io::Error::other(why.clone())),
            }
        });
        // A trial that has no record already says why.
        let written = if result.is_err() { Ok(()) } else { written };
        (result, written)
    }
}

fn no_such_port(port: &str, topology: &bandmaster_core::topology::Topology) -> String {
    let names =
        (0..topology.links.len() as u32 * 2).map(|i| topology.port_name(bandmaster_core::id::PortId(i)));
    let node = port.split("->").next().unwrap_or_default();
    let (from_node, others): (Vec<String>, Vec<String>) =
        names.partition(|name| name.split("->").next() == Some(node));
    let near = if from_node.is_empty() { others } else { from_node };
    let shown = near.iter().take(8).cloned().collect::<Vec<_>>().join(", ");
    let more = if near.len() > 8 { format!(", ... ({} ports)", near.len()) } else { String::new() };
    format!("--pcap {port}: no such port; a port is FROM->TO, one of: {shown}{more}")
}
