//! `flows.parquet`: a row for each flow that started.
//!
//! Rows of a trial go to the record file of the run while it runs, so that memory does not grow with flows, and from there to
//! `flows.parquet` in the order of studies, cases and trials.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use bandmaster_core::report::flow::FlowRecord;
use bandmaster_core::scenario::{FlowRows, Scenario, Study};
use bandmaster_table::flows::{COLUMNS, FlowNames, decode};
use bandmaster_table::{Column, Rows};

use super::{StudyResults, ordered, pcapng, points, run_columns, study_names};
use crate::jobs::TrialKey;
use crate::records::Block;

/// Whether a case of the studies asks for rows.
pub(crate) fn are_wanted<'a>(studies: impl IntoIterator<Item = &'a Study>) -> bool {
    let mut cases = studies.into_iter().flat_map(|study| &study.cases);
    cases.any(|case| case.scenario.measure.flow_table != FlowRows::None)
}

/// Where the rows of trials are.
#[derive(Debug)]
pub(crate) struct FlowBlocks {
    files: Vec<PathBuf>,
    /// Position of the file of each trial, and its blocks there, in order.
    trials: BTreeMap<TrialKey, (usize, Vec<Block>)>,
    /// The run's own file, which nobody else may write until its report is there.
    _locked: Option<File>,
}

impl FlowBlocks {
    /// In these record files, which are opened when they are read: there may be more than a program may have open.
    pub(crate) fn new(
        parts: impl IntoIterator<Item = (PathBuf, BTreeMap<TrialKey, Vec<Block>>)>,
        locked: Option<File>,
    ) -> Self {
        let mut own = Self { files: Vec::new(), trials: BTreeMap::new(), _locked: locked };
        for (file, trials) in parts {
            let position = own.files.len();
            own.files.push(file);
            own.trials.extend(trials.into_iter().map(|(key, blocks)| (key, (position, blocks))));
        }
        own
    }

    /// The blocks of a trial, in order.
    fn of(&self, key: TrialKey) -> impl Iterator<Item = io::Result<Vec<u8>>> {
        let blocks = self.trials.get(&key).into_iter();
        blocks.flat_map(|(file, blocks)| blocks.iter().map(|block| read(&self.files[*file], *block)))
    }

    /// Hands each row of a trial to `take`.
    ///
    /// # Errors
    /// When the rows cannot be read again, or are none of the trial's scenario.
    pub(crate) fn rows(
        &self,
        scenario: &Scenario,
        key: TrialKey,
        mut take: impl FnMut(&FlowRecord),
    ) -> io::Result<()> {
        for block in self.of(key) {
            decode(scenario, &block?, |row| {
                take(&row);
                Ok(())
            })?;
        }
        Ok(())
    }
}

/// The content of a block of a record file.
///
/// # Errors
/// When the system refuses.
pub(crate) fn read(file: &Path, (begin, length): Block) -> io::Result<Vec<u8>> {
    let mut file = File::open(file)?;
    let mut block = vec![0; length as usize];
    file.seek(SeekFrom::Start(begin))?;
    file.read_exact(&mut block)?;
    Ok(block)
}

/// Writes the rows of all finished trials.
///
/// # Errors
/// When `out` refuses, or the rows cannot be read again.
pub(crate) fn write_flows<W: Write + Send>(
    out: W,
    results: &[StudyResults<'_>],
    blocks: &FlowBlocks,
) -> io::Result<()> {
    let columns: Vec<Column> = run_columns().iter().chain(COLUMNS).cloned().collect();
    let mut rows = Rows::new(out, "flows", &columns)?;
    for ((index, StudyResults { study, records, .. }), name) in
        results.iter().enumerate().zip(study_names(results))
    {
        for (record, case) in ordered(study, records) {
            let run = [&name, &case.variant, &points(study, case)];
            let mut names =
                FlowNames::new(&case.scenario, run.map(String::as_str), record.trial, pcapng::address)?;
            for block in blocks.of((index, record.case, record.trial)) {
                names.push_block(&mut rows, &block?)?;
            }
        }
    }
    rows.finish()
}
