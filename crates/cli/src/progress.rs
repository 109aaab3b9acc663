//! A progress bar with the time left.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::console::holds_messages;

/// Shorter work shows no bar.
const PATIENCE: Duration = Duration::from_secs(2);

/// Progress over trials of unequal weight.
pub(crate) struct Progress {
    bar: ProgressBar,
    trials: usize,
    finished: Mutex<usize>,
    /// When the bar appears; none: never.
    appears: Option<Instant>,
}

impl Progress {
    /// Progress over `trials` that weigh `weight` together; `visible` is false where nobody looks.
    pub(crate) fn new(trials: usize, weight: u64, visible: bool) -> Self {
        let bar = ProgressBar::with_draw_target(Some(weight), ProgressDrawTarget::hidden());
        bar.set_style(style());
        Self { bar, trials, finished: Mutex::new(0), appears: visible.then(|| Instant::now() + PATIENCE) }
    }

    /// A trial that weighs `weight` has ended. The bar does not appear while a view has the screen.
    pub(crate) fn advance(&self, weight: u64) {
        let mut finished = self.finished.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        *finished += 1;
        self.bar.set_message(format!("{finished} of {} trials", self.trials));
        let is_due = self.appears.is_some_and(|at| Instant::now() >= at);
        if self.bar.is_hidden() && is_due && !holds_messages() {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        self.bar.inc(weight);
    }

    /// Takes the bar off the screen.
    pub(crate) fn clear(&self) {
        self.bar.finish_and_clear();
    }
}

fn style() -> ProgressStyle {
    let template = "{bar:40} {percent:>3} %  {msg}, {eta} left";
    ProgressStyle::with_template(template)
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("=> ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_weights_and_trials() {
        let progress = Progress::new(3, 60, false);
        progress.advance(10);
        progress.advance(20);
        assert_eq!((progress.bar.position(), progress.bar.length()), (30, Some(60)));
        assert_eq!(progress.bar.message(), "2 of 3 trials");
        assert!(progress.bar.is_hidden());
    }

    #[test]
    fn the_template_is_valid() {
        assert!(ProgressStyle::with_template("{bar:40} {percent:>3} %  {msg}, {eta} left").is_ok());
    }
}
