//! Congestion controls that are Python classes.
//!
//! The simulator makes an object of the class for each connection, and calls it as it calls its own controls.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use bandmaster_core::time::Span;
use bandmaster_sim::{
    Acknowledgement, ForeignControl, bring_congestion_control, take_congestion_control_back,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::controller::{Call, end_trial};

/// A class while runs use it.
struct Entry {
    class: Py<PyAny>,
    name: &'static str,
    id: &'static str,
    uses: usize,
}

static TAKEN: Mutex<Vec<Entry>> = Mutex::new(Vec::new());
static NUMBER: AtomicU64 = AtomicU64::new(0);

/// Classes that the simulator has until this goes.
#[derive(Default)]
pub(crate) struct Controls {
    ids: Vec<&'static str>,
    /// Their names in files, and those of the simulator.
    names: Vec<(&'static str, &'static str)>,
}

impl Controls {
    /// Brings `classes`, subclasses of `bandmaster.CongestionControl`, to the simulator.
    pub(crate) fn new(py: Python<'_>, classes: &[Py<PyAny>]) -> PyResult<Self> {
        let mut controls = Self::default();
        for class in classes {
            controls.add(class.bind(py))?;
        }
        Ok(controls)
    }

    /// For the reader of scenarios. They are few: what is made of them for a run stays.
    pub(crate) fn names(&self) -> &'static [(&'static str, &'static str)] {
        if self.names.is_empty() { &[] } else { self.names.clone().leak() }
    }

    fn add(&mut self, class: &Bound<'_, PyAny>) -> PyResult<()> {
        let name: String = class.getattr("name")?.extract()?;
        let is_built_in = bandmaster_sim::CONGESTION_CONTROLS.iter().any(|def| def.name == name);
        if is_built_in || self.names.iter().any(|(known, _)| *known == name) {
            let why = format!("there is a congestion control {name:?} already");
            return Err(PyValueError::new_err(why));
        }
        let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
        let known = taken.iter_mut().find(|entry| entry.class.is(class) && entry.name == name);
        let (name, id) = match known {
            Some(entry) => {
                entry.uses += 1;
                (entry.name, entry.id)
            }
            None => {
                let number = NUMBER.fetch_add(1, Ordering::Relaxed);
                let id: &'static str = Box::leak(format!("python-{number}").into());
                let name: &'static str = Box::leak(name.into());
                taken.push(Entry { class: class.clone().unbind(), name, id, uses: 1 });
                bring_congestion_control(id, move |mss| Box::new(control(id, mss)));
                (name, id)
            }
        };
        self.ids.push(id);
        self.names.push((name, id));
        Ok(())
    }
}

impl Drop for Controls {
    fn drop(&mut self) {
        let mut gone = Vec::new();
        let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
        for id in &self.ids {
            let Some(place) = taken.iter().position(|entry| entry.id == *id) else { continue };
            taken[place].uses -= 1;
            if taken[place].uses == 0 {
                take_congestion_control_back(id);
                gone.push(taken.swap_remove(place));
            }
        }
        // Python may run when its objects go.
        drop(taken);
        drop(gone);
    }
}

/// The control of a new connection.
fn control(id: &str, mss: u64) -> Control {
    let made = Python::attach(|py| {
        let taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
        let class = taken.iter().find(|entry| entry.id == id).map(|entry| entry.class.clone_ref(py));
        drop(taken);
        let class = class.ok_or_else(|| PyValueError::new_err("the run has ended"))?;
        let object = class.bind(py).call_method1("__new__", (&class,))?;
        object.setattr("mss", mss)?;
        let limit = class.bind(py).getattr("time_limit")?.extract()?;
        let _call = Call::begin(py, limit)?;
        object.call_method0("__init__")?;
        let method = |name: &str| object.getattr(name).map(Bound::unbind);
        PyResult::Ok(Control {
            limit,
            on_ack: method("on_ack")?,
            on_loss: method("on_loss")?,
            on_mark: method("on_mark")?,
            on_timeout: method("on_timeout")?,
            window: Py::new(py, Window { cwnd: 0.0, ssthresh: 0.0, mss })?,
        })
    });
    made.unwrap_or_else(|error| end_trial(error))
}

/// The window of a TCP connection, in payload bytes.
#[pyclass(module = "bandmaster._bandmaster")]
pub(crate) struct Window {
    /// Congestion window, in payload bytes: at least a segment.
    #[pyo3(get)]
    cwnd: f64,
    /// Slow start threshold, in payload bytes; infinite before the first loss.
    #[pyo3(get)]
    ssthresh: f64,
    mss: u64,
}

#[pymethods]
impl Window {
    #[setter]
    fn set_cwnd(&mut self, cwnd: f64) -> PyResult<()> {
        self.cwnd = at_least_a_segment(cwnd, self.mss, "cwnd")?;
        Ok(())
    }

    #[setter]
    fn set_ssthresh(&mut self, ssthresh: f64) -> PyResult<()> {
        self.ssthresh = threshold(ssthresh, self.mss, "ssthresh")?;
        Ok(())
    }
}

/// Most bytes of a window.
const MOST: f64 = (1u64 << 50) as f64;

fn at_least_a_segment(value: f64, mss: u64, what: &str) -> PyResult<f64> {
    if (mss as f64..=MOST).contains(&value) {
        return Ok(value);
    }
    Err(PyValueError::new_err(format!("{what}: {value} is not a number from a segment, {mss}, to 2^50")))
}

fn threshold(value: f64, mss: u64, what: &str) -> PyResult<f64> {
    if value == f64::INFINITY { Ok(value) } else { at_least_a_segment(value, mss, what) }
}

/// An acknowledgement of new data.
#[pyclass(frozen, get_all, module = "bandmaster._bandmaster")]
pub(crate) struct Ack {
    /// The simulated time, in s.
    now: f64,
    /// Payload bytes newly acknowledged.
    acked: u64,
    /// Smoothed round-trip time (RFC 6298), in s.
    srtt: Option<f64>,
    /// Round-trip time that this acknowledgement measured, in s.
    rtt: Option<f64>,
}

/// The object of a connection.
struct Control {
    /// Longest time of a call, in s.
    limit: f64,
    on_ack: Py<PyAny>,
    on_loss: Py<PyAny>,
    on_mark: Py<PyAny>,
    on_timeout: Py<PyAny>,
    /// Keeps fractions of bytes from one call to the next.
    window: Py<Window>,
}

fn bytes(value: f64) -> u64 {
    if value == f64::INFINITY { u64::MAX } else { value as u64 }
}

impl Control {
    /// Has `call` done with the window as the simulator knows it; what it leaves of it, and gives. An exception ends the trial.
    fn with_window<T>(
        &self,
        cwnd: u64,
        ssthresh: u64,
        call: impl FnOnce(Python<'_>, &Bound<'_, Window>) -> PyResult<T>,
    ) -> ((u64, u64), T) {
        let done = Python::attach(|py| {
            let window = self.window.bind(py);
            {
                let mut own = window.borrow_mut();
                if bytes(own.cwnd) != cwnd {
                    own.cwnd = cwnd as f64;
                }
                if bytes(own.ssthresh) != ssthresh {
                    own.ssthresh = if ssthresh == u64::MAX { f64::INFINITY } else { ssthresh as f64 };
                }
            }
            let begun = Call::begin(py, self.limit)?;
            let given = call(py, window);
            drop(begun);
            let own = window.borrow();
            PyResult::Ok(((bytes(own.cwnd), bytes(own.ssthresh)), given?))
        });
        done.unwrap_or_else(|error| end_trial(error))
    }

    fn threshold(&self, method: &Py<PyAny>, cwnd: u64, ssthresh: u64, in_flight: u64) -> u64 {
        let (_, given) = self.with_window(cwnd, ssthresh, |py, window| {
            let given: f64 = method.call1(py, (window, in_flight))?.extract(py)?;
            at_least_a_segment(given, window.borrow().mss, "the new ssthresh")
        });
        bytes(given)
    }
}

impl ForeignControl for Control {
    fn on_ack(&mut self, cwnd: u64, ssthresh: u64, ack: &Acknowledgement) -> (u64, u64) {
        let seconds = |span: Option<Span>| span.map(Span::as_secs_f64);
        let ack = Ack {
            now: ack.now.as_secs_f64(),
            acked: ack.acked,
            srtt: seconds(ack.srtt),
            rtt: seconds(ack.rtt),
        };
        let call = |py: Python<'_>, window: &Bound<'_, Window>| self.on_ack.call1(py, (window, ack));
        self.with_window(cwnd, ssthresh, call).0
    }

    fn on_loss(&mut self, cwnd: u64, ssthresh: u64, in_flight: u64) -> u64 {
        self.threshold(&self.on_loss, cwnd, ssthresh, in_flight)
    }

    fn on_mark(&mut self, cwnd: u64, ssthresh: u64, in_flight: u64) -> u64 {
        self.threshold(&self.on_mark, cwnd, ssthresh, in_flight)
    }

    fn on_timeout(&mut self) {
        let called = Python::attach(|py| {
            let _call = Call::begin(py, self.limit)?;
            self.on_timeout.call0(py)
        });
        called.unwrap_or_else(|error| end_trial(error));
    }
}
