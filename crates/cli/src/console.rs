//! What a person sees: data on stdout, messages on stderr.

use std::ffi::OsStr;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::exit::Failure;

/// The terminal, as the command line asks to use it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Console {
    quiet: bool,
    colour: bool,
    /// A live view takes the screen while trials run.
    view: bool,
}

/// Messages of the time in which a view has the screen, in order; none while no view has it.
static HELD: Mutex<Option<Vec<String>>> = Mutex::new(None);

impl Console {
    /// `quiet` leaves errors only on stderr; `no_color` and a non-empty `NO_COLOR` keep stdout plain.
    pub(crate) fn new(quiet: bool, no_color: bool) -> Self {
        let colour = colours(no_color, std::env::var_os("NO_COLOR").as_deref(), io::stdout().is_terminal());
        Self { quiet, colour, view: false }
    }

    /// Whether stdout takes colours.
    pub(crate) fn colour(self) -> bool {
        self.colour
    }

    /// Whether stderr shows things that move.
    pub(crate) fn animates(self) -> bool {
        !self.quiet && io::stderr().is_terminal()
    }

    /// The same terminal with a live view, as `--watch` asks for it.
    ///
    /// # Errors
    /// When the view would have no terminal, or stdout carries JSON.
    pub(crate) fn with_view(self, json: bool) -> Result<Self, Failure> {
        match obstacle(json, io::stdout().is_terminal(), io::stderr().is_terminal()) {
            Some(why) => Err(Failure::usage(format!("--watch {why}"))),
            None => Ok(Self { view: true, ..self }),
        }
    }

    /// Whether trials are shown live.
    pub(crate) fn has_view(self) -> bool {
        self.view
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

/// Writes an error to stderr; there is nowhere to report that stderr itself is closed. While a view has the screen, the
/// message waits until the view has left it.
pub(crate) fn complain(message: impl core::fmt::Display) {
    match held().as_mut() {
        Some(messages) => messages.push(message.to_string()),
        None => drop(writeln!(io::stderr(), "{message}")),
    }
}

/// From now on messages wait: a view has the screen.
pub(crate) fn hold_messages() {
    held().get_or_insert_default();
}

/// Writes the messages that waited: the view has left the screen.
pub(crate) fn release_messages() {
    let messages = held().take();
    messages.into_iter().flatten().for_each(complain);
}

/// Whether messages wait.
pub(crate) fn holds_messages() -> bool {
    held().is_some()
}

/// The newest message that waits.
pub(crate) fn newest_message() -> Option<String> {
    held().as_ref()?.last().cloned()
}

fn held() -> MutexGuard<'static, Option<Vec<String>>> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Why there can be no live view, as words after `--watch`.
fn obstacle(json: bool, stdout: bool, stderr: bool) -> Option<&'static str> {
    match (json, stdout, stderr) {
        (true, _, _) => Some("draws on the terminal, and --json prints for programs; leave one of them out"),
        (false, false, _) => {
            Some("needs a terminal, and stdout is none; do not redirect it, or leave --watch out")
        }
        (false, true, false) => {
            Some("needs a terminal, and stderr is none; do not redirect it, or leave --watch out")
        }
        (false, true, true) => None,
    }
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

    #[test]
    fn a_view_needs_a_terminal_and_no_json() {
        assert_eq!(obstacle(false, true, true), None);
        for (json, stdout, stderr, word) in
            [(true, true, true, "--json"), (false, false, true, "stdout"), (false, true, false, "stderr")]
        {
            assert!(obstacle(json, stdout, stderr).is_some_and(|why| why.contains(word)), "{word}");
        }
    }
}
