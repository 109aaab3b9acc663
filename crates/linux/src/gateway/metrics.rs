//! Metrics for Prometheus: base units, bytes for bits, one label for the class.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::AtomicU64;
use std::thread;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

use super::faults::Fault;
use super::status::{ClassStatus, SenderStatus, Shared, State, Status, current};
use super::{Error, claims};

/// A client that takes longer is let go.
const PATIENCE: Duration = Duration::from_secs(2);
/// Clients at a time.
const MOST_CLIENTS: usize = 32;
/// Bytes of a request.
const MOST_REQUEST: usize = 8192;
/// After an error that is none of the client's.
const PAUSE: Duration = Duration::from_millis(20);
const PREFIX: &str = "bandmaster_gateway";
const CONTENT: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

type Labels = Vec<(&'static str, String)>;
type Number = Gauge<f64, AtomicU64>;

/// Serves metrics at `address`: one thread for all clients, whatever they do.
pub(super) fn serve(address: SocketAddr, shared: Shared) -> Result<(), Error> {
    let failed = |e: io::Error| Error::Failed(format!("error: metrics at {address}: {e}"));
    let listener = TcpListener::bind(address).map_err(|e| claims::taken("metrics", address, &e))?;
    listener.set_nonblocking(true).map_err(failed)?;
    let answer = move || {
        let mut clients = Vec::new();
        loop {
            attend(&listener, &mut clients, &|| text(&current(&shared)));
        }
    };
    thread::Builder::new().name("metrics".to_owned()).spawn(answer).map_err(failed)?;
    Ok(())
}

/// Somebody who has connected.
struct Client {
    stream: TcpStream,
    /// When it is let go, come what may.
    until: Instant,
    request: Vec<u8>,
    /// What it is told, and how much of it has been.
    answer: Option<(Vec<u8>, usize)>,
}

impl Client {
    /// Goes on as far as possible without waiting; false when it is over.
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

    /// Reads what has come; false when nothing more will and it is no request, or it is too much.
    fn hear(&mut self) -> bool {
        let mut bytes = [0; 1024];
        loop {
            match self.stream.read(&mut bytes) {
                // Who has asked may close that way, and goes on reading.
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

/// Lets in who has come, and goes on with whoever is ready. Beyond [`MOST_CLIENTS`] the oldest is let go.
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

/// Whether all of a request has come: its head ends with an empty line.
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

/// The metrics of `status` as OpenMetrics text.
pub(super) fn text(status: &Status) -> String {
    let mut registry = Registry::with_prefix(PREFIX);
    let info = [
        ("version", status.version.clone()),
        ("interface", status.interface.clone()),
        ("name", status.name.clone()),
    ];
    registry.register("build", "The gateway", Info::new(info.to_vec()));
    registry.register_with_unit("uptime", "Time since the start", Unit::Seconds, gauge(status.uptime));
    if let Some(sender) = &status.sender {
        register_sender(&mut registry, sender);
        register_classes(&mut registry, &sender.classes);
    }
    if let Some(receiver) = &status.receiver {
        registry.register("answered", "Questions answered", counter(receiver.questions));
        registry.register("received_packets", "Packets of data received", counter(receiver.packets));
        let bytes = counter(receiver.bytes);
        registry.register_with_unit("received", "Bytes of data received", Unit::Bytes, bytes);
    }
    let faults = Family::<Labels, Number>::default();
    for kind in Fault::ALL {
        let label = vec![("kind", kind.name().to_owned())];
        faults.get_or_create(&label).set(f64::from(u8::from(status.has_fault(kind))));
    }
    registry.register("fault", "1 while something is wrong", faults);
    let begun = counters("kind", Fault::ALL.map(|kind| (kind.name(), status.fault_times(kind))));
    registry.register("faults_begun", "Times that something went wrong", begun);
    let reasons = status.refused;
    let refused = [
        ("length", reasons.length),
        ("type", reasons.kind),
        ("tag", reasons.tag),
        ("replay", reasons.replay),
        ("unasked", reasons.unasked),
    ];
    registry.register("refused", "Datagrams refused", counters("reason", refused));
    let acts = counters("act", status.refused_acts.iter().map(|(act, count)| (&**act, *count)));
    registry.register("refused_acts", "What the scheme wanted and the machine did not do", acts);
    registry.register("reloads", "Deployment files taken on a reload", counter(status.reloads));
    let failed = f64::from(u8::from(status.reload_error.is_some()));
    registry.register("reload_failed", "1 when the last reload kept the file before", gauge(failed));
    let mut text = String::new();
    // Writing to a text does not fail.
    let _ = encode(&mut text, &registry);
    text
}

fn register_sender(registry: &mut Registry, sender: &SenderStatus) {
    for (name, help, rate) in [
        ("estimate", "Estimated bandwidth", sender.estimate),
        ("in_force", "Bandwidth in force", sender.in_force),
    ] {
        registry.register_with_unit(name, help, per_second(), gauge(bytes(rate)));
    }
    let answering = f64::from(u8::from(sender.state == State::Answering));
    registry.register("peer_answering", "1 while the peer answers", gauge(answering));
    if let Some(seconds) = sender.last_answer {
        let help = "Time since the last answer";
        registry.register_with_unit("last_answer", help, Unit::Seconds, gauge(seconds));
    }
    for (name, help, value) in [
        ("questions", "Questions sent", sender.questions),
        ("answers", "Answers heard", sender.answers),
        ("rounds_left_out", "Rounds whose counters were not certain", sender.rounds_left_out),
        ("send_errors", "Datagrams that could not be sent", sender.send_errors),
        ("silences", "Times that the peer fell silent", sender.silences),
    ] {
        registry.register(name, help, counter(value));
    }
}

fn register_classes(registry: &mut Registry, classes: &[ClassStatus]) {
    let gauges = |value: fn(&ClassStatus) -> f64| {
        let family = Family::<Labels, Number>::default();
        for class in classes {
            family.get_or_create(&vec![("class", class.name.clone())]).set(value(class));
        }
        family
    };
    let counters =
        |value: fn(&ClassStatus) -> u64| counters("class", classes.iter().map(|c| (&*c.name, value(c))));
    let rate = gauges(|class| bytes(class.rate));
    registry.register_with_unit("class_rate", "What a class has in any case", per_second(), rate);
    let need = gauges(|class| bytes(class.need));
    registry.register_with_unit("class_need", "What a class needs", per_second(), need);
    let waiting = gauges(|class| f64::from(class.waiting));
    registry.register("class_waiting_packets", "Packets that wait", waiting);
    let sent = counters(|class| class.bytes);
    registry.register_with_unit("class_sent", "Bytes sent", Unit::Bytes, sent);
    registry.register("class_sent_packets", "Packets sent", counters(|class| class.packets));
    registry.register("class_dropped_packets", "Packets dropped", counters(|class| class.drops));
}

fn bytes(bits: u64) -> f64 {
    bits as f64 / 8.0
}

fn per_second() -> Unit {
    Unit::Other("bytes_per_second".to_owned())
}

fn gauge(value: f64) -> Number {
    let gauge = Number::default();
    gauge.set(value);
    gauge
}

fn counter(value: u64) -> Counter {
    let counter = Counter::default();
    counter.inc_by(value);
    counter
}

/// A counter for each value of `label`.
fn counters<'a>(
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
    use super::*;

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
        let free = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("bound");
        serve(free, Shared::default()).unwrap_or_else(|e| panic!("{e}"));
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
        let free = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("bound");
        serve(free, Shared::default()).unwrap_or_else(|e| panic!("{e}"));
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

    #[test]
    fn metrics_are_in_base_units_with_the_class_as_label() {
        let class =
            ClassStatus { name: "voice".to_owned(), rate: 400_000, bytes: 7, ..ClassStatus::default() };
        let sender = SenderStatus { estimate: 2_000_000, classes: vec![class], ..SenderStatus::default() };
        let mut status = Status { sender: Some(sender), ..Status::default() };
        status.refused.tag = 3;
        let text = text(&status);
        for line in [
            "bandmaster_gateway_estimate_bytes_per_second 250000.0",
            "bandmaster_gateway_class_rate_bytes_per_second{class=\"voice\"} 50000.0",
            "bandmaster_gateway_class_sent_bytes_total{class=\"voice\"} 7",
            "bandmaster_gateway_refused_total{reason=\"tag\"} 3",
        ] {
            assert!(text.lines().any(|have| have == line), "{line} in\n{text}");
        }
        assert!(text.ends_with("# EOF\n"));
    }
}
