//! FBQM, flow-based queue management: RED over the whole queue, which is served by classes of faster and slower flows
//! in turn.
//!
//! Choi, Sekhon, Seok, "Flow-based queue management for fairness control in high-bandwidth network", Science China
//! Information Sciences 59(6), 069301, 2016, Algorithm 1. Where the paper is silent, what we read into it, and what is
//! ours stands in `docs/qdiscs/fbqm.md`. Ours are more than two classes, `service = "by-flows"`, `drop = "fair"` and
//! `classifier = "lead"`, whose turns are the rounds of Sharma, Liu, Atreya, Krishnamurthy, "Approximating Fair
//! Queueing on Reconfigurable Switches", NSDI 2018.
//!
//! Read [`sketch`], what is known of a flow; [`classifier`], its class by rate; `Turns`, its class by lead; then
//! [`Fbqm`].

pub mod classifier;
pub mod sketch;

use std::collections::VecDeque;

use self::classifier::{Classifier, RateClasses};
use self::sketch::{Hash, LeadSketch, Slots};
use super::dscp::CodePoints;
use super::fifo::DropTail;
use super::red::{Average, Red, Settings, check_mean_packet, check_thresholds};
use super::{Admission, Backlog, Discipline, Pkt, Qdisc, QdiscDef, Site, Verdict, ones};
use crate::params::{Choice, Key, Kind, Params, choice, keys};
use crate::rng::Stream;
use crate::time::{Span, Time};
use crate::units::Dimension;

/// The registry entry.
pub static DEF: QdiscDef = QdiscDef {
    name: "fbqm",
    about: "Flow-based queue management: RED, and classes of faster and slower flows served in turn",
    source: "Choi, Sekhon, Seok: Flow-based queue management for fairness control in high-bandwidth network, Science \
             China Information Sciences 59(6), 2016",
    keys: KEYS,
    check,
    build: |params, site| Discipline::Ordered(Box::new(Fbqm::new(params, site))),
};

const KEYS: &[Key] = keys! {
    /// Most that may wait, not counting the packet in transmission
    "limit": Kind::Limit, default "100pkt", from "Choi 2016, experiment";
    /// Order inside a class; "literal" is the printed deque, which pops the newest first
    "order": Order::KIND, default "fifo", from "bandmaster; Algorithm 1 prints \"literal\"";
    /// When the classes are served in turn; at other times packets leave in order of arrival
    "serve": Serve::KIND, default "between-thresholds", from "Choi 2016, text on Fig. 1(a)";
    /// How the class is chosen: by arrival rate relative to the mean, by order of first packets, by
    /// `fast-dscp`, or by lead over the fair share
    "classifier": SortBy::KIND, default "rate", from "bandmaster; Choi 2016 is silent";
    /// Number of classes
    "classes": Kind::Integer { min: 2, max: 64 }, default "2", from "Choi 2016: fast and slow";
    /// rate: length of a rate sample; classes are re-evaluated after each
    "interval": Kind::Quantity(Dimension::Span), default "500ms", from "bandmaster";
    /// rate: a flow changes class at once, which may reorder it, or only when none of its packets waits
    "reclassify": Reclassify::KIND, default "at-once", from "Choi 2016: by arriving packet";
    /// address: code points of fast packets, by name or number
    "fast-dscp": Kind::TextList, default "EF", from "bandmaster";
    /// Cells in each of the four rows of the sketch, a power of two
    "cells": Kind::Integer { min: 64, max: 65_536 }, default "32768",
        from "0.5 % of 10,000 flows overestimated";
    /// How classes share the link: equally, or (rate) in proportion to their active flows
    "service": Service::KIND, default "equal", from "Choi 2016: 1:1";
    /// lead: bytes of a flow that one turn serves, and the distance between classes
    "quantum": Kind::Quantity(Dimension::Bytes), default "1514B",
        from "a full Ethernet frame, as in RFC 8290";
    /// Early drops: RED for all flows alike, or only for flows above a share that falls as the queue grows
    /// (rate, lead)
    "drop": EarlyDrop::KIND, default "red", from "Choi 2016: RED";
    /// Average queue below which nothing is dropped early; its unit, packets or bytes, is that of the average
    "min-th": Kind::Limit, default "50pkt", from "Choi 2016, experiment";
    /// Average queue from which everything is dropped; same unit as `min-th`
    "max-th": Kind::Limit, default "80pkt", from "Choi 2016, experiment";
    ..super::red::WEIGHT;
    /// Drop probability at `max-th`, before spacing
    "max-p": Kind::Float { min: 0.0, max: 1.0 }, default "0.1", from "Floyd 1997; NS's RED";
    ..super::red::ECN;
    ..super::red::MEAN_PACKET;
};

choice! {
    enum Order { Fifo = "fifo", Literal = "literal" }
    enum Serve { BetweenThresholds = "between-thresholds", Always = "always" }
    enum SortBy { Rate = "rate", StartOrder = "start-order", Address = "address", Lead = "lead" }
    enum Reclassify { AtOnce = "at-once", WhenDrained = "when-drained" }
    enum Service { Equal = "equal", ByFlows = "by-flows" }
    pub(crate) enum EarlyDrop { Red = "red", Fair = "fair" }
}

fn check(params: &Params) -> Result<(), (&'static str, String)> {
    check_mean_packet(params.bytes("mean-packet"))?;
    check_thresholds(params.limit("limit"), params.limit("min-th"), params.limit("max-th"))?;
    let sort_by: SortBy = params.choice("classifier");
    let (has_rates, by_lead) = (sort_by == SortBy::Rate, sort_by == SortBy::Lead);
    let service: Service = params.choice("service");
    let classes = params.integer("classes");
    let needs = |key, value: &str, what: &str| Err((key, format!("\"{value}\" {what}")));
    if params.span("interval").is_zero() {
        return Err(("interval", "is zero; no rate could be measured".to_owned()));
    }
    if params.bytes("quantum").get() == 0 {
        return Err(("quantum", "is zero; no turn would serve anything".to_owned()));
    }
    let cells = params.integer("cells");
    if cells.count_ones() != 1 {
        return Err(("cells", format!("{cells} is not a power of two")));
    }
    if let Err(unknown) = CodePoints::parse(&params.list("fast-dscp")) {
        return Err(("fast-dscp", unknown));
    }
    if classes > 2 && sort_by == SortBy::Address {
        return Err((
            "classes",
            format!("{classes} does not fit `classifier = \"address\"`, which tells two apart"),
        ));
    }
    let literal = params.choice::<Order>("order") == Order::Literal;
    if literal && (classes > 2 || by_lead || service != Service::Equal) {
        return needs(
            "order",
            "literal",
            "has a deque with two ends: two classes, not by lead, served equally",
        );
    }
    if by_lead && params.choice::<Serve>("serve") != Serve::Always {
        return needs(
            "serve",
            "between-thresholds",
            "does not fit `classifier = \"lead\"`; write \"always\"",
        );
    }
    if service == Service::ByFlows && !has_rates {
        return needs("service", "by-flows", "needs `classifier = \"rate\"`, which counts flows");
    }
    if params.choice::<EarlyDrop>("drop") == EarlyDrop::Fair && !has_rates && !by_lead {
        return needs("drop", "fair", "needs `classifier = \"rate\"` or \"lead\", which know what is fair");
    }
    Ok(())
}

/// The discipline of one port.
pub struct Fbqm {
    /// Who is dropped early.
    early: Early,
    sorting: Sorting,
    classes: Vec<Class>,
    /// Classes in which packets wait, a bit each.
    occupied: u64,
    backlog: Backlog,
    /// Number of the next packet.
    arrivals: u64,
    /// True when the classes are served in turn whatever the average queue is.
    always: bool,
    /// Newest first inside a class.
    literal: bool,
    by_flows: bool,
    /// The class whose turn it is.
    turn: usize,
    /// by-flows: pass of the class served last.
    pass: u64,
    ecn: bool,
    /// When the transmitter asked and found nothing.
    idle_since: Option<Time>,
}

struct Class {
    queue: VecDeque<Entry>,
    /// by-flows: when its next packet is due, in bytes per flow.
    pass: u64,
}

#[derive(Clone, Copy)]
struct Entry {
    pkt: Pkt,
    arrival: u64,
}

enum Early {
    Red(Box<Red>),
    Fair(Box<Fair>),
}

/// Drops of flows above a share that falls as the queue grows.
struct Fair {
    average: Average,
    tail: DropTail,
    ecn: bool,
    min_th: f64,
    max_th: f64,
    in_bytes: bool,
    /// Bytes that the link carries in an interval.
    capacity: f64,
    stream: Stream,
}

enum Sorting {
    Classes(Classifier),
    Turns(Turns),
}

/// Classes by lead: a turn serves one quantum per flow, and a packet's class is how many turns ahead it is.
///
/// Turn t collects the packets that begin in bytes [t, t + 1) x quantum of their flow's share. A flow that had nothing
/// waiting begins at the current turn, while that has room. A turn has room for as much again as it began with: flows that
/// never stop coming would otherwise hold it for ever.
struct Turns {
    hash: Hash,
    lead: LeadSketch,
    quantum: u64,
    /// The current turn.
    turn: u64,
    /// Bytes that may still join the current turn; none before its first packet has left: any number.
    room: Option<u64>,
    classes: u64,
}

impl Fbqm {
    /// FBQM for one port.
    pub fn new(params: &Params, mut site: Site) -> Self {
        let classes = params.integer("classes") as usize;
        let hash = Hash::new(params.integer("cells") as u32, &mut site.stream);
        let interval = params.span("interval");
        let sorting = match params.choice("classifier") {
            SortBy::Lead => Sorting::Turns(Turns {
                lead: LeadSketch::new(hash.cells()),
                hash,
                quantum: params.bytes("quantum").get(),
                turn: 0,
                room: None,
                classes: classes as u64,
            }),
            SortBy::StartOrder => Sorting::Classes(Classifier::StartOrder { first: Vec::new(), classes }),
            SortBy::Address => {
                let fast = CodePoints::parse(&params.list("fast-dscp")).unwrap_or_default();
                Sorting::Classes(Classifier::Address(fast))
            }
            SortBy::Rate => {
                let in_order = params.choice::<Reclassify>("reclassify") == Reclassify::WhenDrained;
                Sorting::Classes(Classifier::Rate(Box::new(RateClasses::new(
                    hash, classes, interval, in_order,
                ))))
            }
        };
        let red = Settings::new(params, false, false);
        let ecn = red.ecn;
        let early = if params.choice::<EarlyDrop>("drop") == EarlyDrop::Fair {
            Early::Fair(Box::new(Fair {
                average: Average::new(red.weight, red.mean_packet, site.rate),
                tail: DropTail { limit: red.limit },
                ecn,
                min_th: red.min_th,
                max_th: red.max_th,
                in_bytes: red.in_bytes,
                capacity: site.rate.bits_per_sec() as f64 / 8.0 * interval.as_secs_f64(),
                stream: site.stream,
            }))
        } else {
            Early::Red(Box::new(Red::new(red, site)))
        };
        Self {
            early,
            sorting,
            classes: (0..classes).map(|_| Class { queue: VecDeque::new(), pass: 0 }).collect(),
            occupied: 0,
            backlog: Backlog::default(),
            arrivals: 0,
            always: params.choice::<Serve>("serve") == Serve::Always,
            literal: params.choice::<Order>("order") == Order::Literal,
            by_flows: params.choice::<Service>("service") == Service::ByFlows,
            turn: classes - 1,
            pass: 0,
            ecn,
            idle_since: Some(Time::ZERO),
        }
    }

    /// Whether the packet may come in, and to which class.
    fn judge(&mut self, now: Time, pkt: &Pkt) -> (Verdict, Place) {
        let idle = self.idle_since.map_or(Span::ZERO, |since| now.since(since));
        let place = match &mut self.sorting {
            Sorting::Classes(classifier) => {
                Place { class: classifier.classify(now, pkt), ..Place::default() }
            }
            Sorting::Turns(turns) => turns.place(pkt, self.occupied == 0),
        };
        let early = match &mut self.early {
            Early::Red(red) => red.admit(now, self.backlog, idle, pkt),
            Early::Fair(fair) => {
                let rates = match &self.sorting {
                    Sorting::Classes(Classifier::Rate(rates)) => Some(&**rates),
                    Sorting::Classes(_) | Sorting::Turns(_) => None,
                };
                fair.admit(now, self.backlog, idle, pkt, rates)
            }
        };
        let by_lead = match &self.sorting {
            Sorting::Classes(_) => Verdict::Accept,
            Sorting::Turns(turns) => {
                let allowed = match &self.early {
                    Early::Red(_) => turns.classes,
                    Early::Fair(fair) => turns.allowed(fair.load(fair.amount(self.backlog))),
                };
                match place.ahead {
                    ahead if ahead >= allowed => Verdict::Drop,
                    ahead if self.ecn && pkt.ect && ahead > 0 && 2 * ahead >= allowed => Verdict::Mark,
                    _ => Verdict::Accept,
                }
            }
        };
        let verdict = match (early, by_lead) {
            (Verdict::Drop, _) | (_, Verdict::Drop) => Verdict::Drop,
            (Verdict::Mark, _) | (_, Verdict::Mark) => Verdict::Mark,
            (Verdict::Accept, Verdict::Accept) => Verdict::Accept,
        };
        (verdict, place)
    }

    /// The class that is served next, and whether from its newest end.
    fn next(&mut self) -> Option<(usize, bool)> {
        if self.occupied == 0 {
            return None;
        }
        if let Sorting::Turns(turns) = &mut self.sorting {
            let class = turns.advance(self.occupied);
            let packets = self.classes[class].queue.len() as u64;
            turns.room.get_or_insert(packets.saturating_mul(turns.quantum));
            return Some((class, false));
        }
        if !self.always && !self.early.between_thresholds() {
            let arrival = |class: &usize| self.classes[*class].queue.front().map(|entry| entry.arrival);
            return ones(self.occupied).min_by_key(arrival).map(|class| (class, false));
        }
        if self.by_flows {
            let class = ones(self.occupied).min_by_key(|class| self.classes[*class].pass)?;
            self.pass = self.classes[class].pass;
            return Some((class, false));
        }
        // From fast to slow, then fast again.
        let turn = self.turn;
        let downwards = self.occupied & (u64::MAX >> (63 - turn));
        let set = if downwards == 0 { self.occupied } else { downwards };
        let class = 63 - set.leading_zeros() as usize;
        // The printed deque changes ends at each packet, also when one class is empty; then the far end is the oldest.
        let served = if self.literal { turn } else { class };
        self.turn = served.checked_sub(1).unwrap_or(self.classes.len() - 1);
        Some((class, self.literal && class == turn))
    }

    fn remove(&mut self, class: usize, newest: bool) -> Option<Pkt> {
        let Class { queue, pass } = &mut self.classes[class];
        let Entry { pkt, .. } = if newest { queue.pop_back() } else { queue.pop_front() }?;
        if queue.is_empty() {
            self.occupied &= !(1 << class);
        }
        self.backlog.packets -= 1;
        self.backlog.bytes -= u64::from(pkt.len);
        if let Sorting::Classes(classifier) = &mut self.sorting {
            classifier.left(pkt.flow);
            if let (true, Classifier::Rate(rates)) = (self.by_flows, &*classifier) {
                *pass += (u64::from(pkt.len) << PASS_BITS) / u64::from(rates.count(class).max(1));
            }
        }
        Some(pkt)
    }
}

/// Binary places of a pass.
const PASS_BITS: u32 = 16;

impl Qdisc for Fbqm {
    fn enqueue(&mut self, now: Time, pkt: Pkt, _dropped: &mut Vec<Pkt>) -> Verdict {
        let (verdict, place) = self.judge(now, &pkt);
        if verdict == Verdict::Drop {
            return verdict;
        }
        match &mut self.sorting {
            Sorting::Classes(classifier) => classifier.queued(pkt.flow, place.class),
            Sorting::Turns(turns) => {
                turns.lead.fill(&place.slots, place.end);
                if let (0, Some(room)) = (place.ahead, &mut turns.room) {
                    *room -= u64::from(pkt.len);
                }
            }
        }
        let class = &mut self.classes[place.class];
        if class.queue.is_empty() {
            // A class that had nothing waiting is due now, not earlier.
            class.pass = class.pass.max(self.pass);
            self.occupied |= 1 << place.class;
        }
        class.queue.push_back(Entry { pkt, arrival: self.arrivals });
        self.arrivals += 1;
        self.backlog.packets += 1;
        self.backlog.bytes += u64::from(pkt.len);
        verdict
    }

    fn dequeue(&mut self, now: Time, _dropped: &mut Vec<Pkt>) -> Option<Pkt> {
        let Some((class, newest)) = self.next() else {
            self.idle_since = self.idle_since.or(Some(now));
            return None;
        };
        self.idle_since = None;
        self.remove(class, newest)
    }

    fn next_ready(&self, now: Time) -> Option<Time> {
        (self.occupied != 0).then_some(now)
    }

    fn backlog(&self) -> Backlog {
        self.backlog
    }
}

/// Where a packet would go.
#[derive(Clone, Copy, Default)]
struct Place {
    class: usize,
    /// lead: turns from the current one.
    ahead: u64,
    /// lead: byte of its flow's share at which it ends.
    end: u64,
    /// lead: the flow's cells.
    slots: Slots,
}

impl Turns {
    /// When nothing waits, the turns up to the packet's are over.
    #[inline]
    fn place(&mut self, pkt: &Pkt, is_empty: bool) -> Place {
        let current = self.turn * self.quantum;
        let slots = self.hash.slots(pkt.flow);
        let mut position = self.lead.position(&slots, current);
        let mut ahead = (position - current) / self.quantum;
        if is_empty {
            self.turn += ahead;
            self.room = None;
            ahead = 0;
        } else if ahead == 0 && self.room.is_some_and(|room| room < u64::from(pkt.len)) {
            position = current.saturating_add(self.quantum);
            ahead = 1;
        }
        let class = ((self.turn + ahead) % self.classes) as usize;
        Place { class, ahead, end: position + u64::from(pkt.len), slots }
    }

    /// Turns that a flow may fill, with the queue at this part of the way from `min-th` to `max-th`.
    fn allowed(&self, load: f64) -> u64 {
        ((self.classes as f64 * (1.0 - load)) as u64).clamp(1, self.classes)
    }

    /// Goes on to the next turn that has packets; returns its class.
    #[inline]
    fn advance(&mut self, occupied: u64) -> usize {
        let class = self.turn % self.classes;
        let later = occupied >> class;
        let steps = match later {
            0 => self.classes - class + u64::from(occupied.trailing_zeros()),
            _ => u64::from(later.trailing_zeros()),
        };
        self.turn += steps;
        if steps > 0 {
            self.room = None;
        }
        ((class + steps) % self.classes) as usize
    }
}

impl Early {
    fn between_thresholds(&self) -> bool {
        match self {
            Self::Red(red) => red.between_thresholds(),
            Self::Fair(fair) => (fair.min_th..fair.max_th).contains(&fair.average.get()),
        }
    }
}

impl Fair {
    fn admit(
        &mut self,
        now: Time,
        backlog: Backlog,
        idle: Span,
        pkt: &Pkt,
        rates: Option<&RateClasses>,
    ) -> Verdict {
        self.average.arrive(now, self.amount(backlog), idle);
        match rates {
            _ if self.tail.admit(now, backlog, idle, pkt) == Verdict::Drop => Verdict::Drop,
            Some(rates) if self.is_excess(rates) => {
                match self.ecn && pkt.ect && self.average.get() < self.max_th {
                    true => Verdict::Mark,
                    false => Verdict::Drop,
                }
            }
            _ => Verdict::Accept,
        }
    }

    /// The queue in the unit of the thresholds.
    fn amount(&self, backlog: Backlog) -> f64 {
        if self.in_bytes { backlog.bytes as f64 } else { f64::from(backlog.packets) }
    }

    /// Part of the way from `min-th` to `max-th`, in [0, 1].
    fn load(&self, queue: f64) -> f64 {
        ((queue - self.min_th) / (self.max_th - self.min_th)).clamp(0.0, 1.0)
    }

    /// Approximate fair dropping (Pan, Breslau, Prabhakar, Shenker, CCR 33(2), 2003): p = 1 - share / rate. The share
    /// falls from twice the fair rate at `min-th` to half of it at `max-th`.
    fn is_excess(&mut self, rates: &RateClasses) -> bool {
        let average = self.average.get();
        if average < self.min_th {
            return false;
        }
        let share = self.capacity / rates.flows() * (2.0 - 1.5 * self.load(average));
        let excess = 1.0 - share / rates.rate().max(1) as f64;
        excess > 0.0 && self.stream.chance(excess)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::FlowId;
    use crate::params::{Limit, Value};
    use crate::units::{Bytes, Rate};

    const FAST: u8 = 46;

    fn params(set: &[(&'static str, Value)]) -> Params {
        let mut params = Params::defaults(KEYS);
        for (key, value) in set {
            params.set(key, value.clone());
        }
        params
    }

    fn text(key: &'static str, word: &str) -> (&'static str, Value) {
        (key, Value::Text(word.to_owned()))
    }

    fn fbqm(set: &[(&'static str, Value)]) -> Fbqm {
        let params = params(set);
        assert_eq!(check(&params), Ok(()));
        let site = Site::new(Rate::from_bits_per_sec(8_000_000), Stream::new(1, 0, "fbqm"));
        Fbqm::new(&params, site)
    }

    fn pkt(key: u32, flow: u32, dscp: u8) -> Pkt {
        Pkt { key, len: 1_000, flow: FlowId(flow), dscp, ect: false, ce: false, reverse: false }
    }

    fn put(queue: &mut Fbqm, pkt: Pkt) -> Verdict {
        queue.enqueue(Time::ZERO, pkt, &mut Vec::new())
    }

    fn drain(queue: &mut Fbqm) -> Vec<u32> {
        std::iter::from_fn(|| queue.dequeue(Time::ZERO, &mut Vec::new())).map(|pkt| pkt.key).collect()
    }

    /// Slow packets 0, 1, 2, then fast packets 10, 11, 12.
    fn three_and_three(queue: &mut Fbqm) {
        for (key, dscp) in [(0, 0), (1, 0), (2, 0), (10, FAST), (11, FAST), (12, FAST)] {
            assert_eq!(put(queue, pkt(key, u32::from(dscp), dscp)), Verdict::Accept);
        }
    }

    #[test]
    fn classes_leave_one_to_one_and_each_in_order() {
        let mut queue = fbqm(&[text("classifier", "address"), text("serve", "always")]);
        three_and_three(&mut queue);
        assert_eq!(queue.backlog(), Backlog { packets: 6, bytes: 6_000 });
        assert_eq!(drain(&mut queue), [10, 0, 11, 1, 12, 2]);
        assert_eq!(queue.backlog(), Backlog::default());
        assert_eq!(queue.next_ready(Time::ZERO), None);
    }

    #[test]
    fn below_the_threshold_packets_leave_as_they_came() {
        let mut queue = fbqm(&[text("classifier", "address")]);
        three_and_three(&mut queue);
        assert_eq!(drain(&mut queue), [0, 1, 2, 10, 11, 12]);
    }

    #[test]
    fn between_the_thresholds_they_leave_in_turn() {
        // With weight 1 the average is the queue that the last arrival found: 5, between 3 and 9. max-p 0: no drops.
        let mut queue = fbqm(&[
            text("classifier", "address"),
            ("weight", Value::Float(1.0)),
            ("max-p", Value::Float(0.0)),
            ("min-th", Value::Limit(Limit::Packets(3))),
            ("max-th", Value::Limit(Limit::Packets(9))),
        ]);
        three_and_three(&mut queue);
        assert_eq!(drain(&mut queue), [10, 0, 11, 1, 12, 2]);
    }

    #[test]
    fn the_printed_deque_pops_the_newest_of_each_class() {
        let printed = [text("classifier", "address"), text("serve", "always"), text("order", "literal")];
        let mut queue = fbqm(&printed);
        three_and_three(&mut queue);
        // [12 11 10 | 0 1 2], popped at the front and at the back in turn.
        assert_eq!(drain(&mut queue), [12, 2, 11, 1, 10, 0]);
        // [0 1 2]: the front is the oldest slow packet.
        let mut queue = fbqm(&printed);
        for key in 0..3 {
            put(&mut queue, pkt(key, 0, 0));
        }
        assert_eq!(drain(&mut queue), [0, 2, 1]);
    }

    #[test]
    fn everything_is_dropped_from_the_upper_threshold_on_and_at_the_limit() {
        let mut queue = fbqm(&[
            ("weight", Value::Float(1.0)),
            ("max-p", Value::Float(0.0)),
            ("min-th", Value::Limit(Limit::Packets(2))),
            ("max-th", Value::Limit(Limit::Packets(4))),
        ]);
        let verdicts: Vec<Verdict> = (0..6).map(|key| put(&mut queue, pkt(key, 0, 0))).collect();
        assert_eq!(verdicts[..4], [Verdict::Accept; 4]);
        assert_eq!(verdicts[4..], [Verdict::Drop; 2]);
        let mut queue = fbqm(&[
            ("limit", Value::Limit(Limit::Packets(1))),
            ("min-th", Value::Limit(Limit::Packets(0))),
            ("max-p", Value::Float(0.0)),
        ]);
        assert_eq!([0, 1].map(|key| put(&mut queue, pkt(key, 0, 0))), [Verdict::Accept, Verdict::Drop]);
    }

    fn by_lead(classes: i64, more: &[(&'static str, Value)]) -> Fbqm {
        let mut set = vec![
            text("classifier", "lead"),
            text("serve", "always"),
            ("quantum", Value::Bytes(Bytes::new(1_000))),
            ("classes", Value::Integer(classes)),
        ];
        set.extend_from_slice(more);
        fbqm(&set)
    }

    #[test]
    fn a_turn_serves_one_quantum_of_each_flow() {
        let mut queue = by_lead(8, &[]);
        for (key, flow) in [(0, 1), (1, 1), (2, 1), (3, 1), (10, 2), (11, 2), (20, 3)] {
            assert_eq!(put(&mut queue, pkt(key, flow, 0)), Verdict::Accept);
        }
        assert_eq!(drain(&mut queue), [0, 10, 20, 1, 11, 2, 3]);
        // A flow that had nothing waiting begins at the current turn, behind what that holds already.
        for (key, flow) in [(4, 1), (5, 1), (30, 4), (31, 4)] {
            put(&mut queue, pkt(key, flow, 0));
        }
        assert_eq!(drain(&mut queue), [4, 30, 5, 31]);
    }

    #[test]
    fn a_flow_may_be_as_far_ahead_as_there_are_classes() {
        let mut queue = by_lead(3, &[]);
        let verdicts = [0, 1, 2, 3].map(|key| put(&mut queue, pkt(key, 1, 0)));
        assert_eq!(verdicts, [Verdict::Accept, Verdict::Accept, Verdict::Accept, Verdict::Drop]);
        assert_eq!(put(&mut queue, pkt(9, 2, 0)), Verdict::Accept);
        // The first turn is over with packets 0 and 9; packet 1 begins the second.
        let served = [(); 3].map(|()| queue.dequeue(Time::ZERO, &mut Vec::new()).map(|pkt| pkt.key));
        assert_eq!(served, [Some(0), Some(9), Some(1)]);
        assert_eq!(put(&mut queue, pkt(4, 1, 0)), Verdict::Accept);
        assert_eq!(put(&mut queue, pkt(5, 1, 0)), Verdict::Drop);
    }

    #[test]
    fn flows_that_never_stop_coming_do_not_hold_a_turn_for_ever() {
        let mut queue = by_lead(8, &[]);
        for (key, flow) in [(0, 1), (1, 1), (2, 1), (10, 2)] {
            put(&mut queue, pkt(key, flow, 0));
        }
        // Two new flows for each packet that leaves. The first turn began with two packets: two more join it, the others
        // the second turn, behind packet 1.
        let mut served = Vec::new();
        for new in 100..106 {
            served.extend(queue.dequeue(Time::ZERO, &mut Vec::new()).map(|pkt| pkt.key));
            for key in [2 * new, 2 * new + 1] {
                put(&mut queue, pkt(key, key, 0));
            }
        }
        assert_eq!(served, [0, 10, 200, 201, 1, 202]);
    }

    #[test]
    fn a_packet_that_finds_nothing_waiting_is_never_too_far_ahead() {
        // A packet fills ten turns, and two are allowed.
        let mut queue = by_lead(2, &[("quantum", Value::Bytes(Bytes::new(100)))]);
        for key in 0..3 {
            assert_eq!(put(&mut queue, pkt(key, 1, 0)), Verdict::Accept);
            assert_eq!(put(&mut queue, pkt(9, 1, 0)), Verdict::Drop);
            assert_eq!(drain(&mut queue), [key]);
        }
    }

    #[test]
    fn the_lead_that_is_allowed_shrinks_with_the_queue_and_marks_halfway() {
        let fair = [
            text("drop", "fair"),
            ("min-th", Value::Limit(Limit::Packets(0))),
            ("max-th", Value::Limit(Limit::Packets(8))),
            ("ecn", Value::Bool(true)),
        ];
        // With q waiting, floor(4 (1 - q / 8)) turns are allowed: 4, 3, 3, 2. The third packet is 2 ahead of 3, the
        // fourth 3 ahead of 2.
        let mut queue = by_lead(4, &fair);
        let verdicts = [0, 1, 2, 3].map(|key| put(&mut queue, pkt(key, 1, 0)));
        assert_eq!(verdicts, [Verdict::Accept, Verdict::Accept, Verdict::Accept, Verdict::Drop]);
        let mut queue = by_lead(4, &fair);
        let verdicts = [0, 1, 2].map(|key| put(&mut queue, Pkt { ect: true, ..pkt(key, 1, 0) }));
        // 1 ahead is less than half of 3, 2 ahead is more.
        assert_eq!(verdicts, [Verdict::Accept, Verdict::Accept, Verdict::Mark]);
        // Another flow has one turn at any queue.
        for flow in 10..15 {
            assert_eq!(put(&mut queue, pkt(flow, flow, 0)), Verdict::Accept);
        }
        assert_eq!(put(&mut queue, pkt(30, 10, 0)), Verdict::Drop);
        assert_eq!(put(&mut queue, pkt(31, 31, 0)), Verdict::Accept);
    }

    #[test]
    fn a_class_of_three_flows_gets_three_shares() {
        let mut queue = fbqm(&[
            text("serve", "always"),
            text("service", "by-flows"),
            ("interval", Value::Span(Span::from_millis(100))),
        ]);
        // Flow 0 sends 9 packets in each interval, flows 1 to 3 one each: above and below the mean of 3.
        let mut key = 0;
        for interval in 0..2 {
            let now = Time::ZERO + Span::from_millis(100 * interval);
            for flow in [0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3] {
                queue.enqueue(now, pkt(key, flow, 0), &mut Vec::new());
                key += 1;
            }
            while queue.dequeue(now, &mut Vec::new()).is_some() {}
        }
        let now = Time::ZERO + Span::from_millis(200);
        for flow in [0, 0, 0, 0, 0, 0, 1, 1, 2, 2, 3, 3] {
            queue.enqueue(now, pkt(key, flow, 0), &mut Vec::new());
        }
        let served = [(); 8].map(|()| queue.dequeue(now, &mut Vec::new()).map_or(9, |pkt| pkt.flow.0));
        assert_eq!(served.iter().filter(|flow| **flow == 0).count(), 2);
    }

    #[test]
    fn fair_drops_spare_flows_below_their_share() {
        let mut queue = fbqm(&[
            text("drop", "fair"),
            ("interval", Value::Span(Span::from_millis(100))),
            ("weight", Value::Float(1.0)),
            ("min-th", Value::Limit(Limit::Packets(0))),
            ("max-th", Value::Limit(Limit::Packets(1))),
            ("limit", Value::Limit(Limit::Unlimited)),
        ]);
        // 8 Mbit/s are 100,000 bytes in an interval. Flow 0 sends 10 times that, flow 1 a tenth: averages of a half.
        let mut verdicts = [[0; 2]; 2];
        for interval in 0..2 {
            let now = Time::ZERO + Span::from_millis(100 * interval);
            for key in 0..1_010 {
                let flow = u32::from(key % 101 == 0);
                let dropped = queue.enqueue(now, pkt(key, flow, 0), &mut Vec::new()) == Verdict::Drop;
                verdicts[interval as usize][flow as usize] += i32::from(dropped);
            }
        }
        assert_eq!(verdicts[0], [0, 0]);
        // Half of the fair 50,000 bytes over 500,000: 95 % of flow 0 is too much.
        assert!((930..=970).contains(&verdicts[1][0]), "{verdicts:?}");
        assert_eq!(verdicts[1][1], 0);
    }

    #[test]
    fn a_million_flows_take_no_more_memory_than_one() {
        for set in [vec![text("serve", "always")], vec![text("serve", "always"), text("classifier", "lead")]]
        {
            let mut queue = fbqm(&set);
            for flow in 0..1_000_000 {
                let now = Time::from_nanos(u64::from(flow) * 1_000);
                assert_eq!(queue.enqueue(now, pkt(flow, flow, 0), &mut Vec::new()), Verdict::Accept);
                assert_eq!(queue.dequeue(now, &mut Vec::new()).map(|pkt| pkt.key), Some(flow));
            }
            let slots: usize = queue.classes.iter().map(|class| class.queue.capacity()).sum();
            assert!(slots < 100, "{slots}");
        }
    }

    #[test]
    fn parameters_that_do_not_fit_are_named() {
        let wrong = |set: &[(&'static str, Value)]| check(&params(set)).unwrap_err().0;
        assert_eq!(check(&params(&[])), Ok(()));
        assert_eq!(wrong(&[("max-th", Value::Limit(Limit::Packets(50)))]), "max-th");
        assert_eq!(wrong(&[text("order", "literal"), ("classes", Value::Integer(3))]), "order");
        assert_eq!(wrong(&[text("classifier", "lead")]), "serve");
        assert_eq!(wrong(&[text("service", "by-flows"), text("classifier", "start-order")]), "service");
        assert_eq!(wrong(&[text("drop", "fair"), text("classifier", "address")]), "drop");
        assert_eq!(wrong(&[text("classifier", "address"), ("classes", Value::Integer(3))]), "classes");
        assert_eq!(wrong(&[("cells", Value::Integer(1_000))]), "cells");
        assert_eq!(wrong(&[("fast-dscp", Value::List(vec!["AF9".to_owned()]))]), "fast-dscp");
        assert_eq!(wrong(&[("interval", Value::Span(Span::ZERO))]), "interval");
        assert_eq!(wrong(&[("quantum", Value::Bytes(Bytes::new(0)))]), "quantum");
    }
}
