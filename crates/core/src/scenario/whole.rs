//! One whole scenario from the raw file, after overrides.

use std::collections::BTreeSet;

use super::choices::RecordDetail;
use super::keys::{self, SCHEME_ENABLED};
use super::model::{
    ControlPlane, Faults, FlowGroup, Measure, NodeFault, RunPlan, Scenario, Tracking, Transport, Window,
};
use super::sources::Reader;
use super::{network, outages, traffic};
use crate::file::{Item, Layer, Section, is_name, joined, suggestion};
use crate::id::{NodeId, PortId};
use crate::memory;
use crate::qdisc::QueueConfig;
use crate::report::metric::{self, Place};
use crate::routing::Router;
use crate::runtime::inventory::Change;
use crate::scheme::{Act, REGISTRY, SchemeConfig};
use crate::time::{Span, Time};
use crate::topology::Topology;
use crate::units::{Dimension, parse_quantity};

/// The most sampling intervals of a run.
const MOST_SAMPLES: u64 = 10_000_000;

/// Reads the scenario; `None` when something is wrong with it. `quick` takes the trials of a quick run.
pub(super) fn read(reader: &mut Reader, root: &Item, quick: bool) -> Option<Scenario> {
    let errors_before = reader.errors.len();
    let file = reader.section(&keys::FILE, &Layer::new("", root));
    if file.item("version").is_none() {
        reader.fail_with(&file.place, "version", "is missing", "write version = 1 at the top of the file");
    }
    if let Some(version) = file.integer("version").filter(|v| *v != 1) {
        reader.fail_key(&file, "version", format!("{version} is not known; this program reads version 1"));
    }
    let name = file.text("name");
    if let Some(name) = &name
        && !(is_name(name) && name.chars().all(|c| c != '_' && !c.is_ascii_uppercase()))
    {
        reader.fail_key(&file, "name", format!("\"{name}\" is not a word of a-z, 0-9 and -"));
    }
    let run = run_plan(reader, &file, quick);
    let duration = run.as_ref().map(|r| r.duration);
    let topology = network::read(reader, &file, file.integer("clients"));
    let flows = traffic::read(reader, &file, topology.as_ref(), run.as_ref());
    let schemes = schemes(reader, &file, topology.as_ref());
    if flows.iter().any(|group| group.exchange.is_some()) {
        refuse_for_exchange(reader, &file, &schemes);
    }
    refuse_for_multipath(reader, &file, &schemes, &flows);
    let control = control(reader, &file);
    let faults = faults(reader, &file, topology.as_ref(), duration);
    let measure = measure(reader, &file, topology.as_ref(), run.as_ref(), &flows);
    if reader.errors.len() > errors_before {
        return None;
    }
    let scenario = Scenario {
        name: name?,
        run: run?,
        topology: topology?,
        flows,
        schemes,
        control: control?,
        faults: faults?,
        measure: measure?,
    };
    refuse_dctcp_without_marks(reader, &file, &scenario);
    if scenario.run.partitions > 1 {
        refuse_for_partitions(reader, &file, &scenario);
    }
    let needs = memory::most(&scenario);
    if needs > memory::MOST_BYTES {
        let gibibytes = |bytes: u64| bytes as f64 / f64::from(1 << 30);
        let message = format!(
            "a trial may need {:.1} GiB of memory; at most {:.0} GiB: fewer nodes, flows or samples need less",
            gibibytes(needs),
            gibibytes(memory::MOST_BYTES)
        );
        reader.fail(&file.place, "", message);
        return None;
    }
    Some(scenario)
}

/// What the parts of a divided network cannot do.
fn refuse_for_partitions(reader: &mut Reader, file: &Section<'_>, scenario: &Scenario) {
    // Nobody knows what its roles share.
    let is_brought = |config: &&SchemeConfig| REGISTRY.iter().all(|known| known.name != config.scheme.name);
    let has_brought_control = |group: &&FlowGroup| matches!(&group.transport, Transport::Tcp { settings, .. } if settings.brought_control.is_some());
    let sends = scenario.schemes.iter().any(|config| config.scheme.acts().any(|act| act == Act::Send));
    let links = &scenario.topology.links;
    let isolates = |queue: &QueueConfig| queue.isolates_hosts();
    let by_host =
        || links.iter().any(|link| isolates(&link.queue) || link.queue_back.as_ref().is_some_and(isolates));
    let resets = |group: &&FlowGroup| group.reset && group.multipath.is_some();
    let has_exchange = scenario.flows.iter().any(|group| group.exchange.is_some());
    let what = if let Some(config) = scenario.schemes.iter().find(is_brought) {
        format!("{}, a scheme of your own,", config.scheme.name)
    } else if let Some(group) = scenario.flows.iter().find(has_brought_control) {
        format!("`{}`, whose congestion control is your own,", group.name)
    } else if sends && scenario.control.delay.is_zero() {
        "a `control.delay` of 0s".to_owned()
    } else if has_exchange && by_host() {
        "an exchange over queues that isolate hosts".to_owned()
    } else if has_exchange && !scenario.faults.outages.is_empty() {
        "an exchange and links that fail".to_owned()
    } else if let Some(group) = scenario.flows.iter().find(resets) {
        format!("`{}`, which has `subflows` and `reset`,", group.name)
    } else {
        return;
    };
    let layer = reader.table(file, "run");
    let run = reader.section(&keys::RUN, &layer);
    let message = format!("a network with {what} cannot be divided; leave it out");
    reader.fail_key(&run, "partitions", message);
}

/// Pairs of hosts whose path is looked at.
const MOST_PAIRS: usize = 20_000;

/// DCTCP without a queue on its path that marks is NewReno under another name.
fn refuse_dctcp_without_marks(reader: &mut Reader, file: &Section<'_>, scenario: &Scenario) {
    let topology = &scenario.topology;
    let marks = |port: u32| topology.queue(PortId(port)).marks();
    let mut router = Router::new(scenario, 0);
    for group in &scenario.flows {
        let is_dctcp = matches!(&group.transport, Transport::Tcp { settings, .. } if settings.congestion_control == "dctcp");
        if !is_dctcp {
            continue;
        }
        let hosts = |names: &[String]| -> Vec<NodeId> {
            names.iter().filter_map(|name| topology.members(name)).flatten().collect()
        };
        let (senders, others) = (hosts(&group.from), hosts(&group.to));
        let pairs = senders.iter().flat_map(|a| others.iter().map(move |b| (*a, *b))).filter(|(a, b)| a != b);
        // Of a large network some, spread over it.
        let step = (senders.len() * others.len()).div_ceil(MOST_PAIRS).max(1);
        let has_marks = pairs
            .step_by(step)
            .any(|(a, b)| router.route(a, b, 0).is_none_or(|ports| ports.into_iter().any(marks)));
        if !has_marks {
            let message = format!("\"dctcp\" of `{}` meets no queue that marks", group.name);
            let hint = "write queue = { discipline = \"fifo\", limit = \"200pkt\", ecn-threshold = \"20pkt\" } for its links";
            let place = file.item("flows").and_then(|flows| flows.find(core::slice::from_ref(&group.name)));
            let place = place.map_or(&file.place, |item| &item.place);
            reader.fail_with(place, &joined("flows", &group.name), message, hint);
        }
    }
}

/// Messages of an exchange share flow numbers, so what a scheme decides for a flow would outlast it.
fn refuse_for_exchange(reader: &mut Reader, file: &Section<'_>, schemes: &[SchemeConfig]) {
    let by_flow = |act: Act| matches!(act, Act::SetWindow | Act::SetRate | Act::Rewrite);
    for name in schemes.iter().filter(|c| c.scheme.acts().any(by_flow)).map(|c| c.scheme.name) {
        let message = "decides for single flows, and those of an exchange are too many to be distinguished";
        reader.fail_key(file, "schemes", format!("{name} {message}"));
    }
}

/// What a scheme changes in the TCP of a host is for connections with a congestion control of their own.
fn refuse_for_multipath(
    reader: &mut Reader,
    file: &Section<'_>,
    schemes: &[SchemeConfig],
    flows: &[FlowGroup],
) {
    let tunes = |config: &&SchemeConfig| config.scheme.acts().any(|act| act == Act::Tune);
    let (Some(config), Some(group)) =
        (schemes.iter().find(tunes), flows.iter().find(|group| group.multipath.is_some()))
    else {
        return;
    };
    let (scheme, group) = (config.scheme.name, &group.name);
    let message =
        format!("{scheme} changes plain TCP, and `{group}` is multipath TCP; leave its `subflows` out");
    reader.fail_key(file, "schemes", message);
}

fn run_plan(reader: &mut Reader, file: &Section<'_>, quick: bool) -> Option<RunPlan> {
    file.item("run")?;
    let errors_before = reader.errors.len();
    let layer = reader.table(file, "run");
    let section = reader.section(&keys::RUN, &layer);
    let (duration, warm_up, sample) =
        (section.span("duration"), section.span("warm-up"), section.span("sample"));
    if let Some(duration) = duration {
        if duration.is_zero() {
            reader.fail_key(&section, "duration", "must be longer than 0s");
        } else if let Some(warm_up) = warm_up.filter(|w| *w >= duration) {
            let message = format!("\"{warm_up}\" is not shorter than the run, {duration}");
            reader.fail_key(&section, "warm-up", message);
        }
        if let Some(sample) = sample {
            if sample.is_zero() {
                reader.fail_key(&section, "sample", "must be longer than 0s");
            } else if sample > duration {
                let message = format!("\"{sample}\" is longer than the run, {duration}");
                reader.fail_key(&section, "sample", message);
            } else if duration.as_nanos() / sample.as_nanos() > MOST_SAMPLES {
                let message = format!("\"{sample}\" makes more than {MOST_SAMPLES} samples of {duration}");
                reader.fail_key(&section, "sample", message);
            }
        }
    }
    if reader.errors.len() > errors_before {
        return None;
    }
    let trials = section.integer(if quick { "quick-trials" } else { "trials" })?;
    Some(RunPlan {
        duration: duration?,
        warm_up: warm_up?,
        sample: sample?,
        trials: u32::try_from(trials).ok()?,
        seed: u64::try_from(section.integer("seed")?).ok()?,
        partitions: u32::try_from(section.integer("partitions")?).ok()?,
    })
}

fn schemes(reader: &mut Reader, file: &Section<'_>, topology: Option<&Topology>) -> Vec<SchemeConfig> {
    let layer = reader.table(file, "schemes");
    let names: Vec<&str> = reader.schemes().iter().map(|d| d.name).collect();
    let entries = layer.table.map_or(&[][..], |t| &t.entries);
    for entry in entries.iter().filter(|e| !names.contains(&e.key.as_str())) {
        let message = format!("unknown scheme `{}`", entry.key);
        reader.fail_with(&entry.place, "schemes", message, suggestion(&entry.key, &names));
    }
    let mut schemes = Vec::new();
    for def in reader.schemes().iter().copied() {
        let Some(entry) = entries.iter().find(|e| e.key == def.name) else { continue };
        let path = joined("schemes", def.name);
        if entry.item.table().is_none() {
            reader.fail(&entry.item.place, &path, format!("{} is not a table", entry.item));
            continue;
        }
        let header = format!("[{path}]");
        let layer = Layer::new(path, &entry.item);
        let section = reader.entry_section(&[SCHEME_ENABLED, def.keys], &layer, &header);
        let (Some(params), Some(topology)) = (section.params(def.keys), topology) else { continue };
        let enabled = section.bool("enabled") == Some(true);
        let checked = (def.check)(&params, topology);
        match checked.and_then(|()| if enabled { (def.fits)(&params, topology) } else { Ok(()) }) {
            Ok(()) if enabled => schemes.push(SchemeConfig { scheme: def, params }),
            Ok(()) => {}
            Err((key, message)) if section.has(key) => reader.fail_key(&section, key, message),
            Err((key, message)) => reader.fail(&section.place, &joined(&section.path, key), message),
        }
    }
    schemes
}

fn control(reader: &mut Reader, file: &Section<'_>) -> Option<ControlPlane> {
    let layer = reader.table(file, "control");
    let section = reader.section(&keys::CONTROL, &layer);
    let loss = section.float("loss");
    if loss.is_some_and(|loss| loss >= 1.0) {
        reader.fail_key(&section, "loss", "1 would lose every message; write a number from 0 to below 1");
    }
    Some(ControlPlane { delay: section.span("delay")?, loss: loss? })
}

fn faults(
    reader: &mut Reader,
    file: &Section<'_>,
    topology: Option<&Topology>,
    duration: Option<Span>,
) -> Option<Faults> {
    let layer = reader.table(file, "faults");
    let section = reader.section(&keys::FAULTS, &layer);
    let probe_loss = section.float("probe-loss");
    if probe_loss.is_some_and(|loss| loss >= 1.0) {
        let message = "1 would lose every probe; write a number from 0 to below 1";
        reader.fail_key(&section, "probe-loss", message);
    }
    let outages = outages::read(reader, &section, topology, duration);
    let mut nodes = Vec::new();
    let lists = [
        ("restarts", &keys::RESTARTS, &[("at", Change::Restart)][..]),
        ("absences", &keys::ABSENCES, &[("leaves", Change::Leave), ("joins", Change::Join)]),
    ];
    for (list, def, changes) in lists {
        for layer in reader.tables(&section, list) {
            let section = reader.section(def, &layer);
            let node = known_node(reader, &section, "node", topology);
            for (key, change) in changes {
                let times = times(reader, &section, key, duration);
                let fault = |at| Some(NodeFault { at: Time::ZERO + at, node: node?, change: *change });
                nodes.extend(times.into_iter().filter_map(fault));
            }
        }
    }
    // In the order of time, whatever the order in the file.
    nodes.sort_unstable();
    let mut away = BTreeSet::new();
    for NodeFault { at, node, change } in &nodes {
        let (follows, list, says) = match change {
            Change::Restart => (!away.contains(node), "restarts", "restarts, and has left before"),
            Change::Leave => (away.insert(*node), "absences", "leaves, and has left before"),
            Change::Join => (away.remove(node), "absences", "joins, and has not left before"),
        };
        if let Some(topology) = topology.filter(|_| !follows) {
            let name = &topology.nodes[node.index()].name;
            reader.fail_key(&section, list, format!("at {at} \"{name}\" {says}"));
        }
    }
    Some(Faults { probe_loss: probe_loss?, nodes, outages, reroute: section.draw("reroute")? })
}

/// The times that `key` lists, none after the end of the run.
pub(super) fn times(
    reader: &mut Reader,
    section: &Section<'_>,
    key: &str,
    duration: Option<Span>,
) -> Vec<Span> {
    let texts = section.list(key).unwrap_or_default();
    if section.item(key).is_some() && texts.is_empty() {
        reader.fail_key(section, key, "is an empty list");
    }
    let mut times = Vec::new();
    for text in texts {
        match parse_quantity(&text, Dimension::Span).map(Span::from_nanos) {
            Ok(at) if duration.is_some_and(|duration| at > duration) => {
                let end = duration.unwrap_or_default();
                reader.fail_key(section, key, format!("\"{text}\" is after the end of the run, {end}"));
            }
            Ok(at) => times.push(at),
            Err(why) => {
                let hint = Dimension::Span.example();
                reader.fail_key(section, key, format!("\"{text}\" {why}; write {hint}"));
            }
        }
    }
    times
}

/// The node that `key` names.
pub(super) fn known_node(
    reader: &mut Reader,
    section: &Section<'_>,
    key: &str,
    topology: Option<&Topology>,
) -> Option<NodeId> {
    let (name, topology) = (section.text(key)?, topology?);
    let node = topology.node(&name);
    if node.is_none() {
        let names: Vec<&str> = topology.nodes.iter().map(|node| node.name.as_str()).collect();
        let hint = suggestion(&name, &names);
        reader.fail_key_with(section, key, format!("no node is called \"{name}\""), hint);
    }
    node
}

/// The port that `key` names.
fn known_port(
    reader: &mut Reader,
    section: &Section<'_>,
    key: &str,
    topology: Option<&Topology>,
) -> Option<PortId> {
    let (name, topology) = (section.text(key)?, topology?);
    listed_ports(reader, section, key, Some(topology), &[name]).pop()
}

/// The ports of these names, which `key` names.
fn listed_ports(
    reader: &mut Reader,
    section: &Section<'_>,
    key: &str,
    topology: Option<&Topology>,
    names: &[String],
) -> Vec<PortId> {
    let Some(topology) = topology else { return Vec::new() };
    let mut found = Vec::new();
    for name in names {
        if let Some(port) = topology.port(name) {
            if found.contains(&port) {
                reader.fail_key(section, key, format!("\"{name}\" occurs twice"));
            }
            found.push(port);
            continue;
        }
        let ports: Vec<String> = (0..topology.links.len() as u32 * 2)
            .map(|p| topology.port_name(PortId(p)))
            .filter(|name| !name.contains('.'))
            .collect();
        let path = section.key_path(key).to_owned();
        let hint = suggestion(name, &ports);
        reader.fail_with(section.place(key), &path, format!("no port is called \"{name}\""), hint);
    }
    found
}

fn gauges(reader: &mut Reader, section: &Section<'_>, topology: Option<&Topology>) -> Vec<(String, String)> {
    let mut gauges = Vec::new();
    for name in section.list("gauges").unwrap_or_default() {
        let Some((node, gauge)) = name.rsplit_once('.') else {
            reader.fail_key(section, "gauges", format!("\"{name}\" is not `node.gauge`"));
            continue;
        };
        if let Some(topology) = topology.filter(|topology| topology.node(node).is_none()) {
            let names: Vec<&str> = topology.nodes.iter().map(|node| node.name.as_str()).collect();
            let hint = suggestion(node, &names);
            reader.fail_key_with(section, "gauges", format!("no node is called \"{node}\""), hint);
        } else if metric::find_at(&[Place::Shown], gauge).is_none() {
            let names: Vec<&str> = metric::at(&[Place::Shown]).map(|known| known.name).collect();
            let hint = suggestion(gauge, &names);
            reader.fail_key_with(section, "gauges", format!("unknown gauge `{gauge}`"), hint);
        } else if gauges.iter().any(|(n, g)| n == node && g == gauge) {
            reader.fail_key(section, "gauges", format!("\"{name}\" occurs twice"));
        }
        gauges.push((node.to_owned(), gauge.to_owned()));
    }
    gauges
}

fn tracking(reader: &mut Reader, measure: &Section<'_>, topology: Option<&Topology>) -> Option<Tracking> {
    measure.item("tracking")?;
    let layer = reader.table(measure, "tracking");
    let section = reader.section(&keys::TRACKING, &layer);
    let node = known_node(reader, &section, "node", topology);
    let port = known_port(reader, &section, "port", topology);
    // The truth is computed from the link's rate.
    if let (Some(topology), Some(port)) = (topology, port) {
        let link = &topology.links[port.index() / 2];
        let key = if port.index().is_multiple_of(2) { "capacity" } else { "capacity-back" };
        let schedule = if port.index().is_multiple_of(2) { &link.capacity } else { &link.capacity_back };
        if schedule.is_some() {
            let name = topology.port_name(port);
            let message = format!(
                "the capacity of \"{name}\" changes by the link's `{key}`; write a port whose link has a fixed rate"
            );
            reader.fail_key(&section, "port", message);
        }
    }
    let within = section.rate("within");
    if within.is_some_and(|within| within.bits_per_sec() == 0) {
        reader.fail_key(&section, "within", "must be more than nothing");
    }
    Some(Tracking {
        node: node?,
        port: port?,
        within: within?,
        response: section.span("response")?,
        lasting: section.span("lasting")?,
    })
}

fn measure(
    reader: &mut Reader,
    file: &Section<'_>,
    topology: Option<&Topology>,
    run: Option<&RunPlan>,
    flows: &[FlowGroup],
) -> Option<Measure> {
    let layer = reader.table(file, "measure");
    let section = reader.section(&keys::MEASURE, &layer);
    let queue = section.text("queue");
    let _ = known_port(reader, &section, "queue", topology);
    let long_interval = section.span("long-interval");
    if let (Some(long), Some(run)) = (long_interval, run) {
        let sample = run.sample.as_nanos().max(1);
        let written = section.item("long-interval").is_some();
        if long.is_zero() || !long.as_nanos().is_multiple_of(sample) {
            let default = if written { "" } else { ", the default," };
            let message =
                format!("\"{long}\"{default} is not a multiple of the sampling interval, {}", run.sample);
            reader.fail_key(&section, "long-interval", message);
        }
    }
    let windows = windows(reader, &section, run.map(|r| r.duration), flows);
    let gauges = gauges(reader, &section, topology);
    let tracking = tracking(reader, &section, topology);
    let (record, percentiles) = (section.choice("record")?, section.bool("percentiles")?);
    if percentiles && record == RecordDetail::None {
        let hint = "write `record = \"groups\"`, or leave `percentiles` out";
        reader.fail_key_with(&section, "percentiles", "are series, and `record` is \"none\"", hint);
    }
    let ports = section.list("ports").unwrap_or_default();
    if !percentiles && section.item("ports").is_some() {
        let hint = "add `percentiles = true`";
        reader.fail_key_with(&section, "ports", "are of percentiles, which are off", hint);
    }
    let ports = listed_ports(reader, &section, "ports", topology, &ports);
    Some(Measure {
        gauges,
        tracking,
        queue,
        record,
        windows,
        long_interval: long_interval?,
        distributions: section.bool("distributions")?,
        arrivals: section.bool("arrivals")?,
        flow_table: section.choice("flow-table")?,
        percentiles,
        ports,
    })
}

fn windows(
    reader: &mut Reader,
    measure: &Section<'_>,
    duration: Option<Span>,
    flows: &[FlowGroup],
) -> Vec<Window> {
    let senders: Vec<&str> = flows
        .iter()
        .filter(|group| group.measured)
        .flat_map(|group| &group.from)
        .map(String::as_str)
        .collect();
    let mut windows = Vec::new();
    let mut names = Vec::new();
    for layer in reader.tables(measure, "windows") {
        let section = reader.section(&keys::WINDOW, &layer);
        let name = reader.name(&section, "name");
        names.extend(section.name_entry("name"));
        let (Some(from), Some(to)) = (section.span("from"), section.span("to")) else { continue };
        if to <= from {
            reader.fail_key(&section, "to", format!("\"{to}\" is not after `from`, {from}"));
        } else if let Some(duration) = duration.filter(|d| to > *d) {
            reader.fail_key(&section, "to", format!("\"{to}\" is after the end of the run, {duration}"));
        }
        let of = section.text("of");
        if let Some(of) = of.as_ref().filter(|of| !flows.is_empty() && !senders.contains(&of.as_str())) {
            let message = format!("\"{of}\" sends no flow that is measured");
            reader.fail_key_with(&section, "of", message, suggestion(of, &senders));
        }
        if let Some(name) = name {
            windows.push(Window { name, from: Time::ZERO + from, to: Time::ZERO + to, of });
        }
    }
    reader.unique(&names);
    windows
}
