//! A live view on the terminal, which `--watch` asks for.
//!
//! A function without a clock or a terminal draws each view from plain data. A loop around it waits for keys and draws again.

#[cfg(target_os = "linux")]
mod known;
mod screen;
#[cfg(target_os = "linux")]
pub(crate) mod status;
pub(crate) mod trials;

use std::io::{self, IsTerminal};
use std::thread;
use std::time::{Duration, Instant};

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::style::{Color, Modifier, Style};

pub(crate) use screen::leave;

/// What a key asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Wish {
    /// The view ends.
    Leave,
    /// What a signal asks for.
    Interrupt,
    /// The picture stands still, or moves again.
    Pause,
    /// Another part of the picture.
    Go(Step),
}

/// A way to another part of the picture.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Up,
    Down,
    PageUp,
    PageDown,
    Left,
    Right,
}

/// Time from one look for keys to the next.
const KEY_PAUSE: Duration = Duration::from_millis(10);

/// The next wish; none within that time. An error when the terminal is closed: crossterm 0.29, if it waited for keys then, would
/// read the end of the terminal without pause and never return. So the wait is here.
fn next_wish(within: Duration) -> io::Result<Option<Wish>> {
    let begin = Instant::now();
    loop {
        if !io::stdout().is_terminal() {
            return Err(io::Error::other("the terminal is closed"));
        }
        if event::poll(Duration::ZERO)? {
            return Ok(wish(&event::read()?));
        }
        if begin.elapsed() >= within {
            return Ok(None);
        }
        thread::sleep(KEY_PAUSE);
    }
}

fn wish(event: &Event) -> Option<Wish> {
    let key = event.as_key_event().filter(|key| key.kind != KeyEventKind::Release)?;
    Some(match key.code {
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => Wish::Interrupt,
        KeyCode::Char('q') | KeyCode::Esc => Wish::Leave,
        KeyCode::Char('p') => Wish::Pause,
        KeyCode::Up => Wish::Go(Step::Up),
        KeyCode::Down => Wish::Go(Step::Down),
        KeyCode::PageUp => Wish::Go(Step::PageUp),
        KeyCode::PageDown => Wish::Go(Step::PageDown),
        KeyCode::Left => Wish::Go(Step::Left),
        KeyCode::Right => Wish::Go(Step::Right),
        _ => return None,
    })
}

/// The first row and column that are shown.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Place {
    row: usize,
    column: usize,
}

impl Place {
    /// The place after a step, where a page has `page` rows.
    fn after(self, step: Step, page: usize) -> Self {
        let Self { row, column } = self;
        match step {
            Step::Up => Self { row: row.saturating_sub(1), column },
            Step::Down => Self { row: row + 1, column },
            Step::PageUp => Self { row: row.saturating_sub(page), column },
            Step::PageDown => Self { row: row + page, column },
            Step::Left => Self { row, column: column.saturating_sub(1) },
            Step::Right => Self { row, column: column + 1 },
        }
    }

    /// The nearest place in so many rows and columns: the last page is full.
    fn within(self, rows: usize, page: usize, columns: usize) -> Self {
        Self {
            row: self.row.min(rows.saturating_sub(page)),
            column: self.column.min(columns.saturating_sub(1)),
        }
    }
}

/// How words look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Paint {
    colour: bool,
}

impl Paint {
    /// Titles and heads.
    fn title(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// Words that a reader should notice.
    fn notice(self) -> Style {
        if self.colour {
            Style::new().fg(Color::Yellow).add_modifier(Modifier::BOLD)
        } else {
            Style::new().add_modifier(Modifier::REVERSED)
        }
    }

    /// Keys and other small print.
    fn small(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }
}

/// `0:07`, `12:30`, `1:02:03`.
fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    if hours > 0 { format!("{hours}:{minutes:02}:{seconds:02}") } else { format!("{minutes}:{seconds:02}") }
}

fn length(text: &str) -> usize {
    text.chars().count()
}

#[cfg(test)]
mod tests {
    use ratatui::backend::TestBackend;
    use ratatui::buffer::{Buffer, Cell};
    use ratatui::crossterm::event::KeyEvent;
    use ratatui::{Frame, Terminal};

    use super::*;

    /// The cells of a picture of that size.
    pub(super) fn cells(width: u16, height: u16, draw: impl FnOnce(&mut Frame<'_>)) -> Buffer {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal without device");
        terminal.draw(draw).expect("drawn");
        terminal.backend().buffer().clone()
    }

    /// Their text, without spaces at the ends of lines.
    pub(super) fn text(cells: &Buffer) -> String {
        let width = usize::from(cells.area.width);
        let line = |line: &[Cell]| {
            let text: String = line.iter().map(Cell::symbol).collect();
            format!("{}\n", text.trim_end())
        };
        cells.content.chunks(width).map(line).collect()
    }

    #[test]
    fn keys_are_wishes() {
        let press = |code, modifiers| wish(&Event::Key(KeyEvent::new(code, modifiers)));
        let plain = |code| press(code, KeyModifiers::NONE);
        assert_eq!(press(KeyCode::Char('c'), KeyModifiers::CONTROL), Some(Wish::Interrupt));
        assert_eq!(plain(KeyCode::Char('c')), None);
        assert_eq!((plain(KeyCode::Char('q')), plain(KeyCode::Esc)), (Some(Wish::Leave), Some(Wish::Leave)));
        assert_eq!(plain(KeyCode::Char('p')), Some(Wish::Pause));
        assert_eq!(plain(KeyCode::PageDown), Some(Wish::Go(Step::PageDown)));
        assert_eq!(wish(&Event::Resize(80, 24)), None);
        let release = KeyEvent::new_with_kind(KeyCode::Char('q'), KeyModifiers::NONE, KeyEventKind::Release);
        assert_eq!(wish(&Event::Key(release)), None);
    }

    #[test]
    fn a_place_stays_within_the_picture() {
        let start = Place::default();
        assert_eq!(start.after(Step::Up, 5).after(Step::Left, 5).after(Step::PageUp, 5), start);
        let far = start.after(Step::PageDown, 5).after(Step::PageDown, 5).after(Step::Right, 5);
        assert_eq!(far, Place { row: 10, column: 1 });
        assert_eq!(far.within(12, 5, 1), Place { row: 7, column: 0 });
        assert_eq!(far.within(3, 5, 0), start);
    }

    #[test]
    fn times_read_like_a_clock() {
        let times = [0, 7, 750, 3723].map(|seconds| clock(Duration::from_secs(seconds)));
        assert_eq!(times, ["0:00", "0:07", "12:30", "1:02:03"]);
    }

    #[test]
    fn notices_show_without_colours_too() {
        let plain = Paint { colour: false }.notice();
        assert_eq!(plain.fg, None);
        assert!(plain.add_modifier.contains(Modifier::REVERSED));
        assert_eq!(Paint { colour: true }.notice().fg, Some(Color::Yellow));
    }
}
