//! What a person sees: data on stdout, messages on stderr.

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
        let forbidden = no_color || std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
        Self { quiet, colour: !forbidden && io::stdout().is_terminal() }
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
