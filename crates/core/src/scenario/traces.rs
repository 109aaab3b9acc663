//! Traces that a scenario file names, each read once.

use std::cell::RefCell;
use std::collections::BTreeMap;

use super::{Files, Options};
use crate::capacity::Trace;
use crate::scheme::SchemeDef;

/// The traces so far.
pub(super) struct Traces<'a> {
    files: Option<&'a dyn Files>,
    /// Schemes that the file may name.
    pub(super) schemes: &'a [&'static SchemeDef],
    known: RefCell<BTreeMap<String, Result<Trace, String>>>,
}

impl<'a> Traces<'a> {
    pub(super) fn new(options: &Options<'a>) -> Self {
        Self { files: options.files, schemes: options.schemes, known: RefCell::default() }
    }

    /// The trace in the file `name`.
    ///
    /// # Errors
    /// Why there is none, with the line of the file.
    pub(super) fn read(&self, name: &str) -> Result<Trace, String> {
        let mut known = self.known.borrow_mut();
        known.entry(name.to_owned()).or_insert_with(|| self.parse(name)).clone()
    }

    /// The text of the file `name`.
    ///
    /// # Errors
    /// Why it cannot be read.
    pub(super) fn text(&self, name: &str) -> Result<String, String> {
        let Some(files) = self.files else {
            return Err(no_files(name));
        };
        files.read(name).map_err(|why| format!("{name}: {why}"))
    }

    fn parse(&self, name: &str) -> Result<Trace, String> {
        let text = self.text(name)?;
        Trace::parse(name, &text).map_err(|error| match error.line {
            Some(line) => format!("{name}:{line}: {}", error.why),
            None => format!("{name}: {}", error.why),
        })
    }
}

/// Why `name` cannot be read where there are no files.
pub(super) fn no_files(name: &str) -> String {
    format!("\"{name}\" is a file, and there are no files here")
}
