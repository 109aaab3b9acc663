//! Parquet files of rows: columns that say what they are, row groups of bounded size.
//!
//! A crate of its own, because generic code is optimized as the crate that uses it, and `bandmaster` hardly is. So nothing here
//! is generic that is used for each row.
//!
//! The metadata of a file has `format`, the version of its columns, `bandmaster`, that of the program, and for each column
//! `unit:NAME` and `description:NAME`.

pub mod flows;
pub mod read;

use std::borrow::Cow;
use std::io::{self, Write};
use std::sync::Arc;

use parquet::basic::{Compression, ConvertedType, Encoding, LogicalType, Repetition, Type as Physical};
use parquet::data_type::{
    BoolType, ByteArray, ByteArrayType, DataType, DoubleType, FloatType, Int32Type, Int64Type,
};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::{ColumnPath, Type};

/// Version of the program: all crates have the same.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Version of the columns of all files; it grows when one changes its name, unit or
/// meaning, or may be null that was not. 2: `source_port` and `drops` of flows.
const FORMAT: u32 = 2;

/// Rows of a row group: some megabytes before compression.
pub const GROUP_ROWS: usize = 1 << 16;

/// What the values of a column are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Text that few rows have for themselves.
    Text,
    /// Text of one row.
    OwnText,
    /// Yes or no.
    Bool,
    /// A small number.
    U32,
    /// A whole number.
    I64,
    /// A number that needs few digits.
    F32,
    /// A number.
    F64,
}

/// A column.
#[derive(Clone, PartialEq, Debug)]
pub struct Column {
    /// What readers call it.
    pub name: Cow<'static, str>,
    /// What its values are.
    pub kind: Kind,
    /// Empty: none.
    pub unit: Cow<'static, str>,
    /// What it means.
    pub description: Cow<'static, str>,
    /// Has a value in each row.
    pub required: bool,
}

impl Column {
    /// With a value in each row.
    pub const fn needed(
        name: &'static str,
        kind: Kind,
        unit: &'static str,
        description: &'static str,
    ) -> Self {
        Self::new(name, kind, [unit, description], true)
    }

    /// Null where there is no value.
    pub const fn optional(
        name: &'static str,
        kind: Kind,
        unit: &'static str,
        description: &'static str,
    ) -> Self {
        Self::new(name, kind, [unit, description], false)
    }

    const fn new(
        name: &'static str,
        kind: Kind,
        [unit, description]: [&'static str; 2],
        required: bool,
    ) -> Self {
        let (name, unit) = (Cow::Borrowed(name), Cow::Borrowed(unit));
        Self { name, kind, unit, description: Cow::Borrowed(description), required }
    }
}

/// A value of a row.
#[derive(Clone, Debug)]
pub enum Cell {
    /// No value.
    Null,
    /// Of [`Kind::Text`] and [`Kind::OwnText`]; copies share the text.
    Text(ByteArray),
    /// Of [`Kind::Bool`].
    Bool(bool),
    /// Of [`Kind::U32`].
    U32(u32),
    /// Of [`Kind::I64`].
    I64(i64),
    /// Of [`Kind::F32`].
    F32(f32),
    /// Of [`Kind::F64`].
    F64(f64),
}

impl Cell {
    /// A text.
    pub fn text(text: &str) -> Self {
        Self::Text(text.into())
    }
}

/// Null stands for a value that is absent or not a number.
impl From<Option<f64>> for Cell {
    fn from(value: Option<f64>) -> Self {
        value.filter(|value| !value.is_nan()).map_or(Self::Null, Self::F64)
    }
}

impl From<Option<u64>> for Cell {
    fn from(value: Option<u64>) -> Self {
        value.map_or(Self::Null, |value| Self::I64(value as i64))
    }
}

#[derive(Debug)]
enum Values {
    Text(Vec<ByteArray>),
    Bool(Vec<bool>),
    I32(Vec<i32>),
    I64(Vec<i64>),
    F32(Vec<f32>),
    F64(Vec<f64>),
}

impl Values {
    fn new(kind: Kind) -> Self {
        match kind {
            Kind::Text | Kind::OwnText => Self::Text(Vec::new()),
            Kind::Bool => Self::Bool(Vec::new()),
            Kind::U32 => Self::I32(Vec::new()),
            Kind::I64 => Self::I64(Vec::new()),
            Kind::F32 => Self::F32(Vec::new()),
            Kind::F64 => Self::F64(Vec::new()),
        }
    }

    /// Takes a value of the column's kind; whether it is one.
    fn push(&mut self, cell: Cell) -> bool {
        match (self, cell) {
            (Self::Text(values), Cell::Text(value)) => values.push(value),
            (Self::Bool(values), Cell::Bool(value)) => values.push(value),
            (Self::I32(values), Cell::U32(value)) => values.push(value as i32),
            (Self::I64(values), Cell::I64(value)) => values.push(value),
            (Self::F32(values), Cell::F32(value)) => values.push(value),
            (Self::F64(values), Cell::F64(value)) => values.push(value),
            _ => return false,
        }
        true
    }
}

/// Columns that take the values of several rows each, one column after the other.
struct Columns<'a> {
    columns: std::slice::IterMut<'a, (Values, Option<Vec<i16>>)>,
    fits: bool,
}

impl Columns<'_> {
    fn texts(&mut self, texts: impl Iterator<Item = ByteArray>) {
        match self.columns.next() {
            Some((Values::Text(values), None)) => values.extend(texts),
            _ => self.fits = false,
        }
    }

    fn bools(&mut self, bools: impl Iterator<Item = bool>) {
        match self.columns.next() {
            Some((Values::Bool(values), None)) => values.extend(bools),
            _ => self.fits = false,
        }
    }

    fn small(&mut self, numbers: impl Iterator<Item = u32>) {
        match self.columns.next() {
            Some((Values::I32(values), None)) => values.extend(numbers.map(|number| number as i32)),
            _ => self.fits = false,
        }
    }

    fn small_or_null(&mut self, numbers: impl Iterator<Item = Option<u32>>) {
        match self.columns.next() {
            Some((Values::I32(values), Some(defined))) => {
                extend_defined(values, defined, numbers.map(|number| number.map(|number| number as i32)));
            }
            _ => self.fits = false,
        }
    }

    fn whole(&mut self, numbers: impl Iterator<Item = u64>) {
        match self.columns.next() {
            Some((Values::I64(values), None)) => values.extend(numbers.map(|number| number as i64)),
            _ => self.fits = false,
        }
    }

    fn numbers(&mut self, numbers: impl Iterator<Item = f64>) {
        match self.columns.next() {
            Some((Values::F64(values), None)) => values.extend(numbers),
            _ => self.fits = false,
        }
    }

    fn whole_or_null(&mut self, numbers: impl Iterator<Item = Option<u64>>) {
        match self.columns.next() {
            Some((Values::I64(values), Some(defined))) => {
                extend_defined(values, defined, numbers.map(|number| number.map(|number| number as i64)));
            }
            _ => self.fits = false,
        }
    }

    fn number_or_null(&mut self, numbers: impl Iterator<Item = Option<f64>>) {
        match self.columns.next() {
            Some((Values::F64(values), Some(defined))) => {
                extend_defined(
                    values,
                    defined,
                    numbers.map(|number| number.filter(|number| !number.is_nan())),
                );
            }
            _ => self.fits = false,
        }
    }
}

fn extend_defined<T>(values: &mut Vec<T>, defined: &mut Vec<i16>, new: impl Iterator<Item = Option<T>>) {
    for value in new {
        defined.push(i16::from(value.is_some()));
        values.extend(value);
    }
}

/// What files are written to.
type Out<'a> = Box<dyn Write + Send + 'a>;

/// Writes rows.
pub struct Rows<'a> {
    writer: SerializedFileWriter<Out<'a>>,
    /// Values, and for optional columns 1 for each row that has one and 0 for null.
    columns: Vec<(Values, Option<Vec<i16>>)>,
    waiting: usize,
}

impl<'a> Rows<'a> {
    /// Begins a file of these columns.
    ///
    /// # Errors
    /// When `out` refuses.
    pub fn new(out: impl Write + Send + 'a, name: &str, columns: &[Column]) -> io::Result<Self> {
        Self::begin(Box::new(out), name, columns)
    }

    fn begin(out: Out<'a>, name: &str, columns: &[Column]) -> io::Result<Self> {
        let start = || {
            let schema = Arc::new(schema(name, columns)?);
            SerializedFileWriter::new(out, schema, Arc::new(properties(columns)))
        };
        let content = |column: &Column| (Values::new(column.kind), (!column.required).then(Vec::new));
        let columns = columns.iter().map(content).collect();
        Ok(Self { writer: start().map_err(into_io)?, columns, waiting: 0 })
    }

    /// Takes a row: a cell for each column.
    ///
    /// # Errors
    /// When a cell does not fit its column, or the file refuses.
    pub fn push(&mut self, cells: impl IntoIterator<Item = Cell>) -> io::Result<()> {
        let mut cells = cells.into_iter();
        for (at, (values, defined)) in self.columns.iter_mut().enumerate() {
            let cell = cells.next().unwrap_or(Cell::Null);
            let is_null = matches!(cell, Cell::Null);
            let fits = match defined {
                Some(defined) => {
                    defined.push(i16::from(!is_null));
                    is_null || values.push(cell)
                }
                None => values.push(cell),
            };
            if !fits {
                return Err(io::Error::other(format!("a value does not fit column {at}")));
            }
        }
        self.waiting += 1;
        if self.waiting == GROUP_ROWS { self.flush() } else { Ok(()) }
    }

    /// Rows that the row group still takes.
    fn space(&self) -> usize {
        GROUP_ROWS - self.waiting
    }

    /// Adds `count` rows, at most [`space`](Self::space): `fill` gives each column its values.
    fn push_columns(&mut self, count: usize, fill: impl FnOnce(&mut Columns<'_>)) -> io::Result<()> {
        let mut columns = Columns { columns: self.columns.iter_mut(), fits: true };
        fill(&mut columns);
        if !columns.fits || columns.columns.next().is_some() {
            return Err(io::Error::other("values do not fit the columns"));
        }
        self.waiting += count;
        if self.waiting == GROUP_ROWS { self.flush() } else { Ok(()) }
    }

    /// Writes the remaining rows and ends the file.
    ///
    /// # Errors
    /// When the file refuses.
    pub fn finish(mut self) -> io::Result<()> {
        self.flush()?;
        self.writer.close().map_err(into_io)?;
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        let waiting = std::mem::take(&mut self.waiting);
        if waiting == 0 {
            return Ok(());
        }
        let mut group = self.writer.next_row_group().map_err(into_io)?;
        for (values, defined) in &mut self.columns {
            let defined = defined.as_mut();
            match values {
                Values::Text(values) => write_column::<ByteArrayType>(&mut group, values, defined),
                Values::Bool(values) => write_column::<BoolType>(&mut group, values, defined),
                Values::I32(values) => write_column::<Int32Type>(&mut group, values, defined),
                Values::I64(values) => write_column::<Int64Type>(&mut group, values, defined),
                Values::F32(values) => write_column::<FloatType>(&mut group, values, defined),
                Values::F64(values) => write_column::<DoubleType>(&mut group, values, defined),
            }
            .map_err(into_io)?;
        }
        group.close().map_err(into_io)?;
        Ok(())
    }
}

/// Writes the next column of the row group and empties it.
fn write_column<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, Out<'_>>,
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

fn schema(name: &str, columns: &[Column]) -> Result<Type, ParquetError> {
    let field = |column: &Column| {
        let (physical, converted, logical) = match column.kind {
            Kind::Text | Kind::OwnText => {
                (Physical::BYTE_ARRAY, ConvertedType::UTF8, Some(LogicalType::String))
            }
            Kind::Bool => (Physical::BOOLEAN, ConvertedType::NONE, None),
            Kind::U32 => (Physical::INT32, ConvertedType::UINT_32, Some(LogicalType::integer(32, false))),
            Kind::I64 => (Physical::INT64, ConvertedType::NONE, None),
            Kind::F32 => (Physical::FLOAT, ConvertedType::NONE, None),
            Kind::F64 => (Physical::DOUBLE, ConvertedType::NONE, None),
        };
        let repetition = if column.required { Repetition::REQUIRED } else { Repetition::OPTIONAL };
        let field = Type::primitive_type_builder(&column.name, physical).with_repetition(repetition);
        field.with_converted_type(converted).with_logical_type(logical).build().map(Arc::new)
    };
    let fields = columns.iter().map(field).collect::<Result<_, _>>()?;
    Type::group_type_builder(name).with_fields(fields).build()
}

fn properties(columns: &[Column]) -> WriterProperties {
    let about = |column: &Column| {
        [("unit", &column.unit), ("description", &column.description)]
            .map(|(what, text)| KeyValue::new(format!("{what}:{}", column.name), text.to_string()))
    };
    let version = |name: &str, version: String| KeyValue::new(name.to_owned(), version);
    let all = [version("format", FORMAT.to_string()), version("bandmaster", VERSION.to_owned())];
    let all = all.into_iter().chain(columns.iter().flat_map(about)).collect();
    let mut properties = WriterProperties::builder()
        .set_created_by(format!("bandmaster version {VERSION}"))
        .set_compression(Compression::SNAPPY)
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_key_value_metadata(Some(all));
    for column in columns {
        let path = ColumnPath::from(vec![column.name.to_string()]);
        if matches!(column.kind, Kind::Text | Kind::OwnText) {
            properties = properties.set_column_statistics_enabled(path.clone(), EnabledStatistics::None);
        }
        if matches!(column.kind, Kind::U32 | Kind::I64) {
            properties = properties.set_column_encoding(path.clone(), Encoding::DELTA_BINARY_PACKED);
        }
        properties = properties.set_column_dictionary_enabled(path, column.kind == Kind::Text);
    }
    properties.build()
}

fn into_io(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(error) => match error.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(error) => io::Error::other(error),
        },
        error => io::Error::other(error),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::Field;

    use super::*;

    const COLUMNS: &[Column] = &[
        Column::needed("text", Kind::Text, "", ""),
        Column::needed("own", Kind::OwnText, "", ""),
        Column::needed("bool", Kind::Bool, "", ""),
        Column::needed("small", Kind::U32, "", ""),
        Column::optional("whole", Kind::I64, "", ""),
        Column::optional("double", Kind::F64, "", ""),
    ];

    fn written(rows: &[[Cell; COLUMNS.len()]]) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        let mut table = Rows::new(&mut out, "rows", COLUMNS)?;
        rows.iter().try_for_each(|row| table.push(row.iter().cloned()))?;
        table.finish()?;
        Ok(out)
    }

    /// Neighbours whose difference no 64 bits hold, texts of most rows and of one, and rows that end in a second group.
    #[test]
    fn extreme_values_come_back() {
        let whole = [Some(i64::MIN), Some(i64::MAX), None, Some(0), Some(-1)];
        let small = [u32::MAX, 0, 1 << 31];
        let row = |i: usize| {
            [
                Cell::text(["", "a", "an", "ä"][i % 4]),
                Cell::text(&format!("flow {i}")),
                Cell::Bool(i.is_multiple_of(3)),
                Cell::U32(small[i % 3]),
                whole[i % 5].map_or(Cell::Null, Cell::I64),
                [None, Some(f64::NAN), Some(-0.0), Some(f64::MAX)][i % 4].into(),
            ]
        };
        let rows: Vec<_> = (0..GROUP_ROWS + 5).map(row).collect();
        let reader = SerializedFileReader::new(Bytes::from(written(&rows).unwrap())).unwrap();
        assert_eq!(reader.num_row_groups(), 2);
        let mut read = reader.get_row_iter(None).unwrap();
        for (i, row) in rows.iter().enumerate() {
            let fields = read.next().unwrap().unwrap();
            let fields: Vec<Field> = fields.get_column_iter().map(|(_, field)| field.clone()).collect();
            let expected = row.iter().map(|cell| match cell {
                Cell::Null => Field::Null,
                Cell::Text(text) => Field::Str(text.as_utf8().unwrap().to_owned()),
                Cell::Bool(value) => Field::Bool(*value),
                Cell::U32(value) => Field::UInt(*value),
                Cell::I64(value) => Field::Long(*value),
                Cell::F32(value) => Field::Float(*value),
                Cell::F64(value) => Field::Double(*value),
            });
            assert_eq!(fields, expected.collect::<Vec<_>>(), "row {i}");
        }
        assert!(read.next().is_none());
    }

    #[test]
    fn a_cell_of_another_kind_is_refused() {
        let fits =
            || [Cell::text(""), Cell::text(""), Cell::Bool(true), Cell::U32(0), Cell::Null, Cell::Null];
        assert!(written(&[fits()]).is_ok());
        for (column, cell) in [(0, Cell::Null), (2, Cell::U32(0)), (3, Cell::I64(0)), (5, Cell::F32(0.0))] {
            let mut row = fits();
            row[column] = cell;
            assert!(written(&[row]).unwrap_err().to_string().ends_with(&format!("column {column}")));
        }
    }
}
