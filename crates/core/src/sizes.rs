//! Flow sizes as cumulative distributions: files of what was measured, and what ships.

use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::rng::Stream;
use crate::units::{Bytes, Dimension, parse_quantity};

/// What a line of a file is.
const ALLOWED: &str = "a size with its unit and the share of flows up to it, as in `10kB 0.15`";

/// Distributions that ship with the program: name and text.
pub static SHIPPED: &[(&str, &str)] = &[
    ("web-search", include_str!("../sizes/web-search.cdf")),
    ("data-mining", include_str!("../sizes/data-mining.cdf")),
    ("hadoop", include_str!("../sizes/hadoop.cdf")),
    ("file-system", include_str!("../sizes/file-system.cdf")),
];

/// A distribution of flow sizes, linear between its points.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct SizeDistribution {
    /// Name of the file, or of what ships.
    name: String,
    /// SHA-256 of the text, in hexadecimal.
    digest: String,
    /// Size in bytes and share of flows up to it, both ascending, the last share 1.
    #[serde(skip)]
    points: Arc<[(u64, f64)]>,
}

/// What is wrong with a text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SizesError {
    /// Number of the line, from 1; none: the whole.
    pub line: Option<u32>,
    /// What.
    pub why: String,
}

impl SizeDistribution {
    /// Reads a text: a line for each point, a size and a share; behind `#` is a comment. A share above 0 on
    /// the first line is that of flows of exactly this size.
    ///
    /// # Errors
    /// The first line that is none, or does not ascend; a text that does not end at 1.
    pub fn parse(name: &str, text: &str) -> Result<Self, SizesError> {
        let mut points: Vec<(u64, f64)> = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let written = line.split('#').next().unwrap_or_default().trim();
            if written.is_empty() {
                continue;
            }
            let (size, share) = point(written).map_err(|why| SizesError { line: Some(number), why })?;
            let why = match points.last() {
                None if size == 0 && share > 0.0 => Some("gives flows of 0 bytes a share".to_owned()),
                Some((before, _)) if size < *before => {
                    Some("is a smaller size than the line above".to_owned())
                }
                Some((_, before)) if share < *before => {
                    Some("is a smaller share than the line above".to_owned())
                }
                _ => None,
            };
            if let Some(why) = why {
                return Err(SizesError { line: Some(number), why: format!("\"{written}\" {why}") });
            }
            points.push((size, share));
        }
        let whole = |why: &str| Err(SizesError { line: None, why: why.to_owned() });
        match points.last() {
            None => whole(&format!("has no line; write {ALLOWED}")),
            Some((0, _)) => whole("has no size above 0 bytes"),
            Some((_, share)) if *share < 1.0 => whole(&format!("ends at the share {share}; the last is 1")),
            Some(_) => {
                let digest = crate::hex::hex(&Sha256::digest(text));
                Ok(Self { name: name.to_owned(), digest, points: points.into() })
            }
        }
    }

    /// What ships under this name.
    pub fn shipped(name: &str) -> Option<Self> {
        let (name, text) = SHIPPED.iter().find(|(known, _)| *known == name)?;
        Self::parse(name, text).ok()
    }

    /// Name of the file, or of what ships.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// SHA-256 of the text, in hexadecimal.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// Draws a size, at least a byte.
    pub fn draw(&self, stream: &mut Stream) -> Bytes {
        Bytes::new(self.quantile(stream.unit()))
    }

    /// The size up to which there is such a share of the flows, at least a byte: the inverse of lines between points, not
    /// a quantile of a sample.
    pub fn quantile(&self, share: f64) -> u64 {
        let after = self.points.partition_point(|(_, up_to)| *up_to < share);
        let Some(&(size, up_to)) = self.points.get(after) else { return self.largest() };
        let size = match after.checked_sub(1).map(|before| self.points[before]) {
            Some((below, from)) if up_to > from => {
                below as f64 + (size - below) as f64 * (share - from) / (up_to - from)
            }
            _ => size as f64,
        };
        (size.round() as u64).max(1)
    }

    /// The largest size.
    pub fn largest(&self) -> u64 {
        self.points.last().map_or(1, |(size, _)| *size)
    }

    /// Mean size in bytes.
    pub fn mean(&self) -> f64 {
        let first = self.points.first().map_or(0.0, |(size, share)| *size as f64 * share);
        let pieces = self.points.windows(2).map(|pair| {
            let [(below, from), (size, up_to)] = [pair[0], pair[1]];
            (below as f64 + size as f64) / 2.0 * (up_to - from)
        });
        first + pieces.sum::<f64>()
    }
}

fn point(written: &str) -> Result<(u64, f64), String> {
    let mut words = written.split_whitespace();
    let (Some(size), Some(share), None) = (words.next(), words.next(), words.next()) else {
        return Err(format!("\"{written}\" is not {ALLOWED}"));
    };
    let size = parse_quantity(size, Dimension::Bytes).map_err(|why| format!("\"{size}\" {why}"))?;
    match share.parse::<f64>() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok((size, share)),
        _ => Err(format!("\"{share}\" is not a share from 0 to 1")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_and_mean_by_hand() {
        // A tenth has 1000 bytes; half of the rest is even to 2000, half to 4000.
        let sizes = SizeDistribution::parse("s", "# what\n1kB 0.1\n\n2kB 0.55 # here\n4kB 1").expect("valid");
        let quantiles = [0.0, 0.05, 0.1, 0.325, 0.55, 0.775, 1.0].map(|share| sizes.quantile(share));
        assert_eq!(quantiles, [1000, 1000, 1000, 1500, 2000, 3000, 4000]);
        assert!((sizes.mean() - (100.0 + 0.45 * 1500.0 + 0.45 * 3000.0)).abs() < 1e-9);
        let mut stream = Stream::new(1, 0, "sizes");
        let drawn: f64 = (0..100_000).map(|_| sizes.draw(&mut stream).get() as f64).sum::<f64>() / 1e5;
        assert!((drawn / sizes.mean() - 1.0).abs() < 0.01, "{drawn}");
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        let cases = [
            ("1kB 0.5\n10 1", Some(2), "has no unit"),
            ("1kB", Some(1), "\"1kB\" is not a size with its unit and the share"),
            ("1kB 50%", Some(1), "\"50%\" is not a share from 0 to 1"),
            ("1kB 0.5\n2kB 1.5", Some(2), "\"1.5\" is not a share"),
            ("2kB 0.5\n1kB 1", Some(2), "\"1kB 1\" is a smaller size than the line above"),
            ("1kB 0.5\n2kB 0.4", Some(2), "is a smaller share"),
            ("0B 0.5\n2kB 1", Some(1), "gives flows of 0 bytes a share"),
            ("1kB 0.5\n2kB 0.9", None, "ends at the share 0.9"),
            ("# nothing", None, "has no line"),
        ];
        for (text, line, why) in cases {
            let error = SizeDistribution::parse("s", text).expect_err(text);
            assert!(error.line == line && error.why.contains(why), "{text}: {error:?}");
        }
    }

    #[test]
    fn what_ships_is_valid_and_has_the_published_means() {
        // Published: about 1.6 MB (web search), 7 MB (data mining); the points of the Hadoop figure make 0.1 MB.
        for (name, low, high) in [
            ("web-search", 1.5e6, 1.8e6),
            ("data-mining", 6e6, 14e6),
            ("hadoop", 0.5e5, 1.5e5),
            ("file-system", 1e6, 1e8),
        ] {
            let sizes = SizeDistribution::shipped(name).expect(name);
            assert!((low..high).contains(&sizes.mean()), "{name}: {}", sizes.mean());
        }
        assert_eq!(SHIPPED.len(), 4);
        let files = SizeDistribution::shipped("file-system").expect("ships");
        assert_eq!((files.quantile(0.0), files.largest()), (20, 62_000_000_000));
    }
}
