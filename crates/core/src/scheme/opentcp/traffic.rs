//! An agent's part of the traffic matrix: what comes to its host, by host or rack of the sender.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::wire::{
    ADDRESSES_PER_REPORT, AddressReport, AddressRow, Body, Origin, ROWS_PER_REPORT, TrafficReport, TrafficRow,
};
use crate::control::{FlowEnd, FlowStart, FlowStats};
use crate::id::FlowId;
use crate::runtime::inventory::Port;
use crate::time::Time;

/// Most addresses that are reported.
const MOST_ADDRESSES: usize = 3000;

/// Data that arrived since the last report. Receivers know it to the byte; senders know only what is acknowledged.
#[derive(Debug)]
pub(super) struct Traffic {
    ports: Arc<Vec<Port>>,
    by_rack: bool,
    /// Where each flow comes from, and what of it is counted.
    flows: BTreeMap<FlowId, (Origin, u64)>,
    came: BTreeMap<Origin, u64>,
    since: Time,
    sequence: u32,
}

impl Traffic {
    /// `ports` are those of the network; `by_rack` takes the hosts at a switch together.
    pub(super) fn new(ports: Arc<Vec<Port>>, by_rack: bool) -> Self {
        Self { ports, by_rack, flows: BTreeMap::new(), came: BTreeMap::new(), since: Time::ZERO, sequence: 0 }
    }

    /// A flow begins. Where no route is known, the Oracle has to know whose the address of its sender is.
    pub(super) fn begins(&mut self, FlowStart { stats, key, route }: &FlowStart<'_>) {
        if stats.end != FlowEnd::Receiver {
            return;
        }
        if route.is_empty() {
            // What has come until a host has looked came since it looked before.
            self.flows.insert(stats.flow, (Origin::Address(key.from.0), 0));
        } else if let Some(first) = route.first().and_then(|port| self.ports.get(port.index())) {
            let from = Origin::Node(if self.by_rack { first.to } else { first.from });
            // A SYN may come twice; another connection of the same number begins again.
            let known = self.flows.get(&stats.flow).filter(|(_, counted)| *counted <= stats.delivered.get());
            let counted = known.map_or(stats.delivered.get(), |(_, counted)| *counted);
            self.flows.insert(stats.flow, (from, counted));
        }
    }

    /// So much has come.
    pub(super) fn carried(&mut self, stats: &FlowStats) {
        if let (FlowEnd::Receiver, Some((from, counted))) = (stats.end, self.flows.get_mut(&stats.flow)) {
            let new = stats.delivered.get().saturating_sub(*counted);
            *counted = stats.delivered.get();
            if new > 0 {
                *self.came.entry(*from).or_default() += new;
            }
        }
    }

    pub(super) fn ended(&mut self, flow: FlowId) {
        self.flows.remove(&flow);
    }

    /// Counts from now on.
    pub(super) fn restart(&mut self, now: Time, flows: &[FlowStats]) {
        flows.iter().for_each(|flow| self.carried(flow));
        self.came.clear();
        self.since = now;
    }

    /// Reports what arrived since the last time. It makes at least one report, so no traffic differs from silence.
    pub(super) fn reports(&mut self, now: Time, flows: &[FlowStats]) -> Vec<Body> {
        flows.iter().for_each(|flow| self.carried(flow));
        let seconds = now.since(self.since).as_secs_f64();
        self.since = now;
        let (mut rows, mut addresses) = (Vec::new(), Vec::new());
        for (from, bytes) in std::mem::take(&mut self.came) {
            let rate = (bytes as f64 * 8e-3 / seconds).round().clamp(1.0, f64::from(u32::MAX)) as u32;
            match from {
                Origin::Node(node) => rows.push(TrafficRow { from: node.0, rate }),
                Origin::Address(from) => addresses.push(AddressRow { from, rate }),
            }
        }
        let sequence = self.sequence;
        let report = |rows: &[TrafficRow]| Body::Traffic(TrafficReport { sequence, rows: rows.to_vec() });
        let mut reports: Vec<Body> = rows.chunks(ROWS_PER_REPORT).map(report).collect();
        // Of a crowd those who send most.
        addresses.sort_by_key(|row: &AddressRow| std::cmp::Reverse(row.rate));
        addresses.truncate(MOST_ADDRESSES);
        let parts = addresses.len().div_ceil(ADDRESSES_PER_REPORT) as u32;
        let report =
            |rows: &[AddressRow]| Body::TrafficFrom(AddressReport { sequence, parts, rows: rows.to_vec() });
        reports.extend(addresses.chunks(ADDRESSES_PER_REPORT).map(report));
        if reports.is_empty() {
            reports.push(Body::Traffic(TrafficReport { sequence, rows }));
        }
        self.sequence = self.sequence.wrapping_add(1);
        reports
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;
    use crate::control::FlowKey;
    use crate::id::{NodeId, PortId};
    use crate::runtime::inventory::Inventory;
    use crate::time::Span;
    use crate::units::{Bytes, Rate};

    const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

    fn stats(flow: u32, end: FlowEnd, delivered: u64) -> FlowStats {
        FlowStats {
            flow: FlowId(flow),
            end,
            delivered: Bytes::new(delivered),
            srtt: None,
            min_rtt: None,
            last_rtt: None,
            mss: Bytes::new(1448),
            frame: Bytes::new(1514),
        }
    }

    fn traffic(by_rack: bool) -> Traffic {
        let mut all = Inventory::default();
        let nodes = ["host.0", "host.1", "switch"].map(|name| all.join(name));
        let rate = Rate::from_bits_per_sec(1_000_000_000);
        for (number, host) in (0..).zip(&nodes[..2]) {
            assert_eq!(all.add_port("", *host, nodes[2], rate), PortId(number));
        }
        Traffic::new(all.shared_ports(), by_rack)
    }

    fn plain(reports: &[Body]) -> Vec<TrafficReport> {
        let plain = |report: &Body| match report {
            Body::Traffic(report) => report.clone(),
            other => panic!("{other:?}"),
        };
        reports.iter().map(plain).collect()
    }

    fn rows(reports: &[Body]) -> Vec<(u32, u32)> {
        let rows = |report: TrafficReport| report.rows.iter().map(|row| (row.from, row.rate)).collect();
        plain(reports).into_iter().flat_map::<Vec<_>, _>(rows).collect()
    }

    fn begins(own: &mut Traffic, stats: FlowStats, route: &[PortId]) {
        let key = FlowKey { from: (ADDRESS, 80), to: (ADDRESS, 7), protocol: 6 };
        own.begins(&FlowStart { stats, key, route });
    }

    #[test]
    fn what_came_is_told_once_with_what_ended_in_between() {
        let at = |seconds| Time::ZERO + Span::from_secs(seconds);
        let mut own = traffic(false);
        own.restart(at(0), &[]);
        for (flow, port) in [(7, 0), (8, 1), (9, 0)] {
            begins(&mut own, stats(flow, FlowEnd::Receiver, 0), &[PortId(port)]);
        }
        begins(&mut own, stats(1, FlowEnd::Sender, 0), &[PortId(0)]);
        own.carried(&stats(9, FlowEnd::Receiver, 1_000_000));
        own.ended(FlowId(9));
        let live = [
            stats(7, FlowEnd::Receiver, 500_000),
            stats(8, FlowEnd::Receiver, 2_000),
            stats(1, FlowEnd::Sender, 9_000_000),
        ];
        // 1.5 MB and 2 kB in 4 s.
        let first = own.reports(at(4), &live);
        assert_eq!((rows(&first), plain(&first)[0].sequence), (vec![(0, 3000), (1, 4)], 0));
        let second = own.reports(at(8), &live);
        assert_eq!(
            (rows(&second), second.len(), plain(&second)[0].sequence),
            (vec![], 1, 1),
            "an empty report"
        );
        // A second SYN counts nothing twice; another connection of the same number begins again.
        begins(&mut own, stats(7, FlowEnd::Receiver, 500_000), &[PortId(0)]);
        assert_eq!(rows(&own.reports(at(9), &live)), []);
        begins(&mut own, stats(7, FlowEnd::Receiver, 0), &[PortId(1)]);
        assert_eq!(rows(&own.reports(at(10), &[stats(7, FlowEnd::Receiver, 125)])), [(1, 1)]);
    }

    #[test]
    fn hosts_at_a_switch_are_taken_together() {
        let mut own = traffic(true);
        for (flow, port) in [(7, 0), (8, 1)] {
            begins(&mut own, stats(flow, FlowEnd::Receiver, 0), &[PortId(port)]);
            own.carried(&stats(flow, FlowEnd::Receiver, 125_000));
        }
        assert_eq!(rows(&own.reports(Time::ZERO + Span::from_secs(1), &[])), [(2, 2000)]);
    }

    #[test]
    fn many_rows_take_several_reports() {
        let mut own = traffic(false);
        own.came = (0..2 * ROWS_PER_REPORT as u32 + 1).map(|n| (Origin::Node(NodeId(n)), 1)).collect();
        let reports = own.reports(Time::ZERO + Span::from_secs(1), &[]);
        assert_eq!((reports.len(), rows(&reports).len()), (3, 2 * ROWS_PER_REPORT + 1));
        assert!(plain(&reports).iter().all(|report| report.sequence == 0));
    }

    /// Where the way is not known the sender's address tells; what came before the first look counts.
    #[test]
    fn without_a_route_the_address_is_told() {
        let mut own = traffic(true);
        own.restart(Time::ZERO, &[]);
        begins(&mut own, stats(7, FlowEnd::Receiver, 125_000), &[]);
        begins(&mut own, stats(8, FlowEnd::Sender, 125_000), &[]);
        let reports = own.reports(Time::ZERO + Span::from_secs(1), &[stats(7, FlowEnd::Receiver, 250_000)]);
        let rows = vec![AddressRow { from: ADDRESS, rate: 2000 }];
        assert_eq!(reports, [Body::TrafficFrom(AddressReport { sequence: 0, parts: 1, rows })]);
    }
}
