//! Answers a daemon's status to clients of a Unix socket.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::thread;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Error;

/// A reader that takes longer has gone.
const PATIENCE: Duration = Duration::from_secs(2);
/// After an error that is none of the reader's.
const PAUSE: Duration = Duration::from_millis(20);

/// Those who connect. Where none can be taken, as without a free descriptor, the next try waits.
pub(crate) fn clients(listener: &UnixListener) -> impl Iterator<Item = UnixStream> + '_ {
    listener.incoming().filter_map(|stream| stream.inspect_err(|_| thread::sleep(PAUSE)).ok())
}

/// Answers everybody who connects to the socket `path`, in a folder that this process holds.
pub(crate) fn serve<T: Serialize>(path: &Path, status: impl Fn() -> T + Send + 'static) -> Result<(), Error> {
    let failed = |e: std::io::Error| Error::Failed(format!("error: {}: {e}", path.display()));
    // Of a life before: nobody else holds the folder.
    let _ = std::fs::remove_file(path);
    let listener = UnixListener::bind(path).map_err(failed)?;
    let answer = move || {
        for stream in clients(&listener) {
            let text = serde_json::to_string(&status()).unwrap_or_default();
            // A reader that went away is no concern of the daemon.
            let _ = stream.set_write_timeout(Some(PATIENCE));
            let _ = (&stream).write_all(text.as_bytes());
        }
    };
    thread::Builder::new().name("status".to_owned()).spawn(answer).map_err(failed)?;
    Ok(())
}

/// Asks the daemon, a `what`, whose socket is `path`; `has_left` tells whether changes of one that has ended are in force.
///
/// # Errors
/// When none runs there, or it does not answer.
pub(crate) fn ask<T: DeserializeOwned>(
    path: &Path,
    what: &str,
    has_left: impl Fn() -> bool,
) -> Result<T, Error> {
    let ask = || -> std::io::Result<String> {
        let mut stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(text)
    };
    let text = ask().map_err(|e| {
        let left = if has_left() {
            format!("; what it changed is still in force (see `{what} restore`)")
        } else {
            String::new()
        };
        Error::Failed(format!("error: no {what} answers at {}: {e}{left}", path.display()))
    })?;
    serde_json::from_str(&text).map_err(|e| Error::Failed(format!("error: {}: {e}", path.display())))
}
