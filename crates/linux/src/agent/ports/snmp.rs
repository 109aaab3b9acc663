//! Ports of a switch, by SNMP 2c: the counters of 64 bits of the IF-MIB (RFC 2863).

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bandmaster_core::agent::Port;
use bandmaster_core::time::Span;
use snmp2::{Oid, SyncSession, Value};

use super::Counts;

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
/// Rows that are looked at; a chassis has some thousands.
const MOST_ROWS: usize = 100_000;
/// Times that a question is asked again.
const TRIES: u32 = 2;

pub(super) struct Snmp {
    address: SocketAddr,
    community: Vec<u8>,
    patience: Duration,
    session: Option<SyncSession>,
    /// Numbers of interfaces by their names, as of the last look.
    numbers: BTreeMap<String, u64>,
}

impl Snmp {
    pub(super) fn new(address: SocketAddr, community: Vec<u8>, patience: Span) -> Self {
        // Each question may be asked again within it.
        let patience =
            Duration::from_nanos(patience.as_nanos() / u64::from(TRIES)).max(Duration::from_millis(50));
        Self { address, community, patience, session: None, numbers: BTreeMap::new() }
    }

    pub(super) fn read(&mut self, ports: &[Port]) -> Result<Vec<Counts>, String> {
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
            let answer = self.counts(number)?;
            match answer {
                Some((name, counts)) if name == *interface => all.push(counts),
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
        let mut last = None;
        for _ in 0..TRIES {
            if self.session.is_none() {
                // A socket of its own: late answers to an earlier question go to another.
                let new =
                    SyncSession::new_v2c(self.address, &self.community, Some(self.patience), first_number());
                self.session = Some(new.map_err(|error| format!("udp {}: {error}", self.address))?);
            }
            let Some(session) = &mut self.session else { break };
            match question(session) {
                Ok(answer) => return Ok(answer),
                Err(error) => last = Some(error),
            }
            self.session = None;
        }
        let why = last.map_or("no answer".to_owned(), |error| error.to_string());
        Err(format!("SNMP at {}: {why}", self.address))
    }

    /// Numbers of all interfaces by name.
    fn names(&mut self) -> Result<BTreeMap<String, u64>, String> {
        let mut names = BTreeMap::new();
        let mut last = NAMES.to_vec();
        loop {
            let rows = self.ask(|session| {
                let from = oid(&last)?;
                let answer = session.getbulk(&[&from], 0, ROWS)?;
                let row = |(name, value): (Oid<'_>, Value<'_>)| {
                    let path: Vec<u64> = name.iter()?.collect();
                    let number = path.strip_prefix(NAMES).filter(|rest| rest.len() == 1)?[0];
                    let Value::OctetString(text) = value else { return None };
                    Some((number, String::from_utf8_lossy(text).into_owned()))
                };
                Ok(answer.varbinds.map_while(row).collect::<Vec<_>>())
            })?;
            let Some((highest, _)) = rows.last() else { return Ok(names) };
            last = [NAMES, &[*highest]].concat();
            let is_full = rows.len() == ROWS as usize;
            names.extend(rows.into_iter().map(|(number, name)| (name, number)));
            if !is_full || names.len() > MOST_ROWS {
                return Ok(names);
            }
        }
    }

    /// Of the interface `number`: how it is called, and what it counts. None: it is not there, or lacks a counter.
    fn counts(&mut self, number: u64) -> Result<Option<(String, Counts)>, String> {
        self.ask(|session| {
            let columns = [NAMES, SENT, PACKETS[0], PACKETS[1], PACKETS[2], DROPPED];
            let wanted = columns.map(|column| [column, &[number]].concat());
            let wanted: Vec<Oid<'_>> =
                wanted.iter().map(|path| oid(path)).collect::<Result<_, snmp2::Error>>()?;
            let answer = session.get_many(&wanted.iter().collect::<Vec<_>>())?;
            let values: Vec<Value<'_>> = answer.varbinds.map(|(_, value)| value).collect();
            let [Value::OctetString(name), sent, one, many, all, dropped] = &values[..] else {
                return Ok(None);
            };
            let (Some(sent), Some(one)) = (count(sent), count(one)) else { return Ok(None) };
            // Not every switch tells these.
            let [many, all, dropped] = [many, all, dropped].map(|value| count(value).unwrap_or(0));
            let packets = one + many + all;
            let counts = Counts { sent, packets, dropped, backlog: None, flows: None };
            Ok(Some((String::from_utf8_lossy(name).into_owned(), counts)))
        })
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
