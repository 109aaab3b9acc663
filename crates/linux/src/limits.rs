//! Checks for parts of a scenario that Linux cannot do, before anything is built.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use bandmaster_core::capacity::Capacity;
use bandmaster_core::id::{NodeId, PortId};
use bandmaster_core::params::Value;
use bandmaster_core::qdisc;
use bandmaster_core::runtime::Host;
use bandmaster_core::scenario::{
    CubicRules, FlightSize, LossDetection, Recovery, RtoFloor, RttSamples, Scenario, TcpSettings, Transport,
};
use bandmaster_core::scheme::{Act, Program, SchemeDef};
use bandmaster_core::time::Span;
use bandmaster_core::topology::NodeKind;
use bandmaster_core::units::{Bytes, Rate};

use crate::Error;
use crate::lab::Lab;
use crate::netns::parameter;
use crate::workplan::Workplan;

/// Most namespaces of a lab: each costs memory and a tenth of a second.
const MOST_NODES: usize = 500;
/// Above this the forwarder of one core falls behind with full packets.
const MOST_RATE: Rate = Rate::from_bits_per_sec(2_000_000_000);

/// What Linux does in another way than the scenario says; the run goes on.
pub type Remarks = Vec<String>;

/// Finds what cannot be done, and what will be done otherwise, by this process with so many labs at once.
///
/// # Errors
/// The first thing that cannot be done, with what can.
pub fn check(scenario: &Scenario, labs: usize) -> Result<Remarks, Error> {
    let mut remarks = Remarks::new();
    check_network(scenario, &mut remarks)?;
    check_schemes(scenario)?;
    for group in &scenario.flows {
        let lacks = [
            (group.multipath.is_some(), "`subflows`"),
            (group.exchange.is_some(), "an exchange"),
            (group.reset, "`reset`"),
        ];
        if let Some((_, what)) = lacks.iter().find(|(asks, _)| *asks) {
            return missing(format!("flows {}: {what} is not emulated yet; `run` simulates it", group.name));
        }
        if let Transport::Tcp { settings, .. } = &group.transport {
            check_tcp(&group.name, settings, &mut remarks)?;
        }
    }
    let plan = Workplan::new(scenario, 0)?;
    check_programs(scenario, &plan, &mut remarks)?;
    check_files(plan.flows.len(), labs)?;
    parameters_of_nodes(scenario, &plan)?;
    let mut seen = BTreeSet::new();
    remarks.retain(|remark| seen.insert(remark.clone()));
    Ok(remarks)
}

fn check_network(scenario: &Scenario, remarks: &mut Remarks) -> Result<(), Error> {
    let topology = &scenario.topology;
    if !scenario.faults.outages.is_empty() {
        return missing(
            "faults: links and nodes that go down (`faults.links`, `faults.nodes`) are not emulated yet; `run` simulates them"
                .to_owned(),
        );
    }
    if topology.nodes.len() > MOST_NODES {
        return missing(format!(
            "the network has {} nodes; the lab makes a network namespace for each and stops at {MOST_NODES}",
            topology.nodes.len()
        ));
    }
    for (i, link) in topology.links.iter().enumerate() {
        let name = topology.port_name(PortId(2 * i as u32));
        let capacities = [&link.capacity, &link.capacity_back].into_iter().flatten();
        let highest = capacities.map(highest_rate).fold(link.rate.max(link.rate(false)), Rate::max);
        if highest > MOST_RATE {
            return missing(format!(
                "link {name}: {highest} is more than a user-space forwarder carries; at most {MOST_RATE}"
            ));
        }
        if !link.variation.is_none() {
            return missing(format!(
                "link {name}: `jitter` and `reorder` are not emulated yet; `run` simulates them"
            ));
        }
        let queues = [2 * i, 2 * i + 1].map(|port| topology.queue(PortId(port as u32)));
        if queues.iter().any(|queue| queue.discipline == &qdisc::shared::DEF) {
            return missing(format!(
                "link {name}: memory that ports share is not emulated yet; `run` simulates it"
            ));
        }
        for (direction, (node, queue)) in [link.a, link.b].into_iter().zip(queues).enumerate() {
            if queue.discipline != &qdisc::htb::DEF {
                continue;
            }
            let is_host = topology.nodes[node.index()].kind == NodeKind::Host;
            let Some(Value::Rate(rate)) = queue.params.get("rate") else { continue };
            if !is_host && *rate > link.rate(direction == 0) {
                return missing(format!(
                    "link {name}: the kernel's htb shapes to {rate} before the link's {}; packets would wait behind \
                     it instead of in its classes",
                    link.rate(direction == 0)
                ));
            }
        }
    }
    if topology.frame_overhead > Bytes::new(255) {
        return missing(format!(
            "network.frame-overhead: {} is more than htb counts, 255B",
            topology.frame_overhead
        ));
    }
    if topology.host_delay > 0.0 {
        remarks.push("network.host-delay: real hosts take their own time".to_owned());
    }
    Ok(())
}

/// The highest rate of steps, the mean rate of a trace.
fn highest_rate(capacity: &Capacity) -> Rate {
    match capacity {
        Capacity::Steps(steps) => steps.steps().iter().map(|step| step.rate).fold(Rate::ZERO, Rate::max),
        Capacity::Trace(trace) => trace.mean_rate(),
    }
}

fn check_schemes(scenario: &Scenario) -> Result<(), Error> {
    for config in &scenario.schemes {
        let scheme = config.scheme;
        let mut lacks: Vec<Act> = scheme.acts().filter(|act| !Lab::ACTS.contains(act)).collect();
        lacks.dedup();
        if !lacks.is_empty() {
            let words: Vec<&str> = lacks.iter().map(|act| act.words()).collect();
            return missing(format!(
                "schemes.{0}: the lab cannot {1} yet; `run` simulates it, and `--set schemes.{0}.enabled=false` or \
                 `--variant` leaves it out",
                scheme.name,
                words.join(", ")
            ));
        }
    }
    Ok(())
}

/// Programs that set windows in passing packets.
fn check_programs(scenario: &Scenario, plan: &Workplan, remarks: &mut Remarks) -> Result<(), Error> {
    for role in plan.roles(scenario) {
        let name = role.scheme.name;
        for (port, program) in &role.built.programs {
            let Program::Rewrite(program) = program else { continue };
            if program.is_echoed() {
                return missing(format!(
                    "schemes.{name}: hosts have to return a window field, and Linux's do not; its other forms need none"
                ));
            }
            if scenario.topology.queue(*port).discipline == &qdisc::htb::DEF {
                return missing(format!(
                    "schemes.{name}: the queue of {} is the kernel's htb, and the forwarder does not see what waits there; \
                     take another discipline",
                    scenario.topology.port_name(*port)
                ));
            }
            remarks.push(format!(
                "schemes.{name}: the forwarder lowers windows, by the program that `run` simulates; `bandmaster switch` has \
                 one in the kernel"
            ));
        }
    }
    Ok(())
}

/// True when the scheme bounds or paces connections.
pub(crate) fn sets_windows(scheme: &SchemeDef) -> bool {
    scheme.acts().any(|act| matches!(act, Act::SetWindow | Act::SetRate))
}

fn check_tcp(group: &str, tcp: &TcpSettings, remarks: &mut Remarks) -> Result<(), Error> {
    let name = kernel_name(&tcp.congestion_control);
    let known = parameter("net.ipv4.tcp_available_congestion_control").unwrap_or_default();
    if !known.split_whitespace().any(|known| known == name) {
        return missing(format!(
            "flows.{group}: this kernel has no congestion control `{name}`; it has {known} (modprobe tcp_{name}?)"
        ));
    }
    if tcp.cwnd_clamp.is_some() {
        return missing(format!("flows.{group}: cwnd-clamp: Linux has no such setting"));
    }
    if tcp.read_rate.is_some() {
        return missing(format!("flows.{group}: read-rate: the lab's receivers read at once"));
    }
    let mut remark = |differs: bool, what: &str| {
        if differs {
            remarks.push(format!("tcp.{what}"));
        }
    };
    remark(tcp.congestion_control == "reno", "congestion-control: Linux's reno recovers as NewReno does");
    remark(!matches!(tcp.delayed_ack, 1 | 2), "delayed-ack: Linux acknowledges every or every other segment");
    let usual = tcp.delayed_ack_timeout == Span::from_millis(40);
    remark(tcp.delayed_ack > 1 && !usual, "delayed-ack-timeout: Linux chooses it, from 40 ms");
    remark(tcp.quick_acks > 0, "quick-acks: Linux chooses how many, up to 16");
    remark(!tcp.limited_transmit, "limited-transmit: Linux always does it");
    remark(tcp.recovery != Recovery::Prr, "recovery: Linux does proportional rate reduction");
    let by_time = tcp.loss_detection == LossDetection::Rack;
    remark(
        !by_time && (tcp.rack_tlp || knows_rack_only(&parameter("kernel.osrelease").unwrap_or_default())),
        "loss-detection: Linux finds losses by time (RFC 8985); the simulator does with \"rack\"",
    );
    remark(
        tcp.rack_tlp && !tcp.tail_loss_probe,
        "rack-tlp: Linux probes for tails; the simulator does with `tail-loss-probe`",
    );
    remark(!tcp.rack_tlp && tcp.tail_loss_probe, "tail-loss-probe: the lab's kernel probes with `rack-tlp`");
    remark(!tcp.aligned_options, "aligned-options: Linux aligns each");
    remark(tcp.flight_size != FlightSize::Outstanding, "flight-size: Linux takes the congestion window");
    remark(tcp.partial_ack_sends, "partial-ack-sends: Linux's window decides");
    remark(tcp.impatient_timer, "impatient-timer: Linux restarts the timer with all progress");
    remark(!tcp.byte_counting, "byte-counting: Linux counts what was acknowledged");
    remark(!tcp.cwnd_validation, "cwnd-validation: Linux always does it");
    let round_trips = !tcp.timestamps && tcp.rtt_samples == RttSamples::EachRoundTrip;
    remark(round_trips, "rtt-samples: Linux takes one from each acknowledgement");
    remark(tcp.initial_rto != Span::from_secs(1), "initial-rto: Linux takes 1 s");
    remark(tcp.rto_floor != RtoFloor::Variance, "rto-floor: Linux bounds the variance");
    remark(!tcp.ack_at_window_end, "ack-at-window-end: Linux decides by the space in its buffer");
    let bursts = name == "bbr" && tcp.largest_burst != Some(1);
    remark(bursts, "largest-burst: the lab's devices take segments one by one, as with \"1pkt\"");
    let by_rfc = name == "cubic" && tcp.cubic_rules == CubicRules::Rfc9438;
    remark(by_rfc, "cubic-rules: Linux has its own, which the simulator has with \"linux\"");
    remark(
        !tcp.fast_convergence,
        "fast-convergence: a setting of the whole machine, which the lab leaves alone",
    );
    let hystart = "/sys/module/tcp_cubic/parameters/hystart";
    let on = fs::read_to_string(hystart).is_ok_and(|text| text.trim() != "0");
    let asks = name == "cubic" && tcp.hystart != on;
    remark(asks, "hystart: a setting of the whole machine, which the lab leaves alone");
    Ok(())
}

/// From 6.17 on the kernel has no other loss detection than RFC 8985's (its commit 1c120191dcec).
fn knows_rack_only(release: &str) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map_while(|word| word.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(6), Some(17))
}

/// The kernel's name of a congestion control.
pub(crate) fn kernel_name(name: &str) -> &str {
    // Linux's reno with RFC 6582's recovery is what the field calls NewReno.
    if name == "newreno" { "reno" } else { name }
}

/// Kernel parameters of the nodes' namespaces, as required by the flows that end there.
///
/// # Errors
/// When two flows at a node ask for different ones.
pub(crate) fn parameters_of_nodes(
    scenario: &Scenario,
    plan: &Workplan,
) -> Result<BTreeMap<NodeId, BTreeMap<&'static str, String>>, Error> {
    let mut of_nodes: BTreeMap<NodeId, BTreeMap<&'static str, (String, String)>> = BTreeMap::new();
    for flow in &plan.flows {
        let group = flow.group(&scenario.flows);
        let Transport::Tcp { settings, .. } = &group.transport else { continue };
        for (key, value) in parameters(settings) {
            for node in [flow.src, flow.dst] {
                let own = of_nodes.entry(node).or_default();
                let entry = own.entry(key).or_insert_with(|| (value.clone(), group.name.clone()));
                if entry.0 != value {
                    return missing(format!(
                        "flows.{} and flows.{} ask for different {key} ({} and {value}) at {}; Linux has it per \
                         network namespace",
                        entry.1,
                        group.name,
                        entry.0,
                        scenario.topology.nodes[node.index()].name
                    ));
                }
            }
        }
    }
    let plain = |own: BTreeMap<&'static str, (String, String)>| {
        own.into_iter().map(|(key, (value, _))| (key, value)).collect()
    };
    Ok(of_nodes.into_iter().map(|(node, own)| (node, plain(own))).collect())
}

fn parameters(tcp: &TcpSettings) -> Vec<(&'static str, String)> {
    let switch = |on: bool| u8::from(on).to_string();
    let percent = |gain: f64| format!("{:.0}", (gain * 100.0).clamp(0.0, 1000.0));
    // Half of a buffer is for the kernel's own bookkeeping.
    let most = tcp.receive_buffer.get().saturating_mul(4).min(1 << 30);
    let mut all = vec![
        ("net.ipv4.tcp_sack", switch(tcp.sack)),
        // RACK, which stays on from Linux 6.17 whatever this says; tail-loss probes, and early retransmit before them.
        ("net.ipv4.tcp_recovery", switch(tcp.rack_tlp || tcp.loss_detection == LossDetection::Rack)),
        ("net.ipv4.tcp_early_retrans", (if tcp.rack_tlp { 3 } else { 0 }).to_string()),
        ("net.ipv4.tcp_timestamps", switch(tcp.timestamps)),
        ("net.ipv4.tcp_window_scaling", switch(tcp.window_scaling)),
        ("net.ipv4.tcp_ecn", switch(tcp.ecn)),
        ("net.ipv4.tcp_rmem", format!("4096 131072 {}", most.max(131_072))),
        ("net.ipv4.tcp_rto_min_us", (tcp.min_rto.as_nanos() / 1000).to_string()),
        ("net.ipv4.tcp_rto_max_ms", (tcp.max_rto.as_nanos() / 1_000_000).to_string()),
    ];
    if tcp.pacing {
        all.push(("net.ipv4.tcp_pacing_ss_ratio", percent(tcp.pacing_gain_slow_start)));
        all.push(("net.ipv4.tcp_pacing_ca_ratio", percent(tcp.pacing_gain)));
    }
    all
}

fn check_files(flows: usize, labs: usize) -> Result<(), Error> {
    // A socket at each end, and some for the lab itself.
    let most = open_files() / 3;
    if flows * labs > most {
        let with = if labs > 1 { format!(" in each of {labs} labs at once (--jobs)") } else { String::new() };
        return missing(format!(
            "{flows} flows{with}; at most {most} in all, with three sockets each (`ulimit -n` raises it)"
        ));
    }
    Ok(())
}

fn open_files() -> usize {
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let line = limits.lines().find(|line| line.starts_with("Max open files"));
    let soft = line.and_then(|line| line.split_whitespace().nth(3)).and_then(|word| word.parse().ok());
    soft.unwrap_or(1024)
}

fn missing<T>(what: String) -> Result<T, Error> {
    Err(Error::Missing(what))
}

#[cfg(test)]
mod tests {
    use bandmaster_core::scenario::{Options, parse};

    use super::{Remarks, check_network, knows_rack_only};

    /// What is said of a link with these keys, in a file with these tables.
    fn refusal(link: &str, tables: &str) -> String {
        let text = format!(
            "version = 1\nname = \"t\"\n[run]\nduration = \"2s\"\n[network]\nhosts = [\"a\", \"b\"]\n\
             [[network.links]]\nends = [\"a\", \"b\"]\nrate = \"1mbit\"\n{link}\n\
             [[flows]]\nname = \"f\"\nfrom = \"a\"\nto = \"b\"\n{tables}"
        );
        let mut study = parse("t.toml", &text, &Options::default()).unwrap_or_else(|e| panic!("{e}"));
        let checked = check_network(&study.cases.remove(0).scenario, &mut Remarks::new());
        checked.err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn links_that_fail_or_vary_are_refused_by_name() {
        assert_eq!(refusal("gemodel = { p = 0.01, r = 0.25 }", ""), "");
        for (link, tables, named) in [
            ("", "[[faults.links]]\nends = [\"a\", \"b\"]\ndown = \"1s\"\n", "`faults.links`"),
            ("jitter = \"1ms\"", "", "link a->b: `jitter` and `reorder`"),
            ("reorder = 0.5", "", "link a->b: `jitter` and `reorder`"),
        ] {
            let said = refusal(link, tables);
            assert!(said.contains(named) && said.contains("`run` simulates"), "{said}");
        }
    }

    #[test]
    fn kernels_before_6_17_know_rfc_6675() {
        let releases = ["5.15.0-91-generic", "6.1.0", "6.16.9", "6.17.0-rc1", "6.18.44", "7.0.0", ""];
        let expected = [false, false, false, true, true, true, false];
        assert_eq!(releases.map(knows_rack_only), expected);
    }
}
