//! Metrics of an agent for Prometheus.

use std::net::SocketAddr;

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

use super::status::{Shared, Status, current};
use crate::daemon::Error;
use crate::daemon::metrics::{self, counter, counters, gauge};

const PREFIX: &str = "bandmaster_agent";

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
    registry.register("build", "The agent", Info::new(info.to_vec()));
    registry.register_with_unit("uptime", "Time since the start", Unit::Seconds, gauge(status.uptime));
    let tuned = f64::from(u8::from(status.in_force.is_some()));
    registry.register("tuned", "1 while settings of the controller are in force", gauge(tuned));
    let by_routes = f64::from(u8::from(status.by_routes.is_some()));
    let help = "1 while settings are made by routes, since the kernel takes no program";
    registry.register("by_routes", help, gauge(by_routes));
    registry.register("changes", "Times that what is in force has changed", counter(status.changes));
    let connections = gauge(status.connections as f64);
    registry.register("connections", "Connections that carry data", connections);
    let help = "Connections and listening sockets that have been set and not given back";
    registry.register("connections_set", help, gauge(status.set as f64));
    let help = "Live connections that are bounded to a share";
    registry.register("connections_bounded", help, gauge(status.bounded as f64));
    let failed = f64::from(u8::from(status.journal_error.is_some()));
    registry.register("journal_failed", "1 while the journal cannot be written", gauge(failed));
    let failed = f64::from(u8::from(status.routes_error.is_some()));
    registry.register("routes_failed", "1 while routes do not have what they should", gauge(failed));
    let failed = f64::from(u8::from(status.look_error.is_some()));
    registry.register("look_failed", "1 while the kernel does not show the connections", gauge(failed));
    let silent = f64::from(u8::from(status.ports_silent.is_some()));
    registry.register(
        "ports_silent",
        "1 while nobody tells what the ports of this router carry",
        gauge(silent),
    );
    let help = "Samples by sFlow that came twice, or that a newer one had overtaken";
    registry.register("sflow_overtaken", help, counter(status.samples_overtaken));
    if let Some(left) = status.certificate_left {
        registry.register_with_unit(
            "certificate_left",
            "Time until the certificate expires",
            Unit::Seconds,
            gauge(left),
        );
        let failed = f64::from(u8::from(status.renewal_error.is_some()));
        registry.register("renewal_failed", "1 while the certificate cannot be renewed", gauge(failed));
    }
    if let Some(since) = status.last_message {
        let help = "Time since the controller's last message";
        registry.register_with_unit("last_message", help, Unit::Seconds, gauge(since));
    }
    registry.register("messages", "Messages of the controller", counter(status.messages));
    registry.register("sent", "Messages to the controller", counter(status.sent));
    registry.register("send_errors", "Messages that could not be sent", counter(status.send_errors));
    let refused = counters("reason", status.refused.by_reason());
    registry.register("refused", "Datagrams that were refused", refused);
    let done = |count: fn(&super::status::Done) -> u64| {
        counters("kind", status.settings.iter().map(|kind| (kind.kind.as_str(), count(kind))))
    };
    registry.register("settings_done", "Settings that the kernel made", done(|kind| kind.done));
    registry.register("settings_refused", "Settings that the kernel refused", done(|kind| kind.refused));
    let acts = counters("act", status.refused_acts.iter().map(|(act, count)| (act.as_str(), *count)));
    registry.register("refused_acts", "What the role wanted and the host did not do", acts);
    let mut text = String::new();
    // Writing into a string does not fail.
    let _ = encode(&mut text, &registry);
    text
}

#[cfg(test)]
mod tests {
    use super::super::status::Done;
    use super::*;

    #[test]
    fn metrics_say_what_is_in_force() {
        let done = Done { kind: "least timeout".to_owned(), done: 7, ..Done::default() };
        let mut status = Status {
            in_force: Some("min-rto 8ms".to_owned()),
            settings: vec![done],
            last_message: Some(0.5),
            samples_overtaken: 4,
            routes_error: Some("No buffer space available".to_owned()),
            ..Status::default()
        };
        status.refused.tag = 3;
        let text = text(&status);
        for line in [
            "bandmaster_agent_tuned 1.0",
            "bandmaster_agent_last_message_seconds 0.5",
            "bandmaster_agent_sflow_overtaken_total 4",
            "bandmaster_agent_routes_failed 1.0",
            "bandmaster_agent_look_failed 0.0",
            "bandmaster_agent_settings_done_total{kind=\"least timeout\"} 7",
            "bandmaster_agent_refused_total{reason=\"tag\"} 3",
        ] {
            assert!(text.lines().any(|have| have == line), "{line} in\n{text}");
        }
        assert!(text.ends_with("# EOF\n"));
    }
}
