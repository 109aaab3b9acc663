//! Ctrl-C and the signals that end a program.

use std::process;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::console::complain;
use crate::exit::{Exit, Failure};

static STOP: AtomicBool = AtomicBool::new(false);
static LAST: OnceLock<fn()> = OnceLock::new();

/// What is to be done before the second signal ends the program; the first call counts.
#[cfg(target_os = "linux")]
pub(crate) fn before_exit(last: fn()) {
    let _ = LAST.set(last);
}

/// From now on the first signal sets the returned flag, and the second ends the program at once. Every call gives the same.
pub(crate) fn watch() -> Result<&'static AtomicBool, Failure> {
    static WATCHED: OnceLock<Result<(), String>> = OnceLock::new();
    let watched = WATCHED.get_or_init(|| ctrlc::set_handler(on_signal).map_err(|e| e.to_string()));
    match watched {
        Ok(()) => Ok(&STOP),
        Err(why) => Err(Failure::run(format!("cannot watch for Ctrl-C: {why}"))),
    }
}

fn on_signal() {
    if STOP.swap(true, Ordering::SeqCst) {
        if let Some(last) = LAST.get() {
            last();
        }
        process::exit(i32::from(Exit::Interrupted as u8));
    }
    complain("stopping: finished trials are kept (once more to exit at once, without a report)");
}
