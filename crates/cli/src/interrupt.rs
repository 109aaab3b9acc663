//! Ctrl-C and the signals that end a program.

use std::process;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::console::complain;
use crate::exit::{Exit, Failure};

static STOP: AtomicBool = AtomicBool::new(false);

/// From now on the first signal sets the returned flag, and the second ends the program at once.
pub(crate) fn watch() -> Result<&'static AtomicBool, Failure> {
    ctrlc::set_handler(|| {
        if STOP.swap(true, Ordering::SeqCst) {
            process::exit(i32::from(Exit::Interrupted as u8));
        }
        complain("stopping: finished trials are kept (once more to exit at once, without a report)");
    })
    .map_err(|e| Failure::run(format!("cannot watch for Ctrl-C: {e}")))?;
    Ok(&STOP)
}
