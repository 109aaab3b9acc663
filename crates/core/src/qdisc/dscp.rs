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

#[cfg(test)]
mod tests {
    use super::*;

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
