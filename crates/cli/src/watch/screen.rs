//! The terminal while a view has it.
//!
//! `ratatui::init` is not enough. A second signal ends the program from another thread, and a panic may unwind through a view:
//! the screen is left once in either case, and after the last picture.

use std::io::{self, Stdout};
use std::mem::ManuallyDrop;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::{Frame, Terminal};

use crate::console::{hold_messages, release_messages};

/// A view has the screen.
static IS_SHOWN: AtomicBool = AtomicBool::new(false);
/// A picture is being drawn.
static IS_DRAWING: AtomicBool = AtomicBool::new(false);

/// How long the end waits for a picture that is being drawn.
const PATIENCE: Duration = Duration::from_millis(50);
const PAUSE: Duration = Duration::from_millis(1);

/// The screen of a view; left when this is dropped. The drop of [`Terminal`] panics when the terminal is closed.
pub(super) struct Screen(ManuallyDrop<Terminal<CrosstermBackend<Stdout>>>);

impl Screen {
    /// Takes the terminal: keys come one by one, and what was on the screen is kept. Messages wait.
    pub(super) fn enter() -> io::Result<Self> {
        leave_before_panics();
        let terminal = Terminal::new(CrosstermBackend::new(io::stdout()))?;
        hold_messages();
        IS_SHOWN.store(true, Ordering::SeqCst);
        let screen = Self(ManuallyDrop::new(terminal));
        enable_raw_mode()?;
        execute!(io::stdout(), EnterAlternateScreen)?;
        Ok(screen)
    }

    /// Number of its lines.
    pub(super) fn height(&self) -> io::Result<usize> {
        Ok(self.0.size()?.height.into())
    }

    /// Draws a picture, unless the screen has been left.
    pub(super) fn draw(&mut self, picture: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        IS_DRAWING.store(true, Ordering::SeqCst);
        let drawn = if IS_SHOWN.load(Ordering::SeqCst) { self.0.draw(picture).map(|_| ()) } else { Ok(()) };
        IS_DRAWING.store(false, Ordering::SeqCst);
        drawn
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        leave();
    }
}

/// Gives the terminal back as it was, and writes the messages that waited. Without a view this does nothing.
pub(crate) fn leave() {
    if !IS_SHOWN.swap(false, Ordering::SeqCst) {
        return;
    }
    let begin = Instant::now();
    while IS_DRAWING.load(Ordering::SeqCst) && begin.elapsed() < PATIENCE {
        thread::sleep(PAUSE);
    }
    // A terminal that has gone needs nothing back.
    let _ = execute!(io::stdout(), Show, LeaveAlternateScreen);
    let _ = disable_raw_mode();
    release_messages();
}

/// A panic is printed where it can be read. Panics of trials are caught before.
fn leave_before_panics() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            leave();
            usual(info);
        }));
    });
}
