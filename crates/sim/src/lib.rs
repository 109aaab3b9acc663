//! Packet-level discrete-event runtime of bandmaster.
//!
//! [`run`] turns a scenario and a trial number into a record, the same bytes every time. Reading order: `simulation`
//! (the world and its loop), `net` and `link` (packets), `tcp`.

mod build;
mod capture;
mod distributions;
mod events;
mod exchange;
mod gates;
mod link;
mod net;
mod outages;
mod packet;
mod parallel;
mod partition;
mod probes;
mod routes;
mod simulation;
mod tcp;
mod workload;

pub use tcp::cc::foreign::{
    Acknowledgement, ForeignControl, bring_congestion_control, take_congestion_control_back,
};
pub use tcp::cc::{CongestionControlDef, REGISTRY as CONGESTION_CONTROLS};

pub use parallel::{Division, division};

use std::sync::atomic::{AtomicBool, Ordering};

use bandmaster_core::capture::CapturedPacket;
use bandmaster_core::report::RunRecord;
use bandmaster_core::report::flow::FlowRecord;
use bandmaster_core::scenario::Scenario;

/// A port (`from->to`) and what takes the packets that are handed to its transmitter.
pub type Capture<'a> = (&'a str, &'a mut dyn FnMut(&CapturedPacket));

/// How to run, beyond what the scenario says.
#[derive(Default)]
pub struct RunOptions<'a> {
    /// Set from outside to end the run early with [`RunError::Stopped`].
    pub stop: Option<&'a AtomicBool>,
    /// Packets to hand out.
    pub capture: Option<Capture<'a>>,
    /// What takes a row for each flow, in the same order every time.
    pub flows: Option<&'a dyn Fn(FlowRecord)>,
    /// Threads that simulate the parts of a network that a scenario divides (`run.partitions`); 0 counts as 1. The record
    /// does not depend on it.
    pub threads: usize,
}

impl RunOptions<'_> {
    /// An error when the caller wants no more.
    pub(crate) fn goes_on(&self) -> Result<(), RunError> {
        let is_stopped = self.stop.is_some_and(|stop| stop.load(Ordering::Relaxed));
        if is_stopped { Err(RunError::Stopped) } else { Ok(()) }
    }
}

/// Why a run gives no record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RunError {
    /// The caller asked to stop.
    Stopped,
    /// The scenario cannot run; the text says why.
    Unrunnable(String),
    /// The run was given up; the text says why.
    Failed(String),
}

impl core::fmt::Display for RunError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Stopped => f.write_str("stopped"),
            Self::Unrunnable(why) | Self::Failed(why) => f.write_str(why),
        }
    }
}

impl core::error::Error for RunError {}

/// Runs one trial of a scenario. `case` is copied into the record.
///
/// # Errors
/// When stopped, when the scenario asks for what the simulator cannot do, or when more than
/// [`MOST_PACKETS`](bandmaster_core::memory::MOST_PACKETS) packets are on their way.
pub fn run(
    scenario: &Scenario,
    case: usize,
    trial: u32,
    options: &mut RunOptions<'_>,
) -> Result<RunRecord, RunError> {
    if scenario.run.partitions > 1 {
        return parallel::run(scenario, case, trial, options);
    }
    build::build(scenario, trial, &build::Wanted::Whole, options)?.run(case, trial, options)
}
