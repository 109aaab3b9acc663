//! Renews a running agent's certificate and its secret.

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
use crate::enrolment::client::{Certificate, new_name};

/// After a try that failed: the controller may have the new secret already.
const AGAIN: Duration = Duration::from_secs(60);

/// After one that succeeded: whatever the clocks of host and controller say.
const RESTS: Duration = Duration::from_secs(24 * 3600);
/// A renewal that has not ended by then was not answered.
const LEFT: Duration = Duration::from_secs(15);

/// The certificate of a host that has enrolled by a token.
pub(super) struct Renewal {
    file: PathBuf,
    key_file: String,
    key: PathBuf,
    certificate: PathBuf,
    /// Which file the secret was read from.
    seen: Option<(u64, i64)>,
    next: Instant,
    /// No renewal before, but for one that was not answered.
    rests: Option<Instant>,
    /// Since when there is a secret that the controller has not confirmed.
    unanswered: Option<Instant>,
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
        let mut renewal = Self {
            file: loaded.file.clone(),
            key_file: loaded.deployment.key_file.clone(),
            key,
            certificate,
            seen: None,
            next: Instant::now(),
            running: None,
            rests: None,
            unanswered: None,
            until: 0,
            error: None,
        };
        renewal.seen = renewal.look();
        // Without it the shared secret is as good as before.
        renewal.look_at_certificate();
        if let Some(error) = &renewal.error {
            warn!(%error, "begins without a certificate");
        }
        Ok(Some(renewal))
    }

    fn look(&self) -> Option<(u64, i64)> {
        let meta = fs::metadata(&self.key).ok()?;
        Some((meta.ino(), meta.mtime_nsec()))
    }

    fn look_at_certificate(&mut self) {
        match Certificate::read(&self.certificate) {
            Ok(Certificate { until, .. }) => (self.until, self.error) = (until, None),
            Err(error) => self.error = Some(error.to_string()),
        }
    }

    /// Once a second: the secret, when it is another one.
    pub(super) fn go_on(&mut self) -> Option<Key> {
        if let Some(done) = self.running.take_if(|running| running.is_finished()) {
            match done.join() {
                Ok(Ok(())) => {
                    self.rests = Some(Instant::now() + RESTS);
                    self.look_at_certificate();
                }
                Ok(Err(error)) => self.error = Some(error.to_string()),
                Err(_) => self.error = Some("the thread has failed".to_owned()),
            }
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
        let now = Instant::now();
        // The controller may have a secret that this host does not use yet.
        self.unanswered = new_name(&self.key).exists().then(|| self.unanswered.unwrap_or(now));
        let is_left = self.unanswered.is_some_and(|since| now >= since + LEFT);
        let is_due = self.left() < RENEWS && self.rests.is_none_or(|until| now >= until);
        if self.running.is_none() && (is_left || is_due) && now >= self.next {
            self.next = now + AGAIN;
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    use super::*;

    fn write(path: &Path, text: &str) {
        fs::write(path, text).expect("written");
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).expect("set");
    }

    fn wait(renewal: &Renewal) {
        let begin = Instant::now();
        while renewal.running.as_ref().is_some_and(|running| !running.is_finished()) {
            assert!(begin.elapsed() < Duration::from_secs(20), "it does not end");
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// With a clock far ahead every certificate looks expired; a host that has just renewed still waits a day. A host with a
    /// damaged certificate starts, and reports the damage.
    #[test]
    fn a_clock_ahead_and_a_damaged_certificate_stop_nobody() {
        let folder = std::env::temp_dir().join(format!("bandmaster-renewal-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("made");
        let (file, certificate) = (folder.join("a.toml"), folder.join("certificate"));
        // Nobody listens at the port.
        let text = "version = 1\nscheme = \"opentcp\"\nnumber = 7\n[controller]\naddress = \"127.0.0.1\"\nlisten-port = 4743\n\
                    enrolment-port = 1\nkey-file = \"key\"\ncertificate-file = \"certificate\"\n";
        fs::write(&file, text).expect("written");
        write(&folder.join("key"), "a secret of many bytes");
        let digits = "07".repeat(32);
        let whole =
            format!("{{\"key\":\"{digits}\",\"certificate\":\"00\",\"authority\":\"{digits}\",\"until\":1}}");
        write(&certificate, &whole[..whole.len() / 2]);
        let loaded = super::super::load(&file).unwrap_or_else(|error| panic!("{error}"));
        let mut renewal = Renewal::new(&loaded).expect("it begins").expect("it has enrolled");
        assert!(renewal.error.as_ref().is_some_and(|error| error.contains("is cut off; enrol again")));

        write(&certificate, &whole);
        renewal.running = Some(thread::spawn(|| Ok(())));
        wait(&renewal);
        assert!(renewal.go_on().is_none() && renewal.error.is_none() && renewal.left() == 0);
        renewal.next = Instant::now();
        assert!(renewal.go_on().is_none() && renewal.running.is_none(), "it has just renewed");
        renewal.rests = Some(Instant::now());
        assert!(renewal.go_on().is_none() && renewal.running.is_some(), "a day later it does again");
        wait(&renewal);
        renewal.go_on();
        assert!(renewal.error.is_some() && renewal.rests.is_some_and(|until| until <= Instant::now()));
        fs::remove_dir_all(&folder).expect("removed");
    }
}
