//! Schemes whose roles are Python classes.
//!
//! A simulation's thread takes the interpreter for each call. What a class raises ends its trial: [`TrialEnded`] carries the
//! traceback up to the run, past the simulation, which is given up.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use bandmaster::embed::{Error, TrialEnded};
use bandmaster_core::control::{Controller, Gauges, Observation, Outbox};
use bandmaster_core::id::{NodeId, PortId};
use bandmaster_core::params::{Key, Kind, Params, Value};
use bandmaster_core::report::metric;
use bandmaster_core::runtime::faults::PathEnd;
use bandmaster_core::runtime::inventory::Inventory;
use bandmaster_core::scheme::{self, Act, Built, Place, RoleDef, SchemeDef, Wants};
use bandmaster_core::time::{Span, Time};
use bandmaster_core::units::{Dimension, parse_quantity};
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use crate::exception;
use crate::network::Network;
use crate::observation::observed;
use crate::out::{ACTS, Out, span};

/// Schemes in Python that runs have at the same time.
const SLOTS: usize = 32;

/// A scheme while runs use it. Functions of a [`SchemeDef`] hold no state; each slot has its own.
struct Slot {
    scheme: Py<PyAny>,
    def: &'static SchemeDef,
    /// Runs that use it.
    uses: usize,
}

static TAKEN: [Mutex<Option<Slot>>; SLOTS] = [const { Mutex::new(None) }; SLOTS];

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Slots that are free again with this.
#[derive(Default)]
pub(crate) struct Taken {
    slots: Vec<usize>,
    schemes: Vec<&'static SchemeDef>,
}

impl Drop for Taken {
    fn drop(&mut self) {
        for slot in &self.slots {
            let mut slot = locked(&TAKEN[*slot]);
            let last = slot.as_mut().is_some_and(|slot| {
                slot.uses -= 1;
                slot.uses == 0
            });
            let unused = if last { slot.take() } else { None };
            // Python may run when its object goes.
            drop(slot);
            drop(unused);
        }
    }
}

type PlaceFn = fn(&Params, &Inventory, &[Vec<PortId>]) -> Vec<Place>;
type BuildFn = fn(&Place, &Inventory, Option<&[u8]>) -> Built;

/// By slot: its functions.
const FUNCTIONS: [(PlaceFn, BuildFn); SLOTS] = {
    macro_rules! of { ($($slot:literal)+) => { [$((place::<$slot>, build::<$slot>)),+] } }
    of!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31)
};

fn leaked(text: &str) -> &'static str {
    Box::leak(text.into())
}

impl Taken {
    /// Takes a slot for each of `schemes`, objects of `bandmaster.Scheme`.
    pub(crate) fn new(py: Python<'_>, schemes: &[Py<PyAny>]) -> PyResult<Self> {
        let mut taken = Self { slots: Vec::new(), schemes: scheme::REGISTRY.to_vec() };
        for scheme in schemes {
            taken.add(scheme.bind(py))?;
        }
        Ok(taken)
    }

    /// The schemes that scenarios may name. They are few and small: what is made of one for a run stays.
    pub(crate) fn schemes(&self) -> &'static [&'static SchemeDef] {
        if self.slots.is_empty() { scheme::REGISTRY } else { self.schemes.clone().leak() }
    }

    fn add(&mut self, scheme: &Bound<'_, PyAny>) -> PyResult<()> {
        let name: String = scheme.getattr("name")?.extract()?;
        let py = scheme.py();
        if self.schemes.iter().any(|known| known.name == name) {
            return Err(usage(py, format!("there is a scheme {name:?} already")));
        }
        for (number, slot) in TAKEN.iter().enumerate() {
            if let Some(slot) = locked(slot).as_mut().filter(|slot| slot.scheme.is(scheme)) {
                slot.uses += 1;
                self.slots.push(number);
                self.schemes.push(slot.def);
                return Ok(());
            }
        }
        let mut keys = Vec::new();
        for (key, value) in scheme.getattr("parameters")?.cast::<PyDict>()?.iter() {
            keys.push(key_of(&key.extract::<String>()?, &value)?);
        }
        let mut roles: Vec<RoleDef> = Vec::new();
        for role in scheme.getattr("roles")?.try_iter()? {
            let role = role?;
            let name: String = role.getattr("__name__")?.extract()?;
            let said = |what: &str, why: String| usage(py, format!("{name}.{what}: {why}"));
            let wants = wants_of(&role).map_err(|why| said("wants", why))?;
            let acts = acts_of(&role).map_err(|why| said("acts", why))?;
            shows_of(&role).map_err(|why| said("shows", why))?;
            roles.push(RoleDef { name: leaked(&name), wants, acts: acts.leak() });
        }
        let about = leaked(&scheme.getattr("about")?.extract::<String>()?);
        // From here on nothing of Python runs, so that no other thread finds the same one.
        let free = TAKEN.iter().position(|slot| locked(slot).is_none());
        let slot =
            free.ok_or_else(|| PyRuntimeError::new_err(format!("more than {SLOTS} schemes at once")))?;
        let (place, build) = FUNCTIONS[slot];
        let def = SchemeDef {
            name: leaked(&name),
            about,
            source: "Python",
            code: 0x8000 + slot as u16,
            keys: keys.leak(),
            roles: roles.leak(),
            check: |_, _| Ok(()),
            fits: |_, _| Ok(()),
            place,
            build,
        };
        let def: &'static SchemeDef = Box::leak(Box::new(def));
        locked(&TAKEN[slot]).replace(Slot { scheme: scheme.clone().unbind(), def, uses: 1 });
        self.slots.push(slot);
        self.schemes.push(def);
        Ok(())
    }
}

fn usage(py: Python<'_>, why: String) -> PyErr {
    exception(py, Error::Usage(why))
}

/// The words of a role's class attribute.
fn words_of(role: &Bound<'_, PyAny>, attribute: &str) -> Result<Vec<String>, String> {
    let words = role.getattr(attribute).and_then(|words| words.extract());
    words.map_err(|_| "is no list of texts".to_owned())
}

/// What its ticks bring.
fn wants_of(role: &Bound<'_, PyAny>) -> Result<Wants, String> {
    let mut wants = Wants::NOTHING;
    for word in words_of(role, "wants")? {
        match word.as_str() {
            "ports" => wants.ports = true,
            "flows" => wants.flows = true,
            "left" | "came" if wants.passed.is_some() => {
                return Err("a role counts at one end, \"left\" or \"came\"".to_owned());
            }
            "left" => wants.passed = Some(PathEnd::First),
            "came" => wants.passed = Some(PathEnd::Last),
            _ => return Err(format!("{word:?} is none of \"ports\", \"flows\", \"left\", \"came\"")),
        }
    }
    Ok(wants)
}

/// What it does.
fn acts_of(role: &Bound<'_, PyAny>) -> Result<Vec<Act>, String> {
    let act = |word: String| match ACTS.iter().find(|(name, _)| *name == word) {
        Some((_, act)) => Ok(*act),
        None if word == "watch" || word == "rewrite" => {
            Err(format!("{word:?} is a call for each packet, which Python is too slow for"))
        }
        None => {
            let known: Vec<String> = ACTS.iter().map(|(name, _)| format!("{name:?}")).collect();
            Err(format!("{word:?} is none of {}", known.join(", ")))
        }
    };
    words_of(role, "acts")?.into_iter().map(act).collect()
}

/// What it shows.
fn shows_of(role: &Bound<'_, PyAny>) -> Result<Vec<&'static str>, String> {
    let gauge = |word: String| match metric::find_at(&[metric::Place::Shown], &word) {
        Some(metric) => Ok(metric.name),
        None => {
            let known = metric::at(&[metric::Place::Shown]).map(|metric| format!("{:?}", metric.name));
            Err(format!("{word:?} is none of {}", known.collect::<Vec<_>>().join(", ")))
        }
    };
    let mut shown = Vec::new();
    for word in words_of(role, "shows")? {
        let name = gauge(word)?;
        if shown.contains(&name) {
            return Err(format!("{name:?} is there twice"));
        }
        shown.push(name);
    }
    Ok(shown)
}

/// A key whose kind is that of its default.
fn key_of(name: &str, default: &Bound<'_, PyAny>) -> PyResult<Key> {
    let text = default.str()?.to_string();
    let (kind, text) = if let Ok(value) = default.extract::<bool>() {
        (Kind::Bool, value.to_string())
    } else if default.extract::<i64>().is_ok() {
        (Kind::Integer { min: i64::MIN, max: i64::MAX }, text)
    } else if default.extract::<f64>().is_ok() {
        (Kind::Float { min: f64::NEG_INFINITY, max: f64::INFINITY }, text)
    } else if default.cast::<PyString>().is_ok() {
        let dimensions = [Dimension::Rate, Dimension::Span, Dimension::Bytes, Dimension::Packets];
        let dimension = dimensions.into_iter().find(|dimension| parse_quantity(&text, *dimension).is_ok());
        (dimension.map_or(Kind::Text, Kind::Quantity), text)
    } else if default.extract::<Vec<String>>().is_ok_and(|list| list.is_empty()) {
        return Ok(Key::optional(leaked(name), Kind::TextList, "A parameter of a scheme in Python"));
    } else {
        let why = "give a number, a truth value, a text, or [] for a list of texts";
        return Err(usage(default.py(), format!("the default of {name} is {text}: {why}")));
    };
    Ok(Key::new(leaked(name), kind, leaked(&text), "A parameter of a scheme in Python", "the scheme"))
}

/// Parameters as Python numbers: bit/s, s, bytes, packets. A list that is not given is empty.
fn parameters<'py>(
    py: Python<'py>,
    scheme: &Bound<'py, PyAny>,
    params: &Params,
) -> PyResult<Bound<'py, PyDict>> {
    let all = PyDict::new(py);
    for (key, default) in scheme.getattr("parameters")?.cast::<PyDict>()?.iter() {
        let name: String = key.extract()?;
        let value = match params.get(&name) {
            Some(Value::Rate(rate)) => rate.bits_per_sec().into_bound_py_any(py)?,
            Some(Value::Span(span)) => span.as_secs_f64().into_bound_py_any(py)?,
            Some(Value::Bytes(bytes)) => bytes.get().into_bound_py_any(py)?,
            Some(Value::Integer(number)) => number.into_bound_py_any(py)?,
            Some(Value::Float(number)) => number.into_bound_py_any(py)?,
            Some(Value::Bool(value)) => value.into_bound_py_any(py)?,
            Some(Value::Text(text)) => text.into_bound_py_any(py)?,
            Some(Value::List(list)) => list.into_bound_py_any(py)?,
            _ => default,
        };
        all.set_item(key, value)?;
    }
    Ok(all)
}

thread_local! {
    /// The network of the trial that this thread runs.
    static NETWORK: RefCell<Option<Py<Network>>> = const { RefCell::new(None) };
}

/// Ends the trial with the traceback.
pub(crate) fn end_trial(error: PyErr) -> ! {
    let text = Python::attach(|py| {
        let said = error.to_string();
        let lines = |value| -> PyResult<String> {
            let lines = py.import("traceback")?.call_method1("format_exception", (value,))?;
            Ok(lines.extract::<Vec<String>>()?.concat())
        };
        // The value alone has no traceback before Python 3.12.
        lines(error.into_value(py)).unwrap_or(said)
    });
    resume_unwind(Box::new(TrialEnded(text.trim_end().to_owned())))
}

fn place<const SLOT: usize>(params: &Params, inventory: &Inventory, routes: &[Vec<PortId>]) -> Vec<Place> {
    let placed: PyResult<Vec<Place>> = Python::attach(|py| {
        let network = Py::new(py, Network::new(py, inventory, routes)?)?;
        NETWORK.set(Some(network.clone_ref(py)));
        let (scheme, roles) = of_slot::<SLOT>(py)?;
        let scheme = scheme.bind(py);
        let parameters = parameters(py, scheme, params)?;
        let limit: f64 = scheme.getattr("time_limit")?.extract()?;
        let mut nodes = Vec::new();
        for (role, class) in roles.iter().zip(scheme.getattr("roles")?.try_iter()?) {
            let class = class?;
            let _call = Call::begin(py, limit)?;
            for name in class.call_method1("nodes", (&parameters, &network))?.try_iter()? {
                nodes.push((role, class.clone(), network.get().node(&name?.extract::<String>()?)?));
            }
        }
        let peers = |role: &RoleDef, class: &Bound<'_, PyAny>, node: NodeId| {
            let name = &network.get().node_names[node.index()];
            let _call = Call::begin(py, limit)?;
            let mut peers = Vec::new();
            for peer in class.call_method1("peers", (name, &parameters, &network))?.try_iter()? {
                let peer: String = peer?.extract()?;
                let at = network.get().node(&peer)?;
                let there = nodes.iter().find(|(.., node)| *node == at);
                let (its_role, ..) = there.ok_or_else(|| {
                    PyValueError::new_err(format!("peers: no role of the scheme runs at {peer:?}"))
                })?;
                peers.push((at, *its_role));
            }
            if peers.is_empty()
                && let Some(end) = role.wants.passed
            {
                let word = if end == PathEnd::First { "left" } else { "came" };
                let (role, node) = (role.name, inventory.name(node));
                let why = format!(
                    "{role}.wants: {word:?} counts on the way to the first peer, and `peers` gives none at {node:?}"
                );
                return Err(PyValueError::new_err(why));
            }
            PyResult::Ok(peers)
        };
        let place = |(rank, (role, class, node)): (usize, &(&'static RoleDef, Bound<'_, PyAny>, NodeId))| {
            let own = inventory.ports().filter(|(_, port)| port.from == *node).map(|(number, _)| number);
            PyResult::Ok(Place {
                peers: peers(role, class, *node)?,
                ports: own.collect(),
                rank: (rank, nodes.len()),
                ..Place::new(role, *node, params.clone())
            })
        };
        nodes.iter().enumerate().map(place).collect()
    });
    placed.unwrap_or_else(|error| end_trial(error))
}

fn of_slot<const SLOT: usize>(py: Python<'_>) -> PyResult<(Py<PyAny>, &'static [RoleDef])> {
    let slot = locked(&TAKEN[SLOT]);
    let slot = slot.as_ref().ok_or_else(|| PyRuntimeError::new_err("the scheme's run has ended"))?;
    Ok((slot.scheme.clone_ref(py), slot.def.roles))
}

fn build<const SLOT: usize>(place: &Place, _: &Inventory, _: Option<&[u8]>) -> Built {
    let built = Python::attach(|py| {
        let (scheme, roles) = of_slot::<SLOT>(py)?;
        let scheme = scheme.bind(py);
        let network = NETWORK.with_borrow(|network| network.as_ref().map(|network| network.clone_ref(py)));
        let network = network.ok_or_else(|| PyRuntimeError::new_err("a role without a network"))?;
        let number = roles.iter().position(|role| std::ptr::eq(role, place.role)).unwrap_or_default();
        let class = scheme.getattr("roles")?.get_item(number)?;
        let object = class.call_method1("__new__", (&class,))?;
        object.setattr("node", &network.get().node_names[place.node.index()])?;
        object.setattr("network", &network)?;
        object.setattr("parameters", parameters(py, scheme, &place.params)?)?;
        let limit = scheme.getattr("time_limit")?.extract()?;
        let call = Call::begin(py, limit)?;
        object.call_method0("__init__")?;
        drop(call);
        let interval: Option<f64> = object.getattr("interval")?.extract()?;
        let interval = interval.map(|interval| span(interval, "interval")).transpose()?;
        if interval.is_some_and(Span::is_zero) {
            return Err(PyValueError::new_err("interval: must be longer than 0 s"));
        }
        let shown = shows_of(&class).map_err(PyValueError::new_err)?;
        let shown: Vec<_> = shown.into_iter().map(|gauge| (gauge, f64::NAN)).collect();
        let out = Out::new(network, place.node, place.role.acts, shown.clone());
        let on = object.getattr("on")?.unbind();
        PyResult::Ok(Role { on, limit, out: Py::new(py, out)?, interval, next: Some(Time::ZERO), shown })
    });
    Built::brain(built.unwrap_or_else(|error| end_trial(error)))
}

/// A role in Python.
struct Role {
    on: Py<PyAny>,
    /// Longest time of a call, in s.
    limit: f64,
    out: Py<Out>,
    interval: Option<Span>,
    next: Option<Time>,
    /// Gauges and their values.
    shown: Vec<(&'static str, f64)>,
}

impl Controller for Role {
    fn on(&mut self, now: Time, observation: &Observation<'_>, out: &mut Outbox) {
        let is_tick = matches!(observation, Observation::Tick { .. });
        let called = Python::attach(|py| {
            let own = self.out.bind(py);
            own.borrow_mut().now = now;
            let network = own.borrow().network.clone_ref(py);
            let observation = observed(py, network.get(), observation)?;
            let begun = Call::begin(py, self.limit)?;
            let result = self.on.call1(py, (now.as_secs_f64(), observation, own));
            drop(begun);
            result?;
            let mut own = own.borrow_mut();
            own.actions.drain(..).for_each(|action| out.push(action));
            self.shown.copy_from_slice(&own.shown);
            PyResult::Ok(own.wake.take())
        });
        let wake = called.unwrap_or_else(|error| end_trial(error));
        match (wake, is_tick) {
            (Some(at), _) => self.next = Some(at),
            (None, true) => self.next = self.interval.map(|interval| now + interval),
            (None, false) => {}
        }
    }

    fn wakeup(&self) -> Option<Time> {
        self.next
    }

    fn gauges(&self, gauges: &mut Gauges) {
        self.shown.iter().for_each(|&(metric, value)| gauges.show(metric, value));
    }
}

/// Calls that Python has not returned from: by thread, when they began, and the most seconds that they may take.
static CALLS: Mutex<BTreeMap<u64, (Instant, f64)>> = Mutex::new(BTreeMap::new());

thread_local! {
    /// This thread's name in Python.
    static IDENT: RefCell<Option<u64>> = const { RefCell::new(None) };
}

pub(crate) struct Call(u64);

impl Call {
    pub(crate) fn begin(py: Python<'_>, limit: f64) -> PyResult<Self> {
        let ident = match IDENT.with_borrow(|ident| *ident) {
            Some(ident) => ident,
            None => {
                let ident = py.import("threading")?.call_method0("get_ident")?.extract()?;
                IDENT.set(Some(ident));
                ident
            }
        };
        locked(&CALLS).insert(ident, (Instant::now(), limit));
        Ok(Self(ident))
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        locked(&CALLS).remove(&self.0);
    }
}

/// Threads whose call has exceeded its time limit. A call is listed again after each further limit.
#[pyfunction]
pub(crate) fn overdue() -> Vec<u64> {
    let mut late = Vec::new();
    for (ident, (begun, limit)) in locked(&CALLS).iter_mut() {
        if begun.elapsed().as_secs_f64() > *limit {
            *begun = Instant::now();
            late.push(*ident);
        }
    }
    late
}
