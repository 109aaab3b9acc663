//! Metrics of a controller for Prometheus.

use std::net::SocketAddr;

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

use super::status::{Shared, Status, current};
use crate::daemon::Error;
use crate::daemon::metrics::{self, counter, counters, gauge};

const PREFIX: &str = "bandmaster_controller";

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
    registry.register("build", "The controller", Info::new(info.to_vec()));
    registry.register_with_unit("uptime", "Time since the start", Unit::Seconds, gauge(status.uptime));
    let flag = |value: bool| gauge(f64::from(u8::from(value)));
    registry.register("halted", "1 while it is halted and sends nothing", flag(status.halted));
    registry.register("observes", "1 when it decides and tells nobody", flag(status.observes));
    registry.register("hosts", "Hosts of the file", gauge(status.hosts as f64));
    registry.register(
        "hosts_heard",
        "Hosts that were heard within three cycles",
        gauge(status.hosts_heard as f64),
    );
    registry.register("enrolled", "Hosts that have enrolled by a token", gauge(status.enrolled as f64));
    registry.register("revoked", "Hosts that are revoked", gauge(status.revoked as f64));
    registry.register(
        "ledger_failed",
        "1 while it cannot be read who has enrolled and who is revoked",
        flag(status.ledger_error.is_some()),
    );
    let questions = counters("outcome", status.questions.by_outcome());
    registry.register("enrolment", "Questions and connections at the enrolment port", questions);
    for (name, value) in &status.shown {
        registry.register(format!("role_{name}"), "What the role holds to be true", gauge(*value));
    }
    registry.register("messages", "Messages of hosts", counter(status.messages));
    registry.register("sent", "Messages to hosts", counter(status.sent));
    registry.register(
        "held",
        "Messages that were not sent, as it observes or is halted",
        counter(status.held),
    );
    registry.register("send_errors", "Messages that could not be sent", counter(status.send_errors));
    let refused = counters("reason", status.refused.by_reason());
    registry.register("refused", "Datagrams that were refused", refused);
    let acts = counters("act", status.refused_acts.iter().map(|(act, count)| (act.as_str(), *count)));
    registry.register("refused_acts", "What the role wanted and was not done", acts);
    let mut text = String::new();
    // Writing into a string does not fail.
    let _ = encode(&mut text, &registry);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_say_who_is_heard() {
        let shown = vec![("coverage".to_owned(), 0.5)];
        let status = Status { hosts: 4, hosts_heard: 2, halted: true, shown, ..Status::default() };
        let text = text(&status);
        for line in [
            "bandmaster_controller_hosts 4.0",
            "bandmaster_controller_hosts_heard 2.0",
            "bandmaster_controller_halted 1.0",
            "bandmaster_controller_role_coverage 0.5",
        ] {
            assert!(text.lines().any(|have| have == line), "{line} in\n{text}");
        }
    }
}
