//! `flows.parquet`: a row for each flow that started.
//!
//! Rows of a trial go to a file without a name in the output folder while it runs, so that memory does not grow with flows, and
//! from there to `flows.parquet` in the order of studies, cases and trials.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use bandmaster_core::id::NodeId;
use bandmaster_core::measure::rtt::RttSummary;
use bandmaster_core::report::flow::FlowRecord;
use bandmaster_core::scenario::{FlowRows, Scenario, Study, Transport};
use bandmaster_core::time::{Span, Time};
use bandmaster_core::workload::{SERVER_PORT, client_port};

use super::columns::{Cell, Column, Kind, Rows};
use super::folder::OutputFolder;
use super::{ReportError, StudyResults, ordered, pcapng, run_cells, run_columns, study_names};

/// Bytes of rows that are written at once.
const BLOCK: usize = 1 << 16;

/// A trial: study, case, trial.
pub(crate) type TrialKey = (usize, usize, u32);

/// Columns beside those of every file.
const COLUMNS: &[Column] = &[
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

/// Keeps the rows of trials that run.
#[derive(Debug)]
pub(crate) struct FlowSpill {
    path: PathBuf,
    kept: Mutex<Kept>,
}

#[derive(Debug)]
struct Kept {
    file: File,
    length: u64,
    /// Begin and length of the blocks of each trial, in order.
    blocks: BTreeMap<TrialKey, Vec<(u64, usize)>>,
    /// Why rows are missing.
    failed: Option<io::Error>,
}

impl FlowSpill {
    /// A file without a name in `folder`, when a case asks for rows.
    ///
    /// # Errors
    /// When the system refuses.
    pub(crate) fn create<'a>(
        folder: &OutputFolder,
        studies: impl IntoIterator<Item = &'a Study>,
    ) -> Result<Option<Self>, ReportError> {
        let mut cases = studies.into_iter().flat_map(|study| &study.cases);
        if cases.all(|case| case.scenario.measure.flow_table == FlowRows::None) {
            return Ok(None);
        }
        let path = folder.path().join(".flows.part");
        let failed = |error| ReportError::Io { doing: "create", path: path.clone(), error };
        let file = File::options().read(true).write(true).create(true).truncate(true).open(&path);
        let file = file.map_err(failed)?;
        // It goes with the program, however that ends.
        fs::remove_file(&path).map_err(failed)?;
        let kept = Kept { file, length: 0, blocks: BTreeMap::new(), failed: None };
        Ok(Some(Self { path: folder.path().join("flows.parquet"), kept: Mutex::new(kept) }))
    }

    /// What takes the rows of a trial.
    pub(crate) fn trial(&self, key: TrialKey) -> TrialRows<'_> {
        TrialRows { spill: self, key, block: RefCell::default() }
    }

    /// What went wrong with the rows, if anything.
    ///
    /// # Errors
    /// When rows could not be kept.
    pub(crate) fn check(&self) -> Result<(), ReportError> {
        let failed = self.kept.lock().unwrap_or_else(PoisonError::into_inner).failed.take();
        failed.map_or(Ok(()), |error| Err(ReportError::Io { doing: "write", path: self.path.clone(), error }))
    }

    /// The next block of rows of a trial.
    fn block(&self, key: TrialKey, number: usize) -> io::Result<Option<Vec<u8>>> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(&(begin, length)) = kept.blocks.get(&key).and_then(|blocks| blocks.get(number)) else {
            return Ok(None);
        };
        let mut block = vec![0; length];
        kept.file.seek(SeekFrom::Start(begin))?;
        kept.file.read_exact(&mut block)?;
        Ok(Some(block))
    }
}

/// Takes the rows of a trial.
pub(crate) struct TrialRows<'a> {
    spill: &'a FlowSpill,
    key: TrialKey,
    block: RefCell<Vec<u8>>,
}

impl TrialRows<'_> {
    /// Takes a row.
    pub(crate) fn push(&self, row: &FlowRecord) {
        // A vector takes everything.
        let block = postcard::to_extend(row, self.block.take()).unwrap_or_default();
        let is_full = block.len() >= BLOCK;
        self.block.replace(block);
        if is_full {
            self.flush();
        }
    }

    /// Hands over what has not been written.
    pub(crate) fn flush(&self) {
        let mut block = self.block.borrow_mut();
        let mut kept = self.spill.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.failed.is_none() && !block.is_empty() {
            match kept.file.write_all(&block) {
                Ok(()) => {
                    let begin = kept.length;
                    kept.length += block.len() as u64;
                    kept.blocks.entry(self.key).or_default().push((begin, block.len()));
                }
                Err(error) => kept.failed = Some(error),
            }
        }
        block.clear();
    }
}

/// Writes the rows of all finished trials.
///
/// # Errors
/// When `out` refuses, or the rows cannot be read again.
pub(crate) fn write_flows<W: Write + Send>(
    out: W,
    results: &[StudyResults<'_>],
    spill: &FlowSpill,
) -> io::Result<()> {
    let columns: Vec<Column> = run_columns().iter().chain(COLUMNS).cloned().collect();
    let mut rows = Rows::new(out, "flows", &columns)?;
    for ((index, StudyResults { study, records, .. }), name) in
        results.iter().enumerate().zip(study_names(results))
    {
        for (record, case) in ordered(study, records) {
            let run = run_cells(&name, case, record.trial);
            let names = Names::new(&case.scenario);
            for number in 0.. {
                let Some(block) = spill.block((index, record.case, record.trial), number)? else { break };
                let mut rest = &block[..];
                while !rest.is_empty() {
                    let (row, after) = postcard::take_from_bytes::<FlowRecord>(rest)
                        .map_err(|error| io::Error::new(ErrorKind::InvalidData, error.to_string()))?;
                    rest = after;
                    rows.push(run.iter().cloned().chain(names.cells(&row)?))?;
                }
            }
        }
    }
    rows.finish()
}

/// What rows of a scenario are called.
struct Names<'a> {
    scenario: &'a Scenario,
    tcp: Cell,
    udp: Cell,
}

impl<'a> Names<'a> {
    fn new(scenario: &'a Scenario) -> Self {
        Self { scenario, tcp: Cell::text("tcp"), udp: Cell::text("udp") }
    }

    fn cells(&self, row: &FlowRecord) -> io::Result<[Cell; COLUMNS.len()]> {
        let Scenario { flows: groups, topology, .. } = self.scenario;
        let (plan, group) = (&row.plan, row.group(groups));
        let host = |node: NodeId| Cell::text(&topology.nodes[node.index()].name);
        let address = |node| {
            let [a, b, c, d] = pcapng::address(node)?;
            io::Result::Ok(Cell::text(&format!("{a}.{b}.{c}.{d}")))
        };
        let seconds = Span::as_secs_f64;
        let rtt = row.rtt.as_ref();
        let millis = |of: fn(&RttSummary) -> Span| Cell::from(rtt.map(|rtt| of(rtt).as_secs_f64() * 1e3));
        let is_tcp = matches!(group.transport, Transport::Tcp { .. });
        Ok([
            Cell::text(&plan.name(groups)),
            Cell::text(&group.name),
            Cell::text(plan.entity(groups)),
            Cell::Bool(group.measured),
            Cell::I64(row.number.into()),
            host(plan.src),
            host(plan.dst),
            if is_tcp { self.tcp.clone() } else { self.udp.clone() },
            address(plan.src)?,
            address(plan.dst)?,
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
        ])
    }
}
