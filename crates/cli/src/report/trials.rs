//! `trials.parquet`: a row for each trial of each case, a column for each sweep and each metric of the summary.

use std::borrow::Cow;
use std::io::{self, Write};

use bandmaster_core::report::metric;
use bandmaster_core::scenario::{Case, Study, Sweep};
use bandmaster_core::units::{Dimension, parse_quantity};
use bandmaster_table::{Cell, Column, Kind, Rows};

use super::{StudyResults, distinct, ordered, run_cells, run_columns, study_names};

/// What the values of a sweep are.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Typed {
    Whole,
    Number,
    Bool,
    Quantity(Dimension),
    Text,
}

const KINDS: [Typed; 7] = [
    Typed::Bool,
    Typed::Whole,
    Typed::Number,
    Typed::Quantity(Dimension::Rate),
    Typed::Quantity(Dimension::Span),
    Typed::Quantity(Dimension::Bytes),
    Typed::Quantity(Dimension::Packets),
];

impl Typed {
    /// The first of the types that all values have.
    fn of<'a>(values: impl Iterator<Item = &'a str> + Clone) -> Self {
        let fits = |kind: &&Self| values.clone().all(|value| !matches!(kind.cell(value), Cell::Null));
        KINDS.iter().find(fits).copied().unwrap_or(Self::Text)
    }

    /// A value; null when it is of another type.
    fn cell(self, value: &str) -> Cell {
        match self {
            Self::Whole => value.parse().map_or(Cell::Null, Cell::I64),
            Self::Number => value.parse().ok().filter(|value: &f64| value.is_finite()).into(),
            Self::Bool => value.parse().map_or(Cell::Null, Cell::Bool),
            Self::Quantity(dimension) => parse_quantity(value, dimension).ok().into(),
            Self::Text => Cell::text(value),
        }
    }

    fn kind(self) -> Kind {
        match self {
            Self::Whole | Self::Quantity(_) => Kind::I64,
            Self::Number => Kind::F64,
            Self::Bool => Kind::Bool,
            Self::Text => Kind::Text,
        }
    }

    fn unit(self) -> &'static str {
        match self {
            Self::Quantity(Dimension::Rate) => "bit/s",
            Self::Quantity(Dimension::Span) => "ns",
            Self::Quantity(Dimension::Bytes) => "B",
            Self::Quantity(Dimension::Packets) => "pkt",
            Self::Whole | Self::Number | Self::Bool | Self::Text => "",
        }
    }
}

/// A sweep of some of the studies.
struct SweepColumn<'a> {
    name: &'a str,
    typed: Typed,
}

/// Writes every trial, ordered by study, case and trial.
///
/// # Errors
/// When `out` refuses.
pub(crate) fn write_trials<W: Write + Send>(out: W, results: &[StudyResults<'_>]) -> io::Result<()> {
    let sweeps = sweeps(results);
    let metrics = distinct(
        results.iter().flat_map(|r| &r.records).flat_map(|r| &r.metrics).map(|(name, _)| name.as_str()),
    );
    let mut columns = run_columns().to_vec();
    columns.push(Column::needed("base", Kind::Bool, "", "The case is its variant's base point"));
    columns.push(Column::needed("seed", Kind::I64, "", "Seed of the random streams"));
    columns.extend(sweeps.iter().map(|SweepColumn { name, typed }| Column {
        name: Cow::Owned(format!("sweep.{name}")),
        unit: Cow::Borrowed(typed.unit()),
        ..Column::optional(
            "",
            typed.kind(),
            "",
            "Value of the swept key; null where the variant is not swept",
        )
    }));
    columns.extend(metrics.iter().map(|name| metric_column(name)));
    columns.push(Column::needed("events", Kind::I64, "", "Events of the simulator"));
    columns.push(Column::needed("packet_hops", Kind::I64, "pkt", "Packets handed to transmitters of links"));

    let mut rows = Rows::new(out, "trials", &columns)?;
    for (StudyResults { study, records, .. }, name) in results.iter().zip(study_names(results)) {
        for (record, case) in ordered(study, records) {
            let run = run_cells(&name, study, case, record.trial);
            let own = [Cell::Bool(case.base), Cell::I64(case.scenario.run.seed as i64)];
            let points = sweeps.iter().map(|sweep| {
                value_at(study, case, sweep.name).map_or(Cell::Null, |value| sweep.typed.cell(value))
            });
            let values = metrics.iter().map(|name| Cell::from(record.metric(name)));
            let work = [Cell::I64(record.work.events as i64), Cell::I64(record.work.packet_hops as i64)];
            rows.push(run.into_iter().chain(own).chain(points).chain(values).chain(work))?;
        }
    }
    rows.finish()
}

/// The keys of the sweeps of all studies; of one name, once.
fn sweeps<'a>(results: &[StudyResults<'a>]) -> Vec<SweepColumn<'a>> {
    let all = || results.iter().flat_map(|results| &results.study.sweeps).flat_map(Sweep::axes);
    let typed = |name| {
        Typed::of(all().filter(|(own, _)| *own == name).flat_map(|(_, values)| values).map(String::as_str))
    };
    distinct(all().map(|(name, _)| name))
        .into_iter()
        .map(|name| SweepColumn { name, typed: typed(name) })
        .collect()
}

/// The value of a sweep's key in a case: the case's own, else that of the variant's base point, where the sweep has it.
fn value_at<'a>(study: &'a Study, case: &'a Case, key: &str) -> Option<&'a str> {
    let place = |sweep: &'a Sweep| Some((sweep, sweep.axes().iter().position(|(name, _)| *name == key)?));
    // A sweep and a grid may have the same key.
    let own = |case: &'a Case| {
        study.sweeps.iter().filter_map(place).find_map(|(sweep, place)| {
            let (_, point) = case.points.iter().find(|(name, _)| *name == sweep.name)?;
            sweep.coordinates(point).get(place).copied()
        })
    };
    own(case).or_else(|| own(study.cases.iter().find(|base| base.base && base.variant == case.variant)?))
}

fn metric_column(name: &str) -> Column {
    let (unit, doc) = match (metric::of_gauge(name), metric::summarised(name)) {
        (Some((_, gauge, sum)), _) => {
            let unit = if sum.unit == metric::Unit::OfGauge { gauge.unit } else { sum.unit };
            (unit.word(), format!("{}: {}", gauge.doc, sum.doc))
        }
        (None, Some((Some(part), metric))) => (metric.unit.word(), format!("{}; of `{part}`", metric.doc)),
        (None, Some((None, metric))) => (metric.unit.word(), metric.doc.to_owned()),
        (None, None) => ("", String::new()),
    };
    Column {
        name: Cow::Owned(name.to_owned()),
        description: Cow::Owned(doc),
        ..Column::optional("", Kind::F64, unit, "")
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::Field;

    use bandmaster_core::scenario::Axis;

    use super::*;
    use crate::report::tests::{Scratch, results, study};

    #[test]
    fn values_of_a_sweep_have_the_type_that_all_have() {
        let typed = |values: &[&str]| Typed::of(values.iter().copied());
        assert_eq!(typed(&["4", "8"]), Typed::Whole);
        assert_eq!(typed(&["4", "0.5"]), Typed::Number);
        assert_eq!(typed(&["true", "false"]), Typed::Bool);
        assert_eq!(typed(&["cubic", "4"]), Typed::Text);
        assert_eq!(typed(&["5mbit", "1.5gbit"]), Typed::Quantity(Dimension::Rate));
        assert_eq!(typed(&["5ms", "5pkt"]), Typed::Text, "of several dimensions");
        let value = |text: &str| format!("{:?}", typed(&[text]).cell(text));
        let values = ["1.5gbit", "25ms", "64KiB", "200pkt"].map(value);
        assert_eq!(values, ["I64(1500000000)", "I64(25000000)", "I64(65536)", "I64(200)"]);
    }

    #[test]
    fn each_key_of_a_grid_has_a_typed_column() {
        let mut study = study();
        let axis = |name: &str, values: [&str; 2]| Axis {
            name: name.to_owned(),
            title: name.to_owned(),
            key: name.to_owned(),
            values: values.map(str::to_owned).to_vec(),
        };
        let sweep = &mut study.sweeps[0];
        sweep.grid = vec![axis("delay", ["1ms", "2ms"]), axis("n", ["4", "8"])];
        let points = [("1ms", 4), ("1ms", 8), ("2ms", 4), ("2ms", 8)];
        sweep.values = points.map(|(delay, n)| format!("delay={delay}, n={n}")).to_vec();
        let last = sweep.values[2].clone();
        study.cases[2].points = vec![("n".to_owned(), last)];
        let without_grid = crate::report::tests::study();
        let provenance = results(&without_grid).provenance;
        let results = [StudyResults { study: &study, records: Vec::new(), provenance }];
        let columns = sweeps(&results);
        assert_eq!(columns.iter().map(|column| column.name).collect::<Vec<_>>(), ["delay", "n"]);
        assert_eq!([columns[0].typed, columns[1].typed], [Typed::Quantity(Dimension::Span), Typed::Whole]);
        let case = &results[0].study.cases[2];
        let values = ["delay", "n"].map(|name| value_at(results[0].study, case, name));
        assert_eq!(values, [Some("2ms"), Some("4")]);
        let cells = run_cells("s", results[0].study, case, 0);
        assert_eq!(format!("{:?}", cells[2]), format!("{:?}", Cell::text("delay=2ms, n=4")));
    }

    #[test]
    fn a_trial_has_its_sweeps_and_metrics() {
        let study = study();
        let mut results = [results(&study)];
        results[0].records.reverse();
        let scratch = Scratch::new("trials");
        let path = scratch.path().join("trials.parquet");
        write_trials(File::create(&path).unwrap(), &results).unwrap();
        let reader = SerializedFileReader::new(File::open(&path).unwrap()).unwrap();
        let rows: Vec<Vec<(String, Field)>> = reader
            .get_row_iter(None)
            .unwrap()
            .map(|row| {
                row.unwrap().get_column_iter().map(|(name, field)| (name.clone(), field.clone())).collect()
            })
            .collect();
        assert_eq!(rows.len(), 14);
        let of =
            |row: usize, name: &str| rows[row].iter().find(|(known, _)| known == name).unwrap().1.clone();
        // Cases tcp 4, 8, 16, bas 4, 8, 16, ideal, two trials each.
        assert_eq!([0, 2, 4].map(|row| of(row, "sweep.n")), [4, 8, 16].map(Field::Long));
        assert_eq!((of(12, "sweep.n"), of(12, "variant")), (Field::Null, Field::Str("ideal".to_owned())));
        assert_eq!(
            (of(3, "trial"), of(3, "base"), of(1, "base")),
            (Field::UInt(1), Field::Bool(false), Field::Bool(true))
        );
        assert_eq!(
            (of(0, "throughput"), of(0, "late.throughput")),
            (Field::Double(96.4), Field::Double(95.4))
        );
        assert_eq!(of(0, "fct_mean"), Field::Null, "no flow completed");
    }
}
