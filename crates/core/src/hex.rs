//! Bytes as hexadecimal digits.

use core::fmt::Write as _;

/// Two lower-case digits for each byte.
pub fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        // Writing into a string does not fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// The bytes of [`hex`]; none: there are other characters, or an odd number of digits.
pub fn unhex(text: &str) -> Option<Vec<u8>> {
    let nibble = |digit: u8| char::from(digit).to_digit(16).map(|value| value as u8);
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    pairs.iter().map(|[high, low]| Some(nibble(*high)? << 4 | nibble(*low)?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_those_of_the_bytes() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(hex(&[0, 0x0a, 0xf0, 0xff]), "000af0ff");
        assert_eq!(unhex(&hex(&all)), Some(all));
        assert_eq!(unhex("0A"), Some(vec![10]));
        assert_eq!((unhex("0"), unhex("0g"), unhex("+1"), unhex("\u{e9}")), (None, None, None, None));
    }
}
