//! Any sequence of operations, on any entry of the registry with any parameters: what every queue discipline owes.

use std::collections::BTreeMap;

use bandmaster_core::id::{FlowId, NodeId};
use bandmaster_core::params::{Key, Kind, Limit, Params, Value};
use bandmaster_core::qdisc::fifo::Fifo;
use bandmaster_core::qdisc::registry::REGISTRY;
use bandmaster_core::qdisc::{Backlog, Discipline, Hosts, Pkt, Qdisc, QdiscDef, Site, Verdict};
use bandmaster_core::rng::SpanDraw;
use bandmaster_core::rng::Stream;
use bandmaster_core::time::{Span, Time};
use bandmaster_core::units::{Bytes, Dimension, Rate};
use proptest::prelude::*;
use proptest::test_runner::{TestCaseResult, TestRunner};

#[test]
fn every_discipline_keeps_its_counters_orders_and_limits() {
    let mut broken = Vec::new();
    for def in REGISTRY {
        let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
        let strategy = (params(def), any::<u64>(), traffic(), prop::collection::vec(op(), 1..400));
        let outcome = TestRunner::new(config).run(&strategy, |(params, seed, traffic, ops)| {
            let first = drive(def, &params, seed, &traffic, &ops)?;
            let second = drive(def, &params, seed, &traffic, &ops)?;
            prop_assert_eq!(first, second, "the same seed, another outcome");
            Ok(())
        });
        broken.extend(outcome.err().map(|e| format!("{}: {e}", def.name)));
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// Sources that fill the queue faster than it empties, for a long time, with the default parameters.
#[test]
fn every_discipline_survives_a_long_overload() {
    for def in REGISTRY {
        let mut params = Params::defaults(def.keys);
        for key in def.keys.iter().filter(|key| key.required) {
            params.set(key.name, plain(key));
        }
        let traffic = Traffic { flows: 40, dscp: vec![0, 46, 8, 34], ect: vec![false, true] };
        let gap = Op::Wait(Span::from_micros(900));
        let ops: Vec<Op> = (0..60_000)
            .map(|i| match i % 4 {
                0 | 1 => Op::Enqueue { flow: (i % 41) as u32, len: 1500 },
                2 => Op::Dequeue,
                _ => gap,
            })
            .collect();
        drive(def, &params, 1, &traffic, &ops).unwrap_or_else(|e| panic!("{}: {e}", def.name));
    }
}

// --------------------------------------------------------------------------------------------------- the operations

#[derive(Clone, Copy, Debug)]
enum Op {
    Enqueue {
        flow: u32,
        len: u32,
    },
    Dequeue,
    /// Dequeue when the discipline says that a packet may leave.
    DequeueReady,
    Wait(Span),
    /// Dequeue until nothing is left, as a transmitter does that is never late.
    Drain,
    /// The link goes down.
    Purge,
}

fn op() -> impl Strategy<Value = Op> {
    let flow = prop_oneof![4 => 0u32..4, 2 => 0u32..2000, 1 => any::<u32>()];
    let len = prop_oneof![4 => 40u32..1515, 1 => Just(1514u32), 1 => 1u32..9019];
    let wait = prop_oneof![
        4 => (0u64..2_000_000).prop_map(Span::from_nanos),
        2 => (0u64..200).prop_map(Span::from_millis),
        1 => (0u64..20_000).prop_map(Span::from_millis),
        1 => Just(Span::ZERO),
    ];
    prop_oneof![
        24 => (flow, len).prop_map(|(flow, len)| Op::Enqueue { flow, len }),
        8 => Just(Op::Dequeue),
        4 => Just(Op::DequeueReady),
        8 => wait.prop_map(Op::Wait),
        2 => Just(Op::Drain),
        1 => Just(Op::Purge),
    ]
}

/// What the packets of a flow have in common.
#[derive(Clone, Debug)]
struct Traffic {
    flows: u32,
    /// By flow number, again from the start.
    dscp: Vec<u8>,
    ect: Vec<bool>,
}

fn traffic() -> impl Strategy<Value = Traffic> {
    let flows = prop_oneof![Just(1u32), 2u32..5, Just(u32::MAX)];
    let dscp = prop::collection::vec(0u8..64, 1..5);
    let ect = prop::collection::vec(any::<bool>(), 1..5);
    (flows, dscp, ect).prop_map(|(flows, dscp, ect)| Traffic { flows, dscp, ect })
}

impl Traffic {
    fn pkt(&self, key: u32, flow: u32, len: u32) -> Pkt {
        let flow = flow % self.flows;
        let (dscp, ect) = (flow as usize % self.dscp.len(), flow as usize % self.ect.len());
        Pkt {
            key,
            len,
            flow: FlowId(flow),
            dscp: self.dscp[dscp],
            ect: self.ect[ect],
            ce: false,
            reverse: flow % 3 == 2,
        }
    }
}

// --------------------------------------------------------------------------------------------------- the parameters

/// Parameters that the entry accepts, often at the ends of what a key allows.
fn params(def: &'static QdiscDef) -> impl Strategy<Value = Params> {
    let values: Vec<BoxedStrategy<Option<Value>>> = def.keys.iter().map(value).collect();
    values.prop_map(move |values| {
        let mut params = Params::defaults(def.keys);
        for key in def.keys.iter().filter(|key| key.required) {
            params.set(key.name, plain(key));
        }
        for (key, value) in def.keys.iter().zip(values) {
            let before = params.clone();
            if let Some(value) = value {
                params.set(key.name, value);
                // Some values do not go together.
                if (def.check)(&params).is_err() && (def.check)(&before).is_ok() {
                    params = before;
                }
            }
        }
        assert_eq!((def.check)(&params), Ok(()), "{}: {params:?}", def.name);
        params
    })
}

/// A usual value.
fn plain(key: &Key) -> Value {
    match key.kind {
        Kind::Quantity(Dimension::Rate) => Value::Rate(Rate::from_bits_per_sec(10_000_000)),
        Kind::Quantity(Dimension::Span) => Value::Span(Span::from_millis(10)),
        Kind::Quantity(Dimension::Bytes) => Value::Bytes(Bytes::new(3_000)),
        Kind::Quantity(Dimension::Packets) => Value::Integer(10),
        Kind::Integer { min, .. } => Value::Integer(min),
        Kind::Float { min, .. } => Value::Float(min),
        Kind::Limit => Value::Limit(Limit::Packets(100)),
        other => panic!("key {} of kind {other:?} is required: say what fits", key.name),
    }
}

/// Values of a key; none for its default.
fn value(key: &'static Key) -> BoxedStrategy<Option<Value>> {
    let some = |strategy: BoxedStrategy<Value>| prop::option::weighted(0.6, strategy).boxed();
    match key.kind {
        Kind::Limit => some(
            prop_oneof![
                1 => Just(Limit::Packets(0)),
                2 => Just(Limit::Packets(1)),
                4 => (2u32..40).prop_map(Limit::Packets),
                2 => (0u64..30_000).prop_map(|bytes| Limit::Bytes(Bytes::new(bytes))),
                1 => Just(Limit::Unlimited),
            ]
            .prop_map(Value::Limit)
            .boxed(),
        ),
        Kind::Integer { min, max } => {
            let near = min..min.saturating_add(16).min(max).saturating_add(1);
            some(prop_oneof![Just(min), near, min..=max, Just(max)].prop_map(Value::Integer).boxed())
        }
        Kind::Float { min, max } => {
            let (low, high) = (min.max(-1e9), max.min(1e9));
            some(prop_oneof![Just(low), Just(high), low..=high].prop_map(Value::Float).boxed())
        }
        Kind::Bool => some(any::<bool>().prop_map(Value::Bool).boxed()),
        Kind::Choice(words) => {
            some(prop::sample::select(words).prop_map(|word| Value::Text(word.to_owned())).boxed())
        }
        Kind::Quantity(Dimension::Rate) => some(
            prop_oneof![Just(1u64), 1_000u64..100_000_000, Just(100_000_000_000_000)]
                .prop_map(|bits| Value::Rate(Rate::from_bits_per_sec(bits)))
                .boxed(),
        ),
        Kind::Quantity(Dimension::Span) => some(
            prop_oneof![Just(0u64), Just(1), 0u64..1_000_000_000, Just(u64::MAX)]
                .prop_map(|nanos| Value::Span(Span::from_nanos(nanos)))
                .boxed(),
        ),
        Kind::Quantity(Dimension::Bytes) => some(
            prop_oneof![Just(0u64), Just(1), 0u64..100_000, Just(u64::MAX)]
                .prop_map(|bytes| Value::Bytes(Bytes::new(bytes)))
                .boxed(),
        ),
        Kind::Quantity(Dimension::Packets) => {
            some(prop_oneof![Just(0i64), Just(1), 0i64..200, Just(i64::MAX)].prop_map(Value::Integer).boxed())
        }
        Kind::Draw => some(
            (0u64..1_000_000_000)
                .prop_map(|nanos| Value::Draw(SpanDraw::fixed(Span::from_nanos(nanos))))
                .boxed(),
        ),
        Kind::Bounded | Kind::Text | Kind::TextList | Kind::Files | Kind::IntegerList | Kind::Nested => {
            Just(None).boxed()
        }
    }
}

// ------------------------------------------------------------------------------------------------------- the promises

/// What a run leaves behind, to be compared.
type Trace = Vec<(u64, &'static str, Pkt)>;

/// A discipline and what it must agree with.
struct Model {
    qdisc: Box<dyn Qdisc>,
    now: Time,
    /// Packets in the queue, in order of arrival, and their bytes.
    waiting: BTreeMap<u32, Pkt>,
    bytes: u64,
    /// By flow: the key of its last packet that left.
    last_left: BTreeMap<FlowId, u32>,
    keeps_flow_order: bool,
    may_mark: bool,
    most: Limit,
    trace: Trace,
}

fn drive(
    def: &QdiscDef,
    params: &Params,
    seed: u64,
    traffic: &Traffic,
    ops: &[Op],
) -> Result<Trace, TestCaseError> {
    let mut site = Site::new(Rate::from_bits_per_sec(10_000_000), Stream::new(seed, 0, "fuzz"));
    // Further flows are of hosts that the port does not know.
    site.hosts = Hosts::new((0..1_000).map(|flow| (NodeId(flow % 3), NodeId(10 + flow % 7))));
    let qdisc: Box<dyn Qdisc> = match (def.build)(params, site) {
        Discipline::Fifo(rule) => Box::new(Fifo::new(rule)),
        Discipline::Ordered(qdisc) => qdisc,
    };
    let text = |key, word: &str| params.get(key) == Some(&Value::Text(word.to_owned()));
    let mut model = Model {
        qdisc,
        now: Time::ZERO,
        waiting: BTreeMap::new(),
        bytes: 0,
        last_left: BTreeMap::new(),
        // What FBQM documents.
        keeps_flow_order: !text("order", "literal") && !text("reclassify", "at-once"),
        may_mark: params.get("ecn") != Some(&Value::Bool(false)),
        most: most(params),
        trace: Vec::new(),
    };
    for (key, op) in (0..).zip(ops) {
        match *op {
            Op::Enqueue { flow, len } => model.enqueue(traffic.pkt(key, flow, len))?,
            Op::Dequeue => {
                model.dequeue()?;
            }
            Op::DequeueReady => model.dequeue_ready()?,
            Op::Wait(span) => model.now += span,
            Op::Drain => {
                while model.qdisc.next_ready(model.now).is_some() {
                    model.dequeue_ready()?;
                }
            }
            Op::Purge => model.purge()?,
        }
        model.agrees()?;
    }
    Ok(model.trace)
}

/// What the queue may hold: `limit`, in each band where there are bands.
fn most(params: &Params) -> Limit {
    let bands = match params.get("bands") {
        Some(Value::Integer(bands)) => *bands as u32,
        _ => 1,
    };
    match params.get("limit") {
        // Computed from other keys: nothing that operations this short reach.
        None => Limit::Unlimited,
        Some(Value::Limit(Limit::Packets(packets))) => Limit::Packets(packets.saturating_mul(bands)),
        Some(Value::Limit(Limit::Bytes(bytes))) => {
            Limit::Bytes(Bytes::new(bytes.get().saturating_mul(u64::from(bands))))
        }
        Some(Value::Limit(Limit::Unlimited)) => Limit::Unlimited,
        other => panic!("every discipline has a `limit`, not {other:?}"),
    }
}

impl Model {
    fn enqueue(&mut self, pkt: Pkt) -> TestCaseResult {
        let mut expelled = Vec::new();
        let verdict = self.qdisc.enqueue(self.now, pkt, &mut expelled);
        // It expels only what was there before.
        self.bury(&expelled)?;
        let word = match verdict {
            Verdict::Accept => "accept",
            Verdict::Mark => {
                prop_assert!(pkt.ect && self.may_mark, "{:?} may not be marked", pkt);
                "mark"
            }
            Verdict::Drop => "drop",
        };
        if verdict != Verdict::Drop {
            self.waiting.insert(pkt.key, pkt);
            self.bytes += u64::from(pkt.len);
        }
        self.note(word, pkt);
        Ok(())
    }

    /// True when a packet left, or at least one was dropped.
    fn dequeue(&mut self) -> Result<bool, TestCaseError> {
        let mut dropped = Vec::new();
        let left = self.qdisc.dequeue(self.now, &mut dropped);
        self.bury(&dropped)?;
        let Some(pkt) = left else { return Ok(!dropped.is_empty()) };
        self.take(&pkt)?;
        prop_assert!(!pkt.ce || pkt.ect && self.may_mark, "{:?} may not be marked", pkt);
        let before = self.last_left.insert(pkt.flow, pkt.key);
        if self.keeps_flow_order {
            prop_assert!(before < Some(pkt.key), "{:?} left after {:?}", pkt, before);
        }
        self.note("send", pkt);
        Ok(true)
    }

    fn dequeue_ready(&mut self) -> TestCaseResult {
        let Some(at) = self.qdisc.next_ready(self.now) else { return Ok(()) };
        self.now = self.now.max(at);
        let something = self.dequeue()?;
        prop_assert!(something, "ready at {} and nothing came", at);
        Ok(())
    }

    /// Nothing waits afterwards.
    fn purge(&mut self) -> TestCaseResult {
        let mut purged = Vec::new();
        self.qdisc.purge(self.now, &mut purged);
        for pkt in &purged {
            self.take(pkt)?;
            self.note("purge", *pkt);
        }
        prop_assert!(self.waiting.is_empty(), "{:?} stay", self.waiting);
        Ok(())
    }

    fn bury(&mut self, dropped: &[Pkt]) -> TestCaseResult {
        for pkt in dropped {
            self.take(pkt)?;
            self.note("expel", *pkt);
        }
        Ok(())
    }

    /// Takes what the discipline hands out from the model: it was there, and is the same but for a mark.
    fn take(&mut self, pkt: &Pkt) -> TestCaseResult {
        let known = self.waiting.remove(&pkt.key);
        prop_assert_eq!(known, Some(Pkt { ce: false, ..*pkt }), "what waited, and what came out");
        self.bytes -= u64::from(pkt.len);
        Ok(())
    }

    /// arrived = dropped at arrival + queued, and queued = left + dropped later + waiting, in packets and bytes: the
    /// packets that still wait in the model are the backlog that the discipline reports.
    fn agrees(&self) -> TestCaseResult {
        let backlog = self.qdisc.backlog();
        prop_assert_eq!(backlog, Backlog { packets: self.waiting.len() as u32, bytes: self.bytes });
        match self.most {
            Limit::Packets(packets) => prop_assert!(backlog.packets <= packets, "{:?}", backlog),
            Limit::Bytes(bytes) => prop_assert!(backlog.bytes <= bytes.get(), "{:?}", backlog),
            Limit::Unlimited => {}
        }
        prop_assert_eq!(self.qdisc.next_ready(self.now).is_none(), self.waiting.is_empty());
        Ok(())
    }

    fn note(&mut self, word: &'static str, pkt: Pkt) {
        self.trace.push((self.now.as_nanos(), word, pkt));
    }
}
