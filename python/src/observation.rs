//! What roles in Python observe.

use bandmaster_core::control::{
    FlowEnd, FlowStart, FlowStats, Observation, Passed, PortStats, Refusal, Subject,
};
use bandmaster_core::id::{NodeId, PortId};
use bandmaster_core::time::Span;
use bandmaster_core::units::Bytes;
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString, PyTuple};

use crate::network::Network;

macro_rules! observations {
    ($($(#[$doc:meta])* $name:ident { $($(#[$of:meta])* $field:ident: $type:ty),* $(,)? })+) => {$(
        $(#[$doc])*
        #[pyclass(frozen, get_all, module = "bandmaster._bandmaster")]
        pub(crate) struct $name { $($(#[$of])* $field: $type),* }

        #[pymethods]
        impl $name {
            #[classattr]
            fn __match_args__() -> Vec<&'static str> { vec![$(stringify!($field)),*] }
        }
    )+};
}

observations! {
    /// The time that was asked for has come.
    Tick {
        /// Statistics of ports of the node, one for each, when the role wants them.
        ports: Py<PyTuple>,
        /// Statistics of open flows that end at the node, one for each, when the role wants them.
        flows: Py<PyTuple>,
    }
    /// Statistics of a port of the node.
    Port {
        /// Its name, `from->to`.
        port: Py<PyString>,
        /// Its rate in bit/s.
        capacity: u64,
        /// Number of flows that passed since this role's last tick; none where nobody counts them.
        flows_seen: Option<u32>,
        /// Number of flows between their SYN and FIN; none where nobody counts them.
        flows_open: Option<u32>,
        /// Bytes that wait; none where nobody tells.
        backlog: Option<u64>,
        /// Bytes of packets that have begun transmission, since the start.
        sent: u64,
        /// Packets offered to the port, since the start.
        offered: u64,
        /// Packets that its queue dropped, or that were lost because the link is down or went down, of those offered.
        dropped: u64,
    }
    /// Statistics of a flow at this node.
    Flow {
        /// Its number.
        flow: u32,
        /// `sender` when its data leave here, `receiver` when they arrive.
        end: &'static str,
        /// Payload bytes delivered in order (receiver) or acknowledged (sender).
        delivered: u64,
        /// Smoothed round-trip time in s, once measured.
        srtt: Option<f64>,
        /// Least round-trip time in s, once measured.
        min_rtt: Option<f64>,
        /// Latest round-trip time in s, once measured.
        last_rtt: Option<f64>,
        /// Payload bytes of a full segment.
        mss: u64,
        /// Bytes that a full segment takes on a link.
        frame: u64,
    }
    /// What the TCP of the node has sent; comes before a tick that brings flows.
    Sent {
        /// Data segments since the start, those sent again included.
        segments: u64,
        /// Data segments sent again.
        resent: u64,
    }
    /// The data at this end of the way of probes; comes before a tick of a role that wants `left` or `came`.
    Counted {
        /// Data packets that have passed it, probes not included.
        data_packets: u64,
        /// Their bytes of IP.
        data_bytes: u64,
    }
    /// A probe from this node leaves it.
    ProbeLeft {
        /// Its UDP payload.
        payload: Py<PyBytes>,
        /// Data packets that left the same port before, probes not included.
        data_packets: u64,
        /// Their bytes of IP.
        data_bytes: u64,
    }
    /// A probe has come. Every role at the node hears of it, of other schemes too.
    ProbeCame {
        /// Name of the node that sent it.
        sender: Py<PyString>,
        /// Its UDP payload.
        payload: Py<PyBytes>,
        /// Data packets that came over the same link before, probes not included.
        data_packets: u64,
        /// Their bytes of IP.
        data_bytes: u64,
    }
    /// A flow begins at the node. A window or rate that is set now holds for its first packet.
    FlowStarted {
        /// What is known of it.
        flow: Py<Flow>,
        /// Address and port number of its sender.
        source: (String, u16),
        /// Address and port number of its receiver.
        destination: (String, u16),
        /// Names of the ports on the way of its data, in order.
        route: Py<PyTuple>,
    }
    /// The data of a flow at the node take another way, because a link or a node has failed or is back.
    FlowMoved {
        /// What is known of it.
        flow: Py<Flow>,
        /// Names of the ports on the way of its data, in order.
        route: Py<PyTuple>,
    }
    /// The last statistics of a flow; comes just before `FlowEnded`.
    Carried {
        /// The statistics.
        flow: Py<Flow>,
    }
    /// A flow at the node has ended.
    FlowEnded {
        /// Its number.
        flow: u32,
    }
    /// Another role of the scheme says something.
    Message {
        /// Name of its node.
        sender: Py<PyString>,
        /// What it says.
        body: Py<PyBytes>,
    }
    /// A node is in the network again.
    Joined {
        /// Its name.
        node: Py<PyString>,
    }
    /// A node has gone, and with it its roles and flows.
    Left {
        /// Its name.
        node: Py<PyString>,
    }
    /// The simulator did not do what the role wanted.
    Refused {
        /// What it was about: `flow 3`, a node, `class 0 of r1->r2`, `root of r1->r2`, or `tcp`.
        subject: String,
        /// Why: `Unknown`, `Busy`, `Unable` or `Failed`.
        why: String,
    }
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

/// An observation as an object.
pub(crate) fn observed<'py>(
    py: Python<'py>,
    network: &Network,
    observation: &Observation<'_>,
) -> PyResult<Bound<'py, PyAny>> {
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
    match observation {
        Observation::Tick { ports, flows } => {
            let ports = ports.iter().map(port).collect::<PyResult<Vec<_>>>()?;
            let flows = flows.iter().map(|stats| Py::new(py, flow(stats))).collect::<PyResult<Vec<_>>>()?;
            let tick =
                Tick { ports: PyTuple::new(py, ports)?.unbind(), flows: PyTuple::new(py, flows)?.unbind() };
            tick.into_bound_py_any(py)
        }
        Observation::Sent(counts) => {
            Sent { segments: counts.sent, resent: counts.resent }.into_bound_py_any(py)
        }
        Observation::Counted(Passed { packets, bytes }) => {
            Counted { data_packets: *packets, data_bytes: *bytes }.into_bound_py_any(py)
        }
        Observation::ProbeLeft { payload, passed: Passed { packets, bytes } } => {
            let payload = PyBytes::new(py, payload).unbind();
            ProbeLeft { payload, data_packets: *packets, data_bytes: *bytes }.into_bound_py_any(py)
        }
        Observation::ProbeCame { from, payload, passed: Passed { packets, bytes } } => {
            let payload = PyBytes::new(py, payload).unbind();
            ProbeCame { sender: node(*from), payload, data_packets: *packets, data_bytes: *bytes }
                .into_bound_py_any(py)
        }
        Observation::FlowStarted(FlowStart { stats, key, route }) => {
            let end = |(address, port): (std::net::IpAddr, u16)| (address.to_string(), port);
            let route = PyTuple::new(py, route.iter().map(|port| port_name(*port)))?.unbind();
            let (source, destination) = (end(key.from), end(key.to));
            FlowStarted { flow: Py::new(py, flow(stats))?, source, destination, route }.into_bound_py_any(py)
        }
        Observation::FlowMoved(FlowStart { stats, route, .. }) => {
            let route = PyTuple::new(py, route.iter().map(|port| port_name(*port)))?.unbind();
            FlowMoved { flow: Py::new(py, flow(stats))?, route }.into_bound_py_any(py)
        }
        Observation::Carried(stats) => Carried { flow: Py::new(py, flow(stats))? }.into_bound_py_any(py),
        Observation::FlowEnded(flow) => FlowEnded { flow: flow.0 }.into_bound_py_any(py),
        Observation::Message(message) => {
            let body = PyBytes::new(py, &message.body).unbind();
            Message { sender: node(message.from), body }.into_bound_py_any(py)
        }
        Observation::Joined(joined) => Joined { node: node(*joined) }.into_bound_py_any(py),
        Observation::Left(left) => Left { node: node(*left) }.into_bound_py_any(py),
        Observation::Refused { subject, why } => {
            let subject = match subject {
                Subject::Flow(flow) => format!("flow {}", flow.0),
                Subject::Node(to) => node(*to).bind(py).to_string(),
                Subject::Class(port, None) => format!("root of {}", port_name(*port)),
                Subject::Class(port, Some(class)) => format!("class {class} of {}", port_name(*port)),
                Subject::Tcp => "tcp".to_owned(),
            };
            let why = match why {
                Refusal::Failed(_) => "Failed".to_owned(),
                why => format!("{why:?}"),
            };
            Refused { subject, why }.into_bound_py_any(py)
        }
    }
}
