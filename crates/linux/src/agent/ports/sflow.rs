//! Ports of a switch that exports its counters by sFlow 5.
//!
//! A switch sends counter samples unasked, once an interval of its own. They are full counts, not estimates. This module
//! ignores flow samples, which hold one packet in many.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use bandmaster_core::agent::Port;
use sflow_parser::models::record_counters::GenericInterfaceCounters;
use sflow_parser::models::{CounterData, CounterRecord, SampleData};
use sflow_parser::parsers::parse_datagram;

use super::Counts;

/// Bytes of a datagram that are taken.
const MOST_DATAGRAM: usize = 65_536;
/// How often the thread looks whether somebody still wants to know.
const LOOK: Duration = Duration::from_secs(1);
/// A datagram that is older than the last by less than this was overtaken, in ms of the switch's uptime. One that is older by
/// more is of a switch that has restarted.
const OVERTAKEN: u32 = 10_000;
/// A counter that the switch does not have.
const NOT_THERE: u32 = u32::MAX;
const NOT_THERE_LONG: u64 = u64::MAX;

pub(super) struct Sflow {
    address: IpAddr,
    listen: SocketAddr,
    /// A port without samples for this long is not reported.
    patience: Duration,
    /// None until it [begins](Self::begin).
    heard: Option<Arc<Mutex<Heard>>>,
}

/// What was received.
#[derive(Default)]
struct Heard {
    /// In the order of the file.
    ports: Vec<Option<Sample>>,
    refused: Refused,
    /// Samples that came twice, or that a newer one of their port had overtaken.
    overtaken: u64,
}

/// Datagrams that were refused since the last reading.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Refused {
    strangers: bool,
    garbled: bool,
}

/// The last of a port.
#[derive(Clone, Copy, Debug)]
struct Sample {
    at: Instant,
    /// Of the switch, in ms.
    uptime: u32,
    /// Counters of 32 bits, which go round: unicast, multicast and broadcast packets, and discards.
    short: [u32; 4],
    counts: Counts,
}

impl Sflow {
    /// Nothing is heard before it [begins](Self::begin).
    pub(super) const fn new(address: IpAddr, listen: SocketAddr, patience: Duration) -> Self {
        Self { address, listen, patience, heard: None }
    }

    /// Listens from now on.
    ///
    /// # Errors
    /// When the socket cannot be had.
    pub(super) fn begin(&mut self, ports: &[Port]) -> Result<(), String> {
        if self.heard.is_some() {
            return Ok(());
        }
        let socket = UdpSocket::bind(self.listen)
            .and_then(|socket| socket.set_read_timeout(Some(LOOK)).map(|()| socket))
            .map_err(|error| format!("sFlow: udp {}: {error}", self.listen))?;
        let heard = Heard { ports: vec![None; ports.len()], ..Heard::default() };
        let heard = Arc::new(Mutex::new(heard));
        let (weak, address, names) = (Arc::downgrade(&heard), self.address, names(ports));
        thread::Builder::new()
            .name("sflow".to_owned())
            .spawn(move || listen(&socket, address, &names, &weak))
            .map_err(|error| format!("sFlow: a thread: {error}"))?;
        self.heard = Some(heard);
        Ok(())
    }

    /// Samples so far that came twice or late.
    pub(super) fn overtaken(&self) -> u64 {
        self.heard.as_ref().map_or(0, |heard| lock(heard).overtaken)
    }

    pub(super) fn read(&mut self, ports: &[Port]) -> Result<Vec<Counts>, String> {
        self.begin(ports)?;
        let Some(heard) = &self.heard else { return Ok(Vec::new()) };
        let mut heard = lock(heard);
        let refused = std::mem::take(&mut heard.refused);
        let is_fresh = |sample: &Sample| sample.at.elapsed() <= self.patience;
        let counts = |(port, sample): (&Port, &Option<Sample>)| {
            let fresh = sample.filter(is_fresh).map(|sample| sample.counts);
            fresh.ok_or_else(|| {
                let (name, address, patience) = (&port.interface, self.address, self.patience.as_secs_f64());
                let mut why =
                    format!("interface {name}: no counters by sFlow from {address} for {patience} s");
                if refused.strangers {
                    why += "; others send there";
                }
                if refused.garbled {
                    why += "; what it sends is no sFlow 5";
                }
                why
            })
        };
        ports.iter().zip(&heard.ports).map(counts).collect()
    }
}

fn names(ports: &[Port]) -> Vec<String> {
    ports.iter().map(|port| port.interface.clone()).collect()
}

fn lock(heard: &Mutex<Heard>) -> MutexGuard<'_, Heard> {
    heard.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Until nobody wants to know. What comes faster than it is read the kernel drops, and memory does not grow.
fn listen(socket: &UdpSocket, address: IpAddr, names: &[String], heard: &Weak<Mutex<Heard>>) {
    let mut buffer = vec![0; MOST_DATAGRAM];
    loop {
        let came = socket.recv_from(&mut buffer);
        let Some(heard) = heard.upgrade() else { return };
        match came {
            Ok((length, from)) => lock(&heard).take(&buffer[..length], from.ip(), address, names),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            // The interface is away, say.
            Err(_) => thread::sleep(LOOK),
        }
    }
}

impl Heard {
    /// A datagram that came `from` somewhere.
    fn take(&mut self, bytes: &[u8], from: IpAddr, address: IpAddr, names: &[String]) {
        if from.to_canonical() != address.to_canonical() {
            self.refused.strangers = true;
            return;
        }
        let Ok(datagram) = parse_datagram(bytes) else {
            self.refused.garbled = true;
            return;
        };
        for sample in &datagram.samples {
            let records = match &sample.sample_data {
                SampleData::CountersSample(sample) => &sample.counters,
                SampleData::CountersSampleExpanded(sample) => &sample.counters,
                _ => continue,
            };
            let Some((at, counters)) = port(records, names) else { continue };
            if self.ports[at].is_some_and(|last| is_overtaken(last.uptime, datagram.uptime)) {
                self.overtaken += 1;
                continue;
            }
            self.ports[at] = next(self.ports[at], datagram.uptime, counters).or(self.ports[at]);
        }
    }
}

/// Which of the ports a sample is about: by its name, or where the switch exports none by its `ifIndex`.
fn port<'a>(records: &'a [CounterRecord], names: &[String]) -> Option<(usize, &'a GenericInterfaceCounters)> {
    let counters = records.iter().find_map(|record| match &record.counter_data {
        CounterData::GenericInterface(counters) => Some(counters),
        _ => None,
    })?;
    let name = records.iter().find_map(|record| match &record.counter_data {
        CounterData::OpenFlowPortName(name) => Some(name.port_name.clone()),
        _ => None,
    });
    let name = name.unwrap_or_else(|| counters.if_index.to_string());
    Some((names.iter().position(|known| *known == name)?, counters))
}

/// A sample with this uptime comes after the `last`, and is older, or the same: a port would look idle, and not silent.
const fn is_overtaken(last: u32, uptime: u32) -> bool {
    last.wrapping_sub(uptime) < OVERTAKEN
}

/// What a port has counted, after `last`; none: it tells nothing.
fn next(last: Option<Sample>, uptime: u32, counters: &GenericInterfaceCounters) -> Option<Sample> {
    let short = [
        counters.if_out_ucast_pkts,
        counters.if_out_multicast_pkts,
        counters.if_out_broadcast_pkts,
        counters.if_out_discards,
    ];
    let sent = counters.if_out_octets;
    if sent == NOT_THERE_LONG {
        return None;
    }
    let behind = last.map_or(0, |last| last.uptime.wrapping_sub(uptime));
    // Uptime goes round after 50 days, which is no restart.
    let has_restarted = behind.wrapping_neg() > i32::MAX as u32 && behind != 0;
    let goes_on = last.filter(|last| !has_restarted && last.counts.sent <= sent);
    let [unicast, multicast, broadcast, dropped] = match goes_on {
        Some(last) => std::array::from_fn(|at| match (last.short[at], short[at]) {
            (NOT_THERE, _) | (_, NOT_THERE) => 0,
            (before, now) => u64::from(now.wrapping_sub(before)),
        }),
        None => short.map(|count| if count == NOT_THERE { 0 } else { count.into() }),
    };
    let before = goes_on.map_or(Counts::default(), |last| last.counts);
    let counts = Counts {
        sent,
        packets: before.packets.saturating_add(unicast + multicast + broadcast),
        dropped: before.dropped.saturating_add(dropped),
        backlog: None,
        flows: None,
    };
    Some(Sample { at: Instant::now(), uptime, short, counts })
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use bandmaster_core::rng::Stream;
    use bandmaster_core::units::Rate;

    use super::*;

    const SWITCH: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7));

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_be_bytes()).collect()
    }

    /// XDR's opaque, after its format.
    fn opaque(format: u32, mut content: Vec<u8>) -> Vec<u8> {
        let mut all = words(&[format, content.len() as u32]);
        content.resize(content.len().next_multiple_of(4), 0);
        all.extend(content);
        all
    }

    /// A counter sample of one interface, as Open vSwitch exports it.
    fn sample(index: u32, name: Option<&str>, sent: u64, short: [u32; 4]) -> Vec<u8> {
        let mut counters = words(&[index, 6, 0, 1_000_000_000, 1, 3, 0, 77, 7, 7, 7, 0, 0, 0]);
        counters.extend(sent.to_be_bytes());
        counters.extend(words(&[short[0], short[1], short[2], short[3], 0, 0]));
        let mut records = opaque(1, counters);
        if let Some(name) = name {
            let mut text = words(&[name.len() as u32]);
            text.extend(name.bytes());
            text.resize(text.len().next_multiple_of(4), 0);
            records.extend(opaque(1005, text));
        }
        let mut content = words(&[9, index, 1 + u32::from(name.is_some())]);
        content.extend(records);
        opaque(2, content)
    }

    fn datagram(uptime: u32, samples: &[Vec<u8>]) -> Vec<u8> {
        let mut all = words(&[5, 1, 0xc000_0207, 0, 1, uptime, samples.len() as u32]);
        all.extend(samples.concat());
        all
    }

    fn heard(names: &[&str]) -> (Heard, Vec<String>) {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        (Heard { ports: vec![None; names.len()], ..Heard::default() }, names)
    }

    fn counts(heard: &Heard, at: usize) -> Option<[u64; 3]> {
        heard.ports[at].map(|sample| [sample.counts.sent, sample.counts.packets, sample.counts.dropped])
    }

    #[test]
    fn counters_go_on_over_what_switches_and_networks_do() {
        let (mut heard, names) = heard(&["to0", "12"]);
        let mut take = |uptime, index, name, sent, short| {
            heard.take(&datagram(uptime, &[sample(index, name, sent, short)]), SWITCH, SWITCH, &names);
            [counts(&heard, 0), counts(&heard, 1)]
        };
        let none = NOT_THERE;
        assert_eq!(take(1000, 3, Some("to0"), 500, [5, none, none, 1]), [Some([500, 5, 1]), None]);
        // By its number where there is no name; one with a name is not found by its number.
        assert_eq!(take(1000, 12, Some("other"), 1, [1, 0, 0, 0])[1], None);
        assert_eq!(take(1000, 12, None, 7, [1, 1, 1, 0])[1], Some([7, 3, 0]));
        // Overtaken.
        assert_eq!(take(3000, 3, Some("to0"), 900, [9, none, none, 2])[0], Some([900, 9, 2]));
        assert_eq!(take(2000, 3, Some("to0"), 700, [7, none, none, 1])[0], Some([900, 9, 2]));
        // Counters of 32 bits go round, and so does uptime.
        take(i32::MAX as u32, 3, Some("to0"), 950, [10, 0, 0, 2]);
        let long = u32::MAX - 4000;
        assert_eq!(take(long, 3, Some("to0"), 1000, [u32::MAX - 1, 0, 0, 3])[0], Some([1000, 4294967294, 3]));
        assert_eq!(take(1000, 3, Some("to0"), 2000, [8, 0, 0, 3])[0], Some([2000, 4294967304, 3]));
        // What the switch does not count.
        assert_eq!(take(2000, 3, Some("to0"), NOT_THERE_LONG, [9; 4])[0], Some([2000, 4294967304, 3]));
        // A restart: all begins again, also where a counter is already higher than it was.
        assert_eq!(take(60_000, 3, Some("to0"), 3000, [9, 0, 0, 4])[0], Some([3000, 4294967305, 4]));
        assert_eq!(take(100, 3, Some("to0"), 4000, [40, 0, 0, 0])[0], Some([4000, 40, 0]));
        // A recreated port of a switch that did not restart.
        assert_eq!(take(5000, 3, Some("to0"), 10, [1, 0, 0, 0])[0], Some([10, 1, 0]));
        assert_eq!(heard.overtaken, 1);
    }

    /// An exporter that is stuck, or a network that repeats a datagram, does not make a port look idle.
    #[test]
    fn what_comes_twice_is_not_fresh() {
        let (mut heard, names) = heard(&["to0"]);
        let whole = datagram(1000, &[sample(3, Some("to0"), 500, [5, 0, 0, 0])]);
        heard.take(&whole, SWITCH, SWITCH, &names);
        let first = heard.ports[0].map(|sample| sample.at);
        heard.take(&whole, SWITCH, SWITCH, &names);
        assert_eq!((heard.ports[0].map(|sample| sample.at), heard.overtaken), (first, 1));
        heard.take(&datagram(1001, &[sample(3, Some("to0"), 500, [5, 0, 0, 0])]), SWITCH, SWITCH, &names);
        assert!(heard.ports[0].map(|sample| sample.at) > first);
    }

    #[test]
    fn strangers_and_forged_sizes_change_nothing_and_take_no_memory() {
        let (mut heard, names) = heard(&["to0"]);
        let whole = datagram(1000, &[sample(3, Some("to0"), 500, [5, 0, 0, 0])]);
        let stranger = IpAddr::from([192, 0, 2, 8]);
        heard.take(&whole, stranger, SWITCH, &names);
        assert_eq!((counts(&heard, 0), heard.refused.strangers), (None, true));
        // The same address, as a socket of IPv6 tells it.
        heard.take(&whole, "::ffff:192.0.2.7".parse().expect("an address"), SWITCH, &names);
        assert_eq!(counts(&heard, 0), Some([500, 5, 0]));
        for length in 0..whole.len() {
            heard.refused = Refused::default();
            heard.take(&whole[..length], SWITCH, SWITCH, &names);
            assert!(heard.refused.garbled, "{length} bytes");
        }
        // Each word is the largest there is, or wants 4 GB, or 99 MB.
        for place in (0..whole.len()).step_by(4) {
            for forged in [u32::MAX, 99 << 20, 0] {
                let mut bytes = whole.clone();
                bytes[place..place + 4].copy_from_slice(&forged.to_be_bytes());
                heard.take(&bytes, SWITCH, SWITCH, &names);
            }
        }
        assert_eq!((heard.ports.len(), Counts::default().sent), (1, 0));
        let mut chance = Stream::new(1, 0, "sflow");
        for _ in 0..200_000 {
            let mut bytes = whole.clone();
            for _ in 0..=chance.below(4) {
                let at = chance.below(bytes.len() as u64) as usize;
                bytes[at] = chance.below(256) as u8;
            }
            heard.take(&bytes, SWITCH, SWITCH, &names);
        }
        assert_eq!(heard.ports.len(), 1);
    }

    /// Over a socket: a flood of others, and a switch that falls silent.
    #[test]
    fn silence_is_not_idleness() {
        let any: SocketAddr = "127.0.0.1:0".parse().expect("an address");
        let free = UdpSocket::bind(any).and_then(|socket| socket.local_addr()).expect("a port");
        let ports = [Port { interface: "to0".to_owned(), rate: Rate::from_bits_per_sec(1) }];
        let patience = Duration::from_millis(500);
        let mut sflow = Sflow::new("127.0.0.2".parse().expect("an address"), free, patience);
        sflow.begin(&ports).expect("a socket");
        let said = sflow.read(&ports).expect_err("nothing came");
        assert_eq!(said, "interface to0: no counters by sFlow from 127.0.0.2 for 0.5 s");
        let stranger = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let switch = UdpSocket::bind("127.0.0.2:0").expect("a port");
        let whole = datagram(1000, &[sample(3, Some("to0"), 500, [5, 0, 0, 0])]);
        for _ in 0..20_000 {
            stranger.send_to(&whole, free).expect("sent");
        }
        let begin = Instant::now();
        while sflow.read(&ports).is_err() {
            assert!(begin.elapsed() < Duration::from_secs(5), "nothing is heard");
            switch.send_to(&whole, free).expect("sent");
            thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(sflow.read(&ports).map(|all| all[0].sent), Ok(500));
        let second = Sflow::new(SWITCH, free, patience).begin(&ports).expect_err("taken");
        assert!(second.contains("in use"), "{second}");
        thread::sleep(patience + Duration::from_millis(100));
        stranger.send_to(&whole, free).expect("sent");
        thread::sleep(Duration::from_millis(100));
        assert!(sflow.read(&ports).is_err_and(|why| why.ends_with("; others send there")));
    }
}
