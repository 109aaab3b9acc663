//! The view of `run --watch` and `emulate --watch`: what trials have given so far, case by case.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use bandmaster_core::report::RunRecord;
use bandmaster_core::report::metric::{Label, label};
use bandmaster_core::report::summary::Estimate;
use bandmaster_core::scenario::Study;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Cell, Row, Table};

use super::screen::Screen;
use super::{Paint, Place, Wish, clock, length, next_wish};
use crate::commands::execute::case_name;
use crate::console::{Console, newest_message};
use crate::interrupt::interrupt;
use crate::jobs::{Job, TrialResult};
use crate::report::{distinct, number, table};

/// Time from one picture to the next.
const TICK: Duration = Duration::from_millis(200);

/// Lines above the table: title, trials, time, part that is shown.
const HEAD: u16 = 4;
/// Lines of the table's own head.
const TABLE_HEAD: u16 = 2;
/// Lines below the table: message, keys.
const FOOT: u16 = 2;

/// Spaces between two columns.
const GAP: usize = 2;
/// A bar shows nothing below the first width, and no more above the second.
const BAR: (usize, usize) = (10, 40);

const KEYS: &str = "q close  p pause  ↑↓←→ move  Ctrl-C stop";

/// Trials of a run, which threads enter and a view shows.
pub(crate) struct Board(Mutex<Trials>);

impl Board {
    /// A board of those trials.
    pub(crate) fn new(trials: Trials) -> Self {
        Self(Mutex::new(trials))
    }

    /// A trial has ended.
    pub(crate) fn enter(&self, job: &Job<'_>, result: &TrialResult) {
        self.lock().enter(job, result);
    }

    fn lock(&self) -> MutexGuard<'_, Trials> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the trials of a run have given so far.
#[derive(Clone, Debug)]
pub(crate) struct Trials {
    title: String,
    /// Metrics that the tables of the report may show.
    metrics: Vec<String>,
    /// Those of them that figures and claims look at along sweeps.
    focus: Vec<String>,
    /// By study, the position of its first case.
    first_case: Vec<usize>,
    cases: Vec<CaseTrials>,
    /// The work of all trials, and of those that have ended.
    weight: (u64, u64),
}

/// Trials of a case.
#[derive(Clone, Debug)]
struct CaseTrials {
    name: String,
    planned: u32,
    finished: u32,
    failed: u32,
    /// By metric, its finite values.
    values: Vec<Vec<f64>>,
}

impl Trials {
    /// Of a plan of which no trial has ended.
    pub(crate) fn new(title: &str, studies: &[&Study], plan: &[Job<'_>]) -> Self {
        let metrics = distinct(studies.iter().flat_map(|study| table::candidates(study)));
        let of_study = |study: &&Study| -> Vec<String> {
            study.sweeps.iter().flat_map(|sweep| table::focus(study, sweep)).collect()
        };
        let title =
            if title.is_empty() { studies.first().map_or("", |study| study.name.as_str()) } else { title };
        let (mut first_case, mut cases) = (Vec::new(), Vec::new());
        for study in studies {
            first_case.push(cases.len());
            cases.extend(study.cases.iter().map(|case| CaseTrials {
                name: case_name(case),
                planned: 0,
                finished: 0,
                failed: 0,
                values: vec![Vec::new(); metrics.len()],
            }));
        }
        let mut trials = Self {
            title: title.to_owned(),
            metrics,
            focus: distinct(studies.iter().flat_map(of_study)),
            first_case,
            cases,
            weight: (0, 0),
        };
        for job in plan {
            trials.weight.0 += job.weight();
            trials.case(job).planned += 1;
        }
        trials
    }

    /// A trial has ended. One that was asked to stop counts as not run.
    fn enter(&mut self, job: &Job<'_>, result: &TrialResult) {
        match result {
            Ok(None) => return,
            Ok(Some(record)) => self.take(job, record),
            Err(_) => self.case(job).failed += 1,
        }
        self.weight.1 += job.weight();
    }

    fn take(&mut self, job: &Job<'_>, record: &RunRecord) {
        let values: Vec<Option<f64>> = self.metrics.iter().map(|metric| record.metric(metric)).collect();
        let case = self.case(job);
        case.finished += 1;
        for (all, value) in case.values.iter_mut().zip(values) {
            all.extend(value.filter(|value| value.is_finite()));
        }
    }

    fn case(&mut self, job: &Job<'_>) -> &mut CaseTrials {
        &mut self.cases[self.first_case[job.study] + job.case]
    }

    /// Positions of the metrics that are shown: those of the report's tables, as far as they were measured.
    fn shown(&self) -> Vec<usize> {
        let position = |name: &str| self.metrics.iter().position(|metric| metric == name);
        let is_measured = |metric: usize| self.cases.iter().any(|case| !case.values[metric].is_empty());
        let present = |name: &str| position(name).is_some_and(is_measured);
        let columns = table::columns(present);
        let focus = self.focus.iter().map(String::as_str).filter(|name| present(name));
        distinct(columns.into_iter().chain(focus)).into_iter().filter_map(position).collect()
    }

    fn sum(&self, count: impl Fn(&CaseTrials) -> u32) -> u32 {
        self.cases.iter().map(count).sum()
    }

    /// `3 of 8 trials finished, 1 failed`.
    fn counts(&self) -> String {
        let (finished, planned) = (self.sum(|case| case.finished), self.sum(|case| case.planned));
        let failed = match self.sum(|case| case.failed) {
            0 => String::new(),
            failed => format!(", {failed} failed"),
        };
        format!("{finished} of {planned} trials finished{failed}")
    }

    /// `35 %, 1:05 elapsed, about 1:57 left`: the rest of the work takes as long as the work until now.
    fn times(&self, elapsed: Duration) -> String {
        let (all, done) = self.weight;
        let percent = u128::from(done) * 100 / u128::from(all.max(1));
        let left = match done {
            0 => String::new(),
            done => {
                let left = elapsed.as_secs_f64() * all.saturating_sub(done) as f64 / done as f64;
                let left = Duration::try_from_secs_f64(left).unwrap_or(Duration::MAX);
                format!(", about {} left", clock(left))
            }
        };
        format!("{percent} %, {} elapsed{left}", clock(elapsed))
    }

    /// `[====>     ]`, so many characters wide; nothing where there is no room.
    fn bar(&self, width: usize) -> String {
        let (least, most) = BAR;
        if width < least {
            return String::new();
        }
        let (all, done) = self.weight;
        let cells = width.min(most) - 2;
        let full = (cells as u128 * u128::from(done) / u128::from(all.max(1))) as usize;
        let tip = if full < cells { ">" } else { "" };
        let bar = "=".repeat(full) + tip;
        format!("[{bar:cells$}]")
    }
}

impl CaseTrials {
    /// `3/8`, and how many failed.
    fn counts(&self) -> String {
        let failed = if self.failed == 0 { String::new() } else { format!(", {} failed", self.failed) };
        format!("{}/{}{failed}", self.finished, self.planned)
    }

    /// Mean and half-width of the 95 % interval of a metric, as in the report's tables.
    fn cell(&self, metric: usize, name: &str) -> String {
        let estimate = Estimate::new(self.values[metric].iter().copied());
        estimate.map_or_else(|| "–".to_owned(), |estimate| number::estimate(name, &estimate))
    }
}

/// A picture of trials.
struct View<'a> {
    trials: &'a Trials,
    elapsed: Duration,
    /// First case and first metric.
    place: Place,
    is_paused: bool,
    message: Option<String>,
    paint: Paint,
}

/// Number of cases on a screen of so many lines.
fn page(height: usize) -> usize {
    height.saturating_sub(usize::from(HEAD + TABLE_HEAD + FOOT))
}

fn draw(frame: &mut Frame<'_>, view: &View<'_>) {
    let areas = [Constraint::Length(HEAD), Constraint::Min(0), Constraint::Length(FOOT)];
    let [head, body, foot] = Layout::vertical(areas).areas(frame.area());
    let (table, part) = table_of(view, body.width.into(), page(frame.area().height.into()));
    frame.render_widget(head_of(view, head.width.into(), part), head);
    frame.render_widget(table, body);
    let message = match (view.is_paused, &view.message) {
        (true, _) => "paused; the trials go on",
        (false, message) => message.as_deref().unwrap_or_default(),
    };
    let foot_lines = [Line::styled(message, view.paint.notice()), Line::styled(KEYS, view.paint.small())];
    frame.render_widget(Text::from_iter(foot_lines), foot);
}

fn head_of(view: &View<'_>, width: usize, part: String) -> Text<'static> {
    let View { trials, elapsed, paint, .. } = view;
    let times = trials.times(*elapsed);
    let bar = trials.bar(width.saturating_sub(length(&times) + GAP));
    Text::from_iter([
        Line::styled(trials.title.clone(), paint.title()),
        Line::raw(trials.counts()),
        Line::raw(format!("{times}  {bar}")),
        Line::styled(part, paint.small()),
    ])
}

/// A column of the table: two lines of its head, and its cells.
struct Column {
    head: [String; 2],
    cells: Vec<String>,
}

impl Column {
    fn width(&self) -> usize {
        self.head.iter().chain(&self.cells).map(|text| length(text)).max().unwrap_or(0)
    }
}

/// The table of the cases and metrics that fit, and which they are of all.
fn table_of(view: &View<'_>, width: usize, page: usize) -> (Table<'static>, String) {
    let View { trials, place, paint, .. } = view;
    let cases: Vec<&CaseTrials> = trials.cases.iter().skip(place.row).take(page).collect();
    let names = trials.cases.iter().map(|case| length(&case.name));
    let name_width = names.max().unwrap_or(0).clamp(4, (width * 2 / 5).max(12));
    let columns = columns_of(view, &cases, width.saturating_sub(name_width));
    let part = [
        part("case", place.row, cases.len(), trials.cases.len()),
        part("metric", place.column, columns.len() - 1, trials.shown().len()),
    ];

    let widths = std::iter::once(name_width).chain(columns.iter().map(Column::width));
    let widths = widths.map(|width| Constraint::Length(width as u16));
    let heads = columns.iter().map(|column| right(column.head.join("\n")));
    let head = Row::new(std::iter::once(Cell::from("case")).chain(heads)).height(TABLE_HEAD);
    let row = |(index, case): (usize, &&CaseTrials)| {
        let cells = columns.iter().map(|column| right(column.cells[index].clone()));
        let row = Row::new(std::iter::once(Cell::from(case.name.clone())).chain(cells));
        if case.failed > 0 { row.style(paint.notice()) } else { row }
    };
    let rows: Vec<Row<'static>> = cases.iter().enumerate().map(row).collect();
    let table = Table::new(rows, widths).header(head.style(paint.title())).column_spacing(GAP as u16);
    (table, part.into_iter().flatten().collect::<Vec<_>>().join("; "))
}

/// The trials of the `cases`, and as many metrics as fit into that width; one in any case.
fn columns_of(view: &View<'_>, cases: &[&CaseTrials], width: usize) -> Vec<Column> {
    let View { trials, place, .. } = view;
    let column = |head: [&str; 2], cell: &dyn Fn(&CaseTrials) -> String| Column {
        head: head.map(str::to_owned),
        cells: cases.iter().map(|case| cell(case)).collect(),
    };
    let mut columns = vec![column(["trials", ""], &CaseTrials::counts)];
    let mut used = GAP + columns[0].width();
    for metric in trials.shown().into_iter().skip(place.column) {
        let name = &trials.metrics[metric];
        let Label { short, unit, .. } = label(name);
        let unit = if unit.is_empty() { String::new() } else { format!("({unit})") };
        let next = column([&short, &unit], &|case: &CaseTrials| case.cell(metric, name));
        used += GAP + next.width();
        if used > width && columns.len() > 1 {
            break;
        }
        columns.push(next);
    }
    columns
}

fn right(text: String) -> Cell<'static> {
    Cell::from(Text::from(text).right_aligned())
}

/// `cases 1 to 4 of 7`, unless all are shown.
fn part(what: &str, first: usize, count: usize, all: usize) -> Option<String> {
    let (from, to) = (first + 1, first + count);
    match count {
        0 => None,
        _ if count >= all => None,
        1 => Some(format!("{what} {from} of {all}")),
        _ => Some(format!("{what}s {from} to {to} of {all}")),
    }
}

/// Has the `work` done, whose trials enter the board, and shows them meanwhile. The screen is left before this returns. Where
/// there can be no view, or it ends, the work goes on.
pub(crate) fn show<T>(board: &Board, console: Console, work: impl FnOnce() -> T) -> T {
    let screen = match Screen::enter() {
        Ok(screen) => screen,
        Err(error) => {
            console.say(format!("no view: the terminal refuses: {error}"));
            return work();
        }
    };
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let view = scope.spawn(|| watch(screen, board, &is_over, console));
        // A panic of the work ends the view too.
        let over = Over(&is_over);
        let done = work();
        drop(over);
        if let Ok(Err(error)) = view.join() {
            console.say(format!("the view ended early: {error}"));
        }
        done
    })
}

/// Ends the view when it is dropped.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Shows the board until the work is over or a key closes the view.
fn watch(mut screen: Screen, board: &Board, is_over: &AtomicBool, console: Console) -> io::Result<()> {
    let (begin, paint) = (Instant::now(), Paint { colour: console.colour() });
    let (mut trials, mut elapsed) = (board.lock().clone(), Duration::ZERO);
    let (mut place, mut is_paused) = (Place::default(), false);
    loop {
        let ends = is_over.load(Ordering::SeqCst);
        if !is_paused {
            (trials, elapsed) = (board.lock().clone(), begin.elapsed());
        }
        let page = page(screen.height()?);
        place = place.within(trials.cases.len(), page, trials.shown().len());
        let view = View { trials: &trials, elapsed, place, is_paused, message: newest_message(), paint };
        screen.draw(|frame| draw(frame, &view))?;
        if ends {
            return Ok(());
        }
        match next_wish(TICK)? {
            Some(Wish::Leave) => break,
            Some(Wish::Interrupt) => interrupt(),
            Some(Wish::Pause) => is_paused = !is_paused,
            Some(Wish::Go(step)) => place = place.after(step, page),
            None => {}
        }
    }
    drop(screen);
    console.say("the view is closed; the trials go on, and Ctrl-C stops them");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jobs::{TrialError, plan};
    use crate::report::tests::{results, study};
    use crate::watch::tests::{cells, text};

    /// Seven cases of two trials; the first five trials have ended.
    fn trials() -> Trials {
        let study = study();
        let plan = plan([&study]);
        let mut trials = Trials::new(&study.title, &[&study], &plan);
        for (job, record) in plan.iter().zip(results(&study).records).take(5) {
            trials.enter(job, &Ok(Some(record)));
        }
        trials
    }

    fn view(trials: &Trials) -> View<'_> {
        View {
            trials,
            elapsed: Duration::from_secs(65),
            place: Place::default(),
            is_paused: false,
            message: None,
            paint: Paint { colour: false },
        }
    }

    const WIDE: &str = "\
Fair shares
5 of 14 trials finished
35 %, 1:05 elapsed, about 1:57 left  [=============>                        ]
metrics 1 to 4 of 6
case         trials          Jain    norm. Jain   throughput      queue
                                                    (Mbit/s)  (packets)
tcp, n = 4      2/2  0.725 ±0.064  0.775 ±0.064  96.40 ±0.00  76.5 ±6.4
tcp, n = 8      2/2  0.705 ±0.064  0.755 ±0.064  96.40 ±0.00  92.5 ±6.4
tcp, n = 16     1/2         0.670         0.720        96.40      124.0
bas, n = 4      0/2             –             –            –          –
bas, n = 8      0/2             –             –            –          –
bas, n = 16     0/2             –             –            –          –
ideal           0/2             –             –            –          –










q close  p pause  ↑↓←→ move  Ctrl-C stop
";

    #[test]
    fn a_usual_terminal_shows_every_case() {
        let trials = trials();
        assert_eq!(text(&cells(80, 24, |frame| draw(frame, &view(&trials)))), WIDE);
    }

    const NARROW: &str = "\
Fair shares
5 of 14 trials finished
35 %, 1:05 elapsed, about 1:57 left
cases 3 to 6 of 7; metric 2 of 6
case         trials  norm. Jain

tcp, n = 16     1/2       0.720
bas, n = 4      0/2           –
bas, n = 8      0/2           –
bas, n = 16     0/2           –
paused; the trials go on
q close  p pause  ↑↓←→ move  Ctrl-C stop
";

    #[test]
    fn a_small_terminal_shows_a_part() {
        let trials = trials();
        let view = View { place: Place { row: 2, column: 1 }, is_paused: true, ..view(&trials) };
        assert_eq!(text(&cells(40, 12, |frame| draw(frame, &view))), NARROW);
    }

    #[test]
    fn failed_trials_are_counted_and_stand_out() {
        let study = study();
        let plan = plan([&study]);
        let mut trials = Trials::new("", &[&study], &plan);
        trials.enter(&plan[0], &Err(TrialError::Failed("no such wire".to_owned())));
        trials.enter(&plan[1], &Ok(None));
        let view = View { message: Some("stopping".to_owned()), ..view(&trials) };
        let cells = cells(80, 24, |frame| draw(frame, &view));
        let text = text(&cells);
        assert!(text.starts_with("fair\n0 of 14 trials finished, 1 failed\n7 %, "), "{text}");
        assert!(text.contains("\ntcp, n = 4   0/2, 1 failed\n"), "{text}");
        assert!(text.contains("\nstopping\nq close"), "{text}");
        let style = |line: u16| cells[(0, HEAD + TABLE_HEAD + line)].style().add_modifier;
        assert_ne!(style(0), style(1));
    }

    #[test]
    fn a_terminal_without_room_is_no_error() {
        let trials = trials();
        for (width, height) in [(1, 1), (3, 40), (200, 2)] {
            cells(width, height, |frame| draw(frame, &view(&trials)));
        }
    }

    #[test]
    fn times_and_bars_go_from_nothing_to_all() {
        let mut trials = trials();
        trials.weight = (10, 0);
        let nothing = (trials.times(Duration::from_secs(1)), trials.bar(12));
        assert_eq!(nothing, ("0 %, 0:01 elapsed".to_owned(), "[>         ]".to_owned()));
        trials.weight = (10, 10);
        let all = (trials.times(Duration::from_secs(9)), trials.bar(12));
        assert_eq!(all, ("100 %, 0:09 elapsed, about 0:00 left".to_owned(), "[==========]".to_owned()));
        assert_eq!(trials.bar(9), "");
    }
}
