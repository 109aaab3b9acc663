//! Cost of every queue discipline: `cargo bench -p bandmaster-core --bench qdisc`, with `-- --json` for machines.
//!
//! A step is the arrival of one packet and one call of `dequeue`, with 100 packets waiting. Packets may be marked, so
//! that disciplines which would keep the queue short by drops do all their work and let it stand. Times are the
//! thread's own CPU time where Linux states it; rounds of all disciplines and of the reference loop take turns.

#![expect(clippy::disallowed_methods, reason = "a bench measures time")]

mod harness;
mod yardstick;

use std::hint::black_box;

use bandmaster_core::id::FlowId;
use bandmaster_core::params::{Kind, Limit, Params, Value};
use bandmaster_core::qdisc::fifo::Fifo;
use bandmaster_core::qdisc::registry::REGISTRY;
use bandmaster_core::qdisc::{Discipline, Pkt, Qdisc, QdiscDef, Site, Verdict};
use bandmaster_core::rng::Stream;
use bandmaster_core::time::{Span, Time};
use bandmaster_core::units::{Dimension, Rate};
use serde_json::{Value as Json, json};

use harness::{number, run, table};
use yardstick::{processor, reference, seconds, spread};

/// Measurements of everything; values are medians.
const ROUNDS: usize = 5;
const STEPS: u32 = 10_000_000;
const STANDING: u32 = 100;
const FLOWS: [u32; 3] = [1, 100, 10_000];
/// Others are compared with it.
const YARDSTICK: &str = "fq-codel";
/// A packet of 1502 bytes at 1 Gbit/s.
const RATE: Rate = Rate::from_bits_per_sec(1_000_000_000);
const LEN: u32 = 1502;
const GAP: Span = Span::from_nanos(12_016);

fn main() -> Result<(), String> {
    run(measure, print)
}

fn measure() -> Json {
    let mut cases: Vec<Case> =
        FLOWS.into_iter().flat_map(|flows| REGISTRY.iter().map(move |def| Case::new(def, flows))).collect();
    let mut reference_nanos = Vec::new();
    for _ in 0..ROUNDS {
        let step = seconds(|| reference(STEPS)).0 * 1e9 / f64::from(STEPS);
        reference_nanos.push(step);
        for case in &mut cases {
            let nanos = seconds(|| case.run()).0 * 1e9 / f64::from(STEPS);
            case.nanos.push(nanos);
            case.per_reference.push(nanos / step);
        }
    }
    let yardstick: Vec<Vec<f64>> =
        cases.iter().filter(|case| case.def.name == YARDSTICK).map(|case| case.nanos.clone()).collect();
    let rows: Vec<Json> = cases
        .iter()
        .map(|case| {
            // Of the same number of flows and the same round.
            let of_same = FLOWS.iter().zip(&yardstick).find(|(flows, _)| **flows == case.flows);
            let times: Vec<f64> = of_same
                .iter()
                .flat_map(|(_, nanos)| case.nanos.iter().zip(nanos.iter()).map(|(own, its)| own / its))
                .collect();
            json!({
                "discipline": case.def.name,
                "flows": case.flows,
                "nanos_per_step": spread(case.nanos.clone()),
                "reference_steps": spread(case.per_reference.clone()),
                "times_fq_codel": spread(times),
                "waiting_at_end": case.qdisc.backlog().packets,
                "dropped": case.dropped_packets,
            })
        })
        .collect();
    json!({
        "machine": processor(),
        "rounds": ROUNDS,
        "steps": STEPS,
        "standing": STANDING,
        "reference_nanos": spread(reference_nanos),
        "disciplines": rows,
    })
}

/// One discipline under the traffic of so many flows.
struct Case {
    def: &'static QdiscDef,
    flows: u32,
    /// Flows of arriving packets, again from the start.
    order: Vec<FlowId>,
    qdisc: Box<dyn Qdisc>,
    now: Time,
    key: u32,
    dropped: Vec<Pkt>,
    dropped_packets: u64,
    nanos: Vec<f64>,
    per_reference: Vec<f64>,
}

impl Case {
    fn new(def: &'static QdiscDef, flows: u32) -> Self {
        let mut params = Params::defaults(def.keys);
        for key in def.keys {
            let value = match (key.name, key.kind) {
                // Room for the standing queue, which is between the thresholds.
                ("limit", Kind::Limit) => Value::Limit(Limit::Packets(1_000)),
                ("min-th", Kind::Limit) => Value::Limit(Limit::Packets(50)),
                ("max-th", Kind::Limit) => Value::Limit(Limit::Packets(500)),
                ("rate", Kind::Quantity(Dimension::Rate)) => Value::Rate(RATE),
                ("ecn", Kind::Bool) => Value::Bool(true),
                _ => continue,
            };
            params.set(key.name, value);
        }
        let site = Site::new(RATE, Stream::new(1, 0, def.name));
        let qdisc: Box<dyn Qdisc> = match (def.build)(&params, site) {
            Discipline::Fifo(rule) => Box::new(Fifo::new(rule)),
            Discipline::Ordered(qdisc) => qdisc,
        };
        let mut stream = Stream::new(1, 0, "flows");
        let order = (0..1 << 14).map(|_| FlowId(stream.below(u64::from(flows)) as u32)).collect();
        let mut case = Self {
            def,
            flows,
            order,
            qdisc,
            now: Time::ZERO,
            key: 0,
            dropped: Vec::new(),
            dropped_packets: 0,
            nanos: Vec::new(),
            per_reference: Vec::new(),
        };
        while case.key < STANDING {
            case.arrive();
        }
        case.dropped_packets = 0;
        case
    }

    #[inline]
    fn arrive(&mut self) {
        let flow = self.order[self.key as usize & (self.order.len() - 1)];
        let pkt = Pkt { key: self.key, len: LEN, flow, dscp: 0, ect: true, ce: false, reverse: false };
        let verdict = self.qdisc.enqueue(self.now, pkt, &mut self.dropped);
        self.key = self.key.wrapping_add(1);
        self.dropped_packets += u64::from(verdict == Verdict::Drop);
    }

    fn run(&mut self) {
        for _ in 0..STEPS {
            self.now += GAP;
            self.arrive();
            black_box(self.qdisc.dequeue(self.now, &mut self.dropped));
            self.dropped_packets += self.dropped.len() as u64;
            self.dropped.clear();
        }
    }
}

fn print(all: &Json) {
    println!(
        "{}, {} cores; medians of {ROUNDS} rounds of {STEPS} steps; a reference step takes {:.1} ns\n",
        all["machine"]["model"],
        all["machine"]["cores"],
        all["reference_nanos"]["median"].as_f64().unwrap_or(f64::NAN),
    );
    let mut table = table([
        "discipline",
        "flows",
        "ns per step",
        "min .. max",
        "reference steps",
        "x fq-codel",
        "waiting",
        "dropped",
    ]);
    for row in all["disciplines"].as_array().into_iter().flatten() {
        table.add_row([
            row["discipline"].as_str().unwrap_or_default().to_owned(),
            row["flows"].to_string(),
            format!("{:.1}", number(row, "nanos_per_step", "median")),
            format!(
                "{:.1} .. {:.1}",
                number(row, "nanos_per_step", "min"),
                number(row, "nanos_per_step", "max")
            ),
            format!("{:.2}", number(row, "reference_steps", "median")),
            format!("{:.2}", number(row, "times_fq_codel", "median")),
            row["waiting_at_end"].to_string(),
            row["dropped"].to_string(),
        ]);
    }
    println!("{table}");
}
