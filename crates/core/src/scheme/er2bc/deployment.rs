//! Deployment files: the configuration of a real gateway. Reader, quantities and errors are those of scenario files.

mod keys;
mod peer;
mod read;
mod rule;
mod sender;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;

use super::shares;
pub use crate::control::Protocol;
pub use crate::daemon::Log;
use crate::id::{NodeId, PortId};
use crate::params::{Params, Value, choice};
pub use crate::prefix::Prefix;
use crate::runtime::inventory::Inventory;
use crate::scheme::{self, Place, er2bc};
use crate::time::Span;
use crate::units::Rate;

pub use keys::reference;
pub use read::parse;
pub use rule::Match;

/// A gateway as its file describes it: valid and complete.
#[derive(Clone, Debug)]
pub struct Deployment {
    /// Its name among the gateways of the machine.
    pub name: String,
    /// What it does.
    pub role: Role,
    /// Network device towards the peer.
    pub interface: String,
    /// Folder of the journal and of the status.
    pub state_directory: String,
    /// Where metrics are served; none: nowhere.
    pub metrics: Option<SocketAddr>,
    /// When the machine gets back what it had.
    pub restore: Restore,
    /// Replace a queue discipline that somebody else has put on the interface.
    pub replace_qdisc: bool,
    /// Form of the log.
    pub log: Log,
    /// The other gateway; nowhere (an address of zeros) when it is not fixed.
    pub peer: SocketAddr,
    /// How its address is known.
    pub whereabouts: Whereabouts,
    /// How long a receiver that hears no question waits before it says where it is; none: it does not.
    pub keep_alive: Option<Span>,
    /// Where the own socket is bound.
    pub listen: SocketAddr,
    /// How messages prove where they come from.
    pub auth: Auth,
    /// Of a sender.
    pub sender: Option<Sender>,
    /// Where the file has keys that a machine may not be fit for.
    pub places: Vec<(&'static str, String)>,
    /// Of a receiver: the data that is counted. A packet that one of them fits is data.
    pub data: Vec<Match>,
}

choice! {
    /// What a gateway does.
    pub enum Role {
        /// Asks, and shapes what it sends.
        Sender = "sender",
        /// Counts what it receives, and answers.
        Receiver = "receiver",
        /// Both, for both directions.
        Both = "both",
    }

    /// When the machine gets back what it had.
    pub enum Restore {
        /// Whenever the gateway ends.
        OnExit = "on-exit",
        /// When it ends by a failure; an ordered stop leaves the shaping in force.
        OnFailure = "on-failure",
        /// By `gateway restore` only.
        Never = "never",
    }
}

/// How the address of the other gateway is known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Whereabouts {
    /// It is what the file says.
    Fixed,
    /// The name server tells; valid messages may move it.
    Named(String),
    /// Valid messages tell.
    Learnt,
}

/// How messages prove where they come from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Auth {
    /// Not at all: the paper's form.
    None,
    /// By secrets in files. A gateway that does both has one for each direction, so that nobody can send its own
    /// questions back to it.
    Hmac {
        /// Of the direction in which this gateway sends data, or of the only direction.
        key_file: String,
        /// Of the direction in which a gateway that does both receives data.
        answer_key_file: Option<String>,
    },
}
/// What a sending gateway does.
#[derive(Clone, Debug)]
pub struct Sender {
    /// Parameters of the scheme, whose flows are `classes`.
    pub params: Params,
    /// The classes, the most important first.
    pub classes: Vec<Class>,
    /// Bandwidth in force while the peer is silent.
    pub safe_rate: Rate,
    /// How long the peer may be silent before `safe_rate`.
    pub hold: Span,
    /// The fault `unclassified` begins when more than this share of the bytes leaves by no class.
    pub unclassified: f64,
}

/// This gateway, and the other, as its roles number them.
pub const OWN: NodeId = NodeId(0);
/// The other gateway.
pub const OTHER: NodeId = NodeId(1);
/// All that a gateway knows of the network: itself and the other.
pub fn inventory() -> Inventory {
    let mut both = Inventory::default();
    both.join("own");
    both.join("other");
    both
}

/// The address of a peer that tells it itself.
const ANY: &str = "any";
/// The shaper's port.
const PATH: PortId = PortId(0);

impl Sender {
    /// Takes as many flows in each class as were counted there, where they are; whether that changes what a class needs. A
    /// class needs no more than the ceiling.
    pub fn count(&mut self, counted: &[u32]) -> bool {
        let ceiling = self.params.rate("ceiling");
        let mut has_changed = false;
        for (class, counted) in self.classes.iter_mut().zip(counted) {
            let Some(least) = class.counted else { continue };
            let flows = (*counted).max(least);
            let all = class.each.bits_per_sec().saturating_mul(u64::from(flows));
            let need = Rate::from_bits_per_sec(all).min(ceiling);
            has_changed |= need != class.flow.need;
            (class.flows, class.flow.need) = (flows, need);
        }
        if has_changed {
            self.params.set("needs", needs(&self.classes));
        }
        has_changed
    }

    /// The role, which goes on from what an earlier one saved. The shaper counts `overhead` bytes more than those of IP.
    pub fn role(&self, overhead: u32, saved: Option<&[u8]>) -> scheme::Role {
        let place = Place {
            peers: vec![(OTHER, &er2bc::RECEIVER)],
            ports: vec![PATH],
            ..Place::new(&er2bc::SENDER, OWN, self.params.clone())
        };
        let mut both = inventory();
        let path = both.add_port("own->other", OWN, OTHER, self.params.rate("ceiling"));
        debug_assert_eq!(path, PATH);
        both.set_overhead(path, overhead);
        scheme::Role::new(&er2bc::DEF, place, &both, saved)
    }
}

impl Deployment {
    /// The peer as the file names it.
    pub fn peer_name(&self) -> String {
        match &self.whereabouts {
            Whereabouts::Fixed => self.peer.to_string(),
            Whereabouts::Named(name) => format!("{name}:{}", self.peer.port()),
            Whereabouts::Learnt => ANY.to_owned(),
        }
    }

    /// What is wrong with `key` on this machine, with its place; none when the file does not have it.
    pub fn complaint(&self, key: &str, what: &str) -> Option<String> {
        let (_, place) = self.places.iter().find(|(own, _)| *own == key)?;
        Some(format!("{place}: error: {key}: {what}"))
    }

    /// Its roles, which go on from what those before them saved. The shaper counts `overhead` bytes more than those of IP.
    pub fn roles(&self, overhead: u32, saved: &[Option<Vec<u8>>]) -> Vec<scheme::Role> {
        let answering = || {
            let place = Place {
                peers: vec![(OTHER, &er2bc::SENDER)],
                ..Place::new(&er2bc::RECEIVER, OWN, Params::default())
            };
            scheme::Role::new(&er2bc::DEF, place, &inventory(), None)
        };
        let saved = saved.first().and_then(Option::as_deref);
        let asking = self.sender.iter().map(|sender| sender.role(overhead, saved));
        asking.chain((self.role != Role::Sender).then(answering)).collect()
    }
}

/// A class of traffic.
#[derive(Clone, PartialEq, Debug)]
pub struct Class {
    /// Its name.
    pub name: String,
    /// Its priority: 1 before 2.
    pub priority: u32,
    /// What it needs.
    pub flow: shares::Flow,
    /// Flows in it: `flow.need` is what all of them need.
    pub flows: u32,
    /// What each needs.
    pub each: Rate,
    /// They are counted, and are at least so many.
    pub counted: Option<u32>,
    /// Packets that wait at most.
    pub queue: u32,
    /// A packet that one of them fits belongs to the class; none: every packet that no class before took.
    pub matches: Vec<Match>,
}

/// The parameter `needs` of the scheme: one need for each class.
fn needs(classes: &[Class]) -> Value {
    Value::List(classes.iter().map(|class| class.flow.need.to_string()).collect())
}
