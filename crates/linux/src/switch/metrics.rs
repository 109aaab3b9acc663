//! Metrics of a switch for Prometheus.

use std::net::SocketAddr;

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

use super::status::{ClassStatus, PortStatus, Shared, Status, current};
use crate::daemon::Error;
use crate::daemon::metrics::{self, Labels, Number, counter, counters, gauge};

const PREFIX: &str = "bandmaster_switch";

/// Serves metrics at `address`.
pub(super) fn serve(address: SocketAddr, shared: Shared) -> Result<(), Error> {
    metrics::serve_at(address, move || text(&current(&shared)))
}

/// The metrics of `status` as OpenMetrics text.
fn text(status: &Status) -> String {
    let mut registry = Registry::with_prefix(PREFIX);
    let info = [
        ("version", status.version.clone()),
        ("name", status.name.clone()),
        ("scheme", status.scheme.clone()),
    ];
    registry.register("build", "The switch", Info::new(info.to_vec()));
    registry.register_with_unit("uptime", "Time since the start", Unit::Seconds, gauge(status.uptime));
    let by_port = |value: fn(&PortStatus) -> u64| {
        let family: Family<Labels, Number> = Family::default();
        for port in &status.ports {
            family.get_or_create(&vec![("port", port.interface.clone())]).set(value(port) as f64);
        }
        family
    };
    registry.register("flows", "Flows that are known at a port", by_port(|port| port.flows));
    registry.register_with_unit(
        "windows",
        "All windows of a port",
        Unit::Bytes,
        by_port(|port| port.windows),
    );
    let help = "What the windows of a port may come to";
    registry.register_with_unit("budget", help, Unit::Bytes, by_port(|port| port.budget));
    registry.register_with_unit("backlog", "What waits at a port", Unit::Bytes, by_port(|port| port.backlog));
    registry.register("windows_written", "Windows written for the kernel", counter(status.written));
    let packets = counters("kind", status.packets.iter().map(|(kind, count)| (kind.as_str(), *count)));
    registry.register("packets", "What packets did at the ports", packets);
    by_class(&mut registry, &status.ports);
    by_share(&mut registry, status);
    registry.register("faults", "What is wrong", gauge(status.faults.len() as f64));
    let mut text = String::new();
    // Writing into a string does not fail.
    let _ = encode(&mut text, &registry);
    text
}

/// FBQM's classes.
fn by_class(registry: &mut Registry, ports: &[PortStatus]) {
    let gauges = |value: fn(&ClassStatus) -> u64| {
        let family: Family<Labels, Number> = Family::default();
        for (port, class) in classes(ports) {
            family.get_or_create(&labels(port, class)).set(value(class) as f64);
        }
        family
    };
    let counters = |value: fn(&ClassStatus) -> u64| {
        let family: Family<Labels, Counter> = Family::default();
        for (port, class) in classes(ports) {
            family.get_or_create(&labels(port, class)).inc_by(value(class));
        }
        family
    };
    if classes(ports).next().is_none() {
        return;
    }
    registry.register("class_flows", "Flows of a class in the last interval", gauges(|class| class.flows));
    registry.register_with_unit(
        "class_backlog",
        "What waits in a class",
        Unit::Bytes,
        gauges(|class| class.backlog),
    );
    registry.register("class_packets", "Packets that a class sent", counters(|class| class.packets));
    registry.register_with_unit(
        "class_sent",
        "What a class sent",
        Unit::Bytes,
        counters(|class| class.bytes),
    );
    registry.register(
        "class_early",
        "Packets of a class that were dropped early",
        counters(|class| class.early),
    );
    registry.register("class_marked", "Packets of a class that were marked", counters(|class| class.marked));
    registry.register("class_full", "Packets of a class without room", counters(|class| class.full));
    let family: Family<Labels, Number> = Family::default();
    for port in ports {
        family.get_or_create(&vec![("port", port.interface.clone())]).set(port.average.unwrap_or(0) as f64);
    }
    registry.register_with_unit("average", "What waits at a port on average", Unit::Bytes, family);
}

/// BAS's shares and round-trip times.
fn by_share(registry: &mut Registry, status: &Status) {
    let ports = || status.ports.iter().filter_map(|port| Some((port, port.shares?)));
    if ports().next().is_none() {
        return;
    }
    let (shares, trips): (Family<Labels, Number>, Family<Labels, Number>) = Default::default();
    for (port, all) in ports() {
        let labels = vec![("port", port.interface.clone())];
        shares.get_or_create(&labels).set(all as f64);
        let times = status.connections.iter().filter(|connection| connection.interface == port.interface);
        let times: Vec<f64> = times.filter_map(|connection| connection.rtt).collect();
        if !times.is_empty() {
            trips.get_or_create(&labels).set(times.iter().sum::<f64>() / times.len() as f64 / 1e3);
        }
    }
    let unit = Unit::Other("bits_per_second".to_owned());
    registry.register_with_unit("shares", "All shares of a port together", unit, shares);
    let help = "Mean smoothed round-trip time of a port's connections, of the first 256 of all";
    registry.register_with_unit("round_trip", help, Unit::Seconds, trips);
}

fn classes(ports: &[PortStatus]) -> impl Iterator<Item = (&PortStatus, &ClassStatus)> {
    ports.iter().flat_map(|port| port.classes.iter().map(move |class| (port, class)))
}

fn labels(port: &PortStatus, class: &ClassStatus) -> Labels {
    vec![("port", port.interface.clone()), ("class", class.class.clone())]
}

#[cfg(test)]
mod tests {
    use super::super::status::ConnectionStatus;
    use super::*;

    #[test]
    fn metrics_say_what_the_ports_hold() {
        let port =
            PortStatus { interface: "lan0".to_owned(), flows: 3, windows: 9000, ..PortStatus::default() };
        let class = ClassStatus { class: "1:10".to_owned(), early: 5, ..ClassStatus::default() };
        let port = PortStatus { classes: vec![class], ..port };
        let packets = vec![("lowered".to_owned(), 7)];
        let text = text(&Status { ports: vec![port], packets, ..Status::default() });
        for line in [
            "bandmaster_switch_flows{port=\"lan0\"} 3.0",
            "bandmaster_switch_windows_bytes{port=\"lan0\"} 9000.0",
            "bandmaster_switch_class_early_total{port=\"lan0\",class=\"1:10\"} 5",
            "bandmaster_switch_packets_total{kind=\"lowered\"} 7",
        ] {
            assert!(text.lines().any(|have| have == line), "{line} in\n{text}");
        }
        assert!(text.ends_with("# EOF\n"));
        assert!(!text.contains("shares"), "of BAS only");
    }

    #[test]
    fn metrics_say_what_is_shared_and_how_far_hosts_are() {
        let port =
            PortStatus { interface: "lan0".to_owned(), shares: Some(8_000_000), ..PortStatus::default() };
        let at = |rtt| ConnectionStatus { interface: "lan0".to_owned(), rtt, ..ConnectionStatus::default() };
        let connections = vec![at(Some(5.0)), at(None), at(Some(40.0))];
        let text = text(&Status { ports: vec![port], connections, ..Status::default() });
        for line in [
            "bandmaster_switch_shares_bits_per_second{port=\"lan0\"} 8000000.0",
            "bandmaster_switch_round_trip_seconds{port=\"lan0\"} 0.0225",
        ] {
            assert!(text.lines().any(|have| have == line), "{line} in\n{text}");
        }
    }
}
