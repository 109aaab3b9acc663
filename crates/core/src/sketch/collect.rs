//! Counts the connections of a host.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::{About, BURST, MOST_STARTS, Row, TOGETHER, Way};
use crate::time::{Span, Time};

/// A connection carries a transfer one way when it carries more than these ten segments, or no less than the other way.
const REPLY: u64 = 14_480;
/// Most peers that are distinguished.
const MOST_PEERS: usize = 512;

/// A connection that has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ended {
    /// Its number, which no other has.
    pub cookie: u64,
    /// The other end.
    pub peer: IpAddr,
    /// This host has opened it.
    pub opened: bool,
    /// It was established.
    pub established: bool,
    /// When it began.
    pub began: Time,
    /// Payload bytes that were sent and acknowledged, and received.
    pub bytes: [u64; 2],
    /// From its begin until the last was acknowledged, and received.
    pub times: [Option<Span>; 2],
}

/// A live connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Live {
    /// Its number, which no other has.
    pub cookie: u64,
    /// The other end.
    pub peer: IpAddr,
    /// Payload bytes that were sent and acknowledged, and received.
    pub bytes: [u64; 2],
}

const WAYS: [Way; 2] = [Way::Sent, Way::Received];

/// Of an interval.
#[derive(Clone, Debug, Default)]
pub struct Collector {
    about: About,
    rows: BTreeMap<(IpAddr, Way, bool), Row>,
    /// What this host has received.
    starts: Vec<Start>,
    /// By cookie: the bytes of live connections that were reported.
    told: BTreeMap<u64, [u64; 2]>,
}

#[derive(Clone, Copy, Debug)]
struct Start {
    began: Time,
    peer: IpAddr,
    bytes: u64,
    time: Option<Span>,
}

/// Whether what went either way is a transfer.
fn transfers([sent, received]: [u64; 2]) -> [bool; 2] {
    let is = |own: u64, other: u64| own > 0 && (own >= other || own > REPLY);
    [is(sent, received), is(received, sent)]
}

impl Collector {
    /// A connection has ended.
    pub fn end(&mut self, ended: &Ended) {
        if !ended.established {
            self.about.failed = self.about.failed.saturating_add(1);
            return;
        }
        if let Some(told) = self.told.remove(&ended.cookie).filter(|told| *told != [0; 2]) {
            self.hold(ended.peer, told, ended.bytes);
            return;
        }
        let [sends, receives] = transfers(ended.bytes);
        let time = |way: usize| ended.times[way].filter(|_| ended.opened);
        if sends {
            self.note(ended.peer, Way::Sent, false, ended.bytes[0], time(0));
        }
        if !receives {
            return;
        }
        if self.starts.len() == MOST_STARTS {
            return self.miss(1);
        }
        self.starts.push(Start {
            began: ended.began,
            peer: ended.peer,
            bytes: ended.bytes[1],
            time: time(1),
        });
    }

    /// Connections have ended of which nothing is known.
    pub fn miss(&mut self, count: u32) {
        self.about.missed = self.about.missed.saturating_add(count);
    }

    fn row(&mut self, peer: IpAddr, way: Way, in_burst: bool) -> &mut Row {
        let is_known = self.rows.contains_key(&(peer, way, in_burst));
        let peer = if is_known || self.rows.len() < MOST_PEERS { peer } else { [0; 4].into() };
        self.rows.entry((peer, way, in_burst)).or_insert_with(|| Row {
            peer,
            way,
            in_burst,
            bytes: 0,
            sizes: Default::default(),
            times: Default::default(),
            held: 0,
        })
    }

    fn note(&mut self, peer: IpAddr, way: Way, in_burst: bool, bytes: u64, time: Option<Span>) {
        let row = self.row(peer, way, in_burst);
        row.bytes += bytes;
        row.sizes.note(bytes);
        if let Some(time) = time {
            row.times.note(time.as_nanos() / 1000);
        }
    }

    /// A connection that lives long has carried more.
    fn hold(&mut self, peer: IpAddr, before: [u64; 2], now: [u64; 2]) {
        let carried = [0, 1].map(|way| now[way].saturating_sub(before[way]));
        for ((way, bytes), is) in WAYS.into_iter().zip(carried).zip(transfers(carried)) {
            if is {
                self.row(peer, way, false).held += bytes;
            }
        }
    }

    /// The interval ends, with these connections `live`: what there is to tell of it.
    pub fn finish(&mut self, live: impl IntoIterator<Item = Live>) -> (About, Vec<Row>) {
        let mut told = BTreeMap::new();
        for Live { cookie, peer, bytes } in live {
            // One that began in this interval may end in the next, and is a transfer then.
            let now = match self.told.remove(&cookie) {
                Some(before) => {
                    self.hold(peer, before, bytes);
                    bytes
                }
                None => [0; 2],
            };
            told.insert(cookie, now);
        }
        self.told = told;
        let mut starts = std::mem::take(&mut self.starts);
        starts.sort_unstable_by_key(|start| (start.began, start.peer));
        let mut rest = &starts[..];
        while let Some(first) = rest.first() {
            let end = rest.partition_point(|start| start.began.since(first.began) < TOGETHER);
            let (together, after) = rest.split_at(end);
            self.about.bursts.note(end as u64);
            let spread = together.last().map_or(Span::ZERO, |last| last.began.since(first.began));
            self.about.spread += spread.as_nanos() / 1000;
            for start in together {
                self.note(start.peer, Way::Received, end as u64 >= BURST, start.bytes, start.time);
            }
            rest = after;
        }
        (std::mem::take(&mut self.about), std::mem::take(&mut self.rows).into_values().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 9));

    fn ended(cookie: u64, began: u64, bytes: [u64; 2]) -> Ended {
        let times = [Some(Span::from_millis(3)), Some(Span::from_millis(5))];
        let began = Time::ZERO + Span::from_micros(began);
        Ended { cookie, peer: PEER, opened: true, established: true, began, bytes, times }
    }

    /// A request of 200 bytes goes with its answer; what is large both ways is two transfers.
    #[test]
    fn a_connection_is_one_transfer_or_two() {
        let mut collector = Collector::default();
        collector.end(&ended(1, 0, [200, 50_000]));
        collector.end(&ended(2, 1_000_000, [20_000, 50_000]));
        collector.end(&ended(3, 2_000_000, [0, 0]));
        collector.end(&Ended { established: false, ..ended(4, 0, [0, 0]) });
        let (about, rows) = collector.finish([]);
        let told: Vec<_> =
            rows.iter().map(|row| (row.way, row.bytes, row.sizes.count(), row.times.count())).collect();
        assert_eq!(told, [(Way::Sent, 20_000, 1, 1), (Way::Received, 100_000, 2, 2)]);
        assert_eq!((about.failed, about.missed, about.bursts.count()), (1, 0, 2));
        assert_eq!(
            collector.finish([]),
            (About::default(), Vec::new()),
            "the next interval begins with nothing"
        );
    }

    #[test]
    fn transfers_that_begin_together_are_a_burst() {
        let mut collector = Collector::default();
        // Four within 3 ms, across a whole number of slots; one 4 ms after the first; the accepting end times none.
        for (cookie, began) in [(1, 7_900), (2, 6_000), (3, 8_100), (4, 9_000), (5, 10_000)] {
            collector.end(&Ended { opened: false, ..ended(cookie, began, [0, 32_000]) });
        }
        let (about, rows) = collector.finish([]);
        assert_eq!(about.bursts.middles().collect::<Vec<_>>(), [(1.0, 1), (4.0, 1)]);
        assert_eq!(about.spread, 3_000);
        let told: Vec<_> =
            rows.iter().map(|row| (row.in_burst, row.sizes.count(), row.times.count())).collect();
        assert_eq!(told, [(false, 1, 0), (true, 4, 0)]);
    }

    /// A connection counts as a transfer when it ends, unless it lives through an interval: then what it carries is held.
    #[test]
    fn what_lives_long_is_counted_once() {
        let live = |cookie, bytes| Live { cookie, peer: PEER, bytes: [bytes, 0] };
        let mut collector = Collector::default();
        assert_eq!(collector.finish([live(1, 1000), live(2, 500)]).1, []);
        collector.end(&ended(2, 0, [700, 0]));
        let (_, rows) = collector.finish([live(1, 5000)]);
        assert_eq!((rows[0].bytes, rows[0].held), (700, 5000));
        collector.end(&ended(1, 0, [6000, 0]));
        let (_, rows) = collector.finish([]);
        assert_eq!((rows[0].bytes, rows[0].held, rows[0].sizes.count()), (0, 1000, 0));
    }

    #[test]
    fn memory_is_bounded() {
        let mut collector = Collector::default();
        for n in 0..2000u32 {
            let peer = std::net::Ipv4Addr::from_bits(0x0a00_0000 + n).into();
            collector.end(&Ended { peer, ..ended(u64::from(n), 0, [100, 0]) });
        }
        for n in 0..MOST_STARTS as u64 + 5 {
            collector.end(&ended(n, n, [0, 100]));
        }
        let (about, rows) = collector.finish([]);
        assert_eq!(about.missed, 5);
        assert!(rows.len() <= MOST_PEERS + 3, "{}", rows.len());
        let others = rows.iter().find(|row| row.peer.is_unspecified() && row.way == Way::Sent);
        assert_eq!(others.map(|row| row.sizes.count()), Some(2000 - MOST_PEERS as u64));
    }
}
