//! Metrics of a gateway for Prometheus: one label for the class.

use std::net::{SocketAddr, TcpListener};

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

use super::claims;
use super::faults::Fault;
use super::status::{ClassStatus, SenderStatus, Shared, State, Status, current};
use crate::daemon::Error;
use crate::daemon::metrics::{self, Labels, Number, counter, counters, gauge};

const PREFIX: &str = "bandmaster_gateway";

/// Serves metrics at `address`.
pub(super) fn serve(address: SocketAddr, shared: Shared) -> Result<(), Error> {
    let listener = TcpListener::bind(address).map_err(|e| claims::taken("metrics", address, &e))?;
    metrics::serve(listener, move || text(&current(&shared)))
}

/// The metrics of `status` as OpenMetrics text.
pub(super) fn text(status: &Status) -> String {
    let mut registry = Registry::with_prefix(PREFIX);
    let info = [
        ("version", status.version.clone()),
        ("interface", status.interface.clone()),
        ("name", status.name.clone()),
    ];
    registry.register("build", "The gateway", Info::new(info.to_vec()));
    registry.register_with_unit("uptime", "Time since the start", Unit::Seconds, gauge(status.uptime));
    if let Some(sender) = &status.sender {
        register_sender(&mut registry, sender);
        register_classes(&mut registry, &sender.classes);
    }
    if let Some(receiver) = &status.receiver {
        registry.register("answered", "Questions answered", counter(receiver.questions));
        registry.register("received_packets", "Packets of data received", counter(receiver.packets));
        let bytes = counter(receiver.bytes);
        registry.register_with_unit("received", "Bytes of data received", Unit::Bytes, bytes);
    }
    let faults = Family::<Labels, Number>::default();
    for kind in Fault::ALL {
        let label = vec![("kind", kind.name().to_owned())];
        faults.get_or_create(&label).set(f64::from(u8::from(status.has_fault(kind))));
    }
    registry.register("fault", "1 while something is wrong", faults);
    let begun = counters("kind", Fault::ALL.map(|kind| (kind.name(), status.fault_times(kind))));
    registry.register("faults_begun", "Times that something went wrong", begun);
    let reasons = status.refused;
    let refused = [
        ("length", reasons.length),
        ("type", reasons.kind),
        ("tag", reasons.tag),
        ("replay", reasons.replay),
        ("unasked", reasons.unasked),
    ];
    registry.register("refused", "Datagrams refused", counters("reason", refused));
    let acts = counters("act", status.refused_acts.iter().map(|(act, count)| (&**act, *count)));
    registry.register("refused_acts", "What the scheme wanted and the machine did not do", acts);
    registry.register("reloads", "Deployment files taken on a reload", counter(status.reloads));
    let failed = f64::from(u8::from(status.reload_error.is_some()));
    registry.register("reload_failed", "1 when the last reload kept the file before", gauge(failed));
    let mut text = String::new();
    // Writing to a text does not fail.
    let _ = encode(&mut text, &registry);
    text
}

fn register_sender(registry: &mut Registry, sender: &SenderStatus) {
    for (name, help, rate) in [
        ("estimate", "Estimated bandwidth", sender.estimate),
        ("in_force", "Bandwidth in force", sender.in_force),
    ] {
        registry.register_with_unit(name, help, per_second(), gauge(bytes(rate)));
    }
    let answering = f64::from(u8::from(sender.state == State::Answering));
    registry.register("peer_answering", "1 while the peer answers", gauge(answering));
    if let Some(seconds) = sender.last_answer {
        let help = "Time since the last answer";
        registry.register_with_unit("last_answer", help, Unit::Seconds, gauge(seconds));
    }
    for (name, help, value) in [
        ("questions", "Questions sent", sender.questions),
        ("answers", "Answers heard", sender.answers),
        ("rounds_left_out", "Rounds whose counters were not certain", sender.rounds_left_out),
        ("send_errors", "Datagrams that could not be sent", sender.send_errors),
        ("silences", "Times that the peer fell silent", sender.silences),
    ] {
        registry.register(name, help, counter(value));
    }
}

fn register_classes(registry: &mut Registry, classes: &[ClassStatus]) {
    let gauges = |value: fn(&ClassStatus) -> f64| {
        let family = Family::<Labels, Number>::default();
        for class in classes {
            family.get_or_create(&vec![("class", class.name.clone())]).set(value(class));
        }
        family
    };
    let counters =
        |value: fn(&ClassStatus) -> u64| counters("class", classes.iter().map(|c| (&*c.name, value(c))));
    let rate = gauges(|class| bytes(class.rate));
    registry.register_with_unit("class_rate", "What a class has in any case", per_second(), rate);
    let need = gauges(|class| bytes(class.need));
    registry.register_with_unit("class_need", "What a class needs", per_second(), need);
    let waiting = gauges(|class| f64::from(class.waiting));
    registry.register("class_waiting_packets", "Packets that wait", waiting);
    let sent = counters(|class| class.bytes);
    registry.register_with_unit("class_sent", "Bytes sent", Unit::Bytes, sent);
    registry.register("class_sent_packets", "Packets sent", counters(|class| class.packets));
    registry.register("class_dropped_packets", "Packets dropped", counters(|class| class.drops));
}

fn bytes(bits: u64) -> f64 {
    bits as f64 / 8.0
}

fn per_second() -> Unit {
    Unit::Other("bytes_per_second".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_in_base_units_with_the_class_as_label() {
        let class =
            ClassStatus { name: "voice".to_owned(), rate: 400_000, bytes: 7, ..ClassStatus::default() };
        let sender = SenderStatus { estimate: 2_000_000, classes: vec![class], ..SenderStatus::default() };
        let mut status = Status { sender: Some(sender), ..Status::default() };
        status.refused.tag = 3;
        let text = text(&status);
        for line in [
            "bandmaster_gateway_estimate_bytes_per_second 250000.0",
            "bandmaster_gateway_class_rate_bytes_per_second{class=\"voice\"} 50000.0",
            "bandmaster_gateway_class_sent_bytes_total{class=\"voice\"} 7",
            "bandmaster_gateway_refused_total{reason=\"tag\"} 3",
        ] {
            assert!(text.lines().any(|have| have == line), "{line} in\n{text}");
        }
        assert!(text.ends_with("# EOF\n"));
    }
}
