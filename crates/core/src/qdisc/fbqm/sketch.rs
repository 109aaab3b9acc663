//! Per-flow quantities in a fixed amount of memory: count-min sketches with conservative update.
//!
//! Cormode and Muthukrishnan, "An improved data stream summary: the count-min sketch and its applications", J.
//! Algorithms 55(1), 2005; conservative update: Estan and Varghese, "New Directions in Traffic Measurement and
//! Accounting", SIGCOMM 2002; counting flows by touched cells: Whang, Vander-Zanden, Taylor, "A linear-time
//! probabilistic counting algorithm for database applications", ACM TODS 15(2), 1990.
//!
//! An estimate is never too low. It is too high only when the flow shares its cell with an active flow in each of the
//! four rows: with n active flows and w cells in a row, for a share (1 - e^(-n/w))^4 of the flows.

use crate::id::FlowId;
use crate::rng::{Stream, splitmix};

/// Rows of every sketch.
pub const ROWS: usize = 4;

/// A flow's cell in each row, as positions in an array of all cells.
pub type Slots = [u32; ROWS];

/// Maps flows to one cell in each row. One 64-bit hash serves all rows, so a row has at most 2^16 cells.
#[derive(Clone, Copy, Debug)]
pub struct Hash {
    salt: u64,
    /// Cells in a row, less one.
    mask: u64,
    /// Binary logarithm of the cells in a row.
    bits: u32,
}

impl Hash {
    /// A hash onto `cells` cells in a row, a power of two up to 2^16.
    pub fn new(cells: u32, stream: &mut Stream) -> Self {
        let cells = cells.next_power_of_two().min(1 << 16);
        Self { salt: stream.next_u64(), mask: u64::from(cells) - 1, bits: cells.trailing_zeros() }
    }

    /// Cells in a row.
    pub const fn cells(&self) -> usize {
        self.mask as usize + 1
    }

    /// The flow's cells.
    #[inline]
    pub fn slots(&self, flow: FlowId) -> Slots {
        let hash = self.mix(flow);
        std::array::from_fn(|row| {
            let row = row as u32;
            (row << self.bits) + ((hash >> (16 * row)) & self.mask) as u32
        })
    }

    /// The flow's cell in the first row.
    #[inline]
    pub fn first(&self, flow: FlowId) -> usize {
        (self.mix(flow) & self.mask) as usize
    }

    #[inline]
    const fn mix(&self, flow: FlowId) -> u64 {
        splitmix(flow.0 as u64 ^ self.salt)
    }
}

/// Arrival rates of flows: bytes per interval, averaged with weight 1/2 per interval.
///
/// A cell is brought up to date when it is touched, so passing time costs nothing. In every interval its
/// counter is an upper bound on the true bytes of any of its flows, hence the average is, too.
#[derive(Clone, Debug)]
pub struct RateSketch {
    cells: Vec<RateCell>,
    interval: u32,
    totals: Totals,
}

/// What all flows are together, interval by interval.
#[derive(Clone, Debug)]
pub struct Totals {
    width: usize,
    /// Cells of the first row touched in this interval, and bytes of all flows.
    touched: u32,
    bytes: u64,
    /// Average bytes of all flows in an interval, and number of flows, at the end of the last one.
    average: u64,
    flows: f64,
}

impl Totals {
    /// Nothing yet; a row of the sketch has `width` cells.
    pub const fn new(width: usize) -> Self {
        Self { width, touched: 0, bytes: 0, average: 0, flows: 1.0 }
    }

    /// Counts `bytes` that arrived, and cells of the first row that they were the first to touch in this interval.
    #[inline]
    pub const fn arrive(&mut self, bytes: u64, touched: u32) {
        self.bytes += bytes;
        self.touched += touched;
    }

    /// Ends this interval; with it and after it `passed` intervals are over.
    #[inline]
    pub fn end(&mut self, passed: u32) {
        self.average = (self.average + self.bytes) >> passed.min(63);
        self.flows = if passed == 1 { self.distinct() } else { 1.0 };
        self.bytes = 0;
        self.touched = 0;
    }

    /// Flows that sent in the last interval, at least 1. Saturates near w ln w for w cells in a row.
    pub const fn flows(&self) -> f64 {
        self.flows
    }

    /// Mean rate of those flows, bytes per interval.
    pub fn mean(&self) -> f64 {
        self.average as f64 / self.flows
    }

    /// Linear counting: n = -w ln(1 - u/w) flows leave u of w cells touched.
    fn distinct(&self) -> f64 {
        let width = self.width as f64;
        let free = (width - f64::from(self.touched)).max(1.0);
        (-width * libm::log(free / width)).max(1.0)
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct RateCell {
    /// Bytes in the interval `interval`, up to 4 GiB.
    bytes: u32,
    /// Average bytes in an interval, at the end of the one before.
    average: u32,
    interval: u32,
}

impl RateCell {
    #[inline]
    fn advance(&mut self, interval: u32) {
        let passed = interval.wrapping_sub(self.interval);
        if passed > 0 {
            let average = (u64::from(self.average) + u64::from(self.bytes)) >> passed.min(63);
            self.average = average as u32;
            self.bytes = 0;
            self.interval = interval;
        }
    }
}

/// What the sketch knows of a flow at an arrival.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrival {
    /// Bytes per interval, averaged up to the end of the last interval.
    pub rate: u64,
    /// True for the first packet of the flow in this interval.
    pub first: bool,
}

impl RateSketch {
    /// An empty sketch of [`ROWS`] rows of `width` cells.
    pub fn new(width: usize) -> Self {
        let cells = vec![RateCell::default(); ROWS * width];
        Self { cells, interval: 0, totals: Totals::new(width) }
    }

    /// Ends intervals up to `interval`; true when there was one to end.
    #[inline]
    pub fn advance(&mut self, interval: u32) -> bool {
        let passed = interval.wrapping_sub(self.interval);
        if passed == 0 {
            return false;
        }
        self.totals.end(passed);
        self.interval = interval;
        true
    }

    /// Counts `len` bytes of the flow with these cells.
    #[inline]
    pub fn arrive(&mut self, slots: &Slots, len: u32) -> Arrival {
        let mut cells = slots.map(|slot| self.cells[slot as usize]);
        for cell in &mut cells {
            cell.advance(self.interval);
        }
        let first = cells[0].bytes == 0;
        self.totals.arrive(len.into(), first.into());
        let least = |of: fn(&RateCell) -> u32| cells.iter().map(of).min().unwrap_or(0);
        let rate = least(|cell| cell.average);
        let bytes = least(|cell| cell.bytes).saturating_add(len);
        for (&slot, cell) in slots.iter().zip(&cells) {
            self.cells[slot as usize] = RateCell { bytes: cell.bytes.max(bytes), ..*cell };
        }
        Arrival { rate: u64::from(rate), first }
    }

    /// What all flows are together.
    pub const fn totals(&self) -> &Totals {
        &self.totals
    }
}

/// How far each flow is ahead: the byte up to which it has filled its share of the turns.
#[derive(Clone, Debug)]
pub struct LeadSketch {
    /// Shares filled, in bytes since the start of turn 0.
    cells: Vec<u64>,
}

impl LeadSketch {
    /// An empty sketch of [`ROWS`] rows of `width` cells.
    pub fn new(width: usize) -> Self {
        Self { cells: vec![0; ROWS * width] }
    }

    /// Where the flow's next packet begins, at least `floor`. Never falls for a flow.
    #[inline]
    pub fn position(&self, slots: &Slots, floor: u64) -> u64 {
        slots.iter().map(|&slot| self.cells[slot as usize]).min().unwrap_or(0).max(floor)
    }

    /// The flow has filled its share up to `position`.
    #[inline]
    pub fn fill(&mut self, slots: &Slots, position: u64) {
        for &slot in slots {
            let cell = &mut self.cells[slot as usize];
            *cell = (*cell).max(position);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(cells: u32) -> Hash {
        Hash::new(cells, &mut Stream::new(1, 0, "sketch"))
    }

    #[test]
    fn an_alone_flow_is_averaged_by_halves() {
        let hash = hash(256);
        let mut sketch = RateSketch::new(hash.cells());
        let slots = hash.slots(FlowId(7));
        assert_eq!(sketch.arrive(&slots, 600), Arrival { rate: 0, first: true });
        assert_eq!(sketch.arrive(&slots, 400), Arrival { rate: 0, first: false });
        // 1000 bytes in interval 0: (0 + 1000) / 2; then 500 in interval 1: (500 + 500) / 2.
        assert!(sketch.advance(1));
        assert_eq!(sketch.arrive(&slots, 500), Arrival { rate: 500, first: true });
        assert!((sketch.totals().mean() - 500.0 / sketch.totals().flows()).abs() < 1e-9);
        assert!(sketch.advance(2));
        assert_eq!(sketch.arrive(&slots, 1).rate, 500);
        // Interval 2 had 1 byte, 3 and 4 none: (500 + 1) / 2 / 2 / 2.
        assert!(sketch.advance(5));
        assert_eq!(sketch.arrive(&slots, 1).rate, 62);
        assert!(!sketch.advance(5));
    }

    #[test]
    fn flows_are_counted_within_two_percent_and_rates_never_too_low() {
        let hash = hash(1 << 15);
        let mut sketch = RateSketch::new(hash.cells());
        let flows = 10_000;
        for turn in 0..4 {
            for flow in 0..flows {
                sketch.arrive(&hash.slots(FlowId(flow)), 100 + turn);
            }
        }
        sketch.advance(1);
        assert!(
            (sketch.totals().flows() / f64::from(flows) - 1.0).abs() < 0.02,
            "{}",
            sketch.totals().flows()
        );
        // 100 + 101 + 102 + 103 bytes, halved. Too high for (1 - e^(-10000/32768))^4 = 0.5 % of the flows.
        let rates: Vec<u64> =
            (0..flows).map(|flow| sketch.arrive(&hash.slots(FlowId(flow)), 1).rate).collect();
        assert!(rates.iter().all(|&rate| rate >= 203));
        let wrong = rates.iter().filter(|&&rate| rate > 203).count();
        assert!(wrong < 100, "{wrong} of {flows}");
    }

    #[test]
    fn a_million_flows_saturate_the_count_and_nothing_else() {
        let hash = hash(1 << 10);
        let mut sketch = RateSketch::new(hash.cells());
        for flow in 0..1_000_000 {
            sketch.arrive(&hash.slots(FlowId(flow)), 1_000);
        }
        sketch.advance(1);
        // All 1024 cells touched: the count stands at w ln w.
        assert!((sketch.totals().flows() - 1024.0 * libm::log(1024.0)).abs() < 1e-6);
        assert!(sketch.totals().mean() > 0.0);
    }

    #[test]
    fn positions_never_fall() {
        let hash = hash(256);
        let mut sketch = LeadSketch::new(hash.cells());
        let slots = hash.slots(FlowId(3));
        assert_eq!(sketch.position(&slots, 0), 0);
        sketch.fill(&slots, 1_500);
        assert_eq!(sketch.position(&slots, 0), 1_500);
        assert_eq!(sketch.position(&slots, 4_000), 4_000);
        sketch.fill(&slots, 100);
        assert_eq!(sketch.position(&slots, 0), 1_500);
    }
}
