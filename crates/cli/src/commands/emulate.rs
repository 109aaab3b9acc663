//! `bandmaster emulate`.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, PoisonError};

use bandmaster_core::report::flow::FlowRecord;
use bandmaster_core::scenario::{Case, Scenario, Study};
use bandmaster_core::time::{Span, Time};
use bandmaster_linux::lab::{self, RunOptions, TrafficSource};
use bandmaster_linux::{Error, iperf3, netns};
use clap::{Args, ValueEnum, ValueHint};

use super::execute::{Experiment, Runtime, execute};
use super::run::settings_as_written;
use super::scenario_file::{Checked, ScenarioFile, options};
use super::selection::{Selection, keep_what_is_there};
use crate::args::{CaptureArgs, JobsArgs, KeyArgs, ReportArgs, Settings, WatchArgs, WorkArgs, whole_number};
use crate::console::Console;
use crate::embed::Brought;
use crate::exit::{Exit, Failure};
use crate::interrupt;
use crate::jobs::{Job, TrialError};
use crate::records::{EMULATE, Found};

/// Emulated time of all trials of a quick look: with what it takes to build the labs, under 40 s.
const QUICK: Span = Span::from_secs(24);
/// Most trials at the same time.
const MOST_LABS: u64 = 16;
/// Most cases of a quick look.
const QUICK_CASES: usize = 6;

/// Run a scenario file on real Linux: TCP, UDP and shapers of the kernel between network namespaces
#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub(crate) struct EmulateArgs {
    /// Scenario file
    #[arg(value_name = "SCENARIO.toml", value_hint = ValueHint::FilePath, required_unless_present = "clean")]
    scenario: Option<PathBuf>,
    #[command(flatten)]
    settings: Settings,
    #[command(flatten)]
    selection: Selection,
    /// Trials at the same time, each in a lab of its own
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole_number::<u16>(1, MOST_LABS))]
    jobs: u16,
    /// Who sends and receives: this program, or processes of iperf3 for bulk TCP and constant UDP
    #[arg(long, value_name = "WHO", value_enum, default_value_t)]
    traffic: Who,
    #[command(flatten)]
    report: ReportArgs,
    #[command(flatten)]
    watch: WatchArgs,
    /// Remove what emulations that were killed have left, and do nothing else
    #[arg(long, conflicts_with_all = ["scenario", "out", "json", "no_report", "watch"])]
    clean: bool,
}

const HELP: &str = "\
Examples:
  sudo bandmaster emulate scenarios/examples/htb.toml --quick
  sudo bandmaster emulate scenarios/er2bc/table5-tcp.toml --variant er2bc --trials 1 --out lab
  sudo bandmaster emulate scenarios/bas/fixed.toml --variant conventional --base --set clients=8
  sudo bandmaster emulate scenarios/examples/htb.toml --quick --traffic iperf3
  sudo bandmaster emulate scenarios/examples/htb.toml --quick --watch
  sudo bandmaster emulate --clean

The same file as for `run`, the same report. Each node is a network namespace bm-RUN-NODE, each
link is forwarded at its rate and delay through the queue discipline of the simulator, or the
kernel's for htb. Trials take their real time, --jobs of them at once. Nothing outside the
namespaces is touched, and they go at the end; after a kill -9, --clean or the next emulation
removes them, and `bandmaster resume` goes on from the trials that finished. Without root a user
namespace is used where the system allows it. With --watch the terminal shows the trials live, as
with `run`.

Exit codes: 0 every claim holds, 1 a claim fails, 2 usage or scenario, 3 Linux or this machine
cannot do what the scenario asks for, 4 failure, 5 some trials failed, 130 interrupted.";

/// Who sends and receives.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
enum Who {
    #[default]
    Own,
    #[value(name = "iperf3")]
    Iperf3,
}

impl From<Who> for TrafficSource {
    fn from(who: Who) -> Self {
        match who {
            Who::Own => Self::Own,
            Who::Iperf3 => Self::Iperf3,
        }
    }
}

/// Runs one scenario file on real Linux.
pub(crate) fn emulate(args: &EmulateArgs, console: Console) -> Result<Exit, Failure> {
    let Some(path) = &args.scenario else { return clean(console) };
    let console = args.watch.applied(console, args.report.json)?;
    let (keys, selection) = (KeyArgs::default(), &args.selection);
    let checked = ScenarioFile::read(path)?.checked(options(&args.settings, &keys), selection.clone())?;
    // A quick look judges none.
    if !args.settings.quick {
        checked.say_unjudged(console);
    }
    let traffic = (args.traffic == Who::Iperf3).then(|| IPERF3.map(str::to_owned));
    let settings = settings_as_written(&args.settings, &keys, selection, &CaptureArgs::default());
    let settings = settings.into_iter().chain(traffic.into_iter().flatten()).collect();
    let mut experiment = Experiment::of_file(EMULATE, checked, settings, CaptureArgs::default());
    shorten(&mut experiment, console);
    let work =
        WorkArgs { jobs: JobsArgs { jobs: Some(args.jobs), threads: None }, report: args.report.clone() };
    in_labs(experiment, args.traffic, args.jobs, console, |runtime, experiment| {
        execute(runtime, experiment, &work, console)
    })
}

/// The words of its settings for iperf3.
const IPERF3: [&str; 2] = ["--traffic", "iperf3"];

/// Goes on with the emulation whose records are `found` in the folder `path`.
pub(crate) fn go_on(
    path: &Path,
    (found, file): (Found, File),
    jobs: Option<u16>,
    json: bool,
    console: Console,
) -> Result<Exit, Failure> {
    let jobs = jobs.unwrap_or(1);
    whole_number::<u16>(1, MOST_LABS)(&jobs.to_string())
        .map_err(|why| Failure::usage(format!("--jobs {jobs} of an emulation: {why}")))?;
    let mut experiment = Experiment::of_header(&found.header, Brought::default())?;
    shorten(&mut experiment, console);
    experiment.check_records(&found)?;
    let who =
        if found.header.settings.windows(2).any(|words| words == IPERF3) { Who::Iperf3 } else { Who::Own };
    in_labs(experiment, who, jobs, console, |runtime, experiment| {
        let cores = JobsArgs { jobs: Some(jobs), threads: None }.cores();
        super::execute::go_on(runtime, experiment, path, (found, file), cores, json, console)
    })
}

/// Makes the machine ready, and has `work` done with what runs the trials.
fn in_labs(
    mut experiment: Experiment,
    who: Who,
    jobs: u16,
    console: Console,
    work: impl FnOnce(&Runtime<'_>, &Experiment) -> Result<Exit, Failure>,
) -> Result<Exit, Failure> {
    // Everything that cannot be done is said before anything is touched.
    let mut remarks = BTreeSet::new();
    for Checked { study, .. } in &mut experiment.studies {
        for case in &study.cases {
            let found = check(&case.scenario, who, jobs.into()).map_err(|error| {
                Failure::new(Exit::from(&error), format!("{}, {}: {error}", study.name, case.variant))
            })?;
            remarks.extend(found);
        }
        note(study, &remarks);
    }
    netns::take_privileges()?;
    match bandmaster_linux::clean() {
        Ok(gone) => {
            for name in gone {
                console.say(format!("removed {name}, which a killed emulation had left"));
            }
        }
        // It is in nobody's way.
        Err(error) => console.say(format!("a killed emulation's remains stay: {error}")),
    }
    interrupt::before_exit(bandmaster_linux::abandon);
    experiment.studies().into_iter().for_each(|study| say_length(study, jobs, console));
    for remark in &remarks {
        console.say(format!("otherwise than the file says: {remark}"));
    }

    let told = Mutex::new(remarks);
    let run = |job: &Job<'_>, stop: &AtomicBool, flows: Option<&dyn Fn(FlowRecord)>| {
        let options = RunOptions { stop: Some(stop), traffic: who.into(), flows, even_if_slow: false };
        match lab::run(job.scenario, job.case, job.trial, &options) {
            Ok(trial) => {
                let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
                for remark in trial.remarks {
                    if told.insert(remark.clone()) {
                        console.say(format!("case {}, trial {}: {remark}", job.case, job.trial));
                    }
                }
                Ok(Some(trial.record))
            }
            Err(Error::Stopped) => Ok(None),
            Err(Error::Unfit(why) | Error::Missing(why)) => Err(TrialError::Unrunnable(why)),
            Err(error) => Err(TrialError::Failed(error.to_string())),
        }
    };
    work(&Runtime { world: EMULATE, run: &run }, &experiment)
}

/// What is otherwise than the file says, with so many labs at once.
fn check(scenario: &Scenario, who: Who, labs: usize) -> Result<Vec<String>, Error> {
    let mut remarks = bandmaster_linux::check(scenario, labs)?;
    if who == Who::Iperf3 {
        remarks.extend(iperf3::check(scenario)?);
    }
    Ok(remarks)
}

fn clean(console: Console) -> Result<Exit, Failure> {
    let gone = bandmaster_linux::clean()?;
    for name in &gone {
        console.print(&format!("removed {name}\n"))?;
    }
    if gone.is_empty() {
        console.say("nothing was left".to_owned());
    }
    Ok(Exit::Success)
}

/// Cuts the trials of a quick look so that all of them take [`QUICK`]. Claims are about whole runs and not judged.
fn shorten(experiment: &mut Experiment, console: Console) {
    for Checked { options, study, .. } in &mut experiment.studies {
        if options.quick {
            shorten_study(study, console);
        }
    }
}

fn shorten_study(study: &mut Study, console: Console) {
    study.cases.retain(|case| case.base);
    let all = study.cases.len();
    study.cases.truncate(QUICK_CASES);
    keep_what_is_there(study);
    study.claims.clear();
    let each = Span::from_nanos(QUICK.as_nanos() / study.cases.len().max(1) as u64);
    for case in &mut study.cases {
        cut(&mut case.scenario, each);
    }
    let cases = study.cases.len();
    let only = if cases < all { format!(", the first {cases} of {all} variants") } else { String::new() };
    console.say(format!("a quick look: one trial of at most {each} each{only}; claims are not judged"));
}

fn cut(scenario: &mut Scenario, most: Span) {
    let run = &mut scenario.run;
    run.trials = 1;
    if run.duration <= most {
        return;
    }
    // Whole samples.
    let samples = (most.as_nanos() / run.sample.as_nanos().max(1)).max(1);
    run.duration = run.sample * samples;
    run.warm_up = run.warm_up.min(run.sample * (samples / 4));
    let end = Time::ZERO + run.duration;
    scenario.measure.windows.retain(|window| window.to <= end);
}

/// Puts what Linux does in another way into the report.
fn note(study: &mut Study, remarks: &BTreeSet<String>) {
    let mut text = "Emulated on Linux: real TCP and UDP between network namespaces.".to_owned();
    if !remarks.is_empty() {
        let all: Vec<&str> = remarks.iter().map(String::as_str).collect();
        text.push_str(&format!(" Otherwise than the file says: {}.", all.join("; ")));
    }
    if !study.description.is_empty() {
        study.description.push_str("\n\n");
    }
    study.description.push_str(&text);
}

fn say_length(study: &Study, jobs: u16, console: Console) {
    let of_case =
        |case: &Case| case.scenario.run.duration.as_secs_f64() * f64::from(case.scenario.run.trials);
    let seconds: f64 = study.cases.iter().map(of_case).sum();
    let trials: u32 = study.cases.iter().map(|case| case.scenario.run.trials).sum();
    let how = if jobs > 1 { format!("{jobs} at a time") } else { "one after the other".to_owned() };
    let plural = if trials == 1 { "trial" } else { "trials" };
    console.say(format!("emulating {trials} {plural}, {how}: {:.0} s and more", seconds / f64::from(jobs)));
}
