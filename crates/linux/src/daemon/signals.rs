//! Signals that end a daemon, and where it logs.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bandmaster_core::daemon::Log;
use bandmaster_core::time::Span;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use tracing::info;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use super::Error;

/// How a daemon ended that did not fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// By SIGTERM: an ordered stop.
    Stopped,
    /// By SIGINT: somebody at the keyboard.
    Interrupted,
}

pub(crate) fn log_to_stderr(form: Log) {
    let wanted = std::env::var("RUST_LOG").ok().and_then(|text| text.parse::<Targets>().ok());
    let level = wanted.unwrap_or_else(|| Targets::new().with_default(LevelFilter::INFO));
    let registry = tracing_subscriber::registry().with(level);
    // A program that logs already goes on as it does.
    let _ = match form {
        Log::Logfmt => registry.with(tracing_logfmt::builder().layer().with_writer(io::stderr)).try_init(),
        Log::Json => {
            registry.with(tracing_subscriber::fmt::layer().json().with_writer(io::stderr)).try_init()
        }
    };
}

/// Signals as flags, and a stream that wakes who waits.
pub(crate) struct Signals {
    stop: Arc<AtomicBool>,
    interrupt: Arc<AtomicBool>,
    reload: Arc<AtomicBool>,
    wake: UnixStream,
}

impl Signals {
    pub(crate) fn new() -> Result<Self, Error> {
        Self::register().map_err(|e| Error::Failed(format!("error: signals: {e}")))
    }

    /// How to end, once a signal says so.
    pub(crate) fn end(&self) -> Option<End> {
        if self.stop.load(Ordering::Relaxed) {
            info!("stops by signal");
            return Some(End::Stopped);
        }
        if self.interrupt.load(Ordering::Relaxed) {
            info!("interrupted");
            return Some(End::Interrupted);
        }
        None
    }

    /// Once for each time that the file is to be read again.
    pub(crate) fn reload(&self) -> bool {
        self.reload.swap(false, Ordering::Relaxed)
    }

    fn register() -> io::Result<Self> {
        let (wake, sender) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        sender.set_nonblocking(true)?;
        let flag = |signal| -> io::Result<Arc<AtomicBool>> {
            let flag = Arc::new(AtomicBool::new(false));
            signal_hook::flag::register(signal, Arc::clone(&flag))?;
            signal_hook::low_level::pipe::register(signal, sender.try_clone()?)?;
            Ok(flag)
        };
        Ok(Self { stop: flag(SIGTERM)?, interrupt: flag(SIGINT)?, reload: flag(SIGHUP)?, wake })
    }

    /// Waits until one of `sources` can be read, for a signal, or for so long.
    pub(crate) fn wait(&self, sources: &[BorrowedFd<'_>], most: Span) -> Result<(), Error> {
        let millis = most.as_nanos().div_ceil(1_000_000);
        let timeout =
            PollTimeout::try_from(i32::try_from(millis).unwrap_or(1000)).unwrap_or(PollTimeout::ZERO);
        let sources = sources.iter().copied().chain([self.wake.as_fd()]);
        let mut wanted: Vec<PollFd<'_>> = sources.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        match poll(&mut wanted, timeout) {
            Ok(_) | Err(Errno::EINTR) => {
                self.drain();
                Ok(())
            }
            Err(e) => Err(Error::Failed(format!("error: poll: {}", e.desc()))),
        }
    }

    fn drain(&self) {
        let mut bytes = [0; 64];
        while io::Read::read(&mut &self.wake, &mut bytes).is_ok_and(|read| read > 0) {}
    }
}
