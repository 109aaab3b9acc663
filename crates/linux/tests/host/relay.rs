//! A machine between agent and controller that loses, delays, reorders and repeats what they tell each other.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use bandmaster_core::control::Message;
use bandmaster_core::id::NodeId;
use bandmaster_core::rng::Stream;
use bandmaster_core::runtime::envelope::{Key, Line};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::agent::{NUMBER, SECRET};
use super::controller::PORT;
use super::hosts::{A, B, Hosts};

/// Its address for the agent at `a`.
pub(super) const RELAY: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 254);
/// The longest delay.
pub(super) const LATEST: Duration = Duration::from_secs(1);
const LOSS: f64 = 0.2;
/// Of those that arrive: so many are late, by anything up to [`LATEST`], and so many come twice.
const LATE: f64 = 0.3;
const TWICE: f64 = 0.1;

/// Who a datagram is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum To {
    Agent,
    Controller,
}

/// A datagram that has arrived at the relay, or has left it.
#[derive(Clone)]
pub(super) struct Passed {
    pub(super) at: Instant,
    pub(super) to: To,
    /// It has left: the receiver has it now.
    pub(super) has_left: bool,
    pub(super) datagram: Vec<u8>,
}

impl Passed {
    /// Epoch and number.
    pub(super) fn number(&self) -> u64 {
        u64::from_be_bytes(self.datagram[7..15].try_into().expect("eight bytes"))
    }

    /// What it says; the tag is checked.
    pub(super) fn message(&self) -> Message {
        let (own, peer) = match self.to {
            To::Agent => (NodeId(NUMBER), NodeId(0)),
            To::Controller => (NodeId(0), NodeId(NUMBER)),
        };
        let key = Key::new(SECRET).expect("long enough");
        Line::new(key, own, peer, 0).open(&self.datagram).expect("a message of the other end")
    }
}

/// Runs until it is dropped.
pub(super) struct Relay {
    passed: Arc<Mutex<Vec<Passed>>>,
    disturbs: Arc<AtomicBool>,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Relay {
    /// At the router of `hosts`, with faults drawn from `seed`; none: it is faithful.
    pub(super) fn start(hosts: &Hosts, seed: Option<u64>) -> Self {
        let bind = |address: SocketAddr| {
            hosts.r.enter(|| Ok(UdpSocket::bind(address).expect("a port"))).expect("entered")
        };
        // Of the agent's side, and of the controller's.
        let sockets = [bind((RELAY, PORT).into()), bind(([0; 4], 0).into())];
        sockets.iter().for_each(|socket| socket.set_nonblocking(true).expect("set"));
        let (passed, ends) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let disturbs = Arc::new(AtomicBool::new(seed.is_some()));
        let thread = {
            let (passed, disturbs, ends) = (Arc::clone(&passed), Arc::clone(&disturbs), Arc::clone(&ends));
            let chance = Stream::new(seed.unwrap_or(0), 0, "relay");
            thread::spawn(move || relay(&sockets, chance, &passed, &disturbs, &ends))
        };
        Self { passed, disturbs, ends, thread: Some(thread) }
    }

    /// From now on it has faults, or has none.
    pub(super) fn disturb(&self, disturbs: bool) {
        self.disturbs.store(disturbs, Ordering::Relaxed);
    }

    /// All that has passed until now.
    pub(super) fn passed(&self) -> Vec<Passed> {
        self.passed.lock().expect("whole").clone()
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn relay(
    sockets: &[UdpSocket; 2],
    mut chance: Stream,
    passed: &Mutex<Vec<Passed>>,
    disturbs: &AtomicBool,
    ends: &AtomicBool,
) {
    let mut on_the_way: Vec<(Instant, To, Vec<u8>)> = Vec::new();
    let mut buffer = [0; 65_536];
    let note = |at, to, has_left, datagram: &[u8]| {
        let datagram = datagram.to_vec();
        passed.lock().expect("whole").push(Passed { at, to, has_left, datagram });
    };
    while !ends.load(Ordering::Relaxed) {
        let mut wanted = sockets.each_ref().map(|socket| PollFd::new(socket.as_fd(), PollFlags::POLLIN));
        let _ = poll(&mut wanted, PollTimeout::from(2u8));
        for (socket, to) in sockets.iter().zip([To::Controller, To::Agent]) {
            while let Ok((length, _)) = socket.recv_from(&mut buffer) {
                let (now, datagram) = (Instant::now(), &buffer[..length]);
                note(now, to, false, datagram);
                let disturbs = disturbs.load(Ordering::Relaxed);
                let copies = match disturbs {
                    true if chance.chance(LOSS) => 0,
                    true if chance.chance(TWICE) => 2,
                    _ => 1,
                };
                for _ in 0..copies {
                    let is_late = disturbs && chance.chance(LATE);
                    let delay = if is_late { LATEST.mul_f64(chance.unit()) } else { Duration::ZERO };
                    on_the_way.push((now + delay, to, datagram.to_vec()));
                }
            }
        }
        let now = Instant::now();
        on_the_way.sort_by_key(|(due, ..)| *due);
        let due = on_the_way.partition_point(|(due, ..)| *due <= now);
        for (_, to, datagram) in on_the_way.drain(..due) {
            note(Instant::now(), to, true, &datagram);
            // A controller that is down has no socket.
            let _ = match to {
                To::Agent => sockets[0].send_to(&datagram, (A, PORT)),
                To::Controller => sockets[1].send_to(&datagram, (B, PORT)),
            };
        }
    }
}
