//! Packet-level discrete-event runtime of bandmaster.
//!
//! [`run`] turns a scenario and a trial number into a record, the same bytes every time. Reading order: `simulation`
//! (the world and its loop), `net` and `link` (packets), `tcp`, `roles` (schemes), `measure` (metrics).

mod build;
mod capture;
mod distributions;
mod events;
mod exchange;
mod gates;
mod link;
mod measure;
mod net;
mod packet;
mod probes;
mod rounds;
mod routes;
mod routing;
mod simulation;
mod tcp;
mod workload;

pub use tcp::cc::{CongestionControlDef, REGISTRY as CONGESTION_CONTROLS};

use std::sync::atomic::AtomicBool;

use bandmaster_core::capture::CapturedPacket;
use bandmaster_core::report::RunRecord;
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
}

/// Why a run gives no record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RunError {
    /// The caller asked to stop.
    Stopped,
    /// The scenario cannot run; the text says why.
    Unrunnable(String),
}

impl core::fmt::Display for RunError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Stopped => f.write_str("stopped"),
            Self::Unrunnable(why) => f.write_str(why),
        }
    }
}

impl core::error::Error for RunError {}

/// Runs one trial of a scenario. `case` is copied into the record.
///
/// # Errors
/// When stopped, or when the scenario asks for what the simulator cannot do.
pub fn run(
    scenario: &Scenario,
    case: usize,
    trial: u32,
    options: &mut RunOptions<'_>,
) -> Result<RunRecord, RunError> {
    let capture = options.capture.as_ref().map(|(port, _)| *port);
    build::build(scenario, trial, capture)?.run(case, trial, options)
}
