//! The question and the answer that two gateways exchange each round (Sect. 3.2.2).
//!
//! Both are IPv4/UDP, all fields big-endian. Sizes count the 28 bytes of IPv4 and UDP headers:
//!
//! | field | question | answer |
//! |---|---|---|
//! | type, 2 bytes | 1 | 2 |
//! | sequence number, 2 bytes | of the round | copied from the question |
//! | packets received so far, 8 bytes | | of the aggregate |
//! | bytes received so far, 8 bytes | | of the aggregate |
//! | time of the answerer, 8 bytes | | ns of its own clock |
//! | `auth = "none"`, the paper's form | 32 bytes | 56 bytes |
//! | epoch 4 bytes, tag 12 bytes | 48 bytes | 72 bytes |
//!
//! The authenticated form ends with 16 more bytes: an epoch, and HMAC-SHA-256 (RFC 2104) truncated to 96 bits over all
//! bytes before it. Epoch and sequence number make a 48-bit number that never comes back: the epoch goes up whenever
//! the sequence number wraps, and begins at the seconds of the day's clock when a gateway starts, which rises faster
//! than one per 65,536 rounds. So a recorded message is refused also after a wrap and after a restart of the asker.

use core::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::time::Time;
use crate::units::Bytes;

/// Bytes of IPv4 and UDP headers.
pub const HEADERS: Bytes = Bytes::new(crate::units::UDP_HEADERS as u64);

const QUESTION: u16 = 1;
const ANSWER: u16 = 2;
const QUESTION_LEN: usize = 4;
const ANSWER_LEN: usize = 28;
const EPOCH_LEN: usize = 4;
const TAG_LEN: usize = 12;
const TRAILER_LEN: usize = EPOCH_LEN + TAG_LEN;
const LONGEST: usize = ANSWER_LEN + TRAILER_LEN;

/// A message between gateways.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Message {
    /// High part of the number of the round. Zero in the plain form, which does not carry it.
    pub epoch: u32,
    /// Low part of the number of the round.
    pub seq: Seq,
    /// What it says.
    pub body: Body,
}

/// What a message says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Body {
    /// How much have you received?
    Question,
    /// So much, by this time.
    Answer(Counters),
}

/// What a gateway has counted up to a point in the order of packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Packets of the aggregate since the gateway began to count; wraps.
    pub packets: u64,
    /// Their bytes; wraps.
    pub bytes: u64,
    /// The gateway's own clock at that point. Only differences of one clock mean anything.
    pub time: Time,
}

/// The number of a round: 16 bits, compared by the serial number arithmetic of RFC 1982.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Seq(u16);

impl Seq {
    /// The sequence number `n`.
    pub const fn new(n: u16) -> Self {
        Self(n)
    }

    /// The number.
    pub const fn get(self) -> u16 {
        self.0
    }

    /// The number after it; 0 follows 65,535.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }

    /// True when `self` comes before `other`. Neither of two numbers 32,768 apart comes before the other.
    pub const fn precedes(self, other: Self) -> bool {
        let ahead = other.0.wrapping_sub(self.0);
        ahead != 0 && ahead < 0x8000
    }
}

/// Numbers rounds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Numbering {
    epoch: u32,
    seq: Seq,
}

impl Numbering {
    /// Numbers that begin at `epoch`: the seconds of the day's clock at the start of a gateway, so that they are above
    /// those of its life before; anything, say 0, for the plain form.
    pub const fn new(epoch: u32) -> Self {
        Self { epoch, seq: Seq(0) }
    }

    /// The next question.
    pub fn question(&mut self) -> Message {
        let message = Message { epoch: self.epoch, seq: self.seq, body: Body::Question };
        self.seq = self.seq.next();
        if self.seq == Seq(0) {
            self.epoch = self.epoch.wrapping_add(1);
        }
        message
    }
}

/// How messages prove where they come from.
#[derive(Clone, Debug)]
pub enum Auth {
    /// Not at all: the paper's form.
    None,
    /// By a key that both gateways know.
    Key(Key),
}

/// A secret of two gateways.
#[derive(Clone)]
pub struct Key(Hmac<Sha256>);

impl Key {
    /// The key with these secret bytes: 32 random ones are best (RFC 2104, Sect. 3).
    ///
    /// # Errors
    /// Fewer than 16 bytes are refused.
    pub fn new(secret: &[u8]) -> Result<Self, ProbeError> {
        if secret.len() < Self::SHORTEST {
            return Err(ProbeError::ShortKey(secret.len()));
        }
        Hmac::new_from_slice(secret).map(Self).map_err(|_| ProbeError::ShortKey(secret.len()))
    }

    /// Fewest bytes of a key.
    pub const SHORTEST: usize = 16;

    fn tag(&self, bytes: &[u8]) -> [u8; TAG_LEN] {
        let full = self.0.clone().chain_update(bytes).finalize().into_bytes();
        let mut tag = [0; TAG_LEN];
        tag.copy_from_slice(&full[..TAG_LEN]);
        tag
    }

    /// Compares in constant time.
    fn verify(&self, bytes: &[u8], tag: &[u8]) -> bool {
        self.0.clone().chain_update(bytes).verify_truncated_left(tag).is_ok()
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

/// One gateway's end: writes messages, reads those of the other and refuses what is false or was heard before.
#[derive(Clone, Debug)]
pub struct Endpoint {
    auth: Auth,
    questions: ReplayWindow,
    answers: ReplayWindow,
}

impl Endpoint {
    /// An end that has heard nothing yet.
    pub const fn new(auth: Auth) -> Self {
        Self { auth, questions: ReplayWindow::new(), answers: ReplayWindow::new() }
    }

    /// Bytes that a question takes on the path, headers included.
    pub fn question_size(&self) -> Bytes {
        self.size(QUESTION_LEN)
    }

    /// Bytes that an answer takes on the path, headers included.
    pub fn answer_size(&self) -> Bytes {
        self.size(ANSWER_LEN)
    }

    fn size(&self, body: usize) -> Bytes {
        Bytes::new(HEADERS.get() + (body + self.trailer()) as u64)
    }

    const fn trailer(&self) -> usize {
        match self.auth {
            Auth::None => 0,
            Auth::Key(_) => TRAILER_LEN,
        }
    }

    /// The UDP payload of `message`.
    pub fn encode(&self, message: &Message) -> Datagram {
        let mut out = Datagram { bytes: [0; LONGEST], len: 0 };
        match message.body {
            Body::Question => out.put(&QUESTION.to_be_bytes()),
            Body::Answer(_) => out.put(&ANSWER.to_be_bytes()),
        }
        out.put(&message.seq.get().to_be_bytes());
        if let Body::Answer(counters) = message.body {
            out.put(&counters.packets.to_be_bytes());
            out.put(&counters.bytes.to_be_bytes());
            out.put(&counters.time.as_nanos().to_be_bytes());
        }
        if let Auth::Key(key) = &self.auth {
            out.put(&message.epoch.to_be_bytes());
            let tag = key.tag(out.as_ref());
            out.put(&tag);
        }
        out
    }

    /// Reads the UDP payload of a message of the other gateway.
    ///
    /// The plain form tells nothing about repeated messages: the estimator ignores them by their sequence number.
    ///
    /// # Errors
    /// When it is no message, and in the authenticated form when its tag is wrong, or a message of its kind had its number
    /// or one more than 63 above it. Refused messages change nothing, and a question that comes back to its sender does
    /// not use up the number of the answer.
    pub fn decode(&mut self, payload: &[u8]) -> Result<Message, ProbeError> {
        let word = |at: usize| payload.get(at..at + 2).map(|b| u16::from_be_bytes([b[0], b[1]]));
        let long = |at: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&payload[at..at + 8]);
            u64::from_be_bytes(bytes)
        };
        let (Some(kind), Some(seq)) = (word(0), word(2)) else {
            return Err(ProbeError::Length(payload.len()));
        };
        let len = match kind {
            QUESTION => QUESTION_LEN,
            ANSWER => ANSWER_LEN,
            other => return Err(ProbeError::Type(other)),
        };
        if payload.len() != len + self.trailer() {
            return Err(ProbeError::Length(payload.len()));
        }
        let body = if kind == QUESTION {
            Body::Question
        } else {
            Body::Answer(Counters { packets: long(4), bytes: long(12), time: Time::from_nanos(long(20)) })
        };
        let mut message = Message { epoch: 0, seq: Seq::new(seq), body };
        if let Auth::Key(key) = &self.auth {
            let (signed, tag) = payload.split_at(len + EPOCH_LEN);
            if !key.verify(signed, tag) {
                return Err(ProbeError::Tag);
            }
            let high = &signed[len..];
            message.epoch = u32::from_be_bytes([high[0], high[1], high[2], high[3]]);
            let number = u64::from(message.epoch) << 16 | u64::from(seq);
            let heard = if kind == QUESTION { &mut self.questions } else { &mut self.answers };
            if !heard.admit(number) {
                return Err(ProbeError::Replay { epoch: message.epoch, seq });
            }
        }
        Ok(message)
    }
}

/// The UDP payload of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Datagram {
    bytes: [u8; LONGEST],
    len: usize,
}

impl Datagram {
    fn put(&mut self, bytes: &[u8]) {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }
}

impl AsRef<[u8]> for Datagram {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.len]
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

/// Why a payload or a key is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProbeError {
    /// No message of this form is so many bytes long.
    Length(usize),
    /// The type is neither question nor answer.
    Type(u16),
    /// The tag is not that of the key.
    Tag,
    /// Heard before, or too old to tell.
    Replay {
        /// High part of the number.
        epoch: u32,
        /// Low part.
        seq: u16,
    },
    /// A key of so many bytes is too short.
    ShortKey(usize),
}

impl fmt::Display for ProbeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length(len) => write!(
                f,
                "a probe payload of {len} bytes: a question has {QUESTION_LEN}, an answer {ANSWER_LEN}, and \
                 {TRAILER_LEN} more with a key"
            ),
            Self::Type(kind) => write!(f, "probe type {kind}: {QUESTION} is a question, {ANSWER} an answer"),
            Self::Tag => f.write_str("the probe's tag is not that of the key of this end"),
            Self::Replay { epoch, seq } => {
                write!(f, "probe {epoch}/{seq} was heard before, or is more than 63 behind")
            }
            Self::ShortKey(len) => {
                write!(f, "a probe key of {len} bytes: at least {} are needed", Key::SHORTEST)
            }
        }
    }
}

impl core::error::Error for ProbeError {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn counters() -> Counters {
        Counters { packets: 258, bytes: 0x0102_0304_0506_0708, time: Time::from_nanos(1_000_000_000) }
    }

    fn keyed() -> Endpoint {
        let secret: Vec<u8> = (0..32).collect();
        Endpoint::new(Auth::Key(Key::new(&secret).unwrap()))
    }

    /// Sect. 3.2.2: 32 and 56 bytes, 88 a round; with a trailer of 16 each 120.
    #[test]
    fn sizes_on_the_path_are_the_papers() {
        let plain = Endpoint::new(Auth::None);
        assert_eq!((plain.question_size(), plain.answer_size()), (Bytes::new(32), Bytes::new(56)));
        assert_eq!((keyed().question_size(), keyed().answer_size()), (Bytes::new(48), Bytes::new(72)));
    }

    #[test]
    fn the_plain_form_byte_by_byte() {
        let end = Endpoint::new(Auth::None);
        let question = Message { epoch: 0, seq: Seq::new(0xabcd), body: Body::Question };
        assert_eq!(end.encode(&question).as_ref(), [0, 1, 0xab, 0xcd]);
        let answer = Message { body: Body::Answer(counters()), ..question };
        let expected = [
            0, 2, 0xab, 0xcd, // type, sequence number
            0, 0, 0, 0, 0, 0, 1, 2, // 258 packets
            1, 2, 3, 4, 5, 6, 7, 8, // bytes
            0, 0, 0, 0, 0x3b, 0x9a, 0xca, 0, // 10^9 ns
        ];
        assert_eq!(end.encode(&answer).as_ref(), expected);
    }

    /// HMAC-SHA-256 of 00 01 ab cd 01 02 03 04 under the key 00 01 .. 1f, by an independent implementation.
    #[test]
    fn the_authenticated_form_byte_by_byte() {
        let question = Message { epoch: 0x0102_0304, seq: Seq::new(0xabcd), body: Body::Question };
        let sent = keyed().encode(&question);
        assert_eq!(&sent.as_ref()[..8], [0, 1, 0xab, 0xcd, 1, 2, 3, 4]);
        assert_eq!(&sent.as_ref()[8..], KNOWN_TAG);
    }

    const KNOWN_TAG: [u8; 12] = [0xb7, 0xa8, 0x0e, 0x44, 0xba, 0xcd, 0x08, 0x9a, 0xb6, 0x7c, 0xe8, 0xa5];

    /// RFC 4231, test case 2: key "Jefe" (below our shortest key, so through the inner type).
    #[test]
    fn the_tag_is_that_of_rfc_4231() {
        let key = Key(Hmac::new_from_slice(b"Jefe").unwrap());
        let tag = key.tag(b"what do ya want for nothing?");
        assert_eq!(tag, [0x5b, 0xdc, 0xc1, 0x46, 0xbf, 0x60, 0x75, 0x4e, 0x6a, 0x04, 0x24, 0x26]);
    }

    #[test]
    fn serial_numbers_wrap_as_rfc_1982_says() {
        let precedes = |a, b| Seq::new(a).precedes(Seq::new(b));
        assert!(precedes(0, 1) && precedes(65_535, 0) && precedes(65_000, 200) && precedes(0, 32_767));
        assert!(!precedes(1, 0) && !precedes(0, 65_535) && !precedes(7, 7));
        assert!(!precedes(0, 32_768) && !precedes(32_768, 0), "undefined: neither comes first");
        assert_eq!(Seq::new(65_535).next(), Seq::new(0));
    }

    #[test]
    fn numbering_moves_to_the_next_epoch_at_the_wrap() {
        let mut numbering = Numbering::new(7);
        let numbers: Vec<(u32, u16)> =
            (0..65_537).map(|_| numbering.question()).map(|m| (m.epoch, m.seq.get())).collect();
        assert_eq!(numbers[..2], [(7, 0), (7, 1)]);
        assert_eq!(numbers[65_535..], [(7, 65_535), (8, 0)]);
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

    #[test]
    fn a_recorded_message_is_refused_also_after_wrap_and_restart() {
        let (writer, mut reader) = (keyed(), keyed());
        let at = |epoch, seq| Message { epoch, seq: Seq::new(seq), body: Body::Answer(counters()) };
        let recorded = writer.encode(&at(5, 9));
        assert_eq!(reader.decode(recorded.as_ref()), Ok(at(5, 9)));
        assert_eq!(reader.decode(recorded.as_ref()), Err(ProbeError::Replay { epoch: 5, seq: 9 }));
        // The sequence number comes back an epoch later: the new message passes, the recorded one does not.
        assert_eq!(reader.decode(writer.encode(&at(6, 9)).as_ref()), Ok(at(6, 9)));
        assert_eq!(reader.decode(recorded.as_ref()), Err(ProbeError::Replay { epoch: 5, seq: 9 }));
    }

    /// A question that is sent back to its sender carries a good tag, and the number that the answer will have.
    #[test]
    fn a_reflected_question_leaves_the_number_to_the_answer() {
        let (mut asking, mut answering) = (keyed(), keyed());
        let question = Message { epoch: 5, seq: Seq::new(9), body: Body::Question };
        let sent = asking.encode(&question);
        assert_eq!(asking.decode(sent.as_ref()), Ok(question));
        let answer = Message { body: Body::Answer(counters()), ..answering.decode(sent.as_ref()).unwrap() };
        let answered = answering.encode(&answer);
        assert_eq!(answering.decode(answered.as_ref()), Ok(answer), "reflected the other way");
        assert_eq!(asking.decode(answered.as_ref()), Ok(answer));
        assert_eq!(asking.decode(answered.as_ref()), Err(ProbeError::Replay { epoch: 5, seq: 9 }));
        assert_eq!(answering.decode(sent.as_ref()), Err(ProbeError::Replay { epoch: 5, seq: 9 }));
    }

    #[test]
    fn forms_do_not_mix_and_keys_differ() {
        let question = Message { epoch: 0, seq: Seq::new(1), body: Body::Question };
        let mut plain = Endpoint::new(Auth::None);
        assert_eq!(plain.decode(keyed().encode(&question).as_ref()), Err(ProbeError::Length(20)));
        assert_eq!(keyed().decode(plain.encode(&question).as_ref()), Err(ProbeError::Length(4)));
        let mut other = Endpoint::new(Auth::Key(Key::new(&[1; 16]).unwrap()));
        assert_eq!(other.decode(keyed().encode(&question).as_ref()), Err(ProbeError::Tag));
        assert_eq!(plain.decode(&[0, 3, 0, 0]), Err(ProbeError::Type(3)));
        assert_eq!(Key::new(&[1; 15]).unwrap_err(), ProbeError::ShortKey(15));
        assert_eq!(format!("{:?}", Key::new(&[1; 16]).unwrap()), "Key(..)");
    }

    fn any_message() -> impl Strategy<Value = Message> {
        let body = prop_oneof![
            Just(Body::Question),
            any::<(u64, u64, u64)>().prop_map(|(packets, bytes, nanos)| {
                Body::Answer(Counters { packets, bytes, time: Time::from_nanos(nanos) })
            })
        ];
        (any::<u32>(), any::<u16>(), body).prop_map(|(epoch, seq, body)| Message {
            epoch,
            seq: Seq::new(seq),
            body,
        })
    }

    proptest! {
        #[test]
        fn messages_come_back_as_they_were(message in any_message()) {
            let mut plain = Endpoint::new(Auth::None);
            let sent = plain.encode(&message);
            prop_assert_eq!(plain.decode(sent.as_ref()), Ok(Message { epoch: 0, ..message }));
            let mut keyed = keyed();
            let sent = keyed.encode(&message);
            prop_assert_eq!(keyed.decode(sent.as_ref()), Ok(message));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..64), kind in 0u8..4) {
            let mut bytes = bytes;
            if bytes.len() > 1 && kind < 3 {
                (bytes[0], bytes[1]) = (0, kind);
            }
            let mut plain = Endpoint::new(Auth::None);
            if let Ok(message) = plain.decode(&bytes) {
                let again = plain.encode(&message);
                prop_assert_eq!(again.as_ref(), &bytes[..]);
            }
            prop_assert!(keyed().decode(&bytes).is_err(), "nobody guesses a tag");
        }

        #[test]
        fn a_flipped_bit_or_a_cut_is_refused(message in any_message(), bit in 0usize..352, cut in 1usize..44) {
            let sent = keyed().encode(&message);
            let mut changed = sent.as_ref().to_vec();
            let at = bit % (changed.len() * 8);
            changed[at / 8] ^= 1 << (at % 8);
            prop_assert!(keyed().decode(&changed).is_err());
            let kept = sent.as_ref().len().saturating_sub(cut);
            prop_assert!(keyed().decode(&sent.as_ref()[..kept]).is_err());
        }

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
}
