//! The host's side: enrols with a token, and renews with its certificate.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::unistd::geteuid;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConnection, StreamOwned};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::tls::{self, Pair};
use super::{Asks, Digest, ENROLL, RENEW, Renews, Token, Told, hex, random, unhex};
use crate::daemon::state::{folder_of, own, own_as_folder, sync_folder};
use crate::daemon::{self, Error};

/// A controller that takes longer is not there.
const PATIENCE: Duration = Duration::from_secs(10);
/// Another enrolment or renewal of this host ends in that time.
const TURN: Duration = Duration::from_secs(30);
/// Bytes of an answer.
const MOST_ANSWER: u64 = 64 << 10;
/// Mode of a file that its owner alone may read.
const OWNERS: u32 = 0o600;
/// Room that a file takes before its content is known, so that a full disk is found before a token is used.
const ROOM: usize = 16 << 10;

/// What a host keeps of its enrolment, in addition to the secret that it shares with the controller.
#[derive(Serialize, Deserialize)]
pub(crate) struct Certificate {
    /// The private key.
    key: Digest,
    certificate: String,
    /// The public key of the controller's authority.
    authority: Digest,
    /// The second of the day's clock when the certificate expires.
    pub(crate) until: u32,
}

impl Certificate {
    /// That in the file `path`, which nobody else may read.
    pub(crate) fn read(path: &Path) -> Result<Self, Error> {
        let wrong = |why: String| Error::Usage(format!("error: certificate-file {}: {why}", path.display()));
        let text = daemon::secret_text(path).map_err(wrong)?;
        // Drop serde's message: it could quote the file, which holds a key.
        serde_json::from_str(&text)
            .map_err(|_| wrong("is none of `bandmaster agent enroll`, or is cut off; enrol again".to_owned()))
    }

    fn text(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }
}

/// Held while this process enrols or renews: no other one does so with a certificate in that folder.
fn hold(certificate: &Path) -> Result<Flock<File>, Error> {
    let folder = folder_of(certificate);
    let failed = |why: &dyn std::fmt::Display| Error::Failed(format!("error: {}: {why}", folder.display()));
    let mut open = File::open(folder).map_err(|error| failed(&error))?;
    let begin = Instant::now();
    loop {
        match Flock::lock(open, FlockArg::LockExclusiveNonblock) {
            Ok(held) => return Ok(held),
            Err((file, Errno::EWOULDBLOCK)) if begin.elapsed() < TURN => open = file,
            Err((_, Errno::EWOULDBLOCK)) => {
                return Err(failed(&"another process enrols or renews; try again"));
            }
            Err((_, errno)) => return Err(failed(&errno)),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Gives a new file the owner and mode of the one whose place it takes. A first one belongs to whom its folder belongs to; in a
/// folder of root and a group, the group is the daemon's, and reads it.
fn own_as(file: &File, path: &Path) -> io::Result<()> {
    let there = fs::symlink_metadata(path).ok().filter(|there| there.is_file() && geteuid().is_root());
    if let Some(there) = there {
        fchown(file, Some(there.uid()), Some(there.gid()))?;
        return file.set_permissions(Permissions::from_mode(there.mode() & 0o660));
    }
    own_as_folder(file, path)?;
    let folder = fs::metadata(folder_of(path))?;
    match folder.uid() == 0 && folder.gid() != 0 {
        true => file.set_permissions(Permissions::from_mode(0o640)),
        false => Ok(()),
    }
}

/// Puts the file that is open, and no other one that is called so, in the place of `path`.
fn put(file: &File, path: &Path) -> io::Result<()> {
    let new = new_name(path);
    let (own, there) = (file.metadata()?, fs::symlink_metadata(&new)?);
    if (own.dev(), own.ino()) != (there.dev(), there.ino()) {
        return Err(io::Error::other("another process has replaced what was written"));
    }
    fs::rename(&new, path)?;
    sync_folder(path)
}

/// A file that has room on the disk and no content yet.
struct Draft {
    file: File,
    path: PathBuf,
    is_done: bool,
}

impl Draft {
    fn new(path: &Path, mode: u32) -> Result<Self, Error> {
        let new = new_name(path);
        let make = || {
            let _ = fs::remove_file(&new);
            let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&new)?;
            own_as(&file, path)?;
            file.write_all(&vec![b'\n'; ROOM])?;
            file.sync_all()?;
            Ok(file)
        };
        let file = make().map_err(|error: io::Error| {
            let _ = fs::remove_file(&new);
            Error::Failed(format!("error: {}: {error}", new.display()))
        })?;
        Ok(Self { file, path: path.to_owned(), is_done: false })
    }

    /// Puts it in its place with that content.
    fn place(mut self, content: &str) -> Result<(), Error> {
        let write = || {
            self.file.write_all_at(content.as_bytes(), 0)?;
            self.file.set_len(content.len() as u64)?;
            self.file.sync_all()?;
            put(&self.file, &self.path)
        };
        write().map_err(|error| Error::Failed(format!("error: {}: {error}", self.path.display())))?;
        self.is_done = true;
        Ok(())
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.is_done {
            let _ = fs::remove_file(new_name(&self.path));
        }
    }
}

pub(crate) fn new_name(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    PathBuf::from(name)
}

/// Where an agent's files are.
pub(crate) struct Files<'a> {
    /// Its file; none: it is there already.
    pub(crate) agent: Option<&'a Path>,
    /// That with the secret.
    pub(crate) key: &'a Path,
    /// That with the certificate.
    pub(crate) certificate: &'a Path,
}

/// Enrols at the controller with `token`; `whole` makes the agent's file of what the controller says. The host's name.
pub(crate) fn enroll(
    controller: SocketAddr,
    token: &Token,
    files: &Files<'_>,
    whole: impl FnOnce(&str) -> Result<String, Error>,
) -> Result<String, Error> {
    let _held = hold(files.certificate)?;
    let (pair, key) = Pair::generate()?;
    let secret = Digest(random()?);
    let agent = files.agent.map(|path| Draft::new(path, 0o640)).transpose()?;
    let secret_file = Draft::new(files.key, OWNERS)?;
    let certificate_file = Draft::new(files.certificate, OWNERS)?;
    let asks = Asks { number: token.number, token: hex(&token.secret), key: pair.public(), secret };
    let told: Told = ask(controller, token.authority, None, ENROLL, &asks)?;
    let after = |error: Error| {
        let why = error.to_string();
        let why = why.strip_prefix("error: ").unwrap_or(&why);
        Error::Failed(format!(
            "error: the token is used, and this host is not enrolled: {why}; take another token"
        ))
    };
    let text = whole(&told.agent).map_err(after)?;
    let certificate =
        Certificate { key, certificate: told.certificate, authority: token.authority, until: told.until };
    certificate_file.place(&certificate.text()).map_err(after)?;
    secret_file.place(&(String::from(secret) + "\n")).map_err(after)?;
    if let Some(agent) = agent {
        agent.place(&text).map_err(after)?;
    }
    Ok(told.name)
}

/// A new secret and certificate for a host that has one; the second of the day's clock when the certificate expires. The secret is on the disk before
/// the controller has it: when its answer is lost, the next try asks for the same one.
pub(crate) fn renew(controller: SocketAddr, files: &Files<'_>) -> Result<u32, Error> {
    let _held = hold(files.certificate)?;
    let Certificate { key, certificate, authority, .. } = Certificate::read(files.certificate)?;
    let wrong = || {
        Error::Usage(format!(
            "error: certificate-file {}: has no valid key; enrol again",
            files.certificate.display()
        ))
    };
    tls::check_processor()?;
    let pair = Pair::from_seed(&key.0).ok_or_else(wrong)?;
    let shown = CertificateDer::from(unhex(&certificate).ok_or_else(wrong)?);
    let certificate_file = Draft::new(files.certificate, OWNERS)?;
    let new = new_name(files.key);
    let failed = |error: io::Error| Error::Failed(format!("error: {}: {error}", new.display()));
    let begun = own(OpenOptions::new().read(true), &new).ok().and_then(|file| {
        let mut text = String::new();
        (&file).take(MOST_ANSWER).read_to_string(&mut text).ok()?;
        Some((Digest::try_from(text.trim().to_owned()).ok()?, file))
    });
    let (secret, file) = match begun {
        Some(begun) => begun,
        None => {
            let secret = Digest(random()?);
            let _ = fs::remove_file(&new);
            let mut file =
                OpenOptions::new().write(true).create_new(true).mode(OWNERS).open(&new).map_err(failed)?;
            let text = String::from(secret) + "\n";
            own_as(&file, files.key)
                .and_then(|()| file.write_all(text.as_bytes()))
                .and_then(|()| file.sync_all())
                .map_err(failed)?;
            (secret, file)
        }
    };
    let asked = ask(controller, authority, Some((shown, &pair)), RENEW, &Renews { secret });
    let told: Told = asked.map_err(|unanswered| match unanswered {
        Unanswered::Refused(error) => error,
        Unanswered::Lost(error) => {
            Error::Failed(format!("{error}; it may have the new secret already: renew again"))
        }
    })?;
    put(&file, files.key).map_err(failed)?;
    let certificate = Certificate { key, certificate: told.certificate, authority, until: told.until };
    certificate_file.place(&certificate.text())?;
    Ok(told.until)
}

/// Why a question has no answer.
#[derive(Debug)]
pub(super) enum Unanswered {
    /// The controller refuses, and has changed nothing.
    Refused(Error),
    /// Nobody knows whether it has done what it was asked for.
    Lost(Error),
}

impl From<Error> for Unanswered {
    fn from(error: Error) -> Self {
        Self::Lost(error)
    }
}

impl From<Unanswered> for Error {
    fn from(unanswered: Unanswered) -> Self {
        match unanswered {
            Unanswered::Refused(error) | Unanswered::Lost(error) => error,
        }
    }
}

/// Asks the controller whose authority has that key.
fn ask<T: DeserializeOwned>(
    controller: SocketAddr,
    authority: Digest,
    shows: Option<(CertificateDer<'static>, &Pair)>,
    path: &str,
    question: &impl Serialize,
) -> Result<T, Unanswered> {
    let failed = |why: String| Error::Failed(format!("error: controller {controller}: {why}"));
    let config = Arc::new(tls::client(authority, shows)?);
    let body = serde_json::to_string(question).map_err(|error| failed(error.to_string()))?;
    let answer =
        exchange(controller, config, path, &body, PATIENCE).map_err(|error| failed(explain(&error)))?;
    let (code, text) = parse(&answer).ok_or_else(|| failed("its answer is cut off, or none".to_owned()))?;
    match code {
        200 => serde_json::from_str(text).map_err(|_| {
            failed("its answer is none of this version: upgrade the older of the two".to_owned()).into()
        }),
        400..500 => Err(Unanswered::Refused(failed(format!("refused: {}", text.trim())))),
        // It may have failed half-way.
        _ => Err(Unanswered::Lost(failed(format!("failed: {}", text.trim())))),
    }
}

/// What an error of TLS is to somebody who enrols.
fn explain(error: &io::Error) -> String {
    use rustls::{AlertDescription, CertificateError, Error as Tls};
    let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<Tls>());
    match tls {
        Some(Tls::InvalidCertificate(CertificateError::UnknownIssuer)) => {
            "it is not the controller that gave the token: its authority is another".to_owned()
        }
        Some(Tls::AlertReceived(AlertDescription::CertificateExpired)) => {
            "it says that this host's certificate has expired: enrol again".to_owned()
        }
        Some(Tls::AlertReceived(AlertDescription::UnknownCA | AlertDescription::DecryptError)) => {
            "it says that this host's certificate is of another authority: enrol again".to_owned()
        }
        Some(Tls::InvalidMessage(_)) => {
            "it does not speak TLS: is the port that of its `enrolment`?".to_owned()
        }
        _ => error.to_string(),
    }
}

#[cfg(test)]
pub(super) fn ask_without_certificate(controller: SocketAddr, authority: Digest) -> String {
    let asked = ask::<Told>(controller, authority, None, RENEW, &Renews { secret: authority });
    asked.err().map(|unanswered| Error::from(unanswered).to_string()).unwrap_or_default()
}

#[cfg(test)]
pub(super) fn wait_for(controller: SocketAddr, authority: Digest, patience: Duration) -> String {
    let config = Arc::new(tls::client(authority, None).expect("a configuration"));
    let waited = exchange(controller, config, RENEW, "{}", patience);
    waited.err().map(|error| error.to_string()).unwrap_or_default()
}

fn exchange(
    controller: SocketAddr,
    config: Arc<rustls::ClientConfig>,
    path: &str,
    body: &str,
    patience: Duration,
) -> io::Result<Vec<u8>> {
    let until = Instant::now() + patience;
    let stream = TcpStream::connect_timeout(&controller, patience)?;
    let name = ServerName::try_from(tls::CONTROLLER).map_err(io::Error::other)?;
    let connection = ClientConnection::new(config, name).map_err(io::Error::other)?;
    let mut stream = StreamOwned::new(connection, Until { stream, until });
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        tls::CONTROLLER,
        body.len()
    );
    match stream.write_all((head + body).as_bytes()).and_then(|()| stream.flush()) {
        // It refuses before it has heard everything; why is there to be read.
        Err(error) if matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) => {}
        written => written?,
    }
    let mut answer = Vec::new();
    let mut part = [0; 4096];
    while parse(&answer).is_none() {
        match stream.read(&mut part) {
            Ok(0) => break,
            Ok(count) => answer.extend(&part[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break,
            Err(error) => return Err(error),
        }
        if answer.len() as u64 > MOST_ANSWER {
            return Err(io::Error::other("its answer is too long"));
        }
    }
    Ok(answer)
}

/// A connection that ends at an instant, however slow the other end is.
struct Until {
    stream: TcpStream,
    until: Instant,
}

impl Until {
    fn left(&self) -> io::Result<Duration> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(slow()) } else { Ok(left) }
    }
}

fn slow() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "it does not answer in time")
}

fn in_time<T>(done: io::Result<T>) -> io::Result<T> {
    done.map_err(|error| if error.kind() == io::ErrorKind::WouldBlock { slow() } else { error })
}

impl Read for Until {
    fn read(&mut self, part: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(self.left()?))?;
        in_time(self.stream.read(part))
    }
}

impl Write for Until {
    fn write(&mut self, part: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(self.left()?))?;
        in_time(self.stream.write(part))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// Code and body of an answer; none: it is not whole.
pub(super) fn parse(answer: &[u8]) -> Option<(u16, &str)> {
    let text = std::str::from_utf8(answer).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    let code = head.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    })?;
    Some((code, body.get(..length)?))
}
