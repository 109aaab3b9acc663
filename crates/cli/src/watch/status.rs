//! The status of a daemon: once, or live with `--watch`.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use bandmaster_linux::daemon::{Error, printable};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::Sparkline;

use super::known::{Answer, Entry, Known, Track, Watched, Word};
use super::screen::Screen;
use super::{Paint, Place, Wish, clock, length, next_wish};
use crate::args::StatusArgs;
use crate::commands::to_json;
use crate::console::Console;
use crate::exit::{Exit, Failure};
use crate::interrupt;

/// Time from one picture to the next.
const TICK: Duration = Duration::from_millis(100);

/// Height of a sparkline's largest value.
const TOP: f64 = 1000.0;

/// Lines above the status: name, age.
const HEAD: u16 = 2;
/// Lines that say why there is no answer.
const WHY: u16 = 2;

/// Columns of a level's name and value.
const NAME: usize = 12;
const VALUE: usize = 15;

const KEYS: &str = "q end  p pause  ↑↓ move";

/// A picture of a daemon.
struct View<'a> {
    /// What kind it is.
    what: &'static str,
    known: &'a Known,
    /// Age of the last answer.
    age: Option<Duration>,
    interval: Duration,
    /// The first line of the status.
    place: Place,
    is_paused: bool,
    paint: Paint,
}

impl View<'_> {
    /// Heights of head, reason, status, sparklines and keys.
    fn areas(&self) -> [Constraint; 5] {
        let why = if self.known.why.is_some() { WHY } else { 0 };
        let tracks = self.known.tracks.len() as u16;
        [
            Constraint::Length(HEAD),
            Constraint::Length(why),
            Constraint::Min(0),
            Constraint::Length(tracks),
            Constraint::Length(1),
        ]
    }

    /// Whether the daemon answers, and how old its last answer is.
    fn state(&self) -> Line<'static> {
        let age = |age: Duration| match age.as_secs_f64() {
            seconds if seconds < 60.0 => format!("{seconds:.1} s"),
            _ => clock(age),
        };
        let every =
            if self.is_paused { "; paused".to_owned() } else { format!("; asked every {:?}", self.interval) };
        match (&self.known.why, self.age) {
            (None, None) => Line::raw("asking"),
            (None, Some(since)) => Line::raw(format!("answered {} ago{every}", age(since))),
            (Some(_), None) => Line::styled(format!("no answer{every}"), self.paint.notice()),
            (Some(_), Some(since)) => {
                Line::styled(format!("no answer; last answer {} ago{every}", age(since)), self.paint.notice())
            }
        }
    }

    /// The status, in lines of at most that width.
    fn lines(&self, width: usize) -> Vec<Line<'static>> {
        let label = self.known.entries.iter().map(|entry| length(&entry.label)).max().unwrap_or(0) + 2;
        let of_entry = |entry: &Entry| {
            let mut lines = Vec::new();
            let mut name = entry.label.clone();
            for words in wrapped(&entry.words, width.saturating_sub(label)) {
                let spans = words.iter().map(|(word, is_new)| match is_new {
                    true => [Span::styled(word.clone(), self.paint.notice()), Span::raw(" ")],
                    false => [Span::raw(word.clone()), Span::raw(" ")],
                });
                let name = Span::styled(format!("{:label$}", std::mem::take(&mut name)), self.paint.title());
                lines.push(Line::from_iter(std::iter::once(name).chain(spans.flatten())));
            }
            lines
        };
        self.known.entries.iter().flat_map(of_entry).collect()
    }
}

/// Words in lines of at most that width, where words are short enough.
fn wrapped(words: &[Word], width: usize) -> Vec<&[Word]> {
    let (mut lines, mut start, mut used) = (Vec::new(), 0, 0);
    for (index, (word, _)) in words.iter().enumerate() {
        used += length(word) + usize::from(index > start);
        if used > width && index > start {
            lines.push(&words[start..index]);
            (start, used) = (index, length(word));
        }
    }
    lines.push(&words[start..]);
    lines
}

fn draw(frame: &mut Frame<'_>, view: &View<'_>) {
    let [head, why, body, tracks, keys] = Layout::vertical(view.areas()).areas(frame.area());
    let title = if view.known.head.is_empty() { view.what } else { view.known.head.as_str() };
    let head_lines = [Line::styled(title.to_owned(), view.paint.title()), view.state()];
    frame.render_widget(Text::from_iter(head_lines), head);
    let reason: Vec<Word> =
        view.known.why.iter().flat_map(|why| why.split(' ')).map(|word| (word.to_owned(), false)).collect();
    let reason = wrapped(&reason, why.width.into())
        .into_iter()
        .map(|words| Line::raw(words.iter().map(|(word, _)| word.as_str()).collect::<Vec<_>>().join(" ")));
    frame.render_widget(Text::from_iter(reason), why);
    let lines = view.lines(body.width.into()).into_iter().skip(view.place.row);
    frame.render_widget(Text::from_iter(lines), body);
    for (track, area) in view.known.tracks.iter().zip(tracks.rows()) {
        draw_track(frame, track, area);
    }
    frame.render_widget(Line::styled(KEYS, view.paint.small()), keys);
}

/// Name, value, and a sparkline in the rest of the line.
fn draw_track(frame: &mut Frame<'_>, track: &Track, area: Rect) {
    let value = track.values.back().copied().flatten();
    let value = value.map_or_else(|| "–".to_owned(), |value| track.level.unit.words(value));
    let words = format!("{:NAME$}{value:>VALUE$}  ", track.level.name);
    let [left, right] =
        Layout::horizontal([Constraint::Length(length(&words) as u16), Constraint::Min(0)]).areas(area);
    frame.render_widget(Line::raw(words), left);
    let most = track.values.iter().flatten().copied().fold(f64::MIN_POSITIVE, f64::max);
    let first = track.values.len().saturating_sub(right.width.into());
    let bars = track.values.iter().skip(first).map(|value| value.map(|value| (value / most * TOP) as u64));
    frame.render_widget(Sparkline::default().data(bars).max(TOP as u64), right);
}

/// Prints what the daemon, a `what`, answers to `ask`, or shows it live.
///
/// # Errors
/// When there can be no view; without one, when no daemon answers.
pub(crate) fn show<T: Watched>(
    what: &'static str,
    ask: impl Fn() -> Result<T, Error> + Send + 'static,
    how: StatusArgs,
    console: Console,
) -> Result<Exit, Failure> {
    if let Some(interval) = how.watch {
        let console = console.with_view(how.json)?;
        let stop = interrupt::flag()?;
        let paint = Paint { colour: console.colour() };
        let shown = watch(what, ask, interval, stop, paint);
        return shown.map_err(|error| Failure::run(format!("terminal: {error}")));
    }
    let status = ask()?;
    console.print(&if how.json { to_json(&status)? } else { printable(&status.to_string()) })?;
    Ok(Exit::Success)
}

/// What a question gave, and when.
type Heard = (Instant, Result<Answer, String>);

/// A thread that asks whenever it is sent a question, since a daemon may take its time.
fn asker<T: Watched>(
    ask: impl Fn() -> Result<T, Error> + Send + 'static,
) -> io::Result<(Sender<()>, Receiver<Heard>)> {
    let ((questions, asked), (heard, answers)) = (channel(), channel());
    let work = move || {
        for () in asked {
            let answer =
                ask().map(|status| Answer { text: printable(&status.to_string()), levels: status.levels() });
            let answer = answer.map_err(|error| error.to_string().trim_start_matches("error: ").to_owned());
            // The view has ended.
            if heard.send((Instant::now(), answer)).is_err() {
                return;
            }
        }
    };
    thread::Builder::new().name("ask".to_owned()).spawn(work)?;
    Ok((questions, answers))
}

/// Asks and draws until a key or a signal ends it.
fn watch<T: Watched>(
    what: &'static str,
    ask: impl Fn() -> Result<T, Error> + Send + 'static,
    interval: Duration,
    stop: &AtomicBool,
    paint: Paint,
) -> io::Result<Exit> {
    let (questions, answers) = asker(ask)?;
    let mut screen = Screen::enter()?;
    let mut known = Known::default();
    let (mut place, mut is_paused) = (Place::default(), false);
    // When the next question is due; none while one is open.
    let mut due = Some(Instant::now());
    let mut asked = Instant::now();
    while !stop.load(Ordering::SeqCst) {
        if due.is_some_and(|due| !is_paused && Instant::now() >= due) {
            (due, asked) = (None, Instant::now());
            questions.send(()).map_err(io::Error::other)?;
        }
        if let Ok((at, answer)) = answers.try_recv() {
            known.take(at, answer);
            due = Some(asked + interval);
        }
        let age = known.heard.map(|heard| heard.elapsed());
        let view = View { what, known: &known, age, interval, place, is_paused, paint };
        let (mut lines, mut page) = (0, 0);
        screen.draw(|frame| {
            let [_, _, body, _, _] = Layout::vertical(view.areas()).areas(frame.area());
            (lines, page) = (view.lines(body.width.into()).len(), body.height.into());
            draw(frame, &view);
        })?;
        place = place.within(lines, page, 1);
        match next_wish(TICK)? {
            Some(Wish::Leave) => return Ok(Exit::Success),
            Some(Wish::Interrupt) => break,
            Some(Wish::Pause) => is_paused = !is_paused,
            Some(Wish::Go(step)) => place = place.after(step, page),
            None => {}
        }
    }
    Ok(Exit::Interrupted)
}

#[cfg(test)]
mod tests {
    use ratatui::style::Modifier;

    use super::*;
    use crate::watch::known::tests::known;
    use crate::watch::tests::{cells, text};

    fn view(known: &Known) -> View<'_> {
        View {
            what: "gateway",
            known,
            age: Some(Duration::from_millis(400)),
            interval: Duration::from_secs(1),
            place: Place::default(),
            is_paused: false,
            paint: Paint { colour: false },
        }
    }

    const WIDE: &str = "\
north: wan0 to 192.0.2.1, process 42, up 60 s
answered 0.4 s ago; asked every 1s
file       /etc/bandmaster/north.toml
counting   in the kernel
peer       answering, last answer 0.1 s ago
bandwidth  5.000 Mbit/s estimated, 9.500 Mbit/s in force
rounds     1125 asked, 1125 answered
data       1125 packets, 1125000 B sent
class      video: has 3.000 Mbit/s of 3.000 Mbit/s, sent 7 packets, dropped 0, 0
           wait
refused    0 length, 0 type, 0 tag, 0 heard before, 0 not asked










estimate       5.000 Mbit/s  █▄
data sent      1.000 Mbit/s   █
q end  p pause  ↑↓ move
";

    #[test]
    fn a_usual_terminal_shows_the_whole_status() {
        let known = known();
        let cells = cells(80, 24, |frame| draw(frame, &view(&known)));
        assert_eq!(text(&cells), WIDE);
        // The estimate has changed, the file and what is in force have not.
        let is_marked = |x, y| cells[(x, y)].style().add_modifier.contains(Modifier::REVERSED);
        assert!(is_marked(11, 5) && !is_marked(11, 2) && !is_marked(35, 5));
        assert_eq!(cells[(35, 5)].symbol(), "9");
    }

    const NARROW: &str = "\
north: wan0 to 192.0.2.1, process 42, up
answered 0.4 s ago; paused
peer       answering, last answer 0.1 s
           ago
bandwidth  5.000 Mbit/s estimated, 9.500
           Mbit/s in force
rounds     1125 asked, 1125 answered
data       1125 packets, 1125000 B sent
class      video: has 3.000 Mbit/s of
estimate       5.000 Mbit/s  █▄
data sent      1.000 Mbit/s   █
q end  p pause  ↑↓ move
";

    #[test]
    fn a_small_terminal_shows_a_part() {
        let known = known();
        let view = View { place: Place { row: 2, column: 0 }, is_paused: true, ..view(&known) };
        assert_eq!(text(&cells(40, 12, |frame| draw(frame, &view))), NARROW);
    }

    const SILENT: &str = "\
agent
no answer; asked every 1s
no agent answers at /run/agent.sock: No
such file




q end  p pause  ↑↓ move
";

    #[test]
    fn a_daemon_that_does_not_answer_is_named() {
        let mut known = Known::default();
        known.take(Instant::now(), Err("no agent answers at /run/agent.sock: No such file".to_owned()));
        let silent = View { what: "agent", age: None, ..view(&known) };
        assert_eq!(text(&cells(40, 9, |frame| draw(frame, &silent))), SILENT);
    }

    #[test]
    fn the_last_answer_stays_while_there_is_no_other() {
        let mut known = known();
        known.take(Instant::now(), Err("it has gone".to_owned()));
        let view = View { age: Some(Duration::from_secs(75)), ..view(&known) };
        let picture = text(&cells(80, 24, |frame| draw(frame, &view)));
        assert!(
            picture.contains("\nno answer; last answer 1:15 ago; asked every 1s\nit has gone\n"),
            "{picture}"
        );
        assert!(picture.contains("\nrounds     1125 asked"), "{picture}");
    }

    #[test]
    fn a_terminal_without_room_is_no_error() {
        let known = known();
        for (width, height) in [(1, 1), (3, 40), (200, 2)] {
            cells(width, height, |frame| draw(frame, &view(&known)));
        }
    }
}
