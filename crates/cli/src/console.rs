//! What a person sees: data on stdout, messages on stderr.

use std::ffi::OsStr;
use std::io::{self, ErrorKind, IsTerminal, Write};

use crate::exit::Failure;

/// The terminal, as the command line asks to use it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Console {
    quiet: bool,
    colour: bool,
}

impl Console {
    /// `quiet` leaves errors only on stderr; `no_color` and a non-empty `NO_COLOR` keep stdout plain.
    pub(crate) fn new(quiet: bool, no_color: bool) -> Self {
        let colour = colours(no_color, std::env::var_os("NO_COLOR").as_deref(), io::stdout().is_terminal());
        Self { quiet, colour }
    }

    /// Whether stdout takes colours.
    pub(crate) fn colour(self) -> bool {
        self.colour
    }

    /// Whether stderr shows things that move.
    pub(crate) fn animates(self) -> bool {
        !self.quiet && io::stderr().is_terminal()
    }

    /// Writes data to stdout. A reader that has gone away (`| head`) has seen enough: that is no failure.
    pub(crate) fn print(self, data: &str) -> Result<(), Failure> {
        let mut stdout = io::stdout().lock();
        let newline = if data.ends_with('\n') { "" } else { "\n" };
        match write!(stdout, "{data}{newline}").and_then(|()| stdout.flush()) {
            Err(e) if e.kind() != ErrorKind::BrokenPipe => Err(Failure::run(format!("stdout: {e}"))),
            _ => Ok(()),
        }
    }

    /// Writes a message to stderr, unless quiet.
    pub(crate) fn say(self, message: impl core::fmt::Display) {
        if !self.quiet {
            complain(message);
        }
    }
}

/// Writes an error to stderr; there is nowhere to report that stderr itself is closed.
pub(crate) fn complain(message: impl core::fmt::Display) {
    let _ = writeln!(io::stderr(), "{message}");
}

/// <https://no-color.org>: any value but the empty one forbids.
fn colours(no_color: bool, environment: Option<&OsStr>, terminal: bool) -> bool {
    terminal && !no_color && environment.is_none_or(OsStr::is_empty)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_need_a_terminal_and_nobody_against() {
        let (empty, one) = (Some(OsStr::new("")), Some(OsStr::new("1")));
        assert!(colours(false, None, true) && colours(false, empty, true));
        assert!(!colours(false, one, true) && !colours(true, None, true) && !colours(false, None, false));
    }
}
