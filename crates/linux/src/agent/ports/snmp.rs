//! Ports of a switch, through SNMP 2c or 3: the 64-bit counters of the IF-MIB (RFC 2863).

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bandmaster_core::agent::{Port, SnmpAccess, SnmpHash};
use snmp2::v3::{Auth, AuthProtocol, Cipher, Security};
use snmp2::{Oid, Pdu, SyncSession, Value, Version};

use super::{Counts, left};
use crate::daemon::Error;

/// `ifName`.
const NAMES: &[u64] = &[1, 3, 6, 1, 2, 1, 31, 1, 1, 1, 1];
/// `ifHCOutOctets`, `ifHCOutUcastPkts`, `ifHCOutMulticastPkts`, `ifHCOutBroadcastPkts`.
const SENT: &[u64] = &[1, 3, 6, 1, 2, 1, 31, 1, 1, 1, 10];
const PACKETS: [&[u64]; 3] = [
    &[1, 3, 6, 1, 2, 1, 31, 1, 1, 1, 11],
    &[1, 3, 6, 1, 2, 1, 31, 1, 1, 1, 12],
    &[1, 3, 6, 1, 2, 1, 31, 1, 1, 1, 13],
];
/// `ifOutDiscards`, of 32 bits: there is no longer one.
const DROPPED: &[u64] = &[1, 3, 6, 1, 2, 1, 2, 2, 1, 19];
/// Rows of a table that are asked for at once.
const ROWS: u32 = 20;
/// Times that a question is asked.
const TRIES: u32 = 2;
/// Interfaces of a switch, and bytes of a name (`DisplayString`, RFC 2579): what has more is no switch.
const MOST_INTERFACES: usize = 65_536;
const MOST_NAME: usize = 255;
/// RFC 3414, Sect. 11.2.
const SHORTEST_PASSPHRASE: usize = 8;

/// By which right a switch is asked.
pub(super) enum Right {
    Community(Vec<u8>),
    User(Box<Security>),
}

impl Right {
    /// With the content of the file that `access` names.
    ///
    /// # Errors
    /// When that is no pair of passphrases.
    pub(super) fn new(access: &SnmpAccess, secret: &[u8]) -> Result<Self, Error> {
        let SnmpAccess::User { name, file, hash } = access else {
            return Ok(Self::Community(secret.to_vec()));
        };
        let lines: Vec<&[u8]> = secret
            .split(|byte| *byte == b'\n')
            .map(|line| line.strip_suffix(b"\r").unwrap_or(line))
            .collect();
        let [authentication, privacy] = lines[..] else {
            let what = "has a passphrase in each of two lines, for authentication and privacy";
            return Err(Error::Usage(format!("error: passphrases-file {file}: {what}")));
        };
        if authentication.len().min(privacy.len()) < SHORTEST_PASSPHRASE {
            let what = format!("has a passphrase of less than {SHORTEST_PASSPHRASE} bytes");
            return Err(Error::Usage(format!("error: passphrases-file {file}: {what}")));
        }
        let hash = match hash {
            SnmpHash::Sha1 => AuthProtocol::Sha1,
            SnmpHash::Sha256 => AuthProtocol::Sha256,
            SnmpHash::Sha512 => AuthProtocol::Sha512,
        };
        let privacy = Auth::AuthPriv { cipher: Cipher::Aes128, privacy_password: privacy.to_vec() };
        let security = Security::new(name.as_bytes(), authentication);
        Ok(Self::User(Box::new(security.with_auth_protocol(hash).with_auth(privacy))))
    }

    const fn version(&self) -> Version {
        match self {
            Self::Community(_) => Version::V2C,
            Self::User(_) => Version::V3,
        }
    }

    fn session(&self, address: SocketAddr, wait: Duration) -> Result<SyncSession, String> {
        let (wait, number) = (Some(wait), first_number());
        let new = match self {
            Self::Community(community) => SyncSession::new_v2c(address, community, wait, number),
            Self::User(security) => SyncSession::new_v3(address, wait, number, (**security).clone()),
        };
        let mut session = new.map_err(|error| format!("udp {address}: {error}"))?;
        // Of a user: asks the switch for its name and time.
        session.init().map_err(|error| format!("SNMP at {address}: {error}"))?;
        Ok(session)
    }
}

pub(super) struct Snmp {
    address: SocketAddr,
    right: Right,
    /// For the answers to all questions of a reading.
    patience: Duration,
    until: Instant,
    session: Option<SyncSession>,
    /// Numbers of interfaces by their names, as of the last look.
    numbers: BTreeMap<String, u64>,
    /// Of columns that not every answer has, what the last one had: multicast, broadcast, discards.
    last: BTreeMap<u64, [u64; 3]>,
}

/// What a switch says of an interface.
enum Answer {
    /// It has this name, and no counters of 64 bits.
    Short(String),
    Whole(String, Counts),
}

/// The variables of an answer, if it is one to a question about these.
///
/// # Errors
/// When it is of another version (who knows a user's name, which is not encrypted, could answer by SNMP 2c), tells of an error,
/// or of something else.
fn variables<'a>(answer: Pdu<'a>, version: Version) -> Result<Vec<(Oid<'a>, Value<'a>)>, snmp2::Error> {
    if answer.version()? != version {
        return Err(snmp2::Error::UnsupportedVersion);
    }
    if answer.error_status != 0 {
        return Err(snmp2::Error::Mib(format!("the switch tells of error {}", answer.error_status)));
    }
    Ok(answer.varbinds.collect())
}

impl Snmp {
    pub(super) fn new(address: SocketAddr, right: Right, patience: Duration) -> Self {
        let (numbers, last) = (BTreeMap::new(), BTreeMap::new());
        Self { address, right, patience, until: Instant::now(), session: None, numbers, last }
    }

    pub(super) fn read(&mut self, ports: &[Port]) -> Result<Vec<Counts>, String> {
        self.until = Instant::now() + self.patience;
        let told = self.try_to_read(ports);
        if told.is_err() {
            // A late answer would be taken for that of the next question.
            self.session = None;
        }
        told
    }

    fn try_to_read(&mut self, ports: &[Port]) -> Result<Vec<Counts>, String> {
        if ports.iter().any(|port| !self.numbers.contains_key(&port.interface)) {
            self.numbers = self.names()?;
        }
        let mut all = Vec::with_capacity(ports.len());
        for Port { interface, .. } in ports {
            let missing = || format!("interface {interface}: {} has no ifName like it", self.address);
            let number = self.numbers.get(interface).copied().ok_or_else(missing)?;
            match self.counts(number)? {
                Some(Answer::Whole(name, counts)) if name == *interface => all.push(counts),
                Some(Answer::Short(name)) if name == *interface => {
                    return Err(format!(
                        "interface {interface}: {} has no counters of 64 bits",
                        self.address
                    ));
                }
                // The switch has renumbered its interfaces.
                _ => {
                    self.numbers.clear();
                    return Err(format!("interface {interface}: {} calls it otherwise now", self.address));
                }
            }
        }
        Ok(all)
    }

    /// Asks once more when no answer comes.
    fn ask<T>(
        &mut self,
        question: impl Fn(&mut SyncSession) -> Result<T, snmp2::Error>,
    ) -> Result<T, String> {
        let mut why = String::new();
        for _ in 0..TRIES {
            let left = left(self.until, &format!("SNMP at {}", self.address))?;
            if self.session.is_none() {
                // A socket of its own: late answers to an earlier question go to another.
                let wait = (self.patience / TRIES).min(left);
                match self.right.session(self.address, wait) {
                    Ok(session) => self.session = Some(session),
                    Err(error) => {
                        why = error;
                        continue;
                    }
                }
            }
            let Some(session) = &mut self.session else { break };
            match question(session) {
                Ok(answer) => return Ok(answer),
                // What it knows of the switch's time was old, and is new now.
                Err(error @ snmp2::Error::AuthUpdated) => why = error.to_string(),
                Err(error) => {
                    why = format!("SNMP at {}: {error}", self.address);
                    self.session = None;
                }
            }
        }
        Err(why)
    }

    /// Numbers of all interfaces by name.
    fn names(&mut self) -> Result<BTreeMap<String, u64>, String> {
        let mut names = BTreeMap::new();
        let (mut last, mut rows_seen, version) = (0, 0, self.right.version());
        loop {
            let from = [NAMES, if last == 0 { &[] } else { std::slice::from_ref(&last) }].concat();
            let rows = self.ask(|session| {
                let from = oid(&from)?;
                let answer = variables(session.getbulk(&[&from], 0, ROWS)?, version)?;
                // The column ends where another begins.
                let row = |(name, value): (Oid<'_>, Value<'_>)| {
                    let path: Vec<u64> = name.iter()?.collect();
                    let number = path.strip_prefix(NAMES).filter(|rest| rest.len() == 1)?[0];
                    let Value::OctetString(text) = value else { return None };
                    let text = &text[..text.len().min(MOST_NAME)];
                    Some((number, String::from_utf8_lossy(text).into_owned()))
                };
                Ok(answer.into_iter().take(ROWS as usize).map_while(row).collect::<Vec<_>>())
            })?;
            if rows.is_empty() {
                return Ok(names);
            }
            for (number, name) in rows {
                // RFC 3416: what comes next is behind what was asked.
                if number <= last {
                    return Err(format!("SNMP at {}: its table of names goes round", self.address));
                }
                rows_seen += 1;
                if rows_seen > MOST_INTERFACES {
                    let most = MOST_INTERFACES;
                    return Err(format!("SNMP at {}: it names more than {most} interfaces", self.address));
                }
                last = number;
                names.insert(name, number);
            }
        }
    }

    /// Of the interface `number`; none: it is not there.
    fn counts(&mut self, number: u64) -> Result<Option<Answer>, String> {
        let before = self.last.get(&number).copied().unwrap_or_default();
        let version = self.right.version();
        let told = self.ask(|session| {
            let columns = [NAMES, SENT, PACKETS[0], PACKETS[1], PACKETS[2], DROPPED];
            let wanted = columns.map(|column| [column, &[number]].concat());
            let wanted: Vec<Oid<'_>> =
                wanted.iter().map(|path| oid(path)).collect::<Result<_, snmp2::Error>>()?;
            let answer = variables(session.get_many(&wanted.iter().collect::<Vec<_>>())?, version)?;
            if !answer.iter().map(|(name, _)| name).eq(&wanted) {
                return Err(snmp2::Error::Mib("the switch tells of what was not asked".to_owned()));
            }
            let values: Vec<Value<'_>> = answer.into_iter().map(|(_, value)| value).collect();
            let [Value::OctetString(name), sent, unicast, rest @ ..] = &values[..] else { return Ok(None) };
            let name = String::from_utf8_lossy(name).into_owned();
            let rest: Vec<Option<u64>> = rest.iter().map(count).collect();
            // Of others, as of 32 bits that go round in a second, nothing is known.
            let long = |value: &Value<'_>| if let Value::Counter64(n) = value { Some(*n) } else { None };
            Ok(Some((name, long(sent).zip(long(unicast)), rest)))
        })?;
        let Some((name, sent, rest)) = told else { return Ok(None) };
        let Some((sent, unicast)) = sent else { return Ok(Some(Answer::Short(name))) };
        let mut now = before;
        for (now, told) in now.iter_mut().zip(rest) {
            *now = told.unwrap_or(*now);
        }
        self.last.insert(number, now);
        let [multicast, broadcast, dropped] = now;
        let packets = unicast.saturating_add(multicast).saturating_add(broadcast);
        Ok(Some(Answer::Whole(name, Counts { sent, packets, dropped, backlog: None, flows: None })))
    }
}

/// Of the questions of a session: not the same each time.
fn first_number() -> i32 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| (since.subsec_nanos() & 0x3fff_ffff) as i32)
}

fn oid(path: &[u64]) -> Result<Oid<'static>, snmp2::Error> {
    Oid::from(path).map_err(|_| snmp2::Error::ValueOutOfRange)
}

fn count(value: &Value<'_>) -> Option<u64> {
    match value {
        Value::Counter64(n) => Some(*n),
        Value::Counter32(n) => Some((*n).into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread::{self, JoinHandle};

    use bandmaster_core::rng::Stream;
    use bandmaster_core::units::Rate;

    use super::*;

    /// An item of BER, and types of values.
    fn item(kind: u8, content: &[u8]) -> Vec<u8> {
        let length = content.len() as u16;
        let length =
            if length < 128 { vec![length as u8] } else { [&[0x82], &length.to_be_bytes()[..]].concat() };
        [&[kind][..], &length, content].concat()
    }

    const INTEGER: u8 = 2;
    const TEXT: u8 = 4;
    const COUNTER32: u8 = 0x41;
    const COUNTER64: u8 = 0x46;
    const SEQUENCE: u8 = 0x30;
    const RESPONSE: u8 = 0xa2;

    fn number(kind: u8, value: u64) -> Vec<u8> {
        let bytes = [&[0], &value.to_be_bytes()[..]].concat();
        // No more of them than are needed, the sign included.
        let needed = bytes.windows(2).take_while(|two| two[0] == 0 && two[1] < 128).count();
        item(kind, &bytes[needed..])
    }

    /// A question as the liar sees it.
    struct Question {
        number: i32,
        paths: Vec<Vec<u64>>,
    }

    type Variables = Vec<(Vec<u64>, Vec<u8>)>;
    type Lie = fn(&Question, Variables) -> Vec<u8>;

    fn answer(number_of: i32, error: u64, variables: &Variables) -> Vec<u8> {
        let one = |(path, value): &(Vec<u64>, Vec<u8>)| {
            let path = oid(path).expect("an OID");
            item(SEQUENCE, &[item(6, path.as_bytes()), value.clone()].concat())
        };
        let variables = item(SEQUENCE, &variables.iter().flat_map(one).collect::<Vec<u8>>());
        let of = item(INTEGER, &number_of.to_be_bytes());
        let response = item(RESPONSE, &[of, number(INTEGER, error), number(INTEGER, 0), variables].concat());
        item(SEQUENCE, &[number(INTEGER, 1), item(TEXT, b"public"), response].concat())
    }

    /// Interface 7 is `eth7`: what an honest agent would say.
    fn honest(question: &Question, sent: u64) -> Variables {
        let value = |path: &Vec<u64>| {
            let (column, row) = path.split_at(path.len() - 1);
            match column {
                // A walk over the column of names, which is given without a row, or with the last.
                _ if *path == NAMES => Some(([NAMES, &[7]].concat(), item(TEXT, b"eth7"))),
                NAMES if row == [7] && question.paths.len() == 1 => {
                    Some((SENT.to_vec(), number(COUNTER64, 0)))
                }
                NAMES => Some((path.clone(), item(TEXT, b"eth7"))),
                SENT => Some((path.clone(), number(COUNTER64, sent))),
                DROPPED => Some((path.clone(), number(COUNTER32, 3))),
                _ => Some((path.clone(), number(COUNTER64, 5))),
            }
        };
        question.paths.iter().filter_map(value).collect()
    }

    /// Answers by `says` until it is dropped.
    struct Liar {
        address: SocketAddr,
        ends: Arc<AtomicBool>,
        thread: Option<JoinHandle<()>>,
    }

    impl Liar {
        fn new(mut says: impl FnMut(&Question) -> Vec<u8> + Send + 'static) -> Self {
            let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
            socket.set_read_timeout(Some(Duration::from_millis(20))).expect("set");
            let (address, ends) = (socket.local_addr().expect("bound"), Arc::new(AtomicBool::new(false)));
            let ended = Arc::clone(&ends);
            let thread = thread::spawn(move || {
                let mut buffer = [0; 4096];
                while !ended.load(Ordering::Relaxed) {
                    let Ok((length, from)) = socket.recv_from(&mut buffer) else { continue };
                    let asked = Pdu::from_bytes(&buffer[..length]).expect("a question");
                    let paths =
                        asked.varbinds.map(|(name, _)| name.iter().expect("numbers").collect()).collect();
                    let _ = socket.send_to(&says(&Question { number: asked.req_id, paths }), from);
                }
            });
            Self { address, ends, thread: Some(thread) }
        }

        fn asked_by(&self, patience: Duration) -> Snmp {
            Snmp::new(self.address, Right::Community(b"public".to_vec()), patience)
        }
    }

    impl Drop for Liar {
        fn drop(&mut self) {
            self.ends.store(true, Ordering::Relaxed);
            if let Some(thread) = self.thread.take() {
                thread.join().expect("ended");
            }
        }
    }

    fn eth7() -> [Port; 1] {
        [Port { interface: "eth7".to_owned(), rate: Rate::from_bits_per_sec(1_000_000) }]
    }

    const PATIENCE: Duration = Duration::from_millis(400);

    /// A reading from a responder that is honest about names and answers requests for counters with `lie`.
    fn said(lie: impl Fn(&Question, Variables) -> Vec<u8> + Send + 'static) -> Result<Vec<Counts>, String> {
        let liar = Liar::new(move |question| {
            let truth = honest(question, 1 << 40);
            if question.paths.len() > 1 { lie(question, truth) } else { answer(question.number, 0, &truth) }
        });
        liar.asked_by(PATIENCE).read(&eth7())
    }

    #[test]
    fn an_honest_agent_is_believed_and_a_lying_one_is_not() {
        let counts = Counts { sent: 1 << 40, packets: 15, dropped: 3, backlog: None, flows: None };
        assert_eq!(said(|question, truth| answer(question.number, 0, &truth)), Ok(vec![counts]));
        let lies: [(&str, Lie); 8] = [
            ("Request ID", |question, truth| answer(question.number ^ 1, 0, &truth)),
            ("error 5", |question, truth| answer(question.number, 5, &truth)),
            ("what was not asked", |question, mut truth| {
                truth[1].0[10] += 1;
                answer(question.number, 0, &truth)
            }),
            ("what was not asked", |question, mut truth| {
                truth.swap(1, 2);
                answer(question.number, 0, &truth)
            }),
            ("what was not asked", |question, truth| answer(question.number, 0, &truth[..3].to_vec())),
            ("no counters of 64 bits", |question, mut truth| {
                truth[1].1 = number(COUNTER32, 9);
                answer(question.number, 0, &truth)
            }),
            ("calls it otherwise now", |question, mut truth| {
                truth[0].1 = number(COUNTER64, 9);
                answer(question.number, 0, &truth)
            }),
            ("SNMP at", |question, truth| {
                let whole = answer(question.number, 0, &truth);
                whole[..whole.len() / 2].to_vec()
            }),
        ];
        for (expected, lie) in lies {
            let why = said(lie).expect_err(expected);
            assert!(why.contains(expected), "{expected}: {why}");
        }
        // All that a few changed bytes can do: an answer, or an error, and no end of the program.
        let mut chance = Stream::new(1, 0, "liar");
        let liar = Liar::new(move |question| {
            let mut bytes = answer(question.number, 0, &honest(question, 1 << 40));
            for _ in 0..chance.below(4) {
                let at = chance.below(bytes.len() as u64) as usize;
                bytes[at] = chance.below(256) as u8;
            }
            bytes.truncate(bytes.len() - (chance.below(8) / 7 * chance.below(20)) as usize);
            bytes
        });
        let mut snmp = liar.asked_by(PATIENCE);
        let told = (0..5_000).filter(|_| snmp.read(&eth7()).is_ok()).count();
        assert!((100..5_000).contains(&told), "{told}");
    }

    /// The table of names goes round, or on and on.
    #[test]
    fn a_walk_ends() {
        let round = Liar::new(|question| {
            let names = vec![([NAMES, &[7]].concat(), item(TEXT, b"eth9"))];
            answer(question.number, 0, &names)
        });
        let why = round.asked_by(PATIENCE).read(&eth7()).expect_err("round");
        assert!(why.contains("goes round"), "{why}");
        let endless = Liar::new(|question| {
            let last = question.paths[0].get(NAMES.len()).copied().unwrap_or(0);
            // More than was asked for, with long names.
            let row = |at| ([NAMES, &[last + at]].concat(), item(TEXT, &[b'x'; 1000]));
            answer(question.number, 0, &(1..=30).map(row).collect())
        });
        let mut snmp = endless.asked_by(PATIENCE);
        let begin = Instant::now();
        let why = snmp.read(&eth7()).expect_err("endless");
        assert!(
            why.contains("in time") && begin.elapsed() < 2 * PATIENCE,
            "{why} after {:?}",
            begin.elapsed()
        );
        // Given enough time, the limit on the number of names ends it. The length kept per name is limited, too.
        let why = endless.asked_by(Duration::from_secs(60)).read(&eth7()).expect_err("endless");
        assert!(why.contains("more than 65536 interfaces"), "{why}");
    }

    /// Who listens on the way knows a user's name, not the passphrases.
    #[test]
    fn a_user_is_not_answered_by_snmp_2c() {
        let access =
            SnmpAccess::User { name: "public".to_owned(), file: "p".to_owned(), hash: SnmpHash::Sha256 };
        for (secret, why) in
            [("one", "each of two lines"), ("long enough\nshort", "less than 8"), ("a\nb\nc", "each")]
        {
            let said =
                Right::new(&access, secret.as_bytes()).err().map(|e| e.to_string()).unwrap_or_default();
            assert!(said.contains(why), "{secret}: {said}");
        }
        let bytes = answer(9, 0, &vec![(NAMES.to_vec(), item(TEXT, b"eth7"))]);
        let pdu = Pdu::from_bytes(&bytes).expect("an answer");
        assert_eq!(variables(pdu, Version::V3).err(), Some(snmp2::Error::UnsupportedVersion));
    }
}
