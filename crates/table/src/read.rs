//! Rows read again.

use std::fs::File;
use std::io;

use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use parquet::record::reader::RowIter;

use super::into_io;

/// A value of a row.
#[derive(Clone, PartialEq, Debug)]
pub enum Value {
    /// No value.
    Null,
    /// Yes or no.
    Bool(bool),
    /// A whole number.
    Whole(i64),
    /// A number that needs few digits.
    F32(f32),
    /// A number.
    F64(f64),
    /// A text.
    Text(String),
}

/// The rows of a file, one after the other.
pub struct Table {
    /// Names of its columns.
    pub columns: Vec<String>,
    rows: RowIter<'static>,
}

impl Table {
    /// Opens a file.
    ///
    /// # Errors
    /// When it is none of Parquet.
    pub fn open(file: File) -> io::Result<Self> {
        let reader = SerializedFileReader::new(file).map_err(into_io)?;
        let schema = reader.metadata().file_metadata().schema_descr();
        let columns = schema.columns().iter().map(|column| column.name().to_owned()).collect();
        Ok(Self { columns, rows: RowIter::from_file_into(Box::new(reader)) })
    }
}

impl Iterator for Table {
    type Item = io::Result<Vec<Value>>;

    fn next(&mut self) -> Option<Self::Item> {
        let row = self.rows.next()?;
        Some(
            row.map_err(into_io)
                .and_then(|row| row.get_column_iter().map(|(_, field)| value(field)).collect()),
        )
    }
}

fn value(field: &Field) -> io::Result<Value> {
    Ok(match field {
        Field::Null => Value::Null,
        Field::Bool(value) => Value::Bool(*value),
        Field::Int(value) => Value::Whole((*value).into()),
        Field::UInt(value) => Value::Whole((*value).into()),
        Field::Long(value) => Value::Whole(*value),
        Field::Float(value) => Value::F32(*value),
        Field::Double(value) => Value::F64(*value),
        Field::Str(value) => Value::Text(value.clone()),
        other => return Err(io::Error::new(io::ErrorKind::InvalidData, format!("a column has `{other}`"))),
    })
}

/// A field of a line of comma-separated values (RFC 4180): in quotes where it needs them, nothing for no value.
pub fn push_csv(line: &mut String, value: &Value) {
    use core::fmt::Write as _;
    // Text takes everything.
    let _ = match value {
        Value::Null => Ok(()),
        Value::Bool(value) => write!(line, "{value}"),
        Value::Whole(value) => write!(line, "{value}"),
        Value::F32(value) => write!(line, "{value}"),
        Value::F64(value) => write!(line, "{value}"),
        Value::Text(text) if text.contains([',', '"', '\n', '\r']) => {
            write!(line, "\"{}\"", text.replace('"', "\"\""))
        }
        Value::Text(text) => line.write_str(text),
    };
}
