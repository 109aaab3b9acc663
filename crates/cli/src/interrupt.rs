//! Ctrl-C and the signals that end a program.

use std::process;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::console::complain;
use crate::exit::{Exit, Failure};
use crate::watch;

static STOP: AtomicBool = AtomicBool::new(false);
static HEARD: AtomicBool = AtomicBool::new(false);
static LAST: OnceLock<fn()> = OnceLock::new();

/// How long trials may take to end after the first signal.
const PATIENCE: Duration = Duration::from_millis(1500);

/// What is to be done before the program ends at once; the first call counts.
#[cfg(target_os = "linux")]
pub(crate) fn before_exit(last: fn()) {
    let _ = LAST.set(last);
}

/// From now on the first signal sets the returned flag; the second ends the program at once, and so does a while without
/// [`heard`]. Every call gives the same.
pub(crate) fn watch() -> Result<&'static AtomicBool, Failure> {
    static WATCHED: OnceLock<Result<(), String>> = OnceLock::new();
    let watched = WATCHED.get_or_init(|| ctrlc::set_handler(on_signal).map_err(|e| e.to_string()));
    match watched {
        Ok(()) => Ok(&STOP),
        Err(why) => Err(unwatched(why)),
    }
}

fn unwatched(why: impl core::fmt::Display) -> Failure {
    Failure::run(format!("cannot watch for Ctrl-C: {why}"))
}

/// From now on a signal sets the returned flag and does nothing else: for a view without trials.
#[cfg(target_os = "linux")]
pub(crate) fn flag() -> Result<&'static AtomicBool, Failure> {
    ctrlc::set_handler(|| STOP.store(true, Ordering::SeqCst)).map_err(unwatched)?;
    Ok(&STOP)
}

/// Does what a signal does. Where a view has the terminal, Ctrl-C is a key and no signal.
pub(crate) fn interrupt() {
    on_signal();
}

/// All trials have ended; only their results remain to be written.
pub(crate) fn heard() {
    HEARD.store(true, Ordering::SeqCst);
}

fn on_signal() {
    if STOP.swap(true, Ordering::SeqCst) {
        exit_at_once();
    }
    complain("stopping: finished trials are kept (once more to exit at once, without a report)");
    thread::spawn(|| {
        thread::sleep(PATIENCE);
        if !HEARD.load(Ordering::SeqCst) {
            complain("a trial does not stop; exiting without a report");
            exit_at_once();
        }
    });
}

fn exit_at_once() -> ! {
    watch::leave();
    if let Some(last) = LAST.get() {
        last();
    }
    process::exit(i32::from(Exit::Interrupted as u8));
}
