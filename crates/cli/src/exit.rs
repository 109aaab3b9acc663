//! How the program ends.

use std::process::ExitCode;

use bandmaster_core::scenario::Errors;

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

/// An end without a result.
#[derive(Debug)]
pub(crate) struct Failure {
    /// Code for the shell.
    pub(crate) exit: Exit,
    /// Complete text for stderr.
    pub(crate) message: String,
}

impl Failure {
    /// A wrong command line or input.
    pub(crate) fn usage(message: impl core::fmt::Display) -> Self {
        Self { exit: Exit::Usage, message: format!("error: {message}") }
    }

    /// A failure while running, reading or writing.
    pub(crate) fn run(message: impl core::fmt::Display) -> Self {
        Self { exit: Exit::RunFailed, message: format!("error: {message}") }
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
