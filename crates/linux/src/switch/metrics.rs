//! Metrics of a switch for Prometheus.

use std::net::SocketAddr;

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

use super::status::{PortStatus, Shared, Status, current};
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
    registry.register("faults", "What is wrong", gauge(status.faults.len() as f64));
    let mut text = String::new();
    // Writing into a string does not fail.
    let _ = encode(&mut text, &registry);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_say_what_the_ports_hold() {
        let port =
            PortStatus { interface: "lan0".to_owned(), flows: 3, windows: 9000, ..PortStatus::default() };
        let packets = vec![("lowered".to_owned(), 7)];
        let text = text(&Status { ports: vec![port], packets, ..Status::default() });
        for line in [
            "bandmaster_switch_flows{port=\"lan0\"} 3.0",
            "bandmaster_switch_windows_bytes{port=\"lan0\"} 9000.0",
            "bandmaster_switch_packets_total{kind=\"lowered\"} 7",
        ] {
            assert!(text.lines().any(|have| have == line), "{line} in\n{text}");
        }
        assert!(text.ends_with("# EOF\n"));
    }
}
