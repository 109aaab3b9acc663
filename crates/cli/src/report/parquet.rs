//! `series.parquet`: every recorded series, a row for each interval and a column for each metric that occurs, null where a
//! metric has no value.

use std::io::{self, Write};

use bandmaster_core::report::{RunRecord, Series, metric};
use bandmaster_table::{Cell, Column, Kind, Rows};

use super::{StudyResults, distinct, ordered, study_names};

/// Writes the series of all studies, ordered by study, case, trial, entity and time.
///
/// # Errors
/// When `out` refuses.
pub(crate) fn write_series<W: Write + Send>(out: W, results: &[StudyResults<'_>]) -> io::Result<()> {
    let metrics = metrics(results);
    let mut columns = super::run_columns().to_vec();
    columns.extend([
        Column::needed("time_s", Kind::F64, "s", "End of the sampling interval"),
        Column::needed(
            "entity",
            Kind::Text,
            "",
            "`all`, a sending group, a flow, a port `from->to`, or the node of a scheme's role",
        ),
    ]);
    columns.extend(metrics.iter().map(|metric| {
        let name = metric.name;
        Column::optional(name, Kind::F32, metric.unit.word(), metric.doc)
    }));
    let mut rows = Rows::new(out, "series", &columns)?;
    for (StudyResults { study, records, .. }, name) in results.iter().zip(study_names(results)) {
        for (record, case) in ordered(study, records) {
            let run = super::run_cells(&name, study, case, record.trial);
            for entity in entities(record) {
                push_entity(&mut rows, &run, &metrics, record, entity)?;
            }
        }
    }
    rows.finish()
}

fn push_entity(
    rows: &mut Rows<'_>,
    run: &[Cell],
    metrics: &[&'static metric::Metric],
    record: &RunRecord,
    entity: &str,
) -> io::Result<()> {
    let of = |name: &str| record.series.iter().find(|s| s.entity == entity && s.metric == name);
    let series: Vec<Option<&Series>> = metrics.iter().map(|metric| of(metric.name)).collect();
    let intervals = series.iter().flatten().map(|series| series.values.len()).max().unwrap_or(0);
    let entity = Cell::text(entity);
    for interval in 0..intervals {
        let end = (record.sample * (interval as u64 + 1)).as_secs_f64();
        let value = |series: &Option<&Series>| {
            let value = series.and_then(|series| series.values.get(interval)).filter(|value| !value.is_nan());
            value.map_or(Cell::Null, |value| Cell::F32(*value))
        };
        let own = [Cell::F64(end), entity.clone()];
        rows.push(run.iter().cloned().chain(own).chain(series.iter().map(value)))?;
    }
    Ok(())
}

/// Metrics that occur, in the order of the registry.
fn metrics(results: &[StudyResults<'_>]) -> Vec<&'static metric::Metric> {
    let occurs = |name: &str| {
        results.iter().flat_map(|r| &r.records).flat_map(|r| &r.series).any(|series| series.metric == name)
    };
    metric::at(metric::SERIES).filter(|metric| occurs(metric.name)).collect()
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
    use bandmaster_table::GROUP_ROWS;

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
