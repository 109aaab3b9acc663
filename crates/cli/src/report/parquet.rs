//! `series.parquet`: every recorded series, a row for each interval and a column for each metric.
//!
//! Columns: `scenario` (name of the study), `variant`, `points` (`sweep=value, ...`), `trial`, `time_s` (end of the
//! interval), `entity`, then the metrics that occur, null where a metric has no value.

use std::io::{self, Write};
use std::sync::Arc;

use bandmaster_core::report::{RunRecord, Series, metric};
use parquet::basic::Compression;
use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, FloatType, Int32Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::ColumnPath;

use super::{StudyResults, VERSION, distinct, study_names};

/// Rows of a row group: some 4 MiB before compression.
const GROUP_ROWS: usize = 1 << 17;

/// Writes the series of all studies, ordered by study, case, trial, entity and time.
///
/// # Errors
/// When `out` refuses.
pub(crate) fn write_series<W: Write + Send>(out: W, results: &[StudyResults<'_>]) -> io::Result<()> {
    write(out, results).map_err(|error| match error {
        ParquetError::External(error) => match error.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(error) => io::Error::other(error),
        },
        error => io::Error::other(error),
    })
}

fn write<W: Write + Send>(out: W, results: &[StudyResults<'_>]) -> Result<(), ParquetError> {
    let metrics = metrics(results);
    let mut message = "message series {
        REQUIRED BYTE_ARRAY scenario (STRING);
        REQUIRED BYTE_ARRAY variant (STRING);
        REQUIRED BYTE_ARRAY points (STRING);
        REQUIRED INT32 trial (INTEGER(32,false));
        REQUIRED DOUBLE time_s;
        REQUIRED BYTE_ARRAY entity (STRING);
        "
    .to_owned();
    let mut properties = WriterProperties::builder()
        .set_created_by(format!("bandmaster version {VERSION}"))
        .set_compression(Compression::SNAPPY);
    for metric in &metrics {
        message.push_str(&format!("OPTIONAL FLOAT {metric};\n"));
        properties = properties.set_column_dictionary_enabled(ColumnPath::from(*metric), false);
    }
    message.push('}');
    let schema = Arc::new(parse_message_type(&message)?);
    let mut writer = SerializedFileWriter::new(out, schema, Arc::new(properties.build()))?;
    let mut batch = Batch::new(&metrics);
    for (StudyResults { study, records, .. }, name) in results.iter().zip(study_names(results)) {
        let name = ByteArray::from(name.as_str());
        let mut ordered: Vec<&RunRecord> = records.iter().collect();
        ordered.sort_by_key(|record| (record.case, record.trial));
        for record in ordered {
            let Some(case) = study.cases.get(record.case) else { continue };
            let points: Vec<String> =
                case.points.iter().map(|(sweep, value)| format!("{sweep}={value}")).collect();
            let points = ByteArray::from(points.join(", ").as_str());
            let run = [name.clone(), ByteArray::from(case.variant.as_str()), points];
            for entity in entities(record) {
                batch.push_entity(&mut writer, &run, record, entity)?;
            }
        }
    }
    batch.flush(&mut writer)?;
    writer.close()?;
    Ok(())
}

/// Rows of the next row group, by column.
#[derive(Default)]
struct Batch {
    /// Scenario, variant and points.
    run: [Vec<ByteArray>; 3],
    trial: Vec<i32>,
    time: Vec<f64>,
    entity: Vec<ByteArray>,
    metrics: Vec<MetricColumn>,
}

struct MetricColumn {
    name: &'static str,
    values: Vec<f32>,
    /// 1 for each row with a value, 0 for null.
    defined: Vec<i16>,
}

impl Batch {
    fn new(metrics: &[&'static str]) -> Self {
        let column = |&name: &&'static str| MetricColumn { name, values: Vec::new(), defined: Vec::new() };
        Self { metrics: metrics.iter().map(column).collect(), ..Self::default() }
    }

    fn push_entity<W: Write + Send>(
        &mut self,
        writer: &mut SerializedFileWriter<W>,
        run: &[ByteArray; 3],
        record: &RunRecord,
        entity: &str,
    ) -> Result<(), ParquetError> {
        let of = |metric: &str| record.series.iter().find(|s| s.entity == entity && s.metric == metric);
        let series: Vec<Option<&Series>> = self.metrics.iter().map(|column| of(column.name)).collect();
        let intervals = series.iter().flatten().map(|series| series.values.len()).max().unwrap_or(0);
        let entity = ByteArray::from(entity);
        for interval in 0..intervals {
            for (column, value) in self.run.iter_mut().zip(run) {
                column.push(value.clone());
            }
            self.trial.push(record.trial as i32);
            self.time.push((record.sample * (interval as u64 + 1)).as_secs_f64());
            self.entity.push(entity.clone());
            for (column, series) in self.metrics.iter_mut().zip(&series) {
                let value =
                    series.and_then(|series| series.values.get(interval)).filter(|value| !value.is_nan());
                column.defined.push(i16::from(value.is_some()));
                column.values.extend(value);
            }
            if self.time.len() == GROUP_ROWS {
                self.flush(writer)?;
            }
        }
        Ok(())
    }

    fn flush<W: Write + Send>(&mut self, writer: &mut SerializedFileWriter<W>) -> Result<(), ParquetError> {
        if self.time.is_empty() {
            return Ok(());
        }
        let mut group = writer.next_row_group()?;
        for column in &mut self.run {
            write_column::<ByteArrayType, W>(&mut group, column, None)?;
        }
        write_column::<Int32Type, W>(&mut group, &mut self.trial, None)?;
        write_column::<DoubleType, W>(&mut group, &mut self.time, None)?;
        write_column::<ByteArrayType, W>(&mut group, &mut self.entity, None)?;
        for column in &mut self.metrics {
            write_column::<FloatType, W>(&mut group, &mut column.values, Some(&mut column.defined))?;
        }
        group.close()?;
        Ok(())
    }
}

/// Writes the next column of the row group and empties it.
fn write_column<T: DataType, W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    values: &mut Vec<T::T>,
    defined: Option<&mut Vec<i16>>,
) -> Result<(), ParquetError> {
    let column = group.next_column()?;
    let mut column =
        column.ok_or_else(|| ParquetError::General("more columns than the schema has".to_owned()))?;
    column.typed::<T>().write_batch(values, defined.as_ref().map(|defined| defined.as_slice()), None)?;
    column.close()?;
    values.clear();
    if let Some(defined) = defined {
        defined.clear();
    }
    Ok(())
}

/// Metrics that occur, in the order of the registry.
fn metrics(results: &[StudyResults<'_>]) -> Vec<&'static str> {
    let occurs = |name: &str| {
        results.iter().flat_map(|r| &r.records).flat_map(|r| &r.series).any(|series| series.metric == name)
    };
    metric::at(metric::SERIES).map(|metric| metric.name).filter(|name| occurs(name)).collect()
}

fn entities(record: &RunRecord) -> Vec<&str> {
    distinct(record.series.iter().map(|series| series.entity.as_str()))
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::Field;

    use super::*;
    use crate::report::tests::{Scratch, results, study};

    /// Column names, rows, and number of row groups of what is written for `results`.
    fn written(results: &[StudyResults<'_>], test: &str) -> (Vec<String>, Vec<Vec<Field>>, usize) {
        let scratch = Scratch::new(test);
        let path = scratch.path().join("series.parquet");
        write_series(File::create(&path).unwrap(), results).unwrap();
        let reader = SerializedFileReader::new(File::open(&path).unwrap()).unwrap();
        let schema = reader.metadata().file_metadata().schema_descr();
        let names = schema.columns().iter().map(|column| column.name().to_owned()).collect();
        let rows = reader.get_row_iter(None).unwrap();
        let rows = rows
            .map(|row| row.unwrap().get_column_iter().map(|(_, field)| field.clone()).collect())
            .collect();
        (names, rows, reader.num_row_groups())
    }

    #[test]
    fn rows_come_back_in_order_with_nulls() {
        let study = study();
        let mut results = [results(&study)];
        results[0].records.reverse();
        let (names, rows, groups) = written(&results, "parquet-order");
        assert_eq!(
            names,
            ["scenario", "variant", "points", "trial", "time_s", "entity", "throughput", "jain", "queue"]
        );
        assert_eq!(groups, 1);
        let text = |s: &str| Field::Str(s.to_owned());
        assert_eq!(
            rows[0][..6],
            [text("fair"), text("tcp"), text("n=4"), Field::UInt(0), Field::Double(0.1), text("all")]
        );
        // The first interval of `all` has no Jain index: no flow existed.
        assert_eq!(rows[0][7], Field::Null);
        assert!(matches!(rows[1][7], Field::Float(_)));
        let expected: usize = results[0]
            .records
            .iter()
            .map(|record| entities(record).len() * record.series[0].values.len())
            .sum();
        assert_eq!(rows.len(), expected);
    }

    #[test]
    fn row_groups_are_bounded() {
        let study = study();
        let mut results = [results(&study)];
        results[0].records.truncate(1);
        let long = Series { entity: "all".to_owned(), metric: "queue", values: vec![1.5; GROUP_ROWS + 3] };
        results[0].records[0].series = vec![long];
        let (_, rows, groups) = written(&results, "parquet-groups");
        assert_eq!((rows.len(), groups), (GROUP_ROWS + 3, 2));
        assert_eq!(rows[GROUP_ROWS + 2].last(), Some(&Field::Float(1.5)));
    }

    #[test]
    fn runs_without_series_give_an_empty_table() {
        let study = study();
        let mut results = [results(&study)];
        for record in &mut results[0].records {
            record.series.clear();
        }
        let (names, rows, _) = written(&results, "parquet-empty");
        assert_eq!((names.len(), rows.len()), (6, 0));
    }

    #[test]
    fn a_full_disk_is_reported_as_such() {
        struct Full;
        impl Write for Full {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::Error::from(io::ErrorKind::StorageFull))
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let study = study();
        let error = write_series(Full, &[results(&study)]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull, "{error}");
    }
}
