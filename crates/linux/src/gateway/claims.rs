//! What gateways on this machine hold. Each announces it with a socket in the abstract namespace, which belongs to the
//! network namespace; the kernel removes the socket when the process ends, for whatever reason.

use std::fs;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bandmaster_core::scheme::er2bc::deployment::Role;
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use serde::{Deserialize, Serialize};
use socket2::{Domain, SockAddr, Socket, Type};

use super::Loaded;
use crate::daemon::Error;
use crate::daemon::answers::clients;

/// Begins the names of the sockets.
const PREFIX: &str = "bandmaster-gateway/";
/// Who takes longer has gone.
const ANSWER: Duration = Duration::from_millis(500);
/// How long a gateway may take to end.
const PATIENCE: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(20);

/// A gateway as it tells others of itself.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Holder {
    name: String,
    process: u32,
    file: String,
    interface: String,
    listen: SocketAddr,
    metrics: Option<SocketAddr>,
    /// It needs received packets not merged.
    counts: bool,
    /// They were merged before the gateways came: the last that counts lets them be merged again.
    merged: bool,
}

impl Holder {
    fn new(loaded: &Loaded, merging: &Merging) -> Self {
        let deployment = &loaded.deployment;
        Self {
            name: deployment.name.clone(),
            process: std::process::id(),
            file: loaded.file.display().to_string(),
            interface: deployment.interface.clone(),
            listen: deployment.listen,
            metrics: deployment.metrics,
            counts: merging.counts.load(Ordering::Relaxed),
            merged: merging.merged.load(Ordering::Relaxed),
        }
    }

    /// Received packets were merged before the gateways came.
    pub(super) const fn found_merging(&self) -> bool {
        self.merged
    }
}

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "gateway `{}` (process {}, file {})", self.name, self.process, self.file)
    }
}

/// What this gateway holds, as long as its process lives.
pub(super) struct Claim {
    merging: Arc<Merging>,
}

/// What a gateway says of received packets, as [`Holder`] has it.
#[derive(Default)]
struct Merging {
    counts: AtomicBool,
    merged: AtomicBool,
}

impl Claim {
    /// Takes the interface of `loaded`: one gateway that sends has it, and any number that only receive, each of a name of
    /// its own.
    pub(super) fn take(loaded: &Loaded) -> Result<Self, Error> {
        let deployment = &loaded.deployment;
        let interface = &deployment.interface;
        let name = match deployment.role {
            Role::Receiver => format!("{PREFIX}{interface}/receiver/{}", deployment.name),
            Role::Sender | Role::Both => format!("{PREFIX}{interface}/sender"),
        };
        let failed =
            |e: io::Error| Error::Failed(format!("error: interface {interface}: socket @{name}: {e}"));
        let address = UnixAddress::from_abstract_name(&name).map_err(failed)?;
        let begin = Instant::now();
        let listener = loop {
            match UnixListener::bind_addr(&address) {
                Ok(listener) => break listener,
                Err(e) if e.kind() != io::ErrorKind::AddrInUse => return Err(failed(e)),
                Err(_) if begin.elapsed() < PATIENCE => thread::sleep(PAUSE),
                Err(_) => match ask(&name) {
                    Some(holder) => {
                        return Err(Error::Missing(format!(
                            "error: interface {interface} is in the hands of {holder}; stop it first, or name \
                             another interface"
                        )));
                    }
                    None => {
                        return Err(Error::Missing(format!(
                            "error: interface {interface}: somebody who is no gateway of this user or of root holds \
                             the socket @{name} (see `ss -xlp`)"
                        )));
                    }
                },
            }
        };
        let merging = Arc::new(Merging::default());
        let (told, loaded) = (Arc::clone(&merging), loaded.clone());
        let answer = move || {
            for stream in clients(&listener) {
                let holder = Holder::new(&loaded, &told);
                let text = serde_json::to_string(&holder).unwrap_or_default();
                let _ = stream.set_write_timeout(Some(ANSWER));
                // Who asked and went away is no concern of the gateway.
                let _ = (&stream).write_all(text.as_bytes());
            }
        };
        thread::Builder::new().name("claim".to_owned()).spawn(answer).map_err(failed)?;
        Ok(Self { merging })
    }

    /// From now on received packets must not be merged.
    pub(super) fn count(&self) {
        self.merging.counts.store(true, Ordering::Relaxed);
    }

    /// Whether received packets are merged when no gateway is there.
    pub(super) fn note_merged(&self, merged: bool) {
        self.merging.merged.store(merged, Ordering::Relaxed);
    }
}

/// Other gateways that need received packets of `interface` not merged.
pub(super) fn counting(interface: &str) -> Vec<Holder> {
    let counts = |holder: &Holder| holder.counts && holder.interface == interface;
    others().into_iter().filter(counts).collect()
}

/// `address` cannot be bound: by whom, when it is a gateway.
pub(super) fn taken(what: &str, address: SocketAddr, error: &io::Error) -> Error {
    let meets = |other: SocketAddr| {
        let any = other.ip().is_unspecified() || address.ip().is_unspecified();
        other.port() == address.port() && (any || other.ip() == address.ip())
    };
    let is_udp = what == "udp";
    let holds =
        |holder: &Holder| if is_udp { meets(holder.listen) } else { holder.metrics.is_some_and(meets) };
    let holder = (error.kind() == io::ErrorKind::AddrInUse).then(others);
    match holder.into_iter().flatten().find(holds) {
        Some(holder) => Error::Missing(format!("error: {what} {address} is in the hands of {holder}")),
        None => Error::Failed(format!("error: {what} {address}: {error}")),
    }
}

/// Gateways of this network namespace, other than this one.
fn others() -> Vec<Holder> {
    let text = fs::read_to_string("/proc/thread-self/net/unix").unwrap_or_default();
    let names = text.lines().filter_map(|line| line.rsplit(' ').next()?.strip_prefix('@'));
    let mut names: Vec<&str> = names.filter(|name| name.starts_with(PREFIX)).collect();
    names.sort_unstable();
    names.dedup();
    let own = std::process::id();
    names.into_iter().filter_map(ask).filter(|holder| holder.process != own).collect()
}

/// Who holds socket `name`. Anybody may listen by such a name: only this user and root are believed, and nobody waits for
/// others, who may never take a connection.
fn ask(name: &str) -> Option<Holder> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None).ok()?;
    socket.set_nonblocking(true).ok()?;
    socket.connect(&SockAddr::unix(format!("\0{name}")).ok()?).ok()?;
    socket.set_nonblocking(false).ok()?;
    let mut stream = UnixStream::from(OwnedFd::from(socket));
    let user = getsockopt(&stream, PeerCredentials).ok()?.uid();
    if user != 0 && user != nix::unistd::geteuid().as_raw() {
        return None;
    }
    stream.set_read_timeout(Some(ANSWER)).ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Somebody listens by such a name and takes no connection: the queue of those who wait is full.
    #[test]
    fn nobody_waits_for_who_takes_no_connection() {
        let name = format!("{PREFIX}test-{}", std::process::id());
        let address = SockAddr::unix(format!("\0{name}")).expect("an address");
        let open = || Socket::new(Domain::UNIX, Type::STREAM, None).expect("a socket");
        let listener = open();
        listener.bind(&address).expect("bound");
        listener.listen(0).expect("listens");
        let mut waiting = Vec::new();
        loop {
            let socket = open();
            socket.set_nonblocking(true).expect("set");
            if socket.connect(&address).is_err() {
                break;
            }
            waiting.push(socket);
        }
        let (told, said) = std::sync::mpsc::channel();
        thread::spawn(move || drop(told.send(ask(&name))));
        assert_eq!(said.recv_timeout(Duration::from_secs(5)), Ok(None));
    }
}
