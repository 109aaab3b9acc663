//! Runs on threads that have let go of the interpreter.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use bandmaster::embed::{self, Brought, Ended, Error, Request};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::congestion::Controls;
use crate::controller::Taken;
use crate::exception;

/// How long Ctrl-C waits at most until it is seen.
const LOOK: Duration = Duration::from_millis(50);

/// Does work on a thread of its own, and looks after signals until it has ended. A signal whose handler raises sets `stop`; the
/// exception comes with what the work gave.
fn attended<T: Send>(
    py: Python<'_>,
    stop: &AtomicBool,
    work: impl FnOnce() -> T + Send,
) -> PyResult<(T, Option<PyErr>)> {
    let mut interrupt = None;
    let result = py.detach(|| {
        thread::scope(|scope| {
            let (ended, ends) = channel();
            let worker = scope.spawn(move || {
                let result = work();
                // The waiting thread sees the end in any case: a dropped sender ends its wait too.
                let _ = ended.send(());
                result
            });
            while matches!(ends.recv_timeout(LOOK), Err(RecvTimeoutError::Timeout)) {
                let look = |py: Python<'_>| py.check_signals();
                if let Err(raised) = Python::attach(look) {
                    stop.store(true, Ordering::SeqCst);
                    interrupt.get_or_insert(raised);
                }
            }
            worker.join()
        })
    });
    match result {
        Ok(result) => Ok((result, interrupt)),
        Err(_) => Err(PyRuntimeError::new_err("a bug of bandmaster, please report it: the run panicked")),
    }
}

/// Trials finished, planned and failed; of failed ones case, trial, reason and whether that is a bug.
type EndedParts = (usize, usize, Vec<(String, u32, String, bool)>);

fn parts(Ended { finished, planned, failed }: Ended) -> EndedParts {
    let failed = failed.into_iter().map(|trial| (trial.case, trial.trial, trial.why, trial.is_bug));
    (finished, planned, failed.collect())
}

/// A scenario that was checked, with all that it names.
#[pyclass(frozen, module = "bandmaster._bandmaster")]
pub(crate) struct Run {
    bytes: Vec<u8>,
    brought: Brought,
    /// Keep what is brought.
    _kept: (Taken, Controls),
    /// Name of the scenario.
    #[pyo3(get)]
    name: String,
    /// Number of trials.
    #[pyo3(get)]
    planned: usize,
}

impl Run {
    /// Of what `read` gives with these schemes and congestion controls.
    fn of(
        py: Python<'_>,
        schemes: &[Py<PyAny>],
        controls: &[Py<PyAny>],
        read: impl FnOnce(Brought) -> Result<embed::Run, Error> + Send,
    ) -> PyResult<Self> {
        let kept = (Taken::new(py, schemes)?, Controls::new(py, controls)?);
        let brought = Brought { schemes: kept.0.schemes(), controls: kept.1.names() };
        let known = |run: embed::Run| (run.to_bytes(), run.name().to_owned(), run.planned());
        let known = py.detach(|| read(brought).map(known));
        let (bytes, name, planned) = known.map_err(|error| exception(py, error))?;
        Ok(Self { bytes, brought, _kept: kept, name, planned })
    }

    /// The scenario of this run, which stays on one thread.
    fn read(&self) -> Result<embed::Run, Error> {
        embed::Run::from_bytes(&self.bytes, self.brought)
    }
}

#[pymethods]
impl Run {
    #[new]
    #[expect(clippy::too_many_arguments, reason = "the options of a command line")]
    fn new(
        py: Python<'_>,
        path: String,
        text: String,
        folder: Option<PathBuf>,
        overrides: Vec<(String, String)>,
        sweeps: Vec<(String, Vec<String>)>,
        grid: bool,
        variants: Vec<String>,
        base: bool,
        trials: Option<u32>,
        seed: Option<u64>,
        quick: bool,
        schemes: Vec<Py<PyAny>>,
        controls: Vec<Py<PyAny>>,
    ) -> PyResult<Self> {
        Self::of(py, &schemes, &controls, |brought| {
            embed::Run::new(Request {
                path,
                text,
                folder,
                overrides,
                sweeps,
                grid,
                variants,
                base,
                trials,
                seed,
                quick,
                brought,
            })
        })
    }

    #[staticmethod]
    fn from_bytes(
        py: Python<'_>,
        bytes: Vec<u8>,
        schemes: Vec<Py<PyAny>>,
        controls: Vec<Py<PyAny>>,
    ) -> PyResult<Self> {
        Self::of(py, &schemes, &controls, |brought| embed::Run::from_bytes(&bytes, brought))
    }

    fn to_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Runs all trials. The exception is that of a signal's handler, which ended them.
    fn run(
        &self,
        py: Python<'_>,
        out: PathBuf,
        force: bool,
        jobs: Option<NonZeroUsize>,
        progress: bool,
    ) -> PyResult<(EndedParts, Option<Py<PyAny>>)> {
        let stop = AtomicBool::new(false);
        let threads = jobs.or_else(|| thread::available_parallelism().ok()).unwrap_or(NonZeroUsize::MIN);
        let (ended, interrupt) =
            attended(py, &stop, || self.read()?.run(&out, force, threads, &stop, progress))?;
        let ended = parts(ended.map_err(|error| exception(py, error))?);
        Ok((ended, interrupt.map(|raised| raised.into_value(py).into_any())))
    }

    /// Runs a shard into a record file.
    fn shard(&self, py: Python<'_>, number: u32, count: u32, file: PathBuf) -> PyResult<()> {
        let stop = AtomicBool::new(false);
        let (result, interrupt) = attended(py, &stop, || self.read()?.shard(number, count, &file, &stop))?;
        result.map_err(|error| exception(py, error))?;
        interrupt.map_or(Ok(()), Err)
    }
}

fn finished() -> PyErr {
    PyRuntimeError::new_err("the report has been written")
}

/// The folder of a run whose shards are run elsewhere.
#[pyclass(module = "bandmaster._bandmaster")]
pub(crate) struct Gathering {
    run: Py<Run>,
    gathering: Option<embed::Gathering>,
}

#[pymethods]
impl Gathering {
    #[new]
    fn new(py: Python<'_>, run: Py<Run>, out: PathBuf, force: bool) -> PyResult<Self> {
        let of: &Run = run.get();
        let gathering = py
            .detach(|| embed::Gathering::new(&of.read()?, &out, force))
            .map_err(|error| exception(py, error))?;
        Ok(Self { run, gathering: Some(gathering) })
    }

    /// Takes the trials of a record file.
    fn take(&mut self, py: Python<'_>, file: PathBuf) -> PyResult<()> {
        let gathering = self.gathering.as_mut().ok_or_else(finished)?;
        py.detach(|| gathering.take(&file)).map_err(|error| exception(py, error))
    }

    /// Writes the report.
    fn finish(&mut self, py: Python<'_>) -> PyResult<EndedParts> {
        let gathering = self.gathering.take().ok_or_else(finished)?;
        let run: &Run = self.run.get();
        let ended = py.detach(|| gathering.finish(&run.read()?)).map_err(|error| exception(py, error))?;
        Ok(parts(ended))
    }
}
