//! Every trial of every case on all cores, with results in the same order for any number of threads.

use std::any::Any;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, Once, PoisonError};
use std::thread;

use bandmaster_core::report::RunRecord;
use bandmaster_core::scenario::{Case, FlowGroup, Pairing, Scenario, Study};
use bandmaster_core::topology::Topology;
use bandmaster_sim::RunError;
use serde::{Deserialize, Serialize};

use crate::progress::Progress;

/// One trial of one case of one study.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job<'a> {
    /// Position of the study.
    pub(crate) study: usize,
    /// Position of the case in the study.
    pub(crate) case: usize,
    /// Trial number from 0.
    pub(crate) trial: u32,
    /// What to run.
    pub(crate) scenario: &'a Scenario,
    /// Threads that it may use.
    pub(crate) threads: usize,
    weight: u64,
}

/// Trials at the same time, and threads for each; none: as many as have nothing else to do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cores {
    pub(crate) jobs: NonZeroUsize,
    pub(crate) each: Option<NonZeroUsize>,
}

impl From<NonZeroUsize> for Cores {
    fn from(jobs: NonZeroUsize) -> Self {
        Self { jobs, each: None }
    }
}

impl Cores {
    /// Threads for a trial while `open` have not ended, it among them.
    fn for_one(self, open: usize) -> usize {
        self.each
            .unwrap_or_else(|| NonZeroUsize::new(self.jobs.get() / open.max(1)).unwrap_or(NonZeroUsize::MIN))
            .get()
    }
}

/// A trial: study, case, trial.
pub(crate) type TrialKey = (usize, usize, u32);

impl Job<'_> {
    /// Which trial it is.
    pub(crate) fn key(&self) -> TrialKey {
        (self.study, self.case, self.trial)
    }

    /// Its work, in the unit of the progress bar.
    pub(crate) fn weight(&self) -> u64 {
        self.weight
    }
}

/// Why a trial has no record.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum TrialError {
    /// The runtime cannot run the scenario.
    Unrunnable(String),
    /// Something failed on the way.
    Failed(String),
    /// The program has a bug: place and message.
    Panicked(String),
}

/// The record of a trial; none when it was asked to stop.
pub(crate) type TrialResult = Result<Option<RunRecord>, TrialError>;

/// The result of a simulation.
pub(crate) fn simulated(result: Result<RunRecord, RunError>) -> TrialResult {
    match result {
        Ok(record) => Ok(Some(record)),
        Err(RunError::Stopped) => Ok(None),
        Err(RunError::Unrunnable(why)) => Err(TrialError::Unrunnable(why)),
        Err(RunError::Failed(why)) => Err(TrialError::Failed(why)),
    }
}

/// Results of all jobs.
#[derive(Debug)]
pub(crate) struct Outcome<'a> {
    /// By study: its records, ordered by case and trial.
    pub(crate) records: Vec<Vec<RunRecord>>,
    /// Failed trials in the same order, and why.
    pub(crate) failed: Vec<(Job<'a>, TrialError)>,
    /// Number of trials that were asked for.
    pub(crate) planned: usize,
    /// True when the stop flag ended the work early.
    pub(crate) stopped: bool,
}

impl<'a> Outcome<'a> {
    /// Of no job yet.
    pub(crate) fn new(studies: usize, planned: usize) -> Self {
        let records = (0..studies).map(|_| Vec::new()).collect();
        Self { records, failed: Vec::new(), planned, stopped: false }
    }

    /// Takes what the next job gave, if it has ended.
    pub(crate) fn push(&mut self, job: Job<'a>, result: Option<Result<RunRecord, TrialError>>) {
        match result {
            Some(Ok(record)) => self.records[job.study].push(record),
            Some(Err(why)) => self.failed.push((job, why)),
            None => self.stopped = true,
        }
    }

    /// Number of trials with a record.
    pub(crate) fn finished(&self) -> usize {
        self.records.iter().map(Vec::len).sum()
    }
}

/// Every job of the studies, ordered by study, case and trial.
pub(crate) fn plan<'a>(studies: impl IntoIterator<Item = &'a Study>) -> Vec<Job<'a>> {
    let of_case = |study: usize, case: usize, Case { scenario, .. }: &'a Case| {
        let weight = weight(scenario);
        (0..scenario.run.trials).map(move |trial| Job { study, case, trial, scenario, threads: 1, weight })
    };
    let of_study = |(study, content): (usize, &'a Study)| {
        content.cases.iter().enumerate().flat_map(move |(case, content)| of_case(study, case, content))
    };
    studies.into_iter().enumerate().flat_map(of_study).collect()
}

/// The work of all jobs, in the unit of the progress bar.
pub(crate) fn total_weight(jobs: &[Job<'_>]) -> u64 {
    jobs.iter().map(|job| job.weight).sum()
}

/// Positions of jobs, heavy ones first.
fn heavy_first(jobs: &[Job<'_>]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..jobs.len()).collect();
    order.sort_by_key(|&index| std::cmp::Reverse(jobs[index].weight));
    order
}

/// The shard from 0 that each job is in, of `shards` with about the same work.
pub(crate) fn shards(jobs: &[Job<'_>], shards: u32) -> Vec<u32> {
    let mut shard = vec![0; jobs.len()];
    for (index, next) in heavy_first(jobs).into_iter().zip((0..shards).cycle()) {
        shard[index] = next;
    }
    shard
}

/// Runs `jobs` by `run_trial`, so many at the same time, heavy ones first, until all are done or `stop` is set. Those that
/// are in `done` are not run again. A trial that panics is a failed trial, not the end of the program.
pub(crate) fn run_all<'a, F>(
    jobs: &[Job<'a>],
    studies: usize,
    mut done: BTreeMap<TrialKey, Result<RunRecord, TrialError>>,
    cores: Cores,
    stop: &AtomicBool,
    progress: &Progress,
    run_trial: F,
) -> Outcome<'a>
where
    F: Fn(&Job<'_>) -> TrialResult + Sync,
{
    catch_trial_panics();
    let results: Vec<Mutex<Option<Result<RunRecord, TrialError>>>> =
        jobs.iter().map(|job| Mutex::new(done.remove(&job.key()))).collect();
    let mut heavy_first = heavy_first(jobs);
    heavy_first.retain(|&index| {
        let is_open = results[index].lock().unwrap_or_else(PoisonError::into_inner).is_none();
        if !is_open {
            progress.advance(jobs[index].weight);
        }
        is_open
    });
    let (next, ended) = (AtomicUsize::new(0), AtomicUsize::new(0));

    let work = || {
        while !stop.load(Ordering::Relaxed) {
            let Some(&index) = heavy_first.get(next.fetch_add(1, Ordering::Relaxed)) else { return };
            let threads = cores.for_one(heavy_first.len() - ended.load(Ordering::Relaxed));
            let job = &Job { threads, ..jobs[index] };
            let Some(result) = unpanicked(|| run_trial(job)).transpose() else { return };
            *results[index].lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
            progress.advance(job.weight);
            ended.fetch_add(1, Ordering::Relaxed);
        }
    };
    thread::scope(|scope| {
        for _ in 0..cores.jobs.get().min(heavy_first.len()) {
            scope.spawn(work);
        }
    });

    let mut outcome = Outcome::new(studies, jobs.len());
    for (job, result) in jobs.iter().zip(results) {
        outcome.push(*job, result.into_inner().unwrap_or_else(PoisonError::into_inner));
    }
    outcome
}

/// Flows times simulated milliseconds: enough to start the long ones first.
fn weight(scenario: &Scenario) -> u64 {
    let flows: u64 = scenario.flows.iter().map(|group| flow_count(group, &scenario.topology)).sum();
    (flows.max(1)).saturating_mul(scenario.run.duration.as_nanos() / 1_000_000).max(1)
}

/// Number of flows of a group.
pub(crate) fn flow_count(group: &FlowGroup, topology: &Topology) -> u64 {
    let hosts =
        |names: &[String]| -> Vec<_> { names.iter().filter_map(|n| topology.members(n)).flatten().collect() };
    let (senders, receivers) = (hosts(&group.from), hosts(&group.to));
    if let Some(list) = &group.list {
        return list.len() as u64;
    }
    if group.arrivals.is_some() {
        return senders.len() as u64;
    }
    let pairs = match group.pairing {
        Pairing::OneToOne | Pairing::Permutation => senders.len(),
        Pairing::AllToAll => {
            senders.iter().map(|sender| receivers.iter().filter(|receiver| *receiver != sender).count()).sum()
        }
        Pairing::Exchange => senders.len() * senders.len().saturating_sub(1),
    };
    pairs as u64 * u64::from(group.count)
}

thread_local! {
    /// The panic of the trial that this thread runs; none outside trials.
    static TRIAL_PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Keeps a trial's panic for its failure message; any other panic is shown as usual.
fn catch_trial_panics() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let kept = TRIAL_PANIC.with_borrow_mut(|slot| {
                slot.as_mut().map(|text| {
                    let place = info.location().map(|l| format!("{l}: ")).unwrap_or_default();
                    *text = format!("{place}{}", panic_message(info.payload()));
                })
            });
            if kept.is_none() {
                usual(info);
            }
        }));
    });
}

fn panic_message(payload: &dyn Any) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

/// What the trial gives; a panic is an error like others.
pub(crate) fn unpanicked(trial: impl FnOnce() -> TrialResult) -> TrialResult {
    TRIAL_PANIC.set(Some(String::new()));
    // A trial's whole state is made inside it, so nothing half-changed can be seen after a panic.
    let result = catch_unwind(AssertUnwindSafe(trial));
    let panic = TRIAL_PANIC.take().unwrap_or_default();
    result.unwrap_or(Err(TrialError::Panicked(panic)))
}

#[cfg(test)]
mod tests {
    use bandmaster_core::report::Work;
    use bandmaster_core::scenario::{Options, parse};

    use super::*;

    /// Two cases of three trials each; the second case has twice the flows.
    fn study() -> Study {
        let text = r#"
            version = 1
            name = "two-points"
            [run]
            duration = "1s"
            trials = 3
            [network]
            builder = "dumbbell"
            left = 2
            right = 2
            [network.link]
            rate = "10mbit"
            delay = "1ms"
            [[flows]]
            name = "bulk"
            from = "left"
            to = "right"
            [[sweeps]]
            name = "count"
            key = "flows.bulk.count"
            values = [1, 2]
        "#;
        parse("two-points.toml", text, &Options::default()).expect("a valid scenario")
    }

    fn record(job: &Job<'_>) -> RunRecord {
        RunRecord {
            case: job.case,
            trial: job.trial,
            metrics: Vec::new(),
            series: Vec::new(),
            distributions: Vec::new(),
            sample: job.scenario.run.sample,
            work: Work::default(),
        }
    }

    fn threads(n: usize) -> NonZeroUsize {
        NonZeroUsize::new(n).expect("not zero")
    }

    fn run<'a, F>(jobs: &[Job<'a>], n: usize, stop: &AtomicBool, run_trial: F) -> Outcome<'a>
    where
        F: Fn(&Job<'_>) -> TrialResult + Sync,
    {
        let progress = Progress::new(jobs.len(), total_weight(jobs), false);
        run_all(jobs, 2, BTreeMap::new(), threads(n).into(), stop, &progress, run_trial)
    }

    #[test]
    fn weights_count_the_flows_of_both_pairings() {
        let mut study = study();
        let mut scenario = study.cases.remove(1).scenario;
        assert_eq!(flow_count(&scenario.flows[0], &scenario.topology), 4);
        assert_eq!(weight(&scenario), 4_000);
        scenario.flows[0].pairing = Pairing::AllToAll;
        assert_eq!(flow_count(&scenario.flows[0], &scenario.topology), 8);
        scenario.flows[0].to = vec!["left".to_owned()];
        assert_eq!(flow_count(&scenario.flows[0], &scenario.topology), 4, "nobody sends to itself");
    }

    #[test]
    fn heavy_trials_start_first_and_records_come_in_order() {
        let study = study();
        let plan = plan([&study, &study]);
        assert_eq!(plan.len(), 12);
        let started = Mutex::new(Vec::new());
        let outcome = run(&plan, 1, &AtomicBool::new(false), |job| {
            started.lock().expect("no panic").push(job.case);
            Ok(Some(record(job)))
        });
        assert_eq!(started.into_inner().expect("no panic"), [1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0]);
        assert_eq!((outcome.finished(), outcome.planned, outcome.stopped), (12, 12, false));
        for records in &outcome.records {
            let order: Vec<(usize, u32)> = records.iter().map(|r| (r.case, r.trial)).collect();
            assert_eq!(order, [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]);
        }
        let parallel = run(&plan, 3, &AtomicBool::new(false), |job| Ok(Some(record(job))));
        assert_eq!(parallel.records, outcome.records);
    }

    #[test]
    fn a_panic_is_the_failure_of_its_trial_only() {
        let study = study();
        let plan = plan([&study]);
        let outcome = run(&plan, 2, &AtomicBool::new(false), |job| match (job.case, job.trial) {
            (0, 1) => panic!("cwnd of {} bytes", 0),
            (1, 2) => Err(TrialError::Unrunnable("no such wire".to_owned())),
            _ => Ok(Some(record(job))),
        });
        assert_eq!((outcome.finished(), outcome.planned, outcome.stopped), (4, 6, false));
        let [(first, first_why), (second, second_why)] = &outcome.failed[..] else {
            panic!("{:?}", outcome.failed)
        };
        assert_eq!((first.case, first.trial), (0, 1));
        let TrialError::Panicked(why) = first_why else { panic!("{first_why:?}") };
        assert!(why.contains("jobs.rs:") && why.ends_with("cwnd of 0 bytes"), "{why}");
        assert_eq!((second.case, second.trial), (1, 2));
        assert_eq!(*second_why, TrialError::Unrunnable("no such wire".to_owned()));
    }

    #[test]
    fn a_stop_keeps_what_has_finished() {
        let study = study();
        let plan = plan([&study]);
        let stop = AtomicBool::new(false);
        let outcome = run(&plan, 1, &stop, |job| {
            if (job.case, job.trial) == (1, 2) {
                stop.store(true, Ordering::Relaxed);
                return Ok(None);
            }
            Ok(Some(record(job)))
        });
        assert_eq!((outcome.finished(), outcome.failed.len(), outcome.stopped), (2, 0, true));
    }
}
