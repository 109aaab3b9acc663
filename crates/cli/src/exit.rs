//! How the program ends.

use std::process::ExitCode;

use bandmaster_core::scenario::Errors;
#[cfg(target_os = "linux")]
use bandmaster_linux::{Error, daemon};

/// The exit codes, as `bandmaster --help` lists them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub(crate) enum Exit {
    /// All went well and every claim holds.
    Success = 0,
    /// The runs went well, but a claim does not hold.
    ClaimFailed = 1,
    /// The command line or a scenario file is wrong; nothing was touched.
    Usage = 2,
    /// The scenario asks for what this machine or runtime cannot do.
    MissingCapability = 3,
    /// Reading, writing or running failed.
    RunFailed = 4,
    /// Some trials failed; the report holds the others.
    Partial = 5,
    /// Stopped by a signal; the report holds the finished trials.
    Interrupted = 130,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

#[cfg(target_os = "linux")]
impl From<&Error> for Exit {
    fn from(error: &Error) -> Self {
        match error {
            Error::Stopped => Self::Interrupted,
            Error::Unfit(_) => Self::Usage,
            Error::Missing(_) => Self::MissingCapability,
            Error::Os { .. } => Self::RunFailed,
        }
    }
}

/// An end without a result.
#[derive(Debug)]
pub(crate) struct Failure {
    /// Code for the shell.
    pub(crate) exit: Exit,
    /// Complete text for stderr.
    pub(crate) message: String,
}

impl Failure {
    /// An error that ends the program with that code.
    pub(crate) fn new(exit: Exit, why: impl core::fmt::Display) -> Self {
        Self { exit, message: format!("error: {why}") }
    }

    /// A wrong command line or input.
    pub(crate) fn usage(why: impl core::fmt::Display) -> Self {
        Self::new(Exit::Usage, why)
    }

    /// A failure while running, reading or writing.
    pub(crate) fn run(why: impl core::fmt::Display) -> Self {
        Self::new(Exit::RunFailed, why)
    }
}

#[cfg(target_os = "linux")]
impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::new(Exit::from(&error), error)
    }
}

#[cfg(target_os = "linux")]
impl From<daemon::Error> for Failure {
    fn from(error: daemon::Error) -> Self {
        let exit = match error {
            daemon::Error::Usage(_) => Exit::Usage,
            daemon::Error::Missing(_) => Exit::MissingCapability,
            daemon::Error::Failed(_) => Exit::RunFailed,
        };
        Self { exit, message: error.to_string() }
    }
}

impl From<Errors> for Failure {
    fn from(errors: Errors) -> Self {
        Self { exit: Exit::Usage, message: errors.to_string().trim_end().to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_of_two_exits_is_the_larger() {
        assert!(Exit::Interrupted > Exit::Partial);
        assert!(Exit::Partial > Exit::ClaimFailed);
        assert!(Exit::ClaimFailed > Exit::Success);
    }
}
