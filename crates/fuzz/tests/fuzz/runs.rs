//! Whole runs of scenarios that the schema allows.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bandmaster_core::memory::{MOST_BYTES, most};
use bandmaster_core::scenario::{Options, Study, parse, whole_schema};
use bandmaster_core::scheme::REGISTRY;
use bandmaster_fuzz::{Memory, RUNS, Schema, Source, Target, processor_time, turn};
use bandmaster_sim::{RunError, RunOptions, run};
use serde_json::{Value, json};

use super::tree::{SCENARIOS, Shelf, files};

/// After so long a run is asked to stop. It then has to.
const PATIENCE: Duration = Duration::from_millis(300);
/// Most processor time between the two: a busy machine runs something else meanwhile, and what hangs without using any ends the test.
const STOPS: Duration = Duration::from_secs(2);
const DURATIONS: [&str; 8] = ["1ns", "1us", "1ms", "10ms", "100ms", "300ms", "2s", "525600min"];
/// Nodes of a scenario that others are made from.
const MOST_NODES: usize = 120;

static STOP: AtomicBool = AtomicBool::new(false);
/// When the present run began, in milliseconds; 0: none runs.
static BEGAN: AtomicU64 = AtomicU64::new(0);

fn read(text: &str, shelf: &Shelf) -> Option<Study> {
    parse("x.toml", text, &Options { files: Some(shelf), ..Options::default() }).ok()
}

/// Shipped scenarios, as their base, a second long.
fn bases(shelf: &Shelf) -> Vec<Value> {
    let mut bases = Vec::new();
    for (path, bytes) in files(&SCENARIOS, "toml") {
        let text = String::from_utf8(bytes).expect("text");
        let mut value: Value = toml::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let top = value.as_object_mut().expect("a table");
        for key in ["compare", "sweeps", "claims", "figures"] {
            top.remove(key);
        }
        if let Some(measure) = top.get_mut("measure").and_then(Value::as_object_mut) {
            measure.remove("windows");
        }
        shorten(&mut value, "1s");
        let study = read(&toml::to_string(&value).expect("TOML"), shelf);
        if study.is_some_and(|study| study.cases[0].scenario.topology.nodes.len() <= MOST_NODES) {
            bases.push(value);
        }
    }
    assert!(bases.len() >= 15, "{} scenarios", bases.len());
    bases
}

fn shorten(value: &mut Value, duration: &str) {
    value["run"]["duration"] = json!(duration);
    value["run"]["trials"] = json!(1);
    let run = value["run"].as_object_mut().expect("a table");
    run.remove("warm-up");
    run.remove("sample");
}

/// Runs that are valid and end, fail or are stopped: none panics or hangs, every packet has one fate (the simulator looks),
/// and none takes more memory than [`most`] says.
#[test]
fn runs_drawn_from_the_schema() {
    let turn = turn();
    let shelf = Shelf::new();
    let (schema, bases) = (Schema(whole_schema(REGISTRY)), bases(&shelf));
    let last = RefCell::new(None);
    let make = |source: &mut Source| {
        for _ in 0..50 {
            let mut value = source.pick(&bases).clone();
            for _ in 0..=source.below(6) {
                schema.change(source, &mut value, &bases);
            }
            if source.below(10) < 6 {
                shorten(&mut value, DURATIONS[source.below(DURATIONS.len())]);
            }
            let Ok(text) = toml::to_string(&value) else { continue };
            // Whatever this panics with, the parser's own target finds too.
            if let Some(study) = read(&text, &shelf) {
                *last.borrow_mut() = Some(study);
                return text.into_bytes();
            }
        }
        Vec::new()
    };
    let (finished, stopped, failed) = (Cell::new(0), Cell::new(0), Cell::new(0));
    let count = |of: &Cell<u64>| of.set(of.get() + 1);
    let read_one = |input: &[u8]| {
        let study = last.take().or_else(|| read(&String::from_utf8_lossy(input), &shelf));
        let Some(study) = study else { return };
        let scenario = &study.cases[0].scenario;
        STOP.store(false, Ordering::Relaxed);
        BEGAN.store(millis(), Ordering::Relaxed);
        let memory = Memory::now();
        let began = processor_time();
        let result = run(scenario, 0, 0, &mut RunOptions { stop: Some(&STOP), ..RunOptions::default() });
        BEGAN.store(0, Ordering::Relaxed);
        let took = processor_time() - began;
        match result {
            Ok(_) => count(&finished),
            Err(RunError::Stopped) => count(&stopped),
            Err(RunError::Unrunnable(_) | RunError::Failed(_)) => count(&failed),
        }
        assert!(took < PATIENCE + STOPS, "does not stop");
        let (grown, most) = (memory.grown(), most(scenario));
        assert!(grown <= most, "takes {} MiB of memory, allowed are {} MiB", grown >> 20, most >> 20);
    };
    thread::spawn(|| {
        loop {
            thread::sleep(Duration::from_millis(20));
            let began = BEGAN.load(Ordering::Relaxed);
            if began > 0 && millis().saturating_sub(began) > PATIENCE.as_millis() as u64 {
                STOP.store(true, Ordering::Relaxed);
            }
        }
    });
    Target { name: "run", inputs: (RUNS, 250), memory: MOST_BYTES, make: &make, read: &read_one }.fuzz(&turn);
    println!("{} finished, {} stopped, {} failed", finished.get(), stopped.get(), failed.get());
    assert!(finished.get() > 0 && stopped.get() > 0, "nothing finished, or nothing was stopped");
}

fn millis() -> u64 {
    static FIRST: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    FIRST.get_or_init(Instant::now).elapsed().as_millis() as u64 + 1
}
