//! The rows of `flows.parquet`.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::sync::{Mutex, PoisonError};

use bandmaster_core::id::NodeId;
use bandmaster_core::measure::rtt::RttSummary;
use bandmaster_core::report::flow::FlowRecord;
use bandmaster_core::scenario::{FlowGroup, Scenario, Transport};
use bandmaster_core::time::{Span, Time};
use bandmaster_core::workload::{RECEIVERS, SENDERS, SERVER_PORT, client_port};
use bytes::Bytes;
use parquet::data_type::ByteArray;

use super::{Column, Kind, Rows};

/// Columns in addition to those of every file.
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
    Column::needed(
        "source_address",
        Kind::Text,
        "",
        "IPv4 address of the sending host, as in a capture; in an emulation that of the flow",
    ),
    Column::needed(
        "destination_address",
        Kind::Text,
        "",
        "IPv4 address of the receiving host, as in a capture; in an emulation that of the flow",
    ),
    Column::optional("source_port", Kind::U32, "", "Port of the sender, as in a capture; null: an emulation"),
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
    Column::optional(
        "drops",
        Kind::I64,
        "pkt",
        "Packets of its sender that queues dropped; null: an emulation, behind a queue of the kernel",
    ),
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
/// When it is none of this scenario, or `take` refuses.
pub fn decode(
    scenario: &Scenario,
    mut block: &[u8],
    mut take: impl FnMut(FlowRecord) -> io::Result<()>,
) -> io::Result<()> {
    while !block.is_empty() {
        let (row, rest) = postcard::take_from_bytes::<FlowRecord>(block)
            .map_err(|error| io::Error::new(ErrorKind::InvalidData, error.to_string()))?;
        block = rest;
        if !is_own(scenario, &row) {
            return Err(io::Error::new(ErrorKind::InvalidData, "a flow that the scenario has not"));
        }
        take(row)?;
    }
    Ok(())
}

/// Whether all that the row names is in the scenario.
fn is_own(scenario: &Scenario, row: &FlowRecord) -> bool {
    let (group, from) = row.plan.source();
    let knows = |node: NodeId| node.index() < scenario.topology.nodes.len();
    scenario.flows.get(group).is_some_and(|group| from < group.from.len())
        && knows(row.plan.src)
        && knows(row.plan.dst)
}

/// Rows that are written at once: few enough for the cache nearest to the processor, which sees them once for each column.
const BATCH: usize = 1 << 6;

/// What the rows of a trial have in common: texts that are made once.
pub struct FlowNames<'a> {
    scenario: &'a Scenario,
    /// Scenario, variant and points.
    run: [ByteArray; 3],
    trial: u32,
    /// Names and addresses of nodes.
    hosts: Vec<ByteArray>,
    addresses: Vec<ByteArray>,
    /// Flow groups, and what each is from.
    flow_groups: Vec<(ByteArray, Vec<ByteArray>)>,
    protocols: [ByteArray; 2],
    /// Rows that wait.
    batch: Vec<FlowRecord>,
}

/// Text that lives as long as the program, each once: its copies count no references.
fn lasting(text: &str) -> ByteArray {
    static TEXTS: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut texts = TEXTS.lock().unwrap_or_else(PoisonError::into_inner);
    let known = texts.get(text).copied();
    let text = known.unwrap_or_else(|| Box::leak(text.into()));
    texts.insert(text);
    Bytes::from_static(text.as_bytes()).into()
}

/// The address of a flow in the lab, of those that begin with `base`.
fn of_flow(base: u32, number: u32) -> ByteArray {
    let [a, b, c, d] = (base | number.wrapping_add(1)).to_be_bytes();
    ByteArray::from(format!("{a}.{b}.{c}.{d}").into_bytes())
}

impl<'a> FlowNames<'a> {
    /// Names flows of a trial of `scenario`. Every row begins with the texts `run` and the number `trial`.
    ///
    /// # Errors
    /// When a node has no address.
    pub fn new(
        scenario: &'a Scenario,
        run: [&str; 3],
        trial: u32,
        address: impl Fn(NodeId) -> io::Result<[u8; 4]>,
    ) -> io::Result<Self> {
        let texts = |texts: &[String]| texts.iter().map(|text| lasting(text)).collect();
        let address = |id: u32| {
            let [a, b, c, d] = address(NodeId(id))?;
            Ok(lasting(&format!("{a}.{b}.{c}.{d}")))
        };
        let nodes = &scenario.topology.nodes;
        let groups: &[FlowGroup] = &scenario.flows;
        Ok(Self {
            scenario,
            run: run.map(lasting),
            trial,
            hosts: nodes.iter().map(|node| lasting(&node.name)).collect(),
            addresses: (0..nodes.len() as u32).map(address).collect::<io::Result<_>>()?,
            flow_groups: groups.iter().map(|group| (lasting(&group.name), texts(&group.from))).collect(),
            protocols: ["tcp", "udp"].map(lasting),
            batch: Vec::new(),
        })
    }

    /// Writes a block of rows.
    ///
    /// # Errors
    /// When it is none of this scenario, or the file refuses.
    pub fn push_block(&mut self, rows: &mut Rows<'_>, block: &[u8]) -> io::Result<()> {
        decode(self.scenario, block, |row| {
            self.batch.push(row);
            if self.batch.len() == BATCH.min(rows.space()) { self.push_rest(rows) } else { Ok(()) }
        })?;
        self.push_rest(rows)
    }

    fn push_rest(&mut self, rows: &mut Rows<'_>) -> io::Result<()> {
        if self.batch.is_empty() {
            return Ok(());
        }
        let mut batch = std::mem::take(&mut self.batch);
        self.push_batch(rows, &batch)?;
        batch.clear();
        self.batch = batch;
        Ok(())
    }

    fn push_batch(&self, rows: &mut Rows<'_>, batch: &[FlowRecord]) -> io::Result<()> {
        let groups = &self.scenario.flows;
        let mut names = String::new();
        let mut ends = Vec::with_capacity(batch.len());
        for row in batch {
            row.plan.write_name(groups, &mut names);
            ends.push(names.len());
        }
        let names = ByteArray::from(names.into_bytes());
        let begins = std::iter::once(0).chain(ends.iter().copied());
        let count = batch.len();
        let all = || batch.iter();
        let group = |row: &FlowRecord| &groups[row.plan.group_index()];
        let seconds = Span::as_secs_f64;
        let is_udp = |row: &FlowRecord| !matches!(group(row).transport, Transport::Tcp { .. });
        rows.push_columns(count, |columns| {
            for text in &self.run {
                columns.texts(std::iter::repeat_n(text.clone(), count));
            }
            columns.small(std::iter::repeat_n(self.trial, count));
            columns.texts(begins.zip(&ends).map(|(begin, end)| names.slice(begin, end - begin)));
            columns.texts(all().map(|row| self.flow_groups[row.plan.group_index()].0.clone()));
            columns.texts(all().map(|row| {
                let (group, from) = row.plan.source();
                self.flow_groups[group].1[from].clone()
            }));
            columns.bools(all().map(|row| group(row).measured));
            columns.whole(all().map(|row| row.number.into()));
            columns.texts(all().map(|row| self.hosts[row.plan.src.index()].clone()));
            columns.texts(all().map(|row| self.hosts[row.plan.dst.index()].clone()));
            columns.texts(all().map(|row| self.protocols[usize::from(is_udp(row))].clone()));
            let address = |row: &FlowRecord, node: NodeId, lab: u32| match row.lab_port {
                None => self.addresses[node.index()].clone(),
                Some(_) => of_flow(lab, row.number),
            };
            columns.texts(all().map(|row| address(row, row.plan.src, SENDERS)));
            columns.texts(all().map(|row| address(row, row.plan.dst, RECEIVERS)));
            columns.small_or_null(all().map(|row| match row.lab_port {
                None => Some(client_port(row.number).into()),
                Some(_) => None,
            }));
            columns.small(all().map(|row| row.lab_port.unwrap_or(SERVER_PORT).into()));
            columns.whole_or_null(all().map(|row| row.size));
            columns.numbers(all().map(|row| row.plan.start.as_secs_f64()));
            columns.number_or_null(all().map(|row| row.end.map(Time::as_secs_f64)));
            columns.whole(all().map(|row| row.bytes));
            columns.number_or_null(all().map(|row| row.fct().map(seconds)));
            columns.number_or_null(all().map(|row| row.ideal.map(seconds)));
            columns.number_or_null(all().map(FlowRecord::slowdown));
            columns.whole_or_null(all().map(|row| row.packets));
            columns.whole_or_null(all().map(|row| row.drops));
            columns.whole_or_null(all().map(|row| row.retransmits));
            columns.whole_or_null(all().map(|row| row.timeouts));
            columns.whole_or_null(all().map(|row| row.rtt.map(|rtt| rtt.count)));
            let times: [fn(&RttSummary) -> Span; 5] =
                [|rtt| rtt.min, |rtt| rtt.mean, |rtt| rtt.p50, |rtt| rtt.p95, |rtt| rtt.p99];
            for time in times {
                let millis = |row: &FlowRecord| Some(time(row.rtt.as_ref()?).as_secs_f64() * 1e3);
                columns.number_or_null(all().map(millis));
            }
            columns.number_or_null(all().map(|row| row.rtt.map(|rtt| rtt.error)));
        })
    }
}

#[cfg(test)]
mod tests {
    use bandmaster_core::scenario::{Options, parse};

    use super::*;

    const SCENARIO: &str = r#"
        version = 1
        name = "two"
        [run]
        duration = "1s"
        [network]
        builder = "star"
        size = 2
        [network.link]
        rate = "10mbit"
        delay = "1ms"
        [[flows]]
        name = "bulk"
        from = "hosts"
        to = "hosts"
        pairing = "all-to-all"
    "#;

    /// Rows from a record file name flow groups and hosts by number; those of another scenario are an error, not a panic.
    #[test]
    fn rows_of_another_scenario_are_refused() {
        let study = parse("two.toml", SCENARIO, &Options::default()).unwrap();
        let columns: Vec<Column> = [
            Column::needed("scenario", Kind::Text, "", ""),
            Column::needed("variant", Kind::Text, "", ""),
            Column::needed("points", Kind::Text, "", ""),
            Column::needed("trial", Kind::U32, "", ""),
        ]
        .iter()
        .chain(COLUMNS)
        .cloned()
        .collect();
        let pushed = |group: u32, from: u32, src: u32, dst: u32| {
            let mut rows = Rows::new(Vec::new(), "flows", &columns)?;
            let mut names =
                FlowNames::new(&study.cases[0].scenario, ["two", "", ""], 0, |_| Ok([10, 0, 0, 1]))?;
            let none = None::<u64>;
            let plan = (group, from, 0_u32, 1_u32, src, dst, 0_u64, u64::MAX);
            let counts = (none, 5_u64, none, none, none, none, none, none, none);
            names.push_block(&mut rows, &postcard::to_allocvec(&(7_u32, plan, none, counts)).unwrap())?;
            rows.finish()
        };
        pushed(0, 0, 0, 1).unwrap();
        for (group, from, src, dst) in [(1, 0, 0, 1), (0, 9, 0, 1), (0, 0, 99, 1), (0, 0, 0, u32::MAX)] {
            let error = pushed(group, from, src, dst).unwrap_err();
            assert_eq!(error.to_string(), "a flow that the scenario has not");
        }
    }
}
