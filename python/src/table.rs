//! Tables of results as Arrow streams.

use std::fmt::Display;
use std::fs::File;
use std::io;
use std::path::PathBuf;

use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

/// Rows that are read at once.
const BATCH: usize = 1 << 16;

/// A Parquet file. Each call of `__arrow_c_stream__` reads it again.
#[pyclass(frozen, module = "bandmaster._bandmaster")]
pub(crate) struct Table {
    path: PathBuf,
}

impl Table {
    fn open(&self) -> PyResult<ParquetRecordBatchReaderBuilder<File>> {
        // Python has an exception for each kind.
        let failed = |error: io::Error| io::Error::new(error.kind(), self.told(&error));
        let file = File::open(&self.path).map_err(failed)?;
        ParquetRecordBatchReaderBuilder::try_new(file).map_err(|error| PyOSError::new_err(self.told(&error)))
    }

    /// An error, and of which file.
    fn told(&self, error: &dyn Display) -> String {
        format!("{}: {error}", self.path.display())
    }
}

#[pymethods]
impl Table {
    #[new]
    fn new(path: PathBuf) -> PyResult<Self> {
        let table = Self { path };
        table.open()?;
        Ok(table)
    }

    /// Number of rows.
    #[getter]
    fn num_rows(&self) -> PyResult<i64> {
        Ok(self.open()?.metadata().file_metadata().num_rows())
    }

    /// Name, unit and description of every column.
    #[getter]
    fn columns(&self) -> PyResult<Vec<(String, String, String)>> {
        let reader = self.open()?;
        let about = reader.metadata().file_metadata().key_value_metadata();
        let value = |what: &str, column: &str| {
            let pair = about.into_iter().flatten().find(|pair| {
                pair.key.strip_prefix(what).and_then(|rest| rest.strip_prefix(':')) == Some(column)
            });
            pair.and_then(|pair| pair.value.clone()).unwrap_or_default()
        };
        let names = reader.schema().fields().iter().map(|field| field.name().clone()).collect::<Vec<_>>();
        Ok(names
            .into_iter()
            .map(|name| (name.clone(), value("unit", &name), value("description", &name)))
            .collect())
    }

    /// The rows, by the Arrow PyCapsule interface.
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // The interface lets a producer that cannot cast give its own schema.
        drop(requested_schema);
        let reader = self.open()?.with_batch_size(BATCH).build();
        let reader = reader.map_err(|error| PyOSError::new_err(self.told(&error)))?;
        PyCapsule::new_with_value(py, FFI_ArrowArrayStream::new(Box::new(reader)), c"arrow_array_stream")
    }
}
