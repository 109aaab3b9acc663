//! The rows of `flows.parquet`.

use std::io::{self, ErrorKind};

use bandmaster_core::id::NodeId;
use bandmaster_core::measure::rtt::RttSummary;
use bandmaster_core::report::flow::FlowRecord;
use bandmaster_core::scenario::{FlowGroup, Scenario, Transport};
use bandmaster_core::time::{Span, Time};
use bandmaster_core::workload::{SERVER_PORT, client_port};
use parquet::data_type::ByteArray;

use super::{Cell, Column, Kind, Rows};

/// Columns beside those of every file.
pub const COLUMNS: &[Column] = &[
    Column::needed(
        "flow",
        Kind::OwnText,
        "",
        "Name: flow group, sending group or host, number; `#2` of a restart",
    ),
    Column::needed("group", Kind::Text, "", "Flow group, a table of `[[flows]]`"),
    Column::needed("from", Kind::Text, "", "Sending group or host, as `from` of the flow group names it"),
    Column::needed("measured", Kind::Bool, "", "Counts in the metrics of the run"),
    Column::needed("number", Kind::I64, "", "Number in the run; rounds and exchanges use one again"),
    Column::needed("source", Kind::Text, "", "Sending host"),
    Column::needed("destination", Kind::Text, "", "Receiving host"),
    Column::needed("protocol", Kind::Text, "", "`tcp` or `udp`"),
    Column::needed("source_address", Kind::Text, "", "IPv4 address of the sending host, as in a capture"),
    Column::needed(
        "destination_address",
        Kind::Text,
        "",
        "IPv4 address of the receiving host, as in a capture",
    ),
    Column::needed("source_port", Kind::U32, "", "Port of the sender, as in a capture"),
    Column::needed("destination_port", Kind::U32, "", "Port of the receiver, as in a capture"),
    Column::optional("size", Kind::I64, "B", "Payload that it has to carry; null: without end, or UDP"),
    Column::needed("start_s", Kind::F64, "s", "When it started"),
    Column::optional(
        "end_s",
        Kind::F64,
        "s",
        "When its last byte had arrived, or UDP stopped; null: unfinished",
    ),
    Column::needed("bytes", Kind::I64, "B", "Payload that arrived in order"),
    Column::optional(
        "fct_s",
        Kind::F64,
        "s",
        "Completion time: end less start; null: unfinished or without a size",
    ),
    Column::optional(
        "ideal_fct_s",
        Kind::F64,
        "s",
        "Completion time in an empty network (docs/data.md); null: without a size, or multipath TCP",
    ),
    Column::optional("slowdown", Kind::F64, "", "Completion time over the ideal one; null where either is"),
    Column::optional("packets", Kind::I64, "pkt", "Data segments that its sender sent; null: UDP"),
    Column::needed("drops", Kind::I64, "pkt", "Packets of its sender that queues dropped"),
    Column::optional("retransmits", Kind::I64, "pkt", "Segments sent again; null: UDP"),
    Column::optional("rtos", Kind::I64, "", "Retransmission timeouts; null: UDP"),
    Column::optional(
        "rtt_samples",
        Kind::I64,
        "",
        "Round-trip times that its sender measured; null, as the following, without `flow-table = \"rtt\"` and without any",
    ),
    Column::optional("rtt_min_ms", Kind::F64, "ms", "Least of them"),
    Column::optional("rtt_mean_ms", Kind::F64, "ms", "Their mean"),
    Column::optional("rtt_p50_ms", Kind::F64, "ms", "Their median, within `rtt_error`"),
    Column::optional("rtt_p95_ms", Kind::F64, "ms", "Their 95th percentile, within `rtt_error`"),
    Column::optional("rtt_p99_ms", Kind::F64, "ms", "Their 99th percentile, within `rtt_error`"),
    Column::optional("rtt_error", Kind::F64, "", "Share by which the percentiles are off at most"),
];

/// Appends a row to a block of rows.
pub fn encode(row: &FlowRecord, block: Vec<u8>) -> Vec<u8> {
    // A vector takes everything.
    postcard::to_extend(row, block).unwrap_or_default()
}

/// Hands each row of a block to `take`.
///
/// # Errors
/// When it is none, or `take` refuses.
pub fn decode(mut block: &[u8], mut take: impl FnMut(&FlowRecord) -> io::Result<()>) -> io::Result<()> {
    while !block.is_empty() {
        let (row, rest) = postcard::take_from_bytes::<FlowRecord>(block)
            .map_err(|error| io::Error::new(ErrorKind::InvalidData, error.to_string()))?;
        block = rest;
        take(&row)?;
    }
    Ok(())
}

/// What the rows of a trial have in common: texts that are made once.
pub struct FlowNames<'a> {
    groups: &'a [FlowGroup],
    run: Vec<Cell>,
    /// Name and address of each node.
    hosts: Vec<[Cell; 2]>,
    /// Flow groups, and what each is from.
    flow_groups: Vec<(Cell, Vec<Cell>)>,
    tcp: Cell,
    udp: Cell,
    /// The name of a flow.
    name: String,
}

impl<'a> FlowNames<'a> {
    /// For a trial of `scenario`, with the cells `run` before those of each row.
    ///
    /// # Errors
    /// When a node has no address.
    pub fn new(
        scenario: &'a Scenario,
        run: Vec<Cell>,
        address: impl Fn(NodeId) -> io::Result<[u8; 4]>,
    ) -> io::Result<Self> {
        let texts = |texts: &[String]| texts.iter().map(|text| Cell::text(text)).collect();
        let host = |(id, name): (u32, &str)| {
            let [a, b, c, d] = address(NodeId(id))?;
            Ok([Cell::text(name), Cell::text(&format!("{a}.{b}.{c}.{d}"))])
        };
        let nodes = scenario.topology.nodes.iter().map(|node| node.name.as_str());
        let groups = &scenario.flows;
        Ok(Self {
            groups,
            run,
            hosts: (0..).zip(nodes).map(host).collect::<io::Result<_>>()?,
            flow_groups: groups.iter().map(|group| (Cell::text(&group.name), texts(&group.from))).collect(),
            tcp: Cell::text("tcp"),
            udp: Cell::text("udp"),
            name: String::new(),
        })
    }

    /// Writes a block of rows.
    ///
    /// # Errors
    /// When it is none, or the file refuses.
    pub fn push_block(&mut self, rows: &mut Rows<'_>, block: &[u8]) -> io::Result<()> {
        decode(block, |row| {
            let cells = self.cells(row);
            rows.push(self.run.iter().cloned().chain(cells))
        })
    }

    fn cells(&mut self, row: &FlowRecord) -> [Cell; COLUMNS.len()] {
        let (plan, group) = (&row.plan, row.group(self.groups));
        self.name.clear();
        plan.write_name(self.groups, &mut self.name);
        let (number, from) = plan.source();
        let (group_name, froms) = &self.flow_groups[number];
        let [[src, src_address], [dst, dst_address]] =
            [plan.src, plan.dst].map(|node| self.hosts[node.index()].clone());
        let seconds = Span::as_secs_f64;
        let rtt = row.rtt.as_ref();
        let millis = |of: fn(&RttSummary) -> Span| Cell::from(rtt.map(|rtt| of(rtt).as_secs_f64() * 1e3));
        let is_tcp = matches!(group.transport, Transport::Tcp { .. });
        [
            Cell::Text(ByteArray::from(self.name.as_str())),
            group_name.clone(),
            froms[from].clone(),
            Cell::Bool(group.measured),
            Cell::I64(row.number.into()),
            src,
            dst,
            if is_tcp { self.tcp.clone() } else { self.udp.clone() },
            src_address,
            dst_address,
            Cell::U32(client_port(row.number).into()),
            Cell::U32(SERVER_PORT.into()),
            row.size.into(),
            Cell::F64(plan.start.as_secs_f64()),
            row.end.map(Time::as_secs_f64).into(),
            Cell::I64(row.bytes as i64),
            row.fct().map(seconds).into(),
            row.ideal.map(seconds).into(),
            row.slowdown().into(),
            row.packets.into(),
            Cell::I64(row.drops as i64),
            row.retransmits.into(),
            row.timeouts.into(),
            rtt.map(|rtt| rtt.count).into(),
            millis(|rtt| rtt.min),
            millis(|rtt| rtt.mean),
            millis(|rtt| rtt.p50),
            millis(|rtt| rtt.p95),
            millis(|rtt| rtt.p99),
            rtt.map(|rtt| rtt.error).into(),
        ]
    }
}
