//! A recorded hour as a scenario: the connections that hosts reported, over the links of a controller's file, under the
//! present policies and under others.
//!
//! [`Network::new`] takes the links, [`Recording::new`] places the reports on them, [`Plan::new`] decides how much of the
//! hour is simulated, and [`Plan::scenario`] draws flows for a seed and writes a scenario file, which any runtime can read.

mod draw;
mod network;

use core::fmt::Write as _;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crate::controller::{Deployment, Host};
use crate::params::{NamedText, Params};
use crate::rng::Stream;
use crate::scheme::opentcp::policy::Policy;
use crate::sketch::{self, Histogram, Kept, Report, Way};
use crate::time::Span;
use crate::units::Bytes;
use draw::{Minute, Receiver, Source};
pub use network::Network;

/// Payload of a segment, and segments of a connection without payload.
const SEGMENT: f64 = 1448.0;
const OVERHEAD: f64 = 6.0;
/// Packets for each data packet, acknowledgements among them.
const WITH_ACKS: f64 = 1.55;
/// Most flows of a scenario.
const MOST_FLOWS: f64 = 300_000.0;
/// Times its budget that a run may take when no minute takes less.
const MOST_OVER: f64 = 8.0;
/// A cycle is not shortened below this, nor below so many round-trip times.
const SHORTEST_CYCLE: Span = Span::from_millis(100);
const ROUND_TRIPS: u64 = 100;
/// After the last flow begins.
const DRAIN: Span = Span::from_secs(5);
/// Before the first that counts: the Oracle listens for a cycle, and decides after the second.
const WARM_UP_CYCLES: u64 = 3;

/// The reports of hosts, on a network.
#[derive(Clone, Debug)]
pub struct Recording {
    minutes: Vec<Minute>,
    /// Completion times in us, as they were measured.
    pub times: Histogram,
    /// Transfers in all.
    pub transfers: u64,
    /// Bytes in all, of transfers, of connections that live long, and of peers that are at no node.
    pub bytes: u64,
    /// The same, of connections that have lived longer than a minute.
    pub held: u64,
    /// Bytes from and to addresses that are at no node.
    pub unplaced: BTreeMap<IpAddr, u64>,
    /// Connections of which hosts know nothing but that they existed.
    pub missed: u64,
    /// Connections that were never established.
    pub failed: u64,
    /// Missing parts of reports of which other parts are there.
    pub lost: usize,
    /// Hosts that have reported, and minutes of hosts with an agent that lack a report.
    pub hosts: usize,
    silent: usize,
    agents: usize,
    /// Minutes between others in which no host reported.
    absent: usize,
    /// Congestion controls by how many hosts have them, and a tick of their timers.
    controls: BTreeMap<String, usize>,
    tick: Span,
    /// Hosts with RACK and tail-loss probes.
    pub rack: usize,
}

impl Recording {
    /// What `kept` says, minute by minute.
    ///
    /// # Errors
    /// When nothing is recorded.
    pub fn new(
        deployment: &Deployment,
        hosts: &[Host],
        network: &Network,
        kept: &[Vec<(Kept, Report)>],
    ) -> Result<Self, String> {
        let names: BTreeMap<u32, &str> = hosts.iter().map(|host| (host.number, host.name.as_str())).collect();
        let all = || kept.iter().flatten();
        let mut places: BTreeMap<IpAddr, usize> = BTreeMap::new();
        for (kept, _) in all() {
            let node = names.get(&kept.host).and_then(|name| network.host(name));
            places.extend(node.map(|node| (kept.from, node)));
        }
        let of_networks = |address: IpAddr| {
            let fitting = deployment.networks.iter().filter(|(prefix, _)| prefix.has(address));
            let (_, name) = fitting.max_by_key(|(prefix, _)| prefix.length)?;
            network.host(name)
        };
        let mut recording = Self {
            minutes: Vec::new(),
            times: Histogram::default(),
            transfers: 0,
            bytes: 0,
            held: 0,
            unplaced: BTreeMap::new(),
            missed: 0,
            failed: 0,
            lost: 0,
            hosts: 0,
            silent: 0,
            agents: network.count_agents(),
            absent: kept.iter().filter(|minute| minute.is_empty()).count(),
            controls: BTreeMap::new(),
            tick: Span::ZERO,
            rack: 0,
        };
        let mut parts: BTreeMap<_, BTreeSet<u16>> = BTreeMap::new();
        for (kept, report) in all() {
            let of = (kept.host, report.interval, report.length, report.parts);
            parts.entry(of).or_default().insert(report.part);
        }
        recording.lost = parts.iter().map(|((.., all), told)| usize::from(*all) - told.len()).sum();
        let mut heard: BTreeMap<u32, (String, bool)> = BTreeMap::new();
        for reports in kept.iter().filter(|minute| !minute.is_empty()) {
            let mut minute = Minute::default();
            let node = |kept: &Kept| names.get(&kept.host).and_then(|name| network.host(name));
            // Hosts begin their intervals by their own clocks: a file may have two of one host, or a part of one.
            let mut told: BTreeMap<usize, Span> = BTreeMap::new();
            for (own, report) in reports.iter().filter_map(|(kept, report)| Some((node(kept)?, report))) {
                let length =
                    if report.part == 0 { Span::from_millis(report.length.into()) } else { Span::ZERO };
                *told.entry(own).or_default() += length;
            }
            recording.silent += network.count_agents().saturating_sub(told.len());
            let mut lengths: Vec<Span> = told.values().copied().filter(|length| !length.is_zero()).collect();
            lengths.sort_unstable();
            minute.length = lengths.get(lengths.len() / 2).copied().unwrap_or(sketch::INTERVAL);
            // Reports bound their own length, but not how many of them a host sends.
            minute.length = minute.length.min(sketch::INTERVAL * 2);
            // What was counted in another time, in that of the minute. The first part of an interval may be lost.
            let scale = |own| match told.get(&own) {
                Some(length) if !length.is_zero() => minute.length.as_secs_f64() / length.as_secs_f64(),
                _ => 1.0,
            };
            for (kept, report) in reports {
                let Some(own) = node(kept) else { continue };
                let scale = scale(own);
                if let Some(about) = &report.about {
                    recording.missed += u64::from(about.missed);
                    recording.failed += u64::from(about.failed);
                    recording.tick = recording.tick.max(Span::from_micros(about.tick.into()));
                    heard.insert(kept.host, (about.control.clone(), about.rack));
                    let receiver = minute.receivers.entry(own).or_default();
                    receiver.bursts.merge(&about.bursts);
                    add(&mut receiver.spread, about.spread);
                    receiver.scale = scale;
                }
                for row in &report.rows {
                    recording.times.merge(&row.times);
                    let peer = places.get(&row.peer).copied().or_else(|| of_networks(row.peer));
                    // What a host with an agent receives, it tells itself.
                    if row.way == Way::Sent && peer.is_some_and(|peer| told.contains_key(&peer)) {
                        continue;
                    }
                    add(&mut recording.bytes, row.bytes + row.held);
                    let Some(peer) = peer.filter(|peer| *peer != own) else {
                        add(recording.unplaced.entry(row.peer).or_default(), row.bytes + row.held);
                        continue;
                    };
                    let (src, dst) = if row.way == Way::Sent { (own, peer) } else { (peer, own) };
                    add(&mut recording.held, row.held);
                    if row.held > 0 {
                        add(minute.held.entry((src, dst)).or_default(), (row.held as f64 * scale) as u64);
                    }
                    add(&mut recording.transfers, row.sizes.count());
                    if row.sizes.is_empty() {
                        continue;
                    }
                    let source = Source::new(src, row, scale);
                    match row.way {
                        Way::Sent => minute.alone.push((dst, source)),
                        Way::Received => minute.receivers.entry(dst).or_default().take(row.in_burst, source),
                    }
                }
            }
            recording.minutes.push(minute);
        }
        recording.silent += recording.absent * recording.agents;
        recording.hosts = heard.len();
        for (control, rack) in heard.into_values() {
            *recording.controls.entry(control).or_default() += 1;
            recording.rack += usize::from(rack);
        }
        if recording.minutes.is_empty() {
            return Err(
                "nothing is recorded: agents tell once a minute what connections have ended (key `record`)"
                    .to_owned(),
            );
        }
        if recording.transfers == 0 && recording.held == 0 {
            let who = recording
                .unplaced
                .keys()
                .next()
                .map(|address| format!(", and {address} is at no node: write [[networks]]"));
            return Err(format!("no transfers between nodes are recorded{}", who.unwrap_or_default()));
        }
        Ok(recording)
    }

    /// Minutes that are recorded.
    pub fn minutes(&self) -> usize {
        self.minutes.len()
    }

    /// The congestion control that most hosts have, as a scenario calls it, and what to say of it.
    fn control(&self) -> (&'static str, Option<String>) {
        let most = self.controls.iter().max_by_key(|(_, count)| **count).map_or("", |(name, _)| name);
        let known = match most {
            "cubic" => "cubic",
            "reno" => "newreno",
            "bic" => "bic",
            "bbr" => "bbr",
            other => {
                return (
                    "cubic",
                    Some(format!(
                        "hosts have the congestion control \"{other}\", which is simulated as CUBIC"
                    )),
                );
            }
        };
        (
            known,
            (self.controls.len() > 1)
                .then(|| format!("hosts have several congestion controls; all are simulated with {most}")),
        )
    }
}

/// Adds reported values without overflow: with a stolen secret a report may hold anything.
fn add(sum: &mut u64, value: u64) {
    *sum = sum.saturating_add(value);
}

/// The two sides of a comparison: names and texts of policies, as read.
#[derive(Clone, Debug)]
pub struct Policies {
    /// Files.
    pub files: Vec<NamedText>,
    /// What they say.
    pub policies: Vec<Policy>,
    /// The interval between decisions.
    pub cycle: Span,
}

/// How much of the hour is simulated.
#[derive(Clone, PartialEq, Debug)]
pub struct Plan {
    /// Minutes of the recording that are simulated, by number.
    pub minutes: Vec<usize>,
    /// Simulated part of every such minute; lengths of cycles, leases and looks shrink with it.
    pub share: f64,
    /// Time before the first flow that counts.
    pub warm_up: Span,
    /// Simulated time in all.
    pub duration: Span,
    /// End of the time in which flows begin.
    pub end: Span,
    /// What the reader should know.
    pub remarks: Vec<String>,
}

/// A scenario file, and the files that it names.
#[derive(Clone, PartialEq, Debug)]
pub struct Written {
    /// Its text.
    pub text: String,
    /// Text of every file that it names, by name.
    pub files: BTreeMap<String, String>,
}

/// Variants of the scenario, and their files of policies.
pub const VARIANTS: [&str; 2] = ["present", "new"];

impl Plan {
    /// As much as takes some `budget` packets over links for each run.
    ///
    /// # Errors
    /// When each minute takes far more.
    pub fn new(
        recording: &Recording,
        network: &Network,
        sides: &[Policies; 2],
        budget: f64,
    ) -> Result<Self, String> {
        let work = |minute: &Minute| {
            let mut flows = 0.0;
            let mut packets = 0.0;
            for (src, dst, bytes, count) in minute.pairs() {
                flows += count;
                let hops = f64::from(network.hops(src, dst));
                packets += hops * (bytes / SEGMENT * WITH_ACKS + count * OVERHEAD);
            }
            (packets / budget).max(flows / MOST_FLOWS)
        };
        let works: Vec<f64> = recording.minutes.iter().map(work).collect();
        let shortest = SHORTEST_CYCLE.max(network.longest_rtt() * ROUND_TRIPS);
        let cycle = sides[0].cycle.min(sides[1].cycle);
        let least = (shortest.as_secs_f64() / cycle.as_secs_f64()).min(1.0);
        let longest = sides[0].cycle.max(sides[1].cycle);
        // The first of them is simulated for the warm-up too.
        let need = |minutes: &[usize]| {
            let first = minutes[0];
            let before =
                (longest * WARM_UP_CYCLES).as_secs_f64() / recording.minutes[first].length.as_secs_f64();
            minutes.iter().map(|at| works[*at]).sum::<f64>() + before * works[first]
        };
        let count = works.len();
        let ways = (1..=count).flat_map(|step| (0..step).map(move |from| (step, from)));
        let mut ways = ways.map(|(step, from)| (step, (from..count).step_by(step).collect::<Vec<_>>()));
        let (step, minutes) = ways.find(|(_, minutes)| least * need(minutes) <= 1.0).unwrap_or_else(|| {
            let lightest = (0..count).min_by(|a, b| works[*a].total_cmp(&works[*b]));
            (count, vec![lightest.unwrap_or(0)])
        });
        let taken = need(&minutes);
        let over = least * taken;
        if over > MOST_OVER {
            return Err(format!(
                "each minute that is recorded takes {over:.0} times what a run may, or more"
            ));
        }
        let share = (1.0 / taken).clamp(least, 1.0);
        let longest = longest.mul_f64(share);
        let warm_up = longest * WARM_UP_CYCLES;
        let lengths = minutes.iter().map(|at| recording.minutes[*at].length.mul_f64(share));
        let end = lengths.fold(warm_up, |sum, length| sum + length);
        let mut remarks = Vec::new();
        if step > 1 {
            let bytes = |at: usize| recording.minutes[at].pairs().map(|(.., bytes, _)| bytes).sum::<f64>();
            let part = minutes.iter().copied().map(bytes).sum::<f64>() / (0..count).map(bytes).sum::<f64>();
            remarks
                .push(format!("one minute in {step} is simulated, with {:.1} % of the bytes", 100.0 * part));
        }
        if over > 1.0 {
            remarks.push(format!("a run takes {over:.1} times its budget: no minute takes less"));
        }
        if share < 1.0 {
            remarks.push(format!(
                "each minute is simulated for {:.1} s, with cycles, leases and looks shortened to {:.1} %: utilization over shorter cycles varies more",
                60.0 * share,
                100.0 * share
            ));
        }
        Ok(Self { minutes, share, warm_up, duration: end + DRAIN, end, remarks })
    }

    /// The scenario with flows drawn for `seed`: variants [`VARIANTS`] in this order.
    pub fn scenario(
        &self,
        recording: &Recording,
        network: &Network,
        deployment: &Deployment,
        sides: &[Policies; 2],
        seed: u64,
    ) -> Written {
        let mut stream = Stream::new(seed, 0, "whatif");
        let (mut counted, mut background) = (Vec::new(), Vec::new());
        let first = &recording.minutes[self.minutes[0]];
        first.draw(&mut stream, Span::ZERO, self.warm_up, &mut background, None);
        let mut at = self.warm_up;
        for number in &self.minutes {
            let minute = &recording.minutes[*number];
            let length = minute.length.mul_f64(self.share);
            minute.draw(&mut stream, at, length, &mut counted, Some(&mut background));
            at += length;
        }
        let mut files = BTreeMap::new();
        let mut groups = String::new();
        for (name, mut flows, measured) in [("recorded", counted, true), ("background", background, false)] {
            if flows.is_empty() {
                continue;
            }
            flows.sort_unstable();
            let mut text = String::new();
            for draw::Flow { start, src, dst, size } in flows {
                let _ = writeln!(
                    text,
                    "{}ns {} {} {size}B",
                    start.as_nanos(),
                    network.name(src),
                    network.name(dst)
                );
            }
            let file = format!("{name}.flows");
            let ends = network.hosts();
            let _ = writeln!(
                groups,
                "\n[[flows]]\nname = \"{name}\"\nfrom = [{ends}]\nto = [{ends}]\nflow-list = \"{file}\"\nmeasured = {measured}"
            );
            files.insert(file, text);
        }
        let (control, _) = recording.control();
        let tick = if recording.tick.is_zero() {
            String::new()
        } else {
            format!("timer-tick = \"{}\"\n", recording.tick)
        };
        // By most hosts: newer kernels know nothing else.
        let losses = if recording.rack * 2 > recording.hosts { "loss-detection = \"rack\"\n" } else { "" };
        let cycle = |side: &Policies| side.cycle.mul_f64(self.share);
        let sample = cycle(&sides[0]).min(cycle(&sides[1]));
        let agents = network.agents();
        let params = &deployment.params;
        let mut role =
            format!("agents = [{agents}]\nlook = \"{}\"\n", Span::from_secs(1).mul_f64(self.share));
        if let Some(rollout) = params.optional("rollout", Params::integer) {
            let _ = writeln!(role, "rollout = {rollout}");
        }
        if params.get("force").is_some() {
            role.push_str("force = [\"timescale\"]\n");
        }
        let mut text = format!(
            "version = 1\nname = \"whatif\"\n[run]\nduration = \"{}\"\nwarm-up = \"{}\"\nsample = \"{sample}\"\ntrials = 1\nseed = {seed}\n\
             [network]\n{}\n[tcp]\ncongestion-control = \"{control}\"\nquick-acks = \"16pkt\"\n{tick}{losses}\
             [measure]\nrecord = \"groups\"\nlong-interval = \"{sample}\"\n{groups}\n[schemes.opentcp]\n{role}",
            self.duration,
            self.warm_up,
            network.tables(),
        );
        let mut names = Vec::new();
        for (variant, side) in VARIANTS.iter().zip(sides) {
            let mut own = Vec::new();
            for (at, NamedText { name, text }) in side.files.iter().enumerate() {
                // What ships is named as it is.
                let file = text.as_ref().map_or_else(|| name.clone(), |_| format!("{variant}-{at}.toml"));
                files.extend(text.clone().map(|text| (file.clone(), text)));
                own.push(format!("\"{file}\""));
            }
            names.push((own.join(", "), cycle(side)));
        }
        let _ = writeln!(text, "policies = [{}]\ncycle = \"{}\"", names[0].0, names[0].1);
        for (variant, (policies, cycle)) in VARIANTS.iter().zip(names) {
            let _ = writeln!(
                text,
                "\n[[compare]]\nname = \"{variant}\"\nset = {{ \"schemes.opentcp.policies\" = [{policies}], \"schemes.opentcp.cycle\" = \"{cycle}\" }}"
            );
        }
        Written { text, files }
    }
}

/// What of the recording the simulation leaves out or does otherwise.
pub fn remarks(recording: &Recording) -> Vec<String> {
    let mut all = Vec::new();
    let share = |bytes: u64| 100.0 * bytes as f64 / recording.bytes.max(1) as f64;
    let mut unplaced = recording.unplaced.clone();
    let many = unplaced.remove(&IpAddr::from([0; 4])).unwrap_or(0);
    if many > 0 {
        all.push(format!(
            "{:.1} % of the bytes are left out: their hosts had more peers than a report has room for",
            share(many)
        ));
    }
    if recording.lost > 0 {
        all.push(format!("{} parts of reports are missing", recording.lost));
    }
    if !unplaced.is_empty() {
        let most = unplaced.iter().max_by_key(|(_, bytes)| **bytes);
        let unplaced = unplaced.values().fold(0u64, |sum, bytes| sum.saturating_add(*bytes));
        let most = most.map(|(address, _)| address.to_string()).unwrap_or_default();
        all.push(format!(
            "{:.1} % of the bytes are left out: their other end is at no node of [[links]] (most of them: {most}); write [[networks]]",
            share(unplaced)
        ));
    }
    if recording.silent > 0 {
        let of = recording.silent as f64
            / ((recording.minutes.len() + recording.absent) * recording.agents) as f64;
        all.push(format!(
            "{:.1} % of the hosts' minutes are missing: agents did not run, or their reports were lost",
            100.0 * of
        ));
    }
    if recording.held > 0 {
        all.push(format!(
            "{:.1} % of the bytes are of connections that lived longer than a minute; each is simulated as a transfer a second, and counts in no completion time",
            share(recording.held)
        ));
    }
    if recording.missed > 0 {
        all.push(format!("{} connections were not recorded, as too many ended at once", recording.missed));
    }
    if recording.failed > 0 {
        all.push(format!("{} connections were never established; they are not simulated", recording.failed));
    }
    if recording.rack > 0 {
        all.push(format!(
            "RACK and tail-loss probes are on at {} of {} hosts; the simulator has no such probes: it has more timeouts than they",
            recording.rack, recording.hosts
        ));
    }
    all.extend(recording.control().1);
    all
}

/// The largest transfer, for people.
pub fn largest(recording: &Recording) -> Bytes {
    let sizes = recording.minutes.iter().flat_map(Minute::sizes);
    Bytes::new(sizes.map(|sizes| sizes.at(1.0)).max().unwrap_or(0))
}

impl Receiver {
    fn take(&mut self, in_burst: bool, source: Source) {
        self.pools[usize::from(in_burst)].push(source);
    }
}

#[cfg(test)]
mod tests;
