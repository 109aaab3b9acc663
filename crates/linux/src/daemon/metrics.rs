//! Metrics for Prometheus: base units, bytes for bits.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::AtomicU64;
use std::thread;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use super::Error;

/// A client that takes longer is let go.
const PATIENCE: Duration = Duration::from_secs(2);
/// Clients at a time.
const MOST_CLIENTS: usize = 32;
/// Bytes of a request.
const MOST_REQUEST: usize = 8192;
/// After an error that is none of the client's.
const PAUSE: Duration = Duration::from_millis(20);
const CONTENT: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

pub(crate) type Labels = Vec<(&'static str, String)>;
pub(crate) type Number = Gauge<f64, AtomicU64>;

/// Serves what `metrics` tells at `address`.
pub(crate) fn serve_at(
    address: SocketAddr,
    metrics: impl Fn() -> String + Send + 'static,
) -> Result<(), Error> {
    let listener = TcpListener::bind(address)
        .map_err(|error| Error::Failed(format!("error: metrics {address}: {error}")))?;
    serve(listener, metrics)
}

/// Serves what `metrics` tells to all who connect to `listener`: one thread for all clients, whatever they do.
pub(crate) fn serve(
    listener: TcpListener,
    metrics: impl Fn() -> String + Send + 'static,
) -> Result<(), Error> {
    let failed = |e: io::Error| Error::Failed(format!("error: metrics: {e}"));
    listener.set_nonblocking(true).map_err(failed)?;
    let answer = move || {
        let mut clients = Vec::new();
        loop {
            attend(&listener, &mut clients, &metrics);
        }
    };
    thread::Builder::new().name("metrics".to_owned()).spawn(answer).map_err(failed)?;
    Ok(())
}

/// A client connection.
struct Client {
    stream: TcpStream,
    /// When the connection is dropped in any case.
    until: Instant,
    request: Vec<u8>,
    /// The answer, and how many bytes of it were written.
    answer: Option<(Vec<u8>, usize)>,
}

impl Client {
    /// Reads and writes as far as possible without waiting; false when the connection is done.
    fn go_on(&mut self, metrics: &dyn Fn() -> String) -> bool {
        if self.answer.is_none() && !self.hear() {
            return false;
        }
        if self.answer.is_none() && is_whole(&self.request) {
            self.answer = Some((response(&self.request, metrics), 0));
        }
        let Some((bytes, told)) = &mut self.answer else { return true };
        while *told < bytes.len() {
            match self.stream.write(&bytes[*told..]) {
                Ok(0) => return false,
                Ok(count) => *told += count,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return true,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        false
    }

    /// Reads what has arrived; false when no whole request will arrive, or it is too long.
    fn hear(&mut self) -> bool {
        let mut bytes = [0; 1024];
        loop {
            match self.stream.read(&mut bytes) {
                // A client may close its sending side after a request, and keep reading.
                Ok(0) => return is_whole(&self.request),
                Ok(count) => self.request.extend(&bytes[..count]),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return true,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
            if self.request.len() > MOST_REQUEST {
                return false;
            }
        }
    }
}

/// Serves clients that are ready, then accepts new ones. Beyond [`MOST_CLIENTS`] the oldest is dropped.
fn attend(listener: &TcpListener, clients: &mut Vec<Client>, metrics: &dyn Fn() -> String) {
    let now = Instant::now();
    clients.retain(|client| client.until > now);
    let next = clients.iter().map(|client| client.until).min();
    let millis = next.map_or(u128::from(u16::MAX), |next| next.duration_since(now).as_millis() + 1);
    let timeout = PollTimeout::from(u16::try_from(millis).unwrap_or(u16::MAX));
    let wanted =
        |client: &Client| if client.answer.is_some() { PollFlags::POLLOUT } else { PollFlags::POLLIN };
    let mut polled = vec![PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
    polled.extend(clients.iter().map(|client| PollFd::new(client.stream.as_fd(), wanted(client))));
    if poll(&mut polled, timeout).is_err() {
        return;
    }
    let ready: Vec<bool> = polled.iter().map(|fd| fd.any() == Some(true)).collect();
    let mut ready = ready.into_iter();
    let is_asked = ready.next() == Some(true);
    clients.retain_mut(|client| ready.next() != Some(true) || client.go_on(metrics));
    if !is_asked {
        return;
    }
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                if stream.set_nonblocking(true).is_err() {
                    continue;
                }
                if clients.len() == MOST_CLIENTS {
                    clients.remove(0);
                }
                let until = Instant::now() + PATIENCE;
                let mut client = Client { stream, until, request: Vec::new(), answer: None };
                if client.go_on(metrics) {
                    clients.push(client);
                }
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
            // No descriptors are left, or the client went away: others go first.
            Err(_) => {
                thread::sleep(PAUSE);
                return;
            }
        }
    }
}

/// Whether a request is complete: its head ends with an empty line.
fn is_whole(request: &[u8]) -> bool {
    request.windows(4).any(|end| end == b"\r\n\r\n") || request.windows(2).any(|end| end == b"\n\n")
}

fn response(request: &[u8], metrics: &dyn Fn() -> String) -> Vec<u8> {
    let line = String::from_utf8_lossy(request);
    let path = line.split_whitespace().nth(1).unwrap_or("");
    let (code, content, body) = if line.starts_with("GET ") && matches!(path, "/metrics" | "/") {
        ("200 OK", CONTENT, metrics())
    } else {
        ("404 Not Found", "text/plain", "metrics are at /metrics\n".to_owned())
    };
    let head = format!(
        "HTTP/1.1 {code}\r\nContent-Type: {content}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    (head + &body).into_bytes()
}

pub(crate) fn gauge(value: f64) -> Number {
    let gauge = Number::default();
    gauge.set(value);
    gauge
}

pub(crate) fn counter(value: u64) -> Counter {
    let counter = Counter::default();
    counter.inc_by(value);
    counter
}

/// A counter for each value of `label`.
pub(crate) fn counters<'a>(
    label: &'static str,
    values: impl IntoIterator<Item = (&'a str, u64)>,
) -> Family<Labels, Counter> {
    let family = Family::default();
    for (value, count) in values {
        let counter: &Counter = &family.get_or_create(&vec![(label, value.to_owned())]);
        counter.inc_by(count);
    }
    family
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    fn text() -> String {
        "bandmaster_up 1\n# EOF\n".to_owned()
    }

    fn get(address: SocketAddr) -> String {
        let mut stream = TcpStream::connect(address).expect("a connection");
        stream.set_read_timeout(Some(Duration::from_secs(10))).expect("set");
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n").expect("asked");
        let mut said = String::new();
        stream.read_to_string(&mut said).expect("an answer");
        said
    }

    /// `printf 'GET / ...' | nc -N` closes its way as soon as it has asked.
    #[test]
    fn who_closes_after_asking_is_answered() {
        let free = TcpListener::bind("127.0.0.1:0").expect("a port");
        let free = {
            let listener = free;
            let at = listener.local_addr().expect("bound");
            serve(listener, text).unwrap_or_else(|e| panic!("{e}"));
            at
        };
        for request in ["GET / HTTP/1.0\r\n\r\n", "GET /met"] {
            let mut stream = TcpStream::connect(free).expect("a connection");
            stream.set_read_timeout(Some(Duration::from_secs(10))).expect("set");
            stream.write_all(request.as_bytes()).expect("asked");
            stream.shutdown(std::net::Shutdown::Write).expect("closed");
            let mut said = String::new();
            stream.read_to_string(&mut said).expect("an answer, or the end");
            assert_eq!(said.starts_with("HTTP/1.1 200 OK"), is_whole(request.as_bytes()), "{said}");
        }
    }

    /// Idle connections, one that sends a byte now and then and one that never reads: nobody waits for them, and they are let
    /// go. Nobody keeps more than so many.
    #[test]
    fn metrics_answer_while_connections_hang() {
        let free = TcpListener::bind("127.0.0.1:0").expect("a port");
        let free = {
            let listener = free;
            let at = listener.local_addr().expect("bound");
            serve(listener, text).unwrap_or_else(|e| panic!("{e}"));
            at
        };
        let idle: Vec<TcpStream> = (0..12).map(|_| TcpStream::connect(free).expect("a connection")).collect();
        let mut slow = TcpStream::connect(free).expect("a connection");
        let begin = Instant::now();
        for byte in b"GET /met" {
            let _ = slow.write_all(&[*byte]);
            let asked = Instant::now();
            let said = get(free);
            assert!(said.starts_with("HTTP/1.1 200 OK\r\n") && said.ends_with("# EOF\n"), "{said}");
            assert!(asked.elapsed() < PATIENCE, "{:?}", asked.elapsed());
        }
        // More than are kept: the oldest go.
        let more: Vec<TcpStream> = (0..80).map(|_| TcpStream::connect(free).expect("a connection")).collect();
        assert!(get(free).starts_with("HTTP/1.1 200 OK"));
        let mut first = &more[0];
        first.set_read_timeout(Some(Duration::from_secs(10))).expect("set");
        assert!(
            matches!(first.read(&mut [0; 1]), Ok(0) | Err(_)) && begin.elapsed() < Duration::from_secs(10)
        );
        // Also the slow one, although it goes on.
        thread::sleep(PATIENCE + Duration::from_millis(200));
        let gone = (0..20).any(|_| {
            thread::sleep(Duration::from_millis(50));
            slow.write_all(b"r").is_err()
        });
        assert!(gone);
        for mut stream in idle {
            stream.set_read_timeout(Some(Duration::from_secs(10))).expect("set");
            assert!(matches!(stream.read(&mut [0; 1]), Ok(0) | Err(_)));
        }
    }
}
