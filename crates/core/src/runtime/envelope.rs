//! The one form of every message between roles. Daemons put it into UDP datagrams; the simulator and the lab count its
//! bytes. All fields are big-endian:
//!
//! | field | bytes |
//! |---|---|
//! | version | 1 |
//! | scheme: [`SchemeDef::code`](crate::scheme::SchemeDef::code) | 2 |
//! | sender and receiver, as the inventory numbers them | 4 each |
//! | epoch: seconds of the day's clock when the sender began | 4 |
//! | number in the epoch | 4 |
//! | body, in the postcard format | |
//! | HMAC-SHA-256 (RFC 2104) over all before, truncated to 96 bits | 12 |
//!
//! Epoch and number never come back, so that a recorded message is refused also after a restart of its sender. The
//! receiver's number keeps a message from being carried to another node of the same key.

use core::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::control::Message;
use crate::id::NodeId;
use crate::units::UDP_HEADERS;

/// Version of the form.
const VERSION: u8 = 1;
const HEAD: usize = 19;
/// Bytes of a tag.
pub const TAG_LEN: usize = 12;
/// Bytes of a message beside its body.
const AROUND: usize = HEAD + TAG_LEN;

/// Bytes of IP of a message.
pub fn size(message: &Message) -> u64 {
    u64::from(UDP_HEADERS) + (AROUND + message.body.len()) as u64
}

/// A secret that two nodes share.
#[derive(Clone)]
pub struct Key(Hmac<Sha256>);

/// A key of so many bytes is too short.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShortKey(pub usize);

impl fmt::Display for ShortKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a probe key of {} bytes: at least {} are needed", self.0, Key::SHORTEST)
    }
}

impl core::error::Error for ShortKey {}

impl Key {
    /// The key with these secret bytes: 32 random ones are best (RFC 2104, Sect. 3).
    ///
    /// # Errors
    /// Fewer than 16 bytes are refused.
    pub fn new(secret: &[u8]) -> Result<Self, ShortKey> {
        if secret.len() < Self::SHORTEST {
            return Err(ShortKey(secret.len()));
        }
        Hmac::new_from_slice(secret).map(Self).map_err(|_| ShortKey(secret.len()))
    }

    /// Fewest bytes of a key.
    pub const SHORTEST: usize = 16;

    pub(crate) fn tag(&self, bytes: &[u8]) -> [u8; TAG_LEN] {
        let full = self.0.clone().chain_update(bytes).finalize().into_bytes();
        let mut tag = [0; TAG_LEN];
        tag.copy_from_slice(&full[..TAG_LEN]);
        tag
    }

    /// Compares in constant time.
    pub(crate) fn verify(&self, bytes: &[u8], tag: &[u8]) -> bool {
        self.0.clone().chain_update(bytes).verify_truncated_left(tag).is_ok()
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

/// This end of what is said to and heard from one peer.
#[derive(Clone, Debug)]
pub struct Line {
    key: Key,
    own: NodeId,
    peer: NodeId,
    epoch: u32,
    next: u32,
    heard: ReplayWindow,
}

/// Why a datagram is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Forged {
    /// Too short.
    Length,
    /// A version that this end does not speak.
    Version(u8),
    /// The tag is not that of the key.
    Tag,
    /// Not from the peer, or not for this end.
    Ends(NodeId, NodeId),
    /// Heard before, or too old to tell.
    Replay,
}

impl Line {
    /// A line that begins at `epoch`: the seconds of the day's clock, so that it is above those of a life before.
    pub const fn new(key: Key, own: NodeId, peer: NodeId, epoch: u32) -> Self {
        Self { key, own, peer, epoch, next: 0, heard: ReplayWindow::new() }
    }

    /// The datagram of a message to the peer.
    pub fn seal(&mut self, message: &Message) -> Vec<u8> {
        let mut out = Vec::with_capacity(AROUND + message.body.len());
        out.push(VERSION);
        out.extend(message.scheme.to_be_bytes());
        for word in [self.own.0, self.peer.0, self.epoch, self.next] {
            out.extend(word.to_be_bytes());
        }
        self.next = self.next.wrapping_add(1);
        if self.next == 0 {
            self.epoch = self.epoch.wrapping_add(1);
        }
        out.extend(&message.body);
        let tag = self.key.tag(&out);
        out.extend(tag);
        out
    }

    /// The message in a datagram of the peer.
    ///
    /// # Errors
    /// What is false or was heard before; then nothing has changed.
    pub fn open(&mut self, bytes: &[u8]) -> Result<Message, Forged> {
        let version = *bytes.first().ok_or(Forged::Length)?;
        if version != VERSION {
            return Err(Forged::Version(version));
        }
        let signed = bytes.len().checked_sub(TAG_LEN).filter(|len| *len >= HEAD).ok_or(Forged::Length)?;
        let (signed, tag) = bytes.split_at(signed);
        if !self.key.verify(signed, tag) {
            return Err(Forged::Tag);
        }
        let word =
            |at: usize| u32::from_be_bytes([signed[at], signed[at + 1], signed[at + 2], signed[at + 3]]);
        let (from, to) = (NodeId(word(3)), NodeId(word(7)));
        if (from, to) != (self.peer, self.own) {
            return Err(Forged::Ends(from, to));
        }
        if !self.heard.admit(u64::from(word(11)) << 32 | u64::from(word(15))) {
            return Err(Forged::Replay);
        }
        let scheme = u16::from_be_bytes([signed[1], signed[2]]);
        Ok(Message { from, scheme, body: signed[HEAD..].to_vec() })
    }
}

/// Which of the last 64 numbers were heard (the window of RFC 4303, Sect. 3.4.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReplayWindow {
    highest: u64,
    /// Bit k: `highest - k` was heard. Zero before anything was.
    seen: u64,
}

impl ReplayWindow {
    /// A window that has heard nothing.
    pub const fn new() -> Self {
        Self { highest: 0, seen: 0 }
    }

    /// Notes `number`; false when it was heard before or lies below the window.
    pub fn admit(&mut self, number: u64) -> bool {
        if self.seen == 0 {
            *self = Self { highest: number, seen: 1 };
            return true;
        }
        if number > self.highest {
            let ahead = number - self.highest;
            self.seen = if ahead < 64 { self.seen << ahead | 1 } else { 1 };
            self.highest = number;
            return true;
        }
        let behind = self.highest - number;
        if behind >= 64 || self.seen >> behind & 1 == 1 {
            return false;
        }
        self.seen |= 1 << behind;
        true
    }
}
