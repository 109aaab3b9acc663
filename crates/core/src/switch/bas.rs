//! BAS at the edge router of servers that run no agent: its keys, and its three roles at one node.

use super::{Deployment, OWN};
use crate::file::{Reader, Section, TableDef};
use crate::id::PortId;
use crate::params::{Key, Params, Value};
use crate::scheme::bas::{ALLOCATOR, DEF, HOST, ROLE_KEYS, ROUTER, check_roles, role_key};
use crate::scheme::{Place, Role, RoleDef};
use crate::time::Span;

/// Shorter intervals would have the daemon do nothing else.
const SHORTEST_INTERVAL: Span = Span::from_millis(10);

/// What the roles ask at a router. It counts open flows only, has no way out of its domain, and neither paces nor leases.
const KEYS: &[Key] = &[
    role_key("allocator"),
    role_key("reallocation"),
    role_key("rounding"),
    role_key("segment"),
    role_key("under-use"),
    role_key("notification-interval"),
    role_key("measurement-interval"),
    role_key("sampling"),
    role_key("alpha"),
    role_key("beta"),
    role_key("rtt"),
    role_key("headroom"),
    role_key("utilization"),
];

pub(super) static TABLE: TableDef = TableDef {
    header: "[role] of bas",
    doc: "How BAS works here",
    keys: &[KEYS],
    selector: None,
    nested: &[],
};

/// Complete parameters of the roles.
pub(super) fn read(reader: &mut Reader, file: &Section<'_>) -> Option<Params> {
    let layer = reader.table(file, "role");
    let section = reader.section(&TABLE, &layer);
    let own = section.params(KEYS)?;
    let mut params = Params::defaults(ROLE_KEYS);
    for key in KEYS {
        if let Some(value) = own.get(key.name) {
            params.set(key.name, value.clone());
        }
    }
    params.set("receivers", Value::Text("windows".to_owned()));
    for key in ["notification-interval", "measurement-interval"] {
        let span = params.span(key);
        if span < SHORTEST_INTERVAL {
            reader.fail_key(&section, key, format!("{span} is shorter than {SHORTEST_INTERVAL}"));
        }
    }
    if let Err((key, why)) = check_roles(&params) {
        reader.fail_key(&section, key, why);
    }
    Some(params)
}

impl Deployment {
    /// BAS's allocator, its router, and its host, which measures and bounds the flows that pass in place of their receivers.
    pub fn bas_roles(&self) -> Vec<Role> {
        let ports: Vec<PortId> = (0..self.ports.len() as u32).map(PortId).collect();
        let inventory = self.inventory();
        let role = |role: &'static RoleDef, peers: Vec<_>, ports: &[PortId]| {
            let place = Place { peers, ports: ports.to_vec(), ..Place::new(role, OWN, self.params.clone()) };
            Role::new(&DEF, place, &inventory, None)
        };
        vec![
            role(&ALLOCATOR, vec![(OWN, &ROUTER), (OWN, &HOST)], &ports),
            role(&ROUTER, vec![(OWN, &ALLOCATOR)], &ports),
            role(&HOST, vec![(OWN, &ALLOCATOR)], &[]),
        ]
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::net::IpAddr;

    use super::super::{Scheme, parse};
    use super::*;
    use crate::control::{
        FlowEnd, FlowKey, FlowStart, FlowStats, Message, Observation, PortFlows, PortStats, Refusal,
    };
    use crate::id::{FlowId, NodeId};
    use crate::port::flow_counter::Reader as Counters;
    use crate::runtime::{Host, Runner};
    use crate::scheme::Act;
    use crate::scheme::bas::shares_in;
    use crate::time::Time;
    use crate::units::{Bytes, Rate};

    const FILE: &str = "version = 1\nscheme = \"bas\"\n[role]\nallocator = \"max-min\"\n[[ports]]\n\
                        interface = \"lan0\"\nrate = \"48048kbit\"\n";
    /// Of each flow at the port.
    const SHARE: u64 = 12_012_000;

    /// Flows with their round-trip times in ms, at a port without a queue.
    #[derive(Default)]
    struct Edge {
        trips: Vec<u64>,
        carried: u64,
        windows: BTreeMap<u32, u64>,
        shares: BTreeMap<u32, u64>,
        told: Vec<Message>,
        wakes: BTreeMap<usize, Time>,
    }

    impl Edge {
        fn stats(&self, flow: u32) -> FlowStats {
            let trip = Some(Span::from_millis(self.trips[flow as usize]));
            FlowStats {
                flow: FlowId(flow),
                end: FlowEnd::Receiver,
                delivered: Bytes::new(self.carried),
                srtt: trip,
                min_rtt: trip,
                last_rtt: trip,
                mss: Bytes::new(1448),
                frame: Bytes::new(1514),
            }
        }
    }

    impl Host for Edge {
        const ACTS: &'static [Act] = &[Act::SetWindow, Act::SetRate, Act::MeasureRtt, Act::Send];

        fn wake(&mut self, role: usize, at: Time) {
            self.wakes.insert(role, at);
        }

        fn port_stats(&mut self, _: Time, _: NodeId, _: &mut Counters) -> Vec<PortStats> {
            let open = self.trips.len() as u32;
            let sent = Bytes::new(self.carried / 1448 * 1514 * u64::from(open));
            let (capacity, flows) =
                (Rate::from_bits_per_sec(4 * SHARE), Some(PortFlows { seen: open, open }));
            let (backlog, offered, dropped) = (Some(Bytes::ZERO), 0, 0);
            vec![PortStats { port: PortId(0), capacity, flows, backlog, sent, offered, dropped }]
        }

        fn flow_stats(&mut self, _: Time, _: NodeId) -> Vec<FlowStats> {
            (0..self.trips.len() as u32).map(|flow| self.stats(flow)).collect()
        }

        fn send(&mut self, _: Time, _: NodeId, message: Message) -> Result<(), Refusal> {
            let shares = shares_in(&message).into_iter();
            self.shares.extend(shares.map(|(flow, share)| (flow.0, share.bits_per_sec())));
            self.told.push(message);
            Ok(())
        }

        fn set_window(&mut self, _: NodeId, flow: FlowId, window: Bytes) -> Result<(), Refusal> {
            self.windows.insert(flow.0, window.get());
            Ok(())
        }

        fn measure_rtt(&mut self, _: NodeId, _: FlowId) -> Result<(), Refusal> {
            Ok(())
        }
    }

    fn deliver(runner: &mut Runner, edge: &mut Edge, now: Time) {
        while !edge.told.is_empty() {
            let message = edge.told.remove(0);
            runner.observe(edge, now, OWN, &Observation::Message(&message));
        }
    }

    /// 12.012 Mbit/s are 4.96 segments of 1514 B in 5 ms, and 39.67 in 40 ms.
    #[test]
    fn the_three_roles_at_one_node_give_each_flow_its_share_as_a_window() {
        for allocator in ["max-min", "bas"] {
            let file = FILE.replace("max-min", allocator);
            let deployment = parse("edge.toml", &file).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!((deployment.scheme, deployment.scheme.name()), (Scheme::Bas, "bas"));
            let mut edge = Edge { trips: vec![5, 5, 40, 40], ..Edge::default() };
            let mut runner =
                Runner::new::<Edge>(deployment.bas_roles(), deployment.inventory()).expect("it can do all");
            runner.begin(&mut edge, Time::ZERO);
            let from: IpAddr = [10, 0, 0, 1].into();
            for flow in 0..4 {
                let key =
                    FlowKey { from: (from, 1000 + flow as u16), to: ([10, 0, 1, 1].into(), 80), protocol: 6 };
                let start = FlowStart { stats: edge.stats(flow), key, route: &[PortId(0)] };
                runner.observe(&mut edge, Time::ZERO, OWN, &Observation::FlowStarted(start));
                deliver(&mut runner, &mut edge, Time::ZERO);
            }
            for _ in 0..40 {
                let (role, at) =
                    edge.wakes.iter().map(|(role, at)| (*role, *at)).min_by_key(|(_, at)| *at).expect("one");
                edge.carried = at.as_nanos() / 8 * (SHARE / 1_000_000) / 1000 * 1448 / 1514;
                runner.wake(&mut edge, role, at, at);
                deliver(&mut runner, &mut edge, at);
            }
            assert_eq!(runner.refusals().total(), 0);
            let windows: Vec<u64> = edge.windows.values().map(|window| window / 1448).collect();
            assert_eq!(windows, [5, 5, 40, 40], "{allocator}: {:?}", edge.shares);
            assert!(
                edge.shares.values().all(|share| share.abs_diff(SHARE) < SHARE / 100),
                "{:?}",
                edge.shares
            );
        }
    }

    #[test]
    fn what_a_router_cannot_do_is_no_key_of_its_file() {
        for (from, to, expected) in [
            ("allocator", "receivers", "edge.toml:4"),
            ("allocator = \"max-min\"", "lease = \"2s\"", "lease"),
            ("allocator = \"max-min\"", "counting = \"seen\"", "counting"),
            ("max-min", "least", "\"bas\" or \"max-min\""),
            ("allocator = \"max-min\"", "measurement-interval = \"1ms\"", "1ms is shorter than 10ms"),
            ("allocator = \"max-min\"", "beta = 2", "from 0.01 to 1"),
            ("rate = ", "rates = ", "rate"),
        ] {
            let told = parse("edge.toml", &FILE.replace(from, to)).expect_err("refused").to_string();
            assert!(told.contains(expected), "{expected}: {told}");
        }
        let least = parse("edge.toml", &FILE.replace("allocator = \"max-min\"\n", ""))
            .unwrap_or_else(|e| panic!("{e}"));
        let word = |key: &str| least.params.text(key);
        assert_eq!((word("allocator"), word("receivers")), ("bas".to_owned(), "windows".to_owned()));
    }
}
