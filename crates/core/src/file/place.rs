//! Where something was written, and by whom.

use std::rc::Rc;

/// Where something was written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    /// Line from 1.
    pub(crate) line: u32,
    /// Column from 1, in characters.
    pub(crate) column: u32,
    /// By whom.
    pub(crate) source: Source,
}

/// Who wrote something.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Source {
    /// The file's tables.
    File,
    /// The tables of a file that it includes, by its name in messages.
    Include(Rc<str>),
    /// The `set` of a variant.
    Variant(Rc<str>),
    /// A point of a sweep: "sweep `n` at 4".
    Sweep(Rc<str>),
    /// A command-line option, as typed.
    Flag(Rc<str>),
}

impl Place {
    /// The start of the file.
    pub(crate) fn start() -> Self {
        Self { line: 1, column: 1, source: Source::File }
    }

    /// A command-line option.
    pub(crate) fn flag(flag: &str) -> Self {
        Self { line: 0, column: 0, source: Source::Flag(flag.into()) }
    }

    /// The same place, written by `source`; what is in an included file stays there.
    pub(crate) fn by(&self, source: &Source) -> Self {
        match &self.source {
            Source::Include(_) => self.clone(),
            _ => Self { source: source.clone(), ..*self },
        }
    }
}
