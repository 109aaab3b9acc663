//! The part of the Python package `bandmaster` that simulates. Python's half is in `bandmaster/`: it opens files, asks executors
//! and shows results.
//!
//! Whatever simulates has let go of the interpreter, and code in Python that a simulation calls takes it for that call only.

mod congestion;
mod controller;
mod network;
mod observation;
mod out;
mod run;
mod table;

use bandmaster::embed::Error;
use bandmaster_core::report::metric;
use pyo3::prelude::*;

/// An exception of `bandmaster/_errors.py`.
fn exception(py: Python<'_>, error: Error) -> PyErr {
    let made = || {
        let errors = py.import("bandmaster._errors")?;
        match error {
            Error::Scenario(all) => {
                let problem = |error: &bandmaster_core::scenario::Error| {
                    let error = error.clone();
                    (error.file, error.line, error.column, error.path, error.message, error.hint)
                };
                let problems: Vec<_> = all.iter().map(problem).collect();
                errors.getattr("ScenarioError")?.call1((all.to_string(), problems))
            }
            Error::Usage(why) => errors.getattr("UsageError")?.call1((why,)),
            Error::Failed(why) => errors.getattr("RunError")?.call1((why,)),
        }
    };
    made().map_or_else(|error| error, PyErr::from_value)
}

/// The text of a metric's axis, and the least and the most that the metric can be.
#[pyfunction]
fn metric_axis(name: &str) -> (String, f64, f64) {
    let [least, most] = metric::range(name);
    (metric::label(name).axis(), least, most)
}

#[pymodule]
mod _bandmaster {
    #[pymodule_export]
    use super::metric_axis;
    #[pymodule_export]
    use crate::congestion::{Ack, Window};
    #[pymodule_export]
    use crate::controller::overdue;
    #[pymodule_export]
    use crate::network::Network;
    #[pymodule_export]
    use crate::observation::{
        Carried, Counted, Flow, FlowEnded, FlowMoved, FlowStarted, Joined, Left, Message, Port, ProbeCame,
        ProbeLeft, Refused, Sent, Tick,
    };
    #[pymodule_export]
    use crate::out::Out;
    #[pymodule_export]
    use crate::run::{Gathering, Run};
    #[pymodule_export]
    use crate::table::Table;

    #[pymodule_export]
    const VERSION: &str = env!("CARGO_PKG_VERSION");
}
