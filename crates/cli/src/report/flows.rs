//! `flows.parquet`: a row for each flow that started.
//!
//! Rows of a trial go to a file without a name in the output folder while it runs, so that memory does not grow with flows, and
//! from there to `flows.parquet` in the order of studies, cases and trials.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use bandmaster_core::report::flow::FlowRecord;
use bandmaster_core::scenario::{FlowRows, Study};
use bandmaster_table::flows::{COLUMNS, FlowNames, decode, encode};
use bandmaster_table::{Column, Rows};

use super::folder::OutputFolder;
use super::{ReportError, StudyResults, ordered, pcapng, run_cells, run_columns, study_names};

/// Bytes of rows that are written at once.
const BLOCK: usize = 1 << 16;

/// A trial: study, case, trial.
pub(crate) type TrialKey = (usize, usize, u32);

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

    /// Hands each row of a trial to `take`.
    ///
    /// # Errors
    /// When the rows cannot be read again.
    pub(crate) fn rows(&self, key: TrialKey, mut take: impl FnMut(&FlowRecord)) -> io::Result<()> {
        for number in 0.. {
            let Some(block) = self.block(key, number)? else { break };
            decode(&block, |row| {
                take(row);
                Ok(())
            })?;
        }
        Ok(())
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
        let block = encode(row, self.block.take());
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
            let run = run_cells(&name, study, case, record.trial);
            let mut names = FlowNames::new(&case.scenario, run, pcapng::address)?;
            for number in 0.. {
                let Some(block) = spill.block((index, record.case, record.trial), number)? else { break };
                names.push_block(&mut rows, &block)?;
            }
        }
    }
    rows.finish()
}
