//! `bandmaster emulate`.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, PoisonError};

use bandmaster_core::report::flow::FlowRecord;
use bandmaster_core::scenario::{Case, ClaimAt, Scenario, Study};
use bandmaster_core::time::{Span, Time};
use bandmaster_linux::lab::{self, RunOptions, TrafficSource};
use bandmaster_linux::{Error, iperf3, netns};
use clap::{Args, ValueEnum, ValueHint};

use super::execute::{Experiment, Runtime, execute};
use super::run::settings_as_written;
use super::scenario_file::{Checked, ScenarioFile, options};
use crate::args::{CaptureArgs, JobsArgs, ReportArgs, Settings, WorkArgs, whole_number};
use crate::console::Console;
use crate::exit::{Exit, Failure};
use crate::interrupt;
use crate::jobs::{Job, TrialError};

/// Emulated time of all trials of a quick look: with what it takes to build the labs, under 40 s.
const QUICK: Span = Span::from_secs(24);
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
    /// Only this variant; may be given again
    #[arg(long = "variant", value_name = "NAME")]
    variants: Vec<String>,
    /// Only the base point of each variant: no sweeps
    #[arg(long)]
    base: bool,
    /// Trials at the same time, each in a lab of its own
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole_number::<u16>(1, 16))]
    jobs: u16,
    /// Who sends and receives: this program, or processes of iperf3 for bulk TCP and constant UDP
    #[arg(long, value_name = "WHO", value_enum, default_value_t)]
    traffic: Who,
    #[command(flatten)]
    report: ReportArgs,
    /// Remove what emulations that were killed have left, and do nothing else
    #[arg(long, conflicts_with_all = ["scenario", "out", "json", "no_report"])]
    clean: bool,
}

const HELP: &str = "\
Examples:
  sudo bandmaster emulate scenarios/examples/htb.toml --quick
  sudo bandmaster emulate scenarios/er2bc/table5-tcp.toml --variant er2bc --trials 1 --out lab
  sudo bandmaster emulate scenarios/bas/fixed.toml --variant conventional --base --set clients=8
  sudo bandmaster emulate scenarios/examples/htb.toml --quick --traffic iperf3
  sudo bandmaster emulate --clean

The same file as for `run`, the same report. Each node is a network namespace bm-RUN-NODE, each
link is forwarded at its rate and delay through the queue discipline of the simulator, or the
kernel's for htb. Trials take their real time, --jobs of them at once. Nothing outside the
namespaces is touched, and they go at the end; after a kill -9, --clean or the next emulation
removes them. Without root a user namespace is used where the system allows it.

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
    let Checked { file, options, mut study } =
        ScenarioFile::read(path)?.checked(options(&args.settings, &[]))?;
    select(&mut study, args)?;
    if args.settings.quick {
        shorten(&mut study, console);
    }
    // Everything that cannot be done is said before anything is touched.
    let mut remarks = BTreeSet::new();
    for case in &study.cases {
        let found = check(&case.scenario, args.traffic, args.jobs.into()).map_err(|error| {
            Failure::new(Exit::from(&error), format!("{}, {}: {error}", study.name, case.variant))
        })?;
        remarks.extend(found);
    }
    note(&mut study, &remarks);
    netns::take_privileges()?;
    bandmaster_linux::check_tun()?;
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
    say_length(&study, args.jobs, console);
    for remark in &remarks {
        console.say(format!("otherwise than the file says: {remark}"));
    }

    let work = WorkArgs { jobs: JobsArgs { jobs: Some(args.jobs) }, report: args.report.clone() };
    let told = Mutex::new(remarks);
    let run = |job: &Job<'_>, stop: &AtomicBool, _: Option<&dyn Fn(FlowRecord)>| {
        let options = RunOptions { stop: Some(stop), traffic: args.traffic.into(), even_if_slow: false };
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
    let chosen = args.variants.iter().flat_map(|name| ["--variant".to_owned(), name.clone()]);
    let base = args.base.then(|| "--base".to_owned());
    let traffic = (args.traffic == Who::Iperf3).then(|| ["--traffic", "iperf3"].map(str::to_owned));
    let settings = settings_as_written(&args.settings, &[], &CaptureArgs::default());
    let settings = settings.into_iter().chain(chosen).chain(base).chain(traffic.into_iter().flatten());
    execute(
        &Runtime { world: "emulate", run: &run },
        &Experiment::of_file(
            "emulate",
            Checked { file, options, study },
            settings.collect(),
            CaptureArgs::default(),
        ),
        &work,
        console,
    )
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

/// Leaves out the cases that nobody asked for, and the claims and figures about them.
fn select(study: &mut Study, args: &EmulateArgs) -> Result<(), Failure> {
    let known: Vec<&str> = study.variants.iter().map(|variant| variant.name.as_str()).collect();
    if let Some(wrong) = args.variants.iter().find(|name| !known.contains(&name.as_str())) {
        let allowed = known.join(", ");
        return Err(Failure::usage(format!("--variant {wrong}: no such variant; allowed: {allowed}")));
    }
    let is_chosen = |case: &Case| {
        (args.variants.is_empty() || args.variants.contains(&case.variant)) && (!args.base || case.base)
    };
    study.cases.retain(is_chosen);
    keep_what_is_there(study);
    Ok(())
}

/// Keeps variants, claims and figures whose cases are there.
fn keep_what_is_there(study: &mut Study) {
    let cases = std::mem::take(&mut study.cases);
    let has = |name: &str| cases.iter().any(|case| case.variant == name);
    let swept: BTreeSet<&str> = cases
        .iter()
        .filter(|case| !case.base)
        .flat_map(|case| &case.points)
        .map(|(s, _)| s.as_str())
        .collect();
    study.variants.retain(|variant| has(&variant.name));
    study.sweeps.retain(|sweep| swept.contains(sweep.name.as_str()));
    let kept: BTreeSet<String> = study.sweeps.iter().map(|sweep| sweep.name.clone()).collect();
    for sweep in &mut study.sweeps {
        sweep.variants.retain(|name| has(name));
    }
    study.claims.retain(|claim| {
        let against = claim.against.as_ref();
        let other = against.and_then(|against| against.variant.as_deref());
        let point = against.and_then(|against| against.point.as_ref());
        has(&claim.variant)
            && other.is_none_or(has)
            && sweep_of(&claim.at).is_none_or(|sweep| kept.contains(sweep))
            && point.is_none_or(|(sweep, _)| kept.contains(sweep))
    });
    for figure in &mut study.figures {
        figure.variants.retain(|name| has(name));
    }
    study.figures.retain(|figure| {
        !figure.variants.is_empty() && figure.content.sweep().is_none_or(|sweep| kept.contains(sweep))
    });
    study.cases = cases;
}

fn sweep_of(at: &ClaimAt) -> Option<&str> {
    match at {
        ClaimAt::Base => None,
        ClaimAt::Point(sweep, _) | ClaimAt::Every(sweep) | ClaimAt::Points(sweep, _) => Some(sweep),
    }
}

/// Cuts the trials so that all of them take [`QUICK`]. Claims are about whole runs and not judged.
fn shorten(study: &mut Study, console: Console) {
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
    console.say(format!("emulating {trials} trials, {how}: {:.0} s and more", seconds / f64::from(jobs)));
}
