//! One trial on several threads.
//!
//! The parts of a network are simulated at the same time, window by window. A window is as long as the least delay between
//! two parts, so nothing that happens in it reaches another part before its end. Between two windows one thread does what
//! concerns the whole: it samples, begins rounds, and finds where the next window begins. Neither the parts nor the windows depend
//! on the number of threads, and a part takes what others have for it in the order of their numbers, so any number gives the same bytes.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{hint, panic, thread};

use bandmaster_core::memory;
use bandmaster_core::report::RunRecord;
use bandmaster_core::scenario::Scenario;
use bandmaster_core::time::{Span, Time};

use crate::build::{Wanted, build};
use crate::simulation::{Mail, Simulation};
use crate::{RunError, RunOptions};

/// Looks at what others do before a thread lets go of its core.
const SPINS: u32 = 1 << 12;
/// Windows between two looks at the caller's stop flag.
const STOP_CHECK: u64 = 1 << 6;

/// Runs one trial of a scenario that is divided into parts.
pub(crate) fn run(
    scenario: &Scenario,
    case: usize,
    trial: u32,
    options: &mut RunOptions<'_>,
) -> Result<RunRecord, RunError> {
    let mut parts = build_parts(scenario, trial, options)?;
    for part in &mut parts {
        part.begin_outages(options)?;
        part.schedule_start();
    }
    let threads = options.threads.clamp(1, parts.len());
    let end = Time::ZERO + scenario.run.duration;
    let crew = Crew::new(parts, threads);
    thread::scope(|scope| {
        let crew = &crew;
        let helpers: Vec<_> =
            (1..threads).map(|number| scope.spawn(move || crew.help(number, threads))).collect();
        let outcome = {
            // Whatever happens to this thread, the others end.
            let _end = Dismissal(crew);
            Coordinator::new(crew, scenario, end).run(options)
        };
        // A panic goes on here, with what it says.
        if let Some(payload) = helpers.into_iter().find_map(|helper| helper.join().err()) {
            panic::resume_unwind(payload);
        }
        outcome
    })?;
    let mut parts = crew.into_parts();
    let mut whole = Simulation::merge(&mut parts, end, options)
        .ok_or_else(|| RunError::Failed("a network without parts".into()))?;
    whole.finish_flows(options);
    Ok(whole.record(case, trial))
}

/// How a network is divided for `run.partitions`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Division {
    /// The parts: at most as many as the scenario asks for.
    pub parts: usize,
    /// What happens in one part reaches another after this time at the earliest; none: there is one part.
    pub window: Option<Span>,
}

/// How the network of a trial is divided.
///
/// # Errors
/// When the scenario asks for what the simulator cannot do.
pub fn division(scenario: &Scenario, trial: u32) -> Result<Division, RunError> {
    let first = build(scenario, trial, &Wanted::First, &RunOptions::default())?;
    let parts = first.part.as_ref().map_or(1, |part| part.all.parts);
    Ok(Division { parts, window: lookahead(&first) })
}

/// How long a window may be.
fn lookahead(first: &Simulation<'_>) -> Option<Span> {
    let lookahead = first.part.as_ref()?.all.lookahead?;
    // Messages between roles in different parts take so long.
    let messages = (!first.control.runner.is_empty()).then_some(first.scenario.control.delay);
    Some(messages.map_or(lookahead, |delay| delay.min(lookahead)))
}

fn build_parts<'s>(
    scenario: &'s Scenario,
    trial: u32,
    options: &RunOptions<'_>,
) -> Result<Vec<Simulation<'s>>, RunError> {
    let first = build(scenario, trial, &Wanted::First, options)?;
    let mut parts = vec![first];
    let all = parts[0].part.as_ref().map_or(1, |part| part.all.parts);
    for number in 1..all {
        let part = build(scenario, trial, &Wanted::Another(&parts[0], number), options)?;
        parts.push(part);
    }
    Ok(parts)
}

/// The parts, and what the threads that simulate them share.
struct Crew<'s> {
    threads: usize,
    parts: Vec<Mutex<Simulation<'s>>>,
    /// By turn of the windows, receiver and sender: what waits.
    mail: [Vec<Vec<Mutex<Mail>>>; 2],
    /// By part: when its next event is, in nanoseconds.
    next: Vec<AtomicU64>,
    /// Number of the present window, and by part of the last one that somebody has taken it for.
    window: AtomicU64,
    taken: Vec<AtomicU64>,
    /// Where the last window ended and this one ends in nanoseconds, and its parts that are done.
    from: AtomicU64,
    limit: AtomicU64,
    done: AtomicUsize,
    is_over: AtomicBool,
    has_failed: AtomicBool,
}

/// Ends the work of all threads when it goes.
struct Dismissal<'c, 's>(&'c Crew<'s>);

impl Drop for Dismissal<'_, '_> {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::Release);
    }
}

/// Tells of a panic.
struct Alarm<'c>(&'c AtomicBool);

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.store(true, Ordering::Release);
        }
    }
}

impl<'s> Crew<'s> {
    fn new(parts: Vec<Simulation<'s>>, threads: usize) -> Self {
        let count = parts.len();
        let boxes =
            || (0..count).map(|_| (0..count).map(|_| Mutex::new(Mail::default())).collect()).collect();
        let next = parts.iter().map(|part| AtomicU64::new(nanos(part.net.events.next_at()))).collect();
        Self {
            threads,
            parts: parts.into_iter().map(Mutex::new).collect(),
            mail: [boxes(), boxes()],
            next,
            window: AtomicU64::new(0),
            taken: (0..count).map(|_| AtomicU64::new(0)).collect(),
            from: AtomicU64::new(0),
            limit: AtomicU64::new(0),
            done: AtomicUsize::new(0),
            is_over: AtomicBool::new(false),
            has_failed: AtomicBool::new(false),
        }
    }

    fn into_parts(self) -> Vec<Simulation<'s>> {
        self.parts.into_iter().map(|part| part.into_inner().unwrap_or_else(PoisonError::into_inner)).collect()
    }

    /// Simulates parts of every window until all is over; this is thread `number` of `threads`.
    fn help(&self, number: usize, threads: usize) {
        let _alarm = Alarm(&self.has_failed);
        let (mut last, mut spins) = (0, 0);
        while !self.is_over.load(Ordering::Acquire) {
            let window = self.window.load(Ordering::Acquire);
            if window == last {
                wait(&mut spins);
                continue;
            }
            self.simulate(window, number, threads);
            (last, spins) = (window, 0);
        }
    }

    /// Simulates parts of a window that nobody has taken: first those that this thread had in the windows before, whose data are in
    /// its core's cache, then others.
    fn simulate(&self, window: u64, number: usize, threads: usize) {
        let all = 0..self.parts.len();
        let own = all.clone().filter(|part| part % threads == number);
        for part in own.chain(all.filter(|part| part % threads != number)) {
            let taken = &self.taken[part];
            if taken.compare_exchange(window - 1, window, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                self.simulate_part(part, window);
                self.done.fetch_add(1, Ordering::AcqRel);
            }
        }
    }

    fn simulate_part(&self, number: usize, window: u64) {
        let mut part = lock(&self.parts[number]);
        let limit = Time::from_nanos(self.limit.load(Ordering::Acquire));
        let from = Time::from_nanos(self.from.load(Ordering::Acquire));
        self.take_mail(number, window - 1, from, &mut part);
        part.drive_before(limit);
        let mut next = nanos(part.net.events.next_at());
        if let Some(own) = &mut part.part {
            for (to, mail) in own.out.iter_mut().enumerate() {
                if !mail.is_empty() {
                    next = next.min(nanos(mail.first(limit)));
                    std::mem::swap(&mut *lock(&self.mail[(window % 2) as usize][to][number]), mail);
                }
            }
        }
        self.next[number].store(next, Ordering::Release);
    }

    /// Hands a part what others sent it in window `window`.
    fn take_mail(&self, number: usize, window: u64, now: Time, part: &mut Simulation<'s>) {
        let boxes = &self.mail[(window % 2) as usize][number];
        let mut mail: Vec<MutexGuard<'_, Mail>> = boxes.iter().map(lock).collect();
        if mail.iter().any(|mail| !mail.is_empty()) {
            part.take_mail(now, mail.iter_mut().map(|mail| &mut **mail));
        }
    }

    /// Has all parts simulated up to `limit`; this thread works too.
    fn simulate_window(&self, window: u64, limit: Time) -> Result<(), RunError> {
        self.from.store(self.limit.load(Ordering::Acquire), Ordering::Release);
        self.limit.store(limit.as_nanos(), Ordering::Release);
        self.done.store(0, Ordering::Release);
        self.window.store(window, Ordering::Release);
        self.simulate(window, 0, self.threads);
        let mut spins = 0;
        while self.done.load(Ordering::Acquire) < self.parts.len() {
            if self.has_failed.load(Ordering::Acquire) {
                return Err(RunError::Failed("a thread of the simulation has failed".into()));
            }
            wait(&mut spins);
        }
        Ok(())
    }
}

fn wait(spins: &mut u32) {
    *spins += 1;
    if *spins < SPINS {
        hint::spin_loop();
    } else {
        thread::yield_now();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn nanos(at: Option<Time>) -> u64 {
    at.map_or(u64::MAX, Time::as_nanos)
}

/// Does what concerns all parts.
struct Coordinator<'c, 's> {
    crew: &'c Crew<'s>,
    scenario: &'c Scenario,
    end: Time,
    lookahead: Span,
    next_sample: Time,
    /// By exchange: the end of the present round is noted.
    is_noted: Vec<bool>,
}

impl<'c, 's> Coordinator<'c, 's> {
    fn new(crew: &'c Crew<'s>, scenario: &'c Scenario, end: Time) -> Self {
        let first = lock(&crew.parts[0]);
        let lookahead = lookahead(&first).unwrap_or(Span::MAX);
        let is_noted = vec![false; first.exchanges.len()];
        let next_sample = Time::ZERO + scenario.run.sample;
        Self { crew, scenario, end, lookahead, next_sample, is_noted }
    }

    /// Runs to the end of the scenario.
    fn run(&mut self, options: &mut RunOptions<'_>) -> Result<(), RunError> {
        // Events at the end still happen.
        let last = self.end + Span::from_nanos(1);
        for window in 1.. {
            let next = self.crew.next.iter().map(|next| next.load(Ordering::Acquire)).min();
            let from = Time::from_nanos(next.unwrap_or(u64::MAX)).min(self.next_sample);
            if from > self.end {
                break;
            }
            // A sample comes after what else happens at its moment.
            let limit = (from + self.lookahead).min(self.next_sample + Span::from_nanos(1)).min(last);
            self.crew.simulate_window(window, limit)?;
            if window % STOP_CHECK == 0 {
                self.may_go_on(limit, options)?;
            }
            self.settle(limit, options)?;
        }
        Ok(())
    }

    /// Between two windows: begins rounds, makes rows, samples.
    fn settle(&mut self, limit: Time, options: &mut RunOptions<'_>) -> Result<(), RunError> {
        let mut guards: Vec<MutexGuard<'_, Simulation<'s>>> = self.crew.parts.iter().map(lock).collect();
        let mut parts: Vec<&mut Simulation<'s>> = guards.iter_mut().map(|guard| &mut **guard).collect();
        for part in &mut parts {
            if let Some(why) = part.part.as_mut().and_then(|part| part.failure.take()) {
                return Err(why);
            }
        }
        Simulation::settle_transfers(&mut parts);
        self.begin_rounds(&mut parts, limit);
        if limit > self.next_sample {
            let now = self.next_sample;
            Simulation::settle_turns(&mut parts);
            Simulation::settle_shown(&mut parts);
            Simulation::sample_all(&mut parts, now);
            for part in &mut parts {
                part.flush_capture_at(now, options);
            }
            Simulation::flush_all_flows(&mut parts, options);
            self.next_sample = now + self.scenario.run.sample;
        }
        Ok(())
    }

    /// Begins the rounds of incasts and exchanges that follow those which are over.
    fn begin_rounds(&mut self, parts: &mut [&mut Simulation<'s>], limit: Time) {
        let mut has_begun = false;
        let mut over: Vec<(u32, Time)> = parts.iter_mut().flat_map(|part| part.rounds.take_over()).collect();
        over.sort_unstable();
        for (series, now) in over {
            parts.iter_mut().for_each(|part| part.begin_series(series, now, limit));
            has_begun = true;
        }
        for number in 0..self.is_noted.len() {
            let progress = parts.iter().map(|part| part.exchanges.progress(number));
            let (mut came, mut acknowledged, mut all) = ((0, Time::ZERO), (0, Time::ZERO), 0);
            for own in progress {
                all = own.all;
                came = (came.0 + own.came.0, own.came.1.max(came.1));
                acknowledged = (acknowledged.0 + own.acknowledged.0, own.acknowledged.1.max(acknowledged.1));
            }
            if came.0 == all && !self.is_noted[number] {
                parts[0].exchanges.end_round(number, came.1);
                self.is_noted[number] = true;
            }
            if acknowledged.0 == all {
                let begins = parts.iter_mut().map(|part| part.begin_exchange(number, acknowledged.1, limit));
                if begins.fold(false, |any, begins| any | begins) {
                    self.is_noted[number] = false;
                    has_begun = true;
                }
            }
        }
        if has_begun {
            for (part, next) in parts.iter().zip(&self.crew.next) {
                next.fetch_min(nanos(part.net.events.next_at()), Ordering::AcqRel);
            }
        }
    }

    /// Looks whether the caller wants no more, or packets pile up without end.
    fn may_go_on(&self, now: Time, options: &RunOptions<'_>) -> Result<(), RunError> {
        options.goes_on()?;
        let packets: usize = self.crew.parts.iter().map(|part| lock(part).net.slab.live()).sum();
        if packets as u64 > memory::MOST_PACKETS {
            return Err(RunError::Failed(format!(
                "more than {} packets wait at {now}: an unlimited queue is sent more than it can carry",
                memory::MOST_PACKETS
            )));
        }
        Ok(())
    }
}
