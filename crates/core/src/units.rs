//! Rates and sizes as integers, and the one grammar for quantities in files and flags.
//!
//! `5mbit`, `25ms`, `64KiB`, `200pkt`: a number and a unit, always. Bit rates use powers of 1000. tc's `bps` and
//! `mbps` mean bytes, ns-3's mean bits: both are refused.

use core::fmt;

/// Bytes of the IPv4 (RFC 791) and UDP (RFC 768) headers before the payload of a datagram.
pub const UDP_HEADERS: u32 = 28;

/// Bytes of the IPv4 and TCP headers before the payload of a data segment: with the timestamps option and its padding
/// (RFC 7323 appendix A), or without options.
pub const fn tcp_headers(timestamps: bool) -> u32 {
    if timestamps { 52 } else { 40 }
}

use crate::time::Span;

/// A bit rate in bit/s.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, serde::Serialize, serde::Deserialize,
)]
#[serde(transparent)]
pub struct Rate(u64);

/// A number of bytes.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, serde::Serialize, serde::Deserialize,
)]
#[serde(transparent)]
pub struct Bytes(u64);

impl Rate {
    /// No bandwidth.
    pub const ZERO: Self = Self(0);

    /// A rate in bit/s.
    pub const fn from_bits_per_sec(bits: u64) -> Self {
        Self(bits)
    }

    /// The nearest rate to `bits` bit/s; negative and not-a-number give zero.
    pub fn from_bits_per_sec_f64(bits: f64) -> Self {
        Self(libm::round(bits.max(0.0)) as u64)
    }

    /// The rate in bit/s.
    pub const fn bits_per_sec(self) -> u64 {
        self.0
    }

    /// Bytes that the rate carries in `span`, rounded down.
    pub fn bytes_in(self, span: Span) -> Bytes {
        let bits = u128::from(self.0) * u128::from(span.as_nanos()) / 1_000_000_000;
        Bytes((bits / 8) as u64)
    }

    /// Time to carry `bytes`, rounded up; the longest span for a zero rate.
    pub fn time_for(self, bytes: Bytes) -> Span {
        if self.0 == 0 {
            return Span::MAX;
        }
        let nanos = (u128::from(bytes.0) * 8 * 1_000_000_000).div_ceil(u128::from(self.0));
        Span::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

impl Bytes {
    /// Nothing.
    pub const ZERO: Self = Self(0);

    /// A number of bytes.
    pub const fn new(bytes: u64) -> Self {
        Self(bytes)
    }

    /// The number of bytes.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Debug for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(u64, &str); 4] =
            [(1_000_000_000, "gbit"), (1_000_000, "mbit"), (1_000, "kbit"), (1, "bit")];
        let (scale, unit) =
            UNITS.into_iter().find(|(scale, _)| self.0.is_multiple_of(*scale)).unwrap_or((1, "bit"));
        write!(f, "{}{unit}", self.0 / scale)
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(u64, &str); 4] = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B")];
        let (scale, unit) = match self.0 {
            0 => (1, "B"),
            n => UNITS.into_iter().find(|(scale, _)| n.is_multiple_of(*scale)).unwrap_or((1, "B")),
        };
        write!(f, "{}{unit}", self.0 / scale)
    }
}

/// What a quantity measures; each has its own set of units.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dimension {
    /// Bit rate.
    Rate,
    /// Length of time.
    Span,
    /// Number of bytes.
    Bytes,
    /// Number of packets.
    Packets,
}

impl Dimension {
    /// The units of the dimension: name, how many base units it is (bit/s, ns, B, packets).
    pub const fn units(self) -> &'static [(&'static str, u64)] {
        match self {
            Self::Rate => &[
                ("bit", 1),
                ("kbit", 1_000),
                ("mbit", 1_000_000),
                ("gbit", 1_000_000_000),
                ("tbit", 1_000_000_000_000),
            ],
            Self::Span => {
                &[("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000), ("min", 60_000_000_000)]
            }
            Self::Bytes => &[
                ("B", 1),
                ("kB", 1_000),
                ("KB", 1_000),
                ("MB", 1_000_000),
                ("GB", 1_000_000_000),
                ("KiB", 1 << 10),
                ("MiB", 1 << 20),
                ("GiB", 1 << 30),
            ],
            Self::Packets => &[("pkt", 1)],
        }
    }

    /// The most that a file or flag may say, in base units: beyond it nothing is physical, and sums below it stay far from
    /// the end of 64 bits. A span of a year, 100 Tbit/s, 1 PiB, 10^9 packets.
    pub const fn most(self) -> u64 {
        match self {
            Self::Rate => 100_000_000_000_000,
            Self::Span => 365 * 24 * 3_600 * 1_000_000_000,
            Self::Bytes => 1 << 50,
            Self::Packets => 1_000_000_000,
        }
    }

    /// The same as it is written.
    const fn most_text(self) -> &'static str {
        match self {
            Self::Rate => "100tbit",
            Self::Span => "525600min, a year",
            Self::Bytes => "1048576GiB",
            Self::Packets => "1000000000pkt",
        }
    }

    /// What to write, as an example in messages.
    pub const fn example(self) -> &'static str {
        match self {
            Self::Rate => "a bit rate such as \"5mbit\" (bit, kbit, mbit, gbit, tbit)",
            Self::Span => "a time such as \"25ms\" (ns, us, ms, s, min)",
            Self::Bytes => "a size such as \"64KiB\" (B, kB, MB, GB, KiB, MiB, GiB)",
            Self::Packets => "a number of packets such as \"200pkt\"",
        }
    }
}

/// Why a text is not a quantity.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum QuantityError {
    /// The text does not start with a number.
    NoNumber,
    /// A number without a unit.
    NoUnit,
    /// A unit that the dimension does not have, and what to write where the unit is a known trap.
    UnknownUnit(String, Option<&'static str>),
    /// A unit of rate with a capital.
    Capital(String),
    /// Below zero.
    Negative,
    /// Not a whole number of base units.
    TooFine(Dimension),
    /// More than the dimension's most.
    TooLarge(Dimension),
}

impl fmt::Display for QuantityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoNumber => f.write_str("does not start with a number"),
            Self::NoUnit => f.write_str("has no unit"),
            Self::UnknownUnit(unit, None) => write!(f, "has the unknown unit `{unit}`"),
            Self::UnknownUnit(unit, Some(why)) => write!(f, "has the unit `{unit}`: {why}"),
            Self::Capital(unit) => write!(f, "has the unit `{unit}`: units of rate are lower case: mbit"),
            Self::Negative => f.write_str("is negative"),
            Self::TooFine(dimension) => {
                let [(base, _), ..] = dimension.units() else { return Ok(()) };
                write!(f, "is finer than 1{base}")
            }
            Self::TooLarge(dimension) => write!(f, "is more than {}", dimension.most_text()),
        }
    }
}

/// Reads `text` as a quantity of `dimension`, in base units (bit/s, ns, B, packets).
///
/// # Errors
/// When there is no number, no unit, a unit of another dimension, or the value is not a whole number of base units.
pub fn parse_quantity(text: &str, dimension: Dimension) -> Result<u64, QuantityError> {
    let text = text.trim();
    let split = text
        .find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '-' || c == '+' || c == '_'))
        .unwrap_or(text.len());
    let (number, unit) = (text[..split].replace('_', ""), text[split..].trim());
    if number.starts_with('-') {
        return Err(QuantityError::Negative);
    }
    let (whole, fraction) = number.split_once('.').unwrap_or((&number, ""));
    if whole.is_empty() && fraction.is_empty() {
        return Err(QuantityError::NoNumber);
    }
    if unit.is_empty() {
        return Err(QuantityError::NoUnit);
    }
    let Some(&(_, scale)) = dimension.units().iter().find(|(name, _)| *name == unit) else {
        return Err(unknown_unit(unit));
    };
    let digits = |s: &str| {
        if s.is_empty() { Ok(0) } else { s.parse::<u128>().map_err(|_| QuantityError::NoNumber) }
    };
    let too_large = QuantityError::TooLarge(dimension);
    let places =
        u32::try_from(fraction.len()).ok().filter(|n| *n <= 18).ok_or(QuantityError::TooFine(dimension))?;
    let denominator = 10u128.pow(places);
    let scaled = digits(whole)?.checked_mul(denominator).and_then(|n| n.checked_add(digits(fraction).ok()?));
    let scaled = scaled.and_then(|n| n.checked_mul(u128::from(scale))).ok_or(too_large.clone())?;
    if !scaled.is_multiple_of(denominator) {
        return Err(QuantityError::TooFine(dimension));
    }
    u64::try_from(scaled / denominator).ok().filter(|n| *n <= dimension.most()).ok_or(too_large)
}

fn unknown_unit(unit: &str) -> QuantityError {
    let trap = match unit {
        "bps" | "kbps" | "mbps" | "gbps" | "Mbps" | "Gbps" | "Kbps" => {
            Some("tc reads it as bytes per second, ns-3 as bits; write bit, kbit, mbit or gbit")
        }
        "Mb" | "Gb" | "Kb" | "kb" | "b" | "m" | "k" | "g" => Some("bits or bytes? write mbit, or MB"),
        "Mbit" | "Gbit" | "Kbit" | "Bit" | "MBit" => return QuantityError::Capital(unit.to_owned()),
        "p" | "packets" | "pkts" => Some("write pkt"),
        "sec" | "secs" | "S" => Some("write s"),
        "msec" | "MS" => Some("write ms"),
        "µs" | "usec" => Some("write us"),
        _ => None,
    };
    QuantityError::UnknownUnit(unit.to_owned(), trap)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_in_every_dimension() {
        assert_eq!(parse_quantity("5mbit", Dimension::Rate), Ok(5_000_000));
        assert_eq!(parse_quantity("1.69 mbit", Dimension::Rate), Ok(1_690_000));
        assert_eq!(parse_quantity("25ms", Dimension::Span), Ok(25_000_000));
        assert_eq!(parse_quantity("0.05s", Dimension::Span), Ok(50_000_000));
        assert_eq!(parse_quantity("64KiB", Dimension::Bytes), Ok(65_536));
        assert_eq!(parse_quantity("200pkt", Dimension::Packets), Ok(200));
    }

    #[test]
    fn traps_are_refused_with_a_reason() {
        assert_eq!(parse_quantity("5", Dimension::Rate), Err(QuantityError::NoUnit));
        assert_eq!(parse_quantity("-5ms", Dimension::Span), Err(QuantityError::Negative));
        assert_eq!(parse_quantity("mbit", Dimension::Rate), Err(QuantityError::NoNumber));
        assert_eq!(parse_quantity("0.5ns", Dimension::Span), Err(QuantityError::TooFine(Dimension::Span)));
        for (dimension, most, more) in [
            (Dimension::Rate, "100tbit", "100.000000000001tbit"),
            (Dimension::Span, "525600min", "31536000.000000001s"),
            (Dimension::Bytes, "1048576GiB", "1125899906842625B"),
            (Dimension::Packets, "1000000000pkt", "1000000001pkt"),
        ] {
            assert_eq!(parse_quantity(most, dimension), Ok(dimension.most()));
            let error = parse_quantity(more, dimension).unwrap_err();
            assert_eq!(error, QuantityError::TooLarge(dimension));
            assert!(error.to_string().contains(most), "{error}");
        }
        let message = parse_quantity("5mbps", Dimension::Rate).unwrap_err().to_string();
        assert!(message.contains("bytes per second"), "{message}");
    }

    #[test]
    fn rate_span_and_bytes_agree() {
        let rate = Rate::from_bits_per_sec(100_000_000);
        assert_eq!(rate.time_for(Bytes::new(1502)), Span::from_nanos(120_160));
        assert_eq!(rate.bytes_in(Span::from_millis(100)), Bytes::new(1_250_000));
        assert_eq!(Rate::ZERO.time_for(Bytes::new(1)), Span::MAX);
    }
}
