//! What an agent of a router sees around it, so that it can be held against a controller's file: LLDP's neighbours and routes.
//!
//! An agent tells it [in parts](parts) when its file asks for it. A controller decides nothing by it.

use serde::{Deserialize, Serialize};

use crate::control;
use crate::prefix::Prefix;
use crate::time::Span;

/// Takes the place of the scheme's code in messages. No scheme has it: a controller that does not know it refuses the
/// message as one of another scheme.
pub const CODE: u16 = 0x0101;
/// How often a router sends its report.
pub const INTERVAL: Span = Span::from_secs(20);
/// Most rows that a router reports. A router with more routes reports none of them.
pub const MOST_ROWS: usize = 512;
/// Characters of a name.
pub const MOST_NAME: usize = 64;

/// Version of the form.
const VERSION: u8 = 1;
/// Bytes of rows in a part, so that it fits into a packet.
const PART: usize = 1_000;
/// Parts at most: a row has less than a quarter of one.
const MOST_PARTS: u16 = 192;

/// Something at an interface.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Row {
    /// The interface, as the router calls it.
    pub interface: String,
    /// What.
    pub what: What,
}

/// What is at an interface.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum What {
    /// It is a port of the agent's file.
    Port {
        /// Its place there.
        place: u32,
        /// Bit/s, as the file says.
        rate: u64,
    },
    /// LLDP hears somebody.
    Neighbour {
        /// Name of the system; where it has none, what identifies it.
        name: String,
        /// Its port.
        port: String,
    },
    /// Packets to this prefix leave by it.
    Route {
        /// As `10.1.0.0/16`.
        prefix: String,
    },
    /// Nothing is known, and why; the interface is empty.
    Unknown {
        /// Of what.
        why: String,
    },
}

/// A message.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Part {
    version: u8,
    /// Number of the look, modulo 2^32.
    pub number: u32,
    /// Which part of it this is.
    pub part: u16,
    /// How many there are.
    pub parts: u16,
    /// What was seen.
    pub rows: Vec<Row>,
}

/// What may be shown of a name that a stranger has chosen: printable ASCII, and not too much of it.
pub fn plain(name: &str) -> String {
    name.chars().flat_map(char::escape_default).take(MOST_NAME).collect()
}

fn is_plain(name: &str) -> bool {
    name.len() <= MOST_NAME && name.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic())
}

impl Row {
    fn is_sound(&self) -> bool {
        is_plain(&self.interface)
            && match &self.what {
                What::Port { place, .. } => (*place as usize) < MOST_ROWS,
                What::Neighbour { name, port } => is_plain(name) && is_plain(port),
                What::Route { prefix } => Prefix::parse(prefix).is_ok(),
                What::Unknown { why } => is_plain(why),
            }
    }
}

/// Messages with these rows, of which those behind the first [`MOST_ROWS`] are left out.
pub fn parts(number: u32, mut rows: Vec<Row>) -> Vec<Vec<u8>> {
    rows.truncate(MOST_ROWS);
    let mut all: Vec<Vec<Row>> = vec![Vec::new()];
    let mut filled = 0;
    for row in rows {
        let size = control::body(&row).len();
        if filled + size > PART {
            all.push(Vec::new());
            filled = 0;
        }
        filled += size;
        all.last_mut().expect("one at least").push(row);
    }
    let parts = all.len() as u16;
    let message = |(part, rows)| control::body(&Part { version: VERSION, number, part, parts, rows });
    (0..).zip(all).map(message).collect()
}

/// A message; none: it is no such, or has something that no agent says.
pub fn read(body: &[u8]) -> Option<Part> {
    let (part, rest) = postcard::take_from_bytes::<Part>(body).ok()?;
    let is_sound = rest.is_empty()
        && part.version == VERSION
        && part.part < part.parts
        && part.parts <= MOST_PARTS
        && body.len() <= 2 * PART
        && part.rows.iter().all(Row::is_sound);
    is_sound.then_some(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_seen_comes_in_parts_and_nothing_else_is_read() {
        let row = |n: usize| Row {
            interface: format!("eth{n}"),
            what: What::Neighbour {
                name: plain(&format!("switch {n} \u{1b}[31m\u{202e}\"")),
                port: "x".repeat(64),
            },
        };
        let rows: Vec<Row> = (0..600).map(row).collect();
        let all = parts(7, rows.clone());
        assert!(all.len() > 10 && all.iter().all(|part| part.len() < 1_200));
        let told: Vec<Part> = all.iter().map(|body| read(body).expect("sound")).collect();
        assert!(told.iter().all(|part| part.number == 7 && usize::from(part.parts) == all.len()));
        assert_eq!(told.into_iter().flat_map(|part| part.rows).collect::<Vec<_>>(), rows[..MOST_ROWS]);
        assert_eq!(read(&parts(1, Vec::new())[0]).map(|part| part.rows.len()), Some(0));
        // Longest rows fit.
        let longest = |_| Row {
            interface: "i".repeat(64),
            what: What::Neighbour { name: "n".repeat(64), port: "p".repeat(64) },
        };
        assert!(parts(1, (0..600).map(longest).collect()).iter().all(|body| read(body).is_some()));
        for wrong in [
            Row { interface: "e\n".to_owned(), what: What::Port { place: 0, rate: 1 } },
            Row { interface: "e".repeat(65), what: What::Port { place: 0, rate: 1 } },
            Row { interface: "e".to_owned(), what: What::Port { place: 512, rate: 1 } },
            Row { interface: "e".to_owned(), what: What::Route { prefix: "10.0.0.1/8".to_owned() } },
            Row { interface: String::new(), what: What::Unknown { why: "\u{e9}".to_owned() } },
        ] {
            assert_eq!(read(&parts(1, vec![wrong.clone()])[0]), None, "{wrong:?}");
        }
        let whole = &all[0];
        assert!((0..whole.len()).all(|length| read(&whole[..length]).is_none()));
        assert_eq!(read(&[&whole[..], &[0]].concat()), None);
    }
}
