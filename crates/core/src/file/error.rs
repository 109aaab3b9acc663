//! What is wrong with a file, and where.

use core::fmt;
use std::collections::BTreeSet;

use super::place::{Place, Source};

/// Everything that is wrong with a file, in the order of the file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Errors(Vec<Error>);

/// One thing that is wrong.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Error {
    /// The command-line option that brought the value, as typed (`--set run.sample=0s`); none: it stands in the file.
    pub flag: Option<String>,
    /// Line from 1; 0 for an option.
    pub line: u32,
    /// Column from 1, in characters; 0 for an option.
    pub column: u32,
    /// The file as the caller named it.
    pub file: String,
    /// Dotted path of the key or table, as `--set` takes it; empty for the file as a whole.
    pub path: String,
    /// What is wrong, with the value.
    pub message: String,
    /// What to write instead.
    pub hint: Option<String>,
    /// The variant and sweep point in which it is wrong; none: in all of them.
    pub case: Option<String>,
}

impl Error {
    pub(crate) fn at(file: &str, place: &Place, path: &str, message: impl Into<String>) -> Self {
        let (flag, case) = match &place.source {
            Source::File | Source::Include(_) => (None, None),
            Source::Flag(flag) => (Some(flag.to_string()), None),
            Source::Variant(name) => (None, Some(format!("variant `{name}`"))),
            Source::Sweep(point) => (None, Some(point.to_string())),
        };
        let file = if let Source::Include(included) = &place.source { included } else { file };
        Self {
            flag,
            line: place.line,
            column: place.column,
            file: file.to_owned(),
            path: path.to_owned(),
            message: message.into(),
            hint: None,
            case,
        }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// What it says about which place, whatever the case: two errors of which this is equal repeat each other.
    pub(crate) fn said(&self) -> impl Ord + use<'_> {
        let Self { flag, line, column, file, path, message, hint, case: _ } = self;
        (flag, line, column, file, path, message, hint)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.flag {
            Some(flag) => write!(f, "{flag}: error: ")?,
            None => write!(f, "{}:{}:{}: error: ", self.file, self.line, self.column)?,
        }
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message)?;
        if let Some(hint) = &self.hint {
            write!(f, "; {hint}")?;
        }
        if let Some(case) = &self.case {
            write!(f, " ({case})")?;
        }
        Ok(())
    }
}

impl core::error::Error for Error {}

impl Errors {
    /// Sorts by place, keeps the first of those that repeat each other.
    pub(crate) fn new(mut errors: Vec<Error>) -> Self {
        errors.sort_by(|a, b| (&a.flag, a.line, a.column).cmp(&(&b.flag, b.line, b.column)));
        let mut said = BTreeSet::new();
        let is_first: Vec<bool> = errors.iter().map(|error| said.insert(error.said())).collect();
        drop(said);
        let mut is_first = is_first.into_iter();
        errors.retain(|_| is_first.next() == Some(true));
        Self(errors)
    }

    /// The errors, first place first.
    pub fn iter(&self) -> core::slice::Iter<'_, Error> {
        self.0.iter()
    }
}

impl<'a> IntoIterator for &'a Errors {
    type Item = &'a Error;
    type IntoIter = core::slice::Iter<'a, Error>;
    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl fmt::Display for Errors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, error) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{error}")?;
        }
        Ok(())
    }
}

impl core::error::Error for Errors {}
