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
//! The estimator `robust` adds two messages, in the same form; a gateway that does not know them refuses them by their
//! type, and goes on answering or asking:
//!
//! | field | watch | report |
//! |---|---|---|
//! | type, 2 bytes | 7 | 8 |
//! | sequence number, 2 bytes | of the last question | of the last question that came |
//! | number of the report after that question, 2 bytes | | from 0 |
//! | what it was measured over, 2 bytes | | ms |
//! | rate of the aggregate, 8 bytes | | bit/s of IP |
//! | `auth = "none"` | 32 bytes | 44 bytes |
//! | epoch 4 bytes, tag 12 bytes | 48 bytes | 60 bytes |
//!
//! A watch asks the other gateway to look at its counter, without questions, for the next [`WATCHED`], and to report
//! when the rate of arriving data falls.
//!
//! The scheme speaks the paper's form. A daemon's [`Endpoint`] adds 16 more bytes on the way out and takes them off on the
//! way in: an epoch, and HMAC-SHA-256 (RFC 2104) truncated to 96 bits over all bytes before it. Epoch and sequence number
//! make a 48-bit number that never repeats: the epoch goes up whenever the sequence number wraps, and begins at the
//! seconds of the day's clock when a gateway starts, which rises faster than one per 65,536 rounds. So a recorded message
//! is refused also after a wrap and after a restart of the asker.
//!
//! The high byte of the type is the version of the form, [`VERSION`]. In every version the first byte is the version, the
//! second the kind, the next two are the number, and the last 12, with a key, the tag over all before. So two gateways of
//! different versions can tell each other so. A question that is refused may be answered by a refusal ([`Endpoint::refuse`]),
//! which has one form in all versions and is never longer than what it refuses:
//!
//! | field | refusal |
//! |---|---|
//! | version of who refuses, 1 byte | |
//! | kind, 1 byte | 3: the tag is not that of my key; 4: your number is behind what I have heard; 5: I speak another version |
//! | sequence number, 2 bytes | copied from the question |
//! | epoch, 4 bytes, and tag, 12 bytes, with a key | kind 4: the highest epoch heard |

use core::fmt;

use crate::runtime::envelope::{Key, ReplayWindow, TAG_LEN};
use crate::time::{Span, Time};

const QUESTION: u16 = 1;
const ANSWER: u16 = 2;
/// Version of the form of messages.
pub const VERSION: u8 = 0;
/// Kinds of refusals: low bytes of their types.
const REFUSED_TAG: u8 = 3;
const REFUSED_OLD: u8 = 4;
const REFUSED_VERSION: u8 = 5;
/// A refusal without a tag.
const REFUSAL_LEN: usize = 4;
/// Ours: where a receiver is. Above the kinds of refusals.
const HELLO: u16 = 6;
/// Ours: of the estimator `robust`.
const WATCH: u16 = 7;
const REPORT: u16 = 8;
const QUESTION_LEN: usize = 4;
const ANSWER_LEN: usize = 28;
const WATCH_LEN: usize = 4;
const REPORT_LEN: usize = 16;
const EPOCH_LEN: usize = 4;
const TRAILER_LEN: usize = EPOCH_LEN + TAG_LEN;

/// How long a gateway looks at its counter, without questions, after a watch.
pub const WATCHED: Span = Span::from_secs(150);

/// A message between gateways.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Message {
    /// The number of the round.
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
    /// Here I am: of a receiver whose address the sender does not know. Ours; with a tag only.
    Hello,
    /// Look at your counter by yourself, and report.
    Watch,
    /// Data come more slowly than they did.
    Report(Report),
}

impl Body {
    /// Whether a gateway that asks says this; else one that answers does.
    pub const fn is_asking(&self) -> bool {
        matches!(self, Self::Question | Self::Watch)
    }
}

/// What a gateway sends without a question.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// Its number after the last question.
    pub number: u16,
    /// ms over which the rate was measured.
    pub millis: u16,
    /// bit/s of IP.
    pub rate: u64,
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

impl Message {
    /// The UDP payload in the paper's form.
    pub fn encode(&self) -> Vec<u8> {
        let kind = match self.body {
            Body::Question => QUESTION,
            Body::Answer(_) => ANSWER,
            Body::Hello => HELLO,
            Body::Watch => WATCH,
            Body::Report(_) => REPORT,
        };
        let mut out = Vec::with_capacity(ANSWER_LEN + TRAILER_LEN);
        out.extend(kind.to_be_bytes());
        out.extend(self.seq.get().to_be_bytes());
        match self.body {
            Body::Question | Body::Watch | Body::Hello => {}
            Body::Answer(counters) => {
                for word in [counters.packets, counters.bytes, counters.time.as_nanos()] {
                    out.extend(word.to_be_bytes());
                }
            }
            Body::Report(Report { number, millis, rate }) => {
                out.extend(number.to_be_bytes());
                out.extend(millis.to_be_bytes());
                out.extend(rate.to_be_bytes());
            }
        }
        out
    }

    /// Reads a UDP payload in the paper's form.
    ///
    /// # Errors
    /// When it is no message.
    pub fn decode(payload: &[u8]) -> Result<Self, ProbeError> {
        Self::read(payload, 0)
    }

    /// Whether bytes begin as a question does.
    pub fn starts_question(bytes: &[u8]) -> bool {
        bytes.starts_with(&QUESTION.to_be_bytes())
    }

    /// Whether bytes begin as a question of any version does.
    pub fn starts_any_question(bytes: &[u8]) -> bool {
        bytes.get(1).is_some_and(|kind| u16::from(*kind) == QUESTION)
    }

    /// Whether bytes begin as something that a gateway says that asks, of any version.
    pub fn starts_any_asking(bytes: &[u8]) -> bool {
        bytes.get(1).is_some_and(|kind| matches!(u16::from(*kind), QUESTION | WATCH))
    }

    /// Whether bytes begin as a refusal of any version does.
    pub fn starts_refusal(bytes: &[u8]) -> bool {
        bytes.get(1).is_some_and(|kind| (REFUSED_TAG..=REFUSED_VERSION).contains(kind))
    }

    /// Reads a message that `more` bytes follow.
    fn read(payload: &[u8], more: usize) -> Result<Self, ProbeError> {
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
            HELLO if more > 0 => QUESTION_LEN,
            ANSWER => ANSWER_LEN,
            WATCH => WATCH_LEN,
            REPORT => REPORT_LEN,
            other if other != HELLO && matches!(other & 0xff, QUESTION | ANSWER | HELLO | WATCH | REPORT) => {
                return Err(ProbeError::Version((other >> 8) as u8));
            }
            other => return Err(ProbeError::Type(other)),
        };
        if payload.len() != len + more {
            return Err(ProbeError::Length(payload.len()));
        }
        let body = match kind {
            QUESTION => Body::Question,
            HELLO => Body::Hello,
            WATCH => Body::Watch,
            REPORT => Body::Report(Report {
                number: word(4).unwrap_or(0),
                millis: word(6).unwrap_or(0),
                rate: long(8),
            }),
            _ => {
                Body::Answer(Counters { packets: long(4), bytes: long(12), time: Time::from_nanos(long(20)) })
            }
        };
        Ok(Self { seq: Seq::new(seq), body })
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

/// What the other gateway says of a question that it refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// Of the question.
    pub seq: Seq,
    /// Why.
    pub reason: Reason,
}

/// Why the other gateway refused a question.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// Its tag is not that of the other's key, or it has none and should, or the other way round.
    Tag,
    /// Its number is behind what the other has heard: up to this epoch.
    Old {
        /// The highest epoch that it has heard.
        highest: u32,
    },
    /// The other speaks this version.
    Version(u8),
}

/// One direction's end at a daemon: proves messages on their way out, refuses on the way in what is false or was heard
/// before. The scheme itself knows no key.
#[derive(Clone, Debug)]
pub struct Endpoint {
    auth: Auth,
    version: u8,
    /// Of the last question that left.
    epoch: u32,
    asked: Option<Seq>,
    /// Of the last question that came: its answer has it too.
    came: u32,
    questions: ReplayWindow,
    answers: ReplayWindow,
    hellos: ReplayWindow,
    watches: ReplayWindow,
    reports: ReplayWindow,
}

impl Endpoint {
    /// An end that has heard nothing yet. `epoch` is that of its first question: the seconds of the day's clock at the
    /// start of a gateway, so that it is above those of its life before.
    pub const fn new(auth: Auth, epoch: u32) -> Self {
        let [questions, answers, hellos, watches, reports] = [const { ReplayWindow::new() }; 5];
        let (version, asked, came) = (VERSION, None, 0);
        Self { auth, version, epoch, asked, came, questions, answers, hellos, watches, reports }
    }

    /// One that sends as a gateway of another version does: what the other end then does can be tried.
    #[must_use]
    pub fn speaking(self, version: u8) -> Self {
        Self { version, ..self }
    }

    /// True when this is how its messages prove themselves.
    pub fn proves_by(&self, auth: &Auth) -> bool {
        match (&self.auth, auth) {
            (Auth::None, Auth::None) => true,
            (Auth::Key(own), Auth::Key(other)) => own.is(other),
            _ => false,
        }
    }

    /// Of the last question that left; of the first, before.
    pub const fn epoch(&self) -> u32 {
        self.epoch
    }

    /// That of the last question as its answer tells it: the plain form does not.
    pub const fn told_epoch(&self) -> u32 {
        match self.auth {
            Auth::None => 0,
            Auth::Key(_) => self.epoch,
        }
    }

    /// The datagram of a payload of the scheme.
    pub fn seal(&mut self, mut payload: Vec<u8>) -> Vec<u8> {
        let Ok(Message { seq, body }) = Message::decode(&payload) else { return payload };
        let mut epoch = self.came;
        if body == Body::Question {
            // A wrap of the number.
            if self.asked.is_some() && seq == Seq::new(0) {
                self.epoch = self.epoch.wrapping_add(1);
            }
            self.asked = Some(seq);
        }
        if body.is_asking() {
            epoch = self.epoch;
        }
        payload[0] = self.version;
        self.sign(payload, epoch)
    }

    fn sign(&self, mut payload: Vec<u8>, epoch: u32) -> Vec<u8> {
        if let Auth::Key(key) = &self.auth {
            payload.extend(epoch.to_be_bytes());
            let tag = key.tag(&payload, &[]);
            payload.extend(tag);
        }
        payload
    }

    /// What to say of a question that was refused for `error`; none when there is nothing to say: to what is no question, and
    /// to one that was heard before in the present epoch, which tells nobody anything but who repeats it. It is no longer than
    /// the question, and without a tag when there is no room for one.
    pub fn refuse(&self, datagram: &[u8], error: ProbeError) -> Option<Vec<u8>> {
        let head = datagram.get(..REFUSAL_LEN).filter(|_| Message::starts_any_question(datagram))?;
        let highest = (self.questions.highest() >> 16) as u32;
        let (kind, epoch) = match error {
            ProbeError::Tag | ProbeError::Length(_) => (REFUSED_TAG, 0),
            ProbeError::Replay { epoch, .. } if epoch < highest => (REFUSED_OLD, highest),
            ProbeError::Version(_) => (REFUSED_VERSION, 0),
            ProbeError::Replay { .. } | ProbeError::Type(_) => return None,
        };
        let refusal = vec![self.version, kind, head[2], head[3]];
        let has_room = datagram.len() >= REFUSAL_LEN + TRAILER_LEN;
        Some(if has_room { self.sign(refusal, epoch) } else { refusal })
    }

    /// The refusal in a datagram of the other gateway. A caller that acts on it checks first that it asked that question.
    ///
    /// # Errors
    /// When it is none, or in the authenticated form when its tag is wrong.
    pub fn heed(&self, datagram: &[u8]) -> Result<Refusal, ProbeError> {
        let wrong = ProbeError::Length(datagram.len());
        let (head, rest) = datagram.split_at_checked(REFUSAL_LEN).ok_or(wrong)?;
        let mut highest = 0;
        match &self.auth {
            Auth::None if !rest.is_empty() => return Err(wrong),
            Auth::None => {}
            Auth::Key(_) if rest.len() != TRAILER_LEN => return Err(wrong),
            Auth::Key(key) => {
                let (signed, tag) = datagram.split_at(REFUSAL_LEN + EPOCH_LEN);
                if !key.verify(signed, &[], tag) {
                    return Err(ProbeError::Tag);
                }
                highest = u32::from_be_bytes([rest[0], rest[1], rest[2], rest[3]]);
            }
        }
        let reason = match head[1] {
            REFUSED_TAG => Reason::Tag,
            REFUSED_OLD => Reason::Old { highest },
            REFUSED_VERSION => Reason::Version(head[0]),
            _ => return Err(ProbeError::Type(u16::from_be_bytes([head[0], head[1]]))),
        };
        Ok(Refusal { seq: Seq::new(u16::from_be_bytes([head[2], head[3]])), reason })
    }

    /// Says where this end is; none without a key. `epoch` and `seq` make a number that never comes back.
    pub fn hello(&self, epoch: u32, seq: Seq) -> Option<Vec<u8>> {
        let mut payload = Message { seq, body: Body::Hello }.encode();
        payload[0] = self.version;
        matches!(self.auth, Auth::Key(_)).then(|| self.sign(payload, epoch))
    }

    /// The message in a datagram of the other gateway, its epoch, and the payload for the scheme. The plain form has no
    /// epoch, and tells nothing about repeated messages: the estimator ignores them by their number.
    ///
    /// # Errors
    /// When it is no message, and in the authenticated form when its tag is wrong, or a message of its kind had its number
    /// or one more than 63 above it. Refused messages change nothing, and a question that comes back to its sender does
    /// not use up the number of the answer.
    pub fn open<'a>(&mut self, datagram: &'a [u8]) -> Result<(Message, u32, &'a [u8]), ProbeError> {
        let Auth::Key(key) = &self.auth else { return Ok((Message::decode(datagram)?, 0, datagram)) };
        let message = match Message::read(datagram, TRAILER_LEN) {
            // Of whatever version, the tag comes last.
            Err(version @ ProbeError::Version(_)) => {
                let signed = datagram.len().checked_sub(TAG_LEN);
                let (signed, tag) = datagram.split_at(signed.ok_or(ProbeError::Length(datagram.len()))?);
                return Err(if key.verify(signed, &[], tag) { version } else { ProbeError::Tag });
            }
            other => other?,
        };
        let (signed, tag) = datagram.split_at(datagram.len() - TAG_LEN);
        if !key.verify(signed, &[], tag) {
            return Err(ProbeError::Tag);
        }
        let (payload, high) = signed.split_at(signed.len() - EPOCH_LEN);
        let epoch = u32::from_be_bytes([high[0], high[1], high[2], high[3]]);
        let seq = message.seq.get();
        let number = u64::from(epoch) << 16 | u64::from(seq);
        let admitted = match message.body {
            Body::Question => self.questions.admit(number),
            Body::Answer(_) => self.answers.admit(number),
            Body::Hello => self.hellos.admit(number),
            Body::Watch => self.watches.admit(number),
            Body::Report(report) => self.reports.admit(number << 16 | u64::from(report.number)),
        };
        if !admitted {
            return Err(ProbeError::Replay { epoch, seq });
        }
        if message.body == Body::Question {
            self.came = epoch;
        }
        Ok((message, epoch, payload))
    }
}

/// Why a payload is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProbeError {
    /// No message of this form is so many bytes long.
    Length(usize),
    /// The type is none of those known.
    Type(u16),
    /// A message of another version.
    Version(u8),
    /// The tag is not that of the key.
    Tag,
    /// Heard before, or too old to tell.
    Replay {
        /// High part of the number.
        epoch: u32,
        /// Low part.
        seq: u16,
    },
}

impl fmt::Display for ProbeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length(len) => write!(
                f,
                "a probe payload of {len} bytes: a question or a watch has {QUESTION_LEN}, an answer {ANSWER_LEN}, a \
                 report {REPORT_LEN}, and {TRAILER_LEN} more with a key"
            ),
            Self::Type(kind) => write!(
                f,
                "probe type {kind}: {QUESTION} is a question, {ANSWER} an answer, {HELLO} a hello, {WATCH} a watch, {REPORT} a report"
            ),
            Self::Version(version) => write!(f, "a probe of version {version}: this end speaks {VERSION}"),
            Self::Tag => f.write_str("the probe's tag is not that of the key of this end"),
            Self::Replay { epoch, seq } => {
                write!(f, "probe {epoch}/{seq} was heard before, or is more than 63 behind")
            }
        }
    }
}

impl core::error::Error for ProbeError {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::units::UDP_HEADERS;

    fn counters() -> Counters {
        Counters { packets: 258, bytes: 0x0102_0304_0506_0708, time: Time::from_nanos(1_000_000_000) }
    }

    fn question(seq: u16) -> Message {
        Message { seq: Seq::new(seq), body: Body::Question }
    }

    fn answer(seq: u16) -> Message {
        Message { seq: Seq::new(seq), body: Body::Answer(counters()) }
    }

    fn plain() -> Endpoint {
        Endpoint::new(Auth::None, 0)
    }

    fn keyed(epoch: u32) -> Endpoint {
        let secret: Vec<u8> = (0..32).collect();
        Endpoint::new(Auth::Key(Key::new(&secret).unwrap()), epoch)
    }

    /// Sect. 3.2.2: 32 and 56 bytes, 88 a round; with a trailer of 16 each 120.
    #[test]
    fn sizes_on_the_path_are_the_papers() {
        let on_path = |mut end: Endpoint| {
            [question(1), answer(1)].map(|message| UDP_HEADERS as usize + end.seal(message.encode()).len())
        };
        assert_eq!(on_path(plain()), [32, 56]);
        assert_eq!(on_path(keyed(7)), [48, 72]);
    }

    /// A hello is taken once, by who has the key, and never in the plain form.
    #[test]
    fn a_hello_proves_itself() {
        let (near, mut far) = (keyed(7), keyed(7));
        let bytes = near.hello(7, Seq::new(3)).expect("a key");
        assert_eq!(UDP_HEADERS as usize + bytes.len(), 48);
        assert!(matches!(far.open(&bytes), Ok((Message { body: Body::Hello, .. }, 7, _))));
        assert_eq!(far.open(&bytes).err(), Some(ProbeError::Replay { epoch: 7, seq: 3 }));
        assert_eq!(plain().hello(7, Seq::new(3)), None);
        assert_eq!(plain().open(&bytes[..4]).err(), Some(ProbeError::Type(HELLO)));
        // A question or an answer of the same number is another message.
        let mut asker = keyed(7);
        assert!(far.open(&asker.seal(question(3).encode())).is_ok());
    }

    #[test]
    fn the_plain_form_byte_by_byte() {
        assert_eq!(question(0xabcd).encode(), [0, 1, 0xab, 0xcd]);
        let expected = [
            0, 2, 0xab, 0xcd, // type, sequence number
            0, 0, 0, 0, 0, 0, 1, 2, // 258 packets
            1, 2, 3, 4, 5, 6, 7, 8, // bytes
            0, 0, 0, 0, 0x3b, 0x9a, 0xca, 0, // 10^9 ns
        ];
        assert_eq!(answer(0xabcd).encode(), expected);
        assert_eq!(plain().seal(expected.to_vec()), expected, "without a key a datagram is the payload");
        assert!(Message::starts_question(&question(0xabcd).encode()) && !Message::starts_question(&expected));
    }

    /// HMAC-SHA-256 of 00 01 ab cd 01 02 03 04 under the key 00 01 .. 1f, by an independent implementation.
    #[test]
    fn the_authenticated_form_byte_by_byte() {
        let sent = keyed(0x0102_0304).seal(question(0xabcd).encode());
        assert_eq!(&sent[..8], [0, 1, 0xab, 0xcd, 1, 2, 3, 4]);
        assert_eq!(&sent[8..], KNOWN_TAG);
    }

    const KNOWN_TAG: [u8; 12] = [0xb7, 0xa8, 0x0e, 0x44, 0xba, 0xcd, 0x08, 0x9a, 0xb6, 0x7c, 0xe8, 0xa5];

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
        let (mut end, mut seq) = (Endpoint::new(Auth::None, 7), Seq::new(0));
        let mut ask = || {
            let of = seq.get();
            end.seal(question(of).encode());
            seq = seq.next();
            (end.epoch(), of)
        };
        let numbers: Vec<(u32, u16)> = (0..65_537).map(|_| ask()).collect();
        assert_eq!(numbers[..2], [(7, 0), (7, 1)]);
        assert_eq!(numbers[65_535..], [(7, 65_535), (8, 0)]);
        let mut end = keyed(7);
        let epochs = [65_534, 65_535, 0, 1].map(|seq| end.seal(question(seq).encode())[4..8].to_vec());
        assert_eq!(epochs, [[0, 0, 0, 7], [0, 0, 0, 7], [0, 0, 0, 8], [0, 0, 0, 8]]);
    }

    #[test]
    fn a_recorded_message_is_refused_also_after_wrap_and_restart() {
        let (mut asking, mut answering) = (keyed(5), keyed(0));
        let replay = |epoch, seq| Err(ProbeError::Replay { epoch, seq });
        let asked = asking.seal(question(9).encode());
        assert_eq!(answering.open(&asked), Ok((question(9), 5, &question(9).encode()[..])));
        let answered = answering.seal(answer(9).encode());
        assert_eq!(asking.open(&answered), Ok((answer(9), 5, &answer(9).encode()[..])));
        assert_eq!((answering.open(&asked), asking.open(&answered)), (replay(5, 9), replay(5, 9)));
        // The sequence number comes back an epoch later: the new messages pass, the recorded ones do not.
        asking.seal(question(0).encode());
        let again = asking.seal(question(9).encode());
        assert_eq!(answering.open(&again), Ok((question(9), 6, &question(9).encode()[..])));
        let answered_again = answering.seal(answer(9).encode());
        assert_eq!(asking.open(&answered_again), Ok((answer(9), 6, &answer(9).encode()[..])));
        assert_eq!((answering.open(&asked), asking.open(&answered)), (replay(5, 9), replay(5, 9)));
        // The asker restarts, at a later second of the day's clock.
        let restarted = keyed(100).seal(question(9).encode());
        assert_eq!(answering.open(&restarted), Ok((question(9), 100, &question(9).encode()[..])));
        assert_eq!((answering.open(&asked), answering.open(&again)), (replay(5, 9), replay(6, 9)));
    }

    /// A question that is sent back to its sender carries a good tag, and the number that the answer will have.
    #[test]
    fn a_reflected_question_leaves_the_number_to_the_answer() {
        let (mut asking, mut answering) = (keyed(5), keyed(0));
        let message = |end: &mut Endpoint, datagram: &[u8]| end.open(datagram).map(|(message, ..)| message);
        let sent = asking.seal(question(9).encode());
        assert_eq!(message(&mut asking, &sent), Ok(question(9)));
        assert_eq!(message(&mut answering, &sent), Ok(question(9)));
        let answered = answering.seal(answer(9).encode());
        assert_eq!(message(&mut answering, &answered), Ok(answer(9)), "reflected the other way");
        assert_eq!(message(&mut asking, &answered), Ok(answer(9)));
        assert_eq!(message(&mut asking, &answered), Err(ProbeError::Replay { epoch: 5, seq: 9 }));
        assert_eq!(message(&mut answering, &sent), Err(ProbeError::Replay { epoch: 5, seq: 9 }));
    }

    #[test]
    fn forms_do_not_mix_and_keys_differ() {
        let sealed = keyed(0).seal(question(1).encode());
        assert_eq!(plain().open(&sealed), Err(ProbeError::Length(20)));
        assert_eq!(Message::decode(&sealed), Err(ProbeError::Length(20)));
        assert_eq!(keyed(0).open(&plain().seal(question(1).encode())), Err(ProbeError::Length(4)));
        let mut other = Endpoint::new(Auth::Key(Key::new(&[1; 16]).unwrap()), 0);
        assert_eq!(other.open(&sealed), Err(ProbeError::Tag));
        assert_eq!(plain().open(&[0, 5, 0, 0]), Err(ProbeError::Type(5)));
    }

    /// Of other keys, and without one: a refusal of the key of who refuses, or without a tag where there is no room.
    #[test]
    fn a_question_of_another_key_is_refused_by_what_its_sender_cannot_read() {
        let (mut asking, other) = (keyed(5), Endpoint::new(Auth::Key(Key::new(&[1; 16]).unwrap()), 0));
        let asked = asking.seal(question(9).encode());
        let refusal = other.refuse(&asked, ProbeError::Tag).unwrap();
        assert_eq!((refusal.len(), &refusal[..4]), (asked.len(), &[0, 3, 0, 9][..]));
        assert_eq!(asking.heed(&refusal), Err(ProbeError::Tag));
        let plain_question = plain().seal(question(9).encode());
        let refusal = other.refuse(&plain_question, ProbeError::Length(4)).unwrap();
        assert_eq!(refusal, [0, 3, 0, 9]);
        assert_eq!(plain().heed(&refusal), Ok(Refusal { seq: Seq::new(9), reason: Reason::Tag }));
        assert_eq!(asking.heed(&refusal), Err(ProbeError::Length(4)));
        let refusal = plain().refuse(&asked, ProbeError::Length(20)).unwrap();
        assert_eq!(asking.heed(&refusal), Err(ProbeError::Length(4)), "who wants no tag gives none");
    }

    /// A number of an earlier epoch is distinguished from a repeated one, and the refusal says above which number to go on.
    #[test]
    fn a_question_behind_what_was_heard_is_told_how_far() {
        let mut answering = keyed(0);
        let now = keyed(900).seal(question(3).encode());
        assert!(answering.open(&now).is_ok());
        let again = answering.open(&now).unwrap_err();
        assert_eq!(answering.refuse(&now, again), None, "a repeated question gets no answer");
        let mut asking = keyed(100);
        let old = asking.seal(question(3).encode());
        let error = answering.open(&old).unwrap_err();
        assert_eq!(error, ProbeError::Replay { epoch: 100, seq: 3 });
        let refusal = answering.refuse(&old, error).unwrap();
        let read = Refusal { seq: Seq::new(3), reason: Reason::Old { highest: 900 } };
        assert_eq!((refusal.len(), asking.heed(&refusal)), (old.len(), Ok(read)));
        assert!(answering.open(&keyed(901).seal(question(3).encode())).is_ok());
    }

    #[test]
    fn gateways_of_different_versions_tell_each_other() {
        let (mut ours, mut theirs) = (keyed(5), keyed(6).speaking(7));
        let asked = theirs.seal(question(9).encode());
        assert_eq!(asked[..2], [7, 1]);
        assert_eq!(ours.open(&asked), Err(ProbeError::Version(7)));
        let refusal = ours.refuse(&asked, ProbeError::Version(7)).unwrap();
        assert_eq!(theirs.heed(&refusal).map(|refusal| refusal.reason), Ok(Reason::Version(0)));
        let refusal = theirs.refuse(&ours.seal(question(8).encode()), ProbeError::Version(0)).unwrap();
        let read = Refusal { seq: Seq::new(8), reason: Reason::Version(7) };
        assert_eq!(ours.heed(&refusal), Ok(read));
        let mut forged = asked;
        forged[0] = 8;
        assert_eq!(ours.open(&forged), Err(ProbeError::Tag), "nobody else says so");
        assert_eq!(ours.refuse(&refusal, ProbeError::Tag), None, "refusals are not refused");
    }

    fn any_message() -> impl Strategy<Value = Message> {
        let body = prop_oneof![
            Just(Body::Question),
            Just(Body::Watch),
            any::<(u16, u16, u64)>().prop_map(|(number, millis, rate)| Body::Report(Report {
                number,
                millis,
                rate
            })),
            any::<(u64, u64, u64)>().prop_map(|(packets, bytes, nanos)| {
                Body::Answer(Counters { packets, bytes, time: Time::from_nanos(nanos) })
            })
        ];
        (any::<u16>(), body).prop_map(|(seq, body)| Message { seq: Seq::new(seq), body })
    }

    proptest! {
        #[test]
        fn messages_come_back_as_they_were(message in any_message(), epoch in any::<u32>()) {
            let payload = message.encode();
            prop_assert_eq!(Message::decode(&payload), Ok(message));
            let sent = plain().seal(payload.clone());
            prop_assert_eq!(plain().open(&sent), Ok((message, 0, &payload[..])));
            // An answer has the epoch of the question that it answers.
            let (mut asking, mut answering) = (keyed(epoch), keyed(0));
            let asked = asking.seal(question(message.seq.get()).encode());
            prop_assert!(answering.open(&asked).is_ok());
            let sent = match message.body {
                Body::Question => asked,
                Body::Watch | Body::Hello => asking.seal(payload.clone()),
                Body::Answer(_) | Body::Report(_) => answering.seal(payload.clone()),
            };
            prop_assert_eq!(keyed(0).open(&sent), Ok((message, epoch, &payload[..])));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..64), kind in 0u8..10) {
            let mut bytes = bytes;
            if bytes.len() > 1 && kind < 9 {
                (bytes[0], bytes[1]) = (0, kind);
            }
            prop_assert_eq!(plain().open(&bytes).map(|(message, ..)| message), Message::decode(&bytes));
            if let Ok(message) = Message::decode(&bytes) {
                prop_assert_eq!(&message.encode(), &bytes);
            }
            prop_assert!(keyed(0).open(&bytes).is_err() && keyed(0).heed(&bytes).is_err(), "nobody guesses a tag");
            for (end, error) in [(keyed(0), ProbeError::Tag), (plain(), ProbeError::Version(1))] {
                let refusal = end.refuse(&bytes, error);
                prop_assert!(refusal.is_none_or(|refusal| refusal.len() <= bytes.len()), "never longer");
            }
        }

        #[test]
        fn a_flipped_bit_or_a_cut_is_refused(
            message in any_message(),
            epoch in any::<u32>(),
            bit in 0usize..352,
            cut in 1usize..44,
        ) {
            let sent = keyed(epoch).seal(message.encode());
            let mut changed = sent.clone();
            let at = bit % (changed.len() * 8);
            changed[at / 8] ^= 1 << (at % 8);
            prop_assert!(keyed(0).open(&changed).is_err());
            let kept = sent.len().saturating_sub(cut);
            prop_assert!(keyed(0).open(&sent[..kept]).is_err());
        }
    }
}
