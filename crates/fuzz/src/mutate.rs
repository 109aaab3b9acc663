//! Texts that were valid once.

use super::Source;

const NUMBERS: [&str; 22] = [
    "0",
    "-1",
    "1",
    "2",
    "255",
    "65535",
    "65536",
    "4294967295",
    "4294967296",
    "9223372036854775807",
    "-9223372036854775808",
    "18446744073709551616",
    "1e308",
    "-1e-308",
    "nan",
    "inf",
    "0.5",
    "-0.0",
    "99999999999999999999999999",
    "0x7fffffff",
    "1_000",
    "1000000",
];
const QUANTITIES: [&str; 43] = [
    "0s",
    "1ns",
    "18446744073709551615ns",
    "525600min",
    "525601min",
    "1e9s",
    "0.000000001s",
    "0bit",
    "1bit",
    "100tbit",
    "101tbit",
    "18446744073709551615bit",
    "0B",
    "1B",
    "1048576GiB",
    "17179869183GiB",
    "1pkt",
    "0pkt",
    "1000000000pkt",
    "4294967296pkt",
    "unlimited",
    "uniform(0s, 0s)",
    "uniform(0s, 525600min)",
    "normal(1ms, 1ms)",
    "normal(1ns, 1s)",
    "normal(525600min, 525600min)",
    "exponential(0s)",
    "exponential(525600min)",
    "exponential(1ns)",
    ".s",
    "_s",
    "0.5pkt",
    "1.5ns",
    "10mbit",
    "10ms",
    "1500B",
    "5%",
    "*",
    "a.b.c",
    "true",
    "[]",
    "{}",
    "1979-05-27",
];
const PIECES: [&str; 12] =
    ["é", "\u{202e}", "😀", "\u{0}", "ß", "\u{feff}", "İ", "\r\n", "\t", "\\u0000", "'''", "\"\"\""];
const SIGNS: [u8; 16] = *b"[{(\"'\\\n.=,-!#0\0\xff";
/// Longest text.
const LONGEST: usize = 60_000;

/// Valid texts, and the words they are made of.
pub struct Corpus {
    texts: Vec<Vec<u8>>,
    words: Vec<String>,
}

impl Corpus {
    /// These texts, with more words than they have.
    pub fn new(texts: Vec<Vec<u8>>, more: impl IntoIterator<Item = String>) -> Self {
        let is_word = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.');
        let of_text = |text: &Vec<u8>| -> Vec<String> {
            let text = String::from_utf8_lossy(text).into_owned();
            let words = text.split(|c| !is_word(c)).filter(|word| !word.is_empty() && word.len() < 30);
            words.map(str::to_owned).collect()
        };
        let mut words: Vec<String> = texts.iter().flat_map(of_text).chain(more).collect();
        words.sort();
        words.dedup();
        words.extend(NUMBERS.iter().chain(&QUANTITIES).map(|word| (*word).to_owned()));
        Self { texts, words }
    }

    /// One of the texts, changed at random.
    pub fn mutate(&self, source: &mut Source) -> Vec<u8> {
        if self.texts.is_empty() || source.once_in(200) {
            let n = source.below(300);
            return source.bytes(n);
        }
        let mut text = source.pick(&self.texts).clone();
        let rounds = [1, 2, 3, 5, 8, 1 + source.below(30)][source.below(6)];
        for _ in 0..rounds {
            self.change(source, &mut text);
            text.truncate(LONGEST);
        }
        text
    }

    fn change(&self, source: &mut Source, text: &mut Vec<u8>) {
        if text.is_empty() {
            text.push(b'a');
        }
        let at = source.below(text.len());
        match source.below(15) {
            0 => text[at] ^= 1 << source.below(8),
            1 => text[at] = source.bits() as u8,
            2 => drop(text.drain(at..(at + 1 + source.below(20)).min(text.len()))),
            3 => {
                let copy = text[at..(at + 1 + source.below(40)).min(text.len())].to_vec();
                let to = source.below(text.len());
                text.splice(to..to, copy);
            }
            4 | 5 => drop(text.splice(at..at, source.pick(&self.words).bytes())),
            6..=9 => self.replace_word(source, text),
            10 => change_lines(source, text),
            11 => {
                let other = source.pick(&self.texts);
                let lines: Vec<&[u8]> = other.split_inclusive(|b| *b == b'\n').collect();
                let first = source.below(lines.len());
                let some =
                    lines.iter().skip(first).take(1 + source.below(8)).copied().collect::<Vec<_>>().concat();
                let end = text[at..].iter().position(|b| *b == b'\n').map_or(text.len(), |n| at + n + 1);
                text.splice(end..end, some);
            }
            12 => text.truncate(at),
            13 => {
                let n = if source.once_in(50) { source.below(3000) } else { source.below(4) };
                let sign = *source.pick(&SIGNS);
                text.splice(at..at, vec![sign; n]);
            }
            _ => drop(text.splice(at..at, source.pick(&PIECES).bytes())),
        }
    }

    fn replace_word(&self, source: &mut Source, text: &mut Vec<u8>) {
        let is_word = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.');
        let from = source.below(text.len());
        let Some(start) = text[from..].iter().position(is_word).map(|n| from + n) else { return };
        let end = text[start..].iter().position(|b| !is_word(b)).map_or(text.len(), |n| start + n);
        let digits = text[start..end].iter().take_while(|b| b.is_ascii_digit() || **b == b'.').count();
        let new = if digits > 0 && source.below(3) > 0 {
            // Another number of the same unit.
            let unit = text[start + digits..end].to_vec();
            [source.pick(&NUMBERS).as_bytes(), &unit].concat()
        } else {
            source.pick(&self.words).clone().into_bytes()
        };
        text.splice(start..end, new);
    }
}

fn change_lines(source: &mut Source, text: &mut Vec<u8>) {
    let mut lines: Vec<Vec<u8>> = text.split_inclusive(|b| *b == b'\n').map(<[u8]>::to_vec).collect();
    let (i, j) = (source.below(lines.len()), source.below(lines.len()));
    match source.below(4) {
        0 => drop(lines.remove(i)),
        1 => lines.insert(j, lines[i].clone()),
        2 => lines.swap(i, j),
        _ => drop(lines.drain(i..(i + 1 + source.below(10)).min(lines.len()))),
    }
    *text = lines.concat();
}

/// Changes a few bytes of a message.
pub fn bend(source: &mut Source, bytes: &mut Vec<u8>) {
    for _ in 0..source.below(4) {
        let at = source.below(bytes.len());
        match source.below(5) {
            _ if bytes.is_empty() => bytes.push(source.bits() as u8),
            0 => bytes[at] ^= 1 << source.below(8),
            1 => bytes[at] = source.bits() as u8,
            2 => bytes.truncate(at),
            3 => {
                let n = source.below(8);
                bytes.extend(source.bytes(n));
            }
            _ => drop(bytes.splice(at..at, [0xff; 5])),
        }
    }
}
