//! `[tcp]` and `[[flows]]`: who sends what to whom.

use std::collections::BTreeSet;

use super::arrivals;
use super::choices::{LossDetection, Pairing, StartPer};
use super::exchange;
use super::keys;
use super::listed;
use super::matrix;
use super::model::{Exchange, FlowGroup, Multipath, Need, OnOff, RunPlan, TimelineStep, Transport};
use super::network;
use super::permutation;
use super::reach::Reach;
use super::sources::Reader;
use super::tcp_settings::TcpSettings;
use crate::control::Protocol;
use crate::file::{Item, Layer, Section, suggestion};
use crate::id::NodeId;
use crate::rng::SpanDraw;
use crate::time::{Span, Time};
use crate::topology::{NodeKind, Topology};
use crate::units::{Bytes, Rate};

/// The most flows of one scenario.
const MOST_FLOWS: u64 = 1_000_000;

/// Words at `paths` instead of routers: how the subflows of a connection choose among the shortest paths.
const PATH_WORDS: [&str; 2] = ["hash", DISTINCT];
/// Each subflow takes another one.
const DISTINCT: &str = "distinct";

/// Congestion controls that go without selective acknowledgements.
const BEFORE_SACK: [&str; 2] = ["tahoe", "reno"];

/// Reads every flow group. `topology` is absent when the network is wrong; names are not checked then.
pub(super) fn read(
    reader: &mut Reader,
    file: &Section<'_>,
    topology: Option<&Topology>,
    run: Option<&RunPlan>,
) -> Vec<FlowGroup> {
    let duration = run.map(|run| run.duration);
    let defaults = reader.table(file, "tcp");
    if file.item("tcp").is_some() {
        let section = reader.section(&keys::TCP, &defaults);
        let _ = tcp_settings(reader, &section);
    }
    let reach = topology.map(Reach::new);
    let layers = reader.tables(file, "flows");
    if file.item("flows").is_some_and(Item::is_empty_list) {
        reader.fail_key(file, "flows", "is empty; nothing would be sent");
    }
    let mut flows = Vec::new();
    let mut names = Vec::new();
    let (mut total, mut is_off) = (0, false);
    for layer in layers {
        let section = reader.section(&keys::FLOW, &layer);
        names.extend(section.name_entry("name"));
        let group = flow_group(reader, &section, &defaults, duration, topology);
        needs_over(reader, &section, run);
        if section.integer("count") == Some(0) {
            is_off |= group.is_some();
            continue;
        }
        if section.item("matrix").is_some() {
            // It is read with the hosts of a sound network.
            if let (Some(base), Some(reach)) = (&group, &reach)
                && let Some((groups, own)) = matrix::groups(reader, &section, base, reach, duration)
            {
                total += own;
                if total > MOST_FLOWS {
                    let message = format!("makes {total} flows in all; at most {MOST_FLOWS}");
                    reader.fail_key(&section, "matrix", message);
                    break;
                }
                flows.extend(groups);
            }
            continue;
        }
        let per_pair = group.as_ref().and_then(|g| g.multipath).map_or(1, |m| i64::from(m.subflows));
        let exchange = group.as_ref().and_then(|g| g.exchange.as_ref());
        let is_persistent = group.as_ref().is_some_and(|group| group.persistent);
        let count = exchange.map_or(section.integer("count").unwrap_or(1) * per_pair, |exchange| {
            if is_persistent { 1 } else { i64::from(exchange.outstanding()) }
        });
        if let Some(reach) = &reach {
            let list = group.as_ref().and_then(|group| group.list.as_ref());
            let mut pairs = match list {
                Some(list) => listed::ends(reader, &section, reach, list),
                None => ends(reader, &section, reach),
            };
            if exchange.is_some() && is_persistent {
                pairs = pairs.saturating_mul(pairs.saturating_sub(1));
            }
            // Those that arrive have been counted.
            if group.as_ref().is_none_or(|group| group.arrivals.is_none()) {
                total += pairs * u64::try_from(count).unwrap_or(1);
            }
            if total > MOST_FLOWS {
                let message = format!("makes {total} flows in all; at most {MOST_FLOWS}");
                reader.fail_key(&section, "count", message);
                break;
            }
        }
        flows.extend(group);
    }
    if flows.is_empty() && is_off {
        reader.fail_key_with(
            file,
            "flows",
            "are all off: nothing would be sent",
            "leave `count = 0` out of one",
        );
    }
    reader.unique(&names);
    flows
}

/// A need is judged over whole sampling intervals.
fn needs_over(reader: &mut Reader, section: &Section<'_>, run: Option<&RunPlan>) {
    let (Some(_), Some(over), Some(run)) = (section.item("needs"), section.span("needs-over"), run) else {
        return;
    };
    if over.is_zero() || !over.as_nanos().is_multiple_of(run.sample.as_nanos().max(1)) {
        let default = if section.item("needs-over").is_some() { "" } else { ", the default," };
        let message =
            format!("\"{over}\"{default} is not a multiple of the sampling interval, {}", run.sample);
        reader.fail_key(section, "needs-over", message);
    }
}

fn flow_group(
    reader: &mut Reader,
    section: &Section<'_>,
    tcp: &Layer<'_>,
    duration: Option<Span>,
    topology: Option<&Topology>,
) -> Option<FlowGroup> {
    let name = reader.name(section, "name");
    let size_cdf = arrivals::size_cdf(reader, section);
    let list = listed::read(reader, section, topology, duration);
    let mean_size = size_cdf.as_ref().map(|sizes| Bytes::new(sizes.mean() as u64));
    let mean_size = mean_size.or(list.as_ref().map(listed::FlowList::mean));
    let transport = transport(reader, section, tcp, mean_size);
    let start = start(reader, section, duration);
    let latest_start = start.and_then(SpanDraw::upper_bound).unwrap_or_default();
    let stop = section.span("stop");
    if let Some(stop) = stop {
        if stop <= latest_start {
            let shown = section.item("start").map_or_else(|| "\"0s\"".to_owned(), Item::to_string);
            reader.fail_key(section, "stop", format!("\"{stop}\" is not after the start, {shown}"));
        } else if let Some(duration) = duration.filter(|d| stop > *d) {
            reader.fail_key(section, "stop", format!("\"{stop}\" is after the end of the run, {duration}"));
        }
    }
    let timeline = timeline(reader, section, duration, stop);
    let on_off = on_off(reader, section);
    let paths = topology.map_or_else(Vec::new, |topology| paths(reader, section, topology));
    let multipath = multipath(reader, section);
    let arrivals =
        arrivals::arrivals(reader, section, size_cdf.as_ref(), transport.as_ref(), topology, duration);
    let exchange = exchange::read(reader, section);
    let rounds = if exchange.is_some() { None } else { rounds(reader, section) };
    let persistent = persistent(reader, section, transport.as_ref(), exchange.as_ref(), multipath.is_some());
    let reset = section.has("reset").then(|| section.bool("reset")).flatten().unwrap_or(false);
    if reset && section.item("stop").is_none() {
        reader.fail_key(section, "reset", "needs `stop`, when the flows break off");
    }
    let measured = section.has("measured").then(|| section.bool("measured")).flatten();
    Some(FlowGroup {
        name: name?,
        from: section.list("from")?,
        to: section.list("to")?,
        pairing: section.choice("pairing")?,
        count: u32::try_from(section.integer("count")?).ok()?,
        start: start?,
        starts_together: section.choice::<StartPer>("start-per")? == StartPer::Host,
        stop: stop.map(|s| Time::ZERO + s),
        timeline,
        on_off,
        transport: transport?,
        need: match section.rate("needs") {
            Some(rate) => Some(Need { rate, over: section.span("needs-over")? }),
            None => None,
        },
        dscp: u8::try_from(section.integer("dscp")?).ok()?,
        paths,
        rounds,
        size_cdf,
        list,
        arrivals,
        persistent,
        reset,
        exchange,
        multipath,
        measured: measured?,
    })
}

/// The word that stands at `paths` instead of routers.
fn path_word(section: &Section<'_>) -> Option<&'static str> {
    let written = section.list("paths")?;
    let [only] = &written[..] else { return None };
    PATH_WORDS.into_iter().find(|word| *word == only.as_str())
}

/// The routers that each path names.
fn paths(reader: &mut Reader, section: &Section<'_>, topology: &Topology) -> Vec<Vec<NodeId>> {
    let written = section.list("paths").unwrap_or_default();
    let mut paths = Vec::new();
    if let Some(word) = path_word(section) {
        let namesake = topology.nodes.iter().any(|n| n.kind == NodeKind::Router && n.name == word);
        if namesake {
            let message = format!("\"{word}\" chooses among shortest paths, and a router has this name too");
            reader.fail_key_with(section, "paths", message, "give the router another name");
        }
        return paths;
    }
    for path in &written {
        let mut routers = Vec::new();
        for name in path.split_whitespace() {
            match topology.node(name).filter(|n| topology.nodes[n.index()].kind == NodeKind::Router) {
                Some(node) => routers.push(node),
                None => {
                    let all = topology.nodes.iter().filter(|n| n.kind == NodeKind::Router);
                    let all: Vec<&str> = all.map(|n| n.name.as_str()).collect();
                    let hint = suggestion(name, &all);
                    let message = format!("unknown router `{name}`");
                    reader.fail_key_with(section, "paths", message, hint);
                }
            }
        }
        if routers.is_empty() && path.trim().is_empty() {
            reader.fail_key(section, "paths", "has an empty path; name a router");
        }
        paths.push(routers);
    }
    paths
}

fn multipath(reader: &mut Reader, section: &Section<'_>) -> Option<Multipath> {
    let distinct_paths = path_word(section) == Some(DISTINCT);
    let is_tcp = section.has("subflows");
    if !is_tcp || section.item("subflows").is_none() {
        if distinct_paths {
            let hint = "add `subflows`";
            reader.fail_key_with(section, "paths", "\"distinct\" is for multipath TCP", hint);
        }
        for key in ["scheduler", "receive-window"] {
            if is_tcp && section.item(key).is_some() {
                reader.fail_key(section, key, "also needs `subflows`");
            }
        }
        return None;
    }
    let subflows = u32::try_from(section.integer("subflows")?).ok()?;
    for key in ["on", "timeline"] {
        if section.item(key).is_some() {
            reader.fail_key(section, key, "is not for multipath TCP; leave `subflows` out");
        }
    }
    let (scheduler, receive_window) = (section.choice("scheduler")?, section.choice("receive-window")?);
    Some(Multipath { subflows, scheduler, receive_window, distinct_paths })
}

fn rounds(reader: &mut Reader, section: &Section<'_>) -> Option<u32> {
    let rounds = section.has("rounds").then(|| section.integer("rounds")).flatten()?;
    for key in ["stop", "on", "timeline"] {
        if section.item(key).is_some() {
            reader.fail_key(section, key, "is not for incast; leave `rounds` out");
        }
    }
    if section.item("size").is_none() {
        reader.fail_key(section, "rounds", "needs `size`, what each sender sends in a round");
    }
    u32::try_from(rounds).ok()
}

fn persistent(
    reader: &mut Reader,
    section: &Section<'_>,
    transport: Option<&Transport>,
    exchange: Option<&Exchange>,
    is_multipath: bool,
) -> bool {
    if !section.has("persistent") || section.bool("persistent") != Some(true) {
        return false;
    }
    if let Some(exchange) = exchange {
        let Some(Transport::Tcp { settings, .. }) = transport else { return true };
        let is_whole = |size: &&Bytes| size.get().is_multiple_of(settings.mss.get().max(1));
        if let Some(size) = exchange.sizes.iter().find(|size| !is_whole(size)) {
            let key = if section.item("sizes").is_some() { "sizes" } else { "size" };
            let message = format!(
                "\"{size}\" is not a multiple of the MSS, {}, as persistent connections need it",
                settings.mss
            );
            reader.fail_key(section, key, message);
        }
        return true;
    }
    if section.item("rounds").is_none() {
        reader.fail_key(section, "persistent", "is for incast and exchanges; incast also needs `rounds`");
    }
    if let Some(Transport::Tcp { size: Some(size), settings }) = transport
        && !is_multipath
        && !size.get().is_multiple_of(settings.mss.get().max(1))
    {
        let message = format!(
            "\"{size}\" is not a multiple of the MSS, {}, as persistent rounds of plain TCP need it",
            settings.mss
        );
        reader.fail_key(section, "size", message);
    }
    true
}

fn start(reader: &mut Reader, section: &Section<'_>, duration: Option<Span>) -> Option<SpanDraw> {
    let start = section.draw("start")?;
    if let (Some(latest), Some(duration)) = (start.upper_bound(), duration)
        && latest >= duration
    {
        let shown = section.item("start").map_or_else(String::new, Item::to_string);
        reader.fail_key(section, "start", format!("{shown} is not before the end of the run, {duration}"));
    }
    Some(start)
}

fn timeline(
    reader: &mut Reader,
    section: &Section<'_>,
    duration: Option<Span>,
    stop: Option<Span>,
) -> Vec<TimelineStep> {
    const ROUNDING: f64 = 1e-9;
    let mut steps = Vec::new();
    let mut stopped = 0.0;
    let mut last = None;
    for layer in reader.tables(section, "timeline") {
        let step = reader.section(&keys::STEP, &layer);
        let (Some(at), Some(stop_share), Some(start_share)) =
            (step.span("at"), step.float("stop"), step.float("start"))
        else {
            continue;
        };
        if let Some(duration) = duration.filter(|d| at >= *d) {
            reader.fail_key(&step, "at", format!("\"{at}\" is not before the end of the run, {duration}"));
        }
        if let Some(stop) = stop.filter(|stop| at >= *stop) {
            reader.fail_key(&step, "at", format!("\"{at}\" is not before the flows' stop, {stop}"));
        }
        if let Some(last) = last.filter(|last| at <= *last) {
            reader.fail_key(&step, "at", format!("\"{at}\" is not after the step before, {last}"));
        }
        if stop_share == 0.0 && start_share == 0.0 {
            reader.fail_with(&step.place, &step.path, "changes nothing", "write `stop` or `start`, or both");
        }
        last = Some(at);
        stopped += stop_share;
        if stopped > 1.0 + ROUNDING {
            reader.fail_key(&step, "stop", format!("{stop_share} more would stop {stopped:.3} of the flows"));
        }
        stopped -= start_share;
        if stopped < -ROUNDING {
            let most = stopped + start_share;
            let message = format!("{start_share} is more than the share that stands still, {most:.3}");
            reader.fail_key(&step, "start", message);
        }
        steps.push(TimelineStep { at: Time::ZERO + at, stop: stop_share, start: start_share });
    }
    steps
}

fn on_off(reader: &mut Reader, section: &Section<'_>) -> Option<OnOff> {
    for (given, missing) in [("on", "off"), ("off", "on")] {
        if section.item(given).is_some() && section.item(missing).is_none() {
            reader.fail_key(section, given, format!("also needs `{missing}`"));
        }
    }
    let (on, off) = (section.draw("on")?, section.draw("off")?);
    if on.mean() == 0.0 {
        reader.fail_key(section, "on", "a mean of 0s would never send; write a longer time, such as \"1s\"");
    }
    Some(OnOff { on, off })
}

fn transport(
    reader: &mut Reader,
    section: &Section<'_>,
    tcp: &Layer<'_>,
    mean_size: Option<Bytes>,
) -> Option<Transport> {
    match section.choice("transport")? {
        Protocol::Udp => {
            let packet = section.bytes("packet");
            if let Some(packet) = packet.filter(|p| !(28..=65_535).contains(&p.get())) {
                let message =
                    format!("\"{packet}\" is not an IP packet with UDP; write a size from 28B to 65535B");
                reader.fail_key(section, "packet", message);
            }
            let rate = network::rate(reader, section, "rate");
            let jitter = section.float("jitter");
            Some(Transport::Udp { rate: rate?, packet: packet?, jitter: jitter? })
        }
        Protocol::Tcp => {
            let size = section.bytes("size").or_else(|| exchange::sizes(section)?.into_iter().next()?.ok());
            if size == Some(Bytes::ZERO) {
                let message = "\"0B\" is nothing to send; leave `size` out to send without end";
                reader.fail_key(section, "size", message);
            }
            let own = reader.table(section, "tcp");
            let settings = reader.section_over(&keys::TCP, &[own, tcp.clone()]);
            let size = size.or(mean_size);
            Some(Transport::Tcp { size, settings: tcp_settings(reader, &settings)? })
        }
    }
}

fn tcp_settings(reader: &mut Reader, section: &Section<'_>) -> Option<TcpSettings> {
    let packets = |reader: &mut Reader, key: &str, least: i64, most: i64| -> Option<u32> {
        let packets = section.integer(key)?;
        if !(least..=most).contains(&packets) {
            reader.fail_key(section, key, format!("\"{packets}pkt\" is not from {least}pkt to {most}pkt"));
        }
        u32::try_from(packets).ok()
    };
    let initial_window = packets(reader, "initial-window", 1, 10_000);
    let delayed_ack = packets(reader, "delayed-ack", 1, 64);
    let quick_acks = packets(reader, "quick-acks", 0, 1_000);
    let cwnd_clamp = packets(reader, "cwnd-clamp", 1, 10_000_000);
    let largest_burst = packets(reader, "largest-burst", 1, 127);
    let mss = section.bytes("mss");
    if let Some(mss) = mss.filter(|mss| !(64..=65_000).contains(&mss.get())) {
        reader.fail_key(section, "mss", format!("\"{mss}\" is not from 64B to 65000B"));
    }
    let buffer = section.bytes("receive-buffer");
    if let (Some(buffer), Some(mss)) = (buffer, mss)
        && (buffer < mss || buffer > Bytes::new(1 << 30))
    {
        let message = format!("\"{buffer}\" is not from one segment, {mss}, to 1GiB");
        reader.fail_key(section, "receive-buffer", message);
    }
    let congestion_control = section.text("congestion-control");
    if let Some(name) = congestion_control.as_deref().filter(|name| BEFORE_SACK.contains(name))
        && section.bool("sack") == Some(true)
    {
        let hint = "write `sack = false`, or name \"newreno\"";
        let message = format!("\"{name}\" is older than selective acknowledgements and makes no use of them");
        reader.fail_key_with(section, "congestion-control", message, hint);
    }
    if congestion_control.as_deref() == Some("dctcp") && section.bool("ecn") == Some(false) {
        let message = "\"dctcp\" needs ECN";
        reader.fail_key_with(section, "congestion-control", message, "write `ecn = true`");
    }
    let loss_detection = section.choice("loss-detection");
    if loss_detection == Some(LossDetection::Rack) && section.bool("sack") == Some(false) {
        let message = "\"rack\" needs selective acknowledgements";
        reader.fail_key_with(section, "loss-detection", message, "leave `sack = false` out");
    }
    if section.bool("tail-loss-probe") == Some(true) && loss_detection == Some(LossDetection::Rfc6675) {
        let message = "needs losses found by time";
        let hint = "write `loss-detection = \"rack\"`";
        reader.fail_key_with(section, "tail-loss-probe", message, hint);
    }
    for key in ["dsack", "f-rto"] {
        if section.bool(key) == Some(true) && section.bool("sack") == Some(false) {
            let message = "needs selective acknowledgements";
            reader.fail_key_with(section, key, message, "leave `sack = false` out");
        }
    }
    let read_rate = match section.rate("read-rate") {
        Some(rate) if rate == Rate::ZERO => {
            reader.fail_key(section, "read-rate", "\"0bit\" would never read; leave it out to read at once");
            None
        }
        rate => rate,
    };
    let timer_tick = section.span("timer-tick");
    for key in ["initial-rto", "min-rto", "max-rto", "timer-tick"] {
        if section.span(key).is_some_and(Span::is_zero) {
            reader.fail_key(section, key, "must be longer than 0s");
        }
    }
    if let Some(most) = section.span("max-rto").filter(|most| !most.is_zero()) {
        for key in ["initial-rto", "min-rto"] {
            if let Some(span) = section.span(key).filter(|span| *span > most) {
                reader.fail_key(section, key, format!("\"{span}\" is above `max-rto`, {most}"));
            }
        }
    }
    Some(TcpSettings {
        brought_control: reader.control(congestion_control.as_deref()?),
        congestion_control: congestion_control?,
        mss: mss?,
        initial_window: initial_window?,
        sack: section.bool("sack")?,
        timestamps: section.bool("timestamps")?,
        aligned_options: section.bool("aligned-options")?,
        window_scaling: section.bool("window-scaling")?,
        delayed_ack: delayed_ack?,
        delayed_ack_timeout: section.span("delayed-ack-timeout")?,
        quick_acks: quick_acks?,
        limited_transmit: section.bool("limited-transmit")?,
        recovery: section.choice("recovery")?,
        loss_detection: loss_detection?,
        tail_loss_probe: section.bool("tail-loss-probe")?,
        dsack: section.bool("dsack")?,
        f_rto: section.bool("f-rto")?,
        rack_tlp: section.bool("rack-tlp")?,
        mark_reduction: section.choice("mark-reduction")?,
        partial_ack_sends: section.bool("partial-ack-sends")?,
        impatient_timer: section.bool("impatient-timer")?,
        byte_counting: section.bool("byte-counting")?,
        cwnd_validation: section.bool("cwnd-validation")?,
        rtt_samples: section.choice("rtt-samples")?,
        initial_rto: section.span("initial-rto")?,
        min_rto: section.span("min-rto")?,
        flight_size: section.choice("flight-size")?,
        rto_floor: section.choice("rto-floor")?,
        timer_tick,
        max_rto: section.span("max-rto")?,
        receive_buffer: buffer?,
        read_rate,
        ecn: section.bool("ecn")?,
        pacing: section.bool("pacing")?,
        pacing_gain_slow_start: section.float("pacing-gain-slow-start")?,
        pacing_gain: section.float("pacing-gain")?,
        largest_burst,
        idle_restart: section.bool("idle-restart")?,
        cwnd_clamp,
        hystart: section.bool("hystart")?,
        hystart_rules: section.choice("hystart-rules")?,
        cubic_rules: section.choice("cubic-rules")?,
        fast_convergence: section.bool("fast-convergence")?,
        ack_at_window_end: section.bool("ack-at-window-end")?,
    })
}

/// Checks who sends to whom; the number of pairs.
fn ends(reader: &mut Reader, section: &Section<'_>, reach: &Reach<'_>) -> u64 {
    let from = hosts(reader, section, "from", reach.topology);
    let to = hosts(reader, section, "to", reach.topology);
    let (Some(from), Some(to)) = (from, to) else { return 0 };
    let pairing: Option<Pairing> = section.choice("pairing");
    if section.has("sizes") && pairing == Some(Pairing::Exchange) {
        return exchange::ends(reader, section, reach, &from);
    }
    if pairing == Some(Pairing::Permutation) {
        return permutation::ends(reader, section, reach, [&from, &to]);
    }
    let all_to_all = pairing == Some(Pairing::AllToAll);
    let name = |node: NodeId| reach.topology.nodes[node.index()].name.as_str();
    let mut judged = BTreeSet::new();
    let mut pairs = 0;
    for (i, &a) in from.iter().enumerate() {
        let partner = i % to.len();
        let receivers = if all_to_all { &to[..] } else { &to[partner..=partner] };
        for &b in receivers {
            if a == b {
                if !all_to_all {
                    let message = format!("pairs `{}` with itself", name(a));
                    reader.fail_key(section, "from", message);
                    return pairs;
                }
                continue;
            }
            pairs += 1;
            if pairs > MOST_FLOWS {
                return pairs;
            }
            if !judged.insert((reach.class(a), reach.class(b))) {
                continue;
            }
            if !reach.judge(reader, section, a, b) {
                return pairs;
            }
        }
    }
    if pairs == 0 {
        reader.fail_key(section, "from", "every sender is also the only receiver, so there are no flows");
    }
    pairs
}

/// The hosts that `key` names.
pub(super) fn hosts(
    reader: &mut Reader,
    section: &Section<'_>,
    key: &str,
    topology: &Topology,
) -> Option<Vec<NodeId>> {
    let names = section.list(key)?;
    if names.is_empty() {
        reader.fail_key(section, key, "is empty");
        return None;
    }
    let mut hosts = Vec::new();
    let mut sound = true;
    for (i, name) in names.iter().enumerate() {
        if let Some(members) = topology.members(name) {
            hosts.extend(members);
            continue;
        }
        sound = false;
        let item = section.item(key);
        let place = item.and_then(|list| list.find(&[i.to_string()])).or(item);
        let place = place.map_or(&section.place, |i| &i.place);
        let path = section.key_path(key);
        if topology.node(name).is_some() {
            reader.fail_with(place, path, format!("`{name}` is a router"), "flows end at hosts");
        } else {
            let known: Vec<&str> = known_ends(topology);
            let message = format!("unknown group or host `{name}`");
            reader.fail_with(place, path, message, suggestion(name, &known));
        }
    }
    sound.then_some(hosts)
}

/// Names of groups, and of hosts that are in none.
fn known_ends(topology: &Topology) -> Vec<&str> {
    let groups = topology.groups.iter().map(|g| g.name.as_str());
    let single = topology.nodes.iter().filter(|n| n.kind == NodeKind::Host && !n.name.contains('.'));
    groups.chain(single.map(|n| n.name.as_str())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::Place;
    use crate::scenario::Options;
    use crate::scenario::sources::Sources;

    #[test]
    fn defaults_in_the_keys_are_those_of_the_model() {
        let sources = Sources::new(&Options::default());
        let mut reader = sources.reader("f");
        let section = reader.section(&keys::TCP, &Layer::absent("tcp", &Place::start()));
        assert_eq!(tcp_settings(&mut reader, &section), Some(TcpSettings::default()));
        assert_eq!(reader.errors, []);
    }
}
