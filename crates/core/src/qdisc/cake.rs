//! CAKE, common applications kept enhanced: a shaper, tins by code point, turns by host and flow, and COBALT in each queue.
//!
//! Høiland-Jørgensen, Täht, Morton, "Piece of CAKE: A Comprehensive Queue Management Solution for Home Gateways", LANMAN
//! 2018, and what tc-cake(8) documents. Where they leave room this does what Linux's cake is seen to do: constants of the
//! tins, targets and quanta on slow links, and what the fuller tins owe.
//!
//! Read `shaper`, when a packet may leave and what it costs; `cobalt`, what is dropped; `tin`, whose turn it is; then `Cake`,
//! which tin.
//!
//! Ours: exact time; hosts by their numbers, without a hash; a queue that two flows share keeps both in order; an empty queue
//! forgets in time. Not there: the ACK filter, `ingress`, `autorate-ingress`, `wash`, `nat`, `diffserv8`, `precedence` and
//! the isolation by hosts alone.

mod cobalt;
mod shaper;
mod tin;

use self::cobalt::Settings;
use self::shaper::{Clock, Framing, LinkLayer};
use self::tin::{Store, Tin};
use super::dscp::CODE_POINTS;
use super::{Backlog, Discipline, Hosts, Pkt, Qdisc, QdiscDef, Site, Verdict};
use crate::params::{Choice, Key, Kind, Limit, Params, choice, keys};
use crate::rng::Stream;
use crate::time::{Span, Time};
use crate::units::{Bytes, Dimension, Rate};

/// The registry entry.
pub static DEF: QdiscDef = QdiscDef {
    name: "cake",
    about: "CAKE: a shaper, tins by code point, fair to hosts and to flows within them, COBALT in each queue",
    source: "Høiland-Jørgensen, Täht, Morton: Piece of CAKE: A Comprehensive Queue Management Solution for Home Gateways, \
             IEEE LANMAN 2018; Linux tc-cake(8)",
    keys: KEYS,
    check,
    build: |params, site| Discipline::Ordered(Box::new(Cake::new(params, site))),
};

const KEYS: &[Key] = keys! {
    /// Most that may wait in all tins; absent: four times what `rate` carries in `rtt`, without `rate` 10240 times
    /// `mtu`, and at least 4 MiB
    "limit": Kind::Limit, optional;
    /// Rate of the shaper; absent: no shaper, packets leave when the port is free
    "rate": Kind::Quantity(Dimension::Rate), optional;
    /// Bytes that the link behind the shaper adds to each packet, at most 256
    "overhead": Kind::Quantity(Dimension::Bytes), default "0B", from "tc-cake(8): raw";
    /// Least that a packet takes there, overhead included, at most 256
    "mpu": Kind::Quantity(Dimension::Bytes), default "0B", from "tc-cake(8)";
    /// Cells of the link behind the shaper: none, of ATM (53 bytes for 48), or of PTM (65 for 64)
    "link-layer": LinkLayer::KIND, default "none", from "tc-cake(8): noatm";
    /// Usual round-trip time: COBALT's interval; its target is a twentieth
    "rtt": Kind::Quantity(Dimension::Span), default "100ms", from "tc-cake(8): internet";
    /// Who shares equally: sources (dual-srchost), destinations (dual-dsthost), or both (triple-isolate),
    /// and then the flows of a host; or flows alone
    "isolation": Isolation::KIND, default "triple-isolate", from "tc-cake(8)";
    /// Tins: one; bulk, best effort and voice; or these with video
    "diffserv": Diffserv::KIND, default "diffserv3", from "tc-cake(8)";
    /// Longest packet of the link, framing included: the target is at least the time of one and a half
    "mtu": Kind::Quantity(Dimension::Bytes), default "1514B", from "Ethernet";
    /// Mark packets that may be marked in place of CoDel's drops
    "ecn": Kind::Bool, default "true", from "Linux cake: always";
};

choice! {
    /// Which hosts of a flow have a part of the link that their flows share.
    enum Isolation {
        /// The source and the destination.
        Triple = "triple-isolate",
        /// The source.
        Source = "dual-srchost",
        /// The destination.
        Destination = "dual-dsthost",
        /// None.
        Flows = "flows",
    }

    /// How code points are sorted into tins.
    enum Diffserv {
        /// All alike.
        One = "besteffort",
        /// Best effort, bulk, voice.
        Three = "diffserv3",
        /// Best effort, bulk, video, voice.
        Four = "diffserv4",
    }
}

/// Bounds of `rtt`; the longest is `interplanetary` of tc-cake(8).
const LEAST_RTT: Span = Span::from_micros(1);
const MOST_RTT: Span = Span::from_secs(3_600);
/// Most of `overhead` and `mpu`, as tc has it.
const MOST_OVERHEAD: Bytes = Bytes::new(256);
/// Least of the limit that follows from other keys.
const LEAST_MEMORY: u64 = 4 << 20;
/// Longest packets of the limit without a rate. Linux shows 14680 KiB there for packets of 1468 bytes.
const MOST_PACKETS: u64 = 10_240;
/// Quanta: what a tin's rate carries in 1/4096 s, within these bounds; the upper one without a shaper.
const QUANTA: (u64, u64) = (300, 1514);
const QUANTA_PER_SECOND: u64 = 4096;
/// Bytes of the best-effort tin's turn without a shaper.
const TURN: u64 = 1024;

fn check(params: &Params) -> Result<(), (&'static str, String)> {
    if let Some(rate) = params.optional("rate", Params::rate)
        && rate == Rate::ZERO
    {
        return Err(("rate", format!("\"{rate}\" lets nothing leave")));
    }
    let rtt = params.span("rtt");
    if !(LEAST_RTT..=MOST_RTT).contains(&rtt) {
        return Err(("rtt", format!("\"{rtt}\" is not from {LEAST_RTT} to {MOST_RTT}")));
    }
    for key in ["overhead", "mpu"] {
        let bytes = params.bytes(key);
        if bytes > MOST_OVERHEAD {
            return Err((key, format!("\"{bytes}\" is more than {MOST_OVERHEAD}")));
        }
    }
    Ok(())
}

impl Diffserv {
    /// The tins, later ones before earlier ones: which part of the rate each has, as 1 / n.
    const fn parts(self) -> &'static [u64] {
        match self {
            Self::One => &[1],
            Self::Three => &[1, 16, 4],
            Self::Four => &[1, 16, 2, 4],
        }
    }

    /// The tin of a code point. Names are those of RFC 2474 and its kin; 4 is the old "minimize delay".
    const fn tin(self, dscp: usize) -> u8 {
        match (self, dscp) {
            (Self::One, _) => 0,
            // LE, CS1.
            (_, 1 | 8) => 1,
            // 4, VA, EF, CS6, CS7.
            (Self::Three, 4 | 44 | 46 | 48 | 56) => 2,
            // 4, CS2, AF2x, CS3, AF3x, AF4x.
            (Self::Four, 4 | 16 | 18 | 20 | 22 | 24 | 26 | 28 | 30 | 34 | 36 | 38) => 2,
            // CS4, CS5, VA, EF, CS6, CS7.
            (Self::Four, 32 | 40 | 44 | 46 | 48 | 56) => 3,
            _ => 0,
        }
    }
}

struct Cake {
    limit: Limit,
    framing: Framing,
    hosts: Hosts,
    /// The shaper, when there is one.
    clock: Option<Clock>,
    /// Best effort, bulk, video, voice.
    tins: Vec<Tin>,
    tin_of: [u8; CODE_POINTS],
    /// Without a shaper: the tin whose turn it is.
    turn: usize,
    store: Store,
    /// Makes the hash differ between ports.
    perturbation: u64,
    stream: Stream,
}

impl Cake {
    fn new(params: &Params, mut site: Site) -> Self {
        let rate = params.optional("rate", Params::rate);
        let (rtt, mtu, ecn) = (params.span("rtt"), params.bytes("mtu"), params.bool("ecn"));
        let isolation: Isolation = params.choice("isolation");
        let isolates = match isolation {
            Isolation::Triple => [true, true],
            Isolation::Source => [true, false],
            Isolation::Destination => [false, true],
            Isolation::Flows => [false, false],
        };
        let diffserv: Diffserv = params.choice("diffserv");
        let tins = diffserv.parts().iter().map(|part| {
            let rate = rate.map(|rate| Rate::from_bits_per_sec((rate.bits_per_sec() / part).max(1)));
            let settings = Settings::new(rtt, rate.map_or(Span::ZERO, |rate| rate.time_for(mtu)), ecn);
            let quantum = rate.map_or(QUANTA.1, |rate| rate.bits_per_sec() / 8 / QUANTA_PER_SECOND);
            let quantum = quantum.clamp(QUANTA.0, QUANTA.1) as i64;
            Tin::new(settings, quantum, isolates, rate.map(Clock::new), (TURN / part) as i64)
        });
        let mut tin_of = [0; CODE_POINTS];
        for (dscp, tin) in tin_of.iter_mut().enumerate() {
            *tin = diffserv.tin(dscp);
        }
        Self {
            limit: params.optional("limit", Params::limit).unwrap_or_else(|| memory(rate, rtt, mtu)),
            framing: Framing {
                overhead: params.bytes("overhead").get(),
                mpu: params.bytes("mpu").get(),
                layer: params.choice("link-layer"),
            },
            hosts: site.hosts,
            clock: rate.map(Clock::new),
            tins: tins.collect(),
            tin_of,
            turn: 0,
            store: Store::new(),
            perturbation: site.stream.next_u64(),
            stream: site.stream,
        }
    }

    /// The tin that sends next; some packet waits.
    fn next_tin(&mut self, now: Time) -> usize {
        if self.clock.is_some() { self.scheduled(now) } else { self.in_turn() }
    }

    /// With a shaper: the last tin that is within its rate. When none is, the one that will be so first.
    fn scheduled(&self, now: Time) -> usize {
        let mut best: Option<(usize, Time)> = None;
        for (at, tin) in self.tins.iter().enumerate().filter(|(_, tin)| tin.packets > 0) {
            let next = tin.clock.map_or(now, |clock| clock.next());
            if next <= now || best.is_none_or(|(_, earliest)| next <= earliest) {
                best = Some((at, next));
            }
        }
        best.map_or(0, |(at, _)| at)
    }

    /// Without one: tins take turns by bytes, in proportion to their parts.
    fn in_turn(&mut self) -> usize {
        loop {
            let tin = &mut self.tins[self.turn];
            if tin.packets > 0 && tin.deficit >= 0 {
                return self.turn;
            }
            if tin.deficit <= 0 {
                tin.deficit += tin.share;
            }
            self.turn = (self.turn + 1) % self.tins.len();
        }
    }

    /// The tin and the queue with most bytes; the first of equals.
    fn longest(&self) -> Option<(usize, usize)> {
        let mut best: Option<(u64, usize, usize)> = None;
        for (at, tin) in self.tins.iter().enumerate() {
            if let Some((bytes, place)) = tin.longest()
                && best.is_none_or(|(most, ..)| bytes > most)
            {
                best = Some((bytes, at, place));
            }
        }
        best.map(|(_, at, place)| (at, place))
    }
}

/// The limit that follows from the shaper's rate, or from the longest packet where there is no shaper.
fn memory(rate: Option<Rate>, rtt: Span, mtu: Bytes) -> Limit {
    let bytes = match rate {
        Some(rate) => rate.bytes_in(rtt).get().saturating_mul(4),
        None => mtu.get().saturating_mul(MOST_PACKETS),
    };
    Limit::Bytes(Bytes::new(bytes.max(LEAST_MEMORY)))
}

impl Qdisc for Cake {
    fn enqueue(&mut self, now: Time, pkt: Pkt, dropped: &mut Vec<Pkt>) -> Verdict {
        if matches!(self.limit, Limit::Bytes(bytes) if u64::from(pkt.len) > bytes.get()) {
            return Verdict::Drop;
        }
        if self.store.backlog.packets == 0
            && let Some(clock) = &mut self.clock
        {
            clock.catch_up(now);
        }
        let at = usize::from(self.tin_of[usize::from(pkt.dscp) % CODE_POINTS]);
        let hosts = self.hosts.of(&pkt);
        let place = self.tins[at].push(now, pkt, hosts, self.perturbation, &mut self.store);
        while !self.store.backlog.within(self.limit) {
            let victim = self.longest().unwrap_or((at, place));
            self.tins[victim.0].drop_first(now, victim.1, &mut self.store, dropped);
            if victim == (at, place) && self.tins[at].slots[place].chain.is_empty() {
                // The arriving packet was the last of its queue.
                dropped.pop();
                return Verdict::Drop;
            }
        }
        Verdict::Accept
    }

    fn dequeue(&mut self, now: Time, dropped: &mut Vec<Pkt>) -> Option<Pkt> {
        if self.store.backlog.packets == 0 || self.clock.is_some_and(|clock| clock.next() > now) {
            return None;
        }
        let at = self.next_tin(now);
        let tin = &mut self.tins[at];
        let pkt = tin.dequeue(now, self.framing, &mut self.store, &mut self.stream, dropped)?;
        let bytes = self.framing.bytes(pkt.len);
        tin.deficit -= bytes as i64;
        if let Some(clock) = &mut tin.clock {
            clock.charge_at(now, bytes);
        }
        if let Some(clock) = &mut self.clock {
            clock.charge(bytes);
        }
        Some(pkt)
    }

    fn next_ready(&self, now: Time) -> Option<Time> {
        (self.store.backlog.packets > 0).then(|| self.clock.map_or(now, |clock| clock.next()))
    }

    fn backlog(&self) -> Backlog {
        self.store.backlog
    }

    fn purge(&mut self, _now: Time, purged: &mut Vec<Pkt>) {
        for tin in &mut self.tins {
            tin.purge(&mut self.store, purged);
        }
    }
}

#[cfg(test)]
mod tests;
