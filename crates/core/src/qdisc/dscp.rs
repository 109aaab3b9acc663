//! Names of differentiated services code points (RFC 2474).

/// Number of code points.
pub const CODE_POINTS: usize = 64;

/// A code point by its number, or its name in the RFCs in either case: `ef`, `af41`, `cs6`, `va`, `le`.
pub fn code_point(text: &str) -> Option<u8> {
    let digit = |byte: u8, least, most| Some(byte.wrapping_sub(b'0')).filter(|n| (least..=most).contains(n));
    match text.to_ascii_lowercase().as_bytes() {
        // RFC 3246, RFC 5865, RFC 8622.
        b"ef" => Some(46),
        b"va" => Some(44),
        b"le" => Some(1),
        [b'c', b's', class] => digit(*class, 0, 7).map(|class| class << 3),
        // RFC 2597: class in three bits, drop precedence in two.
        [b'a', b'f', class, drop] => Some(digit(*class, 1, 4)? << 3 | digit(*drop, 1, 3)? << 1),
        _ => text.parse().ok().filter(|dscp| usize::from(*dscp) < CODE_POINTS),
    }
}

/// A set of code points.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct CodePoints(u64);

impl CodePoints {
    /// The code points that `texts` name; an error says which names none, and what does.
    pub(super) fn parse(texts: &[String]) -> Result<Self, String> {
        texts.iter().try_fold(Self::default(), |Self(set), text| {
            let unknown = || {
                format!(
                    "\"{text}\" is not a code point; write a number up to 63, \"ef\", \"af41\" or \"cs6\""
                )
            };
            code_point(text).map(|dscp| Self(set | 1 << dscp)).ok_or_else(unknown)
        })
    }

    pub(super) const fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(super) const fn contains(self, dscp: u8) -> bool {
        self.0 >> (dscp & 63) & 1 == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_what_its_texts_name() {
        let parse = |texts: &[&str]| {
            CodePoints::parse(&texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>())
        };
        let set = parse(&["LE", "63", "0"]).unwrap();
        assert!([0, 1, 63].iter().all(|dscp| set.contains(*dscp)) && !set.contains(2) && !set.contains(62));
        assert!(parse(&[]).unwrap().is_empty() && !set.is_empty());
        assert!(parse(&["ef", "af9"]).unwrap_err().starts_with("\"af9\" is not a code point"));
    }

    #[test]
    fn names_are_those_of_the_rfcs() {
        // 101110, 101100, 000001; 001010, 010110, 100110; 000000, 111000.
        let names = ["EF", "va", "le", "af11", "AF23", "af43", "cs0", "CS7", "46", "63"];
        let points = [46, 44, 1, 10, 22, 38, 0, 56, 46, 63];
        assert_eq!(names.map(code_point), points.map(Some));
        for wrong in ["", "cs8", "cs", "af10", "af14", "af51", "af1", "af111", "64", "-1", "afé", "best"] {
            assert_eq!(code_point(wrong), None, "{wrong}");
        }
    }
}
