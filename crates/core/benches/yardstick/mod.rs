//! What the benches of the workspace measure with: processor time, and a loop of fixed work that machines compare by.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hint::black_box;
use std::time::Instant;

use serde_json::{Value, json};

/// Events pending in the reference loop.
const PENDING: u32 = 256;

/// The reference loop: takes the first of some pending events and schedules the next, `steps` times.
pub(crate) fn reference(steps: u32) -> u64 {
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut draw = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % 1_000_000
    };
    let mut pending: BinaryHeap<Reverse<(u64, u32)>> = (0..PENDING).map(|i| Reverse((draw(), i))).collect();
    let mut sum = 0_u64;
    for _ in 0..steps {
        let Some(Reverse((at, id))) = pending.pop() else { break };
        sum = sum.wrapping_add(at);
        pending.push(Reverse((at + draw(), id)));
    }
    sum
}

/// Runs `work` and says how long that took: this thread's CPU time where Linux states it.
pub(crate) fn seconds<T>(work: impl FnOnce() -> T) -> (f64, T) {
    let (clock, before) = (Instant::now(), cpu_nanos());
    let result = black_box(work());
    let time = match (before, cpu_nanos()) {
        (Some(before), Some(after)) if after > before => (after - before) as f64 * 1e-9,
        _ => clock.elapsed().as_secs_f64(),
    };
    (time, result)
}

fn cpu_nanos() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split_whitespace().next()?.parse().ok()
}

pub(crate) fn processor() -> Value {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split(": ").nth(1));
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    json!({ "model": model, "cores": cores })
}

/// Median, least and most.
pub(crate) fn spread(mut values: Vec<f64>) -> Value {
    values.sort_by(f64::total_cmp);
    json!({ "median": values[values.len() / 2], "min": values[0], "max": values[values.len() - 1] })
}
