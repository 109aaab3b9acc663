//! The one form of every message between roles. Daemons put it into UDP datagrams; the simulator and the lab count its
//! bytes. All fields are big-endian:
//!
//! | field | bytes |
//! |---|---|
//! | version | 1 |
//! | scheme: [`SchemeDef::code`](crate::scheme::SchemeDef::code) | 2 |
//! | sender, as the inventory numbers it | 4 |
//! | epoch: seconds of the day's clock when the sender began | 4 |
//! | number in the epoch | 4 |
//! | body, in the postcard format | |
//! | HMAC-SHA-256 (RFC 2104) over all before and the receiver's number, truncated to 96 bits | 12 |
//!
//! Epoch and number never repeat, so a recorded message is refused even after a restart of its sender. A message that a newer
//! one has overtaken is refused too: each message is complete, so the older one is out of date. The receiver's number is in the
//! tag only; it prevents replay to another node with the same key.

use core::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::control::Message;
use crate::id::NodeId;
use crate::units::UDP_HEADERS;

/// Version of the form.
const VERSION: u8 = 1;
const HEAD: usize = 15;
/// Bytes of a tag.
pub const TAG_LEN: usize = 12;
/// Bytes of a message around its body.
const AROUND: usize = HEAD + TAG_LEN;

/// Bytes of IP of a message.
pub fn size(message: &Message) -> u64 {
    u64::from(UDP_HEADERS) + (AROUND + message.body.len()) as u64
}

/// Who a datagram says it is from; whether it is, its tag proves. None: it is no message.
pub fn sender(bytes: &[u8]) -> Option<NodeId> {
    let word = bytes.get(3..7).filter(|_| bytes.len() >= AROUND)?;
    Some(NodeId(u32::from_be_bytes(word.try_into().ok()?)))
}

/// A secret that two nodes share.
#[derive(Clone)]
pub struct Key(Hmac<Sha256>);

/// A key of so many bytes is too short.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShortKey(pub usize);

impl fmt::Display for ShortKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a secret of {} bytes: at least {} are needed", self.0, Key::SHORTEST)
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

    /// True when both are the same secret.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.verify(&[], &[], &other.tag(&[], &[]))
    }

    /// Over `bytes` and what both ends know besides.
    pub(crate) fn tag(&self, bytes: &[u8], known: &[u8]) -> [u8; TAG_LEN] {
        let full = self.0.clone().chain_update(bytes).chain_update(known).finalize().into_bytes();
        let mut tag = [0; TAG_LEN];
        tag.copy_from_slice(&full[..TAG_LEN]);
        tag
    }

    /// Compares in constant time.
    pub(crate) fn verify(&self, bytes: &[u8], known: &[u8], tag: &[u8]) -> bool {
        self.0.clone().chain_update(bytes).chain_update(known).verify_truncated_left(tag).is_ok()
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

/// This end of the exchange with one peer.
#[derive(Clone, Debug)]
pub struct Line {
    key: Key,
    own: NodeId,
    peer: NodeId,
    epoch: u32,
    next: u32,
    /// The highest number heard.
    heard: Option<u64>,
}

/// Why a datagram is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Forged {
    /// Too short.
    Length,
    /// A version that this end does not speak.
    Version(u8),
    /// The tag is not that of the key, or that of another receiver.
    Tag,
    /// Not from the peer.
    Sender(NodeId),
    /// Heard before, or overtaken by a newer one.
    Replay,
}

impl Line {
    /// A line that begins at `epoch`: the seconds of the day's clock, so that it is above those of a life before.
    pub const fn new(key: Key, own: NodeId, peer: NodeId, epoch: u32) -> Self {
        Self { key, own, peer, epoch, next: 0, heard: None }
    }

    /// The highest number heard of the peer; 0 before any was.
    pub fn heard(&self) -> u64 {
        self.heard.unwrap_or(0)
    }

    /// Refuses what has a number up to `highest`: it was heard in a life before.
    #[must_use]
    pub fn after(self, highest: u64) -> Self {
        Self { heard: (highest > 0).then_some(highest), ..self }
    }

    /// The same line with another key: numbers go on.
    #[must_use]
    pub fn with_key(self, key: Key) -> Self {
        Self { key, ..self }
    }

    /// The datagram of a message to the peer.
    pub fn seal(&mut self, message: &Message) -> Vec<u8> {
        let mut out = Vec::with_capacity(AROUND + message.body.len());
        out.push(VERSION);
        out.extend(message.scheme.to_be_bytes());
        for word in [self.own.0, self.epoch, self.next] {
            out.extend(word.to_be_bytes());
        }
        self.next = self.next.wrapping_add(1);
        if self.next == 0 {
            self.epoch = self.epoch.wrapping_add(1);
        }
        out.extend(&message.body);
        let tag = self.key.tag(&out, &self.peer.0.to_be_bytes());
        out.extend(tag);
        out
    }

    /// The message in a datagram of the peer.
    ///
    /// # Errors
    /// What is false, was heard before or was overtaken; then nothing has changed.
    pub fn open(&mut self, bytes: &[u8]) -> Result<Message, Forged> {
        let version = *bytes.first().ok_or(Forged::Length)?;
        if version != VERSION {
            return Err(Forged::Version(version));
        }
        let signed = bytes.len().checked_sub(TAG_LEN).filter(|len| *len >= HEAD).ok_or(Forged::Length)?;
        let (signed, tag) = bytes.split_at(signed);
        if !self.key.verify(signed, &self.own.0.to_be_bytes(), tag) {
            return Err(Forged::Tag);
        }
        let word =
            |at: usize| u32::from_be_bytes([signed[at], signed[at + 1], signed[at + 2], signed[at + 3]]);
        let from = NodeId(word(3));
        if from != self.peer {
            return Err(Forged::Sender(from));
        }
        let number = u64::from(word(7)) << 32 | u64::from(word(11));
        if self.heard.is_some_and(|heard| number <= heard) {
            return Err(Forged::Replay);
        }
        self.heard = Some(number);
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

    /// The highest number that was heard; 0 before any was.
    pub const fn highest(&self) -> u64 {
        self.highest
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::rng::Stream;

    const A: NodeId = NodeId(0x0405_0607);
    const B: NodeId = NodeId(0x0809_0a0b);
    const C: NodeId = NodeId(9);
    const EPOCH: u32 = 0x0c0d_0e0f;

    fn key() -> Key {
        let secret: Vec<u8> = (0..32).collect();
        Key::new(&secret).unwrap()
    }

    fn line(own: NodeId, peer: NodeId) -> Line {
        Line::new(key(), own, peer, EPOCH)
    }

    fn say(body: &[u8]) -> Message {
        Message { from: A, scheme: 0x0203, body: body.to_vec() }
    }

    /// RFC 4231, test case 2: key "Jefe" (below our shortest key, so through the inner type).
    #[test]
    fn the_tag_is_that_of_rfc_4231() {
        let key = Key(Hmac::new_from_slice(b"Jefe").unwrap());
        let tag = key.tag(b"what do ya want ", b"for nothing?");
        assert_eq!(tag, [0x5b, 0xdc, 0xc1, 0x46, 0xbf, 0x60, 0x75, 0x4e, 0x6a, 0x04, 0x24, 0x26]);
    }

    #[test]
    fn short_keys_are_refused_and_no_key_is_shown() {
        assert_eq!(Key::new(&[1; 15]).unwrap_err(), ShortKey(15));
        assert_eq!(format!("{:?}", Key::new(&[1; 16]).unwrap()), "Key(..)");
    }

    /// The tag is HMAC-SHA-256 under the key 00 01 .. 1f, by an independent implementation.
    #[test]
    fn the_form_byte_by_byte() {
        let expected = [
            1, // version
            2, 3, // scheme
            4, 5, 6, 7, // sender
            12, 13, 14, 15, 0, 0, 0, 0, // epoch, number
            16, 17, 18, // body
            0x6c, 0x35, 0x98, 0x28, 0x96, 0x57, 0x9e, 0x15, 0xbf, 0x57, 0xb9, 0xef, // tag
        ];
        let message = say(&[16, 17, 18]);
        assert_eq!(line(A, B).seal(&message), expected);
        assert_eq!(size(&message), 28 + expected.len() as u64);
        assert_eq!(line(B, A).open(&expected), Ok(message));
        assert_eq!((sender(&expected), sender(&expected[..26])), (Some(A), None));
    }

    #[test]
    fn numbers_go_on_in_the_next_epoch_at_the_wrap() {
        let mut sender = Line { next: u32::MAX, ..line(A, B) };
        let numbers = [(); 3].map(|()| sender.seal(&say(&[]))[7..15].to_vec());
        let epoch = [12, 13, 14];
        for ((number, last), low) in numbers.iter().zip([15, 16, 16]).zip([u32::MAX, 0, 1]) {
            assert_eq!(*number, [&epoch[..], &[last], &low.to_be_bytes()].concat());
        }
    }

    /// A restarted peer is heard; its messages from before the restart are refused.
    #[test]
    fn a_recorded_message_is_refused_also_after_a_restart_of_its_sender() {
        let mut receiver = line(B, A);
        let recorded = line(A, B).seal(&say(b"old"));
        assert_eq!(receiver.open(&recorded), Ok(say(b"old")));
        assert_eq!(receiver.open(&recorded), Err(Forged::Replay));
        let mut restarted = Line::new(key(), A, B, EPOCH + 1);
        assert_eq!(receiver.open(&restarted.seal(&say(b"new"))), Ok(say(b"new")));
        assert_eq!(receiver.open(&recorded), Err(Forged::Replay));
    }

    /// A restarted receiver refuses messages that it heard before its restart.
    #[test]
    fn a_recorded_message_is_refused_also_after_a_restart_of_its_receiver() {
        let (mut sender, mut receiver) = (line(A, B), line(B, A));
        let recorded = [sender.seal(&say(b"one")), sender.seal(&say(b"two"))];
        assert_eq!(receiver.open(&recorded[1]), Ok(say(b"two")));
        let mut restarted = line(B, A).after(receiver.heard());
        for old in &recorded {
            assert_eq!(restarted.open(old), Err(Forged::Replay));
        }
        assert_eq!(restarted.open(&sender.seal(&say(b"three"))), Ok(say(b"three")));
        assert!(line(B, A).after(0).open(&recorded[0]).is_ok(), "nothing was heard");
    }

    #[test]
    fn a_message_that_a_newer_one_has_overtaken_is_refused() {
        let (mut sender, mut receiver) = (line(A, B), line(B, A));
        let [late, newer, newest] = [b"one", b"two", b"new"].map(|said| sender.seal(&say(said)));
        assert_eq!(receiver.open(&newer), Ok(say(b"two")));
        assert_eq!(receiver.open(&late), Err(Forged::Replay));
        assert_eq!(receiver.open(&newest), Ok(say(b"new")));
    }

    #[test]
    fn a_message_is_heard_once_in_any_order_within_the_window() {
        let mut window = ReplayWindow::new();
        assert!(window.admit(100));
        assert!(!window.admit(100));
        assert!(window.admit(163) && window.admit(101) && !window.admit(101));
        assert!(!window.admit(99), "64 below the highest");
        assert!(window.admit(10_000) && !window.admit(163), "everything before has left the window");
        assert!(window.admit(9_999));
    }

    proptest! {
        /// Against the set of numbers heard, kept in full.
        #[test]
        fn the_window_agrees_with_a_list(numbers in proptest::collection::vec(0u64..300, 1..200)) {
            let mut window = ReplayWindow::new();
            let mut heard: Vec<u64> = Vec::new();
            for number in numbers {
                let highest = heard.iter().copied().max();
                let fresh = !heard.contains(&number) && highest.is_none_or(|h| number + 64 > h);
                prop_assert_eq!(window.admit(number), fresh);
                heard.push(number);
            }
        }
    }

    /// A round's datagrams of the same message.
    struct Sealed {
        real: Vec<u8>,
        /// To another node, of the same key.
        astray: Vec<u8>,
        /// From the receiver itself.
        reflected: Vec<u8>,
        /// From a third node, of the same key.
        stranger: Vec<u8>,
        other_key: Vec<u8>,
        /// With a good tag.
        other_version: Vec<u8>,
    }

    const KINDS: u64 = 9;

    /// A forgery of the given kind, and why it is refused.
    fn forge(kind: u64, sealed: &Sealed, heard: &[u8], chance: &mut Stream) -> (Vec<u8>, Option<Forged>) {
        let mut bytes = sealed.real.clone();
        let length = bytes.len() as u64;
        let tail: Vec<u8> = (0..=chance.below(100)).map(|_| chance.below(256) as u8).collect();
        match kind {
            0 => {
                let bit = chance.below(8 * length) as usize;
                bytes[bit / 8] ^= 1 << (bit % 8);
                (bytes, None)
            }
            1 => (bytes[..chance.below(length) as usize].to_vec(), None),
            2 => ([bytes, tail].concat(), Some(Forged::Tag)),
            3 => (heard.to_vec(), Some(Forged::Replay)),
            4 => (sealed.other_version.clone(), Some(Forged::Version(sealed.other_version[0]))),
            5 => (sealed.astray.clone(), Some(Forged::Tag)),
            6 => (sealed.reflected.clone(), Some(Forged::Tag)),
            7 => (sealed.stranger.clone(), Some(Forged::Sender(C))),
            _ => (sealed.other_key.clone(), Some(Forged::Tag)),
        }
    }

    /// A million datagrams made of a thousand real ones, each of which is delivered once among them.
    #[test]
    fn of_a_million_false_datagrams_none_is_opened_and_none_uses_up_a_number() {
        let (mut sender, mut receiver) = (line(A, B), line(B, A));
        let (mut astray, mut reflected, mut stranger) = (line(A, C), line(B, A), line(C, B));
        let mut other_key = Line::new(Key::new(&[7; 32]).unwrap(), A, B, EPOCH);
        let mut chance = Stream::new(1, 0, "forgeries");
        let mut heard = vec![sender.seal(&say(b"first"))];
        assert_eq!(receiver.open(&heard[0]), Ok(say(b"first")));
        for _ in 0..1000 {
            let body: Vec<u8> = (0..chance.below(200)).map(|_| chance.below(256) as u8).collect();
            let message = say(&body);
            let real = sender.seal(&message);
            let mut other_version = real[..real.len() - TAG_LEN].to_vec();
            other_version[0] = 2 + chance.below(254) as u8;
            other_version.extend(key().tag(&other_version, &B.0.to_be_bytes()));
            let sealed = Sealed {
                astray: astray.seal(&message),
                reflected: reflected.seal(&message),
                stranger: stranger.seal(&message),
                other_key: other_key.seal(&message),
                other_version,
                real,
            };
            let delivery = chance.below(1000);
            for number in 0..1000 {
                if number == delivery {
                    assert_eq!(receiver.open(&sealed.real), Ok(message.clone()));
                    heard.push(sealed.real.clone());
                }
                let kind = number % KINDS;
                let old = &heard[chance.below(heard.len() as u64) as usize];
                let (bytes, why) = forge(kind, &sealed, old, &mut chance);
                let opened = receiver.open(&bytes);
                assert!(opened.is_err(), "kind {kind} was opened: {bytes:?}");
                assert!(why.is_none_or(|why| opened == Err(why)), "kind {kind}: {opened:?}, not {why:?}");
            }
        }
    }
}
