//! Ports of a switch, by SNMP 2c: the counters of 64 bits of the IF-MIB (RFC 2863).

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bandmaster_core::agent::Port;
use snmp2::{Oid, SyncSession, Value};

use super::{Counts, left};

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
/// Times that a question is asked again.
const TRIES: u32 = 2;

pub(super) struct Snmp {
    address: SocketAddr,
    community: Vec<u8>,
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

impl Snmp {
    pub(super) fn new(address: SocketAddr, community: Vec<u8>, patience: Duration) -> Self {
        let (numbers, last) = (BTreeMap::new(), BTreeMap::new());
        Self { address, community, patience, until: Instant::now(), session: None, numbers, last }
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
                // The switch has numbered its interfaces anew.
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
                let wait = Some((self.patience / TRIES).min(left));
                let new = SyncSession::new_v2c(self.address, &self.community, wait, first_number());
                self.session = Some(new.map_err(|error| format!("udp {}: {error}", self.address))?);
            }
            let Some(session) = &mut self.session else { break };
            match question(session) {
                Ok(answer) => return Ok(answer),
                Err(error) => why = error.to_string(),
            }
            self.session = None;
        }
        Err(format!("SNMP at {}: {why}", self.address))
    }

    /// Numbers of all interfaces by name.
    fn names(&mut self) -> Result<BTreeMap<String, u64>, String> {
        let mut names = BTreeMap::new();
        let mut last = 0;
        loop {
            let from = [NAMES, if last == 0 { &[] } else { std::slice::from_ref(&last) }].concat();
            let rows = self.ask(|session| {
                let from = oid(&from)?;
                let answer = session.getbulk(&[&from], 0, ROWS)?;
                // The column ends where another begins.
                let row = |(name, value): (Oid<'_>, Value<'_>)| {
                    let path: Vec<u64> = name.iter()?.collect();
                    let number = path.strip_prefix(NAMES).filter(|rest| rest.len() == 1)?[0];
                    let Value::OctetString(text) = value else { return None };
                    Some((number, String::from_utf8_lossy(text).into_owned()))
                };
                Ok(answer.varbinds.map_while(row).collect::<Vec<_>>())
            })?;
            if rows.is_empty() {
                return Ok(names);
            }
            for (number, name) in rows {
                // RFC 3416: what comes next is behind what was asked.
                if number <= last {
                    return Err(format!("SNMP at {}: its table of names goes round", self.address));
                }
                last = number;
                names.insert(name, number);
            }
        }
    }

    /// Of the interface `number`; none: it is not there.
    fn counts(&mut self, number: u64) -> Result<Option<Answer>, String> {
        let before = self.last.get(&number).copied().unwrap_or_default();
        let told = self.ask(|session| {
            let columns = [NAMES, SENT, PACKETS[0], PACKETS[1], PACKETS[2], DROPPED];
            let wanted = columns.map(|column| [column, &[number]].concat());
            let wanted: Vec<Oid<'_>> =
                wanted.iter().map(|path| oid(path)).collect::<Result<_, snmp2::Error>>()?;
            let answer = session.get_many(&wanted.iter().collect::<Vec<_>>())?;
            let values: Vec<Value<'_>> = answer.varbinds.map(|(_, value)| value).collect();
            let [Value::OctetString(name), sent, unicast, rest @ ..] = &values[..] else { return Ok(None) };
            let name = String::from_utf8_lossy(name).into_owned();
            let rest: Vec<Option<u64>> = rest.iter().map(count).collect();
            Ok(Some((name, count(sent).zip(count(unicast)), rest)))
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
