//! What roles in Python want done.

use bandmaster_core::control::{Action, UNBOUNDED};
use bandmaster_core::id::{FlowId, NodeId};
use bandmaster_core::params::Choice;
use bandmaster_core::scheme::Act;
use bandmaster_core::time::{Span, Time};
use bandmaster_core::tuning::{Tuning, Variant};
use bandmaster_core::units::{Bytes, Rate};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::network::Network;

/// What roles may do: the methods of [`Out`].
pub(crate) const ACTS: [(&str, Act); 7] = [
    ("set_window", Act::SetWindow),
    ("set_rate", Act::SetRate),
    ("measure_rtt", Act::MeasureRtt),
    ("send", Act::Send),
    ("probe", Act::Probe),
    ("set_class", Act::SetClass),
    ("tune", Act::Tune),
];

/// Most payload of a probe: a packet of 1,500 bytes less the headers of IP and UDP.
const PROBE: usize = 1_472;

/// Takes what a role wants done; done in order when the call has ended.
#[pyclass(module = "bandmaster._bandmaster")]
pub(crate) struct Out {
    pub(crate) network: Py<Network>,
    node: NodeId,
    acts: &'static [Act],
    pub(crate) now: Time,
    pub(crate) actions: Vec<Action>,
    pub(crate) wake: Option<Time>,
    /// Gauges and their values.
    pub(crate) shown: Vec<(&'static str, f64)>,
}

impl Out {
    /// Of a role at `node`.
    pub(crate) fn new(
        network: Py<Network>,
        node: NodeId,
        acts: &'static [Act],
        shown: Vec<(&'static str, f64)>,
    ) -> Self {
        Self { network, node, acts, now: Time::ZERO, actions: Vec::new(), wake: None, shown }
    }

    /// Takes an action that the role says it does.
    fn take(&mut self, act: Act, action: Action) -> PyResult<()> {
        if !self.acts.contains(&act) {
            let name = ACTS.iter().find(|(_, known)| *known == act).map_or("", |(name, _)| name);
            return Err(PyValueError::new_err(format!("{name}: the role's `acts` do not have it")));
        }
        self.actions.push(action);
        Ok(())
    }
}

/// A number of seconds, bits or bytes that is one.
fn checked(value: f64, what: &str) -> PyResult<f64> {
    if value.is_finite() && value >= 0.0 {
        return Ok(value);
    }
    Err(PyValueError::new_err(format!("{what}: {value} is not a finite number of at least 0")))
}

pub(crate) fn span(seconds: f64, what: &str) -> PyResult<Span> {
    checked(seconds, what).map(Span::from_secs_f64)
}

fn rate_of(rate: f64, what: &str) -> PyResult<Rate> {
    let rate = Rate::from_bits_per_sec_f64(checked(rate, what)?);
    if rate.bits_per_sec() == 0 {
        return Err(PyValueError::new_err(format!("{what}: must be at least 1 bit/s")));
    }
    Ok(rate)
}

/// A number of segments.
fn segments(number: Option<i64>, what: &str, most: u32) -> PyResult<Option<u32>> {
    let Some(number) = number else { return Ok(None) };
    match u32::try_from(number) {
        Ok(number) if (1..=most).contains(&number) => Ok(Some(number)),
        _ => Err(PyValueError::new_err(format!("{what}: {number} is not a number from 1 to {most}"))),
    }
}

fn timeout(seconds: Option<f64>, what: &str) -> PyResult<Option<Span>> {
    let span = seconds.map(|seconds| span(seconds, what)).transpose()?;
    if span.is_some_and(Span::is_zero) {
        return Err(PyValueError::new_err(format!("{what}: must be longer than 0 s")));
    }
    Ok(span)
}

#[pymethods]
impl Out {
    /// Bound the data in flight of a flow at this node.
    ///
    /// Args:
    ///     flow: Its number.
    ///     window: Payload bytes, rounded down; none lets the flow go.
    ///
    /// Raises:
    ///     ValueError: `window` is negative, infinite or not a number, or `acts` lacks `set_window`.
    fn set_window(&mut self, flow: u32, window: Option<f64>) -> PyResult<()> {
        let window = window.map(|window| checked(window, "window").map(|bytes| Bytes::new(bytes as u64)));
        let window = window.transpose()?.unwrap_or(UNBOUNDED);
        self.take(Act::SetWindow, Action::SetWindow { flow: FlowId(flow), window })
    }

    /// Pace a flow from this node: a sender spaces its segments, a receiver its credit.
    ///
    /// Args:
    ///     flow: Its number.
    ///     rate: Payload rate in bit/s, at least 1.
    ///     window: Most payload bytes outstanding.
    ///
    /// Raises:
    ///     ValueError: A value is negative, infinite or not a number, or `acts` lacks `set_rate`.
    fn set_rate(&mut self, flow: u32, rate: f64, window: f64) -> PyResult<()> {
        let rate = rate_of(rate, "rate")?;
        let window = Bytes::new(checked(window, "window")? as u64);
        self.take(Act::SetRate, Action::SetRate { flow: FlowId(flow), rate, window })
    }

    /// Have the round-trip time of a flow measured, of which this node is the receiver.
    ///
    /// Args:
    ///     flow: Its number.
    ///
    /// Raises:
    ///     ValueError: `acts` lacks `measure_rtt`.
    fn measure_rtt(&mut self, flow: u32) -> PyResult<()> {
        self.take(Act::MeasureRtt, Action::MeasureRtt { flow: FlowId(flow) })
    }

    /// Send a message to the roles of this scheme at a node. The simulator delays it, and charges its size.
    ///
    /// Args:
    ///     to: Name of the node.
    ///     body: What to say.
    ///
    /// Raises:
    ///     ValueError: There is no such node, or `acts` lacks `send`.
    fn send(&mut self, to: &str, body: Vec<u8>) -> PyResult<()> {
        let to = self.network.get().node(to)?;
        self.take(Act::Send, Action::Send { to, body })
    }

    /// Send a datagram to a peer over the data path, behind the data sent before it.
    ///
    /// It takes part in queues as a packet of UDP with DSCP CS6, and may be lost. `ProbeLeft` comes when it leaves this
    /// node, `ProbeCame` at the peer.
    ///
    /// Args:
    ///     to: Name of the peer's node, one of `Controller.peers`; to another the probe is `Refused`.
    ///     payload: UDP payload, at most 1,472 bytes.
    ///
    /// Raises:
    ///     ValueError: There is no such node, the payload is too long, or `acts` lacks `probe`.
    fn probe(&mut self, to: &str, payload: Vec<u8>) -> PyResult<()> {
        let to = self.network.get().node(to)?;
        if payload.len() > PROBE {
            let bytes = payload.len();
            return Err(PyValueError::new_err(format!("payload: {bytes} bytes are more than {PROBE}")));
        }
        self.take(Act::Probe, Action::Probe { to, payload })
    }

    /// Change a class of the shaper (`htb`) at a port of this node. The simulator refuses what the port has not.
    ///
    /// Args:
    ///     port: Name of the port, `from->to`.
    ///     number: Position of the class in the scenario, from 0; none: the root.
    ///     rate: What the class has in any case, in bit/s of frames, at least 1.
    ///     ceil: What it never exceeds, in bit/s, at least `rate`.
    ///
    /// Raises:
    ///     ValueError: This node has no such port, a rate is out of range, or `acts` lacks `set_class`.
    #[pyo3(signature = (port, number, rate, ceil))]
    fn set_class(&mut self, port: &str, number: Option<usize>, rate: f64, ceil: f64) -> PyResult<()> {
        let port = self.network.get().port(port, self.node)?;
        let (rate, ceil) = (rate_of(rate, "rate")?, rate_of(ceil, "ceil")?);
        if ceil < rate {
            let (rate, ceil) = (rate.bits_per_sec(), ceil.bits_per_sec());
            return Err(PyValueError::new_err(format!("ceil: {ceil} bit/s is less than rate, {rate} bit/s")));
        }
        self.take(Act::SetClass, Action::SetClass { port, class: number, rate, ceil })
    }

    /// Change the TCP of this host for connections that it opens from now on. Each call stands for all before it.
    ///
    /// Args:
    ///     initial_window: Initial congestion window, 1 to 1,000 segments. None, as for all others: the scenario's.
    ///     min_rto: Least retransmission timeout, in s.
    ///     initial_rto: Retransmission timeout before the first measurement, in s.
    ///     variant: Congestion control: `tahoe`, `reno`, `newreno`, `bic`, `cubic` or `dctcp`, not one in Python.
    ///     pacing: Pace segments over the round-trip time.
    ///     idle_restart: Begin with the initial window after idle time (RFC 5681).
    ///     window_cap: Most segments in the congestion window, 1 to 1,000,000.
    ///
    /// Raises:
    ///     ValueError: A value is out of range, or `acts` lacks `tune`.
    #[pyo3(signature = (*, initial_window=None, min_rto=None, initial_rto=None, variant=None, pacing=None, idle_restart=None, window_cap=None))]
    #[expect(clippy::too_many_arguments, reason = "keywords of Python")]
    fn tune(
        &mut self,
        initial_window: Option<i64>,
        min_rto: Option<f64>,
        initial_rto: Option<f64>,
        variant: Option<&str>,
        pacing: Option<bool>,
        idle_restart: Option<bool>,
        window_cap: Option<i64>,
    ) -> PyResult<()> {
        let known = |name: &str| {
            let found = Variant::WORDS.iter().find(|(word, _)| *word == name).map(|(_, variant)| *variant);
            found.ok_or_else(|| {
                let words: Vec<&str> = Variant::WORDS.iter().map(|(word, _)| *word).collect();
                PyValueError::new_err(format!("variant: {name:?} is none of {}", words.join(", ")))
            })
        };
        let tuning = Tuning {
            initial_window: segments(initial_window, "initial_window", 1_000)?,
            min_rto: timeout(min_rto, "min_rto")?,
            initial_rto: timeout(initial_rto, "initial_rto")?,
            variant: variant.map(known).transpose()?,
            pacing,
            idle_restart,
            window_cap: segments(window_cap, "window_cap", 1_000_000)?,
        };
        self.take(Act::Tune, Action::Tune { tuning })
    }

    /// Show a value in results from now on.
    ///
    /// It is a column of `Result.series`; `measure.gauges` and `measure.tracking` of the scenario take it too.
    ///
    /// Args:
    ///     gauge: One of `Controller.shows`.
    ///     value: Its value in the unit of the gauge: `estimate` in Mbit/s. NaN: none.
    ///
    /// Raises:
    ///     ValueError: `shows` lacks the gauge, or the value is infinite.
    fn show(&mut self, gauge: &str, value: f64) -> PyResult<()> {
        if value.is_infinite() {
            return Err(PyValueError::new_err(format!("{gauge}: {value} is infinite")));
        }
        let own = self.shown.iter_mut().find(|(name, _)| *name == gauge);
        let own = own.ok_or_else(|| PyValueError::new_err(format!("{gauge}: the role's `shows` lack it")))?;
        own.1 = value;
        Ok(())
    }

    /// Ask for the next tick at a time, instead of after `interval`.
    ///
    /// Args:
    ///     at: Time since the start of the trial, in s.
    ///
    /// Raises:
    ///     ValueError: `at` is not after now.
    fn wake_at(&mut self, at: f64) -> PyResult<()> {
        let at = Time::ZERO + span(at, "at")?;
        if at <= self.now {
            return Err(PyValueError::new_err(format!("at: {} s is not after now", at.as_secs_f64())));
        }
        self.wake = Some(at);
        Ok(())
    }
}
