//! How a running agent renews its certificate, and the secret with it.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use bandmaster_core::runtime::envelope::Key;
use tracing::{info, warn};

use super::{Loaded, paths, renew};
use crate::daemon::clock::seconds_of_day;
use crate::daemon::{self, Error};
use crate::enrolment::RENEWS;
use crate::enrolment::client::Certificate;

/// After a try that failed: the controller may have the new secret already.
const AGAIN: Duration = Duration::from_secs(60);

/// The certificate of a host that has enrolled by a token.
pub(super) struct Renewal {
    file: PathBuf,
    key_file: String,
    key: PathBuf,
    certificate: PathBuf,
    /// Which file the secret was read from.
    seen: Option<(u64, i64)>,
    next: Instant,
    running: Option<JoinHandle<Result<(), Error>>>,
    /// When the certificate expires.
    pub(super) until: u32,
    /// Why the last try failed.
    pub(super) error: Option<String>,
}

impl Renewal {
    /// None: the secret was carried by hand.
    pub(super) fn new(loaded: &Loaded) -> Result<Option<Self>, Error> {
        let Some((key, certificate)) = paths(&loaded.file, &loaded.deployment) else { return Ok(None) };
        let until = Certificate::read(&certificate)?.until;
        let mut renewal = Self {
            file: loaded.file.clone(),
            key_file: loaded.deployment.key_file.clone(),
            key,
            certificate,
            seen: None,
            next: Instant::now(),
            running: None,
            until,
            error: None,
        };
        renewal.seen = renewal.look();
        Ok(Some(renewal))
    }

    fn look(&self) -> Option<(u64, i64)> {
        let meta = fs::metadata(&self.key).ok()?;
        Some((meta.ino(), meta.mtime_nsec()))
    }

    fn look_at_certificate(&mut self) {
        if let Ok(Certificate { until, .. }) = Certificate::read(&self.certificate) {
            self.until = until;
        }
    }

    /// Once a second: the secret, when it is another one.
    pub(super) fn go_on(&mut self) -> Option<Key> {
        if let Some(done) = self.running.take_if(|running| running.is_finished()) {
            self.error = match done.join() {
                Ok(Ok(())) => {
                    self.look_at_certificate();
                    None
                }
                Ok(Err(error)) => Some(error.to_string()),
                Err(_) => Some("the thread has failed".to_owned()),
            };
            if let Some(error) = &self.error {
                warn!(%error, left_seconds = self.left(), "cannot renew the certificate; tries again in a minute");
            }
        }
        let seen = self.look();
        if seen.is_some() && seen != self.seen {
            self.seen = seen;
            self.look_at_certificate();
            match daemon::secret(&self.file, &self.key_file) {
                Ok(key) => {
                    info!(valid_seconds = self.left(), "goes on with another secret");
                    return Some(key);
                }
                Err(error) => warn!(%error, "goes on with the secret that it had"),
            }
        }
        if self.running.is_none() && self.left() < RENEWS && Instant::now() >= self.next {
            self.next = Instant::now() + AGAIN;
            let file = self.file.clone();
            self.running = thread::Builder::new().name("renewal".to_owned()).spawn(move || renew(&file)).ok();
        }
        None
    }

    /// Seconds until the certificate expires.
    pub(super) fn left(&self) -> u32 {
        self.until.saturating_sub(seconds_of_day())
    }
}
