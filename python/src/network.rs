//! The network of a trial, as roles in Python know it.

use std::collections::HashMap;

use bandmaster_core::id::{NodeId, PortId};
use bandmaster_core::runtime::inventory::Inventory;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};

/// What is known of the network of a trial.
#[pyclass(frozen, module = "bandmaster._bandmaster")]
pub(crate) struct Network {
    pub(crate) node_names: Vec<Py<PyString>>,
    pub(crate) port_names: Vec<Py<PyString>>,
    node_numbers: HashMap<String, NodeId>,
    /// By name, and the node that sends.
    port_numbers: HashMap<String, (PortId, NodeId)>,
    /// Names of hosts and routers.
    #[pyo3(get)]
    nodes: Py<PyTuple>,
    /// Ports: name, the node that sends, the node that receives, rate in bit/s.
    ///
    /// A name is `from->to`, and `from->to#2` for the second of parallel links.
    #[pyo3(get)]
    ports: Py<PyTuple>,
    /// By TCP flow: the ports on the way of its data.
    #[pyo3(get)]
    routes: Py<PyTuple>,
}

impl Network {
    pub(crate) fn new(py: Python<'_>, inventory: &Inventory, routes: &[Vec<PortId>]) -> PyResult<Self> {
        let nodes = (0..inventory.nodes() as u32).map(|node| inventory.name(NodeId(node)));
        let node_names: Vec<Py<PyString>> =
            nodes.clone().map(|name| PyString::new(py, name).unbind()).collect();
        let mut port_names = Vec::new();
        let mut port_numbers = HashMap::new();
        let mut links: HashMap<(NodeId, NodeId), u32> = HashMap::new();
        for (number, port) in inventory.ports() {
            let mut name = format!("{}->{}", inventory.name(port.from), inventory.name(port.to));
            let links = links.entry((port.from, port.to)).or_default();
            *links += 1;
            if *links > 1 {
                name = format!("{name}#{links}");
            }
            port_names.push(PyString::new(py, &name).unbind());
            port_numbers.insert(name, (number, port.from));
        }
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
            port_numbers,
        })
    }

    /// A port that `node` sends to.
    pub(crate) fn port(&self, name: &str, node: NodeId) -> PyResult<PortId> {
        match self.port_numbers.get(name) {
            Some((port, from)) if *from == node => Ok(*port),
            Some(_) => Err(PyValueError::new_err(format!("{name:?} is a port of another node"))),
            None => Err(PyValueError::new_err(format!("there is no port {name:?}"))),
        }
    }

    pub(crate) fn node(&self, name: &str) -> PyResult<NodeId> {
        let number = self.node_numbers.get(name).copied();
        number.ok_or_else(|| PyValueError::new_err(format!("there is no node {name:?}")))
    }
}
