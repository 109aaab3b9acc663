//! Random choices that a name and a number decide.

/// Draws without end.
#[derive(Clone, Debug)]
pub struct Source(u64);

impl Source {
    /// The source of a target's input of that number.
    pub fn seeded(target: &str, number: u64) -> Self {
        // FNV-1a over both.
        let bytes = target.bytes().chain(number.to_le_bytes());
        let hash = bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        Self(hash)
    }

    /// 64 random bits: SplitMix64 (Steele, Lea and Flood 2014).
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`; 0 for 0.
    pub fn below(&mut self, n: usize) -> usize {
        if n == 0 { 0 } else { (self.bits() % n as u64) as usize }
    }

    /// True once in `n` times.
    pub fn once_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// One of several.
    pub fn pick<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }

    /// Random bytes.
    pub fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| self.bits() as u8).collect()
    }

    /// A number that is small, large or at the end of a type.
    pub fn extreme(&mut self) -> u64 {
        const ENDS: [u64; 12] = [
            0,
            1,
            2,
            u64::MAX,
            u64::MAX - 1,
            i64::MAX as u64,
            u32::MAX as u64,
            u16::MAX as u64,
            1 << 32,
            1 << 31,
            1 << 53,
            1 << 63,
        ];
        match self.below(8) {
            0 | 1 => *self.pick(&ENDS),
            2 => self.bits(),
            3 => self.bits() >> 32,
            4 => self.bits() % 10_000_000_000,
            5 => self.bits() % 2_000_000,
            6 => self.bits() >> 48,
            _ => self.bits() >> 56,
        }
    }

    /// A number with a point, not always finite.
    pub fn float(&mut self) -> f64 {
        const ENDS: [f64; 12] = [
            0.0,
            -0.0,
            1.0,
            -1.0,
            0.5,
            1e-9,
            1e308,
            5e-324,
            f64::MIN,
            f64::NAN,
            f64::INFINITY,
            f64::NEG_INFINITY,
        ];
        match self.below(4) {
            0 => *self.pick(&ENDS),
            1 => self.extreme() as f64,
            2 => (self.bits() >> 11) as f64 / (1u64 << 53) as f64,
            _ => f64::from_bits(self.bits()),
        }
    }
}
