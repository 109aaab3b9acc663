//! The address of the other gateway, when the file gives no fixed one.

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread;

use bandmaster_core::scheme::er2bc::deployment::{Deployment, Whereabouts};
use bandmaster_core::scheme::er2bc::probe::Body;
use bandmaster_core::time::{Span, Time};

/// Between two questions to the name server.
const PAUSE: Span = Span::from_secs(5);

/// The other gateway's address.
#[derive(Debug)]
pub(super) struct Peer {
    whereabouts: Whereabouts,
    port: u16,
    is_ipv4: bool,
    /// None: not known yet.
    at: Option<SocketAddr>,
    /// Highest number heard, per kind of message.
    newest: [u64; 3],
    asked: Option<Receiver<Result<Vec<SocketAddr>, String>>>,
    next: Time,
}

impl Peer {
    pub(super) fn new(deployment: &Deployment) -> Self {
        let whereabouts = deployment.whereabouts.clone();
        let at = (whereabouts == Whereabouts::Fixed).then_some(deployment.peer);
        Self {
            port: deployment.peer.port(),
            is_ipv4: deployment.listen.is_ipv4(),
            at,
            newest: [0; 3],
            asked: None,
            next: Time::ZERO,
            whereabouts,
        }
    }

    pub(super) fn is_fixed(&self) -> bool {
        self.whereabouts == Whereabouts::Fixed
    }

    pub(super) const fn at(&self) -> Option<SocketAddr> {
        self.at
    }

    /// A valid message arrived from `from`. Only a message newer than all earlier ones of its kind moves the address; true
    /// when it did.
    pub(super) fn heard(&mut self, body: &Body, epoch: u32, seq: u16, from: SocketAddr) -> bool {
        if self.is_fixed() {
            return false;
        }
        let kind = match body {
            Body::Question => 0,
            Body::Answer(_) => 1,
            Body::Hello => 2,
            // A question or an answer is never far.
            Body::Watch | Body::Report(_) => return false,
        };
        let number = u64::from(epoch) << 16 | u64::from(seq);
        if number <= self.newest[kind] {
            return false;
        }
        self.newest[kind] = number;
        self.at.replace(from) != Some(from)
    }

    /// Asks the name server, when there is a name and it is time; the thread that waits for it is another one.
    pub(super) fn look_up(&mut self, now: Time) {
        let Whereabouts::Named(name) = &self.whereabouts else { return };
        if self.asked.is_some() || now < self.next {
            return;
        }
        self.next = now + PAUSE;
        let (sender, receiver) = channel();
        let (name, port) = (name.clone(), self.port);
        let ask = move || {
            let found = (name.as_str(), port).to_socket_addrs();
            // Its receiver may be gone by now.
            let _ = sender.send(found.map(Iterator::collect).map_err(|e| format!("{name}: {e}")));
        };
        if thread::Builder::new().name("name".to_owned()).spawn(ask).is_ok() {
            self.asked = Some(receiver);
        }
    }

    /// Takes the name server's answer, if one arrived; true when it moved the address.
    ///
    /// # Errors
    /// Why there is no address.
    pub(super) fn looked_up(&mut self) -> Result<bool, String> {
        let Some(asked) = &self.asked else { return Ok(false) };
        let found = match asked.try_recv() {
            Err(TryRecvError::Empty) => return Ok(false),
            Err(TryRecvError::Disconnected) => Err("the name server was not asked".to_owned()),
            Ok(found) => found,
        };
        self.asked = None;
        let found: Vec<SocketAddr> = found?.into_iter().filter(|at| at.is_ipv4() == self.is_ipv4).collect();
        match self.at {
            // One of its addresses.
            Some(at) if found.contains(&at) => Ok(false),
            _ => match found.first() {
                Some(first) => {
                    self.at = Some(*first);
                    Ok(true)
                }
                None => {
                    let version = if self.is_ipv4 { "IPv4" } else { "IPv6" };
                    Err(format!("{self}: has no {version} address"))
                }
            },
        }
    }
}

impl std::fmt::Display for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let at = self.at.map_or("not known yet".to_owned(), |at| at.to_string());
        match &self.whereabouts {
            Whereabouts::Fixed => f.write_str(&at),
            Whereabouts::Named(name) => write!(f, "{name} ({at})"),
            Whereabouts::Learnt => write!(f, "any ({at})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(whereabouts: Whereabouts) -> Peer {
        let mut deployment = super::super::machine::dry::loaded().deployment;
        deployment.whereabouts = whereabouts;
        Peer::new(&deployment)
    }

    /// A message that is late does not take the address back to where it was; a plain peer stays.
    #[test]
    fn only_newer_messages_move_the_address() {
        let [a, b]: [SocketAddr; 2] = [([192, 0, 2, 1], 1).into(), ([192, 0, 2, 2], 2).into()];
        let mut learnt = peer(Whereabouts::Learnt);
        assert_eq!(learnt.at(), None);
        assert!(learnt.heard(&Body::Question, 7, 5, a));
        assert!(!learnt.heard(&Body::Question, 7, 6, a), "where it was");
        assert!(!learnt.heard(&Body::Question, 7, 4, b), "older");
        assert!(!learnt.heard(&Body::Question, 7, 6, b), "as old");
        assert_eq!(learnt.at(), Some(a));
        assert!(learnt.heard(&Body::Question, 8, 0, b));
        assert!(learnt.heard(&Body::Hello, 1, 0, a), "of another kind");
        let mut fixed = peer(Whereabouts::Fixed);
        let at = fixed.at();
        assert!(!fixed.heard(&Body::Question, 9, 9, b) && fixed.at() == at);
    }

    #[test]
    fn a_name_is_looked_up_and_looked_up_again() {
        let mut named = peer(Whereabouts::Named("localhost".to_owned()));
        named.look_up(Time::ZERO);
        let moved = (0..100).any(|_| {
            thread::sleep(std::time::Duration::from_millis(50));
            named.looked_up().expect("localhost is known")
        });
        assert!(moved);
        assert_eq!(named.at().map(|at| at.to_string()), Some("127.0.0.1:4741".to_owned()));
        named.look_up(Time::ZERO + Span::from_secs(1));
        assert!(named.asked.is_none(), "too soon");
        named.look_up(Time::ZERO + PAUSE);
        assert!(named.asked.is_some());
    }
}
