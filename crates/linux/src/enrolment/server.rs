//! The controller's side: one thread that answers two kinds of request over TLS.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use axum::extract::{DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Extension, Json, Router};
use bandmaster_core::controller::{self, Deployment, ENROLLED, Host};
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use serde::{Deserialize, Serialize};
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio_rustls::TlsAcceptor;
use tracing::{debug, info, warn};

use super::ledger::{Entry, Ledger};
use super::tls::{self, Authority};
use super::{Asks, Digest, ENROLL, RENEW, Renews, Told, VALID, digest, hex, is_same, unhex};
use crate::daemon::clock::seconds_of_day;
use crate::daemon::{self, Error};

/// A host that takes longer is let go.
const PATIENCE: Duration = Duration::from_secs(10);
/// Connections at a time; beyond, the oldest is let go.
const MOST_GUESTS: usize = 64;
/// Between two that are taken, so that a flood of them takes no processor from the controller.
const PACE: Duration = Duration::from_millis(5);
/// Bytes of a question.
const MOST_QUESTION: usize = 4096;
/// So often at most a log says that somebody is refused.
const COMPLAINT: Duration = Duration::from_secs(60);

/// So many valid questions of a host are answered in such a time: each is a line of the log, and of the ledger.
const MOST_ANSWERS: u32 = 10;
const ANSWERS_IN: Duration = Duration::from_secs(60);

/// Questions and connections, by what became of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct Questions {
    /// Hosts that have enrolled.
    pub enrolled: u64,
    /// Renewals.
    pub renewed: u64,
    /// Tokens that are not valid.
    pub token: u64,
    /// Certificates that are not, or are absent.
    pub certificate: u64,
    /// Of revoked hosts.
    pub revoked: u64,
    /// Of hosts that have asked too often.
    pub excess: u64,
    /// Not done: the ledger cannot be written.
    pub failed: u64,
    /// Connections that are not TLS 1.3, or show a certificate that nobody here has signed or that has expired.
    pub handshake: u64,
    /// Connections that took too long, or ended in the middle.
    pub unfinished: u64,
    /// Connections that were let go for newer ones.
    pub crowded: u64,
}

impl Questions {
    /// With their names, in order.
    pub fn by_outcome(&self) -> [(&'static str, u64); 10] {
        let Self {
            enrolled,
            renewed,
            token,
            certificate,
            revoked,
            excess,
            failed,
            handshake,
            unfinished,
            crowded,
        } = *self;
        [
            ("enrolled", enrolled),
            ("renewed", renewed),
            ("token", token),
            ("certificate", certificate),
            ("revoked", revoked),
            ("excess", excess),
            ("failed", failed),
            ("handshake", handshake),
            ("unfinished", unfinished),
            ("crowded", crowded),
        ]
    }
}

/// What the controller has read last of its files.
pub(crate) struct Roster {
    deployment: Deployment,
    hosts_file: PathBuf,
    /// Numbers and names of the hosts that enrol themselves.
    hosts: BTreeSet<(u32, String)>,
}

impl Roster {
    pub(crate) fn new(deployment: Deployment, hosts_file: PathBuf, hosts: &[Host]) -> Self {
        let by_token = hosts.iter().filter(|host| host.secret == ENROLLED);
        let hosts = by_token.map(|host| (host.number, host.name.clone())).collect();
        Self { deployment, hosts_file, hosts }
    }

    /// Whether `entry` is of a host of the file; the controller may not have read yet that it was added.
    fn has(&self, entry: &Entry) -> Result<bool, String> {
        if self.hosts.contains(&(entry.number, entry.name.clone())) {
            return Ok(true);
        }
        let text = daemon::secret_text(&self.hosts_file)?;
        let hosts = controller::hosts(&self.hosts_file.display().to_string(), &text)?;
        let is_it =
            |host: &Host| host.number == entry.number && host.name == entry.name && host.secret == ENROLLED;
        Ok(hosts.iter().any(is_it))
    }
}

/// What answers questions of hosts.
pub(crate) struct Desk {
    ledger: Arc<Mutex<Ledger>>,
    authority: Authority,
    read: Arc<Mutex<Roster>>,
    /// The file of an agent, but for the controller's address.
    agent: fn(&Deployment, u32) -> String,
    questions: Mutex<Questions>,
    complained: Mutex<Option<Instant>>,
    /// By a host's number: since when, and how many of its questions were answered.
    answered: Mutex<BTreeMap<u32, (Instant, u32)>>,
}

/// Locks what no holder leaves half done.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Who asks.
#[derive(Clone, Copy)]
struct Guest {
    from: SocketAddr,
    /// The public key of its certificate.
    key: Option<Digest>,
}

/// Why a host is refused.
struct Refused(StatusCode, String);

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        let why = error.to_string();
        Self(StatusCode::SERVICE_UNAVAILABLE, why.strip_prefix("error: ").unwrap_or(&why).to_owned())
    }
}

type Answer = Result<Json<Told>, (StatusCode, String)>;

impl Desk {
    pub(crate) fn new(
        ledger: Arc<Mutex<Ledger>>,
        authority: Authority,
        read: Arc<Mutex<Roster>>,
        agent: fn(&Deployment, u32) -> String,
    ) -> Self {
        Self {
            ledger,
            authority,
            read,
            agent,
            questions: Mutex::default(),
            complained: Mutex::default(),
            answered: Mutex::default(),
        }
    }

    pub(crate) fn questions(&self) -> Questions {
        *lock(&self.questions)
    }

    fn count(&self, of: impl FnOnce(&mut Questions) -> &mut u64) {
        *of(&mut lock(&self.questions)) += 1;
    }

    /// Answers everybody who connects to `listener`.
    pub(crate) fn serve(self: Arc<Self>, listener: TcpListener) -> Result<(), Error> {
        let failed = |error: std::io::Error| Error::Failed(format!("error: enrolment: {error}"));
        listener.set_nonblocking(true).map_err(failed)?;
        let acceptor = TlsAcceptor::from(Arc::new(self.authority.server()?));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()
            .map_err(failed)?;
        let listener = {
            let _here = runtime.enter();
            tokio::net::TcpListener::from_std(listener).map_err(failed)?
        };
        let attend = move || runtime.block_on(self.attend(&listener, &acceptor));
        thread::Builder::new().name("enrolment".to_owned()).spawn(attend).map_err(failed)?;
        Ok(())
    }

    async fn attend(self: Arc<Self>, listener: &tokio::net::TcpListener, acceptor: &TlsAcceptor) {
        let routes = Router::new()
            .route(ENROLL, post(enroll))
            .route(RENEW, post(renew))
            .layer(DefaultBodyLimit::max(MOST_QUESTION))
            .with_state(Arc::clone(&self));
        let mut guests: VecDeque<AbortHandle> = VecDeque::new();
        loop {
            // Without a free descriptor the next try waits.
            if let Ok((stream, from)) = listener.accept().await {
                guests.retain(|guest| !guest.is_finished());
                if guests.len() == MOST_GUESTS
                    && let Some(oldest) = guests.pop_front()
                {
                    oldest.abort();
                    self.count(|questions| &mut questions.crowded);
                }
                let (desk, acceptor, routes) = (Arc::clone(&self), acceptor.clone(), routes.clone());
                let guest = tokio::spawn(async move {
                    let whole = desk.hear(stream, from, &acceptor, routes);
                    if !matches!(tokio::time::timeout(PATIENCE, whole).await, Ok(true)) {
                        desk.count(|questions| &mut questions.unfinished);
                    }
                });
                guests.push_back(guest.abort_handle());
            }
            tokio::time::sleep(PACE).await;
        }
    }

    /// Hears one question; false when the connection ended in the middle.
    async fn hear(
        &self,
        stream: TcpStream,
        from: SocketAddr,
        acceptor: &TlsAcceptor,
        routes: Router,
    ) -> bool {
        let stream = match acceptor.accept(stream).await {
            Ok(stream) => stream,
            Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {
                self.complain(from, &error.to_string());
                self.count(|questions| &mut questions.handshake);
                return true;
            }
            Err(_) => return false,
        };
        let certificates = stream.get_ref().1.peer_certificates().unwrap_or_default();
        let guest = Guest { from, key: certificates.first().and_then(tls::public_key) };
        let service = TowerToHyperService::new(routes.layer(Extension(guest)));
        http1::Builder::new().keep_alive(false).serve_connection(TokioIo::new(stream), service).await.is_ok()
    }

    fn complain(&self, from: SocketAddr, why: &str) {
        let mut complained = lock(&self.complained);
        if complained.is_none_or(|last| last.elapsed() > COMPLAINT) {
            *complained = Some(Instant::now());
            warn!(%from, why, "refuses a host at the enrolment port; more are counted only, for a minute");
        }
    }

    fn refuse(&self, guest: Guest, Refused(status, why): Refused) -> (StatusCode, String) {
        self.complain(guest.from, &why);
        (status, why)
    }

    fn told(&self, entry: Entry, key: Digest) -> Result<Json<Told>, Refused> {
        if let Err(error) = lock(&self.ledger).shorten() {
            debug!(%error, "lines that have been overtaken stay until the next question");
        }
        let until = seconds_of_day().saturating_add(VALID);
        let certificate = hex(&self.authority.certify(&entry.name, key, until)?);
        let agent = (self.agent)(&lock(&self.read).deployment, entry.number);
        Ok(Json(Told { number: entry.number, name: entry.name, certificate, until, agent }))
    }

    /// Refuses hosts that ask too often, or are not in the hosts-file.
    fn admit(&self, entry: &Entry, of: impl FnOnce(&mut Questions) -> &mut u64) -> Result<(), Refused> {
        let now = Instant::now();
        let mut answered = lock(&self.answered);
        let (since, many) = answered.entry(entry.number).or_insert((now, 0));
        if since.elapsed() > ANSWERS_IN {
            (*since, *many) = (now, 0);
        }
        if *many >= MOST_ANSWERS {
            self.count(|questions| &mut questions.excess);
            let why = "the host asks too often; wait a minute";
            return Err(Refused(StatusCode::TOO_MANY_REQUESTS, why.to_owned()));
        }
        *many += 1;
        drop(answered);
        match lock(&self.read).has(entry) {
            Ok(true) => Ok(()),
            Ok(false) => {
                self.count(of);
                let why = "the controller's hosts-file does not say that the host enrols itself";
                Err(Refused(StatusCode::FORBIDDEN, why.to_owned()))
            }
            Err(error) => {
                warn!(error, host = entry.name, "cannot look for a host in the hosts-file");
                Err(Refused(StatusCode::SERVICE_UNAVAILABLE, "its hosts-file cannot be read".to_owned()))
            }
        }
    }

    fn enroll(&self, asks: &Asks) -> Result<Json<Told>, Refused> {
        let refused = |why: &str| {
            self.count(|questions| &mut questions.token);
            Refused(StatusCode::FORBIDDEN, why.to_owned())
        };
        let sent = digest(&unhex(&asks.token).unwrap_or_default());
        let entry = lock(&self.ledger).change(|ledger| {
            let known = ledger.entry(asks.number);
            let is_used = known.and_then(|entry| entry.used).is_some_and(|used| is_same(&used, &sent));
            // Who does not know the token learns nothing of it.
            let waits = known.and_then(|entry| {
                entry.token.as_ref().filter(|token| is_same(&token.digest, &sent)).map(|token| (entry, token))
            });
            let Some((entry, token)) = waits else {
                return Err(refused(if is_used {
                    "the token was used; a host takes one for each time that it enrols"
                } else {
                    "the token is not known: it is of another host, a newer one was given, or the host was revoked"
                }));
            };
            if token.until <= seconds_of_day() {
                return Err(refused("the token has expired"));
            }
            if ledger.of_key(&asks.key).is_some_and(|other| other.number != asks.number) {
                return Err(refused("the public key is another host's"));
            }
            self.admit(entry, |questions| &mut questions.token)?;
            let secret = Some(String::from(asks.secret));
            let used = Some(token.digest);
            Ok(Entry { token: None, used, secret, key: Some(asks.key), ..entry.clone() })
        });
        let entry = entry.inspect_err(|refused| self.note_failure(refused))?;
        self.told(entry, asks.key)
    }

    fn renew(&self, guest: Guest, renews: &Renews) -> Result<Json<Told>, Refused> {
        let refused = |status, why: &str| {
            self.count(|questions| &mut questions.certificate);
            Refused(status, why.to_owned())
        };
        let Some(key) = guest.key else {
            return Err(refused(StatusCode::UNAUTHORIZED, "no certificate is shown"));
        };
        let entry = lock(&self.ledger).change(|ledger| {
            let Some(entry) = ledger.of_key(&key) else {
                let why = "the certificate is no host's any more: the host has enrolled again, or its authority was stolen";
                return Err(refused(StatusCode::FORBIDDEN, why));
            };
            if is_revoked(ledger, entry) {
                self.count(|questions| &mut questions.revoked);
                return Err(Refused(StatusCode::FORBIDDEN, "the host is revoked".to_owned()));
            }
            self.admit(entry, |questions| &mut questions.certificate)?;
            Ok(Entry { secret: Some(renews.secret.into()), ..entry.clone() })
        });
        let entry = entry.inspect_err(|refused| self.note_failure(refused))?;
        self.told(entry, key)
    }

    fn note_failure(&self, Refused(status, _): &Refused) {
        if *status == StatusCode::SERVICE_UNAVAILABLE {
            self.count(|questions| &mut questions.failed);
        }
    }
}

fn is_revoked(ledger: &Ledger, entry: &Entry) -> bool {
    let host = Host { number: entry.number, name: entry.name.clone(), secret: ENROLLED.to_owned() };
    ledger.is_revoked(&host)
}

async fn enroll(
    State(desk): State<Arc<Desk>>,
    Extension(guest): Extension<Guest>,
    Json(asks): Json<Asks>,
) -> Answer {
    let told = desk.enroll(&asks).map_err(|refused| desk.refuse(guest, refused))?;
    desk.count(|questions| &mut questions.enrolled);
    info!(host = told.name, number = told.number, from = %guest.from, "is enrolled");
    Ok(told)
}

async fn renew(
    State(desk): State<Arc<Desk>>,
    Extension(guest): Extension<Guest>,
    Json(renews): Json<Renews>,
) -> Answer {
    let told = desk.renew(guest, &renews).map_err(|refused| desk.refuse(guest, refused))?;
    desk.count(|questions| &mut questions.renewed);
    info!(host = told.name, number = told.number, from = %guest.from, "has a new secret and certificate");
    Ok(told)
}
