//! Strict priority: band 0 leaves first, and a band waits while any band before it has packets.
//!
//! As Linux's prio, with bands chosen by DSCP. Ours: Linux maps the old type-of-service bits; `map` names code points,
//! and by default sorts them as RFC 4594 would: network control and voice first, the scavenger classes last.

use std::collections::VecDeque;

use super::dscp::{CODE_POINTS, code_point};
use super::fifo::DropTail;
use super::{Admission, Backlog, Discipline, Pkt, Qdisc, QdiscDef, Verdict};
use crate::params::{Kind, Params, keys};
use crate::time::{Span, Time};

/// The registry entry.
pub static DEF: QdiscDef = QdiscDef {
    name: "prio",
    about: "Strict priority between bands by DSCP, drop-tail in each",
    source: "Linux prio; RFC 2474, RFC 4594",
    keys: keys! {
        /// Most that may wait in each band
        "limit": Kind::Limit, default "1000pkt", from "as fifo";
        /// Number of bands
        "bands": Kind::Integer { min: 2, max: MOST_BANDS }, default "3", from "Linux prio";
        /// Code points (cs0 to cs7, af11 to af43, ef, va, le, 0 to 63, `default` for the others) = band, from
        /// 0
        "map": Kind::TextList, default "cs6 cs7 va ef = 0, default = 1, cs1 le = last", from "RFC 4594";
    },
    check: |params| read_map(params).map(|_| ()).map_err(|why| ("map", why)),
    build: |params, _| {
        // A map that does not pass `check` has no code points: everything in the last band.
        let last = (params.integer("bands").clamp(2, MOST_BANDS) - 1) as u8;
        Discipline::Ordered(Box::new(Prio {
            limit: DropTail { limit: params.limit("limit") },
            band_of: read_map(params).unwrap_or([last; CODE_POINTS]),
            bands: (0..=last).map(|_| Band::default()).collect(),
            occupied: 0,
        }))
    },
};

const MOST_BANDS: i64 = 8;

/// The band per code point; an error says what is wrong with `map`.
fn read_map(params: &Params) -> Result<[u8; CODE_POINTS], String> {
    let bands = params.integer("bands");
    let mut chosen = [None; CODE_POINTS];
    let mut others = None;
    for entry in params.list("map").iter().flat_map(|text| text.split(',')) {
        let entry = entry.trim();
        let Some((names, band)) = entry.split_once('=') else {
            return Err(format!("\"{entry}\" is not \"code points = band\""));
        };
        let band = match band.trim() {
            "last" => bands - 1,
            number => match number.parse() {
                Ok(band) if (0..bands).contains(&band) => band,
                _ => return Err(format!("\"{number}\" is not a band from 0 to {}, or \"last\"", bands - 1)),
            },
        } as u8;
        if names.trim().is_empty() {
            return Err(format!("\"{entry}\" names no code point"));
        }
        for name in names.split_whitespace() {
            let place = match name {
                "default" => &mut others,
                name => match code_point(name) {
                    Some(dscp) => &mut chosen[usize::from(dscp)],
                    None => return Err(format!("\"{name}\" is not a code point, as ef, af41, cs6 or 46")),
                },
            };
            if place.replace(band).is_some() {
                return Err(format!("\"{name}\" has a band already"));
            }
        }
    }
    let Some(others) = others else {
        return Err("has no \"default = band\" for the code points that it does not name".to_owned());
    };
    Ok(chosen.map(|band| band.unwrap_or(others)))
}

struct Prio {
    limit: DropTail,
    band_of: [u8; CODE_POINTS],
    bands: Vec<Band>,
    /// Bit per band with packets.
    occupied: u8,
}

#[derive(Default)]
struct Band {
    packets: VecDeque<Pkt>,
    bytes: u64,
}

impl Band {
    fn backlog(&self) -> Backlog {
        Backlog { packets: self.packets.len() as u32, bytes: self.bytes }
    }
}

impl Qdisc for Prio {
    fn enqueue(&mut self, now: Time, pkt: Pkt, _dropped: &mut Vec<Pkt>) -> Verdict {
        let number = self.band_of[usize::from(pkt.dscp) % CODE_POINTS];
        let band = &mut self.bands[usize::from(number)];
        let verdict = self.limit.admit(now, band.backlog(), Span::ZERO, &pkt);
        if verdict != Verdict::Drop {
            band.bytes += u64::from(pkt.len);
            band.packets.push_back(pkt);
            self.occupied |= 1 << number;
        }
        verdict
    }

    fn dequeue(&mut self, _now: Time, _dropped: &mut Vec<Pkt>) -> Option<Pkt> {
        let number = self.occupied.trailing_zeros() as usize;
        let band = self.bands.get_mut(number)?;
        let pkt = band.packets.pop_front()?;
        band.bytes -= u64::from(pkt.len);
        if band.packets.is_empty() {
            self.occupied &= !(1 << number);
        }
        Some(pkt)
    }

    fn next_ready(&self, now: Time) -> Option<Time> {
        (self.occupied != 0).then_some(now)
    }

    fn backlog(&self) -> Backlog {
        self.bands.iter().map(Band::backlog).fold(Backlog::default(), |sum, band| Backlog {
            packets: sum.packets + band.packets,
            bytes: sum.bytes + band.bytes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::Site;
    use super::*;
    use crate::id::FlowId;
    use crate::params::{Limit, Value};
    use crate::rng::Stream;
    use crate::units::Rate;

    fn params(bands: i64, limit: u32, map: &[&str]) -> Params {
        let mut params = Params::defaults(DEF.keys);
        params.set("bands", Value::Integer(bands));
        params.set("limit", Value::Limit(Limit::Packets(limit)));
        if !map.is_empty() {
            params.set("map", Value::List(map.iter().map(|text| (*text).to_owned()).collect()));
        }
        params
    }

    fn prio(params: &Params) -> Box<dyn Qdisc> {
        let site = Site::new(Rate::ZERO, Stream::new(1, 0, "test"));
        match (DEF.build)(params, site) {
            Discipline::Ordered(qdisc) => qdisc,
            Discipline::Fifo(_) => panic!("prio orders packets"),
        }
    }

    fn put(qdisc: &mut dyn Qdisc, key: u32, dscp: u8) -> Verdict {
        let pkt = Pkt { key, len: 100, flow: FlowId(0), dscp, ect: false, ce: false, reverse: false };
        qdisc.enqueue(Time::ZERO, pkt, &mut Vec::new())
    }

    #[test]
    fn by_default_voice_and_control_go_first_and_scavengers_last() {
        for (bands, last) in [(2, 1), (3, 2), (8, 7)] {
            let map = read_map(&params(bands, 1, &[])).unwrap();
            assert_eq!([46, 44, 48, 56].map(|dscp| map[dscp]), [0; 4]);
            assert_eq!([0, 10, 34, 40, 63].map(|dscp| map[dscp]), [1; 5]);
            assert_eq!([8, 1].map(|dscp| map[dscp]), [last; 2]);
        }
    }

    #[test]
    fn a_band_waits_for_those_before_it_and_has_a_limit_of_its_own() {
        let mut qdisc = prio(&params(3, 2, &["ef = 0", "default = 1, 8 = 2"]));
        assert_eq!(qdisc.next_ready(Time::ZERO), None);
        for (key, dscp) in [(0, 8), (1, 0), (2, 46), (3, 8), (4, 46)] {
            assert_eq!(put(qdisc.as_mut(), key, dscp), Verdict::Accept);
        }
        assert_eq!(put(qdisc.as_mut(), 5, 46), Verdict::Drop);
        assert_eq!(put(qdisc.as_mut(), 6, 34), Verdict::Accept);
        assert_eq!(put(qdisc.as_mut(), 7, 10), Verdict::Drop);
        assert_eq!(qdisc.backlog(), Backlog { packets: 6, bytes: 600 });
        let mut take = || qdisc.dequeue(Time::ZERO, &mut Vec::new()).map(|p| p.key);
        assert_eq!([take(), take(), take(), take()], [Some(2), Some(4), Some(1), Some(6)]);
        assert_eq!([take(), take(), take()], [Some(0), Some(3), None]);
    }

    #[test]
    fn a_wrong_map_says_what_is_wrong() {
        let why = |bands, map: &[&str]| (DEF.check)(&params(bands, 1, map)).unwrap_err();
        let key = "map";
        assert_eq!(why(3, &["ef"]), (key, "\"ef\" is not \"code points = band\"".to_owned()));
        assert_eq!(why(3, &["ef = 3"]), (key, "\"3\" is not a band from 0 to 2, or \"last\"".to_owned()));
        let message = "\"fast\" is not a code point, as ef, af41, cs6 or 46";
        assert_eq!(why(3, &["fast = 0"]), (key, message.to_owned()));
        assert_eq!(why(3, &["ef = 0, 46 = 1"]), (key, "\"46\" has a band already".to_owned()));
        assert_eq!(why(3, &[" = 1"]), (key, "\"= 1\" names no code point".to_owned()));
        let message = "has no \"default = band\" for the code points that it does not name";
        assert_eq!(why(3, &["ef = 0"]), (key, message.to_owned()));
        assert_eq!((DEF.check)(&params(2, 1, &[])), Ok(()));
    }
}
