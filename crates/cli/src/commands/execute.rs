//! From checked scenarios to a report: what `run`, `sweep` and `reproduce` share.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, PoisonError};

use bandmaster_core::capacity::Capacity;
use bandmaster_core::report::flow::FlowRecord;
use bandmaster_core::report::{Provenance, RunRecord};
use bandmaster_core::scenario::{Case, Study};
use bandmaster_sim::{RunError, RunOptions};
use sha2::{Digest, Sha256};

use super::scenario_file::ScenarioFile;
use crate::args::{CaptureArgs, ReportArgs, WorkArgs};
use crate::console::{Console, complain};
use crate::exit::{Exit, Failure};
use crate::interrupt;
use crate::jobs::{self, Job, Outcome, TrialError, TrialResult, simulated};
use crate::progress::Progress;
use crate::report::flows::FlowSpill;
use crate::report::folder::OutputFolder;
use crate::report::manifest::Manifest;
use crate::report::pcapng::PcapWriter;
use crate::report::{self, COMMIT, ReportError, ReportSummary, StudyResults, VERSION, table};

/// Failures that are printed one by one; the rest is counted.
const PRINTED_FAILURES: usize = 10;

/// What to run and what to call it.
pub(crate) struct Experiment<'a> {
    /// Short name, of the output folder too.
    pub(crate) name: String,
    /// Title of the report.
    pub(crate) title: String,
    /// Each file and what it describes, checked.
    pub(crate) studies: Vec<(ScenarioFile, Study)>,
    /// First words of the command line: the command and what it works on.
    pub(crate) command: Vec<String>,
    /// Words of the command line that change what the files say.
    pub(crate) settings: Vec<String>,
    /// Packets to write down.
    pub(crate) capture: &'a CaptureArgs,
}

/// What runs trials.
pub(crate) struct Runtime<'a> {
    /// Where results come from: `simulate`, `emulate`.
    pub(crate) world: &'static str,
    /// Runs one until the flag is set.
    pub(crate) run: &'a RunTrial<'a>,
}

/// Runs a trial until the flag is set, and hands out the rows of its flows where it can.
pub(crate) type RunTrial<'a> =
    dyn Fn(&Job<'_>, &AtomicBool, Option<&dyn Fn(FlowRecord)>) -> TrialResult + Sync + 'a;

/// Simulates every trial, prints the results and writes the report.
pub(crate) fn execute(
    experiment: &Experiment<'_>,
    work: &WorkArgs,
    console: Console,
) -> Result<Exit, Failure> {
    let run = |job: &Job<'_>, stop: &AtomicBool, flows: Option<&dyn Fn(FlowRecord)>| {
        let mut options = RunOptions { stop: Some(stop), flows, ..RunOptions::default() };
        simulated(bandmaster_sim::run(job.scenario, job.case, job.trial, &mut options))
    };
    execute_by(&Runtime { world: "simulate", run: &run }, experiment, work, console)
}

/// Runs every trial, prints the results and writes the report. Packets are captured in simulations only.
pub(crate) fn execute_by(
    runtime: &Runtime<'_>,
    experiment: &Experiment<'_>,
    work: &WorkArgs,
    console: Console,
) -> Result<Exit, Failure> {
    let studies: Vec<&Study> = experiment.studies.iter().map(|(_, study)| study).collect();
    let capture = Capture::new(experiment.capture, &studies)?;
    let &ReportArgs { force, json, no_report, .. } = &work.report;
    let out = work.report.out.as_deref();
    OutputFolder::check(out, force)?;
    let stop = interrupt::watch()?;
    let existed = out.is_some_and(Path::exists);
    let folder = match no_report {
        true => None,
        false => Some(OutputFolder::create(out, &experiment.name, force)?),
    };

    let spill = match &folder {
        Some(folder) if runtime.world == "simulate" => FlowSpill::create(folder, studies.iter().copied())?,
        _ => None,
    };

    let plan = jobs::plan(studies.iter().copied());
    let progress = Progress::new(plan.len(), jobs::total_weight(&plan), console.animates() && !json);
    let captured = Mutex::new(Ok(()));
    let run = |job: &Job<'_>| {
        let rows = spill.as_ref().map(|spill| spill.trial((job.study, job.case, job.trial)));
        let take = rows.as_ref().map(|rows| |row| rows.push(&row));
        let flows = take.as_ref().map(|take| take as &dyn Fn(FlowRecord));
        let result = match (&capture, &folder) {
            (Some(capture), Some(folder)) if capture.wants(job) => {
                let (result, written) = capture.run(job, folder, stop, flows);
                *captured.lock().unwrap_or_else(PoisonError::into_inner) = written;
                simulated(result)
            }
            _ => (runtime.run)(job, stop, flows),
        };
        if let Some(rows) = &rows {
            rows.flush();
        }
        result
    };
    let outcome = jobs::run_all(&plan, studies.len(), work.threads(), stop, &progress, run);
    interrupt::heard();
    progress.clear();

    let (finished, planned, stopped) = (outcome.finished(), outcome.planned, outcome.stopped);
    let mut exit = exit_of(&outcome);
    complain_of(&outcome.failed, &studies);
    if finished == 0 {
        if let Some(folder) = folder {
            discard(&folder, existed)?;
        }
        let why = if stopped { "interrupted" } else { "failed" };
        return Err(Failure::new(exit, format!("{why}: 0 of {planned} trials finished; no report")));
    }

    let results: Vec<StudyResults<'_>> = experiment
        .studies
        .iter()
        .zip(outcome.records)
        .map(|((file, study), records)| StudyResults {
            study,
            records,
            provenance: provenance(runtime.world, file, study, &experiment.settings),
        })
        .collect();
    let summary = ReportSummary::new(&experiment.title, &results);
    let command = [&experiment.command[..], &experiment.settings[..]].concat();
    let written = folder.as_ref().map_or(Ok(()), |folder| {
        report::write_all(folder, &summary, &results, spill.as_ref(), &Manifest { command })
    });
    let text = if json { summary.to_json() } else { table::render(&summary, console.colour()) };
    console.print(&text)?;
    written?;
    captured.into_inner().unwrap_or_else(PoisonError::into_inner)?;

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
        let page = folder.path().join("report.html");
        let mark = if summary.complete { "" } else { " (marked INCOMPLETE)" };
        if summary.complete {
            folder.finish()?;
        }
        console.say(format!("report: {}{mark}", page.display()));
    }
    if exit == Exit::ClaimFailed && json {
        console.say(format!("claims: {} of {} do not hold", summary.failures(), summary.claims.len()));
    }
    Ok(exit)
}

impl From<ReportError> for Failure {
    fn from(error: ReportError) -> Self {
        if error.is_usage() { Self::usage(error) } else { Self::run(error) }
    }
}

/// The exit as far as the trials decide it.
fn exit_of(outcome: &Outcome<'_>) -> Exit {
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

fn complain_of(failed: &[(Job<'_>, TrialError)], studies: &[&Study]) {
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

fn case_name(case: &Case) -> String {
    let points = case.points.iter().map(|(sweep, value)| format!(", {sweep} = {value}"));
    case.variant.clone() + &points.collect::<String>()
}

/// Removes a folder without results, when nothing else is in it.
fn discard(folder: &OutputFolder, existed: bool) -> Result<(), Failure> {
    let path = folder.path();
    let failed = |error| ReportError::Io { doing: "remove", path: path.to_owned(), error };
    let only_mark = fs::read_dir(path).map_err(failed)?.count() == 1;
    if only_mark {
        fs::remove_file(path.join("INCOMPLETE")).map_err(failed)?;
        if !existed {
            fs::remove_dir(path).map_err(failed)?;
        }
    }
    Ok(())
}

fn provenance(world: &'static str, file: &ScenarioFile, study: &Study, settings: &[String]) -> Provenance {
    let mut digest = Sha256::new();
    digest.update(&file.text);
    let traces = traces(study).into_iter().flat_map(|(file, content)| [file, content]);
    for word in settings.iter().map(String::as_str).chain(traces) {
        digest.update([0]);
        digest.update(word);
    }
    Provenance {
        world,
        version: VERSION,
        commit: COMMIT,
        digest: digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect(),
        seed: study.cases.first().map_or(0, |case| case.scenario.run.seed),
    }
}

/// Name and digest of each trace and size distribution that a case of the study uses.
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
        Ok(Some(Self { port, case }))
    }

    fn wants(&self, job: &Job<'_>) -> bool {
        (job.study, job.case, job.trial) == (0, self.case, 0)
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
        let name = format!("{}.pcapng", self.port.replace("->", "-"));
        let written = folder.write(&name, |out| {
            let mut writer = PcapWriter::new(out, self.port)?;
            let mut failed = Ok(());
            let mut on_packet = |packet: &_| {
                if failed.is_ok() {
                    failed = writer.write(packet);
                }
            };
            let mut options =
                RunOptions { stop: Some(stop), capture: Some((self.port, &mut on_packet)), flows };
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
