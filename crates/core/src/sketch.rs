//! What hosts report of a minute's connections, so that the minute can be simulated: how many, how large, from when to when.
//!
//! A [`Collector`](collect::Collector) counts at a host, a [`Report`] is a message about an interval, in [parts], and a
//! controller keeps what it [reads](read) as [`Kept`]. All counts are of whole intervals, so that reports add up.

pub mod collect;

use core::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::control;
use crate::time::Span;

/// Takes the place of the scheme's code in messages. No scheme has it: a controller that does not know it refuses the
/// message as one of another scheme.
pub const CODE: u16 = 0x0100;
/// How long an interval is.
pub const INTERVAL: Span = Span::from_secs(60);
/// Transfers that begin within such a time of the first begin together.
pub const TOGETHER: Span = Span::from_millis(4);
/// This many transfers that begin together are a burst.
pub const BURST: u64 = 4;

/// Most bytes of rows that report an interval. Beyond it, the smallest rows are merged into rows of many peers.
pub const MOST: usize = 120_000;

/// Version of the form.
const VERSION: u8 = 1;
/// Bytes of rows in a part, so that it fits into a packet.
const PART: usize = 1_100;
/// Most parts of an interval.
const MOST_PARTS: u16 = 256;
/// Rows of a part, and buckets of a histogram, at most.
const MOST_ROWS: usize = 256;
const BUCKETS: u16 = (64 - 2) << FINE;
/// Most characters of the name of a congestion control.
const MOST_NAME: usize = 16;
/// Shortest and longest interval that are accepted, in ms. A shorter one is reported as the shortest.
const SHORTEST: u32 = 1_000;
const LONGEST: u32 = 600_000;
/// Most transfers to a host in an interval that are distinguished by their start.
const MOST_STARTS: usize = 1 << 16;
/// Most that is accepted for an interval: values of a bucket, bytes of a row (3.7 Tbit/s for the longest), and us of a tick.
const MOST_COUNT: u32 = 1 << 24;
const MOST_BYTES: u64 = 1 << 48;
const MOST_TICK: u32 = 100_000;

/// A bucket is an eighth of a power of two wide: what is drawn from it is within 12.5 % of what was counted.
const FINE: u16 = 3;

/// How often values occurred, in buckets that widen with the value.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Histogram(BTreeMap<u16, u32>);

/// The bucket of a value.
fn bucket(value: u64) -> u16 {
    let exponent = value.checked_ilog2().unwrap_or(0) as u16;
    if exponent < FINE {
        return value as u16;
    }
    let fraction = (value >> (exponent - FINE)) as u16 & ((1 << FINE) - 1);
    (exponent - FINE + 1) << FINE | fraction
}

/// Values of a bucket: the least, and how many there are.
fn edges(bucket: u16) -> (u64, u64) {
    let (exponent, fraction) = (bucket >> FINE, u64::from(bucket & ((1 << FINE) - 1)));
    match exponent.checked_sub(1) {
        None => (fraction, 1),
        Some(shift) => ((1 << FINE | fraction) << shift, 1 << shift),
    }
}

impl Histogram {
    /// Counts a value.
    pub fn note(&mut self, value: u64) {
        self.add(bucket(value), 1);
    }

    fn add(&mut self, bucket: u16, count: u32) {
        let entry = self.0.entry(bucket).or_default();
        *entry = entry.saturating_add(count);
    }

    /// Adds the counts of another histogram.
    pub fn merge(&mut self, other: &Self) {
        other.0.iter().for_each(|(bucket, count)| self.add(*bucket, *count));
    }

    /// How many values there are.
    pub fn count(&self) -> u64 {
        self.0.values().map(|count| u64::from(*count)).sum()
    }

    /// True without values.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Each bucket's middle, and its count.
    pub fn middles(&self) -> impl Iterator<Item = (f64, u64)> {
        self.0.iter().map(|(bucket, count)| {
            let (least, width) = edges(*bucket);
            (least as f64 + (width - 1) as f64 / 2.0, u64::from(*count))
        })
    }

    /// The mean, with all values of a bucket in its middle.
    pub fn mean(&self) -> f64 {
        self.middles().map(|(middle, count)| middle * count as f64).sum::<f64>() / self.count() as f64
    }

    /// The value below which `share` of the values lie, with a bucket's values spread evenly over it. Not-a-number without values.
    pub fn quantile(&self, share: f64) -> f64 {
        let wanted = share * self.count() as f64;
        let mut below = 0.0;
        for (bucket, count) in &self.0 {
            let ((least, width), count) = (edges(*bucket), f64::from(*count));
            if below + count >= wanted {
                return least as f64 + (width - 1) as f64 * ((wanted - below) / count).clamp(0.0, 1.0);
            }
            below += count;
        }
        f64::NAN
    }

    /// The value at `unit`, from 0 to 1, of the values in order: what is drawn when it is.
    pub fn at(&self, unit: f64) -> u64 {
        if self.is_empty() { 0 } else { self.quantile(unit).round() as u64 }
    }

    fn is_sound(&self) -> bool {
        self.0.iter().all(|(bucket, count)| *bucket < BUCKETS && (1..=MOST_COUNT).contains(count))
    }

    /// The least that all values can add up to, a zero as one.
    fn least_sum(&self) -> u64 {
        let each = |(bucket, count): (&u16, &u32)| edges(*bucket).0.max(1).saturating_mul((*count).into());
        self.0.iter().map(each).fold(0, u64::saturating_add)
    }
}

/// Which way data go.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Way {
    /// From this host.
    Sent,
    /// To this host.
    Received,
}

/// A part of a host's report of an interval.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Report {
    version: u8,
    /// Number of the interval since the agent began.
    pub interval: u32,
    /// How long it was, in milliseconds.
    pub length: u32,
    /// Number of this part.
    pub part: u16,
    /// Parts in all.
    pub parts: u16,
    /// What is of no peer; in the first part.
    pub about: Option<About>,
    /// What is of peers.
    pub rows: Vec<Row>,
}

/// What a host reports apart from its peers.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct About {
    /// Congestion control of connections that choose none.
    pub control: String,
    /// A tick of the kernel's timers, in us.
    pub tick: u32,
    /// RACK and tail-loss probes are on.
    pub rack: bool,
    /// Connections that ended and were not counted.
    pub missed: u32,
    /// Connections that were never established.
    pub failed: u32,
    /// How many transfers to this host began [together], by how many they were.
    ///
    /// [together]: TOGETHER
    pub bursts: Histogram,
    /// From the first to the last of those that were more than one, in us, in all.
    pub spread: u64,
}

/// Transfers between a host and a peer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Row {
    /// The other end; unspecified: many.
    pub peer: IpAddr,
    /// Which way.
    pub way: Way,
    /// They began in [bursts](BURST); known of what a host receives.
    pub in_burst: bool,
    /// Bytes of them in all.
    pub bytes: u64,
    /// Bytes per transfer.
    pub sizes: Histogram,
    /// Completion times in us, of connections that this host has opened.
    pub times: Histogram,
    /// Bytes of connections that have lived longer than an interval.
    pub held: u64,
}

impl About {
    /// A host can have counted it: what is drawn from it is bounded.
    fn is_sound(&self) -> bool {
        self.control.len() <= MOST_NAME
            && self.tick <= MOST_TICK
            && self.bursts.is_sound()
            && self.bursts.least_sum() <= MOST_STARTS as u64
            && self.spread <= MOST_STARTS as u64 * (TOGETHER.as_nanos() / 1000)
    }
}

impl Row {
    fn merge(&mut self, other: &Self) {
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.held = self.held.saturating_add(other.held);
        self.sizes.merge(&other.sizes);
        self.times.merge(&other.times);
    }

    fn is_sound(&self) -> bool {
        self.sizes.is_sound() && self.times.is_sound() && self.bytes.max(self.held) <= MOST_BYTES
    }
}

/// What fits of rows, and the smallest of them added up when there are too many.
fn folded(mut rows: Vec<Row>) -> Vec<Row> {
    let size = |row: &Row| control::body(row).len();
    if rows.iter().map(size).sum::<usize>() <= MOST {
        return rows;
    }
    rows.sort_by_key(|row| Reverse(row.bytes.saturating_add(row.held)));
    let mut filled = 0;
    let fits = |row: &&Row| {
        filled += size(row);
        filled <= MOST
    };
    let rest = rows.split_off(rows.iter().take_while(fits).count());
    for row in rest {
        let is_same =
            |of: &&mut Row| of.peer.is_unspecified() && (of.way, of.in_burst) == (row.way, row.in_burst);
        match rows.iter_mut().find(is_same) {
            Some(many) => many.merge(&row),
            None => rows.push(Row { peer: [0; 4].into(), ..row }),
        }
    }
    rows
}

/// A host's report of its `number`-th interval, of `length`, as bodies of messages.
pub fn parts(number: u32, length: Span, about: About, rows: Vec<Row>) -> Vec<Vec<u8>> {
    let mut all: Vec<Vec<Row>> = vec![Vec::new()];
    let mut filled = control::body(&about).len();
    // Two parts in a row hold more than one can: these are no more than `MOST_PARTS`.
    for row in folded(rows) {
        let size = control::body(&row).len();
        if filled + size > PART && !(all.len() == 1 && all[0].is_empty()) {
            all.push(Vec::new());
            filled = 0;
        }
        filled += size;
        if let Some(last) = all.last_mut() {
            last.push(row);
        }
    }
    let parts = all.len() as u16;
    let mut about = Some(about);
    let report = |(part, rows): (u16, Vec<Row>)| {
        let length = u32::try_from(length.as_nanos() / 1_000_000).unwrap_or(u32::MAX).max(SHORTEST);
        control::body(&Report {
            version: VERSION,
            interval: number,
            length,
            part,
            parts,
            about: about.take(),
            rows,
        })
    };
    (0..).zip(all).map(report).collect()
}

/// What a body says; none for what this version does not know, or no host says.
pub fn read(body: &[u8]) -> Option<Report> {
    let (report, rest) = postcard::take_from_bytes::<Report>(body).ok()?;
    let is_sound = rest.is_empty()
        && report.version == VERSION
        && report.part < report.parts
        && report.parts <= MOST_PARTS
        && (SHORTEST..=LONGEST).contains(&report.length)
        && report.rows.len() <= MOST_ROWS
        && report.rows.iter().all(Row::is_sound)
        && report.about.is_some() == (report.part == 0)
        && report.about.as_ref().is_none_or(About::is_sound);
    is_sound.then_some(report)
}

/// A report as a controller keeps it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Kept {
    /// The host's number.
    pub host: u32,
    /// Where its report came from.
    pub from: IpAddr,
    /// What it says.
    pub report: Vec<u8>,
}

impl Kept {
    /// A line of a file: its length, then itself.
    pub fn line(&self) -> Vec<u8> {
        let content = control::body(self);
        let length = (content.len() as u32).to_be_bytes();
        [&length[..], &content].concat()
    }

    /// The lines of a file. One that is cut off ends them; one that is false is left out.
    pub fn lines(file: &[u8]) -> Vec<(Self, Report)> {
        let read = |content| {
            let (kept, _) = postcard::take_from_bytes::<Self>(content).ok()?;
            let report = read(&kept.report)?;
            Some((kept, report))
        };
        contents(file).filter_map(read).collect()
    }

    /// Bytes of a file up to a line that is cut off.
    pub fn whole(file: &[u8]) -> usize {
        contents(file).map(|content| 4 + content.len()).sum()
    }
}

/// What is in the whole lines of a file.
fn contents(mut file: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (length, rest) = file.split_first_chunk::<4>()?;
        let (content, rest) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
        file = rest;
        (!content.is_empty()).then_some(content)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_bucket_has_its_values_and_is_an_eighth_wide(value in any::<u64>(), shift in 0u32..64) {
            let value = value >> shift;
            let (least, width) = edges(bucket(value));
            prop_assert!(least <= value && value - least < width, "{value}: {least} + {width}");
            prop_assert!(width == 1 || width * 8 <= least);
            prop_assert!(bucket(value) < BUCKETS);
        }

        #[test]
        fn what_is_no_report_is_not_read(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Some(report) = read(&bytes) {
                prop_assert!(report.version == VERSION);
            }
            Kept::lines(&bytes);
        }
    }

    #[test]
    fn buckets_follow_each_other() {
        let mut next = 0;
        for bucket in 0..BUCKETS {
            let (least, width) = edges(bucket);
            assert_eq!(least, next, "{bucket}");
            next = least.wrapping_add(width);
        }
    }

    #[test]
    fn quantiles_are_within_an_eighth() {
        let mut all = Histogram::default();
        (1..=1000u64).for_each(|n| all.note(n * 100));
        for (share, value) in [(0.5, 50_000.0), (0.99, 99_000.0), (0.01, 1_000.0)] {
            let told = all.quantile(share);
            assert!((told / value - 1.0).abs() < 0.063, "{share}: {told}");
        }
        assert!((all.mean() / 50_050.0 - 1.0).abs() < 0.02, "{}", all.mean());
        assert!(Histogram::default().quantile(0.5).is_nan());
        assert_eq!(Histogram::default().at(0.5), 0);
    }

    fn row(peer: u8, sizes: u64) -> Row {
        let mut histogram = Histogram::default();
        (0..sizes).for_each(|n| histogram.note(1 << (n % 40)));
        let (sizes, times) = (histogram.clone(), histogram);
        Row {
            peer: [10, 0, 0, peer].into(),
            way: Way::Sent,
            in_burst: false,
            bytes: 7,
            sizes,
            times,
            held: 3,
        }
    }

    #[test]
    fn many_rows_take_several_messages_that_each_fit_into_a_packet() {
        let about = About { control: "cubic".to_owned(), tick: 4000, ..About::default() };
        let rows: Vec<Row> = (0..200).map(|peer| row(peer, 40)).collect();
        let bodies = parts(3, INTERVAL, about.clone(), rows.clone());
        assert!(bodies.len() > 10 && bodies.iter().all(|body| body.len() < 1300), "{}", bodies.len());
        let reports: Vec<Report> = bodies.iter().map(|body| read(body).expect("a report")).collect();
        assert_eq!(reports[0].about, Some(about.clone()));
        assert!(reports[1..].iter().all(|report| report.about.is_none()));
        assert_eq!(reports.iter().flat_map(|report| report.rows.clone()).collect::<Vec<_>>(), rows);
        // An idle interval is reported, too.
        assert_eq!(parts(4, INTERVAL, about, Vec::new()).len(), 1);
    }

    /// A busy host loses nothing but the names of peers that sent least.
    #[test]
    fn what_is_too_much_for_a_report_is_of_many_peers() {
        let row = |n: u16| Row {
            peer: std::net::Ipv4Addr::from_bits(0x0a00_0000 + u32::from(n)).into(),
            bytes: n.into(),
            ..row(1, 40)
        };
        let rows: Vec<Row> = (0..2000).map(row).collect();
        let bodies = parts(0, INTERVAL, About::default(), rows.clone());
        assert!(bodies.iter().map(Vec::len).sum::<usize>() < MOST * 5 / 4, "{}", bodies.len());
        let told: Vec<Row> = bodies.iter().flat_map(|body| read(body).expect("a report").rows).collect();
        let sums = |rows: &[Row]| {
            let sum = |of: fn(&Row) -> u64| rows.iter().map(of).sum::<u64>();
            [
                sum(|row| row.bytes),
                sum(|row| row.held),
                sum(|row| row.sizes.count()),
                sum(|row| row.times.count()),
            ]
        };
        assert_eq!(sums(&told), sums(&rows));
        let (many, own): (Vec<&Row>, Vec<&Row>) = told.iter().partition(|row| row.peer.is_unspecified());
        assert!(many.len() == 1 && own.len() > 500 && own.iter().all(|row| row.bytes > 1000));
    }

    /// What no host can have counted: a stolen secret would let one host's report take an hour of drawing, or all memory.
    #[test]
    fn what_no_host_can_have_counted_is_not_read() {
        let sent = |length, part, about: Option<About>, row: Row| {
            let report =
                Report { version: VERSION, interval: 0, length, part, parts: 2, about, rows: vec![row] };
            read(&control::body(&report)).is_some()
        };
        let of = |values: &[(u64, u32)]| {
            Histogram(values.iter().map(|(value, count)| (bucket(*value), *count)).collect())
        };
        let bursts = |values: &[(u64, u32)]| Some(About { bursts: of(values), ..About::default() });
        let about = || bursts(&[(1, 536), (1_000, 65)]);
        assert!(sent(60_000, 0, about(), row(1, 3)) && sent(60_000, 1, None, row(1, 3)));
        for burst in [&[(1 << 62, 1)][..], &[(1, 65_537)], &[(1_000, 69)], &[(0, u32::MAX)]] {
            assert!(!sent(60_000, 0, bursts(burst), row(1, 3)), "{burst:?}");
        }
        for about in
            [About { spread: u64::MAX, ..About::default() }, About { tick: u32::MAX, ..About::default() }]
        {
            assert!(!sent(60_000, 0, Some(about.clone()), row(1, 3)), "{about:?}");
        }
        for row in [
            Row { bytes: u64::MAX, ..row(1, 3) },
            Row { held: u64::MAX, ..row(1, 3) },
            Row { sizes: of(&[(1, u32::MAX)]), ..row(1, 3) },
            Row { sizes: of(&[(1, 0)]), ..row(1, 3) },
        ] {
            assert!(!sent(60_000, 0, about(), row.clone()), "{row:?}");
        }
        // The length of an interval is what makes rates of counts, and comes with what is of no peer.
        assert!(!sent(1, 0, about(), row(1, 3)) && !sent(60_000, 1, about(), row(1, 3)));
        let shortest = parts(0, Span::from_millis(1), About::default(), Vec::new()).remove(0);
        assert_eq!(read(&shortest).map(|report| report.length), Some(SHORTEST));
    }

    #[test]
    fn a_kept_file_that_is_cut_off_is_read_as_far_as_it_goes() {
        let body = parts(0, INTERVAL, About::default(), vec![row(1, 3)]).remove(0);
        let kept = Kept { host: 7, from: [10, 0, 0, 7].into(), report: body.clone() };
        let file = [kept.line(), kept.line()].concat();
        assert_eq!((Kept::lines(&file).len(), Kept::whole(&file)), (2, file.len()));
        assert_eq!(Kept::whole(&file[..file.len() - 1]), file.len() / 2);
        let other = Kept { report: vec![1, 2, 3], ..kept.clone() };
        assert_eq!(Kept::lines(&[kept.line(), other.line(), kept.line()].concat()).len(), 2);
        assert_eq!(Kept::lines(&file[..file.len() - 1]), [(kept, read(&body).expect("a report"))]);
    }
}
