//! Schemes whose roles are Python classes.
//!
//! A simulation's thread takes the interpreter for each call. What a class raises ends its trial: [`TrialEnded`] carries the
//! traceback up to the run, past the simulation, which is given up.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::panic::resume_unwind;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use bandmaster::embed::TrialEnded;
use bandmaster_core::control::{
    Action, Controller, FlowEnd, FlowStart, FlowStats, Observation, PortStats, Subject, UNBOUNDED,
};
use bandmaster_core::id::{FlowId, NodeId, PortId};
use bandmaster_core::params::{Key, Kind, Params, Value};
use bandmaster_core::runtime::inventory::Inventory;
use bandmaster_core::scheme::{self, Act, Built, Place, RoleDef, SchemeDef, Wants};
use bandmaster_core::time::{Span, Time};
use bandmaster_core::units::{Bytes, Dimension, Rate, parse_quantity};
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString, PyTuple};

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

/// The functions of each slot.
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
        if self.schemes.iter().any(|known| known.name == name) {
            return Err(PyValueError::new_err(format!("there is a scheme {name:?} already")));
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
            let wants: Vec<String> = role.getattr("wants")?.extract()?;
            let has = |word: &str| wants.iter().any(|want| want == word);
            roles.push(RoleDef {
                name: leaked(&role.getattr("__name__")?.extract::<String>()?),
                wants: Wants { ports: has("ports"), flows: has("flows"), ..Wants::NOTHING },
                acts: &[Act::SetWindow, Act::SetRate, Act::MeasureRtt, Act::Send],
            });
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
        return Err(PyValueError::new_err(format!(
            "the default of {name} is {text}: give a number, a truth value, a text, or [] for a list of texts"
        )));
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

/// What is known of the network.
#[pyclass(frozen, module = "bandmaster._bandmaster")]
pub(crate) struct Network {
    node_names: Vec<Py<PyString>>,
    port_names: Vec<Py<PyString>>,
    node_numbers: HashMap<String, NodeId>,
    /// Names of hosts and routers.
    #[pyo3(get)]
    nodes: Py<PyTuple>,
    /// Ports `from->to`: their names, the nodes at both ends, and rates in bit/s.
    #[pyo3(get)]
    ports: Py<PyTuple>,
    /// Ports on the way of each TCP flow's data.
    #[pyo3(get)]
    routes: Py<PyTuple>,
}

impl Network {
    fn new(py: Python<'_>, inventory: &Inventory, routes: &[Vec<PortId>]) -> PyResult<Self> {
        let nodes = (0..inventory.nodes() as u32).map(|node| inventory.name(NodeId(node)));
        let node_names: Vec<Py<PyString>> =
            nodes.clone().map(|name| PyString::new(py, name).unbind()).collect();
        let port_name =
            |from: NodeId, to: NodeId| format!("{}->{}", inventory.name(from), inventory.name(to));
        let port_names: Vec<Py<PyString>> = inventory
            .ports()
            .map(|(_, port)| PyString::new(py, &port_name(port.from, port.to)).unbind())
            .collect();
        let ports = inventory.ports().map(|(number, port)| {
            let end = |node: NodeId| &node_names[node.index()];
            (&port_names[number.index()], end(port.from), end(port.to), port.capacity.bits_per_sec())
        });
        let route =
            |ports: &Vec<PortId>| PyTuple::new(py, ports.iter().map(|port| &port_names[port.index()]));
        let routes = routes.iter().map(route).collect::<PyResult<Vec<_>>>()?;
        Ok(Self {
            node_numbers: nodes.map(str::to_owned).zip((0..).map(NodeId)).collect(),
            nodes: PyTuple::new(py, &node_names)?.unbind(),
            ports: PyTuple::new(py, ports.collect::<Vec<_>>())?.unbind(),
            routes: PyTuple::new(py, routes)?.unbind(),
            node_names,
            port_names,
        })
    }

    fn node(&self, name: &str) -> PyResult<NodeId> {
        let number = self.node_numbers.get(name).copied();
        number.ok_or_else(|| PyValueError::new_err(format!("there is no node {name:?}")))
    }
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
    let placed = Python::attach(|py| {
        let network = Py::new(py, Network::new(py, inventory, routes)?)?;
        NETWORK.set(Some(network.clone_ref(py)));
        let (scheme, roles) = of_slot::<SLOT>(py)?;
        let scheme = scheme.bind(py);
        let parameters = parameters(py, scheme, params)?;
        let mut nodes: Vec<(&'static RoleDef, NodeId)> = Vec::new();
        for (role, class) in roles.iter().zip(scheme.getattr("roles")?.try_iter()?) {
            for name in class?.call_method1("nodes", (&parameters, &network))?.try_iter()? {
                nodes.push((role, network.get().node(&name?.extract::<String>()?)?));
            }
        }
        let place = |(rank, (role, node)): (usize, &(&'static RoleDef, NodeId))| {
            let own = inventory.ports().filter(|(_, port)| port.from == *node).map(|(number, _)| number);
            Place {
                ports: own.collect(),
                rank: (rank, nodes.len()),
                ..Place::new(role, *node, params.clone())
            }
        };
        PyResult::Ok(nodes.iter().enumerate().map(place).collect())
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
        object.call_method0("__init__")?;
        let interval: Option<f64> = object.getattr("interval")?.extract()?;
        let interval = interval.map(|interval| span(interval, "interval")).transpose()?;
        if interval.is_some_and(Span::is_zero) {
            return Err(PyValueError::new_err("interval: must be longer than 0 s"));
        }
        let out = Py::new(py, Out { network, now: Time::ZERO, actions: Vec::new(), wake: None })?;
        let on = object.getattr("on")?.unbind();
        let limit = scheme.getattr("time_limit")?.extract()?;
        PyResult::Ok(Role { on, limit, out, interval, next: Some(Time::ZERO) })
    });
    Built::brain(built.unwrap_or_else(|error| end_trial(error)))
}

/// A number of seconds, bits or bytes that is one.
fn checked(value: f64, what: &str) -> PyResult<f64> {
    if value.is_finite() && value >= 0.0 {
        return Ok(value);
    }
    Err(PyValueError::new_err(format!("{what}: {value} is not a finite number of at least 0")))
}

fn span(seconds: f64, what: &str) -> PyResult<Span> {
    checked(seconds, what).map(Span::from_secs_f64)
}

/// A role in Python.
struct Role {
    on: Py<PyAny>,
    /// Longest time of a call, in s.
    limit: f64,
    out: Py<Out>,
    interval: Option<Span>,
    next: Option<Time>,
}

impl Controller for Role {
    fn on(&mut self, now: Time, observation: &Observation<'_>, out: &mut bandmaster_core::control::Outbox) {
        let is_tick = matches!(observation, Observation::Tick { .. });
        let called = Python::attach(|py| {
            let own = self.out.bind(py);
            own.borrow_mut().now = now;
            let network = own.borrow().network.clone_ref(py);
            let Some(observation) = observed(py, network.get(), observation)? else { return Ok(None) };
            let begun = Call::begin(py, self.limit)?;
            let result = self.on.call1(py, (now.as_secs_f64(), observation, own));
            drop(begun);
            result?;
            let mut own = own.borrow_mut();
            own.actions.drain(..).for_each(|action| out.push(action));
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

/// Threads whose call has taken longer than it may; each is given once.
#[pyfunction]
pub(crate) fn overdue() -> Vec<u64> {
    let mut calls = locked(&CALLS);
    let late = calls.iter().filter(|(_, (begun, limit))| begun.elapsed().as_secs_f64() > *limit);
    let late: Vec<u64> = late.map(|(ident, _)| *ident).collect();
    calls.retain(|ident, _| !late.contains(ident));
    late
}

/// What a role wants done.
#[pyclass(module = "bandmaster._bandmaster")]
pub(crate) struct Out {
    network: Py<Network>,
    now: Time,
    actions: Vec<Action>,
    wake: Option<Time>,
}

#[pymethods]
impl Out {
    /// Bounds the data in flight of a flow, in payload bytes; none lets it go.
    fn set_window(&mut self, flow: u32, window: Option<f64>) -> PyResult<()> {
        let window = window.map(|window| checked(window, "window").map(|bytes| Bytes::new(bytes as u64)));
        let window = window.transpose()?.unwrap_or(UNBOUNDED);
        self.actions.push(Action::SetWindow { flow: FlowId(flow), window });
        Ok(())
    }

    /// Paces a flow, in bit/s, with at most so many bytes outstanding.
    fn set_rate(&mut self, flow: u32, rate: f64, window: f64) -> PyResult<()> {
        let rate = Rate::from_bits_per_sec_f64(checked(rate, "rate")?);
        if rate.bits_per_sec() == 0 {
            return Err(PyValueError::new_err("rate: must be at least 1 bit/s"));
        }
        let window = Bytes::new(checked(window, "window")? as u64);
        self.actions.push(Action::SetRate { flow: FlowId(flow), rate, window });
        Ok(())
    }

    /// Has the round-trip time of a flow measured.
    fn measure_rtt(&mut self, flow: u32) {
        self.actions.push(Action::MeasureRtt { flow: FlowId(flow) });
    }

    /// Sends a message to the roles of the scheme at a node.
    fn send(&mut self, to: &str, body: Vec<u8>) -> PyResult<()> {
        let to = self.network.get().node(to)?;
        self.actions.push(Action::Send { to, body });
        Ok(())
    }

    /// Asks for the next tick at a time in s.
    fn wake_at(&mut self, at: f64) -> PyResult<()> {
        let at = Time::ZERO + span(at, "at")?;
        if at <= self.now {
            return Err(PyValueError::new_err(format!("at: {} s is not after now", at.as_secs_f64())));
        }
        self.wake = Some(at);
        Ok(())
    }
}

macro_rules! observations {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $type:ty),* })+) => {$(
        $(#[$doc])*
        #[pyclass(frozen, get_all, module = "bandmaster._bandmaster")]
        pub(crate) struct $name { $($field: $type),* }

        #[pymethods]
        impl $name {
            #[classattr]
            fn __match_args__() -> Vec<&'static str> { vec![$(stringify!($field)),*] }
        }
    )+};
}

observations! {
    /// The time that was asked for has come: statistics of ports and flows.
    Tick { ports: Py<PyTuple>, flows: Py<PyTuple> }
    /// Statistics of a port of the node.
    Port { port: Py<PyString>, capacity: u64, flows_seen: Option<u32>, flows_open: Option<u32>, backlog: Option<u64>, sent: u64, offered: u64, dropped: u64 }
    /// Statistics of a flow at this node.
    Flow { flow: u32, end: &'static str, delivered: u64, srtt: Option<f64>, min_rtt: Option<f64>, last_rtt: Option<f64>, mss: u64, frame: u64 }
    /// What the TCP of the node has sent.
    Sent { segments: u64, resent: u64 }
    /// A flow begins at the node.
    FlowStarted { flow: Py<Flow>, source: (String, u16), destination: (String, u16), route: Py<PyTuple> }
    /// The last statistics of a flow.
    Carried { flow: Py<Flow> }
    /// A flow at the node has ended.
    FlowEnded { flow: u32 }
    /// Another role of the scheme says something.
    Message { sender: Py<PyString>, body: Py<PyBytes> }
    /// A node is in the network again.
    Joined { node: Py<PyString> }
    /// A node has gone.
    Left { node: Py<PyString> }
    /// The simulator did not do what the role wanted.
    Refused { subject: String, why: String }
}

fn flow(stats: &FlowStats) -> Flow {
    let seconds = |span: Option<Span>| span.map(Span::as_secs_f64);
    Flow {
        flow: stats.flow.0,
        end: if stats.end == FlowEnd::Sender { "sender" } else { "receiver" },
        delivered: stats.delivered.get(),
        srtt: seconds(stats.srtt),
        min_rtt: seconds(stats.min_rtt),
        last_rtt: seconds(stats.last_rtt),
        mss: stats.mss.get(),
        frame: stats.frame.get(),
    }
}

/// An observation as an object; none: roles in Python get no such one.
fn observed<'py>(
    py: Python<'py>,
    network: &Network,
    observation: &Observation<'_>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let node = |node: NodeId| network.node_names[node.index()].clone_ref(py);
    let port_name = |port: PortId| network.port_names[port.index()].clone_ref(py);
    let port = |stats: &PortStats| {
        let port = Port {
            port: port_name(stats.port),
            capacity: stats.capacity.bits_per_sec(),
            flows_seen: stats.flows.map(|flows| flows.seen),
            flows_open: stats.flows.map(|flows| flows.open),
            backlog: stats.backlog.map(Bytes::get),
            sent: stats.sent.get(),
            offered: stats.offered,
            dropped: stats.dropped,
        };
        Py::new(py, port)
    };
    let object = match observation {
        Observation::Tick { ports, flows } => {
            let ports = ports.iter().map(port).collect::<PyResult<Vec<_>>>()?;
            let flows = flows.iter().map(|stats| Py::new(py, flow(stats))).collect::<PyResult<Vec<_>>>()?;
            let tick =
                Tick { ports: PyTuple::new(py, ports)?.unbind(), flows: PyTuple::new(py, flows)?.unbind() };
            tick.into_bound_py_any(py)?
        }
        Observation::Sent(counts) => {
            Sent { segments: counts.sent, resent: counts.resent }.into_bound_py_any(py)?
        }
        Observation::FlowStarted(FlowStart { stats, key, route }) => {
            let end = |(address, port): (std::net::IpAddr, u16)| (address.to_string(), port);
            let route = PyTuple::new(py, route.iter().map(|port| port_name(*port)))?.unbind();
            let (source, destination) = (end(key.from), end(key.to));
            FlowStarted { flow: Py::new(py, flow(stats))?, source, destination, route }
                .into_bound_py_any(py)?
        }
        Observation::Carried(stats) => Carried { flow: Py::new(py, flow(stats))? }.into_bound_py_any(py)?,
        Observation::FlowEnded(flow) => FlowEnded { flow: flow.0 }.into_bound_py_any(py)?,
        Observation::Message(message) => {
            let body = PyBytes::new(py, &message.body).unbind();
            Message { sender: node(message.from), body }.into_bound_py_any(py)?
        }
        Observation::Joined(joined) => Joined { node: node(*joined) }.into_bound_py_any(py)?,
        Observation::Left(left) => Left { node: node(*left) }.into_bound_py_any(py)?,
        Observation::Refused { subject, why } => {
            let subject = match subject {
                Subject::Flow(flow) => format!("flow {}", flow.0),
                Subject::Node(to) => node(*to).bind(py).to_string(),
                other => format!("{other:?}"),
            };
            Refused { subject, why: format!("{why:?}") }.into_bound_py_any(py)?
        }
        Observation::Counted(_) | Observation::ProbeLeft { .. } | Observation::ProbeCame { .. } => {
            return Ok(None);
        }
    };
    Ok(Some(object))
}
