//! Errors of operations on Linux.

use std::fmt;
use std::io;

use crate::htb::HtbError;

/// Why something on Linux did not work.
#[derive(Debug)]
pub enum Error {
    /// Asked to stop.
    Stopped,
    /// What was asked for does not fit the scenario; the text says what, and why.
    Unfit(String),
    /// This machine, kernel or user lacks something; the text says what, and what to do.
    Missing(String),
    /// The kernel refused.
    Os {
        /// What was tried, with the names of things.
        doing: String,
        /// The kernel's error.
        error: io::Error,
    },
}

impl Error {
    /// The kernel refused `doing`.
    pub fn os(doing: impl Into<String>, error: io::Error) -> Self {
        Self::Os { doing: doing.into(), error }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stopped => f.write_str("stopped"),
            Self::Unfit(what) | Self::Missing(what) => f.write_str(what),
            Self::Os { doing, error } => {
                write!(f, "cannot {doing}: {error}")?;
                match error.kind() {
                    io::ErrorKind::PermissionDenied => f.write_str(" (run as root)"),
                    _ => Ok(()),
                }
            }
        }
    }
}

impl std::error::Error for Error {}

impl From<HtbError> for Error {
    fn from(error: HtbError) -> Self {
        let remark = error.remark.map(|remark| format!(" ({remark})")).unwrap_or_default();
        Self::Os { doing: format!("{}{remark}", error.doing), error: error.error }
    }
}
